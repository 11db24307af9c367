//! com.microsoft SparseAttention: attention over the blocks of keys that a layout of blocks names  =>  contract, map
//!
//! Letters of dimensions: b batch, s queries, t positions of the cache, h heads of queries, g heads of keys and values,
//! l layouts, r and c rows and columns of blocks, p blocks that a layout names.

use super::builder::Builder;
use super::contrib_attention::{heads_of, hide, packed_groups, scores_of, token_positions, weigh};
use super::coordinates::{checked_index, flat};
use super::heads::{Offset, iota, split_heads, window};
use super::node::Node;
use super::reduction::{softmax_of_visible, wide};
use super::rotary::{angles, rotate};
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};

/// A query sees the keys that are not after it, in the blocks that the layout of its head names. The caches are buffers
/// of constant length, in which each row of a batch continues at its own position.
pub fn sparse_attention(b: &mut Builder, node: &Node) -> Result<Vec<Value>> {
    let (heads, kv) = (heads_of(node, "num_heads")?, heads_of(node, "kv_num_heads")?);
    let block = node.require("sparse_block_size", node.int("sparse_block_size")?)?;
    if block < 1 {
        return Err(node.error("E0106", format!("`sparse_block_size` = {block} is no number of tokens")));
    }
    let [mut q, mut k, v] = match (node.optional(1), node.optional(2)) {
        (Some(k), Some(v)) => [split_heads(b, node.input(0)?, heads)?, split_heads(b, k, kv)?, split_heads(b, v, kv)?],
        (None, None) => packed_groups(b, node, heads, kv)?,
        (_, _) => return Err(node.error("E0103", "takes keys and values both or neither")),
    };
    let [past_k, past_v] = [node.input(3)?, node.input(4)?];
    if b.rank(past_k) != 4 || b.rank(past_v) != 4 {
        return Err(node.error("E0201", format!("its caches are {} and {}, not [b,g,t,d]", b.ty(past_k), b.ty(past_v))));
    }
    let (batch, s) = (b.dims(q)[0].clone(), b.dims(q)[2].clone());
    let total = b.reshape(node.input(8)?, &[batch])?;
    let total = b.convert(total, DType::I64)?;
    let last = b.map_const(ScalarFn::Sub, total, 1.0)?;
    let last = checked_index(b, last, &b.dims(past_k)[2].clone())?;
    let length = b.dims_scalar(s - Dim::constant(1))?;
    let before = b.map2(ScalarFn::Sub, last, length)?;
    // Rows of the first call may be shorter than the tensor; their positions begin at 0 too.
    let past = b.map_const(ScalarFn::Max, before, 0.0)?;
    let positions = token_positions(b, q, past)?;
    if node.int_or("do_rotary", 0)? != 0 {
        let (cos, sin) = angles(b, node.input(9)?, node.input(10)?, positions)?;
        q = rotate(b, node, q, cos, sin, "rotary_interleaved")?;
        k = rotate(b, node, k, cos, sin, "rotary_interleaved")?;
    }
    let k = written(b, past_k, k, past)?;
    let v = written(b, past_v, v, past)?;
    let mut scores = scores_of(b, node, q, k)?;
    if let Some(seen) = window(b, scores, &Offset::PerRow(past), [None, Some(0)])? {
        scores = hide(b, scores, seen, f64::NEG_INFINITY)?;
    }
    let blocks = layouts(b, node)?;
    let seen = seen_blocks(b, node, (scores, blocks), positions, block)?;
    scores = hide(b, scores, seen, f64::NEG_INFINITY)?;
    let dtype = b.dtype(scores);
    let single = b.convert(scores, wide(dtype))?;
    let weights = softmax_of_visible(b, single, &[3])?;
    let weights = b.convert(weights, dtype)?;
    Ok(vec![weigh(b, weights, v)?, k, v])
}

/// cache[b,g,t,d], new[b,g,s,d]  =>  the cache with the new elements at positions `past[b]` and following.
fn written(b: &mut Builder, cache: Value, new: Value, past: Value) -> Result<Value> {
    let (dims, own) = (b.dims(cache), b.dims(new));
    let (batch, t, s) = (dims[0].clone(), dims[2].clone(), own[2].clone());
    let lanes = [batch.clone(), t.clone()];
    let past = b.reshape(past, &[batch.clone(), Dim::constant(1)])?;
    let column = iota(b, 1, &lanes)?;
    let at = b.map2(ScalarFn::Sub, column, past)?;
    let length = b.dims_scalar(s.clone())?;
    let first = b.map_const(ScalarFn::Lt, at, 0.0)?;
    let begun = b.map1(ScalarFn::Not, first)?;
    let within = b.map2(ScalarFn::Lt, at, length)?;
    let is_new = b.map2(ScalarFn::And, begun, within)?;
    let last = b.map_const(ScalarFn::Sub, length, 1.0)?;
    let at = b.map2(ScalarFn::Min, at, last)?;
    let at = b.map_const(ScalarFn::Max, at, 0.0)?;
    let row = iota(b, 0, &lanes)?;
    let place = flat(b, &[row, at], &[batch.clone(), s.clone()])?;
    let rows = b.transpose(new, vec![0, 2, 1, 3])?;
    let rows = b.reshape(rows, &[batch * s, own[1].clone(), own[3].clone()])?;
    let moved = b.add(Op::Gather { axis: 0 }, &[rows, place])?;
    let moved = b.transpose(moved, vec![0, 2, 1, 3])?;
    let [rows, positions] = lanes;
    let is_new = b.reshape(is_new, &[rows, Dim::constant(1), positions, Dim::constant(1)])?;
    b.select(is_new, moved, cache)
}

/// Whether each layout names each block: [l,r,c], from the ends of the rows [l,r+1] and the columns [l,p] of its blocks
/// in compressed rows. A block is in the row before which as many rows end as at or before its number.
fn layouts(b: &mut Builder, node: &Node) -> Result<Value> {
    let [ends, columns] = [node.input(5)?, node.input(6)?];
    if b.rank(ends) != 2 || b.rank(columns) != 2 {
        let (ends, columns) = (b.ty(ends), b.ty(columns));
        return Err(node.error("E0201", format!("its layouts are {ends} and {columns}, not [l,r + 1] and [l,p]")));
    }
    let (rows, named) = (b.dims(ends)[1].clone() - Dim::constant(1), b.dims(columns)[1].clone());
    let n_layouts = b.dims(columns)[0].clone();
    let ends = b.slice_axis(ends, 1, Dim::constant(1), 1, rows.clone())?;
    let ends = b.convert(ends, DType::I64)?;
    let all = [n_layouts.clone(), named.clone(), rows.clone()];
    let apart = b.reshape(ends, &[n_layouts.clone(), Dim::constant(1), rows.clone()])?;
    let number = iota(b, 1, &all)?;
    let ended = b.map2(ScalarFn::Le, apart, number)?;
    let ended = b.convert(ended, DType::I64)?;
    let row = b.reduce(ReduceFn::Add, ended, &[2], false)?;
    let columns = b.convert(columns, DType::I64)?;
    let one_hot = |b: &mut Builder, at: Value| {
        let at = b.reshape(at, &[n_layouts.clone(), named.clone(), Dim::constant(1)])?;
        let places = iota(b, 2, &all)?;
        let same = b.map2(ScalarFn::Eq, places, at)?;
        b.convert(same, DType::F32)
    };
    // Columns after the last row belong to row r, which does not exist.
    let (of_row, of_column) = (one_hot(b, row)?, one_hot(b, columns)?);
    let count = b.contract("lpr,lpc->lrc", of_row, of_column)?;
    let none = b.map_const(ScalarFn::Eq, count, 0.0)?;
    b.map1(ScalarFn::Not, none)
}

/// Whether the layout of each head names the block of each query and key: [b,h,s,t]. Heads take the layouts in turn.
fn seen_blocks(
    b: &mut Builder,
    node: &Node,
    (scores, blocks): (Value, Value),
    positions: Value,
    block: i64,
) -> Result<Value> {
    let (dims, of) = (b.dims(scores), b.dims(blocks));
    let (heads, n_layouts) = (dims[1].as_const(), of[0].as_const());
    let turns = heads.zip(n_layouts).filter(|(h, l)| *l > 0 && h % l == 0).map(|(h, l)| h / l);
    let Some(turns) = turns else {
        return Err(node.error("E0201", format!("{} layouts do not divide its {} heads", of[0], dims[1])));
    };
    let row = b.map_const(ScalarFn::Div, positions, block as f64)?;
    let by_row = b.transpose(blocks, vec![1, 0, 2])?;
    // [b,s,l,c]
    let of_query = b.add(Op::Gather { axis: 0 }, &[by_row, row])?;
    let column = iota(b, 0, &dims[3..])?;
    let column = b.map_const(ScalarFn::Div, column, block as f64)?;
    let last = b.dims_scalar(of[2].clone() - Dim::constant(1))?;
    // The cache may be longer than the layouts; no query is there.
    let column = b.map2(ScalarFn::Min, column, last)?;
    let seen = b.add(Op::Gather { axis: 3 }, &[of_query, column])?;
    let seen = b.transpose(seen, vec![0, 2, 1, 3])?;
    let [batch, layouts, s, t] = [&dims[0], &of[0], &dims[2], &dims[3]].map(Dim::clone);
    let seen = b.reshape(seen, &[batch.clone(), Dim::constant(1), layouts.clone(), s.clone(), t.clone()])?;
    let seen = b.broadcast(seen, &[batch, Dim::constant(turns), layouts, s, t])?;
    b.reshape(seen, &dims)
}
