//! all interleavings of the threads of a pool in small jobs (`src/pool/rounds.rs`), explored by loom

#[path = "../src/pool/rounds.rs"]
mod rounds;

/// The names of `src/pool/sync.rs`, for loom, which treats sequentially consistent accesses as acquire and release:
/// fences emulate their order. Fences order other accesses, too, so a missing release may go unnoticed here.
mod sync {
    pub use loom::sync::atomic::Ordering;
    use loom::sync::atomic::fence;

    pub struct AtomicU64(loom::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub fn new(value: u64) -> AtomicU64 {
            AtomicU64(loom::sync::atomic::AtomicU64::new(value))
        }

        pub fn load(&self, order: Ordering) -> u64 {
            if order == Ordering::SeqCst {
                fence(Ordering::SeqCst);
            }
            self.0.load(order)
        }

        pub fn store(&self, value: u64, order: Ordering) {
            self.0.store(value, order);
            if order == Ordering::SeqCst {
                fence(Ordering::SeqCst);
            }
        }

        pub fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
            self.0.fetch_max(value, order)
        }

        pub fn compare_exchange_weak(
            &self,
            found: u64,
            new: u64,
            order: Ordering,
            failed: Ordering,
        ) -> Result<u64, u64> {
            self.0.compare_exchange_weak(found, new, order, failed)
        }
    }

    pub struct Shared<T>(loom::cell::UnsafeCell<T>);

    impl<T> Shared<T> {
        pub fn new(value: T) -> Shared<T> {
            Shared(loom::cell::UnsafeCell::new(value))
        }

        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            self.0.with(f)
        }

        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            self.0.with_mut(f)
        }
    }

    pub fn pause(_: u32) {
        loom::thread::yield_now();
    }
}

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use rounds::{Job, Rounds};

/// Items, each of which counts how often it was computed. No synchronisation: loom notices accesses at the same time.
struct Items(Vec<UnsafeCell<u32>>);

// SAFETY: loom checks the accesses.
unsafe impl Sync for Items {}

impl Items {
    fn new(n: usize) -> Items {
        Items((0..n).map(|_| UnsafeCell::new(0)).collect())
    }

    fn count(&self, at: usize) {
        // SAFETY: loom checks the accesses.
        self.0[at].with_mut(|count| unsafe { *count += 1 });
    }

    fn counts(&self) -> Vec<u32> {
        // SAFETY: loom checks the accesses.
        self.0.iter().map(|count| count.with(|count| unsafe { *count })).collect()
    }
}

/// Explores a model with at most `preemptions` interruptions of threads in one interleaving.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Explores jobs with these numbers of items on `threads` threads, whose workers look for a job `looks` times each.
fn explore(threads: usize, jobs: &'static [i64], (looks, preemptions): (usize, usize)) {
    check(preemptions, move || {
        let rounds = Arc::new(Rounds::new(threads));
        let workers: Vec<_> = (1..threads)
            .map(|worker| {
                let rounds = rounds.clone();
                loom::thread::spawn(move || {
                    let mut seen = 0;
                    for _ in 0..looks {
                        if rounds.is_news(seen) {
                            seen = rounds.join(worker, seen);
                        }
                    }
                })
            })
            .collect();
        for (number, &n) in (1..).zip(jobs) {
            let items = Items::new(n as usize);
            let count = |_: usize, begin: i64, end: i64| (begin..end).for_each(|at| items.count(at as usize));
            let job = Job::new(n, (1, number % 2 == 0), &|| true, &count);
            // SAFETY: one thread publishes jobs.
            unsafe { rounds.compute(number, &job, || {}) };
            assert_eq!(items.counts(), vec![1; n as usize], "the caller sees each item computed once");
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn each_item_is_computed_once_in_every_interleaving() {
    explore(2, &[2], (1, 4));
    explore(2, &[3, 2], (2, 3));
    explore(2, &[2, 2, 2], (2, 2));
    explore(2, &[2, 3, 2, 2], (2, 2));
    explore(3, &[3], (1, 2));
    explore(3, &[2, 3], (1, 2));
}

#[test]
fn a_job_that_ends_early_computes_nothing_afterwards() {
    check(3, || {
        let rounds = Arc::new(Rounds::new(2));
        let worker = {
            let rounds = rounds.clone();
            loom::thread::spawn(move || rounds.join(1, rounds.join(1, 0)))
        };
        let (items, goes_on) = (Items::new(4), AtomicBool::new(true));
        let count = |_: usize, begin: i64, _: i64| {
            items.count(begin as usize);
            goes_on.store(false, Ordering::Relaxed);
        };
        let go_on = || goes_on.load(Ordering::Relaxed);
        let job = Job::new(4, (1, false), &go_on, &count);
        // SAFETY: one thread publishes jobs.
        unsafe { rounds.compute(1, &job, || {}) };
        // Accesses of a worker at the same time would be noticed here.
        assert!(items.counts().iter().all(|&count| count <= 1));
        // The next job is computed as a whole, as it is by the caller alone.
        let items = Items::new(3);
        let count = |_: usize, begin: i64, _: i64| items.count(begin as usize);
        let twin = Items::new(3);
        let count_twin = |_: usize, begin: i64, end: i64| (begin..end).for_each(|at| twin.count(at as usize));
        Job::new(3, (2, false), &|| true, &count_twin).alone();
        assert_eq!(twin.counts(), [1; 3]);
        let job = Job::new(3, (1, false), &|| true, &count);
        // SAFETY: as above.
        unsafe { rounds.compute(2, &job, || {}) };
        assert_eq!(items.counts(), [1; 3]);
        worker.join().unwrap();
    });
}
