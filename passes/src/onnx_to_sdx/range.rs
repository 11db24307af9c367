//! Range(start, limit, delta)  =>  start + iota * delta, of as many elements as fit

use super::builder::Builder;
use super::coordinates::{iota, one_element};
use super::node::Node;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Op, Value};
use sardonyx_runtime::{DType, Dim, Result};

/// max(0, ceil((limit - start) / delta)) elements.
pub fn range(b: &mut Builder, node: &Node) -> Result<Vec<Value>> {
    let mut ends = vec![];
    for i in 0..3 {
        let end = node.input(i)?;
        ends.push(one_element(b, end)?);
    }
    let (start, limit, delta) = (ends[0], ends[1], ends[2]);
    let dtype = b.dtype(start);
    if [limit, delta].iter().any(|v| b.dtype(*v) != dtype) || !(dtype.is_float() || dtype.is_int()) {
        let types = [start, limit, delta].map(|v| b.dtype(v));
        return Err(node.error("E0107", format!("takes three numbers of one type, not {types:?}")));
    }
    let known = |v: Value| b.contents(v).and_then(|c| c.first().cloned());
    if let (Some(from), Some(to), Some(step)) = (known(start), known(limit), known(delta))
        && let Some(step) = step.as_const()
    {
        return of_dims(b, node, dtype, (from, to, step));
    }
    if dtype.is_int() { of_integers(b, dtype, start, limit, delta) } else { of_floats(b, node, start, limit, delta) }
}

/// Ends that are expressions of the symbols.
fn of_dims(b: &mut Builder, node: &Node, dtype: DType, ends: (Dim, Dim, i64)) -> Result<Vec<Value>> {
    let (from, to, step) = ends;
    if step == 0 {
        return Err(node.error("E0203", "a range needs a step other than 0"));
    }
    let span = if step > 0 { to - from.clone() } else { from.clone() - to };
    let count = span.ceildiv(&Dim::constant(step.unsigned_abs().min(i64::MAX as u64) as i64));
    let lo = |s: &str| b.graph.symbol_lo(s);
    let count = if count.lower_bound(&lo).is_some_and(|n| n >= 0) { count } else { count.maximum(&Dim::constant(0)) };
    let place = iota(b, 0, &[count])?;
    let scaled = if step == 1 { place } else { b.map_const(ScalarFn::Mul, place, step as f64)? };
    let offset = b.dims_scalar(from.clone())?;
    let shifted = if from.is_const(0) { scaled } else { b.map2(ScalarFn::Add, scaled, offset)? };
    Ok(vec![b.convert(shifted, dtype)?])
}

/// (span + delta - sign(delta)) / delta, rounded towards 0, is the count where it is positive.
fn of_integers(b: &mut Builder, dtype: DType, start: Value, limit: Value, delta: Value) -> Result<Vec<Value>> {
    let mut wide = vec![];
    for v in [start, limit, delta] {
        wide.push(b.convert(v, DType::I64)?);
    }
    let (start, limit, delta) = (wide[0], wide[1], wide[2]);
    let span = b.map2(ScalarFn::Sub, limit, start)?;
    let sign = b.map1(ScalarFn::Sign, delta)?;
    let round = b.map2(ScalarFn::Sub, delta, sign)?;
    let span = b.map2(ScalarFn::Add, span, round)?;
    let count = b.map2(ScalarFn::Div, span, delta)?;
    let count = b.map_const(ScalarFn::Max, count, 0.0)?;
    let dims = b.read_dims(count)?;
    let place = iota(b, 0, &dims)?;
    let scaled = b.map2(ScalarFn::Mul, place, delta)?;
    let shifted = b.map2(ScalarFn::Add, start, scaled)?;
    Ok(vec![b.convert(shifted, dtype)?])
}

/// Halves are reckoned in f32: their own counting would end at 2048, or at 256.
fn of_floats(b: &mut Builder, node: &Node, start: Value, limit: Value, delta: Value) -> Result<Vec<Value>> {
    let dtype = b.dtype(start);
    let working = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let dims = match [start, limit, delta].map(|v| constant(b, v)) {
        [Some(from), Some(to), Some(step)] => {
            let count = ((to - from) / step).ceil().max(0.0);
            if !count.is_finite() || count >= i64::MAX as f64 {
                return Err(node.error("E0202", format!("a range from {from} to {to} by {step} has no end")));
            }
            vec![Dim::constant(count as i64)]
        }
        _ => {
            let mut wide = vec![];
            for v in [start, limit, delta] {
                wide.push(b.convert(v, DType::F64)?);
            }
            let span = b.map2(ScalarFn::Sub, wide[1], wide[0])?;
            let count = b.map2(ScalarFn::Div, span, wide[2])?;
            let count = b.map1(ScalarFn::Ceil, count)?;
            let count = b.map_const(ScalarFn::Max, count, 0.0)?;
            let count = b.convert(count, DType::I64)?;
            b.read_dims(count)?
        }
    };
    let (start, delta) = (b.convert(start, working)?, b.convert(delta, working)?);
    let place = iota(b, 0, &dims)?;
    let place = b.convert(place, working)?;
    let scaled = b.map2(ScalarFn::Mul, place, delta)?;
    let shifted = b.map2(ScalarFn::Add, start, scaled)?;
    Ok(vec![b.convert(shifted, dtype)?])
}

/// A number that is known when the model is compiled.
fn constant(b: &Builder, v: Value) -> Option<f64> {
    let node = b.graph.node(v);
    match &node.op {
        Op::Const(t) => t.get_f64(0),
        Op::Reshape => constant(b, node.args[0]),
        _ => None,
    }
}
