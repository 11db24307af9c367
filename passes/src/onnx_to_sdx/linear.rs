//! MatMul, Gemm  =>  contract

use super::builder::Builder;
use super::node::Node;
use sardonyx_base::{Dim, Result};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::Value;

type Outputs = Result<Vec<Value>>;

/// Drops the batch dimensions along which an operand is broadcast. Returns it with the letters that stand for its
/// remaining batch dimensions in the contraction.
fn batch_letters(b: &mut Builder, v: Value, batch: &[Dim], letters: &[char]) -> Result<(Value, String)> {
    let dims = b.dims(v);
    let own = dims.len().saturating_sub(2);
    let lead = batch.len() - own;
    let varies: Vec<usize> = (0..own).filter(|&i| !dims[i].is_const(1) || batch[lead + i].is_const(1)).collect();
    let kept: Vec<Dim> = varies.iter().map(|&i| dims[i].clone()).chain(dims[own..].iter().cloned()).collect();
    let text = varies.iter().map(|&i| letters[lead + i]).collect();
    Ok((b.reshape(v, &kept)?, text))
}

pub fn matmul(b: &mut Builder, node: &Node) -> Outputs {
    Ok(vec![matmul_of(b, node, node.input(0)?, node.input(1)?)?])
}

pub fn matmul_of(b: &mut Builder, node: &Node, x: Value, y: Value) -> Result<Value> {
    let (mut x, mut y) = (x, y);
    numbers_only(b, node, x, y)?;
    let (x_vector, y_vector) = (b.rank(x) == 1, b.rank(y) == 1);
    let one = Dim::constant(1);
    if x_vector {
        let n = b.dims(x)[0].clone();
        x = b.reshape(x, &[one.clone(), n])?;
    }
    if y_vector {
        let n = b.dims(y)[0].clone();
        y = b.reshape(y, &[n, one])?;
    }
    if b.rank(x) == 0 || b.rank(y) == 0 {
        return Err(node.error("E0201", "a scalar has no dimension to contract"));
    }
    (x, y) = b.agree_both((x, b.rank(x) - 1), (y, b.rank(y) - 2))?;
    let batch = unify_batch(b, x, y)?;
    if batch.len() > 20 {
        return Err(node.error("E0201", "more than 20 batch dimensions are not supported"));
    }
    let letters: Vec<char> = ('a'..='j').chain('o'..='z').collect();
    let (left, x_batch) = batch_letters(b, x, &batch, &letters)?;
    let (right, y_batch) = batch_letters(b, y, &batch, &letters)?;
    let all: String =
        letters[..batch.len()].iter().filter(|c| x_batch.contains(**c) || y_batch.contains(**c)).collect();
    let product = b.contract(&format!("{x_batch}mk,{y_batch}kn->{all}mn"), left, right)?;
    let mut dims = b.dims(product);
    let tail = dims.split_off(dims.len() - 2);
    // The dimensions are read again: the contraction may have unified symbols of the batch dimensions.
    let mut out = unify_batch(b, x, y)?;
    out.extend(tail.iter().enumerate().filter(|(i, _)| !([x_vector, y_vector][*i])).map(|(_, d)| d.clone()));
    b.reshape(product, &out)
}

fn numbers_only(b: &Builder, node: &Node, x: Value, y: Value) -> Result<()> {
    let types = [b.dtype(x), b.dtype(y)];
    ScalarFn::Mul.result(&types).map(|_| ()).map_err(|reason| node.error("E0107", reason))
}

/// Unifies the batch dimensions of two operands, and returns those of their product.
fn unify_batch(b: &mut Builder, x: Value, y: Value) -> Result<Vec<Dim>> {
    let lead = |b: &Builder, v: Value| b.dims(v)[..b.rank(v) - 2].to_vec();
    let rank = lead(b, x).len().max(lead(b, y).len());
    let at = |b: &Builder, v: Value, i: usize| {
        let dims = lead(b, v);
        i.checked_sub(rank - dims.len()).map_or(Dim::constant(1), |j| dims[j].clone())
    };
    for i in 0..rank {
        let (l, r) = (at(b, x, i), at(b, y, i));
        if !l.is_const(1) && !r.is_const(1) {
            b.unify(&l, &r)?;
        }
    }
    Ok((0..rank).map(|i| if at(b, x, i).is_const(1) { at(b, y, i) } else { at(b, x, i) }).collect())
}

/// alpha * op(A) op(B) + beta * C
pub fn gemm(b: &mut Builder, node: &Node) -> Outputs {
    let (x, y) = (node.input(0)?, node.input(1)?);
    numbers_only(b, node, x, y)?;
    if b.rank(x) != 2 || b.rank(y) != 2 {
        return Err(node.error("E0201", format!("takes matrices, not {} and {}", b.ty(x), b.ty(y))));
    }
    let left = if node.int_or("transA", 0)? != 0 { "km" } else { "mk" };
    let right = if node.int_or("transB", 0)? != 0 { "nk" } else { "kn" };
    let mut product = b.contract(&format!("{left},{right}->mn"), x, y)?;
    let (alpha, beta) = (node.float_or("alpha", 1.0)?, node.float_or("beta", 1.0)?);
    if alpha != 1.0 {
        product = b.map_const(ScalarFn::Mul, product, alpha)?;
    }
    if let Some(c) = node.optional(2) {
        let mut scaled = if beta == 1.0 { c } else { b.map_const(ScalarFn::Mul, c, beta)? };
        // C is broadcast to the product, never the reverse.
        let rank = b.rank(c).min(2);
        for axis in 0..rank {
            let n = b.dims(product)[axis + 2 - rank].clone();
            scaled = b.one_or_all(scaled, axis, &n)?;
        }
        product = b.map2(ScalarFn::Add, product, scaled)?;
    }
    Ok(vec![product])
}
