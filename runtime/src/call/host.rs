//! a host step of a call  =>  its operands as tensors, the operation, its results as buffers of the next stage

use super::Call;
use super::places::Places;
use crate::bind::{Given, bind_capacities, bind_symbols};
use crate::device::{Address, Memory, host_address, index_out_of_range};
use crate::device_tensor::Input;
use crate::memory::AlignedBuf;
use crate::program::{Host, Operand, Place, Port};
use crate::session::State;
use crate::shape::{Shape, bytes_of, step_name};
use crate::stop::Stop;
use sardonyx_base::host::{Bodies, Budget, HostOp, Limits, Wanted};
use sardonyx_base::plan::Copy;
use sardonyx_base::view::is_aligned;
use sardonyx_base::{DType, Error, Result, Tensor};
use std::sync::Arc;

/// The result of a host step; it lives as long as the call.
pub(super) struct Made {
    tensor: Tensor,
    /// A copy of the bytes, if those of the tensor are not aligned to its elements.
    copy: Option<AlignedBuf>,
}

impl Made {
    fn new(tensor: Tensor) -> Result<Made> {
        let copy = match is_aligned(tensor.bytes().as_ptr(), tensor.dtype()) {
            true => None,
            false => Some(AlignedBuf::from_slice(tensor.bytes())?),
        };
        Ok(Made { tensor, copy })
    }

    pub fn into_tensor(self) -> Tensor {
        self.tensor
    }

    /// Returns the bytes of an opaque value, whose size no plan knows; `None` for other values.
    pub fn opaque(&self) -> Option<&[u8]> {
        self.tensor.dtype().is_opaque().then_some(self.tensor.bytes())
    }

    pub fn address(&self) -> Address {
        host_address(self.copy.as_ref().map_or(self.tensor.bytes().as_ptr(), |copy| copy.as_ptr()))
    }
}

/// Limits of a call for a host operation: stop conditions, and memory beside the `before` bytes already taken.
pub(super) struct CallLimits<'a> {
    stop: &'a Stop<'a>,
    before: usize,
    bytes_max: Option<usize>,
}

impl Limits for CallLimits<'_> {
    fn go_on(&self) -> Result<()> {
        self.stop.check()
    }

    fn allow(&self, bytes: usize) -> Result<()> {
        let total = self.before.saturating_add(bytes);
        match self.bytes_max.filter(|max| total > *max) {
            Some(max) => Err(Error::user("E0304", format!("the call needs {total} bytes, the limit is {max}"))),
            None => Ok(()),
        }
    }
}

impl<'a> Call<'a> {
    /// Returns the limits for an operation of a call that has already taken `before` bytes.
    pub(super) fn limits(&self, before: usize) -> CallLimits<'a> {
        CallLimits { stop: self.stop, before, bytes_max: self.session.memory_bytes_max }
    }
}

impl Call<'_> {
    pub(super) fn host(
        &self,
        state: &mut State,
        shape: &mut Arc<Shape>,
        host: &Host,
        stage: usize,
        places: &mut Places,
    ) -> Result<()> {
        // The operands must be complete, and no earlier step may have failed.
        if let Some(i) = state.queue.finish()? {
            return Err(index_out_of_range().node(step_name(&self.entry.steps[i], i)));
        }
        let ran = self.computed(state, shape, host, places);
        state.queue.begin(self.entry.steps.len())?;
        let results = ran?;
        for (result, value) in host.call.results.iter().zip(&host.results) {
            let tensor = made(&results, result.index, value)?;
            for (axis, symbol) in &result.binds {
                self.give(Arc::make_mut(shape), symbol, tensor.dims()[*axis] as i64)?;
            }
        }
        if !shape.has_reached(stage) {
            Arc::make_mut(shape).advance(self.program, self.entry)?;
        }
        for (result, value) in host.call.results.iter().zip(&host.results) {
            let tensor = made(&results, result.index, value)?;
            let dims = shape.dims(self.program, &value.dims)?;
            let (at, has) = (value.buffer, tensor.dims());
            if dims != has {
                let name = host.call.op.name();
                let message = format!("result {} of {name} is {has:?}, but must be {dims:?}", result.index);
                return Err(Error::user("E0303", message));
            }
            if shape.bytes[at] != tensor.bytes().len() && !tensor.dtype().is_opaque() {
                let (bytes, buffer) = (tensor.bytes().len(), shape.bytes[at]);
                return Err(Error::user("E0401", format!("{bytes} bytes are the value of a buffer of {buffer}")));
            }
            places.made[at] = Some(Made::new(tensor.clone())?);
        }
        self.check_sizes(shape, places.given)?;
        self.prepare(state, shape, stage, places)?;
        if self.memory == Memory::Host {
            return Ok(());
        }
        for made in host.results.iter().map(|value| value.buffer) {
            let Some(value) = places.made[made].as_ref().filter(|v| !v.tensor.dtype().is_opaque()) else { continue };
            // SAFETY: the block has the size of the buffer (`prepare`), which is that of the tensor; the tensor lives
            // in `places`.
            unsafe { state.queue.upload(value.tensor.bytes(), state.bases[made]) }?;
        }
        Ok(())
    }

    /// Computes the results of a host step.
    fn computed(&self, state: &mut State, shape: &Shape, host: &Host, places: &Places) -> Result<Vec<Tensor>> {
        // The operation counts its results itself, so those that the plan has counted are subtracted.
        let planned = host.results.iter().fold(0usize, |n, value| n.saturating_add(shape.bytes[value.buffer]));
        let limits = self.limits(state.taken.saturating_sub(planned));
        let budget = Budget::new(&limits);
        if let HostOp::Loop { n_carried } = host.call.op
            && let Some(results) = self.iterate(state, shape, (host, n_carried), places, &budget)?
        {
            return Ok(results);
        }
        let mut args = vec![];
        for arg in &host.args {
            args.push(self.operand(state, shape, arg, places, &budget)?);
        }
        let wanted = self.wanted(shape, host);
        host.call.op.run_with(&args, &wanted, &mut Entries { call: self, state, host, budget: &budget }, &budget)
    }

    /// Returns the content of a buffer as a tensor.
    pub(super) fn operand(
        &self,
        state: &mut State,
        shape: &Shape,
        arg: &Operand,
        places: &Places,
        budget: &Budget,
    ) -> Result<Tensor> {
        let dims = shape.dims(self.program, &arg.dims)?;
        if let (Place::Value, Some(made)) = (&self.entry.buffers[arg.buffer].place, &places.made[arg.buffer]) {
            // `with_dims` checks the dimensions against the content, which takes time.
            return if made.tensor.dims() == dims { Ok(made.tensor.clone()) } else { made.tensor.with_dims(dims) };
        }
        let bytes = match (&self.entry.buffers[arg.buffer].place, arg.dtype.is_opaque()) {
            (Place::Input(at), true) => match &self.inputs[*at] {
                Given::Tensor(Input::Host(view)) => {
                    return Tensor::new(arg.dtype, dims, budget.copied(view.bytes())?.into());
                }
                Given::Tensor(Input::Device(_)) | Given::Held { .. } => {
                    return Err(Error::defect("a state that no kernel can hold"));
                }
            },
            (Place::Constant(at), true) => Some(self.program.constants[*at].len()),
            (Place::Value | Place::Arena(_) | Place::Output(_), true) => {
                return Err(Error::user("E0401", format!("nothing made the {} of an operand", arg.dtype)));
            }
            (_, false) => bytes_of(arg.dtype, &dims),
        };
        let bytes = bytes.ok_or_else(|| Error::user("E0202", "an operand is too large"))?;
        budget.take(bytes)?;
        let mut copy = self.session.outputs.take(bytes)?;
        let data = &mut copy.as_mut_slice()[..bytes];
        // SAFETY: the buffer has at least this many bytes (`Shape::step`), and its memory is there (`prepare`).
        unsafe { state.queue.download(state.bases[arg.buffer], data) }?;
        if arg.dtype == DType::Bool {
            data.iter_mut().for_each(|b| *b = u8::from(*b != 0));
        }
        Tensor::new(arg.dtype, dims, copy.into_bytes().slice(..bytes))
    }

    /// Returns the port if the buffer is an output of opaque type, which is passed on instead of copied.
    pub(super) fn opaque_output(&self, buffer: usize) -> Option<&Port> {
        self.entry.outputs.iter().find(|p| p.buffer == buffer && p.dtype.is_opaque())
    }

    /// Makes the content of a buffer the value of an opaque output.
    pub(super) fn pass(&self, state: &mut State, shape: &Shape, copy: &Copy, places: &mut Places) -> Result<()> {
        let Some(port) = self.opaque_output(copy.to) else { return Err(Error::defect("an output that is copied")) };
        let operand = Operand { buffer: copy.from, dtype: port.dtype, dims: port.dims.clone() };
        let limits = self.limits(state.taken);
        let tensor = self.operand(state, shape, &operand, places, &Budget::new(&limits))?;
        places.made[copy.to] = Some(Made::new(tensor)?);
        Ok(())
    }

    /// Returns the types and, as far as they are known, the sizes of the results before the operation runs.
    fn wanted(&self, shape: &Shape, host: &Host) -> Vec<Wanted> {
        let n = host.call.results.iter().map(|r| r.index + 1).max().unwrap_or(0);
        let mut wanted: Vec<Wanted> = vec![None; n];
        for (result, value) in host.call.results.iter().zip(&host.results) {
            let size = |d| shape.eval(self.program, d).ok().and_then(|n| usize::try_from(n).ok());
            wanted[result.index] = Some((value.dtype, value.dims.iter().map(size).collect()));
        }
        wanted
    }
}

fn made<'a>(results: &'a [Tensor], index: usize, wanted: &Operand) -> Result<&'a Tensor> {
    let (dtype, rank) = (wanted.dtype, wanted.dims.len());
    let found = results.get(index).filter(|t| t.dtype() == dtype && t.rank() == rank);
    found.ok_or_else(|| Error::defect(format!("result {index} is not {dtype} with {rank} dimensions")))
}

/// The entry points that a step calls. They run with the nested state of the session (`State::nested`).
struct Entries<'a, 'b> {
    call: &'a Call<'b>,
    state: &'a mut State,
    host: &'a Host,
    budget: &'a Budget<'a>,
}

impl Bodies for Entries<'_, '_> {
    fn run(&mut self, at: usize, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let Call { session, program, stop, memory, .. } = *self.call;
        let at = self.host.call.bodies[at];
        let entry = &program.entries[at];
        let inputs: Vec<Given> = inputs.iter().map(|t| Given::Tensor(Input::from(t))).collect();
        if inputs.len() != entry.inputs.len() {
            return Err(Error::defect(format!("`{}` takes {} inputs", entry.name, entry.inputs.len())));
        }
        let mut values = bind_symbols(program, entry, &inputs)?;
        bind_capacities(program, entry, None, &mut values)?;
        let outside = self.state.taken.saturating_add(self.budget.bytes());
        let call = Call { session, program, entry, inputs: &inputs, stop, memory, watch: None, outside };
        let mut given: Vec<_> = entry.outputs.iter().map(|_| None).collect();
        let ran = self.state.nested(&session.model, |nested| {
            let shape = nested.shapes.shape_for(program, at, values)?;
            call.run(nested, shape, &mut given, None)
        })?;
        Ok(ran.into_iter().map(|(_, tensor)| tensor).collect())
    }

    fn check(&self, _stacked: usize) -> Result<()> {
        // The loop's budget already counts the stacked bytes, so only the stop conditions are checked here.
        self.call.stop.check()
    }
}
