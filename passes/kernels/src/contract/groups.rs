//! Σg s[g, n] · Σj a[m, g·G + j] · w[g·G + j, n], codes w in panels: how the result of a group is added to the total
//!
//! Groups g have G elements j each; m is a row of A, n a column of the codes.
//!
//! A cell of a panel is four bytes of one column: four codes of a byte each, or eight codes of four bits, the first
//! four in the low nibbles. The products of one group are accumulated in registers as usual; then the value that the
//! kernel computes from this accumulator, mostly by scaling, is added to the accumulator of all groups (a fold).

use super::Panel;
use super::plan::{Fold, Form, Plan, Roles, Sum, blocked, plain, roles};
use crate::asm::{Asm, Bin, Cast, Elem, Mlir, Val};
use crate::cx::Cx;
use crate::def::*;
use crate::eval::Point;
use crate::minifloat;
use crate::words::Words;
use sardonyx_base::DType;
use sardonyx_dialects::scalar::{Conversion, ScalarFn};

/// A contraction in groups along K whose codes are stored in panels.
pub struct Grouped {
    /// Operands and variables; `k` runs within a group, `around` over the groups.
    pub roles: Roles,
    /// One fold for each sum over the groups.
    pub folds: Vec<Fold>,
    /// Type of the accumulator of a group.
    pub sum: DType,
}

/// Finds the parts of a contraction in groups; `None` for other kernels, or if the codes are not in panels.
pub fn grouped(def: &KernelDef) -> Option<Grouped> {
    let found = folds(def)?;
    let factors: Vec<[usize; 2]> = found.iter().map(|(fold, _)| factors(def, fold.part)).collect::<Option<_>>()?;
    let storage = |load: usize| plain(def, load).map(|access| &def.reads[access.buffer]);
    let is_code = |load: &usize| storage(*load).is_some_and(|s| s.panels.is_some());
    let code = *factors[0].iter().find(|load| is_code(load))?;
    let left = *factors[0].iter().find(|load| **load != code)?;
    let other = |f: &[usize; 2]| f.contains(&left).then_some(if f[0] == left { f[1] } else { f[0] });
    let sum = |((_, reduce), f): (&(Fold, usize), &[usize; 2])| {
        Some(Sum { reduce: *reduce, b: plain(def, other(f)?)?.clone() })
    };
    let sums: Vec<Sum> = found.iter().zip(&factors).map(sum).collect::<Option<_>>()?;
    let rows = rows_of_cell(storage(code)?.dtype)? as i64;
    let (_, roles): (_, Roles) = roles(def, plain(def, left)?, sums, rows)?;
    let sum = def.body[found[0].0.part].dtype;
    Some(Grouped { roles, folds: found.into_iter().map(|(fold, _)| fold).collect(), sum })
}

/// The register-blocked plan for CPUs.
pub fn plan(def: &KernelDef) -> Option<Plan> {
    let Grouped { roles, folds, sum } = grouped(def)?;
    let words = match (def.reads[roles.a.buffer].dtype, sum) {
        (DType::F32, DType::F32) => Words::Singles,
        (DType::U8, DType::I32) => Words::Quads,
        _ => return None,
    };
    if words == Words::Quads && def.reads[roles.b().buffer].dtype.is_float() {
        return None;
    }
    let plan = blocked(def, roles, words, folds)?;
    (plan.form == Form::Panels).then_some(plan)
}

/// Number of rows of codes that are stored side by side in a cell of four bytes.
pub fn rows_of_cell(dtype: DType) -> Option<usize> {
    match dtype {
        DType::I4 => Some(8),
        DType::I8 => Some(4),
        dtype => minifloat::small(dtype).map(|_| 4),
    }
}

/// Fold of each sum over the groups, and the statement of that sum.
fn folds(def: &KernelDef) -> Option<Vec<(Fold, usize)>> {
    let deps = def.dependences();
    let is_part = |k: usize| matches!(def.body[k].op, Op::Reduce { arg, .. } if deps[arg] & def.deep_vars() != 0);
    let fold = |(reduce, step): (usize, &Step)| {
        let Op::Reduce { arg: value, .. } = step.op else { return None };
        if is_part(reduce) {
            return None;
        }
        let (mut open, mut parts) = (vec![value], vec![]);
        while let Some(k) = open.pop() {
            match is_part(k) {
                true if !parts.contains(&k) => parts.push(k),
                true => {}
                false => open.extend(def.operands(k)),
            }
        }
        let part = *parts.first().filter(|_| parts.len() == 1)?;
        Some((Fold { part, value }, reduce))
    };
    let found: Vec<_> = def.body.iter().enumerate().filter_map(fold).collect();
    let whole = def.body.iter().filter(|s| matches!(s.op, Op::Reduce { .. })).count() == 2 * found.len();
    (whole && !found.is_empty() && def.inner.len() <= 1 && def.deep.len() == 1).then_some(found)
}

/// Loads of the two operands whose products are summed.
fn factors(def: &KernelDef, part: usize) -> Option<[usize; 2]> {
    let Op::Reduce { arg, .. } = def.body[part].op else { return None };
    let Op::Apply { f: ScalarFn::Mul, args } = &def.body[arg].op else { return None };
    let narrow = |k: usize| match def.body[k].op {
        Op::Convert(from, Conversion::Value) => from,
        _ => k,
    };
    Some([narrow(args[0]), narrow(args[1])])
}

/// Unpacks a cell into words, in the order of the reduction. For `Quads`, codes of 4 bits become bytes that are 16
/// times the codes.
pub fn words(asm: &mut Mlir, cell: Val, dtype: DType, words: Words) -> Vec<Val> {
    match (words, dtype) {
        (Words::Quads, DType::I4) => {
            let (four, high) = (asm.int(4, cell.ty), asm.int(0xF0F0_F0F0_u32.cast_signed().into(), cell.ty));
            let low = asm.bin(Bin::ShLI, cell, four);
            [low, cell].map(|v| asm.bin(Bin::AndI, v, high)).to_vec()
        }
        (Words::Singles, DType::I4) => {
            let at = |row: i64| if row < 4 { 8 * row } else { 8 * (row - 4) + 4 };
            (0..8).map(|row| nibble(asm, cell, at(row))).collect()
        }
        (Words::Singles, DType::I8) => (0..4).map(|row| signed(asm, cell, 8 * row, 8)).collect(),
        (Words::Singles, dtype) => match minifloat::small(dtype) {
            Some(format) => (0..4).map(|row| minifloat::decode_number(asm, cell, 8 * row, format)).collect(),
            None => vec![cell],
        },
        (Words::Pairs | Words::Quads, _) => vec![cell],
    }
}

/// Returns four bits of each lane, from bit `first` on, as a signed number in f32; uses a table lookup if the CPU has
/// an instruction for this.
fn nibble(asm: &mut Mlir, cell: Val, first: i64) -> Val {
    let by = asm.int(first, cell.ty);
    let index = if first == 0 { cell } else { asm.bin(Bin::ShRUI, cell, by) };
    let table = std::array::from_fn(|i| (i as f32 + 8.0) % 16.0 - 8.0);
    match asm.isa.looked_up(asm, &table, index) {
        Some(value) => value,
        None => signed(asm, cell, first, 4),
    }
}

/// Returns `bits` bits of each lane, from bit `first` on, as a signed number in f32.
fn signed(asm: &mut Mlir, cell: Val, first: i64, bits: i64) -> Val {
    let (left, right) = (asm.int(32 - bits - first, cell.ty), asm.int(32 - bits, cell.ty));
    let high = asm.bin(Bin::ShLI, cell, left);
    let whole = asm.bin(Bin::ShRSI, high, right);
    asm.cast(Cast::SIToFP, whole, Elem::F32)
}

impl Plan {
    /// Element type of the accumulator of all groups, or of the only accumulator if there are no groups.
    pub fn sum(&self) -> Elem {
        if self.folds.is_empty() { self.words.sum() } else { Elem::F32 }
    }

    /// Type of the codes.
    pub fn codes(&self, def: &KernelDef) -> DType {
        def.reads[self.b().buffer].dtype
    }

    /// Number of rows of a panel that one cell holds, or one word if there are no groups.
    pub fn cell_rows(&self, def: &KernelDef) -> i64 {
        match self.folds.is_empty() {
            true => self.words.depth(),
            false => def.reads[self.b().buffer].panels.map_or(1, |p| p.depth),
        }
    }
}

/// Rows and columns of a group's accumulators: rows from `row` on, vectors of columns at `firsts`.
pub struct Place<'p> {
    /// Index of the first row within the work item.
    pub row: Val,
    /// Index of the first column of each vector within the panel.
    pub firsts: &'p [Val],
    /// Mask of the columns of each vector that exist; `None` if all do.
    pub masks: &'p [Option<Val>],
}

impl Panel<'_, '_> {
    /// Adds a group's accumulators `parts` to the accumulators `sums` of the groups before it. Both are indexed by
    /// row, then by panel and by vector of columns.
    pub fn fold(
        &self,
        asm: &mut Mlir,
        (panels, at): (&[Self], &Place),
        group: Option<Val>,
        parts: &[Val],
        sums: &[Val],
    ) -> Vec<Val> {
        let (cx, plan) = (self.item.cx, self.item.plan);
        let fold = &plan.folds[self.sum];
        let vectors = at.firsts.len();
        let width = panels.len() * vectors;
        let mut next = sums.to_vec();
        for j in 0..width {
            let (panel, j_in) = (&panels[j / vectors], j % vectors);
            let mut point = panel.item.columns_at(asm, at.firsts[j_in], cx.lanes(), at.masks[j_in]);
            // Panels begin at a multiple of their width and are padded with zeros.
            (point.multiple, point.mask) = (cx.lanes() as i64, None);
            if let (Some(group), Some(var)) = (group, plan.around.first()) {
                point.vars[*var] = Some(group);
            }
            before(cx.def, fold).into_iter().for_each(|k| {
                let moves = plan.m.is_some_and(|m| cx.deps[k] >> m & 1 == 1);
                if !moves && !matches!(cx.def.body[k].op, Op::Const(_)) {
                    point.eval(cx, asm, k);
                }
            });
            for i in 0..sums.len() / width {
                let mut part = parts[i * width + j];
                if plan.words == Words::Quads && plan.codes(cx.def) == DType::I4 {
                    let four = asm.int(4, part.ty);
                    part = asm.bin(Bin::ShRSI, part, four);
                }
                next[i * width + j] = self.folded(asm, point.clone(), (at.row, i as i64), part, sums[i * width + j]);
            }
        }
        next
    }

    fn folded(&self, asm: &mut Mlir, mut point: Point, (row, i): (Val, i64), part: Val, sum: Val) -> Val {
        let (cx, plan) = (self.item.cx, self.item.plan);
        let fold = &plan.folds[self.sum];
        if let Some(m) = plan.m {
            let row = super::plus(asm, row, i);
            point.vars[m] = Some(asm.bin(Bin::AddI, self.item.m0, row));
        }
        point.values[fold.part] = Some(part);
        added(cx, asm, &mut point, fold.value, sum)
    }
}

/// Returns `sum` plus the value of statement `k`, with fused multiply-adds where `k` is a product or a sum of products.
pub fn added<A: Asm>(cx: &Cx<A>, asm: &mut A, point: &mut Point, k: usize, sum: Val) -> Val {
    let mut eval = |asm: &mut A, k: usize| {
        let v = point.eval(cx, asm, k);
        asm.widen(v, sum.ty.lanes)
    };
    match &cx.def.body[k].op {
        Op::Apply { f: ScalarFn::Mul, args } => {
            let [a, b] = [args[0], args[1]].map(|k| eval(asm, k));
            asm.fma(a, b, sum)
        }
        Op::Apply { f: ScalarFn::Add, args } => {
            let sum = added(cx, asm, point, args[0], sum);
            added(cx, asm, point, args[1], sum)
        }
        _ => {
            let value = eval(asm, k);
            asm.bin(Bin::AddF, sum, value)
        }
    }
}

/// Returns the statements that the fold depends on and that do not themselves depend on the group's accumulator.
pub fn before(def: &KernelDef, fold: &Fold) -> Vec<usize> {
    let (mut open, mut found, mut after) = (vec![fold.value], vec![], vec![fold.part]);
    while let Some(k) = open.pop() {
        if k != fold.part && !found.contains(&k) {
            found.push(k);
            open.extend(def.operands(k));
        }
    }
    found.sort();
    found.retain(|k| {
        let made = def.operands(*k).iter().any(|a| after.contains(a));
        if made {
            after.push(*k);
        }
        !made
    });
    found
}
