//! for %0.. by blocks { s[j] = Σ left · right; r = reduce f(s); o = reduce g(s, r, load e) }: threads along j, then e
//!
//! Handles any kernel with a deep space, in the order of its statements. A block computes one point of the outer
//! variables on which deep reductions depend; along the other outer variables, called *own*, the work is divided among
//! the block's threads. Statements that depend on no own variable are first computed by threads along the inner points,
//! and passed through shared memory to the threads along own variables, a limited number of points at a time.

use super::super::Form;
use super::super::index::index;
use super::super::team::{Partial, Team};
use super::sums::{deep_sums, open_cone};
use crate::asm::{Asm, Bin, Cast, CmpI, Elem, Ptx, Ty, Val};
use crate::cx::{Cx, decode};
use crate::def::*;
use crate::eval::Point;
use crate::reduce::{combine, neutral};
use crate::scalar;
use sardonyx_base::Dim;
use sardonyx_dialects::scalar::ReduceFn;

/// Number of threads of a block.
pub const THREADS: i64 = 128;

/// Maximum number of inner points whose values are in shared memory at a time.
const POINTS_MAX: i64 = 256;
/// Maximum bytes of these values.
const SHARED_MAX: i64 = 32 * 1024;

/// What one traversal of the inner points computes.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// Each reduction: its statement, its function, and the statement of its argument.
    pub reductions: Vec<(usize, ReduceFn, usize)>,
    /// Indices of the stores that are executed at each inner point.
    pub stores: Vec<usize>,
    /// Statements that threads along own variables receive from threads along inner points.
    pub handed: Vec<usize>,
}

/// Plan of a kernel with a deep space.
#[derive(Clone, Debug)]
pub struct Plain {
    /// Outer variables whose points are divided among blocks.
    pub shared: Vec<usize>,
    /// Outer variables whose points are divided among the threads of a block.
    pub own: Vec<usize>,
    /// Walks in which the threads divide the inner points among themselves; these come first.
    pub together: Vec<Walk>,
    /// Walks in which each thread visits all inner points for its own point.
    pub alone: Vec<Walk>,
    /// Indices of the stores that depend on no inner and no own variable; one thread of the block executes them.
    pub block_stores: Vec<usize>,
    /// Indices of the stores that depend on own variables but on no inner one; each thread executes them.
    pub own_stores: Vec<usize>,
    /// Number of inner points whose values are in shared memory at a time.
    pub points: i64,
}

impl Plain {
    pub fn from_def(def: &KernelDef) -> Plain {
        let deps = def.dependences();
        let sums = def.body.iter().zip(&deps).filter(|(s, _)| match s.op {
            Op::Reduce { arg, .. } => deps[arg] & def.deep_vars() != 0,
            Op::Load { .. } | Op::Const(_) | Op::Index(_) | Op::Apply { .. } | Op::Convert(_, _) => false,
        });
        let used = sums.fold(0, |set, (_, d)| set | d);
        let (shared, own): (Vec<usize>, Vec<usize>) = (0..def.outer.len()).partition(|v| used >> v & 1 == 1);
        let own_set = own.iter().fold(0, |set: VarSet, v| set | 1 << v);
        let stages = stages(def, &deps);
        let n = stages.iter().max().map_or(0, |n| n + 1);
        let (mut together, mut alone) = (vec![Walk::default(); n], vec![Walk::default(); n]);
        for (k, step) in def.body.iter().enumerate() {
            if let Op::Reduce { f, arg } = step.op
                && deps[arg] & def.deep_vars() == 0
            {
                let walks = if deps[arg] & own_set == 0 { &mut together } else { &mut alone };
                walks[stages[arg]].reductions.push((k, f, arg));
            }
        }
        let (mut block_stores, mut own_stores) = (vec![], vec![]);
        for (w, write) in def.stores.iter().enumerate() {
            let set = deps[write.value] | def.access_vars(&write.access, &deps);
            let stage = of_store(write).into_iter().map(|k| stages[k]).max().unwrap_or(0);
            match (set & def.inner_vars() != 0, set & own_set != 0) {
                (true, false) => together[stage].stores.push(w),
                (true, true) => alone[stage].stores.push(w),
                (false, false) => block_stores.push(w),
                (false, true) => own_stores.push(w),
            }
        }
        for walk in &mut alone {
            walk.handed = handed(def, &deps, own_set, &walk.roots(def));
        }
        for walks in [&mut together, &mut alone] {
            walks.retain(|w| !w.reductions.is_empty() || !w.stores.is_empty());
        }
        let bytes = |w: &Walk| w.handed.iter().map(|k| bytes(def, *k)).sum::<i64>();
        let most = alone.iter().map(bytes).max().unwrap_or(0).max(1);
        let points = std::iter::successors(Some(POINTS_MAX), |n| Some(n / 2)).find(|n| n * most <= SHARED_MAX);
        Plain { shared, own, together, alone, block_stores, own_stores, points: points.unwrap_or(1) }
    }

    fn blocks(&self, def: &KernelDef) -> Dim {
        self.shared.iter().fold(Dim::constant(1), |p, v| p * def.extent(*v).dim())
    }

    fn handed_bytes(&self, def: &KernelDef) -> i64 {
        let bytes = |w: &Walk| w.handed.iter().map(|k| bytes(def, *k)).sum::<i64>();
        self.points * self.alone.iter().map(bytes).max().unwrap_or(0)
    }
}

impl Walk {
    /// Statements that the walk needs at each point: arguments of its reductions, stored values, and indices of stores.
    pub fn roots(&self, def: &KernelDef) -> Vec<usize> {
        let stored = self.stores.iter().flat_map(|w| of_store(&def.stores[*w]));
        self.reductions.iter().map(|r| r.2).chain(stored).collect()
    }
}

/// Statements that a store reads: its value, and values in its index.
pub fn of_store(write: &Write) -> Vec<usize> {
    [vec![write.value], access_values(&write.access)].concat()
}

/// Returns, by statement, the length of the longest chain of dependent reductions over inner points that ends with it
/// or before it.
fn stages(def: &KernelDef, deps: &[VarSet]) -> Vec<usize> {
    let mut stages: Vec<usize> = vec![];
    for (k, step) in def.body.iter().enumerate() {
        let before = def.operands(k).into_iter().map(|a| stages[a]).max().unwrap_or(0);
        let is_reduction = matches!(step.op, Op::Reduce { arg, .. } if deps[arg] & def.deep_vars() == 0);
        stages.push(before + is_reduction as usize);
    }
    stages
}

/// Statements whose values pass through shared memory: they depend on inner variables but on no own variable, and are
/// roots or operands of statements that depend on both.
fn handed(def: &KernelDef, deps: &[VarSet], own: VarSet, roots: &[usize]) -> Vec<usize> {
    let inner = def.inner_vars() & !def.deep_vars();
    let (mut open, mut seen, mut found) = (roots.to_vec(), vec![], vec![]);
    while let Some(k) = open.pop() {
        if seen.contains(&k) {
            continue;
        }
        seen.push(k);
        match (deps[k] & inner != 0, deps[k] & own != 0) {
            (true, false) => found.push(k),
            (true, true) => open.extend(def.operands(k)),
            (false, _) => {}
        }
    }
    found.sort();
    found
}

/// Bytes of a statement's value in shared memory.
fn bytes(def: &KernelDef, k: usize) -> i64 {
    scalar::register(def.body[k].dtype).bits().max(32) as i64 / 8
}

/// What the functions that emit a block's code share.
struct Block<'a> {
    cx: &'a Cx<'a, Ptx>,
    plan: &'a Plain,
    /// Thread index `%tid.x`.
    thread: Val,
    /// Number of inner points.
    n: Val,
}

pub fn emit(cx: &Cx<Ptx>, asm: &mut Ptx, plan: &Plain) -> Form {
    let def = cx.def;
    let (number, thread) = (asm.special("%ctaid.x"), asm.special("%tid.x"));
    let (number, thread) = (index(asm, number), index(asm, thread));
    let n = cx.dim(asm, &def.inner.iter().fold(Dim::constant(1), |p, e| p * e.dim()));
    let block = Block { cx, plan, thread, n };
    let mut point = Point::new(cx);
    set(cx, asm, &mut point, &plan.shared, number);
    let mut variables = String::new();
    for walk in &plan.together {
        block.together(asm, walk, &mut point, &mut variables);
    }
    let zero = asm.i64(0);
    let is_first = asm.cmpi(CmpI::Eq, thread, zero);
    asm.if_then(is_first, |asm| {
        let mut point = point.clone();
        block.stores(asm, &mut point, &plan.block_stores);
    });
    if !plan.own_stores.is_empty() || !plan.alone.is_empty() {
        block.alone(asm, &mut point);
    }
    let bytes = plan.handed_bytes(def);
    if bytes > 0 {
        variables.push_str(&format!("  .shared .align 8 .b8 handed[{bytes}];\n"));
    }
    Form { variables, ..Form::of_items(&plan.blocks(def), 1, THREADS) }
}

/// Sets variables to the point with this number; the last variable varies fastest.
fn set(cx: &Cx<Ptx>, asm: &mut Ptx, point: &mut Point, vars: &[usize], number: Val) {
    let extents: Vec<Val> = vars.iter().map(|v| cx.extent(asm, *v)).collect();
    for (v, at) in vars.iter().zip(decode(asm, number, &extents)) {
        point.vars[*v] = Some(at);
    }
}

/// Evaluates `roots` and their operands as far as they depend on no variable in `coming`, the set of variables that get
/// their values later.
fn hoist(cx: &Cx<Ptx>, asm: &mut Ptx, point: &mut Point, roots: &[usize], coming: VarSet) {
    let ready = |k: &usize| cx.deps[*k] & coming == 0 && !matches!(cx.def.body[*k].op, Op::Const(_));
    let all: Vec<usize> = open_cone(cx.def, point, roots).into_iter().filter(ready).collect();
    deep_sums(cx, asm, point, &all);
    for k in all {
        point.eval(cx, asm, k);
    }
}

impl Block<'_> {
    /// The inner variables.
    fn inner(&self) -> Vec<usize> {
        let first = self.cx.def.outer.len();
        (first..first + self.cx.def.inner.len()).collect()
    }

    /// Initial totals of a walk's reductions.
    fn neutrals(&self, asm: &mut Ptx, walk: &Walk) -> Vec<Val> {
        let def = self.cx.def;
        let one = |r: &(usize, ReduceFn, usize)| {
            let t = def.body[r.0].dtype;
            neutral(asm, r.1, t, Ty::new(scalar::register(t), 1))
        };
        walk.reductions.iter().map(one).collect()
    }

    /// Combines a walk's totals with the arguments of its reductions at one point.
    fn leaf(&self, asm: &mut Ptx, walk: &Walk, point: &mut Point, totals: &[Val]) -> Vec<Val> {
        let (cx, mut out) = (self.cx, vec![]);
        for ((k, f, arg), total) in walk.reductions.iter().zip(totals) {
            let v = point.eval(cx, asm, *arg);
            out.push(combine(asm, *f, cx.def.body[*k].dtype, *total, v));
        }
        out
    }

    fn stores(&self, asm: &mut Ptx, point: &mut Point, stores: &[usize]) {
        let values: Vec<usize> = stores.iter().flat_map(|w| of_store(&self.cx.def.stores[*w])).collect();
        deep_sums(self.cx, asm, point, &values);
        for w in stores {
            point.store(self.cx, asm, &self.cx.def.stores[*w]);
        }
    }

    /// Emits a walk in which the threads divide the inner points, then combine their totals.
    fn together(&self, asm: &mut Ptx, walk: &Walk, point: &mut Point, variables: &mut String) {
        let (cx, def) = (self.cx, self.cx.def);
        let roots = walk.roots(def);
        hoist(cx, asm, point, &roots, def.inner_vars());
        let (totals, step) = (self.neutrals(asm, walk), asm.i64(THREADS));
        let totals = asm.for_loop((self.thread, self.n, step), &totals, |asm, j, totals| {
            let mut point = point.clone();
            set(cx, asm, &mut point, &self.inner(), j);
            deep_sums(cx, asm, &mut point, &roots);
            let totals = self.leaf(asm, walk, &mut point, totals);
            self.stores(asm, &mut point, &walk.stores);
            totals
        });
        let partial = |(r, value): (&(usize, ReduceFn, usize), Val)| {
            let t = def.body[r.0].dtype;
            Partial { k: r.0, f: r.1, t, value }
        };
        let partials = walk.reductions.iter().zip(totals).map(partial).collect();
        let team = Team { threads: THREADS, thread: self.thread, has_row: None };
        let results = team.reduce(asm, partials, variables);
        for ((k, _, _), v) in walk.reductions.iter().zip(results) {
            point.values[*k] = Some(scalar::rounded(asm, v, def.body[*k].dtype));
        }
    }

    /// Emits the walks in which each thread has a point of the own variables. Threads beyond the last point compute the
    /// last point again but store nothing.
    fn alone(&self, asm: &mut Ptx, point: &mut Point) {
        let (cx, def, plan) = (self.cx, self.cx.def, self.plan);
        let own = plan.own.iter().fold(0, |set: VarSet, v| set | 1 << v);
        let stored: Vec<usize> = plan.own_stores.iter().flat_map(|w| of_store(&def.stores[*w])).collect();
        let roots: Vec<usize> = plan.alone.iter().flat_map(|w| w.roots(def)).chain(stored.clone()).collect();
        // The reductions of these walks have no value yet. They depend on own variables, so this leaves them out.
        hoist(cx, asm, point, &roots, def.inner_vars() | own);
        let count = cx.dim(asm, &plan.own.iter().fold(Dim::constant(1), |p, v| p * def.extent(*v).dim()));
        let (zero, one, step) = (asm.i64(0), asm.i64(1), asm.i64(THREADS));
        let last = asm.bin(Bin::SubI, count, one);
        asm.for_loop((zero, count, step), &[], |asm, first, _| {
            let at = asm.bin(Bin::AddI, first, self.thread);
            let there = asm.cmpi(CmpI::Slt, at, count);
            let at = asm.bin(Bin::MinSI, at, last);
            let mut own_point = point.clone();
            set(cx, asm, &mut own_point, &plan.own, at);
            for walk in &plan.alone {
                self.walk_alone(asm, walk, point, &mut own_point, there);
            }
            asm.if_then(there, |asm| self.stores(asm, &mut own_point, &plan.own_stores));
            vec![]
        });
    }

    fn walk_alone(&self, asm: &mut Ptx, walk: &Walk, block_point: &Point, point: &mut Point, there: Val) {
        let (cx, def, plan) = (self.cx, self.cx.def, self.plan);
        hoist(cx, asm, point, &walk.roots(def), def.inner_vars());
        let totals = self.neutrals(asm, walk);
        let (zero, one, threads, points) = (asm.i64(0), asm.i64(1), asm.i64(THREADS), asm.i64(plan.points));
        let totals = asm.for_loop((zero, self.n, points), &totals, |asm, first, totals| {
            let left = asm.bin(Bin::SubI, self.n, first);
            let n = asm.bin(Bin::MinSI, left, points);
            if !walk.handed.is_empty() {
                asm.for_loop((self.thread, n, threads), &[], |asm, i, _| {
                    let mut point = block_point.clone();
                    let j = asm.bin(Bin::AddI, first, i);
                    set(cx, asm, &mut point, &self.inner(), j);
                    deep_sums(cx, asm, &mut point, &walk.handed);
                    for (at, k) in walk.handed.iter().enumerate() {
                        let v = point.eval(cx, asm, *k);
                        let address = self.place(asm, walk, at, i);
                        asm.store_shared(v, address);
                    }
                    vec![]
                });
                asm.line("bar.sync 0;");
            }
            let totals = asm.for_loop((zero, n, one), totals, |asm, i, totals| {
                let mut point = point.clone();
                let j = asm.bin(Bin::AddI, first, i);
                set(cx, asm, &mut point, &self.inner(), j);
                for (at, k) in walk.handed.iter().enumerate() {
                    let address = self.place(asm, walk, at, i);
                    let elem = scalar::register(def.body[*k].dtype);
                    point.values[*k] = Some(asm.load_shared(address, elem));
                }
                deep_sums(cx, asm, &mut point, &walk.roots(def));
                let totals = self.leaf(asm, walk, &mut point, totals);
                if !walk.stores.is_empty() {
                    asm.if_then(there, |asm| self.stores(asm, &mut point, &walk.stores));
                }
                totals
            });
            if !walk.handed.is_empty() {
                asm.line("bar.sync 0;");
            }
            totals
        });
        for ((k, _, _), v) in walk.reductions.iter().zip(totals) {
            point.values[*k] = Some(scalar::rounded(asm, v, def.body[*k].dtype));
        }
    }

    /// Address in shared memory of the value of statement `walk.handed[at]` at point `i` of those that are in memory.
    fn place(&self, asm: &mut Ptx, walk: &Walk, at: usize, i: Val) -> Val {
        let def = self.cx.def;
        let before: i64 = walk.handed[..at].iter().map(|k| bytes(def, *k) * self.plan.points).sum();
        let base = asm.instruction(Ty::I32, "mov.u32", &["handed".to_string()]);
        let i = asm.cast(Cast::TruncI, i, Elem::I32);
        let (size, before) = (asm.int(bytes(def, walk.handed[at]), Ty::I32), asm.int(before, Ty::I32));
        let offset = asm.bin(Bin::MulI, i, size);
        let offset = asm.bin(Bin::AddI, offset, before);
        asm.bin(Bin::AddI, base, offset)
    }
}
