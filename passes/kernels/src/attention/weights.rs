//! scores => x = g(score) => exp(x - shift), and the factor by which results of earlier blocks are scaled
//!
//! Only loops over keys run row by row. Values that exist once per row are computed for all rows of the group at once,
//! with rows as lanes, so that rows do not wait for each other.

use super::plan::{SCORE_STEP, SQUARE_MAX, WIDTH, Walked};
use super::{Group, Item, Keys, State, at, has_masks, hoist, plus, round_up};
use crate::asm::{Asm, Bin, CmpF, CmpI, Elem, Mlir, Ty, Val};
use crate::contract::transpose;
use crate::cx::whole_steps;
use crate::def::Op;
use crate::eval::Point;
use crate::reduce::{paired, tree};
use crate::{math, scalar};
use sardonyx_base::DType;
use sardonyx_dialects::scalar::ReduceFn;

const F32: DType = DType::F32;

/// Larger of x and the maximum `before`. NaN may be dropped here, because it makes the row's total NaN anyway.
fn larger(asm: &mut Mlir, x: Val, before: Val) -> Val {
    scalar::numbers_extremum(asm, ReduceFn::Max, x, before)
}

fn largest_of(asm: &mut Mlir, parts: Vec<Val>) -> Val {
    paired(asm, parts, larger)
}

impl Item<'_> {
    /// Turns the group's scores into weights and updates its state by one block.
    pub fn weigh(&self, asm: &mut Mlir, group: Group, keys: Keys) {
        self.apply_to_rows(asm, group, keys);
        let lanes = self.cx.lanes();
        let (ty, rows) = (Ty::new(Elem::F32, lanes), self.row_mask(asm, group));
        let (none, unit, least) = (asm.zero(ty), asm.float(1.0, ty), asm.float(f64::NEG_INFINITY, ty));
        let [max_at, shift_at, total_at, fade_at] =
            [State::Max, State::Shift, State::Total, State::Fade].map(|what| self.state(asm, what, group.row));
        let before = asm.load(max_at, ty, 4);
        let largest = self.across(asm, largest_of);
        let max = larger(asm, largest, before);
        asm.masked_store(max, max_at, rows);
        let shift_before = asm.load(shift_at, ty, 4);
        let shift = self.shifts(asm, group, max, max_at, shift_at);
        // If all keys so far are hidden, the shift is 0: -inf − -inf would be NaN, and a later key may be visible.
        let hidden = asm.cmpf(CmpF::Oeq, max, least);
        let shift = asm.select(hidden, none, shift);
        asm.masked_store(shift, shift_at, rows);
        // The factor is 1 if the shifts are equal, even if infinite, and 0 if nothing was seen before.
        let below = asm.bin(Bin::SubF, shift_before, shift);
        let fade = math::exp(asm, below);
        let same = asm.cmpf(CmpF::Oeq, shift_before, shift);
        let fade = asm.select(same, unit, fade);
        let first = asm.cmpf(CmpF::Oeq, before, least);
        let fade = asm.select(first, none, fade);
        asm.masked_store(fade, fade_at, rows);
        self.each_row(asm, group, |item, asm, row, scores| {
            let shift = item.state(asm, State::Shift, row);
            let shift = asm.load(shift, Ty::F32, 4);
            item.powers(asm, scores, shift, keys)
        });
        let sum = self.across(asm, |asm, rows| tree(asm, ReduceFn::Add, F32, rows));
        let total = asm.load(total_at, ty, 4);
        let total = asm.fma(total, fade, sum);
        asm.masked_store(total, total_at, rows);
    }

    /// Turns the group's scores into x; partial[i] = lane-wise maxima of row i.
    fn apply_to_rows(&self, asm: &mut Mlir, group: Group, keys: Keys) {
        let points = |item: &Self, asm: &mut Mlir, row: Val| {
            let mut point = item.row_point(asm, row);
            hoist(item.cx, asm, &mut point, item.plan.x, 1 << item.plan.j);
            point
        };
        if !self.at_once {
            return self.each_row(asm, group, |item, asm, row, scores| {
                let point = points(item, asm, row);
                item.apply(asm, &point, scores, keys)
            });
        }
        if self.whole_panels() {
            return;
        }
        let zero = asm.i64(0);
        let whole = whole_steps(asm, zero, keys.n, WIDTH);
        let some = asm.cmpi(CmpI::Slt, whole, keys.n);
        asm.if_then(some, |asm| {
            self.each_row(asm, group, |item, asm, row, scores| {
                let point = points(item, asm, row);
                let i = asm.bin(Bin::SubI, row, group.row);
                let largest = item.partial(asm, i);
                let largest = asm.load(largest, Ty::new(Elem::F32, item.cx.lanes()), 32);
                item.apply_rest(asm, &point, scores, keys, whole, largest)
            });
        });
    }

    /// Returns x of the scores of some rows by `vectors` vectors of keys from `first` of the block on, all of which
    /// exist; updates partial[i].
    pub fn apply_at_once(&self, asm: &mut Mlir, keys: Keys, first: Val, vectors: i64, scores: Vec<Val>) -> Vec<Val> {
        let (cx, plan) = (self.cx, self.plan);
        let ty = Ty::new(Elem::F32, cx.lanes());
        let mut points = vec![];
        for v in 0..vectors {
            let mut point = self.point.clone();
            let j = plus(asm, first, v * ty.lanes as i64);
            point.vars[plan.j] = Some(asm.bin(Bin::AddI, keys.j0, j));
            (point.along, point.lanes) = (plan.j, ty.lanes);
            // The loads of x are the same for all rows.
            for k in plan.loads_of_x(cx.def) {
                point.eval(cx, asm, k);
            }
            points.push(point);
        }
        let mut out = vec![];
        for (i, scores) in scores.chunks(vectors as usize).enumerate() {
            let i = asm.i64(i as i64);
            let partial = self.partial(asm, i);
            let mut largest = asm.load(partial, ty, 32);
            for (point, score) in points.iter().zip(scores) {
                let mut point = point.clone();
                point.values[plan.score] = Some(*score);
                let x = point.eval(cx, asm, plan.x);
                largest = larger(asm, x, largest);
                out.push(x);
            }
            asm.store(largest, partial, 32);
        }
        out
    }

    /// partial[i] = -inf for all rows of a group, before the scores of a block are computed.
    pub fn clear_largest(&self, asm: &mut Mlir, group: Group) {
        let least = asm.float(f64::NEG_INFINITY, Ty::new(Elem::F32, self.cx.lanes()));
        let (zero, one) = (asm.i64(0), asm.i64(1));
        asm.for_loop((zero, group.n, one), &[], |asm, i, _| {
            let partial = self.partial(asm, i);
            asm.store(least, partial, 32);
            vec![]
        });
    }

    /// Address of partial[i], the lanes of row i of a group.
    fn partial(&self, asm: &mut Mlir, i: Val) -> Val {
        let zero = asm.i64(0);
        at(asm, self.partial, i, SQUARE_MAX, zero)
    }

    /// Whether all panels of all blocks are full.
    fn whole_panels(&self) -> bool {
        let extent = self.cx.def.extent(self.plan.j).as_const();
        extent.is_some_and(|n| n % WIDTH == 0) && matches!(self.plan.walked, Walked::All)
    }

    /// partial[i] = result of `body` for row i of the group and its scores.
    fn each_row(&self, asm: &mut Mlir, group: Group, body: impl Fn(&Self, &mut Mlir, Val, Val) -> Val) {
        let (zero, one) = (asm.i64(0), asm.i64(1));
        asm.for_loop((zero, group.n, one), &[], |asm, i, _| {
            let row = asm.bin(Bin::AddI, group.row, i);
            let scores = at(asm, self.scores, i, SCORE_STEP, zero);
            let value = body(self, asm, row, scores);
            let to = self.partial(asm, i);
            asm.store(value, to, 32);
            vec![]
        });
    }

    /// Reduces the lanes of each row of `partial`: lane i of the result belongs to row i. Other lanes are arbitrary.
    fn across(&self, asm: &mut Mlir, combined: impl Fn(&mut Mlir, Vec<Val>) -> Val) -> Val {
        let ty = Ty::new(Elem::F32, self.cx.lanes());
        let mut rows = vec![];
        for i in 0..ty.lanes as i64 {
            let row = asm.i64(i * SQUARE_MAX);
            let address = asm.element(self.partial, row, Elem::F32);
            rows.push(asm.load(address, ty, 32));
        }
        transpose(asm, &mut rows);
        combined(asm, rows)
    }

    fn row_mask(&self, asm: &mut Mlir, group: Group) -> Val {
        let lanes = self.cx.lanes();
        let (n, iota) = (asm.widen(group.n, lanes), asm.iota(lanes));
        asm.cmpi(CmpI::Slt, iota, n)
    }

    /// Returns the shifts for the maxima of the rows. If a shift depends on more than the maximum, the shifts are
    /// computed row by row and pass through memory.
    fn shifts(&self, asm: &mut Mlir, group: Group, max: Val, max_at: Val, shift_at: Val) -> Val {
        if let Some(shift) = self.shift_of(asm, self.plan.shift, max) {
            return shift;
        }
        let (zero, one) = (asm.i64(0), asm.i64(1));
        asm.for_loop((zero, group.n, one), &[], |asm, i, _| {
            let row = asm.bin(Bin::AddI, group.row, i);
            let from = asm.element(max_at, i, Elem::F32);
            let mut point = self.row_point(asm, row);
            point.values[self.plan.max] = Some(asm.load(from, Ty::F32, 4));
            let shift = point.eval(self.cx, asm, self.plan.shift);
            let to = asm.element(shift_at, i, Elem::F32);
            asm.store(shift, to, 4);
            vec![]
        });
        asm.load(shift_at, max.ty, 4)
    }

    /// Returns the shift for a maximum, scalar or vector, if the shift is computed from the maximum and constants
    /// only.
    pub fn shift_of(&self, asm: &mut Mlir, k: usize, max: Val) -> Option<Val> {
        if k == self.plan.max {
            return Some(max);
        }
        let step = &self.cx.def.body[k];
        match &step.op {
            Op::Const(bits) if step.dtype == F32 => Some(asm.float(f64::from_bits(*bits), max.ty)),
            Op::Apply { f, args } if args.iter().all(|a| self.cx.def.body[*a].dtype == F32) => {
                let args: Vec<Val> = args.iter().map(|a| self.shift_of(asm, *a, max)).collect::<Option<_>>()?;
                (step.dtype == F32).then(|| scalar::apply(asm, *f, &args, F32))
            }
            Op::Const(_)
            | Op::Apply { .. }
            | Op::Load { .. }
            | Op::Index(_)
            | Op::Convert(_, _)
            | Op::Reduce { .. } => None,
        }
    }

    /// scores[j] = x of score j, and -inf for keys that pad a panel; returns the lane-wise maxima.
    fn apply(&self, asm: &mut Mlir, point: &Point, scores: Val, keys: Keys) -> Val {
        let (cx, plan) = (self.cx, self.plan);
        let ty = Ty::new(Elem::F32, cx.lanes());
        let lanes = ty.lanes as i64;
        let (zero, width) = (asm.i64(0), asm.i64(WIDTH));
        let least = asm.float(f64::NEG_INFINITY, ty);
        let whole = whole_steps(asm, zero, keys.n, WIDTH);
        let none = vec![least; (WIDTH / lanes) as usize];
        let largest = asm.for_loop((zero, whole, width), &none, |asm, first, largest| {
            let mut next = vec![];
            for (v, before) in largest.iter().enumerate() {
                let at = plus(asm, first, v as i64 * lanes);
                let address = asm.element(scores, at, Elem::F32);
                let mut point = point.clone();
                point.vars[plan.j] = Some(asm.bin(Bin::AddI, keys.j0, at));
                (point.along, point.lanes) = (plan.j, ty.lanes);
                let x = self.x_at(asm, point, address);
                if plan.x != plan.score {
                    asm.store(x, address, 32);
                }
                next.push(larger(asm, x, *before));
            }
            next
        });
        let largest = largest_of(asm, largest);
        if self.whole_panels() {
            return largest;
        }
        let some = asm.cmpi(CmpI::Slt, whole, keys.n);
        let rest = |asm: &mut Mlir| vec![self.apply_rest(asm, point, scores, keys, whole, largest)];
        asm.if_else(some, &[ty], rest, |_| vec![largest])[0]
    }

    /// As `apply`, for a last panel that is not full.
    fn apply_rest(&self, asm: &mut Mlir, point: &Point, scores: Val, keys: Keys, first: Val, largest: Val) -> Val {
        let (cx, plan, ty) = (self.cx, self.plan, largest.ty);
        let lanes = ty.lanes as i64;
        let (one, step, end) = (asm.i64(1), asm.i64(lanes), plus(asm, first, WIDTH));
        let least = asm.float(f64::NEG_INFINITY, ty);
        if has_masks(cx, vec![plan.x]) {
            let behind = round_up(asm, keys.n, lanes);
            asm.for_loop((behind, end, step), &[], |asm, at, _| {
                let address = asm.element(scores, at, Elem::F32);
                asm.store(least, address, 32);
                vec![]
            });
            return asm.for_loop((first, keys.n, step), &[largest], |asm, at, largest| {
                let address = asm.element(scores, at, Elem::F32);
                let left = asm.bin(Bin::SubI, keys.n, at);
                let j = asm.bin(Bin::AddI, keys.j0, at);
                let point = point.masked_lanes(asm, plan.j, j, left, ty.lanes);
                let mask = point.mask.expect("a mask");
                let x = self.x_at(asm, point, address);
                let x = asm.select(mask, x, least);
                asm.store(x, address, 32);
                vec![larger(asm, x, largest[0])]
            })[0];
        }
        asm.for_loop((first, keys.n, one), &[], |asm, at, _| {
            let address = asm.element(scores, at, Elem::F32);
            let mut point = point.clone();
            point.vars[plan.j] = Some(asm.bin(Bin::AddI, keys.j0, at));
            let x = self.x_at(asm, point, address);
            asm.store(x, address, 4);
            vec![]
        });
        let least = asm.float(f64::NEG_INFINITY, Ty::F32);
        asm.for_loop((keys.n, end, one), &[], |asm, at, _| {
            let address = asm.element(scores, at, Elem::F32);
            asm.store(least, address, 4);
            vec![]
        });
        asm.for_loop((first, end, step), &[largest], |asm, at, largest| {
            let address = asm.element(scores, at, Elem::F32);
            let x = asm.load(address, ty, 32);
            vec![larger(asm, x, largest[0])]
        })[0]
    }

    /// Computes x = g(score) for the scores at an address.
    fn x_at(&self, asm: &mut Mlir, mut point: Point, address: Val) -> Val {
        let ty = Ty::new(Elem::F32, point.lanes);
        point.values[self.plan.score] = Some(asm.load(address, ty, if ty.lanes == 1 { 4 } else { 32 }));
        let x = point.eval(self.cx, asm, self.plan.x);
        asm.widen(x, ty.lanes)
    }

    /// scores[j] = exp(scores[j] - shift); returns the lane-wise sums.
    fn powers(&self, asm: &mut Mlir, scores: Val, shift: Val, keys: Keys) -> Val {
        let ty = Ty::new(Elem::F32, self.cx.lanes());
        let (zero, width, end) = (asm.i64(0), asm.i64(WIDTH), round_up(asm, keys.n, WIDTH));
        let shift = asm.widen(shift, ty.lanes);
        let none = vec![asm.zero(ty); (WIDTH / ty.lanes as i64) as usize];
        let sums = asm.for_loop((zero, end, width), &none, |asm, first, sums| {
            let mut next = vec![];
            for (v, before) in sums.iter().enumerate() {
                let at = plus(asm, first, (v as u32 * ty.lanes) as i64);
                let address = asm.element(scores, at, Elem::F32);
                let x = asm.load(address, ty, 32);
                let below = asm.bin(Bin::SubF, x, shift);
                // If the maximum is subtracted, no difference is above 0.
                let below_zero = self.plan.shift == self.plan.max;
                let power = if below_zero { math::exp_below_zero(asm, below) } else { math::exp(asm, below) };
                if self.plan.narrow {
                    // The rounded exponentials are packed in place: a word overwrites scores that have already been
                    // read.
                    let rounded = scalar::convert(asm, power, F32, DType::BF16);
                    self.store(asm, rounded, (scores, at));
                } else {
                    asm.store(power, address, 32);
                }
                next.push(asm.bin(Bin::AddF, *before, power));
            }
            next
        });
        tree(asm, ReduceFn::Add, F32, sums)
    }
}
