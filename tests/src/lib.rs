//! What the suites share: our programs, small ONNX models, prepared models, damaged bytes, the workspace's sources

pub mod damage;
pub mod metadata;
pub mod onnx;
pub mod prepared;
pub mod programs;
pub mod schemas;
pub mod sdx;
pub mod sources;
pub mod wire;
