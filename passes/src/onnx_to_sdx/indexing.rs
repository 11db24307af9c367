//! Gather, Slice, Split  =>  gather, slice

use super::bounds::require_inside;
use super::builder::Builder;
use super::coordinates::{from_end, inside};
use super::dynamic::{self, Bounds};
use super::node::Node;
use sardonyx_base::dim::Symbol;
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, TensorType, Value};

type Outputs = Result<Vec<Value>>;

pub fn gather(b: &mut Builder, node: &Node) -> Outputs {
    let data = node.input(0)?;
    let axis = node.axis(node.int_or("axis", 0)?, b.rank(data))?;
    let indices = places(b, node, data, axis)?;
    Ok(vec![b.add(Op::Gather { axis }, &[data, indices])?])
}

/// Returns input 1 as i64 indices along an axis. Negative indices count from the end: select(i < 0, i + n, i). The sums
/// are computed here for constant indices, and left out if the call checks that the indices are in 0..n.
pub fn places(b: &mut Builder, node: &Node, data: Value, axis: usize) -> Result<Value> {
    let indices = node.input(1)?;
    if !matches!(b.dtype(indices), DType::I32 | DType::I64) {
        return Err(node.error("E0107", format!("indices of type {} are not allowed", b.dtype(indices))));
    }
    let indices = b.convert(indices, DType::I64)?;
    let extent = b.dims(data)[axis].clone();
    Ok(match b.constants(indices) {
        Some(known) if known.iter().all(|&i| i >= 0) => indices,
        Some(known) => {
            let wrapped =
                known.iter().map(|&i| if i < 0 { extent.clone() + Dim::constant(i) } else { Dim::constant(i) });
            let (dims, wrapped) = (b.dims(indices), wrapped.collect());
            let vector = b.dims_vector(wrapped)?;
            b.reshape(vector, &dims)?
        }
        None if require_inside(b, indices, &extent)? => indices,
        None => {
            let dims = b.dims(indices);
            let zero = b.splat(DType::I64, 0.0, &dims)?;
            let negative = b.map2(ScalarFn::Lt, indices, zero)?;
            let n = b.dims_scalar(extent)?;
            let wrapped = b.map2(ScalarFn::Add, indices, n)?;
            b.select(negative, wrapped, indices)?
        }
    })
}

/// GatherND: tuples of indices into the leading dimensions are merged into one index; a tuple that is out of range
/// becomes -1, which the gather refuses.
pub fn gather_nd(b: &mut Builder, node: &Node) -> Outputs {
    let (data, indices) = (node.input(0)?, node.input(1)?);
    let batch = usize::try_from(node.int_or("batch_dims", 0)?).unwrap_or(usize::MAX);
    let (dims, index_dims) = (b.dims(data), b.dims(indices));
    let tuple = index_dims.last().and_then(Dim::as_const).and_then(|n| usize::try_from(n).ok());
    // If the length of a tuple is not constant, it follows from the declared rank of the result.
    let declared = node
        .declared_rank
        .and_then(|rank| (dims.len() + index_dims.len()).checked_sub(rank.checked_add(batch)?)?.checked_sub(1));
    if let (None, Some(n), Some(last)) = (tuple, declared, index_dims.last()) {
        b.unify(last, &Dim::constant(n as i64))?;
    }
    let tuple = tuple.or(declared);
    let tuple = tuple.ok_or_else(|| node.error("E0203", "the length of an index tuple is not constant"))?;
    let last = index_dims.len() - 1;
    if tuple == 0 || batch > last || batch.saturating_add(tuple) > dims.len() {
        return Err(node
            .error("E0201", format!("tuples of {tuple} after {batch} batch dimensions do not index {}", b.ty(data))));
    }
    for i in 0..batch {
        let (l, r) = (b.dims(data)[i].clone(), b.dims(indices)[i].clone());
        b.unify(&l, &r)?;
    }
    let dims = b.dims(data);
    let rows = b.dims(indices)[..last].to_vec();
    let indices = b.convert(indices, DType::I64)?;
    let mut flat: Option<Value> = None;
    let mut valid: Option<Value> = None;
    for (i, extent) in dims[..batch + tuple].iter().enumerate() {
        let at = match i.checked_sub(batch) {
            None => b.add_typed(Op::Iota { axis: i }, &[], Some(TensorType::new(DType::I64, rows.clone())))?,
            Some(part) => {
                let one = b.slice_axis(indices, last, Dim::constant(part as i64), 1, Dim::constant(1))?;
                let one = b.reshape(one, &rows)?;
                wrapped(b, one, extent, &mut valid)?
            }
        };
        let n = b.dims_scalar(extent.clone())?;
        flat = Some(match flat {
            None => at,
            Some(so_far) => {
                let scaled = b.map2(ScalarFn::Mul, so_far, n)?;
                b.map2(ScalarFn::Add, scaled, at)?
            }
        });
    }
    let Some(mut flat) = flat else { return Err(node.error("E0201", "has no index")) };
    if let Some(valid) = valid {
        let outside = b.splat(DType::I64, -1.0, &rows)?;
        flat = b.select(valid, flat, outside)?;
    }
    let rest = dims[batch + tuple..].to_vec();
    let mut table = vec![sardonyx_base::dim::product(&dims[..batch + tuple])];
    table.extend(rest);
    let table = b.reshape(data, &table)?;
    Ok(vec![b.add(Op::Gather { axis: 0 }, &[table, flat])?])
}

/// Makes negative values of an index count from the end. `valid` accumulates whether all values are in range, except
/// for indices that the call checks.
pub fn wrapped(b: &mut Builder, index: Value, extent: &Dim, valid: &mut Option<Value>) -> Result<Value> {
    if require_inside(b, index, extent)? {
        return Ok(index);
    }
    let index = from_end(b, index, extent)?;
    let inside = inside(b, index, extent)?;
    *valid = Some(match *valid {
        None => inside,
        Some(so_far) => b.map2(ScalarFn::And, so_far, inside)?,
    });
    Ok(index)
}

/// Returns one end of a slice, wrapped and clamped to lo..=hi as ONNX defines. If hi is below lo, as for a negative
/// step on an empty axis, the result is hi.
fn clamped(b: &Builder, node: &Node, end: &Dim, extent: &Dim, lo: Dim, hi: Dim) -> Result<Dim> {
    let bound = |s: &Symbol| b.graph.symbol_lo(s);
    // Exporters write "to the end" as a huge constant.
    if end.as_const().is_some_and(|c| c >= i32::MAX as i64) {
        return Ok(hi);
    }
    if end.as_const().is_some_and(|c| c <= i32::MIN as i64) {
        return Ok(if hi.provably_ge(&lo, &bound) { lo } else { lo.minimum(&hi) });
    }
    let wrapped = match end.lower_bound(&bound) {
        Some(n) if n >= 0 => end.clone(),
        _ if (-end.clone()).lower_bound(&bound).is_some_and(|n| n > 0) => end.clone() + extent.clone(),
        _ => return Err(node.error("E0203", format!("the sign of the slice end {end} depends on the call"))),
    };
    if wrapped.provably_ge(&hi, &bound) {
        return Ok(hi);
    }
    let raised = |end: Dim| if end.provably_ge(&lo, &bound) { end } else { end.maximum(&lo) };
    let lowered = |end: Dim| if hi.provably_ge(&end, &bound) { end } else { end.minimum(&hi) };
    Ok(if hi.provably_ge(&lo, &bound) { raised(lowered(wrapped)) } else { lowered(raised(wrapped)) })
}

/// Returns whether an end of a slice has the same sign in all calls: a negative end counts from the back.
fn sign_is_known(b: &Builder, end: &Dim) -> bool {
    if end.as_const().is_some() {
        return true;
    }
    let bound = |s: &Symbol| b.graph.symbol_lo(s);
    end.lower_bound(&bound).is_some_and(|n| n >= 0) || (-end.clone()).lower_bound(&bound).is_some_and(|n| n > 0)
}

fn slice_one(b: &mut Builder, node: &Node, x: Value, axis: usize, start: &Dim, end: &Dim, step: i64) -> Result<Value> {
    let extent = b.dims(x)[axis].clone();
    let (zero, one) = (Dim::constant(0), Dim::constant(1));
    let bound = |b: &Builder, d: &Dim| d.lower_bound(&|s| b.graph.symbol_lo(s));
    if step > 0 {
        let start = clamped(b, node, start, &extent, zero.clone(), extent.clone())?;
        let end = clamped(b, node, end, &extent, zero.clone(), extent.clone())?;
        let count = (end - start.clone()).ceildiv(&Dim::constant(step));
        let count = if bound(b, &count).is_some_and(|n| n >= 0) { count } else { count.maximum(&zero) };
        return b.slice_axis(x, axis, start, step, count);
    }
    let last = extent.clone() - one.clone();
    let start = clamped(b, node, start, &extent, zero.clone(), last)?;
    // With a negative step, the end before the first element is -1 after wrapping.
    let end = match end.as_const() {
        Some(c) if c <= i32::MIN as i64 => -one,
        _ => clamped(b, node, end, &extent, -one.clone(), extent.clone() - one)?,
    };
    let count = (start.clone() - end).ceildiv(&Dim::constant(step.checked_neg().unwrap_or(i64::MAX)));
    let count = if bound(b, &count).is_some_and(|n| n >= 0) { count } else { count.maximum(&zero) };
    b.slice_axis(x, axis, start, step, count)
}

/// Slice: the bounds are attributes before opset 10, and inputs since.
pub fn slice(b: &mut Builder, node: &Node) -> Outputs {
    let mut x = node.input(0)?;
    let constants = |v: Option<Vec<i64>>| v.map(|v| v.into_iter().map(Dim::constant).collect::<Vec<_>>());
    let (starts, ends, axes_given, steps) = if node.opset < 10 {
        (constants(node.ints("starts")?), constants(node.ints("ends")?), node.ints("axes")?, None)
    } else {
        let known = |i: usize| node.optional(i).and_then(|v| b.contents(v)).map(<[Dim]>::to_vec);
        let open = |i: usize| node.optional(i).is_some_and(|v| b.constants(v).is_none());
        let signed = |i: usize| known(i).is_some_and(|ends| ends.iter().all(|end| sign_is_known(b, end)));
        if !signed(1) || !signed(2) || open(3) || open(4) {
            let (starts, ends) = (node.input(1)?, node.input(2)?);
            let bounds = Bounds { starts, ends, axes: node.optional(3), steps: node.optional(4) };
            return Ok(vec![dynamic::slice(b, node, x, &bounds)?]);
        }
        let constants = |i: usize| node.optional(i).and_then(|v| b.constants(v));
        (known(1), known(2), constants(3), constants(4))
    };
    let (Some(starts), Some(ends)) = (starts, ends) else {
        return Err(node.error("E0106", "starts and ends are missing"));
    };
    let axes = axes_given.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] || steps.contains(&0) {
        return Err(node.error("E0106", "starts, ends, axes and steps do not match, or a step is 0"));
    }
    for i in 0..starts.len() {
        let axis = node.axis(axes[i], b.rank(x))?;
        x = slice_one(b, node, x, axis, &starts[i], &ends[i], steps[i])?;
    }
    Ok(vec![x])
}

/// Split: the sizes are an attribute before opset 13, and an input since. If they are absent, all parts have equal
/// sizes, except that the last one may be smaller.
pub fn split(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let axis = node.axis(node.int_or("axis", 0)?, b.rank(x))?;
    let extent = b.dims(x)[axis].clone();
    let given = match (node.opset < 13, node.optional(1)) {
        (true, _) => node.ints("split")?.map(|v| v.into_iter().map(Dim::constant).collect()),
        (false, None) => None,
        (false, Some(v)) if b.contents(v).is_none() => Some(b.read_count(v, node.n_outputs)?),
        (false, Some(v)) => Some(b.read_dims(v)?),
    };
    let sizes: Vec<Dim> = match given {
        Some(sizes) => sizes,
        None => {
            let n_outputs = node.n_outputs as i64;
            let parts = node.int_or("num_outputs", n_outputs)?;
            // A file could otherwise request a list of any length.
            if parts != n_outputs || parts < 1 {
                return Err(node.error("E0106", format!("`num_outputs` is {parts}, the node has {n_outputs}")));
            }
            let part = extent.ceildiv(&Dim::constant(parts));
            let last = extent.clone() - part.clone() * Dim::constant(parts - 1);
            (0..parts).map(|i| if i + 1 < parts { part.clone() } else { last.clone() }).collect()
        }
    };
    let total = sizes.iter().fold(Dim::constant(0), |sum, d| sum + d.clone());
    b.unify(&total, &extent)?;
    let mut start = Dim::constant(0);
    let mut out = vec![];
    for size in sizes {
        out.push(b.slice_axis(x, axis, start.clone(), 1, size.clone())?);
        start = start + size;
    }
    Ok(out)
}
