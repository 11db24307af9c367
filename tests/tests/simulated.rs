//! models compiled for GPUs, on a simulated one  =>  the expected outputs, no findings, no host operations;
//! models compiled for CPU and GPU  =>  the same CPU code as without the GPU

use sardonyx_format::artifact::{Artifact, Verify};
use sardonyx_tests::prepared::{data_sets, model};
use sardonyx_tests::programs::{Outcome, compile, program};
use std::path::Path;
use std::process::Command;

/// Compiles for GPUs alone and checks the data sets on the simulated one, as users do.
fn check(name: &str, sets: usize) {
    let folder = tempfile::tempdir().unwrap();
    let artifact = folder.path().join("m.sdx");
    compile(&model(name), &artifact, &["--target", "cuda:sm_80", "--no-entries"]);
    check_artifact(name, sets, &artifact);
}

fn check_artifact(name: &str, sets: usize, artifact: &Path) {
    let mut command = Command::new(program("sardonyx-run"));
    command.arg("check").arg(artifact).args(["--device", "sim:sm_80", "--data"]);
    let done = Outcome::run(command.args(&data_sets(name)[..sets]));
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

#[test]
fn minilm_of_bf16_for_both() {
    let folder = tempfile::tempdir().unwrap();
    let artifact = folder.path().join("m.sdx");
    let name = "skel_minilm_l6_safetensors";
    compile(&model(name), &artifact, &["--target", "cpu", "--target", "cuda:sm_80", "--precision", "bf16"]);
    check_artifact(name, 1, &artifact);
    let mut command = Command::new(program("sardonyx-run"));
    let done = Outcome::run(command.arg("check").arg(&artifact).arg("--data").args(&data_sets(name)[..1]));
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
}

/// Quantises MiniLM for both devices. The error of the outputs on the GPU is about as small as on the CPU.
fn check_codes(options: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let (name, artifact) = ("skel_minilm_l6_safetensors", folder.path().join("m.sdx"));
    let targets = ["--no-entries", "--target", "cpu", "--target", "cuda:sm_80", "--quantize"];
    compile(&model(name), &artifact, &[&targets[..], options].concat());
    let relative = |device: &str| {
        let mut command = Command::new(program("sardonyx-run"));
        command.arg("check").arg(&artifact).args(["--device", device, "--relative", "0.3", "--data"]);
        let done = Outcome::run(command.args(&data_sets(name)[..1]));
        assert_eq!(done.code, 0, "{options:?}: {}{}", done.stdout, done.stderr);
        assert!(device == "cpu" || done.stdout.contains(": 0 findings, 0 host operations, "), "{}", done.stdout);
        let (_, rest) = done.stdout.split_once("relative (L2) ").expect("the error is printed");
        rest.split(',').next().and_then(|number| number.parse::<f64>().ok()).expect("a number")
    };
    let [cpu, gpu] = ["cpu", "sim:sm_80"].map(relative);
    assert!(gpu <= 1.1 * cpu, "{options:?}: {gpu} on the GPU, {cpu} on the CPU");
}

#[test]
fn minilm_of_int8_for_both() {
    check_codes(&["int8"]);
}

#[test]
fn minilm_of_int4_for_both() {
    check_codes(&["int4"]);
}

#[test]
fn minilm_of_int4_with_f32_activations_for_both() {
    check_codes(&["int4", "--activations", "f32"]);
}

/// Prunes MiniLM and runs it on a simulated GPU. Returns the output, and whether the code has the instruction.
fn pruned(target: &str, rule: &str, options: &[&str], instruction: &str) -> (Vec<u8>, bool) {
    let folder = tempfile::tempdir().unwrap();
    let artifact = folder.path().join("m.sdx");
    let targets = ["--no-entries", "--no-selftest", "--sparsify", rule, "--target", &format!("cuda:{target}")];
    compile(&model("skel_minilm_l6_safetensors"), &artifact, &[&targets[..], options].concat());
    let mut command = Command::new(program("sardonyx-run"));
    command.arg("run").arg(&artifact).args(["--device", &format!("sim:{target}"), "--output-dir"]).arg(folder.path());
    command.args(["--dim", "batch=1", "--dim", "seq=19", "--input", "input_ids=range:0..30000"]);
    command.args(["--input", "attention_mask=range:1..1", "--input", "token_type_ids=zeros"]);
    let done = Outcome::run(&mut command);
    assert_eq!(done.code, 0, "{target} {options:?}: {}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains(": 0 findings, 0 host operations, "), "{target} {options:?}: {}", done.stdout);
    let code = std::fs::read(&artifact).unwrap();
    let is_there = code.windows(instruction.len()).any(|part| part == instruction.as_bytes());
    (std::fs::read(folder.path().join("last_hidden_state.npy")).unwrap(), is_there)
}

#[test]
fn zeros_of_2_4_bytes_are_skipped_exactly() {
    let (skipped, is_sparse) = pruned("sm_80", "2:4", &["--quantize", "int8"], "mma.sp.");
    let (multiplied, is_dense) = pruned("sm_80", "2:4", &["--quantize", "int8", "--sparsity", "off"], "mma.sp.");
    assert!(is_sparse && !is_dense && skipped == multiplied);
}

#[test]
fn zeros_of_2_4_bf16_are_skipped_by_warps_as_by_warpgroups() {
    let (by_warps, has_mma) = pruned("sm_80", "2:4", &["--precision", "bf16"], "mma.sp.");
    let (by_warpgroups, has_wgmma) = pruned("sm_90a", "2:4", &["--precision", "bf16"], "wgmma.mma_async.sp.");
    assert!(has_mma && has_wgmma && by_warps == by_warpgroups);
}

/// The order of additions differs from that of the dense products.
#[test]
fn vectors_of_eight_rows_are_multiplied() {
    let outputs = ["auto", "off"].map(|sparsity| {
        let options = ["--precision", "bf16", "--sparsity", sparsity];
        let (file, _) = pruned("sm_80", "block:0.9,8x1", &options, "mma.sync.");
        let elements = file[file.len() - 4 * 19 * 384..].chunks_exact(4);
        elements.map(|e| f32::from_le_bytes(e.try_into().unwrap())).collect::<Vec<f32>>()
    });
    let norm = |all: &mut dyn Iterator<Item = f32>| all.map(|v| f64::from(v).powi(2)).sum::<f64>().sqrt();
    let [skipped, multiplied] = &outputs;
    let apart = norm(&mut skipped.iter().zip(multiplied).map(|(a, b)| a - b)) / norm(&mut multiplied.iter().copied());
    assert!(apart > 0.0 && apart < 2e-3, "{apart}");
}

/// Winograd's algorithm for convolutions and the removal of masked rows do not exist for GPUs, but the CPU keeps both.
#[test]
fn naming_a_gpu_takes_nothing_from_the_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let compiled = |name: &str, arguments: &[&str]| {
        let artifact = folder.path().join("m.sdx");
        compile(&model(name), &artifact, &[arguments, &["--masked-rows", "zero"]].concat());
        Artifact::open(&artifact, Verify::Lazy).unwrap()
    };
    let plain: &[&str] = &[];
    for (name, options) in [
        ("light_squeezenet_seeded", plain),
        ("skel_minilm_l6_dyn18", plain),
        ("skel_minilm_l6_dyn18", &["--quantize", "int8"]),
        ("skel_minilm_l6_dyn18", &["--quantize", "int4"]),
    ] {
        let alone = compiled(name, options);
        let both = compiled(name, &[options, &["--target", "cpu", "--target", "cuda:sm_80"]].concat());
        assert!(alone.code == both.code && alone.plan == both.plan, "{name}");
        assert!(alone.plans.is_empty() && both.plan_of("gpu") != &both.plan, "{name}");
    }
}
