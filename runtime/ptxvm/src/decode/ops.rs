//! Operands of the instructions that touch memory, other lanes or other warps

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

/// How an access takes part in the order between threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Relaxed, volatile, acquire, release: not a plain access.
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
    /// `None` is the sink `_`.
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
    /// Absent for `red`.
    pub to: Option<Reg>,
    pub a: Reg,
    /// The new value of `cas`.
    pub b: Option<Reg>,
    pub order: Order,
}

#[derive(Clone, Debug)]
pub struct AsyncCopy {
    pub to: Address,
    pub from: Address,
    pub bytes: u32,
    pub source_bytes: Option<Reg>,
    /// Lanes where it holds read nothing and write zeros.
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
    /// The metadata register and the selector of `mma.sp`.
    pub sparse: Option<(u32, u32)>,
}

/// `wmma.load` and `wmma.store`.
#[derive(Clone, Debug)]
pub struct FragmentAccess {
    pub store: bool,
    pub space: Space,
    pub address: Address,
    /// The register of the leading dimension, in elements.
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

/// An instruction on one mbarrier per lane.
#[derive(Clone, Debug)]
pub struct MbarrierUse {
    /// Shared, or generic addresses of it.
    pub space: Space,
    pub address: Address,
    pub op: MbarrierOp,
    /// False for `.relaxed`: nothing is released or acquired.
    pub ordered: bool,
}

/// Registers are words, but for states.
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
        /// Absent for one.
        count: Option<u32>,
        /// Bytes to expect before it arrives.
        bytes: Option<u32>,
        /// The barrier expects that much less from the next phase on.
        drop: bool,
        /// `.noComplete`: the arrival must not end the phase.
        completes: bool,
        state: Option<u32>,
    },
    Wait {
        p: u32,
        phase: PhaseOperand,
    },
    /// `cp.async.mbarrier.arrive`: arrives when the thread's copies so far have; without `.noinc` one arrival more is
    /// expected first.
    ArriveAfterCopies {
        counted: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub enum PhaseOperand {
    /// The word register of a parity.
    Parity(u32),
    /// The double register of a state that `arrive` gave.
    State(u32),
}

/// `cp.async.bulk`, with or without `.tensor`.
#[derive(Clone, Debug)]
pub struct Bulk {
    pub shared: Address,
    pub place: BulkPlace,
    /// Of a load; a store belongs to a group of its thread.
    pub barrier: Option<Address>,
}

#[derive(Clone, Debug)]
pub enum BulkPlace {
    /// The word register of the number of bytes.
    Range { global: Address, bytes: u32 },
    /// Word registers, the innermost coordinate first.
    Tensor { map: Address, coordinates: Vec<u32> },
}

/// `wgmma.mma_async`
#[derive(Clone, Debug)]
pub struct WgmmaMultiply {
    pub wgmma: Wgmma,
    pub a: WgmmaFactor,
    /// The double register of the descriptor.
    pub b: (u32, Major),
    pub d: Vec<u32>,
    /// Predicate and its negation.
    pub scale_d: (u32, bool),
    /// -1 or 1, of both factors together.
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

/// Instructions by which the lanes of a warp exchange values.
#[derive(Clone, Debug)]
pub enum Warp {
    /// Destination (a predicate, or a word for `ballot`), operand and its negation, member mask.
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
    /// `.aligned`, as `bar` always is: the whole warp takes part.
    pub aligned: bool,
    /// False for `arrive`.
    pub waits: bool,
    pub id: u32,
    /// The register of the thread count.
    pub count: Option<u32>,
    /// Operation, destination, predicate and its negation.
    pub reduction: Option<(BarrierReduction, Reg, u32, bool)>,
}
