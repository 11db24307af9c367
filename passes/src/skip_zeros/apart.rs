//! f(Σ a · x, Σ b · x)  =>  s = Σ a · x; f(s, Σ b · x): a kernel for each of two sums
//!
//! The tensor cores of GPUs multiply one sparse matrix at a time. Gates share their operand in one kernel, which saves a
//! launch and the movement of a sum; without zeros both products are faster all the same.

use crate::splice::tidy;
use crate::steps::kernel;
use sardonyx_dialects::flow::{Body, Class, Container, FlowOp, Kernel, Memlet, Program, Step, Store};
use std::sync::Arc;

/// Returns the program with the first of two sums of a contraction in a kernel of its own, which is the last step. `None`
/// for any other kernel.
pub fn apart(program: &Program, at: usize) -> Option<Program> {
    let step = &program.steps[at];
    let k = kernel(step).filter(|k| k.class() == Class::Contract)?;
    let sums: Vec<usize> = (0..k.body.len()).filter(|s| matches!(k.body[*s].body, Body::Reduce { .. })).collect();
    let &[first, _] = &sums[..] else { return None };
    let made = Container::plain(k.body[first].dtype, k.outer.clone());
    let index = (0..k.outer.len()).map(Kernel::var).collect();
    let memlet = Memlet { container: 0, index };
    let alone = Kernel {
        body: k.body[..=first].to_vec(),
        writes: vec![made.clone()],
        stores: vec![Store { memlet: memlet.clone(), value: first }],
        ..k.clone()
    };
    let mut other = k.clone();
    other.reads.push(made.clone());
    let memlet = Memlet { container: k.reads.len(), ..memlet };
    other.body[first].body = Body::Load { memlet, guard: None };
    let mut split = program.clone();
    let id = split.container(made);
    let ((alone, of_alone), (other, of_other)) =
        (tidy(alone, step.args.clone()), tidy(other, [&step.args[..], &[id]].concat()));
    let own = &mut split.steps[at];
    (own.op, own.args) = (FlowOp::Kernel(Arc::new(other)), of_other);
    let op = FlowOp::Kernel(Arc::new(alone));
    split.steps.push(Step { op, args: of_alone, results: vec![id], origins: step.origins.clone() });
    Some(split)
}
