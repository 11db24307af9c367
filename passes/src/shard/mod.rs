//! a program for one rank  =>  one that all ranks of a mesh run, each on its part, with collectives between
//!
//! One axis of the mesh after the other. Along each, a value is whole, split or partial ([`split::State`]); each operation
//! says what its result is when its operands are so (`rules.rs`), and where they must be otherwise, a collective or a slice
//! is put between (`redistribute.rs`). The coordinate of a rank is a symbol, so that there is one program for all.

mod algebra;
mod chunks;
mod micro_batches;
mod places;
mod redistribute;
mod rules;
mod seed;
mod split;
mod stages;

pub use algebra::{Signature, follows, signature};
pub use chunks::overlapped;
pub use micro_batches::{batch, collective};
pub use places::{operation_numbers, with_operands_placed};
pub use redistribute::fixed_values;
pub use seed::head_units;
pub use split::{Ranks, Split, State};
pub use stages::{everywhere, is_view, stages_of_values, with_sends};

use crate::placement::Stages;
use crate::remark::Missed;
use crate::rewrite::Rewrites;
use micro_batches::{Turns, in_micro_batches};
use places::with_places;
use redistribute::Local;
pub use redistribute::States;
use sardonyx_base::{Dim, Error, Result};
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::sdx::{Graph, Node, Op, Symbol, SymbolKind, Value};
use stages::check_ranks;

pub fn run(module: Operation, rewrites: &mut Rewrites) -> Result<()> {
    let mesh = rewrites.options().mesh.clone();
    let (places, seeds) = (rewrites.options().places.clone(), rewrites.options().seeds);
    let (pipeline, overlap) = (rewrites.options().stages.clone(), rewrites.options().overlap.clone());
    if let Some(stages) = &pipeline {
        check_ranks(stages, &mesh)?;
    }
    let axis_of_stages = pipeline.as_ref().map(|stages| stages.axis);
    let seeded: Vec<bool> = (0..mesh.len()).map(|axis| seeds && axis_of_stages != Some(axis)).collect();
    let mut states = vec![States::new(); mesh.len()];
    rewrites.graphs(module, |rewrites, graph| {
        // What host operations call runs on every rank as it is.
        if !graph.internal {
            if !places.is_empty() {
                *graph = with_places(graph, &places, rewrites)?;
            }
            if let Some(stages) = &pipeline {
                *graph = piped(graph, stages, rewrites)?;
            }
            let (local, missed) = split_with(graph, &mesh, &seeded, &mut states)?;
            *graph = local;
            missed.into_iter().for_each(|missed| rewrites.missed(missed));
            if let Some(overlap) = &overlap {
                let (cut, missed) = overlapped(graph, overlap)?;
                *graph = cut;
                missed.into_iter().for_each(|missed| rewrites.missed(missed));
            }
        }
        if graph.nodes.iter().any(|n| matches!(n.op, Op::Place(_))) {
            *graph = unplaced(graph)?;
        }
        Ok(())
    })
}

/// The program with sends between stages, one micro-batch after the other.
fn piped(graph: &Graph, stages: &Stages, rewrites: &mut Rewrites) -> Result<Graph> {
    check_no_place(graph, stages.axis)?;
    let stage_of = stages_of_values(graph, &stages.begins)?;
    let (mut piped, mut missed) = with_sends(graph, stages.axis, &stage_of)?;
    if stages.micro_batches > 1 {
        let (cut, more) = in_micro_batches(&piped, stages.micro_batches, Turns::Whole)?;
        piped = cut;
        missed.extend(more);
    }
    missed.into_iter().for_each(|missed| rewrites.missed(missed));
    Ok(piped)
}

/// Errors: E0108 where something has a place along the axis of a pipeline.
fn check_no_place(graph: &Graph, axis: usize) -> Result<()> {
    let placed = |node: &&Node| matches!(&node.op, Op::Place(place) if place.mesh == axis);
    let Some(node) = graph.nodes.iter().find(placed) else { return Ok(()) };
    let message = format!("axis {axis} of the mesh has the stages of a pipeline, and a place");
    let error = Error::user("E0108", message).help("give the place another axis");
    Err(error.node(node.origins.first().map_or("", String::as_str)))
}

/// The program of each rank of a mesh, and what stays on every rank. Without `seeds` what nobody has placed is not split.
pub fn split(graph: &Graph, mesh: &[i64], seeds: bool, states: &mut [States]) -> Result<(Graph, Vec<Missed>)> {
    split_with(graph, mesh, &vec![seeds; mesh.len()], states)
}

/// The same, where that is said for each axis.
pub fn split_with(graph: &Graph, mesh: &[i64], seeds: &[bool], states: &mut [States]) -> Result<(Graph, Vec<Missed>)> {
    let (mut local, mut missed) = (graph.clone(), vec![]);
    for (axis, ((&size, states), &seeds)) in mesh.iter().zip(states).zip(seeds).enumerate() {
        let (next, more) = split_along(&local, (axis, size), seeds, states)?;
        local = next;
        missed.extend(more);
    }
    Ok((local, missed))
}

/// The program of each rank along an axis of so many.
fn split_along(
    graph: &Graph,
    (axis, size): (usize, i64),
    seeds: bool,
    states: &mut States,
) -> Result<(Graph, Vec<Missed>)> {
    let name = coordinate(graph, axis);
    let ranks = Ranks { axis, size, coordinate: Dim::symbol(&name) };
    let mut local = Local::new(graph, ranks, states);
    local.seeds = seeds;
    for (v, _) in graph.values() {
        local.place(v)?;
    }
    let missed = local.finish()?;
    let mut out = local.into_graph();
    out.symbols.insert(name, Symbol { kind: SymbolKind::Rank { axis }, lo: 0, hi: Some(size - 1) });
    Ok((out, missed))
}

/// Without places along axes that the mesh has not.
fn unplaced(graph: &Graph) -> Result<Graph> {
    let mut out = Graph { nodes: vec![], outputs: vec![], ..graph.clone() };
    let mut now: Vec<Value> = vec![];
    for node in &graph.nodes {
        let args: Vec<Value> = node.args.iter().map(|a| now[a.index()]).collect();
        now.push(match &node.op {
            Op::Place(_) => args[0],
            _ => out.push(Node { args, ..node.clone() }),
        });
    }
    out.outputs = graph.outputs.iter().map(|(name, v)| (name.clone(), now[v.index()])).collect();
    Ok(out)
}

/// A name that the model does not use.
fn coordinate(graph: &Graph, axis: usize) -> String {
    let free = |n: &usize| !graph.symbols.contains_key(&name(axis, *n));
    fn name(axis: usize, n: usize) -> String {
        format!("rank{axis}{}", "_".repeat(n))
    }
    (0..).find(free).map(|n| name(axis, n)).unwrap_or_default()
}
