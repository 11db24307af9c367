//! Σ xᵀx over data  =>  the Cholesky factor of its inverse, and the sweep in which later weights compensate for errors
//!
//! The weights of a column change one position along K after the other. The weights at later positions compensate for
//! the error of the product, as far as their activations are correlated (OBS, as GPTQ and SparseGPT compute it).

use sardonyx_base::{Error, Result};
use std::ops::Range;

/// Number of weight columns that are processed together.
pub const COLUMNS: usize = 16;
/// Number of positions along K whose errors are propagated together to the positions after them; also the block size of
/// the Cholesky factorisation.
const BLOCK: usize = 64;
/// Initial damping as a share of the diagonal's mean; it grows tenfold each time that the factorisation fails.
const DAMPING: f64 = 0.01;
const DAMPING_STEPS: usize = 6;

/// Relative error (L2) from the squared norms of the error (`lost`) and of the exact result (`whole`).
pub fn relative(lost: f64, whole: f64) -> f64 {
    if whole > 0.0 { (lost / whole).sqrt() } else { 0.0 }
}

/// Statistics, over the data, of the operand that is multiplied with weights.
pub struct Seen {
    /// [k, k]: Σ xᵀx.
    pub products: Vec<f64>,
    /// The order in which a sweep takes the positions along K.
    pub order: Vec<usize>,
    /// Upper triangular U, row-major, with UᵀU the inverse of the (damped) products in the order `order`.
    pub factor: Vec<f64>,
    /// Diagonal of `products` without damping, indexed by position along K.
    pub diagonal: Vec<f64>,
    /// Damping that the factorisation needed, as a share of the diagonal's mean.
    pub damping: f64,
}

impl Seen {
    /// Orders positions by decreasing `diagonal`, that is, by importance. Errors: E0501 if there is no Cholesky factor.
    pub fn new(products: Vec<f64>, k: usize) -> Result<Seen> {
        let mut order: Vec<usize> = (0..k).collect();
        order.sort_by(|a, b| products[b * k + b].total_cmp(&products[a * k + a]));
        Seen::in_order(products, order)
    }

    /// Uses the given order of positions. Errors: E0501 if the products have no Cholesky factor.
    pub fn in_order(products: Vec<f64>, order: Vec<usize>) -> Result<Seen> {
        let k = order.len();
        // The diagonal is 0 where the activation was always 0. The weight at this position has no effect on the data.
        let diagonal: Vec<f64> = (0..k).map(|i| products[i * k + i]).collect();
        let mean = diagonal.iter().sum::<f64>() / k.max(1) as f64;
        if !mean.is_finite() {
            return Err(Error::user("E0501", "what the weights are multiplied with is no number"));
        }
        for step in 0..DAMPING_STEPS {
            let damping = DAMPING * 10f64.powi(step as i32);
            let more = if mean > 0.0 { damping * mean } else { 1.0 };
            // Rows and columns are reversed: the inverse of the lower factor, reversed back, is upper triangular.
            let at = |i: usize, j: usize| {
                let (a, b) = (order[k - 1 - i], order[k - 1 - j]);
                products[a * k + b] + if i == j { more } else { 0.0 }
            };
            if let Some(lower) = cholesky((0..k * k).map(|n| at(n / k, n % k)).collect(), k) {
                let inverse = inverse(&lower, k);
                let factor = (0..k * k).map(|n| inverse[k * k - 1 - n]).collect();
                return Ok(Seen { products, order, factor, diagonal, damping });
            }
        }
        Err(Error::user("E0501", "the products of what the weights are multiplied with have no Cholesky factor"))
    }
    /// Assigns new weights to the positions `range` of the order, one after the other, and lets all later positions
    /// compensate for the error. `put` maps a position along K and its weights to the new weights. Adds the squared
    /// error of the products to `lost`.
    pub fn sweep(
        &self,
        x: &mut [[f64; COLUMNS]],
        range: Range<usize>,
        lost: &mut [f64; COLUMNS],
        mut put: impl FnMut(usize, &[f64; COLUMNS]) -> [f64; COLUMNS],
    ) {
        let k = x.len();
        let mut handed = vec![[0f64; COLUMNS]; BLOCK];
        for first in range.clone().step_by(BLOCK) {
            let end = (first + BLOCK).min(range.end);
            for i in first..end {
                let place = self.order[i];
                let factor = &self.factor[i * k..][..k];
                let new = put(place, &x[place]);
                for lane in 0..COLUMNS {
                    let error = (x[place][lane] - new[lane]) / factor[i];
                    lost[lane] += error * error;
                    handed[i - first][lane] = error;
                }
                x[place] = new;
                for j in i + 1..end {
                    let later = &mut x[self.order[j]];
                    (0..COLUMNS).for_each(|lane| later[lane] -= factor[j] * handed[i - first][lane]);
                }
            }
            for j in end..k {
                let later = &mut x[self.order[j]];
                for i in first..end {
                    let by = self.factor[i * k + j];
                    (0..COLUMNS).for_each(|lane| later[lane] -= by * handed[i - first][lane]);
                }
            }
        }
    }
}

/// wᵀ · products · w for each column w of `x`.
pub fn squares(products: &[f64], x: &[[f64; COLUMNS]]) -> [f64; COLUMNS] {
    let k = x.len();
    let mut sums = [0f64; COLUMNS];
    for i in 0..k {
        let mut row = [0f64; COLUMNS];
        for (j, w) in x.iter().enumerate() {
            let by = products[i * k + j];
            (0..COLUMNS).for_each(|lane| row[lane] += by * w[lane]);
        }
        (0..COLUMNS).for_each(|lane| sums[lane] += row[lane] * x[i][lane]);
    }
    sums
}

/// The lower Cholesky factor L, row-major, with LLᵀ = `a`; `None` if `a` is not positive definite.
pub fn cholesky(mut a: Vec<f64>, k: usize) -> Option<Vec<f64>> {
    for first in (0..k).step_by(BLOCK) {
        let end = (first + BLOCK).min(k);
        for i in first..end {
            for j in first..=i {
                let sum = a[i * k + j] - dot(&a[i * k + first..i * k + j], &a[j * k + first..j * k + j]);
                match i == j {
                    true if sum > 0.0 && sum.is_finite() => a[i * k + i] = sum.sqrt(),
                    true => return None,
                    false => a[i * k + j] = sum / a[j * k + j],
                }
            }
        }
        let (done, rest) = a.split_at_mut(end * k);
        let mut rows: Vec<&mut [f64]> = rest.chunks_mut(k).collect();
        each_in_parallel(&mut rows, |_, row| {
            for j in first..end {
                let sum = row[j] - dot(&row[first..j], &done[j * k + first..j * k + j]);
                row[j] = sum / done[j * k + j];
            }
        });
        let panel: Vec<f64> = rows.iter().flat_map(|row| row[first..end].iter().copied()).collect();
        let width = end - first;
        each_in_parallel(&mut rows, |i, row| {
            let own: Vec<f64> = row[first..end].to_vec();
            (0..=i).for_each(|j| row[end + j] -= dot(&own, &panel[j * width..][..width]));
        });
    }
    (0..k).for_each(|i| a[i * k + i + 1..(i + 1) * k].fill(0.0));
    Some(a)
}

/// The inverse of a lower triangular matrix.
pub fn inverse(lower: &[f64], k: usize) -> Vec<f64> {
    let starts: Vec<usize> = (0..k).step_by(COLUMNS).collect();
    let columns = in_parallel(&starts, |&first| {
        let mut x = vec![[0f64; COLUMNS]; k];
        for i in first..k {
            let mut sum = [0f64; COLUMNS];
            if i - first < COLUMNS {
                sum[i - first] = 1.0;
            }
            for j in first..i {
                let by = lower[i * k + j];
                (0..COLUMNS).for_each(|lane| sum[lane] -= by * x[j][lane]);
            }
            x[i] = sum.map(|s| s / lower[i * k + i]);
        }
        x
    });
    let mut out = vec![0.0; k * k];
    for (first, x) in starts.iter().zip(columns) {
        for (i, row) in x.iter().enumerate() {
            let width = COLUMNS.min(k - first);
            out[i * k + first..][..width].copy_from_slice(&row[..width]);
        }
    }
    out
}

/// Dot product with eight partial sums, which are added in a fixed order.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0f64; 8];
    let ((a8, a), (b8, b)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (x, y) in a8.iter().zip(b8) {
        (0..8).for_each(|i| sums[i] += x[i] * y[i]);
    }
    sums.iter().sum::<f64>() + a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>()
}

fn threads(n: usize) -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(n.max(1))
}

/// Maps `f` over the items on several threads; the results are in the order of the items.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let mut out: Vec<Option<R>> = items.iter().map(|_| None).collect();
    each_in_parallel(&mut out.iter_mut().collect::<Vec<_>>(), |i, place| **place = Some(f(&items[i])));
    out.into_iter().flatten().collect()
}

/// Calls `f` with the index of each item and the item, on several threads.
pub fn each_in_parallel<T: Send>(items: &mut [T], f: impl Fn(usize, &mut T) + Sync) {
    let n = threads(items.len());
    if n == 1 {
        return items.iter_mut().enumerate().for_each(|(i, item)| f(i, item));
    }
    let mut shares: Vec<Vec<(usize, &mut T)>> = (0..n).map(|_| vec![]).collect();
    items.iter_mut().enumerate().for_each(|(i, item)| shares[i % n].push((i, item)));
    std::thread::scope(|scope| {
        for share in shares {
            scope.spawn(|| share.into_iter().for_each(|(i, item)| f(i, item)));
        }
    });
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Reproducible pseudo-random numbers of at least -0.5 and less than 0.5.
    pub fn numbers(n: usize, seed: u32) -> Vec<f64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 8) / f64::from(1 << 24) - 0.5
        };
        (0..n).map(|_| next()).collect()
    }

    /// XᵀX of rows whose positions are correlated.
    pub fn products(k: usize, rows: usize) -> Vec<f64> {
        let (base, mix) = (numbers(rows * 8, 1), numbers(8 * k, 2));
        let own = numbers(rows * k, 3);
        let x =
            |r: usize, i: usize| (0..8).map(|m| base[r * 8 + m] * mix[m * k + i]).sum::<f64>() + 0.1 * own[r * k + i];
        (0..k * k).map(|n| (0..rows).map(|r| x(r, n / k) * x(r, n % k)).sum()).collect()
    }

    #[test]
    fn the_factor_is_that_of_the_inverse() {
        let k = 150;
        let h = products(k, 400);
        let seen = Seen::new(h.clone(), k).unwrap();
        let mean = (0..k).map(|i| h[i * k + i]).sum::<f64>() / k as f64;
        // UᵀU · (H + damping) = 1
        for i in [0, 3, 77, 149] {
            for j in [0, 77, 149] {
                let inverse = |a: usize, b: usize| {
                    (0..=a.min(b)).map(|m| seen.factor[m * k + a] * seen.factor[m * k + b]).sum::<f64>()
                };
                let damped =
                    |a: usize, b: usize| h[seen.order[a] * k + seen.order[b]] + if a == b { 0.01 * mean } else { 0.0 };
                let one: f64 = (0..k).map(|m| inverse(i, m) * damped(m, j)).sum();
                assert!((one - f64::from(u8::from(i == j))).abs() < 1e-8, "{i} {j} {one}");
            }
        }
    }
}
