//! RemovePadding, RestorePadding  =>  gathers of rows: [batch, seq, hidden] to the rows of tokens only, and back

use super::builder::Builder;
use super::coordinates::{checked_index, iota};
use super::node::Node;
use sardonyx_base::dim::product;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};

type Outputs = Result<Vec<Value>>;

/// counts[n]  =>  the n + 1 prefix sums 0, counts[0], counts[0] + counts[1], …
fn cumulated(b: &mut Builder, counts: Value) -> Result<Value> {
    let n = b.dims(counts)[0].clone();
    let square = [n.clone() + Dim::constant(1), n];
    let (row, column) = (iota(b, 0, &square)?, iota(b, 1, &square)?);
    let before = b.map2(ScalarFn::Lt, column, row)?;
    let zero = b.splat(DType::I64, 0.0, &square)?;
    let counted = b.select(before, counts, zero)?;
    b.reduce(ReduceFn::Add, counted, &[1], false)
}

/// Returns, for each position in `at`, its group and its position within the group. The groups are consecutive ranges
/// of positions, which begin at cumulated[0], cumulated[1], ….
fn in_group(b: &mut Builder, cumulated: Value, at: Value) -> Result<[Value; 2]> {
    let (one, n) = (Dim::constant(1), b.dims(at)[0].clone());
    let groups = b.dims(cumulated)[0].clone() - one.clone();
    let ends = b.slice_axis(cumulated, 0, one.clone(), 1, groups.clone())?;
    let column = b.reshape(at, &[n, one.clone()])?;
    let behind = b.map2(ScalarFn::Le, ends, column)?;
    let behind = b.convert(behind, DType::I64)?;
    let group = b.reduce(ReduceFn::Add, behind, &[1], false)?;
    let last = b.dims_scalar(groups - one)?;
    let group = b.map2(ScalarFn::Min, group, last)?;
    let start = b.add(Op::Gather { axis: 0 }, &[cumulated, group])?;
    Ok([group, b.map2(ScalarFn::Sub, at, start)?])
}

/// Returns the rows of tokens without padding; the position in [batch · seq] that each row came from, followed by the
/// positions of padding; the first row of each sequence, followed by the number of rows; the length of the longest
/// sequence.
pub fn remove_padding(b: &mut Builder, node: &Node) -> Outputs {
    let (x, counts) = (node.input(0)?, node.input(1)?);
    if b.rank(x) != 3 || b.rank(counts) != 1 {
        let message = format!("takes [batch, sequence, hidden] and [batch], not {} and {}", b.ty(x), b.ty(counts));
        return Err(node.error("E0201", message));
    }
    let (rows, own) = (b.dims(x)[0].clone(), b.dims(counts)[0].clone());
    b.unify(&rows, &own)?;
    let [batch, length, hidden] = [0, 1, 2].map(|axis| b.dims(x)[axis].clone());
    let counts = b.convert(counts, DType::I64)?;
    let counts = checked_index(b, counts, &(length.clone() + Dim::constant(1)))?;
    let starts = cumulated(b, counts)?;
    let whole = b.dims_scalar(length.clone())?;
    let padding = b.map2(ScalarFn::Sub, whole, counts)?;
    let padding_starts = cumulated(b, padding)?;
    let total = b.reduce(ReduceFn::Add, counts, &[0], false)?;

    let all = batch.clone() * length.clone();
    let at = iota(b, 0, std::slice::from_ref(&all))?;
    let offset = |b: &mut Builder, group: Value, within: Value| -> Result<Value> {
        let start = b.map2(ScalarFn::Mul, group, whole)?;
        b.map2(ScalarFn::Add, start, within)
    };
    let [sequence, within] = in_group(b, starts, at)?;
    let token = offset(b, sequence, within)?;
    let behind = b.map2(ScalarFn::Sub, at, total)?;
    let [sequence, within] = in_group(b, padding_starts, behind)?;
    let used = b.add(Op::Gather { axis: 0 }, &[counts, sequence])?;
    let within = b.map2(ScalarFn::Add, used, within)?;
    let pad = offset(b, sequence, within)?;
    let is_token = b.map2(ScalarFn::Lt, at, total)?;
    let offsets = b.select(is_token, token, pad)?;

    let longest = b.reduce(ReduceFn::Max, counts, &[0], false)?;
    let n_tokens = b.reshape(total, &[Dim::constant(1)])?;
    let n_tokens = b.read_dims(n_tokens)?.remove(0);
    b.require_at_most(&n_tokens, &all)?;
    let taken = b.slice_axis(offsets, 0, Dim::constant(0), 1, n_tokens)?;
    let flat = b.reshape(x, &[all, hidden])?;
    let packed = b.add(Op::Gather { axis: 0 }, &[flat, taken])?;
    let offsets = b.reshape(offsets, &[batch, length])?;
    let longest = b.reshape(longest, &[Dim::constant(1)])?;
    let [offsets, starts, longest] = [offsets, starts, longest].map(|v| b.convert(v, DType::I32));
    Ok(vec![packed, offsets?, starts?, longest?])
}

/// Puts the rows of tokens back at the positions that they came from; other positions are 0.
pub fn restore_padding(b: &mut Builder, node: &Node) -> Outputs {
    let (x, offsets) = (node.input(0)?, node.input(1)?);
    if b.rank(x) != 2 || b.rank(offsets) != 2 {
        let message = format!("takes [tokens, hidden] and [batch, sequence], not {} and {}", b.ty(x), b.ty(offsets));
        return Err(node.error("E0201", message));
    }
    let ([n_tokens, hidden], dims) = ([0, 1].map(|axis| b.dims(x)[axis].clone()), b.dims(offsets));
    let (one, zero) = (Dim::constant(1), Dim::constant(0));
    let all = product(&dims);
    b.require_at_most(&n_tokens, &all)?;
    let offsets = b.convert(offsets, DType::I64)?;
    let offsets = checked_index(b, offsets, &all)?;
    let flat = b.reshape(offsets, std::slice::from_ref(&all))?;
    // The row for a position is the one whose offset is that position.
    let square = [all.clone(), all];
    let (place, row) = (iota(b, 0, &square)?, iota(b, 1, &square)?);
    let comes = b.map2(ScalarFn::Eq, flat, place)?;
    let nothing = b.dims_scalar(n_tokens)?;
    let row = b.select(comes, row, nothing)?;
    let row = b.reduce(ReduceFn::Min, row, &[1], false)?;
    // A row of zeros follows the last row, for positions without a token.
    let blank = b.splat(b.dtype(x), 0.0, &[])?;
    let rows = b.pad(x, blank, &[zero.clone(), zero.clone()], &[one, zero])?;
    let restored = b.add(Op::Gather { axis: 0 }, &[rows, row])?;
    Ok(vec![b.reshape(restored, &[dims[0].clone(), dims[1].clone(), hidden])?])
}
