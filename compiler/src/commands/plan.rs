//! plan MODEL --ranks N --topology F  =>  how the model is split over the ranks, why, and its predicted time and memory

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

mod chart;

use super::{say, write_whole};
use crate::compile::parse_dims;
use crate::onnx::read_model_without_data;
use crate::placement::text;
use crate::planner::{Goal, Plans, Wanted, bytes_on_links, format_sizes, plans};
use crate::replaced::{files_of_model, refuse_replacing};
use crate::sizes::parse_sizes;
use sardonyx_base::host::Collective;
use sardonyx_base::json::Json;
use sardonyx_base::{Error, Result};
use sardonyx_cluster::{PRESETS, Topology};
use sardonyx_passes::Overlap;
use sardonyx_passes::distribute::{Candidate, Estimate, Exchange};
use sardonyx_run::values::byte_count;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} plan bert.onnx --ranks 8 --topology one-host --at batch=8,seq=128 -o plan.toml
  {bin} compile bert.onnx --plan plan.toml
  {bin} plan llama.onnx --ranks 16 --topology dgx-h100 --memory 16G --json")]
pub struct PlanArgs {
    /// The model; files with its weights may be missing
    #[arg(value_name = "MODEL.onnx")]
    pub model: PathBuf,
    /// Number of ranks that run the model together
    #[arg(long, value_name = "N")]
    pub ranks: NonZeroUsize,
    #[arg(long, value_name = "NAME|FILE.toml", help = topology_help())]
    pub topology: String,
    /// The device of each rank: a name that `sardonyx devices` lists, or a TOML file [default: the topology's]
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub device: Option<String>,
    /// Memory of each rank for weights and intermediate results: 80G [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = byte_count)]
    pub memory: Option<u64>,
    /// The quantity by which plans are compared
    #[arg(long, value_enum, default_value_t, value_name = "GOAL")]
    pub goal: Goal,
    /// Sizes of the call to plan for: NAME=N[,NAME=N] [default: 1 for the first dimension of inputs, 128 for others]
    #[arg(long, value_name = "NAME=N,…")]
    pub at: Vec<String>,
    /// Range of a dimension symbol: NAME=N or NAME=LO..HI
    #[arg(long = "dim", value_name = "NAME=RANGE")]
    pub dims: Vec<String>,
    /// The plan to write, for `compile --plan` [default: print it]
    #[arg(short, long, value_name = "PLAN.toml")]
    pub output: Option<PathBuf>,
    /// Draw a chart of the candidates, why each one lost, and the bytes on each link
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// Print the candidates as one JSON object
    #[arg(long)]
    pub json: bool,
}

fn topology_help() -> String {
    let names = PRESETS.map(|(name, _)| name).join(", ");
    format!("The cluster: a TOML file, or {names}")
}

/// Runs the command. Errors: E0108 if no plan fits the memory, and those of [`plans`].
pub fn plan(args: &PlanArgs, out: &mut dyn Write) -> Result<()> {
    let topology = Topology::named(&args.topology)?;
    let device = args.device.as_deref().map(super::devices::spec).transpose()?;
    let wanted = Wanted {
        dims: parse_dims(&args.dims)?,
        at: parse_sizes(&args.at)?,
        topology: &topology,
        device,
        ranks: args.ranks.get(),
        memory: args.memory,
    };
    let file = args.model.display().to_string();
    let model = read_model_without_data(&args.model).map_err(|e| e.file(&file))?;
    let mut read = files_of_model(&args.model, &model.files);
    read.push(("the topology", Path::new(&args.topology)));
    for output in [&args.output, &args.svg].into_iter().flatten() {
        refuse_replacing(output, &read)?;
    }
    if args.output.is_some() && args.output == args.svg {
        return Err(Error::user("E0001", "the plan and its drawing are the same file").help("give two names"));
    }
    let found = plans(&model, &wanted, args.goal).map_err(|e| e.file(&file))?;
    let best = &found.candidates[0];
    if !best.fits {
        return Err(nothing_fits(best, args.memory.unwrap_or(0)));
    }
    let comment = format!(
        "{} ranks on `{}`, {}, {}: predicted, not measured",
        args.ranks,
        topology.name,
        found.device,
        format_sizes(&found.sizes)
    );
    if let Some(path) = &args.svg {
        let links = bytes_on_links(&model, best, &wanted).map_err(|e| e.file(file))?;
        write_whole(path, &chart::chart(&found, &comment, args.memory, &links))?;
    }
    let file = text(best, &comment);
    match (&args.output, args.json) {
        (Some(path), _) => write_whole(path, &file)?,
        (None, false) => say(out, &file)?,
        (None, true) => {}
    }
    if args.json {
        return say(out, &json(&found, &topology, args).to_string());
    }
    if args.output.is_some() { table(&found, &comment, args, out) } else { Ok(()) }
}

fn nothing_fits(least: &Candidate, limit: u64) -> Box<Error> {
    let message = match &least.estimate {
        Ok(estimate) => format!(
            "no plan within {} a rank was found: the least has {} of weights and {} between operations",
            size(limit as f64),
            size(estimate.weight_bytes),
            size(estimate.activation_bytes)
        ),
        Err(why) => format!("the program cannot be split: {why}"),
    };
    Error::user("E0108", message).help("give more ranks, more memory, or smaller sizes with `--at`")
}

fn name(c: &Candidate) -> String {
    let mesh: Vec<String> = c.mesh.iter().map(i64::to_string).collect();
    let mesh = mesh.join("x");
    let chunks = match &c.overlap {
        None => String::new(),
        Some(Overlap { chunks, micro_batches: 1, .. }) => format!(", {chunks} chunks"),
        Some(Overlap { micro_batches, .. }) => format!(", {micro_batches} in turns"),
    };
    let chunks = if c.gathered_weights.is_some() { format!(", weights gathered{chunks}") } else { chunks };
    match &c.stages {
        // Stages of a single rank are not split any further.
        Some(stages) if c.mesh.len() == 1 => format!("{mesh} stages, {} at a time", stages.micro_batches),
        Some(stages) => format!("{mesh} stages, {}, {}", stages.micro_batches, c.found_by.name()),
        None => format!("{mesh} by {}{chunks}", c.found_by.name()),
    }
}

/// Prints all candidates, why each but the first lost, and the collectives of the first.
fn table(found: &Plans, comment: &str, args: &PlanArgs, out: &mut dyn Write) -> Result<()> {
    say(out, comment)?;
    let head = ["plan", "ms", "compute", "exchange", "weights", "between", "places"];
    say(out, &line(&head.map(String::from), ""))?;
    let best = found.candidates[0].estimate.as_ref().ok();
    for (i, c) in found.candidates.iter().enumerate() {
        match &c.estimate {
            Ok(e) => {
                let cells = [
                    name(c),
                    format!("{:.3}", e.time_us() / 1e3),
                    format!("{:.3}", e.compute_us / 1e3),
                    format!("{:.3}", e.waits_us() / 1e3),
                    size(e.weight_bytes),
                    size(e.activation_bytes),
                    c.places.len().to_string(),
                ];
                let why = if i == 0 { "chosen".into() } else { lost(e, best, c.fits) };
                say(out, &line(&cells, &format!("{why}{}", chart::idle(e))))?;
            }
            Err(why) => say(out, &format!("  {:<28} cannot be split so: {why}", name(c)))?,
        }
    }
    if let Some(e) = best {
        for (name, bytes, count, time_us) in by_name(&e.exchanges) {
            say(out, &format!("  {count} x {name} of {}: {:.3} ms in all", size(bytes), time_us / 1e3))?;
        }
    }
    if let (Goal::Throughput, Some(n)) = (args.goal, found.per_second) {
        say(out, &format!("  {n:.1} per second in batches of this size"))?;
    }
    match &args.output {
        Some(path) => say(out, &format!("wrote {}", path.display())),
        None => Ok(()),
    }
}

/// Groups exchanges by name and bytes, and returns these with the count and the total time in microseconds. Sends of
/// the same size are one group, whichever stages they connect.
fn by_name(exchanges: &[Exchange]) -> Vec<(String, f64, usize, f64)> {
    let mut all: Vec<(String, f64, usize, f64)> = vec![];
    for Exchange { op, bytes, count, time_us } in exchanges {
        let name = match op {
            Collective::Send { mesh, .. } => format!("Send mesh={mesh}"),
            op => op.to_string(),
        };
        match all.iter_mut().find(|known| (&known.0, known.1) == (&name, *bytes)) {
            Some(known) => (known.2, known.3) = (known.2 + count, known.3 + time_us),
            None => all.push((name, *bytes, *count, *time_us)),
        }
    }
    all
}

/// The reason why a candidate is not the best; empty if there is no estimate of the best one.
fn lost(e: &Estimate, best: Option<&Estimate>, fits: bool) -> String {
    let Some(best) = best else { return String::new() };
    if !fits {
        return "beyond the memory".into();
    }
    let (compute, exchange) = (e.compute_us - best.compute_us, e.waits_us() - best.waits_us());
    match (e.time_us() - best.time_us(), compute > exchange) {
        (more, _) if more <= 0.0 => "as fast, with more places".into(),
        (_, true) => format!("computes {:.3} ms longer", compute / 1e3),
        (_, false) => format!("exchanges {:.3} ms longer", exchange / 1e3),
    }
}

fn line(cells: &[String; 7], why: &str) -> String {
    let [name, others @ ..] = cells;
    let line = others.iter().fold(format!("  {name:<22}"), |line, cell| format!("{line} {cell:>10}"));
    format!("{line}  {why}").trim_end().to_string()
}

/// 1500000  =>  `1.5 MB`
fn size(bytes: f64) -> String {
    match bytes {
        b if b < 1e4 => format!("{b:.0} B"),
        b if b < 1e6 => format!("{:.1} kB", b / 1e3),
        b if b < 1e9 => format!("{:.1} MB", b / 1e6),
        b => format!("{:.2} GB", b / 1e9),
    }
}

fn json(found: &Plans, topology: &Topology, args: &PlanArgs) -> Json {
    let exchange = |e: &Exchange| {
        Json::Object(vec![
            ("collective", e.op.to_string().into()),
            ("bytes", e.bytes.into()),
            ("count", e.count.into()),
            ("time_us", e.time_us.into()),
        ])
    };
    let candidate = |c: &Candidate| {
        let mut all = vec![
            ("mesh", Json::list(c.mesh.iter().copied())),
            ("found_by", c.found_by.name().into()),
            ("places", c.places.len().into()),
            ("fits", c.fits.into()),
        ];
        if let Some(axis) = c.gathered_weights {
            all.push(("gathered_weights", axis.into()));
        }
        if let Some(overlap) = &c.overlap {
            all.extend([("chunks", overlap.chunks.into()), ("in_turns", overlap.micro_batches.into())]);
        }
        if let Some(stages) = &c.stages {
            let begins = stages.begins.iter().map(String::as_str);
            all.extend([("micro_batches", stages.micro_batches.into()), ("stages", Json::list(begins))]);
        }
        match &c.estimate {
            Ok(e) => all.extend([
                ("time_us", e.time_us().into()),
                ("compute_us", e.compute_us.into()),
                ("exchange_us", e.exchange_us.into()),
                ("hidden_us", e.hidden_us.into()),
                ("weight_bytes", e.weight_bytes.into()),
                ("activation_bytes", e.activation_bytes.into()),
                ("bubble", e.bubble.into()),
                ("exchanges", Json::list(e.exchanges.iter().map(exchange))),
            ]),
            Err(why) => all.push(("impossible", why.as_str().into())),
        }
        Json::Object(all)
    };
    Json::Object(vec![
        ("topology", topology.name.as_str().into()),
        ("device", found.device.as_str().into()),
        ("ranks", args.ranks.get().into()),
        ("at", format_sizes(&found.sizes).into()),
        ("per_second", found.per_second.into()),
        ("candidates", Json::list(found.candidates.iter().map(candidate))),
    ])
}
