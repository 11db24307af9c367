//! Parts of a product with a sparse matrix other than the matrix: the dense operand, and the variables of the results

use super::tile::LANES;
use crate::def::*;
use crate::nest::{Loop, Nest};
use crate::pace::{self, Pace};
use sardonyx_base::Dim;

/// Share of a dense contraction's rate if the dense operand is not contiguous along the lanes.
const SHARE_APART: f64 = 0.05;

#[derive(Debug)]
pub struct Product {
    /// Variable of the matrix's rows.
    pub n: usize,
    /// Variable that lanes run along.
    pub lane: usize,
    /// The other outer variables.
    pub others: Vec<usize>,
    /// Access of the dense operand, whose only computed part is the column.
    pub x: Access,
    /// Statement of the reduction.
    pub sum: usize,
}

impl Product {
    /// Finds the variables of a product, if everything after its reduction is computed once per outer point.
    pub fn matched(def: &KernelDef, n: usize, sum: usize, x: &Access) -> Option<Product> {
        let (deps, n_outer) = (def.dependences(), def.outer.len());
        let per_point = |k: usize| deps[k] & def.inner_vars() == 0;
        let ok = after(def, sum).into_iter().all(per_point)
            && def
                .stores
                .iter()
                .all(|w| per_point(w.value) && (n_outer..def.n_vars()).all(|v| !w.access.moves_with(v)))
            && def.reads.iter().all(|s| s.panels.is_none())
            && !x.moves_with(n)
            && (n_outer..def.n_vars()).all(|v| x.stride(v).is(0));
        let others = |v: &usize| *v != n;
        let lane = (0..n_outer).rev().find(|v| others(v) && x.stride(*v).is(1));
        let lane = lane.or_else(|| (0..n_outer).rev().find(others)).filter(|_| ok)?;
        let others = (0..n_outer).filter(|v| ![n, lane].contains(v)).collect();
        Some(Product { n, lane, others, x: x.clone(), sum })
    }

    /// Whether results are contiguous along the rows of the matrix, and not along the lanes.
    pub fn stores_along_rows(&self, def: &KernelDef) -> bool {
        def.stores.iter().all(|w| w.access.stride(self.n).is(1) && !w.access.stride(self.lane).is(1))
    }

    pub fn has_vectors(&self) -> bool {
        self.x.stride(self.lane).is(1)
    }

    /// Number of work items of `rows` rows each.
    pub fn grid(&self, def: &KernelDef, rows: i64) -> Dim {
        let others = self.others.iter().fold(Dim::constant(1), |p, v| p * def.extent(*v).dim());
        let blocks = |v: usize, size: i64| def.extent(v).dim().ceildiv(&Dim::constant(size));
        others * blocks(self.lane, LANES) * blocks(self.n, rows)
    }

    pub fn nest(&self, def: &KernelDef, rows: i64) -> Nest {
        let mut loops = Loop::each(self.others.iter().copied());
        loops.push(Loop::Var { var: self.lane, step: LANES });
        loops.push(Loop::Var { var: self.n, step: rows });
        loops.extend(Loop::each([self.n].into_iter().chain(def.outer.len()..def.n_vars()).chain([self.lane])));
        Nest { loops, passes: vec![1; def.body.len()] }
    }

    /// Pace of code that reaches `share` of a dense contraction's rate if lanes are loaded as vectors.
    pub fn pace(&self, def: &KernelDef, share: f64, has_vectors: bool) -> Pace {
        let share = if has_vectors { share } else { SHARE_APART };
        Pace { share: share * def.used_lanes(self.lane, pace::LANES), scattered: 0.0 }
    }
}

/// Statements of the epilogue, without the reduction and its operands.
pub fn after(def: &KernelDef, sum: usize) -> Vec<usize> {
    let (mut open, mut seen) = (def.stores.iter().map(|w| w.value).collect::<Vec<_>>(), vec![]);
    open.extend(def.stores.iter().flat_map(|w| access_values(&w.access)));
    while let Some(k) = open.pop() {
        if k != sum && !seen.contains(&k) {
            seen.push(k);
            open.extend(def.operands(k));
        }
    }
    seen.sort();
    seen
}
