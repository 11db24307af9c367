//! Every rule of every table holds and applies somewhere

use super::harness::check_all;
use crate::egraph::*;

#[test]
fn activation_holds() {
    check_all(activation::RULES);
}

#[test]
fn algebra_holds() {
    check_all(algebra::RULES);
}

#[test]
fn attention_holds() {
    check_all(attention::RULES);
}

#[test]
fn contraction_holds() {
    check_all(contraction::RULES);
}

#[test]
fn embedding_holds() {
    check_all(embedding::RULES);
}

#[test]
fn merging_holds() {
    check_all(merging::RULES);
}

#[test]
fn motion_holds() {
    check_all(motion::RULES);
}

#[test]
fn normalisation_holds() {
    check_all(normalisation::RULES);
}

#[test]
fn quantisation_holds() {
    check_all(quantisation::RULES);
}

#[test]
fn rotary_holds() {
    check_all(rotary::RULES);
}

#[test]
fn names_are_distinct_and_every_topic_is_tested() {
    let mut names: Vec<&str> = TOPICS.iter().flat_map(|t| t.iter().map(|r| r.name)).collect();
    names.sort();
    assert!(names.windows(2).all(|w| w[0] != w[1]), "{names:?}");
    assert_eq!(TOPICS.len(), include_str!("rules.rs").matches("check_all(").count() - 1);
}
