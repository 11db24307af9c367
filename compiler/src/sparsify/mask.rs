//! scores of weights, a rule  =>  the weights that are kept

use super::{Rule, groups};
use std::cmp::Ordering;

/// Marks all scores except the `n_left_out` smallest; of equal scores, the first ones are left out.
pub fn largest(scores: &[f32], n_left_out: usize) -> Vec<bool> {
    let mut sorted = scores.to_vec();
    let Some((below, threshold, _)) =
        (n_left_out < scores.len()).then(|| sorted.select_nth_unstable_by(n_left_out, f32::total_cmp))
    else {
        return vec![false; scores.len()];
    };
    let threshold = *threshold;
    let mut n_equal = below.iter().filter(|score| **score == threshold).count();
    let is_kept = |score: &f32| match score.total_cmp(&threshold) {
        Ordering::Less => false,
        Ordering::Greater => true,
        Ordering::Equal => {
            let left_out = n_equal > 0;
            n_equal -= usize::from(left_out);
            !left_out
        }
    };
    scores.iter().map(is_kept).collect()
}

/// Returns the share `part` of `n`, rounded to an integer.
pub fn part_of(n: usize, part: f64) -> usize {
    (part * n as f64).round() as usize
}

/// Marks the `n` largest of each group of `m` scores along a row. In a shorter last group, it marks the same share,
/// rounded up.
pub fn neighbours(columns: usize, scores: &[f32], n: usize, m: usize) -> Vec<bool> {
    let group = |group: &[f32]| largest(group, group.len() - (n * group.len()).div_ceil(m));
    scores.chunks(columns.max(1)).flat_map(|row| row.chunks(m).flat_map(group)).collect()
}

/// A matrix of size `dims`, divided into blocks of size `size` (rows, columns).
#[derive(Clone, Copy)]
pub struct Blocks {
    pub dims: [usize; 2],
    pub size: [usize; 2],
}

impl Blocks {
    pub fn count(self) -> usize {
        self.dims[0].div_ceil(self.size[0]) * self.across()
    }

    fn across(self) -> usize {
        self.dims[1].div_ceil(self.size[1])
    }

    /// Marks the weights of all blocks except the `n_left_out` with the smallest sums of scores.
    pub fn kept(self, scores: &[f32], n_left_out: usize) -> Vec<bool> {
        let columns = self.dims[1].max(1);
        let block = |at: usize| at / columns / self.size[0] * self.across() + at % columns / self.size[1];
        let mut sums = vec![0f32; self.count()];
        scores.iter().enumerate().for_each(|(at, score)| sums[block(at)] += score);
        let kept = largest(&sums, n_left_out);
        (0..scores.len()).map(|at| kept[block(at)]).collect()
    }
}

/// Marks the weights of one matrix product that are kept. The score of a block is the sum of its weights' scores.
pub fn kept(rule: Rule, dims: [usize; 2], scores: &[f32]) -> Vec<bool> {
    match rule {
        Rule::Neighbours { n, m } => neighbours(dims[1], scores, n, m),
        Rule::Groups(sizes) => groups::kept(dims, scores, sizes),
        Rule::Global(part) => largest(scores, part_of(scores.len(), part)),
        Rule::Blocks { part, rows, columns } => {
            let blocks = Blocks { dims, size: [rows, columns] };
            blocks.kept(scores, part_of(blocks.count(), part))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_neighbours_stay() {
        let row = [1.0, 4.0, 3.0, 0.5, 0.0, 0.0, 0.0, 0.0, 7.0, 8.0];
        let kept = neighbours(10, &row, 2, 4);
        assert_eq!(kept, [false, true, true, false, false, false, true, true, false, true]);
    }

    #[test]
    fn blocks_are_kept_whole() {
        let matrix = [1.0, 1.0, 9.0, 0.0, 4.0, 4.0, 0.0, 0.0, 0.0, 0.0];
        let expected = [false, false, true, true, true, true, true, false, false, false];
        let blocks = |part, rows, columns| kept(Rule::Blocks { part, rows, columns }, [2, 5], &matrix);
        assert_eq!(blocks(0.5, 1, 2), expected);
        assert_eq!(blocks(0.34, 2, 2)[4..5], [false]);
    }

    #[test]
    fn a_part_is_that_part() {
        assert_eq!(kept(Rule::Global(0.5), [2, 2], &[3.0, 1.0, 1.0, 2.0]), [true, false, false, true]);
        assert!(kept(Rule::Global(0.5), [0, 0], &[]).is_empty());
    }
}
