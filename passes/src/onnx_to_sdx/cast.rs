//! Cast(x, to)  =>  sdx.convert, after clamping if the cast saturates, and rounding if the target is f8e8m0

use super::builder::Builder;
use super::node::Node;
use sardonyx_base::minifloat::{self, E8M0_MIN};
use sardonyx_base::{DType, Result};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::Value;

type Outputs = Result<Vec<Value>>;

/// Rounding mode of a cast to f8e8m0.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    Up,
    Down,
    Nearest,
}

pub fn cast(b: &mut Builder, node: &Node) -> Outputs {
    let to = node.require("to", node.dtype("to")?)?;
    cast_to(b, node, to)
}

/// Casts to the type of the second input, whose values are not used.
pub fn cast_like(b: &mut Builder, node: &Node) -> Outputs {
    let to = b.dtype(node.input(1)?);
    cast_to(b, node, to)
}

fn plain(t: DType) -> bool {
    t.is_int() || t.is_float() || t == DType::Bool
}

fn cast_to(b: &mut Builder, node: &Node, to: DType) -> Outputs {
    let x = node.input(0)?;
    if [to, b.dtype(x)].contains(&DType::String) && [to, b.dtype(x)].iter().all(|t| plain(*t) || *t == DType::String) {
        return Ok(vec![super::texts::cast(b, x, to)?]);
    }
    if !plain(to) || !plain(b.dtype(x)) {
        return Err(node.error("E0107", format!("a cast from {} to {to} is not supported", b.dtype(x))));
    }
    let saturates = node.int_or("saturate", 1)? != 0;
    if b.dtype(x).is_float() && to.is_int() && to.bits() < 8 {
        return Ok(vec![low_bits(b, x, to)?]);
    }
    if to != DType::F8E8M0 {
        return Ok(vec![converted(b, x, to, saturates)?]);
    }
    let round = match node.str_or("round_mode", "up")?.as_str() {
        "up" => Round::Up,
        "down" => Round::Down,
        "nearest" => Round::Nearest,
        other => {
            let error = node.error("E0106", format!("the attribute `round_mode` is `{other}`"));
            return Err(error.help("it is up, down or nearest"));
        }
    };
    Ok(vec![to_power(b, x, round, saturates)?])
}

/// Casts to an integer of less than 8 bits by taking the low bits of the integer part. ONNX leaves out-of-range values
/// undefined; exporters that compute 4-bit weights in a model rely on the low bits.
fn low_bits(b: &mut Builder, x: Value, to: DType) -> Result<Value> {
    let whole = b.convert(x, DType::I32)?;
    b.convert(whole, to)
}

/// `sdx.convert`; if `saturates`, values too large for an 8-bit float are first clamped to its largest number.
pub fn converted(b: &mut Builder, x: Value, to: DType, saturates: bool) -> Result<Value> {
    let from = b.dtype(x);
    // Infinities saturate too, so even source types whose numbers all fit are clamped.
    let limit = minifloat::format(to).filter(|_| saturates && to.bits() == 8 && from != to && from != DType::Bool);
    let Some(limit) = limit else { return b.convert(x, to) };
    let x = if from.is_float() && from.bits() >= 16 { x } else { b.convert(x, DType::F32)? };
    let x = b.map_const(ScalarFn::Max, x, -limit.max())?;
    let x = b.map_const(ScalarFn::Min, x, limit.max())?;
    b.convert(x, to)
}

/// Converts to f8e8m0 through f32, which has the same exponent.
fn to_power(b: &mut Builder, x: Value, round: Round, saturates: bool) -> Result<Value> {
    let mut x = b.convert(x, DType::F32)?;
    if saturates {
        x = b.map_const(ScalarFn::Max, x, E8M0_MIN)?;
        x = b.map_const(ScalarFn::Min, x, 2f64.powi(127))?;
    }
    if round != Round::Nearest {
        x = whole_power(b, x, round)?;
    }
    b.convert(x, DType::F8E8M0)
}

/// Rounds to a power of two, by the bits of the f32; NaN and values up to the least power stay.
fn whole_power(b: &mut Builder, x: Value, round: Round) -> Result<Value> {
    let mut bits = b.reinterpret(x, DType::I32)?;
    if round == Round::Up {
        bits = b.map_const(ScalarFn::Add, bits, f64::from(0x7F_FFFF))?;
    }
    let exponent = b.map_const(ScalarFn::BitAnd, bits, f64::from(0xFFi32 << 23))?;
    let power = b.reinterpret(exponent, DType::F32)?;
    // The least power is a subnormal f32, and so are the values just above it: their exponent bits are 0.
    let power = b.map_const(ScalarFn::Max, power, E8M0_MIN)?;
    let least = b.splat(DType::F32, E8M0_MIN, &b.dims(x))?;
    let above = b.map2(ScalarFn::Lt, least, x)?;
    b.select(above, power, x)
}

/// Reinterprets the bits as another type of the same width.
pub fn bit_cast(b: &mut Builder, node: &Node) -> Outputs {
    let (x, to) = (node.input(0)?, node.require("to", node.dtype("to")?)?);
    let from = b.dtype(x);
    if !plain(from) || !plain(to) {
        return Err(node.error("E0107", format!("the bits of {from} as {to} are not supported")));
    }
    if from.bits() != to.bits() {
        let message = format!("{from} has {} bits, {to} has {}", from.bits(), to.bits());
        return Err(node.error("E0106", message).help("choose `to` of the width of the input's type"));
    }
    Ok(vec![b.reinterpret(x, to)?])
}
