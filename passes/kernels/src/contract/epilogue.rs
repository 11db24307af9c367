//! Accumulators in registers  =>  results: the statements after the reduction, vectorised along the columns

use super::plan::{WIDTH, epilogue};
use super::{Columns, Item, Panel, plus};
use crate::asm::{Asm, Bin, Elem, Mlir, Ty, Val};
use crate::def::Op;
use crate::eval::Point;

impl Item<'_> {
    /// Point whose lanes are the columns from `first` on.
    pub fn columns_at(&self, asm: &mut Mlir, first: Val, lanes: u32, mask: Option<Val>) -> Point {
        let mut point = self.point.clone();
        point.vars[self.plan.n] = Some(asm.bin(Bin::AddI, self.n0, first));
        (point.along, point.lanes, point.mask) = (self.plan.n, lanes, mask);
        point
    }

    /// As `columns_at`, with every epilogue statement evaluated that depends neither on the rows nor on the
    /// accumulators.
    fn columns_point(&self, asm: &mut Mlir, first: Val, lanes: u32, mask: Option<Val>) -> Point {
        let (cx, plan) = (self.cx, self.plan);
        let mut point = self.columns_at(asm, first, lanes, mask);
        let mut after: Vec<bool> = vec![false; cx.def.body.len()];
        for k in epilogue(cx.def, |k| plan.is_sum(k)) {
            after[k] = cx.def.operands(k).iter().any(|a| after[*a] || plan.is_sum(*a));
            let moves = plan.m.is_some_and(|m| cx.deps[k] >> m & 1 == 1);
            if !after[k] && !moves && !matches!(cx.def.body[k].op, Op::Const(_)) {
                point.eval(cx, asm, k);
            }
        }
        point
    }

    fn finish_row(&self, asm: &mut Mlir, mut point: Point, row: Val, sums: &[Val]) {
        let (cx, plan) = (self.cx, self.plan);
        if let Some(m) = plan.m {
            point.vars[m] = Some(asm.bin(Bin::AddI, self.m0, row));
        }
        for (sum, value) in plan.sums.iter().zip(sums) {
            point.values[sum.reduce] = Some(*value);
        }
        for write in &cx.def.stores {
            point.store(cx, asm, write);
        }
    }

    pub fn direct_epilogue(&self, asm: &mut Mlir, row: Val, first: Val, mask: Option<Val>, sums: &[Val]) {
        let point = self.columns_point(asm, first, sums[0].ty.lanes, mask);
        for (i, sum) in sums.iter().enumerate() {
            let row = plus(asm, row, i as i64);
            self.finish_row(asm, point.clone(), row, &[*sum]);
        }
    }

    pub fn tile_epilogue(&self, asm: &mut Mlir, columns: Columns) {
        let lanes = self.cx.lanes();
        let end = match columns {
            Columns::All => asm.i64(WIDTH),
            Columns::Known(n) => asm.i64(n),
            Columns::Some(n) | Columns::Few(n) => n,
        };
        let (zero, one, step, width) = (asm.i64(0), asm.i64(1), asm.i64(lanes as i64), asm.i64(WIDTH));
        asm.for_loop((zero, end, step), &[], |asm, first, _| {
            let mask = self.mask(asm, first, lanes, columns);
            let point = self.columns_point(asm, first, lanes, mask);
            let tile = asm.element(self.tile, first, Elem::F32);
            asm.for_loop((zero, self.rows, one), &[], |asm, row, _| {
                let at = asm.bin(Bin::MulI, row, width);
                let address = asm.element(tile, at, Elem::F32);
                let sum = |i: usize| {
                    let behind = asm.i64(i as i64 * self.plan.tile_bytes(self.cx.def));
                    let address = if i == 0 { address } else { asm.element(address, behind, Elem::I8) };
                    asm.load(address, Ty::new(self.plan.sum(), lanes), 32)
                };
                let sums: Vec<Val> = (0..self.plan.sums.len()).map(sum).collect();
                self.finish_row(asm, point.clone(), row, &sums);
                vec![]
            });
            vec![]
        });
    }
}

impl Panel<'_, '_> {
    /// Stores the accumulators: tile[row][column] = sums.
    pub fn to_tile(&self, asm: &mut Mlir, row: Val, first: Val, sums: &[Val]) {
        let width = asm.i64(WIDTH);
        let start = asm.bin(Bin::MulI, row, width);
        let start = asm.bin(Bin::AddI, start, first);
        let start = asm.element(self.tile, start, Elem::F32);
        let lanes = self.item.cx.lanes();
        for (i, sum) in sums.iter().enumerate() {
            let at = asm.i64(i as i64 * WIDTH);
            let address = asm.element(start, at, Elem::F32);
            // The epilogue reads whole vectors: behind half a vector are zeros, as in a panel.
            let none = asm.zero(sum.ty);
            let whole =
                if sum.ty.lanes == lanes { *sum } else { asm.shuffle(*sum, none, &(0..lanes).collect::<Vec<_>>()) };
            asm.store(whole, address, 32);
        }
    }
}
