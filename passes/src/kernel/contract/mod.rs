//! c[b, m, n] = g(Σk a[b, m, k] · b[b, k, n]), f32  =>  register-blocked code over panels of 32 columns
//!
//! A work item is one batch element, one group of chunks of rows, one panel of columns, one chunk; chunks run fastest,
//! so that a thread stays on a panel. A block of rows by 32 (or 16) columns is held in registers while k runs. The sum
//! for one element is over ascending k by fused multiply-add whatever the block, so that the result of a row depends
//! on no other row.

mod copy;
mod epilogue;
mod plan;

pub use plan::{Plan, WIDTH, plan};

use super::asm::{Asm, Elem, Ty, Val};
use super::def::*;
use super::eval::{Cx, Point, Variant, decode};
use super::map::whole_steps;
use super::memory::masked_load;
use plan::{CHUNK, Form, GROUP};

/// Elements by which the prefetch of panels is ahead: 2 KB, and 8 KB for blocks of few rows, which wait for them.
const AHEAD: i64 = 512;
const FEW_AHEAD: i64 = 2048;

impl Plan {
    /// The numbers of panel and chunk of item `at` of one batch element.
    fn panel_and_chunk(&self, cx: &Cx, asm: &mut Asm, at: Val, n_panels: Val, n_chunks: Val) -> (Val, Val) {
        if self.n_chunks(cx.def).as_const().is_some_and(|n| n <= GROUP) {
            let at = decode(asm, at, &[n_panels, n_chunks]);
            return (at[0], at[1]);
        }
        // All groups but the last are full.
        let full = asm.i64(GROUP);
        let per_group = asm.bin("arith.muli", n_panels, full);
        let group = asm.bin("arith.divui", at, per_group);
        let at = asm.bin("arith.remui", at, per_group);
        let first = asm.bin("arith.muli", group, full);
        let left = asm.bin("arith.subi", n_chunks, first);
        let chunks = asm.bin("arith.minsi", left, full);
        let panel = asm.bin("arith.divui", at, chunks);
        let chunk = asm.bin("arith.remui", at, chunks);
        (panel, asm.bin("arith.addi", first, chunk))
    }
}

/// How many columns of a panel exist.
#[derive(Clone, Copy)]
enum Columns {
    All,
    /// Fewer, known at compile time.
    Known(i64),
    /// Fewer, this many.
    Some(Val),
}

/// The state of one work item.
struct Item<'a> {
    cx: &'a Cx<'a>,
    plan: &'a Plan,
    /// Batch variables and the first column have values.
    point: Point,
    n0: Val,
    m0: Val,
    rows: Val,
    /// Address of the panel: row 0, column 0.
    b: Val,
    /// Elements from one row of the panel to the next.
    b_step: Val,
    tile: Val,
}

/// Rows of the blocks that fit the registers: the usual one, then those for what is left over.
fn blocks(variant: Variant) -> (i64, &'static [i64]) {
    match variant {
        Variant::V3 => (6, &[4, 2, 1]),
        Variant::V4 => (12, &[8, 4, 2, 1]),
    }
}

pub fn emit(cx: &Cx, asm: &mut Asm, plan: &Plan) {
    let def = cx.def;
    let (one, none) = (asm.i64(1), asm.i64(-1));
    // Which panel lies in scratch: it is copied once, not per chunk of rows.
    asm.for_loop((cx.begin, cx.end, one), &[none], |asm, item, copied| {
        let mut extents: Vec<Val> = plan.batch.iter().map(|v| cx.extent(asm, *v)).collect();
        let (n_panels, n_chunks) = (cx.dim(asm, &plan.n_panels(def)), cx.dim(asm, &plan.n_chunks(def)));
        extents.push(asm.bin("arith.muli", n_panels, n_chunks));
        let at = decode(asm, item, &extents);
        let mut point = Point::new(cx);
        plan.batch.iter().zip(&at).for_each(|(v, at)| point.vars[*v] = Some(*at));
        let (panel, chunk) = plan.panel_and_chunk(cx, asm, at[at.len() - 1], n_panels, n_chunks);
        let (width, chunk_rows) = (asm.i64(WIDTH), asm.i64(CHUNK));
        let n0 = asm.bin("arith.muli", panel, width);
        let m0 = asm.bin("arith.muli", chunk, chunk_rows);
        let m_extent = plan.m.map_or(one, |m| cx.extent(asm, m));
        let left = asm.bin("arith.subi", m_extent, m0);
        let rows = asm.bin("arith.minsi", left, chunk_rows);
        point.vars[plan.n] = Some(n0);
        point.vars[plan.k] = Some(asm.i64(0));
        if let Some(m) = plan.m {
            point.vars[m] = Some(m0);
        }
        let offset = cx.dim(asm, &plan.copied_bytes(def));
        let tile = asm.element(cx.scratch, offset, Elem::I8);
        let batch = asm.bin("arith.divui", item, extents[extents.len() - 1]);
        let panel_id = asm.bin("arith.muli", batch, n_panels);
        let panel_id = asm.bin("arith.addi", panel_id, panel);
        let mut item = Item { cx, plan, point, n0, m0, rows, b: cx.scratch, b_step: width, tile };
        let copied = item.locate_panel(asm, panel_id, copied[0]);
        item.panel(asm);
        vec![copied]
    });
}

impl Item<'_> {
    /// Sets where the panel lies; copies it to scratch where it must be and is not there yet.
    fn locate_panel(&mut self, asm: &mut Asm, id: Val, copied: Val) -> Val {
        let (cx, b) = (self.cx, &self.plan.b);
        let base = cx.reads[b.buffer];
        match self.plan.form {
            Form::Panels => {
                let column = self.point.line(cx, asm, &b.coords[1]);
                let rows = cx.extent(asm, self.plan.k);
                let start = asm.bin("arith.muli", column, rows);
                self.b = asm.element(base, start, Elem::F32);
                copied
            }
            Form::Rows => {
                let start = self.point.start(cx, asm, b, None);
                self.b = asm.element(base, start, Elem::F32);
                self.b_step = cx.size(asm, b.stride(self.plan.k));
                copied
            }
            Form::Copied => {
                let other = asm.cmpi("ne", id, copied);
                let start = self.point.start(cx, asm, b, None);
                let source = asm.element(base, start, Elem::F32);
                asm.if_then(other, |asm| self.copy_panel(asm, source));
                id
            }
        }
    }

    /// The whole panel, or its last one with fewer columns.
    fn panel(&self, asm: &mut Asm) {
        let width = asm.i64(WIDTH);
        match self.cx.def.extent(self.plan.n) {
            Size::Const(n) if n % WIDTH == 0 => self.chunk(asm, Columns::All),
            Size::Const(n) if n < WIDTH => self.chunk(asm, Columns::Known(n)),
            extent => {
                let extent_value = self.cx.size(asm, extent);
                let left = asm.bin("arith.subi", extent_value, self.n0);
                let whole = asm.cmpi("sge", left, width);
                let rest = extent.as_const().map_or(Columns::Some(left), |n| Columns::Known(n % WIDTH));
                asm.if_else(
                    whole,
                    &[],
                    |asm| {
                        self.chunk(asm, Columns::All);
                        vec![]
                    },
                    |asm| {
                        self.chunk(asm, rest);
                        vec![]
                    },
                );
            }
        }
    }

    /// All rows of the item, in blocks; then the epilogue, where it was not applied to the registers.
    fn chunk(&self, asm: &mut Asm, columns: Columns) {
        let (usual, rests) = blocks(self.cx.variant);
        let only =
            matches!(columns, Columns::All) || self.cx.def.extent(self.plan.n).as_const().is_some_and(|n| n < WIDTH);
        // The last panel of several is a small part of the work: short code instead of fast code.
        let (usual, rests) = if only { (usual, rests) } else { (4, &[1, 1, 1][..]) };
        let zero = asm.i64(0);
        match self.plan.m.map(|m| self.cx.def.extent(m)) {
            None => self.block(asm, 1, zero, columns),
            Some(Size::Const(m)) => {
                let counts = if m < CHUNK { vec![m] } else { vec![CHUNK, m % CHUNK] };
                if counts.iter().any(|c| *c >= usual) {
                    self.usual_blocks(asm, usual, columns);
                }
                let mut rests: Vec<i64> = counts.iter().map(|c| c % usual).filter(|r| *r > 0).collect();
                rests.dedup();
                for rest in rests {
                    self.rest(asm, usual, rest, columns);
                }
            }
            Some(Size::Param(_)) => {
                let mut at = self.usual_blocks(asm, usual, columns);
                for &rest in rests {
                    let (size, left) = (asm.i64(rest), asm.bin("arith.subi", self.rows, at));
                    let fits = asm.cmpi("sge", left, size);
                    asm.if_then(fits, |asm| self.block(asm, rest, at, columns));
                    let next = asm.bin("arith.addi", at, size);
                    at = asm.select(fits, next, at);
                }
            }
        }
        if !self.plan.direct {
            self.tile_epilogue(asm, columns);
        }
    }

    /// As many blocks of `size` rows as fit; gives the row behind them.
    fn usual_blocks(&self, asm: &mut Asm, size: i64, columns: Columns) -> Val {
        let (zero, step) = (asm.i64(0), asm.i64(size));
        let end = whole_steps(asm, zero, self.rows, size);
        asm.for_loop((zero, end, step), &[], |asm, row, _| {
            self.block(asm, size, row, columns);
            vec![]
        });
        end
    }

    /// A rest of exactly `size` rows, known at compile time but for which chunk has it.
    fn rest(&self, asm: &mut Asm, usual: i64, size: i64, columns: Columns) {
        let (usual, size_value) = (asm.i64(usual), asm.i64(size));
        let left = asm.bin("arith.remui", self.rows, usual);
        let first = asm.bin("arith.subi", self.rows, left);
        let here = asm.cmpi("eq", left, size_value);
        asm.if_then(here, |asm| self.block(asm, size, first, columns));
    }

    /// `size` rows from `row` by all columns of the panel, as many columns at a time as registers hold.
    fn block(&self, asm: &mut Asm, size: i64, row: Val, columns: Columns) {
        let lanes = self.cx.variant.lanes() as i64;
        // One or two rows are as fast as the panel is read: its rows are taken whole.
        let vectors = if size <= 2 { WIDTH / lanes } else { 2 };
        let zero = asm.i64(0);
        if let Columns::Known(n) = columns {
            for first in (0..n).step_by((vectors * lanes) as usize) {
                let needed = (n - first + lanes - 1).div_euclid(lanes).min(vectors);
                let first = asm.i64(first);
                self.registers(asm, size, row, first, needed as usize, columns);
            }
            return;
        }
        if vectors * lanes == WIDTH {
            return self.registers(asm, size, row, zero, vectors as usize, columns);
        }
        let step = asm.i64(vectors * lanes);
        let end = match columns {
            Columns::Some(n) => n,
            Columns::All | Columns::Known(_) => asm.i64(WIDTH),
        };
        asm.for_loop((zero, end, step), &[], |asm, first, _| {
            self.registers(asm, size, row, first, vectors as usize, columns);
            vec![]
        });
    }

    /// `size` rows by `vectors` vectors of columns from `first`, in registers over all k.
    fn registers(&self, asm: &mut Asm, size: i64, row: Val, first: Val, vectors: usize, columns: Columns) {
        let (cx, plan) = (self.cx, self.plan);
        let lanes = cx.variant.lanes();
        let ty = Ty::new(Elem::F32, lanes);
        let m = plan.m.map(|_| asm.bin("arith.addi", self.m0, row));
        let mut at = self.point.clone();
        if let (Some(var), Some(m)) = (plan.m, m) {
            at.vars[var] = Some(m);
        }
        let a_start = at.start(cx, asm, &plan.a, None);
        let a = asm.element(cx.reads[plan.a.buffer], a_start, Elem::F32);
        let a_step = cx.size(asm, plan.a.stride(plan.k));
        let row_step = plan.m.map_or(Size::Const(0), |m| plan.a.stride(m));
        let row_offsets: Vec<Val> = (0..size).map(|i| times(asm, cx, row_step, i)).collect();
        let firsts: Vec<Val> = (0..vectors).map(|j| plus(asm, first, j as i64 * lanes as i64)).collect();
        let masks: Vec<Option<Val>> = firsts.iter().map(|f| self.mask(asm, *f, columns)).collect();
        let b_masked = plan.form == Form::Rows;
        let b = asm.element(self.b, first, Elem::F32);
        let (lo, one, hi) = (asm.i64(0), asm.i64(1), cx.extent(asm, plan.k));
        let zero = asm.zero(ty);
        let inits = vec![zero; size as usize * vectors];
        let sums = asm.for_loop((lo, hi, one), &inits, |asm, k, sums| {
            let b_row = asm.bin("arith.muli", k, self.b_step);
            let b_row = asm.element(b, b_row, Elem::F32);
            let mut b_values = vec![];
            for (j, mask) in masks.iter().enumerate() {
                let at = asm.i64(j as i64 * lanes as i64);
                let address = asm.element(b_row, at, Elem::F32);
                b_values.push(match mask {
                    Some(mask) if b_masked => masked_load(asm, address, *mask, ty),
                    Some(_) | None => asm.load(address, ty, if b_masked { 4 } else { 32 }),
                });
            }
            if plan.form == Form::Panels {
                let ahead = if size <= 4 { FEW_AHEAD } else { AHEAD };
                for line in 0..vectors as i64 * lanes as i64 / 16 {
                    let at = asm.i64(ahead + line * 16);
                    let ahead = asm.element(b_row, at, Elem::F32);
                    asm.prefetch(ahead);
                }
            }
            let a_column = asm.bin("arith.muli", k, a_step);
            let a_column = asm.element(a, a_column, Elem::F32);
            let mut next = vec![];
            for (i, offset) in row_offsets.iter().enumerate() {
                let address = asm.element(a_column, *offset, Elem::F32);
                let value = asm.load(address, Ty::new(Elem::F32, 1), 4);
                let value = asm.widen(value, lanes);
                for (j, b_value) in b_values.iter().enumerate() {
                    next.push(asm.fma(value, *b_value, sums[i * vectors + j]));
                }
            }
            next
        });
        for j in 0..vectors {
            let column: Vec<Val> = (0..size as usize).map(|i| sums[i * vectors + j]).collect();
            if plan.direct {
                self.direct_epilogue(asm, row, firsts[j], masks[j], &column);
            } else {
                self.to_tile(asm, row, firsts[j], &column);
            }
        }
    }

    /// Which lanes from column `first` of the panel exist; all where absent.
    fn mask(&self, asm: &mut Asm, first: Val, columns: Columns) -> Option<Val> {
        let n = match columns {
            Columns::All => return None,
            Columns::Known(n) => asm.i64(n),
            Columns::Some(n) => n,
        };
        let lanes = self.cx.variant.lanes();
        let (first, iota) = (asm.widen(first, lanes), asm.iota(lanes));
        let column = asm.bin("arith.addi", first, iota);
        let n = asm.widen(n, lanes);
        Some(asm.cmpi("slt", column, n))
    }
}

/// i · size
fn times(asm: &mut Asm, cx: &Cx, size: Size, i: i64) -> Val {
    match size {
        Size::Const(c) => asm.i64(i * c),
        Size::Param(_) => {
            let (size, i) = (cx.size(asm, size), asm.i64(i));
            asm.bin("arith.muli", size, i)
        }
    }
}

fn plus(asm: &mut Asm, v: Val, c: i64) -> Val {
    if c == 0 {
        return v;
    }
    let c = asm.i64(c);
    asm.bin("arith.addi", v, c)
}
