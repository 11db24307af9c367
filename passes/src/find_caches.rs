//! concat(past, x), where past is an input and the result an output  =>  append(past, x): a cache that grows in place
//!
//! A decoder takes the keys and values of earlier positions (the past) as inputs, and returns them with the keys and
//! values of the new positions appended. With an append, a call writes only the new positions, into the memory of the
//! past. Since input and output then share memory, nothing else may read the past, and the result must be exactly one
//! output.

use crate::rewrite::Rewrites;
use sardonyx_base::Result;
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::sdx::{Graph, Op, Value};

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.graphs(module, |rewrites, graph| {
        // Internal functions, which host operations call, have no memory that persists between calls.
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

/// Returns the axis along which a cache grows if the value is a cache: a concat whose first operand is an otherwise
/// unused input, whose second operand is any value, and whose result is exactly one output.
fn matches(graph: &Graph, uses: &[usize], v: Value) -> Option<usize> {
    let node = graph.node(v);
    let (Op::Concat { axis }, [_, _]) = (&node.op, node.args.as_slice()) else { return None };
    continues_input(graph, uses, v).then_some(*axis)
}

/// Returns the number of uses of each value by live nodes.
pub fn uses(graph: &Graph) -> Vec<usize> {
    let live = graph.live();
    let mut uses = graph.uses();
    let dead = graph.values().filter(|(v, _)| !live[v.index()]);
    dead.flat_map(|(_, node)| &node.args).for_each(|a| uses[a.index()] -= 1);
    uses
}

/// Whether an append may work in place, in the memory of its first operand.
pub fn is_state(graph: &Graph, uses: &[usize], v: Value) -> bool {
    matches!(graph.node(v).op, Op::Append { .. }) && continues_input(graph, uses, v)
}

/// Whether the first operand is an otherwise unused input and the value is exactly one output.
fn continues_input(graph: &Graph, uses: &[usize], v: Value) -> bool {
    let past = graph.node(v).args[0];
    let outputs = graph.outputs.iter().filter(|(_, o)| *o == v).count();
    matches!(graph.node(past).op, Op::Input { .. }) && uses[past.index()] == 1 && outputs == 1
}
