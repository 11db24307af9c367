//! b[k, n] at any strides  =>  scratch[k][32]: a panel of B with an unsuitable layout is copied once

use super::block::AHEAD;
use super::plan::WIDTH;
use super::stored::load_as_f32;
use super::{Item, plus};
use crate::asm::{Asm, Bin, CmpI, Elem, Mlir, Ty, Val};
use crate::cx::whole_steps;
use crate::scalar;

impl Item<'_> {
    /// to[k][j] = source[k, j] for the columns that exist; the other columns are arbitrary.
    pub fn copy_panel(&self, asm: &mut Mlir, source: Val, to: Val) {
        let (cx, plan) = (self.cx, self.plan);
        let (n_k, n_n) = (cx.extent(asm, plan.k), cx.extent(asm, plan.n));
        let left = asm.bin(Bin::SubI, n_n, self.n0);
        let (zero, width) = (asm.i64(0), asm.i64(WIDTH));
        if !plan.b().stride(plan.k).is(1) {
            return self.copy_elements(asm, source, to, (n_k, left));
        }
        let lanes = cx.lanes() as i64;
        let step = asm.i64(lanes);
        asm.for_loop((zero, width, step), &[], |asm, first, _| {
            let columns = self.columns(asm, first, left);
            let whole = whole_steps(asm, zero, n_k, lanes);
            asm.for_loop((zero, whole, step), &[], |asm, k, _| {
                self.copy_square(asm, (source, &columns), to, (k, first), None);
                vec![]
            });
            if cx.def.extent(plan.k).as_const().is_none_or(|n| n % lanes != 0) {
                let rest = asm.bin(Bin::SubI, n_k, whole);
                let some = asm.cmpi(CmpI::Ne, rest, zero);
                asm.if_then(some, |asm| self.copy_square(asm, (source, &columns), to, (whole, first), Some(rest)));
            }
            vec![]
        });
    }

    /// to[k][j] = the panel's elements widened to f32, for all of its rows.
    pub fn widen_panel(&self, asm: &mut Mlir, source: Val, to: Val) {
        let (cx, plan) = (self.cx, self.plan);
        let dtype = plan.b_stored(cx.def);
        let (unit, lanes) = (scalar::stored(dtype), cx.lanes());
        let bytes = lanes * unit.bits() / 8;
        let n = asm.i64(plan.panel_rows(cx.def) * WIDTH);
        let (zero, step) = (asm.i64(0), asm.i64(lanes as i64));
        asm.for_loop((zero, n, step), &[], |asm, at, _| {
            let from = asm.element(source, at, unit);
            let ahead = asm.i64(AHEAD);
            let ahead = asm.element(from, ahead, Elem::I8);
            asm.prefetch(ahead);
            let wide = load_as_f32(asm, dtype, from, lanes, None, bytes.min(32));
            let to = asm.element(to, at, Elem::F32);
            asm.store(wide, to, 32);
            vec![]
        });
    }

    /// Offsets of consecutive columns from `first` on, one per lane. Columns that do not exist are replaced by the last
    /// one: an address outside the buffer would be slow even under a mask.
    fn columns(&self, asm: &mut Mlir, first: Val, left: Val) -> Vec<Val> {
        let n_step = self.cx.size(asm, self.plan.b().stride(self.plan.n));
        let one = asm.i64(1);
        let last = asm.bin(Bin::SubI, left, one);
        let column = |j: u32| {
            let column = plus(asm, first, j as i64);
            let column = asm.bin(Bin::MinSI, column, last);
            asm.bin(Bin::MulI, column, n_step)
        };
        (0..self.cx.lanes()).map(column).collect()
    }

    /// Transposes a square block in registers, from row `k` on; the elements of a column are contiguous in memory. If
    /// `rest` is given, only that many rows exist and the others become 0.
    fn copy_square(
        &self,
        asm: &mut Mlir,
        (source, columns): (Val, &[Val]),
        to: Val,
        (k, first): (Val, Val),
        rest: Option<Val>,
    ) {
        let lanes = self.cx.lanes();
        let dtype = self.cx.def.reads[self.plan.b().buffer].dtype;
        let unit = scalar::stored(dtype);
        let mask = rest.map(|rest| {
            let (rest, iota) = (asm.widen(rest, lanes), asm.iota(lanes));
            asm.cmpi(CmpI::Slt, iota, rest)
        });
        let from = asm.element(source, k, unit);
        let mut rows = vec![];
        for column in columns {
            let address = asm.element(from, *column, unit);
            rows.push(load_as_f32(asm, dtype, address, lanes, mask, unit.bits() / 8));
        }
        transpose(asm, &mut rows);
        let width = asm.i64(WIDTH);
        let at = asm.bin(Bin::MulI, k, width);
        let at = asm.bin(Bin::AddI, at, first);
        let to = asm.element(to, at, Elem::F32);
        for (i, row) in rows.into_iter().enumerate() {
            let at = asm.i64(i as i64 * WIDTH);
            let address = asm.element(to, at, Elem::F32);
            asm.store(row, address, 32);
        }
    }

    fn copy_elements(&self, asm: &mut Mlir, source: Val, to: Val, (n_k, left): (Val, Val)) {
        let (cx, plan) = (self.cx, self.plan);
        let [k_step, n_step] = [plan.k, plan.n].map(|v| cx.size(asm, plan.b().stride(v)));
        let dtype = cx.def.reads[plan.b().buffer].dtype;
        let unit = scalar::stored(dtype);
        let (zero, one, width) = (asm.i64(0), asm.i64(1), asm.i64(WIDTH));
        asm.for_loop((zero, width, one), &[], |asm, j, _| {
            let exists = asm.cmpi(CmpI::Slt, j, left);
            let at = asm.bin(Bin::MulI, j, n_step);
            let column = asm.element(source, at, unit);
            let to = asm.element(to, j, Elem::F32);
            asm.for_loop((zero, n_k, one), &[], |asm, k, _| {
                let ty = Ty::new(Elem::F32, 1);
                let v = asm.if_else(
                    exists,
                    &[ty],
                    |asm| {
                        let at = asm.bin(Bin::MulI, k, k_step);
                        let from = asm.element(column, at, unit);
                        vec![load_as_f32(asm, dtype, from, 1, None, unit.bits() / 8)]
                    },
                    |asm| vec![asm.zero(ty)],
                )[0];
                let at = asm.bin(Bin::MulI, k, width);
                let to = asm.element(to, at, Elem::F32);
                asm.store(v, to, 4);
                vec![]
            });
            vec![]
        });
    }
}

/// Transposes a square of vectors: lane i of vector j becomes lane j of vector i, by exchanging halves, quarters and so
/// on.
pub fn transpose(asm: &mut Mlir, rows: &mut [Val]) {
    let n = rows.len() as u32;
    let mut size = n / 2;
    while size > 0 {
        for i in (0..n).filter(|i| i & size == 0) {
            let (a, b) = (rows[i as usize], rows[(i + size) as usize]);
            let low: Vec<u32> = (0..n).map(|l| if l & size == 0 { l } else { n + l - size }).collect();
            let high: Vec<u32> = (0..n).map(|l| if l & size == 0 { l + size } else { n + l }).collect();
            rows[i as usize] = asm.shuffle(a, b, &low);
            rows[(i + size) as usize] = asm.shuffle(a, b, &high);
        }
        size /= 2;
    }
}
