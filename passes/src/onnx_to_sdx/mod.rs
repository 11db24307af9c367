//! onnx.node "Gelu"(x)  =>  the closed basis, with the type of every value inferred on the way

mod activation;
mod attention;
mod bits;
mod blocks;
mod bounds;
mod builder;
mod cast;
mod convolution;
mod coordinates;
mod cumulative;
mod deformable;
mod determinant;
mod dynamic;
mod einsum;
mod elementwise;
mod generate;
mod gradient;
mod indexing;
mod linear;
mod loss;
mod ml_features;
mod ml_models;
mod ml_svm;
mod ml_trees;
mod node;
mod number;
mod padding;
mod pooling;
mod qlinear;
mod quantize;
mod random;
mod ranking;
mod reduce_axes;
mod reduction;
mod regions;
mod resize;
mod sampling;
mod scatter;
mod shape;
mod signal;
mod statistics;
mod table;
mod training;
mod trigonometry;
mod windows;

pub use table::{OPERATORS, Operator};

use builder::Builder;
use node::Node;
use sardonyx_dialects::mlir::{Attr, Operation};
use sardonyx_dialects::sdx::{self, Graph, Op, Value};
use sardonyx_runtime::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use table::Lowering;

/// Lowers every function of the module that holds ONNX nodes.
pub fn run(module: Operation) -> Result<()> {
    crate::rewrite_functions(module, |function| {
        let body = function.block(0).map_or(vec![], |b| b.operations());
        if !body.iter().any(|op| op.name().starts_with("onnx.")) {
            return Ok(None);
        }
        refuse_unsupported(&body)?;
        lower_function(function)?.write(function.context()).map(Some)
    })
}

/// All operators that the table lacks, with the nodes that use them, in one diagnostic.
fn refuse_unsupported(body: &[Operation]) -> Result<()> {
    let mut missing: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut first = None;
    for op in body.iter().filter(|op| op.name() == "onnx.node") {
        let node = Node::read(*op, vec![])?;
        if let Err(wanted) = table::find(&node) {
            first.get_or_insert_with(|| node.name.clone());
            missing.entry(wanted).or_default().push(node.name);
        }
    }
    let Some(first) = first else { return Ok(()) };
    let kinds: Vec<String> = missing.iter().map(|(kind, nodes)| format!("`{kind}` ({})", shorten(nodes))).collect();
    let plural = if kinds.len() > 1 { "s" } else { "" };
    let message = format!("unsupported operator{plural} {}", kinds.join(", "));
    Err(Error::user("E0101", message).node(first).help("`sardonyx ops` lists the supported operators"))
}

/// Nodes shown per operator: enough to find the place in the model.
const NODES_SHOWN: usize = 3;

fn shorten(nodes: &[String]) -> String {
    let shown = nodes.iter().take(NODES_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match nodes.len().saturating_sub(NODES_SHOWN) {
        0 => shown,
        n_more => format!("{shown} and {n_more} more"),
    }
}

/// Whether the table has the operator in this version.
pub fn is_supported(domain: &str, op_type: &str, opset: i64) -> bool {
    table::lookup(domain, op_type, opset).is_ok()
}

fn lower_function(function: Operation) -> Result<Graph> {
    let mut b = Builder::default();
    b.graph.name = function.attr("sym_name").and_then(Attr::as_str).unwrap_or_default();
    b.graph.symbols = sdx::ir::read_symbols(function.attr("sdx.symbols"))?;
    b.graph.checks = sdx::ir::read_checks(function.attr("sdx.checks"))?;
    let body = function.block(0).ok_or_else(|| Error::defect("a function has no body"))?;
    let mut values: HashMap<usize, Option<Value>> = HashMap::new();
    for (argument, name) in body.arguments().into_iter().zip(sdx::ir::argument_names(function)) {
        let ty = sdx::ir::tensor_type(argument.ty())?;
        let v = b.add_typed(Op::Input { name }, &[], Some(ty))?;
        values.insert(argument.key(), Some(v));
    }
    for op in body.operations() {
        let inputs: Option<Vec<Option<Value>>> = op.operands().iter().map(|v| values.get(&v.key()).copied()).collect();
        let inputs = inputs.ok_or_else(|| Error::defect("an ONNX node uses a value of another level"))?;
        b.origin = op.origins().into_iter().next().unwrap_or_default();
        match op.name().as_str() {
            "func.return" => {
                let outputs = sdx::ir::result_names(function, inputs.len()).into_iter().zip(inputs);
                let absent = |n: &str| Error::user("E0104", format!("the output `{n}` is never computed"));
                b.graph.outputs =
                    outputs.map(|(n, v)| v.map(|v| (n.clone(), v)).ok_or_else(|| absent(&n))).collect::<Result<_>>()?;
            }
            "onnx.none" => drop(values.insert(op.results()[0].key(), None)),
            "onnx.node" => {
                let node = Node::read(op, inputs)?;
                let outputs = lower_node(&mut b, &node)?;
                for (result, v) in op.results().into_iter().zip(outputs) {
                    values.insert(result.key(), Some(v));
                }
            }
            _ => {
                let args: Option<Vec<Value>> = inputs.into_iter().collect();
                let args = args.ok_or_else(|| Error::defect("an absent value is used"))?;
                let ty = sdx::ir::tensor_type(op.results()[0].ty())?;
                let meaning = sdx::ir::read_op(op).map_err(Error::defect)?;
                let v = b.add_typed(meaning, &args, Some(ty))?;
                values.insert(op.results()[0].key(), Some(v));
            }
        }
    }
    Ok(b.graph)
}

fn lower_node(b: &mut Builder, node: &Node) -> Result<Vec<Value>> {
    let operator =
        table::find(node).map_err(|wanted| node.error("E0101", format!("unsupported operator `{wanted}`")))?;
    let outputs = match operator.lowering {
        Lowering::Code(lower) => lower(b, node),
        Lowering::Map(f) => elementwise::map(b, node, f, false),
        Lowering::Swapped(f) => elementwise::map(b, node, f, true),
        Lowering::Fold(f) => elementwise::fold(b, node, f),
    };
    let outputs = outputs.map_err(|e| e.node(&node.name))?;
    match outputs.len() >= node.n_outputs {
        true => Ok(outputs),
        false => Err(node
            .error("E0101", format!("its output {} is not supported", outputs.len()))
            .help("only inference outputs are computed")),
    }
}
