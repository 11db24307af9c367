//! stages of a pipeline, each on its own ranks  =>  the results of one rank

use super::places::{compiled, pair};
use super::{Start, started, starts};
use sardonyx_base::DType::I64;
use sardonyx_base::Tensor;
use sardonyx_format::tensor_io::save_npy;
use sardonyx_tests::onnx::Net;
use sardonyx_tests::programs::Outcome;
use std::path::Path;

/// The two products of `pair`, which become two stages; the second stage also looks up a row of its product.
fn net() -> Net {
    let mut net = pair(1, &[]).input("row", I64, "");
    net.model.configuration.clear();
    net = net.node("look", "Gather", "y row", "z");
    net.graph().output.clear();
    net.output("z")
}

/// Runs the model. Returns the bytes of the output, or the text of the error.
fn run(folder: &Path, start: Start, ranks: usize, rows: usize, row: i64) -> Result<Vec<u8>, String> {
    let at = |name: &str| folder.join(name).to_str().unwrap().to_string();
    let x: Vec<f32> = (0..rows * 12).map(|i| (i % 11) as f32 - 5.0).collect();
    save_npy(at("x.npy"), &Tensor::from_vec(vec![rows, 12], x)).unwrap();
    save_npy(at("row.npy"), &Tensor::from_vec(vec![], vec![row])).unwrap();
    let inputs = ["x", "row"].map(|name| format!("{name}={}", at(&format!("{name}.npy"))));
    let (model, out) = (at("m.sdx"), at("out"));
    let arguments = ["run", &model, "--input", &inputs[0], "--input", &inputs[1], "--output-dir", &out];
    let outcome = Outcome::run(&mut started(start, ranks, &arguments));
    if outcome.code != 0 { Err(outcome.stderr) } else { Ok(std::fs::read(folder.join("out/z.npy")).unwrap()) }
}

#[test]
fn stages_give_what_one_rank_gives() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(compiled(folder.path(), &net(), &["--ranks", "1"]).code, 0);
    let wanted = [1, 5].map(|rows| run(folder.path(), Start::Threads, 1, rows, 0).unwrap());
    let plan = folder.path().join("plan.toml");
    for (mesh, ranks, micro_batches) in [("2", 2, 1), ("2", 2, 3), ("2, 2", 4, 2)] {
        let pipeline = format!("[pipeline]\nbegins = ['second']\nmicro_batches = {micro_batches}\n");
        std::fs::write(&plan, format!("mesh = [{mesh}]\n{pipeline}")).unwrap();
        let outcome = compiled(folder.path(), &net(), &["--plan", plan.to_str().unwrap()]);
        assert_eq!(outcome.code, 0, "{}", outcome.stderr);
        let count = |what: &str| outcome.stdout.matches(&format!("host: {what} mesh=0")).count();
        let sends = count("Send") + count("begin Send");
        assert!(sends > micro_batches, "{}", outcome.stdout);
        for start in starts() {
            // Sums of small integers are exact in any order.
            let got = [1, 5].map(|rows| run(folder.path(), start, ranks, rows, 0).unwrap());
            assert_eq!(got, wanted, "{mesh} in {micro_batches}, {start:?}");
        }
    }
}

/// The first rank does not compute what only the second rank needs, so only the second rank reports the index out of
/// range.
#[test]
fn a_rank_runs_its_stage_alone() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    std::fs::write(&plan, "mesh = [2]\nseeds = false\n[pipeline]\nbegins = ['second']\n").unwrap();
    let outcome = compiled(folder.path(), &net(), &["--plan", plan.to_str().unwrap()]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    for start in starts() {
        let error = run(folder.path(), start, 2, 5, 7).unwrap_err();
        assert!(error.starts_with("error[E0303]: rank 1: "), "{start:?}: {error}");
    }
}
