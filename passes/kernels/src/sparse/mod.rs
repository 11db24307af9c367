//! y[n, t] = f(Σ w[n, k] · x[k, t]), w in a sparse format  =>  what is stored of a row times vectors of t
//!
//! Lanes run along a variable that only the other factor has and whose elements are neighbours in memory: a value of the matrix is
//! broadcast, and its column names a row of vectors. A work item is a block of rows by a block of lanes.

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
