//! checked("skel_minilm_l6_safetensors")  =>  the report of running the model, compiled with symbolic dimensions, on
//! its data sets

use crate::prepared::{data_sets, model};
use sardonyx::compile::{Request, compile};
use sardonyx_run::{DataArgs, check_model};
use sardonyx_runtime::{Model, SessionOptions};
use std::path::Path;

/// Convolutional nets with random weights. Their activations reach 10^3 and cancel in sums, so the tolerance of an
/// output is relative to its largest value.
static CONVOLUTION_NETS: [&str; 5] = [
    "light_densenet121_seeded",
    "light_resnet50_seeded",
    "light_squeezenet_seeded",
    "skel_efficientnet_b0_rand_ts17",
    "skel_resnet50_rand_ts17",
];

/// Compiles a model without `--dim`, so that no symbol is fixed, and runs it on its data sets. Returns the report of
/// the check, or the error.
pub fn checked(name: &str) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("m.sdx");
    compile(&Request::new(&model(name), &output)).map_err(|e| e.to_string())?;
    check_artifact(name, &output)
}

/// Runs an artifact of the model on the model's data sets. Returns the report; `Err` if loading or a call fails, an
/// output is outside the tolerance, or there is no data set.
pub fn check_artifact(name: &str, artifact: &Path) -> Result<String, String> {
    let loaded = Model::load(artifact, &crate::trust::trusted()).map_err(|e| format!("at load: {e}"))?;
    let session = loaded.session(&SessionOptions::default().threads(2)).unwrap();
    let sets = data_sets(name);
    let mut args = DataArgs::new(sets.clone());
    args.of_max = CONVOLUTION_NETS.contains(&name).then_some(1e-4);
    let mut text = vec![];
    let summary = check_model(&session, &args, None, &mut text).map_err(|e| format!("at the check: {e}"))?;
    let text = String::from_utf8_lossy(&text).into_owned();
    match (summary.passed, summary.failed) {
        (n, 0) if n == sets.len() && n > 0 => Ok(text),
        _ => Err(format!("at the check: {text}")),
    }
}
