//! Graph checks: order, cycles, names, constants, versions, files that are not ONNX models

use crate::build::*;
use sardonyx::onnx::proto::*;
use sardonyx::onnx::{DimSpec, parse_model, read_model};
use sardonyx_base::{DType, Tensor};

#[test]
fn a_small_model_reads_as_written() {
    let mut proto = model(graph("x", "y", vec![node("Relu", "x", "t"), named("last", node("Add", "t x", "y"))]));
    proto.producer_name = "pytorch".into();
    proto.producer_version = "2.9".into();
    let model = read(&proto).unwrap();
    assert_eq!((model.ir_version, model.opsets[""], model.producer.as_str()), (8, 17, "pytorch 2.9"));
    assert_eq!(model.hash.len(), 64);
    assert_eq!(listing(&model.graph), "Relu_0: Relu(x) -> t\nlast: Add(t, x) -> y");
    assert_eq!(model.graph.nodes[0].opset, 17);
    let (dtype, dims) = model.graph.inputs[0].tensor().unwrap();
    assert_eq!((dtype, dims), (DType::F32, Some(&[DimSpec::Fixed(2), DimSpec::Fixed(3)][..])));
}

#[test]
fn nodes_out_of_order_are_sorted_stably() {
    let nodes = vec![node("C", "b", "y"), node("D", "x", "d"), node("B", "a", "b"), node("A", "x", "a")];
    let sorted = read_graph(graph("x", "y", nodes)).unwrap();
    assert_eq!(listing(&sorted), "D_1: D(x) -> d\nA_3: A(x) -> a\nB_2: B(a) -> b\nC_0: C(b) -> y");
}

#[test]
fn a_subgraph_waits_for_the_outer_values_it_uses() {
    let branch = |name: &str| graph("", name, vec![node("Neg", "late", name)]);
    let conditional = with(node("If", "x", "y"), graph_attribute("then_branch", branch("p")));
    let conditional = with(conditional, graph_attribute("else_branch", branch("q")));
    let sorted = read_graph(graph("x", "y", vec![conditional, node("Relu", "x", "late")])).unwrap();
    assert_eq!(listing(&sorted), "Relu_1: Relu(x) -> late\nIf_0: If(x) -> y");
    let branches: Vec<String> = sorted.nodes[1].subgraphs().map(listing).collect();
    assert_eq!(branches, ["Neg_0_1: Neg(late) -> q", "Neg_0: Neg(late) -> p"], "names are unique across subgraphs");
}

#[test]
fn a_cycle_names_its_nodes_only() {
    let nodes = vec![
        named("before", node("Relu", "x", "t")),
        named("one", node("Add", "t c", "a")),
        named("two", node("Neg", "a", "b")),
        named("three", node("Exp", "b", "c")),
        named("after", node("Relu", "c", "y")),
    ];
    let e = refusal(&model(graph("x", "y", nodes)));
    assert_eq!(e.code, "E0104");
    assert_eq!(e.message, "the graph has a cycle: two -> three -> one -> two");
    let e = refusal(&model(graph("x", "y", vec![named("self", node("Relu", "y", "y"))])));
    assert_eq!(e.message, "the graph has a cycle: self -> self");
}

#[test]
fn undefined_and_duplicate_names_are_refused() {
    let cases = [
        (graph("x", "y", vec![node("Add", "x z", "y")]), "`z` is used, but nothing defines it"),
        (graph("x", "y", vec![node("Relu", "x", "t")]), "`y` is an output of graph `g`, but nothing defines it"),
        (
            graph("x x", "y", vec![node("Relu", "x", "y")]),
            "`x` is defined twice, by an input or initializer and by an input or initializer",
        ),
        (
            graph("x", "y", vec![node("Relu", "x", "y"), node("Neg", "x", "y")]),
            "`y` is defined twice, by node `Relu_0` and by node `Neg_1`",
        ),
        (
            graph("x", "x", vec![node("Relu", "x", "x")]),
            "`x` is defined twice, by an input or initializer and by node `Relu_0`",
        ),
        (graph("x", "y y", vec![node("Relu", "x", "y")]), "`y` is an output of the model twice"),
        (graph("x _", "y", vec![node("Relu", "x", "y")]), "an input has no name"),
    ];
    for (graph, message) in cases {
        let e = refusal(&model(graph));
        assert_eq!((e.code, e.message.as_str()), ("E0104", message));
    }
}

#[test]
fn node_names_become_unique_without_touching_the_given_ones() {
    let nodes =
        vec![node("Add", "x x", "a"), named("Add_0", node("Add", "a a", "b")), named("Add_0", node("Neg", "b", "y"))];
    let names: Vec<String> = read_graph(graph("x", "y", nodes)).unwrap().nodes.into_iter().map(|n| n.name).collect();
    assert_eq!(names, ["Add_0_1", "Add_0", "Add_0_2"]);
}

#[test]
fn initializers_are_not_inputs() {
    let mut proto = graph("x w", "y", vec![node("Add", "x w", "y")]);
    proto.initializer.push(i64_tensor("w", &[4, 5]));
    let mut proto = model(proto);
    proto.ir_version = 3;
    let graph = read(&proto).unwrap().graph;
    assert_eq!(graph.inputs.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["x"]);
    assert_eq!(graph.initializers[0].data.to_vec::<i64>().unwrap(), [4, 5]);
}

#[test]
fn constants_in_every_form_become_initializers() {
    use attribute_type::*;
    let attribute = |name: &str, r#type| AttributeProto { name: name.into(), r#type, ..Default::default() };
    let sparse =
        SparseTensorProto { values: Some(i64_tensor("", &[9])), indices: Some(i64_tensor("", &[1])), dims: vec![3] };
    let forms = [
        AttributeProto { t: Some(Box::new(i64_tensor("", &[1, 2]))), ..attribute("value", TENSOR) },
        AttributeProto { sparse_tensor: Some(Box::new(sparse)), ..attribute("sparse_value", SPARSE_TENSOR) },
        AttributeProto { i: -3, ..attribute("value_int", INT) },
        AttributeProto { ints: vec![4, 5], ..attribute("value_ints", INTS) },
        AttributeProto { f: 0.5, ..attribute("value_float", FLOAT) },
        AttributeProto { floats: vec![1.5], ..attribute("value_floats", FLOATS) },
        AttributeProto { s: "one".into(), ..attribute("value_string", STRING) },
        AttributeProto { strings: vec!["two".into()], ..attribute("value_strings", STRINGS) },
    ];
    let constants =
        forms.iter().enumerate().map(|(i, form)| with(node("Constant", "", &format!("c{i}")), form.clone()));
    let graph = read_graph(graph("x", "y", constants.chain([node("Relu", "x", "y")]).collect())).unwrap();
    assert_eq!(listing(&graph), "Relu_8: Relu(x) -> y");
    let shown: Vec<String> =
        graph.initializers.iter().map(|i| format!("{} {:?} {}", i.name, i.data.dims(), values(&i.data))).collect();
    let expected = [
        "c0 [2] [1.0, 2.0]",
        "c1 [3] [0.0, 9.0, 0.0]",
        "c2 [] [-3.0]",
        "c3 [2] [4.0, 5.0]",
        "c4 [] [0.5]",
        "c5 [1] [1.5]",
        "c6 [] [\"one\"]",
        "c7 [1] [\"two\"]",
    ];
    assert_eq!(shown, expected);
}

fn values(data: &Tensor) -> String {
    match data.texts() {
        Ok(texts) => format!("{texts:?}"),
        Err(_) => format!("{:?}", (0..data.len()).map(|i| data.get_f64(i).unwrap()).collect::<Vec<_>>()),
    }
}

#[test]
fn a_constant_with_two_values_or_none_is_refused() {
    let none = node("Constant", "", "c");
    let two = with(with(none.clone(), int("value_int", 1)), ints("value_ints", &[2]));
    let wrong = with(none.clone(), int("value", 1));
    for constant in [none, two, wrong] {
        let e = refusal(&model(graph("x", "y", vec![constant, node("Relu", "x", "y")])));
        assert_eq!((e.code, e.node.as_deref()), ("E0106", Some("Constant_0")));
    }
}

#[test]
fn attributes_have_to_hold_what_their_type_says() {
    let relu = |attribute| model(graph("x", "y", vec![with(node("Relu", "x", "y"), attribute)]));
    let missing = AttributeProto { name: "a".into(), r#type: attribute_type::TENSOR, ..Default::default() };
    assert_eq!(refusal(&relu(missing)).code, "E0106");
    assert_eq!(refusal(&relu(AttributeProto { name: "a".into(), r#type: 99, ..Default::default() })).code, "E0106");
    assert_eq!(refusal(&relu(reference("a", "b", 0))).code, "E0106");
    let twice = with(with(node("Relu", "x", "y"), int("a", 1)), int("a", 2));
    assert_eq!(refusal(&model(graph("x", "y", vec![twice]))).code, "E0106");
    let relu = read(&relu(int("a", 3))).unwrap().graph.nodes.remove(0);
    assert_eq!((relu.int("a").unwrap(), relu.int("b").unwrap()), (Some(3), None));
    assert_eq!(relu.ints("a").unwrap_err().message, "attribute `a` of `Relu` has the type int, not list of ints");
}

#[test]
fn versions_outside_the_range_are_refused() {
    let good = model(graph("x", "y", vec![node("Relu", "x", "y")]));
    for (ir_version, ok) in [(2, false), (3, true), (14, true), (15, false), (-1, false)] {
        let read = read(&ModelProto { ir_version, ..good.clone() });
        assert_eq!(read.as_ref().err().map(|e| e.code), (!ok).then_some("E0102"), "{ir_version}");
    }
    for (version, ok) in [(0, false), (1, true), (28, true), (29, false)] {
        let mut proto = good.clone();
        proto.opset_import[0].version = version;
        assert_eq!(read(&proto).err().map(|e| e.code), (!ok).then_some("E0102"), "{version}");
    }
    let none = ModelProto { opset_import: vec![], ..good };
    assert_eq!(refusal(&none).message, "operator `Relu` is of the domain `ai.onnx`, of which no opset is imported");
}

#[test]
fn files_of_another_kind_are_told_apart() {
    let message = |bytes: &[u8]| {
        let e = parse_model(bytes.to_vec().into()).unwrap_err();
        assert_eq!(e.code, "E0103");
        e.message
    };
    assert_eq!(message(b""), "the file is empty");
    assert_eq!(message("ir_version: 8\ngraph { }\n".as_bytes()), "the file is not an ONNX model: it looks like text");
    assert!(message(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n").contains("Git LFS pointer"));
    assert!(message(b"PK\x03\x04\x00\x00\xff\xff").starts_with("the file is not an ONNX model: "));
    assert_eq!(message(&[0x08, 0x08]), "the file is not an ONNX model: it has no graph");
    let whole = prost::Message::encode_to_vec(&model(graph("x", "y", vec![node("Relu", "x", "y")])));
    assert!(message(&whole[..whole.len() - 5]).contains("it cannot be decoded"));
}

#[test]
fn a_path_that_is_no_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_path_buf(), folder.path().join("absent.onnx")] {
        let e = read_model(&path).unwrap_err();
        assert_eq!((e.code, e.file), ("E0002", Some(path.display().to_string())));
    }
}

#[test]
fn deep_nesting_is_refused_before_the_stack_ends() {
    let mut inner = graph("", "y", vec![node("Relu", "x", "y")]);
    for _ in 0..30 {
        inner = graph("", "y", vec![with(node("If", "x", "y"), graph_attribute("then_branch", inner))]);
    }
    let nested = |graph| model(GraphProto { input: vec![f32_value("x", &[1])], ..graph });
    assert!(read(&nested(inner.clone())).is_ok());
    for _ in 0..1000 {
        inner = graph("", "y", vec![with(node("If", "x", "y"), graph_attribute("then_branch", inner))]);
    }
    assert_eq!(refusal(&nested(inner)).code, "E0103");
}

#[test]
fn an_input_without_element_type_is_refused() {
    let mut proto = graph("x", "y", vec![node("Relu", "x", "y")]);
    proto.input[0].r#type = None;
    assert_eq!(refusal(&model(proto)).code, "E0107");
}
