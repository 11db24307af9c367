//! NegativeLogLikelihoodLoss(x, t, w)  =>  -gather(x, t) * gather(w, t), reduced

use super::builder::Builder;
use super::coordinates::{checked_index, from_end, gather_along};
use super::node::Node;
use super::reduction::{divide_by, log_softmax_over};
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};

type Outputs = Result<Vec<Value>>;

/// Lowers SoftmaxCrossEntropyLoss. The second output is the log-softmax of the scores over the classes; the first one
/// is the negative log-likelihood loss of this log-softmax.
pub fn cross_entropy(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    check_scores(b, node, x)?;
    let log = log_softmax_over(b, x, &[1])?;
    Ok(vec![nll_loss(b, node, log)?, log])
}

/// Lowers NegativeLogLikelihoodLoss, whose first input already contains log-probabilities.
pub fn negative_log_likelihood(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    check_scores(b, node, x)?;
    Ok(vec![nll_loss(b, node, x)?])
}

fn check_scores(b: &Builder, node: &Node, x: Value) -> Result<()> {
    match b.dtype(x).is_float() && b.rank(x) >= 2 {
        true => Ok(()),
        false => Err(node.error("E0201", format!("takes scores of classes [n, c, ..], not {}", b.ty(x)))),
    }
}

/// Returns the negative log-likelihood loss of the log-probabilities log[n, c, ..], reduced. The node's other inputs
/// are target[n, ..] and, optionally, weight[c].
fn nll_loss(b: &mut Builder, node: &Node, log: Value) -> Result<Value> {
    let target = super::coordinates::indices(b, node, 1)?;
    if b.rank(target) + 1 != b.rank(log) {
        return Err(node.error("E0201", format!("targets {} for scores {}", b.ty(target), b.ty(log))));
    }
    for i in 0..b.rank(target) {
        let (t, l) = (b.dims(target)[i].clone(), b.dims(log)[if i == 0 { 0 } else { i + 1 }].clone());
        b.unify(&t, &l)?;
    }
    let (dtype, dims) = (b.dtype(log), b.dims(target));
    let counted = match node.int("ignore_index")? {
        Some(ignored) => {
            let ignored = b.dims_scalar(Dim::constant(ignored))?;
            let same = b.map2(ScalarFn::Eq, target, ignored)?;
            Some(b.map1(ScalarFn::Not, same)?)
        }
        None => None,
    };
    let class = match counted {
        // An ignored target need not be a valid class, so class 0 replaces it; its loss and its weight become 0 below.
        Some(counted) => {
            let zero = b.dims_scalar(Dim::constant(0))?;
            b.select(counted, target, zero)?
        }
        None => target,
    };
    let n_classes = b.dims(log)[1].clone();
    let class = from_end(b, class, &n_classes)?;
    let class = checked_index(b, class, &n_classes)?;
    let mut column = dims.clone();
    column.insert(1, Dim::constant(1));
    let at = b.reshape(class, &column)?;
    let score = gather_along(b, log, 1, at)?;
    let score = b.reshape(score, &dims)?;
    let mut loss = b.map1(ScalarFn::Neg, score)?;
    let mut weight = match node.optional(2) {
        Some(w) => {
            if b.rank(w) != 1 || b.dtype(w) != dtype {
                return Err(node.error("E0201", format!("weights {} of classes", b.ty(w))));
            }
            let (own, classes) = (b.dims(w)[0].clone(), b.dims(log)[1].clone());
            b.unify(&own, &classes)?;
            Some(b.add(Op::Gather { axis: 0 }, &[w, class])?)
        }
        None => None,
    };
    if let Some(w) = weight {
        loss = b.map2(ScalarFn::Mul, loss, w)?;
    }
    if let Some(counted) = counted {
        let (zero, one) = (b.splat(dtype, 0.0, &[])?, b.splat(dtype, 1.0, &[])?);
        loss = b.select(counted, loss, zero)?;
        weight = Some(b.select(counted, weight.unwrap_or(one), zero)?);
    }
    reduced(b, node, loss, weight)
}

/// Reduces losses, already multiplied by their weights, as the attribute `reduction` says. If there are weights, the
/// mean is the sum of the losses divided by the sum of the weights.
fn reduced(b: &mut Builder, node: &Node, loss: Value, weight: Option<Value>) -> Result<Value> {
    let axes: Vec<usize> = (0..b.rank(loss)).collect();
    let mode = node.str_or("reduction", "mean")?;
    if mode == "none" {
        return Ok(loss);
    }
    let count = b.ty(loss).elements();
    let sum = b.reduce(ReduceFn::Add, loss, &axes, false)?;
    match (mode.as_str(), weight) {
        ("sum", _) => Ok(sum),
        ("mean", None) => divide_by(b, sum, count),
        ("mean", Some(weight)) => {
            let total = b.reduce(ReduceFn::Add, weight, &axes, false)?;
            b.map2(ScalarFn::Div, sum, total)
        }
        (other, _) => Err(node.error("E0106", format!("the reduction `{other}` is not known"))),
    }
}
