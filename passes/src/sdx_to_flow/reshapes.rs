//! Index maps of reshapes that need no copy: those that add or drop dimensions of extent 1, split or merge dimensions

use sardonyx_base::Dim;
use sardonyx_dialects::flow::Kernel;

/// Returns the index map of a reshape that only adds or drops dimensions of extent 1.
pub fn unit_reshape(from: &[Dim], to: &[Dim]) -> Option<Vec<Dim>> {
    let kept = |dims: &[Dim]| (0..dims.len()).filter(|&i| !dims[i].is_const(1)).collect::<Vec<_>>();
    let (kept_from, kept_to) = (kept(from), kept(to));
    let same = kept_from.len() == kept_to.len() && kept_from.iter().zip(&kept_to).all(|(&i, &j)| from[i] == to[j]);
    same.then(|| {
        let at =
            |i: usize| kept_from.iter().position(|&k| k == i).map_or(Dim::constant(0), |p| Kernel::var(kept_to[p]));
        (0..from.len()).map(at).collect()
    })
}

/// Returns the index map of a reshape that only splits dimensions: [b, h·d] => [b, h, d].
pub fn splitting_reshape(from: &[Dim], to: &[Dim]) -> Option<Vec<Dim>> {
    let mut index = vec![];
    let mut next = 0;
    for n in from {
        let (mut size, mut at) = (Dim::constant(1), Dim::constant(0));
        while size != *n {
            let extent = to.get(next)?;
            size = size * extent.clone();
            at = at * extent.clone() + Kernel::var(next);
            next += 1;
        }
        index.push(at);
    }
    // The remaining dimensions must have extent 1.
    to[next..].iter().all(|d| d.is_const(1)).then_some(index)
}

/// Returns the index map of a reshape that only merges adjacent dimensions: [b, g, r, t] => [b, g·r, t].
pub fn merging_reshape(from: &[Dim], to: &[Dim]) -> Option<Vec<Dim>> {
    let mut index = vec![];
    for (i, n) in to.iter().enumerate() {
        let first = index.len();
        let mut size = Dim::constant(1);
        let mut last = first;
        while size != *n {
            size = size * from.get(last)?.clone();
            last += 1;
        }
        let mut rest = Kernel::var(i);
        let mut digits = vec![];
        for extent in from[first..last].iter().skip(1).rev() {
            digits.push(rest.modulo(extent));
            rest = rest.floordiv(extent);
        }
        digits.extend((first < last).then_some(rest));
        index.extend(digits.into_iter().rev());
    }
    // The remaining dimensions must have extent 1.
    let left = from.get(index.len()..)?;
    let ones = left.iter().all(|d| d.is_const(1));
    index.extend(left.iter().map(|_| Dim::constant(0)));
    ones.then_some(index)
}

/// Maximum extent of the innermost axis of interleaved elements, which is the factor by which an image is enlarged.
const INTERLEAVED_MAX: i64 = 8;

/// Whether a reshape that merges dimensions merges the last one, which has 2 to `INTERLEAVED_MAX` elements, with
/// others: [n, c, h, 2, w, 2] => [n, c, 2·h, 2·w].
pub fn interleaves(from: &[Dim], to: &[Dim]) -> bool {
    let none = from.iter().any(|d| d.is_const(0));
    let short = |d: &Dim| d.as_const().is_some_and(|n| (2..=INTERLEAVED_MAX).contains(&n));
    !none && from.last().is_some_and(|last| short(last) && to.last().is_some_and(|to| to != last && !short(to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_dimensions_are_index_maps_and_others_are_not() {
        let dims = |t: &[&str]| t.iter().map(|d| Dim::parse(d).unwrap()).collect::<Vec<_>>();
        let index = unit_reshape(&dims(&["b", "s"]), &dims(&["b", "1", "s", "1"]));
        assert_eq!(index, Some(vec![Kernel::var(0), Kernel::var(2)]));
        assert_eq!(unit_reshape(&dims(&["b", "1"]), &dims(&["b"])), Some(vec![Kernel::var(0), Dim::constant(0)]));
        assert_eq!(unit_reshape(&dims(&["b", "6"]), &dims(&["b", "2", "3"])), None);
    }

    #[test]
    fn split_dimensions_are_sums_and_merged_ones_are_not() {
        let dims = |t: &[&str]| t.iter().map(|d| Dim::parse(d).unwrap()).collect::<Vec<_>>();
        let index = |from: &[&str], to: &[&str]| {
            splitting_reshape(&dims(from), &dims(to)).map(|i| i.iter().map(Dim::to_string).collect::<Vec<_>>())
        };
        assert_eq!(
            index(&["b", "8", "t"], &["b", "2", "4", "t"]),
            Some(["%0", "4*%1 + %2", "%3"].map(String::from).into())
        );
        assert_eq!(index(&["b", "6"], &["b", "2", "3", "1"]).map(|i| i.len()), Some(2));
        assert_eq!(index(&["b", "2", "3"], &["b", "6"]), None);
        assert_eq!(index(&["b"], &["b", "t"]), None);
    }

    #[test]
    fn merged_dimensions_are_digits_and_split_ones_are_not() {
        let dims = |t: &[&str]| t.iter().map(|d| Dim::parse(d).unwrap()).collect::<Vec<_>>();
        let index = |from: &[&str], to: &[&str]| {
            merging_reshape(&dims(from), &dims(to)).map(|i| i.iter().map(Dim::to_string).collect::<Vec<_>>())
        };
        let four = ["%0", "((%1) floordiv (4))", "%1 - 4*((%1) floordiv (4))", "%2"].map(String::from);
        assert_eq!(index(&["b", "2", "4", "t"], &["b", "8", "t"]), Some(four.to_vec()));
        assert_eq!(index(&["b", "1", "t", "1"], &["b", "t"]).map(|i| i.len()), Some(4));
        assert_eq!(index(&["b", "6"], &["b", "2", "3"]), None);
        assert_eq!(index(&["b", "t"], &["b"]), None);
    }
}
