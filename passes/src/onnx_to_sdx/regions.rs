//! RoiAlign(x, rois)  =>  samples on a grid in each bin, each from four weighted neighbours; their mean or maximum
//!
//! y positions [r, p, g, i], x positions [r, q, h, j] → [r, c, p, q, g, h, i, j] → y[r, c, p, q], with r a region, c a
//! channel, (p, q) a bin, (g, h) a sample of the bin, and (i, j) one of the two neighbours along each axis

use super::blocks::digit;
use super::builder::Builder;
use super::coordinates::checked_index;
use super::node::Node;
use super::pooling::counted;
use super::sampling::clamped;
use sardonyx_base::dim::product;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, TensorType, Value};

type Outputs = Result<Vec<Value>>;

/// Samples [r, p, g, 2] along one axis: one for each region, bin, sample of the bin and neighbour.
struct Samples {
    index: Value,
    weight: Value,
    /// Whether the region's bins have this sample, as [r, g]; `None` if all regions have all samples.
    taken: Option<Value>,
    /// Number of samples of a bin in each region, as floats [r].
    count: Value,
    dims: Vec<Dim>,
}

/// RoiAlign. Before opset 16 regions have no offset of half an element, and there is no attribute for it.
pub fn roi_align(b: &mut Builder, node: &Node) -> Outputs {
    let (x, rois, batch) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let bins = [node.int_or("output_height", 1)?, node.int_or("output_width", 1)?];
    let types = b.dtype(x).is_float() && b.dtype(rois) == b.dtype(x) && b.dtype(batch).is_int();
    if b.rank(x) != 4 || b.rank(rois) != 2 || b.rank(batch) != 1 || !types {
        let message = format!("{}, regions {} and batch elements {} do not match", b.ty(x), b.ty(rois), b.ty(batch));
        return Err(node.error("E0201", message));
    }
    if bins.iter().any(|n| *n < 1) {
        return Err(node.error("E0106", format!("{bins:?} bins")));
    }
    let (n_rois, n_batch) = (b.dims(rois)[0].clone(), b.dims(batch)[0].clone());
    b.unify(&n_rois, &n_batch)?;
    let columns = b.dims(rois)[1].clone();
    b.unify(&columns, &Dim::constant(4))?;
    let old = if node.opset < 16 { "output_half_pixel" } else { "half_pixel" };
    let half = node.str_or("coordinate_transformation_mode", old)? == "half_pixel";
    let dtype = b.dtype(x);
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let rois = b.convert(rois, wide)?;
    let mut axes = vec![];
    for (i, bins) in bins.into_iter().enumerate() {
        let n = b.dims(x)[2 + i].clone();
        axes.push(samples(b, node, rois, (1 - i as i64, bins), &n, half)?);
    }
    let widened = b.convert(x, wide)?;
    let y = combined(b, node, widened, batch, &axes)?;
    Ok(vec![b.convert(y, dtype)?])
}

/// Returns one coordinate [r] of the regions, scaled and, if `half`, shifted by half an element.
fn coordinate(b: &mut Builder, node: &Node, rois: Value, column: i64, half: bool) -> Result<Value> {
    let one = b.slice_axis(rois, 1, Dim::constant(column), 1, Dim::constant(1))?;
    let n = b.dims(rois)[..1].to_vec();
    let one = b.reshape(one, &n)?;
    let scaled = b.map_const(ScalarFn::Mul, one, node.float_or("spatial_scale", 1.0)?)?;
    if half { b.map_const(ScalarFn::Sub, scaled, 0.5) } else { Ok(scaled) }
}

/// The samples along an axis of `n` elements; column `column` of `rois` has the coordinate at which a region starts.
fn samples(
    b: &mut Builder,
    node: &Node,
    rois: Value,
    (column, bins): (i64, i64),
    n: &Dim,
    half: bool,
) -> Result<Samples> {
    let start = coordinate(b, node, rois, column, half)?;
    let end = coordinate(b, node, rois, column + 2, half)?;
    let mut size = b.map2(ScalarFn::Sub, end, start)?;
    if !half {
        size = b.map_const(ScalarFn::Max, size, 1.0)?;
    }
    let bin = b.map_const(ScalarFn::Div, size, bins as f64)?;
    let (dtype, n_rois) = (b.dtype(rois), b.dims(rois)[0].clone());
    let given = node.int_or("sampling_ratio", 0)?;
    let (count, most) = match given > 0 {
        true => (b.splat(dtype, given as f64, std::slice::from_ref(&n_rois))?, Dim::constant(given)),
        false => {
            let count = b.map1(ScalarFn::Ceil, bin)?;
            let count = b.map_const(ScalarFn::Max, count, 0.0)?;
            let most = b.reduce(ReduceFn::Max, count, &[0], true)?;
            // If there are no regions, the maximum over them is -inf.
            let most = b.map_const(ScalarFn::Max, most, 0.0)?;
            let most = b.convert(most, DType::I64)?;
            (count, b.read_dims(most)?.remove(0))
        }
    };
    let grid = [n_rois.clone(), Dim::constant(bins), most.clone()];
    let along = |b: &mut Builder, axis: usize| -> Result<Value> {
        let at = b.add_typed(Op::Iota { axis }, &[], Some(TensorType::new(DType::I64, grid.clone())))?;
        b.convert(at, dtype)
    };
    let (p, g) = (along(b, 1)?, along(b, 2)?);
    let spread = |b: &mut Builder, v: Value| b.broadcast_at(v, vec![0], &grid);
    let (bin_all, start, count_all) = (spread(b, bin)?, spread(b, start)?, spread(b, count)?);
    let first = b.map2(ScalarFn::Mul, p, bin_all)?;
    let middle = b.map_const(ScalarFn::Add, g, 0.5)?;
    let inner = b.map2(ScalarFn::Mul, middle, bin_all)?;
    let inner = b.map2(ScalarFn::Div, inner, count_all)?;
    let at = b.map2(ScalarFn::Add, start, first)?;
    let at = b.map2(ScalarFn::Add, at, inner)?;
    let taken = match given > 0 {
        true => None,
        false => {
            let rows = [n_rois, most];
            let g = b.add_typed(Op::Iota { axis: 1 }, &[], Some(TensorType::new(DType::I64, rows.to_vec())))?;
            let g = b.convert(g, dtype)?;
            let count = b.broadcast_at(count, vec![0], &rows)?;
            Some(b.map2(ScalarFn::Lt, g, count)?)
        }
    };
    let (index, weight) = two_neighbours(b, at, n)?;
    let dims = b.dims(index);
    Ok(Samples { index, weight, taken, count, dims })
}

/// The two elements around a position and their weights, which are 0 if it is more than one element outside. Up to that
/// distance only the outermost element counts.
fn two_neighbours(b: &mut Builder, at: Value, n: &Dim) -> Result<(Value, Value)> {
    let grid = b.dims(at);
    let dtype = b.dtype(at);
    let pairs = [grid.as_slice(), &[Dim::constant(2)]].concat();
    let (least, most) = (b.splat(dtype, -1.0, &grid)?, b.dims_scalar(n.clone())?);
    let most = b.convert(most, dtype)?;
    let (above, below) = (b.map2(ScalarFn::Le, least, at)?, b.map2(ScalarFn::Le, at, most)?);
    let inside = b.map2(ScalarFn::And, above, below)?;
    let at = clamped(b, at, n)?;
    let floor = b.map1(ScalarFn::Floor, at)?;
    let rest = b.map2(ScalarFn::Sub, at, floor)?;
    let spread = |b: &mut Builder, v: Value| b.broadcast_at(v, (0..grid.len()).collect(), &pairs);
    let (floor, rest, inside) = (spread(b, floor)?, spread(b, rest)?, spread(b, inside)?);
    let tap = b.add_typed(Op::Iota { axis: grid.len() }, &[], Some(TensorType::new(DType::I64, pairs.clone())))?;
    let tap = b.convert(tap, dtype)?;
    let place = b.map2(ScalarFn::Add, floor, tap)?;
    let distance = b.map2(ScalarFn::Sub, tap, rest)?;
    let distance = b.map1(ScalarFn::Abs, distance)?;
    let below = b.map1(ScalarFn::Neg, distance)?;
    let weight = b.map_const(ScalarFn::Add, below, 1.0)?;
    let zero = b.splat(dtype, 0.0, &pairs)?;
    let weight = b.select(inside, weight, zero)?;
    let place = clamped(b, place, n)?;
    Ok((b.convert(place, DType::I64)?, weight))
}

/// Gathers the elements and reduces them over samples and neighbours to a mean or maximum per bin. The maximum is taken
/// over weighted elements, as in the first implementation of the operator, on which existing models rely.
fn combined(b: &mut Builder, node: &Node, x: Value, batch: Value, axes: &[Samples]) -> Result<Value> {
    let [y, z] = axes else { return Err(node.error("E0201", "has two axes")) };
    let (d, e, extents) = (&y.dims, &z.dims, b.dims(x));
    let channels = extents[1].clone();
    let all =
        [&d[..1], std::slice::from_ref(&channels), &d[1..2], &e[1..2], &d[2..3], &e[2..3], &d[3..4], &e[3..4]].concat();
    let at = [vec![0, 2, 4, 6], vec![0, 3, 5, 7]];
    let batch = b.convert(batch, DType::I64)?;
    let batch = checked_index(b, batch, &extents[0])?;
    let batch = b.broadcast_at(batch, vec![0], &all)?;
    let channel = counted(b, 1, &all, Dim::constant(1))?;
    let mut index = digit(b, Some(batch), channel, &channels)?;
    for (samples, (at, n)) in axes.iter().zip(at.iter().zip(&extents[2..])) {
        let own = b.broadcast_at(samples.index, at.clone(), &all)?;
        index = digit(b, Some(index), own, n)?;
    }
    let flat = b.reshape(x, &[product(&extents)])?;
    let mut terms = b.add(Op::Gather { axis: 0 }, &[flat, index])?;
    for (samples, at) in axes.iter().zip(&at) {
        let weight = b.broadcast_at(samples.weight, at.clone(), &all)?;
        terms = b.map2(ScalarFn::Mul, terms, weight)?;
    }
    let (f, neutral) = match node.str_or("mode", "avg")?.to_lowercase().as_str() {
        "avg" => (ReduceFn::Add, 0.0),
        "max" => (ReduceFn::Max, f64::NEG_INFINITY),
        other => return Err(node.error("E0106", format!("`mode` = {other} is not known"))),
    };
    for (samples, at) in axes.iter().zip([4, 5]) {
        if let Some(taken) = samples.taken {
            let taken = b.broadcast_at(taken, vec![0, at], &all)?;
            let none = b.splat(b.dtype(terms), neutral, &all)?;
            terms = b.select(taken, terms, none)?;
        }
    }
    let result = b.reduce(f, terms, &[4, 5, 6, 7], false)?;
    let dims = b.dims(result);
    let count = b.map2(ScalarFn::Mul, y.count, z.count)?;
    let count = b.broadcast_at(count, vec![0], &dims)?;
    if f == ReduceFn::Add {
        let count = b.map_const(ScalarFn::Max, count, 1.0)?;
        return b.map2(ScalarFn::Div, result, count);
    }
    let zero = b.splat(b.dtype(result), 0.0, &dims)?;
    let any = b.map2(ScalarFn::Lt, zero, count)?;
    b.select(any, result, zero)
}
