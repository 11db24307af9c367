//! QuantizeLinear(x, scale, zero)  =>  convert(clamp(round(x / scale) + zero)), and the inverse

use super::builder::Builder;
use super::cast::converted;
use super::node::Node;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::Value;

type Outputs = Result<Vec<Value>>;

/// Operands: x, scale, zero point; the granularity follows from the shape of the scale.
pub fn quantize_linear(b: &mut Builder, node: &Node) -> Outputs {
    let (x, scale, zero) = (node.input(0)?, node.input(1)?, node.optional(2));
    let asked = given_dtype(node, "output_dtype")?;
    let to = match (zero.map(|z| b.dtype(z)), asked) {
        (Some(zero), Some(asked)) if zero != asked => {
            return Err(node.error("E0107", format!("`output_dtype` is {asked}, but the zero point is {zero}")));
        }
        (Some(t), _) | (None, Some(t)) => t,
        (None, None) => DType::U8,
    };
    if !(to.is_int() || to.is_float() && to.bits() <= 8) {
        return Err(node.error("E0107", format!("does not quantize to {to}")));
    }
    let precision = match (given_dtype(node, "precision")?, b.dtype(scale)) {
        (Some(t), _) => t,
        // f8e8m0 holds only powers of two, so the division is not done in it.
        (None, DType::F8E8M0) if b.dtype(x).is_float() => b.dtype(x),
        (None, DType::F8E8M0) => DType::F32,
        (None, t) => t,
    };
    let number = b.dtype(x).is_float() || b.dtype(x).is_int();
    if !number || !precision.is_float() || precision.bits() < 16 {
        return Err(node.error("E0107", format!("does not divide {} in {precision}", b.dtype(x))));
    }
    let (scale, zero) = spread_both(b, node, (scale, zero), x)?;
    let saturates = node.int_or("saturate", 1)? != 0;
    Ok(vec![quantized(b, x, (scale, zero), to, (precision, saturates))?])
}

pub fn dequantize_linear(b: &mut Builder, node: &Node) -> Outputs {
    let (x, scale, zero) = (node.input(0)?, node.input(1)?, node.optional(2));
    if let Some(t) = zero.map(|z| b.dtype(z)).filter(|t| *t != b.dtype(x)) {
        return Err(node.error("E0107", format!("the input is {}, but its zero point is {t}", b.dtype(x))));
    }
    let to = given_dtype(node, "output_dtype")?.unwrap_or(b.dtype(scale));
    let quantized = b.dtype(x).is_int() || b.dtype(x).is_float() && b.dtype(x).bits() <= 8;
    if !quantized || !to.is_float() || !b.dtype(scale).is_float() {
        return Err(node.error("E0107", format!("does not bring {} to {to} by {}", b.dtype(x), b.dtype(scale))));
    }
    let y = match whole_blocks(b, node, scale, x)? {
        Some((axis, block)) => in_blocks(b, (scale, zero), x, axis, block)?,
        None => {
            let (scale, zero) = spread_both(b, node, (scale, zero), x)?;
            dequantized(b, x, scale, zero)?
        }
    };
    Ok(vec![b.convert(y, to)?])
}

/// Axis and size of the blocks that have a scale each, if all blocks are whole.
fn whole_blocks(b: &mut Builder, node: &Node, scale: Value, x: Value) -> Result<Option<(usize, Dim)>> {
    let block = node.int_or("block_size", 0)?;
    if block <= 0 || b.rank(scale) != b.rank(x) || b.rank(x) == 0 {
        return Ok(None);
    }
    let axis = node.axis(node.int_or("axis", 1)?, b.rank(x))?;
    let whole = b.dims(x)[axis].as_const().is_some_and(|n| n % block == 0);
    Ok(whole.then_some((axis, Dim::constant(block))))
}

/// Dequantises x[.., n · block, ..] as x[.., n, block, ..] · scale[.., n, 1, ..]: the lowering of products recognises
/// weights with one scale per block by this structure.
pub fn in_blocks(
    b: &mut Builder,
    (scale, zero): (Value, Option<Value>),
    x: Value,
    axis: usize,
    block: Dim,
) -> Result<Value> {
    let whole = b.dims(x);
    let blocks = b.split_inner(x, axis, block)?;
    let each = |b: &mut Builder, v: Value| {
        let mut dims = b.dims(blocks);
        dims.remove(axis + 1);
        for (own, wanted) in b.dims(v).iter().zip(&dims) {
            b.unify(own, wanted)?;
        }
        dims.insert(axis + 1, Dim::constant(1));
        b.reshape(v, &dims)
    };
    let scale = each(b, scale)?;
    let zero = zero.map(|zero| each(b, zero)).transpose()?;
    let y = dequantized(b, blocks, scale, zero)?;
    b.reshape(y, &whole)
}

/// Quantises an f32 tensor to u8 with a single scale, from its range, which is extended to contain 0.
pub fn dynamic_quantize_linear(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    if b.dtype(x) != DType::F32 {
        return Err(node.error("E0107", format!("does not take {}", b.dtype(x))));
    }
    let (scale, zero) = range_of(b, x)?;
    let y = quantized(b, x, (scale, Some(zero)), DType::U8, (DType::F32, true))?;
    Ok(vec![y, scale, zero])
}

/// The scale and u8 zero point that [`dynamic_quantize_linear`] chooses; if all elements are 0, the scale is 1 / 255.
pub fn range_of(b: &mut Builder, x: Value) -> Result<(Value, Value)> {
    let axes: Vec<usize> = (0..b.rank(x)).collect();
    let high = b.reduce(ReduceFn::Max, x, &axes, false)?;
    let high = b.map_const(ScalarFn::Max, high, 0.0)?;
    let low = b.reduce(ReduceFn::Min, x, &axes, false)?;
    let low = b.map_const(ScalarFn::Min, low, 0.0)?;
    let span = b.map2(ScalarFn::Sub, high, low)?;
    let none = b.map2(ScalarFn::Eq, high, low)?;
    let one = b.splat(DType::F32, 1.0, &[])?;
    let span = b.select(none, one, span)?;
    let scale = b.map_const(ScalarFn::Div, span, 255.0)?;
    let steps = b.map2(ScalarFn::Div, low, scale)?;
    let zero = b.map1(ScalarFn::Neg, steps)?;
    let zero = clamp(b, zero, DType::U8)?;
    let zero = b.map1(ScalarFn::Round, zero)?;
    Ok((scale, b.convert(zero, DType::U8)?))
}

/// The element type that an attribute names; 0 means none.
fn given_dtype(node: &Node, name: &str) -> Result<Option<DType>> {
    if node.int_or(name, 0)? == 0 { Ok(None) } else { node.dtype(name) }
}

/// Makes scale and zero point broadcast to x. They have the same shape, or one element each.
fn spread_both(
    b: &mut Builder,
    node: &Node,
    (scale, zero): (Value, Option<Value>),
    x: Value,
) -> Result<(Value, Option<Value>)> {
    let zero = match zero {
        Some(zero) if b.rank(scale) == 0 => Some(b.single(zero)?),
        other => other,
    };
    Ok((spread(b, node, scale, x)?, zero.map(|z| spread(b, node, z, x)).transpose()?))
}

/// A scale or zero point with the dimensions needed to broadcast it to x: one for all elements, one for each index of
/// `axis`, or one for each block of `block_size` along it.
fn spread(b: &mut Builder, node: &Node, v: Value, x: Value) -> Result<Value> {
    let single = b.dims(v).iter().all(|d| d.is_const(1));
    let block = node.int_or("block_size", 0)?;
    match b.rank(v) {
        0 => Ok(v),
        1 if single => b.reshape(v, &[]),
        1 if block == 0 => along(b, node, v, x),
        rank if rank == b.rank(x) && block > 0 => repeated(b, node, v, x, block),
        _ if block < 0 => Err(node.error("E0106", format!("the attribute `block_size` is {block}"))),
        _ => {
            let message = format!("{} gives no scale to the elements of {}", b.ty(v), b.ty(x));
            let error = node.error("E0201", message);
            Err(error.help("give a scalar, a vector along `axis`, or with `block_size` one value for each block"))
        }
    }
}

fn along(b: &mut Builder, node: &Node, v: Value, x: Value) -> Result<Value> {
    let axis = node.axis(node.int_or("axis", 1)?, b.rank(x))?;
    let dim = b.dims(x)[axis].clone();
    let v = b.one_or_all(v, 0, &dim)?;
    let mut dims = b.dims(v);
    dims.resize(b.rank(x) - axis, Dim::constant(1));
    b.reshape(v, &dims)
}

/// v[.., n, ..] → [.., n, 1, ..] → [.., n, block, ..] → [.., n · block, ..], cut to the length that x has
fn repeated(b: &mut Builder, node: &Node, v: Value, x: Value, block: i64) -> Result<Value> {
    let axis = node.axis(node.int_or("axis", 1)?, b.rank(x))?;
    for i in 0..b.rank(x) {
        let (own, dim) = (b.dims(v)[i].clone(), b.dims(x)[i].clone());
        let wanted = if i == axis { dim.ceildiv(&Dim::constant(block)) } else { dim };
        b.unify(&own, &wanted)?;
    }
    let mut dims = b.dims(v);
    let at = (0..=dims.len()).filter(|i| *i != axis + 1).collect();
    dims.insert(axis + 1, Dim::constant(block));
    let blocks = b.broadcast_at(v, at, &dims)?;
    let size = dims.remove(axis + 1) * dims[axis].clone();
    dims[axis] = size;
    let whole = b.reshape(blocks, &dims)?;
    let count = b.dims(x)[axis].clone();
    b.slice_axis(whole, axis, Dim::constant(0), 1, count)
}

/// The least and the greatest value of an integer type of at most 32 bits.
fn bounds(t: DType) -> (f64, f64) {
    let values = 2f64.powi(t.bits() as i32);
    if t.is_signed_int() { (-values / 2.0, values / 2.0 - 1.0) } else { (0.0, values - 1.0) }
}

fn clamp(b: &mut Builder, x: Value, to: DType) -> Result<Value> {
    let (lo, hi) = bounds(to);
    let x = b.map_const(ScalarFn::Max, x, lo)?;
    b.map_const(ScalarFn::Min, x, hi)
}

/// Quantises x to type `to`. `by`: scale and zero point, broadcast to x; `how`: the type to divide in, and whether
/// floats of 8 bits saturate.
pub fn quantized(
    b: &mut Builder,
    x: Value,
    by: (Value, Option<Value>),
    to: DType,
    how: (DType, bool),
) -> Result<Value> {
    let (x, scale) = (b.convert(x, how.0)?, b.convert(by.0, how.0)?);
    let mut y = b.map2(ScalarFn::Div, x, scale)?;
    if to.is_int() {
        y = b.map1(ScalarFn::Round, y)?;
    }
    // A sum with a zero point has more digits than 16-bit types hold.
    if how.0.bits() < 32 && to.is_int() {
        y = b.convert(y, DType::F32)?;
    }
    if let Some(zero) = by.1 {
        let zero = b.convert(zero, b.dtype(y))?;
        y = b.map2(ScalarFn::Add, y, zero)?;
    }
    if to.is_int() {
        y = clamp(b, y, to)?;
        return b.convert(y, to);
    }
    converted(b, y, to, how.1)
}

/// (x - zero) · scale in f32.
pub fn dequantized(b: &mut Builder, x: Value, scale: Value, zero: Option<Value>) -> Result<Value> {
    let x = match zero {
        Some(zero) => difference(b, x, zero)?,
        None => x,
    };
    let (x, scale) = (b.convert(x, DType::F32)?, b.convert(scale, DType::F32)?);
    b.map2(ScalarFn::Mul, x, scale)
}

/// x - zero, exactly: in i32 for integers, in f32 for other types.
pub fn difference(b: &mut Builder, x: Value, zero: Value) -> Result<Value> {
    let exact = if b.dtype(x).is_int() { DType::I32 } else { DType::F32 };
    let (x, zero) = (b.convert(x, exact)?, b.convert(zero, exact)?);
    b.map2(ScalarFn::Sub, x, zero)
}
