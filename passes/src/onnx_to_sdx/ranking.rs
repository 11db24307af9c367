//! ArgMax(x)  =>  reduce "min"(select(x == max(x), iota, n)); TopK(x)  =>  host "Order", which sorts; in short rows
//! each element is ranked by comparing it with all others

use super::builder::Builder;
use super::coordinates::{axis_last, checked_index, gather_along, iota, is_short, last_to, scalar_index};
use super::node::Node;
use sardonyx_base::dim::product;
use sardonyx_base::host::ArrayOp;
use sardonyx_base::{DType, Dim, HostOp, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{TensorType, Value};

type Outputs = Result<Vec<Value>>;

fn check_numbers(b: &Builder, node: &Node, x: Value) -> Result<()> {
    match b.dtype(x).is_float() || b.dtype(x).is_int() {
        true => Ok(()),
        false => Err(node.error("E0107", format!("does not take {}", b.dtype(x)))),
    }
}

/// Returns where x is NaN; `None` for integers.
fn nans(b: &mut Builder, x: Value) -> Result<Option<Value>> {
    if b.dtype(x).is_float() { b.map1(ScalarFn::IsNan, x).map(Some) } else { Ok(None) }
}

/// Position of the extreme along an axis, which the result drops. NaN counts as the extreme, as it does in numpy.
fn position_of(b: &mut Builder, x: Value, axis: usize, f: ReduceFn, last: bool) -> Result<Value> {
    let dims = b.dims(x);
    let extreme = b.reduce(f, x, &[axis], true)?;
    let mut found = b.map2(ScalarFn::Eq, x, extreme)?;
    if let Some(nan) = nans(b, x)? {
        found = b.map2(ScalarFn::Or, found, nan)?;
    }
    let at = iota(b, axis, &dims)?;
    let none = if last { b.dims_scalar(Dim::constant(-1))? } else { b.dims_scalar(dims[axis].clone())? };
    let at = b.select(found, at, none)?;
    b.reduce(if last { ReduceFn::Max } else { ReduceFn::Min }, at, &[axis], false)
}

pub fn arg_extreme(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    check_numbers(b, node, x)?;
    let axis = node.axis(node.int_or("axis", 0)?, b.rank(x))?;
    let f = if node.op_type == "ArgMax" { ReduceFn::Max } else { ReduceFn::Min };
    let mut at = position_of(b, x, axis, f, node.int_or("select_last_index", 0)? != 0)?;
    let extent = b.dims(x)[axis].clone();
    if extent.lower_bound(&|s| b.graph.symbol_lo(s)).is_none_or(|n| n < 1) {
        // An empty axis has no extreme: the position that is found is then out of range.
        at = checked_index(b, at, &extent)?;
    }
    if node.int_or("keepdims", 1)? == 0 {
        return Ok(vec![at]);
    }
    let mut dims = b.dims(x);
    dims[axis] = Dim::constant(1);
    Ok(vec![b.reshape(at, &dims)?])
}

/// 1 at the first largest element, else 0: along one axis since opset 13, before over all axes from `axis` on.
pub fn hardmax(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    check_numbers(b, node, x)?;
    let dims = b.dims(x);
    let axis = node.axis(node.int_or("axis", if node.opset < 13 { 1 } else { -1 })?, dims.len())?;
    let (rows, axis) = match node.opset < 13 {
        true => (b.reshape(x, &[product(&dims[..axis]), product(&dims[axis..])])?, 1),
        false => (x, axis),
    };
    let (row_dims, mut kept) = (b.dims(rows), b.dims(rows));
    kept[axis] = Dim::constant(1);
    let first = position_of(b, rows, axis, ReduceFn::Max, false)?;
    let first = b.reshape(first, &kept)?;
    let at = iota(b, axis, &row_dims)?;
    let hot = b.map2(ScalarFn::Eq, at, first)?;
    let hot = b.convert(hot, b.dtype(x))?;
    Ok(vec![b.reshape(hot, &dims)?])
}

/// TopK: `k` is an attribute before opset 10, and an input since.
pub fn top_k(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    check_numbers(b, node, x)?;
    let axis = node.axis(node.int_or("axis", -1)?, b.rank(x))?;
    let k = match node.opset < 10 {
        true => Dim::constant(node.require("k", node.int("k")?)?),
        false => {
            let k = scalar_index(b, node, 1)?;
            let k = b.read_dims(k)?;
            k.into_iter().next().ok_or_else(|| node.error("E0201", "`K` has no element"))?
        }
    };
    let extent = b.dims(x)[axis].clone();
    b.require_at_most(&k, &extent)?;
    let rank = b.rank(x);
    let rows = b.transpose(x, axis_last(rank, axis))?;
    let largest = node.int_or("largest", 1)? != 0;
    let chosen = if is_short(&extent) { first_by_rank(b, rows, k, largest)? } else { first(b, rows, k, largest)? };
    let values = gather_along(b, rows, rank - 1, chosen)?;
    let back = last_to(rank, axis);
    Ok(vec![b.transpose(values, back.clone())?, b.transpose(chosen, back)?])
}

/// Returns, as [lead, k], the positions of the first k elements of each row in sorted order.
fn first(b: &mut Builder, rows: Value, k: Dim, descending: bool) -> Result<Value> {
    let mut dims = b.dims(rows);
    dims.pop();
    dims.push(k.clone());
    let count = b.dims_scalar(k)?;
    let order = HostOp::Array(ArrayOp::Order { descending });
    Ok(b.host(order, &[rows, count], &[TensorType::new(DType::I64, dims)], &[])?.remove(0))
}

/// As `first`, for short rows: elements are ranked by comparison.
fn first_by_rank(b: &mut Builder, rows: Value, k: Dim, largest: bool) -> Result<Value> {
    let rank = b.rank(rows);
    let order = ranks(b, rows, largest)?;
    // In [lead, k, n], the element of each rank is found as a sum over the one position that has this rank.
    let mut dims = b.dims(rows);
    dims.insert(rank - 1, k);
    let at: Vec<usize> = (0..=rank).filter(|&i| i != rank - 1).collect();
    let order = b.broadcast_at(order, at, &dims)?;
    let (wanted, position) = (iota(b, rank - 1, &dims)?, iota(b, rank, &dims)?);
    let here = b.map2(ScalarFn::Eq, order, wanted)?;
    let zero = b.dims_scalar(Dim::constant(0))?;
    let chosen = b.select(here, position, zero)?;
    b.reduce(ReduceFn::Add, chosen, &[rank], false)
}

/// Returns, for each element, the number of elements of its row that come before it: larger ones (or smaller), and
/// equal ones further left. NaN is larger than any number. The cost is quadratic in the row's length.
fn ranks(b: &mut Builder, rows: Value, largest: bool) -> Result<Value> {
    let rank = b.rank(rows);
    let mut pairs = b.dims(rows);
    pairs.push(pairs[rank - 1].clone());
    let own_at: Vec<usize> = (0..rank).collect();
    let other_at: Vec<usize> = (0..rank - 1).chain([rank]).collect();
    let spread = |b: &mut Builder, v: Value, at: &[usize]| b.broadcast_at(v, at.to_vec(), &pairs);
    let (own, other) = (spread(b, rows, &own_at)?, spread(b, rows, &other_at)?);
    let (small, large) = if largest { (own, other) } else { (other, own) };
    let mut before = b.map2(ScalarFn::Lt, small, large)?;
    let mut equal = b.map2(ScalarFn::Eq, own, other)?;
    if let Some(nan) = nans(b, rows)? {
        let (own, other) = (spread(b, nan, &own_at)?, spread(b, nan, &other_at)?);
        let (small, large) = if largest { (own, other) } else { (other, own) };
        let number = b.map1(ScalarFn::Not, small)?;
        let above = b.map2(ScalarFn::And, number, large)?;
        before = b.map2(ScalarFn::Or, before, above)?;
        let both = b.map2(ScalarFn::And, own, other)?;
        equal = b.map2(ScalarFn::Or, equal, both)?;
    }
    let (i, j) = (iota(b, rank - 1, &pairs)?, iota(b, rank, &pairs)?);
    let left = b.map2(ScalarFn::Lt, j, i)?;
    let tie = b.map2(ScalarFn::And, equal, left)?;
    let before = b.map2(ScalarFn::Or, before, tie)?;
    let count = b.convert(before, DType::I64)?;
    b.reduce(ReduceFn::Add, count, &[rank], false)
}
