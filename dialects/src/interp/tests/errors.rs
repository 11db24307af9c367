//! Mistakes in a call, a graph or its symbols, and the error that each one gives

use super::*;
use crate::scalar::ScalarFn;
use crate::sdx::{Check, WindowSpec};

fn two_inputs() -> Graph {
    let mut g = Graph::default();
    g.symbols.insert("n".to_string(), symbol(SymbolKind::Input, 1, Some(4)));
    let a = add_input(&mut g, "a", ty(DType::F32, &["n", "2"]));
    add_input(&mut g, "b", ty(DType::F32, &["n", "n + 1"]));
    g.outputs = vec![("a".to_string(), a)];
    g
}

fn call(inputs: &[(&str, Tensor)]) -> Box<Error> {
    run(&two_inputs(), &no_params, &named(inputs)).unwrap_err()
}

fn zeros(dims: &[usize]) -> Tensor {
    Tensor::zeros(DType::F32, dims.to_vec())
}

#[test]
fn wrong_inputs_are_named() {
    let good = || ("a", zeros(&[2, 2]));
    assert!(run(&two_inputs(), &no_params, &named(&[("b", zeros(&[2, 3])), good()])).is_ok());
    let cases: &[(&[(&str, Tensor)], &str)] = &[
        (&[good()], "the input `b` is missing"),
        (&[good(), good()], "the input `a` is given twice"),
        (&[good(), ("c", zeros(&[1]))], "the input `c` is not one of the model's"),
        (&[good(), ("b", i64s(&[0], &[]))], "the input `b` has elements of type i64, not f32"),
        (&[good(), ("b", zeros(&[2]))], "the input `b` has rank 1, not 2"),
        (&[good(), ("b", zeros(&[3, 3]))], "the input `b` has 3 in dimension 0, but `n` is 2"),
        (&[good(), ("b", zeros(&[2, 2]))], "the input `b` has 2 in dimension 1, but `n + 1` is 3"),
        (&[("a", zeros(&[2, 3])), ("b", zeros(&[2, 3]))], "the input `a` has 3 in dimension 1, but `2` is 2"),
        (&[("a", zeros(&[5, 2])), ("b", zeros(&[5, 6]))], "`n` is 5, but must be between 1 and 4"),
        (&[("a", zeros(&[0, 2])), ("b", zeros(&[0, 1]))], "`n` is 0, but must be between 1 and 4"),
    ];
    for (inputs, message) in cases {
        let e = call(inputs);
        assert_eq!((e.code, e.message.as_str()), ("E0301", *message));
    }
}

#[test]
fn an_expression_is_solved_and_a_derived_symbol_keeps_its_range() {
    let mut g = Graph::default();
    let past = add_input(&mut g, "mask", ty(DType::F32, &["past + seq"]));
    add_input(&mut g, "ids", ty(DType::F32, &["seq"]));
    let all = add(&mut g, Op::Broadcast { dims: vec![1] }, &[past], ty(DType::F32, &["past", "past + seq"]));
    g.outputs = vec![("y".to_string(), all)];
    let kind = SymbolKind::Derived { equals: Dim::parse("past + seq").unwrap(), why: "/cat".into() };
    g.symbols.insert("total".into(), symbol(kind, 0, Some(6)));
    let call =
        |mask: usize, ids: usize| run(&g, &no_params, &named(&[("mask", zeros(&[mask])), ("ids", zeros(&[ids]))]));
    assert_eq!(call(5, 3).unwrap()[0].1.dims(), [2, 5]);
    assert_eq!(call(3, 3).unwrap()[0].1.dims(), [0, 3]);
    let message = |mask: usize, ids: usize| call(mask, ids).unwrap_err().message;
    assert_eq!(message(2, 3), "the input `mask` has 2 in dimension 0, for which `past + seq` has no solution");
    assert_eq!(message(7, 3), "`total` is 7, but must be between 0 and 6");
}

#[test]
fn a_violated_check_names_the_node_that_needs_it() {
    let mut g = two_inputs();
    let why = "/a/MatMul".to_string();
    g.checks.push(Check { left: Dim::symbol("n"), right: Dim::constant(3), why });
    let e = run(&g, &no_params, &named(&[("a", zeros(&[2, 2])), ("b", zeros(&[2, 3]))])).unwrap_err();
    assert_eq!((e.code, e.message.as_str()), ("E0201", "`n` is 2 and `3` is 3, but they must be equal"));
    assert_eq!(e.node.as_deref(), Some("/a/MatMul"));
}

#[test]
fn dimensions_other_than_the_type_says_are_refused() {
    let mut g = two_inputs();
    let a = g.outputs[0].1;
    add(&mut g, Op::Map(ScalarFn::Neg), &[a], ty(DType::F32, &["n", "3"]));
    let e = run(&g, &no_params, &named(&[("a", zeros(&[2, 2])), ("b", zeros(&[2, 3]))])).unwrap_err();
    let text = "the dimensions are [2, 2], but its type !sdx.tensor<[n, 3], f32> says [2, 3]";
    assert_eq!((e.code, e.message.as_str(), e.node.as_deref()), ("E0201", text, Some("/n/2")));
}

#[test]
fn sizes_are_refused_before_anything_is_allocated() {
    let iota = |dims: &[&str]| evaluate(&node(Op::Iota { axis: 0 }, ty(DType::I64, dims)), &[], &|_| Some(3));
    assert_eq!(iota(&["n - 4"]).unwrap_err().code, "E0201");
    assert_eq!(iota(&["1000000", "1000000"]).unwrap_err().code, "E0202");
    assert_eq!(iota(&["4611686018427387904", "8", "0"]).unwrap_err().code, "E0202");
    assert_eq!(iota(&["4611686018427387904*n"]).unwrap_err().code, "E0202");
    let unbound = evaluate(&node(Op::Iota { axis: 0 }, ty(DType::I64, &["n"])), &[], &|_| None).unwrap_err();
    assert_eq!(unbound.code, "E0204");
}

#[test]
fn unsupported_element_types_are_refused() {
    for dtype in [DType::String, DType::C64] {
        let e = op(Op::Iota { axis: 0 }, dtype, &[1], &[]).unwrap_err();
        assert_eq!(e.code, "E0107");
    }
}

#[test]
fn a_parameter_that_is_missing_or_of_another_shape_is_named() {
    let mut g = Graph::default();
    add(&mut g, Op::Param { name: "w".to_string(), parts: vec![], bounded: false }, &[], ty(DType::F32, &["2"]));
    assert!(run(&g, &no_params, &[]).unwrap_err().message.contains("no parameter `w`"));
    let e = run(&g, &|_: &str| Ok(zeros(&[3])), &[]).unwrap_err();
    assert_eq!((e.code, e.node.as_deref()), ("E0201", Some("/n/0")));
}

#[test]
fn malformed_graphs_are_defects_not_panics() {
    let x = zeros(&[2, 2]);
    let one = std::slice::from_ref(&x);
    let two = &[x.clone(), x.clone()];
    let spec = |text| Op::Contract(crate::sdx::ContractSpec::parse(text).unwrap());
    let scalar_value = &[x.clone(), i64s(&[], &[0])];
    let cases: &[(Op, &[Tensor])] = &[
        (Op::Map(ScalarFn::Add), one),
        (Op::Map(ScalarFn::Neg), &[]),
        (Op::Map(ScalarFn::And), two),
        (Op::Reduce { f: crate::scalar::ReduceFn::Add, axes: vec![2] }, one),
        (Op::Reduce { f: crate::scalar::ReduceFn::Add, axes: vec![1, 0] }, one),
        (spec("k,k->"), two),
        (Op::Gather { axis: 3 }, two),
        (Op::Slice { starts: vec![], steps: vec![] }, one),
        (Op::Pad { low: vec![0.into(), 0.into()] }, scalar_value),
        (Op::Window(WindowSpec { axis: 3, size: 1.into(), stride: 1, dilation: 1 }), one),
        (Op::Concat { axis: 0 }, &[]),
        (Op::Concat { axis: 2 }, two),
        (Op::Transpose { perm: vec![0, 0] }, one),
        (Op::Broadcast { dims: vec![1, 0] }, one),
        (Op::Iota { axis: 2 }, &[]),
        (Op::Iota { axis: 0 }, &[]),
        (Op::Reshape, two),
        (Op::Input { name: "x".to_string(), parts: vec![] }, &[]),
    ];
    for (case, args) in cases {
        let e = op(case.clone(), DType::F32, &[2, 2], args).unwrap_err();
        assert_eq!(e.code, "E0901", "{case:?}: {e}");
    }
    let mut g = Graph::default();
    let late = Value(3);
    add(&mut g, Op::Reshape, &[late], ty(DType::F32, &[]));
    assert_eq!(run(&g, &no_params, &[]).unwrap_err().code, "E0901");
    let g = Graph { outputs: vec![("y".to_string(), late)], ..Graph::default() };
    assert_eq!(run(&g, &no_params, &[]).unwrap_err().code, "E0901");
}

#[test]
fn contraction_extents_must_agree() {
    let spec = crate::sdx::ContractSpec::parse("mk,kn->mn").unwrap();
    let e = op(Op::Contract(spec), DType::F32, &[2, 2], &[zeros(&[2, 3]), zeros(&[4, 2])]).unwrap_err();
    assert_eq!((e.code, e.message.as_str()), ("E0201", "in `mk,kn->mn`, `k` is 3 on the left and 4 on the right"));
}
