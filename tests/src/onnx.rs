//! Net::new().input("x", F32, "batch 4").node("relu", "Relu", "x", "y").output("y")  =>  the bytes of an ONNX file

use prost::Message;
use sardonyx::onnx::proto::*;
use sardonyx_base::DType;

/// A model under construction, with IR version 8 and opset 17.
#[derive(Clone)]
pub struct Net {
    /// The model built so far. Tests change it directly where no method of `Net` does.
    pub model: ModelProto,
}

/// Splits a list of names; a lone underscore stands for an absent value.
fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(|w| if w == "_" { String::new() } else { w.to_string() }).collect()
}

/// Describes a value with dimensions such as `"batch 4 ?"`: a symbol, a number, an unknown dimension.
fn value_info(name: &str, dtype: DType, dims: &str) -> ValueInfoProto {
    let dim = |word: &str| Dimension {
        value: match word.parse() {
            Ok(n) => Some(DimensionValue::DimValue(n)),
            Err(_) if word == "?" => None,
            Err(_) => Some(DimensionValue::DimParam(word.into())),
        },
    };
    let shape = Some(TensorShapeProto { dim: dims.split_whitespace().map(dim).collect() });
    let tensor = type_proto::Tensor { elem_type: dtype.onnx_code(), shape };
    let r#type = Some(TypeProto { value: Some(type_proto::Value::TensorType(tensor)) });
    ValueInfoProto { name: name.into(), r#type }
}

impl Default for Net {
    fn default() -> Net {
        let graph = GraphProto { name: "g".into(), ..GraphProto::default() };
        let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 17 }];
        Net { model: ModelProto { ir_version: 8, opset_import, graph: Some(graph), ..ModelProto::default() } }
    }
}

impl Net {
    /// Returns a model without inputs, nodes and outputs.
    pub fn new() -> Net {
        Net::default()
    }

    /// Returns the graph of the model, to be changed.
    pub fn graph(&mut self) -> &mut GraphProto {
        self.model.graph.get_or_insert_default()
    }

    /// Adds an input with dimensions such as `"batch 4 ?"`: a symbol, a number, an unknown dimension.
    pub fn input(mut self, name: &str, dtype: DType, dims: &str) -> Net {
        self.graph().input.push(value_info(name, dtype, dims));
        self
    }

    /// Adds an output whose type and shape are inferred.
    pub fn output(mut self, name: &str) -> Net {
        self.graph().output.push(ValueInfoProto { name: name.into(), r#type: None });
        self
    }

    /// Adds a node. `inputs` and `outputs` are names separated by spaces, `_` for an absent one.
    pub fn node(mut self, name: &str, op_type: &str, inputs: &str, outputs: &str) -> Net {
        let (input, output) = (words(inputs), words(outputs));
        let node = NodeProto { name: name.into(), op_type: op_type.into(), input, output, ..NodeProto::default() };
        self.graph().node.push(node);
        self
    }

    /// Adds an attribute to the last node.
    pub fn int(mut self, name: &str, i: i64) -> Net {
        let attribute = AttributeProto { name: name.into(), i, r#type: attribute_type::INT, ..Default::default() };
        self.graph().node.last_mut().expect("a node comes first").attribute.push(attribute);
        self
    }

    /// Adds an attribute that is a list of integers to the last node.
    pub fn ints(mut self, name: &str, ints: &[i64]) -> Net {
        let r#type = attribute_type::INTS;
        let attribute = AttributeProto { name: name.into(), ints: ints.to_vec(), r#type, ..Default::default() };
        self.graph().node.last_mut().expect("a node comes first").attribute.push(attribute);
        self
    }

    /// Adds an initializer.
    pub fn tensor(mut self, tensor: TensorProto) -> Net {
        self.graph().initializer.push(tensor);
        self
    }

    /// Adds a one-dimensional initializer of type i64.
    pub fn i64s(self, name: &str, values: &[i64]) -> Net {
        let dims = vec![values.len() as i64];
        self.tensor(TensorProto {
            name: name.into(),
            data_type: DType::I64.onnx_code(),
            dims,
            int64_data: values.to_vec(),
            ..TensorProto::default()
        })
    }

    /// Adds a tensor of small numbers with a period of 17.
    pub fn f32s(self, name: &str, dims: &[i64]) -> Net {
        let n = dims.iter().product::<i64>();
        self.tensor(TensorProto {
            name: name.into(),
            data_type: DType::F32.onnx_code(),
            dims: dims.to_vec(),
            float_data: (0..n).map(|i| (i % 17) as f32 * 0.125 - 1.0).collect(),
            ..TensorProto::default()
        })
    }

    /// Adds an f32 tensor whose bytes are in another file.
    pub fn external(self, name: &str, dims: &[i64], location: &str, offset: u64) -> Net {
        let entry = |key: &str, value: String| StringStringEntryProto { key: key.into(), value };
        self.tensor(TensorProto {
            name: name.into(),
            data_type: DType::F32.onnx_code(),
            dims: dims.to_vec(),
            external_data: vec![entry("location", location.into()), entry("offset", offset.to_string())],
            data_location: 1,
            ..TensorProto::default()
        })
    }

    /// Returns the model encoded as an ONNX file.
    pub fn bytes(&self) -> Vec<u8> {
        self.model.encode_to_vec()
    }
}

/// A model with every kind of kernel: two inputs that share `batch`, a matrix product, a softmax, a reduction and a
/// gather.
pub fn small() -> Net {
    Net::new()
        .input("x", DType::F32, "batch 8")
        .input("ids", DType::I64, "batch")
        .f32s("w", &[8, 24])
        .f32s("table", &[10, 24])
        .node("/mm", "MatMul", "x w", "a")
        .node("/lookup", "Gather", "table ids", "b")
        .node("/add", "Add", "a b", "c")
        .node("/gelu", "Tanh", "c", "d")
        .node("/softmax", "Softmax", "d", "y")
        .output("y")
}

/// One layer of a text encoder: lookup, normalization, two heads of attention, a residual sum and an activation.
pub fn encoder() -> Net {
    let head = |net: Net, name: &str| {
        let (w, a, r, t) = (format!("w{name}"), format!("a{name}"), format!("r{name}"), format!("t{name}"));
        net.f32s(&w, &[16, 16])
            .node(&format!("/{name}/mm"), "MatMul", &format!("h {w}"), &a)
            .node(&format!("/{name}/split"), "Reshape", &format!("{a} heads"), &r)
            .node(&format!("/{name}/swap"), "Transpose", &r, &t)
            .ints("perm", if name == "k" { &[0, 2, 3, 1] } else { &[0, 2, 1, 3] })
    };
    let net = Net::new()
        .input("ids", DType::I64, "batch seq")
        .input("mask", DType::I64, "batch seq")
        .f32s("table", &[30, 16])
        .f32s("scale", &[16])
        .f32s("bias", &[16])
        .i64s("heads", &[0, 0, 2, 8])
        .i64s("flat", &[0, 0, 16])
        .i64s("axes", &[1, 2])
        .node("/lookup", "Gather", "table ids", "e")
        .node("/norm", "LayerNormalization", "e scale bias", "h");
    let net = head(head(head(net, "q"), "k"), "v");
    net.node("/scores", "MatMul", "tq tk", "s")
        .node("/cast", "Cast", "mask", "fm")
        .int("to", 1)
        .node("/wide", "Unsqueeze", "fm axes", "wm")
        .node("/masked", "Add", "s wm", "sm")
        .node("/softmax", "Softmax", "sm", "p")
        .int("axis", -1)
        .node("/mix", "MatMul", "p tv", "o")
        .node("/swap", "Transpose", "o", "os")
        .ints("perm", &[0, 2, 1, 3])
        .node("/join", "Reshape", "os flat", "of")
        .node("/add", "Add", "of e", "sum")
        .node("/gelu", "Erf", "sum", "y")
        .output("y")
}
