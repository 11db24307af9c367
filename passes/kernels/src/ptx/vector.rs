//! accesses along a variable  =>  number of consecutive elements per thread access, and the conditions for it

use super::movement::Launch;
use crate::asm::{Asm, Bin, Cast, CmpI, Elem, Ptx, Ty, Val};
use crate::cx::Cx;
use crate::def::*;
use crate::scalar;

/// Consecutive elements along a variable, moved up to 16 bytes at once.
pub struct Vectors {
    pub width: i64,
    /// Parameters that must be multiples of the width.
    params: Vec<usize>,
}

impl Vectors {
    /// Vectors along a variable, if every access is contiguous or constant along it and no constant rules them out.
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

    /// Additionally requires a size to be a multiple of the width.
    pub fn divides(mut self, size: Size) -> Option<Vectors> {
        match size {
            Size::Const(c) if c % self.width != 0 => return None,
            Size::Const(_) => {}
            Size::Param(p) if self.params.contains(&p) => {}
            Size::Param(p) => self.params.push(p),
        }
        Some(self)
    }

    /// Tests whether parameters and addresses satisfy the conditions; uniform over all threads.
    pub fn test(&self, cx: &Cx<Ptx>, asm: &mut Ptx) -> Val {
        let buffers: Vec<Val> = cx.reads.iter().chain(&cx.writes).copied().collect();
        let addresses = buffers.iter().map(|b| asm.cast(Cast::Bitcast, *b, Elem::I64)).collect();
        let addresses = below(asm, addresses, 16);
        let params = below(asm, self.params.iter().map(|p| cx.params[*p]).collect(), self.width);
        let all = asm.bin(Bin::OrI, addresses, params);
        let zero = asm.zero(Ty::I64);
        asm.cmpi(CmpI::Eq, all, zero)
    }

    /// Evaluates the test for the parameters of a launch, whose buffers are aligned.
    pub fn holds(&self, launch: &Launch) -> bool {
        self.params.iter().all(|p| launch.size(Size::Param(*p)) % self.width == 0)
    }
}

/// Bits below a power of two that are set in any of the values.
fn below(asm: &mut Ptx, values: Vec<Val>, power: i64) -> Val {
    let mut all = asm.zero(Ty::I64);
    for v in values {
        all = asm.bin(Bin::OrI, v, all);
    }
    let mask = asm.i64(power - 1);
    asm.bin(Bin::AndI, all, mask)
}
