//! a collective of a call  =>  what all ranks brought, in the memory of this one

use super::Call;
use crate::comm::{self, Exchange};
use crate::device::{Memory, index_out_of_range};
use crate::program::{Host, Operand};
use crate::session::State;
use crate::shape::{Shape, step_name};
use sardonyx_base::host::alone;
use sardonyx_base::{Error, Result};

impl Call<'_> {
    pub(super) fn exchange(&self, state: &mut State, shape: &Shape, step: usize, host: &Host) -> Result<()> {
        let (Some(op), [from], [to]) = (host.call.op.exchange(), &host.args[..], &host.results[..]) else {
            return Err(Error::defect("a collective of more than one operand"));
        };
        let rank = self.session.rank().ok_or_else(|| alone(op))?;
        let described = |o: &Operand| {
            let dims = shape.dims(self.program, &o.dims);
            dims.map(|dims| comm::Operand { dtype: o.dtype, dims })
        };
        let (operand, result) = (described(from)?, described(to)?);
        // What others read must be there, and right.
        if let Some(i) = state.queue.finish()? {
            return Err(index_out_of_range().node(step_name(&self.entry.steps[i], i)));
        }
        let what = Exchange { op, step, operand: &operand, result: &result };
        let (from, to) = (state.bases[from.buffer], state.bases[to.buffer]);
        if self.memory == Memory::Host {
            let pointer = |address| std::ptr::with_exposed_provenance_mut(address as usize);
            // SAFETY: both buffers have these bytes (`Shape::step`), lie in memory of at least that size (`prepare`), and do
            // not overlap (`Shape::flow`).
            return unsafe { rank.exchange(&what, pointer(from), pointer(to), self.stop) };
        }
        let (mut operand, mut result) = (vec![0; operand.bytes()], vec![0; result.bytes()]);
        // SAFETY: as above; the vectors live until the queue has done its work.
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
}
