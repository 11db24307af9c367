//! kernel.ptx, memory, launch  =>  memory, findings, counters: PTX executed on the CPU

pub mod units;
