//! w[r, c], at most two nonzeros in each four adjacent columns of a row  =>  the two and their positions (2:4)
//!
//! Sparse tensor cores multiply this format. A position takes two bits. Positions are stored as the lanes of a warp
//! supply them to an instruction (PTX ISA, "mma.sp"): the matrix is divided into tiles of 16 rows by 64 columns, and
//! each lane has one 32-bit word of a tile. Rows and columns are counted within the tile. For floats, lane
//! `4 · (row mod 8) + column / 16` has the positions of 16 columns: those of row `row mod 8` in the low half of its
//! word, and those of row `row mod 8 + 8` in the high half. For bytes, lane
//! `4 · (row mod 8) + row / 8 + 2 · (column / 32)` has the positions of 32 columns of one row.

use super::{Grid, Part, TYPES, elements, of_floats, type_name};
use crate::flow::kernel::Container;
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use std::fmt;

/// A matrix with at most two nonzeros in each four adjacent columns of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TwoOfFour {
    /// How the elements of the parameter form the matrix.
    pub grid: Grid,
    /// Type of the stored values: the type of the parameter, or bf16, to which the values of an f32 parameter are
    /// rounded.
    pub dtype: DType,
}

/// Number of rows of a tile; the matrix has a whole number of tiles.
pub const TILE_ROWS: i64 = 16;
/// Number of columns of a tile.
pub const TILE_COLUMNS: i64 = 64;
/// Half of a tile's rows. The same four lanes have the positions of rows r and r + 8.
pub const HALF_ROWS: i64 = 8;
/// Number of consecutive lanes that have the positions of the rows r and r + 8 of a tile.
const QUAD: i64 = 4;

/// Writes text such as `64x128 strides 128,1 two_of_four bf16`.
impl fmt::Display for TwoOfFour {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} two_of_four {}", self.grid, type_name(self.dtype))
    }
}

impl TwoOfFour {
    /// Parses what `to_string` writes after the grid; none if the matrix is not a whole number of tiles.
    pub fn from_text(grid: Grid, text: &[&str]) -> Option<TwoOfFour> {
        let &["two_of_four", dtype] = text else { return None };
        let &(dtype, _) = TYPES.iter().find(|(_, name)| *name == dtype)?;
        is_whole(&grid).then_some(TwoOfFour { grid, dtype })
    }

    /// The format of a matrix with these elements, from a parameter of type `dtype`; none if some four columns have more
    /// than two nonzeros, or the matrix is not a whole number of tiles.
    pub fn found(grid: Grid, dtype: DType, values: &[f32]) -> Option<TwoOfFour> {
        let matrix = TwoOfFour { grid, dtype };
        let fits = is_whole(&grid) && grid.holds(values);
        (fits && matrix.fours().all(|at| matrix.kept(values, at).is_some())).then_some(matrix)
    }

    /// Returns the type of the parameter.
    pub fn parameter_dtype(&self) -> DType {
        if self.dtype == DType::I8 { DType::I8 } else { DType::F32 }
    }

    /// Returns the number of columns of a row whose positions are in the same word.
    pub fn word_columns(&self) -> i64 {
        if self.dtype == DType::I8 { 32 } else { 16 }
    }

    /// Row and first column of each group of four columns, row by row.
    fn fours(&self) -> impl Iterator<Item = (i64, i64)> + use<> {
        let Grid { rows, columns, .. } = self.grid;
        (0..rows).flat_map(move |row| (0..columns / 4).map(move |four| (row, 4 * four)))
    }

    /// Positions, in ascending order, of the two elements of a group of four that are stored: the nonzeros, and zeros
    /// if there are fewer than two nonzeros. `None` if there are more than two.
    fn kept(&self, values: &[f32], (row, column): (i64, i64)) -> Option<[i64; 2]> {
        let is_there = |i: &i64| values[self.grid.place(row, column + i)] != 0.0;
        let found: Vec<i64> = (0..4).filter(is_there).collect();
        match found[..] {
            [] => Some([0, 1]),
            [3] => Some([2, 3]),
            [one] => Some([one, one + 1]),
            [one, two] => Some([one, two]),
            _ => None,
        }
    }

    /// The container of a part; none if the format has no such part.
    pub fn container(&self, part: Part) -> Option<Container> {
        let Grid { rows, columns, .. } = self.grid;
        let (dtype, dims) = match part {
            Part::Values => (self.dtype, vec![rows, columns / 2]),
            Part::Positions => (DType::U32, self.words()),
            Part::Columns | Part::Starts | Part::Patterns => return None,
        };
        Some(Container::plain(dtype, dims.into_iter().map(Dim::constant).collect()))
    }

    /// Dimensions of the words of positions: tiles down, tiles across, `HALF_ROWS`, and the `QUAD` lanes. For bytes,
    /// the lanes are two dimensions: the two halves of the columns, and rows r and r + 8.
    fn words(&self) -> Vec<i64> {
        let Grid { rows, columns, .. } = self.grid;
        let lanes = if self.dtype == DType::I8 { &[2, 2][..] } else { &[QUAD] };
        [&[rows / TILE_ROWS, columns / TILE_COLUMNS, HALF_ROWS], lanes].concat()
    }

    /// The lane among the `QUAD` lanes of the row, and the first bit in its word, for the positions of four columns.
    fn lane_and_bit(&self, (row, column): (i64, i64)) -> [i64; 2] {
        let (half, of_word) = (row % TILE_ROWS / HALF_ROWS, self.word_columns());
        let word = column % TILE_COLUMNS / of_word;
        match self.dtype {
            DType::I8 => [half + 2 * word, column % of_word],
            _ => [word, half * of_word + column % of_word],
        }
    }

    /// A copy of a parameter that keeps two of each four elements, chosen by their row and column; the others are 0.
    pub fn thinned(&self, parameter: &Tensor) -> Option<Tensor> {
        self.grid.thinned(parameter, |row, column| (row + column / 4 + column) % 4 < 2)
    }

    /// The contents of a part. Errors: E0901 for a parameter with more than two nonzeros in some four columns.
    pub fn part(&self, part: Part, parameter: &Tensor) -> Result<Tensor> {
        let defect = || Error::defect("what is made sparse has more nonzeros than two of four");
        let values = elements(parameter).filter(|values| self.grid.holds(values)).ok_or_else(defect)?;
        let kept = |at: (i64, i64)| Some((at, self.kept(&values, at)?));
        let all = self.fours().map(kept).collect::<Option<Vec<_>>>().ok_or_else(defect)?;
        let dims: Vec<usize> = match self.container(part) {
            Some(container) => container.dims.iter().filter_map(|d| usize::try_from(d.as_const()?).ok()).collect(),
            None => return Err(defect()),
        };
        if part == Part::Values {
            let value = |((row, column), i): ((i64, i64), i64)| values[self.grid.place(row, column + i)];
            let values: Vec<f32> = all.iter().flat_map(|(at, kept)| kept.map(|i| value((*at, i)))).collect();
            return of_floats(self.dtype, dims, values);
        }
        let across = self.grid.columns / TILE_COLUMNS;
        let mut words = vec![0u32; dims.iter().product()];
        for ((row, column), [first, second]) in all {
            let tile = row / TILE_ROWS * across + column / TILE_COLUMNS;
            let [lane, bit] = self.lane_and_bit((row, column));
            let word = (tile * HALF_ROWS + row % HALF_ROWS) * QUAD + lane;
            words[word as usize] |= ((first | second << 2) as u32) << bit;
        }
        Ok(Tensor::from_vec(dims, words))
    }
}

fn is_whole(grid: &Grid) -> bool {
    grid.rows > 0 && grid.columns > 0 && grid.rows % TILE_ROWS == 0 && grid.columns % TILE_COLUMNS == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid { rows: 32, columns: 128, row_stride: 128, column_stride: 1 };

    /// The matrix that values and positions stand for, by the rules at the top of this file.
    fn unpacked(matrix: &TwoOfFour, parameter: &Tensor) -> Vec<f32> {
        let [values, positions] = [Part::Values, Part::Positions].map(|part| matrix.part(part, parameter).unwrap());
        let value = |at: usize| match matrix.dtype {
            DType::I8 => f32::from(values.to_vec::<i8>().unwrap()[at]),
            _ => half::bf16::from_le_bytes([values.bytes()[2 * at], values.bytes()[2 * at + 1]]).to_f32(),
        };
        let positions = positions.to_vec::<u32>().unwrap();
        let mut out = vec![0.0; (GRID.rows * GRID.columns) as usize];
        for (row, four) in (0..GRID.rows).flat_map(|row| (0..GRID.columns / 4).map(move |four| (row, four))) {
            let (column, half) = (4 * four % 64, row % 16 / 8);
            let (lane, bit) = match matrix.dtype {
                DType::I8 => (half + 2 * (column / 32), column % 32),
                _ => (column / 16, 16 * half + column % 16),
            };
            let word = positions[(((row / 16 * 2 + four / 16) * 8 + row % 8) * 4 + lane) as usize] >> bit;
            for (i, position) in [word & 3, word >> 2 & 3].into_iter().enumerate() {
                let at = (row * GRID.columns / 2 + 2 * four) as usize + i;
                out[GRID.place(row, 4 * four + i64::from(position))] = value(at);
            }
        }
        out
    }

    #[test]
    fn values_and_positions_are_the_matrix() {
        let all: Vec<f32> = (0..32 * 128).map(|i| (i % 101) as f32 - 50.0).collect();
        for dtype in [DType::BF16, DType::I8] {
            let matrix = TwoOfFour { grid: GRID, dtype };
            let parameter = super::super::stored(matrix.parameter_dtype(), vec![32, 128], all.clone());
            let mut values = elements(&matrix.thinned(&parameter).unwrap()).unwrap();
            // Groups of four with one nonzero, at the last or another position, and with none.
            values[..12].copy_from_slice(&[0.0, 0.0, 0.0, 5.0, 0.0, 6.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
            let parameter = super::super::stored(matrix.parameter_dtype(), vec![32, 128], values.clone());
            assert_eq!(TwoOfFour::found(GRID, dtype, &values), Some(matrix));
            assert_eq!(unpacked(&matrix, &parameter), values, "{matrix}");
        }
    }

    #[test]
    fn more_than_two_of_four_or_a_part_of_a_tile_is_no_such_matrix() {
        let found = |grid, values: &[f32]| TwoOfFour::found(grid, DType::F32, values);
        let mut values = vec![0.0; 32 * 128];
        let matrix = found(GRID, &values).unwrap();
        values[4..7].fill(1.0);
        assert_eq!(found(GRID, &values), None);
        assert!(matrix.part(Part::Values, &Tensor::from_vec(vec![32, 128], values)).is_err());
        for (rows, columns) in [(24, 64), (16, 96), (0, 64)] {
            let grid = Grid { rows, columns, row_stride: columns, column_stride: 1 };
            assert_eq!(found(grid, &vec![0.0; (rows * columns) as usize]), None);
        }
    }
}
