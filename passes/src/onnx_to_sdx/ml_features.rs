//! Scaler, Normalizer, Imputer, … of ai.onnx.ml  =>  elementwise functions, reductions and gathers

use super::builder::Builder;
use super::coordinates::{indices, iota, positions_except};
use super::node::Node;
use sardonyx_base::dim::product;
use sardonyx_base::{DType, Dim, Result, Tensor};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};

type Outputs = Result<Vec<Value>>;

/// A vector of floats as a constant.
pub fn floats(b: &mut Builder, dtype: DType, values: &[f64]) -> Result<Value> {
    let wide = b.constant(Tensor::from_vec(vec![values.len()], values.to_vec()))?;
    b.convert(wide, dtype)
}

/// A vector of integers as a constant.
pub fn integers(b: &mut Builder, values: &[i64]) -> Result<Value> {
    b.constant(Tensor::from_vec(vec![values.len()], values.to_vec()))
}

pub fn numbers_only(b: &Builder, node: &Node, x: Value) -> Result<()> {
    match b.dtype(x).is_float() || b.dtype(x).is_int() {
        true => Ok(()),
        false => Err(node.error("E0107", format!("does not take {}", b.dtype(x)))),
    }
}

/// Rows of features, in f64 if x is f64 and in f32 otherwise: the operators' results are f32. A vector is one row.
pub fn rows(b: &mut Builder, node: &Node, x: Value) -> Result<Value> {
    numbers_only(b, node, x)?;
    let working = if b.dtype(x) == DType::F64 { DType::F64 } else { DType::F32 };
    let x = b.convert(x, working)?;
    match b.dims(x).as_slice() {
        [n] => b.reshape(x, &[Dim::constant(1), n.clone()]),
        [_, _] => Ok(x),
        _ => Err(node.error("E0201", format!("takes rows of features, not {}", b.ty(x)))),
    }
}

/// A list with one value per element of the last dimension, or a single value for all of them.
fn per_feature(b: &mut Builder, node: &Node, x: Value, values: &[f64]) -> Result<Value> {
    let last = b.dims(x).last().cloned().unwrap_or(Dim::constant(1));
    if values.len() != 1 {
        b.unify(&last, &Dim::constant(values.len() as i64)).map_err(|e| e.node(&node.name))?;
    }
    floats(b, b.dtype(x), values)
}

pub fn scaler(b: &mut Builder, node: &Node) -> Outputs {
    let mut x = node.input(0)?;
    numbers_only(b, node, x)?;
    x = b.convert(x, if b.dtype(x) == DType::F64 { DType::F64 } else { DType::F32 })?;
    for (name, f) in [("offset", ScalarFn::Sub), ("scale", ScalarFn::Mul)] {
        if let Some(values) = node.floats(name)? {
            let values = per_feature(b, node, x, &values)?;
            x = b.map2(f, x, values)?;
        }
    }
    Ok(vec![b.convert(x, DType::F32)?])
}

/// 1 where x is greater than the threshold, else 0.
pub fn binarizer(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    numbers_only(b, node, x)?;
    let dtype = b.dtype(x);
    let wide = if dtype.is_float() { x } else { b.convert(x, DType::F64)? };
    let threshold = b.splat(b.dtype(wide), node.float_or("threshold", 0.0)?, &[])?;
    let above = b.map2(ScalarFn::Lt, threshold, wide)?;
    Ok(vec![b.convert(above, dtype)?])
}

/// x divided by the norm of its row, unless that is 0.
pub fn normalizer(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let flat = rows(b, node, x)?;
    let size = b.map1(ScalarFn::Abs, flat)?;
    let norm = match node.str_or("norm", "MAX")?.as_str() {
        "MAX" => b.reduce(ReduceFn::Max, size, &[1], true)?,
        "L1" => b.reduce(ReduceFn::Add, size, &[1], true)?,
        "L2" => {
            let square = b.map2(ScalarFn::Mul, flat, flat)?;
            let sum = b.reduce(ReduceFn::Add, square, &[1], true)?;
            b.map1(ScalarFn::Sqrt, sum)?
        }
        other => return Err(node.error("E0106", format!("the norm `{other}` is not known"))),
    };
    let (zero, one) = (b.splat(b.dtype(flat), 0.0, &[])?, b.splat(b.dtype(flat), 1.0, &[])?);
    let empty = b.map2(ScalarFn::Eq, norm, zero)?;
    let norm = b.select(empty, one, norm)?;
    let y = b.map2(ScalarFn::Div, flat, norm)?;
    let dims = b.dims(x);
    let y = b.reshape(y, &dims)?;
    Ok(vec![b.convert(y, DType::F32)?])
}

/// Replaces the value that marks missing values, feature by feature.
pub fn imputer(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    numbers_only(b, node, x)?;
    let dtype = b.dtype(x);
    let missing = |list: Option<Vec<f64>>| node.require("imputed_value", list.filter(|l| !l.is_empty()));
    let (values, replaced) = if dtype.is_float() {
        let values = missing(node.floats("imputed_value_floats")?)?;
        (per_feature(b, node, x, &values)?, node.float_or("replaced_value_float", 0.0)?)
    } else {
        let values = missing(node.ints("imputed_value_int64s")?.map(|v| v.into_iter().map(|i| i as f64).collect()))?;
        (per_feature(b, node, x, &values)?, node.int_or("replaced_value_int64", 0)? as f64)
    };
    let found = if replaced.is_nan() { b.map1(ScalarFn::IsNan, x)? } else { b.map_const(ScalarFn::Eq, x, replaced)? };
    Ok(vec![b.select(found, values, x)?])
}

/// Selects features of the last dimension by index; a vector is one row.
pub fn array_feature_extractor(b: &mut Builder, node: &Node) -> Outputs {
    let (mut x, index) = (node.input(0)?, indices(b, node, 1)?);
    if let [n] = b.dims(x).as_slice() {
        x = b.reshape(x, &[Dim::constant(1), n.clone()])?;
    }
    let Some(axis) = b.rank(x).checked_sub(1) else { return Err(node.error("E0201", "a scalar has no features")) };
    let count = product(&b.dims(index));
    let index = b.reshape(index, &[count])?;
    Ok(vec![b.add(Op::Gather { axis }, &[x, index])?])
}

/// OneHotEncoder: one column per category. Unless `zeros` is set, calls with an unknown category are refused, as its
/// index is -1.
pub fn one_hot_encoder(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    numbers_only(b, node, x)?;
    let categories = node.ints("cats_int64s")?.filter(|c| !c.is_empty());
    let categories = categories.ok_or_else(|| node.error("E0101", "only categories of integers are supported"))?;
    let x = b.convert(x, DType::I64)?;
    let (rank, mut dims) = (b.rank(x), b.dims(x));
    dims.push(Dim::constant(categories.len() as i64));
    let known = integers(b, &categories)?;
    let (known, wide) = (b.broadcast(known, &dims)?, b.broadcast_at(x, positions_except(rank, rank), &dims)?);
    let mut hot = b.map2(ScalarFn::Eq, wide, known)?;
    if node.int_or("zeros", 1)? == 0 {
        let place = iota(b, rank, &dims)?;
        let none = b.dims_scalar(Dim::constant(-1))?;
        let found = b.select(hot, place, none)?;
        let found = b.reduce(ReduceFn::Max, found, &[rank], true)?;
        let all: Vec<i64> = (0..categories.len() as i64).collect();
        let all = integers(b, &all)?;
        let found = b.add(Op::Gather { axis: 0 }, &[all, found])?;
        hot = b.map2(ScalarFn::Eq, place, found)?;
    }
    Ok(vec![b.convert(hot, DType::F32)?])
}

/// Concatenates the inputs, each cut or padded with zeros to its declared width.
pub fn feature_vectorizer(b: &mut Builder, node: &Node) -> Outputs {
    let inputs = node.all_inputs()?;
    let widths = node.ints("inputdimensions")?;
    let mut parts: Vec<Value> = vec![];
    for (i, v) in inputs.into_iter().enumerate() {
        numbers_only(b, node, v)?;
        let mut part = b.convert(v, DType::F32)?;
        if let [n] = b.dims(part).as_slice() {
            part = b.reshape(part, &[Dim::constant(1), n.clone()])?;
        }
        if b.rank(part) != 2 {
            return Err(node.error("E0201", format!("takes rows of features, not {}", b.ty(v))));
        }
        if let Some(&width) = widths.as_ref().and_then(|w| w.get(i)) {
            part = super::signal::fitted(b, part, 1, &Dim::constant(width))?;
        }
        if let Some(&first) = parts.first() {
            let (own, other) = (b.dims(part)[0].clone(), b.dims(first)[0].clone());
            b.unify(&own, &other)?;
        }
        parts.push(part);
    }
    match parts.as_slice() {
        [] => Err(node.error("E0103", "has no input")),
        many => Ok(vec![b.concat(1, many)?]),
    }
}
