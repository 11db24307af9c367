//! Σk w[n, k] · x[k]  =>  a sum over the stored elements of row n in a sparse format, in f32, or in i32 for bytes
//!
//! A new format needs a function in this file, which appends the term of the sum, given the containers of the format's
//! parts, and returns the inner space.

use crate::draft::Draft;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::sparse::{
    Format, Groups, HALF_ROWS, TILE_COLUMNS, TILE_ROWS, TwoOfFour, WINDOW_ROWS, Windows, Words,
};
use sardonyx_dialects::flow::{Body, Kernel, Memlet, Program};
use sardonyx_dialects::scalar::{Conversion, ScalarFn};

/// The number of words in the longest row is rounded up to a multiple of this, so that matrices with similar rows share
/// a kernel.
const LENGTHS: i64 = 32;
/// The same for windows, whose lengths differ more and do not influence the generated code.
const LENGTHS_OF_WINDOWS: i64 = 256;

/// The other operand, which a body loads at a column, possibly under a guard.
pub struct Factor<'a> {
    pub memlet: &'a Memlet,
    /// The dimension that the columns of the sparse matrix index.
    pub axis: usize,
    /// The type of its elements.
    pub dtype: DType,
}

impl Factor<'_> {
    fn load(&self, body: &mut Draft, column: Dim, guard: Option<usize>) -> usize {
        let mut index = self.memlet.index.clone();
        index[self.axis] = column;
        let memlet = Memlet { container: self.memlet.container, index };
        let x = body.push(Body::Load { memlet, guard }, self.dtype);
        widened(body, x, self.dtype)
    }
}

/// The term of a sum over a row (a statement), and the inner space of the sum.
pub struct Sum {
    pub arg: usize,
    pub inner: Vec<Dim>,
}

/// Place of a stored word or vector: its number, the statement of its column, and the condition that there is one.
struct Place {
    at: Dim,
    column: usize,
    inside: usize,
}

/// Appends a sum to a body.
pub struct Writer<'a> {
    pub body: &'a mut Draft,
    pub program: &'a Program,
    /// The containers of the format's parts.
    pub parts: &'a [Id],
    /// The row of the matrix.
    pub row: Dim,
    /// Number of the first inner variable.
    pub summed: usize,
    pub factor: Factor<'a>,
}

impl Writer<'_> {
    pub fn sum(&mut self, format: &Format) -> Sum {
        match format {
            Format::Words(words) => self.of_words(words),
            Format::Groups(groups) => self.of_groups(groups),
            Format::TwoOfFour(matrix) => self.of_two_of_four(matrix),
            Format::Windows(matrix) => self.of_windows(matrix),
        }
    }

    fn number(&mut self, id: Id, index: Vec<Dim>, guard: Option<usize>) -> usize {
        let loaded = self.body.load(self.program, id, index, guard);
        self.body.push(Body::Convert(loaded, Conversion::Value), DType::I64)
    }

    /// Appends Σj < length[n] value[first[n] + j] · x[column[first[n] + j]]; if words have several elements, the sum
    /// also runs over the elements of a word.
    fn of_words(&mut self, words: &Words) -> Sum {
        let place = self.stored(self.row.clone());
        // If words have several elements, the second inner variable numbers the elements of a word.
        let element = |word: Dim| match words.depth {
            1 => word,
            depth => word * Dim::constant(depth) + Kernel::var(self.summed + 1),
        };
        let (value, x) = (element(place.at.clone()), element(Kernel::value(place.column)));
        let arg = self.guarded_product(&place, value, x, words.dtype());
        let longest = rounded_up(words.longest, LENGTHS, words.columns());
        let inner = [longest, words.depth].map(Dim::constant);
        Sum { arg, inner: inner[..if words.depth == 1 { 1 } else { 2 }].to_vec() }
    }

    /// Appends Σj < length[w] value[8 · (first[w] + j) + row % 8] · x[column[first[w] + j]] for the row's window w = row / 8.
    fn of_windows(&mut self, matrix: &Windows) -> Sum {
        let height = Dim::constant(WINDOW_ROWS);
        let place = self.stored(self.row.floordiv(&height));
        let value = place.at.clone() * height.clone() + self.row.modulo(&height);
        let arg = self.guarded_product(&place, value, Kernel::value(place.column), matrix.dtype);
        Sum { arg, inner: vec![Dim::constant(rounded_up(matrix.longest, LENGTHS_OF_WINDOWS, matrix.grid.columns))] }
    }

    /// Appends the statements for the place of the j-th stored word of a row, or of the j-th stored vector of a window.
    fn stored(&mut self, row: Dim) -> Place {
        let &[_, columns, starts] = self.parts else { unreachable!("these formats have three parts") };
        let first = self.number(starts, vec![row.clone()], None);
        let end = self.number(starts, vec![row + Dim::constant(1)], None);
        let at = Kernel::value(first) + Kernel::var(self.summed);
        let length = self.body.apply(ScalarFn::Sub, &[end, first], DType::I64);
        let word = self.body.var(self.summed);
        let inside = self.body.apply(ScalarFn::Lt, &[word, length], DType::Bool);
        let column = self.number(columns, vec![at.clone()], Some(inside));
        Place { at, column, inside }
    }

    /// Appends the product of a stored value and the other operand at a column, or 0 past the end of a row.
    fn guarded_product(&mut self, place: &Place, value: Dim, column: Dim, dtype: DType) -> usize {
        let value = self.body.load(self.program, self.parts[0], vec![value], Some(place.inside));
        let value = widened(self.body, value, dtype);
        let x = self.factor.load(self.body, column, Some(place.inside));
        let dtype = self.body.body[x].dtype;
        let product = self.body.apply(ScalarFn::Mul, &[value, x], dtype);
        let zero = self.body.push(Body::Const(0.0), dtype);
        self.body.apply(ScalarFn::Select, &[place.inside, product, zero], dtype)
    }

    /// Appends Σc,i,u value[c, row / m, q, u] · x[width · c + column[c, row / m, q / n, u]] with q = patterns[row % m,
    /// i], over chunks c, patterns i that contain the row, and slots u; m, n and width are those of `Groups`.
    fn of_groups(&mut self, groups: &Groups) -> Sum {
        let &[values, columns, patterns] = self.parts else { unreachable!("groups have three parts") };
        let by = Dim::constant;
        let [chunk, pattern, place] = [0, 1, 2].map(|v| Kernel::var(self.summed + v));
        let block = self.row.floordiv(&by(groups.m));
        let q = self.number(patterns, vec![self.row.modulo(&by(groups.m)), pattern], None);
        let value = vec![chunk.clone(), block.clone(), Kernel::value(q), place.clone()];
        let value = self.body.load(self.program, values, value, None);
        let column = vec![chunk.clone(), block, Kernel::value(q).floordiv(&by(groups.n)), place];
        let column = self.number(columns, column, None);
        let x = self.factor.load(self.body, chunk * by(groups.width) + Kernel::value(column), None);
        let arg = self.body.apply(ScalarFn::Mul, &[value, x], DType::F32);
        let inner = [groups.chunks(), groups.patterns_of_a_row(), groups.g].map(Dim::constant);
        Sum { arg, inner: inner.to_vec() }
    }

    /// Appends Σt,w,f,i value[row, 2 · four + i] · x[4 · four + position] over tiles t of columns, words w of a tile,
    /// fours f of a word, and the two stored values i of a four; `four` is the number of the four in its row, and the
    /// position is two bits of the word.
    fn of_two_of_four(&mut self, matrix: &TwoOfFour) -> Sum {
        let &[values, positions] = self.parts else { unreachable!("2:4 has two parts") };
        let (by, width) = (Dim::constant, matrix.word_columns());
        let inner = [matrix.grid.columns / TILE_COLUMNS, TILE_COLUMNS / width, width / 4, 2];
        let [tile, word, four, i] = [0, 1, 2, 3].map(|v| Kernel::var(self.summed + v));
        let column = |part: i64| {
            let [tile, word, four] =
                [(&tile, TILE_COLUMNS), (&word, width), (&four, 4)].map(|(v, columns)| v.clone() * by(columns / part));
            tile + word + four
        };
        let value = self.body.load(self.program, values, vec![self.row.clone(), column(2) + i.clone()], None);
        let value = widened(self.body, value, matrix.dtype);
        let half = self.row.modulo(&by(TILE_ROWS)).floordiv(&by(HALF_ROWS));
        let bit = four.clone() * by(4) + i * by(2);
        let (lane, bit) = match matrix.dtype {
            DType::I8 => (vec![word.clone(), half], bit),
            _ => (vec![word.clone()], half * by(width) + bit),
        };
        let first = vec![self.row.floordiv(&by(TILE_ROWS)), tile.clone(), self.row.modulo(&by(HALF_ROWS))];
        let index = [first, lane].concat();
        let word = self.number(positions, index, None);
        let bit = self.body.push(Body::Index(bit), DType::I64);
        let shifted = self.body.apply(ScalarFn::Shr, &[word, bit], DType::I64);
        let mask = self.body.number(3);
        let position = self.body.apply(ScalarFn::BitAnd, &[shifted, mask], DType::I64);
        let x = self.factor.load(self.body, column(1) + Kernel::value(position), None);
        let dtype = self.body.body[x].dtype;
        let arg = self.body.apply(ScalarFn::Mul, &[value, x], dtype);
        Sum { arg, inner: inner.map(by).to_vec() }
    }
}

/// Returns the extent of a sum over rows of which the longest has `longest` words: a multiple of `to`, or `most`.
fn rounded_up(longest: i64, to: i64, most: i64) -> i64 {
    ((longest + to - 1).div_euclid(to) * to).min(most)
}

/// Widens bytes to i32, the type in which they are multiplied; f32 values stay as they are.
fn widened(body: &mut Draft, value: usize, dtype: DType) -> usize {
    if dtype == DType::F32 { value } else { body.push(Body::Convert(value, Conversion::Value), DType::I32) }
}
