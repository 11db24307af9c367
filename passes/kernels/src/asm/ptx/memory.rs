//! Memory elements  =>  registers and back, one or several per instruction; exchanges between threads

use super::super::{Asm, Cast, CmpI, Elem, Ty, Val};
use super::{Class, Ptx, typed};

pub(super) fn element(asm: &mut Ptx, base: Val, index: Val, elem: Elem) -> Val {
    let bytes = elem.bits() as i64 / 8;
    let ty = Ty::new(Elem::Ptr, index.ty.lanes);
    if let Some(n) = asm.known_int(index) {
        let base = asm.widen(base, ty.lanes);
        return asm.each(ty, &[base], |d, o| format!("add.s64 {d}, {}, {};", o[0], n * bytes));
    }
    let base = asm.widen(base, ty.lanes);
    asm.each(ty, &[index, base], |d, o| match bytes {
        1 => format!("add.s64 {d}, {}, {};", o[1], o[0]),
        _ => format!("mad.lo.s64 {d}, {}, {bytes}, {};", o[0], o[1]),
    })
}

/// Loads through the read-only path (`.nc`): the kernel must not write the memory.
pub(super) fn load(asm: &mut Ptx, address: Val, ty: Ty, align: u32, mask: Option<Val>) -> Val {
    let (v, t, bytes) = (asm.fresh(ty), in_memory(ty.elem), ty.elem.bits().max(8) / 8);
    for lane in 0..if mask.is_some() { ty.lanes } else { 0 } {
        let d = asm.name(v, lane);
        let zero = match ty.elem {
            Elem::F32 => format!("f32 {d}, 0f00000000"),
            Elem::F64 => format!("f64 {d}, 0d0000000000000000"),
            Elem::F16 => format!("b16 {d}, 0"),
            elem => format!("{} {d}, 0", typed('b', elem)),
        };
        asm.line(&format!("mov.{zero};"));
    }
    let together = together(address, mask, ty, align);
    for lane in (0..ty.lanes).step_by(together as usize) {
        let (guard, at) = (asm.guard_of(mask, lane), asm.place_of(address, lane, bytes));
        let (suffix, names) = asm.names_of(v, lane, together);
        asm.line(&format!("{guard}ld.global.nc{suffix}.{t} {names}, [{at}];"));
    }
    v
}

pub(super) fn store(asm: &mut Ptx, v: Val, address: Val, align: u32, mask: Option<Val>) {
    let (ty, t, bytes) = (v.ty, in_memory(v.ty.elem), v.ty.elem.bits().max(8) / 8);
    let together = together(address, mask, ty, align);
    for lane in (0..ty.lanes).step_by(together as usize) {
        let (guard, at) = (asm.guard_of(mask, lane), asm.place_of(address, lane, bytes));
        let (suffix, names) = asm.names_of(v, lane, together);
        asm.line(&format!("{guard}st.global{suffix}.{t} [{at}], {names};"));
    }
}

impl Ptx {
    /// Returns the vector suffix of a memory instruction for `n` lanes, and their registers as its operand.
    fn names_of(&self, v: Val, lane: u32, n: u32) -> (String, String) {
        let names: Vec<String> = (lane..lane + n).map(|lane| self.name(v, lane)).collect();
        match n {
            1 => (String::new(), names.concat()),
            _ => (format!(".v{n}"), format!("{{{}}}", names.join(", "))),
        }
    }

    /// Stores a one-lane value of 4 or 8 bytes into shared memory at a 32-bit address.
    pub fn store_shared(&mut self, v: Val, address: Val) {
        let v = if v.ty.elem == Elem::I1 { self.cast(Cast::ExtUI, v, Elem::I32) } else { v };
        let (t, at, v) = (in_shared(v.ty.elem), self.name(address, 0), self.name(v, 0));
        self.line(&format!("st.shared.{t} [{at}], {v};"));
    }

    /// Loads a value that [`Ptx::store_shared`] has written.
    pub fn load_shared(&mut self, address: Val, elem: Elem) -> Val {
        let (at, held) = (format!("[{}]", self.name(address, 0)), if elem == Elem::I1 { Elem::I32 } else { elem });
        let v = self.instruction(Ty::new(held, 1), &format!("ld.shared.{}", in_shared(held)), &[at]);
        let zero = self.zero(v.ty);
        if elem == Elem::I1 { self.cmpi(CmpI::Ne, v, zero) } else { v }
    }

    /// Returns the value of the thread whose lane number in the warp differs from this thread's in exactly these bits.
    pub fn exchanged_with(&mut self, v: Val, bits: u32) -> Val {
        let exchange = |asm: &mut Ptx, v: Val| {
            let operands = [asm.name(v, 0), bits.to_string(), "31".into(), "0xffffffff".into()];
            asm.instruction(v.ty, "shfl.sync.bfly.b32", &operands)
        };
        match Class::for_elem(v.ty.elem) {
            Class::F32 | Class::B32 => exchange(self, v),
            Class::Pred => {
                let word = self.cast(Cast::ExtUI, v, Elem::I32);
                let (word, zero) = (exchange(self, word), self.int(0, Ty::I32));
                self.cmpi(CmpI::Ne, word, zero)
            }
            Class::B64 | Class::F64 => {
                let (lo, hi) = (self.fresh(Ty::I32), self.fresh(Ty::I32));
                self.line(&format!("mov.b64 {{{}, {}}}, {};", self.name(lo, 0), self.name(hi, 0), self.name(v, 0)));
                let (lo, hi) = (exchange(self, lo), exchange(self, hi));
                let pair = format!("{{{}, {}}}", self.name(lo, 0), self.name(hi, 0));
                self.instruction(v.ty, "mov.b64", &[pair])
            }
            Class::B16 => unreachable!("f16 is computed with as f32"),
        }
    }

    fn guard_of(&self, mask: Option<Val>, lane: u32) -> String {
        mask.map(|m| format!("@{} ", self.name(m, if m.ty.lanes == 1 { 0 } else { lane }))).unwrap_or_default()
    }

    /// Address operand of a lane: its own address, or an offset of `lane` elements from the address that all lanes
    /// share.
    fn place_of(&self, address: Val, lane: u32, bytes: u32) -> String {
        match (address.ty.lanes, lane) {
            (1, 0) => self.name(address, 0),
            (1, _) => format!("{}+{}", self.name(address, 0), lane * bytes),
            (_, _) => self.name(address, lane),
        }
    }
}

/// Type suffix of an access to shared memory, which stores registers unchanged.
fn in_shared(elem: Elem) -> String {
    typed(if elem.is_float() { 'f' } else { 'b' }, elem)
}

/// Type suffix of an access to global memory; narrow integers are unsigned.
fn in_memory(elem: Elem) -> &'static str {
    match elem {
        Elem::F16 => "b16",
        Elem::F32 => "f32",
        Elem::F64 => "f64",
        Elem::I1 | Elem::I8 => "u8",
        Elem::I16 => "u16",
        Elem::I32 => "b32",
        Elem::I64 | Elem::Ptr => "b64",
    }
}

/// Returns how many lanes one instruction moves. Several lanes must be adjacent in memory, and their address must be
/// aligned to their total size, which is at most 16 bytes.
fn together(address: Val, mask: Option<Val>, ty: Ty, align: u32) -> u32 {
    let bytes = ty.elem.bits().max(8) / 8;
    let neighbours = address.ty.lanes == 1 && mask.is_none_or(|m| m.ty.lanes == 1);
    let fits = |n: &u32| neighbours && ty.lanes.is_multiple_of(*n) && bytes * n <= align.min(16);
    [4, 2].into_iter().find(fits).unwrap_or(1)
}
