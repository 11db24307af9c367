//! warp, addresses, instruction  =>  uninitialised reads, races, accesses to copies in flight
//!
//! [`Global`] lives as long as the memory, [`Launch`] as long as one launch, [`Block`] as long as one block. A block is
//! run by one OS thread, which records its accesses locally. They are compared with those of other blocks when the
//! block ends, so that the result does not depend on how the blocks were interleaved.

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
    pub warp: u32,
    pub mask: u32,
    /// Bytes per lane: 1, 2, 4, 8 or 16. Addresses are multiples of it.
    pub bytes: u32,
    pub kind: Kind,
    /// Set for `ldmatrix` and `stmatrix`: the access belongs to all lanes of the warp, whichever lane gave the address.
    pub collective: bool,
    pub line: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Read,
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
    Block,
    /// `.cluster`, `.gpu` and `.sys`.
    Device,
}

/// The location through which an atomic operation synchronises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    Shared(u32),
    Global(u64),
    /// Arrivals at the mbarrier at this shared offset, in the current phase and all earlier ones.
    Arrivals(u32),
    /// Arrivals at the mbarrier up to its last completed phase.
    Phase(u32),
}

/// A fault in one lane's access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    pub kind: ProblemKind,
    pub lane: u32,
    /// Shared offset or global address of the first byte affected.
    pub address: u64,
    pub other: Option<Other>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemKind {
    /// A read of bytes that were never written.
    Uninitialised,
    /// The access is not ordered with an earlier access of another thread; at least one of the two is a write, and not
    /// both are atomic.
    Race,
    /// `other` is a lower lane of the same instruction and stores to the same address: wrong unless the values are equal.
    Overlap,
    /// The bytes are the destination of a copy that was not waited for.
    InFlight,
    /// A write to the source of a copy that was not waited for.
    InFlightSource,
    /// Bulk copies and `wgmma` need not see the bytes, because no proxy fence followed the write.
    Unfenced,
}

/// The earlier access of a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    pub warp: u32,
    pub lane: u32,
    pub line: u32,
    pub write: bool,
}
