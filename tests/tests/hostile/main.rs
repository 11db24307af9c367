//! thousands of seeded mutants of models, artifacts, topologies and plans  =>  each is done or refused: no panic, no hang, no gigabyte
//!
//! Every mutant follows from its seed. A worker process (this binary again) makes and tries them one after the other;
//! the test watches it, so that whatever ends the worker is laid at the door of one seed. The default size is a share
//! of the whole, which `cargo xtask test --suite hostile` runs. `hostile one KIND SEED` tries a single mutant here.

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

/// One kind of mutants.
struct Kind {
    name: &'static str,
    /// Seeds in the default suite.
    n_share: u64,
    /// Seeds in the whole suite.
    n_whole: u64,
    /// Of a processor, for one mutant. Machines of tests are shared: the clock on the wall would measure the others.
    time_max: Duration,
    /// For one mutant, beside what is loaded once.
    bytes_max: usize,
    /// Makes what all mutants of a worker share.
    open: fn() -> Box<dyn Subject>,
    /// What must be true of all outcomes together, so that the damage tests both sides.
    check: fn(&watch::Tally),
}

/// Makes a mutant and tries it.
trait Subject {
    fn attempt(&mut self, seed: u64) -> Outcome;
    /// A copy of the last mutant for whoever looks into a failure.
    fn keep(&self, path: &std::path::Path);
}

/// How it ended, in a few words that are counted: `compiled`, `refused E0104`. What is a fault of ours says so.
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
    kind_of("artifacts", [300, 10_000], artifacts::open, artifacts::check),
    kind_of("models", [300, 10_000], models::open, models::check),
    Kind {
        time_max: Duration::from_secs(30),
        bytes_max: 2 << 30,
        ..kind_of("bombs", [10, 600], Bombs::open, Bombs::check)
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
            // Each has workers on every processor.
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
