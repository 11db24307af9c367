//! explain MODEL.onnx…  =>  what each launch of the compiled model computes and moves; a repeated layer is shown once

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

use super::compile::host_json;
use super::movement::{self, MovementArgs, movement_json, short};
use super::{say, write_whole};
use crate::compile::parse_dims;
use crate::explain::{Launches, Planned, launches, node};
use crate::import::DimRange;
use crate::movement::{Question, Row, sum};
use crate::replaced::{files_of_model, refuse_replacing};
use crate::report::{self, measure};
use sardonyx_base::json::Json;
use sardonyx_base::{Error, Result};
use sardonyx_kernels::Target;
use sardonyx_run::page::Layers;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} explain model.onnx
  {bin} explain model.onnx --dim seq=128
  {bin} explain model.onnx --at batch=8,seq=512 --device sm_80
  {bin} explain model.onnx --explain-node /layer.0/attention/query/MatMul
  {bin} explain model.onnx --at batch=8,seq=128 --html model.html --measure
  {bin} explain a.onnx b.onnx --json")]
pub struct ExplainArgs {
    /// ONNX models
    #[arg(value_name = "MODEL.onnx", required = true)]
    pub models: Vec<PathBuf>,
    /// Range of a dimension symbol: NAME=N or NAME=LO..HI
    #[arg(long = "dim", value_name = "NAME=RANGE")]
    pub dims: Vec<String>,
    /// Print only the operations that this ONNX node has become, and the rewrite rules that produced them
    #[arg(long, value_name = "NAME", conflicts_with = "json")]
    pub explain_node: Option<String>,
    #[command(flatten)]
    pub movement: MovementArgs,
    /// Write a page about one model, which shows its launches as a graph, in a roofline chart, and their buffers in the
    /// arena
    #[arg(long, value_name = "FILE.html", conflicts_with_all = ["json", "explain_node"])]
    pub html: Option<PathBuf>,
    /// Compile the model for this CPU, run it, and show the measured times of its launches beside the predicted ones
    #[arg(long, requires = "html", conflicts_with = "device")]
    pub measure: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the command. Errors: those of compiling; E0001 if `--html` is given with several models.
pub fn explain(args: &ExplainArgs, out: &mut dyn Write) -> Result<()> {
    let dims = parse_dims(&args.dims)?;
    if let Some(name) = &args.explain_node {
        let lines = args.models.iter().map(|model| node(model, &dims, name)).collect::<Result<Vec<_>>>()?;
        return lines.concat().iter().try_for_each(|line| say(out, line));
    }
    let question = args.movement.question(Target::cpu().spec().name.as_str())?;
    if let Some(path) = &args.html {
        return page(args, &dims, &question, path, out);
    }
    let mut reports = vec![];
    for model in &args.models {
        let found = launches(model, &dims, &question)?;
        match args.json {
            true => reports.push(json(model, &found)),
            false => print(model, &found, out)?,
        }
    }
    match args.json {
        true => say(out, &Json::Object(vec![("models", Json::List(reports))]).to_string()),
        false => Ok(()),
    }
}

/// Writes the HTML page. Errors: E0001 for several models, or if the page would replace the model.
fn page(
    args: &ExplainArgs,
    dims: &BTreeMap<String, DimRange>,
    question: &Question,
    path: &Path,
    out: &mut dyn Write,
) -> Result<()> {
    let [model] = &args.models[..] else {
        return Err(Error::user("E0001", "`--html` is for one model").help("run the command once for each model"));
    };
    refuse_replacing(path, &files_of_model(model, &BTreeSet::new()))?;
    let planned = Planned::new(model, dims)?;
    let found = planned.launches(question)?;
    let measured = match args.measure {
        true => {
            let kernels: Vec<&str> = found.launches.iter().map(|l| found.kernels[l.kernel].0.as_str()).collect();
            Some(measure(model, dims, &found.movement.sizes, &kernels)?)
        }
        false => None,
    };
    let title = model.display().to_string();
    let text = report::page(&title, &planned, &found, &question.device, measured.as_ref())?.html();
    write_whole(path, &text)?;
    say(out, &format!("{}: {} launches of {} kernels", path.display(), found.launches.len(), found.kernels.len()))
}

fn print(model: &Path, l: &Launches, out: &mut dyn Write) -> Result<()> {
    let n = l.launches.len();
    let Some(Layers { first, length, times }) = l.layers else {
        say(out, &format!("{}: {n} launches of {} kernels", model.display(), l.kernels.len()))?;
        rows(l, 0..n, out)?;
        hosts(l, out)?;
        stored(l, out)?;
        return movement::print(&l.movement, out);
    };
    let (end, kernels) = (first + length * times, l.kernels.len());
    let sum = format!("{n} launches of {kernels} kernels = {first} + {times} × {length} + {}", n - end);
    say(out, &format!("{}: {sum}", model.display()))?;
    rows(l, 0..first, out)?;
    say(out, &format!("{times} times, here the first:"))?;
    rows(l, first..first + length, out)?;
    say(out, "then:")?;
    rows(l, end..n, out)?;
    hosts(l, out)?;
    stored(l, out)?;
    movement::print(&l.movement, out)
}

/// Prints a line for each launch: number, kernel, class, algebraic words, ONNX nodes.
fn rows(l: &Launches, range: Range<usize>, out: &mut dyn Write) -> Result<()> {
    for (i, launch) in range.clone().zip(&l.launches[range]) {
        let (symbol, class) = &l.kernels[launch.kernel];
        let words = short(l.movement.after[i].words);
        say(out, &format!("{i:>5}  {symbol:<6} {class:<10} {words:>9}  {}", launch.origins.join(" ")))?;
    }
    Ok(())
}

fn hosts(l: &Launches, out: &mut dyn Write) -> Result<()> {
    l.hosts.iter().try_for_each(|h| say(out, &format!(" host  {}  {}", h.op, h.origins.join(" "))))
}

fn stored(l: &Launches, out: &mut dyn Write) -> Result<()> {
    l.stored.iter().try_for_each(|(form, n)| say(out, &format!("stored  {n} × {form}")))
}

fn json(model: &Path, l: &Launches) -> Json {
    let launch = |(launch, row): (&crate::explain::Launch, &Row)| {
        let (symbol, class) = &l.kernels[launch.kernel];
        let origins = launch.origins.iter().map(|o| o.as_str().into()).collect();
        Json::Object(vec![
            ("kernel", symbol.as_str().into()),
            ("class", class.as_str().into()),
            ("origins", Json::List(origins)),
            ("words", row.words.into()),
            ("scheduled", row.scheduled.into()),
            ("lower_bound", row.lower_bound.into()),
        ])
    };
    let form =
        |(form, n): (&String, &usize)| Json::Object(vec![("form", form.as_str().into()), ("parameters", (*n).into())]);
    let layers = l.layers.map(|Layers { first, length, times }| {
        let words = sum(&l.movement.after[first..first + length]).words;
        Json::Object(vec![
            ("first", first.into()),
            ("length", length.into()),
            ("times", times.into()),
            ("words", words.into()),
        ])
    });
    Json::Object(vec![
        ("model", model.display().to_string().into()),
        ("kernels", l.kernels.len().into()),
        ("layers", layers.unwrap_or(Json::Null)),
        ("launches", Json::List(l.launches.iter().zip(&l.movement.after).map(launch).collect())),
        ("hosts", Json::List(l.hosts.iter().map(host_json).collect())),
        ("stored", Json::List(l.stored.iter().map(form).collect())),
        ("movement", movement_json(&l.movement)),
    ])
}
