//! QLinearMatMul(a, b)  =>  quantize(contract(a - zero, b - zero) · scales): operators on quantised tensors
//!
//! Products of integers are accumulated in i32; everything else is computed on the dequantised values.

use super::builder::Builder;
use super::convolution::{biased, convolve};
use super::indexing::places;
use super::linear::matmul_of;
use super::node::Node;
use super::pooling::average_pool_of;
use super::quantize::{dequantized, difference, in_blocks, quantized, range_of};
use super::reduce_axes;
use super::reduction::{mean, softmax_over};
use super::windows::in_layout;
use crate::options::Activations;
use sardonyx_base::dim::product;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};

type Outputs = Result<Vec<Value>>;

/// Makes a scale or zero point broadcastable to a matrix; a vector has one entry per row of the matrix if `left`, else
/// one per column.
fn by_line(b: &mut Builder, v: Value, matrix: Value, left: bool) -> Result<Value> {
    let (dims, from_end) = (b.dims(matrix), if left { 2 } else { 1 });
    let line = dims.len().checked_sub(from_end).map(|at| dims[at].clone());
    match (line, b.rank(v)) {
        (Some(n), 1) if !b.dims(v)[0].is_const(1) => {
            let lines = b.one_or_all(v, 0, &n)?;
            if left { b.reshape(lines, &[n, Dim::constant(1)]) } else { Ok(lines) }
        }
        _ => b.single(v),
    }
}

/// Returns an operand minus its zero point, which is broadcast: in i32 for integers, in f32 for floats of 8 bits.
fn centred(b: &mut Builder, node: &Node, x: Value, zero: Option<Value>) -> Result<Value> {
    let t = b.dtype(x);
    if !(t.is_int() || t.is_float()) || t.bits() > 8 {
        return Err(node.error("E0107", format!("does not take {t}")));
    }
    match zero {
        Some(zero) => difference(b, x, zero),
        None => b.convert(x, if t.is_int() { DType::I32 } else { DType::F32 }),
    }
}

/// The product of two quantised matrices, each minus its zero point.
fn integer_product(
    b: &mut Builder,
    node: &Node,
    (x, x_zero): (Value, Option<Value>),
    (y, y_zero): (Value, Option<Value>),
) -> Result<Value> {
    let x_zero = x_zero.map(|z| by_line(b, z, x, true)).transpose()?;
    let y_zero = y_zero.map(|z| by_line(b, z, y, false)).transpose()?;
    let (left, right) = (centred(b, node, x, x_zero)?, centred(b, node, y, y_zero)?);
    matmul_of(b, node, left, right)
}

pub fn matmul_integer(b: &mut Builder, node: &Node) -> Outputs {
    let (x, y) = (node.input(0)?, node.input(1)?);
    Ok(vec![integer_product(b, node, (x, node.optional(2)), (y, node.optional(3)))?])
}

/// Operands: a, its scale and zero point; the same for b; scale and zero point of the result, whose type is that of the
/// zero point.
pub fn qlinear_matmul(b: &mut Builder, node: &Node) -> Outputs {
    let (x, y) = (node.input(0)?, node.input(3)?);
    let sums = integer_product(b, node, (x, node.optional(2)), (y, node.optional(5)))?;
    let (x_scale, y_scale) = (by_line(b, node.input(1)?, x, true)?, by_line(b, node.input(4)?, y, false)?);
    let values = scaled(b, sums, x_scale, y_scale)?;
    // A vector has one entry per row here too.
    let scale = by_line(b, node.input(6)?, values, true)?;
    let zero = node.optional(7).map(|z| by_line(b, z, values, true)).transpose()?;
    Ok(vec![requantized_by(b, node, values, (scale, zero))?])
}

/// i32 accumulators times the scales of both operands, in f32.
fn scaled(b: &mut Builder, sums: Value, x_scale: Value, y_scale: Value) -> Result<Value> {
    let (x_scale, y_scale) = (b.convert(x_scale, DType::F32)?, b.convert(y_scale, DType::F32)?);
    let scale = b.map2(ScalarFn::Mul, x_scale, y_scale)?;
    let sums = b.convert(sums, DType::F32)?;
    b.map2(ScalarFn::Mul, sums, scale)
}

/// Quantises by the scale at input `at` and the zero point after it.
fn requantized(b: &mut Builder, node: &Node, values: Value, at: usize) -> Result<Value> {
    let scale = b.single(node.input(at)?)?;
    let zero = node.optional(at + 1).map(|z| b.single(z)).transpose()?;
    requantized_by(b, node, values, (scale, zero))
}

/// Quantises values by a scale and a zero point. The result has the type of the zero point or, without one, that of the
/// first input.
fn requantized_by(b: &mut Builder, node: &Node, values: Value, by: (Value, Option<Value>)) -> Result<Value> {
    let to = by.1.map_or(b.dtype(node.input(0)?), |z| b.dtype(z));
    if !(to.is_int() || to.is_float() && to.bits() <= 8) {
        return Err(node.error("E0107", format!("does not quantize to {to}")));
    }
    quantized(b, values, by, to, (DType::F32, true))
}

/// The f32 values of the quantised tensor at input `at`, whose scale and zero point follow it.
fn values_of(b: &mut Builder, node: &Node, at: usize) -> Result<Value> {
    let (x, scale) = (node.input(at)?, node.input(at + 1)?);
    let scale = b.single(scale)?;
    let zero = node.optional(at + 2).map(|z| b.single(z)).transpose()?;
    dequantized(b, x, scale, zero)
}

/// com.microsoft.QLinearAdd
pub fn qlinear_add(b: &mut Builder, node: &Node) -> Outputs {
    of_two(b, node, ScalarFn::Add)
}

/// com.microsoft.QLinearMul
pub fn qlinear_mul(b: &mut Builder, node: &Node) -> Outputs {
    of_two(b, node, ScalarFn::Mul)
}

fn of_two(b: &mut Builder, node: &Node, f: ScalarFn) -> Outputs {
    let (x, y) = (values_of(b, node, 0)?, values_of(b, node, 3)?);
    let values = b.map2(f, x, y)?;
    Ok(vec![requantized(b, node, values, 6)?])
}

/// com.microsoft.QLinearLeakyRelu
pub fn qlinear_leaky_relu(b: &mut Builder, node: &Node) -> Outputs {
    let x = values_of(b, node, 0)?;
    let scaled = b.map_const(ScalarFn::Mul, x, node.float_or("alpha", 0.01)?)?;
    let below = b.map_const(ScalarFn::Lt, x, 0.0)?;
    let values = b.select(below, scaled, x)?;
    Ok(vec![requantized(b, node, values, 3)?])
}

/// com.microsoft.QLinearSigmoid
pub fn qlinear_sigmoid(b: &mut Builder, node: &Node) -> Outputs {
    let x = values_of(b, node, 0)?;
    let negated = b.map1(ScalarFn::Neg, x)?;
    let power = b.map1(ScalarFn::Exp, negated)?;
    let sum = b.map_const(ScalarFn::Add, power, 1.0)?;
    let one = b.splat(DType::F32, 1.0, &b.dims(x))?;
    let values = b.map2(ScalarFn::Div, one, sum)?;
    Ok(vec![requantized(b, node, values, 3)?])
}

/// com.microsoft.QLinearSoftmax: along `axis` for opset 13 and later, else over all axes from `axis` on.
pub fn qlinear_softmax(b: &mut Builder, node: &Node) -> Outputs {
    let x = values_of(b, node, 0)?;
    let axis = node.axis(node.int_or("axis", -1)?, b.rank(x))?;
    let axes: Vec<usize> = if node.int_or("opset", 13)? < 13 { (axis..b.rank(x)).collect() } else { vec![axis] };
    let values = softmax_over(b, x, &axes)?;
    Ok(vec![requantized(b, node, values, 3)?])
}

/// com.microsoft.QLinearGlobalAveragePool: the mean over all positions; the spatial axes stay as dimensions of 1.
pub fn qlinear_global_average_pool(b: &mut Builder, node: &Node) -> Outputs {
    let x = values_of(b, node, 0)?;
    let rank = b.rank(x);
    if rank < 3 {
        return Err(node.error("E0201", format!("takes images, not {}", b.ty(x))));
    }
    let axes: Vec<usize> =
        if node.int_or("channels_last", 0)? != 0 { (1..rank - 1).collect() } else { (2..rank).collect() };
    let places: Vec<Dim> = axes.iter().map(|&i| b.dims(x)[i].clone()).collect();
    let sum = b.reduce(ReduceFn::Add, x, &axes, true)?;
    let count = b.dims_scalar(product(&places))?;
    let count = b.convert(count, DType::F32)?;
    let values = b.map2(ScalarFn::Div, sum, count)?;
    Ok(vec![requantized(b, node, values, 3)?])
}

/// com.microsoft.QLinearConcat: scale and zero point of the result, then tensors, each followed by its scale and zero
/// point.
pub fn qlinear_concat(b: &mut Builder, node: &Node) -> Outputs {
    let n = node.inputs.len();
    if n < 5 || !(n - 2).is_multiple_of(3) {
        return Err(node.error("E0103", format!("{n} inputs are not two and three for each tensor")));
    }
    let values = (2..n).step_by(3).map(|at| values_of(b, node, at)).collect::<Result<Vec<_>>>()?;
    let rank = b.rank(values[0]);
    if let Some(other) = values.iter().find(|v| b.rank(**v) != rank) {
        return Err(node.error("E0201", format!("joins {} and {}", b.ty(values[0]), b.ty(*other))));
    }
    let axis = node.axis(node.require("axis", node.int("axis")?)?, rank)?;
    for i in (0..rank).filter(|i| *i != axis) {
        for v in &values[1..] {
            let (first, own) = (b.dims(values[0])[i].clone(), b.dims(*v)[i].clone());
            b.unify(&first, &own)?;
        }
    }
    let whole = b.add(Op::Concat { axis }, &values)?;
    Ok(vec![requantized_as(b, node, whole)?])
}

/// Quantises by the scale and zero point in the first two inputs.
fn requantized_as(b: &mut Builder, node: &Node, values: Value) -> Result<Value> {
    let (scale, zero) = (b.single(node.input(0)?)?, b.single(node.input(1)?)?);
    let to = b.dtype(zero);
    if !to.is_int() {
        return Err(node.error("E0107", format!("does not quantize to {to}")));
    }
    quantized(b, values, (scale, Some(zero)), to, (DType::F32, true))
}

/// com.microsoft.QLinearWhere: selects elements of two tensors, each with its own scale and zero point.
pub fn qlinear_where(b: &mut Builder, node: &Node) -> Outputs {
    let (x, y) = (values_of(b, node, 1)?, values_of(b, node, 4)?);
    let values = b.select(node.input(0)?, x, y)?;
    Ok(vec![requantized(b, node, values, 7)?])
}

/// com.microsoft.QLinearReduceMean
pub fn qlinear_reduce_mean(b: &mut Builder, node: &Node) -> Outputs {
    let r = reduce_axes::read(b, node, i64::MAX)?;
    let x = values_of(b, node, 0)?;
    let values = mean(b, x, &r.axes)?;
    let values = r.finish(b, values)?;
    Ok(vec![requantized(b, node, values, 3)?])
}

/// com.microsoft.QLinearAveragePool
pub fn qlinear_average_pool(b: &mut Builder, node: &Node) -> Outputs {
    let x = values_of(b, node, 0)?;
    let values = in_layout(b, node, x, |b, x| average_pool_of(b, node, x))?;
    Ok(vec![requantized(b, node, values, 3)?])
}

/// com.microsoft.QGemm: a, its scale and zero point; the same for b; c, an i32 with the scale of the product; scale and
/// zero point of the result, which is f32 without them.
pub fn qgemm(b: &mut Builder, node: &Node) -> Outputs {
    let matrix = |b: &mut Builder, at: usize, transposed: &str| {
        let x = node.input(at)?;
        match (b.rank(x), node.int_or(transposed, 0)?) {
            (2, 0) => Ok(x),
            (2, _) => b.transpose(x, vec![1, 0]),
            _ => Err(node.error("E0201", format!("takes matrices, not {}", b.ty(x)))),
        }
    };
    let (x, y) = (matrix(b, 0, "transA")?, matrix(b, 3, "transB")?);
    let mut sums = integer_product(b, node, (x, node.optional(2)), (y, node.optional(5)))?;
    if let Some(c) = node.optional(6) {
        sums = b.map2(ScalarFn::Add, sums, c)?;
    }
    let (x_scale, y_scale) = (b.single(node.input(1)?)?, by_line(b, node.input(4)?, y, false)?);
    let mut values = scaled(b, sums, x_scale, y_scale)?;
    let alpha = node.float_or("alpha", 1.0)?;
    if alpha != 1.0 {
        values = b.map_const(ScalarFn::Mul, values, alpha)?;
    }
    Ok(vec![if node.optional(7).is_some() { requantized(b, node, values, 7)? } else { values }])
}

/// com.microsoft.MatMulIntegerToFloat: operands a, b, their scales, their zero points, bias.
pub fn matmul_integer_to_float(b: &mut Builder, node: &Node) -> Outputs {
    let (x, y) = (node.input(0)?, node.input(1)?);
    let sums = integer_product(b, node, (x, node.optional(4)), (y, node.optional(5)))?;
    let (x_scale, y_scale) = (by_line(b, node.input(2)?, x, true)?, by_line(b, node.input(3)?, y, false)?);
    let values = scaled(b, sums, x_scale, y_scale)?;
    with_bias(b, values, node.optional(6))
}

/// com.microsoft.DynamicQuantizeMatMul: operands a (f32, quantised first), b, its scale, its zero point, bias.
pub fn dynamic_quantize_matmul(b: &mut Builder, node: &Node) -> Outputs {
    let a = node.input(0)?;
    if b.dtype(a) != DType::F32 {
        return Err(node.error("E0107", format!("does not take {}", b.dtype(a))));
    }
    let (a_scale, a_zero) = range_of(b, a)?;
    let narrow = quantized(b, a, (a_scale, Some(a_zero)), DType::U8, (DType::F32, true))?;
    let y = node.input(1)?;
    let sums = integer_product(b, node, (narrow, Some(a_zero)), (y, node.optional(3)))?;
    let scale = by_line(b, node.input(2)?, y, false)?;
    let values = scaled(b, sums, a_scale, scale)?;
    with_bias(b, values, node.optional(4))
}

fn with_bias(b: &mut Builder, values: Value, bias: Option<Value>) -> Outputs {
    Ok(vec![match bias {
        Some(bias) => b.map2(ScalarFn::Add, values, bias)?,
        None => values,
    }])
}

/// com.microsoft.MatMulNBits: y[.., n] = Σ_k a[.., k] · (q[n, k] - zero) · scale, where q has `bits` bits per element,
/// the first element in the lowest bits of a byte, and each block along k has its own scale and zero point. With
/// `accuracy_level` 4, blocks of a are rounded to bytes, too, unless the options say otherwise.
pub fn matmul_nbits(b: &mut Builder, node: &Node) -> Outputs {
    let (a, packed, scales) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let [k, n, bits, block] =
        [("K", 0), ("N", 0), ("bits", 4), ("block_size", 0)].map(|(name, d)| node.int_or(name, d));
    let (k, n, bits, block) = (k?, n?, bits?, block?);
    if !(1..1 << 31).contains(&k) || !(1..1 << 31).contains(&n) || !(16..=1 << 20).contains(&block) {
        return Err(node.error("E0106", format!("`K`, `N` and `block_size` are {k}, {n} and {block}")));
    }
    if ![2, 4, 8].contains(&bits) || b.dtype(packed) != DType::U8 {
        return Err(node.error("E0106", format!("weights of {bits} bits in {} are not supported", b.dtype(packed))));
    }
    if node.optional(4).is_some() {
        return Err(node.error("E0106", "an order of the weights (`g_idx`) is not supported"));
    }
    let in_bytes = match b.activations {
        Some(activations) => activations == Activations::Int8,
        None => node.int_or("accuracy_level", 0)? == 4,
    };
    // Codes of 2 bits are not multiplied as bytes.
    let fits = bits >= 4 && b.dtype(a) == DType::F32 && k % block == 0;
    let a = match b.rank(a).checked_sub(1).filter(|_| in_bytes && fits) {
        Some(last) => {
            let a = b.agree(a, last, &Dim::constant(k))?;
            rounded_to_bytes(b, a, block)?
        }
        None => a,
    };
    let n_blocks = (k + block - 1) / block;
    let (rows, blocks) = (Dim::constant(n), Dim::constant(n_blocks));
    let all = b.reshape(packed, &[rows.clone(), Dim::constant(n_blocks * block * bits / 8)])?;
    let weights = unpacked(b, all, bits, n_blocks * block)?;
    let weights = b.reshape(weights, &[rows.clone(), blocks.clone(), Dim::constant(block)])?;
    let (dtype, each) = (b.dtype(a), [rows.clone(), blocks.clone(), Dim::constant(1)]);
    let scales = b.reshape(scales, &each)?;
    let weights = b.convert(weights, dtype)?;
    let zero = match node.optional(3) {
        Some(zero) if b.dtype(zero) == DType::U8 => {
            let bytes = (n_blocks * bits + 7) / 8;
            let zero = b.reshape(zero, &[rows.clone(), Dim::constant(bytes)])?;
            let zero = unpacked(b, zero, bits, n_blocks)?;
            b.convert(zero, dtype)?
        }
        Some(zero) => b.convert(zero, dtype)?,
        None => b.splat(dtype, (1i64 << (bits - 1)) as f64, &each)?,
    };
    let zero = b.reshape(zero, &each)?;
    let centred = b.map2(ScalarFn::Sub, weights, zero)?;
    let scaled = b.map2(ScalarFn::Mul, centred, scales)?;
    let matrix = b.reshape(scaled, &[rows, Dim::constant(n_blocks * block)])?;
    let matrix = b.slice_axis(matrix, 1, Dim::constant(0), 1, Dim::constant(k))?;
    let matrix = b.transpose(matrix, vec![1, 0])?;
    let y = matmul_of(b, node, a, matrix)?;
    with_bias(b, y, node.optional(5))
}

/// Rounds f32 values to 8-bit codes without a zero point. Each block along the last axis has the scale with which its
/// largest magnitude is 127; of a block of zeros, the scale is that of 1.
fn rounded_to_bytes(b: &mut Builder, a: Value, block: i64) -> Result<Value> {
    let (dims, axis) = (b.dims(a), b.rank(a));
    let parts = b.split_inner(a, axis - 1, Dim::constant(block))?;
    let high = b.reduce(ReduceFn::Max, parts, &[axis], true)?;
    let low = b.reduce(ReduceFn::Min, parts, &[axis], true)?;
    let low = b.map1(ScalarFn::Neg, low)?;
    let largest = b.map2(ScalarFn::Max, high, low)?;
    let is_zero = b.map_const(ScalarFn::Eq, largest, 0.0)?;
    let each = b.dims(largest);
    let (one, most) = (b.splat(DType::F32, 1.0, &each)?, b.splat(DType::F32, 127.0, &each)?);
    let largest = b.select(is_zero, one, largest)?;
    let (steps, scale) = (b.map2(ScalarFn::Div, most, largest)?, b.map2(ScalarFn::Div, largest, most)?);
    let codes = b.map2(ScalarFn::Mul, parts, steps)?;
    let codes = b.map1(ScalarFn::Round, codes)?;
    let codes = b.convert(codes, DType::I8)?;
    let codes = b.convert(codes, DType::F32)?;
    let values = b.map2(ScalarFn::Mul, codes, scale)?;
    b.reshape(values, &dims)
}

/// com.microsoft.GatherBlockQuantized: dequantised rows of a quantised table. Each block along one axis has a scale and
/// possibly a zero point. If the table consists of bytes, each byte holds adjacent elements of the last dimension with
/// `bits` bits each.
pub fn gather_block_quantized(b: &mut Builder, node: &Node) -> Outputs {
    let (data, scales, rank) = (node.input(0)?, node.input(2)?, b.rank(node.input(0)?));
    let [rows, axis] = [("gather_axis", 0), ("quantize_axis", 1)].map(|(n, d)| node.axis(node.int_or(n, d)?, rank));
    let (rows, axis, bits) = (rows?, axis?, node.int_or("bits", 4)?);
    let (in_bytes, block) = (b.dtype(data) == DType::U8, node.int_or("block_size", 128)?);
    if rows == axis || b.rank(scales) != rank || block < 1 || ![2, 4, 8].contains(&bits) || in_bytes && rows + 1 == rank
    {
        let reason = format!("blocks of {block} along dimension {axis} of {}, {bits} bits each", b.ty(data));
        return Err(node.error("E0106", format!("{reason}, looked up along dimension {rows}, are not supported")));
    }
    let at = places(b, node, data, rows)?;
    let codes = |b: &mut Builder, v: Value| {
        let found = b.add(Op::Gather { axis: rows }, &[v, at])?;
        let (mut dims, last) = (b.dims(found), b.rank(found) - 1);
        let Some(bytes) = dims[last].as_const().filter(|_| in_bytes) else { return Ok(found) };
        let flat = b.reshape(found, &[product(&dims[..last]), dims[last].clone()])?;
        let elements = unpacked(b, flat, bits, bytes * 8 / bits)?;
        dims[last] = Dim::constant(bytes * 8 / bits);
        b.reshape(elements, &dims)
    };
    let x = codes(b, data)?;
    let scale = b.add(Op::Gather { axis: rows }, &[scales, at])?;
    let zero = match node.optional(3) {
        Some(zero) => Some(codes(b, zero)?),
        None if in_bytes => {
            let dims = b.dims(scale);
            Some(b.splat(DType::I32, (1i64 << (bits - 1)) as f64, &dims)?)
        }
        None => None,
    };
    let axis = if axis < rows { axis } else { axis + b.rank(at) - 1 };
    if b.dims(x)[axis].as_const().is_none_or(|n| n % block != 0) {
        let reason = format!("dimension {axis} of {} is not made of blocks of {block}", b.ty(x));
        return Err(node.error("E0201", reason));
    }
    let y = in_blocks(b, (scale, zero), x, axis, Dim::constant(block))?;
    Ok(vec![b.convert(y, b.dtype(scales))?])
}

/// bytes[n, m] → elements[n, count] of `bits` each, low bits first.
fn unpacked(b: &mut Builder, bytes: Value, bits: i64, count: i64) -> Result<Value> {
    if bits == 8 {
        return Ok(bytes);
    }
    let (dims, parts) = (b.dims(bytes), Dim::constant(8 / bits));
    let apart = [dims[0].clone(), dims[1].clone(), parts.clone()];
    let repeated = b.broadcast_at(bytes, vec![0, 1], &apart)?;
    let at =
        b.add_typed(Op::Iota { axis: 2 }, &[], Some(sardonyx_dialects::sdx::TensorType::new(DType::I64, apart)))?;
    let amounts = b.map_const(ScalarFn::Mul, at, bits as f64)?;
    let amounts = b.convert(amounts, DType::U8)?;
    let shifted = b.map2(ScalarFn::Shr, repeated, amounts)?;
    let elements = b.map_const(ScalarFn::BitAnd, shifted, ((1i64 << bits) - 1) as f64)?;
    let elements = b.convert(elements, if bits == 4 { DType::U4 } else { DType::U2 })?;
    let flat = b.reshape(elements, &[dims[0].clone(), dims[1].clone() * parts])?;
    b.slice_axis(flat, 1, Dim::constant(0), 1, Dim::constant(count))
}

/// Makes a scale or zero point of the weights or the result of a convolution broadcastable to `of`: one for all, or one
/// per kernel; dimension `axis` of `of` numbers the kernels.
fn by_kernel(b: &mut Builder, v: Value, of: Value, axis: usize) -> Result<Value> {
    if b.rank(v) != 1 || b.dims(v)[0].is_const(1) || b.rank(of) <= axis {
        return b.single(v);
    }
    let kernels = b.dims(of)[axis].clone();
    let column = b.one_or_all(v, 0, &kernels)?;
    let mut dims = b.dims(column);
    dims.resize(b.rank(of) - axis, Dim::constant(1));
    b.reshape(column, &dims)
}

/// Returns the convolution of both operands minus their zero points: in i32 for integers, in f32 for floats of 8 bits.
/// Padding is 0 after the subtraction.
fn convolved(b: &mut Builder, node: &Node, x: (Value, Option<Value>), w: (Value, Option<Value>)) -> Result<Value> {
    let x_zero = x.1.map(|z| b.single(z)).transpose()?;
    let w_zero = w.1.map(|z| by_kernel(b, z, w.0, 0)).transpose()?;
    let (x, w) = (centred(b, node, x.0, x_zero)?, centred(b, node, w.0, w_zero)?);
    convolve(b, node, x, w)
}

pub fn conv_integer(b: &mut Builder, node: &Node) -> Outputs {
    let (x, w) = (node.input(0)?, node.input(1)?);
    Ok(vec![convolved(b, node, (x, node.optional(2)), (w, node.optional(3)))?])
}

/// Operands: x, its scale and zero point; the same for the weights; scale and zero point of the result; an i32 bias.
/// The com.microsoft variant may have channels last in x and the result, but not in the weights.
pub fn qlinear_conv(b: &mut Builder, node: &Node) -> Outputs {
    let (x, w) = (node.input(0)?, node.input(3)?);
    let y = in_layout(b, node, x, |b, x| {
        let sums = convolved(b, node, (x, node.optional(2)), (w, node.optional(5)))?;
        let sums = biased(b, node, sums, node.optional(8))?;
        let x_scale = b.single(node.input(1)?)?;
        let w_scale = by_kernel(b, node.input(4)?, sums, 1)?;
        let values = scaled(b, sums, x_scale, w_scale)?;
        requantized(b, node, values, 6)
    });
    Ok(vec![y?])
}
