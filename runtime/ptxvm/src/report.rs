//! The report of a launch: findings and counters

use std::collections::BTreeMap;

/// Findings and counters of one launch. They depend on the seed, but not on the number of threads that ran the launch.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Sorted by line.
    pub findings: Vec<Finding>,
    /// Counts of instructions and of memory traffic, over all blocks.
    pub counters: Counters,
}

/// A fault, merged over all its occurrences in one line of the PTX text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Class of the fault; a report has one finding for each kind and line.
    pub kind: Kind,
    /// Line of the PTX text; 0 if the finding does not concern a line.
    pub line: u32,
    /// Describes the first occurrence: instruction, thread, block, address.
    pub message: String,
    /// Number of occurrences; a fault of several lanes of a warp usually counts once for each lane.
    pub count: u64,
}

/// Class of a fault that the simulator detects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An access outside the memory it may use, a write to constant memory, or an index past a branch table.
    OutOfBounds,
    /// An access whose address is not a multiple of its size, or of the alignment that a bulk copy requires.
    Misaligned,
    /// A read of memory that nothing wrote.
    UninitialisedMemory,
    /// A read of a register that nothing wrote.
    UninitialisedRegister,
    /// Two unordered accesses to the same bytes, at least one a write and at least one not atomic.
    Race,
    /// An access to bytes that an asynchronous copy is still writing or reading.
    InFlight,
    /// A `.sync` instruction executed by only part of the lanes that it names.
    DivergentSync,
    /// A `wgmma` or a bulk copy without the fence that makes its operands visible to it.
    MissingFence,
    /// A block whose remaining warps all wait at barriers or mbarriers that cannot complete.
    Deadlock,
    /// Invalid use of a barrier or an mbarrier, such as a wrong number of threads or no initialisation.
    BarrierMisuse,
    /// A `shfl.sync` that reads a lane which does not take part.
    UndefinedShuffle,
    /// The launch executed more than `instructions_max` warp instructions and was stopped.
    InstructionLimit,
    /// A `trap` instruction, which ends the launch.
    Trap,
}

impl Kind {
    /// Returns the name of the kind in reports, such as `out of bounds`.
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

/// Counts of instructions and of memory traffic in one launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Counts by class name; classes that did not occur are absent.
    pub classes: BTreeMap<&'static str, ClassCounters>,
    /// Traffic of each allocation, sorted by address; allocations that were not accessed are absent.
    pub allocations: Vec<AllocationCounters>,
    /// Accesses to shared memory, over all instructions.
    pub shared: SharedCounters,
    /// Counts of each line of the text that accessed memory, by line number.
    pub lines: Vec<LineCounters>,
    /// Number of instructions executed, counted once per warp.
    pub warp_instructions: u64,
    /// Number of instructions executed, counted once per active lane.
    pub thread_instructions: u64,
}

/// Number of executed instructions of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounters {
    /// Executions counted once per warp, including those in which the guard disables all lanes.
    pub warp: u64,
    /// Executions counted once per active lane, that is, a lane whose guard holds.
    pub thread: u64,
}

/// Traffic between the multiprocessors and their first-level cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of warp instructions that accessed memory.
    pub requests: u64,
    /// Number of 32-byte sectors: the distinct sectors of each request, summed over all requests.
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

/// Traffic between one launch and one allocation of global memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationCounters {
    /// Name that was given to [`Memory::alloc`](crate::Memory::alloc), or the name of the module's variable.
    pub name: String,
    /// Address of the first byte.
    pub address: u64,
    /// Size of the allocation in bytes.
    pub bytes: u64,
    /// Traffic of loads, of atomic operations, and of copies from the allocation.
    pub loads: Traffic,
    /// Traffic of stores, and of copies to the allocation.
    pub stores: Traffic,
    /// Number of distinct sectors that the launch read: what a perfect cache would transfer. 0 without checks.
    pub distinct_load_sectors: u64,
    /// Like `distinct_load_sectors`, for sectors that the launch wrote.
    pub distinct_store_sectors: u64,
}

/// Accesses to shared memory, whose 32 banks each deliver 4 bytes in one wavefront.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedCounters {
    /// Number of warp instructions that accessed shared memory, except `wgmma` and bulk copies.
    pub requests: u64,
    /// Number of wavefronts that the accesses took, including those caused by bank conflicts.
    pub wavefronts: u64,
    /// Wavefronts that the same accesses would take without bank conflicts.
    pub ideal: u64,
}

impl SharedCounters {
    /// Returns the number of wavefronts that bank conflicts add to the ideal number.
    pub fn conflicts(&self) -> u64 {
        self.wavefronts - self.ideal
    }

    pub(crate) fn add(&mut self, other: &SharedCounters) {
        self.requests += other.requests;
        self.wavefronts += other.wavefronts;
        self.ideal += other.ideal;
    }
}

/// Counts of the memory instructions in one line of the PTX text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineCounters {
    /// Number of the line, from 1.
    pub line: u32,
    /// The line without leading and trailing blanks.
    pub text: String,
    /// Executions of the line's memory instructions, counted once per warp.
    pub warp: u64,
    /// Executions of the line's memory instructions, counted once per active lane.
    pub thread: u64,
    /// Traffic with global memory.
    pub global: Traffic,
    /// Accesses to shared memory.
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
