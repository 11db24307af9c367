//! a choice of nodes  =>  sdx graph, in the original function's order; replacements take the origins of replaced nodes

use super::cost::{Rates, nominal, spelling};
use super::expr::Site;
use super::extract::{Alternative, Budget, Choice, Problem, extract};
use super::language::{EGraph, ENode};
use egg::Id;
use sardonyx_dialects::sdx::{Graph, Node, Op, SymbolKind, Value};
use std::collections::{BTreeMap, BTreeSet};

/// E-classes by index, their nodes, and the extraction problem over them.
struct Classes<'a> {
    index: BTreeMap<Id, usize>,
    ids: Vec<Id>,
    nodes: Vec<Vec<&'a ENode>>,
    problem: Problem,
}

pub struct Rebuilt {
    pub graph: Graph,
    pub cost_before: u64,
    pub cost_after: u64,
    pub proved: bool,
    /// For each node of the graph, the e-class and the e-node that it comes from.
    pub nodes: Vec<(Id, ENode)>,
}

/// Returns the cheapest function that is found in the e-graph within the budget; `None` if the nodes depend on each
/// other in a cycle.
pub fn rebuild(egraph: &EGraph, graph: &Graph, ids: &[Id], rates: &Rates, budget: &Budget) -> Option<Rebuilt> {
    let classes = classes(egraph, graph, ids, rates);
    let start = as_it_was(egraph, graph, ids, &classes)?;
    let cost_before = super::extract::total(&classes.problem, &start)?;
    let extracted = extract(&classes.problem, start, budget)?;
    let (new, nodes) = write(egraph, graph, ids, &classes, &extracted.choice)?;
    Some(Rebuilt { graph: new, cost_before, cost_after: extracted.cost, proved: extracted.proved, nodes })
}

fn classes<'a>(egraph: &'a EGraph, graph: &Graph, ids: &[Id], rates: &Rates) -> Classes<'a> {
    let mut all: Vec<Id> = egraph.classes().map(|c| c.id).collect();
    all.sort();
    let index: BTreeMap<Id, usize> = all.iter().enumerate().map(|(i, id)| (*id, i)).collect();
    let extents: BTreeMap<&str, i64> = graph.symbols.iter().map(|(n, s)| (n.as_str(), nominal(s.lo, s.hi))).collect();
    let extent = |name: &str| extents.get(name).copied().unwrap_or_else(|| nominal(0, None));
    let mut spellings: Vec<Option<String>> = vec![None; egraph.analysis.table.len()];
    let mut out = Classes { index, ids: all, nodes: vec![], problem: Problem::default() };
    for &id in &out.ids {
        // A node that needs its own class cannot be part of a finite expression.
        let mut nodes: Vec<&ENode> =
            egraph[id].nodes.iter().filter(|n| n.args.iter().all(|a| egraph.find(*a) != id)).collect();
        if nodes.len() > 1 {
            for n in &nodes {
                spellings[n.op.index()].get_or_insert_with(|| spelling(egraph.analysis.table.op(n.op)));
            }
            nodes.sort_by(|a, b| (&spellings[a.op.index()], &a.args).cmp(&(&spellings[b.op.index()], &b.args)));
        }
        let alternative = |node: &&ENode| Alternative {
            cost: rates.picoseconds(&Site { egraph, class: id, node }, &extent),
            needs: node.args.iter().map(|a| out.index[&egraph.find(*a)]).collect(),
        };
        out.problem.classes.push(nodes.iter().map(alternative).collect());
        out.nodes.push(nodes);
    }
    let bindings = graph.values().filter(|(_, n)| !n.op.binds().is_empty()).map(|(v, _)| v);
    let roots = graph.outputs.iter().map(|(_, v)| *v).chain(bindings);
    out.problem.roots = roots.map(|v| out.index[&egraph.find(ids[v.index()])]).collect();
    out
}

/// Chooses for each class its first node in the original function; classes that rules created keep the greedy choice.
fn as_it_was(egraph: &EGraph, graph: &Graph, ids: &[Id], classes: &Classes) -> Option<Choice> {
    let mut choice = super::extract::greedy(&classes.problem);
    let mut done = vec![false; choice.len()];
    for (v, node) in graph.values() {
        let c = classes.index[&egraph.find(ids[v.index()])];
        if std::mem::replace(&mut done[c], true) {
            continue;
        }
        let op = &egraph.id_to_node(ids[v.index()]).op;
        let args: Vec<Id> = node.args.iter().map(|a| egraph.find(ids[a.index()])).collect();
        let same = |n: &&ENode| n.op == *op && n.args.iter().map(|a| egraph.find(*a)).eq(args.iter().copied());
        // The first node of a class cannot need that class: its operand would then be an earlier node of the class.
        choice[c] = classes.nodes[c].iter().position(same)?;
    }
    Some(choice)
}

struct Writer<'a> {
    egraph: &'a EGraph,
    graph: &'a Graph,
    classes: &'a Classes<'a>,
    choice: &'a Choice,
    /// Index of the class that binds each data-dependent symbol.
    bindings: BTreeMap<String, usize>,
    values: Vec<Option<Value>>,
    open: Vec<bool>,
    out: Graph,
    nodes: Vec<(Id, ENode)>,
}

fn write(
    egraph: &EGraph,
    graph: &Graph,
    ids: &[Id],
    classes: &Classes,
    choice: &Choice,
) -> Option<(Graph, Vec<(Id, ENode)>)> {
    let n = classes.ids.len();
    let class = |v: Value| classes.index[&egraph.find(ids[v.index()])];
    let bound =
        graph.values().flat_map(|(v, n)| n.op.binds().into_iter().map(move |symbol| (symbol.to_string(), class(v))));
    let mut needed = vec![false; n];
    super::extract::order(&classes.problem, choice)?.into_iter().for_each(|c| needed[c] = true);
    let out = Graph { nodes: vec![], outputs: vec![], ..graph.clone() };
    let mut w = Writer {
        egraph,
        graph,
        classes,
        choice,
        bindings: bound.collect(),
        values: vec![None; n],
        open: vec![false; n],
        out,
        nodes: vec![],
    };
    // Inputs stay even if they are unused; other nodes stay only if they are needed. The original order is kept.
    for (v, node) in graph.values() {
        if matches!(node.op, Op::Input { .. }) || needed[class(v)] {
            w.emit(class(v))?;
        }
    }
    let outputs: Option<Vec<(String, Value)>> =
        graph.outputs.iter().map(|(name, v)| Some((name.clone(), w.emit(class(*v))?))).collect();
    w.out.outputs = outputs?;
    let values: Vec<Option<Value>> = graph.values().map(|(v, _)| w.values[class(v)]).collect();
    move_origins(graph, &values, &mut w.out);
    super::normal::order_operands(&mut w.out);
    Some((w.out, w.nodes))
}

impl Writer<'_> {
    fn emit(&mut self, class: usize) -> Option<Value> {
        if let Some(v) = self.values[class] {
            return Some(v);
        }
        if std::mem::replace(&mut self.open[class], true) {
            return None;
        }
        let node = self.classes.nodes[class][self.choice[class]];
        let (op, ty) = (
            self.egraph.analysis.table.op(node.op),
            self.egraph.analysis.table.ty(self.egraph.analysis.table.ty_of(node.op)),
        );
        let args: Vec<Value> = self.classes.problem.classes[class][self.choice[class]]
            .needs
            .clone()
            .into_iter()
            .map(|c| self.emit(c))
            .collect::<Option<_>>()?;
        if !self.bindings.is_empty() {
            let own = self.own(op);
            let symbols = &self.graph.symbols;
            let data = |s: &str| symbols.get(s).is_some_and(|s| s.kind == SymbolKind::Data) && !own.contains(s);
            let mentioned: Vec<usize> = mentioned(op, &ty.dims)
                .into_iter()
                .filter(|s| data(s))
                .filter_map(|s| self.bindings.get(&s).copied())
                .collect();
            for binding in mentioned {
                self.emit(binding)?;
            }
        }
        let v = self.out.push(Node { op: op.clone(), args, ty: ty.clone(), origins: vec![] });
        self.nodes.push((self.classes.ids[class], node.clone()));
        self.values[class] = Some(v);
        Some(v)
    }
}

impl Writer<'_> {
    /// The symbols bound by an operation, or by another result of the same host call.
    fn own(&self, op: &Op) -> BTreeSet<String> {
        let Op::Host(host) = op else { return op.binds().into_iter().map(str::to_string).collect() };
        let same = |n: &&Node| matches!(&n.op, Op::Host(other) if other.same_run(host));
        self.graph.nodes.iter().filter(same).flat_map(|n| n.op.binds()).map(str::to_string).collect()
    }
}

fn mentioned(op: &Op, dims: &[sardonyx_base::Dim]) -> Vec<String> {
    op.dims().into_iter().chain(dims).flat_map(|d| d.names()).map(|s| s.to_string()).collect()
}

/// Names of origins by number. Lists of numbers are joined faster than lists of names, and the list of each old node is
/// joined to other lists.
struct Origins<'a> {
    names: Vec<&'a str>,
    /// By name: the number of the last join in which the name occurred.
    seen: Vec<usize>,
    joins: usize,
}

impl<'a> Origins<'a> {
    fn new(graph: &'a Graph) -> (Origins<'a>, Vec<Vec<usize>>) {
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut names = vec![];
        let mut number = |name: &'a String| {
            *numbers.entry(name).or_insert_with(|| {
                names.push(name.as_str());
                names.len() - 1
            })
        };
        let lists = graph.nodes.iter().map(|n| n.origins.iter().map(&mut number).collect()).collect();
        (Origins { seen: vec![0; names.len()], names, joins: 0 }, lists)
    }

    /// Appends the origins of `from` that `to` lacks, in order.
    fn join(&mut self, to: &mut Vec<usize>, from: &[usize]) {
        self.joins += 1;
        to.iter().for_each(|o| self.seen[*o] = self.joins);
        to.extend(from.iter().filter(|o| std::mem::replace(&mut self.seen[**o], self.joins) != self.joins));
    }
}

/// Moves the origins of each old node to the new node with the same value or, if there is none, to its consumers. A new
/// node that then has no origins, because a rewrite rule created it, takes those of its first consumer or, if that is a
/// slice, those of all slices that read it.
fn move_origins(graph: &Graph, values: &[Option<Value>], out: &mut Graph) {
    let (mut origins, mut moved) = Origins::new(graph);
    let mut made: Vec<Vec<usize>> = vec![vec![]; out.nodes.len()];
    let mut users: Vec<Vec<usize>> = vec![vec![]; graph.nodes.len()];
    for (v, node) in graph.values() {
        node.args.iter().for_each(|a| users[a.index()].push(v.index()));
    }
    for i in 0..graph.nodes.len() {
        let own = std::mem::take(&mut moved[i]);
        match values[i] {
            Some(v) if !matches!(out.node(v).op, Op::Input { .. }) => origins.join(&mut made[v.index()], &own),
            Some(_) | None => users[i].iter().for_each(|&u| origins.join(&mut moved[u], &own)),
        }
    }
    let mut readers: Vec<Vec<usize>> = vec![vec![]; out.nodes.len()];
    for (v, node) in out.values() {
        let args: BTreeSet<usize> = node.args.iter().map(|a| a.index()).collect();
        args.into_iter().for_each(|a| readers[a].push(v.index()));
    }
    for i in (0..out.nodes.len()).rev() {
        let leaf = matches!(out.nodes[i].op, Op::Input { .. } | Op::Param { .. });
        if leaf || !made[i].is_empty() {
            continue;
        }
        let is_part = |reader: &usize| matches!(out.nodes[*reader].op, Op::Slice { .. });
        // A merged value, which slices read, takes the origins of all its slices.
        let in_parts = readers[i].first().is_some_and(is_part);
        let takes = readers[i].iter().filter(|reader| !in_parts || is_part(reader));
        let mut own = vec![];
        takes.take(if in_parts { usize::MAX } else { 1 }).for_each(|reader| origins.join(&mut own, &made[*reader]));
        made[i] = own;
    }
    for (node, made) in out.nodes.iter_mut().zip(made) {
        node.origins = made.into_iter().map(|o| origins.names[o].to_string()).collect();
    }
}
