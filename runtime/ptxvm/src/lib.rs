//! kernel.ptx, memory, launch  =>  memory, findings, counters: PTX executed on the CPU
//!
//! ```
//! use ptxvm::{Launch, Memory, Module, Options, Params, run};
//!
//! let module = Module::parse(
//!     ".version 8.0
//!      .target sm_80
//!      .address_size 64
//!      .visible .entry fill(.param .u64 out, .param .f32 value) {
//!          .reg .b32 %r<2>; .reg .f32 %f<2>; .reg .b64 %rd<4>;
//!          ld.param.u64 %rd1, [out]; ld.param.f32 %f1, [value];
//!          mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;
//!          st.global.f32 [%rd3], %f1;
//!          ret;
//!      }",
//! )?;
//! let mut memory = Memory::new();
//! let out = memory.alloc(32 * 4, "out");
//! let launch = Launch::new("fill", 1, 32, Params::new().u64(out).f32(2.5).build());
//! let report = run(&module, &mut memory, &launch, &Options::default())?;
//! assert!(report.findings.is_empty());
//! assert_eq!(report.counters.allocations[0].stores.sectors, 4);
//! let mut bytes = [0; 4];
//! memory.read(out + 124, &mut bytes)?;
//! assert_eq!(f32::from_le_bytes(bytes), 2.5);
//! # Ok::<(), ptxvm::Error>(())
//! ```
//!
//! **What runs.** The PTX of sm_80 and that of sm_90a in clusters of one block, written by hand or by a compiler: see
//! the table in `decode/table.rs`, one row per instruction. mbarriers, bulk copies, boxes of tensors
//! ([`Memory::tensor_map`]) and `wgmma` are among them; `wgmma.sp`, multicast and larger clusters are not. A text with
//! an instruction, modifier or operand that is not understood is refused with its line, before anything runs. Calls to functions of the same text are inlined; indirect calls and recursion are refused.
//!
//! **What is found** ([`Kind`]). Accesses out of bounds (allocations lie far apart) or misaligned; reads of memory and
//! registers that nothing wrote; races between lanes, warps and blocks, by vector clocks rather than by luck; accesses
//! to what a `cp.async`, a bulk copy or a `wgmma` uses before it was waited for; fences that are missing between stores
//! and the asynchronous proxy; misused mbarriers, and waits for them that cannot end; `.sync` instructions that part of
//! their lanes execute; barriers that cannot complete; undefined shuffles. Execution goes on: a load out of bounds gives 0, a store is
//! dropped. Every finding quotes the line and names thread, block, address and allocation.
//!
//! **What is counted** ([`Counters`]). Instructions by class, 32-byte sectors by allocation and line, also those that a
//! perfect cache would transfer, and wavefronts of shared memory with and without bank conflicts.
//!
//! **How it runs.** Lanes of a warp advance together; diverged lanes meet at the immediate post-dominator of their
//! branch, so a lane that spins until another lane of its warp has acted never ends ([`Kind::InstructionLimit`]).
//! Warps take turns in an order that the seed chooses, blocks run on several threads and the report is the same
//! whatever their number. Weak memory is not explored: a store is seen at once by whoever reads next.
//!
//! The command does the same on files: `ptxvm run K.ptx --launch L.json`.

mod decode;
mod error;
mod exec;
mod launch;
mod memory;
mod print;
mod report;
pub mod shadow;
mod tensor;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
pub mod units;

pub use decode::Module;
pub use error::Error;
pub use exec::{run, run_while};
pub use launch::{Launch, Options, Params};
pub use memory::Memory;
pub use report::{
    AllocationCounters, ClassCounters, Counters, Finding, Kind, LineCounters, Report, SharedCounters, Traffic,
};
pub use tensor::{MAP_BYTES, TensorMap};
