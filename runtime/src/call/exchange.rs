//! a collective of a call  =>  its result over all ranks, in the memory of this rank

use super::Call;
use crate::comm::{self, Algorithm, Exchange};
#[cfg(feature = "cuda")]
use crate::device::Block;
use crate::device::{Memory, index_out_of_range};
use crate::program::Host;
use crate::program::world::{Group, members};
use crate::session::State;
use crate::shape::{Shape, step_name};
use sardonyx_base::host::{Budget, Collective, HostOp, alone, cut, part};
use sardonyx_base::plan::Units;
use sardonyx_base::view::TensorView;
use sardonyx_base::{Error, Result, Tensor};

impl Call<'_> {
    pub(super) fn exchange(&self, state: &mut State, shape: &Shape, step: usize, host: &Host) -> Result<()> {
        let (Some(op), [from], [to]) = (host.call.op.exchange(), &host.args[..], &host.results[..]) else {
            return Err(Error::defect("a collective of more than one operand"));
        };
        let rank = self.session.rank().ok_or_else(|| alone(op))?;
        let dims = shape.dims(self.program, &to.dims)?;
        let result = comm::Operand { dtype: to.dtype, dims };
        let Group { ranks, operands, own } = Group::new(self.program, &shape.values, op.mesh(), from)?;
        let what = Exchange {
            op,
            step,
            ranks: &ranks,
            operands: &operands,
            own,
            result: &result,
            algorithm: Algorithm::Direct,
        };
        if self.memory != Memory::Host && matches!(host.call.op, HostOp::Begin(_)) {
            // On a GPU, collectives run in stream order, so the whole collective runs at its `Wait`.
            return Ok(());
        }
        #[cfg(feature = "cuda")]
        if self.memory != Memory::Host {
            let State { queue, meeting, staging, .. } = state;
            let mut room = |bytes| {
                if staging.last().is_none_or(|block| block.bytes() < bytes) {
                    let device = self.session.model.device().clone();
                    // Earlier blocks may still be in use by exchanges under way.
                    staging.push(device.allocate(2 * bytes, &|| "what ranks exchange".into())?);
                }
                Ok(staging.last().map_or(0, Block::address))
            };
            let places = (state.bases[from.buffer], state.bases[to.buffer], &mut room as _);
            // SAFETY: both buffers have the bytes that `what` describes (`Shape::step`), are in memory of at least that
            // size (`prepare`), and do not overlap (`Shape::flow`).
            if unsafe { meeting.exchange(&mut **queue, &what, &**rank, places, self.stop) }? {
                return Ok(());
            }
        }
        self.settle(state)?;
        // Other ranks read the operand, so it must be complete, and no earlier step may have failed.
        if let Some(i) = state.queue.finish()? {
            return Err(index_out_of_range().node(step_name(&self.entry.steps[i], i)));
        }
        let (from, to) = (state.bases[from.buffer], state.bases[to.buffer]);
        if self.memory == Memory::Host {
            let pointer = |address| std::ptr::with_exposed_provenance_mut(address as usize);
            let (from, to) = (pointer(from), pointer(to));
            // SAFETY: both buffers have the bytes that `what` describes (`Shape::step`), are in memory of at least that
            // size (`prepare`), and do not overlap (`Shape::flow`). Between `Begin` and `Wait`, nothing writes the
            // operand or touches the result, and memory does not move (`Flow::come_to`).
            return unsafe {
                match host.call.op {
                    HostOp::Begin(_) => rank.begin_exchange(&what, from, to),
                    HostOp::Wait(_) => rank.end_exchange(&what, from, to, self.stop),
                    _ => rank.exchange(&what, from, to, self.stop),
                }
            };
        }
        let zeros = |n| Budget::unlimited().filled(0u8, n);
        let (mut operand, mut result) = (zeros(operands[own].bytes())?, zeros(result.bytes())?);
        // SAFETY: as above; the vectors live until the queue has finished.
        unsafe {
            state.queue.download(from, &mut operand)?;
            let exchanged = rank.exchange(&what, operand.as_ptr(), result.as_mut_ptr(), self.stop);
            state.queue.begin(self.entry.steps.len())?;
            exchanged?;
            state.queue.upload(&result, to)?;
        }
        state.queue.finish().map(drop)?;
        state.queue.begin(self.entry.steps.len())
    }

    /// Returns this rank's part of an input of the caller.
    pub(super) fn own_part(&self, whole: &TensorView, units: &[Units]) -> Result<Tensor> {
        let whole =
            Tensor::new(whole.dtype(), whole.dims().to_vec(), Budget::unlimited().copied(whole.bytes())?.into())?;
        units.iter().try_fold(whole, |whole, units| {
            let (mut dims, open) = (whole.dims().to_vec(), opened(whole.dims(), units));
            let own = part(units.count as usize, self.program.mesh[units.mesh], members(self.program, units.mesh)?.1);
            let own = cut(&whole.with_dims(open)?, units.dim + 1, own)?;
            dims[units.dim] = own.dims()[units.dim..units.dim + 3].iter().product();
            own.with_dims(dims)
        })
    }

    /// Gathers an output from the parts of all ranks; `place` is the index of the output.
    pub(super) fn gather_output(&self, own: Tensor, units: &[Units], place: usize) -> Result<Tensor> {
        units.iter().rev().try_fold(own, |own, units| {
            let (mesh, mut dims) = (units.mesh, own.dims().to_vec());
            let op = Collective::AllGather { mesh, dim: units.dim + 1 };
            let (ranks, place_in_group) = members(self.program, mesh)?;
            let brings = |at: usize| {
                let mut open = opened(&dims, units);
                open[units.dim + 1] = part(units.count as usize, ranks.len(), at).len();
                comm::Operand { dtype: own.dtype(), dims: open }
            };
            let operands: Vec<comm::Operand> = (0..ranks.len()).map(brings).collect();
            let mut open = opened(&dims, units);
            open[units.dim + 1] = units.count as usize;
            dims[units.dim] = open[units.dim..units.dim + 3].iter().product();
            let result = comm::Operand { dtype: own.dtype(), dims: open };
            let mut bytes = Budget::unlimited().filled(0u8, result.bytes())?;
            let rank = self.session.rank().ok_or_else(|| alone(&op))?;
            let (ranks, step) = (&ranks[..], self.entry.steps.len() + place);
            let what = Exchange {
                op: &op,
                step,
                ranks,
                operands: &operands,
                own: place_in_group,
                result: &result,
                algorithm: Algorithm::Direct,
            };
            // SAFETY: operand and result have the bytes of their dimensions, and do not overlap.
            unsafe { rank.exchange(&what, own.bytes().as_ptr(), bytes.as_mut_ptr(), self.stop) }?;
            Tensor::new(own.dtype(), dims, bytes.into())
        })
    }
}

/// Returns `dims` with the partitioned dimension split into three: runs, units of a run, elements of a unit.
fn opened(dims: &[usize], units: &Units) -> Vec<usize> {
    let mut open = dims.to_vec();
    let (outer, unit) = (units.outer as usize, units.unit as usize);
    open.splice(units.dim..=units.dim, [outer, dims[units.dim] / (outer * unit), unit]);
    open
}
