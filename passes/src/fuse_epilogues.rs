//! y = reduce(x); z[i] = f(y[i])  =>  one kernel: what is elementwise on a reduction's result follows it in registers
//!
//! The reader may permute the result: then the kernel writes in the reader's order.

use crate::Rewrites;
use crate::fusion::{Match, STATEMENTS_MAX, Uses, correspond, kernel, merge_wherever, step_between};
use crate::miss::Miss;
use sardonyx_dialects::flow::{Class, Kernel, Program};
use sardonyx_dialects::mlir::Operation;
use sardonyx_runtime::{Dim, Result};

pub fn run(module: Operation, rewrites: &mut Rewrites) -> Result<()> {
    merge_wherever(module, rewrites, "epilogue", matches)
}

pub fn matches(program: &Program, uses: &Uses, producer: usize, consumer: usize) -> std::result::Result<Match, Miss> {
    let (p_step, c_step) = (&program.steps[producer], &program.steps[consumer]);
    let (Some(p), Some(c)) = (kernel(p_step), kernel(c_step)) else { return Err(Miss::Unlike) };
    if p.class() == Class::Map || c.class() != Class::Map {
        return Err(Miss::Unlike);
    }
    if p.body.len() + c.body.len() > STATEMENTS_MAX {
        return Err(Miss::Statements);
    }
    // A map may have an inner space, where nothing reduces over it: its points are no rows.
    if !c.inner.is_empty() {
        return Err(Miss::OtherSpace);
    }
    let pairs = correspond(p_step, c_step)?;
    // Only outer variables: the epilogue runs once per result, not once per summand.
    if pairs.iter().any(|&(_, pv)| pv >= p.outer.len()) {
        return Err(Miss::OtherSpace);
    }
    let covered =
        |extents: &[Dim], hit: &dyn Fn(usize) -> bool| extents.iter().enumerate().all(|(v, e)| e.is_const(1) || hit(v));
    let all_consumer = covered(&c.outer, &|v| pairs.iter().any(|x| x.0 == v));
    let all_producer = covered(&p.outer, &|v| pairs.iter().any(|x| x.1 == v));
    if !all_consumer {
        return Err(Miss::Repeated);
    }
    if !all_producer {
        return Err(Miss::OtherPlaces);
    }
    if let Some(third) = step_between(program, uses, producer, consumer) {
        return Err(Miss::Between(third));
    }
    let in_producer = |v: usize| pairs.iter().find(|x| x.0 == v).map_or(Dim::constant(0), |x| Kernel::var(x.1));
    Ok(Match {
        outer: p.outer.clone(),
        inner: p.inner.clone(),
        producer: (0..p.n_vars()).map(Kernel::var).collect(),
        consumer: (0..c.n_vars()).map(in_producer).collect(),
    })
}
