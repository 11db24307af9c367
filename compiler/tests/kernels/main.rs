//! Kernels as machine code against the interpreter, on every variant that this CPU executes

mod build;
mod contract;
mod harness;
mod map;
mod normalise;
mod object;
mod ptx;
mod ptx_forms;
mod ptx_movement;
mod scalar;
