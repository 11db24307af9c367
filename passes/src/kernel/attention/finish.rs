//! mixtures and totals of all keys => results: the statements behind the last sum, on lanes that run along e

use super::{Item, State, along, at, has_masks, hoist, is_wide};
use crate::kernel::asm::{Asm, Ty};
use crate::kernel::math;

impl Item<'_> {
    pub fn finish(&self, asm: &mut Asm) {
        let (cx, plan) = (self.cx, self.plan);
        let stored = cx.def.stores.iter();
        let masks = stored.clone().all(|w| is_wide(cx, &cx.def.writes[w.access.buffer]))
            && has_masks(
                cx,
                stored.flat_map(|w| [vec![w.value], crate::kernel::def::access_values(&w.access)].concat()).collect(),
            );
        let (zero, one, n_keys) = (asm.i64(0), asm.i64(1), cx.extent(asm, plan.j));
        let some = asm.cmpi("sgt", n_keys, zero);
        let (none, unit) = (asm.zero(Ty::F32), asm.float(1.0, Ty::F32));
        let least = asm.float(f64::NEG_INFINITY, Ty::F32);
        asm.for_loop((zero, self.rows, one), &[], |asm, row, _| {
            let mut point = self.row_point(asm, row);
            let [max, total] = [State::Max, State::Total].map(|what| self.state(asm, what, row));
            point.values[plan.max] = Some(max);
            // Where every key is hidden: what exp(-inf - shift) is, times nothing.
            let shift = self.shift(asm, &point, max);
            let below = asm.bin("arith.subf", max, shift);
            let power = math::exp(asm, below);
            let hidden = asm.cmpf("oeq", max, least);
            let hidden = asm.bin("arith.andi", hidden, some);
            let power = asm.select(hidden, power, none);
            let total = asm.bin("arith.addf", total, power);
            point.values[plan.total] = Some(total);
            // An empty sum stays 0, whatever its terms would be divided by.
            let divisor = plan.divisor.map(|k| {
                let divisor = point.eval(cx, asm, k);
                asm.select(some, divisor, unit)
            });
            for w in &cx.def.stores {
                hoist(cx, asm, &mut point, w.value, 1 << plan.e);
            }
            along(cx, asm, &point, (plan.e, plan.n_e), masks, |asm, mut point| {
                let e = point.vars[plan.e].expect("inside the loop");
                let address = at(asm, self.mixed, row, plan.mixed_step(), e);
                let ty = Ty::new(crate::kernel::asm::Elem::F32, point.lanes);
                let mixed = asm.load(address, ty, 4);
                let power = asm.widen(power, ty.lanes);
                let mut mixed = asm.bin("arith.addf", mixed, power);
                if let Some(divisor) = divisor {
                    let divisor = asm.widen(divisor, ty.lanes);
                    mixed = asm.bin("arith.divf", mixed, divisor);
                }
                point.values[plan.sum] = Some(mixed);
                for write in &cx.def.stores {
                    point.store(cx, asm, write);
                }
            });
            vec![]
        });
    }
}
