//! warp, addresses, instruction  =>  uninitialised reads, races, accesses to copies in flight
//!
//! [`Global`] lives as long as the memory, [`Launch`] as long as one launch, [`Block`] as long as one block. A block is
//! run by one OS thread, which records the block's accesses locally. These accesses are compared with those of other
//! blocks when the block ends, so that the result does not depend on how the blocks were interleaved. A block that
//! synchronises with other blocks is compared at each release and acquire as well.

mod block;
mod bulk;
mod clocks;
mod cross;
mod device;
mod global;
mod init;
mod log;
mod page;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod reference_blocks;
#[cfg(test)]
mod tests;

pub use block::Block;
pub use bulk::Starter;
pub use global::{Crossing, Global, Launch, Outcome, Sectors};

/// A memory instruction of one warp. Lanes that are out of bounds or misaligned are not in the mask.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Index of the warp in its block.
    pub warp: u32,
    /// Lanes that make the access; bit 0 is lane 0.
    pub mask: u32,
    /// Bytes per lane: 1, 2, 4, 8 or 16. Addresses are multiples of this number.
    pub bytes: u32,
    /// Whether the lanes read or write, and whether atomically.
    pub kind: Kind,
    /// Set for `ldmatrix`, `stmatrix` and the reads of `wgmma`: the access counts as made by all lanes of the warp,
    /// whichever lane gave the address.
    pub collective: bool,
    /// Line of the instruction in the PTX text, numbered from 1.
    pub line: u32,
}

/// How an instruction accesses memory. Two atomic accesses never race with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An ordinary load, or the read of a copy.
    Read,
    /// An ordinary store, or the write of a copy.
    Write,
    /// `atom` and `red`.
    Atomic,
    /// `ld.relaxed`, `ld.acquire`, `ld.volatile`.
    AtomicRead,
    /// `st.relaxed`, `st.release`, `st.volatile`.
    AtomicWrite,
}

/// Scope of an acquire, a release or a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// `.cta`: the threads of one block.
    Block,
    /// `.cluster`, `.gpu` and `.sys`.
    Device,
}

/// The location through which an atomic operation or an mbarrier synchronises threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A location in shared memory, by its offset in bytes.
    Shared(u32),
    /// A location in global memory, by its address.
    Global(u64),
    /// Arrivals at the mbarrier at this shared offset, in the current phase and all earlier ones.
    Arrivals(u32),
    /// Arrivals at the mbarrier up to its last completed phase.
    Phase(u32),
}

/// A fault in one lane's access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong with the access.
    pub kind: ProblemKind,
    /// Lane whose access is wrong, 0 to 31.
    pub lane: u32,
    /// Shared offset or global address of the first byte affected.
    pub address: u64,
    /// The access that conflicts with this one; `None` if there is none or it is not known.
    pub other: Option<Other>,
}

/// What is wrong with an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemKind {
    /// A read of bytes that were never written.
    Uninitialised,
    /// The access is not ordered with an earlier access of another thread; at least one of the two is a write, and not
    /// both are atomic.
    Race,
    /// `other` is a lower lane of the same instruction and stores to the same address. This is wrong unless the values
    /// are equal.
    Overlap,
    /// The bytes are the destination of a copy for which no wait has completed.
    InFlight,
    /// A write to the source of a copy for which no wait has completed.
    InFlightSource,
    /// A bulk copy or a `wgmma` may read old values of the bytes, because no proxy fence followed the write.
    Unfenced,
}

/// The earlier access of a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// Index of the warp in its block.
    pub warp: u32,
    /// Lane of the thread, 0 to 31.
    pub lane: u32,
    /// Line of the instruction in the PTX text, numbered from 1.
    pub line: u32,
    /// Whether the access was a write.
    pub write: bool,
}
