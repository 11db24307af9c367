//! a graph  =>  the weights that only contractions read, and the positions of their elements in the model's parameters

use crate::quantize::sites::{Site, constants, site};
use sardonyx_base::{DType, Result, Tensor};
use sardonyx_dialects::interp;
use sardonyx_dialects::sdx::{Graph, Node, Op, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The weights of one contraction, viewed as a matrix: each row holds the weights that one reduction sums over.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The ONNX nodes of the contraction.
    pub origins: Vec<String>,
    /// The parameters that contain the weights, with their numbers of elements.
    pub params: BTreeMap<String, usize>,
    /// Numbers of rows and of columns. The axes that are not reduced number the rows, and the reduced axes the columns.
    pub dims: [usize; 2],
    /// The other operand of the contraction, and its reduction axes; the last one varies fastest along the columns.
    pub factor: (Value, Vec<usize>),
    value: Value,
    summed: Vec<usize>,
}

/// Exclusive upper bound on the total number of elements in the parameters of one contraction.
const NUMBERS_MAX: usize = 1 << 52;

/// Returns the weights of each f32 contraction that has one constant operand, which consists only of rearranged f32
/// parameters. Contractions that `site` rejects are left out, for example those with few weights. Weights that any
/// other operation reads too, such as an embedding table that is also the last layer, are also left out.
pub fn weights(graph: &Graph) -> Vec<Weights> {
    let constant = constants(graph);
    let mut found: Vec<(&Node, usize, Vec<usize>)> = vec![];
    let mut elsewhere: BTreeSet<&str> = BTreeSet::new();
    for (_, node) in graph.values() {
        let product = match site(graph, node, &constant) {
            Ok(Some(Site::Product { summed, weights, .. })) => Some((weights, summed)),
            Ok(Some(Site::Rows) | None) | Err(_) => None,
        };
        let moves = moves(&node.op);
        for (operand, arg) in node.args.iter().enumerate() {
            match &product {
                Some((weights, summed)) if *weights == operand => {
                    found.push((node, operand, summed[operand].clone()));
                }
                _ if moves => {}
                _ => elsewhere.extend(parameters(graph, *arg).unwrap_or_default().into_iter().map(|(name, _)| name)),
            }
        }
    }
    graph.outputs.iter().for_each(|(_, v)| {
        elsewhere.extend(parameters(graph, *v).unwrap_or_default().into_iter().map(|(name, _)| name));
    });
    let mut out = vec![];
    for (node, operand, summed) in found {
        let value = node.args[operand];
        let params = parameters(graph, value).filter(|all| all.iter().all(|(name, _)| !elsewhere.contains(name)));
        let Some(params) = params else { continue };
        let Some(dims) = graph.ty(value).static_dims() else { continue };
        let columns: usize = summed.iter().map(|axis| dims[*axis]).product();
        let rows = dims.iter().product::<usize>().checked_div(columns).unwrap_or(0);
        let params = params.into_iter().map(|(name, n)| (name.to_string(), n)).collect();
        let Some(factor) = factor(node, operand, &summed) else { continue };
        out.push(Weights { origins: node.origins.clone(), params, dims: [rows, columns], factor, value, summed });
    }
    out
}

impl Weights {
    /// Returns for each weight, row by row, the index of its parameter in `params`, and the index of the element in
    /// this parameter.
    pub fn places(&self, graph: &Graph) -> Result<Vec<(usize, usize)>> {
        let params: Vec<(&str, usize)> = self.params.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        let numbers = numbers(graph, self.value, &params)?;
        let all = numbers.to_vec::<i64>().unwrap_or_default();
        let (mut starts, mut end) = (vec![], 0);
        for (_, n) in &params {
            starts.push(end);
            end += n;
        }
        let place = |at: usize| {
            let number = usize::try_from(all[at]).unwrap_or(0);
            let param = starts.partition_point(|start| *start <= number).saturating_sub(1);
            (param, number - starts[param])
        };
        Ok(rows_first(numbers.dims(), &self.summed).into_iter().map(place).collect())
    }
}

/// Returns the other operand of a contraction, and its axes that correspond to the weights' reduction axes.
fn factor(node: &Node, weights: usize, summed: &[usize]) -> Option<(Value, Vec<usize>)> {
    let Op::Contract(spec) = &node.op else { return None };
    let mut letters = [&spec.left, &spec.right];
    letters.rotate_left(weights);
    let [own, others] = letters;
    let axis = |axis: &usize| others.iter().position(|letter| *letter == own[*axis]);
    Some((node.args[1 - weights], summed.iter().map(axis).collect::<Option<_>>()?))
}

/// Returns whether an operation only moves elements, without repeating any of an operand.
fn moves(op: &Op) -> bool {
    matches!(op, Op::Reshape | Op::Transpose { .. } | Op::Slice { .. } | Op::Concat { .. })
}

/// Returns the names of the parameters from which a value is obtained by moving elements, in ascending order, with
/// their numbers of elements. `None` if the value depends on any other operation, or on a parameter that is not f32, is
/// split over ranks or has a symbolic dimension, or if the parameters have `NUMBERS_MAX` elements or more in total.
fn parameters(graph: &Graph, v: Value) -> Option<Vec<(&str, usize)>> {
    let mut found = BTreeMap::new();
    let mut open = vec![v];
    while let Some(v) = open.pop() {
        let node = graph.node(v);
        match &node.op {
            Op::Param { name, parts, .. } if parts.is_empty() && node.ty.dtype == DType::F32 => {
                let n: usize = node.ty.static_dims()?.iter().product();
                found.insert(name.as_str(), n);
            }
            op if moves(op) => open.extend(&node.args),
            _ => return None,
        }
    }
    (found.values().sum::<usize>() < NUMBERS_MAX).then(|| found.into_iter().collect())
}

/// Returns an i64 tensor with the dimensions of value `v`. It contains, for each element of `v`, the index of this
/// element among the elements of all `params`, counted in the order of `params`.
fn numbers(graph: &Graph, v: Value, params: &[(&str, usize)]) -> Result<Tensor> {
    let node = graph.node(v);
    if let Op::Param { name, .. } = &node.op {
        let before: usize = params.iter().take_while(|(other, _)| other != name).map(|(_, n)| n).sum();
        let dims = node.ty.static_dims().unwrap_or_default();
        let n: usize = dims.iter().product();
        return Ok(Tensor::from_vec(dims, (before..before + n).map(|i| i as i64).collect()));
    }
    let args = node.args.iter().map(|arg| numbers(graph, *arg, params)).collect::<Result<Vec<Tensor>>>()?;
    let mut node = node.clone();
    node.ty.dtype = DType::I64;
    interp::evaluate(&node, &args, &|_| None)
}

/// Returns the positions of a tensor's elements in an order in which the reduction axes vary fastest.
fn rows_first(dims: &[usize], summed: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis];
    }
    let others = (0..dims.len()).filter(|axis| !summed.contains(axis));
    let order = others.chain(summed.iter().copied());
    order.fold(vec![0], |starts, axis| {
        let next = |start: usize| (0..dims[axis]).map(move |i| (start, i));
        starts.into_iter().flat_map(next).map(|(start, i)| start + i * strides[axis]).collect()
    })
}
