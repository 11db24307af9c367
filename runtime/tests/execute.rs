//! artifact with kernels from C  =>  numbers that do not depend on threads, or on shapes of earlier calls

mod common;

use common::{Builder, lazy, two_layers};
use sardonyx_base::plan::messages::{Bind, Check, Copy, SymbolKind, step::Action};
use sardonyx_base::{DType, Error, Result, Tensor, cpu::Level};
use sardonyx_runtime::{Model, Outputs, SessionOptions};

fn session(model: &Model, threads: usize) -> sardonyx_runtime::Session {
    model.session(&SessionOptions::default().threads(threads)).unwrap()
}

fn rows(batch: usize) -> Tensor {
    Tensor::from_vec(vec![batch, 8], (0..batch * 8).map(|i| i as f32 * 0.25).collect())
}

fn expected(batch: usize) -> Vec<f32> {
    let row = |b: usize| (0..8).map(|k| (4.0 * ((b * 8 + k) as f32 * 0.25) + 3.0) * 0.5).sum();
    (0..batch).map(row).collect()
}

fn error(result: Result<Outputs>) -> Box<Error> {
    result.expect_err("the call is refused")
}

#[test]
fn shapes_and_thread_counts_do_not_change_results() {
    let model = two_layers().load().unwrap();
    for threads in [1, 2, 5] {
        let session = session(&model, threads);
        // Growing, shrinking and repeated shapes reuse the arena and the cached shapes.
        for batch in [1, 700, 3, 0, 700, 1000, 2, 4, 5, 6, 7, 8, 9, 10, 11, 700, 1] {
            let out = session.run(&[("x", rows(batch))]).unwrap();
            assert_eq!(out.len(), 1);
            assert_eq!((out[0].0.as_str(), out[0].1.dims()), ("y", &[batch][..]));
            assert_eq!(out[0].1.to_vec::<f32>().unwrap(), expected(batch), "batch {batch}, {threads} threads");
        }
    }
}

#[test]
fn who_watches_sees_what_each_launch_wrote() {
    let model = two_layers().load().unwrap();
    let session = session(&model, 2);
    let mut seen = vec![];
    let out = session.run_watched("main", &[("x", rows(3))], &mut |launched| {
        let floats =
            |bytes: &Vec<u8>| bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        let results: Vec<Vec<f32>> = launched.results.iter().map(floats).collect();
        seen.push((launched.step, launched.kernel.to_string(), results));
        Ok(())
    });
    assert_eq!(out.unwrap()[0].1.to_vec::<f32>().unwrap(), expected(3));
    assert!(seen.windows(2).all(|w| w[0].0 < w[1].0) && seen.len() > 1, "{seen:?}");
    let (_, _, last) = seen.last().unwrap();
    assert_eq!(last[0], expected(3));
    // Intermediate values are shown before their memory is reused.
    let (_, _, first) = &seen[0];
    assert!(first[0].len() >= 24 && first[0].iter().any(|v| *v != 0.0), "{first:?}");
    let e = session.run_watched("main", &[("x", rows(3))], &mut |_| Err(Error::defect("enough"))).unwrap_err();
    assert_eq!(e.message, "enough");
    assert_eq!(session.run(&[("x", rows(3))]).unwrap()[0].1.to_vec::<f32>().unwrap(), expected(3));
}

#[test]
fn sessions_and_outputs_outlive_the_model_and_each_other() {
    let model = two_layers().load().unwrap();
    let (a, b) = (session(&model, 2), session(&model, 1));
    drop(model);
    let first = a.run(&[("x", rows(3))]).unwrap();
    // Later calls do not overwrite outputs that the caller still holds.
    let second = a.run(&[("x", rows(2))]).unwrap();
    drop(a);
    assert_eq!(first[0].1.to_vec::<f32>().unwrap(), expected(3));
    assert_eq!(second[0].1.to_vec::<f32>().unwrap(), expected(2));
    assert_eq!(b.run(&[("x", rows(3))]).unwrap()[0].1.to_vec::<f32>().unwrap(), expected(3));
}

#[test]
fn one_session_serves_many_threads() {
    let model = two_layers().load_with(&lazy()).unwrap();
    let session = session(&model, 2);
    std::thread::scope(|s| {
        for batch in 1..5 {
            let session = &session;
            s.spawn(move || {
                for _ in 0..50 {
                    let out = session.run(&[("x", rows(batch))]).unwrap();
                    assert_eq!(out[0].1.to_vec::<f32>().unwrap(), expected(batch));
                }
            });
        }
    });
}

#[test]
fn two_models_are_loaded_side_by_side() {
    let a = two_layers().load().unwrap();
    let b = gather().load().unwrap();
    let index = Tensor::from_vec(vec![1], vec![2i64]);
    assert_eq!(session(&a, 1).run(&[("x", rows(2))]).unwrap()[0].1.to_vec::<f32>().unwrap(), expected(2));
    assert_eq!(session(&b, 1).run(&[("i", index)]).unwrap()[0].1.to_vec::<f32>().unwrap(), [30.0]);
}

#[test]
fn wrong_inputs_get_a_sentence() {
    let mut b = two_layers();
    b.symbol("seq", SymbolKind::Input, 1, Some(512));
    b.input("ids", DType::I64, &["batch", "seq"], "8*batch*seq");
    b.input("twice", DType::Bool, &["2*seq"], "2*seq");
    let model = b.load().unwrap();
    let session = session(&model, 1);
    let ids = |b: usize, s: usize| ("ids", Tensor::zeros(DType::I64, vec![b, s]));
    let twice = |n: usize| ("twice", Tensor::zeros(DType::Bool, vec![n]));
    assert!(session.run(&[twice(6), ids(2, 3), ("x", rows(2))]).is_ok());
    let message = |inputs: &[(&str, Tensor)]| {
        let e = error(session.run(inputs));
        assert_eq!(e.code, "E0301");
        assert_eq!(e.file.as_deref(), Some(model.file()));
        e.message
    };
    let x = || ("x", rows(2));
    assert_eq!(message(&[ids(2, 513), x(), twice(2)]), "`seq` = 513 (input `ids`, dimension 1) is outside 1..512");
    assert_eq!(message(&[ids(2, 0), x(), twice(2)]), "`seq` = 0 (input `ids`, dimension 1) is outside 1..512");
    let both = "`batch` = 2 (input `x`, dimension 0), but also 3 (input `ids`, dimension 0)";
    assert_eq!(message(&[ids(3, 1), x(), twice(2)]), both);
    assert_eq!(
        message(&[ids(2, 3), x(), twice(5)]),
        "dimension 0 of the input `twice` is 5, but `2*seq` = 6 is expected, where `seq` = 3 (input `ids`, dimension 1)"
    );
    assert_eq!(message(&[ids(2, 3), x()]), "the input `twice` is missing");
    assert_eq!(message(&[ids(2, 3), x(), twice(6), ("z", rows(1))]), "the model has no input `z`");
    assert_eq!(message(&[ids(2, 3), x(), x(), twice(6)]), "the input `x` is given twice");
    let wrong_type = ("x", Tensor::zeros(DType::F64, vec![2, 8]));
    assert_eq!(message(&[ids(2, 3), wrong_type, twice(6)]), "the input `x` has type f64, but f32 is expected");
    let wrong_rank = ("x", Tensor::zeros(DType::F32, vec![16]));
    assert_eq!(message(&[ids(2, 3), wrong_rank, twice(6)]), "the input `x` has shape [16], but [batch, 8] is expected");
    let wrong_size = ("x", Tensor::zeros(DType::F32, vec![2, 9]));
    assert_eq!(message(&[ids(2, 3), wrong_size, twice(6)]), "dimension 1 of the input `x` is 9, but 8 is expected");
    assert_eq!(error(session.run_entry("decode", &[])).message, "the model has no entry point `decode`");
}

#[test]
fn an_expression_gives_its_only_unknown_a_value() {
    let mut b = two_layers();
    b.entry.inputs[0].dims[0] = "2*batch".into();
    b.entry.buffers[0].bytes = "64*batch".into();
    b.derive("pairs", "2*batch", Some(64));
    let session = session(&b.load().unwrap(), 1);
    assert_eq!(session.run(&[("x", rows(4))]).unwrap()[0].1.dims()[0], 2);
    let message = |n: usize| error(session.run(&[("x", rows(n))])).message;
    assert_eq!(message(5), "dimension 0 of the input `x`: no `batch` makes `2*batch` = 5");
    let place = "`batch` = 40 (input `x`, dimension 0, which is `2*batch`)";
    assert_eq!(message(80), format!("`pairs` = `2*batch` = 80 ({place}) is outside 0..64"));
}

#[test]
fn facts_that_the_compiler_assumed_are_checked() {
    let mut b = two_layers();
    let even = Check { left: "batch mod 2".into(), right: "0".into(), why: "/pair".into() };
    b.entry.checks.push(even);
    let session = session(&b.load().unwrap(), 1);
    assert!(session.run(&[("x", rows(2))]).is_ok());
    let e = error(session.run(&[("x", rows(3))]));
    let place = "where `batch` = 3 (input `x`, dimension 0)";
    let message = format!("`batch - 2*((batch) floordiv (2))` = 1 must be equal to `0` = 0, {place}");
    assert_eq!((e.code, e.message, e.node.as_deref()), ("E0301", message, Some("/pair")));
}

fn gather() -> Builder {
    let mut b = Builder::new();
    b.symbol("n", SymbolKind::Input, 0, None);
    let table = b.constant(&[10.0, 20.0, 30.0]);
    let i = b.input("i", DType::I64, &["n"], "8*n");
    let y = b.output("y", DType::F32, &["n"], "4*n");
    let gather = b.kernel("gather", &[false, false, true], 1, "0");
    b.launch(gather, &[table, i, y], &["3"], "n");
    b
}

#[test]
fn an_index_out_of_range_is_an_error_that_names_the_node_and_the_session_goes_on() {
    for threads in [1, 3] {
        let session = session(&gather().load().unwrap(), threads);
        let run = |v: Vec<i64>| session.run(&[("i", Tensor::from_vec(vec![v.len()], v))]);
        assert_eq!(run(vec![2, 0, 1]).unwrap()[0].1.to_vec::<f32>().unwrap(), [30.0, 10.0, 20.0]);
        for bad in [vec![0, 3], vec![-1], vec![i64::MAX; 100]] {
            let e = error(run(bad));
            assert_eq!((e.code, e.node.as_deref()), ("E0303", Some("/node_0")));
        }
        assert_eq!(run(vec![1]).unwrap()[0].1.to_vec::<f32>().unwrap(), [20.0]);
    }
}

#[test]
fn sizes_may_come_from_data() {
    let mut b = Builder::new();
    b.symbol("n", SymbolKind::Input, 0, None);
    b.symbol("m", SymbolKind::Data, 0, Some(5));
    let x = b.input("x", DType::F32, &["n"], "4*n");
    let all = b.arena("4*n", "0");
    let count = b.arena("8", "(4*n + 63) floordiv 64 * 64");
    let h = b.arena("4*m", "(4*n + 63) floordiv 64 * 64 + 64");
    let y = b.output("y", DType::F32, &["m", "1"], "4*m");
    let raw = b.output("raw", DType::F32, &["m"], "4*n");
    b.entry.arena_bytes = "(4*n + 63) floordiv 64 * 64 + 64 + 4*m".into();
    let positive = b.kernel("positive", &[false, true, true], 1, "0");
    let affine = b.kernel("affine", &[false, true], 0, "0");
    b.launch(positive, &[x, all, count], &["n"], "1");
    b.step(Action::Bind(Bind { symbol: "m".into(), buffer: count }));
    b.launch(affine, &[all, h], &[], "m");
    b.launch(affine, &[h, y], &[], "m");
    b.step(Action::Copy(Copy { from: all, to: raw }));
    let session = session(&b.load().unwrap(), 2);
    let run = |v: &[f32]| session.run(&[("x", Tensor::from_vec(vec![v.len()], v.to_vec()))]);
    for values in [&[1.0, -1.0, 2.0][..], &[-1.0], &[], &[5.0, 6.0, 7.0, -8.0, 9.0]] {
        let out = run(values).unwrap();
        let kept: Vec<f32> = values.iter().copied().filter(|v| *v > 0.0).collect();
        let twice: Vec<f32> = kept.iter().map(|v| 4.0 * v + 3.0).collect();
        assert_eq!((out[0].1.dims(), out[0].1.to_vec::<f32>().unwrap()), (&[kept.len(), 1][..], twice));
        assert_eq!(out[1].1.to_vec::<f32>().unwrap(), kept);
    }
    let e = error(run(&[1.0; 6]));
    assert_eq!((e.code, e.message.as_str()), ("E0303", "`m` = 6, computed from the data, is outside 0..5"));
}

#[test]
fn inputs_are_used_in_place_or_aligned_and_bools_are_0_or_1() {
    let mut b = Builder::new();
    let x = b.input("x", DType::Bool, &["4"], "4");
    let y = b.output("y", DType::U8, &["4"], "4");
    let choose = b.kernel("choose", &[false, true], 0, "0");
    b.launch(choose, &[x, y], &[], "4");
    let bools = Tensor::new(DType::Bool, vec![4], vec![0, 1, 2, 255].into()).unwrap();
    let out = session(&b.load().unwrap(), 1).run(&[("x", bools)]).unwrap();
    assert_eq!(out[0].1.to_vec::<u8>().unwrap(), [3, 7, 7, 7]);

    let mut bytes = vec![0u8];
    rows(2).bytes().iter().for_each(|&v| bytes.push(v));
    let shifted = bytes::Bytes::from(bytes).slice(1..);
    let out = session(&two_layers().load().unwrap(), 1);
    let out = out.run(&[("x", Tensor::new(DType::F32, vec![2, 8], shifted).unwrap())]).unwrap();
    assert_eq!(out[0].1.to_vec::<f32>().unwrap(), expected(2));
}

#[test]
fn the_best_variant_runs_unless_a_lower_one_is_asked_for() {
    let mut b = Builder::new();
    let y = b.output("y", DType::U8, &["3"], "3");
    let variant = b.kernel("variant", &[true], 0, "0");
    b.launch(variant, &[y], &[], "3");
    let level = |cpu| {
        let model = b.load_with(&common::trusted().cpu(cpu)).unwrap();
        session(&model, 2).run(&[]).unwrap()[0].1.to_vec::<u8>().unwrap()
    };
    assert_eq!(level(Level::from_name("v3")), [3; 3]);
    let best = if Level::from_name("v4").unwrap().is_here() { 4 } else { 3 };
    assert_eq!(level(None), [best; 3]);
}

#[test]
fn memory_that_cannot_be_had_is_an_error() {
    let b = two_layers();
    let model = b.load().unwrap();
    let small = model.session(&SessionOptions::default().memory_bytes_max(1000)).unwrap();
    assert!(small.run(&[("x", rows(2))]).is_ok());
    assert_eq!(error(small.run(&[("x", rows(100))])).code, "E0304");
    assert!(small.run(&[("x", rows(2))]).is_ok());

    let mut huge = two_layers();
    huge.entry.arena_bytes = "1152921504606846976".into();
    huge.arena("64", "1152921504606846912");
    let e = error(session(&huge.load().unwrap(), 1).run(&[("x", rows(2))]));
    assert_eq!((e.code, e.message.as_str()), ("E0304", "cannot allocate 1152921504606846976 bytes"));
    assert_eq!(model.session(&SessionOptions::default().threads(0)).err().unwrap().code, "E0001");
}
