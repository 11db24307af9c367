//! the interface of a transport, as one rank uses it

use super::order::Order;
use super::segment::Segment;
use crate::device::Block;
use crate::stop::Stop;
use sardonyx_base::host::Collective;
use sardonyx_base::schedule::{Algorithm, Operand, result};
use sardonyx_base::view::TensorView;
use sardonyx_base::{Error, Result};
use std::sync::Arc;

/// One collective, as seen by one of the ranks that take part in it.
pub struct Exchange<'a> {
    pub op: &'a Collective,
    /// Index of the step, the same on all ranks.
    pub step: usize,
    /// The ranks of the group, the operand of each, and the index of this rank among them.
    pub ranks: &'a [usize],
    pub operands: &'a [Operand],
    pub own: usize,
    pub result: &'a Operand,
    /// Determines the order in which reductions combine operands, and so the bits of their results. Calls of models
    /// always use `Direct`.
    pub algorithm: Algorithm,
}

/// Connection of a rank to the others of its mesh. One call at a time uses it.
pub trait Link: Send + Sync {
    fn rank(&self) -> usize;

    /// Offers this rank's operand to a collective, without waiting. The collective must be ended before another one is
    /// begun. Errors: E0303, E0304, E0407, E0408.
    ///
    /// # Safety
    /// `from` has the bytes of this rank's operand and `to` those of the result; they do not overlap. Until the
    /// collective has ended or the call has failed, `from` is not written, and `to` is not touched.
    unsafe fn begin_exchange(&self, what: &Exchange, from: *const u8, to: *mut u8) -> Result<()>;

    /// Computes the result of the collective that was begun. Errors: E0305, E0306 and E0408, whose messages name the
    /// rank that is missing.
    ///
    /// # Safety
    /// The arguments must be those of `begin_exchange`: the same collective, operand and result.
    unsafe fn end_exchange(&self, what: &Exchange, from: *const u8, to: *mut u8, stop: &Stop) -> Result<()>;

    /// Computes the result of a collective. Errors: those of `begin_exchange` and of `end_exchange`.
    ///
    /// # Safety
    /// As for `begin_exchange`.
    unsafe fn exchange(&self, what: &Exchange, from: *const u8, to: *mut u8, stop: &Stop) -> Result<()> {
        // SAFETY: the caller guarantees it; nothing else uses the memory between the two calls.
        unsafe {
            self.begin_exchange(what, from, to)?;
            self.end_exchange(what, from, to, stop)
        }
    }

    /// Makes progress on a collective that was begun: some libraries transfer data only while they are called.
    fn go_on(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the number of bytes that collectives have brought to this rank from others since the ranks were started.
    fn taken_bytes(&self) -> u64;

    /// Returns memory for the arena of calls where other ranks can read it: always at the same address, grown in place.
    /// `None` if the transport does not share memory. Errors: E0304.
    fn arena(&self, _bytes: usize) -> Option<Result<Block>> {
        None
    }

    /// Runs the collective of the transport's own library on f32; `elements` is the size of the operand. Errors: E0304,
    /// E0408, also if there is no library.
    ///
    /// # Safety
    /// As for `exchange`.
    unsafe fn library(&self, op: &Collective, _from: *const u8, _to: *mut u8, _elements: usize) -> Result<()> {
        Err(Error::user("E0408", format!("this transport has no library with `{op}`")))
    }

    /// Sets how many threads each rank has, which decides whether a waiting rank may spin.
    fn expect_threads(&self, _per_rank: usize) {}

    /// Reports a failure, which ends the current order on all ranks.
    fn fail(&self, error: &Error);

    /// Returns the rank that was first to fail in the current order, with its error.
    fn failed(&self) -> Option<(usize, Box<Error>)>;

    /// First rank only: sends an order to the other ranks, with tensors for them.
    fn give(&self, order: Order, inputs: &[(&str, TensorView)]) -> Result<()>;

    /// First rank only: waits until all others have carried out the last order, or are gone. Errors: E0305, E0306,
    /// E0408.
    fn await_idle(&self, stop: Option<&Stop>) -> Result<()>;

    /// Other ranks only: waits for the next order. Errors: E0408 if the first rank is gone.
    fn take(&self) -> Result<(Order, Payload)>;

    /// Other ranks only: reports that the order has been carried out.
    fn done(&self);

    /// First rank only: ends the other ranks, and waits for them.
    fn end(&self);
}

/// The bytes of the tensors of an order.
pub enum Payload {
    Shared(Arc<Segment>),
    Own(Vec<u8>),
}

impl Payload {
    pub fn bytes(&self, at: usize, bytes: usize) -> Option<&[u8]> {
        match self {
            Payload::Shared(segment) => {
                // SAFETY: within the segment; no rank writes these bytes before all ranks have ended the order.
                segment.holds(at, bytes).then(|| unsafe { std::slice::from_raw_parts(segment.at(at), bytes) })
            }
            Payload::Own(all) => all.get(at..at.checked_add(bytes)?),
        }
    }
}

/// Lays out the tensors of an order from offset `from` on. Returns their descriptions, and the end offset.
pub fn laid(inputs: &[(&str, TensorView)], from: usize) -> (Vec<super::order::Input>, usize) {
    let mut at = from;
    let one = |(name, view): &(&str, TensorView)| {
        at = at.next_multiple_of(ALIGNMENT);
        let bytes = view.bytes().len();
        let input = super::order::Input {
            name: (*name).to_string(),
            dtype: view.dtype().onnx_code(),
            dims: view.dims().iter().map(|n| *n as u64).collect(),
            at: at as u64,
            bytes: bytes as u64,
        };
        at += bytes;
        input
    };
    let all = inputs.iter().map(one).collect();
    (all, at)
}

/// Alignment of the tensors of an order, in bytes.
const ALIGNMENT: usize = 64;

/// Checks that the operands and the result of an exchange fit together. Errors: E0303.
pub fn fitting(what: &Exchange) -> Result<()> {
    let made = result(what.op, what.operands, what.own)?;
    match made == *what.result {
        true => Ok(()),
        false => {
            let (has, wants) = (&made.dims, &what.result.dims);
            Err(Error::user("E0303", format!("the result of `{}` is {has:?}, not {wants:?}", what.op)))
        }
    }
}
