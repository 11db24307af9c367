//! Σj value[m, j] · x[n, 4 · (j / 2) + position(m, j)]  =>  `mma.sp` on the stored half of A, its positions, and B
//!
//! The instruction requires the sparse matrix as operand A, so the rows of a tile are rows of the weights, and its
//! columns are tokens. With single warps, a k tile has 64 bytes of stored elements of each row of A and 128 bytes of
//! each column of B. For each 16 rows by 64 columns of the matrix, each lane has one word of positions. For bf16, two
//! instructions take their positions from such a word: the first from lanes 0 and 1 of each quad, the second from lanes
//! 2 and 3. For bytes, one instruction multiplies 64 columns, and all lanes supply positions (PTX ISA, "mma.sp").
//! `warpgroups` uses this plan with larger tiles and `wgmma.sp`.

use super::copy::{log2, shift};
use super::mma::{Factors, Fragment, Reader, STEP_BYTES, Sums};
use super::operand::Operand;
use super::plan::{BLOCKS_MIN, Gemm, POSITION_BYTES, Positions, Shape, shape};
use super::{Block, times};
use crate::asm::{Asm, Bin, Cast, CmpI, Elem, Ptx, Ty, Val};
use crate::def::*;
use crate::ptx::Version;
use sardonyx_base::usual::{LARGE, USUAL};
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::sparse::{Grid, HALF_ROWS, TILE_COLUMNS, TILE_ROWS, TwoOfFour};
use sardonyx_dialects::scalar::ScalarFn;

/// Version of PTX that has `mma.sp`.
pub(super) const VERSION: Version = (7, 1);

/// Tiles for products of single warps, the largest first; each has eight warps.
static TILES: &[Shape] = &[
    shape(128, 128, TILE_BYTES, (2, 4), 3),
    shape(64, 64, TILE_BYTES, (2, 4), 4),
    shape(64, 32, TILE_BYTES, (4, 2), 4),
];

/// Bytes of stored elements of a row in a k tile.
const TILE_BYTES: i64 = 64;
/// Number of words of positions for [`TILE_ROWS`] rows by [`TILE_COLUMNS`] columns: one for each lane of a warp.
const LANES: i64 = 32;
/// Bytes of positions that a thread copies at a time.
const UNIT_BYTES: i64 = 16;

/// Parts of a kernel that multiplies by a 2:4 matrix.
pub struct Matched {
    sum: usize,
    factors: Factors,
    /// Accesses to the stored values and to the dense operand, as if `k` alone numbered the elements along K.
    value: Access,
    x: Access,
    /// Buffer of the words of positions.
    words: usize,
    /// Number of columns of the matrix, divided by [`TILE_COLUMNS`].
    tiles: i64,
    /// The outer variable that numbers the rows of the matrix.
    m: usize,
    /// The outer variable that numbers the results of one row; the other outer variables are batch variables.
    n: usize,
    /// The innermost variable, which numbers the two stored elements of each four columns.
    k: usize,
}

impl Matched {
    /// The plan with the largest tile of which more than half of the columns are used and that gives enough blocks, or
    /// else with the smallest tile. If the extent of `n` is open, the plan also has the smallest tile, for launches
    /// with few blocks.
    pub fn planned(
        &self,
        def: &KernelDef,
        tiles: &'static [Shape],
        with: &dyn Fn(&'static Shape) -> Option<Gemm>,
    ) -> Option<Gemm> {
        let size = |v: usize, typical: i64| def.extent(v).as_const().unwrap_or(typical);
        let (m, n) = (size(self.m, LARGE.other), size(self.n, LARGE.other));
        let batch = self.batch(def).map(|v| size(v, USUAL.first)).fold(1, i64::saturating_mul);
        let fits = |s: &&Shape| s.n < 2 * n || Some(*s) == tiles.last();
        let enough = |s: &&Shape| s.blocks(m, n).saturating_mul(batch) >= BLOCKS_MIN;
        let mut fitting = tiles.iter().filter(fits);
        let shape = fitting.clone().find(enough).or_else(|| fitting.next_back())?;
        let is_open = def.extent(self.n).as_const().is_none();
        let small = tiles.last().filter(|small| is_open && *small != shape);
        Some(Gemm { small: small.and_then(|small| Some(Box::new(with(small)?))), ..with(shape)? })
    }

    /// The plan in which single warps, not warpgroups, multiply.
    pub fn of_warps(&self, def: &KernelDef) -> Option<Gemm> {
        self.planned(def, TILES, &|shape| self.with_shape(def, shape))
    }

    /// Finds the parts of a product with a 2:4 matrix; `None` for any other kernel.
    pub fn find(def: &KernelDef) -> Option<Matched> {
        let (sum, product) = def.only_sum()?;
        let Op::Apply { f: ScalarFn::Mul, args } = &def.body[product].op else { return None };
        let &[value, x] = &args[..] else { return None };
        let (value, x) = (widened(def, value)?, widened(def, x)?);
        let types = [&value, &x].map(|access| def.reads[access.buffer].dtype);
        let factors = Factors::new(types[0], types[1]).filter(|factors| !factors.is_split())?;
        let [column] = &x.computed[..] else { return None };
        let position = column.expr.statements().first().copied()?;
        let Op::Apply { f: ScalarFn::BitAnd, args } = &def.body[position].op else { return None };
        let &[shifted, mask] = &args[..] else { return None };
        let Op::Apply { f: ScalarFn::Shr, args } = &def.body[shifted].op else { return None };
        let &[word, bit] = &args[..] else { return None };
        let (word, bit) = (widened(def, word)?, index(def, bit)?);
        // For bytes, the index of the word has a third computed part: the half of the tile that contains the row.
        let [block, lane, of_bytes @ ..] = &word.computed[..] else { return None };
        let m = block.expr.variables().first().copied()?;

        // A variable of extent 1 does not occur, so no variable numbers the tiles if there is one tile of columns.
        let n_outer = def.outer.len();
        let inner: Vec<usize> = (n_outer..def.n_vars()).collect();
        let (tile, words, fours, k) = match inner[..] {
            [tile, words, fours, k] => (Some(tile), words, fours, k),
            [words, fours, k] => (None, words, fours, k),
            _ => return None,
        };
        let tiles = tile.map_or(Some(1), |v| def.extent(v).as_const())?;
        let grid = Grid { rows: 0, columns: 0, row_stride: 1, column_stride: 1 };
        let width = TwoOfFour { grid, dtype: types[0] }.word_columns();
        let [each_word, each_four] = [TILE_COLUMNS / width, width / 4];
        let (by, var) = (Dim::constant, Dim::variable);
        let tile_column = tile.map_or(by(0), |v| var(v) * by(TILE_COLUMNS));
        let first = tile_column + var(words) * by(width) + var(fours) * by(4);
        let half = var(m).modulo(&by(TILE_ROWS)).floordiv(&by(HALF_ROWS));
        let within = var(fours) * by(4) + var(k) * by(2);
        let strides = |access: &Access, wanted: &[(Option<usize>, i64)]| {
            let stride = |v: usize| wanted.iter().find(|(var, _)| *var == Some(v)).map_or(0, |(_, stride)| *stride);
            access.coords.len() == 1
                && access.coords[0].offset.is(0)
                && (0..def.n_vars()).all(|v| access.stride(v).is(stride(v)))
        };
        let of_values = [
            (Some(m), tiles * TILE_COLUMNS / 2),
            (tile, TILE_COLUMNS / 2),
            (Some(words), width / 2),
            (Some(fours), 2),
            (Some(k), 1),
        ];
        // Number of lanes that have the positions of a row. The half of the tile that contains the row chooses a lane
        // for bytes, and bits of the word for bf16.
        let lanes = LANES / HALF_ROWS;
        let (word_stride, half_lane, first_bit) = match types[0] {
            DType::I8 => (lanes / each_word, Some(half), by(0)),
            _ => (1, None, half * by(width)),
        };
        let is_half = match (half_lane, of_bytes) {
            (None, []) => true,
            (Some(half), [part]) => part.expr == half && part.stride.is(1),
            _ => false,
        };
        let is_whole = |v: usize, n: i64| def.extent(v).as_const() == Some(n);
        let ok = def.deep.is_empty()
            && m < n_outer
            && is_whole(words, each_word)
            && is_whole(fours, each_four)
            && is_whole(k, 2)
            && def.extent(m).as_const().is_some_and(|rows| rows % TILE_ROWS == 0)
            && def.body[sum].dtype == if factors == Factors::BF16 { DType::F32 } else { DType::I32 }
            && strides(&value, &of_values)
            && value.computed.is_empty()
            && strides(&word, &[(tile, LANES), (Some(words), word_stride)])
            && def.reads[word.buffer].dtype == DType::U32
            && def.stores_outer_points()
            && block.expr == var(m).floordiv(&by(TILE_ROWS))
            && block.stride.is(tiles * LANES)
            && lane.expr == var(m).modulo(&by(HALF_ROWS))
            && lane.stride.is(lanes)
            && is_half
            && index(def, mask)? == &by(3)
            && *bit == first_bit + within
            && column.expr == first + Dim::statement(position)
            && column.stride.is(1)
            && inner.iter().all(|v| x.stride(*v).is(0))
            && x.stride(m).is(0)
            && [&value, &word, &x].iter().all(|access| def.reads[access.buffer].panels.is_none());
        // The last outer variable on which the address of the dense operand depends.
        let n = (0..n_outer).rev().find(|v| *v != m && !x.stride(*v).is(0)).filter(|_| ok)?;
        let linear = |access: &Access| {
            let mut line = access.coords[0].clone();
            inner.iter().for_each(|v| line.strides[*v] = Size::Const((*v == k) as i64));
            Access { coords: vec![line], computed: vec![], ..access.clone() }
        };
        Some(Matched { sum, factors, value: linear(&value), x: linear(&x), words: word.buffer, tiles, m, n, k })
    }

    fn batch(&self, def: &KernelDef) -> impl Iterator<Item = usize> + use<> {
        let own = [self.m, self.n];
        (0..def.outer.len()).filter(move |v| !own.contains(v))
    }

    /// The plan with a tile of this shape; `None` if K is not a whole number of k tiles.
    pub fn with_shape(&self, def: &KernelDef, shape: &'static Shape) -> Option<Gemm> {
        let element_bytes = def.reads[self.value.buffer].dtype.bytes() as i64;
        let of_k_tile = shape.k_bytes / (TILE_COLUMNS / 2 * element_bytes);
        let along_k = |part: i64| {
            let [all, of_tile] = [self.tiles, of_k_tile].map(|tiles| tiles * TILE_COLUMNS / part);
            (self.k, Size::Const(all), of_tile)
        };
        let gemm = Gemm {
            sums: vec![self.sum],
            factors: self.factors,
            batch: self.batch(def).collect(),
            m: self.m,
            n: self.n,
            k: self.k,
            a: Operand::new(def, self.value.clone(), (self.m, shape.m), along_k(2)),
            b: vec![Operand::new(def, self.x.clone(), (self.n, shape.n), along_k(1))],
            groups: None,
            positions: Some(Positions { buffer: self.words, tiles: self.tiles, of_k_tile }),
            shape,
            few: None,
            small: None,
        };
        (self.tiles % of_k_tile == 0).then_some(gemm)
    }
}

/// The access of the unguarded load whose value a statement converts.
fn widened(def: &KernelDef, k: usize) -> Option<Access> {
    let (access, guard) = def.converted_load(k)?;
    guard.is_none().then(|| access.clone())
}

/// The expression of a statement that computes an index.
fn index(def: &KernelDef, k: usize) -> Option<&Dim> {
    match &def.body[k].op {
        Op::Index(dim) => Some(dim),
        _ => None,
    }
}

/// What a thread needs to copy its part of the positions of each k tile.
pub struct PositionStream {
    /// Whether the thread copies any positions.
    takes_part: Val,
    /// Bytes to read; 0 for rows beyond the last one, whose positions are filled with zeros.
    bytes: Val,
    /// Address in global memory of the positions of the next k tile.
    source: Val,
    /// Offset in the part of a k tile in shared memory that contains its positions.
    target: Val,
    /// Bytes from the positions of one k tile to those of the next.
    step: i64,
}

impl Block<'_> {
    /// Prepares the copies of positions by thread `thread`. The block's tile begins at row `m0`; `rows` is the number
    /// of rows from there to the end of the matrix if that may be less than the tile's.
    pub fn positions(&self, asm: &mut Ptx, thread: Val, m0: Val, rows: Option<Val>) -> Option<PositionStream> {
        let (positions, shape) = (self.gemm.positions.as_ref()?, self.gemm.shape);
        let per_line = positions.of_k_tile * POSITION_BYTES / UNIT_BYTES;
        let units = asm.int(shape.m / TILE_ROWS * per_line, Ty::I32);
        let takes_part = asm.cmpi(CmpI::Ult, thread, units);
        let line = shift(asm, Bin::ShRUI, thread, log2(per_line));
        let all = asm.int(UNIT_BYTES, Ty::I32);
        let bytes = match rows {
            None => all,
            Some(rows) => {
                let (row, zero) = (shift(asm, Bin::ShLI, line, log2(TILE_ROWS)), asm.int(0, Ty::I32));
                let there = asm.cmpi(CmpI::Slt, row, rows);
                asm.select(there, all, zero)
            }
        };
        let within = asm.int(per_line - 1, Ty::I32);
        let unit = asm.bin(Bin::AndI, thread, within);
        let target = shift(asm, Bin::ShLI, thread, log2(UNIT_BYTES));
        // A line, of 16 rows of the matrix, has positions for `tiles` tiles of columns.
        let first = shift(asm, Bin::ShRUI, m0, log2(TILE_ROWS));
        let line = asm.cast(Cast::ExtUI, line, Elem::I64);
        let line = asm.bin(Bin::AddI, first, line);
        let length = asm.i64(positions.tiles * POSITION_BYTES);
        let before = asm.bin(Bin::MulI, line, length);
        let unit = asm.cast(Cast::ExtUI, unit, Elem::I64);
        let unit = times(asm, unit, UNIT_BYTES);
        let at = asm.bin(Bin::AddI, before, unit);
        let start = asm.element(self.cx.reads[positions.buffer], at, Elem::I8);
        let source = asm.register(Ty::PTR);
        asm.set(source, start);
        let step = positions.of_k_tile * POSITION_BYTES;
        Some(PositionStream { takes_part, bytes, source, target, step })
    }
}

impl PositionStream {
    /// Copies the positions of the next k tile to the address `tile` in shared memory.
    pub fn copy(&self, asm: &mut Ptx, tile: Val) {
        let to = asm.bin(Bin::AddI, tile, self.target);
        let [guard, to, from, bytes] = [self.takes_part, to, self.source, self.bytes].map(|v| asm.operand(v, 0));
        asm.line(&format!("@{guard} cp.async.cg.shared.global [{to}], [{from}], {UNIT_BYTES}, {bytes};"));
        let step = asm.i64(self.step);
        let source = asm.element(self.source, step, Elem::I8);
        asm.set(self.source, source);
    }
}

/// The words of positions in shared memory for the rows of a warp in one k tile.
pub struct Words<'a> {
    gemm: &'a Gemm,
    /// Number of words that a lane has of each line of 16 rows.
    of_k_tile: i64,
    /// Name of the register that contains the address of the lane's first word.
    at: String,
}

impl<'a> Words<'a> {
    /// Prepares the loads of words from a k tile whose positions are at `tile`. The warp's rows begin with line `line`;
    /// a line has 16 rows.
    pub fn new(asm: &mut Ptx, gemm: &'a Gemm, tile: Val, line: Val) -> Words<'a> {
        let of_k_tile = gemm.positions.as_ref().map_or(1, |p| p.of_k_tile);
        let lane = asm.special("%laneid");
        let lane = shift(asm, Bin::ShLI, lane, 2);
        let line_bytes = asm.int(of_k_tile * POSITION_BYTES, Ty::I32);
        let before = asm.bin(Bin::MulI, line, line_bytes);
        let at = asm.bin(Bin::AddI, tile, before);
        let at = asm.bin(Bin::AddI, at, lane);
        Words { gemm, of_k_tile, at: asm.name(at, 0) }
    }

    /// Returns the number of a step's word in its line, `None` if the previous step had the same word, and the selector
    /// of the lanes that have the step's positions (an operand of `mma.sp`).
    fn step(&self, step: i64) -> (Option<i64>, i64) {
        let (steps, of_k_tile) = (self.gemm.shape.k_bytes / STEP_BYTES, self.of_k_tile);
        let selector = step % (steps / of_k_tile);
        ((selector == 0).then_some(step * of_k_tile / steps), selector)
    }

    /// Loads word `of_line` of a line.
    fn load(&self, asm: &mut Ptx, line: i64, of_line: i64) -> Val {
        let offset = (line * self.of_k_tile + of_line) * POSITION_BYTES;
        asm.instruction(Ty::I32, "ld.shared.b32", &[format!("[{}+{offset}]", self.at)])
    }

    /// Loads the words of the warp's first line. Returns the word and the selector of each step of a k tile.
    pub fn of_line(&self, asm: &mut Ptx) -> Vec<(Val, i64)> {
        let mut all: Vec<(Val, i64)> = vec![];
        for step in 0..self.gemm.shape.k_bytes / STEP_BYTES {
            let (new, selector) = self.step(step);
            let word = match (new, all.last()) {
                (None, Some((last, _))) => *last,
                (of_line, _) => self.load(asm, 0, of_line.unwrap_or(0)),
            };
            all.push((word, selector));
        }
        all
    }
}

impl Sums {
    /// Adds the products of the stored elements of A, at their positions, with B over a k tile. `tiles` are the
    /// addresses of A's and of B's k tile.
    pub fn add_stored(&self, asm: &mut Ptx, words: &Words, [a, b]: [&Reader; 2], tiles: [Val; 2]) {
        let gemm = words.gemm;
        let kind = gemm.factors.sparse_instruction();
        let mut held = vec![];
        for step in 0..gemm.shape.k_bytes / STEP_BYTES {
            let (new, selector) = words.step(step);
            if let Some(of_line) = new {
                let lines = 0..gemm.shape.warp_m() / TILE_ROWS;
                held = lines.map(|line| words.load(asm, line, of_line)).collect();
            }
            let stored = a.fragments(asm, tiles[0], step);
            let [low, high] = [0, 1].map(|half| b.fragments(asm, tiles[1], 2 * step + half));
            let b: Vec<[Fragment; 2]> = low.into_iter().zip(high).map(|(low, high)| [low, high]).collect();
            for ((sums, rows), word) in self.of.iter().zip(stored.chunks(2)).zip(&held) {
                for (sum, [low, high]) in sums.iter().zip(&b) {
                    let names = |asm: &mut Ptx, all: [Val; 4]| all.map(|v| asm.name(v, 0)).join(", ");
                    let sum = [0, 1, 2, 3].map(|i| asm.name(*sum, i)).join(", ");
                    let a = names(asm, [rows[0][0], rows[1][0], rows[0][1], rows[1][1]]);
                    let b = names(asm, [low[0], low[1], high[0], high[1]]);
                    let word = asm.name(*word, 0);
                    asm.line(&format!("{kind} {{{sum}}}, {{{a}}}, {{{b}}}, {{{sum}}}, {word}, {selector};"));
                }
            }
        }
    }
}
