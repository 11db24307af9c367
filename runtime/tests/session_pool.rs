//! requests from many callers, started in arrival order  =>  the outputs of a plain session, one answer per request

mod common;

use common::{lazy, slow, two_layers};
use sardonyx_base::plan::messages::{MeshAxis, SymbolKind};
use sardonyx_base::{ErrorKind, Result, Tensor};
use sardonyx_runtime::{Model, Outputs, PoolOptions, PoolStatistics, Request, RunOptions, SessionOptions, SessionPool};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn pool(model: &Model, sessions: usize, waiting_max: usize) -> SessionPool {
    model.session_pool(&PoolOptions::default().sessions(sessions).waiting_max(waiting_max)).unwrap()
}

/// Returns a tensor of shape [batch, 8] whose element k is 1 / (k + 3); most of these values are not exact in f32.
fn rows(batch: usize) -> Tensor {
    Tensor::from_vec(vec![batch, 8], (0..batch * 8).map(|k| 1.0 / (k as f32 + 3.0)).collect())
}

fn request(batch: usize) -> Request {
    Request::new([("x", rows(batch))])
}

/// Request for a model made by [`slow`], which has no inputs.
fn no_inputs() -> Request {
    Request::new([] as [(&str, Tensor); 0])
}

fn code(result: &Result<Outputs>) -> Option<&'static str> {
    result.as_ref().err().map(|e| e.code)
}

/// Returns a callback that sends the error code of its result, or `None` if the call succeeded.
fn send(to: &Sender<Option<&'static str>>) -> impl FnOnce(Result<Outputs>) + Send + 'static {
    let to = to.clone();
    move |result| to.send(code(&result)).unwrap()
}

/// Blocks the only session of a pool in a callback until the returned sender is dropped.
fn hold(pool: &SessionPool) -> Sender<()> {
    let (gate, gated) = channel::<()>();
    let (inside, is_inside) = channel();
    let wait = move |_| {
        inside.send(()).unwrap();
        gated.recv().unwrap_err();
    };
    pool.submit(request(1), wait).unwrap();
    is_inside.recv().unwrap();
    gate
}

/// Starts a call of a model made by [`slow`], and waits until it runs. Returns the flag that cancels the call, and the
/// receiver of its error code.
fn begin_slow(pool: &SessionPool) -> (Arc<AtomicBool>, Receiver<Option<&'static str>>) {
    let (cancel, (to, from)) = (Arc::new(AtomicBool::new(false)), channel());
    let options = RunOptions::default().cancel(cancel.clone());
    pool.submit(no_inputs().options(options), send(&to)).unwrap();
    while pool.statistics().running == 0 {
        std::thread::yield_now();
    }
    (cancel, from)
}

#[test]
fn outputs_are_those_of_a_plain_session() {
    let model = two_layers().load().unwrap();
    let plain = model.session(&SessionOptions::default()).unwrap();
    let expected: Vec<Outputs> = (0..40).map(|batch| plain.run(&[("x", rows(batch))]).unwrap()).collect();
    for threads in [1, 2] {
        // Workers that sleep at once (`spin_max` of zero) compute the same as workers that spin.
        let session = SessionOptions::default().threads(threads).spin_max((threads > 1).then_some(Duration::ZERO));
        let pool = model.session_pool(&PoolOptions::default().sessions(3).session(session)).unwrap();
        std::thread::scope(|s| {
            for caller in 0..4 {
                let (pool, expected) = (&pool, &expected);
                s.spawn(move || {
                    for i in 0..200 {
                        let batch = (i * 7 + caller) % 40;
                        assert_eq!(pool.run(request(batch)).unwrap(), expected[batch]);
                    }
                });
            }
        });
        let counts = pool.statistics();
        assert_eq!((counts.served, counts.failed, counts.refused, counts.waiting), (800, 0, 0, 0));
    }
}

#[test]
fn requests_begin_in_their_order_of_arrival() {
    let pool = pool(&two_layers().load().unwrap(), 1, 100);
    let gate = hold(&pool);
    let order = Arc::new(Mutex::new(vec![]));
    for i in 0..100 {
        let order = order.clone();
        pool.submit(request(i % 5), move |result| order.lock().unwrap().push((i, result.is_ok()))).unwrap();
    }
    assert_eq!(pool.statistics().waiting, 100);
    drop(gate);
    pool.finish().unwrap();
    assert_eq!(*order.lock().unwrap(), (0..100).map(|i| (i, true)).collect::<Vec<_>>());
}

#[test]
fn a_full_queue_refuses_at_once_and_has_room_later() {
    for waiting_max in [0, 3] {
        let pool = pool(&slow(5000).load().unwrap(), 1, waiting_max);
        let (cancel, ended) = begin_slow(&pool);
        let (to, from) = channel();
        let options = RunOptions::default().cancel(cancel.clone());
        let submit = |options: &RunOptions| {
            let request = no_inputs().options(options.clone());
            pool.submit(request, send(&to))
        };
        (0..waiting_max).for_each(|_| submit(&options).unwrap());
        let began = Instant::now();
        let e = submit(&options).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(1));
        let message = format!("{waiting_max} requests wait for a session, and no more may");
        assert_eq!((e.code, e.kind(), e.message), ("E0308", ErrorKind::QueueFull, message));
        assert_eq!(pool.run(no_inputs()).unwrap_err().code, "E0308");
        cancel.store(true, Ordering::Relaxed);
        assert_eq!(ended.recv().unwrap(), Some("E0306"));
        // Only accepted requests are answered, and none of those that waited was computed.
        (0..waiting_max).for_each(|_| assert_eq!(from.recv().unwrap(), Some("E0306")));
        let past = RunOptions::default().deadline(began);
        submit(&past).unwrap();
        assert_eq!(from.recv().unwrap(), Some("E0305"));
        assert!(from.try_recv().is_err());
        let PoolStatistics { served, failed, refused, expired, cancelled, .. } = pool.statistics();
        assert_eq!((served, failed, refused, expired, cancelled), (1, 1, 2, 1, waiting_max as u64));
    }
}

#[test]
fn what_expires_while_it_waits_is_answered_then_and_never_computed() {
    let pool = pool(&slow(5000).load().unwrap(), 1, 10);
    let (cancel, ended) = begin_slow(&pool);
    let [own, last] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (to, from) = channel();
    let (soon, later) = (Instant::now() + Duration::from_millis(30), Instant::now() + Duration::from_secs(100));
    for options in [
        RunOptions::default().cancel(last.clone()).deadline(later),
        RunOptions::default().deadline(soon),
        RunOptions::default().cancel(own.clone()).deadline(later),
    ] {
        pool.submit(no_inputs().options(options), send(&to)).unwrap();
    }
    assert_eq!(from.recv().unwrap(), Some("E0305"));
    assert!(Instant::now() >= soon && pool.statistics().running == 1);
    own.store(true, Ordering::Relaxed);
    assert_eq!(from.recv().unwrap(), Some("E0306"));
    let counts = pool.statistics();
    assert_eq!((counts.waiting, counts.running, counts.served), (1, 1, 0));
    assert_eq!((counts.expired, counts.cancelled), (1, 1));
    cancel.store(true, Ordering::Relaxed);
    assert_eq!(ended.recv().unwrap(), Some("E0306"));
    // Of the three requests that waited, only the first has neither expired nor been cancelled, so it runs now.
    assert!(from.try_recv().is_err());
    while pool.statistics().running == 0 {
        std::thread::yield_now();
    }
    last.store(true, Ordering::Relaxed);
    assert_eq!(from.recv().unwrap(), Some("E0306"));
    assert_eq!((pool.statistics().served, pool.statistics().cancelled), (2, 1));
}

#[test]
fn a_dropped_pool_ends_what_runs_and_refuses_what_waits() {
    let pool = pool(&slow(200).load().unwrap(), 1, 10);
    let (to, from) = channel();
    (0..4).for_each(|_| pool.submit(no_inputs(), send(&to)).unwrap());
    while pool.statistics().running == 0 {
        std::thread::yield_now();
    }
    drop((pool, to));
    let mut answers: Vec<_> = from.iter().collect();
    answers.sort();
    assert_eq!(answers, [None, Some("E0309"), Some("E0309"), Some("E0309")]);
}

#[test]
fn a_finished_pool_has_computed_everything_and_takes_nothing_more() {
    let pool = pool(&two_layers().load().unwrap(), 2, 50);
    let (to, from) = channel();
    (0..50).for_each(|i| pool.submit(request(i % 7), send(&to)).unwrap());
    pool.finish().unwrap();
    assert_eq!(from.try_iter().collect::<Vec<_>>(), [None; 50]);
    let e = pool.submit(request(1), send(&to)).unwrap_err();
    assert_eq!((e.code, e.kind()), ("E0309", ErrorKind::Closed));
    pool.finish().unwrap();
    let counts = pool.statistics();
    assert_eq!((counts.served, counts.refused, counts.running, counts.waiting), (50, 1, 0, 0));
}

#[test]
fn errors_of_calls_are_answers() {
    let pool = pool(&two_layers().load().unwrap(), 1, 10);
    let wrong = Request::new([("y", rows(1))]);
    assert_eq!(code(&pool.run(wrong)), Some("E0301"));
    assert_eq!(code(&pool.run(request(1).entry("none"))), Some("E0301"));
    assert_eq!(code(&pool.run(request(1001))), Some("E0301"));
    assert_eq!(code(&pool.run(request(1))), None);
    assert_eq!((pool.statistics().served, pool.statistics().failed), (4, 3));
}

#[test]
fn a_callback_that_panics_leaves_the_pool_as_it_was() {
    let pool = pool(&two_layers().load().unwrap(), 1, 10);
    /// A panic payload whose destructor panics again.
    struct Again;
    impl Drop for Again {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(()));
        }
    }
    // `resume_unwind` panics without printing a message to stderr.
    pool.submit(request(1), |_| std::panic::resume_unwind(Box::new(()))).unwrap();
    pool.submit(request(1), |_| std::panic::resume_unwind(Box::new(Again))).unwrap();
    assert!(pool.run(request(3)).is_ok());
    assert_eq!((pool.statistics().served, pool.statistics().panicked), (3, 2));
}

#[test]
fn callbacks_may_submit_but_not_wait_for_their_own_pool() {
    let pool = Arc::new(pool(&two_layers().load().unwrap(), 1, 1));
    let (to, from) = channel();
    let (again, within) = (to.clone(), pool.clone());
    let callback = move |_: Result<Outputs>| {
        again.send(code(&within.run(request(1)))).unwrap();
        again.send(within.finish().err().map(|e| e.code)).unwrap();
        within.submit(request(2), send(&again)).unwrap();
    };
    pool.submit(request(1), callback).unwrap();
    assert_eq!([0; 3].map(|_| from.recv().unwrap()), [Some("E0001"), Some("E0001"), None]);
}

#[test]
fn a_callback_may_own_the_last_reference_to_its_pool() {
    let pool = Arc::new(pool(&two_layers().load().unwrap(), 1, 4));
    let gate = hold(&pool);
    let (to, from) = channel();
    let (last, sent) = (pool.clone(), to.clone());
    let callback = move |result: Result<Outputs>| {
        drop(last);
        sent.send(code(&result)).unwrap();
    };
    pool.submit(request(1), callback).unwrap();
    pool.submit(request(1), send(&to)).unwrap();
    drop((pool, to));
    drop(gate);
    // The last request still waits when the callback of the one before it drops the pool, so it is refused before that
    // callback sends its own result.
    assert_eq!(from.iter().collect::<Vec<_>>(), [Some("E0309"), None]);
}

#[test]
fn a_pool_has_no_more_threads_than_processors_by_default() {
    let model = two_layers().load().unwrap();
    let processors = std::thread::available_parallelism().unwrap().get();
    for threads in [1, 2, processors, processors + 1] {
        let options = PoolOptions::default().session(SessionOptions::default().threads(threads));
        assert_eq!(model.session_pool(&options).unwrap().sessions(), (processors / threads).max(1));
    }
    let refused = |options: PoolOptions| model.session_pool(&options).err().map(|e| (e.code, e.kind()));
    let with = |sessions: usize, threads| {
        PoolOptions::default().sessions(sessions).session(SessionOptions::default().threads(threads))
    };
    for (sessions, threads) in [(0, 1), (1, 0), (1, 1025), (513, 2), (1025, 1), (usize::MAX, usize::MAX)] {
        let found = refused(with(sessions, threads));
        assert_eq!(found, Some(("E0001", ErrorKind::Usage)), "{sessions} x {threads}");
    }
    let pinned = PoolOptions::default().sessions(2).session(SessionOptions::default().pinned(true));
    assert_eq!(refused(pinned).unwrap().0, "E0001");
}

/// Number of requests that all threads together submitted to the shared pool.
static STORM_REQUESTS: AtomicU64 = AtomicU64::new(0);

#[test]
fn ranks_of_a_model_serve_one_request_after_the_other() {
    let mut builder = two_layers();
    builder.symbol("r", SymbolKind::Rank, 0, Some(1));
    builder.manifest.mesh = vec![MeshAxis { name: "x".into(), size: 2, symbol: "r".into() }];
    builder.manifest.needs = vec!["mesh".into()];
    let (model, plain) = (builder.load_with(&lazy()).unwrap(), two_layers().load().unwrap());
    assert_eq!((model.ranks(), model.session_pool(&PoolOptions::default()).unwrap().sessions()), (2, 1));
    let (pool, plain) = (pool(&model, 2, 100), plain.session(&SessionOptions::default()).unwrap());
    let (to, from) = channel();
    for batch in 0..40 {
        let (to, expected) = (to.clone(), plain.run(&[("x", rows(batch))]).unwrap());
        pool.submit(request(batch), move |result| to.send(result.is_ok_and(|y| y == expected)).unwrap()).unwrap();
    }
    pool.finish().unwrap();
    assert_eq!(from.try_iter().collect::<Vec<_>>(), [true; 40]);
    // The first `trim` frees the memory of dropped outputs. The arenas of ranks are known to the other ranks, and stay.
    pool.trim();
    assert_eq!(pool.trim(), 0);
}

fn is_shared<T: Send + Sync + 'static>(_: &T) {}

#[test]
fn eight_threads_load_run_cancel_and_drop_and_every_request_is_answered_once() {
    const SECONDS: u64 = 3;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.sdx");
    two_layers().write(&path);
    let shared = Model::load(&path, &common::trusted()).unwrap().session_pool(&PoolOptions::default()).unwrap();
    is_shared(&shared);
    let plain = shared.model().session(&SessionOptions::default()).unwrap();
    let expected: Arc<Vec<Outputs>> = Arc::new((0..64).map(|b| plain.run(&[("x", rows(b))]).unwrap()).collect());
    let (end, storms) = (Instant::now() + Duration::from_secs(SECONDS), AtomicUsize::new(0));
    std::thread::scope(|s| {
        for thread in 0..8 {
            let (shared, expected, path, storms) = (&shared, &expected, &path, &storms);
            s.spawn(move || {
                let mut random = Random(thread + 1);
                while Instant::now() < end {
                    let model = Model::load(path, &common::trusted()).unwrap();
                    let session = SessionOptions::default().threads(1 + random.below(2));
                    let options = PoolOptions::default().sessions(1 + random.below(3)).waiting_max(random.below(9));
                    let own = model.session_pool(&options.session(session)).unwrap();
                    drop(model);
                    storm(&mut random, own, shared, expected);
                    storms.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(storms.load(Ordering::Relaxed) >= 8);
    shared.finish().unwrap();
    let counts = shared.statistics();
    assert_eq!((counts.waiting, counts.running, counts.panicked), (0, 0, 0));
    assert_eq!(
        counts.served + counts.refused + counts.expired + counts.cancelled,
        STORM_REQUESTS.load(Ordering::Relaxed)
    );
}

/// Submits 1 to 40 random requests, each either to `own`, which is dropped afterwards, or to `shared`, which other
/// threads use too. Checks that each accepted request is answered once.
fn storm(random: &mut Random, own: SessionPool, shared: &SessionPool, expected: &Arc<Vec<Outputs>>) {
    let (to, from) = channel();
    let cancel = Arc::new(AtomicBool::new(false));
    let mut n_accepted = 0;
    for i in 0..1 + random.below(40) {
        let batch = random.below(expected.len());
        let options = match random.below(4) {
            0 => RunOptions::default().deadline(Instant::now() + Duration::from_micros(random.below(300) as u64)),
            1 => RunOptions::default().cancel(cancel.clone()),
            _ => RunOptions::default(),
        };
        let (to, expected) = (to.clone(), expected.clone());
        let done = move |result: Result<Outputs>| {
            let answer = result.map(|outputs| outputs == expected[batch]);
            to.send((i, answer.map_err(|e| e.code))).unwrap();
        };
        let pool = if random.below(2) == 0 { &own } else { shared };
        STORM_REQUESTS.fetch_add(u64::from(std::ptr::eq(pool, shared)), Ordering::Relaxed);
        match pool.submit(request(batch).options(options), done) {
            Ok(()) => n_accepted += 1,
            Err(e) => assert_eq!(e.code, "E0308"),
        }
        if random.below(20) == 0 {
            cancel.store(true, Ordering::Relaxed);
        }
    }
    drop(to);
    if random.below(2) == 0 {
        own.finish().unwrap();
    }
    drop(own);
    let answers: Vec<_> = from.iter().collect();
    assert_eq!(answers.len(), n_accepted);
    let mut answered: Vec<usize> = answers.iter().map(|(i, _)| *i).collect();
    answered.sort();
    answered.dedup();
    assert_eq!(answered.len(), n_accepted);
    for (_, answer) in answers {
        assert!(matches!(answer, Ok(true) | Err("E0305" | "E0306" | "E0309")), "{answer:?}");
    }
}

/// Marsaglia's xorshift (2003).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}
