//! The data-movement level: containers, kernels with a fused scalar body, and explicit memlets

pub mod check;
pub mod ir;
pub mod kernel;
pub mod prepared;
pub mod program;
pub mod sparse;
pub mod transform;

pub use kernel::{Body, Class, Container, Kernel, Layout, Level, Memlet, Merging, Statement, Store};
pub use program::{FlowOp, Program, Source, State, Step, TensorValue, Window};
pub use sardonyx_base::plan::{HostCall, HostResult};
pub use transform::Transform;
