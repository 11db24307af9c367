//! Pad, CenterCropPad  =>  pad with a value, or gather at positions computed from an iota

use super::builder::Builder;
use super::node::Node;
use super::shape::axes;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, TensorType, Value};

type Outputs = Result<Vec<Value>>;

/// Pad: the counts of added elements are an attribute before opset 11, and an input since; they are given for all axes
/// or, since opset 18, for the axes of input 3.
pub fn pad(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let rank = b.rank(x);
    let given = if node.opset < 18 { None } else { axes(b, node, 3, 18)? };
    let axes = match given {
        Some(list) => list.into_iter().map(|a| node.axis(a, rank)).collect::<Result<Vec<_>>>()?,
        None => (0..rank).collect(),
    };
    let counts: Vec<Dim> = match node.opset < 11 {
        true => {
            let name = if node.opset < 2 { "paddings" } else { "pads" };
            node.require(name, node.ints(name)?)?.into_iter().map(Dim::constant).collect()
        }
        false => b.read_count(node.input(1)?, 2 * axes.len())?,
    };
    if counts.len() != 2 * axes.len() {
        let message = format!("{} counts do not pad {} axes at both ends", counts.len(), axes.len());
        return Err(node.error("E0201", message));
    }
    let (mut low, mut high) = (vec![Dim::constant(0); rank], vec![Dim::constant(0); rank]);
    for (i, &axis) in axes.iter().enumerate() {
        (low[axis], high[axis]) = (counts[i].clone(), counts[axes.len() + i].clone());
    }
    let place = match node.str_or("mode", "constant")?.as_str() {
        "constant" => {
            let value = fill(b, node, x)?;
            return Ok(vec![b.pad(x, value, &low, &high)?]);
        }
        "edge" => edge,
        "reflect" => reflected,
        "wrap" => wrapped,
        other => return Err(node.error("E0106", format!("the mode {other} is not known"))),
    };
    repeat(b, x, (low, high), place).map(|y| vec![y])
}

/// The padding value, of rank 0.
fn fill(b: &mut Builder, node: &Node, x: Value) -> Result<Value> {
    let given = if node.opset < 11 { None } else { node.optional(2) };
    match given {
        Some(value) if b.dtype(value) == b.dtype(x) && b.ty(value).elements().is_const(1) => b.reshape(value, &[]),
        Some(value) => Err(node.error("E0201", format!("{} is no value to pad {} with", b.ty(value), b.ty(x)))),
        None => b.splat(b.dtype(x), node.float_or("value", 0.0)?, &[]),
    }
}

type Place = fn(&mut Builder, Value, &Dim) -> Result<Value>;

/// Pads a tensor with its own elements, from the positions that `place` computes. Negative counts first remove
/// elements.
fn repeat(b: &mut Builder, x: Value, (low, high): (Vec<Dim>, Vec<Dim>), place: Place) -> Result<Value> {
    let part = |b: &Builder, n: &Dim| {
        let is_more = n.provably_ge(&Dim::constant(0), &|s| b.graph.symbol_lo(s));
        if is_more { Dim::constant(0) } else { n.minimum(&Dim::constant(0)) }
    };
    let cut: [Vec<Dim>; 2] = [&low, &high].map(|list| list.iter().map(|n| part(b, n)).collect());
    let zero = b.splat(b.dtype(x), 0.0, &[])?;
    let mut x = b.pad(x, zero, &cut[0], &cut[1])?;
    for axis in 0..low.len() {
        let (low, high) = (low[axis].clone() - cut[0][axis].clone(), high[axis].clone() - cut[1][axis].clone());
        if low.is_const(0) && high.is_const(0) {
            continue;
        }
        let n = b.dims(x)[axis].clone();
        let places = n.clone() + low.clone() + high;
        let at = b.add_typed(Op::Iota { axis: 0 }, &[], Some(TensorType::new(DType::I64, [places])))?;
        let low = b.dims_scalar(low)?;
        let at = b.map2(ScalarFn::Sub, at, low)?;
        let at = place(b, at, &n)?;
        x = b.add(Op::Gather { axis }, &[x, at])?;
    }
    Ok(x)
}

/// Returns the position in 0..n that is nearest to `at`.
pub fn edge(b: &mut Builder, at: Value, n: &Dim) -> Result<Value> {
    let above = b.map_const(ScalarFn::Max, at, 0.0)?;
    let last = b.dims_scalar(n.clone() - Dim::constant(1))?;
    b.map2(ScalarFn::Min, above, last)
}

/// Reflects positions at the first and the last element, which are not repeated: the pattern has a period of 2(n - 1).
fn reflected(b: &mut Builder, at: Value, n: &Dim) -> Result<Value> {
    let period = (n.clone() - Dim::constant(1)) * Dim::constant(2);
    let period = b.dims_scalar(period.maximum(&Dim::constant(1)))?;
    let forth = b.map2(ScalarFn::Rem, at, period)?;
    let back = b.map2(ScalarFn::Sub, period, forth)?;
    let place = b.map2(ScalarFn::Min, forth, back)?;
    edge(b, place, n)
}

fn wrapped(b: &mut Builder, at: Value, n: &Dim) -> Result<Value> {
    let n = b.dims_scalar(n.clone())?;
    b.map2(ScalarFn::Rem, at, n)
}

/// Cuts axes that are too long at both ends, and pads axes that are too short with zeros at both ends. If the
/// difference is odd, one element more is cut or added at the end than at the beginning.
pub fn center_crop_pad(b: &mut Builder, node: &Node) -> Outputs {
    let (x, shape) = (node.input(0)?, node.input(1)?);
    let rank = b.rank(x);
    let axes = match node.ints("axes")? {
        Some(list) => list.into_iter().map(|a| node.axis(a, rank)).collect::<Result<Vec<_>>>()?,
        None => (0..rank).collect(),
    };
    let wanted = b.read_count(shape, axes.len())?;
    let (mut low, mut high) = (vec![Dim::constant(0); rank], vec![Dim::constant(0); rank]);
    for (axis, wanted) in axes.into_iter().zip(wanted) {
        let more = wanted - b.dims(x)[axis].clone();
        let half = |n: Dim| n.maximum(&Dim::constant(0)).floordiv(&Dim::constant(2));
        low[axis] = half(more.clone()) - half(-more.clone());
        high[axis] = more - low[axis].clone();
    }
    let zero = b.splat(b.dtype(x), 0.0, &[])?;
    Ok(vec![b.pad(x, zero, &low, &high)?])
}
