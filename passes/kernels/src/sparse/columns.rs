//! Column numbers in memory  =>  one of them, or the largest, in 64 bits

use crate::asm::{Asm, Bin, Cast, Elem, Mlir, Ty, Val};
use crate::cx::{Cx, whole_steps};
use crate::def::Access;
use crate::scalar;

/// Contiguous column numbers, read as unsigned: a negative number is thus larger than all valid ones.
#[derive(Clone, Copy)]
pub struct Columns {
    base: Val,
    elem: Elem,
}

impl Columns {
    /// All column numbers of an access's buffer.
    pub fn new(cx: &Cx<Mlir>, access: &Access) -> Columns {
        Columns { base: cx.reads[access.buffer], elem: scalar::stored(cx.def.reads[access.buffer].dtype) }
    }

    /// The column numbers from position `at` on.
    pub fn from(self, asm: &mut Mlir, at: Val) -> Columns {
        Columns { base: asm.element(self.base, at, self.elem), ..self }
    }

    fn load(self, asm: &mut Mlir, at: Val, lanes: u32) -> Val {
        let address = asm.element(self.base, at, self.elem);
        asm.load(address, Ty::new(self.elem, lanes), self.elem.bits() / 8)
    }

    pub fn number(self, asm: &mut Mlir, at: Val) -> Val {
        let column = self.load(asm, at, 1);
        asm.cast(Cast::ExtUI, column, Elem::I64)
    }

    /// Returns the largest number at positions `first..end`, comparing `lanes` numbers at a time; 0 if there is none.
    pub fn largest(self, asm: &mut Mlir, (first, end): (Val, Val), lanes: u32) -> Val {
        let whole = whole_steps(asm, first, end, lanes as i64);
        let (step, start) = (asm.i64(lanes as i64), asm.zero(Ty::new(self.elem, lanes)));
        let largest = asm.for_loop((first, whole, step), &[start], |asm, at, largest| {
            let columns = self.load(asm, at, lanes);
            vec![asm.bin(Bin::MaxUI, largest[0], columns)]
        })[0];
        let mut all = asm.zero(Ty::new(self.elem, 1));
        for lane in 0..lanes {
            let one = asm.extract(largest, lane);
            all = asm.bin(Bin::MaxUI, all, one);
        }
        let one = asm.i64(1);
        let all = asm.for_loop((whole, end, one), &[all], |asm, at, all| {
            let column = self.load(asm, at, 1);
            vec![asm.bin(Bin::MaxUI, all[0], column)]
        })[0];
        asm.cast(Cast::ExtUI, all, Elem::I64)
    }
}
