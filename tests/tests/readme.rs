//! docs/adding.md  =>  its steps applied literally to a copy of the project, and the tests run there
//!
//! A block's info string says what to do with it: `create=FILE`, `append=FILE`, `insert=FILE,after=LINE` or
//! `insert=FILE,before=LINE` (the line that contains the text). The default suite checks that the steps can be applied;
//! `cargo xtask test --suite readme` builds and tests the result.

use sardonyx_tests::prepared::workspace;
use std::path::Path;
use std::process::Command;

struct Block {
    action: String,
    file: String,
    /// Text of the line before or after which to insert.
    anchor: String,
    body: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut out = vec![];
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some((_, info)) = line.strip_prefix("```").and_then(|l| l.split_once(',')) else { continue };
        let (action, rest) = info.split_once('=').expect("an action and a file");
        let (file, anchor) = rest.split_once(',').unwrap_or((rest, ""));
        let (place, anchor) = anchor.split_once('=').unwrap_or(("", anchor));
        let body: String = lines.by_ref().take_while(|l| *l != "```").map(|l| format!("{l}\n")).collect();
        let action = if place.is_empty() { action.to_string() } else { format!("{action} {place}") };
        out.push(Block { action, file: file.into(), anchor: anchor.into(), body });
    }
    out
}

/// Name that a line adds: `    row("Name", …` => `"Name"`, `pub fn name(…` => `fn name(`
fn added(line: &str) -> Option<&str> {
    if let Some(function) = line.strip_prefix("pub ").filter(|l| l.starts_with("fn ")) {
        return function.split_inclusive('(').next();
    }
    let row = line.strip_prefix("    ")?.split_once('(')?.1.strip_prefix('"')?;
    let end = row.find('"')?;
    let start = line.len() - line.split_once('"')?.1.len() - 1;
    Some(&line[start..start + end + 2])
}

#[test]
fn rows_and_functions_are_seen() {
    assert_eq!(added("    onnx(\"Abs\", 7, e::abs),"), Some("\"Abs\""));
    assert_eq!(added("pub fn abs(b: &mut Builder) {"), Some("fn abs("));
    assert_eq!(added("    let x = node.input(0)?;"), None);
}

fn apply(root: &Path, block: &Block) {
    let path = root.join(&block.file);
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    let at_line = |after: bool| {
        let found = old.match_indices('\n').map(|(i, _)| i + 1);
        let mut start = 0;
        for end in found {
            if old[start..end].contains(&block.anchor) {
                return if after { end } else { start };
            }
            start = end;
        }
        panic!("{} has no line with `{}`", block.file, block.anchor)
    };
    // What a step adds must be new; otherwise a row or a function would exist twice.
    for name in block.body.lines().filter_map(added) {
        assert!(!old.contains(name), "{} has `{name}` already", block.file);
    }
    let new = match block.action.as_str() {
        "create" => {
            assert!(!path.exists(), "{} exists already", block.file);
            block.body.clone()
        }
        "append" => format!("{old}{}", block.body),
        "insert after" => format!("{}{}{}", &old[..at_line(true)], block.body, &old[at_line(true)..]),
        "insert before" => format!("{}{}{}", &old[..at_line(false)], block.body, &old[at_line(false)..]),
        other => panic!("what is `{other}`?"),
    };
    std::fs::create_dir_all(path.parent().expect("a file in a folder")).unwrap();
    std::fs::write(path, new).unwrap();
}

/// Copies the files that git tracks or would track, except testdata.
fn copy_project(from: &Path, to: &Path) {
    let listed = Command::new("git")
        .current_dir(from)
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .output()
        .expect("git is there");
    for file in String::from_utf8(listed.stdout).unwrap().lines().filter(|f| !f.starts_with("testdata/")) {
        if from.join(file).is_file() {
            std::fs::create_dir_all(to.join(file).parent().unwrap()).unwrap();
            std::fs::copy(from.join(file), to.join(file)).unwrap();
        }
    }
}

/// A copy of the project to which all steps were applied.
fn stepped() -> tempfile::TempDir {
    let root = workspace();
    let page = std::fs::read_to_string(root.join("docs/adding.md")).unwrap();
    let blocks = blocks(&page);
    assert!(blocks.len() >= 7, "the page has lost its steps: {} blocks", blocks.len());
    let copy = tempfile::tempdir().unwrap();
    copy_project(&root, copy.path());
    blocks.iter().for_each(|b| apply(copy.path(), b));
    copy
}

/// Every file and line that the steps name exists, and the resulting files can be parsed.
#[test]
fn the_steps_of_the_page_fit_the_project() {
    let copy = stepped();
    for file in
        ["cancel_negations.rs", "onnx_to_sdx/table.rs", "lib.rs", "registry.rs"].map(|f| format!("passes/src/{f}"))
    {
        let checked =
            Command::new("rustfmt").args(["--check", "--edition", "2024"]).arg(copy.path().join(&file)).output();
        let checked = checked.expect("rustfmt is there");
        let text = String::from_utf8_lossy(&checked.stderr);
        assert!(!text.contains("error"), "{file}: {text}");
    }
    let holds = |file: &str, text: &str| std::fs::read_to_string(copy.path().join(file)).unwrap().contains(text);
    assert!(holds("passes/src/lib.rs", "mod cancel_negations;"));
    assert!(holds("passes/src/registry.rs", "cancel_negations::run"));
}

#[test]
#[ignore = "builds the compiler anew: cargo xtask test --suite readme"]
fn the_steps_of_the_page_work_as_written() {
    let copy = stepped();
    // The tests run only a handful of small files, for which optimized passes are not worth their compile time.
    let manifest = copy.path().join("Cargo.toml");
    let settings = std::fs::read_to_string(&manifest).unwrap();
    let optimised = "[profile.dev.package.sardonyx-passes]\nopt-level = 1\n";
    assert!(settings.contains(optimised), "the page's test knows of other settings");
    std::fs::write(&manifest, settings.replace(optimised, "")).unwrap();

    // The copy reuses the third-party crates that this build has compiled.
    let own_target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_path_buf();
    let target = own_target.join("readme");
    let _ = std::fs::remove_dir_all(&target);
    std::fs::create_dir_all(target.join("debug")).unwrap();
    // Fingerprints are copied: cargo writes into them, and with links it would confuse the copy with this build.
    for (part, how) in [("build", "-al"), ("deps", "-al"), (".fingerprint", "-a")] {
        let from = own_target.join("debug").join(part);
        if from.exists() {
            Command::new("cp").arg(how).arg(&from).arg(target.join("debug")).status().expect("cp is there");
        }
    }
    // The test data, from which the table of launches is made.
    std::os::unix::fs::symlink(workspace().join("testdata"), copy.path().join("testdata")).unwrap();
    let cargo = |args: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(copy.path()).env("CARGO_TARGET_DIR", &target).args(args);
        let run = cargo.output().expect("cargo is there");
        let text = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        (run.status.success(), text)
    };
    let filecheck = cargo(&["test", "-p", "sardonyx-tests", "--test", "filecheck", "--test", "filecheck_coverage"]);
    let units = cargo(&["test", "-p", "sardonyx-passes", "--lib"]);
    let stale = cargo(&["run", "-p", "xtask", "--", "docs", "--check"]);
    let pages =
        [&["run", "-p", "xtask", "--", "docs"][..], &["run", "-p", "xtask", "--", "docs", "--check"]].map(cargo);
    let operators = std::fs::read_to_string(copy.path().join("compiler/OPERATORS.md")).unwrap();
    let _ = std::fs::remove_dir_all(&target);
    let passed = |test: &str| filecheck.1.lines().any(|l| l.contains(test) && l.ends_with("ok"));
    assert!(filecheck.0 && passed("scaled_tanh") && passed("cancel_negations"), "{}", filecheck.1);
    assert!(units.0 && units.1.contains("table::tests::rows_are_sorted_and_unique ... ok"), "{}", units.1);
    assert!(!stale.0 && stale.1.contains("OPERATORS.md"), "{}", stale.1);
    assert!(pages.iter().all(|page| page.0) && operators.contains("ScaledTanh"), "{pages:?}");
}
