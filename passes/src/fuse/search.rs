//! a small program  =>  the way to the cheapest program of all that moves reach
//!
//! The rules in their order, and then every move that still helps, lead to a first one. Where there may be better, every
//! program that moves reach is looked at once, the cheapest first, as long as there are few enough of them.

use super::cost::Costs;
use super::moves::{Move, moves};
use super::region::key;
use super::rules;
use crate::rewrite::Rewrites;
use crate::steps::kernel;
use sardonyx_base::Result;
use sardonyx_dialects::flow::Program;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

/// Regions of more steps are not explored.
const STEPS_MAX: usize = 8;

/// How to merge a program.
#[derive(Clone, Debug)]
pub struct Way {
    /// All rules, before the moves.
    pub by_rules: bool,
    pub path: Vec<Move>,
}

/// The way to the cheapest program; at most so many programs are looked at beside those that the rules lead to.
pub fn best(start: &Program, costs: &Costs, states_max: usize, rewrites: &Rewrites) -> Result<Way> {
    let mut ruled = start.clone();
    rules::apply(&mut ruled, &mut rewrites.trial())?;
    let whole = ruled.steps.iter().filter_map(kernel).count() == 1;
    if whole && costs.operations(&ruled) <= costs.operations(start) {
        // Everything is read and computed once.
        return Ok(Way { by_rules: true, path: vec![] });
    }
    let (cost, path) = descend(&ruled, costs);
    let found = match start.steps.len() <= STEPS_MAX {
        true => explore(start, costs, states_max, cost),
        false => None,
    };
    Ok(found.map_or(Way { by_rules: true, path }, |path| Way { by_rules: false, path }))
}

/// Takes moves as long as one helps, each time the one that helps most.
fn descend(start: &Program, costs: &Costs) -> (u64, Vec<Move>) {
    let (mut program, mut cost, mut path) = (start.clone(), costs.program(start), vec![]);
    loop {
        let after = moves(&program).into_iter().map(|m| (m.apply(&program), m));
        let best = after.map(|(after, m)| (costs.program(&after), m, after)).min_by_key(|(c, _, _)| *c);
        let Some((c, m, after)) = best.filter(|(c, _, _)| *c < cost) else { return (cost, path) };
        path.push(m);
        (cost, program) = (c, after);
    }
}

/// A program on the way, and how it was reached.
struct State {
    program: Program,
    before: Option<(usize, Move)>,
}

/// The moves to a program that costs less than `bound`, if all or the first `states_max` programs have one.
fn explore(start: &Program, costs: &Costs, states_max: usize, bound: u64) -> Option<Vec<Move>> {
    let mut states = vec![State { program: start.clone(), before: None }];
    let mut seen = HashSet::from([key(start)]);
    let mut open = BinaryHeap::from([Reverse((costs.program(start), 0))]);
    let (mut best, mut least) = (None, bound);
    while let Some(Reverse((cost, at))) = open.pop() {
        if cost < least {
            (best, least) = (Some(at), cost);
        }
        if states.len() >= states_max {
            continue;
        }
        for m in moves(&states[at].program) {
            let program = m.apply(&states[at].program);
            if seen.insert(key(&program)) {
                open.push(Reverse((costs.program(&program), states.len())));
                states.push(State { program, before: Some((at, m)) });
            }
        }
    }
    let mut path = vec![];
    let mut at = best?;
    while let Some((before, m)) = states[at].before.take() {
        path.push(m);
        at = before;
    }
    path.reverse();
    Some(path)
}
