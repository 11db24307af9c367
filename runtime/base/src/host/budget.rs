//! time and memory that a call has left  =>  whether a host operation may continue, and whether it may allocate
//!
//! An operation counts its steps, and at intervals checks whether the call must end. Before it allocates memory in
//! proportion to its operands, it requests the bytes, so that exceeding a limit or running out of memory is an error
//! and does not abort the process.

use crate::tensor::{Element, values_of_bytes};
use crate::{Error, Result, Tensor};
use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;

/// The limits that a call imposes on its host operations.
pub trait Limits {
    /// Checks whether the operation may continue. Errors: E0305 past the deadline, E0306 if cancelled.
    fn go_on(&self) -> Result<()>;

    /// Checks whether one operation may have allocated `bytes` in total. Errors: E0304.
    fn allow(&self, bytes: usize) -> Result<()>;
}

/// The steps and bytes that one operation has used. The bytes count until the operation ends, unless it returns them.
pub struct Budget<'a> {
    limits: Option<&'a dyn Limits>,
    /// Steps until the limits are checked again.
    steps_left: Cell<usize>,
    bytes: Cell<usize>,
}

/// Steps between two checks: a step takes between one and some tens of nanoseconds, a check about thirty.
const STEPS: usize = 1 << 14;

/// Number of steps that a loop executes before it counts them.
pub const PIECE: usize = 1 << 12;

/// Number of items that are sorted at once, which takes some milliseconds.
const RUN: usize = 1 << 16;

/// Number of bytes whose copying or comparison counts as one step.
const BYTES_PER_STEP: usize = 64;

/// Number of bytes that are copied before their steps are counted.
const COPIED_AT_ONCE: usize = 1 << 18;

impl<'a> Budget<'a> {
    /// Returns the budget of an operation that has used nothing yet, within the limits of a call.
    pub fn new(limits: &'a dyn Limits) -> Budget<'a> {
        Budget { limits: Some(limits), steps_left: Cell::new(0), bytes: Cell::new(0) }
    }

    /// A budget that only the machine's memory limits.
    pub fn unlimited() -> Budget<'static> {
        Budget { limits: None, steps_left: Cell::new(0), bytes: Cell::new(0) }
    }

    /// Bytes that currently count for the operation.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Counts steps, and checks the limits when it is time. Errors: E0305, E0306.
    #[inline]
    pub fn work(&self, steps: usize) -> Result<()> {
        match self.steps_left.get().checked_sub(steps) {
            Some(left) => {
                self.steps_left.set(left);
                Ok(())
            }
            None => self.look(),
        }
    }

    #[cold]
    fn look(&self) -> Result<()> {
        self.steps_left.set(STEPS);
        self.limits.map_or(Ok(()), |limits| limits.go_on())
    }

    /// Counts the steps that reading `bytes` bytes takes.
    #[inline]
    pub fn read(&self, bytes: usize) -> Result<()> {
        self.work(1 + bytes / BYTES_PER_STEP)
    }

    /// Splits 0..n into ranges of at most `PIECE` numbers; each number counts as a step.
    pub fn pieces(&self, n: usize) -> impl Iterator<Item = Result<Range<usize>>> + '_ {
        (0..n).step_by(PIECE).map(move |at| {
            let end = at.saturating_add(PIECE).min(n);
            self.work(end - at).map(|()| at..end)
        })
    }

    /// Counts bytes that are about to be allocated. Errors: E0304 if that exceeds the limit.
    pub fn take(&self, bytes: usize) -> Result<()> {
        let total = self.bytes.get().saturating_add(bytes);
        if let Some(limits) = self.limits {
            limits.allow(total)?;
        }
        self.bytes.set(total);
        Ok(())
    }

    /// Returns bytes that were taken before and have been freed.
    pub fn give(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
    }

    /// Checks that `bytes` can be allocated, before code of another crate allocates them temporarily and would
    /// abort the process on failure.
    pub fn probe(&self, bytes: usize) -> Result<()> {
        drop(self.room::<u8>(bytes)?);
        self.give(bytes);
        Ok(())
    }

    /// An empty vector with capacity for `n` elements.
    pub fn room<T>(&self, n: usize) -> Result<Vec<T>> {
        let mut out = vec![];
        self.reserve(&mut out, n)?;
        Ok(out)
    }

    fn reserve<T>(&self, into: &mut Vec<T>, n: usize) -> Result<()> {
        let bytes = n.saturating_mul(size_of::<T>());
        self.take(bytes)?;
        into.try_reserve_exact(n).map_err(|_| {
            self.give(bytes);
            refused(bytes)
        })
    }

    /// Returns a vector of `n` clones of a value, each counted as a step. Errors: E0304, E0305, E0306.
    pub fn filled<T: Clone>(&self, value: T, n: usize) -> Result<Vec<T>> {
        let mut out = self.room(n)?;
        for piece in self.pieces(n) {
            out.resize(piece?.end, value.clone());
        }
        Ok(out)
    }

    /// The results of `each` for the numbers below `n`.
    pub fn collect<T>(&self, n: usize, mut each: impl FnMut(usize) -> Result<T>) -> Result<Vec<T>> {
        let mut out = self.room(n)?;
        for piece in self.pieces(n) {
            for i in piece? {
                out.push(each(i)?);
            }
        }
        Ok(out)
    }

    /// Appends a value, and counts the bytes by which the vector grows. Errors: E0304.
    #[inline]
    pub fn push<T>(&self, into: &mut Vec<T>, value: T) -> Result<()> {
        if into.len() == into.capacity() {
            self.grow(into, 1)?;
        }
        into.push(value);
        Ok(())
    }

    /// Appends bytes.
    #[inline]
    pub fn append(&self, into: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
        if into.capacity() - into.len() < bytes.len() {
            self.grow(into, bytes.len())?;
        }
        if bytes.len() <= BYTES_PER_STEP {
            into.extend_from_slice(bytes);
            return Ok(());
        }
        self.append_long(into, bytes)
    }

    fn append_long(&self, into: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
        for part in bytes.chunks(COPIED_AT_ONCE) {
            self.read(part.len())?;
            into.extend_from_slice(part);
        }
        Ok(())
    }

    /// Returns a copy of bytes. Errors: E0304, E0305, E0306.
    pub fn copied(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        let mut out = self.room(bytes.len())?;
        self.append(&mut out, bytes)?;
        Ok(out)
    }

    /// Grows the capacity so that `more` elements fit: doubles it if the limit allows that, otherwise grows it by less.
    #[cold]
    fn grow<T>(&self, into: &mut Vec<T>, more: usize) -> Result<()> {
        let needed = into.len().saturating_add(more);
        let wanted = [into.capacity().saturating_mul(2).max(needed).max(16), needed.saturating_add(needed / 8)];
        let new = |to: usize| to - into.len();
        for n in wanted.map(new) {
            let before = into.capacity();
            // The spare capacity is already counted, and `reserve` would count it again.
            let held = (before - into.len()).saturating_mul(size_of::<T>());
            self.give(held);
            if self.reserve(into, n).is_ok() {
                return Ok(());
            }
            self.bytes.set(self.bytes.get().saturating_add(held));
        }
        let held = (into.capacity() - into.len()).saturating_mul(size_of::<T>());
        self.give(held);
        self.reserve(into, more)
    }

    /// An empty map with capacity for `n` entries.
    pub fn map<K: std::hash::Hash + Eq, V>(&self, n: usize) -> Result<HashMap<K, V>> {
        let places = n.saturating_add(n / 7).checked_next_power_of_two().unwrap_or(usize::MAX);
        let bytes = places.saturating_mul(size_of::<(K, V)>() + 1);
        self.take(bytes)?;
        let mut map = HashMap::new();
        map.try_reserve(n).map_err(|_| {
            self.give(bytes);
            refused(bytes)
        })?;
        Ok(map)
    }

    /// The elements of a tensor as `T`, borrowed if possible; `None` if the tensor has another type.
    pub fn values<'t, T: Element>(&self, t: &'t Tensor) -> Result<Option<Cow<'t, [T]>>> {
        if T::DTYPE != t.dtype() {
            return Ok(None);
        }
        if let Some(values) = values_of_bytes(t.dtype(), t.bytes()) {
            return Ok(Some(Cow::Borrowed(values)));
        }
        let value = |i: usize| Ok(T::read(&t.bytes()[i * T::BYTES..(i + 1) * T::BYTES]));
        self.collect(t.len(), value).map(|values| Some(Cow::Owned(values)))
    }

    /// Sorts items that are pairwise different, so the order is unique. A comparison takes `cost` steps.
    pub fn sort_by<T: Copy>(&self, items: &mut Vec<T>, cost: usize, order: impl Fn(&T, &T) -> Ordering) -> Result<()> {
        let mut width = (RUN / cost.max(1)).max(2);
        for run in items.chunks_mut(width) {
            let levels = run.len().ilog2() as usize + 1;
            self.work(run.len().saturating_mul(levels).saturating_mul(cost))?;
            run.sort_unstable_by(&order);
        }
        if items.len() <= width {
            return Ok(());
        }
        let mut merged = self.room(items.len())?;
        while width < items.len() {
            merged.clear();
            for pair in items.chunks(width.saturating_mul(2)) {
                let (low, high) = pair.split_at(width.min(pair.len()));
                self.merge(low, high, &mut merged, cost, &order)?;
            }
            std::mem::swap(items, &mut merged);
            width = width.saturating_mul(2);
        }
        self.give(merged.capacity() * size_of::<T>());
        Ok(())
    }

    /// Merges two sorted slices and appends them to `out`, which has sufficient capacity.
    fn merge<T: Copy>(
        &self,
        mut low: &[T],
        mut high: &[T],
        out: &mut Vec<T>,
        cost: usize,
        order: &impl Fn(&T, &T) -> Ordering,
    ) -> Result<()> {
        let at_once = (PIECE / cost.max(1)).max(1);
        loop {
            self.work(at_once.saturating_mul(cost))?;
            for _ in 0..at_once {
                let (Some(a), Some(b)) = (low.first(), high.first()) else {
                    out.extend_from_slice(low);
                    out.extend_from_slice(high);
                    return Ok(());
                };
                if order(a, b) == Ordering::Greater {
                    out.push(*b);
                    high = &high[1..];
                } else {
                    out.push(*a);
                    low = &low[1..];
                }
            }
        }
    }
}

fn refused(bytes: usize) -> Box<Error> {
    Error::user("E0304", format!("cannot allocate {bytes} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limits the bytes and the number of checks.
    struct Few {
        bytes: usize,
        looks: Cell<usize>,
    }

    impl Limits for Few {
        fn go_on(&self) -> Result<()> {
            let left = self.looks.get().checked_sub(1).ok_or_else(|| Error::user("E0305", "late"))?;
            self.looks.set(left);
            Ok(())
        }

        fn allow(&self, bytes: usize) -> Result<()> {
            if bytes <= self.bytes { Ok(()) } else { Err(Error::user("E0304", "too much")) }
        }
    }

    fn few(bytes: usize, looks: usize) -> Few {
        Few { bytes, looks: Cell::new(looks) }
    }

    #[test]
    fn work_is_looked_at_once_and_then_now_and_then() {
        let limits = few(0, 3);
        let budget = Budget::new(&limits);
        let mut done = 0;
        while budget.work(1).is_ok() {
            done += 1;
        }
        assert_eq!(done, 3 * (STEPS + 1));
    }

    #[test]
    fn what_grows_uses_all_that_is_allowed() {
        let limits = few(1000, usize::MAX);
        let budget = Budget::new(&limits);
        let mut bytes = vec![];
        while budget.push(&mut bytes, 7u8).is_ok() {}
        assert!(bytes.len() > 880 && bytes.capacity() <= 1000, "{} of {}", bytes.len(), bytes.capacity());
        assert_eq!(budget.bytes(), bytes.capacity());
        assert_eq!(budget.append(&mut bytes, &[0; 500]).unwrap_err().code, "E0304");
        assert_eq!(budget.map::<u64, u64>(100).unwrap_err().code, "E0304");
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let budget = Budget::unlimited();
        for n in [usize::MAX, isize::MAX as usize / 8] {
            assert_eq!(budget.filled(0u64, n).unwrap_err().code, "E0304");
        }
        assert_eq!(budget.map::<u64, u64>(usize::MAX / 64).unwrap_err().code, "E0304");
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn long_rows_are_sorted_in_runs() {
        let budget = Budget::unlimited();
        for (n, cost) in [(0, 1), (5, 1), (3 * RUN + 7, 1), (1000, RUN), (2 * RUN, 9)] {
            let mut items: Vec<(u64, usize)> = (0..n).map(|i| (i as u64 * 7919 % 1013, i)).collect();
            let mut wanted = items.clone();
            wanted.sort();
            budget.sort_by(&mut items, cost, Ord::cmp).unwrap();
            assert_eq!(items, wanted, "{n} {cost}");
        }
        assert_eq!(budget.bytes(), 0);
    }
}
