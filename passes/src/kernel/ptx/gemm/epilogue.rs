//! Sums in registers  =>  results: the statements behind the reduction, on pairs of neighbouring columns

use super::Block;
use super::copy::{log2, shift};
use super::mma::Sums;
use super::plan::Gemm;
use crate::kernel::asm::{Asm, Elem, Ty, Val};
use crate::kernel::contract::epilogue;
use crate::kernel::def::*;
use crate::kernel::eval::Point;
use crate::kernel::scalar;

impl Block<'_> {
    /// `point` has its batch variables; the warp is at (`warp_m`, `warp_n`) of the block, which begins at (`m0`, `n0`).
    pub fn epilogue(&self, asm: &mut Asm, point: &Point, sums: &Sums, (m0, n0): (Val, Val), warp: (Val, Val)) {
        let (cx, gemm) = (self.cx, self.gemm);
        let lane = asm.special("%laneid");
        let (two, three) = (asm.int(2, Ty::I32), asm.int(3, Ty::I32));
        let group = asm.bin("arith.shrui", lane, two);
        let thread = asm.bin("arith.andi", lane, three);
        let row = shift(asm, "arith.shli", warp.0, log2(gemm.shape.warp_m()));
        let row = asm.bin("arith.addi", row, group);
        let column = shift(asm, "arith.shli", warp.1, log2(gemm.shape.warp_n()));
        let pair = shift(asm, "arith.shli", thread, 1);
        let column = asm.bin("arith.addi", column, pair);
        let (row, column) = (from(asm, m0, row), from(asm, n0, column));
        let (m, n) = (cx.extent(asm, gemm.m), cx.extent(asm, gemm.n));
        let whole_rows = Gemm::is_whole(cx.def, gemm.m, gemm.shape.m);
        let whole_columns = Gemm::is_whole(cx.def, gemm.n, gemm.shape.n);
        let even = Gemm::is_whole(cx.def, gemm.n, 2);
        for j in 0..sums.of[0].len() {
            let column = plus(asm, column, j as i64 * 8);
            let some = (!whole_columns).then(|| asm.cmpi("slt", column, n));
            when(asm, some, |asm| {
                let point = self.columns_point(asm, point, column, (!even).then_some(n));
                for (i, sums) in sums.of.iter().enumerate() {
                    for half in 0..2 {
                        let row = plus(asm, row, i as i64 * 16 + half * 8);
                        let there = (!whole_rows).then(|| asm.cmpi("slt", row, m));
                        let first = half as u32 * 2;
                        let sum = asm.shuffle(sums[j], sums[j], &[first, first + 1]);
                        when(asm, there, |asm| self.finish(asm, point.clone(), row, sum));
                    }
                }
            });
        }
    }

    /// Two columns, with everything evaluated that does not move with the rows.
    fn columns_point(&self, asm: &mut Asm, point: &Point, column: Val, n: Option<Val>) -> Point {
        let (cx, gemm) = (self.cx, self.gemm);
        let mut point = point.clone();
        point.vars[gemm.n] = Some(column);
        (point.along, point.lanes, point.multiple) = (gemm.n, 2, 2);
        point.mask = n.map(|n| {
            let (columns, iota, n) = (asm.widen(column, 2), asm.iota(2), asm.widen(n, 2));
            let columns = asm.bin("arith.addi", columns, iota);
            asm.cmpi("slt", columns, n)
        });
        let mut after: Vec<bool> = vec![false; cx.def.body.len()];
        for k in epilogue(cx.def, gemm.reduce) {
            after[k] = cx.def.operands(k).iter().any(|a| after[*a] || *a == gemm.reduce);
            let moves = cx.deps[k] >> gemm.m & 1 == 1;
            if !after[k] && !moves && !matches!(cx.def.body[k].op, Op::Const(_)) {
                point.eval(cx, asm, k);
            }
        }
        point
    }

    fn finish(&self, asm: &mut Asm, mut point: Point, row: Val, sum: Val) {
        let (cx, gemm) = (self.cx, self.gemm);
        point.vars[gemm.m] = Some(row);
        point.values[gemm.reduce] = Some(scalar::rounded(asm, sum, gemm.dtype));
        for write in &cx.def.stores {
            point.store(cx, asm, write);
        }
    }
}

fn when(asm: &mut Asm, condition: Option<Val>, then: impl FnOnce(&mut Asm)) {
    match condition {
        None => then(asm),
        Some(condition) => asm.if_then(condition, then),
    }
}

fn from(asm: &mut Asm, first: Val, by: Val) -> Val {
    let by = asm.cast("arith.extui", by, Elem::I64);
    asm.bin("arith.addi", first, by)
}

fn plus(asm: &mut Asm, v: Val, by: i64) -> Val {
    if by == 0 {
        return v;
    }
    let by = asm.i64(by);
    asm.bin("arith.addi", v, by)
}
