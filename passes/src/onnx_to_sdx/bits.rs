//! BitShift(x, n)  =>  map "shl"(x, n);  Mod(a, b)  =>  map "rem"(a, b): bitwise operators and remainders

use super::builder::Builder;
use super::elementwise::check_types;
use super::node::Node;
use sardonyx_base::Result;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::Value;

type Outputs = Result<Vec<Value>>;

pub fn bit_shift(b: &mut Builder, node: &Node) -> Outputs {
    let (x, amount) = (node.input(0)?, node.input(1)?);
    let direction = node.str_or("direction", "")?;
    let f = match direction.as_str() {
        "LEFT" => ScalarFn::Shl,
        "RIGHT" => ScalarFn::Shr,
        other => {
            let error = node.error("E0106", format!("the attribute `direction` is `{other}`"));
            return Err(error.help("it is LEFT or RIGHT"));
        }
    };
    check_types(b, node, f, &[x, amount])?;
    Ok(vec![b.map2(f, x, amount)?])
}

/// BitwiseNot: computes -x - 1, which flips all bits of x.
pub fn bitwise_not(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    check_types(b, node, ScalarFn::BitXor, &[x, x])?;
    let negated = b.map1(ScalarFn::Neg, x)?;
    Ok(vec![b.map_const(ScalarFn::Sub, negated, 1.0)?])
}

/// Mod: with `fmod` = 0 the remainder has the sign of the divisor, with `fmod` = 1 that of the dividend.
pub fn modulo(b: &mut Builder, node: &Node) -> Outputs {
    let (x, y) = (node.input(0)?, node.input(1)?);
    check_types(b, node, ScalarFn::Rem, &[x, y])?;
    let by_dividend = node.int_or("fmod", 0)? != 0;
    Ok(vec![match (b.dtype(x).is_float(), by_dividend) {
        (true, true) | (false, false) => b.map2(ScalarFn::Rem, x, y)?,
        (true, false) if node.opset < 28 => {
            return Err(node.error("E0106", "the remainder of floats needs `fmod` = 1 before opset 28"));
        }
        (true, false) => by_divisor(b, x, y)?,
        (false, true) => {
            let quotient = b.map2(ScalarFn::Div, x, y)?;
            let whole = b.map2(ScalarFn::Mul, quotient, y)?;
            b.map2(ScalarFn::Sub, x, whole)?
        }
    }])
}

/// Computes r = rem(x, y), and adds y if r is not 0 and its sign is not that of y. If r is 0, the result is a zero with
/// the sign of y.
fn by_divisor(b: &mut Builder, x: Value, y: Value) -> Result<Value> {
    let args = b.broadcast_all(&[x, y])?;
    let (x, y) = (args[0], args[1]);
    let rest = b.map2(ScalarFn::Rem, x, y)?;
    let r_below = b.map_const(ScalarFn::Lt, rest, 0.0)?;
    let y_below = b.map_const(ScalarFn::Lt, y, 0.0)?;
    let apart = b.map2(ScalarFn::Xor, r_below, y_below)?;
    let moved = b.map2(ScalarFn::Add, rest, y)?;
    let turned = b.select(apart, moved, rest)?;
    let (plus, minus) = (b.splat(b.dtype(x), 0.0, &b.dims(x))?, b.splat(b.dtype(x), -0.0, &b.dims(x))?);
    let zero = b.select(y_below, minus, plus)?;
    let is_zero = b.map_const(ScalarFn::Eq, rest, 0.0)?;
    b.select(is_zero, zero, turned)
}
