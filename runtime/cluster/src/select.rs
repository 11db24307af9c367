//! a collective, a number of ranks, a topology  =>  the predicted time of each algorithm, the fastest first

use crate::cycles::edge_disjoint_cycles;
use crate::simulate::{Group, Outcome, Simulation, simulate, simulate_groups};
use crate::topology::{Kind, Topology};
use sardonyx_base::host::Collective;
use sardonyx_base::schedule::{Algorithm, Move, Operand, Rounds, Source, result};
use sardonyx_base::{Error, Result};

/// A method to perform a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// A schedule of messages, which the transports implement.
    Schedule(Algorithm),
    /// Rings in both directions over two cycles of a torus that share no link. This method is only predicted; no
    /// transport implements it.
    TwoCycles,
    /// The switches combine the operands. This method is only predicted; no transport implements it.
    InNetwork,
}

impl Means {
    /// Returns the name that reports show, such as `ring` or `in-network`.
    pub fn name(self) -> &'static str {
        match self {
            Means::Schedule(algorithm) => algorithm.name(),
            Means::TwoCycles => "two-cycles",
            Means::InNetwork => "in-network",
        }
    }
}

/// A method for a collective, with its predicted cost.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Method that performs the collective.
    pub means: Means,
    /// Predicted time and traffic; for [`Means::InNetwork`], the traffic of individual links is not predicted.
    pub outcome: Outcome,
}

/// Maximum number of messages (see `messages`) of a schedule that is simulated.
const MESSAGES_MAX: usize = 1 << 22;

/// Like `MESSAGES_MAX`, if only the time of the fastest algorithm is requested.
const MESSAGES_FEW: usize = 1 << 17;

/// Maximum size of an operand in bytes, so that the bytes of all messages together fit 64 bits.
const BYTES_MAX: usize = 1 << 40;

/// The methods for a collective that were compared.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The candidates, the fastest first; ties go to the candidate with fewer messages.
    pub candidates: Vec<Candidate>,
    /// Methods with too many messages to be simulated.
    pub left_out: Vec<Means>,
}

/// Ranks that perform a collective in groups, all groups at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Number of ranks of all groups together.
    pub ranks: usize,
    /// Number of ranks of each group.
    pub size: usize,
    /// Distance between neighbouring members of a group, in ranks.
    pub stride: usize,
}

impl Groups {
    /// All ranks in a single group.
    pub fn one(ranks: usize) -> Groups {
        Groups { ranks, size: ranks, stride: 1 }
    }

    /// The members of each group, in order.
    fn members(self) -> impl Iterator<Item = Vec<usize>> {
        let Groups { ranks, size, stride } = self;
        let first = move |r: &usize| (r / stride).is_multiple_of(size);
        (0..ranks).filter(first).map(move |r| (0..size).map(|i| r + i * stride).collect())
    }
}

/// Compares all methods for a collective. Errors: E0108 if there are more ranks than devices, E0202 if operands are too
/// large, E0303 if the operands do not fit each other.
pub fn compare(topology: &Topology, op: &Collective, operands: &[Operand]) -> Result<Comparison> {
    compare_in_groups(topology, op, operands, Groups::one(operands.len()))
}

/// Like [`compare`], for several groups at once; every group has these operands. If there are too many messages, only
/// the first groups are simulated.
pub fn compare_in_groups(
    topology: &Topology,
    op: &Collective,
    operands: &[Operand],
    groups: Groups,
) -> Result<Comparison> {
    let n = operands.len();
    check(topology, op, operands, groups)?;
    let (mut all, mut left_out) = (vec![], vec![]);
    for algorithm in Algorithm::ALL {
        let Some(first) = algorithm.rounds(op, operands, 0) else { continue };
        if messages(&first, n) > MESSAGES_MAX {
            left_out.push(Means::Schedule(algorithm));
        } else if let Some(outcome) = simulated(topology, (algorithm, op, operands), groups, MESSAGES_MAX) {
            all.push(Candidate { means: Means::Schedule(algorithm), outcome });
        }
    }
    let is_one = groups == Groups::one(n);
    if let Some(cycles) = cycles_of(topology, op, n).filter(|_| is_one) {
        // Rings over two cycles have twice as many messages as a ring in both directions.
        if left_out.contains(&Means::Schedule(Algorithm::TwoWayRing)) {
            left_out.push(Means::TwoCycles);
        } else if let Some(schedules) = over_two_cycles(&cycles, op, operands) {
            all.push(Candidate { means: Means::TwoCycles, outcome: simulate(topology, &schedules) });
        }
    }
    if let (Some(network), Collective::AllReduce { .. }, true) = (&topology.in_network, op, is_one) {
        let bytes = operands[0].bytes();
        let time_us = network.latency_us.value + bytes as f64 / (network.gb_s.value * 1e3);
        let outcome = Outcome { time_us, messages: 2 * n as u64, bytes: 2 * (n * bytes) as u64, ..Outcome::default() };
        all.push(Candidate { means: Means::InNetwork, outcome });
    }
    all.sort_by(|a, b| {
        let key = |c: &Candidate| (c.outcome.messages, c.outcome.bytes);
        a.outcome.time_us.total_cmp(&b.outcome.time_us).then(key(a).cmp(&key(b)))
    });
    Ok(Comparison { candidates: all, left_out })
}

/// Computes the time of the fastest algorithm that ranks can run, for callers with many queries.
pub struct Fastest<'t> {
    topology: &'t Topology,
    simulation: Simulation<'t>,
}

impl<'t> Fastest<'t> {
    /// Creates a simulation of this topology, which remembers routes between queries.
    pub fn new(topology: &'t Topology) -> Fastest<'t> {
        Fastest { topology, simulation: Simulation::new(topology, 0) }
    }

    /// The time of the fastest algorithm in microseconds; `None` if all algorithms have too many messages. An algorithm
    /// that cannot be faster than one already simulated is skipped or stopped early, and if all groups together have
    /// too many messages, only the first groups are simulated. Errors: those of [`compare_in_groups`].
    pub fn time_us(&mut self, op: &Collective, operands: &[Operand], groups: Groups) -> Result<Option<f64>> {
        let Fastest { topology, simulation } = self;
        fastest_us(topology, simulation, (op, operands), groups)
    }
}

fn fastest_us(
    topology: &Topology,
    simulation: &mut Simulation,
    (op, operands): (&Collective, &[Operand]),
    groups: Groups,
) -> Result<Option<f64>> {
    check(topology, op, operands, groups)?;
    let Some(members) = groups.members().next() else { return Ok(None) };
    let first = |algorithm: Algorithm| Some((algorithm.rounds(op, operands, 0)?, algorithm));
    let mut known: Vec<(f64, usize, Algorithm)> = Algorithm::ALL
        .into_iter()
        .filter_map(first)
        .map(|(rounds, algorithm)| {
            (least_us(topology, &rounds, &members), messages(&rounds, operands.len()), algorithm)
        })
        .filter(|(_, messages, _)| *messages <= MESSAGES_FEW)
        .collect();
    known.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut best: Option<f64> = None;
    for (least, _, algorithm) in known {
        if best.is_some_and(|best| least >= best) {
            continue;
        }
        if let Some((members, rounds)) = in_groups((algorithm, op, operands), groups, MESSAGES_FEW) {
            simulation.restart(groups.ranks);
            best = simulation
                .exchange_before(&concurrent_groups(&members, &rounds), best.unwrap_or(f64::INFINITY))
                .or(best);
        }
    }
    Ok(best)
}

/// A lower bound, in microseconds, of the time until the first member of a group has its result: the time that the
/// `rounds` of this member would take if there were no other traffic.
fn least_us(topology: &Topology, rounds: &Rounds, members: &[usize]) -> f64 {
    let rank = members[0];
    let overhead = topology.overhead_us.value;
    let of_message = |from: usize, bytes: usize| {
        let levels = topology.route(from, rank).into_iter().map(|link| &topology.level[link.level]);
        let (latency, longest) = levels.fold((0.0, 0.0f64), |(latency, longest), level| {
            (latency + level.latency_us.value, longest.max(bytes as f64 / (level.gb_s.value * 1e3)))
        });
        latency + longest + 2.0 * overhead
    };
    let of_round = |moves: &Vec<Move>| {
        let others = moves.iter().filter(|m| m.from.rank() != 0);
        let arrives = others.map(|m| of_message(members[m.from.rank()], m.bytes)).fold(0.0, f64::max);
        let combined: usize = moves.iter().filter(|m| m.combine.is_some()).map(|m| m.bytes).sum();
        arrives + combined as f64 / (topology.combine_gb_s.value * 1e3)
    };
    // The bound is lowered a little, so that rounding errors cannot make it exceed the simulated time.
    rounds.iter().map(of_round).sum::<f64>() * (1.0 - 1e-9)
}

fn check(topology: &Topology, op: &Collective, operands: &[Operand], groups: Groups) -> Result<()> {
    topology.check_ranks(groups.ranks)?;
    if operands.iter().any(|o| o.bytes() > BYTES_MAX) {
        return Err(Error::user("E0202", format!("an operand of more than {BYTES_MAX} bytes")));
    }
    result(op, operands, 0).map(drop)
}

/// Estimates the number of messages of `ranks` ranks: the number of moves in the rounds of one rank, times `ranks`.
fn messages(rounds: &Rounds, ranks: usize) -> usize {
    rounds.iter().map(Vec::len).sum::<usize>().saturating_mul(ranks)
}

/// Simulates the first groups: as many as have at most `messages_max` messages together, but at least one group.
fn simulated(
    topology: &Topology,
    (algorithm, op, operands): (Algorithm, &Collective, &[Operand]),
    groups: Groups,
    messages_max: usize,
) -> Option<Outcome> {
    let (members, rounds) = in_groups((algorithm, op, operands), groups, messages_max)?;
    Some(simulate_groups(topology, groups.ranks, &concurrent_groups(&members, &rounds)))
}

/// The members of each group, and the rounds of each member by its position in the group.
type InGroups = (Vec<Vec<usize>>, Vec<Rounds>);

fn in_groups(
    (algorithm, op, operands): (Algorithm, &Collective, &[Operand]),
    groups: Groups,
    messages_max: usize,
) -> Option<InGroups> {
    let n = operands.len();
    let rounds = (0..n).map(|rank| algorithm.rounds(op, operands, rank)).collect::<Option<Vec<Rounds>>>()?;
    let messages = messages(rounds.first()?, n);
    Some((groups.members().take((messages_max / messages.max(1)).max(1)).collect(), rounds))
}

/// Combines the members of each group with the rounds, which are the same for all groups.
fn concurrent_groups<'a>(members: &'a [Vec<usize>], rounds: &'a [Rounds]) -> Vec<Group<'a>> {
    members.iter().map(|members| Group { members, rounds }).collect()
}

/// Converts a schedule over positions in a group to one over ranks.
fn among(rounds: &Rounds, members: &[usize]) -> Rounds {
    let source = |from: Source| match from {
        Source::Operand(place) => Source::Operand(members[place]),
        Source::Result(place) => Source::Result(members[place]),
    };
    rounds.iter().map(|moves| moves.iter().map(|m| Move { from: source(m.from), ..*m }).collect()).collect()
}

/// The two cycles that an all-reduce among all devices of a two-dimensional torus can use; `None` in all other cases.
fn cycles_of(topology: &Topology, op: &Collective, ranks: usize) -> Option<[Vec<usize>; 2]> {
    let (Collective::AllReduce { .. }, [torus]) = (op, topology.level.as_slice()) else { return None };
    let ([rows, columns], Kind::Torus) = (torus.members.as_slice(), torus.kind) else { return None };
    if rows * columns != ranks {
        return None;
    }
    edge_disjoint_cycles(*rows, *columns)
        .or_else(|| edge_disjoint_cycles(*columns, *rows).map(|cycles| cycles.map(|c| transposed(c, *columns, *rows))))
}

/// Returns the rounds of each rank for an all-reduce in which each direction of each cycle reduces a quarter of the
/// data.
fn over_two_cycles(cycles: &[Vec<usize>; 2], op: &Collective, operands: &[Operand]) -> Option<Vec<Rounds>> {
    let n = operands.len();
    let elements: usize = operands[0].dims.iter().product();
    let width = operands[0].dtype.bytes();
    let halves = [elements.div_ceil(2), elements / 2];
    let mut all: Vec<Rounds> = vec![vec![]; n];
    for (cycle, (half, offset)) in cycles.iter().zip([(halves[0], 0), (halves[1], halves[0] * width)]) {
        let parts = vec![Operand { dtype: operands[0].dtype, dims: vec![half] }; n];
        for (place, &device) in cycle.iter().enumerate() {
            let rounds = Algorithm::TwoWayRing.rounds(op, &parts, place)?;
            let own = &mut all[device];
            own.resize_with(rounds.len().max(own.len()), Vec::new);
            for (round, moves) in among(&rounds, cycle).into_iter().enumerate() {
                own[round].extend(moves.into_iter().map(|m| Move { at: m.at + offset, to: m.to + offset, ..m }));
            }
        }
    }
    Some(all)
}

/// Converts positions in a grid of `rows` and `columns` to positions in the transposed grid.
fn transposed(cycle: Vec<usize>, rows: usize, columns: usize) -> Vec<usize> {
    cycle.into_iter().map(|at| at % columns * rows + at / columns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_base::DType;

    fn topology(level: &str, overhead: f64, combine: f64) -> Topology {
        let figure = |value: f64| format!("{{ value = {value:?}, source = \"test\" }}");
        let text = format!(
            "name = \"t\"\nabout = \"t\"\noverhead_us = {}\ncombine_gb_s = {}\n[sources]\ntest = \"of the test\"\n\
             [[level]]\n{level}\nlatency_us = {}\ngb_s = {}\n",
            figure(overhead),
            figure(combine),
            figure(5.0),
            figure(12.5)
        );
        Topology::parse(&text).unwrap()
    }

    fn time(topology: &Topology, op: &str, n: usize, bytes: usize, name: &str) -> f64 {
        let operands = vec![Operand { dtype: DType::F32, dims: vec![bytes / 4] }; n];
        let all = compare(topology, &Collective::parse(op).unwrap(), &operands).unwrap().candidates;
        all.iter().find(|c| c.means.name() == name).unwrap_or_else(|| panic!("no {name}")).outcome.time_us
    }

    const ALL_REDUCE: &str = "AllReduce mesh=0 by=add";

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-6 * b.abs(), "{a} is not {b}");
    }

    /// In the formulas, `alpha` is the latency of a message, which passes two links, `beta` the time per byte on a
    /// link, and `gamma` the time to combine a byte.
    #[test]
    fn without_contention_times_are_the_closed_forms() {
        let gamma = 1.0 / 50e3;
        let (alpha, beta) = (10.0, 1.0 / 12.5e3);
        for p in [4, 8, 16, 64] {
            let t = topology(&format!("kind = \"switch\"\nmembers = [{p}]"), 0.0, 50.0);
            let (lg, n) = ((p as f64).log2(), (p * 4096) as f64);
            let bytes = p * 4096;
            let part = (p - 1) as f64 / p as f64 * n;
            let steps = 2.0 * (p - 1) as f64;
            near(time(&t, ALL_REDUCE, p, bytes, "ring"), steps * alpha + 2.0 * part * beta + part * gamma);
            near(time(&t, ALL_REDUCE, p, bytes, "recursive-doubling"), lg * (alpha + n * (beta + gamma)));
            near(time(&t, ALL_REDUCE, p, bytes, "rabenseifner"), 2.0 * lg * alpha + 2.0 * part * beta + part * gamma);
            near(time(&t, ALL_REDUCE, p, bytes, "binomial-tree"), lg * (2.0 * alpha + n * (2.0 * beta + gamma)));
        }
    }

    #[test]
    fn butterflies_lose_to_halving_where_the_formula_says() {
        let (alpha, beta, gamma) = (10.0, 1.0 / 12.5e3, 1.0 / 50e3);
        for p in [4usize, 16, 64] {
            let t = topology(&format!("kind = \"switch\"\nmembers = [{p}]"), 0.0, 50.0);
            let (lg, share) = ((p as f64).log2(), (p - 1) as f64 / p as f64);
            let crossover = alpha * lg / ((lg - 2.0 * share) * beta + (lg - share) * gamma);
            let faster = |n: f64| {
                let bytes = (n as usize).next_multiple_of(4 * p);
                time(&t, ALL_REDUCE, p, bytes, "recursive-doubling") < time(&t, ALL_REDUCE, p, bytes, "rabenseifner")
            };
            assert!(faster(crossover * 0.95) && !faster(crossover * 1.05), "{p}: {crossover}");
        }
    }

    #[test]
    fn neighbours_of_a_torus_do_not_disturb_each_other_and_distant_ranks_do() {
        let t = topology("kind = \"torus\"\nmembers = [8, 8]", 0.0, 1e6);
        let bytes = 16 << 20;
        let [cycles, two_way, ring, doubling] = ["two-cycles", "two-way-ring", "ring", "recursive-doubling"]
            .map(|name| time(&t, ALL_REDUCE, 64, bytes, name));
        assert!(cycles < two_way && two_way < ring && ring < doubling, "{cycles} {two_way} {ring} {doubling}");
        // Each direction of each cycle reduces a quarter of the data, so each link carries half of what a link of a
        // single two-way ring carries.
        let (alpha, beta, n) = (5.0, 1.0 / 12.5e3, bytes as f64);
        let closed = 2.0 * 63.0 * alpha + n / 2.0 * beta * 63.0 / 64.0;
        assert!((cycles / closed - 1.0).abs() < 0.02, "{cycles} {closed}");
    }

    #[test]
    fn bytes_of_links_are_those_of_the_messages() {
        let t = Topology::preset("dgx-h100").unwrap().unwrap();
        for op in [ALL_REDUCE, "AllGather mesh=0 dim=0", "AllToAll mesh=0 split=0 join=1"] {
            let dims = vec![96, 16];
            let operands = vec![Operand { dtype: DType::F32, dims }; 24];
            let all = compare(&t, &Collective::parse(op).unwrap(), &operands).unwrap().candidates;
            for c in all.iter().filter(|c| c.means != Means::InNetwork) {
                // Each message passes two links.
                let carried: u64 = c.outcome.links.values().sum();
                assert_eq!(carried, 2 * c.outcome.bytes, "{op} {}", c.means.name());
                assert!(c.outcome.time_us > 0.0);
            }
        }
    }

    /// Groups of neighbours share no link, so they take as long as a single group. Groups whose members are on
    /// different hosts use the slower network adapters of the devices.
    #[test]
    fn groups_that_exchange_at_once_disturb_each_other_where_they_share_links() {
        let t = Topology::preset("dgx-h100").unwrap().unwrap();
        let op = Collective::parse(ALL_REDUCE).unwrap();
        let operands = vec![Operand { dtype: DType::F32, dims: vec![1 << 20] }; 8];
        let groups = |ranks, stride| {
            let groups = Groups { ranks, size: 8, stride };
            let ring = Means::Schedule(Algorithm::Ring);
            let all = compare_in_groups(&t, &op, &operands, groups).unwrap().candidates;
            all.iter().find(|c| c.means == ring).unwrap().outcome.clone()
        };
        let [one, neighbours, apart] = [groups(8, 1), groups(64, 1), groups(64, 8)];
        near(neighbours.time_us, one.time_us);
        assert_eq!([neighbours.messages, neighbours.bytes], [8 * one.messages, 8 * one.bytes]);
        assert_eq!(apart.messages, neighbours.messages);
        assert!(apart.time_us > 2.0 * neighbours.time_us, "{} {}", apart.time_us, neighbours.time_us);
    }

    #[test]
    fn what_is_not_simulated_is_never_the_fastest() {
        let groups = [(8, 8, 1), (64, 8, 1), (64, 8, 8), (16, 16, 1), (48, 12, 4)];
        for name in ["dgx-h100", "fat-tree", "hamming-mesh", "torus-2d", "dragonfly", "one-host"] {
            let t = Topology::preset(name).unwrap().unwrap();
            let mut asked = Fastest::new(&t);
            for (ranks, size, stride) in groups.into_iter().filter(|(ranks, ..)| t.check_ranks(*ranks).is_ok()) {
                let groups = Groups { ranks, size, stride };
                for op in [ALL_REDUCE, "AllGather mesh=0 dim=0", "ReduceScatter mesh=0 by=add dim=0"] {
                    let op = Collective::parse(op).unwrap();
                    for elements in [48, 48 << 10, 48 << 16] {
                        let operands = vec![Operand { dtype: DType::F32, dims: vec![elements] }; size];
                        let all = compare_in_groups(&t, &op, &operands, groups).unwrap().candidates;
                        let first = all.iter().find(|c| matches!(c.means, Means::Schedule(_))).unwrap();
                        let fastest = asked.time_us(&op, &operands, groups).unwrap();
                        assert_eq!(fastest, Some(first.outcome.time_us), "{name} {groups:?} {op} {elements}");
                    }
                }
            }
        }
    }

    #[test]
    fn slow_wires_between_hosts_are_avoided() {
        let t = Topology::preset("dgx-h100").unwrap().unwrap();
        let operands = vec![Operand { dtype: DType::F32, dims: vec![1 << 20] }; 64];
        let all = compare(&t, &Collective::parse(ALL_REDUCE).unwrap(), &operands).unwrap().candidates;
        let network = |c: &Candidate| c.outcome.links.iter().filter(|(l, _)| l.level > 0).map(|(_, b)| *b).sum::<u64>();
        let of = |name: &str| all.iter().find(|c| c.means.name() == name).unwrap();
        assert!(network(of("ring")) < network(of("direct")));
        assert!(all.windows(2).all(|pair| pair[0].outcome.time_us <= pair[1].outcome.time_us));
        let small = vec![Operand { dtype: DType::F32, dims: vec![2] }; 64];
        let small = compare(&t, &Collective::parse(ALL_REDUCE).unwrap(), &small).unwrap().candidates;
        assert_ne!(small[0].means, all[0].means);
        let many = vec![Operand { dtype: DType::F32, dims: vec![2] }; 5000];
        assert_eq!(compare(&t, &Collective::parse(ALL_REDUCE).unwrap(), &many).unwrap_err().code, "E0108");
        let large = vec![Operand { dtype: DType::F32, dims: vec![usize::MAX / 4] }; 8];
        assert_eq!(compare(&t, &Collective::parse(ALL_REDUCE).unwrap(), &large).unwrap_err().code, "E0202");
    }
}
