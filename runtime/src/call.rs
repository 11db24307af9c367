//! one call  =>  memory for its buffers, its launches, its outputs

mod exchange;
mod host;
mod turns;

use crate::bind::Given;
use crate::cache::Held;
use crate::device::{Address, Block, Memory, Order, Work, host_address};
use crate::memory::{AlignedBuf, Recycled};
use crate::outputs::Outputs;
use crate::program::{Action, Entry, Launch, Place, Program};
use crate::session::{Session, State};
use crate::shape::{Shape, bytes_of, step_name};
use crate::stop::Stop;
use sardonyx_base::host::HostOp;
use sardonyx_base::plan::{Bind, Copy};
use sardonyx_base::view::{TensorBuffer, is_aligned};
use sardonyx_base::{DType, Error, Result, Tensor, packed};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

pub(crate) struct Call<'a> {
    pub session: &'a Session,
    pub program: &'a Program,
    pub entry: &'a Entry,
    /// The inputs, in the order of the ports.
    pub inputs: &'a [Given<'a>],
    pub stop: &'a Stop<'a>,
    pub memory: Memory,
    /// Callback after each launch, and whether it receives the launch's results.
    pub watch: Option<(RefCell<Watch<'a>>, Look)>,
    /// Number of bytes that the enclosing calls have already taken.
    pub outside: usize,
}

/// Whether the callback receives the results of each launch, or only its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Results,
    Times,
}

/// A launch that has just ended.
pub struct Launched<'a> {
    /// Index among the steps of the entry point.
    pub step: usize,
    /// Symbol of the kernel in the plan, such as `k0`.
    pub kernel: &'a str,
    /// Family of the kernel.
    pub class: &'a str,
    /// The ONNX nodes that the launch computes.
    pub origins: &'a [String],
    /// The bytes of each buffer that the launch writes, in the kernel's order; empty if only times are requested.
    pub results: Vec<Vec<u8>>,
    /// Start and end of the launch; on a GPU, as the GPU recorded them, in a call that begins with the first launch.
    pub ran: (Instant, Instant),
    /// Number of floating-point operations, and of bytes read and written, each byte once, as the compiler counts them.
    pub work: Option<(i64, i64)>,
}

/// Callback that receives every launch after it has ended; an error from it ends the call.
pub type Watch<'a> = &'a mut dyn FnMut(Launched) -> Result<()>;

/// Bytes of an input, aligned to its element type, with bools as 0 or 1.
enum InputBytes<'a> {
    InPlace(&'a [u8]),
    Copied(AlignedBuf),
    /// The input is a state in the cache.
    Held,
}

impl InputBytes<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            InputBytes::InPlace(bytes) => bytes,
            InputBytes::Copied(buf) => buf.as_ref(),
            InputBytes::Held => &[],
        }
    }
}

/// Locations of the inputs and outputs of a call, by port.
struct Places<'a, 'b, 'c, 'd, 'e, 'f> {
    inputs: Vec<InputBytes<'d>>,
    /// The cache, which holds the inputs and outputs of states.
    held: Option<&'a mut Held<'e, 'f>>,
    /// The caller's buffers for outputs.
    given: &'a mut [Option<&'b mut TensorBuffer<'c>>],
    /// By output: whether each rank has only a part of it.
    in_parts: Vec<bool>,
    /// By output: memory of the session, used if the caller gave no buffer, or one that kernels cannot write to.
    own: Vec<Option<Recycled>>,
    /// By buffer: the results of host steps.
    made: Vec<Option<host::Made>>,
    /// The launches before and after which the queue has recorded the time.
    marked: Vec<usize>,
}

impl Places<'_, '_, '_, '_, '_, '_> {
    fn is_held(&self, state: Option<usize>) -> bool {
        self.held.is_some() && state.is_some()
    }

    /// Returns the caller's memory for an output if kernels of the host can write `bytes` bytes into it.
    fn direct(&mut self, at: usize, dtype: DType, bytes: usize) -> Option<*mut u8> {
        if self.in_parts[at] {
            return None;
        }
        let memory = self.given[at].as_mut()?.bytes_mut();
        let fit = memory.len() >= bytes && is_aligned(memory.as_ptr(), dtype);
        fit.then_some(memory.as_mut_ptr())
    }
}

/// Number of bytes of opaque values, whose size no plan knows; memory that several values share counts once.
fn opaque_bytes(made: &[Option<host::Made>]) -> usize {
    let mut blocks: Vec<(*const u8, usize)> = vec![];
    blocks.extend(made.iter().flatten().filter_map(|made| made.opaque()).map(|bytes| (bytes.as_ptr(), bytes.len())));
    blocks.sort_unstable();
    blocks.dedup();
    blocks.iter().fold(0, |n, (_, bytes)| n.saturating_add(*bytes))
}

impl Call<'_> {
    /// Returns the outputs that the caller gave no memory for.
    pub fn run(
        &self,
        state: &mut State,
        mut shape: Arc<Shape>,
        given: &mut [Option<&mut TensorBuffer<'_>>],
        held: Option<&mut Held<'_, '_>>,
    ) -> Result<Outputs> {
        self.stop.check()?;
        self.check_sizes(&shape, given)?;
        let (inputs, own) = (self.input_bytes(&shape)?, self.entry.outputs.iter().map(|_| None).collect());
        let made = self.entry.buffers.iter().map(|_| None).collect();
        let in_parts = self.entry.output_states.iter().map(|state| !self.entry.units(*state).is_empty()).collect();
        let mut places = Places { inputs, held, given, in_parts, own, made, marked: vec![] };
        if self.memory == (Memory::Own { apart: true }) {
            state.blocks.clear();
        }
        let begun = Instant::now();
        state.queue.begin(self.entry.steps.len())?;
        let ran = self.steps(state, &mut shape, &mut places).and_then(|()| self.settle(state));
        #[cfg(feature = "cuda")]
        if ran.is_err() {
            // Drops the communicators, so that `finish` does not wait for ranks that may never join a pending
            // collective.
            state.meeting.renew();
        }
        let finished = ran.and_then(|()| self.finish(state, &shape, &mut places)).inspect_err(|_| {
            // The queue is waited for even after an error, because work that is under way uses the memory of this call.
            state.queue.discard();
            let _ = state.queue.finish();
        });
        if let Some(i) = finished? {
            return Err(crate::device::index_out_of_range().node(step_name(&self.entry.steps[i], i)));
        }
        for (&i, times) in places.marked.iter().zip(state.queue.times()?.chunks_exact(2)) {
            if let Action::Launch(launch) = &self.entry.steps[i].action {
                self.show(state, &shape, (i, launch), (begun + times[0], begun + times[1]))?;
            }
        }
        self.outputs(&shape, places)
    }

    fn steps(&self, state: &mut State, shape: &mut Arc<Shape>, places: &mut Places) -> Result<()> {
        // `under_way` is the index of the step that began a collective whose `Wait` has not run yet.
        let (mut stage, mut under_way) = (0, None);
        self.prepare(state, shape, stage, places)?;
        self.upload(state, shape, places)?;
        for (i, step) in self.entry.steps.iter().enumerate() {
            self.stop.check()?;
            if !self.entry.needed[i] {
                continue;
            }
            match &step.action {
                // With a cache, the old positions are already in place.
                Action::Launch(launch) if launch.carries.is_some() && places.held.is_some() => {}
                Action::Launch(launch) => {
                    let begun = self.watch.as_ref().map(|_| Instant::now());
                    let is_timed = self.watch.as_ref().is_some_and(|(_, look)| *look == Look::Times);
                    let is_marked = is_timed && state.queue.mark()?;
                    self.launch(state, shape, (i, launch), Order::Any).map_err(|e| match e.code {
                        // A deadline or a cancellation is not caused by this step.
                        "E0305" | "E0306" => e,
                        _ => e.node(step_name(step, i)),
                    })?;
                    if let (Some(_), Some(rank)) = (under_way, self.session.rank()) {
                        rank.go_on().map_err(|e| e.node(step_name(step, i)))?;
                    }
                    if is_marked {
                        state.queue.mark()?;
                        places.marked.push(i);
                    } else if let Some(begun) = begun {
                        self.show(state, shape, (i, launch), (begun, Instant::now()))?;
                    }
                }
                Action::Copy(copy) if self.opaque_output(copy.to).is_some() => {
                    self.pass(state, shape, copy, places).map_err(|e| e.node(step_name(step, i)))?
                }
                Action::Copy(Copy { from, to }) => {
                    let (from, to, n) = (state.bases[*from], state.bases[*to], shape.bytes[*from]);
                    // SAFETY: both buffers have this size (`Shape::step`), are in memory of at least their size
                    // (`prepare`), and do not overlap (`Shape::flow`; no copy writes a state, `states::check_step`).
                    unsafe { state.queue.copy(from, to, n) }?;
                }
                Action::Bind(Bind { symbol, buffer }) => {
                    self.settle(state)?;
                    let mut value = [0; 8];
                    // SAFETY: the buffer has at least 8 bytes (`Shape::step`).
                    unsafe { state.queue.download(state.bases[*buffer], &mut value) }?;
                    stage += 1;
                    self.bind(Arc::make_mut(shape), symbol, i64::from_le_bytes(value))?;
                    self.check_sizes(shape, places.given)?;
                    self.prepare(state, shape, stage, places)?;
                }
                Action::Host(host) if host.call.op.exchange().is_some() => {
                    let at = under_way.take().unwrap_or(i);
                    self.exchange(state, shape, at, host).map_err(|e| e.node(step_name(step, i)))?;
                    under_way = matches!(host.call.op, HostOp::Begin(_)).then_some(i);
                }
                Action::Host(host) => {
                    self.settle(state)?;
                    self.session.model.device().host_computes();
                    stage += 1;
                    self.host(state, shape, host, stage, places).map_err(|e| match e.code {
                        "E0305" | "E0306" => e,
                        _ => e.node(step_name(step, i)),
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Refuses buffers of the caller that are too small, as soon as the dimensions are known. Errors: E0301.
    fn check_sizes(&self, shape: &Shape, given: &[Option<&mut TensorBuffer<'_>>]) -> Result<()> {
        for ((port, dims), buffer) in self.entry.outputs.iter().zip(&shape.output_dims).zip(given) {
            let Some(buffer) = buffer else { continue };
            let (needed, has) = (bytes_of(port.dtype, dims).unwrap_or(usize::MAX), buffer.bytes().len());
            if has < needed {
                let name = &port.name;
                let message = format!("the output `{name}` of {dims:?} has {needed} bytes, its buffer only {has}");
                return Err(Error::user("E0301", message).help("give a larger buffer, or none"));
            }
        }
        Ok(())
    }

    /// Returns the bytes of every input; copies them only if they cannot be used in place.
    fn input_bytes(&self, shape: &Shape) -> Result<Vec<InputBytes<'_>>> {
        let mut all = Vec::with_capacity(self.inputs.len());
        for ((port, given), state) in self.entry.inputs.iter().zip(self.inputs).zip(&self.entry.input_states) {
            let Given::Tensor(tensor) = given else {
                all.push(InputBytes::Held);
                continue;
            };
            let units = self.entry.units(*state);
            let part = (!units.is_empty()).then(|| self.own_part(tensor, units)).transpose()?;
            let bytes = part.as_ref().map_or(tensor.bytes(), |part| part.bytes());
            if shape.bytes[port.buffer] > bytes.len() {
                let (wanted, given) = (shape.bytes[port.buffer], bytes.len());
                let message = format!("the plan wants {wanted} bytes of the input `{}`, which has {given}", port.name);
                return Err(Error::user("E0401", message));
            }
            let normal = packed::is_held(tensor.dtype(), bytes);
            all.push(match part.is_none() && normal && is_aligned(bytes.as_ptr(), tensor.dtype()) {
                true => InputBytes::InPlace(tensor.bytes()),
                false => InputBytes::Copied(AlignedBuf::from_slice(bytes)?),
            });
            if let (false, Some(InputBytes::Copied(copy))) = (normal, all.last_mut()) {
                copy.as_mut_slice().iter_mut().for_each(|b| *b = packed::held(tensor.dtype(), *b));
            }
        }
        Ok(all)
    }

    /// Assigns memory to every buffer of the stage, and addresses to every launch.
    fn prepare(&self, state: &mut State, shape: &Shape, stage: usize, places: &mut Places) -> Result<()> {
        let spare = self.check_memory(state, shape, stage, places)?;
        if let Some(held) = &mut places.held {
            held.allocate()?;
        }
        // A sequence that grows a little with each call should not cause a new arena each time.
        self.grow_arena(state, shape.arena_bytes, spare.min(shape.arena_bytes / 4), stage > 0)?;
        state.queue.reserve(shape.scratch_bytes)?;
        state.bases.resize(self.entry.buffers.len(), 0);
        state.pointers.resize(self.entry.pointers_at[self.entry.steps.len()], 0);
        for (i, buffer) in self.entry.buffers.iter().enumerate().filter(|(i, _)| self.entry.buffer_stages[*i] <= stage)
        {
            state.bases[i] = match (&buffer.place, self.memory) {
                (Place::Constant(at), _) => self.session.model.constants()[*at],
                (Place::Input(at), _) => self.input_place(state, shape, *at, places)?,
                (Place::Output(at), _) => self.output_place(state, shape, *at, places)?,
                (Place::Arena(_), Memory::Own { apart: true }) => self.block(state, shape, i)?,
                (Place::Arena(_), Memory::Host | Memory::Own { apart: false }) => {
                    state.arena.as_ref().map_or(0, Block::address) + shape.offsets[i] as u64
                }
                (Place::Value, Memory::Host) => places.made[i].as_ref().map_or(0, host::Made::address),
                (Place::Value, Memory::Own { .. }) => self.block(state, shape, i)?,
            };
        }
        for (i, step) in self.entry.steps.iter().enumerate() {
            let Action::Launch(launch) = &step.action else { continue };
            for (at, &buffer) in self.entry.pointers(i).zip(&launch.buffers) {
                state.pointers[at] = state.bases[buffer];
            }
        }
        Ok(())
    }

    /// Grows the arena to at least `bytes`. If it already has half of that, it will probably grow again, and gets up to
    /// `spare` extra bytes if they can be allocated. With `keep`, its content is preserved.
    fn grow_arena(&self, state: &mut State, bytes: usize, spare: usize, keep: bool) -> Result<()> {
        let has = state.arena.as_ref().map_or(0, Block::bytes);
        if bytes <= has || self.memory == (Memory::Own { apart: true }) {
            return Ok(());
        }
        let spare = if has >= bytes / 2 { spare } else { 0 };
        let shared = state.rank.as_ref().filter(|_| self.memory == Memory::Host);
        if let Some(arena) = shared.and_then(|rank| rank.arena(bytes)) {
            state.arena = Some(arena?);
            return Ok(());
        }
        let allocate = |bytes| self.session.model.device().clone().allocate(bytes, &|| "the arena".into());
        let old = if keep { state.arena.take() } else { None };
        // Unless it is kept, the old arena is freed first, because both arenas together may exceed the available
        // memory.
        state.arena = None;
        let new = allocate(bytes.saturating_add(spare)).or_else(|_| allocate(bytes))?;
        if let Some(old) = old {
            // SAFETY: the new block is larger than the old one, and nothing else uses it yet.
            unsafe { state.queue.copy(old.address(), new.address(), old.bytes()) }?;
            // The old arena must live until the copy is done.
            if let Some(i) = state.queue.finish()? {
                return Err(crate::device::index_out_of_range().node(step_name(&self.entry.steps[i], i)));
            }
            state.queue.begin(self.entry.steps.len())?;
        }
        state.arena = Some(new);
        Ok(())
    }

    fn input_place(&self, state: &mut State, shape: &Shape, at: usize, places: &Places) -> Result<Address> {
        let port = &self.entry.inputs[at];
        match (&places.inputs[at], &places.held, self.entry.input_states[at]) {
            (InputBytes::Held, Some(held), Some(state)) => held.place(self.entry, shape, state),
            (InputBytes::Held, ..) => Err(Error::defect(format!("the input `{}` has no memory", port.name))),
            // Kernels and copies never write to inputs (`program::verify`).
            (given, ..) if self.memory == Memory::Host => Ok(host_address(given.bytes().as_ptr())),
            (InputBytes::InPlace(_) | InputBytes::Copied(_), ..) => self.block(state, shape, port.buffer),
        }
    }

    fn output_place(&self, state: &mut State, shape: &Shape, at: usize, places: &mut Places) -> Result<Address> {
        let port = &self.entry.outputs[at];
        if let (Some(held), Some(state)) = (&places.held, self.entry.output_states[at]) {
            return held.place(self.entry, shape, state);
        }
        if self.memory != Memory::Host {
            return self.block(state, shape, port.buffer);
        }
        let bytes = shape.bytes[port.buffer];
        let start = match (places.direct(at, port.dtype, bytes), &places.own[at]) {
            (Some(memory), _) => memory,
            (None, Some(output)) => output.as_ptr(),
            (None, None) => places.own[at].insert(self.session.outputs.take(bytes)?).as_ptr(),
        };
        Ok(host_address(start))
    }

    /// Returns device memory for one buffer. Later calls reuse it, unless every buffer must get new memory (`apart`).
    fn block(&self, state: &mut State, shape: &Shape, i: usize) -> Result<Address> {
        let bytes = shape.bytes[i];
        if state.blocks.len() <= i {
            state.blocks.resize_with(self.entry.buffers.len(), || None);
        }
        if let Some(block) = state.blocks[i].as_ref().filter(|block| block.bytes() >= bytes) {
            return Ok(block.address());
        }
        state.blocks[i] = None;
        let name = || match &self.entry.buffers[i].place {
            Place::Input(at) => format!("input `{}`", self.entry.inputs[*at].name),
            Place::Output(at) => format!("output `{}`", self.entry.outputs[*at].name),
            Place::Arena(_) | Place::Constant(_) | Place::Value => format!("buffer {i}"),
        };
        let block = self.session.model.device().clone().allocate(bytes, &name)?;
        Ok(state.blocks[i].insert(block).address())
    }

    /// Copies the inputs to a device that cannot read the caller's memory.
    fn upload(&self, state: &mut State, shape: &Shape, places: &Places) -> Result<()> {
        if self.memory == Memory::Host {
            return Ok(());
        }
        for (port, given) in self.entry.inputs.iter().zip(&places.inputs) {
            let bytes = match given {
                InputBytes::Held => continue,
                // The input has at least as many bytes as its buffer (`input_bytes`).
                InputBytes::InPlace(_) | InputBytes::Copied(_) => &given.bytes()[..shape.bytes[port.buffer]],
            };
            // SAFETY: the input's memory has the size of its buffer (`block`).
            unsafe { state.queue.upload(bytes, state.bases[port.buffer]) }?;
        }
        Ok(())
    }

    /// Returns how many bytes the call may take beyond those that it needs. Errors: E0304 if it needs more than the
    /// limit.
    fn check_memory(&self, state: &mut State, shape: &Shape, stage: usize, places: &mut Places) -> Result<usize> {
        let Some(max) = self.session.memory_bytes_max else { return Ok(usize::MAX) };
        let mut total = shape.arena_bytes.saturating_add(state.queue.scratch_bytes(shape.scratch_bytes));
        total = total.saturating_add(self.outside);
        for (i, _) in self.entry.buffers.iter().enumerate().filter(|(_, b)| matches!(b.place, Place::Value)) {
            total = total.saturating_add(shape.bytes[i]);
        }
        total = total.saturating_add(opaque_bytes(&places.made));
        total = total.saturating_add(places.held.as_ref().map_or(0, |held| held.bytes()));
        let on_host = self.memory == Memory::Host;
        let inputs = self.entry.inputs.iter().zip(&self.entry.input_states);
        for (port, _) in inputs.filter(|(_, state)| !on_host && !places.is_held(**state)) {
            total = total.saturating_add(shape.bytes[port.buffer]);
        }
        for (at, port) in self.entry.outputs.iter().enumerate() {
            let bytes = shape.bytes[port.buffer];
            if places.is_held(self.entry.output_states[at]) || self.entry.buffer_stages[port.buffer] > stage {
                continue;
            }
            // The caller's memory does not count.
            if !on_host || places.direct(at, port.dtype, bytes).is_none() {
                total = total.saturating_add(bytes);
            }
        }
        state.taken = total;
        max.checked_sub(total)
            .ok_or_else(|| Error::user("E0304", format!("the call needs {total} bytes, the limit is {max}")))
    }

    fn launch(&self, state: &mut State, shape: &Shape, (i, launch): (usize, &Launch), order: Order) -> Result<()> {
        // The grid is empty if a tensor is empty.
        if shape.grids[i] <= 0 {
            return Ok(());
        }
        let work = Work {
            kernel: launch.kernel,
            step: i,
            buffers: &state.pointers[self.entry.pointers(i)],
            params: &shape.params[self.entry.params(i)],
            items: shape.grids[i],
            blocks: shape.blocks[i],
            scratch_bytes: shape.scratch_bytes,
            order,
        };
        // SAFETY: number and kind of buffers and parameters match the kernel (`program::verify`), each buffer has the
        // size that the plan computes for it (`Shape`), and its memory is there (`prepare`). With a cache, a state's
        // input and output are the same memory, to which no reference exists during the call. No launch reads the input
        // and writes the output, except launches that carry old positions, which are skipped, and launches that begin
        // behind the kept positions (`states::check_step`). The compiler guarantees that the latter touch no kept
        // positions, that other writes to a state only touch new positions, and that kernels stay within their buffers.
        unsafe { state.queue.launch(&work, self.stop) }
    }

    fn show(
        &self,
        state: &mut State,
        shape: &Shape,
        (step, launch): (usize, &Launch),
        ran: (Instant, Instant),
    ) -> Result<()> {
        let Some((watch, look)) = &self.watch else { return Ok(()) };
        self.settle(state)?;
        let kernel = &self.program.kernels[launch.kernel];
        let mut results = vec![];
        let written = launch.buffers.iter().zip(&kernel.writes).filter(|(_, writes)| **writes);
        for (&buffer, _) in written.filter(|_| *look == Look::Results) {
            let mut bytes = vec![0; shape.bytes[buffer]];
            // SAFETY: the buffer is in memory of at least its size (`prepare`).
            unsafe { state.queue.download(state.bases[buffer], &mut bytes) }?;
            results.push(bytes);
        }
        let (origins, work) = (&self.entry.steps[step].origins, shape.work(kernel, self.entry, step, launch));
        let launched = Launched { step, kernel: &kernel.symbol, class: &kernel.class, origins, results, ran, work };
        (watch.borrow_mut())(launched)
    }

    /// Waits for the collectives that were enqueued on a GPU.
    fn settle(&self, state: &mut State) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let Some(rank) = self.session.rank() {
            return state.meeting.settle(&mut *state.queue, &**rank, self.stop);
        }
        let _ = state;
        Ok(())
    }

    fn bind(&self, shape: &mut Shape, symbol: &str, value: i64) -> Result<()> {
        self.give(shape, symbol, value)?;
        shape.advance(self.program, self.entry)
    }

    /// Sets the value of a symbol. Errors: E0303 if it is out of range.
    fn give(&self, shape: &mut Shape, symbol: &str, value: i64) -> Result<()> {
        let at = self.program.symbol_index[symbol];
        let declared = &self.program.symbols[at];
        if !declared.admits(value) {
            let message = format!("`{symbol}` = {value}, computed from the data, is outside {}", declared.range());
            return Err(Error::user("E0303", message));
        }
        shape.values[at] = Some(value);
        Ok(())
    }

    /// Whether the call passes an output to the caller.
    fn is_wanted(&self, at: usize, is_given: bool, with_cache: bool) -> bool {
        let wanted = self.stop.options().outputs.as_ref();
        let is_wanted = |name: &String| wanted.is_none_or(|wanted| wanted.contains(name));
        let is_held = with_cache && self.entry.output_states[at].is_some();
        !is_held && (is_given || is_wanted(&self.entry.outputs[at].name))
    }

    /// Returns the dimensions of this rank's part of an output; `None` if it has all of it.
    fn part_dims(&self, shape: &Shape, at: usize, in_parts: &[bool]) -> Result<Option<Vec<usize>>> {
        in_parts[at].then(|| shape.dims(self.program, &self.entry.own_outputs[at])).transpose()
    }

    /// Waits until the call is done, and copies its outputs from a device with its own memory. Returns the step in
    /// which an index was out of range.
    fn finish(&self, state: &mut State, shape: &Shape, places: &mut Places) -> Result<Option<usize>> {
        if self.memory == Memory::Host {
            return state.queue.finish();
        }
        let Places { given, in_parts, own, held, .. } = places;
        let mut results = vec![];
        for (at, (given, own)) in given.iter_mut().zip(own).enumerate() {
            let port = &self.entry.outputs[at];
            if port.dtype.is_opaque() || !self.is_wanted(at, given.is_some(), held.is_some()) {
                continue;
            }
            let part = self.part_dims(shape, at, in_parts)?;
            let bytes = bytes_of(port.dtype, part.as_ref().unwrap_or(&shape.output_dims[at])).unwrap_or(0);
            let to = match given {
                Some(buffer) if part.is_none() => &mut buffer.bytes_mut()[..bytes],
                _ => &mut own.insert(self.session.outputs.take(bytes)?).as_mut_slice()[..bytes],
            };
            results.push((state.bases[port.buffer], to));
        }
        // SAFETY: an output's memory has the size of its buffer, and the dimensions need at most that many bytes
        // (`Shape::output`). Each has its own destination.
        unsafe { state.queue.finish_and_read(&mut results) }
    }

    fn outputs(&self, shape: &Shape, places: Places) -> Result<Outputs> {
        let mut out = Outputs::default();
        let Places { given, in_parts, mut own, held, mut made, .. } = places;
        for (at, (port, dims)) in self.entry.outputs.iter().zip(&shape.output_dims).enumerate() {
            if !self.is_wanted(at, given[at].is_some(), held.is_some()) {
                continue;
            }
            if port.dtype.is_opaque() {
                let made = made[port.buffer].take().filter(|_| given[at].is_none());
                let made = made.ok_or_else(|| {
                    let message =
                        format!("the output `{}` is of type {}, which takes no buffer", port.name, port.dtype);
                    Error::user("E0301", message)
                })?;
                out.push(&port.name, made.into_tensor().with_dims(dims.clone())?);
                continue;
            }
            // The buffer size may be an upper bound for an output whose size depends on the data.
            let part = self.part_dims(shape, at, &in_parts)?;
            let bytes = bytes_of(port.dtype, part.as_ref().unwrap_or(dims)).unwrap_or(0);
            let own = own[at].take();
            if let (Some(part_dims), Some(part)) = (part, &own) {
                let part = Tensor::new(port.dtype, part_dims, part.as_ref()[..bytes].to_vec().into())?;
                let whole = self.gather_output(part, self.entry.units(self.entry.output_states[at]), at)?;
                match &mut given[at] {
                    Some(buffer) => {
                        buffer.bytes_mut()[..whole.bytes().len()].copy_from_slice(whole.bytes());
                        buffer.set_dims(dims);
                    }
                    None => out.push(&port.name, whole),
                }
                continue;
            }
            match (&mut given[at], own) {
                (Some(buffer), own) => {
                    if let Some(own) = own {
                        buffer.bytes_mut()[..bytes].copy_from_slice(&own.as_ref()[..bytes]);
                    }
                    buffer.set_dims(dims);
                }
                (None, Some(own)) => {
                    let data = own.into_bytes().slice(..bytes);
                    out.push(&port.name, Tensor::new(port.dtype, dims.clone(), data)?);
                }
                (None, None) => return Err(Error::defect(format!("the output `{}` has no memory", port.name))),
            }
        }
        Ok(out)
    }
}
