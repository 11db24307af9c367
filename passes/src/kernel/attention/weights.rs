//! scores => x = g(score) => exp(x - shift), and how much earlier blocks of keys fade

use super::plan::{SCORE_STEP, WIDTH};
use super::{Group, Item, Keys, State, at, has_masks, hoist, plus, round_up};
use crate::kernel::asm::{Asm, Elem, Ty, Val};
use crate::kernel::eval::Point;
use crate::kernel::map::whole_steps;
use crate::kernel::math;
use crate::kernel::normalise::{across_lanes, combine, tree};
use sardonyx_dialects::scalar::ReduceFn;
use sardonyx_runtime::DType;

impl Item<'_> {
    /// The group's scores become weights; its state goes on by one block.
    pub fn weigh(&self, asm: &mut Asm, group: Group, keys: Keys) {
        let (cx, plan) = (self.cx, self.plan);
        let (zero, one, none) = (asm.i64(0), asm.i64(1), asm.zero(Ty::F32));
        let least = asm.float(f64::NEG_INFINITY, Ty::F32);
        asm.for_loop((zero, group.n, one), &[], |asm, i, _| {
            let row = asm.bin("arith.addi", group.row, i);
            let scores = at(asm, self.scores, i, SCORE_STEP, zero);
            let mut point = self.row_point(asm, row);
            hoist(cx, asm, &mut point, plan.x, 1 << plan.j);
            let largest = self.apply(asm, &point, scores, keys);
            let before = self.state(asm, State::Max, row);
            let max = combine(asm, ReduceFn::Max, DType::F32, before, largest);
            // Where all keys so far are hidden nothing may be taken from -inf: a later one may not be.
            let hidden = asm.cmpf("oeq", max, least);
            let shift = self.shift(asm, &point, max);
            let shift = asm.select(hidden, none, shift);
            let fade = self.fade(asm, row, before, shift);
            let sum = self.powers(asm, scores, shift, keys);
            let total = self.state(asm, State::Total, row);
            let total = asm.fma(total, fade, sum);
            for (what, value) in [(State::Max, max), (State::Shift, shift), (State::Fade, fade), (State::Total, total)]
            {
                self.set_state(asm, what, row, value);
            }
            vec![]
        });
    }

    /// exp(shift before - shift); 1 where they are the same, infinite ones too, and 0 where nothing was seen before.
    fn fade(&self, asm: &mut Asm, row: Val, max_before: Val, shift: Val) -> Val {
        let (none, one) = (asm.zero(Ty::F32), asm.float(1.0, Ty::F32));
        let least = asm.float(f64::NEG_INFINITY, Ty::F32);
        let before = self.state(asm, State::Shift, row);
        let below = asm.bin("arith.subf", before, shift);
        let fade = math::exp(asm, below);
        let same = asm.cmpf("oeq", before, shift);
        let fade = asm.select(same, one, fade);
        let first = asm.cmpf("oeq", max_before, least);
        asm.select(first, none, fade)
    }

    /// scores[j] = x of it, -inf for keys that fill up a panel; gives the largest one.
    fn apply(&self, asm: &mut Asm, point: &Point, scores: Val, keys: Keys) -> Val {
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
                point.vars[plan.j] = Some(asm.bin("arith.addi", keys.j0, at));
                (point.along, point.lanes) = (plan.j, ty.lanes);
                let x = self.x_at(asm, point, address);
                if plan.x != plan.score {
                    asm.store(x, address, 32);
                }
                next.push(combine(asm, ReduceFn::Max, DType::F32, *before, x));
            }
            next
        });
        let largest = if cx.def.extent(plan.j).as_const().is_some_and(|n| n % WIDTH == 0) {
            largest
        } else {
            let some = asm.cmpi("slt", whole, keys.n);
            let tys = vec![ty; largest.len()];
            let rest = |asm: &mut Asm| self.apply_rest(asm, point, scores, keys, whole, &largest);
            asm.if_else(some, &tys, rest, |_| largest.clone())
        };
        let largest = tree(asm, ReduceFn::Max, DType::F32, largest);
        across_lanes(asm, ReduceFn::Max, DType::F32, largest)
    }

    /// The same for a last panel that is not whole.
    fn apply_rest(
        &self,
        asm: &mut Asm,
        point: &Point,
        scores: Val,
        keys: Keys,
        first: Val,
        largest: &[Val],
    ) -> Vec<Val> {
        let (cx, plan) = (self.cx, self.plan);
        let ty = largest[0].ty;
        let masks = has_masks(cx, vec![plan.x]);
        if !masks {
            let (one, least, end) = (asm.i64(1), asm.float(f64::NEG_INFINITY, Ty::F32), plus(asm, first, WIDTH));
            asm.for_loop((first, keys.n, one), &[], |asm, at, _| {
                let address = asm.element(scores, at, Elem::F32);
                let mut point = point.clone();
                point.vars[plan.j] = Some(asm.bin("arith.addi", keys.j0, at));
                let x = self.x_at(asm, point, address);
                asm.store(x, address, 4);
                vec![]
            });
            asm.for_loop((keys.n, end, one), &[], |asm, at, _| {
                let address = asm.element(scores, at, Elem::F32);
                asm.store(least, address, 4);
                vec![]
            });
        }
        let mut next = vec![];
        for (v, before) in largest.iter().enumerate() {
            let at = plus(asm, first, (v as u32 * ty.lanes) as i64);
            let address = asm.element(scores, at, Elem::F32);
            let x = if masks {
                let left = asm.bin("arith.subi", keys.n, at);
                let j = asm.bin("arith.addi", keys.j0, at);
                let point = point.masked_lanes(asm, plan.j, j, left, ty.lanes);
                let (mask, least) = (point.mask.expect("a mask"), asm.float(f64::NEG_INFINITY, ty));
                let x = self.x_at(asm, point, address);
                let x = asm.select(mask, x, least);
                asm.store(x, address, 32);
                x
            } else {
                asm.load(address, ty, 32)
            };
            next.push(combine(asm, ReduceFn::Max, DType::F32, *before, x));
        }
        next
    }

    /// x of the scores at an address.
    fn x_at(&self, asm: &mut Asm, mut point: Point, address: Val) -> Val {
        let ty = Ty::new(Elem::F32, point.lanes);
        point.values[self.plan.score] = Some(asm.load(address, ty, if ty.lanes == 1 { 4 } else { 32 }));
        let x = point.eval(self.cx, asm, self.plan.x);
        asm.widen(x, ty.lanes)
    }

    /// scores[j] = exp(scores[j] - shift); gives the sum.
    fn powers(&self, asm: &mut Asm, scores: Val, shift: Val, keys: Keys) -> Val {
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
                let below = asm.bin("arith.subf", x, shift);
                let power = math::exp(asm, below);
                asm.store(power, address, 32);
                next.push(asm.bin("arith.addf", *before, power));
            }
            next
        });
        let sum = tree(asm, ReduceFn::Add, DType::F32, sums);
        across_lanes(asm, ReduceFn::Add, DType::F32, sum)
    }
}
