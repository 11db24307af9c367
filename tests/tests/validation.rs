//! compile --validate: nearly every rewrite is checked; a wrong rule ends the compilation and is named

use sardonyx::compile::{Request, compile};
use sardonyx_base::Result;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Graph, Node, Op, Value};
use sardonyx_passes::{Options, Rewrites, with_rule};
use sardonyx_tests::prepared::model;

fn validated() -> Result<Rewrites> {
    let folder = tempfile::tempdir().unwrap();
    let (model, path) = (model("skel_minilm_l6_safetensors"), folder.path().join("model.sdx"));
    let mut request = Request::new(&model, &path);
    request.options = Options { validate: true, ..Options::default() };
    compile(&request).map(|report| report.rewrites)
}

#[test]
fn nearly_all_rewrites_of_a_model_are_checked() {
    let rewrites = validated().unwrap();
    let validation = rewrites.validation().unwrap();
    let skipped: usize = validation.skipped.values().sum();
    assert!(validation.checked > 500, "{}", validation.line());
    assert!(skipped * 20 < validation.checked, "{}", validation.line());
}

const NODE: &str = "/m/encoder/layer.3/intermediate/intermediate_act_fn/Div";

/// Wrong rule: x / c  =>  x * c, as if c were its own reciprocal, in the GELU of the fourth layer.
fn planted(_: &Graph, node: &Node) -> Option<(Op, Vec<Value>)> {
    let here = matches!(node.op, Op::Map(ScalarFn::Div)) && node.origins.iter().any(|o| o == NODE);
    here.then(|| (Op::Map(ScalarFn::Mul), node.args.clone()))
}

#[test]
fn a_wrong_rule_is_named() {
    let error = with_rule("multiply-by-the-divisor", planted, validated).unwrap_err();
    assert_eq!((error.code, error.node.as_deref()), ("E0901", Some(NODE)));
    let message = &error.message;
    assert!(message.contains("(simplify: multiply-by-the-divisor) changes what `main` computes: element "), "{error}");
}
