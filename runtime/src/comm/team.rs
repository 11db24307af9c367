//! a call of the first rank  =>  the same call on all ranks
//!
//! The first rank has the callers. It lays the inputs of a call where all see them, says what is to be done, and does its
//! own part; the others wait for orders, each on a thread. A call ends when all have ended it, well or not: then the next one
//! finds everybody idle, and the error is that of the rank that was first to fail.

use super::order::{CacheRef, Input, Order, Run, heard};
use super::segment::Segment;
use super::shared::Rank;
use crate::cache::Cache;
use crate::model::Model;
use crate::session::{Session, SessionOptions};
use crate::stop::{RunOptions, Stop};
use prost::Message;
use sardonyx_base::view::TensorView;
use sardonyx_base::{DType, Error, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The other ranks of a session, on threads of this process.
pub struct Team {
    rank: Arc<Rank>,
    /// The number of the last call.
    calls: Mutex<u32>,
    threads: Vec<JoinHandle<()>>,
    pub caches: Arc<CacheIds>,
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
}

/// How long a rank that has nothing to do sleeps at a time.
const NAP: Duration = Duration::from_millis(100);
/// How long it looks for an order before it sleeps.
const LOOK: Duration = Duration::from_micros(50);
/// An input begins at a multiple of this.
const ALIGNMENT: usize = 64;

impl Team {
    /// Starts the others, and gives the first rank's way to them.
    pub fn start(mesh: &[usize], peers: &[Model], options: &SessionOptions, caches: Arc<CacheIds>) -> Result<Team> {
        let n: usize = mesh.iter().product();
        let segment = Arc::new(Segment::private(n)?);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let crowded = n * options.threads > processors;
        let rank = |at: usize| Arc::new(Rank::new(segment.clone(), at, mesh.to_vec(), crowded));
        let mut team = Team { rank: rank(0), calls: Mutex::new(0), threads: vec![], caches };
        for (at, model) in (1..n).zip(peers) {
            let session = Session::of_rank(model.clone(), options, rank(at))?;
            let peer = Peer { rank: rank_of(&session)?, session, caches: BTreeMap::new() };
            let thread = std::thread::Builder::new().name(format!("rank {at}")).spawn(move || peer.serve(crowded));
            team.threads.push(thread.map_err(|e| Error::user("E0304", format!("cannot start a rank: {e}")))?);
        }
        Ok(team)
    }

    pub fn rank(&self) -> &Arc<Rank> {
        &self.rank
    }

    /// Makes a call on all ranks: the others by what they are told, this one by `own`.
    pub fn call<T>(
        &self,
        entry: &str,
        inputs: &[(&str, TensorView)],
        cache: Option<CacheRef>,
        stop: &Stop,
        own: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        self.await_idle(*calls, Some(stop))?;
        *calls = calls.wrapping_add(1).max(1);
        let limit = stop.options().deadline.map(|at| at.saturating_duration_since(Instant::now()).as_nanos() as u64);
        let mut run = Run { entry: entry.to_string(), inputs: vec![], limit, cache, dropped: vec![] };
        std::mem::swap(&mut run.dropped, &mut *self.caches.dropped.lock().unwrap_or_else(PoisonError::into_inner));
        let mut at = self.room()?;
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
        let bases = self.rank.bases();
        self.rank.begin(*calls, &bases);
        self.order(Order { call: *calls, bases, run: Some(run) })?;
        let made = own();
        if let Err(e) = &made {
            self.rank.fail(e);
        }
        // What it waits for ends soon: the call has failed for all, or they are as far as this rank.
        self.await_idle(*calls, made.is_ok().then_some(stop))?;
        match self.rank.failed() {
            None | Some(0) => made,
            Some(first) => Err(heard(&self.rank.segment.why(first), first)),
        }
    }

    /// Where orders are: the last quarter of the first rank's room.
    fn room(&self) -> Result<usize> {
        let segment = &self.rank.segment;
        Ok(segment.room_at(0) + segment.room / 4 * 3 + ORDER_MAX)
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

    fn order(&self, order: Order) -> Result<()> {
        let bytes = order.encode_to_vec();
        let (segment, number) = (&self.rank.segment, order.call);
        if bytes.len() > ORDER_MAX - 8 {
            return Err(Error::user("E0304", "a call has too many inputs to be told to the other ranks"));
        }
        let at = segment.room_at(0) + segment.room / 4 * 3;
        self.lay(at, &(bytes.len() as u64).to_le_bytes())?;
        self.lay(at + 8, &bytes)?;
        segment.order().set(number);
        Ok(())
    }

    /// Waits until all others have ended a call. Errors: E0305, E0306, with the rank that has not.
    fn await_idle(&self, call: u32, stop: Option<&Stop>) -> Result<()> {
        let segment = &self.rank.segment;
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
}

/// Bytes of an order without its inputs.
const ORDER_MAX: usize = 1 << 20;

impl Drop for Team {
    fn drop(&mut self) {
        let calls = *self.calls.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.await_idle(calls, None).is_ok() {
            // An order that is too long is none of this kind.
            let _ = self.order(Order { call: calls.wrapping_add(1).max(1), bases: vec![], run: None });
        }
        for thread in self.threads.drain(..) {
            // A rank that panicked has said so when it did.
            let _ = thread.join();
        }
    }
}

fn rank_of(session: &Session) -> Result<Arc<Rank>> {
    session.rank().cloned().ok_or_else(|| Error::defect("a session of a mesh without a rank"))
}

/// A rank that waits for orders.
struct Peer {
    rank: Arc<Rank>,
    session: Session,
    caches: BTreeMap<u64, Cache<'static>>,
}

impl Peer {
    fn serve(mut self, crowded: bool) {
        let segment = self.rank.segment.clone();
        let mut done = 0;
        loop {
            let order = segment.order();
            let begun = Instant::now();
            let number = loop {
                let seen = order.get();
                if seen != done {
                    break seen;
                }
                if crowded || begun.elapsed() >= LOOK {
                    order.sleep(seen, NAP);
                } else {
                    std::hint::spin_loop();
                }
            };
            done = number;
            let ended = Ended { rank: &self.rank.clone(), call: number, well: std::cell::Cell::new(false) };
            let goes_on = match read_order(&segment) {
                Ok(Order { run: None, .. }) => false,
                Ok(Order { call, bases, run: Some(run) }) => {
                    self.rank.begin(call, &bases);
                    if let Err(e) = self.run(&run) {
                        self.rank.fail(&e);
                    }
                    true
                }
                Err(e) => {
                    self.rank.begin(number, &[]);
                    self.rank.fail(&e);
                    true
                }
            };
            ended.well.set(true);
            drop(ended);
            if !goes_on {
                return;
            }
        }
    }

    fn run(&mut self, run: &Run) -> Result<()> {
        run.dropped.iter().for_each(|id| drop(self.caches.remove(id)));
        let deadline = run.limit.map(|ns| Instant::now() + Duration::from_nanos(ns));
        let options = RunOptions { deadline, cancel: None };
        let segment = &self.rank.segment;
        let inputs = run.inputs.iter().map(|input| {
            let unfit = || Error::defect("an order that no first rank gives");
            let (at, bytes) = (input.at as usize, input.bytes as usize);
            let dtype = DType::from_onnx(input.dtype).filter(|_| segment.holds(at, bytes)).ok_or_else(unfit)?;
            let dims: Vec<usize> = input.dims.iter().map(|n| *n as usize).collect();
            // SAFETY: within the segment, and nobody writes there before all have ended the call.
            let bytes = unsafe { std::slice::from_raw_parts(segment.at(at), bytes) };
            Ok((input.name.as_str(), dtype, dims, bytes))
        });
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let views = inputs.iter().map(|(name, dtype, dims, bytes)| Ok((*name, TensorView::new(*dtype, dims, bytes)?)));
        let views = views.collect::<Result<Vec<_>>>()?;
        let Some(wanted) = &run.cache else {
            return self.session.run_with(&run.entry, &views, &mut [], &options).map(drop);
        };
        if !self.caches.contains_key(&wanted.id) {
            let cache = self.session.cache(&run.entry, wanted.capacity as usize)?;
            self.caches.insert(wanted.id, cache);
        }
        let cache = self.caches.get_mut(&wanted.id).ok_or_else(|| Error::defect("a cache that is not there"))?;
        cache.set_len(wanted.len as usize);
        self.session.run_cached(&run.entry, &views, &mut [], cache, &options).map(drop)
    }
}

/// However a call ends on a rank, the others are told so.
struct Ended<'a> {
    rank: &'a Rank,
    call: u32,
    well: std::cell::Cell<bool>,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if !self.well.get() {
            self.rank.fail(&Error::defect("it panicked"));
        }
        self.rank.segment.idle(self.rank.rank).set(self.call);
    }
}

fn read_order(segment: &Segment) -> Result<Order> {
    let at = segment.room_at(0) + segment.room / 4 * 3;
    // SAFETY: within the first rank's room, which it does not write before all have ended the order.
    let bytes = unsafe {
        let n = segment.at(at).cast::<u64>().read_unaligned() as usize;
        std::slice::from_raw_parts(segment.at(at + 8), n.min(ORDER_MAX - 8))
    };
    Order::decode(bytes).map_err(|e| Error::defect(format!("an order does not decode: {e}")))
}
