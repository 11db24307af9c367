//! concat(past, x), where past is an input and the result an output  =>  append(past, x): a state that grows in place
//!
//! A decoder takes the keys and values of earlier positions and gives them back with those of the new ones behind them.
//! As an append, this is something that a call may do in the memory of the past, where only the new positions are
//! written. So nothing else may read the past, and the result is one output: both then are one memory.

use crate::rewrite::Rewrites;
use sardonyx_base::Result;
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::sdx::{Graph, Op, Value};

pub fn run(module: Operation, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.graphs(module, |rewrites, graph| {
        // Nobody keeps memory for what host operations call.
        if graph.internal {
            return Ok(());
        }
        let uses = uses(graph);
        rewrites.each_value(graph, "append", |graph, v| matches(graph, &uses, v), apply)
    })
}

fn apply(graph: &mut Graph, v: Value, axis: usize) -> Value {
    graph.nodes[v.index()].op = Op::Append { axis };
    v
}

/// The axis, where the value is a state: the concat of an input that nothing else uses and one more operand, and once
/// an output.
fn matches(graph: &Graph, uses: &[usize], v: Value) -> Option<usize> {
    let node = graph.node(v);
    let (Op::Concat { axis }, [_, _]) = (&node.op, node.args.as_slice()) else { return None };
    continues_input(graph, uses, v).then_some(*axis)
}

/// How often what is not dead uses each value.
pub fn uses(graph: &Graph) -> Vec<usize> {
    let live = graph.live();
    let mut uses = graph.uses();
    let dead = graph.values().filter(|(v, _)| !live[v.index()]);
    dead.flat_map(|(_, node)| &node.args).for_each(|a| uses[a.index()] -= 1);
    uses
}

/// Whether an append may go on in the memory of what it appends to.
pub fn is_state(graph: &Graph, uses: &[usize], v: Value) -> bool {
    matches!(graph.node(v).op, Op::Append { .. }) && continues_input(graph, uses, v)
}

/// The first operand is an input that nothing else uses, and the value is an output once.
fn continues_input(graph: &Graph, uses: &[usize], v: Value) -> bool {
    let past = graph.node(v).args[0];
    let outputs = graph.outputs.iter().filter(|(_, o)| *o == v).count();
    matches!(graph.node(past).op, Op::Input { .. }) && uses[past.index()] == 1 && outputs == 1
}
