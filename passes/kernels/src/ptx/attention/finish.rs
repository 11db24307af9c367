//! Accumulators over all keys of a row  =>  its results: the factors of the weights, then the statements after the
//! reduction

use super::super::gemm::copy::shift;
use super::super::gemm::exact::{part, replace_nans};
use super::super::gemm::mma::Sums;
use super::super::pairs::Pairs;
use super::plan::Flash;
use super::roles::Weight;
use super::softmax::{Block, Row};
use super::sums::deep_sums;
use crate::asm::{Asm, Bin, Cast, CmpF, CmpI, Elem, Ptx, Ty, Val};
use crate::def::*;
use crate::eval::Point;
use crate::scalar;
use sardonyx_base::DType;

impl Flash {
    /// Statements that the stores depend on, excluding the reductions and what only these depend on.
    pub fn epilogue(&self, def: &KernelDef) -> Vec<usize> {
        let mut open: Vec<usize> =
            def.stores.iter().flat_map(|w| [vec![w.value], access_values(&w.access)].concat()).collect();
        let mut needed = vec![];
        while let Some(k) = open.pop() {
            if !matches!(def.body[k].op, Op::Reduce { .. }) && !needed.contains(&k) {
                needed.push(k);
                open.extend(def.operands(k));
            }
        }
        needed.sort();
        needed
    }

    /// Accesses of the epilogue's statements and of the stores.
    pub fn accesses<'a>(&self, def: &'a KernelDef) -> Vec<&'a Access> {
        let load = |k: usize| match &def.body[k].op {
            Op::Load { access, .. } => Some(access),
            Op::Const(_) | Op::Index(_) | Op::Apply { .. } | Op::Convert(_, _) | Op::Reduce { .. } => None,
        };
        self.epilogue(def).into_iter().filter_map(load).chain(def.stores.iter().map(|w| &w.access)).collect()
    }

    /// Returns whether adjacent result columns exist together and can be accessed as a pair.
    pub fn pairs(&self, def: &KernelDef) -> Pairs {
        Pairs::from_accesses(def, &self.accesses(def), self.roles.e)
    }

    /// Statements to evaluate once per row: the factors of weights, and epilogue statements that do not depend on
    /// columns.
    pub fn per_row(&self, def: &KernelDef, deps: &[VarSet]) -> Vec<usize> {
        let factors = self.roles.weight.iter().filter_map(|w| match w {
            Weight::Over(k) | Weight::Times(k) => Some(*k),
            Weight::WithoutNan => None,
        });
        let row = |k: &usize| deps[*k] >> self.roles.e & 1 == 0 && !matches!(def.body[*k].op, Op::Const(_));
        self.epilogue(def).into_iter().chain(factors).filter(row).collect()
    }

    /// Epilogue statements that depend on columns, but neither on rows nor on reductions.
    pub fn per_column(&self, def: &KernelDef, deps: &[VarSet]) -> Vec<usize> {
        let mut after = vec![false; def.body.len()];
        after[self.roles.out] = true;
        let mut shared = vec![];
        for k in self.epilogue(def) {
            after[k] = def.operands(k).iter().any(|a| after[*a]);
            let moves = |v: usize| deps[k] >> v & 1 == 1;
            let by_row = def.operands(k).iter().any(|a| matches!(def.body[*a].op, Op::Reduce { .. }));
            if !after[k] && !by_row && moves(self.roles.e) && !self.roles.i.is_some_and(moves) {
                shared.push(k);
            }
        }
        shared
    }
}

impl Block<'_> {
    /// Computes and stores the results. `e0` is the block's first column; `sums` are the accumulators of the warp's own
    /// columns.
    pub fn finish(&self, asm: &mut Ptx, rows: [Row; 2], sums: &Sums, e0: Val) {
        let (cx, flash) = (self.cx, self.flash);
        let e0 = self.own_columns(asm, e0);
        let ends = rows.map(|row| self.end(asm, row));
        if flash.roles.factor_types(cx.def)[1] == DType::F32 {
            self.repair_values(asm, &ends, sums, e0);
        }
        for (half, end) in ends.iter().enumerate() {
            self.apply_weights(asm, end, half as u32, sums);
        }
        flash.pairs(cx.def).choose(cx, asm, &|asm, ways| self.columns(asm, &ends, sums, e0, ways));
    }

    /// Adds up a row's total over the four lanes that share it, and evaluates the statements needed once per row.
    fn end(&self, asm: &mut Ptx, row: Row) -> End {
        let (cx, roles) = (self.cx, &self.flash.roles);
        let mut total = row.total;
        for away in [1, 2] {
            let other = asm.exchanged_with(total, away);
            total = asm.bin(Bin::AddF, total, other);
        }
        let zero = asm.i64(0);
        let n = cx.extent(asm, roles.j);
        let some = asm.cmpi(CmpI::Ne, n, zero);
        let hidden = roles.is_unbounded(cx.def).then(|| {
            let least = asm.float(f64::NEG_INFINITY, Ty::F32);
            let none = asm.cmpf(CmpF::Oeq, row.shift, least);
            asm.bin(Bin::AndI, none, some)
        });
        if let Some(hidden) = hidden {
            let nan = asm.float(f64::NAN, Ty::F32);
            total = asm.select(hidden, nan, total);
        }
        let mut point = row.point;
        point.values[roles.max] = Some(row.max);
        if let Some(k) = roles.total {
            point.values[k] = Some(scalar::rounded(asm, total, cx.def.body[k].dtype));
        }
        for k in self.flash.per_row(cx.def, &cx.deps) {
            point.eval(cx, asm, k);
        }
        End { point, there: row.there, total, hidden, some }
    }

    /// Recomputes accumulators that are NaN, unless the row's total is NaN: infinite values cannot be split into tf32
    /// parts.
    fn repair_values(&self, asm: &mut Ptx, ends: &[End; 2], sums: &Sums, e0: Val) {
        let (cx, roles) = (self.cx, &self.flash.roles);
        let all: Vec<Val> =
            sums.of[0].iter().flat_map(|sum| (0..4).map(|i| (*sum, i))).map(|(s, i)| asm.extract(s, i)).collect();
        replace_nans(asm, &all, |asm, number| {
            let (odd, below, n) = (part(asm, number, 0, 1, 0), part(asm, number, 1, 1, 0), part(asm, number, 2, 63, 3));
            let zero = asm.i64(0);
            let lower = asm.cmpi(CmpI::Ne, below, zero);
            let column = [n, odd].into_iter().fold(self.first_column(asm, e0), |c, by| asm.bin(Bin::AddI, c, by));
            let total = asm.select(lower, ends[1].total, ends[0].total);
            let max = asm.select(lower, self.max_of(&ends[1]), self.max_of(&ends[0]));
            let mut point = self.point.clone();
            if let Some(i) = roles.i {
                let at = ends.each_ref().map(|end| end.point.vars[i].expect("a row"));
                point.vars[i] = Some(asm.select(lower, at[1], at[0]));
            }
            point.values[roles.max] = Some(max);
            point.vars[roles.e] = Some(column);
            let width = cx.extent(asm, roles.e);
            let (beside, lost) = (asm.cmpi(CmpI::Slt, column, width), asm.cmpf(CmpF::Uno, total, total));
            let nan = asm.float(f64::NAN, Ty::F32);
            let sum = |asm: &mut Ptx| vec![self.sum_again(asm, &point)];
            let there = |asm: &mut Ptx| asm.if_else(lost, &[Ty::F32], |_| vec![nan], sum);
            let none = asm.zero(Ty::F32);
            asm.if_else(beside, &[Ty::F32], there, |_| vec![none])[0]
        });
    }

    fn max_of(&self, end: &End) -> Val {
        end.point.values[self.flash.roles.max].expect("set at the end")
    }

    /// Recomputes Σ p·v (see `roles`) of one result element on the CUDA cores.
    fn sum_again(&self, asm: &mut Ptx, point: &Point) -> Val {
        let (cx, roles) = (self.cx, &self.flash.roles);
        let (zero, one, n, none) = (asm.i64(0), asm.i64(1), cx.extent(asm, roles.j), asm.zero(Ty::F32));
        asm.for_loop((zero, n, one), &[none], |asm, j, sum| {
            let mut point = point.clone();
            point.vars[roles.j] = Some(j);
            deep_sums(cx, asm, &mut point, &[roles.power, roles.value]);
            // Tensor cores truncate, so their maximum may be below the score that is computed here.
            let (score, max) = (point.eval(cx, asm, roles.score), point.values[roles.max].expect("set at the end"));
            let above = asm.cmpf(CmpF::Ogt, score, max);
            point.values[roles.score] = Some(asm.select(above, max, score));
            let (p, v) = (point.eval(cx, asm, roles.power), point.eval(cx, asm, roles.value));
            vec![asm.fma(p, v, sum[0])]
        })[0]
    }

    /// Recomputes, on the CUDA cores, scores that are NaN. `first` is the first key of the warp's scores.
    pub fn repair_scores(&self, asm: &mut Ptx, rows: &[Row; 2], scores: &Sums, first: Val) {
        let (cx, roles) = (self.cx, &self.flash.roles);
        let all: Vec<Val> =
            scores.of[0].iter().flat_map(|s| (0..4).map(|i| (*s, i))).map(|(s, i)| asm.extract(s, i)).collect();
        replace_nans(asm, &all, |asm, number| {
            let (odd, below, n) = (part(asm, number, 0, 1, 0), part(asm, number, 1, 1, 0), part(asm, number, 2, 63, 3));
            let zero = asm.i64(0);
            let lower = asm.cmpi(CmpI::Ne, below, zero);
            let key = [n, odd].into_iter().fold(self.first_column(asm, first), |c, by| asm.bin(Bin::AddI, c, by));
            let mut point = self.point.clone();
            if let Some(i) = roles.i {
                let at = rows.each_ref().map(|row| row.point.vars[i].expect("a row"));
                point.vars[i] = Some(asm.select(lower, at[1], at[0]));
            }
            point.vars[roles.j] = Some(key);
            let n = cx.extent(asm, roles.j);
            let there = asm.cmpi(CmpI::Slt, key, n);
            let none = asm.zero(Ty::F32);
            let sum = |asm: &mut Ptx| {
                deep_sums(cx, asm, &mut point, &[roles.sum]);
                vec![point.values[roles.sum].expect("just computed")]
            };
            asm.if_else(there, &[Ty::F32], sum, |_| vec![none])[0]
        });
    }

    /// First column (or key) of a thread, given the first one of its warp.
    fn first_column(&self, asm: &mut Ptx, first: Val) -> Val {
        let pair = shift(asm, Bin::ShLI, self.quarter, 1);
        let pair = asm.cast(Cast::ExtUI, pair, Elem::I64);
        asm.bin(Bin::AddI, first, pair)
    }

    /// Turns Σ p·v into Σ w(p)·v in place, where w(p) is the weight computed from the exponential p.
    fn apply_weights(&self, asm: &mut Ptx, end: &End, half: u32, sums: &Sums) {
        let roles = &self.flash.roles;
        let (zero, nan) = (asm.zero(Ty::F32), asm.float(f64::NAN, Ty::F32));
        let factor = |k: &usize| end.point.values[*k].expect("evaluated at the row's end");
        // The same steps applied to 0 show whether all weights of the row are NaN.
        let mut probe = asm.bin(Bin::MulF, end.total, zero);
        let mut all: Vec<(Val, u32, Val)> = vec![];
        for sum in &sums.of[0] {
            for lane in 2 * half..2 * half + 2 {
                let v = asm.extract(*sum, lane);
                all.push((*sum, lane, end.hidden.map_or(v, |hidden| asm.select(hidden, nan, v))));
            }
        }
        for step in &roles.weight {
            let op = match step {
                Weight::Over(k) => Ok((Bin::DivF, factor(k))),
                Weight::Times(k) => Ok((Bin::MulF, factor(k))),
                Weight::WithoutNan => Err(asm.cmpf(CmpF::Uno, probe, probe)),
            };
            let mut one = |v: Val| match op {
                Ok((op, by)) => asm.bin(op, v, by),
                Err(lost) => asm.select(lost, zero, v),
            };
            probe = one(probe);
            all.iter_mut().for_each(|(_, _, v)| *v = one(*v));
        }
        for (sum, lane, v) in all {
            // Without any key the result is 0, whatever the weights.
            let v = if roles.weight.is_empty() { v } else { asm.select(end.some, v, zero) };
            let register = asm.extract(sum, lane);
            asm.set(register, v);
        }
    }

    /// Stores all columns of a thread; `even` if no pair is cut off, `aligned` if all pairs are aligned in memory.
    fn columns(&self, asm: &mut Ptx, ends: &[End; 2], sums: &Sums, e0: Val, (even, aligned): (bool, bool)) {
        let (cx, flash) = (self.cx, self.flash);
        let roles = &flash.roles;
        let first = self.first_column(asm, e0);
        let n = cx.extent(asm, roles.e);
        let whole =
            cx.def.extent(roles.e).as_const().is_some_and(|n| n % (8 * flash.warps_n * flash.warp_columns()) == 0);
        for (j, sum) in sums.of[0].iter().enumerate() {
            let by = asm.i64(8 * j as i64);
            let column = asm.bin(Bin::AddI, first, by);
            let some = (!whole).then(|| asm.cmpi(CmpI::Slt, column, n));
            when(asm, some, |asm| {
                let mut point = self.point.clone();
                point.vars[roles.e] = Some(column);
                (point.along, point.lanes, point.multiple, point.aligned) = (roles.e, 2, 2, aligned);
                point.mask = (!even).then(|| {
                    let (columns, iota, n) = (asm.widen(column, 2), asm.iota(2), asm.widen(n, 2));
                    let columns = asm.bin(Bin::AddI, columns, iota);
                    asm.cmpi(CmpI::Slt, columns, n)
                });
                for k in flash.per_column(cx.def, &cx.deps) {
                    point.eval(cx, asm, k);
                }
                for (half, end) in ends.iter().enumerate() {
                    let two = 2 * half as u32;
                    let pair = asm.shuffle(*sum, *sum, &[two, two + 1]);
                    when(asm, end.there, |asm| self.store(asm, point.clone(), end, pair));
                }
            });
        }
    }

    fn store(&self, asm: &mut Ptx, mut point: Point, end: &End, sum: Val) {
        let (cx, roles) = (self.cx, &self.flash.roles);
        if let Some(i) = roles.i {
            point.vars[i] = end.point.vars[i];
        }
        for (to, from) in point.values.iter_mut().zip(&end.point.values) {
            *to = to.or(*from);
        }
        point.values[roles.out] = Some(scalar::rounded(asm, sum, roles.value_type(cx.def)));
        for write in &cx.def.stores {
            point.store(cx, asm, write);
        }
    }
}

/// State of a row after all of its keys.
struct End {
    point: Point,
    there: Option<Val>,
    total: Val,
    /// Whether the row has keys and all are masked out; `None` unless that gives NaN.
    hidden: Option<Val>,
    /// Whether there are any keys.
    some: Val,
}

fn when(asm: &mut Ptx, condition: Option<Val>, then: impl FnOnce(&mut Ptx)) {
    match condition {
        None => then(asm),
        Some(condition) => asm.if_then(condition, then),
    }
}
