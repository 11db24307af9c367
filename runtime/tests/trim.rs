//! memory that a session keeps between calls  =>  limited, returned to the system by `trim`, without effect on results

mod common;

use common::{slow, two_layers};
use sardonyx_base::{Tensor, TensorBuffer, TensorView};
use sardonyx_runtime::{Model, Outputs, PoolOptions, Request, RunOptions, Session, SessionOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const BATCH: usize = 250_000;
/// Bytes of the two values between the layers, both f32[BATCH, 8].
const ARENA: usize = 2 * BATCH * 32;

fn large() -> Model {
    let mut builder = two_layers();
    builder.manifest.symbols[0].hi = None;
    builder.load().unwrap()
}

fn rows(batch: usize) -> Tensor {
    Tensor::from_vec(vec![batch, 8], (0..batch * 8).map(|k| 1.0 / (k as f32 + 3.0)).collect())
}

/// Resident anonymous memory of this process, in bytes.
fn anonymous_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// Makes one call, compares its output with `expected` and drops it.
fn run(session: &Session, x: &Tensor, expected: &Outputs) {
    assert!(session.run(&[("x", x.clone())]).unwrap() == *expected);
}

/// A single test, because it measures the memory of the whole process.
#[test]
fn what_is_trimmed_leaves_the_process_and_comes_back() {
    let model = large();
    let (x, small) = (rows(BATCH), rows(3));
    let plain = model.session(&SessionOptions::default()).unwrap();
    let expected = [&x, &small].map(|x| plain.run(&[("x", x.clone())]).unwrap());
    drop(plain);
    a_session(&model, [&x, &small], &expected);
    a_pool(&model, &x, &expected[0]);
    a_session_during_a_call();
    shapes(&model);
}

fn a_session(model: &Model, [x, small]: [&Tensor; 2], expected: &[Outputs; 2]) {
    let session = model.session(&SessionOptions::default().threads(2)).unwrap();
    run(&session, x, &expected[0]);
    let before = anonymous_bytes();
    let (given, after) = (session.trim(), anonymous_bytes());
    // The arena and the output, which has four bytes per row.
    assert!((ARENA + 4 * BATCH..ARENA + 4 * BATCH + 100_000).contains(&given), "{given}");
    assert!(after + ARENA * 9 / 10 < before, "{before} bytes before, {after} after");
    assert_eq!(session.trim(), 0);
    for _ in 0..2 {
        run(&session, small, &expected[1]);
        run(&session, x, &expected[0]);
        assert!(session.trim() >= ARENA);
    }
    // `trim` does not touch an output that is still alive.
    let kept = session.run(&[("x", x.clone())]).unwrap();
    session.trim();
    run(&session, x, &expected[0]);
    assert!(kept == expected[0]);
}

fn a_pool(model: &Model, x: &Tensor, expected: &Outputs) {
    let pool = model.session_pool(&PoolOptions::default().sessions(2)).unwrap();
    let use_both = || {
        let both = Arc::new(Barrier::new(3));
        for _ in 0..2 {
            let (both, expected) = (both.clone(), expected.clone());
            let done = move |result: sardonyx_base::Result<Outputs>| {
                let is_same = result.is_ok_and(|outputs| outputs == expected);
                both.wait();
                assert!(is_same);
            };
            pool.submit(Request::new([("x", x.clone())]), done).unwrap();
        }
        both.wait();
    };
    use_both();
    let before = anonymous_bytes();
    let (given, after) = (pool.trim(), anonymous_bytes());
    assert!(given >= 2 * ARENA, "{given}");
    assert!(after + 2 * ARENA * 9 / 10 < before, "{before} bytes before, {after} after");
    use_both();
    assert!(pool.trim() >= 2 * ARENA);
    pool.finish().unwrap();
    assert_eq!(pool.statistics().panicked, 0);
}

fn a_session_during_a_call() {
    let session = slow(5000).load().unwrap().session(&SessionOptions::default()).unwrap();
    let (cancel, begun) = (Arc::new(AtomicBool::new(false)), Barrier::new(2));
    let options = RunOptions::default().cancel(cancel.clone());
    std::thread::scope(|s| {
        let call = s.spawn(|| {
            begun.wait();
            session.run_with("main", &[] as &[(&str, TensorView); 0], &mut [], &options).map(|_| ()).map_err(|e| e.code)
        });
        begun.wait();
        // Before the call begins, the session has only its minimal scratch, which `trim` keeps; during
        // it, `trim` frees nothing.
        let until = Instant::now() + Duration::from_millis(20);
        while Instant::now() < until {
            assert_eq!(session.trim(), 0);
        }
        cancel.store(true, Ordering::Relaxed);
        assert_eq!(call.join().unwrap(), Err("E0306"));
    });
    // A cancelled call leaves memory behind as a completed one does.
    assert!(session.trim() > 0);
    assert_eq!(session.trim(), 0);
}

/// Each shape is cached once, up to a limit in bytes, and results do not depend on whether the
/// shape of a call was cached.
fn shapes(model: &Model) {
    const ROWS: usize = 8000;
    let session = model.session(&SessionOptions::default()).unwrap();
    let x: Vec<f32> = (0..ROWS * 8).map(|k| 1.0 / (k as f32 + 3.0)).collect();
    let whole = session.run(&[("x", Tensor::from_vec(vec![ROWS, 8], x.clone()))]).unwrap();
    let whole = whole["y"].as_slice::<f32>().unwrap();
    let mut memory = vec![0f32; ROWS];
    let mut call = |rows: usize| {
        let dims = [rows, 8];
        let x = TensorView::from_slice(&dims, &x[..rows * 8]).unwrap();
        let mut y = [("y", TensorBuffer::from_slice(&mut memory).unwrap())];
        session.run_with("main", &[("x", x)], &mut y, &RunOptions::default()).unwrap();
        assert_eq!(memory[..rows], whole[..rows]);
    };
    // Each result includes the arena of the largest call, so that differences count only the cached shapes.
    let mut bytes_after = |rows: &mut dyn Iterator<Item = usize>| {
        session.trim();
        call(ROWS);
        rows.for_each(&mut call);
        session.trim()
    };
    let few = bytes_after(&mut (1..9));
    let per_shape = (bytes_after(&mut (1..201)) - few) / 192;
    assert!((200..2000).contains(&per_shape), "{per_shape}");
    let twice = bytes_after(&mut (1..201).chain(1..201));
    assert_eq!((twice - few) / 192, per_shape);
    // Caching the shapes of all calls would take more than twice the limit of 1 MiB.
    let all = bytes_after(&mut (1..ROWS).chain(1..9)) - few;
    assert!((1 << 19..1 << 20).contains(&all) && ROWS * per_shape > 2 << 20, "{all}, {per_shape}");
}
