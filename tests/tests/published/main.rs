//! kernels that others have published  =>  executed by ptxvm: their numbers, and every finding explained
//!
//! `cargo xtask test --suite published` fetches the packages and runs these. Nothing of the packages is in this repository:
//! what a kernel computes is told here by a plain reference, and how it is launched by the package's own declarations.

mod fusedtok;
mod mojolearn;
mod numbers;
mod pyptx;
mod vm;
