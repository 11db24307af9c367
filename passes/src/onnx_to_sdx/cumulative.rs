//! CumSum(x)  =>  y = x + (x shifted by 1), then y + (y shifted by 2), by 4, 8, …: log2(length) steps; an axis whose
//! length is not known at compile time is split into blocks, and each block is combined with the sum of the blocks
//! before it

use super::builder::Builder;
use super::coordinates::{axis_last, iota, last_to, neutral, positions_except, scalar_index};
use super::dynamic::with_dims;
use super::node::Node;
use super::reduce_axes::around_axis;
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};

type Outputs = Result<Vec<Value>>;

/// Elements per block.
const BLOCK: i64 = 64;

/// Number of levels of blocks: the totals of blocks are split into blocks again. The totals of the last level are
/// combined by comparison; up to a length of 2^30 this takes fewer operations than the comparisons within the blocks.
const LEVELS: usize = 2;

#[derive(Clone, Copy)]
struct Direction {
    f: ReduceFn,
    exclusive: bool,
    reverse: bool,
}

/// CumSum and CumProd. The axis is an input, which may be known only at run time.
pub fn cumulate(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let f = if node.op_type == "CumProd" { ReduceFn::Mul } else { ReduceFn::Add };
    f.scalar().result(&[b.dtype(x), b.dtype(x)]).map_err(|reason| node.error("E0107", reason))?;
    if b.rank(x) == 0 {
        return Err(node.error("E0201", "a scalar has no axis"));
    }
    let how = Direction { f, exclusive: node.int_or("exclusive", 0)? != 0, reverse: node.int_or("reverse", 0)? != 0 };
    let axis = scalar_index(b, node, 1)?;
    if let Some([known]) = b.constants(axis).as_deref() {
        let axis = node.axis(*known, b.rank(x))?;
        return Ok(vec![along(b, x, axis, &how)?]);
    }
    let rows = around_axis(b, x, axis)?.x;
    let y = along(b, rows, 1, &how)?;
    let dims = b.dims(x);
    Ok(vec![with_dims(b, y, &dims)?])
}

fn along(b: &mut Builder, x: Value, axis: usize, how: &Direction) -> Result<Value> {
    match b.dims(x)[axis].as_const() {
        Some(n) => by_doubling(b, x, axis, n, how),
        None => {
            // Along the last dimension a block is contiguous.
            let rank = b.rank(x);
            let rows = b.transpose(x, axis_last(rank, axis))?;
            let y = by_blocks(b, rows, how, LEVELS)?;
            b.transpose(y, last_to(rank, axis))
        }
    }
}

/// Combines prefixes in n log n operations, by shifts of 1, 2, 4, … positions.
fn by_doubling(b: &mut Builder, x: Value, axis: usize, n: i64, how: &Direction) -> Result<Value> {
    let mut y = if how.exclusive { moved(b, x, axis, 1.min(n), how)? } else { x };
    let mut step = 1;
    while step < n {
        let before = moved(b, y, axis, step, how)?;
        y = b.map2(how.f.scalar(), y, before)?;
        step *= 2;
    }
    Ok(y)
}

/// Shifts all elements by `step` positions along the axis (towards its start if `reverse`) and fills with the neutral
/// element.
fn moved(b: &mut Builder, x: Value, axis: usize, step: i64, how: &Direction) -> Result<Value> {
    let ty = b.ty(x).clone();
    let step = Dim::constant(step);
    let rest = ty.dims[axis].clone() - step.clone();
    let start = if how.reverse { step.clone() } else { Dim::constant(0) };
    let part = b.slice_axis(x, axis, start, 1, rest)?;
    let mut low = vec![Dim::constant(0); ty.rank()];
    if !how.reverse {
        low[axis] = step;
    }
    let nothing = neutral(b, how.f, ty.dtype)?;
    b.add_typed(Op::Pad { low }, &[part, nothing], Some(ty))
}

/// Combines the prefixes within each block by comparison, and each prefix with the total of all earlier blocks. Except
/// for the totals of the last level, the number of operations is linear in the length, which need not be known at
/// compile time.
fn by_blocks(b: &mut Builder, x: Value, how: &Direction, levels: usize) -> Result<Value> {
    let axis = b.rank(x) - 1;
    if levels == 0 {
        return by_comparison(b, x, axis, how);
    }
    let (n, block) = (b.dims(x)[axis].clone(), Dim::constant(BLOCK));
    let count = n.ceildiv(&block);
    let mut ty = b.ty(x).clone();
    ty.dims[axis] = count.clone() * block.clone();
    let (nothing, low) = (neutral(b, how.f, ty.dtype)?, vec![Dim::constant(0); ty.rank()]);
    let padded = b.add_typed(Op::Pad { low }, &[x, nothing], Some(ty.clone()))?;
    let mut split = ty.dims.clone();
    split.splice(axis..=axis, [count, block]);
    let blocks = b.reshape(padded, &split)?;
    let within = by_comparison(b, blocks, axis + 1, how)?;
    let whole = b.reduce(how.f, blocks, &[axis + 1], false)?;
    let before = by_blocks(b, whole, &Direction { exclusive: true, ..*how }, levels - 1)?;
    let before = b.broadcast_at(before, positions_except(ty.rank(), axis + 1), &split)?;
    let y = b.map2(how.f.scalar(), before, within)?;
    let y = b.reshape(y, &ty.dims)?;
    b.slice_axis(y, axis, Dim::constant(0), 1, n)
}

/// Compares each position with all others and combines those before it. The number of operations is quadratic.
fn by_comparison(b: &mut Builder, x: Value, axis: usize, how: &Direction) -> Result<Value> {
    let rank = b.rank(x);
    let mut pairs = b.dims(x);
    pairs.insert(axis, pairs[axis].clone());
    // [.., i, j, ..]: positions in the result and in the operand.
    let (i, j) = (iota(b, axis, &pairs)?, iota(b, axis + 1, &pairs)?);
    let (first, second) = if how.reverse { (i, j) } else { (j, i) };
    let taken = b.map2(if how.exclusive { ScalarFn::Lt } else { ScalarFn::Le }, first, second)?;
    let x = b.broadcast_at(x, positions_except(rank, axis), &pairs)?;
    let nothing = neutral(b, how.f, b.dtype(x))?;
    let x = b.select(taken, x, nothing)?;
    b.reduce(how.f, x, &[axis + 1], false)
}
