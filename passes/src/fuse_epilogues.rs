//! y = reduce(x); z[i] = f(y[i])  =>  one kernel: elementwise functions of a reduction's result become its epilogue
//!
//! The consumer may permute the result: the fused kernel iterates in the producer's order and stores each element where
//! the consumer would. The consumer may itself be a contraction that has an operand in common with the producer, as in
//! silu(x · g) * (x · u): one kernel then computes both contractions.

use crate::class::Class as Equality;
use crate::merge::{Match, STATEMENTS_MAX, correspond, merge_pairs, n_statements};
use crate::miss::Miss;
use crate::rewrite::{Rewrites, Rule};
use crate::steps::{Uses, kernel, parameter, step_between};
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::{Body, Class, Kernel, Memlet, Program, Statement, Step};
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::scalar::ScalarFn;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.programs(module, |rewrites, program| merge_pairs(program, rewrites, RULE, matches))
}

pub const RULE: Rule = Rule::of_class(Equality::Exact, "epilogue");

/// Maximum number of contractions that this pass puts in one kernel: on GPUs, no more contractions can share tiles
/// (`SUMS_MAX` in `ptx/gemm/plan.rs`).
const SUMS_MAX: usize = 2;

pub fn matches(program: &Program, uses: &Uses, producer: usize, consumer: usize) -> std::result::Result<Match, Miss> {
    let (p_step, c_step) = (&program.steps[producer], &program.steps[consumer]);
    let (Some(p), Some(c)) = (kernel(p_step), kernel(c_step)) else { return Err(Miss::Unlike) };
    let are_two_sums = p.class() == Class::Contract && c.class() == Class::Contract;
    if !are_two_sums && (p.class() == Class::Map || c.class() != Class::Map) {
        return Err(Miss::Unlike);
    }
    if n_statements(p, c) > STATEMENTS_MAX {
        return Err(Miss::Statements);
    }
    // A map may have an inner space without a reduction, and then its points do not correspond to rows of the producer.
    if !are_two_sums && !c.inner.is_empty() {
        return Err(Miss::OtherSpace);
    }
    let pairs = correspond(p_step, c_step)?;
    // Only outer variables may correspond: the epilogue runs once per result, not once per reduction step.
    if pairs.iter().any(|&(cv, pv)| pv >= p.outer.len() || cv >= c.outer.len()) {
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
    let in_producer = |v: usize| match v.checked_sub(c.outer.len()) {
        None => pairs.iter().find(|x| x.0 == v).map_or(Dim::constant(0), |x| Kernel::var(x.1)),
        Some(inner) => Kernel::var(p.outer.len() + inner),
    };
    let m = Match {
        outer: p.outer.clone(),
        inner: p.inner.clone(),
        producer: (0..p.n_vars()).map(Kernel::var).collect(),
        consumer: (0..c.n_vars()).map(in_producer).collect(),
    };
    if are_two_sums && !are_sums_of_one(program, uses, (p_step, p), (c_step, c), &m.consumer) {
        return Err(Miss::Unlike);
    }
    Ok(m)
}

/// Returns whether two contractions reduce over the same inner space and have operand A in common, the one that does
/// not depend on the columns of the result. Their B operands must have the same layout and index, or both be
/// parameters, which get the same layout when they are packed.
fn are_sums_of_one(
    program: &Program,
    uses: &Uses,
    (p_step, p): (&Step, &Kernel),
    (c_step, c): (&Step, &Kernel),
    vars: &[Dim],
) -> bool {
    let (ours, theirs) = (factors(p), factors(c));
    if p.inner != c.inner || ours.len() + theirs.len() > SUMS_MAX {
        return false;
    }
    let same_index = |one: &Memlet, other: &Memlet| {
        one.index.iter().cloned().eq(other.index.iter().map(|d| rename(d, &|v| vars.get(v).cloned(), &|k| k)))
    };
    let columns: Vec<_> = c.stores.iter().flat_map(|s| s.memlet.index.last()).flat_map(|d| d.symbols()).collect();
    let moves_with_columns = |m: &Memlet| m.index.iter().flat_map(|d| d.symbols()).any(|s| columns.contains(&s));
    let alike = |one: &Memlet, other: &Memlet| {
        let (id, other_id) = (p_step.args[one.container], c_step.args[other.container]);
        let packed = |id: usize| parameter(program, &uses.producers, id).is_some();
        p.reads[one.container] == c.reads[other.container] && same_index(one, other) || packed(id) && packed(other_id)
    };
    ours.iter().zip(&theirs).all(|(ours, theirs)| {
        [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().any(|(i, j)| {
            p_step.args[ours[i].container] == c_step.args[theirs[j].container]
                && same_index(ours[i], theirs[j])
                && !moves_with_columns(theirs[j])
                && alike(ours[1 - i], theirs[1 - j])
        })
    })
}

/// Returns the two operand loads of each product that a contraction sums. Products with an operand that is guarded,
/// computed or widened are left out.
fn factors(k: &Kernel) -> Vec<[&Memlet; 2]> {
    let load = |a: usize| match &k.body[a].body {
        Body::Load { memlet, guard: None } => Some(memlet),
        _ => None,
    };
    let product = |arg: usize| match &k.body[arg].body {
        Body::Apply { f: ScalarFn::Mul, args } => Some([load(args[0])?, load(args[1])?]),
        _ => None,
    };
    let sum = |s: &Statement| match s.body {
        Body::Reduce { arg, .. } => product(arg),
        _ => None,
    };
    k.body.iter().filter_map(sum).collect()
}
