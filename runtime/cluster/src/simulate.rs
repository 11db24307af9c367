//! schedules of all ranks, a topology  =>  when each rank has its result, and what each link carried
//!
//! A message consists of the data that one rank takes from another rank in a round. It becomes ready when both ranks
//! have ended the previous round. It occupies the sender when it starts and the receiver when it arrives, each for the
//! overhead, and passes its links one after the other without being stored between them; a link carries one message at
//! a time, while others wait. Links are assigned to messages in the order in which the messages become ready, with
//! times rounded to a picosecond; equal times are ordered by sender, then by receiver. So the result is deterministic.
//! A rank combines data after all its messages of the round have arrived. If a round repeats the previous round, and
//! the previous round advanced all its ranks and links by the same time, the round is not simulated message by message.
//! Nor is an exchange that begins as an earlier one did ([`Effect`]).

use crate::route::Link;
use crate::topology::Topology;
use sardonyx_base::schedule::{Move, Rounds};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Result of a simulation: time and traffic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Time at which the last rank has its result, in microseconds.
    pub time_us: f64,
    /// Number of messages between different ranks; for in-network reduction, between ranks and switches.
    pub messages: u64,
    /// Number of bytes of all these messages together.
    pub bytes: u64,
    /// The number of bytes that each link carried; idle links are absent.
    pub links: BTreeMap<Link, u64>,
}

impl Outcome {
    /// The links with the bytes that they carried, the busiest first.
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

/// The state of a rank in the last round in which it took part: the time at which the rank began, the times from which
/// it can send and receive the next message, and the number of bytes that it combines.
#[derive(Clone, Default)]
struct Turn {
    /// Number of the round; 0 if there was none.
    round: u64,
    began: f64,
    sends: f64,
    receives: f64,
    combines: usize,
}

/// A group of ranks that exchange data.
#[derive(Clone, Copy)]
pub struct Group<'a> {
    /// Ranks of the members, by position in the group.
    pub members: &'a [usize],
    /// The rounds of each member, in order. The rounds refer to other members by their positions in the group.
    pub rounds: &'a [Rounds],
}

/// Simulates one group of all ranks; rank r runs on device r. There must be no more ranks than devices.
pub fn simulate(topology: &Topology, schedules: &[Rounds]) -> Outcome {
    let members: Vec<usize> = (0..schedules.len()).collect();
    simulate_groups(topology, schedules.len(), &[Group { members: &members, rounds: schedules }])
}

/// Simulates groups that exchange at the same time, with `ranks` ranks in total.
pub fn simulate_groups(topology: &Topology, ranks: usize, groups: &[Group]) -> Outcome {
    let mut simulation = Simulation::new(topology, ranks);
    simulation.exchange(groups);
    simulation.outcome()
}

/// Ranks that alternately compute and exchange data, each with a clock of its own.
pub struct Simulation<'t> {
    topology: &'t Topology,
    wires: Wires<'t>,
    /// Time at which each rank has completed everything so far.
    ended: Vec<f64>,
    /// The state of each rank that takes part in a round.
    turns: Vec<Turn>,
    messages: u64,
    bytes: u64,
}

impl<'t> Simulation<'t> {
    /// Creates a simulation of `ranks` ranks, whose clocks are at 0; rank r runs on device r.
    pub fn new(topology: &'t Topology, ranks: usize) -> Simulation<'t> {
        let wires = Wires {
            topology,
            routes: vec![],
            n_routes: 0,
            numbered: vec![],
            numbers: HashMap::new(),
            all: vec![],
            round: 0,
            used: vec![],
        };
        let turns = vec![Turn::default(); ranks];
        Simulation { topology, wires, ended: vec![0.0; ranks], turns, messages: 0, bytes: 0 }
    }

    /// Resets the simulation for `ranks` ranks, but keeps the routes that have been computed.
    pub fn restart(&mut self, ranks: usize) {
        self.ended.clear();
        self.ended.resize(ranks, 0.0);
        self.turns.clear();
        self.turns.resize(ranks, Turn::default());
        self.wires.all.iter_mut().for_each(|wire| *wire = Wire { link: wire.link, free_at: 0.0, bytes: 0, round: 0 });
        self.wires.round = 0;
        (self.messages, self.bytes) = (0, 0);
    }

    /// Simulates all rounds. Returns the time at which the last rank has its result. If this time is not before `us`,
    /// returns `None`, possibly after only some rounds.
    pub fn exchange_before(&mut self, groups: &[Group], us: f64) -> Option<f64> {
        let last = |ended: &[f64]| ended.iter().copied().fold(0.0, f64::max);
        self.go_through(groups, &mut |ended| last(ended) < us).then(|| last(&self.ended)).filter(|time| *time < us)
    }

    /// Advances a rank's clock by `us`; returns the start and end of the computation.
    pub fn compute(&mut self, rank: usize, us: f64) -> [f64; 2] {
        let start = self.ended[rank];
        self.ended[rank] += us;
        [start, self.ended[rank]]
    }

    /// Returns the time, in microseconds, at which a rank has completed everything so far.
    pub fn ended(&self, rank: usize) -> f64 {
        self.ended[rank]
    }

    /// Advances a rank's clock to `us`, if the clock is earlier.
    pub fn wait_until(&mut self, rank: usize, us: f64) {
        self.ended[rank] = self.ended[rank].max(us);
    }

    /// Like [`exchange`](Simulation::exchange), but each rank starts at its time in `from`, and the clocks of the ranks
    /// do not change. Returns the time at which each rank has its result.
    pub fn begin(&mut self, from: Vec<f64>, groups: &[Group]) -> Vec<f64> {
        let now = std::mem::replace(&mut self.ended, from);
        self.exchange(groups);
        std::mem::replace(&mut self.ended, now)
    }

    /// Like [`begin`](Simulation::begin), for groups whose earlier exchanges had the effects `known`. If, relative to
    /// the first rank to begin, ranks begin and links are free at the same times as in one of these exchanges, its
    /// effect occurs again. Otherwise the exchange is simulated, and its effect is added to `known`.
    pub fn begin_again(&mut self, from: Vec<f64>, groups: &[Group], known: &mut VecDeque<Effect>) -> Vec<f64> {
        let ranks: Vec<usize> = groups.iter().flat_map(|group| group.members.iter().copied()).collect();
        let base = ranks.iter().map(|rank| from[*rank]).fold(f64::INFINITY, f64::min);
        let starts: Vec<f64> = ranks.iter().map(|rank| from[*rank] - base).collect();
        if let Some(effect) = known.iter().find(|effect| effect.begins_so(&starts, base, &self.wires.all)) {
            let mut ends = from;
            ranks.iter().zip(&effect.ends).for_each(|(rank, end)| ends[*rank] = base + end);
            for used in &effect.wires {
                let wire = &mut self.wires.all[used.number];
                wire.free_at = base + used.ends;
                wire.bytes += used.bytes;
            }
            self.messages += effect.messages;
            self.bytes += effect.bytes;
            return ends;
        }
        let before: Vec<(f64, u64)> = self.wires.all.iter().map(|wire| (wire.free_at, wire.bytes)).collect();
        let counts = (self.messages, self.bytes);
        let ends = self.begin(from, groups);
        let before = before.into_iter().chain(std::iter::repeat((0.0, 0)));
        let changed = self.wires.all.iter().zip(before).enumerate();
        let changed = changed.filter(|(_, (wire, before))| (wire.free_at, wire.bytes) != *before);
        let wires = changed.map(|(number, (wire, (free_at, bytes)))| UsedWire {
            number,
            begins: (free_at - base).max(0.0),
            ends: wire.free_at - base,
            bytes: wire.bytes - bytes,
        });
        if known.len() == EFFECTS_MAX {
            known.pop_front();
        }
        known.push_back(Effect {
            starts,
            ends: ranks.iter().map(|rank| ends[*rank] - base).collect(),
            wires: wires.collect(),
            messages: self.messages - counts.0,
            bytes: self.bytes - counts.1,
        });
        ends
    }

    /// Simulates all rounds of the groups. The clocks of ranks without rounds do not change.
    pub fn exchange(&mut self, groups: &[Group]) {
        self.go_through(groups, &mut |_| true);
    }

    /// Simulates rounds as long as `goes_on` returns true for the times at which the ranks ended the last round.
    /// Returns whether all rounds were simulated and `goes_on` returned true after each of them.
    fn go_through(&mut self, groups: &[Group], goes_on: &mut dyn FnMut(&[f64]) -> bool) -> bool {
        let mut last: Option<Step> = None;
        for round in 0..groups.iter().flat_map(|group| group.rounds).map(Vec::len).max().unwrap_or(0) {
            let again = last.take().filter(|step| step.steady_us.is_some() && is_repeated(groups, round));
            last = Some(match again {
                Some(step) => self.repeat(step),
                None => self.round(groups, round),
            });
            if !goes_on(&self.ended) {
                return false;
            }
        }
        true
    }

    fn round(&mut self, groups: &[Group], round: usize) -> Step {
        let overhead = self.topology.overhead_us.value;
        let counts = (self.messages, self.bytes);
        let mut messages = messages_of_round(groups, round, &self.ended);
        messages.sort_unstable_by_key(|m| ((m.ready / SAME_US).round() as u64, m.from, m.to));
        self.wires.begin_round();
        let mut ranks: Vec<usize> = vec![];
        for rank in messages.iter().flat_map(|m| [m.from, m.to]) {
            if self.turns[rank].round != self.wires.round {
                let (now, round) = (self.ended[rank], self.wires.round);
                self.turns[rank] = Turn { round, began: now, sends: now, receives: now, combines: 0 };
                ranks.push(rank);
            }
        }
        for m in &messages {
            self.turns[m.to].combines += m.combined;
            if m.from == m.to {
                continue;
            }
            let sends = m.ready.max(self.turns[m.from].sends) + overhead;
            self.turns[m.from].sends = sends;
            let arrives = self.wires.carry(m, sends);
            self.turns[m.to].receives = self.turns[m.to].receives.max(arrives) + overhead;
            self.messages += 1;
            self.bytes += m.bytes as u64;
        }
        let mut takes = vec![];
        for rank in &ranks {
            let turn = &self.turns[*rank];
            let combining = turn.combines as f64 / (self.topology.combine_gb_s.value * 1e3);
            self.ended[*rank] = turn.sends.max(turn.receives) + combining;
            takes.push(self.ended[*rank] - turn.began);
        }
        let Wires { all, used, .. } = &self.wires;
        takes.extend(used.iter().map(|before| all[before.wire].free_at - before.free_at));
        let first = takes.first().copied();
        let same = |us: &f64| first.is_some_and(|first| (us - first).abs() <= 1e-9 * first.abs());
        let steady_us = first.filter(|_| takes.iter().all(same));
        let (messages, bytes) = (self.messages - counts.0, self.bytes - counts.1);
        let wires = used.iter().map(|before| (before.wire, all[before.wire].bytes - before.bytes)).collect();
        Step { steady_us, messages, bytes, ranks, wires }
    }

    /// Applies the effect of a round, whose `steady_us` is known, once more.
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

    /// Returns the latest time of all clocks, and the traffic of all exchanges so far.
    pub fn outcome(self) -> Outcome {
        let time_us = self.ended.into_iter().fold(0.0, f64::max);
        let used = self.wires.all.into_iter().filter(|wire| wire.bytes > 0);
        let links = used.map(|wire| (wire.link, wire.bytes)).collect();
        Outcome { time_us, messages: self.messages, bytes: self.bytes, links }
    }
}

/// The effect of a simulated exchange on clocks and traffic. All times are relative to the time at which the first rank
/// began.
#[derive(Clone, Debug)]
pub struct Effect {
    /// Times at which the ranks began, in the order of groups and members.
    starts: Vec<f64>,
    /// Times at which the ranks had their results, in the same order.
    ends: Vec<f64>,
    wires: Vec<UsedWire>,
    messages: u64,
    bytes: u64,
}

#[derive(Clone, Debug)]
struct UsedWire {
    number: usize,
    /// Time from which the link was free before the exchange; 0 if the link was free when the first rank began.
    begins: f64,
    /// Time from which the link was free after the exchange.
    ends: f64,
    bytes: u64,
}

/// Maximum number of effects of exchanges of the same groups that are remembered. There are several, because the
/// relative times at which ranks begin may alternate.
const EFFECTS_MAX: usize = 8;
/// Maximum difference, in microseconds, between times that count as equal: a picosecond. Rounding errors are smaller.
const SAME_US: f64 = 1e-6;

impl Effect {
    fn begins_so(&self, starts: &[f64], base: f64, wires: &[Wire]) -> bool {
        let same = |a: f64, b: f64| (a - b).abs() <= SAME_US;
        let wire = |used: &UsedWire| same(used.begins, (wires[used.number].free_at - base).max(0.0));
        self.starts.iter().zip(starts).all(|(a, b)| same(*a, *b)) && self.wires.iter().all(wire)
    }
}

/// The effect of a simulated round on clocks and traffic.
struct Step {
    /// The time by which the ranks and links of the round advanced, if it is the same for all of them; in this case, a
    /// repetition of the round has the same effect again.
    steady_us: Option<f64>,
    messages: u64,
    bytes: u64,
    /// Ranks that sent or received.
    ranks: Vec<usize>,
    /// Numbers of the links that were used, and the bytes that these links carried.
    wires: Vec<(usize, u64)>,
}

/// Whether each rank takes and combines as many bytes from the same ranks as in the previous round.
fn is_repeated(groups: &[Group], round: usize) -> bool {
    groups.iter().flat_map(|group| group.rounds).all(|rounds| match (rounds.get(round - 1), rounds.get(round)) {
        (Some(before), Some(now)) => {
            let same = |(a, b): (&Move, &Move)| {
                (a.from.rank(), a.bytes, a.combine.is_some()) == (b.from.rank(), b.bytes, b.combine.is_some())
            };
            before.len() == now.len() && before.iter().zip(now).all(same)
        }
        (before, now) => before.is_none_or(Vec::is_empty) && now.is_none_or(Vec::is_empty),
    })
}

/// Maximum number of routes that are remembered.
const ROUTES_MAX: usize = 1 << 22;

/// The links of all known routes, and the traffic on them so far.
struct Wires<'t> {
    topology: &'t Topology,
    /// By sender: the known routes, sorted by receiver. Messages that become ready at the same time are sorted by
    /// sender, so their routes are close to each other in memory.
    routes: Vec<Vec<Route>>,
    /// Number of all known routes.
    n_routes: usize,
    /// Numbers of the links of all known routes: indices into `all`.
    numbered: Vec<u32>,
    numbers: HashMap<Link, usize>,
    all: Vec<Wire>,
    round: u64,
    /// The links that the current round uses, with their state before the round.
    used: Vec<Before>,
}

#[derive(Clone, Copy)]
struct Route {
    to: u32,
    /// Index in `numbered` at which the numbers of the route's links begin.
    first: u32,
    /// Number of links.
    links: u32,
}

struct Wire {
    link: Link,
    free_at: f64,
    bytes: u64,
    /// The last round that used the link; 0 if none has.
    round: u64,
}

struct Before {
    wire: usize,
    /// Time from which the link was free; NaN if no message had used the link.
    free_at: f64,
    bytes: u64,
}

impl Wires<'_> {
    fn begin_round(&mut self) {
        self.round += 1;
        self.used.clear();
    }

    /// The links from one device to another.
    fn route(&mut self, from: usize, to: usize) -> Route {
        if self.n_routes >= ROUTES_MAX {
            (self.routes, self.n_routes, self.numbered) = (vec![], 0, vec![]);
        }
        let Wires { topology, routes, n_routes, numbered, numbers, all, .. } = self;
        if from >= routes.len() {
            routes.resize(from + 1, vec![]);
        }
        let of_sender = &mut routes[from];
        match of_sender.binary_search_by_key(&(to as u32), |route| route.to) {
            Ok(at) => of_sender[at],
            Err(at) => {
                let first = numbered.len();
                for link in topology.route(from, to) {
                    let number = *numbers.entry(link).or_insert_with(|| {
                        all.push(Wire { link, free_at: 0.0, bytes: 0, round: 0 });
                        all.len() - 1
                    });
                    numbered.push(number as u32);
                }
                let links = (numbered.len() - first) as u32;
                let route = Route { to: to as u32, first: first as u32, links };
                of_sender.insert(at, route);
                *n_routes += 1;
                route
            }
        }
    }

    /// Sends a message over its links from `now` on. Returns the time at which the message has arrived.
    fn carry(&mut self, m: &Message, now: f64) -> f64 {
        let Route { first, links, .. } = self.route(m.from, m.to);
        let Wires { topology, numbered, all, round, used, .. } = self;
        let (mut begins, mut latency, mut longest) = (now, 0.0, 0.0f64);
        for &number in &numbered[first as usize..][..links as usize] {
            let number = number as usize;
            let wire = &mut all[number];
            if wire.round != *round {
                let free_at = if wire.round == 0 { f64::NAN } else { wire.free_at };
                used.push(Before { wire: number, free_at, bytes: wire.bytes });
                wire.round = *round;
            }
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

fn messages_of_round(groups: &[Group], round: usize, ended: &[f64]) -> Vec<Message> {
    let mut messages: Vec<Message> = vec![];
    let all = groups.iter().flat_map(|group| group.members.iter().zip(group.rounds).map(move |of| (group.members, of)));
    // For each position in the group: the index in `messages` of the message that the current receiver takes from the
    // member at this position. Indices below `own` are left over from previous receivers.
    let mut places: Vec<usize> = vec![];
    for (members, (&to, rounds)) in all {
        let own = messages.len();
        places.resize(members.len().max(places.len()), 0);
        for m in rounds.get(round).into_iter().flatten() {
            let (place, combined) = (m.from.rank(), if m.combine.is_some() { m.bytes } else { 0 });
            let from = members[place];
            if !messages.get(places[place]).is_some_and(|known| places[place] >= own && known.from == from) {
                places[place] = messages.len();
                messages.push(Message { ready: ended[from].max(ended[to]), from, to, bytes: 0, combined: 0 });
            }
            let message = &mut messages[places[place]];
            message.bytes += m.bytes;
            message.combined += combined;
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_base::DType;
    use sardonyx_base::host::Collective;
    use sardonyx_base::schedule::{Algorithm, Operand};

    /// Splits the moves of every second round: the messages are the same, but no round repeats the previous one.
    fn halved(rounds: &Rounds) -> Rounds {
        let half = |m: &Move| [Move { bytes: m.bytes / 2, ..*m }, Move { bytes: m.bytes - m.bytes / 2, ..*m }];
        let odd = |(i, moves): (usize, &Vec<Move>)| match i % 2 {
            0 => moves.clone(),
            _ => moves.iter().flat_map(half).collect(),
        };
        rounds.iter().enumerate().map(odd).collect()
    }

    #[test]
    fn exchanges_that_repeat_end_as_if_they_were_simulated() {
        let op = Collective::parse("AllReduce mesh=0 by=add").unwrap();
        for name in ["dgx-h100", "hamming-mesh", "torus-2d"] {
            let t = Topology::preset(name).unwrap().unwrap();
            let (size, stride) = (8, 4);
            let operands = vec![Operand { dtype: DType::F32, dims: vec![48 << 10] }; size];
            let rounds: Vec<Rounds> =
                (0..size).map(|rank| Algorithm::Direct.rounds(&op, &operands, rank).unwrap()).collect();
            let members: Vec<Vec<usize>> =
                (0..stride).map(|first| (0..size).map(|i| first + i * stride).collect()).collect();
            let groups: Vec<Group> = members.iter().map(|members| Group { members, rounds: &rounds }).collect();
            let (mut quick, mut slow) = (Simulation::new(&t, 32), Simulation::new(&t, 32));
            let (mut known, mut repeated) = (VecDeque::new(), 0);
            for call in 0..60 {
                // The last calls begin at other times than those before.
                let late = |rank: usize| if call > 57 { (rank % 3) as f64 * 0.5 } else { 0.0 };
                let from = |s: &Simulation| (0..32).map(|rank| s.ended(rank) + 2.0 + late(rank)).collect::<Vec<f64>>();
                let simulated = known.len();
                let (a, b) = (quick.begin_again(from(&quick), &groups, &mut known), slow.begin(from(&slow), &groups));
                repeated += usize::from(known.len() == simulated);
                for (rank, (a, b)) in a.iter().zip(&b).enumerate() {
                    assert!((a - b).abs() < 1e-5, "{name}, call {call}, rank {rank}: {a} {b}");
                    quick.wait_until(rank, *a);
                    slow.wait_until(rank, *b);
                }
            }
            assert!((1..60).contains(&repeated), "{name}: {repeated} of 60 calls repeated");
            let counts = |o: Outcome| (o.messages, o.bytes, o.links);
            assert_eq!(counts(quick.outcome()), counts(slow.outcome()), "{name}");
        }
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
                    let members: Vec<Vec<usize>> =
                        (0..stride).map(|first| (0..size).map(|i| first + i * stride).collect()).collect();
                    let of = |rounds: &[Rounds]| {
                        let groups: Vec<Group> = members.iter().map(|members| Group { members, rounds }).collect();
                        simulate_groups(&t, size * stride, &groups)
                    };
                    let (quick, slow) = (of(&own), of(&own.iter().map(halved).collect::<Vec<_>>()));
                    let what = format!("{name}, {size} by {stride}, {}", algorithm.name());
                    assert!((quick.time_us / slow.time_us - 1.0).abs() < 1e-6, "{what}: {quick:?} {slow:?}");
                    let counts = |o: &Outcome| (o.messages, o.bytes, o.links.clone());
                    assert_eq!(counts(&quick), counts(&slow), "{what}");
                }
            }
        }
    }
}
