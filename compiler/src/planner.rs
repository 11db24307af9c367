//! a model, ranks of a described cluster  =>  candidate plans, the best first

use crate::import::{DimRange, ParamStore};
use crate::module::graph_after;
use crate::onnx::Model;
use crate::placement::Placement;
use crate::sizes::{Sizes, sizes_of_call};
use sardonyx_base::{Dim, Error, Result};
use sardonyx_cluster::Topology;
use sardonyx_dialects::sdx::Graph;
use sardonyx_kernels::{DeviceSpec, Rates};
use sardonyx_passes::distribute::{self, Candidate, Noise, Run, Task, Times, plan};
use sardonyx_passes::{Options, Params};
use std::collections::BTreeMap;

/// The stage before a program is split over ranks.
const STAGE: &str = "simplify";

/// What to plan for: sizes, and a cluster with a number of ranks.
pub struct Wanted<'t> {
    /// Ranges of dimension symbols, by name.
    pub dims: BTreeMap<String, DimRange>,
    /// Sizes of the call that the plan is made for.
    pub at: Sizes,
    /// The cluster that the ranks run on.
    pub topology: &'t Topology,
    /// The device of each rank, if not the topology's.
    pub device: Option<DeviceSpec>,
    /// Number of ranks that run the model together.
    pub ranks: usize,
    /// Bytes of memory that each rank may use; `None` for no limit.
    pub memory: Option<u64>,
}

/// The quantity by which plans are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Goal {
    /// A call of the given sizes ends soonest
    #[default]
    Latency,
    /// Most elements of the batch per second, in batches that are multiples of the given one
    Throughput,
}

/// Candidate plans for a model.
pub struct Plans {
    /// Candidates, the best first.
    pub candidates: Vec<Candidate>,
    /// Value of every symbol in the call that the plans are made for.
    pub sizes: Sizes,
    /// Name of a rank's device, or its share of one: `4 of 16 cores of NAME`.
    pub device: String,
    /// Elements of the batch per second with the best plan; `None` if the model has no open batch, or nothing fits.
    pub per_second: Option<f64>,
}

/// Plans a model. Errors: E0108 for a topology that is too small or names no device, E0406 for a device without a
/// figure, E0204 and E0301 for sizes that the model does not have.
pub fn plans(model: &Model, wanted: &Wanted, goal: Goal) -> Result<Plans> {
    let (device, rates) = rates(wanted)?;
    wanted.topology.check_ranks(wanted.ranks)?;
    let (graph, sizes) = unsplit(model, wanted)?;
    let batch = distribute::batch(&graph).and_then(|batch| Some(batch.as_name()?.to_string()));
    let planned = |sizes: Sizes| -> Result<Plans> {
        let task = Task {
            graph: &graph,
            sizes: &sizes,
            topology: wanted.topology,
            rates,
            ranks: wanted.ranks,
            memory: wanted.memory.map(|n| n as f64),
            times: Times::new(wanted.topology),
        };
        let candidates = plan(&task)?;
        let best = candidates.first().filter(|best| best.fits).and_then(|best| best.estimate.as_ref().ok());
        let n = batch.as_ref().and_then(|name| sizes.get(name));
        let per_second = best.zip(n).map(|(best, n)| *n as f64 / best.time_us() * 1e6);
        Ok(Plans { candidates, sizes, device: device.clone(), per_second })
    };
    let mut found = planned(sizes)?;
    let (Goal::Throughput, Some(batch)) = (goal, &batch) else { return Ok(found) };
    let inputs = || graph.inputs().map(|(_, _, ty)| ty.dims.as_slice()).collect::<Vec<&[Dim]>>();
    let first = found.sizes.get(batch).copied().unwrap_or(1).max(1);
    for factor in (1..=DOUBLINGS_MAX).map(|n| 1i64 << n) {
        let mut at = wanted.at.clone();
        at.insert(batch.clone(), first.saturating_mul(factor));
        // A batch beyond what the model takes ends the search.
        let Ok(sizes) = sizes_of_call((&graph.symbols, &graph.checks), inputs(), &at) else { break };
        let next = planned(sizes)?;
        let (Some(before), Some(rate)) = (found.per_second, next.per_second) else { break };
        if rate < before * (1.0 + WORTH) {
            break;
        }
        found = next;
    }
    Ok(found)
}

/// Maximum number of times that the search for the highest throughput doubles the batch.
const DOUBLINGS_MAX: u32 = 12;
/// Fraction by which twice the batch must raise the throughput, as it also raises the time of a call.
const WORTH: f64 = 0.03;

/// The program before it is split, and the sizes of the call.
fn unsplit(model: &Model, wanted: &Wanted) -> Result<(Graph, Sizes)> {
    let options = |params: &ParamStore| Options { params: Params::new(params.clone()), ..Options::default() };
    let (graph, _) = graph_after(model, &wanted.dims, STAGE, options)?;
    let inputs: Vec<&[Dim]> = graph.inputs().map(|(_, _, ty)| ty.dims.as_slice()).collect();
    let sizes = sizes_of_call((&graph.symbols, &graph.checks), inputs, &wanted.at)?;
    Ok((graph, sizes))
}

/// A simulated call of a planned model.
pub struct Simulated {
    /// Result of the call without noise.
    pub run: Run,
    /// Times in microseconds of further calls, each with its own noise, in ascending order.
    pub noisy_us: Vec<f64>,
    /// Name of a rank's device, or its share of one: `4 of 16 cores of NAME`.
    pub device: String,
    /// Sizes of the call as text.
    pub at: String,
}

/// What to simulate in addition to the plain call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside {
    /// Whether to record the events of the ranks, as for a trace.
    pub events: bool,
    /// The mean share by which noise prolongs a computation, and the number of calls with noise.
    pub noise: Option<(f64, usize)>,
}

/// Simulates a call of a model that is split by a plan. Errors: those of [`plans`], and of compiling with the plan.
pub fn simulated(model: &Model, placement: &Placement, wanted: &Wanted, beside: Beside) -> Result<Simulated> {
    let (device, rates) = rates(wanted)?;
    wanted.topology.check_ranks(wanted.ranks)?;
    let (graph, sizes) = unsplit(model, wanted)?;
    let mut options = Options { mesh: placement.mesh.clone(), ..Options::default() };
    placement.set(&mut options);
    let local = distribute::program_of_ranks(&graph, &options)?;
    let run =
        |events, noise| distribute::simulated(&local, &sizes, wanted.topology, rates, &placement.mesh, events, noise);
    let (share, calls) = beside.noise.unwrap_or_default();
    let noisy = |seed| Ok(run(false, Some(Noise::new(share, seed)))?.outcome.time_us);
    let mut noisy_us = (0..calls as u64).map(noisy).collect::<Result<Vec<f64>>>()?;
    noisy_us.sort_by(f64::total_cmp);
    Ok(Simulated { run: run(beside.events, None)?, noisy_us, device, at: format_sizes(&sizes) })
}

/// Bytes that each link carries in a call with this plan, in descending order. Errors: those of [`simulated`].
pub fn bytes_on_links(model: &Model, plan: &Candidate, wanted: &Wanted) -> Result<Vec<(String, u64)>> {
    let Simulated { run, .. } = simulated(model, &Placement::planned(plan), wanted, Beside::default())?;
    Ok(run.outcome.busiest_links().into_iter().map(|(link, bytes)| (link.to_string(), bytes)).collect())
}

/// Sizes as text: `at batch=8 seq=128`.
pub fn format_sizes(sizes: &Sizes) -> String {
    let all: Vec<String> = sizes.iter().map(|(name, n)| format!("{name}={n}")).collect();
    if all.is_empty() { "fixed sizes".into() } else { format!("at {}", all.join(" ")) }
}

/// Description of a rank's device, and its rates.
fn rates(wanted: &Wanted) -> Result<(String, Rates)> {
    let of_topology = wanted.topology.device.as_ref();
    let (spec, cores) = match (&wanted.device, of_topology) {
        (Some(spec), _) => (spec.clone(), None),
        (None, Some(device)) => {
            let spec = DeviceSpec::named(&device.name).ok_or_else(|| {
                let message = format!("the topology's device `{}` is not described", device.name);
                Error::user("E0108", message).help("`sardonyx devices` lists the names; or give `--device FILE.toml`")
            })?;
            (spec, device.cores)
        }
        (None, None) => {
            let message = format!("the topology `{}` does not say what a rank computes on", wanted.topology.name);
            return Err(Error::user("E0108", message).help("give `--device NAME`, or a `[device]` in the topology"));
        }
    };
    let (all, rates) = (spec.cores.value, Rates::new(&spec)?);
    match (cores, all) {
        (Some(cores), Some(all)) if cores < all as usize => {
            let share = cores as f64 / all as f64;
            let rates = Rates {
                bytes_per_s: rates.bytes_per_s * share,
                vector_ops_per_s: rates.vector_ops_per_s * share,
                contract_ops_per_s: rates.contract_ops_per_s * share,
                contract_bf16_ops_per_s: rates.contract_bf16_ops_per_s * share,
                ..rates
            };
            Ok((format!("{cores} of {all} cores of {}", spec.name), rates))
        }
        _ => Ok((spec.name.clone(), rates)),
    }
}
