//! models with one node that prevents a fusion  =>  remarks that name this node, and none for the same model without it

use melior::ir::Module;
use sardonyx::pipeline::STAGES;
use sardonyx_dialects::flow::{FlowOp, Program};
use sardonyx_dialects::mlir::{Attr, Operation};
use sardonyx_passes::{Options, Rewrites};
use std::path::Path;

/// (file, [(pass, reason, node)]): all remarks about the function `near`; there are none about the function `good`.
type Row = (&'static str, &'static [(&'static str, &'static str, &'static str)]);

static NEAR_MISSES: &[Row] = &[
    (
        "attention_averages_weights",
        &[
            ("fuse-attention", "another kernel reads the weights", "/average"),
            ("fuse-reductions", "the reader reduces across the rows", "/average"),
        ],
    ),
    ("attention_in_batches", &[("fuse-attention", "the scores are reshaped before the softmax", "/flatten")]),
    (
        "attention_over_queries",
        &[("fuse-attention", "the softmax goes along another dimension than the sum", "/Softmax")],
    ),
    ("attention_returns_scores", &[("fuse-attention", "the scores are an output of the model", "/scale")]),
    ("attention_returns_weights", &[("fuse-attention", "the weights are an output of the model", "/Softmax")]),
    (
        "gated_by_itself",
        &[
            ("fuse-epilogues", "another kernel lies between", "/gate/MatMul"),
            ("fuse-epilogues", "the reader needs a point more than once", "/Mul"),
        ],
    ),
    ("gathered_rows", &[("fuse-epilogues", "the reader looks at places that are read from data", "/Gather")]),
    ("joined_before_relu", &[("fuse-epilogues", "the reader looks beyond the edge", "/Concat")]),
    (
        "read_by_two",
        &[
            ("inline-maps", "a contraction computes nothing on its operands", "/Exp"),
            ("inline-maps", "another kernel reads the result too", "/MatMul"),
        ],
    ),
    ("repeated_after_exp", &[("inline-maps", "the reader needs a point more than once", "/Add")]),
    ("returned_in_the_middle", &[("inline-maps", "the result is an output of the model", "/Exp")]),
    ("variance_of_another_axis", &[("fuse-reductions", "the reader reduces across the rows", "/variance")]),
];

/// Remarks, each as (function, pass, reason, node).
type Told = Vec<(String, &'static str, &'static str, String)>;

fn compiled(name: &str) -> (Vec<(String, usize)>, Told) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/near_misses/models/{name}.mlir"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let context = sardonyx_passes::context();
    let mut module = Module::parse(&context, &text).unwrap_or_else(|| panic!("{name}.mlir cannot be parsed"));
    let passes = STAGES.iter().take_while(|(stage, _)| *stage != "pack-weights").map(|(_, passes)| *passes);
    let passes: Vec<&str> = passes.filter(|p| !p.is_empty()).collect();
    let mut rewrites = Rewrites::new(Options { remarks: true, ..Options::default() });
    let pipeline = format!("builtin.module({})", passes.join(","));
    sardonyx_passes::run_pipeline_with(&context, &mut module, &pipeline, &mut rewrites).unwrap();
    let functions = Operation::of_module(&module).block(0).unwrap().operations();
    let kernels = functions.into_iter().filter(|op| op.name() == "func.func").map(|function| {
        let program = Program::read(function).unwrap();
        let n = program.steps.iter().filter(|s| matches!(s.op, FlowOp::Kernel(_))).count();
        (function.attr("sym_name").and_then(Attr::as_str).unwrap(), n)
    });
    let told = rewrites.remarks().iter();
    let told = told.map(|r| (r.function.clone(), r.pass, r.missed.reason, r.missed.node.clone().unwrap_or_default()));
    (kernels.collect(), told.collect())
}

#[test]
fn the_node_in_the_way_is_named() {
    for (name, expected) in NEAR_MISSES {
        let (kernels, told) = compiled(name);
        let mut of_near: Told = told.into_iter().filter(|t| t.0 == "near").collect();
        of_near.sort();
        let expected = expected.iter().map(|&(pass, reason, node)| ("near".into(), pass, reason, node.into()));
        assert_eq!(of_near, expected.collect::<Told>(), "{name}");
        let of = |function: &str| kernels.iter().find(|(f, _)| f == function).expect("both functions").1;
        assert!(of("near") > of("good"), "{name}: {kernels:?}");
    }
}

#[test]
fn without_the_node_nothing_is_told() {
    for (name, _) in NEAR_MISSES {
        let (_, told) = compiled(name);
        let good: Vec<_> = told.iter().filter(|t| t.0 == "good").collect();
        assert!(good.is_empty(), "{name}: {good:?}");
    }
}

#[test]
fn every_model_is_in_the_table() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/near_misses/models");
    let files = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let mut names: Vec<String> = files.map(|f| f.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, NEAR_MISSES.iter().map(|(name, _)| *name).collect::<Vec<_>>());
}
