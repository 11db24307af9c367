//! Attention and rotary embedding, ONNX's and com.microsoft's  =>  contract, map, reduce
//!
//! q[b,h,s,d] · k[b,h,t,d] → scores[b,h,s,t]; softmax over t; scores · v[b,h,t,e] → y[b,h,s,e]

use super::builder::Builder;
use super::node::Node;
use super::reduction::{softmax_of_visible, softmax_over};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, TensorType, Value};
use sardonyx_runtime::{DType, Dim, Result};

type Outputs = Result<Vec<Value>>;

/// x[b,s,h*d] → [b,h,s,d]
fn split_heads(b: &mut Builder, x: Value, heads: i64) -> Result<Value> {
    let [batch, s, width] = <[Dim; 3]>::try_from(b.dims(x))
        .map_err(|d| b.error("E0201", format!("a value of rank {} has no heads to split", d.len())))?;
    let d = width
        .exact_div(&Dim::constant(heads))
        .ok_or_else(|| b.error("E0201", format!("a width of {width} does not divide into {heads} heads")))?;
    let split = b.reshape(x, &[batch, s, Dim::constant(heads), d])?;
    b.transpose(split, vec![0, 2, 1, 3])
}

/// y[b,h,s,d] → [b,s,h*d]
fn join_heads(b: &mut Builder, y: Value) -> Result<Value> {
    let moved = b.transpose(y, vec![0, 2, 1, 3])?;
    let dims = b.dims(moved);
    b.reshape(moved, &[dims[0].clone(), dims[1].clone(), dims[2].clone() * dims[3].clone()])
}

fn iota(b: &mut Builder, axis: usize, dims: &[Dim]) -> Result<Value> {
    b.add_typed(Op::Iota { axis }, &[], Some(TensorType::new(DType::I64, dims)))
}

/// The additive form of a mask: 0 where it is true, `low` where it is false.
fn additive(b: &mut Builder, mask: Value, dtype: DType, low: f64) -> Result<Value> {
    let dims = b.dims(mask);
    let (zero, low) = (b.splat(dtype, 0.0, &dims)?, b.splat(dtype, low, &dims)?);
    b.select(mask, zero, low)
}

/// True where key t may be seen from query s, of the last queries of t keys: t <= s + (t_count - s_count).
fn causal(b: &mut Builder, scores: Value) -> Result<Value> {
    let dims = b.dims(scores)[2..].to_vec();
    let (rows, columns) = (iota(b, 0, &dims)?, iota(b, 1, &dims)?);
    let past = b.dims_scalar(dims[1].clone() - dims[0].clone())?;
    let last = b.map2(ScalarFn::Add, rows, past)?;
    b.map2(ScalarFn::Le, columns, last)
}

/// y[b,g,t,d] => y[b,h,t,d]: each of the keys' heads serves a group of queries, and stands once for each of them, as
/// exporters write it. Kernels read it where it stands once.
fn repeat_heads(b: &mut Builder, y: Value, h: &Dim) -> Result<Value> {
    let [batch, kv, t, d] =
        <[Dim; 4]>::try_from(b.dims(y)).map_err(|_| b.error("E0201", "takes operands of rank 4"))?;
    if *h == kv {
        return Ok(y);
    }
    let group =
        h.exact_div(&kv).ok_or_else(|| b.error("E0201", format!("{h} heads do not divide into groups of {kv}")))?;
    let spread = b.broadcast_at(y, vec![0, 1, 3, 4], &[batch.clone(), kv, group, t.clone(), d.clone()])?;
    b.reshape(spread, &[batch, h.clone(), t, d])
}

/// ai.onnx Attention: operands of rank 4, or of rank 3 with the numbers of heads as attributes.
pub fn attention(b: &mut Builder, node: &Node) -> Outputs {
    let (mut q, mut k, mut v) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let joined = b.rank(q) == 3;
    if joined {
        let heads = node.require("q_num_heads", node.int("q_num_heads")?)?;
        let kv_heads = node.require("kv_num_heads", node.int("kv_num_heads")?)?;
        q = split_heads(b, q, heads)?;
        k = split_heads(b, k, kv_heads)?;
        v = split_heads(b, v, kv_heads)?;
    }
    if [q, k, v].iter().any(|x| b.rank(*x) != 4) {
        return Err(node.error("E0201", "takes operands of rank 3 or 4, all alike"));
    }
    if let (Some(past_k), Some(past_v)) = (node.optional(4), node.optional(5)) {
        k = b.add(Op::Concat { axis: 2 }, &[past_k, k])?;
        v = b.add(Op::Concat { axis: 2 }, &[past_v, v])?;
    }
    if node.optional(6).is_some() {
        return Err(node.error("E0101", "`nonpad_kv_seqlen` is not supported"));
    }
    let dtype = b.dtype(q);
    if !dtype.is_float() {
        return Err(node.error("E0107", format!("does not take {dtype}")));
    }
    let d = b.dims(q)[3].as_const().ok_or_else(|| node.error("E0203", "the head width is not constant"))?;
    let scale = node.float_or("scale", 1.0 / (d as f64).sqrt())?;
    let scaled = b.map_const(ScalarFn::Mul, q, scale)?;
    let heads = b.dims(q)[1].clone();
    let keys = repeat_heads(b, k, &heads)?;
    let scores = b.contract("bhsd,bhtd->bhst", scaled, keys)?;
    let mut outputs_qk = scores;
    let mut scores = scores;
    let low = f64::NEG_INFINITY;
    if node.int_or("is_causal", 0)? != 0 {
        let mask = causal(b, scores)?;
        let mask = additive(b, mask, dtype, low)?;
        scores = b.map2(ScalarFn::Add, scores, mask)?;
    }
    if let Some(mask) = node.optional(3) {
        let mask = if b.dtype(mask) == DType::Bool { additive(b, mask, dtype, low)? } else { mask };
        scores = b.map2(ScalarFn::Add, scores, mask)?;
    }
    let mode = node.int_or("qk_matmul_output_mode", 0)?;
    if mode == 1 {
        outputs_qk = scores;
    }
    let softcap = node.float_or("softcap", 0.0)?;
    if softcap > 0.0 {
        let inner = b.map_const(ScalarFn::Div, scores, softcap)?;
        let inner = b.map1(ScalarFn::Tanh, inner)?;
        scores = b.map_const(ScalarFn::Mul, inner, softcap)?;
    }
    if mode == 2 {
        outputs_qk = scores;
    }
    let weights = match node.optional(3) {
        Some(_) => softmax_of_visible(b, scores, &[3])?,
        None => softmax_over(b, scores, &[3])?,
    };
    if mode == 3 {
        outputs_qk = weights;
    }
    let values = repeat_heads(b, v, &heads)?;
    let y = b.contract("bhst,bhte->bhse", weights, values)?;
    let y = if joined { join_heads(b, y)? } else { y };
    Ok(vec![y, k, v, outputs_qk])
}

/// com.microsoft Attention: one stacked projection, then attention over its parts.
pub fn stacked_attention(b: &mut Builder, node: &Node) -> Outputs {
    let (x, weight) = (node.input(0)?, node.input(1)?);
    let heads = node.require("num_heads", node.int("num_heads")?)?;
    if node.optional(4).is_some() || node.optional(6).is_some() {
        return Err(node.error("E0101", "`past` is not supported"));
    }
    let mut qkv = b.contract("bsi,io->bso", x, weight)?;
    if let Some(bias) = node.optional(2) {
        qkv = b.map2(ScalarFn::Add, qkv, bias)?;
    }
    let width = b.dims(qkv)[2].as_const().unwrap_or(0);
    let sizes = node.ints("qkv_hidden_sizes")?.unwrap_or_else(|| vec![width / 3; 3]);
    let mut parts = vec![];
    let mut start = 0;
    for size in &sizes {
        let part = b.slice_axis(qkv, 2, Dim::constant(start), 1, Dim::constant(*size))?;
        parts.push(split_heads(b, part, heads)?);
        start += size;
    }
    let &[q, k, v] = parts.as_slice() else {
        return Err(node.error("E0106", "`qkv_hidden_sizes` has not three entries"));
    };
    let dtype = b.dtype(q);
    let d = b.dims(q)[3].as_const().unwrap_or(1);
    let scale = match node.float_or("scale", 0.0)? {
        0.0 => 1.0 / (d as f64).sqrt(),
        given => given,
    };
    let scores = b.contract("bhsd,bhtd->bhst", q, k)?;
    let mut scores = b.map_const(ScalarFn::Mul, scores, scale)?;
    let low = node.float_or("mask_filter_value", -10000.0)?;
    if let Some(mask) = node.optional(3) {
        let seen = seen_keys(b, node, mask, scores)?;
        let mask = additive(b, seen, dtype, low)?;
        scores = b.map2(ScalarFn::Add, scores, mask)?;
    }
    if node.int_or("unidirectional", 0)? != 0 {
        let mask = causal(b, scores)?;
        let mask = additive(b, mask, dtype, low)?;
        scores = b.map2(ScalarFn::Add, scores, mask)?;
    }
    if let Some(bias) = node.optional(5) {
        scores = b.map2(ScalarFn::Add, scores, bias)?;
    }
    let weights = softmax_over(b, scores, &[3])?;
    let y = b.contract("bhst,bhte->bhse", weights, v)?;
    Ok(vec![join_heads(b, y)?])
}

/// Which keys a mask lets through, broadcast against scores[b,h,s,t]: of rank 1 the number of keys per row of the
/// batch, of rank 2 a truth value per key, of rank 3 one per query and key.
fn seen_keys(b: &mut Builder, node: &Node, mask: Value, scores: Value) -> Result<Value> {
    let one = Dim::constant(1);
    let dims = b.dims(mask);
    let mask = b.convert(mask, DType::I64)?;
    match dims.as_slice() {
        [batch] => {
            let t = b.dims(scores)[3].clone();
            let length = b.reshape(mask, &[batch.clone(), one.clone(), one.clone(), one])?;
            let columns = iota(b, 0, &[t])?;
            b.map2(ScalarFn::Lt, columns, length)
        }
        [batch, t] => {
            let mask = b.reshape(mask, &[batch.clone(), one.clone(), one, t.clone()])?;
            b.convert(mask, DType::Bool)
        }
        [batch, s, t] => {
            let mask = b.reshape(mask, &[batch.clone(), one, s.clone(), t.clone()])?;
            b.convert(mask, DType::Bool)
        }
        _ => Err(node.error("E0201", format!("a mask of rank {} is not supported", dims.len()))),
    }
}

/// ai.onnx RotaryEmbedding: pairs of channels turn by the angle of their position.
pub fn rotary_embedding(b: &mut Builder, node: &Node) -> Outputs {
    let (input, mut cos, mut sin) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let joined = b.rank(input) == 3;
    // [b,h,s,d], whichever way it came.
    let x = match joined {
        true => split_heads(b, input, node.require("num_heads", node.int("num_heads")?)?)?,
        false => input,
    };
    if let Some(positions) = node.optional(3) {
        let positions = b.convert(positions, DType::I64)?;
        cos = b.add(Op::Gather { axis: 0 }, &[cos, positions])?;
        sin = b.add(Op::Gather { axis: 0 }, &[sin, positions])?;
    }
    // [b,s,r] → [b,1,s,r]
    let spread = |b: &mut Builder, v: Value| {
        let mut dims = b.dims(v);
        dims.insert(1, Dim::constant(1));
        b.reshape(v, &dims)
    };
    (cos, sin) = (spread(b, cos)?, spread(b, sin)?);
    let dims = b.dims(x);
    let width = dims[3].as_const().ok_or_else(|| node.error("E0203", "the head width is not constant"))?;
    let rotated = match node.int_or("rotary_embedding_dim", 0)? {
        0 => width,
        given => given,
    };
    let interleaved = node.int_or("interleaved", 0)? != 0;
    let half = Dim::constant(rotated / 2);
    let (x1, x2) = match interleaved {
        true => (
            b.slice_axis(x, 3, Dim::constant(0), 2, half.clone())?,
            b.slice_axis(x, 3, Dim::constant(1), 2, half.clone())?,
        ),
        false => {
            (b.slice_axis(x, 3, Dim::constant(0), 1, half.clone())?, b.slice_axis(x, 3, half.clone(), 1, half.clone())?)
        }
    };
    let turn = |b: &mut Builder, f, (p, c): (Value, Value), (q, s): (Value, Value)| {
        let (l, r) = (b.map2(ScalarFn::Mul, p, c)?, b.map2(ScalarFn::Mul, q, s)?);
        b.map2(f, l, r)
    };
    let real = turn(b, ScalarFn::Sub, (x1, cos), (x2, sin))?;
    let imaginary = turn(b, ScalarFn::Add, (x1, sin), (x2, cos))?;
    let mut parts = match interleaved {
        true => {
            let mut pair = b.dims(real);
            pair.push(Dim::constant(1));
            let (r, i) = (b.reshape(real, &pair)?, b.reshape(imaginary, &pair)?);
            let both = b.add(Op::Concat { axis: 4 }, &[r, i])?;
            let mut flat = b.dims(real);
            flat[3] = Dim::constant(rotated);
            vec![b.reshape(both, &flat)?]
        }
        false => vec![real, imaginary],
    };
    if rotated < width {
        parts.push(b.slice_axis(x, 3, Dim::constant(rotated), 1, Dim::constant(width - rotated))?);
    }
    let y = if parts.len() == 1 { parts[0] } else { b.add(Op::Concat { axis: 3 }, &parts)? };
    Ok(vec![if joined { join_heads(b, y)? } else { y }])
}

/// com.microsoft EmbedLayerNormalization: the sum of three embeddings, normalised; and the number of keys per row.
pub fn embed_layer_normalization(b: &mut Builder, node: &Node) -> Outputs {
    let ids = node.input(0)?;
    let (word, position) = (node.input(2)?, node.input(3)?);
    let lookup = |b: &mut Builder, table: Value, ids: Value| {
        let ids = b.convert(ids, DType::I64)?;
        b.add(Op::Gather { axis: 0 }, &[table, ids])
    };
    let mut sum = lookup(b, word, ids)?;
    let positions = match node.optional(8) {
        Some(given) => lookup(b, position, given)?,
        None => {
            let s = b.dims(ids)[1].clone();
            let (limit, symbol) = (b.dims(position)[0].clone(), s.clone());
            let shorter = symbol.minimum(&limit);
            b.unify(&shorter, &symbol)?;
            b.slice_axis(position, 0, Dim::constant(0), 1, s)?
        }
    };
    if let (Some(segments), Some(table)) = (node.optional(1), node.optional(4)) {
        let segment = lookup(b, table, segments)?;
        sum = b.map2(ScalarFn::Add, sum, segment)?;
    }
    sum = b.map2(ScalarFn::Add, sum, positions)?;
    let (scale, bias) = (node.input(5)?, node.input(6)?);
    let epsilon = node.float_or("epsilon", 1e-12)?;
    let y = super::reduction::normalise(b, sum, scale, Some(bias), epsilon)?;
    let lengths = match node.optional(7) {
        Some(mask) => b.reduce(ReduceFn::Add, mask, &[1], false)?,
        None => {
            let batch = b.dims(ids)[0].clone();
            b.splat(DType::I32, 0.0, &[batch])?
        }
    };
    Ok(vec![y, lengths, sum])
}
