//! kernels for GPUs with each tile that they can have  =>  equal results; files of measured tiles  =>  the code they name

use sardonyx_base::Tensor;
use sardonyx_format::artifact::{Artifact, Verify};
use sardonyx_runtime::{DeviceName, Model, SessionOptions};
use sardonyx_tests::prepared::model;
use sardonyx_tests::programs::{Outcome, compile, program};
use sardonyx_tests::trust::trusted;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const NAME: &str = "skel_llama_tiny_kv_ts17";

fn compiled(path: &Path, target: &str, options: &[&str]) {
    let common = ["--no-entries", "--no-selftest", "--target", &format!("cuda:{target}")];
    compile(&model(NAME), path, &[&common[..], options].concat());
}

/// Loads the artifact for a simulated GPU, with one of its candidates.
fn load(path: &Path, target: &str, candidate: usize) -> Model {
    Model::load(path, &trusted().device(DeviceName::Sim(target.into())).candidate(candidate)).unwrap()
}

/// Runs the model on the simulated GPU, which may find nothing. Returns the outputs.
fn run(model: &Model) -> Vec<(String, Tensor)> {
    let inputs = sardonyx_run::synthetic_inputs(model, "main", &["batch=1".into(), "seq=18".into(), "past=1".into()]);
    let inputs = inputs.unwrap();
    let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let session = model.session(&SessionOptions::default().threads(2)).unwrap();
    let outputs = session.run(&inputs).unwrap().to_vec();
    let report = model.device_report().unwrap();
    assert!(report.findings.is_empty() && report.launches > 0, "{}", report.text());
    outputs
}

/// An element is accumulated in the same order with every tile.
fn every_tile_gives_the_same_bits(target: &str, options: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.sdx");
    compiled(&path, target, &[&["--tune-candidates"], options].concat());
    let first = load(&path, target, 0);
    let (expected, n) = (run(&first), first.candidates());
    let tiles: BTreeSet<&str> =
        first.program().kernels.iter().flat_map(|kernel| &kernel.targets).map(|target| target.tile.as_str()).collect();
    assert!(n > 3 && tiles.len() > 3, "{n}: {tiles:?}");
    for i in 1..n {
        assert_eq!(run(&load(&path, target, i)), expected, "{target} {options:?}: candidate {i} of {n}");
    }
}

#[test]
fn every_tile_of_warps_gives_the_same_bits() {
    every_tile_gives_the_same_bits("sm_80", &[]);
}

#[test]
fn every_tile_of_bytes_gives_the_same_bits() {
    every_tile_gives_the_same_bits("sm_80", &["--quantize", "int8"]);
}

#[test]
fn every_tile_of_warps_and_warpgroups_gives_the_same_bits() {
    every_tile_gives_the_same_bits("sm_90a", &["--precision", "bf16"]);
}

fn ptx(path: &Path, target: &str) -> String {
    let artifact = Artifact::open(path, Verify::Full).unwrap();
    let (_, text) = artifact.ptx.iter().find(|(name, _)| name == target).expect("there is such code");
    String::from_utf8(text.to_vec()).unwrap()
}

#[test]
fn a_lock_names_the_tiles() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    compiled(&path("candidates.sdx"), "sm_80", &["--tune-candidates"]);
    let candidates = load(&path("candidates.sdx"), "sm_80", 0);
    let kernels = &candidates.program().kernels;
    let tiled: Vec<usize> = (0..kernels.len()).filter(|k| !kernels[*k].targets[0].key.is_empty()).collect();
    let lock = |name: &str, tile: &dyn Fn(usize) -> String| {
        let one = |k: &usize| {
            let key = &kernels[*k].targets[0].key;
            format!("[[kernel]]\ntarget = \"sm_80\"\nkey = \"{key}\"\ntile = \"{}\"\n", tile(*k))
        };
        let text: String = tiled.iter().map(one).collect();
        std::fs::write(path(name), format!("version = 1\n{text}")).unwrap();
        path(name).to_str().unwrap().to_string()
    };
    let tile = |i: usize| move |k: usize| kernels[k].targets[i].tile.clone();
    let locks = [lock("0.lock", &tile(0)), lock("1.lock", &tile(1))];
    let tuned: Vec<Vec<u8>> = locks
        .iter()
        .zip(["0.sdx", "1.sdx"])
        .map(|(lock, name)| {
            compiled(&path(name), "sm_80", &["--tune", lock]);
            compiled(&path("again.sdx"), "sm_80", &["--tune", lock]);
            let bytes = std::fs::read(path(name)).unwrap();
            assert!(bytes == std::fs::read(path("again.sdx")).unwrap(), "{name} is not reproducible");
            bytes
        })
        .collect();
    compiled(&path("plain.sdx"), "sm_80", &[]);
    assert!(tuned[0] == std::fs::read(path("plain.sdx")).unwrap() && tuned[1] != tuned[0]);
    // The code is that of the candidate, which differs in the declarations of the kernels at its end.
    let code = |text: String| text.split_once("// sardonyx_kernels").map(|(code, _)| code.to_string()).unwrap();
    assert_eq!(code(ptx(&path("1.sdx"), "sm_80")), code(ptx(&path("candidates.sdx"), "sm_80~1")));

    let compile = |lock: &str, output: &str| {
        let mut command = Command::new(program("sardonyx"));
        command.arg("compile").arg(model(NAME)).args(["--no-entries", "--target", "cuda:sm_80", "--tune", lock, "-o"]);
        Outcome::run(command.arg(path(output)))
    };
    let unknown = compile(&lock("2.lock", &|_| "warps-7x7x7".into()), "none.sdx");
    assert!(unknown.code == 2 && unknown.stderr.contains("error[E0110]"), "{}", unknown.stderr);
    assert!(unknown.stderr.contains(", node /m/") && !path("none.sdx").exists(), "{}", unknown.stderr);
    let (said, all) = (compile(&locks[1], "said.sdx"), kernels.len());
    let line = format!("tiles: {} of {all} kernels for sm_80 have the tile that was the fastest", tiled.len());
    assert!(said.stdout.contains(&line), "{}", said.stdout);
    // A file of another target or model changes nothing.
    std::fs::write(path("3.lock"), "version = 1\n[[kernel]]\ntarget = \"sm_80\"\nkey = \"0\"\ntile = \"x\"\n").unwrap();
    let other = compile(path("3.lock").to_str().unwrap(), "other.sdx");
    assert!(other.stdout.contains(&format!("tiles: 0 of {all} kernels")), "{}", other.stdout);
}
