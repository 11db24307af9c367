//! sardonyx-run, and a program that embeds the runtime  =>  their sizes, libraries and crates: no LLVM, MLIR or CUDA
//!
//! The code for GPUs loads the GPU driver only when a GPU is requested.
//!
//! To check by hand that `sardonyx-run` works on a machine without LLVM, hide LLVM's folder in a mount namespace:
//!
//!     unshare -m sh -c 'mkdir -p target/empty; mount --bind target/empty /usr/lib/llvm-22;
//!                       target/release/sardonyx-run check MODEL.sdx --data target/models/NAME'

use sardonyx_tests::metadata::tree;
use sardonyx_tests::prepared::workspace;
use sardonyx_tests::programs::program;
use std::path::Path;
use std::process::Command;

/// Libraries that `sardonyx-run` may link: those of glibc, and libgcc.
static LINKED: &[&str] =
    &["ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0"];

static FORBIDDEN: &[&str] =
    &["inkwell", "llvm-sys", "melior", "mlir-link", "mlir-sys", "sardonyx-dialects", "sardonyx-passes"];

/// Maximum size of a program of twenty lines that embeds the runtime for CPUs only.
const EMBEDDED_BYTES_MAX: u64 = 2_500_000;

/// Returns the NEEDED entries of the dynamic section of a little-endian 64-bit ELF file.
fn needed(path: &Path) -> Vec<String> {
    let file = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(&file[..6], b"\x7fELF\x02\x01", "{}", path.display());
    let word = |at: u64| u64::from_le_bytes(file[at as usize..][..8].try_into().unwrap());
    let half = |at: u64| u32::from_le_bytes(file[at as usize..][..4].try_into().unwrap());
    let (table, entries) = (word(0x20), u16::from_le_bytes([file[0x38], file[0x39]]) as u64);
    // Program headers: (type, offset in the file, address, size).
    let headers: Vec<(u32, u64, u64, u64)> =
        (0..entries).map(|i| table + i * 56).map(|at| (half(at), word(at + 8), word(at + 16), word(at + 32))).collect();
    let place = |address: u64| {
        let load =
            headers.iter().find(|(kind, _, start, size)| *kind == 1 && (*start..start + size).contains(&address));
        load.map(|(_, offset, start, _)| offset + address - start).expect("an address of the file")
    };
    let (_, dynamic, _, size) = *headers.iter().find(|h| h.0 == 2).expect("a dynamic section");
    let tags: Vec<(u64, u64)> = (0..size / 16).map(|i| (word(dynamic + 16 * i), word(dynamic + 16 * i + 8))).collect();
    let strings = place(tags.iter().find(|t| t.0 == 5).expect("a string table").1);
    let text = |at: u64| {
        let bytes: Vec<u8> = file[(strings + at) as usize..].iter().copied().take_while(|b| *b != 0).collect();
        String::from_utf8(bytes).expect("a library's name is text")
    };
    tags.iter().filter(|t| t.0 == 1).map(|t| text(t.1)).collect()
}

#[test]
fn the_runtime_links_the_system_and_nothing_else() {
    let libraries = needed(&program("sardonyx-run"));
    assert!(libraries.iter().any(|l| l == "libc.so.6"), "{libraries:?}");
    let strange: Vec<&String> = libraries.iter().filter(|l| !LINKED.contains(&l.as_str())).collect();
    assert!(strange.is_empty(), "sardonyx-run links {strange:?}");
    // The compiler links LLVM, which shows that this test would notice it.
    assert!(needed(&program("sardonyx")).iter().any(|l| l.contains("LLVM") || l.contains("MLIR")));
}

#[test]
fn the_runtime_depends_on_nothing_of_the_compiler() {
    let runtime = tree("sardonyx-run", &[]);
    for (name, built) in [("sardonyx-run", &runtime), ("sardonyx-serve", &tree("sardonyx-serve", &[]))] {
        assert!(built.contains("prost") && built.contains("libc"), "{built:?}");
        let found: Vec<_> = FORBIDDEN.iter().filter(|f| built.contains(**f)).collect();
        assert!(found.is_empty(), "{name} depends on {found:?}");
    }
    assert!(!runtime.iter().any(|n| n.contains("llvm") || n.contains("mlir")), "{runtime:?}");
    let cuda: Vec<_> = runtime.iter().filter(|n| n.contains("cu")).collect();
    // `curve25519-dalek` contains "cu" too, but it is for signatures.
    assert_eq!(cuda, ["cudarc", "curve25519-dalek"], "loads the driver, and nothing of CUDA is built with it");
    // The compiler depends on all forbidden crates, which shows that this test would notice them.
    let compiler = tree("sardonyx", &[]);
    assert!(FORBIDDEN.iter().all(|f| compiler.contains(*f)), "{compiler:?}");
}

/// Crates that the base, the dialects and the passes must not depend on. A CPU-only runtime may depend only on zip.
static HEAVY: &[&str] = &["clap", "cudarc", "image", "ptxvm", "regex-automata", "zip"];

#[test]
fn the_base_and_the_levels_need_no_command_line_no_archives_and_no_devices() {
    for name in ["sardonyx-base", "sardonyx-dialects", "sardonyx-passes"] {
        let built = tree(name, &[]);
        assert!(built.contains("half"), "{name}: {built:?}");
        let found: Vec<_> = HEAVY.iter().filter(|f| built.contains(**f)).collect();
        assert!(found.is_empty(), "{name} is built with {found:?}");
    }
    let cpu = tree("sardonyx-runtime", &["--no-default-features"]);
    let found: Vec<_> = HEAVY.iter().filter(|f| cpu.contains(**f)).collect();
    assert_eq!(found, [&"zip"], "an artifact is an archive");
    // `sardonyx-run` is built with each heavy crate, which shows that this test would notice them.
    let whole = tree("sardonyx-run", &[]);
    assert!(HEAVY.iter().all(|f| whole.contains(*f)), "{whole:?}");
}

#[test]
#[ignore = "two minutes of a release build; `cargo xtask test --suite sizes`"]
fn an_embedded_runtime_is_small() {
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    cargo.args(["build", "--quiet", "--release", "--package", "sardonyx-runtime", "--no-default-features"]);
    let output = cargo.args(["--example", "smallest"]).current_dir(workspace()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = workspace().join("target/release/examples/smallest").metadata().expect("the example is built").len();
    println!("a program that embeds the runtime for CPUs: {bytes} bytes");
    assert!(bytes < EMBEDDED_BYTES_MAX, "{bytes} bytes, at most {EMBEDDED_BYTES_MAX}");
    let readme = std::fs::read_to_string(workspace().join("README.md")).unwrap();
    let said = readme.split_once(" MB embedded").and_then(|(before, _)| before.rsplit('(').next()?.parse::<f64>().ok());
    let said = said.expect("README says how large it is") * 1e6;
    assert!((bytes as f64) < 1.05 * said, "{bytes} bytes, README says {said}");
}
