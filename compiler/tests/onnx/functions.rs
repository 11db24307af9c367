//! Model-local functions: inlined with node names `caller/inner`, with attributes, overloads and absent values

use crate::build::*;
use sardonyx::onnx::proto::*;

fn with_functions(graph: GraphProto, functions: Vec<FunctionProto>) -> ModelProto {
    ModelProto { functions, ..model(graph) }
}

#[test]
fn nested_calls_get_paths_as_names() {
    let inner = function("inner", "a", "b", vec![node("Relu", "a", "t"), named("n", node("Neg", "t", "b"))]);
    let outer = function("outer", "p", "q", vec![named("call", call("inner", "p", "m")), node("Exp", "m", "q")]);
    let nodes = vec![named("f", call("outer", "x", "z")), call("outer", "z", "y")];
    let graph = read(&with_functions(graph("x", "y", nodes), vec![inner, outer])).unwrap().graph;
    let expected = "\
f/call/Relu_0: Relu(x) -> f/call/t
f/call/n: Neg(f/call/t) -> f/m
f/Exp_1: Exp(f/m) -> z
outer_1/call/Relu_0: Relu(z) -> outer_1/call/t
outer_1/call/n: Neg(outer_1/call/t) -> outer_1/m
outer_1/Exp_1: Exp(outer_1/m) -> y";
    assert_eq!(listing(&graph), expected);
}

#[test]
fn made_up_names_do_not_collide_with_the_graphs() {
    let f = function("f", "a", "b", vec![named("n", node("Relu", "a", "t")), node("Neg", "t", "b")]);
    let nodes = vec![named("c", call("f", "x", "c/t")), named("c/n", node("Exp", "c/t", "y"))];
    let graph = read(&with_functions(graph("x", "y", nodes), vec![f])).unwrap().graph;
    assert_eq!(listing(&graph), "c/n_1: Relu(x) -> c/t_1\nc/Neg_1: Neg(c/t_1) -> c/t\nc/n: Exp(c/t) -> y");
}

#[test]
fn attributes_come_from_the_call_or_the_default() {
    let body = vec![with(with(node("Op", "a", "b"), reference("axis", "given", 2)), reference("keep", "absent", 2))];
    let mut f = function("f", "a", "b", body);
    f.attribute = vec!["absent".into()];
    f.attribute_proto = vec![int("given", 7)];
    let nodes = vec![call("f", "x", "t"), with(call("f", "t", "y"), int("given", -1))];
    let model = with_functions(graph("x", "y", nodes), vec![f]);
    let graph = read(&model).unwrap().graph;
    let axes: Vec<_> = graph.nodes.iter().map(|n| (n.int("axis").unwrap(), n.int("keep").unwrap())).collect();
    assert_eq!(axes, [(Some(7), None), (Some(-1), None)]);
    let mut wrong = model;
    wrong.graph.as_mut().unwrap().node[1].attribute[0] = ints("given", &[1]);
    let e = refusal(&wrong);
    assert_eq!((e.code, e.node.as_deref()), ("E0106", Some("f_1/Op_0")));
}

#[test]
fn references_reach_into_subgraphs_and_constants() {
    let branch =
        graph("", "r", vec![with(node("Constant", "", "k"), reference("value_int", "n", 2)), node("Add", "a k", "r")]);
    let body = vec![with(node("If", "a", "b"), graph_attribute("then_branch", branch))];
    let nodes = vec![named("c", with(call("f", "x", "y"), int("n", 42)))];
    let graph = read(&with_functions(graph("x", "y", nodes), vec![function("f", "a", "b", body)])).unwrap().graph;
    let branch = graph.nodes[0].graph("then_branch").unwrap().unwrap();
    assert_eq!(listing(branch), "c/Add_1: Add(x, c/k) -> c/r");
    assert_eq!(branch.initializers[0].name, "c/k");
    assert_eq!(branch.initializers[0].data.get_i64(0), Some(42));
    assert_eq!(branch.outputs[0].name, "c/r");
}

#[test]
fn a_graph_attribute_may_be_used_twice() {
    let branch = graph("", "r", vec![named("inner", node("Neg", "x", "r"))]);
    let body = ["b", "c"].map(|out| with(node("If", "a", out), reference("then_branch", "g", attribute_type::GRAPH)));
    let f = function("f", "a", "b c", body.to_vec());
    let nodes = vec![with(call("f", "x", "y z"), graph_attribute("g", branch))];
    let graph = read(&with_functions(graph("x", "y z", nodes), vec![f])).unwrap().graph;
    let names: Vec<&str> = graph.nodes.iter().map(|n| n.subgraphs().next().unwrap().nodes[0].name.as_str()).collect();
    assert_eq!(names, ["inner_1", "inner_2"]);
}

#[test]
fn overloads_are_told_apart() {
    let mut f =
        [function("f", "a", "b", vec![node("Relu", "a", "b")]), function("f", "a", "b", vec![node("Neg", "a", "b")])];
    f[1].overload = "other".into();
    let mut nodes = [call("f", "x", "t"), call("f", "t", "y")];
    nodes[1].overload = "other".into();
    let proto = with_functions(graph("x", "y", nodes.to_vec()), f.to_vec());
    assert_eq!(listing(&read(&proto).unwrap().graph), "f_0/Relu_0: Relu(x) -> t\nf_1/Neg_0: Neg(t) -> y");
    f[1].overload = String::new();
    assert_eq!(refusal(&ModelProto { functions: f.to_vec(), ..proto }).code, "E0104");
}

#[test]
fn absent_inputs_and_outputs_stay_absent() {
    let f = function("f", "a b", "p q", vec![node("Clip", "a _ b", "p"), node("Relu", "a", "q")]);
    let nodes = vec![named("c", call("f", "x", "_ y"))];
    let graph = read(&with_functions(graph("x", "y", nodes), vec![f])).unwrap().graph;
    assert_eq!(listing(&graph), "c/Clip_0: Clip(x, _, _) -> c/p\nc/Relu_1: Relu(x) -> y");
}

#[test]
fn outputs_under_a_second_name_are_copied() {
    let f = function("f", "a", "a t t", vec![node("Relu", "a", "t")]);
    let nodes = vec![named("c", call("f", "x", "p q r"))];
    let graph = read(&with_functions(graph("x", "p q r", nodes), vec![f])).unwrap().graph;
    let expected = "c/Relu_0: Relu(x) -> q\nc/Identity: Identity(x) -> p\nc/Identity_1: Identity(q) -> r";
    assert_eq!(listing(&graph), expected);
}

#[test]
fn the_functions_opset_is_in_force_in_its_body() {
    let mut f = function("f", "a", "b", vec![node("Relu", "a", "b")]);
    f.opset_import[0].version = 13;
    let proto = with_functions(graph("x", "y", vec![call("f", "x", "y")]), vec![f.clone()]);
    assert_eq!(read(&proto).unwrap().graph.nodes[0].opset, 13);
    f.opset_import[0].version = 99;
    assert_eq!(refusal(&ModelProto { functions: vec![f.clone()], ..proto.clone() }).code, "E0102");
    f.opset_import.clear();
    assert_eq!(refusal(&ModelProto { functions: vec![f], ..proto }).code, "E0102");
}

#[test]
fn recursion_and_wrong_calls_are_refused() {
    let even = function("even", "a", "b", vec![call("odd", "a", "b")]);
    let odd = function("odd", "a", "b", vec![call("even", "a", "b")]);
    let calling = |node: NodeProto, functions| with_functions(graph("x", "y", vec![node]), functions);
    let e = refusal(&calling(call("even", "x", "y"), vec![even, odd]));
    assert_eq!((e.code, e.message.as_str()), ("E0104", "function `even` calls itself: even -> odd -> even"));
    let f = |input, output, nodes| vec![function("f", input, output, nodes)];
    let relu = || vec![node("Relu", "a", "b")];
    let cases = [
        (call("f", "x x", "y"), f("a", "b", relu()), "the call of function `f` has 2 inputs, but the function has 1"),
        (call("f", "x", "y z"), f("a", "b", relu()), "the call of function `f` has 2 outputs, but the function has 1"),
        (call("f", "x", "y"), f("a a", "b", relu()), "function `f` defines `a` twice"),
        (call("f", "x", "y"), f("a b", "b", relu()), "function `f` defines `b` twice"),
        (
            call("f", "x", "y"),
            f("a", "b", vec![node("Relu", "x", "b")]),
            "`x` is used in the function called by `f_0`, but nothing defines it",
        ),
        (call("f", "x", "y"), f("a", "zz", relu()), "`y` is an output of graph `g`, but nothing defines it"),
        (
            call("f", "_", "y"),
            f("a", "a", vec![]),
            "output `y` of the call is input `a` of the function, which is absent",
        ),
    ];
    for (node, functions, message) in cases {
        let e = refusal(&calling(node, functions));
        assert_eq!((e.code, e.message.as_str()), ("E0104", message));
    }
}

#[test]
fn an_explosion_of_calls_is_refused_in_time() {
    let mut functions = vec![function("f0", "a", "b", vec![node("Relu", "a", "b")])];
    for level in 1..12 {
        let callee = format!("f{}", level - 1);
        let mut nodes: Vec<NodeProto> = (0..10).map(|i| call(&callee, "a", &format!("t{i}"))).collect();
        nodes.push(node("Sum", "t0 t9", "b"));
        functions.push(function(&format!("f{level}"), "a", "b", nodes));
    }
    let e = refusal(&with_functions(graph("x", "y", vec![call("f11", "x", "y")]), functions));
    assert_eq!(e.code, "E0202");
}

#[test]
fn chains_of_calls_are_bounded() {
    let mut functions = vec![function("f0", "a", "b", vec![node("Relu", "a", "b")])];
    for level in 1..1000 {
        functions.push(function(&format!("f{level}"), "a", "b", vec![call(&format!("f{}", level - 1), "a", "b")]));
    }
    let calling = |name: &str| with_functions(graph("x", "y", vec![call(name, "x", "y")]), functions.clone());
    assert_eq!(read(&calling("f40")).unwrap().graph.nodes.len(), 1);
    assert_eq!(refusal(&calling("f999")).code, "E0104");
}
