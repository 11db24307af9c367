//! One entry as flat code: instructions with resolved registers, ready to run

use std::sync::Arc;

use super::ops::{
    AsyncCopy, Atomic, Barrier, Bulk, FragmentAccess, FragmentMultiply, Load, Matrix, MbarrierUse, Multiply, Shuffle,
    Store, Warp, WgmmaMultiply,
};
use crate::report::Class;
use crate::text::types::Space;

pub const NONE: u32 = u32::MAX;
/// Flag in [`Program::checks`] that marks the slot of the guard predicate. All lanes read the guard; only the lanes in
/// which it holds read the other operands.
pub const GUARD: u32 = 1 << 31;

/// Registers of one warp, by bank. Immediate values and special registers are also stored in these registers, at the
/// start of a block, so that an operand is always a register index.
#[derive(Debug, Default)]
pub struct Regs {
    pub w: Vec<[u32; 32]>,
    pub d: Vec<[u64; 32]>,
    pub p: Vec<u32>,
}

/// The value of one lane in a register: 32 bits (narrower types are zero-padded) or 64 bits.
pub trait Lane: Copy + Default + Send + Sync + 'static {
    const BANK: Bank;
    fn get(regs: &Regs, index: u32) -> &[Self; 32];
    fn get_mut(regs: &mut Regs, index: u32) -> &mut [Self; 32];
}

impl Lane for u32 {
    const BANK: Bank = Bank::Word;
    #[inline]
    fn get(regs: &Regs, index: u32) -> &[u32; 32] {
        &regs.w[index as usize]
    }
    #[inline]
    fn get_mut(regs: &mut Regs, index: u32) -> &mut [u32; 32] {
        &mut regs.w[index as usize]
    }
}

impl Lane for u64 {
    const BANK: Bank = Bank::Double;
    #[inline]
    fn get(regs: &Regs, index: u32) -> &[u64; 32] {
        &regs.d[index as usize]
    }
    #[inline]
    fn get_mut(regs: &mut Regs, index: u32) -> &mut [u64; 32] {
        &mut regs.d[index as usize]
    }
}

impl Regs {
    #[inline]
    pub fn set<T: Lane>(&mut self, index: u32, mask: u32, values: &[T; 32]) {
        let register = T::get_mut(self, index);
        if mask == u32::MAX {
            *register = *values;
        } else {
            for lane in 0..32 {
                if mask >> lane & 1 == 1 {
                    register[lane] = values[lane];
                }
            }
        }
    }

    #[inline]
    pub fn set_pred(&mut self, index: u32, mask: u32, values: u32) {
        let register = &mut self.p[index as usize];
        *register = *register & !mask | values & mask;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bank {
    Word,
    Double,
    Pred,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg {
    pub bank: Bank,
    pub index: u32,
    /// Declared width in bits: 1, 8, 16, 32 or 64.
    pub bits: u32,
}

/// The value of a register that is constant throughout a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Constant {
    Number(u64),
    Special(Special),
    /// The address of a module variable, by index, plus an offset.
    Symbol(u32, i64),
    /// The start of dynamic shared memory plus an offset.
    DynamicShared(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    Laneid,
    Warpid,
    Nwarpid,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    DynamicShared,
    TotalShared,
    WarpSize,
    One,
    Zero,
}

/// A counter whose value changes between reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    Cycles,
    CyclesHi,
    Globaltimer,
    GlobaltimerHi,
}

/// An operation that treats each lane separately; the mask selects the lanes to write.
pub type LaneOp = Box<dyn Fn(&mut Regs, u32) + Send + Sync>;

pub enum Op {
    Lanes(LaneOp),
    Branch(u32),
    /// The 32-bit register that holds the index, and the targets.
    BranchTable(u32, Box<[u32]>),
    Exit,
    Trap,
    /// An instruction that is counted but has no effect: `nanosleep`, `prefetch`, `discard`.
    Nop,
    Clock(Clock, Reg),
    Load(Box<Load>),
    Store(Box<Store>),
    Atomic(Box<Atomic>),
    AsyncCopy(Box<AsyncCopy>),
    AsyncCommit,
    /// `cp.async.wait_group n`: at most n groups remain pending.
    AsyncWait(u32),
    AsyncWaitAll,
    Bulk(Box<Bulk>),
    BulkCommit,
    /// `cp.async.bulk.wait_group`: at most `left` groups of stores remain pending; with `read`, it suffices that a
    /// store has read its source.
    BulkWait {
        left: u32,
        read: bool,
    },
    Matrix(Box<Matrix>),
    Multiply(Box<Multiply>),
    FragmentAccess(Box<FragmentAccess>),
    FragmentMultiply(Box<FragmentMultiply>),
    WgmmaMultiply(Box<WgmmaMultiply>),
    WgmmaFence,
    WgmmaCommit,
    /// `wgmma.wait_group n`: at most n groups remain pending.
    WgmmaWait(u32),
    Shuffle(Box<Shuffle>),
    Warp(Box<Warp>),
    Barrier(Box<Barrier>),
    Mbarrier(Box<MbarrierUse>),
    /// `bar.warp.sync`, with the register of the member mask.
    WarpBarrier(u32),
    Fence(crate::shadow::Scope),
    /// `setmaxnreg`: has no effect, but every lane of the warp must take part.
    WholeWarp,
    /// `fence.proxy.async`
    ProxyFence,
    /// `isspacep.space p, a`
    IsSpace(Space, u32, Reg),
}

pub struct Instr {
    pub op: Op,
    /// `index << 1 | negated` of the guard predicate, or [`NONE`].
    pub guard: u32,
    pub line: u32,
    pub class: Class,
    /// Registers to check for initialisation, as a range of [`Program::checks`].
    pub checks: (u32, u32),
    /// Tracked registers that the instruction writes, as a range of [`Program::marks`].
    pub marks: (u32, u32),
    /// Registers of `wgmma` that the instruction accesses, as a range of [`Program::product_uses`].
    pub products: (u32, u32),
}

/// Position of a parameter in the parameter space.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    pub offset: u32,
    pub bytes: u32,
}

pub struct Program {
    pub name: String,
    pub line: u32,
    pub code: Vec<Instr>,
    /// Reconvergence point of each instruction, or [`NONE`].
    pub meets: Vec<u32>,
    pub n_words: u32,
    pub n_doubles: u32,
    pub n_preds: u32,
    pub constants: Vec<(Reg, Constant)>,
    /// Slots of tracked registers: `checks` lists those to check, `marks` those to mark as written; `tracked` holds the
    /// register name of each slot.
    pub checks: Vec<u32>,
    pub marks: Vec<u32>,
    pub tracked: Vec<String>,
    /// Accesses to registers that some `wgmma` uses: the number of the register, and whether it is written;
    /// `product_names` holds the register names.
    pub product_uses: Vec<(u32, bool)>,
    pub product_names: Vec<String>,
    pub params: Vec<(String, Param)>,
    pub params_bytes: u32,
    pub shared_bytes: u32,
    pub shared_variables: Vec<(String, u32, u32)>,
    pub local_bytes: u32,
    pub threads_max: Option<[u32; 3]>,
    pub threads_exact: Option<[u32; 3]>,
}

/// A parsed PTX text. All entries have been decoded, so it contains no unsupported instruction.
#[derive(Clone)]
pub struct Module {
    pub(crate) inner: Arc<Inner>,
}

pub struct Inner {
    /// Identifies the module in a [`Memory`](crate::Memory), which keeps the module's variables.
    pub id: u64,
    pub programs: Vec<Program>,
    pub globals: Vec<GlobalVariable>,
    /// The lines of the text, quoted in findings.
    pub lines: Vec<String>,
}

pub struct GlobalVariable {
    pub name: String,
    pub bytes: u64,
    pub constant: bool,
    /// Initial bytes at the start of the variable; the remainder is zero.
    pub init: Vec<u8>,
    /// Addresses of other variables in the initial value: offset, index of the variable, addend.
    pub relocations: Vec<(u64, u32, i64)>,
}
