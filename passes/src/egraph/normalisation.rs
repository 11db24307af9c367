//! mean(x²) − mean(x)² => mean((x − mean(x))²),  x / rows => x * (1 / rows): means, variances, division by them

use super::expr::{Expr, Site, broadcast, class, map, op, reshape, scalar, splat};
use super::language::ENode;
use super::rule::{Condition, Rule, code, holds};
use crate::class::Class::Reassociating;
use egg::Id;
use sardonyx_base::dim::product;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::Op;

pub static RULES: &[Rule] = &[
    code("div-by-rows", Reassociating, "(div ?x (broadcast ?y))", div_by_rows),
    code("variance-of-squares", Reassociating, "(sub (mean#1 (mul ?x ?x)) (mul (mean#1 ?x) (mean#1 ?x)))", variance),
    code("sum-of-scaled", Reassociating, "(sum (mul ?x scale))", sum_of_scaled),
    // Summing one element turns −0 into 0.
    code("reduce-of-units", Reassociating, "(reduce ?x)", reduce_of_units),
    code("reduce-of-reduce", Reassociating, "(reduce#f (reduce#f ?x))", reduce_of_reduce),
];

pub fn is(op: &Op, f: ScalarFn) -> Option<()> {
    (*op == Op::Map(f)).then_some(())
}

fn broadcast_places(op: &Op) -> Option<&Vec<usize>> {
    if let Op::Broadcast { dims } = op { Some(dims) } else { None }
}

/// x / broadcast(y) => x * broadcast(1 / y): one division per row
fn div_by_rows(s: &Site) -> Vec<Expr> {
    if !s.ty().dtype.is_float() || s.splat(s.arg(1)).is_some() || !holds(s, Condition::Unrounded, s.class) {
        return vec![];
    }
    let by_row = |(at, n): (&Vec<usize>, &ENode)| {
        let y = s.ty_of(n.args[0]);
        let one = splat(scalar(y.dtype, 1.0)?, &y.dims);
        let inverse = map(ScalarFn::Div, vec![one, class(n.args[0])]);
        let fewer = y.elements() != s.ty().elements();
        fewer.then(|| map(ScalarFn::Mul, vec![class(s.arg(0)), broadcast(inverse, at.clone(), &s.ty().dims)]))
    };
    s.find(s.arg(1), broadcast_places).filter_map(by_row).collect()
}

/// Operands and axes of c * Σ x, where c is one over the number of elements.
fn means<'a>(s: &Site<'a>, id: Id) -> Vec<(Id, &'a Vec<usize>)> {
    let mut out = vec![];
    for (_, scaled) in s.find(id, |op| is(op, ScalarFn::Mul)) {
        let Some(c) = s.splat(scaled.args[1]) else { continue };
        for (axes, sum) in s.find(scaled.args[0], |op| match op {
            Op::Reduce { f: ReduceFn::Add, axes } => Some(axes),
            _ => None,
        }) {
            let n = product(axes.iter().map(|&a| &s.dims_of(sum.args[0])[a])).as_const().filter(|n| *n > 0);
            let exact = n.and_then(|n| scalar(s.ty_of(id).dtype, 1.0 / n as f64)).and_then(|t| t.get_f64(0));
            if exact == Some(c) {
                out.push((sum.args[0], axes));
            }
        }
    }
    out
}

/// mean(x * x) − m * m => mean((x − m)²), m = mean(x): avoids the difference of two large numbers
fn variance(s: &Site) -> Vec<Expr> {
    let mut out = vec![];
    for (squares, axes) in means(s, s.arg(0)) {
        let xs: Vec<Id> = s
            .find(squares, |op| is(op, ScalarFn::Mul))
            .filter(|(_, n)| s.same(n.args[0], n.args[1]))
            .map(|(_, n)| n.args[0])
            .collect();
        let ms: Vec<Id> = s
            .find(s.arg(1), |op| is(op, ScalarFn::Mul))
            .filter(|(_, n)| s.same(n.args[0], n.args[1]))
            .map(|(_, n)| n.args[0])
            .collect();
        for &x in &xs {
            for &m in &ms {
                if !means(s, m).iter().any(|(y, other)| s.same(x, *y) && *other == axes) {
                    continue;
                }
                let dims = s.dims_of(x);
                let kept = (0..dims.len()).filter(|i| !axes.contains(i)).collect();
                let centred = map(ScalarFn::Sub, vec![class(x), broadcast(class(m), kept, dims)]);
                let sum = op(
                    Op::Reduce { f: ReduceFn::Add, axes: axes.clone() },
                    vec![map(ScalarFn::Mul, vec![centred.clone(), centred])],
                );
                let n = product(axes.iter().map(|&a| &dims[a])).as_const().unwrap_or(1);
                if let Some(c) = scalar(s.ty().dtype, 1.0 / n as f64) {
                    out.push(map(ScalarFn::Mul, vec![sum, splat(c, &s.ty().dims)]));
                }
            }
        }
    }
    out
}

/// Σ c * x => c * Σ x
fn sum_of_scaled(s: &Site) -> Vec<Expr> {
    let outside = |(_, n): ((), &ENode)| {
        let c = holds(s, Condition::Scale, n.args[1]).then(|| s.splat_tensor(n.args[1])).flatten()?;
        Some(map(ScalarFn::Mul, vec![op(s.op().clone(), vec![class(n.args[0])]), splat(c, &s.ty().dims)]))
    };
    s.find(s.arg(0), |op| is(op, ScalarFn::Mul)).filter_map(outside).collect()
}

/// Removes reduced axes of extent 1, over which a reduction does nothing.
fn reduce_of_units(s: &Site) -> Vec<Expr> {
    let Op::Reduce { f, axes } = s.op() else { return vec![] };
    let dims = s.dims_of(s.arg(0));
    let long: Vec<usize> = axes.iter().copied().filter(|&a| !dims[a].is_const(1)).collect();
    if long.len() == axes.len() {
        return vec![];
    }
    let kept: Vec<usize> = (0..dims.len()).filter(|i| long.contains(i) || !axes.contains(i)).collect();
    let inner = reshape(class(s.arg(0)), &kept.iter().map(|&i| dims[i].clone()).collect::<Vec<_>>());
    if long.is_empty() {
        return vec![inner];
    }
    let axes = (0..kept.len()).filter(|i| long.contains(&kept[*i])).collect();
    vec![op(Op::Reduce { f: *f, axes }, vec![inner])]
}

/// reduce(reduce(x)) => reduce(x) over the axes of both
fn reduce_of_reduce(s: &Site) -> Vec<Expr> {
    let Op::Reduce { f, axes: outer } = s.op() else { return vec![] };
    let both = |(inner, n): (&Vec<usize>, &ENode)| {
        let kept: Vec<usize> = (0..s.dims_of(n.args[0]).len()).filter(|i| !inner.contains(i)).collect();
        let mut axes: Vec<usize> = outer.iter().map(|&a| kept[a]).chain(inner.iter().copied()).collect();
        axes.sort();
        op(Op::Reduce { f: *f, axes }, vec![class(n.args[0])])
    };
    let inner = s.find(s.arg(0), |op| if let Op::Reduce { f, axes } = op { Some((f, axes)) } else { None });
    inner.filter(|((g, _), _)| *g == f).map(|((_, axes), n)| both((axes, n))).collect()
}
