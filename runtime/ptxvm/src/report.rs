//! The report of a launch: findings and counters

use std::collections::BTreeMap;

/// Findings and counters of one launch. For the same seed they are the same, however many threads ran it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Sorted by line.
    pub findings: Vec<Finding>,
    pub counters: Counters,
}

/// A fault, merged over all its occurrences in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: Kind,
    /// Line of the PTX text; 0 if the finding does not concern a line.
    pub line: u32,
    /// Describes the first occurrence: instruction, thread, block, address.
    pub message: String,
    pub count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    OutOfBounds,
    Misaligned,
    /// A read of memory that nothing wrote.
    UninitialisedMemory,
    /// A read of a register that nothing wrote.
    UninitialisedRegister,
    Race,
    /// An access to bytes that an asynchronous copy is still writing or reading.
    InFlight,
    /// A `.sync` instruction executed by only part of the lanes that it names.
    DivergentSync,
    /// A `wgmma` or a bulk copy without the fence that makes its operands visible to it.
    MissingFence,
    Deadlock,
    BarrierMisuse,
    /// A `shfl.sync` that reads a lane which does not take part.
    UndefinedShuffle,
    InstructionLimit,
    Trap,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::OutOfBounds => "out of bounds",
            Kind::Misaligned => "misaligned",
            Kind::UninitialisedMemory => "uninitialised memory",
            Kind::UninitialisedRegister => "uninitialised register",
            Kind::Race => "race",
            Kind::InFlight => "copy in flight",
            Kind::DivergentSync => "divergent .sync",
            Kind::MissingFence => "missing fence",
            Kind::Deadlock => "deadlock",
            Kind::BarrierMisuse => "barrier misuse",
            Kind::UndefinedShuffle => "undefined shuffle",
            Kind::InstructionLimit => "instruction limit",
            Kind::Trap => "trap",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By class name; classes that did not occur are absent.
    pub classes: BTreeMap<&'static str, ClassCounters>,
    /// Sorted by address; allocations that were not accessed are absent.
    pub allocations: Vec<AllocationCounters>,
    pub shared: SharedCounters,
    /// Lines that accessed memory, in order.
    pub lines: Vec<LineCounters>,
    pub warp_instructions: u64,
    pub thread_instructions: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounters {
    pub warp: u64,
    pub thread: u64,
}

/// Traffic between the multiprocessors and their first-level cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of warp instructions.
    pub requests: u64,
    /// Number of 32-byte sectors, distinct within a request.
    pub sectors: u64,
    /// Number of bytes that lanes requested.
    pub bytes: u64,
}

impl Traffic {
    pub(crate) fn add(&mut self, other: &Traffic) {
        self.requests += other.requests;
        self.sectors += other.sectors;
        self.bytes += other.bytes;
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationCounters {
    pub name: String,
    pub address: u64,
    pub bytes: u64,
    pub loads: Traffic,
    pub stores: Traffic,
    /// Distinct sectors that the launch accessed: what a perfect cache would transfer. 0 without checks.
    pub distinct_load_sectors: u64,
    pub distinct_store_sectors: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedCounters {
    pub requests: u64,
    pub wavefronts: u64,
    /// Wavefronts that the same accesses would take without bank conflicts.
    pub ideal: u64,
}

impl SharedCounters {
    pub fn conflicts(&self) -> u64 {
        self.wavefronts - self.ideal
    }

    pub(crate) fn add(&mut self, other: &SharedCounters) {
        self.requests += other.requests;
        self.wavefronts += other.wavefronts;
        self.ideal += other.ideal;
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineCounters {
    pub line: u32,
    pub text: String,
    pub warp: u64,
    pub thread: u64,
    pub global: Traffic,
    pub shared: SharedCounters,
}

/// Instruction classes, by which [`Counters::classes`] is grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Integer,
    Float,
    Special,
    Convert,
    Move,
    Compare,
    Branch,
    Warp,
    Barrier,
    /// A load through a generic address.
    Load,
    Store,
    LoadGlobal,
    StoreGlobal,
    LoadShared,
    StoreShared,
    LoadLocal,
    StoreLocal,
    LoadParam,
    Atomic,
    AsyncCopy,
    Matrix,
    Mma,
    Other,
}

impl Class {
    pub fn name(self) -> &'static str {
        match self {
            Class::Integer => "integer",
            Class::Float => "float",
            Class::Special => "special function",
            Class::Convert => "convert",
            Class::Move => "move",
            Class::Compare => "compare",
            Class::Branch => "branch",
            Class::Warp => "warp exchange",
            Class::Barrier => "barrier",
            Class::Load => "load generic",
            Class::Store => "store generic",
            Class::LoadGlobal => "load global",
            Class::StoreGlobal => "store global",
            Class::LoadShared => "load shared",
            Class::StoreShared => "store shared",
            Class::LoadLocal => "load local",
            Class::StoreLocal => "store local",
            Class::LoadParam => "load param",
            Class::Atomic => "atomic",
            Class::AsyncCopy => "async copy",
            Class::Matrix => "matrix load/store",
            Class::Mma => "mma",
            Class::Other => "other",
        }
    }
}
