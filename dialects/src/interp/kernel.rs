//! for outer { for inner { v = f(load …); s = reduce v; store … } }  =>  results: what one flow kernel means
//!
//! For each outer point the statements are evaluated one after the other: a row statement once, a point statement for
//! the whole inner space. Packed containers are given and indexed by their logical dimensions.

mod check;
mod expr;
mod table;
#[cfg(test)]
mod tests;

use super::extents;
use super::movement::strides;
use super::numbers::{Numbers, check_dtype, is_float};
use super::scalar::{apply, combine_float, combine_int, neutral_float, neutral_int};
use crate::flow::kernel::{Body, Container, Kernel, Layout, Level, Memlet, Statement};
use crate::scalar::ReduceFn;
use check::check_form;
use expr::Expr;
use sardonyx_runtime::tensor::element_count;
use sardonyx_runtime::{DType, Dim, Error, Result, Tensor};
use table::Table;

/// The results of a kernel, one per written container. Errors: E0303 for a loaded index (`$k`) out of range, E0201
/// and E0202 for extents, E0204 for a symbol without value; E0901 where the kernel itself is wrong: an index out of
/// range by construction, an element written twice or never, types that do not fit.
pub fn run_kernel(kernel: &Kernel, symbols: &dyn Fn(&str) -> Option<i64>, reads: &[Tensor]) -> Result<Vec<Tensor>> {
    run_update(kernel, symbols, reads, None)
}

/// The same where the last result begins as another tensor: the kernel writes what lies outside that one's dimensions.
pub fn run_update(
    kernel: &Kernel,
    symbols: &dyn Fn(&str) -> Option<i64>,
    reads: &[Tensor],
    update: Option<&Tensor>,
) -> Result<Vec<Tensor>> {
    check_form(kernel)?;
    let program = Program::new(kernel, symbols, reads)?;
    let mut results = kernel.writes.iter().map(|c| Written::new(c, symbols)).collect::<Result<Vec<_>>>()?;
    if let Some(tensor) = update {
        let last = results.last_mut().ok_or_else(|| Error::defect("a kernel without results updates nothing"))?;
        last.begin_as(tensor)?;
    }
    let mut outer = vec![0i64; program.outer.len()];
    let n_points: usize = program.outer.iter().product();
    for _ in 0..n_points {
        program.run_point(&outer, &mut results)?;
        advance(&mut outer, &program.outer);
    }
    results.into_iter().enumerate().map(|(i, w)| w.finish(i)).collect()
}

/// The value of each statement over the iteration space: those at row level over `outer`, those at point level over
/// `outer` and `inner`. Statements for which `wanted` is false are only computed. Errors: those of [`run_kernel`].
pub fn run_statements(
    kernel: &Kernel,
    symbols: &dyn Fn(&str) -> Option<i64>,
    reads: &[Tensor],
    wanted: &dyn Fn(usize, Level) -> bool,
) -> Result<Vec<Option<Tensor>>> {
    check_form(kernel)?;
    let program = Program::new(kernel, symbols, reads)?;
    let n_rows: usize = program.outer.iter().product();
    let of = |k: usize| match program.levels[k] {
        Level::Row => (program.outer.clone(), 1),
        Level::Point => ([&program.outer[..], &program.inner[..]].concat(), program.n_inner),
    };
    let mut kept: Vec<Option<Numbers>> = vec![];
    for (k, statement) in kernel.body.iter().enumerate() {
        let n = n_rows.saturating_mul(of(k).1);
        kept.push((wanted(k, program.levels[k])).then(|| Numbers::zeros(statement.dtype, n)));
    }
    let mut outer = vec![0i64; program.outer.len()];
    for row in 0..n_rows {
        let mut values: Vec<Numbers> = Vec::with_capacity(kernel.body.len());
        for k in 0..kernel.body.len() {
            values.push(program.statement(k, &outer, &values)?);
            if let Some(kept) = &mut kept[k] {
                put_row(kept, row, of(k).1, &values[k])?;
            }
        }
        advance(&mut outer, &program.outer);
    }
    let write =
        |(k, numbers): (usize, Option<Numbers>)| numbers.map(|n| n.write(kernel.body[k].dtype, of(k).0)).transpose();
    kept.into_iter().enumerate().map(write).collect()
}

/// The `n` points of one row.
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

/// To the next index in row-major order.
fn advance(index: &mut [i64], extents: &[usize]) {
    for d in (0..index.len()).rev() {
        index[d] += 1;
        if index[d] < extents[d] as i64 {
            return;
        }
        index[d] = 0;
    }
}

/// A kernel with its symbols replaced by values and its operands read.
struct Program<'k> {
    kernel: &'k Kernel,
    levels: Vec<Level>,
    outer: Vec<usize>,
    inner: Vec<usize>,
    n_inner: usize,
    operands: Vec<(Numbers, Vec<usize>)>,
    /// The index expressions of each statement (loads, `Index`) and of each store.
    body_index: Vec<Vec<Expr>>,
    store_index: Vec<Vec<Expr>>,
    /// Of loads whose indices fall apart.
    tables: Vec<Option<Table>>,
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
            Body::Const(_) | Body::Apply { .. } | Body::Convert(_) | Body::Reduce { .. } => Ok(vec![]),
        };
        let (outer, inner) = (extents(&kernel.outer, symbols)?, extents(&kernel.inner, symbols)?);
        let operands: Vec<(Numbers, Vec<usize>)> =
            kernel.reads.iter().zip(reads).map(operand).collect::<Result<_>>()?;
        let body_index: Vec<Vec<Expr>> = kernel.body.iter().map(of_statement).collect::<Result<_>>()?;
        let levels = kernel.levels();
        let dims = |container: usize| operands[container].1.clone();
        let table = |k: usize| Table::new(kernel, k, levels[k], &body_index[k], &inner, &dims);
        Ok(Program {
            kernel,
            n_inner: inner.iter().product(),
            tables: (0..kernel.body.len()).map(table).collect::<Result<_>>()?,
            levels,
            outer,
            inner,
            operands,
            body_index,
            store_index: kernel.stores.iter().map(|s| compile(&s.memlet.index)).collect::<Result<_>>()?,
        })
    }

    fn run_point(&self, outer: &[i64], results: &mut [Written]) -> Result<()> {
        let mut values: Vec<Numbers> = Vec::with_capacity(self.kernel.body.len());
        for k in 0..self.kernel.body.len() {
            let value = self.statement(k, outer, &values)?;
            values.push(value);
        }
        for (store, index) in self.kernel.stores.iter().zip(&self.store_index) {
            let result = &mut results[store.memlet.container];
            self.each_point(self.levels[store.value], outer, &mut |vars, p| {
                let at = self.offset(&store.memlet, index, &result.dims, vars, &values, p)?;
                result.put(at, &values[store.value], p, store.memlet.container)
            })?;
        }
        Ok(())
    }

    /// The value of statement `k`: one element at row level, one per inner point at point level.
    fn statement(&self, k: usize, outer: &[i64], values: &[Numbers]) -> Result<Numbers> {
        let Statement { body, dtype } = &self.kernel.body[k];
        let level = self.levels[k];
        let n = if level == Level::Row { 1 } else { self.n_inner };
        Ok(match body {
            Body::Load { memlet, guard } => self.load(k, memlet, *guard, outer, values)?,
            Body::Const(c) if is_float(*dtype) => Numbers::Float(vec![*c]).rounded(*dtype),
            Body::Const(c) => Numbers::Int(vec![*c as i128]),
            Body::Index(_) => {
                let mut out = Vec::with_capacity(n);
                self.each_point(level, outer, &mut |vars, p| {
                    out.push(self.body_index[k][0].eval(vars, &|k| index_value(values, k, p))?.into());
                    Ok(())
                })?;
                Numbers::Int(out)
            }
            Body::Apply { f, args } => {
                let args: Vec<&Numbers> = args.iter().map(|&a| &values[a]).collect();
                apply(*f, &args, n)?.rounded(*dtype)
            }
            Body::Convert(a) => values[*a].clone().converted(*dtype),
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
        if let Some(out) = self.gathered(k, operand, dims, outer)? {
            return Ok(out);
        }
        let mut out = Numbers::zeros(self.kernel.body[k].dtype, if level == Level::Row { 1 } else { self.n_inner });
        self.each_point(level, outer, &mut |vars, p| {
            if guard.is_some_and(|g| index_value(values, g, p) == 0) {
                return Ok(());
            }
            let at = self.offset(memlet, &self.body_index[k], dims, vars, values, p)?;
            match (&mut out, operand) {
                (Numbers::Float(out), Numbers::Float(x)) => out[p] = x[at],
                (Numbers::Int(out), Numbers::Int(x)) => out[p] = x[at],
                _ => return Err(Error::defect("a load of another type")),
            }
            Ok(())
        })?;
        Ok(out)
    }

    /// The same by the table, where the load has one. `None` also where an index is out of range, for `load` to say so.
    fn gathered(&self, k: usize, operand: &Numbers, dims: &[usize], outer: &[i64]) -> Result<Option<Numbers>> {
        let Some(table) = &self.tables[k] else { return Ok(None) };
        let vars = [outer, &vec![0; self.inner.len()][..]].concat();
        let Some(start) = table.start(&self.body_index[k], dims, &vars)? else { return Ok(None) };
        let places = table.offsets.iter().map(|offset| (start + offset) as usize);
        Ok(Some(match operand {
            Numbers::Float(x) => Numbers::Float(places.map(|at| x[at]).collect()),
            Numbers::Int(x) => Numbers::Int(places.map(|at| x[at]).collect()),
        }))
    }

    fn reduce(&self, f: ReduceFn, arg: usize, dtype: DType, values: &[Numbers]) -> Result<Numbers> {
        // A row value counts once per inner point.
        let points = 0..self.n_inner;
        let out = match &values[arg] {
            Numbers::Float(x) => {
                let combine = combine_float(f);
                Numbers::Float(vec![points.fold(neutral_float(f), |s, p| combine(s, element(x, p)))])
            }
            Numbers::Int(x) => {
                let combine = combine_int(f);
                Numbers::Int(vec![points.fold(neutral_int(f, dtype)?, |s, p| combine(s, element(x, p)))])
            }
        };
        Ok(out.rounded(dtype))
    }

    /// Calls `each(variables, p)` once at row level, with the inner variables 0; else for each inner point `p`.
    fn each_point(&self, level: Level, outer: &[i64], each: &mut dyn FnMut(&[i64], usize) -> Result<()>) -> Result<()> {
        let mut vars = [outer, &vec![0; self.inner.len()][..]].concat();
        for p in 0..if level == Level::Row { 1 } else { self.n_inner } {
            each(&vars, p)?;
            advance(&mut vars[outer.len()..], &self.inner);
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
        p: usize,
    ) -> Result<usize> {
        let mut at = 0;
        for (d, (expr, &n)) in index.iter().zip(dims).enumerate() {
            let i = expr.eval(vars, &|k| index_value(values, k, p))?;
            if !(0..n as i64).contains(&i) {
                let text = &memlet.index[d];
                let message = format!("the index `{text}` is {i}, out of range 0..{n} of dimension {d}");
                let from_data = text.symbols().iter().any(|s| s.starts_with('$'));
                return Err(if from_data { Error::user("E0303", message) } else { Error::defect(message) });
            }
            at = at * n + i as usize;
        }
        Ok(at)
    }
}

/// Element `p`, where a row value is the same at every point.
fn element<T: Copy>(value: &[T], p: usize) -> T {
    if value.len() == 1 { value[0] } else { value[p] }
}

/// Statement `k` at point `p` as an index; the form of the kernel has been checked, so it is an integer.
fn index_value(values: &[Numbers], k: usize, p: usize) -> i64 {
    match &values[k] {
        Numbers::Int(x) => element(x, p) as i64,
        Numbers::Float(_) => 0,
    }
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

    /// Takes over a tensor that is nowhere larger.
    fn begin_as(&mut self, tensor: &Tensor) -> Result<()> {
        let fits = tensor.dtype() == self.dtype
            && tensor.rank() == self.dims.len()
            && tensor.dims().iter().zip(&self.dims).all(|(a, b)| a <= b);
        if !fits {
            let message =
                format!("{} {:?} does not begin {} {:?}", tensor.dtype(), tensor.dims(), self.dtype, self.dims);
            return Err(Error::defect(message));
        }
        let values = Numbers::read(tensor)?;
        let mut from = 0;
        let mut put = |at: usize| {
            self.done[at] = true;
            match (&mut self.values, &values) {
                (Numbers::Float(out), Numbers::Float(x)) => out[at] = x[from],
                (Numbers::Int(out), Numbers::Int(x)) => out[at] = x[from],
                // One element type has one kind of numbers.
                (Numbers::Float(_), Numbers::Int(_)) | (Numbers::Int(_), Numbers::Float(_)) => {}
            }
            from += 1;
        };
        super::movement::walk(tensor.dims(), 0, &strides(&self.dims), &mut put);
        Ok(())
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
    match &container.layout {
        Layout::RowMajor | Layout::Capacity { .. } => {}
        Layout::Panels { width } => {
            if container.dims.len() != 2 || *width == 0 {
                return Err(Error::defect("panels hold a matrix and have a width"));
            }
        }
    }
    extents(&container.dims, symbols)
}
