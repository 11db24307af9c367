//! contract(transpose(x), y) => contract(x, y),  contract(c * x, y) => c * contract(x, y): algebra of contractions

use super::expr::{Expr, Site, broadcast, class, map, op, reshape, splat, transpose, typed};
use super::language::ENode;
use super::rule::{Condition, Rule, code, holds};
use super::table::letter;
use crate::class::Class::{Exact, FiniteOnly, Reassociating};
use egg::Id;
use sardonyx_base::dim::merged_groups;
use sardonyx_base::{Dim, Tensor};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{ContractSpec, Op, TensorType};

pub static RULES: &[Rule] = &[
    // The order of the reduced letters may change, and with it the order of summation.
    code("contract-commutes", Reassociating, "(contract ?x ?y)", commute),
    code("transpose-into-contract", Reassociating, "(contract (transpose ?x) ?y)", transpose_operand),
    code("transpose-of-contract", Exact, "(transpose (contract ?x ?y))", transpose_result),
    code("repeated-into-contract", Exact, "(contract (broadcast ?x) ?y)", repeated_operand),
    code("split-of-contract", Exact, "(reshape (contract ?x param))", split_result),
    code("merged-into-contract", Exact, "(contract (reshape ?x) param)", merged_operand),
    code("slice-of-contract", Exact, "(slice (contract ?x param))", slice_result),
    code("scale-of-contract", Reassociating, "(mul (contract ?x ?y) scale)", scale_result),
    code("scale-into-contract", Reassociating, "(contract (mul ?x scale) ?y)", scale_operand),
    code(
        "permutation-into-constant",
        Reassociating,
        "(contract (gather ?x permutation) param)",
        permutation_into_constant,
    ),
    code("gather-of-contract", Exact, "(gather (contract ?x param) permutation)", gather_result),
    // The new contractions may multiply an infinite or NaN weight by a zero by which the old ones do not multiply it.
    code("rows-into-constant", FiniteOnly, "(contract (mul ?x (broadcast param)) param)", rows_into_constant),
    code("columns-into-constant", FiniteOnly, "(mul (contract ?x param) (broadcast param))", columns_into_constant),
    code("contract-of-constants", FiniteOnly, "(contract (contract ?x param) param)", associate),
];

pub fn spec_of(op: &Op) -> Option<&ContractSpec> {
    if let Op::Contract(spec) = op { Some(spec) } else { None }
}

fn contract(left: Vec<char>, right: Vec<char>, result: Vec<char>, x: Expr, y: Expr) -> Expr {
    op(Op::Contract(ContractSpec { left, right, result }), vec![x, y])
}

/// contract(x, y) => contract(y, x)
fn commute(s: &Site) -> Vec<Expr> {
    let Some(spec) = spec_of(s.op()) else { return vec![] };
    let (l, r) = (spec.right.clone(), spec.left.clone());
    vec![contract(l, r, spec.result.clone(), class(s.arg(1)), class(s.arg(0)))]
}

/// contract(transpose(x), y) => contract(x, y), with the letters of x permuted
fn transpose_operand(s: &Site) -> Vec<Expr> {
    let Some(spec) = spec_of(s.op()) else { return vec![] };
    let turned = s.find(s.arg(0), |op| if let Op::Transpose { perm } = op { Some(perm) } else { None });
    let read = |(perm, n): (&Vec<usize>, &ENode)| {
        let mut left = spec.left.clone();
        perm.iter().zip(&spec.left).for_each(|(&p, &c)| left[p] = c);
        contract(left, spec.right.clone(), spec.result.clone(), class(n.args[0]), class(s.arg(1)))
    };
    turned.map(read).collect()
}

/// transpose(contract(x, y)) => contract(x, y), with the letters of the result permuted
fn transpose_result(s: &Site) -> Vec<Expr> {
    let Op::Transpose { perm } = s.op() else { return vec![] };
    let written = |(spec, n): (&ContractSpec, &ENode)| {
        let result = perm.iter().map(|&p| spec.result[p]).collect();
        contract(spec.left.clone(), spec.right.clone(), result, class(n.args[0]), class(n.args[1]))
    };
    s.find(s.arg(0), spec_of).map(written).collect()
}

/// contract(broadcast(x), y) => contract(x, y), where the repeated dimensions are also in y, or only in the result
fn repeated_operand(s: &Site) -> Vec<Expr> {
    let Some(spec) = spec_of(s.op()) else { return vec![] };
    let once = |(at, n): (&Vec<usize>, &ENode)| {
        let x = n.args[0];
        let dims = s.dims_of(x);
        let whole = s.dims_of(s.arg(0));
        // Dimensions that x has in full. Repeated dimensions of 1, and those that x lacks, are dropped from A.
        let kept: Vec<usize> = (0..at.len()).filter(|&i| dims[i] == whole[at[i]]).collect();
        if kept.len() == spec.left.len() {
            return None;
        }
        let left: Vec<char> = kept.iter().map(|&i| spec.left[at[i]]).collect();
        let gone: Vec<char> = spec.left.iter().copied().filter(|c| !left.contains(c)).collect();
        // A reduced letter must stay in A: if only y had it, y would be summed over it before the product.
        if gone.iter().any(|c| !spec.result.contains(c)) {
            return None;
        }
        let result: Vec<char> =
            spec.result.iter().copied().filter(|c| left.contains(c) || spec.right.contains(c)).collect();
        let x = match kept.len() == dims.len() {
            true => class(x),
            false => reshape(class(x), &kept.iter().map(|&i| dims[i].clone()).collect::<Vec<_>>()),
        };
        let places = result.iter().filter_map(|c| spec.result.iter().position(|r| r == c)).collect();
        let product = contract(left, spec.right.clone(), result.clone(), x, class(s.arg(1)));
        Some(match result.len() == spec.result.len() {
            true => product,
            false => broadcast(product, places, &s.ty().dims),
        })
    };
    s.find(s.arg(0), |op| if let Op::Broadcast { dims } = op { Some(dims) } else { None }).filter_map(once).collect()
}

/// Returns `n` letters that the contraction does not use; `None` if the alphabet has too few.
fn fresh(spec: &ContractSpec, n: usize) -> Option<Vec<char>> {
    let used = |c: &char| spec.left.contains(c) || spec.right.contains(c);
    let free: Vec<char> = (0..super::table::LETTERS).filter_map(letter).filter(|c| !used(c)).take(n).collect();
    (free.len() == n).then_some(free)
}

/// Letters of one operand, with each letter of `with` replaced by the letters it is split into.
fn replaced(side: &[char], with: &[(char, Vec<char>)]) -> Vec<char> {
    let of = |c: &char| with.iter().find(|(o, _)| o == c).map_or(vec![*c], |(_, n)| n.clone());
    side.iter().flat_map(of).collect()
}

/// reshape(contract "bsk,kn->bsn"(x, y), [b, s, h, d]) => contract "bsk,khd->bshd"(x, reshape(y))
///
/// The rule applies only where the reshaped operand is constant, so that the reshape costs nothing.
fn split_result(s: &Site) -> Vec<Expr> {
    let mut out = vec![];
    for (spec, n) in s.find(s.arg(0), spec_of) {
        let Some(groups) = merged_groups(&s.ty().dims, s.dims_of(s.arg(0))) else { continue };
        out.extend(regroup(
            s,
            spec,
            n,
            &spec.result,
            &groups.iter().map(|g| s.ty().dims[g.clone()].to_vec()).collect::<Vec<_>>(),
        ));
    }
    out
}

/// contract(reshape(x[b, s, h, d], [b, s, k]), y[k, n]) => contract(x, reshape(y))
fn merged_operand(s: &Site) -> Vec<Expr> {
    let Some(spec) = spec_of(s.op()) else { return vec![] };
    let mut out = vec![];
    for (_, n) in s.find(s.arg(0), |op| (*op == Op::Reshape).then_some(())) {
        let dims = s.dims_of(n.args[0]);
        let Some(groups) = merged_groups(dims, s.dims_of(s.arg(0))) else { continue };
        // A merged letter of the result would have to be merged again.
        let merged = |(c, g): (&char, &std::ops::Range<usize>)| g.len() > 1 && spec.result.contains(c);
        if spec.left.iter().zip(&groups).any(merged) {
            continue;
        }
        let from = ENode { op: s.node.op, args: [n.args[0], s.arg(1)].into() };
        let parts: Vec<Vec<Dim>> = groups.iter().map(|g| dims[g.clone()].to_vec()).collect();
        out.extend(regroup_from(s, spec, &from, &spec.left, &parts, true));
    }
    out
}

fn regroup(s: &Site, spec: &ContractSpec, n: &ENode, letters: &[char], parts: &[Vec<Dim>]) -> Option<Expr> {
    regroup_from(s, spec, n, letters, parts, false)
}

/// Returns the contraction in which each of `letters` is split into one letter per dimension of its part. If `split`,
/// operand A is split already. Any other operand that has to be reshaped must be constant.
fn regroup_from(
    s: &Site,
    spec: &ContractSpec,
    n: &ENode,
    letters: &[char],
    parts: &[Vec<Dim>],
    split: bool,
) -> Option<Expr> {
    let many: Vec<(char, &Vec<Dim>)> = letters.iter().copied().zip(parts).filter(|(_, p)| p.len() != 1).collect();
    if many.is_empty() {
        return None;
    }
    let mut free = fresh(spec, many.iter().map(|(_, p)| p.len()).sum())?.into_iter();
    let with: Vec<(char, Vec<char>)> = many.iter().map(|(c, p)| (*c, free.by_ref().take(p.len()).collect())).collect();
    let operand = |side: &[char], id: Id, done: bool| {
        if done || !side.iter().any(|c| with.iter().any(|(o, _)| o == c)) {
            return Some(class(id));
        }
        let part =
            |(c, d): (&char, &Dim)| many.iter().find(|(o, _)| o == c).map_or(vec![d.clone()], |(_, p)| (*p).clone());
        let dims: Vec<Dim> = side.iter().zip(s.dims_of(id)).flat_map(part).collect();
        s.is_constant(id).then(|| reshape(class(id), &dims))
    };
    let x = operand(&spec.left, n.args[0], split)?;
    let y = operand(&spec.right, n.args[1], false)?;
    let side = |side: &[char]| replaced(side, &with);
    Some(contract(side(&spec.left), side(&spec.right), side(&spec.result), x, y))
}

/// slice(contract(x, y)) => contract(slice(x), y) or contract(x, slice(y)), where the sliced operand is constant
fn slice_result(s: &Site) -> Vec<Expr> {
    let Op::Slice { starts, steps } = s.op() else { return vec![] };
    let mut out = vec![];
    for (spec, n) in s.find(s.arg(0), spec_of) {
        let whole = s.dims_of(s.arg(0));
        let cut: Vec<usize> = (0..whole.len()).filter(|&i| whole[i] != s.ty().dims[i] || steps[i] != 1).collect();
        // One operand must have all the letters that are sliced, and be constant.
        for (arg, side, other) in [(0, &spec.left, &spec.right), (1, &spec.right, &spec.left)] {
            let own = |i: &usize| side.contains(&spec.result[*i]) && !other.contains(&spec.result[*i]);
            if !s.is_constant(n.args[arg]) || !cut.iter().all(own) {
                continue;
            }
            let dims = s.dims_of(n.args[arg]);
            let (mut to, mut from, mut by) = (dims.to_vec(), vec![Dim::constant(0); dims.len()], vec![1; dims.len()]);
            for i in &cut {
                let Some(at) = side.iter().position(|c| *c == spec.result[*i]) else { continue };
                (to[at], from[at], by[at]) = (s.ty().dims[*i].clone(), starts[*i].clone(), steps[*i]);
            }
            let ty = TensorType::new(s.ty().dtype, to);
            let part = typed(Op::Slice { starts: from, steps: by }, ty, vec![class(n.args[arg])]);
            let (x, y) = if arg == 0 { (part, class(n.args[1])) } else { (class(n.args[0]), part) };
            out.push(contract(spec.left.clone(), spec.right.clone(), spec.result.clone(), x, y));
        }
    }
    out
}

/// Whether neither operand is constant. Scales are not moved across contractions with weights.
fn both_vary(s: &Site, n: &ENode) -> bool {
    !s.is_constant(n.args[0]) && !s.is_constant(n.args[1])
}

fn scaled(s: &Site, id: Id, c: Id) -> Option<Expr> {
    Some(map(ScalarFn::Mul, vec![class(id), splat(s.splat_tensor(c)?, s.dims_of(id))]))
}

/// contract(x, y) * c => contract(x * c, y)
fn scale_result(s: &Site) -> Vec<Expr> {
    let c = s.arg(1);
    if !holds(s, Condition::Scale, c) {
        return vec![];
    }
    let inner = |(spec, n): (&ContractSpec, &ENode)| {
        let varies = both_vary(s, n);
        let x = varies.then(|| scaled(s, n.args[0], c)).flatten()?;
        Some(contract(spec.left.clone(), spec.right.clone(), spec.result.clone(), x, class(n.args[1])))
    };
    s.find(s.arg(0), spec_of).filter_map(inner).collect()
}

/// contract(x * c, y) => contract(x, y) * c
fn scale_operand(s: &Site) -> Vec<Expr> {
    let Some(spec) = spec_of(s.op()) else { return vec![] };
    if !both_vary(s, s.node) {
        return vec![];
    }
    let scaled = s.find(s.arg(0), |op| (*op == Op::Map(ScalarFn::Mul)).then_some(()));
    let outer = |(_, n): ((), &ENode)| {
        let c = holds(s, Condition::Scale, n.args[1]).then(|| s.splat_tensor(n.args[1])).flatten()?;
        let product = op(Op::Contract(spec.clone()), vec![class(n.args[0]), class(s.arg(1))]);
        Some(map(ScalarFn::Mul, vec![product, splat(c, &s.ty().dims)]))
    };
    scaled.filter_map(outer).collect()
}

/// contract(x * w[k], y[k, n]) => contract(x, y * w[k]): a parameter vector along K is multiplied into the weights
fn rows_into_constant(s: &Site) -> Vec<Expr> {
    let Some(spec) = spec_of(s.op()) else { return vec![] };
    if !s.is_constant(s.arg(1)) || s.is_constant(s.arg(0)) {
        return vec![];
    }
    let mut out = vec![];
    for (_, product) in s.find(s.arg(0), |op| (*op == Op::Map(ScalarFn::Mul)).then_some(())) {
        for (at, n) in s.find(product.args[1], |op| if let Op::Broadcast { dims } = op { Some(dims) } else { None }) {
            let summed = |&i: &usize| !spec.result.contains(&spec.left[i]) && spec.right.contains(&spec.left[i]);
            let full = at.iter().zip(s.dims_of(n.args[0])).all(|(&i, d)| s.dims_of(product.args[1])[i] == *d);
            if !s.is_constant(n.args[0]) || at.is_empty() || !full || !at.iter().all(summed) {
                continue;
            }
            let places: Vec<usize> =
                at.iter().filter_map(|&i| spec.right.iter().position(|c| *c == spec.left[i])).collect();
            if let Some(w) = spread(s, n.args[0], &places, s.dims_of(s.arg(1))) {
                let y = map(ScalarFn::Mul, vec![class(s.arg(1)), w]);
                out.push(op(Op::Contract(spec.clone()), vec![class(product.args[0]), y]));
            }
        }
    }
    out
}

/// Broadcasts `v` along dimensions `places` of `dims`, transposing it if `places` is not ascending.
fn spread(s: &Site, v: Id, places: &[usize], dims: &[Dim]) -> Option<Expr> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|&i| places[i]);
    let sorted: Vec<usize> = order.iter().map(|&i| places[i]).collect();
    let turned = if sorted == places { class(v) } else { transpose(class(v), order) };
    (s.dims_of(v).len() == places.len()).then(|| broadcast(turned, sorted, dims))
}

/// contract(x, y[k, n]) * w[n] => contract(x, y * w[n])
fn columns_into_constant(s: &Site) -> Vec<Expr> {
    let mut out = vec![];
    for (spec, n) in s.find(s.arg(0), spec_of).filter(|(_, n)| s.is_constant(n.args[1]) && !s.is_constant(n.args[0])) {
        for (at, w) in s.find(s.arg(1), |op| if let Op::Broadcast { dims } = op { Some(dims) } else { None }) {
            let own = |&i: &usize| spec.right.contains(&spec.result[i]);
            let full = at.iter().zip(s.dims_of(w.args[0])).all(|(&i, d)| s.ty().dims[i] == *d);
            if !s.is_constant(w.args[0]) || at.is_empty() || !full || !at.iter().all(own) {
                continue;
            }
            let places: Vec<usize> =
                at.iter().filter_map(|&i| spec.right.iter().position(|c| *c == spec.result[i])).collect();
            if let Some(w) = spread(s, w.args[0], &places, s.dims_of(n.args[1])) {
                let y = map(ScalarFn::Mul, vec![class(n.args[1]), w]);
                out.push(op(Op::Contract(spec.clone()), vec![class(n.args[0]), y]));
            }
        }
    }
    out
}

/// Inverse of a constant permutation of 0 .. n; `None` if the tensor is no permutation.
fn inverse(t: &Tensor) -> Option<Tensor> {
    let order: Vec<usize> = t.to_vec::<i64>()?.into_iter().map(|i| usize::try_from(i).ok()).collect::<Option<_>>()?;
    let mut back: Vec<i64> = vec![-1; order.len()];
    for (i, &o) in order.iter().enumerate() {
        *back.get_mut(o)? = i as i64;
    }
    (t.rank() == 1 && !back.contains(&-1)).then(|| Tensor::from_vec(vec![order.len()], back))
}

fn gather_axis(op: &Op) -> Option<usize> {
    if let Op::Gather { axis } = op { Some(*axis) } else { None }
}

/// contract(x[:, p], y[k, n]) => contract(x, y[p⁻¹]): the constant is permuted instead
fn permutation_into_constant(s: &Site) -> Vec<Expr> {
    let Some(spec) = spec_of(s.op()) else { return vec![] };
    let moved = |(axis, n): (usize, &ENode)| {
        // Indices that are not a vector would change the number of dimensions that are contracted.
        let back = s.value(n.args[1]).and_then(inverse).filter(|_| s.is_constant(s.arg(1)))?;
        let c = spec.left[axis];
        let at = spec.right.iter().position(|r| *r == c).filter(|_| !spec.result.contains(&c))?;
        let whole = s.dims_of(n.args[0])[axis] == s.dims_of(s.arg(0))[axis];
        let y = op(Op::Gather { axis: at }, vec![class(s.arg(1)), op(Op::Const(back), vec![])]);
        whole.then(|| op(Op::Contract(spec.clone()), vec![class(n.args[0]), y]))
    };
    s.find(s.arg(0), gather_axis).filter_map(moved).collect()
}

/// contract(x, y[k, n])[:, p] => contract(x, y[:, p])
fn gather_result(s: &Site) -> Vec<Expr> {
    let Some(axis) = gather_axis(s.op()) else { return vec![] };
    let moved = |(spec, n): (&ContractSpec, &ENode)| {
        let c = spec.result[axis];
        let at = spec.right.iter().position(|r| *r == c).filter(|_| !spec.left.contains(&c))?;
        let one = s.dims_of(s.arg(1)).len() == 1 && s.is_constant(s.arg(1)) && s.is_constant(n.args[1]);
        let y = op(Op::Gather { axis: at }, vec![class(n.args[1]), class(s.arg(1))]);
        one.then(|| op(Op::Contract(spec.clone()), vec![class(n.args[0]), y]))
    };
    s.find(s.arg(0), spec_of).filter_map(moved).collect()
}

/// contract(contract(x[m, k], y[k, l]), z[l, n]) => contract(x, contract(y, z)): two linear maps become one
fn associate(s: &Site) -> Vec<Expr> {
    let Some(outer) = spec_of(s.op()).filter(|_| s.is_constant(s.arg(1))) else { return vec![] };
    let mut out = vec![];
    for (inner, n) in s.find(s.arg(0), spec_of).filter(|(_, n)| s.is_constant(n.args[1]) && !s.is_constant(n.args[0])) {
        // Renames the inner letters to the outer ones; letters that only the inner contraction has get fresh names.
        let hidden: Vec<char> = inner.left.iter().chain(&inner.right).copied().collect();
        let Some(mut free) = fresh(outer, hidden.len()).map(Vec::into_iter) else { continue };
        let mut names: Vec<(char, char)> = inner.result.iter().copied().zip(outer.left.iter().copied()).collect();
        for c in hidden {
            if !names.iter().any(|(o, _)| *o == c) {
                names.extend(free.next().map(|f| (c, f)));
            }
        }
        let named = |side: &[char]| -> Vec<char> {
            side.iter().filter_map(|c| names.iter().find(|(o, _)| o == c).map(|(_, n)| *n)).collect()
        };
        let (x, y) = (named(&inner.left), named(&inner.right));
        // A letter that x and y share and that the inner contraction keeps is a batch dimension.
        let batch = |c: &char| x.contains(c) && y.contains(c) && outer.left.contains(c);
        let shared: Vec<char> = y.iter().copied().filter(|c| outer.right.contains(c)).collect();
        let summed = |c: &char| outer.left.contains(c) && !outer.result.contains(c);
        let lone = |c: &char| summed(c) && !outer.right.contains(c);
        if x.iter().chain(&y).any(|c| batch(c) || lone(c)) || !shared.iter().all(|c| summed(c) && !x.contains(c)) {
            continue;
        }
        if shared.is_empty() || outer.right.iter().any(|c| x.contains(c)) {
            continue;
        }
        let all = y.iter().chain(&outer.right).copied().filter(|c| !shared.contains(c));
        let kept: Vec<char> = all.collect();
        let product = contract(y.clone(), outer.right.clone(), kept.clone(), class(n.args[1]), class(s.arg(1)));
        out.push(contract(x, kept, outer.result.clone(), class(n.args[0]), product));
    }
    out
}
