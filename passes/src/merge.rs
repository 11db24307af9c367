//! Two kernels that iterate over the same points  =>  one: corresponding variables, and the merged kernel

use crate::miss::Miss;
use crate::rewrite::{Rewrites, Rule, Site};
use crate::splice::{Splice, data_loads_per_row, from_data, tidy};
use crate::steps::{Uses, drop_dead, kernel, sort_steps, union};
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::flow::{Body, Class, FlowOp, Kernel, Memlet, Program, Statement, Step, Store};
use sardonyx_dialects::scalar::ScalarFn;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Maximum number of statements of a merged kernel; a longer kernel would spill more words to the stack than two
/// separate kernels move through memory.
pub const STATEMENTS_MAX: usize = 96;

/// Returns the total number of statements of two kernels. Functions computed in double precision count as 8 or 16
/// statements, as they expand to many instructions, and register allocation takes more than linear time in the number
/// of instructions of a body.
pub fn n_statements(p: &Kernel, c: &Kernel) -> usize {
    let length = |s: &Statement| match &s.body {
        Body::Apply { f: ScalarFn::Pow, .. } => 16,
        Body::Apply { f: ScalarFn::Atan | ScalarFn::Cos | ScalarFn::Log | ScalarFn::Rem | ScalarFn::Sin, .. } => 8,
        _ => 1,
    };
    p.body.iter().chain(&c.body).map(length).sum()
}

/// How the variables of a producer and a consumer correspond.
pub struct Match {
    /// Iteration space of the merged kernel.
    pub outer: Vec<Dim>,
    pub inner: Vec<Dim>,
    /// Each variable of the producer and of the consumer, in terms of the merged kernel's variables.
    pub producer: Vec<Dim>,
    pub consumer: Vec<Dim>,
}

/// Whether both kernels stay valid in the merged space. A kernel that repeats a row value along the future inner space
/// becomes invalid, because a row value is written once per row.
pub fn fits(p: &Kernel, c: &Kernel, m: &Match) -> bool {
    let moved = |k: &Kernel, vars: &[Dim]| {
        let mut splice = Splice::new(vec![], k);
        splice.run(vars, &mut |s, memlet, guard, dtype| s.push(Body::Load { memlet, guard }, dtype));
        let store = |s: &Store| {
            let index = s.memlet.index.iter().map(|d| splice.index(d, vars)).collect();
            Store { memlet: Memlet { container: s.memlet.container, index }, value: splice.statement(s.value) }
        };
        let stores = k.stores.iter().map(store).collect();
        let (outer, inner, deep) = (m.outer.clone(), m.inner.clone(), k.deep.clone());
        Kernel { outer, inner, deep, stores, body: splice.body, reads: k.reads.clone(), writes: k.writes.clone() }
    };
    let one = |k: &Kernel, vars: &[Dim]| {
        let moved = moved(k, vars);
        // A kernel that has an inner space keeps it. A map that gets an inner space must not check data-dependent
        // indices only once per row.
        moved.check().is_ok() && (!k.inner.is_empty() || m.inner.is_empty() || data_loads_per_row(&moved) == 0)
    };
    one(p, &m.producer) && one(c, &m.consumer)
}

/// Returns the consumer's loads of the producer's results, as (index of the result, memlet, whether the load is
/// guarded).
pub fn loads_of<'c>(producer: &Step, consumer: &'c Step) -> Vec<(usize, &'c Memlet, bool)> {
    let Some(c) = kernel(consumer) else { return vec![] };
    let result = |container: usize| producer.results.iter().position(|r| *r == consumer.args[container]);
    let load = |s: &'c Statement| match &s.body {
        Body::Load { memlet, guard } => Some((result(memlet.container)?, memlet, guard.is_some())),
        _ => None,
    };
    c.body.iter().filter_map(load).collect()
}

/// A producer and a consumer, with the correspondence of their variables.
struct Pair {
    producer: usize,
    consumer: usize,
    space: Match,
}

impl Site for Pair {
    fn steps(&self) -> Vec<usize> {
        vec![self.producer, self.consumer]
    }
}

/// Returns the space in which a producer and a consumer are merged, or the reason why they are not merged.
pub type Matches = fn(&Program, &Uses, usize, usize) -> std::result::Result<Match, Miss>;

/// Merges each step into a step whose result it reads, if `matches` returns a correspondence of their variables.
pub fn merge_pairs(program: &mut Program, rewrites: &mut Rewrites, rule: Rule, matches: Matches) -> Result<()> {
    let find = |program: &Program, uses: &Uses, consumer: usize| {
        let sources = uses.sources(&program.steps[consumer]);
        let site =
            |producer| Some(Pair { producer, consumer, space: matches(program, uses, producer, consumer).ok()? });
        sources.into_iter().find_map(site)
    };
    rewrites.sweep(program, rule, find, merge)
}

/// Merges a producer and a consumer, or two steps of which neither reads the other's results, in the iteration space of
/// `space`. All results of the producer are kept until `drop_dead` removes unused ones.
pub fn merge_into(program: &mut Program, producer: usize, consumer: usize, space: Match) {
    merge(program, &Pair { producer, consumer, space });
}

/// Merges two kernels in their common space. All results of the producer are kept until `drop_dead` removes unused
/// ones.
fn merge(program: &mut Program, &Pair { producer, consumer, space: ref m }: &Pair) {
    let (p_step, c_step) = (program.steps[producer].clone(), program.steps[consumer].clone());
    let (Some(p), Some(c)) = (kernel(&p_step), kernel(&c_step)) else { return };
    let mut args = p_step.args.clone();
    let mut reads = p.reads.clone();
    let mut first = Splice::new(vec![], p);
    first.run(&m.producer, &mut |s, memlet, guard, dtype| s.push(Body::Load { memlet, guard }, dtype));
    let restore = |s: &Splice, store: &Store, vars: &[Dim], shift: usize| Store {
        memlet: Memlet {
            container: store.memlet.container + shift,
            index: store.memlet.index.iter().map(|d| s.index(d, vars)).collect(),
        },
        value: s.statement(store.value),
    };
    let mut stores: Vec<Store> = p.stores.iter().map(|s| restore(&first, s, &m.producer, 0)).collect();
    let value_of: Vec<usize> =
        (0..p.writes.len()).map(|r| stores.iter().find(|s| s.memlet.container == r).map_or(0, |s| s.value)).collect();
    let mut second = Splice::new(first.body, c);
    second.run(&m.consumer, &mut |s, memlet, guard, dtype| {
        let id = c_step.args[memlet.container];
        if let Some(result) = p_step.results.iter().position(|r| *r == id) {
            return value_of[result];
        }
        let container = args.iter().position(|&a| a == id).unwrap_or_else(|| {
            args.push(id);
            reads.push(c.reads[memlet.container].clone());
            args.len() - 1
        });
        s.push(Body::Load { memlet: Memlet { container, ..memlet }, guard }, dtype)
    });
    stores.extend(c.stores.iter().map(|s| restore(&second, s, &m.consumer, p.writes.len())));
    let writes = p.writes.iter().chain(&c.writes).cloned().collect();
    let (outer, inner, deep) = (m.outer.clone(), m.inner.clone(), vec![]);
    let merged = Kernel { outer, inner, deep, reads, writes, body: second.body, stores };
    let (merged, args) = tidy(merged, args);
    let results = p_step.results.iter().chain(&c_step.results).copied().collect();
    let origins = union([p_step.origins.as_slice(), &c_step.origins]);
    let op = FlowOp::Kernel(Arc::new(merged));
    program.steps[consumer] = Step { op, args, results, origins };
    program.steps.remove(producer);
    sort_steps(program);
    drop_dead(program);
}

/// Returns pairs (consumer variable, producer variable) that index the same dimension of a container which the producer
/// writes and the consumer reads. Fails if an index is not a bare variable, or if two loads disagree.
pub fn correspond(producer: &Step, consumer: &Step) -> std::result::Result<Vec<(usize, usize)>, Miss> {
    let (Some(p), Some(c)) = (kernel(producer), kernel(consumer)) else { return Err(Miss::Unlike) };
    let mut pairs: Vec<(usize, usize)> = vec![];
    for (result, load, guarded) in loads_of(producer, consumer) {
        let mut stores = p.stores.iter().filter(|s| s.memlet.container == result);
        let (Some(store), None) = (stores.next(), stores.next()) else {
            return Err(Miss::OtherPlaces);
        };
        if guarded {
            return Err(Miss::Guarded);
        }
        for ((s, l), extent) in store.memlet.index.iter().zip(&load.index).zip(&p.writes[result].dims) {
            match (s.as_variable(), l.as_variable()) {
                (Some(pv), Some(cv)) => pairs.push((cv, pv)),
                // A dimension of extent 1 has a single point, so its index is irrelevant unless it must be checked.
                _ if extent.is_const(1) && !from_data(l) => {}
                _ if from_data(l) => return Err(Miss::FromData),
                _ => return Err(Miss::OtherPlaces),
            }
        }
    }
    // Attention kernels are formed after all other fusions, so nothing is merged with them.
    if p.class() == Class::Attention || c.class() == Class::Attention {
        return Err(Miss::Unlike);
    }
    pairs.sort();
    pairs.dedup();
    let distinct = |side: fn(&(usize, usize)) -> usize| {
        let all: BTreeSet<usize> = pairs.iter().map(side).collect();
        all.len() == pairs.len()
    };
    let extent = |k: &Kernel, v: usize| k.extents().nth(v).cloned();
    let same_extents = pairs.iter().all(|&(cv, pv)| extent(c, cv) == extent(p, pv));
    match distinct(|x| x.0) && distinct(|x| x.1) && same_extents && !pairs.is_empty() {
        true => Ok(pairs),
        false => Err(Miss::OtherSpace),
    }
}
