//! add(b, a) => add(a, b), contract(w, x) => contract(x, w): a canonical order for commutative operands
//!
//! Rules produce both orders, at the same cost. The order chosen here depends on what the operands are, not on which
//! came first, so that all layers of a network, and the variants that exporters write, get the same one.

use super::table::{names, spelled_alike};
use sardonyx_base::hash::{extended, hash};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{ContractSpec, Graph, Node, Op, Value};

/// Depth to which operands are compared: enough to tell two operands apart, but too little to distinguish the layers of
/// a network.
const DEPTH: usize = 4;

pub fn order_operands(graph: &mut Graph) {
    let mut seen: Vec<[u64; DEPTH]> = vec![];
    for i in 0..graph.nodes.len() {
        let node = &graph.nodes[i];
        let swap = match &node.op {
            Op::Map(f) => commutes(*f) && seen[node.args[0].index()] > seen[node.args[1].index()],
            Op::Contract(spec) => right_first(graph, spec, &node.args),
            _ => false,
        };
        if swap {
            let node = &mut graph.nodes[i];
            node.args.swap(0, 1);
            if let Op::Contract(spec) = &node.op {
                let (left, right) = (spec.right.clone(), spec.left.clone());
                node.op = Op::Contract(spelled_alike(&ContractSpec { left, right, result: spec.result.clone() }));
            }
        }
        seen.push(structure_hashes(&graph.nodes[i], &seen));
    }
}

fn commutes(f: ScalarFn) -> bool {
    use ScalarFn::{Add, And, Eq, Max, Min, Mul, Or};
    matches!(f, Add | And | Eq | Max | Min | Mul | Or)
}

/// Whether to swap the operands: weights become operand B. If both or neither are weights, A is the operand with the
/// first letter of the result that the other operand lacks.
fn right_first(graph: &Graph, spec: &ContractSpec, args: &[Value]) -> bool {
    let weight = |v: Value| matches!(graph.node(behind_views(graph, v)).op, Op::Param { .. } | Op::Const(_));
    match (weight(args[0]), weight(args[1])) {
        (true, false) => true,
        (false, true) => false,
        (true, true) | (false, false) => {
            let own = |side: &[char], other: &[char]| {
                spec.result.iter().position(|c| side.contains(c) && !other.contains(c)).unwrap_or(usize::MAX)
            };
            own(&spec.right, &spec.left) < own(&spec.left, &spec.right)
        }
    }
}

fn behind_views(graph: &Graph, v: Value) -> Value {
    let node = graph.node(v);
    match node.op {
        Op::Reshape | Op::Transpose { .. } | Op::Slice { .. } => behind_views(graph, node.args[0]),
        _ => v,
    }
}

/// Returns, for each depth, a hash of the operations and types of a node and of its operands down to that depth,
/// without names.
fn structure_hashes(node: &Node, seen: &[[u64; DEPTH]]) -> [u64; DEPTH] {
    let named = matches!(node.op, Op::Input { .. } | Op::Param { .. });
    let own = if named { names(&node.op)[0].to_string() } else { super::cost::spelling(&node.op) };
    let own = hash(format!("{own} {}", node.ty).as_bytes());
    let mut out = [own; DEPTH];
    for d in 1..DEPTH {
        out[d] = node.args.iter().fold(own, |h, a| extended(h, &seen[a.index()][d - 1].to_le_bytes()));
    }
    out
}
