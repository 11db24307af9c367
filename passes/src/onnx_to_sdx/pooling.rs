//! MaxPool(x)  =>  reduce "max" over the windows of pad(x)
//!
//! x[n, c, h, w] → windows [n, c, p, q, i, j] → y[n, c, p, q], with (p, q) the position of a window and (i, j) an
//! offset in it

use super::builder::Builder;
use super::coordinates::{checked_index, is_short};
use super::node::Node;
use super::reduction::{computed_wide, divide_by};
use super::scatter::{column, scatter_in_turn};
use super::windows::{Windows, kernel_shape, pads, spatial, steps, with_channels_last};
use sardonyx_base::dim::product;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, TensorType, Value};

type Outputs = Result<Vec<Value>>;

fn windows(b: &Builder, node: &Node, x: Value) -> Result<Windows> {
    let sizes = node.require("kernel_shape", kernel_shape(node)?)?;
    Windows::from_node(node, &spatial(b, node, x)?, sizes.into_iter().map(Dim::constant).collect())
}

/// Reduces the last axes, which are offsets in windows.
fn over_offsets(b: &mut Builder, f: ReduceFn, x: Value, offsets: usize) -> Result<Value> {
    let rank = b.rank(x);
    b.reduce(f, x, &(rank - offsets..rank).collect::<Vec<_>>(), false)
}

fn floats_only(b: &Builder, node: &Node, x: Value) -> Result<()> {
    match b.dtype(x).is_float() {
        true => Ok(()),
        false => Err(node.error("E0107", format!("does not take {}", b.dtype(x)))),
    }
}

/// The lowest value of a type.
pub fn lowest(dtype: DType) -> f64 {
    let signed = [DType::I8, DType::I16, DType::I32, DType::I64];
    match signed.contains(&dtype) {
        true => -2f64.powi(dtype.bits() as i32 - 1),
        false if dtype.is_float() => f64::NEG_INFINITY,
        false => 0.0,
    }
}

pub fn max_pool(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    max_pool_of(b, node, x)
}

/// com.microsoft NhwcMaxPool: channels are the last dimension.
pub fn nhwc_max_pool(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    Ok(vec![with_channels_last(b, node, x, |b, x| Ok(max_pool_of(b, node, x)?[0]))?])
}

fn max_pool_of(b: &mut Builder, node: &Node, x: Value) -> Outputs {
    ScalarFn::Max.result(&[b.dtype(x); 2]).map_err(|reason| node.error("E0107", reason))?;
    let w = windows(b, node, x)?;
    let least = b.splat(b.dtype(x), lowest(b.dtype(x)), &[])?;
    let padded = w.padded(b, x, least)?;
    let view = w.view(b, padded)?;
    let y = over_offsets(b, ReduceFn::Max, view, w.rank())?;
    if node.n_outputs < 2 {
        return Ok(vec![y]);
    }
    let indices = max_indices(b, node, x, &w, (view, y))?;
    Ok(vec![y, indices])
}

/// An index that no element has.
const NOWHERE: f64 = (1u64 << 52) as f64;

/// Returns, for each window, the index in the whole tensor of its first element that no other element of the window
/// exceeds.
fn max_indices(b: &mut Builder, node: &Node, x: Value, w: &Windows, (view, y): (Value, Value)) -> Result<Value> {
    let (rank, extents) = (w.rank(), spatial(b, node, x)?);
    let within = row_major(b, &extents)?;
    let nowhere = b.splat(DType::I64, NOWHERE, &[])?;
    let within = w.padded(b, within, nowhere)?;
    let within = w.view(b, within)?;
    let shown = b.dims(view);
    let within = b.broadcast(within, &shown)?;
    let largest = b.broadcast_at(y, (0..2 + rank).collect(), &shown)?;
    let exceeded = b.map2(ScalarFn::Lt, view, largest)?;
    let nowhere = b.splat(DType::I64, NOWHERE, &shown)?;
    let candidates = b.select(exceeded, nowhere, within)?;
    let first = over_offsets(b, ReduceFn::Min, candidates, rank)?;
    let first = if node.int_or("storage_order", 0)? == 0 { first } else { column_major(b, first, &extents)? };
    let planes = plane_starts(b, &b.dims(y).clone(), &extents)?;
    b.map2(ScalarFn::Add, first, planes)
}

/// The tensor [h, w] whose element (i, j) is w·i + j.
fn row_major(b: &mut Builder, extents: &[Dim]) -> Result<Value> {
    let mut sum = None;
    for axis in 0..extents.len() {
        let at = counted(b, axis, extents, product(&extents[axis + 1..]))?;
        sum = Some(match sum {
            None => at,
            Some(sum) => b.map2(ScalarFn::Add, sum, at)?,
        });
    }
    sum.ok_or_else(|| b.error("E0201", "there are no spatial axes"))
}

/// step · index[axis]
pub fn counted(b: &mut Builder, axis: usize, dims: &[Dim], step: Dim) -> Result<Value> {
    let at = b.add_typed(Op::Iota { axis }, &[], Some(TensorType::new(DType::I64, dims)))?;
    if step.is_const(1) {
        return Ok(at);
    }
    let step = b.dims_scalar(step)?;
    b.map2(ScalarFn::Mul, at, step)
}

/// For each batch element and channel, the index at which its plane begins; repeated over `dims`.
fn plane_starts(b: &mut Builder, dims: &[Dim], extents: &[Dim]) -> Result<Value> {
    let plane = product(extents);
    let rows = counted(b, 0, dims, plane.clone() * dims[1].clone())?;
    let channels = counted(b, 1, dims, plane)?;
    b.map2(ScalarFn::Add, rows, channels)
}

/// i·w + j  =>  j·h + i
fn column_major(b: &mut Builder, index: Value, extents: &[Dim]) -> Result<Value> {
    let (mut rest, mut sum) = (index, None);
    for axis in (0..extents.len()).rev() {
        let n = b.dims_scalar(extents[axis].clone())?;
        let digit = b.map2(ScalarFn::Rem, rest, n)?;
        rest = b.map2(ScalarFn::Div, rest, n)?;
        let step = b.dims_scalar(product(&extents[..axis]))?;
        let part = b.map2(ScalarFn::Mul, digit, step)?;
        sum = Some(match sum {
            None => part,
            Some(sum) => b.map2(ScalarFn::Add, sum, part)?,
        });
    }
    sum.ok_or_else(|| b.error("E0201", "there are no spatial axes"))
}

pub fn average_pool(b: &mut Builder, node: &Node) -> Outputs {
    Ok(vec![average_pool_of(b, node, node.input(0)?)?])
}

pub fn average_pool_of(b: &mut Builder, node: &Node, x: Value) -> Result<Value> {
    floats_only(b, node, x)?;
    computed_wide(b, x, |b, x| averages(b, node, x))
}

fn averages(b: &mut Builder, node: &Node, x: Value) -> Result<Value> {
    let w = windows(b, node, x)?;
    let zero = b.splat(b.dtype(x), 0.0, &[])?;
    let padded = w.padded(b, x, zero)?;
    let view = w.view(b, padded)?;
    let sum = over_offsets(b, ReduceFn::Add, view, w.rank())?;
    let includes_pads = node.int_or("count_include_pad", 0)? != 0;
    let none = |list: &[Dim]| list.iter().all(|n| n.is_const(0));
    let all_count = none(&w.beyond) && (includes_pads || none(&w.low) && none(&w.high));
    if all_count {
        return divide_by(b, sum, product(&w.sizes));
    }
    // Number of elements of each window that count; those beyond the padding never do.
    let mut extents = spatial(b, node, x)?;
    let mut counted = Windows { ..w };
    if includes_pads {
        for (n, (low, high)) in extents.iter_mut().zip(counted.low.iter_mut().zip(&mut counted.high)) {
            let none = Dim::constant(0);
            *n = n.clone() + std::mem::replace(low, none.clone()) + std::mem::replace(high, none);
        }
    }
    let ones = b.splat(b.dtype(x), 1.0, &extents)?;
    let ones = counted.padded(b, ones, zero)?;
    let ones = counted.view(b, ones)?;
    let count = over_offsets(b, ReduceFn::Add, ones, counted.rank())?;
    b.map2(ScalarFn::Div, sum, count)
}

/// (Σ |x|^p)^(1/p)
pub fn lp_pool(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    floats_only(b, node, x)?;
    let w = windows(b, node, x)?;
    let norms = |b: &mut Builder, x: Value| {
        let zero = b.splat(b.dtype(x), 0.0, &[])?;
        let powers = lp_powers(b, node, x)?;
        let padded = w.padded(b, powers, zero)?;
        let view = w.view(b, padded)?;
        let sum = over_offsets(b, ReduceFn::Add, view, w.rank())?;
        lp_root(b, node, sum)
    };
    Ok(vec![computed_wide(b, x, norms)?])
}

fn lp_powers(b: &mut Builder, node: &Node, x: Value) -> Result<Value> {
    let size = b.map1(ScalarFn::Abs, x)?;
    match node.int_or("p", 2)? {
        1 => Ok(size),
        2 => b.map2(ScalarFn::Mul, x, x),
        p => b.map_const(ScalarFn::Pow, size, p as f64),
    }
}

fn lp_root(b: &mut Builder, node: &Node, sum: Value) -> Result<Value> {
    match node.int_or("p", 2)? {
        1 => Ok(sum),
        2 => b.map1(ScalarFn::Sqrt, sum),
        p => b.map_const(ScalarFn::Pow, sum, 1.0 / p as f64),
    }
}

/// All axes after the channels.
fn planes(b: &Builder, node: &Node, x: Value) -> Result<Vec<usize>> {
    match b.rank(x) {
        0..2 => Err(node.error("E0201", format!("takes batch, channels and spatial axes, not {}", b.ty(x)))),
        rank => Ok((2..rank).collect()),
    }
}

pub fn global_average_pool(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    floats_only(b, node, x)?;
    let axes = planes(b, node, x)?;
    let y = computed_wide(b, x, |b, x| {
        let count = product(axes.iter().map(|&i| &b.ty(x).dims[i]));
        let sum = b.reduce(ReduceFn::Add, x, &axes, true)?;
        divide_by(b, sum, count)
    })?;
    Ok(vec![y])
}

pub fn global_max_pool(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let axes = planes(b, node, x)?;
    Ok(vec![b.reduce(ReduceFn::Max, x, &axes, true)?])
}

pub fn global_lp_pool(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    floats_only(b, node, x)?;
    let axes = planes(b, node, x)?;
    let y = computed_wide(b, x, |b, x| {
        let powers = lp_powers(b, node, x)?;
        let sum = b.reduce(ReduceFn::Add, powers, &axes, true)?;
        lp_root(b, node, sum)
    })?;
    Ok(vec![y])
}

/// MaxUnpool: each position of a plane takes the element whose index names it; a position without such an element is 0.
/// Several elements for one position are equal in what MaxPool returns; otherwise short planes, which compare every
/// position with every element, take the largest, and long ones the last. An index counts through all planes, but must
/// be in the plane of its element.
pub fn max_unpool(b: &mut Builder, node: &Node) -> Outputs {
    let (x, index) = (node.input(0)?, node.input(1)?);
    let extents = spatial(b, node, x)?;
    let rank = extents.len();
    let sizes = node.require("kernel_shape", kernel_shape(node)?)?;
    if b.rank(index) != b.rank(x) || sizes.len() != rank || b.dtype(index) != DType::I64 {
        return Err(node.error("E0201", format!("{} and indices {} do not match", b.ty(x), b.ty(index))));
    }
    for i in 0..b.rank(x) {
        let (l, r) = (b.dims(x)[i].clone(), b.dims(index)[i].clone());
        b.unify(&l, &r)?;
    }
    let (strides, (low, high)) = (steps(node, "strides", rank)?, pads(node, rank)?);
    let inferred = |i: usize, n: &Dim| {
        (n.clone() - Dim::constant(1)) * Dim::constant(strides[i]) + Dim::constant(sizes[i])
            - low[i].clone()
            - high[i].clone()
    };
    let extents = spatial(b, node, x)?;
    let planes: Vec<Dim> = extents.iter().enumerate().map(|(i, n)| inferred(i, n)).collect();
    let lead = b.dims(x)[..2].to_vec();
    let flat = |n: Dim| [lead.clone(), vec![n]].concat();
    let (from, to) = (product(&extents), product(&planes));
    let x = b.reshape(x, &flat(from.clone()))?;
    let index = b.reshape(index, &flat(from.clone()))?;
    let starts = plane_starts(b, &b.dims(index).clone(), &planes)?;
    let own = b.map2(ScalarFn::Sub, index, starts)?;
    let own = checked_index(b, own, &to)?;
    let y = match is_short(&from) || is_short(&to) {
        true => {
            let (hit, found) = largest_by_comparison(b, x, own, &to)?;
            let nothing = b.splat(b.dtype(x), 0.0, &b.dims(found).clone())?;
            b.select(hit, found, nothing)?
        }
        false => {
            let at = b.map2(ScalarFn::Add, own, starts)?;
            let at = b.reshape(at, &[product(&b.dims(x))])?;
            let (updates, dims) = (column(b, x)?, flat(to));
            let zeros = b.splat(b.dtype(x), 0.0, &[product(&dims), Dim::constant(1)])?;
            let y = scatter_in_turn(b, zeros, at, updates, None)?;
            b.reshape(y, &dims)?
        }
    };
    let dims = [lead, planes].concat();
    let y = b.reshape(y, &dims)?;
    let Some(shape) = node.optional(2) else { return Ok(vec![y]) };
    let wanted = b.read_count(shape, dims.len())?;
    // The inferred tensor is at the start of the requested one.
    let high: Vec<Dim> = wanted.into_iter().zip(b.dims(y)).map(|(n, own)| n - own).collect();
    let zero = b.splat(b.dtype(y), 0.0, &[])?;
    let low = vec![Dim::constant(0); high.len()];
    Ok(vec![b.pad(y, zero, &low, &high)?])
}

/// x[b, c, from], own[b, c, from] => whether an index names each position [b, c, to], and the largest such element.
fn largest_by_comparison(b: &mut Builder, x: Value, own: Value, to: &Dim) -> Result<(Value, Value)> {
    let mut pairs = b.dims(x);
    pairs.insert(2, to.clone());
    let own = b.broadcast_at(own, vec![0, 1, 3], &pairs)?;
    let x = b.broadcast_at(x, vec![0, 1, 3], &pairs)?;
    let place = b.add_typed(Op::Iota { axis: 2 }, &[], Some(TensorType::new(DType::I64, pairs.clone())))?;
    let here = b.map2(ScalarFn::Eq, own, place)?;
    let least = b.splat(b.dtype(x), lowest(b.dtype(x)), &pairs)?;
    let candidates = b.select(here, x, least)?;
    let found = b.reduce(ReduceFn::Max, candidates, &[3], false)?;
    let hit = b.convert(here, DType::I32)?;
    let hit = b.reduce(ReduceFn::Max, hit, &[3], false)?;
    Ok((b.convert(hit, DType::Bool)?, found))
}

/// The largest element of each bin of each region, along one axis and then along the other; each bin is compared with
/// all positions of the axis.
pub fn max_roi_pool(b: &mut Builder, node: &Node) -> Outputs {
    let (x, rois) = (node.input(0)?, node.input(1)?);
    floats_only(b, node, x)?;
    let bins = node.require("pooled_shape", node.ints("pooled_shape")?)?;
    let [height, width] = bins[..] else { return Err(node.error("E0106", "`pooled_shape` has two numbers")) };
    if height < 1 || width < 1 || b.rank(x) != 4 || b.rank(rois) != 2 {
        return Err(node.error("E0201", format!("{} with regions {} has no bins", b.ty(x), b.ty(rois))));
    }
    let columns = b.dims(rois)[1].clone();
    b.unify(&columns, &Dim::constant(5))?;
    let scale = node.float_or("spatial_scale", 1.0)?;
    let n_rois = b.dims(rois)[0].clone();
    let column = |b: &mut Builder, i: i64| -> Result<Value> {
        let one = b.slice_axis(rois, 1, Dim::constant(i), 1, Dim::constant(1))?;
        b.reshape(one, std::slice::from_ref(&n_rois))
    };
    let batch = column(b, 0)?;
    let batch = b.convert(batch, DType::I64)?;
    let planes = b.add(Op::Gather { axis: 0 }, &[x, batch])?;
    let [left, top, right, bottom] = [1, 2, 3, 4].map(|i| column(b, i));
    let wide = bin_maxima(b, planes, (left?, right?), width, scale)?;
    // [r, c, h, q] => [r, c, q, h]
    let turned = b.transpose(wide, vec![0, 1, 3, 2])?;
    let y = bin_maxima(b, turned, (top?, bottom?), height, scale)?;
    let y = b.transpose(y, vec![0, 1, 3, 2])?;
    let dims = b.dims(y);
    let least = b.splat(b.dtype(y), f64::NEG_INFINITY, &dims)?;
    let zero = b.splat(b.dtype(y), 0.0, &dims)?;
    let empty = b.map2(ScalarFn::Eq, y, least)?;
    Ok(vec![b.select(empty, zero, y)?])
}

/// x[r, c, a, n], first and last coordinates [r]  =>  [r, c, a, bins]; an empty bin is -inf.
fn bin_maxima(b: &mut Builder, x: Value, ends: (Value, Value), bins: i64, scale: f64) -> Result<Value> {
    let dims = b.dims(x);
    let dtype = b.dtype(ends.0);
    let rounded = |b: &mut Builder, v: Value| -> Result<Value> {
        let scaled = b.map_const(ScalarFn::Mul, v, scale)?;
        // Halves are rounded away from zero.
        let (sign, size) = (b.map1(ScalarFn::Sign, scaled)?, b.map1(ScalarFn::Abs, scaled)?);
        let half = b.map_const(ScalarFn::Add, size, 0.5)?;
        let whole = b.map1(ScalarFn::Floor, half)?;
        b.map2(ScalarFn::Mul, whole, sign)
    };
    let (first, last) = (rounded(b, ends.0)?, rounded(b, ends.1)?);
    let size = b.map2(ScalarFn::Sub, last, first)?;
    let size = b.map_const(ScalarFn::Add, size, 1.0)?;
    let size = b.map_const(ScalarFn::Max, size, 1.0)?;
    let bin = b.map_const(ScalarFn::Div, size, bins as f64)?;
    let grid = [dims[0].clone(), Dim::constant(bins)];
    let at = b.add_typed(Op::Iota { axis: 1 }, &[], Some(TensorType::new(DType::I64, grid.to_vec())))?;
    let at = b.convert(at, dtype)?;
    let next = b.map_const(ScalarFn::Add, at, 1.0)?;
    let bin = b.broadcast_at(bin, vec![0], &grid)?;
    let first = b.broadcast_at(first, vec![0], &grid)?;
    let (start, end) = (b.map2(ScalarFn::Mul, at, bin)?, b.map2(ScalarFn::Mul, next, bin)?);
    let (start, end) = (b.map1(ScalarFn::Floor, start)?, b.map1(ScalarFn::Ceil, end)?);
    let (start, end) = (b.map2(ScalarFn::Add, start, first)?, b.map2(ScalarFn::Add, end, first)?);
    let all = [dims[0].clone(), dims[1].clone(), dims[2].clone(), Dim::constant(bins), dims[3].clone()];
    let place = b.add_typed(Op::Iota { axis: 4 }, &[], Some(TensorType::new(DType::I64, all.to_vec())))?;
    let place = b.convert(place, dtype)?;
    let (start, end) = (b.broadcast_at(start, vec![0, 3], &all)?, b.broadcast_at(end, vec![0, 3], &all)?);
    let (above, below) = (b.map2(ScalarFn::Le, start, place)?, b.map2(ScalarFn::Lt, place, end)?);
    let inside = b.map2(ScalarFn::And, above, below)?;
    let x = b.broadcast_at(x, vec![0, 1, 2, 4], &all)?;
    let least = b.splat(b.dtype(x), f64::NEG_INFINITY, &all)?;
    let candidates = b.select(inside, x, least)?;
    b.reduce(ReduceFn::Max, candidates, &[4], false)
}
