//! a wrong rule in MiniLM  =>  `check --layers` names its node, `bisect` names the rule and writes a failing test
//!
//! The rule exists only in this program. The written test runs `sardonyx-opt`; called by that name, this program acts
//! as that tool, with the rule in it.

#[path = "../../compiler/src/bin/sardonyx-opt.rs"]
mod opt;

use clap::Parser;
use libtest_mimic::{Arguments, Failed, Trial};
use prost::Message;
use sardonyx::commands::{BisectArgs, CheckArgs, ReduceArgs, bisect, check, reduce};
use sardonyx::compile::{Request, compile};
use sardonyx::entries::Entries;
use sardonyx::layers::{Bound, Fault, Layers, Values};
use sardonyx::onnx::proto::ModelProto;
use sardonyx_base::{DType, Tensor};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Graph, Node, Op, Value};
use sardonyx_format::tensor_io::{TensorProto, save_npy};
use sardonyx_passes::with_rule;
use sardonyx_runtime::{Model, SessionOptions};
use sardonyx_tests::onnx::{Net, encoder};
use sardonyx_tests::prepared::{data_sets, model};
use sardonyx_tests::programs::program;
use sardonyx_tests::trust::trusted;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const MODEL: &str = "skel_minilm_l6_safetensors";
/// Node at which the rule is wrong: a division in the GELU of the fourth layer, in the middle of a kernel.
const NODE: &str = "/m/encoder/layer.3/intermediate/intermediate_act_fn/Div";
const RULE: &str = "multiply-by-the-divisor";

/// Wrong rule: x / c  =>  x * c, as if c were its own reciprocal.
fn multiplies(_: &Graph, node: &Node) -> Option<(Op, Vec<Value>)> {
    let here = matches!(node.op, Op::Map(ScalarFn::Div)) && is_there(node);
    here.then(|| (Op::Map(ScalarFn::Mul), node.args.clone()))
}

/// Wrong rule: x / c  =>  log x, which is NaN for every negative x.
fn takes_logarithms(_: &Graph, node: &Node) -> Option<(Op, Vec<Value>)> {
    let here = matches!(node.op, Op::Map(ScalarFn::Div)) && is_there(node);
    here.then(|| (Op::Map(ScalarFn::Log), vec![node.args[0]]))
}

/// Whether a wrong rule applies here: in the model only at [`NODE`]; in a reduced file, whose operations name no ONNX
/// nodes, everywhere.
fn is_there(node: &Node) -> bool {
    node.origins.is_empty() || node.origins.iter().any(|o| o == NODE)
}

fn main() {
    let name = std::env::args().next().map(PathBuf::from).unwrap_or_default();
    if name.file_name().is_some_and(|n| n == "sardonyx-opt") {
        with_rule(RULE, multiplies, opt::main);
        return;
    }
    let trials = vec![
        Trial::test("layers_tell_wrong_code_from_a_wrong_program", || wrong_code().map_err(Failed::from)),
        Trial::test("layers_take_given_values", || given_values().map_err(Failed::from)),
        Trial::test("a_model_is_reduced_by_a_command", || reduced_model().map_err(Failed::from)),
        Trial::test("a_model_is_reduced_by_its_check", || reduced_check().map_err(Failed::from)),
        Trial::test("kernels_are_reduced_by_a_command", || reduced_kernels().map_err(Failed::from)),
        Trial::test("values_are_reduced_by_a_pass", || reduced_values().map_err(Failed::from)),
        Trial::test("layers_of_a_right_model_agree", || right_layers().map_err(Failed::from)),
        Trial::test("layers_name_the_node", || wrong_layers().map_err(Failed::from)),
        Trial::test("layers_name_the_first_nan", || nan_layers().map_err(Failed::from)),
        Trial::test("bisect_finds_nothing_in_a_right_model", || right_bisect().map_err(Failed::from)),
        Trial::test("bisect_names_the_rule_and_writes_a_test", || wrong_bisect().map_err(Failed::from)),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

#[derive(Parser)]
struct Check {
    #[command(flatten)]
    args: CheckArgs,
}

#[derive(Parser)]
struct Bisect {
    #[command(flatten)]
    args: BisectArgs,
}

#[derive(Parser)]
struct Reduce {
    #[command(flatten)]
    args: ReduceArgs,
}

type Outcome<T> = Result<T, String>;

fn ensure(is: bool, what: impl FnOnce() -> String) -> Outcome<()> {
    if is { Ok(()) } else { Err(what()) }
}

/// Report of `check --layers` on one data set.
fn layers() -> Outcome<Json> {
    let (model, data) = (model(MODEL), data_sets(MODEL).remove(0));
    let words = ["check", &model.display().to_string(), "--layers", "--json", "--data", &data.display().to_string()];
    let mut out = vec![];
    check(&Check::parse_from(words).args, &mut out).map_err(|e| e.to_string())?;
    let report: Json = serde_json::from_slice(&out).map_err(|e| e.to_string())?;
    Ok(report["sets"][0].clone())
}

fn right_layers() -> Outcome<()> {
    let set = layers()?;
    ensure(set["passed"] == true, || format!("{set}"))?;
    ensure(set["first_divergence"].is_null() && set["first_nonfinite"].is_null(), || format!("{set}"))?;
    let nodes = set["nodes"].as_array().ok_or("no nodes")?;
    let agrees = |node: &&Json| node["state"] == "agrees" && node["max_abs_error"].as_f64().is_some_and(|e| e < 1e-3);
    let n = nodes.iter().filter(agrees).count();
    // Values that rewrites eliminate are absent, for example those of a softmax whose division comes last, or of heads
    // that are read in place from a joint product for queries, keys and values.
    let others: Vec<&Json> = nodes.iter().filter(|n| !agrees(n)).collect();
    ensure(others.iter().all(|n| n["state"] == "absent"), || format!("{others:?}"))?;
    ensure(nodes.len() > 200 && n * 6 > nodes.len() * 5, || format!("{n} of {} nodes: {others:?}", nodes.len()))
}

fn wrong_layers() -> Outcome<()> {
    let set = with_rule(RULE, multiplies, layers)?;
    ensure(set["passed"] == false, || "the rule does no harm".into())?;
    let first = &set["first_divergence"];
    ensure(first["node"] == NODE && first["op"] == "Div" && first["fault"] == "meaning", || format!("{first}"))?;
    // The rule gives x * √2 instead of x / √2, so the error is as large as the value.
    ensure(first["max_abs_error"].as_f64().is_some_and(|e| e > 0.1), || format!("{first}"))?;
    ensure(set["first_nonfinite"].is_null(), || format!("{}", set["first_nonfinite"]))?;
    let nodes = set["nodes"].as_array().ok_or("no nodes")?;
    let at = nodes.iter().position(|n| n["node"] == NODE).ok_or("the node is not compared")?;
    let before = nodes[..at].iter().find(|n| n["state"] == "suspect");
    ensure(before.is_none(), || format!("before it: {before:?}"))
}

fn nan_layers() -> Outcome<()> {
    let set = with_rule("logarithms", takes_logarithms, layers)?;
    let first = &set["first_nonfinite"];
    ensure(first["node"] == NODE && first["n_nonfinite"].as_u64() > Some(0), || format!("{first}"))
}

/// Exit code and JSON report of `bisect`, which writes its test to `test`.
fn bisected(test: &Path) -> Outcome<(i32, Vec<u8>)> {
    let (model, test) = (model(MODEL).display().to_string(), test.display().to_string());
    let args = Bisect::parse_from(["bisect", &model, "--json", "-o", &test]).args;
    let mut out = vec![];
    let code = bisect(&args, &mut out).map_err(|e| e.to_string())?;
    Ok((code, out))
}

fn right_bisect() -> Outcome<()> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let file = folder.path().join("test.mlir");
    let (code, out) = bisected(&file)?;
    let report: Json = serde_json::from_slice(&out).map_err(text)?;
    ensure(code == 0 && report["passed"] == true && !file.exists(), || format!("{report}"))
}

fn wrong_bisect() -> Outcome<()> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let file = folder.path().join("test.mlir");
    let (code, out) = with_rule(RULE, multiplies, || bisected(&file))?;
    let report: Json = serde_json::from_slice(&out).map_err(|e| e.to_string())?;
    ensure(code == 1 && report["stage"] == "simplify", || format!("{report}"))?;
    let rewrite = &report["rewrite"];
    ensure(rewrite["pass"] == "simplify" && rewrite["rule"] == RULE, || format!("{rewrite}"))?;
    ensure(rewrite["origins"][0] == NODE, || format!("{rewrite}"))?;
    let changes: Vec<&str> = report["changes"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    let is = |sign: &str| changes.iter().any(|line| line.starts_with(sign) && line.ends_with(NODE));
    ensure(is("- div(") && is("+ mul("), || format!("{changes:?}"))?;

    let text = std::fs::read_to_string(&file).map_err(|e| format!("{e}: {report}"))?;
    ensure(text.lines().count() < sardonyx::reduce::LINES_MAX, || text.clone())?;
    // A link with the name `sardonyx-opt` to this program, which contains the wrong rule.
    let planted = folder.path().join("sardonyx-opt");
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    std::os::unix::fs::symlink(own, &planted).map_err(|e| e.to_string())?;
    let with = run(&file, folder.path())?;
    ensure(!with.0, || format!("the test passes with the wrong rule:\n{text}"))?;
    let tools = program("sardonyx-opt");
    let without = run(&file, tools.parent().ok_or("a program lies in a folder")?)?;
    ensure(without.0, || format!("the test fails without the wrong rule:\n{text}\n{}", without.1))
}

/// Whether the file's RUN line succeeds with the tools of a folder, and what it wrote to stderr.
fn run(file: &Path, tools: &Path) -> Outcome<(bool, String)> {
    let text = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
    let line = text.lines().find_map(|l| l.strip_prefix("// RUN: ")).ok_or("no RUN line")?;
    let line = line.replace("%s", &format!("'{}'", file.display()));
    let llvm = std::env::var("MLIR_SYS_220_PREFIX").unwrap_or_else(|_| "/usr/lib/llvm-22".into());
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let folders = [tools.to_path_buf(), Path::new(&llvm).join("bin")];
    let path = std::env::join_paths(folders.into_iter().chain(std::env::split_paths(&inherited)));
    let path = path.map_err(|e| e.to_string())?;
    let done = Command::new("bash").args(["-o", "pipefail", "-c", &line]).env("PATH", path).output();
    let done = done.map_err(|e| e.to_string())?;
    Ok((done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned()))
}

/// y = softmax(f(x w)), with one operator as f
fn small(f: &str) -> Net {
    Net::new()
        .input("x", DType::F32, "batch 8")
        .f32s("w", &[8, 24])
        .node("/mm", "MatMul", "x w", "a")
        .node("/f", f, "a", "b")
        .node("/g", "Softmax", "b", "y")
        .output("y")
}

fn text<E: std::fmt::Display>(e: E) -> String {
    e.to_string()
}

fn folder() -> Outcome<tempfile::TempDir> {
    tempfile::tempdir().map_err(text)
}

/// An artifact with the code of another function, for the same node names, is reported as wrong code.
fn wrong_code() -> Outcome<()> {
    let dir = folder()?;
    let [right, other, artifact] = ["right.onnx", "other.onnx", "other.sdx"].map(|name| dir.path().join(name));
    std::fs::write(&right, small("Tanh").bytes()).map_err(text)?;
    std::fs::write(&other, small("Sin").bytes()).map_err(text)?;
    compile(&Request { entries: Entries::NONE, ..Request::new(&other, &artifact) }).map_err(text)?;
    let session = Model::load(&artifact, &trusted()).map_err(text)?;
    let session = session.session(&SessionOptions::default()).map_err(text)?;
    let layers = Layers::read(&right, &BTreeMap::new()).map_err(text)?;
    let x = Tensor::from_vec(vec![3, 8], (0..24).map(|i| i as f32 * 0.25 - 3.0).collect());
    let inputs = vec![("x".to_string(), x)];
    let wanted = layers.values.interpret(&inputs).map_err(text)?;
    let bound = Bound { rtol: 1e-3, atol: 1e-4 };
    let report = layers.compare(&session, &inputs, &wanted, bound).map_err(text)?;
    let first = report.first.ok_or("nothing is found")?;
    ensure(first.fault == Fault::Code && first.node == "/f", || format!("{} {:?}", first.node, first.fault))
}

/// `--values` takes values that another program computed; the expected output is made wrong.
fn given_values() -> Outcome<()> {
    let dir = folder()?;
    let model = dir.path().join("small.onnx");
    std::fs::write(&model, small("Tanh").bytes()).map_err(text)?;
    let values = Values::read(&model, &BTreeMap::new()).map_err(text)?;
    let x = Tensor::from_vec(vec![2, 8], (0..16).map(|i| (i as f32).cos()).collect());
    let computed = values.interpret(&[("x".into(), x.clone())]).map_err(text)?;
    let (set, given) = (dir.path().join("set"), dir.path().join("values"));
    std::fs::create_dir_all(&set).and_then(|()| std::fs::create_dir_all(&given)).map_err(text)?;
    save(&set.join("input_0.pb"), "x", &x)?;
    for (value, tensor) in values.all.iter().zip(&computed) {
        let tensor = tensor.as_ref().ok_or("a value is missing")?;
        if value.name == "y" {
            let moved: Vec<f32> = (0..tensor.len()).filter_map(|i| tensor.get_f64(i)).map(|v| v as f32 + 0.5).collect();
            save(&set.join("output_0.pb"), "y", &Tensor::from_vec(tensor.dims().to_vec(), moved))?;
        } else {
            save_npy(given.join(format!("{}.npy", value.name)), tensor).map_err(text)?;
        }
    }
    let [model, set, given] = [model, set, given].map(|path| path.display().to_string());
    let words = ["check", &model, "--layers", "--json", "--data", &set, "--values", &given];
    let mut out = vec![];
    check(&Check::parse_from(words).args, &mut out).map_err(text)?;
    let report: Json = serde_json::from_slice(&out).map_err(text)?;
    let found = &report["sets"][0]["first_divergence"];
    ensure(found["node"] == "/g" && report["sets"][0]["nodes"][1]["state"] == "agrees", || format!("{report}"))
}

fn save(path: &Path, name: &str, tensor: &Tensor) -> Outcome<()> {
    let proto = TensorProto::from_tensor(name, tensor);
    std::fs::write(path, proto.encode_to_vec()).map_err(text)
}

fn reduced(words: &[&str]) -> Outcome<()> {
    let args = Reduce::parse_from([&["reduce"], words].concat()).args;
    reduce(&args, &mut vec![]).map_err(text)
}

fn reduced_model() -> Outcome<()> {
    let dir = folder()?;
    let [model, small] = ["model.onnx", "small.onnx"].map(|name| dir.path().join(name).display().to_string());
    std::fs::write(&model, encoder().bytes()).map_err(text)?;
    reduced(&[&model, "--test", "grep -q Softmax", "-o", &small])?;
    let proto = ModelProto::decode(&std::fs::read(&small).map_err(text)?[..]).map_err(text)?;
    let graph = proto.graph.ok_or("no graph")?;
    let ops: Vec<&str> = graph.node.iter().map(|n| n.op_type.as_str()).collect();
    ensure(ops == ["Softmax"] && graph.initializer.is_empty() && graph.input.len() == 1, || format!("{graph:?}"))?;
    // The attribute, which states the default, is removed.
    ensure(graph.node[0].attribute.is_empty(), || format!("{:?}", graph.node[0]))?;
    // The result is still a valid model.
    Values::read(Path::new(&small), &BTreeMap::new()).map(drop).map_err(text)
}

fn reduced_check() -> Outcome<()> {
    let dir = folder()?;
    let [model, out] = ["model.onnx", "small.onnx"].map(|name| dir.path().join(name).display().to_string());
    let net = Net::new()
        .input("x", DType::F32, "batch 8")
        .input("c", DType::F32, "8")
        .f32s("w", &[8, 8])
        .node("/mm", "MatMul", "x w", "a")
        .node("/div", "Div", "a c", "d")
        .node("/tanh", "Tanh", "d", "y")
        .output("y");
    std::fs::write(&model, net.bytes()).map_err(text)?;
    let everywhere =
        |_: &Graph, n: &Node| matches!(n.op, Op::Map(ScalarFn::Div)).then(|| (Op::Map(ScalarFn::Mul), n.args.clone()));
    ensure(reduced(&[&model, "--fails-check", "-o", &out]).is_err(), || "a right model fails its check".into())?;
    with_rule(RULE, everywhere, || reduced(&[&model, "--fails-check", "-o", &out]))?;
    let proto = ModelProto::decode(&std::fs::read(&out).map_err(text)?[..]).map_err(text)?;
    let ops: Vec<String> = proto.graph.iter().flat_map(|g| &g.node).map(|n| n.op_type.clone()).collect();
    ensure(ops == ["Div"], || format!("{ops:?}"))
}

/// Writes the IR of a small model after a stage, and returns its path.
fn stage(dir: &Path, name: &str) -> Outcome<String> {
    let (model, ir) = (dir.join("model.onnx"), dir.join("ir.mlir"));
    std::fs::write(&model, encoder().bytes()).map_err(text)?;
    let mut request = Request { entries: Entries::NONE, ..Request::new(&model, dir.join("unused.sdx")) };
    request.watch.stop_after = Some(name.into());
    let stopped_at = compile(&request).map_err(text)?.stopped_at.ok_or("no IR")?;
    std::fs::write(&ir, stopped_at).map_err(text)?;
    Ok(ir.display().to_string())
}

fn reduced_kernels() -> Outcome<()> {
    let dir = folder()?;
    let ir = stage(dir.path(), "fuse")?;
    let out = dir.path().join("small.mlir");
    reduced(&[&ir, "--test", "grep -q '\"erf\"'", "-o", &out.display().to_string()])?;
    let small = std::fs::read_to_string(&out).map_err(text)?;
    let n = |word: &str| small.matches(word).count();
    ensure(n("flow.kernel") == 1 && n("flow.apply") == 1 && small.lines().count() < 12, || small.clone())?;
    ensure(!small.contains("batch") && !small.contains("16"), || small.clone())
}

fn reduced_values() -> Outcome<()> {
    let dir = folder()?;
    let ir = stage(dir.path(), "onnx-to-sdx")?;
    let out = dir.path().join("small.mlir");
    let words = [ir.as_str(), "--pass", "simplify", "-o", &out.display().to_string()].map(str::to_string);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    ensure(reduced(&words).is_err_and(|e| e.contains("no fault")), || "there is no fault yet".into())?;
    let sums_differ =
        |_: &Graph, n: &Node| matches!(n.op, Op::Map(ScalarFn::Erf)).then(|| (Op::Map(ScalarFn::Sin), n.args.clone()));
    with_rule("erf-is-sin", sums_differ, || reduced(&words))?;
    let small = std::fs::read_to_string(&out).map_err(text)?;
    ensure(small.matches("sdx.map").count() == 1 && small.contains("// CHECK: reduced: y"), || small.clone())?;
    ensure(small.lines().count() < 15, || small.clone())
}
