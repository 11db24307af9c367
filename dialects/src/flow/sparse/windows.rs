//! w[r, c], mostly 0  =>  vectors of eight rows, window by window, and the column of each (8×1 vectors of FlashSparse)
//!
//! Eight adjacent rows are a window. For each column in which a window has a nonzero, the column's eight elements in
//! the window are stored as a vector: tensor cores take the matrix as operand B, whose tiles have eight columns. The
//! vectors of a window are ordered in turns; each turn takes the next column of every remainder modulo 8 that has one
//! left. So eight consecutive vectors have columns with different remainders if there are enough, and a GPU reads the
//! lines of the dense operand that belong to these columns from different banks of shared memory.

use super::words::laid_out;
use super::{Grid, Part, TYPES, elements, number_dtype, numbers, of_floats, type_name};
use crate::flow::kernel::Container;
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use std::fmt;

/// A matrix, and the number of its vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Windows {
    /// The matrix that the elements of the parameter form.
    pub grid: Grid,
    /// Type of the stored values: f32, or bf16, to which the parameter's values are rounded.
    pub dtype: DType,
    /// Number of vectors of all windows together.
    pub vectors: i64,
    /// Maximum number of vectors of a window.
    pub longest: i64,
}

/// Number of rows of a window.
pub const WINDOW_ROWS: i64 = 8;

/// Writes text such as `64x128 strides 128,1 windows 400 longest 60 bf16`.
impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Windows { grid, dtype, vectors, longest } = self;
        write!(f, "{grid} windows {vectors} longest {longest} {}", type_name(*dtype))
    }
}

impl Windows {
    /// Parses what `to_string` writes after the grid; `None` if the text is malformed or its sizes are inconsistent.
    pub fn from_text(grid: Grid, text: &[&str]) -> Option<Windows> {
        let &["windows", vectors, "longest", longest, type_text] = text else { return None };
        let (vectors, longest): (i64, i64) = (vectors.parse().ok()?, longest.parse().ok()?);
        let &(dtype, _) = TYPES.iter().find(|(dtype, name)| *name == type_text && dtype.is_float())?;
        let fits = [vectors.checked_mul(WINDOW_ROWS)?, longest].iter().all(|n| (0..=i32::MAX as i64).contains(n))
            && grid.rows % WINDOW_ROWS == 0
            && longest <= grid.columns
            && vectors <= (grid.rows / WINDOW_ROWS).saturating_mul(longest);
        fits.then_some(Windows { grid, dtype, vectors, longest })
    }

    /// Returns the format of a matrix with these elements, stored as f32; `None` if the grid does not fit the elements,
    /// or the number of rows is not a multiple of [`WINDOW_ROWS`].
    pub fn found(grid: Grid, values: &[f32]) -> Option<Windows> {
        if !grid.holds(values) || grid.rows % WINDOW_ROWS != 0 {
            return None;
        }
        let matrix = Windows { grid, dtype: DType::F32, vectors: 0, longest: 0 };
        let lengths: Vec<i64> = (0..matrix.windows()).map(|w| matrix.columns_of(values, w).len() as i64).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        Some(Windows { vectors: lengths.iter().sum(), longest, ..matrix })
    }

    /// Returns the number of windows.
    pub fn windows(&self) -> i64 {
        self.grid.rows / WINDOW_ROWS
    }

    /// Returns the columns in which a window has a nonzero, in the order of their vectors.
    fn columns_of(&self, values: &[f32], window: i64) -> Vec<i64> {
        let is_there = |row: i64, column: i64| values[self.grid.place(window * WINDOW_ROWS + row, column)] != 0.0;
        let found = (0..self.grid.columns).filter(|column| (0..WINDOW_ROWS).any(|row| is_there(row, *column)));
        let mut turns = [0; 8];
        let mut ordered: Vec<(i64, i64)> = vec![];
        for column in found {
            let turn = &mut turns[(column % 8) as usize];
            ordered.push((*turn, column));
            *turn += 1;
        }
        // The sort is stable: within a turn, columns ascend.
        ordered.sort_by_key(|(turn, _)| *turn);
        ordered.into_iter().map(|(_, column)| column).collect()
    }

    /// Returns the container of a part; `None` if the format has no such part.
    pub fn container(&self, part: Part) -> Option<Container> {
        let (dtype, n) = match part {
            Part::Values => (self.dtype, self.vectors * WINDOW_ROWS),
            Part::Columns => (self.column_dtype(), self.vectors),
            Part::Starts => (DType::I32, self.windows() + 1),
            Part::Patterns | Part::Positions => return None,
        };
        Some(Container::plain(dtype, vec![Dim::constant(n)]))
    }

    fn column_dtype(&self) -> DType {
        number_dtype(self.grid.columns.max(1 << 16))
    }

    /// Returns a copy of a parameter with so many elements set to 0, chosen by position, that the format can store it;
    /// `None` if the parameter has another number of elements, or a type that no format supports.
    pub fn thinned(&self, parameter: &Tensor) -> Option<Tensor> {
        let columns = self.grid.columns;
        let each = self.longest.min(self.vectors.checked_div(self.windows()).unwrap_or(0));
        let first = |window: i64| window * each % columns;
        self.grid.thinned(parameter, |row, column| (column + columns - first(row / WINDOW_ROWS)) % columns < each)
    }

    /// Returns the contents of a part. Errors: E0901 for a part that the format does not have, and for a parameter that
    /// has another number of elements than the matrix, or more vectors than the format allows in a window or in total.
    pub fn part(&self, part: Part, parameter: &Tensor) -> Result<Tensor> {
        let defect = || Error::defect("a sparse format of windows cannot store its parameter");
        let values = elements(parameter).filter(|values| self.grid.holds(values)).ok_or_else(defect)?;
        let columns = |window: i64| self.columns_of(&values, window);
        let (vectors, starts) = laid_out(self.windows(), [self.vectors, self.longest], columns).ok_or_else(defect)?;
        let n = vectors.len();
        Ok(match part {
            Part::Values => {
                let value =
                    |(window, column): (i64, i64), row| values[self.grid.place(window * WINDOW_ROWS + row, column)];
                let eight = |vector: Option<(i64, i64)>| (0..WINDOW_ROWS).map(move |row| (vector, row));
                let all = vectors.into_iter().flat_map(eight);
                let all = all.map(|(vector, row)| vector.map_or(0.0, |vector| value(vector, row)));
                of_floats(self.dtype, vec![n * WINDOW_ROWS as usize], all.collect())?
            }
            Part::Columns => {
                let columns = vectors.iter().map(|vector| vector.map_or(0, |(_, column)| column)).collect();
                numbers(self.column_dtype(), vec![n], columns)
            }
            Part::Starts => Tensor::from_vec(vec![starts.len()], starts),
            Part::Patterns | Part::Positions => return Err(defect()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid { rows: 16, columns: 40, row_stride: 40, column_stride: 1 };

    #[test]
    fn vectors_and_columns_are_the_matrix() {
        let values: Vec<f32> = (0..16 * 40).map(|i| if i % 11 == 3 { i as f32 } else { 0.0 }).collect();
        let parameter = Tensor::from_vec(vec![16, 40], values.clone());
        let matrix = Windows::found(GRID, &values).unwrap();
        let part = |part| matrix.part(part, &parameter).unwrap();
        let (stored, columns) =
            (part(Part::Values).to_vec::<f32>().unwrap(), part(Part::Columns).to_vec::<u16>().unwrap());
        let starts = part(Part::Starts).to_vec::<i32>().unwrap();
        let mut found = vec![0.0; 16 * 40];
        for window in 0..2 {
            for vector in starts[window] as usize..starts[window + 1] as usize {
                for row in 0..8 {
                    found[(8 * window + row) * 40 + columns[vector] as usize] = stored[8 * vector + row];
                }
            }
        }
        assert_eq!(found, values);
        assert_eq!(starts.last().copied(), Some(matrix.vectors as i32));
    }

    #[test]
    fn eight_vectors_have_columns_with_different_remainders() {
        let values: Vec<f32> = (0..16 * 40).map(|i| if i % 40 < 20 { 1.0 } else { 0.0 }).collect();
        let matrix = Windows::found(GRID, &values).unwrap();
        assert_eq!((matrix.vectors, matrix.longest), (40, 20));
        let order = matrix.columns_of(&values, 1);
        assert_eq!(order[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(order[16..], [16, 17, 18, 19]);
    }

    #[test]
    fn a_thinned_parameter_fits_and_is_filled_up() {
        let matrix = Windows { grid: GRID, dtype: DType::BF16, vectors: 13, longest: 7 };
        let full = Tensor::from_vec(vec![16, 40], vec![1.0f32; 16 * 40]);
        assert!(matrix.part(Part::Values, &full).is_err());
        let thin = matrix.thinned(&full).unwrap();
        assert_eq!(matrix.part(Part::Values, &thin).unwrap().dims(), [13 * 8]);
        assert_eq!(matrix.part(Part::Starts, &thin).unwrap().to_vec::<i32>().unwrap(), [0, 6, 13]);
    }
}
