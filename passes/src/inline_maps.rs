//! y[i] = f(x[i]); z = g(y[p(i)])  =>  z = g(f(x[p(i)])): a map is computed where its result is read
//!
//! Index maps (transposes, slices, broadcasts, constants by position) are inlined into every consumer except
//! contractions: they change only what a consumer indexes. Other maps are inlined into their only consumer, if it reads
//! each point once, so that nothing is computed twice. A contraction reads its operands many times, so only maps that
//! consist of a single load are inlined into it. Into attention, maps of a single load are always inlined, and other
//! index maps if their result is read once per score. Any other map is inlined into attention only if attention is its
//! only consumer, and if its result is read once per query or it widens a cache.

use crate::class::Class as Equality;
use crate::merge::{STATEMENTS_MAX, n_statements};
use crate::miss::Miss;
use crate::rewrite::{Rewrites, Rule, Site as Changes};
use crate::splice::{Splice, and_guards, data_loads_per_row, from_data, tidy};
use crate::steps::{Uses, drop_dead, kernel, union};
use sardonyx_base::dim::Symbol;
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::flow::{Body, Class, FlowOp, Kernel, Layout, Level, Memlet, Program, Statement, Step};
use sardonyx_dialects::mlir::Module;
use std::sync::Arc;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.programs(module, |rewrites, program| rewrites.sweep(program, RULE, find, apply))
}

pub const RULE: Rule = Rule::of_class(Equality::Exact, "inline");

/// A rewrite that inlines step `producer` into step `consumer`, in place of the consumer's operand `operand`.
pub struct Site {
    producer: usize,
    consumer: usize,
    operand: usize,
}

impl Site {
    pub fn new(producer: usize, consumer: usize, operand: usize) -> Site {
        Site { producer, consumer, operand }
    }
}

impl Changes for Site {
    fn steps(&self) -> Vec<usize> {
        vec![self.producer, self.consumer]
    }
}

/// Returns a map that can be inlined into the step at little or no cost.
pub fn find(program: &Program, uses: &Uses, consumer: usize) -> Option<Site> {
    find_site(program, uses, consumer, &|site| matches(program, uses, site).is_ok())
}

/// Returns a map that can be inlined at no cost regardless of other fusions: an index map, or any map into a map.
pub fn find_free(program: &Program, uses: &Uses, consumer: usize) -> Option<Site> {
    let class = |step: usize| kernel(&program.steps[step]).map(Kernel::class);
    let index_map = |step: usize| kernel(&program.steps[step]).is_some_and(is_index_map);
    find_site(program, uses, consumer, &|site| {
        let free = index_map(site.producer) || class(consumer) == Some(Class::Map);
        free && matches(program, uses, site).is_ok()
    })
}

fn find_site(program: &Program, uses: &Uses, consumer: usize, wanted: &dyn Fn(&Site) -> bool) -> Option<Site> {
    let args = &program.steps[consumer].args;
    args.iter().enumerate().find_map(|(operand, &id)| {
        let site = Site { producer: uses.producers[id]?, consumer, operand };
        wanted(&site).then_some(site)
    })
}

/// Returns a site for each operand of the consumer that is a result of the producer.
fn sites(program: &Program, producer: usize, consumer: usize) -> Vec<Site> {
    let (results, args) = (&program.steps[producer].results, &program.steps[consumer].args);
    let operands = (0..args.len()).filter(|&o| results.contains(&args[o]));
    operands.map(|operand| Site { producer, consumer, operand }).collect()
}

/// Whether the producer can be computed where the consumer reads it, regardless of cost.
pub fn is_legal(program: &Program, uses: &Uses, producer: usize, consumer: usize) -> bool {
    let sites = sites(program, producer, consumer);
    !sites.is_empty() && sites.iter().all(|site| check_legal(program, uses, site).is_ok())
}

/// Inlines the producer into the consumer, if that is legal.
pub fn inline_into(program: &mut Program, producer: usize, consumer: usize) {
    // A map has one result, and a kernel reads a container through one operand.
    if let Some(site) = sites(program, producer, consumer).first() {
        apply(program, site);
    }
}

/// Returns the reason why a producer is not inlined into a consumer, or `None` if it can be inlined.
pub fn why_not(program: &Program, uses: &Uses, producer: usize, consumer: usize) -> Option<Miss> {
    let sites = sites(program, producer, consumer);
    let misses: Vec<Miss> =
        sites.iter().map(|site| matches(program, uses, site)).map_while(std::result::Result::err).collect();
    (misses.len() == sites.len()).then(|| misses.first().copied().unwrap_or(Miss::Unlike))
}

/// Succeeds if inlining is legal and recomputes little or nothing.
fn matches(program: &Program, uses: &Uses, site: &Site) -> std::result::Result<(), Miss> {
    check_legal(program, uses, site)?;
    check_cheap(program, uses, site)
}

const fn refuse(miss: Miss, refused: bool) -> std::result::Result<(), Miss> {
    if refused { Err(miss) } else { Ok(()) }
}

fn check_cheap(program: &Program, uses: &Uses, site: &Site) -> std::result::Result<(), Miss> {
    let (p_step, c_step) = (&program.steps[site.producer], &program.steps[site.consumer]);
    let (Some(p), Some(c)) = (kernel(p_step), kernel(c_step)) else { return Err(Miss::Unlike) };
    let result = p_step.results[0];
    let only_reader = || match uses.consumers[result].iter().copied().find(|&other| other != site.consumer) {
        Some(other) => Err(Miss::ReadElsewhere(other)),
        None => refuse(Miss::Output, program.is_output(result)),
    };
    if c.class() == Class::Attention && !is_plain_copy(p) {
        if widens_cache(p) {
            return only_reader();
        }
        return match places(c_step, c, site.operand) {
            Some(Level::Deep) => only_reader(),
            Some(Level::Point) => refuse(Miss::Repeated, !is_index_map(p)),
            Some(Level::Row) | None => Err(Miss::Repeated),
        };
    }
    if is_index_map(p) {
        return Ok(());
    }
    only_reader()?;
    refuse(Miss::Repeated, !reads_each_point_once(c_step, c, site.operand))
}

fn check_legal(program: &Program, uses: &Uses, site: &Site) -> std::result::Result<(), Miss> {
    let (p_step, c_step) = (&program.steps[site.producer], &program.steps[site.consumer]);
    let (Some(p), Some(c)) = (kernel(p_step), kernel(c_step)) else { return Err(Miss::Unlike) };
    refuse(Miss::Unlike, p.class() != Class::Map)?;
    refuse(Miss::OtherPlaces, !stores_identity(p))?;
    refuse(Miss::Statements, n_statements(p, c) > STATEMENTS_MAX)?;
    refuse(Miss::FromData, !keeps_range_checks(p, c_step, c, site.operand))?;
    if c.class() == Class::Contract {
        let other = uses.consumers[p_step.results[0]].iter().copied().find(|&other| other != site.consumer);
        let shared = other.filter(|_| !is_factor(c, site.operand)).map(Miss::ReadElsewhere);
        return refuse(shared.unwrap_or(Miss::IntoContraction), !is_plain_copy(p));
    }
    refuse(Miss::Repeated, !stores_points(p_step, p, c_step, c, site.operand))
}

/// Whether the values that the consumer stores along its inner space still depend on the inner point after inlining. If
/// the operand becomes constant along a row, they may become row values, which would be stored only once per row.
fn stores_points(p_step: &Step, p: &Kernel, c_step: &Step, c: &Kernel, operand: usize) -> bool {
    if c.inner.is_empty() {
        return true;
    }
    let (merged, _) = inlined(p_step, p, c_step, c, operand);
    merged.check().is_ok() && data_loads_per_row(&merged) <= data_loads_per_row(c)
}

/// Whether range checks remain when the producer is inlined. The consumer checks a data-dependent index against the
/// operand's dimension, so the producer needs a load that checks the same index against the same extent. (The operand
/// of a slice has another extent, and a broadcast may have no load.)
fn keeps_range_checks(p: &Kernel, step: &Step, c: &Kernel, operand: usize) -> bool {
    let checks = |v: usize, s: &Statement| match &s.body {
        Body::Load { memlet, guard: None } => {
            let at = memlet.index.iter().position(|d| d.as_variable() == Some(v));
            at.is_some_and(|at| p.reads[memlet.container].dims[at] == p.writes[0].dims[v])
        }
        _ => false,
    };
    c.body.iter().all(|s| match &s.body {
        Body::Load { memlet, .. } if step.args[memlet.container] == step.args[operand] => {
            let data = (0..memlet.index.len()).filter(|&v| from_data(&memlet.index[v]));
            data.into_iter().all(|v| p.body.iter().any(|s| checks(v, s)))
        }
        _ => true,
    })
}

/// Whether the map has one result, indexed by the iteration variables in order.
fn stores_identity(p: &Kernel) -> bool {
    places_of_vars(p).is_some_and(|places| places.iter().copied().eq(0..p.outer.len()))
}

/// Returns, for each variable, the dimension of the map's only result that the variable indexes; `None` unless each
/// dimension is indexed by a variable of its own.
pub fn places_of_vars(p: &Kernel) -> Option<Vec<usize>> {
    let [store] = p.stores.as_slice() else { return None };
    let place = |v: usize| store.memlet.index.iter().position(|d| *d == Kernel::var(v));
    let places: Option<Vec<usize>> = (0..p.outer.len()).map(place).collect();
    places.filter(|_| store.memlet.index.len() == p.outer.len())
}

/// Whether the contraction multiplies the operand, rather than reading it in its epilogue, after the reduction.
fn is_factor(c: &Kernel, operand: usize) -> bool {
    let levels = c.levels();
    let reads = |s: &Statement| matches!(&s.body, Body::Load { memlet, .. } if memlet.container == operand);
    c.body.iter().zip(levels).any(|(s, level)| level == Level::Point && reads(s))
}

/// Whether the map is a single load at computed positions. (A guard or a data-dependent index would be statements,
/// too.)
fn is_plain_copy(p: &Kernel) -> bool {
    matches!(p.body.as_slice(), [one] if matches!(one.body, Body::Load { .. }))
}

/// Whether the map widens the contents of caches to f32. Attention instead widens the elements in registers each time
/// it reads them, because caches are long, and writing all of them as f32 would dominate the time of a step.
fn widens_cache(p: &Kernel) -> bool {
    p.reads.iter().any(|c| matches!(c.layout, Layout::Capacity { .. }) && c.dtype.bits() < 32)
}

/// Whether the map is a single load at computed positions, or computes its result from positions alone, in at most 8
/// statements.
fn is_index_map(p: &Kernel) -> bool {
    let loads = p.body.iter().filter(|s| matches!(s.body, Body::Load { .. })).count();
    is_plain_copy(p) || (loads == 0 && p.body.len() <= 8)
}

/// Returns the level at which attention reads an operand: deep level, once per query (the same for all keys), or point
/// level, once per score.
fn places(step: &Step, c: &Kernel, operand: usize) -> Option<Level> {
    let levels = c.levels();
    let scored = |v: usize| c.level_of_var(v) == Level::Point;
    let mut found = vec![];
    for (s, level) in c.body.iter().zip(&levels) {
        let Body::Load { memlet, guard } = &s.body else { continue };
        if step.args[memlet.container] != step.args[operand] {
            continue;
        }
        let by_keys = memlet.index.iter().flat_map(Dim::variables).any(scored);
        match (level, by_keys, guard) {
            (Level::Deep, false, None) | (Level::Point, true, None) => found.push(*level),
            _ => return None,
        }
    }
    found.dedup();
    <[Level; 1]>::try_from(found).ok().map(|[level]| level)
}

/// Whether each load of the operand uses every iteration variable of its level, in index expressions that are
/// one-to-one (windows that do not overlap).
fn reads_each_point_once(step: &Step, c: &Kernel, operand: usize) -> bool {
    let levels = c.levels();
    let extents: Vec<&Dim> = c.extents().collect();
    c.body.iter().zip(&levels).all(|(s, level)| match &s.body {
        Body::Load { memlet, .. } if step.args[memlet.container] == step.args[operand] => {
            let vars = match level {
                Level::Row => c.outer.len(),
                Level::Point => c.outer.len() + c.inner.len(),
                Level::Deep => c.n_vars(),
            };
            let used = |v: usize| memlet.index.iter().any(|d| d.variables().contains(&v));
            (0..vars).all(|v| extents[v].is_const(1) || used(v))
                && memlet.index.iter().all(|d| is_one_to_one(d, &extents))
        }
        _ => true,
    })
}

/// Whether different values of the iteration variables give different values of an index expression, as different
/// digits give different numbers.
fn is_one_to_one(index: &Dim, extents: &[&Dim]) -> bool {
    let vars: Vec<usize> = index.variables().into_iter().filter(|&v| !extents[v].is_const(1)).collect();
    if vars.len() < 2 {
        return true;
    }
    let step = |v: usize| index.linear_in(&Symbol::Variable(v))?.0.as_const().map(|c| (c.unsigned_abs(), v));
    // Windows have constant steps; any other expression comes from a reshape, which maps each position to a different
    // one.
    let Some(mut steps) = vars.into_iter().map(step).collect::<Option<Vec<_>>>() else { return true };
    steps.sort_unstable();
    // Difference between the largest and smallest sum of the terms (`step` times variable) examined so far.
    let mut reach = 0u64;
    for (i, (step, v)) in steps.iter().enumerate() {
        if *step <= reach {
            return false;
        }
        let largest = extents[*v].as_const().and_then(|n| u64::try_from(n - 1).ok());
        let sum = largest.and_then(|n| n.checked_mul(*step)?.checked_add(reach));
        match sum {
            Some(sum) => reach = sum,
            // The term with the largest step may have any extent.
            None => return i + 1 == steps.len(),
        }
    }
    true
}

/// Returns the consumer with the producer's body in place of its loads of the operand, and its new operands.
pub fn inlined(p_step: &Step, p: &Kernel, c_step: &Step, c: &Kernel, operand: usize) -> (Kernel, Vec<usize>) {
    let id = c_step.args[operand];
    let mut args = c_step.args.clone();
    let mut reads = c.reads.clone();
    let offset = args.len();
    args.extend(&p_step.args);
    reads.extend(p.reads.iter().cloned());
    let mut splice = Splice::new(vec![], c);
    let vars: Vec<Dim> = (0..c.n_vars()).map(Kernel::var).collect();
    let places = places_of_vars(p).unwrap_or_default();
    splice.run(&vars, &mut |s, memlet, guard, dtype| {
        if c_step.args[memlet.container] != id {
            return s.push(Body::Load { memlet, guard }, dtype);
        }
        let mut inner = Splice::new(std::mem::take(&mut s.body), p);
        let read: Vec<Dim> = places.iter().map(|d| memlet.index[*d].clone()).collect();
        inner.run(&read, &mut |i, m, own, dtype| {
            let guard = and_guards(i, guard, own);
            i.push(Body::Load { memlet: Memlet { container: m.container + offset, ..m }, guard }, dtype)
        });
        let value = inner.statement(p.stores[0].value);
        s.body = inner.body;
        value
    });
    let stores = c.stores.iter().map(|store| {
        let mut store = store.clone();
        store.value = splice.statement(store.value);
        store.memlet.index.iter_mut().for_each(|d| *d = splice.index(d, &vars));
        store
    });
    let stores = stores.collect();
    tidy(Kernel { reads, body: splice.body, stores, ..c.clone() }, args)
}

pub fn apply(program: &mut Program, site: &Site) {
    let (p_step, c_step) = (program.steps[site.producer].clone(), program.steps[site.consumer].clone());
    let (Some(p), Some(c)) = (kernel(&p_step), kernel(&c_step)) else { return };
    let (merged, args) = inlined(&p_step, p, &c_step, c, site.operand);
    let origins = union([p_step.origins.as_slice(), &c_step.origins]);
    program.steps[site.consumer] = Step { op: FlowOp::Kernel(Arc::new(merged)), args, origins, ..c_step };
    drop_dead(program);
}
