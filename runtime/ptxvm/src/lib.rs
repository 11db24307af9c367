//! kernel.ptx, memory, launch  =>  memory, findings, counters: PTX executed on the CPU

mod decode;
mod error;
mod exec;
mod launch;
mod memory;
mod print;
mod report;
pub mod shadow;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
pub mod units;

pub use decode::Module;
pub use error::Error;
pub use exec::run;
pub use launch::{Launch, Options, Params};
pub use memory::Memory;
pub use report::{AllocationCounters, ClassCounters, Counters, Finding, Kind, LineCounters, Report};
