//! the end of a call  =>  its outputs, in memory of the caller or as tensors

use super::Call;
use super::places::Places;
use crate::bind::Destination;
use crate::device::Memory;
use crate::outputs::Outputs;
use crate::session::State;
use crate::shape::{Shape, bytes_of};
use sardonyx_base::{Error, Result, Tensor};

impl Call<'_> {
    /// Refuses buffers of the caller that are too small for outputs whose dimensions are known. Errors: E0301.
    pub(super) fn check_sizes(&self, shape: &Shape, given: &[Option<Destination>]) -> Result<()> {
        for ((port, dims), buffer) in self.entry.outputs.iter().zip(&shape.output_dims).zip(given) {
            let Some(buffer) = buffer else { continue };
            let (needed, has) = (bytes_of(port.dtype, dims).unwrap_or(usize::MAX), buffer.bytes());
            if has < needed {
                let name = &port.name;
                let message = format!("the output `{name}` of {dims:?} has {needed} bytes, its buffer only {has}");
                return Err(Error::user("E0301", message).help("give a larger buffer, or none"));
            }
        }
        Ok(())
    }

    /// Whether the caller gets output `at`: it is requested or has a buffer, and does not stay in a cache.
    pub(super) fn is_wanted(&self, at: usize, is_given: bool, with_cache: bool) -> bool {
        let wanted = self.stop.options().outputs.as_ref();
        let is_wanted = |name: &String| wanted.is_none_or(|wanted| wanted.contains(name));
        let is_held = with_cache && self.entry.output_states[at].is_some();
        !is_held && (is_given || is_wanted(&self.entry.outputs[at].name))
    }

    /// Returns the dimensions of this rank's part of an output; `None` if this rank has the whole output.
    pub(super) fn part_dims(&self, shape: &Shape, at: usize, in_parts: &[bool]) -> Result<Option<Vec<usize>>> {
        in_parts[at].then(|| shape.dims(self.program, &self.entry.own_outputs[at])).transpose()
    }

    /// Waits until the call is done, and copies its outputs from a device with its own memory. Returns the index of the
    /// first step in which an index read from data was out of range; `None` if there is none.
    pub(super) fn finish(&self, state: &mut State, shape: &Shape, places: &mut Places) -> Result<Option<usize>> {
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
                Some(Destination::Device(tensor)) => {
                    let from = state.bases[port.buffer];
                    if from != tensor.address() {
                        // SAFETY: the output's buffer in the plan has at least `bytes` bytes (`Shape::output`), and so
                        // has the caller's tensor (`check_sizes`).
                        unsafe { state.queue.copy(from, tensor.address(), bytes) }?;
                    }
                    continue;
                }
                Some(Destination::Host(buffer)) if part.is_none() => &mut buffer.bytes_mut()[..bytes],
                _ => &mut own.insert(self.session.outputs.take(bytes)?).as_mut_slice()[..bytes],
            };
            results.push((state.bases[port.buffer], to));
        }
        // SAFETY: an output's memory has the size of its buffer, and the dimensions need at most that many bytes
        // (`Shape::output`). Each has its own destination.
        unsafe { state.queue.finish_and_read(&mut results) }
    }

    pub(super) fn outputs(&self, shape: &Shape, places: Places) -> Result<Outputs> {
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
                    Some(to) => {
                        if let Destination::Host(buffer) = to {
                            buffer.bytes_mut()[..whole.bytes().len()].copy_from_slice(whole.bytes());
                        }
                        to.set_dims(dims);
                    }
                    None => out.push(&port.name, whole),
                }
                continue;
            }
            match (&mut given[at], own) {
                (Some(to), own) => {
                    if let (Destination::Host(buffer), Some(own)) = (&mut *to, own) {
                        buffer.bytes_mut()[..bytes].copy_from_slice(&own.as_ref()[..bytes]);
                    }
                    to.set_dims(dims);
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
