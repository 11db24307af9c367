//! inputs  =>  outputs: the executor

use crate::bind::{bind_symbols, match_inputs};
use crate::memory::{AlignedBuf, Recycled, Recycler};
use crate::model::Model;
use crate::plan::{KERNEL_ABI_VERSION, KernelArgs, KernelFn};
use crate::pool::Pool;
use crate::program::{Entry, Launch, Location, Program, Step};
use crate::shape::{Shape, step_name};
use crate::tensor_io::normalise_bools;
use crate::{DType, Error, Result, Tensor};
use bytes::Bytes;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The caller's thread is one of them; 1 never starts another.
    pub threads: usize,
    /// Bytes that a call may take for intermediate values, scratch and outputs together.
    pub memory_bytes_max: Option<usize>,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions { threads: 1, memory_bytes_max: None }
    }
}

/// Runs one call at a time (others wait); make one session per thread of a server. Sessions share the model.
pub struct Session {
    model: Model,
    pool: Pool,
    memory_bytes_max: Option<usize>,
    outputs: Recycler,
    state: Mutex<State>,
}

/// What is kept from call to call. None of it influences results.
struct State {
    arena: AlignedBuf,
    scratch: AlignedBuf,
    /// Most recently used first.
    shapes: Vec<CachedShape>,
    /// Per buffer, and per launch argument.
    bases: Pointers,
    pointers: Pointers,
}

struct CachedShape {
    entry: usize,
    /// Values of `Entry.bound`.
    key: Vec<i64>,
    shape: Arc<Shape>,
}

/// Shapes kept per session: servers see few at a time.
const SHAPES_MAX: usize = 8;

struct Pointers(Vec<*mut u8>);

// SAFETY: filled in anew by every call, under the session's lock.
unsafe impl Send for Pointers {}

impl Session {
    pub(crate) fn new(model: Model, options: &SessionOptions) -> Result<Session> {
        if options.threads == 0 {
            return Err(Error::user("E0001", "a session needs at least one thread"));
        }
        let state = State {
            arena: AlignedBuf::new(0)?,
            scratch: AlignedBuf::new(0)?,
            shapes: Vec::new(),
            bases: Pointers(Vec::new()),
            pointers: Pointers(Vec::new()),
        };
        Ok(Session {
            model,
            pool: Pool::new(options.threads)?,
            memory_bytes_max: options.memory_bytes_max,
            outputs: Recycler::default(),
            state: Mutex::new(state),
        })
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Runs the entry point `main`. Errors: E0301 for the inputs, E0303 where an index in the data is out of range,
    /// E0304 where memory is short.
    pub fn run(&self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>> {
        self.run_entry("main", inputs)
    }

    pub fn run_entry(&self, entry: &str, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>> {
        let named = |e: Box<Error>| e.file(self.model.file());
        let at = self.model.entry_index(entry)?;
        let program = self.model.program();
        let entry = &program.entries[at];
        let tensors = match_inputs(entry, inputs).map_err(named)?;
        let values = bind_symbols(program, entry, &tensors).map_err(named)?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let shape = state.shape(program, at, values).map_err(named)?;
        Call { session: self, program, entry, tensors: &tensors }.run(&mut state, shape).map_err(named)
    }
}

impl State {
    fn shape(&mut self, program: &Program, entry: usize, values: Vec<Option<i64>>) -> Result<Arc<Shape>> {
        // A bound symbol has a value: an input has the dimension that binds it.
        let key = program.entries[entry].bound.iter().map(|&s| values[s].unwrap_or(-1));
        let known = self.shapes.iter().position(|c| c.entry == entry && c.key.iter().copied().eq(key.clone()));
        let cached = match known {
            Some(at) => self.shapes.remove(at),
            None => {
                let key = key.collect();
                let shape = Arc::new(Shape::new(program, &program.entries[entry], values)?);
                CachedShape { entry, key, shape }
            }
        };
        let shape = cached.shape.clone();
        self.shapes.truncate(SHAPES_MAX - 1);
        self.shapes.insert(0, cached);
        Ok(shape)
    }
}

/// One call.
struct Call<'a> {
    session: &'a Session,
    program: &'a Program,
    entry: &'a Entry,
    tensors: &'a [&'a Tensor],
}

impl Call<'_> {
    fn run(&self, state: &mut State, mut shape: Arc<Shape>) -> Result<Vec<(String, Tensor)>> {
        let inputs = self.input_bytes(&shape)?;
        let mut outputs: Vec<Option<Recycled>> = self.entry.outputs.iter().map(|_| None).collect();
        let status = AtomicI64::new(0);
        let mut stage = 0;
        self.prepare(state, &shape, stage, &inputs, &mut outputs)?;
        for (i, step) in self.entry.steps.iter().enumerate() {
            match step {
                Step::Launch(launch) => self.launch(state, &shape, i, launch, &status)?,
                Step::Copy { from, to } => {
                    let (from, to, n) = (state.bases.0[*from], state.bases.0[*to], shape.bytes[*from]);
                    // SAFETY: both buffers have this size (`Shape::step`), lie in memory of at least their size
                    // (`prepare`), and do not overlap (`Shape::flow`).
                    unsafe { std::ptr::copy_nonoverlapping(from, to, n) };
                }
                Step::Bind { symbol, buffer } => {
                    // SAFETY: the buffer has at least 8 bytes (`Shape::step`); its alignment is not assumed.
                    let value = unsafe { state.bases.0[*buffer].cast::<i64>().read_unaligned() };
                    stage += 1;
                    self.bind(Arc::make_mut(&mut shape), *symbol, value)?;
                    self.prepare(state, &shape, stage, &inputs, &mut outputs)?;
                }
            }
        }
        self.finish(&shape, outputs)
    }

    /// The inputs' bytes, aligned to their element and with bools as 0 or 1; copied only where they are not.
    fn input_bytes(&self, shape: &Shape) -> Result<Vec<Bytes>> {
        let one = |(port, tensor): (&crate::program::Port, &&Tensor)| {
            let bytes = match tensor.dtype() {
                DType::Bool => normalise_bools(tensor.bytes().clone()),
                _ => tensor.bytes().clone(),
            };
            if shape.bytes[port.buffer] > bytes.len() {
                let (wanted, given) = (shape.bytes[port.buffer], bytes.len());
                let message = format!("the plan wants {wanted} bytes of the input `{}`, which has {given}", port.name);
                return Err(Error::user("E0401", message));
            }
            let alignment = (tensor.dtype().bits() as usize / 8).max(1);
            match bytes.as_ptr() as usize % alignment {
                0 => Ok(bytes),
                _ => Ok(Bytes::from_owner(AlignedBuf::from_slice(&bytes)?)),
            }
        };
        self.entry.inputs.iter().zip(self.tensors).map(one).collect()
    }

    /// Gives every buffer of the stage its memory, and every launch its pointers.
    fn prepare(
        &self,
        state: &mut State,
        shape: &Shape,
        stage: usize,
        inputs: &[Bytes],
        outputs: &mut [Option<Recycled>],
    ) -> Result<()> {
        self.check_memory(shape, stage)?;
        state.arena.grow(shape.arena_bytes)?;
        let scratch = shape.scratch_bytes.checked_mul(self.session.threads());
        state.scratch.grow(scratch.ok_or_else(|| Error::user("E0202", "the size of the scratch overflows"))?)?;
        let State { arena, bases, pointers, .. } = state;
        bases.0.resize(self.entry.buffers.len(), std::ptr::null_mut());
        pointers.0.resize(self.entry.n_pointers, std::ptr::null_mut());
        for (i, buffer) in self.entry.buffers.iter().enumerate().filter(|(_, b)| b.stage <= stage) {
            bases.0[i] = match &buffer.place {
                // Kernels and copies never write to inputs and constants (`program::verify`).
                Location::Input(at) => inputs[*at].as_ptr().cast_mut(),
                Location::Constant(at) => {
                    self.session.model.weights()[self.program.constants[*at].clone()].as_ptr().cast_mut()
                }
                Location::Output(at) => match &outputs[*at] {
                    Some(output) => output.as_ptr(),
                    None => outputs[*at].insert(self.session.outputs.take(shape.bytes[i])?).as_ptr(),
                },
                Location::Arena(_) => arena.as_ptr().wrapping_add(shape.offsets[i]),
            };
        }
        for step in &self.entry.steps {
            let Step::Launch(launch) = step else { continue };
            for (k, &buffer) in launch.buffers.iter().enumerate() {
                pointers.0[launch.pointers_at + k] = bases.0[buffer];
            }
        }
        Ok(())
    }

    fn check_memory(&self, shape: &Shape, stage: usize) -> Result<()> {
        let Some(max) = self.session.memory_bytes_max else { return Ok(()) };
        let known = self.entry.outputs.iter().map(|p| p.buffer).filter(|&b| self.entry.buffers[b].stage <= stage);
        let outputs = known.fold(0usize, |sum, b| sum.saturating_add(shape.bytes[b]));
        let scratch = shape.scratch_bytes.saturating_mul(self.session.threads());
        let total = shape.arena_bytes.saturating_add(scratch).saturating_add(outputs);
        match total > max {
            true => Err(Error::user("E0304", format!("the call needs {total} bytes, the limit is {max}"))),
            false => Ok(()),
        }
    }

    fn launch(&self, state: &State, shape: &Shape, i: usize, launch: &Launch, status: &AtomicI64) -> Result<()> {
        // An empty tensor gives an empty grid.
        if shape.grids[i] <= 0 {
            return Ok(());
        }
        let work = Work {
            kernel: self.session.model.kernels()[launch.kernel],
            n_buffers: launch.buffers.len() as u32,
            buffers: state.pointers.0[launch.pointers_at..].as_ptr(),
            params: shape.params[launch.params_at..].as_ptr(),
            scratch: state.scratch.as_ptr(),
            scratch_stride: shape.scratch_bytes,
            status: status.as_ptr(),
        };
        self.session.pool.for_each(shape.grids[i], &|worker, begin, end| work.piece(worker, begin, end));
        match status.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => {
                let error = Error::user("E0303", "an index read from the data is out of range");
                Err(error.node(step_name(&self.entry.steps[i], i)))
            }
        }
    }

    fn bind(&self, shape: &mut Shape, symbol: usize, value: i64) -> Result<()> {
        let declared = &self.program.symbols[symbol];
        if !declared.admits(value) {
            let message =
                format!("`{}` = {value}, computed from the data, is outside {}", declared.name, declared.range());
            return Err(Error::user("E0303", message));
        }
        shape.values[symbol] = Some(value);
        shape.advance(self.program, self.entry)
    }

    fn finish(&self, shape: &Shape, outputs: Vec<Option<Recycled>>) -> Result<Vec<(String, Tensor)>> {
        let one = |((port, dims), output): ((&crate::program::Port, &Vec<usize>), Option<Recycled>)| {
            let output = output.ok_or_else(|| Error::defect(format!("the output `{}` has no memory", port.name)))?;
            let bytes = crate::shape::bytes_of(port.dtype, dims).unwrap_or(0);
            // The buffer may be an upper bound of what a data-dependent output turned out to be.
            let data = output.into_bytes().slice(..bytes);
            Ok((port.name.clone(), Tensor::new(port.dtype, dims.clone(), data)?))
        };
        self.entry.outputs.iter().zip(&shape.output_dims).zip(outputs).map(one).collect()
    }
}

/// A launch as the threads see it.
struct Work {
    kernel: KernelFn,
    n_buffers: u32,
    buffers: *const *mut u8,
    params: *const i64,
    scratch: *mut u8,
    scratch_stride: usize,
    status: *mut i64,
}

// SAFETY: the pointers outlive the launch, kernels write disjoint parts of their outputs, the scratch is split per
// worker, and the status is only ever set to 1.
unsafe impl Sync for Work {}

impl Work {
    fn piece(&self, worker: usize, begin: i64, end: i64) {
        let args = KernelArgs {
            version: KERNEL_ABI_VERSION,
            n_buffers: self.n_buffers,
            buffers: self.buffers,
            params: self.params,
            scratch: self.scratch.wrapping_add(worker * self.scratch_stride),
            begin,
            end,
            status: self.status,
        };
        // SAFETY: number and kind of buffers and parameters are the kernel's (`program::verify`), each buffer has the
        // size that the plan computes for it (`Shape`), and the memory is there (`Call::prepare`).
        unsafe { (self.kernel)(&args) }
    }
}
