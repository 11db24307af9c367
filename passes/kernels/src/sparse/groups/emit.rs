//! A block of rows by a block of lanes  =>  its accumulators, by chunks of columns, and in a chunk pattern by pattern

use super::Plan;
use crate::asm::{Asm, Bin, CmpI, Elem, Mlir, Ty, Val};
use crate::cx::Cx;
use crate::sparse::columns::Columns;
use crate::sparse::tile::{self, Strip, Tile};

/// Bytes of the dense operand's vectors that stay in the first-level cache while a chunk is multiplied.
const FAST_BYTES: i64 = 24 << 10;
/// Number of accumulators used in turn, so that no addition waits for the previous one.
const CHAINS: u32 = 8;
/// Number of columns that are checked together.
const CHECKED: u32 = 32;

struct Item<'i, 'd> {
    plan: &'i Plan,
    tile: Tile<'i, 'd>,
    /// Number of blocks of rows, and the index of the first one.
    n_blocks: Val,
    block0: Val,
    /// Address of the dense operand's vectors for the columns of a chunk, stored contiguously.
    copied: Val,
}

pub fn emit(cx: &Cx<Mlir>, asm: &mut Mlir, plan: &Plan) {
    let one = asm.i64(1);
    let chunks = plan.checked_chunks(cx, asm);
    asm.for_loop((cx.launch.begin, cx.launch.end, one), &[], |asm, at, _| {
        let tile = Tile::new(cx, asm, &plan.product, at, plan.rows());
        let (m, behind) = (asm.i64(plan.m), asm.i64(tile::bytes(plan.rows())));
        let block0 = asm.bin(Bin::DivUI, tile.n0, m);
        let less_one = asm.i64(plan.m - 1);
        let all = asm.bin(Bin::AddI, tile.n_rows, less_one);
        let n_blocks = asm.bin(Bin::DivUI, all, m);
        let copied = asm.element(cx.launch.scratch, behind, Elem::I8);
        let item = Item { plan, tile, n_blocks, block0, copied };
        let chunks = item.named_chunks(asm, chunks);
        let each = |asm: &mut Mlir, strip: Strip| item.strip(asm, &strip, chunks);
        match plan.product.has_vectors() {
            true => item.tile.strips(asm, plan.vectors(cx), each),
            false => item.tile.lanes(asm, each),
        }
        item.tile.results(asm);
        vec![]
    });
}

impl Plan {
    /// Number of vectors of a strip, few enough to leave registers for the accumulators of a pattern's n rows, and to
    /// keep the dense operand's vectors for a chunk of columns in the first-level cache.
    fn vectors(&self, cx: &Cx<Mlir>) -> u32 {
        let (registers, n) = (cx.launch.level.vector_registers() as i64, self.patterns[0].len() as i64);
        let of_chunk = self.width * cx.lanes() as i64 * 4;
        let most = (registers - 2).div_euclid(n + 1).min(FAST_BYTES.div_euclid(of_chunk)).max(2);
        let whole = tile::LANES.div_euclid(cx.lanes() as i64);
        [8, 4, 2].into_iter().find(|v| *v <= most.min(whole)).map_or(1, |v| v as u32)
    }

    /// Number of chunks if the table of patterns is the one that this code was compiled for. Otherwise the launch
    /// fails, and the result is 0.
    fn checked_chunks(&self, cx: &Cx<Mlir>, asm: &mut Mlir) -> Val {
        let base = cx.reads[self.table.buffer];
        let mut other = asm.int(0, Ty::new(Elem::I8, 1));
        for (at, number) in self.numbers.iter().enumerate() {
            let at = asm.i64(at as i64);
            let address = asm.element(base, at, Elem::I8);
            let found = asm.load(address, Ty::new(Elem::I8, 1), 1);
            let number = asm.int(i64::from(number.cast_signed()), Ty::new(Elem::I8, 1));
            let differs = asm.bin(Bin::XorI, found, number);
            other = asm.bin(Bin::OrI, other, differs);
        }
        let zero = asm.int(0, Ty::new(Elem::I8, 1));
        let bad = asm.cmpi(CmpI::Ne, other, zero);
        asm.if_then(bad, |asm| asm.raise(cx.status));
        let (none, chunks) = (asm.i64(0), asm.i64(self.chunks));
        asm.select(bad, none, chunks)
    }
}

impl Item<'_, '_> {
    /// Offset of a block's part of a chunk, in elements.
    fn part(&self, asm: &mut Mlir, [of_chunk, of_block]: [i64; 2], chunk: Val, block: Val) -> Val {
        let (of_chunk, of_block) = (asm.i64(of_chunk), asm.i64(of_block));
        let chunk = asm.bin(Bin::MulI, chunk, of_chunk);
        let block = asm.bin(Bin::AddI, self.block0, block);
        let block = asm.bin(Bin::MulI, block, of_block);
        asm.bin(Bin::AddI, chunk, block)
    }

    /// Column numbers of a block of rows in a chunk, followed by those of the next blocks.
    fn columns(&self, asm: &mut Mlir, chunk: Val, block: Val) -> Columns {
        let at = self.part(asm, self.plan.column_strides, chunk, block);
        Columns::new(self.tile.cx, &self.plan.column).from(asm, at)
    }

    /// Number of columns of a chunk; the last one has the remainder.
    fn width(&self, asm: &mut Mlir, chunk: Val) -> Val {
        let (width, all) = (asm.i64(self.plan.width), self.tile.cx.size(asm, self.plan.n_columns));
        let first = asm.bin(Bin::MulI, chunk, width);
        let left = asm.bin(Bin::SubI, all, first);
        asm.bin(Bin::MinSI, left, width)
    }

    /// Number of chunks if all column numbers of the item's blocks of rows are within their chunks. Otherwise the
    /// launch fails, and the result is 0.
    fn named_chunks(&self, asm: &mut Mlir, chunks: Val) -> Val {
        let (zero, one) = (asm.i64(0), asm.i64(1));
        let of_block = asm.i64(self.plan.patterns.len() as i64 * self.plan.g);
        let n = asm.bin(Bin::MulI, self.n_blocks, of_block);
        let good = asm.int(1, Ty::I1);
        let good = asm.for_loop((zero, chunks, one), &[good], |asm, chunk, good| {
            let columns = self.columns(asm, chunk, zero);
            let (all, width) = (columns.largest(asm, (zero, n), CHECKED), self.width(asm, chunk));
            let inside = asm.cmpi(CmpI::Slt, all, width);
            vec![asm.bin(Bin::AndI, good[0], inside)]
        })[0];
        let yes = asm.int(1, Ty::I1);
        let bad = asm.bin(Bin::XorI, good, yes);
        asm.if_then(bad, |asm| asm.raise(self.tile.cx.status));
        asm.select(good, chunks, zero)
    }

    /// Accumulates all rows for a strip.
    fn strip(&self, asm: &mut Mlir, strip: &Strip, chunks: Val) {
        let (zero, one, rows) = (asm.i64(0), asm.i64(1), asm.i64(self.plan.rows()));
        asm.for_loop((zero, rows, one), &[], |asm, row, _| {
            let (to, nothing) = (self.tile.sums(asm, strip, row), asm.zero(strip.ty()));
            for i in 0..strip.vectors as usize {
                let to = strip.vector(asm, to, i);
                asm.store(nothing, to, 4);
            }
            vec![]
        });
        asm.for_loop((zero, chunks, one), &[], |asm, chunk, _| {
            self.copy(asm, strip, chunk);
            asm.for_loop((zero, self.n_blocks, one), &[], |asm, block, _| {
                self.block(asm, strip, chunk, block);
                vec![]
            });
            vec![]
        });
    }

    /// Copies the dense operand's vectors for the columns of a chunk.
    fn copy(&self, asm: &mut Mlir, strip: &Strip, chunk: Val) {
        let (zero, one, n) = (asm.i64(0), asm.i64(1), self.width(asm, chunk));
        let width = asm.i64(self.plan.width);
        let first = asm.bin(Bin::MulI, chunk, width);
        let factor = self.tile.factor(asm, strip.lane);
        let from = self.tile.column(asm, factor, first);
        asm.for_loop((zero, n, one), &[], |asm, column, _| {
            let from = self.tile.column(asm, from, column);
            let to = self.copied(asm, strip, column);
            for i in 0..strip.vectors as usize {
                let vectors = self.tile.load(asm, strip, from, i);
                let to = strip.vector(asm, to, i);
                asm.store(vectors, to, 4);
            }
            vec![]
        });
    }

    fn copied(&self, asm: &mut Mlir, strip: &Strip, column: Val) -> Val {
        let size = asm.i64((strip.vectors * strip.lanes) as i64);
        let at = asm.bin(Bin::MulI, column, size);
        asm.element(self.copied, at, Elem::F32)
    }

    /// Adds the products of a block of rows with the columns of a chunk.
    fn block(&self, asm: &mut Mlir, strip: &Strip, chunk: Val, block: Val) {
        let (plan, vectors) = (self.plan, strip.vectors as usize);
        let n = plan.patterns[0].len();
        let sets = (CHAINS.div_ceil(n as u32 * strip.vectors) as usize).min(plan.g as usize);
        let columns = self.columns(asm, chunk, block);
        let at = self.part(asm, plan.value_strides, chunk, block);
        let values = asm.element(self.tile.cx.reads[plan.value.buffer], at, Elem::F32);
        let m = asm.i64(plan.m);
        let row0 = asm.bin(Bin::MulI, block, m);
        // Indexed as [set][row of the pattern][vector].
        let mut sums = vec![asm.zero(strip.ty()); sets * n * vectors];
        for (at, pattern) in plan.patterns.iter().enumerate() {
            sums = self.pattern(asm, strip, at, (columns, values), sums);
            let next = plan.patterns.get(at + 1);
            let changes = |place: usize, row: usize| next.is_none_or(|next| next[place] != row);
            for (place, row) in pattern.iter().enumerate().filter(|(place, row)| changes(*place, **row)) {
                let row = asm.i64(*row as i64);
                let row = asm.bin(Bin::AddI, row0, row);
                let to = self.tile.sums(asm, strip, row);
                for vector in 0..vectors {
                    let to = strip.vector(asm, to, vector);
                    let mut all = asm.load(to, strip.ty(), 4);
                    for sum in sums.iter_mut().skip(place * vectors + vector).step_by(n * vectors) {
                        all = asm.bin(Bin::AddF, all, *sum);
                        *sum = asm.zero(strip.ty());
                    }
                    asm.store(all, to, 4);
                }
            }
        }
    }

    /// Adds the products of the columns of one pattern to the accumulators of its rows, giving columns to the sets of
    /// accumulators in turn.
    fn pattern(
        &self,
        asm: &mut Mlir,
        strip: &Strip,
        pattern: usize,
        (columns, values): (Columns, Val),
        sums: Vec<Val>,
    ) -> Vec<Val> {
        let of_set = self.plan.patterns[pattern].len() * strip.vectors as usize;
        let sets = (sums.len() / of_set) as i64;
        let whole = self.plan.g - self.plan.g % sets;
        let first = asm.i64(pattern as i64 * self.plan.g);
        let columns = columns.from(asm, first);
        let add = |asm: &mut Mlir, from: Val, n: i64, sums: &[Val]| {
            let mut next = sums.to_vec();
            for (set, sums) in next.chunks_mut(of_set).take(n as usize).enumerate() {
                let set = asm.i64(set as i64);
                let at = asm.bin(Bin::AddI, from, set);
                self.column_products(asm, strip, (pattern, at), (columns, values), sums);
            }
            next
        };
        let (zero, end, step) = (asm.i64(0), asm.i64(whole), asm.i64(sets));
        let sums = asm.for_loop((zero, end, step), &sums, |asm, at, sums| add(asm, at, sets, sums));
        add(asm, end, self.plan.g - whole, &sums)
    }

    /// Adds the products of column `at` of a pattern.
    fn column_products(
        &self,
        asm: &mut Mlir,
        strip: &Strip,
        (pattern, at): (usize, Val),
        (columns, values): (Columns, Val),
        sums: &mut [Val],
    ) {
        let n = self.plan.patterns[pattern].len();
        let column = columns.number(asm, at);
        let from = self.copied(asm, strip, column);
        let mut x = vec![];
        for i in 0..strip.vectors as usize {
            let from = strip.vector(asm, from, i);
            x.push(asm.load(from, strip.ty(), 4));
        }
        for (place, sums) in sums.chunks_mut(x.len()).enumerate() {
            let behind = asm.i64((pattern * n + place) as i64 * self.plan.g);
            let value = asm.bin(Bin::AddI, behind, at);
            let value = asm.element(values, value, Elem::F32);
            let value = asm.load(value, Ty::F32, 4);
            let value = asm.widen(value, strip.lanes);
            for (sum, x) in sums.iter_mut().zip(&x) {
                *sum = asm.fma(value, *x, *sum);
            }
        }
    }
}
