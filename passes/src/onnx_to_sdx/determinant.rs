//! Det(x)  =>  one step of elimination per row, with the largest pivot, and the product of the pivots

use super::builder::Builder;
use super::coordinates::iota;
use super::node::Node;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::Value;

/// Maximum number of rows, each of which is a separate step of the program.
const ROWS_MAX: i64 = 128;

/// Computes the determinant in f64. If no row has a pivot in some column, that pivot is 0: nothing is eliminated with
/// it, and the product is correctly 0.
pub fn determinant(b: &mut Builder, node: &Node) -> Result<Vec<Value>> {
    let x = node.input(0)?;
    let (dims, dtype) = (b.dims(x), b.dtype(x));
    if !dtype.is_float() || dims.len() < 2 {
        return Err(node.error("E0201", format!("takes matrices of floats, not {}", b.ty(x))));
    }
    b.unify(&dims[dims.len() - 2].clone(), &dims[dims.len() - 1].clone())?;
    let dims = b.dims(x);
    let lead = dims.len() - 2;
    let n = dims[lead].as_const().filter(|n| *n <= ROWS_MAX).ok_or_else(|| {
        let reason = format!("matrices of {} rows: a constant up to {ROWS_MAX} is supported", dims[lead]);
        node.error("E0203", reason).help("give the dimension a value with --dim NAME=N")
    })?;
    let mut rest = b.convert(x, DType::F64)?;
    let mut product = b.splat(DType::F64, 1.0, &dims[..lead])?;
    for size in (1..=n).rev() {
        let step = eliminate(b, rest, lead, size)?;
        product = b.map2(ScalarFn::Mul, product, step.factor)?;
        rest = step.rest;
    }
    Ok(vec![b.convert(product, dtype)?])
}

struct Step {
    /// The pivot, negated if rows were swapped.
    factor: Value,
    /// The remaining rows and columns after elimination: [.., size - 1, size - 1].
    rest: Value,
}

fn eliminate(b: &mut Builder, m: Value, lead: usize, size: i64) -> Result<Step> {
    let (row, column) = (lead, lead + 1);
    let (zero, one) = (Dim::constant(0), Dim::constant(1));
    let first = b.slice_axis(m, column, zero.clone(), 1, one.clone())?;
    let at = pivot_row(b, first, row, size)?;
    let row_dims = b.dims(first);
    let place = iota(b, row, &row_dims)?;
    let chosen = b.map2(ScalarFn::Eq, place, at)?;
    // Takes out the row of the pivot, and puts the first row in its place.
    let nothing = b.splat(DType::F64, 0.0, &[])?;
    let pivot = b.select(chosen, m, nothing)?;
    let pivot = b.reduce(ReduceFn::Add, pivot, &[row], true)?;
    let top = b.slice_axis(m, row, zero.clone(), 1, one.clone())?;
    let swapped = b.select(chosen, top, m)?;
    let head = b.slice_axis(pivot, column, zero.clone(), 1, one.clone())?;
    let origin = b.dims_scalar(zero)?;
    let stays = b.map2(ScalarFn::Eq, at, origin)?;
    let negated = b.map1(ScalarFn::Neg, head)?;
    let factor = b.select(stays, head, negated)?;
    let factor = b.reshape(factor, &row_dims[..lead])?;
    if size == 1 {
        return Ok(Step { factor, rest: m });
    }
    let others = Dim::constant(size - 1);
    let lower = b.slice_axis(swapped, row, one.clone(), 1, others.clone())?;
    let left = b.slice_axis(lower, column, Dim::constant(0), 1, one.clone())?;
    let right = b.slice_axis(lower, column, one.clone(), 1, others.clone())?;
    let across = b.slice_axis(pivot, column, one, 1, others)?;
    let ratio = b.map2(ScalarFn::Div, left, head)?;
    let empty = b.map2(ScalarFn::Eq, head, nothing)?;
    let ratio = b.select(empty, nothing, ratio)?;
    let removed = b.map2(ScalarFn::Mul, ratio, across)?;
    Ok(Step { factor, rest: b.map2(ScalarFn::Sub, right, removed)? })
}

/// Returns, as [.., 1, 1], the index of the first row whose element in the column `first` [.., size, 1] is NaN, which
/// makes the result NaN, or has the largest magnitude.
fn pivot_row(b: &mut Builder, first: Value, row: usize, size: i64) -> Result<Value> {
    let sizes = b.map1(ScalarFn::Abs, first)?;
    let largest = b.reduce(ReduceFn::Max, sizes, &[row], true)?;
    let found = b.map2(ScalarFn::Eq, sizes, largest)?;
    let nan = b.map1(ScalarFn::IsNan, first)?;
    let found = b.map2(ScalarFn::Or, found, nan)?;
    let dims = b.dims(first);
    let place = iota(b, row, &dims)?;
    let none = b.dims_scalar(Dim::constant(size))?;
    let place = b.select(found, place, none)?;
    b.reduce(ReduceFn::Min, place, &[row], true)
}
