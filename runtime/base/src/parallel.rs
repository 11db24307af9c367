//! items, a function  =>  its results in the order of the items, computed on all processors

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope};

/// Returns the results of a function for all items. As many threads as the machine has, and no more than there are items,
/// take one item after the other. If a call panics, so does this one.
pub fn map<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mut done = vec![];
        while let Some((i, item)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?))) {
            done.push((i, f(item)));
        }
        done
    };
    let n = available_parallelism().map_or(1, usize::from).min(items.len());
    let mut all = scope(|s| {
        let threads: Vec<_> = (0..n).map(|_| s.spawn(some)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap_or_else(|panic| resume_unwind(panic))).collect::<Vec<_>>()
    });
    all.sort_by_key(|(i, _)| *i);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::map;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..1000).collect();
        assert_eq!(map(&items, |i| i * i), items.iter().map(|i| i * i).collect::<Vec<_>>());
    }
}
