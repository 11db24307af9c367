//! y[m, n] = Σk a·w; z[m, j] = f(y[m, j], y[m, h + j], …)  =>  one kernel with an accumulator for each part of the
//! columns, and f as its epilogue
//!
//! The gates of a recurrent cell, for example, are parts of the columns of one contraction with the weights of all
//! gates. First each part becomes a separate result of the contraction, which the consumers read at their own points;
//! then the consumers are fused like any other epilogue.

use crate::fuse_epilogues;
use crate::merge::{STATEMENTS_MAX, merge_pairs};
use crate::rewrite::{Rewrites, Site};
use crate::splice::{Splice, tidy};
use crate::steps::{Uses, kernel};
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{Body, Class, Container, FlowOp, Kernel, Memlet, Program, Statement, Step, Store};
use sardonyx_dialects::mlir::Module;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of accumulators of one kernel: each accumulator keeps a tile of results while the other accumulators
/// are computed.
const SUMS_MAX: usize = 4;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.programs(module, |rewrites, program| {
        rewrites.sweep(program, "columns", find, apply)?;
        merge_pairs(program, rewrites, fuse_epilogues::RULE, |program, uses, producer, consumer| {
            match kernel(&program.steps[producer]).is_some_and(|k| n_sums(k) > 1) {
                true => fuse_epilogues::matches(program, uses, producer, consumer),
                false => Err(crate::miss::Miss::Unlike),
            }
        })
    })
}

/// A contraction whose consumers read parts of its columns; `steps` are the contraction and then its consumers.
struct Parts {
    steps: Vec<usize>,
    /// Variable of the contraction that numbers its columns.
    column: usize,
    /// Number of columns of a part.
    width: i64,
    /// First column of each part that is read, in ascending order.
    starts: Vec<i64>,
}

impl Site for Parts {
    fn steps(&self) -> Vec<usize> {
        self.steps.clone()
    }
}

fn n_sums(k: &Kernel) -> usize {
    k.body.iter().filter(|s| matches!(s.body, Body::Reduce { .. })).count()
}

fn find(program: &Program, uses: &Uses, at: usize) -> Option<Parts> {
    let step = &program.steps[at];
    let k = kernel(step)?;
    let ([store], [result]) = (&k.stores[..], &step.results[..]) else { return None };
    if k.class() != Class::Contract || n_sums(k) != 1 || program.is_output(*result) {
        return None;
    }
    let (last, others) = store.memlet.index.split_last()?;
    let column = last.as_variable().filter(|v| *v < k.outer.len())?;
    let elsewhere = others.iter().any(|d| d.variables().contains(&column));
    let columns = k.outer[column].as_const().filter(|_| !elsewhere)?;
    let readers = uses.consumers[*result].to_vec();
    let mut starts = vec![];
    let mut width = None;
    for &reader in &readers {
        let (own, from) = read_parts(&program.steps[reader], *result)?;
        if width.replace(own).is_some_and(|other| other != own) {
            return None;
        }
        starts.extend(from);
    }
    let width = width.filter(|w| *w > 0 && columns % *w == 0)?;
    starts.sort();
    starts.dedup();
    let whole = starts.iter().all(|start| start % width == 0 && (0..columns).contains(start));
    let statements = k.body.len().saturating_mul(starts.len());
    let fits = whole && (2..=SUMS_MAX).contains(&starts.len()) && statements <= STATEMENTS_MAX;
    fits.then(|| Parts { steps: [vec![at], readers].concat(), column, width, starts })
}

/// If a map or the epilogue of another contraction reads container `id` in parts of its columns, with `%v + start` as
/// the index of the last dimension, returns the width of the parts, which is the extent of the outer variable `%v`, and
/// the starts.
fn read_parts(step: &Step, id: Id) -> Option<(i64, Vec<i64>)> {
    let k = kernel(step).filter(|k| k.class() == Class::Contract || k.class() == Class::Map && k.inner.is_empty())?;
    let (mut width, mut starts) = (None, vec![]);
    for (Memlet { index, .. }, guarded) in loads(k).filter(|(memlet, _)| step.args[memlet.container] == id) {
        let (last, others) = index.split_last().filter(|_| !guarded)?;
        let (var, start) = shifted_var(last)?;
        if var >= k.outer.len() {
            return None;
        }
        if !others.iter().all(|d| d.as_variable().is_some_and(|v| v < k.outer.len()) || d.as_const().is_some()) {
            return None;
        }
        let own = k.outer[var].as_const()?;
        if width.replace(own).is_some_and(|other| other != own) {
            return None;
        }
        starts.push(start);
    }
    Some((width?, starts))
}

/// Returns v and c if an index expression is `%v + c`.
fn shifted_var(d: &Dim) -> Option<(usize, i64)> {
    let shift = d.terms().filter(|(monomial, _)| monomial.is_empty()).map(|(_, c)| c).sum::<i64>();
    Some(((d.clone() - Dim::constant(shift)).as_variable()?, shift))
}

/// Returns the loads of a kernel, and whether each is guarded.
fn loads(k: &Kernel) -> impl Iterator<Item = (&Memlet, bool)> {
    k.body.iter().filter_map(|s| match &s.body {
        Body::Load { memlet, guard } => Some((memlet, guard.is_some())),
        Body::Const(_) | Body::Index(_) | Body::Apply { .. } | Body::Convert(_, _) | Body::Reduce { .. } => None,
    })
}

fn apply(program: &mut Program, site: &Parts) {
    let [at, readers @ ..] = &site.steps[..] else { return };
    let step = program.steps[*at].clone();
    let (Some(k), [old]) = (kernel(&step), &step.results[..]) else { return };
    let mut dims = program.containers[*old].dims.clone();
    if let Some(last) = dims.last_mut() {
        *last = Dim::constant(site.width);
    }
    let container = Container::plain(program.containers[*old].dtype, dims);
    let parts: BTreeMap<i64, Id> =
        site.starts.iter().map(|start| (*start, program.container(container.clone()))).collect();
    let mut split = Kernel { body: vec![], stores: vec![], writes: vec![container; parts.len()], ..k.clone() };
    split.outer[site.column] = Dim::constant(site.width);
    for (number, start) in site.starts.iter().enumerate() {
        let shifted = |v| if v == site.column { Kernel::var(v) + Dim::constant(*start) } else { Kernel::var(v) };
        let vars: Vec<Dim> = (0..k.n_vars()).map(shifted).collect();
        let mut splice = Splice::new(split.body, k);
        splice.run(&vars, &mut |s, memlet, guard, dtype| s.push(Body::Load { memlet, guard }, dtype));
        let index = k.stores[0].memlet.index.clone();
        let value = splice.statement(k.stores[0].value);
        split.stores.push(Store { memlet: Memlet { container: number, index }, value });
        split.body = splice.body;
    }
    let (split, args) = tidy(split, step.args.clone());
    let results = parts.values().copied().collect();
    program.steps[*at] = Step { op: FlowOp::Kernel(Arc::new(split)), args, results, origins: step.origins.clone() };
    for &reader in readers {
        read_from_parts(program, reader, *old, &parts);
    }
}

/// Makes a kernel read the separate results in `parts` instead of parts of the columns of `old`.
fn read_from_parts(program: &mut Program, reader: usize, old: Id, parts: &BTreeMap<i64, Id>) {
    let mut args = program.steps[reader].args.clone();
    let FlowOp::Kernel(k) = &program.steps[reader].op else { return };
    let mut k = (**k).clone();
    let mut reads = k.reads.clone();
    for Statement { body, .. } in &mut k.body {
        let Body::Load { memlet, .. } = body else { continue };
        let Some(last) = memlet.index.last_mut().filter(|_| args[memlet.container] == old) else { continue };
        let Some((var, part)) = shifted_var(last).and_then(|(var, start)| Some((var, *parts.get(&start)?))) else {
            continue;
        };
        *last = Kernel::var(var);
        memlet.container = args.iter().position(|id| *id == part).unwrap_or_else(|| {
            args.push(part);
            reads.push(program.containers[part].clone());
            args.len() - 1
        });
    }
    k.reads = reads;
    let (k, args) = tidy(k, args);
    let step = &mut program.steps[reader];
    (step.op, step.args) = (FlowOp::Kernel(Arc::new(k)), args);
}
