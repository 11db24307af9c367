//! model.sdx  =>  outputs: the file format, devices, sessions. Knows nothing of ONNX models, MLIR or LLVM.

pub mod artifact;
pub mod dim;
pub mod dtype;
pub mod error;
pub mod file;
pub mod plan;
pub mod tensor;
pub mod tensor_io;
pub mod widen;

pub use dim::Dim;
pub use dtype::DType;
pub use error::{Error, Fault, Result};
pub use tensor::Tensor;
