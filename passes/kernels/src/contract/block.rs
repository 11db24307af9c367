//! rows of A by a panel of B  =>  accumulators in registers: the blocks of rows, and the loop over k of each block

use super::groups::{self, Place};
use super::pairs::pair_products;
use super::plan::{Form, WIDTH};
use super::quads::quad_products;
use super::sizes::Blocks;
use super::stored::{Copies, load_as_f32};
use super::{Columns, Item, Panel, Turn, plus, times};
use crate::asm::{Asm, Bin, CmpI, Elem, Mlir, Ty, Val};
use crate::def::*;
use crate::scalar;
use crate::words::Words;
use sardonyx_base::DType;

/// Prefetch distance in bytes within panels; the second one is for blocks of few rows, which wait for memory.
pub const AHEAD: i64 = 2048;
const FEW_AHEAD: i64 = 8192;
/// Bytes of a cache line, which one prefetch loads.
const LINE: usize = 64;
const FEW_ROWS: i64 = 8;

/// Number of rows of a panel from which on it does not stay in the first-level cache together with A.
pub const FETCHED_ROWS: i64 = 256;

/// Number of products that are accumulated sequentially; these partial sums are then added up. The rounding error grows
/// with the larger of this number and the number of partial sums.
const PART: i64 = 128;

/// `PART` for at most `FEW_COLUMNS` columns: shorter partial sums cost little there, and rounding errors may be
/// amplified later, as by the gates of squeeze-and-excitation.
const SHORT_PART: i64 = 32;
const FEW_COLUMNS: i64 = 2 * WIDTH;

impl Item<'_> {
    /// Computes all rows of the item, slab by slab.
    pub fn chunk(&self, asm: &mut Mlir, columns: Columns) {
        self.stage(asm);
        let (Some(slabs), Some(&var)) = (self.slabs, self.plan.slabs.last()) else { return self.rows(asm, columns) };
        let one = asm.i64(1);
        let of = asm.bin(Bin::SubI, slabs.1, slabs.0);
        asm.for_loop((slabs.0, slabs.1, one), &[], |asm, at, _| {
            let mut item = self.clone();
            let part = Turn { at: asm.bin(Bin::SubI, at, slabs.0), of };
            item.turn = self.turn.within(asm, part);
            item.point.vars[var] = Some(at);
            item.rows(asm, columns);
            vec![]
        });
    }

    /// Computes the rows of a chunk in blocks.
    pub fn rows_in_blocks(&self, asm: &mut Mlir, columns: Columns) {
        let zero = asm.i64(0);
        let blocks = match columns {
            _ if !self.plan.folds.is_empty() => Blocks::of_groups(self.cx.launch.level, self.plan.words),
            Columns::Few(_) => Blocks::NARROW,
            Columns::Known(_) | Columns::Some(_) if self.is_small_part() => Blocks::SHORT,
            Columns::All | Columns::Known(_) | Columns::Some(_) => {
                Blocks::for_words(self.cx.launch.level, self.plan.words)
            }
        };
        let sizes = match self.plan.m.map(|m| self.cx.def.extent(m)) {
            None => vec![1],
            Some(Size::Const(m)) => {
                let chunk = self.plan.chunk_rows(self.cx.def);
                blocks.sizes(&[chunk.min(m), m % chunk])
            }
            Some(Size::Param(_)) => blocks.sizes(&(1..=self.plan.chunk()).collect::<Vec<_>>()),
        };
        self.each_sum(asm, &|asm, sum| {
            let panel = self.panel_of(asm, sum);
            asm.do_while(&[zero], |asm, at| {
                let left = asm.bin(Bin::SubI, self.rows, at[0]);
                let size = match sizes[..] {
                    [only] => asm.i64(only),
                    _ => blocks.emit_next(asm, left),
                };
                panel.block_of(asm, &sizes, size, at[0], columns);
                let next = asm.bin(Bin::AddI, at[0], size);
                (asm.cmpi(CmpI::Slt, next, self.rows), vec![next])
            });
        });
    }

    /// Whether a partial panel is a small part of the work, because there are many columns.
    fn is_small_part(&self) -> bool {
        let many = self.cx.def.extent(self.plan.n).as_const().is_none_or(|n| n >= 8 * WIDTH);
        many && !self.takes_any_columns()
    }

    /// Address of the row in A.
    pub fn a_at(&self, asm: &mut Mlir, row: Val) -> Val {
        let (cx, plan) = (self.cx, self.plan);
        if plan.staged.is_some() {
            return self.staged_at(asm, row);
        }
        let mut at = self.point.clone();
        if let Some(var) = plan.m {
            at.vars[var] = Some(asm.bin(Bin::AddI, self.m0, row));
        }
        let start = at.start(cx, asm, &plan.a, None);
        asm.element(cx.reads[plan.a.buffer], start, plan.a_element(cx.def))
    }

    /// Mask of `lanes` lanes from column `first` of the panel on, of which those exist that are columns; `None` if all
    /// do.
    pub fn mask(&self, asm: &mut Mlir, first: Val, lanes: u32, columns: Columns) -> Option<Val> {
        let n = match columns {
            Columns::All => return None,
            Columns::Known(n) => asm.i64(n),
            Columns::Some(n) | Columns::Few(n) => n,
        };
        let (first, iota) = (asm.widen(first, lanes), asm.iota(lanes));
        let column = asm.bin(Bin::AddI, first, iota);
        let n = asm.widen(n, lanes);
        Some(asm.cmpi(CmpI::Slt, column, n))
    }
}

/// Addresses at which a loop over k begins: A, the panels, and the part of the next panel that the loop prefetches.
#[derive(Clone)]
pub struct Start {
    pub a: Val,
    pub b: Vec<Val>,
    /// Element type in which offsets along the columns of `b` are counted.
    pub b_unit: Elem,
    pub next: Option<Val>,
}

/// Variant of a block's code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Whether the code prefetches the next panel.
    fetches: bool,
    /// Whether the code reads the f32 copy of the panel.
    copied: bool,
}

impl Way {
    pub const PLAIN: Way = Way { fetches: false, copied: false };
}

/// One step along k: start addresses, k and the accumulators  =>  the updated accumulators.
type Step<'s> = dyn Fn(&mut Mlir, &Start, Val, &[Val]) -> Vec<Val> + 's;

/// All steps along k, at a point of the innermost surrounding variable.
type Steps<'s> = dyn Fn(&mut Mlir, &Start, Option<Val>, &[Val]) -> Vec<Val> + 's;

impl Panel<'_, '_> {
    /// Runs the code of a block for the rows from `first` on; `size` is their number at run time, and one of `sizes`.
    fn block_of(&self, asm: &mut Mlir, sizes: &[i64], size: Val, first: Val, columns: Columns) {
        let [this, others @ ..] = sizes else { return };
        let block = |asm: &mut Mlir| {
            let (of_few, of_many) = self.ways(*this);
            let either = |asm: &mut Mlir, way: Way| {
                self.block(asm, *this, first, columns, way);
                vec![]
            };
            match (self.item.plan.has_many_rows(self.item.cx.def), self.item.many) {
                (None, Some(many)) if of_few != of_many => {
                    asm.if_else(many, &[], |asm| either(asm, of_many), |asm| either(asm, of_few));
                }
                (Some(true), _) => drop(either(asm, of_many)),
                (Some(false) | None, _) => drop(either(asm, of_few)),
            }
        };
        if others.is_empty() {
            return block(asm);
        }
        let value = asm.i64(*this);
        let here = asm.cmpi(CmpI::Eq, size, value);
        asm.if_else(
            here,
            &[],
            |asm| {
                block(asm);
                vec![]
            },
            |asm| {
                self.block_of(asm, others, size, first, columns);
                vec![]
            },
        );
    }

    /// Computes `size` rows from `row` by all columns of the panel, as many columns at a time as the registers hold.
    fn block(&self, asm: &mut Mlir, size: i64, row: Val, columns: Columns, way: Way) {
        let lanes = self.item.cx.lanes();
        let width = i64::from(lanes);
        // One or two rows are bound by reading the panel, so its rows are read whole.
        let vectors = if size <= 2 { WIDTH / width } else { 2 };
        let zero = asm.i64(0);
        let this = std::slice::from_ref(self);
        if let Columns::Known(n) = columns {
            for first in (0..n).step_by((vectors * width) as usize) {
                let needed = self.item.vectors((n - first).min(vectors * width));
                let first = asm.i64(first);
                self.registers(asm, this, size, row, first, &needed, columns, way);
            }
            return;
        }
        let vectors = if let Columns::Few(_) = columns { 1 } else { vectors };
        let all = vec![lanes; vectors as usize];
        if vectors * width == WIDTH || vectors == 1 {
            return self.registers(asm, this, size, row, zero, &all, columns, way);
        }
        let step = asm.i64(vectors * width);
        let end = match columns {
            Columns::Some(n) | Columns::Few(n) => n,
            Columns::All | Columns::Known(_) => asm.i64(WIDTH),
        };
        asm.for_loop((zero, end, step), &[], |asm, first, _| {
            self.registers(asm, this, size, row, first, &all, columns, way);
            vec![]
        });
    }

    /// Computes `size` rows by the columns from `first` of each panel, in registers over the whole reduction; `vectors`
    /// are the lanes of the vectors that these columns fill.
    #[allow(clippy::too_many_arguments)]
    pub fn registers(
        &self,
        asm: &mut Mlir,
        panels: &[Self],
        size: i64,
        row: Val,
        first: Val,
        vectors: &[u32],
        columns: Columns,
        way: Way,
    ) {
        let item = self.item;
        let (cx, plan) = (item.cx, item.plan);
        let of_lanes = |elem: Elem| vectors.iter().map(|lanes| Ty::new(elem, *lanes)).collect::<Vec<_>>();
        let types = of_lanes(plan.words.sum());
        let cell_types = of_lanes(if plan.folds.is_empty() { plan.words.sum() } else { Elem::I32 });
        // Addresses count elements, steps count words.
        let (a_elem, a_unit) = (plan.a_element(cx.def), plan.a_step(cx.def));
        let b_stored = if way.copied { DType::F32 } else { plan.b_stored(cx.def) };
        let b_unit = scalar::stored(b_stored);
        let mut a = item.a_at(asm, row);
        if plan.diagonal {
            a = asm.element(a, first, a_unit);
        }
        let cell_words = plan.cell_rows(cx.def).div_euclid(plan.words.depth());
        let a_step = times(asm, cx, plan.a.stride(plan.k), cell_words);
        let row_step = plan.m.map_or(Size::Const(0), |m| plan.a.stride(m));
        let row_offsets: Vec<Val> = (0..size).map(|i| times(asm, cx, row_step, i)).collect();
        let begin = |j: usize| vectors[..j].iter().map(|lanes| i64::from(*lanes)).sum();
        let firsts: Vec<Val> = (0..vectors.len()).map(|j| plus(asm, first, begin(j))).collect();
        let masks: Vec<Option<Val>> =
            firsts.iter().zip(vectors).map(|(first, lanes)| item.mask(asm, *first, *lanes, columns)).collect();
        let b: Vec<Val> = panels.iter().map(|p| asm.element(p.read(way), first, b_unit)).collect();
        let width = panels.len() * vectors.len();
        let none = |asm: &mut Mlir, elem: Elem| -> Vec<Val> {
            let of_row: Vec<Val> = vectors.iter().map(|lanes| asm.zero(Ty::new(elem, *lanes))).collect();
            of_row.repeat(size as usize * panels.len())
        };
        let inits = none(asm, plan.words.sum());
        let rows = asm.i64(size);
        let next = way.fetches.then(|| self.next_part(asm, rows, row));
        let next_step = next.map(|(_, step)| step);
        let is_near = item.are_panels_near();
        let step = |asm: &mut Mlir, start: &Start, k: Val, sums: &[Val], rest: Option<i64>| {
            let b_row = asm.bin(Bin::MulI, k, item.b_step);
            let b_rows: Vec<Val> = start.b.iter().map(|b| asm.element(*b, b_row, b_unit)).collect();
            let cells: Vec<Val> =
                b_rows.iter().flat_map(|b| self.b_row(asm, *b, &masks, &cell_types, b_stored)).collect();
            if plan.form == Form::Panels && !is_near {
                let ahead = if size <= FEW_ROWS { FEW_AHEAD } else { AHEAD };
                let bytes = begin(vectors.len()) * i64::from(b_unit.bits()) / 8;
                for (b_row, line) in b_rows.iter().flat_map(|b| (0..bytes).step_by(LINE).map(|l| (*b, l))) {
                    let at = asm.i64(ahead + line);
                    let ahead = asm.element(b_row, at, Elem::I8);
                    asm.prefetch(ahead);
                }
            }
            if let (Some(next), Some(next_step)) = (start.next, next_step) {
                let at = asm.bin(Bin::MulI, k, next_step);
                let address = asm.element(next, at, Elem::I8);
                asm.prefetch(address);
            }
            let a_column = asm.bin(Bin::MulI, k, a_step);
            let a_column = asm.element(start.a, a_column, a_unit);
            let addresses: Vec<Val> = row_offsets.iter().map(|o| asm.element(a_column, *o, a_elem)).collect();
            let products = |asm: &mut Mlir, addresses: &[Val], b_values: &[Val], sums: &[Val]| match plan.words {
                Words::Pairs => pair_products(asm, cx.launch.level, addresses, b_values, sums, rest.is_some()),
                Words::Quads => quad_products(asm, cx.launch.level, addresses, b_values, sums, rest),
                Words::Singles => addresses
                    .iter()
                    .zip(sums.chunks(width))
                    .flat_map(|(address, sums)| {
                        let values = match plan.diagonal {
                            true => self.b_row(asm, *address, &masks, &types, plan.a_stored(cx.def)),
                            false => {
                                let dtype = plan.a_stored(cx.def);
                                let value = load_as_f32(asm, dtype, *address, 1, None, dtype.bytes() as u32);
                                asm.broadcast(value, vectors).repeat(panels.len())
                            }
                        };
                        let factors = values.into_iter().zip(b_values).zip(sums);
                        factors.map(|((value, b_value), sum)| asm.fma(value, *b_value, *sum)).collect::<Vec<_>>()
                    })
                    .collect(),
            };
            if plan.folds.is_empty() {
                return products(asm, &addresses, &cells, sums);
            }
            let words: Vec<Vec<Val>> =
                cells.iter().map(|cell| groups::words(asm, *cell, plan.codes(cx.def), plan.words)).collect();
            let mut sums = sums.to_vec();
            for word in 0..cell_words as usize {
                let values: Vec<Val> = words.iter().map(|words| words[word]).collect();
                let at = asm.i64(word as i64);
                let addresses: Vec<Val> = addresses.iter().map(|a| asm.element(*a, at, Elem::F32)).collect();
                sums = products(asm, &addresses, &values, &sums);
            }
            sums
        };
        let start = Start { a, b, b_unit, next: next.map(|(address, _)| address) };
        let whole = |asm: &mut Mlir, start: &Start, k: Val, sums: &[Val]| step(asm, start, k, sums, None);
        let parts = |asm: &mut Mlir, start: &Start, sums: &[Val]| self.parts(asm, start, sums, &whole);
        let place = Place { row, firsts: &firsts, masks: &masks };
        let group = |asm: &mut Mlir, start: &Start, at: Option<Val>, sums: &[Val]| {
            let of_group = self.parts(asm, start, &inits, &whole);
            self.fold(asm, (panels, &place), at, &of_group, sums)
        };
        let mut sums = match plan.folds.is_empty() {
            true => {
                self.sum(asm, &plan.around, &start, next_step, &inits, &|asm, start, _, sums| parts(asm, start, sums))
            }
            false => {
                let none = none(asm, plan.sum());
                self.sum(asm, &plan.around, &start, next_step, &none, &group)
            }
        };
        if let Some(rest) = self.rest() {
            let last = asm.i64(plan.panel_rows(cx.def) - 1);
            sums = step(asm, &start, last, &sums, Some(rest));
        }
        for j in 0..width {
            let (panel, at) = (&panels[j / vectors.len()], j % vectors.len());
            let column: Vec<Val> = (0..size as usize).map(|i| sums[i * width + j]).collect();
            if plan.direct {
                panel.item.direct_epilogue(asm, row, firsts[at], masks[at], &column);
            } else {
                panel.to_tile(asm, row, firsts[at], &column);
            }
        }
    }

    /// Loops over the reduction (the variables `around`, then k), moving the start addresses of A and of each panel.
    pub fn sum(
        &self,
        asm: &mut Mlir,
        around: &[usize],
        start: &Start,
        next_step: Option<Val>,
        sums: &[Val],
        steps: &Steps,
    ) -> Vec<Val> {
        let (cx, plan) = (self.item.cx, self.item.plan);
        let (zero, one) = (asm.i64(0), asm.i64(1));
        let Some((&var, inside)) = around.split_first() else { return steps(asm, start, None, sums) };
        let (extent, item_width) = (cx.extent(asm, var), asm.i64(WIDTH));
        asm.for_loop((zero, extent, one), sums, |asm, i, sums| {
            let a_step = cx.size(asm, plan.a.stride(var));
            let moved = asm.bin(Bin::MulI, i, a_step);
            let a = asm.element(start.a, moved, plan.a_element(cx.def));
            let mut next = start.next;
            let moved = match plan.form {
                Form::Panels => {
                    let rows = plan.b().coords[0].strides[var].as_const().unwrap_or(0);
                    let rows = asm.i64(rows.div_euclid(plan.cell_rows(cx.def)));
                    let rows = asm.bin(Bin::MulI, i, rows);
                    if let (Some(at), Some(step)) = (next, next_step) {
                        let moved = asm.bin(Bin::MulI, rows, step);
                        next = Some(asm.element(at, moved, Elem::I8));
                    }
                    asm.bin(Bin::MulI, rows, item_width)
                }
                Form::Rows | Form::Copied => {
                    let step = cx.size(asm, plan.b().stride(var));
                    asm.bin(Bin::MulI, i, step)
                }
            };
            let b = start.b.iter().map(|b| asm.element(*b, moved, start.b_unit)).collect();
            let start = Start { a, b, b_unit: start.b_unit, next };
            match inside.is_empty() {
                true => steps(asm, &start, Some(i), sums),
                false => self.sum(asm, inside, &start, next_step, sums, steps),
            }
        })
    }

    /// The loop over k, split into parts.
    fn parts(&self, asm: &mut Mlir, start: &Start, sums: &[Val], step: &Step) -> Vec<Val> {
        let (cx, plan) = (self.item.cx, self.item.plan);
        let (zero, one) = (asm.i64(0), asm.i64(1));
        let few = cx.def.extent(plan.n).as_const().is_some_and(|n| n <= FEW_COLUMNS);
        let part = if few { SHORT_PART } else { PART };
        let part = part / plan.words.depth();
        let size = self.whole_words();
        let extent = cx.size(asm, size);
        // Integer sums have no rounding error.
        if plan.words == Words::Quads || size.as_const().is_some_and(|n| n <= part) {
            return asm.for_loop((zero, extent, one), sums, |asm, k, sums| step(asm, start, k, sums));
        }
        let part = asm.i64(part);
        let inits: Vec<Val> = sums.iter().map(|sum| asm.zero(sum.ty)).collect();
        asm.for_loop((zero, extent, part), sums, |asm, first, sums| {
            let end = asm.bin(Bin::AddI, first, part);
            let end = asm.bin(Bin::MinSI, end, extent);
            let parts = asm.for_loop((first, end, one), &inits, |asm, k, sums| step(asm, start, k, sums));
            sums.iter().zip(parts).map(|(sum, part)| asm.bin(Bin::AddF, *sum, part)).collect()
        })
    }

    /// Variants of the code for blocks of this many rows: where few rows share the panel, and where many rows do, so
    /// that they use it for longer than it takes to prefetch the next panel.
    fn ways(&self, size: i64) -> (Way, Way) {
        let (cx, plan) = (self.item.cx, self.item.plan);
        let long = plan.form == Form::Panels && plan.panel_rows(cx.def) >= FETCHED_ROWS;
        // If the number of rows is only known at run time, a block of few rows is taken for a small remainder.
        let is_rest = plan.has_many_rows(cx.def).is_none() && size <= FEW_ROWS;
        let copied = match plan.copies_panels(cx.def) {
            Copies::None => false,
            Copies::OfMany => size >= Blocks::for_words(self.item.cx.launch.level, plan.words).usual,
            Copies::All => true,
        };
        (Way::PLAIN, Way { fetches: long && !is_rest, copied })
    }

    /// Address of the panel that this variant reads.
    fn read(&self, way: Way) -> Val {
        self.copy.filter(|_| way.copied).unwrap_or(self.b)
    }

    /// Returns the part of the next panel that a block of rows prefetches: its address, and its bytes per row of a
    /// panel. All rows that use this panel one after another share the prefetch; otherwise the first of them would wait
    /// for memory, which is idle while the others hit the cache.
    pub fn next_part(&self, asm: &mut Mlir, size: Val, row: Val) -> (Val, Val) {
        let rows = self.item.plan.panel_rows(self.item.cx.def);
        let turn = self.item.turn.within(asm, Turn { at: row, of: self.item.rows });
        let row_bytes = WIDTH * self.item.plan.b_bytes(self.item.cx.def);
        let (bytes, row_bytes) = (asm.i64(rows * row_bytes), asm.i64(row_bytes));
        let share = asm.bin(Bin::MulI, size, row_bytes);
        let begin = asm.bin(Bin::MulI, bytes, turn.at);
        let begin = asm.bin(Bin::DivUI, begin, turn.of);
        let begin = asm.bin(Bin::AddI, begin, bytes);
        (asm.element(self.b, begin, Elem::I8), asm.bin(Bin::DivUI, share, turn.of))
    }

    /// Number of complete words along k; for groups, of cells.
    fn whole_words(&self) -> Size {
        let (cx, plan) = (self.item.cx, self.item.plan);
        match plan.words {
            Words::Singles if plan.folds.is_empty() => cx.def.extent(plan.k),
            Words::Singles => Size::Const(plan.whole_words(cx.def)),
            Words::Pairs | Words::Quads => Size::Const(plan.whole_words(cx.def)),
        }
    }

    /// Number of elements of an incomplete last word; A must not be read beyond these elements.
    fn rest(&self) -> Option<i64> {
        let (cx, plan) = (self.item.cx, self.item.plan);
        let rest = cx.def.extent(plan.k).as_const().unwrap_or(0) % plan.words.depth();
        (rest != 0).then_some(rest)
    }

    /// Loads the vectors of one row of a panel, or of A if the contraction is diagonal.
    fn b_row(&self, asm: &mut Mlir, row: Val, masks: &[Option<Val>], types: &[Ty], dtype: DType) -> Vec<Val> {
        let (masked, unit) = (self.item.plan.form == Form::Rows, scalar::stored(dtype));
        // Vectors of a panel are aligned to at least 8 elements; those of rows in place only to one.
        let align = if masked { unit.bits() / 8 } else { 8 * unit.bits() / 8 };
        let mut first = 0;
        let load = |(mask, &ty): (&Option<Val>, &Ty)| {
            let at = asm.i64(first);
            first += i64::from(ty.lanes);
            let address = asm.element(row, at, unit);
            let mask = mask.filter(|_| masked);
            match (dtype, mask) {
                (DType::F32, Some(mask)) => asm.masked_load(address, mask, ty),
                (DType::F32, None) => asm.load(address, ty, align),
                _ => load_as_f32(asm, dtype, address, ty.lanes, mask, align),
            }
        };
        masks.iter().zip(types).map(load).collect()
    }
}
