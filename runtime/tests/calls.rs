//! borrowed inputs, the caller's buffers, deadlines: calls as a server makes them

mod common;

use common::{Builder, two_layers};
use sardonyx_base::plan::messages::{Bind, SymbolKind, step::Action};
use sardonyx_base::{DType, Tensor, TensorBuffer, TensorView};
use sardonyx_runtime::{Model, RunOptions, Session, SessionOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn session(model: &Model, threads: usize) -> Session {
    model.session(&SessionOptions { threads, ..SessionOptions::default() }).unwrap()
}

/// (4x + 3) · 0.5, eight times.
fn expected(x: f32) -> f32 {
    (4.0 * x + 3.0) * 4.0
}

#[test]
fn inputs_are_borrowed_and_outputs_land_in_the_callers_memory() {
    let session = session(&two_layers().load().unwrap(), 2);
    let x = [0.5f32; 24];
    let mut y = [-1.0f32; 5];
    let inputs = [("x", TensorView::of(&[3, 8], &x).unwrap())];
    let mut outputs = [("y", TensorBuffer::of(&mut y).unwrap())];
    let rest = session.run_with("main", &inputs, &mut outputs, &RunOptions::default()).unwrap();
    assert!(rest.is_empty());
    assert_eq!(outputs[0].1.dims(), [3]);
    assert_eq!(y, [20.0, 20.0, 20.0, -1.0, -1.0]);
    // Without a buffer the output is ours, and both are the same.
    let own = session.run_with("main", &inputs, &mut [], &RunOptions::default()).unwrap();
    assert_eq!(own[0].1.to_vec::<f32>().unwrap(), y[..3]);
}

#[test]
fn bytes_that_are_not_aligned_are_copied_on_both_sides() {
    let session = session(&two_layers().load().unwrap(), 1);
    let mut raw = [0u8; 2 * 32 + 1 + 4];
    for shift in 0..4 {
        for k in 0..16 {
            raw[shift + 4 * k..shift + 4 * k + 4].copy_from_slice(&(k as f32).to_le_bytes());
        }
        let mut out = [0xaau8; 8 + 5];
        let inputs = [("x", TensorView::new(DType::F32, &[2, 8], &raw[shift..shift + 64]).unwrap())];
        let mut outputs = [("y", TensorBuffer::new(DType::F32, &mut out[shift..shift + 9]))];
        session.run_with("main", &inputs, &mut outputs, &RunOptions::default()).unwrap();
        let row = |b: usize| (0..8).map(|k| expected((b * 8 + k) as f32) / 8.0).sum::<f32>().to_le_bytes();
        assert_eq!(out[shift..shift + 8], [row(0), row(1)].concat());
        assert_eq!(out[shift + 8], 0xaa, "bytes beyond the output are left alone");
    }
}

#[test]
fn wrong_buffers_get_a_sentence_before_anything_runs() {
    let session = session(&two_layers().load().unwrap(), 1);
    let x = [0.5f32; 16];
    let refuse = |outputs: &mut [(&str, TensorBuffer)]| {
        let inputs = [("x", TensorView::of(&[2, 8], &x).unwrap())];
        let e = session.run_with("main", &inputs, outputs, &RunOptions::default()).unwrap_err();
        assert_eq!(e.code, "E0301");
        e.message
    };
    let (mut short, mut wrong, mut more) = ([0f32; 1], [0i32; 2], [0f32; 2]);
    let message = refuse(&mut [("y", TensorBuffer::of(&mut short).unwrap())]);
    assert_eq!(message, "the output `y` of [2] has 8 bytes, its buffer only 4");
    let message = refuse(&mut [("y", TensorBuffer::of(&mut wrong).unwrap())]);
    assert_eq!(message, "the output `y` has type f32, but its buffer is of i32");
    let message = refuse(&mut [("z", TensorBuffer::of(&mut more).unwrap())]);
    assert_eq!(message, "the model has no output `z`");
}

#[test]
fn an_output_of_unknown_size_fits_if_its_values_do() {
    let mut b = Builder::new();
    b.symbol("n", SymbolKind::Input, 0, None);
    b.symbol("m", SymbolKind::Data, 0, None);
    let x = b.input("x", DType::F32, &["n"], "4*n");
    let count = b.arena("8", "0");
    let y = b.output("y", DType::F32, &["m"], "4*n");
    b.entry.arena_bytes = "64".into();
    let positive = b.kernel("positive", &[false, true, true], 1, "0");
    b.launch(positive, &[x, y, count], &["n"], "1");
    b.step(Action::Bind(Bind { symbol: "m".into(), buffer: count }));
    let session = session(&b.load().unwrap(), 1);
    let run = |values: &[f32], y: &mut [f32]| {
        let dims = [values.len()];
        let mut outputs = [("y", TensorBuffer::of(y).unwrap())];
        let inputs = [("x", TensorView::of(&dims, values).unwrap())];
        session.run_with("main", &inputs, &mut outputs, &RunOptions::default())?;
        Ok::<_, Box<sardonyx_base::Error>>(outputs[0].1.dims().to_vec())
    };
    let mut y = [0f32; 2];
    // Four values in, so the plan wants room for four; two come out and fit.
    assert_eq!(run(&[1.0, -1.0, 2.0, -2.0], &mut y).unwrap(), [2]);
    assert_eq!(y, [1.0, 2.0]);
    let e = run(&[1.0, 2.0, 3.0], &mut y).unwrap_err();
    assert_eq!(e.message, "the output `y` of [3] has 12 bytes, its buffer only 8");
    let mut roomy = [9f32; 4];
    assert_eq!(run(&[-1.0, 5.0], &mut roomy).unwrap(), [1]);
    assert_eq!(roomy[0], 5.0);
}

#[test]
fn the_memory_limit_does_not_count_the_callers_memory() {
    let model = two_layers().load().unwrap();
    let x = [0.5f32; 8];
    let run = |limit, y: &mut [f32]| {
        let session =
            model.session(&SessionOptions { memory_bytes_max: Some(limit), ..SessionOptions::default() }).unwrap();
        let mut outputs = [("y", TensorBuffer::of(y).unwrap())];
        let given = if limit % 2 == 1 { &mut outputs[..0] } else { &mut outputs[..] };
        let inputs = [("x", TensorView::of(&[1, 8], &x).unwrap())];
        session.run_with("main", &inputs, given, &RunOptions::default()).map(|_| ()).map_err(|e| e.code)
    };
    // The buffers of the arena end at 96 and the scratch takes 64; the output 4 more where it is ours.
    assert_eq!(run(160, &mut [0.0; 1]), Ok(()));
    assert_eq!(run(161, &mut [0.0; 1]), Err("E0304"));
    assert_eq!(run(165, &mut [0.0; 1]), Ok(()));
}

/// About two seconds of work in one launch.
fn slow() -> Builder {
    let mut b = Builder::new();
    let y = b.output("y", DType::U8, &["2000"], "2000");
    let slow = b.kernel("slow", &[true], 0, "0");
    b.launch(slow, &[y], &[], "2000");
    b
}

#[test]
fn a_deadline_ends_a_launch_in_the_middle_and_the_session_goes_on() {
    let model = slow().load().unwrap();
    for threads in [1, 2] {
        let session = session(&model, threads);
        let start = Instant::now();
        session.run(&[]).unwrap();
        let whole = start.elapsed();
        let start = Instant::now();
        let options = RunOptions { deadline: Some(start + whole / 10), ..RunOptions::default() };
        let e = session.run_with("main", &[], &mut [], &options).unwrap_err();
        assert_eq!((e.code, e.message.as_str()), ("E0305", "the deadline of the call has passed"));
        assert!(start.elapsed() < whole / 2, "{:?} of {whole:?}", start.elapsed());
        let past = RunOptions { deadline: Some(start), ..RunOptions::default() };
        assert_eq!(session.run_with("main", &[], &mut [], &past).unwrap_err().code, "E0305");
        let late = RunOptions { deadline: Some(Instant::now() + whole * 20), ..RunOptions::default() };
        let out = session.run_with("main", &[], &mut [], &late).unwrap();
        assert_eq!(out[0].1.to_vec::<u8>().unwrap(), [1; 2000]);
    }
}

#[test]
fn a_call_is_cancelled_from_another_thread_also_while_it_waits_for_its_turn() {
    let session = session(&slow().load().unwrap(), 1);
    let cancel = Arc::new(AtomicBool::new(false));
    let options = RunOptions { cancel: Some(cancel.clone()), ..RunOptions::default() };
    let run = |options: &RunOptions| session.run_with("main", &[], &mut [], options).map(|_| ()).map_err(|e| e.code);
    std::thread::scope(|s| {
        let running = s.spawn(|| run(&options));
        let waiting = s.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            let soon = Instant::now() + Duration::from_millis(30);
            (run(&RunOptions { deadline: Some(soon), ..RunOptions::default() }), Instant::now() - soon)
        });
        let (waited, beyond) = waiting.join().unwrap();
        assert_eq!(waited, Err("E0305"));
        assert!(beyond < Duration::from_millis(500), "{beyond:?}");
        assert!(!running.is_finished());
        let also_waiting = s.spawn(|| run(&options));
        std::thread::sleep(Duration::from_millis(20));
        cancel.store(true, Ordering::Relaxed);
        assert_eq!((running.join().unwrap(), also_waiting.join().unwrap()), (Err("E0306"), Err("E0306")));
    });
    assert!(run(&RunOptions::default()).is_ok());
}

#[test]
fn views_of_tensors_and_tensors_give_the_same() {
    let session = session(&two_layers().load().unwrap(), 1);
    let x = Tensor::from_vec(vec![2, 8], (0..16).map(|k| k as f32).collect());
    let owned = session.run(&[("x", x.clone())]).unwrap();
    let viewed = session.run_with("main", &[("x", (&x).into())], &mut [], &RunOptions::default()).unwrap();
    assert_eq!(owned[0].1.bytes(), viewed[0].1.bytes());
}
