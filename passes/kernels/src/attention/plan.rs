//! Recognises the parts of attention: which statements are the score, the maximum, the weights and the mixture (the
//! weighted sum of values)

use super::lists::Lists;
use super::segments::Segments;
use crate::contract::{is_one_instruction, tiles};
use crate::def::*;
use sardonyx_base::cpu::{Extension, Level};
use sardonyx_base::dim::Symbol;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::scalar::{Conversion, ReduceFn, ScalarFn};

/// Number of keys that are transposed and scored together.
pub const WIDTH: i64 = 32;

/// Number of keys of a block: their scores for one group of rows stay in the first-level cache, the keys and values in
/// the second.
pub const BLOCK: i64 = 512;

/// Floats between two rows of scores; rows at a power of two would share a set of the cache.
pub const SCORE_STEP: i64 = BLOCK + 16;

/// Maximum number of rows of a work item: the rows that use each copy of a block of keys.
pub const CHUNK: i64 = 96;

/// Maximum number of rows that are scored together; work items begin at multiples of it.
pub const GROUP: i64 = 12;

/// Rows of a tile and words per tile row; with bf16 operands, work items begin at multiples of it.
pub const TILE: i64 = tiles::ROWS;

/// Floats reserved for each kind of row state: a vector of them may begin at the last row.
pub const STATE_STEP: i64 = CHUNK + SQUARE_MAX;

/// Side of the squares that the widest level transposes in registers.
pub const SQUARE_MAX: i64 = 16;

/// Statements and variables of o[i, e] = Σj exp(x[i, j] - shift) · v[j, e] with x = g(Σd left[i, d] · right[j, d]).
#[derive(Clone, Debug)]
pub struct Plan {
    /// Variables that count batches and heads.
    pub batch: Vec<usize>,
    /// Variables that count queries: positions, and heads that share their keys. Empty if there is a single query.
    pub rows: Vec<usize>,
    pub j: usize,
    pub d: usize,
    pub e: usize,
    pub n_d: i64,
    pub n_e: i64,
    pub left: usize,
    pub right: usize,
    /// Access to the queries and floats from row to row, if they can be read in place: contiguous along d, rows not
    /// aliased.
    pub queries: Option<(Access, i64)>,
    /// Access to the keys if they are contiguous along d; `None` if they must be staged.
    pub keys: Option<Access>,
    /// Access to the values before any rounding, if they are plain loads that are contiguous along e.
    pub values: Option<Access>,
    /// Statement of values[j, e], rounded if the products are narrow.
    pub value: usize,
    /// Whether all operands of both products are rounded to bf16.
    pub narrow: bool,
    /// Statement of Σd left · right.
    pub score: usize,
    /// Statement of x = g(score), the value whose exponential is taken.
    pub x: usize,
    /// Statement of maxj x.
    pub max: usize,
    /// Statement of the number that is subtracted from x, computed from `max`.
    pub shift: usize,
    /// Statement of Σj exp(x - shift).
    pub total: usize,
    /// Statement of Σj exp(x - shift) · v, or of Σj exp(x - shift) / divisor · v.
    pub sum: usize,
    pub divisor: Option<usize>,
    /// Statements of sum / divisor and of this divisor, one per row, if the kernel divides after the sum.
    pub quotient: Option<(usize, usize)>,
    pub walked: Walked,
}

/// Keys that a row visits. Unless it visits all of them, the rest of the plan describes the kernel of one run.
#[derive(Clone, Debug)]
pub enum Walked {
    All,
    /// Tables hold the first key and the number of keys of each row.
    Segments(Box<Segments>),
    /// Each block of rows has a list of keys.
    Lists(Box<Lists>),
}

/// Returns the plan, or `None` if the kernel does not have a form that this emitter supports.
pub fn plan(def: &KernelDef) -> Option<Plan> {
    if let Some(segments) = Segments::find(def) {
        let plan = shared_keys_plan(&segments.def)?;
        // First key and number of keys of a row may depend on row variables only.
        let fits = segments.moved_by(def) & !plan.row_vars() == 0;
        return fits.then(|| Plan { walked: Walked::Segments(Box::new(segments)), ..plan });
    }
    let Some(lists) = Lists::found(def) else { return shared_keys_plan(def) };
    let plan = shared_keys_plan(&lists.def)?;
    (plan.rows == [lists.row]).then(|| Plan { walked: Walked::Lists(Box::new(lists)), ..plan })
}

/// Maximum number of statements from the score to x, without constants, that are repeated for every register.
const AT_ONCE_MAX: usize = 4;

impl Plan {
    /// The variables that count queries.
    pub fn row_vars(&self) -> VarSet {
        self.rows.iter().fold(0, |set, v| set | 1 << v)
    }

    /// Whether x is cheap to compute from the score and from loads that all rows of a batch element share: scaling, key
    /// mask.
    pub fn applies_at_once(&self, def: &KernelDef, deps: &[VarSet]) -> bool {
        let rows = self.row_vars();
        let seen = self.made_for_x(def);
        let fits = |k: usize| {
            def.body[k].dtype == DType::F32
                && match &def.body[k].op {
                    Op::Const(_) => true,
                    Op::Load { access, guard } => guard.is_none() && access.computed.is_empty() && deps[k] & rows == 0,
                    Op::Apply { f, .. } => is_one_instruction(*f),
                    Op::Index(_) | Op::Convert(_, _) | Op::Reduce { .. } => false,
                }
        };
        seen.iter().all(|k| fits(*k))
            && seen.iter().filter(|k| !matches!(def.body[**k].op, Op::Const(_))).count() <= AT_ONCE_MAX
    }

    /// Statements that x is computed from, without the score and its operands.
    fn made_for_x(&self, def: &KernelDef) -> Vec<usize> {
        let (mut open, mut seen) = (vec![self.x], vec![]);
        while let Some(k) = open.pop() {
            if k != self.score && !seen.contains(&k) {
                seen.push(k);
                open.extend(def.operands(k));
            }
        }
        seen
    }

    /// Loads that x is computed from, without those of the score.
    pub fn loads_of_x(&self, def: &KernelDef) -> impl Iterator<Item = usize> {
        self.made_for_x(def).into_iter().filter(|k| matches!(def.body[*k].op, Op::Load { .. }))
    }
}

/// The parts of a kernel in which all rows of a batch element have the same keys.
fn shared_keys_plan(def: &KernelDef) -> Option<Plan> {
    let ([_], [_]) = (&def.inner[..], &def.deep[..]) else { return None };
    let (j, d) = (def.outer.len(), def.outer.len() + 1);
    let parts = Parts { def, deps: def.dependences(), inner: def.inner_vars() };
    let reductions = parts.reductions();
    if reductions.len() != 4 {
        return None;
    }
    let find = |holds: &dyn Fn(ReduceFn, usize) -> bool| reductions.iter().find(|r| holds(r.1, r.2)).copied();
    let (score, _, product) = find(&|f, arg| f == ReduceFn::Add && parts.deps[arg] >> d & 1 == 1)?;
    let (max, _, x) = find(&|f, _| f == ReduceFn::Max)?;
    let (total, _, power) = find(&|f, arg| f == ReduceFn::Add && parts.apply(arg, ScalarFn::Exp).is_some())?;
    let (sum, _, mixed) = find(&|f, arg| f == ReduceFn::Add && arg != product && arg != power)?;
    let shift = parts.shift_of(power, x)?;
    let (weight, value, values, e) = parts.mixture(mixed, j)?;
    let (divisor, rounded) = parts.divisor_of(weight, power)?;
    let (left, right) = parts.factors(product, j)?;
    let narrow = [left, right, value].map(|k| parts.rounded(k).is_some());
    if narrow.iter().any(|n| *n != rounded) {
        return None;
    }
    let has = |k: usize, v: usize| parts.deps[k] >> v & 1 == 1;
    let shares = |v: &usize| !has(right, *v) && !has(value, *v);
    let (rows, batch): (Vec<usize>, Vec<usize>) = (0..def.outer.len()).filter(|v| *v != e).partition(shares);
    let quotient = parts.quotient_of(sum, e);
    let at = |v: usize| def.extent(v).as_const().filter(|n| (1..=1024).contains(n));
    let floats = [left, right, product, score, x, max, shift, power, total, weight, mixed, sum];
    let rows_alone = [Some(shift), divisor].into_iter().flatten().all(|k| parts.deps[k] & (parts.inner | 1 << e) == 0);
    let fits = floats.iter().all(|k| def.body[*k].dtype == DType::F32)
        && ![left, right, x].iter().any(|k| has(*k, e))
        && has(right, j)
        && rows_alone
        && parts.made_of(left, &[])
        && parts.made_of(right, &[])
        && parts.made_of(value, &[])
        && parts.made_of(x, &[score])
        && parts.made_of(shift, &[max])
        && divisor.is_none_or(|k| parts.made_of(k, &[max, total]))
        && parts.stores_rows();
    let keys = parts.plain(right, j).filter(|a| a.stride(d).is(1)).cloned();
    let queries =
        parts.plain(left, j).filter(|a| a.stride(d).is(1)).and_then(|a| Some((a.clone(), in_place(a, &rows)?)));
    let (n_d, n_e) = (at(d)?, at(e)?);
    fits.then_some(Plan {
        batch,
        rows,
        j,
        d,
        e,
        n_d,
        n_e,
        left,
        right,
        queries,
        keys,
        values,
        value,
        narrow: rounded,
        score,
        x,
        max,
        shift,
        total,
        sum,
        divisor,
        quotient,
        walked: Walked::All,
    })
}

/// Rows at multiples of this many bytes fall into the same sets of a first-level cache and evict each other.
const ALIASED: i64 = 4096;

/// Returns the distance in floats between adjacent rows of a load, if it is a constant and the rows of a group do not
/// alias in the cache.
fn in_place(access: &Access, rows: &[usize]) -> Option<i64> {
    let [row] = rows else { return None };
    let step = access.stride(*row).as_const().filter(|_| access.computed.is_empty())?;
    (step > 0 && step * 4 % ALIASED != 0).then_some(step)
}

struct Parts<'a> {
    def: &'a KernelDef,
    deps: Vec<VarSet>,
    inner: VarSet,
}

impl<'a> Parts<'a> {
    fn reductions(&self) -> Vec<(usize, ReduceFn, usize)> {
        let reduction = |(k, s): (usize, &Step)| match s.op {
            Op::Reduce { f, arg } => Some((k, f, arg)),
            Op::Load { .. } | Op::Const(_) | Op::Index(_) | Op::Apply { .. } | Op::Convert(_, _) => None,
        };
        self.def.body.iter().enumerate().filter_map(reduction).collect()
    }

    /// Arguments of a statement that applies this function.
    fn apply(&self, k: usize, wanted: ScalarFn) -> Option<&'a [usize]> {
        match &self.def.body[k].op {
            Op::Apply { f, args } if *f == wanted => Some(args),
            Op::Apply { .. }
            | Op::Load { .. }
            | Op::Const(_)
            | Op::Index(_)
            | Op::Convert(_, _)
            | Op::Reduce { .. } => None,
        }
    }

    /// Matches exp(x - shift); returns shift.
    fn shift_of(&self, power: usize, x: usize) -> Option<usize> {
        let [below] = *self.apply(power, ScalarFn::Exp)? else { return None };
        let [from, shift] = *self.apply(below, ScalarFn::Sub)? else { return None };
        (from == x).then_some(shift)
    }

    /// Returns x if a statement is f32(bf16(x)), rounded to nearest.
    fn rounded(&self, k: usize) -> Option<usize> {
        let converted = |k: usize, to: DType| match self.def.body[k] {
            Step { op: Op::Convert(from, Conversion::Value), dtype } if dtype == to => Some(from),
            _ => None,
        };
        let from = converted(converted(k, DType::F32)?, DType::BF16)?;
        (self.def.body[from].dtype == DType::F32).then_some(from)
    }

    /// Matches weight · values[.., j, .., e] in either order. Returns the weight, the value, its access if it is a
    /// plain load, and e, the variable along which the value or a load that it is computed from is contiguous.
    fn mixture(&self, product: usize, j: usize) -> Option<(usize, usize, Option<Access>, usize)> {
        let [a, b] = *self.apply(product, ScalarFn::Mul)? else { return None };
        let plain = [(a, b), (b, a)].into_iter().find_map(|(weight, value)| {
            let access = self.plain(self.rounded(value).unwrap_or(value), j)?;
            Some((weight, value, Some(access.clone()), self.columns(weight, access)?))
        });
        plain.or_else(|| {
            // A weight is computed from reductions; a value is not.
            let is_value = |k: usize| self.made_of(k, &[]);
            let (weight, value) = [(a, b), (b, a)].into_iter().find(|(w, v)| !is_value(*w) && is_value(*v))?;
            let mut loads = self.loads(value).into_iter();
            loads.find_map(|access| Some((weight, value, None, self.columns(weight, access)?)))
        })
    }

    /// Variable along which a load is contiguous and on which the weights do not depend.
    fn columns(&self, weight: usize, access: &Access) -> Option<usize> {
        let columns = (0..self.def.outer.len()).filter(|v| self.deps[weight] >> v & 1 == 0);
        let e = columns.filter(|v| access.stride(*v).is(1)).max()?;
        let moved = access.computed.iter().any(|c| c.expr.variables().contains(&e));
        (!moved).then_some(e)
    }

    /// Loads that a statement is computed from.
    fn loads(&self, k: usize) -> Vec<&'a Access> {
        match &self.def.body[k].op {
            Op::Load { access, .. } if self.def.reads[access.buffer].panels.is_none() => vec![access],
            _ => self.def.operands(k).into_iter().flat_map(|k| self.loads(k)).collect(),
        }
    }

    /// Returns the divisor of the weight, or `None` if the weight is the exponential `power` itself; and whether the
    /// exponential is rounded first.
    fn divisor_of(&self, weight: usize, power: usize) -> Option<(Option<usize>, bool)> {
        let is_power = |k: usize| match self.rounded(k) {
            Some(from) => (from == power).then_some(true),
            None => (k == power).then_some(false),
        };
        if let Some(rounded) = is_power(weight) {
            return Some((None, rounded));
        }
        let [over, divisor] = *self.apply(weight, ScalarFn::Div)? else { return None };
        Some((Some(divisor), is_power(over)?))
    }

    /// Matches sum / divisor, if this is the only use of the sum and there is one divisor per row.
    fn quotient_of(&self, sum: usize, e: usize) -> Option<(usize, usize)> {
        let mut uses = (0..self.def.body.len()).filter(|k| self.def.operands(*k).contains(&sum));
        let (quotient, None) = (uses.next()?, uses.next()) else { return None };
        let [over, divisor] = *self.apply(quotient, ScalarFn::Div)? else { return None };
        let per_row = self.deps[divisor] & (self.inner | 1 << e) == 0;
        (over == sum && per_row && self.def.stores.iter().all(|w| w.value != sum)).then_some((quotient, divisor))
    }

    /// Returns an operand that does not depend on the key, and the other operand.
    fn factors(&self, product: usize, j: usize) -> Option<(usize, usize)> {
        let [a, b] = *self.apply(product, ScalarFn::Mul)? else { return None };
        let moves = |k: usize| self.deps[k] >> j & 1 == 1;
        match (moves(a), moves(b)) {
            (false, _) => Some((a, b)),
            (true, false) => Some((b, a)),
            (true, true) => None,
        }
    }

    /// Access of an unguarded load whose offset is linear in the inner variables.
    fn plain(&self, k: usize, j: usize) -> Option<&'a Access> {
        let Op::Load { access, guard: None } = &self.def.body[k].op else { return None };
        // A constant statement may be a value set from outside, such as the first key of a run.
        let given = |k: usize| matches!(self.def.body[k].op, Op::Const(_));
        let fixed = |s: &Symbol| s.variable().is_none_or(|v| v < j) && s.statement().is_none_or(given);
        let own_place = |c: &Computed| c.limit.is_none() && c.expr.symbols().iter().all(fixed);
        let fits = access.computed.iter().all(own_place) && self.def.reads[access.buffer].panels.is_none();
        fits.then_some(access)
    }

    /// Whether a statement depends on no reductions other than these.
    fn made_of(&self, k: usize, reductions: &[usize]) -> bool {
        let mut open = vec![k];
        let mut seen = vec![false; self.def.body.len()];
        while let Some(k) = open.pop() {
            if reductions.contains(&k) || std::mem::replace(&mut seen[k], true) {
                continue;
            }
            if matches!(self.def.body[k].op, Op::Reduce { .. }) {
                return false;
            }
            open.extend(self.def.operands(k));
        }
        true
    }

    /// Whether every store is executed once per outer point.
    fn stores_rows(&self) -> bool {
        let in_rows = |w: &Write| (self.deps[w.value] | self.def.access_vars(&w.access, &self.deps)) & self.inner == 0;
        self.def.stores.iter().all(in_rows)
    }
}

impl Plan {
    pub fn n_rows(&self, def: &KernelDef) -> Dim {
        self.rows.iter().fold(Dim::constant(1), |n, v| n * def.extent(*v).dim())
    }

    pub fn n_chunks(&self, def: &KernelDef) -> Dim {
        self.n_rows(def).ceildiv(&Dim::constant(self.rows_of_list().unwrap_or(CHUNK)))
    }

    /// Number of rows that share one list of keys, if keys are listed.
    pub fn rows_of_list(&self) -> Option<i64> {
        match &self.walked {
            Walked::All | Walked::Segments(_) => None,
            Walked::Lists(lists) => Some(lists.rows),
        }
    }

    /// Maximum number of rows that any level scores together.
    pub fn group(&self) -> i64 {
        if self.narrow { TILE } else { GROUP }
    }

    /// Whether a level multiplies this plan's operands in tiles.
    pub fn uses_tiles(&self, level: Level) -> bool {
        level.has(Extension::Tiles) && self.tiles_hold_factors()
    }

    /// Whether the operands fit into tiles: they are bf16, and d is a multiple of a tile's elements.
    pub fn tiles_hold_factors(&self) -> bool {
        self.narrow && self.n_d % (2 * TILE) == 0
    }

    /// Whether values are copied before they are multiplied: if they are rounded, or computed with a partial last
    /// vector.
    pub fn copies_values(&self) -> bool {
        self.narrow || (self.values.is_none() && self.n_e % SQUARE_MAX != 0)
    }

    /// Elements of a copied row of queries or keys, padded to full squares for the transpose.
    pub fn row_step(&self) -> i64 {
        (self.n_d + SQUARE_MAX - 1) / SQUARE_MAX * SQUARE_MAX
    }

    /// Elements of a row of mixtures in scratch.
    pub fn mixed_step(&self) -> i64 {
        (self.n_e + WIDTH - 1) / WIDTH * WIDTH
    }

    /// Rows of the largest work item, padded to full tiles if the operands are narrow.
    fn rows_max(&self, def: &KernelDef) -> i64 {
        let rows = self.n_rows(def).as_const().map_or(CHUNK, |n| n.clamp(1, CHUNK));
        if self.narrow { (rows + TILE - 1) / TILE * TILE } else { rows }
    }

    /// Number of floats of each part of the scratch, in order.
    pub fn parts(&self, def: &KernelDef) -> [Dim; 8] {
        let rows = self.rows_max(def);
        let n_keys = def.extent(self.j).dim().minimum(&Dim::constant(BLOCK));
        let n_panels = n_keys.ceildiv(&Dim::constant(WIDTH));
        let copied = if self.copies_values() { n_panels.clone() * Dim::constant(WIDTH) } else { Dim::constant(0) };
        [
            Dim::constant(rows * self.row_step()),
            Dim::constant(self.group() * SCORE_STEP),
            Dim::constant(rows * self.mixed_step()),
            Dim::constant(4 * STATE_STEP),
            Dim::constant(SQUARE_MAX * SQUARE_MAX),
            Dim::constant(if self.keys.is_some() { 0 } else { WIDTH * self.row_step() }),
            n_panels * Dim::constant(WIDTH * self.row_step()),
            copied * Dim::constant(self.mixed_step()),
        ]
    }
}
