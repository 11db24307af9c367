//! published third-party kernels  =>  executed by ptxvm: their results, and every finding explained
//!
//! `cargo xtask test --suite published` fetches the packages and runs these tests. This repository contains nothing of
//! the packages: a plain reference gives the results of a kernel, the package's own declarations its launch.

mod fusedtok;
mod mojolearn;
mod numbers;
mod pyptx;
mod vm;
