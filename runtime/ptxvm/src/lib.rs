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
//! **What runs.** The PTX of sm_80, and of sm_90a with clusters of one block, written by hand or by a compiler. The
//! table in `decode/table.rs` has one row per supported instruction. mbarriers, bulk copies, tensor boxes
//! ([`Memory::tensor_map`]) and `wgmma` are supported; multicast and larger clusters are not. A text with an
//! unsupported instruction, modifier or operand is refused before anything runs, and the error names the line. Calls to
//! functions in the same text are inlined; indirect calls and recursion are refused.
//!
//! **What is found** ([`Kind`]). Accesses that are out of bounds (allocations are far apart) or misaligned; reads of
//! uninitialised memory and registers; races between lanes, warps and blocks, detected by vector clocks, so that no
//! particular timing is needed; accesses to memory or registers that a `cp.async`, a bulk copy or a `wgmma` still uses,
//! because no wait for it has completed; missing fences between stores and the asynchronous proxy; misused mbarriers,
//! and waits for mbarriers that cannot end; `.sync` instructions that only some of the lanes in their mask execute;
//! barriers that cannot complete; undefined shuffles. Execution continues: a load out of bounds returns 0, and a store
//! out of bounds is dropped. Every finding quotes the line, and names the thread, block, address and allocation that it
//! concerns.
//!
//! **What is counted** ([`Counters`]). Instructions by class; 32-byte sectors by allocation and by line of the text,
//! and how many of them a perfect cache would transfer; wavefronts of shared memory with and without bank conflicts.
//!
//! **How it runs.** The lanes of a warp execute in lockstep. Diverged lanes reconverge at the immediate post-dominator
//! of their branch, so a lane that spins until another lane of its warp has acted never ends
//! ([`Kind::InstructionLimit`]). Warps are scheduled in an order that the seed selects. Blocks run on several threads
//! of the CPU, and the report does not depend on the number of threads. Weak memory is not modelled: a store is visible
//! at once to all later reads.
//!
//! The command line tool runs a kernel and a launch description from files: `ptxvm run K.ptx --launch L.json`.

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
pub use print::quoted;
pub use report::{
    AllocationCounters, ClassCounters, Counters, Finding, Kind, LineCounters, Report, SharedCounters, Traffic,
};
pub use tensor::{MAP_BYTES, TensorMap};
