//! a job published by one caller  =>  its chunks, each claimed once by the caller or by a worker that joins in time
//!
//! Jobs have increasing numbers, and are published in two slots in turn. A worker that finds a job announces the job's
//! number at its seat, and leaves the job again if a later one has been published meanwhile. The caller returns from a
//! job when all chunks have been claimed and no seat is taken. Therefore:
//!
//! * A worker that joins after the caller has returned finds no chunk, so it never uses memory of the caller.
//! * A slot is written only while no worker reads it: a worker that reads the slot of job `n` announced `n` before job
//!   `n + 1` was published, so the caller waited for it at the end of job `n + 1`, before job `n + 2`.
//!
//! Usually all threads find their chunks in their own cache lines: a job moves one line from the caller to each worker
//! (the slot), and one line back (the seat).
//!
//! `tests/rounds.rs` explores the interleavings of small jobs: it includes this file, with `sync` for a model checker.

use super::sync::{AtomicU64, Ordering, Shared, pause};
use std::marker::PhantomData;

/// Maximum number of parts that the items of a job are divided into. If there are more threads, they share parts.
pub const PARTS_MAX: usize = 16;

/// Work on the items `0..n` in chunks of at most `chunk` items. Both functions live for `'a`.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    n: i64,
    chunk: i64,
    /// Whether chunks are claimed in descending order within a part.
    back: bool,
    /// Called before each chunk; once it returns false, the remaining chunks are skipped.
    go_on: *const (dyn Fn() -> bool + Sync),
    /// Called with the number of the thread, and the first item and the end of a chunk.
    f: *const (dyn Fn(usize, i64, i64) + Sync),
    lives: PhantomData<&'a ()>,
}

impl<'a> Job<'a> {
    pub fn new(
        n: i64,
        (chunk, back): (i64, bool),
        go_on: &'a (dyn Fn() -> bool + Sync + 'a),
        f: &'a (dyn Fn(usize, i64, i64) + Sync + 'a),
    ) -> Job<'a> {
        type GoOn<'a> = *const (dyn Fn() -> bool + Sync + 'a);
        type Piece<'a> = *const (dyn Fn(usize, i64, i64) + Sync + 'a);
        // The number of a chunk must fit into a claim.
        let chunk = chunk.max(n / CHUNKS_MAX).max(1);
        // SAFETY: only the lifetimes of the pointers change; `'a` stands for both.
        let (go_on, f) = unsafe {
            let go_on = std::mem::transmute::<GoOn<'a>, GoOn<'static>>(go_on);
            (go_on, std::mem::transmute::<Piece<'a>, Piece<'static>>(f))
        };
        Job { n, chunk, back, go_on, f, lives: PhantomData }
    }

    /// Returns the job without its lifetime, for a slot: workers read it there only while the functions live.
    fn unbound(self) -> Job<'static> {
        Job { lives: PhantomData, ..self }
    }

    /// Returns the first item and the end of a part.
    fn part(&self, part: usize, parts: usize) -> (i64, i64) {
        let begin = |part: i64| self.n / parts as i64 * part + (self.n % parts as i64).min(part);
        (begin(part as i64), begin(part as i64 + 1))
    }

    /// Calls `f` on a chunk of the items `first..end`. Returns false without calling it if the job is to be ended.
    ///
    /// # Safety
    /// Both functions live.
    unsafe fn compute(&self, worker: usize, (first, end): (i64, i64), chunk: i64) -> bool {
        // SAFETY: the caller guarantees it.
        if !unsafe { (*self.go_on)() } {
            return false;
        }
        let (from, to) = (chunk * self.chunk, (chunk + 1).saturating_mul(self.chunk).min(end - first));
        let (from, to) = if self.back { (end - to, end - from) } else { (first + from, first + to) };
        // SAFETY: the caller guarantees it.
        unsafe { (*self.f)(worker, from, to) };
        true
    }

    /// Computes the job on the thread of the caller alone, in one part.
    pub fn alone(&self) {
        // SAFETY: the functions live for `'a`.
        let goes_on = |chunk: i64| unsafe { self.compute(0, (0, self.n), chunk) };
        let n_chunks = self.n.max(0) / self.chunk + i64::from(self.n.max(0) % self.chunk != 0);
        (0..n_chunks).all(goes_on);
    }
}

/// The bits of a claim that hold the number of the next chunk; the others hold the number of the job, which never
/// overflows them: 2^48 jobs take years even if each takes a microsecond.
const CHUNK_BITS: u32 = 16;
const CHUNKS: u64 = (1 << CHUNK_BITS) - 1;
/// A part has fewer chunks than `CHUNKS`, which stands for "all of them".
const CHUNKS_MAX: i64 = 1 << (CHUNK_BITS - 1);

/// On cache lines of its own, also where pairs of lines are fetched together.
#[repr(align(128))]
struct Apart<T>(T);

/// A published job.
struct Slot {
    /// Number of the job; 0 before the first one.
    number: AtomicU64,
    job: Shared<Option<Job<'static>>>,
}

struct Seat {
    /// Number of the job that the thread is in, or 0.
    taken: AtomicU64,
    /// Number of a job, and of the next chunk of the part of the items that belongs to this seat. An older job's number
    /// means that no chunk has been claimed yet.
    claim: AtomicU64,
}

pub struct Rounds {
    slots: [Apart<Slot>; 2],
    seats: Box<[Apart<Seat>]>,
}

// SAFETY: the numbers of jobs order all accesses to the slots, as described above. The functions of a job may be called
// on any thread.
unsafe impl Send for Rounds {}
// SAFETY: as above.
unsafe impl Sync for Rounds {}

impl Rounds {
    pub fn new(threads: usize) -> Rounds {
        let slot = || Apart(Slot { number: AtomicU64::new(0), job: Shared::new(None) });
        let seat = || Apart(Seat { taken: AtomicU64::new(0), claim: AtomicU64::new(0) });
        Rounds { slots: [slot(), slot()], seats: (0..threads).map(|_| seat()).collect() }
    }

    fn slot(&self, number: u64) -> &Slot {
        &self.slots[(number % 2) as usize].0
    }

    /// Whether a job with a higher number than `seen` has been published.
    pub fn is_news(&self, seen: u64) -> bool {
        self.slot(seen + 1).number.load(Ordering::SeqCst) > seen
    }

    /// Computes a job on this thread and those workers that join in time. Its number is one more than that of the job
    /// before. `published` is called when workers can see the job.
    ///
    /// # Safety
    /// No other thread is in this function.
    pub unsafe fn compute(&self, number: u64, job: &Job, published: impl FnOnce()) {
        let slot = self.slot(number);
        // SAFETY: no worker reads the slot, as described above.
        slot.job.with_mut(|to| unsafe { *to = Some(job.unbound()) });
        slot.number.store(number, Ordering::SeqCst);
        let _end = End { rounds: self, number };
        published();
        // SAFETY: the functions live for longer than this call.
        unsafe { self.work(0, number, job) };
    }

    /// Lets a worker join the first job that it finds after job `seen`, unless a later one is there already. Returns
    /// the number of that job.
    pub fn join(&self, worker: usize, seen: u64) -> u64 {
        let slot = self.slot(seen + 1);
        let number = slot.number.load(Ordering::SeqCst);
        if number <= seen {
            return seen;
        }
        let seat = &self.seats[worker].0;
        seat.taken.store(number, Ordering::SeqCst);
        let _leave = Leave(seat);
        if self.slot(number + 1).number.load(Ordering::SeqCst) > number {
            return number;
        }
        // SAFETY: this worker's seat is taken, and the next job was not published before, so the slot is not written.
        if let Some(job) = slot.job.with(|job| unsafe { *job }) {
            // SAFETY: a function is called only for a chunk that this worker has claimed, and the caller, who ensures
            // that the functions live, waits until the seat is free.
            unsafe { self.work(worker, number, &job) };
        }
        number
    }

    /// Claims chunks and computes them until none is left: those of the thread's own part first. So what one job writes
    /// is mostly read by the same thread in the next job, and need not move between the caches of two processors.
    ///
    /// # Safety
    /// The functions of the job live as long as it has chunks that nobody has claimed, or that are being computed.
    unsafe fn work(&self, worker: usize, number: u64, job: &Job) {
        let threads = self.seats.len();
        let parts = threads.min(PARTS_MAX).min(job.n.max(1) as usize);
        let own = worker * parts / threads;
        for part in (own..parts).chain(0..own) {
            let (first, end) = job.part(part, parts);
            let n_chunks = ((end - first) / job.chunk + i64::from((end - first) % job.chunk != 0)) as u64;
            // Part p belongs to the first thread whose own part it is.
            let seat = &self.seats[(part * threads).div_ceil(parts)].0;
            // The first chunk of part 0 is the caller's without a claim, so that the line of its seat can stay in its
            // cache.
            let mut next = if worker == 0 && part == 0 { Some(0) } else { seat.claim(number, part == 0, n_chunks) };
            while let Some(chunk) = next {
                // SAFETY: this thread has claimed the chunk.
                if !unsafe { job.compute(worker, (first, end), chunk as i64) } {
                    return if worker == 0 {
                        self.close(number);
                    };
                }
                next = seat.claim(number, part == 0, n_chunks);
            }
        }
    }

    /// Claims all chunks that are left.
    fn close(&self, number: u64) {
        for seat in &self.seats {
            seat.0.claim.fetch_max((number << CHUNK_BITS) | CHUNKS, Ordering::AcqRel);
        }
    }
}

impl Seat {
    /// Claims the next chunk of the part of this seat; `None` if none is left. If `is_first`, chunk 0 is never claimed.
    fn claim(&self, number: u64, is_first: bool, n_chunks: u64) -> Option<u64> {
        let least = u64::from(is_first);
        if n_chunks <= least {
            return None;
        }
        let mut found = self.claim.load(Ordering::Acquire);
        loop {
            let now = found.max((number << CHUNK_BITS) | least);
            // A later job's number: all chunks of this one have been claimed.
            if now >> CHUNK_BITS != number || now & CHUNKS >= n_chunks {
                return None;
            }
            match self.claim.compare_exchange_weak(found, now + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(now & CHUNKS),
                Err(other) => found = other,
            }
        }
    }
}

/// Frees the seat of a worker, also if a function of the job panics.
struct Leave<'a>(&'a Seat);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.taken.store(0, Ordering::Release);
    }
}

/// Waits until no worker is in a job, also if a function panics, because the job uses memory of the caller.
struct End<'a> {
    rounds: &'a Rounds,
    number: u64,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.rounds.close(self.number);
        }
        for seat in &self.rounds.seats[1..] {
            let mut turns = 0u32;
            while seat.0.taken.load(Ordering::SeqCst) != 0 {
                turns = turns.wrapping_add(1);
                pause(turns);
            }
        }
    }
}
