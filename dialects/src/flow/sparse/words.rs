//! w[r, c], mostly 0  =>  its nonzero words row by row: values, the column of each, and where each row begins
//!
//! A word is one f32, or four adjacent bytes of a row, which share a column number counted in words. A row may be
//! padded with zero words at its end, so that the matrix has exactly the declared number of words.

use super::{Grid, Part, elements, number_dtype, numbers, stored};
use crate::flow::kernel::Container;
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use std::fmt;

/// A matrix, and the number and size of its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Words {
    /// How the elements of the parameter form the matrix.
    pub grid: Grid,
    /// Elements per word: 1 of f32, or 4 of i8.
    pub depth: i64,
    /// Number of words of all rows together.
    pub words: i64,
    /// Maximum number of words of a row.
    pub longest: i64,
}

/// Pairs: elements per word, and the name of such words in the text of a format.
static KINDS: &[(i64, &str)] = &[(1, "words"), (4, "quads")];

/// Writes text such as `64x128 strides 128,1 words 900 longest 17`.
impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Words { grid, depth, words, longest } = self;
        let kind = KINDS.iter().find(|(other, _)| other == depth).map_or("", |(_, kind)| kind);
        write!(f, "{grid} {kind} {words} longest {longest}")
    }
}

impl Words {
    /// Parses what `to_string` writes after the grid; none if the sizes are inconsistent.
    pub fn from_text(grid: Grid, text: &[&str]) -> Option<Words> {
        let &[kind, words, "longest", longest] = text else { return None };
        let &(depth, _) = KINDS.iter().find(|(_, other)| *other == kind)?;
        let (words, longest): (i64, i64) = (words.parse().ok()?, longest.parse().ok()?);
        let matrix = Words { grid, depth, words, longest };
        let fits = [words.checked_mul(depth)?, longest].iter().all(|n| (0..=i32::MAX as i64).contains(n))
            && grid.columns % depth == 0
            && longest <= matrix.columns()
            && words <= grid.rows.saturating_mul(longest);
        fits.then_some(matrix)
    }

    /// The format with one word for every nonzero word of `depth` elements. `None` if the number of values is not that
    /// of the grid or too large, or if `depth` does not divide the columns.
    pub fn found(grid: Grid, depth: i64, values: &[f32]) -> Option<Words> {
        if !grid.holds(values) || grid.columns % depth != 0 {
            return None;
        }
        let matrix = Words { grid, depth, words: 0, longest: 0 };
        let lengths: Vec<i64> = (0..grid.rows).map(|row| matrix.nonzero(values, row).count() as i64).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        Some(Words { words: lengths.iter().sum(), longest, ..matrix })
    }

    /// Number of columns of the matrix, counted in words.
    pub fn columns(&self) -> i64 {
        self.grid.columns.checked_div(self.depth).unwrap_or(0)
    }

    /// Columns of the nonzero words of a row.
    fn nonzero<'v>(&self, values: &'v [f32], row: i64) -> impl Iterator<Item = i64> + use<'v> {
        let (grid, depth) = (self.grid, self.depth);
        let is_zero = move |column: i64| values[grid.place(row, column)] == 0.0;
        (0..self.columns()).filter(move |word| !(word * depth..(word + 1) * depth).all(is_zero))
    }

    /// Returns the element type of the parameter and of the stored values: f32 or i8.
    pub fn dtype(&self) -> DType {
        if self.depth == 1 { DType::F32 } else { DType::I8 }
    }

    /// Column numbers are u16 where that suffices, else i32.
    fn column_dtype(&self) -> DType {
        number_dtype(self.columns().max(1 << 16))
    }

    /// Returns the container of a part; `None` for a part that this format does not have.
    pub fn container(&self, part: Part) -> Option<Container> {
        let (dtype, n) = match part {
            Part::Values => (self.dtype(), self.words * self.depth),
            Part::Columns => (self.column_dtype(), self.words),
            Part::Starts => (DType::I32, self.grid.rows + 1),
            Part::Patterns | Part::Positions => return None,
        };
        Some(Container::plain(dtype, vec![Dim::constant(n)]))
    }

    /// A copy of a parameter that the format can store: each row keeps the same number of words, and the others are 0.
    pub fn thinned(&self, parameter: &Tensor) -> Option<Tensor> {
        let columns = self.columns();
        let each = self.longest.min(self.words.checked_div(self.grid.rows).unwrap_or(0));
        // The words that a row keeps begin where those of the previous row end, modulo the number of columns.
        let stays = |row: i64, word: i64| (word + columns - row * each % columns) % columns < each;
        self.grid.thinned(parameter, |row, column| stays(row, column / self.depth))
    }

    /// The contents of a part. Errors: E0901 for a parameter with more words than the format allows, in a row or in
    /// total.
    pub fn part(&self, part: Part, parameter: &Tensor) -> Result<Tensor> {
        let defect = || Error::defect("what is made sparse has other words than its matrix");
        let values = elements(parameter).filter(|values| self.grid.holds(values)).ok_or_else(defect)?;
        let columns = |row: i64| self.nonzero(&values, row).collect();
        let (words, starts) = laid_out(self.grid.rows, [self.words, self.longest], columns).ok_or_else(defect)?;
        let value = |word: Option<(i64, i64)>, i: i64| {
            word.map_or(0.0, |(row, column)| values[self.grid.place(row, column * self.depth + i)])
        };
        Ok(match part {
            Part::Values => {
                let all: Vec<f32> = words
                    .iter()
                    .flat_map(|word| (0..self.depth).map(move |i| (*word, i)))
                    .map(|(w, i)| value(w, i))
                    .collect();
                stored(self.dtype(), vec![all.len()], all)
            }
            Part::Columns => {
                let columns = words.iter().map(|word| word.map_or(0, |(_, column)| column)).collect();
                numbers(self.column_dtype(), vec![words.len()], columns)
            }
            Part::Starts => Tensor::from_vec(vec![starts.len()], starts),
            Part::Patterns | Part::Positions => return Err(defect()),
        })
    }
}

/// Row and column of each word, and the index of each row's first word, followed by `n_words`. `columns` returns the
/// columns of a row's words. Rows are padded at their ends (`None`), so that there are `n_words` words. The result is
/// `None` if a row has more than `longest` words, or all rows together more than `n_words`.
#[allow(clippy::type_complexity)]
pub(super) fn laid_out(
    rows: i64,
    [n_words, longest]: [i64; 2],
    columns: impl Fn(i64) -> Vec<i64>,
) -> Option<(Vec<Option<(i64, i64)>>, Vec<i32>)> {
    let (mut words, mut starts) = (vec![], vec![0i32]);
    for row in 0..rows {
        let first = words.len();
        words.extend(columns(row).into_iter().map(|column| Some((row, column))));
        let own = (words.len() - first) as i64;
        if own > longest || words.len() as i64 > n_words {
            return None;
        }
        // A row is padded only with the zero words that do not fit in the rows after it.
        let left = n_words - words.len() as i64;
        let rows_left = (rows - row - 1).saturating_mul(longest);
        let more = (left - rows_left).clamp(0, longest - own);
        words.extend((0..more).map(|_| None));
        starts.push(words.len() as i32);
    }
    (words.len() as i64 == n_words).then_some((words, starts))
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: [f32; 12] = [0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 0.0, 6.0, 7.0];

    fn found([rows, columns]: [i64; 2], [row_stride, column_stride]: [i64; 2]) -> Option<Words> {
        Words::found(Grid { rows, columns, row_stride, column_stride }, 1, &W)
    }

    #[test]
    fn words_lie_row_by_row() {
        let w = Tensor::from_vec(vec![3, 4], W.to_vec());
        let by_rows = found([3, 4], [4, 1]).unwrap();
        assert_eq!((by_rows.words, by_rows.longest), (4, 3));
        let parts = |m: Words| {
            let part = |part| m.part(part, &w).unwrap();
            let (values, columns) = (part(Part::Values).to_vec::<f32>(), part(Part::Columns).to_vec::<u16>());
            (values.unwrap(), columns.unwrap(), part(Part::Starts).to_vec::<i32>().unwrap())
        };
        assert_eq!(parts(by_rows), (vec![2.0, 5.0, 6.0, 7.0], vec![1, 0, 2, 3], vec![0, 1, 1, 4]));
        let by_columns = found([4, 3], [1, 4]).unwrap();
        assert_eq!(parts(by_columns), (vec![5.0, 2.0, 6.0, 7.0], vec![2, 0, 2, 2], vec![0, 1, 2, 3, 4]));
    }

    #[test]
    fn rows_are_filled_up_to_the_words_that_a_matrix_says() {
        let w = Tensor::from_vec(vec![3, 4], W.to_vec());
        let more = Words { words: 8, ..found([3, 4], [4, 1]).unwrap() };
        let starts = more.part(Part::Starts, &w).unwrap().to_vec::<i32>().unwrap();
        assert_eq!(starts, [0, 2, 5, 8]);
        let fewer = Words { words: 3, ..more };
        assert_eq!(fewer.part(Part::Values, &w).unwrap_err().code, "E0901");
        let shorter = Words { longest: 2, ..more };
        assert_eq!(shorter.part(Part::Values, &w).unwrap_err().code, "E0901");
    }

    #[test]
    fn a_thinned_parameter_has_no_more_words_than_the_matrix() {
        let w = Tensor::from_vec(vec![3, 4], (1..13).map(|i| i as f32).collect());
        let matrix = found([3, 4], [4, 1]).unwrap();
        assert_eq!(matrix.part(Part::Values, &w).unwrap_err().code, "E0901");
        let thinned = matrix.thinned(&w).unwrap();
        assert_eq!(thinned.to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0, 0.0, 0.0, 6.0, 0.0, 0.0, 0.0, 0.0, 11.0, 0.0]);
        assert_eq!(matrix.part(Part::Starts, &thinned).unwrap().to_vec::<i32>().unwrap(), [0, 1, 2, 4]);
    }

    #[test]
    fn four_bytes_of_a_row_are_a_word() {
        let mut bytes = vec![0i8; 24];
        (bytes[1], bytes[12], bytes[15], bytes[23]) = (-3, 7, -128, 1);
        let all: Vec<f32> = bytes.iter().map(|b| f32::from(*b)).collect();
        let matrix = Words::found(Grid { rows: 3, columns: 8, row_stride: 8, column_stride: 1 }, 4, &all).unwrap();
        assert_eq!(matrix.to_string(), "3x8 strides 8,1 quads 3 longest 1");
        let w = Tensor::from_vec(vec![3, 8], bytes);
        let part = |part| matrix.part(part, &w).unwrap();
        assert_eq!(part(Part::Values).to_vec::<i8>().unwrap(), [0, -3, 0, 0, 7, 0, 0, -128, 0, 0, 0, 1]);
        assert_eq!(part(Part::Columns).to_vec::<u16>().unwrap(), [0, 1, 1]);
        assert_eq!(part(Part::Starts).to_vec::<i32>().unwrap(), [0, 1, 2, 3]);
        let thinned = matrix.thinned(&Tensor::from_vec(vec![3, 8], vec![1i8; 24])).unwrap();
        assert_eq!(matrix.part(Part::Starts, &thinned).unwrap(), part(Part::Starts));
        let odd = Grid { rows: 4, columns: 6, row_stride: 6, column_stride: 1 };
        assert_eq!(Words::found(odd, 4, &all), None);
    }

    #[test]
    fn a_matrix_is_what_its_text_says() {
        let matrix = found([3, 4], [4, 1]).unwrap();
        assert_eq!(matrix.to_string(), "3x4 strides 4,1 words 4 longest 3");
        assert_eq!(found([3, 4], [3, 1]), None);
        assert_eq!(found([3, 5], [5, 1]), None);
    }
}
