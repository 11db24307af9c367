//! a model, the name of an inner value  =>  the part of the model that computes the value, beside the same weights

use prost::Message;
use sardonyx::onnx::proto::{ModelProto, ValueInfoProto};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Writes `model.onnx` into `folder`, with `output` as its only output, and links the weights into the folder.
pub fn cut(model: &Path, output: &str, folder: &Path) -> PathBuf {
    let bytes = std::fs::read(model).expect("the model can be read");
    let mut model_proto = ModelProto::decode(bytes.as_slice()).expect("it is a model");
    let graph = model_proto.graph.as_mut().expect("it has a graph");
    let mut needed = BTreeSet::from([output.to_string()]);
    let mut kept = vec![];
    // Nodes are in topological order, so from the end backwards, all users of a node come before it.
    for node in std::mem::take(&mut graph.node).into_iter().rev() {
        if node.output.iter().any(|o| needed.contains(o)) {
            needed.extend(node.input.iter().cloned());
            kept.push(node);
        }
    }
    assert!(!kept.is_empty(), "no node computes {output}");
    graph.node = kept.into_iter().rev().collect();
    graph.initializer.retain(|t| needed.contains(&t.name));
    graph.output = vec![ValueInfoProto { name: output.into(), r#type: None }];
    let path = folder.join("model.onnx");
    std::fs::write(&path, model_proto.encode_to_vec()).expect("the folder can be written");
    link_weights(model, folder);
    path
}

/// Makes hard links, because symbolic ones would lead out of the model's folder; copies if links are impossible.
fn link_weights(model: &Path, folder: &Path) {
    let entries = std::fs::read_dir(model.parent().expect("a file lies in a folder")).expect("the folder can be read");
    for from in entries.map(|e| e.expect("an entry").path()).filter(|p| p.is_file() && p != model) {
        let to = folder.join(from.file_name().expect("a file has a name"));
        if std::fs::hard_link(&from, &to).is_err() {
            std::fs::copy(&from, &to).expect("weights can be copied");
        }
    }
}
