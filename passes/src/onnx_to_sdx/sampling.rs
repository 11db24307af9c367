//! GridSample(x, grid)  =>  per axis: neighbours of computed positions, and weights; one gather, and a weighted sum
//!
//! x[n, c, h, w] at index[n, p, i] and [n, p, j] → [n, c, p, i, j] · weights → y[n, c, p], with p a position, and i and
//! j its neighbours along the two axes

use super::blocks::digit;
use super::builder::Builder;
use super::node::Node;
use super::pooling::counted;
use super::resize::cubic;
use super::windows::spatial;
use sardonyx_base::dim::product;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, TensorType, Value};

type Outputs = Result<Vec<Value>>;

/// Neighbours of positions along one axis: each value has the positions' dimensions, and one for the neighbours.
pub struct Neighbours {
    /// Index of each neighbour, clamped to the inside of the operand.
    pub index: Value,
    pub weight: Option<Value>,
    /// Whether a neighbour counts; `None` if all do.
    pub valid: Option<Value>,
}

/// What is read at positions outside an operand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    Zeros,
    Border,
    Reflection,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    Nearest,
    Linear,
    Cubic,
}

/// The weighted sums y[n, c, p] of x[n, c, axes]; `lead` are the dimensions of the positions, n first.
pub fn sample(b: &mut Builder, x: Value, lead: &[Dim], axes: &[Neighbours]) -> Result<Value> {
    let near = gathered(b, x, lead, axes)?;
    let (rank, dims) = (axes.len(), b.dims(near));
    let first = dims.len() - rank;
    let mut terms = near;
    for (i, axis) in axes.iter().enumerate() {
        let at = spots(lead.len(), first + i);
        if let Some(weight) = axis.weight {
            let weight = b.convert(weight, b.dtype(terms))?;
            let weight = b.broadcast_at(weight, at, &dims)?;
            terms = b.map2(ScalarFn::Mul, terms, weight)?;
        }
    }
    for (i, axis) in axes.iter().enumerate() {
        if let Some(valid) = axis.valid {
            let valid = b.broadcast_at(valid, spots(lead.len(), first + i), &dims)?;
            let zero = b.splat(b.dtype(terms), 0.0, &dims)?;
            terms = b.select(valid, terms, zero)?;
        }
    }
    b.reduce(ReduceFn::Add, terms, &(first..first + rank).collect::<Vec<_>>(), false)
}

/// Positions of the dimensions [n, p, i] among [n, c, p, i, j].
fn spots(lead: usize, own: usize) -> Vec<usize> {
    [0].into_iter().chain(2..lead + 1).chain([own]).collect()
}

/// Gathers x[n, c, axes] at all combinations of neighbours, as [n, c, p, i, j].
fn gathered(b: &mut Builder, x: Value, lead: &[Dim], axes: &[Neighbours]) -> Result<Value> {
    let dims = b.dims(x);
    let (channels, extents) = (dims[1].clone(), &dims[2..]);
    let counts: Vec<Dim> = axes.iter().map(|a| b.dims(a.index)[lead.len()].clone()).collect();
    let within = [lead, &counts].concat();
    let mut place = None;
    for (i, axis) in axes.iter().enumerate() {
        let at = (0..lead.len()).chain([lead.len() + i]).collect();
        let index = b.broadcast_at(axis.index, at, &within)?;
        place = Some(digit(b, place, index, &extents[i])?);
    }
    let place = place.ok_or_else(|| b.error("E0201", "there are no axes to sample along"))?;
    let plane = product(extents);
    let all = [&lead[..1], std::slice::from_ref(&channels), &lead[1..], &counts].concat();
    let rows = counted(b, 0, &all, plane.clone() * channels)?;
    let planes = counted(b, 1, &all, plane)?;
    let start = b.map2(ScalarFn::Add, rows, planes)?;
    let place = b.broadcast_at(place, [0].into_iter().chain(2..all.len()).collect(), &all)?;
    let index = b.map2(ScalarFn::Add, start, place)?;
    let flat = b.reshape(x, &[product(&dims)])?;
    b.add(Op::Gather { axis: 0 }, &[flat, index])
}

/// The neighbours of float positions along an axis of `n` elements. `aligned`: reflections are at the centres of the
/// outermost elements, else at their edges.
pub fn neighbours(
    b: &mut Builder,
    at: Value,
    n: &Dim,
    filter: Filter,
    outside: Outside,
    aligned: bool,
) -> Result<Neighbours> {
    let (first, count) = match filter {
        Filter::Nearest => (0.0, 1),
        Filter::Linear => (0.0, 2),
        Filter::Cubic => (-1.0, 4),
    };
    let dtype = b.dtype(at);
    let lead = b.dims(at);
    let grid = [lead.as_slice(), &[Dim::constant(count)]].concat();
    let same: Vec<usize> = (0..lead.len()).collect();
    let floor = b.map1(if filter == Filter::Nearest { ScalarFn::Round } else { ScalarFn::Floor }, at)?;
    let rest = b.map2(ScalarFn::Sub, at, floor)?;
    let tap = b.add_typed(Op::Iota { axis: lead.len() }, &[], Some(TensorType::new(DType::I64, grid.clone())))?;
    let tap = b.convert(tap, dtype)?;
    let tap = b.map_const(ScalarFn::Add, tap, first)?;
    let floor = b.broadcast_at(floor, same.clone(), &grid)?;
    let place = b.map2(ScalarFn::Add, floor, tap)?;
    let weight = match filter {
        Filter::Nearest => None,
        Filter::Linear | Filter::Cubic => {
            let rest = b.broadcast_at(rest, same, &grid)?;
            let distance = b.map2(ScalarFn::Sub, tap, rest)?;
            let distance = b.map1(ScalarFn::Abs, distance)?;
            Some(if filter == Filter::Cubic {
                cubic(b, distance, -0.75)?
            } else {
                let below = b.map1(ScalarFn::Neg, distance)?;
                b.map_const(ScalarFn::Add, below, 1.0)?
            })
        }
    };
    let place = if outside == Outside::Reflection { reflected(b, place, n, aligned)? } else { place };
    let inside = clamped(b, place, n)?;
    let valid = match outside {
        Outside::Zeros => Some(b.map2(ScalarFn::Eq, place, inside)?),
        Outside::Border | Outside::Reflection => None,
    };
    Ok(Neighbours { index: b.convert(inside, DType::I64)?, weight, valid })
}

/// A dimension as a number of the same type as `like`.
fn number(b: &mut Builder, n: Dim, like: Value) -> Result<Value> {
    let v = b.dims_scalar(n)?;
    b.convert(v, b.dtype(like))
}

/// Clamps a float position to 0..=n-1; NaN becomes 0.
pub fn clamped(b: &mut Builder, place: Value, n: &Dim) -> Result<Value> {
    let last = number(b, n.clone() - Dim::constant(1), place)?;
    let zero = b.splat(b.dtype(place), 0.0, &b.dims(place))?;
    let is_number = b.map2(ScalarFn::Eq, place, place)?;
    let place = b.select(is_number, place, zero)?;
    let above = b.map2(ScalarFn::Max, place, zero)?;
    b.map2(ScalarFn::Min, above, last)
}

/// Reflects a float position at the borders as often as needed: the pattern's period is twice the distance of the
/// borders.
fn reflected(b: &mut Builder, place: Value, n: &Dim, aligned: bool) -> Result<Value> {
    let (low, span) = if aligned { (0.0, n.clone() - Dim::constant(1)) } else { (-0.5, n.clone()) };
    // With one element between aligned borders the period would be 0.
    let period = number(b, (span * Dim::constant(2)).maximum(&Dim::constant(1)), place)?;
    let way = b.map_const(ScalarFn::Sub, place, low)?;
    let way = b.map1(ScalarFn::Abs, way)?;
    let forth = b.map2(ScalarFn::Rem, way, period)?;
    let back = b.map2(ScalarFn::Sub, period, forth)?;
    let turned = b.map2(ScalarFn::Min, forth, back)?;
    b.map_const(ScalarFn::Add, turned, low)
}

/// GridSample: grid coordinates run from -1 to 1 over the operand, and the last axis comes first.
pub fn grid_sample(b: &mut Builder, node: &Node) -> Outputs {
    let (x, grid) = (node.input(0)?, node.input(1)?);
    let rank = spatial(b, node, x)?.len();
    if b.rank(grid) != rank + 2 || !b.dtype(grid).is_float() {
        return Err(node.error("E0201", format!("the grid {} does not fit {}", b.ty(grid), b.ty(x))));
    }
    let (tuple, batch) = (b.dims(grid)[rank + 1].clone(), b.dims(grid)[0].clone());
    b.unify(&tuple, &Dim::constant(rank as i64))?;
    let own = b.dims(x)[0].clone();
    b.unify(&own, &batch)?;
    let filter = match node.str_or("mode", "linear")?.as_str() {
        "nearest" => Filter::Nearest,
        "linear" | "bilinear" => Filter::Linear,
        "cubic" | "bicubic" => Filter::Cubic,
        other => return Err(node.error("E0106", format!("`mode` = {other} is not known"))),
    };
    let outside = match node.str_or("padding_mode", "zeros")?.as_str() {
        "zeros" => Outside::Zeros,
        "border" => Outside::Border,
        "reflection" => Outside::Reflection,
        other => return Err(node.error("E0106", format!("`padding_mode` = {other} is not known"))),
    };
    let aligned = node.int_or("align_corners", 0)? != 0;
    let dtype = b.dtype(x);
    let wide = if b.dtype(grid) == DType::F64 { DType::F64 } else { DType::F32 };
    let grid = b.convert(grid, wide)?;
    let extents = spatial(b, node, x)?;
    let lead = b.dims(grid)[..=rank].to_vec();
    let mut axes = vec![];
    for (i, n) in extents.iter().enumerate() {
        let at = (rank - 1 - i) as i64;
        let one = b.slice_axis(grid, rank + 1, Dim::constant(at), 1, Dim::constant(1))?;
        let one = b.reshape(one, &lead)?;
        let at = denormalised(b, one, n, aligned)?;
        let at = if filter == Filter::Nearest { b.map1(ScalarFn::Round, at)? } else { at };
        let at = match (outside, filter) {
            // The cubic filter takes its weights from the unchanged position; only its neighbours are moved inside.
            (Outside::Zeros, _) | (_, Filter::Cubic) => at,
            (Outside::Border, _) => clamped(b, at, n)?,
            (Outside::Reflection, _) => reflected(b, at, n, aligned)?,
        };
        axes.push(neighbours(b, at, n, filter, outside, aligned)?);
    }
    let x = if filter == Filter::Nearest || dtype == DType::F64 { x } else { b.convert(x, DType::F32)? };
    let y = sample(b, x, &lead, &axes)?;
    Ok(vec![b.convert(y, dtype)?])
}

/// -1 ..= 1  =>  0 ..= n - 1 if `aligned`, else -1/2 ..= n - 1/2
fn denormalised(b: &mut Builder, at: Value, n: &Dim, aligned: bool) -> Result<Value> {
    let shifted = b.map_const(ScalarFn::Add, at, 1.0)?;
    if aligned {
        let half = b.map_const(ScalarFn::Mul, shifted, 0.5)?;
        let last = number(b, n.clone() - Dim::constant(1), at)?;
        return b.map2(ScalarFn::Mul, half, last);
    }
    let n = number(b, n.clone(), at)?;
    let scaled = b.map2(ScalarFn::Mul, shifted, n)?;
    let moved = b.map_const(ScalarFn::Add, scaled, -1.0)?;
    b.map_const(ScalarFn::Mul, moved, 0.5)
}

/// theta[n, r, r + 1] times the homogeneous coordinates of each position, which run from -1 to 1: grid[n, positions,
/// r], with the last axis first.
pub fn affine_grid(b: &mut Builder, node: &Node) -> Outputs {
    let (theta, size) = (node.input(0)?, node.input(1)?);
    let size = b.read_dims(size)?;
    let rank = size.len().saturating_sub(2);
    if !(2..=3).contains(&rank) || b.rank(theta) != 3 || !b.dtype(theta).is_float() {
        return Err(node.error("E0201", format!("{} and a size of {} dimensions", b.ty(theta), size.len())));
    }
    for (axis, n) in [(0, size[0].clone()), (1, Dim::constant(rank as i64)), (2, Dim::constant(rank as i64 + 1))] {
        let own = b.dims(theta)[axis].clone();
        b.unify(&own, &n)?;
    }
    let aligned = node.int_or("align_corners", 0)? != 0;
    let mut dims = vec![b.dims(theta)[0].clone()];
    dims.extend_from_slice(&size[2..]);
    dims.push(Dim::constant(rank as i64));
    let column = |b: &mut Builder, k: usize| -> Result<Value> {
        let one = b.slice_axis(theta, 2, Dim::constant(k as i64), 1, Dim::constant(1))?;
        let kept = b.dims(theta)[..2].to_vec();
        let one = b.reshape(one, &kept)?;
        b.broadcast_at(one, vec![0, dims.len() - 1], &dims)
    };
    let mut sum = column(b, rank)?;
    for k in 0..rank {
        let axis = rank - 1 - k;
        let along = centred(b, &dims[1 + axis], b.dtype(theta), aligned)?;
        let along = b.broadcast_at(along, vec![1 + axis], &dims)?;
        let factor = column(b, k)?;
        let part = b.map2(ScalarFn::Mul, factor, along)?;
        sum = b.map2(ScalarFn::Add, sum, part)?;
    }
    Ok(vec![sum])
}

/// n positions from -1 to 1: including both ends if `aligned`, else in the middle of n equal parts.
fn centred(b: &mut Builder, n: &Dim, dtype: DType, aligned: bool) -> Result<Value> {
    let at = b.add_typed(Op::Iota { axis: 0 }, &[], Some(TensorType::new(DType::I64, [n.clone()])))?;
    let at = b.convert(at, dtype)?;
    let twice = b.map_const(ScalarFn::Mul, at, 2.0)?;
    let (shifted, steps) = match aligned {
        true => (twice, (n.clone() - Dim::constant(1)).maximum(&Dim::constant(1))),
        false => (b.map_const(ScalarFn::Add, twice, 1.0)?, n.clone()),
    };
    let steps = number(b, steps, shifted)?;
    let share = b.map2(ScalarFn::Div, shifted, steps)?;
    b.map_const(ScalarFn::Add, share, -1.0)
}
