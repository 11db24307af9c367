//! mask [batch, positions]  =>  the kernels that need not compute positions where the mask is 0, and the proof
//!
//! A position is *masked* if the mask is 0 there. A container has *rows* if two of its dimensions are those of the mask
//! and every element belongs to one position. A kernel is *row-wise* if each point writes the row of its position and
//! reads no other row, except for the rows of keys in attention: the mask must hide the masked keys, so that the
//! maximum, the sum and the weighted sum over the keys are the same without them. Every other consumer of rows reads an
//! unpacked container, which has zeros or a known number at masked positions, and its results must not depend on what
//! the original program has there.

use super::known::{self, Known, Reduced};
use crate::splice::from_data;
use crate::steps::{Uses, kernel};
use sardonyx_base::Dim;
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{Body, Class, FlowOp, Kernel, Memlet, Program, Step};
use std::collections::BTreeSet;

/// Facts about a container with rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fact {
    /// The container's batch and position dimensions.
    pub axes: (usize, usize),
    /// The number that all elements at masked positions have, if it is known.
    pub at_masked: Option<f64>,
    /// Whether masked rows are omitted rather than computed.
    pub packed: bool,
}

/// The iteration variables of a row-wise kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    pub batch: usize,
    pub position: usize,
    /// In attention, the inner variable that iterates over the keys of the row's sequence.
    pub key: Option<usize>,
}

impl Rows {
    /// Returns the number that a variable has after the position variable is removed.
    pub fn number(&self, v: usize) -> usize {
        v - usize::from(v > self.position)
    }

    /// Returns the number of the row variable, which replaces the batch variable.
    pub fn row(&self) -> usize {
        self.number(self.batch)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The step is not changed.
    AsItIs,
    /// The kernel runs on packed rows.
    Rows(Rows),
    /// The step is a view of packed rows.
    View,
}

#[derive(Debug)]
pub struct Proof {
    pub mask: Id,
    pub batch: Dim,
    pub positions: Dim,
    pub facts: Vec<Option<Fact>>,
    /// The role of each step.
    pub roles: Vec<Role>,
    /// Packed containers that must be unpacked, because a step reads all positions or the container is an output.
    pub unpacked: BTreeSet<Id>,
    /// Positions that are computed regardless of the mask, because a kernel reads them with a constant index.
    pub kept: BTreeSet<i64>,
}

/// The reason why masked rows cannot be omitted, and the step that prevents it, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    pub reason: &'static str,
    pub step: Option<usize>,
    pub remedy: Option<&'static str>,
    /// Whether some attention hides the keys for which the mask is 0; if none does, the input is no attention mask.
    pub is_mask: bool,
}

const OUTPUT: &str = "an output has the rows of positions that the mask leaves out";
const READS: &str = "what the mask leaves out reaches a result";
const ZERO: &str = "compile with `--masked-rows zero` if nobody reads these rows";

impl Proof {
    /// Finds the kernels that may omit masked rows. With `zero`, the rows of outputs may be 0 at masked positions. The
    /// error is the reason why rows cannot be omitted.
    pub fn find(program: &Program, mask: Id, zero: bool) -> Result<Proof, Miss> {
        let [batch, positions] = &program.containers[mask].dims[..] else {
            return Err(Miss { reason: "the mask is not two-dimensional", step: None, remedy: None, is_mask: false });
        };
        let uses = Uses::new(program);
        let mut alone = BTreeSet::new();
        // A value that is computed from unpacked values only is not worth packing if a step reads all its positions, or
        // if it is an output. The step that computes it is then added to `alone`, and the search starts again.
        loop {
            let mut proof = Proof {
                mask,
                batch: batch.clone(),
                positions: positions.clone(),
                facts: vec![None; program.containers.len()],
                roles: vec![],
                unpacked: BTreeSet::new(),
                kept: BTreeSet::new(),
            };
            proof.facts[mask] = Some(Fact { axes: (0, 1), at_masked: Some(0.0), packed: false });
            let mut again = None;
            for (at, step) in program.steps.iter().enumerate() {
                let role = proof.role(program, step, alone.contains(&at));
                proof.roles.push(role);
                if role != Role::AsItIs {
                    continue;
                }
                let source = |id: &Id| proof.is_source(program, &uses, *id);
                if let Some(early) = step.args.iter().find_map(source) {
                    again = Some(early);
                    break;
                }
                if let Err(reason) = proof.read_all(step) {
                    let is_mask = proof.hides();
                    return Err(Miss { reason, step: Some(at), remedy: None, is_mask });
                }
            }
            if again.is_none() {
                again = program.outputs.iter().find_map(|(_, id)| proof.is_source(program, &uses, *id));
            }
            match again {
                Some(step) => drop(alone.insert(step)),
                None => return proof.outputs(program, &uses, zero),
            }
        }
    }

    /// Returns the step that computes a packed container, if the step reads no packed container itself.
    fn is_source(&self, program: &Program, uses: &Uses, id: Id) -> Option<usize> {
        let packed = |id: &Id| self.facts[*id].is_some_and(|f| f.packed);
        let at = uses.producers[id].filter(|_| packed(&id))?;
        (!program.steps[at].args.iter().any(packed)).then_some(at)
    }

    fn outputs(mut self, program: &Program, uses: &Uses, zero: bool) -> Result<Proof, Miss> {
        for (_, id) in &program.outputs {
            if !self.facts[*id].is_some_and(|f| f.packed) {
                continue;
            }
            if !zero {
                let is_mask = self.hides();
                return Err(Miss { reason: OUTPUT, step: uses.producers[*id], remedy: Some(ZERO), is_mask });
            }
            self.unpacked.insert(*id);
        }
        Ok(self)
    }

    fn hides(&self) -> bool {
        self.roles.iter().any(|role| matches!(role, Role::Rows(Rows { key: Some(_), .. })))
    }

    /// Returns whether packing is worthwhile: the packed kernels must include attention and contractions.
    pub fn gains(&self, program: &Program) -> bool {
        let product = |(step, role): (&Step, &Role)| {
            matches!(role, Role::Rows(_)) && kernel(step).is_some_and(|k| k.class() == Class::Contract)
        };
        self.hides() && program.steps.iter().zip(&self.roles).any(product)
    }

    fn role(&mut self, program: &Program, step: &Step, alone: bool) -> Role {
        match &step.op {
            FlowOp::View => self.view(program, step),
            FlowOp::Kernel(k) => self.kernel(step, k, alone),
            FlowOp::Param { .. } | FlowOp::Const(_) | FlowOp::Bind { .. } | FlowOp::Host(_) => Role::AsItIs,
        }
    }

    /// Returns the role of a view, and records a fact about its result. A view may change the dimensions after batch
    /// and positions. A view of an unpacked container without other dimensions, such as the mask, may also insert
    /// dimensions of extent 1.
    fn view(&mut self, program: &Program, step: &Step) -> Role {
        let (from, to) = (step.args[0], step.results[0]);
        let Some(fact) = self.facts[from] else { return Role::AsItIs };
        let dims = &program.containers[to].dims;
        let same = fact.axes == (0, 1) && dims.len() > 1 && dims[0] == self.batch && dims[1] == self.positions;
        if same {
            self.facts[to] = Some(fact);
            return if fact.packed { Role::View } else { Role::AsItIs };
        }
        let wide: Vec<usize> = (0..dims.len()).filter(|axis| !dims[*axis].is_const(1)).collect();
        if let ([b, s], false) = (&wide[..], fact.packed)
            && dims[*b] == self.batch
            && dims[*s] == self.positions
        {
            self.facts[to] = Some(Fact { axes: (*b, *s), ..fact });
        }
        Role::AsItIs
    }

    fn kernel(&mut self, step: &Step, k: &Kernel, alone: bool) -> Role {
        let outer = |extent: &Dim| (0..k.outer.len()).filter(|v| k.outer[*v] == *extent).collect::<Vec<_>>();
        for batch in outer(&self.batch) {
            for position in outer(&self.positions).into_iter().filter(|v| *v != batch) {
                let Some(axes) = stored_at(k, batch, position) else { continue };
                let Some(rows) = self.rows(step, k, batch, position) else { continue };
                for (w, axes) in axes.into_iter().enumerate() {
                    let at_masked = self.stored(step, k, (batch, position), Reduced::Within, w);
                    self.facts[step.results[w]] = Some(Fact { axes, at_masked, packed: !alone });
                }
                return if alone { Role::AsItIs } else { Role::Rows(rows) };
            }
        }
        self.on_the_way(step, k);
        Role::AsItIs
    }

    /// Records facts about the results of a kernel that iterates over all positions with an inner variable and stores a
    /// known number at masked ones, for instance a kernel that computes a bias of scores and also counts the tokens.
    fn on_the_way(&mut self, step: &Step, k: &Kernel) {
        let walks = (k.outer.len()..).zip(&k.inner).filter(|(_, extent)| **extent == self.positions);
        let positions: Vec<usize> = walks.map(|(v, _)| v).collect();
        for batch in (0..k.outer.len()).filter(|v| k.outer[*v] == self.batch) {
            for position in &positions {
                for w in 0..k.writes.len() {
                    let Some(axes) = axes_stored_at(k, w, batch, *position) else { continue };
                    if let Some(at_masked) = self.stored(step, k, (batch, *position), Reduced::All, w) {
                        self.facts[step.results[w]] = Some(Fact { axes, at_masked: Some(at_masked), packed: false });
                    }
                }
            }
        }
    }

    /// Returns the number that a kernel stores in result `w` at every masked position, if there is one.
    fn stored(&self, step: &Step, k: &Kernel, place: known::Place, reduced: Reduced, w: usize) -> Option<f64> {
        let known = known::statements(k, &|m| self.facts[step.args[m.container]], place, reduced)?;
        let mut values = k.stores.iter().filter(|s| s.memlet.container == w).map(|s| known[s.value]);
        match (values.next(), values.next()) {
            (Some(Known::Number(v)), None) => Some(v),
            _ => None,
        }
    }

    /// Returns the variables of a row-wise kernel: at each point, it reads only the row that it writes and, in
    /// attention, the keys of the sequence, of which the mask hides the masked ones. Returns `None` for other kernels.
    fn rows(&self, step: &Step, k: &Kernel, batch: usize, position: usize) -> Option<Rows> {
        let class = k.class();
        let inner = k.outer.len()..k.outer.len() + k.inner.len();
        let mut key = None;
        for statement in &k.body {
            let memlet = match &statement.body {
                Body::Load { memlet, .. } => memlet,
                // A statement that computes an index from batch or position must compute just one of these variables,
                // so that the index can be looked up in the table of rows.
                Body::Index(d)
                    if d.as_variable().is_none() && d.variables().iter().any(|v| [batch, position].contains(v)) =>
                {
                    return None;
                }
                _ => continue,
            };
            let fact = self.facts[step.args[memlet.container]];
            let at = |axis: usize| memlet.index[axis].as_variable();
            if let Some(fact) = fact.filter(|f| f.packed) {
                if at(fact.axes.0) != Some(batch) || elsewhere(memlet, fact.axes, &[batch, position]) {
                    return None;
                }
                match at(fact.axes.1) {
                    Some(v) if v == position => {}
                    Some(v) if inner.contains(&v) && class == Class::Attention && key.is_none_or(|k| k == v) => {
                        key = Some(v);
                    }
                    Some(_) | None => return None,
                }
            } else if matches!(class, Class::Contract | Class::Attention) {
                // Unpacked operands of contractions and attention are packed before the kernel runs, which requires
                // that the kernel reads them by whole rows.
                let by_row = own_vars_of(memlet).iter().any(|v| [batch, position].contains(v));
                if by_row && rows_of(memlet, k, &self.batch, &self.positions, batch).is_none() {
                    return None;
                }
            }
        }
        if let Some(key) = key {
            let index = |s: &sardonyx_dialects::flow::Statement| match &s.body {
                Body::Index(d) => d.as_variable().is_none() && d.variables().contains(&key),
                _ => false,
            };
            let by_key = |m: &Memlet| {
                let fact = self.facts[step.args[m.container]];
                own_vars_of(m).contains(&key)
                    && !fact.is_some_and(|f| f.packed)
                    && rows_of(m, k, &self.batch, &self.positions, batch).is_none()
            };
            let loads =
                |s: &sardonyx_dialects::flow::Statement| matches!(&s.body, Body::Load { memlet, .. } if by_key(memlet));
            let one = k.inner.len() == 1 && k.inner[0] == self.positions;
            let stored = k.stores.iter().any(|s| own_vars_of(&s.memlet).contains(&key));
            if !one || stored || k.body.iter().any(|s| index(s) || loads(s)) {
                return None;
            }
            known::statements(k, &|m| self.facts[step.args[m.container]], (batch, key), Reduced::Kept)?;
        }
        Some(Rows { batch, position, key })
    }

    /// Checks that the results of a step that reads all positions do not depend on the contents of masked positions,
    /// and records which containers the step needs unpacked and which positions it needs kept.
    fn read_all(&mut self, step: &Step) -> Result<(), &'static str> {
        let packed: Vec<Id> = step.args.iter().copied().filter(|a| self.facts[*a].is_some_and(|f| f.packed)).collect();
        if packed.is_empty() {
            return Ok(());
        }
        let Some(k) = kernel(step) else { return Err(READS) };
        let mut places = BTreeSet::new();
        let mut kept = BTreeSet::new();
        for statement in &k.body {
            let Body::Load { memlet, .. } = &statement.body else { continue };
            let Some(fact) = self.facts[step.args[memlet.container]].filter(|f| f.packed) else { continue };
            let (b, s) = (&memlet.index[fact.axes.0], &memlet.index[fact.axes.1]);
            match (b.as_variable(), s.as_variable(), number(k, s)) {
                (_, _, Some(position)) => drop(kept.insert(position)),
                (Some(b), Some(s), None) => drop(places.insert((b, s))),
                (_, _, None) => return Err(READS),
            }
        }
        for place in places {
            // A position that is read with a constant index is always kept, so its contents are available.
            let fact = |m: &Memlet| {
                let id = step.args[m.container];
                let by_number = |f: &Fact| number(k, &m.index[f.axes.1]).is_some();
                self.facts[id].filter(|f| !(f.packed && by_number(f)))
            };
            let known = known::statements(k, &fact, place, Reduced::All).ok_or(READS)?;
            if k.stores.iter().any(|s| matches!(known[s.value], Known::Left | Known::Hidden)) {
                return Err(READS);
            }
        }
        self.kept.extend(kept);
        self.unpacked.extend(packed);
        Ok(())
    }
}

/// Returns, for each result, the dimensions that are indexed by the variables `batch` and `position`; `None` if there
/// are none, if the index of another dimension depends on these variables, or if an index depends on data.
fn stored_at(k: &Kernel, batch: usize, position: usize) -> Option<Vec<(usize, usize)>> {
    (0..k.writes.len()).map(|w| axes_stored_at(k, w, batch, position)).collect()
}

/// As [`stored_at`], for result `w` alone.
fn axes_stored_at(k: &Kernel, w: usize, batch: usize, position: usize) -> Option<(usize, usize)> {
    let mut found = None;
    for store in k.stores.iter().filter(|s| s.memlet.container == w) {
        let axis = |v: usize| store.memlet.index.iter().position(|d| d.as_variable() == Some(v));
        let axes = (axis(batch)?, axis(position)?);
        let other = elsewhere(&store.memlet, axes, &[batch, position]);
        if other || found.is_some_and(|f| f != axes) || store.memlet.index.iter().any(from_data) {
            return None;
        }
        found = Some(axes);
    }
    found
}

/// Returns the value of an index if it is constant.
fn number(k: &Kernel, index: &Dim) -> Option<i64> {
    let one = index.as_variable().and_then(|v| k.extents().nth(v)).is_some_and(|extent| extent.is_const(1));
    if one { Some(0) } else { index.as_const().or_else(|| constant(k, index)) }
}

/// Returns the value of an index such as `$0` if it refers to a statement that is a nonnegative integer constant.
fn constant(k: &Kernel, index: &Dim) -> Option<i64> {
    match k.body.get(index.as_symbol()?.statement()?)?.body {
        Body::Const(v) if v >= 0.0 && v.fract() == 0.0 => Some(v as i64),
        _ => None,
    }
}

/// Returns whether indices of dimensions other than `axes` depend on the variables.
fn elsewhere(memlet: &Memlet, axes: (usize, usize), vars: &[usize]) -> bool {
    let others = (0..memlet.index.len()).filter(|a| ![axes.0, axes.1].contains(a));
    others.into_iter().any(|a| memlet.index[a].variables().iter().any(|v| vars.contains(v)))
}

fn own_vars_of(memlet: &Memlet) -> Vec<usize> {
    memlet.index.iter().flat_map(Dim::variables).collect()
}

/// Returns the batch dimension of an operand, which variable `var` indexes, its position dimension, which another
/// single variable indexes, and that other variable; `None` if the operand is not read by whole rows in this way.
pub fn rows_of(memlet: &Memlet, k: &Kernel, batch: &Dim, positions: &Dim, var: usize) -> Option<(usize, usize, usize)> {
    let dims = &k.reads[memlet.container].dims;
    let b = memlet.index.iter().position(|d| d.as_variable() == Some(var))?;
    let position = |s: &usize| *s != b && dims[*s] == *positions && memlet.index[*s].as_variable().is_some();
    let mut found = (0..dims.len()).filter(position);
    let (s, None) = (found.next()?, found.next()) else { return None };
    let at = memlet.index[s].as_variable()?;
    (dims[b] == *batch && !elsewhere(memlet, (b, s), &[var, at])).then_some((b, s, at))
}
