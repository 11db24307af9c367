//! check MODEL.onnx: compiled and interpreted results side by side

use super::*;
use sardonyx_base::Tensor;
use sardonyx_format::tensor_io::TensorProto as Saved;

/// The expected output of the model `layer` for the input `x`.
fn expected(x: &[f32]) -> Vec<f32> {
    let w = [1.0, 0.5, 0.0, -1.0, 2.0, 0.25, 0.0, 0.0, -3.0];
    let at = |i: usize, j: usize| (0..3).map(|k| x[3 * i + k] * w[3 * k + j]).sum::<f32>() + x[3 * i + j];
    (0..6).map(|n| at(n / 3, n % 3).max(0.0)).collect()
}

fn write_set(dir: &Path, x: &[f32], y: &[f32]) {
    std::fs::create_dir_all(dir).unwrap();
    for (file, name, values) in [("input_0.pb", "x", x), ("output_0.pb", "y", y)] {
        let tensor = Tensor::from_vec(vec![2, 3], values.to_vec());
        std::fs::write(dir.join(file), Saved::from_tensor(name, &tensor).to_bytes()).unwrap();
    }
}

fn folder() -> Folder {
    let f = Folder::with(layer());
    let x = [0.5, -1.0, 2.0, 3.0, 0.25, -0.75];
    write_set(&f.path("data/good"), &x, &expected(&x));
    f
}

#[test]
fn all_columns_are_there_and_the_model_is_left_alone() {
    let f = folder();
    let out = f.good(&["check", "m.onnx", "--data", "data"]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[1], "c to e     c to i     e to i     output");
    let row: Vec<&str> = lines[2].split_whitespace().collect();
    assert!(row[..3].iter().all(|column| column.parse::<f64>().unwrap() < 1e-6), "{out}");
    assert_eq!(row[3..6], ["data/good:", "y:", "ok,"]);
    assert_eq!(lines[3], "1 passed, 0 failed");
    assert_eq!(std::fs::read_dir(f.dir.path()).unwrap().count(), 2, "nothing was written beside the model");

    let out = f.good(&["check", "m.onnx", "--data", "data", "--no-interpreter"]);
    assert!(!out.contains("interpreter") && out.ends_with("1 passed, 0 failed\n"), "{out}");
    f.good(&["compile", "m.onnx"]);
    let artifact = f.good(&["check", "m.sdx", "--data", "data"]);
    assert_eq!(artifact, out);
}

#[test]
fn a_wrong_expectation_shows_in_its_columns_and_fails() {
    let f = folder();
    let x = [1.0; 6];
    let mut y = expected(&x);
    y[4] += 0.5;
    write_set(&f.path("data/wrong"), &x, &y);
    let done = f.run(&["check", "m.onnx", "--data", "data", "--json"]);
    assert_eq!(done.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&report["passed"], &report["failed"]), (&1.into(), &1.into()));
    let output = &report["sets"][1]["outputs"][0];
    assert_eq!((&output["passed"], &output["max_abs_error"]), (&false.into(), &0.5.into()));
    let interpreter = &output["interpreter"];
    assert_eq!((&interpreter["passed"], &interpreter["max_abs_error"]), (&false.into(), &0.5.into()));
    assert!(interpreter["compiled"]["max_abs_error"].as_f64().unwrap() < 1e-6);
    let text = text(&f.run(&["check", "m.onnx", "--data", "data"]).stdout);
    let row = text.lines().find(|l| l.contains("data/wrong: y: failed, ")).unwrap();
    let columns: Vec<f64> = row.split_whitespace().take(3).map(|c| c.parse().unwrap()).collect();
    assert!(columns[0] == 0.5 && columns[1] < 1e-6 && columns[2] == 0.5, "{text}");
    assert!(text.contains("; the interpreter: max abs error 5.000e-1, "), "{text}");
}

#[test]
fn mistakes_are_told_before_anything_is_compiled() {
    let f = folder();
    f.good(&["compile", "m.onnx"]);
    let (code, message) = f.bad(&["check", "m.sdx", "--data", "data", "--dim", "b=1"]);
    assert!(code == 2 && message.starts_with("error[E0001]: `--dim b=1` says how to compile"), "{message}");
    let (code, message) = f.bad(&["check", "m.onnx", "--data", "data", "--dim", "b=1"]);
    assert!(code == 2 && message.starts_with("error[E0204]: the model has no dimension symbol `b`"), "{message}");
    let (code, message) = f.bad(&["check", "none.onnx", "--data", "data"]);
    assert!(code == 2 && message.starts_with("error[E0002]: cannot read none.onnx"), "{message}");
    let (code, message) = f.bad(&["check", ".", "--data", "data"]);
    assert!(code == 2 && message.starts_with("error[E0002]: . is not a regular file"), "{message}");
}
