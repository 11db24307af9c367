//! attention in its usual form  =>  how blocks compute it: rows of queries, pieces of keys, what lies in shared memory

use super::super::gemm::mma::Factors;
use super::super::gemm::operand::{Inner, Lines, Operand};
use super::super::gemm::{BLOCKS_MIN, choice, reaches};
use super::roles::Roles;
use crate::def::*;
use sardonyx_base::Dim;

/// Bytes of shared memory of a block: two blocks of the smallest device fit one multiprocessor up to half of that.
const SHARED_MAX: i64 = 160 * 1024;

/// Columns of a result that a warp keeps sums of.
const COLUMNS_MAX: i64 = 128;

/// Warps of a block.
const WARPS: i64 = 4;

/// Rows of one matrix instruction.
pub const ROWS: i64 = 16;

/// A block takes the queries of some rows and goes over all keys. Each warp has 16 rows; where there are no more, the
/// warps share the keys of a piece, and then the columns.
#[derive(Clone, Debug)]
pub struct Flash {
    pub roles: Roles,
    /// Warps along rows, and those that share a row.
    pub warps_m: i64,
    pub warps_n: i64,
    /// Pieces of keys in shared memory: one is computed with while the others are copied.
    pub stages: i64,
    /// Keys of a piece.
    pub keys: i64,
    /// Columns of the result of a block.
    pub columns: i64,
    pub q: Tile,
    pub k: Tile,
    pub v: Tile,
    /// The plan of launches with few rows or few blocks, where these numbers are known at the launch only. Results are the same.
    pub few: Option<Box<Flash>>,
}

/// One of the factors: lines of rows or keys, in which neighbours follow `along`.
#[derive(Clone, Debug)]
pub struct Tile {
    pub statement: usize,
    /// The variable of the lines; absent where there is one.
    pub across: Option<usize>,
    pub along: usize,
    pub n_lines: i64,
    /// Elements that a line has room for.
    pub length: i64,
    pub lines: Lines,
    /// Where the statement is a plain load, which is copied as it is.
    pub operand: Option<Operand>,
}

impl Flash {
    pub fn of(def: &KernelDef) -> Option<Flash> {
        let roles = Roles::of(def)?;
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

    /// Without the blocks of few rows or few blocks, where there are more rows than few.
    pub fn of_many(def: &KernelDef) -> Option<Flash> {
        let roles = Roles::of(def)?;
        let is_few = roles.i.is_none_or(|i| def.extent(i).as_const().is_some_and(|n| n <= ROWS));
        if is_few { None } else { Flash::with(def, &roles, false) }
    }

    /// 1 where a launch takes these blocks, 0 where it takes those of few rows: there are no more rows, or too few blocks to keep a
    /// large device busy, of which that makes four times as many.
    pub fn is_chosen(&self, def: &KernelDef) -> Dim {
        let rows = self.roles.i.map_or(Dim::constant(1), |i| def.extent(i).dim());
        reaches(&rows, ROWS + 1) * reaches(&self.own_grid(def), BLOCKS_MIN)
    }

    fn with(def: &KernelDef, roles: &Roles, is_few: bool) -> Option<Flash> {
        let (d, e) = (def.extent(roles.d).as_const()?, def.extent(roles.e).as_const()?);
        if d < 1 || e < 1 {
            return None;
        }
        let score_bytes = roles.score_type(def).bits() as i64 / 8;
        let value_bytes = roles.value_type(def).bits() as i64 / 8;
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
        // Values of 4 bytes are read one by one: keys 2t and 2t + 1 by thread t of four.
        let of_values = if value_bytes == 4 { (1, 3, 1) } else { by_line };
        let q = tile(roles.left, roles.i, roles.d, warps_m * ROWS, d, score_bytes, by_line);
        let k = tile(roles.right, Some(roles.j), roles.d, keys, d, score_bytes, by_line);
        let v = tile(roles.value, Some(roles.j), roles.e, keys, columns, value_bytes, of_values);
        let flash = |stages| {
            let (q, k, v, roles) = (q.clone(), k.clone(), v.clone(), roles.clone());
            Flash { roles, warps_m, warps_n: WARPS / warps_m, stages, keys, columns, q, k, v, few: None }
        };
        // With few rows there is little to compute while a piece comes.
        let stages = if is_few { [3, 2] } else { [2, 2] };
        stages.map(flash).into_iter().find(|f| f.own_bytes() <= SHARED_MAX)
    }

    pub fn threads(&self) -> i64 {
        WARPS * 32
    }

    /// Rows of a block.
    pub fn rows(&self) -> i64 {
        self.warps_m * ROWS
    }

    /// Keys of a piece whose scores one warp computes.
    pub fn warp_keys(&self) -> i64 {
        self.keys / self.warps_n
    }

    /// Columns of a warp, by eight. Together the warps have no more than a line has room for.
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

    pub fn stage_bytes(&self) -> i64 {
        self.k.bytes() + self.v.bytes()
    }

    fn own_bytes(&self) -> i64 {
        let exchanged = if self.warps_n > 1 { self.warps_n * ROWS * 4 + self.keys * ROWS * 4 } else { 0 };
        self.exchange_at() + exchanged
    }

    /// Where warps that share rows leave each other their largest scores, then their exponentials.
    pub fn exchange_at(&self) -> i64 {
        self.q.bytes() + self.stages * self.stage_bytes()
    }

    /// Whatever is launched.
    pub fn shared_bytes(&self) -> i64 {
        self.own_bytes().max(self.few.as_ref().map_or(0, |few| few.own_bytes()))
    }

    pub fn tiles_i(&self, def: &KernelDef) -> Dim {
        self.roles.i.map_or(Dim::constant(1), |i| def.extent(i).dim().ceildiv(&Dim::constant(self.rows())))
    }

    pub fn tiles_e(&self, def: &KernelDef) -> i64 {
        (def.extent(self.roles.e).as_const().unwrap_or(1) + self.columns - 1) / self.columns
    }

    fn own_grid(&self, def: &KernelDef) -> Dim {
        let batch = self.roles.batch.iter().fold(Dim::constant(1), |p, v| p * def.extent(*v).dim());
        batch * self.tiles_i(def) * Dim::constant(self.tiles_e(def))
    }

    pub fn grid(&self, def: &KernelDef) -> Dim {
        let own = self.own_grid(def);
        let Some(few) = &self.few else { return own };
        choice(self.is_chosen(def), own, few.grid(def))
    }

    /// Steps of d of one matrix instruction, and of keys: 32 bytes each.
    pub fn score_steps(&self, def: &KernelDef) -> i64 {
        let bytes = def.extent(self.roles.d).as_const().unwrap_or(0) * self.k.lines.element_bytes;
        (bytes + 31) / 32
    }

    /// What is multiplied for the scores, and for the sums of values.
    pub fn factors(&self, def: &KernelDef) -> [Factors; 2] {
        let types = [self.roles.score_type(def), self.roles.value_type(def)];
        types.map(|t| Factors::new(t, t).expect("roles are those of floats"))
    }
}

impl Tile {
    pub fn bytes(&self) -> i64 {
        self.n_lines * self.lines.pitch
    }
}

/// The operand of a load that can be copied asynchronously: its place is linear, but for what moves with the batch.
fn copied(
    def: &KernelDef,
    roles: &Roles,
    k: usize,
    (across, n_lines): (usize, i64),
    (along, length): (usize, i64),
    lines: Lines,
) -> Option<Operand> {
    let Op::Load { access, guard: None } = &def.body[k].op else { return None };
    let of_batch = |c: &Computed| {
        let in_batch = |s: &str| own(s, '%').is_none_or(|v| roles.batch.contains(&v));
        c.limit.is_none() && c.expr.symbols().iter().all(|s| in_batch(s))
    };
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
