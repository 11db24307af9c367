//! Recognises the parts of a contraction: which loads are A and B, which variables are m, n and k

use super::staged::{LINES, Staged, padded_load};
use super::stored::{Copies, unwidened};
use crate::def::*;
use crate::words::Words;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use std::ops::Deref;

/// Number of columns of a panel.
pub const WIDTH: i64 = 32;

/// Rows of a work item of f32: a multiple of every level's block size.
const CHUNK: i64 = 48;

/// Up to this many remaining rows are distributed over the full work items, because an item with few rows would read as
/// much of B as a full one.
const MORE: i64 = 12;

/// Number of chunks of rows that process all panels together, while their A stays in the second-level cache.
pub const GROUP: i64 = 4;

/// Side of the squares that the widest level transposes in registers.
pub const SQUARE_MAX: i64 = 16;

/// Layout in which operand B is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A constant packed in panels.
    Panels,
    /// Columns are contiguous in memory.
    Rows,
    /// Any other layout: a panel is copied to scratch first.
    Copied,
}

/// Plan of a contraction that is computed in register blocks.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Operands and variables; if A is staged, `a` is its access in scratch.
    pub roles: Roles,
    /// Variables besides `m` that move only A and the result (the lines of an image): if `m` has few rows, a work item
    /// covers several points of the last one.
    pub slabs: Vec<usize>,
    /// Layout in which operand B is read.
    pub form: Form,
    /// Number and type of the elements along K that one multiplication takes.
    pub words: Words,
    /// Whether the epilogue is applied to registers; otherwise a loop applies it to a tile in scratch.
    pub direct: bool,
    /// One fold per sum over groups; empty for other contractions.
    pub folds: Vec<Fold>,
    /// How A is computed in scratch if it is not a load; the products then read it from scratch.
    pub staged: Option<Staged>,
}

/// How the accumulator of one group is added to the accumulator of all groups.
#[derive(Clone, Copy, Debug)]
pub struct Fold {
    /// Statement that reduces the products of one group.
    pub part: usize,
    /// Statement computed from `part` (mostly by scaling), which the reduction over the groups adds up.
    pub value: usize,
}

/// Loads and variables of the parts of a contraction, independent of how it is computed.
#[derive(Clone, Debug)]
pub struct Roles {
    /// Access of operand A; with `root`, of the load that `root` is computed from.
    pub a: Access,
    /// Statement of operand A if it is not the load `a` itself but computed from it.
    pub root: Option<usize>,
    /// One entry per reduction.
    pub sums: Vec<Sum>,
    /// Outer variables other than `m` and `n`, outermost first; those of a plan exclude its slabs.
    pub batch: Vec<usize>,
    /// Outer variable of the rows, with which A moves and no B does; `None` if there is none.
    pub m: Option<usize>,
    /// Outer variable of the columns, with which every B moves.
    pub n: usize,
    /// Innermost reduction variable.
    pub k: usize,
    /// Other reduction variables, outermost first: the offsets of a window, or the groups of K.
    pub around: Vec<usize>,
    /// Whether A moves with the columns too and is contiguous along them, like B: each column has its own operand A, as
    /// a channel has in a depthwise convolution.
    pub diagonal: bool,
}

/// A reduction of products: the number of its statement, and its operand B.
#[derive(Clone, Debug)]
pub struct Sum {
    /// Statement of the reduction.
    pub reduce: usize,
    /// Access of operand B, a load without a guard.
    pub b: Access,
}

impl Roles {
    /// Operand B of the first reduction. In a plan, those of the other reductions differ only in their buffers and
    /// offsets.
    pub fn b(&self) -> &Access {
        &self.sums[0].b
    }

    /// Whether statement `k` is one of the reductions.
    pub fn is_sum(&self, k: usize) -> bool {
        self.sums.iter().any(|s| s.reduce == k)
    }
}

impl Deref for Plan {
    type Target = Roles;

    fn deref(&self) -> &Roles {
        &self.roles
    }
}

/// The plan of a contraction with one reduction level.
pub fn plan(def: &KernelDef) -> Option<Plan> {
    let plans = |words: Words| {
        let found = if words == Words::Singles { singles(def) } else { word_candidates(def, words) };
        found.into_iter().filter_map(move |(score, r)| Some((score, blocked(def, r, words, vec![])?)))
    };
    let (_, plan) = Words::ALL.into_iter().flat_map(plans).max_by_key(|(score, _)| *score)?;
    Some(plan)
}

/// Candidates for a contraction whose operands are multiplied as f32, whatever their type in memory.
fn singles(def: &KernelDef) -> Vec<(i64, Roles)> {
    let unwidened = |(sum, [a, b]): (usize, [usize; 2])| (sum, [unwidened(def, a), unwidened(def, b)]);
    found(def, factors(def, &[DType::F32]).map(|factors| factors.into_iter().map(unwidened).collect()), 1)
}

/// Possible roles of a contraction whose operands have one of these types, each with its score. With several
/// reductions, A is the operand they have in common.
pub fn candidates(def: &KernelDef, dtypes: &[DType]) -> Vec<(i64, Roles)> {
    found(def, factors(def, dtypes), 1)
}

/// Candidates for operands that are widened before they are multiplied, with B in panels of such words.
pub fn word_candidates(def: &KernelDef, words: Words) -> Vec<(i64, Roles)> {
    let [sum, left, right] = words.dtypes();
    widened(def, sum, [&[left], &[right]], words.depth())
}

/// Candidates whose operands A and B have these types and are widened to `sum`; all B operands must have the same type.
pub fn widened(def: &KernelDef, sum: DType, types: [&[DType]; 2], depth: i64) -> Vec<(i64, Roles)> {
    let mut found = found(def, widened_factors(def, sum, types), depth);
    let dtype = |access: &Access| def.reads[access.buffer].dtype;
    let alike = |r: &Roles| r.sums.iter().all(|s| dtype(&s.b) == dtype(r.b()));
    found.retain(|(_, r)| types[0].contains(&dtype(&r.a)) && types[1].contains(&dtype(r.b())) && alike(r));
    found
}

/// Reductions, and the two operands of each.
type Factors = Vec<(usize, [usize; 2])>;

fn found(def: &KernelDef, factors: Option<Factors>, depth: i64) -> Vec<(i64, Roles)> {
    let Some(factors) = factors else { return vec![] };
    let common = |k: &usize| factors.iter().all(|(_, f)| f.contains(k));
    let as_a = |a: usize| {
        let other = |f: &[usize; 2]| if f[0] == a { f[1] } else { f[0] };
        let sum = |(reduce, f): &(usize, [usize; 2])| Some(Sum { reduce: *reduce, b: plain(def, other(f))?.clone() });
        let sums = factors.iter().map(sum).collect::<Option<_>>()?;
        let (load, root) = match plain(def, a) {
            Some(load) => (load, None),
            None => (padded_load(def, a)?, Some(a)),
        };
        let (score, found) = roles(def, load, sums, depth)?;
        Some((score, Roles { root, ..found }))
    };
    factors[0].1.into_iter().filter(common).filter_map(as_a).collect()
}

/// Returns every reduction and its two operands, if all reductions and operands have the same type, one of `dtypes`.
fn factors(def: &KernelDef, dtypes: &[DType]) -> Option<Factors> {
    let sum = |(reduce, s): (usize, &Step)| match s.op {
        Op::Reduce { arg, .. } => Some((reduce, arg)),
        Op::Load { .. } | Op::Const(_) | Op::Index(_) | Op::Apply { .. } | Op::Convert(_, _) => None,
    };
    let sums: Vec<(usize, usize)> = def.body.iter().enumerate().filter_map(sum).collect();
    let dtype = def.body[sums.first()?.0].dtype;
    let factors = |&(reduce, arg): &(usize, usize)| {
        let Op::Apply { f: ScalarFn::Mul, args } = &def.body[arg].op else { return None };
        let [left, right] = args[..] else { return None };
        let same = [reduce, arg, left, right].iter().all(|s| def.body[*s].dtype == dtype);
        (same && dtypes.contains(&dtype)).then_some((reduce, [left, right]))
    };
    sums.iter().map(factors).collect()
}

/// Returns every reduction and its two operands before they are widened to `sum`, if all operands are widened from one
/// of `types`.
fn widened_factors(def: &KernelDef, sum: DType, types: [&[DType]; 2]) -> Option<Factors> {
    let narrow = |k: usize| match def.body[k].op {
        Op::Convert(from, Conversion::Value) if types.concat().contains(&def.body[from].dtype) => Some(from),
        _ => None,
    };
    let widened = |(reduce, [left, right]): (usize, [usize; 2])| Some((reduce, [narrow(left)?, narrow(right)?]));
    factors(def, &[sum])?.into_iter().map(widened).collect()
}

/// Access of an unguarded load that is linear, except for parts computed from batch variables (such as the number of
/// the key head that a group of query heads shares).
pub fn plain(def: &KernelDef, k: usize) -> Option<&Access> {
    match &def.body[k].op {
        Op::Load { access, guard: None } if access.computed.iter().all(|c| c.limit.is_none()) => Some(access),
        _ => None,
    }
}

/// Returns whether a computed part of the access depends on the variable, which must then be a batch variable.
fn computed_with(access: &Access, var: usize) -> bool {
    access.computed.iter().any(|c| c.expr.variables().contains(&var))
}

/// Returns the roles with these accesses as A and B, and their score. Only B may be packed in panels, and then along
/// its columns.
pub fn roles(def: &KernelDef, a: &Access, sums: Vec<Sum>, depth: i64) -> Option<(i64, Roles)> {
    let k = def.n_vars().checked_sub(1).filter(|k| *k >= def.outer.len())?;
    let around: Vec<usize> = (def.outer.len()..k).collect();
    let b = &sums[0].b;
    let panels = def.reads[b.buffer].panels;
    if def.reads[a.buffer].panels.is_some() {
        return None;
    }
    let computed = |v: usize| computed_with(a, v) || sums.iter().any(|s| computed_with(&s.b, v));
    if computed(k) || around.iter().any(|v| computed(*v)) {
        return None;
    }
    let outer = 0..def.outer.len();
    let free = outer.clone().filter(|v| !computed(*v));
    let columns = free.clone().filter(|v| sums.iter().all(|s| s.b.moves_with(*v)) && !a.moves_with(*v));
    let unit_store = |v: usize| def.stores.first().is_some_and(|w| w.access.stride(v).is(1)) as i64;
    let wide = |v: usize| def.extent(v).as_const().is_none_or(|e| e >= 8) as i64;
    let score = |v: usize| 8 * unit_store(v) + 4 * wide(v) + 2 * b.coords[b.coords.len() - 1].strides[v].is(1) as i64;
    let unit = |a: &Access, v: usize| def.reads[a.buffer].panels.is_none() && a.stride(v).is(1);
    let beside = |v: &usize| sums.len() == 1 && unit(a, *v) && unit(b, *v) && unit_store(*v) == 1;
    let (n, diagonal) = match columns.max_by_key(|v| score(*v)) {
        Some(n) => (n, false),
        None => (free.clone().find(beside)?, true),
    };
    // m is the variable with the most iterations, counted up to the rows of a full work item. A symbolic extent counts
    // as one row less than a full item, or as 2 in a convolution: there may be a single image.
    let unknown = if around.is_empty() { CHUNK - 1 } else { 2 };
    let size =
        |v: &usize| def.extent(*v).as_const().map_or((unknown, 0), |n| (n.min(CHUNK), n * around.is_empty() as i64));
    let m = free.filter(|v| a.moves_with(*v) && !sums.iter().any(|s| s.b.moves_with(*v))).max_by_key(size);
    let fits = |s: &Sum| def.reads[s.b.buffer].panels.is_none_or(|p| p.depth == depth && panels_fit(def, &s.b, p, n));
    if !sums.iter().all(fits) {
        return None;
    }
    let batch = outer.filter(|v| *v != n && Some(*v) != m).collect();
    let total = score(n) + 100 * panels.is_some() as i64 + a.stride(k).is(1) as i64 + m.is_some() as i64;
    Some((total, Roles { a: a.clone(), root: None, sums, batch, m, n, k, around, diagonal }))
}

/// Returns whether two B operands differ only in their buffers and offsets.
fn lies_alike(def: &KernelDef, one: &Access, other: &Access) -> bool {
    let strides = |a: &Access| a.coords.iter().map(|c| c.strides.clone()).collect::<Vec<_>>();
    let storage = |a: &Access| def.reads[a.buffer].clone();
    storage(one) == storage(other) && strides(one) == strides(other) && one.computed == other.computed
}

/// The register-blocked plan for these roles.
pub fn blocked(def: &KernelDef, roles: Roles, words: Words, folds: Vec<Fold>) -> Option<Plan> {
    // The same code runs for all B operands.
    if !roles.sums.iter().all(|s| lies_alike(def, roles.b(), &s.b)) {
        return None;
    }
    let form = match def.reads[roles.b().buffer].panels {
        Some(_) => Form::Panels,
        None if roles.b().stride(roles.n).is(1) => Form::Rows,
        None => Form::Copied,
    };
    // Copying a panel pays off only if several rows use it.
    let few = roles.m.is_none_or(|m| def.extent(m).as_const().is_some_and(|e| e < 4));
    if form == Form::Copied && (few || !roles.around.is_empty()) {
        return None;
    }
    // A word of A is loaded at once, and must not extend into the next point of a window.
    let mut plan = Plan { roles, slabs: vec![], form, words, direct: false, folds, staged: None };
    let roles = &plan.roles;
    let whole = || def.extent(roles.k).as_const().is_some_and(|n| n % plan.cell_rows(def) == 0);
    let fits = form == Form::Panels && !roles.diagonal && roles.a.stride(roles.k).is(1);
    let groups = !plan.folds.is_empty();
    if (words != Words::Singles || groups) && !(fits && (roles.around.is_empty() && !groups || whole())) {
        return None;
    }
    let computed = |v: usize| computed_with(&roles.a, v) || roles.sums.iter().any(|s| computed_with(&s.b, v));
    let is_slab = |v: &usize| {
        let alone = roles.a.moves_with(*v) && !roles.sums.iter().any(|s| s.b.moves_with(*v));
        roles.m.is_some() && form != Form::Copied && alone && !computed(*v)
    };
    let (slabs, batch) = roles.batch.iter().copied().partition(is_slab);
    // The epilogue needs the results of all reductions at once, so each reduction stores its results to a tile.
    plan.direct = roles.sums.len() == 1 && epilogue_is_short(def, roles);
    (plan.slabs, plan.roles.batch) = (slabs, batch);
    if let Some(root) = plan.root {
        let (staged, access) = Staged::new(def, &plan, root)?;
        (plan.staged, plan.roles.a) = (Some(staged), access);
    }
    Some(plan)
}

/// Returns whether the reduction variables enumerate the rows of the panels in order, and whether n enumerates their
/// columns from a multiple of the panel width on.
fn panels_fit(def: &KernelDef, b: &Access, panels: Panels, n: usize) -> bool {
    let (rows, columns) = (&b.coords[0], &b.coords[1]);
    let whole = |s: Size| s.as_const().is_some_and(|c| c % panels.width == 0);
    let mut step = Some(1);
    let mut counts = |v: usize| {
        if def.extent(v).is(1) {
            return true;
        }
        let fits = step.is_some_and(|step| rows.strides[v].is(step));
        step = step.zip(def.extent(v).as_const()).map(|(step, extent)| step * extent);
        fits
    };
    panels.width % WIDTH == 0
        && (panels.width == WIDTH || panels.depth == CHUNK_DEPTH)
        && rows.offset.is(0)
        && (0..def.outer.len()).all(|v| rows.strides[v].is(0))
        && (def.outer.len()..def.n_vars()).rev().all(&mut counts)
        && step.is_none_or(|rows| rows == panels.rows)
        && whole(columns.offset)
        && (0..def.n_vars()).all(|v| if v == n { columns.strides[v].is(1) } else { whole(columns.strides[v]) })
}

/// Statements that the stores depend on, excluding the reductions and their operands.
pub fn epilogue(def: &KernelDef, is_sum: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut open: Vec<usize> =
        def.stores.iter().flat_map(|w| [vec![w.value], access_values(&w.access)].concat()).collect();
    let mut needed = vec![];
    while let Some(k) = open.pop() {
        if !is_sum(k) && !needed.contains(&k) {
            needed.push(k);
            open.extend(def.operands(k));
        }
    }
    needed.sort();
    needed
}

/// Whether a function of f32 is a single instruction, or little more.
pub fn is_one_instruction(f: ScalarFn) -> bool {
    matches!(f, ScalarFn::Add | ScalarFn::Mul | ScalarFn::Sub | ScalarFn::Max | ScalarFn::Min)
}

/// Whether the epilogue is cheap enough to be repeated for every register.
fn epilogue_is_short(def: &KernelDef, roles: &Roles) -> bool {
    let cheap = |k: &usize| match &def.body[*k].op {
        Op::Load { access, guard } => guard.is_none() && access.computed.is_empty(),
        Op::Const(_) => true,
        Op::Index(_) => false,
        Op::Apply { f, .. } => is_one_instruction(*f),
        // Conversions of values occur where the result is operand A of another contraction.
        Op::Convert(_, Conversion::Value) => true,
        Op::Convert(_, Conversion::Bits) => false,
        Op::Reduce { .. } => false,
    };
    let is_type = |k: usize| match (&def.body[k].op, def.body[k].dtype) {
        (Op::Convert(from, _), DType::BF16 | DType::F16) => def.body[*from].dtype == DType::F32,
        (Op::Convert(from, _), DType::F32) => def.body[*from].dtype == DType::F16,
        (Op::Load { .. }, dtype) => matches!(dtype, DType::F32 | DType::F16),
        (_, dtype) => dtype == DType::F32,
    };
    let needed = epilogue(def, |k| roles.is_sum(k));
    // Widening is part of the load, so only the other statements count.
    let widens = |k: &&usize| matches!(def.body[**k].op, Op::Convert(..)) && def.body[**k].dtype == DType::F32;
    let counted = needed.len() - needed.iter().filter(widens).count();
    counted <= 6 && needed.iter().all(|k| cheap(k) && is_type(*k)) && def.stores.len() == 1
}

impl Plan {
    fn columns(&self, def: &KernelDef) -> Dim {
        def.extent(self.n).dim()
    }

    /// Returns the number of panels of `WIDTH` columns; the last one may be incomplete.
    pub fn n_panels(&self, def: &KernelDef) -> Dim {
        self.columns(def).ceildiv(&Dim::constant(WIDTH))
    }

    /// Returns whether a block of one or two rows processes the panels of several reductions together.
    pub fn takes_sums_together(&self) -> bool {
        self.sums.len() > 1 && self.form == Form::Panels && self.folds.is_empty() && self.slabs.is_empty()
    }

    /// Returns 1 if there are one or two rows and a work item processes two packed panels together; else 0.
    pub fn is_paired(&self, def: &KernelDef) -> Dim {
        let wide = def.extent(self.n).as_const().is_some_and(|n| n >= 2 * WIDTH);
        match (self.form, self.m) {
            _ if self.root.is_some() || self.takes_sums_together() => Dim::constant(0),
            (Form::Panels, None) if wide => Dim::constant(1),
            // 3 / (m + 1) is 1 for m = 1 and m = 2, and 0 for larger m. The value for m = 0 does not matter, because
            // there is no work item without rows.
            (Form::Panels, Some(m)) if wide && self.slabs.is_empty() => {
                let behind = def.extent(m).dim() + Dim::constant(1);
                Dim::constant(3).floordiv(&behind)
            }
            (Form::Panels | Form::Rows | Form::Copied, _) => Dim::constant(0),
        }
    }

    /// Rows of every packed panel, counting the rows of a word as one; 0 if B is not packed.
    pub fn panel_rows(&self, def: &KernelDef) -> i64 {
        def.reads[self.b().buffer].panels.map_or(0, |p| p.groups())
    }

    /// Number of strips: panels, or pairs of panels.
    pub fn n_strips(&self, def: &KernelDef) -> Dim {
        let n_panels = self.n_panels(def);
        let n_pairs = n_panels.floordiv(&Dim::constant(2));
        n_panels - self.is_paired(def) * n_pairs
    }

    /// Number of complete words along k if operands are narrow (k is then a constant); for groups, the number of cells.
    pub fn whole_words(&self, def: &KernelDef) -> i64 {
        def.extent(self.k).as_const().unwrap_or(0).div_euclid(self.cell_rows(def))
    }

    /// Rows of a work item, not counting rows that are added to avoid a short last item. With narrow elements, A is
    /// smaller and the products are faster, so that more rows share each read of a panel.
    pub fn chunk(&self) -> i64 {
        match self.words {
            Words::Singles => CHUNK,
            Words::Pairs | Words::Quads => 2 * CHUNK,
        }
    }

    /// Rows of a work item, including rows added to avoid a short last item.
    pub fn chunk_rows(&self, def: &KernelDef) -> i64 {
        let chunk = self.chunk();
        let rows = self.m.and_then(|m| def.extent(m).as_const()).unwrap_or(chunk);
        let (whole, rest) = (rows.div_euclid(chunk), rows % chunk);
        if whole > 0 && (1..=MORE).contains(&rest) { (rows + whole - 1).div_euclid(whole) } else { chunk }
    }

    /// Bytes of the tile that holds a work item's accumulators until the epilogue.
    pub fn tile_bytes(&self, def: &KernelDef) -> i64 {
        self.chunk_rows(def) * WIDTH * 4
    }

    /// Number of points of the last slab variable that a work item covers.
    pub fn slabs_per_item(&self, def: &KernelDef) -> i64 {
        let (Some(last), Some(m)) = (self.slabs.last(), self.m) else { return 1 };
        let chunk = self.chunk();
        let rows = def.extent(m).as_const().unwrap_or(chunk).clamp(1, chunk);
        let slabs = chunk.div_euclid(rows).max(if self.root.is_some() && self.diagonal { LINES } else { 1 });
        slabs.min(def.extent(*last).as_const().unwrap_or(chunk)).max(1)
    }

    /// Number of chunks along each slab variable, and along the rows. A chunk covers several points of the last slab
    /// variable, and one point of the others.
    pub fn chunk_extents(&self, def: &KernelDef) -> Vec<Dim> {
        let mut extents: Vec<Dim> = self.slabs.iter().map(|v| def.extent(*v).dim()).collect();
        if let Some(last) = extents.last_mut() {
            *last = last.ceildiv(&Dim::constant(self.slabs_per_item(def)));
        }
        let rows = self.m.map_or(Dim::constant(1), |m| def.extent(m).dim());
        extents.push(rows.ceildiv(&Dim::constant(self.chunk_rows(def))));
        extents
    }

    /// Number of chunks of one batch element.
    pub fn n_chunks(&self, def: &KernelDef) -> Dim {
        self.chunk_extents(def).into_iter().fold(Dim::constant(1), |n, extent| n * extent)
    }

    /// Bytes of the copy of one panel.
    pub fn copied_bytes(&self, def: &KernelDef) -> Dim {
        match self.form {
            Form::Copied => {
                // Rows are padded to full squares for the transpose.
                let squares = def.extent(self.k).dim().ceildiv(&Dim::constant(SQUARE_MAX));
                squares * Dim::constant(SQUARE_MAX * WIDTH * 4)
            }
            Form::Panels if self.copies_panels(def) != Copies::None => Dim::constant(self.panel_rows(def) * WIDTH * 4),
            Form::Panels | Form::Rows => Dim::constant(0),
        }
    }
}
