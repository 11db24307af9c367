//! w[r, c], mostly 0  =>  containers of its nonzero elements, in one of the formats of a table
//!
//! To add a format: add a variant to `Format`, a row to `FORMATS`, a file with its containers, and the kernel that the
//! pass `skip-zeros` builds.

mod groups;
mod two_of_four;
mod windows;
mod words;

pub use groups::{Groups, M_MAX, N_MAX, PATTERNS_MAX, patterns, places_of_rows};
pub use two_of_four::{HALF_ROWS, TILE_COLUMNS, TILE_ROWS, TwoOfFour};
pub use windows::{WINDOW_ROWS, Windows};
pub use words::Words;

use super::kernel::Container;
use sardonyx_base::{DType, Result, Tensor};
use std::fmt;

/// How the elements of a parameter form a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Grid {
    /// Number of rows of the matrix.
    pub rows: i64,
    /// Number of columns of the matrix.
    pub columns: i64,
    /// Distance between neighbouring rows, in elements of the parameter.
    pub row_stride: i64,
    /// Distance between neighbouring columns, in elements of the parameter.
    pub column_stride: i64,
}

/// A format with its sizes for a given matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// Nonzero words row by row: single f32, or four adjacent i8.
    Words(Words),
    /// Columns of f32 with at most n nonzeros in each block of m rows, grouped by the rows of these nonzeros.
    Groups(Groups),
    /// Two of each four adjacent elements of a row, in f32, bf16 or i8, for the sparse tensor cores of GPUs.
    TwoOfFour(TwoOfFour),
    /// Nonzero vectors of eight adjacent elements of a column, in f32 or bf16, for the tensor cores of GPUs.
    Windows(Windows),
}

/// A container of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// The stored values, some of which may be 0.
    Values,
    /// The column of each word (`Words`), slot (`Groups`) or vector (`Windows`).
    Columns,
    /// The index of each row's first word, or of each window's first vector, followed by the total number of them.
    Starts,
    /// For each row of a block, the positions at which the row occurs in the concatenation of all patterns, the sets of
    /// rows in which a column may have its nonzeros.
    Patterns,
    /// The position of each stored value among its four columns, in two bits.
    Positions,
}

struct PartRow {
    part: Part,
    name: &'static str,
}

static PARTS: &[PartRow] = &[
    PartRow { part: Part::Values, name: "sparse_values" },
    PartRow { part: Part::Columns, name: "sparse_columns" },
    PartRow { part: Part::Starts, name: "sparse_starts" },
    PartRow { part: Part::Patterns, name: "sparse_patterns" },
    PartRow { part: Part::Positions, name: "sparse_positions" },
];

struct FormatRow {
    /// Element type of the parameters that the format supports.
    dtype: DType,
    /// True for formats that the tensor cores of GPUs multiply, false for those of the vector units of CPUs.
    for_tensor_cores: bool,
    /// Returns the format with its sizes for a matrix of these values; `None` if it cannot store the matrix.
    found: fn(Grid, &[f32]) -> Option<Format>,
    from_text: fn(Grid, &[&str]) -> Option<Format>,
}

static FORMATS: &[FormatRow] = &[
    FormatRow {
        dtype: DType::F32,
        for_tensor_cores: false,
        found: |grid, values| Words::found(grid, 1, values).map(Format::Words),
        from_text: |grid, text| Words::from_text(grid, text).map(Format::Words),
    },
    FormatRow {
        dtype: DType::I8,
        for_tensor_cores: false,
        found: |grid, values| Words::found(grid, 4, values).map(Format::Words),
        from_text: |grid, text| Words::from_text(grid, text).map(Format::Words),
    },
    FormatRow {
        dtype: DType::F32,
        for_tensor_cores: false,
        found: |grid, values| Groups::found(grid, values).map(Format::Groups),
        from_text: |grid, text| Groups::from_text(grid, text).map(Format::Groups),
    },
    FormatRow {
        dtype: DType::F32,
        for_tensor_cores: true,
        found: |grid, values| TwoOfFour::found(grid, DType::F32, values).map(Format::TwoOfFour),
        from_text: |grid, text| TwoOfFour::from_text(grid, text).map(Format::TwoOfFour),
    },
    FormatRow {
        dtype: DType::I8,
        for_tensor_cores: true,
        found: |grid, values| TwoOfFour::found(grid, DType::I8, values).map(Format::TwoOfFour),
        from_text: |grid, text| TwoOfFour::from_text(grid, text).map(Format::TwoOfFour),
    },
    FormatRow {
        dtype: DType::F32,
        for_tensor_cores: true,
        found: |grid, values| Windows::found(grid, values).map(Format::Windows),
        from_text: |grid, text| Windows::from_text(grid, text).map(Format::Windows),
    },
];

impl Part {
    /// Returns the name in the IR, such as `sparse_values`.
    pub fn name(self) -> &'static str {
        PARTS.iter().find(|row| row.part == self).map_or("", |row| row.name)
    }

    /// Returns the part that has this name in the IR; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Part> {
        PARTS.iter().find(|row| row.name == name).map(|row| row.part)
    }
}

impl Grid {
    /// Returns whether the rows, or the columns, are contiguous and follow each other without gaps.
    fn has_plain_strides(&self) -> bool {
        [(self.columns, 1), (1, self.rows)].contains(&(self.row_stride, self.column_stride))
    }

    /// Returns the number of elements of the parameter: rows times columns.
    pub fn elements(&self) -> i64 {
        self.rows.saturating_mul(self.columns)
    }

    /// Returns whether `values` has as many elements as the matrix, but not more than `i32::MAX`, and the strides are
    /// supported.
    fn holds(&self, values: &[f32]) -> bool {
        self.has_plain_strides()
            && self.rows.checked_mul(self.columns) == i64::try_from(values.len()).ok()
            && values.len() <= i32::MAX as usize
    }

    /// Returns the dimensions of a parameter of rank 2 whose elements form this matrix.
    pub fn parameter_dims(&self) -> Vec<usize> {
        let dims = if self.column_stride == 1 { [self.rows, self.columns] } else { [self.columns, self.rows] };
        dims.map(|n| usize::try_from(n).unwrap_or(0)).to_vec()
    }

    fn is_of(&self, parameter: &Container) -> bool {
        let elements = parameter.dims.iter().try_fold(1i64, |n, d| n.checked_mul(d.as_const()?));
        parameter.is_plain() && elements == Some(self.elements())
    }

    fn place(&self, row: i64, column: i64) -> usize {
        (row * self.row_stride + column * self.column_stride) as usize
    }

    /// Returns a copy of a parameter with zeros where `stays` returns false; `None` if the parameter has another number
    /// of elements, or a type that no format supports.
    fn thinned(&self, parameter: &Tensor, stays: impl Fn(i64, i64) -> bool) -> Option<Tensor> {
        let mut values = elements(parameter).filter(|values| values.len() as i64 == self.elements())?;
        for (row, column) in (0..self.rows).flat_map(|row| (0..self.columns).map(move |column| (row, column))) {
            if !stays(row, column) {
                values[self.place(row, column)] = 0.0;
            }
        }
        Some(stored(parameter.dtype(), parameter.dims().to_vec(), values))
    }
}

/// Writes text such as `64x128 strides 128,1`.
impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Grid { rows, columns, row_stride, column_stride } = self;
        write!(f, "{rows}x{columns} strides {row_stride},{column_stride}")
    }
}

impl Format {
    /// Returns every format that can store a matrix with these elements, from a parameter of type `dtype`: only
    /// formats for tensor cores, or only the others.
    pub fn all(grid: Grid, dtype: DType, values: &[f32], for_tensor_cores: bool) -> Vec<Format> {
        let own = FORMATS.iter().filter(|row| (row.dtype, row.for_tensor_cores) == (dtype, for_tensor_cores));
        own.filter_map(|row| (row.found)(grid, values)).collect()
    }

    /// Returns the element type of the parameters that the format supports.
    pub fn dtype(&self) -> DType {
        match self {
            Format::Words(words) => words.dtype(),
            Format::Groups(_) | Format::Windows(_) => DType::F32,
            Format::TwoOfFour(matrix) => matrix.parameter_dtype(),
        }
    }

    /// Returns whether a parameter is plain, of the format's element type, and has as many elements as the matrix.
    pub fn is_of(&self, parameter: &Container) -> bool {
        parameter.dtype == self.dtype() && self.grid().is_of(parameter)
    }

    /// Parses what `to_string` writes; `None` if the sizes are inconsistent.
    pub fn from_text(text: &str) -> Option<Format> {
        let all: Vec<&str> = text.split(' ').collect();
        let [dims, "strides", strides, rest @ ..] = &all[..] else { return None };
        let ((rows, columns), (row_stride, column_stride)) = (pair(dims, 'x')?, pair(strides, ',')?);
        let grid = Grid { rows, columns, row_stride, column_stride };
        let fits = [rows, columns].iter().all(|n| (0..=i32::MAX as i64).contains(n)) && grid.has_plain_strides();
        FORMATS.iter().filter(|_| fits).find_map(|row| (row.from_text)(grid, rest))
    }

    /// Returns whether the tensor cores of GPUs multiply the format, rather than vector units.
    pub fn is_for_tensor_cores(&self) -> bool {
        matches!(self, Format::TwoOfFour(_) | Format::Windows(_))
    }

    /// Returns how the elements of the parameter form the matrix.
    pub fn grid(&self) -> &Grid {
        match self {
            Format::Words(words) => &words.grid,
            Format::Groups(groups) => &groups.grid,
            Format::TwoOfFour(matrix) => &matrix.grid,
            Format::Windows(matrix) => &matrix.grid,
        }
    }

    /// Returns the format's containers, in the order in which kernels read them.
    pub fn parts(&self) -> &'static [Part] {
        match self {
            Format::Words(_) | Format::Windows(_) => &[Part::Values, Part::Columns, Part::Starts],
            Format::Groups(_) => &[Part::Values, Part::Columns, Part::Patterns],
            Format::TwoOfFour(_) => &[Part::Values, Part::Positions],
        }
    }

    /// Returns the number of stored values, some of which may be 0.
    pub fn stored(&self) -> i64 {
        match self {
            Format::Words(words) => words.words * words.depth,
            Format::Groups(groups) => groups.slots() * groups.n,
            Format::TwoOfFour(matrix) => matrix.grid.elements() / 2,
            Format::Windows(matrix) => matrix.vectors * WINDOW_ROWS,
        }
    }

    /// Returns the container of a part; `None` if the format has no such part.
    pub fn container(&self, part: Part) -> Option<Container> {
        match self {
            Format::Words(words) => words.container(part),
            Format::Groups(groups) => groups.container(part),
            Format::TwoOfFour(matrix) => matrix.container(part),
            Format::Windows(matrix) => matrix.container(part),
        }
    }

    /// Returns the contents of a part. Errors: E0901 for a parameter that this format cannot store.
    pub fn part(&self, part: Part, parameter: &Tensor) -> Result<Tensor> {
        match self {
            Format::Words(words) => words.part(part, parameter),
            Format::Groups(groups) => groups.part(part, parameter),
            Format::TwoOfFour(matrix) => matrix.part(part, parameter),
            Format::Windows(matrix) => matrix.part(part, parameter),
        }
    }

    /// Returns a copy of a parameter with so many elements set to 0, chosen by position, that the format can store it.
    pub fn thinned(&self, parameter: &Tensor) -> Option<Tensor> {
        match self {
            Format::Words(words) => words.thinned(parameter),
            Format::Groups(groups) => groups.thinned(parameter),
            Format::TwoOfFour(matrix) => matrix.thinned(parameter),
            Format::Windows(matrix) => matrix.thinned(parameter),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Format::Words(words) => words.fmt(f),
            Format::Groups(groups) => groups.fmt(f),
            Format::TwoOfFour(matrix) => matrix.fmt(f),
            Format::Windows(matrix) => matrix.fmt(f),
        }
    }
}

/// Returns the elements of a parameter as f32, which represents them exactly; `None` for a type that no format
/// supports.
pub fn elements(parameter: &Tensor) -> Option<Vec<f32>> {
    let bytes = |bytes: Vec<i8>| bytes.into_iter().map(f32::from).collect();
    parameter.to_vec::<f32>().or_else(|| parameter.to_vec::<i8>().map(bytes))
}

fn stored(dtype: DType, dims: Vec<usize>, all: Vec<f32>) -> Tensor {
    match dtype {
        DType::I8 => Tensor::from_vec(dims, all.into_iter().map(|v| v as i8).collect()),
        _ => Tensor::from_vec(dims, all),
    }
}

/// Types in which `TwoOfFour` or `Windows` can store values, with their names in the text of a format.
static TYPES: &[(DType, &str)] = &[(DType::F32, "f32"), (DType::BF16, "bf16"), (DType::I8, "i8")];

fn type_name(dtype: DType) -> &'static str {
    TYPES.iter().find(|(other, _)| *other == dtype).map_or("", |(_, name)| name)
}

/// Returns a tensor of one of `TYPES`; values of bf16 are rounded to nearest.
fn of_floats(dtype: DType, dims: Vec<usize>, all: Vec<f32>) -> Result<Tensor> {
    if dtype != DType::BF16 {
        return Ok(stored(dtype, dims, all));
    }
    let rounded = all.into_iter().flat_map(|v| half::bf16::from_f32(v).to_le_bytes());
    Tensor::new(DType::BF16, dims, rounded.collect::<Vec<u8>>().into())
}

/// Parses two integers separated by `mark`.
fn pair(text: &str, mark: char) -> Option<(i64, i64)> {
    let (a, b) = text.split_once(mark)?;
    Some((a.parse().ok()?, b.parse().ok()?))
}

/// Returns the narrowest supported type for indices below `n`.
fn number_dtype(n: i64) -> DType {
    if n <= 1 << 8 {
        DType::U8
    } else if n <= 1 << 16 {
        DType::U16
    } else {
        DType::I32
    }
}

fn numbers(dtype: DType, dims: Vec<usize>, all: Vec<i64>) -> Tensor {
    match dtype {
        DType::U8 => Tensor::from_vec(dims, all.into_iter().map(|n| n as u8).collect()),
        DType::U16 => Tensor::from_vec(dims, all.into_iter().map(|n| n as u16).collect()),
        _ => Tensor::from_vec(dims, all.into_iter().map(|n| n as i32).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_what_its_text_says() {
        let w: Vec<f32> = (0..64).map(|i| if i % 4 == 1 { i as f32 } else { 0.0 }).collect();
        for grid in [
            Grid { rows: 8, columns: 8, row_stride: 8, column_stride: 1 },
            Grid { rows: 8, columns: 8, row_stride: 1, column_stride: 8 },
        ] {
            let bytes = Tensor::from_vec(vec![8, 8], w.iter().map(|v| *v as i8).collect());
            let w = Tensor::from_vec(vec![8, 8], w.clone());
            let all = |w: &Tensor| {
                [false, true].map(|cores| Format::all(grid, w.dtype(), &elements(w).unwrap(), cores)).concat()
            };
            let found = [&w, &bytes].map(|w| all(w).into_iter().map(move |format| (w, format)));
            let found: Vec<(&Tensor, Format)> = found.into_iter().flatten().collect();
            assert!(found.len() >= 2);
            for (w, format) in found {
                assert_eq!(Format::from_text(&format.to_string()), Some(format), "{format}");
                for part in format.parts() {
                    let made = format.part(*part, w).unwrap();
                    let container = format.container(*part).unwrap();
                    let dims: Vec<i64> = container.dims.iter().filter_map(|d| d.as_const()).collect();
                    assert_eq!(made.dtype(), container.dtype);
                    assert_eq!(made.dims().iter().map(|d| *d as i64).collect::<Vec<_>>(), dims, "{format}");
                }
            }
        }
        for wrong in [
            "3x4 strides 4,2 words 4 longest 3",
            "3x4 strides 4,1 words 4 longest 5",
            "3x-4 strides 4,1",
            "",
            "3x4 strides 4,1 words 10 longest 3",
            "3x6 strides 6,1 quads 3 longest 1",
            "3x4 strides 4,1 quads 3 longest 2",
            "3x4 strides 4,1 groups 2:4:16",
            "3x4 strides 4,1 groups 0:4:16 of 4",
            "3x4 strides 4,1 groups 4:4:16 of 4",
            "3x4 strides 4,1 groups 2:4:0 of 4",
            "3x4 strides 4,1 groups 8:16:1 of 4",
            "3x4 strides 4,1 groups 2:4:1 of 7",
            "16x32 strides 32,1 two_of_four bf16",
            "24x64 strides 64,1 two_of_four f32",
            "16x64 strides 64,1 two_of_four u8",
            "12x64 strides 64,1 windows 3 longest 3 f32",
            "16x64 strides 64,1 windows 7 longest 3 bf16",
            "16x64 strides 64,1 windows 6 longest 3 i8",
        ] {
            assert_eq!(Format::from_text(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn parts_and_formats_are_found_by_name() {
        for row in PARTS {
            assert_eq!(Part::from_name(row.part.name()), Some(row.part));
        }
        assert_eq!(Part::from_name("values"), None);
    }
}
