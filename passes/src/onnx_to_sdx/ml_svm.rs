//! SVMClassifier(x)  =>  kernel(x, vectors) · pairs + rho: one score and one vote per pair of classes

use super::builder::Builder;
use super::ml_features::{floats, rows};
use super::ml_models::{best_label, both_signs, integer_labels, kernel, matrix, transformed};
use super::node::Node;
use sardonyx_base::host::DataOp;
use sardonyx_base::{DType, Dim, HostOp, Result};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, TensorType, Value};

type Outputs = Result<Vec<Value>>;

/// Maximum number of classes: tables grow with the number of their pairs.
const CLASSES_MAX: usize = 1024;

/// Maximum number of elements in the table of vectors and pairs.
const WEIGHTS_MAX: usize = 1 << 26;

pub fn svm_classifier(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let x = rows(b, node, x)?;
    let labels = integer_labels(node, "classlabels_ints")?;
    if labels.len() > CLASSES_MAX {
        return Err(node.error("E0203", format!("{} classes: up to {CLASSES_MAX} are supported", labels.len())));
    }
    let counts = node.ints("vectors_per_class")?.unwrap_or_default();
    let counts: Option<Vec<usize>> = counts.into_iter().map(|n| usize::try_from(n).ok()).collect();
    let counts = counts.ok_or_else(|| node.error("E0106", "a count in `vectors_per_class` is negative"))?;
    let (votes, scores) = match counts.iter().any(|&n| n > 0) {
        true => by_pairs(b, node, x, &counts, labels.len())?,
        false => by_planes(b, node, x, labels.len())?,
    };
    let coefficients = node.floats("coefficients")?.unwrap_or_default();
    let probable = node.floats("prob_a")?.is_some_and(|p| !p.is_empty()) && scores != votes;
    let label = match labels.as_slice() {
        // As in ONNX's reference implementation, every row gets the second label if no coefficient is negative.
        [_, second] if scores != votes && !probable && coefficients.iter().all(|c| *c >= 0.0) => {
            best_label(b, votes, &[*second; 2])?
        }
        all => best_label(b, votes, all)?,
    };
    let scores = if probable { probabilities(b, node, scores, labels.len())? } else { scores };
    let lone = b.dims(scores)[1].is_const(1);
    let scores = if lone { both_signs(b, scores)? } else { scores };
    let scores = transformed(b, node, scores, &node.str_or("post_transform", "NONE")?)?;
    Ok(vec![label, b.convert(scores, DType::F32)?])
}

/// Returns scores and votes for one hyperplane per class: the score of a class is also its vote.
fn by_planes(b: &mut Builder, node: &Node, x: Value, n_classes: usize) -> Result<(Value, Value)> {
    let coefficients = node.require("coefficients", node.floats("coefficients")?)?;
    let table = matrix(b, node, b.dtype(x), coefficients, n_classes)?;
    let scores = b.contract("nf,cf->nc", x, table)?;
    let rho = node.floats("rho")?.and_then(|r| r.first().copied()).unwrap_or(0.0);
    let scores = b.map_const(ScalarFn::Add, scores, rho)?;
    Ok((scores, scores))
}

/// Returns scores and votes for pairs of classes. The score of classes i < j weights the support vectors of both; a
/// positive score is a vote for i, otherwise for j.
fn by_pairs(b: &mut Builder, node: &Node, x: Value, counts: &[usize], n_classes: usize) -> Result<(Value, Value)> {
    let n_vectors = counts.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)).unwrap_or(usize::MAX);
    let given = node.require("coefficients", node.floats("coefficients")?)?;
    let rho = node.floats("rho")?.unwrap_or_default();
    let n_pairs = n_classes * n_classes.saturating_sub(1) / 2;
    let fits = n_vectors.checked_mul(n_classes.saturating_sub(1)) == Some(given.len());
    if counts.len() != n_classes || !fits || rho.len() != n_pairs || n_pairs == 0 {
        let reason = format!("{} coefficients and {} of `rho` for {n_vectors} vectors", given.len(), rho.len());
        return Err(node.error("E0106", format!("{reason} of {n_classes} classes")));
    }
    let size = n_vectors.checked_mul(n_pairs).filter(|n| *n <= WEIGHTS_MAX);
    let size =
        size.ok_or_else(|| node.error("E0203", format!("{n_vectors} vectors of {n_pairs} pairs are too many")))?;
    let vectors = node.require("support_vectors", node.floats("support_vectors")?)?;
    let vectors = matrix(b, node, b.dtype(x), vectors, n_vectors)?;
    let values = kernel(b, node, x, vectors)?;
    let starts: Vec<usize> = (0..n_classes).map(|c| counts[..c].iter().sum()).collect();
    let mut weights = vec![0.0; size];
    let (mut first, mut second) = (vec![0.0; n_pairs * n_classes], vec![0.0; n_pairs * n_classes]);
    let pairs = (0..n_classes).flat_map(|i| (i + 1..n_classes).map(move |j| (i, j)));
    for (pair, (i, j)) in pairs.enumerate() {
        for (class, row) in [(i, j - 1), (j, i)] {
            for v in starts[class]..starts[class] + counts[class] {
                weights[v * n_pairs + pair] = given[row * n_vectors + v];
            }
        }
        (first[pair * n_classes + i], second[pair * n_classes + j]) = (1.0, 1.0);
    }
    let dtype = b.dtype(x);
    let weights = matrix(b, node, dtype, weights, n_vectors)?;
    let scores = b.contract("nv,vp->np", values, weights)?;
    let rho = floats(b, dtype, &rho)?;
    let scores = b.map2(ScalarFn::Add, scores, rho)?;
    let zero = b.splat(dtype, 0.0, &[])?;
    let positive = b.map2(ScalarFn::Lt, zero, scores)?;
    let mut votes = vec![];
    for (holds, table) in [(true, first), (false, second)] {
        let side = if holds { positive } else { b.map1(ScalarFn::Not, positive)? };
        let side = b.convert(side, dtype)?;
        let table = matrix(b, node, dtype, table, n_pairs)?;
        votes.push(b.contract("np,pc->nc", side, table)?);
    }
    Ok((b.map2(ScalarFn::Add, votes[0], votes[1])?, scores))
}

/// Returns the probability of each class. That of i in a pair (i, j) is 1 - logistic(a s + b), with score s. For more
/// than two classes, the probabilities are the limit of an iteration over the pairs. No kernel can express it, so a
/// host operation computes it.
fn probabilities(b: &mut Builder, node: &Node, scores: Value, n_classes: usize) -> Result<Value> {
    let n_pairs = n_classes * n_classes.saturating_sub(1) / 2;
    let dtype = b.dtype(scores);
    let by_pair = |b: &mut Builder, name: &str| {
        let given = node.floats(name)?.unwrap_or_default();
        match given.len() >= n_pairs && b.dims(scores)[1].is_const(n_pairs as i64) {
            true => floats(b, dtype, &given[..n_pairs]),
            false => Err(node.error("E0106", format!("`{name}` has {} values for {n_pairs} pairs", given.len()))),
        }
    };
    let (slope, offset) = (by_pair(b, "prob_a")?, by_pair(b, "prob_b")?);
    let scaled = b.map2(ScalarFn::Mul, scores, slope)?;
    let shifted = b.map2(ScalarFn::Add, scaled, offset)?;
    // 1 - logistic(x) is 1 / (1 + exp(x)).
    let power = b.map1(ScalarFn::Exp, shifted)?;
    let sum = b.map_const(ScalarFn::Add, power, 1.0)?;
    let one = b.splat(dtype, 1.0, &[])?;
    let own = b.map2(ScalarFn::Div, one, sum)?;
    let own = b.map_const(ScalarFn::Max, own, 1e-7)?;
    let own = b.map_const(ScalarFn::Min, own, 1.0 - 1e-7)?;
    if n_classes != 2 {
        let pairs = b.convert(own, DType::F32)?;
        let ty = TensorType::new(DType::F32, vec![b.dims(pairs)[0].clone(), Dim::constant(n_classes as i64)]);
        return Ok(b.host(HostOp::Data(DataOp::CouplePairs), &[pairs], &[ty], &[])?.remove(0));
    }
    let rest = b.map2(ScalarFn::Sub, one, own)?;
    b.add(Op::Concat { axis: 1 }, &[own, rest])
}
