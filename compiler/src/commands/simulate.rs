//! simulate MODEL --plan PLAN --topology F  =>  timelines of ranks and traffic of links; without a model, a schedule

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

use super::{say, write_whole};
use crate::compile::parse_dims;
use crate::onnx::read_model_without_data;
use crate::placement::Placement;
use crate::planner::{Beside, Simulated, Wanted, simulated};
use crate::replaced::{files_of_model, refuse_replacing};
use crate::sizes::parse_sizes;
use sardonyx_base::json::Json;
use sardonyx_base::{Error, Result};
use sardonyx_cluster::{Direction, Schedule, Timeline, Topology};
use sardonyx_passes::distribute::Event;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} simulate bert.onnx --plan plan.toml --topology one-host --at batch=8,seq=128
  {bin} simulate bert.onnx --plan plan.toml --topology dgx-h100 --trace call.json
  {bin} simulate --schedule chimera --stages 8 --micro-batches 16 --times 1,2")]
pub struct SimulateArgs {
    /// The model; files with its weights may be missing
    #[arg(value_name = "MODEL.onnx", requires_all = ["plan", "topology"], required_unless_present = "schedule")]
    pub model: Option<PathBuf>,
    /// The plan, as `sardonyx plan` writes it
    #[arg(long, value_name = "PLAN.toml")]
    pub plan: Option<PathBuf>,
    /// The cluster: a TOML file, or one of the names that `sardonyx plan --help` lists
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub topology: Option<String>,
    /// The device of each rank: a name that `sardonyx devices` lists, or a TOML file [default: the topology's]
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub device: Option<String>,
    /// Sizes of the simulated call: NAME=N[,NAME=N] [default: 1 for the first dimension of inputs, 128 for others]
    #[arg(long, value_name = "NAME=N,…")]
    pub at: Vec<String>,
    /// Range of a dimension symbol: NAME=N or NAME=LO..HI
    #[arg(long = "dim", value_name = "NAME=RANGE")]
    pub dims: Vec<String>,
    /// Simulate further calls in which each computation takes longer by a random share, on average by this one: 5%
    #[arg(long, value_name = "SHARE", value_parser = share, requires = "plan")]
    pub noise: Option<f64>,
    /// Number of calls to simulate with noise
    #[arg(long, value_name = "N", default_value = "20", requires = "noise")]
    pub calls: NonZeroUsize,
    /// Simulate the schedule of a pipeline instead of a model: forward, gpipe, 1f1b, interleaved:CHUNKS or chimera
    #[arg(long, value_name = "NAME", conflicts_with = "model", requires_all = ["stages", "micro_batches"])]
    pub schedule: Option<String>,
    /// Number of stages of the schedule, each on its own worker
    #[arg(long, value_name = "N")]
    pub stages: Option<usize>,
    /// Number of micro-batches of the schedule
    #[arg(long, value_name = "N")]
    pub micro_batches: Option<usize>,
    /// Microseconds that a stage takes to run one micro-batch forward and backward
    #[arg(long, value_name = "F,B", default_value = "1,1", value_parser = times)]
    pub times: (f64, f64),
    /// Write a timeline of each rank as a Chrome trace, which Perfetto reads too
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn share(text: &str) -> std::result::Result<f64, String> {
    let share = text.strip_suffix('%').and_then(|percent| percent.parse::<f64>().ok()).map(|percent| percent / 100.0);
    share
        .or_else(|| text.parse().ok())
        .filter(|share| (0.0..=100.0).contains(share))
        .ok_or_else(|| "it is a share: 5%".into())
}

fn times(text: &str) -> std::result::Result<(f64, f64), String> {
    let number = |text: &str| text.parse::<f64>().ok().filter(|us| (0.0..1e12).contains(us));
    let both = text.split_once(',').and_then(|(f, b)| Some((number(f)?, number(b)?)));
    both.filter(|(f, _)| *f > 0.0).ok_or_else(|| "they are two numbers of microseconds: 1,2".into())
}

/// Runs the command. Errors: those of the planner, E0001 for an unknown schedule, E0002 and E0108 for the files.
pub fn simulate(args: &SimulateArgs, out: &mut dyn Write) -> Result<()> {
    match (&args.model, &args.plan, &args.topology, &args.schedule) {
        (Some(model), Some(plan), Some(topology), _) => of_plan(model, plan, topology, args, out),
        (_, _, _, Some(schedule)) => of_schedule(schedule, args, out),
        _ => {
            Err(Error::user("E0001", "there is nothing to simulate").help("give a model and its plan, or `--schedule`"))
        }
    }
}

fn of_plan(path: &Path, plan: &Path, topology: &str, args: &SimulateArgs, out: &mut dyn Write) -> Result<()> {
    let topology = Topology::named(topology)?;
    let placement = Placement::read(plan)?;
    let device = args.device.as_deref().map(super::devices::spec).transpose()?;
    let wanted = Wanted {
        dims: parse_dims(&args.dims)?,
        at: parse_sizes(&args.at)?,
        topology: &topology,
        device,
        ranks: placement.mesh.iter().product::<i64>().max(1) as usize,
        memory: None,
    };
    let file = path.display().to_string();
    let found = read_model_without_data(path)
        .and_then(|mut model| {
            if let Some(trace) = &args.trace {
                let mut read = files_of_model(path, &model.files);
                read.push(("the plan of the ranks", plan));
                refuse_replacing(trace, &read)?;
            }
            placement.apply(&mut model)?;
            let noise = args.noise.map(|share| (share, args.calls.get()));
            simulated(&model, &placement, &wanted, Beside { events: args.trace.is_some(), noise })
        })
        .map_err(|e| e.file(file))?;
    if let Some(path) = &args.trace {
        write_trace(path, &found.run.events)?;
    }
    if args.json { say(out, &json(&found, &topology).to_string()) } else { show(&found, &topology, args.noise, out) }
}

fn show(found: &Simulated, topology: &Topology, noise: Option<f64>, out: &mut dyn Write) -> Result<()> {
    let (run, outcome) = (&found.run, &found.run.outcome);
    let ranks = run.ended.len();
    let (name, device) = (&topology.name, &found.device);
    say(out, &format!("{ranks} ranks on `{name}`, {device}, {}: simulated, not measured", found.at))?;
    let (ms, messages) = (outcome.time_us / 1e3, outcome.messages);
    say(out, &format!("{ms:.3} ms, {messages} messages of {} bytes in all", outcome.bytes))?;
    if let (Some(noise), [.., slowest]) = (noise, &found.noisy_us[..]) {
        let (n, [median, most]) = (found.noisy_us.len(), [0.5, 0.95].map(|share| percentile(&found.noisy_us, share)));
        let percent = 100.0 * noise;
        say(
            out,
            &format!(
                "with {percent} % of noise, {n} calls: median {:.3} ms, 95 of 100 within {:.3} ms, the slowest {:.3} ms",
                median / 1e3,
                most / 1e3,
                slowest / 1e3
            ),
        )?;
    }
    // If there are many ranks, only the first are shown.
    for rank in 0..ranks.min(RANKS_SHOWN) {
        let busy = 100.0 * run.computed[rank] / outcome.time_us.max(f64::MIN_POSITIVE);
        let (ended, taken) = (run.ended[rank] / 1e3, run.taken[rank]);
        say(
            out,
            &format!("  rank {rank}: computes {busy:.1} % of the time, takes {taken} bytes, done at {ended:.3} ms"),
        )?;
    }
    if ranks > RANKS_SHOWN {
        say(out, &format!("  and {} ranks more", ranks - RANKS_SHOWN))?;
    }
    let links = outcome.busiest_links();
    for (link, bytes) in links.iter().take(LINKS_SHOWN) {
        say(out, &format!("  {link}: {bytes} bytes"))?;
    }
    match links.len().checked_sub(LINKS_SHOWN) {
        Some(more) if more > 0 => say(out, &format!("  and {more} links more")),
        _ => Ok(()),
    }
}

/// The smallest value that at least `share` of the sorted values do not exceed.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = ((sorted.len() as f64 * share).ceil() as usize).max(1) - 1;
    sorted.get(at).copied().unwrap_or(0.0)
}

const RANKS_SHOWN: usize = 16;
const LINKS_SHOWN: usize = 16;

fn json(found: &Simulated, topology: &Topology) -> Json {
    let (run, outcome) = (&found.run, &found.run.outcome);
    let rank = |at: usize| {
        Json::Object(vec![
            ("rank", at.into()),
            ("ended_us", run.ended[at].into()),
            ("computed_us", run.computed[at].into()),
            ("taken_bytes", run.taken[at].into()),
        ])
    };
    let link = |(link, bytes): (&sardonyx_cluster::Link, &u64)| {
        Json::Object(vec![("link", link.to_string().into()), ("bytes", (*bytes).into())])
    };
    Json::Object(vec![
        ("topology", topology.name.as_str().into()),
        ("device", found.device.as_str().into()),
        ("at", found.at.as_str().into()),
        ("time_us", outcome.time_us.into()),
        ("messages", outcome.messages.into()),
        ("bytes", outcome.bytes.into()),
        ("noisy_us", Json::list(found.noisy_us.iter().copied())),
        ("ranks", Json::list((0..run.ended.len()).map(rank))),
        ("links", Json::list(outcome.links.iter().map(link))),
    ])
}

fn of_schedule(name: &str, args: &SimulateArgs, out: &mut dyn Write) -> Result<()> {
    let schedule = Schedule::named(name)?;
    let (stages, micro_batches) = (args.stages.unwrap_or(0), args.micro_batches.unwrap_or(0));
    let line = schedule.timeline(stages, micro_batches, args.times.0, args.times.1)?;
    if let Some(path) = &args.trace {
        write_trace(path, &events(&line))?;
    }
    let most = line.activations.iter().max().copied().unwrap_or(0);
    if args.json {
        let report = Json::Object(vec![
            ("schedule", schedule.name().as_str().into()),
            ("stages", stages.into()),
            ("micro_batches", micro_batches.into()),
            ("time_us", line.total.into()),
            ("bubble", line.bubble().into()),
            ("activations", Json::list(line.activations.iter().copied())),
        ]);
        return say(out, &report.to_string());
    }
    let (total, bubble) = (line.total, 100.0 * line.bubble());
    say(out, &format!("{}, {stages} stages, {micro_batches} micro-batches", schedule.name()))?;
    say(out, &format!("{total} us, {bubble:.1} % of it idle; a worker keeps up to {most} activations"))
}

fn events(line: &Timeline) -> Vec<Event> {
    let of_worker = |(rank, slots): (usize, &Vec<sardonyx_cluster::Slot>)| {
        let event = |slot: &sardonyx_cluster::Slot| {
            let what = match slot.work.direction {
                Direction::Forward => "forward",
                Direction::Backward => "backward",
            };
            let node = format!("micro-batch {}, stage {}", slot.work.micro_batch, slot.work.stage);
            Event { rank, start: slot.start, end: slot.end, node, what: what.into(), is_exchange: false }
        };
        slots.iter().map(event).collect::<Vec<Event>>()
    };
    line.slots.iter().enumerate().flat_map(of_worker).collect()
}

/// Writes a Chrome trace, with one thread for each rank.
fn write_trace(path: &Path, events: &[Event]) -> Result<()> {
    let event = |e: &Event| {
        let category = if e.is_exchange { "exchange" } else { "compute" };
        Json::Object(vec![
            ("ph", "X".into()),
            ("name", e.what.as_str().into()),
            ("cat", category.into()),
            ("pid", 0usize.into()),
            ("tid", e.rank.into()),
            ("ts", e.start.into()),
            ("dur", (e.end - e.start).into()),
            ("args", Json::Object(vec![("node", e.node.as_str().into())])),
        ])
    };
    let text =
        Json::Object(vec![("displayTimeUnit", "ns".into()), ("traceEvents", Json::list(events.iter().map(event)))]);
    write_whole(path, &text.to_string())
}
