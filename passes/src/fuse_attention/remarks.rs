//! an unfused softmax between two contractions  =>  the ONNX node that prevents fusion, and the reason

use super::{has_exponentials, scores_in_weights, weights_in_sum};
use crate::remark::Missed;
use crate::rewrite::Rewrites;
use crate::steps::{Uses, kernel, union};
use sardonyx_dialects::flow::{Class, FlowOp, Program};

/// Maximum number of other steps between the scores and the weights (the softmax), and between the weights and the
/// weighted sum, with which the missed fusion is reported.
const BETWEEN_MAX: usize = 2;

const UNREAD: &str = "leave the output out, if nobody needs it";

pub fn tell(program: &Program, rewrites: &mut Rewrites) {
    if !rewrites.options().remarks {
        return;
    }
    let uses = Uses::new(program);
    for weights in 0..program.steps.len() {
        let Some(near) = near(program, &uses, weights) else { continue };
        let (reason, step, remedy) = why(program, &uses, &near);
        let own = &program.steps[step].origins;
        let others: Vec<&String> = [near.scores, near.weights, near.sum]
            .iter()
            .filter(|s| **s != step)
            .flat_map(|&s| &program.steps[s].origins)
            .collect();
        let mut alone = own.iter().filter(|o| !others.contains(o));
        let node = match remedy {
            // The last node of the step computes the output.
            Some(UNREAD) => alone.next_back().or(own.last()),
            _ => alone.clone().find(|o| rewrites.is_reducer(o)).or(alone.next()).or(own.first()),
        };
        let node = node.cloned();
        let parts = [near.scores, near.weights, near.sum];
        let origins = union(parts.iter().map(|&s| program.steps[s].origins.as_slice()));
        rewrites.missed(Missed { reason, node, origins, detail: None, remedy });
    }
}

/// The three kernels of attention that are not fused, with the steps before and after the weights that separate them.
struct Near {
    scores: usize,
    weights: usize,
    sum: usize,
    before: Vec<usize>,
    after: Vec<usize>,
}

fn near(program: &Program, uses: &Uses, weights: usize) -> Option<Near> {
    let step = &program.steps[weights];
    let k = kernel(step)?;
    if k.class() != Class::Normalise || !has_exponentials(k) {
        return None;
    }
    let (scores, before) = step.args.iter().find_map(|&id| scores_behind(program, uses, id, BETWEEN_MAX))?;
    let (sum, after) = step.results.iter().find_map(|&id| sum_after(program, uses, id, BETWEEN_MAX))?;
    Some(Near { scores, weights, sum, before, after })
}

/// Returns the contraction from which a container is computed, and the steps in between, from the first to the last.
fn scores_behind(program: &Program, uses: &Uses, id: usize, depth: usize) -> Option<(usize, Vec<usize>)> {
    let at = uses.producers[id]?;
    if kernel(&program.steps[at]).is_some_and(|k| k.class() == Class::Contract) {
        return Some((at, vec![]));
    }
    let goes_on = depth > 0 && is_between(program, at);
    let (found, mut between) = program.steps[at]
        .args
        .iter()
        .filter(|_| goes_on)
        .find_map(|&id| scores_behind(program, uses, id, depth - 1))?;
    between.push(at);
    Some((found, between))
}

/// Returns the contraction that reads a container, directly or through other steps, and the steps in between, from the
/// last to the first.
fn sum_after(program: &Program, uses: &Uses, id: usize, depth: usize) -> Option<(usize, Vec<usize>)> {
    let readers = &uses.consumers[id];
    let contracts = |at: &&usize| kernel(&program.steps[**at]).is_some_and(|k| k.class() == Class::Contract);
    if let Some(&at) = readers.iter().find(contracts) {
        return Some((at, vec![]));
    }
    let through = readers.iter().filter(|at| depth > 0 && is_between(program, **at));
    through.into_iter().find_map(|&at| {
        let results = program.steps[at].results.iter();
        let (found, mut between) = results.into_iter().find_map(|&id| sum_after(program, uses, id, depth - 1))?;
        between.push(at);
        Some((found, between))
    })
}

fn is_between(program: &Program, at: usize) -> bool {
    match &program.steps[at].op {
        FlowOp::View => true,
        FlowOp::Kernel(k) => k.class() == Class::Map,
        FlowOp::Param { .. } | FlowOp::Const(_) | FlowOp::Bind { .. } | FlowOp::Host(_) => false,
    }
}

/// Returns the reason why the kernels are not fused, the step that prevents fusion, and a remedy if one is known.
fn why(program: &Program, uses: &Uses, near: &Near) -> (&'static str, usize, Option<&'static str>) {
    let is_view = |at: usize| program.steps[at].op == FlowOp::View;
    match (near.before.last(), near.after.last()) {
        (Some(&at), _) if is_view(at) => return ("the scores are reshaped before the softmax", at, None),
        (Some(&at), _) => return ("something else is computed between the scores and the softmax", at, None),
        (None, Some(&at)) if is_view(at) => return ("the weights are reshaped after the softmax", at, None),
        (None, Some(&at)) => return ("something else is computed between the softmax and the sum", at, None),
        (None, None) => {}
    }
    let of = |step: usize| &program.steps[step].results;
    if of(near.scores).iter().any(|&id| program.is_output(id)) {
        return ("the scores are an output of the model", near.scores, Some(UNREAD));
    }
    if of(near.weights).iter().any(|&id| program.is_output(id)) {
        return ("the weights are an output of the model", near.weights, Some(UNREAD));
    }
    let other = |of: &[usize], than: usize| of.iter().flat_map(|&id| &uses.consumers[id]).copied().find(|&c| c != than);
    if let Some(at) = other(of(near.scores), near.weights) {
        return ("another kernel reads the scores", at, None);
    }
    if let Some(at) = other(of(near.weights), near.sum) {
        return ("another kernel reads the weights", at, None);
    }
    let (scores, weights, sum) = (&program.steps[near.scores], &program.steps[near.weights], &program.steps[near.sum]);
    if scores_in_weights(scores, weights).is_none() {
        return ("the rows of the softmax are not those of the scores", near.weights, None);
    }
    if weights_in_sum(weights, sum).is_none() {
        return ("the softmax goes along another dimension than the sum", near.weights, None);
    }
    ("the three kernels do not fit into one", near.sum, None)
}
