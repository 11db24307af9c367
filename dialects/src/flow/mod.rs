//! The data-movement level: containers, kernels with a fused scalar body, and explicit memlets

pub mod kernel;

pub use kernel::{Body, Kernel, Memlet, Statement, Store};
