//! a transport between ranks that an MPI launcher has started, on any hosts
//!
//! The MPI library is loaded if the program was started by `mpirun` or `srun`: Open MPI, MPICH or a derivative of it,
//! or a library with the standard ABI. Collectives run our own schedules over the library's sends and receives, so that
//! results have the same bits as over shared memory. A failure is sent to all ranks. Messages that are under way when a
//! call fails are abandoned, and the next call uses another tag.

mod library;
mod running;

pub use library::{launcher, place_on_host};

use super::link::fitting;
use super::link::{Exchange, Link, Payload, laid};
use super::order::{Order, Run, parse_error, serialize_error};
use crate::stop::Stop;
use library::{Abi, Functions, Handle, open};
use prost::Message;
use running::{Messages, Running};
use sardonyx_base::host::Collective;
use sardonyx_base::reduction::Reduction;
use sardonyx_base::view::TensorView;
use sardonyx_base::{Error, Result};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Tags of messages. The data of a call has the tag `DATA` plus the number of the call modulo [`TAGS`].
const ORDER: c_int = 1;
const DONE: c_int = 2;
const FAILED: c_int = 3;
const DATA: c_int = 16;
/// Number of different tags for data; every MPI has at least 32,767 tags.
const TAGS: u32 = 16_000;

/// Maximum size in bytes of a message about a failure, including the number of the call that failed.
const TEXT_MAX: usize = 2048;
/// Maximum size of a message in bytes.
const MESSAGE_MAX: usize = 1 << 30;
/// Stands in for the number of the call in the last message of a rank, which belongs to no call.
const LAST: u32 = u32::MAX;
/// How long a rank waits for the last messages of the others.
const END: Duration = Duration::from_secs(2);
/// Time limit for `MPI_Finalize`. MPICH before 4.2 over UCX can hang there, waiting for a rank that is in a barrier of
/// the launcher, where it no longer serves its connections.
const FINALIZE: Duration = Duration::from_secs(10);
/// How long a rank polls without sleeping, and the longest sleep between polls afterwards.
const LOOK: Duration = Duration::from_micros(100);
const NAP: Duration = Duration::from_micros(200);
/// Every this many polls, a waiting rank checks whether another rank has failed, or the call must stop.
const CHECK: u32 = 32;

/// This process as one of the ranks that the launcher has started.
pub struct Mpi {
    functions: Functions,
    abi: Abi,
    comm: Handle,
    rank: usize,
    n_ranks: usize,
    call: AtomicU32,
    /// Number of bytes that collectives have received.
    taken: AtomicU64,
    /// Locked around calls of the library, which allows one thread at a time.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By rank: the pending receive for a message that the rank has failed.
    failures: Vec<Option<Pending>>,
    /// First rank only, by rank: the pending receive for the message that the rank has carried out an order, and the
    /// number of the last order that it has carried out.
    dones: Vec<Option<Pending>>,
    ended: Vec<u32>,
    /// The first failure in a call: the call, the rank, and the error.
    failed: Option<(u32, usize, String)>,
    /// Messages that were abandoned, or that no call waits for: their bytes must live until the library has completed
    /// them.
    left: Vec<Pending>,
    /// The collective that is under way.
    running: Option<Running>,
    finished: bool,
}

/// A message under way. The library holds the address of the bytes, so they must not move.
struct Pending {
    request: Handle,
    bytes: Vec<u8>,
    /// Whether `MPI_Test` has found the message complete. The library has then made the request a null request.
    ended: bool,
}

/// The communicator of this process: a process can join only once.
static JOINED: OnceLock<Option<Arc<Mpi>>> = OnceLock::new();

/// Joins the ranks if a launcher started this process as one of several. Errors: E0408, for example without a library.
pub fn joined() -> Result<Option<Arc<Mpi>>> {
    let Some(libraries) = launcher() else { return Ok(None) };
    if let Some(known) = JOINED.get() {
        return Ok(known.clone());
    }
    let mpi = Arc::new(Mpi::join(libraries)?);
    Ok(JOINED.get_or_init(|| Some(mpi)).clone())
}

impl Mpi {
    fn join(libraries: &[&str]) -> Result<Mpi> {
        let (library, name) = open(libraries)?;
        let lacks = |symbol| Error::user("E0408", format!("{name} has no function `{symbol}`"));
        let (functions, abi) = (Functions::load(library).map_err(lacks)?, Abi::detect(library));
        let (mut provided, mut rank, mut size, mut comm) = (0, 0, 0, 0);
        // SAFETY: the functions and constants belong to the same library; each result has space for a handle.
        let failed = unsafe {
            [
                (functions.init_thread)(std::ptr::null_mut(), std::ptr::null_mut(), abi.serialized, &mut provided),
                (functions.comm_rank)(abi.world, &mut rank),
                (functions.comm_size)(abi.world, &mut size),
                (functions.comm_dup)(abi.world, &mut comm),
            ]
        };
        if let Some(code) = failed.iter().find(|code| **code != 0) {
            return Err(Error::user("E0408", format!("{name} does not start: error {code}")));
        }
        let (rank, n_ranks) = (rank as usize, size as usize);
        let mpi = Mpi {
            functions,
            abi,
            comm,
            rank,
            n_ranks,
            call: AtomicU32::new(0),
            taken: AtomicU64::new(0),
            state: Mutex::default(),
        };
        let others = |at: usize| at != rank;
        let mut state = mpi.state();
        for at in 0..n_ranks {
            state.failures.push(others(at).then(|| mpi.receive(at, FAILED, TEXT_MAX)).transpose()?);
            let leads = others(at) && rank == 0;
            state.dones.push(leads.then(|| mpi.receive(at, DONE, 4)).transpose()?);
        }
        state.ended = vec![0; n_ranks];
        drop(state);
        Ok(mpi)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to send a message. The caller holds the lock of the state.
    fn send(&self, to: usize, tag: c_int, bytes: Vec<u8>) -> Result<Pending> {
        let count = message(bytes.len())?;
        let mut pending = Pending { request: 0, bytes, ended: false };
        let from = pending.bytes.as_ptr().cast();
        // SAFETY: the bytes do not move before the request has ended.
        let code = unsafe {
            (self.functions.isend)(from, count, self.abi.byte, to as c_int, tag, self.comm, &mut pending.request)
        };
        ok(code, "MPI_Isend").map(|()| pending)
    }

    fn receive(&self, from: usize, tag: c_int, bytes: usize) -> Result<Pending> {
        let count = message(bytes)?;
        let mut pending = Pending { request: 0, bytes: vec![0; bytes], ended: false };
        let to = pending.bytes.as_mut_ptr().cast();
        // SAFETY: as above.
        let code = unsafe {
            (self.functions.irecv)(to, count, self.abi.byte, from as c_int, tag, self.comm, &mut pending.request)
        };
        ok(code, "MPI_Irecv").map(|()| pending)
    }

    fn has_ended(&self, pending: &mut Pending) -> Result<bool> {
        if !pending.ended {
            let mut flag = 0;
            // SAFETY: the request is under way.
            let code = unsafe { (self.functions.test)(&mut pending.request, &mut flag, self.abi.status_ignore) };
            ok(code, "MPI_Test")?;
            pending.ended = flag != 0;
        }
        Ok(pending.ended)
    }

    /// Receives the messages about failures that have arrived, without waiting.
    fn look(&self, state: &mut State) -> Result<()> {
        for at in 0..self.n_ranks {
            let Some(mut pending) = state.failures[at].take() else { continue };
            if !self.has_ended(&mut pending)? {
                state.failures[at] = Some(pending);
                continue;
            }
            let Some((call, text)) = pending.bytes.split_first_chunk::<4>() else { continue };
            let text = String::from_utf8_lossy(text).trim_end_matches('\0').to_string();
            let call = u32::from_le_bytes(*call);
            if call == LAST {
                continue;
            }
            if state.failed.as_ref().is_none_or(|(known, ..)| *known != call) {
                state.failed = Some((call, at, text));
            }
            state.failures[at] = Some(self.receive(at, FAILED, TEXT_MAX)?);
        }
        Ok(())
    }

    /// Waits until the messages have been transferred, and returns their bytes. `check` may end the waiting with an
    /// error.
    fn wait(&self, pending: &mut Vec<Pending>, check: &mut dyn FnMut(&State) -> Result<()>) -> Result<Vec<Vec<u8>>> {
        let mut done: Vec<Option<Vec<u8>>> = pending.iter().map(|_| None).collect();
        let begun = Instant::now();
        for looks in 0u32.. {
            let mut state = self.state();
            for (one, done) in pending.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
                if self.has_ended(one)? {
                    *done = Some(std::mem::take(&mut one.bytes));
                }
            }
            if done.iter().all(Option::is_some) {
                pending.clear();
                break;
            }
            if looks % CHECK == CHECK - 1 {
                self.look(&mut state)?;
                check(&state)?;
            }
            drop(state);
            nap(begun);
        }
        Ok(done.into_iter().flatten().collect())
    }

    /// Abandons the messages of a call that failed.
    fn leave(&self, state: &mut State, messages: Messages) {
        for mut one in messages.receives {
            if !one.ended {
                // SAFETY: the request is under way. A null request, which an ended one is, may not be cancelled.
                unsafe { (self.functions.cancel)(&mut one.request) };
            }
            state.left.push(one);
        }
        state.left.extend(messages.sends);
    }

    fn tag(&self) -> c_int {
        DATA + (self.call.load(Ordering::Relaxed) % TAGS) as c_int
    }

    fn current(&self, state: &State) -> Option<(usize, String)> {
        let call = self.call.load(Ordering::Relaxed);
        state.failed.as_ref().filter(|(of, ..)| *of == call).map(|(_, rank, why)| (*rank, why.clone()))
    }
}

/// Runs `work` on a thread of its own. Returns whether it ended within the limit; if not, the thread keeps running.
fn within(limit: Duration, work: impl FnOnce() + Send + 'static) -> bool {
    let (ended, end) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("leaving MPI".to_string()).spawn(move || {
        work();
        // The receiver may have given up.
        let _ = ended.send(());
    });
    thread.is_ok() && end.recv_timeout(limit).is_ok()
}

/// Pauses between polls: yields for the first `LOOK` since `begun`, then sleeps longer each time, up to `NAP`.
fn nap(begun: Instant) {
    match begun.elapsed() < LOOK {
        true => std::thread::yield_now(),
        false => std::thread::sleep(NAP.min(begun.elapsed() / 8)),
    }
}

fn ok(code: c_int, function: &str) -> Result<()> {
    match code {
        0 => Ok(()),
        _ => Err(Error::user("E0408", format!("{function} ended with error {code}"))),
    }
}

fn message(bytes: usize) -> Result<c_int> {
    match bytes <= MESSAGE_MAX {
        true => Ok(bytes as c_int),
        false => {
            Err(Error::user("E0304", format!("a message of {bytes} bytes; at most {MESSAGE_MAX} are sent at once")))
        }
    }
}

impl Link for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    unsafe fn begin_exchange(&self, what: &Exchange, from: *const u8, to: *mut u8) -> Result<()> {
        fitting(what)?;
        let mut running = Running::new(what, from, to)?;
        let mut state = self.state();
        if let Some(lost) = state.running.take() {
            // A collective that was never ended belongs to a call that failed.
            self.leave(&mut state, lost.messages);
        }
        // SAFETY: the caller guarantees it.
        let begun = unsafe { running.start(self) };
        if begun.is_err() {
            self.leave(&mut state, running.messages);
            return begun;
        }
        state.running = Some(running);
        Ok(())
    }

    unsafe fn end_exchange(&self, what: &Exchange, _: *const u8, _: *mut u8, stop: &Stop) -> Result<()> {
        let op = what.op;
        let begun = Instant::now();
        for looks in 0u32.. {
            let mut state = self.state();
            let State { running: Some(running), .. } = &mut *state else {
                return Err(Error::defect(format!("`{op}` is waited for, and was not begun")));
            };
            // SAFETY: the memory is the same as when the collective was begun.
            if unsafe { running.go_on(self) }? {
                running.finish(op);
                state.running = None;
                return Ok(());
            }
            if looks % CHECK == CHECK - 1 {
                let awaited = running.awaited();
                self.look(&mut state)?;
                let failed = self
                    .current(&state)
                    .map(|(failed, _)| Error::user("E0408", format!("rank {failed} failed before it came to `{op}`")));
                let checked = failed.map_or(Ok(()), Err).and_then(|()| {
                    stop.check()
                        .map_err(|e| Error::user(e.code, format!("{}; `{op}` waited for rank {awaited}", e.message)))
                });
                if checked.is_err() {
                    let lost = state.running.take();
                    lost.into_iter().for_each(|lost| self.leave(&mut state, lost.messages));
                    return checked;
                }
            }
            drop(state);
            nap(begun);
        }
        Ok(())
    }

    fn go_on(&self) -> Result<()> {
        match &mut self.state().running {
            // SAFETY: the collective has not ended, so nothing else uses its memory.
            Some(running) => unsafe { running.go_on(self) }.map(drop),
            None => Ok(()),
        }
    }

    fn taken_bytes(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    unsafe fn library(&self, op: &Collective, from: *const u8, to: *mut u8, elements: usize) -> Result<()> {
        let _turn = self.state();
        let (count, float, sum) = (message(elements)?, self.abi.float, self.abi.sum);
        // SAFETY: the caller guarantees it.
        let code = unsafe {
            match op {
                Collective::AllReduce { f: Reduction::Add, .. } => {
                    (self.functions.allreduce)(from.cast(), to.cast(), count, float, sum, self.comm)
                }
                Collective::AllGather { .. } => {
                    (self.functions.allgather)(from.cast(), count, float, to.cast(), count, float, self.comm)
                }
                _ => return Err(Error::user("E0408", format!("the library is not asked for `{op}`"))),
            }
        };
        ok(code, op.name())
    }

    fn fail(&self, error: &Error) {
        let call = self.call.load(Ordering::Relaxed);
        let mut text = serialize_error(error);
        let end = (0..=text.len().min(TEXT_MAX - 4)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        let mut state = self.state();
        if self.current(&state).is_none() {
            state.failed = Some((call, self.rank, text.clone()));
        }
        for to in (0..self.n_ranks).filter(|to| *to != self.rank) {
            // A rank that cannot be reached notices the failure by itself.
            if let Ok(sent) = self.send(to, FAILED, [&call.to_le_bytes()[..], text.as_bytes()].concat()) {
                state.left.push(sent);
            }
        }
    }

    fn failed(&self) -> Option<(usize, Box<Error>)> {
        let mut state = self.state();
        // The next send or receive reports an error of the library.
        let _ = self.look(&mut state);
        let (rank, why) = self.current(&state)?;
        Some((rank, parse_error(&why, rank)))
    }

    fn give(&self, order: Order, inputs: &[(&str, TensorView)]) -> Result<()> {
        let call = self.call.load(Ordering::Relaxed).wrapping_add(1).max(1);
        let (laid, end) = laid(inputs, 0);
        let run = order.run.map(|run| Run { inputs: laid.clone(), ..run });
        let told = Order { call, run, ..order }.encode_to_vec();
        let mut bytes = vec![0; end];
        for (input, (_, view)) in laid.iter().zip(inputs) {
            bytes[input.at as usize..][..input.bytes as usize].copy_from_slice(view.bytes());
        }
        bytes.extend_from_slice(&told);
        bytes.extend_from_slice(&(told.len() as u64).to_le_bytes());
        self.call.store(call, Ordering::Relaxed);
        let mut sends = vec![];
        {
            let mut state = self.state();
            if state.finished {
                return Err(Error::user("E0408", "the other ranks have ended"));
            }
            for to in 1..self.n_ranks {
                sends.push(self.send(to, ORDER, bytes.clone())?);
            }
            let mut left = std::mem::take(&mut state.left);
            left.retain_mut(|one| !self.has_ended(one).unwrap_or(true));
            state.left = left;
        }
        self.wait(&mut sends, &mut |_| Ok(())).map(drop)
    }

    fn await_idle(&self, stop: Option<&Stop>) -> Result<()> {
        let call = self.call.load(Ordering::Relaxed);
        let begun = Instant::now();
        for looks in 0u32.. {
            let mut state = self.state();
            for rank in 1..self.n_ranks {
                let Some(mut pending) = state.dones[rank].take() else { continue };
                if self.has_ended(&mut pending)? {
                    let number = pending.bytes.first_chunk::<4>().copied().unwrap_or_default();
                    let number = u32::from_le_bytes(number);
                    if number == LAST {
                        continue;
                    }
                    state.ended[rank] = number;
                    pending = self.receive(rank, DONE, 4)?;
                }
                state.dones[rank] = Some(pending);
            }
            let absent = (1..self.n_ranks).find(|rank| state.ended[*rank] != call);
            let Some(absent) = absent else { return Ok(()) };
            if let (Some(stop), true) = (stop, looks % CHECK == CHECK - 1) {
                stop.check()
                    .map_err(|e| Error::user(e.code, format!("{}; rank {absent} had not ended the call", e.message)))?;
            }
            drop(state);
            match begun.elapsed() < LOOK {
                true => std::thread::yield_now(),
                false => std::thread::sleep(NAP),
            }
        }
        Ok(())
    }

    fn take(&self) -> Result<(Order, Payload)> {
        let begun = Instant::now();
        let bytes = loop {
            let (mut flag, mut status) = (0, [0u64; 16]);
            let state = self.state();
            // SAFETY: the status of no library is larger than this array.
            let code = unsafe { (self.functions.iprobe)(0, ORDER, self.comm, &mut flag, status.as_mut_ptr().cast()) };
            ok(code, "MPI_Iprobe")?;
            if flag != 0 {
                let mut count = 0;
                // SAFETY: the probe has filled in the status.
                let code = unsafe { (self.functions.get_count)(status.as_ptr().cast(), self.abi.byte, &mut count) };
                ok(code, "MPI_Get_count")?;
                break count as usize;
            }
            drop(state);
            match begun.elapsed() < LOOK {
                true => std::thread::yield_now(),
                false => std::thread::sleep(NAP),
            }
        };
        let received = self.receive(0, ORDER, bytes)?;
        let bytes = self.wait(&mut vec![received], &mut |_| Ok(()))?.pop().unwrap_or_default();
        let unfit = || Error::defect("an order that no first rank gives");
        let (rest, n) = bytes.split_last_chunk::<8>().ok_or_else(unfit)?;
        let at = rest.len().checked_sub(u64::from_le_bytes(*n) as usize).ok_or_else(unfit)?;
        let order = Order::decode(&rest[at..]).map_err(|_| unfit())?;
        self.call.store(order.call, Ordering::Relaxed);
        Ok((order, Payload::Own(bytes)))
    }

    fn done(&self) {
        let call = self.call.load(Ordering::Relaxed);
        let mut state = self.state();
        // If this message is lost, the first rank runs into its deadline.
        if let Ok(sent) = self.send(0, DONE, call.to_le_bytes().to_vec()) {
            state.left.push(sent);
        }
        let mut left = std::mem::take(&mut state.left);
        left.retain_mut(|one| !self.has_ended(one).unwrap_or(true));
        state.left = left;
    }

    fn end(&self) {
        if self.rank == 0 && self.give(Order::default(), &[]).is_ok() {
            // The ranks have been told to end; they report their own failures.
            let _ = self.await_idle(None);
        }
        self.finish();
    }
}

impl Mpi {
    pub fn n_ranks(&self) -> usize {
        self.n_ranks
    }

    /// Finalizes MPI, unless messages are under way that would block it. Pending receives are not cancelled, because
    /// some libraries then hang: instead, each rank sends a last message for each receive of the others.
    pub fn finish(&self) {
        let mut state = self.state();
        if std::mem::replace(&mut state.finished, true) {
            return;
        }
        let mut left = std::mem::take(&mut state.left);
        let mut receives: Vec<Pending> = [std::mem::take(&mut state.failures), std::mem::take(&mut state.dones)]
            .into_iter()
            .flatten()
            .flatten()
            .collect();
        for to in (0..self.n_ranks).filter(|to| *to != self.rank) {
            let kinds = if to == 0 { &[FAILED, DONE][..] } else { &[FAILED] };
            // If the library fails, an orderly end is no longer possible.
            left.extend(kinds.iter().filter_map(|kind| self.send(to, *kind, LAST.to_le_bytes().to_vec()).ok()));
        }
        let begun = Instant::now();
        while !(left.is_empty() && receives.is_empty()) && begun.elapsed() < END {
            left.retain_mut(|one| !self.has_ended(one).unwrap_or(true));
            receives.retain_mut(|one| !self.has_ended(one).unwrap_or(true));
            std::thread::yield_now();
        }
        if left.is_empty() && receives.is_empty() {
            let finalize = self.functions.finalize;
            let work = move || {
                // SAFETY: no message is under way, and the library is not called afterwards.
                unsafe { finalize() };
            };
            if !within(FINALIZE, work) {
                let limit = FINALIZE.as_secs();
                eprintln!("warning: the process ends without MPI_Finalize, which has {limit} s to return");
            }
        } else {
            // The library may use the bytes of these messages until the process ends.
            std::mem::forget((left, receives));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_keeps_nobody() {
        assert!(within(Duration::from_secs(60), || ()));
        assert!(!within(Duration::from_millis(20), || std::thread::sleep(Duration::from_secs(3600))));
    }
}
