//! a call of the first rank  =>  the same call on all ranks
//!
//! The first rank has the callers. It lays the inputs of a call where all see them, says what is to be done, and does its
//! own part. A call ends when all have ended it, well or not: then the next one finds everybody idle, and the error is that of
//! the rank that was first to fail.

use super::order::{Input, Order, Run, heard};
use super::processes::Process;
use super::segment::Segment;
use super::shared::Rank;
use crate::stop::Stop;
use prost::Message;
use sardonyx_base::view::TensorView;
use sardonyx_base::{Error, Result};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The ranks of a model, as the first one sees them.
pub struct World {
    rank: Arc<Rank>,
    /// One order at a time.
    turn: Mutex<()>,
    /// The number of the last one.
    last: Arc<AtomicU32>,
    pub caches: Arc<CacheIds>,
    sessions: AtomicU64,
    members: Members,
}

/// Where the other ranks are.
pub enum Members {
    Threads(Vec<JoinHandle<()>>),
    Processes(Vec<Process>),
}

/// Caches have numbers, by which the other ranks know theirs.
#[derive(Default)]
pub struct CacheIds {
    next: AtomicU64,
    dropped: Mutex<Vec<u64>>,
}

impl CacheIds {
    pub fn give(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub fn forget(&self, id: u64) {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }

    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.dropped.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// How long a rank that waits for others sleeps at a time.
const NAP: Duration = Duration::from_millis(20);
/// How long it looks before it sleeps.
const LOOK: Duration = Duration::from_micros(50);
/// An input begins at a multiple of this.
const ALIGNMENT: usize = 64;
/// Bytes of an order without its inputs.
const ORDER_MAX: usize = 1 << 20;
/// How long the others may take to end.
const END: Duration = Duration::from_secs(2);

/// Where orders are: the last quarter of the first rank's room.
fn orders_at(segment: &Segment) -> usize {
    segment.room_at(0) + segment.room / 4 * 3
}

/// The last order. It stays until all have carried it out.
pub fn read_order(segment: &Segment) -> Result<Order> {
    let at = orders_at(segment);
    // SAFETY: within the first rank's room, which it does not write before all have ended the order.
    let bytes = unsafe {
        let n = segment.at(at).cast::<u64>().read_unaligned() as usize;
        std::slice::from_raw_parts(segment.at(at + 8), n.min(ORDER_MAX - 8))
    };
    Order::decode(bytes).map_err(|e| Error::defect(format!("an order does not decode: {e}")))
}

impl World {
    /// `last` is the number of the last order, which those who watch the members read.
    pub fn new(rank: Arc<Rank>, members: Members, last: Arc<AtomicU32>) -> World {
        World { rank, turn: Mutex::new(()), last, caches: Arc::default(), sessions: AtomicU64::new(0), members }
    }

    pub fn rank(&self) -> &Arc<Rank> {
        &self.rank
    }

    /// A number for a session, by which the other ranks know theirs.
    pub fn session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// Has the other ranks do something, and waits for them.
    pub fn tell(&self, order: Order) -> Result<()> {
        let turn = self.turn(None)?;
        self.give(order)?;
        self.ended(Ok(()), None, turn)
    }

    /// Makes a call on all ranks: the others by what they are told, this one by `own`.
    pub fn call<T>(
        &self,
        mut run: Run,
        inputs: &[(&str, TensorView)],
        stop: &Stop,
        own: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let turn = self.turn(Some(stop))?;
        run.limit = stop.options().deadline.map(|at| at.saturating_duration_since(Instant::now()).as_nanos() as u64);
        run.dropped = self.caches.take();
        let mut at = orders_at(&self.rank.segment) + ORDER_MAX;
        for (name, view) in inputs {
            let bytes = view.bytes();
            at = at.next_multiple_of(ALIGNMENT);
            self.lay(at, bytes)?;
            run.inputs.push(Input {
                name: (*name).to_string(),
                dtype: view.dtype().onnx_code(),
                dims: view.dims().iter().map(|n| *n as u64).collect(),
                at: at as u64,
                bytes: bytes.len() as u64,
            });
            at += bytes.len();
        }
        self.give(Order { run: Some(run), ..Order::default() })?;
        let made = own();
        if let Err(e) = &made {
            self.rank.fail(e);
        }
        self.ended(made, Some(stop), turn)
    }

    /// Waits until all are idle.
    fn turn(&self, stop: Option<&Stop>) -> Result<MutexGuard<'_, ()>> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.await_idle(stop)?;
        Ok(turn)
    }

    /// The result of an order that all ranks have carried out.
    fn ended<T>(&self, made: Result<T>, stop: Option<&Stop>, _turn: MutexGuard<'_, ()>) -> Result<T> {
        // A call that has failed ends soon everywhere: nobody need look at its deadline.
        let idle = self.await_idle(if made.is_ok() { stop } else { None });
        match self.rank.failed() {
            Some(first) if first > 0 => Err(met(heard(&self.rank.segment.why(first), first), made.err())),
            Some(_) | None => idle.and(made),
        }
    }

    fn lay(&self, at: usize, bytes: &[u8]) -> Result<()> {
        let segment = &self.rank.segment;
        if at + bytes.len() > segment.room_at(0) + segment.room {
            return Err(Error::user("E0304", "the inputs are larger than the memory that the ranks share"));
        }
        // SAFETY: within the room, of which nobody uses this part while all are idle.
        unsafe { bytes.as_ptr().copy_to_nonoverlapping(segment.at(at), bytes.len()) };
        Ok(())
    }

    fn give(&self, order: Order) -> Result<()> {
        let (segment, call) = (&self.rank.segment, self.last.load(Ordering::Relaxed).wrapping_add(1).max(1));
        let bases = self.rank.bases();
        let bytes = Order { call, bases: bases.clone(), ..order }.encode_to_vec();
        if bytes.len() > ORDER_MAX - 8 {
            return Err(Error::user("E0304", "a call has too many inputs to be told to the other ranks"));
        }
        let at = orders_at(segment);
        self.lay(at, &(bytes.len() as u64).to_le_bytes())?;
        self.lay(at + 8, &bytes)?;
        self.rank.begin(call, &bases);
        self.last.store(call, Ordering::Release);
        segment.order().set(call);
        Ok(())
    }

    /// Waits until all others have carried out the last order, or are gone. Errors: E0305, E0306, E0408, with the rank.
    fn await_idle(&self, stop: Option<&Stop>) -> Result<()> {
        let (segment, call) = (&self.rank.segment, self.last.load(Ordering::Relaxed));
        for rank in 1..segment.n_ranks {
            let word = segment.idle(rank);
            let begun = Instant::now();
            loop {
                let seen = word.get();
                if seen == call {
                    break;
                }
                if begun.elapsed() < LOOK {
                    std::thread::yield_now();
                    continue;
                }
                if let Some(why) = self.gone(rank) {
                    let message = format!("rank {rank} {why}");
                    return Err(Error::user("E0408", message).help("load the model again"));
                }
                if let Some(stop) = stop {
                    stop.check().map_err(|e| {
                        Error::user(e.code, format!("{}; rank {rank} had not ended the call", e.message))
                    })?;
                }
                word.sleep(seen, NAP);
            }
        }
        Ok(())
    }

    /// What happened to a rank that is not there any more.
    fn gone(&self, rank: usize) -> Option<String> {
        match &self.members {
            Members::Threads(threads) => {
                threads.get(rank - 1).filter(|t| t.is_finished()).map(|_| "has ended".to_string())
            }
            Members::Processes(all) => all.get(rank - 1).and_then(Process::gone),
        }
    }
}

/// The error of another rank, with where this one waited for it.
fn met(error: Box<Error>, own: Option<Box<Error>>) -> Box<Error> {
    let Some(own) = own.filter(|own| own.code == "E0408" && error.node.is_none()) else { return error };
    let message = format!("{}; {}", error.message, own.message);
    let error = Box::new(Error { message, ..*error });
    match own.node {
        Some(node) => error.node(node),
        None => error,
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Those that are in a call are told that it has failed, and come to the end of it.
        let begun = Instant::now();
        let idle = |world: &World| {
            let call = world.last.load(Ordering::Relaxed);
            (1..world.rank.segment.n_ranks).all(|r| world.rank.segment.idle(r).get() == call || world.gone(r).is_some())
        };
        while !idle(self) && begun.elapsed() < END {
            std::thread::sleep(Duration::from_millis(1));
        }
        // An order that is too long is none of this kind.
        let _ = self.give(Order::default());
        match &mut self.members {
            Members::Threads(threads) => {
                for thread in threads.drain(..) {
                    // A rank that panicked has said so when it did.
                    let _ = thread.join();
                }
            }
            Members::Processes(all) => all.drain(..).for_each(|process| process.end(begun + 2 * END)),
        }
    }
}
