//! {384, 12, 32}  =>  384 → 6, 12 → 2, 32 → 3; …: changes of extents to smaller ones; first those that preserve a
//! product or sum of two extents, such as 384 = 12 · 32, then changes of single extents

use std::collections::BTreeSet;

/// Returns the changes to try, each a list of (old, new): first those that preserve a product or a sum of two sizes,
/// then those of a single size. Within either kind, changes of larger sizes come first; changes of the same sizes are
/// in ascending order of the new sizes.
pub fn changes(sizes: &BTreeSet<i64>) -> Vec<Vec<(i64, i64)>> {
    let large: Vec<i64> = sizes.iter().copied().filter(|n| *n > 1).rev().collect();
    let small = |n: i64| [1, 2, 3, 4].into_iter().filter(move |m| *m < n);
    let mut out = vec![];
    for (i, &a) in large.iter().enumerate() {
        for &b in &large[i..] {
            for &whole in &large {
                let (product, sum) = (a.checked_mul(b) == Some(whole), a.checked_add(b) == Some(whole));
                let pairs = small(a).flat_map(|x| small(b).map(move |y| (x, y)));
                for (x, y) in pairs.filter(|(x, y)| (product || sum) && (a != b || x == y)) {
                    let to = if product { x * y } else { x + y };
                    out.push(vec![(whole, to), (a, x), (b, y)]);
                }
            }
        }
    }
    // Each size is also changed alone, since it may equal the product or sum of others by coincidence.
    let alone = large.iter().flat_map(|&n| small(n).chain((n / 2 > 4).then_some(n / 2)).map(move |m| vec![(n, m)]));
    out.extend(alone);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_sums_stay_what_they_are() {
        let all = changes(&BTreeSet::from([12, 32, 384, 44]));
        assert!(all.contains(&vec![(384, 6), (32, 3), (12, 2)]));
        assert!(all.contains(&vec![(44, 5), (32, 3), (12, 2)]));
        assert!(all.contains(&vec![(384, 192)]) && all.contains(&vec![(12, 1)]));
        let square = changes(&BTreeSet::from([4, 16]));
        assert!(square.contains(&vec![(16, 9), (4, 3), (4, 3)]));
        assert!(square.iter().all(|c| c.len() < 3 || c[1] == c[2]));
        assert_eq!(changes(&BTreeSet::from([1])), Vec::<Vec<(i64, i64)>>::new());
    }
}
