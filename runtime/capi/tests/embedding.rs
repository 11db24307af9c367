//! Tests of the C API: C99 and C++17 programs built with warnings as errors, and a program with the static library

#[path = "../../tests/common/mod.rs"]
mod artifacts;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {text}");
    text
}

/// Returns the folder with the libraries of the Cargo profile under test. Unless `cargo xtask test` has built the whole
/// workspace, builds the libraries first, because testing this package alone does not build them.
fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        // target/debug/deps/embedding-…
        let program = std::env::current_exe().unwrap();
        let folder = program.ancestors().nth(2).unwrap();
        if std::env::var_os("SARDONYX_PROGRAMS_ARE_BUILT").is_some() {
            let library = folder.join("libsardonyx.so");
            assert!(library.is_file(), "`cargo build --workspace --lib --tests` builds {}", library.display());
            return folder.to_path_buf();
        }
        let profile = if folder.ends_with("debug") { "dev" } else { "release" };
        let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
        cargo.args(["build", "--quiet", "-p", "sardonyx-capi", "--profile", profile]).current_dir(here());
        run(cargo.arg("--target-dir").arg(folder.parent().unwrap()));
        folder.to_path_buf()
    })
}

static C99: &[&str] = &["cc", "-std=c99"];
static CPP17: &[&str] = &["c++", "-x", "c++", "-std=c++17"];

/// Builds a program against the shared library and the header in `headers`.
fn program(language: &[&str], source: &Path, headers: &Path, to: &Path) {
    let mut compile = Command::new(language[0]);
    compile.args(&language[1..]).args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-g", "-O1"]);
    compile.arg("-I").arg(headers).arg(source).arg("-o").arg(to).args(["-x", "none"]);
    run(compile.arg("-L").arg(libraries()).args(["-lsardonyx", "-lm", "-lpthread"]));
}

/// Returns a command that runs a program with `folder` as its search path for libraries. Copies the shared library
/// there, under its soname only.
fn start(program: &Path, folder: &Path) -> Command {
    let soname = folder.join("libsardonyx.so.0");
    if !soname.exists() {
        std::fs::copy(libraries().join("libsardonyx.so"), &soname).unwrap();
    }
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", folder);
    command
}

/// Writes the artifacts that the programs run.
fn write_artifacts(folder: &Path) -> [PathBuf; 2] {
    let paths = ["two_layers.sdx", "decoder.sdx"].map(|name| folder.join(name));
    artifacts::two_layers().write(&paths[0]);
    artifacts::decoder().write(&paths[1]);
    paths
}

#[test]
fn every_function_and_every_mistake_in_both_languages() {
    let dir = tempfile::tempdir().unwrap();
    let models = write_artifacts(dir.path());
    for (name, language) in [("c99", C99), ("cpp17", CPP17)] {
        let path = dir.path().join(name);
        program(language, &here().join("tests/abi.c"), here(), &path);
        assert_eq!(run(start(&path, dir.path()).args(&models)), "0 failed\n", "{name}");
    }
}

#[test]
fn tensors_may_be_in_the_memory_of_a_gpu() {
    let (dir, driver) = (tempfile::tempdir().unwrap(), artifacts::driver());
    let model = dir.path().join("layers.sdx");
    artifacts::layers().write(&model);
    for (name, language) in [("c99", C99), ("cpp17", CPP17)] {
        let path = dir.path().join(name);
        program(language, &here().join("tests/cuda.c"), here(), &path);
        let mut command = start(&path, dir.path());
        let paths = std::env::join_paths([dir.path(), driver.path()]).unwrap();
        assert_eq!(run(command.env("LD_LIBRARY_PATH", paths).arg(&model)), "0 failed\n", "{name}");
    }
}

#[test]
fn the_static_library_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let models = write_artifacts(dir.path());
    let path = dir.path().join("static");
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-I"]).arg(here()).arg(here().join("tests/abi.c")).arg("-o").arg(&path);
    let pc = std::fs::read_to_string(here().join("sardonyx.pc.in")).unwrap();
    let private = pc.lines().find_map(|line| line.strip_prefix("Libs.private: ")).unwrap();
    run(cc.arg(libraries().join("libsardonyx.a")).args(private.split(' ')));
    assert_eq!(run(Command::new(&path).args(&models)), "0 failed\n");
}

/// Returns an older version of the header, without the fields that were added last.
fn older_header() -> String {
    let mut header = std::fs::read_to_string(here().join("sardonyx.h")).unwrap();
    let gone = [
        ("  const struct sdx_cancel *cancel;\n", 1),
        ("  uint64_t timeout_ns;\n", 1),
        ("  int32_t pinned;\n", 1),
        ("  int32_t copied;\n", 1),
        ("  int32_t on_device;\n", 2),
        ("  void *cuda_context;\n", 1),
        ("  void *cuda_stream;\n", 1),
    ];
    for (field, n) in gone {
        assert_eq!(header.matches(field).count(), n, "{field}");
        header = header.replace(field, "");
    }
    header
}

#[test]
fn a_program_from_before_structs_grew_runs() {
    let dir = tempfile::tempdir().unwrap();
    let models = write_artifacts(dir.path());
    std::fs::write(dir.path().join("sardonyx.h"), older_header()).unwrap();
    let path = dir.path().join("older");
    program(C99, &here().join("tests/older.c"), dir.path(), &path);
    assert_eq!(run(start(&path, dir.path()).args(&models[..1])), "20 20 20\n");
}

/// Returns the names of the functions that the header declares, sorted.
fn declared() -> Vec<String> {
    let header = std::fs::read_to_string(here().join("sardonyx.h")).unwrap();
    let name = |line: &str| {
        let before = line.split_once('(').filter(|_| !line.starts_with([' ', '/', '#', '*']))?.0;
        let name = before.rsplit([' ', '*']).next()?;
        name.starts_with("sdx_").then(|| name.to_string())
    };
    let mut names: Vec<String> = header.lines().filter_map(name).collect();
    names.sort();
    names
}

#[test]
fn the_library_exports_what_the_header_declares() {
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(libraries().join("libsardonyx.so")));
    let mut exported: Vec<String> =
        symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_string).collect();
    exported.sort();
    assert!(exported.len() > 30, "{exported:?}");
    assert_eq!(exported, declared());
    let dynamic = run(Command::new("readelf").arg("-d").arg(libraries().join("libsardonyx.so")));
    assert!(dynamic.contains("soname: [libsardonyx.so.0]"), "{dynamic}");
}

#[test]
fn the_header_is_what_cbindgen_writes() {
    let mut config = cbindgen::Config::from_file(here().join("cbindgen.toml")).unwrap();
    config.export.exclude.push("Handle".into());
    let mut header = vec![];
    cbindgen::generate_with_config(here(), config).unwrap().write(&mut header);
    let header = String::from_utf8(header).unwrap();
    let path = here().join("sardonyx.h");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &header).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), header, "BLESS=1 writes {}", path.display());
}

#[test]
fn the_examples_are_built_with_every_warning() {
    let dir = tempfile::tempdir().unwrap();
    let models = write_artifacts(dir.path());
    let all = [("embed.c", C99), ("embed.c", CPP17), ("smallest.c", C99), ("smallest.c", CPP17)];
    for (i, (source, language)) in all.into_iter().enumerate() {
        let path = dir.path().join(format!("example{i}"));
        program(language, &here().join("examples").join(source), here(), &path);
        // The model is not an encoder, so the examples report an error and exit with status 2.
        let done = start(&path, dir.path()).arg(&models[0]).args(["1", "2"]).output().unwrap();
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{text}");
        assert!(text.contains("error[E0301]"), "{text}");
    }
}

#[test]
fn readme_shows_the_smallest_programs() {
    let root = here().ancestors().nth(2).unwrap();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let programs = [
        ("runtime/examples/smallest.rs", "rust", "use sardonyx"),
        ("runtime/python/examples/smallest.py", "python", "import sys"),
        ("runtime/capi/examples/smallest.c", "c", "#include"),
    ];
    for (path, language, begin) in programs {
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        let shown = &text[text.find(begin).unwrap()..];
        assert!(readme.contains(&format!("```{language}\n{shown}```\n")), "README does not show {path}");
    }
}

/// Runs `embed.c`, and `abi.c`, which calls all functions, under valgrind and expects neither errors nor leaks.
#[test]
#[ignore = "cargo xtask test --suite embedding"]
fn valgrind_finds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let models = write_artifacts(dir.path());
    let encoder = std::env::var_os("SARDONYX_ENCODER").expect("SARDONYX_ENCODER is an artifact of an encoder");
    let valgrind = |name: &str, arguments: &mut dyn FnMut(&mut Command)| {
        let path = dir.path().join(name.replace('.', "_"));
        let folder = if name == "abi.c" { "tests" } else { "examples" };
        program(C99, &here().join(folder).join(name), here(), &path);
        let environment = start(&path, dir.path());
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=definite,indirect"]);
        command.args(["--errors-for-leak-kinds=definite,indirect"]).arg(&path);
        command.envs(environment.get_envs().filter_map(|(k, v)| Some((k, v?))));
        arguments(&mut command);
        run(&mut command)
    };
    assert_eq!(valgrind("abi.c", &mut |c| _ = c.args(&models)), "0 failed\n");
    let embedding = valgrind("embed.c", &mut |c| _ = c.arg(&encoder).args(["101", "7592", "2088", "102"]));
    let numbers: Vec<f64> = embedding.lines().map(|line| line.parse().unwrap()).collect();
    let length: f64 = numbers.iter().map(|x| x * x).sum();
    assert!((length - 1.0).abs() < 1e-4, "{length}");
}
