//! x[b,s,h*d]  <=>  y[b,h,s,d], and which keys a query sees
//!
//! Letters of dimensions: b batch, s queries, t keys, h heads of queries, g heads of keys and values, d channels.

use super::builder::Builder;
use super::node::Node;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, TensorType, Value};

/// x[b,s,h*d] → [b,h,s,d]
pub fn split_heads(b: &mut Builder, x: Value, heads: i64) -> Result<Value> {
    if b.rank(x) != 3 {
        return Err(b.error("E0201", format!("a value of rank {} has no heads to split", b.rank(x))));
    }
    let width = b.dims(x)[2].clone();
    let d = b
        .divide(&width, heads)?
        .ok_or_else(|| b.error("E0201", format!("a width of {width} does not divide into {heads} heads")))?;
    let dims = b.dims(x);
    let split = b.reshape(x, &[dims[0].clone(), dims[1].clone(), Dim::constant(heads), d])?;
    b.transpose(split, vec![0, 2, 1, 3])
}

/// y[b,h,s,d] → [b,s,h*d]
pub fn join_heads(b: &mut Builder, y: Value) -> Result<Value> {
    let moved = b.transpose(y, vec![0, 2, 1, 3])?;
    let dims = b.dims(moved);
    b.reshape(moved, &[dims[0].clone(), dims[1].clone(), dims[2].clone() * dims[3].clone()])
}

/// y[b,g,t,d] => y[b,h,t,d]: each head of the keys serves a group of query heads and is repeated for each of them, as
/// exporters write it. Kernels read the unrepeated value.
pub fn repeat_heads(b: &mut Builder, y: Value, h: &Dim) -> Result<Value> {
    let [batch, kv, t, d] =
        <[Dim; 4]>::try_from(b.dims(y)).map_err(|_| b.error("E0201", "takes operands of rank 4"))?;
    if *h == kv {
        return Ok(y);
    }
    let Some(group) = h.exact_div(&kv).filter(|group| group.as_const().is_none_or(|g| g > 0)) else {
        return gather_heads(b, y, h, &kv);
    };
    let spread = b.broadcast_at(y, vec![0, 1, 3, 4], &[batch.clone(), kv, group, t.clone(), d.clone()])?;
    b.reshape(spread, &[batch, h.clone(), t, d])
}

/// Query head i reads key head i / (h / kv), where the numbers of heads are known only at run time.
fn gather_heads(b: &mut Builder, y: Value, h: &Dim, kv: &Dim) -> Result<Value> {
    if h.as_const().is_some() && kv.as_const().is_some() {
        return Err(b.error("E0201", format!("{h} heads do not divide into groups of {kv}")));
    }
    let group = h.floordiv(kv);
    b.require_at_most(h, &(group.clone() * kv.clone()))?;
    let heads = iota(b, 0, std::slice::from_ref(h))?;
    let group = b.dims_scalar(group)?;
    let index = b.map2(ScalarFn::Div, heads, group)?;
    b.add(Op::Gather { axis: 1 }, &[y, index])
}

pub fn iota(b: &mut Builder, axis: usize, dims: &[Dim]) -> Result<Value> {
    b.add_typed(Op::Iota { axis }, &[], Some(TensorType::new(DType::I64, dims)))
}

/// The additive variant of a mask: 0 where it is true, `low` where it is false.
pub fn additive(b: &mut Builder, mask: Value, dtype: DType, low: f64) -> Result<Value> {
    let dims = b.dims(mask);
    let (zero, low) = (b.splat(dtype, 0.0, &dims)?, b.splat(dtype, low, &dims)?);
    b.select(mask, zero, low)
}

/// Position of query 0 among the keys.
#[derive(Clone)]
pub enum Offset {
    Same(Dim),
    /// One position per row of the batch: [b].
    PerRow(Value),
}

impl Offset {
    /// Offset of queries that are the last ones of the t keys.
    pub fn at_end(b: &Builder, scores: Value) -> Offset {
        let dims = &b.ty(scores).dims;
        Offset::Same(dims[3].clone() - dims[2].clone())
    }
}

/// Which keys a query at position p sees: p - left <= t <= p + right; each bound is optional. The result can be
/// broadcast to scores[b,h,s,t]; `None` if there are no bounds.
pub fn window(b: &mut Builder, scores: Value, offset: &Offset, bounds: [Option<i64>; 2]) -> Result<Option<Value>> {
    let [left, right] = bounds;
    if left.is_none() && right.is_none() {
        return Ok(None);
    }
    let dims = b.dims(scores)[2..].to_vec();
    let (rows, columns) = (iota(b, 0, &dims)?, iota(b, 1, &dims)?);
    let offset = match offset {
        Offset::Same(past) if past.is_const(0) => None,
        Offset::Same(past) => Some(b.dims_scalar(past.clone())?),
        Offset::PerRow(past) => {
            let batch = b.dims(*past)[0].clone();
            let past = b.convert(*past, DType::I64)?;
            Some(b.reshape(past, &[batch, Dim::constant(1), Dim::constant(1), Dim::constant(1)])?)
        }
    };
    let position = match offset {
        None => rows,
        Some(past) => b.map2(ScalarFn::Add, rows, past)?,
    };
    let shifted = |b: &mut Builder, by: i64| match by {
        0 => Ok(position),
        by => b.map_const(ScalarFn::Add, position, by as f64),
    };
    let mut seen = None;
    if let Some(right) = right {
        let last = shifted(b, right)?;
        seen = Some(b.map2(ScalarFn::Le, columns, last)?);
    }
    if let Some(left) = left {
        let first = shifted(b, -left)?;
        let above = b.map2(ScalarFn::Le, first, columns)?;
        seen = Some(match seen {
            None => above,
            Some(below) => b.map2(ScalarFn::And, below, above)?,
        });
    }
    Ok(seen)
}

/// Returns a mask [b,1,1,t] that is true for the first lengths[b] keys.
pub fn within_lengths(b: &mut Builder, lengths: Value, t: Dim) -> Result<Value> {
    let batch = b.dims(lengths)[0].clone();
    let lengths = b.convert(lengths, DType::I64)?;
    let one = Dim::constant(1);
    let lengths = b.reshape(lengths, &[batch, one.clone(), one.clone(), one])?;
    let columns = iota(b, 0, &[t])?;
    b.map2(ScalarFn::Lt, columns, lengths)
}

/// Concatenates past and new keys or values along axis 2 of [b,h,t,d].
pub fn append_past(b: &mut Builder, node: &Node, past: Value, new: Value) -> Result<Value> {
    if b.rank(past) != 4 || b.dtype(past) != b.dtype(new) {
        let (past, new) = (b.ty(past).clone(), b.ty(new).clone());
        return Err(node.error("E0201", format!("a past of {past} does not continue in {new}")));
    }
    for i in [0, 1, 3] {
        let (l, r) = (b.dims(past)[i].clone(), b.dims(new)[i].clone());
        b.unify(&l, &r)?;
    }
    b.add(Op::Concat { axis: 2 }, &[past, new])
}
