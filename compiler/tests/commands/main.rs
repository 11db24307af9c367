//! sardonyx and sardonyx-opt run as users run them: small ONNX models, output, files, exit codes

#[allow(dead_code)] // The tests of the ONNX importer use the rest.
#[path = "../onnx/build.rs"]
mod build;
mod calibrate;
mod check;
mod compile;
mod explain;
mod limits;
mod plan;
mod sparsify;
mod trust;

use build::*;
use prost::Message;
use sardonyx::onnx::proto::{GraphProto, ModelProto, NodeProto, TensorProto};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Folder {
    dir: tempfile::TempDir,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

impl Folder {
    fn new() -> Folder {
        Folder { dir: tempfile::tempdir().unwrap() }
    }

    /// Creates a folder that contains `graph` as `m.onnx`.
    fn with(graph: GraphProto) -> Folder {
        let folder = Folder::new();
        std::fs::write(folder.path("m.onnx"), model(graph).encode_to_vec()).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Output {
        self.program(env!("CARGO_BIN_EXE_sardonyx"), args)
    }

    fn program(&self, program: &str, args: &[&str]) -> Output {
        Command::new(program).args(args).current_dir(&self.dir).output().unwrap()
    }

    fn good(&self, args: &[&str]) -> String {
        let done = self.run(args);
        assert_eq!(done.status.code(), Some(0), "{}{}", text(&done.stdout), text(&done.stderr));
        // Without a terminal, no progress is printed.
        assert_eq!(text(&done.stderr), "");
        text(&done.stdout)
    }

    fn json(&self, args: &[&str]) -> serde_json::Value {
        serde_json::from_slice(&self.run(args).stdout).unwrap()
    }

    fn bad(&self, args: &[&str]) -> (i32, String) {
        let done = self.run(args);
        (done.status.code().unwrap(), text(&done.stderr))
    }
}

/// y = relu(x · w + x), x and y of [2, 3].
fn layer() -> GraphProto {
    let values = [1.0, 0.5, 0.0, -1.0, 2.0, 0.25, 0.0, 0.0, -3.0];
    let w = TensorProto {
        name: "w".into(),
        data_type: 1,
        dims: vec![3, 3],
        float_data: values.to_vec(),
        ..Default::default()
    };
    let nodes = vec![node("MatMul", "x w", "t"), node("Add", "t x", "s"), node("Relu", "s", "y")];
    GraphProto { initializer: vec![w], ..graph("x", "y", nodes) }
}

fn exists(path: &Path) -> bool {
    path.try_exists().unwrap()
}
