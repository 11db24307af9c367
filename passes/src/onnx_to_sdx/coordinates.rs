//! data[i, j]  =>  gather flat(data)[i * n + j]: coordinates of elements as tensors

use super::bounds::require_inside;
use super::builder::Builder;
use super::node::Node;
use sardonyx_base::{DType, Dim, Result, Tensor};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, TensorType, Value};

/// result[i] = i[axis]
pub fn iota(b: &mut Builder, axis: usize, dims: &[Dim]) -> Result<Value> {
    b.add_typed(Op::Iota { axis }, &[], Some(TensorType::new(DType::I64, dims)))
}

/// Up to this many elements are each compared with all others, which kernels can do on every device.
const COMPARED_MAX: i64 = 64;

/// Whether comparing each of n elements with all of m others is linear in m, because n is a small constant.
pub fn is_short(n: &Dim) -> bool {
    n.as_const().is_some_and(|n| n <= COMPARED_MAX)
}

/// 0 <= index < extent
pub fn inside(b: &mut Builder, index: Value, extent: &Dim) -> Result<Value> {
    let zero = b.splat(DType::I64, 0.0, &b.dims(index).clone())?;
    let n = b.dims_scalar(extent.clone())?;
    let (above, below) = (b.map2(ScalarFn::Le, zero, index)?, b.map2(ScalarFn::Lt, index, n)?);
    b.map2(ScalarFn::And, above, below)
}

/// Returns the index, in calls where every element is in 0..extent; other calls are refused (E0303), on every device.
/// The check is a lookup in the numbers 0..extent, so the result has to be used in place of the index.
pub fn checked_index(b: &mut Builder, index: Value, extent: &Dim) -> Result<Value> {
    let known = b.constants(index).zip(extent.as_const());
    if known.is_some_and(|(known, n)| known.iter().all(|i| (0..n).contains(i))) || require_inside(b, index, extent)? {
        return Ok(index);
    }
    let numbers = iota(b, 0, std::slice::from_ref(extent))?;
    b.add(Op::Gather { axis: 0 }, &[numbers, index])
}

/// Row-major position of the element at the given coordinates, which all have the same shape.
pub fn flat(b: &mut Builder, at: &[Value], extents: &[Dim]) -> Result<Value> {
    let mut sum: Option<Value> = None;
    for (&coordinate, extent) in at.iter().zip(extents) {
        sum = Some(match sum {
            None => coordinate,
            Some(so_far) => {
                let n = b.dims_scalar(extent.clone())?;
                let scaled = b.map2(ScalarFn::Mul, so_far, n)?;
                b.map2(ScalarFn::Add, scaled, coordinate)?
            }
        });
    }
    match sum {
        Some(sum) => Ok(sum),
        None => b.splat(DType::I64, 0.0, &[]),
    }
}

/// The elements at row-major positions.
pub fn gather_flat(b: &mut Builder, data: Value, at: Value) -> Result<Value> {
    let all = b.ty(data).elements();
    let data = b.reshape(data, &[all])?;
    b.add(Op::Gather { axis: 0 }, &[data, at])
}

/// result[i] = data[i with i[axis] = at[i]]: `at` has the shape of the result, and other coordinates stay the same.
pub fn gather_along(b: &mut Builder, data: Value, axis: usize, at: Value) -> Result<Value> {
    let (extents, dims) = (b.dims(data), b.dims(at));
    let place = |b: &mut Builder, i: usize| if i == axis { Ok(at) } else { iota(b, i, &dims) };
    let places = (0..dims.len()).map(|i| place(b, i)).collect::<Result<Vec<_>>>()?;
    let index = flat(b, &places, &extents)?;
    gather_flat(b, data, index)
}

/// The permutation that moves one dimension to the end.
pub fn axis_last(rank: usize, axis: usize) -> Vec<usize> {
    (0..rank).filter(|&i| i != axis).chain([axis]).collect()
}

/// The permutation that moves the last dimension to position `axis`.
pub fn last_to(rank: usize, axis: usize) -> Vec<usize> {
    let mut perm: Vec<usize> = (0..rank - 1).collect();
    perm.insert(axis, rank - 1);
    perm
}

/// Positions of the operand's dimensions in a result that has one more, at `at`.
pub fn positions_except(rank: usize, at: usize) -> Vec<usize> {
    (0..=rank).filter(|&i| i != at).collect()
}

/// Neutral element of a reduction, as a scalar.
pub fn neutral(b: &mut Builder, f: ReduceFn, dtype: DType) -> Result<Value> {
    if let (ReduceFn::Max | ReduceFn::Min, DType::I64 | DType::U64) = (f, dtype) {
        return b.constant(match (f == ReduceFn::Max, dtype) {
            (true, DType::I64) => Tensor::scalar(i64::MIN),
            (false, DType::I64) => Tensor::scalar(i64::MAX),
            (true, _) => Tensor::scalar(0u64),
            (false, _) => Tensor::scalar(u64::MAX),
        });
    }
    let (lowest, highest) = match dtype {
        t if t.is_float() => (f64::NEG_INFINITY, f64::INFINITY),
        t if t.is_signed_int() => (-(2f64.powi(t.bits() as i32 - 1)), 2f64.powi(t.bits() as i32 - 1) - 1.0),
        t => (0.0, 2f64.powi(t.bits() as i32) - 1.0),
    };
    let value = match f {
        ReduceFn::Add => 0.0,
        ReduceFn::Mul => 1.0,
        ReduceFn::Max => lowest,
        ReduceFn::Min => highest,
    };
    b.splat(dtype, value, &[])
}

/// An index input, converted to i64.
pub fn indices(b: &mut Builder, node: &Node, i: usize) -> Result<Value> {
    let v = node.input(i)?;
    match b.dtype(v) {
        DType::I32 | DType::I64 => b.convert(v, DType::I64),
        other => Err(node.error("E0107", format!("indices of type {other} are not allowed"))),
    }
}

/// An input of one element as an i64 scalar.
pub fn scalar_index(b: &mut Builder, node: &Node, i: usize) -> Result<Value> {
    let v = indices(b, node, i)?;
    if !b.ty(v).elements().is_const(1) && b.rank(v) != 1 {
        return Err(node.error("E0201", format!("input {i} is one element, not {}", b.ty(v))));
    }
    one_element(b, v)
}

/// A scalar, or a vector of one element, as a scalar.
pub fn one_element(b: &mut Builder, v: Value) -> Result<Value> {
    if let [n] = b.dims(v).as_slice()
        && !n.is_const(1)
    {
        b.unify(&n.clone(), &Dim::constant(1))?;
    }
    b.reshape(v, &[])
}

/// index < 0 ? index + extent : index
pub fn from_end(b: &mut Builder, index: Value, extent: &Dim) -> Result<Value> {
    let dims = b.dims(index);
    let zero = b.splat(DType::I64, 0.0, &dims)?;
    let n = b.dims_scalar(extent.clone())?;
    let negative = b.map2(ScalarFn::Lt, index, zero)?;
    let shifted = b.map2(ScalarFn::Add, index, n)?;
    b.select(negative, shifted, index)
}
