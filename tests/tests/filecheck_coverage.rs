//! FileCheck coverage: each pass has a file of its name, each operator a lowering, each operation a file that spells it

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("filecheck")
}

/// Text of a file, or of all files below a folder.
fn text(path: &Path) -> String {
    if path.is_file() {
        return std::fs::read_to_string(path).expect("a readable file");
    }
    let entries = std::fs::read_dir(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    entries.map(|entry| text(&entry.expect("a folder's entry").path())).collect()
}

#[test]
fn every_pass_has_a_file_of_its_name() {
    for pass in sardonyx_passes::PASSES {
        let name = pass.name.replace('-', "_");
        let path = root().join("passes").join(&name);
        assert!(
            path.is_dir() || path.with_extension("mlir").is_file(),
            "tests/filecheck/passes/{name}.mlir is missing"
        );
    }
}

#[test]
fn every_operator_is_lowered_somewhere() {
    let files = text(&root().join("passes/onnx_to_sdx"));
    let lowers = |line: &str, row: &sardonyx_passes::Operator| {
        let of_domain = match row.domain {
            "" => !line.contains(" domain \""),
            domain => line.contains(&format!(" domain \"{domain}\"")),
        };
        of_domain && line.contains(&format!("onnx.node \"{}\"", row.name))
    };
    let missing = sardonyx_passes::OPERATORS.iter().filter(|row| !files.lines().any(|line| lowers(line, row)));
    let missing: Vec<String> = missing.map(|row| format!("{}.{}", row.domain, row.name)).collect();
    assert!(missing.is_empty(), "no FileCheck file lowers {missing:?}");
}

/// Mnemonics of a dialect's operations, from its TableGen definition.
fn mnemonics(dialect: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../dialects/td/{dialect}.td"));
    let definitions = text(&path);
    let operations = definitions.lines().filter(|l| l.starts_with("def ") && l.contains("Op<"));
    let quoted = |line: &str| line.split('"').nth(1).map(str::to_string);
    operations.filter_map(quoted).map(|m| format!("{}.{m}", dialect.to_lowercase())).collect()
}

#[test]
fn every_operation_is_spelled_out() {
    let files = text(&root().join("dialects"));
    for dialect in ["Onnx", "Sdx", "Flow", "Plan"] {
        let all = mnemonics(dialect);
        assert!(all.len() > 1, "{dialect}.td defines operations");
        for operation in all {
            assert!(files.contains(&format!("{operation} ")), "no file of tests/filecheck/dialects spells {operation}");
        }
    }
}

#[test]
fn every_operation_of_values_is_converted() {
    let file = text(&root().join("passes/sdx_to_flow.mlir"));
    // `shard` removes every `sdx.place` before `sdx-to-flow`.
    let all = mnemonics("Sdx").into_iter().filter(|op| op != "sdx.place");
    let missing: Vec<String> = all.filter(|op| !file.contains(&format!("= {op} "))).collect();
    assert!(missing.is_empty(), "tests/filecheck/passes/sdx_to_flow.mlir lacks {missing:?}");
}
