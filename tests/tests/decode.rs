//! tiny decoders, one token at a time  =>  the whole sequence's logits, also for padded batches, in place and copied
//!
//! Tokens are given, not sampled, so that a tie between two logits does not change later steps.

use sardonyx::compile::{Request, compile};
use sardonyx::entries::Entries;
use sardonyx_base::{DType, Result, Tensor};
use sardonyx_kernels::Target;
use sardonyx_passes::{KvCache, Named, Options};
use sardonyx_runtime::{Cache, DeviceName, Model, RunOptions, Session, SessionOptions};
use sardonyx_tests::prepared::model;
use sardonyx_tests::trust::trusted;
use std::path::Path;
use std::time::Instant;

#[allow(dead_code)] // Its `main` parses a command line.
#[path = "../../runtime/examples/generate.rs"]
mod generate;

const STEPS: usize = 32;

fn compiled(name: &str, entries: Entries, path: &Path) -> Model {
    let source = model(name);
    let request = Request { entries, ..Request::new(&source, path) };
    compile(&request).unwrap_or_else(|e| panic!("{name}: {e}"));
    Model::load(path, &trusted()).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Returns a session with this number of threads. Tests compare sessions of one and two threads, whose results must be
/// equal.
fn session(model: &Model, threads: usize) -> Session {
    model.session(&SessionOptions::default().threads(threads)).expect("a session")
}

/// Token `t` of the sequence `row`.
fn token(row: usize, t: usize) -> i64 {
    ((row * 131 + t * 29 + t * t * 7) % 509 + 3) as i64
}

/// Sequences of different lengths, padded in front so that all end at the same position.
#[derive(Clone)]
struct Batch {
    /// For each row, the number of its sequence and the number of its padding tokens.
    rows: Vec<(usize, usize)>,
}

impl Batch {
    fn alone(row: usize) -> Batch {
        Batch { rows: vec![(row, 0)] }
    }

    fn tensor(&self, from: usize, to: usize, value: impl Fn(usize, usize, usize) -> i64) -> Tensor {
        let one = |&(row, padding): &(usize, usize)| (from..to).map(move |t| (row, padding, t));
        let values = self.rows.iter().flat_map(one).map(|(row, padding, t)| value(row, padding, t)).collect();
        Tensor::from_vec(vec![self.rows.len(), to - from], values)
    }

    /// Inputs for the positions `from..to`, without the states.
    fn inputs(&self, model: &Model, from: usize, to: usize) -> Vec<(String, Tensor)> {
        let ports = model.entry("main").expect("it is there").fresh_inputs();
        let value = |name: &str| match name {
            "input_ids" => {
                self.tensor(from, to, |row, padding, t| if t < padding { 0 } else { token(row, t - padding) })
            }
            "position_ids" => self.tensor(from, to, |_, padding, t| t.saturating_sub(padding) as i64),
            "attention_mask" => self.tensor(0, to, |_, padding, t| (t >= padding) as i64),
            other => panic!("no values for {other}"),
        };
        ports.map(|port| (port.name.clone(), value(&port.name))).collect()
    }

    fn in_place(&self, s: &Session, entry: &str, from: usize, to: usize, cache: &mut Cache) -> Result<Tensor> {
        let inputs = self.inputs(s.model(), from, to);
        let inputs: Vec<_> = inputs.iter().map(|(name, t)| (name.as_str(), t.into())).collect();
        let outputs = s.run_cached(entry, &inputs, &mut [], cache, &RunOptions::default())?;
        assert_eq!((outputs.len(), outputs[0].0.as_str()), (1, "logits"));
        Ok(outputs[0].1.clone())
    }

    /// Passes `states` as inputs and replaces them with the outputs, in the order of the entry point's states. Returns
    /// the logits.
    fn copied(&self, s: &Session, entry: &str, from: usize, to: usize, states: &mut Vec<Tensor>) -> Tensor {
        let inputs = self.inputs(s.model(), from, to);
        let mut inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(name, t)| (name.as_str(), t.clone())).collect();
        let entry = s.model().entry(entry).expect("it is there");
        for (state, tensor) in entry.states.iter().zip(states.drain(..)) {
            inputs.push((&entry.inputs[state.input].name, tensor));
        }
        let outputs = s.run_entry(&entry.name, &inputs).unwrap_or_else(|e| panic!("{from}..{to}: {e}"));
        *states = entry.states.iter().map(|state| outputs[state.output].1.clone()).collect();
        outputs[0].1.clone()
    }

    fn nothing(&self, model: &Model) -> Vec<Tensor> {
        let main = model.entry("main").expect("it is there");
        let ports = main.states.iter().map(|state| &main.inputs[state.input]);
        let size = |port: &sardonyx_runtime::program::Port, i: usize| port.dims[i].as_const().unwrap_or(0) as usize;
        ports.map(|p| Tensor::zeros(p.dtype, vec![self.rows.len(), size(p, 1), 0, size(p, 3)])).collect()
    }

    /// Returns the logits of the positions `0..to`, computed by one call.
    fn logits_in_one_call(&self, s: &Session, to: usize) -> Tensor {
        self.copied(s, "main", 0, to, &mut self.nothing(s.model()))
    }
}

/// Returns the logits of row `b` at position `t`, counted from the start of the tensor.
fn row(logits: &Tensor, b: usize, t: usize) -> Vec<f64> {
    let [_, seq, vocabulary] = *logits.dims() else { panic!("{logits:?}") };
    let start = (b * seq + t) * vocabulary;
    (start..start + vocabulary).map(|i| logits.get_f64(i).expect("a number")).collect()
}

fn assert_near(actual: &[f64], expected: &[f64], what: &str) {
    assert_eq!(actual.len(), expected.len());
    let far = actual
        .iter()
        .zip(expected)
        .position(|(a, e)| a.is_nan() || e.is_nan() || (a - e).abs() > 1e-4 * (1.0 + e.abs()));
    if let Some(i) = far {
        panic!("{what}: {} instead of {} at {i}", actual[i], expected[i]);
    }
}

/// Makes every step once with states updated in place and once with states copied. Both must give the same bits, and
/// these must be close to the logits of the whole batch in one call and to those of each row alone.
fn check_steps(model: &Model, name: &str, batch: &Batch, prompt: usize) {
    let (one, two) = (session(model, 1), session(model, 2));
    let total = prompt + STEPS;
    let together = batch.logits_in_one_call(&one, total);
    let apart: Vec<Tensor> =
        batch.rows.iter().map(|&(r, pad)| Batch::alone(r).logits_in_one_call(&one, total - pad)).collect();
    let (mut cache, mut states) = (two.cache("decode", total + 3).expect("a cache"), batch.nothing(model));
    let mut from = 0;
    for to in prompt..=total {
        let entry = if from == 0 { "prefill" } else { "decode" };
        let what = format!("{name} {entry} {from}..{to}");
        let logits = batch.in_place(&two, entry, from, to, &mut cache).unwrap_or_else(|e| panic!("{what}: {e}"));
        let copied = batch.copied(&one, entry, from, to, &mut states);
        assert!(logits.bytes() == copied.bytes(), "{what}: in place and copied differ");
        for (state, tensor) in model.entry(entry).expect("it is there").states.iter().zip(&states) {
            let port = &model.entry(entry).expect("it is there").outputs[state.output].name;
            let held = cache.tensor(port).expect("a state");
            assert!(held.dims() == tensor.dims() && held.bytes() == tensor.bytes(), "{what}: {port} differs");
        }
        for (b, &(_, padding)) in batch.rows.iter().enumerate() {
            for t in from.max(padding)..to {
                let actual = row(&logits, b, t - from);
                assert_near(&actual, &row(&together, b, t), &format!("{what}, row {b}, together"));
                assert_near(&actual, &row(&apart[b], 0, t - padding), &format!("{what}, row {b}, apart"));
            }
        }
        from = to;
    }
    assert_eq!(cache.len(), total);
}

/// Checks that calls that do not fit are refused, and that failed calls append nothing: the next token is computed as
/// if these calls had not been made.
fn check_refusals(model: &Model, name: &str) {
    let (s, batch) = (session(model, 2), Batch::alone(1));
    let (mut cache, mut undisturbed) = (s.cache("decode", 8).expect("a cache"), s.cache("main", 20).expect("a cache"));
    for cache in [&mut cache, &mut undisturbed] {
        batch.in_place(&s, "prefill", 0, 5, cache).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    for t in 5..8 {
        let full = batch.in_place(&s, "main", t, 9, &mut cache).expect_err("there is no room");
        assert_eq!((full.code, &*full.message), ("E0307", "9 positions are needed, the cache has room for 8"));
        let other = Batch { rows: vec![(0, 0), (1, 0)] }.in_place(&s, "decode", t, t + 1, &mut cache);
        assert_eq!(other.expect_err("another batch").code, "E0301");
        let again = batch.in_place(&s, "prefill", t, t + 1, &mut cache);
        assert_eq!(again.expect_err("no beginning").code, "E0301");

        let mut bad = batch.inputs(model, t, t + 1);
        let soon = RunOptions::default().deadline(Instant::now());
        for (id, options, code) in [(1i64 << 40, RunOptions::default(), "E0303"), (7, soon, "E0305")] {
            bad.iter_mut().filter(|(name, _)| name == "input_ids").for_each(|(_, ids)| {
                *ids = Tensor::from_vec(vec![1, 1], vec![id]);
            });
            let inputs: Vec<_> = bad.iter().map(|(name, t)| (name.as_str(), t.into())).collect();
            let failed = s.run_cached("decode", &inputs, &mut [], &mut cache, &options);
            assert_eq!((failed.expect_err("it fails").code, cache.len()), (code, t));
        }
        // Caches of different capacities give the same logits.
        let [a, b] =
            [&mut cache, &mut undisturbed].map(|c| batch.in_place(&s, "decode", t, t + 1, c).expect("it runs"));
        assert!(a.bytes() == b.bytes(), "{name}: position {t}");
    }
}

/// Checks that the tokens which the example generates have the largest logits, up to rounding, when the whole sequence
/// is recomputed.
fn check_example(path: &Path, model: &Model, name: &str) {
    let prompt = vec![5, 77, 300, 12];
    let args = generate::Args { model: path.into(), prompt: prompt.clone(), steps: 6, capacity: None };
    let mut tokens = prompt.clone();
    generate::generate(&args, &mut |token| tokens.push(token)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(tokens.len(), prompt.len() + 6);
    let s = session(model, 1);
    let main = model.entry("main").expect("it is there");
    let (batch, n) = (Batch::alone(0), tokens.len());
    let mut inputs = batch.inputs(model, 0, n);
    for (name, tensor) in &mut inputs {
        if name == "input_ids" {
            *tensor = Tensor::from_vec(vec![1, n], tokens.clone());
        }
    }
    let none = batch.nothing(model);
    let states = main.states.iter().zip(none).map(|(state, tensor)| (main.inputs[state.input].name.as_str(), tensor));
    let inputs: Vec<_> = inputs.iter().map(|(name, t)| (name.as_str(), t.clone())).chain(states).collect();
    let logits = s.run(&inputs).unwrap_or_else(|e| panic!("{name}: {e}"))[0].1.clone();
    for t in prompt.len()..n {
        let before = row(&logits, 0, t - 1);
        let best = before.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        assert!(before[tokens[t] as usize] >= best - 1e-4 * (1.0 + best.abs()), "{name}: token {t} is {}", tokens[t]);
    }
    let short = generate::Args { capacity: Some(6), ..args };
    assert_eq!(generate::generate(&short, &mut |_| ()).expect_err("there is no room").code, "E0307");
}

fn check(name: &str, rows: &[(usize, usize)]) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.sdx");
    let model = compiled(name, Entries::default(), &path);
    assert_eq!(model.entry("decode").expect("it is there").inputs[0].dtype, DType::I64);
    check_steps(&model, name, &Batch::alone(0), 5);
    check_steps(&model, name, &Batch { rows: rows.to_vec() }, 7);
    check_refusals(&model, name);
    check_example(&path, &model, name);
}

const PADDED: &[(usize, usize)] = &[(0, 5), (1, 0), (2, 2)];

#[test]
fn gpt2_of_the_dynamo_exporter() {
    check("skel_gpt2_tiny_kv_dyn18", PADDED);
}

#[test]
fn gpt2_of_the_script_exporter() {
    check("skel_gpt2_tiny_kv_ts17", PADDED);
}

#[test]
fn llama_of_the_dynamo_exporter() {
    check("skel_llama_tiny_kv_dyn18", PADDED);
}

#[test]
fn llama_with_attention_operators() {
    check("skel_llama_tiny_kv_dyn23", PADDED);
}

#[test]
fn llama_with_fused_operators() {
    check("skel_llama_tiny_kv_ortopt", PADDED);
}

#[test]
fn llama_of_the_script_exporter() {
    check("skel_llama_tiny_kv_ts17", PADDED);
}

#[test]
fn the_example_does_with_main_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.sdx");
    let model = compiled("skel_llama_tiny_kv_ts17", Entries::NONE, &path);
    assert!(model.entry("decode").is_err());
    check_example(&path, &model, "main alone");
}

/// The caches hold rounded rows: a call over all positions rounds the rows as calls that append one position do. A sum
/// that differs in the last place may round to another code, so logits are close but not equal.
#[test]
fn caches_in_few_bits_decode_as_one_call_does() {
    let folder = tempfile::tempdir().unwrap();
    let source = model("skel_llama_tiny_kv_ts17");
    let plain = compiled("skel_llama_tiny_kv_ts17", Entries::NONE, &folder.path().join("f32.sdx"));
    let batch = Batch { rows: vec![(0, 0), (3, 2)] };
    let exact = batch.logits_in_one_call(&session(&plain, 1), 12);
    // Format, permitted deviation from the f32 logits relative to the largest one, and bytes of a cached row of 32
    // elements (f32: 128).
    for (format, most, bytes) in
        [(KvCache::Bf16, 0.02, 64), (KvCache::Int8, 0.03, 36), (KvCache::Bfp8, 0.03, 33), (KvCache::Bfp4, 0.5, 17)]
    {
        let path = folder.path().join(format!("{}.sdx", format.name()));
        let options = Options { kv_cache: format, ..Options::default() };
        compile(&Request { options, ..Request::new(&source, &path) }).unwrap_or_else(|e| panic!("{format:?}: {e}"));
        let model = Model::load(&path, &trusted()).expect("an artifact");
        let (one, two) = (session(&model, 1), session(&model, 2));
        let together = batch.logits_in_one_call(&one, 12);
        let mut cache = two.cache("decode", 16).expect("a cache");
        let mut states = batch.nothing(&model);
        let mut from = 0;
        for to in 6..=12 {
            let entry = if from == 0 { "prefill" } else { "decode" };
            let logits =
                batch.in_place(&two, entry, from, to, &mut cache).unwrap_or_else(|e| panic!("{format:?}: {e}"));
            let copied = batch.copied(&one, entry, from, to, &mut states);
            assert!(logits.bytes() == copied.bytes(), "{format:?}: {from}..{to}: in place and copied differ");
            for b in 0..2 {
                let (step, whole, f32) =
                    (row(&logits, b, to - 1 - from), row(&together, b, to - 1), row(&exact, b, to - 1));
                let largest = f32.iter().fold(0f64, |m, v| m.max(v.abs()));
                let off = |other: &[f64]| step.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0f64, f64::max);
                assert!(off(&whole) <= 0.2 * most * largest, "{format:?}: {from}..{to}: {} {largest}", off(&whole));
                assert!(off(&f32) <= most * largest, "{format:?}: {from}..{to}: {} {largest}", off(&f32));
            }
            from = to;
        }
        // (keys and values) × 4 layers × 2 heads × 2 rows × a capacity of 16 positions.
        assert_eq!(cache.bytes(), 2 * 4 * 2 * 2 * 16 * bytes, "{format:?}");
    }
}

/// On a GPU the caches are in device memory, and every call appends to them.
#[test]
fn a_simulated_gpu_decodes_in_place_as_the_cpu_does() {
    let folder = tempfile::tempdir().unwrap();
    let (source, path) = (model("skel_llama_tiny_kv_dyn23"), folder.path().join("m.sdx"));
    let targets = Target::all().collect();
    compile(&Request { targets, ..Request::new(&source, &path) }).unwrap_or_else(|e| panic!("{e}"));
    let load = |device| Model::load(&path, &trusted().device(device)).expect("an artifact");
    let models = [DeviceName::Cpu, DeviceName::Sim("sm_80".into())].map(load);
    let batch = Batch { rows: vec![(0, 0), (3, 2)] };
    let logits = models.each_ref().map(|model| {
        let session = session(model, 2);
        let mut cache = session.cache("main", 20).expect("a cache");
        let mut step = |entry, from, to| batch.in_place(&session, entry, from, to, &mut cache).expect("logits");
        [step("prefill", 0, 5), step("decode", 5, 6), step("decode", 6, 7), step("main", 7, 10)]
    });
    for ((cpu, sim), last) in logits[0].iter().zip(&logits[1]).zip([4, 0, 0, 2]) {
        for b in 0..2 {
            assert_near(&row(sim, b, last), &row(cpu, b, last), &format!("{:?}, row {b}", cpu.dims()));
        }
    }
    let report = models[1].device_report().expect("a simulated device reports");
    assert_eq!((report.findings.as_slice(), report.host_operations), (&[][..], 0), "{}", report.text());
}
