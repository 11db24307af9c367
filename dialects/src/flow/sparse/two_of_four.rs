//! w[r, c], at most two nonzeros in each four adjacent columns  =>  the two and their positions (2:4)
//!
//! This is what sparse tensor cores multiply (PTX ISA, "mma.sp"). A position takes two bits. Positions are stored as an
//! instruction reads them: for each 16 rows by 64 columns, lane `4 · (row mod 8) + column / 16` has a word with eight
//! positions of that row in the low half, and of the row eight further down in the high half.

use super::{Grid, Part, elements};
use crate::flow::kernel::Container;
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use std::fmt;

/// A matrix of which each four adjacent columns have at most two nonzeros in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TwoOfFour {
    /// How the elements of the parameter form the matrix.
    pub grid: Grid,
    /// Type of the stored values: f32, or bf16, to which those of the parameter are then rounded.
    pub dtype: DType,
}

/// Rows and columns of a tile, whose positions fill one word of each lane; both divide the matrix.
pub const TILE_ROWS: i64 = 16;
/// See [`TILE_ROWS`].
pub const TILE_COLUMNS: i64 = 64;
/// Rows whose positions are in the same half of words.
pub const HALF_ROWS: i64 = 8;
/// Columns whose positions are in one half of a word.
pub const WORD_COLUMNS: i64 = 16;

/// Types of the stored values, with their names in the text of a format.
static TYPES: &[(DType, &str)] = &[(DType::F32, "f32"), (DType::BF16, "bf16")];

/// Writes text such as `64x128 strides 128,1 two_of_four bf16`.
impl fmt::Display for TwoOfFour {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let dtype = TYPES.iter().find(|(dtype, _)| *dtype == self.dtype).map_or("", |(_, name)| name);
        write!(f, "{} two_of_four {dtype}", self.grid)
    }
}

impl TwoOfFour {
    /// Parses what `to_string` writes after the grid; none if the matrix is not a whole number of tiles.
    pub fn from_text(grid: Grid, text: &[&str]) -> Option<TwoOfFour> {
        let &["two_of_four", dtype] = text else { return None };
        let &(dtype, _) = TYPES.iter().find(|(_, name)| *name == dtype)?;
        is_whole(&grid).then_some(TwoOfFour { grid, dtype })
    }

    /// The format of a matrix with these elements, in f32; none if some four columns have more than two nonzeros, or the matrix
    /// is not a whole number of tiles.
    pub fn found(grid: Grid, values: &[f32]) -> Option<TwoOfFour> {
        let matrix = TwoOfFour { grid, dtype: DType::F32 };
        let fits = is_whole(&grid) && grid.holds(values);
        (fits && matrix.fours().all(|at| matrix.kept(values, at).is_some())).then_some(matrix)
    }

    /// Row and first column of each four columns, row by row.
    fn fours(&self) -> impl Iterator<Item = (i64, i64)> + use<> {
        let Grid { rows, columns, .. } = self.grid;
        (0..rows).flat_map(move |row| (0..columns / 4).map(move |four| (row, 4 * four)))
    }

    /// Positions of the two elements that are stored of four, in ascending order: all that are not 0, and as many zeros
    /// as are needed to make two. None if more than two are not 0.
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
            Part::Positions => (DType::U32, self.words().to_vec()),
            Part::Columns | Part::Starts | Part::Patterns => return None,
        };
        Some(Container::plain(dtype, dims.into_iter().map(Dim::constant).collect()))
    }

    /// Dimensions of the words of positions: tiles down, tiles across, and the lane's two coordinates.
    fn words(&self) -> [i64; 4] {
        let Grid { rows, columns, .. } = self.grid;
        [rows / TILE_ROWS, columns / TILE_COLUMNS, HALF_ROWS, TILE_COLUMNS / WORD_COLUMNS]
    }

    /// A copy of a parameter that keeps two of each four columns, chosen by the row and the column; all other elements
    /// are 0.
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
            if self.dtype == DType::F32 {
                return Ok(Tensor::from_vec(dims, values));
            }
            let rounded = values.into_iter().flat_map(|v| half::bf16::from_f32(v).to_le_bytes());
            return Tensor::new(DType::BF16, dims, rounded.collect::<Vec<u8>>().into());
        }
        let [_, across, down, halves] = self.words();
        let mut words = vec![0u32; dims.iter().product()];
        for ((row, column), [first, second]) in all {
            let tile = row / TILE_ROWS * across + column / TILE_COLUMNS;
            let lane = row % HALF_ROWS * halves + column % TILE_COLUMNS / WORD_COLUMNS;
            let bit = row % TILE_ROWS / HALF_ROWS * 16 + column % WORD_COLUMNS;
            words[(tile * down * halves + lane) as usize] |= ((first | second << 2) as u32) << bit;
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

    /// The matrix that values and positions stand for.
    fn unpacked(matrix: &TwoOfFour, parameter: &Tensor) -> Vec<f32> {
        let [values, positions] = [Part::Values, Part::Positions].map(|part| matrix.part(part, parameter).unwrap());
        let bits = |at: usize| u16::from_le_bytes([values.bytes()[2 * at], values.bytes()[2 * at + 1]]);
        let positions = positions.to_vec::<u32>().unwrap();
        let mut out = vec![0.0; (GRID.rows * GRID.columns) as usize];
        for row in 0..GRID.rows {
            for stored in 0..GRID.columns / 2 {
                let (tile, within) = (stored / 32, stored % 32);
                let word = ((row / 16 * 2 + tile) * 8 + row % 8) * 4 + within / 8;
                let position = positions[word as usize] >> (row % 16 / 8 * 16 + within % 8 * 2) & 3;
                let column = stored / 2 * 4 + i64::from(position);
                out[GRID.place(row, column)] = half::bf16::from_bits(bits((row * 64 + stored) as usize)).to_f32();
            }
        }
        out
    }

    #[test]
    fn values_and_positions_are_the_matrix() {
        let all: Vec<f32> = (0..32 * 128).map(|i| (i % 101) as f32 - 50.0).collect();
        let parameter =
            TwoOfFour { grid: GRID, dtype: DType::BF16 }.thinned(&Tensor::from_vec(vec![32, 128], all)).unwrap();
        let mut values = parameter.to_vec::<f32>().unwrap();
        // Fours with one nonzero, which may be the last, and with none.
        values[..12].copy_from_slice(&[0.0, 0.0, 0.0, 5.0, 0.0, 6.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let parameter = Tensor::from_vec(vec![32, 128], values.clone());
        let matrix = TwoOfFour { dtype: DType::BF16, ..TwoOfFour::found(GRID, &values).unwrap() };
        assert_eq!(unpacked(&matrix, &parameter), values);
    }

    #[test]
    fn more_than_two_of_four_or_a_part_of_a_tile_is_no_such_matrix() {
        let mut values = vec![0.0; 32 * 128];
        assert!(TwoOfFour::found(GRID, &values).is_some());
        values[4..7].fill(1.0);
        assert_eq!(TwoOfFour::found(GRID, &values), None);
        let parameter = Tensor::from_vec(vec![32, 128], values);
        assert!(TwoOfFour { grid: GRID, dtype: DType::BF16 }.part(Part::Values, &parameter).is_err());
        for (rows, columns) in [(24, 64), (16, 96), (0, 64)] {
            let grid = Grid { rows, columns, row_stride: columns, column_stride: 1 };
            assert_eq!(TwoOfFour::found(grid, &vec![0.0; (rows * columns) as usize]), None);
        }
    }
}
