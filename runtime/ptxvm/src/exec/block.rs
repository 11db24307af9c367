//! One block: its warps run in time slices until all have ended or none can continue

use super::Context;
use super::barrier::Barriers;
use super::env::Env;
use super::warp::{State, Stop, Warp};
use crate::report::Kind;
use crate::text::types::Space;
use std::sync::atomic::Ordering::Relaxed;

/// Longest time slice of a warp, in instructions.
const SLICE_MAX: u64 = 512;
/// Number of times that all mbarrier waits of a block return false without any progress before the block counts as
/// deadlocked.
const REFUSALS_MAX: u32 = 8;

/// The warps and the shared memory of a running block. A worker reuses them for its next block, so that registers are
/// not allocated again.
pub struct Block {
    warps: Vec<Warp>,
    shared: Vec<u32>,
}

/// A pseudorandom number generator (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n.max(1)
    }
}

impl Block {
    pub fn new(context: &Context) -> Block {
        let n = context.n_threads.div_ceil(32);
        Block { warps: (0..n).map(|i| Warp::new(i, context.program)).collect(), shared: Vec::new() }
    }

    pub fn take_shared(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.shared)
    }

    pub fn run(&mut self, mut env: Env) {
        for warp in &mut self.warps {
            warp.start(&env);
        }
        let mut barriers = Barriers::default();
        let mut random = Random((env.context.options.seed ^ env.block << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut reported = 0;
        let mut refusals = 0;
        let (mut seen, mut updates) = (0, 0);
        let mut ready: Vec<usize> = (0..self.warps.len()).collect();
        while !ready.is_empty() {
            let turn = random.below(ready.len() as u64) as usize;
            let slice = 1 + random.below(SLICE_MAX);
            let at = ready[turn];
            match self.warps[at].run(&mut env, slice) {
                Stop::Slice => {}
                Stop::Barrier(arrival) => {
                    refusals = 0;
                    barriers.arrive(&mut self.warps, &mut env, at, arrival);
                }
                Stop::Mbarrier(barrier, line) => self.warps[at].state = State::Polling(barrier, line),
                Stop::Done => {
                    refusals = 0;
                    self.warps[at].state = State::Done;
                    barriers.left(&mut self.warps, &mut env);
                }
                Stop::Halt => break,
            }
            let spent = env.context.spent.fetch_add(env.clock - reported, Relaxed) + env.clock - reported;
            reported = env.clock;
            if spent > env.context.options.instructions_max {
                self.limit(&mut env, at);
                break;
            }
            if !(env.context.go_on)() {
                env.context.halt.store(true, Relaxed);
            }
            if env.context.halt.load(Relaxed) {
                break;
            }
            if env.agents.n_events() > 0 && random.below(4) == 0 {
                env.happen(random.below(env.agents.n_events() as u64) as usize);
            }
            self.wake(&env, &mut seen, &mut ready);
            while ready.is_empty() && env.agents.n_events() > 0 && self.is_waiting() {
                env.happen(random.below(env.agents.n_events() as u64) as usize);
                self.wake(&env, &mut seen, &mut ready);
            }
            if env.mbarriers.updates != updates {
                (updates, refusals) = (env.mbarriers.updates, 0);
            }
            if ready.is_empty() && refusals < REFUSALS_MAX {
                refusals += 1;
                self.refuse(&mut ready);
            }
        }
        if !env.context.halt.load(Relaxed) {
            env.end_transfers();
            self.check_warpgroups(&mut env);
        }
        if ready.is_empty() && self.is_waiting() {
            self.deadlock(&mut env);
        }
        self.shared = std::mem::take(&mut env.shared);
        if let Some(shadow) = env.shadow.take() {
            shadow.finish();
        }
    }

    fn is_waiting(&self) -> bool {
        self.warps.iter().any(|warp| matches!(warp.state, State::Waiting(..) | State::Polling(..)))
    }

    /// Collects the warps that can run. Warps waiting for mbarriers check again after any phase has completed.
    fn wake(&mut self, env: &Env, seen: &mut u64, ready: &mut Vec<usize>) {
        if *seen != env.mbarriers.completed {
            *seen = env.mbarriers.completed;
            for warp in &mut self.warps {
                if matches!(warp.state, State::Polling(..)) {
                    warp.state = State::Ready;
                }
            }
        }
        ready.clear();
        ready.extend((0..self.warps.len()).filter(|i| self.warps[*i].state == State::Ready));
    }

    /// Ends every wait for an mbarrier, as if its time limit had passed.
    fn refuse(&mut self, ready: &mut Vec<usize>) {
        for (i, warp) in self.warps.iter_mut().enumerate() {
            if matches!(warp.state, State::Polling(..)) {
                (warp.state, warp.told_to_go_on) = (State::Ready, true);
                ready.push(i);
            }
        }
    }

    /// Checks that every `wgmma` was executed by all four warps of its warpgroup and was waited for.
    fn check_warpgroups(&self, env: &mut Env) {
        for group in self.warps.chunks(4) {
            let most = group.iter().map(|warp| warp.products.issued).max().unwrap_or(0);
            let short = group.iter().find(|warp| warp.products.issued != most);
            let line = group.iter().map(|warp| warp.products.line).max().unwrap_or(0);
            if most > 0 && (short.is_some() || group.len() < 4) {
                let index = short.or(group.last()).map_or(0, |warp| warp.index);
                env.note_lanes(Kind::DivergentSync, line, index, u32::MAX, |_| {
                    "does not take part in every wgmma of its warpgroup of four warps".into()
                });
            }
            for warp in group.iter().filter(|warp| warp.state == State::Done && warp.products.is_pending()) {
                env.note_lanes(Kind::InFlight, warp.products.line, warp.index, u32::MAX, |_| {
                    "ends without waiting for its wgmma".into()
                });
            }
        }
    }

    fn limit(&self, env: &mut Env, at: usize) {
        env.context.halt.store(true, Relaxed);
        let line = self.warps[at].line(env.context.program);
        env.note(Kind::InstructionLimit, line, 1, |env| {
            let most = env.context.options.instructions_max;
            format!("the launch has run more than {most} warp instructions; a warp was here")
        });
    }

    fn deadlock(&self, env: &mut Env) {
        // For each line and barrier at which warps wait: the line, whether the barrier is an mbarrier, its number (or
        // the offset of the mbarrier), and the number of waiting warps.
        let mut lines: Vec<(u32, bool, u32, u32)> = Vec::new();
        for warp in &self.warps {
            let (line, is_mbarrier, id) = match warp.state {
                State::Waiting(id, line) => (line, false, id),
                State::Polling(at, line) => (line, true, at),
                State::Ready | State::Done => continue,
            };
            match lines.iter_mut().find(|(l, m, b, _)| (*l, *m, *b) == (line, is_mbarrier, id)) {
                Some((.., count)) => *count += 1,
                None => lines.push((line, is_mbarrier, id, 1)),
            }
        }
        lines.sort_unstable();
        let Some((first, ..)) = lines.first().copied() else { return };
        env.note(Kind::Deadlock, first, 1, |env| {
            let waiting = lines.iter().map(|(line, is_mbarrier, id, n)| {
                if !is_mbarrier {
                    return format!("{n} warps at barrier {id} in line {line}");
                }
                let place = env.place(Space::Shared, u64::from(*id));
                let progress = env.mbarriers.get(*id).map(|barrier| barrier.progress()).unwrap_or_default();
                format!("{n} warps in line {line} at the mbarrier at {place} ({progress})")
            });
            let waiting: Vec<String> = waiting.collect();
            let block = super::env::position(env.block, env.context.launch.grid);
            format!("block {block} cannot go on: {}", waiting.join(", "))
        });
    }
}
