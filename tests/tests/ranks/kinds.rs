//! each strategy to divide a model among ranks, alone and combined with every other strategy  =>  the results of one
//! rank

use sardonyx::compile::{Request, compile};
use sardonyx::placement::Placement;
use sardonyx_base::DType::F32;
use sardonyx_base::Tensor;
use sardonyx_runtime::{Model, SessionOptions};
use sardonyx_tests::onnx::Net;
use sardonyx_tests::trust::trusted;
use std::path::Path;

/// A strategy to divide a model along one axis of a mesh.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    /// Nodes, each with the operand or result that is split, and the dimension; for a pipeline, the node that begins
    /// the second stage.
    pub places: &'static [(&'static str, &'static str)],
    /// Prefix of the name of a host operation that the program must contain if the strategy is used alone.
    exchanges: &'static str,
}

const fn kind(name: &'static str, places: &'static [(&'static str, &'static str)], exchanges: &'static str) -> Kind {
    Kind { name, places, exchanges }
}

/// Marks the strategy that is a pipeline. A plan has at most one pipeline, which must be along the first axis of the
/// mesh.
pub const PIPELINE: &str = "begins";

static OF_A_LAYER: &[Kind] = &[
    kind("data", &[("/norm", "output = 0\ndim = 0")], "AllGather"),
    kind("sequence", &[("/norm", "output = 0\ndim = 1")], "AllGather"),
    kind("tensor", &[("/up", "output = 0\ndim = 2")], "AllReduce"),
    kind("heads", &[("/query", "output = 0\ndim = 2\nunit = 4"), ("/keys", "output = 0\ndim = 2\nunit = 4")], "All"),
    kind("summed", &[("/query", "input = 0\ndim = 2"), ("/keys", "input = 0\ndim = 2")], "AllReduce"),
    kind("pipeline", &[("/up", PIPELINE)], "Send"),
];

static OF_EXPERTS: &[Kind] = &[
    kind("data", &[("/gate", "output = 0\ndim = 0")], "AllGather"),
    kind("expert", &[("/up", "output = 0\ndim = 0")], "AllReduce"),
    kind("tensor within experts", &[("/up", "output = 0\ndim = 2")], "AllReduce"),
    kind("pipeline", &[("/down", PIPELINE)], "Send"),
];

static OF_CONVOLUTIONS: &[Kind] = &[
    kind("sample", &[("/conv1", "output = 0\ndim = 0")], "AllGather"),
    kind("spatial", &[("/conv1", "input = 0\ndim = 2")], "Halo"),
    kind("filter", &[("/conv1", "output = 0\ndim = 1")], "All"),
    kind("channel", &[("/conv2", "input = 1\ndim = 1")], "AllReduce"),
    kind("pipeline", &[("/conv2", PIPELINE)], "Send"),
];

static OF_PICTURES: &[Kind] = &[
    kind("rows", &[("/conv1", "input = 0\ndim = 2")], "Halo"),
    kind("columns", &[("/conv1", "input = 0\ndim = 3")], "Halo"),
    kind("sample", &[("/conv1", "output = 0\ndim = 0")], "AllGather"),
];

/// A normalization, attention with four heads, and two matrix products with tanh between them.
fn layer() -> (Net, Vec<usize>) {
    let heads = |net: Net, of: &str, to: &str, perm: &[i64]| {
        net.node(&format!("/{of}"), "MatMul", &format!("h w{of}"), of)
            .node(&format!("/{of}/heads"), "Reshape", &format!("{of} heads"), &format!("{of}h"))
            .node(&format!("/{of}/turn"), "Transpose", &format!("{of}h"), to)
            .ints("perm", perm)
    };
    let net = Net::new()
        .input("x", F32, "batch seq 16")
        .f32s("wquery", &[16, 16])
        .f32s("wkeys", &[16, 16])
        .f32s("scale", &[16])
        .f32s("shift", &[16])
        .f32s("wup", &[16, 24])
        .f32s("wdown", &[24, 16])
        .i64s("heads", &[0, 0, 4, 4])
        .i64s("flat", &[0, 0, 16])
        .node("/norm", "LayerNormalization", "x scale shift", "h");
    let net = heads(net, "query", "q", &[0, 2, 1, 3]);
    let net = heads(net, "keys", "k", &[0, 2, 3, 1]);
    let net = net
        .node("/scores", "MatMul", "q k", "s")
        .node("/softmax", "Softmax", "s", "p")
        .int("axis", -1)
        .node("/mix", "MatMul", "p q", "o")
        .node("/join", "Transpose", "o", "ot")
        .ints("perm", &[0, 2, 1, 3])
        .node("/flat", "Reshape", "ot flat", "a")
        .node("/up", "MatMul", "a wup", "u")
        .node("/act", "Tanh", "u", "t")
        .node("/down", "MatMul", "t wdown", "d")
        .node("/add", "Add", "d x", "y")
        .output("y");
    (net, vec![4, 6, 16])
}

/// Six experts, whose results a gate weights; each of the two products has one tensor with the weights of all experts.
fn experts() -> (Net, Vec<usize>) {
    let net = Net::new()
        .input("x", F32, "tokens 8")
        .f32s("wgate", &[8, 6])
        .f32s("wup", &[6, 8, 12])
        .f32s("wdown", &[6, 12, 8])
        .i64s("first", &[0])
        .i64s("last", &[2])
        .node("/gate", "MatMul", "x wgate", "g")
        .node("/softmax", "Softmax", "g", "p")
        .int("axis", -1)
        .node("/by_expert", "Transpose", "p", "pt")
        .ints("perm", &[1, 0])
        .node("/share", "Unsqueeze", "pt last", "share")
        .node("/every", "Unsqueeze", "x first", "xe")
        .node("/up", "MatMul", "xe wup", "u")
        .node("/act", "Relu", "u", "r")
        .node("/down", "MatMul", "r wdown", "d")
        .node("/weigh", "Mul", "d share", "m")
        .node("/sum", "ReduceSum", "m first", "y")
        .int("keepdims", 0)
        .output("y");
    (net, vec![10, 8])
}

fn convolutions() -> (Net, Vec<usize>) {
    let net = Net::new()
        .input("x", F32, "batch 4 11 11")
        .f32s("w1", &[12, 4, 3, 3])
        .f32s("b1", &[12])
        .f32s("w2", &[5, 12, 3, 3])
        .node("/conv1", "Conv", "x w1 b1", "c")
        .ints("pads", &[1, 1, 1, 1])
        .node("/relu", "Relu", "c", "r")
        .node("/conv2", "Conv", "r w2", "d")
        .ints("pads", &[1, 1, 1, 1])
        .ints("strides", &[2, 2])
        .node("/pool", "GlobalAveragePool", "d", "y")
        .output("y");
    (net, vec![4, 4, 11, 11])
}

/// Convolutions and poolings with different windows: dilated, depthwise, 1 x 1 with a stride, without padding.
fn pictures() -> (Net, Vec<usize>) {
    let net = Net::new()
        .input("x", F32, "batch 3 24 20")
        .f32s("w1", &[8, 3, 5, 5])
        .f32s("w2", &[8, 1, 3, 3])
        .f32s("w3", &[6, 8, 1, 1])
        .f32s("w4", &[4, 6, 2, 2])
        .node("/conv1", "Conv", "x w1", "a")
        .ints("pads", &[4, 4, 4, 4])
        .ints("dilations", &[2, 2])
        .node("/pool", "MaxPool", "a", "b")
        .ints("kernel_shape", &[3, 3])
        .ints("pads", &[1, 1, 1, 1])
        .ints("strides", &[2, 2])
        .node("/each", "Conv", "b w2", "c")
        .int("group", 8)
        .ints("pads", &[1, 1, 1, 1])
        .node("/points", "Conv", "c w3", "d")
        .ints("strides", &[2, 2])
        .node("/blocks", "Conv", "d w4", "e")
        .ints("strides", &[2, 2])
        .node("/mean", "AveragePool", "e", "y")
        .ints("kernel_shape", &[3, 3])
        .ints("pads", &[1, 1, 1, 1])
        .output("y");
    (net, vec![2, 3, 24, 20])
}

static OF_WIDE_PRODUCTS: &[Kind] = &[
    kind("weights", &[("", GATHERED)], "All"),
    kind("data", &[("/up", "output = 0\ndim = 0")], "AllGather"),
    kind("tensor", &[("/up", "output = 0\ndim = 1")], "AllReduce"),
];

/// Rows of a table, and two matrix products whose weights are large enough to be gathered during a call.
fn wide_products() -> (Net, Vec<usize>) {
    let net = Net::new()
        .input("x", F32, "tokens 96")
        .f32s("table", &[200, 96])
        .f32s("wup", &[96, 200])
        .f32s("wdown", &[200, 96])
        .i64s("rows", &[3, 199, 0, 77])
        .node("/look", "Gather", "table rows", "t")
        .node("/add", "Add", "x t", "a")
        .node("/up", "MatMul", "a wup", "u")
        .node("/act", "Tanh", "u", "h")
        .node("/down", "MatMul", "h wdown", "y")
        .output("y");
    (net, vec![4, 96])
}

/// Marks the strategy in which each rank stores a part of the weights and gathers the rest during a call; the plan
/// places no tensor for it.
pub const GATHERED: &str = "gathered_weights";

pub fn plan(mesh: &[usize], kinds: &[&Kind]) -> String {
    let sizes: Vec<String> = mesh.iter().map(usize::to_string).collect();
    let mut text = format!("mesh = [{}]\nseeds = false\n", sizes.join(", "));
    if let Some(axis) = kinds.iter().position(|kind| kind.places.iter().any(|(_, place)| *place == GATHERED)) {
        text += &format!("gathered_weights = {axis}\n");
    }
    for (axis, kind) in kinds.iter().enumerate() {
        for (node, place) in kind.places {
            text += &match *place {
                GATHERED => String::new(),
                PIPELINE => format!("[pipeline]\naxis = {axis}\nbegins = ['{node}']\n"),
                place => format!("[[place]]\nnode = '{node}'\naxis = {axis}\n{place}\n"),
            };
        }
    }
    text
}

/// Returns synthetic values of the input `x`.
pub fn first_input(dims: &[usize]) -> Tensor {
    let x = (0..dims.iter().product::<usize>()).map(|i| ((i * 5) % 13) as f32 * 0.125 - 0.75);
    Tensor::from_vec(dims.to_vec(), x.collect())
}

/// Compiles and runs the model. Returns its output and the host operations of the program.
pub fn run(
    folder: &Path,
    (net, dims): &(Net, Vec<usize>),
    plan: Option<&str>,
) -> Result<(Vec<f32>, Vec<String>), String> {
    let [model, artifact, file] = ["m.onnx", "m.sdx", "plan.toml"].map(|name| folder.join(name));
    std::fs::write(&model, net.bytes()).unwrap();
    std::fs::write(&file, plan.unwrap_or_default()).unwrap();
    let plan = plan.map(|_| Placement::read(&file)).transpose().map_err(|e| e.to_string())?;
    let report = compile(&Request { plan, ..Request::new(&model, &artifact) }).map_err(|e| e.to_string())?;
    let main = report.summary.unwrap().first.entries.remove(0);
    let session = Model::load(&artifact, &trusted()).map_err(|e| e.to_string())?;
    let session = session.session(&SessionOptions::default()).map_err(|e| e.to_string())?;
    let outputs = session.run(&[("x", first_input(dims))]).map_err(|e| e.to_string())?;
    Ok((outputs[0].1.to_vec().unwrap(), main.hosts.into_iter().map(|host| host.op).collect()))
}

/// Checks that the results of several ranks are close to those of one rank.
pub fn check_near(got: &[f32], wanted: &[f32], what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    let worst = got.iter().zip(wanted).map(|(a, b)| (a - b).abs() / b.abs().max(1.0)).fold(0.0, f32::max);
    assert!(worst <= 1e-5, "{what}: {worst} off");
}

fn check(folder: &Path, net: &(Net, Vec<usize>), wanted: &[f32], mesh: &[usize], kinds: &[&Kind]) {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
    let what = format!("{} on {mesh:?}", names.join(" and "));
    let (got, hosts) = run(folder, net, Some(&plan(mesh, kinds))).unwrap_or_else(|e| panic!("{what}: {e}"));
    for (axis, kind) in kinds.iter().enumerate().filter(|(axis, _)| mesh[*axis] > 1) {
        let along = format!("mesh={axis}");
        // If two strategies split the same tensor, it may be exchanged by another operation.
        let op = if kinds.len() == 1 { kind.exchanges } else { "" };
        let found = hosts.iter().any(|host| host.starts_with(op) && host.contains(&along));
        assert!(found, "{what}: no {op} along axis {axis} among {hosts:?}");
    }
    check_near(&got, wanted, &what);
}

/// A net with the dimensions of its input `x`, those of its output `y`, and the strategies to divide it.
pub struct Divided {
    pub net: (Net, Vec<usize>),
    pub output: Vec<usize>,
    /// Sizes of the symbols of `x`.
    pub sizes: &'static [&'static str],
    pub kinds: &'static [Kind],
}

impl Divided {
    pub fn all() -> Vec<Divided> {
        vec![
            Divided { net: layer(), output: vec![4, 6, 16], sizes: &["batch=4", "seq=6"], kinds: OF_A_LAYER },
            Divided { net: experts(), output: vec![10, 8], sizes: &["tokens=10"], kinds: OF_EXPERTS },
            Divided { net: convolutions(), output: vec![4, 5, 1, 1], sizes: &["batch=4"], kinds: OF_CONVOLUTIONS },
            Divided { net: wide_products(), output: vec![4, 96], sizes: &[], kinds: OF_WIDE_PRODUCTS },
            Divided { net: pictures(), output: vec![2, 4, 3, 2], sizes: &["batch=2"], kinds: OF_PICTURES },
        ]
    }
}

fn alone_and_in_pairs(net: (Net, Vec<usize>), kinds: &[Kind]) {
    let folder = tempfile::tempdir().unwrap();
    let (wanted, _) = run(folder.path(), &net, None).unwrap();
    for (i, first) in kinds.iter().enumerate() {
        // A pipeline has two stages.
        let sizes: &[usize] = if first.places[0].1 == PIPELINE { &[2] } else { &[2, 3, 4] };
        sizes.iter().for_each(|size| check(folder.path(), &net, &wanted, &[*size], &[first]));
        // Each pair is checked once; the parity of i + j decides its order, except that a pipeline comes first.
        let goes = |(j, second): &(usize, &Kind)| {
            let is_turned = (i < *j) == ((i + j) % 2 == 0);
            i != *j && second.places[0].1 != PIPELINE && (!is_turned || first.places[0].1 == PIPELINE)
        };
        for (_, second) in kinds.iter().enumerate().filter(goes) {
            check(folder.path(), &net, &wanted, &[2, 2], &[first, second]);
        }
    }
}

#[test]
fn layers_are_divided_in_every_way() {
    alone_and_in_pairs(layer(), OF_A_LAYER);
    let folder = tempfile::tempdir().unwrap();
    let (wanted, _) = run(folder.path(), &layer(), None).unwrap();
    let [data, sequence, tensor, ..] = OF_A_LAYER else { unreachable!("three kinds") };
    check(folder.path(), &layer(), &wanted, &[2, 2, 2], &[data, sequence, tensor]);
}

#[test]
fn experts_are_divided_in_every_way() {
    alone_and_in_pairs(experts(), OF_EXPERTS);
}

#[test]
fn wide_products_are_divided_in_every_way() {
    alone_and_in_pairs(wide_products(), OF_WIDE_PRODUCTS);
}

#[test]
fn pictures_are_divided_in_every_way() {
    alone_and_in_pairs(pictures(), OF_PICTURES);
}

#[test]
fn convolutions_are_divided_in_every_way() {
    alone_and_in_pairs(convolutions(), OF_CONVOLUTIONS);
}
