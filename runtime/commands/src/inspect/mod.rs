//! inspect MODEL.sdx  =>  the contents of an artifact, as text or as one JSON object
//!
//! Entry points and kernels have one file each, which writes both formats; `html` writes the page about an entry point.

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

mod entry;
mod html;
mod kernel;

use crate::call_bytes::call_bytes;
use crate::device_name;
use crate::inputs::check_names;
use crate::values::bytes_text;
use crate::{put, refuse_replacing};
use sardonyx_base::json::Json;
use sardonyx_base::plan::{Canary, SelfTest, SymbolKind};
use sardonyx_base::{Error, Result};
use sardonyx_format::Verify;
use sardonyx_format::artifact::Artifact;
use sardonyx_format::file::write_whole;
use sardonyx_runtime::program::{self, Entry, Program, origin};
use sardonyx_runtime::{CallBytes, DeviceName};
use std::io::Write;
use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} inspect model.sdx
  {bin} inspect model.sdx --entry decode
  {bin} inspect model.sdx --dim batch=1 --dim seq=128
  {bin} inspect model.sdx --steps
  {bin} inspect model.sdx --dim seq=128 --html model.html
  {bin} inspect model.sdx --device sim:sm_80
  {bin} inspect model.sdx --json")]
pub struct InspectArgs {
    /// The artifact, a file written by `sardonyx compile`
    #[arg(value_name = "MODEL.sdx")]
    pub model: PathBuf,
    /// Show only this entry point
    #[arg(long, value_name = "NAME")]
    pub entry: Option<String>,
    /// Size of a named dimension: shows the memory of a call in bytes for entry points whose sizes are all given
    #[arg(long = "dim", value_name = "NAME=N")]
    pub dim: Vec<String>,
    /// Show the plan for this device, if the artifact has several
    #[arg(long, value_name = "NAME", default_value_t = DeviceName::Cpu, value_parser = device_name)]
    pub device: DeviceName,
    /// Show also the files, the passes, the kernels, and the steps of each entry point
    #[arg(long)]
    pub steps: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Write a page about one entry point, which shows its steps as a graph and their buffers in the arena
    #[arg(long, value_name = "FILE.html", conflicts_with_all = ["json", "steps"])]
    pub html: Option<PathBuf>,
}

/// Inspects an artifact without loading its code, so it may be untrusted or for another processor.
pub fn inspect(args: &InspectArgs, out: &mut dyn Write) -> Result<()> {
    let artifact = Artifact::open(&args.model, Verify::Lazy)?;
    let manifest = &artifact.manifest;
    let program = program::verify(manifest, artifact.plan_of(args.device.class()), artifact.weights.len(), 0);
    let named = |e: Box<Error>| e.file(args.model.display().to_string());
    let program = program.map_err(named)?;
    let entries = match &args.entry {
        Some(name) => std::slice::from_ref(&program.entries[program.entry_index(name).map_err(named)?]),
        None => &program.entries[..],
    };
    check_names(&program, &args.dim).map_err(named)?;
    if let Some(path) = &args.html {
        refuse_replacing(path, &args.model)?;
        let shown = entries.iter().find(|entry| args.entry.is_some() || !entry.internal);
        let entry =
            shown.ok_or_else(|| named(Error::user("E0301", "the artifact has no entry point that can be called")))?;
        let page =
            html::page(args.model.display().to_string(), &artifact, &program, entry, &args.dim).map_err(named)?;
        write_whole(path, &page.html())?;
        return put!(out, "{}: entry point {}, {} steps", path.display(), entry.name, page.steps.len());
    }
    let several = entries.iter().filter(|e| !e.internal).count() > 1;
    let call = |e: &Entry| match call_bytes(&program, e, &args.dim) {
        // The given sizes are meant for another entry point.
        Err(error) if error.code == "E0204" && several => Ok(None),
        call => call.map_err(named),
    };
    let calls = entries.iter().map(call).collect::<Result<Vec<Option<CallBytes>>>>()?;
    if args.json {
        return put!(out, "{}", report(&artifact, &program, entries, &calls));
    }
    let constants: usize = program.constants.iter().map(|r| r.len()).sum();
    put!(out, "artifact    {}, {} of weights", args.model.display(), bytes_text(constants as u64))?;
    put!(out, "format      {}.{}", manifest.format_major, manifest.format_minor)?;
    put!(out, "producer    {}", manifest.producer)?;
    if let Some(seal) = &artifact.seal {
        put!(out, "seal        {}", seal.digest)?;
        match seal.signer {
            Some(key) => put!(out, "signed      by {key}")?,
            None => put!(out, "signed      by nobody")?,
        }
    }
    if artifact.code.is_some() {
        put!(out, "code        {} {}", manifest.arch, manifest.variants.join(" "))?;
    }
    for (target, text) in &artifact.ptx {
        put!(out, "code        {target}, {} of PTX", bytes_text(text.len() as u64))?;
    }
    if !manifest.precision.is_empty() {
        put!(out, "precision   {}", manifest.precision)?;
    }
    if args.steps {
        put!(out, "pipeline    {}", manifest.pipeline)?;
        put!(out, "model hash  {}", manifest.model_hash)?;
        for file in &manifest.files {
            put!(out, "file        {} {} bytes, blake3 {}", file.name, file.bytes, hex(&file.blake3))?;
        }
    }
    if let Some(test) = &artifact.selftest {
        put!(out, "self-test   {}", describe_selftest(test))?;
    }
    for symbol in &program.symbols {
        let from = program.entries.iter().find_map(|e| {
            let source = e.sources.iter().find(|s| *s.symbol == *symbol.name)?;
            Some(origin(e, source))
        });
        let from = from.unwrap_or_else(|| kind(symbol.kind).1.to_string());
        put!(out, "symbol      {} in {}: {from}", symbol.name, symbol.range())?;
    }
    for d in &program.derived {
        put!(out, "derived     {} = {} in {}, by {}", d.name, d.equals, sardonyx_base::dim::range(d.lo, d.hi), d.why)?;
    }
    if args.steps {
        put!(out, "constants   {}, {constants} bytes", program.constants.len())?;
        kernel::text(&program, out)?;
    }
    for (entry, call) in entries.iter().zip(&calls) {
        entry::text(&program, entry, call.as_ref(), out)?;
        if args.steps {
            entry::steps(&program, entry, out)?;
        }
    }
    match args.steps {
        true => Ok(()),
        false => put!(out, "\n`--steps` shows files, kernels and steps; `--dim NAME=N` the memory of a call"),
    }
}

/// Returns the source of a symbol's value, as it is named in JSON and in text.
fn kind(kind: SymbolKind) -> (&'static str, &'static str) {
    match kind {
        SymbolKind::Input => ("input", "a dimension of an input"),
        SymbolKind::Data => ("data", "read from data during a call"),
        SymbolKind::Capacity => ("capacity", "capacity of a cache"),
        SymbolKind::Kept => ("kept", "positions of a cache that a call keeps in place"),
        SymbolKind::Rank => ("rank", "coordinate of a rank in the mesh"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The names and dimensions of the self-test's inputs.
fn describe_selftest(test: &SelfTest) -> String {
    let inputs: Vec<String> = test.inputs.iter().map(|c| format!("{} {:?}", c.name, c.dims)).collect();
    inputs.join(", ")
}

/// The report as JSON. Dimensions are strings: expressions over the symbols.
fn report(artifact: &Artifact, program: &Program, entries: &[Entry], calls: &[Option<CallBytes>]) -> Json {
    let manifest = &artifact.manifest;
    let files = manifest.files.iter().map(|f| {
        Json::Object(vec![
            ("name", f.name.as_str().into()),
            ("bytes", f.bytes.into()),
            ("blake3", hex(&f.blake3).into()),
        ])
    });
    let symbols = program.symbols.iter().map(|s| {
        let range = [("lo", s.lo.into()), ("hi", s.hi.into())];
        let named = [("name", s.name.as_str().into()), ("kind", kind(s.kind).0.into())];
        Json::Object(named.into_iter().chain(range).collect())
    });
    let derived = program.derived.iter().map(|d| {
        Json::Object(vec![
            ("name", d.name.as_str().into()),
            ("equals", d.equals.to_string().into()),
            ("lo", d.lo.into()),
            ("hi", d.hi.into()),
            ("why", d.why.as_str().into()),
        ])
    });
    let cpu = artifact.code.as_ref().map(|_| "cpu".to_string());
    let targets: Vec<String> = cpu.into_iter().chain(artifact.ptx.iter().map(|(t, _)| t.clone())).collect();
    let constants: usize = program.constants.iter().map(|r| r.len()).sum();
    Json::Object(vec![
        ("format", format!("{}.{}", manifest.format_major, manifest.format_minor).into()),
        ("producer", manifest.producer.as_str().into()),
        ("seal", artifact.seal.as_ref().map(|seal| seal.digest.to_string()).into()),
        ("signer", artifact.seal.as_ref().and_then(|seal| seal.signer).map(|key| key.to_string()).into()),
        ("arch", manifest.arch.as_str().into()),
        ("variants", Json::list(manifest.variants.iter().map(String::as_str))),
        ("targets", Json::list(targets.iter().map(String::as_str))),
        ("precision", if manifest.precision.is_empty() { "f32" } else { &manifest.precision }.into()),
        ("pipeline", manifest.pipeline.as_str().into()),
        ("model_hash", manifest.model_hash.as_str().into()),
        ("files", Json::List(files.collect())),
        ("selftest", selftest(artifact)),
        ("symbols", Json::List(symbols.collect())),
        ("derived", Json::List(derived.collect())),
        ("n_constants", program.constants.len().into()),
        ("constants_bytes", constants.into()),
        ("kernels", kernel::json(program)),
        (
            "entry_points",
            Json::List(entries.iter().zip(calls).map(|(e, call)| entry::json(program, e, call.as_ref())).collect()),
        ),
    ])
}

/// The inputs of the self-test, or null if there is none.
fn selftest(artifact: &Artifact) -> Json {
    let Some(test) = &artifact.selftest else { return Json::Null };
    let input =
        |c: &Canary| Json::Object(vec![("name", c.name.as_str().into()), ("dims", Json::list(c.dims.iter().copied()))]);
    Json::Object(vec![("inputs", Json::List(test.inputs.iter().map(input).collect()))])
}
