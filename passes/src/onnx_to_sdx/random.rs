//! RandomUniform {seed}  =>  four squarings of (iota * key), u64: the nth number depends on n and the seed alone
//!
//! The generator is "squares" (B. Widynski, Squares: a fast counter-based RNG, 2020). The numbers are the same in any
//! order of computation and on every device. A node without a seed derives one from the names of graph and node:
//! different nodes draw different numbers, all calls draw the same numbers, and equal models give equal programs.

use super::builder::Builder;
use super::coordinates::iota;
use super::node::Node;
use sardonyx_base::dim::product;
use sardonyx_base::hash::hash;
use sardonyx_base::{DType, Dim, Result, Tensor};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};

type Outputs = Result<Vec<Value>>;

/// An odd key with well-mixed digits for any seed, as the generator requires.
fn key(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) | 1
}

fn seed(b: &Builder, node: &Node) -> Result<u64> {
    if node.has("seed") {
        return Ok(match node.int("seed") {
            Ok(Some(whole)) => whole as u64,
            _ => node.float_or("seed", 0.0)?.to_bits(),
        });
    }
    Ok(hash([&b.graph.name, "/", &node.name].concat().as_bytes()))
}

/// The random numbers of one node. A draw gives an independent number for every element of a tensor; `stream` numbers
/// the draws of the node.
struct Source {
    seed: u64,
}

impl Source {
    fn from_node(b: &Builder, node: &Node) -> Result<Source> {
        Ok(Source { seed: seed(b, node)? })
    }

    /// Returns 32 random bits for each of `n` elements, as a vector.
    fn bits(&self, b: &mut Builder, stream: u64, n: &Dim) -> Result<Value> {
        let counter = iota(b, 0, std::slice::from_ref(n))?;
        let counter = b.convert(counter, DType::U64)?;
        let factor =
            b.constant(Tensor::scalar(key(self.seed.wrapping_add(stream.wrapping_mul(0x632b_e59b_d9b4_e019)))))?;
        let y = b.map2(ScalarFn::Mul, counter, factor)?;
        let z = b.map2(ScalarFn::Add, y, factor)?;
        let mut x = y;
        for offset in [y, z, y] {
            let square = b.map2(ScalarFn::Mul, x, x)?;
            let sum = b.map2(ScalarFn::Add, square, offset)?;
            x = halves_swapped(b, sum)?;
        }
        let square = b.map2(ScalarFn::Mul, x, x)?;
        let sum = b.map2(ScalarFn::Add, square, z)?;
        b.map_const(ScalarFn::Div, sum, HALF)
    }

    /// Numbers uniformly distributed in [0, 1), with as many random bits as the significand of `working` (f32 or f64).
    fn uniform(&self, b: &mut Builder, stream: u64, working: DType, dims: &[Dim]) -> Result<Value> {
        let n = product(dims);
        let high = self.bits(b, 2 * stream, &n)?;
        let (digits, scale) = if working == DType::F64 {
            let low = self.bits(b, 2 * stream + 1, &n)?;
            let low = b.map_const(ScalarFn::Div, low, 2f64.powi(11))?;
            let high = b.map_const(ScalarFn::Mul, high, 2f64.powi(21))?;
            (b.map2(ScalarFn::Add, high, low)?, 2f64.powi(-53))
        } else {
            (b.map_const(ScalarFn::Div, high, 2f64.powi(8))?, 2f64.powi(-24))
        };
        let digits = b.convert(digits, DType::I64)?;
        let number = b.convert(digits, working)?;
        let number = b.map_const(ScalarFn::Mul, number, scale)?;
        b.reshape(number, dims)
    }

    /// Numbers normally distributed by the method of Box and Muller: sqrt(-2 log(1 - u)) cos(2π v), with
    /// u and v uniform in [0, 1).
    fn normal(&self, b: &mut Builder, working: DType, dims: &[Dim]) -> Result<Value> {
        let (u, v) = (self.uniform(b, 0, working, dims)?, self.uniform(b, 1, working, dims)?);
        let one = b.splat(working, 1.0, dims)?;
        let rest = b.map2(ScalarFn::Sub, one, u)?;
        let log = b.map1(ScalarFn::Log, rest)?;
        let square = b.map_const(ScalarFn::Mul, log, -2.0)?;
        let radius = b.map1(ScalarFn::Sqrt, square)?;
        let angle = b.map_const(ScalarFn::Mul, v, 2.0 * std::f64::consts::PI)?;
        let cos = b.map1(ScalarFn::Cos, angle)?;
        b.map2(ScalarFn::Mul, radius, cos)
    }
}

const HALF: f64 = 4_294_967_296.0;

fn halves_swapped(b: &mut Builder, x: Value) -> Result<Value> {
    let high = b.map_const(ScalarFn::Div, x, HALF)?;
    let low = b.map_const(ScalarFn::Mul, x, HALF)?;
    b.map2(ScalarFn::Add, high, low)
}

/// The type in which numbers are drawn.
fn working(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// RandomUniform, RandomNormal and their -Like variants: the shape is an attribute, or that of the input.
pub fn random(b: &mut Builder, node: &Node) -> Outputs {
    let like = node.optional(0);
    let dtype = node.dtype("dtype")?.unwrap_or(like.map_or(DType::F32, |v| b.dtype(v)));
    if !dtype.is_float() {
        return Err(node.error("E0107", format!("draws floats, not {dtype}")));
    }
    let dims = match like {
        Some(v) => b.dims(v),
        None => node.require("shape", node.ints("shape")?)?.into_iter().map(Dim::constant).collect(),
    };
    let (source, working) = (Source::from_node(b, node)?, working(dtype));
    let y = if node.op_type.starts_with("RandomNormal") {
        let y = source.normal(b, working, &dims)?;
        let y = b.map_const(ScalarFn::Mul, y, node.float_or("scale", 1.0)?)?;
        b.map_const(ScalarFn::Add, y, node.float_or("mean", 0.0)?)?
    } else {
        let (low, high) = (node.float_or("low", 0.0)?, node.float_or("high", 1.0)?);
        let y = source.uniform(b, 0, working, &dims)?;
        let y = b.map_const(ScalarFn::Mul, y, high - low)?;
        b.map_const(ScalarFn::Add, y, low)?
    };
    Ok(vec![b.convert(y, dtype)?])
}

/// 1 with the probability that the input gives.
pub fn bernoulli(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    if !b.dtype(x).is_float() {
        return Err(node.error("E0107", format!("does not take {}", b.dtype(x))));
    }
    let (dims, working) = (b.dims(x), working(b.dtype(x)));
    let drawn = Source::from_node(b, node)?.uniform(b, 0, working, &dims)?;
    let wide = b.convert(x, working)?;
    let hit = b.map2(ScalarFn::Lt, drawn, wide)?;
    let dtype = node.dtype("dtype")?.unwrap_or(b.dtype(x));
    Ok(vec![b.convert(hit, dtype)?])
}

/// Multinomial: draws [batch, samples] classes by the Gumbel-max method. The class with the largest x - log(-log(u)) is
/// chosen, where x is its unnormalised log-probability and u is uniform in (0, 1).
pub fn multinomial(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    if !b.dtype(x).is_float() || b.rank(x) != 2 {
        return Err(node.error("E0201", format!("takes logarithms [batch, classes], not {}", b.ty(x))));
    }
    let samples = Dim::constant(node.int_or("sample_size", 1)?);
    let dtype = node.dtype("dtype")?.unwrap_or(DType::I32);
    let (rows, classes) = (b.dims(x)[0].clone(), b.dims(x)[1].clone());
    let dims = [rows, samples, classes.clone()];
    let working = working(b.dtype(x));
    let u = Source::from_node(b, node)?.uniform(b, 0, working, &dims)?;
    // The logarithm of 0 is not finite.
    let u = b.map_const(ScalarFn::Max, u, 2f64.powi(-25))?;
    let log = b.map1(ScalarFn::Log, u)?;
    let log = b.map1(ScalarFn::Neg, log)?;
    let log = b.map1(ScalarFn::Log, log)?;
    let x = b.convert(x, working)?;
    let x = b.broadcast_at(x, vec![0, 2], &dims)?;
    let score = b.map2(ScalarFn::Sub, x, log)?;
    let best = b.reduce(ReduceFn::Max, score, &[2], true)?;
    let found = b.map2(ScalarFn::Eq, score, best)?;
    let place = iota(b, 2, &dims)?;
    let none = b.dims_scalar(classes)?;
    let place = b.select(found, place, none)?;
    let class = b.reduce(ReduceFn::Min, place, &[2], false)?;
    Ok(vec![b.convert(class, dtype)?])
}

/// Dropout. In inference, it returns the data and a mask of ones. With `training_mode`, each element is kept with the
/// probability 1 - ratio, and divided by this probability; the others are multiplied by 0.
pub fn dropout(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let dims = b.dims(x);
    let mask_type = if node.opset < 10 { b.dtype(x) } else { DType::Bool };
    let everything = b.splat(mask_type, 1.0, &dims)?;
    if node.opset < 7 && node.int_or("is_test", 0)? == 0 {
        let reason = "without `is_test` it is for training";
        return Err(node.error("E0101", reason).help("export the model for inference, or with opset 7 or later"));
    }
    let training = if node.opset < 12 { None } else { node.optional(2) };
    let Some(training) = training else { return Ok(vec![x, everything]) };
    let known = b.graph.node(training).op.clone();
    if matches!(&known, Op::Const(t) if t.get_i64(0) == Some(0)) {
        return Ok(vec![x, everything]);
    }
    let working = working(b.dtype(x));
    let ratio = match node.optional(1) {
        Some(ratio) => b.convert(ratio, working)?,
        None => b.splat(working, 0.5, &[])?,
    };
    let (ratio, training) = (super::coordinates::one_element(b, ratio)?, super::coordinates::one_element(b, training)?);
    let drawn = Source::from_node(b, node)?.uniform(b, 0, working, &dims)?;
    let kept = b.map2(ScalarFn::Le, ratio, drawn)?;
    let idle = b.map1(ScalarFn::Not, training)?;
    let mask = b.map2(ScalarFn::Or, kept, idle)?;
    let one = b.splat(working, 1.0, &[])?;
    let share = b.map2(ScalarFn::Sub, one, ratio)?;
    let scale = b.map2(ScalarFn::Div, one, share)?;
    let scale = b.select(training, scale, one)?;
    let zero = b.splat(working, 0.0, &[])?;
    let scale = b.select(mask, scale, zero)?;
    let scale = b.convert(scale, b.dtype(x))?;
    Ok(vec![b.map2(ScalarFn::Mul, x, scale)?, mask])
}

#[cfg(test)]
mod tests {
    #[test]
    fn keys_are_odd_and_differ() {
        let keys: Vec<u64> = (0..100).map(super::key).collect();
        assert!(keys.iter().all(|k| k % 2 == 1));
        assert!((0..keys.len()).all(|i| !keys[..i].contains(&keys[i])));
    }
}
