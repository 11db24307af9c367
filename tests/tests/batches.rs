//! random batches  =>  each row has the bits that it has alone, whatever the other rows, the padding and the threads are
//!
//! A row has a length of its own where the model has sequences; a batch is padded behind the shorter rows.

use sardonyx::compile::{Request, compile};
use sardonyx_base::{DType, Dim, Tensor};
use sardonyx_passes::{Options, Precision, Quantize};
use sardonyx_runtime::program::Port;
use sardonyx_runtime::{Model, Session, SessionOptions};
use sardonyx_tests::damage::Random;
use sardonyx_tests::prepared::model;
use sardonyx_tests::trust::trusted;
use std::path::Path;

/// A model, whose rows are the elements of the first dimension.
struct Subject {
    name: &'static str,
    /// Maximum length of a row, 1 without sequences.
    length_max: usize,
    /// Maximum number of rows of a batch.
    rows_max: usize,
    /// Whether the model is also compiled in bf16, and its weights in int8.
    narrow: bool,
}

const fn subject(name: &'static str, length_max: usize, rows_max: usize, narrow: bool) -> Subject {
    Subject { name, length_max, rows_max, narrow }
}

/// Twelve models: encoders and decoders of several exporters, vision transformers, convolution nets, decision trees.
static SUBJECTS: [Subject; 12] = [
    subject("skel_minilm_l6_dyn18", 70, 6, true),
    subject("skel_minilm_l6_ts11", 70, 6, false),
    subject("rxnmapper_albert_ts17", 40, 6, true),
    subject("skel_gpt2_tiny_kv_ts17", 90, 9, true),
    subject("skel_gpt2_tiny_kv_dyn18", 90, 9, false),
    subject("skel_llama_tiny_kv_dyn18", 90, 9, true),
    subject("skel_llama_tiny_kv_ortopt", 90, 9, true),
    subject("skel_vit_small_rand_ts17", 1, 3, false),
    subject("skel_resnet50_rand_ts17", 1, 3, false),
    subject("skel_efficientnet_b0_rand_ts17", 1, 4, false),
    subject("sk_digits_rf", 1, 40, false),
    subject("sk_diabetes_gbr", 1, 40, false),
];

/// Models of the default suite, which are small.
static SMALL: [&str; 4] = ["skel_gpt2_tiny_kv_ts17", "skel_llama_tiny_kv_dyn18", "sk_digits_rf", "sk_diabetes_gbr"];

/// Minimum number of batches of all models.
const BATCHES: usize = 2000;

/// Number of different rows of which batches are made.
const ROWS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Types {
    F32,
    Bf16,
    Int8,
}

impl Types {
    fn options(self) -> Options {
        match self {
            Types::F32 => Options::default(),
            Types::Bf16 => Options { precision: Precision::Bf16, ..Options::default() },
            Types::Int8 => Options { quantize: Quantize::Int8, ..Options::default() },
        }
    }
}

fn compiled(name: &str, types: Types, path: &Path) -> Model {
    let source = model(name);
    let request = Request { options: types.options(), selftest: false, measure: false, ..Request::new(&source, path) };
    compile(&request).unwrap_or_else(|e| panic!("{name}, {types:?}: {e}"));
    Model::load(path, &trusted()).unwrap_or_else(|e| panic!("{name}, {types:?}: {e}"))
}

/// Lengths of the rows, with their numbers, and the length to which they are padded.
struct Batch {
    rows: Vec<(usize, usize)>,
    length: usize,
}

/// Inputs of a batch: an element depends on its row's number and its place in the row only, and is 0 in the padding.
fn inputs<'a>(model: &'a Model, batch: &Batch) -> Vec<(&'a str, Tensor)> {
    let main = model.entry("main").expect("it is there");
    main.inputs.iter().map(|port| (port.name.as_str(), input(port, batch))).collect()
}

fn input(port: &Port, batch: &Batch) -> Tensor {
    let is_state = port.name.contains("past");
    let size = |(axis, dim): (usize, &Dim)| match dim.as_const() {
        _ if axis == 0 => batch.rows.len(),
        Some(size) => size as usize,
        // Caches are empty.
        None if is_state => 0,
        None => batch.length,
    };
    let dims: Vec<usize> = port.dims.iter().enumerate().map(size).collect();
    let per_row = dims[1..].iter().product::<usize>();
    let has_length = port.dims.iter().skip(1).any(|d| d.as_const().is_none());
    let value = |row: usize, at: usize, length: usize| {
        let number = Random(row as u64 * 1_000_003 + at as u64).u64();
        match port.name.as_str() {
            _ if has_length && at >= length => 0.0,
            name if name.contains("mask") => 1.0,
            name if name.contains("position") => at as f64,
            name if name.contains("type") => 0.0,
            _ if port.dtype == DType::I64 => (number % 200 + 3) as f64,
            _ => (number >> 40) as f64 / (1u64 << 23) as f64 - 1.0,
        }
    };
    let values = batch.rows.iter().flat_map(|&(row, length)| (0..per_row).map(move |at| (row, at, length)));
    let values = values.map(|(row, at, length)| value(row, at, length));
    match port.dtype {
        DType::I64 => Tensor::from_vec(dims, values.map(|v| v as i64).collect()),
        DType::F32 => Tensor::from_vec(dims, values.map(|v| v as f32).collect()),
        other => panic!("`{}` is {other}", port.name),
    }
}

/// Bits of the elements of row `at` of a tensor that are inside of `dims`, the dimensions of the row alone.
fn bits(t: &Tensor, at: usize, dims: &[usize]) -> Vec<u64> {
    let n: usize = dims[1..].iter().product();
    let place = |mut i: usize| {
        let (mut place, mut stride) = (0, 1);
        for (own, whole) in dims.iter().zip(t.dims()).skip(1).rev() {
            place += i % own * stride;
            (i, stride) = (i / own, stride * whole);
        }
        at * stride + place
    };
    (0..n).map(|i| t.get_f64(place(i)).expect("a number").to_bits()).collect()
}

/// Checks random batches of a model.
fn check(subject: &Subject, types: Types, n_batches: usize) {
    let folder = tempfile::tempdir().unwrap();
    let model = compiled(subject.name, types, &folder.path().join("model.sdx"));
    let sessions: Vec<Session> =
        [1, 2].map(|n| model.session(&SessionOptions::default().threads(n)).expect("a session")).into();
    let mut random = Random(subject.name.len() as u64 * 7919 + types as u64);
    let lengths: Vec<usize> = (0..ROWS).map(|_| 1 + random.below(subject.length_max)).collect();
    let run = |session: &Session, batch: &Batch| {
        session.run(&inputs(&model, batch)).unwrap_or_else(|e| panic!("{}, {types:?}: {e}", subject.name))
    };
    let of_row = |row: usize| run(&sessions[0], &Batch { rows: vec![(row, lengths[row])], length: lengths[row] });
    let alone: Vec<_> = (0..ROWS).map(of_row).collect();
    for number in 0..n_batches {
        let n_rows = 1 + random.below(subject.rows_max);
        let rows: Vec<(usize, usize)> =
            (0..n_rows).map(|_| random.below(ROWS)).map(|row| (row, lengths[row])).collect();
        let longest = rows.iter().map(|(_, length)| *length).max().unwrap_or(1);
        let more = if subject.length_max > 1 && random.below(3) == 0 { random.below(20) } else { 0 };
        let batch = Batch { rows, length: longest + more };
        let outputs = run(&sessions[random.below(2)], &batch);
        for (at, (row, _)) in batch.rows.iter().enumerate() {
            assert_eq!(alone[*row].len(), outputs.len(), "{}", subject.name);
            for ((name, wanted), (named, got)) in alone[*row].iter().zip(&outputs) {
                assert_eq!(name, named, "{}", subject.name);
                let (wanted, got) = (bits(wanted, 0, wanted.dims()), bits(got, at, wanted.dims()));
                let apart = wanted.iter().zip(&got).filter(|(a, b)| a != b).count();
                let shape = (batch.rows.len(), batch.length, lengths[*row]);
                assert_eq!(apart, 0, "{}, {types:?}, batch {number} {shape:?}, row {at}: `{name}`", subject.name);
            }
        }
    }
}

#[test]
fn a_row_has_the_bits_that_it_has_alone() {
    for subject in SUBJECTS.iter().filter(|subject| SMALL.contains(&subject.name)) {
        check(subject, Types::F32, 20);
        if subject.narrow {
            check(subject, Types::Int8, 10);
        }
    }
}

/// 2,000 batches.
#[test]
#[ignore = "minutes of a release build; `cargo xtask test --suite batches`"]
fn a_row_has_the_bits_that_it_has_alone_in_every_model() {
    let mut n_batches = 0;
    for subject in &SUBJECTS {
        let all = if subject.narrow { vec![Types::F32, Types::Bf16, Types::Int8] } else { vec![Types::F32] };
        let n_each = BATCHES.div_ceil(SUBJECTS.len() * all.len());
        for types in &all {
            check(subject, *types, n_each);
            n_batches += n_each;
        }
        println!("{}: equal bits", subject.name);
    }
    assert!(n_batches >= BATCHES, "{n_batches}");
}
