//! A program after `quantize` is close to the original, and later passes change its results by at most 0.5 %

use super::random::{Random, tensor};
use melior::Context;
use melior::ir::Module;
use sardonyx_base::compare::{Instead, Tolerance, compare};
use sardonyx_base::{DType, Error, Result, Tensor};
use sardonyx_dialects::flow::Program;
use sardonyx_dialects::interp;
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::sdx::Graph;
use sardonyx_passes::{Options, Rewrites};
use std::collections::BTreeMap;

/// Normalized rows, and two matrix products with a bias and tanh between them.
static TEXT: &str = r#"
!x = !sdx.tensor<[m, 96], f32>
!h = !sdx.tensor<[m, 128], f32>
func.func @main(%x: !x) -> !x {
  %v = sdx.param "v" : !sdx.tensor<[96, 128], f32>
  %w = sdx.param "w" : !sdx.tensor<[128, 96], f32>
  %b = sdx.param "b" : !sdx.tensor<[128], f32>
  %0 = sdx.map "mul"(%x, %x) : (!x, !x) -> !x
  %1 = sdx.reduce "add" %0 axes [1] : !x -> !sdx.tensor<[m], f32>
  %2 = sdx.map "sqrt"(%1) : (!sdx.tensor<[m], f32>) -> !sdx.tensor<[m], f32>
  %3 = sdx.broadcast %2 to [0] : !sdx.tensor<[m], f32> -> !x
  %4 = sdx.map "div"(%x, %3) : (!x, !x) -> !x
  %5 = sdx.contract "mk,kn->mn"(%4, %v) : (!x, !sdx.tensor<[96, 128], f32>) -> !h
  %6 = sdx.broadcast %b to [1] : !sdx.tensor<[128], f32> -> !h
  %7 = sdx.map "add"(%5, %6) : (!h, !h) -> !h
  %8 = sdx.map "tanh"(%7) : (!h) -> !h
  %9 = sdx.contract "mk,kn->mn"(%8, %w) : (!h, !sdx.tensor<[128, 96], f32>) -> !x
  return %9 : !x
}"#;

/// Passes after `quantize`, including those that have nothing to do for some of the options.
static BEHIND: &[&str] = &[
    "sdx-to-flow",
    "prepare-weights",
    "fuse",
    "inline-maps",
    "fuse-siblings",
    "int8-contractions",
    "expand-weights",
    "choose-layouts",
    "pack-weights",
];

/// Options, largest relative error (L2) of the result, and number of sums of integers. The error of a code is at most
/// half a step, and a step of 8 bits is 1/127 of the largest magnitude that shares the scale. The last product keeps 8
/// bits. The relative error of an 8-bit float is at most 1/16.
static FORMS: &[(&str, f64, usize)] = &[
    ("quantize=int8", 0.02, 2),
    ("quantize=int8 activations=f32", 0.02, 0),
    ("quantize=int4", 0.15, 2),
    ("quantize=int4 activations=f32", 0.15, 0),
    ("quantize=int4 group=channel", 0.2, 2),
    ("quantize=int3 group=32", 0.3, 2),
    ("quantize=fp8", 0.1, 0),
    ("quantize=fp8 group=32", 0.1, 0),
];
/// Largest relative difference (L2) between the results after a later pass and those after `quantize`: adding in
/// another order may move a value to the next code.
const BEHIND_IT: f64 = 0.005;

pub fn check(context: &Context) {
    FORMS.iter().for_each(|(form, most, sums)| check_form(context, form, *most, *sums));
}

fn check_form(context: &Context, form: &str, most: f64, sums: usize) {
    let mut r = Random::new(11);
    let sizes = [("v", vec![96, 128]), ("w", vec![128, 96]), ("b", vec![128])];
    // `tensor` draws multiples of 1/4, which codes could represent exactly.
    let uneven = |(i, x): (usize, f32)| x + (i as f32).sin();
    let mut param = |dims: Vec<usize>| {
        let values = tensor(&mut r, DType::F32, dims.clone()).to_vec::<f32>().expect("floats");
        Tensor::from_vec(dims, values.into_iter().enumerate().map(uneven).collect())
    };
    let params: BTreeMap<String, Tensor> =
        sizes.into_iter().map(|(name, dims)| (name.to_string(), param(dims))).collect();
    let param = |name: &str| -> Result<Tensor> {
        params.get(name).cloned().ok_or_else(|| Error::defect(format!("no parameter `{name}`")))
    };
    let inputs = vec![("arg0".to_string(), tensor(&mut r, DType::F32, vec![5, 96]))];
    let mut module = Module::parse(context, TEXT).expect("the text is a module");
    let mut options = Options { validate: true, ..Options::default() };
    form.split(' ').for_each(|option| options.set(option).expect("an option"));
    let mut rewrites = Rewrites::new(options);
    let mut pass = |module: &mut Module, name: &str| {
        let pipeline = format!("builtin.module({name})");
        sardonyx_passes::run_pipeline_with(context, module, &pipeline, &mut rewrites)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
    };
    fn function<'m>(module: &'m Module) -> Operation<'m> {
        Operation::of_module(module).block(0).expect("a body").operations()[0]
    }
    let graph = |module: &Module| Graph::read(function(module)).expect("a graph");
    let near = |got: &Tensor, wanted: &Tensor, most: f64, what: &str| {
        let tolerance = Tolerance { rtol: 0.0, atol: 0.0, instead: Some(Instead::Length(most)) };
        let found = compare(got, wanted, &tolerance).expect("tensors of one form");
        assert!(found.n_failed == 0, "{form}, {what}: the relative error is {}", found.relative);
        found.relative
    };
    let exact = interp::run(&graph(&module), &param, &inputs).expect("it runs").remove(0).1;
    pass(&mut module, "quantize");
    let wanted = interp::run(&graph(&module), &param, &inputs).expect("it runs").remove(0).1;
    assert!(near(&wanted, &exact, most, "quantize") > 1e-4, "{form}: nothing was rounded");
    for name in BEHIND {
        pass(&mut module, name);
        let program = Program::read_whole(function(&module), Operation::of_module(&module)).expect("a program");
        let got = interp::run_program(&program, &param, &inputs).unwrap_or_else(|e| panic!("{name}: {e}")).remove(0).1;
        near(&got, &wanted, BEHIND_IT, name);
    }
    let text = function(&module).to_string();
    assert_eq!(text.matches("i32 -> i32").count(), sums, "{form}: bytes are multiplied as bytes: {text}");
    for weights in ["[96, 128], f32", "[128, 96], f32"] {
        assert!(!text.contains(weights), "{form}: weights stay as they are: {text}");
    }
}
