//! Unique: where each distinct element stands first, which of them an element is, how often each is there

use super::order::keys;
use super::{numbers, unfit};
use crate::{Result, Tensor};
use std::collections::BTreeMap;

pub fn unique(x: &Tensor, axis: Option<usize>, sorted: bool) -> Result<Vec<Tensor>> {
    let (keys, width) = rows(x, keys(x)?, axis)?;
    let n_rows = axis.map_or(x.len(), |axis| x.dims()[axis]);
    // Class of each row, in the order of first appearance.
    let mut classes: BTreeMap<&[u64], usize> = BTreeMap::new();
    let (mut first, mut count, mut class) = (vec![], vec![], vec![]);
    for i in 0..n_rows {
        let c = *classes.entry(&keys[i * width..][..width]).or_insert(first.len());
        if c == first.len() {
            first.push(i as i64);
            count.push(0i64);
        }
        count[c] += 1;
        class.push(c);
    }
    let order: Vec<usize> = if sorted { classes.into_values().collect() } else { (0..first.len()).collect() };
    let mut place = vec![0i64; order.len()];
    order.iter().enumerate().for_each(|(at, &c)| place[c] = at as i64);
    let n = order.len();
    Ok(vec![
        numbers(vec![n], order.iter().map(|&c| first[c]).collect()),
        numbers(vec![n_rows], class.into_iter().map(|c| place[c]).collect()),
        numbers(vec![n], order.iter().map(|&c| count[c]).collect()),
    ])
}

/// What is compared, one after the other, and how long each is: the elements, or the slices across an axis.
fn rows(x: &Tensor, keys: Vec<u64>, axis: Option<usize>) -> Result<(Vec<u64>, usize)> {
    let Some(axis) = axis else { return Ok((keys, 1)) };
    let Some(&extent) = x.dims().get(axis) else {
        return Err(unfit(format!("Unique across axis {axis} of {} dimensions", x.rank())));
    };
    let inner: usize = x.dims()[axis + 1..].iter().product();
    let outer: usize = x.dims()[..axis].iter().product();
    let parts = (0..extent).flat_map(|i| (0..outer).map(move |o| (o * extent + i) * inner));
    Ok((parts.flat_map(|at| keys[at..][..inner].iter().copied()).collect(), outer * inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(x: &Tensor, axis: Option<usize>, sorted: bool) -> Vec<Vec<i64>> {
        unique(x, axis, sorted).unwrap().iter().map(|t| t.to_vec::<i64>().unwrap()).collect()
    }

    #[test]
    fn elements_are_numbered_sorted_or_as_they_appear() {
        let x = Tensor::from_vec(vec![6], vec![2.0f32, 1.0, 1.0, f32::NAN, -3.0, f32::NAN]);
        assert_eq!(run(&x, None, true), [vec![4, 1, 0, 3], vec![2, 1, 1, 3, 0, 3], vec![1, 2, 1, 2]]);
        assert_eq!(run(&x, None, false), [vec![0, 1, 3, 4], vec![0, 1, 1, 2, 3, 2], vec![1, 2, 2, 1]]);
        let zeros = Tensor::from_vec(vec![2], vec![0.0f32, -0.0]);
        assert_eq!(run(&zeros, None, true)[0], [0]);
        let large = Tensor::from_vec(vec![3], vec![u64::MAX, 1, u64::MAX]);
        assert_eq!(run(&large, None, true), [vec![1, 0], vec![1, 0, 1], vec![1, 2]]);
    }

    #[test]
    fn slices_across_an_axis_are_compared_whole() {
        let x = Tensor::from_vec(vec![2, 3], vec![3i64, 1, 3, 4, 5, 4]);
        assert_eq!(run(&x, Some(1), true), [vec![1, 0], vec![1, 0, 1], vec![1, 2]]);
        assert_eq!(run(&x, Some(0), true)[0], [0, 1]);
        assert!(unique(&x, Some(2), true).is_err());
    }
}
