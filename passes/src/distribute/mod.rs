//! a program, ranks on a described cluster  =>  the distribution of operands over ranks, and its predicted cost
//!
//! For each mesh with the given number of ranks, the strategies of all operations along one axis are chosen together
//! (`search.rs`), one axis after the other until nothing improves. The candidates are then split as `shard` splits
//! them, and compared by what the ranks' programs do: their operations, collectives and bytes.
//!
//! | file | contents |
//! |---|---|
//! | `space.rs` | the strategies of each operation along an axis |
//! | `search.rs` | costs of strategies, and of exchanges between them |
//! | `eliminate.rs` | the assignment of least cost |
//! | `grid.rs` | the grid of ranks that suits a product |
//! | `pipeline.rs` | where the stages of a pipeline begin |
//! | `machine.rs` | microseconds of operations and collectives |
//! | `estimate.rs` | predicted time and memory of a rank's program |
//! | `simulated.rs` | all ranks' programs, simulated on the links of the cluster |

mod eliminate;
mod estimate;
mod grid;
mod machine;
mod pipeline;
mod search;
mod simulated;
mod space;

pub use crate::shard::batch;
pub use estimate::{Estimate, Exchange};
pub use machine::{Machine, Times};
pub use simulated::{Event, Noise, Run, simulated};

use crate::options::Options;
use crate::placement::{OperandPlace, Overlap, Stages};
use crate::shard::{
    Along, Ranks, Signature, State, States, check_ranks, follows, joined, operation_numbers, overlapped, sharded,
    split, with_operands_placed,
};
use crate::usual::Sizes;
use sardonyx_base::{Dim, Result, parallel};
use sardonyx_cluster::Topology;
use sardonyx_dialects::sdx::{Graph, Place};
use sardonyx_kernels::Rates;
use search::{Choice, Search};
use space::Space;

/// A distribution problem.
pub struct Task<'t> {
    /// The program before the pass `shard`.
    pub graph: &'t Graph,
    /// Values of all symbols.
    pub sizes: &'t Sizes,
    /// The cluster, which describes the links between ranks.
    pub topology: &'t Topology,
    /// Rates of one rank.
    pub rates: Rates,
    /// Number of ranks in all.
    pub ranks: usize,
    /// Memory limit of a rank, in bytes.
    pub memory: Option<f64>,
    /// Cache of the times of collectives.
    pub times: Times<'t>,
}

/// A plan that was considered.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Number of ranks along each axis.
    pub mesh: Vec<i64>,
    /// How the placements were found.
    pub found_by: FoundBy,
    /// Placements of operands that the plan gives; empty if the rules of `shard` determine all splits.
    pub places: Vec<OperandPlace>,
    /// Axis of the mesh along which weights are gathered in calls; `None` if each rank has what it needs.
    pub gathered_weights: Option<usize>,
    /// Stages of a pipeline along the first axis; `None` for other plans.
    pub stages: Option<Stages>,
    /// Chunks and micro-batches that overlap with exchanges; `None` if nothing overlaps.
    pub overlap: Option<Overlap>,
    /// The estimate, or the reason why there is none.
    pub estimate: std::result::Result<Estimate, String>,
    /// Whether the bytes of a rank are within the limit.
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
        Candidate {
            mesh: mesh.to_vec(),
            found_by,
            places,
            gathered_weights: None,
            stages,
            overlap: None,
            estimate,
            fits,
        }
    }
}

/// Method that found the placements of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// Splits columns of one contraction and rows of the next.
    Rules,
    /// Search for the least predicted time.
    Search,
    /// The same search, which begins with products cut by rows, columns and sums.
    SearchFromGrid,
    /// Search with a price on bytes of weights.
    SearchForMemory,
}

impl FoundBy {
    /// Returns the method in lower case, as reports show it.
    pub fn name(self) -> &'static str {
        match self {
            FoundBy::Rules => "rules",
            FoundBy::Search => "search",
            FoundBy::SearchFromGrid => "search from a grid",
            FoundBy::SearchForMemory => "search for memory",
        }
    }
}

/// Maximum number of rounds over all axes.
const ROUNDS_MAX: usize = 4;
/// Prices of a byte in microseconds, from a microsecond per gigabyte up in steps of 10.
const PRICES: [f64; 8] = [1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2];

/// Returns all candidates, the best first: those within the memory limit come first, sorted by time.
pub fn plan(task: &Task) -> Result<Vec<Candidate>> {
    let meshes = meshes(task.ranks as i64).into_iter();
    let of_mesh = meshes.flat_map(|mesh| [Part::Mesh(mesh.clone()), Part::Pipelines(mesh)]);
    let of_three = meshes_of_three(task).into_iter().map(Part::Pipelines);
    let parts: Vec<Part> = of_mesh.chain([Part::Grid]).chain(of_three).collect();
    // The results do not depend on the number of threads.
    let found = parallel::map(&parts, |part| part.candidates(task)).into_iter().collect::<Result<Vec<_>>>()?;
    let mut all: Vec<Candidate> = found.into_iter().flatten().collect();
    let time = |c: &Candidate| c.estimate.as_ref().map_or(f64::INFINITY, Estimate::time_us);
    let best = all.iter().filter(|c| c.fits).map(time).fold(f64::INFINITY, f64::min);
    let overlapped = parallel::map(&all, |c| with_overlap(task, c, best)).into_iter().collect::<Result<Vec<_>>>()?;
    all.extend(overlapped.into_iter().flatten());
    let bytes = |c: &Candidate| c.estimate.as_ref().map_or(f64::INFINITY, Estimate::bytes);
    let by_time = |a: &Candidate, b: &Candidate| {
        // If nothing fits, the candidate that needs the least memory comes first.
        let by_size = if a.fits || b.fits { std::cmp::Ordering::Equal } else { bytes(a).total_cmp(&bytes(b)) };
        b.fits.cmp(&a.fits).then(by_size).then(time(a).total_cmp(&time(b))).then(a.places.len().cmp(&b.places.len()))
    };
    all.sort_by(by_time);
    // The places of a pipeline are estimated for the whole batch; a micro-batch of a fixed one may have too few units.
    while let Some(why) = all.first().filter(|c| c.fits).and_then(|c| impossible(task.graph, c)) {
        (all[0].estimate, all[0].fits) = (Err(why), false);
        all.sort_by(by_time);
    }
    Ok(all)
}

/// A part of the candidates, found independently of the others.
enum Part {
    /// Those of a mesh that are no pipelines.
    Mesh(Vec<i64>),
    /// Pipelines along the first axis of a mesh.
    Pipelines(Vec<i64>),
    /// The one that begins with a grid.
    Grid,
}

impl Part {
    fn candidates(&self, task: &Task) -> Result<Vec<Candidate>> {
        match self {
            Part::Mesh(mesh) => candidates(task, mesh),
            Part::Pipelines(mesh) => pipelines(task, mesh),
            Part::Grid => Ok(grid_candidate(task)?.into_iter().collect()),
        }
    }
}

/// Returns the reason why micro-batches of a fixed batch cannot be placed as the candidate says, if so.
fn impossible(graph: &Graph, candidate: &Candidate) -> Option<String> {
    let stages = candidate.stages.as_ref().filter(|stages| stages.micro_batches > 1)?;
    batch(graph)?.as_const()?;
    let options = Options {
        mesh: candidate.mesh.clone(),
        places: candidate.places.clone(),
        seeds: candidate.found_by == FoundBy::Rules,
        stages: Some(stages.clone()),
        ..Options::default()
    };
    program_of_ranks(graph, &options).err().map(|e| e.message)
}

/// Returns all meshes with this many ranks and one or two axes, sorted.
fn meshes(ranks: i64) -> Vec<Vec<i64>> {
    let of_two = (2..ranks).filter(|n| ranks % n == 0).map(|n| vec![n, ranks / n]);
    [vec![ranks]].into_iter().chain(of_two).collect()
}

/// Returns meshes (stages, replicas, ranks of a host) for parallel pipelines whose stages are one host each.
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
    let made = |found_by: FoundBy, places: Vec<OperandPlace>| candidate(task, &machine, mesh, (found_by, places));
    let mut all = vec![made(FoundBy::Rules, vec![])];
    let spaces = spaces(task, mesh)?;
    let searched = |us_per_byte: f64| {
        let search = Search { machine: &machine, spaces: &spaces, us_per_byte };
        let start = search.replicated();
        searched(&search, start)
    };
    all.push(made(FoundBy::Search, searched(0.0)?));
    if task.memory.is_some() && all.iter().all(|c| !c.fits) {
        let fastest = all[1].places.clone();
        for axis in 0..mesh.len() {
            let way = (FoundBy::Search, fastest.clone());
            all.push(candidate_with_weights(task, &machine, mesh, way, Some(axis)));
        }
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

/// Returns a candidate that is neither a pipeline nor overlaps.
fn candidate(
    task: &Task,
    machine: &Machine,
    mesh: &[i64],
    (found_by, places): (FoundBy, Vec<OperandPlace>),
) -> Candidate {
    candidate_with_weights(task, machine, mesh, (found_by, places), None)
}

/// As [`candidate`], with weights that are gathered along an axis.
fn candidate_with_weights(
    task: &Task,
    machine: &Machine,
    mesh: &[i64],
    (found_by, places): (FoundBy, Vec<OperandPlace>),
    gathered_weights: Option<usize>,
) -> Candidate {
    let estimate = local_program(task.graph, mesh, &places, found_by == FoundBy::Rules, gathered_weights)
        .and_then(|local| estimate::estimate(&joined(&local)?, task.sizes, machine))
        .map_err(|e| e.message);
    Candidate { gathered_weights, ..Candidate::new(task, mesh, found_by, (places, None), estimate) }
}

/// Returns the candidate for a mesh of three axes that suits the largest products, if there is one.
fn grid_candidate(task: &Task) -> Result<Option<Candidate>> {
    let size = |d: &Dim| Ok(d.eval_named(&|name| task.sizes.get(name).copied())? as f64);
    let Some(cuts) = grid::of_program(task.graph, &size, task.ranks)? else { return Ok(None) };
    let mesh = cuts.map(|d| d as i64);
    let machine = Machine::new(task.rates, &mesh, &task.times);
    let spaces = spaces(task, &mesh)?;
    let search = Search { machine: &machine, spaces: &spaces, us_per_byte: 0.0 };
    let places = searched(&search, grid::choice(&search))?;
    Ok(Some(candidate(task, &machine, &mesh, (FoundBy::SearchFromGrid, places))))
}

/// Pairs (number of chunks, number of micro-batches) that are tried.
static OVERLAPS: [[usize; 2]; 6] = [[2, 1], [4, 1], [8, 1], [16, 1], [1, 2], [1, 4]];
/// Minimum fraction of the time that chunks or micro-batches must save, as each part is launched and exchanged
/// separately.
const WORTH: f64 = 0.03;

/// Returns the candidate with the fastest overlap, or `None` if no overlap is faster than `plain`. Nothing is tried if
/// the candidate is beyond the memory, or could not be the best one even with all its exchanges hidden.
fn with_overlap(task: &Task, plain: &Candidate, best_us: f64) -> Result<Option<Candidate>> {
    let (Ok(estimate), None) = (&plain.estimate, &plain.stages) else { return Ok(None) };
    if !plain.fits || estimate.compute_us >= best_us || estimate.waits_us() < WORTH * estimate.time_us() {
        return Ok(None);
    }
    let machine = Machine::new(task.rates, &plain.mesh, &task.times);
    let seeds = plain.found_by == FoundBy::Rules;
    let local = local_program(task.graph, &plain.mesh, &plain.places, seeds, plain.gathered_weights)?;
    let batch = batch(&local).and_then(|d| d.eval_named(&|name| task.sizes.get(name).copied()).ok()).unwrap_or(1);
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
        let gathered_weights = plain.gathered_weights;
        Candidate {
            overlap: Some(overlap),
            gathered_weights,
            ..Candidate::new(task, &plain.mesh, plain.found_by, of, Ok(e))
        }
    }))
}

/// Returns the strategies of all operations along each axis of a mesh.
fn spaces<'t>(task: &Task<'t>, mesh: &[i64]) -> Result<Vec<Space<'t>>> {
    let along = |(axis, &size): (usize, &i64)| {
        // Operand places hold for all ranks, so no coordinate symbol is needed.
        let ranks = Ranks { axis, size, coordinate: Dim::constant(0) };
        Space::new(task.graph, ranks, task.sizes)
    };
    mesh.iter().enumerate().map(along).collect()
}

/// Returns the operand places with which a call is fastest, among those that improvements along one axis after the other
/// reach from a choice.
fn searched(search: &Search, mut choice: Choice) -> Result<Vec<OperandPlace>> {
    let spaces = search.spaces;
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

/// Returns pipelines along the first axis, whose stages are split along the other axes. On a mesh of three, the second
/// axis splits the batch, the third one matrices.
fn pipelines(task: &Task, mesh: &[i64]) -> Result<Vec<Candidate>> {
    if !pipeline::is_possible(mesh[0]) {
        return Ok(vec![]);
    }
    let ways = match mesh[1..] {
        [] => vec![(FoundBy::Search, vec![])],
        [inner] => vec![(FoundBy::Rules, vec![]), (FoundBy::Search, places_within_stages(task, inner)?)],
        [replicas, ..] => vec![(FoundBy::Rules, places_within_stages(task, replicas)?)],
    };
    pipeline::candidates(task, mesh, ways)
}

/// Returns operand places for the ranks of a stage along the second axis, found as if these ranks formed a mesh of
/// their own and so were adjacent devices.
fn places_within_stages(task: &Task, size: i64) -> Result<Vec<OperandPlace>> {
    let machine = Machine::new(task.rates, &[size], &task.times);
    let spaces = spaces(task, &[size])?;
    let search = Search { machine: &machine, spaces: &spaces, us_per_byte: 0.0 };
    let mut places = searched(&search, search.replicated())?;
    places.iter_mut().for_each(|place| place.place.mesh += 1);
    Ok(places)
}

/// Returns the program that all ranks run under the options of a plan. Errors: those of the pass `shard`.
pub fn program_of_ranks(graph: &Graph, options: &Options) -> Result<Graph> {
    if let Some(stages) = &options.stages {
        check_ranks(stages, &options.mesh)?;
    }
    sharded(graph, options, &mut vec![States::new(); options.mesh.len()]).map(|(local, _)| local)
}

/// Returns the program of each rank.
fn local_program(
    graph: &Graph,
    mesh: &[i64],
    places: &[OperandPlace],
    seeds: bool,
    gathered_weights: Option<usize>,
) -> Result<Graph> {
    let placed = with_operands_placed(graph, places)?;
    let along = |axis| Along { seeds, gathers: gathered_weights == Some(axis) };
    let along: Vec<Along> = (0..mesh.len()).map(along).collect();
    let (local, _) = split(&placed, mesh, &along, &mut vec![States::new(); mesh.len()])?;
    Ok(local)
}

/// Returns the operand places needed to make all operations follow the chosen strategies, where the strategies do not
/// follow by propagation.
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
            let by_itself = follows(graph, &space.ranks, node, &has).unwrap_or_else(|| Signature::replicated(node));
            if by_itself == *chosen {
                continue;
            }
            for (operand, (need, has)) in chosen.operands.iter().zip(&has).enumerate() {
                let split = match need {
                    State::Partial(_) | State::Halo(_) => continue,
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
