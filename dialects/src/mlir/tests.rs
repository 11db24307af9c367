//! Values and attributes of unrelated blocks and contexts are refused; new operations stand where replaced ones stood

use super::*;

#[test]
fn an_empty_string_comes_back() {
    let context = melior::Context::new();
    assert_eq!(Context::new(&context).str("").as_str().as_deref(), Some(""));
    let empty = MlirStringRef { data: std::ptr::null(), length: 0 };
    // SAFETY: there are no bytes.
    assert_eq!(unsafe { copied(empty) }, "");
}

/// An `onnx.none` with these operands, in a context that allows operations of unknown dialects.
fn none<'c>(cx: Context<'c>, operands: &[Operand<'_>]) -> NewOperation<'c> {
    let results = [cx.element(sardonyx_base::DType::F32)];
    cx.build(Parts { name: "onnx.none", operands, results: &results, ..Parts::default() }).unwrap()
}

fn context() -> melior::Context {
    let context = melior::Context::new();
    context.set_allow_unregistered_dialects(true);
    context
}

#[test]
fn a_nested_block_uses_values_of_the_one_around_it() {
    let context = context();
    let cx = Context::new(&context);
    let outer = NewBlock::new(cx, &[cx.element(sardonyx_base::DType::F32)]);
    let inner = NewBlock::nested(cx, &[], &outer);
    inner.push(none(cx, &outer.arguments()));
    let loop_ = cx.build(Parts { name: "onnx.node", regions: vec![inner], ..Parts::default() }).unwrap();
    outer.push(loop_);
    let whole = cx.build(Parts { name: "func.func", regions: vec![outer], ..Parts::default() }).unwrap();
    let within = whole.operation().block(0).unwrap().operations()[0].block(0).unwrap().operations()[0];
    assert_eq!(within.operands()[0].key(), whole.operation().block(0).unwrap().arguments()[0].key());
}

#[test]
#[should_panic(expected = "uses a value of another block")]
fn a_value_of_a_block_beside_it_is_refused() {
    let context = context();
    let cx = Context::new(&context);
    let (left, right) = (NewBlock::new(cx, &[cx.element(sardonyx_base::DType::F32)]), NewBlock::new(cx, &[]));
    right.push(none(cx, &left.arguments()));
}

#[test]
#[should_panic(expected = "of another MLIR context")]
fn an_attribute_of_another_context_is_refused() {
    let (context, other) = (context(), context());
    let (cx, other) = (Context::new(&context), Context::new(&other));
    cx.array(&[other.unit()]);
}

#[test]
fn operations_of_a_module_are_replaced_where_they_were() {
    let context = context();
    let mut raw = melior::ir::Module::new(melior::ir::Location::unknown(&context));
    let mut module = Module::new(&mut raw);
    let cx = module.context();
    for name in ["onnx.a", "onnx.b", "onnx.c"] {
        module.push(cx.build(Parts { name, ..Parts::default() }).unwrap()).unwrap();
    }
    let build = |name| cx.build(Parts { name, ..Parts::default() }).unwrap();
    let rewrite = |op: Operation| match op.name().as_str() {
        "onnx.a" => Ok(Some(vec![])),
        "onnx.b" => Ok(Some(vec![build("onnx.d"), build("onnx.e")])),
        _ => Ok(None),
    };
    module.replace(rewrite).unwrap();
    let names: Vec<String> = module.operations().into_iter().map(Operation::name).collect();
    assert_eq!(names, ["onnx.d", "onnx.e", "onnx.c"]);
}
