//! Σk w[n, k] · x[k]  =>  the sum over what a sparse format stores of row n, in f32 or of bytes in i32
//!
//! To add a format: a function here, from the containers of its parts to what is summed, and over which inner space.

use crate::draft::Draft;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::sparse::{Format, Groups, Words};
use sardonyx_dialects::flow::{Body, Kernel, Memlet, Program};
use sardonyx_dialects::scalar::{Conversion, ScalarFn};

/// Rows that have nearly as many words share a kernel: their number is a multiple of this.
const LENGTHS: i64 = 32;

/// The other factor, which a body reads at a column, under a condition.
pub struct Factor<'a> {
    pub memlet: &'a Memlet,
    /// The dimension of its columns.
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

/// What is summed of a row, and the inner space.
pub struct Sum {
    pub arg: usize,
    pub inner: Vec<Dim>,
}

/// Writes the sum of row `row`; its inner variables are numbered from `summed` on.
pub fn sum(
    format: &Format,
    body: &mut Draft,
    program: &Program,
    parts: &[Id],
    (row, summed): (Dim, usize),
    factor: &Factor,
) -> Sum {
    match format {
        Format::Words(words) => of_words(words, body, program, parts, (row, summed), factor),
        Format::Groups(groups) => of_groups(groups, body, program, parts, (row, summed), factor),
    }
}

/// Bytes are multiplied in i32.
fn widened(body: &mut Draft, value: usize, dtype: DType) -> usize {
    if dtype == DType::F32 { value } else { body.push(Body::Convert(value, Conversion::Value), DType::I32) }
}

fn number(body: &mut Draft, program: &Program, id: Id, index: Vec<Dim>, guard: Option<usize>) -> usize {
    let loaded = body.load(program, id, index, guard);
    body.push(Body::Convert(loaded, Conversion::Value), DType::I64)
}

/// Σj < length[n] value[first[n] + j] · x[column[first[n] + j]], of words of one element
fn of_words(
    words: &Words,
    body: &mut Draft,
    program: &Program,
    parts: &[Id],
    (row, summed): (Dim, usize),
    factor: &Factor,
) -> Sum {
    let &[values, columns, starts] = parts else { unreachable!("word rows have three parts") };
    let first = number(body, program, starts, vec![row.clone()], None);
    let end = number(body, program, starts, vec![row + Dim::constant(1)], None);
    let place = Kernel::value(first) + Kernel::var(summed);
    let length = body.apply(ScalarFn::Sub, &[end, first], DType::I64);
    let word = body.var(summed);
    let inside = body.apply(ScalarFn::Lt, &[word, length], DType::Bool);
    let column = number(body, program, columns, vec![place.clone()], Some(inside));
    // Words of several elements are summed over those too.
    let element = |word: Dim| match words.depth {
        1 => word,
        depth => word * Dim::constant(depth) + Kernel::var(summed + 1),
    };
    let value = body.load(program, values, vec![element(place)], Some(inside));
    let value = widened(body, value, words.dtype());
    let x = factor.load(body, element(Kernel::value(column)), Some(inside));
    let dtype = body.body[x].dtype;
    let product = body.apply(ScalarFn::Mul, &[value, x], dtype);
    let zero = body.push(Body::Const(0.0), dtype);
    let arg = body.apply(ScalarFn::Select, &[inside, product, zero], dtype);
    let longest = ((words.longest + LENGTHS - 1).div_euclid(LENGTHS) * LENGTHS).min(words.columns());
    let inner = [longest, words.depth].map(Dim::constant);
    Sum { arg, inner: inner[..if words.depth == 1 { 1 } else { 2 }].to_vec() }
}

/// Σc,i,u value[c, n / m, q, u] · x[width · c + column[c, n / m, q / n, u]], where q = patterns[n % m, i]
fn of_groups(
    groups: &Groups,
    body: &mut Draft,
    program: &Program,
    parts: &[Id],
    (row, summed): (Dim, usize),
    factor: &Factor,
) -> Sum {
    let &[values, columns, patterns] = parts else { unreachable!("groups have three parts") };
    let by = Dim::constant;
    let [chunk, pattern, place] = [0, 1, 2].map(|v| Kernel::var(summed + v));
    let block = row.floordiv(&by(groups.m));
    let q = number(body, program, patterns, vec![row.modulo(&by(groups.m)), pattern], None);
    let value = vec![chunk.clone(), block.clone(), Kernel::value(q), place.clone()];
    let value = body.load(program, values, value, None);
    let column = vec![chunk.clone(), block, Kernel::value(q).floordiv(&by(groups.n)), place];
    let column = number(body, program, columns, column, None);
    let x = factor.load(body, chunk * by(groups.width) + Kernel::value(column), None);
    let arg = body.apply(ScalarFn::Mul, &[value, x], DType::F32);
    let inner = [groups.chunks(), groups.patterns_of_a_row(), groups.g].map(Dim::constant);
    Sum { arg, inner: inner.to_vec() }
}
