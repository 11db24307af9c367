//! Artifacts that are truncated, damaged, of another version or for another processor

use crate::folder::{Folder, line, small_artifact};
use crate::{Row, check};
use sardonyx_base::plan::Manifest;
use sardonyx_format::{Artifact, ArtifactWriter, Verify};

const CHECK: &str = "sardonyx-run inspect m.sdx";

fn run(f: &Folder, artifact: &[u8]) -> Vec<String> {
    f.write("m.sdx", artifact);
    line("sardonyx-run bench m.sdx --min-time 0")
}

/// The valid artifact rewritten with a changed manifest, with correct hashes.
fn rewritten(f: &Folder, change: fn(&mut Manifest)) -> Vec<String> {
    f.artifact();
    let good = Artifact::open(f.file("m.sdx"), Verify::Full).unwrap();
    let mut writer = ArtifactWriter::create(f.file("m.sdx")).unwrap();
    writer.constant(&good.weights).unwrap();
    let mut manifest = good.manifest.clone();
    change(&mut manifest);
    writer.finish(manifest, &good.plan, good.code.as_deref()).unwrap();
    line("sardonyx-run bench m.sdx --min-time 0")
}

static ROWS: &[Row] = &[
    Row {
        name: "an empty artifact",
        code: "E0401",
        file: "m.sdx",
        node: "",
        words: &["too short"],
        make: |f| run(f, b""),
    },
    Row {
        name: "half an artifact",
        code: "E0401",
        file: "m.sdx",
        node: "",
        words: &["truncated"],
        make: |f| run(f, &small_artifact()[..small_artifact().len() / 2]),
    },
    Row {
        name: "an artifact without its last byte",
        code: "E0401",
        file: "m.sdx",
        node: "",
        words: &[],
        make: |f| run(f, &small_artifact()[..small_artifact().len() - 1]),
    },
    Row {
        name: "a flipped bit of the weights",
        code: "E0401",
        file: "m.sdx",
        node: "",
        words: &["`weights`", "hash"],
        make: |f| run(f, &flipped(4096 + 17)),
    },
    Row {
        name: "a flipped bit of the code",
        code: "E0401",
        file: "m.sdx",
        node: "",
        words: &["hash"],
        make: |f| {
            let elf = small_artifact().windows(4).position(|w| w == b"\x7fELF").unwrap();
            run(f, &flipped(elf + 1000))
        },
    },
    Row {
        name: "a model instead of an artifact",
        code: "E0401",
        file: "m.sdx",
        node: "",
        words: &["not an artifact"],
        make: |f| run(f, &sardonyx_tests::onnx::small().bytes()),
    },
    Row {
        name: "an artifact that is not there",
        code: "E0002",
        file: "m.sdx",
        node: "",
        words: &["No such file"],
        make: |_| line(CHECK),
    },
    Row {
        name: "a folder",
        code: "E0002",
        file: "m.sdx",
        node: "",
        words: &["m.sdx"],
        make: |f| {
            std::fs::create_dir(f.file("m.sdx")).unwrap();
            line(CHECK)
        },
    },
    Row {
        name: "another major version",
        code: "E0402",
        file: "m.sdx",
        node: "",
        words: &["format 2", "this runtime reads 1"],
        make: |f| rewritten(f, |m| m.format_major = 2),
    },
    Row {
        name: "another architecture",
        code: "E0403",
        file: "m.sdx",
        node: "",
        words: &["aarch64"],
        make: |f| rewritten(f, |m| m.arch = "aarch64".into()),
    },
    Row {
        name: "no variant for this processor",
        code: "E0403",
        file: "m.sdx",
        node: "",
        words: &["v9"],
        make: |f| rewritten(f, |m| m.variants = vec!["v9".into()]),
    },
];

fn flipped(at: usize) -> Vec<u8> {
    let mut bytes = small_artifact().to_vec();
    bytes[at] ^= 0x20;
    bytes
}

#[test]
fn damaged_and_foreign_artifacts_are_refused() {
    check(ROWS);
}
