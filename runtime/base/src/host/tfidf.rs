//! TfIdfVectorizer: counts how often each n-gram of a pool occurs in a row, with equal gaps between the elements

use super::{Budget, unfit};
use crate::{Error, Result, Tensor};
use std::collections::HashMap;
use std::hash::Hash;

/// The n-grams to count, and how counts are weighted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ngrams {
    /// Minimum and maximum length of n-grams.
    pub lengths: (usize, usize),
    /// Maximum number of elements that are skipped between consecutive elements of an n-gram.
    pub skip_max: usize,
    /// How counts become elements of the result.
    pub weighing: Weighing,
}

/// Element of the result for an n-gram: the ONNX attribute `mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Weighing {
    /// The count.
    Tf,
    /// The weight of the n-gram if it occurs, else 0.
    Idf,
    /// The count times the weight.
    TfIdf,
}

/// x [c] or [n, c], the pool (concatenated n-grams, shorter ones first), the position in the pool of the first n-gram
/// of each length, the column of each n-gram, the weight of each n-gram  =>  f32 [columns] or [n, columns]
pub fn count(ngrams: &Ngrams, args: &[Tensor], budget: &Budget) -> Result<Tensor> {
    let [x, pool, starts, columns, weights] = args else { return Err(unfit("n-grams take five operands".into())) };
    if x.dtype() != pool.dtype() {
        return Err(unfit(format!("elements of type {} are not in a pool of type {}", x.dtype(), pool.dtype())));
    }
    let indices = |t: &Tensor| {
        let wrong = || unfit("an index of the pool is negative or no integer".into());
        budget.collect(t.len(), |i| t.get_i64(i).and_then(|v| usize::try_from(v).ok()).ok_or_else(wrong))
    };
    let (starts, columns) = (indices(starts)?, indices(columns)?);
    let (row_length, n_rows) = match *x.dims() {
        [c] => (c, 1),
        [n, c] => (c, n),
        _ => return Err(unfit(format!("{:?} is neither a row nor rows", x.dims()))),
    };
    let width = columns.iter().max().map_or(0, |m| m.saturating_add(1));
    if width > (1 << 28) {
        return Err(Error::user("E0202", format!("{width} columns are too many")));
    }
    let mut out = budget.filled(0f32, n_rows.saturating_mul(width))?;
    let (pool, x) = numbered(pool, x, budget)?;
    let places = places(&pool, &starts, &columns, budget)?;
    let mut gram = vec![];
    for r in 0..n_rows {
        budget.work(1)?;
        let (row, counts) = (&x[r * row_length..(r + 1) * row_length], &mut out[r * width..(r + 1) * width]);
        count_row(ngrams, row, &places, counts, &mut gram, budget)?;
    }
    for (id, &column) in columns.iter().enumerate().filter(|_| ngrams.weighing != Weighing::Tf) {
        let weight = weights.get_f64(id).ok_or_else(|| unfit("there are fewer weights than n-grams".into()))? as f32;
        budget.work(1)?;
        for piece in budget.pieces(n_rows) {
            for r in piece? {
                let v = &mut out[r * width + column];
                *v = match ngrams.weighing {
                    Weighing::Idf => {
                        if *v > 0.0 {
                            weight
                        } else {
                            0.0
                        }
                    }
                    Weighing::Tf | Weighing::TfIdf => *v * weight,
                };
            }
        }
    }
    let dims = if args[0].rank() == 2 { vec![n_rows, width] } else { vec![width] };
    Ok(Tensor::from_vec(dims, out))
}

/// The number that [`numbered`] assigns to elements of x that are not in the pool; no n-gram contains it.
const UNKNOWN: usize = usize::MAX;

/// Numbers the elements of the pool and of x, so that equal ones have equal numbers.
fn numbered(pool: &Tensor, x: &Tensor, budget: &Budget) -> Result<(Vec<usize>, Vec<usize>)> {
    fn both<K: Hash + Eq>(
        [n_pool, n]: [usize; 2],
        element: impl Fn(bool, usize) -> Result<K>,
        budget: &Budget,
    ) -> Result<(Vec<usize>, Vec<usize>)> {
        let mut known: HashMap<K, usize> = budget.map(n_pool)?;
        let pool = budget.collect(n_pool, |i| {
            let next = known.len();
            Ok(*known.entry(element(true, i)?).or_insert(next))
        })?;
        let number = |i| Ok(known.get(&element(false, i)?).copied().unwrap_or(UNKNOWN));
        Ok((pool, budget.collect(n, number)?))
    }
    let lengths = [pool.len(), x.len()];
    if let (Some(pool), Some(x)) = (pool.string_view(), x.string_view()) {
        let element = |of_pool, i| {
            let text = if of_pool { pool.get(i) } else { x.get(i) };
            budget.read(text.len()).map(|()| text)
        };
        return both(lengths, element, budget);
    }
    let element = |of_pool, i| {
        let number = if of_pool { pool.get_i64(i) } else { x.get_i64(i) };
        number.ok_or_else(|| unfit(format!("elements of type {} are not counted", x.dtype())))
    };
    both(lengths, element, budget)
}

/// Maps each n-gram to its column.
fn places<'a>(
    pool: &'a [usize],
    starts: &[usize],
    columns: &[usize],
    budget: &Budget,
) -> Result<HashMap<&'a [usize], usize>> {
    let mut out = budget.map(columns.len().min(pool.len()))?;
    let mut id = 0;
    for (i, &start) in starts.iter().enumerate() {
        budget.work(1)?;
        let end = starts.get(i + 1).copied().unwrap_or(pool.len());
        let grams =
            pool.get(start..end).ok_or_else(|| unfit("the counts of n-grams do not ascend in the pool".into()))?;
        for gram in grams.chunks_exact(i + 1) {
            budget.work(gram.len())?;
            let column = columns.get(id).ok_or_else(|| unfit("there are fewer columns than n-grams".into()))?;
            out.insert(gram, *column);
            id += 1;
        }
    }
    Ok(out)
}

fn count_row(
    ngrams: &Ngrams,
    row: &[usize],
    places: &HashMap<&[usize], usize>,
    counts: &mut [f32],
    gram: &mut Vec<usize>,
    budget: &Budget,
) -> Result<()> {
    let (shortest, longest) = ngrams.lengths;
    for length in shortest.max(1)..=longest.min(row.len()) {
        // A single element has no gaps.
        let skips = if length == 1 { 0 } else { ngrams.skip_max.min(row.len()) };
        for step in 1..=skips + 1 {
            budget.work(1)?;
            let reach = (length - 1) * step;
            for start in 0..row.len().saturating_sub(reach) {
                budget.work(length)?;
                gram.clear();
                for k in 0..length {
                    budget.push(gram, row[start + k * step])?;
                }
                if let Some(&column) = places.get(&gram[..]) {
                    counts[column] += 1.0;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ngrams_are_counted_with_and_without_gaps() {
        let i = |v: &[i64]| Tensor::from_vec(vec![v.len()], v.to_vec());
        let args = |x: Tensor| {
            [
                x,
                i(&[2, 3, 5, 4, 5, 6]),
                i(&[0, 2]),
                i(&[0, 1, 2, 3]),
                Tensor::from_vec(vec![4], vec![1f32, 2.0, 3.0, 4.0]),
            ]
        };
        let all = |lengths, skip_max, weighing, x: &[i64]| {
            count(&Ngrams { lengths, skip_max, weighing }, &args(i(x)), &Budget::unlimited())
                .unwrap()
                .to_vec::<f32>()
                .unwrap()
        };
        let x = [2, 5, 4, 5, 9, 6, 2];
        assert_eq!(all((1, 1), 0, Weighing::Tf, &x), [2.0, 0.0, 0.0, 0.0]);
        assert_eq!(all((2, 2), 0, Weighing::Tf, &x), [0.0, 0.0, 1.0, 0.0]);
        assert_eq!(all((2, 2), 1, Weighing::Tf, &x), [0.0, 0.0, 1.0, 1.0]);
        assert_eq!(all((1, 2), 1, Weighing::Idf, &x), [1.0, 0.0, 3.0, 4.0]);
        assert_eq!(all((1, 1), 5, Weighing::TfIdf, &x), [2.0, 0.0, 0.0, 0.0]);
    }
}
