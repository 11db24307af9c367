//! two kernels that were not fused  =>  why, which ONNX node prevents it, and what would help
//!
//! Misses are reported for the final state of a program: pairs of a producer and a consumer whose classes would permit
//! fusion, but which are still separate after all fusions.

use crate::miss::Miss;
use crate::remark::Missed;
use crate::rewrite::{Review, Rewrites};
use crate::steps::{Uses, kernel, union};
use crate::{fuse_epilogues, fuse_reductions, inline_maps, prepare_weights};
use sardonyx_base::Dim;
use sardonyx_dialects::flow::{Class, FlowOp, Kernel, Merging, Program, Step};
use std::collections::BTreeSet;

pub(crate) const REVIEW: Review = Review { tell, always: false };

/// Reports each pair of a producer and a consumer whose classes would permit fusion but that is not fused. The reports
/// replace those on an earlier state of the program.
fn tell(program: &Program, rewrites: &mut Rewrites) {
    rewrites.take_back(&["inline-maps", "fuse-epilogues", "fuse-reductions"]);
    let uses = Uses::new(program);
    let (mut shared, prepared) = (BTreeSet::new(), prepare_weights::steps(program));
    for consumer in 0..program.steps.len() {
        let mut done = BTreeSet::new();
        for source in uses.sources(&program.steps[consumer]) {
            let (producer, view) = behind_views(program, &uses, source);
            if prepared.contains(&producer) || !done.insert(producer) {
                continue;
            }
            let judged = match view {
                Some(view) => judge_reshaped(program, view, producer, consumer),
                None => judge(program, &uses, producer, consumer),
            };
            let Some((pass, miss)) = judged else { continue };
            // If a result's other consumers prevent its fusion, this is reported only once per producer.
            if !matches!(miss, Miss::ReadElsewhere(_)) || shared.insert(producer) {
                tell_one(program, rewrites, pass, miss, (producer, consumer));
            }
        }
    }
}

/// Follows a chain of views from step `source` to the step that produces the viewed result; returns that step, and the
/// view closest to it in the chain, if any.
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

/// Returns the iteration spaces or the numbers of statements of the two kernels, if these explain the miss.
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

/// Formats an iteration space, as in `[batch, seq] x [384]`.
fn space(k: &Kernel) -> String {
    let list = |dims: &[Dim]| format!("[{}]", dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(", "));
    match k.inner.is_empty() {
        true => list(&k.outer),
        false => format!("{} x {}", list(&k.outer), list(&k.inner)),
    }
}

/// Returns the pass that might have fused the two kernels, and the reason why it did not; `None` if a pass can still
/// fuse them, or if no pass applies to such kernels.
fn judge(program: &Program, uses: &Uses, producer: usize, consumer: usize) -> Option<(&'static str, Miss)> {
    let (p, c) = (kernel(&program.steps[producer])?, kernel(&program.steps[consumer])?);
    let inline = || inline_maps::why_not(program, uses, producer, consumer).map(|m| ("inline-maps", m));
    let epilogue = || Some(("fuse-epilogues", fuse_epilogues::matches(program, uses, producer, consumer).err()?));
    let rows = || Some(("fuse-reductions", fuse_reductions::matches(program, uses, producer, consumer).err()?));
    // Two kernels over rows are not expected to be fused if the step between them is a contraction or is not a kernel.
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
        // Attention kernels are formed last, from complete kernels; the pass that forms them reports its own misses.
        (Merging::Whole, _) | (Merging::Products | Merging::Rows, Merging::Whole) => None,
    }
}
