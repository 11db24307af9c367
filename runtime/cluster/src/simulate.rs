//! schedules of all ranks, a topology  =>  when each rank has its result, and what each link carried
//!
//! A message is what a rank takes of another one in a round. It starts when both have ended the round before, keeps either
//! busy for the overhead, and passes its links one behind the other without being stored between them; a link that carries
//! one message lets the next one wait. Links are given in the order in which messages are ready, then by rank: the same
//! each time. What a rank combines, it combines when it has arrived. Rounds that repeat the one before, after which everything is as
//! it was but later, are not simulated message by message.

use crate::route::Link;
use crate::topology::Topology;
use sardonyx_base::schedule::{Move, Rounds};
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// When the last rank has its result.
    pub time_us: f64,
    pub messages: u64,
    /// Bytes that ranks take of others.
    pub bytes: u64,
    /// The bytes of each link that carries something.
    pub links: BTreeMap<Link, u64>,
}

impl Outcome {
    /// Each link with its bytes, those with the most first.
    pub fn busiest_links(&self) -> Vec<(Link, u64)> {
        let mut links: Vec<(Link, u64)> = self.links.iter().map(|(link, bytes)| (*link, *bytes)).collect();
        links.sort_by_key(|(link, bytes)| (std::cmp::Reverse(*bytes), *link));
        links
    }
}

struct Message {
    ready: f64,
    from: usize,
    to: usize,
    bytes: usize,
    combined: usize,
}

/// Rank r runs on device r; there are no more ranks than devices.
pub fn simulate(topology: &Topology, schedules: &[Rounds]) -> Outcome {
    let mut simulation = Simulation::new(topology, schedules.len());
    simulation.exchange(schedules);
    simulation.outcome()
}

/// Ranks that compute and exchange in turn, each with a clock of its own.
pub struct Simulation<'t> {
    topology: &'t Topology,
    wires: Wires<'t>,
    /// When each rank has done what it was given so far.
    ended: Vec<f64>,
    messages: u64,
    bytes: u64,
}

impl<'t> Simulation<'t> {
    pub fn new(topology: &'t Topology, ranks: usize) -> Simulation<'t> {
        let wires = Wires { topology, routes: HashMap::new(), numbers: HashMap::new(), all: vec![] };
        Simulation { topology, wires, ended: vec![0.0; ranks], messages: 0, bytes: 0 }
    }

    /// Gives from when to when.
    pub fn compute(&mut self, rank: usize, us: f64) -> [f64; 2] {
        let start = self.ended[rank];
        self.ended[rank] += us;
        [start, self.ended[rank]]
    }

    pub fn ended(&self, rank: usize) -> f64 {
        self.ended[rank]
    }

    /// The rank does nothing before a moment.
    pub fn wait_until(&mut self, rank: usize, us: f64) {
        self.ended[rank] = self.ended[rank].max(us);
    }

    /// As [`exchange`](Simulation::exchange) from some moment of each rank on, while the ranks go on: when each has its result.
    pub fn begin(&mut self, from: Vec<f64>, schedules: &[Rounds]) -> Vec<f64> {
        let now = std::mem::replace(&mut self.ended, from);
        self.exchange(schedules);
        std::mem::replace(&mut self.ended, now)
    }

    /// Ranks without rounds take no part.
    pub fn exchange(&mut self, schedules: &[Rounds]) {
        let mut last: Option<Step> = None;
        for round in 0..schedules.iter().map(Vec::len).max().unwrap_or(0) {
            let again = last.take().filter(|step| step.steady_us.is_some() && is_repeated(schedules, round));
            last = Some(match again {
                Some(step) => self.repeat(step),
                None => self.round(schedules, round),
            });
        }
    }

    fn round(&mut self, schedules: &[Rounds], round: usize) -> Step {
        let overhead = self.topology.overhead_us.value;
        let (began, counts) = (self.ended.clone(), (self.messages, self.bytes));
        let wires: Vec<(f64, u64)> = self.wires.all.iter().map(|wire| (wire.free_at, wire.bytes)).collect();
        let mut messages = messages_of_round(schedules, round, &self.ended);
        messages.sort_by(|a, b| a.ready.total_cmp(&b.ready).then((a.from, a.to).cmp(&(b.from, b.to))));
        // When each rank may begin to send and to receive its next message.
        let (mut sends, mut receives) = (self.ended.clone(), self.ended.clone());
        let mut combines = vec![0; schedules.len()];
        for m in &messages {
            if m.from == m.to {
                combines[m.to] += m.combined;
                continue;
            }
            sends[m.from] = m.ready.max(sends[m.from]) + overhead;
            let arrives = self.wires.carry(m, sends[m.from]);
            receives[m.to] = receives[m.to].max(arrives) + overhead;
            combines[m.to] += m.combined;
            self.messages += 1;
            self.bytes += m.bytes as u64;
        }
        for (rank, ends) in self.ended.iter_mut().enumerate() {
            let combining = combines[rank] as f64 / (self.topology.combine_gb_s.value * 1e3);
            *ends = sends[rank].max(receives[rank]) + combining;
        }
        let before = |wire: usize| wires.get(wire).copied().unwrap_or((f64::NAN, 0));
        let used = self.wires.all.iter().enumerate().filter(|(i, wire)| wire.bytes > before(*i).1);
        let used: Vec<(usize, u64, f64)> =
            used.map(|(i, wire)| (i, wire.bytes - before(i).1, wire.free_at - before(i).0)).collect();
        let ranks: BTreeSet<usize> = messages.iter().flat_map(|m| [m.from, m.to]).collect();
        let takes = ranks.iter().map(|rank| self.ended[*rank] - began[*rank]);
        let mut takes = takes.chain(used.iter().map(|(_, _, takes)| *takes));
        let first = takes.next();
        let same = |us: f64| first.is_some_and(|first| (us - first).abs() <= 1e-9 * first.abs());
        let steady_us = first.filter(|_| takes.all(same));
        let (messages, bytes) = (self.messages - counts.0, self.bytes - counts.1);
        let wires = used.into_iter().map(|(wire, bytes, _)| (wire, bytes)).collect();
        Step { steady_us, messages, bytes, ranks, wires }
    }

    /// Does a steady round once more.
    fn repeat(&mut self, step: Step) -> Step {
        let us = step.steady_us.unwrap_or(0.0);
        step.ranks.iter().for_each(|rank| self.ended[*rank] += us);
        for (wire, bytes) in &step.wires {
            self.wires.all[*wire].free_at += us;
            self.wires.all[*wire].bytes += bytes;
        }
        self.messages += step.messages;
        self.bytes += step.bytes;
        step
    }

    pub fn outcome(self) -> Outcome {
        let time_us = self.ended.into_iter().fold(0.0, f64::max);
        let links = self.wires.all.into_iter().map(|wire| (wire.link, wire.bytes)).collect();
        Outcome { time_us, messages: self.messages, bytes: self.bytes, links }
    }
}

/// The effect of a round.
struct Step {
    /// By how much everything that took part moved on in time, where that was the same for all of it: an equal round does it
    /// again.
    steady_us: Option<f64>,
    messages: u64,
    bytes: u64,
    /// Ranks that sent or received.
    ranks: BTreeSet<usize>,
    /// Numbers of links that were used, and their bytes.
    wires: Vec<(usize, u64)>,
}

/// Each rank takes as many bytes of the same ranks as in the round before.
fn is_repeated(schedules: &[Rounds], round: usize) -> bool {
    schedules.iter().all(|rounds| match (rounds.get(round - 1), rounds.get(round)) {
        (Some(before), Some(now)) => {
            let same = |(a, b): (&Move, &Move)| {
                (a.from.rank(), a.bytes, a.combine.is_some()) == (b.from.rank(), b.bytes, b.combine.is_some())
            };
            before.len() == now.len() && before.iter().zip(now).all(same)
        }
        (before, now) => before.is_none_or(Vec::is_empty) && now.is_none_or(Vec::is_empty),
    })
}

/// The links that have carried something.
struct Wires<'t> {
    topology: &'t Topology,
    /// By the devices of a message: numbers of links.
    routes: HashMap<(usize, usize), Vec<usize>>,
    numbers: HashMap<Link, usize>,
    all: Vec<Wire>,
}

struct Wire {
    link: Link,
    free_at: f64,
    bytes: u64,
}

impl Wires<'_> {
    /// Gives when a message that begins now has arrived.
    fn carry(&mut self, m: &Message, now: f64) -> f64 {
        let Wires { topology, routes, numbers, all } = self;
        let route = routes.entry((m.from, m.to)).or_insert_with(|| {
            let number = |link: Link| {
                *numbers.entry(link).or_insert_with(|| {
                    all.push(Wire { link, free_at: 0.0, bytes: 0 });
                    all.len() - 1
                })
            };
            topology.route(m.from, m.to).into_iter().map(number).collect()
        });
        let (mut begins, mut latency, mut longest) = (now, 0.0, 0.0f64);
        for &number in route.iter() {
            let wire = &mut all[number];
            let level = &topology.level[wire.link.level];
            let takes = m.bytes as f64 / (level.gb_s.value * 1e3);
            begins = begins.max(wire.free_at);
            wire.free_at = begins + takes;
            wire.bytes += m.bytes as u64;
            longest = longest.max(takes);
            latency += level.latency_us.value;
        }
        begins + latency + longest
    }
}

fn messages_of_round(schedules: &[Rounds], round: usize, ended: &[f64]) -> Vec<Message> {
    let mut messages = vec![];
    for (to, rounds) in schedules.iter().enumerate() {
        let mut taken: BTreeMap<usize, [usize; 2]> = BTreeMap::new();
        for m in rounds.get(round).into_iter().flatten() {
            let sums = taken.entry(m.from.rank()).or_default();
            sums[0] += m.bytes;
            sums[1] += if m.combine.is_some() { m.bytes } else { 0 };
        }
        messages.extend(taken.into_iter().map(|(from, [bytes, combined])| Message {
            ready: ended[from].max(ended[to]),
            from,
            to,
            bytes,
            combined,
        }));
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::among;
    use sardonyx_base::DType;
    use sardonyx_base::host::Collective;
    use sardonyx_base::schedule::{Algorithm, Operand};

    /// Each second round in halves: the same messages, of which no round looks like the one before.
    fn halved(rounds: &Rounds) -> Rounds {
        let half = |m: &Move| [Move { bytes: m.bytes / 2, ..*m }, Move { bytes: m.bytes - m.bytes / 2, ..*m }];
        let odd = |(i, moves): (usize, &Vec<Move>)| match i % 2 {
            0 => moves.clone(),
            _ => moves.iter().flat_map(half).collect(),
        };
        rounds.iter().enumerate().map(odd).collect()
    }

    #[test]
    fn rounds_that_repeat_take_what_they_take_one_by_one() {
        let op = Collective::parse("AllReduce mesh=0 by=add").unwrap();
        for name in ["dgx-h100", "fat-tree", "hamming-mesh", "torus-2d", "dragonfly"] {
            let t = Topology::preset(name).unwrap().unwrap();
            for (size, stride) in [(16, 1), (8, 4), (12, 3)] {
                let operands = vec![Operand { dtype: DType::F32, dims: vec![48 << 10] }; size];
                for algorithm in [Algorithm::Ring, Algorithm::TwoWayRing, Algorithm::Rabenseifner] {
                    let Some(own) =
                        (0..size).map(|rank| algorithm.rounds(&op, &operands, rank)).collect::<Option<Vec<_>>>()
                    else {
                        continue;
                    };
                    let ranks = size * stride;
                    let mut all: Vec<Rounds> = vec![vec![]; ranks];
                    for first in 0..stride {
                        let members: Vec<usize> = (0..size).map(|i| first + i * stride).collect();
                        own.iter().zip(&members).for_each(|(rounds, rank)| all[*rank] = among(rounds, &members));
                    }
                    let quick = simulate(&t, &all);
                    let slow = simulate(&t, &all.iter().map(halved).collect::<Vec<_>>());
                    let what = format!("{name}, {size} by {stride}, {}", algorithm.name());
                    assert!((quick.time_us / slow.time_us - 1.0).abs() < 1e-6, "{what}: {quick:?} {slow:?}");
                    let counts = |o: &Outcome| (o.messages, o.bytes, o.links.clone());
                    assert_eq!(counts(&quick), counts(&slow), "{what}");
                }
            }
        }
    }
}
