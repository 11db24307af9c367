//! Compares kernels with the interpreter: as machine code for every CPU level that this CPU executes, and as PTX

mod attention;
mod build;
mod contract;
mod deep;
mod groups;
mod halves;
mod harness;
mod map;
mod normalise;
mod object;
mod pairs;
mod ptx;
mod ptx_forms;
mod ptx_movement;
mod quads;
mod scalar;
mod sparse;
mod sparse_groups;
mod staged;
mod tiles;
mod two_of_four;
mod two_sums;
mod windows;

/// Checks the cases that are drawn for this test run, as machine code and as PTX.
fn check(cases: Vec<harness::Case>) {
    harness::check_on(&cases, tiles::executed);
    ptx::check(&cases);
}
