//! A factor in memory, f32 or narrower  =>  f32 in registers: the type that is stored, apart from that of the arithmetic
//!
//! Narrow elements are widened when they are loaded. Of a panel that many rows go over a work item makes a copy in f32
//! first, once for all of its blocks: conversions share a port with multiply-adds. Few rows wait for memory, and read it.

use super::plan::{Form, Plan, WIDTH};
use crate::asm::{Asm, Elem, Mlir, Ty, Val};
use crate::def::{KernelDef, Op};
use crate::scalar;
use crate::words::Words;
use sardonyx_base::DType;
use sardonyx_dialects::scalar::Conversion;

/// The types that factors of f32 products may have in memory.
const STORED: [DType; 2] = [DType::F32, DType::F16];

/// The load whose value is multiplied, as f32: the statement itself, or what it widens.
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

/// Rows that pay for a copy of the panel that they go over.
pub const MANY_ROWS: i64 = 32;

/// A copy stays in the second-level cache beside the left factor.
const COPY_BYTES_MAX: i64 = 1 << 19;

/// The blocks of rows that multiply with a copy of the panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    None,
    /// Where there are many rows, which is known when the kernel runs: large blocks.
    OfMany,
    All,
}

impl Plan {
    /// True where there are so many rows that share a panel; not known where they are counted by a parameter.
    pub fn has_many_rows(&self, def: &KernelDef) -> Option<bool> {
        let Some(m) = self.m else { return Some(false) };
        def.extent(m).as_const().map(|m| m * self.slabs_per_item(def) >= MANY_ROWS)
    }

    /// The blocks that read a copy in f32 of a panel of narrow elements.
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

    /// The type of the left factor in memory; f32 stands for a word of several elements.
    pub fn a_stored(&self, def: &KernelDef) -> DType {
        match &self.staged {
            Some(staged) => self.stored(def.body[staged.root].dtype),
            None => self.stored(def.reads[self.a.buffer].dtype),
        }
    }

    /// The same of the right factor, where blocks read it from its buffer or a panel that is gathered in f32.
    pub fn b_stored(&self, def: &KernelDef) -> DType {
        match self.form {
            Form::Panels | Form::Rows => self.stored(def.reads[self.b().buffer].dtype),
            Form::Copied => DType::F32,
        }
    }

    fn stored(&self, dtype: DType) -> DType {
        if self.words == Words::Singles && self.folds.is_empty() { dtype } else { DType::F32 }
    }

    /// The step of addresses of the left factor along the sum: an element, or a word.
    pub fn a_step(&self, def: &KernelDef) -> Elem {
        scalar::stored(self.a_stored(def))
    }

    /// An element of the left factor.
    pub fn a_element(&self, def: &KernelDef) -> Elem {
        if self.words == Words::Singles { self.a_step(def) } else { self.words.element() }
    }

    /// The step of addresses of the right factor along the columns.
    pub fn b_step(&self, def: &KernelDef) -> Elem {
        scalar::stored(self.b_stored(def))
    }

    /// Bytes of what `b_step` counts.
    pub fn b_bytes(&self, def: &KernelDef) -> i64 {
        i64::from(self.b_step(def).bits()) / 8
    }
}

/// Loads numbers of a type as f32, those of the mask where there is one, from an address of so many bytes' alignment.
pub fn load_as_f32(asm: &mut Mlir, dtype: DType, address: Val, lanes: u32, mask: Option<Val>, align: u32) -> Val {
    let ty = Ty::new(scalar::stored(dtype), lanes);
    let v = match mask {
        Some(mask) => asm.masked_load(address, mask, ty),
        None => asm.load(address, ty, align),
    };
    scalar::after_load(asm, v, dtype)
}
