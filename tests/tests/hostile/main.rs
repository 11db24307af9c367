//! seeded mutants of models, artifacts, topologies and plans  =>  accepted or refused: no panic, and limited time and
//! memory
//!
//! A mutant is determined by its seed. A worker process (this binary again) makes and tries mutants one after the
//! other; the test watches the worker, so that a crash is attributed to one seed. By default, the test tries a fraction
//! of the mutants that `cargo xtask test --suite hostile` tries. `hostile one KIND SEED` tries a single mutant in this
//! process.

mod artifacts;
mod bombs;
mod clusters;
mod corpus;
mod models;
mod watch;
mod worker;

use bombs::Bombs;
use clusters::{Plans, Topologies};
use libtest_mimic::{Arguments, Trial};
use std::time::Duration;

/// A kind of mutants.
struct Kind {
    name: &'static str,
    /// Number of seeds in the default suite.
    n_share: u64,
    /// Number of seeds in the whole suite.
    n_whole: u64,
    /// Limit on the processor time of one mutant. Test machines are shared, so wall time would depend on the load of
    /// other programs.
    time_max: Duration,
    /// Limit on the memory of one mutant, in addition to what the worker loads once.
    bytes_max: usize,
    /// Creates the state that all mutants of a worker share.
    open: fn() -> Box<dyn Subject>,
    /// Asserts properties of all outcomes together, for example that both accepted and refused mutants are common.
    check: fn(&watch::Tally),
}

/// Makes a mutant and tries it.
trait Subject {
    fn attempt(&mut self, seed: u64) -> Outcome;
    /// Writes a copy of the last mutant, for the investigation of a failure.
    fn keep(&self, path: &std::path::Path);
}

/// Result of an attempt, in a few words by which attempts are counted: `compiled`, `refused E0104`. `Fault` is a fault
/// of the compiler or the runtime.
enum Outcome {
    Fine(String),
    Fault(String),
}

const fn kind_of(
    name: &'static str,
    [n_share, n_whole]: [u64; 2],
    subject: fn() -> Box<dyn Subject>,
    check: fn(&watch::Tally),
) -> Kind {
    Kind { name, n_share, n_whole, time_max: Duration::from_secs(20), bytes_max: 1 << 30, open: subject, check }
}

static KINDS: &[Kind] = &[
    kind_of("artifacts", [90, 10_000], artifacts::open, artifacts::check),
    kind_of("models", [90, 10_000], models::open, models::check),
    Kind {
        time_max: Duration::from_secs(30),
        bytes_max: 2 << 30,
        ..kind_of("bombs", [6, 600], Bombs::open, Bombs::check)
    },
    kind_of("topologies", [300, 10_000], Topologies::open, Topologies::check),
    kind_of("plans", [200, 10_000], Plans::open, Plans::check),
];

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["worker", name, from, to] => worker::run(kind(name), seed(from)..seed(to)),
        ["one", name, one] => worker::show(kind(name), seed(one)),
        _ => {
            let trial = |kind: &'static Kind, n: u64, whole: bool| {
                let name = format!("{}{}", kind.name, if whole { "_whole" } else { "" });
                Trial::test(name, move || watch::run(kind, n).map_err(Into::into)).with_ignored_flag(whole)
            };
            let trials = KINDS.iter().flat_map(|k| [trial(k, k.n_share, false), trial(k, k.n_whole, true)]).collect();
            // One test at a time, because each has workers on every processor.
            let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
            return libtest_mimic::run(&arguments, trials).exit_code();
        }
    }
    std::process::ExitCode::SUCCESS
}

fn kind(name: &str) -> &'static Kind {
    KINDS.iter().find(|k| k.name == name).expect("a kind of mutants")
}

fn seed(text: &str) -> u64 {
    text.parse().expect("a seed is a number")
}
