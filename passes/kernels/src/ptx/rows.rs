//! r = reduce f(load …); store g(r, load …): a warp computes one row, or a block computes one or 32
//!
//! The threads that share a row take consecutive elements of it and combine their results. If a row fits into their
//! registers, each element is loaded and computed once, however many reductions follow each other; otherwise each stage
//! traverses the row again. This choice is made at compile time if the row's length is known, else at the beginning of
//! the kernel. The kernel also tests there whether alignment allows it to move up to 16 bytes at once, if that is
//! possible at all. Both decisions are the same for all threads. If adjacent rows are contiguous in memory and the
//! elements of a row are not, each lane has a row, of which each warp of a block takes every eighth element.

mod movement;

use super::index::{first_item, index, outer_point};
use super::movement::{Launch, Traffic};
use super::team::{Partial, Team, WARP, warp_and_lane};
use super::vector::Vectors;
use super::{Form, GpuPlan, outer_points};
use crate::asm::{Asm, Bin, CmpI, Ptx, Ty, Val};
use crate::cx::Cx;
use crate::def::*;
use crate::eval::Point;
use crate::pass::{Pass, store_rows};
use crate::reduce::{across_lanes, neutral};
use crate::scalar;
use crate::stages::Stages;
use crate::target::Target;
use sardonyx_base::DType;

/// Number of threads of a block in which each warp computes a row.
const BLOCK: i64 = 128;

/// Number of threads of a block that computes one row, or 32 rows with one per lane.
const BLOCK_OF_ONE: i64 = 256;

/// Maximum number of 32-bit registers in which a thread keeps values of a row.
const KEPT_MAX: i64 = 32;

/// Strategy for traversing the elements of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Kept in registers: each thread has `times` groups of `width` consecutive elements.
    Kept {
        /// Number of groups of consecutive elements of a thread.
        times: i64,
        /// Number of consecutive elements of a group.
        width: i64,
    },
    /// Loaded again by each stage.
    Again {
        /// Number of consecutive elements that a thread loads at a time.
        width: i64,
    },
}

/// Compile-time plan of a kernel with reductions.
pub struct Plan {
    /// Passes over the elements of a row, and what each computes.
    pub stages: Stages,
    /// Number of threads that share a row.
    pub threads: i64,
    /// Whether each lane of a warp has its own row.
    pub columns: bool,
    /// Strategies in order of preference, each with the longest row that it supports and whether it needs aligned
    /// vectors. The last one supports every row.
    pub ways: Vec<(Way, i64, bool)>,
    /// Vectors along a row; `None` if elements are moved one at a time.
    pub vectors: Option<Vectors>,
}

fn plan(def: &KernelDef) -> Plan {
    let stages = Stages::of_threads(def);
    let last = def.n_point_vars() - 1;
    let length = def.inner.iter().map(|s| s.as_const()).product::<Option<i64>>();
    let rows = outer_points(def).as_const();
    let columns = !stages.is_across_threads();
    let vectors = Vectors::along(def, last).and_then(|v| v.divides(def.extent(last))).filter(|_| !columns);
    let kept = KEPT_MAX / registers(def, &stages);
    let is_kept = def.inner.len() == 1 && stages.n > 1 && kept > 0;
    let long = length.is_some_and(|n| n > WARP * if is_kept { kept } else { KEPT_MAX });
    let threads = match columns {
        true => BLOCK_OF_ONE / WARP,
        false if long || rows == Some(1) => BLOCK_OF_ONE,
        false => WARP,
    };
    let times = |width: i64| match length {
        Some(n) => ceil(n.max(1), threads * width),
        None => kept / width,
    };
    let fits = |width: i64| length.is_none_or(|n| n <= threads * kept / width * width);
    let mut ways = vec![];
    let width = vectors.as_ref().map_or(1, |v| v.width);
    if is_kept && width > 1 && fits(width) {
        ways.push((Way::Kept { times: times(width), width }, threads * width * times(width), true));
    } else if width > 1 {
        ways.push((Way::Again { width }, i64::MAX, true));
    }
    if is_kept && fits(1) && (width == 1 || length.is_none()) {
        // Without vectors every element takes instructions of its own, so half as many elements are kept if the length
        // of a row is not known.
        let times = if length.is_some() { times(1) } else { ceil(times(1), 2) };
        ways.push((Way::Kept { times, width: 1 }, threads * times, false));
    }
    if !ways.iter().any(|w| !w.2 && length.is_some_and(|n| n <= w.1)) {
        ways.push((Way::Again { width: 1 }, i64::MAX, false));
    }
    Plan { stages, threads, columns, ways, vectors }
}

impl Plan {
    /// Number of rows of a block, and of its threads.
    fn block(&self) -> (i64, i64) {
        match self.threads {
            _ if self.columns => (WARP, BLOCK_OF_ONE),
            WARP => (BLOCK / WARP, BLOCK),
            threads => (1, threads),
        }
    }
}

fn ceil(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}

/// Number of registers that one element takes between stages.
fn registers(def: &KernelDef, stages: &Stages) -> i64 {
    let evaluated = stages.evaluated(def, |k| is_kept(def, stages, k));
    let roots = stages.roots(def);
    let before = |k: usize, stage: usize| evaluated[..stage].iter().any(|e| e.contains(&k));
    let at = |stage: usize| {
        let kept = (0..def.body.len()).filter(|k| is_kept(def, stages, *k) && before(*k, stage));
        let later = |k: &usize| {
            let used = evaluated[stage..].iter().flatten().any(|user| def.operands(*user).contains(k));
            used || roots.iter().any(|(s, root)| *s >= stage && root == k)
        };
        // Computing with f64 takes many registers besides those that are kept.
        let size = |k: usize| if scalar::register(def.body[k].dtype).bits() == 64 { 4 } else { 1 };
        kept.filter(later).map(size).sum::<i64>()
    };
    (1..stages.n).map(at).max().unwrap_or(0).max(1)
}

/// Whether a statement has a value per element that is read from memory, or computed from such values.
pub fn is_kept(def: &KernelDef, stages: &Stages, k: usize) -> bool {
    let read = |k: usize| matches!(def.body[k].op, Op::Load { .. });
    stages.point[k] && (read(k) || def.operands(k).into_iter().any(|a| is_kept(def, stages, a)))
}

/// Plans a kernel with reductions; never returns `None`.
pub fn planned(def: &KernelDef, _: Target) -> Option<Box<dyn GpuPlan>> {
    Some(Box::new(plan(def)))
}

impl GpuPlan for Plan {
    fn requests(&self, launch: &Launch) -> Vec<Traffic> {
        movement::requests(launch, self)
    }

    fn emit(&self, cx: &Cx<Ptx>, asm: &mut Ptx) -> Form {
        emit(cx, asm, self)
    }
}

fn emit(cx: &Cx<Ptx>, asm: &mut Ptx, plan: &Plan) -> Form {
    let rows = outer_points(cx.def);
    let (per_block, threads) = plan.block();
    let (first, n) = (first_item(asm, per_block), cx.dim(asm, &rows));
    let (thread, (warp, lane)) = (asm.special("%tid.x"), warp_and_lane(asm));
    // Index of the row within the block, and of the thread within the row.
    let (row, thread) = match plan.threads {
        _ if plan.columns => (lane, warp),
        WARP => (warp, lane),
        _ => (asm.int(0, Ty::I32), thread),
    };
    let (row, thread) = (index(asm, row), index(asm, thread));
    let item = asm.bin(Bin::AddI, first, row);
    let inside = asm.cmpi(CmpI::Slt, item, n);
    let mut variables = String::new();
    let mut start = |asm: &mut Ptx, item: Val, has_row: Option<Val>| {
        let mut point = Point::new(cx);
        point.vars = outer_point(cx, asm, item);
        let team = Team { threads: plan.threads, thread, has_row };
        choose(cx, asm, plan, &team, &point, 0, &mut variables);
    };
    if plan.columns {
        // Barriers need all threads: threads without a row use the last row, but access none of its elements.
        let one = asm.i64(1);
        let last = asm.bin(Bin::SubI, n, one);
        let item = asm.bin(Bin::MinSI, item, last);
        start(asm, item, Some(inside));
    } else {
        asm.if_then(inside, |asm| start(asm, item, None));
    }
    // If elements are kept and some values have a float type other than f32, additional registers are needed: without
    // `wide`, the assembler would spill some rather than let fewer blocks run at a time.
    let keeps = plan.ways.iter().any(|(way, ..)| matches!(way, Way::Kept { .. }));
    let wide = keeps && cx.def.body.iter().any(|s| s.dtype.is_float() && s.dtype != DType::F32);
    Form { variables, wide, ..Form::of_items(&rows, per_block, threads) }
}

/// Emits the choice of the first strategy whose conditions hold.
fn choose(cx: &Cx<Ptx>, asm: &mut Ptx, plan: &Plan, team: &Team, point: &Point, from: usize, variables: &mut String) {
    let (way, longest, whole) = plan.ways[from];
    let extent = cx.extent(asm, cx.def.n_point_vars() - 1);
    let mut conditions = vec![];
    if from + 1 < plan.ways.len() && cx.def.inner.iter().any(|s| s.as_const().is_none()) && longest < i64::MAX {
        let longest = asm.i64(longest);
        conditions.push(asm.cmpi(CmpI::Sle, extent, longest));
    }
    if let (true, Some(vectors)) = (whole, &plan.vectors) {
        conditions.push(vectors.test(cx, asm));
    }
    let Some(holds) = conditions.into_iter().reduce(|a, b| asm.bin(Bin::AndI, a, b)) else {
        return through(cx, asm, plan, team, point.clone(), way, variables);
    };
    // Both branches declare the same variables.
    let (mut first, mut others) = (String::new(), String::new());
    asm.if_else(
        holds,
        &[],
        |asm| {
            through(cx, asm, plan, team, point.clone(), way, &mut first);
            vec![]
        },
        |asm| {
            choose(cx, asm, plan, team, point, from + 1, &mut others);
            vec![]
        },
    );
    variables.push_str(&first);
}

/// Computes one row with one strategy.
fn through(cx: &Cx<Ptx>, asm: &mut Ptx, plan: &Plan, team: &Team, mut point: Point, way: Way, variables: &mut String) {
    let (Way::Kept { width, .. } | Way::Again { width }) = way;
    let mut parts = parts(cx, asm, team, way);
    for stage in 0..plan.stages.n {
        let pass = Pass::new(cx.def, &plan.stages, stage);
        pass.hoist(cx, asm, &mut point, cx.def.inner_vars());
        let mut totals = vec![];
        for &(k, f, _) in &pass.reductions {
            let t = cx.def.body[k].dtype;
            totals.push(neutral(asm, f, t, Ty::new(scalar::register(t), width as u32)));
        }
        if parts.is_empty() {
            let walk = Walk { cx, pass: &pass, team, width };
            totals = walk.nest(asm, &point, cx.def.outer.len(), totals);
        } else {
            totals = asm.variables(&totals);
            parts.iter_mut().for_each(|part| part.takes(cx, plan, &point));
            each_part(cx, asm, &pass, team, &mut parts, &totals);
        }
        let mut partials = vec![];
        for (&(k, f, _), total) in pass.reductions.iter().zip(totals) {
            let t = cx.def.body[k].dtype;
            let value = across_lanes(asm, f, t, total);
            partials.push(Partial { k, f, t, value });
        }
        let results = team.reduce(asm, partials, variables);
        for (&(k, _, _), v) in pass.reductions.iter().zip(results) {
            point.values[k] = Some(scalar::rounded(asm, v, cx.def.body[k].dtype));
        }
    }
    let speaks = team.is_first(asm);
    asm.if_then(speaks, |asm| store_rows(cx, asm, &plan.stages, &mut point));
}

/// A group of consecutive elements of a row that a thread keeps.
struct Part {
    point: Point,
    /// Whether the elements may be beyond the end of the row.
    bounded: bool,
}

fn parts(cx: &Cx<Ptx>, asm: &mut Ptx, team: &Team, way: Way) -> Vec<Part> {
    let Way::Kept { times, width } = way else { return vec![] };
    let last = cx.def.n_point_vars() - 1;
    let width_value = asm.i64(width);
    let first = asm.bin(Bin::MulI, team.thread, width_value);
    let mut parts = vec![];
    for time in 0..times {
        let mut point = Point::new(cx);
        let (before, behind) = (asm.i64(time * team.threads * width), (time + 1) * team.threads * width);
        point.vars[last] = Some(if time == 0 { first } else { asm.bin(Bin::AddI, first, before) });
        (point.along, point.lanes, point.aligned) = (last, width as u32, width > 1);
        let bounded = team.has_row.is_some() || cx.def.extent(last).as_const().is_none_or(|n| n < behind);
        parts.push(Part { point, bounded });
    }
    parts
}

impl Part {
    /// Copies the values that exist once per row from `row`, and drops those that can be recomputed without reading
    /// memory.
    fn takes(&mut self, cx: &Cx<Ptx>, plan: &Plan, row: &Point) {
        for k in 0..cx.def.body.len() {
            if !plan.stages.point[k] {
                self.point.values[k] = row.values[k];
            } else if !is_kept(cx.def, &plan.stages, k) {
                self.point.values[k] = None;
            }
        }
        for v in 0..cx.def.outer.len() {
            self.point.vars[v] = row.vars[v];
        }
    }
}

/// Emits a stage for the parts. The code of each part is nested in the bounds check of the previous one, so that short
/// rows end early.
fn each_part(cx: &Cx<Ptx>, asm: &mut Ptx, pass: &Pass, team: &Team, parts: &mut [Part], totals: &[Val]) {
    let Some((part, rest)) = parts.split_first_mut() else { return };
    let last = cx.def.n_point_vars() - 1;
    let bounded = part.bounded;
    let at = part.point.vars[last].expect("set with the parts");
    let mut body = |asm: &mut Ptx| {
        let next = pass.combine(cx, asm, &mut part.point, totals, |r| r);
        pass.store(cx, asm, &mut part.point);
        totals.iter().zip(next).for_each(|(total, next)| asm.set(*total, next));
        each_part(cx, asm, pass, team, rest, totals);
    };
    if !bounded {
        return body(asm);
    }
    let extent = cx.extent(asm, last);
    let length = team.length(asm, extent);
    let inside = asm.cmpi(CmpI::Slt, at, length);
    asm.if_then(inside, body);
}

/// A stage as loops over the inner variables, with the threads side by side along the last one.
struct Walk<'a> {
    cx: &'a Cx<'a, Ptx>,
    pass: &'a Pass<'a>,
    team: &'a Team,
    width: i64,
}

impl Walk<'_> {
    fn nest(&self, asm: &mut Ptx, point: &Point, var: usize, totals: Vec<Val>) -> Vec<Val> {
        let (cx, extent) = (self.cx, self.cx.extent(asm, var));
        if var + 1 < cx.def.n_point_vars() {
            let (zero, one) = (asm.i64(0), asm.i64(1));
            return asm.for_loop((zero, extent, one), &totals, |asm, i, totals| {
                let mut point = point.clone();
                point.vars[var] = Some(i);
                self.pass.hoist(cx, asm, &mut point, cx.def.inner_vars() >> (var + 1) << (var + 1));
                self.nest(asm, &point, var + 1, totals.to_vec())
            });
        }
        let (width, step) = (asm.i64(self.width), asm.i64(self.width * self.team.threads));
        let first = asm.bin(Bin::MulI, self.team.thread, width);
        let length = self.team.length(asm, extent);
        asm.for_loop((first, length, step), &totals, |asm, i, totals| {
            let mut point = point.clone();
            point.vars[var] = Some(i);
            (point.along, point.lanes, point.aligned) = (var, self.width as u32, self.width > 1);
            let next = self.pass.combine(cx, asm, &mut point, totals, |r| r);
            self.pass.store(cx, asm, &mut point);
            next
        })
    }
}
