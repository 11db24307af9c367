//! the program of a rank  =>  what it takes: its operations, its collectives, its bytes

use super::machine::{Machine, bytes, same_kind};
use super::search::work;
use super::space::products;
use crate::shard::fixed_values;
use crate::usual::Sizes;
use sardonyx_base::host::Collective;
use sardonyx_base::{Dim, HostOp, Result};
use sardonyx_dialects::sdx::{Graph, Op, SymbolKind, TensorType, Value};
use std::collections::BTreeMap;

/// What is predicted of a plan.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    pub compute_us: f64,
    pub exchange_us: f64,
    /// Of the first rank, which has no less than any.
    pub weight_bytes: f64,
    /// The most that lies between operations at one time, where nothing is fused.
    pub activation_bytes: f64,
    /// The largest first.
    pub exchanges: Vec<Exchange>,
}

/// Collectives of one kind and size.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    pub op: Collective,
    pub bytes: f64,
    pub count: usize,
    /// Of all of them.
    pub time_us: f64,
}

impl Estimate {
    pub fn time_us(&self) -> f64 {
        self.compute_us + self.exchange_us
    }

    pub fn bytes(&self) -> f64 {
        self.weight_bytes + self.activation_bytes
    }
}

/// Of the first rank: each is 0 along every axis.
pub fn estimate(graph: &Graph, sizes: &Sizes, machine: &Machine) -> Result<Estimate> {
    let mut sizes = sizes.clone();
    let ranks = graph.symbols.iter().filter(|(_, s)| matches!(s.kind, SymbolKind::Rank { .. }));
    sizes.extend(ranks.map(|(name, _)| (name.clone(), 0)));
    let size = |d: &Dim| -> Result<f64> { Ok(d.eval(&|name| sizes.get(name).copied())? as f64) };
    let elements = graph.nodes.iter().map(|n| size(&n.ty.elements())).collect::<Result<Vec<f64>>>()?;
    let bytes_of = |v: Value| bytes(elements[v.index()], graph.ty(v).dtype);
    let (live, fixed) = (graph.live(), fixed_values(graph));
    let mut out = Estimate::default();
    let mut exchanges: BTreeMap<(Collective, u64), Exchange> = BTreeMap::new();
    let mut parameters: BTreeMap<String, f64> = BTreeMap::new();
    for (v, node) in graph.values().filter(|(v, _)| live[v.index()]) {
        if let Op::Param { name, parts, .. } = &node.op {
            parameters.insert(format!("{name} {parts:?}"), bytes_of(v));
        }
        if fixed[v.index()] {
            continue;
        }
        if let Op::Host(host) = &node.op
            && let HostOp::Collective(op) = &host.op
        {
            let n = match op {
                Collective::AllGather { .. } => bytes_of(v),
                _ => bytes_of(node.args[0]),
            };
            let time_us = machine.exchange_us(op, n)?;
            out.exchange_us += time_us;
            let kind = same_kind(op);
            let one =
                exchanges.entry((kind, n as u64)).or_insert(Exchange { op: kind, bytes: n, count: 0, time_us: 0.0 });
            one.count += 1;
            one.time_us += time_us;
            continue;
        }
        let types: Vec<&TensorType> = node.args.iter().map(|arg| graph.ty(*arg)).collect();
        let operands: Vec<f64> = node.args.iter().map(|arg| elements[arg.index()]).collect();
        let work = work(node, &types, (&operands, elements[v.index()]), products(graph, node, &size)?);
        out.compute_us += machine.compute_us(work);
    }
    out.weight_bytes = parameters.values().fold(0.0, |all, n| all + n);
    out.activation_bytes = most_at_once(graph, &live, &fixed, &bytes_of);
    out.exchanges = exchanges.into_values().collect();
    out.exchanges.sort_by(|a, b| b.time_us.total_cmp(&a.time_us));
    Ok(out)
}

/// The bytes of values that are needed at one time, views being what they view.
fn most_at_once(graph: &Graph, live: &[bool], fixed: &[bool], bytes_of: &dyn Fn(Value) -> f64) -> f64 {
    let root = |v: Value| graph.root(v);
    let mut left = vec![0usize; graph.nodes.len()];
    for (_, node) in graph.values().filter(|(v, _)| live[v.index()] && root(*v) == *v) {
        node.args.iter().for_each(|arg| left[root(*arg).index()] += 1);
    }
    graph.outputs.iter().for_each(|(_, v)| left[root(*v).index()] += 1);
    let (mut now, mut most) = (0.0, 0.0f64);
    let counts = |v: Value| live[v.index()] && !fixed[v.index()] && root(v) == v;
    for (v, node) in graph.values().filter(|(v, _)| counts(*v)) {
        now += bytes_of(v);
        most = most.max(now);
        let mut ends = |v: Value| {
            left[v.index()] -= 1;
            if left[v.index()] == 0 && counts(v) {
                now -= bytes_of(v);
            }
        };
        node.args.iter().for_each(|arg| ends(root(*arg)));
        if left[v.index()] == 0 {
            now -= bytes_of(v);
        }
    }
    most
}
