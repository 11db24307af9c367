//! seed  =>  a small program of basis operations, compiled and compared with the interpreter
//!
//! Covers every operation and every element type that it takes, ranks 0 to 6, dimensions of 0 and 1, fixed and symbolic
//! dimensions, negative axes and steps. The seeds are 0 to 999; `cargo xtask test --suite properties` runs 0 to 19,999,
//! and `PROPERTIES_SEEDS=17..18 cargo test -p sardonyx-tests --test properties` runs another range.

mod bound;
mod builder;
mod models;
mod program;
mod random;
mod run;
mod subject;

use program::Program;
use run::{Failure, check};
use sardonyx_base::DType;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use subject::{Schedule, Subject};

/// Maximum number of programs that are compiled into one artifact.
const TOGETHER: u64 = 50;

#[test]
fn a_thousand_programs() {
    let counts = all_agree(seeds().unwrap_or(0..1000));
    if seeds().is_none() {
        let schedule = Schedule::new();
        let of = |subjects: Vec<Subject>| -> (BTreeSet<String>, BTreeSet<DType>) {
            (subjects.iter().map(|s| s.operation()).collect(), subjects.iter().filter_map(|s| s.dtype()).collect())
        };
        let (all, met) = (of(schedule.all().collect()), of(counts.into_keys().collect()));
        let missing: Vec<&String> = all.0.difference(&met.0).collect();
        assert!(missing.is_empty(), "no program has {missing:?}");
        let missing: Vec<&DType> = all.1.difference(&met.1).collect();
        assert!(missing.is_empty(), "no program has elements of {missing:?}");
    }
}

#[test]
#[ignore = "minutes: cargo xtask test --suite properties"]
fn twenty_thousand_programs() {
    let seeds = seeds().unwrap_or(0..20_000);
    let whole = seeds.end - seeds.start >= 20_000;
    let counts = all_agree(seeds);
    let missing: Vec<Subject> = Schedule::new().all().filter(|s| !counts.contains_key(s)).collect();
    assert!(!whole || missing.is_empty(), "no program has {missing:?}");
}

fn seeds() -> Option<Range<u64>> {
    let given = std::env::var("PROPERTIES_SEEDS").ok()?;
    let parsed = given.split_once("..").and_then(|(lo, hi)| Some(lo.parse().ok()?..hi.parse().ok()?));
    Some(parsed.unwrap_or_else(|| panic!("PROPERTIES_SEEDS is LO..HI")))
}

/// Checks the programs, and returns how often each subject occurs. Each of two threads takes every other artifact.
fn all_agree(seeds: Range<u64>) -> BTreeMap<Subject, usize> {
    let n = seeds.end - seeds.start;
    let (mut counts, mut failures) = (BTreeMap::new(), Vec::<Failure>::new());
    let of = |first: u64| {
        let (mut counts, mut failures) = (BTreeMap::new(), vec![]);
        let schedule = Schedule::new();
        for from in seeds.clone().step_by(TOGETHER as usize).skip(first as usize).step_by(2) {
            let until = (from + TOGETHER).min(seeds.end);
            let programs: Vec<Program> = (from..until).map(|seed| Program::new(&schedule, seed)).collect();
            failures.extend(check(&programs, &mut counts));
        }
        (counts, failures)
    };
    std::thread::scope(|scope| {
        let threads = [0, 1].map(|first| scope.spawn(move || of(first)));
        for thread in threads {
            let (more, failed): (BTreeMap<Subject, usize>, Vec<Failure>) = thread.join().expect("a range of seeds");
            more.into_iter().for_each(|(subject, n)| *counts.entry(subject).or_default() += n);
            failures.extend(failed);
        }
    });
    tell(&counts);
    failures.sort_by_key(|f| f.seed);
    let seeds: Vec<u64> = failures.iter().map(|f| f.seed).collect();
    for Failure { seed, what } in &failures {
        println!("PROPERTIES_SEEDS={seed}..{}: {what}\n", seed + 1);
    }
    println!("{n} programs, {} failed", failures.len());
    assert!(failures.is_empty(), "seeds {seeds:?}");
    counts
}

/// Prints how often each operation occurs, and with how many element types (pairs of types for conversions).
fn tell(counts: &BTreeMap<Subject, usize>) {
    let mut operations: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (subject, n) in counts {
        let row = operations.entry(subject.operation()).or_default();
        *row = (row.0 + n, row.1 + 1);
    }
    for (operation, (n, types)) in operations {
        println!("{operation:<20} {n:>6} in {types} types");
    }
}
