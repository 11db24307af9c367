//! collectives: the operands of all ranks of a mesh axis  =>  each rank's result
//!
//! The ranks of an axis are ordered by their coordinates, and reductions combine in that order: the bits of the result
//! do not depend on which rank computes it, or on the transport.

use super::{Budget, unfit};
use crate::reduction::Reduction;
use crate::tensor::element_count;
use crate::{DType, Dim, Error, Result, Tensor};
use std::fmt;
use std::ops::Range;

/// A collective operation; `mesh` is the number of an axis of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Collective {
    /// Every rank receives the combination of all operands.
    AllReduce {
        /// Index of the axis of the mesh.
        mesh: usize,
        /// Function that combines operands.
        f: Reduction,
    },
    /// Every rank receives all operands, concatenated along a dimension.
    AllGather {
        /// Index of the axis of the mesh.
        mesh: usize,
        /// Dimension along which operands are concatenated.
        dim: usize,
    },
    /// Every rank receives its [`part`] along a dimension of the combination of all operands.
    ReduceScatter {
        /// Index of the axis of the mesh.
        mesh: usize,
        /// Function that combines operands.
        f: Reduction,
        /// Dimension of which each rank receives a part.
        dim: usize,
    },
    /// Every rank receives its [`part`] along `split` of all operands, concatenated along `join`.
    AllToAll {
        /// Index of the axis of the mesh.
        mesh: usize,
        /// Dimension of which each rank receives a part.
        split: usize,
        /// Dimension along which the parts are concatenated; not `split`.
        join: usize,
    },
    /// Every rank receives the operand of the root.
    Broadcast {
        /// Index of the axis of the mesh.
        mesh: usize,
        /// Position of the sender along the axis.
        root: usize,
    },
    /// The root receives the combination of all operands; the other ranks keep their own operand.
    Reduce {
        /// Index of the axis of the mesh.
        mesh: usize,
        /// Function that combines operands.
        f: Reduction,
        /// Position of the receiver along the axis.
        root: usize,
    },
    /// The root receives all operands, concatenated along a dimension; the other ranks receive an empty tensor.
    Gather {
        /// Index of the axis of the mesh.
        mesh: usize,
        /// Dimension along which operands are concatenated.
        dim: usize,
        /// Position of the receiver along the axis.
        root: usize,
    },
    /// Every rank receives its [`part`] along a dimension of the root's operand.
    Scatter {
        /// Index of the axis of the mesh.
        mesh: usize,
        /// Dimension of which each rank receives a part.
        dim: usize,
        /// Position of the sender along the axis.
        root: usize,
    },
    /// Rank `to` receives the operand of rank `from`; all other ranks keep their own operand.
    Send {
        /// Index of the axis of the mesh.
        mesh: usize,
        /// Position of the sender along the axis.
        from: usize,
        /// Position of the receiver along the axis; not `from`.
        to: usize,
    },
    /// Every rank receives its own operand between the last indices of the rank before it and the first ones of the rank
    /// after it, along a dimension. The first and the last rank receive less.
    Halo {
        /// Index of the axis of the mesh.
        mesh: usize,
        /// Dimension along which the operands are parts of a whole.
        dim: usize,
        /// Number of indices of the rank before.
        before: usize,
        /// Number of indices of the rank after.
        after: usize,
    },
    /// Every rank receives its own operand once all ranks have arrived.
    Barrier {
        /// Index of the axis of the mesh.
        mesh: usize,
    },
}

/// Maximum number of a dimension, and of indices of a halo, of which a user may ask.
const COUNT_MAX: usize = 64;

/// Returns which of `n` items a rank holds: equally many on all ranks, except that the last ranks may hold fewer or
/// none.
pub fn part(n: usize, ranks: usize, rank: usize) -> Range<usize> {
    let each = n.div_ceil(ranks.max(1));
    let at = |rank: usize| rank.saturating_mul(each).min(n);
    at(rank)..at(rank.saturating_add(1))
}

/// Start and length of a [`part`] as expressions; with as many items as ranks, each rank has one.
pub fn part_dims(n: &Dim, ranks: i64, rank: &Dim) -> [Dim; 2] {
    let each = n.ceildiv(&Dim::constant(ranks));
    let start = each.clone() * rank.clone();
    // With one item per rank, or at the start of the range, there is nothing to clamp.
    if n.is_const(ranks) || start.is_const(0) {
        return [start, each];
    }
    let rest = n.clone() - start.clone();
    [start.minimum(n), each.minimum(&rest.maximum(&Dim::constant(0)))]
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} mesh={}", self.name(), self.mesh())?;
        match self {
            Collective::AllReduce { f: by, .. } => write!(f, " by={}", by.name()),
            Collective::AllGather { dim, .. } => write!(f, " dim={dim}"),
            Collective::ReduceScatter { f: by, dim, .. } => write!(f, " by={} dim={dim}", by.name()),
            Collective::AllToAll { split, join, .. } => write!(f, " split={split} join={join}"),
            Collective::Broadcast { root, .. } => write!(f, " root={root}"),
            Collective::Reduce { f: by, root, .. } => write!(f, " by={} root={root}", by.name()),
            Collective::Gather { dim, root, .. } | Collective::Scatter { dim, root, .. } => {
                write!(f, " dim={dim} root={root}")
            }
            Collective::Send { from, to, .. } => write!(f, " from={from} to={to}"),
            Collective::Halo { dim, before, after, .. } => write!(f, " dim={dim} before={before} after={after}"),
            Collective::Barrier { .. } => Ok(()),
        }
    }
}

impl Collective {
    /// Returns the name of the operation without its attributes, such as `AllReduce`.
    pub fn name(&self) -> &'static str {
        match self {
            Collective::AllReduce { .. } => "AllReduce",
            Collective::AllGather { .. } => "AllGather",
            Collective::ReduceScatter { .. } => "ReduceScatter",
            Collective::AllToAll { .. } => "AllToAll",
            Collective::Broadcast { .. } => "Broadcast",
            Collective::Reduce { .. } => "Reduce",
            Collective::Gather { .. } => "Gather",
            Collective::Scatter { .. } => "Scatter",
            Collective::Send { .. } => "Send",
            Collective::Halo { .. } => "Halo",
            Collective::Barrier { .. } => "Barrier",
        }
    }

    /// Returns the index of the axis of the mesh.
    pub fn mesh(&self) -> usize {
        match *self {
            Collective::AllReduce { mesh, .. } | Collective::AllGather { mesh, .. } => mesh,
            Collective::ReduceScatter { mesh, .. } | Collective::AllToAll { mesh, .. } => mesh,
            Collective::Broadcast { mesh, .. } | Collective::Reduce { mesh, .. } => mesh,
            Collective::Gather { mesh, .. } | Collective::Scatter { mesh, .. } => mesh,
            Collective::Send { mesh, .. } | Collective::Halo { mesh, .. } | Collective::Barrier { mesh } => mesh,
        }
    }

    /// Positions along the axis that the collective names: root, sender, receiver.
    pub fn named(&self) -> Vec<usize> {
        match *self {
            Collective::Broadcast { root, .. } | Collective::Reduce { root, .. } => vec![root],
            Collective::Gather { root, .. } | Collective::Scatter { root, .. } => vec![root],
            Collective::Send { from, to, .. } => vec![from, to],
            Collective::AllReduce { .. } | Collective::AllGather { .. } | Collective::ReduceScatter { .. } => vec![],
            Collective::AllToAll { .. } | Collective::Halo { .. } | Collective::Barrier { .. } => vec![],
        }
    }

    /// Returns which ranks of the mesh take part, and which ranks' operands are read, if the ranks marked in `needed`
    /// need the result. A send involves two ranks; a rank that neither sends nor receives reads its own operand.
    pub fn taking_part(&self, mesh: &[usize], needed: &[bool]) -> [Vec<bool>; 2] {
        let (axis, mut takes, mut reads) = (self.mesh(), vec![false; needed.len()], vec![false; needed.len()]);
        let stride: usize = mesh[axis + 1..].iter().product();
        for rank in (0..needed.len()).filter(|rank| needed[*rank]) {
            let own = rank / stride % mesh[axis];
            let member = |at: usize| rank + at * stride - own * stride;
            match *self {
                Collective::Send { from, to, .. } if own == to => {
                    takes[rank] = true;
                    takes[member(from)] = true;
                    reads[member(from)] = true;
                }
                Collective::Send { .. } => {
                    takes[rank] = true;
                    reads[rank] = true;
                }
                _ => (0..mesh[axis]).map(member).for_each(|rank| {
                    takes[rank] = true;
                    reads[rank] = true;
                }),
            }
        }
        [takes, reads]
    }

    /// Completes a rank's result after all operands have been combined (see [`Reduction::finish`]).
    pub fn finish(&self, dtype: DType, result: &mut [u8], ranks: usize, rank: usize) {
        match *self {
            Collective::AllReduce { f, .. } | Collective::ReduceScatter { f, .. } => f.finish(dtype, result, ranks),
            Collective::Reduce { f, root, .. } if root == rank => f.finish(dtype, result, ranks),
            _ => {}
        }
    }

    /// Parses a collective named by a user, which applies to made-up operands. Errors: E0001.
    pub fn from_user(text: &str) -> Result<Collective> {
        let op = Collective::parse(text);
        let op = op.ok_or_else(|| Error::user("E0001", format!("there is no collective `{text}`")))?;
        match op.counts().into_iter().find(|n| *n > COUNT_MAX) {
            None => Ok(op),
            Some(n) => {
                Err(Error::user("E0001", format!("{n} in `{text}` is too large"))
                    .help(format!("give at most {COUNT_MAX}")))
            }
        }
    }

    /// Dimensions that the collective names, and the numbers of indices of a halo.
    fn counts(&self) -> Vec<usize> {
        match *self {
            Collective::AllGather { dim, .. } | Collective::ReduceScatter { dim, .. } => vec![dim],
            Collective::Gather { dim, .. } | Collective::Scatter { dim, .. } => vec![dim],
            Collective::AllToAll { split, join, .. } => vec![split, join],
            Collective::Halo { dim, before, after, .. } => vec![dim, before, after],
            Collective::AllReduce { .. } | Collective::Broadcast { .. } | Collective::Reduce { .. } => vec![],
            Collective::Send { .. } | Collective::Barrier { .. } => vec![],
        }
    }

    /// Parses text that `Display` has written, such as `AllReduce mesh=0 by=add`.
    pub fn parse(text: &str) -> Option<Collective> {
        let mut words = text.split(' ');
        let name = words.next()?;
        let mut value = |key: &str| words.next()?.strip_prefix(key)?.strip_prefix('=');
        let mesh = value("mesh")?.parse().ok()?;
        let by = |text: &str| Reduction::from_name(text);
        let mut number = |key: &str| value(key)?.parse::<usize>().ok();
        let op = match name {
            "AllGather" => Collective::AllGather { mesh, dim: number("dim")? },
            "AllToAll" => Collective::AllToAll { mesh, split: number("split")?, join: number("join")? },
            "Broadcast" => Collective::Broadcast { mesh, root: number("root")? },
            "Gather" => Collective::Gather { mesh, dim: number("dim")?, root: number("root")? },
            "Scatter" => Collective::Scatter { mesh, dim: number("dim")?, root: number("root")? },
            "Send" => Collective::Send { mesh, from: number("from")?, to: number("to")? },
            "Halo" => {
                let [dim, before, after] = [number("dim")?, number("before")?, number("after")?];
                Collective::Halo { mesh, dim, before, after }
            }
            "Barrier" => Collective::Barrier { mesh },
            "AllReduce" => Collective::AllReduce { mesh, f: by(value("by")?)? },
            "ReduceScatter" => {
                let f = by(value("by")?)?;
                Collective::ReduceScatter { mesh, f, dim: value("dim")?.parse().ok()? }
            }
            "Reduce" => {
                let f = by(value("by")?)?;
                Collective::Reduce { mesh, f, root: value("root")?.parse().ok()? }
            }
            _ => return None,
        };
        words.next().is_none().then_some(op)
    }

    /// Whether the collective accepts operands of this type and rank, which are also those of the result.
    pub fn admits(&self, dtype: DType, rank: usize) -> bool {
        !dtype.is_opaque()
            && match *self {
                Collective::AllReduce { f, .. } => f.admits(dtype),
                Collective::AllGather { dim, .. } => dim < rank,
                Collective::ReduceScatter { f, dim, .. } => f.admits(dtype) && dim < rank,
                Collective::AllToAll { split, join, .. } => split < rank && join < rank && split != join,
                Collective::Reduce { f, .. } => f.admits(dtype),
                Collective::Gather { dim, .. } | Collective::Scatter { dim, .. } => dim < rank,
                Collective::Halo { dim, .. } => dim < rank,
                Collective::Send { from, to, .. } => from != to,
                Collective::Broadcast { .. } | Collective::Barrier { .. } => true,
            }
    }

    /// The result of one rank, given the operands of all. Errors: E0303 if they do not fit each other.
    pub fn result(&self, operands: &[Tensor], rank: usize) -> Result<Tensor> {
        let first = operands.first().ok_or_else(|| Error::defect(format!("`{self}` among no ranks")))?;
        if operands.iter().any(|t| t.dtype() != first.dtype() || !self.admits(t.dtype(), t.rank())) {
            let types: Vec<String> = operands.iter().map(|t| format!("{} {:?}", t.dtype(), t.dims())).collect();
            return Err(unfit(format!("`{self}` of {}", types.join(", "))));
        }
        let absent = |rank: usize| unfit(format!("`{self}` among {} ranks names rank {rank}", operands.len()));
        let operand = |rank: usize| operands.get(rank).ok_or_else(|| absent(rank));
        if let Some(rank) = self.named().into_iter().find(|rank| *rank >= operands.len()) {
            return Err(absent(rank));
        }
        match *self {
            Collective::AllReduce { f, .. } => combined(f, operands),
            Collective::AllGather { dim, .. } => joined(operands, dim),
            Collective::ReduceScatter { f, dim, .. } => {
                let own = |t: &Tensor| cut(t, dim, part(t.dims()[dim], operands.len(), rank));
                combined(f, &operands.iter().map(own).collect::<Result<Vec<Tensor>>>()?)
            }
            Collective::AllToAll { split, join, .. } => {
                let own = |t: &Tensor| cut(t, split, part(t.dims()[split], operands.len(), rank));
                joined(&operands.iter().map(own).collect::<Result<Vec<Tensor>>>()?, join)
            }
            Collective::Broadcast { root, .. } => Ok(operand(root)?.clone()),
            Collective::Reduce { f, root, .. } if root == rank => combined(f, operands),
            Collective::Gather { dim, root, .. } if root == rank => joined(operands, dim),
            Collective::Gather { dim, .. } => cut(operand(rank)?, dim, 0..0),
            Collective::Scatter { dim, root, .. } => {
                let whole = operand(root)?;
                cut(whole, dim, part(whole.dims()[dim], operands.len(), rank))
            }
            Collective::Send { from, to, .. } if to == rank => Ok(operand(from)?.clone()),
            Collective::Halo { dim, before, after, .. } => {
                let sizes: Vec<usize> = operands.iter().map(|t| t.dims()[dim]).collect();
                let pieces = halo(&sizes, [before, after], rank);
                let pieces = pieces.ok_or_else(|| unfit(format!("`{self}` of ranks with {sizes:?} indices")))?;
                let pieces = pieces.into_iter().map(|(rank, range)| cut(&operands[rank], dim, range));
                joined(&pieces.collect::<Result<Vec<Tensor>>>()?, dim)
            }
            Collective::Reduce { .. } | Collective::Send { .. } | Collective::Barrier { .. } => {
                Ok(operand(rank)?.clone())
            }
        }
    }
}

/// Returns the ranges of indices of which the result of [`Collective::Halo`] consists, with their ranks; `None` if a
/// neighbour has fewer indices than are asked of it. `sizes` are the numbers of indices of all ranks.
pub fn halo(sizes: &[usize], [before, after]: [usize; 2], rank: usize) -> Option<Vec<(usize, Range<usize>)>> {
    let mut pieces = vec![];
    if rank > 0 {
        let n = *sizes.get(rank - 1)?;
        pieces.push((rank - 1, n.checked_sub(before)?..n));
    }
    pieces.push((rank, 0..*sizes.get(rank)?));
    if let Some(n) = sizes.get(rank + 1) {
        pieces.push((rank + 1, 0..Some(after).filter(|after| after <= n)?));
    }
    Some(pieces)
}

fn combined(f: Reduction, operands: &[Tensor]) -> Result<Tensor> {
    let (first, rest) = operands.split_first().ok_or_else(|| Error::defect("a reduction of nothing"))?;
    let mut sum = Budget::unlimited().copied(first.bytes())?;
    for other in rest {
        if other.dims() != first.dims() {
            return Err(unfit(format!("ranks combine {:?} with {:?}", first.dims(), other.dims())));
        }
        f.combine(first.dtype(), &mut sum, other.bytes());
    }
    f.finish(first.dtype(), &mut sum, operands.len());
    Tensor::new(first.dtype(), first.dims().to_vec(), sum.into())
}

/// Bytes per index of a dimension, and the product of the dimensions before it.
fn blocks(t: &Tensor, dim: usize) -> (usize, usize) {
    let inner: usize = t.dims()[dim + 1..].iter().product();
    (inner * t.dtype().bytes(), t.dims()[..dim].iter().product())
}

/// The slice of a tensor with these indices along a dimension.
pub fn cut(t: &Tensor, dim: usize, range: Range<usize>) -> Result<Tensor> {
    let (inner, outer) = blocks(t, dim);
    let (n, mut dims) = (t.dims()[dim], t.dims().to_vec());
    let mut bytes = Budget::unlimited().room(outer * range.len() * inner)?;
    for o in 0..outer {
        bytes.extend_from_slice(&t.bytes()[(o * n + range.start) * inner..(o * n + range.end) * inner]);
    }
    dims[dim] = range.len();
    Tensor::new(t.dtype(), dims, bytes.into())
}

fn joined(operands: &[Tensor], dim: usize) -> Result<Tensor> {
    let first = &operands[0];
    let others =
        |t: &Tensor| t.dims().iter().enumerate().filter(|(i, _)| *i != dim).map(|(_, d)| *d).collect::<Vec<_>>();
    if let Some(other) = operands.iter().find(|t| t.rank() != first.rank() || others(t) != others(first)) {
        return Err(unfit(format!("ranks join {:?} and {:?} along dimension {dim}", first.dims(), other.dims())));
    }
    let mut dims = first.dims().to_vec();
    dims[dim] = operands.iter().map(|t| t.dims()[dim]).sum();
    element_count(&dims).ok_or_else(|| Error::user("E0202", "what ranks join is too large"))?;
    let outer = blocks(first, dim).1;
    let mut bytes = Budget::unlimited().room(operands.iter().map(|t| t.bytes().len()).sum())?;
    for o in 0..outer {
        for t in operands {
            let n = t.dims()[dim] * blocks(t, dim).0;
            bytes.extend_from_slice(&t.bytes()[o * n..(o + 1) * n]);
        }
    }
    Tensor::new(first.dtype(), dims, bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dims: &[usize], values: &[i32]) -> Tensor {
        Tensor::from_vec(dims.to_vec(), values.to_vec())
    }

    fn values(t: &Tensor) -> Vec<i32> {
        t.to_vec().unwrap()
    }

    #[test]
    fn parts_are_all_there_is_in_order() {
        for (n, ranks) in [(12, 8), (12, 4), (2, 4), (0, 3), (7, 1), (5, 5)] {
            let parts: Vec<Range<usize>> = (0..ranks).map(|r| part(n, ranks, r)).collect();
            assert_eq!(parts.iter().cloned().flatten().collect::<Vec<_>>(), (0..n).collect::<Vec<_>>());
            assert!(parts.iter().all(|p| p.len() <= n.div_ceil(ranks)));
            for (rank, part) in parts.into_iter().enumerate() {
                let dims = part_dims(&Dim::constant(n as i64), ranks as i64, &Dim::symbol("r"));
                let [start, len] = dims.map(|d| d.eval(&|_| Some(rank as i64)).unwrap() as usize);
                assert_eq!((start, len), (part.start, part.len()), "{n} on {ranks}");
            }
        }
    }

    #[test]
    fn a_send_is_between_two_ranks_and_others_are_among_all() {
        let ranks = |set: &[bool]| -> Vec<usize> { (0..set.len()).filter(|r| set[*r]).collect() };
        let taking = |op: &str, needed: &[usize]| {
            let needed: Vec<bool> = (0..6).map(|rank| needed.contains(&rank)).collect();
            Collective::parse(op).unwrap().taking_part(&[3, 2], &needed).map(|set| ranks(&set))
        };
        // The ranks form the grid 0 1, 2 3, 4 5.
        assert_eq!(taking("Send mesh=0 from=0 to=2", &[4]), [vec![0, 4], vec![0]]);
        assert_eq!(taking("Send mesh=0 from=0 to=2", &[2, 5]), [vec![1, 2, 5], vec![1, 2]]);
        assert_eq!(taking("AllReduce mesh=1 by=add", &[3]), [vec![2, 3], vec![2, 3]]);
        assert_eq!(taking("AllGather mesh=0 dim=0", &[]), [vec![], vec![]] as [Vec<usize>; 2]);
    }

    #[test]
    fn results_follow_from_the_operands_of_all() {
        let [a, b] = [tensor(&[2, 2], &[1, 2, 3, 4]), tensor(&[2, 2], &[10, 20, 30, 40])];
        let operands = [a, b];
        let result = |text: &str, rank| values(&Collective::parse(text).unwrap().result(&operands, rank).unwrap());
        assert_eq!(result("AllReduce mesh=0 by=add", 1), [11, 22, 33, 44]);
        assert_eq!(result("AllReduce mesh=0 by=max", 0), [10, 20, 30, 40]);
        assert_eq!(result("AllReduce mesh=0 by=avg", 1), [5, 11, 16, 22]);
        assert_eq!(result("AllGather mesh=0 dim=0", 0), [1, 2, 3, 4, 10, 20, 30, 40]);
        assert_eq!(result("AllGather mesh=0 dim=1", 0), [1, 2, 10, 20, 3, 4, 30, 40]);
        assert_eq!(result("ReduceScatter mesh=0 by=add dim=1", 1), [22, 44]);
        assert_eq!(result("AllToAll mesh=0 split=1 join=0", 0), [1, 3, 10, 30]);
        assert_eq!(result("Broadcast mesh=0 root=1", 0), [10, 20, 30, 40]);
        assert_eq!(result("Reduce mesh=0 by=add root=1", 1), [11, 22, 33, 44]);
        assert_eq!(result("Reduce mesh=0 by=add root=1", 0), [1, 2, 3, 4]);
        assert_eq!(result("Gather mesh=0 dim=1 root=0", 0), [1, 2, 10, 20, 3, 4, 30, 40]);
        assert_eq!(result("Gather mesh=0 dim=1 root=0", 1), [] as [i32; 0]);
        assert_eq!(result("Scatter mesh=0 dim=1 root=0", 1), [2, 4]);
        assert_eq!(result("Send mesh=0 from=1 to=0", 0), [10, 20, 30, 40]);
        assert_eq!(result("Barrier mesh=0", 1), [10, 20, 30, 40]);
        assert_eq!(result("Halo mesh=0 dim=1 before=0 after=1", 0), [1, 2, 10, 3, 4, 30]);
        assert_eq!(result("Halo mesh=0 dim=0 before=1 after=2", 1), [3, 4, 10, 20, 30, 40]);
        let beyond = Collective::parse("Broadcast mesh=0 root=2").unwrap().result(&operands, 0).unwrap_err();
        assert_eq!(beyond.code, "E0303");
        let far = Collective::parse("Halo mesh=0 dim=0 before=3 after=0").unwrap().result(&operands, 1).unwrap_err();
        assert_eq!(far.code, "E0303");
        assert_eq!(Collective::from_user("AllToAll mesh=0 split=99999999999 join=0").unwrap_err().code, "E0001");
    }

    #[test]
    fn parts_may_differ_and_operands_must_fit() {
        let gather = Collective::parse("AllGather mesh=0 dim=1").unwrap();
        let uneven = [tensor(&[2, 2], &[1, 2, 3, 4]), tensor(&[2, 1], &[5, 6]), tensor(&[2, 0], &[])];
        assert_eq!(values(&gather.result(&uneven, 2).unwrap()), [1, 2, 5, 3, 4, 6]);
        let reduce = Collective::parse("AllReduce mesh=0 by=add").unwrap();
        assert_eq!(reduce.result(&uneven, 0).unwrap_err().code, "E0303");
        assert_eq!(gather.result(&[tensor(&[2], &[1, 2])], 0).unwrap_err().code, "E0303");
    }

    #[test]
    fn what_is_displayed_is_parsed_back() {
        for text in [
            "AllReduce mesh=0 by=add",
            "AllGather mesh=1 dim=2",
            "ReduceScatter mesh=0 by=max dim=1",
            "AllToAll mesh=0 split=1 join=2",
            "Broadcast mesh=0 root=3",
            "Reduce mesh=0 by=min root=1",
            "Gather mesh=0 dim=1 root=2",
            "Scatter mesh=0 dim=1 root=2",
            "Send mesh=1 from=0 to=2",
            "Barrier mesh=0",
        ] {
            assert_eq!(Collective::parse(text).unwrap().to_string(), text);
        }
        for wrong in
            ["AllReduce", "AllReduce mesh=0 by=xor", "AllGather mesh=0", "AllGather mesh=0 dim=1 x=2", "Gather"]
        {
            assert_eq!(Collective::parse(wrong), None, "{wrong}");
        }
    }
}
