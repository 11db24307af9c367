//! what a transport does for a rank

use super::order::Order;
use super::segment::Segment;
use crate::device::Block;
use crate::stop::Stop;
use sardonyx_base::host::Collective;
use sardonyx_base::schedule::{Algorithm, Operand, result};
use sardonyx_base::view::TensorView;
use sardonyx_base::{Error, Result};
use std::sync::Arc;

/// One collective of one rank.
pub struct Exchange<'a> {
    pub op: &'a Collective,
    /// The same on all ranks.
    pub step: usize,
    /// The ranks that meet, what each brings, and which of them this one is.
    pub ranks: &'a [usize],
    pub operands: &'a [Operand],
    pub own: usize,
    pub result: &'a Operand,
    /// Sums have the bits of their order in it. Calls are direct.
    pub algorithm: Algorithm,
}

/// A rank's way to the others of its mesh. One call at a time uses it.
pub trait Link: Send + Sync {
    fn rank(&self) -> usize;

    /// Brings the own operand to a collective, and does not wait. It is ended before another one is begun. Errors: E0408.
    ///
    /// # Safety
    /// `from` has the bytes of the own operand and `to` those of the result; they do not overlap. Until the collective has
    /// ended or the call has failed nobody writes the one or touches the other.
    unsafe fn begin_exchange(&self, what: &Exchange, from: *const u8, to: *mut u8) -> Result<()>;

    /// Computes the result of the collective that was begun. Errors: E0305, E0306, E0408, with the rank that did not come.
    ///
    /// # Safety
    /// It is the same collective, with the same operand and result.
    unsafe fn end_exchange(&self, what: &Exchange, from: *const u8, to: *mut u8, stop: &Stop) -> Result<()>;

    /// Computes the result of a collective. Errors: E0305, E0306, E0408, with the rank that did not come.
    ///
    /// # Safety
    /// As for `begin_exchange`.
    unsafe fn exchange(&self, what: &Exchange, from: *const u8, to: *mut u8, stop: &Stop) -> Result<()> {
        // SAFETY: as the caller says; nobody has the memory between the two.
        unsafe {
            self.begin_exchange(what, from, to)?;
            self.end_exchange(what, from, to, stop)
        }
    }

    /// Sees to what was begun: some libraries move bytes only while they are called.
    fn go_on(&self) -> Result<()> {
        Ok(())
    }

    /// Memory for the arena of calls, the same each time and grown in place, where others can read it; none where memory is
    /// not shared. Errors: E0304.
    fn arena(&self, _bytes: usize) -> Option<Result<Block>> {
        None
    }

    /// The library's own collective of f32, where the transport has a library. Errors: E0408, and where it has none.
    ///
    /// # Safety
    /// As for `exchange`.
    unsafe fn library(&self, op: &Collective, _from: *const u8, _to: *mut u8, _elements: usize) -> Result<()> {
        Err(Error::user("E0408", format!("this transport has no library with `{op}`")))
    }

    /// How many threads each rank has: whether a rank that waits may keep its processor.
    fn expect_threads(&self, _per_rank: usize) {}

    /// Ends the order that is being carried out, for all ranks.
    fn fail(&self, error: &Error);

    /// The rank that was first to fail in that order, and how.
    fn failed(&self) -> Option<(usize, Box<Error>)>;

    /// Of the first rank: tells the others what to do, with tensors that they are to see.
    fn give(&self, order: Order, inputs: &[(&str, TensorView)]) -> Result<()>;

    /// Of the first rank: waits until all others have carried out the last order, or are gone. Errors: E0305, E0306, E0408.
    fn await_idle(&self, stop: Option<&Stop>) -> Result<()>;

    /// Of the others: waits for the next order. Errors: E0408 where the first rank is gone.
    fn take(&self) -> Result<(Order, Payload)>;

    /// Of the others: the order has been carried out.
    fn done(&self);

    /// Of the first rank, at the end: the others are told so, and waited for.
    fn end(&self);
}

/// The tensors of an order.
pub enum Payload {
    Shared(Arc<Segment>),
    Own(Vec<u8>),
}

impl Payload {
    pub fn bytes(&self, at: usize, bytes: usize) -> Option<&[u8]> {
        match self {
            // SAFETY: within the segment, and nobody writes there before all have ended the order.
            Payload::Shared(segment) => {
                segment.holds(at, bytes).then(|| unsafe { std::slice::from_raw_parts(segment.at(at), bytes) })
            }
            Payload::Own(all) => all.get(at..at.checked_add(bytes)?),
        }
    }
}

/// Where each tensor of an order lies, from a place on; the end.
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

/// An input begins at a multiple of this.
const ALIGNMENT: usize = 64;

/// Errors: E0303 where the operands or the result of an exchange do not fit.
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
