//! node("Add", "a b", "c")  =>  a NodeProto: short constructors for ONNX protobuf messages

use prost::Message;
use sardonyx::onnx::proto::*;
use sardonyx::onnx::{Graph, Model, parse_model};
use sardonyx_base::{Error, Result};

fn words(text: &str) -> Vec<String> {
    // A lone underscore stands for an absent value.
    text.split_whitespace().map(|w| if w == "_" { String::new() } else { w.to_string() }).collect()
}

pub fn node(op_type: &str, input: &str, output: &str) -> NodeProto {
    NodeProto { op_type: op_type.into(), input: words(input), output: words(output), ..Default::default() }
}

pub fn named(name: &str, node: NodeProto) -> NodeProto {
    NodeProto { name: name.into(), ..node }
}

pub fn with(node: NodeProto, attribute: AttributeProto) -> NodeProto {
    let mut node = node;
    node.attribute.push(attribute);
    node
}

/// A call of the function `function` of the domain `local`.
pub fn call(function: &str, input: &str, output: &str) -> NodeProto {
    NodeProto { domain: "local".into(), ..node(function, input, output) }
}

pub fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.into(), i, r#type: attribute_type::INT, ..Default::default() }
}

pub fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { name: name.into(), ints: ints.to_vec(), r#type: attribute_type::INTS, ..Default::default() }
}

pub fn graph_attribute(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { name: name.into(), g: Some(Box::new(graph)), r#type: attribute_type::GRAPH, ..Default::default() }
}

/// An attribute, in a function body, whose value is the call's attribute `of`, or else the function's default of `of`.
pub fn reference(name: &str, of: &str, r#type: i32) -> AttributeProto {
    AttributeProto { name: name.into(), ref_attr_name: of.into(), r#type, ..Default::default() }
}

/// Name and type of an f32 tensor; a negative dimension is the symbol `n`.
pub fn f32_value(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dim = |&n: &i64| Dimension {
        value: Some(if n < 0 { DimensionValue::DimParam("n".into()) } else { DimensionValue::DimValue(n) }),
    };
    let shape = Some(TensorShapeProto { dim: dims.iter().map(dim).collect() });
    let tensor = type_proto::Tensor { elem_type: 1, shape };
    let r#type = Some(TypeProto { value: Some(type_proto::Value::TensorType(tensor)) });
    ValueInfoProto { name: name.into(), r#type }
}

pub fn i64_tensor(name: &str, values: &[i64]) -> TensorProto {
    let dims = vec![values.len() as i64];
    TensorProto { name: name.into(), data_type: 7, dims, int64_data: values.to_vec(), ..Default::default() }
}

/// A graph whose inputs and outputs are f32 tensors of dimensions [2, 3].
pub fn graph(inputs: &str, outputs: &str, node: Vec<NodeProto>) -> GraphProto {
    let values = |names: &str| words(names).iter().map(|name| f32_value(name, &[2, 3])).collect();
    GraphProto { name: "g".into(), input: values(inputs), output: values(outputs), node, ..Default::default() }
}

pub fn function(name: &str, input: &str, output: &str, node: Vec<NodeProto>) -> FunctionProto {
    FunctionProto {
        name: name.into(),
        domain: "local".into(),
        input: words(input),
        output: words(output),
        node,
        opset_import: imports(),
        ..Default::default()
    }
}

fn imports() -> Vec<OperatorSetIdProto> {
    vec![OperatorSetIdProto { domain: String::new(), version: 17 }]
}

pub fn model(graph: GraphProto) -> ModelProto {
    ModelProto { ir_version: 8, opset_import: imports(), graph: Some(graph), ..Default::default() }
}

pub fn read(model: &ModelProto) -> Result<Model> {
    parse_model(model.encode_to_vec().into())
}

pub fn read_graph(graph: GraphProto) -> Result<Graph> {
    Ok(read(&model(graph))?.graph)
}

pub fn refusal(model: &ModelProto) -> Box<Error> {
    let e = read(model).expect_err("the model should be refused");
    assert!(e.help.is_some(), "no remedy: {e}");
    e
}

/// The nodes in order, one per line: `name: Add(a, b) -> c`. `_` stands for an absent value.
pub fn listing(graph: &Graph) -> String {
    let shown =
        |names: &[Option<String>]| names.iter().map(|n| n.as_deref().unwrap_or("_")).collect::<Vec<_>>().join(", ");
    let line =
        |n: &sardonyx::onnx::Node| format!("{}: {}({}) -> {}", n.name, n.op_type, shown(&n.inputs), shown(&n.outputs));
    graph.nodes.iter().map(line).collect::<Vec<_>>().join("\n")
}
