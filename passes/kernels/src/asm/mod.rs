//! A writer of kernel code: values with types, structured loops and branches, in one of two languages
//!
//! What a kernel computes (indices, scalar functions, polynomials) is written once against this interface and comes
//! out as MLIR text for a CPU or as PTX. In PTX a value with several lanes is several registers of one thread.

mod mlir;
mod ops;
mod ptx;

pub use ops::{Bin, Cast, CmpF, CmpI, Un};

use std::collections::BTreeMap;

/// What the lanes of a value are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Elem {
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    Ptr,
}

impl Elem {
    pub fn is_float(self) -> bool {
        matches!(self, Elem::F16 | Elem::F32 | Elem::F64)
    }

    pub fn bits(self) -> u32 {
        match self {
            Elem::I1 => 1,
            Elem::I8 => 8,
            Elem::F16 | Elem::I16 => 16,
            Elem::F32 | Elem::I32 => 32,
            Elem::F64 | Elem::I64 | Elem::Ptr => 64,
        }
    }

    /// The integer of the same width.
    pub fn int(self) -> Elem {
        match self {
            Elem::F16 | Elem::I16 => Elem::I16,
            Elem::F32 | Elem::I32 => Elem::I32,
            Elem::F64 | Elem::I64 | Elem::Ptr => Elem::I64,
            Elem::I1 => Elem::I1,
            Elem::I8 => Elem::I8,
        }
    }
}

/// A scalar (one lane) or a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ty {
    pub elem: Elem,
    pub lanes: u32,
}

impl Ty {
    pub const I1: Ty = Ty { elem: Elem::I1, lanes: 1 };
    pub const I64: Ty = Ty { elem: Elem::I64, lanes: 1 };
    pub const I32: Ty = Ty { elem: Elem::I32, lanes: 1 };
    pub const F32: Ty = Ty { elem: Elem::F32, lanes: 1 };
    pub const PTR: Ty = Ty { elem: Elem::Ptr, lanes: 1 };

    pub fn new(elem: Elem, lanes: u32) -> Ty {
        Ty { elem, lanes }
    }

    pub fn of(self, elem: Elem) -> Ty {
        Ty { elem, lanes: self.lanes }
    }
}

/// A value: written once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Val {
    id: u32,
    pub ty: Ty,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Mlir,
    Ptx,
}

/// The body of one function while it is written. Constants stand at its beginning, each once.
pub struct Asm {
    language: Language,
    constants: String,
    known: BTreeMap<(String, Ty), Val>,
    body: String,
    depth: usize,
    n_values: u32,
    /// Whether the CPU has instructions that round f32 to bf16.
    pub rounds_bf16: bool,
    /// PTX only: what each value is in registers, and the integers that are constants.
    registers: ptx::Registers,
}

impl Asm {
    pub fn mlir() -> Asm {
        Asm::new(Language::Mlir)
    }

    pub fn ptx() -> Asm {
        Asm::new(Language::Ptx)
    }

    fn new(language: Language) -> Asm {
        let (constants, body, known) = (String::new(), String::new(), BTreeMap::new());
        let registers = ptx::Registers::default();
        Asm { language, constants, known, body, depth: 0, n_values: 0, rounds_bf16: false, registers }
    }

    fn fresh(&mut self, ty: Ty) -> Val {
        let v = Val { id: self.n_values, ty };
        self.n_values += 1;
        if self.language == Language::Ptx {
            self.registers.assign(ty);
        }
        v
    }

    fn indent(&mut self) {
        for _ in 0..=self.depth {
            self.body.push_str("  ");
        }
    }

    /// A line without a result.
    pub fn line(&mut self, text: &str) {
        self.indent();
        self.body.push_str(text);
        self.body.push('\n');
    }

    pub fn int(&mut self, value: i64, ty: Ty) -> Val {
        match self.language {
            Language::Mlir => self.mlir_int(value, ty),
            Language::Ptx => self.ptx_int(value, ty),
        }
    }

    pub fn i64(&mut self, value: i64) -> Val {
        self.int(value, Ty::I64)
    }

    /// A floating-point constant, rounded to the type.
    pub fn float(&mut self, value: f64, ty: Ty) -> Val {
        let value = if ty.elem == Elem::F32 { value as f32 as f64 } else { value };
        match self.language {
            Language::Mlir => self.mlir_float(value, ty),
            Language::Ptx => self.ptx_float(value, ty),
        }
    }

    /// 0, 1, 2, … along the lanes.
    pub fn iota(&mut self, lanes: u32) -> Val {
        match self.language {
            Language::Mlir => self.mlir_iota(lanes),
            Language::Ptx => self.ptx_iota(lanes),
        }
    }

    pub fn zero(&mut self, ty: Ty) -> Val {
        if ty.elem.is_float() { self.float(0.0, ty) } else { self.int(0, ty) }
    }

    pub fn bin(&mut self, op: Bin, a: Val, b: Val) -> Val {
        debug_assert_eq!(a.ty, b.ty, "{op:?}");
        match self.language {
            Language::Mlir => self.mlir_bin(op, a, b),
            Language::Ptx => self.ptx_bin(op, a, b),
        }
    }

    /// ⌊a / b⌋ of 64-bit numbers for b > 0, one lane repeated where the other has several.
    pub fn floordiv(&mut self, a: Val, b: Val) -> Val {
        match self.language {
            Language::Mlir => self.mlir_floordiv(a, b),
            Language::Ptx => self.ptx_floordiv(a, b),
        }
    }

    pub fn un(&mut self, op: Un, a: Val) -> Val {
        match self.language {
            Language::Mlir => self.mlir_un(op, a),
            Language::Ptx => self.ptx_un(op, a),
        }
    }

    pub fn fma(&mut self, a: Val, b: Val, c: Val) -> Val {
        debug_assert!(a.ty == b.ty && b.ty == c.ty);
        match self.language {
            Language::Mlir => self.mlir_fma(a, b, c),
            Language::Ptx => self.ptx_fma(a, b, c),
        }
    }

    pub fn cmpf(&mut self, op: CmpF, a: Val, b: Val) -> Val {
        debug_assert_eq!(a.ty, b.ty);
        match self.language {
            Language::Mlir => self.mlir_cmpf(op, a, b),
            Language::Ptx => self.ptx_cmpf(op, a, b),
        }
    }

    pub fn cmpi(&mut self, op: CmpI, a: Val, b: Val) -> Val {
        debug_assert_eq!(a.ty, b.ty);
        match self.language {
            Language::Mlir => self.mlir_cmpi(op, a, b),
            Language::Ptx => self.ptx_cmpi(op, a, b),
        }
    }

    pub fn select(&mut self, c: Val, a: Val, b: Val) -> Val {
        debug_assert!(a.ty == b.ty && c.ty == a.ty.of(Elem::I1));
        match self.language {
            Language::Mlir => self.mlir_select(c, a, b),
            Language::Ptx => self.ptx_select(c, a, b),
        }
    }

    /// A conversion; nothing where the type is already right.
    pub fn cast(&mut self, op: Cast, a: Val, elem: Elem) -> Val {
        if a.ty.elem == elem {
            return a;
        }
        match self.language {
            Language::Mlir => self.mlir_cast(op, a, elem),
            Language::Ptx => self.ptx_cast(op, a, elem),
        }
    }

    /// A float as an integer: towards zero, saturated, NaN as 0.
    pub fn float_to_int(&mut self, a: Val, elem: Elem, unsigned: bool) -> Val {
        match self.language {
            Language::Mlir => self.mlir_float_to_int(a, elem, unsigned),
            Language::Ptx => self.ptx_float_to_int(a, elem, unsigned),
        }
    }

    /// Whether a condition holds in any lane.
    pub fn any(&mut self, c: Val) -> Val {
        match self.language {
            _ if c.ty.lanes == 1 => c,
            Language::Mlir => self.mlir_any(c),
            Language::Ptx => self.ptx_any(c),
        }
    }

    /// A scalar on every lane; a value that already has the lanes is left as it is.
    pub fn widen(&mut self, a: Val, lanes: u32) -> Val {
        if a.ty.lanes == lanes {
            return a;
        }
        debug_assert_eq!(a.ty.lanes, 1);
        match self.language {
            Language::Mlir => self.mlir_widen(a, lanes),
            Language::Ptx => self.ptx_lanes(&vec![(a, 0); lanes as usize]),
        }
    }

    pub fn extract(&mut self, a: Val, lane: u32) -> Val {
        match self.language {
            _ if a.ty.lanes == 1 => a,
            Language::Mlir => self.mlir_extract(a, lane),
            Language::Ptx => self.ptx_lanes(&[(a, lane)]),
        }
    }

    /// Lanes `which` of the two values, one after the other.
    pub fn shuffle(&mut self, a: Val, b: Val, which: &[u32]) -> Val {
        debug_assert_eq!(a.ty, b.ty);
        match self.language {
            Language::Mlir => self.mlir_shuffle(a, b, which),
            Language::Ptx => {
                let n = a.ty.lanes;
                let lanes: Vec<_> = which.iter().map(|&w| if w < n { (a, w) } else { (b, w - n) }).collect();
                self.ptx_lanes(&lanes)
            }
        }
    }

    /// The address of element `index` (a scalar, or one per lane).
    pub fn element(&mut self, base: Val, index: Val, elem: Elem) -> Val {
        // Bool is one byte in memory.
        let elem = if elem == Elem::I1 { Elem::I8 } else { elem };
        match self.language {
            Language::Mlir => self.mlir_element(base, index, elem),
            Language::Ptx => self.ptx_element(base, index, elem),
        }
    }

    pub fn load(&mut self, address: Val, ty: Ty, align: u32) -> Val {
        match self.language {
            Language::Mlir => self.mlir_load(address, ty, align),
            Language::Ptx => self.ptx_load(address, ty, align, None),
        }
    }

    pub fn store(&mut self, value: Val, address: Val, align: u32) {
        match self.language {
            Language::Mlir => self.mlir_store(value, address, align),
            Language::Ptx => self.ptx_store(value, address, align, None),
        }
    }

    /// Neighbours from one address on, or one element per address; 0 where the mask is false.
    pub fn masked_load(&mut self, address: Val, mask: Val, ty: Ty) -> Val {
        match self.language {
            Language::Mlir => self.mlir_masked_load(address, mask, ty),
            Language::Ptx => self.ptx_load(address, ty, ty.elem.bits() / 8, Some(mask)),
        }
    }

    /// Neighbours from one address on, or one element per address.
    pub fn masked_store(&mut self, value: Val, address: Val, mask: Val) {
        match self.language {
            Language::Mlir => self.mlir_masked_store(value, address, mask),
            Language::Ptx => self.ptx_store(value, address, value.ty.elem.bits() / 8, Some(mask)),
        }
    }

    /// Sets the status word of a launch.
    pub fn raise(&mut self, status: Val) {
        match self.language {
            Language::Mlir => {
                let one = self.i64(1);
                self.mlir_store(one, status, 8);
            }
            Language::Ptx => self.ptx_raise(status),
        }
    }

    /// One element or neighbours, where the condition holds; else 0.
    pub fn guarded_load(&mut self, guard: Val, base: Val, index: Val, ty: Ty, align: u32) -> Val {
        match self.language {
            Language::Mlir => {
                let there = |asm: &mut Asm| {
                    let address = asm.element(base, index, ty.elem);
                    vec![asm.load(address, ty, align)]
                };
                self.if_else(guard, &[ty], there, |asm| vec![asm.zero(ty)])[0]
            }
            Language::Ptx => {
                let address = self.element(base, index, ty.elem);
                self.ptx_load(address, ty, align, Some(guard))
            }
        }
    }

    /// `for iv in lo..hi step step`, carrying values.
    pub fn for_loop(
        &mut self,
        range: (Val, Val, Val),
        inits: &[Val],
        body: impl FnOnce(&mut Asm, Val, &[Val]) -> Vec<Val>,
    ) -> Vec<Val> {
        match self.language {
            Language::Mlir => self.mlir_for(range, inits, body),
            Language::Ptx => self.ptx_for(range, inits, body),
        }
    }

    /// `if condition { then } else { other }` with values of the same types.
    pub fn if_else(
        &mut self,
        condition: Val,
        tys: &[Ty],
        then: impl FnOnce(&mut Asm) -> Vec<Val>,
        other: impl FnOnce(&mut Asm) -> Vec<Val>,
    ) -> Vec<Val> {
        match self.language {
            Language::Mlir => self.mlir_if_else(condition, tys, then, other),
            Language::Ptx => self.ptx_if_else(condition, tys, then, other),
        }
    }

    pub fn if_then(&mut self, condition: Val, then: impl FnOnce(&mut Asm)) {
        match self.language {
            Language::Mlir => self.mlir_if_then(condition, then),
            Language::Ptx => self.ptx_if_then(condition, then),
        }
    }

    /// `loop { (condition, next) = body(values); if !condition { break next } }`
    pub fn do_while(&mut self, inits: &[Val], body: impl FnOnce(&mut Asm, &[Val]) -> (Val, Vec<Val>)) -> Vec<Val> {
        match self.language {
            Language::Mlir => self.mlir_do_while(inits, body),
            Language::Ptx => self.ptx_do_while(inits, body),
        }
    }
}
