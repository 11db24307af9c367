//! values that must be computed  =>  all values that must be computed for them, and the values that are free
//!
//! Free values get random contents. At depth 0, all operands are free: results that agree for independent operands
//! agree for any operands. A difference at depth 0 may be spurious, because `x` and `exp(x)`, for example, are not
//! independent. From depth 1 on, no free value is computed from another value of the cut. Each further depth also
//! computes the values that were free at the previous depth, except inputs, because two free values may be computed
//! from a common value.

use std::collections::BTreeSet;

/// The dependences between values, which are identified by their numbers.
pub struct Made<'a> {
    /// The operands of a value; empty for inputs.
    pub from: &'a dyn Fn(usize) -> Vec<usize>,
    /// Rank of a value: a number larger than the ranks of all values from which the value is computed.
    pub rank: &'a dyn Fn(usize) -> usize,
    /// Whether a value must always be computed, such as a constant or a view.
    pub bound: &'a dyn Fn(usize) -> bool,
}

pub struct Cut {
    pub computed: BTreeSet<usize>,
    pub free: BTreeSet<usize>,
}

/// Maximum number of computed values. If a cut would have more, the rewrite cannot be validated at the cut's depth.
const COMPUTED_MAX: usize = 300;

/// Returns the cut of this depth for the given values, or `None` if it would compute more than `COMPUTED_MAX` values.
pub fn cut(roots: impl IntoIterator<Item = usize>, made: &Made, depth: usize) -> Option<Cut> {
    let mut computed = BTreeSet::new();
    let mut open: Vec<usize> = roots.into_iter().collect();
    let mut reached: BTreeSet<usize> = open.iter().copied().collect();
    let mut deeper = 1;
    loop {
        while let Some(v) = open.pop() {
            if !computed.insert(v) {
                continue;
            }
            for d in (made.from)(v) {
                reached.insert(d);
                if (made.bound)(d) {
                    open.push(d);
                }
            }
        }
        if computed.len() > COMPUTED_MAX {
            return None;
        }
        if depth == 0 {
            break;
        }
        let least = reached.iter().map(|&v| (made.rank)(v)).min().unwrap_or(0);
        let depends = |v: &&usize| !computed.contains(*v) && is_made_of(**v, &reached, least, made);
        match reached.iter().find(depends) {
            Some(&next) => open.push(next),
            None if deeper < depth => {
                deeper += 1;
                let is_made = |v: &usize| !computed.contains(v) && !(made.from)(*v).is_empty();
                open.extend(reached.iter().copied().filter(is_made));
            }
            None => break,
        }
    }
    let free = reached.difference(&computed).copied().collect();
    Some(Cut { computed, free })
}

/// Whether a value is computed, directly or indirectly, from one of `others`, all of which have a rank of `least` or
/// more.
fn is_made_of(v: usize, others: &BTreeSet<usize>, least: usize, made: &Made) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = (made.from)(v);
    while let Some(d) = open.pop() {
        if others.contains(&d) {
            return true;
        }
        if (made.rank)(d) > least && seen.insert(d) {
            open.extend((made.from)(d));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0 and 1 are inputs; 2 = f(0), 3 = g(2), 4 = h(3), 5 = h(2, 1).
    fn made_from(v: usize) -> Vec<usize> {
        [vec![], vec![], vec![0], vec![2], vec![3], vec![2, 1]][v].clone()
    }

    fn cut_at(roots: &[usize], depth: usize) -> (Vec<usize>, Vec<usize>) {
        let made = Made { from: &made_from, rank: &|v| v, bound: &|_| false };
        let cut = cut(roots.iter().copied(), &made, depth).unwrap();
        (cut.computed.into_iter().collect(), cut.free.into_iter().collect())
    }

    #[test]
    fn what_a_root_reads_is_free() {
        assert_eq!(cut_at(&[4], 1), (vec![4], vec![3]));
        assert_eq!(cut_at(&[4], 3), (vec![2, 3, 4], vec![0]));
        assert_eq!(cut_at(&[4], 9), (vec![2, 3, 4], vec![0]));
        assert_eq!(cut_at(&[4, 5], 0), (vec![4, 5], vec![1, 2, 3]));
    }

    #[test]
    fn what_is_made_from_a_root_is_computed() {
        // 4 reads 3, which is computed from 2, which is computed from the root 0.
        assert_eq!(cut_at(&[0, 4], 1), (vec![0, 2, 3, 4], vec![]));
    }

    #[test]
    fn what_is_made_from_something_free_is_computed() {
        // 4 reads 3, which is computed from 2, which 5 reads.
        assert_eq!(cut_at(&[4, 5], 1), (vec![3, 4, 5], vec![1, 2]));
    }
}
