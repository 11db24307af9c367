//! One block: its warps take turns until all have ended or none can go on

use super::Context;
use super::barrier::Barriers;
use super::env::Env;
use super::warp::{State, Stop, Warp};
use crate::report::Kind;
use std::sync::atomic::Ordering::Relaxed;

/// Longest turn of a warp, in instructions.
const SLICE_MAX: u64 = 512;

/// Kept from block to block by a worker, so that registers are not allocated again.
pub struct Block {
    warps: Vec<Warp>,
    shared: Vec<u32>,
}

/// xorshift64*
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
        let mut ready: Vec<usize> = (0..self.warps.len()).collect();
        while !ready.is_empty() {
            let turn = random.below(ready.len() as u64) as usize;
            let slice = 1 + random.below(SLICE_MAX);
            let at = ready[turn];
            match self.warps[at].run(&mut env, slice) {
                Stop::Slice => {}
                Stop::Barrier(arrival) => barriers.arrive(&mut self.warps, &mut env, at, arrival),
                Stop::Done => {
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
            if env.context.halt.load(Relaxed) {
                break;
            }
            ready.clear();
            ready.extend((0..self.warps.len()).filter(|i| self.warps[*i].state == State::Ready));
        }
        let waiting = self.warps.iter().any(|warp| matches!(warp.state, State::Waiting(..)));
        if ready.is_empty() && waiting {
            self.deadlock(&mut env);
        }
        self.shared = std::mem::take(&mut env.shared);
        if let Some(shadow) = env.shadow.take() {
            shadow.finish();
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
        let mut lines: Vec<(u32, u32, u32)> = Vec::new();
        for warp in &self.warps {
            if let State::Waiting(id, line) = warp.state {
                match lines.iter_mut().find(|(known, barrier, _)| (*known, *barrier) == (line, id)) {
                    Some((.., count)) => *count += 1,
                    None => lines.push((line, id, 1)),
                }
            }
        }
        lines.sort_unstable();
        let Some((first, ..)) = lines.first().copied() else { return };
        env.note(Kind::Deadlock, first, 1, |env| {
            let waiting: Vec<String> =
                lines.iter().map(|(line, id, n)| format!("{n} warps at barrier {id} in line {line}")).collect();
            let block = super::env::position(env.block, env.context.launch.grid);
            format!("block {block} cannot go on: {}", waiting.join(", "))
        });
    }
}
