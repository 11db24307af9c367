//! inspect MODEL.sdx  =>  what is in it, as text

use super::call_bytes::{self, call_bytes};
use super::inputs::check_names;
use super::put;
use sardonyx_base::plan::SelfTest;
use sardonyx_base::{Error, Result};
use sardonyx_format::Verify;
use sardonyx_format::artifact::Artifact;
use sardonyx_runtime::CallBytes;
use sardonyx_runtime::program::{self, Entry, Location, Program, Step};
use sardonyx_runtime::program::{at_most, describe, origin};
use std::io::Write;
use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} inspect model.sdx
  {bin} inspect model.sdx --entry decode
  {bin} inspect model.sdx --dim batch=1 --dim seq=128
  {bin} inspect model.sdx --json")]
pub struct InspectArgs {
    /// The artifact, as `sardonyx compile` wrote it
    #[arg(value_name = "MODEL.sdx")]
    pub model: PathBuf,
    /// Show this entry point only
    #[arg(long, value_name = "NAME")]
    pub entry: Option<String>,
    /// Evaluate the memory of a call with this size of a named dimension, for entry points that need no other sizes
    #[arg(long = "dim", value_name = "NAME=N")]
    pub dim: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The code is not loaded: artifacts for other processors can be inspected, and those of strangers.
pub fn inspect(args: &InspectArgs, out: &mut dyn Write) -> Result<()> {
    let artifact = Artifact::open(&args.model, Verify::Lazy)?;
    let manifest = &artifact.manifest;
    let program = program::verify(manifest, &artifact.plan, artifact.weights.len());
    let named = |e: Box<Error>| e.file(args.model.display().to_string());
    let program = program.map_err(named)?;
    let entries = match &args.entry {
        Some(name) => std::slice::from_ref(&program.entries[program.entry_index(name).map_err(named)?]),
        None => &program.entries[..],
    };
    check_names(&program, &args.dim).map_err(named)?;
    let several = entries.iter().filter(|e| !e.internal).count() > 1;
    let call = |e: &Entry| match call_bytes(&program, e, &args.dim) {
        // The sizes are for another entry point.
        Err(error) if error.code == "E0204" && several => Ok(None),
        call => call.map_err(named),
    };
    let calls = entries.iter().map(call).collect::<Result<Vec<Option<CallBytes>>>>()?;
    if args.json {
        return put!(out, "{}", super::inspect_json::report(&artifact, &program, entries, &calls));
    }
    put!(out, "format      {}.{}", manifest.format_major, manifest.format_minor)?;
    put!(out, "producer    {}", manifest.producer)?;
    if artifact.code.is_some() {
        put!(out, "code        {} {}", manifest.arch, manifest.variants.join(" "))?;
    }
    for (target, text) in &artifact.ptx {
        put!(out, "code        {target}, {} bytes of PTX", text.len())?;
    }
    if !manifest.precision.is_empty() {
        put!(out, "precision   {}", manifest.precision)?;
    }
    put!(out, "pipeline    {}", manifest.pipeline)?;
    put!(out, "model hash  {}", manifest.model_hash)?;
    for file in &manifest.files {
        put!(out, "entry       {} {} bytes, blake3 {}", file.name, file.bytes, hex(&file.blake3))?;
    }
    if let Some(test) = &artifact.selftest {
        put!(out, "self-test   {}", describe_selftest(test))?;
    }
    for symbol in &program.symbols {
        let from = program.entries.iter().find_map(|e| {
            let source = e.sources.iter().find(|s| *s.symbol == *symbol.name)?;
            Some(format!(", from {}", origin(e, source)))
        });
        let from = from.unwrap_or_default();
        put!(out, "symbol      {} in {}, {:?}{from}", symbol.name, symbol.range(), symbol.kind)?;
    }
    for d in &program.derived {
        put!(out, "derived     {} = {} in {}, by {}", d.name, d.equals, sardonyx_base::dim::range(d.lo, d.hi), d.why)?;
    }
    let constants: usize = program.constants.iter().map(|r| r.len()).sum();
    put!(out, "constants   {}, {constants} bytes", program.constants.len())?;
    for (i, kernel) in program.kernels.iter().enumerate() {
        let uses = launches(&program, i);
        let (buffers, writes) = (kernel.writes.len(), kernel.writes.iter().filter(|w| **w).count());
        put!(
            out,
            "kernel {i:<4} {} {}, {buffers} buffers ({writes} written), {} parameters, scratch {}, {uses} launches",
            kernel.symbol,
            kernel.class,
            kernel.params,
            kernel.scratch_bytes
        )?;
        for t in &kernel.targets {
            let shared = t.shared_bytes;
            put!(
                out,
                "  {:<9} {} blocks of {} threads, {shared} bytes of dynamic shared memory",
                t.name,
                t.grid,
                t.block
            )?;
        }
    }
    entries.iter().zip(&calls).try_for_each(|(entry, call)| write_entry(&program, entry, call.as_ref(), out))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// How many steps launch a kernel.
pub(super) fn launches(program: &Program, kernel: usize) -> usize {
    let steps = program.entries.iter().flat_map(|e| &e.steps);
    steps.filter(|s| matches!(s, Step::Launch(l) if l.kernel == kernel)).count()
}

/// The dimensions of its inputs.
fn describe_selftest(test: &SelfTest) -> String {
    let inputs: Vec<String> = test.inputs.iter().map(|c| format!("{} {:?}", c.name, c.dims)).collect();
    inputs.join(", ")
}

fn write_entry(program: &Program, entry: &Entry, call: Option<&CallBytes>, out: &mut dyn Write) -> Result<()> {
    let kind = if entry.internal { "body" } else { "entry point" };
    put!(out, "\n{kind} {}", entry.name)?;
    let tighter: Vec<&str> = entry.specialized.iter().map(|at| program.entries[*at].name.as_str()).collect();
    if !tighter.is_empty() {
        put!(out, "  sizes of  {} go there", tighter.join(", "))?;
    }
    for port in &entry.inputs {
        put!(out, "  input     {} {} {}", port.name, port.dtype, describe(&port.dims))?;
    }
    for port in &entry.outputs {
        put!(out, "  output    {} {} {}", port.name, port.dtype, describe(&port.dims))?;
    }
    for state in &entry.states {
        let (old, new) = (&entry.inputs[state.input].name, &entry.outputs[state.output].name);
        let room = [state.input_capacity, state.output_capacity].map(|at| program.symbols[at].name.as_str());
        put!(out, "  state     {old} -> {new}, axis {}, room for {} -> {}", state.axis, room[0], room[1])?;
    }
    let in_arena = entry.buffers.iter().filter(|b| matches!(b.place, Location::Arena(_))).count();
    put!(out, "  arena     {} bytes, {in_arena} buffers", entry.arena_bytes)?;
    if let Some(call) = call {
        put!(out, "  peak      {}", call_bytes::text(call))?;
    }
    for check in &entry.checks {
        match at_most(check) {
            Some(least) => put!(out, "  check     {least} <= {} ({})", check.right, check.why)?,
            None => put!(out, "  check     {} == {} ({})", check.left, check.right, check.why)?,
        }
    }
    for (i, step) in entry.steps.iter().enumerate() {
        match step {
            Step::Launch(launch) => {
                let kernel = &program.kernels[launch.kernel];
                let params: Vec<String> = launch.params.iter().map(|p| p.to_string()).collect();
                let carries = launch.carries.map_or(String::new(), |at| format!(" carries state {at}"));
                put!(
                    out,
                    "  step {i:<4} {} grid {} buffers {:?} params [{}] {}{carries}",
                    kernel.symbol,
                    launch.grid,
                    launch.buffers,
                    params.join(", "),
                    launch.origins.join(" ")
                )?;
            }
            Step::Copy { from, to } => put!(out, "  step {i:<4} copy buffer {from} to {to}")?,
            Step::Bind { symbol, buffer } => {
                put!(out, "  step {i:<4} bind {} from buffer {buffer}", program.symbols[*symbol].name)?;
            }
            Step::Host(host) => {
                let args: Vec<usize> = host.args.iter().map(|a| a.buffer).collect();
                let results: Vec<usize> = host.results.iter().map(|r| r.value.buffer).collect();
                let bodies: Vec<&str> = host.bodies.iter().map(|&b| program.entries[b].name.as_str()).collect();
                let calls = if bodies.is_empty() { String::new() } else { format!(" calls {}", bodies.join(", ")) };
                let origins = host.origins.join(" ");
                put!(out, "  step {i:<4} host {}{calls} buffers {args:?} -> {results:?} {origins}", host.op)?;
            }
        }
    }
    Ok(())
}
