//! y[n, t] = f(Σj < length[n] value[first[n] + j] · x[column[first[n] + j], t])  =>  words of a row times vectors of t
//!
//! The words of a row are contiguous, and so are their column numbers. A word is one number, or four bytes that are
//! multiplied with four bytes of each lane at once; the dense operand's bytes are first copied so that the words of
//! adjacent lanes are adjacent.

mod emit;

use super::product::Product;
use super::tile;
use crate::asm::Mlir;
use crate::cpu::CpuPlan;
use crate::cx::Cx;
use crate::def::*;
use crate::nest::Nest;
use crate::pace::{self, Pace};
use crate::words::Words;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use std::sync::Arc;

/// Number of rows of a work item, for words that are one number, and for words of four bytes.
const ROWS: i64 = 64;
const ROWS_OF_QUADS: i64 = 128;

/// Share of a dense contraction's rate at which words are multiplied: each word needs its own load.
const SHARE: f64 = 0.5;
const SHARE_OF_QUADS: f64 = 0.45;
/// Additional factor if there is a single vector of lanes: each accumulation then waits for that of the previous word.
const SHARE_OF_ONE_VECTOR: f64 = 0.6;

/// Maximum number of words in a column of the dense operand (of one lane), if these words are copied.
const COPIED_MAX: i64 = 1 << 13;
/// Number of words that are copied together.
const COPIED: i64 = 16;

/// A product with a sparse matrix in the format of word rows: its accesses and sizes.
#[derive(Debug)]
pub struct Plan {
    product: Product,
    /// Number of elements of a word.
    depth: i64,
    /// Index of a row's first word; the words of a row end where those of the next one begin.
    first: Access,
    column: Access,
    value: Access,
    /// Number of column numbers (one per word), of elements of all words, and of columns of the matrix.
    n_words: Size,
    n_values: Size,
    n_columns: Size,
}

pub fn planned(def: &KernelDef) -> Option<Arc<dyn CpuPlan>> {
    Some(Arc::new(Plan::matched(def)?))
}

impl Plan {
    /// Matches a kernel whose only reduction is a sum of products, each guarded by j < length of the row.
    fn matched(def: &KernelDef) -> Option<Plan> {
        let depth = match def.inner[..] {
            [_] => 1,
            [_, depth] if depth.is(4) => 4,
            _ => return None,
        };
        if !def.deep.is_empty() {
            return None;
        }
        let j = def.outer.len();
        let (sum, chosen) = def.only_sum()?;
        let dtype = def.body[sum].dtype;
        let Op::Apply { f: ScalarFn::Select, args } = &def.body[chosen].op else { return None };
        let &[inside, product, zero] = &args[..] else { return None };
        if !matches!(def.body[zero].op, Op::Const(0)) {
            return None;
        }
        let Op::Apply { f: ScalarFn::Mul, args } = &def.body[product].op else { return None };
        let narrow = |k: usize| match def.body[k].op {
            Op::Convert(from, Conversion::Value) if depth > 1 => from,
            _ => k,
        };
        let &[value, x] = &args[..] else { return None };
        let (value, x) = (narrow(value), narrow(x));
        let load = |k: usize| def.load(k);
        // j < end - first
        let Op::Apply { f: ScalarFn::Lt, args } = &def.body[inside].op else { return None };
        let &[word, length] = &args[..] else { return None };
        let Op::Apply { f: ScalarFn::Sub, args } = &def.body[length].op else { return None };
        let &[end, first] = &args[..] else { return None };
        let word_var = Dim::variable(j);
        let place = Dim::statement(first) + word_var.clone();
        let start = |k: usize| match def.body[k].op {
            Op::Convert(start, Conversion::Value) => load(start),
            _ => None,
        };
        let ((first, None), (end, None)) = (start(first)?, start(end)?) else { return None };
        // Index of an element: depth · word + its position in the word.
        let of_elements = |word: Dim| match depth {
            1 => word,
            _ => word * Dim::constant(depth) + Dim::variable(j + 1),
        };
        let of_word = |access: &Access, expr: &Dim| match &access.computed[..] {
            [c] if c.expr == *expr && c.stride.is(1) => c.limit.filter(|_| is_still(access)),
            _ => None,
        };
        let ((value, Some(guarded)), (x, Some(read))) = (load(value)?, load(x)?) else { return None };
        let [row] = &x.computed[..] else { return None };
        let n_columns = row.limit?;
        let number = row.expr.statements().first().copied()?;
        let Op::Convert(column, Conversion::Value) = def.body[number].op else { return None };
        let (column, Some(under)) = load(column)? else { return None };
        let (n_words, n_values) = (of_word(column, &place)?, of_word(value, &of_elements(place.clone()))?);
        let dtypes = [&def.reads[column.buffer], &def.reads[value.buffer], &def.reads[x.buffer]].map(|s| s.dtype);
        let is_index = |access: &Access| def.reads[access.buffer].dtype == DType::I32 && access.computed.is_empty();
        let is_kind = match depth {
            1 => dtypes[1..] == [DType::F32; 2] && dtype == DType::F32,
            _ => {
                let words = n_columns.as_const().unwrap_or(i64::MAX).div_euclid(depth);
                dtypes[1..] == [DType::I8, DType::U8] && dtype == DType::I32 && row.stride.is(1) && words <= COPIED_MAX
            }
        };
        let ok = matches!(&def.body[word].op, Op::Index(d) if *d == word_var)
            && row.expr == of_elements(Dim::statement(number))
            && [guarded, read, under] == [inside; 3]
            && matches!(dtypes[0], DType::U16 | DType::I32)
            && is_kind
            && is_index(first)
            && is_index(end);
        let moves = |access: &Access| (0..j).filter(|v| access.moves_with(*v)).collect::<Vec<_>>();
        let &[n] = &moves(first)[..] else { return None };
        let starts = |access: &Access, offset: i64| {
            access.coords[0].offset.is(offset) && access.stride(n).is(1) && moves(access) == [n]
        };
        let product = Product::matched(def, n, sum, x).filter(|_| ok && starts(first, 0) && starts(end, 1))?;
        let [first, column, value] = [first, column, value].map(Access::clone);
        Some(Plan { product, depth, first, column, value, n_words, n_values, n_columns })
    }
}

/// Whether an access depends on variables only through an index from data.
fn is_still(access: &Access) -> bool {
    access.coords[0].offset.is(0) && access.coords[0].strides.iter().all(|s| s.is(0))
}

impl Plan {
    fn rows(&self) -> i64 {
        if self.depth == 1 { ROWS } else { ROWS_OF_QUADS }
    }
}

impl CpuPlan for Plan {
    fn grid(&self, def: &KernelDef) -> Dim {
        self.product.grid(def, self.rows())
    }

    /// Bytes of the tile of accumulators, and of the words of all columns if they are copied.
    fn scratch_bytes(&self, _: &KernelDef) -> Dim {
        let tile = Dim::constant(tile::bytes(self.rows()));
        match self.depth {
            1 => tile,
            depth => {
                let groups = self.n_columns.dim().ceildiv(&Dim::constant(depth * COPIED));
                tile + groups * Dim::constant(4 * tile::LANES * COPIED)
            }
        }
    }

    fn nest(&self, def: &KernelDef, _: &[i64]) -> Nest {
        self.product.nest(def, self.rows())
    }

    fn pace(&self, def: &KernelDef) -> Pace {
        let is_one = def.extent(self.product.lane).as_const().is_some_and(|n| n <= pace::LANES);
        let part = if is_one { SHARE_OF_ONE_VECTOR } else { 1.0 };
        match self.depth {
            1 => self.product.pace(def, part * SHARE, self.product.has_vectors()),
            _ => self.product.pace(def, part * SHARE_OF_QUADS, true),
        }
    }

    fn words(&self) -> Option<Words> {
        Some(if self.depth == 1 { Words::Singles } else { Words::Quads })
    }

    fn emit(&self, cx: &Cx<Mlir>, asm: &mut Mlir) {
        emit::emit(cx, asm, self);
    }
}
