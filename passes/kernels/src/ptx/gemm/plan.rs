//! contraction  =>  how a GPU computes it: which load is A and which B, how they lie, and one row of a table of tiles

use super::operand::{Inner, Lines, Operand};
use crate::contract::{Roles, candidates, in_words};
use crate::def::*;
use crate::usual::{LARGE, USUAL};
use crate::words::Words;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::kernel::Class;

/// What one block computes: `m` rows by `n` columns, `k_bytes` of each row at a time, by a grid of warps. Two sums take
/// half of the columns each.
#[derive(Debug, PartialEq, Eq)]
pub struct Shape {
    pub m: i64,
    pub n: i64,
    pub k_bytes: i64,
    pub warps_m: i64,
    pub warps_n: i64,
    /// Pieces of k in shared memory: one is computed with while the others are copied.
    pub stages: i64,
}

const fn shape(m: i64, n: i64, k_bytes: i64, warps: (i64, i64), stages: i64) -> Shape {
    Shape { m, n, k_bytes, warps_m: warps.0, warps_n: warps.1, stages }
}

/// The largest first. All fit 48 KiB of shared memory.
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

/// Blocks that give most multiprocessors of a large device one.
const BLOCKS_MIN: i64 = 96;

/// Sums that share tiles: each has eight columns of a warp at least.
const SUMS_MAX: usize = 2;

/// Rows of the smallest tiles.
pub const FEW: i64 = 16;

impl Shape {
    pub fn threads(&self) -> i64 {
        self.warps_m * self.warps_n * 32
    }

    pub fn warp_m(&self) -> i64 {
        self.m / self.warps_m
    }

    pub fn warp_n(&self) -> i64 {
        self.n / self.warps_n
    }

    pub fn stage_bytes(&self) -> i64 {
        (self.m + self.n) * self.k_bytes
    }

    pub fn shared_bytes(&self) -> i64 {
        self.stages * self.stage_bytes()
    }

    /// Less than half of a tile is wasted, or no tile is smaller. Few rows have a tile of their own.
    fn fits(&self, m: i64, n: i64) -> bool {
        match m <= FEW {
            true => self.m == FEW,
            false => self.m > FEW && (self.m < 2 * m || self.m == 32) && (self.n < 2 * n || self.n == 32),
        }
    }

    fn blocks(&self, m: i64, n: i64) -> i64 {
        (m + self.m - 1).div_euclid(self.m) * (n + self.n - 1).div_euclid(self.n)
    }
}

/// A contraction that this family takes.
#[derive(Clone, Debug)]
pub struct Gemm {
    /// The reductions, in the order of `b`.
    pub sums: Vec<usize>,
    /// Of the factors.
    pub dtype: DType,
    pub batch: Vec<usize>,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Operand,
    pub b: Vec<Operand>,
    pub shape: &'static Shape,
    /// What launches with few rows take instead, where the number of rows is known at the launch only.
    pub few: Option<Box<Gemm>>,
}

impl Gemm {
    /// The parts, or `None` where there are no rows to share columns, or elements that no tensor core takes.
    pub fn of(def: &KernelDef) -> Option<Gemm> {
        let roles = Gemm::roles(def)?;
        let shape = select(def, &roles)?;
        let few = SHAPES.iter().find(|s| s.m == FEW && s.threads() == shape.threads());
        let few = few.filter(|_| roles.m.is_some_and(|m| def.extent(m).as_const().is_none()));
        let few = few.map(|few| Box::new(Gemm::with(def, roles.clone(), few)));
        Some(Gemm { few, ..Gemm::with(def, roles, shape) })
    }

    /// The same with a row of the table of one's own choice.
    pub fn of_shape(def: &KernelDef, shape: &'static Shape) -> Option<Gemm> {
        Some(Gemm::with(def, Gemm::roles(def)?, shape))
    }

    fn roles(def: &KernelDef) -> Option<Roles> {
        if def.class != Class::Contract {
            return None;
        }
        let mut all = candidates(def, &[DType::F32, DType::F16, DType::BF16]);
        all.extend(in_words(def, Words::Pairs));
        let taken = |r: &Roles| {
            r.m.is_some() && r.root.is_none() && r.around.is_empty() && !r.diagonal && r.sums.len() <= SUMS_MAX
        };
        let rows = all.into_iter().filter(|(_, r)| taken(r));
        rows.max_by_key(|(score, _)| *score).map(|(_, r)| r)
    }

    fn with(def: &KernelDef, roles: Roles, shape: &'static Shape) -> Gemm {
        let Roles { a, sums, batch, m, n, k, root: _, around: _, diagonal: _ } = roles;
        let m = m.expect("only roles with rows are taken");
        let dtype = def.reads[a.buffer].dtype;
        let columns = shape.n / sums.len() as i64;
        let a = Operand::new(def, a, m, k, shape.m, shape);
        let (sums, b) = sums.into_iter().map(|s| (s.reduce, Operand::new(def, s.b, n, k, columns, shape))).unzip();
        Gemm { sums, dtype, batch, m, n, k, a, b, shape, few: None }
    }

    /// Columns of a tile, in each of the sums.
    pub fn columns(&self) -> i64 {
        self.shape.n / self.sums.len() as i64
    }

    /// Those of them that a warp computes.
    pub fn warp_columns(&self) -> i64 {
        self.shape.warp_n() / self.sums.len() as i64
    }

    pub fn tiles_m(&self, def: &KernelDef) -> Dim {
        def.extent(self.m).dim().ceildiv(&Dim::constant(self.shape.m))
    }

    pub fn tiles_n(&self, def: &KernelDef) -> Dim {
        def.extent(self.n).dim().ceildiv(&Dim::constant(self.columns()))
    }

    pub fn grid(&self, def: &KernelDef) -> Dim {
        let batch = self.batch.iter().fold(Dim::constant(1), |p, v| p * def.extent(*v).dim());
        let own = batch * self.tiles_m(def) * self.tiles_n(def);
        let Some(few) = &self.few else { return own };
        let (few, many) = (few.grid(def), def.extent(self.m).dim().floordiv(&Dim::constant(FEW + 1)));
        let many = many.minimum(&Dim::constant(1));
        many.clone() * own + (Dim::constant(1) - many) * few
    }

    /// Bytes of shared memory, whatever is launched.
    pub fn shared_bytes(&self) -> i64 {
        self.shape.shared_bytes().max(self.few.as_ref().map_or(0, |few| few.shared_bytes()))
    }

    /// Elements of k in one stage.
    pub fn k_tile(&self) -> i64 {
        self.shape.k_bytes / self.a.element_bytes
    }

    /// Whether a variable's extent is known to be a multiple.
    pub fn is_whole(def: &KernelDef, var: usize, of: i64) -> bool {
        def.extent(var).as_const().is_some_and(|e| e % of == 0)
    }
}

/// The largest tile that wastes little and gives enough blocks; the smallest one where none does. What is known at launch
/// only counts as in a large call: of few rows a kernel has a part of its own (`FEW`).
fn select(def: &KernelDef, roles: &Roles) -> Option<&'static Shape> {
    let size = |v: usize, typical: i64| def.extent(v).as_const().unwrap_or(typical);
    let (m, n) = (size(roles.m?, LARGE.other), size(roles.n, LARGE.other).saturating_mul(roles.sums.len() as i64));
    let batch: i64 = roles.batch.iter().map(|v| size(*v, USUAL.first)).fold(1, i64::saturating_mul);
    let mut fitting = SHAPES.iter().filter(|s| s.fits(m, n));
    let enough = |s: &&Shape| s.blocks(m, n).saturating_mul(batch) >= BLOCKS_MIN;
    fitting.clone().find(enough).or_else(|| fitting.next_back())
}

impl Operand {
    fn new(def: &KernelDef, access: Access, var: usize, k: usize, rows: i64, shape: &Shape) -> Operand {
        let storage = &def.reads[access.buffer];
        let depth = storage.panels.map_or(1, |p| p.depth);
        let element_bytes = storage.dtype.bytes() as i64 * depth;
        let inner = match storage.panels {
            Some(_) => Inner::Rows,
            None if !access.stride(k).is(1) && access.stride(var).is(1) => Inner::Rows,
            None => Inner::K,
        };
        let (panels, k_tile) = (storage.panels, shape.k_bytes / element_bytes);
        let length = if inner == Inner::K { k_tile } else { rows };
        let swizzle = Lines::swizzle_of_fragments(length * element_bytes, element_bytes, inner);
        Operand { access, var, k, rows, k_tile, element_bytes, depth, inner, panels, swizzle }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_fit_static_shared_memory_and_their_warps() {
        for s in SHAPES {
            assert!(s.shared_bytes() <= 48 * 1024, "{s:?}");
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
