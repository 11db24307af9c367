//! A block of rows by a block of lanes  =>  its sums, word by word, then what follows them

use super::{LANES, Plan, ROWS};
use crate::asm::{Asm, Bin, Cast, CmpI, Elem, Mlir, Ty, Val};
use crate::contract::transpose;
use crate::cx::{Cx, decode, whole_steps};
use crate::def::*;
use crate::eval::{Point, hoist};
use crate::scalar;

/// Vectors of one row's sums: as many as leave registers for a word and what it is multiplied with.
const VECTORS: u32 = 8;

/// The values that are the same in a whole work item.
struct Item<'i, 'd> {
    cx: &'i Cx<'d, Mlir>,
    plan: &'i Plan,
    point: Point,
    /// The first row and the first lane, and how many of each there are.
    n0: Val,
    lane0: Val,
    n_rows: Val,
    n_lanes: Val,
    /// The other factor's element of column 0 and the first lane.
    x: Val,
    /// Elements of it from a column to the next, and from a lane to the next.
    steps: [Val; 2],
    /// sums[row][lane], and those of some rows as [lane][row].
    tile: Val,
    turned: Val,
}

pub fn emit(cx: &Cx<Mlir>, asm: &mut Mlir, plan: &Plan) {
    let one = asm.i64(1);
    asm.for_loop((cx.launch.begin, cx.launch.end, one), &[], |asm, at, _| {
        let item = item(cx, asm, plan, at);
        let end = item.checked_end(asm);
        item.sums(asm, end);
        match plan.stores_along_rows(cx.def) {
            true => item.results_by_rows(asm),
            false => item.results_by_lanes(asm),
        }
        vec![]
    });
}

fn item<'i, 'd>(cx: &'i Cx<'d, Mlir>, asm: &mut Mlir, plan: &'i Plan, at: Val) -> Item<'i, 'd> {
    let def = cx.def;
    let blocks = |asm: &mut Mlir, v: usize, size: i64| {
        let n = def.extent(v).dim().ceildiv(&sardonyx_base::Dim::constant(size));
        cx.dim(asm, &n)
    };
    let mut extents: Vec<Val> = plan.others.iter().map(|v| cx.extent(asm, *v)).collect();
    extents.push(blocks(asm, plan.lane, LANES));
    extents.push(blocks(asm, plan.n, ROWS));
    let at = decode(asm, at, &extents);
    let mut point = Point::new(cx);
    plan.others.iter().zip(&at).for_each(|(v, at)| point.vars[*v] = Some(*at));
    let [lane_block, row_block] = [at[plan.others.len()], at[plan.others.len() + 1]];
    let part = |asm: &mut Mlir, v: usize, block: Val, size: i64| {
        let (size, extent) = (asm.i64(size), cx.extent(asm, v));
        let first = asm.bin(Bin::MulI, block, size);
        let left = asm.bin(Bin::SubI, extent, first);
        (first, asm.bin(Bin::MinSI, left, size))
    };
    let (lane0, n_lanes) = part(asm, plan.lane, lane_block, LANES);
    let (n0, n_rows) = part(asm, plan.n, row_block, ROWS);
    let mut corner = point.clone();
    corner.vars[plan.lane] = Some(lane0);
    let line = &plan.x.coords[0];
    let start = corner.line(cx, asm, line);
    let x = asm.element(cx.reads[plan.x.buffer], start, Elem::F32);
    let steps = [plan.x.computed[0].stride, line.strides[plan.lane]].map(|s| cx.size(asm, s));
    let behind = asm.i64(4 * LANES * ROWS);
    let turned = asm.element(cx.launch.scratch, behind, Elem::I8);
    Item { cx, plan, point, n0, lane0, n_rows, n_lanes, x, steps, tile: cx.launch.scratch, turned }
}

impl Item<'_, '_> {
    /// Gives the place of a row's first word, by its number in the block. The row after the last one begins where the block ends.
    fn start(&self, asm: &mut Mlir, row: Val) -> Val {
        let row = asm.bin(Bin::AddI, self.n0, row);
        let address = asm.element(self.cx.reads[self.plan.first.buffer], row, Elem::I32);
        let start = asm.load(address, Ty::I32, 4);
        asm.cast(Cast::ExtSI, start, Elem::I64)
    }

    fn column(&self, asm: &mut Mlir, word: Val, lanes: u32) -> Val {
        let access = &self.plan.column;
        let elem = scalar::stored(self.cx.def.reads[access.buffer].dtype);
        let address = asm.element(self.cx.reads[access.buffer], word, elem);
        asm.load(address, Ty::new(elem, lanes), elem.bits() / 8)
    }

    /// A column's number in 64 bits. One below 0 is beyond all.
    fn wide(&self, asm: &mut Mlir, column: Val) -> Val {
        asm.cast(Cast::ExtUI, column, Elem::I64)
    }

    /// The place behind the last word of the block, where all its words are in memory and name columns that there are.
    /// Else the launch fails, and the block has no words.
    fn checked_end(&self, asm: &mut Mlir) -> Val {
        let (cx, plan) = (self.cx, self.plan);
        let zero = asm.i64(0);
        let (first, end) = (self.start(asm, zero), self.start(asm, self.n_rows));
        let (n_words, n_columns) = (cx.size(asm, plan.n_words), cx.size(asm, plan.n_columns));
        let begins = asm.cmpi(CmpI::Sge, first, zero);
        let ends = asm.cmpi(CmpI::Sle, end, n_words);
        let sorted = asm.cmpi(CmpI::Sle, first, end);
        let inside = asm.bin(Bin::AndI, begins, ends);
        let inside = asm.bin(Bin::AndI, inside, sorted);
        let end = asm.select(inside, end, first);
        let lanes = cx.lanes();
        let whole = whole_steps(asm, first, end, lanes as i64);
        let elem = scalar::stored(cx.def.reads[plan.column.buffer].dtype);
        let largest = asm.zero(Ty::new(elem, lanes));
        let step = asm.i64(lanes as i64);
        let largest = asm.for_loop((first, whole, step), &[largest], |asm, word, largest| {
            let columns = self.column(asm, word, lanes);
            vec![asm.bin(Bin::MaxUI, largest[0], columns)]
        })[0];
        let mut all = asm.zero(Ty::I64);
        for lane in 0..lanes {
            let one = asm.extract(largest, lane);
            let one = self.wide(asm, one);
            all = asm.bin(Bin::MaxSI, all, one);
        }
        let one = asm.i64(1);
        let all = asm.for_loop((whole, end, one), &[all], |asm, word, all| {
            let column = self.column(asm, word, 1);
            let column = self.wide(asm, column);
            vec![asm.bin(Bin::MaxSI, all[0], column)]
        })[0];
        let named = asm.cmpi(CmpI::Slt, all, n_columns);
        let is_empty = asm.cmpi(CmpI::Eq, first, end);
        let named = asm.bin(Bin::OrI, named, is_empty);
        let good = asm.bin(Bin::AndI, inside, named);
        let yes = asm.int(1, Ty::I1);
        let bad = asm.bin(Bin::XorI, good, yes);
        asm.if_then(bad, |asm| asm.raise(cx.status));
        asm.select(good, end, first)
    }

    /// Fills the tile.
    fn sums(&self, asm: &mut Mlir, end: Val) {
        let zero = asm.i64(0);
        if !self.plan.has_vectors() {
            let one = asm.i64(1);
            asm.for_loop((zero, self.n_lanes, one), &[], |asm, lane, _| {
                self.strip(asm, lane, (1, 1), None, end);
                vec![]
            });
            return;
        }
        let lanes = self.cx.lanes();
        let (mut from, mut vectors) = (zero, VECTORS);
        while vectors > 0 {
            let step = (vectors * lanes) as i64;
            let to = whole_steps(asm, from, self.n_lanes, step);
            let by = asm.i64(step);
            asm.for_loop((from, to, by), &[], |asm, lane, _| {
                self.strip(asm, lane, (vectors, lanes), None, end);
                vec![]
            });
            (from, vectors) = (to, vectors / 2);
        }
        let left = asm.bin(Bin::SubI, self.n_lanes, from);
        let some = asm.cmpi(CmpI::Ne, from, self.n_lanes);
        asm.if_then(some, |asm| {
            let (left, iota) = (asm.widen(left, lanes), asm.iota(lanes));
            let mask = asm.cmpi(CmpI::Slt, iota, left);
            self.strip(asm, from, (1, lanes), Some(mask), end);
        });
    }

    /// The sums of all rows for some vectors of lanes, the first `lane` of the block's.
    fn strip(&self, asm: &mut Mlir, lane: Val, (vectors, lanes): (u32, u32), mask: Option<Val>, block_end: Val) {
        let ty = Ty::new(Elem::F32, lanes);
        let moved = asm.bin(Bin::MulI, lane, self.steps[1]);
        let x = asm.element(self.x, moved, Elem::F32);
        let to = asm.element(self.tile, lane, Elem::F32);
        let (zero, one) = (asm.i64(0), asm.i64(1));
        let begin = self.start(asm, zero);
        asm.for_loop((zero, self.n_rows, one), &[begin], |asm, row, begin| {
            let next = asm.bin(Bin::AddI, row, one);
            let end = self.start(asm, next);
            // Rows whose words are out of order have none: the block's own are all that were looked at.
            let sorted = asm.cmpi(CmpI::Sle, begin[0], end);
            let within = asm.cmpi(CmpI::Sle, end, block_end);
            let good = asm.bin(Bin::AndI, sorted, within);
            let stop = asm.select(good, end, begin[0]);
            let sums = vec![asm.zero(ty); vectors as usize];
            let sums =
                asm.for_loop((begin[0], stop, one), &sums, |asm, word, sums| self.times_word(asm, word, x, sums, mask));
            let bad = asm.cmpi(CmpI::Sgt, begin[0], end);
            asm.if_then(bad, |asm| asm.raise(self.cx.status));
            let width = asm.i64(LANES);
            let at = asm.bin(Bin::MulI, row, width);
            let to = asm.element(to, at, Elem::F32);
            for (i, sum) in sums.into_iter().enumerate() {
                let behind = asm.i64(i as i64 * lanes as i64);
                let to = asm.element(to, behind, Elem::F32);
                asm.store(sum, to, 4);
            }
            vec![end]
        });
    }

    /// Adds one word times the vectors of its column.
    fn times_word(&self, asm: &mut Mlir, word: Val, x: Val, sums: &[Val], mask: Option<Val>) -> Vec<Val> {
        let ty = sums[0].ty;
        let column = self.column(asm, word, 1);
        let column = self.wide(asm, column);
        let at = asm.bin(Bin::MulI, column, self.steps[0]);
        let x = asm.element(x, at, Elem::F32);
        let value = asm.element(self.cx.reads[self.plan.value.buffer], word, Elem::F32);
        let value = asm.load(value, Ty::F32, 4);
        let value = asm.widen(value, ty.lanes);
        let mut next = vec![];
        for (i, sum) in sums.iter().enumerate() {
            let behind = asm.i64(i as i64 * ty.lanes as i64);
            let address = asm.element(x, behind, Elem::F32);
            let x = match mask {
                Some(mask) => asm.masked_load(address, mask, ty),
                None => asm.load(address, ty, 4),
            };
            next.push(asm.fma(value, x, *sum));
        }
        next
    }

    /// Computes the epilogue for vectors of lanes, one row after the other.
    fn results_by_lanes(&self, asm: &mut Mlir) {
        let (zero, one) = (asm.i64(0), asm.i64(1));
        asm.for_loop((zero, self.n_rows, one), &[], |asm, row, _| {
            let mut point = self.point.clone();
            point.vars[self.plan.n] = Some(asm.bin(Bin::AddI, self.n0, row));
            let width = asm.i64(LANES);
            let at = asm.bin(Bin::MulI, row, width);
            let sums = asm.element(self.tile, at, Elem::F32);
            self.vectors(asm, (self.plan.lane, self.lane0, self.n_lanes), &point, sums);
            vec![]
        });
    }

    /// Computes the epilogue for vectors of rows, one lane after the other.
    fn results_by_rows(&self, asm: &mut Mlir) {
        let lanes = self.cx.lanes();
        let (zero, one, step) = (asm.i64(0), asm.i64(1), asm.i64(lanes as i64));
        asm.for_loop((zero, self.n_rows, step), &[], |asm, row, _| {
            let width = asm.i64(LANES);
            let from = asm.bin(Bin::MulI, row, width);
            let from = asm.element(self.tile, from, Elem::F32);
            // The tile is whole, so that rows and lanes that are not there are turned too.
            asm.for_loop((zero, self.n_lanes, step), &[], |asm, lane, _| {
                let from = asm.element(from, lane, Elem::F32);
                let mut square = vec![];
                for i in 0..lanes {
                    let at = asm.i64(i as i64 * LANES);
                    let address = asm.element(from, at, Elem::F32);
                    square.push(asm.load(address, Ty::new(Elem::F32, lanes), 4));
                }
                transpose(asm, &mut square);
                let to = asm.bin(Bin::MulI, lane, step);
                let to = asm.element(self.turned, to, Elem::F32);
                for (i, sums) in square.into_iter().enumerate() {
                    let at = asm.i64(i as i64 * lanes as i64);
                    let address = asm.element(to, at, Elem::F32);
                    asm.store(sums, address, 4);
                }
                vec![]
            });
            let left = asm.bin(Bin::SubI, self.n_rows, row);
            let first = asm.bin(Bin::AddI, self.n0, row);
            let n = asm.bin(Bin::MinSI, left, step);
            asm.for_loop((zero, self.n_lanes, one), &[], |asm, lane, _| {
                let mut point = self.point.clone();
                point.vars[self.plan.lane] = Some(asm.bin(Bin::AddI, self.lane0, lane));
                let at = asm.bin(Bin::MulI, lane, step);
                let sums = asm.element(self.turned, at, Elem::F32);
                self.vectors(asm, (self.plan.n, first, n), &point, sums);
                vec![]
            });
            vec![]
        });
    }

    /// Vectors along a variable from `first` on, `n` elements of it, whose sums lie one behind the other.
    fn vectors(&self, asm: &mut Mlir, (var, first, n): (usize, Val, Val), point: &Point, sums: Val) {
        let cx = self.cx;
        let lanes = cx.lanes();
        let zero = asm.i64(0);
        let whole = whole_steps(asm, zero, n, lanes as i64);
        let each = |asm: &mut Mlir, at: Val, lanes: u32, mut point: Point| {
            let address = asm.element(sums, at, Elem::F32);
            point.along = var;
            point.lanes = lanes;
            point.values[self.plan.sum] = Some(asm.load(address, Ty::new(Elem::F32, lanes), 4));
            for write in &cx.def.stores {
                point.store(cx, asm, write);
            }
        };
        let mut point = point.clone();
        hoist(cx, asm, &mut point, var, self.after());
        let loops = [(zero, whole, lanes), (whole, n, 1)];
        for (lo, hi, lanes) in &loops[..if cx.has_masks() { 1 } else { 2 }] {
            let step = asm.i64(*lanes as i64);
            asm.for_loop((*lo, *hi, step), &[], |asm, at, _| {
                let mut point = point.clone();
                point.vars[var] = Some(asm.bin(Bin::AddI, first, at));
                each(asm, at, *lanes, point);
                vec![]
            });
        }
        if cx.has_masks() {
            let some = asm.cmpi(CmpI::Ne, whole, n);
            asm.if_then(some, |asm| {
                let (rest, at) = (asm.bin(Bin::SubI, n, whole), asm.bin(Bin::AddI, first, whole));
                let point = point.masked_lanes(asm, var, at, rest, lanes);
                each(asm, whole, lanes, point);
            });
        }
    }

    /// Gives the statements of the epilogue but for the sum and what it is made of.
    fn after(&self) -> Vec<usize> {
        let def = self.cx.def;
        let (mut open, mut seen) = (def.stores.iter().map(|w| w.value).collect::<Vec<_>>(), vec![]);
        open.extend(def.stores.iter().flat_map(|w| access_values(&w.access)));
        while let Some(k) = open.pop() {
            if k != self.plan.sum && !seen.contains(&k) {
                seen.push(k);
                open.extend(def.operands(k));
            }
        }
        seen.sort();
        seen
    }
}
