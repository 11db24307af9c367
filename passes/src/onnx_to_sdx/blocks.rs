//! DepthToSpace, SpaceToDepth, Col2Im  =>  reshape, transpose; gather and sum where blocks overlap

use super::builder::Builder;
use super::coordinates::inside;
use super::node::Node;
use super::windows::{SPATIAL_MAX, pads, steps};
use sardonyx_base::dim::product;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, TensorType, Value};

type Outputs = Result<Vec<Value>>;

/// Returns the operand, [batch, channels, height, width], and the side of a block.
fn image(b: &Builder, node: &Node) -> Result<(Value, Dim)> {
    let x = node.input(0)?;
    if b.rank(x) != 4 {
        return Err(node.error("E0201", format!("takes batch, channels, height and width, not {}", b.ty(x))));
    }
    match node.require("blocksize", node.int("blocksize")?)? {
        n if n > 0 => Ok((x, Dim::constant(n))),
        n => Err(node.error("E0106", format!("`blocksize` = {n} is not positive"))),
    }
}

/// Splits channels into (row, column, channel), or for `CRD` (channel, row, column); rows and columns become spatial.
pub fn depth_to_space(b: &mut Builder, node: &Node) -> Outputs {
    let (x, side) = image(b, node)?;
    let (parts, perm) = match node.str_or("mode", "DCR")?.as_str() {
        // [n, i, j, c, h, w] => [n, c, h, i, w, j]
        "DCR" => {
            let rows = b.split_axis(x, 1, side.clone())?;
            (b.split_axis(rows, 2, side.clone())?, vec![0, 3, 4, 1, 5, 2])
        }
        // [n, c, i, j, h, w] => [n, c, h, i, w, j]
        "CRD" => {
            let columns = b.split_inner(x, 1, side.clone())?;
            (b.split_inner(columns, 1, side.clone())?, vec![0, 1, 4, 2, 5, 3])
        }
        other => return Err(node.error("E0106", format!("the mode {other} is not known"))),
    };
    let turned = b.transpose(parts, perm)?;
    let d = b.dims(turned);
    let merged = [d[0].clone(), d[1].clone(), product(&d[2..4]), product(&d[4..6])];
    Ok(vec![b.reshape(turned, &merged)?])
}

/// Inverse of [`depth_to_space`], for both modes.
pub fn space_to_depth(b: &mut Builder, node: &Node) -> Outputs {
    let (x, side) = image(b, node)?;
    let columns = b.split_inner(x, 3, side.clone())?;
    let parts = b.split_inner(columns, 2, side)?;
    let turned = match node.str_or("mode", "DCR")?.as_str() {
        // [n, c, h, i, w, j] => [n, i, j, c, h, w]
        "DCR" => b.transpose(parts, vec![0, 3, 5, 1, 2, 4])?,
        // [n, c, h, i, w, j] => [n, c, i, j, h, w]
        "CRD" => b.transpose(parts, vec![0, 1, 3, 5, 2, 4])?,
        other => return Err(node.error("E0106", format!("the mode {other} is not known"))),
    };
    let d = b.dims(turned);
    let merged = [d[0].clone(), product(&d[1..4]), d[4].clone(), d[5].clone()];
    Ok(vec![b.reshape(turned, &merged)?])
}

/// x[n, c·k, l] → y[n, c, image], for l blocks of k elements: each element of the image is the sum, over the offsets in
/// a block, of the block element that covers it.
pub fn col2im(b: &mut Builder, node: &Node) -> Outputs {
    let (x, image, block) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let (image, block) = match node.declared_rank.and_then(|rank| rank.checked_sub(2)) {
        Some(n) => (b.read_count(image, n)?, b.read_count(block, n)?),
        None => (b.read_dims(image)?, b.read_dims(block)?),
    };
    let rank = image.len();
    if block.len() != rank || !(1..=SPATIAL_MAX).contains(&rank) || b.rank(x) != 3 {
        return Err(node.error("E0201", format!("{} is not made of blocks of {rank} axes", b.ty(x))));
    }
    let (strides, dilations) = (steps(node, "strides", rank)?, steps(node, "dilations", rank)?);
    let (low, high) = pads(node, rank)?;
    let places: Vec<Dim> = (0..rank)
        .map(|i| {
            let one = Dim::constant(1);
            let span = (block[i].clone() - one.clone()) * Dim::constant(dilations[i]) + one.clone();
            let padded = image[i].clone() + low[i].clone() + high[i].clone();
            (padded - span).floordiv(&Dim::constant(strides[i])) + one
        })
        .collect();
    let count = product(&places);
    let x = match count.as_const() {
        Some(_) => {
            let own = b.dims(x)[2].clone();
            b.unify(&own, &count)?;
            x
        }
        // The count depends on data, but the input's dimension is bound earlier; the call checks that they agree.
        None => b.take_as(x, 2, &count)?,
    };
    let x = b.split_inner(x, 1, product(&block))?;
    let dims = b.dims(x);
    let flat = [dims[0].clone(), dims[1].clone(), product(&dims[2..])];
    let x = b.reshape(x, &flat)?;
    // For each image position and offset in the block: which block covers it, and whether there is one.
    let all: Vec<Dim> = image.iter().chain(&block).cloned().collect();
    let (mut offset, mut column, mut valid) = (None, None, None);
    for i in 0..rank {
        let own = [image[i].clone(), block[i].clone()];
        let at = b.add_typed(Op::Iota { axis: 0 }, &[], Some(TensorType::new(DType::I64, own.clone())))?;
        let k = b.add_typed(Op::Iota { axis: 1 }, &[], Some(TensorType::new(DType::I64, own)))?;
        let low = b.dims_scalar(low[i].clone())?;
        let shift = b.map_const(ScalarFn::Mul, k, dilations[i] as f64)?;
        let from = b.map2(ScalarFn::Add, at, low)?;
        let from = b.map2(ScalarFn::Sub, from, shift)?;
        let rest = b.map_const(ScalarFn::Rem, from, strides[i] as f64)?;
        let whole = b.map2(ScalarFn::Sub, from, rest)?;
        let place = b.map_const(ScalarFn::Div, whole, strides[i] as f64)?;
        let zero = b.splat(DType::I64, 0.0, &[])?;
        let even = b.map2(ScalarFn::Eq, rest, zero)?;
        let inside = inside(b, place, &places[i])?;
        let here = b.map2(ScalarFn::And, even, inside)?;
        let spread = |b: &mut Builder, v: Value| b.broadcast_at(v, vec![i, rank + i], &all);
        let (place, k, here) = (spread(b, place)?, spread(b, k)?, spread(b, here)?);
        column = Some(digit(b, column, place, &places[i])?);
        offset = Some(digit(b, offset, k, &block[i])?);
        valid = Some(match valid {
            None => here,
            Some(valid) => b.map2(ScalarFn::And, valid, here)?,
        });
    }
    let (Some(offset), Some(column), Some(valid)) = (offset, column, valid) else {
        return Err(node.error("E0201", "has no axes"));
    };
    let index = digit(b, Some(offset), column, &product(&places))?;
    let zero = b.splat(DType::I64, 0.0, &all)?;
    let index = b.select(valid, index, zero)?;
    let found = b.add(Op::Gather { axis: 2 }, &[x, index])?;
    let nothing = b.splat(b.dtype(found), 0.0, &[])?;
    let found = b.select(valid, found, nothing)?;
    let axes: Vec<usize> = (2 + rank..2 + 2 * rank).collect();
    Ok(vec![b.reduce(ReduceFn::Add, found, &axes, false)?])
}

/// so_far · n + digit; just the digit if there is nothing so far.
pub fn digit(b: &mut Builder, so_far: Option<Value>, digit: Value, n: &Dim) -> Result<Value> {
    let Some(so_far) = so_far else { return Ok(digit) };
    let n = b.dims_scalar(n.clone())?;
    let scaled = b.map2(ScalarFn::Mul, so_far, n)?;
    b.map2(ScalarFn::Add, scaled, digit)
}
