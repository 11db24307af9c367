//! Outputs that cannot be written, and full disks: the old file stays, and no partial file remains

use crate::folder::{Folder, line};
use crate::{Row, check};
use sardonyx_base::DType::F32;
use sardonyx_tests::onnx::{Net, small};
use sardonyx_tests::programs::{Outcome, program};
use std::process::{Command, Stdio};
use std::time::Duration;

fn compile_to(f: &Folder, output: &str) -> Vec<String> {
    f.compile(&small());
    line(&format!("sardonyx compile m.onnx -o {output}"))
}

static ROWS: &[Row] = &[
    Row {
        name: "a folder that is not there",
        code: "E0002",
        file: "out/no/m.sdx",
        node: "",
        words: &["cannot write out/no/m.sdx", "No such file"],
        make: |f| compile_to(f, "out/no/m.sdx"),
    },
    Row {
        name: "a path below a file",
        code: "E0002",
        file: "m.onnx/m.sdx",
        node: "",
        words: &["cannot write m.onnx/m.sdx", "Not a directory"],
        make: |f| compile_to(f, "m.onnx/m.sdx"),
    },
    Row {
        name: "a file system that takes no files",
        code: "E0002",
        file: "/proc/m.sdx",
        node: "",
        words: &["cannot write /proc/m.sdx"],
        make: |f| compile_to(f, "/proc/m.sdx"),
    },
    Row {
        name: "a device",
        code: "E0002",
        file: "/dev/full",
        node: "",
        words: &["not a regular file"],
        make: |f| compile_to(f, "/dev/full"),
    },
    Row {
        name: "a name that is too long",
        code: "E0002",
        file: LONG,
        node: "",
        words: &["File name too long"],
        make: |f| compile_to(f, LONG),
    },
    Row {
        name: "outputs below a file",
        code: "E0002",
        file: "m.sdx/y",
        node: "",
        words: &["m.sdx/y", "Not a directory"],
        make: |f| {
            f.artifact();
            line("sardonyx-run run m.sdx --input x=random --input ids=zeros --dim batch=2 --output-dir m.sdx/y")
        },
    },
    Row {
        name: "IR below a file",
        code: "E0002",
        file: "m.onnx/ir",
        node: "",
        words: &["m.onnx/ir", "Not a directory"],
        make: |f| {
            f.compile(&small());
            line("sardonyx compile m.onnx -o out/m.sdx --dump-dir m.onnx/ir")
        },
    },
    Row {
        name: "the model itself",
        code: "E0001",
        file: "m.onnx",
        node: "",
        words: &["the output ./m.onnx is the model itself"],
        make: |f| compile_to(f, "./m.onnx"),
    },
    Row {
        name: "a link to the model",
        code: "E0001",
        file: "m.onnx",
        node: "",
        words: &["the output link.sdx is the model itself"],
        make: |f| {
            std::os::unix::fs::symlink("m.onnx", f.file("link.sdx")).unwrap();
            compile_to(f, "link.sdx")
        },
    },
    Row {
        name: "external data of the model",
        code: "E0001",
        file: "m.onnx",
        node: "",
        words: &["the output w.bin is external data of the model"],
        make: |f| {
            large(f);
            line("sardonyx compile m.onnx -o w.bin")
        },
    },
    Row {
        name: "a report in the place of external data",
        code: "E0001",
        file: "m.onnx",
        node: "",
        words: &["the output ./w.bin is external data of the model"],
        make: |f| {
            large(f);
            line("sardonyx compile m.onnx -o out/m.sdx --report ./w.bin")
        },
    },
    Row {
        name: "the plan of the ranks",
        code: "E0001",
        file: "m.onnx",
        node: "",
        words: &["the output plan.toml is the plan of the ranks"],
        make: |f| {
            large(f);
            f.write("plan.toml", "mesh = [2]\n");
            line("sardonyx compile m.onnx --plan plan.toml -o plan.toml")
        },
    },
    Row {
        name: "data of a calibration",
        code: "E0001",
        file: "m.onnx",
        node: "",
        words: &["the output data/a.npz is among the data of --calibrate"],
        make: |f| {
            large(f);
            std::fs::create_dir(f.file("data")).unwrap();
            f.write("data/a.npz", "");
            line("sardonyx compile m.onnx --quantize int4 --calibrate data -o data/a.npz")
        },
    },
];

const LONG: &str = concat!(
    "out/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.sdx",
);

#[test]
fn places_that_cannot_be_written_are_named() {
    check(ROWS);
}

/// Writes a model with 4 MiB of weights, as external data in `w.bin`.
fn large(f: &Folder) {
    let net = Net::new().input("x", F32, "n 1024").external("w", &[1024, 1024], "w.bin", 0);
    f.write("w.bin", vec![0; 4 << 20]);
    f.write("m.onnx", net.node("/mm", "MatMul", "x w", "y").output("y").bytes());
}

fn nothing_remains(f: &Folder, outcome: &Outcome, words: &str) {
    assert_eq!(outcome.code, 2, "{outcome:?}");
    assert!(outcome.stderr.starts_with("error[E0002]: cannot write "), "{outcome:?}");
    assert!(outcome.stderr.contains(words) && outcome.stderr.contains("\n  help: "), "{outcome:?}");
    assert_eq!(std::fs::read(f.file("out/m.sdx")).unwrap(), b"old", "the old file is gone");
    assert_eq!(f.written(), ["m.sdx"]);
}

#[test]
fn a_full_file_system_leaves_the_old_artifact_and_nothing_else() {
    // The limit of 2 MiB applies to every file that the program writes. The linker's files are smaller, the artifact is
    // larger. SIGXFSZ is ignored, so that a write beyond the limit fails as on a full disk.
    let f = Folder::new();
    large(&f);
    f.write("out/m.sdx", "old");
    let script =
        format!("trap '' XFSZ; ulimit -f 2048; exec {} compile m.onnx -o out/m.sdx", program("sardonyx").display());
    let outcome = Outcome::run(Command::new("bash").args(["-c", &script]).current_dir(f.path()));
    nothing_remains(&f, &outcome, "File too large");
}

#[test]
fn a_full_tmpfs_leaves_nothing() {
    // This test needs permission to mount; without it, only the test above covers a full disk.
    let f = Folder::new();
    large(&f);
    let script = format!(
        "mount -t tmpfs -o size=1m none out || exit 77; printf old > out/m.sdx; \
         {} compile m.onnx -o out/m.sdx; code=$?; ls -A out > left; cat out/m.sdx >> left; exit $code",
        program("sardonyx").display()
    );
    let outcome = Outcome::run(Command::new("unshare").args(["-m", "bash", "-c", &script]).current_dir(f.path()));
    if outcome.code == 77 || outcome.stderr.starts_with("unshare:") {
        println!("not shown: this machine does not let the test mount a tmpfs ({})", outcome.stderr.trim());
        return;
    }
    assert_eq!(outcome.code, 2, "{outcome:?}");
    assert!(outcome.stderr.contains("No space left on device"), "{outcome:?}");
    assert!(outcome.stderr.contains("\n  --> out/m.sdx\n  help: "), "{outcome:?}");
    assert_eq!(std::fs::read_to_string(f.file("left")).unwrap(), "m.sdx\nold");
}

/// A killed process leaves its temporary file; the next process that writes the same output removes it.
#[test]
fn what_a_killed_process_left_goes_with_the_next_output() {
    let f = Folder::new();
    large(&f);
    f.write("out/m.sdx", "old");
    let compile = || {
        let mut command = Command::new(program("sardonyx"));
        command.args(["compile", "m.onnx", "-o", "out/m.sdx"]).current_dir(f.path()).stdout(Stdio::null());
        command
    };
    let left = |f: &Folder| f.written().iter().any(|name| name.starts_with(".m.sdx."));
    // Up to 50 attempts, because the temporary file exists only for the short time in which weights are written.
    let was_left = (0..50).any(|_| {
        let mut child = compile().spawn().expect("the program starts");
        while !left(&f) && child.try_wait().expect("a child can be asked").is_none() {
            std::thread::sleep(Duration::from_micros(200));
        }
        child.kill().expect("a child can be killed");
        child.wait().expect("a child ends");
        left(&f)
    });
    assert!(was_left, "no process was killed while it wrote");
    assert_eq!(Outcome::run(&mut compile()).code, 0);
    assert_eq!(f.written(), ["m.sdx"]);
}
