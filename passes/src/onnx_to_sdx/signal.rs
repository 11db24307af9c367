//! DFT(x)  =>  contract(x, cos and sin of 2π (k n mod N) / N), tables from iota; host "Fourier" for large N

use super::builder::Builder;
use super::coordinates::{axis_last, iota, last_to, one_element, scalar_index};
use super::dynamic::with_dims;
use super::node::Node;
use super::reduce_axes::around_axis;
use super::reduction::divide_by;
use sardonyx_base::host::ArrayOp;
use sardonyx_base::{DType, Dim, HostOp, Result};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, TensorType, Value};
use std::f64::consts::PI;

type Outputs = Result<Vec<Value>>;

/// Returns an input of one element as a dimension; `None` if the input is absent.
fn read_length(b: &mut Builder, node: &Node, i: usize) -> Result<Option<Dim>> {
    if node.optional(i).is_none() {
        return Ok(None);
    }
    let length = scalar_index(b, node, i)?;
    Ok(b.read_dims(length)?.into_iter().next())
}

/// Reads a signal [.., n, 1] or [.., n, 2]. If the last dimension is not known, zeros extend it to 2 (real, imaginary).
fn read_signal(b: &mut Builder, node: &Node) -> Result<Value> {
    let x = node.input(0)?;
    let parts = b.dims(x).last().cloned().unwrap_or(Dim::constant(0));
    let known = parts.as_const();
    if !b.dtype(x).is_float() || b.rank(x) < 2 || !matches!(known, None | Some(1 | 2)) {
        return Err(node
            .error("E0201", format!("takes a signal [.., n, 1] or [.., n, 2] of floats, not {}", b.ty(x)))
            .help("the last dimension holds the real, or the real and the imaginary part"));
    }
    if known.is_some() {
        return Ok(x);
    }
    let both = Dim::constant(2);
    b.require_at_most(&parts, &both)?;
    fitted(b, x, b.rank(x) - 1, &both)
}

/// DFT: the axis is an attribute (default 1) before opset 20, and an input (default -2) since.
pub fn dft(b: &mut Builder, node: &Node) -> Outputs {
    let x = read_signal(b, node)?;
    let rank = b.rank(x);
    let how = Transform { inverse: node.int_or("inverse", 0)? != 0, onesided: node.int_or("onesided", 0)? != 0 };
    let length = read_length(b, node, 1)?;
    let axis = match (node.opset < 20, node.optional(2)) {
        (true, _) => node.int_or("axis", 1)?,
        (false, None) => -2,
        (false, Some(_)) => {
            let axis = scalar_index(b, node, 2)?;
            match b.constants(axis).as_deref() {
                Some([known]) => *known,
                _ => return dft_along_data(b, x, axis, length, &how),
            }
        }
    };
    let axis = node.axis(axis, rank)?;
    if axis + 1 == rank {
        return Err(node.error("E0106", "the axis is that of the real and the imaginary part"));
    }
    // [lead, parts, n] => [lead, n, parts]
    let rows = b.transpose(x, axis_last(rank, axis))?;
    let last_two = |b: &mut Builder, v: Value| {
        let perm = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
        b.transpose(v, perm)
    };
    let rows = last_two(b, rows)?;
    let y = how.apply(b, rows, length)?;
    let y = last_two(b, y)?;
    Ok(vec![b.transpose(y, last_to(rank, axis))?])
}

/// The DFT along an axis that is known only from data: the signal is laid out as [before, n, after, parts].
fn dft_along_data(b: &mut Builder, x: Value, axis: Value, length: Option<Dim>, how: &Transform) -> Outputs {
    let parts = b.dims(x)[b.rank(x) - 1].clone();
    let around = around_axis(b, x, axis)?;
    let Ok([before, n, after]) = <[Dim; 3]>::try_from(b.dims(around.x)) else {
        return Err(b.error("E0201", "the axis has no signal"));
    };
    // The parts are the last of the dimensions after the axis.
    let after = after.floordiv(&parts);
    let split = with_dims(b, around.x, &[before, n, after, parts])?;
    let rows = b.transpose(split, vec![0, 2, 1, 3])?;
    let y = how.apply(b, rows, length)?;
    let bins = b.dims(y)[2].clone();
    let y = b.transpose(y, vec![0, 2, 1, 3])?;
    let mut dims = b.dims(x);
    dims.pop();
    let (own, bins) = (b.dims_vector(dims.clone())?, b.dims_scalar(bins)?);
    let is_axis = b.slice_axis(around.is_axis, 0, Dim::constant(0), 1, Dim::constant(dims.len() as i64))?;
    let dims = b.select(is_axis, bins, own)?;
    let mut dims = b.read_dims(dims)?;
    dims.push(b.dims(y)[3].clone());
    Ok(vec![with_dims(b, y, &dims)?])
}

/// Up to this many samples, the transform is a product with a table, which kernels compute on every device.
const TABLE_MAX: i64 = 512;

struct Transform {
    inverse: bool,
    onesided: bool,
}

impl Transform {
    /// x[lead, n, parts] => [lead, k, parts]; a signal that is shorter than `length` is padded with zeros. Sums are
    /// computed in f64: where the terms cancel, f32 would leave larger errors than a fast transform does.
    fn apply(&self, b: &mut Builder, x: Value, length: Option<Dim>) -> Result<Value> {
        let dtype = b.dtype(x);
        let wide = b.convert(x, DType::F64)?;
        let y = self.of_wide(b, wide, length)?;
        b.convert(y, dtype)
    }

    fn of_wide(&self, b: &mut Builder, x: Value, length: Option<Dim>) -> Result<Value> {
        let rank = b.rank(x);
        let half = |n: &Dim| n.floordiv(&Dim::constant(2)) + Dim::constant(1);
        let parts = b.dims(x)[rank - 1].as_const().unwrap_or(1);
        let given = b.dims(x)[rank - 2].clone();
        let backward = self.inverse && self.onesided;
        // A one-sided spectrum of n values is that of 2 (n - 1) samples, unless their number is given.
        let full = match (length, backward) {
            (Some(length), _) => length,
            (None, false) => given.clone(),
            (None, true) => (given.clone() - Dim::constant(1)) * Dim::constant(2),
        };
        let used = if backward { half(&full) } else { full.clone() };
        let x = fitted(b, x, rank - 2, &used)?;
        let part = |b: &mut Builder, i: i64| -> Result<Option<Value>> {
            if i >= parts {
                return Ok(None);
            }
            let one = b.slice_axis(x, rank - 1, Dim::constant(i), 1, Dim::constant(1))?;
            let dims = b.dims(x)[..rank - 1].to_vec();
            b.reshape(one, &dims).map(Some)
        };
        let (real, imaginary) = (part(b, 0)?, part(b, 1)?);
        let Some(real) = real else { return Err(b.error("E0201", "a signal has no part")) };
        let bins = if self.onesided && !backward { half(&full) } else { full.clone() };
        if full.as_const().is_none_or(|n| n > TABLE_MAX) {
            return self.fast(b, x, &bins, &full);
        }
        let (cos, sin) = tables(b, b.dtype(x), &used, &bins, &full)?;
        let product = |b: &mut Builder, v: Value, table: Value| rows_times(b, v, table);
        let scaled = |b: &mut Builder, v: Value| if self.inverse { divide_by(b, v, full.clone()) } else { Ok(v) };
        if backward {
            let y = self.real_signal(b, (real, imaginary), &used, &full)?;
            let y = scaled(b, y)?;
            let mut dims = b.dims(y);
            dims.push(Dim::constant(1));
            return b.reshape(y, &dims);
        }
        // (r + i j)(cos ∓ j sin): the sign is - for the forward transform and + for the inverse one.
        let mut re = product(b, real, cos)?;
        let mut im = product(b, real, sin)?;
        if !self.inverse {
            im = b.map1(ScalarFn::Neg, im)?;
        }
        if let Some(imaginary) = imaginary {
            let (turned, kept) = (product(b, imaginary, sin)?, product(b, imaginary, cos)?);
            re = b.map2(if self.inverse { ScalarFn::Sub } else { ScalarFn::Add }, re, turned)?;
            im = b.map2(ScalarFn::Add, im, kept)?;
        }
        let (re, im) = (scaled(b, re)?, scaled(b, im)?);
        let mut dims = b.dims(re);
        dims.push(Dim::constant(1));
        let (re, im) = (b.reshape(re, &dims)?, b.reshape(im, &dims)?);
        b.add(Op::Concat { axis: rank - 1 }, &[re, im])
    }

    /// x[lead, used, parts] => [lead, bins, parts] in n log n operations, on the host.
    fn fast(&self, b: &mut Builder, x: Value, bins: &Dim, full: &Dim) -> Result<Value> {
        let (real, backward) = (b.rank(x) - 1, self.inverse && self.onesided);
        let mut x = fitted(b, x, real, &Dim::constant(2))?;
        if backward {
            x = mirrored(b, x, full)?;
        }
        let (fourier, ty) = (HostOp::Array(ArrayOp::Fourier { inverse: self.inverse }), b.ty(x).clone());
        let mut y = b.host(fourier, &[x], &[ty], &[])?.remove(0);
        if bins != full {
            y = b.slice_axis(y, real - 1, Dim::constant(0), 1, bins.clone())?;
        }
        if backward {
            y = b.slice_axis(y, real, Dim::constant(0), 1, Dim::constant(1))?;
        }
        if self.inverse { divide_by(b, y, full.clone()) } else { Ok(y) }
    }

    /// Returns the samples of a one-sided spectrum. Each of its values also stands for the complex conjugate in the
    /// omitted half, except the first value and, for an even number of samples, the middle one.
    fn real_signal(&self, b: &mut Builder, x: (Value, Option<Value>), used: &Dim, full: &Dim) -> Result<Value> {
        let (real, imaginary) = x;
        let dtype = b.dtype(real);
        let (cos, sin) = tables(b, dtype, used, full, full)?;
        let place = iota(b, 0, std::slice::from_ref(used))?;
        let twice = b.map_const(ScalarFn::Mul, place, 2.0)?;
        let (whole, zero) = (b.dims_scalar(full.clone())?, b.dims_scalar(Dim::constant(0))?);
        let turned = b.map2(ScalarFn::Rem, twice, whole)?;
        let alone = b.map2(ScalarFn::Eq, turned, zero)?;
        let (one, two) = (b.splat(dtype, 1.0, &[])?, b.splat(dtype, 2.0, &[])?);
        let weight = b.select(alone, one, two)?;
        let real = b.map2(ScalarFn::Mul, real, weight)?;
        let y = rows_times(b, real, cos)?;
        let Some(imaginary) = imaginary else { return Ok(y) };
        let imaginary = b.map2(ScalarFn::Mul, imaginary, weight)?;
        let turned = rows_times(b, imaginary, sin)?;
        b.map2(ScalarFn::Sub, y, turned)
    }
}

/// Returns the whole spectrum of a real signal from its first half, x[lead, n / 2 + 1, 2]; the other half is the
/// complex conjugate of the first one.
fn mirrored(b: &mut Builder, x: Value, full: &Dim) -> Result<Value> {
    let parts = b.rank(x) - 1;
    let place = iota(b, 0, std::slice::from_ref(full))?;
    let used = b.dims_scalar(b.dims(x)[parts - 1].clone())?;
    let given = b.map2(ScalarFn::Lt, place, used)?;
    let whole = b.dims_scalar(full.clone())?;
    let opposite = b.map2(ScalarFn::Sub, whole, place)?;
    let at = b.select(given, place, opposite)?;
    let y = b.add(Op::Gather { axis: parts - 1 }, &[x, at])?;
    let dims = b.dims(y);
    let given = b.broadcast_at(given, vec![parts - 1], &dims)?;
    let part = iota(b, parts, &dims)?;
    let zero = b.dims_scalar(Dim::constant(0))?;
    let is_real = b.map2(ScalarFn::Eq, part, zero)?;
    let kept = b.map2(ScalarFn::Or, given, is_real)?;
    let negative = b.map1(ScalarFn::Neg, y)?;
    b.select(kept, y, negative)
}

/// x[lead, n] · table[n, k] → [lead, k]
fn rows_times(b: &mut Builder, x: Value, table: Value) -> Result<Value> {
    let mut dims = b.dims(x);
    let n = dims.pop().unwrap_or(Dim::constant(1));
    let flat = b.reshape(x, &[sardonyx_base::dim::product(&dims), n])?;
    let y = b.contract("mn,nk->mk", flat, table)?;
    dims.push(b.dims(y)[1].clone());
    b.reshape(y, &dims)
}

/// Returns tables [n, k] of cos and sin of 2π (n k mod N) / N. The product n k is reduced as an integer, so that it
/// loses no precision.
fn tables(b: &mut Builder, dtype: DType, n: &Dim, k: &Dim, full: &Dim) -> Result<(Value, Value)> {
    let dims = [n.clone(), k.clone()];
    let (row, column) = (iota(b, 0, &dims)?, iota(b, 1, &dims)?);
    let turns = b.map2(ScalarFn::Mul, row, column)?;
    let whole = b.dims_scalar(full.clone())?;
    let turns = b.map2(ScalarFn::Rem, turns, whole)?;
    let (turns, whole) = (b.convert(turns, DType::F64)?, b.convert(whole, DType::F64)?);
    let turns = b.map2(ScalarFn::Div, turns, whole)?;
    let angle = b.map_const(ScalarFn::Mul, turns, 2.0 * PI)?;
    let (cos, sin) = (b.map1(ScalarFn::Cos, angle)?, b.map1(ScalarFn::Sin, angle)?);
    Ok((b.convert(cos, dtype)?, b.convert(sin, dtype)?))
}

/// Returns the first `length` elements along an axis, padded with zeros if there are fewer.
pub fn fitted(b: &mut Builder, x: Value, axis: usize, length: &Dim) -> Result<Value> {
    let own = b.dims(x)[axis].clone();
    if own == *length {
        return Ok(x);
    }
    let kept = own.minimum(length);
    let part = b.slice_axis(x, axis, Dim::constant(0), 1, kept)?;
    let mut ty = b.ty(part).clone();
    ty.dims[axis] = length.clone();
    if ty == *b.ty(part) {
        return Ok(part);
    }
    let zero = b.splat(ty.dtype, 0.0, &[])?;
    let low = vec![Dim::constant(0); ty.rank()];
    b.add_typed(Op::Pad { low }, &[part, zero], Some(ty))
}

/// STFT: the transform of each frame of the signal, multiplied by the window.
pub fn stft(b: &mut Builder, node: &Node) -> Outputs {
    let (x, window) = (read_signal(b, node)?, node.optional(2));
    if b.rank(x) != 3 {
        return Err(node.error("E0201", format!("takes a signal [batch, n, parts], not {}", b.ty(x))));
    }
    let step = read_length(b, node, 1)?.ok_or_else(|| node.error("E0103", "`frame_step` is missing"))?;
    let given = read_length(b, node, 3)?;
    if let Some(w) = window {
        if b.rank(w) != 1 || b.dtype(w) != b.dtype(x) {
            return Err(node.error("E0201", format!("the window {} of {}", b.ty(w), b.ty(x))));
        }
        if let Some(given) = &given {
            let own = b.dims(w)[0].clone();
            b.unify(&own, given)?;
        }
    }
    let dims = b.dims(x);
    let length = match (window, given) {
        (Some(w), _) => b.dims(w)[0].clone(),
        (None, Some(given)) => given,
        (None, None) => dims[1].clone(),
    };
    let span = dims[1].clone() - length.clone();
    let count = match step.is_const(0) {
        true => return Err(node.error("E0106", "`frame_step` is 0")),
        false => span.floordiv(&step) + Dim::constant(1),
    };
    let places = [count, length];
    let (frame, offset) = (iota(b, 0, &places)?, iota(b, 1, &places)?);
    let step = b.dims_scalar(step)?;
    let start = b.map2(ScalarFn::Mul, frame, step)?;
    let at = b.map2(ScalarFn::Add, start, offset)?;
    // [batch, frames, length, parts]
    let mut frames = b.add(Op::Gather { axis: 1 }, &[x, at])?;
    if let Some(w) = window {
        let all = b.dims(frames);
        let w = b.broadcast_at(w, vec![2], &all)?;
        frames = b.map2(ScalarFn::Mul, frames, w)?;
    }
    let how = Transform { inverse: false, onesided: node.int_or("onesided", 1)? != 0 };
    Ok(vec![how.apply(b, frames, None)?])
}

/// Cosine sums a0 - a1 cos(2π n / N) + a2 cos(4π n / N), where N is the size or, for a symmetric window, one less.
static WINDOWS: &[(&str, [f64; 3])] = &[
    ("BlackmanWindow", [0.42, 0.5, 0.08]),
    ("HammingWindow", [25.0 / 46.0, 21.0 / 46.0, 0.0]),
    ("HannWindow", [0.5, 0.5, 0.0]),
];

pub fn window(b: &mut Builder, node: &Node) -> Outputs {
    let row = WINDOWS.iter().find(|(name, _)| *name == node.op_type);
    let (_, [level, first, second]) = row.ok_or_else(|| node.error("E0101", "is no window"))?;
    let dtype = output_type(node)?;
    let size = read_length(b, node, 0)?.ok_or_else(|| node.error("E0103", "`size` is missing"))?;
    let place = iota(b, 0, std::slice::from_ref(&size))?;
    let place = b.convert(place, DType::F64)?;
    let period = if node.int_or("periodic", 1)? != 0 { size } else { size - Dim::constant(1) };
    let turns = divide_by(b, place, period)?;
    let mut wave = |times: f64| {
        let angle = b.map_const(ScalarFn::Mul, turns, times * PI)?;
        b.map1(ScalarFn::Cos, angle)
    };
    let (once, twice) = (wave(2.0)?, wave(4.0)?);
    let once = b.map_const(ScalarFn::Mul, once, -first)?;
    let twice = b.map_const(ScalarFn::Mul, twice, *second)?;
    let sum = b.map2(ScalarFn::Add, once, twice)?;
    let sum = b.map_const(ScalarFn::Add, sum, *level)?;
    Ok(vec![b.convert(sum, dtype)?])
}

fn output_type(node: &Node) -> Result<DType> {
    let dtype = node.dtype("output_datatype")?.unwrap_or(DType::F32);
    match dtype.is_float() || dtype.is_int() {
        true => Ok(dtype),
        false => Err(node.error("E0107", format!("`output_datatype` is {dtype}"))),
    }
}

/// A scalar input of any numeric type as f64.
fn number(b: &mut Builder, node: &Node, i: usize) -> Result<Value> {
    let v = node.input(i)?;
    let v = b.convert(v, DType::F64)?;
    one_element(b, v)
}

/// 2595 log10(1 + f / 700)
fn mel(b: &mut Builder, hertz: Value) -> Result<Value> {
    let ratio = b.map_const(ScalarFn::Div, hertz, 700.0)?;
    let ratio = b.map_const(ScalarFn::Add, ratio, 1.0)?;
    let log = b.map1(ScalarFn::Log, ratio)?;
    b.map_const(ScalarFn::Mul, log, 2595.0 / std::f64::consts::LN_10)
}

/// MelWeightMatrix [bins, bands]: the weights of a band form a triangle over three adjacent edges. The edges are
/// equidistant on the mel scale and rounded down to bins of the spectrum. The weight of the middle edge is 1 even if
/// the edges of a band are equal.
pub fn mel_weight_matrix(b: &mut Builder, node: &Node) -> Outputs {
    let dtype = output_type(node)?;
    let bands = read_length(b, node, 0)?.ok_or_else(|| node.error("E0103", "`num_mel_bins` is missing"))?;
    let length = read_length(b, node, 1)?.ok_or_else(|| node.error("E0103", "`dft_length` is missing"))?;
    let (rate, low, high) = (number(b, node, 2)?, number(b, node, 3)?, number(b, node, 4)?);
    let (low, high) = (mel(b, low)?, mel(b, high)?);
    let edges = bands.clone() + Dim::constant(2);
    let span = b.map2(ScalarFn::Sub, high, low)?;
    let step = divide_by(b, span, edges.clone())?;
    let place = iota(b, 0, std::slice::from_ref(&edges))?;
    let place = b.convert(place, DType::F64)?;
    let raised = b.map2(ScalarFn::Mul, place, step)?;
    let mels = b.map2(ScalarFn::Add, raised, low)?;
    let exponent = b.map_const(ScalarFn::Mul, mels, std::f64::consts::LN_10 / 2595.0)?;
    let power = b.map1(ScalarFn::Exp, exponent)?;
    let hertz = b.map_const(ScalarFn::Sub, power, 1.0)?;
    let hertz = b.map_const(ScalarFn::Mul, hertz, 700.0)?;
    let longer = b.dims_scalar(length.clone() + Dim::constant(1))?;
    let longer = b.convert(longer, DType::F64)?;
    let bins = b.map2(ScalarFn::Mul, hertz, longer)?;
    let bins = b.map2(ScalarFn::Div, bins, rate)?;
    let bins = b.map1(ScalarFn::Floor, bins)?;
    let table = [length.floordiv(&Dim::constant(2)) + Dim::constant(1), bands.clone()];
    let edge = |b: &mut Builder, i: i64| -> Result<Value> {
        let part = b.slice_axis(bins, 0, Dim::constant(i), 1, bands.clone())?;
        b.broadcast(part, &table)
    };
    let (left, middle, right) = (edge(b, 0)?, edge(b, 1)?, edge(b, 2)?);
    let bin = b.add_typed(Op::Iota { axis: 0 }, &[], Some(TensorType::new(DType::I64, table.to_vec())))?;
    let bin = b.convert(bin, DType::F64)?;
    let slope = |b: &mut Builder, from: Value, to: Value, top: Value, bottom: Value| -> Result<Value> {
        let (rise, run) = (b.map2(ScalarFn::Sub, from, to)?, b.map2(ScalarFn::Sub, top, bottom)?);
        b.map2(ScalarFn::Div, rise, run)
    };
    let rising = slope(b, bin, left, middle, left)?;
    let falling = slope(b, right, bin, right, middle)?;
    let (zero, one) = (b.splat(DType::F64, 0.0, &[])?, b.splat(DType::F64, 1.0, &[])?);
    let peak = b.map2(ScalarFn::Eq, bin, middle)?;
    let below = b.map2(ScalarFn::Lt, bin, middle)?;
    let after_left = b.map2(ScalarFn::Le, left, bin)?;
    let up = b.map2(ScalarFn::And, below, after_left)?;
    let from_middle = b.map2(ScalarFn::Le, middle, bin)?;
    let before_right = b.map2(ScalarFn::Lt, bin, right)?;
    let down = b.map2(ScalarFn::And, from_middle, before_right)?;
    let y = b.select(down, falling, zero)?;
    let y = b.select(up, rising, y)?;
    let y = b.select(peak, one, y)?;
    Ok(vec![b.convert(y, dtype)?])
}
