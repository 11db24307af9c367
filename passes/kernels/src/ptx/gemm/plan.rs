//! contraction  =>  how a GPU computes it: the operands A and B, their layouts, and a tile shape from a table

use super::groups::Groups;
use super::mma::{Factors, STEP_BYTES};
use super::operand::{Inner, Lines, Operand};
use crate::contract::{Roles, candidates, widened, word_candidates};
use crate::def::*;
use crate::words::Words;
use sardonyx_base::usual::{LARGE, USUAL};
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::kernel::Class;
use sardonyx_dialects::flow::sparse::TILE_ROWS;

/// Shape of the tile that one block computes with a grid of warps, one k tile (a part of K) after another. Two
/// contractions that share a block have half of the columns each.
#[derive(Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of rows of the tile.
    pub m: i64,
    /// Number of columns of the tile, over all contractions that share it.
    pub n: i64,
    /// Bytes of each row of A in a k tile.
    pub k_bytes: i64,
    /// Number of warps along the rows.
    pub warps_m: i64,
    /// Number of warps along the columns.
    pub warps_n: i64,
    /// Number of k tiles in shared memory: one is in use while the others are copied.
    pub stages: i64,
    /// Number of warp grids that each process a part of every k tile; their accumulators are added at the end.
    pub slices: i64,
}

pub(super) const fn shape(m: i64, n: i64, k_bytes: i64, warps: (i64, i64), stages: i64) -> Shape {
    Shape { m, n, k_bytes, warps_m: warps.0, warps_n: warps.1, stages, slices: 1 }
}

const fn sliced(m: i64, n: i64, k_bytes: i64, warps: (i64, i64), stages: i64, slices: i64) -> Shape {
    Shape { slices, ..shape(m, n, k_bytes, warps, stages) }
}

/// Shapes of tiles, the largest first, but those of `FEW` rows last. All fit into 48 KiB of shared memory.
pub static SHAPES: &[Shape] = &[
    shape(128, 128, 64, (2, 4), 3),
    shape(128, 64, 64, (2, 2), 4),
    shape(64, 64, 64, (2, 2), 4),
    shape(64, 32, 64, (2, 2), 4),
    shape(32, 64, 64, (1, 4), 4),
    shape(32, 32, 64, (2, 2), 4),
    shape(16, 128, 64, (1, 8), 4),
    shape(16, 64, 128, (1, 4), 4),
];

/// Tiles of float products for launches that would have fewer than `BLOCKS_MIN` blocks of larger tiles. K is not
/// divided among warps: an element is accumulated in the same order in every tile, so its bits do not depend on how
/// many rows a launch has.
pub static SMALL: &[Shape] = &[shape(64, 64, 128, (2, 4), 3), shape(32, 32, 256, (2, 2), 3)];

/// Tiles of byte products for launches that would have fewer than `BLOCKS_MIN` blocks of larger tiles. Integer
/// accumulation is exact in any order, so K is divided among slices.
pub static SLICED: &[Shape] = &[sliced(64, 64, 128, (2, 2), 3, 2), sliced(32, 32, 256, (1, 1), 3, 4)];

/// Number of blocks that is enough to give one to most multiprocessors of a large device.
pub const BLOCKS_MIN: i64 = 96;

/// Maximum number of contractions that share tiles, so that each warp computes at least eight columns of each.
const SUMS_MAX: usize = 2;

/// Maximum number of accumulators of a thread in a product with groups, where the accumulators of the current group
/// take as many registers again.
const SUMS_IN_GROUPS_MAX: i64 = 32;

const BYTES: [DType; 2] = [DType::U8, DType::I8];

/// Number of rows of the tiles for few rows, and the largest number of rows for which these tiles are used.
pub const FEW: i64 = 16;

impl Shape {
    /// Returns the number of threads that multiply, over all slices.
    pub fn threads(&self) -> i64 {
        self.warps() * 32 * self.slices
    }

    /// Number of warps of one slice.
    pub fn warps(&self) -> i64 {
        self.warps_m * self.warps_n
    }

    /// Number of accumulators of a thread.
    fn sums(&self) -> i64 {
        self.m * self.n / (self.warps() * 32)
    }

    /// Returns the number of rows of one warp.
    pub fn warp_m(&self) -> i64 {
        self.m / self.warps_m
    }

    /// Returns the number of columns of one warp, over all contractions that share the tile.
    pub fn warp_n(&self) -> i64 {
        self.n / self.warps_n
    }

    /// Returns whether a tile wastes less than half of its rows and less than half of its columns; 32 rows or columns
    /// always pass. Products of at most `FEW` rows take all tiles of `FEW` rows and no others.
    fn fits(&self, m: i64, n: i64) -> bool {
        match m <= FEW {
            true => self.m == FEW,
            false => self.m > FEW && (self.m < 2 * m || self.m == 32) && (self.n < 2 * n || self.n == 32),
        }
    }

    /// Returns whether there are registers for the accumulators of a group, if the product has groups.
    fn takes_groups(&self, in_groups: bool) -> bool {
        !in_groups || self.sums() <= SUMS_IN_GROUPS_MAX
    }

    /// Rows, columns, and bytes along K: `128x64x64`.
    pub fn name(&self) -> String {
        format!("{}x{}x{}", self.m, self.n, self.k_bytes)
    }

    pub(super) fn blocks(&self, m: i64, n: i64) -> i64 {
        (m + self.m - 1).div_euclid(self.m) * (n + self.n - 1).div_euclid(self.n)
    }
}

/// Bytes of the positions of [`TILE_ROWS`] rows by 64 columns of a 2:4 matrix.
pub const POSITION_BYTES: i64 = 128;

/// The positions of the stored elements of a 2:4 matrix, in lines of [`TILE_ROWS`] rows.
#[derive(Clone, Debug)]
pub struct Positions {
    /// Index of the buffer that contains the positions, in words.
    pub buffer: usize,
    /// Number of tiles of 64 columns in the matrix.
    pub tiles: i64,
    /// Number of tiles of 64 columns in a k tile.
    pub of_k_tile: i64,
}

impl Positions {
    /// Bytes of the positions of a k tile of `rows` rows.
    pub fn tile_bytes(&self, rows: i64) -> i64 {
        rows / TILE_ROWS * self.of_k_tile * POSITION_BYTES
    }

    /// Bytes of all positions of `rows` rows.
    pub fn bytes(&self, rows: i64) -> i64 {
        rows / TILE_ROWS * self.tiles * POSITION_BYTES
    }
}

/// Plan of a contraction on tensor cores.
#[derive(Clone, Debug)]
pub struct Gemm {
    /// Statements of the reductions, in the order of `b`.
    pub sums: Vec<usize>,
    /// Types of the operands of the products.
    pub factors: Factors,
    /// Outer variables other than `m` and `n`, outermost first.
    pub batch: Vec<usize>,
    /// Variable of the rows.
    pub m: usize,
    /// Variable of the columns.
    pub n: usize,
    /// Innermost reduction variable.
    pub k: usize,
    /// Operand A, which all contractions share.
    pub a: Operand,
    /// Operand B of each contraction.
    pub b: Vec<Operand>,
    /// Groups of k, if the contraction has any.
    pub groups: Option<Groups>,
    /// Positions of the elements of A that are stored, if A is a 2:4 matrix.
    pub positions: Option<Positions>,
    /// Tile that a block computes.
    pub shape: &'static Shape,
    /// Plan for launches with at most `FEW` rows, if the number of rows is only known at the launch.
    pub few: Option<Box<Gemm>>,
    /// Plan for other launches that would have fewer than `BLOCKS_MIN` blocks of `shape`.
    pub small: Option<Box<Gemm>>,
}

impl Gemm {
    /// Returns the plan; `None` if there is no variable of rows, or tensor cores do not support the form or the
    /// element types.
    pub fn from_def(def: &KernelDef) -> Option<Gemm> {
        let (roles, groups) = Gemm::roles(def)?;
        let shape = select(def, &roles, groups.is_some())?;
        Some(Gemm::for_launches(def, (roles, groups), shape))
    }

    /// Returns the plan with a given shape; if the number of rows is open, with its plans for few rows and few blocks.
    fn for_launches(def: &KernelDef, (roles, groups): (Roles, Option<Groups>), shape: &'static Shape) -> Gemm {
        let other = |shape| Gemm::with(def, (roles.clone(), groups.clone()), shape);
        let gemm = other(shape);
        let is_open = roles.m.is_some_and(|m| def.extent(m).as_const().is_none());
        let of_threads = |s: &&Shape| s.threads() == shape.threads();
        let few =
            SHAPES.iter().find(|s| s.m == FEW && of_threads(s)).filter(|_| is_open).map(|few| Box::new(other(few)));
        let is_small = |s: &&Shape| of_threads(s) && s.m * s.n <= shape.m * shape.n && gemm.takes_small(s);
        let small = gemm.small_shapes().iter().find(is_small);
        let small = small.filter(|_| is_open).map(|small| Box::new(other(small)));
        Gemm { few, small, ..gemm }
    }

    /// Shapes for launches that would have few blocks of larger tiles.
    fn small_shapes(&self) -> &'static [Shape] {
        if matches!(self.factors, Factors::Bytes(_)) { SLICED } else { SMALL }
    }

    /// Returns the plans of the kernel with other shapes that fit (`Shape::fits`); none for a 2:4 matrix. If the number
    /// of rows is a constant, the shapes for few blocks are among them, because launches cannot choose those then.
    pub fn with_other_shapes(&self, def: &KernelDef) -> Vec<Gemm> {
        if self.positions.is_some() {
            return vec![];
        }
        let Some((roles, groups)) = Gemm::roles(def) else { return vec![] };
        let rows = def.extent(self.m).as_const();
        let columns = def.extent(self.n).as_const().unwrap_or(LARGE.other).saturating_mul(self.sums.len() as i64);
        let small = if rows.is_some() { self.small_shapes() } else { &[] };
        let all = SHAPES.iter().chain(small.iter().filter(|s| self.takes_small(s)));
        let fitting = all.filter(|s| s.fits(rows.unwrap_or(LARGE.other), columns) && s.takes_groups(groups.is_some()));
        let others = fitting.filter(|s| *s != self.shape);
        others.map(|shape| Gemm::for_launches(def, (roles.clone(), groups.clone()), shape)).collect()
    }

    /// Returns whether small tiles of this shape support the product: K is unknown or at least two k tiles long, there
    /// are no groups and no codes, and each contraction has a multiple of 16 columns of the tile.
    fn takes_small(&self, shape: &Shape) -> bool {
        let is_long = self.k_extent().as_const().is_none_or(|k| k * self.a.element_bytes >= 2 * shape.k_bytes);
        is_long && self.groups.is_none() && self.factors != Factors::Codes && shape.n / self.sums.len() as i64 % 16 == 0
    }

    /// Returns the plan with a given shape for all launches; `None` if tensor cores do not support the kernel.
    pub fn with_shape(def: &KernelDef, shape: &'static Shape) -> Option<Gemm> {
        Some(Gemm::with(def, Gemm::roles(def)?, shape))
    }

    pub(super) fn roles(def: &KernelDef) -> Option<(Roles, Option<Groups>)> {
        let taken = |r: &Roles| r.m.is_some() && !r.diagonal && r.sums.len() <= SUMS_MAX;
        match def.class {
            Class::Contract => {}
            Class::Groups => {
                let (roles, groups) = Groups::find(def)?;
                return taken(&roles).then_some((roles, Some(groups)));
            }
            Class::Map | Class::Normalise | Class::Attention => return None,
        }
        let mut all = candidates(def, &[DType::F32, DType::F16, DType::BF16]);
        all.extend(word_candidates(def, Words::Pairs));
        all.extend(widened(def, DType::F32, [&[DType::BF16]; 2], CHUNK_DEPTH));
        all.extend(widened(def, DType::I32, [&BYTES; 2], Words::Quads.depth()));
        let rows = all.into_iter().filter(|(_, r)| r.root.is_none() && r.around.is_empty() && taken(r));
        rows.max_by_key(|(score, _)| *score).map(|(_, r)| (r, None))
    }

    pub(super) fn with(def: &KernelDef, (roles, groups): (Roles, Option<Groups>), shape: &'static Shape) -> Gemm {
        let Roles { a, sums, batch, m, n, k, root: _, around: _, diagonal: _ } = roles;
        let m = m.expect("only roles with rows are taken");
        let types = [&a, &sums[0].b].map(|access| def.reads[access.buffer].dtype);
        let factors = Factors::new(types[0], types[1]).expect("only such factors are taken");
        let columns = shape.n / sums.len() as i64;
        let k_extent = groups.as_ref().map_or(def.extent(k), |g| Size::Const(g.count * g.size));
        let along_k = (k, k_extent, shape.k_bytes / types[0].bytes() as i64);
        let a = Operand::new(def, a, (m, shape.m), along_k);
        let code_bits = factors.code_bits(types[1]);
        let b = |access: Access| Operand { code_bits, ..Operand::new(def, access, (n, columns), along_k) };
        let (sums, b) = sums.into_iter().map(|s| (s.reduce, b(s.b))).unzip();
        Gemm { sums, factors, batch, m, n, k, a, b, groups, positions: None, shape, few: None, small: None }
    }

    /// Number of columns of a tile in each contraction.
    pub fn columns(&self) -> i64 {
        self.shape.n / self.sums.len() as i64
    }

    /// Number of columns of a tile in each contraction that one warp computes.
    pub fn warp_columns(&self) -> i64 {
        self.shape.warp_n() / self.sums.len() as i64
    }

    /// Returns the number of tiles along the rows.
    pub fn tiles_m(&self, def: &KernelDef) -> Dim {
        def.extent(self.m).dim().ceildiv(&Dim::constant(self.shape.m))
    }

    /// Returns the number of tiles along the columns.
    pub fn tiles_n(&self, def: &KernelDef) -> Dim {
        def.extent(self.n).dim().ceildiv(&Dim::constant(self.columns()))
    }

    fn own_grid(&self, def: &KernelDef) -> Dim {
        let batch = self.batch.iter().fold(Dim::constant(1), |p, v| p * def.extent(*v).dim());
        batch * self.tiles_m(def) * self.tiles_n(def)
    }

    /// Returns the number of blocks of a launch, for the plan that the launch uses.
    pub fn grid(&self, def: &KernelDef) -> Dim {
        let own = self.own_grid(def);
        let many = match &self.small {
            Some(small) => choice(self.has_blocks(def), own, small.grid(def)),
            None => own,
        };
        match &self.few {
            Some(few) => choice(self.has_rows(def), many, few.grid(def)),
            None => many,
        }
    }

    /// Returns 1 if a launch has more than `FEW` rows, else 0.
    pub fn has_rows(&self, def: &KernelDef) -> Dim {
        reaches(&def.extent(self.m).dim(), FEW + 1)
    }

    /// Returns 1 if a launch has at least `BLOCKS_MIN` blocks of these tiles, else 0.
    pub fn has_blocks(&self, def: &KernelDef) -> Dim {
        reaches(&self.own_grid(def), BLOCKS_MIN)
    }

    /// Bytes of one k tile of A and of each B, and of the positions of the elements of A.
    pub fn stage_bytes(&self) -> i64 {
        let positions = self.positions.as_ref().map_or(0, |p| p.tile_bytes(self.shape.m));
        self.a.tile_bytes() + self.b.iter().map(Operand::tile_bytes).sum::<i64>() + positions
    }

    /// Bytes of shared memory that a block needs at most: with this plan, or with those for few rows or few blocks.
    pub fn shared_bytes(&self) -> i64 {
        let own = self.shape.stages * self.stage_bytes();
        [&self.few, &self.small].into_iter().flatten().fold(own, |most, other| most.max(other.shared_bytes()))
    }

    /// Returns the number of elements of A along K, over all groups; of a 2:4 matrix, only the stored elements.
    pub fn k_extent(&self) -> Size {
        self.a.k_extent
    }

    /// Returns the number of elements of A along K in a k tile.
    pub fn k_tile(&self) -> i64 {
        self.a.k_tile
    }

    /// Number of instruction steps along k in a k tile, per slice.
    pub fn steps(&self) -> i64 {
        self.shape.k_bytes / STEP_BYTES / self.shape.slices
    }

    /// Number of pairs of adjacent columns that a thread accumulates in one contraction; successive pairs are eight
    /// columns apart.
    pub fn pairs_of_columns(&self) -> usize {
        (self.warp_columns() / 8) as usize
    }

    /// Whether a variable's extent is known to be a multiple of `of`.
    pub fn is_whole(def: &KernelDef, var: usize, of: i64) -> bool {
        def.extent(var).as_const().is_some_and(|e| e % of == 0)
    }
}

/// Returns 1 if a launch-time value, which must not be negative, is at least `least`, else 0.
pub fn reaches(n: &Dim, least: i64) -> Dim {
    n.floordiv(&Dim::constant(least)).minimum(&Dim::constant(1))
}

/// Selects one of two values by a number that is 1 or 0.
pub fn choice(is_first: Dim, first: Dim, second: Dim) -> Dim {
    is_first.clone() * first + (Dim::constant(1) - is_first) * second
}

/// Returns the first shape that fits and gives at least `BLOCKS_MIN` blocks, or else the last that fits. Unknown
/// numbers of rows and columns count as in a large call (`LARGE`), and unknown batch extents as 1 (`USUAL`).
fn select(def: &KernelDef, roles: &Roles, in_groups: bool) -> Option<&'static Shape> {
    let size = |v: usize, typical: i64| def.extent(v).as_const().unwrap_or(typical);
    let (m, n) = (size(roles.m?, LARGE.other), size(roles.n, LARGE.other).saturating_mul(roles.sums.len() as i64));
    let batch: i64 = roles.batch.iter().map(|v| size(*v, USUAL.first)).fold(1, i64::saturating_mul);
    let mut fitting = SHAPES.iter().filter(|s| s.takes_groups(in_groups) && s.fits(m, n));
    let enough = |s: &&Shape| s.blocks(m, n).saturating_mul(batch) >= BLOCKS_MIN;
    fitting.clone().find(enough).or_else(|| fitting.next_back())
}

impl Operand {
    pub(super) fn new(
        def: &KernelDef,
        access: Access,
        (var, rows): (usize, i64),
        (k, k_extent, k_elements): (usize, Size, i64),
    ) -> Operand {
        let storage = &def.reads[access.buffer];
        let (depth, places) = storage.panels.map_or((1, 1), |p| (p.depth, p.places()));
        let element_bytes = storage.dtype.bytes() as i64 * places;
        let inner = match storage.panels {
            Some(_) => Inner::Rows,
            // Fragments of byte elements are read along k only.
            None if element_bytes > 1 && !access.stride(k).is(1) && access.stride(var).is(1) => Inner::Rows,
            None => Inner::K,
        };
        let (panels, k_tile) = (storage.panels, k_elements / depth);
        let length = if inner == Inner::K { k_tile } else { rows };
        let swizzle = Lines::swizzle_of_fragments(length * element_bytes, element_bytes, inner);
        Operand {
            access,
            var,
            k,
            k_extent,
            rows,
            k_tile,
            element_bytes,
            depth,
            code_bits: None,
            inner,
            panels,
            swizzle,
            part_bytes: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_fit_static_shared_memory_and_their_warps() {
        for s in SHAPES.iter().chain(SMALL).chain(SLICED) {
            assert!(s.stages * (s.m + s.n) * s.k_bytes <= 48 * 1024, "{s:?}");
            assert!(s.warp_m() % 16 == 0 && s.warp_n() % 16 == 0 && s.threads() <= 256, "{s:?}");
        }
        let falls = |p: &[Shape]| p[0].m * p[0].n >= p[1].m * p[1].n || p[1].m == FEW;
        assert!(SHAPES.windows(2).all(falls), "the largest first, those for few rows last");
        for s in SHAPES.iter().filter(|s| s.m > FEW) {
            assert!(
                SHAPES.iter().any(|few| few.m == FEW && few.threads() == s.threads()),
                "few rows have a tile: {s:?}"
            );
        }
    }

    #[test]
    fn small_problems_take_small_tiles() {
        let fits = |m, n| SHAPES.iter().filter(|s| s.fits(m, n)).map(|s| (s.m, s.n)).collect::<Vec<_>>();
        assert_eq!(fits(9, 1000), [(16, 128), (16, 64)]);
        assert_eq!(fits(20, 20), [(32, 32)]);
        assert_eq!(fits(33, 1000), [(64, 64), (64, 32), (32, 64), (32, 32)]);
        assert_eq!(fits(1000, 1000).first(), Some(&(128, 128)));
    }
}
