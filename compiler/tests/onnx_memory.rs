//! A model with one tensor of 768 MiB is read within 50 MB of anonymous memory

use prost::Message;
use sardonyx::onnx::proto::*;
use sardonyx::onnx::read_model;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, Ordering};

const TENSOR_BYTES: u64 = 768 << 20;
const ANONYMOUS_KB_MAX: u64 = 50_000;

fn anonymous_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("RssAnon:")).expect("RssAnon in /proc/self/status");
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Tag and length of a field that wraps `inner_bytes` bytes.
fn wrapped(tag: u8, inner_bytes: u64) -> Vec<u8> {
    let mut out = vec![tag << 3 | 2];
    prost::encoding::encode_varint(inner_bytes, &mut out);
    out
}

/// Writes everything but the payload, which is a hole in the file except for its last element.
fn write_model(file: &mut File) {
    let n = TENSOR_BYTES as i64 / 4;
    let tensor = TensorProto { dims: vec![n], data_type: 1, name: "w".into(), ..Default::default() };
    let value = type_proto::Tensor { elem_type: 1, shape: None };
    let value = TypeProto { value: Some(type_proto::Value::TensorType(value)) };
    let x = |name: &str| ValueInfoProto { name: name.into(), r#type: Some(value.clone()) };
    let add = NodeProto {
        op_type: "Add".into(),
        input: vec!["x".into(), "w".into()],
        output: vec!["y".into()],
        ..Default::default()
    };
    let graph = GraphProto { input: vec![x("x")], output: vec![x("y")], node: vec![add], ..Default::default() };
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 17 }];
    let model = ModelProto { ir_version: 8, opset_import, ..Default::default() };

    let raw = wrapped(9, TENSOR_BYTES);
    let tensor = tensor.encode_to_vec();
    let tensor_bytes = (tensor.len() + raw.len()) as u64 + TENSOR_BYTES;
    let initializer = wrapped(5, tensor_bytes);
    let graph = graph.encode_to_vec();
    let graph_bytes = (graph.len() + initializer.len()) as u64 + tensor_bytes;
    for part in [model.encode_to_vec(), wrapped(7, graph_bytes), graph, initializer, tensor, raw] {
        file.write_all(&part).unwrap();
    }
    file.seek(SeekFrom::Current(TENSOR_BYTES as i64 - 4)).unwrap();
    file.write_all(&1.5f32.to_le_bytes()).unwrap();
}

#[test]
fn a_large_raw_tensor_stays_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    write_model(&mut File::create(&path).unwrap());

    let done = AtomicBool::new(false);
    let before = anonymous_kb();
    let (model, peak) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut peak = 0;
            while !done.load(Ordering::Relaxed) {
                peak = peak.max(anonymous_kb());
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            peak.max(anonymous_kb())
        });
        let model = read_model(&path);
        done.store(true, Ordering::Relaxed);
        (model, watch.join().unwrap())
    });
    let model = model.unwrap();
    let tensor = &model.graph.initializers[0].data;
    assert_eq!(tensor.bytes().len() as u64, TENSOR_BYTES);
    assert_eq!(tensor.get_f64(tensor.len() - 1), Some(1.5));
    // The memory from before the read belongs to the process and its libraries.
    assert!(peak.saturating_sub(before) < ANONYMOUS_KB_MAX, "{peak} kB anonymous at the peak, {before} kB before");
    eprintln!("{peak} kB anonymous at the peak, {before} kB before");
}
