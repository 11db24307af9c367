//! Gradient {xs, y}  =>  the chain rule, backwards over the operations between them: d map "mul"(a, b) = b da + a db
//!
//! The rules differentiate sdx operations, not ONNX operators, so each operator gets a gradient from its lowering.
//! The ONNX reader passes the tensors that the attributes name as additional operands of the node: y, then xs.

use super::builder::Builder;
use super::node::Node;
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{ContractSpec, Op, Role, Value};
use std::collections::{BTreeMap, BTreeSet};

pub fn gradient(b: &mut Builder, node: &Node) -> Result<Vec<Value>> {
    let n_xs = node.require("xs", node.strs("xs")?)?.len();
    let n_given = n_xs + node.strs("zs")?.map_or(0, |z| z.len());
    if node.inputs.len() != n_given + 1 + n_xs {
        return Err(node.error("E0103", "its inputs are not those that `xs` and `zs` name"));
    }
    let y = node.input(n_given)?;
    let xs = (0..n_xs).map(|i| node.input(n_given + 1 + i)).collect::<Result<Vec<_>>>()?;
    for (i, x) in xs.iter().enumerate() {
        if node.input(i)? != *x {
            let reason = format!("its input {i} is another tensor than `xs` names");
            return Err(node.error("E0101", reason).help("give the tensors of `xs` themselves"));
        }
    }
    if !b.dtype(y).is_float() {
        return Err(node.error("E0107", format!("a tensor of {} has no gradient", b.dtype(y))));
    }
    let depends = dependents(b, &xs, y);
    let mut sums: BTreeMap<Value, Value> = BTreeMap::new();
    let (dtype, dims) = (b.dtype(y), b.dims(y));
    sums.insert(y, b.splat(dtype, 1.0, &dims)?);
    for i in (0..=y.0).rev() {
        let v = Value(i);
        let Some(&g) = sums.get(&v).filter(|_| depends.contains(&v) && !xs.contains(&v)) else { continue };
        for (arg, part) in b.graph.node(v).args.clone().into_iter().enumerate() {
            if !depends.contains(&part) || !b.dtype(part).is_float() {
                continue;
            }
            let Some(own) = through(b, node, v, g, arg)? else { continue };
            let sum = match sums.get(&part) {
                Some(&so_far) => b.map2(ScalarFn::Add, so_far, own)?,
                None => own,
            };
            sums.insert(part, sum);
        }
    }
    let mut results = vec![];
    for x in xs {
        results.push(match sums.get(&x) {
            Some(&g) => g,
            None => b.splat(b.dtype(x), 0.0, &b.dims(x))?,
        });
    }
    Ok(results)
}

/// The values up to y that depend on any of xs.
fn dependents(b: &Builder, xs: &[Value], y: Value) -> BTreeSet<Value> {
    let mut reached: BTreeSet<Value> = xs.iter().copied().collect();
    for (v, node) in b.graph.values().take(y.index() + 1) {
        if node.args.iter().any(|arg| reached.contains(arg)) {
            reached.insert(v);
        }
    }
    reached
}

/// Returns the contribution of the gradient g of v to the gradient of one operand; `None` if v does not change with the
/// operand.
fn through(b: &mut Builder, node: &Node, v: Value, g: Value, arg: usize) -> Result<Option<Value>> {
    let own = b.graph.node(v).clone();
    let x = own.args[arg];
    let dims = b.dims(x);
    let refuse = || Err(node.error("E0101", format!("the gradient of `{}` is not supported", own.op.name())));
    Ok(Some(match &own.op {
        Op::Map(f) => return through_map(b, node, *f, &own.args, v, g, arg),
        Op::Place(_) => g,
        Op::Convert(_) => b.convert(g, b.dtype(x))?,
        Op::Reshape => b.reshape(g, &dims)?,
        Op::Transpose { perm } => {
            let mut back = vec![0; perm.len()];
            perm.iter().enumerate().for_each(|(i, &p)| back[p] = i);
            b.transpose(g, back)?
        }
        Op::Broadcast { dims: at } => {
            let repeated = |i: usize| match at.iter().position(|&a| a == i) {
                Some(from) => dims[from].is_const(1) && !own.ty.dims[i].is_const(1),
                None => true,
            };
            let axes: Vec<usize> = (0..own.ty.rank()).filter(|&i| repeated(i)).collect();
            let sum = b.reduce(ReduceFn::Add, g, &axes, false)?;
            b.reshape(sum, &dims)?
        }
        Op::Reduce { f: ReduceFn::Add, axes } => {
            let at = (0..dims.len()).filter(|i| !axes.contains(i)).collect();
            b.broadcast_at(g, at, &dims)?
        }
        Op::Contract(spec) => {
            let (left, right) = (own.args[0], own.args[1]);
            let (letters, other, others) =
                if arg == 0 { (&spec.left, right, &spec.right) } else { (&spec.right, left, &spec.left) };
            // The gradient would have to be repeated along a reduced letter that only this operand has.
            if letters.iter().any(|c| !others.contains(c) && !spec.result.contains(c)) {
                return refuse();
            }
            let text = |v: &[char]| v.iter().collect::<String>();
            let ContractSpec { result, .. } = spec;
            b.contract(&format!("{},{}->{}", text(result), text(others), text(letters)), g, other)?
        }
        Op::Slice { starts, steps } if steps.iter().all(|&s| s == 1) => {
            let (ty, zero) = (b.ty(x).clone(), b.splat(b.dtype(x), 0.0, &[])?);
            b.add_typed(Op::Pad { low: starts.clone() }, &[g, zero], Some(ty))?
        }
        Op::Pad { low } if arg == 0 => {
            let (ty, steps) = (b.ty(x).clone(), vec![1; dims.len()]);
            b.add_typed(Op::Slice { starts: low.clone(), steps }, &[g], Some(ty))?
        }
        Op::Concat { axis } => {
            let before = own.args[..arg].iter().map(|&a| b.ty(a).dims[*axis].clone());
            let start = before.fold(Dim::constant(0), |sum, d| sum + d);
            b.slice_axis(g, *axis, start, 1, dims[*axis].clone())?
        }
        op => match op.role() {
            Role::Given | Role::Marker | Role::Host => return Ok(None),
            Role::Elementwise | Role::Reduction | Role::Product | Role::View | Role::Copy => return refuse(),
        },
    }))
}

fn through_map(
    b: &mut Builder,
    node: &Node,
    f: ScalarFn,
    args: &[Value],
    v: Value,
    g: Value,
    arg: usize,
) -> Result<Option<Value>> {
    use ScalarFn::*;
    let x = args[arg];
    let other = args.get(1 - arg.min(1)).copied().unwrap_or(x);
    let slope = match f {
        Add => return Ok(Some(g)),
        Sub if arg == 0 => return Ok(Some(g)),
        Sub | Neg => return b.map1(Neg, g).map(Some),
        Mul => other,
        Div if arg == 0 => return b.map2(Div, g, other).map(Some),
        Div => {
            let ratio = b.map2(Div, v, x)?;
            b.map1(Neg, ratio)?
        }
        Exp => v,
        Log => return b.map2(Div, g, x).map(Some),
        Sqrt => {
            let twice = b.map_const(Mul, v, 2.0)?;
            return b.map2(Div, g, twice).map(Some);
        }
        Tanh => {
            let square = b.map2(Mul, v, v)?;
            let one = b.splat(b.dtype(v), 1.0, &b.dims(v))?;
            b.map2(Sub, one, square)?
        }
        Sin => b.map1(Cos, x)?,
        Cos => {
            let sin = b.map1(Sin, x)?;
            b.map1(Neg, sin)?
        }
        Atan => {
            let square = b.map2(Mul, x, x)?;
            let sum = b.map_const(Add, square, 1.0)?;
            return b.map2(Div, g, sum).map(Some);
        }
        Erf => {
            let square = b.map2(Mul, x, x)?;
            let square = b.map1(Neg, square)?;
            let power = b.map1(Exp, square)?;
            b.map_const(Mul, power, std::f64::consts::FRAC_2_SQRT_PI)?
        }
        Abs => b.map1(Sign, x)?,
        Pow if arg == 0 => {
            let less = b.map_const(Sub, other, 1.0)?;
            let power = b.map2(Pow, x, less)?;
            b.map2(Mul, other, power)?
        }
        Pow => {
            let log = b.map1(Log, other)?;
            b.map2(Mul, v, log)?
        }
        // Of two equal operands, the first one gets the gradient.
        Max | Min => {
            let first = b.map2(Eq, args[0], v)?;
            return chosen(b, first, g, arg == 0).map(Some);
        }
        Select if arg > 0 => return chosen(b, args[0], g, arg == 1).map(Some),
        Rem => return Err(node.error("E0101", "the gradient of `rem` is not supported")),
        Ceil | Floor | Round | Sign | Select => return Ok(None),
        And | Eq | IsNan | Le | Lt | Not | Or | Xor => return Ok(None),
        BitAnd | BitOr | BitXor | Shl | Shr => return Ok(None),
    };
    b.map2(Mul, g, slope).map(Some)
}

/// g where the condition is `wanted`, else 0.
fn chosen(b: &mut Builder, condition: Value, g: Value, wanted: bool) -> Result<Value> {
    let zero = b.splat(b.dtype(g), 0.0, &b.dims(g))?;
    if wanted { b.select(condition, g, zero) } else { b.select(condition, zero, g) }
}
