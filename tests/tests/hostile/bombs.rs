//! a small model with large demands  =>  compiled, or refused with a diagnostic
//!
//! The models have long chains, values with several consumers, nodes with very many operands, dimensions that double
//! repeatedly, or constants and loops that would exceed memory or time.

use crate::watch::Tally;
use crate::{Outcome, Subject};
use prost::Message;
use sardonyx::compile::{Request, compile};
use sardonyx::onnx::proto::{AttributeProto, GraphProto, attribute_type};
use sardonyx_base::{DType, Fault};
use sardonyx_tests::damage::Random;
use sardonyx_tests::onnx::Net;
use std::path::Path;
use tempfile::TempDir;

pub struct Bombs {
    folder: TempDir,
    last: Vec<u8>,
}

/// Divisor of `NODES_MAX`: a debug build takes many times as long as a release build.
const SCALE: usize = if cfg!(debug_assertions) { 64 } else { 1 };
const NODES_MAX: usize = 20_000 / SCALE;

static UNARY: &[&str] =
    &["Neg", "Sin", "Relu", "Exp", "Sigmoid", "Softmax", "Tanh", "Abs", "Sqrt", "Identity", "Transpose", "Floor"];
/// Operators to apply to a large constant, each with its further operands.
static OF_CONSTANTS: &[(&str, &str)] = &[
    ("ReduceSum", ""),
    ("ReduceMax", ""),
    ("ReduceMean", ""),
    ("ArgMax", ""),
    ("Gather", " one"),
    ("CumSum", " one"),
    ("Tile", " twos"),
    ("Expand", " twos"),
    ("NonZero", ""),
    ("Exp", ""),
];
static BINARY: &[&str] = &["Add", "Mul", "Max", "Min", "Sub", "Div", "Pow"];

impl Bombs {
    pub fn open() -> Box<dyn Subject> {
        Box::new(Bombs { folder: tempfile::tempdir().expect("a temporary folder"), last: vec![] })
    }

    /// More than a third must compile: most bombs are legal models, however much they demand.
    pub fn check(tally: &Tally) {
        let compiled = tally.count(|w| w.ends_with("compiled"));
        assert!(compiled * 3 > tally.total(), "{compiled} compiled, of {}", tally.total());
    }
}

impl Subject for Bombs {
    fn attempt(&mut self, seed: u64) -> Outcome {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xb0b);
        let (family, net) = bomb(&mut random);
        self.last = net.model.encode_to_vec();
        let [model, output] = ["model.onnx", "out.sdx"].map(|name| self.folder.path().join(name));
        std::fs::write(&model, &self.last).expect("a temporary folder takes a model");
        let _ = std::fs::remove_file(&output);
        match compile(&Request::new(&model, &output)) {
            Ok(_) => Outcome::Fine(format!("{family} compiled")),
            Err(e) if e.fault != Fault::User => Outcome::Fault(format!("{family}: {e}")),
            Err(e) => Outcome::Fine(format!("{family} refused {}", e.code)),
        }
    }

    fn keep(&self, path: &Path) {
        std::fs::write(path, &self.last).expect("a temporary folder takes a model");
    }
}

fn one<'a>(of: &[&'a str], random: &mut Random) -> &'a str {
    of[random.below(of.len())]
}

fn bomb(random: &mut Random) -> (&'static str, Net) {
    let x = Net::new().input("x", DType::F32, "n 6");
    let n = NODES_MAX >> random.below(4);
    match random.below(7) {
        0 => {
            let op = one(UNARY, random);
            ("chain", chain(x, n, |t, _| (op.to_string(), t(0))))
        }
        1 => {
            let op = one(BINARY, random);
            ("chain with x", chain(x, n, |t, _| (op.to_string(), format!("{} x", t(0)))))
        }
        2 => {
            let (op, back, n) = (one(BINARY, random), random.below(8), (n / 20).max(2));
            ("shared", chain(x, n, |t, i| (op.to_string(), format!("{} {}", t(0), t(back.min(i))))))
        }
        3 => ("joined", joined(x, n, random)),
        4 => ("constant", constant(x, random)),
        5 => ("loops", loops(x, 1 + random.below(13), 1 + random.below(3))),
        _ => {
            let doublings = 1 + random.below(70);
            let net = chain(x, doublings, |t, _| ("Concat".into(), format!("{0} {0}", t(0))));
            ("doubled", with_axis(net, random.below(2) as i64))
        }
    }
}

/// Adds a chain of n nodes. `step(t, i)` returns the operator and the operands of node i. `t(0)` is the name of the
/// previous value, `t(k)` that of the value k steps earlier; the value before the first node is `x`.
fn chain(mut net: Net, n: usize, mut step: impl FnMut(&dyn Fn(usize) -> String, usize) -> (String, String)) -> Net {
    for i in 0..n {
        let before = |k: usize| if i == k { "x".to_string() } else { format!("t{}", i - 1 - k) };
        let (op, operands) = step(&before, i);
        net = net.node(&format!("/{i}"), &op, &operands, &format!("t{i}"));
    }
    net.output(&format!("t{}", n - 1))
}

fn with_axis(mut net: Net, axis: i64) -> Net {
    for node in &mut net.graph().node {
        let r#type = attribute_type::INT;
        node.attribute.push(AttributeProto { name: "axis".into(), i: axis, r#type, ..Default::default() });
    }
    net
}

/// One node with very many operands.
fn joined(net: Net, n: usize, random: &mut Random) -> Net {
    let op = one(&["Concat", "Sum", "Max", "Min", "Mean"], random);
    let distinct = random.below(3);
    let mut net = net;
    for i in 0..distinct {
        net = net.node(&format!("/s{i}"), "Sin", "x", &format!("s{i}"));
    }
    let operand = |i: usize| if distinct == 0 { "x".into() } else { format!("s{}", i % distinct) };
    let operands: Vec<String> = (0..n.max(2) / if op == "Concat" { 1 } else { 8 }).map(operand).collect();
    let net = net.node("/all", op, &operands.join(" "), "y");
    let net = if op == "Concat" { net.int("axis", random.below(2) as i64) } else { net };
    net.output("y")
}

/// A constant of up to 2^62 equal elements, and an operator over all of them.
fn constant(net: Net, random: &mut Random) -> Net {
    let (op, others) = OF_CONSTANTS[random.below(OF_CONSTANTS.len())];
    let sides = [0; 2].map(|_| 1_i64 << random.below(32));
    let net = net.i64s("sides", &sides).i64s("one", &[1]).i64s("twos", &[2, 2]);
    let net = net.node("/c", "ConstantOfShape", "sides", "c").node("/r", op, &format!("c{others}"), "r");
    net.node("/f", "Cast", "r", "f").int("to", DType::F32.onnx_code().into()).node("/y", "Add", "x f", "y").output("y")
}

/// Nested loops, each of up to 2^13 iterations, that do not depend on the input.
fn loops(net: Net, turns: usize, depth: usize) -> Net {
    let mut body = scope("i0", "c0", "v0").node("/add", "Add", "v0 half", "w0").output("w0");
    for level in 1..depth {
        let [i, c, v, w] = ["i", "c", "v", "w"].map(|name| format!("{name}{level}"));
        let outer = scope(&i, &c, &v);
        body = with_body(outer.node(&format!("/{level}"), "Loop", &format!("turns _ {v}"), &w), &mut body).output(&w);
    }
    let net = net.i64s("turns", &[1 << turns]).f32s("half", &[1]).node("/all", "Loop", "turns _ half", "r");
    with_body(net, &mut body).node("/y", "Add", "x r", "y").output("y")
}

/// Returns the body of a loop with one carried value, without the computation. The body returns the condition
/// unchanged, so the loop never ends early.
fn scope(turn: &str, goes_on: &str, carried: &str) -> Net {
    let net = Net::new().input(turn, DType::I64, "").input(goes_on, DType::Bool, "").input(carried, DType::F32, "1");
    let next = format!("{goes_on}_next");
    net.node(&format!("/{goes_on}"), "Identity", goes_on, &next).output(&next)
}

fn with_body(mut net: Net, body: &mut Net) -> Net {
    let graph: GraphProto = std::mem::take(body.graph());
    let (name, g, r#type) = ("body".into(), Some(Box::new(graph)), attribute_type::GRAPH);
    let node = net.graph().node.last_mut().expect("the loop is there");
    node.attribute.push(AttributeProto { name, g, r#type, ..Default::default() });
    net
}
