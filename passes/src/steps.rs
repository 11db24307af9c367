//! Tools for rewriting programs: producers and consumers, sorting of steps, and removal of dead steps

use crate::splice::tidy;
use sardonyx_base::host::Collective;
use sardonyx_base::{Dim, HostOp};
use sardonyx_dialects::flow::program::Consumers;
use sardonyx_dialects::flow::{Body, FlowOp, Kernel, Program, Source, Step};
use sardonyx_dialects::sdx::SymbolKind;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns the kernel of a step, or `None` if the step is of another kind.
pub fn kernel(step: &Step) -> Option<&Kernel> {
    match &step.op {
        FlowOp::Kernel(k) => Some(k),
        FlowOp::Param { .. } | FlowOp::Const(_) | FlowOp::View | FlowOp::Bind { .. } | FlowOp::Host(_) => None,
    }
}

/// The producer and the consumers of each container, for one state of the program.
pub struct Uses {
    pub producers: Vec<Option<usize>>,
    pub consumers: Consumers,
}

impl Uses {
    pub fn new(program: &Program) -> Uses {
        Uses { producers: program.producers(), consumers: program.consumers() }
    }

    /// Returns the steps whose results a step reads, in the order of its operands.
    pub fn sources(&self, step: &Step) -> Vec<usize> {
        step.args.iter().filter_map(|&a| self.producers[a]).collect()
    }
}

/// Returns the union of several lists of origins, without duplicates.
pub fn union<'a>(parts: impl IntoIterator<Item = &'a [String]>) -> Vec<String> {
    let mut out: Vec<String> = vec![];
    for origin in parts.into_iter().flatten() {
        if !out.contains(origin) {
            out.push(origin.clone());
        }
    }
    out
}

/// Returns the origins of all the given steps, without duplicates.
pub fn origins_of(program: &Program, steps: &[usize]) -> Vec<String> {
    union(steps.iter().map(|&step| program.steps[step].origins.as_slice()))
}

/// Returns the source of a container that is a parameter or a view of one. Views are ignored because packing reads a
/// parameter's bytes regardless of its dimensions.
pub fn parameter(program: &Program, producers: &[Option<usize>], id: usize) -> Option<Source> {
    let step = producers[id].map(|s| &program.steps[s])?;
    match &step.op {
        FlowOp::Param { source, window: None } => Some(source.clone()),
        FlowOp::View => parameter(program, producers, step.args[0]),
        FlowOp::Param { .. } | FlowOp::Const(_) | FlowOp::Bind { .. } | FlowOp::Kernel(_) => None,
        FlowOp::Host(_) => None,
    }
}

/// Returns a third step on a path from step `from` to step `to`, the last before `to`; `None` if no path leads through
/// a third step. A step that binds a symbol has a path to all steps that use the symbol.
pub fn step_between(program: &Program, uses: &Uses, from: usize, to: usize) -> Option<usize> {
    let consumers = &uses.consumers;
    let next = |step: usize| -> Vec<usize> {
        let step = &program.steps[step];
        let mut next: Vec<usize> = step.results.iter().flat_map(|&r| consumers[r].iter().copied()).collect();
        let bound = step.op.binds();
        if !bound.is_empty() {
            let mentions = |other: &Step| data_symbols(program, other).iter().any(|s| bound.contains(&s.as_str()));
            next.extend((0..program.steps.len()).filter(|&i| mentions(&program.steps[i])));
        }
        next
    };
    let mut stack: Vec<usize> = next(from).into_iter().filter(|&s| s != to).collect();
    let mut seen = BTreeSet::new();
    while let Some(step) = stack.pop() {
        if !seen.insert(step) {
            continue;
        }
        let next = next(step);
        if next.contains(&to) {
            return Some(step);
        }
        stack.extend(next);
    }
    None
}

/// Returns the data-dependent symbols whose values a step needs.
fn data_symbols(program: &Program, step: &Step) -> BTreeSet<String> {
    // Most models have no data-dependent symbols, and then the step need not be searched.
    if !program.symbols.values().any(|s| s.kind == SymbolKind::Data) {
        return BTreeSet::new();
    }
    let mut dims: Vec<&Dim> =
        step.args.iter().chain(&step.results).flat_map(|&id| &program.containers[id].dims).collect();
    if let Some(k) = kernel(step) {
        dims.extend(k.extents());
        dims.extend(k.stores.iter().flat_map(|s| &s.memlet.index));
        dims.extend(k.body.iter().flat_map(|s| match &s.body {
            Body::Load { memlet, .. } => memlet.index.as_slice(),
            Body::Index(d) => std::slice::from_ref(d),
            Body::Const(_) | Body::Apply { .. } | Body::Convert(_, _) | Body::Reduce { .. } => &[],
        }));
    }
    let is_data = |name: &str| program.symbols.get(name).is_some_and(|s| s.kind == SymbolKind::Data);
    let own = step.op.binds();
    let needed = |s: &str| is_data(s) && !own.contains(&s);
    dims.into_iter().flat_map(Dim::names).filter(|s| needed(s)).map(|s| s.to_string()).collect()
}

/// Removes unused results: a kernel's stores to them, or whole steps.
pub fn drop_dead(program: &mut Program) {
    let mut readers = vec![0usize; program.containers.len()];
    program.outputs.iter().for_each(|(_, id)| readers[*id] += 1);
    program.steps.iter().flat_map(|s| &s.args).for_each(|&id| readers[id] += 1);
    // Steps are processed from the last to the first, so that a step whose results only dead steps read is found to be
    // dead, too.
    let mut at = program.steps.len();
    while at > 0 {
        at -= 1;
        let step = &program.steps[at];
        let kept = |i: &usize| readers[step.results[*i]] > 0;
        let n_kept = (0..step.results.len()).filter(kept).count();
        if n_kept == 0 && step.op.binds().is_empty() {
            step.args.iter().for_each(|&id| readers[id] -= 1);
            program.steps.remove(at);
        } else if n_kept < step.results.len() && kernel(step).is_some() {
            let kept: Vec<usize> = (0..step.results.len()).filter(kept).collect();
            let args = keep_results(&mut program.steps[at], &kept);
            args.iter().for_each(|&id| readers[id] -= 1);
            program.steps[at].args.iter().for_each(|&id| readers[id] += 1);
        }
    }
}

/// Keeps only the given results, and removes statements and operands that only the other results needed. Returns the
/// operands that the step had before.
fn keep_results(step: &mut Step, kept: &[usize]) -> Vec<usize> {
    let FlowOp::Kernel(kernel) = &mut step.op else { return step.args.clone() };
    let kernel = Arc::make_mut(kernel);
    kernel.stores.retain(|s| kept.contains(&s.memlet.container));
    for store in &mut kernel.stores {
        store.memlet.container = kept.iter().position(|&k| k == store.memlet.container).unwrap_or(0);
    }
    kernel.writes = kept.iter().map(|&i| kernel.writes[i].clone()).collect();
    step.results = kept.iter().map(|&i| step.results[i]).collect();
    let (tidied, args) = tidy(kernel.clone(), step.args.clone());
    *kernel = tidied;
    std::mem::replace(&mut step.args, args)
}

/// Sorts every step after its producers, keeping the order where possible. In a pipeline, weights that occur late are
/// moved to the first step that reads them: if that step waited for its weights, steps of the next micro-batch would be
/// sorted before it.
pub fn sort_steps(program: &mut Program) {
    let producers = program.producers();
    let is_pipeline = program.steps.iter().any(|step| match &step.op {
        FlowOp::Host(host) => matches!(host.op, HostOp::Collective(Collective::Send { .. })),
        FlowOp::Param { .. } | FlowOp::Const(_) | FlowOp::View | FlowOp::Bind { .. } | FlowOp::Kernel(_) => false,
    });
    let mut ready = vec![false; program.containers.len()];
    program.inputs.iter().for_each(|(_, id)| ready[*id] = true);
    let mut bound: BTreeSet<String> = BTreeSet::new();
    let mut rest: Vec<Option<Step>> = std::mem::take(&mut program.steps).into_iter().map(Some).collect();
    let mut first = 0;
    while first < rest.len() {
        let fits = |step: &Step| {
            let comes = |at: usize| is_pipeline && is_weight(&rest, &producers, at);
            let there = |arg: &usize| ready[*arg] || producers[*arg].is_some_and(comes);
            data_symbols(program, step).is_subset(&bound) && step.args.iter().all(there)
        };
        // A cycle would be a defect of a fusion; keeping the order lets the verifier report it.
        let at = (first..rest.len()).find(|&i| rest[i].as_ref().is_some_and(fits)).unwrap_or(first);
        let mut taken = vec![];
        take(&mut rest, (&producers, &ready), at, &mut taken);
        first += rest[first..].iter().take_while(|s| s.is_none()).count();
        for step in taken {
            step.results.iter().for_each(|r| ready[*r] = true);
            bound.extend(step.op.binds().into_iter().map(str::to_string));
            program.steps.push(step);
        }
    }
}

/// Whether a step is a parameter or a constant, or a view of one.
fn is_weight(rest: &[Option<Step>], producers: &[Option<usize>], at: usize) -> bool {
    let Some(step) = &rest[at] else { return true };
    match step.op {
        FlowOp::Param { .. } | FlowOp::Const(_) => true,
        FlowOp::View => producers[step.args[0]].is_some_and(|at| is_weight(rest, producers, at)),
        FlowOp::Bind { .. } | FlowOp::Kernel(_) | FlowOp::Host(_) => false,
    }
}

/// Removes a step from the remaining ones, preceded by the remaining weights that it reads.
fn take(rest: &mut [Option<Step>], (producers, ready): (&[Option<usize>], &[bool]), at: usize, taken: &mut Vec<Step>) {
    let Some(step) = rest[at].take() else { return };
    for arg in step.args.iter().filter(|arg| !ready[**arg]) {
        if let Some(producer) = producers[*arg] {
            take(rest, (producers, ready), producer, taken);
        }
    }
    taken.push(step);
}
