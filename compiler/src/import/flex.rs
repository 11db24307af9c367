//! FlexAttention {score_mod = f, prob_mod = g}  =>  w = Softmax(f(scores)); values(g(w))
//!
//! The functions have no results but their own and no call of their own: their nodes stand between the operator's two
//! products, where every pass sees them.

use super::Importer;
use crate::onnx::{Attribute, Graph, Node};
use sardonyx_dialects::mlir::{Block, Val};
use sardonyx_runtime::{Error, Result};
use std::collections::BTreeMap;

pub(super) fn has_functions(node: &Node) -> bool {
    (node.domain.as_str(), node.op_type.as_str()) == ("ai.onnx.preview", "FlexAttention")
        && node.subgraphs().next().is_some()
}

/// The opset whose softmax is over one axis.
const SOFTMAX_OPSET: i64 = 13;

pub(super) fn import(importer: &mut Importer, body: Block, node: &Node) -> Result<()> {
    let part = |op_type: &str, domain: &str, opset: i64, more: &[(&str, Attribute)]| {
        let plain = node.attributes.iter().filter(|(_, a)| a.graphs().is_empty());
        let own: BTreeMap<String, Attribute> = plain.map(|(k, a)| (k.clone(), a.clone())).collect();
        let mut attributes = if domain.is_empty() { BTreeMap::new() } else { own };
        attributes.extend(more.iter().map(|(name, a)| (name.to_string(), a.clone())));
        let (op_type, domain) = (op_type.to_string(), domain.to_string());
        Node { name: node.name.clone(), op_type, domain, inputs: vec![], outputs: vec![], attributes, opset }
    };
    let flex = |which: &str| {
        part(&node.op_type, &node.domain, node.opset, &[("part", Attribute::String(which.as_bytes().to_vec()))])
    };
    let operands = importer.operands(body, node)?;
    let &[q, k, v] = operands.as_slice() else {
        return Err(Error::user("E0103", format!("{} takes three inputs", node.op_type)));
    };
    let scores = importer.emit(body, &flex("scores"), &[q, k], 1)?[0];
    let scores = apply(importer, body, node, "score_mod", scores)?;
    let softmax = part("Softmax", "", SOFTMAX_OPSET, &[("axis", Attribute::Int(-1))]);
    let weights = importer.emit(body, &softmax, &[scores], 1)?[0];
    let weights = apply(importer, body, node, "prob_mod", weights)?;
    let y = importer.emit(body, &flex("values"), &[weights, v], 1)?[0];
    if let Some(name) = node.output(0) {
        importer.values.insert(name.to_string(), y);
    }
    Ok(())
}

/// The named function of one value, or the value where there is none.
fn apply(importer: &mut Importer, body: Block, node: &Node, name: &str, x: Val) -> Result<Val> {
    let Some(graph) = node.graph(name)? else { return Ok(x) };
    let ([input], [output]) = (graph.inputs.as_slice(), graph.outputs.as_slice()) else {
        return Err(Error::user("E0106", format!("`{name}` is not a function of one value with one result")));
    };
    // What the function defines hides names of the graph around it only inside.
    let hidden: Vec<(String, Option<Val>)> =
        defined(graph).map(|n| (n.to_string(), importer.values.get(n).copied())).collect();
    importer.values.insert(input.name.clone(), x);
    for initializer in &graph.initializers {
        importer.initializer(body, &initializer.name, &initializer.data)?;
    }
    for inner in &graph.nodes {
        importer.node(body, inner).map_err(|e| e.node(&inner.name))?;
    }
    let y = importer.value(&output.name)?;
    for (name, before) in hidden.into_iter().rev() {
        match before {
            Some(v) => drop(importer.values.insert(name, v)),
            None => drop(importer.values.remove(&name)),
        }
    }
    Ok(y)
}

fn defined(graph: &Graph) -> impl Iterator<Item = &str> {
    let inputs = graph.inputs.iter().map(|v| v.name.as_str());
    let initializers = graph.initializers.iter().map(|i| i.name.as_str());
    inputs.chain(initializers).chain(graph.nodes.iter().flat_map(|n| n.outputs.iter().flatten().map(String::as_str)))
}
