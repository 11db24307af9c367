//! Resize(x)  =>  per axis: gather at positions computed from an iota and, in all modes but "nearest", a weighted sum
//!
//! x[.., n, ..] at index[p, k] → [.., p, k, ..] · weight[p, k] → y[.., p, ..], with p a position and k one of its
//! neighbours

use super::builder::Builder;
use super::node::Node;
use super::number::{Number, scaled_extent};
use super::padding::edge;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, TensorType, Value};

type Outputs = Result<Vec<Value>>;

/// Maximum number of neighbours: more than any filter is meant to have.
const TAPS_MAX: f64 = (1 << 20) as f64;

/// How one axis is resized.
struct Axis {
    axis: usize,
    /// Extents before and after.
    from: Dim,
    to: Dim,
    scale: Number,
    /// Begin and end of the region that is resized, as fractions of the extent.
    roi: Option<(Number, Number)>,
}

/// The node's attributes; for older opsets, attribute values that describe their fixed behaviour.
struct Mode {
    kind: String,
    coordinates: String,
    nearest: String,
    cubic: f64,
    antialias: bool,
    excludes_outside: bool,
    extrapolation: f64,
}

impl Mode {
    /// The mode of an operator without the attributes that only Resize has since opset 11.
    fn plain(kind: String, coordinates: String, nearest: &str) -> Mode {
        Mode {
            kind,
            coordinates,
            nearest: nearest.into(),
            cubic: -0.75,
            antialias: false,
            excludes_outside: false,
            extrapolation: 0.0,
        }
    }
}

/// Resize. Opset 10 has only scales, and maps positions asymmetrically; sizes and a region are inputs since opset 11.
pub fn resize(b: &mut Builder, node: &Node) -> Outputs {
    if node.opset < 11 {
        return upsample(b, node);
    }
    let mode = Mode {
        kind: node.str_or("mode", "nearest")?,
        coordinates: node.str_or("coordinate_transformation_mode", "half_pixel")?,
        nearest: node.str_or("nearest_mode", "round_prefer_floor")?,
        cubic: node.float_or("cubic_coeff_a", -0.75)?,
        antialias: node.int_or("antialias", 0)? != 0,
        excludes_outside: node.int_or("exclude_outside", 0)? != 0,
        extrapolation: node.float_or("extrapolation_value", 0.0)?,
    };
    let x = node.input(0)?;
    let rank = b.rank(x);
    let axes = match node.ints("axes")? {
        Some(list) => list.into_iter().map(|a| node.axis(a, rank)).collect::<Result<Vec<_>>>()?,
        None => (0..rank).collect(),
    };
    let given = |b: &Builder, i: usize| node.optional(i).filter(|v| !b.ty(*v).elements().is_const(0));
    let roi = given(b, 1).filter(|_| mode.coordinates == "tf_crop_and_resize");
    let expect = |b: &mut Builder, v: Value, n: usize| -> Result<Value> {
        let count = b.ty(v).elements();
        b.unify(&count, &Dim::constant(n as i64))?;
        b.reshape(v, &[Dim::constant(n as i64)])
    };
    let mut regions = vec![None; axes.len()];
    if let Some(roi) = roi {
        let roi = expect(b, roi, 2 * axes.len())?;
        for (i, region) in regions.iter_mut().enumerate() {
            let (begin, end) = (i as i64, (axes.len() + i) as i64);
            *region = Some((Number::element(b, roi, begin)?, Number::element(b, roi, end)?));
        }
    }
    let plans = match (given(b, 3), given(b, 2)) {
        (Some(sizes), _) => {
            let sizes = expect(b, sizes, axes.len())?;
            let policy = node.str_or("keep_aspect_ratio_policy", "stretch")?;
            let sizes = b.read_dims(sizes)?;
            by_sizes(b, node, x, (&axes, sizes), &policy)?
        }
        (None, Some(scales)) => {
            let scales = expect(b, scales, axes.len())?;
            by_scales(b, node, x, &axes, scales)?
        }
        (None, None) => return Err(node.error("E0103", "neither scales nor sizes are given")),
    };
    let plans = plans.into_iter().zip(regions).map(|(plan, roi)| Axis { roi, ..plan });
    Ok(vec![resize_axes(b, node, x, plans.collect(), &mode)?])
}

/// Upsample. Scales are an attribute before opset 9 and an input since; before opset 7 there is one attribute per image
/// axis.
pub fn upsample(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let mode = Mode::plain(node.str_or("mode", "nearest")?, "asymmetric".into(), "simple");
    let axes: Vec<usize> = (0..b.rank(x)).collect();
    let plans = if node.op_type == "Upsample" && node.opset < 9 {
        let scales = match node.opset < 7 {
            true => vec![1.0, 1.0, node.float_or("height_scale", 1.0)?, node.float_or("width_scale", 1.0)?],
            false => node.require("scales", node.floats("scales")?)?,
        };
        if scales.len() != axes.len() {
            return Err(node.error("E0106", format!("{} scales for {}", scales.len(), b.ty(x))));
        }
        let plan = |(axis, scale): (usize, f64)| scaled(b, node, x, axis, Number::Known(scale));
        scales.into_iter().enumerate().map(plan).collect::<Result<Vec<_>>>()?
    } else {
        let scales = node.input(1)?;
        let count = b.ty(scales).elements();
        b.unify(&count, &Dim::constant(axes.len() as i64))?;
        by_scales(b, node, x, &axes, scales)?
    };
    Ok(vec![resize_axes(b, node, x, plans, &mode)?])
}

/// Upsample of com.microsoft.nchwc: whole scales, and a position rounded down for the nearest element.
pub fn blocked_upsample(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let scales = node.require("scales", node.ints("scales")?)?;
    if scales.len() != b.rank(x) || scales.iter().any(|scale| *scale < 1) || scales[..2] != [1, 1] {
        return Err(node.error("E0106", format!("`scales` = {scales:?} for {}", b.ty(x))));
    }
    let kind = node.str_or("mode", "nearest")?;
    if !["linear", "nearest"].contains(&kind.as_str()) {
        return Err(node.error("E0106", format!("the mode `{kind}` is not known")));
    }
    let mode = Mode::plain(kind, node.str_or("coordinate_transformation_mode", "asymmetric")?, "floor");
    let plan = |(axis, scale): (usize, &i64)| scaled(b, node, x, axis, Number::Known(*scale as f64));
    let plans = scales.iter().enumerate().map(plan).collect::<Result<Vec<_>>>()?;
    Ok(vec![resize_axes(b, node, x, plans, &mode)?])
}

fn by_scales(b: &mut Builder, node: &Node, x: Value, axes: &[usize], scales: Value) -> Result<Vec<Axis>> {
    let mut plans = vec![];
    for (i, &axis) in axes.iter().enumerate() {
        let scale = Number::element(b, scales, i as i64)?;
        plans.push(scaled(b, node, x, axis, scale)?);
    }
    Ok(plans)
}

/// ⌊extent · scale⌋ elements, even with a region: the specification also multiplies by the region's share of the
/// extent, but no implementation does.
fn scaled(b: &mut Builder, node: &Node, x: Value, axis: usize, scale: Number) -> Result<Axis> {
    let from = b.dims(x)[axis].clone();
    let to = match scale.known() {
        Some(scale) => scaled_extent(&from, scale)
            .ok_or_else(|| node.error("E0106", format!("the scale {scale} of axis {axis} gives no extent")))?,
        None => {
            let n = Number::of_dim(b, &from)?;
            n.mul(b, scale)?.floor(b)?.dim(b)?
        }
    };
    Ok(Axis { axis, from, to, scale, roi: None })
}

fn by_sizes(b: &mut Builder, node: &Node, x: Value, sizes: (&[usize], Vec<Dim>), policy: &str) -> Result<Vec<Axis>> {
    let mut plans = vec![];
    for (&axis, to) in sizes.0.iter().zip(sizes.1) {
        let from = b.dims(x)[axis].clone();
        let scale = match from == to {
            true => Number::Known(1.0),
            false => {
                let n = Number::of_dim(b, &from)?;
                Number::of_dim(b, &to)?.div(b, n)?
            }
        };
        plans.push(Axis { axis, from, to, scale, roi: None });
    }
    let choose = match policy {
        "stretch" => return Ok(plans),
        "not_larger" => Number::min,
        "not_smaller" => Number::max,
        other => return Err(node.error("E0106", format!("the policy {other} is not known"))),
    };
    let mut common = plans.first().map_or(Number::Known(1.0), |p| p.scale);
    for plan in plans.iter().skip(1) {
        common = choose(common, b, plan.scale)?;
    }
    for plan in &mut plans {
        let n = Number::of_dim(b, &plan.from)?;
        let rounded = n.mul(b, common)?.add(b, Number::Known(0.5))?.floor(b)?;
        (plan.scale, plan.to) = (common, rounded.dim(b)?);
    }
    Ok(plans)
}

fn resize_axes(b: &mut Builder, node: &Node, x: Value, plans: Vec<Axis>, mode: &Mode) -> Result<Value> {
    let dtype = b.dtype(x);
    let moves = |p: &Axis| {
        let whole = |(begin, end): (Number, Number)| begin.known() == Some(0.0) && end.known() == Some(1.0);
        !(p.scale.known() == Some(1.0) && p.from == p.to && p.roi.is_none_or(whole))
    };
    let nearest = mode.kind == "nearest";
    let mut y = match dtype {
        _ if nearest => x,
        DType::F32 | DType::F64 => x,
        // Weighted sums of integers are rounded once, at the end.
        DType::I32 | DType::U32 | DType::I64 | DType::U64 => b.convert(x, DType::F64)?,
        _ => b.convert(x, DType::F32)?,
    };
    for plan in plans.iter().filter(|p| moves(p)) {
        let at = places(b, node, plan, mode)?;
        let resized = match nearest {
            true => {
                let index = nearest_index(b, node, at, plan.scale, &mode.nearest)?;
                let index = edge(b, index, &plan.from)?;
                b.add(Op::Gather { axis: plan.axis }, &[y, index])?
            }
            false => weighted(b, node, y, plan, at, mode)?,
        };
        y = if mode.coordinates == "tf_crop_and_resize" { extrapolated(b, resized, plan, at, mode)? } else { resized };
    }
    if b.dtype(y) != dtype && dtype.is_int() {
        y = b.map1(ScalarFn::Round, y)?;
    }
    b.convert(y, dtype)
}

/// Returns, as an f64 vector, the position in the operand of each element of the result.
fn places(b: &mut Builder, node: &Node, plan: &Axis, mode: &Mode) -> Result<Value> {
    let at = b.add_typed(Op::Iota { axis: 0 }, &[], Some(TensorType::new(DType::I64, [plan.to.clone()])))?;
    let at = b.convert(at, DType::F64)?;
    let (half, one) = (Number::Known(0.5), Number::Known(1.0));
    let (from, to) = (Number::of_dim(b, &plan.from)?, Number::of_dim(b, &plan.to)?);
    let last = from.sub(b, one)?;
    // The width that the scale implies, which need not be an integer.
    let width = if plan.from == plan.to { to } else { from.mul(b, plan.scale)? };
    let middle = |b: &mut Builder| -> Result<Value> {
        let at = half.map(b, ScalarFn::Add, at)?;
        let at = plan.scale.map(b, ScalarFn::Div, at)?;
        half.map(b, ScalarFn::Sub, at)
    };
    match mode.coordinates.as_str() {
        "half_pixel" => middle(b),
        "asymmetric" => plan.scale.map(b, ScalarFn::Div, at),
        "tf_half_pixel_for_nn" => {
            let at = half.map(b, ScalarFn::Add, at)?;
            plan.scale.map(b, ScalarFn::Div, at)
        }
        "pytorch_half_pixel" => {
            let at = middle(b)?;
            unless_one(b, at, width, Number::Known(0.0))
        }
        "half_pixel_symmetric" => {
            let adjustment = to.div(b, width)?;
            let rest = one.sub(b, adjustment)?;
            let offset = from.mul(b, half)?.mul(b, rest)?;
            let at = middle(b)?;
            offset.map(b, ScalarFn::Add, at)
        }
        "align_corners" => {
            let steps = width.sub(b, one)?;
            let at = last.map(b, ScalarFn::Mul, at)?;
            let at = steps.map(b, ScalarFn::Div, at)?;
            unless_one(b, at, width, Number::Known(0.0))
        }
        "tf_crop_and_resize" => {
            let Some((begin, end)) = plan.roi else { return Err(node.error("E0103", "its region is missing")) };
            let share = end.sub(b, begin)?.mul(b, last)?;
            let steps = to.sub(b, one)?;
            let at = share.map(b, ScalarFn::Mul, at)?;
            let at = steps.map(b, ScalarFn::Div, at)?;
            let center = share.mul(b, half)?;
            let at = unless_one(b, at, to, center)?;
            let first = begin.mul(b, last)?;
            first.map(b, ScalarFn::Add, at)
        }
        other => Err(node.error("E0106", format!("`coordinate_transformation_mode` = {other} is not known"))),
    }
}

/// The positions, or `single` if there is only one element.
fn unless_one(b: &mut Builder, at: Value, width: Number, single: Number) -> Result<Value> {
    let one = Number::Known(1.0);
    if let Some(width) = width.known()
        && width != 1.0
    {
        return Ok(at);
    }
    let (width, one, single) = (width.value(b)?, one.value(b)?, single.value(b)?);
    let is_one = b.map2(ScalarFn::Eq, width, one)?;
    b.select(is_one, single, at)
}

fn nearest_index(b: &mut Builder, node: &Node, at: Value, scale: Number, mode: &str) -> Result<Value> {
    let (half, one) = (Number::Known(0.5), Number::Known(1.0));
    let rounded = match mode {
        "floor" => b.map1(ScalarFn::Floor, at)?,
        "ceil" => b.map1(ScalarFn::Ceil, at)?,
        // Opset 10 does not define the rounding. As in its test cases, it is upwards when the result is smaller.
        "simple" if scale.known().is_some_and(|s| s < 1.0) => b.map1(ScalarFn::Ceil, at)?,
        "simple" if scale.known().is_some() => b.map1(ScalarFn::Floor, at)?,
        "simple" => {
            let (floor, ceil) = (b.map1(ScalarFn::Floor, at)?, b.map1(ScalarFn::Ceil, at)?);
            let (scale, one) = (scale.value(b)?, one.value(b)?);
            let is_smaller = b.map2(ScalarFn::Lt, scale, one)?;
            b.select(is_smaller, ceil, floor)?
        }
        "round_prefer_floor" => {
            let shifted = half.map(b, ScalarFn::Sub, at)?;
            b.map1(ScalarFn::Ceil, shifted)?
        }
        "round_prefer_ceil" => {
            let shifted = half.map(b, ScalarFn::Add, at)?;
            b.map1(ScalarFn::Floor, shifted)?
        }
        other => return Err(node.error("E0106", format!("`nearest_mode` = {other} is not known"))),
    };
    b.convert(rounded, DType::I64)
}

/// The sum over the neighbours of each position, weighted by the filter. For antialiasing the filter is widened by the
/// factor by which the result is smaller.
fn weighted(b: &mut Builder, node: &Node, x: Value, plan: &Axis, at: Value, mode: &Mode) -> Result<Value> {
    let one = Number::Known(1.0);
    let squeeze = if mode.antialias { plan.scale.min(b, one)? } else { one };
    let support = match mode.kind.as_str() {
        "linear" => 1.0,
        "cubic" => 2.0,
        other => return Err(node.error("E0106", format!("`mode` = {other} is not known"))),
    };
    // Neighbours from ⌊-support / squeeze⌋ + 1 on, with as many below as above.
    let first = Number::Known(-support).div(b, squeeze)?.floor(b)?.add(b, one)?;
    let twice = first.mul(b, Number::Known(-2.0))?;
    let count = twice.add(b, Number::Known(2.0))?;
    if count.known().is_some_and(|n| n.is_nan() || n > TAPS_MAX) {
        return Err(node.error("E0202", "the scale is too small for antialiasing"));
    }
    let grid = [plan.to.clone(), count.dim(b)?];
    let floor = b.map1(ScalarFn::Floor, at)?;
    let rest = b.map2(ScalarFn::Sub, at, floor)?;
    let tap = b.add_typed(Op::Iota { axis: 1 }, &[], Some(TensorType::new(DType::I64, grid.to_vec())))?;
    let tap = b.convert(tap, DType::F64)?;
    let tap = first.map(b, ScalarFn::Add, tap)?;
    let (floor, rest) = (b.broadcast_at(floor, vec![0], &grid)?, b.broadcast_at(rest, vec![0], &grid)?);
    let distance = b.map2(ScalarFn::Sub, tap, rest)?;
    let distance = b.map1(ScalarFn::Abs, distance)?;
    let distance = squeeze.map(b, ScalarFn::Mul, distance)?;
    let mut weight = if support == 1.0 { tent(b, distance)? } else { cubic(b, distance, mode.cubic)? };
    let index = b.map2(ScalarFn::Add, floor, tap)?;
    let index = b.convert(index, DType::I64)?;
    let clamped = edge(b, index, &plan.from)?;
    if mode.excludes_outside {
        let inside = b.map2(ScalarFn::Eq, index, clamped)?;
        let zero = b.splat(DType::F64, 0.0, &grid)?;
        weight = b.select(inside, weight, zero)?;
    }
    if mode.excludes_outside || mode.antialias {
        let sum = b.reduce(ReduceFn::Add, weight, &[1], false)?;
        let sum = b.broadcast_at(sum, vec![0], &grid)?;
        weight = b.map2(ScalarFn::Div, weight, sum)?;
    }
    let weight = b.convert(weight, b.dtype(x))?;
    let near = b.add(Op::Gather { axis: plan.axis }, &[x, clamped])?;
    let dims = b.dims(near);
    let weight = b.broadcast_at(weight, vec![plan.axis, plan.axis + 1], &dims)?;
    let part = b.map2(ScalarFn::Mul, near, weight)?;
    b.reduce(ReduceFn::Add, part, &[plan.axis + 1], false)
}

/// max(1 - d, 0)
fn tent(b: &mut Builder, distance: Value) -> Result<Value> {
    let below = b.map1(ScalarFn::Neg, distance)?;
    let height = b.map_const(ScalarFn::Add, below, 1.0)?;
    b.map_const(ScalarFn::Max, height, 0.0)
}

/// Keys' cubic convolution: (a + 2)d³ - (a + 3)d² + 1 up to 1, a(d³ - 5d² + 8d - 4) up to 2.
pub fn cubic(b: &mut Builder, distance: Value, a: f64) -> Result<Value> {
    let polynomial = |b: &mut Builder, factors: [f64; 4]| -> Result<Value> {
        let mut sum = b.splat(b.dtype(distance), factors[0], &b.dims(distance))?;
        for factor in &factors[1..] {
            let product = b.map2(ScalarFn::Mul, sum, distance)?;
            sum = b.map_const(ScalarFn::Add, product, *factor)?;
        }
        Ok(sum)
    };
    let near = polynomial(b, [a + 2.0, -(a + 3.0), 0.0, 1.0])?;
    let far = polynomial(b, [a, -5.0 * a, 8.0 * a, -4.0 * a])?;
    let dims = b.dims(distance);
    let [one, two, zero] = [1.0, 2.0, 0.0].map(|v| b.splat(b.dtype(distance), v, &dims));
    let (is_near, is_far) = (b.map2(ScalarFn::Le, distance, one?)?, b.map2(ScalarFn::Lt, distance, two?)?);
    let outer = b.select(is_far, far, zero?)?;
    b.select(is_near, near, outer)
}

/// Replaces elements whose position is outside the operand by the model's extrapolation value.
fn extrapolated(b: &mut Builder, y: Value, plan: &Axis, at: Value, mode: &Mode) -> Result<Value> {
    let last = Number::of_dim(b, &plan.from)?.sub(b, Number::Known(1.0))?;
    let (zero, last) = (Number::Known(0.0).value(b)?, last.value(b)?);
    let (above, below) = (b.map2(ScalarFn::Le, zero, at)?, b.map2(ScalarFn::Le, at, last)?);
    let inside = b.map2(ScalarFn::And, above, below)?;
    let dims = b.dims(y);
    let inside = b.broadcast_at(inside, vec![plan.axis], &dims)?;
    let outside = b.splat(b.dtype(y), mode.extrapolation, &dims)?;
    b.select(inside, y, outside)
}
