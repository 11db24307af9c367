//! x + select(mask, 0, −∞) => select(mask, x, −∞),  convert(mask) => select(mask, 1, 0): variants of attention masks

use super::expr::{Expr, Site, class, map, scalar, splat};
use super::rule::{Rule, code, rule};
use crate::class::Class::{Exact, FiniteOnly};
use sardonyx_base::DType;
use sardonyx_dialects::scalar::ScalarFn;

pub static RULES: &[Rule] = &[
    rule("mask-by-choice", FiniteOnly, "(add ?x (select ?m 0 -inf)) <=> (select ?m ?x -inf)"),
    rule("mask-by-opposite", FiniteOnly, "(add ?x (select ?m -inf 0)) <=> (select ?m -inf ?x)"),
    rule("mask-of-mask", Exact, "(select ?a (select ?b ?x ?y) ?y) => (select (and ?a ?b) ?x ?y)"),
    rule("choice-of-and", Exact, "(and ?a (not ?a)) => 0"),
    code("choice-of-truth", Exact, "(convert ?x)", choice_of_truth),
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
