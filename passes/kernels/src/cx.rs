//! The arguments of a launch  =>  values: buffers, parameters, and on a CPU the range of work items

use super::asm::{Asm, Bin, CpuLaunch, Elem, Mlir, Ty, Val};
use super::def::*;
use super::dims::emit_dim;
use super::scalar;
use sardonyx_base::Dim;
use sardonyx_base::cpu::{Extension, Level};
use sardonyx_base::dim::Symbol;
use sardonyx_base::plan::KernelArgs;
use std::mem::offset_of;

/// Context of the code of one function: the kernel's definition, the arguments, and the set of variables that each
/// statement depends on.
pub struct Cx<'a, A: Asm> {
    pub def: &'a KernelDef,
    pub deps: Vec<VarSet>,
    pub params: Vec<Val>,
    pub reads: Vec<Val>,
    pub writes: Vec<Val>,
    pub status: Val,
    pub launch: A::Launch,
}

impl<A: Asm> Cx<'_, A> {
    pub fn size(&self, asm: &mut A, s: Size) -> Val {
        match s {
            Size::Const(c) => asm.i64(c),
            Size::Param(p) => self.params[p],
        }
    }

    pub fn extent(&self, asm: &mut A, var: usize) -> Val {
        self.size(asm, self.def.extent(var))
    }

    /// The value of an expression over `p{n}`.
    pub fn dim(&self, asm: &mut A, d: &Dim) -> Val {
        emit_dim(asm, d, 1, &mut |_, s| self.param(s))
    }

    pub fn param(&self, symbol: &Symbol) -> Val {
        self.params[symbol.param().expect("only parameters are left")]
    }
}

impl<'a> Cx<'a, Mlir> {
    /// Unpacks the function's `KernelArgs` argument.
    pub fn arguments(asm: &mut Mlir, def: &'a KernelDef, level: Level) -> Cx<'a, Mlir> {
        let args = asm.argument();
        let mut field = |at: usize, ty: Ty| {
            let at = asm.i64(at as i64);
            let address = asm.element(args, at, Elem::I8);
            asm.load(address, ty, 8)
        };
        let buffers = field(offset_of!(KernelArgs, buffers), Ty::PTR);
        let params = field(offset_of!(KernelArgs, params), Ty::PTR);
        let scratch = field(offset_of!(KernelArgs, scratch), Ty::PTR);
        let begin = field(offset_of!(KernelArgs, begin), Ty::I64);
        let end = field(offset_of!(KernelArgs, end), Ty::I64);
        let status = field(offset_of!(KernelArgs, status), Ty::PTR);
        let mut entries = |base: Val, from: usize, n: usize, ty: Ty| -> Vec<Val> {
            let mut out = vec![];
            for i in from..from + n {
                let i = asm.i64(i as i64);
                let address = asm.element(base, i, ty.elem);
                out.push(asm.load(address, ty, 8));
            }
            out
        };
        let reads = entries(buffers, 0, def.reads.len(), Ty::PTR);
        let writes = entries(buffers, def.reads.len(), def.writes.len(), Ty::PTR);
        let params = entries(params, 0, def.n_params, Ty::I64);
        let launch = CpuLaunch { level, scratch, begin, end };
        Cx { def, deps: def.dependences(), params, reads, writes, status, launch }
    }

    /// Number of lanes of an f32 vector.
    pub fn lanes(&self) -> u32 {
        self.launch.level.lanes()
    }

    /// Returns whether masked loads and stores of every buffer are single instructions; otherwise the elements after
    /// the last full vector are processed one by one.
    pub fn has_masks(&self) -> bool {
        let wide = |s: &Storage| scalar::stored(s.dtype).bits() >= 32;
        self.launch.level.has(Extension::Masks) || self.def.reads.iter().chain(&self.def.writes).all(wide)
    }
}

/// Number of a work item  =>  the values of the variables (or of block numbers) with these extents; the last one
/// varies fastest.
pub fn decode(asm: &mut impl Asm, item: Val, extents: &[Val]) -> Vec<Val> {
    let mut rest = item;
    let mut out = vec![];
    for (i, extent) in extents.iter().enumerate().rev() {
        if i == 0 {
            out.push(rest);
        } else {
            out.push(asm.bin(Bin::RemUI, rest, *extent));
            rest = asm.bin(Bin::DivUI, rest, *extent);
        }
    }
    out.reverse();
    out
}

/// Returns lo plus the largest multiple of `step` that is at most hi - lo.
pub fn whole_steps(asm: &mut impl Asm, lo: Val, hi: Val, step: i64) -> Val {
    if step == 1 {
        return hi;
    }
    let n = asm.bin(Bin::SubI, hi, lo);
    let step = asm.i64(step);
    let rest = asm.bin(Bin::RemUI, n, step);
    asm.bin(Bin::SubI, hi, rest)
}
