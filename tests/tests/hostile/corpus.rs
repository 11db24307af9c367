//! the valid models from which mutants are made: small ones of every kind, and whole exported ones

use prost::Message;
use sardonyx::onnx::proto::*;
use sardonyx_base::DType;
use sardonyx_tests::damage::Random;
use sardonyx_tests::onnx::{Net, encoder, small};
use sardonyx_tests::prepared::prepared;
use sardonyx_tests::schemas::{GRAPH, NODE, TYPE};
use sardonyx_tests::wire::{Tree, Value, field};
use tempfile::TempDir;

/// A valid model in a folder of its own, with its external data.
pub struct Base {
    pub model: Vec<u8>,
    pub folder: TempDir,
}

/// Strings that have a meaning for the reader of models.
pub static WORDS: &[&str] = &[
    "",
    "Add",
    "MatMul",
    "Reshape",
    "Concat",
    "If",
    "Loop",
    "Constant",
    "ConstantOfShape",
    "Expand",
    "Attention",
    "com.microsoft",
    "ai.onnx.ml",
    "axis",
    "perm",
    "value",
    "../w.bin",
    "/etc/passwd",
    ".",
    "w.bin",
    "-1",
    "18446744073709551615",
    "4611686018427387904",
    "0x40",
    "batch",
    "?",
    "x",
    "y",
    "w\u{e9}\u{4e2d}",
];

/// Returns the index of a random one of `n` bases. Only a ninth of the mutants are made from exported models, because
/// these take most of the time.
pub fn choose(n: usize, random: &mut Random) -> usize {
    let generated = n - WHOLE.len();
    match random.below(9) {
        0 => generated + random.below(WHOLE.len()),
        _ => random.below(generated),
    }
}

/// Names of the exported models.
static WHOLE: &[&str] =
    &["skel_gpt2_tiny_kv_ts17", "skel_llama_tiny_kv_dyn23", "light_squeezenet_seeded", "sk_diabetes_gbr"];

pub fn bases() -> Vec<Base> {
    let mut all: Vec<Base> = generated().into_iter().map(|net| base(net.bytes())).collect();
    let external = &all[0].folder;
    std::fs::write(external.path().join("w.bin"), vec![7; 4096]).expect("a temporary folder takes weights");
    for name in WHOLE {
        let from = prepared(name);
        let one = base(std::fs::read(from.join("model.onnx")).expect("a prepared model can be read"));
        if from.join("weights.bin").is_file() {
            std::fs::copy(from.join("weights.bin"), one.folder.path().join("weights.bin")).expect("room for weights");
        }
        all.push(one);
    }
    all
}

fn base(model: Vec<u8>) -> Base {
    Base { model, folder: tempfile::tempdir().expect("a temporary folder") }
}

/// Returns the small models; the first one has external data.
pub fn generated() -> Vec<Net> {
    vec![
        external(),
        small(),
        convolution(),
        shapes(),
        encoder(),
        calls(),
        control(),
        sparse(),
        movement(),
        decoder(),
        heads(),
    ]
}

fn external() -> Net {
    Net::new()
        .input("x", DType::F32, "batch 8")
        .external("w", &[8, 16], "w.bin", 64)
        .f32s("b", &[16])
        .node("/mm", "MatMul", "x w", "a")
        .node("/add", "Add", "a b", "c")
        .node("/relu", "Relu", "c", "y")
        .output("y")
}

/// An attention head over a cache of keys. The compiler gives such a model three entry points and a state.
fn decoder() -> Net {
    Net::new()
        .input("x", DType::F32, "batch seq 8")
        .input("past", DType::F32, "batch past 8")
        .f32s("w", &[8, 8])
        .node("/k", "MatMul", "x w", "k")
        .node("/keys", "Concat", "past k", "keys")
        .int("axis", 1)
        .node("/turned", "Transpose", "keys", "kt")
        .ints("perm", &[0, 2, 1])
        .node("/scores", "MatMul", "x kt", "s")
        .node("/softmax", "Softmax", "s", "p")
        .int("axis", -1)
        .node("/mix", "MatMul", "p keys", "y")
        .output("y")
        .output("keys")
}

/// Two attention heads, large enough to be placed on two ranks, with a cache.
pub fn heads() -> Net {
    let heads = |net: Net, of: &str, weight: &str, to: &str| {
        let [product, four] = ["m", "h"].map(|stem| format!("{stem}{to}"));
        let net = net.node(&format!("/{product}"), "MatMul", &format!("{of} {weight}"), &product);
        let net = net.node(&format!("/{four}"), "Reshape", &format!("{product} shape"), &four);
        net.node(&format!("/{to}"), "Transpose", &four, to).ints("perm", &[0, 2, 1, 3])
    };
    let net = Net::new()
        .input("x", DType::F32, "batch seq 128")
        .input("past", DType::F32, "batch 2 past 64")
        .i64s("shape", &[0, 0, 2, 64])
        .i64s("flat", &[0, 0, 128])
        .f32s("w", &[128, 128])
        .f32s("u", &[128, 128])
        .f32s("v", &[128, 128]);
    heads(heads(net, "x", "w", "k"), "x", "u", "q")
        .node("/keys", "Concat", "past k", "keys")
        .int("axis", 2)
        .node("/turned", "Transpose", "keys", "kt")
        .ints("perm", &[0, 1, 3, 2])
        .node("/scores", "MatMul", "q kt", "s")
        .node("/softmax", "Softmax", "s", "p")
        .int("axis", -1)
        .node("/mix", "MatMul", "p keys", "o")
        .node("/back", "Transpose", "o", "ot")
        .ints("perm", &[0, 2, 1, 3])
        .node("/flat", "Reshape", "ot flat", "of")
        .node("/out", "MatMul", "of v", "y")
        .output("y")
        .output("keys")
}

fn convolution() -> Net {
    Net::new()
        .input("x", DType::F32, "n 3 9 9")
        .f32s("w", &[4, 3, 3, 3])
        .f32s("b", &[4])
        .f32s("g", &[5, 196])
        .node("/conv", "Conv", "x w b", "a")
        .ints("pads", &[0, 0, 0, 0])
        .ints("strides", &[1, 1])
        .ints("kernel_shape", &[3, 3])
        .node("/relu", "LeakyRelu", "a", "c")
        .node("/flat", "Flatten", "c", "d")
        .int("axis", 1)
        .node("/gemm", "Gemm", "d g", "y")
        .int("transB", 1)
        .output("y")
}

fn shapes() -> Net {
    Net::new()
        .input("x", DType::F32, "batch seq 12")
        .i64s("zero", &[0])
        .i64s("one", &[1])
        .i64s("three", &[3])
        .i64s("four", &[4])
        .i64s("end", &[9223372036854775807])
        .node("/shape", "Shape", "x", "s")
        .node("/batch", "Slice", "s zero one zero", "b")
        .node("/seq", "Slice", "s one three zero", "rest")
        .node("/target", "Concat", "b rest", "t0")
        .int("axis", 0)
        .node("/first", "Gather", "s zero", "n")
        .int("axis", 0)
        .node("/second", "Gather", "s one", "m")
        .int("axis", 0)
        .node("/split", "Concat", "n m three four", "t")
        .int("axis", 0)
        .node("/reshape", "Reshape", "x t", "r")
        .node("/swap", "Transpose", "r", "q")
        .ints("perm", &[0, 2, 1, 3])
        .node("/cut", "Slice", "q zero end three one", "c")
        .node("/sum", "ReduceSum", "c three", "u")
        .int("keepdims", 1)
        .node("/back", "Expand", "u one", "v")
        .node("/same", "Reshape", "x t0", "w")
        .node("/mean", "ReduceMean", "w", "k")
        .ints("axes", &[2])
        .node("/fill", "ConstantOfShape", "t0", "z")
        .node("/where", "Equal", "z w", "e")
        .node("/pick", "Where", "e w z", "p")
        .output("v")
        .output("k")
        .output("p")
}

fn calls() -> Net {
    let node = |op: &str, input: &str, output: &str| NodeProto {
        op_type: op.into(),
        input: input.split_whitespace().map(str::to_string).collect(),
        output: vec![output.into()],
        ..Default::default()
    };
    let function = |name: &str, input: &str, node: Vec<NodeProto>| FunctionProto {
        name: name.into(),
        domain: "local".into(),
        input: input.split_whitespace().map(str::to_string).collect(),
        output: vec!["out".into()],
        attribute: vec!["k".into()],
        opset_import: ["", "local"]
            .map(|d| OperatorSetIdProto { domain: d.into(), version: if d.is_empty() { 17 } else { 1 } })
            .to_vec(),
        node,
        ..Default::default()
    };
    let mut soft = node("Softmax", "t", "out");
    soft.attribute.push(AttributeProto {
        name: "axis".into(),
        ref_attr_name: "k".into(),
        r#type: attribute_type::INT,
        ..Default::default()
    });
    let mut inner = node("g", "a b", "out");
    inner.domain = "local".into();
    inner.attribute.push(AttributeProto {
        name: "k".into(),
        ref_attr_name: "k".into(),
        r#type: attribute_type::INT,
        ..Default::default()
    });
    let mut net = Net::new().input("x", DType::F32, "2 3").node("/f", "f", "x x", "t").int("k", 1);
    let graph = net.graph();
    graph.node[0].domain = "local".into();
    let net = net.node("/relu", "Relu", "t", "y").output("y");
    let mut net = net;
    net.model.functions =
        vec![function("g", "a b", vec![node("Add", "a b", "t"), soft]), function("f", "a b", vec![inner])];
    net.model.opset_import.push(OperatorSetIdProto { domain: "local".into(), version: 1 });
    net
}

fn control() -> Net {
    let branch = |op: &str, out: &str| GraphProto {
        name: out.into(),
        node: vec![NodeProto {
            op_type: op.into(),
            input: vec!["x".into()],
            output: vec![out.into()],
            ..Default::default()
        }],
        output: vec![ValueInfoProto { name: out.into(), r#type: None }],
        ..Default::default()
    };
    let mut net = Net::new().input("x", DType::F32, "batch 3").input("c", DType::Bool, "1");
    net = net.node("/if", "If", "c", "y").output("y");
    let node = net.graph().node.last_mut().expect("the node of before");
    for (name, op) in [("then_branch", "Relu"), ("else_branch", "Neg")] {
        node.attribute.push(AttributeProto {
            name: name.into(),
            g: Some(Box::new(branch(op, name))),
            r#type: attribute_type::GRAPH,
            ..Default::default()
        });
    }
    net
}

fn sparse() -> Net {
    let mut net = Net::new().input("x", DType::F32, "n 5");
    let values = TensorProto {
        name: "w".into(),
        data_type: 1,
        dims: vec![3],
        float_data: vec![1.0, 2.0, 3.0],
        ..Default::default()
    };
    let indices = TensorProto { data_type: 7, dims: vec![3], int64_data: vec![0, 7, 19], ..Default::default() };
    net.graph().sparse_initializer.push(SparseTensorProto {
        values: Some(values),
        indices: Some(indices),
        dims: vec![5, 4],
    });
    let raw = TensorProto {
        name: "r".into(),
        data_type: 1,
        dims: vec![4],
        raw_data: vec![0; 16].into(),
        ..Default::default()
    };
    let half = TensorProto {
        name: "h".into(),
        data_type: 10,
        dims: vec![4],
        int32_data: vec![0x3c00; 4],
        ..Default::default()
    };
    net.tensor(raw)
        .tensor(half)
        .node("/mm", "MatMul", "x w", "a")
        .node("/add", "Add", "a r", "b")
        .node("/cast", "Cast", "h", "hf")
        .int("to", 1)
        .node("/mul", "Mul", "b hf", "y")
        .output("y")
}

/// Products whose weights are mostly 0: scattered nonzeros, groups of them, and int8 blocks of four along K.
pub fn pruned() -> Net {
    let matrix = |name: &str, data_type: i32, [rows, columns]: [i64; 2], value: fn(i64, i64) -> i64| {
        let all = (0..rows).flat_map(|row| (0..columns).map(move |column| value(row, column)));
        let numbers = TensorProto { name: name.into(), data_type, dims: vec![rows, columns], ..Default::default() };
        match data_type {
            1 => TensorProto { float_data: all.map(|v| v as f32).collect(), ..numbers },
            _ => TensorProto { int32_data: all.map(|v| v as i32).collect(), ..numbers },
        }
    };
    let number = |name: &str, data_type: i32, float_data: Vec<f32>, int32_data: Vec<i32>| TensorProto {
        name: name.into(),
        data_type,
        float_data,
        int32_data,
        ..Default::default()
    };
    let scattered = |k: i64, n: i64| if (((128 * k + n) * 2654435761) >> 7) % 12 == 0 { 1 + k % 5 } else { 0 };
    let grouped = |k: i64, n: i64| if n % 8 == k % 8 { 1 + (k + n) % 3 } else { 0 };
    let bytes = |k: i64, n: i64| if (k / 4 + n) % 8 == 0 { (k * 7 + n) % 255 - 127 } else { 0 };
    Net::new()
        .input("x", DType::F32, "n 256")
        .tensor(matrix("scattered", 1, [256, 128], scattered))
        .tensor(matrix("grouped", 1, [128, 256], grouped))
        .tensor(matrix("bytes", 3, [256, 128], bytes))
        .tensor(number("ws", 1, vec![0.01], vec![]))
        .tensor(number("wz", 3, vec![], vec![0]))
        .tensor(number("xs", 1, vec![0.02], vec![]))
        .tensor(number("xz", 2, vec![], vec![120]))
        .node("/words", "MatMul", "x scattered", "a")
        .node("/groups", "MatMul", "a grouped", "b")
        .node("/q", "QuantizeLinear", "b xs xz", "q")
        .node("/d", "DequantizeLinear", "q xs xz", "d")
        .node("/w", "DequantizeLinear", "bytes ws wz", "w")
        .node("/quads", "MatMul", "d w", "y")
        .output("y")
}

fn movement() -> Net {
    Net::new()
        .input("x", DType::F32, "n 6")
        .input("z", DType::F32, "m 6")
        .i64s("parts", &[2, 4])
        .i64s("lo", &[1])
        .i64s("hi", &[-1])
        .i64s("axis", &[1])
        .i64s("index", &[0, 5, 3])
        .node("/split", "Split", "x parts", "a b")
        .int("axis", 1)
        .node("/join", "Concat", "b a", "c")
        .int("axis", 1)
        .node("/stack", "Concat", "c z", "d")
        .int("axis", 0)
        .node("/cut", "Slice", "d lo hi axis", "e")
        .node("/pick", "Gather", "d index", "f")
        .int("axis", 1)
        .node("/squared", "Mul", "e e", "g")
        .node("/total", "ReduceMax", "f", "h")
        .ints("axes", &[1])
        .node("/sum", "Add", "g h", "y")
        .output("y")
}

const FILE_BYTES_MAX: usize = 8 << 20;

/// Mutations that single random changes do not reach: very deep nesting, very many copies of nodes, and chains of nodes
/// that use a value twice.
pub struct Rough;

impl Rough {
    pub fn apply(tree: &mut Tree, random: &mut Random) {
        let depth = [3, 20, 47, 60, 99, 200, 3000][random.below(7)];
        // The size is limited, because reading a file of gigabytes would take time and show nothing new.
        let depth = depth.min(FILE_BYTES_MAX / tree.encode().len()).max(1);
        let places: Vec<usize> = (0..tree.count()).collect();
        let place = |tree: &mut Tree, schema| {
            let found: Vec<usize> =
                places.iter().copied().filter(|&n| std::ptr::eq(tree.nth(n).schema, schema)).collect();
            (!found.is_empty()).then(|| found[random_of(&found, tree.count())])
        };
        match random.below(4) {
            0 => {
                let Some(at) = place(tree, &TYPE) else { return };
                let of = tree.nth(at);
                let kind = [4, 5, 9][random.below(3)];
                let mut bytes = of.encode();
                for _ in 0..depth {
                    bytes = field(kind, &field(if kind == 5 { 2 } else { 1 }, &bytes));
                }
                of.fields = vec![(kind, Value::Raw(bytes))];
            }
            1 => {
                // Graphs nested in nodes.
                let Some(at) = place(tree, &NODE) else { return };
                let of = tree.nth(at);
                of.fields.retain(|(number, _)| *number != 5);
                let shell = of.encode();
                let mut bytes = shell.clone();
                for _ in 0..depth {
                    let graph =
                        AttributeProto { name: "body".into(), r#type: attribute_type::GRAPH, ..Default::default() };
                    let attribute = [graph.encode_to_vec(), field(6, &field(1, &bytes))].concat();
                    bytes = [shell.clone(), field(5, &attribute)].concat();
                }
                of.fields = vec![(0, Value::Raw(bytes))];
            }
            2 => {
                // Many copies of all nodes, with the same names.
                let Some(at) = place(tree, &GRAPH) else { return };
                let of = tree.nth(at);
                let nodes: Vec<_> = of.fields.iter().filter(|(n, _)| *n == 1).cloned().collect();
                (0..depth).for_each(|_| of.fields.extend(nodes.iter().cloned()));
            }
            _ => {
                // A chain whose nodes use the previous value twice: as an expression tree, the last value is
                // exponentially large.
                let Some(at) = place(tree, &GRAPH) else { return };
                let of = tree.nth(at);
                let operator = ["Add", "Concat", "Mul", "MatMul"][random.below(4)];
                for i in 0..depth.min(200) {
                    let from = if i == 0 { "x".to_string() } else { format!("chain{}", i - 1) };
                    let attribute =
                        AttributeProto { name: "axis".into(), i: 0, r#type: attribute_type::INT, ..Default::default() };
                    let node = NodeProto {
                        op_type: operator.into(),
                        input: vec![from.clone(), from],
                        output: vec![format!("chain{i}")],
                        attribute: if operator == "Concat" { vec![attribute] } else { vec![] },
                        ..Default::default()
                    };
                    let bytes = node.encode_to_vec();
                    of.fields.push((1, Value::Message(Tree::parse(&NODE, &bytes).expect("a node has its schema"))));
                }
                of.fields.iter_mut().for_each(|(number, value)| {
                    if let (12, Value::Message(output)) = (*number, value) {
                        output.fields = vec![(1, Value::Text(format!("chain{}", depth.min(200) - 1).into_bytes()))];
                    }
                });
            }
        }
    }
}

fn random_of(found: &[usize], salt: usize) -> usize {
    salt % found.len()
}
