//! Writers of kernel code in MLIR or PTX: typed values, structured loops and branches
//!
//! The computation of a kernel (indices, scalar functions, polynomials) is written once against [`Asm`] and comes out
//! as MLIR text for a CPU or as PTX for a GPU. Operations that only one language has are methods of its writer alone.
//! In PTX, a value with several lanes occupies several registers of one thread.

mod isa;
mod mlir;
mod ops;
mod ptx;
mod x86;

pub use mlir::{CpuLaunch, Mlir};
pub use ops::{Bin, Cast, CmpF, CmpI, Un};
pub use ptx::Ptx;

use std::collections::BTreeMap;

/// Element type of a value's lanes.
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

    /// Integer type of the same width.
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

/// Type of a value: a scalar (one lane) or a vector.
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

    pub fn with_elem(self, elem: Elem) -> Ty {
        Ty { elem, lanes: self.lanes }
    }
}

/// Value in SSA form: defined once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Val {
    id: u32,
    pub ty: Ty,
}

/// Text of one function under construction. Each distinct constant is defined once, at the beginning of the function.
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

/// Writer of kernel code: the operations that CPUs and GPUs have in common.
pub trait Asm: Sized {
    /// Values that a launch passes to a kernel besides buffers and parameters.
    type Launch;

    /// Returns this writer if it targets a CPU, for which some operations have dedicated instructions.
    fn cpu(&mut self) -> Option<&mut Mlir>;

    fn int(&mut self, value: i64, ty: Ty) -> Val;

    fn i64(&mut self, value: i64) -> Val {
        self.int(value, Ty::I64)
    }

    /// Floating-point constant, rounded to the type.
    fn float(&mut self, value: f64, ty: Ty) -> Val;

    /// Vector 0, 1, 2, … of i64 over the lanes.
    fn iota(&mut self, lanes: u32) -> Val;

    fn zero(&mut self, ty: Ty) -> Val {
        if ty.elem.is_float() { self.float(0.0, ty) } else { self.int(0, ty) }
    }

    /// Binary operation on values of the same type.
    fn bin(&mut self, op: Bin, a: Val, b: Val) -> Val;

    /// Like `bin`, but broadcasts a scalar operand to the lanes of the other.
    fn both(&mut self, op: Bin, a: Val, b: Val) -> Val {
        let lanes = a.ty.lanes.max(b.ty.lanes);
        let (a, b) = (self.widen(a, lanes), self.widen(b, lanes));
        self.bin(op, a, b)
    }

    /// Returns ⌊a / b⌋ of 64-bit integers for b > 0; broadcasts a scalar operand to the lanes of the other.
    fn floordiv(&mut self, a: Val, b: Val) -> Val;

    fn un(&mut self, op: Un, a: Val) -> Val;

    /// Returns a · b + c, rounded once.
    fn fma(&mut self, a: Val, b: Val, c: Val) -> Val;

    fn cmpf(&mut self, op: CmpF, a: Val, b: Val) -> Val;

    fn cmpi(&mut self, op: CmpI, a: Val, b: Val) -> Val;

    fn select(&mut self, c: Val, a: Val, b: Val) -> Val;

    /// Converts to `elem`; returns the value unchanged if it already has that element type.
    fn cast(&mut self, op: Cast, a: Val, elem: Elem) -> Val;

    /// Converts a float to an integer: truncates, saturates, and converts NaN to 0.
    fn float_to_int(&mut self, a: Val, elem: Elem, unsigned: bool) -> Val;

    /// Returns whether the condition holds in any lane.
    fn any(&mut self, c: Val) -> Val;

    /// Broadcasts a scalar to `lanes` lanes; a value that already has them is returned unchanged.
    fn widen(&mut self, a: Val, lanes: u32) -> Val;

    fn extract(&mut self, a: Val, lane: u32) -> Val;

    /// Selects the lanes `which` of the concatenation of `a` and `b`.
    fn shuffle(&mut self, a: Val, b: Val, which: &[u32]) -> Val;

    /// Returns the address of element `index` (a scalar, or one index per lane); bool takes one byte in memory.
    fn element(&mut self, base: Val, index: Val, elem: Elem) -> Val;

    fn load(&mut self, address: Val, ty: Ty, align: u32) -> Val;

    fn store(&mut self, value: Val, address: Val, align: u32);

    /// Loads consecutive elements from one address on, or one element per address; 0 where the mask is false.
    fn masked_load(&mut self, address: Val, mask: Val, ty: Ty) -> Val;

    /// Stores consecutive elements from one address on, or one element per address, where the mask is true.
    fn masked_store(&mut self, value: Val, address: Val, mask: Val);

    /// Sets the status word of the launch, at address `status`, to 1.
    fn raise(&mut self, status: Val);

    /// Loads one element or consecutive elements if the condition holds; returns 0 otherwise.
    fn guarded_load(&mut self, guard: Val, base: Val, index: Val, ty: Ty, align: u32) -> Val;

    /// Writes `for iv in lo..hi step step` with loop-carried values `inits`; returns their final values.
    fn for_loop(
        &mut self,
        range: (Val, Val, Val),
        inits: &[Val],
        body: impl FnOnce(&mut Self, Val, &[Val]) -> Vec<Val>,
    ) -> Vec<Val>;

    /// Writes `if condition { then } else { other }`; both branches return values of types `tys`.
    fn if_else(
        &mut self,
        condition: Val,
        tys: &[Ty],
        then: impl FnOnce(&mut Self) -> Vec<Val>,
        other: impl FnOnce(&mut Self) -> Vec<Val>,
    ) -> Vec<Val>;

    fn if_then(&mut self, condition: Val, then: impl FnOnce(&mut Self));

    /// Writes `loop { (condition, values) = body(values); if !condition { break values } }`.
    fn do_while(&mut self, inits: &[Val], body: impl FnOnce(&mut Self, &[Val]) -> (Val, Vec<Val>)) -> Vec<Val>;
}
