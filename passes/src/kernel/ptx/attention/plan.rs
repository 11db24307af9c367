//! attention in its usual form  =>  how blocks compute it: rows of queries, pieces of keys, what lies in shared memory

use super::super::gemm::operand::{Inner, Lines, Operand};
use super::roles::Roles;
use crate::kernel::def::*;
use sardonyx_runtime::{DType, Dim};

/// Bytes of shared memory of a block: two blocks of the smallest device fit one multiprocessor up to half of that.
const SHARED_MAX: i64 = 160 * 1024;

/// Columns of a result that a warp keeps sums of.
const COLUMNS_MAX: i64 = 128;

/// Stages of the pipeline: one piece of keys is computed with while the next one is copied.
pub const STAGES: i64 = 2;

/// Rows of one matrix instruction.
pub const ROWS: i64 = 16;

/// A block takes the queries of some rows, one warp 16 of them, and goes over all keys.
#[derive(Clone, Debug)]
pub struct Flash {
    pub roles: Roles,
    pub warps: i64,
    /// Keys of a piece.
    pub keys: i64,
    /// Columns of the result of a block.
    pub columns: i64,
    pub q: Tile,
    pub k: Tile,
    pub v: Tile,
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
        let (d, e) = (def.extent(roles.d).as_const()?, def.extent(roles.e).as_const()?);
        if d < 1 || e < 1 {
            return None;
        }
        let score_bytes = roles.score_type(def).bits() as i64 / 8;
        let value_bytes = roles.value_type(def).bits() as i64 / 8;
        let columns = e.min(COLUMNS_MAX);
        let wide = d.max(columns) > 64;
        let keys = if score_bytes + value_bytes > 4 || wide { 32 } else { 64 };
        let warps = 4;
        let tile = |statement, across: Option<usize>, along, n_lines, length: i64, bytes: i64, swizzle| {
            let length = (length as u64).next_power_of_two().max(128 / bytes as u64) as i64;
            let lines = Lines { pitch: length * bytes, element_bytes: bytes, swizzle };
            let operand = across.and_then(|a| copied(def, &roles, statement, (a, n_lines), (along, length), lines));
            Tile { statement, across, along, n_lines, length, lines, operand }
        };
        let by_line = (0, 7, 0);
        // Values of 4 bytes are read one by one: keys 2t and 2t + 1 by thread t of four.
        let of_values = if value_bytes == 4 { (1, 3, 1) } else { by_line };
        let q = tile(roles.left, roles.i, roles.d, warps * ROWS, d, score_bytes, by_line);
        let k = tile(roles.right, Some(roles.j), roles.d, keys, d, score_bytes, by_line);
        let v = tile(roles.value, Some(roles.j), roles.e, keys, columns, value_bytes, of_values);
        let flash = Flash { warps, keys, columns, q, k, v, roles };
        (flash.shared_bytes() <= SHARED_MAX).then_some(flash)
    }

    pub fn threads(&self) -> i64 {
        self.warps * 32
    }

    /// Rows of a block.
    pub fn rows(&self) -> i64 {
        self.warps * ROWS
    }

    pub fn stage_bytes(&self) -> i64 {
        self.k.bytes() + self.v.bytes()
    }

    pub fn shared_bytes(&self) -> i64 {
        self.q.bytes() + STAGES * self.stage_bytes()
    }

    pub fn tiles_i(&self, def: &KernelDef) -> Dim {
        self.roles.i.map_or(Dim::constant(1), |i| def.extent(i).dim().ceildiv(&Dim::constant(self.rows())))
    }

    pub fn tiles_e(&self, def: &KernelDef) -> i64 {
        (def.extent(self.roles.e).as_const().unwrap_or(1) + self.columns - 1) / self.columns
    }

    pub fn grid(&self, def: &KernelDef) -> Dim {
        let batch = self.roles.batch.iter().fold(Dim::constant(1), |p, v| p * def.extent(*v).dim());
        batch * self.tiles_i(def) * Dim::constant(self.tiles_e(def))
    }

    /// Steps of d of one matrix instruction, and of keys: 32 bytes each.
    pub fn score_steps(&self, def: &KernelDef) -> i64 {
        let bytes = def.extent(self.roles.d).as_const().unwrap_or(0) * self.k.lines.element_bytes;
        (bytes + 31) / 32
    }

    /// The type whose instruction multiplies: f32 counts as itself.
    pub fn types(&self, def: &KernelDef) -> (DType, DType) {
        (self.roles.score_type(def), self.roles.value_type(def))
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
        rows: length,
        k_tile: n_lines,
        element_bytes: lines.element_bytes,
        inner: Inner::Rows,
        panels: None,
        swizzle: lines.swizzle,
    })
}
