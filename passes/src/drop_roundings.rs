//! f16(g(f32(f16(x))))  =>  f16(g(x)): only the last of several successive roundings in a kernel is kept
//!
//! Where the model rounds a value to f16 between two nodes, a kernel that computes both nodes may keep the value in f32
//! (FLOATING_POINT.md). Values that are stored, compared or used as an index stay rounded.

use crate::rewrite::Rewrites;
use crate::splice::{renumber_stores, tidy};
use crate::steps::kernel;
use sardonyx_base::{DType, Result};
use sardonyx_dialects::flow::kernel::{rename, statements_in};
use sardonyx_dialects::flow::{Body, FlowOp, Kernel, Program, Statement};
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::scalar::{Conversion, ScalarFn};
use std::sync::Arc;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.programs(module, |rewrites, program| {
        let find = |program: &Program, step: usize| {
            Ok(kernel(&program.steps[step]).and_then(without_roundings).map(|kernel| ("rounding".into(), kernel)))
        };
        rewrites.each_step(program, find, |program, at, kernel| {
            let (kernel, args) = tidy(kernel, program.steps[at].args.clone());
            (program.steps[at].op, program.steps[at].args) = (FlowOp::Kernel(Arc::new(kernel)), args);
        })
    })
}

/// Returns the kernel without redundant roundings, or `None` if there are none. Dead statements may remain.
pub fn without_roundings(k: &Kernel) -> Option<Kernel> {
    let rounded: Vec<Option<usize>> = (0..k.body.len()).map(|at| rounded(k, at)).collect();
    rounded.iter().flatten().next()?;
    let again = rounded_again(k);
    let dropped = |at: usize| rounded[at].filter(|_| again[at]);
    if !(0..k.body.len()).any(|at| dropped(at).is_some()) {
        return None;
    }
    let mut map: Vec<usize> = vec![];
    let mut body: Vec<Statement> = vec![];
    for (at, statement) in k.body.iter().enumerate() {
        if let Some(from) = dropped(at) {
            map.push(map[from]);
            continue;
        }
        let new = statement.body.renumbered(&|k| map[k], &|d| rename(d, &|_| None, &|k| map[k]));
        body.push(Statement { body: new, dtype: statement.dtype });
        map.push(body.len() - 1);
    }
    let mut new = Kernel { body, ..k.clone() };
    renumber_stores(&mut new, &map);
    Some(new)
}

/// Returns the statement x if statement `at` is f32(f16(x)) and x is an f32.
fn rounded(k: &Kernel, at: usize) -> Option<usize> {
    let converted = |at: usize, to: DType| match k.body[at] {
        Statement { body: Body::Convert(from, Conversion::Value), dtype } if dtype == to => Some(from),
        _ => None,
    };
    let from = converted(converted(at, DType::F32)?, DType::F16)?;
    (k.body[from].dtype == DType::F32).then_some(from)
}

/// Returns, for each statement, whether every use of its value either rounds the result to f16 later on or only tests
/// for NaN.
fn rounded_again(k: &Kernel) -> Vec<bool> {
    let mut again = vec![true; k.body.len()];
    for store in &k.stores {
        again[store.value] = false;
        statements_in(&store.memlet.index).into_iter().for_each(|at| again[at] = false);
    }
    for at in (0..k.body.len()).rev() {
        let Statement { body, dtype } = &k.body[at];
        let fits = match body {
            Body::Convert(_, Conversion::Value) if *dtype == DType::F16 => true,
            Body::Apply { f: ScalarFn::IsNan, .. } => true,
            Body::Convert(_, Conversion::Value) | Body::Apply { .. } | Body::Reduce { .. } => {
                *dtype == DType::F32 && again[at]
            }
            Body::Load { .. } | Body::Const(_) | Body::Index(_) | Body::Convert(..) => false,
        };
        if !fits {
            body.operands().into_iter().for_each(|operand| again[operand] = false);
        }
    }
    again
}
