//! gather(x, iota) => slice(x),  gather(reshape(x[b, s], [b*s]), b·s + t) => x: gathers at statically known indices
//!
//! Products with one-hot operands become gathers too: Σk (i = k ? 1 : 0) · w[k] => gather(w, i).

use super::contraction::spec_of;
use super::expr::{Expr, Site, broadcast, class, map, op, reshape, scalar, splat, transpose, typed};
use super::language::ENode;
use super::rule::{Rule, code};
use crate::class::Class::{Exact, FiniteOnly};
use egg::Id;
use sardonyx_base::dim::{merged_groups, product};
use sardonyx_base::{DType, Dim, Tensor};
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use sardonyx_dialects::sdx::{ContractSpec, Op, TensorType};

pub static RULES: &[Rule] = &[
    code("gather-of-range", Exact, "(gather ?x iota)", gather_of_range),
    code("product-of-one-hot", FiniteOnly, "(contract (convert (eq (broadcast ?i) iota)) ?w)", product_of_one_hot),
    code("gather-of-merged", Exact, "(gather (reshape ?x) affine)", gather_of_merged),
];

/// An integer tensor whose element at index i is offset + Σ by[axis] * i[axis].
#[derive(Clone)]
struct Affine {
    offset: Dim,
    by: Vec<Dim>,
}

const DEPTH_MAX: usize = 10;

/// Returns an integer value as an affine function of its index, if it is one; looks through `depth` operations.
fn affine(s: &Site, id: Id, depth: usize) -> Option<Affine> {
    let rank = s.dims_of(id).len();
    let flat = |offset: Dim| Affine { offset, by: vec![Dim::constant(0); rank] };
    if let Some(t) = s.splat_tensor(id) {
        return t.get_i64(0).map(|v| flat(Dim::constant(v)));
    }
    if let Some(count) = s.value(id).and_then(counted) {
        let mut out = flat(Dim::constant(0));
        out.by[count] = Dim::constant(1);
        return Some(out);
    }
    let depth = depth.checked_sub(1)?;
    s.nodes(id).iter().find_map(|n| {
        let arg = |i: usize| affine(s, n.args[i], depth);
        match s.op_of(n) {
            Op::Iota { axis } => {
                let mut out = flat(Dim::constant(0));
                out.by[*axis] = Dim::constant(1);
                Some(out)
            }
            Op::Dims(list) => (list.len() == 1).then(|| flat(list[0].clone())),
            Op::Map(ScalarFn::Add) => {
                let (a, b) = (arg(0)?, arg(1)?);
                let by = a.by.into_iter().zip(b.by).map(|(a, b)| a + b).collect();
                Some(Affine { offset: a.offset + b.offset, by })
            }
            Op::Map(ScalarFn::Mul) => {
                let (a, b) = (arg(0)?, arg(1)?);
                let (scale, other) = match (constant(&a), constant(&b)) {
                    (true, _) => (a.offset, b),
                    (_, true) => (b.offset, a),
                    (false, false) => return None,
                };
                let by = other.by.into_iter().map(|d| d * scale.clone()).collect();
                Some(Affine { offset: other.offset * scale, by })
            }
            Op::Broadcast { dims } => {
                let inner = arg(0)?;
                let from = s.dims_of(n.args[0]);
                let mut out = flat(inner.offset);
                // A dimension of 1 that is repeated has only the index 0.
                let moved = dims.iter().zip(inner.by).zip(from).filter(|(_, d)| !d.is_const(1));
                moved.for_each(|((&at, by), _)| out.by[at] = by);
                Some(out)
            }
            Op::Reshape => {
                let inner = arg(0)?;
                let long =
                    |id: Id| (0..s.dims_of(id).len()).filter(|&i| !s.dims_of(id)[i].is_const(1)).collect::<Vec<_>>();
                let (from, to) = (long(n.args[0]), long(id));
                let same = from.iter().map(|&i| &s.dims_of(n.args[0])[i]).eq(to.iter().map(|&i| &s.dims_of(id)[i]));
                let mut out = flat(inner.offset);
                from.iter().zip(&to).for_each(|(&f, &t)| out.by[t] = inner.by[f].clone());
                same.then_some(out)
            }
            _ => None,
        }
    })
}

/// The dimension along which the elements of a constant are 0, 1, 2, …; `None` if there is no such dimension.
fn counted(t: &Tensor) -> Option<usize> {
    let axis = t.dims().iter().position(|n| *n == t.len())?;
    (0..t.len()).all(|i| t.get_i64(i) == Some(i as i64)).then_some(axis)
}

fn constant(a: &Affine) -> bool {
    a.by.iter().all(|d| d.is_const(0))
}

/// gather(x, offset + step * i) => slice(x)
fn gather_of_range(s: &Site) -> Vec<Expr> {
    let Op::Gather { axis } = s.op() else { return vec![] };
    let Some(index) = (s.dims_of(s.arg(1)).len() == 1).then(|| affine(s, s.arg(1), DEPTH_MAX)).flatten() else {
        return vec![];
    };
    let rank = s.ty().rank();
    let Some(step) = index.by[0].as_const().filter(|s| *s != 0) else { return vec![] };
    let (mut starts, mut steps) = (vec![Dim::constant(0); rank], vec![1; rank]);
    (starts[*axis], steps[*axis]) = (index.offset, step);
    vec![typed(Op::Slice { starts, steps }, s.ty().clone(), vec![class(s.arg(0))])]
}

/// Σk (i = k ? 1 : 0) · w[k] => w[i] where i is in range, else 0
fn product_of_one_hot(s: &Site) -> Vec<Expr> {
    let Some(spec) = spec_of(s.op()) else { return vec![] };
    // Exactly one letter is reduced, and both operands have it; all other letters stay in the result.
    let summed: Vec<char> = spec.left.iter().copied().filter(|c| !spec.result.contains(c)).collect();
    let [k] = summed[..] else { return vec![] };
    let own = |c: &&char| **c != k && spec.result.contains(c) && !spec.left.contains(c);
    let once = |side: &[char]| (1..side.len()).all(|i| !side[..i].contains(&side[i]));
    let plain = once(&spec.left) && once(&spec.right) && spec.right.contains(&k);
    if !plain || spec.right.iter().filter(own).count() + 1 != spec.right.len() {
        return vec![];
    }
    let Some(axis) = spec.left.iter().position(|c| *c == k) else { return vec![] };
    let converted = s.find(s.arg(0), |op| (*op == Op::Convert(Conversion::Value)).then_some(()));
    let compared = converted.flat_map(|(_, n)| s.find(n.args[0], |op| (*op == Op::Map(ScalarFn::Eq)).then_some(())));
    let pairs = compared.flat_map(|(_, n)| [[n.args[0], n.args[1]], [n.args[1], n.args[0]]]);
    pairs.filter_map(|[index, count]| looked_up(s, spec, axis, index, count)).collect()
}

/// Gathers the rows of operand B at `index` along the reduced axis; a row out of range is 0. `count` must be 0, 1, 2, …
/// along that axis.
fn looked_up(s: &Site, spec: &ContractSpec, axis: usize, index: Id, count: Id) -> Option<Expr> {
    let (dims, dtype) = (s.dims_of(index), s.ty_of(index).dtype);
    if !dtype.is_int() || dtype.bits() < 32 || dtype == DType::U64 || !s.never_empty(&dims[axis]) {
        return None;
    }
    let along = affine(s, count, DEPTH_MAX).filter(|a| a.offset.is_const(0))?;
    if !(0..dims.len()).all(|i| along.by[i].is_const((i == axis) as i64)) {
        return None;
    }
    let (at, repeated) = s
        .find(index, |op| if let Op::Broadcast { dims } = op { Some(dims) } else { None })
        .find(|(at, _)| !at.contains(&axis))?;
    let kept = |i: &usize| *i != axis;
    let own: Vec<Dim> = (0..dims.len()).filter(kept).map(|i| dims[i].clone()).collect();
    let places: Vec<usize> = at.iter().map(|i| i - (*i > axis) as usize).collect();
    let index = broadcast(class(repeated.args[0]), places, &own);
    let index = match dtype {
        DType::I64 => index,
        _ => typed(Op::Convert(Conversion::Value), TensorType::new(DType::I64, own.clone()), vec![index]),
    };
    let last = dims[axis].clone() - Dim::constant(1);
    let last = typed(Op::Dims(vec![last]), TensorType::new(DType::I64, [Dim::constant(1)]), vec![]);
    let last = broadcast(reshape(last, &[]), vec![], &own);
    let zero = splat(scalar(DType::I64, 0.0)?, &own);
    let near = map(ScalarFn::Max, vec![index.clone(), zero]);
    let near = map(ScalarFn::Min, vec![near, last]);
    let inside = map(ScalarFn::Eq, vec![index, near.clone()]);
    let table = spec.right.iter().position(|c| *c == spec.left[axis])?;
    let rows = op(Op::Gather { axis: table }, vec![class(s.arg(1)), near]);
    // Letters of the gathered value, and their positions in the result.
    let left: Vec<char> = (0..dims.len()).filter(kept).map(|i| spec.left[i]).collect();
    let gathered = [&spec.right[..table], &left, &spec.right[table + 1..]].concat();
    let perm: Vec<usize> = spec.result.iter().map(|c| gathered.iter().position(|g| g == c)).collect::<Option<_>>()?;
    let rows = transpose(rows, perm);
    let places = left.iter().map(|c| spec.result.iter().position(|r| r == c)).collect::<Option<_>>()?;
    let inside = broadcast(inside, places, &s.ty().dims);
    Some(map(ScalarFn::Select, vec![inside, rows, splat(scalar(s.ty().dtype, 0.0)?, &s.ty().dims)]))
}

/// gather(reshape(x[b, s], [b*s]), index) with index[i, …, j] = s * i + j  =>  x repeated over the other dimensions
fn gather_of_merged(s: &Site) -> Vec<Expr> {
    let Op::Gather { axis } = s.op() else { return vec![] };
    let mut out = vec![];
    for (_, merged) in s.find(s.arg(0), |op| (*op == Op::Reshape).then_some(())) {
        let Some(index) = affine(s, s.arg(1), DEPTH_MAX).filter(|a| a.offset.is_const(0)) else { return out };
        out.extend(unmerged(s, *axis, merged, &index));
    }
    out
}

fn unmerged(s: &Site, axis: usize, merged: &ENode, index: &Affine) -> Option<Expr> {
    let x = merged.args[0];
    let (dims, flat) = (s.dims_of(x), s.dims_of(s.arg(0)));
    // Exporters add dimensions of 1 after the flat one; x has no counterpart for them.
    let last = flat.iter().rposition(|d| !d.is_const(1)).unwrap_or(0).max(axis);
    let groups = merged_groups(dims, &flat[..=last])?;
    let (index_dims, group) = (s.dims_of(s.arg(1)), groups[axis].clone());
    let mut at = vec![];
    for i in 0..dims.len() {
        if !group.contains(&i) {
            // Dimensions before the gathered one keep their positions; those after it follow the index dimensions.
            let own = groups.iter().position(|g| g.contains(&i) && g.len() == 1)?;
            at.push(if own < axis { own } else { own + index_dims.len() - 1 });
            continue;
        }
        let stride = product(&dims[i + 1..group.end]);
        let varies = |d: &usize| !index.by[*d].is_const(0) && !index_dims[*d].is_const(1);
        let along = (0..index_dims.len()).find(|d| varies(d) && index.by[*d] == stride && index_dims[*d] == dims[i]);
        at.push(axis + along.filter(|d| !at.contains(&(axis + d)))?);
    }
    // The dimensions along which the index varies must be those of the group.
    let varying = (0..index_dims.len()).filter(|d| !index.by[*d].is_const(0) && !index_dims[*d].is_const(1)).count();
    if varying != group.len() {
        return None;
    }
    let mut order: Vec<usize> = (0..at.len()).collect();
    order.sort_by_key(|&i| at[i]);
    let sorted: Vec<usize> = order.iter().map(|&i| at[i]).collect();
    Some(broadcast(transpose(class(x), order), sorted, &s.ty().dims))
}
