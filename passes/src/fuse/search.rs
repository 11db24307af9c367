//! a small program  =>  the moves that lead to the cheapest one of all that can be reached
//!
//! Every program that moves reach is looked at once, the cheapest first, as long as there are few enough of them;
//! before that, the way of always taking the best move gives what is told where there are more.

use super::cost::Costs;
use super::moves::{Move, moves};
use super::region::key;
use sardonyx_dialects::flow::Program;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

/// Regions of more steps are not explored: the first of the moves that help is taken, again and again.
const STEPS_MAX: usize = 8;

/// The moves to the cheapest program; at most so many programs are looked at beside the descent.
pub fn best(start: &Program, costs: &Costs, states_max: usize) -> Vec<Move> {
    let (cost, path) = descend(start, costs);
    if start.steps.len() > STEPS_MAX {
        return path;
    }
    let found = explore(start, costs, states_max, cost);
    found.unwrap_or(path)
}

/// Takes moves as long as one helps.
fn descend(start: &Program, costs: &Costs) -> (u64, Vec<Move>) {
    let (mut program, mut cost, mut path) = (start.clone(), costs.program(start), vec![]);
    loop {
        let mut next: Option<(u64, Move, Program)> = None;
        for m in moves(&program) {
            let after = m.apply(&program);
            let c = costs.program(&after);
            if c < next.as_ref().map_or(cost, |n| n.0) {
                next = Some((c, m, after));
                if program.steps.len() > STEPS_MAX {
                    break;
                }
            }
        }
        let Some((c, m, after)) = next else { return (cost, path) };
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
