//! scores of a block of m rows by a chunk of columns  =>  the n rows (the pattern) that each column keeps
//!
//! At most g columns of a chunk have the same pattern. Patterns are assigned to columns greedily, the largest sum of
//! kept scores first. Then up to three columns at a time change their patterns as long as the total sum grows (STen).

use sardonyx_dialects::flow::sparse::{Grid, Groups};

/// Largest number of exchanges for one block of rows and chunk of columns.
const ROUNDS: usize = 1 << 10;
/// Least gain of an exchange, relative to the largest sum of scores that a column keeps with a pattern. Smaller gains
/// may be rounding errors.
const GAIN_MIN: f64 = 1e-9;

/// Marks the weights of a row-major matrix that stay, so that the sum of their scores is large. If no sparse format has
/// these sizes, all weights stay; the parser of rules refuses such sizes.
pub fn kept([rows, columns]: [usize; 2], scores: &[f32], sizes: [usize; 3]) -> Vec<bool> {
    let found = form([rows, columns], sizes);
    let Some((form, patterns)) = found.and_then(|form| Some((form, form.patterns()?))) else {
        return vec![true; scores.len()];
    };
    let [rows, columns] = [form.grid.rows, form.grid.columns];
    let mut kept = vec![false; scores.len()];
    for row0 in (0..rows).step_by(form.m as usize) {
        for column0 in (0..columns).step_by(form.width as usize) {
            let at = |row: usize, column: usize| {
                let (row, column) = (row0 + row as i64, column0 + column as i64);
                (row < rows).then_some((row * columns + column) as usize)
            };
            let n_columns = (columns - column0).min(form.width) as usize;
            let size = |row: usize, column: usize| at(row, column).map_or(0.0, |at| f64::from(scores[at]));
            let energy = |column: usize, rows: &[usize]| rows.iter().map(|row| size(*row, column)).sum();
            let energies: Vec<Vec<f64>> =
                (0..n_columns).map(|column| patterns.iter().map(|rows| energy(column, rows)).collect()).collect();
            for (column, pattern) in assigned(&energies, form.g as usize).into_iter().enumerate() {
                patterns[pattern].iter().filter_map(|row| at(*row, column)).for_each(|at| kept[at] = true);
            }
        }
    }
    kept
}

/// Number of columns in a chunk; chunks are pruned independently.
pub fn width(dims: [usize; 2], sizes: [usize; 3]) -> usize {
    form(dims, sizes).map_or(dims[1], |form| form.width as usize)
}

fn form([rows, columns]: [usize; 2], sizes: [usize; 3]) -> Option<Groups> {
    let [rows, columns] = [i64::try_from(rows).ok()?, i64::try_from(columns).ok()?];
    let grid = Grid { rows, columns, row_stride: columns, column_stride: 1 };
    Groups::shaped(grid, sizes.map(|n| i64::try_from(n).unwrap_or(0)))
}

/// Assigns a pattern to each column, and at most `g` columns to each pattern. `scores[column][pattern]` is the sum of
/// the scores that the column keeps with the pattern.
fn assigned(scores: &[Vec<f64>], g: usize) -> Vec<usize> {
    let n_patterns = scores.first().map_or(0, Vec::len);
    let mut pairs: Vec<(usize, usize)> =
        (0..scores.len()).flat_map(|column| (0..n_patterns).map(move |pattern| (column, pattern))).collect();
    pairs.sort_by(|a, b| scores[b.0][b.1].total_cmp(&scores[a.0][a.1]));
    let (mut found, mut left) = (vec![None; scores.len()], vec![g; n_patterns]);
    for (column, pattern) in pairs {
        if found[column].is_none() && left[pattern] > 0 {
            (found[column], left[pattern]) = (Some(pattern), left[pattern] - 1);
        }
    }
    let mut found: Vec<usize> = found.into_iter().map(Option::unwrap_or_default).collect();
    let largest = scores.iter().flatten().copied().fold(0.0, f64::max);
    let mut rounds = 0..ROUNDS;
    while rounds.next().is_some() && improve(scores, &mut found, &mut left, GAIN_MIN * largest) {}
    found
}

/// The column that gains most by moving from one pattern to another, with its gain.
type Move = Option<(f64, usize)>;

/// Applies the best exchange and returns true if it gains more than `gain_min`. An exchange moves one column from
/// pattern p to q, one from q to r and one from r to p. It may skip r, and it may omit the last move if fewer than `g`
/// columns have the last pattern.
fn improve(scores: &[Vec<f64>], found: &mut [usize], left: &mut [usize], gain_min: f64) -> bool {
    let n = left.len();
    let mut moves: Vec<Vec<Move>> = vec![vec![None; n]; n];
    for (column, from) in found.iter().enumerate() {
        for to in (0..n).filter(|to| to != from) {
            let gain = scores[column][to] - scores[column][*from];
            let best = &mut moves[*from][to];
            if best.is_none_or(|(other, _)| gain > other) {
                *best = Some((gain, column));
            }
        }
    }
    // The gain and the column of the last move, back to the first pattern; no column if omitting the move is better.
    let close = |last: usize, first: usize| {
        let open = (left[last] > 0).then_some((0.0, None));
        let back = moves[last][first].map(|(gain, column)| (gain, Some(column)));
        [open, back].into_iter().flatten().max_by(|a, b| a.0.total_cmp(&b.0))
    };
    let (mut best, mut cycle) = (0.0, None);
    let pairs = (0..n).flat_map(|p| (0..n).map(move |q| (p, q)));
    for (p, q, (first, a)) in pairs.filter_map(|(p, q)| Some((p, q, moves[p][q]?))) {
        if let Some((last, end)) = close(q, p).filter(|(last, _)| first + last > best) {
            (best, cycle) = (first + last, Some([Some((a, q)), end.map(|c| (c, p)), None]));
        }
        for (r, (second, b)) in (0..n).filter(|r| *r != p).filter_map(|r| Some((r, moves[q][r]?))) {
            if let Some((last, end)) = close(r, p).filter(|(last, _)| first + second + last > best) {
                (best, cycle) = (first + second + last, Some([Some((a, q)), Some((b, r)), end.map(|c| (c, p))]));
            }
        }
    }
    let Some(cycle) = cycle.filter(|_| best > gain_min) else { return false };
    for (column, to) in cycle.into_iter().flatten() {
        left[found[column]] += 1;
        found[column] = to;
    }
    for (_, to) in cycle.into_iter().flatten() {
        left[to] -= 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns approximately normally distributed numbers: sums of twelve uniform ones, less the mean.
    fn normal(n: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let mut unit = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f64 / (1u64 << 24) as f64
        };
        (0..n).map(|_| ((0..12).map(|_| unit()).sum::<f64>() - 6.0) as f32).collect()
    }

    fn energy(values: &[f32], kept: &[bool]) -> f64 {
        let sum = |all: bool| -> f64 {
            let some = values.iter().zip(kept).filter(|(_, kept)| all || **kept);
            some.map(|(v, _)| f64::from(*v)).sum()
        };
        sum(false) / sum(true)
    }

    /// Up to 0.005, the kept share of Σ|w| is at least what STen reports for normally distributed weights, and at most
    /// the share that is kept if any number of columns may have the same pattern.
    #[test]
    fn as_much_is_kept_as_published() {
        let values: Vec<f32> = normal(96 * 960, 1).into_iter().map(f32::abs).collect();
        let (four, six) = (0.7448, 0.586);
        for (sizes, part, free) in [
            ([2, 4, 1], 0.686, four),
            ([2, 4, 4], 0.722, four),
            ([2, 4, 16], 0.735, four),
            ([2, 6, 1], 0.541, six),
            ([2, 6, 4], 0.5675, six),
            ([2, 6, 16], 0.578, six),
        ] {
            let kept = energy(&values, &kept([96, 960], &values, sizes));
            assert!(kept > part - 0.005 && kept < free + 0.005, "{sizes:?}: {kept}");
        }
        for sizes in [[2, 4, 1 << 14], [4, 8, 1], [0, 4, 1], [2, 4, 0]] {
            assert_eq!(kept([4, 8], &[1.0; 32], sizes), [true; 32], "{sizes:?}");
        }
    }

    /// Returns the largest sum over all assignments of distinct patterns to the columns from `column` on. There are six
    /// patterns; those in the bit set `taken` are left out.
    fn best(energies: &[Vec<f64>], column: usize, taken: u32) -> f64 {
        let open = (0..6).filter(|p| taken >> p & 1 == 0);
        let each = open.map(|p| energies[column][p] + best_of_rest(energies, column + 1, taken | 1 << p));
        each.fold(0.0, f64::max)
    }

    fn best_of_rest(energies: &[Vec<f64>], column: usize, taken: u32) -> f64 {
        if column == energies.len() { 0.0 } else { best(energies, column, taken) }
    }

    #[test]
    fn exchanges_come_near_the_best_assignment() {
        let (mut sum, mut least) = (0.0, 1f64);
        for seed in 0..500 {
            let w = normal(24, seed);
            let sets = [[0, 1], [0, 2], [1, 2], [0, 3], [1, 3], [2, 3]];
            let energies: Vec<Vec<f64>> = (0..6)
                .map(|c| sets.map(|set| set.iter().map(|row| f64::from(w[row * 6 + c].abs())).sum()).to_vec())
                .collect();
            let found = assigned(&energies, 1);
            let got: f64 = found.iter().enumerate().map(|(c, p)| energies[c][*p]).sum();
            let part = got / best(&energies, 0, 0);
            (sum, least) = (sum + part, least.min(part));
        }
        assert!(sum / 500.0 > 0.98 && least > 0.92, "{} {least}", sum / 500.0);
    }
}
