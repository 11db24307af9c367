//! Files that are not models, and invalid command lines

use crate::folder::{Folder, line};
use crate::{Row, check};
use sardonyx_tests::damage::Random;
use sardonyx_tests::onnx::small;

static ROWS: &[Row] = &[
    Row {
        name: "an empty file",
        code: "E0103",
        file: "m.onnx",
        node: "",
        words: &["the file is empty"],
        make: |f| f.compile_bytes(""),
    },
    Row {
        name: "a text file",
        code: "E0103",
        file: "m.onnx",
        node: "",
        words: &["not an ONNX model", "text"],
        make: |f| f.compile_bytes("Dear reader,\nthis is no model.\n"),
    },
    Row {
        name: "a Git LFS pointer",
        code: "E0103",
        file: "m.onnx",
        node: "",
        words: &["Git LFS pointer"],
        make: |f| f.compile_bytes("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"),
    },
    Row {
        name: "random bytes",
        code: "E0103",
        file: "m.onnx",
        node: "",
        words: &["not an ONNX model"],
        make: |f| {
            let mut random = Random(5);
            f.compile_bytes((0..5000).map(|_| random.u64() as u8).collect::<Vec<u8>>())
        },
    },
    Row {
        name: "zeros",
        code: "E0103",
        file: "m.onnx",
        node: "",
        words: &["not an ONNX model"],
        make: |f| f.compile_bytes([0; 4096]),
    },
    Row {
        name: "a folder",
        code: "E0002",
        file: "m.onnx",
        node: "",
        words: &["the folder has no model.onnx"],
        make: |f| {
            std::fs::create_dir(f.file("m.onnx")).unwrap();
            line("sardonyx compile m.onnx -o out/m.sdx")
        },
    },
    Row {
        name: "a pipe",
        code: "E0002",
        file: "m.onnx",
        node: "",
        words: &["not a regular file"],
        make: |f| {
            make_pipe(f, "m.onnx");
            line("sardonyx compile m.onnx -o out/m.sdx")
        },
    },
    Row {
        name: "no file",
        code: "E0002",
        file: "m.onnx",
        node: "",
        words: &["cannot read m.onnx", "No such file"],
        make: |_| line("sardonyx compile m.onnx -o out/m.sdx"),
    },
    Row {
        name: "no command",
        code: "E0001",
        file: "",
        node: "",
        words: &["bake"],
        make: |_| line("sardonyx bake m.onnx"),
    },
    Row {
        name: "an unknown flag",
        code: "E0001",
        file: "",
        node: "",
        words: &["--fast"],
        make: |_| line("sardonyx compile m.onnx --fast"),
    },
    Row {
        name: "an unknown stage",
        code: "E0001",
        file: "m.onnx",
        node: "",
        words: &["there is no stage `bake`"],
        make: |f| [f.compile(&small()), line("--stop-after bake")].concat(),
    },
    Row {
        name: "an unknown symbol",
        code: "E0204",
        file: "m.onnx",
        node: "",
        words: &["no dimension symbol `seq`"],
        make: |f| [f.compile(&small()), line("--dim seq=1..8")].concat(),
    },
    Row {
        name: "a range without a name",
        code: "E0204",
        file: "",
        node: "",
        words: &["`--dim 1..8` is not understood"],
        make: |f| [f.compile(&small()), line("--dim 1..8")].concat(),
    },
    Row {
        name: "a range of words",
        code: "E0204",
        file: "",
        node: "",
        words: &["`--dim batch=few` is not understood"],
        make: |f| [f.compile(&small()), line("--dim batch=few")].concat(),
    },
    Row {
        name: "a range beyond 64 bits",
        code: "E0204",
        file: "",
        node: "",
        words: &["`--dim batch=1..99999999999999999999` is not understood"],
        make: |f| [f.compile(&small()), line("--dim batch=1..99999999999999999999")].concat(),
    },
    Row {
        name: "an empty range",
        code: "E0204",
        file: "m.onnx",
        node: "",
        words: &["the range 8..1 of `batch` is empty or negative"],
        make: |f| [f.compile(&small()), line("--dim batch=8..1")].concat(),
    },
    Row {
        name: "a negative range",
        code: "E0204",
        file: "m.onnx",
        node: "",
        words: &["the range -4..8 of `batch` is empty or negative"],
        make: |f| [f.compile(&small()), line("--dim batch=-4..8")].concat(),
    },
    Row {
        name: "the same symbol twice",
        code: "E0204",
        file: "",
        node: "",
        words: &["`batch`", "twice"],
        make: |f| [f.compile(&small()), line("--dim batch=1..8 --dim batch=2..4")].concat(),
    },
];

pub fn make_pipe(folder: &Folder, name: &str) {
    let made = std::process::Command::new("mkfifo").arg(folder.file(name)).status().expect("mkfifo runs");
    assert!(made.success());
}

#[test]
fn what_is_no_model_is_refused() {
    check(ROWS);
}

#[test]
fn a_model_that_is_cut_off_is_refused_wherever_it_is_cut() {
    let good = small().bytes();
    // A cut between two fields of the outermost message leaves a smaller, well-formed message without the opset or a
    // part of the graph, for which there are other diagnostics.
    for n in (1..good.len()).step_by(good.len() / 40) {
        let folder = Folder::new();
        let line = folder.compile_bytes(&good[..n]);
        let mut command = std::process::Command::new(sardonyx_tests::programs::program(&line[0]));
        let outcome = sardonyx_tests::programs::Outcome::run(command.args(&line[1..]).current_dir(folder.path()));
        assert_eq!(outcome.code, 2, "cut at {n}: {}", outcome.stderr);
        assert!(outcome.stderr.starts_with("error[E010"), "cut at {n}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains("\n  --> m.onnx") && outcome.stderr.contains("\n  help: "),
            "{}",
            outcome.stderr
        );
        assert!(folder.written().is_empty(), "cut at {n}");
    }
}
