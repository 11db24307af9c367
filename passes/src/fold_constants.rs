//! add(const 2, const 3)  =>  const 5;   gather(dims ["batch", "seq"], const 1)  =>  dims ["seq"]
//!
//! Values come from the interpreter, or for small integer tensors from their expressions over symbols. The pass itself
//! contains no evaluator.

use crate::rewrite::Rewrites;
use sardonyx_base::{DType, Dim, Result, Tensor};
use sardonyx_dialects::interp::{self, symbolic};
use sardonyx_dialects::mlir::Module;
use sardonyx_dialects::params::ParamValues;
use sardonyx_dialects::sdx::{Graph, Node, Op, TensorType, Value};

/// Results with more elements are not folded, because the IR should not hold large tables.
const ELEMENTS_MAX: usize = 1024;

pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    rewrites.graphs(module, |rewrites, graph| fold(graph, rewrites))
}

fn fold(graph: &mut Graph, rewrites: &mut Rewrites) -> Result<()> {
    let mut contents: Vec<Option<Vec<Dim>>> = vec![];
    for i in 0..graph.nodes.len() {
        let node = graph.nodes[i].clone();
        let args: Vec<(&TensorType, Option<&[Dim]>)> =
            node.args.iter().map(|a| (graph.ty(*a), contents[a.index()].as_deref())).collect();
        let known = symbolic::contents(&node.op, &node.ty, &args, &|s| graph.symbol_lo(s));
        let folded = match (&known, is_literal(&node.op)) {
            (_, true) => None,
            (Some(values), false) => literal(values, &node.ty),
            (None, false) => evaluate(graph, &node, &rewrites.options().params)?.map(Op::Const),
        };
        if let Some(op) = folded {
            rewrites.replace(graph, "evaluate", &node, |graph| {
                graph.nodes[i] = Node { op, args: vec![], ..node.clone() };
                Value(i as u32)
            })?;
        }
        contents.push(known);
    }
    Ok(())
}

fn is_literal(op: &Op) -> bool {
    matches!(
        op,
        Op::Const(_) | Op::Dims(_) | Op::Input { .. } | Op::Param { .. } | Op::Bind { .. } | Op::Place(_) | Op::Host(_)
    )
}

/// Returns an operation without operands whose result has these elements, or `None` if no operation has.
fn literal(values: &[Dim], ty: &TensorType) -> Option<Op> {
    if let (Some(numbers), Some(dims)) =
        (values.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>(), ty.static_dims())
    {
        return Some(Op::Const(match ty.dtype {
            DType::I64 => Tensor::from_vec(dims, numbers),
            DType::I32 => Tensor::from_vec(dims, numbers.into_iter().map(|v| v as i32).collect()),
            DType::Bool => Tensor::from_vec(dims, numbers.into_iter().map(|v| v != 0).collect()),
            _ => return None,
        }));
    }
    (ty.dtype == DType::I64 && ty.rank() <= 1).then(|| Op::Dims(values.to_vec()))
}

/// Returns the value of an operation whose operands are small constants.
fn evaluate(graph: &Graph, node: &Node, params: &dyn ParamValues) -> Result<Option<Tensor>> {
    let constants = node.args.iter().all(|a| matches!(graph.node(*a).op, Op::Const(_)));
    let small = node.ty.static_dims().is_some_and(|d| d.iter().product::<usize>() <= ELEMENTS_MAX);
    if !constants || !small || node.args.is_empty() {
        return Ok(None);
    }
    let mut alone = Graph::default();
    let args: Vec<Value> = node.args.iter().map(|a| alone.push(graph.node(*a).clone())).collect();
    let v = alone.push(Node { args, ..node.clone() });
    alone.outputs.push(("folded".into(), v));
    let outputs = interp::run(&alone, params, &[])?;
    Ok(outputs.into_iter().next().map(|(_, t)| t))
}
