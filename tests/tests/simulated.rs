//! models compiled for GPUs, on a simulated one  =>  the expected outputs, nothing found, nothing left to the host

use sardonyx_tests::prepared::{data_sets, model};
use sardonyx_tests::programs::{Outcome, compile, program};
use std::process::Command;

/// Compiles for GPUs alone and checks the data sets on the simulated one, as users do.
fn check(name: &str, sets: usize) {
    let folder = tempfile::tempdir().unwrap();
    let artifact = folder.path().join("m.sdx");
    compile(&model(name), &artifact, &["--target", "cuda:sm_80", "--no-entries"]);
    let mut command = Command::new(program("sardonyx-run"));
    command.arg("check").arg(&artifact).args(["--device", "sim:sm_80", "--data"]);
    let done = Outcome::of(command.args(&data_sets(name)[..sets]));
    assert_eq!(done.code, 0, "{name}: {}{}", done.stdout, done.stderr);
    let lines: Vec<&str> = done.stdout.lines().rev().take(2).collect();
    assert_eq!(lines[1], format!("{sets} passed, 0 failed"));
    assert!(lines[0].starts_with("device sim:sm_80: 0 findings, 0 host operations, "), "{}", lines[0]);
    println!("{name}: {}", lines[0]);
}

#[test]
fn minilm() {
    check("skel_minilm_l6_safetensors", 1);
}

#[test]
fn albert() {
    check("rxnmapper_albert_ts17", 1);
}

#[test]
fn llama() {
    check("skel_llama_tiny_kv_dyn23", 1);
}
