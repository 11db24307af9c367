//! `Program` + values of the symbols  =>  sizes, offsets, parameters, grids: a plan made of plain numbers
//!
//! A shape is evaluated once and kept by the session. If a plan reads symbols from data, the kept shape ends with the
//! first step that binds such a symbol; each call evaluates the following stages in a copy, as symbols get values.

use crate::bind::broken_check;
use crate::memory::ALIGNMENT;
use crate::program::{Action, Buffer, Entry, Kernel, KernelTarget, Launch, Operand, Place, Port, Program, Step};
use sardonyx_base::dim::Symbol;
use sardonyx_base::plan::{self, Copy};
use sardonyx_base::{DType, Dim, Error, Result, tensor};
use std::ops::Range;

#[derive(Clone)]
pub struct Shape {
    /// Values of the symbols, by index; `None` for those without a value yet.
    pub values: Vec<Option<i64>>,
    /// By buffer: its size in bytes, and its offset if it is in the arena.
    pub bytes: Vec<usize>,
    pub offsets: Vec<usize>,
    /// The parameters of all launches; `Entry::params` gives the range of a step.
    pub params: Vec<i64>,
    /// By step: the number of work items of a launch; 0 for other steps.
    pub grids: Vec<i64>,
    /// By step: whether a launch is so small that a CPU computes it on one thread.
    pub is_small: Vec<bool>,
    /// By step: the number of blocks of a launch on a GPU; 0 otherwise.
    pub blocks: Vec<u32>,
    /// Dimensions of the outputs; set in the last stage.
    pub output_dims: Vec<Vec<usize>>,
    /// Bytes of the arena that the stages evaluated so far need.
    pub arena_bytes: usize,
    /// Bytes of scratch that each thread needs in the stages evaluated so far; a multiple of 64.
    pub scratch_bytes: usize,
    /// Arena buffers whose content is intact after the first `steps_done` steps.
    live: Vec<usize>,
    steps_done: usize,
    stages_done: usize,
}

/// Maximum number of work items: more could never be finished, and below this, arithmetic on chunks cannot overflow.
const GRID_MAX: i64 = 1 << 48;

/// A launch that takes one thread less than this time is not divided among threads. To hand a part over takes 0.3 us
/// where the processors share a cache, and 2 us and more where they do not.
const SMALL_NS: i64 = 1500;
/// Floating-point operations of products, other operations, and bytes near the processor that a thread of a usual
/// processor computes or moves in a nanosecond.
const PRODUCTS_PER_NS: i64 = 40;
const OPERATIONS_PER_NS: i64 = 4;
const BYTES_PER_NS: i64 = 60;

impl Shape {
    /// Evaluates the first stage, and the following ones up to a step that binds a symbol.
    pub fn new(program: &Program, entry: &Entry, values: Vec<Option<i64>>) -> Result<Shape> {
        let mut shape = Shape {
            values,
            bytes: vec![0; entry.buffers.len()],
            offsets: vec![0; entry.buffers.len()],
            params: vec![0; entry.params_at[entry.steps.len()]],
            grids: vec![0; entry.steps.len()],
            is_small: vec![false; entry.steps.len()],
            blocks: vec![0; entry.steps.len()],
            output_dims: Vec::new(),
            arena_bytes: 0,
            scratch_bytes: 0,
            live: Vec::new(),
            steps_done: 0,
            stages_done: 0,
        };
        shape.advance(program, entry)?;
        Ok(shape)
    }

    /// Number of bytes that the shape itself takes in memory.
    pub fn kept_bytes(&self) -> usize {
        let words = self.bytes.capacity() + self.offsets.capacity() + self.params.capacity() + self.grids.capacity();
        let dims: usize = self.output_dims.iter().map(Vec::capacity).sum();
        size_of::<Shape>()
            + self.values.capacity() * size_of::<Option<i64>>()
            + (words + dims + self.live.capacity()) * size_of::<usize>()
            + self.blocks.capacity() * size_of::<u32>()
            + self.is_small.capacity()
            + self.output_dims.capacity() * size_of::<Vec<usize>>()
    }

    /// Whether the stage has been evaluated.
    pub fn has_reached(&self, stage: usize) -> bool {
        self.stages_done > stage
    }

    /// Evaluates the next stage, whose symbols must have values, and the following ones up to a step that binds a
    /// symbol.
    pub fn advance(&mut self, program: &Program, entry: &Entry) -> Result<()> {
        loop {
            self.next_stage(program, entry)?;
            let last = self.steps_done.checked_sub(1).map(|last| &entry.steps[last]);
            if self.stages_done == entry.n_stages || last.is_none_or(|step| !step.binds().is_empty()) {
                return Ok(());
            }
        }
    }

    /// Evaluates the buffers, the steps and the checks of the next stage.
    fn next_stage(&mut self, program: &Program, entry: &Entry) -> Result<()> {
        let stage = self.stages_done;
        for (check, _) in entry.checks.iter().zip(&entry.check_stages).filter(|(_, s)| **s == stage) {
            let (left, right) = (self.eval(program, &check.left)?, self.eval(program, &check.right)?);
            if left != right {
                return Err(broken_check(program, entry, &self.values, check, [left, right]));
            }
        }
        for (i, buffer) in entry.buffers.iter().enumerate().filter(|(i, _)| entry.buffer_stages[*i] == stage) {
            self.place(program, i, buffer).map_err(|e| e.node(format!("buffer {i}")))?;
        }
        self.check_arena(program, entry, stage)?;
        let rest = &entry.steps[self.steps_done..];
        let end = rest.iter().position(Step::ends_stage).map_or(rest.len(), |at| at + 1);
        for i in self.steps_done..self.steps_done + end {
            self.step(program, entry, i).map_err(|e| e.node(step_name(&entry.steps[i], i)))?;
        }
        self.steps_done += end;
        self.stages_done += 1;
        if self.stages_done == entry.n_stages {
            let outputs = entry.outputs.iter().zip(&entry.own_outputs);
            self.output_dims = outputs.map(|(p, own)| self.output(program, p, own)).collect::<Result<_>>()?;
        }
        Ok(())
    }

    pub fn eval(&self, program: &Program, dim: &Dim) -> Result<i64> {
        program.eval(&self.values, dim)
    }

    /// Evaluates dimensions. Errors: E0204 if a symbol has no value yet, E0401 if a dimension is negative.
    pub fn dims(&self, program: &Program, dims: &[Dim]) -> Result<Vec<usize>> {
        dims.iter().map(|d| self.eval_size(program, d)).collect()
    }

    fn eval_size(&self, program: &Program, dim: &Dim) -> Result<usize> {
        let value = self.eval(program, dim)?;
        // The size is at most `isize::MAX`, so that pointer arithmetic is sound.
        usize::try_from(value).map_err(|_| broken(format!("`{dim}` is {value}, but a size is not negative")))
    }

    fn place(&mut self, program: &Program, i: usize, buffer: &Buffer) -> Result<()> {
        self.bytes[i] = self.eval_size(program, &buffer.bytes)?;
        match &buffer.place {
            Place::Arena(offset) => {
                self.offsets[i] = self.eval_size(program, offset)?;
                if !self.offsets[i].is_multiple_of(ALIGNMENT) {
                    return Err(broken(format!("its offset {} is not a multiple of {ALIGNMENT}", self.offsets[i])));
                }
                let end = self.offsets[i].checked_add(self.bytes[i]).filter(|&e| e <= isize::MAX as usize);
                let end = end.ok_or_else(|| Error::user("E0202", "the end of the buffer overflows"))?;
                self.arena_bytes = self.arena_bytes.max(end);
            }
            Place::Constant(at) if self.bytes[i] > program.constants[*at].len() => {
                let has = program.constants[*at].len();
                return Err(broken(format!("it has {} bytes, its constant {has}", self.bytes[i])));
            }
            Place::Input(_) | Place::Output(_) | Place::Constant(_) | Place::Value => {}
        }
        Ok(())
    }

    fn check_arena(&self, program: &Program, entry: &Entry, stage: usize) -> Result<()> {
        // The declared size may become known in a later stage than the buffers.
        match self.eval(program, &entry.arena_bytes) {
            Err(_) if stage + 1 < entry.n_stages => Ok(()),
            Err(e) => Err(e),
            Ok(declared) if declared < 0 || self.arena_bytes > declared as usize => {
                Err(broken(format!("the arena has {declared} bytes, its buffers need {}", self.arena_bytes)))
            }
            Ok(_) => Ok(()),
        }
    }

    fn step(&mut self, program: &Program, entry: &Entry, i: usize) -> Result<()> {
        match &entry.steps[i].action {
            Action::Launch(launch) => {
                (self.grids[i], self.blocks[i]) = self.launch(program, entry, i, launch)?;
                self.is_small[i] = self.is_small(&program.kernels[launch.kernel], entry, i, launch);
                let writes = &program.kernels[launch.kernel].writes;
                let part = |written: bool| launch.buffers.iter().zip(writes).filter(move |(_, w)| **w == written);
                let reads: Vec<usize> = part(false).map(|(&b, _)| b).collect();
                let writes: Vec<usize> = part(true).map(|(&b, _)| b).collect();
                // A launch without work items touches nothing, so its inputs need not be intact.
                if self.grids[i] > 0 {
                    self.flow(entry, &reads, &writes)?;
                } else {
                    self.revive(entry, &writes);
                }
                Ok(())
            }
            &Action::Copy(Copy { from, to }) => {
                let opaque = entry.outputs.iter().any(|p| p.buffer == to && p.dtype.is_opaque());
                if self.bytes[from] != self.bytes[to] && !opaque {
                    return Err(broken(format!("{} bytes are copied to {}", self.bytes[from], self.bytes[to])));
                }
                self.flow(entry, &[from], &[to])
            }
            Action::Bind(bind) => {
                if self.bytes[bind.buffer] < 8 {
                    return Err(broken(format!("a symbol is read from {} bytes", self.bytes[bind.buffer])));
                }
                self.flow(entry, &[bind.buffer], &[])
            }
            Action::Host(host) => {
                for arg in host.args.iter().filter(|arg| !arg.dtype.is_opaque()) {
                    let (dims, has) = (self.dims(program, &arg.dims)?, self.bytes[arg.buffer]);
                    if bytes_of(arg.dtype, &dims).is_none_or(|bytes| bytes > has) {
                        return Err(broken(format!("its operand {} {dims:?} is read from {has} bytes", arg.dtype)));
                    }
                }
                let buffers = |operands: &[Operand]| operands.iter().map(|o| o.buffer).collect::<Vec<usize>>();
                if host.call.op.exchange().is_none() {
                    return self.flow(entry, &buffers(&host.args), &[]);
                }
                for result in &host.results {
                    let (dims, has) = (self.dims(program, &result.dims)?, self.bytes[result.buffer]);
                    if bytes_of(result.dtype, &dims).is_none_or(|bytes| bytes > has) {
                        return Err(broken(format!("its result {} {dims:?} is written to {has} bytes", result.dtype)));
                    }
                }
                self.flow(entry, &buffers(&host.args), &buffers(&host.results))
            }
        }
    }

    /// Evaluates a launch. Returns its number of work items, and its number of blocks on a GPU.
    fn launch(&mut self, program: &Program, entry: &Entry, i: usize, launch: &Launch) -> Result<(i64, u32)> {
        let kernel = &program.kernels[launch.kernel];
        for (at, param) in entry.params(i).zip(&launch.params) {
            self.params[at] = self.eval(program, param)?;
        }
        let own = Values { launch, params: &self.params[entry.params(i)], bytes: &self.bytes };
        let scratch = kernel.scratch_bytes.eval(&|symbol| own.value(None, symbol))?;
        let scratch = usize::try_from(scratch).ok().and_then(|s| s.checked_next_multiple_of(ALIGNMENT));
        let scratch = scratch.ok_or_else(|| broken("its scratch size is negative or overflows".into()))?;
        self.scratch_bytes = self.scratch_bytes.max(scratch);
        let grid = self.eval(program, &launch.grid)?;
        if grid > GRID_MAX {
            return Err(Error::user("E0202", format!("a grid of {grid} work items")));
        }
        if grid <= 0 {
            return Ok((grid, 0));
        }
        let own = Values { launch, params: &self.params[entry.params(i)], bytes: &self.bytes };
        own.check_required(kernel, grid)?;
        let blocks = program.target(launch.kernel).map_or(Ok(0), |target| own.blocks(kernel, target));
        Ok((grid, blocks?))
    }

    /// Returns the numbers of floating-point operations and of bytes moved of a launch; `None` if the plan lacks one.
    pub fn work(&self, kernel: &Kernel, entry: &Entry, i: usize, launch: &Launch) -> Option<(i64, i64)> {
        let own = Values { launch, params: &self.params[entry.params(i)], bytes: &self.bytes };
        let value = |d: &Dim| d.eval(&|symbol| own.value(None, symbol)).ok();
        value(kernel.flops.as_ref()?).zip(value(kernel.moved_bytes.as_ref()?))
    }

    /// Whether one thread needs less than `SMALL_NS` for a launch.
    fn is_small(&self, kernel: &Kernel, entry: &Entry, i: usize, launch: &Launch) -> bool {
        let per_ns = if plan::is_product(&kernel.class) { PRODUCTS_PER_NS } else { OPERATIONS_PER_NS };
        let ns = |(flops, bytes): (i64, i64)| (flops / per_ns).max(bytes / BYTES_PER_NS);
        self.work(kernel, entry, i, launch).is_some_and(|work| ns(work) < SMALL_NS)
    }

    /// Proves that the buffers that a step reads are intact, and records which ones its writes destroy. The memory plan
    /// is not trusted: a wrong one would give wrong results.
    fn flow(&mut self, entry: &Entry, reads: &[usize], writes: &[usize]) -> Result<()> {
        let in_arena = |b: usize| matches!(entry.buffers[b].place, Place::Arena(_));
        for &read in reads.iter().filter(|&&b| in_arena(b) && self.bytes[b] > 0) {
            if !self.live.contains(&read) {
                return Err(broken(format!("buffer {read} is read after its memory was used for another")));
            }
        }
        for (i, &write) in writes.iter().enumerate() {
            let others = reads.iter().chain(&writes[i + 1..]);
            if let Some(other) = others.copied().find(|&o| o == write || self.overlap(entry, o, write)) {
                return Err(broken(format!("buffers {write} and {other} of one step overlap, and one is written")));
            }
        }
        self.revive(entry, writes);
        Ok(())
    }

    fn revive(&mut self, entry: &Entry, writes: &[usize]) {
        for &write in writes.iter().filter(|&&b| matches!(entry.buffers[b].place, Place::Arena(_))) {
            let mut live = std::mem::take(&mut self.live);
            live.retain(|&b| b != write && !self.overlap(entry, b, write));
            live.push(write);
            self.live = live;
        }
    }

    fn overlap(&self, entry: &Entry, a: usize, b: usize) -> bool {
        match (&entry.buffers[a].place, &entry.buffers[b].place) {
            (Place::Arena(_), Place::Arena(_)) => {
                let range = |i: usize| self.offsets[i]..self.offsets[i] + self.bytes[i];
                let (a, b): (Range<usize>, Range<usize>) = (range(a), range(b));
                !a.is_empty() && !b.is_empty() && a.start < b.end && b.start < a.end
            }
            (Place::Input(a), Place::Input(b)) => a == b,
            (Place::Output(a), Place::Output(b)) => a == b,
            (Place::Constant(a), Place::Constant(b)) => a == b,
            (Place::Arena(_) | Place::Input(_) | Place::Output(_), _) => false,
            (Place::Constant(_) | Place::Value, _) => false,
        }
    }

    /// Returns the dimensions of an output; `own` are those of this rank's part, which must fit the buffer.
    fn output(&self, program: &Program, port: &Port, own: &[Dim]) -> Result<Vec<usize>> {
        let name = || format!("output `{}`", port.name);
        let dims = self.dims(program, &port.dims).map_err(|e| e.node(name()))?;
        let own = self.dims(program, own).map_err(|e| e.node(name()))?;
        match bytes_of(port.dtype, &own) {
            _ if port.dtype.is_opaque() => Ok(dims),
            Some(bytes) if bytes <= self.bytes[port.buffer] => Ok(dims),
            Some(_) | None => {
                let has = self.bytes[port.buffer];
                Err(broken(format!("{} {own:?} does not fit the {has} bytes of its buffer", port.dtype)).node(name()))
            }
        }
    }
}

/// Values of the symbols in a kernel's expressions, for one launch.
struct Values<'a> {
    launch: &'a Launch,
    params: &'a [i64],
    /// Sizes by buffer of the entry point.
    bytes: &'a [usize],
}

impl Values<'_> {
    fn value(&self, grid: Option<i64>, symbol: &Symbol) -> Option<i64> {
        match symbol {
            Symbol::Param(n) => self.params.get(*n).copied(),
            Symbol::BufferBytes(n) => i64::try_from(self.bytes[*self.launch.buffers.get(*n)?]).ok(),
            Symbol::Grid => grid,
            Symbol::Statement(_) | Symbol::Variable(_) | Symbol::Named(_) => None,
        }
    }

    /// Returns the number of blocks of a launch on a GPU.
    fn blocks(&self, kernel: &Kernel, target: &KernelTarget) -> Result<u32> {
        let blocks = target.grid.eval(&|symbol| self.value(None, symbol))?;
        u32::try_from(blocks).ok().filter(|_| blocks <= plan::BLOCKS_MAX).ok_or_else(|| {
            let (symbol, name, most) = (&kernel.symbol, &target.target, plan::BLOCKS_MAX);
            let message =
                format!("a launch of `{symbol}` for {name} has {blocks} blocks, where at most {most} are possible");
            Error::user("E0202", message)
        })
    }

    /// Checks the conditions that keep a kernel within its buffers: parameters, sizes and grid come from the plan, and
    /// native code trusts them.
    fn check_required(&self, kernel: &Kernel, grid: i64) -> Result<()> {
        let value = |symbol: &Symbol| self.value(Some(grid), symbol);
        for required in &kernel.requires {
            let left = required.eval(&value)?;
            if left < 0 {
                let message = format!("its kernel `{}` would leave its buffers: `{required}` is {left}", kernel.symbol);
                return Err(broken(message));
            }
        }
        for limit in &kernel.indexes {
            if limit.eval(&value)? < 0 {
                let message = "an index is read from the data for a dimension that has no elements";
                return Err(Error::user("E0303", message));
            }
        }
        Ok(())
    }
}

pub fn bytes_of(dtype: DType, dims: &[usize]) -> Option<usize> {
    tensor::element_count(dims).and_then(|n| dtype.bytes_for(n))
}

/// Names the ONNX nodes that a step computes. A fused kernel has several, and any of them may be at fault.
pub fn step_name(step: &Step, i: usize) -> String {
    match step.origins.is_empty() {
        true => format!("step {i}"),
        false => step.origins.join(" + "),
    }
}

fn broken(message: String) -> Box<Error> {
    Error::user("E0401", format!("the plan does not fit this shape: {message}")).help("compile the model again")
}
