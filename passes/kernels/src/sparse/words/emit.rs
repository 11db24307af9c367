//! A block of rows by a block of lanes  =>  its accumulators, word by word

use super::{COPIED, Plan};
use crate::asm::{Asm, Bin, Cast, CmpI, Elem, Mlir, Ty, Val};
use crate::contract::{quad_product, transpose};
use crate::cx::{Cx, whole_steps};
use crate::def::Size;
use crate::sparse::columns::Columns;
use crate::sparse::tile::{self, Strip, Tile};

/// Number of vectors of one row's accumulators. The other registers hold a word and the vectors that the word is
/// multiplied with.
const VECTORS: u32 = 8;

struct Item<'i, 'd> {
    plan: &'i Plan,
    tile: Tile<'i, 'd>,
    columns: Columns,
    /// Address of the dense operand's words of four bytes: a row of vectors for each column of words.
    copied: Val,
}

pub fn emit(cx: &Cx<Mlir>, asm: &mut Mlir, plan: &Plan) {
    let one = asm.i64(1);
    asm.for_loop((cx.launch.begin, cx.launch.end, one), &[], |asm, at, _| {
        let tile = Tile::new(cx, asm, &plan.product, at, plan.rows());
        let behind = asm.i64(tile::bytes(plan.rows()));
        let copied = asm.element(cx.launch.scratch, behind, Elem::I8);
        let item = Item { plan, tile, columns: Columns::new(cx, &plan.column), copied };
        let end = item.checked_end(asm);
        let each = |asm: &mut Mlir, strip: Strip| item.strip(asm, &strip, end);
        match plan.depth > 1 || plan.product.has_vectors() {
            true => item.tile.strips(asm, VECTORS, each),
            false => item.tile.lanes(asm, each),
        }
        item.tile.results(asm);
        vec![]
    });
}

impl Item<'_, '_> {
    /// Index of a row's first word, given the row's number in the block. The row after the last one begins at the
    /// block's end.
    fn start(&self, asm: &mut Mlir, row: Val) -> Val {
        let row = asm.bin(Bin::AddI, self.tile.n0, row);
        let address = asm.element(self.tile.cx.reads[self.plan.first.buffer], row, Elem::I32);
        let start = asm.load(address, Ty::I32, 4);
        asm.cast(Cast::ExtSI, start, Elem::I64)
    }

    /// Number of whole words in `elements` elements.
    fn words(&self, asm: &mut Mlir, elements: Size) -> Val {
        let (n, depth) = (self.tile.cx.size(asm, elements), asm.i64(self.plan.depth));
        if self.plan.depth == 1 { n } else { asm.bin(Bin::DivUI, n, depth) }
    }

    /// Returns the index after the last word of the block, if all words of the block are in memory and their column
    /// numbers are valid. Otherwise the launch fails, and the block is computed as if it had no words.
    fn checked_end(&self, asm: &mut Mlir) -> Val {
        let (cx, plan) = (self.tile.cx, self.plan);
        let zero = asm.i64(0);
        let (first, end) = (self.start(asm, zero), self.start(asm, self.tile.n_rows));
        let (n_words, n_columns) = (self.words(asm, plan.n_values), self.words(asm, plan.n_columns));
        let numbered = cx.size(asm, plan.n_words);
        let n_words = asm.bin(Bin::MinSI, n_words, numbered);
        let begins = asm.cmpi(CmpI::Sge, first, zero);
        let ends = asm.cmpi(CmpI::Sle, end, n_words);
        let sorted = asm.cmpi(CmpI::Sle, first, end);
        let inside = asm.bin(Bin::AndI, begins, ends);
        let inside = asm.bin(Bin::AndI, inside, sorted);
        let end = asm.select(inside, end, first);
        let all = self.columns.largest(asm, (first, end), cx.lanes());
        let named = asm.cmpi(CmpI::Slt, all, n_columns);
        let is_empty = asm.cmpi(CmpI::Eq, first, end);
        let named = asm.bin(Bin::OrI, named, is_empty);
        let good = asm.bin(Bin::AndI, inside, named);
        let yes = asm.int(1, Ty::I1);
        let bad = asm.bin(Bin::XorI, good, yes);
        asm.if_then(bad, |asm| asm.raise(cx.status));
        asm.select(good, end, first)
    }

    /// Accumulates all rows for a strip.
    fn strip(&self, asm: &mut Mlir, strip: &Strip, block_end: Val) {
        let (zero, one) = (asm.i64(0), asm.i64(1));
        let begin = self.start(asm, zero);
        let x = match self.plan.depth {
            1 => self.tile.factor(asm, strip.lane),
            _ => self.copy(asm, strip),
        };
        asm.for_loop((zero, self.tile.n_rows, one), &[begin], |asm, row, begin| {
            let next = asm.bin(Bin::AddI, row, one);
            let end = self.start(asm, next);
            // A row that ends before it begins, or after the block's end, makes the launch fail and is computed as an
            // empty row. The next row then begins where this row began, because only the block's own words have been
            // checked.
            let sorted = asm.cmpi(CmpI::Sle, begin[0], end);
            let within = asm.cmpi(CmpI::Sle, end, block_end);
            let good = asm.bin(Bin::AndI, sorted, within);
            let stop = asm.select(good, end, begin[0]);
            let sums = vec![asm.zero(strip.ty()); strip.vectors as usize];
            let sums = asm
                .for_loop((begin[0], stop, one), &sums, |asm, word, sums| self.times_word(asm, strip, word, x, sums));
            let yes = asm.int(1, Ty::I1);
            let bad = asm.bin(Bin::XorI, good, yes);
            asm.if_then(bad, |asm| asm.raise(self.tile.cx.status));
            let to = self.tile.sums(asm, strip, row);
            for (i, sum) in sums.into_iter().enumerate() {
                let to = strip.vector(asm, to, i);
                asm.store(sum, to, 4);
            }
            vec![stop]
        });
    }

    /// Adds to the accumulators one word times the vectors of its column.
    fn times_word(&self, asm: &mut Mlir, strip: &Strip, word: Val, x: Val, sums: &[Val]) -> Vec<Val> {
        let column = self.columns.number(asm, word);
        let value = asm.element(self.tile.cx.reads[self.plan.value.buffer], word, Elem::F32);
        let value = asm.load(value, Ty { lanes: 1, ..strip.ty() }, 4);
        let value = asm.widen(value, strip.lanes);
        let mut next = vec![];
        if self.plan.depth > 1 {
            let x = copied(asm, strip, x, column);
            for (i, sum) in sums.iter().enumerate() {
                let from = strip.vector(asm, x, i);
                let x = asm.load(from, strip.ty(), 4);
                next.push(quad_product(asm, self.tile.cx.launch.level, *sum, x, value));
            }
            return next;
        }
        let x = self.tile.column(asm, x, column);
        for (i, sum) in sums.iter().enumerate() {
            let x = self.tile.load(asm, strip, x, i);
            next.push(asm.fma(value, x, *sum));
        }
        next
    }

    /// Copies the words of all columns for a strip, as a row of vectors for each column. Returns their address.
    fn copy(&self, asm: &mut Mlir, strip: &Strip) -> Val {
        let (zero, one, vectors) = (asm.i64(0), asm.i64(1), asm.i64(strip.vectors as i64));
        let n = self.words(asm, self.plan.n_columns);
        // A square has as many words as a strip's vectors have lanes.
        let whole = whole_steps(asm, zero, n, strip.lanes as i64);
        let step = asm.i64(strip.lanes as i64);
        asm.for_loop((zero, vectors, one), &[], |asm, vector, _| {
            asm.for_loop((zero, whole, step), &[], |asm, word, _| {
                self.square(asm, strip, vector, word, None);
                vec![]
            });
            let some = asm.cmpi(CmpI::Ne, whole, n);
            asm.if_then(some, |asm| {
                let left = asm.bin(Bin::SubI, n, whole);
                let (left, iota) = (asm.widen(left, strip.lanes), asm.iota(strip.lanes));
                let mask = asm.cmpi(CmpI::Slt, iota, left);
                self.square(asm, strip, vector, whole, Some(mask));
            });
            vec![]
        });
        self.copied
    }

    /// Copies a square of as many words as lanes, from word `word` on.
    fn square(&self, asm: &mut Mlir, strip: &Strip, vector: Val, word: Val, mask: Option<Val>) {
        debug_assert!(strip.lanes as i64 <= COPIED);
        let (lanes, one, depth) = (asm.i64(strip.lanes as i64), asm.i64(1), asm.i64(self.plan.depth));
        let behind = asm.bin(Bin::MulI, vector, lanes);
        let first = asm.bin(Bin::AddI, strip.lane, behind);
        let last = asm.bin(Bin::SubI, self.tile.n_lanes, one);
        let element = asm.bin(Bin::MulI, word, depth);
        let mut square = vec![];
        for i in 0..strip.lanes {
            // Lanes beyond the last one repeat it.
            let i = asm.i64(i as i64);
            let lane = asm.bin(Bin::AddI, first, i);
            let lane = asm.bin(Bin::MinSI, lane, last);
            let from = self.tile.factor(asm, lane);
            let from = self.tile.column(asm, from, element);
            square.push(match mask {
                Some(mask) => asm.masked_load(from, mask, strip.ty()),
                None => asm.load(from, strip.ty(), 1),
            });
        }
        transpose(asm, &mut square);
        for (i, words) in square.into_iter().enumerate() {
            let i = asm.i64(i as i64);
            let column = asm.bin(Bin::AddI, word, i);
            let to = copied(asm, strip, self.copied, column);
            let to = asm.element(to, behind, Elem::I32);
            asm.store(words, to, 4);
        }
    }
}

/// Address of the vectors of a column of words.
fn copied(asm: &mut Mlir, strip: &Strip, from: Val, column: Val) -> Val {
    let size = asm.i64((strip.vectors * strip.lanes) as i64);
    let at = asm.bin(Bin::MulI, column, size);
    asm.element(from, at, Elem::I32)
}
