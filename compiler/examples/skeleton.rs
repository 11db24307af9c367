//! layers, width, heads  =>  a Transformer without weight data, for `sardonyx plan` and `simulate` at any size
//!
//!     cargo run --release -p sardonyx --example skeleton -- 96 12288 96 gpt-175b.onnx

use prost::Message;
use sardonyx::onnx::proto::*;

const VOCABULARY: i64 = 50304;

#[derive(Default)]
struct Skeleton {
    graph: GraphProto,
    /// Total bytes of all weights so far: the offset of the next one in the (absent) file of external data.
    bytes: i64,
}

impl Skeleton {
    /// Adds a weight whose values are stored in an external file that does not exist.
    fn weight(&mut self, name: &str, dims: &[i64]) -> String {
        let length = 4 * dims.iter().product::<i64>();
        let entry = |key: &str, value: String| StringStringEntryProto { key: key.into(), value };
        let external_data = vec![
            entry("location", "weights.bin".into()),
            entry("offset", self.bytes.to_string()),
            entry("length", length.to_string()),
        ];
        let (name, dims) = (name.to_string(), dims.to_vec());
        let data = TensorProto { name, data_type: 1, dims, external_data, data_location: 1, ..Default::default() };
        let name = data.name.clone();
        self.graph.initializer.push(data);
        self.bytes += length;
        name
    }

    fn shape(&mut self, name: &str, values: &[i64]) {
        let dims = vec![values.len() as i64];
        let int64_data = values.to_vec();
        let name = name.to_string();
        self.graph.initializer.push(TensorProto { name, data_type: 7, dims, int64_data, ..Default::default() });
    }

    /// Adds a node and returns the name of its result, which equals the node's name.
    fn node(&mut self, name: &str, op_type: &str, input: &[&str], attribute: Vec<AttributeProto>) -> String {
        let (input, output) = (input.iter().map(|name| name.to_string()).collect(), vec![name.to_string()]);
        let (name, op_type) = (name.to_string(), op_type.to_string());
        self.graph.node.push(NodeProto { name: name.clone(), op_type, input, output, attribute, ..Default::default() });
        name
    }

    fn norm(&mut self, name: &str, x: &str, width: i64) -> String {
        let scale = self.weight(&format!("{name}.weight"), &[width]);
        let bias = self.weight(&format!("{name}.bias"), &[width]);
        self.node(name, "LayerNormalization", &[x, &scale, &bias], vec![])
    }

    fn product(&mut self, name: &str, x: &str, dims: [i64; 2]) -> String {
        let weight = self.weight(&format!("{name}.weight"), &dims);
        self.node(name, "MatMul", &[x, &weight], vec![])
    }

    /// Adds a projection to queries, keys or values, splits it by heads and transposes the result by `perm`.
    fn heads(&mut self, name: &str, x: &str, width: i64, perm: &[i64]) -> String {
        let made = self.product(name, x, [width, width]);
        let by_heads = self.node(&format!("{name}/heads"), "Reshape", &[&made, "heads"], vec![]);
        self.node(&format!("{name}/turned"), "Transpose", &[&by_heads], vec![ints("perm", perm)])
    }

    fn layer(&mut self, at: &str, x: &str, width: i64) -> String {
        let name = |part: &str| format!("{at}/{part}");
        let normed = self.norm(&name("norm1"), x, width);
        let q = self.heads(&name("query"), &normed, width, &[0, 2, 1, 3]);
        let k = self.heads(&name("key"), &normed, width, &[0, 2, 3, 1]);
        let v = self.heads(&name("value"), &normed, width, &[0, 2, 1, 3]);
        let scores = self.node(&name("scores"), "MatMul", &[&q, &k], vec![]);
        let scaled = self.node(&name("scaled"), "Mul", &[&scores, "scale"], vec![]);
        let weights = self.node(&name("softmax"), "Softmax", &[&scaled], vec![]);
        let mixed = self.node(&name("mixed"), "MatMul", &[&weights, &v], vec![]);
        let turned = self.node(&name("mixed/turned"), "Transpose", &[&mixed], vec![ints("perm", &[0, 2, 1, 3])]);
        let merged = self.node(&name("mixed/merged"), "Reshape", &[&turned, "merged"], vec![]);
        let out = self.product(&name("out"), &merged, [width, width]);
        let x = self.node(&name("add1"), "Add", &[x, &out], vec![]);
        let normed = self.norm(&name("norm2"), &x, width);
        let up = self.product(&name("up"), &normed, [width, 4 * width]);
        let up = self.node(&name("gelu"), "Gelu", &[&up], vec![]);
        let down = self.product(&name("down"), &up, [4 * width, width]);
        self.node(&name("add2"), "Add", &[&x, &down], vec![])
    }
}

fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    let (name, ints) = (name.to_string(), ints.to_vec());
    AttributeProto { name, ints, r#type: attribute_type::INTS, ..Default::default() }
}

fn port(name: &str, elem_type: i32, dims: &[Result<i64, &str>]) -> ValueInfoProto {
    let dim = |dim: &Result<i64, &str>| Dimension {
        value: Some(match dim {
            Ok(n) => DimensionValue::DimValue(*n),
            Err(name) => DimensionValue::DimParam(name.to_string()),
        }),
    };
    let shape = Some(TensorShapeProto { dim: dims.iter().map(dim).collect() });
    let value = Some(type_proto::Value::TensorType(type_proto::Tensor { elem_type, shape }));
    ValueInfoProto { name: name.to_string(), r#type: Some(TypeProto { value }) }
}

/// Returns the Transformer, and the bytes of its absent weights. The width must be a multiple of the number of heads.
pub fn transformer(layers: i64, width: i64, heads: i64) -> (ModelProto, i64) {
    let mut made = Skeleton::default();
    made.graph.name = "transformer".into();
    made.graph.input.push(port("ids", 7, &[Err("batch"), Err("seq")]));
    made.shape("heads", &[0, 0, heads, width / heads]);
    made.shape("merged", &[0, 0, width]);
    let scale = vec![(width as f32 / heads as f32).powf(-0.5)];
    let scale = TensorProto { name: "scale".into(), data_type: 1, float_data: scale, ..Default::default() };
    made.graph.initializer.push(scale);
    let table = made.weight("embedding.weight", &[VOCABULARY, width]);
    let mut x = made.node("embedding", "Gather", &[&table, "ids"], vec![]);
    for layer in 0..layers {
        x = made.layer(&format!("/layer.{layer}"), &x, width);
    }
    let y = made.norm("norm", &x, width);
    made.graph.output.push(port(&y, 1, &[Err("batch"), Err("seq"), Ok(width)]));
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 20 }];
    (ModelProto { ir_version: 9, opset_import, graph: Some(made.graph), ..Default::default() }, made.bytes)
}

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<i64> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    let ([layers, width, heads], Some(path)) = (&numbers[..], args.get(3)) else {
        eprintln!("usage: skeleton LAYERS WIDTH HEADS FILE.onnx");
        return 2.into();
    };
    let (layers, width, heads) = (*layers, *width, *heads);
    if layers < 1 || heads < 1 || width < heads || width % heads != 0 {
        eprintln!("error: the width has to be a multiple of the number of heads, and there is at least one layer");
        return 2.into();
    }
    let (model, bytes) = transformer(layers, width, heads);
    if let Err(error) = std::fs::write(path, model.encode_to_vec()) {
        eprintln!("error: cannot write {path}: {error}");
        return 2.into();
    }
    println!("{path}: {:.1} billion weights, none of them there", bytes as f64 / 4e9);
    0.into()
}
