//! a small program  =>  the sequence of moves that leads to the cheapest program found
//!
//! The first candidate is the result of the rules, applied in order, followed by greedy moves as long as a move lowers
//! the cost. For small regions, the programs that moves can reach are also explored, cheapest first, up to a maximum
//! number, for a cheaper one.

use super::cost::Costs;
use super::moves::{Move, moves};
use super::region::key;
use super::rules;
use crate::rewrite::Rewrites;
use crate::steps::{Uses, kernel};
use sardonyx_base::Result;
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{FlowOp, Program, Step};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

/// Regions with more steps are not explored.
const STEPS_MAX: usize = 8;

/// A sequence of fusions.
#[derive(Clone, Debug)]
pub struct Way {
    /// Whether all rules are applied before the moves.
    pub by_rules: bool,
    pub path: Vec<Move>,
}

/// Returns the sequence of fusions that leads to the cheapest program found; explores at most `states_max` programs
/// besides the result of the rules.
pub fn best(start: &Program, costs: &Costs, states_max: usize, rewrites: &Rewrites) -> Result<Way> {
    let mut ruled = start.clone();
    rules::apply(&mut ruled, &mut rewrites.trial())?;
    let whole = ruled.steps.iter().filter_map(kernel).count() == 1;
    if whole && costs.operations(&ruled) <= costs.operations(start) {
        // A single kernel reads and computes everything once, so no program is cheaper.
        return Ok(Way { by_rules: true, path: vec![] });
    }
    let (cost, path) = descend(&ruled, costs);
    let found = match start.steps.len() <= STEPS_MAX {
        true => explore(start, costs, states_max, cost),
        false => None,
    };
    Ok(found.map_or(Way { by_rules: true, path }, |path| Way { by_rules: false, path }))
}

/// Applies the most profitable move as long as any move lowers the cost; returns the final cost and the moves.
fn descend(start: &Program, costs: &Costs) -> (u64, Vec<Move>) {
    let (mut program, mut path) = (start.clone(), vec![]);
    let mut known = Known::new(&program, costs);
    // A program's cost is the sum over its kernels, so a move's gain changes only if the steps that it sees change.
    let mut saved: HashMap<(Discriminant<Move>, Vec<u64>), i128> = HashMap::new();
    loop {
        let uses = Uses::new(&program);
        let mut best: Option<(i128, Move)> = None;
        for m in moves(&program) {
            let seen = m.seen(&program, &uses).into_iter().map(|step| known.steps[step].name).collect();
            let evaluated = || known.cost as i128 - known.cost_of(&m.apply(&program), costs) as i128;
            let gain = *saved.entry((discriminant(&m), seen)).or_insert_with(evaluated);
            if gain > best.as_ref().map_or(0, |(most, _)| *most) {
                best = Some((gain, m));
            }
        }
        let Some((_, m)) = best else { return (known.cost, path) };
        program = m.apply(&program);
        known = known.after(&program, costs);
        path.push(m);
    }
}

/// The steps of a program with their costs; each step has a number as its name, unique within the search.
#[derive(Default)]
struct Known {
    steps: Vec<KnownStep>,
    /// Index in `steps` of the step that writes these containers.
    places: HashMap<Vec<Id>, usize>,
    cost: u64,
    /// Number of names given so far; the last step got this number as its name.
    names: u64,
}

#[derive(Clone)]
struct KnownStep {
    step: Step,
    name: u64,
    cost: u64,
}

impl Known {
    fn new(program: &Program, costs: &Costs) -> Known {
        Known::default().after(program, costs)
    }

    fn find(&self, step: &Step) -> Option<&KnownStep> {
        let known = &self.steps[*self.places.get(&step.results)?];
        is_same(&known.step, step).then_some(known)
    }

    /// Returns the cost of a program, using the known costs of the steps that it shares with the known program.
    fn cost_of(&self, program: &Program, costs: &Costs) -> u64 {
        let one = |step| self.find(step).map_or_else(|| price(step, program, costs), |known| known.cost);
        program.steps.iter().map(one).fold(0, u64::saturating_add)
    }

    /// Returns the costs and names of all steps of `program`, reusing those of steps that it shares with the known
    /// program.
    fn after(&self, program: &Program, costs: &Costs) -> Known {
        let mut names = self.names;
        let mut known = |step: &Step| {
            self.find(step).cloned().unwrap_or_else(|| {
                names += 1;
                KnownStep { step: step.clone(), name: names, cost: price(step, program, costs) }
            })
        };
        let steps: Vec<KnownStep> = program.steps.iter().map(&mut known).collect();
        let places = steps.iter().enumerate().map(|(at, known)| (known.step.results.clone(), at)).collect();
        let cost = steps.iter().map(|known| known.cost).fold(0, u64::saturating_add);
        Known { steps, places, cost, names }
    }
}

/// Compares steps quickly: programs derived from each other share the kernels that no move has changed.
fn is_same(a: &Step, b: &Step) -> bool {
    match (&a.op, &b.op) {
        (FlowOp::Kernel(one), FlowOp::Kernel(other)) if Arc::ptr_eq(one, other) => {
            (&a.args, &a.results, &a.origins) == (&b.args, &b.results, &b.origins)
        }
        _ => a == b,
    }
}

fn price(step: &Step, program: &Program, costs: &Costs) -> u64 {
    kernel(step).map_or(0, |k| costs.kernel(k, program))
}

/// An explored program, and the state and move from which it was reached.
struct State {
    program: Program,
    before: Option<(usize, Move)>,
}

/// Returns the moves to the cheapest program below `bound` among the first `states_max` programs that moves reach;
/// `None` if none is cheaper than `bound`.
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
