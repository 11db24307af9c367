//! Well-formed files whose graph, operators or element types are wrong

use crate::{Row, check};
use sardonyx_base::DType::{Bool, F32, I64};
use sardonyx_tests::onnx::{Net, small};

fn x() -> Net {
    Net::new().input("x", F32, "2 3").output("y")
}

static ROWS: &[Row] = &[
    Row {
        name: "unknown operators are all listed, with their nodes",
        code: "E0101",
        file: "m.onnx",
        node: "/enc/Foo_1",
        words: &["unsupported operators `Bar` (/enc/Bar_1), `Foo` (/enc/Foo_1, /enc/Foo_2)"],
        make: |f| {
            let net = x().node("/enc/Foo_1", "Foo", "x", "a").node("/enc/Relu_1", "Relu", "a", "b");
            f.compile(&net.node("/enc/Bar_1", "Bar", "b", "c").node("/enc/Foo_2", "Foo", "c", "y"))
        },
    },
    Row {
        name: "an operator of another domain",
        code: "E0101",
        file: "m.onnx",
        node: "/n",
        words: &["unsupported operator `org.example.Relu` (/n)"],
        make: |f| {
            let mut net = x().node("/n", "Relu", "x", "y");
            net.model
                .opset_import
                .push(sardonyx::onnx::proto::OperatorSetIdProto { domain: "org.example".into(), version: 1 });
            net.graph().node[0].domain = "org.example".into();
            f.compile(&net)
        },
    },
    Row {
        name: "a domain without an opset",
        code: "E0102",
        file: "m.onnx",
        node: "/n",
        words: &["`org.example`", "no opset is imported"],
        make: |f| {
            let mut net = x().node("/n", "Relu", "x", "y");
            net.graph().node[0].domain = "org.example".into();
            f.compile(&net)
        },
    },
    Row {
        name: "an operator newer than the opset",
        code: "E0101",
        file: "m.onnx",
        node: "/n",
        words: &["unsupported operator `Gelu (opset 17)` (/n)"],
        make: |f| f.compile(&x().node("/n", "Gelu", "x", "y")),
    },
    Row {
        name: "an old opset",
        code: "E0102",
        file: "m.onnx",
        node: "",
        words: &["opset 0", "1 to 28"],
        make: |f| {
            let mut net = small();
            net.model.opset_import[0].version = 0;
            f.compile(&net)
        },
    },
    Row {
        name: "a future opset",
        code: "E0102",
        file: "m.onnx",
        node: "",
        words: &["opset 29", "1 to 28"],
        make: |f| {
            let mut net = small();
            net.model.opset_import[0].version = 29;
            f.compile(&net)
        },
    },
    Row {
        name: "a future IR version",
        code: "E0102",
        file: "m.onnx",
        node: "",
        words: &["IR version 99", "3 to 14"],
        make: |f| {
            let mut net = small();
            net.model.ir_version = 99;
            f.compile(&net)
        },
    },
    Row {
        name: "a cycle",
        code: "E0104",
        file: "m.onnx",
        node: "/two",
        words: &["cycle", "/two -> /one -> /two"],
        make: |f| {
            f.compile(&x().node("/one", "Add", "x b", "a").node("/two", "Relu", "a", "b").node("/y", "Relu", "a", "y"))
        },
    },
    Row {
        name: "an undefined name",
        code: "E0104",
        file: "m.onnx",
        node: "/n",
        words: &["`nobody`", "nothing defines it"],
        make: |f| f.compile(&x().node("/n", "Add", "x nobody", "y")),
    },
    Row {
        name: "an undefined output",
        code: "E0104",
        file: "m.onnx",
        node: "",
        words: &["`y`", "nothing defines it"],
        make: |f| f.compile(&x().node("/n", "Relu", "x", "z")),
    },
    Row {
        name: "a name that is defined twice",
        code: "E0104",
        file: "m.onnx",
        node: "/second",
        words: &["`y` is defined twice", "/first", "/second"],
        make: |f| f.compile(&x().node("/first", "Relu", "x", "y").node("/second", "Tanh", "x", "y")),
    },
    Row {
        name: "an attribute of the wrong kind",
        code: "E0106",
        file: "m.onnx",
        node: "/n",
        words: &["`perm`"],
        make: |f| f.compile(&x().node("/n", "Transpose", "x", "y").int("perm", 1)),
    },
    Row {
        name: "an axis that the operand does not have",
        code: "E0106",
        file: "m.onnx",
        node: "/n",
        words: &["axis", "5"],
        make: |f| f.compile(&x().node("/n", "Softmax", "x", "y").int("axis", 5)),
    },
    Row {
        name: "more parts than outputs",
        code: "E0106",
        file: "m.onnx",
        node: "/n",
        words: &["`num_outputs` is 1099511627776", "has 2"],
        make: |f| {
            let mut net = x().node("/n", "Split", "x", "y z").int("num_outputs", 1 << 40);
            net.model.opset_import[0].version = 18;
            f.compile(&net.output("z"))
        },
    },
    Row {
        name: "a missing operand",
        code: "E0103",
        file: "m.onnx",
        node: "/n",
        words: &["Add", "input 1"],
        make: |f| f.compile(&x().node("/n", "Add", "x", "y")),
    },
    Row {
        name: "an operator of floats given integers",
        code: "E0107",
        file: "m.onnx",
        node: "/n",
        words: &["erf", "i64"],
        make: |f| f.compile(&Net::new().input("x", I64, "4").node("/n", "Erf", "x", "y").output("y")),
    },
    Row {
        name: "an operator of bools given floats",
        code: "E0107",
        file: "m.onnx",
        node: "/n",
        words: &["and", "f32"],
        make: |f| f.compile(&x().node("/n", "And", "x x", "y")),
    },
    Row {
        name: "two element types",
        code: "E0107",
        file: "m.onnx",
        node: "/n",
        words: &["f32", "i64"],
        make: |f| f.compile(&x().input("i", I64, "2 3").node("/n", "Add", "x i", "y")),
    },
    Row {
        name: "the sum of bools",
        code: "E0107",
        file: "m.onnx",
        node: "/n",
        words: &["bool"],
        make: |f| f.compile(&Net::new().input("x", Bool, "4").node("/n", "Add", "x x", "y").output("y")),
    },
    Row {
        name: "indices that are floats",
        code: "E0107",
        file: "m.onnx",
        node: "/n",
        words: &["f32"],
        make: |f| f.compile(&x().node("/n", "Gather", "x x", "y")),
    },
];

#[test]
fn wrong_graphs_are_refused() {
    check(ROWS);
}
