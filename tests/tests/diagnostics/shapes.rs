//! Shapes that contradict each other, and dimensions that are negative or too large for any machine

use crate::{Row, check};
use sardonyx_base::DType::F32;
use sardonyx_tests::onnx::Net;

fn two(a: &str, b: &str) -> Net {
    Net::new().input("a", F32, a).input("b", F32, b).output("y")
}

static ROWS: &[Row] = &[
    Row {
        name: "a matrix product of 3x4 and 5x6",
        code: "E0201",
        file: "m.onnx",
        node: "/mm",
        words: &["4", "5"],
        make: |f| f.compile(&two("3 4", "5 6").node("/mm", "MatMul", "a b", "y")),
    },
    Row {
        name: "the same through a symbol",
        code: "E0201",
        file: "m.onnx",
        node: "/mm",
        words: &["4", "5"],
        make: |f| f.compile(&two("n 4", "5 6").node("/mm", "MatMul", "a b", "y")),
    },
    Row {
        name: "the sum of 2 and 3 elements",
        code: "E0201",
        file: "m.onnx",
        node: "/add",
        words: &["the dimensions 3 and 2 must be equal"],
        make: |f| f.compile(&two("2", "3").node("/add", "Add", "a b", "y")),
    },
    Row {
        name: "two values of one symbol",
        code: "E0201",
        file: "m.onnx",
        node: "/b",
        words: &["the dimensions 5 and 4 must be equal"],
        make: |f| {
            let net = two("n 4", "n 5").node("/a", "Relu", "a", "t").node("/b", "Add", "t b", "y");
            f.compile(&net)
        },
    },
    Row {
        name: "a reshape to another count",
        code: "E0201",
        file: "m.onnx",
        node: "/r",
        words: &["6", "8"],
        make: |f| f.compile(&two("2 3", "1").i64s("to", &[2, 4]).node("/r", "Reshape", "a to", "y")),
    },
    Row {
        name: "a reshape with two unknowns",
        code: "E0201",
        file: "m.onnx",
        node: "/r",
        words: &["two dimensions of -1"],
        make: |f| f.compile(&two("2 3", "1").i64s("to", &[-1, -1]).node("/r", "Reshape", "a to", "y")),
    },
    Row {
        name: "a concatenation along the wrong axis",
        code: "E0201",
        file: "m.onnx",
        node: "/c",
        words: &["the dimensions 5 and 2 must be equal"],
        make: |f| f.compile(&two("2 3", "5 3").node("/c", "Concat", "a b", "y").int("axis", 1)),
    },
    Row {
        name: "a dimension of 2^62",
        code: "E0202",
        file: "m.onnx",
        node: "a",
        words: &["4611686018427387904"],
        make: |f| f.compile(&two("4611686018427387904", "1").node("/n", "Relu", "a", "y")),
    },
    Row {
        name: "a product that overflows",
        code: "E0202",
        file: "m.onnx",
        node: "a",
        words: &["4294967296"],
        make: |f| f.compile(&two("4294967296 4294967296 4", "1").node("/n", "Relu", "a", "y")),
    },
    Row {
        name: "a product of the operator that overflows",
        code: "E0202",
        file: "m.onnx",
        node: "/n",
        words: &["2147483648"],
        make: |f| f.compile(&two("2147483648 1", "2147483648").node("/n", "Add", "a b", "y")),
    },
    Row {
        name: "an expansion to 2^62 elements",
        code: "E0202",
        file: "m.onnx",
        node: "/e",
        words: &["4611686018427387904"],
        make: |f| f.compile(&two("1", "1").i64s("to", &[1 << 62]).node("/e", "Expand", "a to", "y")),
    },
    Row {
        name: "a negative dimension",
        code: "E0202",
        file: "m.onnx",
        node: "a",
        words: &["-5"],
        make: |f| f.compile(&two("-5", "1").node("/n", "Relu", "a", "y")),
    },
    Row {
        name: "an initializer with more elements than data",
        code: "E0302",
        file: "m.onnx",
        node: "w",
        words: &["[2, 3] needs 24 bytes, but has 20"],
        make: |f| {
            let mut net = two("2 3", "1").f32s("w", &[2, 3]).node("/n", "Add", "a w", "y");
            net.graph().initializer[0].float_data.pop();
            f.compile(&net)
        },
    },
    Row {
        name: "an initializer of 2^60 elements and none",
        code: "E0302",
        file: "m.onnx",
        node: "w",
        words: &["1152921504606846976"],
        make: |f| {
            let mut net = two("2 3", "1").f32s("w", &[2, 3]).node("/n", "Add", "a w", "y");
            net.graph().initializer[0].dims = vec![1 << 60];
            f.compile(&net)
        },
    },
];

#[test]
fn shapes_that_do_not_fit_are_refused() {
    check(ROWS);
}
