//! `cargo xtask test`  =>  setup, models with their weights, then the tests of one row of [`SUITES`]

use crate::context::{Context, Failure, PROGRAMS_ARE_BUILT, Result, run};
use crate::{fetch, models, setup};

/// A suite: a function that prepares what it needs besides the fetched packages, and the arguments with which cargo
/// runs it.
struct Suite {
    name: &'static str,
    about: &'static str,
    prepare: fn(&Context) -> Result<()>,
    cargo: &'static [&'static str],
}

/// Every suite; the first is the default.
static SUITES: &[Suite] = &[
    Suite {
        name: "default",
        about: "every test but those of the other suites",
        prepare: models::ensure_default,
        cargo: &["test", "--workspace"],
    },
    Suite {
        name: "batches",
        about: "2,000 random batches over twelve models: each row has the bits that it has alone; release build",
        prepare: models::ensure_default,
        cargo: &["test", "--release", "-p", "sardonyx-tests", "--test", "batches", "--", "--ignored", "--nocapture"],
    },
    Suite {
        name: "embedding",
        about: "C programs under valgrind, and the Python module with NumPy in an environment of its own; release build",
        prepare: |_| Ok(()),
        cargo: &["run", "-p", "xtask", "--", "embedding"],
    },
    Suite {
        name: "every-case",
        about: "all kernels of the tests of kernels and of conformance, of which the default suite draws one in five",
        prepare: models::ensure_default,
        cargo: &[
            "--config",
            "env.SARDONYX_EVERY_CASE=\"1\"",
            "test",
            "-p",
            "sardonyx-kernels",
            "-p",
            "sardonyx-tests",
            "--test",
            "kernels",
            "--test",
            "gemm",
            "--test",
            "attention",
            "--test",
            "conformance",
            "--test",
            "mutation",
        ],
    },
    Suite {
        name: "hostile",
        about: "10,000 mutants of models and of artifacts, and eight threads on MiniLM; release build",
        prepare: models::ensure_default,
        cargo: &[
            "test",
            "--release",
            "-p",
            "sardonyx-tests",
            "--test",
            "hostile",
            "--test",
            "concurrency",
            "--",
            "--ignored",
            "--nocapture",
        ],
    },
    Suite {
        name: "large-models",
        about: "BERT base and large: data sets, compile time and memory; a decoder of 7,000 nodes; release build, 2.6 GB of weights",
        prepare: |context| {
            models::ensure_default(context)?;
            models::ensure_large(context)
        },
        cargo: &[
            "test",
            "--release",
            "-p",
            "sardonyx-tests",
            "--test",
            "large_models",
            "--",
            "--ignored",
            "--nocapture",
        ],
    },
    Suite {
        name: "mutation",
        about: "kernels for GPUs with one mistake each, in three times as many places as by default",
        prepare: |_| Ok(()),
        cargo: &["test", "-p", "sardonyx-tests", "--test", "mutation", "--", "--ignored", "--nocapture"],
    },
    Suite {
        name: "nccl",
        about: "NVIDIA's NCCL, the oldest that we take: every function is there, and what it refuses is a sentence; 218 MB",
        prepare: |context| fetch::ensure_for(context, Some("nccl")),
        cargo: &["test", "-p", "sardonyx-runtime", "--test", "nccl", "--", "--ignored", "nccl_itself", "--exact"],
    },
    Suite {
        name: "package",
        about: "programs, library and wheels, built and used in a bare Debian 12 without compiler or LLVM; release build",
        prepare: models::ensure_default,
        cargo: &["run", "-p", "xtask", "--", "package", "--check"],
    },
    Suite {
        name: "properties",
        about: "20,000 random programs, of every operation in every element type, beside the interpreter; release build",
        prepare: |_| Ok(()),
        cargo: &["test", "--release", "-p", "sardonyx-tests", "--test", "properties", "--", "--ignored", "--nocapture"],
    },
    Suite {
        name: "ptxas",
        about: "NVIDIA's assembler, where it can be had, on the PTX of every kernel: accepted, no spills, tensor cores used",
        prepare: |context| {
            models::ensure_default(context)?;
            fetch::ensure_for(context, Some("ptxas"))?;
            fetch::command(context, &["fusedtok".into()])
        },
        cargo: &["test", "-p", "sardonyx-tests", "--test", "ptxas", "--", "--ignored", "--nocapture"],
    },
    Suite {
        name: "published",
        about: "kernels that others have published, executed by ptxvm; 38 MB of packages",
        prepare: |context| fetch::ensure_for(context, Some("published")),
        cargo: &["test", "-p", "sardonyx-tests", "--test", "published", "--", "--ignored", "--nocapture"],
    },
    Suite {
        name: "ranks",
        about: "models on 1 to 8 ranks, as threads, processes and under MPI launchers, and 300 faults; release build",
        prepare: |context| {
            models::ensure_default(context)?;
            models::ensure(context, "skel_bert_base_rand_ts17")?;
            setup::ensure_launchers()
        },
        cargo: &["test", "--release", "-p", "sardonyx-tests", "--test", "ranks", "--", "--ignored", "--nocapture"],
    },
    Suite {
        name: "readme",
        about: "the steps of docs/adding.md to an operator and a pass, taken in a copy of the project, which is built and tested",
        prepare: |_| Ok(()),
        cargo: &["test", "-p", "sardonyx-tests", "--test", "readme", "--", "--ignored", "--nocapture"],
    },
    Suite {
        name: "serving",
        about: "MiniLM behind sardonyx-serve: bits of 12,000 answers, two ranks, clients of others, a collector of traces, overload, 100 reloads, 8 minutes, 20,000 mutants; release build",
        prepare: |context| {
            models::ensure_default(context)?;
            setup::ensure_launchers()
        },
        cargo: &[
            "test",
            "--release",
            "-p",
            "sardonyx-tests",
            "-p",
            "sardonyx-serve",
            "--features",
            "sardonyx-serve/otlp",
            "--test",
            "serving",
            "--test",
            "mutants",
            "--test",
            "traces",
            "--",
            "--include-ignored",
            "--nocapture",
            // One test runs at a time, so that times are measured with a single server.
            "--test-threads=1",
        ],
    },
    Suite {
        name: "shapes",
        about: "one MiniLM artifact at 30 shapes, and the whole model at 4, against the interpreter",
        prepare: models::ensure_default,
        cargo: &["test", "-p", "sardonyx-tests", "--test", "shapes", "--", "--ignored"],
    },
    Suite {
        name: "sizes",
        about: "the bytes of a program that embeds the runtime for CPUs; release build",
        prepare: |_| Ok(()),
        cargo: &["test", "-p", "sardonyx-tests", "--test", "runtime_alone", "--", "--include-ignored", "--nocapture"],
    },
    Suite {
        name: "sweep",
        about: "a tenth of `cargo xtask sweep`: files that public tools write of the models, beside ONNX Runtime; release build",
        prepare: |_| Ok(()),
        cargo: &["run", "-p", "xtask", "--", "sweep", "--tenth"],
    },
];

/// `cargo xtask test [--suite NAME] [ARGUMENT…]`; further arguments are passed to cargo.
pub fn command(context: &Context, args: &[String]) -> Result<()> {
    let (suite, rest) = choose(args)?;
    setup::ensure()?;
    fetch::command(context, &[])?;
    let mut cargo = context.cargo(suite.cargo);
    if builds_programs(suite, rest) {
        cargo.env(PROGRAMS_ARE_BUILT, "1");
        // Preparing models mostly waits for downloads and building mostly computes, so both run at the same time.
        std::thread::scope(|s| {
            let build = s.spawn(|| {
                run(context.cargo(suite.cargo).arg("--no-run"))?;
                // The library for C is linked with no test, so that cargo does not build it for them.
                run(&mut context.cargo(["build", "--workspace", "--lib", "--tests"]))
            });
            (suite.prepare)(context)?;
            build.join().expect("building does not panic")
        })?;
    } else {
        (suite.prepare)(context)?;
    }
    println!("test: cargo {} {}", suite.cargo.join(" "), rest.join(" "));
    run(cargo.args(rest))
}

/// Whether cargo builds the programs before it runs any test: it does for the whole workspace, because the programs
/// have integration tests.
fn builds_programs(suite: &Suite, rest: &[String]) -> bool {
    suite.cargo.contains(&"--workspace")
        && rest.first().is_none_or(|first| ["--", "--no-run"].contains(&first.as_str()))
}

/// `cargo xtask conformance [ARGUMENT…]`: runs the whole backend suite, of which `cargo xtask test` runs a twentieth.
pub fn conformance(context: &Context, args: &[String]) -> Result<()> {
    setup::ensure()?;
    fetch::command(context, &["onnx".into()])?;
    let cargo = ["test", "--release", "-p", "sardonyx-tests", "--test", "backend", "--", "--whole"];
    run(context.cargo(cargo).args(args))
}

fn choose(args: &[String]) -> Result<(&'static Suite, &[String])> {
    let known = || {
        let rows = SUITES.iter().map(|s| format!("\n    {:<14} {}", s.name, s.about));
        format!("the suites are{}", rows.collect::<String>())
    };
    match args {
        [flag, name, rest @ ..] if flag == "--suite" => match SUITES.iter().find(|s| s.name == name) {
            Some(suite) => Ok((suite, rest)),
            None => Err(Failure::user(format!("there is no suite `{name}`")).help(known())),
        },
        [flag] if flag == "--suite" => Err(Failure::user("`--suite` wants a name").help(known())),
        rest => Ok((&SUITES[0], rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(args: &[&str]) -> std::result::Result<(&'static str, usize), String> {
        let args: Vec<String> = args.iter().map(|a| a.to_string()).collect();
        choose(&args).map(|(suite, rest)| (suite.name, rest.len())).map_err(|e| e.to_string())
    }

    #[test]
    fn the_suite_is_the_named_one_or_the_default() {
        assert_eq!(chosen(&[]), Ok(("default", 0)));
        assert_eq!(chosen(&["-p", "xtask"]), Ok(("default", 2)));
        assert_eq!(chosen(&["--suite", "large-models", "--quiet"]), Ok(("large-models", 1)));
    }

    #[test]
    fn programs_are_built_by_a_run_of_the_whole_workspace() {
        let built = |suite: usize, rest: &[&str]| {
            builds_programs(&SUITES[suite], &rest.iter().map(|a| a.to_string()).collect::<Vec<_>>())
        };
        assert!(built(0, &[]) && built(0, &["--", "--nocapture"]) && built(0, &["--no-run"]));
        assert!(!built(0, &["-p", "xtask"]) && !built(1, &[]));
    }

    #[test]
    fn a_wrong_suite_lists_the_right_ones() {
        let wrong = chosen(&["--suite", "huge"]).unwrap_err();
        assert!(wrong.starts_with("error: there is no suite `huge`\n  help: the suites are\n    default "), "{wrong}");
        assert!(chosen(&["--suite"]).unwrap_err().contains("large-models"));
    }
}
