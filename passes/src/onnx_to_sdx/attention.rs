//! ai.onnx Attention, FlexAttention  =>  contract, map, reduce
//!
//! q[b,h,s,d] · k[b,h,t,d] → scores[b,h,s,t]; softmax over t; scores · v[b,h,t,e] → y[b,h,s,e], with b the batch, h a
//! head, s a query, t a key, and d and e channels of a head

use super::builder::Builder;
use super::heads::{Offset, additive, append_past, join_heads, repeat_heads, split_heads, window, within_lengths};
use super::lower_block;
use super::node::Node;
use super::reduction::{softmax_of_visible, softmax_over, wide};
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, Value};

type Outputs = Result<Vec<Value>>;

const HIDDEN: f64 = f64::NEG_INFINITY;

/// Queries, keys and values, each [b,h,s,d].
struct Operands {
    q: Value,
    k: Value,
    v: Value,
    /// Whether the node's operands are [b,s,h*d], which is then the layout of the result too.
    joined: bool,
}

fn operands(b: &mut Builder, node: &Node) -> Result<Operands> {
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
    let dtype = b.dtype(q);
    if !dtype.is_float() || [k, v].iter().any(|x| b.dtype(*x) != dtype) {
        return Err(node.error("E0107", format!("takes floats of one type, not {dtype}")));
    }
    for (l, r, axis) in [(q, k, 0), (q, v, 0), (k, v, 1), (k, v, 2)] {
        let (l, r) = (b.dims(l)[axis].clone(), b.dims(r)[axis].clone());
        b.unify(&l, &r)?;
    }
    Ok(Operands { q, k, v, joined })
}

/// ai.onnx Attention: operands of rank 4, or of rank 3 with the numbers of heads as attributes.
pub fn attention(b: &mut Builder, node: &Node) -> Outputs {
    let Operands { q, mut k, mut v, joined } = operands(b, node)?;
    let mut offset = Offset::Same(Dim::constant(0));
    match (node.optional(4), node.optional(5)) {
        (Some(past_k), Some(past_v)) => {
            k = append_past(b, node, past_k, k)?;
            v = append_past(b, node, past_v, v)?;
            offset = Offset::Same(b.dims(past_k)[2].clone());
        }
        (None, None) => {}
        (_, _) => return Err(node.error("E0103", "takes `past_key` and `past_value` both or neither")),
    }
    let nonpad = node.optional(6);
    if let Some(lengths) = nonpad.filter(|v| b.rank(*v) != 1) {
        return Err(node.error("E0201", format!("takes a list of lengths, not {}", b.ty(lengths))));
    }
    if let (Some(lengths), Offset::Same(past)) = (nonpad, &offset)
        && past.is_const(0)
    {
        let s = b.dims_scalar(b.dims(q)[2].clone())?;
        let lengths = b.convert(lengths, DType::I64)?;
        offset = Offset::PerRow(b.map2(ScalarFn::Sub, lengths, s)?);
    }
    let dtype = b.dtype(q);
    let raw = raw_scores(b, node, q, k)?;
    let softcap = node.float_or("softcap", 0.0)?;
    let capped = if softcap > 0.0 { soft_cap(b, raw, softcap)? } else { raw };
    let mut scores = capped;
    let bounds = window_bounds(node)?;
    if let Some(seen) = window(b, scores, &offset, bounds)? {
        let bias = additive(b, seen, dtype, HIDDEN)?;
        scores = b.map2(ScalarFn::Add, scores, bias)?;
    }
    if let Some(mask) = node.optional(3) {
        let bias = mask_bias(b, node, mask, scores)?;
        scores = b.map2(ScalarFn::Add, scores, bias)?;
    }
    if let Some(lengths) = nonpad {
        let seen = within_lengths(b, lengths, b.dims(scores)[3].clone())?;
        let bias = additive(b, seen, dtype, HIDDEN)?;
        scores = b.map2(ScalarFn::Add, scores, bias)?;
    }
    let precision = softmax_precision(node, dtype)?;
    let single = b.convert(scores, precision)?;
    // Without a mask every query sees at least one key: its own, or an earlier one.
    let all_see = node.optional(3).is_none() && nonpad.is_none() && bounds[0].is_none();
    let weights = if all_see { softmax_over(b, single, &[3])? } else { softmax_of_visible(b, single, &[3])? };
    let weights = b.convert(weights, dtype)?;
    let shown = match node.int_or("qk_matmul_output_mode", 0)? {
        0 => raw,
        1 => capped,
        2 => scores,
        3 => weights,
        other => return Err(node.error("E0106", format!("has no `qk_matmul_output_mode` {other}"))),
    };
    let heads = b.dims(q)[1].clone();
    let values = repeat_heads(b, v, &heads)?;
    let y = b.contract("bhst,bhte->bhse", weights, values)?;
    let y = if joined { join_heads(b, y)? } else { y };
    Ok(vec![y, k, v, shown])
}

/// The softmax is computed in f32 at least, unless the node requests another precision.
fn softmax_precision(node: &Node, dtype: DType) -> Result<DType> {
    let precision = node.dtype("softmax_precision")?.unwrap_or(wide(dtype));
    match precision.is_float() {
        true => Ok(precision),
        false => Err(node.error("E0107", format!("no softmax is computed in {precision}"))),
    }
}

/// Returns how many keys to the left and to the right a query sees; `None` if there is no limit.
fn window_bounds(node: &Node) -> Result<[Option<i64>; 2]> {
    let side = |name: &str| match node.int_or(name, -1)? {
        -1 => Ok(None),
        // A distance beyond the length of any tensor needs no bound.
        n if n > i32::MAX as i64 => Ok(None),
        n if n >= 0 => Ok(Some(n)),
        n => Err(node.error("E0106", format!("`{name}` = {n} is neither -1 nor a distance"))),
    };
    let (left, right) = (side("left_window_size")?, side("right_window_size")?);
    let causal = node.int_or("is_causal", 0)? != 0;
    Ok([left, if causal { Some(0) } else { right }])
}

/// scale · q kᵀ. In half precision both operands are multiplied by the root of the scale, so that neither the products
/// nor their rounding errors exceed those of the specification.
fn raw_scores(b: &mut Builder, node: &Node, q: Value, k: Value) -> Result<Value> {
    let given = if node.has("scale") { Some(node.float_or("scale", 1.0)?) } else { None };
    let half = b.dtype(q).bits() == 16;
    let (mut left, mut right) = (q, k);
    if half {
        left = scaled(b, q, given, true)?;
        right = scaled(b, k, given, true)?;
    } else {
        left = scaled(b, left, given, false)?;
    }
    let heads = b.dims(q)[1].clone();
    right = repeat_heads(b, right, &heads)?;
    b.contract("bhsd,bhtd->bhst", left, right)
}

/// x · scale, or x · √scale if `root`; the scale is 1 / √d where none is given.
pub fn scaled(b: &mut Builder, x: Value, given: Option<f64>, root: bool) -> Result<Value> {
    let d = b.dims(x)[3].clone();
    let scale = given.or_else(|| d.as_const().map(|d| 1.0 / (d as f64).sqrt()));
    if let Some(scale) = scale {
        return b.map_const(ScalarFn::Mul, x, if root { scale.sqrt() } else { scale });
    }
    let width = b.dims_scalar(d)?;
    let width = b.convert(width, DType::F64)?;
    let mut divisor = b.map1(ScalarFn::Sqrt, width)?;
    if root {
        divisor = b.map1(ScalarFn::Sqrt, divisor)?;
    }
    let one = b.splat(DType::F64, 1.0, &[])?;
    let scale = b.map2(ScalarFn::Div, one, divisor)?;
    let scale = b.convert(scale, b.dtype(x))?;
    b.map2(ScalarFn::Mul, x, scale)
}

/// cap · tanh(x / cap)
pub fn soft_cap(b: &mut Builder, x: Value, cap: f64) -> Result<Value> {
    let inner = b.map_const(ScalarFn::Div, x, cap)?;
    let inner = b.map1(ScalarFn::Tanh, inner)?;
    b.map_const(ScalarFn::Mul, inner, cap)
}

/// Returns the tensor that a mask adds to the scores. Since opset 24 a mask may be shorter than the number of keys; it
/// then hides the remaining keys.
fn mask_bias(b: &mut Builder, node: &Node, mask: Value, scores: Value) -> Result<Value> {
    let dtype = b.dtype(scores);
    let bias = match b.dtype(mask) {
        DType::Bool => additive(b, mask, dtype, HIDDEN)?,
        given if given == dtype => mask,
        given => return Err(node.error("E0107", format!("takes a mask of bool or {dtype}, not {given}"))),
    };
    // There is one mask for all heads, or one per head.
    let bias = match b.rank(bias).checked_sub(3) {
        Some(axis) => {
            let heads = b.dims(scores)[1].clone();
            b.one_or_all(bias, axis, &heads)?
        }
        None => bias,
    };
    let (Some(own), total) = (b.dims(bias).last().cloned(), b.dims(scores)[3].clone()) else { return Ok(bias) };
    if node.opset < 24 || own == total {
        return Ok(bias);
    }
    b.require_at_most(&own, &total)?;
    let mut ty = b.ty(bias).clone();
    let low = vec![Dim::constant(0); ty.rank()];
    if let Some(last) = ty.dims.last_mut() {
        *last = b.dims(scores)[3].clone();
    }
    let hidden = b.splat(dtype, HIDDEN, &[])?;
    b.add_typed(Op::Pad { low }, &[bias, hidden], Some(ty))
}

/// ai.onnx.preview FlexAttention; its functions `score_mod` and `prob_mod` modify the scores and the weights.
pub fn flex_attention(b: &mut Builder, node: &Node) -> Outputs {
    let scores = flex_scores(b, node)?;
    let scores = modified(b, node, "score_mod", scores)?;
    let weights = softmax_over(b, scores, &[3])?;
    let weights = modified(b, node, "prob_mod", weights)?;
    Ok(vec![flex_values(b, node, weights, node.input(2)?)?])
}

/// Applies the named function of one value; returns the value itself if the node has no such function.
fn modified(b: &mut Builder, node: &Node, name: &str, x: Value) -> Result<Value> {
    if !node.has_body(name) {
        return Ok(x);
    }
    let block = node.body(name)?;
    let results = if block.arguments().len() == 1 { lower_block(b, block, &[x])? } else { vec![] };
    match *results.as_slice() {
        [y] if b.ty(y) == b.ty(x) => Ok(y),
        [y] => Err(node.error("E0201", format!("`{name}` makes {} of {}", b.ty(y), b.ty(x)))),
        _ => Err(node.error("E0106", format!("`{name}` is not a function of one value with one result"))),
    }
}

/// Scores in the precision of the softmax, which is f32 at least by default.
fn flex_scores(b: &mut Builder, node: &Node) -> Result<Value> {
    let (q, k) = (node.input(0)?, node.input(1)?);
    if b.rank(q) != 4 || b.rank(k) != 4 {
        return Err(node.error("E0201", "takes operands of rank 4"));
    }
    let dtype = b.dtype(q);
    if !dtype.is_float() || b.dtype(k) != dtype {
        return Err(node.error("E0107", format!("takes floats of one type, not {dtype} and {}", b.dtype(k))));
    }
    let precision = softmax_precision(node, dtype)?;
    let scores = raw_scores(b, node, q, k)?;
    b.convert(scores, precision)
}

fn flex_values(b: &mut Builder, node: &Node, weights: Value, v: Value) -> Result<Value> {
    if b.rank(weights) != 4 || b.rank(v) != 4 {
        return Err(node.error("E0201", "takes operands of rank 4"));
    }
    let (dtype, precision) = (b.dtype(v), b.dtype(weights));
    let heads = b.dims(weights)[1].clone();
    let values = b.convert(v, precision)?;
    let values = repeat_heads(b, values, &heads)?;
    let y = b.contract("bhst,bhte->bhse", weights, values)?;
    b.convert(y, dtype)
}
