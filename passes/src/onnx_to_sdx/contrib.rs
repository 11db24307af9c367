//! com.microsoft EmbedLayerNormalization, BiasAdd, QuickGelu, FusedMatMul, …  =>  gather, map, reduce, contract

use super::builder::Builder;
use super::elementwise::{gelu_of, sigmoid_of};
use super::linear::{gemm, matmul_of};
use super::named_activation::Activation;
use super::node::Node;
use super::quantize::dequantized;
use super::reduction::{normalise, softmax_over};
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_dialects::sdx::{Op, Value};

type Outputs = Result<Vec<Value>>;

/// com.microsoft EmbedLayerNormalization: the normalised sum of two or three embeddings, the number of keys per row,
/// and the sum.
pub fn embed_layer_normalization(b: &mut Builder, node: &Node) -> Outputs {
    embedded(b, node, node.optional(8), &|_, _, v| Ok(v))
}

/// As [`embed_layer_normalization`], for quantised inputs: the quantisation scales of the tables, of the scale and of
/// the bias are inputs 8 to 12, and their zero points are inputs 13 to 17.
pub fn quantized_embed_layer_normalization(b: &mut Builder, node: &Node) -> Outputs {
    embedded(b, node, None, &|b, at, v| {
        let (scale, zero) = (b.single(node.input(at + 6)?)?, b.single(node.input(at + 11)?)?);
        dequantized(b, v, scale, Some(zero))
    })
}

/// EmbedLayerNormalization of either variant; `number` dequantises elements that were read from input `at`.
fn embedded(
    b: &mut Builder,
    node: &Node,
    given_positions: Option<Value>,
    number: &dyn Fn(&mut Builder, usize, Value) -> Result<Value>,
) -> Outputs {
    let ids = node.input(0)?;
    let (word, position) = (node.input(2)?, node.input(3)?);
    if let Some(other) = [ids, word, position].into_iter().find(|v| b.rank(*v) != 2) {
        return Err(node.error("E0201", format!("takes identifiers and tables of rank 2, not {}", b.ty(other))));
    }
    let lookup = |b: &mut Builder, table: Value, ids: Value| {
        let ids = b.convert(ids, DType::I64)?;
        b.add(Op::Gather { axis: 0 }, &[table, ids])
    };
    let words = lookup(b, word, ids)?;
    let mut sum = number(b, 2, words)?;
    let positions = match given_positions {
        Some(given) => lookup(b, position, given)?,
        None => {
            let s = b.dims(ids)[1].clone();
            let (limit, symbol) = (b.dims(position)[0].clone(), s.clone());
            let shorter = symbol.minimum(&limit);
            b.unify(&shorter, &symbol)?;
            b.slice_axis(position, 0, Dim::constant(0), 1, s)?
        }
    };
    if let (Some(segments), Some(table)) = (node.optional(1), node.optional(4)) {
        let segment = lookup(b, table, segments)?;
        let segment = number(b, 4, segment)?;
        sum = b.map2(ScalarFn::Add, sum, segment)?;
    }
    let positions = number(b, 3, positions)?;
    sum = b.map2(ScalarFn::Add, sum, positions)?;
    let (scale, bias) = (number(b, 5, node.input(5)?)?, number(b, 6, node.input(6)?)?);
    let epsilon = node.float_or("epsilon", 1e-12)?;
    let y = normalise(b, sum, scale, Some(bias), epsilon)?;
    let lengths = match node.optional(7) {
        Some(mask) => b.reduce(ReduceFn::Add, mask, &[1], false)?,
        None => {
            let batch = b.dims(ids)[0].clone();
            b.splat(DType::I32, 0.0, &[batch])?
        }
    };
    Ok(vec![y, lengths, sum])
}

/// x · sigmoid(alpha · x)
pub fn quick_gelu(b: &mut Builder, node: &Node) -> Outputs {
    let x = float_input(b, node)?;
    let scaled = b.map_const(ScalarFn::Mul, x, node.float_or("alpha", 1.702)?)?;
    let gate = sigmoid_of(b, scaled)?;
    Ok(vec![b.map2(ScalarFn::Mul, x, gate)?])
}

fn float_input(b: &Builder, node: &Node) -> Result<Value> {
    let x = node.input(0)?;
    match b.dtype(x).is_float() {
        true => Ok(x),
        false => Err(node.error("E0107", format!("does not take {}", b.dtype(x)))),
    }
}

/// x + bias + skip, with one bias per channel.
pub fn bias_add(b: &mut Builder, node: &Node) -> Outputs {
    let sum = b.map2(ScalarFn::Add, node.input(0)?, node.input(1)?)?;
    Ok(vec![b.map2(ScalarFn::Add, sum, node.input(2)?)?])
}

/// Halves of x + bias along the last dimension: the first times gelu of the second.
pub fn bias_split_gelu(b: &mut Builder, node: &Node) -> Outputs {
    let x = float_input(b, node)?;
    let sum = b.map2(ScalarFn::Add, x, node.input(1)?)?;
    let Some(last) = b.rank(sum).checked_sub(1) else { return Err(node.error("E0201", "a scalar has no halves")) };
    let width = b.dims(sum)[last].clone();
    let half = b.divide(&width, 2)?.ok_or_else(|| node.error("E0201", format!("a width of {width} has no halves")))?;
    let left = b.slice_axis(sum, last, Dim::constant(0), 1, half.clone())?;
    let right = b.slice_axis(sum, last, half.clone(), 1, half)?;
    let gate = gelu_of(b, node, right, false)?[0];
    Ok(vec![b.map2(ScalarFn::Mul, left, gate)?])
}

/// softmax(x + bias) over the dimensions from `axis` on.
pub fn bias_softmax(b: &mut Builder, node: &Node) -> Outputs {
    let x = float_input(b, node)?;
    let sum = b.map2(ScalarFn::Add, x, node.input(1)?)?;
    let first = node.axis(node.int_or("axis", 1)?, b.rank(sum))?;
    let axes: Vec<usize> = (first..b.rank(sum)).collect();
    Ok(vec![softmax_over(b, sum, &axes)?])
}

/// alpha · op(A) op(B). `transBatch` moves the first dimension behind the batch dimensions, before `trans` swaps the
/// last two dimensions.
pub fn fused_matmul(b: &mut Builder, node: &Node) -> Outputs {
    let mut operands = [node.input(0)?, node.input(1)?];
    for (x, batch, last) in [(0, "transBatchA", "transA"), (1, "transBatchB", "transB")] {
        let rank = b.rank(operands[x]);
        if node.int_or(batch, 0)? != 0 && rank > 2 {
            let perm = (1..rank - 1).chain([0, rank - 1]).collect();
            operands[x] = b.transpose(operands[x], perm)?;
        }
        if node.int_or(last, 0)? != 0 && rank > 1 {
            let perm = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
            operands[x] = b.transpose(operands[x], perm)?;
        }
    }
    let product = matmul_of(b, node, operands[0], operands[1])?;
    let alpha = node.float_or("alpha", 1.0)?;
    Ok(vec![if alpha == 1.0 { product } else { b.map_const(ScalarFn::Mul, product, alpha)? }])
}

/// com.microsoft.CDist: a[m, n], b[k, n] → the distances [m, k] of all pairs of rows
pub fn distances(b: &mut Builder, node: &Node) -> Outputs {
    let (x, y) = (float_input(b, node)?, node.input(1)?);
    let ([m, n], [k, width]) = (&*b.dims(x), &*b.dims(y)) else {
        return Err(node.error("E0201", format!("takes matrices, not {} and {}", b.ty(x), b.ty(y))));
    };
    let one = Dim::constant(1);
    let x = b.reshape(x, &[m.clone(), one.clone(), n.clone()])?;
    let y = b.reshape(y, &[one, k.clone(), width.clone()])?;
    let apart = b.map2(ScalarFn::Sub, x, y)?;
    let square = b.map2(ScalarFn::Mul, apart, apart)?;
    let sum = b.reduce(ReduceFn::Add, square, &[2], false)?;
    match node.str_or("metric", "sqeuclidean")?.as_str() {
        "sqeuclidean" => Ok(vec![sum]),
        "euclidean" => Ok(vec![b.map1(ScalarFn::Sqrt, sum)?]),
        other => Err(node.error("E0106", format!("the metric {other} is not supported"))),
    }
}

/// gelu(A B + bias), in its tanh variant.
pub fn gemm_fast_gelu(b: &mut Builder, node: &Node) -> Outputs {
    let mut x = matmul_of(b, node, node.input(0)?, node.input(1)?)?;
    if let Some(bias) = node.optional(2) {
        x = b.map2(ScalarFn::Add, x, bias)?;
    }
    gelu_of(b, node, x, true)
}

/// Gemm followed by an activation.
pub fn fused_gemm(b: &mut Builder, node: &Node) -> Outputs {
    let product = gemm(b, node)?[0];
    let name = node.str_or("activation", "")?;
    if name.is_empty() {
        return Ok(vec![product]);
    }
    let given = |attribute: &str| -> Result<Option<f64>> {
        Ok(if node.has(attribute) { Some(node.float_or(attribute, 0.0)?) } else { None })
    };
    let (alpha, beta) = (given("activation_alpha")?, given("activation_beta")?);
    let activation = Activation::next(node, &name, &mut alpha.into_iter(), &mut beta.into_iter())?;
    Ok(vec![activation.apply(b, product)?])
}
