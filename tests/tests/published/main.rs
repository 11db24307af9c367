//! published third-party kernels  =>  executed by ptxvm: their results are right, and each test expects and explains
//! every finding
//!
//! `cargo xtask test --suite published` fetches the Python packages that contain the kernels, and runs these tests.
//! This repository contains no code of the packages: a test computes the expected results of a kernel by a plain
//! reference implementation, and takes the launch configuration from its own code or, for pyptx, from the package's
//! declarations.

mod fusedtok;
mod mojolearn;
mod numbers;
mod pyptx;
mod vm;
