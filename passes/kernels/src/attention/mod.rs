//! o[b, i, e] = softmaxj(g(Σd q[b, i, d] · k[b, j, d])) · v[b, j, e], f32  =>  register-blocked code, by blocks of keys
//!
//! b is a head of a batch element, i a query, j a key, and d and e are elements of a head. g computes x from a
//! score, for example by scaling and masking. A work item is one b and a chunk of rows i. Chunks are the fastest
//! index, so that a thread reuses the keys that it has transposed. The rows of a chunk visit the keys in blocks and
//! keep the largest x, the total (sum of exponentials) and the mixture (weighted sum of values) so far; a larger x
//! in a later block scales the totals and mixtures of earlier blocks down. For each block, a few rows at a time
//! compute their scores, in scratch that stays in the first-level cache, then the weights, then their share of the
//! mixture.
//!
//! The order in which terms are added depends on the number of keys and elements only, so that the result of a row
//! depends on no other row, and hidden (masked) keys after the visible ones do not change the result.

mod block;
mod class;
mod finish;
mod lists;
mod operands;
mod plan;
mod segments;
mod tiles;
mod weights;

use super::asm::{Asm, Bin, CmpI, Elem, Mlir, Val};
use super::contract::Blocks;
use super::cx::{Cx, decode, whole_steps};
use super::def::{Op, VarSet};
use super::eval::Point;
use super::scalar;
use crate::cpu::CpuPlan;
use crate::def::KernelDef;
pub use plan::{CHUNK, WIDTH};
use plan::{Plan, STATE_STEP, TILE, Walked};
use sardonyx_base::Dim;
use sardonyx_base::cpu::Extension;
use std::sync::Arc;

/// Work item: a chunk of rows of one head of a batch element.
#[derive(Clone)]
struct Item<'a> {
    cx: &'a Cx<'a, Mlir>,
    plan: &'a Plan,
    /// Point at which the batch variables have values.
    point: Point,
    /// First row, and number of rows.
    i0: Val,
    rows: Val,
    n_keys: Val,
    /// Returns whether the rows are a single group: then no other group of the item uses the transposed keys.
    alone: Val,
    /// Scratch for the chunk's queries [rows][d].
    queries: Val,
    /// Scores, later weights, of a group of rows: [rows][keys].
    scores: Val,
    /// Mixtures [rows][e].
    mixed: Val,
    /// Four floats per row: see `State`.
    state: Val,
    /// One vector per row of a group: maxima, later sums, of which the lanes are still to be reduced.
    partial: Val,
    /// Copy of the keys of a panel [keys][d], used if keys are computed, rounded, or not contiguous along d in memory.
    staged: Val,
    /// Block of keys, transposed into panels [d][keys].
    panels: Val,
    /// Block of values [keys][e], used if values are copied.
    values: Val,
    /// Whether a word holds two bf16 that are adjacent along the reduction: in queries, panels, weights and values.
    pairs: bool,
    /// Whether words are multiplied in AMX tiles.
    tiles: bool,
    /// Whether x = g(score) is computed from the scores while they are in registers.
    at_once: bool,
}

/// State kept per row.
#[derive(Clone, Copy)]
enum State {
    /// Largest x (a score after g) so far.
    Max,
    /// Number subtracted from each x before the exponential.
    Shift,
    /// Σ exp(x - shift) so far.
    Total,
    /// Factor that scales the total and the mixtures of the earlier blocks when the current block is added.
    Fade,
}

/// A block of `n` keys, from `j0` on.
#[derive(Clone, Copy)]
struct Keys {
    j0: Val,
    n: Val,
    /// Whether these are the first keys that the rows visit.
    fresh: Val,
}

/// The `n` rows of a work item, from `row` on, that are computed together in registers or tiles.
#[derive(Clone, Copy)]
struct Group {
    row: Val,
    n: Val,
}

pub fn planned(def: &KernelDef) -> Option<Arc<dyn CpuPlan>> {
    Some(Arc::new(plan::plan(def)?))
}

fn emit(cx: &Cx<Mlir>, asm: &mut Mlir, plan: &Plan) {
    tiles::with_tile_config(cx, asm, plan, |asm| {
        match &plan.walked {
            Walked::All => {}
            Walked::Segments(segments) => return segments::emit(cx, asm, plan, segments),
            Walked::Lists(lists) => return lists::emit(cx, asm, plan, lists),
        }
        let (one, none) = (asm.i64(1), asm.i64(-1));
        asm.for_loop((cx.launch.begin, cx.launch.end, one), &[none], |asm, item, kept| {
            let item = Item::new(cx, asm, plan, item);
            vec![item.run(asm, kept[0])]
        });
    });
}

/// Returns the context for emitting `def`, the kernel of one run of rows or keys, into the same function.
fn runs_of<'a>(cx: &Cx<Mlir>, def: &'a KernelDef) -> Cx<'a, Mlir> {
    Cx {
        def,
        deps: def.dependences(),
        params: cx.params.clone(),
        reads: cx.reads.clone(),
        writes: cx.writes.clone(),
        status: cx.status,
        launch: cx.launch,
    }
}

impl<'a> Item<'a> {
    /// Creates the work item number `item`.
    fn new(cx: &'a Cx<'a, Mlir>, asm: &mut Mlir, plan: &'a Plan, item: Val) -> Item<'a> {
        let def = cx.def;
        let mut extents: Vec<Val> = plan.batch.iter().map(|v| cx.extent(asm, *v)).collect();
        let n_chunks = cx.dim(asm, &plan.n_chunks(def));
        extents.push(n_chunks);
        let at = decode(asm, item, &extents);
        let mut point = Point::new(cx);
        plan.batch.iter().zip(&at).for_each(|(v, at)| point.vars[*v] = Some(*at));
        let mut parts = vec![];
        let mut offset = Dim::constant(0);
        for part in plan.parts(def) {
            let at = cx.dim(asm, &offset);
            parts.push(asm.element(cx.launch.scratch, at, Elem::F32));
            offset = offset + part;
        }
        let (i0, rows) = chunk(cx, asm, plan, at[at.len() - 1], n_chunks);
        let [queries, scores, mixed, state, partial, staged, panels, values] = parts[..] else {
            unreachable!("eight parts")
        };
        let (level, n_keys) = (cx.launch.level, cx.extent(asm, plan.j));
        let tiles = plan.uses_tiles(level);
        let alone = is_alone(cx, asm, plan, rows);
        let at_once = !tiles && plan.applies_at_once(def, &cx.deps);
        Item {
            cx,
            plan,
            point,
            i0,
            rows,
            n_keys,
            alone,
            queries,
            scores,
            mixed,
            state,
            partial,
            staged,
            panels,
            values,
            pairs: plan.narrow && level.has(Extension::Pairs) && plan.n_d % 2 == 0,
            tiles,
            at_once,
        }
    }

    /// Returns a number that identifies a work item's keys: items with equal numbers have the same keys.
    fn keys_number(&self, asm: &mut Mlir) -> Val {
        let (cx, plan) = (self.cx, self.plan);
        let zero = asm.i64(0);
        // Copies of values are reused together with the keys, so the variables of the values count too.
        if let (Some(keys), false) = (&plan.keys, plan.copies_values()) {
            let mut point = self.point.clone();
            (point.vars[plan.j], point.vars[plan.d]) = (Some(zero), Some(zero));
            return point.start(cx, asm, keys, None);
        }
        let kept = cx.deps[plan.right] | if plan.copies_values() { cx.deps[plan.value] } else { 0 };
        plan.batch.iter().filter(|v| kept >> **v & 1 == 1).fold(zero, |number, v| {
            let extent = cx.extent(asm, *v);
            let number = asm.bin(Bin::MulI, number, extent);
            asm.bin(Bin::AddI, number, self.point.vars[*v].expect("a batch variable"))
        })
    }

    /// Emits the attention of all rows over the keys of one block. `other` says whether the panels in scratch hold
    /// other keys, so that the block's keys must be transposed.
    fn block(&self, asm: &mut Mlir, keys: Keys, other: Val) {
        let blocks = Blocks::for_level(self.cx.launch.level);
        let sizes = if self.tiles { vec![] } else { blocks.sizes(&self.row_counts()) };
        let (zero, width) = (asm.i64(0), asm.i64(WIDTH));
        if self.plan.copies_values() {
            asm.if_then(other, |asm| self.copy_values(asm, keys));
        }
        asm.do_while(&[zero], |asm, at| {
            let left = asm.bin(Bin::SubI, self.rows, at[0]);
            let n = match sizes[..] {
                [only] => asm.i64(only),
                _ => next_group(self.cx, asm, self.plan, left),
            };
            let group = Group { row: at[0], n };
            let first = asm.cmpi(CmpI::Eq, at[0], zero);
            let copied = asm.bin(Bin::AndI, first, other);
            if self.at_once {
                self.clear_largest(asm, group);
            }
            asm.for_loop((zero, keys.n, width), &[], |asm, first, _| {
                let panel = self.panel(asm, first);
                asm.if_then(copied, |asm| self.transpose_keys(asm, keys, first, panel));
                match self.tiles {
                    true => self.score_in_tiles(asm, group, first, panel),
                    false => by_size(asm, &sizes, n, &mut |asm, size| {
                        self.score(asm, group, size, keys, first, panel);
                    }),
                }
                vec![]
            });
            self.weigh(asm, group, keys);
            match self.tiles {
                true => self.mix_in_tiles(asm, group, keys),
                false => by_size(asm, &sizes, n, &mut |asm, size| self.mix(asm, group, size, keys)),
            }
            let next = asm.bin(Bin::AddI, at[0], n);
            (asm.cmpi(CmpI::Slt, next, self.rows), vec![next])
        });
    }

    /// Returns the address of the panel of keys from `first` of the block on. If there is a single group, all panels
    /// share one location in scratch.
    fn panel(&self, asm: &mut Mlir, first: Val) -> Val {
        let (step, zero) = (asm.i64(self.plan.row_step()), asm.i64(0));
        let at = asm.bin(Bin::MulI, first, step);
        let at = asm.select(self.alone, zero, at);
        asm.element(self.panels, at, Elem::F32)
    }

    /// Returns the number of words in a row of queries or keys.
    fn n_words(&self) -> i64 {
        if self.pairs { self.plan.n_d / 2 } else { self.plan.n_d }
    }

    /// Returns the distance from one row of words to the next, in units of 4 bytes.
    fn word_step(&self) -> i64 {
        if self.pairs { self.plan.row_step() / 2 } else { self.plan.row_step() }
    }

    /// Returns the possible numbers of rows of a work item.
    fn row_counts(&self) -> Vec<i64> {
        let (group, n_rows) = (self.plan.group(), self.plan.n_rows(self.cx.def).as_const());
        if let Some(rows) = self.plan.rows_of_list() {
            return n_rows.map_or((1..=rows).collect(), |n| vec![rows, n % rows]);
        }
        match n_rows {
            Some(n) if n <= CHUNK => vec![n],
            Some(n) => (group..=CHUNK).step_by(group as usize).flat_map(|c| [c, c - group + n % group]).collect(),
            None => (1..=CHUNK).collect(),
        }
    }

    /// Returns the address of a row's state of one kind; consecutive rows are adjacent.
    fn state(&self, asm: &mut Mlir, what: State, row: Val) -> Val {
        let at = plus(asm, row, what as i64 * STATE_STEP);
        asm.element(self.state, at, Elem::F32)
    }

    /// Returns the point at which the batch variables and the row variables have the values of row `row` of the chunk.
    fn row_point(&self, asm: &mut Mlir, row: Val) -> Point {
        let (cx, mut point) = (self.cx, self.point.clone());
        let row = asm.bin(Bin::AddI, self.i0, row);
        let extents: Vec<Val> = self.plan.rows.iter().map(|v| cx.extent(asm, *v)).collect();
        let at = decode(asm, row, &extents);
        self.plan.rows.iter().zip(at).for_each(|(v, at)| point.vars[*v] = Some(at));
        point
    }
}

/// Returns how many of the remaining `left` rows the next group has.
fn next_group(cx: &Cx<Mlir>, asm: &mut Mlir, plan: &Plan, left: Val) -> Val {
    let level = cx.launch.level;
    if !plan.uses_tiles(level) {
        return Blocks::for_level(level).emit_next(asm, left);
    }
    let tile = asm.i64(TILE);
    asm.bin(Bin::MinSI, left, tile)
}

/// Returns whether the rows are a single group.
fn is_alone(cx: &Cx<Mlir>, asm: &mut Mlir, plan: &Plan, rows: Val) -> Val {
    let first = next_group(cx, asm, plan, rows);
    asm.cmpi(CmpI::Eq, first, rows)
}

/// Returns the first row and the number of rows of chunk `chunk`. A chunk has the rows that share a list of keys;
/// without lists, the numbers of groups per chunk differ by at most one.
fn chunk(cx: &Cx<Mlir>, asm: &mut Mlir, plan: &Plan, chunk: Val, n_chunks: Val) -> (Val, Val) {
    let n_rows = plan.n_rows(cx.def);
    if let Some(rows) = plan.rows_of_list() {
        let (rows, n_rows) = (asm.i64(rows), cx.dim(asm, &n_rows));
        let first = asm.bin(Bin::MulI, chunk, rows);
        let left = asm.bin(Bin::SubI, n_rows, first);
        return (first, asm.bin(Bin::MinSI, left, rows));
    }
    let n_groups = cx.dim(asm, &n_rows.ceildiv(&Dim::constant(plan.group())));
    let (n_rows, one, group) = (cx.dim(asm, &n_rows), asm.i64(1), asm.i64(plan.group()));
    let behind = asm.bin(Bin::AddI, chunk, one);
    let [first, end] = [chunk, behind].map(|chunk| {
        let groups = asm.bin(Bin::MulI, chunk, n_groups);
        let groups = asm.bin(Bin::DivUI, groups, n_chunks);
        asm.bin(Bin::MulI, groups, group)
    });
    let end = asm.bin(Bin::MinSI, end, n_rows);
    (first, asm.bin(Bin::SubI, end, first))
}

/// Calls `body` with the run-time value `size`, one of `sizes`, as a compile-time number.
fn by_size(asm: &mut Mlir, sizes: &[i64], size: Val, body: &mut dyn FnMut(&mut Mlir, i64)) {
    let [this, others @ ..] = sizes else { return };
    if others.is_empty() {
        return body(asm, *this);
    }
    let value = asm.i64(*this);
    let here = asm.cmpi(CmpI::Eq, size, value);
    let body = std::cell::RefCell::new(body);
    asm.if_else(
        here,
        &[],
        |asm| {
            body.borrow_mut()(asm, *this);
            vec![]
        },
        |asm| {
            by_size(asm, others, size, &mut **body.borrow_mut());
            vec![]
        },
    );
}

/// Calls `body` at the points along a variable of known extent `n`: with full vectors, then on the remainder, under a
/// mask if `masks`, else one element at a time.
fn along(
    cx: &Cx<Mlir>,
    asm: &mut Mlir,
    point: &Point,
    (var, n): (usize, i64),
    masks: bool,
    body: impl Fn(&mut Mlir, Point),
) {
    let lanes = cx.lanes() as i64;
    let whole = n / lanes * lanes;
    let loop_over = |asm: &mut Mlir, lo: i64, hi: i64, lanes: i64| {
        let range = (asm.i64(lo), asm.i64(hi), asm.i64(lanes));
        asm.for_loop(range, &[], |asm, at, _| {
            let mut point = point.clone();
            point.vars[var] = Some(at);
            (point.along, point.lanes, point.in_steps) = (var, lanes as u32, true);
            body(asm, point);
            vec![]
        });
    };
    if whole > 0 {
        loop_over(asm, 0, whole, lanes);
    }
    if whole < n && masks {
        let (at, rest) = (asm.i64(whole), asm.i64(n - whole));
        let point = point.masked_lanes(asm, var, at, rest, lanes as u32);
        body(asm, point);
    } else if whole < n {
        loop_over(asm, whole, n, 1);
    }
}

/// Returns whether the CPU level has masked instructions for all loads among these statements and their operands.
fn has_masks(cx: &Cx<Mlir>, mut open: Vec<usize>) -> bool {
    let mut seen = vec![false; cx.def.body.len()];
    while let Some(k) = open.pop() {
        if std::mem::replace(&mut seen[k], true) {
            continue;
        }
        if let Op::Load { access, .. } = &cx.def.body[k].op
            && !is_wide(cx, &cx.def.reads[access.buffer])
        {
            return false;
        }
        open.extend(cx.def.operands(k));
    }
    true
}

fn is_wide(cx: &Cx<Mlir>, storage: &super::def::Storage) -> bool {
    cx.launch.level.has(Extension::Masks) || scalar::stored(storage.dtype).bits() >= 32
}

/// Evaluates the operands of a statement that do not depend on the variables in `coming`, which get their values
/// later.
fn hoist(cx: &Cx<Mlir>, asm: &mut Mlir, point: &mut Point, statement: usize, coming: VarSet) {
    let (mut open, mut ready) = (vec![statement], vec![]);
    let mut seen = vec![false; cx.def.body.len()];
    while let Some(k) = open.pop() {
        if std::mem::replace(&mut seen[k], true) || matches!(cx.def.body[k].op, Op::Reduce { .. }) {
            continue;
        }
        if cx.deps[k] & coming != 0 {
            open.extend(cx.def.operands(k));
        } else if !matches!(cx.def.body[k].op, Op::Const(_)) {
            ready.push(k);
        }
    }
    ready.sort();
    for k in ready {
        point.eval(cx, asm, k);
    }
}

fn plus(asm: &mut Mlir, v: Val, c: i64) -> Val {
    if c == 0 {
        return v;
    }
    let c = asm.i64(c);
    asm.bin(Bin::AddI, v, c)
}

/// Returns the address of base[row · step + column].
fn at(asm: &mut Mlir, base: Val, row: Val, step: i64, column: Val) -> Val {
    let step = asm.i64(step);
    let start = asm.bin(Bin::MulI, row, step);
    let at = asm.bin(Bin::AddI, start, column);
    asm.element(base, at, Elem::F32)
}

/// Returns n / by, rounded up.
fn ceildiv(asm: &mut Mlir, n: Val, by: i64) -> Val {
    let (n, by) = (plus(asm, n, by - 1), asm.i64(by));
    asm.bin(Bin::DivUI, n, by)
}

/// Returns n rounded up to a multiple of `of`.
fn round_up(asm: &mut Mlir, n: Val, of: i64) -> Val {
    let n = plus(asm, n, of - 1);
    let zero = asm.i64(0);
    whole_steps(asm, zero, n, of)
}
