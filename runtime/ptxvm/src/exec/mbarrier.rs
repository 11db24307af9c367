//! mbarriers: expected arrivals and bytes  =>  completed phases, and the results of waits
//!
//! A cluster is one block, so mbarriers of other blocks are never accessed.

use std::collections::BTreeMap;

use super::access::{Request, addresses, lanes, where_lanes};
use super::agents::Event;
use super::env::Env;
use super::warp::Warp;
use crate::decode::ops::{MbarrierOp, MbarrierUse, PhaseOperand};
use crate::memory::SHARED_BASE;
use crate::report::Kind as Finding;
use crate::shadow::{Kind, Place, Scope};
use crate::text::types::Space;

/// Size of an mbarrier in bytes.
const BYTES: u32 = 8;
/// Maximum number of arrivals, and of bytes in flight (PTX ISA, "mbarrier object").
const COUNT_MAX: u32 = (1 << 20) - 1;

#[derive(Clone, Debug)]
pub struct Mbarrier {
    expected: u32,
    pending: u32,
    /// Bytes expected but not yet arrived; negative if they arrived before they were expected.
    bytes: i64,
    /// Number of completed phases.
    phase: u32,
}

/// The mbarriers of a block, by their offsets in shared memory.
#[derive(Debug, Default)]
pub struct Mbarriers {
    known: BTreeMap<u32, Mbarrier>,
    /// Incremented whenever waiting warps should check again.
    pub completed: u64,
    /// Incremented with every change of arrivals or bytes.
    pub updates: u64,
}

impl Mbarrier {
    fn new(count: u32) -> Mbarrier {
        Mbarrier { expected: count, pending: count, bytes: 0, phase: 0 }
    }

    fn state(&self) -> u64 {
        u64::from(self.phase) | u64::from(self.pending) << crate::decode::PENDING_SHIFT
    }

    fn has_completed(&self, parity: u32) -> bool {
        self.phase & 1 != parity & 1
    }

    pub fn add_bytes(&mut self, bytes: i64) -> Result<(), String> {
        self.bytes += bytes;
        match self.bytes.unsigned_abs() > u64::from(COUNT_MAX) {
            true => Err(format!("leaves {} bytes under way, more than {COUNT_MAX}", self.bytes)),
            false => Ok(()),
        }
    }

    pub fn arrive(&mut self, count: u32) -> Result<(), String> {
        match self.pending.checked_sub(count) {
            Some(left) if count > 0 => {
                self.pending = left;
                Ok(())
            }
            Some(_) => Err("arrives 0 times".into()),
            None => Err(format!("arrives {count} times where {} are expected", self.pending)),
        }
    }

    /// Completes the phase if no arrivals and no bytes are missing.
    fn settle(&mut self) -> bool {
        let done = self.pending == 0 && self.bytes == 0;
        if done {
            self.phase = self.phase.wrapping_add(1);
            self.pending = self.expected;
        }
        done
    }

    pub fn progress(&self) -> String {
        let arrived = self.expected.saturating_sub(self.pending);
        format!("{arrived} of {} arrivals, {} bytes expected", self.expected, self.bytes)
    }
}

impl Mbarriers {
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub fn get(&self, at: u32) -> Option<&Mbarrier> {
        self.known.get(&at)
    }

    /// Returns the offset of an mbarrier that overlaps a byte range.
    pub fn overlapping(&self, at: u64, bytes: u32) -> Option<u32> {
        let end = u32::try_from(at.saturating_add(u64::from(bytes))).unwrap_or(u32::MAX);
        let (found, _) = self.known.range(..end).next_back()?;
        (u64::from(found + BYTES) > at).then_some(*found)
    }
}

/// The thread that executes an operation, and the line of the operation.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    pub warp: u32,
    pub lane: u32,
    pub line: u32,
}

impl Env<'_> {
    /// Changes an mbarrier, and completes its phase if no arrivals and bytes are missing. The caller must have checked
    /// the access.
    pub fn update_mbarrier(
        &mut self,
        who: Who,
        at: u32,
        ordered: bool,
        change: impl FnOnce(&mut Mbarrier) -> Result<(), String>,
    ) {
        let Some(barrier) = self.mbarriers.known.get_mut(&at) else { return };
        self.mbarriers.updates += 1;
        let changed = change(barrier);
        if let (true, Some(shadow)) = (ordered, &mut self.shadow) {
            shadow.publish(who.warp, who.lane, Place::Arrivals(at), true, true, Scope::Block);
        }
        if barrier.settle() {
            self.mbarriers.completed += 1;
            if let Some(shadow) = &mut self.shadow {
                shadow.complete_phase(at);
            }
        }
        if let Err(what) = changed {
            self.note_lane(Finding::BarrierMisuse, who.line, who.warp, who.lane, |env| {
                format!("{what}, at the mbarrier at {}", env.place(Space::Shared, at.into()))
            });
        }
    }

    /// Reports accesses to mbarriers by instructions other than mbarrier operations. Such accesses are undefined.
    pub fn check_mbarriers(&mut self, rq: &Request, at: &[u64; 32]) {
        let wrong = where_lanes(rq.mask, |lane| self.mbarriers.overlapping(at[lane], rq.bytes).is_some());
        self.note_lanes(Finding::BarrierMisuse, rq.line, rq.warp, wrong, |env| {
            let first = at[wrong.trailing_zeros() as usize & 31];
            format!("touches an mbarrier with another instruction, at {}", env.place(Space::Shared, first))
        });
    }
}

impl Warp {
    /// Executes an mbarrier instruction. If the warp must wait, returns the offset of the mbarrier and the line, and
    /// changes nothing.
    pub fn mbarrier(&mut self, env: &mut Env, op: &MbarrierUse, pc: u32, active: u32) -> Option<(u32, u32)> {
        let line = env.context.program.code[pc as usize].line;
        let mut at = addresses(&self.regs, &op.address);
        if op.space == Space::Generic {
            at = at.map(|at| at.wrapping_sub(SHARED_BASE));
        }
        let kind = match op.op {
            MbarrierOp::Init { .. } | MbarrierOp::Inval => Kind::Write,
            MbarrierOp::Wait { .. } => Kind::AtomicRead,
            MbarrierOp::ExpectTx { .. }
            | MbarrierOp::CompleteTx { .. }
            | MbarrierOp::Arrive { .. }
            | MbarrierOp::ArriveAfterCopies { .. } => Kind::Atomic,
        };
        let mut mask = active;
        if !matches!(op.op, MbarrierOp::Init { .. }) {
            let unknown =
                where_lanes(active, |lane| u32::try_from(at[lane]).ok().and_then(|at| env.mbarriers.get(at)).is_none());
            env.note_lanes(Finding::BarrierMisuse, line, self.index, unknown, |env| {
                let first = at[unknown.trailing_zeros() as usize & 31];
                format!("uses an mbarrier that nothing initialised, at {}", env.place(Space::Shared, first))
            });
            mask &= !unknown;
        }
        if let MbarrierOp::Wait { p, phase } = op.op {
            return self.wait_at(env, op, (line, pc), &at, (mask, active), p, phase);
        }
        let rq = Request { pc, line, warp: self.index, mask, bytes: BYTES, kind, collective: false };
        for lane in lanes(env.shared_part(&rq, &at, |_, _| true)) {
            self.mbarrier_lane(env, op, line, lane, at[lane] as u32);
        }
        None
    }

    fn mbarrier_lane(&mut self, env: &mut Env, op: &MbarrierUse, line: u32, lane: usize, at: u32) {
        let who = Who { warp: self.index, lane: lane as u32, line };
        let word = |reg: u32| self.regs.w[reg as usize][lane];
        match op.op {
            MbarrierOp::Init { count } => init(env, who, at, word(count)),
            MbarrierOp::Inval => {
                env.mbarriers.known.remove(&at);
                env.mbarriers.completed += 1;
                if let Some(shadow) = &mut env.shadow {
                    shadow.forget_phases(at);
                }
            }
            MbarrierOp::ExpectTx { bytes } => {
                let bytes = i64::from(word(bytes));
                env.update_mbarrier(who, at, op.ordered, |barrier| barrier.add_bytes(bytes));
            }
            MbarrierOp::CompleteTx { bytes } => {
                let bytes = -i64::from(word(bytes));
                env.update_mbarrier(who, at, op.ordered, |barrier| barrier.add_bytes(bytes));
            }
            MbarrierOp::Arrive { count, bytes, drop, completes, state } => {
                let (count, bytes) = (count.map_or(1, word), bytes.map_or(0, word));
                if let (Some(state), Some(barrier)) = (state, env.mbarriers.get(at)) {
                    self.regs.d[state as usize][lane] = barrier.state();
                }
                env.update_mbarrier(who, at, op.ordered, |barrier| {
                    barrier.add_bytes(bytes.into())?;
                    if drop {
                        barrier.expected = barrier.expected.saturating_sub(count);
                    }
                    if !completes && barrier.pending == count {
                        barrier.arrive(count)?;
                        return Err("ends the phase with .noComplete".into());
                    }
                    barrier.arrive(count)
                });
            }
            MbarrierOp::ArriveAfterCopies { counted } => {
                if !counted {
                    env.update_mbarrier(who, at, false, |barrier| {
                        barrier.pending += 1;
                        Ok(())
                    });
                }
                let copies = env.agents.copies_so_far(self.index);
                env.agents.add(Event::Arrive { who, at, copies });
            }
            MbarrierOp::Wait { .. } => {}
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn wait_at(
        &mut self,
        env: &mut Env,
        op: &MbarrierUse,
        (line, pc): (u32, u32),
        at: &[u64; 32],
        (mask, active): (u32, u32),
        p: u32,
        phase: PhaseOperand,
    ) -> Option<(u32, u32)> {
        let done = where_lanes(mask, |lane| {
            env.mbarriers.get(at[lane] as u32).is_none_or(|barrier| match phase {
                PhaseOperand::Parity(parity) => barrier.has_completed(self.regs.w[parity as usize][lane]),
                PhaseOperand::State(state) => barrier.phase != self.regs.d[state as usize][lane] as u32,
            })
        });
        // Some waits return false at once, which exposes code that does not retry.
        let at_once = env.clock.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 0;
        if done == 0 && mask != 0 && !self.told_to_go_on && !at_once {
            return Some((at[mask.trailing_zeros() as usize & 31] as u32, line));
        }
        self.told_to_go_on = false;
        let kind = Kind::AtomicRead;
        let rq = Request { pc, line, warp: self.index, mask, bytes: BYTES, kind, collective: false };
        env.shared_part(&rq, at, |_, _| true);
        if let (true, Some(shadow)) = (op.ordered, &mut env.shadow) {
            for lane in lanes(done) {
                shadow.observe(self.index, lane as u32, Place::Phase(at[lane] as u32), true, Scope::Block);
            }
        }
        // Lanes without a valid mbarrier get true; with false, they would wait forever.
        self.regs.set_pred(p, active, done | active & !mask);
        None
    }
}

fn init(env: &mut Env, who: Who, at: u32, count: u32) {
    if env.mbarriers.overlapping(at.into(), BYTES).is_some() {
        env.note_lane(Finding::BarrierMisuse, who.line, who.warp, who.lane, |env| {
            format!("initialises an mbarrier that is in use, at {}", env.place(Space::Shared, at.into()))
        });
    }
    if count == 0 || count > COUNT_MAX {
        env.note_lane(Finding::BarrierMisuse, who.line, who.warp, who.lane, |_| {
            format!("initialises an mbarrier for {count} arrivals, not 1 to {COUNT_MAX}")
        });
    }
    env.mbarriers.known.insert(at, Mbarrier::new(count.max(1)));
    env.mbarriers.completed += 1;
    if let Some(shadow) = &mut env.shadow {
        shadow.forget_phases(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_ends_when_arrivals_and_bytes_have_come() {
        let mut barrier = Mbarrier::new(2);
        assert!(barrier.has_completed(1) && !barrier.has_completed(0));
        barrier.add_bytes(64).unwrap();
        barrier.arrive(2).unwrap();
        assert!(!barrier.settle() && barrier.arrive(1).is_err());
        barrier.add_bytes(-64).unwrap();
        assert!(barrier.settle() && barrier.has_completed(0) && !barrier.has_completed(1));
        assert_eq!((barrier.pending, barrier.phase), (2, 1));
        assert!(barrier.add_bytes(1 << 20).is_err());
    }
}
