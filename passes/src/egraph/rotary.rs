//! slice(concat(x, y)) => x,  f(concat(x, y)) => concat(f(x), f(y)): rules for rotary embeddings

use super::expr::{Expr, Site, broadcast, class, map, op, splat, transpose, typed};
use super::language::ENode;
use super::rule::{Rule, code};
use crate::class::Class::Exact;
use egg::Id;
use sardonyx_base::Dim;
use sardonyx_dialects::sdx::{Op, TensorType};

pub static RULES: &[Rule] = &[
    code("slice-of-concat", Exact, "(slice (concat ?x ?y))", slice_of_concat),
    code("slice-of-map", Exact, "(slice (map ?x ?y))", slice_of_map),
    code("slice-of-broadcast", Exact, "(slice (broadcast ?x))", slice_of_broadcast),
    code("slice-of-transpose", Exact, "(slice (transpose ?x))", slice_of_transpose),
    code("concat-of-slices", Exact, "(concat (halves#1 ?x) (halves#1 ?x))", concat_of_slices),
    code("map-of-concat", Exact, "(map (concat#1 ?x ?y) (concat#1 ?x ?y))", map_of_concat),
    code("map-of-concat-scaled", Exact, "(map (concat ?x ?y) splat)", map_of_concat),
];

fn concat_axis(op: &Op) -> Option<usize> {
    if let Op::Concat { axis } = op { Some(*axis) } else { None }
}

/// Start indices of a slice whose steps are all 1.
fn dense(op: &Op) -> Option<&Vec<Dim>> {
    match op {
        Op::Slice { starts, steps } if steps.iter().all(|&s| s == 1) => Some(starts),
        _ => None,
    }
}

/// slice(concat(x, y)) => slice(x), where the slice lies within x
fn slice_of_concat(s: &Site) -> Vec<Expr> {
    let Some(starts) = dense(s.op()) else { return vec![] };
    let low = |d: &Dim| d.lower_bound(&|n| s.egraph.analysis.symbol_lo(n)).is_some_and(|lo| lo >= 0);
    let mut out = vec![];
    for (axis, n) in s.find(s.arg(0), concat_axis) {
        let mut begin = Dim::constant(0);
        for &part in &n.args {
            let extent = s.dims_of(part)[axis].clone();
            let from = starts[axis].clone() - begin.clone();
            let left = extent.clone() - from.clone() - s.ty().dims[axis].clone();
            if low(&from) && low(&left) {
                let mut starts = starts.clone();
                starts[axis] = from;
                let steps = vec![1; starts.len()];
                out.push(typed(Op::Slice { starts, steps }, s.ty().clone(), vec![class(part)]));
            }
            begin = begin + extent;
        }
    }
    out
}

/// slice(f(x, y)) => f(slice(x), slice(y)), and splats are rebuilt with the dimensions of the slice
fn slice_of_map(s: &Site) -> Vec<Expr> {
    let moved = |(f, n): (sardonyx_dialects::scalar::ScalarFn, &ENode)| {
        let part = |&a: &Id| match s.splat_tensor(a) {
            Some(t) => splat(t, &s.ty().dims),
            None => typed(s.op().clone(), s.ty().clone(), vec![class(a)]),
        };
        map(f, n.args.iter().map(part).collect())
    };
    let map_of = |op: &Op| if let Op::Map(f) = op { Some(*f) } else { None };
    s.find(s.arg(0), map_of).map(moved).collect()
}

/// slice(broadcast(x)) => broadcast(slice(x))
fn slice_of_broadcast(s: &Site) -> Vec<Expr> {
    let Op::Slice { starts, steps } = s.op() else { return vec![] };
    let moved = |(at, n): (&Vec<usize>, &ENode)| {
        let dims = s.dims_of(n.args[0]);
        // A repeated dimension of 1 is the same in every slice; one that is not repeated may be sliced to nothing.
        let one = |i: usize| dims[i].is_const(1);
        if (0..at.len()).any(|i| one(i) && s.dims_of(s.arg(0))[at[i]].is_const(1) && !s.ty().dims[at[i]].is_const(1)) {
            return None;
        }
        let start = |i: usize| if one(i) { Dim::constant(0) } else { starts[at[i]].clone() };
        let count = |i: usize| if one(i) { Dim::constant(1) } else { s.ty().dims[at[i]].clone() };
        let step = |i: usize| if one(i) { 1 } else { steps[at[i]] };
        let all = 0..at.len();
        let slice = Op::Slice { starts: all.clone().map(start).collect(), steps: all.clone().map(step).collect() };
        let ty = TensorType::new(s.ty().dtype, all.map(count).collect::<Vec<_>>());
        Some(broadcast(typed(slice, ty, vec![class(n.args[0])]), at.clone(), &s.ty().dims))
    };
    s.find(s.arg(0), |op| if let Op::Broadcast { dims } = op { Some(dims) } else { None }).filter_map(moved).collect()
}

/// slice(transpose(x)) => transpose(slice(x))
fn slice_of_transpose(s: &Site) -> Vec<Expr> {
    let Op::Slice { starts, steps } = s.op() else { return vec![] };
    let moved = |(perm, n): (&Vec<usize>, &ENode)| {
        let back = |i: usize| perm.iter().position(|&p| p == i).unwrap_or(i);
        let all = 0..perm.len();
        let ty = TensorType::new(s.ty().dtype, all.clone().map(|i| s.ty().dims[back(i)].clone()).collect::<Vec<_>>());
        let slice = Op::Slice {
            starts: all.clone().map(|i| starts[back(i)].clone()).collect(),
            steps: all.map(|i| steps[back(i)]).collect(),
        };
        transpose(typed(slice, ty, vec![class(n.args[0])]), perm.clone())
    };
    s.find(s.arg(0), |op| if let Op::Transpose { perm } = op { Some(perm) } else { None }).map(moved).collect()
}

/// concat(x[..n], x[n..]) => x, or the slice of x that the concatenated parts form
fn concat_of_slices(s: &Site) -> Vec<Expr> {
    let Some(axis) = concat_axis(s.op()) else { return vec![] };
    let mut out = vec![];
    for (first, n) in s.find(s.arg(0), dense) {
        let x = n.args[0];
        let mut end = first[axis].clone() + s.dims_of(s.arg(0))[axis].clone();
        let follows = |&part: &Id| {
            let mut expected = first.clone();
            expected[axis] = end.clone();
            end = end.clone() + s.dims_of(part)[axis].clone();
            s.find(part, dense).any(|(starts, m)| *starts == expected && s.same(m.args[0], x))
        };
        if s.node.args[1..].iter().all(follows) {
            let op = Op::Slice { starts: first.clone(), steps: vec![1; first.len()] };
            out.push(typed(op, s.ty().clone(), vec![class(x)]));
        }
    }
    out
}

/// f(concat(x, y), concat(u, v)) => concat(f(x, u), f(y, v)), for parts of the same sizes, and splats
fn map_of_concat(s: &Site) -> Vec<Expr> {
    let Op::Map(f) = s.op() else { return vec![] };
    let Some(lead) = s.node.args.iter().position(|&a| s.splat(a).is_none()) else { return vec![] };
    let mut out = vec![];
    for (axis, first) in s.find(s.arg(lead), concat_axis) {
        let parts: Vec<&[Dim]> = first.args.iter().map(|&a| s.dims_of(a)).collect();
        let operand = |&a: &Id| -> Option<Vec<Expr>> {
            if let Some(t) = s.splat_tensor(a) {
                return Some(parts.iter().map(|d| splat(t.clone(), d)).collect());
            }
            let alike =
                |n: &ENode| n.args.len() == parts.len() && n.args.iter().zip(&parts).all(|(&a, d)| s.dims_of(a) == *d);
            let same_axis = move |op: &Op| concat_axis(op).filter(|&a| a == axis);
            s.find(a, same_axis).find(|(_, n)| alike(n)).map(|(_, n)| n.args.iter().map(|&a| class(a)).collect())
        };
        let Some(operands) = s.node.args.iter().map(operand).collect::<Option<Vec<Vec<Expr>>>>() else { continue };
        let part = |i: usize| map(*f, operands.iter().map(|o| o[i].clone()).collect());
        out.push(op(Op::Concat { axis }, (0..parts.len()).map(part).collect()));
    }
    out
}
