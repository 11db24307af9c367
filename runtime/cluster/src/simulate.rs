//! schedules of all ranks, a topology  =>  when each rank has its result, and what each link carried
//!
//! A message is what a rank takes of another one in a round. It starts when both have ended the round before, keeps either
//! busy for the overhead, and passes its links one behind the other without being stored between them; a link that carries
//! one message lets the next one wait. Links are given in the order in which messages are ready, then by rank: the same
//! each time. What a rank combines, it combines when it has arrived.

use crate::route::Link;
use crate::topology::Topology;
use sardonyx_base::schedule::Rounds;
use std::collections::{BTreeMap, HashMap};

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

    /// Ranks without rounds take no part.
    pub fn exchange(&mut self, schedules: &[Rounds]) {
        let overhead = self.topology.overhead_us.value;
        for round in 0..schedules.iter().map(Vec::len).max().unwrap_or(0) {
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
        }
    }

    pub fn outcome(self) -> Outcome {
        let time_us = self.ended.into_iter().fold(0.0, f64::max);
        let links = self.wires.all.into_iter().map(|wire| (wire.link, wire.bytes)).collect();
        Outcome { time_us, messages: self.messages, bytes: self.bytes, links }
    }
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
