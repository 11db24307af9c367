//! collective, what each rank brings  =>  what each rank copies and combines, round by round
//!
//! A schedule is data: whatever carries the bytes executes it, and tests count it. In each round a rank takes ranges of the
//! operands and of the results of other ranks, as they were when the round before it had ended everywhere. Reductions
//! combine in the order of the ranks, so that bits do not depend on who computes them.

use super::link::Exchange;
use sardonyx_base::host::{Collective, part};
use sardonyx_base::reduction::Reduction;
use sardonyx_base::{DType, Error, Result};
use std::collections::VecDeque;
use std::ops::Range;

/// What a rank brings to a collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    pub dtype: DType,
    pub dims: Vec<usize>,
}

impl Operand {
    pub fn bytes(&self) -> usize {
        self.dims.iter().product::<usize>() * self.dtype.bytes()
    }
}

/// Whose bytes, and which of its two buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Operand(usize),
    Result(usize),
}

impl Source {
    pub fn rank(self) -> usize {
        match self {
            Source::Operand(rank) | Source::Result(rank) => rank,
        }
    }
}

/// Bytes that a rank takes into its own result: as they are, or combined with those that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub from: Source,
    pub at: usize,
    pub to: usize,
    pub bytes: usize,
    pub combine: Option<Reduction>,
}

/// What one rank does: rounds of moves, in their order.
pub type Rounds = Vec<Vec<Move>>;

/// The result of a rank of a group, where all fit each other. Errors: E0303.
pub fn result(op: &Collective, operands: &[Operand], rank: usize) -> Result<Operand> {
    let first = &operands[0];
    let unfit = || {
        let all: Vec<String> = operands.iter().map(|o| format!("{} {:?}", o.dtype, o.dims)).collect();
        Error::user("E0303", format!("the ranks bring {} to `{op}`", all.join(", ")))
    };
    let but = |o: &Operand, dim: usize| {
        let mut dims = o.dims.clone();
        dims.remove(dim);
        dims
    };
    let joined = match *op {
        Collective::AllReduce { .. } | Collective::ReduceScatter { .. } => None,
        Collective::AllGather { dim, .. } => Some(dim),
        Collective::AllToAll { join, .. } => Some(join),
    };
    if !op.admits(first.dtype, first.dims.len()) {
        return Err(unfit());
    }
    let same = |o: &Operand| {
        let dims = match joined {
            None => o.dims == first.dims,
            Some(dim) => o.dims.len() == first.dims.len() && but(o, dim) == but(first, dim),
        };
        dims && o.dtype == first.dtype
    };
    if !operands.iter().all(same) {
        return Err(unfit());
    }
    let mut dims = first.dims.clone();
    if let Some(dim) = joined {
        dims[dim] = operands.iter().map(|o| o.dims[dim]).sum();
    }
    if let Collective::ReduceScatter { dim, .. } | Collective::AllToAll { split: dim, .. } = *op {
        dims[dim] = part(dims[dim], operands.len(), rank).len();
    }
    Ok(Operand { dtype: first.dtype, dims })
}

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

/// Up to so many bytes everybody combines everything: a second round would take longer.
const SMALL_MAX: usize = super::segment::SMALL_MAX;

/// The rounds of one rank. The operands fit each other ([`result`]).
pub fn direct(op: &Collective, operands: &[Operand], rank: usize) -> Rounds {
    let n = operands.len();
    match *op {
        Collective::AllReduce { f, .. } => {
            let (bytes, width) = (operands[0].bytes(), operands[0].dtype.bytes().max(1));
            if bytes <= SMALL_MAX {
                return vec![reduced(f, n, 0..bytes, 0)];
            }
            // Whole cache lines, so that nobody writes to another's.
            let lines = |r: usize| part(bytes.div_ceil(LINE), n, r);
            let share = |r: usize| (lines(r).start * LINE).min(bytes)..(lines(r).end * LINE).min(bytes);
            debug_assert!(LINE.is_multiple_of(width));
            let others = (1..n).map(|i| (rank + i) % n).filter(|r| !share(*r).is_empty());
            let taken = others.map(|r| Move {
                from: Source::Result(r),
                at: share(r).start,
                to: share(r).start,
                bytes: share(r).len(),
                combine: None,
            });
            vec![reduced(f, n, share(rank), share(rank).start), taken.collect()]
        }
        Collective::AllGather { dim, .. } => vec![joined(operands, dim, |_| None)],
        Collective::ReduceScatter { f, dim, .. } => {
            let runs = runs(&operands[0], dim, part(operands[0].dims[dim], n, rank));
            let mut to = 0;
            let mut moves = vec![];
            for run in runs {
                let bytes = run.len();
                moves.extend(reduced(f, n, run, to));
                to += bytes;
            }
            vec![moves]
        }
        Collective::AllToAll { split, join, .. } => {
            vec![joined(operands, join, |o| Some((split, part(o.dims[split], n, rank))))]
        }
    }
}

const LINE: usize = 64;

/// The same range of all operands, combined in the order of the ranks.
fn reduced(f: Reduction, n: usize, range: Range<usize>, to: usize) -> Vec<Move> {
    let one = |r: usize| {
        let combine = (r > 0).then_some(f);
        Move { from: Source::Operand(r), at: range.start, to, bytes: range.len(), combine }
    };
    if range.is_empty() { vec![] } else { (0..n).map(one).collect() }
}

/// The byte ranges of a part along a dimension, in order.
fn runs(o: &Operand, dim: usize, part: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let inner = o.dims[dim + 1..].iter().product::<usize>() * o.dtype.bytes();
    let (outer, n) = (o.dims[..dim].iter().product::<usize>(), o.dims[dim]);
    let run = move |at: usize| (at * n + part.start) * inner..(at * n + part.end) * inner;
    (0..outer).map(run).filter(|r| !r.is_empty())
}

/// What each rank brings one behind the other along a dimension; of each operand only a part along another one, where there
/// is one.
fn joined(operands: &[Operand], dim: usize, part: impl Fn(&Operand) -> Option<(usize, Range<usize>)>) -> Vec<Move> {
    // Of each operand, what is taken in order, and how much of it goes to a run of the result.
    let mut sources: Vec<(VecDeque<Range<usize>>, usize)> = vec![];
    let mut outer = 1;
    for o in operands {
        let (along, taken) = part(o).unwrap_or((dim, 0..o.dims[dim]));
        let mut dims = o.dims.clone();
        dims[along] = taken.len();
        outer = dims[..dim].iter().product();
        sources.push((runs(o, along, taken).collect(), dims[dim..].iter().product::<usize>() * o.dtype.bytes()));
    }
    let (mut moves, mut to) = (vec![], 0);
    for _ in 0..outer {
        for (rank, (pieces, run)) in sources.iter_mut().enumerate() {
            let mut left = *run;
            while let (Some(piece), true) = (pieces.front_mut(), left > 0) {
                let bytes = piece.len().min(left);
                let at = piece.start;
                moves.push(Move { from: Source::Operand(rank), at, to, bytes, combine: None });
                (to, left) = (to + bytes, left - bytes);
                piece.start += bytes;
                if piece.start == piece.end {
                    pieces.pop_front();
                }
            }
        }
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_base::Tensor;

    /// Bytes that a rank takes from each other one in all rounds.
    fn carried(rounds: &Rounds, rank: usize, n: usize) -> Vec<usize> {
        let mut bytes = vec![0; n];
        for moved in rounds.iter().flatten().filter(|m| m.from.rank() != rank) {
            bytes[moved.from.rank()] += moved.bytes;
        }
        bytes
    }

    /// All ranks by their schedules, one after the other in each round.
    fn executed(op: &Collective, operands: &[Tensor]) -> Vec<Tensor> {
        let described: Vec<Operand> =
            operands.iter().map(|t| Operand { dtype: t.dtype(), dims: t.dims().to_vec() }).collect();
        let n = operands.len();
        let results: Vec<Operand> = (0..n).map(|r| result(op, &described, r).unwrap()).collect();
        let rounds: Vec<Rounds> = (0..n).map(|r| direct(op, &described, r)).collect();
        let mut buffers: Vec<Vec<u8>> = results.iter().map(|r| vec![0; r.bytes()]).collect();
        for round in 0..rounds.iter().map(Vec::len).max().unwrap() {
            let before = buffers.clone();
            for (rank, own) in buffers.iter_mut().enumerate() {
                for m in rounds[rank].get(round).into_iter().flatten() {
                    let bytes = match m.from {
                        Source::Operand(r) => &operands[r].bytes()[m.at..m.at + m.bytes],
                        Source::Result(r) => &before[r][m.at..m.at + m.bytes],
                    };
                    let to = &mut own[m.to..m.to + m.bytes];
                    match m.combine {
                        None => to.copy_from_slice(bytes),
                        Some(f) => f.combine(operands[0].dtype(), to, bytes),
                    }
                }
            }
        }
        let tensor = |(r, bytes): (Operand, Vec<u8>)| Tensor::new(r.dtype, r.dims, bytes.into()).unwrap();
        results.into_iter().zip(buffers).map(tensor).collect()
    }

    fn tensors(dims: &[Vec<usize>], dtype: DType) -> Vec<Tensor> {
        let mut seed = 1u64;
        let one = |dims: &Vec<usize>| {
            let n = dims.iter().product::<usize>() * dtype.bytes();
            let bytes: Vec<u8> = (0..n)
                .map(|_| {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (seed >> 60) as u8
                })
                .collect();
            Tensor::new(dtype, dims.clone(), bytes.into()).unwrap()
        };
        dims.iter().map(one).collect()
    }

    #[test]
    fn every_rank_gets_what_the_operation_means() {
        for n in [1, 2, 3, 4, 5, 8] {
            for text in [
                "AllReduce mesh=0 by=add",
                "AllReduce mesh=0 by=max",
                "AllGather mesh=0 dim=0",
                "AllGather mesh=0 dim=1",
                "ReduceScatter mesh=0 by=mul dim=1",
                "ReduceScatter mesh=0 by=add dim=0",
                "AllToAll mesh=0 split=0 join=1",
                "AllToAll mesh=0 split=2 join=0",
            ] {
                for dims in [vec![4, 6, 5], vec![3, 1, 7], vec![0, 2, 3], vec![64, 3, 33]] {
                    let op = Collective::parse(text).unwrap();
                    let of_rank = |r: usize| {
                        let mut dims = dims.clone();
                        if let Collective::AllGather { dim, .. } = op {
                            dims[dim] = part(dims[dim], n, r).len();
                        }
                        dims
                    };
                    let all: Vec<Vec<usize>> = (0..n).map(of_rank).collect();
                    for dtype in [DType::F32, DType::I8, DType::F64, DType::BF16] {
                        let operands = tensors(&all, dtype);
                        for (rank, got) in executed(&op, &operands).into_iter().enumerate() {
                            let wanted = op.result(&operands, rank).unwrap();
                            assert_eq!((got.dims(), got.bytes()), (wanted.dims(), wanted.bytes()), "{text} {all:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_rank_takes_as_much_as_it_must() {
        let operand = Operand { dtype: DType::F32, dims: vec![8, 1024] };
        for n in [2, 3, 4, 8] {
            let operands = vec![operand.clone(); n];
            let taken = |text: &str| {
                let rounds = direct(&Collective::parse(text).unwrap(), &operands, 1);
                carried(&rounds, 1, n).iter().sum::<usize>()
            };
            let bytes = operand.bytes();
            let share = part(bytes / 64, n, 1).len() * 64;
            // What it combines of the others, and what they have combined.
            assert_eq!(taken("AllReduce mesh=0 by=add"), (n - 1) * share + bytes - share);
            assert_eq!(taken("AllGather mesh=0 dim=0"), (n - 1) * bytes);
            assert_eq!(taken("ReduceScatter mesh=0 by=add dim=0"), (n - 1) * part(8, n, 1).len() * 4096);
        }
    }

    #[test]
    fn operands_that_do_not_fit_are_refused() {
        let of = |dims: &[usize]| Operand { dtype: DType::F32, dims: dims.to_vec() };
        let op = Collective::parse("AllReduce mesh=0 by=add").unwrap();
        let error = result(&op, &[of(&[2]), of(&[3])], 0).unwrap_err();
        assert_eq!((error.code, error.message.contains("f32 [2], f32 [3]")), ("E0303", true), "{error}");
    }
}
