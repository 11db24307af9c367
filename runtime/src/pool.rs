//! a function  =>  its calls on the threads of a pool: fork and join in well under a microsecond
//!
//! Workers spin between jobs and sleep only after a while without one: waking a sleeping thread takes far longer than
//! most kernels. The caller does not wait for workers that are late (asleep, or not scheduled): only workers that joined
//! before all work was claimed are waited for (`rounds.rs`).
//!
//! All pools of a process share a [`Crowd`]: if more of their threads are awake than there are processors, workers
//! sleep at once. A caller does not wake its workers if another caller is in a call and the pools of all these callers
//! together have more threads than there are processors.

mod crowd;
mod rounds;
mod sync;

use crowd::{Awake, CROWD, Counted, Crowd, WORKER};
use rounds::{Job, Rounds};
use sardonyx_base::{Error, Result};
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Iterations of the spin loop before a worker sleeps. They take some milliseconds, longer than the pause between two
/// requests of a busy server.
const SPIN: u32 = 200_000;
/// Iterations of the spin loop before a worker sleeps if more threads are awake than there are processors, because
/// spinning then only delays other threads. Also the interval at which a spin with a time limit reads the clock.
const SPIN_CROWDED: u32 = 50;

/// A fixed number of threads, including the caller's, that compute jobs together.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Number of jobs so far. Locked by the caller during a job.
    n_jobs: Mutex<u64>,
    /// The caller, if it has said that a call of several jobs has begun.
    calling: Option<Counted<Arc<Crowd>>>,
    n_forks: u64,
}

struct Shared {
    rounds: Rounds,
    stop: AtomicBool,
    asleep: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    crowd: Arc<Crowd>,
    spin_max: Option<Duration>,
}

/// The processors that a thread may run on.
struct Affinity(libc::cpu_set_t);

impl Affinity {
    fn none() -> Affinity {
        // SAFETY: a set of bits, all of them 0.
        Affinity(unsafe { std::mem::zeroed() })
    }

    fn only(processor: usize) -> Affinity {
        let mut set = Affinity::none();
        // SAFETY: `processors` returned the number, so the set has a bit for it.
        unsafe { libc::CPU_SET(processor, &mut set.0) };
        set
    }

    /// Returns the processors of the calling thread; none if the system does not report them.
    fn of_this_thread() -> Affinity {
        let mut set = Affinity::none();
        // SAFETY: writes at most as many bytes as the set has.
        let failed = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set.0) };
        if failed == 0 { set } else { Affinity::none() }
    }

    fn processors(&self) -> Vec<usize> {
        // SAFETY: the numbers are less than the set's size.
        (0..libc::CPU_SETSIZE as usize).filter(|p| unsafe { libc::CPU_ISSET(*p, &self.0) }).collect()
    }

    fn apply(&self, to: &JoinHandle<()>) -> std::io::Result<()> {
        // SAFETY: the thread has not been joined, and the set has the given size.
        let code = unsafe { libc::pthread_setaffinity_np(to.as_pthread_t(), size_of::<libc::cpu_set_t>(), &self.0) };
        if code == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(code)) }
    }
}

/// The threads that a session requests.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    /// Number of threads, including the caller.
    pub count: usize,
    /// Whether each worker stays on one processor.
    pub pinned: bool,
    /// Time that a worker spins before it sleeps; if absent, [`SPIN`] iterations.
    pub spin_max: Option<Duration>,
}

impl Threads {
    /// Only the caller's thread.
    pub const ONE: Threads = Threads { count: 1, pinned: false, spin_max: None };
}

/// Number of forks that led to this process. A parent's threads do not exist here, and locks that they held stay
/// locked.
static N_FORKS: AtomicU64 = AtomicU64::new(0);

fn n_forks() -> u64 {
    extern "C" fn forked() {
        N_FORKS.fetch_add(1, Ordering::Relaxed);
        // The threads that are counted do not exist here.
        CROWD.word.store(0, Ordering::Relaxed);
    }
    static WATCHED: Once = Once::new();
    // SAFETY: the handler only counts, which is allowed in a forked process. If registration fails, forks go unnoticed.
    WATCHED.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) });
    N_FORKS.load(Ordering::Relaxed)
}

impl Pool {
    pub fn new(threads: Threads) -> Result<Pool> {
        Pool::among(threads, CROWD.clone())
    }

    fn among(Threads { count: threads, pinned, spin_max }: Threads, crowd: Arc<Crowd>) -> Result<Pool> {
        let shared = Arc::new(Shared {
            rounds: Rounds::new(threads.max(1)),
            stop: AtomicBool::new(false),
            asleep: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            crowd,
            spin_max,
        });
        let (workers, n_jobs) = (Vec::new(), Mutex::new(0));
        let mut pool = Pool { shared, workers, n_jobs, calling: None, n_forks: n_forks() };
        for worker in 1..threads {
            let shared = pool.shared.clone();
            let thread = std::thread::Builder::new().name(format!("sardonyx-{worker}")).stack_size(1 << 20);
            let started = thread.spawn(move || shared.work(worker));
            pool.workers.push(started.map_err(|e| {
                Error::user("E0304", format!("cannot start {threads} threads: {e}")).help("use fewer threads")
            })?);
        }
        if pinned {
            pool.pin()?;
        }
        Ok(pool)
    }

    /// Pins each worker to one of the processors that this thread may use; the first one is left to the caller.
    fn pin(&self) -> Result<()> {
        let allowed = Affinity::of_this_thread();
        let processors = allowed.processors();
        for (i, worker) in self.workers.iter().enumerate() {
            let Some(processor) = processors.get((i + 1) % processors.len().max(1)) else { continue };
            Affinity::only(*processor).apply(worker).map_err(|e| {
                Error::user("E0304", format!("cannot keep a thread on processor {processor}: {e}"))
                    .help("leave the threads unpinned")
            })?;
        }
        Ok(())
    }

    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Whether this process was forked after the pool was created, so that the workers do not exist in it.
    fn is_of_parent(&self) -> bool {
        N_FORKS.load(Ordering::Relaxed) != self.n_forks
    }

    /// Begins a call of several jobs, during which the caller counts as awake between jobs, too.
    pub fn begin_call(&mut self) {
        if self.calling.is_none() && !self.workers.is_empty() && !self.is_of_parent() {
            self.calling = Some(Counted::new(self.shared.crowd.clone(), self.threads()));
        }
    }

    /// Ends a call that `begin_call` began.
    pub fn end_call(&mut self) {
        self.calling = None;
    }

    /// Calls `f(worker, begin, end)` on chunks that together cover `0..n`, each exactly once. The items are divided
    /// into parts; each worker begins with one part (up to `PARTS_MAX` workers: a part of its own), then takes chunks
    /// of other parts.
    pub fn for_each(&self, n: i64, f: &(dyn Fn(usize, i64, i64) + Sync)) {
        let threads = self.threads() as i64;
        if threads == 1 || n <= 1 {
            return if n > 0 {
                f(0, 0, n)
            };
        }
        self.compute(n, ((n / (threads * 4)).max(1), false), &|| true, f);
    }

    /// As `for_each`, for work that is repeated and whose data should stay in the worker's cache: item by item, within
    /// a part in ascending order or, with `back`, in descending order. Calls `go_on` before each item: once it returns
    /// false, the remaining items are skipped. Of more than 2^15 items, several are taken at a time.
    pub fn for_each_again(
        &self,
        n: i64,
        back: bool,
        go_on: &(dyn Fn() -> bool + Sync),
        f: &(dyn Fn(usize, i64, i64) + Sync),
    ) {
        self.compute(n, (1, back), go_on, f);
    }

    /// As `for_each`, but in smaller chunks, also on one thread, and calls `go_on` before each chunk: once it returns
    /// false, the remaining chunks are skipped.
    pub fn for_each_while(&self, n: i64, go_on: &(dyn Fn() -> bool + Sync), f: &(dyn Fn(usize, i64, i64) + Sync)) {
        let chunk = (n / (self.threads() as i64 * 8)).max(1);
        self.compute(n, (chunk, false), go_on, f);
    }

    /// Calls `f` on chunks of at most `chunk` items, within a part in descending order if `back` is set.
    fn compute(
        &self,
        n: i64,
        (chunk, back): (i64, bool),
        go_on: &(dyn Fn() -> bool + Sync),
        f: &(dyn Fn(usize, i64, i64) + Sync),
    ) {
        let job = Job::new(n, (chunk, back), go_on, f);
        if n <= 1 || self.workers.is_empty() || self.is_of_parent() {
            return job.alone();
        }
        let shared = &*self.shared;
        let mut number = self.n_jobs.lock().unwrap_or_else(PoisonError::into_inner);
        *number += 1;
        let counted = self.calling.is_none().then(|| Counted::new(&*shared.crowd, self.threads()));
        let may_wake = || match (&self.calling, &counted) {
            (Some(caller), _) => caller.may_wake(),
            (None, caller) => caller.as_ref().is_some_and(Counted::may_wake),
        };
        let wake = || {
            if shared.asleep.load(Ordering::SeqCst) > 0 && may_wake() {
                drop(shared.sleep.lock().unwrap_or_else(PoisonError::into_inner));
                shared.wake.notify_all();
            }
        };
        // SAFETY: the lock is held.
        unsafe { shared.rounds.compute(*number, &job, wake) };
    }
}

impl Shared {
    fn work(&self, worker: usize) {
        let _awake = Awake::new(&self.crowd);
        let mut seen = 0;
        while self.wait(seen) {
            seen = self.rounds.join(worker, seen);
        }
    }

    /// Waits for a job later than `seen`. Returns false when the pool ends.
    fn wait(&self, seen: u64) -> bool {
        let ready = || self.rounds.is_news(seen);
        loop {
            let limit = self.spin_max.map(|max| (Instant::now(), max));
            let turns = if limit.is_some() { u32::MAX } else { SPIN };
            for turn in 0..turns {
                if ready() {
                    return true;
                }
                if self.stop.load(Ordering::Relaxed) {
                    return false;
                }
                if turn.is_multiple_of(SPIN_CROWDED) && limit.is_some_and(|(began, max)| began.elapsed() >= max) {
                    break;
                }
                if turn % SPIN_CROWDED == SPIN_CROWDED - 1 && self.crowd.is_dense() {
                    break;
                }
                std::hint::spin_loop();
            }
            let mut guard = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
            self.asleep.fetch_add(1, Ordering::SeqCst);
            // The worker is counted as asleep before it checks again, so that either the caller sees the sleeper, or
            // the sleeper sees the job.
            self.crowd.word.fetch_sub(WORKER, Ordering::Relaxed);
            while !ready() && !self.stop.load(Ordering::SeqCst) {
                guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
            self.crowd.word.fetch_add(WORKER, Ordering::Relaxed);
            self.asleep.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.is_of_parent() {
            // The workers do not exist here, and locks that they held stay locked.
            return std::mem::take(&mut self.workers).into_iter().for_each(std::mem::forget);
        }
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(self.shared.sleep.lock().unwrap_or_else(PoisonError::into_inner));
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker only panics if a kernel does; nothing is left to clean up.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicI64;

    fn pool(threads: usize) -> Pool {
        Pool::new(Threads { count: threads, ..Threads::ONE }).unwrap()
    }

    fn among(threads: usize, crowd: Arc<Crowd>) -> Pool {
        Pool::among(Threads { count: threads, ..Threads::ONE }, crowd).unwrap()
    }

    #[test]
    fn every_item_is_done_once_whatever_the_number_of_threads() {
        for threads in [1, 2, 3, 8, 17, 40] {
            let pool = pool(threads);
            for n in [0, 1, 2, 7, 16, 17, 64, 1000i64] {
                let hits: Vec<AtomicUsize> = (0..n as usize).map(|_| AtomicUsize::new(0)).collect();
                for _ in 0..200 {
                    pool.for_each(n, &|worker, begin, end| {
                        assert!(worker < threads);
                        for hit in &hits[begin as usize..end as usize] {
                            hit.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 200), "{threads} threads, {n} items");
            }
        }
    }

    #[test]
    fn work_ends_between_pieces_when_told_to() {
        for threads in [1, 3] {
            let pool = pool(threads);
            let done = AtomicI64::new(0);
            let count = |_: usize, begin: i64, end: i64| {
                done.fetch_add(end - begin, Ordering::Relaxed);
            };
            pool.for_each_while(1000, &|| true, &count);
            assert_eq!(done.swap(0, Ordering::Relaxed), 1000);
            pool.for_each_while(1000, &|| done.load(Ordering::Relaxed) < 300, &count);
            let stopped_at = done.load(Ordering::Relaxed);
            // Chunks are an eighth of a thread's share; every thread may be in a chunk when `go_on` changes.
            assert!((300..300 + 125 * 3).contains(&stopped_at), "{threads} threads: {stopped_at}");
        }
    }

    #[test]
    fn repeated_work_is_done_once_each_time_in_either_order() {
        for threads in [1, 2, 3, 17] {
            let pool = pool(threads);
            for n in [0, 1, 2, 7, 16, 17, 64i64] {
                let hits: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
                for turn in 0..200 {
                    pool.for_each_again(n, turn % 2 == 1, &|| true, &|worker, begin, end| {
                        assert!(worker < threads);
                        for hit in &hits[begin as usize..end as usize] {
                            hit.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 200), "{threads} threads, {n} items");
            }
        }
        let (pool, order) = (pool(1), Mutex::new(vec![]));
        pool.for_each_again(3, true, &|| true, &|_, item, _| order.lock().unwrap().push(item));
        pool.for_each_again(3, false, &|| order.lock().unwrap().len() < 5, &|_, item, _| {
            order.lock().unwrap().push(item)
        });
        assert_eq!(*order.lock().unwrap(), [2, 1, 0, 0, 1]);
    }

    #[test]
    fn sleeping_workers_are_woken() {
        // A separate crowd, because pools of other tests run at the same time.
        let pool = among(2, Arc::new(Crowd::new(2)));
        for _ in 0..3 {
            while pool.shared.asleep.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            // Each item waits until both have begun, so that both threads must take part.
            let begun = AtomicUsize::new(0);
            pool.for_each(2, &|_, _, _| {
                begun.fetch_add(1, Ordering::SeqCst);
                while begun.load(Ordering::SeqCst) < 2 {
                    std::hint::spin_loop();
                }
            });
        }
    }

    /// Returns the total processor time of the worker of a pool of two, over 40 jobs that need it, each after a pause
    /// of 3 ms.
    fn worker_time(spin_max: Option<Duration>) -> Duration {
        let threads = Threads { count: 2, pinned: false, spin_max };
        let pool = Pool::among(threads, Arc::new(Crowd::new(8))).unwrap();
        let time = Mutex::new(Duration::ZERO);
        for _ in 0..40 {
            std::thread::sleep(Duration::from_millis(3));
            let is_there = AtomicBool::new(false);
            // The first item is the caller's; the worker is there when it takes the other one.
            pool.for_each(2, &|worker, _, _| match worker {
                0 => {
                    while !is_there.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                }
                _ => {
                    *time.lock().unwrap() = time_of_this_thread();
                    is_there.store(true, Ordering::SeqCst);
                }
            });
        }
        time.into_inner().unwrap()
    }

    fn time_of_this_thread() -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes to the given structure.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    #[test]
    fn workers_spin_no_longer_than_they_may() {
        // The pauses take 120 ms in total.
        let [at_once, soon] = [Duration::ZERO, Duration::from_micros(200)].map(|max| worker_time(Some(max)));
        assert!(at_once < Duration::from_millis(30) && soon < Duration::from_millis(60), "{at_once:?}, {soon:?}");
        let long = worker_time(Some(Duration::from_secs(1)));
        assert!(long > 2 * soon && long > Duration::from_millis(30), "{long:?}, {soon:?}");
    }

    #[test]
    fn callers_who_together_want_too_many_threads_wake_nobody() {
        let crowd = Arc::new(Crowd::new(2));
        let pools = [(); 2].map(|()| among(2, crowd.clone()));
        let asleep = |pool: &Pool| {
            while pool.shared.asleep.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
        };
        pools.iter().for_each(asleep);
        let workers = Mutex::new(vec![]);
        pools[0].for_each(2, &|_, item, _| {
            if item == 0 {
                pools[1].for_each(2, &|worker, _, _| workers.lock().unwrap().push(worker));
            }
        });
        assert_eq!(*workers.lock().unwrap(), [0, 0]);
        assert_eq!(pools[1].shared.asleep.load(Ordering::SeqCst), 1);
        // Workers of the first pool may still be awake.
        drop(pools);
        assert_eq!(crowd.word.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn workers_without_work_sleep_at_once_in_a_crowd() {
        let crowd = Arc::new(Crowd::new(1));
        let pool = among(3, crowd.clone());
        while crowd.word.load(Ordering::SeqCst) > 1 || pool.shared.asleep.load(Ordering::SeqCst) == 0 {
            assert!(!pool.shared.stop.load(Ordering::SeqCst));
            std::thread::yield_now();
        }
        assert!(!crowd.is_dense());
    }

    #[test]
    fn pinned_workers_have_one_processor_each() {
        let pool = Pool::new(Threads { count: 3, pinned: true, spin_max: None }).unwrap();
        let before = Affinity::of_this_thread().processors();
        let seen = Mutex::new(vec![]);
        // Workers may join late, so this repeats until both have been seen.
        for _ in 0..100_000 {
            pool.for_each(3, &|worker, _, _| {
                if worker > 0 {
                    seen.lock().unwrap().push((worker, Affinity::of_this_thread().processors()));
                }
                std::thread::yield_now();
            });
            if [1, 2].iter().all(|w| seen.lock().unwrap().iter().any(|(worker, _)| worker == w)) {
                break;
            }
        }
        for (worker, processors) in seen.into_inner().unwrap() {
            assert_eq!(processors, [before[worker % before.len()]]);
        }
        assert_eq!(Affinity::of_this_thread().processors(), before, "the caller is left where it is");
    }

    #[test]
    fn a_pool_may_be_shared_by_callers() {
        let pool = pool(3);
        let sum = AtomicI64::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..100 {
                        pool.for_each(50, &|_, begin, end| {
                            sum.fetch_add((begin..end).sum(), Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(sum.load(Ordering::Relaxed), 4 * 100 * (49 * 50 / 2));
    }
}
