//! s = q·k; p = exp(s − max s); o = p·v / Σ p  =>  one kernel: the scores of a row are never written to memory
//!
//! Three kernels become one if nothing else reads their intermediate results: a contraction that computes the scores
//! (with scale and mask as its epilogue), reductions over the rows of scores that give the weights, and a contraction
//! of the weights with the values. The K dimension of the first contraction becomes the deep space of the fused kernel:
//! a reduction at each inner point.
//!
//! A division of a row's weights then becomes a division of the row's result (see `divide_last`).

mod divide_last;
mod remarks;

use crate::class::Class as Equality;
use crate::drop_roundings::without_roundings;
use crate::merge::{STATEMENTS_MAX, loads_of};
use crate::rewrite::{Rewrites, Rule, Site as Changes};
use crate::splice::{Splice, from_data, tidy};
use crate::steps::{Uses, drop_dead, kernel, origins_of};
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::flow::{Body, Class, FlowOp, Kernel, Level, Memlet, Program, Statement, Step, Store};
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use std::sync::Arc;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.programs(module, |rewrites, program| {
        rewrites.sweep(program, RULE, find, apply)?;
        remarks::tell(program, rewrites);
        Ok(())
    })
}

pub const RULE: Rule = Rule::of_class(Equality::Reassociating, "attention");

/// Three steps that are fused, with the fused kernel, which replaces the last of them.
pub struct Site {
    steps: [usize; 3],
    kernel: Kernel,
    args: Vec<usize>,
}

impl Changes for Site {
    fn steps(&self) -> Vec<usize> {
        self.steps.to_vec()
    }
}

/// Returns the site whose contraction of weights with values is step `sum`.
pub fn find(program: &Program, uses: &Uses, sum: usize) -> Option<Site> {
    let c_step = &program.steps[sum];
    if kernel(c_step)?.class() != Class::Contract {
        return None;
    }
    c_step.args.iter().find_map(|&id| {
        let weights = only_reader(program, uses, id, Class::Normalise)?;
        let w_step = &program.steps[weights];
        w_step.args.iter().find_map(|&id| {
            let scores = only_reader(program, uses, id, Class::Contract)?;
            let (kernel, args) = joined(program, &program.steps[scores], w_step, c_step)?;
            Some(Site { steps: [scores, weights, sum], kernel, args })
        })
    })
}

/// Returns the step of class `class` that produces container `id`, if the container is the only result of that step, is
/// read by exactly one step, and is no output of the program.
fn only_reader(program: &Program, uses: &Uses, id: usize, class: Class) -> Option<usize> {
    let at = uses.producers[id]?;
    let step = &program.steps[at];
    let alone = uses.consumers[id].len() == 1 && !program.is_output(id);
    let k = kernel(step)?;
    (alone && k.stores.len() == 1 && step.results.len() == 1 && k.class() == class).then_some(at)
}

pub fn apply(program: &mut Program, site: &Site) {
    let origins = origins_of(program, &site.steps);
    let step = &mut program.steps[site.steps[2]];
    (step.op, step.args, step.origins) = (FlowOp::Kernel(Arc::new(site.kernel.clone())), site.args.clone(), origins);
    // The other two steps have no consumers left.
    drop_dead(program);
}

fn joined(program: &Program, scores: &Step, weights: &Step, sum: &Step) -> Option<(Kernel, Vec<usize>)> {
    let (k, args) = scores_in_weights(scores, weights)?;
    let weights = Step { op: FlowOp::Kernel(Arc::new(k)), args, ..weights.clone() };
    let (mut k, args) = weights_in_sum(&weights, sum)?;
    k = without_roundings(&k).unwrap_or(k);
    divide_last::apply(&mut k, &|s| program.symbol_lo(s));
    let (k, args) = tidy(k, args);
    // A data-dependent index is checked at each iteration point. Fusion has changed these points, so kernels with such
    // an index are not fused.
    let by_data = |b: &Body| matches!(b, Body::Load { memlet, .. } if memlet.index.iter().any(from_data));
    let fits = has_exponentials(&k)
        && k.class() == Class::Attention
        && k.check().is_ok()
        && k.body.len() <= STATEMENTS_MAX
        && !k.body.iter().any(|s| by_data(&s.body))
        && !rounds_weights(&k);
    fits.then_some((k, args))
}

/// Returns whether weights are rounded after they have been divided by their sum, for instance to integer codes. The
/// division then cannot be moved after the weighted sum, and a fused kernel would compute the scores of a row again for
/// every element of the result.
fn rounds_weights(k: &Kernel) -> bool {
    let mut divided: Vec<bool> = vec![];
    k.body.iter().zip(k.levels()).any(|(s, level)| {
        let is_total = matches!(s.body, Body::Reduce { f: ReduceFn::Add, .. }) && level == Level::Row;
        let is_divided = is_total || s.body.operands().iter().any(|k| divided[*k]);
        divided.push(is_divided);
        let rounds = match s.body {
            Body::Apply { f, .. } => f == ScalarFn::Round,
            Body::Convert(..) => s.dtype.is_int(),
            Body::Load { .. } | Body::Const(_) | Body::Index(_) | Body::Reduce { .. } => false,
        };
        rounds && is_divided && level == Level::Point
    })
}

/// Returns whether the kernel computes p = exp(s − m) with one m per row. Fusing another kind of normalisation with the
/// contractions before and after it gains nothing: the rows are short, and the contractions run faster on their own.
fn has_exponentials(k: &Kernel) -> bool {
    let levels = k.levels();
    let exponent = |s: &Statement| match &s.body {
        Body::Apply { f: ScalarFn::Exp, args } => Some(args[0]),
        _ => None,
    };
    k.body.iter().filter_map(exponent).any(|d| match &k.body[d].body {
        Body::Apply { f: ScalarFn::Sub, args } => (levels[args[0]], levels[args[1]]) == (Level::Point, Level::Row),
        _ => false,
    })
}

/// Fuses the contraction that computes the scores into the kernel that computes the weights: the reduction of the
/// contraction moves to the deep space.
fn scores_in_weights(scores: &Step, weights: &Step) -> Option<(Kernel, Vec<usize>)> {
    let (p, c) = (kernel(scores)?, kernel(weights)?);
    let vars = read_at(p, the_load(scores, weights)?)?;
    let deep = (0..p.inner.len()).map(|i| Kernel::var(c.n_vars() + i));
    let vars: Vec<Dim> =
        vars.into_iter().take(p.outer.len()).collect::<Option<Vec<_>>>()?.into_iter().chain(deep).collect();
    let nested = nested(scores, weights, &vars, p.inner.clone())?;
    let becomes_deep = nested.of_producer.iter().all(|(_, now)| *now == Level::Deep);
    (becomes_deep && nested.of_consumer.iter().all(|(was, now)| was == now)).then_some((nested.kernel, nested.args))
}

/// Fuses the kernel that computes the weights into the contraction that computes the weighted sum. The contraction must
/// reduce over exactly the rows of the weights.
fn weights_in_sum(weights: &Step, sum: &Step) -> Option<(Kernel, Vec<usize>)> {
    let (p, c) = (kernel(weights)?, kernel(sum)?);
    let (n_outer, n_walked) = (p.outer.len(), p.outer.len() + p.inner.len());
    let vars = read_at(p, the_load(weights, sum)?)?;
    let vars: Vec<Dim> = vars.into_iter().take(n_walked).collect::<Option<_>>()?;
    let inner: Vec<Option<usize>> = vars[n_outer..].iter().map(Dim::as_variable).collect();
    let same_row = inner.into_iter().eq((c.outer.len()..c.n_vars()).map(Some)) && p.inner == c.inner;
    let deep = (0..p.deep.len()).map(|i| Kernel::var(c.n_vars() + i));
    let nested = nested(weights, sum, &vars.into_iter().chain(deep).collect::<Vec<_>>(), p.deep.clone())?;
    let same_levels = nested.of_producer.iter().chain(&nested.of_consumer).all(|(was, now)| was == now);
    (same_row && same_levels).then_some((nested.kernel, nested.args))
}

/// Returns the load by which a step reads another step's result, if there is exactly one and it has no guard.
fn the_load<'c>(producer: &Step, consumer: &'c Step) -> Option<&'c Memlet> {
    let loads = loads_of(producer, consumer);
    match loads.as_slice() {
        [(_, memlet, false)] => Some(memlet),
        _ => None,
    }
}

/// Returns the values of the producer's variables at the point that `read` accesses. Variables that do not index the
/// stored result are `None`, or 0 if their extent is 1.
fn read_at(p: &Kernel, read: &Memlet) -> Option<Vec<Option<Dim>>> {
    let mut vars: Vec<Option<Dim>> = p.extents().map(|e| e.is_const(1).then(|| Dim::constant(0))).collect();
    for (stored, read) in p.stores[0].memlet.index.iter().zip(&read.index) {
        match stored.as_variable() {
            Some(v) if read.as_variable().is_some() || read.as_const().is_some() => vars[v] = Some(read.clone()),
            None if stored.as_const().is_some() && stored == read => {}
            Some(_) | None => return None,
        }
    }
    Some(vars)
}

/// A kernel with another kernel's body in place of a load.
struct Nested {
    kernel: Kernel,
    args: Vec<usize>,
    /// Level of the operand of each reduction before and after nesting, for the producer's and the consumer's
    /// reductions.
    of_producer: Vec<(Level, Level)>,
    of_consumer: Vec<(Level, Level)>,
}

/// Builds the consumer with the producer's body, its variables replaced by `vars`, in place of loads of its result.
fn nested(p_step: &Step, c_step: &Step, vars: &[Dim], deep: Vec<Dim>) -> Option<Nested> {
    let (p, c) = (kernel(p_step)?, kernel(c_step)?);
    let id = p_step.results[0];
    let offset = c_step.args.len();
    let own: Vec<Dim> = (0..c.n_vars()).map(Kernel::var).collect();
    let mut outside = Splice::new(vec![], c);
    let mut of_producer = vec![];
    outside.run(&own, &mut |s, memlet, guard, dtype| {
        if c_step.args[memlet.container] != id {
            return s.push(Body::Load { memlet, guard }, dtype);
        }
        let mut inside = Splice::new(std::mem::take(&mut s.body), p);
        inside.run(vars, &mut |i, m, guard, dtype| {
            i.push(Body::Load { memlet: Memlet { container: m.container + offset, ..m }, guard }, dtype)
        });
        of_producer = reduced(p).into_iter().map(|(k, level)| (inside.statement(k), level)).collect();
        let value = inside.statement(p.stores[0].value);
        s.body = inside.body;
        value
    });
    let of_consumer: Vec<_> = reduced(c).into_iter().map(|(k, level)| (outside.statement(k), level)).collect();
    let stored = |s: &Store| {
        let index = s.memlet.index.iter().map(|d| outside.index(d, &own)).collect();
        Store { memlet: Memlet { container: s.memlet.container, index }, value: outside.statement(s.value) }
    };
    let stores = c.stores.iter().map(stored).collect();
    let reads = c.reads.iter().chain(&p.reads).cloned().collect();
    let (outer, inner, writes) = (c.outer.clone(), c.inner.clone(), c.writes.clone());
    let kernel = Kernel { outer, inner, deep, reads, writes, body: outside.body, stores };
    let levels = kernel.levels();
    let with_new = |of: Vec<(usize, Level)>| of.into_iter().map(|(k, was)| (was, levels[k])).collect();
    let (of_producer, of_consumer) = (with_new(of_producer), with_new(of_consumer));
    Some(Nested { args: [&c_step.args[..], &p_step.args].concat(), kernel, of_producer, of_consumer })
}

/// Returns the operands of a kernel's reductions, with their levels.
fn reduced(k: &Kernel) -> Vec<(usize, Level)> {
    let levels = k.levels();
    let arg = |body: &Body| if let Body::Reduce { arg, .. } = body { Some((*arg, levels[*arg])) } else { None };
    k.body.iter().filter_map(|s| arg(&s.body)).collect()
}
