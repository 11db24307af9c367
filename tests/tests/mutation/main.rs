//! emitted kernels, each with one mistake  =>  the simulator notices

#[path = "../../../compiler/tests/kernels/build.rs"]
#[allow(dead_code, reason = "the kernels that are broken need a part of the builder")]
mod build;
mod kernels;
mod kinds;
mod source;

use kernels::{Subject, subjects};
use kinds::KINDS;
use source::{Edit, Source};

/// Places of one kind in one kernel; the first, the last and some between.
const PLACES_MAX: usize = 3;
const SEEDS: &[u64] = &[1, 2, 3];

/// One kernel with one mistake.
struct Mutant {
    kind: &'static str,
    subject: usize,
    line: usize,
    what: String,
    text: String,
}

/// A mutant that computes the same, and why.
struct Explained {
    kind: &'static str,
    subject: &'static str,
    /// Part of what the mutant changes.
    what: &'static str,
    reason: &'static str,
}

const EXPLAINED: &[Explained] = &[];

fn spread(edits: Vec<Edit>) -> Vec<Edit> {
    if edits.len() <= PLACES_MAX {
        return edits;
    }
    (0..PLACES_MAX).map(|i| edits[i * (edits.len() - 1) / (PLACES_MAX - 1)].clone()).collect()
}

fn mutants(subjects: &[Subject]) -> Vec<Mutant> {
    let mut all = vec![];
    for (i, subject) in subjects.iter().enumerate() {
        let source = Source::read(&subject.text);
        for kind in KINDS {
            for edit in spread((kind.places)(&source)) {
                let (what, text) = (source.describe(&edit), source.edited(&edit));
                all.push(Mutant { kind: kind.name, subject: i, line: edit.line() + 1, what, text });
            }
        }
    }
    all
}

#[test]
fn dump() {
    let subjects = subjects();
    for s in &subjects {
        std::fs::write(format!("/tmp/mut/{}.ptx", s.name), &s.text).unwrap();
    }
    let mut count = std::collections::BTreeMap::new();
    for m in mutants(&subjects) {
        *count.entry((m.kind, subjects[m.subject].name)).or_insert(0) += 1;
    }
    for k in KINDS {
        let n: i32 = count.iter().filter(|((a, _), _)| *a == k.name).map(|(_, n)| n).sum();
        println!("{} {n}", k.name);
    }
    println!("{}", count.values().sum::<i32>());
}
