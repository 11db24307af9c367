//! two kernels that stay two  =>  why, which ONNX node is in the way, and what would help
//!
//! A fusion's `matches` gives a `Miss` where it does not apply. Told are those of the last state of a program: where
//! kernels that could be one by their classes are neighbours still, after all fusions that ran.

use crate::fusion::{Uses, kernel};
use crate::rewrite::{Missed, Rewrites, union};
use crate::{fuse_epilogues, fuse_reductions, inline_maps};
use sardonyx_base::Dim;
use sardonyx_dialects::flow::{Class, FlowOp, Kernel, Merging, Program, Step};
use std::collections::BTreeSet;

/// Why a rule does not make one kernel of a producer and a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// The rule is about others: nothing to tell.
    Unlike,
    /// Another step reads the result too, which would be computed for each.
    ReadElsewhere(usize),
    Output,
    Statements,
    /// A contraction reads its operands many times.
    IntoContraction,
    /// The reader needs a point more than once.
    Repeated,
    FromData,
    Guarded,
    /// A slice, a reversal, a reshape.
    OtherPlaces,
    OtherSpace,
    /// The reader has a reduction where the producer has rows.
    Crosswise,
    /// They walk the same rows and share no point of them.
    NothingShared,
    /// A view of the result, which changes its dimensions, is what the reader reads.
    Reshaped(usize),
    /// A third step needs the one and is needed by the other.
    Between(usize),
}

impl Miss {
    /// Stable words; none where there is nothing to tell.
    pub fn reason(self) -> Option<&'static str> {
        Some(match self {
            Miss::Unlike => return None,
            Miss::ReadElsewhere(_) => "another kernel reads the result too",
            Miss::Output => "the result is an output of the model",
            Miss::Statements => "one kernel would have too many statements",
            Miss::IntoContraction => "a contraction computes nothing on its operands",
            Miss::Repeated => "the reader needs a point more than once",
            Miss::FromData => "the reader looks at places that are read from data",
            Miss::Guarded => "the reader looks beyond the edge",
            Miss::OtherPlaces => "the reader looks at other places",
            Miss::OtherSpace => "the iteration spaces differ",
            Miss::Crosswise => "the reader reduces across the rows",
            Miss::NothingShared => "the kernels share rows but no point of them",
            Miss::Reshaped(_) => "the result is reshaped in between",
            Miss::Between(_) => "another kernel lies between",
        })
    }

    /// What the model's author could do, where that is plain.
    fn remedy(self) -> Option<&'static str> {
        match self {
            Miss::Output => Some("leave the output out, if nobody needs it"),
            Miss::IntoContraction => Some("store the operand as it is multiplied, or compute it before it is stored"),
            Miss::OtherPlaces | Miss::Guarded | Miss::Reshaped(_) => {
                Some("slice, pad or reshape before or after the whole chain")
            }
            Miss::Repeated => Some("compute before what repeats, not after it"),
            Miss::Unlike | Miss::ReadElsewhere(_) | Miss::Statements | Miss::FromData => None,
            Miss::OtherSpace | Miss::Crosswise | Miss::NothingShared | Miss::Between(_) => None,
        }
    }

    /// The node that is in the way: a third step's, or else one of the two.
    fn in_the_way(self, program: &Program, rewrites: &Rewrites, producer: usize, consumer: usize) -> Option<String> {
        let (p, c) = (&program.steps[producer].origins, &program.steps[consumer].origins);
        // What comes first of a step's own nodes is next to what it reads.
        let first = |step: usize, others: &[&Vec<String>]| {
            let origins = &program.steps[step].origins;
            origins.iter().find(|o| others.iter().all(|other| !other.contains(o))).or(origins.first()).cloned()
        };
        let reducer = |step: usize, others: &[&Vec<String>]| {
            let origins = &program.steps[step].origins;
            let own = origins.iter().filter(|o| others.iter().all(|other| !other.contains(o)));
            own.into_iter().find(|o| rewrites.is_reducer(o)).cloned().or_else(|| first(step, others))
        };
        match self {
            Miss::Between(third) | Miss::ReadElsewhere(third) => reducer(third, &[p, c]),
            Miss::Reshaped(view) => first(view, &[p, c]),
            Miss::Output | Miss::IntoContraction => p.last().cloned(),
            Miss::Crosswise => reducer(consumer, &[p]),
            Miss::Unlike | Miss::Statements | Miss::Repeated | Miss::FromData | Miss::Guarded => first(consumer, &[p]),
            Miss::OtherPlaces | Miss::OtherSpace | Miss::NothingShared => first(consumer, &[p]),
        }
    }
}

/// Keeps in mind which nodes reduce, while each has steps of its own.
pub fn note_reducers(program: &Program, rewrites: &mut Rewrites) {
    let reduces = |step: &&Step| step.origins.len() == 1 && kernel(step).is_some_and(|k| k.class() != Class::Map);
    rewrites.note_reducers(program.steps.iter().filter(reduces).flat_map(|step| &step.origins));
}

/// Tells of all neighbours in a program that could be one by their classes, in place of what was told of an earlier
/// state of it.
pub fn tell(program: &Program, rewrites: &mut Rewrites) {
    if !rewrites.wants_remarks() {
        return;
    }
    rewrites.take_back(&["inline-maps", "fuse-epilogues", "fuse-reductions"]);
    let uses = Uses::of(program);
    let mut shared = BTreeSet::new();
    for consumer in 0..program.steps.len() {
        let mut done = BTreeSet::new();
        for source in uses.sources(&program.steps[consumer]) {
            let (producer, view) = behind_views(program, &uses, source);
            if !done.insert(producer) {
                continue;
            }
            let judged = match view {
                Some(view) => judge_reshaped(program, view, producer, consumer),
                None => judge(program, &uses, producer, consumer),
            };
            let Some((pass, miss)) = judged else { continue };
            // One of many readers stands for all.
            if !matches!(miss, Miss::ReadElsewhere(_)) || shared.insert(producer) {
                tell_one(program, rewrites, pass, miss, (producer, consumer));
            }
        }
    }
}

/// The step that computes what a step shows, and the last view on the way.
fn behind_views(program: &Program, uses: &Uses, source: usize) -> (usize, Option<usize>) {
    let step = &program.steps[source];
    match (&step.op, uses.sources(step).first()) {
        (FlowOp::View, Some(&behind)) => {
            let (producer, view) = behind_views(program, uses, behind);
            (producer, view.or(Some(source)))
        }
        _ => (source, None),
    }
}

fn judge_reshaped(program: &Program, view: usize, producer: usize, consumer: usize) -> Option<(&'static str, Miss)> {
    let (p, c) = (kernel(&program.steps[producer])?, kernel(&program.steps[consumer])?);
    let pass = match (p.class().merging(), c.class().merging()) {
        (Merging::Points, Merging::Points | Merging::Rows) => "inline-maps",
        (Merging::Products | Merging::Rows, Merging::Points) => "fuse-epilogues",
        (Merging::Rows, Merging::Rows) => "fuse-reductions",
        (Merging::Points | Merging::Products | Merging::Rows, Merging::Products) => return None,
        (Merging::Products, Merging::Rows) | (Merging::Whole, _) | (_, Merging::Whole) => return None,
    };
    Some((pass, Miss::Reshaped(view)))
}

fn tell_one(
    program: &Program,
    rewrites: &mut Rewrites,
    pass: &'static str,
    miss: Miss,
    (producer, consumer): (usize, usize),
) {
    let (p, c) = (&program.steps[producer], &program.steps[consumer]);
    let Some(reason) = miss.reason() else { return };
    let missed = Missed {
        reason,
        node: miss.in_the_way(program, rewrites, producer, consumer),
        origins: union([p.origins.as_slice(), &c.origins]),
        detail: detail(miss, p, c),
        remedy: miss.remedy(),
    };
    rewrites.missed_by(pass, missed);
}

/// The spaces, where they say more than the reason.
fn detail(miss: Miss, p: &Step, c: &Step) -> Option<String> {
    let (p, c) = (kernel(p)?, kernel(c)?);
    match miss {
        Miss::OtherPlaces | Miss::OtherSpace | Miss::Crosswise | Miss::Repeated | Miss::NothingShared => {
            Some(format!("{} and {}", space(p), space(c)))
        }
        Miss::Statements => Some(format!("{} and {}", p.body.len(), c.body.len())),
        Miss::Unlike | Miss::ReadElsewhere(_) | Miss::Output | Miss::IntoContraction => None,
        Miss::FromData | Miss::Guarded | Miss::Reshaped(_) | Miss::Between(_) => None,
    }
}

/// `[batch, seq] x [384]`
fn space(k: &Kernel) -> String {
    let list = |dims: &[Dim]| format!("[{}]", dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(", "));
    match k.inner.is_empty() {
        true => list(&k.outer),
        false => format!("{} x {}", list(&k.outer), list(&k.inner)),
    }
}

/// The pass that might have made one kernel of the two, and why it did not; none where one still can.
fn judge(program: &Program, uses: &Uses, producer: usize, consumer: usize) -> Option<(&'static str, Miss)> {
    let (p, c) = (kernel(&program.steps[producer])?, kernel(&program.steps[consumer])?);
    let inline = || inline_maps::why_not(program, uses, producer, consumer).map(|m| ("inline-maps", m));
    let epilogue = || Some(("fuse-epilogues", fuse_epilogues::matches(program, uses, producer, consumer).err()?));
    let rows = || Some(("fuse-reductions", fuse_reductions::matches(program, uses, producer, consumer).err()?));
    // Of two rows that are far apart no one expects that they are one.
    let apart = |(_, miss): &(&'static str, Miss)| match miss {
        Miss::Between(third) => kernel(&program.steps[*third]).is_some_and(|k| k.class() != Class::Contract),
        _ => true,
    };
    let or = |first: (&'static str, Miss), second: (&'static str, Miss)| match first.1 {
        Miss::Unlike => second,
        _ => first,
    };
    match (p.class().merging(), c.class().merging()) {
        (Merging::Points, Merging::Points | Merging::Products | Merging::Whole) => inline(),
        (Merging::Points, Merging::Rows) => Some(or(rows()?, inline()?)),
        (Merging::Products, Merging::Points) => epilogue(),
        (Merging::Rows, Merging::Points) => Some(or(rows()?, epilogue()?)),
        (Merging::Rows, Merging::Rows) => rows().filter(apart),
        (Merging::Products | Merging::Rows, Merging::Products) | (Merging::Products, Merging::Rows) => None,
        // What is whole is made last, of kernels that are whole; what was missed, its pass tells.
        (Merging::Whole, _) | (Merging::Products | Merging::Rows, Merging::Whole) => None,
    }
}
