//! models as exporters write them  =>  compiled with symbolic dimensions, their data sets within the tolerance

use sardonyx_tests::checked::checked;
use sardonyx_tests::prepared::{LARGE, model, prepared};
use sardonyx_tests::programs::{Outcome, program};
use std::process::Command;

/// One test per model, so that they run in parallel.
macro_rules! models {
    ($($name:ident)*) => {
        static MODELS: &[&str] = &[$(stringify!($name)),*];

        mod data_sets_pass {
            $(#[test]
            fn $name() {
                super::check(stringify!($name));
            })*
        }
    };
}

models! {
    light_densenet121_seeded
    light_resnet50_seeded
    light_squeezenet_seeded
    rxnmapper_albert_ts17
    sk_diabetes_gbr
    sk_digits_rf
    sk_digits_scaler_logreg
    skel_efficientnet_b0_rand_ts17
    skel_gpt2_tiny_kv_dyn18
    skel_gpt2_tiny_kv_ts17
    skel_llama_tiny_kv_dyn18
    skel_llama_tiny_kv_dyn23
    skel_llama_tiny_kv_ortopt
    skel_llama_tiny_kv_ts17
    skel_minilm_l6_dyn18
    skel_minilm_l6_dyn23
    skel_minilm_l6_safetensors
    skel_minilm_l6_ts11
    skel_minilm_l6_ts14
    skel_resnet50_rand_ts17
    skel_vit_small_rand_ts17
}

fn check(name: &str) {
    let outcome = checked(name);
    let text = outcome.as_ref().unwrap_or_else(|text| text);
    let shown: Vec<&str> = text.lines().map(|l| l.rsplit('/').next().unwrap_or(l)).collect();
    println!("{name}: {}", shown.join("; "));
    assert!(outcome.is_ok(), "{name}: {}", shown.join(" "));
}

/// Largest value of an error over all outputs of all data sets.
fn largest(report: &serde_json::Value, error: impl Fn(&serde_json::Value) -> Option<f64>) -> f64 {
    let sets = report["sets"].as_array().into_iter().flatten();
    let outputs = sets.flat_map(|set| set["outputs"].as_array().into_iter().flatten());
    let errors = outputs.map(|output| error(output).unwrap_or_else(|| panic!("no error in {output}")));
    errors.reduce(f64::max).unwrap_or_else(|| panic!("no outputs in {report}"))
}

/// The programs compared round f32 equally often but add in different orders: chance explains errors that differ by a
/// small factor, and only a worse algorithm explains a larger factor.
#[test]
fn errors_are_of_the_size_of_onnx_runtimes() {
    for name in
        ["skel_gpt2_tiny_kv_dyn18", "skel_llama_tiny_kv_ts17", "skel_minilm_l6_dyn18", "skel_vit_small_rand_ts17"]
    {
        let mut command = Command::new(program("sardonyx"));
        command.arg("check").arg(model(name)).arg("--data").arg(prepared(name)).arg("--json");
        let done = Outcome::run(&mut command);
        assert_eq!(done.code, 0, "{name}: {}{}", done.stdout, done.stderr);
        let report = serde_json::from_str(&done.stdout).unwrap();
        let ours = largest(&report, |output| output["interpreter"]["compiled"]["max_abs_error"].as_f64());
        let theirs = largest(&report, |output| output["interpreter"]["max_abs_error"].as_f64());
        println!("{name}: {ours:.1e} from the interpreter, ONNX Runtime {theirs:.1e}");
        assert!(ours <= 10.0 * theirs, "{name}: {ours:e} from the interpreter, ONNX Runtime only {theirs:e}");
    }
}

#[test]
fn the_table_is_sorted_and_complete() {
    assert!(MODELS.windows(2).all(|w| w[0] < w[1]));
    let folder = sardonyx_tests::prepared::workspace().join("target/models");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{e}: run `cargo xtask models`"));
    for entry in entries.map(|e| e.unwrap().path()).filter(|p| p.join("model.onnx").is_file()) {
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        let known = MODELS.contains(&name.as_str()) || LARGE.contains(&name.as_str());
        assert!(known, "{name} is not in the table");
    }
}
