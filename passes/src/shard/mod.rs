//! a program for one rank  =>  one program that every rank of a mesh runs on its part of the values, with collectives
//!
//! The axes of the mesh are processed one after the other. Along each, a value is whole, split or partial
//! ([`split::State`]). Each operation determines its result's state from those of its operands (`rules.rs`); where an
//! operation needs another state, a collective or a slice is inserted (`redistribute.rs`). The coordinate of a rank is
//! a symbol, so that there is a single program.

mod algebra;
mod buckets;
mod chunks;
mod halo;
mod micro_batches;
mod places;
mod redistribute;
mod rules;
mod seed;
mod split;
mod stages;

pub use algebra::{Signature, follows, signature};
pub use buckets::joined;
pub use chunks::overlapped;
pub use micro_batches::{batch, collective};
pub use places::{operation_numbers, with_operands_placed};
pub use redistribute::fixed_values;
pub use seed::head_units;
pub use split::{Ranks, Split, State};
pub use stages::{check_ranks, everywhere, is_view, stages_of_values, with_sends};

use crate::options::Options;
use crate::placement::Stages;
use crate::remark::Missed;
use crate::rewrite::Rewrites;
use micro_batches::{Turns, in_micro_batches};
use places::with_places;
use redistribute::Local;
pub use redistribute::States;
use sardonyx_base::{Dim, Error, Result};
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::sdx::{Graph, Node, Op, Symbol, SymbolKind, Value};

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    let options = rewrites.options().clone();
    if let Some(stages) = &options.stages {
        check_ranks(stages, &options.mesh)?;
    }
    let mut states = vec![States::new(); options.mesh.len()];
    rewrites.graphs(module, |rewrites, graph| {
        let missed;
        (*graph, missed) = sharded(graph, &options, &mut states)?;
        missed.into_iter().for_each(|missed| rewrites.missed(missed));
        Ok(())
    })
}

/// Returns the program that all ranks of the mesh run under the options, and remarks on what is not distributed.
pub fn sharded(graph: &Graph, options: &Options, states: &mut [States]) -> Result<(Graph, Vec<Missed>)> {
    let (mut graph, mut missed) = (graph.clone(), vec![]);
    // Functions called by host operations run on every rank unchanged.
    if !graph.internal {
        let axis_of_stages = options.stages.as_ref().map(|stages| stages.axis);
        let along = (0..options.mesh.len()).map(|axis| Along {
            seeds: options.seeds && axis_of_stages != Some(axis),
            gathers: options.gathered_weights == Some(axis),
        });
        if let Some(axis) = options.gathered_weights {
            check_axis_of_weights(axis, options)?;
        }
        if !options.places.is_empty() {
            graph = with_places(&graph, &options.places, &mut missed)?;
        }
        if let Some(stages) = &options.stages {
            graph = piped(&graph, stages, &mut missed)?;
        }
        let (local, more) = split(&graph, &options.mesh, &along.collect::<Vec<Along>>(), states)?;
        // With chunks or micro-batches, all-reduces are not joined, because those of different parts must not wait for
        // each other.
        let parts = options.stages.is_some() || options.overlap.is_some();
        graph = if parts { local } else { joined(&local)? };
        missed.extend(more);
        if let Some(overlap) = &options.overlap {
            let (cut, more) = overlapped(&graph, overlap)?;
            graph = cut;
            missed.extend(more);
        }
    }
    if graph.nodes.iter().any(|n| matches!(n.op, Op::Place(_))) {
        graph = unplaced(&graph)?;
    }
    Ok((graph, missed))
}

/// Returns the program with sends between the stages of a pipeline, executed for one micro-batch after the other.
fn piped(graph: &Graph, stages: &Stages, missed: &mut Vec<Missed>) -> Result<Graph> {
    check_no_place(graph, stages.axis)?;
    let stage_of = stages_of_values(graph, &stages.begins)?;
    let (mut piped, more) = with_sends(graph, stages.axis, &stage_of)?;
    missed.extend(more);
    if stages.micro_batches > 1 {
        let (cut, more) = in_micro_batches(&piped, stages.micro_batches, Turns::Whole)?;
        piped = cut;
        missed.extend(more);
    }
    Ok(piped)
}

/// Checks that no value is placed along the axis of a pipeline. Errors: E0108 if one is.
fn check_no_place(graph: &Graph, axis: usize) -> Result<()> {
    let placed = |node: &&Node| matches!(&node.op, Op::Place(place) if place.mesh == axis);
    let Some(node) = graph.nodes.iter().find(placed) else { return Ok(()) };
    let message = format!("axis {axis} of the mesh has the stages of a pipeline, and a place");
    let error = Error::user("E0108", message).help("give the place another axis");
    Err(error.node(node.origins.first().map_or("", String::as_str)))
}

/// Checks that ranks along this axis can gather weights: the mesh has the axis, and all its ranks hold parts of the
/// same weights, unlike the stages of a pipeline. Errors: E0108.
fn check_axis_of_weights(axis: usize, options: &Options) -> Result<()> {
    let message = match &options.stages {
        Some(stages) if stages.axis == axis => format!("axis {axis} of the mesh has the stages of a pipeline"),
        _ if axis >= options.mesh.len() => format!("the mesh has {} axes, no axis {axis}", options.mesh.len()),
        _ => return Ok(()),
    };
    Err(Error::user("E0108", format!("weights cannot be gathered: {message}"))
        .help("give `gathered_weights` of the plan another axis"))
}

/// What is split along one axis of the mesh besides the values that are placed explicitly, and their consumers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Along {
    /// Whether contractions with parameters, and tables, may be split although nothing says how.
    pub seeds: bool,
    /// Whether each rank stores only a part of a weight that it needs whole, and gathers the weight when it needs it.
    pub gathers: bool,
}

/// Returns the program of each rank of a mesh, and remarks.
pub fn split(graph: &Graph, mesh: &[i64], along: &[Along], states: &mut [States]) -> Result<(Graph, Vec<Missed>)> {
    let (mut local, mut missed) = (graph.clone(), vec![]);
    for (axis, ((&size, states), &along)) in mesh.iter().zip(states).zip(along).enumerate() {
        let (next, more) = split_along(&local, (axis, size), along, states)?;
        local = next;
        missed.extend(more);
    }
    Ok((local, missed))
}

/// Returns the program of each rank along one axis.
fn split_along(
    graph: &Graph,
    (axis, size): (usize, i64),
    along: Along,
    states: &mut States,
) -> Result<(Graph, Vec<Missed>)> {
    let name = coordinate(graph, axis);
    let ranks = Ranks { axis, size, coordinate: Dim::symbol(&name) };
    let mut local = Local::new(graph, ranks, states);
    local.along = along;
    for (v, _) in graph.values() {
        local.place(v)?;
    }
    let missed = local.finish()?;
    let mut out = local.into_graph();
    out.symbols.insert(name, Symbol { kind: SymbolKind::Rank { axis }, lo: 0, hi: Some(size - 1) });
    Ok((out, missed))
}

/// Removes the placements that are left: those on axes that the mesh does not have, and those in functions that host
/// operations call.
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

/// Returns the name of the symbol for the coordinate along an axis, which the model does not use otherwise.
fn coordinate(graph: &Graph, axis: usize) -> String {
    let free = |n: &usize| !graph.symbols.contains_key(&name(axis, *n));
    fn name(axis: usize, n: usize) -> String {
        format!("rank{axis}{}", "_".repeat(n))
    }
    (0..).find(free).map(|n| name(axis, n)).unwrap_or_default()
}
