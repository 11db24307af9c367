//! |w| of a block of rows by a chunk of columns  =>  which n of m rows each column keeps, each choice for as many columns
//!
//! Columns get their patterns greedily, the largest sum of |w| first, until a pattern has no place left; then two columns change
//! places as long as that keeps more (STen).

use sardonyx_dialects::flow::sparse::{Grid, Groups};

/// Rounds of exchanges: few are needed, and a sum that goes up and down by rounding must not go on forever.
const ROUNDS: usize = 16;

/// Marks the weights of a matrix, row by row, that stay; none for sizes that no format has.
pub fn kept([rows, columns]: [usize; 2], values: &[f32], sizes: [usize; 3]) -> Option<Vec<bool>> {
    let [rows, columns] = [i64::try_from(rows).ok()?, i64::try_from(columns).ok()?];
    let grid = Grid { rows, columns, row_stride: columns, column_stride: 1 };
    let form = Groups::shaped(grid, sizes.map(|n| i64::try_from(n).unwrap_or(0)))?;
    let patterns = form.patterns()?;
    let mut kept = vec![false; values.len()];
    for row0 in (0..rows).step_by(form.m as usize) {
        for column0 in (0..columns).step_by(form.width as usize) {
            let at = |row: usize, column: usize| {
                let (row, column) = (row0 + row as i64, column0 + column as i64);
                (row < rows).then_some((row * columns + column) as usize)
            };
            let n_columns = (columns - column0).min(form.width) as usize;
            let size = |row: usize, column: usize| at(row, column).map_or(0.0, |at| f64::from(values[at].abs()));
            let energy = |column: usize, rows: &[usize]| rows.iter().map(|row| size(*row, column)).sum();
            let energies: Vec<Vec<f64>> =
                (0..n_columns).map(|column| patterns.iter().map(|rows| energy(column, rows)).collect()).collect();
            for (column, pattern) in assigned(&energies, form.g as usize).into_iter().enumerate() {
                patterns[pattern].iter().filter_map(|row| at(*row, column)).for_each(|at| kept[at] = true);
            }
        }
    }
    Some(kept)
}

/// The pattern of each column, at most `g` columns each, by what each keeps in each.
fn assigned(energies: &[Vec<f64>], g: usize) -> Vec<usize> {
    let n_patterns = energies.first().map_or(0, Vec::len);
    let mut pairs: Vec<(usize, usize)> =
        (0..energies.len()).flat_map(|column| (0..n_patterns).map(move |pattern| (column, pattern))).collect();
    pairs.sort_by(|a, b| energies[b.0][b.1].total_cmp(&energies[a.0][a.1]));
    let (mut found, mut left) = (vec![None; energies.len()], vec![g; n_patterns]);
    for (column, pattern) in pairs {
        if found[column].is_none() && left[pattern] > 0 {
            (found[column], left[pattern]) = (Some(pattern), left[pattern] - 1);
        }
    }
    let mut found: Vec<usize> = found.into_iter().map(Option::unwrap_or_default).collect();
    for _ in 0..ROUNDS {
        if !improve(energies, &mut found, &mut left) {
            break;
        }
    }
    found
}

/// Moves columns to patterns with a place left, and exchanges those of two columns, where that keeps more.
fn improve(energies: &[Vec<f64>], found: &mut [usize], left: &mut [usize]) -> bool {
    let mut improved = false;
    for a in 0..found.len() {
        for pattern in 0..left.len() {
            if left[pattern] > 0 && energies[a][pattern] > energies[a][found[a]] {
                left[found[a]] += 1;
                left[pattern] -= 1;
                found[a] = pattern;
                improved = true;
            }
        }
        for b in 0..a {
            let (p, q) = (found[a], found[b]);
            if energies[a][q] + energies[b][p] > energies[a][p] + energies[b][q] {
                (found[a], found[b]) = (q, p);
                improved = true;
            }
        }
    }
    improved
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of a normal distribution, as sums of twelve even ones.
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
            some.map(|(v, _)| f64::from(v.abs())).sum()
        };
        sum(false) / sum(true)
    }

    /// The parts of Σ|w| that STen's format keeps of normal numbers.
    #[test]
    fn as_much_is_kept_as_published() {
        let values = normal(96 * 960, 1);
        for (sizes, part) in
            [([2, 4, 1], 0.686), ([2, 4, 4], 0.722), ([2, 4, 16], 0.735), ([2, 6, 4], 0.5675), ([2, 6, 16], 0.578)]
        {
            let kept = energy(&values, &kept([96, 960], &values, sizes).unwrap());
            assert!((kept - part).abs() < 0.015, "{sizes:?}: {kept}");
        }
        for sizes in [[2, 4, 1 << 14], [4, 8, 1], [0, 4, 1], [2, 4, 0]] {
            assert_eq!(kept([4, 8], &[1.0; 32], sizes), None, "{sizes:?}");
        }
    }

    /// The most that any assignment keeps, of one column for each of six patterns.
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
