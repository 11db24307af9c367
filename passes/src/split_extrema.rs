//! y = max(x) over all of x  =>  p[i] = max(x[i, …]) for each row; y = max(p)
//!
//! A reduction to a single value is one work item, which one thread computes while the others wait; and a kernel that
//! walks the same points could not be spread over threads if it were fused with it. The part of a row, however, can be
//! computed by the kernel that computes the row. The range of a tensor that is quantised dynamically is a pair of such
//! reductions. The order of a maximum or minimum matters only for the sign of a zero, which is open anyway
//! (FLOATING_POINT.md); the bits of a sum depend on it.

use crate::rewrite::{Found, Rewrites};
use crate::steps::kernel;
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::flow::{Body, Container, FlowOp, Kernel, Memlet, Program, Statement, Step, Store};
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::scalar::ReduceFn;
use std::sync::Arc;

/// Least number of elements of a part: below it, storing the results of parts costs more than threads gain.
const PART_MIN: i64 = 64;

/// Least number of elements of a reduction that is split.
const WHOLE_MIN: i64 = 1 << 13;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.programs(module, |rewrites, program| rewrites.each_step(program, find, apply))
}

/// Returns the number of leading reduced dimensions that number the parts.
fn find(program: &Program, at: usize) -> Found<usize> {
    Ok(kernel(&program.steps[at]).and_then(n_leading).map(|n| ("parts".into(), n)))
}

fn n_leading(k: &Kernel) -> Option<usize> {
    let [load, reduce] = &k.body[..] else { return None };
    let Body::Reduce { f: ReduceFn::Max | ReduceFn::Min, arg: 0 } = reduce.body else { return None };
    let is_plain = matches!(load.body, Body::Load { guard: None, .. }) && k.stores.len() == 1 && k.deep.is_empty();
    if !is_plain || !k.outer.iter().all(|extent| extent.is_const(1)) {
        return None;
    }
    // Open extents are taken to be large, unless all others are small: indices and lengths are such tensors.
    let size = |dims: &[Dim]| dims.iter().try_fold(1i64, |size, extent| size.checked_mul(extent.as_const()?));
    let known = k.inner.iter().filter_map(Dim::as_const).fold(1, i64::saturating_mul);
    if known < PART_MIN || size(&k.inner).is_some_and(|size| size < WHOLE_MIN) {
        return None;
    }
    let n = (1..k.inner.len()).rev().find(|n| size(&k.inner[*n..]).is_none_or(|size| size >= PART_MIN))?;
    (!k.inner[..n].iter().all(|extent| extent.is_const(1))).then_some(n)
}

fn apply(program: &mut Program, at: usize, n: usize) {
    let Some(whole) = kernel(&program.steps[at]).cloned() else { return };
    let dtype = whole.body[1].dtype;
    // The leading reduced variables become outer ones, and keep their numbers.
    let rows: Vec<Dim> = whole.outer.iter().chain(&whole.inner[..n]).cloned().collect();
    let memlet = Memlet { container: 0, index: (0..rows.len()).map(Kernel::var).collect() };
    let parts = Container::plain(dtype, rows.clone());
    let part = Kernel {
        outer: rows,
        inner: whole.inner[n..].to_vec(),
        writes: vec![parts.clone()],
        stores: vec![Store { memlet: memlet.clone(), value: 1 }],
        ..whole.clone()
    };
    let load = Statement { body: Body::Load { memlet, guard: None }, dtype };
    let rest = Kernel {
        inner: whole.inner[..n].to_vec(),
        reads: vec![parts.clone()],
        body: vec![load, whole.body[1].clone()],
        ..whole
    };
    let id = program.container(parts);
    let Step { args, origins, .. } = program.steps[at].clone();
    program.steps.push(Step { op: FlowOp::Kernel(Arc::new(part)), args, results: vec![id], origins });
    (program.steps[at].op, program.steps[at].args) = (FlowOp::Kernel(Arc::new(rest)), vec![id]);
}
