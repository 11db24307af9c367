//! the program of all ranks, a described cluster  =>  what each rank does at which time, and what each link carries
//!
//! Every rank executes the program in order: it computes what it needs, and exchanges the same messages as the runtime
//! (`schedule::direct`), which share the links of the topology. Which rank needs which values is determined as in the
//! runtime (`runtime/src/program/needed.rs`).

use super::estimate::{Local, Time, waits_for};
use super::machine::{Machine, Times};
use crate::shard::collective;
use crate::usual::Sizes;
use sardonyx_base::host::Collective;
use sardonyx_base::random::Random;
use sardonyx_base::schedule::{Move, Operand, Rounds, bytes_of_others, direct};
use sardonyx_base::{Dim, Result};
use sardonyx_cluster::{Effect, Group, Outcome, Simulation, Topology};
use sardonyx_dialects::sdx::{Graph, Node, Op, SymbolKind, TensorType, Value};
use sardonyx_kernels::Rates;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::rc::Rc;

/// With at most this many ranks, compute times follow from each rank's own sizes; with more, from the sizes of rank 0.
const OWN_SIZES_MAX: usize = 64;

/// An action of a rank, with times in microseconds from the start of the call.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Number of the rank, from 0.
    pub rank: usize,
    /// Time at which the action begins.
    pub start: f64,
    /// Time at which the action ends, later than `start`.
    pub end: f64,
    /// The ONNX node that the action is executed for.
    pub node: String,
    /// Name of the operation, or the collective as text.
    pub what: String,
    /// Whether the action is a collective.
    pub is_exchange: bool,
}

/// Result of a simulated call, with times in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Time of the last rank, messages, and bytes per link.
    pub outcome: Outcome,
    /// Events of all ranks; those of one rank are in order.
    pub events: Vec<Event>,
    /// By rank: the time at which it finished.
    pub ended: Vec<f64>,
    /// By rank: its total compute time.
    pub computed: Vec<f64>,
    /// By rank: the bytes that it received from others.
    pub taken: Vec<u64>,
}

/// Random delays of the computation of ranks, caused by the system or by other work on their machines.
pub struct Noise {
    share: f64,
    random: Random,
}

impl Noise {
    /// Lengthens each computation by this share on average, exponentially distributed. Equal seeds give equal calls.
    pub fn new(share: f64, seed: u64) -> Noise {
        Noise { share, random: Random::new(seed) }
    }

    /// Returns the factor for the next computation.
    fn next(&mut self) -> f64 {
        1.0 - self.share * (1.0 - self.random.fraction()).ln()
    }
}

/// Simulates a call; `graph` is already split over the mesh. With `with_events`, the actions of all ranks are recorded.
pub fn simulated(
    graph: &Graph,
    sizes: &Sizes,
    topology: &Topology,
    rates: Rates,
    mesh: &[i64],
    with_events: bool,
    mut noise: Option<Noise>,
) -> Result<Run> {
    let times = Times::new(topology);
    let machine = Machine::new(rates, mesh, &times);
    let mesh: Vec<usize> = mesh.iter().map(|n| usize::try_from(*n).unwrap_or(1)).collect();
    let n: usize = mesh.iter().product();
    topology.check_ranks(n)?;
    let takes = taking_part(graph, &mesh);
    let sized = if n <= OWN_SIZES_MAX { n } else { 1 };
    let sizes: Vec<Sizes> = (0..n).map(|rank| sizes_of_rank(graph, sizes, &mesh, rank)).collect();
    let locals = sizes[..sized].iter().map(|sizes| Local::with_coordinates(graph, sizes.clone()));
    let locals = locals.collect::<Result<Vec<Local>>>()?;
    let (mut simulation, mut schedules) = (Simulation::new(topology, n), Schedules::default());
    // All times are by rank. `under_way`: when the current exchange ends. `waited`: when the rank's last wait ended.
    // `made`: when the operand of each collective is ready.
    let mut under_way: Option<(Value, Vec<f64>)> = None;
    let mut waited = vec![0.0f64; n];
    let operands = graph.nodes.iter().filter(|node| collective(node).is_some()).map(|node| graph.root(node.args[0]));
    let mut made: BTreeMap<Value, Vec<f64>> = operands.map(|v| (v, vec![0.0; n])).collect();
    let mut effects: HashMap<Exchanged, VecDeque<Effect>> = HashMap::new();
    let mut run = Run { computed: vec![0.0; n], taken: vec![0; n], ..Run::default() };
    for (v, node) in graph.values() {
        let ranks = &takes[v.index()];
        let exchange = collective(node);
        if exchange.is_some() && !ranks.contains(&true) {
            // No rank reads the result, so calls do not execute the collective.
            continue;
        }
        // Compute times by rank.
        let times = match exchange {
            Some(_) => vec![],
            None => {
                let times = locals.iter().map(|local| match local.time(v, &machine)? {
                    Time::Compute(us) | Time::Exchange(_, _, us) => Ok(us),
                });
                times.collect::<Result<Vec<f64>>>()?
            }
        };
        if let Some((_, ends)) = under_way.take_if(|(of, _)| waits_for(graph, node, times.first().copied(), *of)) {
            for (rank, end) in ends.iter().enumerate() {
                simulation.wait_until(rank, *end);
                waited[rank] = simulation.ended(rank);
            }
        }
        let mut begun: Vec<f64> = vec![];
        if with_events {
            begun.extend((0..n).map(|rank| simulation.ended(rank)));
        }
        match exchange {
            Some(op) => {
                let groups = schedules.groups((op, graph.ty(node.args[0])), (&mesh, &sizes), ranks)?;
                for (members, rounds) in &groups {
                    for (own, (rank, rounds)) in members.iter().zip(rounds.iter()).enumerate() {
                        run.taken[*rank] += bytes_of_others(rounds, own) as u64;
                    }
                }
                let key = groups.iter().map(|(members, rounds)| (members[0], Rc::as_ptr(rounds))).collect::<Vec<_>>();
                let known = effects.entry((op.mesh(), key)).or_default();
                let groups: Vec<Group> = groups.iter().map(|(members, rounds)| Group { members, rounds }).collect();
                let operand = &made[&graph.root(node.args[0])];
                let from: Vec<f64> = operand.iter().zip(&waited).map(|(made, waited)| made.max(*waited)).collect();
                if with_events {
                    begun.clone_from(&from);
                }
                under_way = Some((v, simulation.begin_again(from, &groups, known)));
            }
            None => {
                for rank in (0..n).filter(|rank| ranks[*rank]) {
                    let us = times[rank.min(sized - 1)] * noise.as_mut().map_or(1.0, Noise::next);
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

/// Identifies equal exchanges: the axis, and the first rank and the rounds of each group.
type Exchanged = (usize, Vec<(usize, *const [Rounds])>);

/// Set of ranks, shared because many values have equal sets.
type Ranks = Rc<[bool]>;

/// Returns, by value and rank, whether the rank computes the value or takes part in the collective that produces it.
fn taking_part(graph: &Graph, mesh: &[usize]) -> Vec<Ranks> {
    let n: usize = mesh.iter().product();
    let is_send = |node: &Node| matches!(collective(node), Some(Collective::Send { .. }));
    let all: Ranks = vec![true; n].into();
    if !graph.nodes.iter().any(is_send) {
        let none: Ranks = vec![false; n].into();
        return graph.live().into_iter().map(|live| if live { all.clone() } else { none.clone() }).collect();
    }
    let mut known: HashSet<Ranks> = HashSet::new();
    let mut shared = |ranks: Vec<bool>| match known.get(ranks.as_slice()) {
        Some(same) => same.clone(),
        None => {
            let new: Ranks = ranks.into();
            known.insert(new.clone());
            new
        }
    };
    let none = shared(vec![false; n]);
    let first = shared((0..n).map(|rank| rank == 0).collect());
    let mut needed = vec![none.clone(); graph.nodes.len()];
    graph.outputs.iter().for_each(|(_, v)| needed[v.index()] = first.clone());
    let mut takes = vec![none; graph.nodes.len()];
    for (v, node) in graph.nodes.iter().enumerate().rev() {
        let (takes_part, reads) = match (&node.op, collective(node)) {
            (_, Some(op)) => {
                let [takes_part, reads] = op.taking_part(mesh, &needed[v]);
                (Some(shared(takes_part)), shared(reads))
            }
            (Op::Host(_), None) => (None, all.clone()),
            (op, None) if !op.binds().is_empty() => (None, all.clone()),
            _ => (None, needed[v].clone()),
        };
        takes[v] = takes_part.filter(|ranks| ranks.iter().any(|takes| *takes)).unwrap_or_else(|| reads.clone());
        for arg in &node.args {
            let has = &needed[arg.index()];
            if !Rc::ptr_eq(has, &reads) {
                needed[arg.index()] = shared(has.iter().zip(reads.iter()).map(|(has, reads)| *has || *reads).collect());
            }
        }
    }
    takes
}

/// Returns the sizes of a call together with the coordinates of a rank.
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

/// Cache of the rounds of collectives, by the collective and the operands of the group's members.
#[derive(Default)]
struct Schedules(HashMap<(Collective, Vec<Operand>), Rc<[Rounds]>>);

/// The ranks of a group, and the rounds of each member by its position in the group.
type InGroup = (Vec<usize>, Rc<[Rounds]>);

impl Schedules {
    /// Returns the groups that take part in a collective, each with its rounds.
    fn groups(
        &mut self,
        (op, ty): (Collective, &TensorType),
        (mesh, sizes): (&[usize], &[Sizes]),
        ranks: &[bool],
    ) -> Result<Vec<InGroup>> {
        let axis = op.mesh();
        let stride: usize = mesh[axis + 1..].iter().product();
        let brings = |rank: usize| {
            let size =
                |d: &Dim| d.eval_named(&|name| sizes[rank].get(name).copied()).map(|n| usize::try_from(n).unwrap_or(0));
            let dims = ty.dims.iter().map(size).collect::<Result<Vec<usize>>>()?;
            Ok(Operand { dtype: ty.dtype, dims })
        };
        let mut all = vec![];
        for first in (0..sizes.len()).filter(|rank| (rank / stride).is_multiple_of(mesh[axis])) {
            let members: Vec<usize> = (0..mesh[axis]).map(|at| first + at * stride).collect();
            if !members.iter().any(|rank| ranks[*rank]) {
                continue;
            }
            let operands = members.iter().map(|rank| brings(*rank)).collect::<Result<Vec<Operand>>>()?;
            let rounds = self.0.entry((op, operands)).or_insert_with_key(|(op, operands)| {
                (0..operands.len()).map(|own| in_messages(direct(op, operands, own))).collect()
            });
            all.push((members, rounds.clone()));
        }
        Ok(all)
    }
}

/// Merges the ranges that a round takes from one rank into one message; a gather along an inner dimension has millions
/// of ranges.
fn in_messages(rounds: Rounds) -> Rounds {
    let merged = |moves: Vec<Move>| {
        let mut all: BTreeMap<(usize, bool), Move> = BTreeMap::new();
        for m in moves {
            let known = all.entry((m.from.rank(), m.combine.is_some())).or_insert(Move { bytes: 0, ..m });
            known.bytes += m.bytes;
        }
        all.into_values().collect()
    };
    rounds.into_iter().map(merged).collect()
}
