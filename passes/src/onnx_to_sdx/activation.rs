//! Elu(x)  =>  select(x < 0, alpha * (exp(x) - 1), x)

use super::builder::Builder;
use super::node::Node;
use super::reduction::wide;
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::Value;

type Outputs = Result<Vec<Value>>;

fn float_input(b: &Builder, node: &Node) -> Result<Value> {
    let x = node.input(0)?;
    match b.dtype(x).is_float() {
        true => Ok(x),
        false => Err(node.error("E0107", format!("does not take {}", b.dtype(x)))),
    }
}

/// x < c
fn below(b: &mut Builder, x: Value, c: f64) -> Result<Value> {
    b.map_const(ScalarFn::Lt, x, c)
}

/// x > c
fn above(b: &mut Builder, x: Value, c: f64) -> Result<Value> {
    let c = b.splat(b.dtype(x), c, &b.dims(x))?;
    b.map2(ScalarFn::Lt, c, x)
}

/// exp(x) - 1, computed in f32 at least: in narrower types the difference would keep few digits.
fn power_less_one(b: &mut Builder, x: Value) -> Result<Value> {
    let dtype = b.dtype(x);
    let x = b.convert(x, wide(dtype))?;
    let power = b.map1(ScalarFn::Exp, x)?;
    let less = b.map_const(ScalarFn::Sub, power, 1.0)?;
    b.convert(less, dtype)
}

/// max(0, x) + min(0, alpha * (exp(x / alpha) - 1))
pub fn celu(b: &mut Builder, node: &Node) -> Outputs {
    let x = float_input(b, node)?;
    let alpha = node.float_or("alpha", 1.0)?;
    let scaled = b.map_const(ScalarFn::Div, x, alpha)?;
    let power = power_less_one(b, scaled)?;
    let power = b.map_const(ScalarFn::Mul, power, alpha)?;
    let low = b.map_const(ScalarFn::Min, power, 0.0)?;
    let high = b.map_const(ScalarFn::Max, x, 0.0)?;
    Ok(vec![b.map2(ScalarFn::Add, high, low)?])
}

pub fn elu(b: &mut Builder, node: &Node) -> Outputs {
    let x = float_input(b, node)?;
    let power = power_less_one(b, x)?;
    let low = b.map_const(ScalarFn::Mul, power, node.float_or("alpha", 1.0)?)?;
    let negative = below(b, x, 0.0)?;
    Ok(vec![b.select(negative, low, x)?])
}

/// gamma * (x > 0 ? x : alpha * exp(x) - alpha); the defaults are the paper's constants rounded to f32, with fewer
/// digits before opset 6.
pub fn selu(b: &mut Builder, node: &Node) -> Outputs {
    let x = float_input(b, node)?;
    let (alpha, gamma) = if node.opset < 6 { (1.6732, 1.0507) } else { (1.6732631921768188, 1.0507010221481323) };
    let (alpha, gamma) = (node.float_or("alpha", alpha)?, node.float_or("gamma", gamma)?);
    let power = power_less_one(b, x)?;
    let low = b.map_const(ScalarFn::Mul, power, alpha)?;
    let positive = above(b, x, 0.0)?;
    let y = b.select(positive, x, low)?;
    Ok(vec![b.map_const(ScalarFn::Mul, y, gamma)?])
}

/// max(0, min(1, alpha * x + beta))
fn hard_sigmoid_of(b: &mut Builder, x: Value, alpha: f64, beta: f64) -> Result<Value> {
    let scaled = b.map_const(ScalarFn::Mul, x, alpha)?;
    let shifted = b.map_const(ScalarFn::Add, scaled, beta)?;
    let high = b.map_const(ScalarFn::Min, shifted, 1.0)?;
    b.map_const(ScalarFn::Max, high, 0.0)
}

pub fn hard_sigmoid(b: &mut Builder, node: &Node) -> Outputs {
    let x = float_input(b, node)?;
    Ok(vec![hard_sigmoid_of(b, x, node.float_or("alpha", 0.2)?, node.float_or("beta", 0.5)?)?])
}

pub fn hard_swish(b: &mut Builder, node: &Node) -> Outputs {
    let x = float_input(b, node)?;
    let gate = hard_sigmoid_of(b, x, 1.0 / 6.0, 0.5)?;
    Ok(vec![b.map2(ScalarFn::Mul, x, gate)?])
}

/// log(1 + exp(x)), written so that exp cannot overflow: max(x, 0) + log(1 + exp(-|x|))
pub fn softplus_of(b: &mut Builder, x: Value) -> Result<Value> {
    let size = b.map1(ScalarFn::Abs, x)?;
    let size = b.map1(ScalarFn::Neg, size)?;
    let power = b.map1(ScalarFn::Exp, size)?;
    let sum = b.map_const(ScalarFn::Add, power, 1.0)?;
    let log = b.map1(ScalarFn::Log, sum)?;
    let high = b.map_const(ScalarFn::Max, x, 0.0)?;
    b.map2(ScalarFn::Add, high, log)
}

pub fn softplus(b: &mut Builder, node: &Node) -> Outputs {
    let x = float_input(b, node)?;
    Ok(vec![softplus_of(b, x)?])
}

/// x * tanh(softplus(x))
pub fn mish(b: &mut Builder, node: &Node) -> Outputs {
    let x = float_input(b, node)?;
    let soft = softplus_of(b, x)?;
    let gate = b.map1(ScalarFn::Tanh, soft)?;
    Ok(vec![b.map2(ScalarFn::Mul, x, gate)?])
}

/// x / (1 + exp(-alpha * x))
pub fn swish(b: &mut Builder, node: &Node) -> Outputs {
    let x = float_input(b, node)?;
    let scaled = b.map_const(ScalarFn::Mul, x, -node.float_or("alpha", 1.0)?)?;
    let power = b.map1(ScalarFn::Exp, scaled)?;
    let sum = b.map_const(ScalarFn::Add, power, 1.0)?;
    Ok(vec![b.map2(ScalarFn::Div, x, sum)?])
}

/// swish(gate) · value
pub fn swiglu(b: &mut Builder, node: &Node) -> Outputs {
    let gate = swish(b, node)?[0];
    Ok(vec![b.map2(ScalarFn::Mul, gate, node.input(1)?)?])
}

/// x / (1 + |x|)
pub fn softsign(b: &mut Builder, node: &Node) -> Outputs {
    let x = float_input(b, node)?;
    let size = b.map1(ScalarFn::Abs, x)?;
    let sum = b.map_const(ScalarFn::Add, size, 1.0)?;
    Ok(vec![b.map2(ScalarFn::Div, x, sum)?])
}

pub fn thresholded_relu(b: &mut Builder, node: &Node) -> Outputs {
    let x = float_input(b, node)?;
    let passes = above(b, x, node.float_or("alpha", 1.0)?)?;
    let zero = b.splat(b.dtype(x), 0.0, &b.dims(x))?;
    Ok(vec![b.select(passes, x, zero)?])
}

/// x < 0 ? slope * x : x; the slope broadcasts to x, never x to the slope. Before opset 7 it has one element, or one
/// per channel.
pub fn prelu(b: &mut Builder, node: &Node) -> Outputs {
    let (x, mut slope) = (node.input(0)?, node.input(1)?);
    if node.opset < 7
        && let ([n], rank @ 2..) = (b.dims(slope).as_slice(), b.rank(x))
    {
        let mut dims = vec![Dim::constant(1); rank - 1];
        dims[0] = n.clone();
        slope = b.reshape(slope, &dims)?;
    }
    ScalarFn::Mul.result(&[b.dtype(x), b.dtype(slope)]).map_err(|reason| node.error("E0107", reason))?;
    let scaled = b.map2(ScalarFn::Mul, x, slope)?;
    if b.rank(scaled) != b.rank(x) {
        return Err(node.error("E0201", format!("the slope {} does not broadcast to {}", b.ty(slope), b.ty(x))));
    }
    let negative = below(b, x, 0.0)?;
    Ok(vec![b.select(negative, scaled, x)?])
}

/// x < -lambd: x + bias; x > lambd: x - bias; else 0. Integers are computed in f64, as the bound may have a fraction.
pub fn shrink(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let dtype = b.dtype(x);
    if !dtype.is_float() && !dtype.is_int() {
        return Err(node.error("E0107", format!("does not take {dtype}")));
    }
    let wide = if dtype.is_float() { x } else { b.convert(x, sardonyx_base::DType::F64)? };
    let (lambda, bias) = (node.float_or("lambd", 0.5)?, node.float_or("bias", 0.0)?);
    let (low, high) = (below(b, wide, -lambda)?, above(b, wide, lambda)?);
    let (raised, lowered) = (b.map_const(ScalarFn::Add, wide, bias)?, b.map_const(ScalarFn::Sub, wide, bias)?);
    let zero = b.splat(b.dtype(wide), 0.0, &b.dims(wide))?;
    let rest = b.select(high, lowered, zero)?;
    let y = b.select(low, raised, rest)?;
    Ok(vec![b.convert(y, dtype)?])
}
