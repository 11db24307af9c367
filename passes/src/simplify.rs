//! transpose(transpose(x))  =>  transpose(x);   pow(x, 2)  =>  x * x;   contract(transpose(x), y)  =>  contract(x, y)
//!
//! Each rule examines one node of a graph whose operands are already simplified, and returns an existing value or
//! another operation with the same result type. All rules are exact: the result is bitwise equal, including −0, except
//! that a NaN may have another sign and payload.

mod bounded_products;

use crate::rewrite::Rewrites;
use bounded_products::bounded_products;
pub use bounded_products::has_exact_sums;
use sardonyx_base::dim::merged_groups;
use sardonyx_base::{Result, Tensor};
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{ContractSpec, Graph, Node, Op, TensorType, Value};
use std::cell::RefCell;

/// The replacement of a node; its type stays the same.
enum Rewrite {
    Value(Value),
    Node(Op, Vec<Value>),
    /// New nodes, numbered from the end of the graph, followed by the operation that uses them and its operands.
    After(Vec<Node>, Op, Vec<Value>),
}

/// Returns the replacement, or `None` if the rule does not apply.
type Rule = fn(&Graph, &Node) -> Option<Rewrite>;

/// The rules, tried in order until one applies.
static RULES: &[(&str, Rule)] = &[
    ("same-type-motion", same_type_motion),
    ("compose-reshapes", compose_reshapes),
    ("compose-transposes", compose_transposes),
    ("compose-broadcasts", compose_broadcasts),
    ("split-merged-transpose", split_merged_transpose),
    ("drop-neutral-operand", drop_neutral_operand),
    ("square", square),
    ("decide-select", decide_select),
    ("map-before-motion", map_before_motion),
    ("transpose-into-contract", transpose_into_contract),
    ("bounded-products", bounded_products),
];

/// Returns an operation with the same result type that replaces the node, and its operands, or `None` if the rule does
/// not apply.
pub type FurtherRule = fn(&Graph, &Node) -> Option<(Op, Vec<Value>)>;

thread_local! {
    static FURTHER: RefCell<Vec<(&'static str, FurtherRule)>> = const { RefCell::new(vec![]) };
}

/// Runs a function with an additional rule on this thread, which is tried before the other rules. The tests of the
/// tools that find wrong rules add a wrong rule in this way.
pub fn with_rule<T>(name: &'static str, rule: FurtherRule, run: impl FnOnce() -> T) -> T {
    struct Until;
    impl Drop for Until {
        fn drop(&mut self) {
            FURTHER.with_borrow_mut(Vec::pop);
        }
    }
    FURTHER.with_borrow_mut(|rules| rules.push((name, rule)));
    let _until = Until;
    run()
}

fn further(graph: &Graph, node: &Node) -> Option<(&'static str, Rewrite)> {
    let one = |(name, rule): &(&'static str, FurtherRule)| {
        let (op, args) = rule(graph, node)?;
        Some((*name, Rewrite::Node(op, args)))
    };
    FURTHER.with_borrow(|rules| rules.iter().find_map(one))
}

/// Maximum number of rounds of all rules over a function; a round that changes nothing is the last.
const ROUNDS_MAX: usize = 8;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.graphs(module, |rewrites, graph| {
        for _ in 0..ROUNDS_MAX {
            let (next, changed) = simplify(graph, rewrites)?;
            *graph = next;
            if !changed {
                break;
            }
        }
        Ok(())
    })
}

fn simplify(graph: &Graph, rewrites: &mut Rewrites) -> Result<(Graph, bool)> {
    let live = graph.live();
    let mut out = Graph { nodes: vec![], outputs: vec![], ..graph.clone() };
    let mut map: Vec<Value> = vec![];
    let mut changed = false;
    for (v, node) in graph.values() {
        if !live[v.index()] && !matches!(node.op, Op::Input { .. }) {
            map.push(Value(0));
            continue;
        }
        let node = Node { args: node.args.iter().map(|a| map[a.index()]).collect(), ..node.clone() };
        let own = || RULES.iter().find_map(|(name, rule)| Some((*name, rule(&out, &node)?)));
        let new = match further(&out, &node).or_else(own) {
            Some((name, rewrite)) => rewrites.replace(&mut out, name, &node, |out| apply(out, &node, rewrite))?,
            None => None,
        };
        changed |= new.is_some();
        map.push(new.unwrap_or_else(|| out.push(node)));
    }
    out.outputs = graph.outputs.iter().map(|(n, v)| (n.clone(), map[v.index()])).collect();
    Ok((out, changed))
}

fn apply(out: &mut Graph, node: &Node, rewrite: Rewrite) -> Value {
    let (new, op, args) = match rewrite {
        Rewrite::Value(v) => return v,
        Rewrite::Node(op, args) => (vec![], op, args),
        Rewrite::After(new, op, args) => (new, op, args),
    };
    for n in new {
        out.push(n);
    }
    out.push(Node { op, args, ..node.clone() })
}

/// Removes reshape, transpose, broadcast, slice, convert and concat that change nothing.
fn same_type_motion(g: &Graph, node: &Node) -> Option<Rewrite> {
    let same = || node.args.len() == 1 && *g.ty(node.args[0]) == node.ty;
    let still = match &node.op {
        Op::Reshape | Op::Convert(_) | Op::Broadcast { .. } | Op::Concat { .. } => same(),
        Op::Transpose { perm } => perm.iter().enumerate().all(|(i, &p)| i == p),
        Op::Slice { starts, steps } => same() && starts.iter().all(|s| s.is_const(0)) && steps.iter().all(|&s| s == 1),
        _ => false,
    };
    still.then(|| Rewrite::Value(node.args[0]))
}

/// reshape(reshape(x)) => reshape(x)
fn compose_reshapes(g: &Graph, node: &Node) -> Option<Rewrite> {
    let inner = matches!(node.op, Op::Reshape).then(|| g.node(node.args[0]))?;
    matches!(inner.op, Op::Reshape).then(|| Rewrite::Node(Op::Reshape, inner.args.clone()))
}

/// transpose(transpose(x, p), q) => transpose(x, p[q])
fn compose_transposes(g: &Graph, node: &Node) -> Option<Rewrite> {
    let Op::Transpose { perm: outer } = &node.op else { return None };
    let inner = g.node(node.args[0]);
    let Op::Transpose { perm } = &inner.op else { return None };
    let perm = outer.iter().map(|&q| perm[q]).collect();
    Some(Rewrite::Node(Op::Transpose { perm }, inner.args.clone()))
}

/// broadcast(broadcast(x)) => broadcast(x)
fn compose_broadcasts(g: &Graph, node: &Node) -> Option<Rewrite> {
    let Op::Broadcast { dims: outer } = &node.op else { return None };
    let inner = g.node(node.args[0]);
    let Op::Broadcast { dims } = &inner.op else { return None };
    let dims = dims.iter().map(|&d| outer[d]).collect();
    Some(Rewrite::Node(Op::Broadcast { dims }, inner.args.clone()))
}

/// reshape(transpose(reshape(x[b, h, s, d], [b*h, s, d])), [b, h, d, s]) => transpose(x): dimensions that were merged,
/// transposed together and split again.
fn split_merged_transpose(g: &Graph, node: &Node) -> Option<Rewrite> {
    let turned = matches!(node.op, Op::Reshape).then(|| g.node(node.args[0]))?;
    let Op::Transpose { perm } = &turned.op else { return None };
    let merged = g.node(turned.args[0]);
    let x = matches!(merged.op, Op::Reshape).then(|| merged.args[0])?;
    let dims = &g.ty(x).dims;
    let groups = merged_groups(dims, &merged.ty.dims)?;
    let perm: Vec<usize> = perm.iter().flat_map(|&p| groups[p].clone()).collect();
    let splits = perm.iter().map(|&p| &dims[p]).eq(&node.ty.dims);
    splits.then(|| Rewrite::Node(Op::Transpose { perm }, vec![x]))
}

/// Returns the number that all elements of a constant are equal to, if `v` is such a constant, possibly broadcast or
/// reshaped.
pub fn splat(g: &Graph, v: Value) -> Option<f64> {
    let node = g.node(v);
    match &node.op {
        Op::Const(t) => splat_of(t),
        Op::Broadcast { .. } | Op::Reshape => splat(g, node.args[0]),
        _ => None,
    }
}

fn splat_of(t: &Tensor) -> Option<f64> {
    let first = t.get_f64(0)?;
    (1..t.len()).all(|i| t.get_f64(i).is_some_and(|v| v.to_bits() == first.to_bits())).then_some(first)
}

/// x * 1, 1 * x, x / 1, x − 0 => x; also x + 0 for integers only, because it turns a float −0 into 0.
fn drop_neutral_operand(g: &Graph, node: &Node) -> Option<Rewrite> {
    let Op::Map(f) = &node.op else { return None };
    let is = |i: usize, c: f64| splat(g, node.args[i]).is_some_and(|v| v.to_bits() == c.to_bits());
    let kept = match f {
        ScalarFn::Mul if is(1, 1.0) => 0,
        ScalarFn::Mul if is(0, 1.0) => 1,
        ScalarFn::Div if is(1, 1.0) => 0,
        ScalarFn::Sub if is(1, 0.0) => 0,
        ScalarFn::Add if node.ty.dtype.is_int() && is(1, 0.0) => 0,
        _ => return None,
    };
    Some(Rewrite::Value(node.args[kept]))
}

/// pow(x, 2) => x * x
fn square(g: &Graph, node: &Node) -> Option<Rewrite> {
    let two = matches!(node.op, Op::Map(ScalarFn::Pow)) && splat(g, node.args[1]) == Some(2.0);
    two.then(|| Rewrite::Node(Op::Map(ScalarFn::Mul), vec![node.args[0], node.args[0]]))
}

/// select(true, a, b) => a
fn decide_select(g: &Graph, node: &Node) -> Option<Rewrite> {
    let select = matches!(node.op, Op::Map(ScalarFn::Select));
    let condition = select.then(|| splat(g, node.args[0])).flatten()?;
    Some(Rewrite::Value(node.args[if condition != 0.0 { 1 } else { 2 }]))
}

/// mul(transpose(x), transpose(y)) => transpose(mul(x, y)), for any function with float results of scalars and of
/// tensors that are transposed or reshaped in the same way. If the function is computed before the movement, it can be
/// fused with the producer of `x`; if it were computed after the movement, it would keep the movement from being fused
/// into a contraction.
fn map_before_motion(g: &Graph, node: &Node) -> Option<Rewrite> {
    let scalar = |v: Value| match &g.node(v).op {
        Op::Broadcast { dims } if dims.is_empty() => Some(g.node(v).args[0]),
        _ => None,
    };
    let is_float_map = matches!(node.op, Op::Map(_)) && node.ty.dtype.is_float();
    let motion = g.node(*node.args.iter().find(|v| is_float_map && scalar(**v).is_none())?);
    let alike = |op: &Op| match (op, &motion.op) {
        (Op::Transpose { perm }, Op::Transpose { perm: other }) => perm == other,
        (op, other) => matches!((op, other), (Op::Reshape, Op::Reshape)),
    };
    if !alike(&motion.op) {
        return None;
    }
    let dims = &g.ty(motion.args[0]).dims;
    let (mut new, mut args) = (vec![], vec![]);
    for &v in &node.args {
        let moved = g.node(v);
        args.push(match scalar(v) {
            Some(s) => {
                let ty = TensorType::new(g.ty(s).dtype, dims.clone());
                new.push(Node { op: Op::Broadcast { dims: vec![] }, args: vec![s], ty, ..moved.clone() });
                Value((g.nodes.len() + new.len() - 1) as u32)
            }
            None if alike(&moved.op) && g.ty(moved.args[0]).dims == *dims => moved.args[0],
            None => return None,
        });
    }
    let ty = TensorType::new(node.ty.dtype, dims.clone());
    new.push(Node { args, ty, ..node.clone() });
    let map = Value((g.nodes.len() + new.len() - 1) as u32);
    Some(Rewrite::After(new, motion.op.clone(), vec![map]))
}

/// contract "bhsd,bhdt->…"(x, transpose(y)) => contract "bhsd,bhtd->…"(x, y): a contraction reads the dimensions of its
/// operands in any order.
fn transpose_into_contract(g: &Graph, node: &Node) -> Option<Rewrite> {
    let Op::Contract(spec) = &node.op else { return None };
    let site = |v: Value, letters: &[char]| {
        let Op::Transpose { perm } = &g.node(v).op else { return None };
        let mut source = letters.to_vec();
        perm.iter().zip(letters).for_each(|(&p, &c)| source[p] = c);
        Some((g.node(v).args[0], source))
    };
    let (left, right) = (site(node.args[0], &spec.left), site(node.args[1], &spec.right));
    if left.is_none() && right.is_none() {
        return None;
    }
    let (x, l) = left.unwrap_or((node.args[0], spec.left.clone()));
    let (y, r) = right.unwrap_or((node.args[1], spec.right.clone()));
    let spec = ContractSpec { left: l, right: r, result: spec.result.clone() };
    Some(Rewrite::Node(Op::Contract(spec), vec![x, y]))
}
