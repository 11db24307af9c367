//! compile --calibrate: accepted data, errors reported for each layer, and refusals

use super::compile::{N, two_wide_layers};
use super::*;
use sardonyx::onnx::proto::AttributeProto;

/// Returns two rows of correlated elements: a sine wave plus small noise.
fn rows(wave: f32) -> Vec<f32> {
    (0..2 * N).map(|i| (wave * (i % N) as f32).sin() + 0.1 * ((i * 37 % 11) as f32 / 11.0 - 0.5)).collect()
}

pub fn tensor(name: &str, dims: &[i64], values: Vec<f32>) -> TensorProto {
    TensorProto { name: name.into(), data_type: 1, dims: dims.to_vec(), float_data: values, ..Default::default() }
}

impl Folder {
    /// Writes the input of one call as `DIR/input_0.pb`.
    pub fn data(&self, dir: &str, input: TensorProto) {
        std::fs::create_dir_all(self.path(dir)).unwrap();
        std::fs::write(self.path(dir).join("input_0.pb"), input.encode_to_vec()).unwrap();
    }
}

#[test]
fn weights_are_rounded_by_what_they_are_multiplied_with() {
    let f = Folder::with(two_wide_layers());
    for (i, wave) in [0.1, 0.17, 0.31, 0.02].into_iter().enumerate() {
        f.data(&format!("data/set_{i}"), tensor("x", &[2, N as i64], rows(wave)));
    }
    let int4 = ["compile", "m.onnx", "--quantize", "int4", "--activations", "f32", "--calibrate", "data"];
    let with = |more: &[&'static str]| [&int4[..], more].concat();
    let out = f.good(&with(&["-o", "q.sdx"]));
    assert!(out.contains("\nprecision: int4 calibrated group=32 activations=f32 factors in 2 launches\n"), "{out}");
    assert!(out.contains("\ncalibrated: ") && out.contains(", int4 by 80: "), "{out}");
    assert!(f.good(&["inspect", "q.sdx"]).contains("\nprecision   int4 calibrated group=32 activations=f32\n"));
    let report = f.json(&with(&["-o", "again.sdx", "--json"]));
    assert_eq!(std::fs::read(f.path("q.sdx")).unwrap(), std::fs::read(f.path("again.sdx")).unwrap());
    let layers = report["layers"].as_array().unwrap();
    let error = |layer: usize, what: &str| layers[layer][what].as_f64().unwrap();
    assert_eq!((layers.len(), &layers[0]["precision"], &layers[1]["precision"]), (2, &"int4".into(), &"int8".into()));
    // Eight calibration rows for K = 80 leave the later weights much freedom to compensate for the rounding of earlier
    // ones.
    assert!(error(0, "weight_error") > 0.05 && error(0, "error") < 0.5 * error(0, "weight_error"), "{layers:?}");
    f.good(&["run", "q.sdx", "--input", "x=random"]);
    let random = f.good(&[&int4[..6], &["--calibrate", "random"]].concat());
    assert!(random.contains("precision: int4 calibrated=random group=32"), "{random}");
}

#[test]
fn data_that_the_model_does_not_take_is_refused() {
    let f = Folder::with(two_wide_layers());
    std::fs::create_dir(f.path("empty")).unwrap();
    f.data("name", tensor("z", &[2, N as i64], rows(0.1)));
    f.data("size", tensor("x", &[1, 2], vec![1.0, 2.0]));
    f.data("nan", tensor("x", &[2, N as i64], vec![f32::NAN; 2 * N]));
    f.data("type", TensorProto { data_type: 7, int64_data: vec![1; 2 * N], ..tensor("x", &[2, N as i64], vec![]) });
    std::fs::write(f.path("no.npz"), b"no archive").unwrap();
    let refused = |codes: &str, data: &str| f.bad(&["compile", "m.onnx", "--quantize", codes, "--calibrate", data]);
    for (data, code, what) in [
        ("gone", "E0002", "gone"),
        ("empty", "E0002", "the folder holds no `.npz` file and no data set"),
        ("name", "E0301", "`z`"),
        ("size", "E0301", "the value of `x` has the dimensions [1, 2]"),
        ("nan", "E0301", "element 0 of `x` is NaN"),
        ("type", "E0301", "the value of `x` is i64"),
        ("no.npz", "E0302", "not a .npz file"),
    ] {
        let (status, message) = refused("int4", data);
        assert!(status == 2 && message.starts_with(&format!("error[{code}]")), "{data}: {message}");
        assert!(message.contains(what) && message.contains(data), "{message}");
    }
    f.data("good", tensor("x", &[2, N as i64], rows(0.1)));
    let (status, message) = refused("int8", "good");
    assert!(status == 2 && message.contains("rows of activations have scales of their own"), "{message}");
    let (status, message) = refused("lossless", "good");
    assert!(status == 2 && message.contains("`--calibrate` is for int8, int4, int3, fp8"), "{message}");
    assert!(!exists(&f.path("m.sdx")));
}

#[test]
fn layers_are_chosen_by_what_the_outputs_lose() {
    let f = Folder::with(two_wide_layers());
    for i in 0..5 {
        f.data(&format!("data/set_{i}"), tensor("x", &[2, N as i64], rows(0.1 + 0.07 * i as f32)));
    }
    let auto = |budget: &'static str| {
        f.json(&["compile", "m.onnx", "--quantize", "auto", "--calibrate", "data", "--error-budget", budget, "--json"])
    };
    let (mut bytes, mut error) = (u64::MAX, 0.0);
    for budget in ["0.03", "0.06", "0.9"] {
        let report = auto(budget);
        assert_eq!(report["precision"]["measured_on"], "1 calls that nothing was rounded by");
        let measured = report["precision"]["errors"][0]["relative_l2"].as_f64().unwrap();
        assert!(measured <= budget.parse().unwrap() && measured >= error, "{budget}: {measured}");
        let now = report["layers"].as_array().unwrap().iter().map(|l| l["bytes"].as_u64().unwrap()).sum();
        assert!(now <= bytes, "{budget}: {now} bytes");
        (bytes, error) = (now, measured);
    }
    assert!(bytes < (N * N * 2) as u64, "one layer of 4 bits, one of 8: {bytes}");
    let with =
        |more: &[&'static str]| f.bad(&[&["compile", "m.onnx", "-o", "no.sdx", "--quantize", "auto"], more].concat());
    let (status, message) = with(&["--calibrate", "data", "--error-budget", "1e-9"]);
    assert!(status == 2 && message.starts_with("error[E0501]: nothing can be rounded so that"), "{message}");
    assert!(message.contains("these layers lose most: "), "{message}");
    let (status, message) = with(&["--calibrate", "data/set_0", "--error-budget", "0.1"]);
    assert!(status == 2 && message.starts_with("error[E0301]: one call is not enough"), "{message}");
    for less in [&["--calibrate", "data"][..], &["--error-budget", "0.1"]] {
        let (status, message) = with(less);
        assert!(status == 2 && message.contains("help: give `--calibrate DATA` and `--error-budget X`"), "{message}");
    }
    assert!(!exists(&f.path("no.sdx")));
}

/// The score command is first called for the f32 artifact, to which it gives the score 1. It gives 0.25 to the next two
/// candidates, and 1 to all later ones.
#[test]
fn layers_are_chosen_by_what_a_command_says() {
    let f = Folder::with(two_wide_layers());
    for i in 0..3 {
        f.data(&format!("data/set_{i}"), tensor("x", &[2, N as i64], rows(0.1 + 0.07 * i as f32)));
    }
    let command = "test -s {} && echo {} >> calls; case $(wc -l < calls) in 2|3) echo 0.25;; *) echo 1;; esac";
    let auto = |score: &str, drop: &str, to: &str| {
        let auto = ["compile", "m.onnx", "--quantize", "auto", "--calibrate", "data", "-o", to, "--json"];
        f.run(&[&auto[..], &["--score", score, "--drop", drop]].concat())
    };
    let report = |drop: &str| {
        let out = auto(command, drop, "q.sdx");
        let report: serde_json::Value =
            serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", text(&out.stderr)));
        let bytes: u64 = report["layers"].as_array().unwrap().iter().map(|l| l["bytes"].as_u64().unwrap()).sum();
        let calls = std::fs::read_to_string(f.path("calls")).unwrap().lines().count();
        std::fs::remove_file(f.path("calls")).unwrap();
        (report["scores"].clone(), calls, bytes)
    };
    let (scores, calls, bytes) = report("0.5");
    assert_eq!((scores, calls), (serde_json::json!([1.0, 1.0]), 4));
    let (scores, calls, fewer) = report("0.75");
    assert_eq!((scores, calls), (serde_json::json!([1.0, 0.25]), 2));
    assert!(fewer < bytes, "{fewer} {bytes}");
    assert!(exists(&f.path("q.sdx")));
    let out = auto("echo no texts in {} >&2; false", "0.5", "no.sdx");
    let message = text(&out.stderr);
    assert!(out.status.code() == Some(2) && !exists(&f.path("no.sdx")), "{message}");
    assert!(message.contains("gives no score") && message.contains("no texts"), "{message}");
}

/// Returns a graph of a padded 3x3 convolution from 8 to 64 channels, a ReLU, and a 1x1 convolution.
fn two_convolutions() -> GraphProto {
    let weights = |name: &str, dims: [i64; 4], step: usize| {
        let n = dims.iter().product::<i64>() as usize;
        tensor(name, &dims, (0..n).map(|i| ((i * step) % 101) as f32 / 500.0 - 0.1).collect())
    };
    let ints = |name: &str, ints: &[i64]| AttributeProto {
        name: name.into(),
        r#type: 7,
        ints: ints.to_vec(),
        ..Default::default()
    };
    GraphProto {
        node: vec![
            NodeProto { attribute: vec![ints("pads", &[1; 4])], ..node("Conv", "x w", "wide") },
            node("Relu", "wide", "r"),
            node("Conv", "r v", "y"),
        ],
        initializer: vec![weights("w", [64, 8, 3, 3], 7), weights("v", [64, 64, 1, 1], 13)],
        input: vec![f32_value("x", &[1, 8, 12, 12])],
        output: vec![f32_value("y", &[1, 64, 12, 12])],
        ..Default::default()
    }
}

/// An int8 convolution has one scale for its whole input, taken from the calibration data.
#[test]
fn convolutions_multiply_bytes_by_ranges_from_data() {
    let f = Folder::with(two_convolutions());
    // The amplitude covers the range of the inputs on which errors are measured.
    let wave = |step: f32| (0..8 * 144).map(|i| 4.0 * (step * i as f32).sin()).collect();
    for (i, step) in [0.3, 0.7].into_iter().enumerate() {
        f.data(&format!("data/set_{i}"), tensor("x", &[1, 8, 12, 12], wave(step)));
    }
    let out = f.good(&["compile", "m.onnx", "--quantize", "int8", "--calibrate", "data", "-o", "q.sdx"]);
    assert!(out.contains("\nprecision: int8 calibrated factors in 2 launches\n"), "{out}");
    let report = f.json(&["compile", "m.onnx", "--quantize", "int8", "--calibrate", "data", "-o", "r.sdx", "--json"]);
    assert_eq!(std::fs::read(f.path("q.sdx")).unwrap(), std::fs::read(f.path("r.sdx")).unwrap());
    let relative = report["precision"]["errors"][0]["relative_l2"].as_f64().unwrap();
    assert!(relative > 1e-4 && relative < 0.05, "{relative}");
    let without = f.good(&["compile", "m.onnx", "--quantize", "int8", "-o", "p.sdx", "--remarks", "quantize"]);
    assert!(without.contains("it needs one scale, from `--calibrate`"), "{without}");
}
