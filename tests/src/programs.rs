//! program("sardonyx")  =>  the path of our binary, freshly built; Outcome::run(command)  =>  exit code and text

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Environment variable that says that the whole workspace, including the programs, is already built. Building the
/// programs alone would be another build, because cargo unifies features over everything that is built together.
pub const BUILT: &str = "SARDONYX_PROGRAMS_ARE_BUILT";

/// Returns the path of `sardonyx`, `sardonyx-opt` or `sardonyx-run`, built in the profile of this test. The first call
/// builds all three, so that no stale program is tested, unless `BUILT` says that they are built.
pub fn program(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = || if std::env::var_os(BUILT).is_some() { profile_folder() } else { build() };
    let path = FOLDER.get_or_init(folder).join(name);
    assert!(path.is_file(), "{} is not built", path.display());
    path
}

/// Returns the folder `target/PROFILE`.
pub fn profile_folder() -> PathBuf {
    let own = std::env::current_exe().expect("a test knows its own path");
    own.ancestors().nth(2).expect("tests lie in target/PROFILE/deps").to_path_buf()
}

fn build() -> PathBuf {
    let folder = profile_folder();
    let profile = match folder.file_name().and_then(|n| n.to_str()) {
        Some("debug") => "dev",
        Some(name) => name,
        None => panic!("{} names no profile", folder.display()),
    };
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    cargo.args(["build", "--quiet", "-p", "sardonyx", "-p", "sardonyx-run", "--bins", "--profile", profile]);
    cargo.arg("--target-dir").arg(folder.parent().expect("a profile lies in a target folder"));
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "the programs do not build:\n{}", String::from_utf8_lossy(&output.stderr));
    folder
}

/// Exit code and output of a program that has ended.
#[derive(Debug)]
pub struct Outcome {
    /// Exit code, or 128 + N if signal N ended the program; -1 if the system reports neither a code nor a signal.
    pub code: i32,
    /// Standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Standard error; bytes that are not UTF-8 are replaced.
    pub stderr: String,
}

impl Outcome {
    /// Runs a program until it ends; panics if it cannot be started.
    pub fn run(command: &mut Command) -> Outcome {
        let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        Outcome::from(output)
    }
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Outcome {
        use std::os::unix::process::ExitStatusExt;
        let code = output.status.code().or_else(|| output.status.signal().map(|n| 128 + n));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Outcome { code: code.unwrap_or(-1), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

/// Compiles a model with `sardonyx compile`; panics if that fails.
pub fn compile(model: &Path, output: &Path, arguments: &[&str]) {
    let mut command = Command::new(program("sardonyx"));
    let outcome = Outcome::run(command.arg("compile").arg(model).arg("-o").arg(output).args(arguments));
    assert_eq!(outcome.code, 0, "{}: {}", model.display(), outcome.stderr);
}
