//! x · a, x · b, x · c => slices of x · concat(a, b, c): linear maps of one input become one

use super::contraction::spec_of;
use super::expr::{Expr, Site, class, op, slice_axis};
use super::rule::Class::Exact;
use super::rule::{Rule, code};
use egg::Id;
use sardonyx_dialects::sdx::{ContractSpec, Op};
use sardonyx_runtime::Dim;

pub static RULES: &[Rule] =
    &[code("merge-linears", Exact, "contract in (concat (contract#1 ?x param) (contract#1 ?x param))", merge_linears)];

fn merge_linears(s: &Site) -> Vec<Expr> {
    let Some(spec) = spec_of(s.op()).filter(|_| s.is_constant(s.arg(1)) && !s.is_constant(s.arg(0))) else {
        return vec![];
    };
    let Some(free) = free_letter(spec) else { return vec![] };
    let (axis, place) = free;
    let weights = siblings(s, spec, axis);
    let Some(own) = weights.iter().position(|w| s.same(*w, s.arg(1))).filter(|_| weights.len() > 1) else {
        return vec![];
    };
    let extent = |w: &Id| s.dims_of(*w)[axis].clone();
    let start = weights[..own].iter().map(extent).fold(Dim::constant(0), |sum, d| sum + d);
    let whole = weights.iter().map(extent).fold(Dim::constant(0), |sum, d| sum + d);
    let packed = op(Op::Concat { axis }, weights.iter().map(|w| class(*w)).collect());
    let product = op(Op::Contract(spec.clone()), vec![class(s.arg(0)), packed]);
    let mut dims = s.ty().dims.clone();
    dims[place] = whole;
    vec![slice_axis(product, &dims, place, start, extent(&s.arg(1)))]
}

/// The one letter that only the weights have: its place among their dimensions and in the result.
fn free_letter(spec: &ContractSpec) -> Option<(usize, usize)> {
    let mut own = spec.right.iter().enumerate().filter(|(_, c)| !spec.left.contains(c));
    let (axis, c) = own.next()?;
    let place = spec.result.iter().position(|r| r == c)?;
    own.next().is_none().then_some((axis, place))
}

/// The constants that the same input is contracted with in the same way, this site's among them, in order.
fn siblings(s: &Site, spec: &ContractSpec, axis: usize) -> Vec<Id> {
    let mut out: Vec<Id> = vec![];
    let own = s.dims_of(s.arg(1));
    let fits = |dims: &[Dim]| dims.iter().zip(own).enumerate().all(|(i, (a, b))| i == axis || a == b);
    for user in s.users(s.arg(0)) {
        for (_, n) in s.find(user, |op| spec_of(op).filter(|o| *o == spec)) {
            let w = s.egraph.find(n.args[1]);
            // What was packed, or cut from a pack, is no further part of one.
            let made = |op: &Op| matches!(op, Op::Concat { .. } | Op::Slice { .. }).then_some(());
            let fresh = s.find(w, made).next().is_none();
            if s.same(n.args[0], s.arg(0)) && s.is_constant(w) && fresh && fits(s.dims_of(w)) && !out.contains(&w) {
                out.push(w);
            }
        }
    }
    out.sort();
    out
}
