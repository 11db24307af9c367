//! Design rules that a program can check: directions of dependencies, levels of IR, purity, unsafe, C++

use melior::ir::operation::OperationLike;
use sardonyx_tests::metadata::Metadata;
use sardonyx_tests::modules::Modules;
use sardonyx_tests::prepared::model;
use sardonyx_tests::programs::{Outcome, program};
use sardonyx_tests::sources::files;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every crate, with the crates of the workspace that it depends on.
static ROOMS: &[(&str, &[&str])] = &[
    ("minilm-demo", &[]),
    ("mlir-link", &[]),
    ("ptxvm", &[]),
    (
        "sardonyx",
        &[
            "sardonyx-base",
            "sardonyx-cluster",
            "sardonyx-dialects",
            "sardonyx-format",
            "sardonyx-kernels",
            "sardonyx-passes",
            "sardonyx-run",
            "sardonyx-runtime",
        ],
    ),
    ("sardonyx-base", &[]),
    ("sardonyx-capi", &["sardonyx-runtime"]),
    ("sardonyx-cluster", &["sardonyx-base"]),
    ("sardonyx-dialects", &["mlir-link", "sardonyx-base"]),
    ("sardonyx-format", &["sardonyx-base"]),
    ("sardonyx-kernels", &["sardonyx-base", "sardonyx-dialects"]),
    ("sardonyx-passes", &["sardonyx-base", "sardonyx-cluster", "sardonyx-dialects", "sardonyx-kernels"]),
    ("sardonyx-python", &["sardonyx-runtime"]),
    ("sardonyx-run", &["sardonyx-base", "sardonyx-cluster", "sardonyx-format", "sardonyx-runtime"]),
    ("sardonyx-runtime", &["ptxvm", "sardonyx-base", "sardonyx-format"]),
    ("sardonyx-serve", &["sardonyx-base", "sardonyx-format", "sardonyx-run", "sardonyx-runtime"]),
    ("xtask", &[]),
];

#[test]
fn rooms_depend_in_one_direction() {
    let metadata = Metadata::read();
    for name in metadata.members().into_iter().filter(|n| *n != "sardonyx-tests") {
        let row = ROOMS.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{name} is not in the table"));
        assert_eq!(metadata.rooms_of(name), row.1.iter().copied().collect::<BTreeSet<_>>(), "{name}");
    }
}

/// Largest permitted cycle of kernel generators that use each other, because such generators must be read together.
const CIRCLE_MAX: usize = 5;

#[test]
fn generators_of_kernels_need_few_others_in_circles() {
    let modules = Modules::of_crate("passes/kernels/src");
    let circles = modules.circles();
    assert!(circles.first().is_none_or(|c| c.len() <= CIRCLE_MAX), "{circles:?}");
    assert!(modules.uses("classes").any(|m| m == "ptx::gemm"), "the table of classes names its generators");
}

/// The uses among the files and folders at the top level of `passes` have no cycles.
#[test]
fn passes_have_no_arrows_back() {
    let rooms = Modules::of_crate("passes/src").rooms();
    assert!(rooms.circles().is_empty(), "{:?}", rooms.circles());
    assert!(rooms.uses("registry").any(|room| room == "egraph"), "the registry names the passes");
}

/// Compiles a model. Returns the IR after every stage, in order: (stage, file).
fn dump(name: &str, dir: &Path) -> Vec<(String, PathBuf)> {
    let mut command = Command::new(program("sardonyx"));
    command.arg("compile").arg(model(name)).arg("-o").arg(dir.join("m.sdx")).arg("--dump-dir").arg(dir.join("ir"));
    let outcome = Outcome::run(&mut command);
    assert_eq!(outcome.code, 0, "{name}: {}", outcome.stderr);
    let entries = std::fs::read_dir(dir.join("ir")).unwrap().map(|e| e.unwrap().path());
    let stage = |p: &PathBuf| p.file_stem().unwrap_or_default().to_string_lossy()[3..].to_string();
    let mut found: Vec<PathBuf> = entries.collect();
    found.sort();
    let stages: Vec<(String, PathBuf)> = found.into_iter().map(|p| (stage(&p), p)).collect();
    let names: Vec<&str> = stages.iter().map(|(s, _)| s.as_str()).collect();
    assert_eq!(names, sardonyx::pipeline::STAGES.iter().map(|(s, _)| *s).collect::<Vec<_>>());
    stages
}

/// Parses, verifies and prints the IR, including locations.
fn printed_again(text: &str) -> Option<String> {
    let context = sardonyx_passes::context();
    let module = melior::ir::Module::parse(&context, text)?;
    module.as_operation().verify().then(|| sardonyx::pipeline::text(&module).ok())?
}

/// Whether the line has an operation (`  %7 = onnx.node "Add"(…)` or `"onnx.node"(…)`) or a type of the ONNX dialect.
/// Names of nodes may contain anything.
fn is_onnx(line: &str) -> bool {
    let operation = line.trim_start().split_once(" = ").map_or(line.trim_start(), |(_, rest)| rest);
    operation.trim_start_matches('"').starts_with("onnx.") || line.contains("!onnx.")
}

fn check_levels(name: &str) {
    let dir = tempfile::tempdir().unwrap();
    for (stage, file) in dump(name, dir.path()) {
        let text = std::fs::read_to_string(&file).unwrap();
        let found = text.lines().find(|l| is_onnx(l));
        assert_eq!(found.is_some(), stage == "import", "{name} after {stage}: {found:?}");
        let again = printed_again(&text).unwrap_or_else(|| panic!("{name} after {stage} cannot be read back"));
        let differs = text.lines().zip(again.lines()).find(|(a, b)| a != b);
        assert!(text == again, "{name} after {stage} prints otherwise: {differs:?}");
        let opt = Outcome::run(Command::new(program("sardonyx-opt")).arg(&file));
        assert_eq!(opt.code, 0, "{name} after {stage}: {}", opt.stderr);
    }
}

#[test]
fn every_level_of_minilm_prints_parses_and_verifies() {
    check_levels("skel_minilm_l6_safetensors");
}

#[test]
fn every_level_of_albert_prints_parses_and_verifies() {
    check_levels("rxnmapper_albert_ts17");
}

/// Code of a line, without its comment. A `//` within a string cuts off too much, which can only hide a violation.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or("")
}

/// Lines of code before the tests of each file: (file, line number, code).
fn lines_of(rooms: &[&str]) -> Vec<(String, usize, String)> {
    let mut out = vec![];
    for (file, text) in files("rs") {
        let inside =
            rooms.iter().any(|r| file.starts_with(r)) && !file.ends_with("tests.rs") && !file.contains("/tests/");
        let body = text.lines().take_while(|l| !l.starts_with("#[cfg(test)]"));
        out.extend(body.enumerate().filter(|_| inside).map(|(i, l)| (file.clone(), i + 1, code(l).to_string())));
    }
    assert!(out.len() > 1000, "{} lines in {rooms:?}", out.len());
    out
}

/// Names that give access to the disk, environment, clock, network, threads, processes or properties of the machine.
static IMPURE: &[&str] = &[
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "std::time",
    "fs::",
    "env::var",
    "Instant",
    "SystemTime",
    "available_parallelism",
    "is_x86_feature_detected",
    "RandomState",
];

#[test]
fn passes_touch_no_disk_clock_or_environment() {
    let found: Vec<String> = lines_of(&["passes/src", "passes/kernels/src", "dialects/src"])
        .into_iter()
        .filter(|(file, ..)| !file.starts_with("passes/kernels/src/codegen/"))
        // The interpreter uses a thread for each rank.
        .filter(|(file, ..)| file != "dialects/src/interp/world.rs")
        .filter(|(_, _, line)| IMPURE.iter().any(|word| line.contains(word)))
        .map(|(file, n, line)| format!("{file}:{n}: {line}"))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Methods that expose the order of a table.
static WALKS: &[&str] = &[
    ".iter()",
    ".iter_mut()",
    ".into_iter()",
    ".keys()",
    ".into_keys()",
    ".values()",
    ".values_mut()",
    ".into_values()",
    ".drain(",
    ".retain(",
];

/// Exceptions: (file, text of the line, why the order of that iteration does not matter or what it really iterates
/// over).
static ORDER_ALLOWED: &[(&str, &str, &str)] = &[
    ("dialects/src/flow/ir.rs", "|values: Vec<Val>| values.iter()", "a list of the same name"),
    ("dialects/src/flow/ir.rs", "ids.iter().map(|&i| values[i])", "a slice of the same name"),
    ("dialects/src/plan/ir.rs", "for (symbol, kernel) in &self.kernels", "a list of the same name"),
];

/// Names of the hash tables that a line declares: `name: HashMap<`, `name: &mut HashSet<`, `let
/// mut name = HashMap::new()`.
fn hash_names(line: &str) -> Vec<String> {
    let mut out = vec![];
    for (at, _) in line.match_indices("HashMap").chain(line.match_indices("HashSet")) {
        let mut before = &line[..at];
        loop {
            before = before.trim_end_matches([' ', '=', '&', ':']);
            match before.strip_suffix("mut").filter(|rest| rest.ends_with([' ', '&'])) {
                Some(rest) => before = rest,
                None => break,
            }
        }
        let start = before.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(0, |i| i + 1);
        out.push(before[start..].to_string());
    }
    out.retain(|name| name.starts_with(|c: char| c.is_lowercase()) && name != "collections");
    out
}

/// No file iterates over a name that it declares as a hash table. This is a check of the text only.
#[test]
fn no_order_is_a_hash_order() {
    let lines = lines_of(&["passes/src", "passes/kernels/src", "dialects/src", "compiler/src"]);
    let (mut found, mut declared) = (vec![], 0);
    for file in lines.iter().map(|(f, ..)| f).collect::<BTreeSet<_>>() {
        let own = || lines.iter().filter(|(f, ..)| f == file);
        let names: BTreeSet<String> = own().flat_map(|(_, _, l)| hash_names(l)).collect();
        declared += names.len();
        for (_, n, line) in own() {
            let walked = names.iter().any(|name| walks(line, name));
            let allowed = ORDER_ALLOWED.iter().any(|(f, text, _)| f == file && line.contains(text));
            if walked && !allowed {
                found.push(format!("{file}:{n}: {}", line.trim()));
            }
        }
    }
    assert!(declared > 10, "only {declared} hash tables are recognised");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

fn walks(line: &str, name: &str) -> bool {
    let loops = line.trim_end().trim_end_matches('{').trim_end();
    let looped = ["", "&", "&mut ", "self.", "&self.", "&mut self."]
        .iter()
        .any(|by| loops.ends_with(&format!(" in {by}{name}")));
    looped || WALKS.iter().any(|way| names_it(line, &format!("{name}{way}")))
}

#[test]
fn hash_tables_and_walks_over_them_are_recognised() {
    for line in ["let mut seen = HashMap::new();", "seen: HashMap<usize, usize>,", "fn f(seen: &mut HashSet<Id>) {"] {
        assert_eq!(hash_names(line), ["seen"], "{line}");
    }
    assert_eq!(hash_names("let seen: HashMap<&str, usize> = x.collect();"), ["seen"]);
    for line in ["for x in &seen {", "for (k, v) in self.seen {", "self.seen.values().max()", "seen.keys().collect()"] {
        assert!(walks(line, "seen"), "{line}");
    }
    for line in ["seen.get(&x)", "plan.seen.iter()", "unseen.iter()", "seen.entry(x).or_default()"] {
        assert!(!walks(line, "seen"), "{line}");
    }
}

/// Whether `text` occurs, but neither as the end of a longer name nor as a field of something other than `self`.
fn names_it(line: &str, text: &str) -> bool {
    let other = |before: &str| {
        let before = before.strip_suffix("self.").unwrap_or(before);
        before.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.'))
    };
    line.match_indices(text).any(|(at, _)| !other(&line[..at]))
}

/// Files that contain `unsafe`, each with its reason.
static UNSAFE: &[(&str, &str)] = &[
    ("compiler/src/commands/supervise.rs", "limits a process and hands it a pipe"),
    ("compiler/src/onnx/external.rs", "maps model files"),
    ("compiler/src/session.rs", "loads what the compiler has just written"),
    ("compiler/tests/onnx/main.rs", "an allocator that remembers the largest request"),
    ("dialects/src/hooks.rs", "called from C++"),
    ("dialects/src/mlir/attr.rs", "MLIR's C interface: attributes and types"),
    ("dialects/src/mlir/mod.rs", "MLIR's C interface: handles and strings"),
    ("dialects/src/mlir/operation.rs", "MLIR's C interface: operations and blocks"),
    ("dialects/src/mlir/tests.rs", "reads an empty string of MLIR"),
    (
        "passes/kernels/benches/kernels/measure.rs",
        "calls kernels that it has just built, reads the clock, and runs vector loops",
    ),
    ("passes/kernels/src/codegen/lower.rs", "hands an MLIR module over to LLVM"),
    ("passes/kernels/tests/kernels/harness.rs", "calls kernels with memory that ends at a guard page"),
    ("passes/kernels/tests/kernels/tiles.rs", "carries out instructions that a CPU lacks"),
    ("passes/src/registry.rs", "MLIR's C interface: pass managers"),
    ("runtime/base/src/cpu.rs", "asks the operating system for tiles"),
    ("runtime/base/src/plan/mod.rs", "the type of a kernel"),
    ("runtime/base/src/tensor.rs", "reads bytes as numbers and numbers as bytes, in place"),
    ("runtime/base/src/view.rs", "borrows the caller's memory as bytes"),
    ("runtime/capi/src/border.rs", "turns pointers of C into references, strings and structs"),
    ("runtime/capi/src/cache.rs", "functions that C calls"),
    ("runtime/capi/src/call.rs", "functions that C calls"),
    ("runtime/capi/src/error.rs", "functions that C calls"),
    ("runtime/capi/src/lib.rs", "functions that C calls"),
    ("runtime/capi/src/model.rs", "functions that C calls, and bytes that C lends"),
    ("runtime/capi/src/pool.rs", "functions that C calls, and one of C that is called"),
    ("runtime/capi/src/session.rs", "functions that C calls"),
    ("runtime/capi/src/tensor.rs", "functions that C calls, and tensors that C lends"),
    ("runtime/commands/src/bench/peak.rs", "runs instructions that the CPU was asked for"),
    (
        "runtime/commands/src/lib.rs",
        "restores the default of SIGPIPE, and trusts files that are named on the command line",
    ),
    ("runtime/examples/beside_cuda.rs", "works on a GPU through its driver, beside a model"),
    ("runtime/examples/embed.rs", "trusts a file"),
    ("runtime/examples/generate.rs", "trusts a file"),
    ("runtime/examples/gpu_goldens/main.rs", "asks a GPU through its driver"),
    ("runtime/examples/smallest.rs", "trusts a file"),
    ("runtime/format/src/artifact/read.rs", "maps artifacts"),
    ("runtime/format/src/artifact/trust.rs", "declares what trust in any file means"),
    ("runtime/python/src/arrays.rs", "lends the memory of NumPy arrays to calls"),
    (
        "runtime/python/src/gpu.rs",
        "lends memory of a GPU that an object of Python describes, and a stream of the caller",
    ),
    ("runtime/python/src/model.rs", "lends the bytes of a Python object to a model, and trusts what its caller does"),
    ("runtime/serve/src/gentle.rs", "has a thread give way to others"),
    ("runtime/src/call.rs", "launches kernels and copies buffers by their addresses"),
    ("runtime/src/call/exchange.rs", "lends buffers by their addresses to what exchanges them between ranks"),
    (
        "runtime/src/call/host.rs",
        "reads operands of the host from buffers by their addresses, and brings its results there",
    ),
    ("runtime/src/call/outputs.rs", "copies outputs from a device"),
    ("runtime/src/call/places.rs", "copies inputs to a device"),
    ("runtime/src/call/turns.rs", "copies buffers by their addresses, and shows what a loop is given as tensors"),
    ("runtime/src/code.rs", "loads code"),
    ("runtime/src/comm/library.rs", "loads libraries and their symbols"),
    ("runtime/src/comm/link.rs", "declares what a link trusts its caller for"),
    ("runtime/src/comm/measure.rs", "lends buffers to what is measured"),
    ("runtime/src/comm/mpi.rs", "calls MPI"),
    ("runtime/src/comm/mpi/running.rs", "reads operands and writes results while their messages are under way"),
    ("runtime/src/comm/nccl.rs", "calls NCCL"),
    ("runtime/src/comm/processes.rs", "asks the operating system for processes and their end"),
    ("runtime/src/comm/segment.rs", "memory that several processes map"),
    ("runtime/src/comm/shared.rs", "reads and writes memory of other ranks, in turns that are agreed"),
    ("runtime/src/comm/shared/tests.rs", "lends buffers to exchanges"),
    ("runtime/src/comm/wire.rs", "asks the system for the clock that all processes have"),
    ("runtime/src/device/cpu.rs", "calls kernels, copies memory of the host"),
    ("runtime/src/device/cuda/driver.rs", "calls the GPU's driver"),
    ("runtime/src/device/cuda/mod.rs", "calls the GPU's driver"),
    ("runtime/src/device/cuda/queue.rs", "calls the GPU's driver"),
    ("runtime/src/device/cuda/segment.rs", "calls the GPU's driver"),
    ("runtime/src/device/mod.rs", "declares what a queue trusts its caller for"),
    ("runtime/src/device/sim.rs", "keeps to the declarations, with nothing unsafe within"),
    ("runtime/src/device_tensor.rs", "declares what a tensor on a GPU trusts its maker for"),
    ("runtime/src/memory.rs", "aligned memory"),
    ("runtime/src/model.rs", "declares what a context of the caller is trusted for"),
    ("runtime/src/pool.rs", "lends closures to threads, and sets the processors of these threads"),
    ("runtime/src/pool/rounds.rs", "computes closures that another thread lends, while it waits"),
    ("runtime/src/session.rs", "declares what a stream of the caller is trusted for"),
    ("runtime/tests/common/mod.rs", "trusts the artifacts of tests"),
    ("runtime/tests/devices/driven.rs", "asks the stand-in driver what it has counted, and for memory"),
    ("runtime/tests/limits.rs", "drops a session in a process that was forked"),
    ("runtime/tests/rounds.rs", "computes closures that another thread lends, under a model checker"),
    ("tests/src/trust.rs", "trusts the artifacts of tests"),
    ("tests/tests/hostile/worker.rs", "an allocator that counts, limits and clocks of the process"),
    ("tests/tests/ranks/faults.rs", "sends signals to ranks"),
];

#[test]
fn unsafe_is_only_at_the_borders() {
    let word = |line: &str| code(line).split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|w| w == "unsafe");
    let own = "tests/tests/invariants.rs";
    let found: BTreeSet<String> =
        files("rs").into_iter().filter(|(f, text)| f != own && text.lines().any(word)).map(|(f, _)| f).collect();
    let listed: BTreeSet<String> = UNSAFE.iter().map(|(f, _)| f.to_string()).collect();
    let surplus: Vec<_> = found.difference(&listed).collect();
    assert!(surplus.is_empty(), "unsafe, but not in the list with a reason: {surplus:?}");
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(gone.is_empty(), "in the list, but without unsafe: {gone:?}");
    assert!(UNSAFE.windows(2).all(|w| w[0].0 < w[1].0));
}

#[test]
fn the_only_cpp_file_registers_the_dialects() {
    let found: Vec<String> =
        ["cc", "cpp", "cxx", "h", "hpp", "inc"].iter().flat_map(|e| files(e)).map(|(file, _)| file).collect();
    // The header is in C, and generated from Rust.
    assert_eq!(found, ["dialects/cpp/Dialects.cpp", "runtime/capi/sardonyx.h"]);
}

/// Maximum number of lines of a source file.
const LINES_MAX: usize = 600;

#[test]
fn files_fit_a_reader() {
    let long: Vec<String> =
        files("rs").into_iter().filter(|(_, text)| text.lines().count() > LINES_MAX).map(|(file, _)| file).collect();
    assert!(long.is_empty(), "over {LINES_MAX} lines: {long:?}");
}

#[test]
fn sources_begin_with_what_they_do() {
    let found: Vec<String> = files("rs")
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//! ") || text.contains("(under construction)"))
        .map(|(file, _)| file)
        .filter(|file| file != "tests/tests/invariants.rs")
        .collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn sources_name_no_machine() {
    // Assembled here, so that this file does not contain them either.
    let folders: Vec<String> = ["work", "root", "tmp", "home", "Users"].iter().map(|f| format!("/{f}/")).collect();
    let mut found = vec![];
    for (file, text) in ["rs", "td", "cpp", "c", "toml", "mlir", "md", "sh", "yml"].iter().flat_map(|e| files(e)) {
        for (n, line) in text.lines().enumerate() {
            let named = |folder: &String| {
                line.match_indices(folder.as_str())
                    .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-')))
            };
            if folders.iter().any(named) {
                found.push(format!("{file}:{}: {line}", n + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
