//! w[r, c], each column with n nonzeros per m rows  =>  columns grouped by their nonzero rows (n:m:g of STen)
//!
//! Rows are split into blocks of m, columns into chunks. The n rows of a block in which a column has values are its
//! pattern. Each pattern of a chunk has slots for g columns, so a value's row follows from its slot, and only the
//! column numbers are stored. Consecutive patterns differ in one row. Slots to which no column is assigned hold zeros.

use super::{Grid, Part, elements, number_dtype, numbers, pair};
use crate::flow::kernel::Container;
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use std::fmt;

/// A matrix whose columns have at most `n` nonzeros in each block of `m` rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Groups {
    /// How the elements of the parameter form the matrix.
    pub grid: Grid,
    /// Maximum number of nonzeros of a column in a block; at most [`N_MAX`].
    pub n: i64,
    /// Rows per block, more than `n`; at most [`M_MAX`].
    pub m: i64,
    /// Slots per pattern.
    pub g: i64,
    /// Columns per chunk.
    pub width: i64,
}

/// Maximum number of patterns of a format; the kernel contains code for each of them.
pub const PATTERNS_MAX: usize = 32;
/// Maximum number of rows of a block.
pub const M_MAX: i64 = 16;
/// Maximum number of nonzeros that a column may have in a block.
pub const N_MAX: i64 = 4;
/// Maximum of `width`, so that column numbers stay below it, and of `g`.
const WIDTH_MAX: i64 = (1 << 15) - 1;
/// Candidates for `g`, in order of preference: with the first ones, a chunk fits in fast memory.
const PLACES: [i64; 7] = [16, 8, 32, 4, 64, 2, 1];

/// Returns all choices of `n` of `m` rows. Between consecutive choices, one row is replaced, and the other rows keep
/// their positions (revolving-door order). `None` if the sizes are out of range or there are more than
/// [`PATTERNS_MAX`].
pub fn patterns(n: usize, m: usize) -> Option<Vec<Vec<usize>>> {
    if n == 0 || n >= m || n as i64 > N_MAX || m as i64 > M_MAX {
        return None;
    }
    let sets = revolving(n, m);
    let mut found: Vec<Vec<usize>> = sets.first().cloned().into_iter().collect();
    for set in sets.iter().skip(1) {
        let mut next = found[found.len() - 1].clone();
        let added = set.iter().find(|row| !next.contains(row));
        let left = next.iter().position(|row| !set.contains(row));
        if let (Some(added), Some(left)) = (added, left) {
            next[left] = *added;
        }
        found.push(next);
    }
    (found.len() <= PATTERNS_MAX).then_some(found)
}

/// For each of `m` rows, the positions at which the row occurs in the concatenation of all patterns.
pub fn places_of_rows(patterns: &[Vec<usize>], m: usize) -> Vec<u8> {
    let places = |row: usize| {
        let values = patterns.iter().flatten().enumerate();
        values.filter(move |(_, other)| **other == row).map(|(at, _)| at as u8)
    };
    (0..m).flat_map(places).collect()
}

/// Returns all sets of `n` of the numbers below `m`; each set has exactly one number that the previous set lacks.
fn revolving(n: usize, m: usize) -> Vec<Vec<usize>> {
    if n == 0 || n == m {
        return vec![(0..n).collect()];
    }
    let with_last = revolving(n - 1, m - 1).into_iter().rev().map(|mut set| {
        set.push(m - 1);
        set
    });
    revolving(n, m - 1).into_iter().chain(with_last).collect()
}

/// Writes text such as `64x128 strides 128,1 groups 2:4:11 of 64`.
impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Groups { grid, n, m, g, width } = self;
        write!(f, "{grid} groups {n}:{m}:{g} of {width}")
    }
}

impl Groups {
    /// Parses what `to_string` writes after the grid; none if the sizes are inconsistent.
    pub fn from_text(grid: Grid, text: &[&str]) -> Option<Groups> {
        let &["groups", sizes, "of", width] = text else { return None };
        let (n, rest) = sizes.split_once(':')?;
        let ((m, g), n, width) = (pair(rest, ':')?, n.parse().ok()?, width.parse().ok()?);
        let groups = Groups { grid, n, m, g, width };
        let n_patterns = groups.patterns()?.len() as i64;
        let fits = (1..=WIDTH_MAX).contains(&width)
            && width <= grid.columns
            && (1..=WIDTH_MAX).contains(&g)
            && n_patterns * g >= width
            && groups.slots().checked_mul(n).is_some_and(|stored| stored <= i32::MAX as i64);
        fits.then_some(groups)
    }

    /// The format of a matrix in equally wide chunks with at most `g` slots per pattern. None if the sizes are out of
    /// range or the matrix is empty.
    pub fn shaped(grid: Grid, [n, m, g]: [i64; 3]) -> Option<Groups> {
        let n_patterns = patterns(usize::try_from(n).ok()?, usize::try_from(m).ok()?)?.len() as i64;
        let most = n_patterns.checked_mul(g).filter(|most| (1..=WIDTH_MAX).contains(most))?;
        let chunks = (grid.columns - 1).div_euclid(most) + 1;
        let width = (grid.columns - 1).checked_div(chunks)? + 1;
        let groups = Groups { grid, n, m, g: (width - 1).div_euclid(n_patterns) + 1, width };
        (grid.rows > 0 && grid.columns > 0).then_some(groups)
    }

    /// The format that stores the fewest values; none if columns have too many nonzeros, or too many of the same
    /// pattern.
    pub fn found(grid: Grid, values: &[f32]) -> Option<Groups> {
        let fits = grid.holds(values);
        let sizes = (2..=M_MAX).filter(|_| fits).filter_map(|m| Some([most_of_a_block(grid, values, m)?, m]));
        let mut forms: Vec<Groups> =
            sizes.flat_map(|[n, m]| PLACES.map(|g| Groups::shaped(grid, [n, m, g]))).flatten().collect();
        // The sort is stable, so formats that store the same number of values stay in order of `m`, then of `PLACES`.
        forms.sort_by_key(|form| form.rows_of_blocks() * form.n / form.m);
        forms.into_iter().find(|form| form.is_stored(values))
    }

    fn is_stored(&self, values: &[f32]) -> bool {
        let Some(patterns) = self.patterns() else { return false };
        self.places()
            .all(|[chunk, block]| self.assigned(&patterns, chunk, self.rows_of(values, chunk, block)).is_some())
    }

    /// Returns the [`patterns`] of this format; `None` if `n` and `m` are out of range.
    pub fn patterns(&self) -> Option<Vec<Vec<usize>>> {
        patterns(usize::try_from(self.n).ok()?, usize::try_from(self.m).ok()?)
    }

    /// Returns the number of chunks; the last one may have fewer than `width` columns.
    pub fn chunks(&self) -> i64 {
        (self.grid.columns + self.width - 1).div_euclid(self.width)
    }

    /// Returns the number of blocks in a column; the last one may have fewer than `m` rows.
    pub fn blocks(&self) -> i64 {
        (self.grid.rows + self.m - 1).div_euclid(self.m)
    }

    fn rows_of_blocks(&self) -> i64 {
        self.blocks() * self.m
    }

    fn n_patterns(&self) -> i64 {
        self.patterns().map_or(0, |patterns| patterns.len() as i64)
    }

    /// Number of column slots in all chunks and blocks.
    pub fn slots(&self) -> i64 {
        [self.blocks(), self.n_patterns(), self.g].into_iter().fold(self.chunks(), i64::saturating_mul)
    }

    /// Number of patterns that contain a given row of a block.
    pub fn patterns_of_a_row(&self) -> i64 {
        (self.n_patterns() * self.n).checked_div(self.m).unwrap_or(0)
    }

    /// Returns the container of a part; `None` for a part that this format does not have.
    pub fn container(&self, part: Part) -> Option<Container> {
        let Groups { n, m, g, .. } = *self;
        let n_patterns = self.n_patterns();
        let (dtype, dims) = match part {
            Part::Values => (DType::F32, vec![self.chunks(), self.blocks(), n_patterns * n, g]),
            Part::Columns => (number_dtype(self.width), vec![self.chunks(), self.blocks(), n_patterns, g]),
            Part::Patterns => (DType::U8, vec![m, self.patterns_of_a_row()]),
            Part::Starts | Part::Positions => return None,
        };
        Some(Container::plain(dtype, dims.into_iter().map(Dim::constant).collect()))
    }

    /// A copy of an f32 parameter that keeps in each column only the rows of one pattern, chosen by the column's
    /// position in its chunk; all other elements are 0.
    pub fn thinned(&self, parameter: &Tensor) -> Option<Tensor> {
        let patterns = self.patterns()?;
        self.grid.thinned(parameter, |row, column| {
            let pattern = (column % self.width / self.g) as usize;
            patterns.get(pattern).is_some_and(|rows| rows.contains(&((row % self.m) as usize)))
        })
    }

    fn places(&self) -> impl Iterator<Item = [i64; 2]> + use<> {
        let blocks = self.blocks();
        (0..self.chunks()).flat_map(move |chunk| (0..blocks).map(move |block| [chunk, block]))
    }

    fn columns_of(&self, chunk: i64) -> std::ops::Range<i64> {
        chunk * self.width..self.grid.columns.min((chunk + 1) * self.width)
    }

    /// For each column of a chunk, a bit mask of the block's rows in which the column is not 0.
    fn rows_of(&self, values: &[f32], chunk: i64, block: i64) -> Vec<u32> {
        let rows = block * self.m..self.grid.rows.min((block + 1) * self.m);
        let is_there = |row: i64, column: i64| values[self.grid.place(row, column)] != 0.0;
        let bits = |column: i64| {
            let own = rows.clone().filter(|row| is_there(*row, column));
            own.fold(0, |bits, row| bits | 1 << (row % self.m))
        };
        self.columns_of(chunk).map(bits).collect()
    }

    /// For each pattern, the columns of the chunk assigned to it, counted from the chunk's first; none if the slots do
    /// not suffice.
    fn assigned(&self, patterns: &[Vec<usize>], chunk: i64, rows: Vec<u32>) -> Option<Vec<Vec<usize>>> {
        let sets: Vec<u32> = patterns.iter().map(|rows| rows.iter().fold(0, |bits, row| bits | 1 << row)).collect();
        let mut matching = Matching { sets: &sets, g: self.g as usize, rows: &rows, taken: vec![vec![]; sets.len()] };
        let mut order: Vec<usize> = (0..self.columns_of(chunk).count()).collect();
        // Columns with all `n` nonzeros fit a single pattern, so they are assigned first.
        order.sort_by_key(|column| std::cmp::Reverse(rows[*column].count_ones()));
        for column in order {
            if !matching.add(column, &mut vec![false; sets.len()]) {
                return None;
            }
        }
        let mut taken = matching.taken;
        taken.iter_mut().for_each(|columns| columns.sort_unstable());
        Some(taken)
    }

    /// The contents of a container. Errors: E0901 for a parameter that this format cannot store.
    pub fn part(&self, part: Part, parameter: &Tensor) -> Result<Tensor> {
        let defect = || Error::defect("what is made sparse has columns that its groups have no place for");
        let values = elements(parameter).filter(|values| self.grid.holds(values)).ok_or_else(defect)?;
        let patterns = self.patterns().ok_or_else(defect)?;
        let container = self.container(part).ok_or_else(defect)?;
        let dims = container.dims.iter().filter_map(|d| d.as_const()).map(|d| d as usize).collect();
        if part == Part::Patterns {
            return Ok(Tensor::from_vec(dims, places_of_rows(&patterns, self.m as usize)));
        }
        let (mut stored, mut columns) = (vec![], vec![]);
        for [chunk, block] in self.places() {
            let rows = self.rows_of(&values, chunk, block);
            let taken = self.assigned(&patterns, chunk, rows).ok_or_else(defect)?;
            for (pattern, taken) in patterns.iter().zip(&taken) {
                let place = |place: usize| taken.get(place).map(|column| *column as i64);
                columns.extend((0..self.g as usize).map(|at| place(at).unwrap_or(0)));
                for row in pattern {
                    let row = block * self.m + *row as i64;
                    let value = |column: i64| values[self.grid.place(row, chunk * self.width + column)];
                    let is_there = row < self.grid.rows;
                    stored.extend((0..self.g as usize).map(|at| place(at).filter(|_| is_there).map_or(0.0, value)));
                }
            }
        }
        Ok(match part {
            Part::Values => Tensor::from_vec(dims, stored),
            Part::Columns => numbers(container.dtype, dims, columns),
            Part::Starts | Part::Patterns | Part::Positions => return Err(defect()),
        })
    }
}

/// Maximum number of nonzeros of a column in any block of `m` rows, at least 1; none if that is more than half of `m`
/// or more than [`N_MAX`].
fn most_of_a_block(grid: Grid, values: &[f32], m: i64) -> Option<i64> {
    let mut most = 1;
    for block in (0..grid.rows).step_by(m as usize) {
        let rows = block..grid.rows.min(block + m);
        for column in 0..grid.columns {
            let n = rows.clone().filter(|row| values[grid.place(*row, column)] != 0.0).count() as i64;
            most = most.max(n);
        }
        if 2 * most > m || most > N_MAX {
            return None;
        }
    }
    Some(most)
}

/// An assignment of columns to slots of patterns that contain all their nonzero rows.
struct Matching<'a> {
    sets: &'a [u32],
    g: usize,
    rows: &'a [u32],
    taken: Vec<Vec<usize>>,
}

impl Matching<'_> {
    /// Assigns a column to a slot; columns assigned before may move to slots of other patterns (an augmenting path).
    /// Returns whether a slot was found; `seen` marks the patterns that have been tried.
    fn add(&mut self, column: usize, seen: &mut [bool]) -> bool {
        let fits = |pattern: &usize| self.rows[column] & !self.sets[*pattern] == 0;
        let open: Vec<usize> = (0..self.sets.len()).filter(fits).collect();
        if let Some(free) = open.iter().find(|pattern| self.taken[**pattern].len() < self.g) {
            self.taken[*free].push(column);
            return true;
        }
        for pattern in open {
            if std::mem::replace(&mut seen[pattern], true) {
                continue;
            }
            for at in 0..self.taken[pattern].len() {
                let other = self.taken[pattern][at];
                if self.add(other, seen) {
                    self.taken[pattern][at] = column;
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *state >> 33
    }

    /// Returns a format, and the values of a matrix whose chunks all have the same number of columns of each pattern.
    fn sparse([rows, columns]: [i64; 2], [n, m, g]: [i64; 3], seed: u64) -> (Groups, Vec<f32>) {
        let by_rows = seed.is_multiple_of(2);
        let [row_stride, column_stride] = if by_rows { [columns, 1] } else { [1, rows] };
        let grid = Grid { rows, columns, row_stride, column_stride };
        let form = Groups::shaped(grid, [n, m, g]).unwrap();
        let patterns = form.patterns().unwrap();
        let mut state = seed;
        let mut values = vec![0.0; (rows * columns) as usize];
        for [chunk, block] in form.places() {
            let mut order: Vec<i64> = form.columns_of(chunk).collect();
            for i in (1..order.len()).rev() {
                order.swap(i, random(&mut state) as usize % (i + 1));
            }
            for (at, column) in order.into_iter().enumerate() {
                for row in &patterns[at / form.g as usize] {
                    let row = block * m + *row as i64;
                    if row < rows && !random(&mut state).is_multiple_of(9) {
                        values[grid.place(row, column)] = random(&mut state) as f32 + 1.0;
                    }
                }
            }
        }
        (form, values)
    }

    /// Reads the matrix back from its containers as a kernel does.
    fn read(form: &Groups, w: &Tensor) -> Vec<f32> {
        let part = |part| form.part(part, w).unwrap();
        let (values, patterns) = (part(Part::Values).to_vec::<f32>().unwrap(), part(Part::Patterns));
        let columns = part(Part::Columns);
        let mut out = vec![0.0; w.len()];
        let [n, m, g] = [form.n, form.m, form.g];
        let each = form.patterns_of_a_row();
        for (row, chunk) in (0..form.grid.rows).flat_map(|row| (0..form.chunks()).map(move |chunk| (row, chunk))) {
            let place = (chunk * form.blocks() + row / m) * form.n_patterns();
            for (pattern, u) in (0..each).flat_map(|pattern| (0..g).map(move |u| (pattern, u))) {
                let number = patterns.get_f64((row % m * each + pattern) as usize).unwrap() as i64;
                let column = columns.get_f64(((place + number / n) * g + u) as usize).unwrap() as i64;
                let value = values[((place * n + number) * g + u) as usize];
                if value != 0.0 {
                    out[form.grid.place(row, chunk * form.width + column)] += value;
                }
            }
        }
        out
    }

    #[test]
    fn one_row_changes_from_pattern_to_pattern() {
        for ([n, m], count) in [([1, 4], 4), ([2, 4], 6), ([2, 6], 15), ([3, 6], 20), ([1, 10], 10), ([2, 8], 28)] {
            let found = patterns(n, m).unwrap();
            let mut sets: Vec<Vec<usize>> = found.clone();
            sets.iter_mut().for_each(|set| set.sort_unstable());
            sets.sort();
            sets.dedup();
            assert_eq!((found.len(), sets.len()), (count, count));
            for pair in found.windows(2) {
                assert_eq!(pair[0].iter().zip(&pair[1]).filter(|(a, b)| a != b).count(), 1, "{n}:{m}");
            }
        }
        assert_eq!(
            [patterns(0, 4), patterns(4, 4), patterns(5, 4), patterns(4, 8), patterns(8, 16)],
            [(); 5].map(|_| None)
        );
    }

    #[test]
    fn what_is_stored_is_the_matrix() {
        let sizes = [[24, 24], [4, 1], [1, 40], [30, 100], [7, 64], [64, 193]];
        let forms = [[2, 4, 16], [2, 4, 1], [1, 4, 16], [2, 6, 4], [1, 10, 8], [3, 6, 2], [2, 8, 3]];
        for (i, (size, form)) in sizes.iter().flat_map(|s| forms.map(|f| (*s, f))).enumerate() {
            let (form, values) = sparse(size, form, i as u64);
            let dims = form.grid.parameter_dims();
            let w = Tensor::from_vec(dims, values.clone());
            assert_eq!(read(&form, &w), values, "{form}");
            let thinned = form.thinned(&Tensor::from_vec(w.dims().to_vec(), vec![1f32; w.len()])).unwrap();
            assert_eq!(Tensor::from_vec(w.dims().to_vec(), read(&form, &thinned)), thinned, "{form}");
        }
    }

    #[test]
    fn a_form_is_found_that_stores_as_few_values() {
        for (i, sizes) in [[2, 4, 16], [1, 4, 16], [2, 6, 16], [1, 10, 16]].into_iter().enumerate() {
            let (form, values) = sparse([120, 768], sizes, i as u64);
            let found = Groups::found(form.grid, &values).unwrap();
            assert_eq!([found.n, found.m], [form.n, form.m]);
            assert!(found.slots() * found.n <= form.slots() * form.n, "{found}");
        }
        let grid = Grid { rows: 8, columns: 16, row_stride: 16, column_stride: 1 };
        assert_eq!(Groups::found(grid, &[1.0; 128]), None);
        // Every column has the first two of four rows, so all need the same pattern, which has too few slots for them.
        let values: Vec<f32> = (0..128).map(|i| if i / 16 % 4 < 2 { 1.0 } else { 0.0 }).collect();
        assert!(Groups::found(grid, &values).is_none_or(|form| form.m != 4 || form.g >= 16));
        assert_eq!(Groups::found(Grid { rows: 0, columns: 0, row_stride: 0, column_stride: 1 }, &[]), None);
    }

    /// The format stores half of the values, and a column number of one byte for every two of them: in f32, 2:4 takes
    /// 0.5625 of the bytes of the dense matrix.
    #[test]
    fn bytes_are_those_of_the_values_and_a_column_for_each_few() {
        let grid = Grid { rows: 768, columns: 768, row_stride: 768, column_stride: 1 };
        let form = Groups::shaped(grid, [2, 4, 16]).unwrap();
        let bytes = |part| {
            let container = form.container(part).unwrap();
            container.dims.iter().filter_map(Dim::as_const).product::<i64>() * container.dtype.bytes() as i64
        };
        let all: i64 = [Part::Values, Part::Columns, Part::Patterns].map(bytes).iter().sum();
        assert!((all as f64) < 0.563 * 4.0 * 768.0 * 768.0, "{all}");
        assert_eq!([form.g, form.width, form.chunks()], [16, 96, 8]);
    }
}
