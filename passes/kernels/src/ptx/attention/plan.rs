//! attention in its standard form  =>  its plan for blocks of threads: rows of queries, tiles of keys, shared memory

use super::super::gemm::mma::Factors;
use super::super::gemm::operand::{Inner, Lines, Operand};
use super::super::gemm::{BLOCKS_MIN, choice, reaches};
use super::super::ring::{self, LINE_BYTES};
use super::roles::Roles;
use crate::def::*;
use crate::target::Target;
use sardonyx_base::Dim;

/// Maximum bytes of shared memory of a block. If a block uses at most half of this, two blocks fit on a multiprocessor
/// of the smallest device.
const SHARED_MAX: i64 = 160 * 1024;

/// Maximum number of result columns that a warp accumulates.
const COLUMNS_MAX: i64 = 128;

/// Number of warps of a block that multiply with `mma.sync`, and of one whose warpgroups multiply.
const WARPS: i64 = 4;
const WARPS_OF_WARPGROUPS: i64 = 8;

/// Number of threads that only copy, in a block of warpgroups.
pub const COPYING: i64 = 32;

/// Number of rows of one matrix instruction.
pub const ROWS: i64 = 16;

/// Size of a block, and the instructions with which it multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Team {
    /// Warps that share 16 rows.
    FewRows,
    /// Warps of 16 rows each.
    Warps,
    /// Warpgroups of 64 rows each (`wgmma`), fed by a warp that only copies.
    Warpgroups,
}

/// The teams of every GPU, and those of GPUs with warpgroups, by the size of their blocks.
const TEAMS: &[Team] = &[Team::FewRows, Team::Warps];
const TEAMS_WITH_WARPGROUPS: &[Team] = &[Team::FewRows, Team::Warps, Team::Warpgroups];
/// Teams of such GPUs for heads wider than [`NARROW_MAX`]: the nine warps of warpgroups leave each thread of the entry
/// 168 registers, and warps of 16 rows each would then spill.
const TEAMS_OF_WIDE_HEADS: &[Team] = &[Team::FewRows, Team::Warpgroups];
const NARROW_MAX: i64 = 64;

/// Maximum size of heads for warpgroups; larger ones would spill.
const WIDTH_MAX: i64 = 128;

/// A block computes some rows (queries) and visits all keys. Each warp has 16 rows; if the block has no more, its warps
/// divide the keys of each tile among them for the scores, and the columns for the weighted sums.
#[derive(Clone, Debug)]
pub struct Flash {
    /// Statements and variables of the kernel as the parts of attention.
    pub roles: Roles,
    /// Size of a block, and the instructions with which it multiplies.
    pub team: Team,
    /// The teams of the GPU.
    teams: &'static [Team],
    /// Number of multiplying warps along rows.
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
    /// Plan of smaller blocks, for launches with few rows or few blocks, if their numbers are only known at the launch.
    /// All plans give the same results.
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
    /// Plans the kernel for any GPU; `None` if it is not standard attention, or its head sizes are unknown or too large.
    pub fn from_def(def: &KernelDef) -> Option<Flash> {
        let roles = Roles::find(def)?;
        Flash::of_teams(def, &roles, keys_of(def, &roles)?, TEAMS)
    }

    /// Like [`Flash::from_def`], with a plan for warpgroups if the GPU has their products and they can multiply the
    /// kernel's factors.
    pub fn for_target(def: &KernelDef, target: Target) -> Option<Flash> {
        let has_warpgroups = target.gpu().is_some_and(|gpu| gpu.warpgroup_products);
        match has_warpgroups.then(|| Flash::of_warpgroups(def)).flatten() {
            Some(Flash { roles, keys, .. }) => {
                let [d, e] = widths(def, &roles)?;
                let teams = if d.max(e) > NARROW_MAX { TEAMS_OF_WIDE_HEADS } else { TEAMS_WITH_WARPGROUPS };
                Flash::of_teams(def, &roles, keys, teams)
            }
            None => Flash::from_def(def),
        }
    }

    /// The plan whose blocks are those of the largest team, and those of smaller ones for smaller launches.
    fn of_teams(def: &KernelDef, roles: &Roles, keys: i64, teams: &'static [Team]) -> Option<Flash> {
        let with = |team: &Team| Some(Flash { teams, ..Flash::with(def, roles, *team, keys)? });
        let mut plans = teams.iter().filter_map(with);
        let smallest = plans.next().filter(|flash| flash.team == Team::FewRows)?;
        Some(plans.fold(smallest, |smaller, flash| {
            let flash = Flash { few: Some(Box::new(smaller.clone())), ..flash };
            match flash.is_chosen(def).as_const() {
                Some(0) => smaller,
                Some(_) => Flash { few: None, ..flash },
                None => flash,
            }
        }))
    }

    /// Name of the blocks: their team and number of rows, the largest first.
    pub fn name(&self) -> String {
        let team = match self.team {
            Team::FewRows | Team::Warps => "warps",
            Team::Warpgroups => "warpgroups",
        };
        let own = format!("{team}-{}", self.rows());
        self.few.as_ref().map_or(own.clone(), |few| format!("{own}+{}", few.name()))
    }

    /// Returns the plans with blocks of a single team for all launches, except for this plan.
    pub fn of_one_team(&self, def: &KernelDef) -> Vec<Flash> {
        let plans = self.teams.iter().filter_map(|team| Flash::with(def, &self.roles, *team, self.keys));
        plans.filter(|plan| plan.name() != self.name()).collect()
    }

    /// The plan for many rows only, of warps; `None` if the number of rows is known to be few.
    pub fn of_many(def: &KernelDef) -> Option<Flash> {
        let roles = Roles::find(def)?;
        let is_few = roles.i.is_none_or(|i| def.extent(i).as_const().is_some_and(|n| n <= ROWS));
        if is_few { None } else { Flash::with(def, &roles, Team::Warps, keys_of(def, &roles)?) }
    }

    /// The plan for warpgroups only; `None` if they cannot multiply the factors, if heads are too large, if there is a
    /// single query, or if keys or values cannot be copied in units of 16 bytes.
    pub fn of_warpgroups(def: &KernelDef) -> Option<Flash> {
        let roles = Roles::find(def)?;
        let [d, e] = widths(def, &roles)?;
        if d.max(e) > WIDTH_MAX {
            return None;
        }
        Flash::with(def, &roles, Team::Warpgroups, 64)
    }

    /// 1 if a launch uses this plan, 0 if it uses the plan of smaller blocks. A launch uses the latter if it has no more
    /// rows than one of its blocks, or no more than one of the warpgroups of this plan, or if this plan has too few blocks
    /// to occupy a large device.
    pub fn is_chosen(&self, def: &KernelDef) -> Dim {
        let rows = self.roles.i.map_or(Dim::constant(1), |i| def.extent(i).dim());
        let few = self.few.as_ref().map_or(ROWS, |few| few.rows());
        let few = if self.team == Team::Warpgroups { few.max(self.rows() / 2) } else { few };
        reaches(&rows, few + 1) * reaches(&self.own_grid(def), BLOCKS_MIN)
    }

    fn with(def: &KernelDef, roles: &Roles, team: Team, keys: i64) -> Option<Flash> {
        let [d, e] = widths(def, roles)?;
        let [score_bytes, value_bytes] = roles.factor_types(def).map(|t| t.bits() as i64 / 8);
        let columns = e.min(COLUMNS_MAX);
        let (warps_m, warps_n) = match team {
            Team::FewRows => (1, WARPS),
            Team::Warps => (WARPS, 1),
            Team::Warpgroups => (WARPS_OF_WARPGROUPS, 1),
        };
        let part_bytes = (team == Team::Warpgroups).then_some(LINE_BYTES);
        let tile = |statement, across: Option<usize>, along, n_lines, length: i64, bytes: i64, swizzle| {
            let length = (length as u64).next_power_of_two().max(128 / bytes as u64) as i64;
            let part = part_bytes.unwrap_or(length * bytes);
            let block_bytes = (part < length * bytes).then_some(n_lines * part);
            let lines = Lines { pitch: part, element_bytes: bytes, swizzle, block_bytes };
            let operand = across.and_then(|a| copied(def, roles, statement, (a, n_lines), (along, length), lines));
            let operand = operand.map(|o| Operand { part_bytes, ..o });
            Tile { statement, across, along, n_lines, length, lines, operand }
        };
        let by_line = (0, 7, 0);
        // Values of 4 bytes are read one by one: thread t of four reads keys 2t and 2t + 1.
        let of_values = if value_bytes == 4 { (1, 3, 1) } else { by_line };
        let q = tile(roles.left, roles.i, roles.d, warps_m * ROWS, d, score_bytes, by_line);
        let k = tile(roles.right, Some(roles.j), roles.d, keys, d, score_bytes, by_line);
        let v = tile(roles.value, Some(roles.j), roles.e, keys, columns, value_bytes, of_values);
        if team == Team::Warpgroups {
            let is_copied = |tile: &Tile| {
                let units = tile.operand.as_ref().map(Operand::units);
                units.is_some_and(|units| units.first().is_some_and(|(bytes, _)| *bytes == 16))
            };
            let are_halves = score_bytes == 2 && value_bytes == 2;
            if !are_halves || !is_copied(&k) || !is_copied(&v) || roles.i.is_none() {
                return None;
            }
        }
        let flash = |stages| {
            let (q, k, v, roles) = (q.clone(), k.clone(), v.clone(), roles.clone());
            Flash { roles, team, teams: &[], warps_m, warps_n, stages, keys, columns, q, k, v, few: None }
        };
        // Two tiles are copied ahead, if they fit, where there is little to compute while a tile is copied, or where
        // others copy.
        let stages = if team == Team::Warps { [2, 2] } else { [3, 2] };
        stages.map(flash).into_iter().find(|f| f.own_bytes() <= SHARED_MAX)
    }

    /// Returns the number of threads of a block that multiply.
    pub fn threads(&self) -> i64 {
        self.warps_m * self.warps_n * 32
    }

    /// Returns the number of threads of a block.
    pub fn all_threads(&self) -> i64 {
        self.threads() + if self.team == Team::Warpgroups { COPYING } else { 0 }
    }

    /// Returns the number of threads that suffice for the blocks of all plans.
    pub fn launched_threads(&self) -> i64 {
        self.all_threads().max(self.few.as_ref().map_or(0, |few| few.launched_threads()))
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
        if self.team == Team::Warpgroups {
            return ring::shared_bytes(self.q.bytes(), (self.stages, self.stage_bytes()));
        }
        let exchanged = if self.warps_n > 1 { self.warps_n * ROWS * 4 + self.keys * ROWS * 4 } else { 0 };
        self.exchange_at() + exchanged
    }

    /// Offset in shared memory of the area in which warps that share rows exchange their largest scores, and behind
    /// these their exponentials.
    pub fn exchange_at(&self) -> i64 {
        self.q.bytes() + self.stages * self.stage_bytes()
    }

    /// Bytes of shared memory that suffice for all plans.
    pub fn shared_bytes(&self) -> i64 {
        self.own_bytes().max(self.few.as_ref().map_or(0, |few| few.shared_bytes()))
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
        self.n_lines * self.length * self.lines.element_bytes
    }
}

/// Sizes of the heads of scores and of values; `None` if they are not known, or 0.
fn widths(def: &KernelDef, roles: &Roles) -> Option<[i64; 2]> {
    let (d, e) = (def.extent(roles.d).as_const()?, def.extent(roles.e).as_const()?);
    (d >= 1 && e >= 1).then_some([d, e])
}

/// Number of keys of a tile for warps that multiply with `mma.sync`.
fn keys_of(def: &KernelDef, roles: &Roles) -> Option<i64> {
    let [d, e] = widths(def, roles)?;
    let bytes: u32 = roles.factor_types(def).iter().map(|t| t.bits() / 8).sum();
    Some(if bytes > 4 || d.max(e.min(COLUMNS_MAX)) > 64 { 32 } else { 64 })
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
