//! A graph whose values are placed at random over the ranks of a mesh: all ranks together give the results of the graph

use super::random::Random;
use super::{Case, compare, expected, param, text};
use melior::Context as MlirContext;
use melior::ir::{Location, Module};
use sardonyx_base::{Dim, Error};
use sardonyx_dialects::flow::Program;
use sardonyx_dialects::interp::{self, Setting};
use sardonyx_dialects::mlir::{self, Context, Operation};
use sardonyx_dialects::sdx::{Graph, Node, Op, Place, Value};
use sardonyx_passes::{Class, Options, Overlap, Rewrites, Stages};
use std::ops::Range;

static MESHES: [&[i64]; 6] = [&[2], &[3], &[4], &[2, 2], &[8], &[2, 3]];

/// Returns the number of collectives.
pub fn check(context: &MlirContext, case: &Case, seed: u64) -> std::result::Result<usize, String> {
    let mesh = MESHES[seed as usize % MESHES.len()];
    let stages = stages(&case.graph, mesh[0], seed);
    let graph = placed(&case.graph, usize::from(stages.is_some())..mesh.len(), seed);
    let overlap = if stages.is_none() { overlap(&case.graph, seed) } else { None };
    let options = Options { mesh: mesh.to_vec(), stages, overlap, ..Options::default() };
    let mut rewrites = Rewrites::new(options);
    let mut module = Module::new(Location::unknown(context));
    let function = graph.write(Context::new(context)).map_err(|e| e.to_string())?;
    let before = function.operation().to_string();
    mlir::Module::new(&mut module).push(function).map_err(|e| e.to_string())?;
    let mut run = |module: &mut Module, pipeline: &str| {
        let text = text(module);
        let ran = sardonyx_passes::run_pipeline_with(context, module, pipeline, &mut rewrites);
        ran.map_err(|e| format!("{} over {mesh:?}: {e}\n{before}\n=>\n{text}", case.name))
    };
    let ranks: Vec<usize> = mesh.iter().map(|n| *n as usize).collect();
    let params = |name: &str| param(case, name);
    let mut collectives = 0;
    for (pipeline, flow) in [("builtin.module(shard)", false), (REST, true)] {
        run(&mut module, pipeline)?;
        let function = Operation::of_module(&module).block(0).expect("a body").operations()[0];
        let fail = |what: String| format!("{} over {mesh:?}: {what}\n{before}\n=>\n{function}", case.name);
        let read = || match flow {
            true => Ok((Graph::default(), Program::read(function)?)),
            false => Ok((Graph::read(function)?, Program::default())),
        };
        let (graph, program) = read().map_err(|e: Box<Error>| fail(e.to_string()))?;
        for inputs in &case.calls {
            let wanted = expected(case, inputs).map_err(|e| e.to_string())?;
            let all = interp::on_ranks(&ranks, |world| {
                let setting = Setting { params: &params, world, n_turns: None };
                match flow {
                    true => interp::run_program_in(&program, setting, inputs, &mut |call| call.interpret()),
                    false => interp::run_in(&graph, setting, inputs, &mut |_, _| Ok(())),
                }
            });
            let all = all.map_err(|e| fail(format!("{inputs:?}: {e}")))?;
            for (rank, got) in all.iter().enumerate() {
                let tolerance = wanted.tolerance(Class::Reassociating);
                compare(&wanted, tolerance, got).map_err(|what| fail(format!("{inputs:?}: rank {rank}: {what}")))?;
            }
        }
        collectives = function.to_string().matches(" mesh=").count();
    }
    Ok(collectives)
}

static REST: &str = "builtin.module(e-graph,simplify,cse,sdx-to-flow,fuse,fuse-siblings)";

/// Makes a third of the graphs a pipeline, whose stages begin at random nodes; half of these use micro-batches.
fn stages(graph: &Graph, ranks: i64, seed: u64) -> Option<Stages> {
    let mut r = Random::new(seed ^ 0x57a6_e500);
    let live = graph.nodes.iter().zip(graph.live()).filter(|(node, live)| *live && !node.args.is_empty());
    let mut names: Vec<String> = live.filter_map(|(node, _)| node.origins.first().cloned()).collect();
    names.dedup();
    // The first node begins the first stage.
    while names.len() as i64 > ranks {
        names.remove(1 + r.below(names.len() - 1));
    }
    let appends = graph.nodes.iter().any(|node| matches!(node.op, Op::Append { .. }));
    let is_pipeline = seed.is_multiple_of(3) && names.len() as i64 == ranks && !appends;
    let micro_batches = if r.below(2) == 0 { 1 } else { 2 + r.below(3) };
    is_pipeline.then(|| Stages { axis: 0, begins: names.split_off(1), micro_batches })
}

/// Chooses for almost half of the graphs to overlap computation with communication: products in chunks, alternating
/// micro-batches, or both.
fn overlap(graph: &Graph, seed: u64) -> Option<Overlap> {
    let mut r = Random::new(seed ^ 0x0e71_a900);
    let appends = graph.nodes.iter().any(|node| matches!(node.op, Op::Append { .. }));
    let [chunks, micro_batches] = [3, 2].map(|max| 1 + r.below(max));
    let micro_batches = if appends { 1 } else { micro_batches };
    (chunks * micro_batches > 1 && r.below(2) == 0).then(|| Overlap { chunks, micro_batches, nodes: vec![] })
}

/// The graph with random placements of some of its values.
fn placed(graph: &Graph, axes: Range<usize>, seed: u64) -> Graph {
    let mut r = Random::new(seed ^ 0x0091_aced);
    let mut out = Graph { nodes: vec![], outputs: vec![], ..graph.clone() };
    let mut now: Vec<Value> = vec![];
    for node in &graph.nodes {
        let args = node.args.iter().map(|a| now[a.index()]).collect();
        let mut v = out.push(Node { args, ..node.clone() });
        for mesh in axes.clone() {
            if r.below(100) < 40 {
                let place = Place { mesh, split: split(&mut r, &node.ty.dims, mesh) };
                v = out.add_as(Op::Place(Box::new(place)), &[v], None, &node.origins).expect("a place");
            }
        }
        now.push(v);
    }
    out.outputs = graph.outputs.iter().map(|(name, v)| (name.clone(), now[v.index()])).collect();
    out
}

/// A random split of a dimension. After a split over an earlier axis of the mesh, the number of elements of a rank may
/// not be a multiple of the unit; the unit is then one element.
fn split(r: &mut Random, dims: &[Dim], mesh: usize) -> Option<(usize, Dim, Dim)> {
    if dims.is_empty() || r.below(8) == 0 {
        return None;
    }
    let dim = r.below(dims.len());
    let [outer, unit] = [0, 1].map(|_| Dim::constant(1 + r.below(3) as i64));
    let divides = mesh == 0 && dims[dim].exact_div(&(outer.clone() * unit.clone())).is_some();
    let one = Dim::constant(1);
    Some(if divides { (dim, outer, unit) } else { (dim, one.clone(), one) })
}
