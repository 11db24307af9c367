//! Register-blocked attention as a class of kernels: its resources, its cost and its emitter

use super::plan::{BLOCK, CHUNK, Plan};
use crate::asm::Mlir;
use crate::cpu::CpuPlan;
use crate::cx::Cx;
use crate::def::KernelDef;
use crate::nest::{Loop, Nest};
use crate::pace::Pace;
use crate::words::Words;
use sardonyx_base::Dim;

impl CpuPlan for Plan {
    fn grid(&self, def: &KernelDef) -> Dim {
        self.batch.iter().fold(self.n_chunks(def), |p, v| def.extent(*v).dim() * p)
    }

    fn scratch_bytes(&self, def: &KernelDef) -> Dim {
        self.parts(def).into_iter().fold(Dim::constant(0), |sum, p| sum + p) * Dim::constant(4)
    }

    fn nest(&self, def: &KernelDef, _: &[i64]) -> Nest {
        Nest { loops: loops(self), passes: vec![1; def.body.len()] }
    }

    fn pace(&self, _: &KernelDef) -> Pace {
        Pace { share: 1.0, scattered: 0.0 }
    }

    fn words(&self) -> Option<Words> {
        Some(if self.narrow { Words::Pairs } else { Words::Singles })
    }

    fn fits_tiles(&self, _: &KernelDef) -> bool {
        self.tiles_hold_factors()
    }

    fn attention_rows(&self, def: &KernelDef) -> Option<Dim> {
        Some(self.n_rows(def))
    }

    fn emit(&self, cx: &Cx<Mlir>, asm: &mut Mlir) {
        super::emit(cx, asm, self);
    }
}

/// Loops over batch, chunks of queries, blocks of keys, queries, then keys and elements.
fn loops(plan: &Plan) -> Vec<Loop> {
    let each = |vars: &[usize]| Loop::each(vars.iter().copied());
    let chunked = |last: i64| {
        let mut loops = each(&plan.rows);
        if let Some(Loop::Var { step, .. }) = loops.last_mut() {
            *step = last;
        }
        loops
    };
    let keys = [Loop::Var { var: plan.j, step: BLOCK }];
    let points = [plan.j, plan.d, plan.e];
    [each(&plan.batch), chunked(CHUNK), keys.to_vec(), each(&plan.rows), each(&points)].concat()
}
