//! BatchNormalization, InstanceNormalization, GroupNormalization, LRN, …  =>  reduce over spatial dimensions and,
//! by operator, over the batch or groups of channels, then map

use super::builder::Builder;
use super::elementwise::sigmoid_of;
use super::node::Node;
use super::reduction::{divide_by, mean, normalise_over, spread};
use super::windows::with_channels_last;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Value, WindowSpec};

type Outputs = Result<Vec<Value>>;

/// The type in which statistics are computed: f32 at least.
fn stash(b: &Builder, node: &Node, x: Value) -> Result<DType> {
    match b.dtype(x) {
        DType::F64 => Ok(DType::F64),
        dtype if dtype.is_float() => Ok(DType::F32),
        dtype => Err(node.error("E0107", format!("does not take {dtype}"))),
    }
}

/// Broadcasts a vector with one number per channel to the dimensions of x.
fn per_channel(b: &mut Builder, node: &Node, v: Value, x: Value) -> Result<Value> {
    if b.rank(v) != 1 || b.rank(x) < 2 {
        return Err(node.error("E0201", format!("{} is not one number per channel of {}", b.ty(v), b.ty(x))));
    }
    let (own, channels) = (b.dims(v)[0].clone(), b.dims(x)[1].clone());
    b.unify(&own, &channels)?;
    let dims = b.dims(x);
    b.broadcast_at(v, vec![1], &dims)
}

/// (x - mean) / sqrt(variance + epsilon) · scale + bias, with the given statistics or, in training, with the statistics
/// of the batch, which also update the running statistics.
pub fn batch_normalization(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let (dtype, stash) = (b.dtype(x), stash(b, node, x)?);
    let training = node.opset >= 14 && node.int_or("training_mode", 0)? != 0;
    let x = b.convert(x, stash)?;
    let [scale, bias] = [node.input(1)?, node.input(2)?];
    let (scale, bias) = (b.convert(scale, stash)?, b.convert(bias, stash)?);
    let [average, variance] = [node.input(3)?, node.input(4)?];
    let (mut average, mut variance) = (b.convert(average, stash)?, b.convert(variance, stash)?);
    let mut running = vec![];
    if training {
        let axes: Vec<usize> = (0..b.rank(x)).filter(|&i| i != 1).collect();
        let momentum = node.float_or("momentum", 0.9)?;
        let now = mean(b, x, &axes)?;
        let dims = b.dims(x);
        let repeated = spread(b, now, &axes, &dims)?;
        let centred = b.map2(ScalarFn::Sub, x, repeated)?;
        let squares = b.map2(ScalarFn::Mul, centred, centred)?;
        let wide = mean(b, squares, &axes)?;
        for (i, now) in [(3, now), (4, wide)] {
            let before = node.input(i)?;
            let old = b.convert(before, stash)?;
            let old = b.map_const(ScalarFn::Mul, old, momentum)?;
            let new = b.map_const(ScalarFn::Mul, now, 1.0 - momentum)?;
            let sum = b.map2(ScalarFn::Add, old, new)?;
            running.push(b.convert(sum, b.dtype(before))?);
        }
        (average, variance) = (now, wide);
    }
    let wide = b.map_const(ScalarFn::Add, variance, node.float_or("epsilon", 1e-5)?)?;
    let deviation = b.map1(ScalarFn::Sqrt, wide)?;
    // Factor and shift per channel. If the statistics are constants, both are computed at compile time.
    let factor = b.map2(ScalarFn::Div, scale, deviation)?;
    let moved = b.map2(ScalarFn::Mul, average, factor)?;
    let shift = b.map2(ScalarFn::Sub, bias, moved)?;
    let spread = |b: &mut Builder, v: Value| match b.rank(v) {
        1 => per_channel(b, node, v, x),
        // Before opset 9 there may be one number per element of a sample instead.
        rank if node.opset < 9 && rank + 1 == b.rank(x) => b.broadcast(v, &b.dims(x).clone()),
        _ => Err(node.error("E0201", format!("{} is not one number per channel of {}", b.ty(v), b.ty(x)))),
    };
    let (factor, shift) = (spread(b, factor)?, spread(b, shift)?);
    let scaled = b.map2(ScalarFn::Mul, x, factor)?;
    let y = b.map2(ScalarFn::Add, scaled, shift)?;
    let mut out = vec![b.convert(y, dtype)?];
    out.append(&mut running);
    Ok(out)
}

/// Normalises each channel of each batch element over the spatial dimensions.
pub fn instance_normalization(b: &mut Builder, node: &Node) -> Outputs {
    let (x, scale, bias) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let (dtype, stash) = (b.dtype(x), stash(b, node, x)?);
    let wide = b.convert(x, stash)?;
    let axes: Vec<usize> = (2..b.rank(x)).collect();
    let y = normalise_over(b, wide, &axes, node.float_or("epsilon", 1e-5)?, true)?.y;
    let (scale, bias) = (b.convert(scale, stash)?, b.convert(bias, stash)?);
    let scale = per_channel(b, node, scale, y)?;
    let y = b.map2(ScalarFn::Mul, y, scale)?;
    let bias = per_channel(b, node, bias, y)?;
    let y = b.map2(ScalarFn::Add, y, bias)?;
    Ok(vec![b.convert(y, dtype)?])
}

/// Normalises each group of x[n, g, c, …] over its channels and the spatial dimensions. Scale and bias are per group
/// before opset 21, per channel since.
pub fn group_normalization(b: &mut Builder, node: &Node) -> Outputs {
    let (x, scale, bias) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let (dtype, stash) = (b.dtype(x), stash(b, node, x)?);
    let groups = node.require("num_groups", node.int("num_groups")?)?;
    if groups < 1 || b.rank(x) < 2 {
        return Err(node.error("E0106", format!("{groups} groups of the channels of {}", b.ty(x))));
    }
    let wide = b.convert(x, stash)?;
    let (mut y, merged) = by_groups(b, node, wide, groups)?;
    let by_channel = node.opset >= 21;
    if by_channel {
        y = b.reshape(y, &merged)?;
        y = b.convert(y, dtype)?;
    }
    let own = b.dtype(y);
    for (f, v) in [(ScalarFn::Mul, scale), (ScalarFn::Add, bias)] {
        let v = b.convert(v, own)?;
        let v = per_channel(b, node, v, y)?;
        y = b.map2(f, y, v)?;
    }
    let y = if by_channel { y } else { b.reshape(y, &merged)? };
    Ok(vec![b.convert(y, dtype)?])
}

/// Returns x[n, c, …] normalised in the layout [n, g, c / g, …], and the dimensions of x.
fn by_groups(b: &mut Builder, node: &Node, x: Value, groups: i64) -> Result<(Value, Vec<Dim>)> {
    let parts = b.split_axis(x, 1, Dim::constant(groups))?;
    let axes: Vec<usize> = (2..b.rank(parts)).collect();
    let y = normalise_over(b, parts, &axes, node.float_or("epsilon", 1e-5)?, true)?.y;
    let dims = b.dims(y);
    let mut merged = vec![dims[0].clone(), dims[1].clone() * dims[2].clone()];
    merged.extend_from_slice(&dims[3..]);
    Ok((y, merged))
}

/// com.microsoft GroupNorm of x, and SkipGroupNorm of x + skip + bias: normalises each group over its channels and the
/// spatial dimensions, with a scale and a bias per channel, and applies an activation. The second result is the
/// operand, that is, the sum in SkipGroupNorm.
pub fn microsoft_group_norm(b: &mut Builder, node: &Node) -> Outputs {
    let (mut x, scale, bias) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let groups = node.require("groups", node.int("groups")?)?;
    if groups < 1 || b.rank(x) != 4 {
        return Err(node.error("E0106", format!("{groups} groups of the channels of {}", b.ty(x))));
    }
    let is_last = node.int_or("channels_last", 1)? != 0;
    if node.op_type == "SkipGroupNorm" {
        for v in [Some(node.input(3)?), node.optional(4)].into_iter().flatten() {
            let (mut dims, one) = (b.dims(v), Dim::constant(1));
            if dims.len() < 3 {
                let channels = dims.pop().unwrap_or(one.clone());
                let row = dims.pop().unwrap_or(one.clone());
                dims =
                    if is_last { vec![row, one.clone(), one, channels] } else { vec![row, channels, one.clone(), one] };
            }
            let v = b.reshape(v, &dims)?;
            x = b.map2(ScalarFn::Add, x, v)?;
        }
    }
    let normal = |b: &mut Builder, x: Value| {
        let dtype = b.dtype(x);
        let wide = b.convert(x, stash(b, node, x)?)?;
        let (y, merged) = by_groups(b, node, wide, groups)?;
        let mut y = b.reshape(y, &merged)?;
        for (f, v) in [(ScalarFn::Mul, scale), (ScalarFn::Add, bias)] {
            let v = b.convert(v, b.dtype(y))?;
            let v = per_channel(b, node, v, y)?;
            y = b.map2(f, y, v)?;
        }
        if node.int_or("activation", 0)? == 1 {
            let gate = sigmoid_of(b, y)?;
            y = b.map2(ScalarFn::Mul, y, gate)?;
        }
        b.convert(y, dtype)
    };
    let y = if is_last { with_channels_last(b, node, x, normal)? } else { normal(b, x)? };
    Ok(vec![y, x])
}

/// (x - mean) / (sqrt(variance) + 1e-9), by default over dimensions 0, 2 and 3.
pub fn mean_variance_normalization(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let (dtype, stash) = (b.dtype(x), stash(b, node, x)?);
    let given = node.ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
    let mut axes = given.into_iter().map(|a| node.axis(a, b.rank(x))).collect::<Result<Vec<_>>>()?;
    axes.sort_unstable();
    axes.dedup();
    let x = b.convert(x, stash)?;
    let dims = b.dims(x);
    let average = mean(b, x, &axes)?;
    let average = spread(b, average, &axes, &dims)?;
    let centred = b.map2(ScalarFn::Sub, x, average)?;
    let squares = b.map2(ScalarFn::Mul, centred, centred)?;
    let variance = mean(b, squares, &axes)?;
    let deviation = b.map1(ScalarFn::Sqrt, variance)?;
    let deviation = b.map_const(ScalarFn::Add, deviation, 1e-9)?;
    let deviation = spread(b, deviation, &axes, &dims)?;
    let y = b.map2(ScalarFn::Div, centred, deviation)?;
    Ok(vec![b.convert(y, dtype)?])
}

/// x / (bias + alpha / size · Σ x²)^beta over `size` adjacent channels; channels out of range count as 0.
pub fn lrn(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let (dtype, stash) = (b.dtype(x), stash(b, node, x)?);
    let size = node.require("size", node.int("size")?)?;
    if size < 1 || b.rank(x) < 2 {
        return Err(node.error("E0106", format!("`size` = {size} is no number of channels of {}", b.ty(x))));
    }
    let x = b.convert(x, stash)?;
    let squares = b.map2(ScalarFn::Mul, x, x)?;
    let (mut low, mut high) = (vec![Dim::constant(0); b.rank(x)], vec![Dim::constant(0); b.rank(x)]);
    (low[1], high[1]) = (Dim::constant((size - 1) / 2), Dim::constant(size / 2));
    let zero = b.splat(stash, 0.0, &[])?;
    let padded = b.pad(squares, zero, &low, &high)?;
    let channels = b.dims(x)[1].clone();
    let window = WindowSpec { axis: 1, size: Dim::constant(size), stride: 1, dilation: 1 };
    let near = b.window(padded, window, channels)?;
    let sum = b.reduce(ReduceFn::Add, near, &[b.rank(x)], false)?;
    let scaled = b.map_const(ScalarFn::Mul, sum, node.float_or("alpha", 1e-4)?)?;
    let scaled = divide_by(b, scaled, Dim::constant(size))?;
    let moved = b.map_const(ScalarFn::Add, scaled, node.float_or("bias", 1.0)?)?;
    let power = b.map_const(ScalarFn::Pow, moved, node.float_or("beta", 0.75)?)?;
    let y = b.map2(ScalarFn::Div, x, power)?;
    Ok(vec![b.convert(y, dtype)?])
}
