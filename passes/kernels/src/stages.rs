//! Statements of a kernel with reductions  =>  passes over the inner space: statements of each pass, and values kept
//!
//! A statement's *stage* is the number of consecutive reductions that it waits for; sums over the deep space do not
//! count, because each is computed within one inner point. Values that a later stage needs again are recomputed,
//! unless that is expensive: then they are kept in scratch. If there is a deep space, the outer variables that no deep
//! sum depends on (the columns of attention's result) are *late*: statements that depend on them have their own stages
//! after all others, so that everything else is computed once for all late points.

use super::def::*;
use super::scalar;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::kernel::Class;
use sardonyx_dialects::scalar::ScalarFn;

/// Number of lanes of the widest level.
const LANES_MAX: i64 = 16;

/// Maximum distance in elements between the starts of adjacent windows if each lane sums its own window.
const WINDOW_STEP_MAX: i64 = 2;

/// Variable that lanes run along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// The innermost reduced variable: a row's elements are combined lane by lane, then across lanes.
    Inner,
    /// The innermost parallel variable: each lane has its own row.
    Outer,
    /// The innermost reduced variable, along the threads of a warp or of a block.
    Threads,
}

/// Computation of each pass over the inner space.
#[derive(Debug)]
pub struct Stages {
    lanes: Lanes,
    pub n: usize,
    /// Number of stages before those of the late variables; all stages if there are none.
    pub n_early: usize,
    /// Per statement: the first stage in which it can be evaluated, because the reductions it waits for are complete.
    pub of: Vec<usize>,
    /// Per statement: whether it is evaluated per inner point.
    pub point: Vec<bool>,
    /// Per statement: the stage that first evaluates it, if any.
    pub first: Vec<Option<usize>>,
    /// Statements kept in scratch, each with the byte offset of its row of values.
    pub kept: Vec<(usize, Dim)>,
    pub scratch_bytes: Dim,
}

fn lanes_of(def: &KernelDef) -> Lanes {
    let Some(outer) = def.outer.len().checked_sub(1) else { return Lanes::Inner };
    if !def.deep.is_empty() {
        return Lanes::Inner;
    }
    let inner = def.n_vars() - 1;
    let deps = def.dependences();
    let loads = def.body.iter().filter_map(|s| match &s.op {
        Op::Load { access, .. } => Some((access, &def.reads[access.buffer])),
        Op::Const(_) | Op::Index(_) | Op::Apply { .. } | Op::Convert(_, _) | Op::Reduce { .. } => None,
    });
    let all: Vec<_> = loads.chain(def.stores.iter().map(|w| (&w.access, &def.writes[w.access.buffer]))).collect();
    let scattered = |var: usize| {
        let bad = |(access, storage): &&(&Access, &Storage)| {
            let moved = def.access_vars(access, &deps) >> var & 1 == 1;
            moved && (storage.panels.is_some() || !access.stride(var).is(1))
        };
        all.iter().filter(bad).count()
    };
    let small = def.extent(outer).as_const().is_some_and(|n| n < 8);
    // Adjacent windows of a signal share most of their elements, so each lane sums one window, element by element.
    let near = |(access, storage): &(&Access, &Storage)| {
        let step = access.stride(outer).as_const();
        storage.panels.is_none()
            && access.computed.is_empty()
            && step.is_some_and(|n| (0..=WINDOW_STEP_MAX).contains(&n))
    };
    let slides = |(access, _): &&(&Access, &Storage)| access.stride(inner).is(1) && access.moves_with(outer);
    let windows = def.class == Class::Contract && all.iter().all(near) && all.iter().any(|a| slides(&a));
    let apart = scattered(inner) > 0 && scattered(outer) == 0;
    if (apart || windows) && !small { Lanes::Outer } else { Lanes::Inner }
}

impl Stages {
    /// Stages for a CPU.
    pub fn of_rows(def: &KernelDef) -> Stages {
        stages_along(def, lanes_of(def))
    }

    /// Returns the stages for the threads of a GPU. A warp or a block has one row, or each lane has its own row if
    /// adjacent rows are contiguous in memory.
    pub fn of_threads(def: &KernelDef) -> Stages {
        match lanes_of(def) {
            Lanes::Outer => stages_along(def, Lanes::Outer),
            Lanes::Inner | Lanes::Threads => stages_along(def, Lanes::Threads),
        }
    }

    /// Variable that lanes run along in a stage. Late stages process vectors of late points.
    pub fn lanes(&self, stage: usize) -> Lanes {
        if stage < self.n_early { self.lanes } else { Lanes::Outer }
    }

    /// Whether each lane has its own row.
    pub fn is_along_outer(&self) -> bool {
        self.lanes == Lanes::Outer
    }

    pub fn is_across_threads(&self) -> bool {
        self.lanes == Lanes::Threads
    }

    /// (stage, statement) of every value that a pass must produce.
    pub fn roots(&self, def: &KernelDef) -> Vec<(usize, usize)> {
        roots(def, &self.of, &self.point)
    }

    /// Statements that each stage evaluates, including those that an earlier stage evaluated unless they are `kept`.
    pub fn evaluated(&self, def: &KernelDef, kept: impl Fn(usize) -> bool) -> Vec<Vec<usize>> {
        let mut known = vec![false; def.body.len()];
        let mut out = vec![];
        for stage in 0..self.n {
            let roots = self.roots(def).into_iter().filter(|r| r.0 == stage);
            let mut open: Vec<usize> = roots.map(|r| r.1).collect();
            let mut seen = vec![];
            while let Some(k) = open.pop() {
                if !known[k] && !seen.contains(&k) {
                    seen.push(k);
                    open.extend(def.operands(k));
                }
            }
            seen.iter().filter(|k| kept(**k)).for_each(|k| known[*k] = true);
            out.push(seen);
        }
        out
    }
}

/// Outer variables on which no reduction over the deep space depends; none if there is no deep space.
pub fn late_vars(def: &KernelDef) -> VarSet {
    let outer = (1 << def.outer.len()) - 1;
    let deps = def.dependences();
    let sums = (0..def.body.len()).filter(|k| is_deep_sum(def, &deps, *k));
    if def.deep.is_empty() { 0 } else { outer & !sums.fold(0, |set, k| set | deps[k]) }
}

/// Whether a statement is a reduction over the deep space, which belongs to a single point.
pub fn is_deep_sum(def: &KernelDef, deps: &[VarSet], k: usize) -> bool {
    matches!(def.body[k].op, Op::Reduce { arg, .. } if deps[arg] & def.deep_vars() != 0)
}

fn stages_along(def: &KernelDef, lanes: Lanes) -> Stages {
    let deps = def.dependences();
    let point: Vec<bool> = deps.iter().map(|d| d & def.inner_vars() != 0).collect();
    let late = if lanes == Lanes::Threads { 0 } else { late_vars(def) };
    let is_late = |k: usize| deps[k] & late != 0;
    let (of, early) = (stage_of(def, &deps, |_| 0), |k: &usize| !is_late(*k));
    let ends = |roots: Vec<(usize, usize)>| roots.into_iter().map(|(stage, _)| stage + 1).max().unwrap_or(0);
    let n_early = ends(roots(def, &of, &point).into_iter().filter(|(_, k)| early(k)).collect());
    let of = stage_of(def, &deps, |k| if is_late(k) { n_early } else { 0 });
    let roots: Vec<(usize, usize)> = roots(def, &of, &point);
    let n = ends(roots.clone());
    let mut first = vec![None; def.body.len()];
    let mut kept: Vec<usize> = vec![];
    let heavy = heavy(def, &point);
    for stage in 0..n {
        let mut open: Vec<usize> = roots.iter().filter(|r| r.0 == stage).map(|r| r.1).collect();
        let mut seen = vec![false; def.body.len()];
        while let Some(k) = open.pop() {
            if !point[k] || std::mem::replace(&mut seen[k], true) {
                continue;
            }
            if first[k].is_some_and(|f| f < stage) && heavy[k] && lanes == Lanes::Inner && !is_late(k) {
                if !kept.contains(&k) {
                    kept.push(k);
                }
                continue;
            }
            first[k].get_or_insert(stage);
            open.extend(def.operands(k));
        }
    }
    kept.retain(|k| deps[*k] & def.deep_vars() == 0);
    let elements = def.inner.iter().fold(Dim::constant(1), |p, e| p * e.dim());
    let mut scratch_bytes = Dim::constant(0);
    let mut with_offsets = vec![];
    for k in kept {
        let bytes = scalar::register(def.body[k].dtype).bits() as i64 / 8;
        with_offsets.push((k, scratch_bytes.clone()));
        // The last vector of a row is written in full.
        scratch_bytes = scratch_bytes + (elements.clone() + Dim::constant(LANES_MAX)) * Dim::constant(bytes);
    }
    Stages { lanes, n, n_early, of, point, first, kept: with_offsets, scratch_bytes }
}

/// Stage of each statement `k`, which is at least `least(k)`.
fn stage_of(def: &KernelDef, deps: &[VarSet], least: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut of: Vec<usize> = vec![];
    for (k, step) in def.body.iter().enumerate() {
        let before = def.operands(k).into_iter().map(|a| of[a]).max().unwrap_or(0);
        let reduces = matches!(step.op, Op::Reduce { .. }) && !is_deep_sum(def, deps, k);
        of.push(before.max(least(k)) + reduces as usize);
    }
    of
}

/// (stage, statement) of every value that a pass over the inner space must produce.
fn roots(def: &KernelDef, of: &[usize], point: &[bool]) -> Vec<(usize, usize)> {
    let deps = def.dependences();
    let reductions = def.body.iter().enumerate().filter_map(|(k, s)| match s.op {
        Op::Reduce { arg, .. } if !is_deep_sum(def, &deps, k) => Some((of[arg], arg)),
        Op::Load { .. } | Op::Const(_) | Op::Index(_) | Op::Apply { .. } | Op::Convert(_, _) | Op::Reduce { .. } => {
            None
        }
    });
    let stores = def.stores.iter().filter(|w| is_point_store(def, w, point));
    let values = stores.flat_map(|w| {
        let operands = [vec![w.value], access_values(&w.access)].concat();
        let stage = operands.iter().map(|k| of[*k]).max().unwrap_or(0);
        operands.into_iter().map(move |k| (stage, k))
    });
    reductions.chain(values).collect()
}

/// Whether a store is executed per inner point, because its value or its location depends on the point.
pub fn is_point_store(def: &KernelDef, write: &Write, point: &[bool]) -> bool {
    let moved = (def.outer.len()..def.n_point_vars()).any(|v| write.access.moves_with(v));
    point[write.value] || moved || access_values(&write.access).iter().any(|k| point[*k])
}

/// Returns, for each statement, whether recomputing its value costs more than storing and loading it.
pub fn heavy(def: &KernelDef, point: &[bool]) -> Vec<bool> {
    let mut heavy: Vec<bool> = vec![];
    let deps = def.dependences();
    for (k, step) in def.body.iter().enumerate() {
        let itself = match &step.op {
            Op::Apply { f, .. } => costs_much(*f),
            Op::Load { access, .. } => !access.computed.is_empty(),
            Op::Reduce { .. } => is_deep_sum(def, &deps, k),
            Op::Const(_) | Op::Index(_) | Op::Convert(_, _) => false,
        };
        let below = def.operands(k).into_iter().any(|a| heavy[a]);
        heavy.push(point[k] && step.dtype != DType::Bool && (itself || below));
    }
    heavy
}

fn costs_much(f: ScalarFn) -> bool {
    use ScalarFn::*;
    match f {
        Atan | Cos | Div | Erf | Exp | Log | Pow | Rem | Sin | Sqrt | Tanh => true,
        BitAnd | BitOr | BitXor | Shl | Shr => false,
        Abs | Add | And | Ceil | Eq | Floor | IsNan | Le | Lt | Max | Min | Mul | Neg | Not | Or | Round | Select
        | Sign | Sub | Xor => false,
    }
}
