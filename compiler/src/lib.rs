//! model.onnx  =>  model.sdx: reading ONNX, the pipeline, machine code

pub mod codegen;
pub mod import;
pub mod onnx;
