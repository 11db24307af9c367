//! One memory access of a warp: bounds, alignment, shadow, counters  =>  the lanes that may proceed

use std::sync::atomic::Ordering::Relaxed;

use super::env::Env;
use crate::decode::ops::{Address, Order};
use crate::decode::program::{Bank, Regs};
use crate::memory::{Allocation, LOCAL_BASE, PARAM_BASE, SHARED_BASE, WINDOW_BYTES};
use crate::report::{Kind as Finding, Traffic};
use crate::shadow::{Access, Kind, Place};
use crate::text::types::Space;
use crate::units::counting::{SECTOR_BYTES, Wavefronts, sectors, shared_wavefronts};

/// Up to 16 bytes of each lane, as little-endian words; values smaller than a word are in the low bits.
pub type Data = [[u32; 32]; 4];

/// A memory access that an instruction requests for the lanes of one warp, without its addresses.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub pc: u32,
    pub line: u32,
    pub warp: u32,
    pub mask: u32,
    /// Bytes accessed by each lane.
    pub bytes: u32,
    pub kind: Kind,
    /// See [`Access::collective`].
    pub collective: bool,
}

impl Request {
    pub fn access(&self) -> Access {
        let Request { warp, mask, bytes, kind, collective, line, .. } = *self;
        Access { warp, mask, bytes, kind, collective, line }
    }

    fn reads(&self) -> bool {
        matches!(self.kind, Kind::Read | Kind::AtomicRead | Kind::Atomic)
    }

    fn writes(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::AtomicWrite | Kind::Atomic)
    }

    fn verb(&self) -> &'static str {
        match self.kind {
            Kind::Read | Kind::AtomicRead => "reads",
            Kind::Write | Kind::AtomicWrite => "writes",
            Kind::Atomic => "updates",
        }
    }
}

pub fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros() as usize;
        (rest != 0).then(|| {
            rest &= rest - 1;
            lane
        })
    })
}

pub fn where_lanes(mask: u32, holds: impl Fn(usize) -> bool) -> u32 {
    let all = (0..32).fold(0, |found, lane| found | u32::from(holds(lane)) << lane);
    all & mask
}

pub fn addresses(regs: &Regs, address: &Address) -> [u64; 32] {
    let offset = address.offset as u64;
    match address.base.bank {
        Bank::Double => regs.d[address.base.index as usize].map(|base| base.wrapping_add(offset)),
        Bank::Word | Bank::Pred => {
            regs.w[address.base.index as usize].map(|base| u64::from(base.wrapping_add(offset as u32)))
        }
    }
}

/// Splits the lanes of an access by state space. Each entry holds a space, its lanes, and the base to subtract from
/// their addresses.
pub fn split(space: Space, at: &[u64; 32], mask: u32) -> [(Space, u32, u64); 4] {
    let window = |base: u64| where_lanes(mask, |lane| at[lane].wrapping_sub(base) < WINDOW_BYTES);
    match space {
        Space::Generic => {
            let (shared, local, param) = (window(SHARED_BASE), window(LOCAL_BASE), window(PARAM_BASE));
            let global = mask & !(shared | local | param);
            [
                (Space::Global, global, 0),
                (Space::Shared, shared, SHARED_BASE),
                (Space::Local, local, LOCAL_BASE),
                (Space::Param, param, PARAM_BASE),
            ]
        }
        other => [(other, mask, 0), (other, 0, 0), (other, 0, 0), (other, 0, 0)],
    }
}

impl Env<'_> {
    /// Reports misaligned lanes and returns the remaining ones.
    fn aligned(&mut self, rq: &Request, space: Space, at: &[u64; 32]) -> u32 {
        let low = u64::from(rq.bytes - 1);
        // A fast check covers all lanes; only if it fails are the active lanes checked one by one.
        if at.iter().fold(0, |any, at| any | at) & low == 0 {
            return rq.mask;
        }
        if lanes(rq.mask).fold(0, |any, lane| any | at[lane]) & low == 0 {
            return rq.mask;
        }
        let wrong = where_lanes(rq.mask, |lane| at[lane] & low != 0);
        self.note_lanes(Finding::Misaligned, rq.line, rq.warp, wrong, |env| {
            let first = at[wrong.trailing_zeros() as usize & 31];
            format!("{} {} bytes at {}, not a multiple of {}", rq.verb(), rq.bytes, env.place(space, first), rq.bytes)
        });
        rq.mask & !wrong
    }

    fn outside(&mut self, rq: &Request, space: Space, at: &[u64; 32], wrong: u32) {
        self.note_lanes(Finding::OutOfBounds, rq.line, rq.warp, wrong, |env| {
            let first = at[wrong.trailing_zeros() as usize & 31];
            format!("{} {} bytes at {}", rq.verb(), rq.bytes, env.place(space, first))
        });
    }

    /// Checks and counts an access to global memory. Returns the lanes that may proceed, and the index of their
    /// allocation if they all access the same one. `benign(a, b)` returns whether stores of lanes `a` and `b` to one
    /// address are harmless.
    pub fn global_access(
        &mut self,
        rq: &Request,
        at: &[u64; 32],
        benign: impl Fn(u32, u32) -> bool,
    ) -> (u32, Option<usize>) {
        let mask = self.aligned(rq, Space::Global, at);
        if mask == 0 {
            return (0, None);
        }
        let bytes = u64::from(rq.bytes);
        let (mut low, mut high) = (u64::MAX, 0);
        if mask == u32::MAX {
            (low, high) = at.iter().fold((low, high), |(low, high), at| (low.min(*at), high.max(*at)));
        } else {
            for lane in lanes(mask) {
                low = low.min(at[lane]);
                high = high.max(at[lane]);
            }
        }
        let allocations = &self.context.memory.allocations;
        let hint = &mut self.hints[rq.pc as usize & 15];
        let holds = |index: u32| {
            allocations.get(index as usize).is_some_and(|found| low >= found.base && fits(found, high, bytes))
        };
        if !holds(*hint) {
            *hint = self.context.memory.find(low).map_or(u32::MAX, |index| index as u32);
        }
        let mut one = holds(*hint).then_some(*hint as usize);
        let mut mask = mask;
        if one.is_none() {
            let wrong = where_lanes(mask, |lane| {
                let found = self.context.memory.find(at[lane]);
                !found.is_some_and(|index| fits(&allocations[index], at[lane], bytes))
            });
            self.outside(rq, Space::Global, at, wrong);
            mask &= !wrong;
            // Lanes out of bounds have been removed from the mask; the remaining lanes usually share an allocation.
            let first = self.context.memory.find(at[mask.trailing_zeros() as usize & 31]);
            one = first.filter(|index| lanes(mask).all(|lane| fits(&allocations[*index], at[lane], bytes)));
        } else if let Some(index) = one
            && allocations[index].constant
            && rq.writes()
        {
            self.outside(rq, Space::Global, at, mask);
            mask = 0;
        }
        if mask == 0 {
            return (0, None);
        }
        self.count_global(rq, at, mask, one);
        if let Some(shadow) = &mut self.shadow {
            shadow.global(&Access { mask, ..rq.access() }, at, &mut self.problems);
            self.note_problems(Space::Global, rq.warp, rq.line, benign);
        }
        (mask, one)
    }

    fn count_global(&mut self, rq: &Request, at: &[u64; 32], mask: u32, one: Option<usize>) {
        let bytes = u64::from(mask.count_ones() * rq.bytes);
        let sectors = match mask == u32::MAX && is_run(at, rq.bytes) {
            true => (at[31] + u64::from(rq.bytes) - 1) / SECTOR_BYTES - at[0] / SECTOR_BYTES + 1,
            false => sectors(at, mask, rq.bytes).as_slice().len() as u64,
        };
        let traffic = Traffic { requests: 1, sectors, bytes };
        self.tally.global[rq.pc as usize].add(&traffic);
        let side = usize::from(!rq.reads());
        match one {
            Some(index) => self.tally.allocations[index][side].add(&traffic),
            // Lanes in several allocations are rare, so each counts as a request of its own.
            None => {
                for lane in lanes(mask) {
                    if let Some(index) = self.context.memory.find(at[lane]) {
                        let traffic = Traffic { requests: 1, sectors: 1, bytes: u64::from(rq.bytes) };
                        self.tally.allocations[index][side].add(&traffic);
                    }
                }
            }
        }
    }

    /// Checks and counts an access to shared memory; addresses are offsets. Returns the lanes that may proceed.
    pub fn shared_access(&mut self, rq: &Request, at: &[u64; 32], benign: impl Fn(u32, u32) -> bool) -> u32 {
        if !self.mbarriers.is_empty() {
            self.check_mbarriers(rq, at);
        }
        self.shared_part(rq, at, benign)
    }

    /// Like `shared_access`, but does not report accesses to mbarriers.
    pub fn shared_part(&mut self, rq: &Request, at: &[u64; 32], benign: impl Fn(u32, u32) -> bool) -> u32 {
        let mut mask = self.aligned(rq, Space::Shared, at);
        let end = u64::from(self.context.shared_bytes);
        let highest = at.iter().fold(0, |high, at| (*at).max(high));
        if highest > end || end - highest < u64::from(rq.bytes) {
            let wrong = where_lanes(mask, |lane| at[lane] > end || end - at[lane] < u64::from(rq.bytes));
            if wrong != 0 {
                self.outside(rq, Space::Shared, at, wrong);
                mask &= !wrong;
            }
        }
        if mask == 0 {
            return 0;
        }
        if !rq.collective {
            let fronts = match mask == u32::MAX && is_run(at, rq.bytes) {
                // Consecutive addresses have no bank conflicts: each phase of 128 bytes uses every bank once.
                true => Wavefronts { actual: rq.bytes.div_ceil(4), ideal: rq.bytes.div_ceil(4) },
                false => shared_wavefronts(at, mask, rq.bytes),
            };
            let count = &mut self.tally.shared[rq.pc as usize];
            count.requests += 1;
            count.wavefronts += u64::from(fronts.actual);
            count.ideal += u64::from(fronts.ideal);
        }
        if let Some(shadow) = &mut self.shadow {
            shadow.shared(&Access { mask, ..rq.access() }, &at.map(|at| at as u32), &mut self.problems);
            self.note_problems(Space::Shared, rq.warp, rq.line, benign);
        }
        mask
    }

    /// Checks an access to local memory or parameters, where races between threads are impossible.
    pub fn private_access(&mut self, rq: &Request, space: Space, at: &[u64; 32], end: u64) -> u32 {
        let mask = self.aligned(rq, space, at);
        let wrong = where_lanes(mask, |lane| at[lane] > end || end - at[lane] < u64::from(rq.bytes));
        if wrong != 0 {
            self.outside(rq, space, at, wrong);
        }
        mask & !wrong
    }

    /// Records in the shadow which accesses a strong store or an atomic operation publishes to other threads. Called
    /// before the operation.
    pub fn publish(&mut self, warp: u32, mask: u32, order: Order, rmw: bool, place: impl Fn(usize) -> Place) {
        if let Some(shadow) = &mut self.shadow
            && order.strong
        {
            for lane in lanes(mask) {
                shadow.publish(warp, lane as u32, place(lane), order.release, rmw, order.scope);
            }
        }
    }

    /// Records in the shadow which accesses of other threads a strong load or an atomic operation acquires. Called
    /// after the operation.
    pub fn observe(&mut self, warp: u32, mask: u32, order: Order, place: impl Fn(usize) -> Place) {
        if let Some(shadow) = &mut self.shadow
            && order.strong
        {
            for lane in lanes(mask) {
                shadow.observe(warp, lane as u32, place(lane), order.acquire, order.scope);
            }
        }
    }
}

/// Whether consecutive lanes access consecutive addresses.
fn is_run(at: &[u64; 32], bytes: u32) -> bool {
    let first = at[0];
    (0..32).fold(true, |all, lane| all & (at[lane] == first.wrapping_add(lane as u64 * u64::from(bytes))))
}

fn fits(allocation: &Allocation, at: u64, bytes: u64) -> bool {
    at >= allocation.base
        && at - allocation.base < allocation.bytes
        && allocation.bytes - (at - allocation.base) >= bytes
}

/// Reads `bytes` aligned bytes per lane from 32-bit words.
pub fn gather(mask: u32, bytes: u32, word: impl Fn(usize, usize) -> u32, offset: impl Fn(usize) -> usize) -> Data {
    let mut data = [[0; 32]; 4];
    if bytes >= 4 {
        for lane in lanes(mask) {
            let first = offset(lane) / 4;
            for (i, row) in data.iter_mut().enumerate().take(bytes as usize / 4) {
                row[lane] = word(lane, first + i);
            }
        }
    } else {
        let keep = (1u32 << (8 * bytes)) - 1;
        for lane in lanes(mask) {
            let at = offset(lane);
            data[0][lane] = word(lane, at / 4) >> (at % 4 * 8) & keep;
        }
    }
    data
}

/// Writes `bytes` aligned bytes per lane to words: `set(lane, word, keep, bits)` must preserve the bits in the mask
/// `keep` and set the others to `bits`.
pub fn scatter(
    mask: u32,
    bytes: u32,
    data: &Data,
    offset: impl Fn(usize) -> usize,
    mut set: impl FnMut(usize, usize, u32, u32),
) {
    if bytes >= 4 {
        for lane in lanes(mask) {
            let first = offset(lane) / 4;
            for (i, row) in data.iter().enumerate().take(bytes as usize / 4) {
                set(lane, first + i, 0, row[lane]);
            }
        }
    } else {
        let part = (1u32 << (8 * bytes)) - 1;
        for lane in lanes(mask) {
            let at = offset(lane);
            let shift = at % 4 * 8;
            set(lane, at / 4, !(part << shift), (data[0][lane] & part) << shift);
        }
    }
}

impl Env<'_> {
    pub fn load_global(&self, mask: u32, bytes: u32, at: &[u64; 32], one: Option<usize>) -> Data {
        let allocations = &self.context.memory.allocations;
        if let Some(allocation) = one.and_then(|index| allocations.get(index)) {
            let base = allocation.base;
            let word = |_: usize, word: usize| allocation.words.get(word).map_or(0, |word| word.load(Relaxed));
            return gather(mask, bytes, word, |lane| (at[lane] - base) as usize);
        }
        let mut data = [[0; 32]; 4];
        for lane in lanes(mask) {
            if let Some(index) = self.context.memory.find(at[lane]) {
                let part = self.load_global(1 << lane, bytes, at, Some(index));
                data.iter_mut().zip(&part).for_each(|(row, part)| row[lane] = part[lane]);
            }
        }
        data
    }

    pub fn store_global(&self, mask: u32, bytes: u32, at: &[u64; 32], one: Option<usize>, data: &Data) {
        let allocations = &self.context.memory.allocations;
        let Some(allocation) = one.and_then(|index| allocations.get(index)) else {
            for lane in lanes(mask) {
                if let Some(index) = self.context.memory.find(at[lane]) {
                    self.store_global(1 << lane, bytes, at, Some(index), data);
                }
            }
            return;
        };
        let base = allocation.base;
        scatter(
            mask,
            bytes,
            data,
            |lane| (at[lane] - base) as usize,
            |_, word, keep, bits| {
                let Some(word) = allocation.words.get(word) else { return };
                if keep == 0 {
                    word.store(bits, Relaxed);
                } else {
                    // Another block may write neighbouring bytes at the same time.
                    let mut old = word.load(Relaxed);
                    while let Err(now) = word.compare_exchange_weak(old, old & keep | bits, Relaxed, Relaxed) {
                        old = now;
                    }
                }
            },
        );
    }

    pub fn load_shared(&self, mask: u32, bytes: u32, at: &[u64; 32]) -> Data {
        gather(mask, bytes, |_, word| self.shared.get(word).copied().unwrap_or(0), |lane| at[lane] as usize)
    }

    pub fn store_shared(&mut self, mask: u32, bytes: u32, at: &[u64; 32], data: &Data) {
        let shared = &mut self.shared;
        scatter(
            mask,
            bytes,
            data,
            |lane| at[lane] as usize,
            |_, word, keep, bits| {
                if let Some(word) = shared.get_mut(word) {
                    *word = *word & keep | bits;
                }
            },
        );
    }
}
