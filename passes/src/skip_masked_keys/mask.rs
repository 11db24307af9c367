//! x = score · scale + mask[i, j], or mask[i, j] ? score · scale : -inf  =>  the kernel that computes x with 0 as the
//! score, and its results

use super::lists::Bias;
use sardonyx_base::{DType, Dim, Tensor};
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::program::Id;
use sardonyx_dialects::flow::{Body, FlowOp, Kernel, Level, Program, Statement};
use sardonyx_dialects::interp::{self, Values};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use std::collections::BTreeSet;

/// Maximum number of points of a mask, since its values are computed at compile time.
const POINTS_MAX: i64 = 1 << 26;

/// The part of attention's scores that depends on constants, rows and keys only.
#[derive(Clone, PartialEq)]
pub struct Mask {
    /// Computes x with 0 in place of the score. Its last statement is x.
    kernel: Kernel,
    args: Vec<Id>,
    /// The outer variable on which the mask depends but the keys and values do not: the position of the query.
    pub row: usize,
}

impl Mask {
    pub fn found(k: &Kernel, args: &[Id]) -> Option<Mask> {
        let (levels, vars) = (k.levels(), vars_of(k));
        let reduced = |f: ReduceFn, level: Level| {
            let mut found = k.body.iter().enumerate().filter_map(|(at, s)| match s.body {
                Body::Reduce { f: own, arg } if own == f && levels[arg] == level => Some((at, arg)),
                _ => None,
            });
            found.next().filter(|_| found.next().is_none())
        };
        let (score, _) = reduced(ReduceFn::Add, Level::Deep)?;
        let (_, x) = reduced(ReduceFn::Max, Level::Point)?;
        let key = k.outer.len();
        if k.inner.len() != 1
            || [x, score].iter().any(|at| k.body[*at].dtype != DType::F32)
            || moves_with_score(k, x, score) != Some(true)
        {
            return None;
        }
        let parts = parts(k, x, score);
        // Only loads and index values count, because statements computed from the score depend on further variables.
        let is_leaf = |at: &&usize| matches!(k.body[**at].body, Body::Load { .. } | Body::Index(_));
        let moved = parts.iter().filter(is_leaf).fold(BTreeSet::new(), |all, part| &all | &vars[*part]);
        let by_key = |at: &usize| matches!(k.body[*at].body, Body::Load { .. }) && vars[*at].contains(&key);
        let others = (0..k.body.len()).filter(|at| !parts.contains(at)).filter(by_key);
        let others = others.fold(BTreeSet::new(), |all, at| &all | &vars[at]);
        let rows: Vec<usize> = moved.iter().copied().filter(|v| *v < key && !others.contains(v)).collect();
        let &[row] = &rows[..] else { return None };
        let kernel = alone(k, &moved, &parts, score);
        let n_points = kernel.extents().map(Dim::as_const).try_fold(1i64, |n, extent| n.checked_mul(extent?))?;
        let fits = moved.contains(&key) && n_points <= POINTS_MAX;
        let mut mask = Mask { kernel, args: args.to_vec(), row };
        mask.drop_unread();
        fits.then_some(mask)
    }

    /// Removes operands that none of the mask's statements reads.
    fn drop_unread(&mut self) {
        let mut kept: Vec<usize> = vec![];
        for statement in &mut self.kernel.body {
            if let Body::Load { memlet, .. } = &mut statement.body {
                let known = kept.iter().position(|operand| *operand == memlet.container);
                memlet.container = known.unwrap_or_else(|| {
                    kept.push(memlet.container);
                    kept.len() - 1
                });
            }
        }
        self.kernel.reads = kept.iter().map(|operand| self.kernel.reads[*operand].clone()).collect();
        self.args = kept.iter().map(|operand| self.args[*operand]).collect();
    }

    /// Returns the values of x with 0 as the score, or `None` if they are not known at compile time.
    pub fn values(&self, program: &Program, params: &Values) -> Option<Bias> {
        let reads: Vec<Tensor> = self.args.iter().map(|id| known(program, *id, params)).collect::<Option<_>>()?;
        let last = self.kernel.body.len() - 1;
        let found = interp::run_statements(&self.kernel, &|_| None, &reads, &|at, _| at == last).ok()?;
        Bias::read(&found.into_iter().next_back()??)
    }
}

/// Builds the kernel of the statements that compute x, with 0 as the score. Outer variables on which these statements
/// do not depend have extent 1.
fn alone(k: &Kernel, moved: &BTreeSet<usize>, parts: &BTreeSet<usize>, score: usize) -> Kernel {
    let kept: Vec<usize> = parts.iter().copied().chain([score]).collect::<BTreeSet<usize>>().into_iter().collect();
    let number = |old: usize| kept.binary_search(&old).unwrap_or(0);
    let statement = |at: &usize| match *at == score {
        true => Statement { body: Body::Const(0.0), dtype: k.body[score].dtype },
        false => {
            let Statement { body, dtype } = &k.body[*at];
            Statement { body: body.renumbered(&number, &|d| rename(d, &|_| None, &number)), dtype: *dtype }
        }
    };
    let one = Dim::constant(1);
    let outer = k.outer.iter().enumerate().map(|(v, n)| if moved.contains(&v) { n.clone() } else { one.clone() });
    Kernel {
        outer: outer.collect(),
        inner: k.inner.clone(),
        deep: vec![],
        reads: k.reads.clone(),
        writes: vec![],
        body: kept.iter().map(statement).collect(),
        stores: vec![],
    }
}

/// Whether a statement is a constant multiple of the score plus other values, or selects between such a multiple and
/// another value by a condition that is independent of the score; `None` if it depends on the score in any other way.
fn moves_with_score(k: &Kernel, at: usize, score: usize) -> Option<bool> {
    if at == score {
        return Some(true);
    }
    let moves = |at: usize| moves_with_score(k, at, score);
    let is_const = |at: usize| matches!(k.body[at].body, Body::Const(_));
    match &k.body[at].body {
        Body::Load { .. } | Body::Const(_) | Body::Index(_) => Some(false),
        Body::Convert(from, _) => (!moves(*from)?).then_some(false),
        Body::Reduce { .. } => None,
        Body::Apply { f, args } => {
            let each = args.iter().map(|a| moves(*a)).collect::<Option<Vec<bool>>>()?;
            let fits = match (f, &each[..]) {
                (_, each) if !each.contains(&true) => return Some(false),
                (ScalarFn::Add | ScalarFn::Sub, [a, b]) => !(*a && *b),
                (ScalarFn::Mul, [true, false]) | (ScalarFn::Div, [true, false]) => is_const(args[1]),
                (ScalarFn::Mul, [false, true]) => is_const(args[0]),
                (ScalarFn::Select, [false, _, _]) => true,
                _ => false,
            };
            fits.then_some(true)
        }
    }
}

/// Returns the statements from which statement `of` is computed, except for the score and the statements from which the
/// score is computed.
fn parts(k: &Kernel, of: usize, score: usize) -> BTreeSet<usize> {
    let (mut open, mut found) = (vec![of], BTreeSet::new());
    while let Some(at) = open.pop() {
        if at != score && found.insert(at) {
            open.extend(k.body[at].body.operands());
        }
    }
    found
}

/// Returns the variables on which each statement depends.
fn vars_of(k: &Kernel) -> Vec<BTreeSet<usize>> {
    let mut all: Vec<BTreeSet<usize>> = vec![];
    for statement in &k.body {
        let mut vars: BTreeSet<usize> = statement.body.operands().iter().flat_map(|at| all[*at].clone()).collect();
        match &statement.body {
            Body::Load { memlet, .. } => vars.extend(memlet.index.iter().flat_map(Dim::variables)),
            Body::Index(d) => vars.extend(d.variables()),
            Body::Const(_) | Body::Apply { .. } | Body::Convert(..) | Body::Reduce { .. } => {}
        }
        all.push(vars);
    }
    all
}

/// Returns the value of a container that depends on parameters and constants only.
fn known(program: &Program, id: Id, params: &Values) -> Option<Tensor> {
    let producers = program.producers();
    let (mut open, mut steps) = (vec![id], BTreeSet::new());
    while let Some(id) = open.pop() {
        let at = producers[id]?;
        let step = &program.steps[at];
        let is_fixed = match &step.op {
            FlowOp::Param { source, window } => window.is_none() && source.parts.is_empty(),
            FlowOp::Kernel(k) => {
                let points = k.extents().map(Dim::as_const).try_fold(1i64, |n, extent| n.checked_mul(extent?));
                points.is_some_and(|n| n <= POINTS_MAX)
            }
            FlowOp::Const(_) | FlowOp::View => true,
            FlowOp::Bind { .. } | FlowOp::Host(_) => false,
        };
        if !is_fixed {
            return None;
        }
        if steps.insert(at) {
            open.extend(&step.args);
        }
    }
    let steps = steps.into_iter().map(|at| program.steps[at].clone()).collect();
    let (containers, outputs) = (program.containers.clone(), vec![("value".into(), id)]);
    let alone = Program { containers, outputs, steps, ..Program::default() };
    let found = interp::run_program(&alone, params, &[]).ok()?;
    found.into_iter().next().map(|(_, value)| value)
}
