//! a dimension split over ranks, windows along it  =>  the elements that each rank's windows read
//!
//! Each rank computes some positions of a window. These positions read the rank's own elements of the operand, some
//! elements of the neighbouring ranks (the halo), and some padding. The extents must be constants, because it is
//! checked for each rank that the halo does not reach beyond the neighbours.

use super::redistribute::Local;
use super::split::{Ranks, Split, State, TIME};
use sardonyx_base::host::{Collective, part};
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::sdx::{Graph, Node, Op, TensorType, Value, WindowSpec};
use std::ops::Range;

/// Parts of a padded dimension: each rank has the elements that its positions of a window read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Halo {
    /// The padded dimension.
    pub dim: usize,
    /// How the positions of the window are split over the ranks.
    pub places: Split,
    /// The elements that the ranks read.
    pub reach: Reach,
}

impl Halo {
    /// Returns the maximum number of elements along the dimension that a rank takes from one neighbour.
    pub fn taken(&self) -> i64 {
        self.reach.before.max(self.reach.after)
    }

    /// Returns the type of a rank's part.
    pub fn local(&self, ty: &TensorType, ranks: &Ranks) -> TensorType {
        let mut dims = ty.dims.clone();
        dims[self.dim] = self.reach.moves.span(self.places.len(ranks) * self.places.unit.clone());
        TensorType::new(ty.dtype, dims)
    }
}

/// A window that moves along a dimension with padding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moves {
    /// Number of elements of padding before the operand.
    low: i64,
    /// Number of elements in the window, distance between adjacent positions of the window, and distance between
    /// adjacent elements of the window.
    size: i64,
    stride: i64,
    dilation: i64,
}

impl Moves {
    /// Returns the number of elements from the first to the last that `places` adjacent positions read; `places` is at
    /// least 1.
    fn span(&self, places: Dim) -> Dim {
        let more = places - Dim::constant(1);
        more * Dim::constant(self.stride) + Dim::constant(self.offsets())
    }

    /// Returns the number of elements from the first to the last that one position reads.
    fn offsets(&self) -> i64 {
        (self.size - 1).saturating_mul(self.dilation).saturating_add(1)
    }

    /// Returns the elements of the operand that these positions read, `None` if they read none or the numbers overflow.
    fn read(&self, places: &Range<i64>, n: i64) -> Option<Range<i64>> {
        let at = |place: i64| place.checked_mul(self.stride)?.checked_sub(self.low);
        let (first, end) = (at(places.start)?, at(places.end - 1)?.checked_add(self.offsets())?);
        Some(first.clamp(0, n)..end.clamp(0, n)).filter(|read| !read.is_empty())
    }
}

/// The elements that the ranks' positions of a window read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reach {
    moves: Moves,
    /// Number of elements that each rank takes from the rank before it, and from the rank after it.
    pub before: i64,
    pub after: i64,
    /// Whether each rank reads all elements that it has after taking these.
    is_exact: bool,
}

impl Reach {
    /// Returns the elements that the ranks read; `None` if a rank has no elements or no positions, or needs elements
    /// from beyond its neighbours.
    fn new(ranks: &Ranks, moves: Moves, has: &Split, places: &Split) -> Option<Reach> {
        if ranks.axis == TIME || !has.outer.is_const(1) {
            return None;
        }
        let n = has.extent().as_const()?;
        let all: Vec<(Range<i64>, Range<i64>)> = (0..ranks.size)
            .map(|rank| {
                let own = elements(has, ranks, rank)?;
                let read = moves.read(&elements(places, ranks, rank)?, n)?;
                Some((own, read))
            })
            .collect::<Option<_>>()?;
        let most = |reach: fn(&(Range<i64>, Range<i64>)) -> i64| all.iter().map(reach).max().unwrap_or(0).max(0);
        let (before, after) = (most(|(own, read)| own.start - read.start), most(|(own, read)| read.end - own.end));
        let has_enough = |(i, (own, _)): (usize, &(Range<i64>, Range<i64>))| {
            let n = own.end - own.start;
            (i + 1 == all.len() || before <= n) && (i == 0 || after <= n)
        };
        if !all.iter().enumerate().all(has_enough) {
            return None;
        }
        let gets = |own: &Range<i64>| (own.start - before).max(0)..(own.end + after).min(n);
        let is_exact = all.iter().all(|(own, read)| gets(own) == *read);
        Some(Reach { moves, before, after, is_exact })
    }

    /// Returns whether no rank needs elements of others.
    fn is_own(&self) -> bool {
        self.before == 0 && self.after == 0
    }

    /// Returns the first element that a rank reads, and the number of elements.
    fn read(&self, n: &Dim, places: &Split, ranks: &Ranks) -> [Dim; 2] {
        let count = places.len(ranks) * places.unit.clone();
        let first = self.first(places, ranks);
        let end = (first.clone() + self.moves.span(count)).minimum(n);
        let first = first.maximum(&Dim::constant(0));
        [first.clone(), end - first]
    }

    /// Returns the operand's index at which the first position of a rank begins; negative within the padding.
    fn first(&self, places: &Split, ranks: &Ranks) -> Dim {
        let place = places.start(ranks) * places.unit.clone();
        place * Dim::constant(self.moves.stride) - Dim::constant(self.moves.low)
    }
}

/// Returns the elements that a rank has, `None` if it has none or the split is not constant.
fn elements(split: &Split, ranks: &Ranks, rank: i64) -> Option<Range<i64>> {
    let (count, unit) = (split.count.as_const()?, split.unit.as_const()?);
    let [count, size, rank] = [count, ranks.size, rank].map(|n| usize::try_from(n).ok());
    let units = part(count?, size?, rank?);
    let at = |unit_at: usize| i64::try_from(unit_at).ok()?.checked_mul(unit);
    Some(at(units.start)?..at(units.end)?).filter(|own| !own.is_empty())
}

/// Returns the halo of a padding whose operand is split along a padded dimension; `None` unless all consumers of the
/// result, directly or through windows along other dimensions, are equal windows along this dimension.
pub fn of_padding(graph: &Graph, ranks: &Ranks, node: &Node, low: &[Dim], has: &Split) -> Option<Halo> {
    let (v, _) = graph.values().find(|(_, n)| std::ptr::eq(*n, node))?;
    let mut padded = vec![v];
    let mut found: Option<(&WindowSpec, &Dim)> = None;
    for (reader, node) in graph.values().skip(v.index() + 1) {
        if !node.args.iter().any(|arg| padded.contains(arg)) {
            continue;
        }
        match &node.op {
            Op::Window(w) if w.axis != has.dim => padded.push(reader),
            Op::Window(w) => {
                let this = (w, &node.ty.dims[w.axis]);
                if found.replace(this).is_some_and(|other| other != this) {
                    return None;
                }
            }
            _ => return None,
        }
    }
    if graph.outputs.iter().any(|(_, v)| padded.contains(v)) {
        return None;
    }
    let (window, places) = found?;
    let low = low[has.dim].as_const()?;
    let (places, reach) = of_window(ranks, window, places, low, has)?;
    Some(Halo { dim: has.dim, places, reach })
}

fn of_window(ranks: &Ranks, w: &WindowSpec, places: &Dim, low: i64, has: &Split) -> Option<(Split, Reach)> {
    let places = Split::plain(w.axis, places, ranks);
    let moves = Moves { low, size: w.size.as_const()?, stride: w.stride, dilation: w.dilation };
    let reach = Reach::new(ranks, moves, has, &places)?;
    Some((places, reach))
}

/// Returns how the positions of a window are split if each rank's windows read exactly its own elements.
pub fn of_own_elements(ranks: &Ranks, node: &Node, w: &WindowSpec, has: &Split) -> Option<Split> {
    let (places, reach) = of_window(ranks, w, &node.ty.dims[w.axis], 0, has)?;
    (reach.is_own() && reach.is_exact).then_some(places)
}

/// Returns how the result of a slice with a stride from the start of a dimension is split, and the index in the rank's
/// part of the operand at which its part of the result begins; `None` if a rank's part of the result needs elements of
/// other ranks.
pub fn of_slice(ranks: &Ranks, node: &Node, (starts, steps): (&[Dim], &[i64]), has: &Split) -> Option<(Split, Dim)> {
    let (start, stride) = (&starts[has.dim], steps[has.dim]);
    if !start.is_const(0) || stride < 2 {
        return None;
    }
    let window = WindowSpec { axis: has.dim, size: Dim::constant(1), stride, dilation: 1 };
    let n = has.extent();
    let (places, reach) = of_window(ranks, &window, &node.ty.dims[has.dim], 0, has)?;
    let [first, _] = reach.read(&n, &places, ranks);
    reach.is_own().then(|| (places, first - has.start(ranks) * has.unit.clone()))
}

impl Local<'_> {
    /// Adds a padding whose operand is split: each rank gets its halo, and pads where there is no neighbour.
    pub fn padded(&mut self, node: &Node, low: &[Dim], has: &Split, halo: &Halo) -> Result<Value> {
        let (dim, reach, origins) = (has.dim, &halo.reach, node.origins.as_slice());
        let (n, ranks) = (has.extent(), self.ranks.clone());
        let mut value = self.split(node.args[0], has)?;
        let mut ty = has.local(self.graph.ty(node.args[0]), &ranks);
        let mut start = has.start(&ranks) * has.unit.clone();
        if !reach.is_own() {
            let end = start.clone() + ty.dims[dim].clone();
            let taken = |there: Dim, most: i64| match most {
                0 => Dim::constant(0),
                _ => there.minimum(&Dim::constant(most)),
            };
            let (from_before, from_after) = (taken(start.clone(), reach.before), taken(n.clone() - end, reach.after));
            ty.dims[dim] = from_before.clone() + ty.dims[dim].clone() + from_after;
            start = start - from_before;
            let [before, after] = [reach.before, reach.after].map(|n| usize::try_from(n).unwrap_or(0));
            let op = Collective::Halo { mesh: ranks.axis, dim, before, after };
            value = self.exchange(op, value, ty.clone(), origins)?;
        }
        let [first, count] = reach.read(&n, &halo.places, &ranks);
        if !reach.is_exact {
            let mut starts = vec![Dim::constant(0); ty.rank()];
            (starts[dim], ty.dims[dim]) = (first - start, count);
            value = self.add(Op::Slice { starts, steps: vec![1; ty.rank()] }, &[value], ty.clone(), origins)?;
        }
        let local = halo.local(&node.ty, &ranks);
        if local == ty {
            return Ok(value);
        }
        let mut low = low.to_vec();
        low[dim] = (Dim::constant(0) - reach.first(&halo.places, &ranks)).maximum(&Dim::constant(0));
        let fill = self.whole_value(node.args[1])?;
        self.add(Op::Pad { low }, &[value, fill], local, origins)
    }
}

/// Returns the signature of a window of a padded operand of which each rank has its part with a halo.
pub fn of_padded(node: &Node, halo: &Halo) -> Option<super::Signature> {
    let Op::Window(w) = &node.op else { return None };
    let has = State::Halo(Box::new(halo.clone()));
    let result = if w.axis == halo.dim { State::Split(halo.places.at(w.axis)) } else { has.clone() };
    Some(super::Signature { operands: vec![has], result })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of elements that ranks take from the ranks before and after them, and whether they read all
    /// elements that they then have.
    fn reach(n: i64, places: i64, size: i64, moves: [i64; 4]) -> Option<(i64, i64, bool)> {
        let ranks = Ranks { axis: 0, size, coordinate: Dim::symbol("r") };
        let [low, size, stride, dilation] = moves;
        let plain = |n: i64| Split::plain(0, &Dim::constant(n), &ranks);
        let reach = Reach::new(&ranks, Moves { low, size, stride, dilation }, &plain(n), &plain(places))?;
        Some((reach.before, reach.after, reach.is_exact))
    }

    #[test]
    fn windows_reach_beyond_a_part() {
        assert_eq!(reach(8, 8, 2, [1, 3, 1, 1]), Some((1, 1, true)));
        assert_eq!(reach(9, 5, 2, [1, 3, 2, 1]), Some((0, 1, true)));
        assert_eq!(reach(224, 112, 4, [3, 7, 2, 1]), Some((3, 2, true)));
        // Rows 5 and 6 belong to rank 1, whose first window begins at row 6.
        assert_eq!(reach(10, 5, 2, [0, 2, 2, 1]), Some((0, 1, false)));
        assert_eq!(reach(8, 8, 2, [4, 3, 1, 4]), Some((4, 4, true)));
    }

    #[test]
    fn neighbours_have_what_windows_reach() {
        // Each rank has two rows.
        assert_eq!(reach(8, 8, 4, [2, 5, 1, 1]), Some((2, 2, true)));
        assert_eq!(reach(8, 8, 4, [3, 7, 1, 1]), None);
        // Of these three cases, the last rank has no row in the first and no position in the second; in the third, an
        // index overflows.
        assert_eq!(reach(9, 9, 4, [1, 3, 1, 1]), None);
        assert_eq!(reach(8, 1, 2, [0, 8, 1, 1]), None);
        assert_eq!(reach(8, 8, 2, [1, 3, i64::MAX / 2, 1]), None);
    }
}
