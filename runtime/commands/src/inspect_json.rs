//! inspect --json  =>  the same as the text, for programs

use super::call_bytes;
use super::inspect::{hex, launches};
use sardonyx_base::json::Json;
use sardonyx_base::plan::SymbolKind;
use sardonyx_format::artifact::Artifact;
use sardonyx_runtime::CallBytes;
use sardonyx_runtime::program::{Entry, Location, Port, Program, Step, Target};

/// Dimensions are expressions over the symbols, as strings.
pub fn report(artifact: &Artifact, program: &Program, entries: &[Entry], calls: &[Option<CallBytes>]) -> Json {
    let manifest = &artifact.manifest;
    let files = manifest.files.iter().map(|f| {
        Json::Object(vec![
            ("name", f.name.as_str().into()),
            ("bytes", f.bytes.into()),
            ("blake3", hex(&f.blake3).into()),
        ])
    });
    let symbols = program.symbols.iter().map(|s| {
        let kind = match s.kind {
            SymbolKind::Input => "input",
            SymbolKind::Data => "data",
            SymbolKind::Capacity => "capacity",
            SymbolKind::Kept => "kept",
        };
        let range = [("lo", s.lo.into()), ("hi", s.hi.into())];
        Json::Object([("name", s.name.as_str().into()), ("kind", kind.into())].into_iter().chain(range).collect())
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
    let kernels = program.kernels.iter().enumerate().map(|(i, k)| {
        Json::Object(vec![
            ("symbol", k.symbol.as_str().into()),
            ("class", k.class.as_str().into()),
            ("writes", Json::list(k.writes.iter().copied())),
            ("params", k.params.into()),
            ("scratch_bytes", k.scratch_bytes.to_string().into()),
            ("launches", launches(program, i).into()),
            ("targets", Json::List(k.targets.iter().map(target).collect())),
        ])
    });
    let cpu = artifact.code.as_ref().map(|_| "cpu".to_string());
    let targets: Vec<String> = cpu.into_iter().chain(artifact.ptx.iter().map(|(t, _)| t.clone())).collect();
    let constants: usize = program.constants.iter().map(|r| r.len()).sum();
    Json::Object(vec![
        ("format", format!("{}.{}", manifest.format_major, manifest.format_minor).into()),
        ("producer", manifest.producer.as_str().into()),
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
        ("kernels", Json::List(kernels.collect())),
        (
            "entry_points",
            Json::List(entries.iter().zip(calls).map(|(e, call)| entry(program, e, call.as_ref())).collect()),
        ),
    ])
}

fn target(target: &Target) -> Json {
    Json::Object(vec![
        ("target", target.name.as_str().into()),
        ("grid", target.grid.to_string().into()),
        ("block", u64::from(target.block).into()),
        ("shared_bytes", u64::from(target.shared_bytes).into()),
    ])
}

/// Its inputs, or null.
fn selftest(artifact: &Artifact) -> Json {
    let Some(test) = &artifact.selftest else { return Json::Null };
    let input = |c: &sardonyx_base::plan::Canary| {
        Json::Object(vec![("name", c.name.as_str().into()), ("dims", Json::list(c.dims.iter().copied()))])
    };
    Json::Object(vec![("inputs", Json::List(test.inputs.iter().map(input).collect()))])
}

fn entry(program: &Program, entry: &Entry, call: Option<&CallBytes>) -> Json {
    let in_arena = entry.buffers.iter().filter(|b| matches!(b.place, Location::Arena(_))).count();
    let checks = entry.checks.iter().map(|c| {
        let sides = [("left", c.left.to_string().into()), ("right", c.right.to_string().into())];
        Json::Object(sides.into_iter().chain([("why", c.why.as_str().into())]).collect())
    });
    let states = entry.states.iter().map(|s| {
        Json::Object(vec![
            ("input", entry.inputs[s.input].name.as_str().into()),
            ("output", entry.outputs[s.output].name.as_str().into()),
            ("axis", s.axis.into()),
            ("input_capacity", program.symbols[s.input_capacity].name.as_str().into()),
            ("output_capacity", program.symbols[s.output_capacity].name.as_str().into()),
            ("kept", s.kept.map(|at| program.symbols[at].name.as_str()).into()),
        ])
    });
    let sources = entry.sources.iter().map(|s| {
        let input = entry.inputs[s.input].name.as_str().into();
        Json::Object(vec![("symbol", (*s.symbol).into()), ("input", input), ("axis", s.axis.into())])
    });
    Json::Object(vec![
        ("name", entry.name.as_str().into()),
        ("internal", entry.internal.into()),
        ("specialized", Json::list(entry.specialized.iter().map(|at| program.entries[*at].name.as_str()))),
        ("sources", Json::List(sources.collect())),
        ("inputs", Json::List(entry.inputs.iter().map(port).collect())),
        ("outputs", Json::List(entry.outputs.iter().map(port).collect())),
        ("states", Json::List(states.collect())),
        ("arena_bytes", entry.arena_bytes.to_string().into()),
        ("n_arena_buffers", in_arena.into()),
        ("call", call.map_or(Json::Null, call_bytes::json)),
        ("checks", Json::List(checks.collect())),
        ("steps", Json::List(entry.steps.iter().map(|s| step(program, s)).collect())),
    ])
}

fn port(port: &Port) -> Json {
    Json::Object(vec![
        ("name", port.name.as_str().into()),
        ("dtype", port.dtype.name().into()),
        ("dims", Json::list(port.dims.iter().map(|d| d.to_string()))),
    ])
}

fn step(program: &Program, step: &Step) -> Json {
    Json::Object(match step {
        Step::Launch(launch) => vec![
            ("kernel", program.kernels[launch.kernel].symbol.as_str().into()),
            ("grid", launch.grid.to_string().into()),
            ("buffers", Json::list(launch.buffers.iter().copied())),
            ("params", Json::list(launch.params.iter().map(|p| p.to_string()))),
            ("origins", Json::list(launch.origins.iter().map(String::as_str))),
            ("carries", launch.carries.into()),
        ],
        Step::Copy { from, to } => vec![("copy_from", (*from).into()), ("copy_to", (*to).into())],
        Step::Bind { symbol, buffer } => {
            vec![("bind", program.symbols[*symbol].name.as_str().into()), ("from_buffer", (*buffer).into())]
        }
        Step::Host(host) => vec![
            ("host", host.op.to_string().into()),
            ("bodies", Json::list(host.bodies.iter().map(|&b| program.entries[b].name.as_str()))),
            ("args", Json::list(host.args.iter().map(|a| a.buffer))),
            ("results", Json::list(host.results.iter().map(|r| r.value.buffer))),
            ("origins", Json::list(host.origins.iter().map(String::as_str))),
        ],
    })
}
