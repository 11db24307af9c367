//! the program of a rank  =>  its predicted time and memory: operations, collectives, bytes

use super::machine::{Machine, bytes, same_kind};
use super::search::work;
use super::space::products;
use crate::shard::{collective, fixed_values};
use crate::usual::Sizes;
use sardonyx_base::host::Collective;
use sardonyx_base::{Dim, Error, Result};
use sardonyx_dialects::sdx::{Graph, Node, Op, SymbolKind, TensorType, Value};
use std::collections::BTreeMap;

/// A plan's predicted time and bytes.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    /// Microseconds that operations other than collectives take in a call.
    pub compute_us: f64,
    /// Microseconds that collectives take in a call, overlapped or not.
    pub exchange_us: f64,
    /// The part of `exchange_us` that overlaps with computation.
    pub hidden_us: f64,
    /// Bytes of the weights of the rank that holds most of them.
    pub weight_bytes: f64,
    /// Peak bytes of values alive between operations, without fusion.
    pub activation_bytes: f64,
    /// The collectives, sorted by time, the longest first.
    pub exchanges: Vec<Exchange>,
    /// The fraction of the time in which the ranks of a pipeline are idle; `None` for other plans.
    pub bubble: Option<f64>,
}

/// All collectives of one kind and size.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// The collective. The dimension of an all-gather or reduce-scatter is given as 0, as it does not affect the time.
    pub op: Collective,
    /// Bytes of each of these collectives: those of the result of an all-gather, else those of a rank's operand.
    pub bytes: f64,
    /// Number of such collectives in a call.
    pub count: usize,
    /// Microseconds of all of them together.
    pub time_us: f64,
}

impl Estimate {
    /// Returns the microseconds of a call: computation, and the exchanges that do not overlap with it.
    pub fn time_us(&self) -> f64 {
        self.compute_us + self.waits_us()
    }

    /// Returns the microseconds of a call in which a rank waits for exchanges.
    pub fn waits_us(&self) -> f64 {
        self.exchange_us - self.hidden_us
    }

    /// Returns the bytes of weights and activations.
    pub fn bytes(&self) -> f64 {
        self.weight_bytes + self.activation_bytes
    }
}

/// A rank's program at given sizes; [`Local::new`] takes the first rank, whose coordinates are all 0.
pub struct Local<'g> {
    graph: &'g Graph,
    sizes: Sizes,
    elements: Vec<f64>,
    live: Vec<bool>,
    fixed: Vec<bool>,
}

/// The predicted microseconds of the operation that computes a value.
pub enum Time {
    Compute(f64),
    /// The collective, its bytes and its microseconds.
    Exchange(Collective, f64, f64),
}

impl<'g> Local<'g> {
    pub fn new(graph: &'g Graph, sizes: &Sizes) -> Result<Local<'g>> {
        let mut sizes = sizes.clone();
        let ranks = graph.symbols.iter().filter(|(_, s)| matches!(s.kind, SymbolKind::Rank { .. }));
        sizes.extend(ranks.map(|(name, _)| (name.clone(), 0)));
        Local::with_coordinates(graph, sizes)
    }

    /// Creates the program of the rank whose coordinates are given in `sizes`.
    pub fn with_coordinates(graph: &'g Graph, sizes: Sizes) -> Result<Local<'g>> {
        let (live, fixed) = (graph.live(), fixed_values(graph));
        let mut local = Local { graph, sizes, elements: vec![], live, fixed };
        let elements = graph.nodes.iter().map(|n| local.size(&n.ty.elements()));
        local.elements = elements.collect::<Result<Vec<f64>>>()?;
        Ok(local)
    }

    fn size(&self, d: &Dim) -> Result<f64> {
        Ok(d.eval_named(&|name| self.sizes.get(name).copied())? as f64)
    }

    pub fn bytes(&self, v: Value) -> f64 {
        bytes(self.elements[v.index()], self.graph.ty(v).dtype)
    }

    /// Returns the time of the operation that computes a value; zero if calls do not compute it. Errors: E0108 if a
    /// collective has too many messages to simulate.
    pub fn time(&self, v: Value, machine: &Machine) -> Result<Time> {
        if !self.live[v.index()] || self.fixed[v.index()] {
            return Ok(Time::Compute(0.0));
        }
        let node = self.graph.node(v);
        if let Some(op) = &collective(node) {
            let n = match op {
                Collective::AllGather { .. } => self.bytes(v),
                Collective::Halo { dim, before, after, .. } => {
                    let extent = self.size(&self.graph.ty(node.args[0]).dims[*dim])?;
                    self.bytes(node.args[0]) / extent.max(1.0) * (*before).max(*after) as f64
                }
                _ => self.bytes(node.args[0]),
            };
            let us = machine.exchange_us(op, n)?;
            if !us.is_finite() {
                let message = format!("`{op}` has more messages among so many ranks than are simulated");
                return Err(Error::user("E0108", message).help("give the mesh another axis"));
            }
            return Ok(Time::Exchange(*op, n, us));
        }
        let types: Vec<&TensorType> = node.args.iter().map(|arg| self.graph.ty(*arg)).collect();
        let operands: Vec<f64> = node.args.iter().map(|arg| self.elements[arg.index()]).collect();
        let products = products(self.graph, node, &|d| self.size(d))?;
        let work = work(node, &types, (&operands, self.elements[v.index()]), products);
        Ok(Time::Compute(machine.compute_us(work)))
    }

    /// Returns the bytes of the parameters for which `reads` holds, counting each parameter once.
    pub fn weight_bytes(&self, reads: &dyn Fn(Value) -> bool) -> f64 {
        let mut parameters: BTreeMap<String, f64> = BTreeMap::new();
        for (v, node) in self.graph.values().filter(|(v, _)| self.live[v.index()] && reads(*v)) {
            if let Op::Param { name, parts, .. } = &node.op {
                parameters.insert(format!("{name} {parts:?}"), self.bytes(v));
            }
        }
        parameters.values().fold(0.0, |all, n| all + n)
    }

    pub fn activation_bytes(&self) -> f64 {
        most_at_once(self.graph, &self.live, &self.fixed, &|v| self.bytes(v))
    }
}

pub fn estimate(graph: &Graph, sizes: &Sizes, machine: &Machine) -> Result<Estimate> {
    let local = Local::new(graph, sizes)?;
    let mut out = Estimate::default();
    let (mut exchanges, mut now, mut waited, mut under_way) = (Exchanges::default(), 0.0f64, 0.0f64, None);
    let mut made = vec![0.0f64; graph.nodes.len()];
    for (v, node) in graph.values() {
        let time = local.time(v, machine)?;
        let takes = if let Time::Compute(us) = time { Some(us) } else { None };
        if let Some((_, ends)) = under_way.take_if(|(of, _)| waits_for(graph, node, takes, *of)) {
            now = now.max(ends);
            waited = now;
        }
        match time {
            Time::Compute(us) => {
                out.compute_us += us;
                now += us;
                made[v.index()] = now;
            }
            Time::Exchange(op, bytes, us) => {
                out.exchange_us += us;
                exchanges.add(&op, bytes, us);
                let operand = made[graph.root(node.args[0]).index()];
                under_way = Some((v, operand.max(waited) + us));
                made[v.index()] = operand.max(waited) + us;
            }
        }
    }
    let ends = under_way.map_or(now, |(_, ends)| now.max(ends));
    out.hidden_us = out.compute_us + out.exchange_us - ends;
    out.weight_bytes = local.weight_bytes(&|_| true);
    out.activation_bytes = local.activation_bytes();
    out.exchanges = exchanges.largest_first();
    Ok(out)
}

/// Returns whether a node waits for the end of the exchange under way, as after the pass `overlap`: the node reads the
/// result of the exchange, or is an exchange itself. `takes` is the node's compute time in microseconds, `None` for an
/// exchange.
pub fn waits_for(graph: &Graph, node: &Node, takes: Option<f64>, under_way: Value) -> bool {
    let touches = |arg: &Value| graph.root(*arg) == under_way;
    // A node that takes no time is a view, or is not computed.
    takes.is_none_or(|us| us > 0.0 && node.args.iter().any(touches))
}

/// Collectives grouped by kind and bytes.
#[derive(Default)]
pub struct Exchanges(BTreeMap<(Collective, u64), Exchange>);

impl Exchanges {
    pub fn add(&mut self, op: &Collective, bytes: f64, time_us: f64) {
        let kind = same_kind(op);
        let one = self.0.entry((kind, bytes as u64));
        let one = one.or_insert(Exchange { op: kind, bytes, count: 0, time_us: 0.0 });
        one.count += 1;
        one.time_us += time_us;
    }

    pub fn largest_first(self) -> Vec<Exchange> {
        let mut all: Vec<Exchange> = self.0.into_values().collect();
        all.sort_by(|a, b| b.time_us.total_cmp(&a.time_us));
        all
    }
}

/// Returns the peak bytes of values that are alive at the same time, without fixed ones; a view takes no memory, and
/// keeps the value that it views alive.
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
