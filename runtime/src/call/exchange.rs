//! a collective of a call  =>  what all ranks brought, in the memory of this one

use super::Call;
use crate::comm::{self, Exchange};
use crate::device::{Memory, index_out_of_range};
use crate::program::{Host, Operand};
use crate::session::State;
use crate::shape::{Shape, step_name};
use sardonyx_base::host::alone;
use sardonyx_base::{Dim, Error, Result};

type Group = (Vec<usize>, Vec<comm::Operand>, usize);

impl Call<'_> {
    pub(super) fn exchange(&self, state: &mut State, shape: &Shape, step: usize, host: &Host) -> Result<()> {
        let (Some(op), [from], [to]) = (host.call.op.exchange(), &host.args[..], &host.results[..]) else {
            return Err(Error::defect("a collective of more than one operand"));
        };
        let rank = self.session.rank().ok_or_else(|| alone(op))?;
        let dims = shape.dims(self.program, &to.dims)?;
        let result = comm::Operand { dtype: to.dtype, dims };
        let (ranks, operands, own) = self.group(shape, op.mesh(), from)?;
        // What others read must be there, and right.
        if let Some(i) = state.queue.finish()? {
            return Err(index_out_of_range().node(step_name(&self.entry.steps[i], i)));
        }
        let what = Exchange { op, step, ranks: &ranks, operands: &operands, own, result: &result };
        let (from, to) = (state.bases[from.buffer], state.bases[to.buffer]);
        if self.memory == Memory::Host {
            let pointer = |address| std::ptr::with_exposed_provenance_mut(address as usize);
            // SAFETY: both buffers have these bytes (`Shape::step`), lie in memory of at least that size (`prepare`), and do
            // not overlap (`Shape::flow`).
            return unsafe { rank.exchange(&what, pointer(from), pointer(to), self.stop) };
        }
        let (mut operand, mut result) = (vec![0; operands[own].bytes()], vec![0; result.bytes()]);
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

    /// The ranks along an axis, what each brings, and which of them this one is.
    fn group(&self, shape: &Shape, axis: usize, operand: &Operand) -> Result<Group> {
        let unknown = || Error::defect(format!("a collective along axis {axis} of {:?}", self.program.mesh));
        let n = *self.program.mesh.get(axis).ok_or_else(unknown)?;
        let &(coordinate, own) = self.program.coordinates.get(axis).ok_or_else(unknown)?;
        let brings = |at: usize| {
            let size = |d: &Dim| {
                let value = |name: &str| match self.program.symbol_index.get(name) {
                    Some(&symbol) if symbol == coordinate => Some(at as i64),
                    _ => self.program.value(&shape.values, name),
                };
                d.eval(&value).map(|n| usize::try_from(n).unwrap_or(0))
            };
            let dims = operand.dims.iter().map(size).collect::<Result<Vec<usize>>>();
            dims.map(|dims| comm::Operand { dtype: operand.dtype, dims })
        };
        // The last axis is the one along which neighbours are.
        let number = |at: usize| {
            let axes = self.program.mesh.iter().zip(&self.program.coordinates).enumerate();
            let place = |i: usize, own: i64| if i == axis { at } else { own as usize };
            axes.fold(0, |rank, (i, (size, (_, own)))| rank * size + place(i, *own))
        };
        Ok(((0..n).map(number).collect(), (0..n).map(brings).collect::<Result<_>>()?, own as usize))
    }
}
