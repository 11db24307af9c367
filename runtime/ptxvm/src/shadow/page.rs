//! an access to a page of 256 bytes  =>  the stamps of the page's cells, and its initialised and in-flight bytes

use super::clocks::Clocks;
use super::log::{Log, Me, Stamp};
use super::{Kind, Other, ProblemKind};

pub(super) const PAGE_BYTES: u32 = 256;

/// One bit per byte of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits(pub [u64; 4]);

impl Bits {
    #[inline]
    pub fn range(start: u32, bytes: u32) -> Bits {
        let word = |idx: u32| {
            let from = start.clamp(idx * 64, idx * 64 + 64) - idx * 64;
            let to = (start + bytes).clamp(idx * 64, idx * 64 + 64) - idx * 64;
            match to - from {
                0 => 0,
                n => (u64::MAX >> (64 - n)) << from,
            }
        };
        Bits([word(0), word(1), word(2), word(3)])
    }

    pub fn add(&mut self, other: Bits) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine |= theirs);
    }

    pub fn and(self, other: Bits) -> Bits {
        Bits(std::array::from_fn(|idx| self.0[idx] & other.0[idx]))
    }

    pub fn or(self, other: Bits) -> Bits {
        Bits(std::array::from_fn(|idx| self.0[idx] | other.0[idx]))
    }

    pub fn without(self, other: Bits) -> Bits {
        Bits(std::array::from_fn(|idx| self.0[idx] & !other.0[idx]))
    }

    pub fn is_empty(self) -> bool {
        self.0 == [0; 4]
    }

    pub fn first(self) -> Option<u32> {
        let word = self.0.iter().position(|word| *word != 0)?;
        Some(word as u32 * 64 + self.0[word].trailing_zeros())
    }

    pub fn count(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns one bit per 32-byte sector, set if any byte of the sector is set.
    pub fn sectors(self) -> u8 {
        let bit = |idx: usize| u8::from(self.0[idx / 2] >> (idx % 2 * 32) & 0xffff_ffff != 0) << idx;
        (0..8).map(bit).sum()
    }
}

/// Accesses of a block to a page, for comparison with other blocks. Atomic accesses are in `read` and `wrote` only.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Foot {
    pub read: Bits,
    pub wrote: Bits,
    pub plain_read: Bits,
    pub plain_wrote: Bits,
}

impl Foot {
    fn add(&mut self, kind: Kind, bits: Bits) {
        match kind {
            Kind::Read => {
                self.read.add(bits);
                self.plain_read.add(bits);
            }
            Kind::Write => {
                self.wrote.add(bits);
                self.plain_wrote.add(bits);
            }
            Kind::Atomic => {
                self.read.add(bits);
                self.wrote.add(bits);
            }
            Kind::AtomicRead => self.read.add(bits),
            Kind::AtomicWrite => self.wrote.add(bits),
        }
    }
}

/// State of one page: sets of its bytes, and for each cell one stamp of writes and one of reads. A cell is 4 bytes
/// until a smaller access occurs, which makes all cells of the page as small as the access.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// Address / 256 of a page of global memory; `None` in shared memory.
    pub number: Option<u64>,
    shift: u32,
    wrote: [Stamp; 64],
    read: [Stamp; 64],
    /// Stamps per 2 bytes or per byte: first those of writes, then those of reads.
    fine: Vec<Stamp>,
    pub init: Bits,
    pub in_flight: Bits,
    pub in_flight_source: Bits,
    /// Bytes of shared memory whose last write was through the generic proxy, with no proxy fence after it yet.
    pub unfenced: Bits,
    pub foot: Foot,
    pub read_line: u32,
    pub write_line: u32,
    /// The last access that issued a copy to the page; it is reported if the log no longer has the entry of the copy in
    /// flight.
    pub copy: Option<Other>,
}

impl Page {
    pub fn new(number: Option<u64>) -> Self {
        Page {
            number,
            shift: 2,
            wrote: [0; 64],
            read: [0; 64],
            fine: Vec::new(),
            init: Bits::default(),
            in_flight: Bits::default(),
            in_flight_source: Bits::default(),
            unfenced: Bits::default(),
            foot: Foot::default(),
            read_line: 0,
            write_line: 0,
            copy: None,
        }
    }

    pub fn clear_stamps(&mut self) {
        self.wrote = [0; 64];
        self.read = [0; 64];
        self.fine.fill(0);
    }

    #[inline]
    fn cells(&mut self) -> (&mut [Stamp], &mut [Stamp]) {
        match self.shift {
            2 => (&mut self.wrote, &mut self.read),
            _ => {
                let half = self.fine.len() / 2;
                self.fine.split_at_mut(half)
            }
        }
    }

    /// Splits the cells until they are no larger than the access.
    fn refine(&mut self, bytes: u32) {
        let shift = bytes.trailing_zeros().min(2);
        if shift >= self.shift {
            return;
        }
        let repeat = 1 << (self.shift - shift);
        let (wrote, read) = self.cells();
        let cells = wrote.iter().chain(read.iter()).flat_map(|stamp| std::iter::repeat_n(*stamp, repeat));
        self.fine = cells.collect();
        self.shift = shift;
    }

    pub fn note(&mut self, kind: Kind, bits: Bits, line: u32) {
        self.foot.add(kind, bits);
        if reads(kind) {
            self.read_line = line;
        }
        if writes(kind) {
            self.write_line = line;
        }
    }

    /// Records that a copy has completed. Accesses to its destination since it was issued have already been reported,
    /// so their stamps are overwritten without a check.
    pub fn land(&mut self, start: u32, bytes: u32, stamp: Stamp) {
        let shift = self.shift;
        let (wrote, read) = self.cells();
        let cells = (start >> shift) as usize..((start + bytes) >> shift) as usize;
        if let (Some(wrote), Some(read)) = (wrote.get_mut(cells.clone()), read.get_mut(cells)) {
            wrote.fill(stamp);
            read.fill(0);
        }
    }

    /// Clears `unfenced` for the bytes whose last write is ordered before the proxy fence of any lane in `mask`.
    pub fn proxy_fence(&mut self, clocks: &Clocks, log: &Log, warp: u32, mask: u32) {
        let shift = self.shift;
        let mut bits = self.unfenced;
        while let Some(byte) = bits.first() {
            let (start, bytes) = (byte >> shift << shift, 1 << shift);
            let cell = Bits::range(start, bytes);
            let stamp = self.cells().0.get((start >> shift) as usize).copied().unwrap_or(0);
            let mut lanes = (0..32).filter(|lane| mask >> lane & 1 == 1);
            let ordered = lanes.any(|lane| {
                let me = Me { entry: 0, warp, lane, atomic: false };
                log.unordered(clocks, stamp, &me).is_none()
            });
            if ordered {
                self.unfenced = self.unfenced.without(cell);
            }
            bits = bits.without(cell);
        }
    }

    /// Returns the access that issued the copy in flight to a byte, or a later write to it, which has been reported; if
    /// the log no longer has either, the last access that issued a copy to the page.
    pub fn issuer(&mut self, log: &Log, byte: u32) -> Option<Other> {
        let shift = self.shift;
        let stamp = *self.cells().0.get((byte >> shift) as usize)?;
        log.name(stamp).or(self.copy)
    }

    /// Returns whether an access to bytes within one word of the bit sets needs a closer check, because some of them
    /// are in flight, are the source of a copy in flight, or are read from shared memory without having been written.
    #[inline]
    pub fn is_special(&self, kind: Kind, (word, mask): (usize, u64), is_shared: bool) -> bool {
        let missing = if is_shared && reads(kind) { !self.init.0[word] } else { 0 };
        (self.in_flight.0[word] | self.in_flight_source.0[word] | missing) & mask != 0
    }

    /// Records an access to bytes within one word of the bit sets.
    #[inline]
    pub fn note_word(&mut self, kind: Kind, (word, mask): (usize, u64), line: u32, is_shared: bool) {
        if reads(kind) {
            self.foot.read.0[word] |= mask;
            self.read_line = line;
        }
        if writes(kind) {
            self.foot.wrote.0[word] |= mask;
            self.write_line = line;
            self.init.0[word] |= if is_shared { mask } else { 0 };
            self.unfenced.0[word] |= if is_shared { mask } else { 0 };
        }
        match kind {
            Kind::Read => self.foot.plain_read.0[word] |= mask,
            Kind::Write => self.foot.plain_wrote.0[word] |= mask,
            Kind::Atomic | Kind::AtomicRead | Kind::AtomicWrite => {}
        }
    }

    /// Records the accesses of a [`Run`] in the stamps, not in the bit sets. Returns false, with no stamp changed, if a
    /// cell needs a closer check.
    pub fn try_run(&mut self, log: &Log, clocks: &Clocks, kind: Kind, run: &Run) -> bool {
        self.refine(run.each);
        let (safe, shift) = (log.safe.max(1), self.shift);
        let per_lane = ((run.each >> shift) as usize).max(1);
        let (wrote, read) = self.cells();
        let cells = (run.start >> shift) as usize..((run.start + run.bytes) >> shift) as usize;
        let (Some(wrote), Some(read)) = (wrote.get_mut(cells.clone()), read.get_mut(cells)) else { return false };
        // `safe` is at least 1, so that empty cells (stamp 0) are below it even before the first barrier.
        if wrote.iter().zip(read.iter()).fold(0, |max, (w, r)| max.max(*w).max(*r)) >= safe {
            let mut past = Past { log, clocks, entry: 0, verdict: Verdict::Unknown };
            let mut settled = |stamp: Stamp, lane: u32| stamp < safe || past.is_settled(stamp, lane, run);
            let lanes = wrote.chunks(per_lane).zip(read.chunks(per_lane)).zip(run.stamp & 31..);
            for ((wrote, read), lane) in lanes {
                if !wrote.iter().chain(read).all(|stamp| settled(*stamp, lane)) {
                    return false;
                }
            }
        }
        let target = match kind {
            Kind::Read | Kind::AtomicRead => read,
            Kind::Write => {
                read.fill(0);
                wrote
            }
            Kind::Atomic | Kind::AtomicWrite => wrote,
        };
        match per_lane {
            1 => (run.stamp..).zip(target).for_each(|(stamp, cell)| *cell = stamp),
            n => (run.stamp..).zip(target.chunks_mut(n)).for_each(|(stamp, cells)| cells.fill(stamp)),
        }
        true
    }

    /// Records an access of one lane, or a collective one, to up to 16 bytes. Returns false, with nothing changed, if
    /// the access needs a closer check.
    #[inline]
    pub fn try_one(
        &mut self,
        log: &Log,
        kind: Kind,
        (start, bytes): (u32, u32),
        stamp: Stamp,
        line: u32,
        is_shared: bool,
    ) -> bool {
        let (word, mask) = word_of(start, bytes);
        let (shift, safe) = (self.shift, log.safe.max(1));
        let cells = (start >> shift) as usize..((start + bytes) >> shift) as usize;
        if self.is_special(kind, (word, mask), is_shared) || bytes >> shift == 0 {
            return false;
        }
        let (all_wrote, all_read) = self.cells();
        let (Some(wrote), Some(read)) = (all_wrote.get_mut(cells.clone()), all_read.get_mut(cells)) else {
            return false;
        };
        if wrote.iter().zip(read.iter()).any(|(w, r)| *w >= safe || *r >= safe) {
            return false;
        }
        if writes(kind) {
            wrote.fill(stamp);
        } else {
            read.fill(stamp);
        }
        if kind == Kind::Write {
            read.fill(0);
        }
        self.note_word(kind, (word, mask), line, is_shared);
        true
    }

    /// Records an access of the lanes in `mask` to the same `bytes` bytes at offset `start`. Returns the first
    /// conflict: its byte, the lane, and the other access.
    pub fn touch(
        &mut self,
        clocks: &Clocks,
        log: &mut Log,
        kind: Kind,
        (start, bytes): (u32, u32),
        me: &Me,
        mask: u32,
    ) -> Option<(u32, u32, Other)> {
        self.refine(bytes);
        let shift = self.shift;
        let (wrote, read) = self.cells();
        let (from, to) = ((start >> shift) as usize, ((start + bytes) >> shift) as usize);
        let (Some(wrote), Some(read)) = (wrote.get_mut(from..to), read.get_mut(from..to)) else { return None };
        let mut found = None;
        // Neighbouring cells usually have equal stamps, and then the same result.
        let mut last = None;
        for (idx, (wrote, read)) in wrote.iter_mut().zip(read).enumerate() {
            let before = (*wrote, *read);
            if let Some((past, future)) = last
                && past == before
            {
                (*wrote, *read) = future;
                continue;
            }
            let conflict = |log: &Log, stamp: Stamp| {
                if stamp < log.safe || stamp == 0 {
                    return None;
                }
                let lanes = (0..32).filter(|lane| mask & (1 << lane) != 0);
                lanes.into_iter().find_map(|lane| {
                    Some((start + ((idx as u32) << shift), lane, log.unordered(clocks, stamp, &Me { lane, ..*me })?))
                })
            };
            let write_seen = if found.is_none() { conflict(log, *wrote) } else { None };
            found = found.or(write_seen);
            match kind {
                Kind::Read | Kind::AtomicRead => *read = log.replace(clocks, *read, me, mask),
                Kind::Write => {
                    found = found.or_else(|| conflict(log, *read));
                    *wrote = log.replace(clocks, 0, me, mask);
                    *read = 0;
                }
                Kind::Atomic | Kind::AtomicWrite => {
                    found = found.or_else(|| conflict(log, *read));
                    *wrote = log.replace(clocks, *wrote, me, mask);
                }
            }
            last = Some((before, (*wrote, *read)));
        }
        found
    }
}

/// Returns the index of the word of a bit set that covers up to 16 aligned bytes, and their bits in this word.
#[inline]
pub(super) fn word_of(start: u32, bytes: u32) -> (usize, u64) {
    ((start / 64) as usize & 3, (u64::MAX >> (64 - bytes.clamp(1, 64))) << (start % 64))
}

/// Accesses of consecutive lanes to consecutive addresses of one page.
pub(super) struct Run {
    pub start: u32,
    pub bytes: u32,
    pub each: u32,
    /// Stamp of the first lane.
    pub stamp: Stamp,
    pub warp: u32,
    pub atomic: bool,
}

/// The verdict on the entry that was checked last.
struct Past<'a> {
    log: &'a Log,
    clocks: &'a Clocks,
    entry: u32,
    verdict: Verdict,
}

/// Whether an entry is ordered before the current access; if so, the current access may replace the entry in the cell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The entry is ordered before every lane of the warp.
    Ordered,
    /// The access of each lane is ordered only before accesses of the same lane.
    SameLane,
    Unknown,
}

impl Past<'_> {
    fn is_settled(&mut self, stamp: Stamp, lane: u32, run: &Run) -> bool {
        if stamp >> 6 != self.entry {
            self.entry = stamp >> 6;
            self.verdict = self.log.verdict(self.clocks, stamp, run.warp, run.atomic);
        }
        match self.verdict {
            Verdict::Ordered => true,
            Verdict::SameLane => stamp & 31 == lane,
            Verdict::Unknown => false,
        }
    }
}

/// Returns the problem that the bit sets of a page show without its stamps, and the first byte concerned.
pub(super) fn bit_problem(page: &Page, kind: Kind, bits: Bits, check_init: bool) -> Option<(ProblemKind, u32)> {
    let in_flight = page.in_flight.and(bits).first().map(|byte| (ProblemKind::InFlight, byte));
    let source = || match writes(kind) {
        true => page.in_flight_source.and(bits).first().map(|byte| (ProblemKind::InFlightSource, byte)),
        false => None,
    };
    let missing = || match reads(kind) && check_init {
        true => bits.without(page.init).first().map(|byte| (ProblemKind::Uninitialised, byte)),
        false => None,
    };
    in_flight.or_else(source).or_else(missing)
}

#[inline]
pub(super) fn reads(kind: Kind) -> bool {
    matches!(kind, Kind::Read | Kind::Atomic | Kind::AtomicRead)
}

#[inline]
pub(super) fn writes(kind: Kind) -> bool {
    matches!(kind, Kind::Write | Kind::Atomic | Kind::AtomicWrite)
}
