//! onnx.proto as prost messages: model, graph, node, attribute, type, function
//!
//! Only the fields that affect a model's meaning are declared. Documentation strings, metadata and training annotations
//! are skipped while decoding, so that they cost nothing and cannot cause errors.

use bytes::Bytes;
pub use sardonyx_format::tensor_io::proto::{Segment, StringStringEntryProto, TensorProto};

/// A model file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ModelProto {
    /// Version of the ONNX IR.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// Name of the tool that wrote the file.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// Version of the tool that wrote the file.
    #[prost(string, tag = "3")]
    pub producer_version: String,
    /// The main graph; a file without one is refused.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// Opset version of each domain that the main graph uses.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Functions that nodes may call, by domain, name and overload.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<FunctionProto>,
    /// Device configurations; at most one is supported.
    #[prost(message, repeated, tag = "26")]
    pub configuration: Vec<DeviceConfigurationProto>,
}

/// Number of devices that run the model together.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeviceConfigurationProto {
    /// Name by which nodes refer to the configuration.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Number of devices; 1 to 1024 are supported.
    #[prost(int32, tag = "2")]
    pub num_devices: i32,
}

/// How a node's tensors are distributed over the devices of a configuration.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeDeviceConfigurationProto {
    /// Name of the device configuration.
    #[prost(string, tag = "1")]
    pub configuration_id: String,
    /// One element for each tensor that is distributed.
    #[prost(message, repeated, tag = "2")]
    pub sharding_spec: Vec<ShardingSpecProto>,
    /// Pipeline stage of the node; only 0 is supported.
    #[prost(int32, optional, tag = "3")]
    pub pipeline_stage: Option<i32>,
}

/// How one tensor is distributed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ShardingSpecProto {
    /// Name of an input or output of the node.
    #[prost(string, tag = "1")]
    pub tensor_name: String,
    /// Devices that hold the shards; supported are none, or all devices in ascending order.
    #[prost(int64, repeated, tag = "2")]
    pub device: Vec<i64>,
    /// Dimensions that are split; a split of a single one is supported.
    #[prost(message, repeated, tag = "4")]
    pub sharded_dim: Vec<ShardedDimProto>,
}

/// How one dimension is split.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ShardedDimProto {
    /// Index of the dimension; a negative one counts from the end.
    #[prost(int64, tag = "1")]
    pub axis: i64,
    /// Factors of the dimension's size, outermost first.
    #[prost(message, repeated, tag = "2")]
    pub simple_sharding: Vec<SimpleShardedDimProto>,
}

/// A factor of a dimension's size, and the number of shards it is split into.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SimpleShardedDimProto {
    /// Size of the factor; `None` if it is not a number.
    #[prost(int64, optional, tag = "1")]
    pub dim_value: Option<i64>,
    /// Number of shards; 1 if the factor is not split.
    #[prost(int64, tag = "3")]
    pub num_shards: i64,
}

/// A domain and the version of its opset that is in force.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OperatorSetIdProto {
    /// The domain; "" and `ai.onnx` are the same.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Version of the opset.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// The main graph, or a subgraph in an attribute.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GraphProto {
    /// Nodes; the specification demands topological order.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// Name of the graph.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Constants, by the names of the tensors.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// Inputs; in IR version 3, every initializer is listed here too.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// Outputs, each the name of an input, an initializer or a node's output.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// Sparse constants, by the names of their values.
    #[prost(message, repeated, tag = "15")]
    pub sparse_initializer: Vec<SparseTensorProto>,
}

/// A call of an operator or of a function.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeProto {
    /// Names of the inputs; "" for an absent one.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of the outputs; "" for one that is not requested.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// Name of the node; may be empty.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Name of the operator or function.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// Attributes, in any order.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// Domain of the operator or function; "" for `ai.onnx`.
    #[prost(string, tag = "7")]
    pub domain: String,
    /// Distinguishes functions of the same domain and name.
    #[prost(string, tag = "8")]
    pub overload: String,
    /// Distribution of the node's tensors, for each device configuration.
    #[prost(message, repeated, tag = "10")]
    pub device_configurations: Vec<NodeDeviceConfigurationProto>,
}

/// A named attribute of a node, or the default of a function's attribute.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AttributeProto {
    /// Name of the attribute.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Value of the type `FLOAT`.
    #[prost(float, tag = "2")]
    pub f: f32,
    /// Value of the type `INT`.
    #[prost(int64, tag = "3")]
    pub i: i64,
    /// Value of the type `STRING`.
    #[prost(bytes = "bytes", tag = "4")]
    pub s: Bytes,
    /// Value of the type `TENSOR`.
    #[prost(message, optional, boxed, tag = "5")]
    pub t: Option<Box<TensorProto>>,
    /// Value of the type `GRAPH`.
    #[prost(message, optional, boxed, tag = "6")]
    pub g: Option<Box<GraphProto>>,
    /// Value of the type `FLOATS`.
    #[prost(float, repeated, tag = "7")]
    pub floats: Vec<f32>,
    /// Value of the type `INTS`.
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    /// Value of the type `STRINGS`.
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub strings: Vec<Bytes>,
    /// Value of the type `TENSORS`.
    #[prost(message, repeated, tag = "10")]
    pub tensors: Vec<TensorProto>,
    /// Value of the type `GRAPHS`.
    #[prost(message, repeated, tag = "11")]
    pub graphs: Vec<GraphProto>,
    /// Value of the type `TYPE_PROTO`.
    #[prost(message, optional, boxed, tag = "14")]
    pub tp: Option<Box<TypeProto>>,
    /// Value of the type `TYPE_PROTOS`.
    #[prost(message, repeated, tag = "15")]
    pub type_protos: Vec<TypeProto>,
    /// Selects the value field that is used; see [`attribute_type`].
    #[prost(int32, tag = "20")]
    pub r#type: i32,
    /// In a function body: the function's attribute that gives the value; "" if the value is in this message.
    #[prost(string, tag = "21")]
    pub ref_attr_name: String,
    /// Value of the type `SPARSE_TENSOR`.
    #[prost(message, optional, boxed, tag = "22")]
    pub sparse_tensor: Option<Box<SparseTensorProto>>,
    /// Value of the type `SPARSE_TENSORS`.
    #[prost(message, repeated, tag = "23")]
    pub sparse_tensors: Vec<SparseTensorProto>,
}

/// The values of `AttributeProto.type`.
pub mod attribute_type {
    /// The value is in `f`.
    pub const FLOAT: i32 = 1;
    /// The value is in `i`.
    pub const INT: i32 = 2;
    /// The value is in `s`.
    pub const STRING: i32 = 3;
    /// The value is in `t`.
    pub const TENSOR: i32 = 4;
    /// The value is in `g`.
    pub const GRAPH: i32 = 5;
    /// The value is in `floats`.
    pub const FLOATS: i32 = 6;
    /// The value is in `ints`.
    pub const INTS: i32 = 7;
    /// The value is in `strings`.
    pub const STRINGS: i32 = 8;
    /// The value is in `tensors`.
    pub const TENSORS: i32 = 9;
    /// The value is in `graphs`.
    pub const GRAPHS: i32 = 10;
    /// The value is in `sparse_tensor`.
    pub const SPARSE_TENSOR: i32 = 11;
    /// The value is in `sparse_tensors`.
    pub const SPARSE_TENSORS: i32 = 12;
    /// The value is in `tp`.
    pub const TYPE_PROTO: i32 = 13;
    /// The value is in `type_protos`.
    pub const TYPE_PROTOS: i32 = 14;
}

/// A tensor whose other elements are 0, or empty strings.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SparseTensorProto {
    /// The stored elements, `[n]`; their name is that of the sparse tensor.
    #[prost(message, optional, tag = "1")]
    pub values: Option<TensorProto>,
    /// Positions of the stored elements, ascending: `[n]` row-major, or `[n, rank]` coordinates.
    #[prost(message, optional, tag = "2")]
    pub indices: Option<TensorProto>,
    /// Dimensions of the dense tensor.
    #[prost(int64, repeated, tag = "3")]
    pub dims: Vec<i64>,
}

/// A function, whose body replaces each call.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FunctionProto {
    /// Name that calls have as their operator.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Names of the formal inputs.
    #[prost(string, repeated, tag = "4")]
    pub input: Vec<String>,
    /// Names of the formal outputs.
    #[prost(string, repeated, tag = "5")]
    pub output: Vec<String>,
    /// Names of the attributes that have no default.
    #[prost(string, repeated, tag = "6")]
    pub attribute: Vec<String>,
    /// Nodes of the body.
    #[prost(message, repeated, tag = "7")]
    pub node: Vec<NodeProto>,
    /// Opset versions in force in the body.
    #[prost(message, repeated, tag = "9")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Domain that calls have.
    #[prost(string, tag = "10")]
    pub domain: String,
    /// Attributes with their defaults.
    #[prost(message, repeated, tag = "11")]
    pub attribute_proto: Vec<AttributeProto>,
    /// Distinguishes functions of the same domain and name.
    #[prost(string, tag = "13")]
    pub overload: String,
}

/// An input or output of a graph, with its type.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ValueInfoProto {
    /// Name of the value.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Declared type; `None` if the file declares none.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

/// Type of a value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TypeProto {
    /// The type; `None` if the file leaves it open.
    #[prost(oneof = "type_proto::Value", tags = "1, 4, 5, 7, 8, 9")]
    pub value: Option<type_proto::Value>,
}

/// Messages nested in `TypeProto`.
pub mod type_proto {
    use super::{TensorShapeProto, TypeProto};

    /// The alternatives of a type.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Value {
        /// A dense tensor.
        #[prost(message, tag = "1")]
        TensorType(Tensor),
        /// A list of values of one type.
        #[prost(message, tag = "4")]
        SequenceType(Box<Element>),
        /// A map from scalars to values of one type.
        #[prost(message, tag = "5")]
        MapType(Box<Map>),
        /// A type that only the operators of a domain know.
        #[prost(message, tag = "7")]
        OpaqueType(Opaque),
        /// A sparse tensor.
        #[prost(message, tag = "8")]
        SparseTensorType(Tensor),
        /// A value of one type, or none.
        #[prost(message, tag = "9")]
        OptionalType(Box<Element>),
    }

    /// `TypeProto.Tensor` and, with the same fields, `TypeProto.SparseTensor`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Tensor {
        /// Element type by its number in `TensorProto.DataType`; 0 if it is missing.
        #[prost(int32, tag = "1")]
        pub elem_type: i32,
        /// Dimensions; `None` if the rank is unknown.
        #[prost(message, optional, tag = "2")]
        pub shape: Option<TensorShapeProto>,
    }

    /// `TypeProto.Sequence` and, with the same field, `TypeProto.Optional`.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Element {
        /// Type of the elements, or of the optional value.
        #[prost(message, optional, boxed, tag = "1")]
        pub elem_type: Option<Box<TypeProto>>,
    }

    /// `TypeProto.Map`
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Map {
        /// Type of the keys by its number in `TensorProto.DataType`.
        #[prost(int32, tag = "1")]
        pub key_type: i32,
        /// Type of the values.
        #[prost(message, optional, boxed, tag = "2")]
        pub value_type: Option<Box<TypeProto>>,
    }

    /// `TypeProto.Opaque`
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Opaque {
        /// Domain that defines the type.
        #[prost(string, tag = "1")]
        pub domain: String,
        /// Name of the type within its domain.
        #[prost(string, tag = "2")]
        pub name: String,
    }
}

/// Dimensions of a tensor.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TensorShapeProto {
    /// Dimensions, outermost first.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

/// One dimension of a tensor.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Dimension {
    /// Size of the dimension; `None` if it is unknown.
    #[prost(oneof = "DimensionValue", tags = "1, 2")]
    pub value: Option<DimensionValue>,
}

/// Size of a dimension.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum DimensionValue {
    /// A number; 0 and -1 mean an unknown size.
    #[prost(int64, tag = "1")]
    DimValue(i64),
    /// A symbol, or an expression over symbols; "" and `?` mean an unknown size.
    #[prost(string, tag = "2")]
    DimParam(String),
}
