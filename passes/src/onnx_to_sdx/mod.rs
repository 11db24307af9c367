//! onnx.node "Gelu"(x)  =>  operations of the closed basis, with the type of every value inferred on the way

mod activation;
mod attention;
mod bits;
mod blocks;
mod bounds;
mod builder;
mod cast;
mod contrib;
mod contrib_attention;
mod control;
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
mod heads;
mod held;
mod indexing;
mod linear;
mod linear_attention;
mod loss;
mod ml_features;
mod ml_models;
mod ml_svm;
mod ml_trees;
mod named_activation;
mod nchwc;
mod node;
mod number;
mod outline;
mod packing;
mod padding;
mod places;
mod pooling;
mod qlinear;
mod quantize;
mod quantized;
mod random;
mod ranking;
mod recur;
mod recurrence;
mod recurrent;
mod reduce_axes;
mod reduction;
mod regions;
mod resize;
mod rotary;
mod sampling;
mod scatter;
mod select;
mod sequences;
mod shape;
mod signal;
mod sparse_attention;
mod statistics;
mod table;
mod texts;
mod training;
mod trigonometry;
mod unify;
mod windows;

pub use table::{Device, OPERATORS, Operator};

use crate::levels::rewrite_functions;
use crate::options::NchwcBlock;
use crate::rewrite::Rewrites;
use builder::Builder;
use node::Node;
use sardonyx_base::{Error, Result};
use sardonyx_dialects::mlir::{Attr, Block, Module, Operation};
use sardonyx_dialects::sdx::{self, Op, Value};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use table::Lowering;

/// Lowers every function of the module that holds ONNX nodes. Bodies become functions after all others, since callees
/// come after their callers.
pub fn run(module: &mut Module, rewrites: &mut Rewrites) -> Result<()> {
    let named = |op: &Operation| op.attr("sym_name").and_then(Attr::as_str);
    let names: BTreeSet<String> = module.operations().iter().filter_map(named).collect();
    let (cx, nchwc_block) = (module.context(), rewrites.options().nchwc_block.map(|NchwcBlock(n)| n));
    let activations = rewrites.options().activations;
    let names = Rc::new(RefCell::new(names));
    let mut bodies = vec![];
    rewrite_functions(module, |function| {
        let body = function.block(0).map_or(vec![], |b| b.operations());
        if !body.iter().any(|op| op.name().starts_with("onnx.")) {
            return Ok(None);
        }
        refuse_unsupported(&body)?;
        let mut b = Builder::within(names.clone(), 0);
        b.nchwc_block = nchwc_block;
        b.activations = activations;
        let lowered = lower_function(function, b)?;
        bodies.extend(lowered.bodies);
        lowered.graph.write(cx).map(Some)
    })?;
    bodies.into_iter().try_for_each(|body| module.push(body.write(cx)?))
}

/// Reports all operators that the table lacks, with the nodes that use them, in one diagnostic.
fn refuse_unsupported(body: &[Operation]) -> Result<()> {
    let mut missing: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut first = None;
    let mut rest: Vec<Operation> = body.iter().rev().copied().collect();
    while let Some(op) = rest.pop() {
        rest.extend((0..).map_while(|i| op.block(i)).flat_map(Block::operations));
        if op.name() != "onnx.node" {
            continue;
        }
        let node = Node::read(op, vec![])?;
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

/// Number of nodes shown per operator: enough to find the place in the model.
const NODES_SHOWN: usize = 3;

fn shorten(nodes: &[String]) -> String {
    let shown = nodes.iter().take(NODES_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match nodes.len().saturating_sub(NODES_SHOWN) {
        0 => shown,
        n_more => format!("{shown} and {n_more} more"),
    }
}

/// Whether the length of an operand decides the rank of the operator's result. Where that length is not known, the rank
/// that the file declares is used.
pub fn has_open_rank(domain: &str, op_type: &str) -> bool {
    let names = ["AffineGrid", "Col2Im", "ConstantOfShape", "Expand", "GatherND", "Reshape", "Squeeze", "Unsqueeze"];
    domain.is_empty() && (names.contains(&op_type) || op_type.starts_with("Reduce"))
}

/// Whether the first result has the rank of the first operand, whatever the other operands are.
pub fn keeps_rank(domain: &str, op_type: &str) -> bool {
    let casts = ["Cast", "CastLike", "Identity"];
    let row = OPERATORS.iter().find(|row| (row.domain, row.name) == (domain, op_type));
    row.is_some_and(|row| match row.lowering {
        Lowering::Map(f) => f.row().operands == 1,
        Lowering::Code(_) | Lowering::Swapped(_) | Lowering::Fold(_) => domain.is_empty() && casts.contains(&op_type),
    })
}

/// Whether the table has the operator in this version.
pub fn is_supported(domain: &str, op_type: &str, opset: i64) -> bool {
    table::lookup(domain, op_type, opset).is_ok()
}

fn lower_function(function: Operation, mut b: Builder) -> Result<Builder> {
    b.graph.name = function.attr("sym_name").and_then(Attr::as_str).unwrap_or_default();
    b.graph.symbols = sdx::ir::read_symbols(function.attr("sdx.symbols"))?;
    b.graph.checks = sdx::ir::read_checks(function.attr("sdx.checks"))?;
    let body = function.block(0).ok_or_else(|| Error::defect("a function has no body"))?;
    let held = function.attr("onnx.held").and_then(Attr::as_strs).unwrap_or_default();
    for (i, (argument, name)) in body.arguments().into_iter().zip(sdx::ir::argument_names(function)).enumerate() {
        let ty = sdx::ir::tensor_type(argument.ty())?;
        let v = b.add_typed(Op::Input { name, parts: vec![] }, &[], Some(ty))?;
        b.hold(v, held.get(i).map_or(held::Held::Unknown, |text| held::Held::parse(text)));
        b.scope.insert(argument.key(), Some(v));
    }
    for op in body.operations() {
        let inputs = operands(&b, op)?;
        if op.name() != "func.return" {
            lower_operation(&mut b, op, inputs)?;
            continue;
        }
        let outputs = sdx::ir::result_names(function, inputs.len()).into_iter().zip(inputs);
        let absent = |n: &str| Error::user("E0104", format!("the output `{n}` is never computed"));
        b.graph.outputs =
            outputs.map(|(n, v)| v.map(|v| (n.clone(), v)).ok_or_else(|| absent(&n))).collect::<Result<_>>()?;
    }
    b.refuse_contradictions()?;
    Ok(b)
}

/// Lowers the operations of a body, with these values as its arguments. Returns the values that the body yields.
fn lower_block(b: &mut Builder, block: Block, arguments: &[Value]) -> Result<Vec<Value>> {
    let origin = b.origin.clone();
    b.scope.extend(block.arguments().iter().zip(arguments).map(|(argument, v)| (argument.key(), Some(*v))));
    let mut yielded = vec![];
    for op in block.operations() {
        let inputs = operands(b, op)?;
        match op.name().as_str() {
            "onnx.yield" => yielded = inputs,
            _ => lower_operation(b, op, inputs)?,
        }
    }
    b.origin = origin;
    let absent = |i: usize| b.error("E0104", format!("output {i} of a body is never computed"));
    yielded.into_iter().enumerate().map(|(i, v)| v.ok_or_else(|| absent(i))).collect()
}

fn operands(b: &Builder, op: Operation) -> Result<Vec<Option<Value>>> {
    let all: Option<Vec<Option<Value>>> = op.operands().iter().map(|v| b.scope.get(&v.key()).copied()).collect();
    all.ok_or_else(|| Error::defect("an ONNX node uses a value of another level"))
}

fn lower_operation(b: &mut Builder, op: Operation, inputs: Vec<Option<Value>>) -> Result<()> {
    b.origin = op.origins().into_iter().next().unwrap_or_default();
    match op.name().as_str() {
        "onnx.none" => drop(b.scope.insert(op.results()[0].key(), None)),
        "onnx.node" => {
            let places = places::read(op)?;
            let inputs = places::placed(b, &places, true, inputs)?;
            let node = Node::read(op, inputs)?;
            let outputs = lower_node(b, &node)?;
            let outputs = places::placed(b, &places, false, outputs.into_iter().map(Some).collect())?;
            let outputs: Vec<Value> = outputs.into_iter().flatten().collect();
            b.scope.extend(op.results().into_iter().zip(outputs).map(|(result, v)| (result.key(), Some(v))));
        }
        _ => {
            let args: Option<Vec<Value>> = inputs.into_iter().collect();
            let args = args.ok_or_else(|| Error::defect("an absent value is used"))?;
            let ty = sdx::ir::tensor_type(op.results()[0].ty())?;
            let meaning = sdx::ir::read_op(op).map_err(Error::defect)?;
            let v = b.add_typed(meaning, &args, Some(ty))?;
            b.scope.insert(op.results()[0].key(), Some(v));
        }
    }
    Ok(())
}

fn lower_node(b: &mut Builder, node: &Node) -> Result<Vec<Value>> {
    let operator =
        table::find(node).map_err(|wanted| node.error("E0101", format!("unsupported operator `{wanted}`")))?;
    b.declared_rank = node.declared_rank;
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
