//! for %0.. in outer { for %k.. in inner { r = reduce f(load …) }; for … { store g(r, load …) } }: softmax, layer norm
//!
//! A work item is one outer point (one row), or a block of neighbouring ones. The inner space is passed over once per
//! *stage*: a statement's stage is the number of reductions, one behind the other, that it waits for. What a later
//! stage needs again is recomputed, unless that is expensive: then it is kept in scratch.

use super::asm::{Asm, Elem, Ty, Val};
use super::def::*;
use super::eval::{Cx, Point, decode};
use super::map::whole_steps;
use super::scalar;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_runtime::{DType, Dim};

/// Neighbouring outer points of one work item, where lanes run along them.
const BLOCK: i64 = 64;

/// Lanes of the widest variant.
const LANES_MAX: i64 = 16;

/// Which variable lanes run along.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lanes {
    /// The innermost reduced one: a row's elements are combined lane by lane, then across.
    Inner,
    /// The innermost parallel one: each lane is a row of its own.
    Outer,
    /// The innermost reduced one, along the threads of a warp.
    Threads,
}

/// What each pass over the inner space computes.
pub struct Stages {
    lanes: Lanes,
    pub n: usize,
    /// Per statement: the reductions that must be complete before it can be evaluated.
    of: Vec<usize>,
    /// Per statement: whether it is evaluated per inner point.
    pub point: Vec<bool>,
    /// Per statement: the stage that first evaluates it, where one does.
    first: Vec<Option<usize>>,
    /// Statements kept in scratch, with the byte offset of each one's row.
    kept: Vec<(usize, Dim)>,
    scratch_bytes: Dim,
}

fn lanes_of(def: &KernelDef) -> Lanes {
    let Some(outer) = def.outer.len().checked_sub(1) else { return Lanes::Inner };
    let inner = def.n_vars() - 1;
    let deps = def.dependences();
    let loads = def.body.iter().filter_map(|s| match &s.op {
        Op::Load { access, .. } => Some((access, &def.reads[access.buffer])),
        Op::Const(_) | Op::Index(_) | Op::Apply { .. } | Op::Convert(_) | Op::Reduce { .. } => None,
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
    if scattered(inner) > 0 && scattered(outer) == 0 && !small { Lanes::Outer } else { Lanes::Inner }
}

impl Stages {
    /// For threads of a GPU: one row by a warp, or by a thread where neighbouring rows are neighbours in memory.
    pub fn of_threads(def: &KernelDef) -> Stages {
        match lanes_of(def) {
            Lanes::Outer => stages_along(def, Lanes::Outer),
            Lanes::Inner | Lanes::Threads => stages_along(def, Lanes::Threads),
        }
    }

    pub fn is_across_threads(&self) -> bool {
        self.lanes == Lanes::Threads
    }

    /// (stage, statement) for every value that a pass is made for.
    pub fn roots(&self, def: &KernelDef) -> Vec<(usize, usize)> {
        roots(def, &self.of, &self.point)
    }

    /// Per stage the statements that it evaluates: again where an earlier stage has, unless values are `kept`.
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

fn stages(def: &KernelDef) -> Stages {
    stages_along(def, lanes_of(def))
}

fn stages_along(def: &KernelDef, lanes: Lanes) -> Stages {
    let deps = def.dependences();
    let point: Vec<bool> = deps.iter().map(|d| d & def.inner_vars() != 0).collect();
    let mut of: Vec<usize> = vec![];
    for (k, step) in def.body.iter().enumerate() {
        let before = def.operands(k).into_iter().map(|a| of[a]).max().unwrap_or(0);
        of.push(before + matches!(step.op, Op::Reduce { .. }) as usize);
    }
    let roots: Vec<(usize, usize)> = roots(def, &of, &point);
    let n = roots.iter().map(|(stage, _)| stage + 1).max().unwrap_or(0);
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
            if first[k].is_some_and(|f| f < stage) && heavy[k] && lanes == Lanes::Inner {
                if !kept.contains(&k) {
                    kept.push(k);
                }
                continue;
            }
            first[k].get_or_insert(stage);
            open.extend(def.operands(k));
        }
    }
    let elements = def.inner.iter().fold(Dim::constant(1), |p, e| p * e.dim());
    let mut scratch_bytes = Dim::constant(0);
    let mut with_offsets = vec![];
    for k in kept {
        let bytes = scalar::register(def.body[k].dtype).bits() as i64 / 8;
        with_offsets.push((k, scratch_bytes.clone()));
        // The last vector of a row is written whole.
        scratch_bytes = scratch_bytes + (elements.clone() + Dim::constant(LANES_MAX)) * Dim::constant(bytes);
    }
    Stages { lanes, n, of, point, first, kept: with_offsets, scratch_bytes }
}

/// (stage, statement) for every value that a pass over the inner space is made for.
fn roots(def: &KernelDef, of: &[usize], point: &[bool]) -> Vec<(usize, usize)> {
    let reductions = def.body.iter().filter_map(|s| match s.op {
        Op::Reduce { arg, .. } => Some((of[arg], arg)),
        Op::Load { .. } | Op::Const(_) | Op::Index(_) | Op::Apply { .. } | Op::Convert(_) => None,
    });
    let stores = def.stores.iter().filter(|w| is_point_store(def, w, point));
    let values = stores.flat_map(|w| {
        let operands = [vec![w.value], access_values(&w.access)].concat();
        let stage = operands.iter().map(|k| of[*k]).max().unwrap_or(0);
        operands.into_iter().map(move |k| (stage, k))
    });
    reductions.chain(values).collect()
}

/// Written per inner point: because the value is, or because the place is.
fn is_point_store(def: &KernelDef, write: &Write, point: &[bool]) -> bool {
    let moved = (def.outer.len()..def.n_vars()).any(|v| write.access.moves_with(v));
    point[write.value] || moved || access_values(&write.access).iter().any(|k| point[*k])
}

/// Whether recomputing a statement costs more than storing and loading it.
fn heavy(def: &KernelDef, point: &[bool]) -> Vec<bool> {
    let mut heavy: Vec<bool> = vec![];
    for (k, step) in def.body.iter().enumerate() {
        let itself = match &step.op {
            Op::Apply { f, .. } => costs_much(*f),
            Op::Load { access, .. } => !access.computed.is_empty(),
            Op::Const(_) | Op::Index(_) | Op::Convert(_) | Op::Reduce { .. } => false,
        };
        let below = def.operands(k).into_iter().any(|a| heavy[a]);
        heavy.push(point[k] && step.dtype != DType::Bool && (itself || below));
    }
    heavy
}

fn costs_much(f: ScalarFn) -> bool {
    use ScalarFn::*;
    match f {
        Cos | Div | Erf | Exp | Log | Pow | Rem | Sin | Sqrt | Tanh => true,
        Abs | Add | And | Ceil | Eq | Floor | IsNan | Le | Lt | Max | Min | Mul | Neg | Not | Or | Round | Select
        | Sign | Sub | Xor => false,
    }
}

pub fn grid(def: &KernelDef) -> Dim {
    let rows = def.outer.iter().fold(Dim::constant(1), |p, e| p * e.dim());
    match (lanes_of(def), def.outer.split_last()) {
        (Lanes::Outer, Some((last, others))) => {
            let others = others.iter().fold(Dim::constant(1), |p, e| p * e.dim());
            others * last.dim().ceildiv(&Dim::constant(BLOCK))
        }
        (Lanes::Inner | Lanes::Threads, _) | (Lanes::Outer, None) => rows,
    }
}

pub fn scratch_bytes(def: &KernelDef) -> Dim {
    stages(def).scratch_bytes
}

pub fn emit(cx: &Cx, asm: &mut Asm) {
    let stages = stages(cx.def);
    let one = asm.i64(1);
    let n = cx.def.outer.len();
    asm.for_loop((cx.cpu().begin, cx.cpu().end, one), &[], |asm, item, _| {
        let mut point = Point::new(cx);
        let mut extents: Vec<Val> = (0..n).map(|v| cx.extent(asm, v)).collect();
        if stages.lanes == Lanes::Inner {
            let at = decode(asm, item, &extents);
            (0..n).for_each(|v| point.vars[v] = Some(at[v]));
            row(cx, asm, &stages, point);
            return vec![];
        }
        let last = n - 1;
        let (extent, block) = (extents[last], asm.i64(BLOCK));
        let n_blocks = cx.def.outer[last].dim().ceildiv(&Dim::constant(BLOCK));
        extents[last] = cx.dim(asm, &n_blocks);
        let at = decode(asm, item, &extents);
        (0..last).for_each(|v| point.vars[v] = Some(at[v]));
        let lo = asm.bin("arith.muli", at[last], block);
        let hi = asm.bin("arith.addi", lo, block);
        let hi = asm.bin("arith.minsi", hi, extent);
        let lanes = cx.lanes();
        let wide = whole_steps(asm, lo, hi, lanes as i64);
        let loops = [(lo, wide, lanes), (wide, hi, 1)];
        for (lo, hi, lanes) in &loops[..if cx.has_masks() { 1 } else { 2 }] {
            let step = asm.i64(*lanes as i64);
            asm.for_loop((*lo, *hi, step), &[], |asm, i, _| {
                let mut point = point.clone();
                point.vars[last] = Some(i);
                (point.along, point.lanes) = (last, *lanes);
                row(cx, asm, &stages, point);
                vec![]
            });
        }
        if cx.has_masks() {
            let rest = asm.bin("arith.subi", hi, wide);
            let some = asm.cmpi("ne", wide, hi);
            asm.if_then(some, |asm| {
                let point = point.masked_lanes(asm, last, wide, rest, lanes);
                row(cx, asm, &stages, point);
            });
        }
        vec![]
    });
}

/// Writes what is stored once per outer point.
pub fn store_rows(cx: &Cx, asm: &mut Asm, stages: &Stages, point: &mut Point) {
    for write in cx.def.stores.iter().filter(|w| !is_point_store(cx.def, w, &stages.point)) {
        point.store(cx, asm, write);
    }
}

/// All stages of one outer point, then what is stored once per outer point.
fn row(cx: &Cx, asm: &mut Asm, stages: &Stages, mut point: Point) {
    for stage in 0..stages.n {
        pass(cx, asm, stages, stage, &mut point);
    }
    store_rows(cx, asm, stages, &mut point);
}

/// One pass over the inner space: its reductions and its stores.
pub struct Pass<'a> {
    stages: &'a Stages,
    stage: usize,
    /// (statement, function, argument)
    pub reductions: Vec<(usize, ReduceFn, usize)>,
    stores: Vec<&'a Write>,
    /// Vectors combined independently of each other, to hide the latency of the combining instruction.
    unroll: usize,
    /// One more accumulator per reduction, for elements that are taken one by one.
    singles: bool,
}

fn pass(cx: &Cx, asm: &mut Asm, stages: &Stages, stage: usize, point: &mut Point) {
    let def = cx.def;
    let mut pass = Pass::new(def, stages, stage);
    let is_heavy = (0..def.body.len()).any(|k| stages.first[k] == Some(stage) && heavy(def, &stages.point)[k]);
    pass.unroll = match stages.lanes {
        Lanes::Outer | Lanes::Threads => 1,
        Lanes::Inner if is_heavy => 2,
        Lanes::Inner => 4,
    };
    pass.singles = stages.lanes == Lanes::Inner && !cx.has_masks();
    pass.hoist(cx, asm, point, def.inner_vars());
    let lanes = match stages.lanes {
        Lanes::Inner => cx.lanes(),
        Lanes::Outer | Lanes::Threads => point.lanes,
    };
    let mut accumulators = vec![];
    for &(k, f, _) in &pass.reductions {
        let elem = scalar::register(def.body[k].dtype);
        let start = neutral(asm, f, def.body[k].dtype, Ty::new(elem, lanes));
        accumulators.extend(vec![start; pass.unroll]);
        if pass.singles {
            accumulators.push(neutral(asm, f, def.body[k].dtype, Ty::new(elem, 1)));
        }
    }
    let totals = pass.nest(cx, asm, point, def.outer.len(), accumulators);
    let width = pass.width();
    for (i, &(k, f, _)) in pass.reductions.iter().enumerate() {
        let t = def.body[k].dtype;
        let parts = &totals[i * width..(i + 1) * width];
        let mut v = tree(asm, f, t, parts[..pass.unroll].to_vec());
        if stages.lanes == Lanes::Inner {
            v = across_lanes(asm, f, t, v);
        }
        if pass.singles {
            v = combine(asm, f, t, v, parts[pass.unroll]);
        }
        let v = scalar::rounded(asm, v, t);
        // A sum over values that are the same on all lanes is so itself.
        let varies = point.lanes > 1 && cx.deps[k] >> point.along & 1 == 1;
        point.values[k] = Some(if varies { v } else { asm.extract(v, 0) });
    }
}

impl<'a> Pass<'a> {
    pub fn new(def: &'a KernelDef, stages: &'a Stages, stage: usize) -> Pass<'a> {
        let reductions = def.body.iter().enumerate().filter_map(|(k, s)| match s.op {
            Op::Reduce { f, arg } if stages.of[arg] == stage => Some((k, f, arg)),
            _ => None,
        });
        let in_stage = |w: &&Write| {
            let values = [vec![w.value], access_values(&w.access)].concat();
            is_point_store(def, w, &stages.point) && values.iter().map(|k| stages.of[*k]).max() == Some(stage)
        };
        let (reductions, stores) = (reductions.collect(), def.stores.iter().filter(in_stage).collect());
        Pass { stages, stage, reductions, stores, unroll: 1, singles: false }
    }

    /// Accumulators per reduction.
    fn width(&self) -> usize {
        self.unroll + self.singles as usize
    }

    /// Evaluates what does not move with the variables that are still to come.
    pub fn hoist(&self, cx: &Cx, asm: &mut Asm, point: &mut Point, coming: VarSet) {
        let mut open: Vec<usize> = self.reductions.iter().map(|r| r.2).collect();
        for w in &self.stores {
            open.push(w.value);
            open.extend(access_values(&w.access));
        }
        let mut seen = vec![false; cx.def.body.len()];
        let mut ready = vec![];
        while let Some(k) = open.pop() {
            if std::mem::replace(&mut seen[k], true) || self.is_loaded(k) {
                continue;
            }
            if cx.deps[k] & coming == 0 && !matches!(cx.def.body[k].op, Op::Const(_)) {
                ready.push(k);
            } else {
                open.extend(cx.def.operands(k));
            }
        }
        ready.sort();
        for k in ready {
            point.eval(cx, asm, k);
        }
    }

    /// Whether this pass takes a statement from scratch.
    fn is_loaded(&self, k: usize) -> bool {
        self.stages.first[k].is_some_and(|f| f < self.stage) && self.stages.kept.iter().any(|(kept, _)| *kept == k)
    }

    /// The loops from variable `var` inwards.
    fn nest(&self, cx: &Cx, asm: &mut Asm, point: &Point, var: usize, accumulators: Vec<Val>) -> Vec<Val> {
        let (zero, one, extent) = (asm.i64(0), asm.i64(1), cx.extent(asm, var));
        let innermost = var + 1 == cx.def.n_vars();
        if innermost && self.stages.lanes == Lanes::Inner {
            return self.innermost(cx, asm, point, var, accumulators);
        }
        asm.for_loop((zero, extent, one), &accumulators, |asm, i, accumulators| {
            let mut point = point.clone();
            point.vars[var] = Some(i);
            if innermost {
                return self.leaf(cx, asm, &mut point, accumulators, |r| r);
            }
            self.hoist(cx, asm, &mut point, cx.def.inner_vars() >> (var + 1) << (var + 1));
            self.nest(cx, asm, &point, var + 1, accumulators.to_vec())
        })
    }

    /// Several vectors at a time, then one, then what is left: as a masked vector, or element by element.
    fn innermost(&self, cx: &Cx, asm: &mut Asm, point: &Point, var: usize, mut accumulators: Vec<Val>) -> Vec<Val> {
        let (mut lo, extent) = (asm.i64(0), cx.extent(asm, var));
        let lanes = cx.lanes();
        let loops = [(self.unroll, lanes), (1, lanes), (1, 1)];
        for (vectors, lanes) in &loops[..if self.singles { 3 } else { 2 }] {
            let step = *vectors as i64 * *lanes as i64;
            let hi = whole_steps(asm, lo, extent, step);
            let step = asm.i64(step);
            accumulators = asm.for_loop((lo, hi, step), &accumulators, |asm, i, accumulators| {
                let mut accumulators = accumulators.to_vec();
                for vector in 0..*vectors {
                    let mut point = point.clone();
                    let at = asm.i64(vector as i64 * *lanes as i64);
                    point.vars[var] = Some(if vector == 0 { i } else { asm.bin("arith.addi", i, at) });
                    (point.along, point.lanes) = (var, *lanes);
                    let slot = if *lanes == 1 { self.unroll } else { vector };
                    accumulators = self.leaf(cx, asm, &mut point, &accumulators, |r| r * self.width() + slot);
                }
                accumulators
            });
            lo = hi;
        }
        if self.singles || cx.def.extent(var).as_const().is_some_and(|n| n % lanes as i64 == 0) {
            return accumulators;
        }
        let rest = asm.bin("arith.subi", extent, lo);
        let some = asm.cmpi("ne", lo, extent);
        let tys: Vec<Ty> = accumulators.iter().map(|a| a.ty).collect();
        asm.if_else(
            some,
            &tys,
            |asm| {
                let mut point = point.masked_lanes(asm, var, lo, rest, lanes);
                self.leaf(cx, asm, &mut point, &accumulators, |r| r * self.width())
            },
            |_| accumulators.clone(),
        )
    }

    /// One step: evaluates, combines into the accumulators `slot(r)`, stores.
    pub fn leaf(
        &self,
        cx: &Cx,
        asm: &mut Asm,
        point: &mut Point,
        accumulators: &[Val],
        slot: impl Fn(usize) -> usize,
    ) -> Vec<Val> {
        let mut accumulators = accumulators.to_vec();
        for (k, offset) in self.stages.kept.iter().filter(|(k, _)| self.is_loaded(*k)) {
            let (address, ty) = self.kept_row(cx, asm, point, *k, offset);
            point.values[*k] = Some(asm.load(address, ty, 4));
        }
        for (r, &(k, f, arg)) in self.reductions.iter().enumerate() {
            let v = point.eval(cx, asm, arg);
            let total = &mut accumulators[slot(r)];
            let v = asm.widen(v, total.ty.lanes);
            let next = combine(asm, f, cx.def.body[k].dtype, *total, v);
            *total = match point.mask {
                Some(mask) if self.stages.lanes == Lanes::Inner => asm.select(mask, next, *total),
                Some(_) | None => next,
            };
        }
        for write in &self.stores {
            point.store(cx, asm, write);
        }
        for (k, offset) in &self.stages.kept {
            if self.stages.first[*k] == Some(self.stage) {
                let v = point.eval(cx, asm, *k);
                let (address, ty) = self.kept_row(cx, asm, point, *k, offset);
                let v = asm.widen(v, ty.lanes);
                asm.store(v, address, 4);
            }
        }
        accumulators
    }

    /// Where a kept statement's value for this point lies in scratch.
    fn kept_row(&self, cx: &Cx, asm: &mut Asm, point: &Point, k: usize, offset: &Dim) -> (Val, Ty) {
        let varies = cx.deps[k] >> point.along & 1 == 1;
        let ty = Ty::new(scalar::register(cx.def.body[k].dtype), if varies { point.lanes } else { 1 });
        let offset = cx.dim(asm, offset);
        let base = asm.element(cx.cpu().scratch, offset, Elem::I8);
        let mut index: Option<Val> = None;
        for var in cx.def.outer.len()..cx.def.n_vars() {
            let at = point.vars[var].expect("inside all loops");
            index = Some(match index {
                None => at,
                Some(sum) => {
                    let extent = cx.extent(asm, var);
                    let rows = asm.bin("arith.muli", sum, extent);
                    asm.bin("arith.addi", rows, at)
                }
            });
        }
        let address = asm.element(base, index.expect("an inner variable"), ty.elem);
        (address, ty)
    }
}

pub fn neutral(asm: &mut Asm, f: ReduceFn, t: DType, ty: Ty) -> Val {
    let bits = ty.elem.bits();
    let largest = if t.is_signed_int() { i64::MAX >> (64 - bits) } else { -1 };
    let smallest = if t.is_signed_int() { i64::MIN >> (64 - bits) } else { 0 };
    match (f, t.is_float()) {
        (ReduceFn::Add, _) => asm.zero(ty),
        (ReduceFn::Mul, true) => asm.float(1.0, ty),
        (ReduceFn::Mul, false) => asm.int(1, ty),
        (ReduceFn::Max, true) => asm.float(f64::NEG_INFINITY, ty),
        (ReduceFn::Min, true) => asm.float(f64::INFINITY, ty),
        (ReduceFn::Max, false) => asm.int(smallest, ty),
        (ReduceFn::Min, false) => asm.int(largest, ty),
    }
}

/// Combines two partial results; f16 and bf16 partial results stay in f32.
pub fn combine(asm: &mut Asm, f: ReduceFn, t: DType, a: Val, b: Val) -> Val {
    let t = if a.ty.elem == Elem::F32 { DType::F32 } else { t };
    let f = match (t, f) {
        (DType::Bool, ReduceFn::Add | ReduceFn::Max) => ScalarFn::Or,
        (DType::Bool, ReduceFn::Mul | ReduceFn::Min) => ScalarFn::And,
        (_, f) => f.scalar(),
    };
    scalar::apply(asm, f, &[a, b], t)
}

pub fn tree(asm: &mut Asm, f: ReduceFn, t: DType, mut parts: Vec<Val>) -> Val {
    while parts.len() > 1 {
        let next = parts.chunks(2).map(|p| if p.len() == 2 { combine(asm, f, t, p[0], p[1]) } else { p[0] });
        parts = next.collect();
    }
    parts[0]
}

/// The upper half onto the lower one, until one lane is left.
pub fn across_lanes(asm: &mut Asm, f: ReduceFn, t: DType, v: Val) -> Val {
    let mut v = v;
    while v.ty.lanes > 1 {
        let half = v.ty.lanes / 2;
        let low = asm.shuffle(v, v, &(0..half).collect::<Vec<u32>>());
        let high = asm.shuffle(v, v, &(half..2 * half).collect::<Vec<u32>>());
        v = if half == 1 {
            let (low, high) = (asm.extract(v, 0), asm.extract(v, 1));
            combine(asm, f, t, low, high)
        } else {
            combine(asm, f, t, low, high)
        };
    }
    v
}
