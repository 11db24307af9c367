//! Unique: the first position of each distinct element, the distinct element that equals each element, and the counts

use super::order::keys;
use super::{Budget, numbers, unfit};
use crate::{Result, Tensor};

/// Finds the distinct rows by sorting, which makes equal rows adjacent. A row is an element or, with an axis, the slice
/// at one index of the axis.
pub fn unique(x: &Tensor, axis: Option<usize>, sorted: bool, budget: &Budget) -> Result<Vec<Tensor>> {
    let (keys, width) = rows(x, keys(x, budget)?, axis, budget)?;
    let n_rows = axis.map_or(x.len(), |axis| x.dims()[axis]);
    let row = |i: usize| &keys[i * width..][..width];
    let order = order(&keys, (n_rows, width), budget)?;
    // Equal rows form a class; classes are numbered in sorted order. `class` has the class of each row; `first` and
    // `count` have the first row and the number of rows of each class.
    let (mut class, mut first, mut count) = (budget.filled(0usize, n_rows)?, vec![], vec![]);
    for (at, &i) in order.iter().enumerate() {
        budget.work(1 + width)?;
        if at == 0 || row(order[at - 1]) != row(i) {
            budget.push(&mut first, i as i64)?;
            budget.push(&mut count, 0i64)?;
        }
        let c = first.len() - 1;
        count[c] += 1;
        class[i] = c;
    }
    drop(order);
    let n = first.len();
    if sorted {
        let class = budget.collect(n_rows, |i| Ok(class[i] as i64))?;
        return Ok(vec![numbers(vec![n], first), numbers(vec![n_rows], class), numbers(vec![n], count)]);
    }
    // The position of each class in order of first appearance, and the class at each position.
    let (mut place, mut at_place) = (budget.filled(0i64, n)?, budget.room(n)?);
    for piece in budget.pieces(n_rows) {
        for i in piece?.filter(|&i| first[class[i]] == i as i64) {
            place[class[i]] = at_place.len() as i64;
            at_place.push(class[i]);
        }
    }
    Ok(vec![
        numbers(vec![n], budget.collect(n, |at| Ok(first[at_place[at]]))?),
        numbers(vec![n_rows], budget.collect(n_rows, |i| Ok(place[class[i]]))?),
        numbers(vec![n], budget.collect(n, |at| Ok(count[at_place[at]]))?),
    ])
}

/// The indices of the rows in sorted order; equal rows keep their order.
fn order(keys: &[u64], (n_rows, width): (usize, usize), budget: &Budget) -> Result<Vec<usize>> {
    if width == 1 {
        let mut placed = budget.collect(n_rows, |i| Ok((keys[i], i)))?;
        budget.sort_by(&mut placed, 1, Ord::cmp)?;
        return budget.collect(n_rows, |at| Ok(placed[at].1));
    }
    let row = |i: usize| &keys[i * width..][..width];
    let mut order = budget.collect(n_rows, Ok)?;
    budget.sort_by(&mut order, width + 1, |&a, &b| row(a).cmp(row(b)).then(a.cmp(&b)))?;
    Ok(order)
}

/// Returns the concatenated keys of all rows, and the number of keys of a row.
fn rows(x: &Tensor, keys: Vec<u64>, axis: Option<usize>, budget: &Budget) -> Result<(Vec<u64>, usize)> {
    let Some(axis) = axis else { return Ok((keys, 1)) };
    let Some(&extent) = x.dims().get(axis) else {
        return Err(unfit(format!("Unique across axis {axis} of {} dimensions", x.rank())));
    };
    // Slices without elements have no keys, and the product of their dimensions may overflow.
    if keys.is_empty() {
        return Ok((keys, 0));
    }
    let inner: usize = x.dims()[axis + 1..].iter().product();
    let outer: usize = x.dims()[..axis].iter().product();
    if outer == 1 {
        return Ok((keys, inner));
    }
    let mut out = budget.room(keys.len())?;
    for i in 0..extent {
        for o in 0..outer {
            budget.work(1 + inner / 8)?;
            out.extend_from_slice(&keys[(o * extent + i) * inner..][..inner]);
        }
    }
    Ok((out, outer * inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(x: &Tensor, axis: Option<usize>, sorted: bool) -> Vec<Vec<i64>> {
        unique(x, axis, sorted, &Budget::unlimited()).unwrap().iter().map(|t| t.to_vec::<i64>().unwrap()).collect()
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

    /// Compares with a linear search through all elements.
    #[test]
    fn many_elements_are_what_a_search_finds() {
        let values: Vec<i64> = (0..3000).map(|i| i * i % 101 - 50).collect();
        let x = Tensor::from_vec(vec![values.len()], values.clone());
        for sorted in [false, true] {
            let mut distinct: Vec<i64> = vec![];
            values.iter().for_each(|v| {
                if !distinct.contains(v) {
                    distinct.push(*v)
                }
            });
            if sorted {
                distinct.sort();
            }
            let found = run(&x, None, sorted);
            for (at, v) in distinct.iter().enumerate() {
                assert_eq!(values.iter().position(|w| w == v), Some(found[0][at] as usize));
                assert_eq!(values.iter().filter(|w| *w == v).count() as i64, found[2][at]);
            }
            assert!(values.iter().zip(&found[1]).all(|(v, at)| distinct[*at as usize] == *v));
        }
    }

    #[test]
    fn slices_across_an_axis_are_compared_whole() {
        let x = Tensor::from_vec(vec![2, 3], vec![3i64, 1, 3, 4, 5, 4]);
        assert_eq!(run(&x, Some(1), true), [vec![1, 0], vec![1, 0, 1], vec![1, 2]]);
        assert_eq!(run(&x, Some(0), true)[0], [0, 1]);
        // Empty slices are all equal.
        let empty = Tensor::zeros(crate::DType::F32, vec![2, 3, 0]);
        assert_eq!(run(&empty, Some(1), false), [vec![0], vec![0, 0, 0], vec![3]]);
        assert!(unique(&x, Some(2), true, &Budget::unlimited()).is_err());
    }
}
