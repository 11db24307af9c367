//! Reshape, Squeeze, Expand, Slice, Range by run-time values  =>  small i64 tensors, symbols bound to them, gather
//!
//! An invalid length becomes -1, which no symbol can take: the call is refused where the symbol is bound.

use super::builder::Builder;
use super::coordinates::{checked_index, from_end};
use super::node::Node;
use sardonyx_base::dim::product;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, TensorType, Value};

/// `value` as i64, repeated over the dimensions of `like`.
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

/// Element `i` of a vector, as a vector of length 1.
fn element(b: &mut Builder, vector: Value, i: usize) -> Result<Value> {
    b.slice_axis(vector, 0, Dim::constant(i as i64), 1, Dim::constant(1))
}

/// Returns the length of a vector that describes dimensions. If the vector's type does not give the length, the length
/// is `wanted`, which follows from the rank that the file declares. Errors: E0201 if the operand is no vector, E0203 if
/// neither length is known.
pub fn vector_length(b: &mut Builder, node: &Node, vector: Value, wanted: Option<usize>) -> Result<usize> {
    let dims = b.dims(vector);
    let open = || node.error("E0203", "a rank is not known when the model is compiled");
    let [n] = dims.as_slice() else {
        return Err(node.error("E0201", format!("{} is no vector", b.ty(vector))));
    };
    match (n.as_const().and_then(|n| usize::try_from(n).ok()), wanted) {
        (Some(n), _) => Ok(n),
        (None, Some(wanted)) => {
            b.unify(n, &Dim::constant(wanted as i64))?;
            Ok(wanted)
        }
        (None, None) => Err(open()),
    }
}

/// Returns the only element of a tensor as a scalar; every call checks the dimensions that are not known to be 1.
pub fn scalar(b: &mut Builder, v: Value) -> Result<Value> {
    for i in 0..b.rank(v) {
        let own = b.dims(v)[i].clone();
        b.unify(&own, &Dim::constant(1))?;
    }
    b.reshape(v, &[])
}

/// Reshapes to the dimensions in a vector: -1 stands for the remaining elements, 0 for the operand's own dimension
/// unless `copy_zero` is off.
pub fn reshape(b: &mut Builder, node: &Node, x: Value, target: Value, copy_zero: bool) -> Result<Value> {
    let n = vector_length(b, node, target, node.declared_rank)?;
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

/// Reshapes to `dims`. If only a call can tell whether the number of elements matches, the call checks it.
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
    // Slices out all elements, with `wanted` as the length.
    let named = b.slice_axis(flat, 0, Dim::constant(0), 1, wanted)?;
    b.reshape(named, dims)
}

/// Converts axes to i64, counted from the start; a call with an axis outside of the rank is refused.
pub fn axes_from_start(b: &mut Builder, axes: Value, rank: usize) -> Result<Value> {
    let (axes, rank) = (b.convert(axes, DType::I64)?, Dim::constant(rank as i64));
    let axes = from_end(b, axes, &rank)?;
    checked_index(b, axes, &rank)
}

/// Returns, for each of n positions, the number of axes equal to it and the number of axes before it.
fn positions(b: &mut Builder, axes: Value, n: usize, rank: usize) -> Result<(Value, Value)> {
    let axes = axes_from_start(b, axes, rank)?;
    let rows = [Dim::constant(n as i64), Dim::constant(1)];
    let at = iota(b, &rows[0])?;
    let at = b.reshape(at, &rows)?;
    let (here, before) = (b.map2(ScalarFn::Eq, axes, at)?, b.map2(ScalarFn::Lt, axes, at)?);
    let mut count = |v: Value| {
        let ones = b.convert(v, DType::I64)?;
        b.reduce(ReduceFn::Add, ones, &[1], false)
    };
    Ok((count(here)?, count(before)?))
}

/// Inserts dimensions of 1 at the given axes.
pub fn unsqueeze(b: &mut Builder, node: &Node, x: Value, axes: Value) -> Result<Value> {
    let own = b.dims(x);
    let added = node.declared_rank.and_then(|rank| rank.checked_sub(own.len()));
    let rank = own.len() + vector_length(b, node, axes, added)?;
    let (here, before) = positions(b, axes, rank, rank)?;
    let one = number(b, 1, here)?;
    let added = b.map2(ScalarFn::Le, one, here)?;
    let at = iota(b, &Dim::constant(rank as i64))?;
    let at = b.map2(ScalarFn::Sub, at, before)?;
    // Dimensions added at the end gather from one position after the last dimension, which has to exist.
    let dims = own.into_iter().chain([Dim::constant(1)]).collect();
    let own = b.dims_vector(dims)?;
    let own = b.add(Op::Gather { axis: 0 }, &[own, at])?;
    let dims = b.select(added, one, own)?;
    let dims = b.read_dims(dims)?;
    with_dims(b, x, &dims)
}

/// Removes the dimensions that the axes name, which must be 1.
pub fn squeeze(b: &mut Builder, node: &Node, x: Value, axes: Value) -> Result<Value> {
    let own = b.dims(x);
    let gone = node.declared_rank.and_then(|rank| own.len().checked_sub(rank));
    let n = vector_length(b, node, axes, gone)?;
    let kept = own.len().checked_sub(n).ok_or_else(|| node.error("E0201", format!("{n} axes of {}", b.ty(x))))?;
    let (here, before) = positions(b, axes, own.len(), own.len())?;
    let stays = less(b, here, 1)?;
    let at = iota(b, &Dim::constant(own.len() as i64))?;
    let at = b.map2(ScalarFn::Sub, at, before)?;
    let rows = [Dim::constant(kept as i64), Dim::constant(1)];
    let to = iota(b, &rows[0])?;
    let to = b.reshape(to, &rows)?;
    let moves = b.map2(ScalarFn::Eq, at, to)?;
    let moves = b.map2(ScalarFn::And, moves, stays)?;
    let own = b.dims_vector(own)?;
    let nothing = number(b, 0, own)?;
    let sizes = b.select(moves, own, nothing)?;
    let dims = b.reduce(ReduceFn::Add, sizes, &[1], false)?;
    let dims = b.read_dims(dims)?;
    with_dims(b, x, &dims)
}

/// Broadcasts operand and target to each other, one axis at a time: an axis of the operand with one element takes the
/// target's length; for any other axis the target must be 1 or the same length.
pub fn expand(b: &mut Builder, node: &Node, x: Value, target: Value) -> Result<Value> {
    let target = b.convert(target, DType::I64)?;
    let (n, target) = aligned(b, node, target)?;
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

/// Returns a shape and its number of dimensions. A shape of unknown length is extended by leading 1s to the declared
/// rank of the result.
fn aligned(b: &mut Builder, node: &Node, target: Value) -> Result<(usize, Value)> {
    let own = b.dims(target);
    let ([n], Some(rank)) = (own.as_slice(), node.declared_rank) else {
        return Ok((vector_length(b, node, target, None)?, target));
    };
    if n.as_const().is_some() {
        return Ok((vector_length(b, node, target, None)?, target));
    }
    let whole = Dim::constant(rank as i64);
    b.require_at_most(n, &whole)?;
    let ones = b.splat(DType::I64, 1.0, std::slice::from_ref(&whole))?;
    let both = b.add(Op::Concat { axis: 0 }, &[ones, target])?;
    let n = b.dims(target)[0].clone();
    Ok((rank, b.slice_axis(both, 0, n, 1, whole)?))
}

/// Repeats an axis of one element `size` times; any other axis must have `size` elements.
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

/// The vector operands of a slice.
pub struct Bounds {
    pub starts: Value,
    pub ends: Value,
    pub axes: Option<Value>,
    pub steps: Option<Value>,
}

/// Slices each axis separately: x[start + i·step], i < count.
pub fn slice(b: &mut Builder, node: &Node, x: Value, bounds: &Bounds) -> Result<Value> {
    for vector in [Some(bounds.ends), bounds.axes, bounds.steps].into_iter().flatten() {
        let (n, own) = (b.dims(bounds.starts), b.dims(vector));
        match (n.as_slice(), own.as_slice()) {
            ([n], [own]) => b.unify(n, own)?,
            _ => return Err(node.error("E0106", "starts, ends, axes and steps are no vectors")),
        }
    }
    let rank = b.rank(x);
    let (starts, ends) = (b.convert(bounds.starts, DType::I64)?, b.convert(bounds.ends, DType::I64)?);
    let steps = match bounds.steps {
        Some(steps) => b.convert(steps, DType::I64)?,
        None => number(b, 1, starts)?,
    };
    let n = b.dims(starts)[0].clone();
    let axes = match bounds.axes {
        Some(axes) => axes,
        None => iota(b, &n)?,
    };
    let known = b.constants(axes);
    let mut out = x;
    if let Some(axes) = known {
        for (i, axis) in axes.into_iter().enumerate() {
            let axis = node.axis(axis, rank)?;
            let [start, end, step] = [element(b, starts, i)?, element(b, ends, i)?, element(b, steps, i)?];
            out = slice_one(b, out, axis, [start, end, step])?;
        }
        return Ok(out);
    }
    let axes = axes_from_start(b, axes, rank)?;
    for axis in 0..rank {
        let here = equals(b, axes, axis as i64)?;
        // Returns the entry of `vector` for this axis; if there is none, `otherwise`, which leaves the axis unchanged.
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
        // On an empty axis with a negative step, hi = -1 is below lo = 0 and has to win.
        let v = b.map2(ScalarFn::Max, v, lo)?;
        b.map2(ScalarFn::Min, v, hi)
    };
    let start = clamp(b, start, zero, most)?;
    let end = clamp(b, end, least, most)?;
    // A step longer than the extent takes only the element at `start`, so its exact length is irrelevant.
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

/// Returns start + i * delta, for max(0, ceil((limit - start) / delta)) elements; for floats, this count is computed in
/// f64. A `delta` of 0 and a count that is NaN are refused.
pub fn range(b: &mut Builder, [start, limit, delta]: [Value; 3]) -> Result<Value> {
    let dtype = b.dtype(start);
    let [start, limit, delta] = [scalar(b, start)?, scalar(b, limit)?, scalar(b, delta)?];
    let count = match dtype.is_float() {
        true => float_count(b, [start, limit, delta])?,
        false => int_count(b, [start, limit, delta])?,
    };
    let count = b.read_dims(count)?.remove(0);
    let at = iota(b, &count)?;
    let at = b.convert(at, dtype)?;
    let at = b.map2(ScalarFn::Mul, at, delta)?;
    b.map2(ScalarFn::Add, at, start)
}

fn float_count(b: &mut Builder, ends: [Value; 3]) -> Result<Value> {
    let [from, to, by] = ends.map(|v| b.convert(v, DType::F64));
    let (from, to, by) = (from?, to?, by?);
    let span = b.map2(ScalarFn::Sub, to, from)?;
    let count = b.map2(ScalarFn::Div, span, by)?;
    let count = b.map1(ScalarFn::Ceil, count)?;
    let none = b.splat(DType::F64, 0.0, &[])?;
    let (no_number, still) = (b.map1(ScalarFn::IsNan, count)?, b.map2(ScalarFn::Eq, by, none)?);
    let refused = b.map2(ScalarFn::Or, no_number, still)?;
    let count = b.map2(ScalarFn::Max, count, none)?;
    let count = b.convert(count, DType::I64)?;
    let never = number(b, -1, count)?;
    b.select(refused, never, count)
}

/// Returns (span - 1) / |delta| + 1 with span = |limit - start|, 0 if the range is empty, or -1 if
/// `delta` is 0. The quotient is computed in u64, which can hold every span and |delta|.
fn int_count(b: &mut Builder, ends: [Value; 3]) -> Result<Value> {
    let [from, to, by] = ends.map(|v| b.convert(v, DType::I64));
    let (from, to, by) = (from?, to?, by?);
    let zero = number(b, 0, by)?;
    let up = b.map2(ScalarFn::Lt, zero, by)?;
    let (low, high) = (b.select(up, from, to)?, b.select(up, to, from)?);
    let is_some = b.map2(ScalarFn::Lt, low, high)?;
    let down = b.map1(ScalarFn::Neg, by)?;
    let (span, step) = (b.map2(ScalarFn::Sub, high, low)?, b.select(up, by, down)?);
    let (span, step) = (b.reinterpret(span, DType::U64)?, b.reinterpret(step, DType::U64)?);
    let one = b.splat(DType::U64, 1.0, &[])?;
    let before = b.map2(ScalarFn::Sub, span, one)?;
    let count = b.map2(ScalarFn::Div, before, step)?;
    let count = b.map2(ScalarFn::Add, count, one)?;
    // A count beyond i64 becomes negative, and is refused as such.
    let count = b.reinterpret(count, DType::I64)?;
    let count = b.select(is_some, count, zero)?;
    let (still, never) = (equals(b, by, 0)?, number(b, -1, count)?);
    b.select(still, never, count)
}
