//! an index tensor of past, past + 1, … past + seq - 1  =>  (past, past + seq)

use super::builder::Builder;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};

/// Maximum length of a chain of operations that is followed; exporters build indices from shorter chains.
const DEPTH_MAX: usize = 16;

/// Range of an integer tensor: its least value, and its greatest value plus 1. Both values occur if there are elements.
struct Range {
    lo: Dim,
    hi: Dim,
    /// The dimensions along which the values vary.
    axes: Vec<usize>,
}

/// Makes every call check that the greatest element of an index is below `extent`. Returns `false` if the range of the
/// index is not known, or if its elements may be negative; each element then has to be checked.
pub fn require_inside(b: &mut Builder, index: Value, extent: &Dim) -> Result<bool> {
    let Some(range) = follow(b, index, DEPTH_MAX) else { return Ok(false) };
    if !range.lo.provably_ge(&Dim::constant(0), &|s| b.graph.symbol_lo(s)) {
        return Ok(false);
    }
    b.require_at_most(&range.hi, extent)?;
    Ok(true)
}

fn follow(b: &Builder, v: Value, depth: usize) -> Option<Range> {
    if let Some(one) = single(b, v) {
        return Some(Range { lo: one.clone(), hi: one + Dim::constant(1), axes: vec![] });
    }
    let depth = depth.checked_sub(1)?;
    let node = b.graph.node(v);
    let operand = || follow(b, node.args[0], depth);
    let moved = |r: Range, to: &dyn Fn(usize) -> Option<usize>| {
        let axes = r.axes.iter().map(|&a| to(a)).collect::<Option<_>>()?;
        Some(Range { axes, ..r })
    };
    match &node.op {
        Op::Iota { axis } => Some(Range { lo: Dim::constant(0), hi: node.ty.dims[*axis].clone(), axes: vec![*axis] }),
        Op::Broadcast { dims } => moved(operand()?, &|a| Some(dims[a])),
        Op::Transpose { perm } => moved(operand()?, &|a| perm.iter().position(|&p| p == a)),
        Op::Reshape => moved(operand()?, &|a| same_axis(&b.ty(node.args[0]).dims, &node.ty.dims, a)),
        // Values may wrap in types of fewer than 32 bits.
        Op::Convert(Conversion::Value) if matches!(node.ty.dtype, DType::I64 | DType::I32) => operand(),
        Op::Map(ScalarFn::Add) => sum(operand()?, follow(b, node.args[1], depth)?),
        Op::Map(ScalarFn::Mul) => {
            let (x, y) = (node.args[0], node.args[1]);
            let (x, factor) = single(b, y).map(|c| (x, c)).or_else(|| Some((y, single(b, x)?)))?;
            let Range { lo, hi, axes } = follow(b, x, depth)?;
            let one = Dim::constant(1);
            let rising = factor.provably_ge(&Dim::constant(0), &|s| b.graph.symbol_lo(s));
            rising.then(|| Range { lo: lo * factor.clone(), hi: (hi - one.clone()) * factor + one, axes })
        }
        Op::Slice { starts, steps } => follow(b, piece(b, node.args[0], starts, steps, &node.ty.dims)?, depth),
        _ => None,
    }
}

/// Range of a sum; `None` if both operands vary along a common dimension, because their extremes may then not coincide.
fn sum(a: Range, b: Range) -> Option<Range> {
    let independent = a.axes.iter().all(|axis| !b.axes.contains(axis));
    let axes = [a.axes, b.axes].concat();
    independent.then(|| Range { lo: a.lo + b.lo, hi: a.hi + b.hi - Dim::constant(1), axes })
}

/// Position of a dimension after a reshape that only adds or removes dimensions of 1.
fn same_axis(from: &[Dim], to: &[Dim], axis: usize) -> Option<usize> {
    let long = |dims: &[Dim]| (0..dims.len()).filter(|&i| !dims[i].is_const(1)).collect::<Vec<_>>();
    let (kept, new) = (long(from), long(to));
    let same = kept.len() == new.len() && kept.iter().zip(&new).all(|(&i, &j)| from[i] == to[j]);
    let at = kept.iter().position(|&i| i == axis)?;
    same.then(|| new[at])
}

/// The value that all elements equal, if there is one.
fn single(b: &Builder, v: Value) -> Option<Dim> {
    let node = b.graph.node(v);
    match (b.contents(v), &node.op) {
        (Some([first, rest @ ..]), _) => rest.iter().all(|d| d == first).then(|| first.clone()),
        (_, Op::Broadcast { .. } | Op::Reshape) => single(b, node.args[0]),
        _ => None,
    }
}

/// The operand of a concatenation that a slice extracts again.
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
