//! memory that all ranks of a host share: words to wait for, what each rank has posted, and an area (room) of each rank
//!
//! There is one mapping for all ranks. A room is far larger than needed, because only touched pages take memory. A
//! rank's arena starts at the beginning of its room and grows in place; data that it posts from elsewhere is copied to
//! the second half.

use super::wire::Wire;
use sardonyx_base::{Error, Result};
use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Maximum number of axes of a mesh.
pub const AXES_MAX: usize = 4;
/// Number of phase counters of a rank: one for the collectives along each axis, and one for its sends.
pub const LANES: usize = AXES_MAX + 1;
/// Lane of sends. Its phases follow from the index of the step, because ranks without a part in a send do not count it.
pub const SENDS: usize = AXES_MAX;
/// Maximum size in bytes of an operand that is copied to a slot beside its description; ranks read larger operands in
/// place.
pub const SMALL_MAX: usize = sardonyx_base::schedule::SMALL_MAX;
/// Maximum size of a failure's text in bytes.
const TEXT_MAX: usize = 2048;

/// Sizes of a room; the largest that the system grants is used.
const ROOMS: [usize; 3] = [64 << 30, 4 << 30, 512 << 20];
const PAGE: usize = 4096;

/// A number that other ranks can wait for.
#[repr(C, align(64))]
pub struct Word {
    value: AtomicU32,
    waiting: AtomicU32,
}

impl Word {
    pub fn get(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Stores a value, and wakes the ranks that wait for a change.
    pub fn set(&self, value: u32) {
        self.value.store(value, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    pub fn wake(&self) {
        // SAFETY: the word exists, and the kernel only looks up its waiters.
        unsafe { libc::syscall(libc::SYS_futex, self.value.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Sleeps while the value is `seen`, for at most `limit`.
    pub fn sleep(&self, seen: u32, limit: Duration) {
        let limit = libc::timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos().into() };
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the word and the limit outlive the call.
        unsafe { libc::syscall(libc::SYS_futex, self.value.as_ptr(), libc::FUTEX_WAIT, seen, &limit) };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Description of a rank's part in a collective.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// Fingerprint of the collective and its step.
    pub what: u64,
    /// Offsets in the segment of the rank's operand, and of its result.
    pub operand: u64,
    pub result: u64,
    /// Time of posting, by the host's monotonic clock.
    pub at_ns: u64,
}

/// State that all ranks share.
#[repr(C)]
struct Header {
    /// Number of the last order to the other ranks.
    order: Word,
    /// In the upper 32 bits, the number of the call that failed; in the lower 32 bits, the first rank that failed,
    /// counted from 1.
    failed: AtomicU64,
    /// The emulated links ([`Wire`]): latency in nanoseconds, and rate in bytes per second; 0 without emulation.
    latency_ns: AtomicU64,
    bytes_per_s: AtomicU64,
}

/// State of one rank, which the others read.
#[repr(C)]
struct Control {
    /// By lane: the number of phases that the rank has reached.
    phases: [Word; LANES],
    /// The last order that the rank has carried out.
    idle: Word,
    posted: [[Posted; 2]; LANES],
    text_bytes: AtomicU32,
    text: [u8; TEXT_MAX],
}

/// Bytes of a rank's control block, and of its two slots for small operands for each axis.
const CONTROL: usize = size_of::<Control>().next_multiple_of(PAGE) + AXES_MAX * 2 * SMALL_MAX;

pub struct Segment {
    start: NonNull<u8>,
    bytes: usize,
    pub n_ranks: usize,
    pub room: usize,
    /// The file that other processes map.
    file: Option<OwnedFd>,
}

// SAFETY: words are atomic; everything else has one writer at a time, as the protocol of `shared.rs` ensures.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Creates a segment for threads of one process. Errors: E0304.
    pub fn private(n_ranks: usize) -> Result<Segment> {
        let map = |bytes| map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1);
        let found = ROOMS.iter().find_map(|&room| Some((room, map(Segment::size(n_ranks, room)?)?)));
        let (room, start) = found.ok_or_else(|| refused(n_ranks))?;
        let bytes = Segment::size(n_ranks, room).unwrap_or(0);
        let segment = Segment { start, bytes, n_ranks, room, file: None };
        for rank in 0..n_ranks {
            // SAFETY: the room is within the mapping. The advice may be refused; the memory works either way.
            unsafe { libc::madvise(segment.at(segment.room_at(rank)).cast(), room, libc::MADV_HUGEPAGE) };
        }
        Ok(segment)
    }

    /// Creates a segment for several processes, which inherit its anonymous file. Errors: E0304.
    pub fn shared(n_ranks: usize) -> Result<Segment> {
        // SAFETY: the name is a zero-terminated string.
        let fd = unsafe { libc::memfd_create(c"sardonyx".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(refused(n_ranks));
        }
        // SAFETY: the descriptor is open and has no other owner.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let fits = |room: &&usize| {
            let bytes = Segment::size(n_ranks, **room).and_then(|bytes| libc::off_t::try_from(bytes).ok());
            // SAFETY: the file is open; only pages that are touched take memory.
            bytes.is_some_and(|bytes| unsafe { libc::ftruncate(fd, bytes) } == 0)
        };
        let room = ROOMS.iter().find(fits).ok_or_else(|| refused(n_ranks))?;
        Segment::attach(file, n_ranks, *room)
    }

    /// Maps the segment of another process. Errors: E0304; E0408 if the file does not have the size of this mesh.
    pub fn attach(file: OwnedFd, n_ranks: usize, room: usize) -> Result<Segment> {
        let bytes = Segment::size(n_ranks, room).ok_or_else(|| refused(n_ranks))?;
        let length = File::from(file.try_clone().map_err(|_| refused(n_ranks))?).metadata().map(|m| m.len());
        if length.ok() != Some(bytes as u64) {
            return Err(Error::user("E0408", "the memory of the other ranks is not that of this mesh"));
        }
        let start = map(bytes, libc::MAP_SHARED | libc::MAP_NORESERVE, file.as_raw_fd());
        let start = start.ok_or_else(|| refused(n_ranks))?;
        Ok(Segment { start, bytes, n_ranks, room, file: Some(file) })
    }

    pub fn file(&self) -> Option<&OwnedFd> {
        self.file.as_ref()
    }

    fn size(n_ranks: usize, room: usize) -> Option<usize> {
        (CONTROL + room).checked_mul(n_ranks)?.checked_add(PAGE).filter(|n| *n <= isize::MAX as usize)
    }

    /// Returns the address of an offset.
    pub fn at(&self, place: usize) -> *mut u8 {
        debug_assert!(place <= self.bytes);
        self.start.as_ptr().wrapping_add(place)
    }

    /// Returns the offset of an address, if `bytes` bytes from there on are in the arena of a rank.
    pub fn place(&self, rank: usize, address: *const u8, bytes: usize) -> Option<usize> {
        let at = (address as usize).checked_sub(self.start.as_ptr() as usize)?;
        let arena = self.room_at(rank)..self.staging(rank);
        (arena.contains(&at) && bytes <= arena.end - at).then_some(at)
    }

    pub fn room_at(&self, rank: usize) -> usize {
        PAGE + self.n_ranks * CONTROL + rank * self.room
    }

    /// Returns the offset of a rank's staging memory, for data outside the arena: operands first, then results.
    pub fn staging(&self, rank: usize) -> usize {
        self.room_at(rank) + self.room / 2
    }

    /// Whether a range is within the segment.
    pub fn holds(&self, place: usize, bytes: usize) -> bool {
        place.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping begins with the header; all zeros are a valid value, and it has only atomics.
        unsafe { &*self.at(0).cast() }
    }

    fn control(&self, rank: usize) -> *mut Control {
        assert!(rank < self.n_ranks);
        self.at(PAGE + rank * CONTROL).cast()
    }

    /// Makes ranks exchange as over slow links.
    pub fn slow_down(&self, wire: Wire) {
        let header = self.header();
        header.latency_ns.store(u64::try_from(wire.latency.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
        header.bytes_per_s.store(wire.bytes_per_s.get(), Ordering::SeqCst);
    }

    pub fn wire(&self) -> Option<Wire> {
        let header = self.header();
        let bytes_per_s = NonZeroU64::new(header.bytes_per_s.load(Ordering::Relaxed))?;
        Some(Wire { latency: Duration::from_nanos(header.latency_ns.load(Ordering::Relaxed)), bytes_per_s })
    }

    pub fn order(&self) -> &Word {
        &self.header().order
    }

    pub fn phase(&self, rank: usize, lane: usize) -> &Word {
        // SAFETY: within the control block; a word has only atomics.
        unsafe { &(*self.control(rank)).phases[lane] }
    }

    pub fn idle(&self, rank: usize) -> &Word {
        // SAFETY: as above.
        unsafe { &(*self.control(rank)).idle }
    }

    pub fn small(&self, rank: usize, axis: usize, slot: usize) -> usize {
        let first = PAGE + rank * CONTROL + size_of::<Control>().next_multiple_of(PAGE);
        first + (axis * 2 + slot) * SMALL_MAX
    }

    pub fn post(&self, rank: usize, lane: usize, slot: usize, posted: Posted) {
        // SAFETY: within the control block; only the rank itself writes there, and the others read only after the rank
        // has incremented its phase.
        unsafe { (&raw mut (*self.control(rank)).posted[lane][slot]).write(posted) }
    }

    pub fn posted(&self, rank: usize, lane: usize, slot: usize) -> Posted {
        // SAFETY: as above.
        unsafe { (&raw const (*self.control(rank)).posted[lane][slot]).read() }
    }

    /// Records that a rank failed in a call, and why. If several ranks fail in a call, the first one is remembered.
    pub fn fail(&self, call: u32, rank: usize, why: &str) {
        let end = (0..=why.len().min(TEXT_MAX)).rev().find(|at| why.is_char_boundary(*at)).unwrap_or(0);
        let control = self.control(rank);
        // SAFETY: only the rank itself writes there; others read the text only after the failure is announced.
        unsafe {
            (&raw mut (*control).text).cast::<u8>().copy_from_nonoverlapping(why.as_ptr(), end);
            (*control).text_bytes.store(end as u32, Ordering::Release);
        }
        let own = u64::from(call) << 32 | (rank as u64 + 1);
        let older = |seen: u64| ((seen >> 32) as u32 != call).then_some(own);
        let _ = self.header().failed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, older);
        for rank in 0..self.n_ranks {
            (0..LANES).for_each(|lane| self.phase(rank, lane).wake());
        }
    }

    /// Returns the rank that was first to fail in a call.
    pub fn failed(&self, call: u32) -> Option<usize> {
        let seen = self.header().failed.load(Ordering::Acquire);
        ((seen >> 32) as u32 == call).then(|| (seen as u32 as usize).wrapping_sub(1)).filter(|r| *r < self.n_ranks)
    }

    /// Returns why a rank failed.
    pub fn why(&self, rank: usize) -> String {
        let control = self.control(rank);
        // SAFETY: within the control block.
        let bytes = unsafe { (*control).text_bytes.load(Ordering::Acquire) } as usize;
        let mut text = vec![0; bytes.min(TEXT_MAX)];
        // SAFETY: as above; the rank has written the text before.
        unsafe { text.as_mut_ptr().copy_from_nonoverlapping((&raw const (*control).text).cast(), text.len()) };
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped with this size.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn map(bytes: usize, flags: i32, fd: i32) -> Option<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping touches nothing that exists.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, fd, 0) };
    if map == libc::MAP_FAILED { None } else { NonNull::new(map.cast()) }
}

fn refused(n_ranks: usize) -> Box<Error> {
    Error::user("E0304", format!("cannot map the memory that {n_ranks} ranks share"))
        .help("raise the limit of the address space (`ulimit -v`)")
}
