//! conv(x, w) with 3x3, 3 or 5 taps  =>  Winograd's three kernels where faster, for a whole batch or parts of it
//!
//! The three kernels pass values to each other in a workspace; the option `workspace-limit` bounds its bytes for one
//! convolution. `splits` finds the best ways to cut a batch into calls, each computed directly or by Winograd's
//! algorithm; the fastest way within the limit is taken. A batch of a symbolic size is not cut, and the limit then
//! applies to one image.
//!
//! Transformed filters are stored in the artifact if its size budget allows; otherwise each call of the model
//! transforms the filters, if the algorithm still pays off.

mod splits;
#[cfg(test)]
mod tests;
mod tiles;
mod winograd;

use crate::draft::Draft;
use crate::fuse::Costs;
use crate::layout::{Pricer, sort_outer};
use crate::options::Precision;
use crate::remark::Missed;
use crate::rewrite::Rewrites;
use crate::schedule;
use crate::usual::{Sizes, USUAL, usual};
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{Body, Container, FlowOp, Kernel, Memlet, Program, Step, Store};
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::scalar::ScalarFn;
use splits::{Call, Policy, Split, best};
use std::sync::Arc;
use winograd::{Filters, Site};

/// Batches larger than this are not split: one algorithm computes all of it.
const BATCH_MAX: i64 = 512;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    let limit = rewrites.options().workspace_limit.unwrap_or(u64::MAX);
    if rewrites.options().precision == Precision::Bf16 {
        // Contractions in bf16 are more than twice as fast, but the transforms would have to run in f32.
        return Ok(());
    }
    let costs = Costs::new(rewrites.options().target);
    rewrites.programs(module, |rewrites, program| choose(program, &costs, limit, rewrites))
}

fn choose(program: &mut Program, costs: &Costs, limit: u64, rewrites: &mut Rewrites) -> Result<()> {
    // Starts at the last step, so that the indices of earlier steps stay valid.
    for Candidate { at, site, way } in candidates(program, costs, limit, rewrites).into_iter().rev() {
        let compute = |program: &mut Program| {
            let step = program.steps.remove(at);
            apply(program, &site, &step, &way);
        };
        if !rewrites.apply(program, "winograd", &[at], compute)? {
            break;
        }
    }
    Ok(())
}

/// A convolution that is estimated to be faster with Winograd's algorithm.
struct Candidate {
    /// Index of the convolution's step.
    at: usize,
    site: Site,
    way: Way,
}

/// How a convolution is computed.
#[derive(Debug)]
struct Way {
    filters: Filters,
    calls: Vec<(i64, Algorithm)>,
    /// Estimated time saved, in picoseconds.
    gain: u64,
}

/// Returns the convolutions worth rewriting, in the order of their steps.
fn candidates(program: &Program, costs: &Costs, limit: u64, rewrites: &mut Rewrites) -> Vec<Candidate> {
    let producers = program.producers();
    let (mut found, mut growing) = (vec![], vec![]);
    let estimate =
        |at: usize, site: &Site, filters| Estimate::new(program, at, site, filters, costs).fastest_variant(limit);
    for (at, step) in program.steps.iter().enumerate() {
        let Some(site) = Site::find(program, step, &producers) else { continue };
        let stored = site.growth().and_then(|growth| Some((growth, estimate(at, &site, Filters::Stored)?)));
        if let Some((growth, way)) = stored {
            growing.push((growth, Candidate { at, site, way }));
        } else if let Some(way) = estimate(at, &site, Filters::Made) {
            found.push(Candidate { at, site, way });
        } else {
            let filters = if site.growth().is_some() { Filters::Stored } else { Filters::Made };
            tell(rewrites, &step.origins, &Estimate::new(program, at, &site, filters, costs), limit);
        }
    }
    // The size budget goes first to the convolutions that save most time per byte.
    let per_byte = |growth: u64, way: &Way| u128::from(way.gain) * 1_000_000 / u128::from(growth.max(1));
    growing.sort_by_key(|(growth, c)| (std::cmp::Reverse(per_byte(*growth, &c.way)), c.at));
    let mut left = weights(program) / GROWTH;
    for (growth, candidate) in growing {
        if growth <= left {
            left -= growth;
            found.push(candidate);
        } else if let Some(way) = estimate(candidate.at, &candidate.site, Filters::Made) {
            found.push(Candidate { way, ..candidate });
        } else {
            let origins = program.steps[candidate.at].origins.clone();
            let (reason, node) = ("its filters would make the artifact too large", origins.first().cloned());
            let detail = Some(format!("{growth} bytes more, {left} of 1/{GROWTH} of the weights are left"));
            rewrites.missed(Missed { reason, node, origins, detail, ..Missed::default() });
        }
    }
    found.sort_by_key(|candidate| candidate.at);
    found
}

/// Stored filters may enlarge an artifact by at most 1/`GROWTH` of its weights, counted as f32.
const GROWTH: u64 = 8;

/// Returns the bytes of the parameters. f16 parameters count as f32, so that a model gets the same algorithms in either
/// type.
fn weights(program: &Program) -> u64 {
    let bytes = |step: &Step| match &step.op {
        FlowOp::Param { window: None, .. } => {
            let mut container = program.containers[step.results[0]].clone();
            if container.dtype == DType::F16 {
                container.dtype = DType::F32;
            }
            let bytes = schedule::bytes(&container).ok().and_then(|bytes| bytes.as_const());
            bytes.and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
        }
        _ => 0,
    };
    program.steps.iter().map(bytes).fold(0, u64::saturating_add)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    /// A reduction over channels and filter offsets, without a workspace.
    Direct,
    Winograd,
}

/// Estimated time of one algorithm, as a linear function of the number of batch elements.
struct Needs {
    /// Picoseconds per call, whatever its size, and picoseconds per batch element.
    call: u64,
    each: u64,
}

impl Needs {
    /// Splits the estimated total time of `kernels` kernels, for `batch` elements, into the time per call and the time
    /// per element.
    fn from_total(total: u64, kernels: u64, costs: &Costs, batch: i64) -> Needs {
        let call = (kernels * costs.launch()).min(total);
        Needs { call, each: (total - call) / batch.max(1) as u64 }
    }

    fn time(&self, size: i64) -> u64 {
        self.call.saturating_add(self.each.saturating_mul(size as u64))
    }
}

struct Estimate<'e> {
    site: &'e Site,
    filters: Filters,
    costs: &'e Costs,
    /// Symbol values of a typical call.
    sizes: Sizes,
    batch: i64,
    direct: Needs,
    /// Estimated time of Winograd's algorithm if all values passed between its kernels are read from main memory rather
    /// than from a cache.
    winograd: Needs,
    /// Picoseconds to concatenate the results of the parts.
    joining: u64,
}

impl<'e> Estimate<'e> {
    fn new(program: &Program, at: usize, site: &'e Site, filters: Filters, costs: &'e Costs) -> Estimate<'e> {
        let batch = site.batch().map_or(1, |(_, n)| n);
        let step = &program.steps[at];
        let inputs = program.inputs.iter().map(|(_, id)| program.containers[*id].dims.as_slice());
        let sizes = usual(&program.symbols, inputs, USUAL);
        let mut trial = program.clone();
        for (name, size) in &sizes {
            trial.symbols.entry(name.clone()).and_modify(|s| (s.lo, s.hi) = (*size, Some(*size)));
        }
        let n_steps = trial.steps.len();
        let matrices = site.filters(&mut trial, filters, &[]);
        let first = trial.steps.len();
        site.apply(&mut trial, None, matrices, &step.results, &[]);
        let pricer = Pricer::new(&trial, costs);
        let price = |step: usize| pricer.cost(step, &|_| None);
        let total = |prices: &mut dyn Iterator<Item = u64>| prices.fold(0, u64::saturating_add);
        let copies = step.results.iter().map(|id| costs.kernel(&joined(&program.containers[*id], &[]), &trial));
        let mut winograd = Needs::from_total(total(&mut (first..trial.steps.len()).map(price)), 3, costs, batch);
        winograd.call = total(&mut (n_steps..first).map(price)).saturating_add(winograd.call);
        Estimate {
            site,
            filters,
            costs,
            batch,
            direct: Needs::from_total(price(at), 1, costs, batch),
            winograd,
            joining: total(&mut copies.into_iter()),
            sizes,
        }
    }

    /// Returns the bytes passed between the kernels of a call; a symbol without a typical value counts as 1.
    fn workspace(&self, size: i64) -> u64 {
        let part = self.site.batch().map(|(var, _)| Part { var, first: 0, size });
        let size = |name: &str| Some(self.sizes.get(name).copied().unwrap_or(1));
        self.site.workspace(part.as_ref(), &size).unwrap_or(u64::MAX)
    }

    /// Returns the direct call and the Winograd call for this many batch elements. A workspace that fits the cache is
    /// read back from the cache, which favours small calls.
    fn calls(&self, size: i64) -> [Call<Algorithm>; 2] {
        let workspace = self.workspace(size);
        let winograd = self.winograd.time(size).saturating_sub(self.costs.kept(workspace));
        let direct = Call { algorithm: Algorithm::Direct, time: self.direct.time(size), workspace: 0 };
        [direct, Call { algorithm: Algorithm::Winograd, time: winograd, workspace }]
    }

    /// Returns the fastest variant within the limit, if it uses Winograd's algorithm for some calls.
    fn fastest_variant(&self, limit: u64) -> Option<Way> {
        let Split { time, calls, .. } = self.choose(limit);
        let gain = self.direct.time(self.batch).saturating_sub(time);
        let direct = calls.iter().all(|(_, algorithm)| *algorithm == Algorithm::Direct);
        (!direct).then_some(Way { filters: self.filters, calls, gain })
    }

    /// Returns the fastest way to cut the batch into calls within the workspace limit.
    fn choose(&self, limit: u64) -> Split<Algorithm> {
        let whole = || {
            let fits = self.calls(self.batch).into_iter().filter(|call| call.workspace <= limit);
            let best = fits.min_by_key(|call| call.time);
            let (time, algorithm) = best.map_or((0, Algorithm::Direct), |call| (call.time, call.algorithm));
            Split { time, workspace: 0, calls: vec![(self.batch, algorithm)] }
        };
        if self.batch == 1 || self.batch > BATCH_MAX {
            return whole();
        }
        let joining = |split: &Split<Algorithm>| if split.calls.len() > 1 { self.joining } else { 0 };
        let total = |split: &Split<Algorithm>| split.time.saturating_add(joining(split));
        let found = best(self.batch, Policy::PowersOfTwo, |size| self.calls(size).to_vec());
        let found = found.into_iter().filter(|split| split.workspace <= limit).min_by_key(total);
        found.filter(|split| total(split) < whole().time).unwrap_or_else(whole)
    }
}

fn tell(rewrites: &mut Rewrites, origins: &[String], estimate: &Estimate, limit: u64) {
    let [direct, winograd] = estimate.calls(estimate.batch);
    let us = |call: &Call<Algorithm>| format!("{:.1} us", call.time as f64 / 1e6);
    let (reason, detail, remedy) = match winograd.time < direct.time {
        true => (
            "the workspace of Winograd's algorithm is over the limit",
            format!("{} bytes, the limit is {limit}", winograd.workspace),
            Some("raise --workspace-limit"),
        ),
        false => (
            "Winograd's transforms would cost more than they save",
            format!("estimated {} by it, {} without", us(&winograd), us(&direct)),
            None,
        ),
    };
    let node = origins.first().cloned();
    rewrites.missed(Missed { reason, node, origins: origins.to_vec(), detail: Some(detail), remedy });
}

/// The slice of a batch that one call computes.
struct Part {
    /// The variable that counts the batch, the first batch index of the slice, and its length.
    var: usize,
    first: i64,
    size: i64,
}

impl Part {
    /// Returns the container of the part's slice of a result.
    fn slice(&self, container: &Container) -> Container {
        let mut own = container.clone();
        own.dims[0] = Dim::constant(self.size);
        own
    }
}

fn apply(program: &mut Program, site: &Site, step: &Step, way: &Way) {
    let filters = site.filters(program, way.filters, &step.origins);
    let Some((var, _)) = site.batch().filter(|_| way.calls.len() > 1) else {
        return site.apply(program, None, filters, &step.results, &step.origins);
    };
    let mut first = 0;
    let mut parts: Vec<(i64, Vec<Id>)> = vec![];
    for (size, algorithm) in &way.calls {
        let part = Part { var, first, size: *size };
        let own: Vec<Container> = step.results.iter().map(|id| part.slice(&program.containers[*id])).collect();
        let results: Vec<Id> = own.into_iter().map(|c| program.container(c)).collect();
        match algorithm {
            Algorithm::Winograd => site.apply(program, Some(&part), filters, &results, &step.origins),
            Algorithm::Direct => {
                let op = FlowOp::Kernel(Arc::new(direct(site, &part)));
                program.steps.push(Step { op, args: step.args.clone(), results: results.clone(), ..step.clone() });
            }
        }
        parts.push((first, results));
        first += size;
    }
    for (at, id) in step.results.iter().enumerate() {
        let pieces: Vec<(i64, &Container)> =
            parts.iter().map(|(first, results)| (*first, &program.containers[results[at]])).collect();
        let kernel = joined(&program.containers[*id], &pieces);
        let args = parts.iter().map(|(_, results)| results[at]).collect();
        program.steps.push(Step { op: FlowOp::Kernel(Arc::new(kernel)), args, results: vec![*id], ..step.clone() });
    }
}

/// Returns the original convolution restricted to a part.
fn direct(site: &Site, part: &Part) -> Kernel {
    let mut kernel = site.kernel.clone();
    kernel.outer[part.var] = Dim::constant(part.size);
    let moved = |v: usize| (v == part.var).then(|| Kernel::var(v) + Dim::constant(part.first));
    for statement in &mut kernel.body {
        statement.body = statement.body.renumbered(&|k| k, &|d| rename(d, &moved, &|k| k));
    }
    kernel.writes = kernel.writes.iter().map(|c| part.slice(c)).collect();
    kernel
}

/// Returns a kernel that concatenates parts along the first dimension; each part comes with its start offset.
fn joined(whole: &Container, parts: &[(i64, &Container)]) -> Kernel {
    let mut body = Draft { reads: parts.iter().map(|(_, c)| (*c).clone()).collect(), ..Draft::default() };
    let index: Vec<Dim> = (0..whole.dims.len()).map(Kernel::var).collect();
    let mut value = body.push(Body::Const(0.0), whole.dtype);
    for (container, (first, part)) in parts.iter().enumerate() {
        let at = body.push(Body::Index(Kernel::var(0) - Dim::constant(*first)), DType::I64);
        let (zero, end) = (body.number(0), body.push(Body::Index(part.dims[0].clone()), DType::I64));
        let (behind, before) =
            (body.apply(ScalarFn::Le, &[zero, at], DType::Bool), body.apply(ScalarFn::Lt, &[at, end], DType::Bool));
        let inside = body.apply(ScalarFn::And, &[behind, before], DType::Bool);
        let mut own = index.clone();
        own[0] = Kernel::var(0) - Dim::constant(*first);
        let load = Body::Load { memlet: Memlet { container, index: own }, guard: Some(inside) };
        let load = body.push(load, whole.dtype);
        value = body.apply(ScalarFn::Select, &[inside, load, value], whole.dtype);
    }
    let stores = vec![Store { memlet: Memlet { container: 0, index }, value }];
    let mut kernel = body.map(whole.dims.clone(), vec![whole.clone()], stores);
    sort_outer(&mut kernel);
    kernel
}
