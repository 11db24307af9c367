//! program  =>  its regions, across which no kernels are fused, each as a separate program

use super::moves::may_meet;
use crate::steps::{Uses, kernel, sort_steps};
use petgraph::unionfind::UnionFind;
use sardonyx_base::Result;
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{Class, FlowOp, Program, Step};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A step with more consumers than this is not put into a region with them, because it could connect a whole network
/// into one region.
const READERS_MAX: usize = 4;

/// Larger regions are searched in consecutive parts, because each move that is tried takes time proportional to the
/// region's size.
const STEPS_MAX: usize = 128;

/// Returns the containers written by each region's steps, in the order of the regions' first steps. Regions that
/// consist of a single step are left out.
pub fn regions(program: &Program) -> Vec<BTreeSet<Id>> {
    let uses = Uses::new(program);
    let mut sets: UnionFind<usize> = UnionFind::new(program.steps.len());
    for producer in 0..program.steps.len() {
        let results = &program.steps[producer].results;
        let readers: BTreeSet<usize> = results.iter().flat_map(|&r| uses.consumers[r].iter().copied()).collect();
        if readers.len() > READERS_MAX {
            continue;
        }
        for &consumer in &readers {
            if may_meet(program, &uses, producer, consumer) && !barred(program, &uses, producer, consumer) {
                sets.union(producer, consumer);
            }
        }
    }
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for step in 0..program.steps.len() {
        members.entry(sets.find(step)).or_default().push(step);
    }
    let mut regions: Vec<Vec<usize>> = members.into_values().filter(|m| m.len() > 1).collect();
    regions.sort();
    let parts = regions.iter().flat_map(|region| region.chunks(STEPS_MAX));
    let written = |steps: &[usize]| steps.iter().flat_map(|&s| program.steps[s].results.iter().copied()).collect();
    parts.map(written).collect()
}

/// Whether another path leads from producer to consumer through a contraction or a step that is not a kernel.
fn barred(program: &Program, uses: &Uses, producer: usize, consumer: usize) -> bool {
    let passes = |step: usize| kernel(&program.steps[step]).is_some_and(|k| k.class() != Class::Contract);
    // For each step: whether a path to it passes a contraction or a step that is not a kernel.
    let mut seen: HashMap<usize, bool> = HashMap::new();
    let mut stack: Vec<(usize, bool)> = vec![(producer, false)];
    while let Some((step, met)) = stack.pop() {
        for &next in program.steps[step].results.iter().flat_map(|&r| &uses.consumers[r]) {
            if next == consumer && step != producer && met {
                return true;
            }
            let met = met || !passes(next);
            if next < consumer && !seen.get(&next).is_some_and(|before| *before || !met) {
                seen.insert(next, met);
                stack.push((next, met));
            }
        }
    }
    false
}

/// Some steps of a program as a separate program: containers that other steps produce are inputs, and containers that
/// other steps read are outputs.
pub struct Region {
    pub program: Program,
    /// For each container of the region's program, the corresponding container of the whole program.
    outside: Vec<Id>,
    written: BTreeSet<Id>,
}

impl Region {
    /// Extracts the steps that write the given containers.
    pub fn extract(program: &Program, written: &BTreeSet<Id>) -> Option<Region> {
        let inside = |step: &Step| step.results.iter().any(|r| written.contains(r));
        let first = program.steps.iter().position(inside)?;
        let last = program.steps.iter().rposition(inside)?;
        let mut builder = Builder::with_symbols_of(program);
        // For each container that steps outside the region compute, the region's containers that it depends on.
        let mut from: HashMap<Id, BTreeSet<Id>> = HashMap::new();
        for step in &program.steps[first..=last] {
            if inside(step) {
                builder.step(program, step, &from);
                continue;
            }
            let reached: BTreeSet<Id> = (step.args.iter())
                .flat_map(|id| match written.contains(id) {
                    true => BTreeSet::from([*id]),
                    false => from.get(id).cloned().unwrap_or_default(),
                })
                .collect();
            if !reached.is_empty() {
                step.results.iter().for_each(|r| drop(from.insert(*r, reached.clone())));
            }
        }
        let read_outside = program.steps.iter().filter(|s| !inside(s)).flat_map(|s| &s.args);
        let read_outside: BTreeSet<Id> =
            read_outside.chain(program.outputs.iter().map(|(_, id)| id)).copied().collect();
        written.intersection(&read_outside).for_each(|id| builder.output(program, *id));
        Some(Region { program: builder.program, outside: builder.outside, written: written.clone() })
    }

    /// Returns what identifies the region's program: regions with equal keys are fused in the same way.
    pub fn key(&self) -> RegionKey {
        let symbols = self.program.symbols.iter().map(|(name, symbol)| (name.clone(), symbol.lo, symbol.hi)).collect();
        RegionKey { symbols, outputs: self.program.outputs.clone(), steps: key(&self.program) }
    }

    /// Replaces the region's steps with those of `merged`, a rewritten version of the region's program.
    pub fn put_back(&self, program: &mut Program, merged: &Program) {
        let outside = outer(program, &self.outside, merged);
        let steps = merged.steps.iter().filter(|s| kernel(s).is_some()).map(|s| global(s, &outside));
        let inside = |step: &Step| step.results.iter().any(|r| self.written.contains(r));
        let last = program.steps.iter().rposition(inside).unwrap_or(0);
        let tail = program.steps.split_off(last + 1);
        program.steps.retain(|s| !inside(s));
        program.steps.extend(steps);
        program.steps.extend(tail);
        sort_steps(program);
    }
}

/// Rewrites the program in parts of this many consecutive steps, each as a separate program.
pub fn in_parts(
    program: &mut Program,
    part_steps: usize,
    mut rewrite: impl FnMut(&mut Program) -> Result<()>,
) -> Result<()> {
    let consumers = program.consumers();
    let outputs: BTreeSet<Id> = program.outputs.iter().map(|(_, id)| *id).collect();
    let steps = std::mem::take(&mut program.steps);
    for (at, part) in steps.chunks(part_steps).enumerate() {
        let mut builder = Builder::with_symbols_of(program);
        // A part is contiguous, so no outer step lies between its steps.
        part.iter().for_each(|step| builder.step(program, step, &HashMap::new()));
        let end = at * part_steps + part.len();
        let is_read_later = |id: &&Id| outputs.contains(id) || consumers[**id].last().is_some_and(|&step| step >= end);
        for id in part.iter().flat_map(|step| &step.results).filter(is_read_later) {
            builder.output(program, *id);
        }
        rewrite(&mut builder.program)?;
        let outside = outer(program, &builder.outside, &builder.program);
        program.steps.extend(builder.program.steps.iter().map(|step| global(step, &outside)));
    }
    Ok(())
}

/// Returns the container of the whole program for each container of a rewritten part: those in `outside` for the
/// part's first ones, and new ones for containers that the rewrites have added.
fn outer(program: &mut Program, outside: &[Id], part: &Program) -> Vec<Id> {
    let added = part.containers.iter().skip(outside.len());
    outside.iter().copied().chain(added.map(|added| program.container(added.clone()))).collect()
}

/// Translates a step of a part: replaces its containers by those of the whole program.
fn global(step: &Step, outside: &[Id]) -> Step {
    let ids = |ids: &[Id]| ids.iter().map(|&id| outside[id]).collect();
    Step { args: ids(&step.args), results: ids(&step.results), ..step.clone() }
}

#[derive(Default)]
struct Builder {
    program: Program,
    outside: Vec<Id>,
    locals: HashMap<Id, Id>,
}

impl Builder {
    fn with_symbols_of(program: &Program) -> Builder {
        let (symbols, checks) = (program.symbols.clone(), program.checks.clone());
        Builder { program: Program { symbols, checks, ..Program::default() }, ..Builder::default() }
    }

    fn local(&mut self, program: &Program, id: Id) -> Id {
        if let Some(local) = self.locals.get(&id) {
            return *local;
        }
        let local = self.program.container(program.containers[id].clone());
        self.outside.push(id);
        self.locals.insert(id, local);
        local
    }

    /// Makes container `id` of the whole program an input of the part. If it depends on the containers `from` of the
    /// region, it becomes the result of a placeholder step that reads these, so that fusion sees the dependence.
    fn read(&mut self, program: &Program, id: Id, from: Option<&BTreeSet<Id>>) {
        if self.locals.contains_key(&id) {
            return;
        }
        let local = self.local(program, id);
        match from {
            None => self.program.inputs.push((format!("i{}", self.program.inputs.len()), local)),
            Some(sources) => {
                let args = sources.iter().map(|id| self.local(program, *id)).collect();
                let (results, origins) = (vec![local], vec![]);
                self.program.steps.push(Step { op: FlowOp::View, args, results, origins });
            }
        }
    }

    /// Makes a container an output of the part, because steps outside the part read it.
    fn output(&mut self, program: &Program, id: Id) {
        let local = self.local(program, id);
        self.program.outputs.push((format!("o{}", self.program.outputs.len()), local));
    }

    /// Adds a step and its operands; `from` maps containers computed outside the region to the region's containers that
    /// they depend on.
    fn step(&mut self, program: &Program, step: &Step, from: &HashMap<Id, BTreeSet<Id>>) {
        step.args.iter().for_each(|id| self.read(program, *id, from.get(id)));
        let locals = |b: &mut Builder, ids: &[Id]| ids.iter().map(|id| b.local(program, *id)).collect::<Vec<_>>();
        let (args, results) = (locals(self, &step.args), locals(self, &step.results));
        self.program.steps.push(Step { op: step.op.clone(), args, results, origins: step.origins.clone() });
    }
}

/// The steps of a program without their origins.
pub type Steps = Vec<(FlowOp, Vec<Id>, Vec<Id>)>;

/// Returns the steps of a program, as a key.
pub fn key(program: &Program) -> Steps {
    program.steps.iter().map(|step| (step.op.clone(), step.args.clone(), step.results.clone())).collect()
}

/// A region's program without its origins and the names of its inputs.
#[derive(PartialEq, Eq, Hash)]
pub struct RegionKey {
    /// Name, lower bound and upper bound of each symbol.
    symbols: Vec<(String, i64, Option<i64>)>,
    outputs: Vec<(String, Id)>,
    steps: Steps,
}
