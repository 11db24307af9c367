//! x * sigmoid(x), 0.5 x (1 + tanh(z)), relu: rules that give each activation one spelling

use super::rule::{Rule, rule};
use crate::class::Class::{Exact, FiniteOnly, Reassociating};

pub static RULES: &[Rule] = &[
    // Odd and even functions.
    rule("cos-even", Reassociating, "(cos (neg ?x)) => (cos ?x)"),
    rule("erf-odd", Reassociating, "(erf (neg ?x)) => (neg (erf ?x))"),
    rule("sin-odd", Reassociating, "(sin (neg ?x)) => (neg (sin ?x))"),
    rule("tanh-odd", Reassociating, "(tanh (neg ?x)) => (neg (tanh ?x))"),
    // ½ x (1 + tanh z) = x / (1 + exp(−2z)), in GELU's tanh variant; near tanh = −1 the right side is more accurate.
    rule("gate-of-tanh", Reassociating, "(mul (mul ?x (add (tanh ?z) 1)) 0.5) => (div ?x (add (exp (mul ?z -2)) 1))"),
    rule("sigmoid-of-tanh", Reassociating, "(mul (add (tanh ?z) 1) 0.5) => (div 1 (add (exp (mul ?z -2)) 1))"),
    rule("sigmoid-of-exp", FiniteOnly, "(div (exp ?x) (add (exp ?x) 1)) => (div 1 (add (exp (neg ?x)) 1))"),
    rule("exp-product", Reassociating, "(mul (exp ?x) (exp ?y)) => (exp (add ?x ?y))"),
    // Selects that are a maximum or minimum, such as relu.
    rule("relu-of-choice", FiniteOnly, "(select (lt 0 ?x) ?x 0) => (max ?x 0)"),
    rule("max-of-choice", FiniteOnly, "(select (lt ?a ?b) ?b ?a) => (max ?a ?b)"),
    rule("min-of-choice", FiniteOnly, "(select (lt ?a ?b) ?a ?b) => (min ?a ?b)"),
    rule("max-of-choice-integer", Exact, "(select (lt ?a ?b) ?b ?a) => (max ?a ?b) if integer ?a"),
    rule("min-of-choice-integer", Exact, "(select (lt ?a ?b) ?a ?b) => (min ?a ?b) if integer ?a"),
    rule("relu-twice", Exact, "(max (max ?x ?y) ?y) => (max ?x ?y)"),
];
