//! `compile --sparsify`, and zeros that are in the file: what is pruned, what is left out, and what is refused

use super::*;

/// Rows of the input, and rows and columns of each matrix.
const ROWS: i64 = 128;
const N: i64 = 256;

/// y = max(x · w, 0) · v, of matrices of which one number in `one_in` is not 0.
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
    // It loads, which makes the self-test.
    assert!(f.good(&["run", "p.sdx", "--input", "x=random"]).contains("y f32 [128, 256]"));
    assert!(f.good(&["inspect", "p.sdx"]).contains("\nprecision   sparsify=global:0.95\n"));
    let (code, message) = f.bad(&["compile", "m.onnx", "--sparsify", "1:4", "--error-budget", "0.01", "-o", "no.sdx"]);
    assert!(code == 2 && message.contains("E0501") && !exists(&f.path("no.sdx")), "{message}");
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
    let both = ["compile", "m.onnx", "--sparsify", "2:4", "--quantize", "int4", "--calibrate", "random"];
    let (code, message) = f.bad(&both);
    assert!(code == 2 && message.contains("`--sparsify` and `--calibrate` are not for one compilation"), "{message}");
}
