//! com.microsoft Attention, QAttention, MultiHead-, GroupQuery-, PackedAttention  =>  contract, map, reduce
//!
//! Letters of dimensions: b batch, s queries, t keys, h heads of queries, g heads of keys and values, d and e channels.

use super::attention::soft_cap;
use super::builder::Builder;
use super::coordinates::checked_index;
use super::heads::{
    Offset, additive, append_past, iota, join_heads, repeat_heads, split_heads, window, within_lengths,
};
use super::node::Node;
use super::recurrence::element;
use super::reduction::{softmax_of_visible, softmax_over, wide};
use super::rotary::{angles, rotate_by_tables};
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};

type Outputs = Result<Vec<Value>>;

/// `scale`, or 1 / √d where it is absent or 0.
fn scale_of(b: &Builder, node: &Node, q: Value) -> Result<f64> {
    let given = node.float_or("scale", 0.0)?;
    if given != 0.0 {
        return Ok(given);
    }
    let d = b.dims(q)[3].as_const().ok_or_else(|| node.error("E0203", "the head width is not constant"))?;
    Ok(1.0 / (d as f64).sqrt())
}

/// Returns scores[b,h,s,t] = scale · q kᵀ.
pub(super) fn scores_of(b: &mut Builder, node: &Node, q: Value, k: Value) -> Result<Value> {
    let scale = scale_of(b, node, q)?;
    let heads = b.dims(q)[1].clone();
    let keys = repeat_heads(b, k, &heads)?;
    let scores = b.contract("bhsd,bhtd->bhst", q, keys)?;
    b.map_const(ScalarFn::Mul, scores, scale)
}

/// Adds `low` to the scores of keys that a query does not see.
pub(super) fn hide(b: &mut Builder, scores: Value, seen: Value, low: f64) -> Result<Value> {
    let bias = additive(b, seen, b.dtype(scores), low)?;
    b.map2(ScalarFn::Add, scores, bias)
}

/// weights[b,h,s,t] · v[b,g,t,e] → [b,s,h*e]
fn weigh(b: &mut Builder, weights: Value, v: Value) -> Result<Value> {
    let heads = b.dims(weights)[1].clone();
    let values = repeat_heads(b, v, &heads)?;
    let y = b.contract("bhst,bhte->bhse", weights, values)?;
    join_heads(b, y)
}

pub(super) fn heads_of(node: &Node, name: &str) -> Result<i64> {
    let heads = node.require(name, node.int(name)?)?;
    match heads > 0 {
        true => Ok(heads),
        false => Err(node.error("E0106", format!("`{name}` = {heads} is no number of heads"))),
    }
}

/// Slices qkv[b,s,·] into queries, keys and values, each [b,h,s,d]; their widths are equal unless the node gives them.
fn thirds(b: &mut Builder, node: &Node, qkv: Value) -> Result<[Value; 3]> {
    let heads = heads_of(node, "num_heads")?;
    let width = b.dims(qkv)[2].as_const().unwrap_or(0);
    let sizes = node.ints("qkv_hidden_sizes")?.unwrap_or_else(|| vec![width / 3; 3]);
    let sizes =
        <[i64; 3]>::try_from(sizes).map_err(|_| node.error("E0106", "`qkv_hidden_sizes` has not three entries"))?;
    cut(b, node, qkv, sizes, [heads; 3])
}

/// Slices x[b,s,·] along its last axis into three values, and splits each into heads, as [b,h,s,d].
fn cut(b: &mut Builder, node: &Node, x: Value, sizes: [i64; 3], heads: [i64; 3]) -> Result<[Value; 3]> {
    let width = b.dims(x)[2].clone();
    let total = sizes.iter().try_fold(0i64, |sum, &size| sum.checked_add(size).filter(|_| size >= 0));
    if total.is_none_or(|total| !width.is_const(total)) {
        return Err(node.error("E0201", format!("a width of {width} is not cut into parts of {sizes:?}")));
    }
    let mut start = 0;
    let mut parts = [x; 3];
    for ((part, size), heads) in parts.iter_mut().zip(sizes).zip(heads) {
        let piece = b.slice_axis(x, 2, Dim::constant(start), 1, Dim::constant(size))?;
        *part = split_heads(b, piece, heads)?;
        start += size;
    }
    Ok(parts)
}

/// com.microsoft Attention: one stacked projection, then attention over its slices.
pub fn stacked_attention(b: &mut Builder, node: &Node) -> Outputs {
    if node.optional(6).is_some() {
        return Err(node.error("E0101", "a past in a shared buffer is not supported"));
    }
    let qkv = b.contract("bsi,io->bso", node.input(0)?, node.input(1)?)?;
    let qkv = biased(b, qkv, node.optional(2))?;
    attend(b, node, qkv, node.optional(3), node.optional(4), node.optional(5))
}

/// com.microsoft QAttention: the projection is an integer product, with scales and zero points as operands.
pub fn quantized_attention(b: &mut Builder, node: &Node) -> Outputs {
    let mut operands = [node.input(0)?, node.input(1)?];
    for (operand, zero) in operands.iter_mut().zip([6, 7]) {
        *operand = b.convert(*operand, DType::I32)?;
        if let Some(zero) = node.optional(zero) {
            let zero = b.convert(zero, DType::I32)?;
            *operand = b.map2(ScalarFn::Sub, *operand, zero)?;
        }
    }
    let product = b.contract("bsi,io->bso", operands[0], operands[1])?;
    let scale = b.map2(ScalarFn::Mul, node.input(3)?, node.input(4)?)?;
    let product = b.convert(product, b.dtype(scale))?;
    let qkv = b.map2(ScalarFn::Mul, product, scale)?;
    let qkv = biased(b, qkv, Some(node.input(2)?))?;
    attend(b, node, qkv, node.optional(5), node.optional(8), None)
}

fn biased(b: &mut Builder, x: Value, bias: Option<Value>) -> Result<Value> {
    bias.map_or(Ok(x), |bias| b.map2(ScalarFn::Add, x, bias))
}

/// Attention over the slices of qkv[b,s,·]. A past, which stacks keys and values as [2,b,h,t,d], is prepended to them.
fn attend(
    b: &mut Builder,
    node: &Node,
    qkv: Value,
    mask: Option<Value>,
    past: Option<Value>,
    bias: Option<Value>,
) -> Outputs {
    if node.int_or("do_rotary", 0)? != 0 {
        return Err(node.error("E0101", "rotation is not supported"));
    }
    let [q, mut k, mut v] = thirds(b, node, qkv)?;
    if let Some(past) = past {
        for (i, x) in [(0, &mut k), (1, &mut v)] {
            let dims = b.dims(past);
            if dims.len() != 5 {
                return Err(node.error("E0201", format!("a past of rank {} is not supported", dims.len())));
            }
            let one = element(b, past, i)?;
            *x = append_past(b, node, one, *x)?;
        }
    }
    let mut scores = scores_of(b, node, q, k)?;
    let low = node.float_or("mask_filter_value", -10000.0)?;
    if let Some(mask) = mask {
        let seen = seen_keys(b, node, mask, scores)?;
        scores = hide(b, scores, seen, low)?;
    }
    scores = unidirectional(b, node, scores, low)?;
    scores = biased(b, scores, bias)?;
    let weights = weights_of(b, scores)?;
    let y = weigh(b, weights, v)?;
    if node.n_outputs < 2 {
        return Ok(vec![y]);
    }
    let mut stacked = b.dims(k);
    stacked.insert(0, Dim::constant(1));
    let (k, v) = (b.reshape(k, &stacked)?, b.reshape(v, &stacked)?);
    Ok(vec![y, b.add(Op::Concat { axis: 0 }, &[k, v])?])
}

/// softmax over the keys, computed in f32 at least.
fn weights_of(b: &mut Builder, scores: Value) -> Result<Value> {
    let dtype = b.dtype(scores);
    let single = b.convert(scores, wide(dtype))?;
    let weights = softmax_over(b, single, &[3])?;
    b.convert(weights, dtype)
}

fn unidirectional(b: &mut Builder, node: &Node, scores: Value, low: f64) -> Result<Value> {
    if node.int_or("unidirectional", 0)? == 0 {
        return Ok(scores);
    }
    let offset = Offset::at_end(b, scores);
    match window(b, scores, &offset, [None, Some(0)])? {
        Some(seen) => hide(b, scores, seen, low),
        None => Ok(scores),
    }
}

/// Which keys a mask makes visible, broadcastable to scores[b,h,s,t]. A mask of rank 1 has the number of keys per row
/// of the batch, one of rank 2 a boolean per key, one of rank 3 a boolean per query and key.
fn seen_keys(b: &mut Builder, node: &Node, mask: Value, scores: Value) -> Result<Value> {
    let one = Dim::constant(1);
    let dims = b.dims(mask);
    let mask = b.convert(mask, DType::I64)?;
    match dims.as_slice() {
        // Other vectors combine several lists: [3b + 2] also has the starts of packed sequences.
        [rows] if rows == &b.dims(scores)[0] => {
            let t = b.dims(scores)[3].clone();
            within_lengths(b, mask, t)
        }
        [batch, t] => {
            let mask = b.reshape(mask, &[batch.clone(), one.clone(), one, t.clone()])?;
            b.convert(mask, DType::Bool)
        }
        [batch, s, t] => {
            let mask = b.reshape(mask, &[batch.clone(), one, s.clone(), t.clone()])?;
            b.convert(mask, DType::Bool)
        }
        _ => Err(node.error("E0201", format!("the mask {} is not supported", b.ty(mask)))),
    }
}

/// com.microsoft MultiHeadAttention: queries, keys and values are separate, or packed as [b,s,h,3,d], or keys and
/// values are packed as [b,t,h,2,d]. Separate keys and values of rank 4 are [b,h,t,d], the layout of a past.
pub fn multi_head_attention(b: &mut Builder, node: &Node) -> Outputs {
    let heads = heads_of(node, "num_heads")?;
    let [q, mut k, mut v] = multi_head_operands(b, node, heads)?;
    if let (Some(past_k), Some(past_v)) = (node.optional(6), node.optional(7)) {
        k = append_past(b, node, past_k, k)?;
        v = append_past(b, node, past_v, v)?;
    }
    if node.optional(8).is_some() || node.optional(9).is_some() {
        return Err(node.error("E0101", "a past in a shared buffer is not supported"));
    }
    let mut scores = scores_of(b, node, q, k)?;
    let raw = scores;
    let low = node.float_or("mask_filter_value", -10000.0)?;
    if let Some(mask) = node.optional(4) {
        let seen = seen_keys(b, node, mask, scores)?;
        scores = hide(b, scores, seen, low)?;
    }
    scores = unidirectional(b, node, scores, low)?;
    if let Some(bias) = node.optional(5) {
        scores = b.map2(ScalarFn::Add, scores, bias)?;
    }
    let weights = weights_of(b, scores)?;
    let y = weigh(b, weights, v)?;
    Ok(vec![y, k, v, raw])
}

fn multi_head_operands(b: &mut Builder, node: &Node, heads: i64) -> Result<[Value; 3]> {
    let query = node.input(0)?;
    let mut parts = match (b.rank(query), node.optional(1), node.optional(2)) {
        (5, None, None) => unpack(b, node, query, 3)?,
        (_, Some(pair), None) if b.rank(pair) == 5 => {
            let mut parts = vec![split_heads(b, query, heads)?];
            parts.extend(unpack(b, node, pair, 2)?);
            parts
        }
        (_, Some(k), Some(v)) => {
            let mut parts = vec![split_heads(b, query, heads)?];
            for x in [k, v] {
                parts.push(if b.rank(x) == 4 { x } else { split_heads(b, x, heads)? });
            }
            parts
        }
        _ => return Err(node.error("E0103", "lacks its keys or its values")),
    };
    if let Some(bias) = node.optional(3) {
        if b.rank(bias) != 1 {
            return Err(node.error("E0201", format!("takes a bias of rank 1, not {}", b.ty(bias))));
        }
        let mut start = Dim::constant(0);
        for part in &mut parts {
            let dims = b.dims(*part);
            let width = dims[1].clone() * dims[3].clone();
            let piece = b.slice_axis(bias, 0, start.clone(), 1, width.clone())?;
            let piece = b.reshape(piece, &[dims[1].clone(), Dim::constant(1), dims[3].clone()])?;
            *part = b.map2(ScalarFn::Add, *part, piece)?;
            start = start + width;
        }
        let all = b.dims(bias)[0].clone();
        b.unify(&start, &all)?;
    }
    <[Value; 3]>::try_from(parts).map_err(|_| node.error("E0103", "lacks its keys or its values"))
}

/// x[b,s,h,n,d] → n tensors [b,h,s,d]
fn unpack(b: &mut Builder, node: &Node, x: Value, n: i64) -> Result<Vec<Value>> {
    let dims = b.dims(x);
    if !dims[3].is_const(n) {
        return Err(node.error("E0201", format!("{} does not hold {n} packed tensors", b.ty(x))));
    }
    let apart = [dims[0].clone(), dims[1].clone(), dims[2].clone(), dims[4].clone()];
    let part = |i| {
        let one = b.slice_axis(x, 3, Dim::constant(i), 1, Dim::constant(1))?;
        let one = b.reshape(one, &apart)?;
        b.transpose(one, vec![0, 2, 1, 3])
    };
    (0..n).map(part).collect()
}

/// com.microsoft GroupQueryAttention: each head of keys serves a group of heads of queries. A row's last query is at
/// position `seqlens_k`. Each row of a batch continues its own past, at its own length.
pub fn group_query_attention(b: &mut Builder, node: &Node) -> Outputs {
    let (heads, kv) = (heads_of(node, "num_heads")?, heads_of(node, "kv_num_heads")?);
    if node.optional(11).is_some() || node.int_or("smooth_softmax", 0)? > 0 {
        return Err(node.error("E0101", "a head sink and a smooth softmax are not supported"));
    }
    let [mut q, mut k, mut v] = grouped_operands(b, node, heads, kv)?;
    let s = b.dims(q)[2].clone();
    let last = node.input(5)?;
    let batch = b.dims(q)[0].clone();
    let last = b.reshape(last, &[batch])?;
    let last = b.convert(last, DType::I64)?;
    let held = match node.optional(3) {
        Some(past) => b.ty(past).dims.get(2).cloned().unwrap_or(Dim::constant(0)),
        None => Dim::constant(0),
    };
    let last = checked_index(b, last, &(held + s.clone()))?;
    let totals = b.map_const(ScalarFn::Add, last, 1.0)?;
    // Rows of the first call may be shorter than the tensor; their positions begin at 0 too.
    let length = b.dims_scalar(s)?;
    let behind = b.map2(ScalarFn::Sub, totals, length)?;
    let past = b.map_const(ScalarFn::Max, behind, 0.0)?;
    if node.int_or("do_rotary", 0)? != 0 {
        let positions = match node.optional(9) {
            Some(given) => given,
            None => token_positions(b, q, past)?,
        };
        let (cos, sin) = angles(b, node.input(7)?, node.input(8)?, positions)?;
        q = rotate_by_tables(b, node, q, cos, sin)?;
        k = rotate_by_tables(b, node, k, cos, sin)?;
    }
    if let (Some(past_k), Some(past_v)) = (node.optional(3), node.optional(4)) {
        k = continue_rows(b, node, past_k, k, past)?;
        v = continue_rows(b, node, past_v, v, past)?;
    }
    let mut scores = scores_of(b, node, q, k)?;
    let cap = node.float_or("softcap", 0.0)?;
    if cap > 0.0 {
        scores = soft_cap(b, scores, cap)?;
    }
    // `local_window_size` counts the query itself.
    let left = match node.int_or("local_window_size", -1)? {
        n if n > 0 && n <= i32::MAX as i64 => Some(n - 1),
        _ => None,
    };
    if let Some(seen) = window(b, scores, &Offset::PerRow(past), [left, Some(0)])? {
        scores = hide(b, scores, seen, f64::NEG_INFINITY)?;
    }
    if let Some(bias) = node.optional(10) {
        scores = b.map2(ScalarFn::Add, scores, bias)?;
    }
    Ok(vec![weigh_visible(b, scores, v)?, k, v])
}

/// Queries of `heads` heads, and keys and values of `kv` heads, from three operands or from one.
pub(super) fn grouped_operands(b: &mut Builder, node: &Node, heads: i64, kv: i64) -> Result<[Value; 3]> {
    let q = node.input(0)?;
    match (node.optional(1), node.optional(2)) {
        (Some(k), Some(v)) => Ok([split_heads(b, q, heads)?, split_heads(b, k, kv)?, split_heads(b, v, kv)?]),
        (None, None) => packed_groups(b, node, heads, kv),
        (_, _) => Err(node.error("E0103", "takes keys and values both or neither")),
    }
}

/// Returns the values weighted by the softmax of scores[b,h,s,t], as [b,s,h·e]: 0 for a query that sees no key.
pub(super) fn weigh_visible(b: &mut Builder, scores: Value, v: Value) -> Result<Value> {
    let dtype = b.dtype(scores);
    let single = b.convert(scores, wide(dtype))?;
    let weights = softmax_of_visible(b, single, &[3])?;
    let weights = b.convert(weights, dtype)?;
    weigh(b, weights, v)
}

/// Queries, keys and values of x[b,s,(h + 2g)·d].
fn packed_groups(b: &mut Builder, node: &Node, heads: i64, kv: i64) -> Result<[Value; 3]> {
    let x = node.input(0)?;
    let width = b.dims(x).get(2).and_then(Dim::as_const);
    let all = kv.checked_mul(2).and_then(|kv| kv.checked_add(heads));
    let d = width.zip(all).filter(|(w, n)| w % n == 0).map(|(w, n)| w / n);
    let d = d.ok_or_else(|| node.error("E0201", format!("{} does not divide into its heads", b.ty(x))))?;
    cut(b, node, x, [heads * d, kv * d, kv * d], [heads, kv, kv])
}

/// Returns positions[b,s]: past[b] + i for each token i of q[b,h,s,d].
pub(super) fn token_positions(b: &mut Builder, q: Value, past: Value) -> Result<Value> {
    let dims = b.dims(q);
    let count = iota(b, 1, &[dims[0].clone(), dims[2].clone()])?;
    let past = b.reshape(past, &[dims[0].clone(), Dim::constant(1)])?;
    b.map2(ScalarFn::Add, count, past)
}

/// past[b,g,p,d], new[b,g,s,d]  =>  [b,g,p+s,d], where each row of the batch has the first `lengths[b]` positions of
/// its past, then the new ones. Positions after them are 0; no query sees them.
fn continue_rows(b: &mut Builder, node: &Node, past: Value, new: Value, lengths: Value) -> Result<Value> {
    let both = append_past(b, node, past, new)?;
    let dims = b.dims(both);
    let (batch, heads) = (dims[0].clone(), dims[1].clone());
    let (p, t) = (b.dims(past)[2].clone(), dims[2].clone());
    // Positions below the row's length come from the past; then the new ones follow, which are stored from p on.
    let lanes = [batch.clone(), t.clone()];
    let column = iota(b, 1, &lanes)?;
    let lengths = b.reshape(lengths, &[batch.clone(), Dim::constant(1)])?;
    let gap = b.dims_scalar(p)?;
    let gap = b.map2(ScalarFn::Sub, gap, lengths)?;
    let moved = b.map2(ScalarFn::Add, column, gap)?;
    let last = b.dims_scalar(t.clone() - Dim::constant(1))?;
    let moved = b.map2(ScalarFn::Min, moved, last)?;
    let old = b.map2(ScalarFn::Lt, column, lengths)?;
    let index = b.select(old, column, moved)?;
    // Rows and positions are merged into one index, so that each row reads its own elements.
    let row = iota(b, 0, &lanes)?;
    let count = b.dims_scalar(t.clone())?;
    let start = b.map2(ScalarFn::Mul, row, count)?;
    let flat_index = b.map2(ScalarFn::Add, start, index)?;
    let rows = b.transpose(both, vec![0, 2, 1, 3])?;
    let flat = b.reshape(rows, &[batch * t, heads, dims[3].clone()])?;
    let gathered = b.add(Op::Gather { axis: 0 }, &[flat, flat_index])?;
    let s = b.dims_scalar(b.dims(new)[2].clone())?;
    let end = b.map2(ScalarFn::Add, lengths, s)?;
    let filled = b.map2(ScalarFn::Lt, column, end)?;
    let filled = b.reshape(filled, &[lanes[0].clone(), lanes[1].clone(), Dim::constant(1), Dim::constant(1)])?;
    let nothing = b.splat(b.dtype(gathered), 0.0, &[])?;
    let gathered = b.select(filled, gathered, nothing)?;
    b.transpose(gathered, vec![0, 2, 1, 3])
}

/// com.microsoft PackedAttention: the tokens of all sequences are in one list, and each sees those of its own sequence.
/// Scores are computed for all pairs of tokens: quadratic in their total number, not in the longest sequence.
pub fn packed_attention(b: &mut Builder, node: &Node) -> Outputs {
    if node.optional(5).is_some() {
        return Err(node.error("E0101", "an attention bias is not supported"));
    }
    let x = node.input(0)?;
    let ends = node.input(4)?;
    if b.rank(x) != 2 || b.rank(ends) != 1 {
        return Err(
            node.error("E0201", format!("takes lists of tokens and of ends, not {} and {}", b.ty(x), b.ty(ends)))
        );
    }
    let mut dims = b.dims(x);
    dims.insert(0, Dim::constant(1));
    let x = b.reshape(x, &dims)?;
    let qkv = b.contract("bsi,io->bso", x, node.input(1)?)?;
    let qkv = biased(b, qkv, node.optional(2))?;
    let [q, k, v] = thirds(b, node, qkv)?;
    let scores = scores_of(b, node, q, k)?;
    let ends = b.convert(ends, DType::I64)?;
    // A token's sequence is identified by the number of sequences that begin at or before the token.
    let n = b.dims(q)[2].clone();
    let places = [n.clone(), b.dims(ends)[0].clone()];
    let token = iota(b, 0, &places)?;
    let begun = b.map2(ScalarFn::Le, ends, token)?;
    let begun = b.convert(begun, DType::I64)?;
    let sequence = b.reduce(ReduceFn::Add, begun, &[1], false)?;
    let column = b.reshape(sequence, &[n, Dim::constant(1)])?;
    let same = b.map2(ScalarFn::Eq, column, sequence)?;
    let scores = hide(b, scores, same, f64::NEG_INFINITY)?;
    let weights = weights_of(b, scores)?;
    let y = weigh(b, weights, v)?;
    let dims = b.dims(y);
    Ok(vec![b.reshape(y, &dims[1..])?])
}
