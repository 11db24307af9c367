//! x + select(mask, 0, −∞) => select(mask, x, −∞),  keys repeated per group => queries in groups: forms of attention

use super::contraction::spec_of;
use super::expr::{Expr, Site, class, map, op, reshape, scalar, splat};
use super::language::ENode;
use super::motion::merged_groups;
use super::rule::Class::{Exact, FiniteOnly};
use super::rule::{Rule, code, rule};
use super::table::{LETTERS, letter};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{ContractSpec, Op};
use sardonyx_runtime::{DType, Dim};

pub static RULES: &[Rule] = &[
    rule("mask-by-choice", FiniteOnly, "(add ?x (select ?m 0 -inf)) <=> (select ?m ?x -inf)"),
    rule("mask-by-opposite", FiniteOnly, "(add ?x (select ?m -inf 0)) <=> (select ?m -inf ?x)"),
    rule("mask-of-mask", Exact, "(select ?a (select ?b ?x ?y) ?y) => (select (and ?a ?b) ?x ?y)"),
    rule("choice-of-and", Exact, "(and ?a (not ?a)) => 0"),
    code("choice-of-truth", Exact, "(convert ?x)", choice_of_truth),
    code("grouped-heads", Exact, "(contract ?x (reshape (broadcast ?y)))", grouped_heads),
];

/// convert(mask) to numbers => select(mask, 1, 0)
fn choice_of_truth(s: &Site) -> Vec<Expr> {
    let to = s.ty();
    if s.ty_of(s.arg(0)).dtype != DType::Bool || to.dtype == DType::Bool {
        return vec![];
    }
    let number = |v| scalar(to.dtype, v).map(|t| splat(t, &to.dims));
    match (number(1.0), number(0.0)) {
        (Some(one), Some(zero)) => vec![map(ScalarFn::Select, vec![class(s.arg(0)), one, zero])],
        _ => vec![],
    }
}

/// q[b,h,s,d] · reshape(broadcast(k[b,g,t,d], [b,g,r,t,d]), [b,g*r,t,d]) => q in groups [b,g,r,s,d] · the broadcast
fn grouped_heads(s: &Site) -> Vec<Expr> {
    let Some(spec) = spec_of(s.op()) else { return vec![] };
    let mut out = vec![];
    for (_, merged) in s.find(s.arg(1), |op| (*op == Op::Reshape).then_some(())) {
        let whole = merged.args[0];
        let repeats = |op: &Op| matches!(op, Op::Broadcast { .. }).then_some(());
        let dims = s.dims_of(whole);
        let Some(groups) = merged_groups(dims, s.dims_of(s.arg(1))) else { continue };
        if s.find(whole, repeats).next().is_none() {
            continue;
        }
        out.extend(in_groups(s, spec, merged, &groups.iter().map(|g| dims[g.clone()].to_vec()).collect::<Vec<_>>()));
    }
    out
}

fn in_groups(s: &Site, spec: &ContractSpec, merged: &ENode, parts: &[Vec<Dim>]) -> Option<Expr> {
    let used = |c: &char| spec.left.contains(c) || spec.right.contains(c);
    let mut free = (0..LETTERS).filter_map(letter).filter(|c| !used(c));
    let mut with: Vec<(char, Vec<char>, &Vec<Dim>)> = vec![];
    for (&c, part) in spec.right.iter().zip(parts).filter(|(_, p)| p.len() != 1) {
        let letters: Vec<char> = free.by_ref().take(part.len()).collect();
        (letters.len() == part.len()).then(|| with.push((c, letters, part)))?;
    }
    let find = |c: &char| with.iter().find(|(o, ..)| o == c);
    let letters = |side: &[char]| -> Vec<char> {
        side.iter().flat_map(|c| find(c).map_or(vec![*c], |(_, l, _)| l.clone())).collect()
    };
    let split = |side: &[char], dims: &[Dim]| -> Vec<Dim> {
        side.iter().zip(dims).flat_map(|(c, d)| find(c).map_or(vec![d.clone()], |(.., p)| (*p).clone())).collect()
    };
    if with.is_empty() {
        return None;
    }
    let x = reshape(class(s.arg(0)), &split(&spec.left, s.dims_of(s.arg(0))));
    let new = ContractSpec { left: letters(&spec.left), right: letters(&spec.right), result: letters(&spec.result) };
    let product = op(Op::Contract(new), vec![x, class(merged.args[0])]);
    Some(reshape(product, &s.ty().dims))
}
