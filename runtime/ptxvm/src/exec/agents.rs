//! Asynchronous operations of a block: issued copies take effect at the latest when a warp waits for their completion

use super::access::{Request, addresses, lanes, where_lanes};
use super::bulk::Transfer;
use super::env::Env;
use super::mbarrier::Who;
use super::warp::Warp;
use crate::decode::ops::AsyncCopy;
use crate::decode::program::Bank;
use crate::report::Kind as Finding;
use crate::shadow::{Access, Kind};
use crate::text::types::Space;

/// Asynchronous operations that a block has started and not yet waited for.
#[derive(Debug, Default)]
pub struct Agents {
    copies: Vec<Copies>,
    /// Events that have not happened yet, in the order in which they were issued.
    events: Vec<Event>,
    /// Bulk stores, executed as late as possible: when the thread that issued them waits for them.
    pub stores: Vec<Transfer>,
}

/// An operation that was started by an instruction and that the device completes at a time of its choice.
#[derive(Debug)]
pub enum Event {
    /// `cp.async.mbarrier.arrive`: arrives after the copies of the thread whose numbers are below `copies`.
    Arrive {
        who: Who,
        at: u32,
        copies: u32,
    },
    Bulk(Box<Transfer>),
}

/// `cp.async` copies of one warp. Commit groups are counted separately for each lane.
#[derive(Debug)]
struct Copies {
    pending: Vec<Copy>,
    /// Number of groups committed by each lane.
    committed: [u32; 32],
    /// Number of copy instructions issued.
    issued: u32,
    /// Number of groups of bulk stores committed by each lane.
    bulk_committed: [u32; 32],
}

#[derive(Debug)]
struct Copy {
    /// Lanes whose bytes have not been written to shared memory yet.
    mask: u32,
    line: u32,
    bytes: u32,
    to: [u32; 32],
    from: [u64; 32],
    from_bytes: [u32; 32],
    /// For each lane, the number of the commit group to which its copy belongs.
    group: [u32; 32],
    /// Number of this instruction among the copy instructions of its warp, from 0.
    number: u32,
}

impl Agents {
    pub fn new(n_warps: usize) -> Self {
        let none = || Copies { pending: Vec::new(), committed: [0; 32], issued: 0, bulk_committed: [0; 32] };
        let copies = (0..n_warps).map(|_| none()).collect();
        Agents { copies, events: Vec::new(), stores: Vec::new() }
    }

    pub fn copies_so_far(&self, warp: u32) -> u32 {
        self.copies.get(warp as usize).map_or(0, |copies| copies.issued)
    }

    pub fn add(&mut self, event: Event) {
        self.events.push(event);
    }

    /// The group to which a thread's next bulk store belongs.
    pub fn group_of(&self, who: Who) -> u32 {
        self.copies.get(who.warp as usize).map_or(0, |copies| copies.bulk_committed[who.lane as usize & 31])
    }

    /// `cp.async.bulk.commit_group`
    pub fn commit_bulk(&mut self, warp: u32, mask: u32) {
        if let Some(copies) = self.copies.get_mut(warp as usize) {
            lanes(mask).for_each(|lane| copies.bulk_committed[lane] += 1);
        }
    }

    /// Removes all events and returns the bulk loads among them.
    pub fn take_loads(&mut self) -> Vec<Transfer> {
        let loads = std::mem::take(&mut self.events).into_iter().filter_map(|event| match event {
            Event::Bulk(transfer) => Some(*transfer),
            Event::Arrive { .. } => None,
        });
        loads.collect()
    }

    pub fn n_events(&self) -> usize {
        self.events.len()
    }

    /// `cp.async.commit_group`
    pub fn commit(&mut self, warp: u32, mask: u32) {
        if let Some(copies) = self.copies.get_mut(warp as usize) {
            lanes(mask).for_each(|lane| copies.committed[lane] += 1);
        }
    }
}

impl Warp {
    pub fn async_copy(&mut self, env: &mut Env, op: &AsyncCopy, pc: u32, active: u32) {
        let line = env.context.program.code[pc as usize].line;
        let to = addresses(&self.regs, &op.to);
        let from = addresses(&self.regs, &op.from);
        let mut from_bytes = [op.bytes; 32];
        if let Some(reg) = op.source_bytes {
            for (lane, bytes) in from_bytes.iter_mut().enumerate() {
                *bytes = match reg.bank {
                    Bank::Double => self.regs.d[reg.index as usize][lane] as u32,
                    Bank::Word | Bank::Pred => self.regs.w[reg.index as usize][lane],
                };
            }
            let wrong = where_lanes(active, |lane| from_bytes[lane] > op.bytes);
            env.note_lanes(Finding::OutOfBounds, line, self.index, wrong, |_| {
                format!("copies {} bytes out of {}", from_bytes[wrong.trailing_zeros() as usize & 31], op.bytes)
            });
            from_bytes = from_bytes.map(|bytes| bytes.min(op.bytes));
        }
        if let Some(p) = op.ignore_source {
            let ignored = self.regs.p[p.index as usize];
            lanes(ignored).for_each(|lane| from_bytes[lane] = 0);
        }
        env.start_copy(self.index, pc, op.bytes, active, &to, &from, from_bytes);
    }
}

impl Env<'_> {
    #[allow(clippy::too_many_arguments)]
    fn start_copy(
        &mut self,
        warp: u32,
        pc: u32,
        bytes: u32,
        active: u32,
        to: &[u64; 32],
        from: &[u64; 32],
        mut from_bytes: [u32; 32],
    ) {
        let line = self.context.program.code[pc as usize].line;
        let shadow = self.shadow.take();
        // Bounds are checked and accesses counted first, without the shadow, which then checks the copy as a whole.
        let rq = Request { pc, line, warp, mask: active, bytes, kind: Kind::Write, collective: false };
        let mask = self.shared_access(&rq, to, |_, _| true);
        let reading = where_lanes(mask, |lane| from_bytes[lane] == bytes);
        let rq = Request { mask: reading, kind: Kind::Read, ..rq };
        let (read, _) = self.global_access(&rq, from, |_, _| true);
        let mut lost = reading & !read;
        for lane in lanes(mask & !reading).filter(|lane| from_bytes[*lane] > 0) {
            lost |= self.check_part(&rq, lane, from[lane], from_bytes[lane]);
        }
        lanes(lost).for_each(|lane| from_bytes[lane] = 0);
        self.shadow = shadow;
        let to = to.map(|to| to as u32);
        if let Some(shadow) = &mut self.shadow {
            let access = Access { warp, mask, bytes, kind: Kind::Write, collective: false, line };
            shadow.copy_start(&access, &to, from, &from_bytes, &mut self.problems);
            self.note_problems(Space::Shared, warp, line, |_, _| false);
        }
        if let Some(copies) = self.agents.copies.get_mut(warp as usize) {
            let group = copies.committed;
            let number = copies.issued;
            copies.issued += 1;
            copies.pending.push(Copy { mask, line, bytes, to, from: *from, from_bytes, group, number });
        }
    }

    /// Checks the source of a lane that reads fewer bytes than the copy writes. Returns the lane's bit if the source is
    /// not inside one allocation, else 0.
    fn check_part(&mut self, rq: &Request, lane: usize, from: u64, bytes: u32) -> u32 {
        let inside = |at: u64| self.context.memory.find(at);
        let whole = inside(from).is_some() && inside(from) == inside(from.wrapping_add(u64::from(bytes) - 1));
        if whole {
            return 0;
        }
        self.note_lane(Finding::OutOfBounds, rq.line, rq.warp, lane as u32, |env| {
            format!("reads {bytes} bytes at {}", env.place(Space::Global, from))
        });
        1 << lane
    }

    /// `cp.async.wait_group`: completes all groups of these lanes except the newest `left`.
    pub fn async_wait(&mut self, warp: u32, mask: u32, left: u32) {
        let Some(copies) = self.agents.copies.get(warp as usize) else { return };
        let limit = copies.committed.map(|committed| committed.saturating_sub(left));
        self.land(warp, mask, |copy, lane| copy.group[lane] < limit[lane]);
    }

    /// `cp.async.wait_all`: completes all copies, committed or not.
    pub fn async_wait_all(&mut self, warp: u32, mask: u32) {
        self.land(warp, mask, |_, _| true);
    }

    /// Executes one of the pending events.
    pub fn happen(&mut self, index: usize) {
        if index >= self.agents.events.len() {
            return;
        }
        match self.agents.events.remove(index) {
            Event::Bulk(transfer) => self.finish_transfer(*transfer),
            Event::Arrive { who, at, copies } => {
                self.land(who.warp, 1 << who.lane, |copy, _| copy.number < copies);
                self.update_mbarrier(who, at, true, |barrier| barrier.arrive(1));
            }
        }
    }

    fn land(&mut self, warp: u32, mask: u32, is_due: impl Fn(&Copy, usize) -> bool) {
        let Some(copies) = self.agents.copies.get_mut(warp as usize) else { return };
        let mut pending = std::mem::take(&mut copies.pending);
        for copy in &mut pending {
            let due = where_lanes(copy.mask & mask, |lane| is_due(copy, lane));
            if due != 0 {
                copy.mask &= !due;
                self.deliver_copy(warp, copy, due);
            }
        }
        pending.retain(|copy| copy.mask != 0);
        if let Some(copies) = self.agents.copies.get_mut(warp as usize) {
            copies.pending = pending;
        }
    }

    fn deliver_copy(&mut self, warp: u32, copy: &Copy, due: u32) {
        let whole = where_lanes(due, |lane| copy.from_bytes[lane] == copy.bytes);
        let mut data = self.load_global(whole, copy.bytes, &copy.from, None);
        for lane in lanes(due & !whole) {
            for byte in 0..copy.from_bytes[lane] as usize {
                let at = [copy.from[lane].wrapping_add(byte as u64); 32];
                let value = self.load_global(1, 1, &at, None)[0][0];
                data[(byte / 4) & 3][lane] |= value << (byte % 4 * 8);
            }
        }
        self.store_shared(due, copy.bytes, &copy.to.map(u64::from), &data);
        if let Some(shadow) = &mut self.shadow {
            let access =
                Access { warp, mask: due, bytes: copy.bytes, kind: Kind::Write, collective: false, line: copy.line };
            shadow.copy_land(&access, &copy.to, &copy.from, &copy.from_bytes);
        }
    }
}
