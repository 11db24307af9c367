//! independent parts of the search  =>  their results, found on several threads

use sardonyx_base::{Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the results for all items in their order, or the error of the first item that has one. As many threads as
/// the machine has take one item after the other.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = vec![];
        while let Some((i, item)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?))) {
            done.push((i, f(item)));
        }
        done
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(items.len());
    let ended = |_| Error::defect("a thread of the planner panicked");
    let done = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|t| t.join().map_err(ended)).collect::<Result<Vec<_>>>()
    })?;
    let mut all: Vec<(usize, Result<R>)> = done.into_iter().flatten().collect();
    all.sort_by_key(|(i, _)| *i);
    all.into_iter().map(|(_, result)| result).collect()
}
