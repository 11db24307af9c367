//! add(b, a) => add(a, b), contract(w, x) => contract(x, w): of operands that may stand in any order, one order
//!
//! Rules make both orders, and both cost the same. Layers of a network, and exporters' forms of it, get one order by what
//! the operands are, not by which came first.

use super::table::{names, spelled_alike};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{ContractSpec, Graph, Node, Op, Value};

/// How deep operands are compared: far enough to tell them apart, not so far as to see which layer it is.
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
        seen.push(looks(&graph.nodes[i], &seen));
    }
}

fn commutes(f: ScalarFn) -> bool {
    use ScalarFn::{Add, And, Eq, Max, Min, Mul, Or};
    matches!(f, Add | And | Eq | Max | Min | Mul | Or)
}

/// Weights stand on the right; of two values the one on the left is that whose rows come first in the result.
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

/// By depth: a number that follows from the operations and types of a node and of what is so far below it; no names.
fn looks(node: &Node, seen: &[[u64; DEPTH]]) -> [u64; DEPTH] {
    let named = matches!(node.op, Op::Input { .. } | Op::Param { .. });
    let own = if named { names(&node.op)[0].to_string() } else { super::cost::spelling(&node.op) };
    let own = mix(FNV, format!("{own} {}", node.ty).as_bytes());
    let mut out = [own; DEPTH];
    for d in 1..DEPTH {
        out[d] = node.args.iter().fold(own, |h, a| mix(h, &seen[a.index()][d - 1].to_le_bytes()));
    }
    out
}

const FNV: u64 = 0xcbf2_9ce4_8422_2325;

fn mix(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}
