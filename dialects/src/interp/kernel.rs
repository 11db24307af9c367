//! for outer { for inner { v = f(load …); s = reduce v; store … } }  =>  results: the semantics of a flow kernel
//!
//! For each outer point the statements are evaluated in order: a row statement once, a point statement for the whole
//! inner space, a deep statement for the whole inner and deep space. A statement is evaluated again only when an outer
//! variable that it depends on has changed. Packed containers are passed and indexed by their logical dimensions.

mod check;
mod expr;
mod table;
#[cfg(test)]
mod tests;

use super::extents;
use super::movement::strides;
use super::numbers::{Numbers, check_dtype, is_float};
use super::scalar::{apply, combine_float, combine_int, neutral_float, neutral_int};
use crate::flow::kernel::{Body, Container, Kernel, Level, Memlet, Statement};
use crate::scalar::{ReduceFn, ScalarFn};
use check::check_form;
use expr::Expr;
use sardonyx_base::dim::Symbol;
use sardonyx_base::tensor::element_count;
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use std::borrow::Cow;
use std::cell::Cell;
use table::Table;

/// Number of distinct elements that one run of a kernel reads of each operand, and writes of each result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Number of distinct elements read of each operand, in the order of [`Kernel::reads`].
    pub reads: Vec<usize>,
    /// Number of distinct elements written of each result, in the order of [`Kernel::writes`].
    pub writes: Vec<usize>,
}

/// Computes the results of a kernel, one per written container. Errors: E0303 for a loaded index (`$k`) out of range,
/// E0201 and E0202 for extents, E0204 for a symbol without a value; E0901 if the kernel itself is wrong: an index out
/// of range by construction, an element written twice or never, mismatched types.
pub fn run_kernel(kernel: &Kernel, symbols: &dyn Fn(&str) -> Option<i64>, reads: &[Tensor]) -> Result<Vec<Tensor>> {
    run_counted(kernel, symbols, reads, None)
}

/// Like [`run_kernel`], and counts the touched elements if `count` is present.
pub fn run_counted(
    kernel: &Kernel,
    symbols: &dyn Fn(&str) -> Option<i64>,
    reads: &[Tensor],
    count: Option<&mut Touched>,
) -> Result<Vec<Tensor>> {
    check_form(kernel)?;
    let mut program = Program::new(kernel, symbols, reads)?;
    if count.is_some() {
        program.seen = reads.iter().map(|t| vec![Cell::new(false); t.len()]).collect();
    }
    let mut results = kernel.writes.iter().map(|c| Written::new(c, symbols)).collect::<Result<Vec<_>>>()?;
    let mut outer = vec![0i64; program.outer.len()];
    let n_points: usize = program.outer.iter().product();
    let (mut values, mut moved) = (vec![], 0);
    for _ in 0..n_points {
        program.run_point(&outer, moved, &mut values, &mut results)?;
        moved = advance(&mut outer, &program.outer);
    }
    if let Some(count) = count {
        let marked = |seen: &Vec<Cell<bool>>| seen.iter().filter(|s| s.get()).count();
        count.reads = program.seen.iter().map(marked).collect();
        count.writes = results.iter().map(|w| w.done.iter().filter(|done| **done).count()).collect();
    }
    results.into_iter().enumerate().map(|(i, w)| w.finish(i)).collect()
}

/// The value of each statement over the iteration space: row statements over `outer`, point statements over `outer` and
/// `inner`, deep statements over all three. Values of statements for which `wanted` is false are not returned. Errors:
/// those of [`run_kernel`].
pub fn run_statements(
    kernel: &Kernel,
    symbols: &dyn Fn(&str) -> Option<i64>,
    reads: &[Tensor],
    wanted: &dyn Fn(usize, Level) -> bool,
) -> Result<Vec<Option<Tensor>>> {
    check_form(kernel)?;
    let program = Program::new(kernel, symbols, reads)?;
    let n_rows: usize = program.outer.iter().product();
    let mut kept: Vec<Option<Numbers>> = vec![];
    for (k, statement) in kernel.body.iter().enumerate() {
        let level = program.levels[k];
        let n = n_rows.saturating_mul(program.count(level));
        kept.push(wanted(k, level).then(|| Numbers::zeros(statement.dtype, n)));
    }
    let mut outer = vec![0i64; program.outer.len()];
    let (mut values, mut moved) = (vec![], 0);
    for row in 0..n_rows {
        program.evaluate(&outer, moved, &mut values)?;
        for (k, kept) in kept.iter_mut().enumerate() {
            if let Some(kept) = kept {
                put_row(kept, row, program.count(program.levels[k]), &values[k])?;
            }
        }
        moved = advance(&mut outer, &program.outer);
    }
    let write = |(k, numbers): (usize, Option<Numbers>)| {
        let dims = [&program.outer[..], program.walked_at(program.levels[k])].concat();
        numbers.map(|n| n.write(kernel.body[k].dtype, dims)).transpose()
    };
    kept.into_iter().enumerate().map(write).collect()
}

/// Stores the values of one row, which has `n` points, among those of all rows.
fn put_row(kept: &mut Numbers, row: usize, n: usize, value: &Numbers) -> Result<()> {
    let points = row * n..(row + 1) * n;
    match (kept, value) {
        (Numbers::Float(out), Numbers::Float(x)) => points.zip(0..n).for_each(|(at, p)| out[at] = element(x, p)),
        (Numbers::Int(out), Numbers::Int(x)) => points.zip(0..n).for_each(|(at, p)| out[at] = element(x, p)),
        (Numbers::Float(_), Numbers::Int(_)) | (Numbers::Int(_), Numbers::Float(_)) => {
            return Err(Error::defect("a statement of another type"));
        }
    }
    Ok(())
}

/// Advances to the next index in row-major order; returns the outermost dimension that changes, 0 after the last index.
fn advance(index: &mut [i64], extents: &[usize]) -> usize {
    for d in (0..index.len()).rev() {
        index[d] += 1;
        if index[d] < extents[d] as i64 {
            return d;
        }
        index[d] = 0;
    }
    0
}

/// Whether a statement is a product of floats that only sums use.
fn is_summed(kernel: &Kernel, k: usize) -> bool {
    let Statement { body, dtype } = &kernel.body[k];
    let read_otherwise = |s: &Statement| match &s.body {
        Body::Apply { args, .. } => args.contains(&k),
        Body::Convert(a, _) => *a == k,
        Body::Reduce { f, arg } => *arg == k && *f != ReduceFn::Add,
        Body::Load { .. } | Body::Const(_) | Body::Index(_) => false,
    };
    matches!(body, Body::Apply { f: ScalarFn::Mul, .. })
        && is_float(*dtype)
        && !kernel.body.iter().any(read_otherwise)
        && kernel.stores.iter().all(|store| store.value != k)
}

/// A kernel with its symbols replaced by values, and its operands.
struct Program<'k> {
    kernel: &'k Kernel,
    levels: Vec<Level>,
    /// Products that only sums use: these are not rounded to types narrower than f32.
    summed: Vec<bool>,
    /// The last outer variable on which each statement depends, counted from 1; 0 if there is none.
    last_outer: Vec<usize>,
    outer: Vec<usize>,
    /// The inner extents, followed by the deep ones.
    walked: Vec<usize>,
    n_inner: usize,
    n_deep: usize,
    operands: Vec<(Numbers, Vec<usize>)>,
    /// Offset tables of the loads whose indices separate into an outer and an inner part.
    tables: Vec<Option<Table>>,
    /// For each operand, which elements have been read; empty unless they are counted.
    seen: Vec<Vec<Cell<bool>>>,
    /// The index expressions of each statement (loads, `Index`) and of each store.
    body_index: Vec<Vec<Expr>>,
    store_index: Vec<Vec<Expr>>,
}

impl<'k> Program<'k> {
    fn new(kernel: &'k Kernel, symbols: &dyn Fn(&str) -> Option<i64>, reads: &[Tensor]) -> Result<Program<'k>> {
        if reads.len() != kernel.reads.len() {
            return Err(Error::defect(format!("{} operands, not {}", reads.len(), kernel.reads.len())));
        }
        let operand = |(c, t): (&Container, &Tensor)| {
            let dims = container_dims(c, symbols)?;
            if t.dtype() != c.dtype || t.dims() != dims {
                let message = format!("an operand is {} {:?}, not {} {dims:?}", t.dtype(), t.dims(), c.dtype);
                return Err(Error::defect(message));
            }
            Ok((Numbers::read(t)?, dims))
        };
        let compile = |dims: &[Dim]| dims.iter().map(|d| Expr::new(d, symbols)).collect::<Result<Vec<Expr>>>();
        let of_statement = |s: &Statement| match &s.body {
            Body::Load { memlet, .. } => compile(&memlet.index),
            Body::Index(d) => compile(std::slice::from_ref(d)),
            Body::Const(_) | Body::Apply { .. } | Body::Convert(_, _) | Body::Reduce { .. } => Ok(vec![]),
        };
        let (outer, inner) = (extents(&kernel.outer, symbols)?, extents(&kernel.inner, symbols)?);
        let deep = extents(&kernel.deep, symbols)?;
        let operands: Vec<(Numbers, Vec<usize>)> =
            kernel.reads.iter().zip(reads).map(operand).collect::<Result<_>>()?;
        let mut program = Program {
            kernel,
            levels: kernel.levels(),
            summed: (0..kernel.body.len()).map(|k| is_summed(kernel, k)).collect(),
            last_outer: last_outer(kernel),
            n_inner: inner.iter().product(),
            n_deep: deep.iter().product(),
            outer,
            walked: [inner, deep].concat(),
            operands,
            tables: vec![],
            seen: vec![],
            body_index: kernel.body.iter().map(of_statement).collect::<Result<_>>()?,
            store_index: kernel.stores.iter().map(|s| compile(&s.memlet.index)).collect::<Result<_>>()?,
        };
        let dims = |container: usize| program.operands[container].1.clone();
        let table =
            |k: usize| Table::new(kernel, k, &program.body_index[k], program.walked_at(program.levels[k]), &dims);
        program.tables = (0..kernel.body.len()).map(table).collect::<Result<_>>()?;
        Ok(program)
    }

    /// Computes one outer point and writes its results. On entry, `values` are those of the previous point, which
    /// differs in outer variable `moved` and possibly in later ones.
    fn run_point(&self, outer: &[i64], moved: usize, values: &mut Vec<Numbers>, results: &mut [Written]) -> Result<()> {
        self.evaluate(outer, moved, values)?;
        for (store, index) in self.kernel.stores.iter().zip(&self.store_index) {
            let result = &mut results[store.memlet.container];
            self.each_point(self.levels[store.value], outer, &mut |vars, p| {
                let level = self.levels[store.value];
                let at = self.offset(&store.memlet, index, &result.dims, vars, values, (level, p))?;
                result.put(at, &values[store.value], p, store.memlet.container)
            })?;
        }
        Ok(())
    }

    fn evaluate(&self, outer: &[i64], moved: usize, values: &mut Vec<Numbers>) -> Result<()> {
        for k in 0..self.kernel.body.len() {
            if k == values.len() {
                values.push(self.statement(k, outer, values)?);
            } else if self.last_outer[k] > moved {
                values[k] = self.statement(k, outer, values)?;
            }
        }
        Ok(())
    }

    /// Extents of the space that the points of a level iterate over.
    fn walked_at(&self, level: Level) -> &[usize] {
        match level {
            Level::Row => &[],
            Level::Point => &self.walked[..self.kernel.inner.len()],
            Level::Deep => &self.walked,
        }
    }

    /// Number of values of a statement of a level.
    fn count(&self, level: Level) -> usize {
        match level {
            Level::Row => 1,
            Level::Point => self.n_inner,
            Level::Deep => self.n_inner * self.n_deep,
        }
    }

    /// Position of the value of statement `k` that applies at point `p` of its own or a deeper level.
    fn at(&self, k: usize, (level, p): (Level, usize)) -> usize {
        match self.levels[k] {
            Level::Row => 0,
            Level::Point if level == Level::Deep => p / self.n_deep,
            Level::Point | Level::Deep => p,
        }
    }

    /// The values of statement `k` at the points of `level`; values that are the same at all points are not repeated.
    fn spread<'v>(&self, k: usize, level: Level, values: &'v [Numbers]) -> Cow<'v, Numbers> {
        if self.levels[k] != Level::Point || level != Level::Deep {
            return Cow::Borrowed(&values[k]);
        }
        let points = 0..self.count(level);
        Cow::Owned(match &values[k] {
            Numbers::Float(x) => Numbers::Float(points.map(|p| x[p / self.n_deep]).collect()),
            Numbers::Int(x) => Numbers::Int(points.map(|p| x[p / self.n_deep]).collect()),
        })
    }

    /// The values of statement `k`: one at row level, one per inner point at point level, one per deep point at deep
    /// level.
    fn statement(&self, k: usize, outer: &[i64], values: &[Numbers]) -> Result<Numbers> {
        let Statement { body, dtype } = &self.kernel.body[k];
        let level = self.levels[k];
        let n = self.count(level);
        Ok(match body {
            Body::Load { memlet, guard } => self.load(k, memlet, *guard, outer, values)?,
            Body::Const(c) if is_float(*dtype) => Numbers::Float(vec![*c]).rounded(*dtype),
            Body::Const(c) => Numbers::Int(vec![*c as i128]),
            Body::Index(_) => {
                let mut out = Vec::with_capacity(n);
                self.each_point(level, outer, &mut |vars, p| {
                    out.push(self.body_index[k][0].eval(vars, &|k| self.index_value(values, k, (level, p)))?.into());
                    Ok(())
                })?;
                Numbers::Int(out)
            }
            Body::Apply { f, args } => {
                let args: Vec<Cow<Numbers>> = args.iter().map(|&a| self.spread(a, level, values)).collect();
                let value = apply(*f, &args.iter().map(Cow::as_ref).collect::<Vec<_>>(), n)?;
                if self.summed[k] && dtype.bits() < 32 { value } else { value.rounded(*dtype) }
            }
            Body::Convert(a, how) => values[*a].clone().converted_as(*how, self.kernel.body[*a].dtype, *dtype)?,
            Body::Reduce { f, arg } => self.reduce(*f, *arg, *dtype, values)?,
        })
    }

    fn load(
        &self,
        k: usize,
        memlet: &Memlet,
        guard: Option<usize>,
        outer: &[i64],
        values: &[Numbers],
    ) -> Result<Numbers> {
        let (operand, dims) = &self.operands[memlet.container];
        let level = self.levels[k];
        if self.seen.is_empty()
            && let Some(out) = self.gathered(k, operand, dims, outer)?
        {
            return Ok(out);
        }
        let mut out = Numbers::zeros(self.kernel.body[k].dtype, self.count(level));
        self.each_point(level, outer, &mut |vars, p| {
            if guard.is_some_and(|g| self.index_value(values, g, (level, p)) == 0) {
                return Ok(());
            }
            let at = self.offset(memlet, &self.body_index[k], dims, vars, values, (level, p))?;
            if let Some(seen) = self.seen.get(memlet.container) {
                seen[at].set(true);
            }
            match (&mut out, operand) {
                (Numbers::Float(out), Numbers::Float(x)) => out[p] = x[at],
                (Numbers::Int(out), Numbers::Int(x)) => out[p] = x[at],
                _ => return Err(Error::defect("a load of another type")),
            }
            Ok(())
        })?;
        Ok(out)
    }

    /// Loads by the offset table of statement `k`. `None` if it has none, or if an index is out of range, which `load`
    /// then reports.
    fn gathered(&self, k: usize, operand: &Numbers, dims: &[usize], outer: &[i64]) -> Result<Option<Numbers>> {
        let Some(table) = &self.tables[k] else { return Ok(None) };
        let vars = [outer, &vec![0; self.walked.len()][..]].concat();
        let Some(start) = table.start(&self.body_index[k], dims, &vars)? else { return Ok(None) };
        let places = table.offsets.iter().map(|offset| (start + offset) as usize);
        Ok(Some(match operand {
            Numbers::Float(x) => Numbers::Float(places.map(|at| x[at]).collect()),
            Numbers::Int(x) => Numbers::Int(places.map(|at| x[at]).collect()),
        }))
    }

    fn reduce(&self, f: ReduceFn, arg: usize, dtype: DType, values: &[Numbers]) -> Result<Numbers> {
        let (n, each) = match self.levels[arg] {
            Level::Deep => (self.n_inner, self.n_deep),
            // A row value is combined once per inner point.
            Level::Row | Level::Point => (1, self.n_inner),
        };
        let points = |i: usize| i * each..(i + 1) * each;
        let out = match &values[arg] {
            Numbers::Float(x) => {
                let combine = combine_float(f);
                let one = |i| points(i).fold(neutral_float(f), |s, p| combine(s, element(x, p)));
                Numbers::Float((0..n).map(one).collect())
            }
            Numbers::Int(x) => {
                let (combine, neutral) = (combine_int(f), neutral_int(f, dtype)?);
                let one = |i| points(i).fold(neutral, |s, p| combine(s, element(x, p)));
                Numbers::Int((0..n).map(one).collect())
            }
        };
        Ok(out.rounded(dtype))
    }

    /// Calls `each(variables, p)` for each point `p` of a level, with the variables of deeper levels set to 0.
    fn each_point(&self, level: Level, outer: &[i64], each: &mut dyn FnMut(&[i64], usize) -> Result<()>) -> Result<()> {
        let mut vars = [outer, &vec![0; self.walked.len()][..]].concat();
        let walked = self.walked_at(level);
        for p in 0..self.count(level) {
            each(&vars, p)?;
            advance(&mut vars[outer.len()..][..walked.len()], walked);
        }
        Ok(())
    }

    fn offset(
        &self,
        memlet: &Memlet,
        index: &[Expr],
        dims: &[usize],
        vars: &[i64],
        values: &[Numbers],
        point: (Level, usize),
    ) -> Result<usize> {
        let mut at = 0;
        for (d, (expr, &n)) in index.iter().zip(dims).enumerate() {
            let i = expr.eval(vars, &|k| self.index_value(values, k, point))?;
            if !(0..n as i64).contains(&i) {
                let text = &memlet.index[d];
                let message = format!("the index `{text}` is {i}, out of range 0..{n} of dimension {d}");
                let from_data = !text.statements().is_empty();
                return Err(if from_data { Error::user("E0303", message) } else { Error::defect(message) });
            }
            at = at * n + i as usize;
        }
        Ok(at)
    }

    /// The value of statement `k` at a point as an index; `check_form` has ensured that it is an integer.
    fn index_value(&self, values: &[Numbers], k: usize, point: (Level, usize)) -> i64 {
        match &values[k] {
            Numbers::Int(x) => element(x, self.at(k, point)) as i64,
            Numbers::Float(_) => 0,
        }
    }
}

/// The last outer variable on which each statement depends, counted from 1; 0 if there is none.
fn last_outer(kernel: &Kernel) -> Vec<usize> {
    let mut last: Vec<usize> = vec![];
    for statement in &kernel.body {
        let of_dims = |dims: &[Dim]| {
            let variable = |symbol| match symbol {
                Symbol::Variable(i) if i < kernel.outer.len() => i + 1,
                Symbol::Statement(k) => last[k],
                _ => 0,
            };
            dims.iter().flat_map(|d| d.symbols()).map(variable).max().unwrap_or(0)
        };
        let value = match &statement.body {
            Body::Load { memlet, guard } => of_dims(&memlet.index).max(guard.map_or(0, |g| last[g])),
            Body::Const(_) => 0,
            Body::Index(d) => of_dims(std::slice::from_ref(d)),
            Body::Apply { args, .. } => args.iter().map(|a| last[*a]).max().unwrap_or(0),
            Body::Convert(a, _) | Body::Reduce { arg: a, .. } => last[*a],
        };
        last.push(value);
    }
    last
}

/// Element `p`; a single value is the same at every point.
fn element<T: Copy>(value: &[T], p: usize) -> T {
    if value.len() == 1 { value[0] } else { value[p] }
}

/// A result under construction.
struct Written {
    dtype: DType,
    dims: Vec<usize>,
    values: Numbers,
    done: Vec<bool>,
}

impl Written {
    fn new(container: &Container, symbols: &dyn Fn(&str) -> Option<i64>) -> Result<Written> {
        let dims = container_dims(container, symbols)?;
        let n = element_count(&dims).unwrap_or(0);
        Ok(Written { dtype: container.dtype, dims, values: Numbers::zeros(container.dtype, n), done: vec![false; n] })
    }

    fn put(&mut self, at: usize, value: &Numbers, p: usize, result: usize) -> Result<()> {
        if std::mem::replace(&mut self.done[at], true) {
            return Err(Error::defect(format!("element {at} of result {result} is written twice")));
        }
        match (&mut self.values, value) {
            (Numbers::Float(out), Numbers::Float(x)) => out[at] = element(x, p),
            (Numbers::Int(out), Numbers::Int(x)) => out[at] = element(x, p),
            _ => return Err(Error::defect(format!("result {result} is written with another type"))),
        }
        Ok(())
    }

    fn finish(self, result: usize) -> Result<Tensor> {
        if let Some(at) = self.done.iter().position(|done| !done) {
            let strides = strides(&self.dims);
            let index: Vec<usize> = strides.iter().zip(&self.dims).map(|(&s, &n)| at / s as usize % n).collect();
            return Err(Error::defect(format!("element {index:?} of result {result} is never written")));
        }
        self.values.write(self.dtype, self.dims)
    }
}

fn container_dims(container: &Container, symbols: &dyn Fn(&str) -> Option<i64>) -> Result<Vec<usize>> {
    check_dtype(container.dtype)?;
    if let Some(why) = container.encoding.refuses(&container.dims) {
        return Err(Error::defect(why));
    }
    extents(&container.dims, symbols)
}
