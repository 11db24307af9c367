//! model.onnx  =>  model.sdx: reading ONNX, the pipeline, machine code

pub mod import;
pub mod onnx;
