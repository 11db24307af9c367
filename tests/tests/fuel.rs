//! a model compiled with only its first N rewrites  =>  an artifact that loads and computes the same

use sardonyx::compile::{Request, compile};
use sardonyx::pipeline::STAGES;
use sardonyx_base::Tensor;
use sardonyx_passes::{Options, PASSES};
use sardonyx_runtime::{Model, SessionOptions};
use sardonyx_tests::prepared::model;
use sardonyx_tests::trust::trusted;
use std::path::Path;

/// Compiles a MiniLM encoder with at most `fuel` rewrites. Returns its outputs for fixed tokens, the number of applied
/// rewrites, and the number of launches of its first entry point.
fn outputs(folder: &Path, fuel: Option<usize>) -> (Vec<(String, Tensor)>, usize, usize) {
    let path = folder.join("model.sdx");
    let model = model("skel_minilm_l6_dyn18");
    let mut request = Request::new(&model, &path);
    request.options = Options { fuel, ..Options::default() };
    let report = compile(&request).unwrap();
    let launches = report.summary.unwrap().first.entries[0].launches;
    let loaded = Model::load(&path, &trusted()).unwrap();
    let session = loaded.session(&SessionOptions::default()).unwrap();
    let tokens = |value: &dyn Fn(i64) -> i64| Tensor::from_vec(vec![1, 5], (0..5).map(value).collect::<Vec<i64>>());
    let given = |name: &str| match name.contains("mask") {
        true => tokens(&|_| 1),
        false if name.contains("type") => tokens(&|_| 0),
        false => tokens(&|i| 101 + 997 * i),
    };
    let names: Vec<String> = loaded.entry("main").unwrap().inputs.iter().map(|i| i.name.clone()).collect();
    let inputs: Vec<(&str, Tensor)> = names.iter().map(|n| (n.as_str(), given(n))).collect();
    (session.run(&inputs).unwrap().into(), report.rewrites.applied().len(), launches)
}

#[test]
fn any_fuel_gives_a_model_that_computes_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (wanted, all, launches) = outputs(folder.path(), None);
    let mut before = usize::MAX;
    for fuel in [0, all / 2] {
        let (got, applied, left) = outputs(folder.path(), Some(fuel));
        assert_eq!(applied, fuel);
        assert!(left <= before && left > launches, "{left} launches with {fuel} of {all} rewrites");
        before = left;
        for ((name, want), (_, got)) in wanted.iter().zip(&got) {
            let far = |i: &usize| (want.get_f64(*i).unwrap() - got.get_f64(*i).unwrap()).abs() > 1e-4;
            assert_eq!((0..want.len()).find(far), None, "{name} with {fuel} of {all} rewrites");
        }
    }
    assert!(all > 300, "only {all} rewrites");
}

#[test]
fn the_passes_that_need_no_fuel_are_the_lowerings() {
    let names: Vec<&str> = PASSES.iter().filter(|p| p.is_lowering).map(|p| p.name).collect();
    assert_eq!(
        names,
        [
            "onnx-to-sdx",
            "narrow-caches",
            "shard",
            "sdx-to-flow",
            "widen-halves",
            "schedule",
            "plan-memory",
            "lower-kernels"
        ]
    );
    let in_stages = |name: &&str| STAGES.iter().any(|(_, passes)| passes.split(',').any(|p| p == *name));
    assert!(names.iter().all(in_stages));
}
