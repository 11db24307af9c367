//! w[r, c], mostly 0  =>  its words row by row: values, the column of each, and where each row begins
//!
//! A row may have words that are 0: what it has fewer than the matrix says follows its last one.

use super::kernel::Container;
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use std::fmt;

/// A matrix in the elements of a parameter, and how many of them are words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Matrix {
    pub rows: i64,
    pub columns: i64,
    /// Elements of the parameter from one to the next.
    pub row_stride: i64,
    pub column_stride: i64,
    /// Words of all rows together, and the most that one row has.
    pub words: i64,
    pub longest: i64,
}

/// A part of the words of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    Values,
    /// The column of each.
    Columns,
    /// For each row the number of its first word, and behind them that of all words.
    Starts,
}

impl Part {
    pub const ALL: [Part; 3] = [Part::Values, Part::Columns, Part::Starts];

    pub fn name(self) -> &'static str {
        match self {
            Part::Values => "sparse_values",
            Part::Columns => "sparse_columns",
            Part::Starts => "sparse_starts",
        }
    }

    pub fn from_name(name: &str) -> Option<Part> {
        Part::ALL.into_iter().find(|part| part.name() == name)
    }
}

/// `64x128 strides 128,1 words 900 longest 17`
impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Matrix { rows, columns, row_stride, column_stride, words, longest } = self;
        write!(f, "{rows}x{columns} strides {row_stride},{column_stride} words {words} longest {longest}")
    }
}

impl Matrix {
    /// Takes what `to_string` writes, where the sizes fit each other.
    pub fn from_text(text: &str) -> Option<Matrix> {
        let all: Vec<&str> = text.split(' ').collect();
        let &[dims, "strides", strides, "words", words, "longest", longest] = &all[..] else { return None };
        let pair = |text: &str, mark: char| -> Option<(i64, i64)> {
            let (a, b) = text.split_once(mark)?;
            Some((a.parse().ok()?, b.parse().ok()?))
        };
        let ((rows, columns), (row_stride, column_stride)) = (pair(dims, 'x')?, pair(strides, ',')?);
        let (words, longest) = (words.parse().ok()?, longest.parse().ok()?);
        let matrix = Matrix { rows, columns, row_stride, column_stride, words, longest };
        let fits = [rows, columns, words, longest].iter().all(|n| (0..=i32::MAX as i64).contains(n))
            && matrix.has_plain_strides()
            && longest <= columns
            && words <= rows.saturating_mul(longest);
        fits.then_some(matrix)
    }

    /// The matrix with so many rows and columns in these elements, with as many words as are not 0; none where they are no
    /// such matrix, or more than can be counted.
    pub fn found([rows, columns]: [i64; 2], [row_stride, column_stride]: [i64; 2], values: &[f32]) -> Option<Matrix> {
        let matrix = Matrix { rows, columns, row_stride, column_stride, words: 0, longest: 0 };
        let fits = matrix.has_plain_strides()
            && rows.checked_mul(columns) == i64::try_from(values.len()).ok()
            && values.len() <= i32::MAX as usize;
        let lengths: Vec<i64> =
            (0..rows).filter(|_| fits).map(|row| matrix.nonzero(values, row).count() as i64).collect();
        fits.then(|| Matrix {
            words: lengths.iter().sum(),
            longest: lengths.iter().copied().max().unwrap_or(0),
            ..matrix
        })
    }

    fn has_plain_strides(&self) -> bool {
        [(self.columns, 1), (1, self.rows)].contains(&(self.row_stride, self.column_stride))
    }

    /// Elements of the parameter.
    pub fn elements(&self) -> i64 {
        self.rows.saturating_mul(self.columns)
    }

    /// Dimensions of a parameter that it is of, as far as it tells.
    pub fn parameter_dims(&self) -> Vec<usize> {
        let dims = if self.column_stride == 1 { [self.rows, self.columns] } else { [self.columns, self.rows] };
        dims.map(|n| usize::try_from(n).unwrap_or(0)).to_vec()
    }

    /// Returns true where a parameter has as many elements, of f32.
    pub fn is_of(&self, parameter: &Container) -> bool {
        let elements = parameter.dims.iter().try_fold(1i64, |n, d| n.checked_mul(d.as_const()?));
        parameter.dtype == DType::F32 && parameter.is_plain() && elements == Some(self.elements())
    }

    /// Columns are numbered in 16 bits where that is enough.
    pub fn column_dtype(&self) -> DType {
        if self.columns <= 1 << 16 { DType::U16 } else { DType::I32 }
    }

    pub fn container(&self, part: Part) -> Container {
        let (dtype, n) = match part {
            Part::Values => (DType::F32, self.words),
            Part::Columns => (self.column_dtype(), self.words),
            Part::Starts => (DType::I32, self.rows + 1),
        };
        Container::plain(dtype, vec![Dim::constant(n)])
    }

    /// The columns of a row that are not 0, and what they are.
    fn nonzero<'v>(&self, values: &'v [f32], row: i64) -> impl Iterator<Item = (i64, f32)> + use<'v> {
        let Matrix { columns, row_stride, column_stride, .. } = *self;
        let at = move |column: i64| values[(row * row_stride + column * column_stride) as usize];
        (0..columns).map(move |column| (column, at(column))).filter(|(_, value)| *value != 0.0)
    }

    /// A parameter of f32 with zeros in the place of elements that the matrix has no words for.
    pub fn thinned(&self, parameter: &Tensor) -> Option<Tensor> {
        let mut values = parameter.to_vec::<f32>().filter(|values| values.len() as i64 == self.elements())?;
        let each = self.longest.min(self.words.checked_div(self.rows).unwrap_or(0));
        for (row, column) in (0..self.rows).flat_map(|row| (0..self.columns).map(move |column| (row, column))) {
            // The words of a row lie behind those of the row before.
            if (column + self.columns - row * each % self.columns) % self.columns >= each {
                values[(row * self.row_stride + column * self.column_stride) as usize] = 0.0;
            }
        }
        Some(Tensor::from_vec(parameter.dims().to_vec(), values))
    }

    /// Errors: E0901 for a parameter that has more words, of a row or of all.
    pub fn part(&self, part: Part, parameter: &Tensor) -> Result<Tensor> {
        let defect = || Error::defect("what is made sparse has other words than its matrix");
        let values = parameter.to_vec::<f32>().filter(|values| values.len() as i64 == self.elements());
        let values = values.ok_or_else(defect)?;
        let mut words: Vec<(i64, f32)> = vec![];
        let mut starts = vec![0i32];
        for row in 0..self.rows {
            let first = words.len();
            words.extend(self.nonzero(&values, row));
            if (words.len() - first) as i64 > self.longest || words.len() as i64 > self.words {
                return Err(defect());
            }
            // Rows are filled up with zeros until there are as many words as the matrix says.
            let left = self.words - words.len() as i64;
            let own = (words.len() - first) as i64;
            let rows_left = (self.rows - row - 1).saturating_mul(self.longest);
            let more = (left - rows_left).clamp(0, self.longest - own);
            words.extend((0..more).map(|_| (0, 0.0)));
            starts.push(words.len() as i32);
        }
        if words.len() as i64 != self.words {
            return Err(defect());
        }
        let n = words.len();
        Ok(match part {
            Part::Values => Tensor::from_vec(vec![n], words.into_iter().map(|w| w.1).collect()),
            Part::Columns if self.column_dtype() == DType::U16 => {
                Tensor::from_vec(vec![n], words.into_iter().map(|w| w.0 as u16).collect())
            }
            Part::Columns => Tensor::from_vec(vec![n], words.into_iter().map(|w| w.0 as i32).collect()),
            Part::Starts => Tensor::from_vec(vec![starts.len()], starts),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: [f32; 12] = [0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 0.0, 6.0, 7.0];

    #[test]
    fn words_lie_row_by_row() {
        let w = Tensor::from_vec(vec![3, 4], W.to_vec());
        let by_rows = Matrix::found([3, 4], [4, 1], &W).unwrap();
        assert_eq!((by_rows.words, by_rows.longest), (4, 3));
        let parts = |m: Matrix| {
            let part = |part| m.part(part, &w).unwrap();
            let (values, columns) = (part(Part::Values).to_vec::<f32>(), part(Part::Columns).to_vec::<u16>());
            (values.unwrap(), columns.unwrap(), part(Part::Starts).to_vec::<i32>().unwrap())
        };
        assert_eq!(parts(by_rows), (vec![2.0, 5.0, 6.0, 7.0], vec![1, 0, 2, 3], vec![0, 1, 1, 4]));
        let by_columns = Matrix::found([4, 3], [1, 4], &W).unwrap();
        assert_eq!(parts(by_columns), (vec![5.0, 2.0, 6.0, 7.0], vec![2, 0, 2, 2], vec![0, 1, 2, 3, 4]));
    }

    #[test]
    fn rows_are_filled_up_to_the_words_that_a_matrix_says() {
        let w = Tensor::from_vec(vec![3, 4], W.to_vec());
        let more = Matrix { words: 8, ..Matrix::found([3, 4], [4, 1], &W).unwrap() };
        let starts = more.part(Part::Starts, &w).unwrap().to_vec::<i32>().unwrap();
        assert_eq!(starts, [0, 2, 5, 8]);
        let fewer = Matrix { words: 3, ..more };
        assert_eq!(fewer.part(Part::Values, &w).unwrap_err().code, "E0901");
        let shorter = Matrix { longest: 2, ..more };
        assert_eq!(shorter.part(Part::Values, &w).unwrap_err().code, "E0901");
    }

    #[test]
    fn a_thinned_parameter_has_no_more_words_than_the_matrix() {
        let w = Tensor::from_vec(vec![3, 4], (1..13).map(|i| i as f32).collect());
        let matrix = Matrix::found([3, 4], [4, 1], &W).unwrap();
        assert_eq!(matrix.part(Part::Values, &w).unwrap_err().code, "E0901");
        let thinned = matrix.thinned(&w).unwrap();
        assert_eq!(thinned.to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0, 0.0, 0.0, 6.0, 0.0, 0.0, 0.0, 0.0, 11.0, 0.0]);
        assert_eq!(matrix.part(Part::Starts, &thinned).unwrap().to_vec::<i32>().unwrap(), [0, 1, 2, 4]);
    }

    #[test]
    fn a_matrix_is_what_its_text_says() {
        let matrix = Matrix::found([3, 4], [4, 1], &W).unwrap();
        assert_eq!(matrix.to_string(), "3x4 strides 4,1 words 4 longest 3");
        assert_eq!(Matrix::from_text(&matrix.to_string()), Some(matrix));
        for wrong in [
            "3x4 strides 4,2 words 4 longest 3",
            "3x4 strides 4,1 words 4 longest 5",
            "3x-4 strides 4,1",
            "",
            "3x4 strides 4,1 words 10 longest 3",
        ] {
            assert_eq!(Matrix::from_text(wrong), None, "{wrong}");
        }
        assert_eq!(Matrix::found([3, 4], [3, 1], &W), None);
        assert_eq!(Matrix::found([3, 5], [5, 1], &W), None);
    }
}
