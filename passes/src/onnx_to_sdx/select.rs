//! NonZero, Unique, NonMaxSuppression, Compress  =>  host operations for indices, gather for the elements

use super::builder::Builder;
use super::dynamic;
use super::node::Node;
use sardonyx_base::dim::product;
use sardonyx_base::{DType, Dim, HostOp, Result, Tensor};
use sardonyx_dialects::sdx::{Op, TensorType, Value};

type Outputs = Result<Vec<Value>>;

fn indices(dims: Vec<Dim>) -> TensorType {
    TensorType::new(DType::I64, dims)
}

/// The indices [rank, n] of the elements that are not 0.
fn nonzero_of(b: &mut Builder, x: Value) -> Result<Value> {
    let (rank, n) = (Dim::constant(b.rank(x) as i64), b.data_symbol());
    let ty = indices(vec![rank, Dim::symbol(&n)]);
    Ok(b.host(HostOp::NonZero, &[x], &[ty], &[n])?.remove(0))
}

pub fn nonzero(b: &mut Builder, node: &Node) -> Outputs {
    Ok(vec![nonzero_of(b, node.input(0)?)?])
}

/// The elements, or the slices across an axis, for which the condition holds; those beyond the end of the condition are
/// dropped.
pub fn compress(b: &mut Builder, node: &Node) -> Outputs {
    let (mut x, condition) = (node.input(0)?, node.input(1)?);
    if b.rank(condition) != 1 || b.dtype(condition) != DType::Bool {
        return Err(node.error("E0201", format!("the condition is {}, not a vector of bools", b.ty(condition))));
    }
    let axis = match node.int("axis")? {
        Some(axis) => node.axis(axis, b.rank(x))?,
        None => {
            let all = product(&b.dims(x));
            x = b.reshape(x, &[all])?;
            0
        }
    };
    let found = nonzero_of(b, condition)?;
    let n = b.dims(found)[1].clone();
    let found = b.reshape(found, &[n])?;
    Ok(vec![b.add(Op::Gather { axis }, &[x, found])?])
}

/// The unique elements; the first position of each; for each element its index among the unique ones; the counts.
pub fn unique(b: &mut Builder, node: &Node) -> Outputs {
    let x = node.input(0)?;
    let sorted = node.int_or("sorted", 1)? != 0;
    let axis = node.int("axis")?.map(|axis| node.axis(axis, b.rank(x))).transpose()?;
    let all = product(&b.dims(x));
    let flat = b.reshape(x, std::slice::from_ref(&all))?;
    let (from, at, len) = match axis {
        Some(axis) => (x, axis, b.dims(x)[axis].clone()),
        None => (flat, 0, all),
    };
    let symbol = b.data_symbol();
    let n = Dim::symbol(&symbol);
    let types = [indices(vec![n.clone()]), indices(vec![len]), indices(vec![n])];
    let found = b.host(HostOp::Unique { axis, sorted }, &[from], &types, &[symbol])?;
    let elements = b.add(Op::Gather { axis: at }, &[from, found[0]])?;
    Ok(vec![elements, found[0], found[1], found[2]])
}

pub fn non_max_suppression(b: &mut Builder, node: &Node) -> Outputs {
    let (boxes, scores) = (node.input(0)?, node.input(1)?);
    if (b.rank(boxes), b.rank(scores)) != (3, 3) {
        return Err(node.error("E0201", format!("boxes {} and scores {} do not fit", b.ty(boxes), b.ty(scores))));
    }
    let [batch, count] = [0, 2].map(|i| b.dims(scores)[i].clone());
    for (i, wanted) in [(0, batch), (1, count), (2, Dim::constant(4))] {
        let own = b.dims(boxes)[i].clone();
        b.unify(&own, &wanted)?;
    }
    let [most, overlap, score] = [
        // The default is to select no box.
        or(b, node, 2, Tensor::scalar(0i64))?,
        or(b, node, 3, Tensor::scalar(0f32))?,
        or(b, node, 4, Tensor::scalar(f32::NEG_INFINITY))?,
    ];
    let center = node.int_or("center_point_box", 0)? != 0;
    let symbol = b.data_symbol();
    let ty = indices(vec![Dim::symbol(&symbol), Dim::constant(3)]);
    b.host(HostOp::NonMaxSuppression { center }, &[boxes, scores, most, overlap, score], &[ty], &[symbol])
}

/// An optional scalar input, or its default.
fn or(b: &mut Builder, node: &Node, i: usize, otherwise: Tensor) -> Result<Value> {
    match node.optional(i) {
        Some(v) => dynamic::scalar(b, v),
        None => b.constant(otherwise),
    }
}
