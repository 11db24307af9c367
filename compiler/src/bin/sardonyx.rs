//! sardonyx compile | plan | simulate | check | bisect | reduce | run | bench | inspect | explain | ops | devices |
//! completions: the compiler's command line

use clap::Parser;
use sardonyx::commands::{
    BisectArgs, CheckArgs, CompileArgs, DevicesArgs, ExplainArgs, OpsArgs, PlanArgs, ReduceArgs, SimulateArgs, bisect,
    check, devices, explain, ops, plan, reduce, run_compile, simulate,
};
use sardonyx_base::Result;
use sardonyx_run as commands;
use sardonyx_run::{BenchArgs, CompletionsArgs, InspectArgs, RunArgs};
use std::io::Write;

/// Passes allocate and free many small values: with the system's allocator this takes a fifth of the compile time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compiles ONNX models ahead of time and runs the result.
#[derive(Parser)]
#[command(name = "sardonyx", version)]
enum Cli {
    /// Compile MODEL.onnx into one .sdx file
    Compile(Box<CompileArgs>),
    /// Find how to split a model over the ranks of a cluster, and predict its time and memory
    Plan(PlanArgs),
    /// Simulate a model with a plan on a described cluster, or the schedule of a pipeline
    Simulate(SimulateArgs),
    /// Compare a model's outputs with the expected ones and with the interpreter's
    Check(CheckArgs),
    /// Find the rewrite that makes a model's outputs wrong, and write a test for it
    Bisect(BisectArgs),
    /// Shrink a model or an IR file that shows a fault, and write a test for it
    Reduce(ReduceArgs),
    /// Run a compiled model once and print or save its outputs
    Run(RunArgs),
    /// Measure the time of a call of a compiled model
    Bench(Box<BenchArgs>),
    /// Show the contents of an artifact
    Inspect(InspectArgs),
    /// Show what each launch of the compiled model computes and moves
    Explain(ExplainArgs),
    /// List the supported ONNX operators
    Ops(OpsArgs),
    /// List the described devices and which of them this machine has, or show the figures of one with their sources
    Devices(DevicesArgs),
    /// Write a script that completes this program's command line in a shell
    Completions(CompletionsArgs),
}

fn main() {
    sardonyx_run::serve_rank();
    let code = match commands::parse::<Cli>(std::env::args_os()) {
        Ok(cli) => commands::execute(|out| run(cli, out)),
        Err(code) => code,
    };
    std::process::exit(code);
}

fn run(cli: Cli, out: &mut dyn Write) -> Result<i32> {
    match cli {
        Cli::Compile(args) => run_compile(&args, out),
        Cli::Plan(args) => plan(&args, out).map(|()| 0),
        Cli::Simulate(args) => simulate(&args, out).map(|()| 0),
        Cli::Check(args) => check(&args, out).map(|summary| summary.exit_code()),
        Cli::Bisect(args) => bisect(&args, out),
        Cli::Reduce(args) => reduce(&args, out).map(|()| 0),
        Cli::Run(args) => commands::run(&args, out),
        Cli::Bench(args) => commands::bench(&args, out).map(|()| 0),
        Cli::Inspect(args) => commands::inspect(&args, out).map(|()| 0),
        Cli::Explain(args) => explain(&args, out).map(|()| 0),
        Cli::Ops(args) => ops(&args, out).map(|()| 0),
        Cli::Devices(args) => devices(&args, out).map(|()| 0),
        Cli::Completions(args) => commands::completions::<Cli>(&args, out).map(|()| 0),
    }
}
