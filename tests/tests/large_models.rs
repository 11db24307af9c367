//! BERT base and large  =>  their data sets within the tolerance, compiled within limits on time and memory;
//! a decoder of seven thousand nodes  =>  optimized within a time limit, with the same result each time
//!
//! The weights take gigabytes: `cargo xtask test --suite large-models` creates them, and runs this in a release build.

use prost::Message;
use sardonyx::onnx::proto::ModelProto;
use sardonyx_tests::checked::check_artifact;
use sardonyx_tests::deepened::Layers;
use sardonyx_tests::prepared::{LARGE, model, prepared};
use sardonyx_tests::programs::program;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Name, and limit in seconds on its compilation by a release build: seven times what an idle machine takes.
static MODELS: &[(&str, f64)] = &[
    ("skel_bert_base_rand_dyn18", 25.0),
    ("skel_bert_base_rand_ortopt", 25.0),
    ("skel_bert_base_rand_ts17", 25.0),
    ("skel_bert_large_rand_ts17", 60.0),
];

/// Limit on the optimization of the deep decoder by a release build: several times what an idle machine takes.
const DEEP_SECONDS_MAX: f64 = 40.0;

/// Limit on anonymous memory. Weights are streamed from file to file, so this does not grow with the model.
const ANONYMOUS_KB_MAX: u64 = 256 << 10;

#[test]
fn every_large_model_is_in_the_table() {
    assert_eq!(MODELS.iter().map(|(name, _)| *name).collect::<Vec<_>>(), LARGE);
}

#[test]
#[ignore = "gigabytes of weights: cargo xtask test --suite large-models"]
fn large_models_pass_in_time_and_memory() {
    let wrong: Vec<String> = MODELS.iter().filter_map(|(name, seconds)| verdict(name, *seconds).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The decoder contains the subgraphs that compute shapes; its layers share their weights.
#[test]
#[ignore = "takes a release build: cargo xtask test --suite large-models"]
fn a_decoder_of_seven_thousand_nodes_is_optimised_alike_each_time() {
    let small = prepared("skel_llama_tiny_kv_ts17");
    let proto = ModelProto::decode(&std::fs::read(small.join("model.onnx")).unwrap()[..]).unwrap();
    let states = &["past_key_values.", "present."];
    let layers = Layers { prefix: "/m/model/layers.", carried: "Add_1_output_0", states, n: 4 };
    let deep = layers.deepened(&proto, 33).unwrap();
    let n_nodes = deep.graph.as_ref().unwrap().node.len();
    assert!(n_nodes >= 7000, "{n_nodes} nodes");
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model.onnx");
    std::fs::write(&model, deep.encode_to_vec()).unwrap();
    std::fs::copy(small.join("weights.bin"), dir.path().join("weights.bin")).unwrap();
    let optimised = || {
        let mut command = Command::new(program("sardonyx"));
        command.arg("compile").arg(&model).arg("-o").arg(dir.path().join("unused.sdx"));
        let start = Instant::now();
        let done = command.args(["--stop-after", "schedule", "--print-after", "schedule"]).output().unwrap();
        let seconds = start.elapsed().as_secs_f64();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        println!("{n_nodes} nodes with their entry points: optimised in {seconds:.1} s");
        (done.stderr, seconds)
    };
    let [(one, first), (other, second)] = [optimised(), optimised()];
    assert!(String::from_utf8_lossy(&one).matches("plan.launch").count() > 600);
    assert!(one == other, "not the same twice");
    assert!(cfg!(debug_assertions) || first.min(second) < DEEP_SECONDS_MAX, "{first} s, {second} s");
}

fn verdict(name: &str, seconds_max: f64) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let artifact = dir.path().join("m.sdx");
    // Building the program does not count as compilation of the model.
    program("sardonyx");
    let start = Instant::now();
    let peak = compile_watched(name, &artifact)?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{name}: compiled in {seconds:.1} s, {peak} kB anonymous at the peak");
    print!("{}", check_artifact(name, &artifact).map_err(|e| format!("{name}: {e}"))?);
    // A debug build has no time limit.
    if !cfg!(debug_assertions) && seconds > seconds_max {
        return Err(format!("{name}: compiled in {seconds:.1} s, more than {seconds_max} s"));
    }
    match peak <= ANONYMOUS_KB_MAX {
        true => Ok(()),
        false => Err(format!("{name}: {peak} kB anonymous, more than {ANONYMOUS_KB_MAX} kB")),
    }
}

/// Compiles in a separate process. Returns the peak of its anonymous memory, in kB.
fn compile_watched(name: &str, artifact: &Path) -> Result<u64, String> {
    let mut command = Command::new(program("sardonyx"));
    command.arg("compile").arg(model(name)).arg("-o").arg(artifact);
    let mut child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let mut peak = 0;
    loop {
        // A process that has just ended no longer has this line.
        peak = peak.max(anonymous_kb(child.id()).unwrap_or(0));
        match child.try_wait().map_err(|e| format!("{command:?}: {e}"))? {
            None => std::thread::sleep(Duration::from_millis(2)),
            Some(status) if status.success() && peak > 0 => return Ok(peak),
            Some(status) => return Err(format!("{name}: {status}, {peak} kB anonymous")),
        }
    }
}

fn anonymous_kb(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|l| l.starts_with("RssAnon:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
