//! random programs  =>  the first race, compared with a detector that keeps a clock per thread and the complete history
#![cfg(test)]

use std::collections::HashMap;

use super::*;

const N_THREADS: usize = 70;
const BYTES: u64 = 24;

/// xorshift64*, enough to vary programs.
pub(super) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

type Clock = Vec<u32>;

/// An access to one byte by a lane, or by a warp as a whole.
#[derive(Clone)]
struct Past {
    threads: Vec<usize>,
    time: u32,
    kind: Kind,
}

/// A detector in which every thread has a clock value for every thread; nothing is summarised or dropped.
struct Reference {
    time: u32,
    clocks: Vec<Clock>,
    exited: Vec<bool>,
    history: HashMap<u64, Vec<Past>>,
    barriers: HashMap<u32, (Clock, Vec<usize>, bool)>,
    fenced: Vec<Option<Clock>>,
    pending: Vec<Clock>,
    places: HashMap<Place, Clock>,
}

fn join(mine: &mut Clock, theirs: &Clock) {
    mine.iter_mut().zip(theirs).for_each(|(m, t)| *m = (*m).max(*t));
}

fn is_atomic(kind: Kind) -> bool {
    matches!(kind, Kind::Atomic | Kind::AtomicRead | Kind::AtomicWrite)
}

fn is_write(kind: Kind) -> bool {
    matches!(kind, Kind::Atomic | Kind::Write | Kind::AtomicWrite)
}

impl Reference {
    fn new() -> Self {
        Reference {
            time: 1,
            clocks: vec![vec![0; N_THREADS]; N_THREADS],
            exited: vec![false; N_THREADS],
            history: HashMap::new(),
            barriers: HashMap::new(),
            fenced: vec![None; N_THREADS],
            pending: vec![vec![0; N_THREADS]; N_THREADS],
            places: HashMap::new(),
        }
    }

    fn threads(&self, warp: u32, mask: u32) -> Vec<usize> {
        let thread = |lane: u32| (warp * 32 + lane) as usize;
        let lanes = (0..32).filter(|lane| mask & (1 << lane) != 0).map(thread);
        lanes.filter(|thread| *thread < N_THREADS && !self.exited[*thread]).collect()
    }

    /// Returns the clock of a thread, its own past included.
    fn now(&self, thread: usize) -> Clock {
        let mut clock = self.clocks[thread].clone();
        clock[thread] = self.time;
        clock
    }

    fn gather(&self, warp: u32, mask: u32) -> Clock {
        let mut all = vec![0; N_THREADS];
        self.threads(warp, mask).into_iter().for_each(|thread| join(&mut all, &self.now(thread)));
        // Exited lanes contribute their accesses.
        (0..N_THREADS)
            .filter(|thread| self.exited[*thread] && *thread / 32 == warp as usize)
            .for_each(|thread| all[thread] = self.time);
        all
    }

    fn step(&mut self) {
        self.time += 1;
    }

    fn access(&mut self, access: &Access, at: &[u64; 32]) -> bool {
        self.step();
        let mut fresh = Vec::new();
        let mut race = false;
        for lane in (0..32).filter(|lane| access.mask & (1 << lane) != 0) {
            let repeated = (0..lane).any(|other| access.mask & (1 << other) != 0 && at[other] == at[lane]);
            if access.kind == Kind::Write && repeated {
                continue;
            }
            let thread = access.warp as usize * 32 + lane;
            let threads = match access.collective {
                true => self.threads(access.warp, u32::MAX),
                false => vec![thread],
            };
            for byte in at[lane]..at[lane] + u64::from(access.bytes) {
                for past in self.history.get(&byte).into_iter().flatten() {
                    let ordered = threads
                        .iter()
                        .any(|me| past.threads.iter().any(|t| t == me || self.clocks[*me][*t] >= past.time));
                    let conflict = (is_write(past.kind) || is_write(access.kind))
                        && !(is_atomic(past.kind) && is_atomic(access.kind));
                    race |= conflict && !ordered;
                }
                fresh.push((byte, Past { threads: threads.clone(), time: self.time, kind: access.kind }));
            }
        }
        fresh.into_iter().for_each(|(byte, past)| self.history.entry(byte).or_default().push(past));
        race
    }

    fn warp_sync(&mut self, warp: u32, mask: u32) {
        let all = self.gather(warp, mask);
        self.threads(warp, mask).into_iter().for_each(|thread| join(&mut self.clocks[thread], &all));
        self.step();
    }

    fn arrive(&mut self, barrier: u32, warp: u32, mask: u32, waits: bool) {
        let (all, threads) = (self.gather(warp, mask), self.threads(warp, mask));
        let entry = self.barriers.entry(barrier).or_insert_with(|| (vec![0; N_THREADS], Vec::new(), false));
        join(&mut entry.0, &all);
        entry.2 |= !waits;
        if waits {
            entry.1.extend(threads);
        }
        self.step();
    }

    fn complete(&mut self, barrier: u32) {
        let Some((mut all, waiting, arrivals)) = self.barriers.remove(&barrier) else { return };
        if !arrivals && (0..N_THREADS).all(|thread| self.exited[thread] || waiting.contains(&thread)) {
            all = vec![self.time; N_THREADS];
        }
        waiting.into_iter().for_each(|thread| join(&mut self.clocks[thread], &all));
        self.step();
    }

    fn fence(&mut self, warp: u32, mask: u32) {
        for thread in self.threads(warp, mask) {
            let seen = std::mem::replace(&mut self.pending[thread], vec![0; N_THREADS]);
            join(&mut self.clocks[thread], &seen);
            self.fenced[thread] = Some(self.now(thread));
        }
        self.step();
    }

    fn publish(&mut self, thread: usize, place: Place, release: bool, rmw: bool) {
        let visible = if release { Some(self.now(thread)) } else { self.fenced[thread].clone() };
        let known = self.places.entry(place).or_insert_with(|| vec![0; N_THREADS]);
        if !rmw {
            known.fill(0);
        }
        visible.iter().for_each(|visible| join(known, visible));
        self.step();
    }

    fn observe(&mut self, thread: usize, place: Place, acquire: bool) {
        let Some(known) = self.places.get(&place) else { return };
        join(if acquire { &mut self.clocks[thread] } else { &mut self.pending[thread] }, known);
    }
}

/// Runs one random program with both detectors. Returns, for each detector, the index of the first event that races.
fn play(seed: u64) -> (Option<usize>, Option<usize>) {
    let mut random = Random::new(seed);
    let mut memory = Global::new();
    memory.alloc(0x10000, 4096);
    memory.host_write(0x10000, 4096);
    let launch = memory.launch(1);
    let mut block = Block::new(&launch, 0, N_THREADS as u32, 1024);
    let mut reference = Reference::new();
    let in_global = random.chance(50);
    let (sync, plain) = (20 + random.below(60), 10 + random.below(90));
    let busy_lanes = 1 + random.below(4);
    let mut problems = Vec::new();
    // Only races are compared: reads of shared memory that nothing wrote are ignored.
    let mut result = (None, None);
    for event in 0..60 {
        let warp = random.below(3) as u32;
        let mask = match random.below(4) {
            0 => u32::MAX,
            1 => 0xf,
            2 => 1 << random.below(6),
            _ => random.below(64) as u32,
        };
        let existing = if warp == 2 { 0x3f } else { u32::MAX };
        let live = |reference: &Reference| {
            (0..32)
                .filter(|lane| existing & (1 << lane) != 0 && !reference.exited[(warp * 32 + lane) as usize])
                .fold(0, |mask, lane| mask | 1 << lane)
        };
        let mask = mask & live(&reference);
        if mask == 0 {
            continue;
        }
        let lane = mask.trailing_zeros();
        let thread = (warp * 32 + lane) as usize;
        if random.chance(sync) {
            let place = if random.chance(50) { Place::Shared(512) } else { Place::Global(0x10200) };
            match random.below(9) {
                0 | 1 => {
                    block.warp_sync(warp, mask);
                    reference.warp_sync(warp, mask);
                }
                2 => {
                    for warp in 0..3 {
                        let all = reference.threads(warp, u32::MAX).iter().fold(0, |mask, t| mask | 1 << (t % 32));
                        if all != 0 {
                            block.arrive(0, warp, all, true);
                            reference.arrive(0, warp, all, true);
                        }
                    }
                    block.complete(0);
                    reference.complete(0);
                }
                3 => {
                    block.arrive(1, warp, mask, false);
                    reference.arrive(1, warp, mask, false);
                }
                4 => {
                    block.arrive(1, warp, mask, true);
                    reference.arrive(1, warp, mask, true);
                    block.complete(1);
                    reference.complete(1);
                }
                5 => {
                    block.fence(warp, mask, Scope::Block);
                    reference.fence(warp, mask);
                }
                6 => {
                    let (release, rmw) = (random.chance(50), random.chance(50));
                    block.publish(warp, lane, place, release, rmw, Scope::Block);
                    reference.publish(thread, place, release, rmw);
                }
                7 => {
                    let acquire = random.chance(50);
                    block.observe(warp, lane, place, acquire, Scope::Block);
                    reference.observe(thread, place, acquire);
                }
                _ => {
                    let mask = if random.chance(30) { mask } else { 0 };
                    block.exit(warp, mask);
                    reference.threads(warp, mask).into_iter().for_each(|thread| reference.exited[thread] = true);
                }
            }
            continue;
        }
        let kind = match (random.chance(plain), random.below(3)) {
            (true, 0) => Kind::Write,
            (true, _) => Kind::Read,
            (false, 0) => Kind::Atomic,
            (false, 1) => Kind::AtomicRead,
            (false, _) => Kind::AtomicWrite,
        };
        let collective = random.chance(15) && matches!(kind, Kind::Read | Kind::Write);
        let bytes = if collective { 8 } else { [1, 2, 4, 4, 8][random.below(5) as usize] };
        let mask = if collective { live(&reference) } else { mask };
        if collective {
            block.warp_sync(warp, mask);
            reference.warp_sync(warp, mask);
        }
        let base = random.below(BYTES / bytes) * bytes;
        let mode = random.below(busy_lanes + 1);
        let slot = |lane: u64| match mode {
            0 => base + lane * bytes,
            1 => base,
            _ => (base + (lane * lane + mode) * bytes) % (BYTES / bytes * bytes),
        };
        let offsets: [u64; 32] = std::array::from_fn(|lane| slot(lane as u64));
        let access = Access { warp, mask, bytes: bytes as u32, kind, collective, line: event as u32 % 5 };
        let theirs = reference.access(&access, &offsets);
        problems.clear();
        if in_global {
            block.global(&access, &offsets.map(|offset| 0x10000 + offset), &mut problems);
        } else {
            block.shared(&access, &offsets.map(|offset| offset as u32), &mut problems);
        }
        let ours = problems.iter().any(|problem| problem.kind == ProblemKind::Race);
        if ours || theirs {
            result = (ours.then_some(event), theirs.then_some(event));
            break;
        }
    }
    block.finish();
    result
}

#[test]
fn the_first_race_of_random_programs_is_found_and_no_other() {
    let (mut racy, mut clean, mut late) = (0, 0, 0);
    for seed in 0..8_000 {
        let (ours, theirs) = play(seed);
        assert_eq!(ours, theirs, "seed {seed}");
        match ours {
            Some(event) if event > 10 => late += 1,
            Some(_) => racy += 1,
            None => clean += 1,
        }
    }
    assert!(racy > 1000 && clean > 100 && late > 1000, "{racy} early, {late} late, {clean} clean");
}
