//! sardonyx-run: runs `.sdx` artifacts without the compiler

use clap::Parser;
use sardonyx_run::{self as commands, Command, CompletionsArgs};

/// Runs, checks, measures and inspects compiled models
#[derive(Parser)]
#[command(name = "sardonyx-run", version, about)]
enum Cli {
    #[command(flatten)]
    Command(Box<Command>),
    /// Write a script that completes this program's command line in a shell
    Completions(CompletionsArgs),
}

fn main() {
    commands::serve_rank();
    let code = match commands::parse::<Cli>(std::env::args_os()) {
        Ok(Cli::Command(command)) => commands::execute(|out| command.execute(out)),
        Ok(Cli::Completions(args)) => commands::execute(|out| commands::completions::<Cli>(&args, out).map(|()| 0)),
        Err(code) => code,
    };
    std::process::exit(code);
}
