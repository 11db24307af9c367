//! a rank's part of a tensor: all of it, some units along a dimension, or a partial result of a reduction

use super::halo::Halo;
use sardonyx_base::Dim;
use sardonyx_base::dim::product;
use sardonyx_base::host::part_dims;
use sardonyx_base::reduction::Reduction;
use sardonyx_dialects::sdx::TensorType;

/// An axis of the mesh, over which a program is split.
#[derive(Clone, Debug)]
pub struct Ranks {
    /// Index of the axis.
    pub axis: usize,
    pub size: i64,
    /// The rank's coordinate along it.
    pub coordinate: Dim,
}

/// A pseudo-axis of no mesh, along which the parts are executed by the same rank one after the other.
pub const TIME: usize = usize::MAX;

impl Ranks {
    /// Returns the rank's first item, and the number of its items, of n items in all.
    fn part(&self, n: &Dim) -> [Dim; 2] {
        match self.coordinate.as_const().filter(|_| self.axis == TIME) {
            Some(at) => part_in_time(n, self.size, at),
            None => part_dims(n, self.size, &self.coordinate),
        }
    }
}

/// Returns the first item and the number of items of one of several parts that a rank executes one after the other. The
/// numbers of all parts add up to `n`, also symbolically; the last part takes the remainder.
pub fn part_in_time(n: &Dim, parts: i64, at: i64) -> [Dim; 2] {
    let each = n.floordiv(&Dim::constant(parts));
    let start = |at: i64| if at == parts { n.clone() } else { each.clone() * Dim::constant(at) };
    [start(at), start(at + 1) - start(at)]
}

/// A dimension consists of `outer` runs of `count` units of `unit` elements. A rank has the same units of each run: as
/// many as every other rank, except that the last ranks may have fewer or none. Heads of attention are such units.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Split {
    pub dim: usize,
    pub outer: Dim,
    pub count: Dim,
    pub unit: Dim,
}

/// How a rank holds a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Every rank has the whole value.
    Whole,
    Split(Split),
    /// The value is the reduction of the values of all ranks.
    Partial(Reduction),
    /// Every rank has what its positions of a window read.
    Halo(Box<Halo>),
}

impl Split {
    /// Creates a split in normal form, so that equal splits are equal values: if the ranks divide the units evenly,
    /// each rank's part becomes one unit.
    pub fn new(dim: usize, [outer, count, unit]: [Dim; 3], ranks: &Ranks) -> Split {
        let size = Dim::constant(ranks.size);
        match count.exact_div(&size) {
            Some(each) if !each.is_const(0) => Split { dim, outer, unit: each * unit, count: size },
            _ => Split { dim, outer, count, unit },
        }
    }

    /// Splits a dimension element by element.
    pub fn plain(dim: usize, extent: &Dim, ranks: &Ranks) -> Split {
        Split::new(dim, [Dim::constant(1), extent.clone(), Dim::constant(1)], ranks)
    }

    /// Returns the same split of another dimension.
    pub fn at(&self, dim: usize) -> Split {
        Split { dim, ..self.clone() }
    }

    pub fn extent(&self) -> Dim {
        product(&[self.outer.clone(), self.count.clone(), self.unit.clone()])
    }

    /// Returns the first unit of a rank.
    pub fn start(&self, ranks: &Ranks) -> Dim {
        let [start, _] = ranks.part(&self.count);
        start
    }

    /// Returns the number of units of a rank.
    pub fn len(&self, ranks: &Ranks) -> Dim {
        let [_, len] = ranks.part(&self.count);
        len
    }

    /// Whether every rank provably has at least one unit.
    pub fn none_is_empty(&self, ranks: &Ranks) -> bool {
        let last = |count: i64| count.checked_add(ranks.size - 1).map(|n| n / ranks.size * (ranks.size - 1));
        self.count.as_const().is_some_and(|count| last(count).is_some_and(|first| first < count))
    }

    /// Returns the type of a rank's part.
    pub fn local(&self, ty: &TensorType, ranks: &Ranks) -> TensorType {
        let mut dims = ty.dims.clone();
        dims[self.dim] = product(&[self.outer.clone(), self.len(ranks), self.unit.clone()]);
        TensorType::new(ty.dtype, dims)
    }

    /// Returns the split after a reshape that leaves each rank the same elements, if there is one.
    pub fn through_reshape(&self, from: &[Dim], to: &[Dim], ranks: &Ranks) -> Option<Split> {
        let (of_from, of_to) = groups(from, to)?.into_iter().find(|(f, _)| f.contains(&self.dim))?;
        let outer = product(&from[of_from.start..self.dim]) * self.outer.clone();
        let unit = self.unit.clone() * product(&from[self.dim + 1..of_from.end]);
        let one = |b: usize| {
            let outer = outer.exact_div(&product(&to[of_to.start..b]))?;
            let unit = unit.exact_div(&product(&to[b + 1..of_to.end]))?;
            let split = Split::new(b, [outer, self.count.clone(), unit], ranks);
            (split.extent() == to[b]).then_some(split)
        };
        of_to.clone().find_map(one)
    }
}

type Groups = Vec<(std::ops::Range<usize>, std::ops::Range<usize>)>;

/// Groups adjacent dimensions of both shapes so that their products are equal, in groups as small as possible. Returns
/// `None` if a dimension of `from` remains without a group; dimensions of `to` may remain.
fn groups(from: &[Dim], to: &[Dim]) -> Option<Groups> {
    let (mut out, mut f, mut t) = (vec![], 0, 0);
    while f < from.len() {
        // Pairs of groups are tried in the order of their total number of dimensions.
        let pairs = (f + 1..=from.len()).flat_map(|fe| (t + 1..=to.len()).map(move |te| (fe, te)));
        let mut pairs: Vec<(usize, usize)> = pairs.collect();
        pairs.sort_by_key(|(fe, te)| fe + te);
        let (fe, te) = pairs.into_iter().find(|(fe, te)| product(&from[f..*fe]) == product(&to[t..*te]))?;
        out.push((f..fe, t..te));
        (f, t) = (fe, te);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(texts: &[&str]) -> Vec<Dim> {
        texts.iter().map(|d| Dim::parse(d).unwrap()).collect()
    }

    fn ranks(size: i64) -> Ranks {
        Ranks { axis: 0, size, coordinate: Dim::symbol("r") }
    }

    fn text(split: &Split, ranks: &Ranks) -> String {
        let Split { dim, outer, count, unit } = split;
        format!("{dim}: {outer} x {count} x {unit}, {} from {}", split.len(ranks), split.start(ranks))
    }

    #[test]
    fn ranks_have_equal_parts_or_the_last_ones_fewer() {
        let split = |n: &str, size| {
            let ranks = ranks(size);
            text(&Split::plain(1, &Dim::parse(n).unwrap(), &ranks), &ranks)
        };
        assert_eq!(split("12", 4), "1: 1 x 4 x 3, 1 from r");
        assert_eq!(split("12", 8), "1: 1 x 12 x 1, min(2, max(0, -2*r + 12)) from min(12, 2*r)");
    }

    #[test]
    fn heads_stay_together_through_reshapes() {
        let through = |split: [i64; 3], dim, from: &[&str], to: &[&str], size| {
            let ranks = ranks(size);
            let split = Split::new(dim, split.map(Dim::constant), &ranks);
            split.through_reshape(&dims(from), &dims(to), &ranks).map(|s| text(&s, &ranks))
        };
        let told = |s: &str| Some(s.to_string());
        // Columns to heads, and back.
        assert_eq!(
            through([1, 384, 1], 2, &["b", "s", "384"], &["b", "s", "12", "32"], 4),
            told("2: 1 x 4 x 3, 1 from r")
        );
        assert_eq!(
            through([1, 12, 1], 2, &["b", "s", "12", "32"], &["b", "s", "384"], 4),
            told("2: 1 x 4 x 96, 1 from r")
        );
        // Half a head is not a unit; whole heads are, even if one rank has none.
        assert_eq!(through([1, 384, 1], 2, &["b", "s", "384"], &["b", "s", "12", "32"], 8), None);
        let uneven = through([1, 2, 32], 1, &["s", "64"], &["s", "2", "32"], 4);
        assert_eq!(uneven, told("1: 1 x 2 x 1, min(1, max(0, -r + 2)) from min(2, r)"));
        // After a dimension that is merged into it.
        assert_eq!(
            through([1, 12, 1], 1, &["b", "12", "s", "32"], &["12*b", "s", "32"], 4),
            told("0: b x 4 x 3, 1 from r")
        );
        assert_eq!(through([3, 12, 32], 1, &["s", "1152"], &["s", "3", "12", "32"], 4), told("2: 1 x 4 x 3, 1 from r"));
    }
}
