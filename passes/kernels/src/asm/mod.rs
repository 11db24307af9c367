//! Writers of kernel code: values with types, structured loops and branches, in one of two languages
//!
//! What a kernel computes (indices, scalar functions, polynomials) is written once against [`Asm`] and comes out as MLIR
//! text for a CPU or as PTX. What only one language has is a method of its writer alone. In PTX a value with several
//! lanes is several registers of one thread.

mod isa;
mod mlir;
mod ops;
mod ptx;
mod x86;

pub use mlir::{CpuLaunch, Mlir};
pub use ops::{Bin, Cast, CmpF, CmpI, Un};
pub use ptx::Ptx;

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

/// The text of one function while it is written. Constants stand at its beginning, each once.
#[derive(Default)]
struct Text {
    constants: String,
    known: BTreeMap<(String, Ty), Val>,
    body: String,
    depth: usize,
    n_values: u32,
}

impl Text {
    fn value(&mut self, ty: Ty) -> Val {
        self.n_values += 1;
        Val { id: self.n_values - 1, ty }
    }

    fn line(&mut self, text: &str) {
        for _ in 0..=self.depth {
            self.body.push_str("  ");
        }
        self.body.push_str(text);
        self.body.push('\n');
    }
}

/// What kernels are written in: the operations that CPUs and GPUs have both.
pub trait Asm: Sized {
    /// What a launch gives a kernel beside buffers and parameters.
    type Launch;

    /// This writer, where it writes for a CPU: there some operations have instructions of their own.
    fn cpu(&mut self) -> Option<&mut Mlir>;

    fn int(&mut self, value: i64, ty: Ty) -> Val;

    fn i64(&mut self, value: i64) -> Val {
        self.int(value, Ty::I64)
    }

    /// A floating-point constant, rounded to the type.
    fn float(&mut self, value: f64, ty: Ty) -> Val;

    /// 0, 1, 2, … along the lanes.
    fn iota(&mut self, lanes: u32) -> Val;

    fn zero(&mut self, ty: Ty) -> Val {
        if ty.elem.is_float() { self.float(0.0, ty) } else { self.int(0, ty) }
    }

    /// An operation on values of one type.
    fn bin(&mut self, op: Bin, a: Val, b: Val) -> Val;

    /// The same, one lane repeated where the other operand has several.
    fn both(&mut self, op: Bin, a: Val, b: Val) -> Val {
        let lanes = a.ty.lanes.max(b.ty.lanes);
        let (a, b) = (self.widen(a, lanes), self.widen(b, lanes));
        self.bin(op, a, b)
    }

    /// ⌊a / b⌋ of 64-bit numbers for b > 0, one lane repeated where the other has several.
    fn floordiv(&mut self, a: Val, b: Val) -> Val;

    fn un(&mut self, op: Un, a: Val) -> Val;

    /// a · b + c, rounded once.
    fn fma(&mut self, a: Val, b: Val, c: Val) -> Val;

    fn cmpf(&mut self, op: CmpF, a: Val, b: Val) -> Val;

    fn cmpi(&mut self, op: CmpI, a: Val, b: Val) -> Val;

    fn select(&mut self, c: Val, a: Val, b: Val) -> Val;

    /// A conversion; nothing where the type is already right.
    fn cast(&mut self, op: Cast, a: Val, elem: Elem) -> Val;

    /// A float as an integer: towards zero, saturated, NaN as 0.
    fn float_to_int(&mut self, a: Val, elem: Elem, unsigned: bool) -> Val;

    /// Whether a condition holds in any lane.
    fn any(&mut self, c: Val) -> Val;

    /// A scalar on every lane; a value that already has the lanes is left as it is.
    fn widen(&mut self, a: Val, lanes: u32) -> Val;

    fn extract(&mut self, a: Val, lane: u32) -> Val;

    /// Lanes `which` of the two values, one after the other.
    fn shuffle(&mut self, a: Val, b: Val, which: &[u32]) -> Val;

    /// The address of element `index` (a scalar, or one per lane); bool is one byte in memory.
    fn element(&mut self, base: Val, index: Val, elem: Elem) -> Val;

    fn load(&mut self, address: Val, ty: Ty, align: u32) -> Val;

    fn store(&mut self, value: Val, address: Val, align: u32);

    /// Neighbours from one address on, or one element per address; 0 where the mask is false.
    fn masked_load(&mut self, address: Val, mask: Val, ty: Ty) -> Val;

    /// Neighbours from one address on, or one element per address.
    fn masked_store(&mut self, value: Val, address: Val, mask: Val);

    /// Sets the status word of a launch.
    fn raise(&mut self, status: Val);

    /// One element or neighbours, where the condition holds; else 0.
    fn guarded_load(&mut self, guard: Val, base: Val, index: Val, ty: Ty, align: u32) -> Val;

    /// `for iv in lo..hi step step`, carrying values.
    fn for_loop(
        &mut self,
        range: (Val, Val, Val),
        inits: &[Val],
        body: impl FnOnce(&mut Self, Val, &[Val]) -> Vec<Val>,
    ) -> Vec<Val>;

    /// `if condition { then } else { other }` with values of the same types.
    fn if_else(
        &mut self,
        condition: Val,
        tys: &[Ty],
        then: impl FnOnce(&mut Self) -> Vec<Val>,
        other: impl FnOnce(&mut Self) -> Vec<Val>,
    ) -> Vec<Val>;

    fn if_then(&mut self, condition: Val, then: impl FnOnce(&mut Self));

    /// `loop { (condition, next) = body(values); if !condition { break next } }`
    fn do_while(&mut self, inits: &[Val], body: impl FnOnce(&mut Self, &[Val]) -> (Val, Vec<Val>)) -> Vec<Val>;
}
