//! x[f(outer) + g(inner)]  =>  the offsets g of a load at all inner points, computed once
//!
//! Without the table, the index expressions of a load are evaluated at every inner point of every outer point.

use super::advance;
use super::expr::Expr;
use crate::flow::kernel::{Body, Kernel};
use sardonyx_base::{Dim, Result};

pub struct Table {
    /// The offset, in elements, that each inner point adds to the offset at the outer point.
    pub offsets: Vec<i64>,
    /// For each index, the least and the greatest value that the inner points add to it.
    ranges: Vec<(i64, i64)>,
}

impl Table {
    /// Computes the table of statement `k` over the extents `walked` of the inner variables. `None` if the statement is
    /// not a load without a guard, if there are no inner points, or if an index depends on data or is not the sum of a
    /// function of the outer variables and a function of the inner variables.
    pub fn new(
        kernel: &Kernel,
        k: usize,
        index: &[Expr],
        walked: &[usize],
        dims: &dyn Fn(usize) -> Vec<usize>,
    ) -> Result<Option<Table>> {
        let Body::Load { memlet, guard: None } = &kernel.body[k].body else { return Ok(None) };
        let n_walked: usize = walked.iter().product();
        if walked.is_empty() || n_walked == 0 || !memlet.index.iter().all(|d| falls_apart(d, kernel.outer.len())) {
            return Ok(None);
        }
        let no_value = |_| 0;
        let mut vars = vec![0i64; kernel.n_vars()];
        let zero = index.iter().map(|e| e.eval(&vars, &no_value)).collect::<Result<Vec<i64>>>()?;
        let dims = dims(memlet.container);
        let (mut offsets, mut ranges) = (Vec::with_capacity(n_walked), vec![(0i64, 0i64); index.len()]);
        for _ in 0..n_walked {
            let mut offset = 0i64;
            for (d, expr) in index.iter().enumerate() {
                let adds = expr.eval(&vars, &no_value)? - zero[d];
                ranges[d] = (ranges[d].0.min(adds), ranges[d].1.max(adds));
                offset = offset * dims[d] as i64 + adds;
            }
            offsets.push(offset);
            advance(&mut vars[kernel.outer.len()..][..walked.len()], walked);
        }
        Ok(Some(Table { offsets, ranges }))
    }

    /// The offset at the outer point with these variables; `None` if an index leaves the container at some inner point.
    pub fn start(&self, index: &[Expr], dims: &[usize], vars: &[i64]) -> Result<Option<i64>> {
        let mut offset = 0;
        for ((expr, (lo, hi)), &n) in index.iter().zip(&self.ranges).zip(dims) {
            let at = expr.eval(vars, &|_| 0)?;
            if at + lo < 0 || at + hi >= n as i64 {
                return Ok(None);
            }
            offset = offset * n as i64 + at;
        }
        Ok(Some(offset))
    }
}

/// Whether the expression is the sum of a function of the outer variables and a function of the inner variables, and
/// depends on no data.
fn falls_apart(d: &Dim, n_outer: usize) -> bool {
    let without = |gone: &dyn Fn(usize) -> bool| {
        d.substitute(&|symbol| symbol.variable().filter(|&i| gone(i)).map(|_| Dim::constant(0)))
    };
    let (outer, inner) = (without(&|i| i >= n_outer), without(&|i| i < n_outer));
    let none = without(&|_| true);
    d.statements().is_empty() && outer + inner == d.clone() + none
}
