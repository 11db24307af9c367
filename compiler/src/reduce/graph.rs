//! an `sdx` function with a fault  =>  a smaller one that still has it

use super::{Search, fresh, sizes};
use sardonyx_base::{Dim, Tensor, dim};
use sardonyx_dialects::sdx::infer::result_type;
use sardonyx_dialects::sdx::{Graph, Node, Op, Symbol, SymbolKind, TensorType, Value};
use std::collections::BTreeSet;

/// Whether every node has the type that inference gives it.
pub fn is_valid(g: &Graph) -> bool {
    g.values().all(|(_, node)| {
        let args: Vec<&TensorType> = node.args.iter().map(|a| g.ty(*a)).collect();
        result_type(&node.op, &args, Some(&node.ty)).is_ok_and(|ty| ty == node.ty)
    })
}

/// Removes nodes, inputs, symbols and checks that no output needs.
pub fn compact(g: &Graph) -> Graph {
    let live = g.live();
    let mut out = Graph { nodes: vec![], outputs: vec![], ..g.clone() };
    let mut map = vec![Value(0); g.nodes.len()];
    for (v, node) in g.values().filter(|(v, _)| live[v.index()]) {
        let args = node.args.iter().map(|a| map[a.index()]).collect();
        map[v.index()] = out.push(Node { args, ..node.clone() });
    }
    out.outputs = g.outputs.iter().map(|(name, v)| (name.clone(), map[v.index()])).collect();
    let used: BTreeSet<String> =
        (out.nodes.iter().flat_map(|n| n.ty.dims.iter()).chain(out.nodes.iter().flat_map(|n| n.op.dims())))
            .flat_map(Dim::names)
            .map(|s| s.to_string())
            .collect();
    out.symbols.retain(|name, s| used.contains(name) && !matches!(s.kind, SymbolKind::Derived { .. }));
    out.checks.retain(|c| [&c.left, &c.right].iter().all(|d| d.names().iter().all(|s| used.contains(&**s))));
    out
}

/// Tries a compacted candidate; keeps it if it is valid and still has the fault.
fn accept(g: &mut Graph, search: &mut Search<Graph>, candidate: &Graph) -> bool {
    let candidate = compact(candidate);
    let good = is_valid(&candidate) && search.holds(&candidate);
    if good {
        *g = candidate;
    }
    good
}

pub fn reduce(g: &mut Graph, search: &mut Search<Graph>, hints: &[String]) {
    let whole = g.clone();
    accept(g, search, &whole);
    fix_symbols(g, search);
    one_output(g, search, hints);
    loop {
        let before = g.nodes.len();
        cut(g, search);
        bypass(g, search);
        hoist(g, search);
        if g.nodes.len() >= before || search.is_over() {
            break;
        }
    }
    leaves(g, search);
    shrink(g, search);
    tidy(g, search);
}

/// Each hinted node as the only output, with a growing number of the operations before it.
pub fn near(g: &Graph, hints: &[String]) -> impl Iterator<Item = Graph> {
    let hinted = |(_, n): &(Value, &Node)| computed(n) && n.origins.iter().any(|o| hints.contains(o));
    let alone: Vec<Graph> = g.values().filter(hinted).map(|(v, _)| compact(&with_output(g, v))).collect();
    [1, 2, 3, 4, 8, 16].into_iter().flat_map(move |limit| alone.clone().into_iter().map(move |g| within(&g, limit)))
}

/// Replaces values at least `limit` operations before the output by inputs.
fn within(g: &Graph, limit: usize) -> Graph {
    let far = distances(g);
    compact(&with_inputs(g, &|v, n| computed(n) && far[v.index()] >= limit))
}

fn computed(n: &Node) -> bool {
    !n.args.is_empty()
}

/// Replaces symbols by small constants.
pub fn fix_symbols(g: &mut Graph, search: &mut Search<Graph>) {
    for name in
        g.symbols.iter().filter(|(_, s)| s.kind == SymbolKind::Input).map(|(n, _)| n.clone()).collect::<Vec<_>>()
    {
        let Some(Symbol { lo, hi, .. }) = g.symbols.get(&name).cloned() else { continue };
        for n in [2, 1, 3, 5].into_iter().filter(|n| *n >= lo && hi.is_none_or(|hi| *n <= hi)) {
            if accept(g, search, &substituted(g, &|s| (*s == *name).then(|| Dim::constant(n)))) {
                break;
            }
        }
    }
}

fn substituted(g: &Graph, by: &dyn Fn(&dim::Symbol) -> Option<Dim>) -> Graph {
    let mut out = g.clone();
    for node in &mut out.nodes {
        node.ty.dims.iter_mut().for_each(|d| *d = d.substitute(by));
        node.op.dims_mut().into_iter().for_each(|d| *d = d.substitute(by));
    }
    for check in &mut out.checks {
        (check.left, check.right) = (check.left.substitute(by), check.right.substitute(by));
    }
    out.checks.retain(|c| c.left != c.right);
    out
}

fn with_output(g: &Graph, v: Value) -> Graph {
    Graph { outputs: vec![("y".into(), v)], ..g.clone() }
}

/// Makes one value the only output: a hinted node, or else the earliest one that bisection finds.
fn one_output(g: &mut Graph, search: &mut Search<Graph>, hints: &[String]) {
    let whole = g.clone();
    let hinted = whole.values().filter(|(_, n)| computed(n) && n.origins.iter().any(|o| hints.contains(o)));
    for (v, _) in hinted {
        if accept(g, search, &with_output(&whole, v)) {
            return;
        }
    }
    for (_, v) in &whole.outputs {
        if accept(g, search, &with_output(&whole, *v)) {
            break;
        }
    }
    let whole = g.clone();
    let [(_, last)] = whole.outputs.as_slice() else { return };
    let (mut low, mut high) = (0, last.index());
    while low < high {
        let middle = (low + high) / 2;
        match accept(g, search, &with_output(&whole, Value(middle as u32))) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
}

/// Makes an operand of the output the new output, repeatedly, as long as the fault remains.
fn hoist(g: &mut Graph, search: &mut Search<Graph>) {
    while let [(_, v)] = g.outputs.as_slice() {
        let whole = g.clone();
        let operands = whole.node(*v).args.clone();
        if !operands.into_iter().any(|a| accept(g, search, &with_output(&whole, a))) {
            break;
        }
    }
}

/// Replaces values by inputs of their types.
fn with_inputs(g: &Graph, cut: &dyn Fn(Value, &Node) -> bool) -> Graph {
    let mut out = g.clone();
    let mut names = fresh(g.inputs().map(|(_, name, _)| name.to_string()).collect());
    for (v, node) in g.values().filter(|(v, n)| !matches!(n.op, Op::Input { .. }) && cut(*v, n)) {
        let name = names.next().unwrap_or_default();
        out.nodes[v.index()] = Node { op: Op::Input { name, parts: vec![] }, args: vec![], ..node.clone() };
    }
    // Inputs have to come first.
    let (mut order, mut rest): (Vec<usize>, Vec<usize>) = (vec![], vec![]);
    (0..out.nodes.len()).for_each(|i| match out.nodes[i].op {
        Op::Input { .. } => order.push(i),
        _ => rest.push(i),
    });
    order.extend(rest);
    let mut place = vec![Value(0); order.len()];
    order.iter().enumerate().for_each(|(to, &from)| place[from] = Value(to as u32));
    let moved = |&i: &usize| {
        let node = out.nodes[i].clone();
        Node { args: node.args.iter().map(|a| place[a.index()]).collect(), ..node }
    };
    let nodes = order.iter().map(moved).collect();
    let outputs = out.outputs.iter().map(|(name, v)| (name.clone(), place[v.index()])).collect();
    Graph { nodes, outputs, ..out }
}

/// Number of operations between each value and the nearest output.
fn distances(g: &Graph) -> Vec<usize> {
    let mut out = vec![usize::MAX; g.nodes.len()];
    g.outputs.iter().for_each(|(_, v)| out[v.index()] = 0);
    // Consumers come after producers.
    for i in (0..g.nodes.len()).rev() {
        let far = out[i].saturating_add(1);
        g.nodes[i].args.iter().for_each(|a| out[a.index()] = out[a.index()].min(far));
    }
    out
}

fn cut(g: &mut Graph, search: &mut Search<Graph>) {
    let whole = g.clone();
    for limit in [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64] {
        if accept(g, search, &within(&whole, limit)) {
            break;
        }
    }
    // Cuts ranges of values, large ranges first and single values last.
    let mut size = g.nodes.len() / 2;
    while size > 0 && !search.is_over() {
        let mut at = 0;
        while at < g.nodes.len() {
            let whole = g.clone();
            let inside = |v: Value| (at..at + size).contains(&v.index()) && !is_output(&whole, v);
            let any = whole.values().any(|(v, n)| computed(n) && inside(v));
            if !any || !accept(g, search, &with_inputs(&whole, &|v, n| computed(n) && inside(v))) {
                at += size;
            }
        }
        size /= 2;
    }
}

fn is_output(g: &Graph, v: Value) -> bool {
    g.outputs.iter().any(|(_, o)| *o == v)
}

/// Replaces a value by an operand of the same type.
fn bypass(g: &mut Graph, search: &mut Search<Graph>) {
    let mut at = 0;
    while at < g.nodes.len() && !search.is_over() {
        let whole = g.clone();
        let node = &whole.nodes[at];
        let alike = node.args.iter().filter(|a| *whole.ty(**a) == node.ty);
        let done = alike.into_iter().any(|a| {
            let mut candidate = whole.clone();
            let swap = |v: &mut Value| *v = if v.index() == at { *a } else { *v };
            candidate.nodes.iter_mut().flat_map(|n| &mut n.args).for_each(swap);
            candidate.outputs.iter_mut().for_each(|(_, v)| swap(v));
            accept(g, search, &candidate)
        });
        at += if done { 0 } else { 1 };
    }
}

/// Replaces parameters, iotas and constants of several elements by inputs.
fn leaves(g: &mut Graph, search: &mut Search<Graph>) {
    let whole = g.clone();
    let large = |n: &Node| match &n.op {
        Op::Const(t) => t.len() > 1,
        op => matches!(op, Op::Param { .. } | Op::Iota { .. }),
    };
    if !accept(g, search, &with_inputs(&whole, &|_, n| large(n))) {
        for i in 0..whole.nodes.len() {
            let now = g.clone();
            accept(g, search, &with_inputs(&now, &|v, n| v.index() == i && large(n)));
        }
    }
}

/// Reduces the sizes of dimensions.
fn shrink(g: &mut Graph, search: &mut Search<Graph>) {
    while !search.is_over() {
        let found: BTreeSet<i64> = g.nodes.iter().flat_map(|n| &n.ty.dims).filter_map(Dim::as_const).collect();
        let changes = sizes::changes(&found);
        let whole = g.clone();
        if !changes.iter().any(|change| accept(g, search, &resized(&whole, change))) {
            break;
        }
    }
}

fn resized(g: &Graph, change: &[(i64, i64)]) -> Graph {
    let to = |d: &Dim| match change.iter().find(|(from, _)| d.is_const(*from)) {
        Some((_, to)) => Dim::constant(*to),
        None => d.clone(),
    };
    let mut out = g.clone();
    for node in &mut out.nodes {
        node.ty.dims = node.ty.dims.iter().map(to).collect();
        node.op.dims_mut().into_iter().for_each(|d| *d = to(d));
        if let (Op::Const(t), Some(dims)) = (&node.op, node.ty.static_dims()) {
            node.op = Op::Const(resized_tensor(t, dims));
        }
    }
    out
}

/// A constant with dimensions `dims`, whose elements are those of `t`, repeated cyclically if `t` has too few.
fn resized_tensor(t: &Tensor, dims: Vec<usize>) -> Tensor {
    let wanted = dims.iter().product::<usize>() * (t.dtype().bytes());
    let bytes: Vec<u8> = t.bytes().iter().copied().cycle().take(wanted).collect();
    Tensor::new(t.dtype(), dims, bytes.into()).unwrap_or_else(|_| t.clone())
}

/// Replaces names by short ones, and drops checks and origins.
fn tidy(g: &mut Graph, search: &mut Search<Graph>) {
    let mut plain = g.clone();
    plain.checks.clear();
    plain.nodes.iter_mut().for_each(|n| n.origins.clear());
    let (mut names, n_outputs) = (0.., plain.outputs.len());
    for node in &mut plain.nodes {
        if let Op::Input { name, .. } = &mut node.op {
            *name = format!("x{}", names.next().unwrap_or(0));
        }
    }
    plain.outputs.iter_mut().enumerate().for_each(|(i, (name, _))| {
        *name = if n_outputs == 1 { "y".into() } else { format!("y{i}") };
    });
    plain.name = "reduced".into();
    accept(g, search, &plain);
}
