//! model.sdx  =>  outputs: the file format, devices, sessions. Knows nothing of ONNX models, MLIR or LLVM.

pub mod artifact;
mod bind;
mod code;
pub mod commands;
pub mod compare;
pub mod cpu;
pub mod dim;
pub mod dtype;
pub mod error;
pub mod file;
mod memory;
mod model;
pub mod plan;
mod pool;
pub mod program;
mod session;
mod shape;
pub mod tensor;
pub mod tensor_io;
pub mod widen;

pub use artifact::{Artifact, ArtifactWriter, Verify};
pub use dim::Dim;
pub use dtype::DType;
pub use error::{Error, Fault, Result};
pub use model::{LoadOptions, Model};
pub use session::{Session, SessionOptions};
pub use tensor::Tensor;
