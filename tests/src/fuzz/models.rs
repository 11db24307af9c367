//! the bytes of an ONNX model  =>  read, or compiled

use super::refused;
use crate::damage::{Random, damaged};
use crate::onnx::{encoder, small};
use crate::schemas::MODEL;
use crate::wire::Tree;
use bytes::Bytes;
use sardonyx::compile::{Request, compile};
use sardonyx::onnx::parse_model;
use std::cell::LazyCell;
use tempfile::TempDir;

/// Reads a model without its external data.
pub fn read(bytes: &[u8]) {
    if let Err(e) = parse_model(Bytes::copy_from_slice(bytes)) {
        refused(&e);
    }
}

/// Compiles a model from a file in this thread's temporary folder. If the model is refused, no artifact may be left
/// there.
pub fn compiled(bytes: &[u8]) {
    thread_local! {
        static FOLDER: LazyCell<TempDir> = LazyCell::new(|| tempfile::tempdir().expect("a temporary folder"));
    }
    FOLDER.with(|folder| {
        let (model, output) = (folder.path().join("model.onnx"), folder.path().join("out.sdx"));
        std::fs::write(&model, bytes).expect("a temporary folder takes a model");
        let _ = std::fs::remove_file(&output);
        match compile(&Request::new(&model, &output)) {
            Ok(_) => assert!(output.is_file()),
            Err(e) => {
                refused(&e);
                assert!(!output.exists() && e.remedy().is_some() && e.file.is_some(), "{e}");
            }
        }
    });
}

/// Strings that have a meaning in models.
static WORDS: &[&str] = &[
    "",
    "Add",
    "MatMul",
    "Reshape",
    "Concat",
    "If",
    "Loop",
    "Scan",
    "Constant",
    "ConstantOfShape",
    "Expand",
    "Attention",
    "Conv",
    "ConvTranspose",
    "MaxPool",
    "AveragePool",
    "Resize",
    "Slice",
    "Pad",
    "Gather",
    "GatherND",
    "ScatterND",
    "TopK",
    "Split",
    "Squeeze",
    "Unsqueeze",
    "Tile",
    "Transpose",
    "Softmax",
    "ReduceSum",
    "ArgMax",
    "CumSum",
    "Cast",
    "Range",
    "NonZero",
    "Unique",
    "LSTM",
    "GRU",
    "Einsum",
    "Gemm",
    "LayerNormalization",
    "QuantizeLinear",
    "DequantizeLinear",
    "SequenceConstruct",
    "Optional",
    "StringConcat",
    "com.microsoft",
    "ai.onnx.ml",
    "axis",
    "axes",
    "perm",
    "value",
    "kernel_shape",
    "strides",
    "pads",
    "equation",
    "body",
    "then_branch",
    "to",
    "batch",
    "seq",
    "x",
    "y",
    "w.bin",
];

/// Mutates the protobuf messages of a model. In one of eight cases, or if the bytes are not a model, damages bytes
/// instead.
pub fn mutant(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    match Tree::parse(&MODEL, bytes) {
        Some(mut tree) if random.below(8) > 0 => {
            for _ in 0..1 + random.below(3) {
                tree.mutate(random, WORDS, random.0.is_multiple_of(5));
            }
            tree.encode()
        }
        _ if bytes.is_empty() => vec![0],
        _ => damaged(bytes, random),
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    vec![small().bytes(), encoder().bytes()]
}
