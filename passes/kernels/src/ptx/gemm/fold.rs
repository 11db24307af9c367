//! Accumulators of a group of k  =>  the value that the kernel computes from them, added to the accumulators of all groups

use super::Block;
use super::epilogue::{plus, when};
use super::groups::Groups;
use super::mma::{Factors, Reader, STEP_BYTES, Sums};
use super::plan::Gemm;
use crate::asm::{Asm, Bin, Cast, CmpI, Elem, Ptx, Ty, Val};
use crate::contract::Fold;
use crate::contract::groups::{added, before};
use crate::def::*;
use crate::eval::Point;

/// State of the folding: the accumulators of the current group, and the groups and the point that the folds are
/// evaluated with.
pub struct Folded<'a> {
    groups: &'a Groups,
    point: &'a Point,
    /// First row and column of the thread.
    at: (Val, Val),
    parts: Sums,
}

impl<'a> Folded<'a> {
    pub fn new(asm: &mut Ptx, gemm: &Gemm, groups: &'a Groups, point: &'a Point, at: (Val, Val)) -> Folded<'a> {
        Folded { groups, point, at, parts: Sums::zeros(asm, gemm, gemm.factors.sum()) }
    }
}

impl Block<'_> {
    /// Adds the products of one stage, which holds k tile number `piece`.
    pub fn add_groups(
        &self,
        asm: &mut Ptx,
        folded: &Folded,
        (readers, tiles): (&[Reader], &[Val]),
        piece: Val,
        totals: &Sums,
    ) {
        let (gemm, groups) = (self.gemm, folded.groups);
        let steps = gemm.shape.k_bytes / STEP_BYTES;
        if let Some(pieces) = groups.pieces(gemm) {
            folded.parts.add(asm, gemm.factors, readers, tiles, 0..steps);
            let (one, pieces) = (asm.int(1, Ty::I32), asm.int(pieces, Ty::I32));
            let next = asm.bin(Bin::AddI, piece, one);
            let (rest, zero) = (asm.bin(Bin::RemUI, next, pieces), asm.int(0, Ty::I32));
            let ends = asm.cmpi(CmpI::Eq, rest, zero);
            let group = asm.bin(Bin::DivUI, piece, pieces);
            asm.if_then(ends, |asm| self.fold(asm, folded, group, totals));
            return;
        }
        let per_piece = gemm.k_tile() / groups.size;
        let (each, per_piece_value) = (steps / per_piece, asm.int(per_piece, Ty::I32));
        let first = asm.bin(Bin::MulI, piece, per_piece_value);
        for part in 0..per_piece {
            folded.parts.add(asm, gemm.factors, readers, tiles, part * each..(part + 1) * each);
            let part_value = asm.int(part, Ty::I32);
            let group = asm.bin(Bin::AddI, first, part_value);
            // The last tile may have fewer groups.
            let count = asm.int(groups.count, Ty::I32);
            let there = (groups.count % per_piece != 0).then(|| asm.cmpi(CmpI::Slt, group, count));
            when(asm, there, |asm| self.fold(asm, folded, group, totals));
        }
    }

    /// Folds the accumulators of a group into those of all groups, and resets them for the next group.
    fn fold(&self, asm: &mut Ptx, folded: &Folded, group: Val, totals: &Sums) {
        let (cx, gemm, groups) = (self.cx, self.gemm, folded.groups);
        let n = cx.extent(asm, gemm.n);
        let whole_columns = Gemm::is_whole(cx.def, gemm.n, gemm.columns());
        let even = Gemm::is_whole(cx.def, gemm.n, 2);
        let group = asm.cast(Cast::ExtUI, group, Elem::I64);
        let per_sum = gemm.pairs_of_columns();
        for j in 0..per_sum {
            let column = plus(asm, folded.at.1, j as i64 * 8);
            let some = (!whole_columns).then(|| asm.cmpi(CmpI::Slt, column, n));
            when(asm, some, |asm| {
                let mut point = folded.point.clone();
                point.vars[groups.var] = Some(group);
                self.along_columns(asm, &mut point, column, (!even).then_some(n));
                for (sum, fold) in groups.folds.iter().enumerate() {
                    self.fold_columns(asm, &point, fold, folded, totals, sum * per_sum + j);
                }
            });
        }
        for part in folded.parts.of.iter().flatten() {
            let zero = asm.zero(part.ty);
            asm.set(*part, zero);
        }
    }

    /// Folds the accumulators of a group for two columns of one reduction.
    fn fold_columns(&self, asm: &mut Ptx, point: &Point, fold: &Fold, folded: &Folded, totals: &Sums, at: usize) {
        let (cx, gemm) = (self.cx, self.gemm);
        let (is_of_row, shared): (Vec<usize>, Vec<usize>) =
            before(cx.def, fold).into_iter().partition(|k| cx.deps[*k] >> gemm.m & 1 == 1);
        let mut point = point.clone();
        for k in shared.into_iter().filter(|k| !matches!(cx.def.body[*k].op, Op::Const(_))) {
            point.eval(cx, asm, k);
        }
        let rows = cx.extent(asm, gemm.m);
        let bounded = !is_of_row.is_empty() && !Gemm::is_whole(cx.def, gemm.m, gemm.shape.m);
        for (i, (parts, totals)) in folded.parts.of.iter().zip(&totals.of).enumerate() {
            for half in 0..2 {
                let row = plus(asm, folded.at.0, i as i64 * 16 + half * 8);
                let there = bounded.then(|| asm.cmpi(CmpI::Slt, row, rows));
                let first = half as u32 * 2;
                let [part, total] = [parts, totals].map(|s| asm.shuffle(s[at], s[at], &[first, first + 1]));
                let mut point = point.clone();
                point.vars[gemm.m] = Some(row);
                when(asm, there, |asm| {
                    point.values[fold.part] = Some(self.exact_part(asm, part));
                    let sum = added(cx, asm, &mut point, fold.value, total);
                    asm.set(total, sum);
                });
            }
        }
    }

    /// Accumulator of a group, without the factor 16 of bytes that were expanded from nibbles.
    fn exact_part(&self, asm: &mut Ptx, part: Val) -> Val {
        match (self.gemm.factors, self.gemm.b[0].code_bits) {
            (Factors::Bytes(_), Some(_)) => {
                let four = asm.int(4, part.ty);
                asm.bin(Bin::ShRSI, part, four)
            }
            _ => part,
        }
    }
}
