//! softmaxj(q[i] · k[j] + mask[i, j]) · v[j], constant mask  =>  the same, with j only over a list of keys per block of
//! rows
//!
//! Keys that a mask hides from a whole block of rows are not computed. The mask must be known at compile time: it is a
//! parameter, a constant, or computed from row and key numbers. The mask is still added to the scores, as a listed key
//! may be hidden from some rows of the block.
//!
//! The weight of a hidden key is exp(x - max), which is 0 in f32 unless scaled scores of one row differ by thousands
//! (see `HIDDEN_MAX`). 0 times the value of such a key is 0 for finite values only, so the rule is finite-only. If the
//! mask is -∞ for all keys of a row, none counts as hidden, and the list of the row's block contains all keys.

mod lists;
mod mask;

use crate::class::Class as Equality;
use crate::draft::Draft;
use crate::fuse::Costs;
use crate::layout::Pricer;
use crate::remark::Missed;
use crate::rewrite::{Found, Rewrites, Rule};
use crate::splice::tidy;
use crate::steps::kernel;
use lists::Lists;
use mask::Mask;
use sardonyx_base::dim::Symbol;
use sardonyx_base::{DType, Dim, Result, Tensor};
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::prepared;
use sardonyx_dialects::flow::program::{Id, TensorValue};
use sardonyx_dialects::flow::{Body, Class, Container, FlowOp, Kernel, Level, Memlet, Program, Step, Store};
use sardonyx_dialects::interp::Values;
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_kernels::{ATTENTION_ROWS, lower};
use std::cell::RefCell;
use std::sync::Arc;

/// Lists are used if they leave at most this fraction of the work; otherwise looking up keys does not pay off.
const SHARE_MAX: f64 = 0.9;

const RULE: Rule = Rule::of_class(Equality::FiniteOnly, "lists of keys");

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    let costs = Costs::new(rewrites.options().target);
    let (params, prepared) = (rewrites.options().params.clone(), prepared::read(module.operation())?);
    let values = Values { params: &params, prepared: &prepared };
    // Lists by mask, computed once for all attention kernels with this mask: the layers of a model usually share one.
    let known: RefCell<Vec<(Mask, Option<Arc<Lists>>)>> = RefCell::default();
    rewrites.programs(module, |rewrites, program| {
        known.borrow_mut().clear();
        let lists = |program: &Program, mask: &Mask| {
            if let Some((_, lists)) = known.borrow().iter().find(|(m, _)| m == mask) {
                return lists.clone();
            }
            let lists =
                mask.values(program, &values).map(|bias| Arc::new(Lists::of_rows(&bias, mask.row, ATTENTION_ROWS)));
            known.borrow_mut().push((mask.clone(), lists.clone()));
            lists
        };
        let matches = |program: &Program, at: usize| Site::matched(program, at, &costs, &lists);
        rewrites.each_step(program, matches, |program, at, site: Site| site.apply(program, at))
    })
}

/// Attention whose mask hides keys from whole blocks of rows.
struct Site {
    row: usize,
    lists: Arc<Lists>,
}

impl Site {
    fn matched(
        program: &Program,
        at: usize,
        costs: &Costs,
        lists: &dyn Fn(&Program, &Mask) -> Option<Arc<Lists>>,
    ) -> Found<Site> {
        let blocked = |k: &Kernel| lower(k).is_ok_and(|lowered| lowered.attention_rows().is_some());
        let found = kernel(&program.steps[at])
            .filter(|k| k.class() == Class::Attention && k.deep.len() == 1 && blocked(k))
            .and_then(|k| Mask::found(k, &program.steps[at].args));
        let Some(mask) = found else { return Ok(None) };
        let Some(lists) = lists(program, &mask) else { return Ok(None) };
        let share = lists.share();
        let site = Site { row: mask.row, lists };
        if share > SHARE_MAX {
            let dense = Pricer::new(program, costs).cost(at, &|_| None) as f64 / 1e6;
            let detail = format!("estimated {dense:.1} us with all keys, {:.1} us with lists of them", dense * share);
            return Err(Missed::because("the constant mask hides few keys from whole blocks of rows", &detail));
        }
        let mut trial = program.clone();
        site.apply(&mut trial, at);
        let fits = kernel(&trial.steps[at]).is_some_and(|k| k.check().is_ok() && blocked(k));
        Ok(fits.then_some((RULE, site)))
    }

    fn apply(&self, program: &mut Program, at: usize) {
        let [starts, keys] = [&self.lists.starts, &self.lists.keys].map(|numbers| constant(program, numbers));
        let Some(k) = kernel(&program.steps[at]) else { return };
        let (kernel, args) = self.listed(program, k, program.steps[at].args.clone(), [starts, keys]);
        let step = &mut program.steps[at];
        (step.op, step.args) = (FlowOp::Kernel(Arc::new(kernel)), args);
    }

    /// Builds the kernel whose inner variable is a position in the list of the row's block, instead of a key.
    fn listed(&self, program: &Program, k: &Kernel, args: Vec<Id>, [starts, keys]: [Id; 2]) -> (Kernel, Vec<Id>) {
        let (levels, place) = (k.levels(), k.outer.len());
        let mut body = Draft { reads: k.reads.clone(), args, ..Draft::default() };
        let block = Kernel::var(self.row).floordiv(&Dim::constant(self.lists.rows));
        let first = body.load(program, starts, vec![block.clone()], None);
        let end = body.load(program, starts, vec![block + Dim::constant(1)], None);
        let length = body.apply(ScalarFn::Sub, &[end, first], DType::I64);
        let at = body.var(place);
        let inside = body.apply(ScalarFn::Lt, &[at, length], DType::Bool);
        let key = body.load(program, keys, vec![Kernel::value(first) + Kernel::var(place)], Some(inside));
        let by_key = |d: &Dim| d.variables().contains(&place);
        let var = |v: usize| (v == place).then(|| Kernel::value(key));
        let mut map: Vec<usize> = vec![];
        for (statement, level) in k.body.iter().zip(0..) {
            let index = |d: &Dim, map: &[usize]| rename(d, &var, &|k| map[k]);
            let new = match &statement.body {
                Body::Load { memlet, guard: None } if memlet.index.iter().any(by_key) => {
                    let index = memlet.index.iter().map(|d| index(d, &map)).collect();
                    let memlet = Memlet { container: memlet.container, index };
                    body.push(Body::Load { memlet, guard: Some(inside) }, statement.dtype)
                }
                Body::Index(d) if d.as_variable() == Some(place) => key,
                Body::Index(d) if by_key(d) => index_by(&mut body, d, (place, key)),
                Body::Reduce { f, arg } if levels[*arg] == Level::Point => {
                    let nothing = match f {
                        ReduceFn::Max => f64::NEG_INFINITY,
                        ReduceFn::Min => f64::INFINITY,
                        ReduceFn::Add => 0.0,
                        ReduceFn::Mul => 1.0,
                    };
                    let nothing = body.push(Body::Const(nothing), statement.dtype);
                    let arg = body.apply(ScalarFn::Select, &[inside, map[*arg], nothing], statement.dtype);
                    body.push(Body::Reduce { f: *f, arg }, statement.dtype)
                }
                other => body.push(other.renumbered(&|k| map[k], &|d| index(d, &map)), statement.dtype),
            };
            debug_assert_eq!(map.len(), level);
            map.push(new);
        }
        let store = |store: &Store| Store { memlet: store.memlet.clone(), value: map[store.value] };
        let (stores, inner) = (k.stores.iter().map(store).collect(), vec![Dim::constant(self.lists.longest())]);
        let (outer, deep, writes) = (k.outer.clone(), k.deep.clone(), k.writes.clone());
        let Draft { reads, args, body } = body;
        tidy(Kernel { outer, inner, deep, reads, writes, body, stores }, args)
    }
}

/// Appends the value of index expression `d`, which is linear in variable `place`, with statement `key` in place of
/// that variable.
fn index_by(body: &mut Draft, d: &Dim, (place, key): (usize, usize)) -> usize {
    let linear = d
        .linear_in(&Symbol::Variable(place))
        .filter(|(c, rest)| c.variables().is_empty() && !rest.variables().contains(&place));
    let (coefficient, rest) = linear.unwrap_or_else(|| (Dim::constant(0), d.clone()));
    let [coefficient, rest] = [coefficient, rest].map(|d| body.push(Body::Index(d), DType::I64));
    let product = body.apply(ScalarFn::Mul, &[key, coefficient], DType::I64);
    body.apply(ScalarFn::Add, &[product, rest], DType::I64)
}

/// Returns a constant with these numbers; equal constants are shared.
fn constant(program: &mut Program, numbers: &[i64]) -> Id {
    let op = FlowOp::Const(TensorValue(Tensor::from_vec(vec![numbers.len()], numbers.to_vec())));
    if let Some(step) = program.steps.iter().find(|step| step.op == op) {
        return step.results[0];
    }
    let id = program.container(Container::plain(DType::I64, vec![Dim::constant(numbers.len() as i64)]));
    program.steps.push(Step { op, args: vec![], results: vec![id], origins: vec![] });
    id
}
