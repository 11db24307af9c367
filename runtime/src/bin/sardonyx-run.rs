//! sardonyx-run: executes .sdx files, without the compiler

use clap::Parser;
use sardonyx_runtime::commands::{self, Command};

/// Runs, checks, measures and shows compiled models
#[derive(Parser)]
#[command(name = "sardonyx-run", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() {
    let code = match commands::parse::<Cli>(std::env::args_os()) {
        Ok(cli) => commands::execute(|out| cli.command.execute(out)),
        Err(code) => code,
    };
    std::process::exit(code);
}
