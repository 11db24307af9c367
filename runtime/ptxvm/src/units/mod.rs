//! The arithmetic of single instructions: source registers  =>  destination registers, each of 32 lanes
//!
//! Scalar functions work on one lane and are inlined into the executor's loop over lanes; functions that mix lanes take
//! the registers of all lanes. `counting` is the exception: it counts the memory transactions of an access from its
//! addresses. No function of these modules accesses simulated memory or reports findings.

pub mod convert;
pub mod counting;
pub mod cut;
pub mod exact;
pub mod float;
pub mod format;
pub mod fragments;
pub mod int;
pub mod math;
pub mod matrix;
pub mod mma;
pub mod packed;
pub mod shuffle;
pub mod sparse;
pub mod wgmma;
pub mod wmma;

/// One 32-bit register of a warp.
pub type Lanes = [u32; 32];

#[cfg(test)]
mod testing;
