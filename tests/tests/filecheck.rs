//! tests/filecheck/**/*.mlir  =>  one test per file, which runs its `// RUN:` lines in bash with our and LLVM's tools
//!
//! In a RUN line, `%s` stands for the file and `%t` for a path for temporary output. A RUN line that ends in `\`
//! continues in the next one. `cargo test -p sardonyx-tests --test filecheck NAME` runs the files whose path below
//! `tests/filecheck` contains NAME.

use libtest_mimic::{Arguments, Failed, Trial};
use sardonyx_tests::programs::program;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("filecheck");
    let mut files = vec![];
    collect(&root, &mut files);
    files.sort();
    // A call that only lists the tests must not build the programs, which `tools` does.
    let tools = if arguments.list { Ok(vec![]) } else { tools() };
    let trials = files.into_iter().map(|file| trial(&root, file, tools.clone())).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for path in entries.map(|entry| entry.expect("a folder's entry").path()) {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "mlir") {
            files.push(path);
        }
    }
}

fn trial(root: &Path, file: PathBuf, tools: Result<Vec<PathBuf>, String>) -> Trial {
    let name = file.strip_prefix(root).unwrap_or(&file).with_extension("").display().to_string();
    Trial::test(name, move || check(&file, &tools?))
}

/// Returns the folders of the programs that RUN lines call: ours, which are built first, and LLVM's.
fn tools() -> Result<Vec<PathBuf>, String> {
    let optimiser = program("sardonyx-opt");
    let ours = optimiser.parent().ok_or("the path of `sardonyx-opt` has no folder")?;
    let prefix = std::env::var("MLIR_SYS_220_PREFIX").unwrap_or_else(|_| "/usr/lib/llvm-22".into());
    let llvm = Path::new(&prefix).join("bin");
    match ["FileCheck", "not", "split-file"].iter().find(|tool| !llvm.join(tool).exists()) {
        Some(tool) => Err(format!("{} has no `{tool}`: install LLVM's tools", llvm.display())),
        None => Ok(vec![ours.into(), llvm]),
    }
}

fn check(file: &Path, tools: &[PathBuf]) -> Result<(), Failed> {
    let text = std::fs::read_to_string(file)?;
    let lines = run_lines(&text);
    if lines.is_empty() {
        return Err("the file has no `// RUN:` line".into());
    }
    let temporary = tempfile::tempdir()?;
    for line in lines {
        let line = substituted(&line, file, temporary.path());
        run(&line, tools)?;
    }
    Ok(())
}

/// Returns the commands in the RUN lines of a file, with continuation lines joined.
fn run_lines(text: &str) -> Vec<String> {
    let mut commands: Vec<String> = vec![];
    let mut open = false;
    for line in text.lines().filter_map(|l| l.trim_start().strip_prefix("// RUN:")) {
        let (body, goes_on) = match line.trim_end().strip_suffix('\\') {
            Some(body) => (body, true),
            None => (line, false),
        };
        match commands.last_mut().filter(|_| open) {
            Some(command) => command.push_str(body),
            None => commands.push(body.trim().to_string()),
        }
        open = goes_on;
    }
    commands
}

fn substituted(line: &str, file: &Path, temporary: &Path) -> String {
    let quoted = |path: &Path| format!("'{}'", path.display());
    line.replace("%s", &quoted(file)).replace("%t", &quoted(&temporary.join("t")))
}

fn run(line: &str, tools: &[PathBuf]) -> Result<(), Failed> {
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(tools.iter().cloned().chain(std::env::split_paths(&inherited)))?;
    let output = Command::new("bash").args(["-o", "pipefail", "-c", line]).env("PATH", path).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Err(format!("{line}\n{}\n{}{}", output.status, said(&output.stdout), said(&output.stderr)).into())
}
