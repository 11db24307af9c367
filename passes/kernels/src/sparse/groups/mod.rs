//! y[r, t] = f(Σ value[c, r / m, q, u] · x[width · c + column[c, r / m, q / n, u], t])  =>  n products per load of x
//!
//! The matrix has chunks c of `width` columns, and blocks of m rows r. A column of a chunk has values in n of the m
//! rows of a block (its pattern), and columns are sorted by their patterns, each of which has slots u for g columns
//! (n:m:g). q is the position of the row's value among the n values of each pattern, counted over all patterns. The
//! vectors of a column are loaded once for all of its rows, whose accumulators stay in registers as long as the
//! pattern does not change. The dense operand's rows for a chunk of columns are copied next to each other, so that
//! they stay in the cache for all blocks of rows.

mod emit;

use super::product::Product;
use super::tile;
use crate::asm::Mlir;
use crate::cpu::CpuPlan;
use crate::cx::Cx;
use crate::def::*;
use crate::nest::Nest;
use crate::pace::Pace;
use crate::words::Words;
use sardonyx_base::dim::Symbol;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::sparse::{patterns, places_of_rows};
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use std::sync::Arc;

/// Maximum number of rows of a work item.
const ROWS_MAX: i64 = 128;
/// Maximum number of columns of a chunk.
const WIDTH_MAX: i64 = 1 << 10;

/// Share of a dense contraction's rate at which stored values are multiplied.
const SHARE: f64 = 0.8;

/// Parts of a product with an n:m:g matrix.
#[derive(Debug)]
pub struct Plan {
    product: Product,
    value: Access,
    column: Access,
    /// Elements of the values, and of the columns, from one chunk to the next and from one block of rows to the next.
    value_strides: [i64; 2],
    column_strides: [i64; 2],
    /// Rows of a block that each pattern has values in.
    patterns: Vec<Vec<usize>>,
    /// Table of the patterns in memory: for each row of a block, the positions of its values among those of all
    /// patterns.
    table: Access,
    numbers: Vec<u8>,
    m: i64,
    /// Number of columns of a pattern, of a chunk, and of the matrix.
    g: i64,
    width: i64,
    n_columns: Size,
    chunks: i64,
}

pub fn planned(def: &KernelDef) -> Option<Arc<dyn CpuPlan>> {
    Some(Arc::new(Plan::matched(def)?))
}

impl Plan {
    fn matched(def: &KernelDef) -> Option<Plan> {
        if def.inner.is_empty() || !def.deep.is_empty() {
            return None;
        }
        let (sum, product) = def.only_sum().filter(|(sum, _)| def.body[*sum].dtype == DType::F32)?;
        let Op::Apply { f: ScalarFn::Mul, args } = &def.body[product].op else { return None };
        let &[value, x] = &args[..] else { return None };
        let plain = |k: usize| def.load(k).and_then(|(access, guard)| guard.is_none().then_some(access));
        let number = |k: usize| match def.body[k].op {
            Op::Convert(from, Conversion::Value) => plain(from),
            _ => None,
        };
        let (value, x) = (plain(value)?, plain(x)?);
        // In value[c, r / m, $pattern, u], the block of rows and the pattern are computed parts.
        let [value_block, value_pattern] = &value.computed[..] else { return None };
        let pattern = value_pattern.expr.statements().first().copied()?;
        let table = number(pattern)?;
        let [x_column] = &x.computed[..] else { return None };
        let found = x_column.expr.statements().first().copied()?;
        let column = number(found)?;
        let [column_block, column_pattern] = &column.computed[..] else { return None };
        let [table_row] = &table.computed[..] else { return None };

        let places = value_pattern.limit?.as_const()?;
        let n_patterns = column_pattern.limit?.as_const()?;
        let n = places.checked_div(n_patterns)?;
        let each = table_row.stride.as_const()?;
        let m = places.checked_div(each)?;
        let g = value_pattern.stride.as_const()?;
        let patterns = patterns(usize::try_from(n).ok()?, usize::try_from(m).ok()?)?;
        let row = table_row.expr.variables().first().copied()?;
        let (row_dim, pattern_dim) = (Dim::variable(row), Dim::statement(pattern));
        let by = |n: i64| Dim::constant(n);
        let inner = def.outer.len()..def.n_vars();
        // Variables of extent 1 do not occur.
        let (chunk_var, width) = match inner.clone().find(|v| x_column.expr.variables().contains(v)) {
            Some(v) => (Some(v), x_column.expr.linear_in(&Symbol::Variable(v))?.0.as_const()?),
            None => (None, x_column.limit?.as_const()?),
        };
        let chunks = chunk_var.map_or(Some(1), |v| def.extent(v).as_const())?;
        let place_var = (g > 1).then(|| inner.clone().find(|v| value.stride(*v).is(1))).flatten();
        let pattern_var = (each > 1).then(|| inner.clone().find(|v| table.stride(*v).is(1))).flatten();
        let vars: Vec<usize> = [chunk_var, pattern_var, place_var].into_iter().flatten().collect();
        let steps = |access: &Access, block: &Computed| -> Option<[i64; 2]> {
            let chunk = chunk_var.map_or(Some(0), |v| access.stride(v).as_const())?;
            Some([chunk, block.stride.as_const()?])
        };
        let set = |vars: &mut dyn Iterator<Item = usize>| vars.fold(0u64, |set, v| set | 1 << v);
        let is_moved_by = |access: &Access, by: &[Option<usize>]| {
            let moving = set(&mut (0..def.n_vars()).filter(|v| access.moves_with(*v)));
            moving == set(&mut by.iter().flatten().copied()) && access.coords[0].offset.is(0)
        };
        let chunk_part = chunk_var.map_or(Dim::constant(0), |v| Dim::variable(v) * by(width));
        let ok = patterns.len() as i64 == n_patterns
            && (patterns.len() * n as usize) as i64 == each * m
            && vars.len() == inner.len()
            && row < def.outer.len()
            && table_row.expr == row_dim.modulo(&by(m))
            && [value_block, column_block].iter().all(|block| block.expr == row_dim.floordiv(&by(m)))
            && value_pattern.expr == pattern_dim
            && column_pattern.expr == pattern_dim.floordiv(&by(n))
            && column_pattern.stride.is(g)
            && x_column.expr == chunk_part + Dim::statement(found)
            && is_moved_by(value, &[chunk_var, place_var])
            && is_moved_by(column, &[chunk_var, place_var])
            && is_moved_by(table, &[pattern_var])
            && place_var.is_none_or(|v| column.stride(v).is(1) && def.extent(v).is(g))
            && pattern_var.is_none_or(|v| def.extent(v).is(each))
            && [&def.reads[table.buffer], &def.reads[value.buffer], &def.reads[x.buffer]].map(|s| s.dtype)
                == [DType::U8, DType::F32, DType::F32]
            && matches!(def.reads[column.buffer].dtype, DType::U8 | DType::U16)
            && (1..=WIDTH_MAX).contains(&width);
        let product = Product::matched(def, row, sum, x).filter(|_| ok)?;
        Some(Plan {
            product,
            value_strides: steps(value, value_block)?,
            column_strides: steps(column, column_block)?,
            value: value.clone(),
            column: column.clone(),
            table: table.clone(),
            numbers: places_of_rows(&patterns, m as usize),
            patterns,
            m,
            g,
            width,
            n_columns: x_column.limit?,
            chunks,
        })
    }

    /// Number of rows of a work item: whole blocks.
    fn rows(&self) -> i64 {
        ROWS_MAX.div_euclid(self.m) * self.m
    }
}

impl CpuPlan for Plan {
    fn grid(&self, def: &KernelDef) -> Dim {
        self.product.grid(def, self.rows())
    }

    /// Bytes of the tile of accumulators, and of the dense operand's vectors for a chunk of columns.
    fn scratch_bytes(&self, _: &KernelDef) -> Dim {
        Dim::constant(tile::bytes(self.rows()) + 4 * tile::LANES * self.width)
    }

    fn nest(&self, def: &KernelDef, _: &[i64]) -> Nest {
        self.product.nest(def, self.rows())
    }

    fn pace(&self, def: &KernelDef) -> Pace {
        self.product.pace(def, SHARE, self.product.has_vectors())
    }

    fn words(&self) -> Option<Words> {
        Some(Words::Singles)
    }

    fn emit(&self, cx: &Cx<Mlir>, asm: &mut Mlir) {
        emit::emit(cx, asm, self);
    }
}
