//! a program, ranks on a described cluster  =>  where the stages of a pipeline begin, and the predicted time of a call
//!
//! The operations are cut, in their order, into stages such that the slowest stage, with the transfer of its inputs, is
//! as fast as possible (dynamic programming over positions where few bytes cross). A call takes the time of all stages
//! for one micro-batch, plus the time of the slowest stage for each further one.

use super::estimate::{Estimate, Exchanges, Local, Time};
use super::machine::Machine;
use super::{Candidate, FoundBy, Task};
use crate::placement::{OperandPlace, Stages};
use crate::shard::{
    Along, States, batch, everywhere, fixed_values, is_view, split, stages_of_values, with_operands_placed, with_sends,
};
use crate::usual::Sizes;
use sardonyx_base::host::Collective;
use sardonyx_base::{Dim, Error, Result};
use sardonyx_dialects::sdx::{Graph, Node, Op};
use std::collections::BTreeMap;

/// Maximum number of stages; `readers` has one bit of a word for each. Pipelines on few hosts gain nothing from more.
const STAGES_MAX: usize = 64;
/// Maximum number of positions that are considered as starts of stages.
const PLACES_MAX: usize = 400;
/// Numbers of micro-batches that are tried.
static MICRO_BATCHES: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Fraction of the time that a larger number of micro-batches must save, because the program repeats its operations for
/// each of them.
const WORTH: f64 = 0.03;

/// Returns one candidate for each of the given ways to split along the other axes. Their stages, along the first axis,
/// begin at the same nodes. Returns none if the program is too short for so many stages.
pub fn candidates(task: &Task, mesh: &[i64], ways: Vec<(FoundBy, Vec<OperandPlace>)>) -> Result<Vec<Candidate>> {
    let machine = Machine::new(task.rates, mesh, &task.times);
    let begins = begins(task, &machine, mesh[0] as usize)?;
    if begins.len() as i64 + 1 != mesh[0] {
        return Ok(vec![]);
    }
    let made = |(found_by, places): (FoundBy, Vec<OperandPlace>)| {
        let local = local_program(task.graph, mesh, &places, found_by == FoundBy::Rules, &begins);
        let (micro_batches, estimate) = match local.and_then(|local| best(task, &machine, &local, &begins)) {
            Ok((micro_batches, estimate)) => (micro_batches, Ok(estimate)),
            Err(e) => (1, Err(e.message)),
        };
        let stages = Stages { axis: 0, begins: begins.clone(), micro_batches };
        Candidate::new(task, mesh, found_by, (places, Some(stages)), estimate)
    };
    Ok(ways.into_iter().map(made).collect())
}

/// Whether a pipeline with this many stages can be planned.
pub fn is_possible(stages: i64) -> bool {
    (2..=STAGES_MAX as i64).contains(&stages)
}

/// Returns the program of a rank, with the sends between stages.
fn local_program(
    graph: &Graph,
    mesh: &[i64],
    places: &[OperandPlace],
    seeds: bool,
    begins: &[String],
) -> Result<Graph> {
    let placed = with_operands_placed(graph, places)?;
    let (piped, _) = with_sends(&placed, 0, &stages_of_values(&placed, begins)?)?;
    let along = |axis| Along { seeds: seeds && axis > 0, gathers: false };
    let along: Vec<Along> = (0..mesh.len()).map(along).collect();
    let (local, _) = split(&piped, mesh, &along, &mut vec![States::new(); mesh.len()])?;
    Ok(local)
}

/// Returns the names of the nodes at which all stages but the first begin, chosen to minimise the time of the slowest
/// stage. There are fewer stages than requested if the program is too short.
fn begins(task: &Task, machine: &Machine, n_stages: usize) -> Result<Vec<String>> {
    let graph = task.graph;
    let local = Local::new(graph, task.sizes)?;
    let mut until = vec![0.0];
    for (v, _) in graph.values() {
        let us = match local.time(v, machine)? {
            Time::Compute(us) | Time::Exchange(_, _, us) => us,
        };
        until.push(until[until.len() - 1] + us);
    }
    let crossing = crossing(graph, &local);
    let places = places(graph, &crossing, &until);
    let send = Collective::Send { mesh: 0, from: 0, to: 1 };
    let mut sends = vec![0.0];
    for &(at, _) in &places {
        sends.push(machine.exchange_us(&send, crossing[at])?);
    }
    // The first position is the start of the program: the first stage receives nothing.
    let at: Vec<usize> = [0].into_iter().chain(places.iter().map(|(at, _)| *at)).collect();
    let takes = |from: usize, to: usize| until[to] - until[at[from]] + sends[from];
    let n_stages = n_stages.min(at.len());
    // By number of stages that follow, and by the position at which a stage begins: the least possible time of the
    // slowest of this and the following stages, and the position at which the next stage begins.
    let mut least: Vec<Vec<(f64, usize)>> =
        vec![(0..at.len()).map(|from| (takes(from, graph.nodes.len()), 0)).collect()];
    for _ in 1..n_stages {
        let after = &least[least.len() - 1];
        let best = |from: usize| {
            let slowest = |to: usize| (takes(from, at[to]).max(after[to].0), to);
            let ways = (from + 1..at.len()).map(slowest);
            ways.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, 0))
        };
        least.push((0..at.len()).map(best).collect());
    }
    let (mut from, mut names) = (0, vec![]);
    for ways in least[1..].iter().rev() {
        from = ways[from].1;
        if from > 0 {
            names.push(places[from - 1].1.clone());
        }
    }
    Ok(names)
}

/// Returns, by position, the bytes that must be sent if a stage begins there: values that are computed before it, read
/// at or after it, and not recomputed by the stage that reads them. A view is not sent; its operand is.
fn crossing(graph: &Graph, local: &Local) -> Vec<f64> {
    let (everywhere, live) = (everywhere(graph), graph.live());
    let is_view = |v: usize| is_view(&graph.nodes[v].op);
    let mut last = vec![0; graph.nodes.len()];
    for (v, node) in graph.nodes.iter().enumerate().rev().filter(|(v, _)| live[*v]) {
        let reader = if is_view(v) { last[v] } else { v };
        node.args.iter().for_each(|arg| last[arg.index()] = reader.max(last[arg.index()]));
    }
    let mut change = vec![0.0; graph.nodes.len() + 2];
    for (v, _) in graph.values().filter(|(v, _)| live[v.index()] && !everywhere[v.index()] && !is_view(v.index())) {
        let bytes = local.bytes(v);
        change[v.index() + 1] += bytes;
        change[last[v.index()].max(v.index()) + 1] -= bytes;
    }
    let mut now = 0.0;
    change
        .iter()
        .map(|change| {
            now += change;
            now
        })
        .collect()
}

/// Divides the program's time into [`PLACES_MAX`] equal intervals. Returns, for each interval in which ONNX nodes
/// begin, the node at whose start the fewest bytes are sent: its position and its name.
fn places(graph: &Graph, crossing: &[f64], until: &[f64]) -> Vec<(usize, String)> {
    let (live, fixed) = (graph.live(), fixed_values(graph));
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        for name in &node.origins {
            first.entry(name).or_insert(at);
        }
    }
    let total = until[until.len() - 1];
    let mut found: BTreeMap<usize, (usize, String)> = BTreeMap::new();
    for (at, node) in graph.nodes.iter().enumerate().skip(1) {
        let computes = live[at] && !fixed[at] && !matches!(node.op, Op::Input { .. });
        let name = node.origins.iter().find(|name| first[name.as_str()] == at);
        let Some(name) = name.filter(|_| computes && until[at] > 0.0 && until[at] < total) else { continue };
        let stretch = (until[at] / total * PLACES_MAX as f64) as usize;
        let known = found.entry(stretch).or_insert_with(|| (at, name.clone()));
        if crossing[at] < crossing[known.0] {
            *known = (at, name.clone());
        }
    }
    found.into_values().collect()
}

/// Returns the number of micro-batches to use, and the estimate for it. A larger number replaces a smaller one if it
/// saves more than the fraction [`WORTH`] of the time.
fn best(task: &Task, machine: &Machine, local: &Graph, begins: &[String]) -> Result<(usize, Estimate)> {
    let stage_of = stages_by_origin(task.graph, local, begins)?;
    let batch = batch(task.graph);
    let size = |d: &Dim| d.eval_named(&|name| task.sizes.get(name).copied()).unwrap_or(1);
    let n = batch.as_ref().map_or(1, size);
    let mut best: Option<(usize, Estimate)> = None;
    for micro_batches in MICRO_BATCHES.into_iter().filter(|m| *m as i64 <= n) {
        let mut sizes = task.sizes.clone();
        let mut share = 1.0;
        match batch.as_ref().and_then(Dim::as_name) {
            Some(name) => drop(sizes.insert(name.to_string(), (n as u64).div_ceil(micro_batches as u64) as i64)),
            None => share = 1.0 / micro_batches as f64,
        }
        let estimate = estimate(local, &sizes, machine, (&stage_of, begins.len() + 1), (micro_batches, share))?;
        let is_better = |known: &Estimate| estimate.time_us() < known.time_us() * (1.0 - WORTH);
        if best.as_ref().is_none_or(|(_, known)| is_better(known)) {
            best = Some((micro_batches, estimate));
        }
    }
    best.ok_or_else(|| Error::defect("a pipeline without a batch"))
}

/// Returns, by value of the local program, the stage of the original operation with the same first origin; 0 if there
/// is none.
fn stages_by_origin(graph: &Graph, local: &Graph, begins: &[String]) -> Result<Vec<usize>> {
    let stage_of = stages_of_values(graph, begins)?;
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    for (node, stage) in graph.nodes.iter().zip(stage_of) {
        if let Some(name) = node.origins.first() {
            by_name.entry(name).or_insert(stage);
        }
    }
    let stage = |node: &Node| node.origins.first().and_then(|name| by_name.get(name.as_str())).copied().unwrap_or(0);
    Ok(local.nodes.iter().map(stage).collect())
}

/// Estimates a call of this many micro-batches, each of which takes `share` of the program's time at `sizes`.
fn estimate(
    graph: &Graph,
    sizes: &Sizes,
    machine: &Machine,
    (stage_of, n_stages): (&[usize], usize),
    (micro_batches, share): (usize, f64),
) -> Result<Estimate> {
    let local = Local::new(graph, sizes)?;
    let (mut computes, mut exchanges) = (vec![0.0; n_stages], vec![0.0; n_stages]);
    let mut kinds = Exchanges::default();
    let m = micro_batches as f64;
    for (v, _) in graph.values() {
        let stage = stage_of[v.index()];
        match local.time(v, machine)? {
            Time::Compute(us) => computes[stage] += us * share,
            Time::Exchange(op, bytes, us) => {
                exchanges[stage] += us * share;
                (0..micro_batches).for_each(|_| kinds.add(&op, bytes * share, us * share));
            }
        }
    }
    let stage_us = |s: usize| computes[s] + exchanges[s];
    let slowest = (0..n_stages).max_by(|a, b| stage_us(*a).total_cmp(&stage_us(*b))).unwrap_or(0);
    let in_call = |each: &[f64]| each.iter().sum::<f64>() + (m - 1.0) * each[slowest];
    let (compute_us, exchange_us) = (in_call(&computes), in_call(&exchanges));
    let busy = m * computes.iter().sum::<f64>() / n_stages as f64;
    let reads = readers(graph, stage_of);
    let weights = (0..n_stages).map(|s| local.weight_bytes(&|v| reads[v.index()] >> s & 1 == 1));
    Ok(Estimate {
        compute_us,
        exchange_us,
        hidden_us: 0.0,
        weight_bytes: weights.fold(0.0, f64::max),
        activation_bytes: local.activation_bytes() * share,
        exchanges: kinds.largest_first(),
        bubble: Some(1.0 - busy / (compute_us + exchange_us)),
    })
}

/// Returns, by value, a bit set of the stages that read it, directly or through values that do not depend on inputs.
fn readers(graph: &Graph, stage_of: &[usize]) -> Vec<u64> {
    let fixed = fixed_values(graph);
    let mut readers = vec![0u64; graph.nodes.len()];
    for (v, node) in graph.nodes.iter().enumerate().rev() {
        let by = if fixed[v] { readers[v] } else { 1 << stage_of[v] };
        node.args.iter().for_each(|arg| readers[arg.index()] |= by);
    }
    readers
}
