//! one call  =>  memory for its buffers, its launches, its outputs

mod exchange;
mod host;
mod outputs;
pub(crate) mod pace;
mod places;
mod turns;

use self::places::Places;
use crate::bind::{Destination, Given};
use crate::cache::Held;
use crate::device::{Address, Block, Memory, Order, Work};
use crate::outputs::Outputs;
use crate::program::{Action, Entry, KernelTarget, Launch, Place, Program};
use crate::session::{Session, State};
use crate::shape::{Shape, step_name};
use crate::stop::Stop;
use sardonyx_base::host::HostOp;
use sardonyx_base::plan::{Bind, Copy};
use sardonyx_base::{Error, Result};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

pub(crate) struct Call<'a> {
    pub session: &'a Session,
    pub program: &'a Program,
    pub entry: &'a Entry,
    /// The inputs, in the order of the entry point's input ports.
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

/// A launch that has ended.
pub struct Launched<'a> {
    /// Index among the steps of the entry point.
    pub step: usize,
    /// Symbol of the kernel in the plan, such as `k0`.
    pub kernel: &'a str,
    /// Class of the kernel, such as `contract`.
    pub class: &'a str,
    /// The ONNX nodes that the launch computes.
    pub origins: &'a [String],
    /// The bytes of each buffer that the launch writes, in the kernel's order; empty if only times are requested.
    pub results: Vec<Vec<u8>>,
    /// Start and end of the launch. On a GPU, if only times are requested, the GPU records them relative to the start
    /// of the first launch, and this start is set to the beginning of the call.
    pub ran: (Instant, Instant),
    /// Number of floating-point operations, and number of bytes read or written, each byte counted once; both from the
    /// plan, `None` if it does not state them.
    pub work: Option<(i64, i64)>,
    /// Values of the kernel's parameters.
    pub params: &'a [i64],
    /// How the GPU launches the kernel; `None` on a CPU.
    pub target: Option<&'a KernelTarget>,
}

/// Callback that receives every launch after it has ended; an error from it ends the call.
pub type Watch<'a> = &'a mut dyn FnMut(Launched) -> Result<()>;

impl Call<'_> {
    /// Runs the call. Returns the requested outputs for which the caller gave no memory.
    pub fn run(
        &self,
        state: &mut State,
        mut shape: Arc<Shape>,
        given: &mut [Option<Destination<'_, '_>>],
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

    /// Assigns memory to every buffer whose size is known by this stage, and passes the addresses to the launches.
    fn prepare(&self, state: &mut State, shape: &Shape, stage: usize, places: &mut Places) -> Result<()> {
        let spare = self.check_memory(state, shape, stage, places)?;
        if let Some(held) = &mut places.held {
            held.allocate()?;
        }
        // Up to a quarter more is allocated, so that a sequence that grows with each call seldom needs a new arena.
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

    /// Grows the arena to at least `bytes`. An arena that already has at least half of `bytes` will probably grow
    /// again, and gets `spare` extra bytes if they can be allocated. With `keep`, the content is preserved.
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

    fn launch(&self, state: &mut State, shape: &Shape, (i, launch): (usize, &Launch), order: Order) -> Result<()> {
        // Without work items, as for an empty tensor, there is nothing to launch.
        if shape.grids[i] <= 0 {
            return Ok(());
        }
        let work = Work {
            kernel: launch.kernel,
            step: i,
            buffers: &state.pointers[self.entry.pointers(i)],
            params: &shape.params[self.entry.params(i)],
            items: shape.grids[i],
            is_small: shape.is_small[i],
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
        let (params, target) = (&shape.params[self.entry.params(step)], self.program.target(launch.kernel));
        let (kernel, class) = (kernel.symbol.as_str(), kernel.class.as_str());
        let launched = Launched { step, kernel, class, origins, results, ran, work, params, target };
        (watch.borrow_mut())(launched)
    }

    /// Waits for the queue if a collective was enqueued on a GPU.
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
}
