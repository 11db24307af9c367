//! bias[.., i, .., j]  =>  for each block of rows i, the list of keys j that any of the rows sees

use crate::remove_padding::HIDDEN_MAX;
use sardonyx_base::Tensor;
use sardonyx_kernels::ATTENTION_KEYS;

/// Overhead of each run of consecutive keys, in units of the time for one key.
const RUN_KEYS: i64 = 8;

/// The list of keys of each block of rows, in ascending order.
pub struct Lists {
    /// Number of rows of a block.
    pub rows: i64,
    /// Start of each block's list, followed by the total length.
    pub starts: Vec<i64>,
    pub keys: Vec<i64>,
    /// Number of keys, hidden or not.
    n_keys: i64,
}

impl Lists {
    /// Builds the lists from a bias with keys in its last dimension and rows in dimension `row`. A key counts as seen
    /// if it is seen for some index of the other dimensions.
    pub fn of_rows(bias: &Bias, row: usize, rows: i64) -> Lists {
        let n_keys = *bias.dims.last().unwrap_or(&0);
        let n_rows = bias.dims[row];
        let inside: usize = bias.dims[row + 1..bias.dims.len() - 1].iter().product();
        let n_blocks = n_rows.div_ceil(rows as usize);
        let mut seen = vec![vec![false; n_keys]; n_blocks];
        for (at, values) in bias.values.chunks(n_keys.max(1)).enumerate() {
            let seen = &mut seen[at / inside.max(1) % n_rows / rows as usize];
            let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            // A key is not hidden if the difference is NaN: if its bias is NaN, or if all biases of the row are -∞.
            let hidden = |v: f32| f64::from(v) - f64::from(largest) <= HIDDEN_MAX;
            values.iter().zip(seen).for_each(|(v, seen)| *seen |= !hidden(*v));
        }
        let mut lists = Lists { rows, starts: vec![0], keys: vec![], n_keys: n_keys as i64 };
        for seen in seen {
            let first = lists.keys.len();
            for key in (0..n_keys as i64).filter(|key| seen[*key as usize]) {
                // Hidden keys between two seen keys are listed, too, if there are fewer than a panel of them (of
                // `ATTENTION_KEYS` keys): they cost less than another run.
                let before = lists.keys[first..].last().filter(|last| key - **last <= ATTENTION_KEYS);
                let from = before.map_or(key, |last| last + 1);
                lists.keys.extend(from..=key);
            }
            lists.starts.push(lists.keys.len() as i64);
        }
        lists
    }

    /// Iterates over the keys of each block.
    fn each(&self) -> impl Iterator<Item = &[i64]> {
        self.starts.windows(2).map(|ends| &self.keys[ends[0] as usize..ends[1] as usize])
    }

    pub fn longest(&self) -> i64 {
        self.each().map(|keys| keys.len() as i64).max().unwrap_or(0)
    }

    /// Estimates the fraction of the work that remains with the lists, given that keys are processed in panels.
    pub fn share(&self) -> f64 {
        let runs = |keys: &[i64]| keys.chunk_by(|a, b| a + 1 == *b).map(|run| run.len() as i64).collect::<Vec<_>>();
        let cost = |n: i64| (n + ATTENTION_KEYS - 1) / ATTENTION_KEYS * ATTENTION_KEYS + RUN_KEYS;
        let listed: i64 = self.each().flat_map(runs).map(cost).sum();
        let all = (self.starts.len() as i64 - 1) * cost(self.n_keys);
        listed as f64 / all.max(1) as f64
    }
}

/// Values that are added to the scores or replace them, by row and key.
pub struct Bias {
    pub dims: Vec<usize>,
    pub values: Vec<f32>,
}

impl Bias {
    pub fn read(tensor: &Tensor) -> Option<Bias> {
        Some(Bias { dims: tensor.dims().to_vec(), values: tensor.to_vec::<f32>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(dims: &[usize], bias: impl Fn(usize, usize) -> f32) -> Lists {
        let (n_rows, n_keys) = (dims[0], dims[1]);
        let values = (0..n_rows * n_keys).map(|at| bias(at / n_keys, at % n_keys)).collect();
        Lists::of_rows(&Bias { dims: dims.to_vec(), values }, 0, 96)
    }

    #[test]
    fn a_window_and_keys_that_all_rows_see_are_two_runs() {
        let seen = |i: usize, j: usize| i.abs_diff(j) <= 8 || j < 4;
        let found = lists(&[300, 300], |i, j| if seen(i, j) { 0.0 } else { f32::MIN });
        assert_eq!(found.starts.len(), 5);
        let of = |block: usize| found.each().nth(block).unwrap().to_vec();
        assert_eq!(of(0), (0..104).collect::<Vec<i64>>());
        assert_eq!(of(1), (0..4).chain(88..200).collect::<Vec<i64>>());
        assert_eq!(of(3), (0..4).chain(280..300).collect::<Vec<i64>>());
        assert!(found.share() < 0.5 && found.longest() == 116);
    }

    #[test]
    fn a_row_that_sees_nothing_has_all_keys() {
        for nothing in [f32::MIN, f32::NEG_INFINITY] {
            let found = lists(&[100, 50], |i, j| if i != 98 && j < 10 { 0.0 } else { nothing });
            assert_eq!(found.each().map(<[i64]>::len).collect::<Vec<_>>(), [10, 50]);
        }
    }

    #[test]
    fn biases_that_scores_may_make_up_for_hide_nothing() {
        let found = lists(&[100, 50], |i, j| -9.0 * i.abs_diff(j) as f32);
        assert_eq!(found.share(), 1.0);
    }
}
