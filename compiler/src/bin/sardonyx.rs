//! sardonyx compile | run | check | bench | inspect | ops: the compiler's command line

use clap::Parser;
use sardonyx::compile::{Request, compile, parse_dims};
use sardonyx::pipeline::Watch;
use sardonyx_runtime::commands::{self, Command};
use sardonyx_runtime::{Error, Result};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// Compiles ONNX models ahead of time and runs the result.
#[derive(Parser)]
#[command(name = "sardonyx", version)]
enum Cli {
    /// Compile MODEL.onnx into one .sdx file
    Compile(CompileArgs),
    /// List the supported ONNX operators
    Ops {
        /// As a Markdown table
        #[arg(long)]
        markdown: bool,
    },
    #[command(flatten)]
    Runtime(Command),
}

#[derive(clap::Args)]
struct CompileArgs {
    /// The model
    model: PathBuf,
    /// Where to write; the model's name with .sdx by default
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// What to compile for
    #[arg(long, value_parser = ["cpu"], default_value = "cpu")]
    target: String,
    /// Range of a dimension symbol: NAME=N or NAME=LO..HI
    #[arg(long = "dim", value_name = "NAME=RANGE")]
    dims: Vec<String>,
    /// Stop after a stage and print the IR (to -o, or standard output)
    #[arg(long, value_name = "STAGE")]
    stop_after: Option<String>,
    /// Print the IR to standard error after a stage; `all` for every one
    #[arg(long, value_name = "STAGE")]
    print_after: Vec<String>,
    /// Write the IR after every stage into a folder
    #[arg(long, value_name = "DIR")]
    dump_dir: Option<PathBuf>,
    /// Print the time of each stage
    #[arg(long)]
    time_passes: bool,
    /// Leave out the call with known results that loading the artifact repeats
    #[arg(long)]
    no_selftest: bool,
}

fn main() {
    let code = match commands::parse::<Cli>(std::env::args_os()) {
        Ok(cli) => commands::execute(|out| run(cli, out)),
        Err(code) => code,
    };
    std::process::exit(code);
}

fn run(cli: Cli, out: &mut dyn Write) -> Result<i32> {
    match cli {
        Cli::Compile(args) => run_compile(args, out),
        Cli::Ops { markdown } => run_ops(markdown, out),
        Cli::Runtime(command) => command.execute(out),
    }
}

fn say(out: &mut dyn Write, line: &str) -> Result<()> {
    writeln!(out, "{line}").map_err(|e| Error::io("standard output", "write", &e))
}

fn run_compile(args: CompileArgs, out: &mut dyn Write) -> Result<i32> {
    let start = Instant::now();
    // The CPU is the only target yet, and clap refuses any other.
    debug_assert_eq!(args.target, "cpu");
    let dims = parse_dims(&args.dims)?;
    let output = args.output.clone().unwrap_or_else(|| args.model.with_extension("sdx"));
    let watch = Watch {
        print_after: args.print_after,
        dump_dir: args.dump_dir,
        stop_after: args.stop_after,
        time_passes: args.time_passes,
    };
    let selftest = !args.no_selftest;
    let report =
        compile(&Request { model: &args.model, output: output.clone(), dims, watch: watch.clone(), selftest })?;
    if watch.time_passes {
        for (stage, time) in &report.times {
            say(out, &format!("{stage:<16} {:>9.1} ms", time.as_secs_f64() * 1e3))?;
        }
    }
    if let Some(ir) = report.stopped_at {
        return match args.output {
            Some(path) => std::fs::write(&path, ir).map(|()| 0).map_err(|e| Error::io(&path, "write", &e)),
            None => say(out, &ir).map(|()| 0),
        };
    }
    if let Some(s) = report.summary {
        let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
        say(
            out,
            &format!(
                "{}: {} kernels in {} launches, {:.1} MiB of weights, {:.0} KiB of code, {:.2} s",
                output.display(),
                s.kernels,
                s.launches,
                mib(s.weights_bytes),
                s.code_bytes as f64 / 1024.0,
                start.elapsed().as_secs_f64()
            ),
        )?;
        say(out, &format!("arena: {} bytes", s.arena_bytes))?;
        if let Some(why) = report.selftest_skipped {
            say(out, &format!("self-test: none, {why}"))?;
        }
    }
    Ok(0)
}

fn run_ops(markdown: bool, out: &mut dyn Write) -> Result<i32> {
    if markdown {
        say(out, "| domain | operator | opsets |\n|---|---|---|")?;
    }
    for op in sardonyx_passes::OPERATORS {
        let domain = if op.domain.is_empty() { "ai.onnx" } else { op.domain };
        let (first, last) = op.opsets;
        say(
            out,
            &match markdown {
                true => format!("| {domain} | {} | {first}–{last} |", op.name),
                false => format!("{domain:<16} {:<24} opset {first}..{last}", op.name),
            },
        )?;
    }
    Ok(0)
}
