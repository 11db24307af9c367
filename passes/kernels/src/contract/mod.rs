//! c[b, m, n] = g(Σk a[b, m, k] · b[b, k, n]), f32  =>  register-blocked code over panels of 32 columns
//!
//! A work item is identified by a batch element, a group of chunks of rows, a strip of columns, and a chunk of the
//! group. Chunks are the fastest index, so that a thread stays on a strip: one panel, or two if there are only one or
//! two rows. The accumulators of a block of rows by 32 (or 16) columns stay in registers while k runs. Each element is
//! accumulated by fused multiply-adds over ascending k, in parts of fixed length, whatever the block, so that the
//! result of a row depends on no other row.
//!
//! A convolution reduces over several variables: the loops around the loop over k only move the start addresses of A
//! and the panel. Its rows are the pixels of one line; the lines (slabs) of a chunk use a panel one after another.
//!
//! For bf16 operands, two rows of a panel and two elements of A form one word; for bytes, four of each do. k runs over
//! words.
//!
//! An operand A that is padded, or computed from a padded load, is computed in scratch for each work item (`staged`).
//!
//! If several reductions multiply the same A by several B, the rows of a work item compute them one after another, each
//! into its own tile in scratch; the epilogue reads all tiles.

mod block;
mod class;
mod copy;
mod epilogue;
pub mod groups;
mod pairs;
mod plan;
mod quads;
mod sizes;
mod stage;
mod staged;
mod stored;
pub mod tiles;

use block::{Start, Way};
use stored::{Copies, MANY_ROWS};

pub use copy::transpose;
pub use groups::rows_of_cell;
pub use plan::{
    Fold, Form, GROUP, Plan, Roles, Sum, WIDTH, candidates, epilogue, is_one_instruction, widened, word_candidates,
};
pub use quads::quad_product;
pub use sizes::Blocks;

use super::asm::{Asm, Bin, CmpI, Elem, Mlir, Val};
use super::cpu::CpuPlan;
use super::cx::{Cx, decode};
use super::def::*;
use super::eval::Point;
use super::scalar;
use super::words::Words;
use sardonyx_base::Dim;
use sardonyx_base::cpu::Extension;
use sardonyx_dialects::flow::kernel::Class;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Returns the plan, or `None` if the contraction does not have a form that this emitter supports.
pub fn plan(def: &KernelDef) -> Option<Plan> {
    if def.class == Class::Groups { groups::plan(def) } else { plan::plan(def) }
}

impl Plan {
    /// Strip and chunk of item `at` of one batch element, and the chunk's position in its group.
    fn strip_and_chunk(
        &self,
        cx: &Cx<Mlir>,
        asm: &mut Mlir,
        at: Val,
        n_strips: Val,
        n_chunks: Val,
    ) -> (Val, Val, Turn) {
        if self.n_chunks(cx.def).as_const().is_some_and(|n| n <= GROUP) {
            let at = decode(asm, at, &[n_strips, n_chunks]);
            return (at[0], at[1], Turn { at: at[1], of: n_chunks });
        }
        // All groups but the last are full.
        let full = asm.i64(GROUP);
        let per_group = asm.bin(Bin::MulI, n_strips, full);
        let group = asm.bin(Bin::DivUI, at, per_group);
        let at = asm.bin(Bin::RemUI, at, per_group);
        let first = asm.bin(Bin::MulI, group, full);
        let left = asm.bin(Bin::SubI, n_chunks, first);
        let chunks = asm.bin(Bin::MinSI, left, full);
        let strip = asm.bin(Bin::DivUI, at, chunks);
        let chunk = asm.bin(Bin::RemUI, at, chunks);
        (strip, asm.bin(Bin::AddI, first, chunk), Turn { at: chunk, of: chunks })
    }

    /// Number of a chunk among all chunks  =>  its number among the chunks of `m`, and the range of the last slab
    /// variable; the other slab variables get their values in `point`.
    fn slabs_of(&self, cx: &Cx<Mlir>, asm: &mut Mlir, point: &mut Point, chunk: Val) -> (Val, Option<(Val, Val)>) {
        let Some((last, others)) = self.slabs.split_last() else { return (chunk, None) };
        let extents: Vec<Val> = self.chunk_extents(cx.def).iter().map(|e| cx.dim(asm, e)).collect();
        let at = decode(asm, chunk, &extents);
        others.iter().zip(&at).for_each(|(v, at)| point.vars[*v] = Some(*at));
        let (step, extent) = (asm.i64(self.slabs_per_item(cx.def)), cx.extent(asm, *last));
        let lo = asm.bin(Bin::MulI, at[others.len()], step);
        let hi = asm.bin(Bin::AddI, lo, step);
        let hi = asm.bin(Bin::MinSI, hi, extent);
        (at[others.len() + 1], Some((lo, hi)))
    }
}

/// Maximum bytes of panels that need no prefetching, and how many panels are read at once if they are larger.
const NEAR_BYTES: i64 = 256 << 10;
const FEW_STREAMS: usize = 2;

/// Number of columns of a panel that exist.
#[derive(Clone, Copy)]
enum Columns {
    All,
    /// Fewer than all, known at compile time.
    Known(i64),
    /// A number known at run time, possibly all.
    Some(Val),
    /// A number known at run time, which does not exceed the lanes of one vector.
    Few(Val),
}

/// Position of a work item or block among those that use a panel one after another.
#[derive(Clone, Copy)]
struct Turn {
    at: Val,
    of: Val,
}

impl Turn {
    /// Position of part `part` if each one is divided into `part.of` parts.
    fn within(self, asm: &mut Mlir, part: Turn) -> Turn {
        let before = asm.bin(Bin::MulI, self.at, part.of);
        Turn { at: asm.bin(Bin::AddI, before, part.at), of: asm.bin(Bin::MulI, self.of, part.of) }
    }
}

/// Work item on one panel of each reduction.
#[derive(Clone)]
struct Item<'a> {
    cx: &'a Cx<'a, Mlir>,
    plan: &'a Plan,
    /// Point at which the batch variables and the first column have values.
    point: Point,
    n0: Val,
    m0: Val,
    rows: Val,
    turn: Turn,
    /// Range of the last slab variable: first, end.
    slabs: Option<(Val, Val)>,
    /// Address of row 0, column 0 of the panel of each reduction.
    panels: Vec<Val>,
    /// Addresses of the panels' f32 copies, if some blocks of rows read those.
    copies: Vec<Val>,
    /// Whether many rows use the panel; set if that is only known at run time.
    many: Option<Val>,
    /// Elements from one row of the panel to the next.
    b_step: Val,
    /// Tile of the first reduction; those of the other reductions follow.
    tile: Val,
}

/// Panel of one of the reductions.
struct Panel<'i, 'a> {
    item: &'i Item<'a>,
    b: Val,
    /// f32 copy of the panel, if there is one.
    copy: Option<Val>,
    tile: Val,
    /// Index of the reduction, if every reduction has its own code.
    sum: usize,
}

/// Index of one of the reductions, known at compile time or at run time.
#[derive(Clone, Copy)]
enum Which {
    Known(usize),
    Each(Val),
}

/// Plans a contraction in register blocks for CPUs; `None` if the kernel has an unsupported form.
pub fn planned(def: &KernelDef) -> Option<Arc<dyn CpuPlan>> {
    Some(Arc::new(plan(def)?))
}

fn emit(cx: &Cx<Mlir>, asm: &mut Mlir, plan: &Plan) {
    tiles::with_tile_config(cx, asm, plan, |asm| items(cx, asm, plan));
}

/// Loops over the work items of the launch.
fn items(cx: &Cx<Mlir>, asm: &mut Mlir, plan: &Plan) {
    let def = cx.def;
    let (one, none) = (asm.i64(1), asm.i64(-1));
    // The carried value identifies the panel in scratch, which is copied once rather than per chunk of rows.
    asm.for_loop((cx.launch.begin, cx.launch.end, one), &[none], |asm, item, copied| {
        let mut extents: Vec<Val> = plan.batch.iter().map(|v| cx.extent(asm, *v)).collect();
        let (n_strips, n_chunks) = (cx.dim(asm, &plan.n_strips(def)), cx.dim(asm, &plan.n_chunks(def)));
        extents.push(asm.bin(Bin::MulI, n_strips, n_chunks));
        let at = decode(asm, item, &extents);
        let mut point = Point::new(cx);
        plan.batch.iter().zip(&at).for_each(|(v, at)| point.vars[*v] = Some(*at));
        let (strip, chunk, turn) = plan.strip_and_chunk(cx, asm, at[at.len() - 1], n_strips, n_chunks);
        let (chunk, slabs) = plan.slabs_of(cx, asm, &mut point, chunk);
        let chunk_rows = asm.i64(plan.chunk_rows(def));
        let m0 = asm.bin(Bin::MulI, chunk, chunk_rows);
        let m_extent = plan.m.map_or(one, |m| cx.extent(asm, m));
        let left = asm.bin(Bin::SubI, m_extent, m0);
        let rows = asm.bin(Bin::MinSI, left, chunk_rows);
        let zero = asm.i64(0);
        plan.around.iter().chain([&plan.k]).for_each(|v| point.vars[*v] = Some(zero));
        if let Some(m) = plan.m {
            point.vars[m] = Some(m0);
        }
        let n_sums = Dim::constant(plan.sums.len() as i64);
        let offset = cx.dim(asm, &(n_sums * plan.copied_bytes(def)));
        let tile = asm.element(cx.launch.scratch, offset, Elem::I8);
        let batch = asm.bin(Bin::DivUI, item, extents[extents.len() - 1]);
        let first = asm.bin(Bin::MulI, batch, n_strips);
        let strip_id = asm.bin(Bin::AddI, first, strip);
        let b_step = asm.i64(WIDTH);
        let item = Item {
            cx,
            plan,
            point,
            n0: strip,
            m0,
            rows,
            turn,
            slabs,
            panels: vec![],
            copies: vec![],
            many: None,
            b_step,
            tile,
        };
        vec![item.strip(asm, strip, strip_id, copied[0])]
    });
}

/// Vectors of so many lanes are not halved: no CPU computes half of one faster.
const LEAST_LANES: u32 = 8;

impl Item<'_> {
    /// Computes the panels of a strip: one, or two together if there are too few rows to hide the latency of one.
    fn strip(mut self, asm: &mut Mlir, strip: Val, id: Val, copied: Val) -> Val {
        let (cx, plan) = (self.cx, self.plan);
        let (one, width) = (asm.i64(1), asm.i64(WIDTH));
        let paired = plan.is_paired(cx.def);
        if paired.is_const(0) {
            self.begin_at(asm, strip);
            let copied = self.locate_panel(asm, id, copied);
            self.panel(asm);
            return copied;
        }
        let per_strip = paired + Dim::constant(1);
        let (per_strip, n_panels) = (cx.dim(asm, &per_strip), cx.dim(asm, &plan.n_panels(cx.def)));
        let first = asm.bin(Bin::MulI, strip, per_strip);
        let end = asm.bin(Bin::AddI, first, per_strip);
        let last = asm.bin(Bin::MinSI, end, n_panels);
        self.begin_at(asm, first);
        let n_columns = cx.extent(asm, plan.n);
        let n_whole = asm.bin(Bin::DivUI, n_columns, width);
        let (whole, two) = (asm.cmpi(CmpI::Sle, end, n_whole), asm.i64(2));
        let two = asm.cmpi(CmpI::Eq, per_strip, two);
        let pair = asm.bin(Bin::AndI, whole, two);
        self.locate_sources(asm);
        let mut rest = first;
        let most = if tiles::used(plan, cx) { 0 } else { sizes::pair_rows(cx.launch.level) };
        for rows in 1..=most {
            let rows_value = asm.i64(rows);
            let here = asm.cmpi(CmpI::Eq, self.rows, rows_value);
            let here = asm.bin(Bin::AndI, here, pair);
            asm.if_then(here, |asm| self.pair(asm, rows));
            rest = asm.select(here, last, rest);
        }
        // Strips of two panels have too few rows for copies.
        asm.for_loop((rest, last, one), &[copied], |asm, panel, copied| {
            let mut item = self.clone();
            item.begin_at(asm, panel);
            let copied = item.locate_panel(asm, id, copied[0]);
            item.panel(asm);
            vec![copied]
        })[0]
    }

    /// Computes the rows of a chunk, then the epilogue unless it was applied to the registers.
    fn rows(&self, asm: &mut Mlir, columns: Columns) {
        if tiles::used(self.plan, self.cx) {
            return self.rows_in_tiles(asm, columns);
        }
        let together = matches!(columns, Columns::All) && self.plan.takes_sums_together();
        let few = if together { sizes::pair_rows(self.cx.launch.level) } else { 0 };
        match self.plan.m.map(|m| self.cx.def.extent(m)) {
            None if few > 0 => self.sums_together(asm, 1),
            Some(Size::Const(m)) if (1..=few).contains(&m) => self.sums_together(asm, m),
            None | Some(Size::Const(_)) => self.rows_in_blocks(asm, columns),
            Some(Size::Param(_)) => self.few_rows(asm, 1..=few, columns),
        }
        if !self.plan.direct {
            self.tile_epilogue(asm, columns);
        }
    }

    /// Computes the rows with all reductions together if the number of rows is in `sizes`, else in blocks.
    fn few_rows(&self, asm: &mut Mlir, mut sizes: RangeInclusive<i64>, columns: Columns) {
        let Some(size) = sizes.next() else { return self.rows_in_blocks(asm, columns) };
        let value = asm.i64(size);
        let here = asm.cmpi(CmpI::Eq, self.rows, value);
        let together = |asm: &mut Mlir| {
            self.sums_together(asm, size);
            vec![]
        };
        asm.if_else(here, &[], together, |asm| {
            self.few_rows(asm, sizes, columns);
            vec![]
        });
    }

    /// Computes one or two rows, which are all rows of the work item, by this panel and the next one, both full.
    fn pair(&self, asm: &mut Mlir, size: i64) {
        let zero = asm.i64(0);
        let vectors = self.vectors(WIDTH);
        let next = self.next(asm);
        self.each_sum(asm, &|asm, sum| {
            let panels = [self.panel_of(asm, sum), next.panel_of(asm, sum)];
            panels[0].registers(asm, &panels, size, zero, zero, &vectors, Columns::All, Way::PLAIN);
        });
        if !self.plan.direct {
            self.tile_epilogue(asm, Columns::All);
            next.tile_epilogue(asm, Columns::All);
        }
    }

    /// Computes one or two rows, which are all rows of the work item, by the full panels of several reductions at a
    /// time: each element of A is read once for these panels, and their accumulators hide each other's latency.
    fn sums_together(&self, asm: &mut Mlir, size: i64) {
        let (zero, vectors) = (asm.i64(0), self.vectors(WIDTH));
        let panels: Vec<Panel> = (0..self.plan.sums.len()).map(|sum| self.panel_of(asm, Which::Known(sum))).collect();
        let most = match self.are_panels_near() {
            true => sizes::few_row_sums(self.cx.launch.level).div_euclid(size * vectors.len() as i64).max(1) as usize,
            false => FEW_STREAMS,
        };
        let n_groups = panels.len().div_ceil(most);
        for group in panels.chunks(panels.len().div_ceil(n_groups)) {
            group[0].registers(asm, group, size, zero, zero, &vectors, Columns::All, Way::PLAIN);
        }
    }

    /// Lanes of the vectors that hold `n` columns. The last vector has half the lanes if these are enough: some CPUs
    /// compute two of half the width in the time of a whole one.
    fn vectors(&self, n: i64) -> Vec<u32> {
        let lanes = self.cx.lanes();
        let width = i64::from(lanes);
        let mut vectors = vec![lanes; (n + width - 1).div_euclid(width) as usize];
        let plan = self.plan;
        if let Some(last) = vectors.last_mut()
            && (plan.words != Words::Pairs && plan.folds.is_empty())
            && lanes > LEAST_LANES
            && (1..=width / 2).contains(&(n % width))
        {
            *last = lanes / 2;
        }
        vectors
    }

    /// Whether the panels of all reductions fit into the second-level cache, whose latency other loads hide. From
    /// farther away, reading few streams at a time is faster.
    fn are_panels_near(&self) -> bool {
        let (cx, plan) = (self.cx, self.plan);
        let panels = plan.n_panels(cx.def).as_const().unwrap_or(i64::MAX).saturating_mul(plan.sums.len() as i64);
        panels.saturating_mul(plan.panel_rows(cx.def) * WIDTH * 4) <= NEAR_BYTES
    }

    /// The item of the next panel; its tile is the second half of this item's tile.
    fn next(&self, asm: &mut Mlir) -> Self {
        let mut next = self.clone();
        next.n0 = plus(asm, self.n0, WIDTH);
        next.point.vars[self.plan.n] = Some(next.n0);
        let rows = asm.i64(self.plan.panel_rows(self.cx.def));
        let (elements, unit) = (asm.bin(Bin::MulI, rows, self.b_step), self.plan.b_step(self.cx.def));
        next.panels = self.panels.iter().map(|b| asm.element(*b, elements, unit)).collect();
        // An item of two panels has fewer rows than half of a tile.
        let behind = asm.i64(self.plan.chunk() / 2 * WIDTH);
        next.tile = asm.element(self.tile, behind, Elem::F32);
        next
    }

    /// Moves the item to a panel, given by its number.
    fn begin_at(&mut self, asm: &mut Mlir, panel: Val) {
        let width = asm.i64(WIDTH);
        self.n0 = asm.bin(Bin::MulI, panel, width);
        self.point.vars[self.plan.n] = Some(self.n0);
    }

    /// Sets the addresses of the panels in their buffers.
    fn locate_sources(&mut self, asm: &mut Mlir) {
        let (cx, plan) = (self.cx, self.plan);
        self.panels.clear();
        for Sum { b, .. } in &plan.sums {
            let start = match plan.form {
                Form::Panels => {
                    let column = self.point.line(cx, asm, &b.coords[1]);
                    let rows = asm.i64(plan.panel_rows(cx.def));
                    asm.bin(Bin::MulI, column, rows)
                }
                Form::Rows | Form::Copied => self.point.start(cx, asm, b, None),
            };
            let unit = match plan.form {
                Form::Panels | Form::Rows => plan.b_step(cx.def),
                Form::Copied => scalar::stored(cx.def.reads[b.buffer].dtype),
            };
            self.panels.push(asm.element(cx.reads[b.buffer], start, unit));
        }
    }

    /// Sets the addresses of the panels and copies them to scratch if required and not yet done. Returns the id of the
    /// copied panel.
    fn locate_panel(&mut self, asm: &mut Mlir, id: Val, copied: Val) -> Val {
        let (cx, plan) = (self.cx, self.plan);
        self.locate_sources(asm);
        self.many = (plan.has_many_rows(cx.def).is_none()).then(|| self.has_many_rows(asm));
        if plan.form == Form::Rows {
            self.b_step = cx.size(asm, plan.b().stride(plan.k));
        }
        let copies = plan.copies_panels(cx.def);
        if plan.form != Form::Copied && copies == Copies::None {
            return copied;
        }
        let in_scratch = |asm: &mut Mlir, i: usize| {
            let behind = cx.dim(asm, &(Dim::constant(i as i64) * plan.copied_bytes(cx.def)));
            asm.element(cx.launch.scratch, behind, Elem::I8)
        };
        self.copies = (0..self.panels.len()).map(|i| in_scratch(asm, i)).collect();
        let mut wanted = asm.cmpi(CmpI::Ne, id, copied);
        let mut now = id;
        if let (Copies::OfMany, Some(many)) = (copies, self.many) {
            wanted = asm.bin(Bin::AndI, wanted, many);
            now = asm.select(many, id, copied);
        }
        asm.if_then(wanted, |asm| {
            for (source, to) in self.panels.iter().zip(&self.copies) {
                match plan.form {
                    Form::Copied => self.copy_panel(asm, *source, *to),
                    Form::Panels | Form::Rows => self.widen_panel(asm, *source, *to),
                }
            }
        });
        if plan.form == Form::Copied {
            self.panels = std::mem::take(&mut self.copies);
        }
        now
    }

    /// Whether many rows use a panel one after another.
    fn has_many_rows(&self, asm: &mut Mlir) -> Val {
        let mut all = asm.bin(Bin::MulI, self.turn.of, self.rows);
        if let Some((first, end)) = self.slabs {
            let slabs = asm.bin(Bin::SubI, end, first);
            all = asm.bin(Bin::MulI, all, slabs);
        }
        let many = asm.i64(MANY_ROWS);
        asm.cmpi(CmpI::Sge, all, many)
    }

    /// Runs `body` for each reduction: in one loop for all of them, or unrolled for contractions in groups, whose folds
    /// differ.
    fn each_sum(&self, asm: &mut Mlir, body: &dyn Fn(&mut Mlir, Which)) {
        match self.plan.sums.len() {
            1 => body(asm, Which::Known(0)),
            n if !self.plan.folds.is_empty() => (0..n).for_each(|i| body(asm, Which::Known(i))),
            n => {
                let (zero, n, one) = (asm.i64(0), asm.i64(n as i64), asm.i64(1));
                asm.for_loop((zero, n, one), &[], |asm, number, _| {
                    body(asm, Which::Each(number));
                    vec![]
                });
            }
        }
    }

    /// Panel of the reduction that `each_sum` is processing.
    fn panel_of(&self, asm: &mut Mlir, sum: Which) -> Panel<'_, '_> {
        let bytes = self.plan.tile_bytes(self.cx.def);
        match sum {
            Which::Known(sum) => {
                let behind = asm.i64(sum as i64 * bytes);
                let (b, copy) = (self.panels[sum], self.copies.get(sum).copied());
                Panel { item: self, b, copy, tile: asm.element(self.tile, behind, Elem::I8), sum }
            }
            Which::Each(sum) => {
                let (mut b, mut copy) = (self.panels[0], self.copies.first().copied());
                for (i, panel) in self.panels.iter().enumerate().skip(1) {
                    let number = asm.i64(i as i64);
                    let here = asm.cmpi(CmpI::Eq, sum, number);
                    b = asm.select(here, *panel, b);
                    copy = copy.zip(self.copies.get(i)).map(|(copy, other)| asm.select(here, *other, copy));
                }
                let bytes = asm.i64(bytes);
                let behind = asm.bin(Bin::MulI, sum, bytes);
                Panel { item: self, b, copy, tile: asm.element(self.tile, behind, Elem::I8), sum: 0 }
            }
        }
    }

    /// Whether full panels and the last one share their code: masks are nearly free, and the number of columns, few or
    /// many, is not known at compile time.
    fn takes_any_columns(&self) -> bool {
        let extent = self.cx.def.extent(self.plan.n);
        self.cx.launch.level.has(Extension::Masks) && extent.as_const().is_none() && self.plan.form == Form::Copied
    }

    /// Computes a full panel, or the last one with fewer columns.
    fn panel(&self, asm: &mut Mlir) {
        let width = asm.i64(WIDTH);
        match self.cx.def.extent(self.plan.n) {
            Size::Const(n) if n % WIDTH == 0 => self.chunk(asm, Columns::All),
            Size::Const(n) if n < WIDTH => self.chunk(asm, Columns::Known(n)),
            extent if self.takes_any_columns() => {
                let extent = self.cx.size(asm, extent);
                let left = asm.bin(Bin::SubI, extent, self.n0);
                let columns = asm.bin(Bin::MinSI, left, width);
                let lanes = asm.i64(self.cx.lanes() as i64);
                let few = asm.cmpi(CmpI::Sle, columns, lanes);
                asm.if_else(
                    few,
                    &[],
                    |asm| {
                        self.chunk(asm, Columns::Few(columns));
                        vec![]
                    },
                    |asm| {
                        self.chunk(asm, Columns::Some(columns));
                        vec![]
                    },
                );
            }
            extent => {
                let extent_value = self.cx.size(asm, extent);
                let left = asm.bin(Bin::SubI, extent_value, self.n0);
                let whole = asm.cmpi(CmpI::Sge, left, width);
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
}

/// Returns i · size.
fn times(asm: &mut Mlir, cx: &Cx<Mlir>, size: Size, i: i64) -> Val {
    match size {
        Size::Const(c) => asm.i64(i * c),
        Size::Param(_) => {
            let (size, i) = (cx.size(asm, size), asm.i64(i));
            asm.bin(Bin::MulI, size, i)
        }
    }
}

fn plus(asm: &mut Mlir, v: Val, c: i64) -> Val {
    if c == 0 {
        return v;
    }
    let c = asm.i64(c);
    asm.bin(Bin::AddI, v, c)
}
