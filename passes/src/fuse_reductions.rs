//! m = max(x); e = exp(x - m); s = sum(e); y = e / s  =>  one kernel that iterates over each row
//!
//! Two kernels become one if they iterate over the same rows and columns: a reduction and a map over the same points,
//! in either order, or two reductions. The consumer must share points with the producer; if it read only the producer's
//! row values, fusion would save nothing but a launch.

use crate::class::Class as Equality;
use crate::merge::{Match, STATEMENTS_MAX, correspond, fits, loads_of, merge_pairs, n_statements};
use crate::miss::Miss;
use crate::rewrite::{Rewrites, Rule};
use crate::steps::{Uses, kernel, step_between};
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::flow::{Body, Class, Kernel, Level, Program, Step};
use sardonyx_dialects::mlir::Module;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.programs(module, |rewrites, program| merge_pairs(program, rewrites, RULE, matches))
}

pub const RULE: Rule = Rule::of_class(Equality::Exact, "same-rows");

type Found = std::result::Result<Match, Miss>;

pub fn matches(program: &Program, uses: &Uses, producer: usize, consumer: usize) -> Found {
    let (p_step, c_step) = (&program.steps[producer], &program.steps[consumer]);
    let (Some(p), Some(c)) = (kernel(p_step), kernel(c_step)) else { return Err(Miss::Unlike) };
    // Contractions have a code generator of their own, which does not iterate over rows.
    if p.class() == Class::Contract || c.class() == Class::Contract {
        return Err(Miss::Unlike);
    }
    if n_statements(p, c) > STATEMENTS_MAX {
        return Err(Miss::Statements);
    }
    let pairs = pair_units(p, c, correspond(p_step, c_step)?);
    // A reduction over no dimensions has no inner space, and must not get one.
    let m = match (p.inner.is_empty(), c.inner.is_empty()) {
        (false, true) if c.class() == Class::Map => map_after(p_step, p, c_step, c, pairs)?,
        (true, false) if p.class() == Class::Map => map_before(p, c, &pairs)?,
        (false, false) => two_reductions(p_step, p, c_step, c, pairs)?,
        _ => return Err(Miss::Unlike),
    };
    if !fits(p, c, &m) {
        return Err(Miss::Repeated);
    }
    match step_between(program, uses, producer, consumer) {
        Some(third) => Err(Miss::Between(third)),
        None => Ok(m),
    }
}

fn own_vars(k: &Kernel) -> Vec<Dim> {
    (0..k.n_vars()).map(Kernel::var).collect()
}

/// Returns the variables of one kernel in terms of the other's; dimensions of extent 1 without a partner are 0. The
/// result is `None` if another variable of either kernel has no partner.
fn translate(from: &Kernel, to: &Kernel, pairs: &[(usize, usize)]) -> Option<Vec<Dim>> {
    let extent = |k: &Kernel, v: usize| k.outer.iter().chain(&k.inner).nth(v).cloned();
    let complete =
        (0..to.n_vars()).all(|v| pairs.iter().any(|x| x.1 == v) || extent(to, v).is_some_and(|e| e.is_const(1)));
    let one = |v: usize| match pairs.iter().find(|x| x.0 == v) {
        Some(x) => Some(Kernel::var(x.1)),
        None => extent(from, v)?.is_const(1).then(|| Dim::constant(0)),
    };
    complete.then(|| (0..from.n_vars()).map(one).collect::<Option<Vec<_>>>()).flatten()
}

/// Pairs outer dimensions of extent 1 at the same position, so that a load that occurs in both kernels becomes a single
/// load, even if a broadcast indexes with 0 there.
fn pair_units(p: &Kernel, c: &Kernel, mut pairs: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    for v in 0..p.outer.len().min(c.outer.len()) {
        let one = p.outer[v].is_const(1) && c.outer[v].is_const(1);
        if one && !pairs.iter().any(|x| x.0 == v || x.1 == v) {
            pairs.push((v, v));
        }
    }
    pairs
}

/// Pairs the consumer's unpaired variables with the producer's unpaired inner ones, in order; extents must agree.
/// Variables that remain unpaired are rejected by `translate`.
fn pair_inner(p: &Kernel, c: &Kernel, mut pairs: Vec<(usize, usize)>) -> Option<Vec<(usize, usize)>> {
    let extents = |k: &Kernel| k.outer.iter().chain(&k.inner).cloned().collect::<Vec<_>>();
    let (pe, ce) = (extents(p), extents(c));
    let free_inner = (p.outer.len()..p.n_vars()).filter(|v| !pairs.iter().any(|x| x.1 == *v)).collect::<Vec<_>>();
    let free = (0..c.n_vars()).filter(|v| !pairs.iter().any(|x| x.0 == *v) && !ce[*v].is_const(1)).collect::<Vec<_>>();
    if free.iter().zip(&free_inner).any(|(&cv, &pv)| ce[cv] != pe[pv]) {
        return None;
    }
    pairs.extend(free.into_iter().zip(free_inner));
    Some(pairs)
}

/// Whether the consumer, in the producer's variables, reads a point that the producer computes or reads.
fn shares_points(p_step: &Step, p: &Kernel, c_step: &Step, c: &Kernel, vars: &[Dim]) -> bool {
    let levels = p.levels();
    let reads_point_result = loads_of(p_step, c_step).iter().any(|(result, _, _)| {
        p.stores.iter().any(|s| s.memlet.container == *result && levels[s.value] == Level::Point)
    });
    let in_terms = |d: &Dim| sardonyx_dialects::flow::kernel::rename(d, &|i| vars.get(i).cloned(), &|k| k);
    let same_load = c.body.iter().any(|s| match &s.body {
        Body::Load { memlet, .. } => p.body.iter().zip(&levels).any(|(ps, level)| match &ps.body {
            Body::Load { memlet: pm, .. } => {
                *level == Level::Point
                    && p_step.args[pm.container] == c_step.args[memlet.container]
                    && pm.index.iter().cloned().eq(memlet.index.iter().map(in_terms))
            }
            _ => false,
        }),
        _ => false,
    });
    reads_point_result || same_load
}

/// Matches a reduction followed by a map over the same points.
fn map_after(p_step: &Step, p: &Kernel, c_step: &Step, c: &Kernel, pairs: Vec<(usize, usize)>) -> Found {
    let pairs = pair_inner(p, c, pairs).ok_or(Miss::OtherSpace)?;
    let consumer = translate(c, p, &pairs).ok_or(Miss::OtherSpace)?;
    if !shares_points(p_step, p, c_step, c, &consumer) {
        return Err(Miss::NothingShared);
    }
    Ok(Match { outer: p.outer.clone(), inner: p.inner.clone(), producer: own_vars(p), consumer })
}

/// Matches a map followed by a reduction over its points.
fn map_before(p: &Kernel, c: &Kernel, pairs: &[(usize, usize)]) -> Found {
    let swapped: Vec<(usize, usize)> = pairs.iter().map(|&(cv, pv)| (pv, cv)).collect();
    let producer = translate(p, c, &swapped).ok_or(Miss::OtherSpace)?;
    Ok(Match { outer: c.outer.clone(), inner: c.inner.clone(), producer, consumer: own_vars(c) })
}

/// Matches two reductions over the same columns of the same rows.
fn two_reductions(p_step: &Step, p: &Kernel, c_step: &Step, c: &Kernel, pairs: Vec<(usize, usize)>) -> Found {
    let pairs = pair_inner(p, c, pairs).ok_or(Miss::OtherSpace)?;
    let same_side = pairs.iter().all(|&(cv, pv)| (cv < c.outer.len()) == (pv < p.outer.len()));
    let consumer = translate(c, p, &pairs).ok_or(Miss::OtherSpace)?;
    if !same_side {
        return Err(Miss::Crosswise);
    }
    if !shares_points(p_step, p, c_step, c, &consumer) {
        return Err(Miss::NothingShared);
    }
    Ok(Match { outer: p.outer.clone(), inner: p.inner.clone(), producer: own_vars(p), consumer })
}
