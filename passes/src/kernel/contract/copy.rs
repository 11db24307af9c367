//! b[k, n] at any strides  =>  scratch[k][32]: a panel of B that lies badly is copied once

use super::Item;
use super::plan::WIDTH;
use crate::kernel::asm::{Asm, Elem, Ty, Val};
use crate::kernel::map::whole_steps;

impl Item<'_> {
    /// scratch[k][j] = source[k, j] for the columns that exist, else 0.
    pub fn copy_panel(&self, asm: &mut Asm, source: Val) {
        let (cx, plan) = (self.cx, self.plan);
        let n_step = cx.size(asm, plan.b.stride(plan.n));
        let lanes = cx.variant.lanes() as i64;
        let (zero, width, step) = (asm.i64(0), asm.i64(WIDTH), asm.i64(lanes));
        let (n_k, n_n) = (cx.extent(asm, plan.k), cx.extent(asm, plan.n));
        let left = asm.bin("arith.subi", n_n, self.n0);
        asm.for_loop((zero, width, step), &[], |asm, first, _| {
            let behind = asm.bin("arith.addi", first, step);
            let mut from = zero;
            if plan.b.stride(plan.k).is(1) {
                let whole = asm.cmpi("sle", behind, left);
                let n_whole = whole_steps(asm, zero, n_k, lanes);
                from = asm.select(whole, n_whole, zero);
                let at = asm.bin("arith.muli", first, n_step);
                let source = asm.element(source, at, Elem::F32);
                let to = asm.element(cx.scratch, first, Elem::F32);
                asm.for_loop((zero, from, step), &[], |asm, k, _| {
                    self.copy_square(asm, source, to, k, n_step);
                    vec![]
                });
            }
            self.copy_elements(asm, source, (first, behind), (from, n_k), left);
            vec![]
        });
    }

    /// As many rows as columns, transposed in registers: lanes of a column are neighbours in memory.
    fn copy_square(&self, asm: &mut Asm, source: Val, to: Val, k: Val, n_step: Val) {
        let lanes = self.cx.variant.lanes();
        let from = asm.element(source, k, Elem::F32);
        let mut rows = vec![];
        for j in 0..lanes {
            let j = asm.i64(j as i64);
            let at = asm.bin("arith.muli", j, n_step);
            let address = asm.element(from, at, Elem::F32);
            rows.push(asm.load(address, Ty::new(Elem::F32, lanes), 4));
        }
        transpose(asm, &mut rows);
        let width = asm.i64(WIDTH);
        let at = asm.bin("arith.muli", k, width);
        let to = asm.element(to, at, Elem::F32);
        for (i, row) in rows.into_iter().enumerate() {
            let at = asm.i64(i as i64 * WIDTH);
            let address = asm.element(to, at, Elem::F32);
            asm.store(row, address, 32);
        }
    }

    fn copy_elements(&self, asm: &mut Asm, source: Val, columns: (Val, Val), rows: (Val, Val), left: Val) {
        let (cx, plan) = (self.cx, self.plan);
        let [k_step, n_step] = [plan.k, plan.n].map(|v| cx.size(asm, plan.b.stride(v)));
        let (one, width) = (asm.i64(1), asm.i64(WIDTH));
        asm.for_loop((columns.0, columns.1, one), &[], |asm, j, _| {
            let exists = asm.cmpi("slt", j, left);
            let at = asm.bin("arith.muli", j, n_step);
            let column = asm.element(source, at, Elem::F32);
            let to = asm.element(cx.scratch, j, Elem::F32);
            asm.for_loop((rows.0, rows.1, one), &[], |asm, k, _| {
                let ty = Ty::new(Elem::F32, 1);
                let v = asm.if_else(
                    exists,
                    &[ty],
                    |asm| {
                        let at = asm.bin("arith.muli", k, k_step);
                        let from = asm.element(column, at, Elem::F32);
                        vec![asm.load(from, ty, 4)]
                    },
                    |asm| vec![asm.zero(ty)],
                )[0];
                let at = asm.bin("arith.muli", k, width);
                let to = asm.element(to, at, Elem::F32);
                asm.store(v, to, 4);
                vec![]
            });
            vec![]
        });
    }
}

/// A square of vectors: lane i of vector j becomes lane j of vector i, by exchanging halves, quarters and so on.
fn transpose(asm: &mut Asm, rows: &mut [Val]) {
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
