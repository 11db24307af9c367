//! `inspect --dim seq=128`  =>  the memory that a call of that shape needs

use crate::inputs;
use sardonyx_base::Result;
use sardonyx_base::json::Json;
use sardonyx_runtime::CallBytes;
use sardonyx_runtime::program::{Entry, Program};

/// Memory of a call. `None` if the inputs have symbols and either no `--dim` is given or the entry point is a body, and
/// in the cases of `CallBytes::new`. Errors: those of `inputs::call_bytes`.
pub fn call_bytes(program: &Program, entry: &Entry, dims: &[String]) -> Result<Option<CallBytes>> {
    let is_coordinate = |symbol: &usize| program.coordinates.iter().any(|(at, _)| at == symbol);
    if !entry.bound.iter().all(is_coordinate) && (dims.is_empty() || entry.internal) {
        return Ok(None);
    }
    inputs::call_bytes(program, entry, dims).map_err(|e| e.node(format!("entry point `{}`", entry.name)))
}

/// Returns ` at batch=1, seq=128`, or an empty string if the bytes depend on no symbols.
pub fn sizes(bytes: &CallBytes) -> String {
    let at: Vec<String> = bytes.at.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if at.is_empty() { String::new() } else { format!(" at {}", at.join(", ")) }
}

pub fn text(bytes: &CallBytes) -> String {
    let CallBytes { is_exact, arena, live, outputs, made, scratch, exchanged, inputs, .. } = bytes;
    let at = sizes(bytes);
    let most = if *is_exact { "" } else { "at most " };
    let made = if *made > 0 { format!("made by the host {made}, ") } else { String::new() };
    let exchanged = exchanged
        .map_or(String::new(), |bytes| format!("; takes {bytes} of other ranks, gives each {inputs} of inputs"));
    format!(
        "{most}{arena} bytes{at}, {live} live at one time; outputs {outputs}, {made}scratch {scratch} per thread{exchanged}"
    )
}

pub fn json(bytes: &CallBytes) -> Json {
    let symbol = |(name, value): &(String, i64)| {
        Json::Object(vec![("symbol", name.as_str().into()), ("value", (*value).into())])
    };
    Json::Object(vec![
        ("at", Json::List(bytes.at.iter().map(symbol).collect())),
        ("is_exact", bytes.is_exact.into()),
        ("arena_bytes", bytes.arena.into()),
        ("live_bytes", bytes.live.into()),
        ("outputs_bytes", bytes.outputs.into()),
        ("made_bytes", bytes.made.into()),
        ("scratch_bytes_per_thread", bytes.scratch.into()),
        ("inputs_bytes", bytes.inputs.into()),
        ("exchanged_bytes", bytes.exchanged.map_or(Json::Null, Json::from)),
    ])
}
