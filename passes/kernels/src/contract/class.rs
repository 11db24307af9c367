//! Register-blocked contraction as a class of kernels: its resources, its cost and its emitter

use super::plan::{Form, GROUP, Plan, WIDTH};
use super::tiles;
use crate::asm::Mlir;
use crate::cpu::CpuPlan;
use crate::cx::Cx;
use crate::def::*;
use crate::nest::{Loop, Nest};
use crate::pace::{LANES, Pace};
use crate::words::Words;
use sardonyx_base::Dim;

/// Number of rows of a block that keeps both FMA units busy.
const ROWS: f64 = 4.0;
/// Overhead of starting a loop over k, in iterations.
const BEGIN: f64 = 2.0;
/// Factors of the rate if A is not contiguous along K, if B is neither contiguous along K nor stored like a panel, and
/// if each column has its own A.
const FACTOR_APART: f64 = 0.35;
const ROWS_APART: f64 = 0.65;
const DIAGONAL: f64 = 0.6;

impl Plan {
    /// Bytes of the copied panels and of the tiles of accumulators that wait for the epilogue.
    pub fn sums_bytes(&self, def: &KernelDef) -> Dim {
        let tile = if self.direct && !tiles::fits(self, def) { 0 } else { self.tile_bytes(def) };
        Dim::constant(self.sums.len() as i64) * (self.copied_bytes(def) + Dim::constant(tile))
    }
}

impl CpuPlan for Plan {
    fn grid(&self, def: &KernelDef) -> Dim {
        let batch = self.batch.iter().fold(Dim::constant(1), |p, v| p * def.extent(*v).dim());
        batch * self.n_strips(def) * self.n_chunks(def)
    }

    fn scratch_bytes(&self, def: &KernelDef) -> Dim {
        let staged = self.staged.as_ref().map_or(Dim::constant(0), |staged| staged.bytes());
        let tiles = if tiles::fits(self, def) { tiles::SCRATCH_BYTES } else { 0 };
        self.sums_bytes(def) + staged + Dim::constant(tiles)
    }

    fn nest(&self, def: &KernelDef, params: &[i64]) -> Nest {
        Nest { loops: loops(def, self, params), passes: vec![1; def.body.len()] }
    }

    fn pace(&self, def: &KernelDef) -> Pace {
        pace(def, self)
    }

    fn words(&self) -> Option<Words> {
        Some(self.words)
    }

    fn stages(&self) -> bool {
        self.staged.is_some()
    }

    fn fits_tiles(&self, def: &KernelDef) -> bool {
        tiles::fits(self, def)
    }

    fn emit(&self, cx: &Cx<Mlir>, asm: &mut Mlir) {
        super::emit(cx, asm, self);
    }
}

/// Returns the loops over batch, slabs, groups of chunks of rows, strips of columns, chunks, slabs of a chunk, rows,
/// reduction and columns. One step of the outer loop over the last slab variable covers the slabs of `GROUP` chunks.
fn loops(def: &KernelDef, plan: &Plan, params: &[i64]) -> Vec<Loop> {
    let paired = plan.is_paired(def).eval_params(params).is_ok_and(|p| p == 1);
    let strip = if paired { 2 * WIDTH } else { WIDTH };
    let rows = |step| plan.m.map(|var| Loop::Var { var, step });
    let mut loops: Vec<Loop> = plan.batch.iter().map(|&var| Loop::Var { var, step: 1 }).collect();
    let step = |v: &usize| if plan.slabs.last() == Some(v) { GROUP * plan.slabs_per_item(def) } else { 1 };
    loops.extend(plan.slabs.iter().map(|var| Loop::Var { var: *var, step: step(var) }));
    loops.extend(rows(GROUP * plan.chunk_rows(def)));
    loops.push(Loop::Var { var: plan.n, step: strip });
    loops.extend(rows(plan.chunk_rows(def)));
    loops.extend(plan.slabs.last().map(|&var| Loop::Var { var, step: 1 }));
    loops.extend(rows(1));
    loops.extend(plan.around.iter().chain([&plan.k]).map(|&var| Loop::Var { var, step: 1 }));
    loops.push(Loop::Var { var: plan.n, step: 1 });
    loops
}

fn pace(def: &KernelDef, plan: &Plan) -> Pace {
    let rows = plan.m.map_or(Some(1), |m| def.extent(m).as_const()).map_or(1.0, |m| (m as f64 / ROWS).min(1.0));
    let depth = def.extent(plan.k).as_const().filter(|_| !plan.around.is_empty());
    let begins = depth.map_or(1.0, |k| k as f64 / (k as f64 + BEGIN));
    let is_factor = |access: &Access| *access == plan.a || plan.sums.iter().any(|s| s.b == *access);
    let scattered = def.scattered_part(plan.n, |access| !is_factor(access));
    let lanes = if def.extent(plan.n).as_const().is_some_and(|n| n < WIDTH) { LANES } else { WIDTH };
    let apart = |access: &Access, part: f64| if access.stride(plan.k).is(1) { 1.0 } else { part };
    let streams = match plan.form {
        // Every product has its own load of A.
        _ if plan.diagonal => DIAGONAL,
        Form::Panels => apart(&plan.a, FACTOR_APART),
        // Rows of 32 columns stored one after another are a panel.
        Form::Rows if plan.b().stride(plan.k).is(WIDTH) => apart(&plan.a, FACTOR_APART),
        Form::Rows | Form::Copied => apart(&plan.a, FACTOR_APART) * apart(plan.b(), ROWS_APART),
    };
    let share = rows * begins * def.used_lanes(plan.n, lanes) * streams;
    Pace { share, scattered }
}
