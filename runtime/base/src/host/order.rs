//! Order: the indices of the first elements of each sorted row

use super::{Budget, numbers, unfit};
use crate::{DType, Result, Tensor};

/// A key and its position.
type Placed = (u64, usize);

/// Maximum number of requested keys that are found by selection; more keys are found by sorting, which checks the
/// limits of the call in between.
const SELECTED_MAX: usize = 1 << 20;

/// Number of keys of f32 that are compared together.
const BLOCK: usize = 32;

pub fn order(x: &Tensor, count: &Tensor, descending: bool, budget: &Budget) -> Result<Tensor> {
    let wrong = || unfit(format!("the first {count:?} elements of each row of {:?}", x.dims()));
    let (&n, lead) = x.dims().split_last().ok_or_else(wrong)?;
    let count = (count.len() == 1).then(|| count.get_i64(0)).flatten().and_then(|k| usize::try_from(k).ok());
    let count = count.filter(|k| *k <= n).ok_or_else(wrong)?;
    let dims = [lead, &[count]].concat();
    if count == 0 || x.is_empty() {
        return Ok(numbers(dims, vec![]));
    }
    let key = |key: u64| if descending { !key } else { key };
    let mut places = budget.room(x.len() / n * count)?;
    let mut first = First { count, best: vec![], last: None };
    let mut end_row = |first: &mut First| -> Result<()> {
        places.extend(first.sorted(budget)?.iter().map(|(_, place)| *place as i64));
        first.clear();
        Ok(())
    };
    match x.dtype() {
        // The keys of f32, the most frequent type, are computed piece by piece instead of being stored.
        DType::F32 => {
            let key = |b: &[u8; 4]| if descending { !f32_key(b) } else { f32_key(b) };
            for row in x.bytes().chunks_exact(4 * n) {
                for piece in budget.pieces(n) {
                    let piece = piece?;
                    let keys = row[4 * piece.start..4 * piece.end].as_chunks::<4>().0;
                    for (block, start) in keys.chunks(BLOCK).zip((piece.start..).step_by(BLOCK)) {
                        // All keys of a block are compared together, because most blocks have none that matters.
                        let is_none = |last: i32| block.iter().fold(true, |none, b| none & (key(b) >= last));
                        if !first.last.map(narrow).is_some_and(is_none) {
                            first.add(block.iter().map(|b| widen(key(b))), start, budget)?;
                        }
                    }
                }
                end_row(&mut first)?;
            }
        }
        _ => {
            for row in keys(x, budget)?.chunks_exact(n) {
                for piece in budget.pieces(n) {
                    let piece = piece?;
                    first.add(row[piece.clone()].iter().copied().map(key), piece.start, budget)?;
                }
                end_row(&mut first)?;
            }
        }
    }
    Ok(numbers(dims, places))
}

/// The `count` smallest keys, with their positions. Finding k of n takes about n + k log k operations.
struct First {
    count: usize,
    best: Vec<Placed>,
    /// The largest of the `count` smallest keys at the last selection; new keys that are not smaller are skipped.
    /// `None` before the first selection.
    last: Option<u64>,
}

impl First {
    fn clear(&mut self) {
        self.best.clear();
        self.last = None;
    }

    /// Adds the keys that follow the previous ones, at positions from `start` on.
    fn add(&mut self, keys: impl Iterator<Item = u64>, start: usize, budget: &Budget) -> Result<()> {
        let mut last = self.last;
        for (place, key) in keys.enumerate() {
            // Equal keys are in the order of their positions, so a key equal to `last` is skipped, too.
            if last.is_some_and(|last| key >= last) {
                continue;
            }
            budget.push(&mut self.best, (key, start + place))?;
            if self.best.len() == 2 * self.count {
                self.select(budget)?;
                last = self.last;
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn select(&mut self, budget: &Budget) -> Result<()> {
        match self.count <= SELECTED_MAX {
            true => drop(self.best.select_nth_unstable(self.count - 1)),
            false => budget.sort_by(&mut self.best, 1, Ord::cmp)?,
        }
        self.best.truncate(self.count);
        self.last = self.best.last().map(|(key, _)| *key);
        budget.work(self.count)
    }

    fn sorted(&mut self, budget: &Budget) -> Result<&[Placed]> {
        budget.sort_by(&mut self.best, 1, Ord::cmp)?;
        self.best.truncate(self.count);
        Ok(&self.best)
    }
}

/// Integer keys in the order of the elements: NaN is last and equals itself, -0 equals 0.
pub fn keys(x: &Tensor, budget: &Budget) -> Result<Vec<u64>> {
    let dtype = x.dtype();
    let raw = x.bytes();
    let no_order = || unfit(format!("elements of type {dtype} have no order"));
    let signed = |v: i64| (v as u64) ^ (1 << 63);
    match dtype {
        DType::F32 => {
            budget.collect(x.len(), |i| raw[4 * i..].first_chunk().map(|b| widen(f32_key(b))).ok_or_else(no_order))
        }
        DType::U64 => budget.collect(x.len(), |i| {
            raw.get(i * 8..i * 8 + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes).ok_or_else(no_order)
        }),
        _ if dtype.is_float() => budget.collect(x.len(), |i| x.get_f64(i).map(float_key).ok_or_else(no_order)),
        _ => budget.collect(x.len(), |i| x.get_i64(i).map(signed).ok_or_else(no_order)),
    }
}

/// A key of an f32 as a signed number, which narrow vectors compare.
fn f32_key(b: &[u8; 4]) -> i32 {
    let v = f32::from_le_bytes(*b) + 0.0;
    let bits = v.to_bits() as i32;
    // Negative floats decrease as their bits increase.
    let key = bits ^ (bits >> 31 & i32::MAX);
    if v.is_nan() { i32::MAX } else { key }
}

/// The key of an f32 among keys of other types.
fn widen(key: i32) -> u64 {
    i64::from(key) as u64 ^ 1 << 63
}

/// The inverse of `widen`.
fn narrow(key: u64) -> i32 {
    (key ^ 1 << 63) as i32
}

fn float_key(v: f64) -> u64 {
    if v.is_nan() {
        return u64::MAX;
    }
    let bits = (v + 0.0).to_bits();
    // Negative floats decrease as their bits increase.
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(x: &Tensor, count: &Tensor, descending: bool) -> Result<Tensor> {
        super::order(x, count, descending, &Budget::unlimited())
    }

    fn places(x: &Tensor, k: i64, descending: bool) -> Vec<i64> {
        order(x, &Tensor::scalar(k), descending).unwrap().to_vec().unwrap()
    }

    #[test]
    fn equal_elements_keep_their_order_and_nan_is_the_largest() {
        let x = Tensor::from_vec(vec![2, 4], vec![1.0f32, f32::NAN, 1.0, f32::INFINITY, -0.0, 0.0, -1.0, 0.0]);
        assert_eq!(places(&x, 3, true), [1, 3, 0, 0, 1, 3]);
        assert_eq!(places(&x, 4, false), [0, 2, 3, 1, 2, 0, 1, 3]);
        assert_eq!(order(&x, &Tensor::scalar(0i64), true).unwrap().dims(), [2, 0]);
        let large = Tensor::from_vec(vec![3], vec![1u64, u64::MAX, i64::MAX as u64 + 1]);
        assert_eq!(places(&large, 3, true), [1, 2, 0]);
        let signed = Tensor::from_vec(vec![3], vec![0i64, i64::MIN, i64::MAX]);
        assert_eq!(places(&signed, 2, false), [1, 0]);
    }

    #[test]
    fn more_than_there_are_is_refused() {
        let x = Tensor::from_vec(vec![2], vec![1.0f32, 2.0]);
        for k in [-1, 3] {
            assert_eq!(order(&x, &Tensor::scalar(k as i64), true).unwrap_err().code, "E0303");
        }
        assert!(order(&Tensor::scalar(1i64), &Tensor::scalar(1i64), true).is_err());
    }

    #[test]
    fn a_part_of_the_order_is_its_begin() {
        let x: Vec<i64> = (0..500i64).map(|i| i * 7919 % 101).collect();
        let x = Tensor::from_vec(vec![500], x);
        let whole = places(&x, 500, true);
        for k in [1, 2, 99, 499] {
            assert_eq!(places(&x, k, true), whole[..k as usize]);
        }
    }
}
