//! Reduce*, Softmax, LayerNormalization  =>  reduce and map

use super::builder::Builder;
use super::node::Node;
use super::reduce_axes;
use sardonyx_base::dim::product;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::Value;

type Outputs = Result<Vec<Value>>;

/// Opsets since which the axes are an input; for other operators it is opset 18.
static AXES_INPUT_SINCE: &[(&str, i64)] = &[("ReduceSum", 13)];

pub fn reduce(b: &mut Builder, node: &Node) -> Outputs {
    let since = AXES_INPUT_SINCE.iter().find(|(n, _)| *n == node.op_type).map_or(18, |(_, v)| *v);
    let r = reduce_axes::read(b, node, since)?;
    let dtype = b.dtype(r.x);
    // Roots and logarithms of integers are computed in f64; bools are compared as numbers, with false less than true.
    let working = match node.op_type.as_str() {
        "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp" if dtype.is_int() => DType::F64,
        "ReduceMax" | "ReduceMin" if dtype == DType::Bool => DType::U8,
        "ReduceMax" | "ReduceMin" if dtype.is_float() => dtype,
        _ if dtype.is_float() => wide(dtype),
        _ if dtype.is_int() => dtype,
        _ => return Err(node.error("E0107", format!("does not take {dtype}"))),
    };
    let x = b.convert(r.x, working)?;
    let sum = |b: &mut Builder, x: Value| b.reduce(ReduceFn::Add, x, &r.axes, false);
    let y = match node.op_type.as_str() {
        "ReduceMax" => b.reduce(ReduceFn::Max, x, &r.axes, false)?,
        "ReduceMin" => b.reduce(ReduceFn::Min, x, &r.axes, false)?,
        "ReduceProd" => b.reduce(ReduceFn::Mul, x, &r.axes, false)?,
        "ReduceMean" => {
            let (total, count) = (sum(b, x)?, r.count(b));
            divide_by(b, total, count)?
        }
        "ReduceL1" => {
            let size = b.map1(ScalarFn::Abs, x)?;
            sum(b, size)?
        }
        "ReduceSumSquare" | "ReduceL2" => {
            let square = b.map2(ScalarFn::Mul, x, x)?;
            let total = sum(b, square)?;
            if node.op_type == "ReduceL2" { b.map1(ScalarFn::Sqrt, total)? } else { total }
        }
        "ReduceLogSum" => {
            let total = sum(b, x)?;
            b.map1(ScalarFn::Log, total)?
        }
        "ReduceLogSumExp" => log_sum_exp(b, x, &r.axes)?,
        _ => sum(b, x)?,
    };
    let y = b.convert(y, dtype)?;
    Ok(vec![r.finish(b, y)?])
}

/// max + log(sum(exp(x - max))); an infinite max is replaced by 0, as the formula without a shift is then exact.
fn log_sum_exp(b: &mut Builder, x: Value, axes: &[usize]) -> Result<Value> {
    let max = b.reduce(ReduceFn::Max, x, axes, false)?;
    let size = b.map1(ScalarFn::Abs, max)?;
    let finite = b.map_const(ScalarFn::Lt, size, f64::INFINITY)?;
    let zero = b.splat(b.dtype(x), 0.0, &b.dims(max))?;
    let max = b.select(finite, max, zero)?;
    let (_, sum) = shifted_by(b, x, max, axes)?;
    let log = b.map1(ScalarFn::Log, sum)?;
    b.map2(ScalarFn::Add, log, max)
}

/// x / |x|_p along an axis; 0 where the norm is 0.
pub fn lp_normalization(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    if !b.dtype(x).is_float() {
        return Err(node.error("E0107", format!("does not take {}", b.dtype(x))));
    }
    let axis = node.axis(node.int_or("axis", -1)?, b.rank(x))?;
    let y = computed_wide(b, x, |b, x| norm_of_one(b, node, x, axis))?;
    Ok(vec![y])
}

fn norm_of_one(b: &mut Builder, node: &Node, x: Value, axis: usize) -> Result<Value> {
    let norm = match node.int_or("p", 2)? {
        1 => {
            let size = b.map1(ScalarFn::Abs, x)?;
            b.reduce(ReduceFn::Add, size, &[axis], false)?
        }
        2 => {
            let square = b.map2(ScalarFn::Mul, x, x)?;
            let sum = b.reduce(ReduceFn::Add, square, &[axis], false)?;
            b.map1(ScalarFn::Sqrt, sum)?
        }
        p => return Err(node.error("E0106", format!("the norm p = {p} is neither 1 nor 2"))),
    };
    let norm = spread(b, norm, &[axis], &b.dims(x))?;
    let zero = b.splat(b.dtype(x), 0.0, &b.dims(x))?;
    let empty = b.map2(ScalarFn::Eq, norm, zero)?;
    let y = b.map2(ScalarFn::Div, x, norm)?;
    b.select(empty, zero, y)
}

/// x / count, where the count is an expression over the symbols.
pub fn divide_by(b: &mut Builder, x: Value, count: Dim) -> Result<Value> {
    if let Some(n) = count.as_const() {
        return b.map_const(ScalarFn::Div, x, n as f64);
    }
    let n = b.dims_scalar(count)?;
    let n = b.convert(n, b.dtype(x))?;
    b.map2(ScalarFn::Div, x, n)
}

pub fn mean(b: &mut Builder, x: Value, axes: &[usize]) -> Result<Value> {
    let count = product(axes.iter().map(|&i| &b.ty(x).dims[i]));
    let sum = b.reduce(ReduceFn::Add, x, axes, false)?;
    divide_by(b, sum, count)
}

/// Repeats a value that lacks `axes` along them.
pub fn spread(b: &mut Builder, x: Value, axes: &[usize], dims: &[Dim]) -> Result<Value> {
    let at = (0..dims.len()).filter(|i| !axes.contains(i)).collect();
    b.broadcast_at(x, at, dims)
}

/// exp(x - max) / sum: over one axis since opset 13, before over all axes from `axis` on. Computed in f32 at least.
pub fn softmax(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    if !b.dtype(x).is_float() {
        return Err(node.error("E0107", format!("does not take {}", b.dtype(x))));
    }
    let rank = b.rank(x);
    let first = node.axis(node.int_or("axis", if node.opset < 13 { 1 } else { -1 })?, rank)?;
    let axes: Vec<usize> = if node.opset < 13 { (first..rank).collect() } else { vec![first] };
    let dtype = b.dtype(x);
    let x = b.convert(x, wide(dtype))?;
    let y = match node.op_type.as_str() {
        "Softmax" => softmax_over(b, x, &axes)?,
        _ => log_softmax_over(b, x, &axes)?,
    };
    Ok(vec![b.convert(y, dtype)?])
}

/// x - max - log(sum(exp(x - max)))
pub fn log_softmax_over(b: &mut Builder, x: Value, axes: &[usize]) -> Result<Value> {
    let ((shifted, _), sum) = shifted_power_sum(b, x, axes)?;
    let log = b.map1(ScalarFn::Log, sum)?;
    let log = spread(b, log, axes, &b.dims(x))?;
    b.map2(ScalarFn::Sub, shifted, log)
}

/// ((x - max, exp(x - max)), sum)
fn shifted_power_sum(b: &mut Builder, x: Value, axes: &[usize]) -> Result<((Value, Value), Value)> {
    let max = b.reduce(ReduceFn::Max, x, axes, false)?;
    shifted_by(b, x, max, axes)
}

/// ((x - max, exp(x - max)), sum)
fn shifted_by(b: &mut Builder, x: Value, max: Value, axes: &[usize]) -> Result<((Value, Value), Value)> {
    let max = spread(b, max, axes, &b.dims(x))?;
    let shifted = b.map2(ScalarFn::Sub, x, max)?;
    let power = b.map1(ScalarFn::Exp, shifted)?;
    let sum = b.reduce(ReduceFn::Add, power, axes, false)?;
    Ok(((shifted, power), sum))
}

/// exp(x - max) / sum over the axes
pub fn softmax_over(b: &mut Builder, x: Value, axes: &[usize]) -> Result<Value> {
    let ((_, power), sum) = shifted_power_sum(b, x, axes)?;
    let sum = spread(b, sum, axes, &b.dims(x))?;
    b.map2(ScalarFn::Div, power, sum)
}

/// As softmax, but 0 in a row of only -inf, as for a query that sees no key. The sum over any other row is at least
/// exp(0), so that bounding the sum from below by 1 does not change it.
pub fn softmax_of_visible(b: &mut Builder, x: Value, axes: &[usize]) -> Result<Value> {
    let max = b.reduce(ReduceFn::Max, x, axes, false)?;
    let finite = b.map_const(ScalarFn::Max, max, lowest(b.dtype(x)))?;
    let ((_, power), sum) = shifted_by(b, x, finite, axes)?;
    let sum = b.map_const(ScalarFn::Max, sum, 1.0)?;
    let sum = spread(b, sum, axes, &b.dims(x))?;
    b.map2(ScalarFn::Div, power, sum)
}

/// The lowest finite number of a float type.
fn lowest(dtype: DType) -> f64 {
    let (exponent, digits) = match dtype.bits() {
        64 => return f64::MIN,
        16 if dtype == DType::F16 => (15, 10),
        16 => (127, 7),
        _ => (127, 23),
    };
    -(2.0 - 2f64.powi(-digits)) * 2f64.powi(exponent)
}

/// Results of a layer normalisation: the normalised value, the mean, and 1 / deviation.
pub struct Normalised {
    pub y: Value,
    pub mean: Value,
    pub inverse: Value,
}

/// (x - mean) / sqrt(mean((x - mean)²) + epsilon); the mean is subtracted only if `centre`.
pub fn normalise_over(b: &mut Builder, x: Value, axes: &[usize], epsilon: f64, centre: bool) -> Result<Normalised> {
    let dims = b.dims(x);
    let average = mean(b, x, axes)?;
    let centred = match centre {
        true => {
            let average = spread(b, average, axes, &dims)?;
            b.map2(ScalarFn::Sub, x, average)?
        }
        false => x,
    };
    let squares = b.map2(ScalarFn::Mul, centred, centred)?;
    let variance = mean(b, squares, axes)?;
    let padded = b.map_const(ScalarFn::Add, variance, epsilon)?;
    let deviation = b.map1(ScalarFn::Sqrt, padded)?;
    let one = b.splat(b.dtype(x), 1.0, &b.dims(deviation))?;
    let inverse = b.map2(ScalarFn::Div, one, deviation)?;
    let spread_inverse = spread(b, inverse, axes, &dims)?;
    let y = b.map2(ScalarFn::Mul, centred, spread_inverse)?;
    Ok(Normalised { y, mean: average, inverse })
}

/// Layer normalisation over the last dimension, with scale and bias.
pub fn normalise(b: &mut Builder, x: Value, scale: Value, bias: Option<Value>, epsilon: f64) -> Result<Value> {
    let last = b.rank(x).saturating_sub(1);
    let dtype = b.dtype(x);
    let x = b.convert(x, wide(dtype))?;
    let y = normalise_over(b, x, &[last], epsilon, true)?.y;
    let y = b.convert(y, dtype)?;
    let y = b.map2(ScalarFn::Mul, y, scale)?;
    match bias {
        Some(bias) => b.map2(ScalarFn::Add, y, bias),
        None => Ok(y),
    }
}

/// LayerNormalization, RMSNormalization, SimplifiedLayerNormalization: over the dimensions from `axis` on, computed in
/// f32 at least.
pub fn layer_normalization(b: &mut Builder, node: &Node) -> Outputs {
    let (input, scale) = (node.input(0)?, node.input(1)?);
    let dtype = b.dtype(input);
    if !dtype.is_float() {
        return Err(node.error("E0107", format!("does not take {dtype}")));
    }
    let centre = node.op_type == "LayerNormalization";
    let x = b.convert(input, wide(dtype))?;
    let axis = node.axis(node.int_or("axis", -1)?, b.rank(x))?;
    let axes: Vec<usize> = (axis..b.rank(x)).collect();
    let n = normalise_over(b, x, &axes, node.float_or("epsilon", 1e-5)?, centre)?;
    // The scale may have another type than the input; the result has that type.
    let mut y = b.convert(n.y, b.dtype(scale))?;
    y = b.map2(ScalarFn::Mul, y, scale)?;
    if let Some(bias) = node.optional(2) {
        y = b.map2(ScalarFn::Add, y, bias)?;
    }
    let kept = |d: (usize, Dim)| if d.0 < axis { d.1 } else { Dim::constant(1) };
    let kept: Vec<Dim> = b.dims(x).into_iter().enumerate().map(kept).collect();
    let stash = node.dtype("stash_type")?.unwrap_or(DType::F32);
    if !stash.is_float() {
        return Err(node.error("E0107", format!("no mean is computed in {stash}")));
    }
    let shown = |b: &mut Builder, v: Value| {
        let v = b.reshape(v, &kept)?;
        b.convert(v, stash)
    };
    let inverse = shown(b, n.inverse)?;
    if !centre {
        return Ok(vec![y, inverse]);
    }
    Ok(vec![y, shown(b, n.mean)?, inverse])
}

/// The type in which a float type is accumulated: f32 at least.
pub fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Computes `f` in the accumulation type and rounds once: in 16-bit types a sum may overflow where the mean does not.
pub fn computed_wide(b: &mut Builder, x: Value, f: impl FnOnce(&mut Builder, Value) -> Result<Value>) -> Result<Value> {
    let dtype = b.dtype(x);
    let x = b.convert(x, wide(dtype))?;
    let y = f(b, x)?;
    b.convert(y, dtype)
}

/// com.microsoft Skip(Simplified)LayerNormalization: normalises the sum of two operands (and a bias), which is also an
/// output.
pub fn skip_layer_normalization(b: &mut Builder, node: &Node) -> Outputs {
    let (input, skip, scale) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let centre = node.op_type == "SkipLayerNormalization";
    let (shift, bias) = if centre { (node.optional(3), node.optional(4)) } else { (None, node.optional(3)) };
    let mut sum = b.map2(ScalarFn::Add, input, skip)?;
    if let Some(bias) = bias {
        sum = b.map2(ScalarFn::Add, sum, bias)?;
    }
    let Some(axis) = b.rank(sum).checked_sub(1) else { return Err(node.error("E0201", "a scalar has no channels")) };
    let dtype = b.dtype(sum);
    if !dtype.is_float() {
        return Err(node.error("E0107", format!("does not take {dtype}")));
    }
    let x = b.convert(sum, wide(dtype))?;
    let n = normalise_over(b, x, &[axis], node.float_or("epsilon", 1e-12)?, centre)?;
    let y = b.convert(n.y, dtype)?;
    let mut y = b.map2(ScalarFn::Mul, y, scale)?;
    if let Some(shift) = shift {
        y = b.map2(ScalarFn::Add, y, shift)?;
    }
    let mut kept = b.dims(sum);
    kept[axis] = Dim::constant(1);
    let (mean, inverse) = (b.reshape(n.mean, &kept)?, b.reshape(n.inverse, &kept)?);
    Ok(vec![y, mean, inverse, sum])
}
