//! y = f(x); z = g(x)  =>  one kernel with two results, which reads an operand once that both read at the same points
//!
//! Neither kernel depends on the other's results. The keys and values that a call appends to its caches are siblings,
//! too, though they share no operand: they write the new positions at the same points.

use crate::merge::{Match, STATEMENTS_MAX, merge_into, n_statements};
use crate::rewrite::{Rewrites, Site};
use crate::splice::from_data;
use crate::steps::{Uses, kernel, step_between};
use sardonyx_base::Result;
use sardonyx_dialects::flow::{Body, Kernel, Memlet, Merging, Program, Statement, Step};
use sardonyx_dialects::mlir::Module;
use std::collections::BTreeSet;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.programs(module, |rewrites, program| rewrites.sweep(program, "siblings", find, apply))
}

struct Siblings {
    first: usize,
    second: usize,
}

impl Site for Siblings {
    fn steps(&self) -> Vec<usize> {
        vec![self.first, self.second]
    }
}

/// Returns an earlier step that can be fused with this one.
fn find(program: &Program, uses: &Uses, second: usize) -> Option<Siblings> {
    let step = &program.steps[second];
    let k = kernel(step)?;
    let mut others: BTreeSet<usize> = step.args.iter().flat_map(|&a| uses.consumers[a].iter().copied()).collect();
    if continues_state(program, step) {
        let states = program.states.iter().map(|s| program.outputs[s.output].1);
        others.extend(states.filter_map(|id| uses.producers[id]));
    }
    let first = others.range(..second).copied().find(|&first| matches(program, uses, first, (second, k)))?;
    Some(Siblings { first, second })
}

fn matches(program: &Program, uses: &Uses, first: usize, (second, b): (usize, &Kernel)) -> bool {
    let (a_step, b_step) = (&program.steps[first], &program.steps[second]);
    let Some(a) = kernel(a_step) else { return false };
    let alike = match (a.class().merging(), b.class().merging()) {
        // The merged kernel visits its points in one order, so both results must be stored at the same index.
        (Merging::Points, Merging::Points) => a.stores[0].memlet.index == b.stores[0].memlet.index,
        (Merging::Rows, Merging::Rows) => true,
        (Merging::Points | Merging::Rows | Merging::Products | Merging::Whole, _) => false,
    };
    let gains = || {
        shares_points(a_step, a, b_step, b) || (continues_state(program, a_step) && continues_state(program, b_step))
    };
    alike
        && a.outer == b.outer
        && a.inner == b.inner
        && n_statements(a, b) <= STATEMENTS_MAX
        && gains()
        && !a_step.results.iter().any(|r| b_step.args.contains(r))
        && step_between(program, uses, first, second).is_none()
}

/// Whether both kernels load the same container at the same index, and the index uses every iteration variable.
fn shares_points(a_step: &Step, a: &Kernel, b_step: &Step, b: &Kernel) -> bool {
    let extents: Vec<_> = a.extents().collect();
    let every_point = |m: &Memlet| {
        let used = |v: usize| m.index.iter().any(|d| d.variables().contains(&v));
        (0..extents.len()).all(|v| extents[v].is_const(1) || used(v))
    };
    let loads = |k: &Kernel, step: &Step| -> Vec<(usize, Memlet)> {
        let load = |s: &Statement| match &s.body {
            Body::Load { memlet, guard: None } if !memlet.index.iter().any(from_data) => {
                Some((step.args[memlet.container], memlet.clone()))
            }
            _ => None,
        };
        k.body.iter().filter_map(load).collect()
    };
    let theirs = loads(b, b_step);
    let same = |(id, m): &(usize, Memlet)| theirs.iter().any(|(other, n)| id == other && m.index == n.index);
    loads(a, a_step).iter().any(|load| every_point(&load.1) && same(load))
}

/// Whether a step writes to the memory of a cache that grows in place.
fn continues_state(program: &Program, step: &Step) -> bool {
    program.states.iter().any(|s| step.results.contains(&program.outputs[s.output].1))
}

fn apply(program: &mut Program, site: &Siblings) {
    let Some(k) = kernel(&program.steps[site.first]) else { return };
    let own: Vec<_> = (0..k.n_vars()).map(Kernel::var).collect();
    let space = Match { outer: k.outer.clone(), inner: k.inner.clone(), producer: own.clone(), consumer: own };
    merge_into(program, site.first, site.second, space);
}
