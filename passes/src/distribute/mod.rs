//! a program, ranks on a described cluster  =>  what each rank is to have of what operations read, and what that takes
//!
//! For each mesh of as many ranks the ways of all operations along one axis are chosen together (`search.rs`), one axis after
//! the other until nothing improves. The candidates are then split as `shard` splits them, and what is compared is what the
//! programs of ranks do: their operations, collectives and bytes.
//!
//! | file | what it is |
//! |---|---|
//! | `space.rs` | the ways in which each operation may be done along an axis |
//! | `search.rs` | their costs, and those of exchanges between them |
//! | `eliminate.rs` | the choice of least cost |
//! | `pipeline.rs` | where the stages of a pipeline begin |
//! | `machine.rs` | the microseconds of operations and of collectives |
//! | `estimate.rs` | what the program of a rank takes |
//! | `simulated.rs` | the programs of all ranks on the links of the cluster |

mod eliminate;
mod estimate;
mod machine;
mod pipeline;
mod search;
mod simulated;
mod space;

pub use estimate::{Estimate, Exchange};
pub use machine::{Machine, Times};
pub use simulated::{Event, Noise, Run, simulated};

use crate::options::Options;
use crate::placement::{OperandPlace, Overlap, Stages};
use crate::shard::{
    Ranks, Signature, State, States, batch, check_ranks, follows, operation_numbers, overlapped, sharded, split,
    with_operands_placed,
};
use crate::usual::Sizes;
use sardonyx_base::{Dim, Result};
use sardonyx_cluster::Topology;
use sardonyx_dialects::sdx::{Graph, Place};
use sardonyx_kernels::Rates;
use search::{Choice, Search};
use space::Space;

/// What is to be planned.
pub struct Task<'t> {
    /// As it is before `shard`.
    pub graph: &'t Graph,
    /// Of all symbols.
    pub sizes: &'t Sizes,
    pub topology: &'t Topology,
    /// Of one rank.
    pub rates: Rates,
    pub ranks: usize,
    /// Bytes that a rank may have.
    pub memory: Option<f64>,
    /// Times of collectives, as far as they are known.
    pub times: Times<'t>,
}

/// A plan that was considered.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub mesh: Vec<i64>,
    pub found_by: FoundBy,
    pub places: Vec<OperandPlace>,
    /// Of a pipeline along the first axis.
    pub stages: Option<Stages>,
    pub overlap: Option<Overlap>,
    /// Or why it is none.
    pub estimate: std::result::Result<Estimate, String>,
    /// Bytes of a rank are within the limit.
    pub fits: bool,
}

impl Candidate {
    fn new(
        task: &Task,
        mesh: &[i64],
        found_by: FoundBy,
        (places, stages): (Vec<OperandPlace>, Option<Stages>),
        estimate: std::result::Result<Estimate, String>,
    ) -> Candidate {
        let fits = estimate.as_ref().is_ok_and(|e| task.memory.is_none_or(|limit| e.bytes() <= limit));
        Candidate { mesh: mesh.to_vec(), found_by, places, stages, overlap: None, estimate, fits }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// Columns of one product, rows of the next.
    Rules,
    Search,
    /// The same at a price for bytes of weights.
    SearchForMemory,
}

impl FoundBy {
    pub fn name(self) -> &'static str {
        match self {
            FoundBy::Rules => "rules",
            FoundBy::Search => "search",
            FoundBy::SearchForMemory => "search for memory",
        }
    }
}

/// Rounds over all axes.
const ROUNDS_MAX: usize = 4;
/// Prices of a byte, in microseconds: a gigabyte for a microsecond, and ten times as much each time.
const PRICES: [f64; 8] = [1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2];

/// Candidates, the best first: within the memory limit, and of those the fastest.
pub fn plan(task: &Task) -> Result<Vec<Candidate>> {
    let mut all = vec![];
    for mesh in meshes(task.ranks as i64) {
        all.extend(candidates(task, &mesh)?);
        all.extend(pipelines(task, &mesh)?);
    }
    for mesh in meshes_of_three(task) {
        // The batch along the second axis, matrices along the third.
        let ways = vec![(FoundBy::Rules, places_within_stages(task, mesh[1])?)];
        all.extend(pipeline::candidates(task, &mesh, ways)?);
    }
    let time = |c: &Candidate| c.estimate.as_ref().map_or(f64::INFINITY, Estimate::time_us);
    let best = all.iter().filter(|c| c.fits).map(time).fold(f64::INFINITY, f64::min);
    let overlapped = all.iter().map(|c| with_overlap(task, c, best)).collect::<Result<Vec<_>>>()?;
    all.extend(overlapped.into_iter().flatten());
    let bytes = |c: &Candidate| c.estimate.as_ref().map_or(f64::INFINITY, Estimate::bytes);
    all.sort_by(|a, b| {
        // Where nothing fits, that which lacks least.
        let by_size = if a.fits || b.fits { std::cmp::Ordering::Equal } else { bytes(a).total_cmp(&bytes(b)) };
        b.fits.cmp(&a.fits).then(by_size).then(time(a).total_cmp(&time(b))).then(a.places.len().cmp(&b.places.len()))
    });
    Ok(all)
}

/// All meshes of so many ranks with one axis or two, in their order.
fn meshes(ranks: i64) -> Vec<Vec<i64>> {
    let of_two = (2..ranks).filter(|n| ranks % n == 0).map(|n| vec![n, ranks / n]);
    [vec![ranks]].into_iter().chain(of_two).collect()
}

/// Pipelines over hosts, of which several run beside each other, each stage on the ranks of a host.
fn meshes_of_three(task: &Task) -> Vec<Vec<i64>> {
    let host = task.topology.level.first().map_or(1, |level| level.members.iter().product::<usize>()) as i64;
    let ranks = task.ranks as i64;
    if host < 2 || ranks % host != 0 {
        return vec![];
    }
    let hosts = ranks / host;
    let stages = (2..hosts).filter(|n| hosts % n == 0 && pipeline::is_possible(*n));
    stages.map(|n| vec![n, hosts / n, host]).collect()
}

fn candidates(task: &Task, mesh: &[i64]) -> Result<Vec<Candidate>> {
    let machine = Machine::new(task.rates, mesh, &task.times);
    let made = |found_by: FoundBy, places: Vec<OperandPlace>| {
        let estimate = local_program(task.graph, mesh, &places, found_by == FoundBy::Rules)
            .and_then(|local| estimate::estimate(&local, task.sizes, &machine))
            .map_err(|e| e.message);
        Candidate::new(task, mesh, found_by, (places, None), estimate)
    };
    let mut all = vec![made(FoundBy::Rules, vec![])];
    let spaces = spaces(task, mesh)?;
    let searched = |us_per_byte: f64| searched(&machine, &spaces, us_per_byte);
    all.push(made(FoundBy::Search, searched(0.0)?));
    if task.memory.is_some() && all.iter().all(|c| !c.fits) {
        for price in PRICES {
            let candidate = made(FoundBy::SearchForMemory, searched(price)?);
            let fits = candidate.fits;
            all.push(candidate);
            if fits {
                break;
            }
        }
    }
    Ok(all)
}

/// Chunks and micro-batches that are tried.
static OVERLAPS: [[usize; 2]; 6] = [[2, 1], [4, 1], [8, 1], [16, 1], [1, 2], [1, 4]];
/// As much of the time as either has to save: each part is a launch of its own, and exchanged on its own.
const WORTH: f64 = 0.03;

/// The same with the overlap with which a call is fastest, where that is faster than it is in one piece. Where it would not be
/// the best with all its exchanges hidden, nothing is tried.
fn with_overlap(task: &Task, plain: &Candidate, best_us: f64) -> Result<Option<Candidate>> {
    let (Ok(estimate), None) = (&plain.estimate, &plain.stages) else { return Ok(None) };
    if estimate.compute_us >= best_us || estimate.waits_us() < WORTH * estimate.time_us() {
        return Ok(None);
    }
    let machine = Machine::new(task.rates, &plain.mesh, &task.times);
    let local = local_program(task.graph, &plain.mesh, &plain.places, plain.found_by == FoundBy::Rules)?;
    let batch = batch(&local).and_then(|d| d.eval(&|name| task.sizes.get(name).copied()).ok()).unwrap_or(1);
    let tried = |[chunks, micro_batches]: [usize; 2]| {
        let overlap = Overlap { chunks, micro_batches, nodes: vec![] };
        let (cut, _) = overlapped(&local, &overlap).ok()?;
        Some((overlap, estimate::estimate(&cut, task.sizes, &machine).ok()?))
    };
    let all = OVERLAPS.into_iter().filter(|[_, n]| *n as i64 <= batch).filter_map(tried);
    let found = all.min_by(|a, b| a.1.time_us().total_cmp(&b.1.time_us()));
    let found = found.filter(|(_, e)| e.time_us() < estimate.time_us() * (1.0 - WORTH));
    Ok(found.map(|(overlap, e)| {
        let of = (plain.places.clone(), None);
        Candidate { overlap: Some(overlap), ..Candidate::new(task, &plain.mesh, plain.found_by, of, Ok(e)) }
    }))
}

/// The ways of all operations along each axis of a mesh.
fn spaces<'t>(task: &Task<'t>, mesh: &[i64]) -> Result<Vec<Space<'t>>> {
    let along = |(axis, &size): (usize, &i64)| {
        // Places are for all ranks: no symbol stands for one of them.
        let ranks = Ranks { axis, size, coordinate: Dim::constant(0) };
        Space::new(task.graph, ranks, task.sizes)
    };
    mesh.iter().enumerate().map(along).collect()
}

/// The places with which a call takes least, at a price for bytes of weights.
fn searched(machine: &Machine, spaces: &[Space], us_per_byte: f64) -> Result<Vec<OperandPlace>> {
    let search = Search { machine, spaces, us_per_byte };
    let mut choice = search.whole();
    let mut last = f64::INFINITY;
    for _ in 0..ROUNDS_MAX {
        let mut cost = last;
        for axis in 0..spaces.len() {
            cost = search.improve(axis, &mut choice)?;
        }
        if spaces.len() == 1 || cost >= last * (1.0 - 1e-9) {
            break;
        }
        last = cost;
    }
    Ok(places(spaces, &choice))
}

/// A pipeline along the first axis, whose stages are split along the second where there is one.
fn pipelines(task: &Task, mesh: &[i64]) -> Result<Vec<Candidate>> {
    if !pipeline::is_possible(mesh[0]) {
        return Ok(vec![]);
    }
    let ways = match mesh.get(1) {
        None => vec![(FoundBy::Search, vec![])],
        Some(&inner) => vec![(FoundBy::Rules, vec![]), (FoundBy::Search, places_within_stages(task, inner)?)],
    };
    pipeline::candidates(task, mesh, ways)
}

/// What the ranks of a stage are to have along the second axis: they are taken for neighbours, as those of a mesh of them alone
/// are.
fn places_within_stages(task: &Task, size: i64) -> Result<Vec<OperandPlace>> {
    let machine = Machine::new(task.rates, &[size], &task.times);
    let mut places = searched(&machine, &spaces(task, &[size])?, 0.0)?;
    places.iter_mut().for_each(|place| place.place.mesh += 1);
    Ok(places)
}

/// The program that all ranks run, as a plan's options say it. Errors: those of the pass `shard`.
pub fn program_of_ranks(graph: &Graph, options: &Options) -> Result<Graph> {
    if let Some(stages) = &options.stages {
        check_ranks(stages, &options.mesh)?;
    }
    sharded(graph, options, &mut vec![States::new(); options.mesh.len()]).map(|(local, _)| local)
}

/// The program of each rank.
fn local_program(graph: &Graph, mesh: &[i64], places: &[OperandPlace], seeds: bool) -> Result<Graph> {
    let placed = with_operands_placed(graph, places)?;
    let (local, _) = split(&placed, mesh, seeds, &mut vec![States::new(); mesh.len()])?;
    Ok(local)
}

/// The operands that have to be placed so that all operations are done as chosen, where that does not follow by itself.
fn places(spaces: &[Space], choice: &Choice) -> Vec<OperandPlace> {
    let graph = spaces[0].graph;
    let numbers = operation_numbers(graph);
    let mut all = vec![];
    for (axis, space) in spaces.iter().enumerate() {
        let way = |v: usize| space.ways[v].get(choice[axis][v]);
        for (v, node) in graph.values() {
            let Some(chosen) = way(v.index()) else { continue };
            let has: Vec<&State> =
                node.args.iter().map(|arg| way(arg.index()).map_or(&State::Whole, |way| &way.result)).collect();
            let by_itself = follows(graph, &space.ranks, node, &has).unwrap_or_else(|| Signature::whole(node));
            if by_itself == *chosen {
                continue;
            }
            for (operand, (need, has)) in chosen.operands.iter().zip(&has).enumerate() {
                let split = match need {
                    State::Partial(_) => continue,
                    State::Whole if matches!(has, State::Whole) => continue,
                    State::Whole => None,
                    State::Split(split) => Some((split.dim, split.outer.clone(), split.unit.clone())),
                };
                let node = node.origins.first().cloned().unwrap_or_default();
                all.push(OperandPlace { node, op: numbers[v.index()], operand, place: Place { mesh: axis, split } });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests;
