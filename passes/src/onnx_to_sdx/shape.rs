//! Reshape, Expand, Shape, …  =>  reshape, transpose, broadcast, dims

use super::builder::Builder;
use super::dynamic;
use super::nchwc;
use super::node::Node;
use sardonyx_base::dim::product;
use sardonyx_base::{DType, Dim, Result, Tensor};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, TensorType, Value};

type Outputs = Result<Vec<Value>>;

pub fn shape(b: &mut Builder, node: &Node) -> Outputs {
    let dims = b.dims(node.input(0)?);
    let rank = dims.len() as i64;
    let clamp = |v: i64| (if v < 0 { v.saturating_add(rank) } else { v }).clamp(0, rank) as usize;
    let start = clamp(node.int_or("start", 0)?);
    let end = clamp(node.int_or("end", rank)?).max(start);
    Ok(vec![b.dims_vector(dims[start..end].to_vec())?])
}

pub fn size(b: &mut Builder, node: &Node) -> Outputs {
    let count = b.ty(node.input(0)?).elements();
    Ok(vec![b.dims_scalar(count)?])
}

/// Returns total / known if the division is exact. If symbols cancel and a constant divisor remains, a dimension of x
/// is first made a multiple of it, which the call checks.
fn divided(b: &mut Builder, x: Value, total: &Dim, known: &Dim) -> Result<Option<Dim>> {
    if let Some(quotient) = total.exact_div(known) {
        return Ok(Some(quotient));
    }
    let symbols: Vec<Dim> = known.names().iter().map(|s| Dim::symbol(s)).collect();
    let (mut above, mut below) = (total.clone(), known.clone());
    for s in symbols {
        if let (Some(a), Some(c)) = (above.exact_div(&s), below.exact_div(&s)) {
            (above, below) = (a, c);
        }
    }
    let Some(n) = below.as_const().filter(|n| *n > 1) else { return Ok(None) };
    // The last dimension is the one that is usually split: into heads.
    for d in b.dims(x).iter().rev() {
        if above.exact_div(d).is_some() && b.divide(d, n)?.is_some() {
            return Ok(product(&b.dims(x)).exact_div(known));
        }
    }
    Ok(None)
}

pub fn reshape(b: &mut Builder, node: &Node) -> Outputs {
    let (x, target) = (node.input(0)?, node.input(1)?);
    let copy_zero = node.int_or("allowzero", 0)? == 0;
    if b.contents(target).is_none() {
        return Ok(vec![dynamic::reshape(b, node, x, target, copy_zero)?]);
    }
    let target = b.read_dims(target)?;
    if let Some(y) = nchwc::reshaped(b, node, x, &target)? {
        return Ok(vec![y]);
    }
    let from = b.dims(x);
    let mut dims = vec![];
    let mut rest = None;
    for (i, d) in target.into_iter().enumerate() {
        if d.is_const(-1) {
            if rest.replace(i).is_some() {
                return Err(node.error("E0201", "the shape has two dimensions of -1"));
            }
            dims.push(Dim::constant(1));
        } else if d.is_const(0) && copy_zero {
            dims.push(from.get(i).cloned().ok_or_else(|| node.error("E0201", format!("dimension {i} copies none")))?);
        } else {
            dims.push(d);
        }
    }
    if rest.is_some() && product(&from).exact_div(&product(&dims)).is_none() {
        unify_leading(b, x, &mut dims)?;
    }
    let from = b.dims(x);
    let total = product(&from);
    if let Some(i) = rest {
        let known = product(&dims);
        dims[i] = match divided(b, x, &total, &known)? {
            Some(part) => part,
            None if total.as_const().is_some() && known.as_const().is_some() => {
                let message = format!("{total} elements cannot be divided evenly by {known}");
                return Err(node.error("E0201", message));
            }
            None => total.floordiv(&known),
        };
        return Ok(vec![dynamic::with_dims(b, x, &dims)?]);
    }
    let wanted = product(&dims);
    if !b.decide(&total, &wanted).map_err(|e| e.node(&node.name))? {
        return Ok(vec![dynamic::with_dims(b, x, &dims)?]);
    }
    // The target's dimensions are read again, because unification may have rewritten them in other symbols.
    let again = node.input(1)?;
    if let Some(now) = b.contents(again) {
        let now = now.to_vec();
        dims.iter_mut().zip(now).filter(|(_, n)| n.as_const().is_none_or(|c| c > 0)).for_each(|(d, n)| *d = n);
    }
    Ok(vec![b.reshape(x, &dims)?])
}

/// Assumes that leading symbols of x and of the target are equal, which the call checks: exporters reshape [a, t] to
/// [b, -1] where a and b are two names of the same batch size.
fn unify_leading(b: &mut Builder, x: Value, dims: &mut [Dim]) -> Result<()> {
    for (i, d) in dims.iter_mut().enumerate() {
        let Some(own) = b.dims(x).get(i).cloned() else { break };
        if own == *d {
            continue;
        }
        if own.as_name().is_none() || d.as_name().is_none() {
            break;
        }
        b.unify(&own, d)?;
        *d = b.dims(x)[i].clone();
    }
    Ok(())
}

pub fn flatten(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let dims = b.dims(x);
    let axis = node.int_or("axis", 1)?;
    let at = if axis == dims.len() as i64 { dims.len() } else { node.axis(axis, dims.len().max(1))? };
    Ok(vec![b.reshape(x, &[product(&dims[..at]), product(&dims[at..])])?])
}

/// Returns the axes, which are an attribute before opset `since`, and an input since; `None` if they are absent.
pub fn axes(b: &Builder, node: &Node, input: usize, since: i64) -> Result<Option<Vec<i64>>> {
    if node.opset < since {
        return node.ints("axes");
    }
    let Some(v) = node.optional(input) else { return Ok(None) };
    let known = b.constants(v);
    known.map(Some).ok_or_else(|| node.error("E0203", "its axes are not known when the model is compiled"))
}

/// Returns the axes, if they are known only at run time.
fn axes_from_data(b: &Builder, node: &Node) -> Option<Value> {
    node.optional(1).filter(|v| node.opset >= 13 && b.constants(*v).is_none())
}

pub fn squeeze(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    if let Some(axes) = axes_from_data(b, node) {
        return Ok(vec![dynamic::squeeze(b, node, x, axes)?]);
    }
    let dims = b.dims(x);
    let axes = match axes(b, node, 1, 13)? {
        Some(list) => list.into_iter().map(|a| node.axis(a, dims.len())).collect::<Result<Vec<_>>>()?,
        None => (0..dims.len()).filter(|&i| dims[i].is_const(1)).collect(),
    };
    for &a in &axes {
        b.unify(&dims[a], &Dim::constant(1))?;
    }
    let kept: Vec<Dim> = (0..dims.len()).filter(|i| !axes.contains(i)).map(|i| b.dims(x)[i].clone()).collect();
    Ok(vec![b.reshape(x, &kept)?])
}

pub fn unsqueeze(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    if let Some(axes) = axes_from_data(b, node) {
        return Ok(vec![dynamic::unsqueeze(b, node, x, axes)?]);
    }
    let axes = axes(b, node, 1, 13)?;
    let axes = node.require("axes", axes)?;
    let rank = b.rank(x) + axes.len();
    let axes = axes.into_iter().map(|a| node.axis(a, rank)).collect::<Result<Vec<_>>>()?;
    if (0..axes.len()).any(|i| axes[..i].contains(&axes[i])) {
        return Err(node.error("E0106", format!("the axes {axes:?} repeat")));
    }
    let mut old = b.dims(x).into_iter();
    let one = Dim::constant(1);
    let dims: Vec<Dim> =
        (0..rank).map(|i| if axes.contains(&i) { one.clone() } else { old.next().unwrap_or(one.clone()) }).collect();
    Ok(vec![b.reshape(x, &dims)?])
}

pub fn transpose(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let rank = b.rank(x);
    let perm = match node.ints("perm")? {
        Some(perm) => perm.into_iter().map(|p| node.axis(p, rank)).collect::<Result<Vec<_>>>()?,
        None => (0..rank).rev().collect(),
    };
    Ok(vec![b.transpose(x, perm)?])
}

pub fn concat(b: &mut Builder, node: &Node) -> Outputs {
    let mut args = node.all_inputs()?;
    let first = node.input(0)?;
    let axis = node.axis(node.require("axis", node.int("axis")?)?, b.rank(first))?;
    for arg in &mut args {
        if b.rank(*arg) != b.rank(first) {
            return Err(node.error("E0201", format!("{} and {} have different ranks", b.ty(first), b.ty(*arg))));
        }
        for i in (0..b.rank(first)).filter(|i| *i != axis) {
            let wanted = b.dims(first)[i].clone();
            *arg = b.agree(*arg, i, &wanted)?;
        }
    }
    Ok(vec![b.concat(axis, &args)?])
}

/// Broadcasts in both directions: a target dimension of 1 keeps the operand's dimension.
pub fn expand(b: &mut Builder, node: &Node) -> Outputs {
    let (x, target) = (node.input(0)?, node.input(1)?);
    if b.contents(target).is_none() {
        return Ok(vec![dynamic::expand(b, node, x, target)?]);
    }
    let target = b.read_dims(target)?;
    let from = b.dims(x);
    let rank = from.len().max(target.len());
    let one = Dim::constant(1);
    let padded = |dims: &[Dim]| {
        (0..rank).map(|i| i.checked_sub(rank - dims.len()).map_or(one.clone(), |j| dims[j].clone())).collect::<Vec<_>>()
    };
    let (from, target) = (padded(&from), padded(&target));
    let mut dims = vec![];
    for (f, t) in from.iter().zip(&target) {
        if !f.is_const(1) && !t.is_const(1) {
            b.unify(f, t)?;
        }
        dims.push(if f.is_const(1) { t.clone() } else { f.clone() });
    }
    // Unification may have rewritten the operand's own dimensions.
    let now = padded(&b.dims(x));
    dims.iter_mut().zip(now).filter(|(_, n)| !n.is_const(1)).for_each(|(d, n)| *d = n);
    Ok(vec![b.broadcast(x, &dims)?])
}

pub fn constant_of_shape(b: &mut Builder, node: &Node) -> Outputs {
    let shape = node.input(0)?;
    dynamic::vector_length(b, node, shape, node.declared_rank)?;
    let dims = b.read_dims(shape)?;
    let value = node.tensor("value")?.unwrap_or_else(|| Tensor::scalar(0.0f32));
    if value.len() != 1 {
        return Err(node.error("E0106", "`value` is not one element"));
    }
    let scalar = b.constant(value.with_dims(vec![])?)?;
    Ok(vec![b.broadcast(scalar, &dims)?])
}

/// start + i * delta, for max(0, ceil((limit - start) / delta)) elements.
pub fn range(b: &mut Builder, node: &Node) -> Outputs {
    let (start, limit, delta) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let dtype = b.dtype(start);
    let known = |v: Value| b.contents(v).and_then(|c| c.first().cloned());
    let (Some(from), Some(to), Some(step)) = (known(start), known(limit), known(delta)) else {
        return Ok(vec![dynamic::range(b, [start, limit, delta])?]);
    };
    let step = match step.as_const() {
        Some(0) => return Err(node.error("E0106", "a range needs a step other than 0")),
        Some(step) => step,
        None => return Ok(vec![dynamic::range(b, [start, limit, delta])?]),
    };
    let dims = [range_count(b, node, &from, &to, step)?];
    let iota = b.add_typed(Op::Iota { axis: 0 }, &[], Some(TensorType::new(DType::I64, dims.to_vec())))?;
    let scaled = if step == 1 {
        iota
    } else {
        let step = b.constant(Tensor::scalar(step))?;
        b.map2(ScalarFn::Mul, iota, step)?
    };
    let offset = b.dims_scalar(from.clone())?;
    let shifted = if from.is_const(0) { scaled } else { b.map2(ScalarFn::Add, scaled, offset)? };
    Ok(vec![b.convert(shifted, dtype)?])
}

/// max(0, ceil((to - from) / step)), for a step other than 0.
fn range_count(b: &Builder, node: &Node, from: &Dim, to: &Dim, step: i64) -> Result<Dim> {
    if let (Some(from), Some(to)) = (from.as_const(), to.as_const()) {
        let (span, steps) = ((i128::from(to) - i128::from(from)) * i128::from(step.signum()), i128::from(step).abs());
        let count = (span + steps - 1).div_euclid(steps).max(0);
        let count = i64::try_from(count).map_err(|_| node.error("E0202", format!("a range of {count} numbers")))?;
        return Ok(Dim::constant(count));
    }
    let span = if step > 0 { to.clone() - from.clone() } else { from.clone() - to.clone() };
    let count = span.ceildiv(&Dim::constant(step.unsigned_abs().min(i64::MAX as u64) as i64));
    let known = count.lower_bound(&|s| b.graph.symbol_lo(s)).is_some_and(|n| n >= 0);
    Ok(if known { count } else { count.maximum(&Dim::constant(0)) })
}
