//! Compares, field by field, the same file as read by `onnx-protobuf` and by this crate
//!
//! `SARDONYX_MODELS` names a folder of additional models, `NAME/model.onnx`; without it `testdata/models` is read if
//! present.

use onnx_protobuf as theirs;
use protobuf::{EnumOrUnknown, Message, MessageField};
use sardonyx::onnx as ours;
use sardonyx::onnx::{Attribute, DimSpec, ValueType};
use sardonyx_base::{DType, Tensor, packed};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use theirs::attribute_proto::AttributeType;
use theirs::tensor_shape_proto::dimension;

#[test]
fn a_model_with_everything_reads_the_same() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("w.bin"), (0..40).collect::<Vec<u8>>()).unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, everything().write_to_bytes().unwrap()).unwrap();
    compare_file(&path);
}

#[test]
fn our_messages_lose_nothing() {
    let mut model = everything();
    model.functions.push(theirs::FunctionProto {
        name: "f".into(),
        domain: "local".into(),
        overload: "v".into(),
        input: vec!["a".into()],
        output: vec!["b".into()],
        attribute: vec!["x".into()],
        attribute_proto: model.graph.node[0].attribute.clone(),
        node: vec![model.graph.node[0].clone()],
        opset_import: model.opset_import.clone(),
        ..Default::default()
    });
    let bytes = model.write_to_bytes().unwrap();
    let decoded = <ours::proto::ModelProto as prost::Message>::decode(&bytes[..]).unwrap();
    let back = theirs::ModelProto::parse_from_bytes(&prost::Message::encode_to_vec(&decoded)).unwrap();
    assert_eq!(back, model);
}

#[test]
fn models_of_a_folder_read_the_same() {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/models");
    let folder = std::env::var_os("SARDONYX_MODELS").map(PathBuf::from);
    let Ok(entries) = std::fs::read_dir(folder.as_ref().unwrap_or(&default)) else {
        assert!(folder.is_none(), "SARDONYX_MODELS names no folder");
        return eprintln!("skipped: there is no folder of models");
    };
    let mut paths: Vec<PathBuf> =
        entries.map(|e| e.unwrap().path().join("model.onnx")).filter(|p| p.is_file()).collect();
    paths.sort();
    let n_compared = paths.iter().filter(|path| compare_file(path)).count();
    eprintln!("{n_compared} of {} models compared; the others lack their external data", paths.len());
}

/// Returns false if external data is missing, which the importer must report.
fn compare_file(path: &Path) -> bool {
    let expected = theirs::ModelProto::parse_from_bytes(&std::fs::read(path).unwrap()).unwrap();
    let model = match ours::read_model(path) {
        Ok(model) => model,
        Err(e) => {
            let tensors = expected.graph.initializer.iter();
            let mut missing = tensors.flat_map(|t| location(t)).filter(|file| !path.with_file_name(file).exists());
            assert!(e.code == "E0105" && missing.next().is_some(), "{e}");
            return false;
        }
    };
    assert_eq!(model.ir_version, expected.ir_version);
    let domain = |name: &str| if name == "ai.onnx" { String::new() } else { name.to_string() };
    let opsets: BTreeMap<String, i64> = expected.opset_import.iter().map(|o| (domain(&o.domain), o.version)).collect();
    assert_eq!(model.opsets, opsets);
    assert!(expected.functions.is_empty(), "compared by the messages, not by the inlined graph");
    let case = Case { folder: path.parent().unwrap(), opsets, external: RefCell::default() };
    case.graph(&expected.graph, &model.graph, &path.display().to_string());
    true
}

fn location(tensor: &theirs::TensorProto) -> Option<&str> {
    let external = tensor.data_location == EnumOrUnknown::new(theirs::tensor_proto::DataLocation::EXTERNAL);
    let entry = tensor.external_data.iter().find(|e| e.key == "location");
    entry.filter(|_| external).map(|e| e.value.as_str())
}

struct Case<'a> {
    folder: &'a Path,
    opsets: BTreeMap<String, i64>,
    external: RefCell<HashMap<String, Vec<u8>>>,
}

impl Case<'_> {
    fn graph(&self, expected: &theirs::GraphProto, graph: &ours::Graph, at: &str) {
        assert_eq!(graph.name, expected.name, "{at}");
        let initialized: HashSet<&str> = expected.initializer.iter().map(|t| t.name.as_str()).collect();
        let inputs: Vec<_> = expected.input.iter().filter(|v| !initialized.contains(v.name.as_str())).collect();
        for (expected, values) in [(inputs, &graph.inputs), (expected.output.iter().collect(), &graph.outputs)] {
            assert_eq!(values.len(), expected.len(), "{at}");
            for (e, v) in expected.iter().zip(values) {
                assert_eq!((&v.name, &v.ty), (&e.name, &value_type(&e.type_)), "{at}");
            }
        }
        let is_constant =
            |n: &&theirs::NodeProto| n.op_type == "Constant" && ["", "ai.onnx"].contains(&n.domain.as_str());
        let n_given = expected.initializer.len() + expected.sparse_initializer.len();
        for (e, i) in expected.initializer.iter().zip(&graph.initializers) {
            assert_eq!(i.name, e.name, "{at}");
            self.tensor(e, &i.data, &format!("{at}, {}", e.name));
        }
        for (e, i) in expected.sparse_initializer.iter().zip(&graph.initializers[expected.initializer.len()..]) {
            assert_eq!(i.name, e.values.name, "{at}");
            self.sparse(e, &i.data, &format!("{at}, {}", i.name));
        }
        let constants: Vec<_> = expected.node.iter().filter(is_constant).collect();
        assert_eq!(graph.initializers.len(), n_given + constants.len(), "{at}");
        for (e, i) in constants.iter().zip(&graph.initializers[n_given..]) {
            assert_eq!(i.name, e.output[0], "{at}");
            self.constant(&e.attribute[0], &i.data, &format!("{at}, {}", i.name));
        }
        self.nodes(expected.node.iter().filter(|n| !is_constant(n)), graph, at);
    }

    /// Matches nodes by their outputs, since the importer sorts nodes.
    fn nodes<'e>(&self, expected: impl Iterator<Item = &'e theirs::NodeProto>, graph: &ours::Graph, at: &str) {
        let outputs = |n: &ours::Node| n.outputs.iter().map(|o| o.clone().unwrap_or_default()).collect::<Vec<_>>();
        let mut found: HashMap<Vec<String>, &ours::Node> = graph.nodes.iter().map(|n| (outputs(n), n)).collect();
        for e in expected {
            let at = format!("{at}, {} {}", e.op_type, e.name);
            let node = found.remove(&e.output).unwrap_or_else(|| panic!("{at} is missing"));
            let inputs: Vec<String> = node.inputs.iter().map(|i| i.clone().unwrap_or_default()).collect();
            let domain = if e.domain == "ai.onnx" { "" } else { &e.domain };
            assert_eq!((&node.op_type, node.domain.as_str(), &inputs), (&e.op_type, domain, &e.input), "{at}");
            assert_eq!(node.opset, self.opsets[domain], "{at}");
            assert!(node.name.starts_with(&e.name), "{at}: {}", node.name);
            assert_eq!(node.attributes.len(), e.attribute.len(), "{at}");
            e.attribute.iter().for_each(|a| self.attribute(a, &node.attributes[&a.name], &format!("{at}, {}", a.name)));
        }
        assert!(found.is_empty(), "{at}");
    }

    fn attribute(&self, e: &theirs::AttributeProto, attribute: &Attribute, at: &str) {
        use AttributeType::*;
        match (e.type_.unwrap(), attribute) {
            (FLOAT, Attribute::Float(v)) => assert_eq!(v.to_bits(), e.f.to_bits(), "{at}"),
            (INT, Attribute::Int(v)) => assert_eq!(*v, e.i, "{at}"),
            (STRING, Attribute::String(v)) => assert_eq!(*v, e.s, "{at}"),
            (TENSOR, Attribute::Tensor(v)) => self.tensor(&e.t, v, at),
            (GRAPH, Attribute::Graph(v)) => self.graph(&e.g, v, at),
            (SPARSE_TENSOR, Attribute::SparseTensor(v)) => self.sparse(&e.sparse_tensor, v, at),
            (TYPE_PROTO, Attribute::Type(v)) => assert_eq!(Some(v.clone()), value_type(&e.tp), "{at}"),
            (FLOATS, Attribute::Floats(v)) => assert_eq!(*v, e.floats, "{at}"),
            (INTS, Attribute::Ints(v)) => assert_eq!(*v, e.ints, "{at}"),
            (STRINGS, Attribute::Strings(v)) => assert_eq!(*v, e.strings, "{at}"),
            (TENSORS, Attribute::Tensors(v)) => {
                assert_eq!(v.len(), e.tensors.len(), "{at}");
                e.tensors.iter().zip(v).for_each(|(e, v)| self.tensor(e, v, at));
            }
            (GRAPHS, Attribute::Graphs(v)) => {
                assert_eq!(v.len(), e.graphs.len(), "{at}");
                e.graphs.iter().zip(v).for_each(|(e, v)| self.graph(e, v, at));
            }
            (SPARSE_TENSORS, Attribute::SparseTensors(v)) => {
                assert_eq!(v.len(), e.sparse_tensors.len(), "{at}");
                e.sparse_tensors.iter().zip(v).for_each(|(e, v)| self.sparse(e, v, at));
            }
            (TYPE_PROTOS, Attribute::Types(v)) => {
                let expected: Vec<_> =
                    e.type_protos.iter().map(|t| value_type(&MessageField::some(t.clone())).unwrap()).collect();
                assert_eq!(*v, expected, "{at}");
            }
            (ty, other) => panic!("{at}: {ty:?} is read as {}", other.kind()),
        }
    }

    fn constant(&self, e: &theirs::AttributeProto, data: &Tensor, at: &str) {
        match e.type_.unwrap() {
            AttributeType::TENSOR => self.tensor(&e.t, data, at),
            AttributeType::INT => assert_eq!(data.to_vec::<i64>().unwrap(), [e.i], "{at}"),
            AttributeType::INTS => assert_eq!(data.to_vec::<i64>().unwrap(), e.ints, "{at}"),
            AttributeType::FLOAT => assert_eq!(data.to_vec::<f32>().unwrap(), [e.f], "{at}"),
            AttributeType::FLOATS => assert_eq!(data.to_vec::<f32>().unwrap(), e.floats, "{at}"),
            other => panic!("{at}: a constant of {other:?}"),
        }
    }

    fn tensor(&self, e: &theirs::TensorProto, data: &Tensor, at: &str) {
        let dims: Vec<i64> = data.dims().iter().map(|&d| d as i64).collect();
        assert_eq!((data.dtype().onnx_code(), &dims), (e.data_type, &e.dims), "{at}");
        match data.strings() {
            Some(strings) => assert_eq!(strings, e.string_data, "{at}"),
            None => {
                let packed = packed::pack(data.dtype(), data.bytes());
                assert!(packed[..] == self.payload(e), "{at}: the bytes differ")
            }
        }
    }

    fn payload(&self, e: &theirs::TensorProto) -> Vec<u8> {
        if let Some(location) = location(e) {
            let number =
                |key: &str| e.external_data.iter().find(|e| e.key == key).map(|e| e.value.parse::<usize>().unwrap());
            let offset = number("offset").unwrap_or(0);
            let mut external = self.external.borrow_mut();
            let read = || std::fs::read(self.folder.join(location)).unwrap();
            let bytes = external.entry(location.to_string()).or_insert_with(read);
            return bytes[offset..offset + number("length").unwrap_or(bytes.len() - offset)].to_vec();
        }
        if !e.raw_data.is_empty() {
            return e.raw_data.clone();
        }
        match e.data_type {
            1 | 14 => e.float_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
            11 | 15 => e.double_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
            7 => e.int64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
            13 => e.uint64_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
            12 => e.uint64_data.iter().flat_map(|v| (*v as u32).to_le_bytes()).collect(),
            6 => e.int32_data.iter().flat_map(|v| v.to_le_bytes()).collect(),
            4 | 5 | 10 | 16 => e.int32_data.iter().flat_map(|v| (*v as u16).to_le_bytes()).collect(),
            _ => e.int32_data.iter().map(|v| *v as u8).collect(),
        }
    }

    fn sparse(&self, e: &theirs::SparseTensorProto, data: &Tensor, at: &str) {
        let width = e.values.raw_data.len() / e.values.dims[0] as usize;
        let mut expected = vec![0; e.dims.iter().product::<i64>() as usize * width];
        for (i, &index) in e.indices.int64_data.iter().enumerate() {
            let value = &e.values.raw_data[i * width..(i + 1) * width];
            expected[index as usize * width..(index as usize + 1) * width].copy_from_slice(value);
        }
        assert!(data.bytes()[..] == expected, "{at}: the bytes differ");
    }
}

fn value_type(e: &MessageField<theirs::TypeProto>) -> Option<ValueType> {
    use theirs::type_proto::Value::*;
    let dtype = |code| DType::from_onnx(code).unwrap();
    Some(match e.as_ref()?.value.as_ref()? {
        TensorType(t) => ValueType::Tensor { dtype: dtype(t.elem_type), dims: dims(&t.shape) },
        SparseTensorType(t) => ValueType::SparseTensor { dtype: dtype(t.elem_type), dims: dims(&t.shape) },
        SequenceType(s) => ValueType::Sequence(Box::new(value_type(&s.elem_type)?)),
        OptionalType(o) => ValueType::Optional(Box::new(value_type(&o.elem_type)?)),
        MapType(m) => ValueType::Map { key: dtype(m.key_type), value: Box::new(value_type(&m.value_type)?) },
        other => panic!("a type that onnx-protobuf 0.2.3 does not know: {other:?}"),
    })
}

fn dims(shape: &MessageField<theirs::TensorShapeProto>) -> Option<Vec<DimSpec>> {
    let dim = |d: &theirs::tensor_shape_proto::Dimension| match &d.value {
        Some(dimension::Value::DimValue(n)) if *n > 0 => DimSpec::Fixed(*n),
        Some(dimension::Value::DimParam(name)) if !["", "?"].contains(&name.as_str()) => DimSpec::Named(name.clone()),
        _ => DimSpec::Unknown,
    };
    Some(shape.as_ref()?.dim.iter().map(dim).collect())
}

/// A model with every attribute type, every element type, subgraphs, sparse and external data.
fn everything() -> theirs::ModelProto {
    let mut initializer: Vec<_> = DType::all().map(typed_tensor).collect();
    let fixed = DType::all().filter(|&d| d != DType::String);
    initializer.extend(fixed.map(|dtype| theirs::TensorProto {
        name: format!("raw_{dtype}"),
        dims: vec![5],
        raw_data: vec![1; packed::packed_bytes_for(dtype, 5).unwrap()],
        data_type: dtype.onnx_code(),
        ..Default::default()
    }));
    let entry = |key: &str, value: &str| theirs::StringStringEntryProto {
        key: key.into(),
        value: value.into(),
        ..Default::default()
    };
    initializer.push(theirs::TensorProto {
        name: "external".into(),
        dims: vec![3],
        data_type: 1,
        data_location: EnumOrUnknown::new(theirs::tensor_proto::DataLocation::EXTERNAL),
        external_data: vec![entry("location", "w.bin"), entry("offset", "5"), entry("length", "12")],
        ..Default::default()
    });
    let graph = theirs::GraphProto {
        name: "main".into(),
        input: vec![value("x", tensor_type(1))],
        output: vec![value("y", tensor_type(1)), value("late", all_types())],
        initializer,
        sparse_initializer: vec![sparse("sparse")],
        node: vec![
            node("Everything", &["x", "", "raw_f32"], &["y", ""], attributes()),
            node("User", &["mid", "k"], &["late"], vec![]),
            node("Op", &["x"], &["mid"], vec![]),
            node("Constant", &[], &["k"], vec![attribute("value_ints", AttributeType::INTS, |a| a.ints = vec![7, 8])]),
        ],
        ..Default::default()
    };
    let opset =
        |domain: &str, version| theirs::OperatorSetIdProto { domain: domain.into(), version, ..Default::default() };
    theirs::ModelProto {
        ir_version: 10,
        producer_name: "p".into(),
        producer_version: "1".into(),
        opset_import: vec![opset("", 21), opset("com.microsoft", 1)],
        graph: MessageField::some(graph),
        ..Default::default()
    }
}

fn typed_tensor(dtype: DType) -> theirs::TensorProto {
    use DType::*;
    let mut t = theirs::TensorProto { name: format!("typed_{dtype}"), dims: vec![2, 2], ..Default::default() };
    t.data_type = dtype.onnx_code();
    match dtype {
        F32 => t.float_data = vec![1.0, -2.0, 0.5, f32::MAX],
        C64 => t.float_data = (0..8).map(|v| v as f32).collect(),
        F64 => t.double_data = vec![1.0, -2.0, 0.5, f64::MAX],
        C128 => t.double_data = (0..8).map(|v| v as f64).collect(),
        I64 => t.int64_data = vec![i64::MIN, -1, 0, i64::MAX],
        U64 => t.uint64_data = vec![u64::MAX, 1, 2, 3],
        U32 => t.uint64_data = vec![u32::MAX as u64, 1, 2, 3],
        I32 => t.int32_data = vec![i32::MIN, -1, 0, i32::MAX],
        I8 | I16 => t.int32_data = vec![-128, -1, 0, 127],
        U8 | U16 | F16 | BF16 | F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | F8E8M0 => {
            t.int32_data = vec![255, 1, 2, 3]
        }
        Bool => t.int32_data = vec![0, 1, 1, 0],
        U4 | I4 | F4E2M1 => t.int32_data = vec![0x21, 0xf3],
        U2 | I2 => t.int32_data = vec![0b11100100],
        String => t.string_data = ["", "a", "öß", "d"].map(|s| s.as_bytes().to_vec()).to_vec(),
        Value => unreachable!("no type of ONNX"),
    }
    t
}

fn attribute(name: &str, ty: AttributeType, set: impl Fn(&mut theirs::AttributeProto)) -> theirs::AttributeProto {
    let mut a = theirs::AttributeProto { name: name.into(), type_: EnumOrUnknown::new(ty), ..Default::default() };
    set(&mut a);
    a
}

fn attributes() -> Vec<theirs::AttributeProto> {
    use AttributeType::*;
    let tensor = || typed_tensor(DType::F16);
    let branch = |name: &str| theirs::GraphProto {
        name: name.into(),
        output: vec![value(name, MessageField::none())],
        initializer: vec![theirs::TensorProto { name: format!("{name}_w"), ..typed_tensor(DType::U4) }],
        node: vec![node("Add", &["x", &format!("{name}_w")], &[name], vec![attribute("i", INT, |a| a.i = i64::MIN)])],
        ..Default::default()
    };
    vec![
        attribute("float", FLOAT, |a| a.f = -0.0),
        attribute("int", INT, |a| a.i = -1),
        attribute("string", STRING, |a| a.s = vec![0xff, 0]),
        attribute("tensor", TENSOR, |a| a.t = MessageField::some(tensor())),
        attribute("graph", GRAPH, |a| a.g = MessageField::some(branch("g"))),
        attribute("sparse", SPARSE_TENSOR, |a| a.sparse_tensor = MessageField::some(sparse(""))),
        attribute("type", TYPE_PROTO, |a| a.tp = all_types()),
        attribute("floats", FLOATS, |a| a.floats = vec![f32::INFINITY, 1e-40]),
        attribute("ints", INTS, |a| a.ints = vec![i64::MAX, -7, 0]),
        attribute("strings", STRINGS, |a| a.strings = vec![vec![], vec![0, 255]]),
        attribute("tensors", TENSORS, |a| a.tensors = vec![tensor(), typed_tensor(DType::String)]),
        attribute("graphs", GRAPHS, |a| a.graphs = vec![branch("h"), branch("i")]),
        attribute("sparses", SPARSE_TENSORS, |a| a.sparse_tensors = vec![sparse(""), sparse("")]),
        attribute("types", TYPE_PROTOS, |a| a.type_protos = vec![tensor_type(7).unwrap(), all_types().unwrap()]),
    ]
}

fn node(op_type: &str, input: &[&str], output: &[&str], attribute: Vec<theirs::AttributeProto>) -> theirs::NodeProto {
    let names = |names: &[&str]| names.iter().map(|n| n.to_string()).collect();
    theirs::NodeProto {
        name: format!("the {op_type}"),
        op_type: op_type.into(),
        domain: if op_type == "Everything" { "com.microsoft".into() } else { String::new() },
        input: names(input),
        output: names(output),
        attribute,
        ..Default::default()
    }
}

fn sparse(name: &str) -> theirs::SparseTensorProto {
    let (f32s, i64s) = (vec![0, 0, 128, 63, 1, 2, 3, 4], vec![1, 5]);
    let values =
        theirs::TensorProto { name: name.into(), dims: vec![2], data_type: 1, raw_data: f32s, ..Default::default() };
    let indices = theirs::TensorProto { dims: vec![2], data_type: 7, int64_data: i64s, ..Default::default() };
    let (values, indices) = (MessageField::some(values), MessageField::some(indices));
    theirs::SparseTensorProto { values, indices, dims: vec![2, 3], ..Default::default() }
}

fn value(name: &str, ty: MessageField<theirs::TypeProto>) -> theirs::ValueInfoProto {
    theirs::ValueInfoProto { name: name.into(), type_: ty, ..Default::default() }
}

fn typed(value: theirs::type_proto::Value) -> MessageField<theirs::TypeProto> {
    MessageField::some(theirs::TypeProto { value: Some(value), ..Default::default() })
}

fn tensor_type(elem_type: i32) -> MessageField<theirs::TypeProto> {
    use dimension::Value::*;
    let dim = |value| theirs::tensor_shape_proto::Dimension { value, ..Default::default() };
    let values = [
        Some(DimValue(4)),
        Some(DimParam("batch".into())),
        Some(DimParam("s15 + s70".into())),
        Some(DimValue(-1)),
        None,
    ];
    let shape = theirs::TensorShapeProto { dim: values.map(dim).to_vec(), ..Default::default() };
    let shape = MessageField::some(shape);
    typed(theirs::type_proto::Value::TensorType(theirs::type_proto::Tensor { elem_type, shape, ..Default::default() }))
}

/// sequence(optional(map(string, sparse tensor)))
fn all_types() -> MessageField<theirs::TypeProto> {
    use theirs::type_proto::*;
    let sparse = typed(Value::SparseTensorType(SparseTensor { elem_type: 11, ..Default::default() }));
    let map = typed(Value::MapType(Map { key_type: 8, value_type: sparse, ..Default::default() }));
    let optional = typed(Value::OptionalType(Optional { elem_type: map, ..Default::default() }));
    typed(Value::SequenceType(Sequence { elem_type: optional, ..Default::default() }))
}
