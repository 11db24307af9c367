//! published third-party kernels  =>  executed by ptxvm: their results are right, and every finding is explained
//!
//! `cargo xtask test --suite published` fetches the packages and runs these tests. This repository contains no code
//! of the packages: a test computes the expected results of a kernel by a plain reference implementation, and takes the
//! launch configuration from its own code or, for pyptx, from the package's declarations.

mod fusedtok;
mod mojolearn;
mod numbers;
mod pyptx;
mod vm;
