//! attention with a constant mask, as exporters write it  =>  the results of its definition, without computing keys
//! that the mask hides from whole blocks of queries

use sardonyx::compile::{Report, Request, compile};
use sardonyx::onnx::proto::TensorProto;
use sardonyx_base::{DType, Tensor};
use sardonyx_passes::Options;
use sardonyx_runtime::{Model, SessionOptions};
use sardonyx_tests::onnx::Net;
use sardonyx_tests::trust::trusted;

const HEADS: usize = 2;
const LENGTH: usize = 300;
const WIDTH: usize = 16;

/// Returns whether a query (first argument) sees a key (second argument).
type Sees = fn(usize, usize) -> bool;

/// A window of neighbours on both sides, and the first keys, which all queries see.
fn window(i: usize, j: usize) -> bool {
    i.abs_diff(j) <= 20 || j < 5
}

/// Inputs q, k and v of [batch, h, s, d]  =>  scaled scores `x`.
fn scores() -> Net {
    let dims = format!("batch {HEADS} {LENGTH} {WIDTH}");
    let net = ["q", "k", "v"].into_iter().fold(Net::new(), |net, name| net.input(name, DType::F32, &dims));
    net.node("turn", "Transpose", "k", "kt")
        .ints("perm", &[0, 1, 3, 2])
        .node("scores", "MatMul", "q kt", "s")
        .tensor(numbers("scale", &[], &[0.25]))
        .node("scale", "Mul", "s scale", "x")
}

fn numbers(name: &str, dims: &[usize], values: &[f32]) -> TensorProto {
    let (data_type, dims) = (DType::F32.onnx_code(), dims.iter().map(|d| *d as i64).collect());
    TensorProto { name: name.into(), data_type, dims, float_data: values.to_vec(), ..TensorProto::default() }
}

fn truths(name: &str, sees: Sees) -> TensorProto {
    let int32_data = (0..LENGTH * LENGTH).map(|at| sees(at / LENGTH, at % LENGTH) as i32).collect();
    let dims = vec![1, 1, LENGTH as i64, LENGTH as i64];
    TensorProto { name: name.into(), data_type: DType::Bool.onnx_code(), dims, int32_data, ..TensorProto::default() }
}

/// An additive mask: 0 for keys that a query sees, `hidden` for the others.
fn biases(name: &str, sees: Sees, hidden: f32) -> TensorProto {
    let value = |at: usize| if sees(at / LENGTH, at % LENGTH) { 0.0 } else { hidden };
    numbers(name, &[LENGTH, LENGTH], &(0..LENGTH * LENGTH).map(value).collect::<Vec<f32>>())
}

fn mixed(net: Net) -> Net {
    net.node("softmax", "Softmax", "masked", "p").int("axis", -1).node("mix", "MatMul", "p v", "y").output("y")
}

/// Attention with an additive mask.
fn added(sees: Sees, hidden: f32) -> Net {
    mixed(scores().tensor(biases("mask", sees, hidden)).node("add", "Add", "x mask", "masked"))
}

/// A boolean mask: where it is false, the lowest f32 replaces the score (`masked_fill`).
fn filled() -> Net {
    let net = scores().tensor(truths("mask", window)).tensor(numbers("low", &[], &[f32::MIN]));
    mixed(net.node("not", "Not", "mask", "hidden").node("fill", "Where", "hidden low x", "masked"))
}

/// A boolean mask is turned into an additive one, and NaN weights become 0 (`scaled_dot_product_attention`).
fn dot_product() -> Net {
    let net = scores()
        .tensor(truths("mask", window))
        .tensor(numbers("zero", &[], &[0.0]))
        .tensor(numbers("low", &[], &[f32::NEG_INFINITY]))
        .node("bias", "Where", "mask zero low", "bias")
        .node("add", "Add", "x bias", "masked")
        .node("softmax", "Softmax", "masked", "w");
    let net = net.int("axis", -1).node("nan", "IsNaN", "w", "nan").node("clean", "Where", "nan zero w", "p");
    net.node("mix", "MatMul", "p v", "y").output("y")
}

/// The model computes the boolean mask of `window` from the distances of positions.
fn counted() -> Net {
    let number = |name: &str, value: i64| TensorProto {
        name: name.into(),
        data_type: DType::I64.onnx_code(),
        int64_data: vec![value],
        ..TensorProto::default()
    };
    let numbers_of = [("from", 0), ("to", LENGTH as i64), ("step", 1), ("far", 20), ("few", 5)];
    let net = numbers_of.into_iter().fold(scores(), |net, (name, value)| net.tensor(number(name, value)));
    let net = net
        .i64s("last", &[-1])
        .i64s("first", &[0])
        .node("range", "Range", "from to step", "at")
        .node("rows", "Unsqueeze", "at last", "i")
        .node("keys", "Unsqueeze", "at first", "j")
        .node("sub", "Sub", "i j", "apart")
        .node("abs", "Abs", "apart", "distance")
        .node("near", "LessOrEqual", "distance far", "near")
        .node("all", "Less", "j few", "all")
        .node("or", "Or", "near all", "mask");
    let net = net.tensor(numbers("low", &[], &[f32::NEG_INFINITY]));
    mixed(net.node("choose", "Where", "mask x low", "masked"))
}

fn compiled(what: &str, net: &Net) -> (Model, Report) {
    let folder = tempfile::tempdir().unwrap();
    let (source, path) = (folder.path().join("model.onnx"), folder.path().join("model.sdx"));
    std::fs::write(&source, net.bytes()).unwrap();
    let options = Options { remarks: true, ..Options::default() };
    let request = Request { selftest: false, options, ..Request::new(&source, &path) };
    let report = compile(&request).unwrap_or_else(|e| panic!("{what}: {e}"));
    (Model::load(&path, &trusted()).unwrap_or_else(|e| panic!("{what}: {e}")), report)
}

fn n_lists(report: &Report) -> usize {
    report.rewrites.applied().iter().filter(|r| r.pass == "skip-masked-keys").count()
}

fn operands(batch: usize) -> Vec<(&'static str, Tensor)> {
    let n = batch * HEADS * LENGTH * WIDTH;
    let value = |at: usize, salt: usize| ((at * 7919 + salt * 104_729) % 2003) as f32 / 500.0 - 2.0;
    let tensor = |salt: usize| {
        let values: Vec<f32> = (0..n).map(|at| value(at, salt)).collect();
        Tensor::from_vec(vec![batch, HEADS, LENGTH, WIDTH], values)
    };
    [("q", 1), ("k", 2), ("v", 3)].map(|(name, salt)| (name, tensor(salt))).to_vec()
}

/// Returns softmax(q·k / 4 + bias)·v in f64; a query that sees no key gets the mean of all values.
fn defined(inputs: &[(&str, Tensor)], batch: usize, sees: Sees) -> Vec<f64> {
    let [q, k, v] = [0, 1, 2].map(|i| inputs[i].1.to_vec::<f32>().unwrap());
    let mut out = vec![];
    for (head, i) in (0..batch * HEADS).flat_map(|head| (0..LENGTH).map(move |i| (head, i))) {
        let row = |t: &[f32], at: usize| -> Vec<f64> {
            t[(head * LENGTH + at) * WIDTH..][..WIDTH].iter().map(|v| f64::from(*v)).collect()
        };
        let query = row(&q, i);
        let score = |j: usize| query.iter().zip(row(&k, j)).map(|(a, b)| a * b).sum::<f64>() / 4.0;
        let none = !(0..LENGTH).any(|j| sees(i, j));
        let seen: Vec<(usize, f64)> =
            (0..LENGTH).filter(|j| none || sees(i, *j)).map(|j| (j, if none { 0.0 } else { score(j).exp() })).collect();
        let weight = |x: f64| if none { 1.0 } else { x };
        let total: f64 = seen.iter().map(|(_, x)| weight(*x)).sum();
        let mut mixed = [0.0; WIDTH];
        for (j, x) in &seen {
            mixed.iter_mut().zip(row(&v, *j)).for_each(|(sum, v)| *sum += weight(*x) / total * v);
        }
        out.extend(mixed);
    }
    out
}

fn check(what: &str, net: &Net, sees: Sees, lists: usize) {
    let (model, report) = compiled(what, net);
    assert_eq!(n_lists(&report), lists, "{what}: {:?}", report.rewrites.remarks());
    for (batch, threads) in [(1, 1), (3, 2)] {
        let inputs = operands(batch);
        let session = model.session(&SessionOptions::default().threads(threads)).unwrap();
        let outputs = session.run(&inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
        let got = outputs[0].1.to_vec::<f32>().unwrap();
        let wanted = defined(&inputs, batch, sees);
        let worst = got.iter().zip(&wanted).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
        assert!(got.len() == wanted.len() && worst <= 1e-5, "{what}: {worst:e} from the definition");
    }
}

#[test]
fn windows_in_all_forms_are_lists_of_keys() {
    check("the least number, added", &added(window, f32::MIN), window, 1);
    check("infinity, added", &added(window, f32::NEG_INFINITY), window, 1);
    check("a large number, added", &added(window, -1e9), window, 1);
    check("filled", &filled(), window, 1);
    check("as the operator is taken apart", &dot_product(), window, 1);
    check("counted", &counted(), window, 1);
}

#[test]
fn rows_that_see_nothing_are_means_of_all_values() {
    let some = |i: usize, j: usize| i != 150 && window(i, j);
    check("a row without keys", &added(some, f32::MIN), some, 1);
}

#[test]
fn a_mask_that_hides_few_keys_changes_nothing() {
    let most = |i: usize, j: usize| !(i + j).is_multiple_of(3);
    check("every third key", &added(most, f32::MIN), most, 0);
}
