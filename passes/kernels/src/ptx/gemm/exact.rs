//! an accumulator that is NaN  =>  the same reduction recomputed by ordinary arithmetic, without tensor cores
//!
//! An infinity cannot be split into two tf32: the split gives NaN, also for numbers that round to infinity. NaN in an
//! accumulator is rare. It is found by one unordered comparison and one `or` for every two accumulators; these and one
//! branch are the only cost if there is no NaN.

use super::Block;
use super::groups::Groups;
use super::mma::Sums;
use super::operand::Operand;
use crate::asm::{Asm, Bin, Cast, CmpF, CmpI, Elem, Ptx, Ty, Val};
use crate::contract::Fold;
use crate::contract::groups::added;
use crate::eval::Point;
use sardonyx_base::DType;

impl Block<'_> {
    /// Recomputes the accumulators of a thread that are NaN. `at` is the thread's first row and first column.
    pub fn repair(&self, asm: &mut Ptx, point: &Point, sums: &Sums, at: (Val, Val)) {
        // A row of fragments holds the columns of the first contraction, then those of the second if the kernel has
        // two.
        let (columns, n_sums) = (sums.of[0].len() as i64, self.gemm.sums.len() as i64);
        let per_sum = columns / n_sums;
        let all: Vec<Val> = sums
            .of
            .iter()
            .flatten()
            .flat_map(|sum| (0..4).map(|i| (*sum, i)))
            .map(|(sum, i)| asm.extract(sum, i))
            .collect();
        replace_nans(asm, &all, |asm, number| {
            // Each fragment has four elements: two columns of a row, and the same columns of the row eight below.
            let bits = columns.trailing_zeros() as i64;
            let (odd, half) = (part(asm, number, 0, 1, 0), part(asm, number, 1, 1, 3));
            let (j, i) = (part(asm, number, 2, per_sum - 1, 3), part(asm, number, 2 + bits, 15, 4));
            let of = (n_sums > 1).then(|| part(asm, number, 2 + per_sum.trailing_zeros() as i64, n_sums - 1, 0));
            let row = [i, half].into_iter().fold(at.0, |row, by| asm.bin(Bin::AddI, row, by));
            let column = [j, odd].into_iter().fold(at.1, |column, by| asm.bin(Bin::AddI, column, by));
            self.sum_again(asm, point, of, (row, column))
        });
    }

    /// Recomputes one element of the contraction, or of the contraction with index `of` if there are two; 0 if the
    /// element is out of bounds.
    fn sum_again(&self, asm: &mut Ptx, point: &Point, of: Option<Val>, (row, column): (Val, Val)) -> Val {
        let (cx, gemm) = (self.cx, self.gemm);
        let (m, n) = (cx.extent(asm, gemm.m), cx.extent(asm, gemm.n));
        let there = asm.cmpi(CmpI::Slt, row, m);
        let beside = asm.cmpi(CmpI::Slt, column, n);
        let there = asm.bin(Bin::AndI, there, beside);
        let (zero, one) = (asm.i64(0), asm.i64(1));
        let none = asm.zero(Ty::F32);
        let sum = |asm: &mut Ptx| {
            if let Some(groups) = &gemm.groups {
                let mut point = point.clone();
                (point.vars[gemm.m], point.vars[gemm.n]) = (Some(row), Some(column));
                return vec![self.groups_again(asm, &point, groups, of)];
            }
            let k = cx.extent(asm, gemm.k);
            asm.for_loop((zero, k, one), &[none], |asm, at, sum| {
                let mut point = point.clone();
                (point.vars[gemm.m], point.vars[gemm.n], point.vars[gemm.k]) = (Some(row), Some(column), Some(at));
                let a = point.load(cx, asm, &gemm.a.access, None, DType::F32);
                let mut factor = |asm: &mut Ptx, b: &Operand| point.load(cx, asm, &b.access, None, DType::F32);
                let b = match (of, &gemm.b[..]) {
                    (Some(of), [one, other]) => {
                        let zero = asm.i64(0);
                        let first = asm.cmpi(CmpI::Eq, of, zero);
                        let [one, other] = [one, other].map(|b| factor(asm, b));
                        asm.select(first, one, other)
                    }
                    (_, all) => factor(asm, &all[0]),
                };
                vec![asm.fma(a, b, sum[0])]
            })
        };
        asm.if_else(there, &[Ty::F32], sum, |_| vec![none])[0]
    }

    /// Recomputes one element as the sum over all groups of K, of contraction `of` if there are two.
    fn groups_again(&self, asm: &mut Ptx, point: &Point, groups: &Groups, of: Option<Val>) -> Val {
        let total = |asm: &mut Ptx, fold: &Fold| {
            let (zero, count, one, none) = (asm.i64(0), asm.i64(groups.count), asm.i64(1), asm.zero(Ty::F32));
            asm.for_loop((zero, count, one), &[none], |asm, group, total| {
                let mut point = point.clone();
                point.vars[groups.var] = Some(group);
                vec![added(self.cx, asm, &mut point, fold.value, total[0])]
            })
        };
        let (Some(of), [one, other]) = (of, &groups.folds[..]) else { return total(asm, &groups.folds[0])[0] };
        let zero = asm.i64(0);
        let first = asm.cmpi(CmpI::Eq, of, zero);
        asm.if_else(first, &[Ty::F32], |asm| total(asm, one), |asm| total(asm, other))[0]
    }
}

/// Replaces each NaN in a thread's registers by the result of `again`, which gets the register's index in `all`.
pub fn replace_nans(asm: &mut Ptx, all: &[Val], again: impl FnOnce(&mut Ptx, Val) -> Val) {
    let mut some: Option<Val> = None;
    for pair in all.chunks(2) {
        let nan = asm.cmpf(CmpF::Uno, pair[0], pair[pair.len() - 1]);
        some = Some(some.map_or(nan, |some| asm.bin(Bin::OrI, some, nan)));
    }
    let some = some.expect("a thread has sums");
    asm.if_then(some, |asm| {
        let (zero, n, one) = (asm.int(0, Ty::I32), asm.int(all.len() as i64, Ty::I32), asm.int(1, Ty::I32));
        asm.for_loop((zero, n, one), &[], |asm, number, _| {
            let value = asm.register(Ty::F32);
            let nothing = asm.zero(Ty::F32);
            asm.set(value, nothing);
            for (i, sum) in all.iter().enumerate() {
                copy_where(asm, number, i, value, *sum);
            }
            let nan = asm.cmpf(CmpF::Uno, value, value);
            asm.if_then(nan, |asm| {
                let again = again(asm, number);
                for (i, sum) in all.iter().enumerate() {
                    copy_where(asm, number, i, *sum, again);
                }
            });
            vec![]
        });
    });
}

/// Returns `((number >> right) & mask) << left` as an index.
pub fn part(asm: &mut Ptx, number: Val, right: i64, mask: i64, left: i64) -> Val {
    let (right, mask, left) = (asm.int(right, Ty::I32), asm.int(mask, Ty::I32), asm.int(left, Ty::I32));
    let v = asm.bin(Bin::ShRUI, number, right);
    let v = asm.bin(Bin::AndI, v, mask);
    let v = asm.bin(Bin::ShLI, v, left);
    asm.cast(Cast::ExtUI, v, Elem::I64)
}

/// Emits `to = from`, executed only if `number` is `i`.
fn copy_where(asm: &mut Ptx, number: Val, i: usize, to: Val, from: Val) {
    let i = asm.int(i as i64, Ty::I32);
    let here = asm.cmpi(CmpI::Eq, number, i);
    let line = format!("@{} mov.f32 {}, {};", asm.name(here, 0), asm.name(to, 0), asm.name(from, 0));
    asm.line(&line);
}
