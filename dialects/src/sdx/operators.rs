//! graph  =>  its operators: one per ONNX node, with the values that it reads from and writes for other operators
//!
//! An operator consists of all nodes that originate from one ONNX node (with the same origins; a node without origins
//! is an operator by itself). It reads each value of other operators once, and writes each value that others read once.
//!
//! Operations that only rearrange elements are not operators: `reshape`, `transpose`, `slice`, `window`, `broadcast`,
//! `place` and `bind` are *views*, and reading a view reads the elements of another value that the view shows. A value
//! whose elements are all the same known number, or that is an expression of the symbols, is *known*: it is part of the
//! code and is not read from memory. Concatenation, padding and gathering do move elements.
//!
//! Contractions that read the whole of the same value (Q, K and V; gate and up) read it once together: with
//! concatenated weights they are a single contraction. The source of these counts ("Data Movement Is All You Need",
//! 2021) counts them in the same way: its baseline has Q, K and V as one contraction.

use super::graph::{Graph, Node, Value};
use super::op::{Op, Role};
use std::collections::{BTreeMap, BTreeSet};

/// The nodes of one ONNX node, with what they read and write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operator {
    /// Nodes of the operator, without views.
    pub nodes: Vec<Value>,
    /// Values of other operators that are read, one entry each. A whole value that several contractions read is listed
    /// only in the first of them.
    pub reads: Vec<Read>,
    /// Values that other operators read, or that are outputs of the graph.
    pub writes: Vec<Value>,
}

/// What an operator reads of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The value that is read; it is not a view.
    pub root: Value,
    /// The root or views of it that the nodes read, each with the elements that are read.
    pub through: Vec<(Value, Reading)>,
}

/// Which elements of a value an operator reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reading {
    /// All elements that the value shows.
    All,
    /// Only the elements along an axis that the indices of this gather select.
    Gathered(Value),
}

/// Returns the value that a node is a view of; `None` if the node is no view.
pub fn viewed(node: &Node) -> Option<Value> {
    match node.op.role() {
        Role::View | Role::Marker => node.args.first().copied(),
        Role::Given | Role::Elementwise | Role::Reduction | Role::Product | Role::Copy | Role::Host => None,
    }
}

impl Graph {
    /// A group number that no host operation uses yet.
    pub fn next_group(&self) -> usize {
        let groups =
            self.nodes.iter().filter_map(|n| if let Op::Host(host) = &n.op { Some(host.group + 1) } else { None });
        groups.max().unwrap_or(0)
    }

    /// The value behind a chain of views.
    pub fn root(&self, mut v: Value) -> Value {
        while let Some(of) = viewed(self.node(v)) {
            v = of;
        }
        v
    }

    /// For each value, whether all its elements are one number known at compile time, or expressions of the symbols.
    pub fn known(&self) -> Vec<bool> {
        let mut known: Vec<bool> = vec![];
        for node in &self.nodes {
            let all = node.args.iter().all(|a| known[a.index()]);
            known.push(match &node.op {
                Op::Dims(_) => true,
                Op::Const(t) => {
                    let first = t.get_f64(0).map(f64::to_bits);
                    (0..t.len()).all(|i| t.get_f64(i).map(f64::to_bits) == first)
                }
                // A bound symbol is known only when the call runs.
                Op::Bind { .. } => false,
                op => match op.role() {
                    Role::Elementwise | Role::View | Role::Marker => all,
                    Role::Given | Role::Reduction | Role::Product | Role::Copy | Role::Host => false,
                },
            });
        }
        known
    }

    /// The operators that the outputs need, in the order of their last nodes.
    pub fn operators(&self) -> Vec<Operator> {
        let (live, known) = (self.live(), self.known());
        let given = |n: &Node| matches!(n.op, Op::Input { .. } | Op::Param { .. } | Op::Const(_) | Op::Dims(_));
        let computes = |v: Value| live[v.index()] && !known[v.index()] && viewed(self.node(v)).is_none();
        let mut groups: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
        for (v, node) in self.values().filter(|(v, n)| computes(*v) && !given(n)) {
            groups.entry(key(v, node)).or_default().push(v);
        }
        let mut groups: Vec<Vec<Value>> = groups.into_values().collect();
        groups.sort_by_key(|nodes| nodes.last().copied());
        let mut group_of = vec![None; self.nodes.len()];
        for (g, nodes) in groups.iter().enumerate() {
            nodes.iter().for_each(|v| group_of[v.index()] = Some(g));
        }
        let mut needed: BTreeSet<Value> = self.outputs.iter().map(|(_, v)| self.root(*v)).collect();
        let mut operators: Vec<Operator> = vec![];
        for (g, nodes) in groups.into_iter().enumerate() {
            let foreign = |v: Value| group_of[self.root(v).index()] != Some(g) && !known[self.root(v).index()];
            let reads = self.reads(&nodes, &foreign);
            needed.extend(reads.iter().map(|r| r.root));
            operators.push(Operator { nodes, reads, writes: vec![] });
        }
        for operator in &mut operators {
            operator.writes = operator.nodes.iter().copied().filter(|v| needed.contains(v)).collect();
        }
        self.share(&mut operators);
        operators
    }

    /// What nodes read of the values for which `foreign` holds.
    fn reads(&self, nodes: &[Value], foreign: &dyn Fn(Value) -> bool) -> Vec<Read> {
        let mut reads: BTreeMap<Value, BTreeSet<(Value, Reading)>> = BTreeMap::new();
        for &v in nodes {
            let node = self.node(v);
            for (i, &arg) in node.args.iter().enumerate().filter(|(_, a)| foreign(**a)) {
                let reading = match &node.op {
                    Op::Gather { .. } if i == 0 => Reading::Gathered(v),
                    _ => Reading::All,
                };
                reads.entry(self.root(arg)).or_default().insert((arg, reading));
            }
        }
        reads.into_iter().map(|(root, through)| Read { root, through: through.into_iter().collect() }).collect()
    }

    /// Removes from contractions the reads of whole values that an earlier contraction reads whole as well.
    fn share(&self, operators: &mut [Operator]) {
        let mut read = BTreeSet::new();
        for operator in operators {
            if !operator.nodes.iter().any(|v| matches!(self.node(*v).op, Op::Contract(_))) {
                continue;
            }
            let whole: BTreeSet<Value> = operator.reads.iter().filter(|r| self.is_whole(r)).map(|r| r.root).collect();
            operator.reads.retain(|r| !whole.contains(&r.root) || !read.contains(&r.root));
            read.extend(whole);
        }
    }

    /// Whether every element is read, through views that only rearrange them.
    fn is_whole(&self, read: &Read) -> bool {
        let arranged = |v: Value| {
            let mut v = v;
            while let Some(of) = viewed(self.node(v)) {
                if matches!(self.node(v).op, Op::Slice { .. } | Op::Window(_) | Op::Broadcast { .. }) {
                    return false;
                }
                v = of;
            }
            true
        };
        read.through.iter().any(|(v, reading)| *reading == Reading::All && arranged(*v))
    }
}

/// What the nodes of one operator have in common: their origins, or the node itself.
type Key = (Vec<String>, Option<Value>);

fn key(v: Value, node: &Node) -> Key {
    (node.origins.clone(), node.origins.is_empty().then_some(v))
}
