//! transpose(transpose(x)) => transpose(x),  map(broadcast(x)) => broadcast(map(x)): operations that only move elements

use super::expr::{Expr, Site, broadcast, class, map, op, reshape, transpose, typed};
use super::rule::{Rule, code};
use crate::class::Class::Exact;
use sardonyx_base::Dim;
use sardonyx_base::dim::merged_groups;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, TensorType};

pub static RULES: &[Rule] = &[
    code("still-broadcast", Exact, "(broadcast ?x)", still),
    code("still-convert", Exact, "(convert ?x)", still),
    code("still-concat", Exact, "(concat ?x)", still),
    code("still-reshape", Exact, "(reshape ?x)", still),
    code("still-transpose", Exact, "(transpose ?x)", still_transpose),
    code("still-slice", Exact, "(slice ?x)", still_slice),
    code("compose-broadcasts", Exact, "(broadcast (broadcast ?x))", compose_broadcasts),
    code("compose-reshapes", Exact, "(reshape (reshape ?x))", compose_reshapes),
    code("compose-slices", Exact, "(slice (slice ?x))", compose_slices),
    code("compose-transposes", Exact, "(transpose (transpose ?x))", compose_transposes),
    code("broadcast-of-units", Exact, "(broadcast (reshape ?x))", broadcast_of_units),
    code("broadcast-as-reshape", Exact, "(broadcast ?x)", broadcast_as_reshape),
    code("reshape-of-broadcast", Exact, "(reshape (broadcast ?x))", reshape_of_broadcast),
    code("transpose-of-broadcast", Exact, "(transpose (broadcast ?x))", transpose_of_broadcast),
    code("transpose-of-units", Exact, "(transpose ?x)", transpose_of_units),
    code("transpose-of-merged", Exact, "(transpose (reshape ?x))", transpose_of_merged),
    code("map-before-broadcast", Exact, "(map (broadcast#1 ?x) (broadcast#1 ?y))", map_before_broadcast),
    code("map-before-reshape", Exact, "(map (reshape#1 ?x) (reshape#1 ?y))", map_before_motion),
    code("map-before-transpose", Exact, "(map (transpose#1 ?x) (transpose#1 ?y))", map_before_motion),
    code("scale-behind-broadcast", Exact, "(broadcast (mul ?x splat))", scale_behind),
    code("scale-behind-reshape", Exact, "(reshape (mul ?x splat))", scale_behind),
    code("scale-behind-transpose", Exact, "(transpose (mul ?x splat))", scale_behind),
    code("convert-before-motion", Exact, "(convert (broadcast ?x))", convert_before_motion),
    code("convert-before-reshape", Exact, "(convert (reshape ?x))", convert_before_motion),
    code("convert-before-transpose", Exact, "(convert (transpose ?x))", convert_before_motion),
    code("reduce-of-transpose", Exact, "(reduce (transpose ?x))", reduce_of_transpose),
];

/// f(x) => x, where x is the only operand and has the type of the result: f then changes nothing
fn still(s: &Site) -> Vec<Expr> {
    let still = s.node.args.len() == 1 && s.ty_of(s.arg(0)) == s.ty();
    if still { vec![class(s.arg(0))] } else { vec![] }
}

fn still_transpose(s: &Site) -> Vec<Expr> {
    let Op::Transpose { perm } = s.op() else { return vec![] };
    let still = perm.iter().enumerate().all(|(i, &p)| i == p);
    if still { vec![class(s.arg(0))] } else { vec![] }
}

fn still_slice(s: &Site) -> Vec<Expr> {
    let Op::Slice { starts, steps } = s.op() else { return vec![] };
    let from_start = starts.iter().all(|d| d.is_const(0)) && steps.iter().all(|&s| s == 1);
    if from_start { still(s) } else { vec![] }
}

/// broadcast(broadcast(x)) => broadcast(x)
fn compose_broadcasts(s: &Site) -> Vec<Expr> {
    let Op::Broadcast { dims: outer } = s.op() else { return vec![] };
    let inner = s.find(s.arg(0), |op| if let Op::Broadcast { dims } = op { Some(dims) } else { None });
    inner.map(|(d, n)| broadcast(class(n.args[0]), d.iter().map(|&d| outer[d]).collect(), &s.ty().dims)).collect()
}

/// reshape(reshape(x)) => reshape(x)
fn compose_reshapes(s: &Site) -> Vec<Expr> {
    let inner = s.find(s.arg(0), |op| (*op == Op::Reshape).then_some(()));
    inner.map(|(_, n)| reshape(class(n.args[0]), &s.ty().dims)).collect()
}

/// transpose(transpose(x, p), q) => transpose(x, p[q])
fn compose_transposes(s: &Site) -> Vec<Expr> {
    let Op::Transpose { perm: outer } = s.op() else { return vec![] };
    let inner = s.find(s.arg(0), |op| if let Op::Transpose { perm } = op { Some(perm) } else { None });
    inner.map(|(p, n)| transpose(class(n.args[0]), outer.iter().map(|&q| p[q]).collect())).collect()
}

/// slice(slice(x)) => slice(x)
fn compose_slices(s: &Site) -> Vec<Expr> {
    let Op::Slice { starts, steps } = s.op() else { return vec![] };
    let inner = s.find(s.arg(0), |op| if let Op::Slice { starts, steps } = op { Some((starts, steps)) } else { None });
    let compose = |((from, by), n): ((&Vec<Dim>, &Vec<i64>), &super::language::ENode)| {
        let start = |i: usize| from[i].clone() + starts[i].clone() * Dim::constant(by[i]);
        let step = |i: usize| steps[i].checked_mul(by[i]);
        let steps = (0..steps.len()).map(step).collect::<Option<Vec<i64>>>()?;
        let op = Op::Slice { starts: (0..steps.len()).map(start).collect(), steps };
        Some(typed(op, s.ty().clone(), vec![class(n.args[0])]))
    };
    inner.filter_map(compose).collect()
}

/// Returns the position in `to` of each dimension of `from`, ascending; `None` unless all other dimensions are 1.
pub fn unit_places(from: &[Dim], to: &[Dim]) -> Option<Vec<usize>> {
    let mut at = 0;
    let mut places = vec![];
    for d in from.iter() {
        // Dimensions of 1 that only `to` has are skipped. A dimension that only `from` has makes the match fail.
        while at < to.len() && to[at] != *d {
            if !to[at].is_const(1) {
                return None;
            }
            at += 1;
        }
        if at == to.len() {
            return None;
        }
        places.push(at);
        at += 1;
    }
    to[at..].iter().all(|d| d.is_const(1)).then_some(places)
}

/// broadcast(reshape(x)) => broadcast(x), where the reshape only adds dimensions of 1
fn broadcast_of_units(s: &Site) -> Vec<Expr> {
    let Op::Broadcast { dims } = s.op() else { return vec![] };
    let added = |n: &super::language::ENode| {
        let places = unit_places(s.dims_of(n.args[0]), s.dims_of(s.arg(0)))?;
        Some(broadcast(class(n.args[0]), places.iter().map(|&p| dims[p]).collect(), &s.ty().dims))
    };
    s.find(s.arg(0), |op| (*op == Op::Reshape).then_some(())).filter_map(|(_, n)| added(n)).collect()
}

/// broadcast(x) => reshape(x), where the broadcast only adds dimensions of 1
fn broadcast_as_reshape(s: &Site) -> Vec<Expr> {
    let adds_units =
        s.ty_of(s.arg(0)).elements() == s.ty().elements() && unit_places(s.dims_of(s.arg(0)), &s.ty().dims).is_some();
    if adds_units { vec![reshape(class(s.arg(0)), &s.ty().dims)] } else { vec![] }
}

/// reshape(broadcast(x)) => broadcast(x), where the reshape only adds dimensions of 1, or only drops dimensions of 1
/// that the broadcast added
fn reshape_of_broadcast(s: &Site) -> Vec<Expr> {
    let (from, to) = (s.dims_of(s.arg(0)), &s.ty().dims);
    let mut out = vec![];
    for (dims, n) in s.find(s.arg(0), |op| if let Op::Broadcast { dims } = op { Some(dims) } else { None }) {
        if let Some(places) = unit_places(from, to) {
            out.push(broadcast(class(n.args[0]), dims.iter().map(|&d| places[d]).collect(), to));
        } else if let Some(kept) = unit_places(to, from) {
            let back = |d: &usize| kept.iter().position(|k| k == d);
            if let Some(at) = dims.iter().map(back).collect::<Option<Vec<usize>>>() {
                out.push(broadcast(class(n.args[0]), at, to));
            }
        }
    }
    out
}

/// transpose(broadcast(x)) => broadcast(x) or broadcast(transpose(x))
fn transpose_of_broadcast(s: &Site) -> Vec<Expr> {
    let Op::Transpose { perm } = s.op() else { return vec![] };
    let inner = s.find(s.arg(0), |op| if let Op::Broadcast { dims } = op { Some(dims) } else { None });
    let turned = |(dims, n): (&Vec<usize>, &super::language::ENode)| {
        let places: Vec<usize> = dims.iter().filter_map(|d| perm.iter().position(|p| p == d)).collect();
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by_key(|&i| places[i]);
        let sorted = order.iter().map(|&i| places[i]).collect();
        let still = order.windows(2).all(|w| w[0] < w[1]);
        let x = if still { class(n.args[0]) } else { transpose(class(n.args[0]), order) };
        broadcast(x, sorted, &s.ty().dims)
    };
    inner.map(turned).collect()
}

/// transpose(x) => reshape(x), where only dimensions of 1 move
fn transpose_of_units(s: &Site) -> Vec<Expr> {
    let Op::Transpose { perm } = s.op() else { return vec![] };
    let dims = s.dims_of(s.arg(0));
    let long: Vec<usize> = perm.iter().copied().filter(|&p| !dims[p].is_const(1)).collect();
    let in_order = long.windows(2).all(|w| w[0] < w[1]);
    if in_order { vec![reshape(class(s.arg(0)), &s.ty().dims)] } else { vec![] }
}

/// transpose(reshape(x[b, h, s, d], [b*h, s, d])) => reshape(transpose(x)): dimensions that are merged move together
fn transpose_of_merged(s: &Site) -> Vec<Expr> {
    let Op::Transpose { perm } = s.op() else { return vec![] };
    let before = |(_, n): ((), &super::language::ENode)| {
        let groups = merged_groups(s.dims_of(n.args[0]), s.dims_of(s.arg(0)))?;
        let perm = perm.iter().flat_map(|&p| groups[p].clone()).collect();
        Some(reshape(transpose(class(n.args[0]), perm), &s.ty().dims))
    };
    s.find(s.arg(0), |op| (*op == Op::Reshape).then_some(())).filter_map(before).collect()
}

/// f(transpose(x), transpose(y)) => transpose(f(x, y)), for operands moved in the same way, and splats
fn map_before_motion(s: &Site) -> Vec<Expr> {
    map_before(s, |op| matches!(op, Op::Transpose { .. } | Op::Reshape), |_| true)
}

/// f(broadcast(x), broadcast(y)) => broadcast(f(x, y)): f is computed before the values are repeated
fn map_before_broadcast(s: &Site) -> Vec<Expr> {
    // There is no gain where nothing is repeated.
    let repeats = |ty: &TensorType| ty.elements() != s.ty().elements();
    map_before(s, |op| matches!(op, Op::Broadcast { .. }), repeats)
}

/// f(m(x), m(y)) => m(f(x, y)), where `moves` is true of m and `gains` of the type of x; an operand may also be a splat
fn map_before(s: &Site, moves: fn(&Op) -> bool, gains: impl Fn(&TensorType) -> bool) -> Vec<Expr> {
    let Op::Map(f) = s.op() else { return vec![] };
    let Some(lead) = s.node.args.iter().position(|&a| s.splat(a).is_none()) else { return vec![] };
    let mut out = vec![];
    for (moved, first) in s.find(s.arg(lead), move |op| moves(op).then_some(op)) {
        if !gains(s.ty_of(first.args[0])) {
            continue;
        }
        let dims = s.dims_of(first.args[0]);
        let back = |&a: &egg::Id| -> Option<Expr> {
            let alike = |op: &Op| (op == moved).then_some(());
            let other = s.find(a, alike).map(|(_, n)| n.args[0]).find(|&x| s.dims_of(x) == dims);
            match (other, s.splat_tensor(a)) {
                (_, Some(value)) => Some(super::expr::splat(value, dims)),
                (x, None) => x.map(class),
            }
        };
        if let Some(args) = s.node.args.iter().map(back).collect::<Option<Vec<Expr>>>() {
            out.push(typed(moved.clone(), s.ty().clone(), vec![map(*f, args)]));
        }
    }
    out
}

/// transpose(x * c) => transpose(x) * c, where c is a splat: `scale-into-contract` can then move the scale c past a
/// contraction that reads the result
fn scale_behind(s: &Site) -> Vec<Expr> {
    let behind = |(_, n): ((), &super::language::ENode)| {
        let c = s.splat_tensor(n.args[1]).filter(|_| s.splat(n.args[0]).is_none())?;
        let moved = typed(s.op().clone(), s.ty().clone(), vec![class(n.args[0])]);
        Some(map(ScalarFn::Mul, vec![moved, super::expr::splat(c, &s.ty().dims)]))
    };
    s.find(s.arg(0), |op| (*op == Op::Map(ScalarFn::Mul)).then_some(())).filter_map(behind).collect()
}

/// convert(transpose(x)) => transpose(convert(x))
fn convert_before_motion(s: &Site) -> Vec<Expr> {
    let motion = |op: &Op| matches!(op, Op::Transpose { .. } | Op::Reshape | Op::Broadcast { .. });
    let moved = s.find(s.arg(0), move |op| motion(op).then_some(op));
    let before = |(moved, n): (&Op, &super::language::ENode)| {
        let inner = TensorType::new(s.ty().dtype, s.dims_of(n.args[0]).to_vec());
        typed(moved.clone(), s.ty().clone(), vec![typed(s.op().clone(), inner, vec![class(n.args[0])])])
    };
    moved.map(before).collect()
}

/// reduce(transpose(x)) => transpose(reduce(x)), where the reduced axes keep their order
fn reduce_of_transpose(s: &Site) -> Vec<Expr> {
    let Op::Reduce { f, axes } = s.op() else { return vec![] };
    let inner = s.find(s.arg(0), |op| if let Op::Transpose { perm } = op { Some(perm) } else { None });
    let before = |(perm, n): (&Vec<usize>, &super::language::ENode)| {
        let mut from: Vec<usize> = axes.iter().map(|&a| perm[a]).collect();
        // Adding the same elements in another order may give another sum.
        if !from.windows(2).all(|w| w[0] < w[1]) {
            return None;
        }
        from.sort();
        let kept: Vec<usize> = (0..perm.len()).filter(|i| !axes.contains(i)).map(|i| perm[i]).collect();
        let mut sorted = kept.clone();
        sorted.sort();
        let order: Vec<usize> = kept.iter().filter_map(|k| sorted.iter().position(|s| s == k)).collect();
        let reduced = op(Op::Reduce { f: *f, axes: from }, vec![class(n.args[0])]);
        Some(transpose(reduced, order))
    };
    inner.filter_map(before).collect()
}
