//! program  =>  each legal fusion of a producer with its consumers, and the program after the fusion

use crate::merge::merge_into;
use crate::rewrite::{Rule, Site};
use crate::steps::{Uses, kernel};
use crate::{fuse_attention, fuse_epilogues, fuse_reductions, inline_maps};
use sardonyx_dialects::flow::{Body, Class, Merging, Program, Statement};
use sardonyx_dialects::scalar::ScalarFn;
use std::collections::{BTreeSet, HashSet};

/// A fusion; fields are indices of steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    /// Inlines a map into all its consumers.
    Inline { producer: usize },
    /// Inlines a map into one of its consumers; the map remains for its other consumers.
    InlineInto { producer: usize, consumer: usize },
    /// Fuses a map that follows a reduction into the reduction, as its epilogue.
    Epilogue { producer: usize, consumer: usize },
    /// Fuses two kernels that iterate over the same rows.
    Rows { producer: usize, consumer: usize },
    /// Fuses the kernels of attention, which compute the scores, the weights and the weighted sum; step `sum` computes
    /// the weighted sum.
    Attention { sum: usize },
}

/// Returns all legal moves, in the order of their consumers.
pub fn moves(program: &Program) -> Vec<Move> {
    let uses = Uses::new(program);
    let (mut out, mut seen) = (vec![], HashSet::new());
    for consumer in 0..program.steps.len() {
        if kernel(&program.steps[consumer]).is_none() {
            continue;
        }
        let mut sources = uses.sources(&program.steps[consumer]);
        sources.sort_unstable();
        sources.dedup();
        for producer in sources {
            let candidates = [
                Move::Inline { producer },
                Move::InlineInto { producer, consumer },
                Move::Epilogue { producer, consumer },
                Move::Rows { producer, consumer },
            ];
            for m in candidates {
                // The same move may already have been checked for another consumer.
                if seen.insert(m.clone()) && m.is_legal(program, &uses) {
                    out.push(m);
                }
            }
        }
        out.extend(Some(Move::Attention { sum: consumer }).filter(|m| m.is_legal(program, &uses)));
    }
    out
}

impl Move {
    pub fn rule(&self) -> Rule {
        match self {
            Move::Inline { .. } | Move::InlineInto { .. } => inline_maps::RULE,
            Move::Epilogue { .. } => fuse_epilogues::RULE,
            Move::Rows { .. } => fuse_reductions::RULE,
            Move::Attention { .. } => fuse_attention::RULE,
        }
    }

    /// Returns the steps that the move fuses.
    pub fn steps(&self, program: &Program) -> Vec<usize> {
        match *self {
            Move::Inline { producer } => [vec![producer], readers(program, &Uses::new(program), producer)].concat(),
            Move::InlineInto { producer, consumer }
            | Move::Epilogue { producer, consumer }
            | Move::Rows { producer, consumer } => vec![producer, consumer],
            Move::Attention { sum } => {
                fuse_attention::find(program, &Uses::new(program), sum).map_or(vec![], |site| site.steps())
            }
        }
    }

    /// Returns the steps on which the move's gain depends: the steps that it fuses, and all consumers of the fused
    /// producers.
    pub fn seen(&self, program: &Program, uses: &Uses) -> Vec<usize> {
        let read_by = |step: usize| [vec![step], readers(program, uses, step)].concat();
        match *self {
            Move::Inline { producer } => read_by(producer),
            Move::InlineInto { producer, consumer }
            | Move::Epilogue { producer, consumer }
            | Move::Rows { producer, consumer } => [vec![consumer], read_by(producer)].concat(),
            Move::Attention { sum } => {
                let merged = fuse_attention::find(program, uses, sum).map_or(vec![], |site| site.steps());
                merged.into_iter().flat_map(read_by).collect()
            }
        }
    }

    pub fn is_legal(&self, program: &Program, uses: &Uses) -> bool {
        match *self {
            Move::Inline { producer } => {
                let readers = readers(program, uses, producer);
                let whole = program.steps[producer].results.iter().all(|r| !program.is_output(*r));
                whole
                    && !readers.is_empty()
                    && readers.iter().all(|&consumer| inline_maps::is_legal(program, uses, producer, consumer))
            }
            Move::InlineInto { producer, consumer } => {
                let stays = readers(program, uses, producer).len() > 1
                    || program.steps[producer].results.iter().any(|r| program.is_output(*r));
                // The attention kernels of a model's layers are often equal; a map inlined into one of them would make
                // it differ from the others.
                let attends = kernel(&program.steps[consumer]).is_some_and(|k| k.class() == Class::Attention);
                stays && !attends && inline_maps::is_legal(program, uses, producer, consumer)
            }
            Move::Epilogue { producer, consumer } => fuse_epilogues::matches(program, uses, producer, consumer).is_ok(),
            Move::Rows { producer, consumer } => fuse_reductions::matches(program, uses, producer, consumer).is_ok(),
            Move::Attention { sum } => fuse_attention::find(program, uses, sum).is_some(),
        }
    }

    /// Returns the program after the move, which must be legal in `program`.
    pub fn apply(&self, program: &Program) -> Program {
        let (mut out, uses) = (program.clone(), Uses::new(program));
        match *self {
            Move::Inline { producer } => {
                // Later consumers come first: a producer without consumers is removed, which renumbers the steps after
                // it.
                for consumer in readers(program, &uses, producer).into_iter().rev() {
                    inline_maps::inline_into(&mut out, producer, consumer);
                }
            }
            Move::InlineInto { producer, consumer } => inline_maps::inline_into(&mut out, producer, consumer),
            Move::Epilogue { producer, consumer } => {
                if let Ok(m) = fuse_epilogues::matches(program, &uses, producer, consumer) {
                    merge_into(&mut out, producer, consumer, m);
                }
            }
            Move::Rows { producer, consumer } => {
                if let Ok(m) = fuse_reductions::matches(program, &uses, producer, consumer) {
                    merge_into(&mut out, producer, consumer, m);
                }
            }
            Move::Attention { sum } => {
                if let Some(site) = fuse_attention::find(program, &uses, sum) {
                    fuse_attention::apply(&mut out, &site);
                }
            }
        }
        out
    }
}

fn readers(program: &Program, uses: &Uses, producer: usize) -> Vec<usize> {
    let mut readers: Vec<usize> =
        program.steps[producer].results.iter().flat_map(|&r| uses.consumers[r].iter().copied()).collect();
    readers.sort_unstable();
    readers.dedup();
    readers
}

/// Whether a move may fuse the two steps, possibly after other moves have fused further steps into either of them.
pub fn may_meet(program: &Program, uses: &Uses, producer: usize, consumer: usize) -> bool {
    let (Some(p), Some(c)) = (kernel(&program.steps[producer]), kernel(&program.steps[consumer])) else { return false };
    match (p.class().merging(), c.class().merging()) {
        (Merging::Whole, _) | (_, Merging::Whole) => false,
        (Merging::Products, Merging::Products) => false,
        (_, Merging::Products) => weighs(program, uses, producer),
        (_, Merging::Points | Merging::Rows) => true,
    }
}

/// Whether the step may produce the weights of attention: it is computed from exponentials and from reductions of whole
/// rows.
fn weighs(program: &Program, uses: &Uses, step: usize) -> bool {
    let exponential = |s: &Statement| matches!(s.body, Body::Apply { f: ScalarFn::Exp, .. });
    let (mut stack, mut seen) = (vec![step], BTreeSet::from([step]));
    let (mut exponentials, mut rows) = (false, false);
    while let Some(at) = stack.pop() {
        let Some(k) = kernel(&program.steps[at]).filter(|k| k.class() != Class::Contract) else { continue };
        exponentials |= k.body.iter().any(exponential);
        rows |= k.class() == Class::Normalise;
        stack.extend(uses.sources(&program.steps[at]).into_iter().filter(|&source| seen.insert(source)));
    }
    exponentials && rows
}
