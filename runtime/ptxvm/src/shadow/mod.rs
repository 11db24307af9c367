//! warp, addresses, instruction  =>  uninitialised reads, races, accesses to copies in flight
//!
//! [`Global`] lives as long as the memory, [`Launch`] as long as one launch, [`Block`] as long as one block.
//! A block belongs to one OS thread and keeps everything it touches to itself; what it touched is compared with the
//! other blocks when it ends, so that the verdict never depends on how the blocks were interleaved.

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

/// One memory instruction of one warp. Lanes out of bounds or misaligned are not in the mask.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub warp: u32,
    pub mask: u32,
    /// Per lane: 1, 2, 4, 8 or 16, and the addresses are multiples of it.
    pub bytes: u32,
    pub kind: Kind,
    /// Of `ldmatrix` and `stmatrix`: the access belongs to every lane of the warp, whoever gave the address.
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

/// How far an acquire, a release or a fence reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    Block,
    /// `.cluster`, `.gpu` and `.sys`.
    Device,
}

/// Where an atomic operation synchronises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    Shared(u32),
    Global(u64),
    /// Arrivals at an mbarrier in shared memory, of the phase that is under way and of those before.
    Arrivals(u32),
    /// The same up to the last phase that has completed.
    Phase(u32),
}

/// What is wrong with one lane's access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    pub kind: ProblemKind,
    pub lane: u32,
    /// The first byte concerned: a shared offset or a global address.
    pub address: u64,
    pub other: Option<Other>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemKind {
    /// A read of bytes that nothing wrote.
    Uninitialised,
    /// Not ordered with an earlier access of another thread, at least one a write, not both atomic.
    Race,
    /// `other` is a lower lane of the same instruction and stores to the same address: wrong unless the values are equal.
    Overlap,
    /// The bytes are the destination of a copy that is not yet waited for.
    InFlight,
    /// A write to the source of a copy that is not yet waited for.
    InFlightSource,
    /// Bulk copies and `wgmma` do not see the bytes yet: no proxy fence followed the write.
    Unfenced,
}

/// The earlier access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    pub warp: u32,
    pub lane: u32,
    pub line: u32,
    pub write: bool,
}
