//! accesses along a variable  =>  number of consecutive elements that a thread moves at once, and the conditions for it

use super::movement::Launch;
use crate::asm::{Asm, Bin, Cast, CmpI, Elem, Ptx, Ty, Val};
use crate::cx::Cx;
use crate::def::*;
use crate::scalar;

/// Groups of `width` consecutive elements along a variable, each of at most 16 bytes, that a thread moves at once.
pub struct Vectors {
    pub width: i64,
    /// Parameters that must be multiples of the width.
    params: Vec<usize>,
}

impl Vectors {
    /// Returns vectors along a variable; `None` unless every access is contiguous along it or independent of it, no
    /// guard depends on it, and all constant strides and offsets are multiples of the width.
    pub fn along(def: &KernelDef, var: usize) -> Option<Vectors> {
        let deps = def.dependences();
        let moved = |set: VarSet| set >> var & 1 == 1;
        let mut neighbours = vec![];
        let loads = def.body.iter().filter_map(|s| match &s.op {
            Op::Load { access, guard } => Some((access, *guard, &def.reads[access.buffer])),
            Op::Const(_) | Op::Index(_) | Op::Apply { .. } | Op::Convert(_, _) | Op::Reduce { .. } => None,
        });
        let stores = def.stores.iter().map(|w| (&w.access, None, &def.writes[w.access.buffer]));
        for (access, guard, storage) in loads.chain(stores) {
            if guard.is_some_and(|g| moved(deps[g])) {
                return None;
            }
            if !moved(def.access_vars(access, &deps)) {
                continue;
            }
            let computed = def.access_vars(&Access { coords: vec![], ..access.clone() }, &deps);
            if moved(computed) || storage.panels.is_some() || !access.stride(var).is(1) {
                return None;
            }
            neighbours.push((access, scalar::stored(storage.dtype).bits() as i64 / 8));
        }
        let widest = neighbours.iter().map(|(_, bytes)| *bytes).max()?;
        let mut vectors = Vectors { width: (16 / widest).min(4), params: vec![] };
        for (access, _) in &neighbours {
            let strides = access.coords[0].strides.iter().enumerate().filter(|(v, _)| *v != var).map(|(_, s)| *s);
            let computed = access.computed.iter().map(|c| c.stride);
            for size in strides.chain(computed).chain([access.coords[0].offset]) {
                vectors = vectors.divides(size)?;
            }
        }
        Some(vectors)
    }

    /// Additionally requires a size to be a multiple of the width. Returns `None` if it is a constant that is not.
    pub fn divides(mut self, size: Size) -> Option<Vectors> {
        match size {
            Size::Const(c) if c % self.width != 0 => return None,
            Size::Const(_) => {}
            Size::Param(p) if self.params.contains(&p) => {}
            Size::Param(p) => self.params.push(p),
        }
        Some(self)
    }

    /// Emits a test of whether parameters and addresses satisfy the conditions; the result is the same in all threads.
    pub fn test(&self, cx: &Cx<Ptx>, asm: &mut Ptx) -> Val {
        let buffers: Vec<Val> = cx.reads.iter().chain(&cx.writes).copied().collect();
        let addresses = buffers.iter().map(|b| asm.cast(Cast::Bitcast, *b, Elem::I64)).collect();
        let addresses = below(asm, addresses, 16);
        let params = below(asm, self.params.iter().map(|p| cx.params[*p]).collect(), self.width);
        let all = asm.bin(Bin::OrI, addresses, params);
        let zero = asm.zero(Ty::I64);
        asm.cmpi(CmpI::Eq, all, zero)
    }

    /// Evaluates the same test for the parameters of a launch, whose buffers are taken to be aligned.
    pub fn holds(&self, launch: &Launch) -> bool {
        self.params.iter().all(|p| launch.size(Size::Param(*p)) % self.width == 0)
    }
}

/// Emits the bitwise OR of the values, modulo `power`, a power of two: 0 if all of them are multiples of it.
fn below(asm: &mut Ptx, values: Vec<Val>, power: i64) -> Val {
    let mut all = asm.zero(Ty::I64);
    for v in values {
        all = asm.bin(Bin::OrI, v, all);
    }
    let mask = asm.i64(power - 1);
    asm.bin(Bin::AndI, all, mask)
}
