//! Decoders with their caches in place: `prefill`, then `decode` by `decode`, beside `main` over the whole sequence
//!
//! What a token's logits are must not depend on how many calls it took, nor on where the caches lie.

use sardonyx::compile::{Request, compile};
use sardonyx_runtime::{LoadOptions, Model, RunOptions, Session, SessionOptions, Tensor, TensorView};
use sardonyx_tests::prepared::model;

static MODELS: &[&str] = &[
    "skel_gpt2_tiny_kv_dyn18",
    "skel_gpt2_tiny_kv_ts17",
    "skel_llama_tiny_kv_dyn18",
    "skel_llama_tiny_kv_dyn23",
    "skel_llama_tiny_kv_ortopt",
    "skel_llama_tiny_kv_ts17",
];

const BATCH: usize = 2;
const PROMPT: usize = 5;
const TOKENS: usize = 13;
const CAPACITY: usize = 17;

/// Token `t` of batch `b`.
fn token(b: usize, t: usize) -> i64 {
    ((b * 131 + t * 29) % 199 + 3) as i64
}

/// The inputs that are no caches, for the tokens `from..to`.
fn inputs(model: &Model, from: usize, to: usize) -> Vec<(String, Tensor)> {
    let ids = |of: &dyn Fn(usize, usize) -> i64, from: usize| {
        let values = (0..BATCH).flat_map(|b| (from..to).map(move |t| (b, t))).map(|(b, t)| of(b, t)).collect();
        Tensor::from_vec(vec![BATCH, to - from], values)
    };
    let value = |name: &str| match name {
        "input_ids" => Some(ids(&token, from)),
        "attention_mask" => Some(ids(&|_, _| 1, 0)),
        "position_ids" => Some(ids(&|_, t| t as i64, from)),
        _ => None,
    };
    let ports = &model.entry("main").expect("an entry point").inputs;
    ports.iter().filter_map(|p| Some((p.name.clone(), value(&p.name)?))).collect()
}

fn views(inputs: &[(String, Tensor)]) -> Vec<(&str, TensorView<'_>)> {
    inputs.iter().map(|(name, t)| (name.as_str(), t.into())).collect()
}

/// The logits and the caches of all tokens, by one copying call.
fn whole(model: &Model, session: &Session) -> Vec<(String, Tensor)> {
    let mut given = inputs(model, 0, TOKENS);
    for port in &model.entry("main").expect("an entry point").inputs {
        if !given.iter().any(|(name, _)| *name == port.name) {
            let [heads, width] = [1, 3].map(|i| port.dims[i].as_const().expect("a number") as usize);
            given.push((port.name.clone(), Tensor::zeros(port.dtype, vec![BATCH, heads, 0, width])));
        }
    }
    session.run_with("main", &views(&given), &mut [], &RunOptions::default()).expect("main runs")
}

fn floats(t: &Tensor) -> Vec<f64> {
    (0..t.len()).map(|i| t.get_f64(i).expect("a number")).collect()
}

/// Largest difference over the largest value.
fn difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let largest = b.iter().fold(1e-30, |m: f64, v| m.max(v.abs()));
    a.iter().zip(b).fold(0.0, |m: f64, (a, b)| m.max((a - b).abs())) / largest
}

fn check(name: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.sdx");
    let report = compile(&Request::new(&model(name), &path)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let entries = report.summary.expect("a summary").entries;
    let names: Vec<&str> = entries.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["main", "prefill", "decode"], "{name}");
    assert!(entries.iter().all(|e| e.states == 8 && !e.arena_bytes.contains("capacity")), "{name}: {entries:?}");
    let model = Model::load(&path, &LoadOptions::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
    for threads in [1, 2] {
        let session = model.session(&SessionOptions { threads, ..SessionOptions::default() }).expect("a session");
        let wanted = whole(&model, &session);
        // Prefill and decode; a prompt and steps by `main`; everything by `decode`.
        for steps in [
            vec![("prefill", PROMPT), ("decode", TOKENS - PROMPT)],
            vec![("main", PROMPT), ("main", 3), ("decode", TOKENS - PROMPT - 3)],
            vec![("decode", TOKENS)],
        ] {
            stepwise(name, &model, &session, &steps, &wanted);
        }
    }
}

fn stepwise(name: &str, model: &Model, session: &Session, steps: &[(&str, usize)], wanted: &[(String, Tensor)]) {
    let mut cache = session.cache("main", CAPACITY).expect("a cache");
    let (logits, caches) = wanted.split_first().expect("logits");
    let vocabulary = *logits.1.dims().last().expect("a vocabulary");
    let expected = floats(&logits.1);
    let mut at = 0;
    for &(entry, n) in steps {
        let sizes = if entry == "decode" { vec![1; n] } else { vec![n] };
        for n in sizes {
            let given = inputs(model, at, at + n);
            let outputs = session.run_cached(entry, &views(&given), &mut [], &mut cache, &RunOptions::default());
            let outputs = outputs.unwrap_or_else(|e| panic!("{name} {entry} at {at}: {e}"));
            let row = |b: usize| (b * TOKENS + at) * vocabulary..(b * TOKENS + at + n) * vocabulary;
            let rows: Vec<f64> = (0..BATCH).flat_map(|b| expected[row(b)].to_vec()).collect();
            let error = difference(&floats(&outputs[0].1), &rows);
            assert!(error < 1e-5, "{name} {entry} at {at}: {error:e}");
            at += n;
        }
    }
    assert_eq!((at, cache.len()), (TOKENS, TOKENS));
    for (output, tensor) in caches {
        let error = difference(&floats(&cache.tensor(output).expect("a state")), &floats(tensor));
        assert!(error < 1e-5, "{name} {output}: {error:e}");
    }
}

#[test]
fn logits_do_not_depend_on_the_calls_that_they_took() {
    MODELS.iter().for_each(|name| check(name));
}
