//! Order: where the first elements of each sorted row stand

use super::{numbers, unfit};
use crate::{DType, Result, Tensor};

pub fn order(x: &Tensor, count: &Tensor, descending: bool) -> Result<Tensor> {
    let wrong = || unfit(format!("the first {count:?} elements of each row of {:?}", x.dims()));
    let (&n, lead) = x.dims().split_last().ok_or_else(wrong)?;
    let count = (count.len() == 1).then(|| count.get_i64(0)).flatten().and_then(|k| usize::try_from(k).ok());
    let count = count.filter(|k| *k <= n).ok_or_else(wrong)?;
    let dims = [lead, &[count]].concat();
    if count == 0 {
        return Ok(numbers(dims, vec![]));
    }
    let key = |key: u64| if descending { !key } else { key };
    let mut places = vec![];
    let mut add = |first: Vec<(u64, usize)>| places.extend(first.into_iter().map(|(_, place)| place as i64));
    match x.dtype() {
        // The most frequent type does without a copy of all keys.
        DType::F32 => x.bytes().chunks_exact(4 * n).for_each(|row| add(first(f32_keys(row).map(key), count))),
        _ => keys(x)?.chunks_exact(n).for_each(|row| add(first(row.iter().copied().map(key), count))),
    }
    Ok(numbers(dims, places))
}

/// The first `count` of the sorted keys, with their places: n + k log k operations for k of n.
fn first(keys: impl Iterator<Item = u64>, count: usize) -> Vec<(u64, usize)> {
    let mut best: Vec<(u64, usize)> = vec![];
    let mut last = None;
    for (place, key) in keys.enumerate() {
        // An equal key comes later.
        if last.is_some_and(|last| key >= last) {
            continue;
        }
        best.push((key, place));
        if best.len() == 2 * count {
            best.select_nth_unstable(count - 1);
            best.truncate(count);
            last = best.last().map(|(key, _)| *key);
        }
    }
    best.sort_unstable();
    best.truncate(count);
    best
}

/// Integers in the order of the elements: NaN is the last and equals itself, -0 is 0.
pub fn keys(x: &Tensor) -> Result<Vec<u64>> {
    let dtype = x.dtype();
    if dtype == DType::F32 {
        return Ok(f32_keys(x.bytes()).collect());
    }
    let signed = |v: i64| (v as u64) ^ (1 << 63);
    let key = |i: usize| match dtype {
        DType::U64 => x.bytes().get(i * 8..i * 8 + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes),
        _ if dtype.is_float() => x.get_f64(i).map(float_key),
        _ => x.get_i64(i).map(signed),
    };
    (0..x.len()).map(|i| key(i).ok_or_else(|| unfit(format!("elements of type {dtype} have no order")))).collect()
}

fn f32_keys(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<4>().0.iter().map(|b| float_key(f32::from_le_bytes(*b).into()))
}

fn float_key(v: f64) -> u64 {
    if v.is_nan() {
        return u64::MAX;
    }
    let bits = (v + 0.0).to_bits();
    // Negative floats fall as their bits rise.
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

#[cfg(test)]
mod tests {
    use super::*;

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
