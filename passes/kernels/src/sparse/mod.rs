//! y[n, t] = f(Σj < length[n] value[first[n] + j] · x[column[first[n] + j], t])  =>  each word of a row times a vector of t
//!
//! One factor is a sparse matrix, whose words lie row by row, with the column of each. Lanes run along a variable that only the
//! other factor has and whose elements are neighbours in memory: a word is broadcast, and its column names a row of vectors.
//! A work item is a block of rows by a block of lanes. Its sums lie in a tile until the epilogue is computed, along whichever
//! variable the results are contiguous.

mod emit;

use crate::asm::Mlir;
use crate::cpu::CpuPlan;
use crate::cx::Cx;
use crate::def::*;
use crate::nest::{Loop, Nest};
use crate::pace::Pace;
use crate::words::Words;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};
use std::sync::Arc;

/// Rows of a work item.
const ROWS: i64 = 64;
/// Lanes of a work item: as many as the sums of one row in registers.
const LANES: i64 = 128;

/// The share of a dense contraction's rate at which words are multiplied: each needs a load of its own.
const SHARE: f64 = 0.6;
/// The same where the other factor's neighbours are apart in memory.
const SHARE_APART: f64 = 0.05;

/// The parts of a product with a sparse matrix.
#[derive(Debug)]
pub struct Plan {
    /// The variable of the matrix's rows.
    n: usize,
    /// The variable that lanes run along.
    lane: usize,
    /// The other outer variables.
    others: Vec<usize>,
    /// The place of a row's first word; the words of a row end where those of the next one begin.
    first: Access,
    column: Access,
    value: Access,
    /// The numbers of words and of columns.
    n_words: Size,
    n_columns: Size,
    x: Access,
    /// The statement that is the sum.
    sum: usize,
}

pub fn planned(def: &KernelDef) -> Option<Arc<dyn CpuPlan>> {
    Some(Arc::new(Plan::matched(def)?))
}

impl Plan {
    /// Finds the parts in a kernel with one sum, of products under the guard that the row has so many words.
    fn matched(def: &KernelDef) -> Option<Plan> {
        let deps = def.dependences();
        if def.inner.len() != 1 || !def.deep.is_empty() {
            return None;
        }
        let j = def.outer.len();
        let mut sums = def.body.iter().enumerate().filter_map(|(k, s)| match s.op {
            Op::Reduce { f, arg } => Some((k, f, arg, s.dtype)),
            _ => None,
        });
        let (Some((sum, ReduceFn::Add, chosen, DType::F32)), None) = (sums.next(), sums.next()) else { return None };
        let Op::Apply { f: ScalarFn::Select, args } = &def.body[chosen].op else { return None };
        let &[inside, product, zero] = &args[..] else { return None };
        if !matches!(def.body[zero].op, Op::Const(0)) {
            return None;
        }
        let Op::Apply { f: ScalarFn::Mul, args } = &def.body[product].op else { return None };
        let &[value, x] = &args[..] else { return None };
        let load = |k: usize| match &def.body[k].op {
            Op::Load { access, guard } => Some((access, *guard)),
            _ => None,
        };
        // j < end - first
        let Op::Apply { f: ScalarFn::Lt, args } = &def.body[inside].op else { return None };
        let &[word, length] = &args[..] else { return None };
        let Op::Apply { f: ScalarFn::Sub, args } = &def.body[length].op else { return None };
        let &[end, first] = &args[..] else { return None };
        let word_var = Dim::symbol(&format!("%{j}"));
        let place = Dim::symbol(&format!("${first}")) + word_var.clone();
        let start = |k: usize| match def.body[k].op {
            Op::Convert(start, Conversion::Value) => load(start),
            _ => None,
        };
        let ((first, None), (end, None)) = (start(first)?, start(end)?) else { return None };
        let of_word = |access: &Access| match &access.computed[..] {
            [c] if c.expr == place && c.stride.is(1) => c.limit.filter(|_| is_still(access)),
            _ => None,
        };
        let ((value, Some(guarded)), (x, Some(read))) = (load(value)?, load(x)?) else { return None };
        let n_words = of_word(value)?;
        let [row] = &x.computed[..] else { return None };
        let n_columns = row.limit?;
        let number = row.expr.symbols().iter().find_map(|s| own(s, '$'))?;
        let Op::Convert(column, Conversion::Value) = def.body[number].op else { return None };
        let (column, Some(under)) = load(column)? else { return None };
        let narrow = [&def.reads[column.buffer], &def.reads[value.buffer], &def.reads[x.buffer]].map(|s| s.dtype);
        let is_index = |access: &Access| def.reads[access.buffer].dtype == DType::I32 && access.computed.is_empty();
        let ok = matches!(&def.body[word].op, Op::Index(d) if *d == word_var)
            && row.expr == Dim::symbol(&format!("${number}"))
            && of_word(column) == Some(n_words)
            && [guarded, read, under] == [inside; 3]
            && matches!(narrow, [DType::U16 | DType::I32, DType::F32, DType::F32])
            && is_index(first)
            && is_index(end)
            && def.reads.iter().all(|s| s.panels.is_none())
            && x.stride(j).is(0);
        let moves = |access: &Access| (0..j).filter(|v| access.moves_with(*v)).collect::<Vec<_>>();
        let &[n] = &moves(first)[..] else { return None };
        let starts = |access: &Access, offset: i64| {
            access.coords[0].offset.is(offset) && access.stride(n).is(1) && moves(access) == [n]
        };
        // The epilogue is computed for each outer point.
        let of_sum = [inside, product, chosen, zero, number, sum];
        let rest = (0..def.body.len()).filter(|k| !of_sum.contains(k));
        let after = rest.clone().all(|k| deps[k] & def.inner_vars() == 0 || is_part(def, k, &[column, value, x]));
        let ok = ok
            && starts(first, 0)
            && starts(end, 1)
            && after
            && !x.moves_with(n)
            && def.stores.iter().all(|w| deps[w.value] & def.inner_vars() == 0 && !w.access.moves_with(j));
        let lane = (0..j).rev().find(|v| *v != n && x.stride(*v).is(1)).or_else(|| (0..j).rev().find(|v| *v != n));
        let lane = lane.filter(|_| ok)?;
        let others = (0..j).filter(|v| ![n, lane].contains(v)).collect();
        let [first, column, value, x] = [first, column, value, x].map(Access::clone);
        Some(Plan { n, lane, others, first, column, value, n_words, n_columns, x, sum })
    }

    /// Returns true where results are contiguous along the rows of the matrix, and not along lanes.
    fn stores_along_rows(&self, def: &KernelDef) -> bool {
        def.stores.iter().all(|w| w.access.stride(self.n).is(1) && !w.access.stride(self.lane).is(1))
    }

    fn has_vectors(&self) -> bool {
        self.x.stride(self.lane).is(1)
    }
}

/// Returns true for an access that variables move only through its computed part.
fn is_still(access: &Access) -> bool {
    access.coords[0].offset.is(0) && access.coords[0].strides.iter().all(|s| s.is(0))
}

/// Returns true for one of these loads, and for the place of a word.
fn is_part(def: &KernelDef, k: usize, loads: &[&Access]) -> bool {
    match &def.body[k].op {
        Op::Load { access, .. } => loads.contains(&access),
        Op::Index(_) => true,
        Op::Const(_) | Op::Apply { .. } | Op::Convert(..) | Op::Reduce { .. } => false,
    }
}

impl CpuPlan for Plan {
    fn grid(&self, def: &KernelDef) -> Dim {
        let others = self.others.iter().fold(Dim::constant(1), |p, v| p * def.extent(*v).dim());
        let blocks = |v: usize, size: i64| def.extent(v).dim().ceildiv(&Dim::constant(size));
        others * blocks(self.lane, LANES) * blocks(self.n, ROWS)
    }

    /// The tile of sums, and the sums of some rows turned.
    fn scratch_bytes(&self, _: &KernelDef) -> Dim {
        Dim::constant(4 * LANES * (ROWS + crate::pace::LANES))
    }

    fn nest(&self, def: &KernelDef, _: &[i64]) -> Nest {
        let mut loops = Loop::each(self.others.iter().copied());
        loops.push(Loop::Var { var: self.lane, step: LANES });
        loops.push(Loop::Var { var: self.n, step: ROWS });
        loops.extend(Loop::each([self.n, def.outer.len(), self.lane]));
        Nest { loops, passes: vec![1; def.body.len()] }
    }

    fn pace(&self, def: &KernelDef) -> Pace {
        let share = if self.has_vectors() { SHARE } else { SHARE_APART };
        Pace { share: share * def.used_lanes(self.lane, crate::pace::LANES), scattered: 0.0 }
    }

    fn words(&self) -> Option<Words> {
        Some(Words::Singles)
    }

    fn emit(&self, cx: &Cx<Mlir>, asm: &mut Mlir) {
        emit::emit(cx, asm, self);
    }
}
