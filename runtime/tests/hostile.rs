//! damaged artifacts and malformed plans  =>  errors with a code, never a panic

mod common;

use common::{Builder, decoder, edit, joining_decoder, two_layers};
use sardonyx_base::plan::messages::{buffer::Place, step::Action, *};
use sardonyx_base::{DType, Tensor};
use sardonyx_format::Verify;
use sardonyx_runtime::{Model, SessionOptions};

#[test]
fn every_cut_and_a_flip_of_every_small_byte_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sdx");
    two_layers().write(&path);
    let good = std::fs::read(&path).unwrap();
    let load = |bytes: &[u8], verify| {
        std::fs::write(&path, bytes).unwrap();
        Model::load(&path, &common::trusted().verify(verify)).map(drop).map_err(|e| e.code)
    };
    assert_eq!(load(&good, Verify::Full), Ok(()));
    for n in 0..64 {
        let n = good.len() * n / 64;
        assert_eq!(load(&good[..n], Verify::Full), Err("E0401"), "cut at {n}");
    }
    // Most of the file is code, in which only a sample of the bytes is damaged; outside the code, every byte is.
    let mut state = 1u64;
    for i in 0..good.len() {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        if good.len() - i > 4000 && i > 4400 && state >> 58 != 0 {
            continue;
        }
        let mut bad = good.clone();
        bad[i] ^= 1 << (state >> 40 & 7);
        let found = load(&bad, Verify::Full);
        assert!(matches!(found, Err("E0401" | "E0402")), "byte {i}: {found:?}");
    }
}

#[test]
fn weights_are_not_read_at_load_when_verification_is_lazy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sdx");
    two_layers().write(&path);
    let mut bytes = std::fs::read(&path).unwrap();
    let half = 0.5f32.to_le_bytes().repeat(8);
    let at = bytes.windows(half.len()).position(|w| w == half).unwrap();
    assert_eq!(at % 4096, 0);
    bytes[at + 3] ^= 0x80;
    std::fs::write(&path, bytes).unwrap();
    let load = |verify| Model::load(&path, &common::trusted().verify(verify));
    assert_eq!(load(Verify::Full).err().unwrap().code, "E0401");
    let session = load(Verify::Lazy).unwrap().session(&SessionOptions::default()).unwrap();
    let out = session.run(&[("x", Tensor::zeros(DType::F32, vec![1, 8]))]).unwrap();
    assert_eq!(out[0].1.to_vec::<f32>().unwrap(), [3.0 * 0.5 * 6.0]);
}

/// An artifact that was copied into memory is not affected by later changes to its file.
#[test]
fn a_copy_outlives_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sdx");
    two_layers().write(&path);
    let session =
        |path| Model::load(path, &common::trusted().copied(true)).unwrap().session(&SessionOptions::default());
    let (overwritten, cut) = (session(&path).unwrap(), session(&path).unwrap());
    let x = Tensor::from_vec(vec![1, 8], vec![0.5f32; 8]);
    let wanted = overwritten.run(&[("x", x.clone())]).unwrap();
    let len = std::fs::metadata(&path).unwrap().len() as usize;
    std::fs::write(&path, vec![0xff; len]).unwrap();
    assert_eq!(overwritten.run(&[("x", x.clone())]).unwrap()[0].1, wanted[0].1);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    assert_eq!(cut.run(&[("x", x)]).unwrap()[0].1, wanted[0].1);
}

#[test]
fn another_cpu_or_version_is_refused() {
    let mut b = two_layers();
    b.manifest.arch = "aarch64".into();
    assert_eq!(b.refused().code, "E0403");
    let mut b = two_layers();
    b.manifest.variants = vec!["v7".into()];
    assert_eq!(b.refused().code, "E0403");
    let mut b = two_layers();
    b.manifest.format_major = 2;
    assert_eq!(b.refused().code, "E0402");
}

/// A part of the error message, and the change that makes a good plan malformed.
type Case = (&'static str, fn(&mut Builder));

static PLANS: &[Case] = &[
    ("kernel 9 of 2", |b| edit(b, 0, |l| l.kernel = 9)),
    ("buffer 99 of 5", |b| edit(b, 0, |l| l.buffers[1] = 99)),
    ("(buffers, parameters) are (3, 0), the kernel has (2, 0)", |b| edit(b, 0, |l| l.buffers.push(0))),
    ("(buffers, parameters) are (3, 0), the kernel has (3, 1)", |b| edit(b, 2, |l| l.params.clear())),
    ("is read before anything wrote it", |b| edit(b, 0, |l| l.buffers[0] = 4)),
    ("is an input or a constant, but is written", |b| edit(b, 0, |l| l.buffers[1] = 2)),
    ("is an input or a constant, but is written", |b| edit(b, 0, |l| l.buffers[1] = 0)),
    ("there is no entry point `nope` that it is made from", |b| b.entry.specializes = "nope".into()),
    ("there is no entry point `main` that it is made from", |b| b.entry.specializes = "main".into()),
    ("it has other inputs or outputs than `first`", |b| {
        let mut other = b.entry.clone();
        other.name = "first".into();
        other.inputs[0].name = "z".into();
        b.before.push(other);
        b.entry.specializes = "first".into();
    }),
    ("nothing writes the output `y`", |b| drop(b.steps().pop())),
    ("the symbol `nope` is not declared", |b| edit(b, 0, |l| l.grid = "nope".into())),
    ("is not a dimension expression", |b| edit(b, 0, |l| l.grid = "1 +".into())),
    ("is not a dimension expression", |b| b.entry.arena_bytes = "(".repeat(10_000)),
    ("an expression of 20000 bytes", |b| b.entry.arena_bytes = "1".repeat(20_000)),
    ("nothing gives `m` a value", |b| {
        b.symbol("m", SymbolKind::Data, 0, None);
        edit(b, 0, |l| l.grid = "m".into());
    }),
    ("nothing gives `q` a value", |b| {
        b.symbol("q", SymbolKind::Input, 0, None);
        b.entry.arena_bytes = "q".into();
    }),
    ("`m` is bound twice", |b| {
        b.symbol("m", SymbolKind::Data, 0, None);
        for _ in 0..2 {
            b.step(Action::Bind(Bind { symbol: "m".into(), buffer: 0 }));
        }
    }),
    ("is used before its size is known", |b| {
        b.symbol("m", SymbolKind::Data, 0, None);
        b.entry.buffers[3].bytes = "m".into();
        b.step(Action::Bind(Bind { symbol: "m".into(), buffer: 0 }));
    }),
    ("`batch` is bound by inputs and by a step", |b| {
        b.step(Action::Bind(Bind { symbol: "batch".into(), buffer: 0 }));
    }),
    ("buffer 77 of 5", |b| b.step(Action::Copy(Copy { from: 77, to: 1 }))),
    ("it does nothing that this version knows", |b| b.steps().push(Step { action: None })),
    ("it has no body", |b| b.entry.body = None),
    ("it has no place", |b| b.entry.buffers[3].place = None),
    ("constant 5 of 1", |b| b.entry.buffers[3].place = Some(Place::Constant(5))),
    ("input 5 of 1", |b| b.entry.buffers[3].place = Some(Place::Input(5))),
    ("output 5 of 1", |b| b.entry.buffers[3].place = Some(Place::Output(5))),
    ("buffer 3 is not the place of `y`", |b| b.entry.outputs[0].buffer = 3),
    ("buffer 4000000000 is not the place of `x`", |b| b.entry.inputs[0].buffer = 4_000_000_000),
    ("`y` has the buffers 1 and 3", |b| b.entry.buffers[3].place = Some(Place::Output(0))),
    ("`x` has the buffers 0 and 3", |b| b.entry.buffers[3].place = Some(Place::Input(0))),
    ("the size of an input depends on data", |b| {
        b.symbol("m", SymbolKind::Data, 0, None);
        b.entry.buffers[0].bytes = "m".into();
        b.step(Action::Bind(Bind { symbol: "m".into(), buffer: 4 }));
    }),
    ("77 is not an element type", |b| b.entry.inputs[0].dtype = 77),
    ("the input `x` is there twice", |b| {
        b.input("x", DType::F32, &["batch"], "batch*4");
    }),
    ("the symbol `batch` is declared twice", |b| b.symbol("batch", SymbolKind::Input, 0, None)),
    ("the range of the symbol `batch` is empty or negative", |b| b.manifest.symbols[0].lo = 2000),
    ("the range of the symbol `batch` is empty or negative", |b| b.manifest.symbols[0].lo = -1),
    ("the symbol `batch` has the unknown kind 7", |b| b.manifest.symbols[0].kind = 7),
    ("`batch` is declared twice", |b| b.derive("batch", "1", None)),
    ("the symbol `nope` is not declared", |b| b.derive("rows", "nope + 1", None)),
    ("is not a dimension expression", |b| b.derive("rows", "batch +", None)),
    ("an expression of 20000 bytes", |b| b.derive("rows", &"1".repeat(20_000), None)),
    ("the derived symbol `rows` is declared twice", |b| {
        b.derive("rows", "batch", None);
        b.derive("rows", "batch", None);
    }),
    ("nothing gives `batch` a value, which `batch*q` needs", |b| {
        b.symbol("q", SymbolKind::Input, 0, None);
        b.entry.inputs[0].dims[0] = "batch*q".into();
    }),
    ("the offset 4 is not a multiple of 64", |b| b.constants[0].offset = 4),
    ("reach beyond the 32 bytes of the weights", |b| b.constants[0].bytes = 33),
    ("reach beyond the 32 bytes of the weights", |b| b.constants[0].offset = u64::MAX - 63),
    ("the code lacks the kernel `absent_v3`", |b| b.kernels[0].symbol = "absent".into()),
    ("the symbol is empty or holds a zero byte", |b| b.kernels[0].symbol = "a\0b".into()),
    ("the scratch size uses `p1`", |b| b.kernels[1].scratch_bytes = "p1".into()),
    ("the scratch size uses `batch`", |b| b.kernels[1].scratch_bytes = "batch".into()),
    ("a requirement uses `batch`", |b| b.kernels[1].requires = vec!["batch".into()]),
    ("a requirement uses `p1`", |b| b.kernels[1].requires = vec!["p0 - p1".into()]),
    ("a requirement uses `b2`", |b| b.kernels[0].requires = vec!["b2 - grid".into()]),
    ("a requirement uses `p9`", |b| b.kernels[0].indexes = vec!["p9".into()]),
    ("is not a dimension expression", |b| b.kernels[0].requires = vec!["b0 -".into()]),
];

/// Malformed plans made from the entry point `decode` of `decoder`.
static STATES: &[Case] = &[
    ("input 7 of 2 continues as output 0 of 2", |b| b.entry.states[0].input = 7),
    ("input 1 of 2 continues as output 7 of 2", |b| b.entry.states[0].output = 7),
    ("`past` has 3 dimensions, none is axis 3", |b| b.entry.states[0].axis = 3),
    ("`past` and `present` are i32 and f32, not the same", |b| {
        b.entry.inputs[1].dtype = DType::I32.onnx_code();
    }),
    ("`past` and `present` differ in more than axis 1", |b| b.entry.outputs[0].dims[2] = "5".into()),
    ("`past` and `present` differ in more than axis 0", |b| b.entry.states[0].axis = 0),
    ("`past` and `y` differ in more than axis 1", |b| b.entry.states[0].output = 1),
    ("`past` belongs to two states", |b| {
        let mut other = b.entry.states[0].clone();
        other.output = 1;
        b.entry.outputs[1].dims = vec!["batch".into(), "past".into(), "4".into()];
        b.entry.states.push(other);
    }),
    ("`present` belongs to two states", |b| {
        b.input("older", DType::F32, &["batch", "past", "4"], "16*batch*room_in");
        let mut other = b.entry.states[0].clone();
        other.input = 2;
        b.entry.states.push(other);
    }),
    ("the symbol `nope` is not declared", |b| b.entry.states[0].input_capacity = "nope".into()),
    ("`past` is no capacity symbol", |b| b.entry.states[0].output_capacity = "past".into()),
    ("the capacity `room_in` is in a dimension of `past`", |b| b.entry.inputs[1].dims[1] = "room_in".into()),
    ("the capacity `room_out` is in a dimension of `present`", |b| {
        b.entry.outputs[0].dims[1] = "room_out + seq".into();
    }),
    ("nothing gives `other` a value", |b| {
        b.symbol("other", SymbolKind::Capacity, 0, None);
        b.entry.arena_bytes = "other".into();
    }),
    ("`room_in` is bound by inputs and by a step", |b| {
        b.step(Action::Bind(Bind { symbol: "room_in".into(), buffer: 0 }));
    }),
    ("the positions of `present` depend on data", |b| {
        b.symbol("m", SymbolKind::Data, 0, None);
        b.entry.outputs[0].dims[1] = "m".into();
        b.step(Action::Bind(Bind { symbol: "m".into(), buffer: 0 }));
    }),
    ("the buffer of `past` has `16*batch*past` bytes, not `16*batch*room_in`", |b| {
        b.entry.buffers[1].bytes = "16*batch*past".into();
    }),
    ("the buffer of `present` has `16*batch*room_in` bytes, not `16*batch*room_out`", |b| {
        b.entry.buffers[2].bytes = "16*batch*room_in".into();
    }),
    ("it carries state 3 of 1", |b| edit(b, 0, |l| l.carries = Some(3))),
    ("it carries `past` to `present`, but does not read only that", |b| edit(b, 1, |l| l.carries = Some(0))),
    ("it carries `past` to `present`, but does not read only that", |b| edit(b, 0, |l| l.buffers[1] = 3)),
    ("it reads `past` and writes `present`, but does not carry the state", |b| edit(b, 0, |l| l.carries = None)),
    ("it reads `past` and writes `present`, but does not carry the state", |b| {
        b.steps()[0] = Step { action: Some(Action::Copy(Copy { from: 1, to: 2 })) };
    }),
    ("it reads and writes `present`", |b| edit(b, 1, |l| l.buffers[0] = 2)),
    ("a copy overwrites the old positions of `present`", |b| b.step(Action::Copy(Copy { from: 0, to: 2 }))),
    ("nothing carries `past` over to `present`", |b| drop(b.steps().remove(0))),
    ("`past` does not count kept positions", |b| b.entry.states[0].kept = "past".into()),
    ("`room_in` does not count kept positions", |b| b.entry.states[0].kept = "room_in".into()),
    ("the symbol `nope` is not declared", |b| b.entry.states[0].kept = "nope".into()),
];

/// Malformed plans made from `joining_decoder`.
static JOINING: &[Case] = &[
    ("`kept` is no capacity symbol", |b| b.entry.states[0].input_capacity = "kept".into()),
    ("the capacity `kept` is in a dimension of `past`", |b| b.entry.inputs[1].dims[1] = "past + kept".into()),
    ("nothing gives `kept` a value", |b| b.entry.states[0].kept.clear()),
    ("buffer 2 is read before anything wrote it", |b| edit(b, 0, |l| l.buffers[0] = 2)),
    ("buffer 2 is read before anything wrote it", |b| drop(b.steps().remove(0))),
    ("nothing gives `kept` a value", |b| {
        b.entry.states[0].kept.clear();
        b.steps().remove(0);
        b.entry.arena_bytes = "kept".into();
    }),
    ("it reads `past` and writes `present`, but does not carry the state", |b| {
        b.step(Action::Copy(Copy { from: 1, to: 2 }));
    }),
];

#[test]
fn malformed_plans_are_refused_at_load() {
    let plans = PLANS.iter().map(|case| (two_layers(), case)).chain(STATES.iter().map(|case| (decoder(), case)));
    let plans = plans.chain(JOINING.iter().map(|case| (joining_decoder(), case)));
    for (mut b, (words, change)) in plans {
        change(&mut b);
        let e = b.refused();
        assert_eq!(e.code, "E0401", "{words}");
        assert!(e.message.contains(words), "{words}: {e}");
    }
}

/// Plans whose fault shows only for certain dimensions.
static SHAPES: &[Case] = &[
    ("its offset 96 is not a multiple of 64", |b| b.entry.buffers[4].place = Some(Place::Arena("32*batch".into()))),
    ("`batch - 10` is -7, but a size is not negative", |b| b.entry.buffers[4].bytes = "batch - 10".into()),
    ("the arena has 100 bytes, its buffers need 224", |b| b.entry.arena_bytes = "100".into()),
    ("overlap, and one is written", |b| b.entry.buffers[4].place = Some(Place::Arena("0".into()))),
    ("is read after its memory was used for another", |b| {
        let other = b.arena("64", "0");
        b.launch(0, &[0, other], &[], "1");
        b.launch(0, &[3, 1], &[], "1");
    }),
    ("it has 4000 bytes, its constant 32", |b| b.entry.buffers[2].bytes = "4000".into()),
    ("the plan wants 4000 bytes of the input `x`, which has 96", |b| b.entry.buffers[0].bytes = "4000".into()),
    ("f32 [3] does not fit the 8 bytes of its buffer", |b| b.entry.buffers[1].bytes = "8".into()),
    ("its scratch size is negative or overflows", |b| b.kernels[1].scratch_bytes = "p0 - 100".into()),
    ("its kernel `affine` would leave its buffers: `b0 - 100` is -4", |b| {
        b.kernels[0].requires = vec!["b1".into(), "b0 - 100".into()];
    }),
    ("its kernel `rowdot` would leave its buffers: `-grid + p0 - 6` is -1", |b| {
        b.kernels[1].requires = vec!["p0 - grid - 6".into()];
    }),
    ("96 bytes are copied to 12", |b| b.step(Action::Copy(Copy { from: 0, to: 1 }))),
    ("a symbol is read from 4 bytes", |b| {
        b.symbol("m", SymbolKind::Data, 0, None);
        b.entry.buffers[0].bytes = "4".into();
        b.step(Action::Bind(Bind { symbol: "m".into(), buffer: 0 }));
    }),
];

#[test]
fn plans_that_do_not_fit_a_shape_are_refused_at_the_call() {
    let run = |b: &Builder| {
        let session = b.load().unwrap().session(&SessionOptions::default()).unwrap();
        session.run(&[("x", Tensor::zeros(DType::F32, vec![3, 8]))])
    };
    for (words, change) in SHAPES {
        let mut b = two_layers();
        change(&mut b);
        let e = run(&b).unwrap_err();
        assert_eq!(e.code, "E0401", "{words}: {e}");
        assert!(e.message.contains(words), "{words}: {e}");
    }
    let mut b = two_layers();
    b.kernels[1].indexes = vec!["p0 - 9".into()];
    let e = run(&b).unwrap_err();
    assert_eq!((e.code, e.node.as_deref()), ("E0303", Some("/node_2")), "{e}");
    // Without work items nothing is accessed, so no requirement is checked.
    b.kernels[1].requires = vec!["-1".into()];
    edit(&mut b, 2, |l| l.grid = "0".into());
    assert!(run(&b).is_ok());
    let mut b = two_layers();
    edit(&mut b, 0, |l| l.grid = "batch * 4611686018427387904".into());
    assert_eq!(run(&b).unwrap_err().code, "E0202");
    edit(&mut b, 0, |l| l.grid = "4611686018427387904".into());
    assert_eq!(run(&b).unwrap_err().code, "E0202");
    edit(&mut b, 0, |l| l.grid = "1 floordiv (batch - 3)".into());
    assert_eq!(run(&b).unwrap_err().code, "E0202");
}

#[test]
fn random_bytes_in_the_plan_never_panic() {
    mutate(&two_layers());
    mutate(&decoder());
}

fn mutate(b: &Builder) {
    let plan = prost::Message::encode_to_vec(&b.plan());
    let mut state = 99u64;
    let mut next = |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    let mut decoded = 0;
    for _ in 0..3000 {
        let mut bytes = plan.clone();
        for _ in 0..1 + next(4) {
            let at = next(bytes.len());
            bytes[at] = next(256) as u8;
        }
        let Ok(bad) = <Plan as prost::Message>::decode(&bytes[..]) else { continue };
        decoded += 1;
        if let Ok(program) = sardonyx_runtime::program::verify(&b.manifest, &bad, b.weights.len(), 0) {
            assert!(program.entries.len() <= 2);
        }
    }
    assert!(decoded > 100, "{decoded} mutations reached the verifier");
}
