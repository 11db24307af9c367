//! mixtures (weighted sums of values) and totals over all keys => results: the statements after the last reduction,
//! vectorised along e

use super::{Item, State, along, at, has_masks, hoist, is_wide};
use crate::asm::{Asm, Bin, CmpF, CmpI, Elem, Mlir, Ty, Val};
use crate::def::access_values;
use crate::eval::Point;
use crate::math;

impl Item<'_> {
    pub fn finish(&self, asm: &mut Mlir) {
        let (cx, plan) = (self.cx, self.plan);
        let (zero, one) = (asm.i64(0), asm.i64(1));
        let some = asm.cmpi(CmpI::Sgt, self.n_keys, zero);
        let least = asm.float(f64::NEG_INFINITY, Ty::F32);
        let hidden = self.shift_of(asm, plan.shift, least).map(|shift| hidden_power(asm, shift));
        let masks = self.store_masks();
        asm.for_loop((zero, self.rows, one), &[], |asm, row, _| {
            let mut point = self.row_point(asm, row);
            let extra = self.totals(asm, &mut point, row, some, hidden);
            let factor = self.factor(asm, &mut point, some);
            for w in &cx.def.stores {
                hoist(cx, asm, &mut point, w.value, 1 << plan.e);
            }
            along(cx, asm, &point, (plan.e, plan.n_e), masks, |asm, mut point| {
                let e = point.vars[plan.e].expect("inside the loop");
                let address = at(asm, self.mixed, row, plan.mixed_step(), e);
                let ty = Ty::new(Elem::F32, point.lanes);
                let mixed = asm.load(address, ty, 4);
                let extra = asm.widen(extra, ty.lanes);
                let mut mixed = asm.bin(Bin::AddF, mixed, extra);
                if let Some(factor) = factor {
                    let factor = asm.widen(factor, ty.lanes);
                    mixed = asm.bin(Bin::MulF, mixed, factor);
                }
                point.values[plan.quotient.map_or(plan.sum, |q| q.0)] = Some(mixed);
                for write in &cx.def.stores {
                    point.store(cx, asm, write);
                }
            });
            vec![]
        });
    }

    /// Sets a row's maximum and total. Returns exp(-inf - shift) if every key is hidden, else 0. This term is added to
    /// the row's total here and to the row's mixtures by the caller, because the loops over keys replace the shift by 0
    /// if every key is hidden.
    fn totals(&self, asm: &mut Mlir, point: &mut Point, row: Val, some: Val, hidden: Option<Val>) -> Val {
        let plan = self.plan;
        let [max, total] = [State::Max, State::Total].map(|what| {
            let address = self.state(asm, what, row);
            asm.load(address, Ty::F32, 4)
        });
        point.values[plan.max] = Some(max);
        let power = hidden.unwrap_or_else(|| {
            let shift = point.eval(self.cx, asm, plan.shift);
            hidden_power(asm, shift)
        });
        let (none, least) = (asm.zero(Ty::F32), asm.float(f64::NEG_INFINITY, Ty::F32));
        let all = asm.cmpf(CmpF::Oeq, max, least);
        let all = asm.bin(Bin::AndI, all, some);
        let extra = asm.select(all, power, none);
        point.values[plan.total] = Some(asm.bin(Bin::AddF, total, extra));
        extra
    }

    /// Returns the factor by which a row's mixtures are multiplied: the reciprocal of the product of the kernel's
    /// divisors (of the weights and of the sums); `None` if the kernel has no divisor.
    fn factor(&self, asm: &mut Mlir, point: &mut Point, some: Val) -> Option<Val> {
        let unit = asm.float(1.0, Ty::F32);
        let mut divisor = None;
        if let Some(k) = self.plan.divisor {
            let value = point.eval(self.cx, asm, k);
            // An empty sum stays 0, whatever its terms would have been divided by.
            divisor = Some(asm.select(some, value, unit));
        }
        if let Some((_, k)) = self.plan.quotient {
            let value = point.eval(self.cx, asm, k);
            divisor = Some(match divisor {
                None => value,
                Some(d) => asm.bin(Bin::MulF, d, value),
            });
        }
        divisor.map(|d| asm.bin(Bin::DivF, unit, d))
    }

    /// Returns whether the CPU level has masked instructions for the stores and for the loads that these depend on.
    fn store_masks(&self) -> bool {
        let stores = &self.cx.def.stores;
        let needed = stores.iter().flat_map(|w| [vec![w.value], access_values(&w.access)].concat()).collect();
        stores.iter().all(|w| is_wide(self.cx, &self.cx.def.writes[w.access.buffer])) && has_masks(self.cx, needed)
    }
}

/// Returns exp(x - shift) for x = -inf.
fn hidden_power(asm: &mut Mlir, shift: Val) -> Val {
    let least = asm.float(f64::NEG_INFINITY, Ty::F32);
    let below = asm.bin(Bin::SubF, least, shift);
    math::exp(asm, below)
}
