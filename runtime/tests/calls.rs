//! Borrowed inputs, buffers of the caller, deadlines: calls as a server makes them

mod common;

use common::{Builder, decoder, slow, two_layers};
use sardonyx_base::plan::messages::{Bind, SymbolKind, step::Action};
use sardonyx_base::{DType, Dim, ErrorKind, Tensor, TensorBuffer, TensorView};
use sardonyx_runtime::{Bytes, Model, Port, RunOptions, Session, SessionOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn session(model: &Model, threads: usize) -> Session {
    model.session(&SessionOptions::default().threads(threads)).unwrap()
}

/// (4x + 3) · 0.5, summed over eight elements.
fn expected(x: f32) -> f32 {
    (4.0 * x + 3.0) * 4.0
}

#[test]
fn inputs_are_borrowed_and_outputs_land_in_the_callers_memory() {
    let session = session(&two_layers().load().unwrap(), 2);
    let x = [0.5f32; 24];
    let mut y = [-1.0f32; 5];
    let inputs = [("x", TensorView::from_slice(&[3, 8], &x).unwrap())];
    let mut outputs = [("y", TensorBuffer::from_slice(&mut y).unwrap())];
    let rest = session.run_with("main", &inputs, &mut outputs, &RunOptions::default()).unwrap();
    assert!(rest.is_empty());
    assert_eq!(outputs[0].1.dims(), [3]);
    assert_eq!(y, [20.0, 20.0, 20.0, -1.0, -1.0]);
    // Without a buffer the session allocates the output, with the same values.
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
        let inputs = [("x", TensorView::from_slice(&[2, 8], &x).unwrap())];
        let e = session.run_with("main", &inputs, outputs, &RunOptions::default()).unwrap_err();
        assert_eq!(e.code, "E0301");
        e.message
    };
    let (mut short, mut wrong, mut more) = ([0f32; 1], [0i32; 2], [0f32; 2]);
    let message = refuse(&mut [("y", TensorBuffer::from_slice(&mut short).unwrap())]);
    assert_eq!(message, "the output `y` of [2] has 8 bytes, its buffer only 4");
    let message = refuse(&mut [("y", TensorBuffer::from_slice(&mut wrong).unwrap())]);
    assert_eq!(message, "the output `y` has type f32, but its buffer is of i32");
    let message = refuse(&mut [("z", TensorBuffer::from_slice(&mut more).unwrap())]);
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
        let mut outputs = [("y", TensorBuffer::from_slice(y).unwrap())];
        let inputs = [("x", TensorView::from_slice(&dims, values).unwrap())];
        session.run_with("main", &inputs, &mut outputs, &RunOptions::default())?;
        Ok::<_, Box<sardonyx_base::Error>>(outputs[0].1.dims().to_vec())
    };
    let mut y = [0f32; 2];
    // The plan reserves space for four values, as many as the input has; two are produced and fit.
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
        let session = model.session(&SessionOptions::default().memory_bytes_max(limit)).unwrap();
        let mut outputs = [("y", TensorBuffer::from_slice(y).unwrap())];
        let given = if limit % 2 == 1 { &mut outputs[..0] } else { &mut outputs[..] };
        let inputs = [("x", TensorView::from_slice(&[1, 8], &x).unwrap())];
        session.run_with("main", &inputs, given, &RunOptions::default()).map(|_| ()).map_err(|e| e.code)
    };
    // The buffers of the arena end at 96 and the scratch takes 64 bytes; an output that the session allocates takes 4
    // more.
    assert_eq!(run(160, &mut [0.0; 1]), Ok(()));
    assert_eq!(run(161, &mut [0.0; 1]), Err("E0304"));
    assert_eq!(run(165, &mut [0.0; 1]), Ok(()));
}

#[test]
fn a_deadline_ends_a_launch_in_the_middle_and_the_session_goes_on() {
    let model = slow(2000).load().unwrap();
    for threads in [1, 2] {
        let session = session(&model, threads);
        let start = Instant::now();
        session.run(&[]).unwrap();
        let whole = start.elapsed();
        let start = Instant::now();
        let options = RunOptions::default().deadline(start + whole / 10);
        let e = session.run_with("main", &[], &mut [], &options).unwrap_err();
        assert_eq!((e.code, e.message.as_str()), ("E0305", "the deadline of the call has passed"));
        assert!(start.elapsed() < whole / 2, "{:?} of {whole:?}", start.elapsed());
        let past = RunOptions::default().deadline(start);
        assert_eq!(session.run_with("main", &[], &mut [], &past).unwrap_err().code, "E0305");
        let late = RunOptions::default().deadline(Instant::now() + whole * 20);
        let out = session.run_with("main", &[], &mut [], &late).unwrap();
        assert_eq!(out[0].1.to_vec::<u8>().unwrap(), [1; 2000]);
    }
}

#[test]
fn a_call_that_names_no_deadline_has_the_session_s() {
    let model = slow(200).load().unwrap();
    let hasty = model.session(&SessionOptions::default().time_max(Duration::from_nanos(1))).unwrap();
    assert_eq!(hasty.run(&[]).unwrap_err().code, "E0305");
    let own = RunOptions::default().deadline(Instant::now() + Duration::from_secs(600));
    assert!(hasty.run_with("main", &[], &mut [], &own).is_ok());
    assert!(model.session(&SessionOptions::default().time_max(Duration::MAX)).unwrap().run(&[]).is_ok());
}

#[test]
fn a_call_is_cancelled_from_another_thread_also_while_it_waits_for_its_turn() {
    let session = session(&slow(2000).load().unwrap(), 1);
    let cancel = Arc::new(AtomicBool::new(false));
    let options = RunOptions::default().cancel(cancel.clone());
    let run = |options: &RunOptions| session.run_with("main", &[], &mut [], options).map(|_| ()).map_err(|e| e.code);
    std::thread::scope(|s| {
        let running = s.spawn(|| run(&options));
        let waiting = s.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            let soon = Instant::now() + Duration::from_millis(30);
            (run(&RunOptions::default().deadline(soon)), Instant::now() - soon)
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

#[test]
fn only_the_outputs_that_are_asked_for_come() {
    let mut builder = decoder();
    builder.before.clear();
    let session = session(&builder.load().unwrap(), 1);
    let (x, past) = ([1f32; 4], [2f32; 8]);
    let inputs = [
        ("x", TensorView::from_slice(&[1, 1, 4], &x).unwrap()),
        ("past", TensorView::from_slice(&[1, 2, 4], &past).unwrap()),
    ];
    let run = |options: &RunOptions| session.run_with("decode", &inputs, &mut [], options);
    let all = run(&RunOptions::default()).unwrap();
    let one = run(&RunOptions::default().outputs(["y"])).unwrap();
    assert_eq!((all.len(), one.len()), (2, 1));
    assert_eq!(one["y"].as_slice::<f32>(), all["y"].as_slice::<f32>());
    assert_eq!(one.get("present"), None);
    assert!(run(&RunOptions::default().outputs([""; 0])).unwrap().is_empty());
    let e = run(&RunOptions::default().outputs(["z"])).unwrap_err();
    assert_eq!((e.kind(), e.message.as_str()), (ErrorKind::Input, "the model has no output `z`"));
}

#[test]
fn bytes_are_as_good_as_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sdx");
    two_layers().write(&path);
    let file = std::fs::read(&path).unwrap();
    let x = Tensor::from_vec(vec![1, 8], vec![0.5f32; 8]);
    // At every alignment at which an object store may deliver the bytes.
    for shift in [0, 1, 8, 64] {
        let bytes = Bytes::from([&vec![0; shift][..], &file].concat()).slice(shift..);
        let model = Model::from_bytes(bytes, "m", &common::trusted()).unwrap();
        assert_eq!(session(&model, 1).run(&[("x", x.clone())]).unwrap()["y"].as_slice(), Some(&[20f32][..]), "{shift}");
    }
    let e = Model::from_bytes(&b"PK"[..], "m", &common::trusted()).err().unwrap();
    assert_eq!((e.kind(), e.file.as_deref()), (ErrorKind::Artifact, Some("m")));
    let mut damaged = file.clone();
    damaged[0] ^= 1;
    assert_eq!(Model::from_bytes(damaged, "m", &common::trusted()).err().unwrap().code, "E0401");
}

#[test]
fn a_model_says_what_it_takes() {
    let model = decoder().load().unwrap();
    let entries = model.entry_points();
    assert_eq!(entries.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["prefill", "decode"]);
    let decode = &entries[1];
    let ports = |ports: &[Port]| -> Vec<(String, String, bool)> {
        let dims = |port: &Port| port.dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(",");
        ports.iter().map(|port| (port.name.clone(), dims(port), port.is_state)).collect()
    };
    let row = |name: &str, dims: &str, is_state| (name.to_string(), dims.to_string(), is_state);
    assert_eq!(ports(&decode.inputs), [row("x", "batch,seq,4", false), row("past", "batch,past,4", true)]);
    assert_eq!(ports(&decode.outputs), [row("present", "batch,past + seq,4", true), row("y", "batch,4", false)]);
    let symbols: Vec<_> = decode.symbols.iter().map(|s| (s.name.as_str(), s.lo, s.hi, s.is_data)).collect();
    assert_eq!(symbols, [("batch", 0, Some(1000), false), ("seq", 0, None, false), ("past", 0, None, false)]);
}

#[test]
fn the_bytes_of_a_call_are_known_before() {
    let model = two_layers().load().unwrap();
    let bytes = model.call_bytes("main", &[("batch", 3)]).unwrap().unwrap();
    assert_eq!((bytes.is_exact, bytes.inputs, bytes.outputs, bytes.arena, bytes.scratch), (true, 96, 12, 256, 64));
    let wrong = |sizes: &[(&str, i64)]| model.call_bytes("main", sizes).unwrap_err().code;
    assert_eq!([wrong(&[]), wrong(&[("batch", 1001)]), wrong(&[("bach", 1)])], ["E0204", "E0301", "E0301"]);
}

#[test]
fn more_threads_than_any_machine_has_are_refused() {
    let model = two_layers().load().unwrap();
    let with = |threads| model.session(&SessionOptions::default().threads(threads)).err().map(|e| (e.code, e.kind()));
    for threads in [0, SessionOptions::THREADS_MAX + 1, 100_000, usize::MAX] {
        assert_eq!(with(threads), Some(("E0001", ErrorKind::Usage)), "{threads}");
    }
    assert_eq!(with(2), None);
}
