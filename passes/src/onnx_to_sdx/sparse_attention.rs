//! com.microsoft SparseAttention: attention over the blocks of keys that a layout of blocks names  =>  contract, map
//!
//! Letters of dimensions: b batch, s queries, t positions of the cache, h heads of queries, g heads of keys and values,
//! l layouts, r and c rows and columns of blocks, p blocks that a layout names.

use super::builder::Builder;
use super::contrib_attention::{grouped_operands, heads_of, hide, scores_of, token_positions, weigh_visible};
use super::coordinates::{checked_index, flat, gather_flat, indices};
use super::heads::{Offset, iota, window};
use super::node::Node;
use super::rotary::{angles, rotate_by_tables};
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};

/// A query attends to the keys at its own position and before, in the blocks that the layout of its head names. The
/// length of the caches is independent of the number of tokens. In each batch element, the new keys and values are
/// written to the cache so that they end at the element's total length (input 8). Input 7, the largest total length, is
/// not needed.
pub fn sparse_attention(b: &mut Builder, node: &Node) -> Result<Vec<Value>> {
    let (heads, kv) = (heads_of(node, "num_heads")?, heads_of(node, "kv_num_heads")?);
    let block = node.require("sparse_block_size", node.int("sparse_block_size")?)?;
    if block < 1 {
        return Err(node.error("E0106", format!("`sparse_block_size` = {block} is no number of tokens")));
    }
    let [mut q, mut k, v] = grouped_operands(b, node, heads, kv)?;
    let [past_k, past_v] = [node.input(3)?, node.input(4)?];
    let total = indices(b, node, 8)?;
    for (cache, new) in [(past_k, k), (past_v, v)] {
        same_shapes(b, node, q, (cache, new))?;
    }
    let (batch, s, t) = (b.dims(q)[0].clone(), b.dims(q)[2].clone(), b.dims(past_k)[2].clone());
    b.require_at_most(&Dim::constant(1), &s)?;
    b.require_at_most(&s, &t)?;
    let total = b.reshape(total, &[batch])?;
    let total = checked_index(b, total, &(t + Dim::constant(1)))?;
    let length = b.dims_scalar(s)?;
    let before = b.map2(ScalarFn::Sub, total, length)?;
    // In the first call, the total length of a batch element may be less than s; its positions begin at 0, too.
    let past = b.map_const(ScalarFn::Max, before, 0.0)?;
    let positions = token_positions(b, q, past)?;
    if node.int_or("do_rotary", 0)? != 0 {
        let (cos, sin) = angles(b, node.input(9)?, node.input(10)?, positions)?;
        q = rotate_by_tables(b, node, q, cos, sin)?;
        k = rotate_by_tables(b, node, k, cos, sin)?;
    }
    let [(k, keys), (v, values)] = [written(b, past_k, k, past)?, written(b, past_v, v, past)?];
    let mut scores = scores_of(b, node, q, keys)?;
    if let Some(seen) = window(b, scores, &Offset::PerRow(past), [None, Some(0)])? {
        scores = hide(b, scores, seen, f64::NEG_INFINITY)?;
    }
    let blocks = layouts(b, node)?;
    let seen = seen_blocks(b, node, (scores, blocks), positions, block)?;
    scores = hide(b, scores, seen, f64::NEG_INFINITY)?;
    Ok(vec![weigh_visible(b, scores, values)?, k, v])
}

/// Unifies the dimensions that queries q[b,h,s,d], a cache [b,g,t,d] and its new elements [b,g,s,d] share.
fn same_shapes(b: &mut Builder, node: &Node, q: Value, (cache, new): (Value, Value)) -> Result<()> {
    if b.rank(cache) != 4 || [cache, new].iter().any(|v| b.dtype(*v) != b.dtype(q)) || !b.dtype(q).is_float() {
        let (cache, new) = (b.ty(cache).clone(), b.ty(new).clone());
        return Err(node.error("E0201", format!("a cache of {cache} does not continue in {new}")));
    }
    for (one, other, axis) in [(q, new, 0), (q, new, 2), (cache, new, 0), (cache, new, 1), (cache, new, 3)] {
        let (one, other) = (b.dims(one)[axis].clone(), b.dims(other)[axis].clone());
        b.unify(&one, &other)?;
    }
    Ok(())
}

/// cache[b,g,t,d], new[b,g,s,d]  =>  the cache with the new elements at positions `past[b]` and following; and the same
/// with 0 at the positions after the new elements, for attention, because these positions may contain NaN.
fn written(b: &mut Builder, cache: Value, new: Value, past: Value) -> Result<(Value, Value)> {
    let (dims, own) = (b.dims(cache), b.dims(new));
    let (batch, t, s) = (dims[0].clone(), dims[2].clone(), own[2].clone());
    let lanes = [batch.clone(), t.clone()];
    let past = b.reshape(past, &[batch.clone(), Dim::constant(1)])?;
    let column = iota(b, 1, &lanes)?;
    let at = b.map2(ScalarFn::Sub, column, past)?;
    let length = b.dims_scalar(s.clone())?;
    let is_old = b.map_const(ScalarFn::Lt, at, 0.0)?;
    let is_held = b.map2(ScalarFn::Lt, at, length)?;
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
    let apart = [rows, Dim::constant(1), positions, Dim::constant(1)];
    let (is_old, is_held) = (b.reshape(is_old, &apart)?, b.reshape(is_held, &apart)?);
    let after = b.map1(ScalarFn::Not, is_held)?;
    let is_kept = b.map2(ScalarFn::Or, is_old, after)?;
    let whole = b.select(is_kept, cache, moved)?;
    let nothing = b.splat(b.dtype(cache), 0.0, &[])?;
    Ok((whole, b.select(is_held, whole, nothing)?))
}

/// Returns whether each layout names each block, as [l,r,c] with as many columns as rows. The layouts are given as
/// compressed rows: entries ends[l,r]..ends[l,r + 1] of the list of columns [l,p] are the blocks of row r.
fn layouts(b: &mut Builder, node: &Node) -> Result<Value> {
    let [ends, columns] = [indices(b, node, 5)?, indices(b, node, 6)?];
    if b.rank(ends) != 2 || b.rank(columns) != 2 {
        let (ends, columns) = (b.ty(ends), b.ty(columns));
        return Err(node.error("E0201", format!("its layouts are {ends} and {columns}, not [l,r + 1] and [l,p]")));
    }
    let (one, of_ends) = (Dim::constant(1), b.dims(ends));
    b.unify(&of_ends[0], &b.dims(columns)[0].clone())?;
    b.require_at_most(&Dim::constant(2), &of_ends[1])?;
    let [n_layouts, named] = [0, 1].map(|axis| b.dims(columns)[axis].clone());
    b.require_at_most(&one, &named)?;
    let rows = b.dims(ends)[1].clone() - one.clone();
    let bound = |b: &mut Builder, start: i64| {
        let bound = b.slice_axis(ends, 1, Dim::constant(start), 1, rows.clone())?;
        b.reshape(bound, &[n_layouts.clone(), rows.clone(), Dim::constant(1)])
    };
    let (first, end) = (bound(b, 0)?, bound(b, 1)?);
    // A row has no more blocks than there are columns.
    let all = [n_layouts.clone(), rows.clone(), named.minimum(&rows)];
    let number = iota(b, 2, &all)?;
    let at = b.map2(ScalarFn::Add, number, first)?;
    let within = b.map2(ScalarFn::Lt, at, end)?;
    let last = b.dims_scalar(named.clone() - one.clone())?;
    let at = b.map2(ScalarFn::Min, at, last)?;
    let at = b.map_const(ScalarFn::Max, at, 0.0)?;
    let layout = iota(b, 0, &all)?;
    let place = flat(b, &[layout, at], &[n_layouts.clone(), named])?;
    let column = gather_flat(b, columns, place)?;
    let none = b.splat(DType::I64, -1.0, &[])?;
    let column = b.select(within, column, none)?;
    let column = b.reshape(column, &[n_layouts.clone(), rows.clone(), one, all[2].clone()])?;
    let each = iota(b, 2, &[n_layouts, rows.clone(), rows, all[2].clone()])?;
    let same = b.map2(ScalarFn::Eq, each, column)?;
    let same = b.convert(same, DType::I64)?;
    let found = b.reduce(ReduceFn::Max, same, &[3], false)?;
    b.map_const(ScalarFn::Eq, found, 1.0)
}

/// Returns whether the layout of each head names the block of each query and key, as [b,h,s,t]. With n layouts, head h
/// has layout h mod n.
fn seen_blocks(
    b: &mut Builder,
    node: &Node,
    (scores, blocks): (Value, Value),
    positions: Value,
    block: i64,
) -> Result<Value> {
    let (dims, of) = (b.dims(scores), b.dims(blocks));
    let n_layouts = of[0].as_const();
    let n_layouts = n_layouts.ok_or_else(|| node.error("E0203", "its number of layouts is not constant"))?;
    let turns =
        dims[1].as_const().map(|heads| (heads, n_layouts)).filter(|(h, l)| *l > 0 && h % l == 0).map(|(h, l)| h / l);
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
    // The cache may be longer than the layouts. Keys beyond the layouts come after all queries, which therefore do not
    // attend to these keys, whatever their column is.
    let column = b.map2(ScalarFn::Min, column, last)?;
    let seen = b.add(Op::Gather { axis: 3 }, &[of_query, column])?;
    let seen = b.transpose(seen, vec![0, 2, 1, 3])?;
    let [batch, layouts, s, t] = [&dims[0], &of[0], &dims[2], &dims[3]].map(Dim::clone);
    let seen = b.reshape(seen, &[batch.clone(), Dim::constant(1), layouts.clone(), s.clone(), t.clone()])?;
    let seen = b.broadcast(seen, &[batch, Dim::constant(turns), layouts, s, t])?;
    b.reshape(seen, &dims)
}
