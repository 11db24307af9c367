//! a program, the nodes at which the stages of a pipeline begin  =>  the program with sends from each stage to the next
//!
//! Each stage belongs to the ranks with one coordinate along an axis of the mesh. A value that a stage reads from an
//! earlier one is sent to it once; outputs are sent to the first stage. The program is the same on all ranks: a rank
//! executes what is needed for the values that its stage sends (`runtime/src/program/needed.rs`).

use super::redistribute::fixed_values;
use crate::find_caches;
use crate::placement::Stages;
use crate::remark::Missed;
use sardonyx_base::host::Collective;
use sardonyx_base::{Error, HostOp, Result};
use sardonyx_dialects::sdx::{Graph, Host, Node, Op, Value};
use std::collections::BTreeMap;

/// Checks that the axis has one rank for each stage. Errors: E0108 if it does not.
pub fn check_ranks(stages: &Stages, mesh: &[i64]) -> Result<()> {
    let ranks = mesh.get(stages.axis).copied().unwrap_or(1);
    if ranks == stages.begins.len() as i64 + 1 {
        return Ok(());
    }
    let (axis, n) = (stages.axis, stages.begins.len() + 1);
    let message = format!("the pipeline has {n} stages, axis {axis} of the mesh {ranks} ranks");
    Err(Error::user("E0108", message).help("give a node for each stage but the first, and a rank for each"))
}

/// Returns the stage of each value. Errors: E0108 for an unknown node, or one that does not follow the start of the
/// previous stage.
pub fn stages_of_values(graph: &Graph, begins: &[String]) -> Result<Vec<usize>> {
    let mut first = vec![0];
    for name in begins {
        let at = graph.nodes.iter().position(|node| node.origins.contains(name));
        let at = at.ok_or_else(|| {
            let message = format!("no operation of the program stands for the node `{name}`");
            Error::user("E0108", message).help("`sardonyx explain` lists the nodes of operations")
        })?;
        if at <= first[first.len() - 1] {
            let message = format!("`{name}` does not come after the node with which the stage before it begins");
            return Err(Error::user("E0108", message).help("give the nodes in the order of the program"));
        }
        first.push(at);
    }
    Ok((0..graph.nodes.len()).map(|v| first.iter().rposition(|first| *first <= v).unwrap_or(0)).collect())
}

/// Returns the program with sends, and remarks on what every rank must compute nevertheless.
pub fn with_sends(graph: &Graph, axis: usize, stage_of: &[usize]) -> Result<(Graph, Vec<Missed>)> {
    check_no_state(graph, "cannot go through a pipeline")?;
    let mut sends = Sends {
        graph,
        axis,
        stage_of,
        everywhere: everywhere(graph),
        out: Graph { nodes: vec![], outputs: vec![], ..graph.clone() },
        at_home: vec![],
        elsewhere: BTreeMap::new(),
        next_group: graph.next_group(),
    };
    let mut missed = vec![];
    for (v, node) in graph.values() {
        let stage = stage_of[v.index()];
        if is_for_all(node) && node.args.iter().any(|arg| !sends.everywhere[arg.index()]) {
            let missing = Missed::because("every stage computes what this needs", node.op.name());
            missed.push(Missed { node: node.origins.first().cloned(), ..missing });
        }
        let args = node.args.iter().map(|arg| match is_for_all(node) {
            true => Ok(sends.at_home[arg.index()]),
            false => sends.at(*arg, stage),
        });
        let args = args.collect::<Result<Vec<Value>>>()?;
        let now = sends.out.push(Node { args, ..node.clone() });
        sends.at_home.push(now);
    }
    for (name, v) in &graph.outputs {
        let v = sends.at(*v, 0)?;
        sends.out.outputs.push((name.clone(), v));
    }
    Ok((sends.out, missed))
}

/// Checks that no output continues a cache, because caches are not split into stages or micro-batches yet. Errors:
/// E0108.
pub fn check_no_state(graph: &Graph, cannot: &str) -> Result<()> {
    let uses = find_caches::uses(graph);
    let state = graph.outputs.iter().find(|(_, v)| find_caches::is_state(graph, &uses, *v));
    let Some((name, _)) = state else { return Ok(()) };
    let message = format!("the output `{name}` continues a cache, and what does {cannot} yet");
    Err(Error::user("E0108", message)
        .help("split the layers over the ranks instead: leave out stages and micro-batches"))
}

struct Sends<'g> {
    graph: &'g Graph,
    axis: usize,
    stage_of: &'g [usize],
    /// By value: whether it is computed in every stage that reads it.
    everywhere: Vec<bool>,
    out: Graph,
    /// By value: the value of the new program that its own stage computes.
    at_home: Vec<Value>,
    elsewhere: BTreeMap<(Value, usize), Value>,
    next_group: usize,
}

impl Sends<'_> {
    /// Returns the value as a stage reads it, sent if necessary.
    fn at(&mut self, v: Value, stage: usize) -> Result<Value> {
        let home = self.stage_of[v.index()];
        if home == stage || self.everywhere[v.index()] {
            return Ok(self.at_home[v.index()]);
        }
        if let Some(&known) = self.elsewhere.get(&(v, stage)) {
            return Ok(known);
        }
        let node = self.graph.node(v);
        let now = match &node.op {
            op if is_view(op) => {
                let arg = self.at(node.args[0], stage)?;
                self.out.push(Node { args: vec![arg], ..node.clone() })
            }
            _ => {
                let op = Collective::Send { mesh: self.axis, from: home, to: stage };
                let group = self.next_group;
                self.next_group += 1;
                let host = Host { op: HostOp::Collective(op), bodies: vec![], group, result: 0, binds: vec![] };
                let args = vec![self.at_home[v.index()]];
                self.out.push(Node { op: Op::Host(Box::new(host)), args, ..node.clone() })
            }
        };
        self.elsewhere.insert((v, stage), now);
        Ok(now)
    }
}

/// Whether the operation only repeats or rearranges its operand, so that each stage can execute it on its own copy.
pub fn is_view(op: &Op) -> bool {
    matches!(op, Op::Broadcast { .. } | Op::Reshape | Op::Transpose { .. })
}

/// Whether every rank executes the operation: a host operation, or one that binds data-dependent sizes.
fn is_for_all(node: &Node) -> bool {
    matches!(node.op, Op::Host(_)) || !node.op.binds().is_empty()
}

/// Returns, by value, whether every stage that reads it computes it itself: it is fixed, or cheap operations without
/// contractions compute it from inputs.
pub fn everywhere(graph: &Graph) -> Vec<bool> {
    let fixed = fixed_values(graph);
    let mut all = fixed.clone();
    for (v, node) in graph.values() {
        let light = match &node.op {
            Op::Input { .. } => true,
            Op::Map(_) | Op::Convert(_) | Op::Broadcast { .. } | Op::Reshape | Op::Transpose { .. } => true,
            Op::Slice { .. } | Op::Concat { .. } | Op::Pad { .. } | Op::Reduce { .. } | Op::Place(_) => true,
            // A table of weights belongs to a single stage.
            Op::Gather { .. } => !fixed[node.args[0].index()],
            _ => is_for_all(node) || node.ty.dtype.is_opaque(),
        };
        let of_such = node.args.iter().all(|arg| all[arg.index()]);
        all[v.index()] |= light && (of_such || is_for_all(node));
    }
    all
}
