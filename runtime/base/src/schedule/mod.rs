//! collective, operands of all ranks  =>  what each rank copies and combines, round by round
//!
//! A schedule is data: any transport can execute it, and tests can count its bytes. In each round a rank reads ranges
//! of the operands and of the results of other ranks, as they were when the previous round had ended on all ranks. The
//! schedule fixes the order in which reductions combine, so the bits of the results do not depend on the transport.

pub mod algorithms;

pub use algorithms::Algorithm;

use crate::host::{Collective, halo, part};
use crate::reduction::Reduction;
use crate::{DType, Error, Result};
use std::collections::VecDeque;
use std::ops::Range;

/// Type and dimensions of a rank's operand of a collective.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Element type, of fixed width.
    pub dtype: DType,
    /// Extent of each axis, outermost first.
    pub dims: Vec<usize>,
}

impl Operand {
    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.dims.iter().product::<usize>() * self.dtype.bytes()
    }
}

/// The operand or the result of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The operand of this rank.
    Operand(usize),
    /// The result of this rank, as it was when the previous round had ended.
    Result(usize),
}

impl Source {
    /// Returns the rank that holds the data.
    pub fn rank(self) -> usize {
        match self {
            Source::Operand(rank) | Source::Result(rank) => rank,
        }
    }
}

/// A range of bytes that a rank takes into its own result: copied, or combined with the bytes that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Operand or result that the bytes are read from.
    pub from: Source,
    /// Byte offset in the source.
    pub at: usize,
    /// Byte offset in the rank's own result.
    pub to: usize,
    /// Number of bytes.
    pub bytes: usize,
    /// Function that combines the bytes with those of the result; `None` if they are copied.
    pub combine: Option<Reduction>,
}

/// The rounds of one rank, each with its moves in order.
pub type Rounds = Vec<Vec<Move>>;

/// f32 operands with which the collective has a result of about `bytes` bytes.
pub fn operands_for(op: &Collective, ranks: usize, bytes: usize) -> Vec<Operand> {
    let elements = (bytes / DType::F32.bytes()).max(1);
    let dims = match *op {
        Collective::AllGather { .. } | Collective::Gather { .. } => vec![(elements / ranks).max(1)],
        Collective::AllToAll { split, join, .. } => {
            (0..=split.max(join)).map(|dim| if dim == split { elements } else { 1 }).collect()
        }
        // As many indices as a neighbour takes.
        Collective::Halo { dim, before, after, .. } => {
            let most = before.max(after).max(1);
            let dims = (0..dim).map(|_| 1).chain([most, (elements / most).max(1)]);
            dims.collect()
        }
        _ => vec![elements],
    };
    vec![Operand { dtype: DType::F32, dims }; ranks]
}

/// Type and dimensions of a rank's result, if the operands fit each other. Errors: E0303.
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
        Collective::AllGather { dim, .. } | Collective::Gather { dim, .. } => Some(dim),
        Collective::AllToAll { join, .. } => Some(join),
        Collective::AllReduce { .. } | Collective::ReduceScatter { .. } | Collective::Reduce { .. } => None,
        Collective::Broadcast { .. } | Collective::Scatter { .. } => None,
        // The parts may differ in size.
        Collective::Halo { dim, .. } => Some(dim),
        Collective::Send { .. } | Collective::Barrier { .. } => None,
    };
    if !op.admits(first.dtype, first.dims.len()) || op.named().iter().any(|rank| *rank >= operands.len()) {
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
    match *op {
        Collective::ReduceScatter { dim, .. } | Collective::Scatter { dim, .. } => {
            dims[dim] = part(dims[dim], operands.len(), rank).len();
        }
        Collective::AllToAll { split, .. } => dims[split] = part(dims[split], operands.len(), rank).len(),
        Collective::Gather { dim, root, .. } if root != rank => dims[dim] = 0,
        Collective::Halo { dim, before, after, .. } => {
            let pieces = halo(&sizes(operands, dim), [before, after], rank).ok_or_else(unfit)?;
            dims[dim] = pieces.iter().map(|(_, range)| range.len()).sum();
        }
        _ => {}
    }
    Ok(Operand { dtype: first.dtype, dims })
}

/// Operands of at most this many bytes are reduced as a whole by every rank, because a second round would take longer.
pub const SMALL_MAX: usize = 4096;

/// The rounds of one rank in the direct algorithm. The operands must fit each other (see [`result`]).
pub fn direct(op: &Collective, operands: &[Operand], rank: usize) -> Rounds {
    let n = operands.len();
    match *op {
        Collective::AllReduce { f, .. } => {
            let (bytes, width) = (operands[0].bytes(), operands[0].dtype.bytes().max(1));
            if bytes <= SMALL_MAX {
                return vec![reduced(f, n, 0..bytes, 0)];
            }
            // Shares are whole cache lines, so that no two ranks write to the same line.
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
        Collective::AllGather { dim, .. } => vec![joined(operands, dim, wholes(operands, dim))],
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
            let own = |(i, o): (usize, &Operand)| Piece { rank: i, along: split, range: part(o.dims[split], n, rank) };
            vec![joined(operands, join, operands.iter().enumerate().map(own))]
        }
        Collective::Reduce { f, root, .. } if root == rank => vec![reduced(f, n, 0..operands[0].bytes(), 0)],
        Collective::Gather { dim, root, .. } if root == rank => vec![joined(operands, dim, wholes(operands, dim))],
        Collective::Gather { .. } => vec![vec![]],
        Collective::Broadcast { root, .. } => vec![copied(operands, root)],
        Collective::Scatter { dim, root, .. } => {
            let part = part(operands[root].dims[dim], n, rank);
            let mut to = 0;
            let moved = |run: Range<usize>| {
                to += run.len();
                let (at, bytes) = (run.start, run.len());
                Move { from: Source::Operand(root), at, to: to - bytes, bytes, combine: None }
            };
            vec![runs(&operands[root], dim, part).map(moved).collect()]
        }
        Collective::Send { from, to, .. } if to == rank => vec![copied(operands, from)],
        Collective::Halo { dim, before, after, .. } => {
            // The operands fit each other, so that there are pieces.
            let pieces = halo(&sizes(operands, dim), [before, after], rank).unwrap_or_default();
            vec![joined(operands, dim, pieces.into_iter().map(|(rank, range)| Piece { rank, along: dim, range }))]
        }
        Collective::Reduce { .. } | Collective::Send { .. } | Collective::Barrier { .. } => {
            vec![copied(operands, rank)]
        }
    }
}

/// Number of indices of each operand along a dimension.
fn sizes(operands: &[Operand], dim: usize) -> Vec<usize> {
    operands.iter().map(|o| o.dims[dim]).collect()
}

/// Copies the whole operand of a rank.
fn copied(operands: &[Operand], from: usize) -> Vec<Move> {
    let bytes = operands[from].bytes();
    let one = Move { from: Source::Operand(from), at: 0, to: 0, bytes, combine: None };
    if bytes > 0 { vec![one] } else { vec![] }
}

/// Number of bytes that a rank takes from others in the direct algorithm.
pub fn taken_bytes(op: &Collective, operands: &[Operand], rank: usize) -> usize {
    bytes_of_others(&direct(op, operands, rank), rank)
}

/// Number of bytes that a rank takes from others in these rounds.
pub fn bytes_of_others(rounds: &Rounds, rank: usize) -> usize {
    let others = rounds.iter().flatten().filter(|m| m.from.rank() != rank);
    others.fold(0, |sum: usize, m| sum.saturating_add(m.bytes))
}

const LINE: usize = 64;

/// Moves that combine the same range of all operands, in rank order.
fn reduced(f: Reduction, n: usize, range: Range<usize>, to: usize) -> Vec<Move> {
    let one = |r: usize| {
        let combine = (r > 0).then_some(f);
        Move { from: Source::Operand(r), at: range.start, to, bytes: range.len(), combine }
    };
    if range.is_empty() { vec![] } else { (0..n).map(one).collect() }
}

/// The byte ranges of a slice along a dimension, in order.
fn runs(o: &Operand, dim: usize, part: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let inner = o.dims[dim + 1..].iter().product::<usize>() * o.dtype.bytes();
    let (outer, n) = (o.dims[..dim].iter().product::<usize>(), o.dims[dim]);
    let run = move |at: usize| (at * n + part.start) * inner..(at * n + part.end) * inner;
    (0..outer).map(run).filter(|r| !r.is_empty())
}

/// A slice of the operand of a rank: the indices `range` along a dimension.
struct Piece {
    rank: usize,
    along: usize,
    range: Range<usize>,
}

/// All operands as a whole.
fn wholes(operands: &[Operand], dim: usize) -> impl Iterator<Item = Piece> {
    sizes(operands, dim).into_iter().enumerate().map(move |(rank, n)| Piece { rank, along: dim, range: 0..n })
}

/// Concatenates slices of operands along `dim`.
fn joined(operands: &[Operand], dim: usize, pieces: impl Iterator<Item = Piece>) -> Vec<Move> {
    // For each slice: its rank, the byte ranges that are taken, in order, and the number of bytes for each run of the
    // result.
    let mut sources: Vec<(usize, VecDeque<Range<usize>>, usize)> = vec![];
    let mut outer = 1;
    for Piece { rank, along, range } in pieces {
        let o = &operands[rank];
        let mut dims = o.dims.clone();
        dims[along] = range.len();
        outer = dims[..dim].iter().product();
        let run = dims[dim..].iter().product::<usize>() * o.dtype.bytes();
        sources.push((rank, runs(o, along, range).collect(), run));
    }
    let (mut moves, mut to) = (vec![], 0);
    for _ in 0..outer {
        for (rank, pieces, run) in &mut sources {
            let mut left = *run;
            while let (Some(piece), true) = (pieces.front_mut(), left > 0) {
                let bytes = piece.len().min(left);
                let at = piece.start;
                moves.push(Move { from: Source::Operand(*rank), at, to, bytes, combine: None });
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
mod tests;
