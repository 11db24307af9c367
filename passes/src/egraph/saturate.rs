//! rules, e-graph  =>  e-graph with everything the rules add, until nothing is new or a limit is reached

use super::expr::{Expr, Site};
use super::language::{EGraph, ENode};
use super::rule::Compiled;
use super::table::OpId;
use crate::class::Class;
use egg::Id;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
pub struct Limits {
    pub nodes_max: usize,
    pub iterations_max: usize,
    /// A rule with more matches than this in an iteration is suspended. Each suspension doubles the rule's limit, and
    /// the length of its next suspension.
    pub sites_max: usize,
}

/// One equality that a rule found: the reason why operation `to` is in a class that has operation `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Index of the step in `Run::steps`.
    pub found: usize,
    pub rule: usize,
    pub class: Id,
    pub from: OpId,
    pub to: OpId,
}

#[derive(Debug, Default)]
pub struct Run {
    pub steps: Vec<Step>,
    pub iterations: usize,
    /// Whether a limit or a refusal by `allow` ended the saturation.
    pub limited: bool,
    /// Number of equalities added, by compiled rule.
    pub fired: Vec<usize>,
}

struct Backoff {
    bans: u32,
    until: usize,
}

/// Maximum number of levels between a changed class and the root of a pattern that it may complete.
const DEPTH_MAX: usize = 4;

struct Match {
    rule: usize,
    class: Id,
    from: OpId,
    to: Expr,
}

/// Called before each equality, with the indices of the rule and of the function's node that the value comes from;
/// returns whether the equality may be added.
pub type Allow<'a> = &'a mut dyn FnMut(usize, usize) -> bool;

/// Adds the equalities that rules find, until nothing is new, a limit is reached or `allow` refuses. With
/// `allow_finite`, finite-only rules apply to all values, not only to those proved finite.
pub fn saturate(
    egraph: &mut EGraph,
    rules: &[Compiled],
    limits: &Limits,
    allow_finite: bool,
    allow: Allow,
) -> Result<Run, String> {
    let mut run = Run { fired: vec![0; rules.len()], ..Run::default() };
    let mut backoff: Vec<Backoff> = rules.iter().map(|_| Backoff { bans: 0, until: 0 }).collect();
    let mut by_op: Vec<Vec<usize>> = vec![];
    let mut next: BTreeSet<Id> = egraph.classes().map(|c| c.id).collect();
    egraph.analysis.dirty.clear();
    while run.iterations < limits.iterations_max {
        // A rule that returns from suspension looks at all classes.
        let returns = backoff.iter().any(|b| b.until == run.iterations && b.bans > 0);
        if returns {
            next = egraph.classes().map(|c| c.id).collect();
        }
        let waiting = |r: usize| backoff[r].until > run.iterations;
        dispatch(egraph, rules, &mut by_op);
        let mut matches = search(egraph, rules, &by_op, &next, &waiting, allow_finite);
        restrain(&mut matches, &mut backoff, run.iterations, limits);
        run.iterations += 1;
        let before = (egraph.total_number_of_nodes(), egraph.number_of_classes());
        let full = apply(egraph, rules, matches, &mut run, limits.nodes_max, allow)?;
        egraph.rebuild();
        if let Some(defect) = egraph.analysis.defect.take() {
            return Err(defect);
        }
        if full {
            run.limited = true;
            break;
        }
        let changed = (egraph.total_number_of_nodes(), egraph.number_of_classes()) != before;
        let pending = backoff.iter().any(|b| b.until > run.iterations);
        if !changed && !pending {
            return Ok(run);
        }
        next = touched(egraph);
    }
    run.limited = true;
    Ok(run)
}

/// Extends `by_op`, which lists the rules for each operation, to operations that are new in the table.
fn dispatch(egraph: &EGraph, rules: &[Compiled], by_op: &mut Vec<Vec<usize>>) {
    let table = &egraph.analysis.table;
    for id in table.ids().skip(by_op.len()) {
        let looks = rules.iter().enumerate().filter(|(_, r)| r.is_of(table.op(id)));
        by_op.push(looks.map(|(i, _)| i).collect());
    }
}

fn search(
    egraph: &EGraph,
    rules: &[Compiled],
    by_op: &[Vec<usize>],
    classes: &BTreeSet<Id>,
    waiting: &dyn Fn(usize) -> bool,
    allow_finite: bool,
) -> Vec<Match> {
    let mut out = vec![];
    for &id in classes {
        for node in &egraph[id].nodes {
            for &r in by_op[node.op.index()].iter().filter(|r| !waiting(**r)) {
                let site = Site { egraph, class: id, node };
                let found = rules[r].apply(&site).into_iter();
                let allowed = |to: &Expr| {
                    rules[r].class != Class::FiniteOnly || allow_finite || proved_finite(egraph, id, node, to)
                };
                out.extend(found.filter(allowed).map(|to| Match { rule: r, class: id, from: node.op, to }));
            }
        }
    }
    out
}

/// Whether every value that the two sides share, and the result, is finite.
fn proved_finite(egraph: &EGraph, class: Id, node: &ENode, to: &Expr) -> bool {
    fn leaves(egraph: &EGraph, to: &Expr) -> bool {
        match to {
            Expr::Class(id) => egraph[*id].data.range.finite(),
            Expr::Node(_, _, args) => args.iter().all(|a| leaves(egraph, a)),
        }
    }
    let finite = |id: &Id| egraph[*id].data.range.finite();
    finite(&class) && node.args.iter().all(finite) && leaves(egraph, to)
}

fn restrain(matches: &mut Vec<Match>, backoff: &mut [Backoff], now: usize, limits: &Limits) {
    let mut counts = vec![0; backoff.len()];
    matches.iter().for_each(|m| counts[m.rule] += 1);
    for (r, b) in backoff.iter_mut().enumerate() {
        if counts[r] > limits.sites_max << b.bans.min(16) {
            b.until = now + (2 << b.bans.min(8));
            b.bans += 1;
        }
    }
    matches.retain(|m| backoff[m.rule].until <= now);
}

/// Adds the matches. Returns true if the node limit is reached or `allow` refuses.
fn apply(
    egraph: &mut EGraph,
    rules: &[Compiled],
    matches: Vec<Match>,
    run: &mut Run,
    nodes_max: usize,
    allow: Allow,
) -> Result<bool, String> {
    for m in matches {
        if egraph.total_size() + m.to.size() > nodes_max {
            return Ok(true);
        }
        egraph.analysis.origin = egraph[m.class].data.origin;
        let id = m.to.add(egraph)?;
        let to = match &m.to {
            Expr::Class(_) => egraph[id].nodes[0].op,
            Expr::Node(..) => egraph.id_to_node(id).op,
        };
        let (mine, other) = (egraph[m.class].data.ty, egraph[id].data.ty);
        if mine != other {
            let table = &egraph.analysis.table;
            return Err(format!("a rule gives {} for {}", table.ty(other), table.ty(mine)));
        }
        if egraph.find(m.class) == egraph.find(id) {
            continue;
        }
        if !allow(rules[m.rule].rule, egraph.analysis.origin) {
            return Ok(true);
        }
        if egraph.union(m.class, id) {
            let found = run.steps.len();
            run.steps.push(Step { found, rule: rules[m.rule].rule, class: m.class, from: m.from, to });
            run.fired[m.rule] += 1;
        }
    }
    Ok(false)
}

/// The classes that changed, and those above them as far as a pattern reaches.
fn touched(egraph: &mut EGraph) -> BTreeSet<Id> {
    let dirty = std::mem::take(&mut egraph.analysis.dirty);
    let mut all: BTreeSet<Id> = dirty.into_iter().map(|id| egraph.find(id)).collect();
    let mut front: Vec<Id> = all.iter().copied().collect();
    for _ in 0..DEPTH_MAX {
        let mut above = vec![];
        for id in front {
            let parents = egraph[id].parents().map(|p| egraph.find(p));
            above.extend(parents.filter(|p| all.insert(*p)));
        }
        front = above;
    }
    all
}
