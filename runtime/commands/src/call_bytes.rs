//! `inspect --dim seq=128`  =>  the bytes that a call of that shape takes

use crate::inputs::symbol_values;
use sardonyx_base::Result;
use sardonyx_base::json::Json;
use sardonyx_runtime::CallBytes;
use sardonyx_runtime::program::{Entry, Program};

/// None where the size waits for what is read from data, or where nothing says it: for a body, and where no `--dim` is given.
/// Errors: E0204, E0301, and those of the shape.
pub fn call_bytes(program: &Program, entry: &Entry, dims: &[String]) -> Result<Option<CallBytes>> {
    if entry.n_stages > 1 || !entry.bound.is_empty() && (dims.is_empty() || entry.internal) {
        return Ok(None);
    }
    let values = symbol_values(program, entry, dims);
    let bytes = values.and_then(|values| CallBytes::new(program, entry, values));
    bytes.map(Some).map_err(|e| e.node(format!("entry point `{}`", entry.name)))
}

pub fn text(bytes: &CallBytes) -> String {
    let CallBytes { at, arena, live, outputs, scratch, exchanged, inputs } = bytes;
    let at: Vec<String> = at.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let at = if at.is_empty() { String::new() } else { format!(" at {}", at.join(", ")) };
    let exchanged = exchanged
        .map_or(String::new(), |bytes| format!("; takes {bytes} of other ranks, gives each {inputs} of inputs"));
    format!("{arena} bytes{at}, {live} live at one time; outputs {outputs}, scratch {scratch} per thread{exchanged}")
}

pub fn json(bytes: &CallBytes) -> Json {
    let symbol = |(name, value): &(String, i64)| {
        Json::Object(vec![("symbol", name.as_str().into()), ("value", (*value).into())])
    };
    Json::Object(vec![
        ("at", Json::List(bytes.at.iter().map(symbol).collect())),
        ("arena_bytes", bytes.arena.into()),
        ("live_bytes", bytes.live.into()),
        ("outputs_bytes", bytes.outputs.into()),
        ("scratch_bytes_per_thread", bytes.scratch.into()),
        ("inputs_bytes", bytes.inputs.into()),
        ("exchanged_bytes", bytes.exchanged.map_or(Json::Null, Json::from)),
    ])
}
