//! the program of all ranks, a described cluster  =>  what each rank does when, and what each link carries
//!
//! Every rank goes through the program in its order: it computes what it needs, and exchanges the messages that the runtime
//! exchanges (`schedule::direct`), which share the links of the topology. Which rank needs what is what the runtime finds
//! (`runtime/src/program/needed.rs`).

use super::estimate::{Local, Time, waits_for};
use super::machine::{Machine, Times};
use crate::shard::collective;
use crate::usual::Sizes;
use sardonyx_base::host::Collective;
use sardonyx_base::schedule::{Operand, Rounds, direct};
use sardonyx_base::{Dim, HostOp, Result};
use sardonyx_cluster::{Outcome, Simulation, Topology, among};
use sardonyx_dialects::sdx::{Graph, Node, Op, SymbolKind, Value};
use sardonyx_kernels::Rates;
use std::collections::BTreeMap;

/// Up to so many ranks each computes parts of its own size; of more, all take what the first one does.
const OWN_SIZES_MAX: usize = 64;

/// What a rank did, in microseconds from the start of the call.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub rank: usize,
    pub start: f64,
    pub end: f64,
    /// The ONNX node, and what was done for it.
    pub node: String,
    pub what: String,
    pub is_exchange: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Run {
    pub outcome: Outcome,
    /// Those of one rank in their order.
    pub events: Vec<Event>,
    /// By rank: when it was done, and how long it computed.
    pub ended: Vec<f64>,
    pub computed: Vec<f64>,
    /// By rank: the bytes that it took of others.
    pub taken: Vec<u64>,
}

/// `graph` is split over the mesh. `with_events`: what every rank does is kept.
pub fn simulated(
    graph: &Graph,
    sizes: &Sizes,
    topology: &Topology,
    rates: Rates,
    mesh: &[i64],
    with_events: bool,
) -> Result<Run> {
    let times = Times::default();
    let machine = Machine::new(topology, rates, mesh, &times);
    let mesh: Vec<usize> = mesh.iter().map(|n| usize::try_from(*n).unwrap_or(1)).collect();
    let n: usize = mesh.iter().product();
    topology.check_ranks(n)?;
    let takes = taking_part(graph, &mesh);
    let sized = if n <= OWN_SIZES_MAX { n } else { 1 };
    let sizes: Vec<Sizes> = (0..n).map(|rank| sizes_of_rank(graph, sizes, &mesh, rank)).collect();
    let locals = sizes[..sized].iter().map(|sizes| Local::with_coordinates(graph, sizes.clone()));
    let locals = locals.collect::<Result<Vec<Local>>>()?;
    let mut simulation = Simulation::new(topology, n);
    // What each rank has begun: when that ends; when it last waited; when it had made what it brings to collectives.
    let mut under_way: Option<(Value, Vec<f64>)> = None;
    let mut waited = vec![0.0f64; n];
    let operands = graph.nodes.iter().filter(|node| collective(node).is_some()).map(|node| graph.root(node.args[0]));
    let mut made: BTreeMap<Value, Vec<f64>> = operands.map(|v| (v, vec![0.0; n])).collect();
    let mut run = Run { computed: vec![0.0; n], taken: vec![0; n], ..Run::default() };
    for (v, node) in graph.values() {
        let ranks = &takes[v.index()];
        let time = locals[0].time(v, &machine)?;
        if let Some((_, ends)) = under_way.take_if(|(of, _)| waits_for(graph, node, &time, *of)) {
            for (rank, end) in ends.iter().enumerate() {
                simulation.wait_until(rank, *end);
                waited[rank] = simulation.ended(rank);
            }
        }
        let mut begun: Vec<f64> = (0..n).map(|rank| simulation.ended(rank)).collect();
        let exchange = collective(node);
        match exchange {
            Some(op) => {
                let schedules = schedules(graph, node, &op, (&mesh, &sizes), ranks)?;
                for (rank, rounds) in schedules.iter().enumerate() {
                    let moves = rounds.iter().flatten().filter(|m| m.from.rank() != rank);
                    run.taken[rank] += moves.map(|m| m.bytes as u64).sum::<u64>();
                }
                let operand = &made[&graph.root(node.args[0])];
                begun = operand.iter().zip(&waited).map(|(made, waited)| made.max(*waited)).collect();
                under_way = Some((v, simulation.begin(begun.clone(), &schedules)));
            }
            None => {
                let times = locals.iter().map(|local| match local.time(v, &machine)? {
                    Time::Compute(us) | Time::Exchange(_, _, us) => Ok(us),
                });
                let times = times.collect::<Result<Vec<f64>>>()?;
                for rank in (0..n).filter(|rank| ranks[*rank]) {
                    let us = times[rank.min(sized - 1)];
                    simulation.compute(rank, us);
                    run.computed[rank] += us;
                }
            }
        }
        if let Some(made) = made.get_mut(&v) {
            let ends = under_way.as_ref().filter(|(of, _)| *of == v);
            *made = ends.map_or_else(|| (0..n).map(|rank| simulation.ended(rank)).collect(), |(_, ends)| ends.clone());
        }
        for rank in (0..n).filter(|rank| with_events && ranks[*rank]) {
            let ended = under_way.as_ref().filter(|(of, _)| *of == v).map(|(_, ends)| ends[rank]);
            let (start, end) = (begun[rank], ended.unwrap_or_else(|| simulation.ended(rank)));
            if end > start {
                let what = exchange.map_or_else(|| node.op.name().to_string(), |op| op.to_string());
                let node = node.origins.first().cloned().unwrap_or_default();
                run.events.push(Event { rank, start, end, node, what, is_exchange: exchange.is_some() });
            }
        }
    }
    if let Some((_, ends)) = under_way {
        ends.iter().enumerate().for_each(|(rank, end)| simulation.wait_until(rank, *end));
    }
    run.ended = (0..n).map(|rank| simulation.ended(rank)).collect();
    run.outcome = simulation.outcome();
    Ok(run)
}

/// By value, by rank: the rank computes it, or takes part in what exchanges it.
fn taking_part(graph: &Graph, mesh: &[usize]) -> Vec<Vec<bool>> {
    let n: usize = mesh.iter().product();
    let is_send = |node: &Node| match &node.op {
        Op::Host(host) => matches!(host.op, HostOp::Collective(Collective::Send { .. })),
        _ => false,
    };
    if !graph.nodes.iter().any(is_send) {
        return vec![vec![true; n]; graph.nodes.len()];
    }
    let mut needed = vec![vec![false; n]; graph.nodes.len()];
    for (_, v) in &graph.outputs {
        needed[v.index()][0] = true;
    }
    let mut takes = vec![vec![false; n]; graph.nodes.len()];
    for (v, node) in graph.nodes.iter().enumerate().rev() {
        let reads = match &node.op {
            Op::Host(host) => match &host.op {
                HostOp::Collective(op) => {
                    let [takes_part, reads] = op.taking_part(mesh, &needed[v]);
                    takes[v] = takes_part;
                    reads
                }
                _ => vec![true; n],
            },
            op if !op.binds().is_empty() => vec![true; n],
            _ => needed[v].clone(),
        };
        if !takes[v].iter().any(|takes| *takes) {
            takes[v].clone_from(&reads);
        }
        for arg in &node.args {
            needed[arg.index()].iter_mut().zip(&reads).for_each(|(needed, reads)| *needed |= reads);
        }
    }
    takes
}

/// The sizes of a call, and the coordinates of a rank.
fn sizes_of_rank(graph: &Graph, sizes: &Sizes, mesh: &[usize], rank: usize) -> Sizes {
    let mut sizes = sizes.clone();
    for (name, symbol) in &graph.symbols {
        if let SymbolKind::Rank { axis } = symbol.kind {
            let stride: usize = mesh[axis + 1..].iter().product();
            sizes.insert(name.clone(), (rank / stride % mesh[axis]) as i64);
        }
    }
    sizes
}

/// By rank: what it does in a collective, where it takes part.
fn schedules(
    graph: &Graph,
    node: &Node,
    op: &Collective,
    (mesh, sizes): (&[usize], &[Sizes]),
    ranks: &[bool],
) -> Result<Vec<Rounds>> {
    let axis = op.mesh();
    let stride: usize = mesh[axis + 1..].iter().product();
    let ty = graph.ty(node.args[0]);
    let brings = |rank: usize| {
        let size = |d: &Dim| d.eval(&|name| sizes[rank].get(name).copied()).map(|n| usize::try_from(n).unwrap_or(0));
        let dims = ty.dims.iter().map(size).collect::<Result<Vec<usize>>>()?;
        Ok(Operand { dtype: ty.dtype, dims })
    };
    let mut all: Vec<Rounds> = vec![vec![]; sizes.len()];
    for first in (0..sizes.len()).filter(|rank| (rank / stride).is_multiple_of(mesh[axis])) {
        let members: Vec<usize> = (0..mesh[axis]).map(|at| first + at * stride).collect();
        if !members.iter().any(|rank| ranks[*rank]) {
            continue;
        }
        let operands = members.iter().map(|rank| brings(*rank)).collect::<Result<Vec<Operand>>>()?;
        for (own, &rank) in members.iter().enumerate().filter(|(_, rank)| ranks[**rank]) {
            all[rank] = among(&direct(op, &operands, own), &members);
        }
    }
    Ok(all)
}
