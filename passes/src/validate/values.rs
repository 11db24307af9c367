//! two values of one graph that a rule declares equal  =>  a graph that computes both from free operands

use super::compare::{differs, says_something};
use super::cut::{Cut, Made, cut};
use super::sample::{DRAWS, Draw, Sizes, sizes, symbols, tensor};
use super::{Part, Verdict};
use crate::class::Class;
use sardonyx_base::random::Random;
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use sardonyx_dialects::interp;
use sardonyx_dialects::sdx::{Graph, Node, Op, Symbol, SymbolKind, TensorType, Value};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Maximum amount of work (see `work`) of a graph that is interpreted.
const WORK_MAX: i64 = 1 << 25;

/// Known lower and upper bounds of the elements of a value.
pub type Bounds<'a> = &'a dyn Fn(Value) -> (f64, f64);

/// Returns the part of a graph that computes `left` and `right`, ready to run, or the reason why it cannot be run. The
/// rewrite added the values from number `n_old` on; these are always computed and never drawn at random.
pub fn compare<'a>(
    graph: &'a Graph,
    n_old: usize,
    (left, right): (Value, Value),
    class: Class,
    bounds: Bounds<'a>,
    seed: u64,
    depth: usize,
) -> std::result::Result<Part<'a>, &'static str> {
    let from = |v: usize| graph.nodes[v].args.iter().map(|a| a.index()).collect();
    // Values that are independent of inputs and parameters are never drawn at random, because rules depend on them.
    let mut fixed: Vec<bool> = vec![];
    for node in &graph.nodes {
        let is_operand = matches!(node.op, Op::Input { .. } | Op::Param { .. });
        fixed.push(!is_operand && node.args.iter().all(|a| fixed[a.index()]));
    }
    let bound = |v: usize| v >= n_old || fixed[v] || matches!(graph.nodes[v].op, Op::Reshape | Op::Broadcast { .. });
    let made = Made { from: &from, rank: &|v| v, bound: &bound };
    let cut = cut([left.index(), right.index()], &made, depth).ok_or("what it changes depends on too much")?;
    if cut.computed.iter().any(|&v| matches!(graph.nodes[v].op, Op::Bind { .. } | Op::Place(_) | Op::Host(_))) {
        return Err("a dimension is read from data there, or the host computes");
    }
    let (small, free) = small(graph, &cut, left, right);
    let mut digest = DefaultHasher::new();
    hash(&small, &mut digest);
    class.name().hash(&mut digest);
    let run = move || run(&small, &free, graph, class, bounds, seed);
    Ok(Part { digest: digest.finish(), run: Box::new(run) })
}

/// Builds a graph of the computed nodes, with an input for each free value and, for each symbol `s`, an input of shape
/// `[s]` that gives `s` its size. Inputs and parameters among the computed nodes become free inputs, too. Returns the
/// name of each free input with the value of `graph` that it replaces.
fn small(graph: &Graph, cut: &Cut, left: Value, right: Value) -> (Graph, Vec<(String, Value)>) {
    let mut out = Graph { name: graph.name.clone(), ..Graph::default() };
    for (name, symbol) in &all_symbols(graph) {
        // Symbols that describe memory occur at the flow level only.
        if matches!(symbol.kind, SymbolKind::Input | SymbolKind::Data) {
            out.symbols.insert(name.clone(), Symbol { kind: SymbolKind::Input, lo: 0, hi: None });
            let ty = TensorType::new(DType::Bool, vec![Dim::symbol(name)]);
            out.push(Node {
                op: Op::Input { name: format!("size of {name}"), parts: vec![] },
                args: vec![],
                ty,
                origins: vec![],
            });
        }
    }
    let is_free = |v: &usize| cut.free.contains(v) || matches!(graph.nodes[*v].op, Op::Input { .. } | Op::Param { .. });
    let mut map: BTreeMap<usize, Value> = BTreeMap::new();
    let mut free = vec![];
    for &v in cut.free.union(&cut.computed).filter(|v| is_free(v)) {
        let name = format!("v{v}");
        let input =
            Node { op: Op::Input { name: name.clone(), parts: vec![] }, args: vec![], ..graph.nodes[v].clone() };
        map.insert(v, out.push(input));
        free.push((name, Value(v as u32)));
    }
    for &v in cut.computed.iter().filter(|v| !is_free(v)) {
        let node = &graph.nodes[v];
        let args = node.args.iter().map(|a| map[&a.index()]).collect();
        map.insert(v, out.push(Node { args, ..node.clone() }));
    }
    out.outputs = vec![("left".into(), map[&left.index()]), ("right".into(), map[&right.index()])];
    (out, free)
}

fn all_symbols(graph: &Graph) -> BTreeMap<String, Symbol> {
    symbols(&graph.symbols, graph.nodes.iter().flat_map(|n| &n.ty.dims))
}

/// Hashes a small graph, apart from the names of its inputs.
fn hash(g: &Graph, to: &mut DefaultHasher) {
    for (v, node) in g.values() {
        match &node.op {
            Op::Input { .. } => v.index().hash(to),
            Op::Const(t) => t.bytes().hash(to),
            op => op.hash(to),
        }
        node.args.iter().for_each(|a| a.index().hash(to));
        node.ty.hash(to);
    }
    g.outputs.iter().for_each(|(_, v)| v.index().hash(to));
}

fn run(small: &Graph, free: &[(String, Value)], whole: &Graph, class: Class, bounds: Bounds, seed: u64) -> Verdict {
    let mut r = Random::new(seed);
    let mut why = "no small sizes keep the checks of the model";
    for how in DRAWS {
        let Some(sizes) = sizes(&all_symbols(whole), &whole.checks, how, &mut r) else { continue };
        if work(small, &sizes) > WORK_MAX {
            why = "too large to interpret";
            continue;
        }
        let Some(inputs) = operands(small, free, &sizes, bounds, how, &mut r) else {
            why = "an element type that is not drawn";
            continue;
        };
        // Runs the computation of the left value alone: if it fails, the operands are unsuitable, and the right value
        // is not at fault.
        let Ok(left) = value(&alone(small), &inputs) else {
            why = "no random operands suit it";
            continue;
        };
        if !says_something(&left[0].1) {
            why = "no random operands suit it";
            continue;
        }
        return match value(small, &inputs) {
            Err(e) => Verdict::Differs(format!("what it became fails: {}", e.message)),
            Ok(both) => match differs(&left[0].1, &both[1].1, class) {
                Some(what) => Verdict::Differs(format!("{what}, at {sizes:?}")),
                None => Verdict::Equal,
            },
        };
    }
    Verdict::Skipped(why)
}

fn value(g: &Graph, inputs: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>> {
    interp::run(g, &|name: &str| Err(Error::defect(format!("`{name}` was not drawn"))), inputs)
}

/// Returns a graph of the first output, all inputs, and the nodes from which this output is computed.
fn alone(g: &Graph) -> Graph {
    let mut part = Graph { outputs: g.outputs[..1].to_vec(), ..g.clone() };
    let live = part.live();
    let mut map: Vec<Value> = vec![];
    part.nodes.clear();
    for (v, node) in g.values() {
        let args = node.args.iter().map(|a| map[a.index()]).collect();
        let kept = live[v.index()] || matches!(node.op, Op::Input { .. });
        map.push(if kept { part.push(Node { args, ..node.clone() }) } else { Value(0) });
    }
    part.outputs[0].1 = map[g.outputs[0].1.index()];
    part
}

/// Returns the sum over all nodes: the number of multiplications for a contraction, and the number of elements of the
/// result and the operands for any other node.
fn work(g: &Graph, sizes: &Sizes) -> i64 {
    let of = |node: &Node| {
        let value = |name: &str| sizes.get(name).copied();
        let count = |dims: &[Dim]| {
            let all = dims.iter().try_fold(1i64, |n, d| d.eval_named(&value).ok().map(|d| n.saturating_mul(d.max(0))));
            all.unwrap_or(i64::MAX)
        };
        if let Op::Contract(spec) = &node.op {
            let left = &g.ty(node.args[0]).dims;
            let summed = spec.left.iter().zip(left).filter(|(c, _)| !spec.result.contains(c));
            let summed: Vec<Dim> = summed.map(|(_, d)| d.clone()).collect();
            return count(&node.ty.dims).saturating_mul(count(&summed));
        }
        node.args.iter().map(|a| count(&g.ty(*a).dims)).fold(count(&node.ty.dims), i64::saturating_add)
    };
    g.nodes.iter().map(of).fold(0, i64::saturating_add)
}

fn operands(
    small: &Graph,
    free: &[(String, Value)],
    sizes: &Sizes,
    bounds: Bounds,
    how: &Draw,
    r: &mut Random,
) -> Option<Vec<(String, Tensor)>> {
    let value = |name: &str| sizes.get(name).copied();
    let draw = |(_, name, ty): (Value, &str, &TensorType)| {
        let dims = ty.dims.iter().map(|d| d.eval_named(&value).ok().and_then(|d| usize::try_from(d).ok()));
        let known = free.iter().find(|(n, _)| n == name).map(|(_, v)| bounds(*v));
        let known = known.unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
        Some((name.to_string(), tensor(ty.dtype, &dims.collect::<Option<Vec<_>>>()?, known, how, r)?))
    };
    small.inputs().map(draw).collect()
}
