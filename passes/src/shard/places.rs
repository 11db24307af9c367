//! placements of operands from a plan  =>  the program with these placements
//!
//! A plan identifies an operand by the ONNX node, the index of the operation among those that implement the node, and
//! the operand's number. This is stable because the program before splitting does not depend on how it will be split.

use crate::placement::OperandPlace;
use crate::remark::Missed;
use sardonyx_base::{Error, Result};
use sardonyx_dialects::sdx::{Graph, Node, Op, Value};
use std::collections::{BTreeMap, HashMap};

/// Returns the index of each operation among those of its ONNX node.
pub fn operation_numbers(graph: &Graph) -> Vec<usize> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut numbers = vec![];
    for node in &graph.nodes {
        let count = counts.entry(node.origins.first().map_or("", String::as_str)).or_default();
        numbers.push(*count);
        *count += 1;
    }
    numbers
}

/// Returns the program with all placements that fit it, and the placements that do not.
fn placed<'p>(graph: &Graph, places: &'p [OperandPlace]) -> (Graph, Vec<&'p OperandPlace>) {
    let numbers = operation_numbers(graph);
    let mut by_op: BTreeMap<(&str, usize), Vec<usize>> = BTreeMap::new();
    for (i, place) in places.iter().enumerate() {
        by_op.entry((&place.node, place.op)).or_default().push(i);
    }
    // An operand placed along several axes of the mesh is placed along the first axis first.
    by_op.values_mut().for_each(|mine| mine.sort_by_key(|i| places[*i].place.mesh));
    let mut out = Graph { nodes: vec![], outputs: vec![], ..graph.clone() };
    let mut now: Vec<Value> = vec![];
    let mut used = vec![false; places.len()];
    for (node, number) in graph.nodes.iter().zip(numbers) {
        let mut args: Vec<Value> = node.args.iter().map(|a| now[a.index()]).collect();
        let mine = node.origins.first().and_then(|name| by_op.get(&(name.as_str(), number)));
        for &i in mine.into_iter().flatten() {
            let OperandPlace { operand, place, .. } = &places[i];
            let Some(arg) = args.get_mut(*operand) else { continue };
            let ty = out.ty(*arg).clone();
            if place.split.as_ref().is_some_and(|(dim, _, _)| *dim >= ty.rank()) {
                continue;
            }
            used[i] = true;
            let (op, origins) = (Op::Place(Box::new(place.clone())), node.origins.clone());
            *arg = out.push(Node { op, args: vec![*arg], ty, origins });
        }
        now.push(out.push(Node { args, ..node.clone() }));
    }
    out.outputs = graph.outputs.iter().map(|(name, v)| (name.clone(), now[v.index()])).collect();
    let unused = places.iter().zip(used).filter(|(_, used)| !used).map(|(place, _)| place).collect();
    (out, unused)
}

/// Returns the program with these placements. Errors: E0108 if one names an operand or dimension that does not exist.
pub fn with_operands_placed(graph: &Graph, places: &[OperandPlace]) -> Result<Graph> {
    let (out, unused) = placed(graph, places);
    match unused.first() {
        None => Ok(out),
        Some(place) => Err(Error::user("E0108", place.absence())
            .node(&place.node)
            .help("the plan is of another model, or of another version: make it again with `sardonyx plan`")),
    }
}

/// As [`with_operands_placed`], for an entry point. Placements that do not fit an entry point other than `main` are not
/// errors, but are added to `missed`.
pub fn with_places(graph: &Graph, places: &[OperandPlace], missed: &mut Vec<Missed>) -> Result<Graph> {
    if graph.name == "main" {
        return with_operands_placed(graph, places);
    }
    let (out, unused) = placed(graph, places);
    for place in unused {
        let other = Missed::because("the plan is not of this entry point", &place.absence());
        missed.push(Missed { node: Some(place.node.clone()), ..other });
    }
    Ok(out)
}
