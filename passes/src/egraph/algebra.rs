//! x * 1 => x,  (x * c) * d => x * (c * d),  not(not(x)) => x: identities of scalar functions

use super::expr::{Expr, Site, class, map};
use super::rule::{Rule, code, rule};
use crate::class::Class::{Exact, FiniteOnly, Reassociating};
use sardonyx_base::DType;
use sardonyx_dialects::scalar::ScalarFn;

pub static RULES: &[Rule] = &[
    // Order of operands.
    rule("add-commutes", Exact, "(add ?a ?b) => (add ?b ?a)"),
    rule("and-commutes", Exact, "(and ?a ?b) => (and ?b ?a)"),
    rule("eq-commutes", Exact, "(eq ?a ?b) => (eq ?b ?a)"),
    rule("max-commutes", Exact, "(max ?a ?b) => (max ?b ?a)"),
    rule("min-commutes", Exact, "(min ?a ?b) => (min ?b ?a)"),
    rule("mul-commutes", Exact, "(mul ?a ?b) => (mul ?b ?a)"),
    rule("or-commutes", Exact, "(or ?a ?b) => (or ?b ?a)"),
    // Neutral and absorbing operands.
    rule("add-minus-zero", Exact, "(add ?x -0) => ?x"),
    rule("add-zero", Reassociating, "(add ?x 0) => ?x"),
    rule("add-zero-integer", Exact, "(add ?x 0) => ?x if integer ?x"),
    rule("div-one", Exact, "(div ?x 1) => ?x"),
    rule("mul-minus-one", Exact, "(mul ?x -1) => (neg ?x)"),
    rule("mul-one", Exact, "(mul ?x 1) => ?x"),
    rule("mul-zero", FiniteOnly, "(mul ?x 0) => 0"),
    rule("mul-zero-integer", Exact, "(mul ?x 0) => 0 if integer ?x"),
    rule("sub-self", FiniteOnly, "(sub ?x ?x) => 0"),
    rule("sub-zero", Exact, "(sub ?x 0) => ?x"),
    // Signs.
    rule("abs-abs", Exact, "(abs (abs ?x)) => (abs ?x)"),
    rule("abs-neg", Exact, "(abs (neg ?x)) => (abs ?x) if float ?x"),
    rule("abs-non-negative", Reassociating, "(abs ?x) => ?x if non-negative ?x"),
    rule("add-neg", Exact, "(add ?a (neg ?b)) => (sub ?a ?b)"),
    rule("div-neg", Exact, "(div (neg ?a) ?b) => (neg (div ?a ?b)) if float ?a"),
    rule("mul-neg", Exact, "(mul (neg ?a) ?b) <=> (neg (mul ?a ?b))"),
    rule("neg-neg", Exact, "(neg (neg ?x)) => ?x"),
    rule("neg-sub", Reassociating, "(neg (sub ?a ?b)) => (sub ?b ?a)"),
    rule("square-abs", Exact, "(mul (abs ?x) (abs ?x)) => (mul ?x ?x)"),
    rule("sub-neg", Exact, "(sub ?a (neg ?b)) => (add ?a ?b)"),
    // Powers and roots.
    rule("pow-half", Reassociating, "(pow ?x 0.5) => (sqrt ?x) if non-negative ?x"),
    rule("pow-minus-half", Reassociating, "(pow ?x -0.5) => (div 1 (sqrt ?x)) if non-negative ?x"),
    rule("pow-minus-one", Reassociating, "(pow ?x -1) => (div 1 ?x) if float ?x"),
    rule("pow-one", Exact, "(pow ?x 1) => ?x"),
    rule("pow-three", Reassociating, "(pow ?x 3) => (mul (mul ?x ?x) ?x)"),
    rule("pow-two", Reassociating, "(pow ?x 2) => (mul ?x ?x)"),
    rule("pow-zero", Exact, "(pow ?x 0) => 1"),
    rule("sqrt-square", Reassociating, "(sqrt (mul ?x ?x)) => (abs ?x)"),
    // Constants are combined, and moved outwards.
    rule(
        "add-constants",
        Reassociating,
        "(add (add ?x ?c) ?d) => (add ?x (add ?c ?d)) if splat ?c, splat ?d, finite ?c, finite ?d",
    ),
    rule("div-by-constant", Reassociating, "(div ?x ?c) => (mul ?x (div 1 ?c)) if scale ?c, float ?c, unrounded ?x"),
    rule("div-by-power-of-two", Exact, "(div ?x ?c) => (mul ?x (div 1 ?c)) if power-of-two ?c"),
    rule("max-constants", Exact, "(max (max ?x ?c) ?d) => (max ?x (max ?c ?d)) if splat ?c, splat ?d"),
    rule("min-constants", Exact, "(min (min ?x ?c) ?d) => (min ?x (min ?c ?d)) if splat ?c, splat ?d"),
    rule(
        "mul-constants",
        Reassociating,
        "(mul (mul ?x ?c) ?d) => (mul ?x (mul ?c ?d)) if scale ?c, scale ?d, unrounded ?x",
    ),
    rule("scale-of-factor", Reassociating, "(mul (mul ?x ?c) ?y) => (mul (mul ?x ?y) ?c) if scale ?c, unrounded ?x"),
    rule(
        "scale-of-quotient",
        Reassociating,
        "(div (mul ?x ?c) ?y) => (mul (div ?x ?y) ?c) if scale ?c, float ?c, unrounded ?x",
    ),
    // Reciprocals.
    rule("mul-reciprocal", Reassociating, "(mul ?x (div 1 ?y)) => (div ?x ?y) if float ?x"),
    rule("reciprocal-twice", Reassociating, "(div 1 (div 1 ?x)) => ?x if float ?x"),
    // Truth values.
    rule("and-false", Exact, "(and ?x 0) => 0"),
    rule("and-self", Exact, "(and ?x ?x) => ?x"),
    rule("and-true", Exact, "(and ?x 1) => ?x"),
    rule("max-self", Exact, "(max ?x ?x) => ?x"),
    rule("min-self", Exact, "(min ?x ?x) => ?x"),
    rule("not-not", Exact, "(not (not ?x)) => ?x"),
    rule("or-false", Exact, "(or ?x 0) => ?x"),
    rule("or-self", Exact, "(or ?x ?x) => ?x"),
    rule("or-true", Exact, "(or ?x 1) => 1"),
    rule("select-false", Exact, "(select 0 ?a ?b) => ?b"),
    rule("select-not", Exact, "(select (not ?c) ?a ?b) => (select ?c ?b ?a)"),
    rule("select-same", Exact, "(select ?c ?a ?a) => ?a"),
    rule("select-true", Exact, "(select 1 ?a ?b) => ?a"),
    rule("select-twice", Exact, "(select ?c (select ?c ?a ?b) ?d) => (select ?c ?a ?d)"),
    code("select-truth", Exact, "(select ?c 1 0)", select_truth),
    code("map-of-choice", Exact, "(map (select ?c splat splat) splat)", map_of_choice),
];

/// select(c, true, false) => c
fn select_truth(s: &Site) -> Vec<Expr> {
    let bits = |i: usize| s.splat(s.arg(i));
    let truth = s.ty().dtype == DType::Bool && bits(1) == Some(1.0) && bits(2) == Some(0.0);
    if truth { vec![class(s.arg(0))] } else { vec![] }
}

/// f(select(c, a, b), d) => select(c, f(a, d), f(b, d)), where a, b and d are splats, so that both calls of f fold.
fn map_of_choice(s: &Site) -> Vec<Expr> {
    let sardonyx_dialects::sdx::Op::Map(f) = s.op() else { return vec![] };
    if *f == ScalarFn::Select {
        return vec![];
    }
    let mut out = vec![];
    for (i, &arg) in s.node.args.iter().enumerate() {
        let others = s.node.args.iter().enumerate().all(|(j, &a)| j == i || s.splat(a).is_some());
        let choices = s.find(arg, |op| (*op == sardonyx_dialects::sdx::Op::Map(ScalarFn::Select)).then_some(()));
        for (_, choice) in choices.filter(|_| others) {
            let [c, a, b] = choice.args[..] else { continue };
            if s.splat(a).is_none() || s.splat(b).is_none() {
                continue;
            }
            let with = |x| {
                let args = s.node.args.iter().enumerate().map(|(j, &o)| class(if j == i { x } else { o }));
                map(*f, args.collect())
            };
            out.push(map(ScalarFn::Select, vec![class(c), with(a), with(b)]));
        }
    }
    out
}
