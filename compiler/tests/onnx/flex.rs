//! FlexAttention's functions: their nodes stand between its two products, and their names are their own

use crate::build::*;
use sardonyx::compile::lower_model;
use sardonyx::onnx::proto::*;
use std::collections::BTreeMap;

fn flex(name: &str, inputs: &str, output: &str, functions: &[(&str, GraphProto)]) -> NodeProto {
    let plain = NodeProto { domain: "ai.onnx.preview".into(), ..named(name, node("FlexAttention", inputs, output)) };
    functions.iter().fold(plain, |node, (name, f)| with(node, graph_attribute(name, f.clone())))
}

/// The operators of the imported model, in order.
fn imported(nodes: Vec<NodeProto>) -> sardonyx_runtime::Result<Vec<String>> {
    let mut proto = model(graph("q k v", "y", nodes));
    proto.opset_import.push(OperatorSetIdProto { domain: "ai.onnx.preview".into(), version: 1 });
    let context = sardonyx_passes::context();
    let (module, _) = lower_model(&context, &read(&proto)?, &BTreeMap::new())?;
    let text = module.as_operation().to_string();
    let quoted = |line: &str| Some(line.split_once("onnx.node \"")?.1.split_once('"')?.0.to_string());
    Ok(text.lines().filter_map(quoted).collect())
}

#[test]
fn functions_are_imported_between_the_products() {
    // Both call their value `x` and one of theirs `q`, which is an input outside; the second uses the outer `k`.
    let score = graph("x", "q", vec![node("Neg", "x", "q")]);
    let weight = graph("x", "z", vec![node("Mul", "x k", "q"), node("Exp", "q", "z")]);
    let both = flex("flex", "q k v", "t", &[("score_mod", score.clone()), ("prob_mod", weight)]);
    let plain = flex("plain", "q k t", "y", &[]);
    assert_eq!(
        imported(vec![both, plain]).unwrap(),
        ["FlexAttention", "Neg", "Softmax", "Mul", "Exp", "FlexAttention", "FlexAttention"]
    );
    assert_eq!(
        imported(vec![flex("flex", "q k v", "y", &[("score_mod", score)])]).unwrap(),
        ["FlexAttention", "Neg", "Softmax", "FlexAttention"]
    );
}

#[test]
fn a_function_has_one_value_and_one_result() {
    let two = graph("x z", "r", vec![node("Add", "x z", "r")]);
    let e = imported(vec![flex("flex", "q k v", "y", &[("score_mod", two)])]).unwrap_err();
    assert_eq!((e.code, e.message.as_str()), ("E0106", "`score_mod` is not a function of one value with one result"));
    let one = graph("x", "r", vec![node("Neg", "x", "r")]);
    let e = imported(vec![flex("flex", "q k", "y", &[("prob_mod", one)])]).unwrap_err();
    assert_eq!((e.code, e.message.as_str()), ("E0103", "FlexAttention takes three inputs"));
}
