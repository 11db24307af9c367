//! eight threads, one model, calls of random shapes  =>  the results of one thread, constant memory, limits respected
//!
//! `cargo xtask test --suite hostile` also runs the test with MiniLM.

use sardonyx_base::{DType, Error, Result, Tensor, TensorView};
use sardonyx_format::tensor_io::Synthetic;
use sardonyx_runtime::{Model, Outputs, RunOptions, Session, SessionOptions};
use sardonyx_tests::damage::Random;
use sardonyx_tests::onnx::encoder;
use sardonyx_tests::prepared::prepared;
use sardonyx_tests::programs::compile;
use sardonyx_tests::trust::trusted;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

const THREADS: usize = 8;
const CALLS: usize = 2000;
const GROWTH_BYTES_MAX: u64 = 1 << 20;

/// Serializes the tests, because some of them measure the memory of the process.
static ALONE: Mutex<()> = Mutex::new(());

/// A model with one case per shape: the inputs, and the outputs that a single thread computes from them.
struct Subject {
    model: Model,
    cases: Vec<Case>,
}

struct Case {
    inputs: Vec<(String, Tensor)>,
    expected: Outputs,
}

impl Subject {
    /// Compiles a model whose inputs all have the type i64[batch, seq].
    fn new(model: &Path, batch_max: usize, seqs: &[usize]) -> Subject {
        let folder = tempfile::tempdir().unwrap();
        let artifact = folder.path().join("m.sdx");
        compile(model, &artifact, &[]);
        let model = Model::load(&artifact, &trusted()).unwrap();
        let alone = model.session(&SessionOptions::default()).unwrap();
        let ports = &model.entry("main").unwrap().inputs;
        let mut cases = vec![];
        for (batch, &seq) in (1..=batch_max).flat_map(|b| seqs.iter().map(move |s| (b, s))) {
            let one = |(i, name): (usize, &String)| {
                let flags = |name: &str| name.ends_with("mask") || name == "token_type_ids";
                let values = Synthetic::Range { lo: 0.0, hi: if flags(name) { 1.0 } else { 29.0 } };
                (
                    name.clone(),
                    values.tensor(DType::I64, vec![batch, seq], (batch * 1000 + seq * 10 + i) as u64).unwrap(),
                )
            };
            let inputs: Vec<(String, Tensor)> = ports.iter().map(|p| &p.name).enumerate().map(one).collect();
            let mut case = Case { inputs, expected: Outputs::default() };
            case.expected = case.run(&alone, &RunOptions::default()).unwrap();
            cases.push(case);
        }
        Subject { model, cases }
    }

    fn small() -> Subject {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        std::fs::write(&path, encoder().bytes()).unwrap();
        Subject::new(&path, 4, &[1, 2, 3, 7, 16, 33])
    }
}

impl Case {
    fn run(&self, session: &Session, options: &RunOptions) -> Result<Outputs> {
        let views: Vec<(&str, TensorView)> = self.inputs.iter().map(|(name, t)| (name.as_str(), t.into())).collect();
        session.run_with("main", &views, &mut [], options)
    }

    fn assert_same(&self, actual: &[(String, Tensor)]) {
        assert_eq!(actual.len(), self.expected.len());
        for ((name, a), (_, e)) in actual.iter().zip(&self.expected) {
            assert!(a.dims() == e.dims() && a.bytes() == e.bytes(), "`{name}` differs from what one thread computes");
        }
    }
}

/// Resident anonymous memory of this process, in bytes.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Makes `calls` calls from all threads together, and limits the growth of memory meanwhile. `session` returns either a
/// new session or a shared one. Every thread runs every case twice before memory is measured, because a session keeps
/// the memory that its largest call so far needed.
fn hammer(subject: &Subject, calls: usize, session: &(dyn Fn() -> Arc<Session> + Sync)) {
    let (warm, done) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (warm, done) = (&warm, &done);
            scope.spawn(move || {
                let session = session();
                let mut random = Random(thread as u64);
                let call = |case: &Case| case.assert_same(&case.run(&session, &RunOptions::default()).unwrap());
                for _ in 0..2 {
                    subject.cases.iter().for_each(call);
                }
                warm.wait();
                // Between these two waits, the main thread measures the memory of the process.
                warm.wait();
                for _ in 0..calls / THREADS {
                    call(&subject.cases[random.below(subject.cases.len())]);
                }
                done.wait();
                done.wait();
            });
        }
        warm.wait();
        let before = anonymous_bytes();
        warm.wait();
        done.wait();
        let grown = anonymous_bytes().saturating_sub(before);
        done.wait();
        println!("{calls} calls: anonymous memory grew by {grown} bytes from {before}");
        assert!(grown < GROWTH_BYTES_MAX, "anonymous memory grew by {grown} bytes");
    });
}

fn both_ways(subject: &Subject, calls: usize) {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let one = |threads| Arc::new(subject.model.session(&SessionOptions::default().threads(threads)).unwrap());
    hammer(subject, calls, &|| one(1));
    let shared = one(1);
    hammer(subject, calls, &|| shared.clone());
    let shared = one(2);
    hammer(subject, calls, &|| shared.clone());
}

#[test]
fn threads_compute_what_one_computes_in_constant_memory() {
    both_ways(&Subject::small(), CALLS);
}

#[test]
#[ignore = "part of the whole suite: MiniLM takes minutes"]
fn threads_compute_minilm_in_constant_memory() {
    both_ways(&Subject::new(&prepared("skel_minilm_l6_dyn18").join("model.onnx"), 2, &[1, 5, 16]), CALLS);
}

#[test]
fn deadlines_and_cancelling_leave_a_session_as_good_as_before() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let subject = Subject::small();
    let session = subject.model.session(&SessionOptions::default().threads(2)).unwrap();
    let counts: [AtomicUsize; 3] = Default::default();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (subject, session, counts) = (&subject, &session, &counts);
            scope.spawn(move || {
                let mut random = Random(100 + thread as u64);
                for call in 0..CALLS / THREADS {
                    let cancel = Arc::new(AtomicBool::new(call % 7 == 0));
                    let late = Duration::from_micros(random.below(400) as u64);
                    let deadline = (call % 3 == 0).then(|| Instant::now() + late);
                    let options = RunOptions::default().deadline(deadline).cancel(cancel);
                    let case = &subject.cases[random.below(subject.cases.len())];
                    let kind = match case.run(session, &options) {
                        Ok(outputs) => {
                            case.assert_same(&outputs);
                            0
                        }
                        Err(e) if e.code == "E0305" => 1,
                        Err(e) if e.code == "E0306" => 2,
                        Err(e) => panic!("{e}"),
                    };
                    counts[kind].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let [done, late, cancelled] = counts.map(|n| n.into_inner());
    println!("{done} done, {late} too late, {cancelled} cancelled");
    assert!(done > 0 && late > 0 && cancelled > 0, "{done} done, {late} too late, {cancelled} cancelled");
    subject.cases.iter().for_each(|c| c.assert_same(&c.run(&session, &RunOptions::default()).unwrap()));
}

#[test]
fn a_cap_on_memory_refuses_before_anything_runs() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let subject = Subject::small();
    for threads in [1, 2] {
        for case in &subject.cases {
            let with = |max| {
                let options = SessionOptions::default().threads(threads).memory_bytes_max(max);
                case.run(&subject.model.session(&options).unwrap(), &RunOptions::default())
            };
            let refused = with(0).unwrap_err();
            let (needed, allowed) = figures(&refused);
            assert_eq!((refused.code, allowed), ("E0304", 0), "{refused}");
            assert_eq!(figures(&with(needed - 1).unwrap_err()), (needed, needed - 1));
            case.assert_same(&with(needed).unwrap());
        }
    }
}

/// Parses N and M out of `the call needs N bytes, the limit is M`.
fn figures(e: &Error) -> (usize, usize) {
    let numbers: Vec<usize> =
        e.message.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    (numbers[0], numbers[1])
}
