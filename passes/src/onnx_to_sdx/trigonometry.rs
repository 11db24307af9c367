//! Asin(x)  =>  map "atan"(x / sqrt((1 - x)(1 + x))): functions composed of sin, cos, exp, log, tanh and atan
//!
//! Each formula keeps its relative precision near zeros and ends of its range: a few units in the last place.

use super::builder::Builder;
use super::elementwise::floats_only;
use super::node::Node;
use super::reduction::computed_wide;
use sardonyx_base::Result;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::Value;

type Outputs = Result<Vec<Value>>;

/// Magnitude from which log(2x) equals the inverse hyperbolic sine and cosine, to the last bit of an f64.
const FAR: f64 = 1e9;

/// Computes 16-bit types in f32 and rounds once.
fn in_f32(b: &mut Builder, node: &Node, f: impl FnOnce(&mut Builder, Value) -> Result<Value>) -> Outputs {
    let x = node.input(0)?;
    floats_only(b, node, x)?;
    Ok(vec![computed_wide(b, x, f)?])
}

pub fn tan(b: &mut Builder, node: &Node) -> Outputs {
    in_f32(b, node, |b, x| {
        let (sine, cosine) = (b.map1(ScalarFn::Sin, x)?, b.map1(ScalarFn::Cos, x)?);
        b.map2(ScalarFn::Div, sine, cosine)
    })
}

/// 1 - x and 1 + x
fn around_one(b: &mut Builder, x: Value) -> Result<(Value, Value)> {
    let one = b.splat(b.dtype(x), 1.0, &b.dims(x))?;
    Ok((b.map2(ScalarFn::Sub, one, x)?, b.map2(ScalarFn::Add, one, x)?))
}

pub fn asin(b: &mut Builder, node: &Node) -> Outputs {
    in_f32(b, node, |b, x| {
        let (below, above) = around_one(b, x)?;
        let square = b.map2(ScalarFn::Mul, below, above)?;
        let cosine = b.map1(ScalarFn::Sqrt, square)?;
        let tangent = b.map2(ScalarFn::Div, x, cosine)?;
        b.map1(ScalarFn::Atan, tangent)
    })
}

/// 2 atan(sqrt((1 - x) / (1 + x)))
pub fn acos(b: &mut Builder, node: &Node) -> Outputs {
    in_f32(b, node, |b, x| {
        let (below, above) = around_one(b, x)?;
        let square = b.map2(ScalarFn::Div, below, above)?;
        let tangent = b.map1(ScalarFn::Sqrt, square)?;
        let half = b.map1(ScalarFn::Atan, tangent)?;
        b.map_const(ScalarFn::Mul, half, 2.0)
    })
}

/// (exp(|x|) / 2, exp(-|x|) / 2), where the first overflows no sooner than the hyperbolic functions do.
fn halves_of_exp(b: &mut Builder, x: Value) -> Result<(Value, Value)> {
    let size = b.map1(ScalarFn::Abs, x)?;
    let half = b.map_const(ScalarFn::Mul, size, 0.5)?;
    let root = b.map1(ScalarFn::Exp, half)?;
    let part = b.map_const(ScalarFn::Mul, root, 0.5)?;
    let high = b.map2(ScalarFn::Mul, part, root)?;
    let one = b.splat(b.dtype(x), 0.5, &b.dims(x))?;
    let part = b.map2(ScalarFn::Div, one, root)?;
    Ok((high, b.map2(ScalarFn::Div, part, root)?))
}

pub fn cosh(b: &mut Builder, node: &Node) -> Outputs {
    in_f32(b, node, |b, x| {
        let (high, low) = halves_of_exp(b, x)?;
        b.map2(ScalarFn::Add, high, low)
    })
}

/// Sinh. For |x| < 1 the exponentials would cancel, so the result is 2t / (1 - t²) with t = tanh(x / 2).
pub fn sinh(b: &mut Builder, node: &Node) -> Outputs {
    in_f32(b, node, |b, x| {
        let (high, low) = halves_of_exp(b, x)?;
        let size = b.map2(ScalarFn::Sub, high, low)?;
        let sign = b.map1(ScalarFn::Sign, x)?;
        let far = b.map2(ScalarFn::Mul, sign, size)?;
        let half = b.map_const(ScalarFn::Mul, x, 0.5)?;
        let t = b.map1(ScalarFn::Tanh, half)?;
        let (below, above) = around_one(b, t)?;
        let below = b.map2(ScalarFn::Mul, below, above)?;
        let twice = b.map_const(ScalarFn::Mul, t, 2.0)?;
        let near = b.map2(ScalarFn::Div, twice, below)?;
        let size = b.map1(ScalarFn::Abs, x)?;
        let is_near = b.map_const(ScalarFn::Lt, size, 1.0)?;
        b.select(is_near, near, far)
    })
}

/// log(1 + z) for z >= -1: log(u) z / (u - 1), where u is 1 + z rounded.
fn log1p(b: &mut Builder, z: Value) -> Result<Value> {
    let u = b.map_const(ScalarFn::Add, z, 1.0)?;
    let log = b.map1(ScalarFn::Log, u)?;
    let kept = b.map_const(ScalarFn::Sub, u, 1.0)?;
    let ratio = b.map2(ScalarFn::Div, z, kept)?;
    let mended = b.map2(ScalarFn::Mul, log, ratio)?;
    // `exact`: rounding lost nothing, or z is infinite. `nothing`: z is too small to change 1.
    let exact = b.map2(ScalarFn::Eq, kept, z)?;
    let y = b.select(exact, log, mended)?;
    let nothing = b.map_const(ScalarFn::Eq, kept, 0.0)?;
    b.select(nothing, z, y)
}

/// `near`, but log(x) + log(2) from [`FAR`] on.
fn or_far(b: &mut Builder, near: Value, x: Value) -> Result<Value> {
    let log = b.map1(ScalarFn::Log, x)?;
    let far = b.map_const(ScalarFn::Add, log, std::f64::consts::LN_2)?;
    let limit = b.splat(b.dtype(x), FAR, &b.dims(x))?;
    let is_far = b.map2(ScalarFn::Lt, limit, x)?;
    b.select(is_far, far, near)
}

/// `size` with the sign of x; x itself where that is 0.
fn signed(b: &mut Builder, size: Value, x: Value) -> Result<Value> {
    let negated = b.map1(ScalarFn::Neg, size)?;
    let below = b.map_const(ScalarFn::Lt, x, 0.0)?;
    let y = b.select(below, negated, size)?;
    let zero = b.map_const(ScalarFn::Eq, x, 0.0)?;
    b.select(zero, x, y)
}

/// sgn(x) log1p(|x| + x² / (1 + sqrt(1 + x²)))
pub fn asinh(b: &mut Builder, node: &Node) -> Outputs {
    in_f32(b, node, |b, x| {
        let size = b.map1(ScalarFn::Abs, x)?;
        let square = b.map2(ScalarFn::Mul, x, x)?;
        let sum = b.map_const(ScalarFn::Add, square, 1.0)?;
        let root = b.map1(ScalarFn::Sqrt, sum)?;
        let below = b.map_const(ScalarFn::Add, root, 1.0)?;
        let part = b.map2(ScalarFn::Div, square, below)?;
        let z = b.map2(ScalarFn::Add, size, part)?;
        let near = log1p(b, z)?;
        let y = or_far(b, near, size)?;
        signed(b, y, x)
    })
}

/// log1p(t + sqrt(t) sqrt(t + 2)) with t = x - 1; NaN below 1.
pub fn acosh(b: &mut Builder, node: &Node) -> Outputs {
    in_f32(b, node, |b, x| {
        let t = b.map_const(ScalarFn::Sub, x, 1.0)?;
        let above = b.map_const(ScalarFn::Add, t, 2.0)?;
        let (t_root, root) = (b.map1(ScalarFn::Sqrt, t)?, b.map1(ScalarFn::Sqrt, above)?);
        let product = b.map2(ScalarFn::Mul, t_root, root)?;
        let z = b.map2(ScalarFn::Add, t, product)?;
        let near = log1p(b, z)?;
        or_far(b, near, x)
    })
}

/// sgn(x) / 2 log1p(2|x| / (1 - |x|))
pub fn atanh(b: &mut Builder, node: &Node) -> Outputs {
    in_f32(b, node, |b, x| {
        let size = b.map1(ScalarFn::Abs, x)?;
        let (below, _) = around_one(b, size)?;
        let twice = b.map_const(ScalarFn::Mul, size, 2.0)?;
        let z = b.map2(ScalarFn::Div, twice, below)?;
        let log = log1p(b, z)?;
        let y = b.map_const(ScalarFn::Mul, log, 0.5)?;
        signed(b, y, x)
    })
}
