//! a collective under way  =>  its rounds, one after the other, as messages arrive
//!
//! The collective makes progress whenever `go_on` is called, and uses the memory that it was begun with until it ends.

use super::{Mpi, Pending};
use crate::comm::link::Exchange;
use sardonyx_base::host::Collective;
use sardonyx_base::schedule::{Move, Rounds, Source};
use sardonyx_base::{DType, Error, Result};
use std::sync::atomic::Ordering;

/// A collective under way.
pub struct Running {
    ranks: Vec<usize>,
    own: usize,
    dtype: DType,
    /// By rank of the group: its moves in every round.
    rounds: Vec<Rounds>,
    /// Index of the current round.
    round: usize,
    from: *const u8,
    to: *mut u8,
    /// Sizes in bytes of this rank's operand and of the result.
    bytes: [usize; 2],
    pub messages: Messages,
}

// SAFETY: the caller that began the collective grants it the memory until it ends, on any thread.
unsafe impl Send for Running {}

/// The messages of a round.
#[derive(Default)]
pub struct Messages {
    pub receives: Vec<Pending>,
    /// By receive: the rank within the group that sends, and the bytes once they have arrived.
    sources: Vec<usize>,
    came: Vec<Option<Vec<u8>>>,
    pub sends: Vec<Pending>,
}

/// Returns the moves in which a rank takes data from rank `from`, in order.
fn taken(round: Option<&Vec<Move>>, from: usize) -> impl Iterator<Item = &Move> {
    round.into_iter().flatten().filter(move |m| m.from.rank() == from)
}

impl Running {
    /// Prepares a collective without beginning it. Errors: E0408.
    pub fn new(what: &Exchange, from: *const u8, to: *mut u8) -> Result<Running> {
        let Exchange { op, ranks, operands, own, algorithm, .. } = *what;
        let rounds = (0..ranks.len()).map(|at| algorithm.rounds(op, operands, at)).collect::<Option<_>>();
        let rounds =
            rounds.ok_or_else(|| Error::user("E0408", format!("{} is no algorithm for `{op}`", algorithm.name())))?;
        let (ranks, dtype, bytes) = (ranks.to_vec(), operands[own].dtype, [operands[own].bytes(), what.result.bytes()]);
        Ok(Running { ranks, own, dtype, rounds, round: 0, from, to, bytes, messages: Messages::default() })
    }

    /// Begins the messages of the current round.
    ///
    /// # Safety
    /// As for [`Link::begin_exchange`](crate::comm::Link::begin_exchange).
    pub unsafe fn start(&mut self, mpi: &Mpi) -> Result<()> {
        let Running { ranks, own, rounds, round, from, to, bytes, messages, .. } = self;
        let (own, round) = (*own, *round);
        // SAFETY: the caller guarantees it.
        let (operand, made) = unsafe {
            (std::slice::from_raw_parts(*from, bytes[0]), std::slice::from_raw_parts(to.cast_const(), bytes[1]))
        };
        let others = || (0..ranks.len()).filter(|at| *at != own);
        *messages = Messages::default();
        for at in others() {
            let bytes: usize = taken(rounds[own].get(round), at).map(|m| m.bytes).sum();
            if bytes > 0 {
                messages.receives.push(mpi.receive(ranks[at], mpi.tag(), bytes)?);
                messages.sources.push(at);
                messages.came.push(None);
            }
        }
        for at in others() {
            let mut bytes = vec![];
            for m in taken(rounds[at].get(round), own) {
                bytes.extend_from_slice(match m.from {
                    Source::Operand(_) => &operand[m.at..m.at + m.bytes],
                    Source::Result(_) => &made[m.at..m.at + m.bytes],
                });
            }
            if !bytes.is_empty() {
                messages.sends.push(mpi.send(ranks[at], mpi.tag(), bytes)?);
            }
        }
        Ok(())
    }

    /// Makes as much progress as possible without waiting. Returns whether the collective has ended.
    ///
    /// # Safety
    /// As for [`Link::end_exchange`](crate::comm::Link::end_exchange).
    pub unsafe fn go_on(&mut self, mpi: &Mpi) -> Result<bool> {
        let n = self.rounds.iter().map(Vec::len).max().unwrap_or(0);
        while self.round < n {
            let Messages { receives, came, sends, .. } = &mut self.messages;
            let mut all = true;
            for (one, came) in receives.iter_mut().zip(came).filter(|(_, came)| came.is_none()) {
                match mpi.has_ended(one)? {
                    true => {
                        mpi.taken.fetch_add(one.bytes.len() as u64, Ordering::Relaxed);
                        *came = Some(std::mem::take(&mut one.bytes));
                    }
                    false => all = false,
                }
            }
            for at in (0..sends.len()).rev() {
                match mpi.has_ended(&mut sends[at])? {
                    true => drop(sends.swap_remove(at)),
                    false => all = false,
                }
            }
            if !all {
                return Ok(false);
            }
            // SAFETY: the caller guarantees it.
            unsafe { self.take() };
            self.round += 1;
            if self.round < n {
                // SAFETY: the caller guarantees it.
                unsafe { self.start(mpi) }?;
            }
        }
        Ok(true)
    }

    /// Carries out the moves of the current round: copies or combines this rank's operand and received data into the
    /// result.
    ///
    /// # Safety
    /// As for [`Link::end_exchange`](crate::comm::Link::end_exchange).
    unsafe fn take(&mut self) {
        let Running { own, dtype, rounds, round, from, to, bytes, messages, .. } = self;
        // SAFETY: the caller guarantees it.
        let (operand, made) =
            unsafe { (std::slice::from_raw_parts(*from, bytes[0]), std::slice::from_raw_parts_mut(*to, bytes[1])) };
        let mut read: Vec<usize> = vec![0; messages.sources.len()];
        for m in rounds[*own].get(*round).into_iter().flatten() {
            let came = messages.sources.iter().position(|at| *at == m.from.rank());
            let from = match came.and_then(|at| Some((at, messages.came[at].as_ref()?))) {
                Some((at, came)) => {
                    read[at] += m.bytes;
                    &came[read[at] - m.bytes..read[at]]
                }
                None => &operand[m.at..m.at + m.bytes],
            };
            let into = &mut made[m.to..m.to + m.bytes];
            match m.combine {
                None => into.copy_from_slice(from),
                Some(f) => f.combine(*dtype, into, from),
            }
        }
    }

    /// Completes the result after all rounds.
    pub fn finish(&mut self, op: &Collective) {
        // SAFETY: the result has these bytes, and nothing else uses it before the collective has ended.
        let made = unsafe { std::slice::from_raw_parts_mut(self.to, self.bytes[1]) };
        op.finish(self.dtype, made, self.ranks.len(), self.own);
    }

    /// Returns the numbers of the ranks whose messages have not arrived, as text.
    pub fn awaited(&self) -> String {
        let Messages { sources, came, .. } = &self.messages;
        let awaited = sources.iter().zip(came).filter(|(_, came)| came.is_none());
        awaited.map(|(at, _)| self.ranks[*at].to_string()).collect::<Vec<String>>().join(" or ")
    }
}
