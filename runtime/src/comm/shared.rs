//! collectives among ranks that share memory
//!
//! A rank posts where its operand is, and increments its phase. When all other ranks of its group have done so, the
//! rank reads their operands. A small operand is copied to one of two slots beside its description. A slot is reused
//! only after all ranks have come to the next collective, and so have read the slot. A larger operand is read in the
//! arena, or in staging memory if it is not in the arena; then the ranks wait for each other once more before they
//! continue. `begin_exchange` only posts; the rest is done in `end_exchange`.

use super::link::fitting;
use super::link::{Exchange, Link, Payload, laid};
use super::order::{Order, parse_error, serialize_error};
use super::processes::Process;
use super::segment::{AXES_MAX, LANES, Posted, SENDS, SMALL_MAX, Segment};
use super::wire::{Wire, now_ns, sleep_until};
use crate::device::{Address, Block};
use crate::stop::Stop;
use prost::Message;
use sardonyx_base::host::Collective;
use sardonyx_base::schedule::{Algorithm, Move, Operand, Rounds, Source, bytes_of_others, direct};
use sardonyx_base::view::TensorView;
use sardonyx_base::{DType, Error, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A rank that shares memory with the others.
pub struct Shared {
    segment: Arc<Segment>,
    rank: usize,
    /// Number of the order that this rank carries out.
    call: Arc<AtomicU32>,
    /// By axis: number of collectives in the current call so far.
    met: [AtomicU32; AXES_MAX],
    /// The phase of the send lane at the start of the call.
    sends_from: AtomicU32,
    /// Number of bytes that collectives have taken from other ranks.
    taken: AtomicU64,
    /// How often this rank polls a word before it sleeps.
    looks: AtomicU32,
    /// Pid of the first rank's process, if this rank runs in another process.
    leader: Option<libc::pid_t>,
    /// Schedules of recent collectives, the one computed last first.
    known: Mutex<Vec<Known>>,
    /// First rank only: the threads or processes of the others.
    members: Mutex<Members>,
}

/// A collective, its operands, its result on this rank, and the schedule that was computed for them.
type Known = (Collective, Vec<Operand>, Operand, Arc<Schedule>);

/// The moves of this rank, and the number of bytes that they take from others.
struct Schedule {
    rounds: Rounds,
    taken: usize,
}

/// The other ranks.
pub enum Members {
    Threads(Vec<JoinHandle<()>>),
    Processes(Vec<Process>),
}

/// Number of schedules that are kept: a model has few different operand shapes.
const KNOWN_MAX: usize = 64;
/// Polls of a word before a rank with its own processor sleeps. The polls take ten to some hundred microseconds,
/// depending on how long the processor pauses in a spin loop.
const LOOKS: u32 = 4000;
/// Interval at which a sleeping rank checks deadlines and failures.
const NAP: Duration = Duration::from_millis(20);
/// Bytes that are combined at once, so that they stay in the innermost cache.
const CHUNK: usize = 16 << 10;
/// How long a rank polls for an order, or for the end of one, before it sleeps.
const LOOK: Duration = Duration::from_micros(50);
/// Maximum size of an order in bytes, without its inputs.
const ORDER_MAX: usize = 1 << 20;
/// How long the first rank waits for the others to become idle before it orders them to end. Processes that still exist
/// after twice this time are killed.
const END: Duration = Duration::from_secs(2);

impl Shared {
    pub fn new(segment: Arc<Segment>, rank: usize) -> Shared {
        let (call, met, known) = (Arc::default(), Default::default(), Mutex::default());
        let members = Mutex::new(Members::Threads(vec![]));
        let (sends_from, looks, taken) = Default::default();
        Shared { segment, rank, call, met, sends_from, looks, taken, leader: None, known, members }
    }

    pub fn led_by(self, leader: libc::pid_t) -> Shared {
        Shared { leader: Some(leader), ..self }
    }

    /// Makes this the first rank, which leads the other ranks, `members`; `call` is also read by the threads that watch
    /// them.
    pub fn leading(self, members: Members, call: Arc<AtomicU32>) -> Shared {
        Shared { members: Mutex::new(members), call, ..self }
    }

    /// Whether the process of the first rank is gone.
    fn is_left(&self) -> bool {
        // SAFETY: only queries the parent's pid.
        self.leader.is_some_and(|pid| unsafe { libc::getppid() } != pid)
    }

    fn is_crowded(&self) -> bool {
        self.looks.load(Ordering::Relaxed) == 0
    }

    /// Begins a call. `bases` contains the phase of each lane at the start, which is not behind any phase of earlier
    /// calls.
    fn begin(&self, call: u32, bases: &[u32]) {
        self.call.store(call, Ordering::SeqCst);
        for (lane, base) in bases.iter().enumerate().take(LANES) {
            match lane {
                SENDS => self.sends_from.store(*base, Ordering::Relaxed),
                axis => self.met[axis].store(0, Ordering::Relaxed),
            }
            self.segment.phase(self.rank, lane).set(*base);
        }
    }

    /// Returns the phase of each lane at which the next call may begin. All ranks must be idle.
    fn bases(&self) -> Vec<u32> {
        let phases = |lane| (0..self.segment.n_ranks).map(move |rank| self.segment.phase(rank, lane).get());
        // The phases of all ranks are close together, so the signed difference from this rank's phase is right even if
        // the counters have wrapped around.
        let furthest = |lane| {
            let own = self.segment.phase(self.rank, lane).get();
            let ahead = phases(lane).map(|p| p.wrapping_sub(own) as i32).max().unwrap_or(0);
            own.wrapping_add_signed(ahead)
        };
        (0..LANES).map(furthest).collect()
    }

    fn staging(&self, half: usize, bytes: usize) -> Result<usize> {
        let size = self.segment.room / 8;
        match bytes <= size {
            true => Ok(self.segment.staging(self.rank) + half * size),
            false => Err(Error::user("E0304", format!("{bytes} bytes are exchanged at once, at most {size} can be"))),
        }
    }

    /// Returns this rank's moves, after checking that operands and result fit. Errors: E0303.
    fn schedule(&self, what: &Exchange) -> Result<Arc<Schedule>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().find(|(op, of, to, _)| op == what.op && of == what.operands && to == what.result);
        if let Some((.., schedule)) = found {
            return Ok(schedule.clone());
        }
        fitting(what)?;
        let rounds = direct(what.op, what.operands, what.own);
        let schedule = Arc::new(Schedule { taken: bytes_of_others(&rounds, what.own), rounds });
        known.truncate(KNOWN_MAX - 1);
        known.insert(0, (*what.op, what.operands.to_vec(), what.result.clone(), schedule.clone()));
        Ok(schedule)
    }

    /// Carries out the moves of a round. With `gives`, the index of this rank, what the moves write is also written to
    /// the results of all other ranks.
    ///
    /// # Safety
    /// The ranges are within operands and results, and nothing writes to the data while this rank reads it.
    unsafe fn carry(&self, round: &[Move], all: &[Posted], dtype: DType, to: *mut u8, gives: Option<usize>) {
        let from = |m: &Move| match m.from {
            Source::Operand(at) => self.segment.at(all[at].operand as usize + m.at).cast_const(),
            Source::Result(at) => self.segment.at(all[at].result as usize + m.at).cast_const(),
        };
        let mut rest = round;
        while let Some(first) = rest.first() {
            // A chain is a move that copies into a range, and the following moves that combine with the same range.
            let n = 1 + rest[1..].iter().take_while(|m| m.combine.is_some() && m.to == first.to).count();
            let (chain, after) = rest.split_at(n);
            rest = after;
            let step = if n > 1 { CHUNK } else { first.bytes.max(1) };
            for at in (0..first.bytes).step_by(step) {
                let bytes = step.min(first.bytes - at);
                let place = first.to + at;
                for m in chain {
                    // SAFETY: the caller guarantees it.
                    unsafe {
                        let (from, to) = (from(m).add(at), to.add(m.to + at));
                        match m.combine {
                            None => from.copy_to_nonoverlapping(to, bytes),
                            Some(f) => {
                                let into = std::slice::from_raw_parts_mut(to, bytes);
                                f.combine(dtype, into, std::slice::from_raw_parts(from, bytes));
                            }
                        }
                    }
                }
                for (_, other) in all.iter().enumerate().filter(|(i, _)| gives.is_some_and(|own| *i != own)) {
                    let result = self.segment.at(other.result as usize + place);
                    // SAFETY: the caller guarantees it.
                    unsafe { to.add(place).copy_to_nonoverlapping(result, bytes) };
                }
            }
        }
    }

    /// Posts the operand if this rank is the sender of a send. Waits for no other rank.
    ///
    /// # Safety
    /// As for `begin_exchange`.
    unsafe fn begin_send(&self, what: &Exchange, from: *const u8) -> Result<()> {
        let Exchange { op, step, operands, own, .. } = *what;
        if !matches!(op, Collective::Send { from: sender, .. } if *sender == own) {
            return Ok(());
        }
        let (segment, bytes) = (&self.segment, operands[own].bytes());
        let place = segment.place(self.rank, from, bytes);
        let operand = place.map_or_else(|| self.staging(0, bytes), Ok)?;
        if place.is_none() {
            // SAFETY: the staging memory has this many bytes, and nothing reads it now: a sender ends a send only when
            // the receiver has read the operand.
            unsafe { from.copy_to_nonoverlapping(segment.at(operand), bytes) };
        }
        let what = fingerprint(op, step, operands);
        segment.post(self.rank, SENDS, 0, Posted { what, operand: operand as u64, result: 0, at_ns: now_ns() });
        segment.phase(self.rank, SENDS).set(self.sent_at(step));
        Ok(())
    }

    /// Returns the phase in which the operand of a send at this step is posted; in the next phase, it has been read.
    fn sent_at(&self, step: usize) -> u32 {
        self.sends_from.load(Ordering::Relaxed).wrapping_add(2 * step as u32 + 1)
    }

    /// Ends a send: the receiver reads the sender's operand in place, and the sender waits until it has been read. The
    /// result of every other rank is its own operand.
    ///
    /// # Safety
    /// As for `end_exchange`; the operands must fit.
    unsafe fn end_send(
        &self,
        what: &Exchange,
        [sender, receiver]: [usize; 2],
        from: *const u8,
        to: *mut u8,
        stop: &Stop,
    ) -> Result<()> {
        let Exchange { op, step, ranks, operands, own, .. } = *what;
        let (segment, bytes) = (&self.segment, operands[own].bytes());
        let taken_at = self.sent_at(step).wrapping_add(1);
        if own == receiver {
            self.wait(op, SENDS, &[ranks[sender]], self.sent_at(step), stop)?;
            let posted = segment.posted(ranks[sender], SENDS, 0);
            if posted.what != fingerprint(op, step, operands) {
                let message = format!("rank {} is at another collective than `{op}`", ranks[sender]);
                return Err(Error::user("E0408", message).help("every rank must run the same artifact"));
            }
            if !segment.holds(posted.operand as usize, bytes) {
                return Err(Error::defect("a rank posted what is not in the memory that the ranks share"));
            }
            // SAFETY: the sender keeps these bytes until this rank has incremented its phase.
            unsafe { segment.at(posted.operand as usize).cast_const().copy_to_nonoverlapping(to, bytes) };
            self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
            segment.phase(self.rank, SENDS).set(taken_at);
            let takes = |wire: Wire| wire.takes_for(1, bytes as u64);
            return self.arrives(op, posted.at_ns, takes, stop);
        }
        if own == sender {
            self.wait(op, SENDS, &[ranks[receiver]], taken_at, stop)?;
        }
        // SAFETY: the caller guarantees it.
        unsafe { from.copy_to_nonoverlapping(to, bytes) };
        Ok(())
    }

    /// Waits until data that was posted at `at_ns` would have arrived over the emulated links, if there are any.
    fn arrives(&self, op: &Collective, at_ns: u64, takes: impl Fn(Wire) -> Duration, stop: &Stop) -> Result<()> {
        let Some(wire) = self.segment.wire() else { return Ok(()) };
        let takes = u64::try_from(takes(wire).as_nanos()).unwrap_or(u64::MAX);
        sleep_until(at_ns.saturating_add(takes), || {
            stop.check().map_err(|e| Error::user(e.code, format!("{}; `{op}` was on its way", e.message)))
        })
    }

    /// Increments this rank's phase along an axis, and returns it.
    fn next(&self, axis: usize) -> u32 {
        let word = self.segment.phase(self.rank, axis);
        let phase = word.get().wrapping_add(1);
        word.set(phase);
        phase
    }

    /// Waits until all ranks of a group have reached a phase. Errors: E0305, E0306, E0408.
    fn wait(&self, op: &Collective, lane: usize, ranks: &[usize], phase: u32, stop: &Stop) -> Result<()> {
        for &rank in ranks.iter().filter(|rank| **rank != self.rank) {
            let word = self.segment.phase(rank, lane);
            let (mut looked, looks) = (0, self.looks.load(Ordering::Relaxed));
            loop {
                let seen = word.get();
                if seen.wrapping_sub(phase) as i32 >= 0 {
                    break;
                }
                if looked < looks {
                    looked += 1;
                    std::hint::spin_loop();
                    continue;
                }
                if let Some(failed) = self.segment.failed(self.call.load(Ordering::Relaxed)) {
                    return Err(Error::user("E0408", format!("rank {failed} failed before it came to `{op}`")));
                }
                if self.is_left() {
                    return Err(Error::user("E0408", format!("rank 0 was gone before rank {rank} came to `{op}`")));
                }
                stop.check().map_err(|e| {
                    let message = format!("{}; rank {rank} had not come to `{op}`", e.message);
                    Error::user(e.code, message)
                })?;
                if looked < looks + 2 {
                    // Another rank may need this processor.
                    looked += 1;
                    std::thread::yield_now();
                    continue;
                }
                word.sleep(seen, NAP);
            }
        }
        Ok(())
    }
}

impl Link for Shared {
    fn rank(&self) -> usize {
        self.rank
    }

    unsafe fn begin_exchange(&self, what: &Exchange, from: *const u8, to: *mut u8) -> Result<()> {
        let Exchange { op, step, ranks, operands, own, result, algorithm } = *what;
        if algorithm != Algorithm::Direct {
            let message = format!("ranks that share memory have no use for the algorithm {}", algorithm.name());
            return Err(Error::user("E0408", message).help("start the ranks with an MPI launcher"));
        }
        let axis = op.mesh();
        if axis >= AXES_MAX || ranks.iter().any(|rank| *rank >= self.segment.n_ranks) {
            return Err(sardonyx_base::host::alone(op));
        }
        if let Collective::Send { .. } = *op {
            fitting(what)?;
            // SAFETY: the caller guarantees it.
            return unsafe { self.begin_send(what, from) };
        }
        self.schedule(what)?;
        let slot = (self.met[axis].fetch_add(1, Ordering::Relaxed) % 2) as usize;
        let segment = &self.segment;
        let place =
            |rank: usize, operand: &Operand| (operand.bytes() <= SMALL_MAX).then(|| segment.small(rank, axis, slot));
        let (bytes, result_bytes) = (operands[own].bytes(), result.bytes());
        let (posted_at, lies) = match (place(self.rank, &operands[own]), segment.place(self.rank, from, bytes)) {
            (Some(slot), _) => (slot, false),
            (None, Some(place)) => (place, true),
            (None, None) => (self.staging(0, bytes)?, false),
        };
        if !lies {
            // SAFETY: the slot or the staging memory has this many bytes, and nothing reads it now.
            unsafe { from.copy_to_nonoverlapping(segment.at(posted_at), bytes) };
        }
        let result_place = segment.place(self.rank, to, result_bytes);
        let made_at = result_place.map_or_else(|| self.staging(1, result_bytes), Ok)? as u64;
        let posted = Posted {
            what: fingerprint(op, step, operands),
            operand: posted_at as u64,
            result: made_at,
            at_ns: now_ns(),
        };
        segment.post(self.rank, axis, slot, posted);
        self.next(axis);
        Ok(())
    }

    unsafe fn end_exchange(&self, what: &Exchange, from: *const u8, to: *mut u8, stop: &Stop) -> Result<()> {
        let Exchange { op, ranks, operands, own, result, .. } = *what;
        if let Collective::Send { from: sender, to: receiver, .. } = *op {
            // SAFETY: the caller guarantees it.
            return unsafe { self.end_send(what, [sender, receiver], from, to, stop) };
        }
        let (segment, axis, n, result_bytes) = (&self.segment, op.mesh(), ranks.len(), result.bytes());
        let schedule = self.schedule(what)?;
        let rounds = &schedule.rounds;
        let slot = (self.met[axis].load(Ordering::Relaxed).wrapping_sub(1) % 2) as usize;
        let posted = segment.posted(self.rank, axis, slot);
        let wait = |phase| self.wait(op, axis, ranks, phase, stop);
        wait(segment.phase(self.rank, axis).get())?;
        let all: Vec<Posted> = ranks.iter().map(|rank| segment.posted(*rank, axis, slot)).collect();
        if let Some(at) = all.iter().position(|p| p.what != posted.what) {
            let message = format!("rank {at} of {n} is at another collective than `{op}`");
            return Err(Error::user("E0408", message).help("every rank must run the same artifact"));
        }
        let result_in = |p: &Posted| rounds.len() < 2 || segment.holds(p.result as usize, result_bytes);
        let inside = |(p, o): (&Posted, &Operand)| segment.holds(p.operand as usize, o.bytes()) && result_in(p);
        if !all.iter().zip(operands).all(inside) {
            return Err(Error::defect("a rank posted what is not in the memory that the ranks share"));
        }
        // The first round also writes the result to all other ranks, so that they need no second round to read it.
        let gives = rounds.len() > 1;
        let made: *mut u8 = if gives { segment.at(posted.result as usize) } else { to };
        // SAFETY: the ranges follow from the sizes of operands and results, which are within the segment; between two
        // phases, nothing writes what another rank reads.
        unsafe { self.carry(&rounds[0], &all, operands[own].dtype, made, gives.then_some(own)) };
        if gives || operands.iter().any(|o| o.bytes() > SMALL_MAX) {
            wait(self.next(axis))?;
        }
        if gives && made != to {
            // SAFETY: `made` and `to` have the bytes of the result; the other ranks write to `made` again only in the
            // next collective, which starts when this rank has entered it.
            unsafe { made.copy_to_nonoverlapping(to, result_bytes) };
        }
        if result_bytes > 0 {
            // SAFETY: the result is this rank's own again, and has this many bytes.
            op.finish(operands[own].dtype, unsafe { std::slice::from_raw_parts_mut(to, result_bytes) }, n, own);
        }
        // The later rounds, if any, were carried out by the ranks that gave their results.
        self.taken.fetch_add(schedule.taken as u64, Ordering::Relaxed);
        let last = all.iter().map(|p| p.at_ns).max().unwrap_or(0);
        self.arrives(op, last, |wire| wire.takes(rounds, own), stop)
    }

    fn arena(&self, bytes: usize) -> Option<Result<Block>> {
        if bytes > self.segment.room / 2 {
            let message = format!("the arena of a rank has {bytes} bytes, its room is smaller");
            return Some(Err(Error::user("E0304", message)));
        }
        let start = self.segment.at(self.segment.room_at(self.rank));
        Some(Ok(Block::new(start.expose_provenance() as Address, bytes, self.segment.clone())))
    }

    fn taken_bytes(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    fn expect_threads(&self, per_rank: usize) {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let crowded = self.segment.n_ranks.saturating_mul(per_rank) > processors;
        self.looks.store(if crowded { 0 } else { LOOKS }, Ordering::Relaxed);
    }

    fn fail(&self, error: &Error) {
        self.segment.fail(self.call.load(Ordering::Relaxed), self.rank, &serialize_error(error));
    }

    fn failed(&self) -> Option<(usize, Box<Error>)> {
        let first = self.segment.failed(self.call.load(Ordering::Relaxed))?;
        Some((first, parse_error(&self.segment.why(first), first)))
    }

    fn give(&self, order: Order, inputs: &[(&str, TensorView)]) -> Result<()> {
        let (segment, call) = (&self.segment, self.call.load(Ordering::Relaxed).wrapping_add(1).max(1));
        let at = orders_at(segment);
        let (laid, end) = laid(inputs, at + ORDER_MAX);
        let (bases, run) = (self.bases(), order.run.map(|run| super::order::Run { inputs: laid.clone(), ..run }));
        let bytes = Order { call, bases: bases.clone(), run, ..order }.encode_to_vec();
        if bytes.len() > ORDER_MAX - 8 || end > segment.room_at(0) + segment.room {
            return Err(Error::user("E0304", "the inputs are larger than the memory that the ranks share"));
        }
        let tensors = laid.iter().zip(inputs).map(|(input, (_, view))| (input.at as usize, view.bytes()));
        for (at, bytes) in tensors.chain([(at, &(bytes.len() as u64).to_le_bytes()[..]), (at + 8, &bytes)]) {
            // SAFETY: within the room; this part of it is not used while all ranks are idle.
            unsafe { bytes.as_ptr().copy_to_nonoverlapping(segment.at(at), bytes.len()) };
        }
        self.begin(call, &bases);
        segment.order().set(call);
        // A rank that ended while all were idle has failed no call. Its watcher marks it as gone before it reads the
        // number of the last order, so either this check or the watcher notices.
        let gone = (1..segment.n_ranks).find_map(|rank| Some((rank, self.members().gone(rank)?)));
        if let Some((rank, why)) = gone {
            let error = Error::user("E0408", format!("it {why}")).help("load the model again");
            segment.fail(call, rank, &serialize_error(&error));
        }
        Ok(())
    }

    fn await_idle(&self, stop: Option<&Stop>) -> Result<()> {
        let (segment, call) = (&self.segment, self.call.load(Ordering::Relaxed));
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
                if let Some(why) = self.members().gone(rank) {
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

    fn take(&self) -> Result<(Order, Payload)> {
        let (word, done) = (self.segment.order(), self.call.load(Ordering::Relaxed));
        let begun = Instant::now();
        loop {
            let seen = word.get();
            if seen != done {
                self.begin(seen, &[]);
                break;
            }
            if !self.is_crowded() && begun.elapsed() < LOOK {
                std::hint::spin_loop();
                continue;
            }
            if self.is_left() {
                return Err(Error::user("E0408", "rank 0 is gone"));
            }
            word.sleep(seen, 5 * NAP);
        }
        let at = orders_at(&self.segment);
        // SAFETY: within the first rank's room, which is not written before all ranks have ended the order.
        let bytes = unsafe {
            let n = self.segment.at(at).cast::<u64>().read_unaligned() as usize;
            std::slice::from_raw_parts(self.segment.at(at + 8), n.min(ORDER_MAX - 8))
        };
        let order = Order::decode(bytes).map_err(|e| Error::defect(format!("an order does not decode: {e}")))?;
        self.begin(order.call, &order.bases);
        Ok((order, Payload::Shared(self.segment.clone())))
    }

    fn done(&self) {
        self.segment.idle(self.rank).set(self.call.load(Ordering::Relaxed));
    }

    fn end(&self) {
        // Ranks that are in a call have been told that it failed, and are about to end it.
        let begun = Instant::now();
        let (call, n) = (self.call.load(Ordering::Relaxed), self.segment.n_ranks);
        let idle = || (1..n).all(|r| self.segment.idle(r).get() == call || self.members().gone(r).is_some());
        while !idle() && begun.elapsed() < END {
            std::thread::sleep(Duration::from_millis(1));
        }
        // An empty order is never too long.
        let _ = self.give(Order::default(), &[]);
        match &mut *self.members() {
            Members::Threads(threads) => {
                for thread in threads.drain(..) {
                    // A panic has already been reported.
                    let _ = thread.join();
                }
            }
            Members::Processes(all) => all.drain(..).for_each(|process| process.end(begun + 2 * END)),
        }
    }
}

impl Shared {
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Members {
    /// Returns why a rank cannot be relied on any more.
    fn gone(&self, rank: usize) -> Option<String> {
        match self {
            Members::Threads(threads) => {
                threads.get(rank - 1).filter(|t| t.is_finished()).map(|_| "has ended".to_string())
            }
            Members::Processes(all) => all.get(rank - 1).and_then(Process::gone),
        }
    }
}

/// Returns a hash of a collective with its step and operands. All ranks must compute the same value.
fn fingerprint(op: &Collective, step: usize, operands: &[Operand]) -> u64 {
    let mut hash = DefaultHasher::new();
    (op, step).hash(&mut hash);
    // There are many sizes; one multiplication for each is enough to distinguish them.
    let sizes = operands.iter().flat_map(|o| &o.dims);
    sizes.fold(hash.finish(), |all, n| (all ^ *n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29))
}

/// Returns the offset of orders: the last quarter of the first rank's room.
fn orders_at(segment: &Segment) -> usize {
    segment.room_at(0) + segment.room / 4 * 3
}

#[cfg(test)]
mod tests;
