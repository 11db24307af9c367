//! an index that is past, past + 1, … past + seq - 1  =>  (past, past + seq)

use super::builder::Builder;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, Value};
use sardonyx_runtime::{Dim, Result};

/// How far a chain of operations is followed: exporters build indices in fewer.
const DEPTH_MAX: usize = 16;

/// The values of an integer tensor, where they are all of lo..hi and no others.
pub fn index_range(b: &Builder, v: Value) -> Option<(Dim, Dim)> {
    follow(b, v, DEPTH_MAX)
}

/// Demands of the call that an index that counts through a dimension is inside. `false` where nothing is known of it,
/// so that the index itself has to be looked at.
pub fn require_inside(b: &mut Builder, index: Value, extent: &Dim) -> Result<bool> {
    let Some((lo, hi)) = index_range(b, index) else { return Ok(false) };
    if !lo.provably_ge(&Dim::constant(0), &|s| b.graph.symbol_lo(s)) {
        return Ok(false);
    }
    b.require_at_most(&hi, extent)?;
    Ok(true)
}

fn follow(b: &Builder, v: Value, depth: usize) -> Option<(Dim, Dim)> {
    if let Some(one) = single(b, v) {
        return Some((one.clone(), one + Dim::constant(1)));
    }
    let depth = depth.checked_sub(1)?;
    let node = b.graph.node(v);
    match &node.op {
        Op::Iota { axis } => Some((Dim::constant(0), node.ty.dims[*axis].clone())),
        Op::Reshape | Op::Transpose { .. } | Op::Broadcast { .. } => follow(b, node.args[0], depth),
        // A narrower type might wrap.
        Op::Convert if node.ty.dtype.is_int() => follow(b, node.args[0], depth),
        Op::Map(ScalarFn::Add) => {
            let (x, y) = (node.args[0], node.args[1]);
            let (x, offset) = single(b, y).map(|c| (x, c)).or_else(|| Some((y, single(b, x)?)))?;
            let (lo, hi) = follow(b, x, depth)?;
            Some((lo + offset.clone(), hi + offset))
        }
        Op::Slice { starts, steps } => follow(b, piece(b, node.args[0], starts, steps, &node.ty.dims)?, depth),
        Op::Convert | Op::Map(_) | Op::Input { .. } | Op::Param { .. } | Op::Const(_) | Op::Dims(_) => None,
        Op::Reduce { .. } | Op::Contract(_) | Op::Gather { .. } | Op::Pad { .. } => None,
        Op::Concat { .. } | Op::Bind { .. } => None,
    }
}

/// The value of all elements, where it is one.
fn single(b: &Builder, v: Value) -> Option<Dim> {
    let node = b.graph.node(v);
    match (b.contents(v), &node.op) {
        (Some([first, rest @ ..]), _) => rest.iter().all(|d| d == first).then(|| first.clone()),
        (_, Op::Broadcast { .. } | Op::Reshape) => single(b, node.args[0]),
        _ => None,
    }
}

/// The operand of a concatenation that a slice takes out again.
fn piece(b: &Builder, v: Value, starts: &[Dim], steps: &[i64], dims: &[Dim]) -> Option<Value> {
    let node = b.graph.node(v);
    let Op::Concat { axis } = &node.op else { return None };
    let others = (0..dims.len()).filter(|i| i != axis);
    let whole = |i: usize| starts[i].is_const(0) && steps[i] == 1 && dims[i] == node.ty.dims[i];
    if steps[*axis] != 1 || !others.into_iter().all(whole) {
        return None;
    }
    let mut at = Dim::constant(0);
    for &arg in &node.args {
        let extent = &b.ty(arg).dims[*axis];
        if at == starts[*axis] && *extent == dims[*axis] {
            return Some(arg);
        }
        at = at + extent.clone();
    }
    None
}
