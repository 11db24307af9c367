//! an entry point of an artifact: inputs, outputs, states, checks, steps  =>  text, JSON

use crate::inputs::usual_bytes;
use crate::values::bytes_text;
use crate::{call_bytes, put};
use sardonyx_base::Result;
use sardonyx_base::json::Json;
use sardonyx_base::plan::{Bind, Copy, Units};
use sardonyx_runtime::CallBytes;
use sardonyx_runtime::program::{Action, Entry, Launch, Place, Port, Program, Step, at_most, describe};
use std::collections::BTreeSet;
use std::io::Write;

pub fn text(program: &Program, entry: &Entry, call: Option<&CallBytes>, out: &mut dyn Write) -> Result<()> {
    let kind = if entry.internal { "body" } else { "entry point" };
    let kernels: BTreeSet<usize> = launches(entry).map(|launch| launch.kernel).collect();
    put!(out, "\n{kind} {}: {} kernels in {} launches", entry.name, kernels.len(), launches(entry).count())?;
    let tighter: Vec<&str> = entry.specialized.iter().map(|at| program.entries[*at].name.as_str()).collect();
    if !tighter.is_empty() {
        put!(out, "  special   {} (a call with the sizes of one of these runs it)", tighter.join(", "))?;
    }
    for port in &entry.inputs {
        put!(out, "  input     {} {} {}", port.name, port.dtype, describe(&port.dims))?;
    }
    for port in &entry.outputs {
        put!(out, "  output    {} {} {}", port.name, port.dtype, describe(&port.dims))?;
    }
    for state in &entry.states {
        let (old, new) = (&entry.inputs[state.input].name, &entry.outputs[state.output].name);
        let (axis, old_room, new_room) = (state.axis, &state.input_capacity, &state.output_capacity);
        let part = |u: &Units| format!(", a part of dimension {} along axis {} of the mesh", u.dim, u.mesh);
        let parts: String = state.units.iter().map(part).collect();
        put!(out, "  state     {old} -> {new}, axis {axis}, room for {old_room} -> {new_room}{parts}")?;
    }
    match usual_bytes(program, entry).filter(|usual| !usual.at.is_empty()) {
        Some(usual) => {
            let (arena, at) = (bytes_text(usual.arena as u64), call_bytes::sizes(&usual));
            put!(out, "  arena     {arena}{at} ({} bytes)", entry.arena_bytes)?;
        }
        None => put!(out, "  arena     {} bytes", entry.arena_bytes)?,
    }
    if let Some(call) = call {
        put!(out, "  peak      {}", call_bytes::text(call))?;
    }
    for check in &entry.checks {
        match at_most(check) {
            Some(least) => put!(out, "  check     {least} <= {} ({})", check.right, check.why)?,
            None => put!(out, "  check     {} == {} ({})", check.left, check.right, check.why)?,
        }
    }
    Ok(())
}

pub fn steps(program: &Program, entry: &Entry, out: &mut dyn Write) -> Result<()> {
    entry.steps.iter().enumerate().try_for_each(|(i, step)| step_text(program, i, step, out))
}

fn launches(entry: &Entry) -> impl Iterator<Item = &Launch> {
    entry.steps.iter().filter_map(|step| match &step.action {
        Action::Launch(launch) => Some(launch),
        Action::Copy(_) | Action::Bind(_) | Action::Host(_) => None,
    })
}

fn step_text(program: &Program, i: usize, step: &Step, out: &mut dyn Write) -> Result<()> {
    let origins = step.origins.join(" ");
    match &step.action {
        Action::Launch(launch) => {
            let kernel = &program.kernels[launch.kernel];
            let params: Vec<String> = launch.params.iter().map(|p| p.to_string()).collect();
            let carries = launch.carries.map_or(String::new(), |at| format!(" carries state {at}"));
            put!(
                out,
                "  step {i:<4} {} grid {} buffers {:?} params [{}] {origins}{carries}",
                kernel.symbol,
                launch.grid,
                launch.buffers,
                params.join(", "),
            )?;
        }
        Action::Copy(Copy { from, to }) => put!(out, "  step {i:<4} copy buffer {from} to {to}")?,
        Action::Bind(Bind { symbol, buffer }) => put!(out, "  step {i:<4} bind {symbol} from buffer {buffer}")?,
        Action::Host(host) => {
            let args: Vec<usize> = host.args.iter().map(|a| a.buffer).collect();
            let results: Vec<usize> = host.results.iter().map(|r| r.buffer).collect();
            let bodies: Vec<&str> = host.call.bodies.iter().map(|&b| program.entries[b].name.as_str()).collect();
            let calls = if bodies.is_empty() { String::new() } else { format!(" calls {}", bodies.join(", ")) };
            put!(out, "  step {i:<4} host {}{calls} buffers {args:?} -> {results:?} {origins}", host.call.op)?;
        }
    }
    Ok(())
}

pub fn json(program: &Program, entry: &Entry, call: Option<&CallBytes>) -> Json {
    let in_arena = entry.buffers.iter().filter(|b| matches!(b.place, Place::Arena(_))).count();
    let checks = entry.checks.iter().map(|c| {
        let sides = [("left", c.left.to_string().into()), ("right", c.right.to_string().into())];
        Json::Object(sides.into_iter().chain([("why", c.why.as_str().into())]).collect())
    });
    let states = entry.states.iter().map(|s| {
        Json::Object(vec![
            ("input", entry.inputs[s.input].name.as_str().into()),
            ("output", entry.outputs[s.output].name.as_str().into()),
            ("axis", s.axis.into()),
            ("input_capacity", s.input_capacity.as_str().into()),
            ("output_capacity", s.output_capacity.as_str().into()),
            ("kept", s.kept.as_deref().into()),
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
        ("steps", Json::List(entry.steps.iter().map(|s| step_json(program, s)).collect())),
    ])
}

fn port(port: &Port) -> Json {
    Json::Object(vec![
        ("name", port.name.as_str().into()),
        ("dtype", port.dtype.name().into()),
        ("dims", Json::list(port.dims.iter().map(|d| d.to_string()))),
    ])
}

fn step_json(program: &Program, step: &Step) -> Json {
    let origins = Json::list(step.origins.iter().map(String::as_str));
    Json::Object(match &step.action {
        Action::Launch(launch) => vec![
            ("kernel", program.kernels[launch.kernel].symbol.as_str().into()),
            ("grid", launch.grid.to_string().into()),
            ("buffers", Json::list(launch.buffers.iter().copied())),
            ("params", Json::list(launch.params.iter().map(|p| p.to_string()))),
            ("origins", origins),
            ("carries", launch.carries.into()),
        ],
        Action::Copy(Copy { from, to }) => vec![("copy_from", (*from).into()), ("copy_to", (*to).into())],
        Action::Bind(Bind { symbol, buffer }) => {
            vec![("bind", symbol.as_str().into()), ("from_buffer", (*buffer).into())]
        }
        Action::Host(host) => vec![
            ("host", host.call.op.to_string().into()),
            ("bodies", Json::list(host.call.bodies.iter().map(|&b| program.entries[b].name.as_str()))),
            ("args", Json::list(host.args.iter().map(|a| a.buffer))),
            ("results", Json::list(host.results.iter().map(|r| r.buffer))),
            ("origins", origins),
        ],
    })
}
