//! y = contract(x); z = pad(f(y))  =>  y = f(contract(x)); z = pad(y): a function of a reduction's result becomes its
//! epilogue even if padding follows
//!
//! A map that pads reads past the edge, where the reduction has no points, so it cannot be an epilogue as a whole. The
//! map is cut where its value has the fewest bits, if these are fewer bits than the reduction stores, for instance 8
//! bits instead of the 32 of f32. If no value is narrower, the cut would not reduce the words moved, so the reduction
//! stores its accumulators as they are.

use crate::class::Class as Equality;
use crate::fuse_epilogues;
use crate::merge::merge_into;
use crate::rewrite::{Rule, Site};
use crate::splice::{Splice, from_data, tidy};
use crate::steps::{Uses, kernel};
use sardonyx_base::Dim;
use sardonyx_base::dim::Symbol;
use sardonyx_dialects::flow::{Body, Class, Container, FlowOp, Kernel, Memlet, Program, Statement, Step, Store};
use std::sync::Arc;

pub const RULE: Rule = Rule::of_class(Equality::Exact, "padding");

/// A rewrite that cuts a map in two and fuses the first part into the reduction.
pub struct Cut {
    reduction: usize,
    map: usize,
    program: Program,
}

impl Site for Cut {
    fn steps(&self) -> Vec<usize> {
        vec![self.reduction, self.map]
    }
}

/// A padded value: its guard, and one of the guarded loads that it is computed from.
struct Padded {
    memlet: Memlet,
    guard: usize,
    value: usize,
}

pub fn find(program: &Program, uses: &Uses, map: usize) -> Option<Cut> {
    let k = kernel(&program.steps[map]).filter(|k| k.class() == Class::Map && k.stores.len() == 1)?;
    let (guard, value) = k.guarded_value(k.stores[0].value)?;
    let guarded = |s: &Statement| match &s.body {
        Body::Load { memlet, guard: Some(own) } if *own == guard => Some(memlet.clone()),
        _ => None,
    };
    k.body.iter().filter_map(guarded).find_map(|memlet| {
        let id = program.steps[map].args[memlet.container];
        let reduction = uses.producers[id].filter(|_| uses.consumers[id] == [map] && !program.is_output(id))?;
        cut(program, (reduction, map), &Padded { memlet, guard, value })
    })
}

pub fn apply(program: &mut Program, site: &Cut) {
    *program = site.program.clone();
}

/// Cuts the map in two, and fuses the first part into the reduction whose result it reads.
fn cut(program: &Program, (reduction, map): (usize, usize), padded: &Padded) -> Option<Cut> {
    let k = kernel(&program.steps[map])?;
    let inside = inside(k, &padded.memlet)?;
    let reduces = kernel(&program.steps[reduction])?.class() != Class::Map;
    let stored = k.reads[padded.memlet.container].dtype.bits();
    let place = narrowest(k, padded.value).filter(|place| reduces && k.body[*place].dtype.bits() < stored)?;
    let mut out = program.clone();
    let Step { args, origins, .. } = &program.steps[map];
    let dims = &k.reads[padded.memlet.container].dims;
    let (first, first_args) = first_part(k, args, place, (dims, &inside))?;
    let id = out.container(first.writes[0].clone());
    let (second, second_args) = second_part(k, args, place, (padded, id, first.writes[0].clone()));
    out.steps[map] = Step { op: FlowOp::Kernel(Arc::new(second)), args: second_args, ..program.steps[map].clone() };
    let op = FlowOp::Kernel(Arc::new(first));
    out.steps.insert(map, Step { op, args: first_args, results: vec![id], origins: origins.clone() });
    let space = fuse_epilogues::matches(&out, &Uses::new(&out), reduction, map).ok()?;
    merge_into(&mut out, reduction, map, space);
    Some(Cut { reduction, map, program: out })
}

/// Returns each variable of the map in terms of the position in the container read at `memlet`. Each dimension of the
/// container must be indexed by a distinct variable plus a constant; otherwise the result is `None`.
fn inside(k: &Kernel, memlet: &Memlet) -> Option<Vec<Dim>> {
    let mut vars: Vec<Option<Dim>> = k.outer.iter().map(|n| n.is_const(1).then(|| Dim::constant(0))).collect();
    for (d, index) in memlet.index.iter().enumerate() {
        if index.as_const().is_some() && k.reads[memlet.container].dims[d].is_const(1) {
            continue;
        }
        let [v] = index.variables()[..] else { return None };
        let (step, behind) = index.linear_in(&Symbol::Variable(v))?;
        let free = step.is_const(1) && behind.as_const().is_some() && (vars[v].is_none() || k.outer[v].is_const(1));
        vars[v] = Some(Kernel::var(d) - behind).filter(|_| free);
        vars[v].as_ref()?;
    }
    vars.into_iter().collect()
}

/// Returns the statement with the fewest bits on the chain of functions, each of one non-constant operand, that ends in
/// `value`; `None` if no statement is narrower than the load at the start of the chain.
fn narrowest(k: &Kernel, value: usize) -> Option<usize> {
    let loads: Vec<bool> = k.body.iter().fold(vec![], |mut loads, s| {
        let any = matches!(s.body, Body::Load { .. }) || s.body.operands().iter().any(|o| loads[*o]);
        loads.push(any);
        loads
    });
    let (mut best, mut at) = (value, value);
    while !matches!(k.body[at].body, Body::Load { .. }) {
        if k.body[at].dtype.bits() < k.body[best].dtype.bits() {
            best = at;
        }
        let mut open = k.body[at].body.operands().into_iter().filter(|o| loads[*o]);
        match (open.next(), open.next()) {
            (Some(next), None) => at = next,
            _ => return Some(best),
        }
    }
    (best != at && k.body[at].dtype.bits() >= k.body[best].dtype.bits()).then_some(best)
}

/// Returns the kernel of the map's statements up to `place`, computed at each element of the container that it reads,
/// without a guard.
fn first_part(
    k: &Kernel,
    args: &[usize],
    place: usize,
    (dims, inside): (&[Dim], &[Dim]),
) -> Option<(Kernel, Vec<usize>)> {
    let mut splice = Splice::new(vec![], k);
    let mut is_inside = true;
    splice.run(inside, &mut |splice, memlet, _, dtype| {
        let fits = |(index, dim): (&Dim, &Dim)| match index.as_variable() {
            Some(v) => dims[v] == *dim,
            None => index.is_const(0),
        };
        let lies = memlet.index.iter().zip(&k.reads[memlet.container].dims).all(fits);
        is_inside &= lies && !memlet.index.iter().any(from_data);
        splice.push(Body::Load { memlet, guard: None }, dtype)
    });
    let value = splice.statement(place);
    let index = (0..dims.len()).map(Kernel::var).collect();
    let write = Container::plain(k.body[place].dtype, dims.to_vec());
    let first = Kernel {
        outer: dims.to_vec(),
        inner: vec![],
        deep: vec![],
        reads: k.reads.clone(),
        writes: vec![write],
        body: splice.body,
        stores: vec![Store { memlet: Memlet { container: 0, index }, value }],
    };
    is_inside.then(|| tidy(first, args.to_vec()))
}

/// Returns the remainder of the map as a kernel: it loads the value of statement `place` at the index at which the
/// original map read the container.
fn second_part(
    k: &Kernel,
    args: &[usize],
    place: usize,
    (padded, id, container): (&Padded, usize, Container),
) -> (Kernel, Vec<usize>) {
    let mut second = k.clone();
    let memlet = Memlet { container: args.len(), index: padded.memlet.index.clone() };
    second.reads.push(container);
    second.body[place].body = Body::Load { memlet, guard: Some(padded.guard) };
    tidy(second, [args, &[id]].concat())
}
