//! Add(a, b)  =>  map "add"(broadcast a, broadcast b)

use super::builder::Builder;
use super::node::Node;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::Value;
use sardonyx_runtime::{DType, Result};

type Outputs = Result<Vec<Value>>;

/// ONNX operators that are one scalar function; `true`: with swapped operands.
static FUNCTIONS: &[(&str, ScalarFn, bool)] = &[
    ("Abs", ScalarFn::Abs, false),
    ("Add", ScalarFn::Add, false),
    ("And", ScalarFn::And, false),
    ("Ceil", ScalarFn::Ceil, false),
    ("Cos", ScalarFn::Cos, false),
    ("Div", ScalarFn::Div, false),
    ("Equal", ScalarFn::Eq, false),
    ("Erf", ScalarFn::Erf, false),
    ("Exp", ScalarFn::Exp, false),
    ("Floor", ScalarFn::Floor, false),
    ("Greater", ScalarFn::Lt, true),
    ("GreaterOrEqual", ScalarFn::Le, true),
    ("IsNaN", ScalarFn::IsNan, false),
    ("Less", ScalarFn::Lt, false),
    ("LessOrEqual", ScalarFn::Le, false),
    ("Log", ScalarFn::Log, false),
    ("Max", ScalarFn::Max, false),
    ("Mean", ScalarFn::Add, false),
    ("Min", ScalarFn::Min, false),
    ("Mul", ScalarFn::Mul, false),
    ("Neg", ScalarFn::Neg, false),
    ("Not", ScalarFn::Not, false),
    ("Or", ScalarFn::Or, false),
    ("Round", ScalarFn::Round, false),
    ("Sign", ScalarFn::Sign, false),
    ("Sin", ScalarFn::Sin, false),
    ("Sqrt", ScalarFn::Sqrt, false),
    ("Sub", ScalarFn::Sub, false),
    ("Sum", ScalarFn::Add, false),
    ("Tanh", ScalarFn::Tanh, false),
    ("Xor", ScalarFn::Xor, false),
];

fn function(node: &Node) -> Result<(ScalarFn, bool)> {
    let row = FUNCTIONS.iter().find(|(name, _, _)| *name == node.op_type);
    row.map(|(_, f, swap)| (*f, *swap)).ok_or_else(|| node.error("E0101", "has no scalar function"))
}

/// Refuses element types that the function does not take, before a broadcast hides the cause.
fn check_types(b: &Builder, node: &Node, f: ScalarFn, args: &[Value]) -> Result<()> {
    let types: Vec<DType> = args.iter().map(|v| b.dtype(*v)).collect();
    f.result(&types).map(|_| ()).map_err(|reason| {
        node.error("E0107", reason).help("insert a Cast, or export the model with another element type")
    })
}

pub fn identity(_: &mut Builder, node: &Node) -> Outputs {
    Ok(vec![node.input(0)?])
}

pub fn unary(b: &mut Builder, node: &Node) -> Outputs {
    let (f, _) = function(node)?;
    let x = node.input(0)?;
    check_types(b, node, f, &[x])?;
    Ok(vec![b.map1(f, x)?])
}

pub fn binary(b: &mut Builder, node: &Node) -> Outputs {
    let (f, swap) = function(node)?;
    let (mut x, mut y) = (node.input(0)?, node.input(1)?);
    if swap {
        std::mem::swap(&mut x, &mut y);
    }
    check_types(b, node, f, &[x, y])?;
    Ok(vec![b.map2(f, x, y)?])
}

pub fn variadic(b: &mut Builder, node: &Node) -> Outputs {
    let (f, _) = function(node)?;
    let args = node.all_inputs()?;
    let mut sum = node.input(0)?;
    for &arg in &args[1..] {
        check_types(b, node, f, &[sum, arg])?;
        sum = b.map2(f, sum, arg)?;
    }
    if node.op_type == "Mean" {
        sum = b.map_const(ScalarFn::Div, sum, args.len() as f64)?;
    }
    Ok(vec![sum])
}

/// The exponent may have another type than the base, which gives the result's.
pub fn pow(b: &mut Builder, node: &Node) -> Outputs {
    let (x, y) = (node.input(0)?, node.input(1)?);
    let y = b.convert(y, b.dtype(x))?;
    check_types(b, node, ScalarFn::Pow, &[x, y])?;
    Ok(vec![b.map2(ScalarFn::Pow, x, y)?])
}

pub fn where_(b: &mut Builder, node: &Node) -> Outputs {
    let (c, x, y) = (node.input(0)?, node.input(1)?, node.input(2)?);
    check_types(b, node, ScalarFn::Select, &[c, x, y])?;
    Ok(vec![b.select(c, x, y)?])
}

pub fn cast(b: &mut Builder, node: &Node) -> Outputs {
    let to = node.require("to", node.dtype("to")?)?;
    let x = node.input(0)?;
    let plain = |t: DType| t.is_int() || t.is_float() || t == DType::Bool;
    if !plain(to) || !plain(b.dtype(x)) {
        return Err(node.error("E0107", format!("a cast from {} to {to} is not supported", b.dtype(x))));
    }
    Ok(vec![b.convert(x, to)?])
}

fn floats_only(b: &Builder, node: &Node, x: Value) -> Result<()> {
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

/// 1 / (1 + exp(-x))
pub fn sigmoid_of(b: &mut Builder, x: Value) -> Result<Value> {
    let negated = b.map1(ScalarFn::Neg, x)?;
    let power = b.map1(ScalarFn::Exp, negated)?;
    let sum = b.map_const(ScalarFn::Add, power, 1.0)?;
    let one = b.splat(b.dtype(x), 1.0, &b.dims(x))?;
    b.map2(ScalarFn::Div, one, sum)
}

pub fn reciprocal(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    floats_only(b, node, x)?;
    let one = b.splat(b.dtype(x), 1.0, &b.dims(x))?;
    Ok(vec![b.map2(ScalarFn::Div, one, x)?])
}

/// com.microsoft BiasGelu and FastGelu: gelu(x + bias), the latter in its tanh form.
pub fn bias_gelu(b: &mut Builder, node: &Node) -> Outputs {
    let mut x = node.input(0)?;
    if let Some(bias) = node.optional(1) {
        x = b.map2(ScalarFn::Add, x, bias)?;
    }
    gelu_of(b, node, x, node.op_type == "FastGelu")
}

/// 0.5 x (1 + erf(x / √2)), or its tanh form.
pub fn gelu(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    gelu_of(b, node, x, node.str_or("approximate", "none")? == "tanh")
}

fn gelu_of(b: &mut Builder, node: &Node, x: Value, tanh: bool) -> Outputs {
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

/// Bounds are attributes before opset 11, inputs (or absent) since.
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
