//! program  =>  each legal way to merge two neighbours, and what it makes of the program

use crate::merge::merge_into;
use crate::rewrite::{Rule, Site};
use crate::steps::{Uses, kernel};
use crate::{fuse_attention, fuse_epilogues, fuse_reductions, inline_maps};
use sardonyx_dialects::flow::{Body, Class, Merging, Program, Statement};
use sardonyx_dialects::scalar::ScalarFn;
use std::collections::{BTreeSet, HashSet};

/// By the numbers of steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    /// A map goes into all its readers.
    Inline { producer: usize },
    /// A map goes into one of its readers, and stays for the others.
    InlineInto { producer: usize, consumer: usize },
    /// A map follows a reduction in registers.
    Epilogue { producer: usize, consumer: usize },
    /// Two kernels walk the same rows.
    Rows { producer: usize, consumer: usize },
    /// Scores, weights and the sum that ends at this step.
    Attention { sum: usize },
}

/// All moves, in the order of their consumers.
pub fn moves(program: &Program) -> Vec<Move> {
    let uses = Uses::of(program);
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
                // Another consumer may have asked for it: it is as legal as it was then.
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

    /// The steps that it merges.
    pub fn steps(&self, program: &Program) -> Vec<usize> {
        match *self {
            Move::Inline { producer } => [vec![producer], readers(program, &Uses::of(program), producer)].concat(),
            Move::InlineInto { producer, consumer }
            | Move::Epilogue { producer, consumer }
            | Move::Rows { producer, consumer } => vec![producer, consumer],
            Move::Attention { sum } => {
                fuse_attention::find(program, &Uses::of(program), sum).map_or(vec![], |site| site.steps())
            }
        }
    }

    /// The steps that decide what it makes of the program: those that it merges, and the other readers of what goes.
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
                // In front of attention it would make one kernel of many that are alike another one.
                let attends = kernel(&program.steps[consumer]).is_some_and(|k| k.class() == Class::Attention);
                stays && !attends && inline_maps::is_legal(program, uses, producer, consumer)
            }
            Move::Epilogue { producer, consumer } => fuse_epilogues::matches(program, uses, producer, consumer).is_ok(),
            Move::Rows { producer, consumer } => fuse_reductions::matches(program, uses, producer, consumer).is_ok(),
            Move::Attention { sum } => fuse_attention::find(program, uses, sum).is_some(),
        }
    }

    /// The program after a move that is legal in it.
    pub fn apply(&self, program: &Program) -> Program {
        let (mut out, uses) = (program.clone(), Uses::of(program));
        match *self {
            Move::Inline { producer } => {
                // Later readers first: a producer that has no reader left goes, and takes numbers with it.
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

/// Whether some move may one day bring the two together, whatever is merged into each before.
pub fn may_meet(program: &Program, uses: &Uses, producer: usize, consumer: usize) -> bool {
    let (Some(p), Some(c)) = (kernel(&program.steps[producer]), kernel(&program.steps[consumer])) else { return false };
    match (p.class().merging(), c.class().merging()) {
        (Merging::Whole, _) | (_, Merging::Whole) => false,
        (Merging::Products, Merging::Products) => false,
        (_, Merging::Products) => weighs(program, uses, producer),
        (_, Merging::Points | Merging::Rows) => true,
    }
}

/// Whether the step gives what may become weights of attention: exponentials, and something made of whole rows of them.
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
