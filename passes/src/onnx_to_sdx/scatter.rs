//! ScatterElements(x, i, u)  =>  select(i == iota, u, x), as a gather: every element looks for the updates it gets
//!
//! No two threads write to one position, and the result does not depend on the order of execution. The cost is a
//! comparison of every position along the axis with every index. Where neither positions nor indices are few, the host
//! applies one update after the other in linear time. A call with an index outside the data is refused.

use super::builder::Builder;
use super::coordinates::{
    axis_last, checked_index, flat, from_end, gather_along, indices, inside, iota, is_short, last_to, neutral,
    positions_except,
};
use super::indexing::wrapped;
use super::node::Node;
use sardonyx_base::dim::product;
use sardonyx_base::host::ArrayOp;
use sardonyx_base::reduction::Reduction;
use sardonyx_base::{DType, Dim, HostOp, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};

type Outputs = Result<Vec<Value>>;

/// GatherElements. Before opset 13 it took no negative indices; counting them from the end changes no valid model.
pub fn gather_elements(b: &mut Builder, node: &Node) -> Outputs {
    let (data, index) = (node.input(0)?, indices(b, node, 1)?);
    let axis = node.axis(node.int_or("axis", 0)?, b.rank(data))?;
    within(b, node, data, index, axis)?;
    let extent = b.dims(data)[axis].clone();
    let mut valid = None;
    let mut at = wrapped(b, index, &extent, &mut valid)?;
    if let Some(valid) = valid {
        // The gather refuses an index that is out of range.
        let outside = b.splat(DType::I64, -1.0, &b.dims(at))?;
        let dims = b.dims(at);
        let places = (0..dims.len()).map(|i| if i == axis { Ok(at) } else { iota(b, i, &dims) });
        let places = places.collect::<Result<Vec<_>>>()?;
        let extents = b.dims(data);
        at = flat(b, &places, &extents)?;
        at = b.select(valid, at, outside)?;
        return Ok(vec![super::coordinates::gather_flat(b, data, at)?]);
    }
    Ok(vec![gather_along(b, data, axis, at)?])
}

/// Checks that indices have the data's rank, and do not exceed its extents along dimensions other than `axis`.
fn within(b: &mut Builder, node: &Node, data: Value, index: Value, axis: usize) -> Result<()> {
    if b.rank(data) != b.rank(index) {
        return Err(node.error("E0201", format!("{} does not index {}", b.ty(index), b.ty(data))));
    }
    for i in (0..b.rank(data)).filter(|&i| i != axis) {
        let (part, whole) = (b.dims(index)[i].clone(), b.dims(data)[i].clone());
        b.require_at_most(&part, &whole)?;
    }
    Ok(())
}

/// Returns how updates are combined with the data; `None` if they replace the data.
fn reduction(node: &Node) -> Result<Option<ReduceFn>> {
    Ok(match node.str_or("reduction", "none")?.as_str() {
        "none" => None,
        "add" => Some(ReduceFn::Add),
        "mul" => Some(ReduceFn::Mul),
        "max" => Some(ReduceFn::Max),
        "min" => Some(ReduceFn::Min),
        other => return Err(node.error("E0106", format!("the reduction `{other}` is not known"))),
    })
}

fn check_types(b: &Builder, node: &Node, data: Value, updates: Value, f: Option<ReduceFn>) -> Result<()> {
    let types = [b.dtype(data), b.dtype(updates)];
    let known = match f {
        Some(f) => f.scalar().result(&types),
        None => ScalarFn::Eq.result(&types),
    };
    known.map(|_| ()).map_err(|reason| node.error("E0107", reason))
}

/// Returns whether the host applies m updates of n positions one after the other.
fn in_turn(n: &Dim, m: &Dim, dtype: DType, f: Option<ReduceFn>) -> bool {
    let possible = if f.is_some() { dtype.is_float() || dtype.is_int() } else { !dtype.is_opaque() };
    possible && !is_short(n) && !is_short(m)
}

/// data[l, r], rows[m], updates[m, r] => data after all updates, which the host applies one after the other. Floats
/// narrower than f32 are added and multiplied in f32.
pub fn scatter_in_turn(
    b: &mut Builder,
    data: Value,
    rows: Value,
    updates: Value,
    f: Option<ReduceFn>,
) -> Result<Value> {
    let dtype = b.dtype(data);
    let rounds = matches!(f, Some(ReduceFn::Add | ReduceFn::Mul)) && dtype.is_float() && dtype.bits() < 32;
    let wide = if rounds { DType::F32 } else { dtype };
    let (data, updates) = (b.convert(data, wide)?, b.convert(updates, wide)?);
    let scatter = ArrayOp::Scatter { f: f.and_then(|f| Reduction::from_name(f.name())) };
    let ty = b.ty(data).clone();
    let y = b.host(HostOp::Array(scatter), &[data, rows, updates], &[ty], &[])?.remove(0);
    b.convert(y, dtype)
}

/// Reshapes a tensor to rows of one element: [n, 1].
pub fn column(b: &mut Builder, x: Value) -> Result<Value> {
    let n = b.ty(x).elements();
    b.reshape(x, &[n, Dim::constant(1)])
}

/// Applies updates along an axis one after the other; indices count from the start.
fn elements_in_turn(
    b: &mut Builder,
    [data, index, updates]: [Value; 3],
    axis: usize,
    f: Option<ReduceFn>,
) -> Result<Value> {
    let (extents, dims) = (b.dims(data), b.dims(index));
    let places = (0..dims.len()).map(|i| if i == axis { Ok(index) } else { iota(b, i, &dims) });
    let places = places.collect::<Result<Vec<_>>>()?;
    let at = flat(b, &places, &extents)?;
    let at = b.reshape(at, &[product(&dims)])?;
    let (table, updates) = (column(b, data)?, column(b, updates)?);
    let y = scatter_in_turn(b, table, at, updates, f)?;
    b.reshape(y, &extents)
}

/// data[lead, n], index[lead, m], updates[lead, m] => data with the updates applied
fn scatter_rows(b: &mut Builder, data: Value, index: Value, updates: Value, f: Option<ReduceFn>) -> Result<Value> {
    let last = b.rank(data) - 1;
    let mut pairs = b.dims(data);
    pairs.push(b.dims(index)[last].clone());
    let spread = |b: &mut Builder, v: Value| b.broadcast_at(v, positions_except(last + 1, last), &pairs);
    let (wanted, place) = (spread(b, index)?, iota(b, last, &pairs)?);
    let hit = b.map2(ScalarFn::Eq, wanted, place)?;
    match f {
        Some(f) => {
            let nothing = neutral(b, f, b.dtype(data))?;
            let updates = spread(b, updates)?;
            let updates = b.select(hit, updates, nothing)?;
            let combined = b.reduce(f, updates, &[last + 1], false)?;
            b.map2(f.scalar(), data, combined)
        }
        None => {
            let (touched, from) = last_hit(b, hit, last + 1)?;
            let updates = never_empty(b, updates, last)?;
            let value = gather_along(b, updates, last, from)?;
            b.select(touched, value, data)
        }
    }
}

/// Returns, for each position, whether an update hits it, and the index of the last update that does (0 if none).
fn last_hit(b: &mut Builder, hit: Value, axis: usize) -> Result<(Value, Value)> {
    let dims = b.dims(hit);
    let number = iota(b, axis, &dims)?;
    let none = b.dims_scalar(Dim::constant(-1))?;
    let number = b.select(hit, number, none)?;
    let last = b.reduce(ReduceFn::Max, number, &[axis], false)?;
    let kept = b.dims(last);
    let zero = b.splat(DType::I64, 0.0, &kept)?;
    Ok((b.map2(ScalarFn::Le, zero, last)?, b.map2(ScalarFn::Max, last, zero)?))
}

/// Appends a zero where a call may have no updates: a gather refuses to read from an empty tensor, even if a select
/// then discards the element.
fn never_empty(b: &mut Builder, updates: Value, axis: usize) -> Result<Value> {
    let mut ty = b.ty(updates).clone();
    if ty.dims[axis].lower_bound(&|s| b.graph.symbol_lo(s)).is_some_and(|n| n > 0) {
        return Ok(updates);
    }
    ty.dims[axis] = ty.dims[axis].clone() + Dim::constant(1);
    let zero = b.splat(ty.dtype, 0.0, &[])?;
    let low = vec![Dim::constant(0); ty.rank()];
    b.add_typed(Op::Pad { low }, &[updates, zero], Some(ty))
}

/// Scatter (until opset 10) and ScatterElements.
pub fn scatter_elements(b: &mut Builder, node: &Node) -> Outputs {
    let (data, index, updates) = (node.input(0)?, indices(b, node, 1)?, node.input(2)?);
    let f = reduction(node)?;
    check_types(b, node, data, updates, f)?;
    let rank = b.rank(data);
    let axis = node.axis(node.int_or("axis", 0)?, rank)?;
    within(b, node, data, index, axis)?;
    if b.rank(updates) != rank {
        return Err(node.error("E0201", format!("updates {} for indices {}", b.ty(updates), b.ty(index))));
    }
    for i in 0..rank {
        let (l, r) = (b.dims(index)[i].clone(), b.dims(updates)[i].clone());
        b.unify(&l, &r)?;
    }
    if b.dims(index)[axis].is_const(0) {
        return Ok(vec![data]);
    }
    let extent = b.dims(data)[axis].clone();
    let index = from_end(b, index, &extent)?;
    let index = checked_index(b, index, &extent)?;
    if in_turn(&extent, &b.dims(index)[axis], b.dtype(data), f) {
        return Ok(vec![elements_in_turn(b, [data, index, updates], axis, f)?]);
    }
    let to_rows = axis_last(rank, axis);
    let whole = b.transpose(data, to_rows.clone())?;
    let (index, updates) = (b.transpose(index, to_rows.clone())?, b.transpose(updates, to_rows)?);
    let mut part = whole;
    for i in 0..rank - 1 {
        let count = b.dims(index)[i].clone();
        part = b.slice_axis(part, i, Dim::constant(0), 1, count)?;
    }
    let mut y = scatter_rows(b, part, index, updates, f)?;
    y = widen(b, y, whole)?;
    Ok(vec![b.transpose(y, last_to(rank, axis))?])
}

/// Replaces the leading part of `whole` by `part`.
fn widen(b: &mut Builder, part: Value, whole: Value) -> Result<Value> {
    let (small, dims) = (b.dims(part), b.dims(whole));
    let mut inside: Option<Value> = None;
    let mut wide = part;
    for i in (0..dims.len()).filter(|&i| small[i] != dims[i]) {
        let at = iota(b, i, &dims)?;
        let n = b.dims_scalar(small[i].clone())?;
        let here = b.map2(ScalarFn::Lt, at, n)?;
        inside = Some(match inside {
            None => here,
            Some(so_far) => b.map2(ScalarFn::And, so_far, here)?,
        });
    }
    let Some(inside) = inside else { return Ok(part) };
    let zero = b.splat(b.dtype(part), 0.0, &[])?;
    let ty = b.ty(whole).clone();
    let low = vec![Dim::constant(0); dims.len()];
    wide = b.add_typed(Op::Pad { low }, &[wide, zero], Some(ty))?;
    b.select(inside, wide, whole)
}

/// ScatterND: tuples of indices into the leading dimensions are merged into one index.
pub fn scatter_nd(b: &mut Builder, node: &Node) -> Outputs {
    let (data, index, updates) = (node.input(0)?, indices(b, node, 1)?, node.input(2)?);
    let f = reduction(node)?;
    check_types(b, node, data, updates, f)?;
    let Some(n_rows) = b.rank(index).checked_sub(1) else { return Err(node.error("E0201", "its index is a scalar")) };
    // The ranks determine the length of a tuple.
    let tuple = (n_rows + b.rank(data)).checked_sub(b.rank(updates)).filter(|n| (1..=b.rank(data)).contains(n));
    let tuple = tuple.ok_or_else(|| {
        let (i, u) = (b.ty(index), b.ty(updates));
        node.error("E0201", format!("indices {i} do not place updates {u} in {}", b.ty(data)))
    })?;
    let length = b.dims(index)[n_rows].clone();
    b.unify(&length, &Dim::constant(tuple as i64))?;
    for i in 0..b.rank(updates) {
        let other = if i < n_rows { b.dims(index)[i].clone() } else { b.dims(data)[i - n_rows + tuple].clone() };
        let own = b.dims(updates)[i].clone();
        b.unify(&own, &other)?;
    }
    let (dims, rows) = (b.dims(data), b.dims(index)[..n_rows].to_vec());
    if product(&rows).is_const(0) {
        return Ok(vec![data]);
    }
    let mut places = vec![];
    for (i, extent) in dims[..tuple].iter().enumerate() {
        let one = b.slice_axis(index, n_rows, Dim::constant(i as i64), 1, Dim::constant(1))?;
        let one = b.reshape(one, &[product(&rows)])?;
        let one = from_end(b, one, extent)?;
        places.push(checked_index(b, one, extent)?);
    }
    let at = flat(b, &places, &dims[..tuple])?;
    let (lead, rest, count) = (product(&dims[..tuple]), product(&dims[tuple..]), product(&rows));
    let table = b.reshape(data, &[lead.clone(), rest.clone()])?;
    let updates = b.reshape(updates, &[count.clone(), rest.clone()])?;
    let y = match f {
        _ if in_turn(&lead, &count, b.dtype(data), f) => scatter_in_turn(b, table, at, updates, f)?,
        Some(f) => combine_rows(b, table, at, updates, f)?,
        None => {
            let pairs = [lead, count];
            let (wanted, place) = (b.broadcast(at, &pairs)?, iota(b, 0, &pairs)?);
            let hit = b.map2(ScalarFn::Eq, wanted, place)?;
            let (touched, from) = last_hit(b, hit, 1)?;
            let updates = never_empty(b, updates, 0)?;
            let value = b.add(Op::Gather { axis: 0 }, &[updates, from])?;
            let touched = b.broadcast_at(touched, vec![0], &b.dims(table))?;
            b.select(touched, value, table)?
        }
    };
    Ok(vec![b.reshape(y, &dims)?])
}

/// table[l, r], at[m], updates[m, r] => table, each row combined by f with its updates, in an iteration space [l, m, r]
fn combine_rows(b: &mut Builder, table: Value, at: Value, updates: Value, f: ReduceFn) -> Result<Value> {
    let (lead, rest) = (b.dims(table)[0].clone(), b.dims(table)[1].clone());
    let all = [lead, b.dims(at)[0].clone(), rest];
    let wanted = b.broadcast_at(at, vec![1], &all)?;
    let place = iota(b, 0, &all)?;
    let hit = b.map2(ScalarFn::Eq, wanted, place)?;
    let nothing = neutral(b, f, b.dtype(table))?;
    let updates = b.broadcast_at(updates, vec![1, 2], &all)?;
    let updates = b.select(hit, updates, nothing)?;
    let combined = b.reduce(f, updates, &[1], false)?;
    b.map2(f.scalar(), table, combined)
}

/// Replaces a window of the cache in each batch element. Each position of the cache tests whether it is inside the
/// window, so the cost is linear in the size of the cache. In the linear mode, the whole window must be inside the
/// cache; in the circular mode, the window begins anywhere and wraps around.
pub fn tensor_scatter(b: &mut Builder, node: &Node) -> Outputs {
    let (cache, update) = (node.input(0)?, node.input(1)?);
    check_types(b, node, cache, update, None)?;
    let rank = b.rank(cache);
    let axis = node.axis(node.int_or("axis", -2)?, rank)?;
    if b.rank(update) != rank || axis == 0 {
        return Err(node.error("E0201", format!("{} does not update {} along {axis}", b.ty(update), b.ty(cache))));
    }
    for i in (0..rank).filter(|&i| i != axis) {
        let (l, r) = (b.dims(cache)[i].clone(), b.dims(update)[i].clone());
        b.unify(&l, &r)?;
    }
    let (dims, count) = (b.dims(cache), b.dims(update)[axis].clone());
    if count.is_const(0) {
        return Ok(vec![cache]);
    }
    let circular = match node.str_or("mode", "linear")?.as_str() {
        "linear" => false,
        "circular" => true,
        other => return Err(node.error("E0106", format!("the mode `{other}` is not known"))),
    };
    let mut at = iota(b, axis, &dims)?;
    let extent = b.dims_scalar(dims[axis].clone())?;
    if node.optional(2).is_some() {
        let start = indices(b, node, 2)?;
        let (l, r) = (b.dims(start).first().cloned().unwrap_or(Dim::constant(1)), dims[0].clone());
        b.unify(&l, &r)?;
        let (dims, whole) = (b.dims(cache), b.dims(cache)[axis].clone());
        let start = if circular {
            b.map2(ScalarFn::Rem, start, extent)?
        } else {
            let n_starts = whole - b.dims(update)[axis].clone() + Dim::constant(1);
            checked_index(b, start, &n_starts)?
        };
        let start = b.broadcast_at(start, vec![0], &dims)?;
        at = b.map2(ScalarFn::Sub, at, start)?;
    }
    if circular {
        at = b.map2(ScalarFn::Rem, at, extent)?;
    }
    let zero = b.splat(DType::I64, 0.0, &b.dims(at))?;
    let inside = inside(b, at, &b.dims(update)[axis].clone())?;
    let at = b.select(inside, at, zero)?;
    let update = never_empty(b, update, axis)?;
    let value = gather_along(b, update, axis, at)?;
    Ok(vec![b.select(inside, value, cache)?])
}
