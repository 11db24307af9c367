//! an entry point and sizes of its symbols  =>  the bytes that such a call takes, and a lower bound for its arena

use crate::bind::bind_capacities;
use crate::memory::ALIGNMENT;
use crate::program::world::exchanged_bytes;
use crate::program::{Action, Entry, Host, Launch, Place, Port, Program, Step, Symbol};
use crate::shape::{Shape, bytes_of};
use sardonyx_base::dim::{self, Bounds};
use sardonyx_base::{Dim, Error, Result};

/// Bytes that a call takes beside the weights.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallBytes {
    /// The symbols that the bytes depend on, with their values.
    pub at: Vec<(String, i64)>,
    /// Whether a call takes exactly these bytes. If not, they are upper bounds, because some sizes are read from data.
    pub is_exact: bool,
    /// Bytes of the arena, which holds intermediate values.
    pub arena: usize,
    /// Largest number of bytes alive in the arena at one time, each buffer rounded up to the arena's alignment. No
    /// placement of the buffers needs less.
    pub live: usize,
    /// Bytes of all outputs together.
    pub outputs: usize,
    /// Bytes of the values that host steps compute between launches, without the temporary memory of these steps.
    pub made: usize,
    /// Scratch memory of each thread.
    pub scratch: usize,
    /// Bytes that this rank receives from other ranks; `None` if the model runs on a single rank.
    pub exchanged: Option<usize>,
    /// Bytes of the inputs, which the first rank sends to every other rank.
    pub inputs: usize,
}

impl CallBytes {
    /// Returns the bytes of a call whose symbols have these sizes; states have the capacity that they need. `None` if a
    /// size that is read from data has no bound, if any size is read from data with several ranks, or if a host step
    /// runs bodies. Errors: E0204 for a missing size, E0301 for one out of range.
    pub fn new(program: &Program, entry: &Entry, size: &dyn Fn(&Symbol) -> Option<i64>) -> Result<Option<CallBytes>> {
        let values = values(program, entry, size)?;
        let at = entry.bound.iter().filter_map(|&at| Some((program.symbols[at].name.clone(), values[at]?))).collect();
        if entry.steps.iter().any(|step| matches!(&step.action, Action::Host(host) if host.call.op.is_call())) {
            return Ok(None);
        }
        let sizes = match entry.steps.iter().any(|step| !step.binds().is_empty()) {
            false => Some(Sizes::exact(program, entry, &values)?),
            true if program.mesh.is_empty() => Sizes::bounded(program, entry, &values)?,
            true => None,
        };
        let Some(sizes) = sizes else { return Ok(None) };
        let exchanged = (!program.mesh.is_empty()).then(|| exchanged_bytes(program, entry, &values)).transpose()?;
        let sum = |ports: &[Port]| ports.iter().fold(0usize, |n, port| n.saturating_add(sizes.buffers[port.buffer]));
        let made = entry.buffers.iter().zip(&sizes.buffers).filter(|(b, _)| b.place == Place::Value);
        Ok(Some(CallBytes {
            at,
            is_exact: sizes.is_exact,
            arena: sizes.arena,
            live: live(entry, &sizes.buffers),
            outputs: sum(&entry.outputs),
            made: made.fold(0, |n, (_, bytes)| n.saturating_add(*bytes)),
            scratch: sizes.scratch,
            exchanged,
            inputs: inputs(program, entry, &values)?,
        }))
    }
}

/// Returns the values of a call's symbols, by index.
fn values(program: &Program, entry: &Entry, size: &dyn Fn(&Symbol) -> Option<i64>) -> Result<Vec<Option<i64>>> {
    let mut values = vec![None; program.symbols.len()];
    program.coordinates.iter().for_each(|(at, place)| values[*at] = Some(*place));
    for source in &entry.sources {
        let Some(&at) = program.symbol_index.get(&*source.symbol) else { continue };
        let symbol = &program.symbols[at];
        let value = size(symbol).ok_or_else(|| {
            let message = format!("a call needs a size for `{}`", symbol.name);
            Error::user("E0204", message).help(format!("give the size of `{}` (`--dim {0}=N`)", symbol.name))
        })?;
        if !symbol.admits(value) {
            return Err(Error::user("E0301", format!("`{}` = {value} is outside {}", symbol.name, symbol.range())));
        }
        values[at] = Some(value);
    }
    bind_capacities(program, entry, None, &mut values)?;
    Ok(values)
}

fn inputs(program: &Program, entry: &Entry, values: &[Option<i64>]) -> Result<usize> {
    let mut sum = 0usize;
    for port in &entry.inputs {
        let dims = port.dims.iter().map(|dim| program.eval(values, dim));
        let dims = dims.map(|n| n.map(|n| usize::try_from(n).unwrap_or(0))).collect::<Result<Vec<usize>>>()?;
        sum = sum.saturating_add(bytes_of(port.dtype, &dims).unwrap_or(usize::MAX));
    }
    Ok(sum)
}

struct Sizes {
    is_exact: bool,
    buffers: Vec<usize>,
    arena: usize,
    scratch: usize,
}

impl Sizes {
    fn exact(program: &Program, entry: &Entry, values: &[Option<i64>]) -> Result<Sizes> {
        let shape = Shape::new(program, entry, values.to_vec())?;
        let arena = usize::try_from(shape.eval(program, &entry.arena_bytes)?).unwrap_or(usize::MAX);
        Ok(Sizes { is_exact: true, arena, scratch: shape.scratch_bytes, buffers: shape.bytes })
    }

    /// Returns upper bounds of the sizes over all calls with these values, whatever the symbols without a value are.
    /// `None` if a size has no bound.
    fn bounded(program: &Program, entry: &Entry, values: &[Option<i64>]) -> Result<Option<Sizes>> {
        let mut symbols = Symbols { program, bounds: values.iter().map(|v| v.map(|v| (v, v))).collect() };
        for step in &entry.steps {
            if !symbols.bind(step)? {
                return Ok(None);
            }
        }
        if entry.outputs.iter().any(|port| port.dtype.is_opaque()) {
            return Ok(None);
        }
        let buffers = entry.buffers.iter().map(|buffer| symbols.most(&buffer.bytes)).collect::<Result<Vec<usize>>>()?;
        let mut scratch = 0;
        for step in &entry.steps {
            if let Action::Launch(launch) = &step.action {
                scratch = scratch.max(symbols.scratch(launch, &buffers)?);
            }
        }
        Ok(Some(Sizes { is_exact: false, arena: symbols.most(&entry.arena_bytes)?, buffers, scratch }))
    }
}

/// Bounds of a call's symbols, by index.
struct Symbols<'a> {
    program: &'a Program,
    bounds: Vec<Option<Bounds>>,
}

impl Symbols<'_> {
    fn bounds(&self, dim: &Dim) -> Result<Bounds> {
        dim.bounds(&|symbol| self.bounds[*self.program.symbol_index.get(symbol.name()?)?])
    }

    fn most(&self, dim: &Dim) -> Result<usize> {
        Ok(usize::try_from(self.bounds(dim)?.1).unwrap_or(0))
    }

    /// Sets the bounds of the symbols that a step reads from data; returns false if one has no upper bound.
    fn bind(&mut self, step: &Step) -> Result<bool> {
        let size = match &step.action {
            Action::Host(host) => self.size_max(host)?,
            Action::Launch(_) | Action::Copy(_) | Action::Bind(_) => None,
        };
        for name in step.binds() {
            let at = self.program.symbol_index[name];
            let symbol = &self.program.symbols[at];
            let Some(most) = size.into_iter().chain(symbol.hi).min() else { return Ok(false) };
            self.bounds[at] = Some((symbol.lo, most.max(symbol.lo)));
        }
        Ok(true)
    }

    fn size_max(&self, host: &Host) -> Result<Option<i64>> {
        let most = |dim: &Dim| Ok(self.bounds(dim)?.1);
        let args = host.args.iter().map(|arg| arg.dims.iter().map(most).collect::<Result<Vec<i64>>>());
        Ok(host.call.op.size_max(&args.collect::<Result<Vec<_>>>()?))
    }

    /// Returns the scratch bytes of each thread of a launch.
    fn scratch(&self, launch: &Launch, buffers: &[usize]) -> Result<usize> {
        let params = launch.params.iter().map(|param| self.bounds(param)).collect::<Result<Vec<Bounds>>>()?;
        let bytes = self.program.kernels[launch.kernel].scratch_bytes.bounds(&|symbol| match symbol {
            dim::Symbol::Param(n) => params.get(*n).copied(),
            dim::Symbol::BufferBytes(n) => Some((0, i64::try_from(buffers[*launch.buffers.get(*n)?]).ok()?)),
            _ => None,
        })?;
        Ok(usize::try_from(bytes.1).unwrap_or(0).next_multiple_of(ALIGNMENT))
    }
}

fn live(entry: &Entry, sizes: &[usize]) -> usize {
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; entry.buffers.len()];
    for (i, step) in entry.steps.iter().enumerate() {
        for b in step.buffers().into_iter().filter(|&b| matches!(entry.buffers[b].place, Place::Arena(_))) {
            lives[b] = Some((lives[b].map_or(i, |life| life.0), i));
        }
    }
    let mut change = vec![(0u128, 0u128); entry.steps.len() + 1];
    for (b, life) in lives.into_iter().enumerate() {
        let Some((first, last)) = life else { continue };
        let bytes = (sizes[b] as u128).next_multiple_of(ALIGNMENT as u128);
        change[first].0 += bytes;
        change[last + 1].1 += bytes;
    }
    let live = change.into_iter().scan(0, |live, (more, less)| {
        *live = *live + more - less;
        Some(*live)
    });
    live.max().and_then(|live| usize::try_from(live).ok()).unwrap_or(usize::MAX)
}
