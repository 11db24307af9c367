//! TfIdfVectorizer: how often each n-gram of a pool is in a row, elements that follow at equal distances

use super::unfit;
use crate::{Error, Result, Tensor};
use std::collections::HashMap;

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ngrams {
    /// Lengths of n-grams, inclusive.
    pub lengths: (usize, usize),
    /// Elements that are left out between two of an n-gram, at most.
    pub skip_max: usize,
    pub weighing: Weighing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Weighing {
    /// Counts.
    Tf,
    /// The weight where there is one.
    Idf,
    /// The weight for each.
    TfIdf,
}

/// x [c] or [n, c], the pool (n-grams one behind the other, shorter ones first), where in it those of each length begin,
/// the column of each n-gram, a weight for each  =>  f32 [columns] or [n, columns]
pub fn count(ngrams: &Ngrams, args: &[Tensor]) -> Result<Tensor> {
    let [x, pool, starts, columns, weights] = args else { return Err(unfit("n-grams take five operands".into())) };
    if x.dtype() != pool.dtype() {
        return Err(unfit(format!("elements of type {} are not in a pool of type {}", x.dtype(), pool.dtype())));
    }
    let indices = |t: &Tensor| -> Result<Vec<usize>> {
        let all: Option<_> = (0..t.len()).map(|i| t.get_i64(i).and_then(|v| usize::try_from(v).ok())).collect();
        all.ok_or_else(|| unfit("an index of the pool is negative or no integer".into()))
    };
    let (starts, columns) = (indices(starts)?, indices(columns)?);
    let (row_length, batched) = match *x.dims() {
        [c] => (c, false),
        [_, c] => (c, true),
        _ => return Err(unfit(format!("{:?} is neither a row nor rows", x.dims()))),
    };
    let width = columns.iter().max().map_or(0, |m| m + 1);
    if width > (1 << 28) {
        return Err(Error::user("E0202", format!("{width} columns are too many")));
    }
    // Elements as numbers: equal ones have the same.
    let mut known: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut numbered = |t: &Tensor| -> Result<Vec<usize>> {
        let mut number = |bytes: &[u8]| {
            let next = known.len();
            *known.entry(bytes.to_vec()).or_insert(next)
        };
        if let Some(strings) = t.strings() {
            return Ok(strings.into_iter().map(number).collect());
        }
        let all: Option<_> = (0..t.len()).map(|i| t.get_i64(i).map(|v| number(&v.to_le_bytes()))).collect();
        all.ok_or_else(|| unfit(format!("elements of type {} are not counted", t.dtype())))
    };
    let (pool, x) = (numbered(pool)?, numbered(x)?);
    let places = places(&pool, &starts, &columns)?;
    let n_rows = if batched {
        x.len().checked_div(row_length).unwrap_or(0).max(if row_length == 0 { args[0].dims()[0] } else { 0 })
    } else {
        1
    };
    let mut out = vec![0f32; n_rows * width];
    for r in 0..n_rows {
        let (row, counts) = (&x[r * row_length..(r + 1) * row_length], &mut out[r * width..(r + 1) * width]);
        count_row(ngrams, row, &places, counts);
    }
    for (id, &column) in columns.iter().enumerate().filter(|_| ngrams.weighing != Weighing::Tf) {
        let weight = weights.get_f64(id).ok_or_else(|| unfit("there are fewer weights than n-grams".into()))? as f32;
        for r in 0..n_rows {
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
    let dims = if batched { vec![n_rows, width] } else { vec![width] };
    Ok(Tensor::from_vec(dims, out))
}

/// The column of each n-gram.
fn places<'a>(pool: &'a [usize], starts: &[usize], columns: &[usize]) -> Result<HashMap<&'a [usize], usize>> {
    let mut out = HashMap::new();
    let mut id = 0;
    for (i, &start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(pool.len());
        let grams =
            pool.get(start..end).ok_or_else(|| unfit("the counts of n-grams do not ascend in the pool".into()))?;
        for gram in grams.chunks_exact(i + 1) {
            let column = columns.get(id).ok_or_else(|| unfit("there are fewer columns than n-grams".into()))?;
            out.insert(gram, *column);
            id += 1;
        }
    }
    Ok(out)
}

fn count_row(ngrams: &Ngrams, row: &[usize], places: &HashMap<&[usize], usize>, counts: &mut [f32]) {
    let (shortest, longest) = ngrams.lengths;
    for length in shortest.max(1)..=longest.min(row.len()) {
        // One element has nothing between.
        let skips = if length == 1 { 0 } else { ngrams.skip_max.min(row.len()) };
        for step in 1..=skips + 1 {
            let reach = (length - 1) * step;
            for start in 0..row.len().saturating_sub(reach) {
                let gram: Vec<usize> = (0..length).map(|k| row[start + k * step]).collect();
                if let Some(&column) = places.get(&gram[..]) {
                    counts[column] += 1.0;
                }
            }
        }
    }
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
            count(&Ngrams { lengths, skip_max, weighing }, &args(i(x))).unwrap().to_vec::<f32>().unwrap()
        };
        let x = [2, 5, 4, 5, 9, 6, 2];
        assert_eq!(all((1, 1), 0, Weighing::Tf, &x), [2.0, 0.0, 0.0, 0.0]);
        assert_eq!(all((2, 2), 0, Weighing::Tf, &x), [0.0, 0.0, 1.0, 0.0]);
        assert_eq!(all((2, 2), 1, Weighing::Tf, &x), [0.0, 0.0, 1.0, 1.0]);
        assert_eq!(all((1, 2), 1, Weighing::Idf, &x), [1.0, 0.0, 3.0, 4.0]);
        assert_eq!(all((1, 1), 5, Weighing::TfIdf, &x), [2.0, 0.0, 0.0, 0.0]);
    }
}
