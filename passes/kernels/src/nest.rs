//! a kernel, its sizes  =>  the loops that a CPU runs for it, from the outermost in: what may still be in a cache when

use super::contract::{self, WIDTH};
use super::def::*;
use super::{Route, attention, stages};

/// A loop: over a variable in steps, or over the whole inner space again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    Var { var: usize, step: i64 },
    Passes,
}

/// The loops of a launch, and in how many passes over the inner space each statement is evaluated.
pub struct Nest {
    pub loops: Vec<Loop>,
    pub passes: Vec<i64>,
}

/// Outer points that go through the inner space together, where lanes run along them.
const LANES: i64 = 16;

impl KernelDef {
    /// The loops with these parameters, as one thread runs all work items in their order.
    pub fn nest(&self, params: &[i64]) -> Nest {
        let each = |vars: std::ops::Range<usize>| vars.map(|var| Loop::Var { var, step: 1 });
        let (n, once) = (self.outer.len(), vec![1; self.body.len()]);
        match self.route() {
            Route::Map => Nest { loops: each(0..n).collect(), passes: once },
            Route::Normalise => {
                let rows = stages::rows(self);
                let mut loops: Vec<Loop> = each(0..n).collect();
                if rows.along_outer
                    && let Some(Loop::Var { step, .. }) = loops.last_mut()
                {
                    *step = LANES;
                }
                loops.push(Loop::Passes);
                loops.extend(each(n..self.n_vars()));
                let count = |k| rows.evaluated.iter().filter(|stage| stage.contains(&k)).count() as i64;
                Nest { loops, passes: (0..self.body.len()).map(count).collect() }
            }
            Route::Contract(plan) => Nest { loops: blocked(self, &plan, params), passes: once },
            Route::Attention(plan) => Nest { loops: attended(&plan), passes: once },
        }
    }
}

/// Batch, chunks of queries, blocks of keys, queries, keys, elements.
fn attended(plan: &attention::Plan) -> Vec<Loop> {
    let each = |vars: &[usize], step| vars.iter().map(|&var| Loop::Var { var, step }).collect::<Vec<_>>();
    let chunked = |last: i64| {
        let mut loops = each(&plan.rows, 1);
        if let Some(Loop::Var { step, .. }) = loops.last_mut() {
            *step = last;
        }
        loops
    };
    let keys = [Loop::Var { var: plan.j, step: attention::BLOCK }];
    let points = [plan.j, plan.d, plan.e];
    [each(&plan.batch, 1), chunked(attention::CHUNK), keys.to_vec(), each(&plan.rows, 1), each(&points, 1)].concat()
}

/// Batch, groups of chunks of rows, strips of columns, chunks, rows, sums. Chunks of several slabs are taken to be
/// groups of their own.
fn blocked(def: &KernelDef, plan: &contract::Plan, params: &[i64]) -> Vec<Loop> {
    let paired = plan.is_paired(def).eval(&|s| params.get(own(s, 'p')?).copied()).is_ok_and(|p| p == 1);
    let strip = if paired { 2 * WIDTH } else { WIDTH };
    let rows = |step| plan.m.map(|var| Loop::Var { var, step });
    let mut loops: Vec<Loop> = plan.batch.iter().map(|&var| Loop::Var { var, step: 1 }).collect();
    let step = |v: &usize| if plan.slabs.last() == Some(v) { contract::GROUP * plan.slabs_per_item(def) } else { 1 };
    loops.extend(plan.slabs.iter().map(|var| Loop::Var { var: *var, step: step(var) }));
    loops.extend(rows(contract::GROUP * plan.chunk_rows(def)));
    loops.push(Loop::Var { var: plan.n, step: strip });
    loops.extend(rows(plan.chunk_rows(def)));
    loops.extend(plan.slabs.last().map(|&var| Loop::Var { var, step: 1 }));
    loops.extend(rows(1));
    loops.extend(plan.around.iter().chain([&plan.k]).map(|&var| Loop::Var { var, step: 1 }));
    loops.push(Loop::Var { var: plan.n, step: 1 });
    loops
}
