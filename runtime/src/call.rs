//! one call  =>  memory for its buffers, its launches, its outputs

use crate::bind::Given;
use crate::cache::Held;
use crate::memory::{AlignedBuf, Recycled};
use crate::plan::{KERNEL_ABI_VERSION, KernelArgs, KernelFn};
use crate::program::{Entry, Launch, Location, Port, Program, Step};
use crate::session::{Session, State};
use crate::shape::{Shape, bytes_of, step_name};
use crate::stop::Stop;
use crate::view::TensorBuffer;
use crate::{DType, Error, Result, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

pub(crate) struct Call<'a> {
    pub session: &'a Session,
    pub program: &'a Program,
    pub entry: &'a Entry,
    /// In the order of the ports.
    pub inputs: &'a [Given<'a>],
    pub stop: &'a Stop<'a>,
}

/// An input's bytes, aligned to its element and with bools as 0 or 1.
enum InputBytes<'a> {
    InPlace(&'a [u8]),
    Copied(AlignedBuf),
    /// They are in the cache.
    Held,
}

/// Where the inputs and outputs of a call are, by port.
struct Places<'a, 'b, 'c, 'd, 'e> {
    inputs: Vec<InputBytes<'d>>,
    /// The memory of states, input and output in one.
    held: Option<&'a mut Held<'e>>,
    /// The caller's memory.
    given: &'a mut [Option<&'b mut TensorBuffer<'c>>],
    /// Ours, where there is none of the caller, or where kernels cannot write there.
    own: Vec<Option<Recycled>>,
}

impl Places<'_, '_, '_, '_, '_> {
    fn is_held(&self, port: &Port) -> bool {
        self.held.is_some() && port.state.is_some()
    }

    /// The caller's memory, where kernels can write `bytes` bytes into it.
    fn direct(&mut self, at: usize, dtype: DType, bytes: usize) -> Option<*mut u8> {
        let memory = self.given[at].as_mut()?.bytes_mut();
        let fit = memory.len() >= bytes && is_aligned(memory.as_ptr(), dtype);
        fit.then_some(memory.as_mut_ptr())
    }
}

fn is_aligned(start: *const u8, dtype: DType) -> bool {
    (start as usize).is_multiple_of((dtype.bits() as usize / 8).max(1))
}

impl Call<'_> {
    /// Returns the outputs that the caller gave no memory for.
    pub fn run(
        &self,
        state: &mut State,
        mut shape: Arc<Shape>,
        given: &mut [Option<&mut TensorBuffer<'_>>],
        held: Option<&mut Held<'_>>,
    ) -> Result<Vec<(String, Tensor)>> {
        self.stop.check()?;
        self.check_sizes(&shape, given)?;
        let (inputs, own) = (self.input_bytes(&shape)?, self.entry.outputs.iter().map(|_| None).collect());
        let mut places = Places { inputs, held, given, own };
        let status = AtomicI64::new(0);
        let mut stage = 0;
        self.prepare(state, &shape, stage, &mut places)?;
        for (i, step) in self.entry.steps.iter().enumerate() {
            self.stop.check()?;
            match step {
                // In place the old positions are there already.
                Step::Launch(launch) if launch.carries.is_some() && places.held.is_some() => {}
                Step::Launch(launch) => self.launch(state, &shape, i, launch, &status)?,
                Step::Copy { from, to } => {
                    let (from, to, n) = (state.bases.0[*from], state.bases.0[*to], shape.bytes[*from]);
                    // SAFETY: both buffers have this size (`Shape::step`), lie in memory of at least their size
                    // (`prepare`), and do not overlap (`Shape::flow`; no copy writes a state, `states::check_step`).
                    unsafe { std::ptr::copy_nonoverlapping(from, to, n) };
                }
                Step::Bind { symbol, buffer } => {
                    // SAFETY: the buffer has at least 8 bytes (`Shape::step`); its alignment is not assumed.
                    let value = unsafe { state.bases.0[*buffer].cast::<i64>().read_unaligned() };
                    stage += 1;
                    self.bind(Arc::make_mut(&mut shape), *symbol, value)?;
                    self.check_sizes(&shape, places.given)?;
                    self.prepare(state, &shape, stage, &mut places)?;
                }
            }
        }
        self.finish(&shape, places)
    }

    /// Refuses buffers of the caller that are too small, as soon as that is known.
    fn check_sizes(&self, shape: &Shape, given: &[Option<&mut TensorBuffer<'_>>]) -> Result<()> {
        for ((port, dims), buffer) in self.entry.outputs.iter().zip(&shape.output_dims).zip(given) {
            let Some(buffer) = buffer else { continue };
            let (needed, has) = (bytes_of(port.dtype, dims).unwrap_or(usize::MAX), buffer.bytes().len());
            if has < needed {
                let name = &port.name;
                let message = format!("the output `{name}` of {dims:?} has {needed} bytes, its buffer only {has}");
                return Err(Error::user("E0301", message));
            }
        }
        Ok(())
    }

    /// Copies inputs only where they cannot be used in place.
    fn input_bytes(&self, shape: &Shape) -> Result<Vec<InputBytes<'_>>> {
        let mut all = Vec::with_capacity(self.inputs.len());
        for (port, given) in self.entry.inputs.iter().zip(self.inputs) {
            let Given::Tensor(tensor) = given else {
                all.push(InputBytes::Held);
                continue;
            };
            let bytes = tensor.bytes();
            if shape.bytes[port.buffer] > bytes.len() {
                let (wanted, given) = (shape.bytes[port.buffer], bytes.len());
                let message = format!("the plan wants {wanted} bytes of the input `{}`, which has {given}", port.name);
                return Err(Error::user("E0401", message));
            }
            let normal = tensor.dtype() != DType::Bool || bytes.iter().all(|&b| b <= 1);
            all.push(match normal && is_aligned(bytes.as_ptr(), tensor.dtype()) {
                true => InputBytes::InPlace(bytes),
                false => InputBytes::Copied(AlignedBuf::from_slice(bytes)?),
            });
            if let (false, Some(InputBytes::Copied(copy))) = (normal, all.last_mut()) {
                copy.as_mut_slice().iter_mut().for_each(|b| *b = (*b != 0) as u8);
            }
        }
        Ok(all)
    }

    /// Gives every buffer of the stage its memory, and every launch its pointers.
    fn prepare(&self, state: &mut State, shape: &Shape, stage: usize, places: &mut Places) -> Result<()> {
        let spare = self.check_memory(shape, stage, places)?;
        if let Some(held) = &mut places.held {
            held.allocate()?;
        }
        // A sequence that grows from call to call needs a little more each time: not a new arena each time.
        state.arena.grow(shape.arena_bytes, spare.min(shape.arena_bytes / 4))?;
        let scratch = shape.scratch_bytes.checked_mul(self.session.threads());
        state.scratch.grow(scratch.ok_or_else(|| Error::user("E0202", "the size of the scratch overflows"))?, 0)?;
        let State { arena, bases, pointers, .. } = state;
        bases.0.resize(self.entry.buffers.len(), std::ptr::null_mut());
        pointers.0.resize(self.entry.n_pointers, std::ptr::null_mut());
        for (i, buffer) in self.entry.buffers.iter().enumerate().filter(|(_, b)| b.stage <= stage) {
            bases.0[i] = match &buffer.place {
                Location::Input(at) => self.input_place(shape, *at, places)?,
                // Kernels and copies never write to constants (`program::verify`).
                Location::Constant(at) => {
                    self.session.model.weights()[self.program.constants[*at].clone()].as_ptr().cast_mut()
                }
                Location::Output(at) => self.output_place(shape, *at, places)?,
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

    fn input_place(&self, shape: &Shape, at: usize, places: &Places) -> Result<*mut u8> {
        match (&places.inputs[at], &places.held, self.entry.inputs[at].state) {
            // Kernels and copies never write to inputs (`program::verify`).
            (InputBytes::InPlace(bytes), ..) => Ok(bytes.as_ptr().cast_mut()),
            (InputBytes::Copied(buf), ..) => Ok(buf.as_ptr()),
            (InputBytes::Held, Some(held), Some(state)) => held.place(self.entry, shape, state),
            (InputBytes::Held, ..) => {
                Err(Error::defect(format!("the input `{}` has no memory", self.entry.inputs[at].name)))
            }
        }
    }

    fn output_place(&self, shape: &Shape, at: usize, places: &mut Places) -> Result<*mut u8> {
        let port = &self.entry.outputs[at];
        if let (Some(held), Some(state)) = (&places.held, port.state) {
            return held.place(self.entry, shape, state);
        }
        let bytes = shape.bytes[port.buffer];
        match (places.direct(at, port.dtype, bytes), &places.own[at]) {
            (Some(memory), _) => Ok(memory),
            (None, Some(output)) => Ok(output.as_ptr()),
            (None, None) => Ok(places.own[at].insert(self.session.outputs.take(bytes)?).as_ptr()),
        }
    }

    /// Bytes that the call may take beyond what it needs.
    fn check_memory(&self, shape: &Shape, stage: usize, places: &mut Places) -> Result<usize> {
        let Some(max) = self.session.memory_bytes_max else { return Ok(usize::MAX) };
        let mut total = shape.arena_bytes.saturating_add(shape.scratch_bytes.saturating_mul(self.session.threads()));
        total = total.saturating_add(places.held.as_ref().map_or(0, |held| held.bytes()));
        for (at, port) in self.entry.outputs.iter().enumerate() {
            let bytes = shape.bytes[port.buffer];
            if places.is_held(port) {
                continue;
            }
            // Memory of the caller is not ours to count.
            if self.entry.buffers[port.buffer].stage <= stage && places.direct(at, port.dtype, bytes).is_none() {
                total = total.saturating_add(bytes);
            }
        }
        max.checked_sub(total)
            .ok_or_else(|| Error::user("E0304", format!("the call needs {total} bytes, the limit is {max}")))
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
        let piece = |worker, begin, end| work.piece(worker, begin, end);
        if self.stop.possible() {
            self.session.pool.for_each_while(shape.grids[i], &|| self.stop.go_on(), &piece);
            self.stop.check()?;
        } else {
            self.session.pool.for_each(shape.grids[i], &piece);
        }
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

    fn finish(&self, shape: &Shape, places: Places) -> Result<Vec<(String, Tensor)>> {
        let mut out = Vec::new();
        let Places { given, own, held, .. } = places;
        for (((port, dims), given), own) in self.entry.outputs.iter().zip(&shape.output_dims).zip(given).zip(own) {
            // The buffer may be an upper bound of what a data-dependent output turned out to be.
            let bytes = bytes_of(port.dtype, dims).unwrap_or(0);
            match (given, own) {
                (Some(buffer), own) => {
                    if let Some(own) = own {
                        buffer.bytes_mut()[..bytes].copy_from_slice(&own.as_ref()[..bytes]);
                    }
                    buffer.set_dims(dims);
                }
                (None, Some(own)) => {
                    let data = own.into_bytes().slice(..bytes);
                    out.push((port.name.clone(), Tensor::new(port.dtype, dims.clone(), data)?));
                }
                (None, None) if held.is_some() && port.state.is_some() => {}
                (None, None) => return Err(Error::defect(format!("the output `{}` has no memory", port.name))),
            }
        }
        Ok(out)
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
        // size that the plan computes for it (`Shape`), and the memory is there (`Call::prepare`). In place, a state's
        // input and output are the same memory, which no reference of ours points into during the call; no launch
        // has one to read and the other to write but those that carry, which are left out (`states::check_step`).
        // That what else writes it writes only new positions is the compiler's promise, as is all that kernels do.
        unsafe { (self.kernel)(&args) }
    }
}
