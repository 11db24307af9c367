//! Decoded operands of instructions that access memory, multiply matrices, or communicate between lanes or warps

use super::program::Reg;
use crate::shadow::Scope;
use crate::text::types::{Space, Ty};
use crate::units::mma::Mma;
use crate::units::shuffle::{Redux, ShflMode, Vote};
use crate::units::wgmma::{Major, Wgmma};
use crate::units::wmma::{Fragment, Wmma};

/// `[base+offset]`
#[derive(Clone, Copy, Debug)]
pub struct Address {
    pub base: Reg,
    pub offset: i64,
}

/// Memory ordering of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// True for relaxed, volatile, mmio, acquire and release accesses; false for weak ones.
    pub strong: bool,
    pub acquire: bool,
    pub release: bool,
    pub scope: Scope,
}

pub const WEAK: Order = Order { strong: false, acquire: false, release: false, scope: Scope::Block };

#[derive(Clone, Debug)]
pub struct Load {
    pub space: Space,
    pub address: Address,
    pub ty: Ty,
    pub n: u32,
    /// Destinations; `None` is the sink `_`.
    pub to: [Option<Reg>; 4],
    pub order: Order,
}

#[derive(Clone, Debug)]
pub struct Store {
    pub space: Space,
    pub address: Address,
    pub ty: Ty,
    pub n: u32,
    pub from: [Reg; 4],
    pub order: Order,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    Add,
    And,
    Or,
    Xor,
    Exch,
    Cas,
    Inc,
    Dec,
    Min,
    Max,
}

#[derive(Clone, Debug)]
pub struct Atomic {
    pub space: Space,
    pub address: Address,
    pub op: AtomicOp,
    pub ty: Ty,
    /// Destination of the old value; `None` for `red`.
    pub to: Option<Reg>,
    pub a: Reg,
    /// The new value, for `cas`.
    pub b: Option<Reg>,
    pub order: Order,
}

#[derive(Clone, Debug)]
pub struct AsyncCopy {
    pub to: Address,
    pub from: Address,
    pub bytes: u32,
    pub source_bytes: Option<Reg>,
    /// Predicate register; the lanes in which it is true read nothing and write zeros.
    pub ignore_source: Option<Reg>,
}

#[derive(Clone, Debug)]
pub struct Matrix {
    pub store: bool,
    pub space: Space,
    pub address: Address,
    pub count: u32,
    pub trans: bool,
    pub regs: [u32; 4],
}

#[derive(Clone, Debug)]
pub struct Multiply {
    pub mma: Mma,
    pub a: Vec<Reg>,
    pub b: Vec<Reg>,
    pub c: Vec<Reg>,
    pub d: Vec<Reg>,
    /// The metadata register and the sparsity selector of `mma.sp`; `None` for a dense product.
    pub sparse: Option<(u32, u32)>,
}

/// `wmma.load` and `wmma.store`.
#[derive(Clone, Debug)]
pub struct FragmentAccess {
    pub store: bool,
    pub space: Space,
    pub address: Address,
    /// Register that holds the distance between rows (or columns) in memory, in elements.
    pub stride: Option<u32>,
    pub row_major: bool,
    pub fragment: Fragment,
    pub regs: Vec<u32>,
}

#[derive(Clone, Debug)]
pub struct FragmentMultiply {
    pub wmma: Wmma,
    pub a: Vec<u32>,
    pub b: Vec<u32>,
    pub c: Vec<u32>,
    pub d: Vec<u32>,
}

/// An instruction in which each lane operates on one mbarrier.
#[derive(Clone, Debug)]
pub struct MbarrierUse {
    /// Shared or generic; generic addresses must be in shared memory.
    pub space: Space,
    pub address: Address,
    pub op: MbarrierOp,
    /// False for `.relaxed`, which neither releases nor acquires.
    pub ordered: bool,
}

/// An operation on an mbarrier. Operands are numbers of 32-bit registers; states are numbers of 64-bit registers.
#[derive(Clone, Debug)]
pub enum MbarrierOp {
    Init {
        count: u32,
    },
    Inval,
    ExpectTx {
        bytes: u32,
    },
    CompleteTx {
        bytes: u32,
    },
    Arrive {
        /// Register of the number of arrivals; `None` for one.
        count: Option<u32>,
        /// Register of the number of bytes that the phase has to wait for in addition (`.expect_tx`).
        bytes: Option<u32>,
        /// Whether the arrivals expected in later phases are reduced by the count.
        drop: bool,
        /// False for `.noComplete`: the arrival must not complete the phase.
        completes: bool,
        state: Option<u32>,
    },
    Wait {
        p: u32,
        phase: PhaseOperand,
    },
    /// `cp.async.mbarrier.arrive`: arrives once the thread's earlier copies have completed. Without `.noinc` (`counted`
    /// is false), the number of arrivals that the phase waits for is first increased by one.
    ArriveAfterCopies {
        counted: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub enum PhaseOperand {
    /// The 32-bit register of a phase parity.
    Parity(u32),
    /// The 64-bit register of a state returned by `arrive`.
    State(u32),
}

/// `cp.async.bulk`, with or without `.tensor`.
#[derive(Clone, Debug)]
pub struct Bulk {
    pub shared: Address,
    pub place: BulkPlace,
    /// The mbarrier of a load; `None` for a store, which belongs to a bulk group of its thread.
    pub barrier: Option<Address>,
}

#[derive(Clone, Debug)]
pub enum BulkPlace {
    /// A byte range; `bytes` is the 32-bit register that holds its size.
    Range { global: Address, bytes: u32 },
    /// A tensor box; `coordinates` are 32-bit registers, the innermost dimension first.
    Tensor { map: Address, coordinates: Vec<u32> },
}

/// `wgmma.mma_async`
#[derive(Clone, Debug)]
pub struct WgmmaMultiply {
    pub wgmma: Wgmma,
    pub a: WgmmaFactor,
    /// The 64-bit register of the descriptor, and the dimension along which B is contiguous.
    pub b: (u32, Major),
    pub d: Vec<u32>,
    /// The metadata register and the sparsity selector, if A is sparse.
    pub sparse: Option<(u32, u32)>,
    /// Predicate register that says whether the old values of the accumulators are added, and whether it is negated.
    pub scale_d: (u32, bool),
    /// Product of the scales of A and B: -1 or 1.
    pub product: i64,
}

#[derive(Clone, Debug)]
pub enum WgmmaFactor {
    Registers([u32; 4]),
    Shared { descriptor: u32, major: Major },
}

#[derive(Clone, Debug)]
pub struct Shuffle {
    pub mode: ShflMode,
    pub d: Option<u32>,
    pub p: Option<u32>,
    pub a: u32,
    pub b: u32,
    pub c: u32,
    pub members: u32,
}

/// Instructions that exchange values between the lanes of a warp.
#[derive(Clone, Debug)]
pub enum Warp {
    /// `d` is a predicate register, or a 32-bit register for `ballot`; `a` is a predicate register; `members` is the
    /// 32-bit register of the member mask.
    Vote {
        mode: Vote,
        d: Reg,
        a: u32,
        negated: bool,
        members: u32,
    },
    MatchAny {
        d: u32,
        a: Reg,
        members: u32,
    },
    MatchAll {
        d: Option<u32>,
        p: Option<u32>,
        a: Reg,
        members: u32,
    },
    Redux {
        op: Redux,
        d: u32,
        a: u32,
        members: u32,
    },
    ActiveMask {
        d: u32,
    },
    /// `elect.sync d|p, members`
    Elect {
        d: Option<u32>,
        p: u32,
        members: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierReduction {
    Popc,
    And,
    Or,
}

#[derive(Clone, Debug)]
pub struct Barrier {
    /// True for `.aligned`, which `bar` implies: the whole warp takes part.
    pub aligned: bool,
    /// False for `arrive`.
    pub waits: bool,
    pub id: u32,
    /// Register of the number of threads; `None` for the whole block.
    pub count: Option<u32>,
    /// The operation of `bar.red`, its destination, its predicate register, and whether the predicate is negated.
    pub reduction: Option<(BarrierReduction, Reg, u32, bool)>,
}
