//! attention in its standard form  =>  its plan for blocks of threads: rows of queries, tiles of keys, shared memory

use super::super::gemm::mma::Factors;
use super::super::gemm::operand::{Inner, Lines, Operand};
use super::super::gemm::{BLOCKS_MIN, choice, reaches};
use super::roles::Roles;
use crate::def::*;
use sardonyx_base::Dim;

/// Maximum bytes of shared memory of a block. If a block uses at most half of this, two blocks fit on a multiprocessor
/// of the smallest device.
const SHARED_MAX: i64 = 160 * 1024;

/// Maximum number of result columns that a warp accumulates.
const COLUMNS_MAX: i64 = 128;

/// Number of warps of a block.
const WARPS: i64 = 4;

/// Number of rows of one matrix instruction.
pub const ROWS: i64 = 16;

/// A block computes some rows (queries) and visits all keys. Each warp has 16 rows; if the block has no more, its warps
/// divide the keys of each tile among them for the scores, and the columns for the weighted sums.
#[derive(Clone, Debug)]
pub struct Flash {
    /// Statements and variables of the kernel as the parts of attention.
    pub roles: Roles,
    /// Number of warps along rows.
    pub warps_m: i64,
    /// Number of warps that share a row; 1 unless the plan is for few rows.
    pub warps_n: i64,
    /// Number of tiles of keys in shared memory: one is in use while the others are copied.
    pub stages: i64,
    /// Number of keys of a tile.
    pub keys: i64,
    /// Number of result columns of a block.
    pub columns: i64,
    /// Tile of the queries: one line for each row of the block.
    pub q: Tile,
    /// Tile of the keys: `keys` lines along the variable `d`.
    pub k: Tile,
    /// Tile of the values: `keys` lines along the result columns.
    pub v: Tile,
    /// Plan for launches with few rows or few blocks, if their numbers are only known at the launch. Both plans give
    /// the same results.
    pub few: Option<Box<Flash>>,
}

/// Tile of an operand: each line belongs to a row or a key, and its elements are consecutive along `along`.
#[derive(Clone, Debug)]
pub struct Tile {
    pub statement: usize,
    /// Variable that enumerates the lines; `None` if there is a single query.
    pub across: Option<usize>,
    pub along: usize,
    pub n_lines: i64,
    /// Number of elements that a line has space for.
    pub length: i64,
    pub lines: Lines,
    /// Operand to copy asynchronously; `None` if the elements are evaluated one by one.
    pub operand: Option<Operand>,
}

impl Flash {
    /// Plans the kernel; `None` if it is not standard attention, or its head sizes are unknown or too large.
    pub fn from_def(def: &KernelDef) -> Option<Flash> {
        let roles = Roles::find(def)?;
        let is_few = roles.i.map_or(Some(1), |i| def.extent(i).as_const()).is_some_and(|n| n <= ROWS);
        let flash = Flash::with(def, &roles, is_few)?;
        if is_few {
            return Some(flash);
        }
        let few = Flash::with(def, &roles, true)?;
        Some(match flash.is_chosen(def).as_const() {
            Some(0) => few,
            Some(_) => flash,
            None => Flash { few: Some(Box::new(few)), ..flash },
        })
    }

    /// The plan for many rows only; `None` if the number of rows is known to be few.
    pub fn of_many(def: &KernelDef) -> Option<Flash> {
        let roles = Roles::find(def)?;
        let is_few = roles.i.is_none_or(|i| def.extent(i).as_const().is_some_and(|n| n <= ROWS));
        if is_few { None } else { Flash::with(def, &roles, false) }
    }

    /// 1 if a launch uses this plan, 0 if it uses the plan for few rows. A launch uses the plan for few rows if it has
    /// no more rows than a block of that plan, or if this plan has too few blocks to occupy a large device: the plan
    /// for few rows has four times as many.
    pub fn is_chosen(&self, def: &KernelDef) -> Dim {
        let rows = self.roles.i.map_or(Dim::constant(1), |i| def.extent(i).dim());
        reaches(&rows, ROWS + 1) * reaches(&self.own_grid(def), BLOCKS_MIN)
    }

    fn with(def: &KernelDef, roles: &Roles, is_few: bool) -> Option<Flash> {
        let (d, e) = (def.extent(roles.d).as_const()?, def.extent(roles.e).as_const()?);
        if d < 1 || e < 1 {
            return None;
        }
        let [score_bytes, value_bytes] = roles.factor_types(def).map(|t| t.bits() as i64 / 8);
        let columns = e.min(COLUMNS_MAX);
        let wide = d.max(columns) > 64;
        let keys = if score_bytes + value_bytes > 4 || wide { 32 } else { 64 };
        let warps_m = if is_few { 1 } else { WARPS };
        let tile = |statement, across: Option<usize>, along, n_lines, length: i64, bytes: i64, swizzle| {
            let length = (length as u64).next_power_of_two().max(128 / bytes as u64) as i64;
            let lines = Lines { pitch: length * bytes, element_bytes: bytes, swizzle, block_bytes: None };
            let operand = across.and_then(|a| copied(def, roles, statement, (a, n_lines), (along, length), lines));
            Tile { statement, across, along, n_lines, length, lines, operand }
        };
        let by_line = (0, 7, 0);
        // Values of 4 bytes are read one by one: thread t of four reads keys 2t and 2t + 1.
        let of_values = if value_bytes == 4 { (1, 3, 1) } else { by_line };
        let q = tile(roles.left, roles.i, roles.d, warps_m * ROWS, d, score_bytes, by_line);
        let k = tile(roles.right, Some(roles.j), roles.d, keys, d, score_bytes, by_line);
        let v = tile(roles.value, Some(roles.j), roles.e, keys, columns, value_bytes, of_values);
        let flash = |stages| {
            let (q, k, v, roles) = (q.clone(), k.clone(), v.clone(), roles.clone());
            Flash { roles, warps_m, warps_n: WARPS / warps_m, stages, keys, columns, q, k, v, few: None }
        };
        // With few rows there is little to compute while a tile is copied, so two tiles are copied ahead if they fit.
        let stages = if is_few { [3, 2] } else { [2, 2] };
        stages.map(flash).into_iter().find(|f| f.own_bytes() <= SHARED_MAX)
    }

    /// Returns the number of threads of a block.
    pub fn threads(&self) -> i64 {
        WARPS * 32
    }

    /// Number of rows of a block.
    pub fn rows(&self) -> i64 {
        self.warps_m * ROWS
    }

    /// Number of keys of a tile whose scores one warp computes.
    pub fn warp_keys(&self) -> i64 {
        self.keys / self.warps_n
    }

    /// Number of groups of eight columns that a warp accumulates. The columns of all warps fit into a line of the tile
    /// of values.
    pub fn warp_columns(&self) -> i64 {
        let all = (self.columns + 7) / 8;
        if self.warps_n == 1 {
            return all;
        }
        let some = (all + self.warps_n - 1) / self.warps_n;
        let some = (some as u64).next_power_of_two() as i64;
        // Values of 2 bytes are read 16 columns at a time.
        if self.v.lines.element_bytes == 2 { some.max(2) } else { some }
    }

    /// Returns the bytes of shared memory of one tile of keys and one of values.
    pub fn stage_bytes(&self) -> i64 {
        self.k.bytes() + self.v.bytes()
    }

    fn own_bytes(&self) -> i64 {
        let exchanged = if self.warps_n > 1 { self.warps_n * ROWS * 4 + self.keys * ROWS * 4 } else { 0 };
        self.exchange_at() + exchanged
    }

    /// Offset in shared memory of the area in which warps that share rows exchange their largest scores, and behind
    /// these their exponentials.
    pub fn exchange_at(&self) -> i64 {
        self.q.bytes() + self.stages * self.stage_bytes()
    }

    /// Bytes of shared memory that suffice for either plan.
    pub fn shared_bytes(&self) -> i64 {
        self.own_bytes().max(self.few.as_ref().map_or(0, |few| few.own_bytes()))
    }

    /// Returns the number of tiles of query rows; 1 if there is no variable of queries.
    pub fn tiles_i(&self, def: &KernelDef) -> Dim {
        self.roles.i.map_or(Dim::constant(1), |i| def.extent(i).dim().ceildiv(&Dim::constant(self.rows())))
    }

    /// Returns the number of tiles of result columns.
    pub fn tiles_e(&self, def: &KernelDef) -> i64 {
        (def.extent(self.roles.e).as_const().unwrap_or(1) + self.columns - 1) / self.columns
    }

    fn own_grid(&self, def: &KernelDef) -> Dim {
        let batch = self.roles.batch.iter().fold(Dim::constant(1), |p, v| p * def.extent(*v).dim());
        batch * self.tiles_i(def) * Dim::constant(self.tiles_e(def))
    }

    /// Returns the number of blocks of a launch, for the plan that the launch uses.
    pub fn grid(&self, def: &KernelDef) -> Dim {
        let own = self.own_grid(def);
        let Some(few) = &self.few else { return own };
        choice(self.is_chosen(def), own, few.grid(def))
    }

    /// Number of steps of the matrix instruction along d, 32 bytes each.
    pub fn score_steps(&self, def: &KernelDef) -> i64 {
        let bytes = def.extent(self.roles.d).as_const().unwrap_or(0) * self.k.lines.element_bytes;
        (bytes + 31) / 32
    }

    /// Operand types of the products for the scores, and of those for the weighted sums of values.
    pub fn factors(&self, def: &KernelDef) -> [Factors; 2] {
        self.roles.factor_types(def).map(|t| Factors::new(t, t).expect("roles are those of floats"))
    }
}

impl Tile {
    pub fn bytes(&self) -> i64 {
        self.n_lines * self.lines.pitch
    }
}

/// Returns the operand that statement `k` loads if it can be copied asynchronously: the load has no guard and reads no
/// panels, and its index is linear except for parts that depend on batch variables only.
fn copied(
    def: &KernelDef,
    roles: &Roles,
    k: usize,
    (across, n_lines): (usize, i64),
    (along, length): (usize, i64),
    lines: Lines,
) -> Option<Operand> {
    let Op::Load { access, guard: None } = &def.body[k].op else { return None };
    let of_batch = |c: &Computed| c.limit.is_none() && c.expr.variables().iter().all(|v| roles.batch.contains(v));
    if def.reads[access.buffer].panels.is_some() || !access.computed.iter().all(of_batch) {
        return None;
    }
    Some(Operand {
        access: access.clone(),
        var: along,
        k: across,
        k_extent: def.extent(across),
        rows: length,
        k_tile: n_lines,
        element_bytes: lines.element_bytes,
        depth: 1,
        code_bits: None,
        inner: Inner::Rows,
        panels: None,
        swizzle: lines.swizzle,
        part_bytes: None,
    })
}
