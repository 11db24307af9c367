//! Wrong operations, indices and rules are found; equal programs are accepted; repeated parts are not run again

use super::{Validation, Verdict, compare_programs, compare_values};
use crate::class::Class;
use crate::options::Options;
use crate::registry;
use crate::rewrite::Rewrites;
use melior::ir::Module;
use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::{Body, FlowOp, Kernel, Program};
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::{Graph, Node, Op, TensorType, Value};
use sardonyx_kernels::Target;
use std::sync::Arc;

fn program(text: &str) -> Program {
    let context = registry::context();
    let module = Module::parse(&context, text).unwrap();
    let module = Operation::of_module(&module);
    Program::read(module.block(0).unwrap().operations()[0]).unwrap()
}

/// Builds z = (x − y) · 2, by two kernels.
fn two_kernels() -> Program {
    program(
        "!x = !flow.container<[b, 8], f32, row_major>
         func.func @f(%x: !x, %y: !x) -> !x {
           %0 = flow.kernel outer [\"b\", \"8\"] inner [] (%x, %y) : (!x, !x) -> !x {
             %a = flow.load 0 [\"%0\", \"%1\"] : f32
             %b = flow.load 1 [\"%0\", \"%1\"] : f32
             %c = flow.apply \"sub\"(%a, %b) : (f32, f32) -> f32
             flow.store %c to 0 [\"%0\", \"%1\"] : f32
           }
           %1 = flow.kernel outer [\"b\", \"8\"] inner [] (%0) : (!x) -> !x {
             %a = flow.load 0 [\"%0\", \"%1\"] : f32
             %b = flow.scalar 2.0 : f32
             %c = flow.apply \"mul\"(%a, %b) : (f32, f32) -> f32
             flow.store %c to 0 [\"%0\", \"%1\"] : f32
           }
           return %1 : !x
         }",
    )
}

fn kernel(p: &mut Program, step: usize) -> &mut Kernel {
    match &mut p.steps[step].op {
        FlowOp::Kernel(k) => Arc::make_mut(k),
        other => panic!("{other:?} is no kernel"),
    }
}

fn verdict(before: &Program, after: &Program, class: Class) -> Verdict {
    match compare_programs((before, after), false, class, 1, 1) {
        Ok(part) => (part.run)(),
        Err(reason) => Verdict::Skipped(reason),
    }
}

#[test]
fn an_equal_program_is_equal() {
    let before = two_kernels();
    let mut after = before.clone();
    // 2·x instead of x·2.
    kernel(&mut after, 1).body[2].body = Body::Apply { f: ScalarFn::Mul, args: vec![1, 0] };
    assert_eq!(verdict(&before, &after, Class::Exact), Verdict::Equal);
    // x + x
    kernel(&mut after, 1).body[2].body = Body::Apply { f: ScalarFn::Add, args: vec![0, 0] };
    assert_eq!(verdict(&before, &after, Class::Exact), Verdict::Equal);
}

#[test]
fn a_wrong_operation_is_found() {
    let before = two_kernels();
    let mut after = before.clone();
    kernel(&mut after, 0).body[2].body = Body::Apply { f: ScalarFn::Sub, args: vec![1, 0] };
    let Verdict::Differs(what) = verdict(&before, &after, Class::Exact) else { panic!("y - x is not x - y") };
    assert!(what.contains("of f32") && what.contains("exactly"), "{what}");
}

#[test]
fn a_wrong_place_is_found() {
    let before = two_kernels();
    let mut after = before.clone();
    let Body::Load { memlet, .. } = &mut kernel(&mut after, 1).body[0].body else { panic!("a load") };
    memlet.index[1] = Dim::constant(7) - Kernel::var(1);
    assert!(matches!(verdict(&before, &after, Class::Reassociating), Verdict::Differs(_)));
    let Body::Load { memlet, .. } = &mut kernel(&mut after, 1).body[0].body else { panic!("a load") };
    memlet.index[1] = Kernel::var(1) + Dim::constant(1);
    let Verdict::Differs(what) = verdict(&before, &after, Class::Exact) else { panic!("beyond the edge") };
    assert!(what.starts_with("what it became fails"), "{what}");
}

#[test]
fn only_what_changed_is_run() {
    let mut before = two_kernels();
    // The first kernel did not change and would be too large for the interpreter, so it is not run.
    let wide = |p: &mut Program| {
        for c in &mut p.containers {
            c.dims[1] = Dim::constant(8);
        }
    };
    wide(&mut before);
    kernel(&mut before, 0).inner = vec![Dim::constant(1 << 40)];
    let mut after = before.clone();
    kernel(&mut after, 1).body[2].body = Body::Apply { f: ScalarFn::Add, args: vec![0, 0] };
    assert_eq!(verdict(&before, &after, Class::Exact), Verdict::Equal);
    kernel(&mut after, 0).body[2].body = Body::Apply { f: ScalarFn::Sub, args: vec![1, 0] };
    assert_eq!(verdict(&before, &after, Class::Exact), Verdict::Skipped("too large to interpret"));
}

/// The logarithm of mostly negative numbers is NaN and proves nothing, so the operands are drawn as positive numbers.
#[test]
fn operands_suit_a_domain() {
    let mut before = two_kernels();
    kernel(&mut before, 1).body[2].body = Body::Apply { f: ScalarFn::Log, args: vec![0] };
    let mut after = before.clone();
    kernel(&mut after, 1).body[2].body = Body::Apply { f: ScalarFn::Sqrt, args: vec![0] };
    assert!(matches!(verdict(&before, &after, Class::Exact), Verdict::Differs(_)));
    // Now all results are NaN, so nothing can be compared.
    kernel(&mut before, 1).body[1].body = Body::Const(f64::NAN);
    kernel(&mut before, 1).body[2].body = Body::Apply { f: ScalarFn::Mul, args: vec![0, 1] };
    assert_eq!(verdict(&before, &after, Class::Exact), Verdict::Skipped("no random operands suit it"));
}

#[test]
fn equal_parts_are_run_once() {
    let before = two_kernels();
    let mut after = before.clone();
    kernel(&mut after, 1).body[2].body = Body::Apply { f: ScalarFn::Add, args: vec![0, 0] };
    let mut validation = Validation::default();
    for _ in 0..3 {
        assert_eq!(validation.check(&|depth| compare_programs((&before, &after), false, Class::Exact, 1, depth)), None);
    }
    assert_eq!((validation.checked, validation.repeated), (3, 2));
    assert_eq!(validation.line(), "3 rewrites checked (2 of them repeat another)");
}

fn map(graph: &mut Graph, f: ScalarFn, args: &[Value]) -> Value {
    let ty = graph.ty(args[0]).clone();
    graph.push(Node { op: Op::Map(f), args: args.to_vec(), ty, origins: vec![] })
}

#[test]
fn values_are_free_only_where_none_is_made_of_another() {
    let mut g = Graph::default();
    let ty = TensorType::new(DType::F32, vec![Dim::constant(5)]);
    let x = g.push(Node { op: Op::Input { name: "x".into(), parts: vec![] }, args: vec![], ty, origins: vec![] });
    let e = map(&mut g, ScalarFn::Exp, &[x]);
    let left = map(&mut g, ScalarFn::Mul, &[e, x]);
    let right = map(&mut g, ScalarFn::Mul, &[x, e]);
    let wrong = map(&mut g, ScalarFn::Mul, &[e, e]);
    let none = |_: Value| (f64::NEG_INFINITY, f64::INFINITY);
    let check = |a, b, class| compare_values(&g, g.nodes.len(), (a, b), class, &none, 7, 1).map(|part| (part.run)());
    assert_eq!(check(left, right, Class::Exact), Ok(Verdict::Equal));
    assert!(matches!(check(left, wrong, Class::FiniteOnly), Ok(Verdict::Differs(_))));
}

/// Returns the rules that were applied, and the summary of their checks.
pub fn validated(text: &str, passes: &str) -> sardonyx_base::Result<(Vec<&'static str>, String)> {
    validated_for(Target::cpu(), text, passes)
}

pub fn validated_for(target: Target, text: &str, passes: &str) -> sardonyx_base::Result<(Vec<&'static str>, String)> {
    let context = registry::context();
    let mut module = Module::parse(&context, text).unwrap();
    let mut rewrites = Rewrites::new(Options { validate: true, target, ..Options::default() });
    registry::run_pipeline_with(&context, &mut module, &format!("builtin.module({passes})"), &mut rewrites)?;
    Ok((rewrites.applied().iter().map(|r| r.rule).collect(), rewrites.validation().unwrap().line()))
}

const SQUARE: &str = "!x = !sdx.tensor<[b, 8], f32>
    func.func @f(%x: !x) -> !x {
      %c = sdx.const dense<2.0> : tensor<f32> : !sdx.tensor<[], f32>
      %d = sdx.broadcast %c to [] : !sdx.tensor<[], f32> -> !x
      %0 = sdx.map \"pow\"(%x, %d) : (!x, !x) -> !x loc(\"/Pow\")
      %1 = sdx.map \"exp\"(%0) : (!x) -> !x loc(\"/Exp\")
      return %1 : !x
    }";

#[test]
fn a_pipeline_checks_what_it_applies() {
    let (rules, line) = validated(SQUARE, "simplify,sdx-to-flow,inline-maps").unwrap();
    assert_eq!(rules, ["square", "inline"]);
    assert_eq!(line, "2 rewrites checked (0 of them repeat another)");
}

/// Replaces exp x by tanh x.
fn planted(_: &Graph, node: &Node) -> Option<(Op, Vec<Value>)> {
    let here = matches!(node.op, Op::Map(ScalarFn::Exp));
    here.then(|| (Op::Map(ScalarFn::Tanh), node.args.clone()))
}

#[test]
fn a_wrong_rule_ends_the_compilation_and_is_named() {
    let error = crate::with_rule("tanh-for-exp", planted, || validated(SQUARE, "simplify")).unwrap_err();
    let message = "rewrite 2 (simplify: tanh-for-exp) changes what `f` computes: element 0 of f32 [";
    assert!(error.message.starts_with(message), "{error}");
    assert_eq!((error.code, error.node.as_deref()), ("E0901", Some("/Exp")));
    assert!(error.to_string().contains("`--fuel 1` compiles without it"), "{error}");
}

#[test]
fn two_sums_siblings_and_panels_are_checked() {
    let gated = "!x = !sdx.tensor<[b, 8], f32>
        !w = !sdx.tensor<[8, 40], f32>
        !y = !sdx.tensor<[b, 40], f32>
        func.func @f(%x: !x) -> (!y, !y, !y) {
          %g = sdx.param \"g\" : !w
          %u = sdx.param \"u\" : !w
          %0 = sdx.contract \"mk,kn->mn\"(%x, %g) : (!x, !w) -> !y
          %1 = sdx.contract \"mk,kn->mn\"(%x, %u) : (!x, !w) -> !y
          %2 = sdx.map \"tanh\"(%0) : (!y) -> !y
          %3 = sdx.map \"mul\"(%2, %1) : (!y, !y) -> !y
          %5 = sdx.slice %3 from [\"b - 1\", \"0\"] step [-1, 1] : !y -> !y
          %6 = sdx.map \"exp\"(%5) : (!y) -> !y
          %7 = sdx.map \"neg\"(%5) : (!y) -> !y
          return %3, %6, %7 : !y, !y, !y
        }";
    let passes = "sdx-to-flow,inline-maps,fuse-epilogues,fuse-siblings,pack-weights";
    let (rules, line) = validated(gated, passes).unwrap();
    for rule in ["epilogue", "siblings", "panels"] {
        assert!(rules.contains(&rule), "{rules:?}");
    }
    assert_eq!(line, format!("{} rewrites checked (0 of them repeat another)", rules.len()));
}

#[test]
fn results_of_siblings_in_the_wrong_order_are_found() {
    let one = |stores: [usize; 2]| {
        program(&format!(
            "!x = !flow.container<[b, 8], f32, row_major>
             func.func @f(%x: !x) -> (!x, !x) {{
               %0:2 = flow.kernel outer [\"b\", \"8\"] inner [] (%x) : (!x) -> (!x, !x) {{
                 %a = flow.load 0 [\"%0\", \"%1\"] : f32
                 %b = flow.apply \"exp\"(%a) : (f32) -> f32
                 %c = flow.apply \"neg\"(%a) : (f32) -> f32
                 flow.store %b to {} [\"%0\", \"%1\"] : f32
                 flow.store %c to {} [\"%0\", \"%1\"] : f32
               }}
               return %0#0, %0#1 : !x, !x
             }}",
            stores[0], stores[1]
        ))
    };
    assert_eq!(verdict(&one([0, 1]), &one([0, 1]), Class::Exact), Verdict::Equal);
    assert!(matches!(verdict(&one([0, 1]), &one([1, 0]), Class::Exact), Verdict::Differs(_)));
}
