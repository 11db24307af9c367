//! weights[rows, columns], Σ xᵀx of the activations  =>  weights, some 0, the others adjusted to compensate for them
//!
//! SparseGPT (Frantar, Alistarh 2023): the columns are processed in strips, from left to right. The score of a weight
//! of the current strip is the loss of the product if the weight were removed and later columns compensated for it:
//! w² / u², where u is the column's diagonal element of the Cholesky factor of the inverse of Σ xᵀx. The rule marks the
//! weights that stay, and the sweep of GPTQ lets later columns compensate for the removed ones.

use super::mask::{Blocks, kept, neighbours, part_of};
use super::{Rule, groups};
use crate::calibrate::hessian::{COLUMNS, Seen, each_in_parallel, in_parallel, relative, squares};

/// Number of columns in a strip for rules that remove a share; with blocks, rounded up to whole blocks.
const STRIP: usize = 128;

/// `COLUMNS` rows of weights: for each column, one weight of each row. Rows beyond the last one of the matrix are 0.
type Lanes = Vec<[f64; COLUMNS]>;

/// Returns the pruned weights, row-major. A rule that removes a share of the weights removes this share from every
/// strip.
pub fn prune(seen: &Seen, weights: &[f32], dims: [usize; 2], rule: Rule) -> Vec<f32> {
    let [rows, columns] = dims;
    let mut chunks = in_lanes(weights, dims);
    // If the rule compares only weights of the same row, each chunk of rows is processed independently.
    let n_chunks = match rule {
        Rule::Neighbours { .. } => 1,
        Rule::Groups(_) | Rule::Global(_) | Rule::Blocks { .. } => chunks.len().max(1),
    };
    let mut parts: Vec<&mut [Lanes]> = chunks.chunks_mut(n_chunks).collect();
    each_in_parallel(&mut parts, |i, part| {
        let n_rows = (part.len() * COLUMNS).min(rows - i * n_chunks * COLUMNS);
        prune_strips(seen, part, n_rows, rule);
    });
    (0..rows * columns).map(|at| chunks[at / columns / COLUMNS][at % columns][at / columns % COLUMNS] as f32).collect()
}

fn prune_strips(seen: &Seen, chunks: &mut [Lanes], rows: usize, rule: Rule) {
    let columns = seen.order.len();
    let width = match rule {
        Rule::Neighbours { m, .. } => m,
        Rule::Groups(sizes) => groups::width([rows, columns], sizes),
        Rule::Global(_) => STRIP,
        Rule::Blocks { columns, .. } => STRIP.next_multiple_of(columns),
    };
    let mut strips = Strips { rule, n_blocks: 0, n_left_out: 0 };
    for first in (0..columns).step_by(width) {
        let strip = first..(first + width).min(columns);
        let width = strip.len();
        let score = |x: &Lanes| -> Vec<[f32; COLUMNS]> {
            let score = |at: usize| x[at].map(|w| (w / seen.factor[at * columns + at]).powi(2) as f32);
            strip.clone().map(score).collect()
        };
        let scores = in_parallel(chunks, score);
        let in_rows: Vec<f32> =
            (0..rows * width).map(|at| scores[at / width / COLUMNS][at % width][at / width % COLUMNS]).collect();
        let kept = strips.kept([rows, width], &in_rows);
        let stays = |row: usize, place: usize| row < rows && kept[row * width + place - strip.start];
        each_in_parallel(chunks, |chunk, x| {
            seen.sweep(x, strip.clone(), &mut [0.0; COLUMNS], |place, weights| {
                let new = |lane: usize| if stays(chunk * COLUMNS + lane, place) { weights[lane] } else { 0.0 };
                std::array::from_fn(new)
            });
        });
    }
}

/// Counts the blocks of the strips so far, and those of them that were left out, so that their ratio follows the rule.
struct Strips {
    rule: Rule,
    n_blocks: usize,
    n_left_out: usize,
}

impl Strips {
    fn kept(&mut self, dims: [usize; 2], scores: &[f32]) -> Vec<bool> {
        let (part, size) = match self.rule {
            Rule::Neighbours { n, m } => return neighbours(dims[1], scores, n, m),
            Rule::Groups(sizes) => return groups::kept(dims, scores, sizes),
            Rule::Global(part) => (part, [1, 1]),
            Rule::Blocks { part, rows, columns } => (part, [rows, columns]),
        };
        let blocks = Blocks { dims, size };
        self.n_blocks += blocks.count();
        let n_left_out = part_of(self.n_blocks, part) - self.n_left_out;
        self.n_left_out += n_left_out;
        blocks.kept(scores, n_left_out)
    }
}

/// Returns the weights with zeros where the rule removes them; the score of a weight is w² · Σ x² (OBD).
pub fn prune_by_diagonal(products: &[f64], weights: &[f32], dims: [usize; 2], rule: Rule) -> Vec<f32> {
    let columns = dims[1];
    let score = |(at, w): (usize, &f32)| {
        let place = at % columns;
        (f64::from(*w).powi(2) * products[place * columns + place]) as f32
    };
    let scores: Vec<f32> = weights.iter().enumerate().map(score).collect();
    let kept = kept(rule, dims, &scores);
    weights.iter().zip(kept).map(|(w, kept)| if kept { *w } else { 0.0 }).collect()
}

/// Relative error (L2) of the product on the data, if weights `before` are replaced by `after`.
pub fn product_error(products: &[f64], before: &[f32], after: &[f32], dims: [usize; 2]) -> f64 {
    let lost: Vec<f32> = before.iter().zip(after).map(|(a, b)| a - b).collect();
    let energy = |weights: &[f32]| -> f64 {
        in_parallel(&in_lanes(weights, dims), |x| squares(products, x)).iter().flatten().sum()
    };
    relative(energy(&lost), energy(before))
}

fn in_lanes(weights: &[f32], [rows, columns]: [usize; 2]) -> Vec<Lanes> {
    let lane = |row: usize, column: usize| if row < rows { f64::from(weights[row * columns + column]) } else { 0.0 };
    let chunk = |first: usize| (0..columns).map(|column| std::array::from_fn(|i| lane(first + i, column))).collect();
    (0..rows).step_by(COLUMNS).map(chunk).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::hessian::tests::{numbers, products};

    fn weights(n: usize, seed: u32) -> Vec<f32> {
        numbers(n, seed).into_iter().map(|x| x as f32).collect()
    }

    fn obs(products: &[f64], weights: &[f32], dims: [usize; 2], rule: Rule) -> Vec<f32> {
        let seen = Seen::in_order(products.to_vec(), (0..dims[1]).collect()).unwrap();
        prune(&seen, weights, dims, rule)
    }

    fn by_magnitude(weights: &[f32], dims: [usize; 2], rule: Rule) -> Vec<f32> {
        let scores: Vec<f32> = weights.iter().map(|w| w * w).collect();
        weights.iter().zip(kept(rule, dims, &scores)).map(|(w, kept)| if kept { *w } else { 0.0 }).collect()
    }

    fn identity(k: usize) -> Vec<f64> {
        (0..k * k).map(|at| f64::from(u8::from(at / k == at % k))).collect()
    }

    static RULES: [Rule; 5] = [
        Rule::Neighbours { n: 2, m: 4 },
        Rule::Groups([2, 4, 2]),
        Rule::Global(0.5),
        Rule::Blocks { part: 0.75, rows: 1, columns: 4 },
        Rule::Blocks { part: 0.5, rows: 3, columns: 5 },
    ];

    #[test]
    fn places_that_move_apart_are_pruned_by_magnitude() {
        // A share is removed from each strip. With fewer columns than `STRIP`, the only strip is the whole matrix.
        let dims = [19, 99];
        let w = weights(19 * 99, 5);
        for rule in RULES {
            let expected = by_magnitude(&w, dims, rule);
            assert_eq!(obs(&identity(99), &w, dims, rule), expected, "{rule:?}");
            assert_eq!(prune_by_diagonal(&identity(99), &w, dims, rule), expected, "{rule:?}");
            let error = product_error(&identity(99), &w, &expected, dims);
            let lost: f32 = w.iter().zip(&expected).filter(|(_, e)| **e == 0.0).map(|(w, _)| w * w).sum();
            assert!((error - f64::from(lost / w.iter().map(|w| w * w).sum::<f32>()).sqrt()).abs() < 1e-6);
        }
    }

    #[test]
    fn data_says_more_of_a_weight_than_its_magnitude() {
        let dims = [24, 80];
        let mixed = products(80, 200);
        for seed in 0..4 {
            // Correlated positions with different magnitudes.
            let scales: Vec<f64> = numbers(80, 50 + seed).into_iter().map(|x| 2.5 + 3.0 * x).collect();
            let h: Vec<f64> = (0..80 * 80).map(|at| mixed[at] * scales[at / 80] * scales[at % 80]).collect();
            let w = weights(24 * 80, 20 + seed);
            for rule in RULES {
                let error = |after: &[f32]| product_error(&h, &w, after, dims);
                let magnitude = error(&by_magnitude(&w, dims, rule));
                let obd = error(&prune_by_diagonal(&h, &w, dims, rule));
                let obs = error(&obs(&h, &w, dims, rule));
                // With groups, the sums of few scores decide about patterns; OBD may then be worse than magnitudes.
                let is_ordered = obd < magnitude || matches!(rule, Rule::Groups(_));
                assert!(obs < obd.min(magnitude) && is_ordered, "{rule:?}: {obs} {obd} {magnitude}");
                assert!(obs < 0.5 * magnitude, "{rule:?}: {obs} {magnitude}");
            }
        }
    }

    #[test]
    fn the_pattern_holds_behind_the_sweep() {
        let (h, w) = (products(110, 130), weights(21 * 110, 3));
        for (n, m) in [(2, 4), (1, 4), (3, 8), (70, 100)] {
            let after = obs(&h, &w, [21, 110], Rule::Neighbours { n, m });
            for group in after.chunks(110).flat_map(|row| row.chunks(m)) {
                let n_kept = group.iter().filter(|w| **w != 0.0).count();
                assert_eq!(n_kept, (n * group.len()).div_ceil(m), "{n}:{m}");
            }
        }
        let zeros = |after: &[f32]| after.iter().filter(|w| **w == 0.0).count();
        assert_eq!(zeros(&obs(&h, &w, [21, 110], Rule::Global(0.9))), 21 * 99);
        let (columns, three_strips) = (300, weights(7 * 300, 4));
        assert_eq!(zeros(&obs(&identity(columns), &three_strips, [7, columns], Rule::Global(0.37))), 777);
        let after = obs(&h, &w, [21, 110], Rule::Blocks { part: 0.8, rows: 3, columns: 5 });
        assert_eq!(zeros(&after), 123 * 15);
        for (at, w) in after.iter().enumerate() {
            let first = after[at / 110 / 3 * 3 * 110 + at % 110 / 5 * 5];
            assert_eq!(*w == 0.0, first == 0.0, "{at}");
        }
    }

    /// Returns the least loss of the product if the weight `removed` is 0 and later weights may change, and the weights
    /// of that loss, by Gauss-Jordan elimination.
    fn best_without(h: &[f64], w: &[f32], removed: usize) -> (f64, Vec<f64>) {
        let (k, later) = (w.len(), w.len() - removed - 1);
        // H[later, later] · change = w[removed] · H[later, removed]
        let row = |a: usize| {
            let own = (removed + 1..k).map(move |b| h[a * k + b]);
            own.chain([f64::from(w[removed]) * h[a * k + removed]]).collect()
        };
        let mut rows: Vec<Vec<f64>> = (removed + 1..k).map(row).collect();
        for pivot in 0..later {
            let row: Vec<f64> = rows[pivot].iter().map(|x| x / rows[pivot][pivot]).collect();
            for (i, other) in rows.iter_mut().enumerate() {
                let by = other[pivot];
                (0..=later).for_each(|j| other[j] = if i == pivot { row[j] } else { other[j] - by * row[j] });
            }
        }
        let mut change = vec![0.0; k];
        change[removed] = -f64::from(w[removed]);
        rows.iter().enumerate().for_each(|(i, row)| change[removed + 1 + i] = row[later]);
        let lost = (0..k * k).map(|at| change[at / k] * h[at] * change[at % k]).sum();
        (lost, (0..k).map(|i| f64::from(w[i]) + change[i]).collect())
    }

    #[test]
    fn one_weight_less_is_the_one_that_costs_least_and_those_behind_make_it_good() {
        let k = 6;
        let h = products(k, 40);
        let mean = (0..k).map(|i| h[i * k + i]).sum::<f64>() / k as f64;
        let damped: Vec<f64> = (0..k * k).map(|at| h[at] + if at / k == at % k { 0.01 * mean } else { 0.0 }).collect();
        let seen = Seen::in_order(h.clone(), (0..k).collect()).unwrap();
        let mut removed = [0; 6];
        for seed in 0..100 {
            let w = weights(k, 100 + seed);
            let all: Vec<(f64, Vec<f64>)> = (0..k).map(|at| best_without(&damped, &w, at)).collect();
            for (at, (lost, _)) in all.iter().enumerate() {
                let score = (f64::from(w[at]) / seen.factor[at * k + at]).powi(2);
                assert!((score - lost).abs() < 1e-9 * lost.max(1e-3), "{score} {lost}");
            }
            let best = (0..k).min_by(|a, b| all[*a].0.total_cmp(&all[*b].0)).unwrap();
            removed[best] += 1;
            let found = prune(&seen, &w, [1, k], Rule::Global(1.0 / k as f64));
            for (found, expected) in found.iter().zip(&all[best].1) {
                assert!((f64::from(*found) - expected).abs() < 1e-6, "{found} {expected}");
            }
        }
        assert!(removed.iter().all(|n| *n > 0), "{removed:?}");
    }
}
