//! the cost of a call of each size  =>  all Pareto-optimal ways to cut a batch into calls, by time and workspace
//!
//! Calls run one after the other: their times add up, and they share the largest workspace. The last call may have any
//! size that the policy allows; the elements before it form a smaller batch, whose optimal splits are already known.
//! (Oyama et al., "Accelerating deep learning frameworks with micro-batches", section III.)

/// One way to compute a given number of batch elements in a single call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<A> {
    pub algorithm: A,
    pub time: u64,
    /// Size of the workspace in bytes.
    pub workspace: u64,
}

/// A Pareto-optimal split of a batch: no other split is as good in both time and workspace and better in one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split<A> {
    pub time: u64,
    pub workspace: u64,
    /// Number of batch elements and algorithm of each call.
    pub calls: Vec<(i64, A)>,
}

/// The sizes that calls may have, in batch elements. One call for the whole batch is always allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    PowersOfTwo,
    #[cfg(test)]
    All,
}

impl Policy {
    fn sizes(self, batch: i64) -> impl Iterator<Item = i64> {
        (1..=batch).filter(move |size| match self {
            Policy::PowersOfTwo => size.count_ones() == 1 || *size == batch,
            #[cfg(test)]
            Policy::All => true,
        })
    }
}

/// A split of a part of a batch: its last call, and the index `before` of the split of the remaining elements among
/// their Pareto-optimal splits.
#[derive(Clone, Copy)]
struct Way<A> {
    time: u64,
    workspace: u64,
    n_calls: u32,
    last: Option<(i64, A)>,
    before: usize,
}

/// Returns all Pareto-optimal splits, the fastest first; `calls(n)` gives the ways to compute n batch elements in one
/// call.
pub fn best<A: Copy>(batch: i64, policy: Policy, calls: impl Fn(i64) -> Vec<Call<A>>) -> Vec<Split<A>> {
    let sizes: Vec<(i64, Vec<Call<A>>)> = policy.sizes(batch).map(|size| (size, calls(size))).collect();
    let mut fronts = vec![vec![Way { time: 0, workspace: 0, n_calls: 0, last: None, before: 0 }]];
    for part in 1..=batch {
        let mut ways: Vec<Way<A>> = vec![];
        for (size, calls) in sizes.iter().filter(|(size, _)| *size <= part) {
            for (before, rest) in fronts[(part - size) as usize].iter().enumerate() {
                ways.extend(calls.iter().map(|call| Way {
                    time: rest.time.saturating_add(call.time),
                    workspace: rest.workspace.max(call.workspace),
                    n_calls: rest.n_calls + 1,
                    last: Some((*size, call.algorithm)),
                    before,
                }));
            }
        }
        fronts.push(undominated(ways));
    }
    let whole = &fronts[fronts.len() - 1];
    (0..whole.len()).map(|at| split(&fronts, at)).collect()
}

/// Removes dominated splits: a split is dominated if another split is at least as fast with at most as much workspace.
fn undominated<A>(mut ways: Vec<Way<A>>) -> Vec<Way<A>> {
    ways.sort_by_key(|w| (w.time, w.workspace, w.n_calls));
    let mut least = None;
    ways.retain(|way| {
        let better = least.is_none_or(|w| way.workspace < w);
        least = if better { Some(way.workspace) } else { least };
        better
    });
    ways
}

fn split<A: Copy>(fronts: &[Vec<Way<A>>], at: usize) -> Split<A> {
    let whole = &fronts[fronts.len() - 1][at];
    let mut out = Split { time: whole.time, workspace: whole.workspace, calls: vec![] };
    let (mut part, mut at) = (fronts.len() - 1, at);
    while let Some((size, algorithm)) = fronts[part][at].last {
        out.calls.push((size, algorithm));
        at = fronts[part][at].before;
        part -= size as usize;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::collections::BTreeSet;

    /// Costs of the published example, in hundredths of a time unit: the fast algorithm needs a MiB of workspace per
    /// batch element and must stay below 64 MiB, the slow one needs a byte per element.
    fn fast_and_slow(size: i64) -> Vec<Call<&'static str>> {
        let n = size as u64;
        let fast = Call { algorithm: "fast", time: 10 * n + 1, workspace: n << 20 };
        let slow = Call { algorithm: "slow", time: 1000 * n + 10, workspace: n };
        [fast, slow].into_iter().filter(|call| call.workspace < 64 << 20).collect()
    }

    #[test]
    fn a_batch_of_256_has_the_published_front() {
        let found = best(256, Policy::PowersOfTwo, fast_and_slow);
        let points: Vec<(u64, u64, usize)> = found.iter().map(|s| (s.time, s.workspace, s.calls.len())).collect();
        let published = [
            (2568, 33554432, 8),
            (2576, 16777216, 16),
            (2592, 8388608, 32),
            (2624, 4194304, 64),
            (2688, 2097152, 128),
            (2816, 1048576, 256),
            (256010, 256, 1),
            (256020, 128, 2),
            (256040, 64, 4),
            (256080, 32, 8),
            (256160, 16, 16),
            (256320, 8, 32),
            (256640, 4, 64),
            (257280, 2, 128),
            (258560, 1, 256),
        ];
        assert_eq!(points, published);
        for split in &found {
            assert_eq!(split.calls.iter().map(|(size, _)| size).sum::<i64>(), 256);
        }
    }

    /// Collects time and workspace of every way to cut `left` batch elements into calls of non-decreasing sizes, of at
    /// least `least` elements each.
    fn all_ways(
        left: i64,
        least: i64,
        sizes: &[i64],
        calls: &dyn Fn(i64) -> Vec<Call<usize>>,
        so_far: (u64, u64),
        out: &mut Vec<(u64, u64)>,
    ) {
        if left == 0 {
            out.push(so_far);
        }
        for &size in sizes.iter().filter(|s| **s >= least && **s <= left) {
            for call in calls(size) {
                let next = (so_far.0 + call.time, so_far.1.max(call.workspace));
                all_ways(left - size, size, sizes, calls, next, out);
            }
        }
    }

    #[test]
    fn no_way_is_better_than_those_found() {
        for seed in 1..=500u64 {
            let mut r = Random::new(seed);
            let policy = if r.below(2) == 0 { Policy::All } else { Policy::PowersOfTwo };
            let batch = 1 + r.below(8) as i64;
            let table: Vec<Vec<Call<usize>>> = (0..=batch)
                .map(|_| {
                    let n = 1 + r.below(3);
                    (0..n)
                        .map(|algorithm| Call { algorithm, time: r.below(20) as u64, workspace: r.below(6) as u64 })
                        .collect()
                })
                .collect();
            let calls = |size: i64| table[size as usize].clone();
            let sizes: Vec<i64> = policy.sizes(batch).collect();
            let mut ways = vec![];
            all_ways(batch, 1, &sizes, &calls, (0, 0), &mut ways);
            let beaten = |w: &(u64, u64)| ways.iter().any(|o| o != w && o.0 <= w.0 && o.1 <= w.1);
            let expected: BTreeSet<(u64, u64)> = ways.iter().filter(|w| !beaten(w)).copied().collect();
            let found = best(batch, policy, calls);
            let points: BTreeSet<(u64, u64)> = found.iter().map(|s| (s.time, s.workspace)).collect();
            assert_eq!(points, expected, "seed {seed}");
            for split in found {
                let each = split.calls.iter().map(|(size, algorithm)| table[*size as usize][*algorithm]);
                let time: u64 = each.clone().map(|call| call.time).sum();
                let workspace = each.map(|call| call.workspace).max();
                assert_eq!((time, workspace), (split.time, Some(split.workspace)), "seed {seed}");
            }
        }
    }
}
