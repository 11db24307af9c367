//! Add(a, b)  =>  map "add"(broadcast a, broadcast b)

use super::builder::Builder;
use super::node::Node;
use super::reduction::wide;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, Value};

type Outputs = Result<Vec<Value>>;

/// Rejects element types that the function does not take (E0107), before a broadcast hides the cause.
pub fn check_types(b: &Builder, node: &Node, f: ScalarFn, args: &[Value]) -> Result<()> {
    let types: Vec<DType> = args.iter().map(|v| b.dtype(*v)).collect();
    f.result(&types).map(|_| ()).map_err(|reason| {
        node.error("E0107", reason).help("insert a Cast, or export the model with another element type")
    })
}

pub fn identity(_: &mut Builder, node: &Node) -> Outputs {
    Ok(vec![node.input(0)?])
}

pub fn map(b: &mut Builder, node: &Node, f: ScalarFn, swapped: bool) -> Outputs {
    let mut args = (0..f.row().operands).map(|i| node.input(i)).collect::<Result<Vec<_>>>()?;
    check_types(b, node, f, &args)?;
    if let [x, y] = args.as_mut_slice() {
        *y = aligned(b, node, *x, *y)?;
    }
    if swapped {
        args.reverse();
    }
    let args = b.broadcast_all(&args)?;
    Ok(vec![b.add(Op::Map(f), &args)?])
}

/// Returns the second operand, reshaped for broadcasting: before opset 7 its dimensions are aligned at `axis`, not at
/// the end.
pub fn aligned(b: &mut Builder, node: &Node, x: Value, y: Value) -> Result<Value> {
    if node.opset >= 7 || node.int_or("broadcast", 0)? == 0 || !node.has("axis") {
        return Ok(y);
    }
    let rank = b.rank(x);
    let axis = node.axis(node.require("axis", node.int("axis")?)?, rank.max(1))?;
    let behind = rank.checked_sub(axis + b.rank(y)).ok_or_else(|| {
        node.error("E0201", format!("{} does not fit into {} from dimension {axis} on", b.ty(y), b.ty(x)))
    })?;
    let mut dims = b.dims(y);
    dims.extend(vec![Dim::constant(1); behind]);
    b.reshape(y, &dims)
}

pub fn fold(b: &mut Builder, node: &Node, f: ScalarFn) -> Outputs {
    let args = node.all_inputs()?;
    let mut sum = node.input(0)?;
    check_types(b, node, f, &[sum, sum])?;
    for &arg in &args[1..] {
        check_types(b, node, f, &[sum, arg])?;
        sum = b.map2(f, sum, arg)?;
    }
    Ok(vec![sum])
}

pub fn mean(b: &mut Builder, node: &Node) -> Outputs {
    let sum = fold(b, node, ScalarFn::Add)?[0];
    Ok(vec![b.map_const(ScalarFn::Div, sum, node.inputs.len() as f64)?])
}

/// Whether |x| = ∞, or only x = ∞ or only x = -∞, as the attributes select.
pub fn is_inf(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    floats_only(b, node, x)?;
    let (below, above) = (node.int_or("detect_negative", 1)? != 0, node.int_or("detect_positive", 1)? != 0);
    // Types below 16 bits may have no infinity to compare with.
    let x = if b.dtype(x).bits() < 16 { b.convert(x, DType::F32)? } else { x };
    let y = match (below, above) {
        (true, true) => b.map1(ScalarFn::Abs, x)?,
        (true, false) => b.map1(ScalarFn::Neg, x)?,
        (false, true) => x,
        (false, false) => {
            let dims = b.dims(x);
            return Ok(vec![b.splat(DType::Bool, 0.0, &dims)?]);
        }
    };
    Ok(vec![b.map_const(ScalarFn::Eq, y, f64::INFINITY)?])
}

/// Pow: the exponent may have another type than the base and the result. Roots of integers are computed in f64.
pub fn pow(b: &mut Builder, node: &Node) -> Outputs {
    let (x, y) = (node.input(0)?, node.input(1)?);
    let y = aligned(b, node, x, y)?;
    let dtype = b.dtype(x);
    let working = if dtype.is_int() && b.dtype(y).is_float() { DType::F64 } else { dtype };
    let (x, y) = (b.convert(x, working)?, b.convert(y, working)?);
    check_types(b, node, ScalarFn::Pow, &[x, y])?;
    let power = b.map2(ScalarFn::Pow, x, y)?;
    Ok(vec![b.convert(power, dtype)?])
}

pub fn where_(b: &mut Builder, node: &Node) -> Outputs {
    let (c, x, y) = (node.input(0)?, node.input(1)?, node.input(2)?);
    check_types(b, node, ScalarFn::Select, &[c, x, y])?;
    Ok(vec![b.select(c, x, y)?])
}

pub fn floats_only(b: &Builder, node: &Node, x: Value) -> Result<()> {
    match b.dtype(x).is_float() {
        true => Ok(()),
        false => Err(node.error("E0107", format!("does not take {}", b.dtype(x)))),
    }
}

pub fn relu(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    check_types(b, node, ScalarFn::Max, &[x, x])?;
    Ok(vec![b.map_const(ScalarFn::Max, x, 0.0)?])
}

pub fn leaky_relu(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    floats_only(b, node, x)?;
    Ok(vec![leaky_relu_of(b, x, node.float_or("alpha", 0.01)?)?])
}

/// x < 0 ? alpha x : x
pub fn leaky_relu_of(b: &mut Builder, x: Value, alpha: f64) -> Result<Value> {
    let scaled = b.map_const(ScalarFn::Mul, x, alpha)?;
    let zero = b.splat(b.dtype(x), 0.0, &b.dims(x))?;
    let negative = b.map2(ScalarFn::Lt, x, zero)?;
    b.select(negative, scaled, x)
}

pub fn sigmoid(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    floats_only(b, node, x)?;
    Ok(vec![sigmoid_of(b, x)?])
}

/// 1 / (1 + exp(-x)), computed in f32 at least and rounded once to the element type.
pub fn sigmoid_of(b: &mut Builder, x: Value) -> Result<Value> {
    let dtype = b.dtype(x);
    let x = b.convert(x, wide(dtype))?;
    let negated = b.map1(ScalarFn::Neg, x)?;
    let power = b.map1(ScalarFn::Exp, negated)?;
    let sum = b.map_const(ScalarFn::Add, power, 1.0)?;
    let one = b.splat(b.dtype(x), 1.0, &b.dims(x))?;
    let y = b.map2(ScalarFn::Div, one, sum)?;
    b.convert(y, dtype)
}

pub fn reciprocal(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    floats_only(b, node, x)?;
    let one = b.splat(b.dtype(x), 1.0, &b.dims(x))?;
    Ok(vec![b.map2(ScalarFn::Div, one, x)?])
}

/// com.microsoft BiasGelu and FastGelu: gelu(x + bias), for FastGelu in its tanh variant.
pub fn bias_gelu(b: &mut Builder, node: &Node) -> Outputs {
    let mut x = node.input(0)?;
    if let Some(bias) = node.optional(1) {
        x = b.map2(ScalarFn::Add, x, bias)?;
    }
    gelu_of(b, node, x, node.op_type == "FastGelu")
}

/// 0.5 x (1 + erf(x / √2)), or its tanh variant.
pub fn gelu(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    gelu_of(b, node, x, node.str_or("approximate", "none")? == "tanh")
}

pub fn gelu_of(b: &mut Builder, node: &Node, x: Value, tanh: bool) -> Outputs {
    floats_only(b, node, x)?;
    let inner = if tanh {
        let cube = b.map2(ScalarFn::Mul, x, x)?;
        let cube = b.map2(ScalarFn::Mul, cube, x)?;
        let cube = b.map_const(ScalarFn::Mul, cube, 0.044715)?;
        let sum = b.map2(ScalarFn::Add, x, cube)?;
        let scaled = b.map_const(ScalarFn::Mul, sum, (2.0 / std::f64::consts::PI).sqrt())?;
        b.map1(ScalarFn::Tanh, scaled)?
    } else {
        let scaled = b.map_const(ScalarFn::Mul, x, std::f64::consts::FRAC_1_SQRT_2)?;
        b.map1(ScalarFn::Erf, scaled)?
    };
    let sum = b.map_const(ScalarFn::Add, inner, 1.0)?;
    let half = b.map_const(ScalarFn::Mul, x, 0.5)?;
    Ok(vec![b.map2(ScalarFn::Mul, half, sum)?])
}

/// Clip: the bounds are attributes before opset 11, and optional inputs since.
pub fn clip(b: &mut Builder, node: &Node) -> Outputs {
    let mut x = node.input(0)?;
    check_types(b, node, ScalarFn::Max, &[x, x])?;
    for (i, name, f) in [(1, "min", ScalarFn::Max), (2, "max", ScalarFn::Min)] {
        if node.opset >= 11 {
            if let Some(bound) = node.optional(i) {
                x = b.map2(f, x, bound)?;
            }
        } else if node.has(name) {
            x = b.map_const(f, x, node.float_or(name, 0.0)?)?;
        }
    }
    Ok(vec![x])
}
