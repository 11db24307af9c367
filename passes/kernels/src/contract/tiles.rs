//! rows of A by a panel of B  =>  accumulators in AMX tiles of 16 by 16, stored to `Panel::tile` in scratch
//!
//! Panels of words have the layout that the instructions read: 16 rows by 16 columns are a tile, with rows 128 bytes
//! apart. A tile of A is 64 bytes of each of 16 rows, read in place. Four tiles accumulate 32 rows by 32 columns.
//!
//! The number of rows of the tiles is configured once per call. A block with an incomplete tile configures its own
//! number and then restores the previous one. If the last words along k do not fill a tile, they are copied to scratch
//! for both operands, padded with zeros.

use super::plan::{Plan, WIDTH};
use super::{Columns, Item, Panel, Start};
use crate::asm::{Asm, Bin, CmpI, Elem, Mlir, Ty, Val};
use crate::cpu::CpuPlan;
use crate::cx::Cx;
use crate::def::*;
use crate::words::Words;
use sardonyx_base::cpu::Extension;

/// Number of rows of a tile, and of words in each row.
pub const ROWS: i64 = 16;
/// Bytes of a row of a tile.
const ROW_BYTES: i64 = 64;
/// Number of rows that share the reads of a panel.
const BLOCK: i64 = 2 * ROWS;
/// Bytes from one row of a panel to the next.
const PANEL_BYTES: i64 = WIDTH * 4;

/// Numbers of the tiles: accumulators by [tile of A][half of the panel], then A, then B.
const SUMS: [[u8; 2]; 2] = [[0, 1], [2, 3]];
const A: [u8; 2] = [4, 5];
const B: [u8; 2] = [6, 7];

/// Sizes of the parts of scratch: the tile configuration, and the last words of A and of B.
const SHAPES: i64 = 64;
const A_REST: i64 = BLOCK * ROW_BYTES;
const B_REST: i64 = ROWS * PANEL_BYTES;
/// Bytes of scratch for the tile configuration and for the padded last words of A and B.
pub const SCRATCH_BYTES: i64 = SHAPES + A_REST + B_REST;

/// Returns whether a plan can accumulate in tiles, on a CPU that has them. Vectors compute contractions that have fewer
/// rows, or fewer words along k, than a quarter of a tile, and those with an incomplete last word, because a tile would
/// read the rest of this word from the next row.
pub fn fits(plan: &Plan, def: &KernelDef) -> bool {
    let rows = plan.m.map(|m| def.extent(m).as_const().unwrap_or(ROWS));
    let whole = def.extent(plan.k).as_const().is_some_and(|k| k % plan.words.depth() == 0);
    let words = plan.words != Words::Singles && plan.folds.is_empty();
    words && rows.is_some_and(|m| m >= ROWS / 4) && whole && plan.whole_words(def) >= ROWS / 4
}

/// Whether the CPU level of the launch has tiles and the plan can accumulate in them.
pub fn used(plan: &Plan, cx: &Cx<Mlir>) -> bool {
    cx.launch.level.has(Extension::Tiles) && fits(plan, cx.def)
}

/// Distinct sizes of the blocks of rows, if they are known at compile time.
fn sizes(plan: &Plan, def: &KernelDef) -> Option<Vec<i64>> {
    let m = def.extent(plan.m?).as_const()?;
    let chunk = plan.chunk_rows(def).min(m);
    let mut sizes: Vec<i64> = [chunk, m % chunk].iter().flat_map(|rows| [BLOCK.min(*rows), rows % BLOCK]).collect();
    sizes.retain(|s| *s > 0);
    sizes.sort();
    sizes.dedup();
    Some(sizes)
}

/// Default number of rows of the tiles: the size of all blocks if they are equal, else the maximum.
fn usual(plan: &Plan, def: &KernelDef) -> i64 {
    match sizes(plan, def).as_deref() {
        Some([only]) => *only,
        Some(_) | None => BLOCK,
    }
}

/// Configures the tiles only during a kernel's work, because live tiles make thread switches slower.
pub fn with_tile_config(cx: &Cx<Mlir>, asm: &mut Mlir, plan: &Plan, work: impl FnOnce(&mut Mlir)) {
    if !used(plan, cx) {
        return work(asm);
    }
    let rows = asm.i64(usual(plan, cx.def));
    between(cx, asm, |asm| shape(cx, asm, plan, rows), work);
}

/// Runs `work` with tiles configured by `shape`, if the launch has work items.
pub fn between(cx: &Cx<Mlir>, asm: &mut Mlir, shape: impl FnOnce(&mut Mlir), work: impl FnOnce(&mut Mlir)) {
    let some = asm.cmpi(CmpI::Slt, cx.launch.begin, cx.launch.end);
    asm.if_then(some, |asm| {
        shape(asm);
        work(asm);
        asm.isa.release_tiles(asm);
    });
}

/// Configures the tiles for a block of up to 32 rows.
fn shape(cx: &Cx<Mlir>, asm: &mut Mlir, plan: &Plan, rows: Val) {
    let memory = rest(cx, asm, plan, 0);
    let (tile, one) = (asm.i64(ROWS), asm.i64(1));
    let first = asm.bin(Bin::MinSI, rows, tile);
    let second = asm.bin(Bin::SubI, rows, first);
    let second = asm.bin(Bin::MaxSI, second, one);
    // A number in which byte t is 1 for each of the given tiles t, and 0 for the others.
    let bytes = |tiles: &[u8]| tiles.iter().fold(0i64, |bits, t| bits | 1 << (8 * t));
    let of = |asm: &mut Mlir, rows: Val, i: usize| {
        let bytes = asm.i64(bytes(&[&SUMS[i][..], &[A[i]]].concat()));
        asm.bin(Bin::MulI, rows, bytes)
    };
    let (first, second) = (of(asm, first, 0), of(asm, second, 1));
    let rows = asm.bin(Bin::OrI, first, second);
    let of_b = asm.i64(ROWS * bytes(&B));
    let rows = asm.bin(Bin::OrI, rows, of_b);
    shapes(asm, memory, rows);
}

/// Configures the number of rows of each tile, one byte per tile in `rows`, through 64 bytes of memory.
pub fn shapes(asm: &mut Mlir, memory: Val, rows: Val) {
    let row_bytes = asm.i64((0..4).fold(0, |bits, i| bits | ROW_BYTES << (16 * i)));
    let (one, none) = (asm.i64(1), asm.i64(0));
    for (i, value) in [one, none, row_bytes, row_bytes, none, none, rows, none].into_iter().enumerate() {
        let at = asm.i64(8 * i as i64);
        let address = asm.element(memory, at, Elem::I8);
        asm.store(value, address, 8);
    }
    asm.isa.configure_tiles(asm, memory);
}

/// Address of byte `at` of the tiles' scratch, which is the last part of the plan's scratch.
fn rest(cx: &Cx<Mlir>, asm: &mut Mlir, plan: &Plan, at: i64) -> Val {
    let behind = plan.scratch_bytes(cx.def) - sardonyx_base::Dim::constant(SCRATCH_BYTES - at);
    let behind = cx.dim(asm, &behind);
    asm.element(cx.launch.scratch, behind, Elem::I8)
}

impl Item<'_> {
    /// Computes the rows of a chunk in blocks, into the tile in scratch; then the epilogue.
    pub fn rows_in_tiles(&self, asm: &mut Mlir, columns: Columns) {
        let (cx, plan) = (self.cx, self.plan);
        let (zero, block, tile) = (asm.i64(0), asm.i64(BLOCK), asm.i64(ROWS));
        let sizes = sizes(plan, cx.def);
        let usual = usual(plan, cx.def);
        let known = |test: fn(i64) -> bool| sizes.as_ref().is_some_and(|s| s.iter().all(|s| test(*s)));
        let always_usual = usual < BLOCK || known(|s| s % ROWS == 0);
        self.each_sum(asm, &|asm, sum| {
            let panel = self.panel_of(asm, sum);
            asm.do_while(&[zero], |asm, at| {
                let left = asm.bin(Bin::SubI, self.rows, at[0]);
                let size = asm.bin(Bin::MinSI, left, block);
                let other = (!always_usual).then(|| {
                    let rest = asm.bin(Bin::RemUI, size, tile);
                    asm.cmpi(CmpI::Ne, rest, zero)
                });
                if let Some(other) = other {
                    asm.if_then(other, |asm| shape(cx, asm, plan, size));
                }
                if known(|s| s > ROWS) {
                    panel.block_in_tiles(asm, 2, size, at[0], columns);
                } else if known(|s| s <= ROWS) {
                    panel.block_in_tiles(asm, 1, size, at[0], columns);
                } else {
                    let two = asm.cmpi(CmpI::Sgt, size, tile);
                    let block = |asm: &mut Mlir, n: usize| {
                        panel.block_in_tiles(asm, n, size, at[0], columns);
                        vec![]
                    };
                    asm.if_else(two, &[], |asm| block(asm, 2), |asm| block(asm, 1));
                }
                if let Some(other) = other {
                    let usual = asm.i64(usual);
                    asm.if_then(other, |asm| shape(cx, asm, plan, usual));
                }
                let next = asm.bin(Bin::AddI, at[0], block);
                (asm.cmpi(CmpI::Slt, next, self.rows), vec![next])
            });
        });
        self.tile_epilogue(asm, columns);
    }
}

/// Operands of one step along k: the address of A and the bytes from one row of A to the next, and the address of the
/// panel's rows.
struct Step {
    a: Val,
    row_bytes: Val,
    b: Val,
}

impl Panel<'_, '_> {
    /// Computes `size` rows from `row` on, which are `n` tiles (one or two), by the panel's columns.
    fn block_in_tiles(&self, asm: &mut Mlir, n: usize, size: Val, row: Val, columns: Columns) {
        let item = self.item;
        let (cx, plan) = (item.cx, item.plan);
        let halves = if matches!(columns, Columns::Known(n) if n <= ROWS) { 1 } else { 2 };
        let a = item.a_at(asm, row);
        let row_bytes = {
            let step = cx.size(asm, plan.m.map_or(Size::Const(0), |m| plan.a.stride(m)));
            let bytes = asm.i64(plan.words.element().bits() as i64 / 8);
            asm.bin(Bin::MulI, step, bytes)
        };
        let sums = || SUMS[..n].iter().flat_map(|s| &s[..halves]);
        sums().for_each(|sum| asm.isa.clear_tile(asm, *sum));
        let next = self.fetches_in_tiles().then(|| self.next_part(asm, size, row));
        let next_step = next.map(|(_, step)| step);
        let start = Start { a, b: vec![self.b], b_unit: Elem::F32, next: next.map(|(address, _)| address) };
        let n_words = plan.whole_words(cx.def);
        self.sum(asm, &plan.around, &start, next_step, &[], &|asm, start, _, _| {
            let (zero, one, whole) = (asm.i64(0), asm.i64(1), asm.i64(n_words.div_euclid(ROWS)));
            asm.for_loop((zero, whole, one), &[], |asm, i, _| {
                let at = |asm: &mut Mlir, from: Val, bytes: i64| {
                    let bytes = asm.i64(bytes);
                    let at = asm.bin(Bin::MulI, i, bytes);
                    asm.element(from, at, Elem::I8)
                };
                let (a, b) = (at(asm, start.a, ROW_BYTES), at(asm, start.b[0], ROWS * PANEL_BYTES));
                self.products(asm, n, halves, &Step { a, row_bytes, b });
                if let (Some(next), Some(step)) = (start.next, next_step) {
                    let rows = asm.i64(ROWS);
                    let first = asm.bin(Bin::MulI, i, rows);
                    fetch(asm, next, first, step);
                }
                vec![]
            });
            if n_words % ROWS != 0 {
                let step = self.last_words(asm, start, size, row_bytes);
                self.products(asm, n, halves, &step);
            }
            vec![]
        });
        let stride = asm.i64(PANEL_BYTES);
        let to = asm.bin(Bin::MulI, row, stride);
        let to = asm.element(self.tile, to, Elem::I8);
        for (i, sums) in SUMS[..n].iter().enumerate() {
            for (j, sum) in sums[..halves].iter().enumerate() {
                let at = asm.i64(i as i64 * ROWS * PANEL_BYTES + j as i64 * ROW_BYTES);
                let address = asm.element(to, at, Elem::I8);
                asm.isa.store_tile(asm, *sum, address, stride);
            }
        }
    }

    /// Adds the products of one step to each accumulator. A is read once, the panel repeatedly: the streaming hint on A
    /// keeps the panel in the cache.
    fn products(&self, asm: &mut Mlir, n: usize, halves: usize, step: &Step) {
        let multiply = |asm: &mut Mlir, sums: u8, a: u8, b: u8| match self.item.plan.words {
            Words::Quads => asm.isa.multiply_quads(asm, sums, a, b),
            Words::Singles | Words::Pairs => asm.isa.multiply_pairs(asm, sums, a, b),
        };
        let stride = asm.i64(PANEL_BYTES);
        let load_a = |asm: &mut Mlir, i: usize| {
            let rows = asm.i64(i as i64 * ROWS);
            let at = asm.bin(Bin::MulI, step.row_bytes, rows);
            let address = asm.element(step.a, at, Elem::I8);
            asm.isa.stream_tile(asm, A[i], address, step.row_bytes);
        };
        for (j, b) in B[..halves].iter().enumerate() {
            let at = asm.i64(j as i64 * ROW_BYTES);
            let address = asm.element(step.b, at, Elem::I8);
            asm.isa.load_tile(asm, *b, address, stride);
            if j == 0 {
                load_a(asm, 0);
            }
            multiply(asm, SUMS[0][j], A[0], *b);
        }
        if n == 2 {
            load_a(asm, 1);
            B[..halves].iter().zip(SUMS[1]).for_each(|(b, sum)| multiply(asm, sum, A[1], *b));
        }
    }

    /// Copies the words after the last full tile, padded with zeros: the data after a row may be NaN.
    fn last_words(&self, asm: &mut Mlir, start: &Start, size: Val, row_bytes: Val) -> Step {
        let (cx, plan) = (self.item.cx, self.item.plan);
        let n_words = plan.whole_words(cx.def);
        let (whole, n_rest) = (n_words.div_euclid(ROWS), n_words % ROWS);
        let bytes = Ty::new(Elem::I8, ROW_BYTES as u32);
        let (a, b) = (rest(cx, asm, plan, SHAPES), rest(cx, asm, plan, SHAPES + A_REST));
        let (zero, one) = (asm.i64(0), asm.i64(1));
        let from = asm.i64(whole * ROW_BYTES);
        let from = asm.element(start.a, from, Elem::I8);
        let mask = {
            let iota = asm.iota(bytes.lanes);
            let n = asm.int(4 * n_rest, iota.ty);
            asm.cmpi(CmpI::Slt, iota, n)
        };
        asm.for_loop((zero, size, one), &[], |asm, row, _| {
            let at = asm.bin(Bin::MulI, row, row_bytes);
            let address = asm.element(from, at, Elem::I8);
            let words = asm.masked_load(address, mask, bytes);
            let at = asm.i64(ROW_BYTES);
            let at = asm.bin(Bin::MulI, row, at);
            let address = asm.element(a, at, Elem::I8);
            asm.store(words, address, 64);
            vec![]
        });
        for row in 0..ROWS {
            for half in 0..2 {
                let at = |row: i64| row * PANEL_BYTES + half * ROW_BYTES;
                let words = if row < n_rest {
                    let from = asm.i64(at(whole * ROWS + row));
                    let from = asm.element(start.b[0], from, Elem::I8);
                    asm.load(from, bytes, 64)
                } else {
                    asm.zero(bytes)
                };
                let to = asm.i64(at(row));
                let to = asm.element(b, to, Elem::I8);
                asm.store(words, to, 64);
            }
        }
        Step { a, row_bytes: asm.i64(ROW_BYTES), b }
    }

    /// Returns whether a panel is too long for the first-level cache, so that the next panel is prefetched while this
    /// one is used.
    fn fetches_in_tiles(&self) -> bool {
        self.item.plan.panel_rows(self.item.cx.def) >= super::block::FETCHED_ROWS
    }
}

/// Prefetches `step` bytes of the next panel for each of 16 panel rows from `first` on: one cache line for each row,
/// and a second one if `step` is larger than a line, which happens if few rows of A share the panel.
fn fetch(asm: &mut Mlir, next: Val, first: Val, step: Val) {
    let line = asm.i64(64);
    let lines = |asm: &mut Mlir, behind: i64| {
        for i in 0..ROWS {
            let i = asm.i64(i);
            let row = asm.bin(Bin::AddI, first, i);
            let at = asm.bin(Bin::MulI, row, step);
            let behind = asm.i64(behind);
            let at = asm.bin(Bin::AddI, at, behind);
            let address = asm.element(next, at, Elem::I8);
            asm.prefetch(address);
        }
    };
    lines(asm, 0);
    let more = asm.cmpi(CmpI::Sgt, step, line);
    asm.if_then(more, |asm| lines(asm, 64));
}
