//! Reshape, Expand, Slice, Range by values that only the call knows  =>  small i64 tensors, the symbols bound to them, gather
//!
//! A length that no rule admits becomes -1, which no symbol takes: the call is refused where it is bound.

use super::builder::Builder;
use super::node::Node;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, TensorType, Value};
use sardonyx_runtime::dim::product;
use sardonyx_runtime::{DType, Dim, Result};

/// The i64 scalar `value` of the dimensions of `like`.
fn number(b: &mut Builder, value: i64, like: Value) -> Result<Value> {
    let dims = b.dims(like);
    let scalar = b.dims_scalar(Dim::constant(value))?;
    b.broadcast(scalar, &dims)
}

fn less(b: &mut Builder, a: Value, than: i64) -> Result<Value> {
    let than = number(b, than, a)?;
    b.map2(ScalarFn::Lt, a, than)
}

fn equals(b: &mut Builder, a: Value, to: i64) -> Result<Value> {
    let to = number(b, to, a)?;
    b.map2(ScalarFn::Eq, a, to)
}

/// Element `i` of a vector, as a vector of one.
fn element(b: &mut Builder, vector: Value, i: usize) -> Result<Value> {
    b.slice_axis(vector, 0, Dim::constant(i as i64), 1, Dim::constant(1))
}

/// The length of a vector that says something about dimensions: their number must be known.
pub fn vector_length(b: &Builder, node: &Node, vector: Value) -> Result<usize> {
    let length = match b.ty(vector).dims.as_slice() {
        [n] => n.as_const().and_then(|n| usize::try_from(n).ok()),
        _ => None,
    };
    length.ok_or_else(|| node.error("E0203", "a rank is not known when the model is compiled"))
}

/// The dimensions that a shape vector gives: -1 is what is left of the elements, 0 the operand's own unless
/// `copy_zero` is off.
pub fn reshape(b: &mut Builder, node: &Node, x: Value, target: Value, copy_zero: bool) -> Result<Value> {
    let n = vector_length(b, node, target)?;
    let mut target = b.convert(target, DType::I64)?;
    let from = b.dims(x);
    let total = product(&from);
    if copy_zero {
        let own = (0..n).map(|i| from.get(i).cloned().unwrap_or(Dim::constant(-1))).collect();
        let (own, zero) = (b.dims_vector(own)?, equals(b, target, 0)?);
        target = b.select(zero, own, target)?;
    }
    let open = equals(b, target, -1)?;
    let one = number(b, 1, target)?;
    let given = b.select(open, one, target)?;
    let known = b.reduce(ReduceFn::Mul, given, &[0], false)?;
    let whole = b.dims_scalar(total)?;
    let left = b.map2(ScalarFn::Div, whole, known)?;
    let dims = b.select(open, left, target)?;
    let dims = b.read_dims(dims)?;
    with_dims(b, x, &dims)
}

/// The same elements under dimensions of which only the call knows that they fit.
pub fn with_dims(b: &mut Builder, x: Value, dims: &[Dim]) -> Result<Value> {
    let (has, wanted) = (product(&b.dims(x)), product(dims));
    if has == wanted {
        return b.reshape(x, dims);
    }
    if let (Some(_), Some(_)) = (has.as_const(), wanted.as_const()) {
        return b.reshape(x, dims);
    }
    b.add_check(wanted.clone(), has.clone());
    let flat = b.reshape(x, &[has])?;
    // The whole of it, by its other name.
    let named = b.slice_axis(flat, 0, Dim::constant(0), 1, wanted)?;
    b.reshape(named, dims)
}

/// Broadcasts both ways, an axis at a time: where the operand has one element the target counts, else the target must be
/// 1 or the same.
pub fn expand(b: &mut Builder, node: &Node, x: Value, target: Value) -> Result<Value> {
    let n = vector_length(b, node, target)?;
    let target = b.convert(target, DType::I64)?;
    let rank = b.rank(x).max(n);
    let mut dims = vec![Dim::constant(1); rank - b.rank(x)];
    dims.extend(b.dims(x));
    let mut x = b.reshape(x, &dims)?;
    for axis in rank - n..rank {
        let (own, wanted) = (dims[axis].clone(), element(b, target, axis + n - rank)?);
        let size = number(b, 1, wanted)?;
        let own_size = b.dims_vector(vec![own.clone()])?;
        let (single, unchanged) = (b.map2(ScalarFn::Eq, own_size, size)?, b.map2(ScalarFn::Eq, wanted, size)?);
        let same = b.map2(ScalarFn::Eq, wanted, own_size)?;
        let fits = b.map2(ScalarFn::Or, same, unchanged)?;
        let refused = number(b, -1, wanted)?;
        let kept = b.select(fits, own_size, refused)?;
        let size = b.select(single, wanted, kept)?;
        let size = b.read_dims(size)?.remove(0);
        x = stretch(b, x, axis, &size)?;
        dims = b.dims(x);
    }
    Ok(x)
}

/// One axis repeated to `size` where it has one element; else it has that many.
fn stretch(b: &mut Builder, x: Value, axis: usize, size: &Dim) -> Result<Value> {
    let (mut dims, own) = (b.dims(x), b.dims(x)[axis].clone());
    if own == *size {
        return Ok(x);
    }
    if own.is_const(1) {
        dims[axis] = size.clone();
        return b.broadcast(x, &dims);
    }
    if own.as_const().is_some() {
        b.unify(size, &own)?;
        return Ok(x);
    }
    let at = iota(b, size)?;
    let (last, zero) = (b.dims_scalar(own - Dim::constant(1))?, b.dims_scalar(Dim::constant(0))?);
    let at = b.map2(ScalarFn::Min, at, last)?;
    let at = b.map2(ScalarFn::Max, at, zero)?;
    b.add(Op::Gather { axis }, &[x, at])
}

fn iota(b: &mut Builder, n: &Dim) -> Result<Value> {
    b.add_typed(Op::Iota { axis: 0 }, &[], Some(TensorType::new(DType::I64, vec![n.clone()])))
}

/// The vectors of a slice.
pub struct Bounds {
    pub starts: Value,
    pub ends: Value,
    pub axes: Option<Value>,
    pub steps: Option<Value>,
}

/// Each axis by itself: x[start + i·step], i < count.
pub fn slice(b: &mut Builder, node: &Node, x: Value, bounds: &Bounds) -> Result<Value> {
    let n = vector_length(b, node, bounds.starts)?;
    let vectors = [Some(bounds.ends), bounds.axes, bounds.steps];
    for vector in vectors.into_iter().flatten() {
        if vector_length(b, node, vector)? != n {
            return Err(node.error("E0106", "starts, ends, axes and steps do not match"));
        }
    }
    let rank = b.rank(x);
    let (starts, ends) = (b.convert(bounds.starts, DType::I64)?, b.convert(bounds.ends, DType::I64)?);
    let steps = match bounds.steps {
        Some(steps) => b.convert(steps, DType::I64)?,
        None => number(b, 1, starts)?,
    };
    let known = bounds.axes.map_or(Some((0..n as i64).collect()), |axes| b.constants(axes));
    let mut out = x;
    if let Some(axes) = known {
        for (i, axis) in axes.into_iter().enumerate() {
            let axis = node.axis(axis, rank)?;
            let [start, end, step] = [element(b, starts, i)?, element(b, ends, i)?, element(b, steps, i)?];
            out = slice_one(b, out, axis, [start, end, step])?;
        }
        return Ok(out);
    }
    let Some(axes) = bounds.axes else { return Ok(out) };
    let axes = b.convert(axes, DType::I64)?;
    let (negative, ranks) = (less(b, axes, 0)?, number(b, rank as i64, axes)?);
    let wrapped = b.map2(ScalarFn::Add, axes, ranks)?;
    let axes = b.select(negative, wrapped, axes)?;
    for axis in 0..rank {
        let here = equals(b, axes, axis as i64)?;
        // What the vectors say of this axis, else what changes nothing.
        let say = |b: &mut Builder, vector: Value, otherwise: i64| -> Result<Value> {
            let neutral = number(b, otherwise, vector)?;
            let difference = b.map2(ScalarFn::Sub, vector, neutral)?;
            let zero = number(b, 0, vector)?;
            let difference = b.select(here, difference, zero)?;
            let sum = b.reduce(ReduceFn::Add, difference, &[0], true)?;
            let neutral = number(b, otherwise, sum)?;
            b.map2(ScalarFn::Add, sum, neutral)
        };
        let (start, step) = (say(b, starts, 0)?, say(b, steps, 1)?);
        let end = say(b, ends, i64::MAX)?;
        out = slice_one(b, out, axis, [start, end, step])?;
    }
    Ok(out)
}

fn slice_one(b: &mut Builder, x: Value, axis: usize, [start, end, step]: [Value; 3]) -> Result<Value> {
    let extent = b.dims_vector(vec![b.dims(x)[axis].clone()])?;
    let [zero, one] = [number(b, 0, start)?, number(b, 1, start)?];
    let wrap = |b: &mut Builder, v: Value| -> Result<Value> {
        let (negative, up) = (less(b, v, 0)?, b.map2(ScalarFn::Add, v, extent)?);
        b.select(negative, up, v)
    };
    let (start, end) = (wrap(b, start)?, wrap(b, end)?);
    let down = less(b, step, 0)?;
    let last = b.map2(ScalarFn::Sub, extent, one)?;
    let lowest = b.map1(ScalarFn::Neg, one)?;
    let (most, least) = (b.select(down, last, extent)?, b.select(down, lowest, zero)?);
    let clamp = |b: &mut Builder, v: Value, lo: Value, hi: Value| -> Result<Value> {
        let v = b.map2(ScalarFn::Min, v, hi)?;
        b.map2(ScalarFn::Max, v, lo)
    };
    let start = clamp(b, start, zero, most)?;
    let end = clamp(b, end, least, most)?;
    // A step beyond the extent takes one element as well as any.
    let beyond = b.map2(ScalarFn::Add, extent, one)?;
    let before = b.map1(ScalarFn::Neg, beyond)?;
    let step = clamp(b, step, before, beyond)?;
    let span = b.map2(ScalarFn::Sub, end, start)?;
    let sign = b.map1(ScalarFn::Sign, step)?;
    let padded = b.map2(ScalarFn::Add, span, step)?;
    let padded = b.map2(ScalarFn::Sub, padded, sign)?;
    let count = b.map2(ScalarFn::Div, padded, step)?;
    let count = b.map2(ScalarFn::Max, count, zero)?;
    let still = equals(b, step, 0)?;
    let count = b.select(still, lowest, count)?;
    let count = b.read_dims(count)?.remove(0);
    if let (Some([from]), Some([by])) = (b.contents(start), b.constants(step).as_deref()) {
        let (from, by) = (from.clone(), *by);
        return b.slice_axis(x, axis, from, by, count);
    }
    let at = iota(b, &count)?;
    let at = b.map2(ScalarFn::Mul, at, step)?;
    let at = b.map2(ScalarFn::Add, at, start)?;
    b.add(Op::Gather { axis }, &[x, at])
}

/// start + i * delta, max(0, ceil((limit - start) / delta)) of them; the count of floats by division in f64.
pub fn range(b: &mut Builder, [start, limit, delta]: [Value; 3]) -> Result<Value> {
    let dtype = b.dtype(start);
    let [start, limit, delta] = [b.reshape(start, &[])?, b.reshape(limit, &[])?, b.reshape(delta, &[])?];
    let count = match dtype.is_float() {
        true => {
            let [from, to, by] = [start, limit, delta].map(|v| b.convert(v, DType::F64));
            let (from, to, by) = (from?, to?, by?);
            let span = b.map2(ScalarFn::Sub, to, from)?;
            let count = b.map2(ScalarFn::Div, span, by)?;
            let count = b.map1(ScalarFn::Ceil, count)?;
            b.convert(count, DType::I64)?
        }
        false => {
            let [from, to, by] = [start, limit, delta].map(|v| b.convert(v, DType::I64));
            let (from, to, by) = (from?, to?, by?);
            let span = b.map2(ScalarFn::Sub, to, from)?;
            let sign = b.map1(ScalarFn::Sign, by)?;
            let padded = b.map2(ScalarFn::Add, span, by)?;
            let padded = b.map2(ScalarFn::Sub, padded, sign)?;
            b.map2(ScalarFn::Div, padded, by)?
        }
    };
    let zero = number(b, 0, count)?;
    let count = b.map2(ScalarFn::Max, count, zero)?;
    let count = b.read_dims(count)?.remove(0);
    let at = iota(b, &count)?;
    let at = b.convert(at, dtype)?;
    let at = b.map2(ScalarFn::Mul, at, delta)?;
    b.map2(ScalarFn::Add, at, start)
}
