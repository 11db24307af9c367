//! Adagrad, Adam, Momentum of ai.onnx.preview.training  =>  one step of each optimiser on each tensor

use super::builder::Builder;
use super::coordinates::one_element;
use super::node::Node;
use sardonyx_base::Result;
use sardonyx_dialects::scalar::ScalarFn::{Add, Div, Eq, Lt, Mul, Pow, Select, Sqrt, Sub};
use sardonyx_dialects::sdx::{Op, Value};

type Outputs = Result<Vec<Value>>;

/// The inputs are the learning rate, the count of earlier steps, then all tensors to train, all their gradients, all
/// their first states, …
struct Tensors {
    /// One list per tensor: the tensor, its gradient, its states.
    groups: Vec<Vec<Value>>,
    rate: Value,
    count: Value,
}

fn read(b: &mut Builder, node: &Node, parts: usize) -> Result<Tensors> {
    let all = node.all_inputs()?;
    let n = all.len().saturating_sub(2);
    if n == 0 || !n.is_multiple_of(parts) {
        return Err(node.error("E0103", format!("{n} tensors do not divide into groups of {parts}")));
    }
    let n_groups = n / parts;
    let mut groups = vec![];
    for g in 0..n_groups {
        let group: Vec<Value> = (0..parts).map(|p| all[2 + p * n_groups + g]).collect();
        for &v in &group {
            if b.dtype(v) != b.dtype(group[0]) || !b.dtype(v).is_float() || b.rank(v) != b.rank(group[0]) {
                return Err(node.error("E0201", format!("{} does not belong to {}", b.ty(v), b.ty(group[0]))));
            }
            for i in 0..b.rank(v) {
                let (own, first) = (b.dims(v)[i].clone(), b.dims(group[0])[i].clone());
                b.unify(&own, &first)?;
            }
        }
        groups.push(group);
    }
    Ok(Tensors { groups, rate: one_element(b, all[0])?, count: one_element(b, all[1])? })
}

/// The outputs are all new tensors, then all their first states, …
fn ordered(results: Vec<Vec<Value>>) -> Vec<Value> {
    let parts = results.first().map_or(0, Vec::len);
    (0..parts).flat_map(|p| results.iter().map(move |group| group[p])).collect()
}

/// c * x + g
fn regularised(b: &mut Builder, x: Value, g: Value, c: f64) -> Result<Value> {
    let scaled = b.map_const(Mul, x, c)?;
    b.map2(Add, scaled, g)
}

/// a * x + c * y
fn mixed(b: &mut Builder, a: f64, x: Value, c: f64, y: Value) -> Result<Value> {
    let (x, y) = (b.map_const(Mul, x, a)?, b.map_const(Mul, y, c)?);
    b.map2(Add, x, y)
}

fn at_first(b: &mut Builder, t: &Tensors) -> Result<Value> {
    b.map_const(Eq, t.count, 0.0)
}

pub fn adagrad(b: &mut Builder, node: &Node) -> Outputs {
    let t = read(b, node, 3)?;
    let norm = node.float_or("norm_coefficient", 0.0)?;
    let (decay, epsilon) = (node.float_or("decay_factor", 0.0)?, node.float_or("epsilon", 0.0)?);
    let mut results = vec![];
    for group in &t.groups {
        let (x, h, dtype) = (group[0], group[2], b.dtype(group[0]));
        let (count, rate) = (b.convert(t.count, dtype)?, b.convert(t.rate, dtype)?);
        let slowed = b.map_const(Mul, count, decay)?;
        let slowed = b.map_const(Add, slowed, 1.0)?;
        let rate = b.map2(Div, rate, slowed)?;
        let g = regularised(b, x, group[1], norm)?;
        let square = b.map2(Mul, g, g)?;
        let h = b.map2(Add, h, square)?;
        let root = b.map1(Sqrt, h)?;
        let root = b.map_const(Add, root, epsilon)?;
        let step = b.map2(Mul, rate, g)?;
        let step = b.map2(Div, step, root)?;
        results.push(vec![b.map2(Sub, x, step)?, h]);
    }
    Ok(ordered(results))
}

/// Adam. In all steps but the first, the learning rate is corrected, because the averages start at 0.
pub fn adam(b: &mut Builder, node: &Node) -> Outputs {
    let t = read(b, node, 4)?;
    let (alpha, beta) = (node.float_or("alpha", 0.9)?, node.float_or("beta", 0.999)?);
    let (before, after) = (node.float_or("norm_coefficient", 0.0)?, node.float_or("norm_coefficient_post", 0.0)?);
    let epsilon = node.float_or("epsilon", 0.0)?;
    let first = at_first(b, &t)?;
    let mut results = vec![];
    for group in &t.groups {
        let (x, dtype) = (group[0], b.dtype(group[0]));
        let (count, rate) = (b.convert(t.count, dtype)?, b.convert(t.rate, dtype)?);
        let g = regularised(b, x, group[1], before)?;
        let v = mixed(b, alpha, group[2], 1.0 - alpha, g)?;
        let square = b.map2(Mul, g, g)?;
        let h = mixed(b, beta, group[3], 1.0 - beta, square)?;
        let root = b.map1(Sqrt, h)?;
        let root = b.map_const(Add, root, epsilon)?;
        let one = b.splat(dtype, 1.0, &[])?;
        let mut left = |base: f64| {
            let base = b.splat(dtype, base, &[])?;
            let power = b.map2(Pow, base, count)?;
            b.map2(Sub, one, power)
        };
        let (alpha_left, beta_left) = (left(alpha)?, left(beta)?);
        let corrected = b.map1(Sqrt, beta_left)?;
        let corrected = b.map2(Mul, rate, corrected)?;
        let corrected = b.map2(Div, corrected, alpha_left)?;
        let rate = b.add(Op::Map(Select), &[first, rate, corrected])?;
        let step = b.map2(Mul, rate, v)?;
        let step = b.map2(Div, step, root)?;
        let x = b.map2(Sub, x, step)?;
        results.push(vec![b.map_const(Mul, x, 1.0 - after)?, v, h]);
    }
    Ok(ordered(results))
}

pub fn momentum(b: &mut Builder, node: &Node) -> Outputs {
    let t = read(b, node, 3)?;
    let mode = node.require("mode", Some(node.str_or("mode", "")?))?;
    let nesterov = match mode.as_str() {
        "nesterov" => true,
        "standard" => false,
        other => return Err(node.error("E0106", format!("the mode `{other}` is not known"))),
    };
    let float = |name: &str| node.float_or(name, 0.0);
    let (alpha, beta, norm) = (float("alpha")?, float("beta")?, float("norm_coefficient")?);
    let zero = b.splat(b.dtype(t.count), 0.0, &[])?;
    let later = b.map2(Lt, zero, t.count)?;
    let mut results = vec![];
    for group in &t.groups {
        let (x, dtype) = (group[0], b.dtype(group[0]));
        let rate = b.convert(t.rate, dtype)?;
        let g = regularised(b, x, group[1], norm)?;
        let (beta, one) = (b.splat(dtype, beta, &[])?, b.splat(dtype, 1.0, &[])?);
        let beta = b.add(Op::Map(Select), &[later, beta, one])?;
        let kept = b.map_const(Mul, group[2], alpha)?;
        let added = b.map2(Mul, beta, g)?;
        let v = b.map2(Add, kept, added)?;
        let direction = if nesterov {
            let ahead = b.map_const(Mul, v, alpha)?;
            b.map2(Add, g, ahead)?
        } else {
            v
        };
        let step = b.map2(Mul, rate, direction)?;
        results.push(vec![b.map2(Sub, x, step)?, v]);
    }
    Ok(ordered(results))
}
