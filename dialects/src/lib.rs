//! The levels of the IR: the data structures of each level, and their reference semantics

use mlir_link as _;

pub mod flow;
mod hooks;
pub mod interp;
pub mod mlir;
pub mod params;
pub mod plan;
pub mod scalar;
pub mod sdx;
mod verify;
