//! ReduceSum(x, axes)  =>  reduce "add" over the axes, which may be known only at run time
//!
//! Axes from data split each dimension d into (d, 1) or, where it is reduced, (1, d): both dimensions are read from
//! data, and the second of each pair is reduced.

use super::builder::Builder;
use super::coordinates::iota;
use super::dynamic::{axes_from_start, with_dims};
use super::node::Node;
use sardonyx_base::dim::product;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};

/// A value whose `axes` (sorted) are to be reduced, and the shape that the result then gets.
pub struct Reducible {
    pub x: Value,
    pub axes: Vec<usize>,
    shape: Shape,
}

enum Shape {
    /// Without the reduced axes.
    Bare,
    /// With dimensions of 1 in place of the reduced axes.
    Kept,
    /// With dimensions that are known only from data.
    Given(Vec<Dim>),
}

impl Reducible {
    /// Number of elements that are reduced to one.
    pub fn count(&self, b: &Builder) -> Dim {
        product(self.axes.iter().map(|&i| &b.ty(self.x).dims[i]))
    }

    pub fn finish(&self, b: &mut Builder, reduced: Value) -> Result<Value> {
        match &self.shape {
            Shape::Bare => Ok(reduced),
            Shape::Kept => {
                let mut dims = b.dims(self.x);
                self.axes.iter().for_each(|&i| dims[i] = Dim::constant(1));
                b.reshape(reduced, &dims)
            }
            Shape::Given(dims) => with_dims(b, reduced, dims),
        }
    }
}

/// Reads the axes of a node, which are an input since opset `since`. Empty axes mean all axes, or none with
/// `noop_with_empty_axes`.
pub fn read(b: &mut Builder, node: &Node, since: i64) -> Result<Reducible> {
    let x = node.input(0)?;
    let rank = b.rank(x);
    let keep = node.int_or("keepdims", 1)? != 0;
    let given = if node.opset < since { None } else { node.optional(1) };
    let list = match given {
        None if node.opset < since => node.ints("axes")?,
        None => None,
        Some(v) if b.ty(v).elements().is_const(0) => None,
        Some(v) => match b.constants(v) {
            Some(known) => Some(known),
            None => return from_data(b, node, x, v, keep),
        },
    };
    let axes = match list.filter(|l| !l.is_empty()) {
        Some(list) => list.into_iter().map(|a| node.axis(a, rank)).collect::<Result<Vec<_>>>()?,
        None if node.int_or("noop_with_empty_axes", 0)? != 0 => vec![],
        None => (0..rank).collect(),
    };
    let axes: Vec<usize> = (0..rank).filter(|i| axes.contains(i)).collect();
    Ok(Reducible { x, axes, shape: if keep { Shape::Kept } else { Shape::Bare } })
}

fn from_data(b: &mut Builder, node: &Node, x: Value, axes: Value, keep: bool) -> Result<Reducible> {
    let rank = b.rank(x);
    if !matches!(b.dtype(axes), DType::I64 | DType::I32) || b.rank(axes) != 1 {
        return Err(node.error("E0107", format!("axes are a vector of integers, not {}", b.ty(axes))));
    }
    // The rank that the model declares determines the number of axes.
    if let Some(n) = node.declared_rank.filter(|_| !keep).and_then(|after| rank.checked_sub(after)) {
        let given = b.dims(axes)[0].clone();
        b.unify(&given, &Dim::constant(n as i64))?;
    }
    let n_axes = b.dims(axes)[0].clone();
    let reduced = is_reduced(b, node, axes, rank)?;
    let extents = b.dims_vector(b.dims(x))?;
    let one = b.dims_scalar(Dim::constant(1))?;
    let (outer, inner) = (b.select(reduced, one, extents)?, b.select(reduced, extents, one)?);
    let (outer, inner) = (b.read_dims(outer)?, b.read_dims(inner)?);
    let dims: Vec<Dim> = outer.into_iter().zip(inner).flat_map(|(o, i)| [o, i]).collect();
    let split = with_dims(b, x, &dims)?;
    let shape = match keep {
        true => Shape::Bare,
        false => {
            let n_kept = n_axes.as_const().filter(|n| (1..=rank as i64).contains(n)).map(|n| rank - n as usize);
            let n_kept = n_kept.ok_or_else(|| {
                let reason =
                    "the number of its axes is not known when the model is compiled, and the rank depends on it";
                node.error("E0203", reason).help("set `keepdims` to 1, or make the axes a constant")
            })?;
            Shape::Given(kept_dims(b, reduced, extents, rank, n_kept)?)
        }
    };
    Ok(Reducible { x: split, axes: (0..rank).map(|i| 2 * i + 1).collect(), shape })
}

/// One bool per dimension: whether it is among the axes.
fn is_reduced(b: &mut Builder, node: &Node, axes: Value, rank: usize) -> Result<Value> {
    let axes = axes_from_start(b, axes, rank)?;
    let count = b.dims(axes)[0].clone();
    let pairs = [Dim::constant(rank as i64), count.clone()];
    let (place, axis) = (iota(b, 0, &pairs)?, b.broadcast(axes, &pairs)?);
    let same = b.map2(ScalarFn::Eq, place, axis)?;
    let same = b.convert(same, DType::I64)?;
    let mut named = b.reduce(ReduceFn::Add, same, &[1], false)?;
    if node.int_or("noop_with_empty_axes", 0)? == 0 {
        // Empty axes mean all.
        let (count, zero) = (b.dims_scalar(count)?, b.dims_scalar(Dim::constant(0))?);
        let none = b.map2(ScalarFn::Eq, count, zero)?;
        let none = b.convert(none, DType::I64)?;
        named = b.map2(ScalarFn::Add, named, none)?;
    }
    b.convert(named, DType::Bool)
}

/// The dimensions that are not reduced, in order: number i is the kept dimension with i kept dimensions before it.
fn kept_dims(b: &mut Builder, reduced: Value, extents: Value, rank: usize, n_kept: usize) -> Result<Vec<Dim>> {
    let kept = b.map1(ScalarFn::Not, reduced)?;
    let n = Dim::constant(rank as i64);
    let square = [n.clone(), n.clone()];
    let (i, j) = (iota(b, 0, &square)?, iota(b, 1, &square)?);
    let earlier = b.map2(ScalarFn::Lt, j, i)?;
    let kept_row = b.broadcast(kept, &square)?;
    let earlier = b.map2(ScalarFn::And, earlier, kept_row)?;
    let earlier = b.convert(earlier, DType::I64)?;
    let place = b.reduce(ReduceFn::Add, earlier, &[1], false)?;
    let table = [Dim::constant(n_kept as i64), n];
    let (wanted, place) = (iota(b, 0, &table)?, b.broadcast(place, &table)?);
    let found = b.map2(ScalarFn::Eq, wanted, place)?;
    let kept = b.broadcast(kept, &table)?;
    let found = b.map2(ScalarFn::And, found, kept)?;
    let zero = b.dims_scalar(Dim::constant(0))?;
    let extent = b.select(found, extents, zero)?;
    let dims = b.reduce(ReduceFn::Add, extent, &[1], false)?;
    b.read_dims(dims)
}

/// A value laid out as [before, n, after] around an axis that is known only from data.
pub struct AroundAxis {
    pub x: Value,
    /// Whether each dimension of the original is the axis, as a bool vector.
    pub is_axis: Value,
}

/// Lays out x around a scalar axis; a negative one counts from the end.
pub fn around_axis(b: &mut Builder, x: Value, axis: Value) -> Result<AroundAxis> {
    let axis = axes_from_start(b, axis, b.rank(x))?;
    let extents = b.dims_vector(b.dims(x))?;
    let place = iota(b, 0, &[Dim::constant(b.rank(x) as i64)])?;
    let (one, zero) = (b.dims_scalar(Dim::constant(1))?, b.dims_scalar(Dim::constant(0))?);
    let (before, after) = (b.map2(ScalarFn::Lt, place, axis)?, b.map2(ScalarFn::Lt, axis, place)?);
    let is_axis = b.map2(ScalarFn::Eq, place, axis)?;
    let mut parts = vec![];
    for (chosen, other, f) in
        [(before, one, ReduceFn::Mul), (is_axis, zero, ReduceFn::Add), (after, one, ReduceFn::Mul)]
    {
        let part = b.select(chosen, extents, other)?;
        let part = b.reduce(f, part, &[0], true)?;
        parts.push(part);
    }
    let parts = b.add(Op::Concat { axis: 0 }, &parts)?;
    let dims = b.read_dims(parts)?;
    Ok(AroundAxis { x: with_dims(b, x, &dims)?, is_axis })
}
