//! emitted kernels, each with one mistake  =>  the simulator notices

#[path = "../../../compiler/tests/kernels/build.rs"]
#[allow(dead_code, reason = "the kernels that are broken need a part of the builder")]
mod build;
mod kernels;
mod kinds;
mod play;
mod source;

use kernels::{Subject, subjects};
use kinds::KINDS;
use play::{Verdict, verdict};
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
fn unbroken_kernels_are_right() {
    for subject in subjects() {
        let verdict = verdict(&subject, &subject.text, SEEDS);
        assert!(matches!(verdict, Verdict::Right), "{}: {verdict:?}", subject.name);
    }
}

#[test]
fn broken_kernels_are_noticed() {
    let subjects = subjects();
    let mutants = mutants(&subjects);
    let (mut survivors, mut unexplained) = (vec![], vec![]);
    let mut used: Vec<&str> = vec![];
    for mutant in &mutants {
        let subject = &subjects[mutant.subject];
        let line = format!("{} in {}, line {}: {}", mutant.kind, subject.name, mutant.line, mutant.what);
        if !used.contains(&mutant.kind) {
            used.push(mutant.kind);
        }
        match verdict(subject, &mutant.text, SEEDS) {
            Verdict::Refused(error) => panic!("{line}\nis not a kernel any more: {error}"),
            Verdict::Finding(why) | Verdict::Wrong(why) => println!("noticed   {line}\n          {why}"),
            Verdict::Right => {
                let explained = EXPLAINED
                    .iter()
                    .find(|e| e.kind == mutant.kind && e.subject == subject.name && mutant.what.contains(e.what));
                match explained {
                    Some(explained) => println!("survived  {line}\n          {}", explained.reason),
                    None => unexplained.push(line.clone()),
                }
                survivors.push(line);
            }
        }
    }
    let (n, n_noticed) = (mutants.len(), mutants.len() - survivors.len());
    println!("{n_noticed} of {n} mutants noticed, {} kinds of mistakes, {} kernels", used.len(), subjects.len());
    assert!(n >= 100 && used.len() >= 10, "{n} mutants of {} kinds", used.len());
    assert!(unexplained.is_empty(), "survived without a reason:\n{}", unexplained.join("\n"));
    assert!(n_noticed * 100 >= n * 97, "{n_noticed} of {n} noticed");
}
