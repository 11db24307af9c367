//! The content of a model file, resolved: typed attributes, inlined functions, nodes in topological order

use super::proto::attribute_type;
use sardonyx_base::{DType, Kind, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A model file, with its names and opset versions resolved.
#[derive(Clone, Debug)]
pub struct Model {
    /// Version of the ONNX IR, one of [`IR_VERSIONS`](super::IR_VERSIONS).
    pub ir_version: i64,
    /// Opset version in force for each domain; the default domain `ai.onnx` is written "".
    pub opsets: BTreeMap<String, i64>,
    /// The main graph, in which calls of functions are inlined.
    pub graph: Graph,
    /// Name and version of the tool that wrote the file; may be empty.
    pub producer: String,
    /// BLAKE3 of the model file in hexadecimal. External data is not included.
    pub hash: String,
    /// Number of devices that run the model together, if the file has a device configuration.
    pub devices: Option<i64>,
    /// Initializers whose external data is missing; empty unless the model was read with missing data allowed.
    pub lacking: BTreeSet<String>,
    /// Files of external data, with symbolic links resolved.
    pub files: BTreeSet<PathBuf>,
}

/// A graph whose names have been checked: every name that is used is an input, an initializer or a node's output, of
/// this graph or (in a subgraph) of an enclosing one; inner definitions hide outer ones.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Name of the graph, which is used in messages only.
    pub name: String,
    /// Inputs, except those that have an initializer.
    pub inputs: Vec<ValueInfo>,
    /// Outputs, in the order of the file.
    pub outputs: Vec<ValueInfo>,
    /// Initializers in the order of the file, then the values of `Constant` nodes.
    pub initializers: Vec<Initializer>,
    /// Nodes in topological order, which is the file's order if that is topological.
    pub nodes: Vec<Node>,
}

impl Graph {
    /// Returns how many nodes have this operator, in subgraphs too.
    pub fn count(&self, op_type: &str) -> usize {
        let within = |node: &Node| -> usize {
            node.attributes.values().flat_map(Attribute::graphs).map(|graph| graph.count(op_type)).sum()
        };
        self.nodes.iter().map(|node| usize::from(node.op_type == op_type) + within(node)).sum()
    }

    /// Kinds of the inputs and outputs that are not tensors, by name.
    pub fn kinds(&self) -> BTreeMap<String, Kind> {
        let ports = self.inputs.iter().chain(&self.outputs);
        ports.map(|p| (p.name.clone(), p.kind())).filter(|(_, kind)| *kind != Kind::Tensor).collect()
    }
}

impl ValueInfo {
    /// The kind of the value; tensor if the file does not declare a type.
    pub fn kind(&self) -> Kind {
        self.ty.as_ref().map_or(Kind::Tensor, ValueType::kind)
    }
}

impl ValueType {
    /// Returns the kind of a value of this type; sparse tensors and opaque values count as tensors.
    pub fn kind(&self) -> Kind {
        match self {
            ValueType::Tensor { .. } | ValueType::SparseTensor { .. } | ValueType::Opaque { .. } => Kind::Tensor,
            ValueType::Sequence(of) => Kind::Sequence(Box::new(of.kind())),
            ValueType::Optional(of) => Kind::Optional(Box::new(of.kind())),
            ValueType::Map { value, .. } => Kind::Map(Box::new(value.kind())),
        }
    }
}

/// An input or output of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueInfo {
    /// Name of the value, by which nodes refer to it.
    pub name: String,
    /// The declared type; `None` if the file declares none, which is allowed in subgraphs and for outputs, but not for
    /// inputs of the model.
    pub ty: Option<ValueType>,
}

/// Declared type of a value, as in ONNX `TypeProto`.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueType {
    /// A dense tensor.
    Tensor {
        /// Element type.
        dtype: DType,
        /// Dimensions, outermost first; `None` if the rank is unknown.
        dims: Option<Vec<DimSpec>>,
    },
    /// A sparse tensor.
    SparseTensor {
        /// Element type.
        dtype: DType,
        /// Dimensions, outermost first; `None` if the rank is unknown.
        dims: Option<Vec<DimSpec>>,
    },
    /// A list of values of this type.
    Sequence(Box<ValueType>),
    /// A value of this type, or none.
    Optional(Box<ValueType>),
    /// A map from scalars to values.
    Map {
        /// Type of the keys.
        key: DType,
        /// Type of the values.
        value: Box<ValueType>,
    },
    /// A type that only the operators of a domain know.
    Opaque {
        /// Domain that defines the type.
        domain: String,
        /// Name of the type within its domain.
        name: String,
    },
}

/// Declared size of a dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DimSpec {
    /// A size of at least 1; files write 0 for unknown dimensions.
    Fixed(i64),
    /// A symbol, or an expression over symbols (`s15 + s70`), as the exporter wrote it.
    Named(String),
    /// Unknown; two unknown dimensions need not be equal.
    Unknown,
}

/// A constant of a graph.
#[derive(Clone, Debug)]
pub struct Initializer {
    /// Name of the value, by which nodes refer to it.
    pub name: String,
    /// The value; its bytes stay in the mapped model file or external file if possible.
    pub data: Tensor,
}

/// A call of an operator.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name, unique within the model, subgraphs included. A node of an inlined function is named `caller/inner`.
    pub name: String,
    /// Name of the operator, such as `MatMul`.
    pub op_type: String,
    /// Domain of the operator; "" for `ai.onnx`.
    pub domain: String,
    /// Names of the inputs; `None` for an absent optional input.
    pub inputs: Vec<Option<String>>,
    /// Names of the outputs; `None` for one that is not requested.
    pub outputs: Vec<Option<String>>,
    /// Attributes that the file gives, by name.
    pub attributes: BTreeMap<String, Attribute>,
    /// The version of `domain` in force where the node is defined.
    pub opset: i64,
    /// Distribution of the node's tensors, from the file or a plan; empty if there is none.
    pub places: Vec<Placed>,
}

/// How a tensor of a node is distributed over the devices along one axis of the mesh.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Whether the tensor is an input of the node, or an output.
    pub input: bool,
    /// Index among the inputs or the outputs of the node, from 0.
    pub index: usize,
    /// Axis of the mesh.
    pub axis: usize,
    /// The dimension that is split, the number of runs of units in it, and the number of elements of a unit; `None` if
    /// each device has the whole tensor.
    pub split: Option<[i64; 3]>,
}

/// `in 1 0 2 1 32`: input 1, axis 0, dimension 2, one run of units of 32; `out 0 0`: each device has all of output 0.
impl std::fmt::Display for Placed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", if self.input { "in" } else { "out" }, self.index, self.axis)?;
        self.split.iter().flatten().try_for_each(|n| write!(f, " {n}"))
    }
}

/// Value of an attribute, as in ONNX `AttributeProto`.
#[derive(Clone, Debug)]
pub enum Attribute {
    /// `FLOAT`
    Float(f32),
    /// `INT`
    Int(i64),
    /// `STRING`, which need not be valid UTF-8.
    String(Vec<u8>),
    /// `TENSOR`
    Tensor(Tensor),
    /// `GRAPH`, such as the body of a loop.
    Graph(Box<Graph>),
    /// Expanded to a dense tensor.
    SparseTensor(Tensor),
    /// `TYPE_PROTO`
    Type(ValueType),
    /// `FLOATS`
    Floats(Vec<f32>),
    /// `INTS`
    Ints(Vec<i64>),
    /// `STRINGS`, which need not be valid UTF-8.
    Strings(Vec<Vec<u8>>),
    /// `TENSORS`
    Tensors(Vec<Tensor>),
    /// `GRAPHS`
    Graphs(Vec<Graph>),
    /// `SPARSE_TENSORS`, expanded to dense tensors.
    SparseTensors(Vec<Tensor>),
    /// `TYPE_PROTOS`
    Types(Vec<ValueType>),
}

impl Attribute {
    /// Name of the attribute's type in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Attribute::Float(_) => "float",
            Attribute::Int(_) => "int",
            Attribute::String(_) => "string",
            Attribute::Tensor(_) => "tensor",
            Attribute::Graph(_) => "graph",
            Attribute::SparseTensor(_) => "sparse tensor",
            Attribute::Type(_) => "type",
            Attribute::Floats(_) => "list of floats",
            Attribute::Ints(_) => "list of ints",
            Attribute::Strings(_) => "list of strings",
            Attribute::Tensors(_) => "list of tensors",
            Attribute::Graphs(_) => "list of graphs",
            Attribute::SparseTensors(_) => "list of sparse tensors",
            Attribute::Types(_) => "list of types",
        }
    }

    /// The type's number in `AttributeProto.type`.
    pub fn onnx_type(&self) -> i32 {
        match self {
            Attribute::Float(_) => attribute_type::FLOAT,
            Attribute::Int(_) => attribute_type::INT,
            Attribute::String(_) => attribute_type::STRING,
            Attribute::Tensor(_) => attribute_type::TENSOR,
            Attribute::Graph(_) => attribute_type::GRAPH,
            Attribute::SparseTensor(_) => attribute_type::SPARSE_TENSOR,
            Attribute::Type(_) => attribute_type::TYPE_PROTO,
            Attribute::Floats(_) => attribute_type::FLOATS,
            Attribute::Ints(_) => attribute_type::INTS,
            Attribute::Strings(_) => attribute_type::STRINGS,
            Attribute::Tensors(_) => attribute_type::TENSORS,
            Attribute::Graphs(_) => attribute_type::GRAPHS,
            Attribute::SparseTensors(_) => attribute_type::SPARSE_TENSORS,
            Attribute::Types(_) => attribute_type::TYPE_PROTOS,
        }
    }

    /// The graphs in the attribute; usually none.
    pub fn graphs(&self) -> &[Graph] {
        match self {
            Attribute::Graph(graph) => std::slice::from_ref(graph),
            Attribute::Graphs(graphs) => graphs,
            Attribute::Float(_)
            | Attribute::Int(_)
            | Attribute::String(_)
            | Attribute::Tensor(_)
            | Attribute::SparseTensor(_)
            | Attribute::Type(_)
            | Attribute::Floats(_)
            | Attribute::Ints(_)
            | Attribute::Strings(_)
            | Attribute::Tensors(_)
            | Attribute::SparseTensors(_)
            | Attribute::Types(_) => &[],
        }
    }

    pub(super) fn graphs_mut(&mut self) -> &mut [Graph] {
        match self {
            Attribute::Graph(graph) => std::slice::from_mut(graph),
            Attribute::Graphs(graphs) => graphs,
            Attribute::Float(_)
            | Attribute::Int(_)
            | Attribute::String(_)
            | Attribute::Tensor(_)
            | Attribute::SparseTensor(_)
            | Attribute::Type(_)
            | Attribute::Floats(_)
            | Attribute::Ints(_)
            | Attribute::Strings(_)
            | Attribute::Tensors(_)
            | Attribute::SparseTensors(_)
            | Attribute::Types(_) => &mut [],
        }
    }
}
