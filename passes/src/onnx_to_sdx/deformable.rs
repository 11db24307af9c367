//! DeformConv(x, w, offset)  =>  x sampled at moved offsets of each window, and a contraction over channels and offsets
//!
//! x[n, c, h, w] at moved places → [n, g, c, i, j, p, q] · w[g, o, c, i, j] → y[n, g, o, p, q]

use super::builder::Builder;
use super::convolution::{biased, contract, groups, merge_groups};
use super::node::Node;
use super::sampling::{Filter, Outside, neighbours, sample};
use super::windows::{Windows, spatial};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, TensorType, Value};
use sardonyx_runtime::dim::product;
use sardonyx_runtime::{DType, Dim, Result};

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
    let sizes = b.dims(w)[2..].to_vec();
    let windows = Windows::of(node, &spatial(b, node, x)?, sizes.clone())?;
    for (i, places) in windows.places.iter().enumerate() {
        let own = b.dims(offset)[2 + i].clone();
        b.unify(&own, places)?;
    }
    // A group of offsets is a batch element of its own.
    let split = b.split_axis(x, 1, Dim::constant(parts))?;
    let d = b.dims(split);
    let rows = d[0].clone() * d[1].clone();
    let merged = [&[rows.clone(), d[2].clone()], &d[3..]].concat();
    let x = b.reshape(split, &merged)?;
    let places = b.dims(offset)[2..].to_vec();
    let lead = [&[rows.clone()], sizes.as_slice(), &places].concat();
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
    let (n, channels) = (b.dims(split)[0].clone(), b.dims(w)[1].clone());
    let dims = [&[n, Dim::constant(group), channels], sizes.as_slice(), &places].concat();
    let columns = b.reshape(columns, &dims)?;
    let w = b.split_axis(w, 0, Dim::constant(group))?;
    let (p, k) = (&"pqrstuvw"[..rank], &"ijklmabd"[..rank]);
    let y = contract(b, &format!("ngc{k}{p},goc{k}->ngo{p}"), columns, w)?;
    let y = merge_groups(b, y)?;
    Ok(vec![biased(b, node, y, node.optional(3))?])
}

/// Per axis the neighbours of place · stride + offset · dilation - pad + what the model adds: [n·g, offsets, places].
fn moved(
    b: &mut Builder,
    offset: Value,
    windows: &Windows,
    (lead, extents): (&[Dim], &[Dim]),
) -> Result<Vec<super::sampling::Neighbours>> {
    let rank = windows.rank();
    // [n, g · offsets · axes, places] => [n·g, offsets, axes, places]
    let split = [&lead[..1 + rank], &[Dim::constant(rank as i64)], &lead[1 + rank..]].concat();
    let (from, to) = (product(&b.dims(offset)), product(&split));
    b.unify(&from, &to)?;
    let offset = b.reshape(offset, &split)?;
    let mut axes = vec![];
    for i in 0..rank {
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
        axes.push(neighbours(b, at, &extents[i], Filter::Linear, Outside::Zeros, true)?);
    }
    Ok(axes)
}
