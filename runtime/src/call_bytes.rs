//! an entry point and its symbols' values  =>  the bytes that such a call takes, and how few its arena could have

use crate::memory::ALIGNMENT;
use crate::program::world::exchanged_bytes;
use crate::program::{Entry, Place, Program};
use crate::shape::{Shape, bytes_of};
use sardonyx_base::Result;

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
    /// What this rank takes of others, where there are some.
    pub exchanged: Option<usize>,
    /// Those that the first rank gives each other one.
    pub inputs: usize,
}

impl CallBytes {
    /// Of a call that reads no size from data, whose symbols are all known. Errors: those of the shape.
    pub fn new(program: &Program, entry: &Entry, values: Vec<Option<i64>>) -> Result<CallBytes> {
        let at = entry.bound.iter().filter_map(|&at| Some((program.symbols[at].name.clone(), values[at]?))).collect();
        let shape = Shape::new(program, entry, values)?;
        let outputs = entry.outputs.iter().fold(0, |sum: usize, port| sum.saturating_add(shape.bytes[port.buffer]));
        let arena = usize::try_from(shape.eval(program, &entry.arena_bytes)?).unwrap_or(usize::MAX);
        let (live, scratch) = (live(entry, &shape), shape.scratch_bytes);
        let exchanged =
            (!program.mesh.is_empty()).then(|| exchanged_bytes(program, entry, &shape.values)).transpose()?;
        let mut inputs = 0usize;
        for port in &entry.inputs {
            let dims = shape.dims(program, &port.dims)?;
            inputs = inputs.saturating_add(bytes_of(port.dtype, &dims).unwrap_or(usize::MAX));
        }
        Ok(CallBytes { at, arena, live, outputs, scratch, exchanged, inputs })
    }
}

fn live(entry: &Entry, shape: &Shape) -> usize {
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; entry.buffers.len()];
    for (i, step) in entry.steps.iter().enumerate() {
        for b in step.buffers().into_iter().filter(|&b| matches!(entry.buffers[b].place, Place::Arena(_))) {
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
