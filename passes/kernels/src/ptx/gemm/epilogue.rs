//! Accumulators in registers  =>  results: the statements after the reduction, on pairs of adjacent columns

use super::Block;
use super::copy::{log2, shift};
use super::mma::Sums;
use super::plan::Gemm;
use crate::asm::{Asm, Bin, Cast, CmpI, Elem, Ptx, Ty, Val};
use crate::contract::epilogue;
use crate::def::*;
use crate::eval::Point;
use crate::ptx::movement::Launch;
use crate::ptx::pairs::Pairs;
use crate::scalar;

impl Gemm {
    /// Statements of the epilogue that depend neither on the row nor on the sums.
    pub fn per_column(&self, def: &KernelDef, deps: &[VarSet]) -> Vec<usize> {
        let mut after: Vec<bool> = vec![false; def.body.len()];
        let mut shared = vec![];
        for k in epilogue(def, |k| self.sums.contains(&k)) {
            after[k] = def.operands(k).iter().any(|a| after[*a] || self.sums.contains(a));
            if !after[k] && deps[k] >> self.m & 1 == 0 {
                shared.push(k);
            }
        }
        shared
    }

    /// Accesses of the statements after the reduction and of the stores.
    pub fn accesses<'a>(&self, def: &'a KernelDef) -> Vec<&'a Access> {
        let load = |k: usize| match &def.body[k].op {
            Op::Load { access, .. } => Some(access),
            Op::Const(_) | Op::Index(_) | Op::Apply { .. } | Op::Convert(_, _) | Op::Reduce { .. } => None,
        };
        let needed = epilogue(def, |k| self.sums.contains(&k));
        needed.into_iter().filter_map(load).chain(def.stores.iter().map(|w| &w.access)).collect()
    }

    /// Whether a launch accesses every pair of columns as a unit; `None` if that is decided per access.
    pub(in crate::ptx) fn pairs_are_even(&self, launch: &Launch) -> Option<bool> {
        self.pairs(launch.def).are_even(launch)
    }

    fn pairs(&self, def: &KernelDef) -> Pairs {
        Pairs::from_accesses(def, &self.accesses(def), self.n)
    }
}

impl Block<'_> {
    /// Computes and stores a warp's results. `point` has its batch variables; `warp` is its row and column among the
    /// warps of the block, which begins at (`m0`, `n0`).
    pub fn epilogue(&self, asm: &mut Ptx, point: &Point, sums: &Sums, (m0, n0): (Val, Val), warp: (Val, Val)) {
        let gemm = self.gemm;
        let (row, column) = self.first_of_thread(asm, (m0, n0), warp);
        if gemm.factors.is_split() {
            self.repair(asm, point, sums, (row, column));
        }
        gemm.pairs(self.cx.def).choose(self.cx, asm, &|asm, ways| self.columns(asm, point, sums, (row, column), ways));
    }

    /// First row and first column for which a thread has accumulators.
    pub fn first_of_thread(&self, asm: &mut Ptx, (m0, n0): (Val, Val), warp: (Val, Val)) -> (Val, Val) {
        let gemm = self.gemm;
        let lane = asm.special("%laneid");
        let (two, three) = (asm.int(2, Ty::I32), asm.int(3, Ty::I32));
        let group = asm.bin(Bin::ShRUI, lane, two);
        let thread = asm.bin(Bin::AndI, lane, three);
        let row = shift(asm, Bin::ShLI, warp.0, log2(gemm.shape.warp_m()));
        let row = asm.bin(Bin::AddI, row, group);
        let column = shift(asm, Bin::ShLI, warp.1, log2(gemm.warp_columns()));
        let pair = shift(asm, Bin::ShLI, thread, 1);
        let column = asm.bin(Bin::AddI, column, pair);
        (from(asm, m0, row), from(asm, n0, column))
    }

    /// Stores all columns of a thread; `even` if no pair is cut off, `aligned` if all pairs are aligned in memory.
    fn columns(&self, asm: &mut Ptx, point: &Point, sums: &Sums, at: (Val, Val), (even, aligned): (bool, bool)) {
        let (cx, gemm) = (self.cx, self.gemm);
        let (m, n) = (cx.extent(asm, gemm.m), cx.extent(asm, gemm.n));
        let whole_rows = Gemm::is_whole(cx.def, gemm.m, gemm.shape.m);
        let whole_columns = Gemm::is_whole(cx.def, gemm.n, gemm.columns());
        let per_sum = gemm.pairs_of_columns();
        for j in 0..per_sum {
            let column = plus(asm, at.1, j as i64 * 8);
            let some = (!whole_columns).then(|| asm.cmpi(CmpI::Slt, column, n));
            when(asm, some, |asm| {
                let mut point = point.clone();
                point.aligned = aligned;
                let point = self.columns_point(asm, point, column, (!even).then_some(n));
                for (i, sums) in sums.of.iter().enumerate() {
                    for half in 0..2 {
                        let row = plus(asm, at.0, i as i64 * 16 + half * 8);
                        let there = (!whole_rows).then(|| asm.cmpi(CmpI::Slt, row, m));
                        let first = half as u32 * 2;
                        let two = |s: &Val| asm.shuffle(*s, *s, &[first, first + 1]);
                        let sums: Vec<Val> = sums.iter().skip(j).step_by(per_sum).map(two).collect();
                        when(asm, there, |asm| self.finish(asm, point.clone(), row, &sums));
                    }
                }
            });
        }
    }

    /// Point of two columns, with everything evaluated that does not depend on the row.
    fn columns_point(&self, asm: &mut Ptx, mut point: Point, column: Val, n: Option<Val>) -> Point {
        let (cx, gemm) = (self.cx, self.gemm);
        self.along_columns(asm, &mut point, column, n);
        for k in gemm.per_column(cx.def, &cx.deps) {
            if !matches!(cx.def.body[k].op, Op::Const(_)) {
                point.eval(cx, asm, k);
            }
        }
        point
    }

    /// Makes a point run along two columns; if `n` is given, columns from `n` on are masked.
    pub fn along_columns(&self, asm: &mut Ptx, point: &mut Point, column: Val, n: Option<Val>) {
        point.vars[self.gemm.n] = Some(column);
        (point.along, point.lanes, point.multiple) = (self.gemm.n, 2, 2);
        point.mask = n.map(|n| {
            let (columns, iota, n) = (asm.widen(column, 2), asm.iota(2), asm.widen(n, 2));
            let columns = asm.bin(Bin::AddI, columns, iota);
            asm.cmpi(CmpI::Slt, columns, n)
        });
    }

    fn finish(&self, asm: &mut Ptx, mut point: Point, row: Val, sums: &[Val]) {
        let (cx, gemm) = (self.cx, self.gemm);
        point.vars[gemm.m] = Some(row);
        for (k, sum) in gemm.sums.iter().zip(sums) {
            point.values[*k] = Some(scalar::rounded(asm, *sum, cx.def.body[*k].dtype));
        }
        for write in &cx.def.stores {
            point.store(cx, asm, write);
        }
    }
}

pub fn when(asm: &mut Ptx, condition: Option<Val>, then: impl FnOnce(&mut Ptx)) {
    match condition {
        None => then(asm),
        Some(condition) => asm.if_then(condition, then),
    }
}

fn from(asm: &mut Ptx, first: Val, by: Val) -> Val {
    let by = asm.cast(Cast::ExtUI, by, Elem::I64);
    asm.bin(Bin::AddI, first, by)
}

pub fn plus(asm: &mut Ptx, v: Val, by: i64) -> Val {
    if by == 0 {
        return v;
    }
    let by = asm.i64(by);
    asm.bin(Bin::AddI, v, by)
}
