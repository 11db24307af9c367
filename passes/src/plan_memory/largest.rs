//! max(a + c, b + c, d)  =>  the maximum of a few sums of sizes, without sums that never exceed another

use super::not_negative::not_negative;
use sardonyx_base::Dim;
use sardonyx_base::dim::{Atom, Symbol};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

/// A size, with its values for the calls and other symbol values of `Probes`.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    pub dim: Dim,
    at: Vec<i64>,
}

/// Symbol values for which sizes are compared as numbers, before an inequality between the sizes is proved.
pub struct Probes<'a> {
    /// Typical calls, for which overestimates should be smallest.
    pub calls: &'a [BTreeMap<String, i64>],
    /// Symbol values of further calls, for which one size may be smaller than another although it is larger in typical
    /// calls.
    pub others: &'a [BTreeMap<String, i64>],
    pub lo: &'a dyn Fn(&Symbol) -> i64,
    /// Differences of sizes, each with whether it is provably not negative.
    pub known: RefCell<HashMap<Dim, bool>>,
}

/// Limits for the expression of an offset.
pub struct Room<'a> {
    /// Maximum number of sizes in the maximum. If there are more, an upper bound replaces pairs of sizes, so that
    /// expressions do not grow with the depth of the model.
    pub n_max: usize,
    /// For each typical call: the largest value of the offset that does not enlarge the arena.
    pub at: &'a [u64],
}

/// The maximum of a list of sizes, as the list.
#[derive(Clone, Debug, Default)]
pub struct Largest(Vec<Size>);

impl Probes<'_> {
    /// Evaluates a size; overflow counts as a very large number.
    pub fn size(&self, dim: Dim) -> Size {
        let value = |values: &BTreeMap<String, i64>| dim.eval_named(&|s| values.get(s).copied()).unwrap_or(i64::MAX);
        let at = self.calls.iter().chain(self.others).map(value).collect();
        Size { dim, at }
    }
}

impl Size {
    fn plus(&self, other: &Size) -> Size {
        let at = self.at.iter().zip(&other.at).map(|(a, b)| a.saturating_add(*b)).collect();
        Size { dim: self.dim.clone() + other.dim.clone(), at }
    }

    fn at_least(&self, other: &Size, probes: &Probes) -> bool {
        let nowhere_below = self.at.iter().zip(&other.at).all(|(a, b)| a >= b);
        if !nowhere_below {
            return false;
        }
        let difference = self.dim.clone() - other.dim.clone();
        let known = probes.known.borrow().get(&difference).copied();
        known.unwrap_or_else(|| {
            let proved = not_negative(&difference, probes.lo);
            probes.known.borrow_mut().insert(difference, proved);
            proved
        })
    }

    /// Returns an upper bound of both sizes: each term with the larger of its two coefficients.
    fn join(&self, other: &Size, probes: &Probes) -> Size {
        let own: BTreeMap<&[Atom], i64> = self.dim.terms().collect();
        let others: BTreeMap<&[Atom], i64> = other.dim.terms().collect();
        let often = |terms: &BTreeMap<&[Atom], i64>, m: &[Atom]| terms.get(m).copied().unwrap_or(0);
        let all = own.keys().chain(others.keys()).map(|m| (*m, often(&own, m).max(often(&others, m))));
        let terms: BTreeMap<&[Atom], i64> = all.collect();
        probes.size(terms.into_iter().fold(Dim::constant(0), |sum, (m, c)| sum + Dim::term(m, c)))
    }
}

impl Largest {
    pub fn sizes(&self) -> &[Size] {
        &self.0
    }

    pub fn plus(&self, size: &Size) -> Largest {
        match self.0.is_empty() {
            true => Largest(vec![size.clone()]),
            false => Largest(self.0.iter().map(|a| a.plus(size)).collect()),
        }
    }

    /// Returns the sizes without those that are provably at most another size; if there are more than `room.n_max`,
    /// some are joined.
    pub fn select<'a>(all: impl IntoIterator<Item = &'a Size>, probes: &Probes, room: &Room) -> Largest {
        let mut kept: Vec<Size> = vec![];
        for size in all {
            keep(&mut kept, size.clone(), probes);
        }
        while kept.len() > room.n_max.max(1) {
            let pairs = (0..kept.len()).flat_map(|a| (a + 1..kept.len()).map(move |b| (a, b)));
            let largest = |call: usize| kept.iter().map(|k| k.at[call]).max().unwrap_or(0);
            let worth = |(a, b): (usize, usize)| {
                let join = kept[a].join(&kept[b], probes);
                // Compares joins by how much the arena grows in typical calls, then by how much this offset grows, in
                // millionths.
                let grows = |call: usize, from: i64| {
                    let (is, from) = (i128::from(join.at[call]), i128::from(from));
                    (is - from).max(0) * 1_000_000 / from.max(1)
                };
                let free = |call: usize| room.at.get(call).map_or(0, |r| i64::try_from(*r).unwrap_or(i64::MAX));
                let beyond = (0..probes.calls.len()).map(|call| grows(call, free(call).max(largest(call))));
                let own = (0..probes.calls.len()).map(|call| grows(call, largest(call)));
                let grows = (beyond.max(), own.max());
                (grows, join, a, b)
            };
            let best = pairs.map(worth).min_by(|x, y| (x.0, x.2, x.3).cmp(&(y.0, y.2, y.3)));
            let Some((_, join, a, b)) = best else { break };
            kept.remove(b);
            kept.remove(a);
            keep(&mut kept, join, probes);
        }
        Largest(kept)
    }

    /// Returns the maximum as one expression, with common terms factored out.
    pub fn to_dim(&self) -> Dim {
        let Some((first, others)) = self.0.split_first() else { return Dim::constant(0) };
        let mut common: BTreeMap<&[Atom], i64> = first.dim.terms().collect();
        for other in others {
            let of: BTreeMap<&[Atom], i64> = other.dim.terms().collect();
            common.retain(|m, c| {
                let other = of.get(m).copied().unwrap_or(0);
                *c = other.min(*c);
                *c > 0
            });
        }
        let shared = common.iter().fold(Dim::constant(0), |sum, (m, c)| sum + Dim::term(m, *c));
        let rest = self.0.iter().map(|size| size.dim.clone() - shared.clone());
        shared.clone() + rest.reduce(|a, b| a.maximum(&b)).unwrap_or(Dim::constant(0))
    }
}

fn keep(kept: &mut Vec<Size>, size: Size, probes: &Probes) {
    if kept.iter().any(|k| k == &size || k.at_least(&size, probes)) {
        return;
    }
    kept.retain(|k| !size.at_least(k, probes));
    kept.push(size);
}
