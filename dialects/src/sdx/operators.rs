//! graph  =>  its operators: one for each ONNX node, with the values that it reads from others and gives to others
//!
//! An operator is all nodes of one ONNX node (of the same origins; a node without origins is one by itself). It reads
//! each value of others once and writes each value that others read once.
//!
//! What only says where elements stand is no operator: `reshape`, `transpose`, `slice`, `window`, `broadcast` and
//! `bind` are *views*, and reading one reads the elements that it shows. A value that is the same known number everywhere, and an
//! expression of the symbols, is *known*: it is in the code, not in memory. Concatenation, padding and gathering move.
//!
//! Products that read one value whole (Q, K and V, gate and up) read it once together: with their weights side by side
//! they are one product, and so they are counted in the source ("Data Movement Is All You Need", 2021), whose baseline
//! has Q, K and V as one contraction.

use super::graph::{Graph, Node, Op, Value};
use std::collections::{BTreeMap, BTreeSet};

/// What one ONNX node does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operator {
    /// Its nodes, views left out.
    pub nodes: Vec<Value>,
    pub reads: Vec<Read>,
    /// Values that others need, as inputs or as outputs of the graph.
    pub writes: Vec<Value>,
}

/// What an operator reads of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// No view.
    pub root: Value,
    /// The root or views of it, each with how it is read.
    pub through: Vec<(Value, Reading)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reading {
    /// All elements that it shows.
    All,
    /// Those along an axis that the indices of this gather name.
    Gathered(Value),
}

/// A value that another one shows in another form.
pub fn viewed(node: &Node) -> Option<Value> {
    match &node.op {
        Op::Reshape | Op::Transpose { .. } | Op::Slice { .. } | Op::Window(_) => node.args.first().copied(),
        Op::Broadcast { .. } | Op::Bind { .. } | Op::Place(_) => node.args.first().copied(),
        Op::Input { .. } | Op::Param { .. } | Op::Const(_) | Op::Dims(_) => None,
        Op::Map(_) | Op::Convert(_) | Op::Reduce { .. } | Op::Contract(_) => None,
        Op::Gather { .. } | Op::Pad { .. } | Op::Concat { .. } | Op::Append { .. } | Op::Iota { .. } => None,
        Op::Host(_) => None,
    }
}

impl Graph {
    /// A number that no host operation's results have yet.
    pub fn next_group(&self) -> usize {
        let groups =
            self.nodes.iter().filter_map(|n| if let Op::Host(host) = &n.op { Some(host.group + 1) } else { None });
        groups.max().unwrap_or(0)
    }

    /// The value that is no view behind a value.
    pub fn root(&self, mut v: Value) -> Value {
        while let Some(of) = viewed(self.node(v)) {
            v = of;
        }
        v
    }

    /// Per value whether it is one number everywhere that the code knows, or a list of expressions of the symbols.
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
                Op::Map(_) | Op::Convert(_) | Op::Place(_) => all,
                Op::Reshape | Op::Transpose { .. } | Op::Slice { .. } | Op::Broadcast { .. } => all,
                Op::Window(_) => all,
                Op::Input { .. } | Op::Param { .. } | Op::Reduce { .. } | Op::Contract(_) => false,
                Op::Gather { .. } | Op::Pad { .. } | Op::Concat { .. } | Op::Append { .. } => false,
                Op::Iota { .. } | Op::Bind { .. } | Op::Host(_) => false,
            });
        }
        known
    }

    /// The operators that outputs need, in the order of their last nodes.
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

    /// What nodes read of values for which `foreign` holds.
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

    /// Leaves out what a contraction reads whole and an earlier one did, too.
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

    /// Every element is read, and through views that only arrange.
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

/// What nodes of one operator have in common.
type Key = (Vec<String>, Option<Value>);

fn key(v: Value, node: &Node) -> Key {
    (node.origins.clone(), node.origins.is_empty().then_some(v))
}
