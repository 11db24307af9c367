//! An operand in memory, f32 or narrower  =>  f32 in registers: the stored type is independent of the arithmetic
//!
//! Narrow elements are widened when they are loaded. If many rows use a panel, the work item first makes an f32 copy
//! for all of its blocks, because conversions share a port with multiply-adds. Few rows are bound by memory and read
//! the panel directly.

use super::plan::{Form, Plan, WIDTH};
use crate::asm::{Asm, Elem, Mlir, Ty, Val};
use crate::def::{KernelDef, Op};
use crate::scalar;
use crate::words::Words;
use sardonyx_base::DType;
use sardonyx_dialects::scalar::Conversion;

/// Types that operands of f32 products may have in memory.
const STORED: [DType; 2] = [DType::F32, DType::F16];

/// The statement to multiply as f32: the load that statement k widens, or k itself.
pub fn unwidened(def: &KernelDef, k: usize) -> usize {
    match def.body[k].op {
        Op::Convert(from, Conversion::Value)
            if def.body[k].dtype == DType::F32
                && STORED.contains(&def.body[from].dtype)
                && matches!(def.body[from].op, Op::Load { guard: None, .. }) =>
        {
            from
        }
        _ => k,
    }
}

/// Number of rows from which copying their panel pays off.
pub const MANY_ROWS: i64 = 32;

/// Maximum size of a copy, so that it stays in the second-level cache beside A.
const COPY_BYTES_MAX: i64 = 1 << 19;

/// Blocks of rows that multiply with a copy of the panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    None,
    /// Large blocks, if there are many rows, which is decided at run time.
    OfMany,
    All,
}

impl Plan {
    /// Whether at least `MANY_ROWS` rows share a panel; `None` if their number is a parameter.
    pub fn has_many_rows(&self, def: &KernelDef) -> Option<bool> {
        let Some(m) = self.m else { return Some(false) };
        def.extent(m).as_const().map(|m| m * self.slabs_per_item(def) >= MANY_ROWS)
    }

    /// Blocks that read an f32 copy of a panel of narrow elements.
    pub fn copies_panels(&self, def: &KernelDef) -> Copies {
        let bytes = self.panel_rows(def).checked_mul(WIDTH * 4);
        let fits = bytes.is_some_and(|bytes| bytes <= COPY_BYTES_MAX);
        match self.has_many_rows(def) {
            _ if self.form != Form::Panels || self.b_stored(def) == DType::F32 || !fits => Copies::None,
            Some(true) => Copies::All,
            Some(false) => Copies::None,
            None => Copies::OfMany,
        }
    }

    /// Type of A in memory; f32 stands for a word of several elements.
    pub fn a_stored(&self, def: &KernelDef) -> DType {
        match &self.staged {
            Some(staged) => self.stored(def.body[staged.root].dtype),
            None => self.stored(def.reads[self.a.buffer].dtype),
        }
    }

    /// Type of B as blocks read it, from its buffer or from a copied panel in f32.
    pub fn b_stored(&self, def: &KernelDef) -> DType {
        match self.form {
            Form::Panels | Form::Rows => self.stored(def.reads[self.b().buffer].dtype),
            Form::Copied => DType::F32,
        }
    }

    fn stored(&self, dtype: DType) -> DType {
        if self.words == Words::Singles && self.folds.is_empty() { dtype } else { DType::F32 }
    }

    /// Unit of steps along K in A: an element, or a word.
    pub fn a_step(&self, def: &KernelDef) -> Elem {
        scalar::stored(self.a_stored(def))
    }

    /// Element type of A.
    pub fn a_element(&self, def: &KernelDef) -> Elem {
        if self.words == Words::Singles { self.a_step(def) } else { self.words.element() }
    }

    /// Unit of steps along the columns of B.
    pub fn b_step(&self, def: &KernelDef) -> Elem {
        scalar::stored(self.b_stored(def))
    }

    /// Bytes of the unit `b_step`.
    pub fn b_bytes(&self, def: &KernelDef) -> i64 {
        i64::from(self.b_step(def).bits()) / 8
    }
}

/// Loads elements of a type as f32, under the mask if there is one; `align` is the address's alignment in bytes.
pub fn load_as_f32(asm: &mut Mlir, dtype: DType, address: Val, lanes: u32, mask: Option<Val>, align: u32) -> Val {
    let ty = Ty::new(scalar::stored(dtype), lanes);
    let v = match mask {
        Some(mask) => asm.masked_load(address, mask, ty),
        None => asm.load(address, ty, align),
    };
    scalar::after_load(asm, v, dtype)
}
