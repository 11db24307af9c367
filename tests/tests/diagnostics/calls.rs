//! Inputs of a call that do not fit the model, and malformed tensor files

use crate::folder::{Folder, line};
use crate::{Row, check};
use sardonyx_base::{DType, Tensor};
use sardonyx_format::tensor_io::TensorProto;
use sardonyx_tests::programs::{Outcome, program};
use std::process::Command;

/// Writes `m.sdx` and valid inputs for a batch of 3: `x.npy`, `ids.npy`.
fn good(f: &Folder) {
    f.artifact();
    f.npy("x.npy", &Tensor::zeros(DType::F32, vec![3, 8]));
    f.npy("ids.npy", &Tensor::from_vec(vec![3], vec![0i64, 9, 4]));
}

const RUN: &str = "sardonyx-run run m.sdx --output-dir out";

/// Command line of a call with the given tensor as `x`.
fn with_x(f: &Folder, x: &Tensor) -> Vec<String> {
    good(f);
    f.npy("x.npy", x);
    line(&format!("{RUN} --input x=x.npy --input ids=ids.npy"))
}

/// Command line of a call with the given protobuf message as `x`.
fn with_pb(f: &Folder, x: &[u8]) -> Vec<String> {
    good(f);
    f.write("x.pb", x);
    line(&format!("{RUN} --input x=x.pb --input ids=ids.npy"))
}

fn x_proto(dims: &[i64]) -> TensorProto {
    let mut proto = TensorProto::from_tensor("x", &Tensor::zeros(DType::F32, vec![3, 8]));
    proto.dims = dims.to_vec();
    proto
}

static ROWS: &[Row] = &[
    Row {
        name: "an input is missing",
        code: "E0301",
        file: "m.sdx",
        node: "",
        words: &["`ids` is missing"],
        make: |f| {
            good(f);
            line(&format!("{RUN} --input x=x.npy"))
        },
    },
    Row {
        name: "an input too many",
        code: "E0301",
        file: "m.sdx",
        node: "",
        words: &["no input `mask`"],
        make: |f| {
            good(f);
            line(&format!("{RUN} --input x=x.npy --input ids=ids.npy --input mask=zeros"))
        },
    },
    Row {
        name: "an input twice",
        code: "E0301",
        file: "m.sdx",
        node: "",
        words: &["`x` is given twice"],
        make: |f| {
            good(f);
            line(&format!("{RUN} --input x=x.npy --input x=x.npy --input ids=ids.npy"))
        },
    },
    Row {
        name: "an input of another type",
        code: "E0301",
        file: "m.sdx",
        node: "",
        words: &["`x`", "f64", "f32 is expected"],
        make: |f| with_x(f, &Tensor::zeros(DType::F64, vec![3, 8])),
    },
    Row {
        name: "an input of another rank",
        code: "E0301",
        file: "m.sdx",
        node: "",
        words: &["`x`", "[3, 8, 1]", "[batch, 8] is expected"],
        make: |f| with_x(f, &Tensor::zeros(DType::F32, vec![3, 8, 1])),
    },
    Row {
        name: "a fixed dimension of another size",
        code: "E0301",
        file: "m.sdx",
        node: "",
        words: &["dimension 1 of the input `x` is 9, but 8 is expected"],
        make: |f| with_x(f, &Tensor::zeros(DType::F32, vec![3, 9])),
    },
    Row {
        name: "a symbol above its range",
        code: "E0301",
        file: "m.sdx",
        node: "",
        words: &["`batch` = 513 (input `x`, dimension 0) is outside 1..512"],
        make: |f| with_x(f, &Tensor::zeros(DType::F32, vec![513, 8])),
    },
    Row {
        name: "a symbol below its range",
        code: "E0301",
        file: "m.sdx",
        node: "",
        words: &["`batch` = 0 (input `x`, dimension 0) is outside 1..512"],
        make: |f| with_x(f, &Tensor::zeros(DType::F32, vec![0, 8])),
    },
    Row {
        name: "two inputs that disagree about a symbol",
        code: "E0301",
        file: "m.sdx",
        node: "",
        words: &["`batch` = 4 (input `x`, dimension 0), but also 3 (input `ids`, dimension 0)"],
        make: |f| with_x(f, &Tensor::zeros(DType::F32, vec![4, 8])),
    },
    Row {
        name: "an index out of range",
        code: "E0303",
        file: "m.sdx",
        node: "/mm + /lookup + /add + /gelu",
        words: &["index", "out of range"],
        make: |f| {
            good(f);
            f.npy("ids.npy", &Tensor::from_vec(vec![3], vec![0i64, 10, 4]));
            line(&format!("{RUN} --input x=x.npy --input ids=ids.npy"))
        },
    },
    Row {
        name: "an index below the range",
        code: "E0303",
        file: "m.sdx",
        node: "/mm + /lookup + /add + /gelu",
        words: &["index", "out of range"],
        make: |f| {
            good(f);
            f.npy("ids.npy", &Tensor::from_vec(vec![3], vec![0i64, i64::MIN, 4]));
            line(&format!("{RUN} --input x=x.npy --input ids=ids.npy"))
        },
    },
    Row {
        name: "an input file that is not there",
        code: "E0002",
        file: "none.npy",
        node: "",
        words: &["cannot read none.npy", "No such file"],
        make: |f| {
            good(f);
            line(&format!("{RUN} --input x=none.npy --input ids=ids.npy"))
        },
    },
    Row {
        name: "an input file of an unknown kind",
        code: "E0302",
        file: "x.csv",
        node: "",
        words: &["cannot tell the format", "x.csv"],
        make: |f| {
            good(f);
            f.write("x.csv", "1,2,3");
            line(&format!("{RUN} --input x=x.csv --input ids=ids.npy"))
        },
    },
    Row {
        name: "an input without a file",
        code: "E0001",
        file: "m.sdx",
        node: "",
        words: &["`--input x` has no `=`"],
        make: |f| {
            good(f);
            line(&format!("{RUN} --input x"))
        },
    },
    Row {
        name: "a made-up input without a size",
        code: "E0204",
        file: "m.sdx",
        node: "",
        words: &["the input `x` needs a size for `batch`"],
        make: |f| {
            good(f);
            line(&format!("{RUN} --input x=random --input ids=zeros"))
        },
    },
    Row {
        name: "a .npy file that promises more than it has",
        code: "E0302",
        file: "x.npy",
        node: "",
        words: &["promises", "[1099511627776, 8]", "96 bytes"],
        make: |f| {
            good(f);
            let mut bytes = std::fs::read(f.file("x.npy")).unwrap();
            let at = bytes.windows(6).position(|w| w == b"(3, 8)").unwrap();
            let lie = b"(1099511627776, 8)";
            // The header keeps its length, because spaces at its end are removed.
            bytes.splice(at..at + 6, lie.iter().copied());
            let newline = bytes.iter().position(|&b| b == b'\n').unwrap();
            bytes.drain(newline - (lie.len() - 6)..newline);
            f.write("x.npy", bytes);
            line(&format!("{RUN} --input x=x.npy --input ids=ids.npy"))
        },
    },
    Row {
        name: "a .npy file whose dimensions overflow",
        code: "E0302",
        file: "x.npy",
        node: "",
        words: &["promises"],
        make: |f| {
            good(f);
            let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 8), }\n";
            let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
            bytes.extend((header.len() as u16).to_le_bytes());
            bytes.extend(header.as_bytes());
            f.write("x.npy", bytes);
            line(&format!("{RUN} --input x=x.npy --input ids=ids.npy"))
        },
    },
    Row {
        name: "a .npy file that ends in its header",
        code: "E0302",
        file: "x.npy",
        node: "",
        words: &["ends in the header"],
        make: |f| {
            good(f);
            f.write("x.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff");
            line(&format!("{RUN} --input x=x.npy --input ids=ids.npy"))
        },
    },
    Row {
        name: "a .pb file that promises more than it has",
        code: "E0302",
        file: "x.pb",
        node: "tensor `x`",
        words: &["1099511627776"],
        make: |f| with_pb(f, &x_proto(&[1 << 40, 8]).to_bytes()),
    },
    Row {
        name: "a .pb file whose dimensions overflow",
        code: "E0202",
        file: "x.pb",
        node: "tensor `x`",
        words: &["overflows"],
        make: |f| with_pb(f, &x_proto(&[1 << 40, 1 << 40]).to_bytes()),
    },
    Row {
        name: "a .pb file that is cut off",
        code: "E0302",
        file: "x.pb",
        node: "",
        words: &["not an ONNX tensor"],
        make: |f| {
            let bytes = x_proto(&[3, 8]).to_bytes();
            with_pb(f, &bytes[..bytes.len() - 5])
        },
    },
    Row {
        name: "a folder without data sets",
        code: "E0002",
        file: "out",
        node: "",
        words: &["holds no `output_0.pb`"],
        make: |f| {
            good(f);
            line("sardonyx-run check m.sdx --data out")
        },
    },
    Row {
        name: "too many threads",
        code: "E0001",
        file: "",
        node: "",
        words: &["5000 threads"],
        make: |f| {
            good(f);
            line(&format!("{RUN} --threads 5000 --input x=x.npy --input ids=ids.npy"))
        },
    },
];

#[test]
fn calls_that_do_not_fit_the_model_are_refused() {
    check(ROWS);
}

/// A data set that cannot be run counts as failed, and the other data sets are still checked.
#[test]
fn data_sets_that_cannot_be_run_fail_with_a_diagnostic_each() {
    let f = Folder::new();
    good(&f);
    let mut lie = x_proto(&[1 << 40, 8]);
    let other = {
        let mut proto = x_proto(&[3, 8]);
        proto.name = "z".into();
        proto
    };
    lie.name = "x".into();
    for (set, x) in [("0", &lie), ("1", &other), ("2", &x_proto(&[3, 8]))] {
        std::fs::create_dir(f.file(set)).unwrap();
        f.write(&format!("{set}/input_0.pb"), x.to_bytes());
        f.pb(&format!("{set}/input_1.pb"), "ids", &Tensor::from_vec(vec![3], vec![0i64, 9, 4]));
        f.pb(&format!("{set}/output_0.pb"), "y", &Tensor::zeros(DType::F32, vec![3, 24]));
    }
    let mut command = Command::new(program("sardonyx-run"));
    let outcome = Outcome::run(command.args(["check", "m.sdx", "--data", ".", "--atol", "2"]).current_dir(f.path()));
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert!(outcome.stderr.is_empty(), "{outcome:?}");
    assert!(outcome.stdout.ends_with("1 passed, 2 failed\n"), "{outcome:?}");
    let words = ["error[E0302]", "./0/input_0.pb, node tensor `x`", "help: ", "error[E0301]", "named `z`", "help: "];
    let mut at = 0;
    for word in words {
        let found = outcome.stdout[at..].find(word);
        at += found.unwrap_or_else(|| panic!("`{word}` is not there: {}", outcome.stdout)) + word.len();
    }
}
