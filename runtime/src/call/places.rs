//! inputs and outputs of a call  =>  memory of the caller, of the session or of the device for each

use super::{Call, host};
use crate::bind::{Destination, Given};
use crate::cache::Held;
use crate::device::{Address, Memory, host_address};
use crate::device_tensor::{DeviceTensor, Input};
use crate::memory::{AlignedBuf, Recycled};
use crate::program::{Place, Port};
use crate::session::State;
use crate::shape::Shape;
use sardonyx_base::view::is_aligned;
use sardonyx_base::{DType, Error, Result, packed};

/// Bytes of an input, aligned to its element type, with bools as 0 or 1.
pub(super) enum InputBytes<'a> {
    InPlace(&'a [u8]),
    Copied(AlignedBuf),
    OnDevice(&'a DeviceTensor),
    /// The input is a state in the cache.
    Held,
}

impl InputBytes<'_> {
    pub fn bytes(&self) -> &[u8] {
        match self {
            InputBytes::InPlace(bytes) => bytes,
            InputBytes::Copied(buf) => buf.as_ref(),
            InputBytes::OnDevice(_) | InputBytes::Held => &[],
        }
    }
}

/// Locations of the inputs and outputs of a call, by port.
pub(super) struct Places<'a, 'b, 'c, 'd, 'e, 'f> {
    pub inputs: Vec<InputBytes<'d>>,
    /// The cache, which holds the inputs and outputs of states.
    pub held: Option<&'a mut Held<'e, 'f>>,
    /// The caller's memory for outputs.
    pub given: &'a mut [Option<Destination<'b, 'c>>],
    /// By output: whether each rank has only a part of it.
    pub in_parts: Vec<bool>,
    /// By output: memory of the session, used if the caller gave no buffer, or one that kernels cannot write to.
    pub own: Vec<Option<Recycled>>,
    /// By buffer: the results of host steps.
    pub made: Vec<Option<host::Made>>,
    /// The launches before and after which the queue has recorded the time.
    pub marked: Vec<usize>,
}

impl Places<'_, '_, '_, '_, '_, '_> {
    pub fn is_held(&self, state: Option<usize>) -> bool {
        self.held.is_some() && state.is_some()
    }

    /// Returns the caller's memory for an output if kernels of the host can write `bytes` bytes into it.
    pub fn direct(&mut self, at: usize, dtype: DType, bytes: usize) -> Option<*mut u8> {
        if self.in_parts[at] {
            return None;
        }
        let Some(Destination::Host(buffer)) = &mut self.given[at] else { return None };
        let memory = buffer.bytes_mut();
        let fit = memory.len() >= bytes && is_aligned(memory.as_ptr(), dtype);
        fit.then_some(memory.as_mut_ptr())
    }

    /// Returns the caller's memory on the device for an output if kernels can write `bytes` bytes into it.
    pub fn direct_on_device(&self, at: usize, bytes: usize) -> Option<Address> {
        match &self.given[at] {
            Some(Destination::Device(tensor)) => tensor.is_usable(bytes).then(|| tensor.address()),
            Some(Destination::Host(_)) | None => None,
        }
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
    /// Returns the bytes of every input; copies them only if they cannot be used in place.
    pub(super) fn input_bytes(&self, shape: &Shape) -> Result<Vec<InputBytes<'_>>> {
        let mut all = Vec::with_capacity(self.inputs.len());
        for ((port, given), state) in self.entry.inputs.iter().zip(self.inputs).zip(&self.entry.input_states) {
            let tensor = match given {
                Given::Tensor(Input::Host(tensor)) => tensor,
                Given::Tensor(Input::Device(tensor)) => {
                    self.check_bytes(shape, port, tensor.bytes())?;
                    all.push(InputBytes::OnDevice(tensor));
                    continue;
                }
                Given::Held { .. } => {
                    all.push(InputBytes::Held);
                    continue;
                }
            };
            let units = self.entry.units(*state);
            let part = (!units.is_empty()).then(|| self.own_part(tensor, units)).transpose()?;
            let bytes = part.as_ref().map_or(tensor.bytes(), |part| part.bytes());
            self.check_bytes(shape, port, bytes.len())?;
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

    fn check_bytes(&self, shape: &Shape, port: &Port, given: usize) -> Result<()> {
        let wanted = shape.bytes[port.buffer];
        if wanted > given {
            let message = format!("the plan wants {wanted} bytes of the input `{}`, which has {given}", port.name);
            return Err(Error::user("E0401", message));
        }
        Ok(())
    }

    pub(super) fn input_place(&self, state: &mut State, shape: &Shape, at: usize, places: &Places) -> Result<Address> {
        let port = &self.entry.inputs[at];
        match (&places.inputs[at], &places.held, self.entry.input_states[at]) {
            (InputBytes::Held, Some(held), Some(state)) => held.place(self.entry, shape, state),
            (InputBytes::Held, ..) => Err(Error::defect(format!("the input `{}` has no memory", port.name))),
            // Kernels and copies never write to inputs (`program::verify`).
            (given, ..) if self.memory == Memory::Host => Ok(host_address(given.bytes().as_ptr())),
            (InputBytes::OnDevice(tensor), ..) if tensor.is_usable(shape.bytes[port.buffer]) => Ok(tensor.address()),
            (InputBytes::InPlace(_) | InputBytes::Copied(_) | InputBytes::OnDevice(_), ..) => {
                self.block(state, shape, port.buffer)
            }
        }
    }

    pub(super) fn output_place(
        &self,
        state: &mut State,
        shape: &Shape,
        at: usize,
        places: &mut Places,
    ) -> Result<Address> {
        let port = &self.entry.outputs[at];
        if let (Some(held), Some(state)) = (&places.held, self.entry.output_states[at]) {
            return held.place(self.entry, shape, state);
        }
        let bytes = shape.bytes[port.buffer];
        if self.memory != Memory::Host {
            let direct = places.direct_on_device(at, bytes);
            return direct.map_or_else(|| self.block(state, shape, port.buffer), Ok);
        }
        let start = match (places.direct(at, port.dtype, bytes), &places.own[at]) {
            (Some(memory), _) => memory,
            (None, Some(output)) => output.as_ptr(),
            (None, None) => places.own[at].insert(self.session.outputs.take(bytes)?).as_ptr(),
        };
        Ok(host_address(start))
    }

    /// Copies the inputs to a device that cannot read the caller's memory.
    pub(super) fn upload(&self, state: &mut State, shape: &Shape, places: &Places) -> Result<()> {
        if self.memory == Memory::Host {
            return Ok(());
        }
        for (port, given) in self.entry.inputs.iter().zip(&places.inputs) {
            let bytes = match given {
                InputBytes::Held => continue,
                InputBytes::OnDevice(tensor) => {
                    let (to, bytes) = (state.bases[port.buffer], shape.bytes[port.buffer]);
                    if to != tensor.address() {
                        // SAFETY: the block has the size of the buffer, and the tensor at least that many bytes
                        // (`input_bytes`).
                        unsafe { state.queue.copy(tensor.address(), to, bytes) }?;
                    }
                    continue;
                }
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
    pub(super) fn check_memory(
        &self,
        state: &mut State,
        shape: &Shape,
        stage: usize,
        places: &mut Places,
    ) -> Result<usize> {
        let Some(max) = self.session.memory_bytes_max else { return Ok(usize::MAX) };
        let mut total = shape.arena_bytes.saturating_add(state.queue.scratch_bytes(shape.scratch_bytes));
        total = total.saturating_add(self.outside);
        for (i, _) in self.entry.buffers.iter().enumerate().filter(|(_, b)| matches!(b.place, Place::Value)) {
            total = total.saturating_add(shape.bytes[i]);
        }
        total = total.saturating_add(opaque_bytes(&places.made));
        total = total.saturating_add(places.held.as_ref().map_or(0, |held| held.bytes()));
        let on_host = self.memory == Memory::Host;
        for (port, given) in self.entry.inputs.iter().zip(&places.inputs).filter(|_| !on_host) {
            let bytes = shape.bytes[port.buffer];
            let is_the_callers = match given {
                InputBytes::Held => true,
                InputBytes::OnDevice(tensor) => tensor.is_usable(bytes),
                InputBytes::InPlace(_) | InputBytes::Copied(_) => false,
            };
            total = total.saturating_add(if is_the_callers { 0 } else { bytes });
        }
        for (at, port) in self.entry.outputs.iter().enumerate() {
            let bytes = shape.bytes[port.buffer];
            if places.is_held(self.entry.output_states[at]) || self.entry.buffer_stages[port.buffer] > stage {
                continue;
            }
            let is_the_callers = match on_host {
                true => places.direct(at, port.dtype, bytes).is_some(),
                false => places.direct_on_device(at, bytes).is_some(),
            };
            total = total.saturating_add(if is_the_callers { 0 } else { bytes });
        }
        state.taken = total;
        max.checked_sub(total)
            .ok_or_else(|| Error::user("E0304", format!("the call needs {total} bytes, the limit is {max}")))
    }
}
