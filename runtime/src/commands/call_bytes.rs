//! `inspect --dim seq=128`  =>  the bytes that a call of that shape takes, and how few its arena could have

use super::inputs::symbol_values;
use crate::json::Json;
use crate::memory::ALIGNMENT;
use crate::program::{Entry, Location, Program, Step};
use crate::shape::Shape;
use crate::{Error, Result};

/// What a call of known shape takes beside the weights.
pub struct CallBytes {
    /// The symbols that it depends on, with their values.
    pub at: Vec<(String, i64)>,
    pub arena: usize,
    /// The most that lives in the arena at one time, each buffer rounded up as the arena aligns it: no places need less.
    pub live: usize,
    pub outputs: usize,
    /// Of each thread.
    pub scratch: usize,
}

/// None where the size waits for what is read from data, or where nothing says it: for a body, and where no `--dim` is given.
/// Errors: E0204, E0301, and those of the shape.
pub fn call_bytes(program: &Program, entry: &Entry, dims: &[String]) -> Result<Option<CallBytes>> {
    if entry.n_stages > 1 || !entry.bound.is_empty() && (dims.is_empty() || entry.internal) {
        return Ok(None);
    }
    let named = |e: Box<Error>| e.node(format!("entry point `{}`", entry.name));
    let values = symbol_values(program, entry, dims).map_err(named)?;
    let at = entry.bound.iter().filter_map(|&at| Some((program.symbols[at].name.clone(), values[at]?))).collect();
    let shape = Shape::new(program, entry, values).map_err(named)?;
    let outputs = entry.outputs.iter().fold(0, |sum: usize, port| sum.saturating_add(shape.bytes[port.buffer]));
    let arena = usize::try_from(shape.eval(program, &entry.arena_bytes)?).unwrap_or(usize::MAX);
    let (live, scratch) = (live(entry, &shape), shape.scratch_bytes);
    Ok(Some(CallBytes { at, arena, live, outputs, scratch }))
}

fn live(entry: &Entry, shape: &Shape) -> usize {
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; entry.buffers.len()];
    for (i, step) in entry.steps.iter().enumerate() {
        for b in buffers(step).into_iter().filter(|&b| matches!(entry.buffers[b].place, Location::Arena(_))) {
            lives[b] = Some((lives[b].map_or(i, |life| life.0), i));
        }
    }
    let mut change = vec![(0u128, 0u128); entry.steps.len() + 1];
    for (b, life) in lives.into_iter().enumerate() {
        let Some((first, last)) = life else { continue };
        let bytes = (shape.bytes[b] as u128).next_multiple_of(ALIGNMENT as u128);
        change[first].0 += bytes;
        change[last + 1].1 += bytes;
    }
    let live = change.into_iter().scan(0, |live, (more, less)| {
        *live = *live + more - less;
        Some(*live)
    });
    live.max().and_then(|live| usize::try_from(live).ok()).unwrap_or(usize::MAX)
}

fn buffers(step: &Step) -> Vec<usize> {
    match step {
        Step::Launch(launch) => launch.buffers.clone(),
        Step::Copy { from, to } => vec![*from, *to],
        Step::Bind { buffer, .. } => vec![*buffer],
        Step::Host(host) => {
            host.args.iter().map(|a| a.buffer).chain(host.results.iter().map(|r| r.value.buffer)).collect()
        }
    }
}

impl CallBytes {
    pub fn text(&self) -> String {
        let at: Vec<String> = self.at.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let at = if at.is_empty() { String::new() } else { format!(" at {}", at.join(", ")) };
        let CallBytes { arena, live, outputs, scratch, .. } = self;
        format!("{arena} bytes{at}, {live} live at one time; outputs {outputs}, scratch {scratch} per thread")
    }

    pub fn json(&self) -> Json {
        let at = self
            .at
            .iter()
            .map(|(name, value)| Json::Object(vec![("symbol", name.as_str().into()), ("value", (*value).into())]));
        Json::Object(vec![
            ("at", Json::List(at.collect())),
            ("arena_bytes", self.arena.into()),
            ("live_bytes", self.live.into()),
            ("outputs_bytes", self.outputs.into()),
            ("scratch_bytes_per_thread", self.scratch.into()),
        ])
    }
}
