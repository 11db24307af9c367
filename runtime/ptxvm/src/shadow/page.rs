//! one access to 256 bytes  =>  the stamps of its cells, initialised and in-flight bytes

use super::clocks::Clocks;
use super::log::{Log, Me, Stamp};
use super::{Kind, Other, ProblemKind};

pub(super) const PAGE_BYTES: u32 = 256;

/// One bit per byte of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits(pub [u64; 4]);

impl Bits {
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

    pub fn remove(&mut self, other: Bits) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine &= !theirs);
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

    /// One bit per 32-byte sector.
    pub fn sectors(self) -> u8 {
        let bit = |idx: usize| u8::from(self.0[idx / 2] >> (idx % 2 * 32) & 0xffff_ffff != 0) << idx;
        (0..8).map(bit).sum()
    }
}

/// What a block did to a page, as far as other blocks are concerned. Atomic accesses are in `read` and `wrote` only.
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

/// Stamps of one page: per 4 bytes, until something smaller is accessed.
#[derive(Clone, Debug)]
pub(super) struct Page {
    shift: u32,
    wrote: [Stamp; 64],
    read: [Stamp; 64],
    /// Per 2 bytes or per byte: writes, then reads.
    fine: Vec<Stamp>,
    pub init: Bits,
    pub in_flight: Bits,
    pub in_flight_source: Bits,
    pub foot: Foot,
    pub read_line: u32,
    pub write_line: u32,
    /// The last copy issued to the page, for when the log no longer names it.
    pub copy: Option<Other>,
}

impl Page {
    pub fn new() -> Self {
        Page {
            shift: 2,
            wrote: [0; 64],
            read: [0; 64],
            fine: Vec::new(),
            init: Bits::default(),
            in_flight: Bits::default(),
            in_flight_source: Bits::default(),
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

    fn cells(&mut self) -> (&mut [Stamp], &mut [Stamp]) {
        match self.shift {
            2 => (&mut self.wrote, &mut self.read),
            _ => {
                let half = self.fine.len() / 2;
                self.fine.split_at_mut(half)
            }
        }
    }

    /// Cells at least as small as the access.
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
        match kind {
            Kind::Read | Kind::AtomicRead => self.read_line = line,
            Kind::Write | Kind::AtomicWrite | Kind::Atomic => self.write_line = line,
        }
    }

    /// A copy arrives: whatever was done to the bytes since it was issued has been reported.
    pub fn land(&mut self, start: u32, bytes: u32, stamp: Stamp) {
        let shift = self.shift;
        let (wrote, read) = self.cells();
        let cells = (start >> shift) as usize..((start + bytes) >> shift) as usize;
        if let (Some(wrote), Some(read)) = (wrote.get_mut(cells.clone()), read.get_mut(cells)) {
            wrote.fill(stamp);
            read.fill(0);
        }
    }

    /// Who issued the copy that is in flight to a byte.
    pub fn issuer(&mut self, log: &Log, byte: u32) -> Option<Other> {
        let shift = self.shift;
        let stamp = *self.cells().0.get((byte >> shift) as usize)?;
        log.name(stamp).or(self.copy)
    }

    /// Lanes `lane..` access consecutive `each` bytes from `start`. False, and nothing done, when a cell needs a look.
    pub fn try_run(&mut self, log: &Log, kind: Kind, start: u32, bytes: u32, each: u32, stamp: Stamp) -> bool {
        self.refine(each);
        let (safe, shift) = (log.safe, self.shift);
        let (wrote, read) = self.cells();
        let (from, to) = ((start >> shift) as usize, ((start + bytes) >> shift) as usize);
        let (Some(wrote), Some(read)) = (wrote.get_mut(from..to), read.get_mut(from..to)) else { return false };
        // A stamp of 0 is below every limit but that of the first phase, which is 0 itself.
        let safe = safe.max(1);
        if wrote.iter().zip(read.iter()).fold(0, |max, (w, r)| max.max(*w).max(*r)) >= safe {
            return false;
        }
        let target = match kind {
            Kind::Read | Kind::AtomicRead => read,
            Kind::Write => {
                read.fill(0);
                wrote
            }
            Kind::Atomic | Kind::AtomicWrite => wrote,
        };
        match (each >> shift) as usize {
            0 | 1 => (stamp..).zip(target).for_each(|(stamp, cell)| *cell = stamp),
            n => (stamp..).zip(target.chunks_mut(n)).for_each(|(stamp, cells)| cells.fill(stamp)),
        }
        true
    }

    /// Lanes `mask` access the same `bytes` at `start`. The first conflict found, with the byte and the lane.
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
        for (idx, (wrote, read)) in wrote.iter_mut().zip(read).enumerate() {
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
        }
        found
    }
}

/// What a look at the bits of a page finds before any stamp is compared.
pub(super) fn bit_problem(page: &Page, kind: Kind, bits: Bits, check_init: bool) -> Option<(ProblemKind, u32)> {
    let reads = matches!(kind, Kind::Read | Kind::Atomic | Kind::AtomicRead);
    let writes = matches!(kind, Kind::Write | Kind::Atomic | Kind::AtomicWrite);
    let in_flight = page.in_flight.and(bits).first().map(|byte| (ProblemKind::InFlight, byte));
    let source = || match writes {
        true => page.in_flight_source.and(bits).first().map(|byte| (ProblemKind::InFlightSource, byte)),
        false => None,
    };
    let missing = || match reads && check_init {
        true => bits.without(page.init).first().map(|byte| (ProblemKind::Uninitialised, byte)),
        false => None,
    };
    in_flight.or_else(source).or_else(missing)
}
