//! emitted kernels, each with one mistake  =>  the simulator or a wrong result reveals it

#[path = "../../../passes/kernels/tests/kernels/build.rs"]
#[allow(dead_code, reason = "the kernels that are broken need a part of the builder")]
mod build;
mod hopper;
mod kernels;
mod kinds;
mod play;
mod source;

use kernels::{Subject, subjects};
use kinds::{KINDS, Kind};
use play::{Verdict, reaches_trap, verdict};
use sardonyx_base::parallel::map;
use sardonyx_tests::drawn::is_drawn;
use source::Source;

/// Maximum number of mutants of one kind in one kernel; the ignored test makes three times as many. Only that test
/// covers all pairs of a kind and a kernel; by default, some pairs are drawn.
const PLACES_MAX: usize = 1;
/// Maximum number of places in one kernel that are probed to find places for mutants of one kind.
const TRIES_MAX: usize = 12;
const SEEDS: &[u64] = &[1, 2, 3];

/// One kernel with one mistake.
struct Mutant {
    kind: &'static Kind,
    subject: usize,
    line: usize,
    what: String,
    text: String,
}

/// Mutants that go unnoticed because they compute the same results, with the reason.
struct Explained {
    kind: &'static str,
    /// The end of the kernel's name.
    subject: &'static str,
    /// Text that the description of the change contains.
    what: &'static str,
    /// Maximum number of mutants to which the reason applies.
    n_max: usize,
    reason: &'static str,
}

const EXPLAINED: &[Explained] = &[
    Explained {
        kind: "bound-off-by-one",
        subject: "gelu",
        what: "setp.le.s64",
        n_max: 1,
        reason: "the last four elements go one by one through the tail's code, which gives the same",
    },
    Explained {
        kind: "bound-off-by-one",
        subject: "bias",
        what: "setp.le.s64",
        n_max: 1,
        reason: "the last four elements go one by one through the tail's code, which gives the same",
    },
    Explained {
        kind: "bound-off-by-one",
        subject: "gather",
        what: "setp.le.s64",
        n_max: 1,
        reason: "the last four elements go one by one through the tail's code, which gives the same",
    },
    Explained {
        kind: "bound-off-by-one",
        subject: "columns",
        what: "setp.lt.s64",
        n_max: 1,
        reason: "the thread past the last column reads the last column and stores the same sum to the same place",
    },
    Explained {
        kind: "branch-inverted",
        subject: "sum",
        what: "bra",
        n_max: 1,
        reason: "after the butterfly every lane has the sum, so all but the first may store it",
    },
    Explained {
        kind: "guard-dropped",
        subject: "gemm-bf16",
        what: "ld.global.nc.b16",
        n_max: 2,
        reason: "what lies past the edge of one operand meets zeros of the other, or columns that are not stored",
    },
    Explained {
        kind: "guard-dropped",
        subject: "gemm-f16",
        what: "ld.global.nc.b16",
        n_max: 2,
        reason: "what lies past the edge of one operand meets zeros of the other, or columns that are not stored",
    },
    Explained {
        kind: "copy-unpadded",
        subject: "gemm-bf16",
        what: "cp.async.ca",
        n_max: 1,
        reason: "what lies past the edge of one operand meets zeros of the other",
    },
    Explained {
        kind: "copy-unpadded",
        subject: "gemm-f16",
        what: "cp.async.ca",
        n_max: 1,
        reason: "what lies past the edge of one operand meets zeros of the other",
    },
    Explained {
        kind: "mask-narrowed",
        subject: "gemm-bf16",
        what: ", 1;",
        n_max: 1,
        reason: "it rounds to the even one of two bf16 that are as near",
    },
    Explained {
        kind: "branch-inverted",
        subject: "mixed",
        what: "bra",
        n_max: 1,
        reason: "when ordinary arithmetic takes what tensor cores have summed is a matter of rounding",
    },
    Explained {
        kind: "copy-unpadded",
        subject: "gemm-codes-f32",
        what: "cp.async.cg",
        n_max: 1,
        reason: "scales or codes of columns past the last, which lie in the panel and are not stored",
    },
    Explained {
        kind: "copy-unpadded",
        subject: "gemm-codes",
        what: "cp.async.cg",
        n_max: 1,
        reason: "scales or codes of columns past the last, which lie in the panel and are not stored",
    },
    Explained {
        kind: "guard-dropped",
        subject: "gemm-codes",
        what: "ld.global.nc.f32",
        n_max: 1,
        reason: "the scales of columns past the last, which lie in the panel and are not stored",
    },
    Explained {
        kind: "stride-wrong",
        subject: "gemm-codes",
        what: "mul.lo.s32 %r8, %r6",
        n_max: 1,
        reason: "it serves to find the matrix of a batch, and there is one",
    },
    Explained {
        kind: "stride-wrong",
        subject: "gemm-bytes",
        what: "mul.lo.s32 %r8, %r6",
        n_max: 1,
        reason: "it serves to find the matrix of a batch, and there is one",
    },
    Explained {
        kind: "stride-wrong",
        subject: "gemm-codes-f32",
        what: "mul.lo.s32 %r8, %r6",
        n_max: 1,
        reason: "it serves to find the matrix of a batch, and there is one",
    },
    Explained {
        kind: "stride-wrong",
        subject: "gemm-constant",
        what: "mul.lo.s32 %r8, %r6",
        n_max: 1,
        reason: "it serves to find the matrix of a batch, and there is one",
    },
    Explained {
        kind: "phase-kept",
        subject: "warpgroups",
        what: "xor.b32",
        n_max: 8,
        reason: "who arrives at a barrier does not look at the phase",
    },
    Explained {
        kind: "bound-off-by-one",
        subject: "warpgroups",
        what: "setp.lt.u32",
        n_max: 4,
        reason: "the copying threads arrive once more after the last tile, and nobody waits for that",
    },
    Explained {
        kind: "mask-narrowed",
        subject: "2-of-4-warpgroups",
        what: ", 63;",
        n_max: 1,
        reason: "it serves to find the size of the last k tile, and all are whole",
    },
    Explained {
        kind: "mask-narrowed",
        subject: "packed-warpgroups",
        what: ", 63;",
        n_max: 1,
        reason: "it serves to find the size of the last k tile, and all are whole",
    },
    Explained {
        kind: "term-lost",
        subject: "attention-warpgroups",
        what: "fma.rn.f32",
        n_max: 1,
        reason: "a term of the exponential that f16 rounds away",
    },
];

/// Returns the order in which `n` places are tried: the first, the last, the middle, the quarters, …; at most
/// `TRIES_MAX` of them.
fn spread(n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = vec![];
    let mut parts = 1;
    while order.len() < n && parts < 64 {
        let at = (0..=parts).map(|i| i * n.saturating_sub(1) / parts);
        at.for_each(|i| {
            if !order.contains(&i) {
                order.push(i)
            }
        });
        parts *= 2;
    }
    order.truncate(TRIES_MAX);
    order
}

/// Returns the mutants of one kernel, at most `places_max` of each kind, at places where the mistake can have an effect
/// in some call; and the number of tried places where the mistake can have none.
fn mutants(i: usize, subject: &Subject, places_max: usize) -> (Vec<Mutant>, usize) {
    let (mut all, mut n_left_out) = (vec![], 0);
    let source = Source::read(&subject.text);
    let is_wanted = |kind: &&Kind| places_max > PLACES_MAX || is_drawn(&format!("{} {}", kind.name, subject.name));
    for kind in KINDS.iter().filter(is_wanted) {
        let places = (kind.places)(&source);
        let mut n = 0;
        for edit in spread(places.len()).into_iter().map(|place| &places[place]) {
            if n == places_max {
                break;
            }
            let probe = kind.matters.probe(&source.lines[edit.line()]);
            let probed = source.with_before(edit.line(), &probe);
            match reaches_trap(subject, &probed) {
                Err(error) => panic!("{}: the probe `{probe}` is no PTX: {error}", subject.name),
                Ok(false) => n_left_out += 1,
                Ok(true) => {
                    let (what, text) = (source.describe(edit), source.edited(edit));
                    all.push(Mutant { kind, subject: i, line: edit.line() + 1, what, text });
                    n += 1;
                }
            }
        }
    }
    (all, n_left_out)
}

#[test]
fn unbroken_kernels_are_right() {
    map(&subjects(), |subject| {
        let verdict = verdict(subject, &subject.text, SEEDS);
        assert!(matches!(verdict, Verdict::Right), "{}: {verdict:?}", subject.name);
    });
}

#[test]
fn broken_kernels_are_noticed() {
    notices(PLACES_MAX, 40, 95);
}

#[test]
#[ignore = "minutes of the simulator; `cargo xtask test --suite mutation`"]
fn broken_kernels_are_noticed_in_more_places() {
    notices(3 * PLACES_MAX, 400, 97);
}

/// Fails unless there are at least `n_min` mutants, each survivor is explained, and at least `percent_min` of the
/// mutants are noticed.
fn notices(places_max: usize, n_min: usize, percent_min: usize) {
    let subjects = subjects();
    let numbered: Vec<(usize, &Subject)> = subjects.iter().enumerate().collect();
    let made = map(&numbered, |(i, subject)| mutants(*i, subject, places_max));
    let n_left_out: usize = made.iter().map(|(_, n)| n).sum();
    let mutants: Vec<Mutant> = made.into_iter().flat_map(|(mutants, _)| mutants).collect();
    let verdicts = map(&mutants, |mutant| verdict(&subjects[mutant.subject], &mutant.text, SEEDS));
    let (mut survivors, mut unexplained) = (vec![], vec![]);
    let mut n_explained = [0; EXPLAINED.len()];
    let mut used: Vec<&str> = vec![];
    for (mutant, verdict) in mutants.iter().zip(verdicts) {
        let subject = &subjects[mutant.subject];
        let (kind, place) = (mutant.kind, format!("{}, line {}", subject.name, mutant.line));
        let line = format!("{} ({}) in {place}: {}", kind.name, kind.mistake, mutant.what);
        if !used.contains(&kind.name) {
            used.push(kind.name);
        }
        match verdict {
            Verdict::Refused(error) => panic!("{line}\nis not a kernel any more: {error}"),
            Verdict::Finding(why) | Verdict::Wrong(why) => println!("noticed   {line}\n          {why}"),
            Verdict::Right => {
                let explained = EXPLAINED.iter().zip(&mut n_explained).find(|(e, n)| {
                    let same =
                        e.kind == mutant.kind.name && subject.name.ends_with(e.subject) && mutant.what.contains(e.what);
                    same && **n < e.n_max
                });
                match explained {
                    Some((explained, n)) => {
                        *n += 1;
                        println!("survived  {line}\n          {}", explained.reason);
                    }
                    None => unexplained.push(line.clone()),
                }
                survivors.push(line);
            }
        }
    }
    let (n, n_noticed) = (mutants.len(), mutants.len() - survivors.len());
    println!("{n_noticed} of {n} mutants noticed, {} kinds of mistakes, {} kernels", used.len(), subjects.len());
    println!("{n_left_out} places left out, where no call would have gone wrong");
    assert!(n >= n_min && used.len() >= 10, "{n} mutants of {} kinds", used.len());
    assert!(unexplained.is_empty(), "survived without a reason:\n{}", unexplained.join("\n"));
    assert!(n_noticed * 100 >= n * percent_min, "{n_noticed} of {n} noticed");
}
