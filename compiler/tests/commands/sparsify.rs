//! `compile --sparsify`, and zeros already in the model: what is pruned, what is skipped, and refusals

use super::calibrate::tensor;
use super::*;

/// Number of rows of the input; `N` is the number of rows and of columns of each matrix.
const ROWS: i64 = 128;
const N: i64 = 256;

/// y = max(x · w, 0) · v, where one of every `one_in` elements of w and of v is not 0.
fn two_products(one_in: usize) -> GraphProto {
    let matrix = |name: &str, step: usize| {
        let value = |i: usize| if i.is_multiple_of(one_in) { ((i * step) % 101) as f32 / 101.0 - 0.5 } else { 0.0 };
        let values = (0..(N * N) as usize).map(value).collect();
        TensorProto { name: name.into(), data_type: 1, dims: vec![N, N], float_data: values, ..Default::default() }
    };
    let nodes = vec![node("MatMul", "x w", "t"), node("Relu", "t", "r"), node("MatMul", "r v", "y")];
    GraphProto {
        initializer: vec![matrix("w", 7), matrix("v", 13)],
        input: vec![f32_value("x", &[ROWS, N])],
        output: vec![f32_value("y", &[ROWS, N])],
        ..graph("", "", nodes)
    }
}

#[test]
fn the_smallest_weights_are_left_out_and_what_that_costs_is_measured() {
    let f = Folder::with(two_products(1));
    let out = f.good(&["compile", "m.onnx", "--sparsify", "global:0.95", "-o", "p.sdx", "--list-rewrites"]);
    assert!(
        out.contains("skip-zeros: words, in main, at ") && out.contains("\nprecision: sparsify=global:0.95 "),
        "{out}"
    );
    assert!(out.contains("pruned: weights 0.") && !out.contains("self-test: none"), "{out}");
    let report = f.json(&["compile", "m.onnx", "--sparsify", "global:0.95", "-o", "again.sdx", "--json"]);
    assert_eq!(std::fs::read(f.path("p.sdx")).unwrap(), std::fs::read(f.path("again.sdx")).unwrap());
    let relative = report["precision"]["errors"][0]["relative_l2"].as_f64().unwrap();
    assert!(relative > 0.1 && relative < 1.5, "{relative}");
    let zeros: Vec<f64> = report["pruned"].as_array().unwrap().iter().map(|p| p["zeros"].as_f64().unwrap()).collect();
    assert!(zeros.len() == 2 && (zeros[0] + zeros[1] - 1.9).abs() < 1e-3, "{zeros:?}");
    // Loading the artifact runs its self-test.
    assert!(f.good(&["run", "p.sdx", "--input", "x=random"]).contains("y f32 [128, 256]"));
    assert!(f.good(&["inspect", "p.sdx"]).contains("\nprecision   sparsify=global:0.95\n"));
    let (code, message) = f.bad(&["compile", "m.onnx", "--sparsify", "1:4", "--error-budget", "0.01", "-o", "no.sdx"]);
    assert!(code == 2 && message.contains("E0501") && !exists(&f.path("no.sdx")), "{message}");
}

/// An input with correlated columns of different amplitudes.
fn waves(wave: f32) -> TensorProto {
    let value = |row: f32, column: f32| (1.0 + column % 7.0) * (wave * row + 0.05 * column).sin();
    let values = (0..ROWS * N).map(|at| value((at / N) as f32, (at % N) as f32) + 0.1 * ((at * 37 % 11) as f32 / 11.0));
    tensor("x", &[ROWS, N], values.collect())
}

#[test]
fn weights_are_pruned_by_what_they_are_multiplied_with() {
    let f = Folder::with(two_products(1));
    [0.1, 0.17, 0.31].into_iter().enumerate().for_each(|(i, wave)| f.data(&format!("data/set_{i}"), waves(wave)));
    for rule in ["2:4", "global:0.5"] {
        let report = |saliency: &str| {
            let prune = ["compile", "m.onnx", "--sparsify", rule, "--calibrate", "data", "-o", "p.sdx", "--json"];
            let report = f.json(&[&prune[..], &["--saliency", saliency]].concat());
            assert_eq!(report["precision"]["measured_on"], "3 calls of the data");
            let pruned = report["pruned"].as_array().unwrap().clone();
            assert!(pruned.len() == 2 && pruned.iter().all(|p| p["zeros"].as_f64().unwrap() > 0.45), "{pruned:?}");
            let errors: Vec<f64> = pruned.iter().map(|p| p["error"].as_f64().unwrap()).collect();
            (report["precision"]["errors"][0]["relative_l2"].as_f64().unwrap(), errors)
        };
        let (magnitude, of_magnitude) = report("magnitude");
        let (obd, _) = report("obd");
        let (obs, of_obs) = report("obs");
        assert!(obs < 0.5 * magnitude && obs < obd, "{rule}: {obs} {obd} {magnitude}");
        assert!(of_obs[0] < of_magnitude[0] && of_obs[1] < of_magnitude[1], "{rule}: {of_obs:?} {of_magnitude:?}");
    }
    // When only the last product is pruned, its error is the error of the output.
    let both = f.json(&["compile", "m.onnx", "--sparsify", "2:4", "-o", "l.sdx", "--json"]);
    let rule = format!("{}=2:4", both["pruned"][1]["origins"][0].as_str().unwrap());
    let report = f.json(&["compile", "m.onnx", "--sparsify", &rule, "--calibrate", "data", "-o", "l.sdx", "--json"]);
    let (output, product) = (&report["precision"]["errors"][0]["relative_l2"], &report["pruned"][0]["error"]);
    let [output, product] = [output, product].map(|error| error.as_f64().unwrap());
    assert!((output - product).abs() < 1e-4 * product, "{output} {product}");
    let by_default = ["compile", "m.onnx", "--sparsify", "2:4", "--calibrate", "data"];
    let with = |more: &[&'static str]| [&by_default[..], more].concat();
    let out = f.good(&with(&["-o", "d.sdx"]));
    assert!(
        out.contains("\nprecision: sparsify=2:4 saliency=obs ") && out.contains(" off on the data, weights 0."),
        "{out}"
    );
    assert!(f.good(&["inspect", "d.sdx"]).contains("\nprecision   sparsify=2:4 saliency=obs\n"));
    f.good(&with(&["--saliency", "obs", "-o", "s.sdx"]));
    assert_eq!(std::fs::read(f.path("d.sdx")).unwrap(), std::fs::read(f.path("s.sdx")).unwrap());
    f.good(&["run", "d.sdx", "--input", "x=random"]);
    let (code, message) = f.bad(&with(&["--error-budget", "1e-6", "-o", "no.sdx"]));
    assert!(code == 2 && message.contains("E0501") && !exists(&f.path("no.sdx")), "{message}");
    assert!(message.contains("these layers lose most by `--sparsify`: "), "{message}");
}

#[test]
fn weights_that_stay_are_rounded_by_data_and_zeros_are_codes_of_0() {
    let f = Folder::with(two_products(1));
    [0.1, 0.17, 0.31].into_iter().enumerate().for_each(|(i, wave)| f.data(&format!("data/set_{i}"), waves(wave)));
    let error = |more: &[&'static str]| {
        let prune = ["compile", "m.onnx", "--sparsify", "2:4", "-o", "q.sdx", "--json", "--calibrate", "data"];
        let report = f.json(&[&prune[..], more].concat());
        f.good(&["run", "q.sdx", "--input", "x=random"]);
        let n_layers = report["layers"].as_array().map_or(0, Vec::len);
        (report["precision"]["errors"][0]["relative_l2"].as_f64().unwrap(), n_layers)
    };
    let int4 = ["--quantize", "int4", "--activations", "f32", "--saliency"];
    let (pruned, n_layers) = error(&[]);
    assert_eq!(n_layers, 0);
    let (obs, n_layers) = error(&[&int4[..], &["obs"]].concat());
    assert_eq!(n_layers, 2);
    let (magnitude, _) = error(&[&int4[..], &["magnitude"]].concat());
    assert!(pruned < obs && obs < 0.7 * magnitude, "{pruned} {obs} {magnitude}");
    // int8 gives each row of activations its own scale, so the data is used for pruning only.
    let (_, n_layers) = error(&["--quantize", "int8"]);
    assert_eq!(n_layers, 0);
}

#[test]
fn zeros_that_are_in_the_file_wait_for_finite_numbers() {
    let f = Folder::with(two_products(20));
    let told = f.good(&["compile", "m.onnx", "-o", "dense.sdx"]);
    assert!(
        told.contains("remark[skip-zeros]: zeros are multiplied") && told.contains("help: `--assume-finite`"),
        "{told}"
    );
    let out = f.good(&["compile", "m.onnx", "--assume-finite", "-o", "sparse.sdx", "--list-rewrites"]);
    assert_eq!(out.matches("skip-zeros: words").count(), 2, "{out}");
    f.good(&["compile", "m.onnx", "--sparsity", "off", "-o", "off.sdx"]);
    assert_eq!(std::fs::read(f.path("dense.sdx")).unwrap(), std::fs::read(f.path("off.sdx")).unwrap());
    let bytes = |name: &str| f.json(&["inspect", name, "--json"])["constants_bytes"].as_u64().unwrap();
    assert!(bytes("sparse.sdx") * 10 < bytes("dense.sdx"), "{} {}", bytes("sparse.sdx"), bytes("dense.sdx"));
    let f = Folder::with(two_products(1));
    let told = f.good(&["compile", "m.onnx", "--assume-finite", "-o", "dense.sdx", "--list-rewrites"]);
    assert!(!told.contains("skip-zeros"), "{told}");
}

#[test]
fn groups_are_stored_by_their_patterns() {
    let f = Folder::with(two_products(1));
    let out = f.good(&["compile", "m.onnx", "--sparsify", "1:4:16", "-o", "g.sdx", "--list-rewrites"]);
    assert_eq!(out.matches("skip-zeros: groups, in main, at ").count(), 2, "{out}");
    f.good(&["compile", "m.onnx", "-o", "dense.sdx"]);
    let bytes = |name: &str| f.json(&["inspect", name, "--json"])["constants_bytes"].as_u64().unwrap() as f64;
    let part = bytes("g.sdx") / bytes("dense.sdx");
    assert!(part < 0.35, "{part}");
    assert!(f.good(&["run", "g.sdx", "--input", "x=random"]).contains("y f32 [128, 256]"));
}

/// y = dequantised x · dequantised w; one of every `one_in` words of w, four bytes of a column along K, is not 0.
fn quantised_product(one_in: usize) -> GraphProto {
    let scalar = |name: &str, data_type: i32, raw_data: Vec<u8>| TensorProto {
        name: name.into(),
        data_type,
        raw_data: raw_data.into(),
        ..Default::default()
    };
    let byte = |i: usize| {
        let word = i / N as usize / 4 * N as usize + i % N as usize;
        if word.is_multiple_of(one_in) { (i * 37 % 255) as u8 } else { 0 }
    };
    let w = TensorProto { dims: vec![N, N], ..scalar("w", 3, (0..(N * N) as usize).map(byte).collect()) };
    let scales: Vec<u8> = (0..N).flat_map(|i| (0.01 + i as f32 / 1e4).to_le_bytes()).collect();
    let nodes = vec![
        node("QuantizeLinear", "x xs xz", "q"),
        node("DequantizeLinear", "q xs xz", "d"),
        node("DequantizeLinear", "w ws wz", "v"),
        node("MatMul", "d v", "y"),
    ];
    GraphProto {
        initializer: vec![
            w,
            TensorProto { dims: vec![N], ..scalar("ws", 1, scales) },
            TensorProto { dims: vec![N], ..scalar("wz", 3, vec![0; N as usize]) },
            scalar("xs", 1, 0.02f32.to_le_bytes().to_vec()),
            scalar("xz", 2, vec![120]),
        ],
        input: vec![f32_value("x", &[ROWS, N])],
        output: vec![f32_value("y", &[ROWS, N])],
        ..graph("", "", nodes)
    }
}

/// Runs the artifact on a random input and returns the bytes of the output file.
fn result(f: &Folder, artifact: &str) -> Vec<u8> {
    let folder = artifact.replace('.', "-");
    f.good(&["run", artifact, "--input", "x=random", "--output-dir", &folder]);
    std::fs::read(f.path(&format!("{folder}/y.npy"))).unwrap()
}

#[test]
fn words_of_bytes_that_are_0_are_left_out_by_themselves_and_sums_are_the_same() {
    let f = Folder::with(quantised_product(7));
    let out = f.good(&["compile", "m.onnx", "-o", "sparse.sdx", "--list-rewrites"]);
    assert_eq!(out.matches("skip-zeros: quads, in main, at ").count(), 1, "{out}");
    f.good(&["compile", "m.onnx", "--sparsity", "off", "-o", "dense.sdx"]);
    assert_eq!(result(&f, "sparse.sdx"), result(&f, "dense.sdx"));
}

#[test]
fn codes_of_pruned_weights_are_left_out_too() {
    let f = Folder::with(two_products(1));
    let prune = ["compile", "m.onnx", "--sparsify", "block:0.8,1x4", "--quantize", "int8", "--list-rewrites", "-o"];
    let out = f.good(&[&prune[..], &["sparse.sdx"]].concat());
    assert_eq!(out.matches("skip-zeros: quads, in main, at ").count(), 2, "{out}");
    f.good(&[&prune[..], &["dense.sdx", "--sparsity", "off"]].concat());
    assert_eq!(result(&f, "sparse.sdx"), result(&f, "dense.sdx"));
}

#[test]
fn rules_that_say_nothing_are_refused() {
    let f = Folder::with(two_products(1));
    for (rule, what) in [
        ("2:0", "`2:0` is no rule"),
        ("5:4", "`5:4` is no rule"),
        ("global:1.5", "`1.5` is no part of the weights"),
        ("(=2:4", "open group without closing"),
        ("no such node=2:4", "is for no product that has weights of its own"),
    ] {
        let (code, message) = f.bad(&["compile", "m.onnx", "--sparsify", rule, "-o", "no.sdx"]);
        assert!(code == 2 && message.contains("E0001") && message.contains(what), "{rule}: {message}");
        assert!(!exists(&f.path("no.sdx")));
    }
    let auto = ["--quantize", "auto", "--calibrate", "random", "--error-budget", "0.5"];
    let (code, message) = f.bad(&[&["compile", "m.onnx", "--sparsify", "2:4"], &auto[..]].concat());
    assert!(code == 2 && message.contains("`--quantize auto` is not for `--sparsify`"), "{message}");
    for saliency in ["obd", "obs"] {
        let (code, message) = f.bad(&["compile", "m.onnx", "--sparsify", "2:4", "--saliency", saliency]);
        let needed = format!("error[E0001]: `--saliency {saliency}` needs data that weights are multiplied with");
        assert!(code == 2 && message.contains(&needed) && message.contains("help: give inputs"), "{message}");
    }
    let (code, message) = f.bad(&["compile", "m.onnx", "--saliency", "magnitude"]);
    assert!(code == 2 && message.contains("--sparsify"), "{message}");
    let (code, message) = f.bad(&["compile", "m.onnx", "--calibrate", "random"]);
    assert!(code == 2 && message.contains("or `--sparsify`"), "{message}");
    assert!(!exists(&f.path("m.sdx")));
}
