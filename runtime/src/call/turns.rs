//! a Loop whose iterations all have the same sizes  =>  its body planned once, with addresses that change per iteration
//!
//! Other loops call their body as an entry point in every iteration (`host.rs`). Here, symbols are bound, memory is
//! assigned and launches get their addresses once, before the first iteration; then only the addresses of carried and
//! stacked values change. A carried value alternates between two buffers: each iteration reads one and writes the
//! other. The stacked values of an output are written back to back into one buffer; if a carried value is also stacked,
//! each iteration reads it where the one before has stacked it. Captured values are read in place if they are stored as
//! CPU kernels read them, and are copied once otherwise.

use super::Call;
use super::pace::Pace;
use super::places::Places;
use crate::bind::{Given, bind_capacities, bind_symbols};
use crate::device::{Address, Block, Memory, Order, host_address};
use crate::memory::{AlignedBuf, Recycled};
use crate::program::{Action, Entry, Host, Operand, Place, Port};
use crate::session::State;
use crate::shape::{Shape, bytes_of, step_name};
use sardonyx_base::host::{Budget, Limits};
use sardonyx_base::plan::Copy;
use sardonyx_base::tensor::element_count;
use sardonyx_base::view::{TensorView, is_aligned};
use sardonyx_base::{DType, Error, Result, Tensor};
use std::sync::Arc;

/// Number of the body's ports before the carried values: the inputs are the iteration number and the condition; the
/// output is the next condition.
const INPUTS_BEFORE: usize = 2;
const OUTPUTS_BEFORE: usize = 1;

/// Maximum number of loops and sizes whose pace a session remembers.
const PACES_MAX: usize = 64;

/// A stack that takes at most this many bytes for all iterations is allocated in full before the loop begins.
const STACKED_AT_ONCE: usize = 16 << 20;
/// Initial size in bytes of a larger stack, rounded down to whole parts, but at least one part. The stack grows on
/// demand, because the condition may end the loop early.
const FIRST_STACKED: usize = 64 << 10;

/// A value from before the loop: a carried value of the first iteration, or a captured value of every iteration.
struct Initial {
    dtype: DType,
    dims: Vec<usize>,
    /// Address at which kernels read the value.
    start: Address,
    bytes: usize,
    /// A copy of the bytes, if they cannot be read in place.
    _copy: Option<AlignedBuf>,
}

impl Initial {
    fn view(&self) -> Result<TensorView<'_>> {
        let start = std::ptr::with_exposed_provenance(self.start as usize);
        // SAFETY: the value had this many bytes when the loop began, and no iteration writes to them: a body writes
        // only to its own arena and to its outputs, which are in memory of `Turns`.
        TensorView::new(self.dtype, &self.dims, unsafe { std::slice::from_raw_parts(start, self.bytes) })
    }
}

/// Memory of a carried value.
enum Carried {
    /// The buffer that even iterations write, and the one that odd iterations write.
    Pair([Recycled; 2]),
    /// The parts of the stack with this index.
    Stacked(usize),
}

/// The parts that the iterations stack for one output, back to back.
struct Stack {
    memory: Recycled,
    /// Number of parts that the memory can hold.
    room: usize,
    part_bytes: usize,
}

impl Stack {
    fn part(&self, turn: usize) -> Address {
        host_address(self.memory.as_ptr().wrapping_add(turn * self.part_bytes))
    }
}

/// The body of a loop, ready to be iterated.
struct Turns<'a> {
    /// Index of the body among the entry points.
    at: usize,
    /// The call of the body, which all iterations share.
    call: Call<'a>,
    shape: Arc<Shape>,
    /// Indices of the steps that an iteration executes: all but copies that addresses make unnecessary.
    steps: Vec<usize>,
    n_carried: usize,
    initial: &'a [Initial],
    /// For each buffer of the body: indices of the launch arguments that hold its address.
    pointers: Vec<Vec<usize>>,
    carried: Vec<Carried>,
    stacks: Vec<Stack>,
    /// By byte offset: the iteration number at `INDEX`, the condition of this iteration at `GOES_ON`, and the condition
    /// of the next iteration at `MORE`.
    scalars: AlignedBuf,
}

const INDEX: usize = 0;
const GOES_ON: usize = 8;
const MORE: usize = 9;

impl Call<'_> {
    /// Returns the results of a loop; `None` if the loop must call its body as an entry point (`host.rs`), or has no
    /// iteration.
    pub(super) fn iterate(
        &self,
        state: &mut State,
        shape: &Shape,
        (host, n_carried): (&Host, usize),
        places: &Places,
        budget: &Budget,
    ) -> Result<Option<Vec<Tensor>>> {
        let (&[at], [trips, start, rest @ ..]) = (&host.call.bodies[..], &host.args[..]) else { return Ok(None) };
        let entry = &self.program.entries[at];
        if self.memory != Memory::Host || !is_plain(entry) || rest.len() + INPUTS_BEFORE != entry.inputs.len() {
            return Ok(None);
        }
        let mut scalar = |arg| self.operand(state, shape, arg, places, budget);
        let (trips, start) = (scalar(trips)?, scalar(start)?);
        let starts = start.dtype() == DType::Bool && start.len() == 1 && start.get_f64(0) == Some(1.0);
        let Some(trips) = (trips.len() == 1 && starts).then(|| trips.get_i64(0)).flatten().filter(|n| *n > 0) else {
            return Ok(None);
        };
        let initial =
            rest.iter().map(|arg| self.initial(state, shape, arg, places, budget)).collect::<Result<Vec<_>>>()?;
        let outside = state.taken.saturating_add(budget.bytes());
        state.nested(&self.session.model, |state| {
            let Some(mut turns) = self.body_of_turns(state, at, (n_carried, &initial), (trips, outside))? else {
                return Ok(None);
            };
            state.queue.begin(self.program.entries[at].steps.len())?;
            let ran = turns.run(state, trips);
            state.queue.finish()?;
            turns.results(ran?).map(Some)
        })
    }

    /// Returns an operand of the loop in the layout that CPU kernels read.
    fn initial(
        &self,
        state: &mut State,
        shape: &Shape,
        arg: &Operand,
        places: &Places,
        budget: &Budget,
    ) -> Result<Initial> {
        let (dtype, start) = (arg.dtype, state.bases[arg.buffer]);
        // Packed types and bools may need a conversion, so they are copied; so are values at unaligned addresses.
        if dtype.bits() >= 8
            && dtype != DType::Bool
            && is_aligned(std::ptr::with_exposed_provenance(start as usize), dtype)
        {
            let dims = shape.dims(self.program, &arg.dims)?;
            let bytes = bytes_of(dtype, &dims).ok_or_else(|| Error::user("E0202", "an operand is too large"))?;
            return Ok(Initial { dtype, dims, start, bytes, _copy: None });
        }
        let tensor = self.operand(state, shape, arg, places, budget)?;
        budget.take(tensor.bytes().len())?;
        let copy = AlignedBuf::from_slice(tensor.bytes())?;
        let (dims, bytes, start) = (tensor.dims().to_vec(), tensor.bytes().len(), host_address(copy.as_ptr()));
        Ok(Initial { dtype, dims, start, bytes, _copy: Some(copy) })
    }

    /// Returns the body, ready for its first iteration; `None` if iterations may have different sizes.
    fn body_of_turns<'s>(
        &'s self,
        state: &mut State,
        at: usize,
        (n_carried, initial): (usize, &'s [Initial]),
        (trips, outside): (i64, usize),
    ) -> Result<Option<Turns<'s>>> {
        let Call { session, program, stop, memory, .. } = *self;
        let entry = &program.entries[at];
        let mut scalars = AlignedBuf::new(MORE + 1)?;
        (scalars.as_mut_slice()[GOES_ON], scalars.as_mut_slice()[MORE]) = (1, 1);
        let mut inputs = vec![];
        inputs.push(Given::Tensor(TensorView::new(DType::I64, &[], &[0; 8])?.into()));
        inputs.push(Given::Tensor(TensorView::new(DType::Bool, &[], &[1])?.into()));
        for value in initial {
            inputs.push(Given::Tensor(value.view()?.into()));
        }
        let mut values = bind_symbols(program, entry, &inputs)?;
        bind_capacities(program, entry, None, &mut values)?;
        let shape = state.shapes.shape_for(program, at, values)?;
        let Some((carried, stacked)) = shape.output_dims[OUTPUTS_BEFORE..].split_at_checked(n_carried) else {
            return Ok(None);
        };
        if !carried.iter().zip(initial).all(|(dims, value)| *dims == value.dims) || n_carried > initial.len() {
            return Ok(None);
        }
        let bytes = |at: usize| shape.bytes[entry.outputs[OUTPUTS_BEFORE + at].buffer];
        let copies = Copies::find(entry, n_carried, &bytes);
        let own = (0..n_carried).filter(|at| copies.stack_of[*at].is_none());
        let carried_bytes: usize = own.map(|at| bytes(at).saturating_mul(2)).fold(0, usize::saturating_add);
        let scratch_bytes = state.queue.scratch_bytes(shape.scratch_bytes);
        let taken = [shape.arena_bytes, scratch_bytes, carried_bytes].into_iter().fold(outside, usize::saturating_add);
        let trips = usize::try_from(trips).unwrap_or(usize::MAX);
        let (mut rooms, mut stacked_bytes) = (vec![], 0usize);
        for (port, dims) in entry.outputs[OUTPUTS_BEFORE + n_carried..].iter().zip(stacked) {
            let part_bytes = bytes_of(port.dtype, dims).unwrap_or(usize::MAX);
            // If the buffer size is an upper bound for the part, parts cannot be written back to back.
            if part_bytes != shape.bytes[port.buffer] {
                return Ok(None);
            }
            let all = trips.saturating_mul(part_bytes) <= STACKED_AT_ONCE;
            let room = if all { trips } else { (FIRST_STACKED / part_bytes).clamp(1, trips) };
            stacked_bytes = stacked_bytes.saturating_add(room.saturating_mul(part_bytes));
            rooms.push((room, part_bytes));
        }
        self.limits(taken).allow(stacked_bytes)?;
        let memory_of = |at: usize| match copies.stack_of[at] {
            Some(stack) => Ok(Carried::Stacked(stack)),
            None => Ok(Carried::Pair([session.outputs.take(bytes(at))?, session.outputs.take(bytes(at))?])),
        };
        let carried = (0..n_carried).map(memory_of).collect::<Result<Vec<_>>>()?;
        let mut stacks = vec![];
        for (room, part_bytes) in rooms {
            stacks.push(Stack { memory: session.outputs.take(room.saturating_mul(part_bytes))?, room, part_bytes });
        }
        self.grow_arena(state, shape.arena_bytes, 0, false)?;
        state.queue.reserve(shape.scratch_bytes)?;
        let mut pointers = vec![vec![]; entry.buffers.len()];
        for (i, step) in entry.steps.iter().enumerate() {
            let Action::Launch(launch) = &step.action else { continue };
            entry.pointers(i).zip(&launch.buffers).for_each(|(at, &buffer)| pointers[buffer].push(at));
        }
        let call = Call { session, program, entry, inputs: &[], stop, memory, watch: None, outside: taken };
        let steps = copies.other_steps;
        let mut turns = Turns { at, call, shape, steps, n_carried, initial, pointers, carried, stacks, scalars };
        turns.place(state)?;
        Ok(Some(turns))
    }
}

/// Copies of a body that addresses make unnecessary.
struct Copies {
    /// For each carried value: the stack that it is copied to, if any.
    stack_of: Vec<Option<usize>>,
    /// All other steps.
    other_steps: Vec<usize>,
}

impl Copies {
    /// Finds the copies of carried values to stacks, and of the condition of this iteration, which is true, to that of
    /// the next one, among the copies at the end of the body. `bytes` returns the size of a carried or stacked output.
    fn find(entry: &Entry, n_carried: usize, bytes: &impl Fn(usize) -> usize) -> Copies {
        let output = |buffer: usize| entry.outputs.iter().position(|port| port.buffer == buffer);
        let mut copies = Copies { stack_of: vec![None; n_carried], other_steps: vec![] };
        let is_copy = |action: &Action| matches!(action, Action::Copy(_));
        let last = entry.steps.iter().rposition(|step| !is_copy(&step.action)).map_or(0, |at| at + 1);
        copies.other_steps.extend(0..last);
        for (i, step) in entry.steps.iter().enumerate().skip(last) {
            let Action::Copy(Copy { from, to }) = &step.action else { continue };
            let carried = output(*from).and_then(|at| at.checked_sub(OUTPUTS_BEFORE)).filter(|at| *at < n_carried);
            let stack = output(*to).and_then(|at| at.checked_sub(OUTPUTS_BEFORE + n_carried));
            match (carried, stack) {
                (Some(carried), Some(stack))
                    if copies.stack_of[carried].is_none()
                        && !copies.stack_of.contains(&Some(stack))
                        && bytes(carried) == bytes(n_carried + stack) =>
                {
                    copies.stack_of[carried] = Some(stack);
                }
                _ if *from == entry.inputs[1].buffer && output(*to) == Some(0) => {}
                _ => copies.other_steps.push(i),
            }
        }
        copies
    }
}

/// Whether all steps of a body are copies and launches that carry no state, and its inputs and outputs are neither
/// packed nor opaque.
fn is_plain(entry: &Entry) -> bool {
    let plain = |port: &Port| port.dtype.bits() >= 8 && !port.dtype.is_opaque();
    entry.steps.iter().all(|step| match &step.action {
        Action::Launch(launch) => launch.carries.is_none(),
        Action::Copy(_) => true,
        Action::Bind(_) | Action::Host(_) => false,
    }) && entry.inputs.iter().chain(&entry.outputs).all(plain)
}

impl Turns<'_> {
    /// Sets the addresses of all buffers but the carried and stacked outputs, whose addresses each iteration sets.
    fn place(&mut self, state: &mut State) -> Result<()> {
        let entry = self.call.entry;
        state.bases.resize(entry.buffers.len(), 0);
        state.pointers.resize(entry.pointers_at[entry.steps.len()], 0);
        for (i, buffer) in entry.buffers.iter().enumerate() {
            let address = match &buffer.place {
                Place::Constant(at) => self.call.session.model.constants()[*at],
                Place::Arena(_) => state.arena.as_ref().map_or(0, Block::address) + self.shape.offsets[i] as u64,
                Place::Input(0) => self.scalar(INDEX),
                Place::Input(1) => self.scalar(GOES_ON),
                Place::Input(at) => {
                    let value = &self.initial[at - INPUTS_BEFORE];
                    if self.shape.bytes[i] > value.bytes {
                        let (wanted, name) = (self.shape.bytes[i], &entry.inputs[*at].name);
                        let message = format!("the plan wants {wanted} bytes of `{name}`, which has {}", value.bytes);
                        return Err(Error::user("E0401", message));
                    }
                    value.start
                }
                Place::Output(0) => self.scalar(MORE),
                Place::Output(_) | Place::Value => 0,
            };
            self.point(state, i, address);
        }
        Ok(())
    }

    fn scalar(&self, at: usize) -> Address {
        host_address(self.scalars.as_ptr().wrapping_add(at))
    }

    fn point(&self, state: &mut State, buffer: usize, address: Address) {
        state.bases[buffer] = address;
        self.pointers[buffer].iter().for_each(|&at| state.pointers[at] = address);
    }

    /// Runs the iterations. Returns how many were executed.
    fn run(&mut self, state: &mut State, trips: i64) -> Result<i64> {
        let key = (self.at, Arc::as_ptr(&self.shape).addr());
        if !state.paces.contains_key(&key) && state.paces.len() >= PACES_MAX {
            state.paces.clear();
        }
        let mut pace = state.paces.remove(&key).unwrap_or_default();
        let ran = self.run_at(state, trips, &mut pace);
        state.paces.insert(key, pace);
        ran
    }

    /// As `run`; `pace` decides which threads compute an iteration.
    fn run_at(&mut self, state: &mut State, trips: i64, pace: &mut Pace) -> Result<i64> {
        let entry = self.call.entry;
        for turn in 0..trips {
            self.call.stop.check()?;
            let begun = pace.begins();
            self.move_pointers(state, turn as usize, trips)?;
            let order = match turn % 2 {
                _ if pace.is_alone() => Order::Alone,
                0 => Order::Forth,
                _ => Order::Back,
            };
            for (i, step) in self.steps.iter().map(|&i| (i, &entry.steps[i])) {
                match &step.action {
                    Action::Launch(launch) => {
                        self.call.launch(state, &self.shape, (i, launch), order).map_err(|e| match e.code {
                            "E0305" | "E0306" => e,
                            _ => e.node(step_name(step, i)),
                        })?
                    }
                    Action::Copy(Copy { from, to }) => {
                        let (from, to, n) = (state.bases[*from], state.bases[*to], self.shape.bytes[*from]);
                        // SAFETY: both buffers have this size (`Shape::step`, `place`, `move_pointers`); no input is an
                        // output of the same iteration.
                        unsafe { state.queue.copy(from, to, n) }?;
                    }
                    Action::Bind(_) | Action::Host(_) => return Err(Error::defect("a step that is not plain")),
                }
            }
            if self.scalars.as_ref()[MORE] == 0 {
                return Ok(turn + 1);
            }
            pace.ended(begun);
        }
        Ok(trips)
    }

    /// Sets the iteration number, and the addresses of the carried and stacked values of iteration `turn`.
    fn move_pointers(&mut self, state: &mut State, turn: usize, trips: i64) -> Result<()> {
        self.scalars.as_mut_slice()[INDEX..INDEX + 8].copy_from_slice(&(turn as i64).to_le_bytes());
        let entry = self.call.entry;
        for i in 0..self.stacks.len() {
            if turn == self.stacks[i].room {
                self.grow(i, trips)?;
            }
            let buffer = entry.outputs[OUTPUTS_BEFORE + self.n_carried + i].buffer;
            self.point(state, buffer, self.stacks[i].part(turn));
        }
        for (i, carried) in self.carried.iter().enumerate() {
            let at = |turn: usize| match carried {
                Carried::Pair(pair) => host_address(pair[turn % 2].as_ptr()),
                Carried::Stacked(stack) => self.stacks[*stack].part(turn),
            };
            self.point(state, entry.outputs[OUTPUTS_BEFORE + i].buffer, at(turn));
            if turn > 0 {
                self.point(state, entry.inputs[INPUTS_BEFORE + i].buffer, at(turn - 1));
            }
        }
        Ok(())
    }

    /// Doubles the capacity of a stack, but to no more than `trips` parts.
    fn grow(&mut self, i: usize, trips: i64) -> Result<()> {
        let Stack { room, part_bytes, .. } = self.stacks[i];
        let new_room = room.saturating_mul(2).min(usize::try_from(trips).unwrap_or(usize::MAX));
        self.check_memory((new_room - room).saturating_mul(part_bytes))?;
        let mut larger = self.call.session.outputs.take(new_room.saturating_mul(part_bytes))?;
        let used = room * part_bytes;
        larger.as_mut_slice()[..used].copy_from_slice(&self.stacks[i].memory.as_ref()[..used]);
        self.stacks[i] = Stack { memory: larger, room: new_room, part_bytes };
        Ok(())
    }

    /// Refuses to enlarge the stacks by `more` bytes if that exceeds the limit. Errors: E0304.
    fn check_memory(&self, more: usize) -> Result<()> {
        let stacked = self.stacks.iter().map(|stack| stack.room.saturating_mul(stack.part_bytes));
        self.call.limits(self.call.outside).allow(stacked.fold(more, usize::saturating_add))
    }

    /// Returns the carried values of the last iteration, and the stacked values of all iterations.
    fn results(self, n_turns: i64) -> Result<Vec<Tensor>> {
        let n_turns = usize::try_from(n_turns).unwrap_or(0);
        let mut results = vec![];
        let mut ports = self.call.entry.outputs[OUTPUTS_BEFORE..].iter().zip(&self.shape.output_dims[OUTPUTS_BEFORE..]);
        for (carried, (port, dims)) in self.carried.into_iter().zip(&mut ports) {
            let last = match carried {
                Carried::Pair([even, odd]) => {
                    let last = if n_turns % 2 == 1 { even } else { odd };
                    last.into_bytes().slice(..bytes_of(port.dtype, dims).unwrap_or(usize::MAX))
                }
                Carried::Stacked(stack) => {
                    let Stack { memory, part_bytes, .. } = &self.stacks[stack];
                    let bytes = bytes_of(port.dtype, dims).unwrap_or(usize::MAX).min(*part_bytes);
                    let last = &memory.as_ref()[n_turns.saturating_sub(1) * part_bytes..][..bytes];
                    let mut own = self.call.session.outputs.take(bytes)?;
                    own.as_mut_slice()[..bytes].copy_from_slice(last);
                    own.into_bytes().slice(..bytes)
                }
            };
            results.push(Tensor::new(port.dtype, dims.clone(), last)?);
        }
        for (stack, (port, dims)) in self.stacks.into_iter().zip(ports) {
            let dims: Vec<usize> = [n_turns].into_iter().chain(dims.iter().copied()).collect();
            element_count(&dims).ok_or_else(|| Error::user("E0202", "what a loop stacks is too large"))?;
            let bytes = stack.memory.into_bytes().slice(..n_turns * stack.part_bytes);
            results.push(Tensor::new(port.dtype, dims, bytes)?);
        }
        Ok(results)
    }
}
