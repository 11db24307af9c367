//! remaining rows  =>  rows of the next block, given the vector registers of a CPU level and the kind of words

use crate::asm::{Asm, Bin, CmpI, Mlir, Val};
use crate::words::Words;
use sardonyx_base::cpu::Level;
use std::collections::BTreeSet;

/// Sizes of the blocks that rows are divided into.
#[derive(Clone, Copy)]
pub struct Blocks {
    /// Rows of the largest block that fits the registers.
    pub(super) usual: i64,
    /// Up to this many remaining rows are computed as a single block, so that these rows read the panel only once.
    exact: i64,
    /// In blocks of up to this many rows, a multiply-add waits for the previous one into the same accumulator. If only
    /// so few rows would remain after a block of `usual` rows, that block has `exact` rows instead.
    slow: i64,
}

impl Blocks {
    /// Returns the block sizes that suit the number of vector registers of a CPU level.
    pub fn for_level(level: Level) -> Blocks {
        match has_many_registers(level) {
            false => Blocks { usual: 6, exact: 5, slow: 1 },
            true => Blocks { usual: 12, exact: 8, slow: 3 },
        }
    }

    /// Block sizes for a kind of words. Without the extension that multiplies the words, the two unpacked halves of
    /// the panel's vectors occupy registers too.
    pub(super) fn for_words(level: Level, words: Words) -> Blocks {
        let apart = words.extension().is_some_and(|extension| !level.has(extension));
        match (has_many_registers(level), words) {
            (false, _) if apart => Blocks { usual: 4, exact: 4, slow: 0 },
            (true, Words::Quads) if apart => Blocks { usual: 8, exact: 8, slow: 0 },
            (_, Words::Singles | Words::Pairs | Words::Quads) => Blocks::for_level(level),
        }
    }

    /// Block sizes of a contraction in groups: besides each accumulator there is a second one for the current group.
    pub(super) fn of_groups(level: Level, words: Words) -> Blocks {
        let usual = match (has_many_registers(level), words.extension().is_none_or(|e| level.has(e))) {
            (true, true) => 6,
            (true, false) => 4,
            (false, _) => 2,
        };
        Blocks { usual, exact: usual, slow: 0 }
    }

    /// Blocks with a single vector of columns.
    pub(super) const NARROW: Blocks = Blocks { usual: 8, exact: 8, slow: 0 };

    /// Blocks for a small part of the work, which prefer short code to fast code.
    pub(super) const SHORT: Blocks = Blocks { usual: 4, exact: 4, slow: 0 };

    /// Rows of the next block when `left` rows remain.
    fn next(&self, left: i64) -> i64 {
        if left <= self.exact {
            left
        } else if left < self.usual {
            (left + 1).div_euclid(2)
        } else if left > self.usual && left <= self.usual + self.slow {
            self.exact
        } else {
            self.usual
        }
    }

    /// Emits `next` for a number of rows that is only known at run time.
    pub fn emit_next(&self, asm: &mut Mlir, left: Val) -> Val {
        let (usual, exact, one) = (asm.i64(self.usual), asm.i64(self.exact), asm.i64(1));
        let mut rows = usual;
        if self.slow > 0 {
            let behind = asm.i64(self.usual + self.slow);
            let (more, few) = (asm.cmpi(CmpI::Sgt, left, usual), asm.cmpi(CmpI::Sle, left, behind));
            let both = asm.bin(Bin::AndI, more, few);
            rows = asm.select(both, exact, rows);
        }
        if self.usual - 1 > self.exact {
            let half = asm.bin(Bin::AddI, left, one);
            let half = asm.bin(Bin::ShRUI, half, one);
            let less = asm.cmpi(CmpI::Slt, left, usual);
            rows = asm.select(less, half, rows);
        }
        let fits = asm.cmpi(CmpI::Sle, left, exact);
        asm.select(fits, left, rows)
    }

    /// Distinct block sizes, largest first, that occur when each of these numbers of rows is divided into blocks.
    pub fn sizes(&self, rows: &[i64]) -> Vec<i64> {
        let mut sizes = BTreeSet::new();
        for rows in rows {
            let mut left = *rows;
            while left > 0 {
                sizes.insert(self.next(left));
                left -= self.next(left);
            }
        }
        sizes.into_iter().rev().collect()
    }
}

/// Maximum number of rows of a block over two panels. With so few rows, the accumulators of one panel alone would not
/// hide the latency of the multiply-add.
pub fn pair_rows(level: Level) -> i64 {
    if has_many_registers(level) { 2 } else { 1 }
}

/// Number of accumulator registers of a block of one or two rows, over all panels that it processes together: each
/// element of A is read once for all of these panels. The remaining registers hold operands.
pub fn few_row_sums(level: Level) -> i64 {
    if has_many_registers(level) { 24 } else { 12 }
}

fn has_many_registers(level: Level) -> bool {
    level.vector_registers() >= 32
}
