//! DeformConv(x, w, offset)  =>  x sampled at shifted positions of each window, contracted over channels and offsets
//!
//! x[n, c, h, w] at shifted positions → [n, g, c, i, j, p, q] · w[g, o, c, i, j] → y[n, g, o, p, q], with g a group, o
//! an output channel, (i, j) an offset in a window, and (p, q) the position of the window

use super::builder::Builder;
use super::convolution::{biased, contract, groups, merge_groups};
use super::node::Node;
use super::sampling::{Filter, Outside, neighbours, sample};
use super::windows::{Windows, spatial};
use sardonyx_base::dim::product;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, TensorType, Value};

type Outputs = Result<Vec<Value>>;

pub fn deform_conv(b: &mut Builder, node: &Node) -> Outputs {
    let (x, w, offset) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let extents = spatial(b, node, x)?;
    let rank = extents.len();
    let fits = [w, offset].iter().all(|v| b.rank(*v) == rank + 2 && b.dtype(*v) == b.dtype(x));
    if !fits || !b.dtype(x).is_float() {
        return Err(node.error("E0201", format!("{}, {} and {} do not match", b.ty(x), b.ty(w), b.ty(offset))));
    }
    let group = groups(node)?;
    let parts = node.int_or("offset_group", 1)?;
    if parts < 1 {
        return Err(node.error("E0106", format!("`offset_group` = {parts} is not positive")));
    }
    let (channels, each) = (b.dims(x)[1].clone(), b.dims(w)[1].clone());
    b.unify(&channels, &(each * Dim::constant(group)))?;
    let batch = (b.dims(x)[0].clone(), b.dims(offset)[0].clone());
    b.unify(&batch.0, &batch.1)?;
    for (i, own) in b.dims(offset).into_iter().enumerate().skip(2) {
        let windows = Windows::from_node(node, &spatial(b, node, x)?, b.dims(w)[2..].to_vec())?;
        b.unify(&own, &windows.places[i - 2])?;
    }
    let kernel = |b: &Builder| product(&b.dims(w)[2..]) * Dim::constant(parts);
    let (own, wanted) = (b.dims(offset)[1].clone(), kernel(b) * Dim::constant(rank as i64));
    b.unify(&own, &wanted)?;
    if let Some(mask) = node.optional(4) {
        if b.rank(mask) != rank + 2 || b.dtype(mask) != b.dtype(x) {
            return Err(node.error("E0201", format!("the mask {} does not fit {}", b.ty(mask), b.ty(offset))));
        }
        for i in 0..rank + 2 {
            let wanted = if i == 1 { kernel(b) } else { b.dims(offset)[i].clone() };
            let own = b.dims(mask)[i].clone();
            b.unify(&own, &wanted)?;
        }
    }
    // The extents are read again, because unification may have rewritten them in other symbols.
    let sizes = b.dims(w)[2..].to_vec();
    let windows = Windows::from_node(node, &spatial(b, node, x)?, sizes.clone())?;
    // Each group of offsets becomes a batch element.
    let split = b.split_axis(x, 1, Dim::constant(parts))?;
    let d = b.dims(split);
    let rows = d[0].clone() * d[1].clone();
    let merged = [&[rows.clone(), d[2].clone()], &d[3..]].concat();
    let x = b.reshape(split, &merged)?;
    let places = b.dims(offset)[2..].to_vec();
    let lead = [std::slice::from_ref(&rows), &sizes, &places].concat();
    let dtype = b.dtype(x);
    let axes = moved(b, offset, &windows, (&lead, &merged[2..]))?;
    let mut columns = sample(b, x, &lead, &axes)?;
    if let Some(mask) = node.optional(4) {
        let mask = b.reshape(mask, &lead)?;
        let dims = b.dims(columns);
        let mask = b.broadcast_at(mask, [0].into_iter().chain(2..dims.len()).collect(), &dims)?;
        columns = b.map2(ScalarFn::Mul, columns, mask)?;
    }
    let columns = b.convert(columns, dtype)?;
    let d = b.dims(split);
    let dims = [&[d[0].clone(), d[1].clone() * d[2].clone()], sizes.as_slice(), &places].concat();
    let columns = b.reshape(columns, &dims)?;
    // Pads by 0 channels: the groups together have all channels of x, but the symbolic dimensions may not show that.
    let (none, mut more) = (vec![Dim::constant(0); dims.len()], vec![Dim::constant(0); dims.len()]);
    more[1] = b.dims(w)[1].clone() * Dim::constant(group) - dims[1].clone();
    let zero = b.splat(dtype, 0.0, &[])?;
    let columns = b.pad(columns, zero, &none, &more)?;
    let columns = b.split_axis(columns, 1, Dim::constant(group))?;
    let w = b.split_axis(w, 0, Dim::constant(group))?;
    let (p, k) = (&"pqrstuvw"[..rank], &"ijklmabd"[..rank]);
    let y = contract(b, &format!("ngc{k}{p},goc{k}->ngo{p}"), columns, w)?;
    let y = merge_groups(b, y)?;
    Ok(vec![biased(b, node, y, node.optional(3))?])
}

/// Returns, for each axis, the neighbours [n·g, offsets, positions] of the coordinates position · stride + offset ·
/// dilation - pad + shift.
fn moved(
    b: &mut Builder,
    offset: Value,
    windows: &Windows,
    (lead, extents): (&[Dim], &[Dim]),
) -> Result<Vec<super::sampling::Neighbours>> {
    let rank = windows.rank();
    // [n, g · offsets · axes, places] => [n·g, offsets, axes, places]
    let split = [&lead[..1 + rank], &[Dim::constant(rank as i64)], &lead[1 + rank..]].concat();
    let offset = b.reshape(offset, &split)?;
    let mut axes = vec![];
    for (i, extent) in extents.iter().enumerate() {
        let own = b.slice_axis(offset, 1 + rank, Dim::constant(i as i64), 1, Dim::constant(1))?;
        let own = b.reshape(own, lead)?;
        let along = |b: &mut Builder, axis: usize, step: i64| -> Result<Value> {
            let at = b.add_typed(Op::Iota { axis }, &[], Some(TensorType::new(DType::I64, lead)))?;
            b.map_const(ScalarFn::Mul, at, step as f64)
        };
        let (places, offsets) = (along(b, 1 + rank + i, windows.strides[i])?, along(b, 1 + i, windows.dilations[i])?);
        let at = b.map2(ScalarFn::Add, places, offsets)?;
        let low = b.dims_scalar(windows.low[i].clone())?;
        let at = b.map2(ScalarFn::Sub, at, low)?;
        let at = b.convert(at, b.dtype(own))?;
        let at = b.map2(ScalarFn::Add, at, own)?;
        axes.push(neighbours(b, at, extent, Filter::Linear, Outside::Zeros, true)?);
    }
    Ok(axes)
}
