//! External weights that are missing, too short, or not in the model's folder

use crate::files::make_pipe;
use crate::folder::Folder;
use crate::{Row, check};
use sardonyx_base::DType::F32;
use sardonyx_tests::onnx::Net;

/// Command line that compiles a model with a 64x64 weight at `offset` of the file `location`.
fn weight(folder: &Folder, location: &str, offset: u64) -> Vec<String> {
    let net = Net::new().input("x", F32, "n 64").external("w", &[64, 64], location, offset);
    folder.compile(&net.node("/mm", "MatMul", "x w", "y").output("y"))
}

static ROWS: &[Row] = &[
    Row {
        name: "the file is missing",
        code: "E0105",
        file: "m.onnx",
        node: "w",
        words: &["`w.bin` is missing"],
        make: |f| weight(f, "w.bin", 0),
    },
    Row {
        name: "the file is short",
        code: "E0105",
        file: "m.onnx",
        node: "w",
        words: &["bytes 0 to 16384", "only 16383 bytes"],
        make: |f| {
            f.write("w.bin", vec![0; 16383]);
            weight(f, "w.bin", 0)
        },
    },
    Row {
        name: "the offset is beyond the end",
        code: "E0105",
        file: "m.onnx",
        node: "w",
        words: &["18446744073709551615"],
        make: |f| {
            f.write("w.bin", vec![0; 16384]);
            weight(f, "w.bin", u64::MAX)
        },
    },
    Row {
        name: "the folder above",
        code: "E0105",
        file: "m.onnx",
        node: "w",
        words: &["`../w.bin`", "outside the model's folder"],
        make: |f| weight(f, "../w.bin", 0),
    },
    Row {
        name: "down and up again",
        code: "E0105",
        file: "m.onnx",
        node: "w",
        words: &["`out/../w.bin`", "outside the model's folder"],
        make: |f| {
            f.write("w.bin", vec![0; 16384]);
            weight(f, "out/../w.bin", 0)
        },
    },
    Row {
        name: "an absolute path",
        code: "E0105",
        file: "m.onnx",
        node: "w",
        words: &["`/etc/passwd`", "outside the model's folder"],
        make: |f| weight(f, "/etc/passwd", 0),
    },
    Row {
        name: "a link that leads outside",
        code: "E0105",
        file: "m.onnx",
        node: "w",
        words: &["`w.bin` is a link to outside"],
        make: |f| {
            std::os::unix::fs::symlink("/etc/passwd", f.file("w.bin")).unwrap();
            weight(f, "w.bin", 0)
        },
    },
    Row {
        name: "a pipe",
        code: "E0105",
        file: "m.onnx",
        node: "w",
        words: &["`w.bin` is not a regular file"],
        make: |f| {
            make_pipe(f, "w.bin");
            weight(f, "w.bin", 0)
        },
    },
    Row {
        name: "a folder",
        code: "E0105",
        file: "m.onnx",
        node: "w",
        words: &["`w.bin` is not a regular file"],
        make: |f| {
            std::fs::create_dir(f.file("w.bin")).unwrap();
            weight(f, "w.bin", 0)
        },
    },
    Row {
        name: "no location",
        code: "E0105",
        file: "m.onnx",
        node: "w",
        words: &["without a location"],
        make: |f| weight(f, "", 0),
    },
];

#[test]
fn external_data_is_read_only_from_the_models_folder() {
    check(ROWS);
}
