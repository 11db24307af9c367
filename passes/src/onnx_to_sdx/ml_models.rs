//! LinearClassifier, SVMRegressor, … of ai.onnx.ml  =>  contract with a constant matrix, then a transform of the scores

use super::builder::Builder;
use super::coordinates::iota;
use super::ml_features::{integers, rows};
use super::node::Node;
use super::reduction::softmax_over;
use sardonyx_base::{DType, Dim, Result, Tensor};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};

type Outputs = Result<Vec<Value>>;

/// A matrix of floats as a constant, with `rows` rows and as many columns as the values fill.
pub fn matrix(b: &mut Builder, node: &Node, dtype: DType, values: Vec<f64>, rows: usize) -> Result<Value> {
    if rows == 0 || values.is_empty() || !values.len().is_multiple_of(rows) {
        return Err(node.error("E0106", format!("{} coefficients do not make {rows} rows", values.len())));
    }
    let columns = values.len() / rows;
    let wide = b.constant(Tensor::from_vec(vec![rows, columns], values))?;
    b.convert(wide, dtype)
}

/// Applies a `post_transform` to scores[n, c].
pub fn transformed(b: &mut Builder, node: &Node, scores: Value, kind: &str) -> Result<Value> {
    match kind {
        "NONE" => Ok(scores),
        "SOFTMAX" => softmax_over(b, scores, &[1]),
        "LOGISTIC" => logistic(b, scores),
        "SOFTMAX_ZERO" => softmax_of_others(b, scores),
        "PROBIT" => probit(b, scores),
        other => Err(node.error("E0106", format!("the transform `{other}` is not known"))),
    }
}

/// 1 / (1 + exp(-x))
fn logistic(b: &mut Builder, x: Value) -> Result<Value> {
    let negated = b.map1(ScalarFn::Neg, x)?;
    let power = b.map1(ScalarFn::Exp, negated)?;
    let sum = b.map_const(ScalarFn::Add, power, 1.0)?;
    let one = b.splat(b.dtype(x), 1.0, &[])?;
    b.map2(ScalarFn::Div, one, sum)
}

/// A softmax in which scores of 0 stay 0 and add nothing to the sum; if the sum is 0, every result is 0.5.
fn softmax_of_others(b: &mut Builder, x: Value) -> Result<Value> {
    let dtype = b.dtype(x);
    let max = b.reduce(ReduceFn::Max, x, &[1], true)?;
    let shifted = b.map2(ScalarFn::Sub, x, max)?;
    let power = b.map1(ScalarFn::Exp, shifted)?;
    let low = b.map1(ScalarFn::Neg, max)?;
    let low = b.map1(ScalarFn::Exp, low)?;
    let low = b.map2(ScalarFn::Mul, x, low)?;
    let size = b.map1(ScalarFn::Abs, x)?;
    let small = b.map_const(ScalarFn::Le, size, 1e-7)?;
    let y = b.select(small, low, power)?;
    let sum = b.reduce(ReduceFn::Add, y, &[1], true)?;
    let (zero, half) = (b.splat(dtype, 0.0, &[])?, b.splat(dtype, 0.5, &[])?);
    let none = b.map2(ScalarFn::Eq, sum, zero)?;
    let y = b.map2(ScalarFn::Div, y, sum)?;
    b.select(none, half, y)
}

/// √2 erf⁻¹(2x - 1), by Winitzki's approximation, which the ONNX reference implementation uses too.
fn probit(b: &mut Builder, x: Value) -> Result<Value> {
    const A: f64 = 0.147;
    let twice = b.map_const(ScalarFn::Mul, x, 2.0)?;
    let z = b.map_const(ScalarFn::Sub, twice, 1.0)?;
    let one = b.splat(b.dtype(x), 1.0, &[])?;
    let (less, more) = (b.map2(ScalarFn::Sub, one, z)?, b.map_const(ScalarFn::Add, z, 1.0)?);
    let rest = b.map2(ScalarFn::Mul, less, more)?;
    let log = b.map1(ScalarFn::Log, rest)?;
    let half = b.map_const(ScalarFn::Mul, log, 0.5)?;
    let v = b.map_const(ScalarFn::Add, half, 2.0 / (std::f64::consts::PI * A))?;
    let square = b.map2(ScalarFn::Mul, v, v)?;
    let scaled = b.map_const(ScalarFn::Mul, log, 1.0 / A)?;
    let root = b.map2(ScalarFn::Sub, square, scaled)?;
    let root = b.map1(ScalarFn::Sqrt, root)?;
    let root = b.map2(ScalarFn::Sub, root, v)?;
    let root = b.map1(ScalarFn::Sqrt, root)?;
    let sign = b.map1(ScalarFn::Sign, z)?;
    let y = b.map2(ScalarFn::Mul, sign, root)?;
    b.map_const(ScalarFn::Mul, y, std::f64::consts::SQRT_2)
}

/// x[n, f] · coefficients[c, f] + intercepts[c] → [n, c]
fn linear(b: &mut Builder, node: &Node, x: Value, n_scores: usize) -> Result<Value> {
    let coefficients = node.require("coefficients", node.floats("coefficients")?)?;
    let table = matrix(b, node, b.dtype(x), coefficients, n_scores)?;
    let scores = b.contract("nf,cf->nc", x, table)?;
    match node.floats("intercepts")?.filter(|i| !i.is_empty()) {
        Some(intercepts) => {
            let intercepts = super::ml_features::floats(b, b.dtype(x), &intercepts)?;
            b.map2(ScalarFn::Add, scores, intercepts)
        }
        None => Ok(scores),
    }
}

pub fn linear_regressor(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let x = rows(b, node, x)?;
    let targets = usize::try_from(node.int_or("targets", 1)?).unwrap_or(0);
    let scores = linear(b, node, x, targets)?;
    let y = transformed(b, node, scores, &node.str_or("post_transform", "NONE")?)?;
    Ok(vec![b.convert(y, DType::F32)?])
}

/// The integer labels of the classes. Errors: E0101 if there are only strings.
pub fn integer_labels(node: &Node, name: &str) -> Result<Vec<i64>> {
    let labels = node.ints(name)?.filter(|l| !l.is_empty());
    labels.ok_or_else(|| node.error("E0101", "only labels of integers are supported").help("export integer labels"))
}

/// Label of the highest score in each row; ties go to the first, and NaN counts as highest.
pub fn best_label(b: &mut Builder, scores: Value, labels: &[i64]) -> Result<Value> {
    let dims = b.dims(scores);
    let best = b.reduce(ReduceFn::Max, scores, &[1], true)?;
    let found = b.map2(ScalarFn::Eq, scores, best)?;
    let nan = b.map1(ScalarFn::IsNan, scores)?;
    let found = b.map2(ScalarFn::Or, found, nan)?;
    let place = iota(b, 1, &dims)?;
    let none = b.dims_scalar(Dim::constant(labels.len() as i64))?;
    let place = b.select(found, place, none)?;
    let place = b.reduce(ReduceFn::Min, place, &[1], false)?;
    let labels = integers(b, labels)?;
    b.add(Op::Gather { axis: 0 }, &[labels, place])
}

/// [-s, s] of scores [n, 1]
pub fn both_signs(b: &mut Builder, scores: Value) -> Result<Value> {
    let negated = b.map1(ScalarFn::Neg, scores)?;
    b.add(Op::Concat { axis: 1 }, &[negated, scores])
}

/// LinearClassifier. Two classes may share one row of coefficients: the first class's score is then that of the second,
/// negated.
pub fn linear_classifier(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let x = rows(b, node, x)?;
    let labels = integer_labels(node, "classlabels_ints")?;
    let kind = node.str_or("post_transform", "NONE")?;
    let features = b.dims(x)[1].as_const().and_then(|f| usize::try_from(f).ok()).filter(|f| *f > 0);
    let n_coefficients = node.floats("coefficients")?.map_or(0, |c| c.len());
    let shared = labels.len() == 2 && features.is_some_and(|f| f == n_coefficients);
    let mut scores = linear(b, node, x, if shared { 1 } else { labels.len() })?;
    if shared {
        scores = both_signs(b, scores)?;
    }
    let scores = transformed(b, node, scores, &kind)?;
    let label = match labels.as_slice() {
        [one] => {
            let bound = if kind == "NONE" { 0.0 } else { 0.5 };
            let bound = b.splat(b.dtype(scores), bound, &[])?;
            let hit = b.map2(ScalarFn::Le, bound, scores)?;
            let (label, none) = (b.constant(Tensor::scalar(*one))?, b.constant(Tensor::scalar(0i64))?);
            let label = b.select(hit, label, none)?;
            let count = b.dims(label)[0].clone();
            b.reshape(label, &[count])?
        }
        many => best_label(b, scores, many)?,
    };
    Ok(vec![label, b.convert(scores, DType::F32)?])
}

/// Values of the SVM's kernel function: k(x[n, f], vectors[v, f]) → [n, v]
pub fn kernel(b: &mut Builder, node: &Node, x: Value, vectors: Value) -> Result<Value> {
    let given = node.floats("kernel_params")?.unwrap_or_default();
    let parameter = |i: usize| given.get(i).copied().unwrap_or(0.0);
    let (gamma, offset, degree) = (parameter(0), parameter(1), parameter(2));
    let kind = node.str_or("kernel_type", "LINEAR")?;
    if kind == "RBF" {
        let own = b.dims(x);
        b.unify(&own[1].clone(), &b.dims(vectors)[1].clone())?;
        let all = [b.dims(x)[0].clone(), b.dims(vectors)[0].clone(), b.dims(x)[1].clone()];
        let (left, right) = (b.broadcast_at(x, vec![0, 2], &all)?, b.broadcast_at(vectors, vec![1, 2], &all)?);
        let difference = b.map2(ScalarFn::Sub, left, right)?;
        let square = b.map2(ScalarFn::Mul, difference, difference)?;
        let distance = b.reduce(ReduceFn::Add, square, &[2], false)?;
        let scaled = b.map_const(ScalarFn::Mul, distance, -gamma)?;
        return b.map1(ScalarFn::Exp, scaled);
    }
    let dot = b.contract("nf,vf->nv", x, vectors)?;
    if kind == "LINEAR" {
        return Ok(dot);
    }
    let scaled = b.map_const(ScalarFn::Mul, dot, gamma)?;
    let shifted = b.map_const(ScalarFn::Add, scaled, offset)?;
    match kind.as_str() {
        "POLY" => b.map_const(ScalarFn::Pow, shifted, degree.trunc()),
        "SIGMOID" => b.map1(ScalarFn::Tanh, shifted),
        other => Err(node.error("E0106", format!("the kernel `{other}` is not known"))),
    }
}

/// SVMRegressor: the weighted sum of the kernel values, or of the features if there are no support vectors, plus rho;
/// with `one_class`, 1 if this is positive, else -1.
pub fn svm_regressor(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let x = rows(b, node, x)?;
    let dtype = b.dtype(x);
    let coefficients = node.require("coefficients", node.floats("coefficients")?)?;
    let n_supports = usize::try_from(node.int_or("n_supports", 0)?).unwrap_or(0);
    let weights = matrix(b, node, dtype, coefficients, 1)?;
    let features = if n_supports > 0 {
        let vectors = node.require("support_vectors", node.floats("support_vectors")?)?;
        let vectors = matrix(b, node, dtype, vectors, n_supports)?;
        kernel(b, node, x, vectors)?
    } else {
        x
    };
    let sum = b.contract("nv,ov->no", features, weights)?;
    let rho = node.floats("rho")?.and_then(|r| r.first().copied()).unwrap_or(0.0);
    let sum = b.map_const(ScalarFn::Add, sum, rho)?;
    let y = if node.int_or("one_class", 0)? != 0 {
        let zero = b.splat(dtype, 0.0, &[])?;
        let positive = b.map2(ScalarFn::Lt, zero, sum)?;
        let (inside, outside) = (b.splat(dtype, 1.0, &[])?, b.splat(dtype, -1.0, &[])?);
        b.select(positive, inside, outside)?
    } else {
        transformed(b, node, sum, &node.str_or("post_transform", "NONE")?)?
    };
    Ok(vec![b.convert(y, DType::F32)?])
}
