//! accesses of one block  =>  stamps of 32 bits, sets of stamps, and whether a stamp is ordered before a thread
//!
//! A stamp identifies an access by a log entry and a lane, or a set of accesses by an entry. Entry numbers increase, so
//! comparing a stamp with the first number after the last barrier of the whole block tells which accesses are ordered
//! without any further check.

use std::collections::HashMap;

use super::clocks::Clocks;
use super::cross::PageHash;
use super::page::Verdict;
use super::{Access, Kind, Other};

/// 0 if there is no access, otherwise `entry << 6 | set << 5 | lane`.
pub(super) type Stamp = u32;

const SET: Stamp = 1 << 5;
/// Maximum number of entries between two barriers of the whole block. When it is reached, the log is cleared, and
/// earlier accesses count as ordered.
const ENTRIES_MAX: usize = 1 << 22;
/// Maximum total number of set members between two barriers of the whole block; when it is reached, the log is cleared
/// too.
const MEMBERS_MAX: usize = 1 << 23;
/// Maximum entry number; when it is reached, the next barrier of the whole block restarts the numbering.
const NUMBERS_MAX: u32 = 1 << 25;

#[derive(Clone, Copy, Debug)]
enum Entry {
    Record(Record),
    Set(u32),
}

#[derive(Clone, Copy, Debug)]
struct Record {
    epoch: u32,
    line: u32,
    warp: u8,
    collective: bool,
    atomic: bool,
    write: bool,
}

/// A recent entry. The key holds the epoch, line and kind of its access, and whether the access is collective.
#[derive(Clone, Copy, Debug)]
struct Recent {
    key: (u32, u32, Kind, bool),
    entry: u32,
}

/// Lanes of one entry.
#[derive(Clone, Copy, Debug)]
struct Member {
    entry: u32,
    mask: u32,
}

/// The thread whose access is checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Me {
    pub entry: u32,
    pub warp: u32,
    pub lane: u32,
    pub atomic: bool,
}

#[derive(Debug)]
pub(super) struct Log {
    /// Stamps below this one are ordered before all later accesses.
    pub safe: Stamp,
    first: u32,
    entries: Vec<Entry>,
    sets: Vec<Box<[Member]>>,
    n_members: usize,
    /// Recent entries of each warp, by the low bits of the line.
    recent: Vec<[Recent; 16]>,
    unions: HashMap<(Stamp, u32, u32), Stamp, PageHash>,
    last_union: ((Stamp, u32, u32), Stamp),
}

impl Log {
    pub fn new(n_warps: usize) -> Self {
        Log {
            safe: 0,
            first: 1,
            entries: Vec::new(),
            sets: Vec::new(),
            n_members: 0,
            recent: vec![[Recent { key: (0, 0, Kind::Read, false), entry: 0 }; 16]; n_warps],
            unions: HashMap::default(),
            last_union: ((0, 0, 0), 0),
        }
    }

    /// Returns whether the log is full. If so, all stamps must be cleared and the log restarted.
    pub fn is_spent(&self) -> bool {
        self.entries.len() >= ENTRIES_MAX || self.n_members >= MEMBERS_MAX
    }

    pub fn restart(&mut self) {
        *self = Log::new(self.recent.len());
    }

    /// Must be called after a barrier of the whole block. Returns whether all stamps must be cleared and the log
    /// restarted.
    pub fn barrier(&mut self) -> bool {
        self.first += self.entries.len() as u32;
        self.safe = self.first << 6;
        self.entries.clear();
        self.sets.clear();
        self.n_members = 0;
        self.unions.clear();
        self.last_union = ((0, 0, 0), 0);
        self.first >= NUMBERS_MAX
    }

    /// Returns the number of the log entry for an access by a warp in an epoch; the entry is added if necessary.
    #[inline]
    pub fn entry(&mut self, access: &Access, epoch: u32) -> u32 {
        let (slot, warp) = (access.line as usize & 15, access.warp as usize);
        let key = (epoch, access.line, access.kind, access.collective);
        if let Some(recent) = self.recent.get(warp).map(|recent| recent[slot])
            && recent.key == key
            && recent.entry >= self.first
        {
            return recent.entry;
        }
        let (atomic, write) = match access.kind {
            Kind::Read => (false, false),
            Kind::Write => (false, true),
            Kind::AtomicRead => (true, false),
            Kind::Atomic | Kind::AtomicWrite => (true, true),
        };
        let collective = access.collective;
        let record = Record { epoch, line: access.line, warp: access.warp as u8, collective, atomic, write };
        let entry = self.push(Entry::Record(record));
        if let Some(recent) = self.recent.get_mut(warp) {
            recent[slot] = Recent { key, entry };
        }
        entry
    }

    fn push(&mut self, entry: Entry) -> u32 {
        self.entries.push(entry);
        self.first + (self.entries.len() - 1) as u32
    }

    fn get(&self, entry: u32) -> Option<Entry> {
        self.entries.get(entry.checked_sub(self.first)? as usize).copied()
    }

    fn record(&self, entry: u32) -> Option<Record> {
        match self.get(entry)? {
            Entry::Record(record) => Some(record),
            Entry::Set(_) => None,
        }
    }

    fn members(&self, stamp: Stamp) -> &[Member] {
        match self.get(stamp >> 6) {
            Some(Entry::Set(set)) => self.sets.get(set as usize).map_or(&[], |members| members),
            Some(Entry::Record(_)) | None => &[],
        }
    }

    /// Returns the access that a stamp identifies, or the first access of a set; `None` if the log no longer has it.
    pub fn name(&self, stamp: Stamp) -> Option<Other> {
        let (entry, lane) = match self.members(stamp).first() {
            Some(member) if stamp & SET != 0 => (member.entry, member.mask.trailing_zeros()),
            Some(_) | None => (stamp >> 6, stamp & 31),
        };
        let record = self.record(entry)?;
        Some(Other { warp: u32::from(record.warp), lane, line: record.line, write: record.write })
    }

    pub fn is_atomic(&self, stamp: Stamp) -> bool {
        if stamp & SET == 0 {
            return self.record(stamp >> 6).is_some_and(|record| record.atomic);
        }
        self.members(stamp).iter().all(|m| self.record(m.entry).is_some_and(|record| record.atomic))
    }

    /// Returns the first access of the stamp that is not ordered before `me`. If `me.atomic`, atomic accesses are
    /// ignored.
    #[inline]
    pub fn unordered(&self, clocks: &Clocks, stamp: Stamp, me: &Me) -> Option<Other> {
        if stamp < self.safe || stamp == 0 {
            return None;
        }
        if stamp & SET == 0 {
            return self.unordered_member(clocks, stamp >> 6, 1 << (stamp & 31), me);
        }
        self.members(stamp).iter().find_map(|m| self.unordered_member(clocks, m.entry, m.mask, me))
    }

    fn unordered_member(&self, clocks: &Clocks, entry: u32, mask: u32, me: &Me) -> Option<Other> {
        let record = self.record(entry)?;
        if record.atomic && me.atomic {
            return None;
        }
        let warp = u32::from(record.warp);
        let own = if warp != me.warp {
            0
        } else if record.collective {
            u32::MAX
        } else {
            1 << me.lane
        };
        let others = mask & !own;
        if others == 0 {
            return None;
        }
        let view = clocks.view(me.warp, me.lane)?;
        let known = |lane: u32| match record.collective {
            true => view.knows_any(warp, record.epoch),
            false => view.knows(warp, lane, record.epoch),
        };
        let lane = (0..32).find(|lane| others & (1 << lane) != 0 && !known(*lane))?;
        Some(Other { warp, lane, line: record.line, write: record.write })
    }

    /// Returns whether accesses of an entry are ordered before new accesses of a warp, so that no further check is
    /// needed.
    pub fn verdict(&self, clocks: &Clocks, stamp: Stamp, warp: u32, atomic: bool) -> Verdict {
        let Some(record) = self.record(stamp >> 6) else { return Verdict::Unknown };
        if atomic && !record.atomic {
            return Verdict::Unknown;
        }
        let own = u32::from(record.warp) == warp;
        match clocks.converged(warp) {
            Some(view) if view.knows_all(u32::from(record.warp), record.epoch) => Verdict::Ordered,
            Some(_) | None if own && record.collective => Verdict::Ordered,
            Some(_) | None if own => Verdict::SameLane,
            Some(_) | None => Verdict::Unknown,
        }
    }

    /// Returns the new stamp of a cell whose stamp is `old`, after an access by the lanes `mask` of the entry of `me`.
    #[inline]
    pub fn replace(&mut self, clocks: &Clocks, old: Stamp, me: &Me, mask: u32) -> Stamp {
        let single = me.entry << 6 | me.lane;
        let alone = mask == 1 << me.lane;
        if old < self.safe || old == 0 {
            return if alone { single } else { self.union(0, me, mask) };
        }
        if old & SET != 0 && self.members(old).iter().any(|m| m.entry == me.entry && m.mask & mask == mask) {
            return old;
        }
        // An atomic access does not replace a plain one, because the next atomic access conflicts only with the plain
        // one.
        let covered =
            (!me.atomic || self.is_atomic(old)) && self.unordered(clocks, old, &Me { atomic: false, ..*me }).is_none();
        match covered {
            true if alone => single,
            true => self.union(0, me, mask),
            false => self.union(old, me, mask),
        }
    }

    fn union(&mut self, old: Stamp, me: &Me, mask: u32) -> Stamp {
        let key = (old, me.entry, mask);
        if self.last_union.0 == key {
            return self.last_union.1;
        }
        let stamp = match self.unions.get(&key) {
            Some(stamp) => *stamp,
            None => {
                let stamp = self.make_union(old, me, mask);
                self.unions.insert(key, stamp);
                stamp
            }
        };
        self.last_union = (key, stamp);
        stamp
    }

    fn make_union(&mut self, old: Stamp, me: &Me, mask: u32) -> Stamp {
        let mut members = match old {
            0 => Vec::new(),
            set if set & SET != 0 => self.members(set).to_vec(),
            one => vec![Member { entry: one >> 6, mask: 1 << (one & 31) }],
        };
        let covers =
            |entry: u32| self.record(entry).is_none_or(|r| u32::from(r.warp) == me.warp && (r.atomic || !me.atomic));
        // The new access makes earlier accesses of the same threads redundant.
        for member in members.iter_mut().filter(|member| covers(member.entry)) {
            member.mask &= if self.record(member.entry).is_some_and(|r| r.collective) { 0 } else { !mask };
        }
        members.retain(|member| member.mask != 0);
        match members.iter_mut().find(|member| member.entry == me.entry) {
            Some(member) => member.mask |= mask,
            None => members.push(Member { entry: me.entry, mask }),
        }
        if let [Member { entry, mask }] = members.as_slice()
            && mask.is_power_of_two()
        {
            return entry << 6 | mask.trailing_zeros();
        }
        self.n_members += members.len();
        self.sets.push(members.into_boxed_slice());
        let set = (self.sets.len() - 1) as u32;
        self.push(Entry::Set(set)) << 6 | SET
    }
}
