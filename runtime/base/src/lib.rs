//! Definitions that compiler and runtime share: dimensions, types, tensors, errors, plan, host operations, CPU levels
//!
//! This is the only crate on which the runtime, the IR and the passes all depend, apart from external libraries. It
//! accesses no file and no device.

pub mod compare;
pub mod cpu;
pub mod dim;
pub mod dtype;
pub mod encoding;
pub mod error;
pub mod hash;
pub mod host;
pub mod json;
pub mod minifloat;
pub mod packed;
pub mod parallel;
pub mod plan;
pub mod random;
pub mod reduction;
pub mod schedule;
pub mod solve;
pub mod strings;
pub mod tensor;
pub mod usual;
pub mod value;
pub mod view;
pub mod widen;

pub use dim::Dim;
pub use dtype::DType;
pub use encoding::Encoding;
pub use error::{Error, ErrorKind, Fault, Result};
pub use host::HostOp;
pub use tensor::Tensor;
pub use value::{Kind, Value};
pub use view::{TensorBuffer, TensorView};
