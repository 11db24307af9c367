//! y[n, t] = f(Σ w[n, k] · x[k, t]) with w in a sparse format  =>  the stored values of a row times vectors of t
//!
//! Lanes run along a variable that only the dense operand has and that is contiguous in memory: a value of the matrix
//! is broadcast, and its column selects a row of vectors. A work item is a block of rows by a block of lanes.

mod columns;
mod groups;
mod product;
mod tile;
mod words;

use crate::cpu::CpuPlan;
use crate::def::KernelDef;
use std::sync::Arc;

pub fn planned(def: &KernelDef) -> Option<Arc<dyn CpuPlan>> {
    words::planned(def).or_else(|| groups::planned(def))
}
