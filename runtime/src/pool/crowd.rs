//! threads of all pools of a process  =>  whether workers may spin, and whether a caller may wake its workers

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// Counters over all pools, in one word: workers that are awake, callers at work, and all threads of the callers'
/// pools.
pub struct Crowd {
    pub word: AtomicU64,
    processors: u64,
}

pub const WORKER: u64 = 1;
const CALLER: u64 = 1 << 20;
const WANTED: u64 = 1 << 40;

/// The crowd of all pools of this process.
pub static CROWD: LazyLock<Arc<Crowd>> =
    LazyLock::new(|| Arc::new(Crowd::new(std::thread::available_parallelism().map_or(1, |n| n.get()))));

impl Crowd {
    pub fn new(processors: usize) -> Crowd {
        Crowd { word: AtomicU64::new(0), processors: processors as u64 }
    }

    /// Whether more threads are awake than there are processors: then threads that only wait should sleep.
    pub fn is_dense(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word % CALLER + word % WANTED / CALLER > self.processors
    }

    /// Counts a caller. Returns whether its workers would find a processor: it is the only caller, or the threads of
    /// all callers have a processor each.
    fn enter(&self, threads: usize) -> bool {
        let before = self.word.fetch_add(CALLER + WANTED * threads as u64, Ordering::Relaxed);
        before / WANTED == 0 || before / WANTED + threads as u64 <= self.processors
    }

    fn leave(&self, threads: usize) {
        self.word.fetch_sub(CALLER + WANTED * threads as u64, Ordering::Relaxed);
    }
}

/// Guard that counts a caller.
pub struct Counted<'a> {
    crowd: &'a Crowd,
    threads: usize,
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

/// Guard that counts a worker as awake, until it ends, even by a panic.
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
