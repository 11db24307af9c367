//! accesses, barriers, fences of one block  =>  problems

use std::collections::HashMap;

use super::clocks::Clocks;
use super::cross::{PageHash, Segment, Touched};
use super::device::Device;
use super::log::{Log, Me};
use super::page::{Bits, PAGE_BYTES, Page, Run, bit_problem, reads, word_of, writes};
use super::{Access, Kind, Launch, Other, Place, Problem, ProblemKind, Scope};

/// Maximum number of problems of one kind that are reported for one instruction.
const PROBLEMS_MAX: usize = 4;
const NO_PAGE: u32 = u32::MAX;

/// The shadow of one running block. Offsets and addresses must be in bounds and aligned; accesses at others are
/// ignored.
#[derive(Debug)]
pub struct Block<'a> {
    launch: &'a Launch<'a>,
    clocks: Clocks,
    log: Log,
    pub(super) pages: Pages,
    device: Device,
    shared_bytes: u32,
}

impl<'a> Block<'a> {
    /// Starts a block of `n_threads` threads; `shared_bytes` includes static and dynamic shared memory.
    pub fn new(launch: &'a Launch<'a>, block: u64, n_threads: u32, shared_bytes: u32) -> Self {
        Block {
            launch,
            clocks: Clocks::new(n_threads),
            log: Log::new(n_threads.min(1024).div_ceil(32) as usize),
            pages: launch.take_pages().unwrap_or_default().reused(shared_bytes),
            device: Device::new(block),
            shared_bytes,
        }
    }

    /// Checks a load, store or atomic access to shared memory. Appends the first few problems of each kind to
    /// `problems`.
    pub fn shared(&mut self, access: &Access, offsets: &[u32; 32], problems: &mut Vec<Problem>) {
        let Some(first) = lowest(access.mask).filter(|_| is_valid(access)) else { return };
        let call = self.call(access);
        let start = offsets[first as usize];
        let n_lanes = access.mask.count_ones();
        if is_run(access, first, n_lanes, |lane| offsets[lane].wrapping_sub(start)) {
            let bytes = n_lanes * access.bytes;
            if u64::from(start) + u64::from(bytes) <= u64::from(self.shared_bytes) {
                return self.run(&call, Space::Shared, u64::from(start), first, n_lanes, problems);
            }
        }
        self.lanes(&call, Space::Shared, &offsets.map(u64::from), access.mask, problems);
    }

    /// Like `shared`, for global memory.
    pub fn global(&mut self, access: &Access, addresses: &[u64; 32], problems: &mut Vec<Problem>) {
        let Some(first) = lowest(access.mask).filter(|_| is_valid(access)) else { return };
        let call = self.call(access);
        let start = addresses[first as usize];
        let n_lanes = access.mask.count_ones();
        if is_run(access, first, n_lanes, |lane| addresses[lane].wrapping_sub(start) as u32) {
            let same = addresses[(31 - access.mask.leading_zeros()) as usize].wrapping_sub(start) < 1 << 16;
            if same && self.initialised(&call, start, u64::from(n_lanes * access.bytes)) {
                return self.run(&call, Space::Global, start, first, n_lanes, problems);
            }
        }
        self.lanes(&call, Space::Global, addresses, access.mask, problems);
    }

    /// Starts a `cp.async` that writes `access.bytes` per lane to shared offsets `to`. Only the first
    /// `from_bytes[lane]` bytes are read from `from`; the others are written as zero.
    pub fn copy_start(
        &mut self,
        access: &Access,
        to: &[u32; 32],
        from: &[u64; 32],
        from_bytes: &[u32; 32],
        problems: &mut Vec<Problem>,
    ) {
        if !is_valid(access) {
            return;
        }
        let whole = bits_where(|lane| from_bytes[lane] >= access.bytes) & access.mask;
        self.global(&Access { kind: Kind::Read, mask: whole, ..*access }, from, problems);
        for lane in lanes_of(access.mask & !whole) {
            for (at, bytes) in pieces(from[lane], from_bytes[lane]) {
                let access = Access { kind: Kind::Read, mask: 1 << lane, bytes, ..*access };
                self.global(&access, &[at; 32], problems);
            }
        }
        let call = self.call(&Access { kind: Kind::Write, ..*access });
        for lane in lanes_of(access.mask) {
            if from_bytes[lane] > 0
                && let Some((page, (word, bits))) = self.pages.global(from[lane], from_bytes[lane].min(access.bytes))
            {
                page.in_flight_source.0[word] |= bits;
            }
            let target = Target { space: Space::Shared, at: u64::from(to[lane]), lanes: 1 << lane };
            self.one(&call, target, problems);
            if let Some((page, (word, bits))) = self.pages.shared(to[lane], access.bytes) {
                page.in_flight.0[word] |= bits;
                page.copy = Some(Other { warp: access.warp, lane: lane as u32, line: access.line, write: true });
            }
        }
    }

    /// Completes copies of the lanes (`wait_group`): each copy now counts as a write by its thread, in the line of the
    /// copy.
    pub fn copy_land(&mut self, access: &Access, to: &[u32; 32], from: &[u64; 32], from_bytes: &[u32; 32]) {
        if !is_valid(access) {
            return;
        }
        let call = self.call(&Access { kind: Kind::Write, ..*access });
        for lane in lanes_of(access.mask) {
            if let Some((page, (word, bits))) = self.pages.shared(to[lane], access.bytes) {
                page.in_flight.0[word] &= !bits;
                page.init.0[word] |= bits;
                page.unfenced.0[word] |= bits;
                page.land(to[lane] % PAGE_BYTES, access.bytes, call.entry << 6 | lane as u32);
            }
            if from_bytes[lane] > 0
                && let Some((page, (word, bits))) = self.pages.global(from[lane], from_bytes[lane].min(access.bytes))
            {
                page.in_flight_source.0[word] &= !bits;
            }
        }
    }

    /// Records a converged `.sync` instruction that orders the lanes of `mask`.
    pub fn warp_sync(&mut self, warp: u32, mask: u32) {
        self.clocks.warp_sync(warp, mask);
    }

    /// Records a `bar.sync` (`waits`) or a `bar.arrive` at barrier 0 to 15.
    pub fn arrive(&mut self, barrier: u32, warp: u32, mask: u32, waits: bool) {
        self.clocks.arrive(barrier, warp, mask, waits);
    }

    /// Records that a barrier has all its arrivals, so that the waiting lanes continue.
    pub fn complete(&mut self, barrier: u32) {
        if self.clocks.complete(barrier) && self.log.barrier() {
            self.forget();
        }
    }

    /// Records lanes that exit. Their accesses are ordered before every later barrier.
    pub fn exit(&mut self, warp: u32, mask: u32) {
        self.clocks.exit(warp, mask);
    }

    /// Records a `fence` or `membar`.
    pub fn fence(&mut self, warp: u32, mask: u32, scope: Scope) {
        self.clocks.fence(warp, mask);
        if scope == Scope::Device {
            self.device.fence(self.launch, &mut self.pages);
        }
    }

    /// To be called before an `atom`, `red` or `st.relaxed/release/volatile` writes its value. `rmw` is false for
    /// stores.
    pub fn publish(&mut self, warp: u32, lane: u32, place: Place, release: bool, rmw: bool, scope: Scope) {
        self.clocks.publish(warp, lane, place, release, rmw);
        if let (Place::Global(address), Scope::Device) = (place, scope) {
            self.device.publish(self.launch, &mut self.pages, address, release);
        }
    }

    /// To be called after an `atom` or `ld.relaxed/acquire/volatile` has read its value.
    pub fn observe(&mut self, warp: u32, lane: u32, place: Place, acquire: bool, scope: Scope) {
        self.clocks.observe(warp, lane, place, acquire);
        if let (Place::Global(address), Scope::Device) = (place, scope) {
            self.device.observe(self.launch, &mut self.pages, address, acquire);
        }
    }

    /// Checks accesses of the asynchronous proxy, up to 16 bytes per lane: a proxy fence must have followed the last
    /// write to the bytes.
    pub fn check_fenced(&mut self, access: &Access, offsets: &[u32; 32], problems: &mut Vec<Problem>) {
        for lane in lanes_of(access.mask) {
            let Some((page, (word, bits))) = self.pages.shared(offsets[lane], access.bytes) else { continue };
            if page.unfenced.0[word] & bits != 0 {
                report(problems, ProblemKind::Unfenced, lane as u32, u64::from(offsets[lane]), None);
            }
        }
    }

    /// `fence.proxy.async`
    pub fn proxy_fence(&mut self, warp: u32, mask: u32) {
        let Pages { slab, shared, .. } = &mut self.pages;
        for number in shared.iter().filter(|number| **number != NO_PAGE) {
            if let Some(page) = slab.get_mut(*number as usize).filter(|page| !page.unfenced.is_empty()) {
                page.proxy_fence(&self.clocks, &self.log, warp, mask);
            }
        }
    }

    /// Completes a phase of an mbarrier, see [`Clocks::complete_phase`].
    pub fn complete_phase(&mut self, at: u32) {
        self.clocks.complete_phase(at);
    }

    /// Resets an mbarrier, for `mbarrier.init` and `mbarrier.inval`.
    pub fn forget_phases(&mut self, at: u32) {
        self.clocks.forget_phases(at);
    }

    /// Ends the block, and passes its accesses to global memory to the launch.
    pub fn finish(mut self) {
        let touched = self.pages.take_touched();
        self.launch.merge_last(self.device.segment(), touched);
        self.launch.give_pages(self.pages);
    }

    pub(super) fn call(&mut self, access: &Access) -> Call {
        if self.log.is_spent() {
            self.forget();
        }
        let epoch = self.clocks.epoch(access.warp);
        let atomic = matches!(access.kind, Kind::Atomic | Kind::AtomicRead | Kind::AtomicWrite);
        Call { entry: self.log.entry(access, epoch), access: *access, atomic }
    }

    /// Clears every stamp, so that all accesses so far count as ordered before all later accesses.
    fn forget(&mut self) {
        self.pages.slab.iter_mut().take(self.pages.n_used).for_each(Page::clear_stamps);
        self.log.restart();
    }

    /// Marks the bytes of a write as initialised. Returns false, and marks nothing, if the access reads uninitialised
    /// bytes or the range is not inside one allocation.
    fn initialised(&mut self, call: &Call, at: u64, bytes: u64) -> bool {
        let Some(region) = self.pages.region(self.launch, at) else { return false };
        let offset = at - region.address;
        if offset + bytes > region.bytes || (reads(call.access.kind) && region.missing(offset, bytes).is_some()) {
            return false;
        }
        if writes(call.access.kind) {
            region.mark(offset, bytes);
        }
        true
    }

    /// Checks and records accesses of consecutive lanes to consecutive addresses, page by page.
    fn run(&mut self, call: &Call, space: Space, start: u64, first: u32, n_lanes: u32, problems: &mut Vec<Problem>) {
        let (each, kind) = (call.access.bytes, call.access.kind);
        let (mut lane, last) = (first, first + n_lanes);
        while lane < last {
            let at = start + u64::from((lane - first) * each);
            let in_page = (at % u64::from(PAGE_BYTES)) as u32;
            let n = (last - lane).min((PAGE_BYTES - in_page) / each).max(1);
            let bits = Bits::range(in_page, n * each);
            let is_shared = space == Space::Shared;
            let done = match self.pages.get(space, at) {
                None => true,
                Some(page) => {
                    // A collective access is recorded once, under the first lane.
                    let (who, each) = if call.access.collective { (0, n * each) } else { (lane, each) };
                    let run = Run {
                        start: in_page,
                        bytes: bits.count(),
                        each,
                        stamp: call.entry << 6 | who,
                        warp: call.access.warp,
                        atomic: call.atomic,
                    };
                    let clean = bit_problem(page, kind, bits, is_shared).is_none()
                        && page.try_run(&self.log, &self.clocks, kind, &run);
                    if clean {
                        page.note(kind, bits, call.access.line);
                        if is_shared && writes(kind) {
                            page.init.add(bits);
                            page.unfenced.add(bits);
                        }
                    }
                    clean
                }
            };
            if !done {
                for lane in lane..lane + n {
                    let at = start + u64::from((lane - first) * each);
                    self.one(call, Target { space, at, lanes: 1 << lane }, problems);
                }
            }
            lane += n;
        }
    }

    /// Checks and records accesses of lanes to arbitrary addresses; except for plain writes, consecutive lanes at one
    /// address are combined.
    fn lanes(&mut self, call: &Call, space: Space, at: &[u64; 32], mask: u32, problems: &mut Vec<Problem>) {
        let mut seen = 0u64;
        let mut rest = mask;
        while let Some(lane) = lowest(rest) {
            let address = at[lane as usize];
            rest &= rest - 1;
            let mut lanes = 1 << lane;
            if call.access.kind == Kind::Write {
                let hash = 1 << ((address / u64::from(call.access.bytes)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58);
                if seen & hash != 0
                    && let Some(other) = lanes_of(mask & (lanes - 1)).find(|other| at[*other] == address)
                {
                    let other =
                        Other { warp: call.access.warp, lane: other as u32, line: call.access.line, write: true };
                    report(problems, ProblemKind::Overlap, lane, address, Some(other));
                    continue;
                }
                seen |= hash;
            } else {
                while let Some(next) = lowest(rest).filter(|next| at[*next as usize] == address) {
                    lanes |= 1 << next;
                    rest &= rest - 1;
                }
            }
            self.one(call, Target { space, at: address, lanes }, problems);
        }
    }

    /// Checks and records accesses of lanes to one address.
    #[inline]
    pub(super) fn one(&mut self, call: &Call, target: Target, problems: &mut Vec<Problem>) {
        let Target { space, at, lanes } = target;
        let Access { kind, bytes, warp, line, .. } = call.access;
        let Some(lane) = lowest(lanes) else { return };
        if space == Space::Global {
            if !self.initialised(call, at, u64::from(bytes)) {
                self.report_missing(call, at, lane, problems);
            }
        } else if u64::from(self.shared_bytes) < at + u64::from(bytes) {
            return;
        }
        let in_page = (at % u64::from(PAGE_BYTES)) as u32;
        let is_shared = space == Space::Shared;
        // A collective access is recorded once, under the first lane.
        let (who, whose) = if call.access.collective { (0, 1) } else { (lane, lanes) };
        let Some(page) = self.pages.get(space, at) else { return };
        let single = whose.is_power_of_two();
        if single && page.try_one(&self.log, kind, (in_page, bytes), call.entry << 6 | who, line, is_shared) {
            return;
        }
        let page_at = at - u64::from(in_page);
        let word = word_of(in_page, bytes);
        let is_special = page.is_special(kind, word, is_shared);
        let problem = match is_special {
            true => bit_problem(page, kind, Bits::range(in_page, bytes), is_shared),
            false => None,
        };
        if let Some((problem, byte)) = problem {
            let other = match problem {
                ProblemKind::InFlight => page.issuer(&self.log, byte),
                ProblemKind::InFlightSource
                | ProblemKind::Uninitialised
                | ProblemKind::Race
                | ProblemKind::Overlap
                | ProblemKind::Unfenced => None,
            };
            report(problems, problem, lane, page_at + u64::from(byte), other);
        }
        let me = Me { entry: call.entry, warp, lane: who, atomic: call.atomic };
        let found = page.touch(&self.clocks, &mut self.log, kind, (in_page, bytes), &me, whose);
        if let Some((byte, found_lane, other)) = found
            && problem.is_none_or(|(problem, _)| problem != ProblemKind::InFlight)
        {
            let lane = if call.access.collective { lane } else { found_lane };
            report(problems, ProblemKind::Race, lane, page_at + u64::from(byte), Some(other));
        }
        page.note_word(kind, word, line, is_shared);
    }

    fn report_missing(&mut self, call: &Call, at: u64, lane: u32, problems: &mut Vec<Problem>) {
        let bytes = u64::from(call.access.bytes);
        let Some(region) = self.pages.region(self.launch, at) else { return };
        let offset = at - region.address;
        if reads(call.access.kind)
            && let Some(missing) = region.missing(offset, bytes.min(region.bytes - offset))
        {
            report(problems, ProblemKind::Uninitialised, lane, region.address + missing, None);
        }
        if writes(call.access.kind) {
            region.mark(offset, bytes);
        }
    }
}

/// An access with its log entry.
pub(super) struct Call {
    access: Access,
    pub entry: u32,
    atomic: bool,
}

pub(super) struct Target {
    pub space: Space,
    pub at: u64,
    pub lanes: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    Shared,
    Global,
}

/// The pages that a block has accessed.
#[derive(Debug)]
pub(super) struct Pages {
    slab: Vec<Page>,
    n_used: usize,
    shared: Vec<u32>,
    global: HashMap<u64, u32, PageHash>,
    /// Recently used pages of global memory: page number and index in `slab`. The low bits of the page number select
    /// the entry.
    recent: [(u64, u32); 64],
    region: usize,
}

impl Default for Pages {
    fn default() -> Self {
        let recent = [(u64::MAX, NO_PAGE); 64];
        Pages { slab: Vec::new(), n_used: 0, shared: Vec::new(), global: HashMap::default(), recent, region: 0 }
    }
}

impl Pages {
    /// Resets the pages for another block, reusing their memory.
    fn reused(mut self, shared_bytes: u32) -> Self {
        self.shared.clear();
        self.shared.resize(shared_bytes.min(1 << 20).div_ceil(PAGE_BYTES) as usize, NO_PAGE);
        self.global.clear();
        Pages { n_used: 0, recent: [(u64::MAX, NO_PAGE); 64], region: 0, ..self }
    }

    #[inline]
    fn get(&mut self, space: Space, at: u64) -> Option<&mut Page> {
        match space {
            Space::Shared => self.shared_page(at as u32 / PAGE_BYTES),
            Space::Global => self.global_page(at / u64::from(PAGE_BYTES)),
        }
    }

    fn fresh(&mut self, number: Option<u64>) -> u32 {
        match self.slab.get_mut(self.n_used) {
            Some(page) => *page = Page::new(number),
            None => self.slab.push(Page::new(number)),
        }
        self.n_used += 1;
        (self.n_used - 1) as u32
    }

    #[inline]
    fn shared_page(&mut self, number: u32) -> Option<&mut Page> {
        let mut idx = *self.shared.get(number as usize)?;
        if idx == NO_PAGE {
            idx = self.fresh(None);
            *self.shared.get_mut(number as usize)? = idx;
        }
        self.slab.get_mut(idx as usize)
    }

    #[inline]
    fn global_page(&mut self, number: u64) -> Option<&mut Page> {
        let slot = number as usize & 63;
        if self.recent[slot].0 != number {
            let idx = match self.global.get(&number) {
                Some(idx) => *idx,
                None => {
                    let idx = self.fresh(Some(number));
                    self.global.insert(number, idx);
                    idx
                }
            };
            self.recent[slot] = (number, idx);
        }
        self.slab.get_mut(self.recent[slot].1 as usize)
    }

    pub(super) fn shared(&mut self, at: u32, bytes: u32) -> Option<(&mut Page, (usize, u64))> {
        let page = self.shared_page(at / PAGE_BYTES)?;
        Some((page, word_of(at % PAGE_BYTES, bytes)))
    }

    pub(super) fn global(&mut self, at: u64, bytes: u32) -> Option<(&mut Page, (usize, u64))> {
        let page = self.global_page(at / u64::from(PAGE_BYTES))?;
        Some((page, word_of((at % u64::from(PAGE_BYTES)) as u32, bytes)))
    }

    #[inline]
    fn region<'l>(&mut self, launch: &'l Launch<'_>, at: u64) -> Option<&'l super::init::Region> {
        let hit = launch.global.region(self.region).filter(|r| at.wrapping_sub(r.address) < r.bytes);
        if hit.is_some() {
            return hit;
        }
        self.region = launch.global.find(at)?;
        launch.global.region(self.region)
    }

    /// Returns the accesses to global memory since the last call, by page in the order of first access.
    pub(super) fn take_touched(&mut self) -> Vec<Touched> {
        let mut touched = Vec::with_capacity(self.global.len());
        for page in self.slab.iter_mut().take(self.n_used) {
            let Some(number) = page.number else { continue };
            if page.foot.read.is_empty() && page.foot.wrote.is_empty() {
                continue;
            }
            let foot = std::mem::take(&mut page.foot);
            touched.push(Touched { page: number, foot, read_line: page.read_line, write_line: page.write_line });
        }
        touched
    }

    pub(super) fn flush(&mut self, launch: &Launch<'_>, segment: Segment) {
        let touched = self.take_touched();
        launch.merge_part(segment, touched);
    }
}

fn is_valid(access: &Access) -> bool {
    matches!(access.bytes, 1 | 2 | 4 | 8 | 16)
}

pub(super) fn report(problems: &mut Vec<Problem>, kind: ProblemKind, lane: u32, address: u64, other: Option<Other>) {
    if problems.iter().filter(|problem| problem.kind == kind).count() < PROBLEMS_MAX {
        problems.push(Problem { kind, lane, address, other });
    }
}

#[inline]
fn lowest(mask: u32) -> Option<u32> {
    (mask != 0).then(|| mask.trailing_zeros())
}

fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = lowest(rest)?;
        rest &= rest - 1;
        Some(lane as usize)
    })
}

fn bits_where(holds: impl Fn(usize) -> bool) -> u32 {
    (0..32).map(|lane| u32::from(holds(lane)) << lane).sum()
}

/// Whether the active lanes are consecutive and access consecutive addresses.
fn is_run(access: &Access, first: u32, n_lanes: u32, distance: impl Fn(usize) -> u32) -> bool {
    let shifted = access.mask >> first;
    if shifted.wrapping_add(1) & shifted != 0 {
        return false;
    }
    let lanes = first as usize..(first + n_lanes) as usize;
    lanes.fold(true, |all, lane| all & (distance(lane) == (lane as u32 - first) * access.bytes))
}

/// Splits a range into aligned pieces of 1, 2, 4 or 8 bytes.
pub(super) fn pieces(at: u64, bytes: u32) -> impl Iterator<Item = (u64, u32)> {
    let (mut at, end) = (at, at.saturating_add(u64::from(bytes)));
    std::iter::from_fn(move || {
        let left = end - at;
        let size = [8u64, 4, 2, 1].into_iter().find(|size| *size <= left && at.is_multiple_of(*size))?;
        at += size;
        Some((at - size, size as u32))
    })
}
