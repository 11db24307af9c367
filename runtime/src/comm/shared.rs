//! a collective among ranks that share memory
//!
//! A rank posts where its operand is, and counts its phase on. When all others of its group have done so too, it reads
//! theirs. What is small is copied to a slot beside the description, of which there are two: a rank fills one again only
//! when all have met at the next collective, and so have read it. Of larger operands the arena itself is read, and the ranks
//! wait for each other once more before they go on.

use super::schedule::{Move, Operand, Rounds, Source, direct, result};
use super::segment::{AXES_MAX, DIMS_MAX, Posted, SMALL_MAX, Segment};
use crate::device::{Address, Block};
use crate::stop::Stop;
use sardonyx_base::host::Collective;
use sardonyx_base::{DType, Error, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A rank's way to the others of its mesh. One call at a time uses it.
pub struct Rank {
    pub segment: Arc<Segment>,
    pub rank: usize,
    /// How many ranks there are along each axis; the last one is that along which neighbours are.
    mesh: Vec<usize>,
    /// The call that it is in.
    call: AtomicU32,
    /// By axis: how many collectives the call has met so far.
    met: [AtomicU32; AXES_MAX],
    /// How often a word is looked at before sleeping.
    looks: AtomicU32,
    /// The process that orders what this one does, where it is another.
    leader: Option<libc::pid_t>,
    /// The last schedules, for operands as they were posted.
    known: Mutex<Vec<(Collective, Vec<Posted>, Arc<Rounds>)>>,
}

/// One collective of one rank.
pub struct Exchange<'a> {
    pub op: &'a Collective,
    /// The same on all ranks.
    pub step: usize,
    pub operand: &'a Operand,
    pub result: &'a Operand,
}

/// Schedules kept: a model has few shapes of operands.
const KNOWN_MAX: usize = 64;
/// Looks at a word before a rank that has a processor of its own sleeps: some ten microseconds.
const LOOKS: u32 = 4000;
/// How long a sleeping rank does not look at deadlines and failures.
const NAP: Duration = Duration::from_millis(20);
/// What is combined at once, so that it stays in the nearest cache.
const CHUNK: usize = 16 << 10;

impl Rank {
    pub fn new(segment: Arc<Segment>, rank: usize, mesh: Vec<usize>) -> Rank {
        let (call, met, known) = (AtomicU32::new(0), Default::default(), Mutex::default());
        Rank { segment, rank, mesh, call, met, looks: AtomicU32::new(0), leader: None, known }
    }

    pub fn led_by(self, leader: libc::pid_t) -> Rank {
        Rank { leader: Some(leader), ..self }
    }

    /// Whether the process that orders is gone.
    pub fn is_left(&self) -> bool {
        // SAFETY: it only asks.
        self.leader.is_some_and(|pid| unsafe { libc::getppid() } != pid)
    }

    /// A rank that has a processor of its own waits without sleeping for a while.
    pub fn expect_threads(&self, per_rank: usize) {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let crowded = self.segment.n_ranks.saturating_mul(per_rank) > processors;
        self.looks.store(if crowded { 0 } else { LOOKS }, Ordering::Relaxed);
    }

    pub fn is_crowded(&self) -> bool {
        self.looks.load(Ordering::Relaxed) == 0
    }

    /// Takes part in a call from its start on. `bases` are beyond all phases of the calls before.
    pub fn begin(&self, call: u32, bases: &[u32]) {
        self.call.store(call, Ordering::Relaxed);
        for (axis, base) in bases.iter().enumerate().take(AXES_MAX) {
            self.met[axis].store(0, Ordering::Relaxed);
            self.segment.phase(self.rank, axis).set(*base);
        }
    }

    /// What the phases of the next call may begin at, when no rank is in one.
    pub fn bases(&self) -> Vec<u32> {
        let phases = |axis| (0..self.segment.n_ranks).map(move |rank| self.segment.phase(rank, axis).get());
        // Counted from an own phase, they are near each other, whatever their values.
        let furthest = |axis| {
            let own = self.segment.phase(self.rank, axis).get();
            let ahead = phases(axis).map(|p| p.wrapping_sub(own) as i32).max().unwrap_or(0);
            own.wrapping_add_signed(ahead)
        };
        (0..AXES_MAX).map(furthest).collect()
    }

    /// Ends the call for all ranks.
    pub fn fail(&self, error: &Error) {
        self.segment.fail(self.call.load(Ordering::Relaxed), self.rank, &super::order::told(error));
    }

    /// The first rank that failed in the call that this one is in.
    pub fn failed(&self) -> Option<usize> {
        self.segment.failed(self.call.load(Ordering::Relaxed))
    }

    /// Memory at the start of the rank's room: the same for every call, grown in place. Errors: E0304.
    pub fn arena(&self, bytes: usize) -> Result<Block> {
        if bytes > self.segment.room / 2 {
            return Err(Error::user("E0304", format!("the arena of a rank has {bytes} bytes, its room is smaller")));
        }
        let start = self.segment.at(self.segment.room_at(self.rank));
        Ok(Block::new(start.expose_provenance() as Address, bytes, self.segment.clone()))
    }

    /// The ranks that meet along an axis, in order, and which of them this one is.
    fn group(&self, axis: usize) -> Option<(impl Fn(usize) -> usize + Clone, usize, usize)> {
        let n = *self.mesh.get(axis)?;
        let stride: usize = self.mesh[axis + 1..].iter().product();
        let own = self.rank / stride % n;
        let first = self.rank - own * stride;
        Some((move |at| first + at * stride, n, own))
    }

    /// Computes the result of a collective.
    ///
    /// # Safety
    /// `from` has the bytes of the operand and `to` those of the result; they do not overlap, and nobody else uses them.
    pub unsafe fn exchange(&self, what: &Exchange, from: *const u8, to: *mut u8, stop: &Stop) -> Result<()> {
        let Exchange { op, step, operand, .. } = *what;
        let axis = op.mesh();
        let (member, n, own) = self.group(axis).ok_or_else(|| sardonyx_base::host::alone(op))?;
        let slot = (self.met[axis].fetch_add(1, Ordering::Relaxed) % 2) as usize;
        let (bytes, result_bytes) = (operand.bytes(), what.result.bytes());
        let small = bytes <= SMALL_MAX;
        let segment = &self.segment;
        let (posted_at, lies) = match segment.place(self.rank, from, bytes) {
            _ if small => (segment.small(self.rank, axis, slot), false),
            Some(place) => (place, true),
            None => (self.staging(0, bytes)?, false),
        };
        if !lies {
            // SAFETY: the slot or the room has so many bytes, which nobody reads now.
            unsafe { from.copy_to_nonoverlapping(segment.at(posted_at), bytes) };
        }
        let result_place = segment.place(self.rank, to, result_bytes);
        let made_at = result_place.map_or_else(|| self.staging(1, result_bytes), Ok)?;
        let posted = self.posted(op, step, operand, posted_at, made_at)?;
        segment.post(self.rank, axis, slot, posted);
        let wait = |phase| self.wait(axis, member.clone(), n, own, phase, stop, op);
        wait(self.next(axis))?;
        let all: Vec<Posted> = (0..n).map(|at| segment.posted(member(at), axis, slot)).collect();
        let rounds = self.rounds(what, &all, own)?;
        let shared = rounds.len() > 1;
        // What others take from must lie where they see it.
        let made: *mut u8 = if shared { segment.at(made_at) } else { to };
        for (i, round) in rounds.iter().enumerate() {
            if i > 0 {
                wait(self.next(axis))?;
            }
            // SAFETY: the ranges were made from the sizes of operands and results, of which `rounds` has checked that they
            // lie in the segment; between two phases nobody writes what another reads.
            unsafe { self.carry(round, &all, operand.dtype, made) };
        }
        if shared && result_place.is_none() {
            // SAFETY: both have the bytes of the result.
            unsafe { made.copy_to_nonoverlapping(to, result_bytes) };
        }
        if shared || all.iter().zip(0..).any(|(p, at)| p.operand != segment.small(member(at), axis, slot) as u64) {
            wait(self.next(axis))?;
        }
        Ok(())
    }

    fn staging(&self, half: usize, bytes: usize) -> Result<usize> {
        let size = self.segment.room / 8;
        match bytes <= size {
            true => Ok(self.segment.staging(self.rank) + half * size),
            false => Err(Error::user("E0304", format!("{bytes} bytes are exchanged at once, at most {size} can be"))),
        }
    }

    fn posted(&self, op: &Collective, step: usize, operand: &Operand, at: usize, result: usize) -> Result<Posted> {
        let mut dims = [0; DIMS_MAX];
        if operand.dims.len() > DIMS_MAX {
            let n = operand.dims.len();
            return Err(Error::user("E0202", format!("an operand of `{op}` has {n} dimensions, at most {DIMS_MAX}")));
        }
        dims.iter_mut().zip(&operand.dims).for_each(|(to, n)| *to = *n as u64);
        let mut hash = DefaultHasher::new();
        (op, step).hash(&mut hash);
        Ok(Posted {
            what: hash.finish(),
            dtype: operand.dtype.onnx_code(),
            rank: operand.dims.len() as u32,
            dims,
            operand: at as u64,
            result: result as u64,
        })
    }

    /// The rounds of this rank, where all fit each other.
    fn rounds(&self, what: &Exchange, all: &[Posted], own: usize) -> Result<Arc<Rounds>> {
        let unplaced = |p: &Posted| Posted { operand: 0, result: 0, what: 0, ..*p };
        if let Some(at) = all.iter().position(|p| p.what != all[own].what) {
            let message = format!("rank {at} of {} is at another collective than `{}`", all.len(), what.op);
            return Err(Error::user("E0408", message).help("every rank must run the same artifact"));
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(op, of, _): &&(Collective, Vec<Posted>, Arc<Rounds>)| {
            op == what.op && of.iter().copied().eq(all.iter().map(unplaced))
        };
        let found = known.iter().find(same).map(|(.., rounds)| rounds.clone());
        let operands = || all.iter().map(described).collect::<Result<Vec<Operand>>>();
        let rounds = match found {
            Some(rounds) => rounds,
            None => {
                let operands = operands()?;
                let wanted = result(what.op, &operands, own)?;
                if wanted != *what.result {
                    let (has, wants) = (&wanted.dims, &what.result.dims);
                    return Err(Error::user("E0303", format!("the result of `{}` is {has:?}, not {wants:?}", what.op)));
                }
                let rounds = Arc::new(direct(what.op, &operands, own));
                known.truncate(KNOWN_MAX - 1);
                known.insert(0, (*what.op, all.iter().map(unplaced).collect(), rounds.clone()));
                rounds
            }
        };
        let width = what.operand.dtype.bytes();
        let bytes = |p: &Posted| p.dims[..p.rank as usize].iter().product::<u64>() as usize * width;
        let inside = |p: &Posted| self.segment.holds(p.operand as usize, bytes(p));
        match all.iter().all(inside) {
            true => Ok(rounds),
            false => Err(Error::defect("a rank posted what is not in the memory that the ranks share")),
        }
    }

    /// # Safety
    /// The ranges are within operands and results, and nobody writes what is read.
    unsafe fn carry(&self, round: &[Move], all: &[Posted], dtype: DType, to: *mut u8) {
        let from = |m: &Move| match m.from {
            Source::Operand(at) => self.segment.at(all[at].operand as usize + m.at).cast_const(),
            Source::Result(at) => self.segment.at(all[at].result as usize + m.at).cast_const(),
        };
        let mut rest = round;
        while let Some(first) = rest.first() {
            // One range, as it is, and those that are combined with it.
            let n = 1 + rest[1..].iter().take_while(|m| m.combine.is_some() && m.to == first.to).count();
            let (chain, after) = rest.split_at(n);
            rest = after;
            let step = if n > 1 { CHUNK } else { first.bytes.max(1) };
            for at in (0..first.bytes).step_by(step) {
                let bytes = step.min(first.bytes - at);
                for m in chain {
                    // SAFETY: as the caller says.
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
            }
        }
    }

    /// Counts the own phase on.
    fn next(&self, axis: usize) -> u32 {
        let word = self.segment.phase(self.rank, axis);
        let phase = word.get().wrapping_add(1);
        word.set(phase);
        phase
    }

    /// Waits until all of a group have come to a phase. Errors: E0305, E0306, E0408.
    #[expect(clippy::too_many_arguments, reason = "what is waited for, and what is said where nobody comes")]
    fn wait(
        &self,
        axis: usize,
        member: impl Fn(usize) -> usize,
        n: usize,
        own: usize,
        phase: u32,
        stop: &Stop,
        op: &Collective,
    ) -> Result<()> {
        for at in (0..n).filter(|at| *at != own) {
            let rank = member(at);
            let word = self.segment.phase(rank, axis);
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
                if let Some(failed) = self.failed() {
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
                    // Perhaps another rank wants this processor.
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

fn described(posted: &Posted) -> Result<Operand> {
    let unknown = || Error::defect("a rank posted an operand of no type");
    let dtype = DType::from_onnx(posted.dtype).ok_or_else(unknown)?;
    let dims = posted.dims.get(..posted.rank as usize).ok_or_else(unknown)?;
    Ok(Operand { dtype, dims: dims.iter().map(|n| *n as usize).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::RunOptions;
    use sardonyx_base::Tensor;
    use std::time::Instant;

    fn tensor(dtype: DType, dims: &[usize], seed: usize) -> Tensor {
        let n = dims.iter().product::<usize>() * dtype.bytes();
        let mut state = seed as u64 + 1;
        let bytes: Vec<u8> = (0..n)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                // Small digits: no NaN, whose bits nobody promises.
                (state >> 61) as u8
            })
            .collect();
        Tensor::new(dtype, dims.to_vec(), bytes.into()).unwrap()
    }

    /// What each rank gets of collectives in a row, each on a thread; `brings` says what a rank brings to which.
    fn exchanged(
        mesh: &[usize],
        ops: &[Collective],
        brings: &(dyn Fn(usize, usize) -> Tensor + Sync),
        options: &RunOptions,
        absent: Option<usize>,
    ) -> Vec<Result<Vec<Tensor>>> {
        let segment = Arc::new(Segment::private(mesh.iter().product()).unwrap());
        let run = |at: usize| {
            let rank = Rank::new(segment.clone(), at, mesh.to_vec());
            rank.begin(1, &[7; AXES_MAX]);
            let mut all = vec![];
            for (step, op) in ops.iter().enumerate() {
                let operand = brings(at, step);
                let described = |t: &Tensor| Operand { dtype: t.dtype(), dims: t.dims().to_vec() };
                let (_, n, own) = rank.group(op.mesh()).unwrap();
                let stride: usize = mesh[op.mesh() + 1..].iter().product();
                let group: Vec<Tensor> = (0..n).map(|i| brings(at - own * stride + i * stride, step)).collect();
                let wanted = described(&op.result(&group, own).unwrap());
                let mut bytes = vec![0; wanted.bytes()];
                let what = Exchange { op, step, operand: &described(&operand), result: &wanted };
                let stop = Stop::new(options);
                // SAFETY: both have the bytes that are said.
                unsafe { rank.exchange(&what, operand.bytes().as_ptr(), bytes.as_mut_ptr(), &stop) }?;
                all.push(Tensor::new(wanted.dtype, wanted.dims, bytes.into())?);
            }
            Ok(all)
        };
        std::thread::scope(|scope| {
            let started: Vec<_> = (0..segment.n_ranks)
                .map(|at| scope.spawn(move || if absent == Some(at) { Ok(vec![]) } else { run(at) }))
                .collect();
            started.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn ranks_get_what_collectives_mean() {
        let texts = [
            "AllReduce mesh=0 by=add",
            "AllReduce mesh=0 by=max",
            "AllGather mesh=0 dim=1",
            "ReduceScatter mesh=0 by=add dim=0",
            "AllToAll mesh=0 split=0 join=1",
        ];
        let ops: Vec<Collective> = texts.iter().map(|t| Collective::parse(t).unwrap()).collect();
        for n in [1, 2, 3, 4, 5, 6, 7, 8, 12, 16] {
            for (dtype, dims) in [
                (DType::F32, vec![3, 5]),
                (DType::I64, vec![1, 1]),
                (DType::F64, vec![0, 4]),
                (DType::BF16, vec![17, 333]),
                (DType::I8, vec![64, 256]),
            ] {
                let brings = |rank: usize, step: usize| {
                    let mut dims = dims.clone();
                    if let Collective::AllGather { dim, .. } = ops[step] {
                        dims[dim] = sardonyx_base::host::part(dims[dim], n, rank).len();
                    }
                    tensor(dtype, &dims, rank * 31 + step)
                };
                let all = exchanged(&[n], &ops, &brings, &RunOptions::default(), None);
                for (step, op) in ops.iter().enumerate() {
                    let operands: Vec<Tensor> = (0..n).map(|rank| brings(rank, step)).collect();
                    for (rank, got) in all.iter().enumerate() {
                        let (got, wanted) = (&got.as_ref().unwrap()[step], op.result(&operands, rank).unwrap());
                        assert_eq!((got.dims(), got.bytes()), (wanted.dims(), wanted.bytes()), "{op} {n} {dtype}");
                    }
                }
            }
        }
    }

    #[test]
    fn groups_of_a_grid_meet_by_themselves() {
        let ops = ["AllReduce mesh=1 by=add", "AllGather mesh=0 dim=0"].map(|t| Collective::parse(t).unwrap());
        let brings = |rank: usize, _: usize| Tensor::from_vec(vec![1], vec![rank as i64]);
        let all = exchanged(&[2, 3], &ops, &brings, &RunOptions::default(), None);
        let got = all[4].as_ref().unwrap();
        assert_eq!(got[0].to_vec::<i64>(), Some(vec![3 + 4 + 5]));
        assert_eq!(got[1].to_vec::<i64>(), Some(vec![1, 4]));
    }

    #[test]
    fn who_does_not_come_is_named_at_the_deadline() {
        let ops = [Collective::parse("AllReduce mesh=0 by=add").unwrap()];
        let brings = |rank: usize, _: usize| Tensor::from_vec(vec![1], vec![rank as i64]);
        let options = RunOptions { deadline: Some(Instant::now() + Duration::from_millis(50)), cancel: None };
        let all = exchanged(&[3], &ops, &brings, &options, Some(1));
        let error = all[0].as_ref().unwrap_err();
        assert_eq!(error.code, "E0305");
        assert!(error.message.ends_with("rank 1 had not come to `AllReduce mesh=0 by=add`"), "{error}");
    }

    #[test]
    fn ranks_at_different_collectives_find_out() {
        let ops = ["AllReduce mesh=0 by=add", "AllReduce mesh=0 by=max"].map(|t| Collective::parse(t).unwrap());
        let segment = Arc::new(Segment::private(2).unwrap());
        let run = |at: usize| {
            let rank = Rank::new(segment.clone(), at, vec![2]);
            rank.begin(1, &[0; AXES_MAX]);
            let operand = Operand { dtype: DType::I64, dims: vec![1] };
            let what = Exchange { op: &ops[at], step: 0, operand: &operand, result: &operand };
            let (from, mut to) = ([0u8; 8], [0u8; 8]);
            // SAFETY: both have 8 bytes.
            unsafe { rank.exchange(&what, from.as_ptr(), to.as_mut_ptr(), &Stop::new(&RunOptions::default())) }
        };
        let other = std::thread::scope(|scope| {
            let other = scope.spawn(|| run(1));
            assert_eq!(run(0).unwrap_err().code, "E0408");
            other.join().unwrap()
        });
        assert_eq!(other.unwrap_err().message, "rank 0 of 2 is at another collective than `AllReduce mesh=0 by=max`");
    }
}
