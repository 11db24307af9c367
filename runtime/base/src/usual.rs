//! Default sizes of symbolic dimensions, which every estimate, example and measurement uses if no sizes are given

use crate::Dim;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maps each symbol to its size.
pub type Sizes = BTreeMap<String, i64>;

/// Smallest and largest value of a symbol; `None` if the symbol has no upper bound.
pub type Range = (i64, Option<i64>);

/// Default sizes of symbolic dimensions.
#[derive(Clone, Copy, Debug)]
pub struct Usual {
    /// Size of a symbol that occurs in the first dimension of an input: the batch.
    pub first: i64,
    /// Size of any other symbol.
    pub other: i64,
}

/// Sizes of the default call; [`CALLS`] adds a short and a large call.
pub const USUAL: Usual = Usual { first: 1, other: 128 };
/// Sizes of the large call.
pub const LARGE: Usual = Usual { first: 8, other: 512 };
/// The default call, the short one and the large one.
pub const CALLS: [Usual; 3] = [USUAL, Usual { other: 16, ..USUAL }, LARGE];

impl Usual {
    /// The default size of a symbol, limited to the range `lo..=hi`, given the dimensions of the inputs.
    pub fn size(self, name: &str, (lo, hi): Range, inputs: &[&[Dim]]) -> i64 {
        let is_first = inputs.iter().filter_map(|dims| dims.first()).any(|d| d.names().contains(name));
        let size = if is_first { self.first } else { self.other };
        size.min(hi.unwrap_or(i64::MAX)).max(lo)
    }
}

/// Largest distance from a symbol's lower bound at which values of the symbol are tried.
const SEARCHED: i64 = 4096;

/// Changes `sizes` so that the checks hold, if such sizes are found. A check is a pair of dimensions that must be
/// equal. If one side is a single symbol, this symbol gets the value of the other side. If the check still fails, there
/// are up to three searches: for one value that all symbols of the check have; for a value of a single symbol while the
/// other symbols keep their values; for a value of a single symbol while the other symbols have their lower bounds, but
/// at least 1. Only symbols for which `range` returns bounds take part in the searches, and fixed symbols never change.
pub fn keep_checks<'a>(
    checks: impl IntoIterator<Item = (&'a Dim, &'a Dim)>,
    range: &dyn Fn(&str) -> Option<Range>,
    is_fixed: &dyn Fn(&str) -> bool,
    sizes: &mut Sizes,
) {
    for check in checks {
        for (free, other) in [(check.1, check.0), check] {
            let value = |d: &Dim| d.eval_named(&|name| sizes.get(name).copied());
            let (Ok(is), Ok(must)) = (value(free), value(other)) else { continue };
            let name = free.as_name().filter(|n| !is_fixed(n));
            if let Some(name) = name.filter(|_| is != must) {
                sizes.insert(name.to_string(), must);
            }
        }
        if holds(check, sizes, &[], 0) != Some(false) {
            continue;
        }
        let names: BTreeSet<Arc<str>> = [check.0, check.1].into_iter().flat_map(|d| d.names()).collect();
        let free = names.iter().filter_map(|name| Some((&**name, range(name).filter(|_| !is_fixed(name))?)));
        let free: Vec<(&str, Range)> = free.collect();
        let sought = |symbols: &[(&str, Range)], sizes: &Sizes| -> Option<(Vec<String>, i64)> {
            let bounds = symbols.iter().map(|(_, bounds)| *bounds);
            let (lo, hi) = bounds.fold((0, i64::MAX), |(lo, hi), b| (b.0.max(lo), b.1.unwrap_or(hi).min(hi)));
            let names: Vec<&str> = symbols.iter().map(|(name, _)| *name).collect();
            let mut values = lo.max(1)..=hi.min(lo.saturating_add(SEARCHED));
            values
                .find(|value| holds(check, sizes, &names, *value) == Some(true))
                .map(|value| (names.iter().map(|name| name.to_string()).collect(), value))
        };
        let mut found = [free.as_slice()].into_iter().chain(free.chunks(1)).find_map(|symbols| sought(symbols, sizes));
        if found.is_none() && free.len() > 1 {
            let least = free.iter().map(|(name, (lo, _))| (name.to_string(), (*lo).max(1)));
            let least: Sizes = sizes.clone().into_iter().chain(least).collect();
            found = free.chunks(1).find_map(|symbols| sought(symbols, &least));
            if found.is_some() {
                *sizes = least;
            }
        }
        if let Some((names, value)) = found {
            sizes.extend(names.into_iter().map(|name| (name, value)));
        }
    }
}

/// Whether a check holds if each of the symbols `names` has the size `value` and the other symbols have their sizes in
/// `sizes`; `None` if a side has no value, for example because a size is unknown.
fn holds(check: (&Dim, &Dim), sizes: &Sizes, names: &[&str], value: i64) -> Option<bool> {
    let size = |name: &str| if names.contains(&name) { Some(value) } else { sizes.get(name).copied() };
    let side = |d: &Dim| d.eval_named(&size).ok();
    Some(side(check.0)? == side(check.1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_sought_that_keep_a_check() {
        let sizes = |left: &str, right: &str, fixed: &str| {
            let [left, right] = [left, right].map(|t| Dim::parse(t).unwrap());
            let mut sizes: Sizes = [("a".to_string(), 1), ("b".to_string(), 128)].into();
            let range = |name: &str| Some((if name == "a" { 0 } else { 2 }, None));
            keep_checks([(&left, &right)], &range, &|name| name == fixed, &mut sizes);
            (sizes["a"], sizes["b"])
        };
        assert_eq!(sizes("a*b", "49", ""), (7, 7));
        assert_eq!(sizes("a*b", "51", ""), (1, 51));
        assert_eq!(sizes("a*b", "49", "b"), (1, 128));
        assert_eq!(sizes("a", "b + 1", ""), (129, 128));
        assert_eq!(sizes("(256*a*b) floordiv 384", "256", "a"), (1, 384));
        assert_eq!(sizes("a*b", "128", ""), (1, 128));
        assert_eq!(sizes("a*b + 300", "313", ""), (1, 13));
        assert_eq!(sizes("a*b*b", "52", ""), (13, 2));
    }

    #[test]
    fn the_first_dimension_of_an_input_is_the_batch() {
        let dims = ["batch", "seq"].map(Dim::symbol);
        let size = |name, range| USUAL.size(name, range, &[&dims]);
        assert_eq!((size("batch", (0, None)), size("seq", (0, None))), (1, 128));
        assert_eq!((size("batch", (2, None)), size("seq", (1, Some(64)))), (2, 64));
    }
}
