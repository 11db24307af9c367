//! What a model file says, resolved: typed attributes, inlined functions, nodes in topological order

use super::proto::attribute_type;
use sardonyx_base::{DType, Kind, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

#[derive(Clone, Debug)]
pub struct Model {
    pub ir_version: i64,
    /// Version in force per domain; the default domain `ai.onnx` is written "".
    pub opsets: BTreeMap<String, i64>,
    pub graph: Graph,
    pub producer: String,
    /// BLAKE3 of the model file in hexadecimal. External data is not part of it.
    pub hash: String,
    /// How many devices the file says run it together; none where it says nothing.
    pub devices: Option<i64>,
    /// The initializers whose external data is missing; only for those who asked for such a model.
    pub lacking: BTreeSet<String>,
    /// The files with external data, with symbolic links resolved.
    pub files: BTreeSet<PathBuf>,
}

/// A graph whose names are checked: every name that is used is an input, an initializer or a node's output, of this
/// graph or (in a subgraph) of an enclosing one; the innermost definition counts.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub name: String,
    /// Without those that an initializer gives a value.
    pub inputs: Vec<ValueInfo>,
    pub outputs: Vec<ValueInfo>,
    /// Those of the file in its order, then what `Constant` nodes hold.
    pub initializers: Vec<Initializer>,
    /// In topological order; the file's order wherever that is one.
    pub nodes: Vec<Node>,
}

impl Graph {
    /// What inputs and outputs that are no tensors are made of, by name.
    pub fn kinds(&self) -> BTreeMap<String, Kind> {
        let ports = self.inputs.iter().chain(&self.outputs);
        ports.map(|p| (p.name.clone(), p.kind())).filter(|(_, kind)| *kind != Kind::Tensor).collect()
    }
}

impl ValueInfo {
    /// A tensor where the file says nothing.
    pub fn kind(&self) -> Kind {
        self.ty.as_ref().map_or(Kind::Tensor, ValueType::kind)
    }
}

impl ValueType {
    pub fn kind(&self) -> Kind {
        match self {
            ValueType::Tensor { .. } | ValueType::SparseTensor { .. } | ValueType::Opaque { .. } => Kind::Tensor,
            ValueType::Sequence(of) => Kind::Sequence(Box::new(of.kind())),
            ValueType::Optional(of) => Kind::Optional(Box::new(of.kind())),
            ValueType::Map { value, .. } => Kind::Map(Box::new(value.kind())),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ValueInfo {
    pub name: String,
    /// `None` where the file says nothing, which it may in subgraphs and for outputs; inputs of the model have a type.
    pub ty: Option<ValueType>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ValueType {
    Tensor { dtype: DType, dims: Option<Vec<DimSpec>> },
    SparseTensor { dtype: DType, dims: Option<Vec<DimSpec>> },
    Sequence(Box<ValueType>),
    Optional(Box<ValueType>),
    Map { key: DType, value: Box<ValueType> },
    Opaque { domain: String, name: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DimSpec {
    /// At least 1: files write 0 for dimensions that they do not know.
    Fixed(i64),
    /// A symbol, or an expression over symbols (`s15 + s70`) in the exporter's words.
    Named(String),
    /// Each one its own unknown.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Initializer {
    pub name: String,
    /// Its bytes lie in the mapped model file, or in the mapped external file, where they can.
    pub data: Tensor,
}

#[derive(Clone, Debug)]
pub struct Node {
    /// Unique within the model, subgraphs included. A node of an inlined function is `caller/inner`.
    pub name: String,
    pub op_type: String,
    /// "" for `ai.onnx`.
    pub domain: String,
    /// `None` for an optional input that is absent.
    pub inputs: Vec<Option<String>>,
    pub outputs: Vec<Option<String>>,
    pub attributes: BTreeMap<String, Attribute>,
    /// The version of `domain` in force where the node was written.
    pub opset: i64,
    pub places: Vec<Placed>,
}

/// What the devices are to have of a tensor of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Of the inputs, or of the outputs.
    pub input: bool,
    pub index: usize,
    /// The axis of the mesh.
    pub axis: usize,
    /// The dimension that is split, how many runs of units it is, and elements to a unit; absent where each has all.
    pub split: Option<[i64; 3]>,
}

/// `in 1 0 2 1 32`: of input 1, along axis 0, dimension 2, one run of units of 32; `out 0 0`: all.
impl std::fmt::Display for Placed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", if self.input { "in" } else { "out" }, self.index, self.axis)?;
        self.split.iter().flatten().try_for_each(|n| write!(f, " {n}"))
    }
}

#[derive(Clone, Debug)]
pub enum Attribute {
    Float(f32),
    Int(i64),
    String(Vec<u8>),
    Tensor(Tensor),
    Graph(Box<Graph>),
    /// Expanded to dense.
    SparseTensor(Tensor),
    Type(ValueType),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Strings(Vec<Vec<u8>>),
    Tensors(Vec<Tensor>),
    Graphs(Vec<Graph>),
    SparseTensors(Vec<Tensor>),
    Types(Vec<ValueType>),
}

impl Attribute {
    /// What it is called in messages.
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

    /// The number ONNX gives it in `AttributeProto.type`.
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

    /// The graphs it holds, usually none.
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
