//! Σg s[g, n] · Σj a[m, g·G + j] · w[g·G + j, n], codes w  =>  groups reduced on tensor cores, then added to the total
//!
//! Groups g have G elements j each; m is a row of A, n a column of the codes. Codes are stored in panels, four bytes
//! of a column side by side, and are converted on the way from shared memory to registers: to tf32, which represents
//! them exactly, or to bytes. k runs through all groups without interruption; at the end of a group, the value that
//! the kernel computes from its accumulator (mostly by scaling) is added to the accumulator of all groups, and the
//! next group starts from zero.

use super::mma::{Factors, STEP_BYTES};
use super::plan::Gemm;
use crate::contract::groups::{Grouped, before, grouped};
use crate::contract::{Fold, Roles};
use crate::def::*;
use crate::scalar;

/// Groups of a reduction over k.
#[derive(Clone, Debug)]
pub struct Groups {
    /// Variable that enumerates the groups.
    pub var: usize,
    pub count: i64,
    /// Number of products of a group.
    pub size: i64,
    /// How a group's accumulator is added to the accumulator of all groups, one fold per reduction.
    pub folds: Vec<Fold>,
}

impl Groups {
    /// Finds the groups, if no instruction multiplies elements of two groups, and A is contiguous from one group to
    /// the next.
    pub fn find(def: &KernelDef) -> Option<(Roles, Groups)> {
        let Grouped { roles, folds, sum } = grouped(def)?;
        let [var] = roles.around[..] else { return None };
        let (count, size) = (def.extent(var).as_const()?, def.extent(roles.k).as_const()?);
        let [left, right] = [&roles.a, roles.b()].map(|access| def.reads[access.buffer].dtype);
        let factors = Factors::new(left, right).filter(|f| f.sum() == scalar::register(sum))?;
        let step = STEP_BYTES / left.bytes() as i64;
        let ends = count == 1 || size >= step && size.count_ones() == 1;
        let goes_on = roles.a.stride(roles.k).is(1) && (count == 1 || roles.a.stride(var).is(size));
        let alike = roles.sums.iter().all(|s| def.reads[s.b.buffer] == def.reads[roles.b().buffer]);
        let is_of_codes = matches!(factors, Factors::Codes | Factors::Bytes(_));
        (is_of_codes && alike && ends && goes_on && size > 0).then_some((roles, Groups { var, count, size, folds }))
    }

    /// Statements that are evaluated for each group, except its reductions.
    pub fn statements(&self, def: &KernelDef) -> Vec<usize> {
        self.folds.iter().flat_map(|fold| before(def, fold)).collect()
    }

    /// Number of k tiles of one group; `None` if a tile has several groups.
    pub fn pieces(&self, gemm: &Gemm) -> Option<i64> {
        match self.count {
            1 => Some((self.size + gemm.k_tile() - 1).div_euclid(gemm.k_tile())),
            _ => Some(self.size / gemm.k_tile()).filter(|n| *n > 0),
        }
    }
}
