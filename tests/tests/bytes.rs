//! models that compute with bytes  =>  the results of their definition, through tables and exact matrix products

use sardonyx::compile::{Report, Request, compile};
use sardonyx::onnx::proto::TensorProto;
use sardonyx_base::{DType, Tensor};
use sardonyx_runtime::{Model, SessionOptions};
use sardonyx_tests::onnx::Net;
use sardonyx_tests::trust::trusted;

fn compiled(net: &Net) -> (Model, Report) {
    let folder = tempfile::tempdir().unwrap();
    let (source, path) = (folder.path().join("model.onnx"), folder.path().join("model.sdx"));
    std::fs::write(&source, net.bytes()).unwrap();
    let report = compile(&Request { selftest: false, ..Request::new(&source, &path) }).unwrap();
    (Model::load(&path, &trusted()).unwrap(), report)
}

fn run(model: &Model, inputs: &[(&str, Tensor)]) -> Vec<Tensor> {
    let session = model.session(&SessionOptions::default().threads(2)).unwrap();
    session.run(inputs).unwrap().to_vec().into_iter().map(|(_, tensor)| tensor).collect()
}

fn count(report: &Report, pass: &str, rule: &str) -> usize {
    report.rewrites.applied().iter().filter(|r| r.pass == pass && r.rule == rule).count()
}

fn scalar(name: &str, dtype: DType, value: f32) -> TensorProto {
    let data_type = dtype.onnx_code();
    let (float_data, int32_data) = match dtype {
        DType::F32 => (vec![value], vec![]),
        _ => (vec![], vec![value as i32]),
    };
    TensorProto { name: name.into(), data_type, float_data, int32_data, ..TensorProto::default() }
}

const SCALES: [f32; 2] = [0.03, 0.009];
const ZEROS: [f32; 2] = [3.0, -5.0];

/// A model of two outputs: tanh(erf(d)) of dequantised bytes d, quantised to bytes; and d · tanh(erf(d)) in f32.
fn activation(dtype: DType) -> Net {
    Net::new()
        .input("x", dtype, "rows 37")
        .tensor(scalar("s", DType::F32, SCALES[0]))
        .tensor(scalar("z", dtype, ZEROS[0].max(if dtype == DType::U8 { 0.0 } else { f32::MIN })))
        .tensor(scalar("t", DType::F32, SCALES[1]))
        .tensor(scalar("o", dtype, if dtype == DType::U8 { 100.0 } else { ZEROS[1] }))
        .node("from", "DequantizeLinear", "x s z", "d")
        .node("erf", "Erf", "d", "g")
        .node("tanh", "Tanh", "g", "e")
        .node("to", "QuantizeLinear", "e t o", "q")
        .node("mul", "Mul", "e d", "f")
        .output("q")
        .output("f")
}

#[test]
fn functions_of_a_byte_are_looked_up() {
    for dtype in [DType::U8, DType::I8] {
        let (model, report) = compiled(&activation(dtype));
        assert!(count(&report, "tabulate", "table") > 0, "{dtype}");
        // The 7 x 37 elements contain every byte, and a row is no multiple of a vector.
        let rows = 7;
        let (low, zero) = if dtype == DType::U8 { (0, 100.0) } else { (-128, f64::from(ZEROS[1])) };
        let bytes: Vec<i32> = (0..rows * 37).map(|i| low + i % 256).collect();
        let dims = vec![rows as usize, 37];
        let x = match dtype {
            DType::U8 => Tensor::from_vec(dims, bytes.iter().map(|b| *b as u8).collect::<Vec<u8>>()),
            _ => Tensor::from_vec(dims, bytes.iter().map(|b| *b as i8).collect::<Vec<i8>>()),
        };
        let outputs = run(&model, &[("x", x)]);
        for (i, byte) in bytes.iter().enumerate() {
            let d = f64::from(SCALES[0]) * f64::from(*byte as f32 - ZEROS[0]);
            let e = libm::erf(d).tanh();
            let quantised =
                ((e / f64::from(SCALES[1])).round_ties_even() + zero).clamp(f64::from(low), f64::from(low + 255));
            assert_eq!(outputs[0].get_f64(i), Some(quantised), "{dtype} {byte}");
            let product = outputs[1].get_f64(i).unwrap();
            assert!((product - e * d).abs() <= 1e-6 * d.abs().max(1.0), "{dtype} {byte}: {product}");
        }
    }
}

/// A model that multiplies two matrices of bytes, less their zero points, over `k` terms.
fn product(k: usize) -> Net {
    Net::new()
        .input("a", DType::U8, &format!("rows {k}"))
        .input("b", DType::I8, &format!("{k} 19"))
        .tensor(scalar("y", DType::U8, 7.0))
        .tensor(scalar("z", DType::I8, -3.0))
        .node("product", "MatMulInteger", "a b y z", "c")
        .output("c")
}

#[test]
fn products_of_two_activations_in_bytes_are_exact() {
    // The factors are at most 248 and 130, so f32 sums are exact up to 2^24 / (248 * 130) = 520 terms.
    for (k, in_f32) in [(1, true), (64, true), (500, true), (600, false)] {
        let (model, report) = compiled(&product(k));
        assert_eq!(count(&report, "simplify", "bounded-products") > 0, in_f32, "{k}");
        let rows = 21;
        // Most factors have the largest value, so that the sums are near their bound.
        let a: Vec<u8> = (0..rows * k).map(|i| if i % 5 == 0 { (i * 31 % 251) as u8 } else { 255 }).collect();
        let b: Vec<i8> = (0..k * 19).map(|i| if i % 7 == 0 { (i * 17 % 253) as u8 as i8 } else { 127 }).collect();
        let expected: Vec<i32> = (0..rows * 19)
            .map(|at| {
                let (row, column) = (at / 19, at % 19);
                (0..k).map(|j| (i32::from(a[row * k + j]) - 7) * (i32::from(b[j * 19 + column]) + 3)).sum()
            })
            .collect();
        let inputs = [("a", Tensor::from_vec(vec![rows, k], a)), ("b", Tensor::from_vec(vec![k, 19], b))];
        assert_eq!(run(&model, &inputs)[0].to_vec::<i32>().unwrap(), expected, "{k}");
    }
}
