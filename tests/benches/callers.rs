//! calls per second of one caller and of two, each with a session of one thread  =>  the ratio
//!
//! `cargo bench -p sardonyx-tests --bench callers`. Rounds of both alternate, so that a machine that slows down affects
//! both; the result is the median over rounds. On two idle cores the ratio should be at least 1.8: callers share
//! nothing that they wait for.

use sardonyx_base::{DType, Tensor};
use sardonyx_format::tensor_io::Synthetic;
use sardonyx_runtime::{Model, Session, SessionOptions};
use sardonyx_tests::onnx::encoder;
use sardonyx_tests::programs::compile;
use sardonyx_tests::trust::trusted;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(400);

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, artifact) = (folder.path().join("m.onnx"), folder.path().join("m.sdx"));
    std::fs::write(&path, encoder().bytes()).expect("room for a model");
    compile(&path, &artifact, &[]);
    let model = Model::load(&artifact, &trusted()).expect("the model loads");
    let session = || model.session(&SessionOptions::default()).expect("a session of one thread");
    let sessions = [session(), session()];
    let names = model.entry("main").expect("an entry point").inputs.iter().map(|p| p.name.as_str());
    let ids = Synthetic::Range { lo: 0.0, hi: 29.0 };
    let tensor = || ids.tensor(DType::I64, vec![4, 64], 1).expect("a small tensor");
    let inputs: Vec<(&str, Tensor)> = names.map(|name| (name, tensor())).collect();
    let mut rates = [vec![], vec![]];
    for _ in 0..ROUNDS {
        for callers in [1, 2] {
            rates[callers - 1].push(rate(&sessions[..callers], &inputs));
        }
    }
    let mut ratios: Vec<f64> = rates[0].iter().zip(&rates[1]).map(|(one, two)| two / one).collect();
    let [one, two] = rates.map(|mut r| median(&mut r));
    println!("one caller   {one:.0} calls per second");
    println!("two callers  {two:.0} calls per second");
    println!("ratio        {:.2} (median of {ROUNDS} pairs)", median(&mut ratios));
}

/// Returns the calls per second of all callers together.
fn rate(sessions: &[Session], inputs: &[(&str, Tensor)]) -> f64 {
    let start = Barrier::new(sessions.len());
    let calls: Vec<f64> = std::thread::scope(|scope| {
        let caller = |session| {
            let start = &start;
            scope.spawn(move || call(session, inputs, start))
        };
        let threads: Vec<_> = sessions.iter().map(caller).collect();
        threads.into_iter().map(|t| t.join().expect("a caller ends")).collect()
    });
    calls.iter().sum()
}

fn call(session: &Session, inputs: &[(&str, Tensor)], start: &Barrier) -> f64 {
    session.run(inputs).expect("the call is good");
    start.wait();
    let (start, mut calls) = (Instant::now(), 0);
    while start.elapsed() < ROUND {
        session.run(inputs).expect("the call is good");
        calls += 1;
    }
    calls as f64 / start.elapsed().as_secs_f64()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
