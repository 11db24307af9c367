//! What one instruction computes: registers of 32 lanes  =>  registers of 32 lanes, without any machine around it
//!
//! Scalar functions work on one lane and inline into the executor's loop over lanes; functions that mix lanes take
//! whole registers. Nothing here allocates, except where it says so, or knows about memory, findings or time.

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
