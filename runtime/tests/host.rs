//! Host steps: values with their own memory, loops over other entry points, and malformed plans that are refused

mod common;

use common::{Builder, edit, host, operand, result, value};
use sardonyx_base::plan::messages::{buffer::Place, step::Action, *};
use sardonyx_base::{DType, Error, Result, Tensor};
use sardonyx_runtime::{CallBytes, Outputs, RunOptions, Session, SessionOptions};
use std::time::{Duration, Instant};

/// y = 2·x[i] + 1 at the positions i where x is not 0. Buffers: 0 x, 1 y, 2 indices, 3 elements.
fn nonzero() -> Builder {
    let mut b = Builder::new();
    b.symbol("n", SymbolKind::Input, 0, None);
    b.symbol("m", SymbolKind::Data, 0, Some(3));
    let x = b.input("x", DType::F32, &["n"], "4*n");
    let y = b.output("y", DType::F32, &["m"], "4*m");
    let at = value(&mut b, "8*m");
    let h = b.arena("4*m", "0");
    b.entry.arena_bytes = "4*m".into();
    let gather = b.kernel("gather", &[false, false, true], 1, "0");
    let affine = b.kernel("affine", &[false, true], 0, "0");
    let found = result(0, operand(at, DType::I64, &["1", "m"]), &[(1, "m")]);
    host(&mut b, "NonZero", vec![operand(x, DType::F32, &["n"])], vec![found], &[]);
    b.launch(gather, &[x, at, h], &["n"], "m");
    b.launch(affine, &[h, y], &[], "m");
    b
}

/// `last` is x after applying 2·v + 1 `trips` times; `all` stacks the values at the beginning of each iteration. Entry
/// points: main, body.
fn loop_program() -> Builder {
    let mut b = Builder::new();
    b.symbol("n", SymbolKind::Input, 0, None);
    b.symbol("k", SymbolKind::Input, 0, None);
    b.symbol("t", SymbolKind::Data, 0, None);
    let trips = b.input("trips", DType::I64, &[], "8");
    let start = b.input("start", DType::Bool, &[], "1");
    let x = b.input("x", DType::F32, &["n"], "4*n");
    let last = b.output("last", DType::F32, &["n"], "4*n");
    let all = b.output("all", DType::F32, &["t", "n"], "4*n*t");
    let (carried, stacked) = (value(&mut b, "4*n"), value(&mut b, "4*n*t"));
    let scalar = |buffer, dtype| operand(buffer, dtype, &[]);
    let args = vec![scalar(trips, DType::I64), scalar(start, DType::Bool), operand(x, DType::F32, &["n"])];
    let results = vec![
        result(0, operand(carried, DType::F32, &["n"]), &[]),
        result(1, operand(stacked, DType::F32, &["t", "n"]), &[(0, "t")]),
    ];
    host(&mut b, "Loop carried=1", args, results, &[1]);
    b.step(Action::Copy(Copy { from: carried, to: last }));
    b.step(Action::Copy(Copy { from: stacked, to: all }));
    b.next_entry("body");
    b.entry.internal = true;
    b.input("i", DType::I64, &[], "8");
    let goes_on = b.input("goes_on", DType::Bool, &[], "1");
    let h = b.input("h", DType::F32, &["k"], "4*k");
    let more = b.output("more", DType::Bool, &[], "1");
    let next = b.output("next", DType::F32, &["k"], "4*k");
    let shown = b.output("shown", DType::F32, &["k"], "4*k");
    b.step(Action::Copy(Copy { from: goes_on, to: more }));
    let affine = b.kernel("affine", &[false, true], 0, "0");
    b.launch(affine, &[h, next], &[], "k");
    b.step(Action::Copy(Copy { from: h, to: shown }));
    b
}

fn session(b: &Builder) -> Session {
    b.load().unwrap().session(&SessionOptions::default().threads(2)).unwrap()
}

fn floats(values: &[f32]) -> Tensor {
    Tensor::from_vec(vec![values.len()], values.to_vec())
}

#[test]
fn a_value_has_the_size_that_the_host_found() {
    let session = session(&nonzero());
    let run = |values: &[f32]| session.run(&[("x", floats(values))]);
    for values in [&[0.0, 1.0, 0.0, 5.0][..], &[], &[0.0], &[1.0, 2.0, 3.0], &[0.0, 0.0, 7.0]] {
        let out = run(values).unwrap();
        let wanted: Vec<f32> = values.iter().filter(|v| **v != 0.0).map(|v| 2.0 * v + 1.0).collect();
        assert_eq!((out[0].1.dims(), out[0].1.to_vec::<f32>().unwrap()), (&[wanted.len()][..], wanted));
    }
    let e = run(&[1.0; 4]).unwrap_err();
    assert_eq!((e.code, e.node.as_deref()), ("E0303", Some("/host")), "{e}");
    assert!(run(&[1.0]).is_ok());
}

fn run_loop(session: &Session, trips: i64, values: &[f32]) -> Result<Outputs> {
    let (trips, start) = (Tensor::scalar(trips), Tensor::from_vec(vec![], vec![true]));
    session.run(&[("trips", trips), ("start", start), ("x", floats(values))])
}

#[test]
fn a_loop_calls_its_body_and_stacks_what_it_shows() {
    let session = session(&loop_program());
    for (trips, last, all) in [(3, vec![15.0, 7.0], vec![1.0, 0.0, 3.0, 1.0, 7.0, 3.0]), (0, vec![1.0, 0.0], vec![])] {
        let out = run_loop(&session, trips, &[1.0, 0.0]).unwrap();
        assert_eq!(out[0].1.to_vec::<f32>().unwrap(), last);
        assert_eq!(out[1].1.dims(), [trips as usize, 2]);
        assert_eq!(out[1].1.to_vec::<f32>().unwrap(), all);
    }
    assert_eq!(session.run_entry("body", &[]).unwrap_err().code, "E0301");
}

/// The stacked output is larger than what a loop allocates before it knows the number of iterations.
#[test]
fn what_a_loop_stacks_may_grow() {
    let n = 50_000;
    let out = run_loop(&session(&loop_program()), 100, &vec![0.0; n]).unwrap();
    assert_eq!((out[0].1.dims(), out[1].1.dims()), (&[n][..], &[100, n][..]));
    let all = out[1].1.to_vec::<f32>().unwrap();
    for i in [0usize, 1, 2, 3, 50, 99] {
        let wanted = 2f32.powi(i as i32) - 1.0;
        assert!(all[i * n..(i + 1) * n].iter().all(|v| *v == wanted), "turn {i}");
    }
    assert!(out[0].1.to_vec::<f32>().unwrap().iter().all(|v| *v == 2f32.powi(100)));
}

#[test]
fn a_loop_ends_at_the_deadline_and_keeps_to_the_memory() {
    let model = loop_program().load().unwrap();
    let session = model.session(&SessionOptions::default()).unwrap();
    let (trips, start, x) = (Tensor::scalar(i64::MAX), Tensor::from_vec(vec![], vec![true]), floats(&[]));
    let inputs = [("trips", (&trips).into()), ("start", (&start).into()), ("x", (&x).into())];
    let deadline = Some(Instant::now() + Duration::from_millis(50));
    let options = RunOptions::default().deadline(deadline);
    assert_eq!(session.run_with("main", &inputs, &mut [], &options).unwrap_err().code, "E0305");
    assert!(run_loop(&session, 2, &[1.0]).is_ok());
    let small = model.session(&SessionOptions::default().memory_bytes_max(1 << 12)).unwrap();
    assert!(run_loop(&small, 2, &[1.0; 16]).is_ok());
    assert_eq!(run_loop(&small, 2, &[1.0; 4096]).unwrap_err().code, "E0304");
}

fn step(b: &mut Builder, change: impl Fn(&mut Host)) {
    match &mut b.steps()[0].action {
        Some(Action::Host(host)) => change(host),
        other => panic!("{other:?}"),
    }
}

type Case = (&'static str, fn(&mut Builder));

static NONZERO: &[Case] = &[
    ("this version knows no host operation `Sort`", |b| step(b, |h| h.op = "Sort".into())),
    ("this version knows no host operation `NonZero x=1`", |b| step(b, |h| h.op = "NonZero x=1".into())),
    ("(operands, bodies) of `NonZero` are (0, 0), not (1, 0)", |b| step(b, |h| h.args.clear())),
    ("(operands, bodies) of `NonZero` are (1, 1), not (1, 0)", |b| step(b, |h| h.bodies.push(0))),
    ("result 3 of `NonZero` is not i64 with 2 dimensions", |b| step(b, |h| h.results[0].index = 3)),
    ("`m` is bound by axis 9 of 2", |b| step(b, |h| h.results[0].binds[0].axis = 9)),
    ("nothing gives `m` a value", |b| step(b, |h| h.results[0].binds.clear())),
    ("`n` is bound by inputs and by a step", |b| step(b, |h| h.results[0].binds[0].symbol = "n".into())),
    ("the symbol `q` is not declared", |b| step(b, |h| h.results[0].binds[0].symbol = "q".into())),
    ("a result without a value", |b| step(b, |h| h.results[0].value = None)),
    ("no host operation makes it", |b| b.entry.buffers.push(b.entry.buffers[2].clone())),
    ("buffer 2 is the result of two host operations", |b| {
        step(b, |h| {
            let again = HostResult { index: 0, binds: vec![], ..h.results[0].clone() };
            h.results.push(again);
        });
    }),
    ("buffer 3 has a place, but a host operation makes it", |b| {
        step(b, |h| h.results[0].value.as_mut().unwrap().buffer = 3);
        b.entry.buffers.remove(2);
        b.entry.buffers.push(Buffer { bytes: "4*m".into(), place: Some(Place::Arena("0".into())) });
    }),
    ("nothing gives `m` a value", |b| step(b, |h| h.results.clear())),
    ("buffer 3 is used before its size is known", |b| step(b, |h| h.args[0].buffer = 3)),
    ("buffer 99 of 4", |b| step(b, |h| h.args[0].buffer = 99)),
    ("buffer 2 is a host's result, but is written", |b| edit(b, 1, |l| l.buffers[2] = 2)),
    ("is needed before `m` has a value", |b| step(b, |h| h.args[0].dims[0] = "m".into())),
];

static TURNS: &[Case] = &[
    ("`Loop carried=1` calls entry point 7 of 2", |b| main_step(b, |h| h.bodies[0] = 7)),
    ("`Loop carried=1` calls entry point 0 of 2", |b| main_step(b, |h| h.bodies[0] = 0)),
    ("calls `body`, which is for callers", |b| b.entry.internal = false),
    ("`Loop carried=9` has too few operands", |b| main_step(b, |h| h.op = "Loop carried=9".into())),
    ("which `Loop carried=1` cannot continue", |b| main_step(b, |h| h.args[2].dims.push("1".into()))),
    ("which `Loop carried=1` cannot continue", |b| b.entry.outputs[0].dtype = DType::U8.onnx_code()),
    ("result 5 is (F32, 1)", |b| main_step(b, |h| h.results[0].index = 5)),
    ("its inputs are", |b| {
        b.input("more_yet", DType::F32, &[], "4");
    }),
];

fn main_step(b: &mut Builder, change: impl Fn(&mut Host)) {
    match &mut b.before[0].body.as_mut().unwrap().steps[0].action {
        Some(Action::Host(host)) => change(host),
        other => panic!("{other:?}"),
    }
}

#[test]
fn malformed_steps_are_refused_at_load() {
    let check = |b: &mut Builder, (words, change): &Case| {
        change(b);
        let e: Box<Error> = b.load().map(drop).expect_err(words);
        assert_eq!(e.code, "E0401", "{words}: {e}");
        assert!(e.message.contains(words), "{words}: {e}");
    };
    NONZERO.iter().for_each(|case| check(&mut nonzero(), case));
    TURNS.iter().for_each(|case| check(&mut loop_program(), case));
}

#[test]
fn operands_beyond_their_buffers_are_refused_at_the_call() {
    let mut b = nonzero();
    step(&mut b, |h| h.args[0].dims[0] = "n + 1".into());
    let e = session(&b).run(&[("x", floats(&[1.0]))]).unwrap_err();
    assert_eq!(e.code, "E0401", "{e}");
    let mut b = nonzero();
    b.entry.buffers[2].bytes = "4*m".into();
    let e = session(&b).run(&[("x", floats(&[1.0]))]).unwrap_err();
    assert_eq!(e.code, "E0401", "{e}");
    let mut b = nonzero();
    step(&mut b, |h| h.results[0].value.as_mut().unwrap().dims[0] = "2".into());
    let e = session(&b).run(&[("x", floats(&[1.0]))]).unwrap_err();
    assert_eq!(e.code, "E0303", "{e}");
}

#[test]
fn sizes_that_data_decides_are_bounded() {
    let open = |change: fn(&mut Builder)| {
        let mut b = nonzero();
        change(&mut b);
        b.load().unwrap().call_bytes("main", &[("n", 100)]).unwrap()
    };
    let bytes = |b: Option<CallBytes>| b.map(|b| (b.is_exact, b.arena, b.outputs, b.made, b.inputs));
    // The sizes are bounded by the range of the symbol, or by the number of elements of the operand.
    assert_eq!(bytes(open(|_| ())), Some((false, 12, 12, 24, 400)));
    assert_eq!(bytes(open(|b| b.manifest.symbols[1].hi = None)), Some((false, 400, 400, 800, 400)));
    // The number of iterations of the loop is unknown.
    assert_eq!(loop_program().load().unwrap().call_bytes("main", &[("n", 1)]).unwrap(), None);
}
