//! counts of the threads of all pools of a process  =>  whether workers may spin, whether a caller may wake workers

use super::N_FORKS;
use std::ops::Deref;
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
}

/// Counts a caller until it is dropped.
pub struct Counted<C: Deref<Target = Crowd>> {
    crowd: C,
    threads: u64,
    /// Whether there was no other caller when this one was counted.
    is_first: bool,
    /// Number of forks of the process when the caller was counted.
    n_forks: u64,
}

impl<C: Deref<Target = Crowd>> Counted<C> {
    /// Counts a caller whose pool has `threads` threads.
    pub fn new(crowd: C, threads: usize) -> Counted<C> {
        let threads = threads as u64;
        let before = crowd.word.fetch_add(CALLER + WANTED * threads, Ordering::Relaxed);
        Counted { crowd, threads, is_first: before / WANTED == 0, n_forks: N_FORKS.load(Ordering::Relaxed) }
    }

    /// Whether the caller may wake its workers: there was no other caller when it was counted, or there are processors
    /// for the threads of all callers' pools.
    pub fn may_wake(&self) -> bool {
        self.is_first || self.crowd.word.load(Ordering::Relaxed) / WANTED <= self.crowd.processors
    }
}

impl<C: Deref<Target = Crowd>> Drop for Counted<C> {
    fn drop(&mut self) {
        // A forked process counts from zero again.
        if self.n_forks == N_FORKS.load(Ordering::Relaxed) {
            self.crowd.word.fetch_sub(CALLER + WANTED * self.threads, Ordering::Relaxed);
        }
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
