//! a small program  =>  the way to the cheapest program of all that moves reach
//!
//! The rules in their order, and then every move that still helps, lead to a first one. Where there may be better, every
//! program that moves reach is looked at once, the cheapest first, as long as there are few enough of them.

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
    let (mut program, mut path) = (start.clone(), vec![]);
    let mut known = Known::new(&program, costs);
    // The cost of a program is that of its kernels: what a move saves changes only with the steps that it sees.
    let mut saved: HashMap<(Discriminant<Move>, Vec<u64>), i128> = HashMap::new();
    loop {
        let uses = Uses::of(&program);
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

/// The steps of a program and what each costs, under a name that no other step of the search has.
#[derive(Default)]
struct Known {
    steps: Vec<KnownStep>,
    /// By what a step writes.
    places: HashMap<Vec<Id>, usize>,
    cost: u64,
    /// Names up to here are taken.
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

    /// The cost of a program that some of the steps are in still.
    fn cost_of(&self, program: &Program, costs: &Costs) -> u64 {
        let one = |step| self.find(step).map_or_else(|| price(step, program, costs), |known| known.cost);
        program.steps.iter().map(one).fold(0, u64::saturating_add)
    }

    /// The same of all its steps.
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

/// Steps of programs that come of each other share the kernels that no move has changed.
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
