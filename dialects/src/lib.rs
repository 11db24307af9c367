//! The levels of the IR: what a program is made of, at each level, and what it means

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
