//! What the suites share: our programs, small ONNX models, prepared and cut models, damaged bytes, the sources

pub mod cut;
pub mod damage;
pub mod metadata;
pub mod onnx;
pub mod prepared;
pub mod programs;
pub mod sources;
