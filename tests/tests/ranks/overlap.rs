//! computation during collectives  =>  the same bits as when ranks wait for each collective

use super::places::{compiled, pair};
use super::{Start, started, starts};
use sardonyx_base::Tensor;
use sardonyx_format::tensor_io::save_npy;
use sardonyx_tests::onnx::Net;
use sardonyx_tests::programs::Outcome;
use std::path::Path;

/// Text of a plan after the mesh, and the number of collectives that the compiled program begins in one step and awaits
/// in another.
static PLANS: [(&str, usize); 5] = [
    ("", 0),
    ("[overlap]\nchunks = 2\n", 1),
    ("[overlap]\nchunks = 3\nnodes = ['second']\n", 2),
    ("[overlap]\nmicro_batches = 2\n", 1),
    ("[overlap]\nmicro_batches = 2\nchunks = 2\n", 3),
];

/// The columns of the first matrix and the rows of the second are split, so the pair needs one AllReduce.
fn net() -> Net {
    pair(2, &[("up", 1, 2), ("down", 0, 2)])
}

/// Runs the model on two ranks, and returns the bytes of the output.
fn run(folder: &Path, start: Start, rows: usize, more: &[&str]) -> Vec<u8> {
    let at = |name: &str| folder.join(name).to_str().unwrap().to_string();
    // Fractions instead of small integers, so that sums in another order would have other bits.
    let x: Vec<f32> = (0..rows * 12).map(|i| (i as f32 * 0.7).sin()).collect();
    save_npy(at("x.npy"), &Tensor::from_vec(vec![rows, 12], x)).unwrap();
    let (input, model, out) = (format!("x={}", at("x.npy")), at("m.sdx"), at("out"));
    let mut arguments = vec!["run", &model, "--input", &input, "--output-dir", &out];
    arguments.extend(more);
    let outcome = Outcome::run(&mut started(start, 2, &arguments));
    assert_eq!(outcome.code, 0, "{start:?}: {}", outcome.stderr);
    std::fs::read(folder.join("out/y.npy")).unwrap()
}

#[test]
fn what_is_computed_meanwhile_changes_no_bits() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    let net = net();
    let mut wanted: Option<Vec<Vec<u8>>> = None;
    for (overlap, begun) in PLANS {
        std::fs::write(&plan, format!("mesh = [2]\n{overlap}")).unwrap();
        let outcome = compiled(folder.path(), &net, &["--plan", plan.to_str().unwrap()]);
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        let count = |what: &str| outcome.stdout.matches(&format!("host: {what} AllReduce mesh=0")).count();
        assert_eq!([count("begin"), count("wait")], [begun; 2], "{overlap}: {}", outcome.stdout);
        for start in starts() {
            // Numbers of rows include 1, which is fewer than the parts of a plan.
            let got: Vec<Vec<u8>> = [1, 5, 64].into_iter().map(|rows| run(folder.path(), start, rows, &[])).collect();
            assert!(*wanted.get_or_insert(got.clone()) == got, "{overlap} {start:?}");
        }
        for start in [Start::Threads, Start::Processes] {
            let slow = run(folder.path(), start, 64, &["--links", "2ms,100M"]);
            assert!(wanted.as_ref().is_some_and(|wanted| wanted[2] == slow), "{overlap} {start:?}");
        }
    }
}

#[test]
fn an_overlap_that_the_program_has_not_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    let net = net();
    for (overlap, message) in [
        ("chunks = 2\nnodes = ['first']", "nothing of `first` can be computed while ranks exchange"),
        ("chunks = 2\nnodes = ['third']", "nothing of `third` can be computed while ranks exchange"),
        ("chunks = 65", "`chunks` of the overlap is no number from 1 to 64"),
    ] {
        std::fs::write(&plan, format!("mesh = [2]\n[overlap]\n{overlap}\n")).unwrap();
        let outcome = compiled(folder.path(), &net, &["--plan", plan.to_str().unwrap()]);
        assert_eq!(outcome.code, 2, "{overlap}");
        assert!(outcome.stderr.contains("E0108") && outcome.stderr.contains(message), "{}", outcome.stderr);
        assert!(!folder.path().join("m.sdx").exists());
    }
}

#[test]
fn links_of_a_launcher_are_not_slowed_down() {
    let folder = tempfile::tempdir().unwrap();
    let net = net();
    assert_eq!(compiled(folder.path(), &net, &["--ranks", "2"]).code, 0);
    let model = folder.path().join("m.sdx");
    let arguments = ["run", model.to_str().unwrap(), "--input", "x=zeros", "--dim", "n=2", "--links", "1ms,1G"];
    for start in starts().into_iter().filter(|start| matches!(start, Start::Mpi(_))) {
        let outcome = Outcome::run(&mut started(start, 2, &arguments));
        assert_ne!(outcome.code, 0, "{start:?}");
        assert!(outcome.stderr.contains("slower ones are not acted out"), "{start:?}: {}", outcome.stderr);
    }
}
