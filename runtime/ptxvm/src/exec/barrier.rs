//! bar.sync, bar.arrive, bar.red: barriers at which warps of a block arrive and, except for bar.arrive, wait

use super::env::Env;
use super::warp::{State, Warp};
use crate::decode::ops::{Barrier as BarrierOp, BarrierReduction};
use crate::decode::program::Reg;
use crate::report::Kind;

/// Number of hardware barriers of a block.
const N_BARRIERS: usize = 16;

/// The arrival of a warp at a barrier.
pub struct Arrival {
    id: u32,
    line: u32,
    /// Number of threads that the barrier expects; `None` for all threads of the block.
    count: Option<u32>,
    /// Number of threads that this arrival counts for.
    threads: u32,
    waits: bool,
    mask: u32,
    reduction: Option<(BarrierReduction, Reg, u32)>,
}

#[derive(Default)]
struct Phase {
    count: Option<u32>,
    threads: u32,
    /// Mask of the warps that have arrived since the barrier was last completed.
    arrived: u32,
    line: u32,
    /// Results of bar.red to write when the barrier is completed: warp, lanes, operation and destination.
    results: Vec<(usize, u32, BarrierReduction, Reg)>,
    popc: u32,
    all: bool,
    any: bool,
}

#[derive(Default)]
pub struct Barriers {
    phases: [Phase; N_BARRIERS],
}

impl Warp {
    /// Returns the arrival of the warp, or `None` if the operands are invalid.
    pub fn arrival(&mut self, env: &mut Env, op: &BarrierOp, line: u32, active: u32) -> Option<Arrival> {
        let first = active.trailing_zeros();
        let uniform = |reg: u32| {
            let values = &self.regs.w[reg as usize];
            let value = values[first as usize & 31];
            (0..32).all(|lane| active >> lane & 1 == 0 || values[lane] == value).then_some(value)
        };
        let (id, count) = (uniform(op.id), op.count.map(uniform));
        let (Some(id), None | Some(Some(_))) = (id, count) else {
            env.note_lanes(Kind::BarrierMisuse, line, self.index, active, |_| {
                "names a barrier that differs between lanes".into()
            });
            return None;
        };
        let count = count.flatten();
        if id as usize >= N_BARRIERS || count.is_some_and(|count| count == 0 || count % 32 != 0 || count > 1024) {
            env.note_lanes(Kind::BarrierMisuse, line, self.index, active, |_| {
                format!("barrier {id} with {count:?} threads: barriers are 0 to 15, counts multiples of 32")
            });
            return None;
        }
        if active != self.live {
            let missing = self.live & !active;
            env.note_lanes(Kind::DivergentSync, line, self.index, missing, |_| {
                "does not take part in a barrier of its warp".into()
            });
        }
        let reduction = op.reduction.map(|(op, to, p, negated)| {
            let holds = self.regs.p[p as usize] ^ 0u32.wrapping_sub(u32::from(negated));
            (op, to, holds & active)
        });
        let threads = if op.aligned || active == self.live { 32 } else { active.count_ones() };
        Some(Arrival { id, line, count, threads, waits: op.waits, mask: active, reduction })
    }
}

impl Barriers {
    pub fn arrive(&mut self, warps: &mut [Warp], env: &mut Env, at: usize, arrival: Arrival) {
        let Some(phase) = self.phases.get_mut(arrival.id as usize) else { return };
        if phase.threads == 0 {
            *phase = Phase { count: arrival.count, line: arrival.line, all: true, ..Phase::default() };
        } else if phase.count != arrival.count {
            let (line, first) = (arrival.line, phase.line);
            env.note_lanes(Kind::BarrierMisuse, line, warps[at].index, arrival.mask, |_| {
                format!("expects another number of threads at barrier {} than line {first}", arrival.id)
            });
        }
        phase.threads += arrival.threads;
        phase.arrived |= 1 << (at & 31);
        if let Some((op, to, holds)) = &arrival.reduction {
            phase.popc += holds.count_ones();
            phase.all &= *holds == arrival.mask;
            phase.any |= *holds != 0;
            phase.results.push((at, arrival.mask, *op, *to));
        }
        if let Some(shadow) = &mut env.shadow {
            shadow.arrive(arrival.id, warps[at].index, arrival.mask, arrival.waits);
        }
        if arrival.waits {
            warps[at].state = State::Waiting(arrival.id, arrival.line);
        }
        if phase.count.is_some_and(|count| phase.threads > count) {
            let line = arrival.line;
            env.note_lanes(Kind::BarrierMisuse, line, warps[at].index, arrival.mask, |_| {
                format!("brings barrier {} more threads than it expects", arrival.id)
            });
        }
        self.complete(warps, env, arrival.id);
    }

    /// Must be called when a warp has ended: barriers that expect the whole block no longer wait for that warp.
    pub fn left(&mut self, warps: &mut [Warp], env: &mut Env) {
        for id in 0..N_BARRIERS as u32 {
            if self.phases[id as usize].threads > 0 && self.phases[id as usize].count.is_none() {
                self.complete(warps, env, id);
            }
        }
    }

    fn complete(&mut self, warps: &mut [Warp], env: &mut Env, id: u32) {
        let phase = &mut self.phases[id as usize];
        let done = match phase.count {
            Some(count) => phase.threads >= count,
            None => warps
                .iter()
                .enumerate()
                .all(|(i, warp)| warp.state == State::Done || phase.arrived >> (i & 31) & 1 == 1),
        };
        if !done {
            return;
        }
        for (at, mask, op, to) in std::mem::take(&mut phase.results) {
            let regs = &mut warps[at].regs;
            match op {
                BarrierReduction::Popc => regs.set(to.index, mask, &[phase.popc; 32]),
                BarrierReduction::And => regs.set_pred(to.index, mask, 0u32.wrapping_sub(u32::from(phase.all))),
                BarrierReduction::Or => regs.set_pred(to.index, mask, 0u32.wrapping_sub(u32::from(phase.any))),
            }
        }
        *phase = Phase::default();
        for warp in warps.iter_mut() {
            if matches!(warp.state, State::Waiting(waiting, _) if waiting == id) {
                warp.state = State::Ready;
            }
        }
        if let Some(shadow) = &mut env.shadow {
            shadow.complete(id);
        }
    }
}
