//! counts of the threads of all pools of a process  =>  whether workers may spin, whether a caller may wake workers

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// Counters over all pools: workers that are awake, callers that are in a call, and the threads of the callers' pools,
/// awake or not.
pub struct Crowd {
    /// The three counters, in the bits from 0, 20 and 40 on, so that one atomic operation updates two of them.
    pub word: AtomicU64,
    processors: u64,
}

/// One in each of the three counters.
pub const WORKER: u64 = 1;
const CALLER: u64 = 1 << 20;
const WANTED: u64 = 1 << 40;

/// The counters over all pools of this process.
pub static CROWD: LazyLock<Arc<Crowd>> =
    LazyLock::new(|| Arc::new(Crowd::new(std::thread::available_parallelism().map_or(1, |n| n.get()))));

impl Crowd {
    pub fn new(processors: usize) -> Crowd {
        Crowd { word: AtomicU64::new(0), processors: processors as u64 }
    }

    /// Whether more threads (workers and callers) are awake than there are processors. Threads that wait for work
    /// should then sleep, not spin.
    pub fn is_dense(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word % CALLER + word % WANTED / CALLER > self.processors
    }

    /// Counts a caller whose pool has `threads` threads. Returns whether it may wake its workers: there is no other
    /// caller, or there are processors for the threads of all callers' pools.
    fn enter(&self, threads: usize) -> bool {
        let before = self.word.fetch_add(CALLER + WANTED * threads as u64, Ordering::Relaxed);
        before / WANTED == 0 || before / WANTED + threads as u64 <= self.processors
    }

    fn leave(&self, threads: usize) {
        self.word.fetch_sub(CALLER + WANTED * threads as u64, Ordering::Relaxed);
    }
}

/// Counts a caller until it is dropped.
pub struct Counted<'a> {
    crowd: &'a Crowd,
    threads: usize,
    /// Whether the caller may wake its workers.
    pub may_wake: bool,
}

impl Counted<'_> {
    pub fn new(crowd: &Crowd, threads: usize) -> Counted<'_> {
        Counted { crowd, threads, may_wake: crowd.enter(threads) }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.crowd.leave(self.threads);
    }
}

/// Counts a worker as awake until it is dropped, also if the worker panics.
pub struct Awake<'a>(&'a Crowd);

impl Awake<'_> {
    pub fn new(crowd: &Crowd) -> Awake<'_> {
        crowd.word.fetch_add(WORKER, Ordering::Relaxed);
        Awake(crowd)
    }
}

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        self.0.word.fetch_sub(WORKER, Ordering::Relaxed);
    }
}
