//! libMLIRCAPI*.a  =>  OUT_DIR/libMLIR-C.so, a linker script that groups them
//!
//! Debian ships libMLIR.so but no libMLIR-C.so, which mlir-sys requires in shared mode. The script contains all
//! archives except the execution engine's, which needs symbols that the shared library lacks.

use std::{env, fs, path::Path};

fn main() {
    let prefix = env::var("MLIR_SYS_220_PREFIX").unwrap_or_else(|_| "/usr/lib/llvm-22".into());
    let lib = Path::new(&prefix).join("lib");
    let mut archives: Vec<String> = fs::read_dir(&lib)
        .unwrap_or_else(|e| panic!("{} cannot be read ({e}): install libmlir-22-dev", lib.display()))
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("libMLIRCAPI") && name.ends_with(".a") && !name.contains("ExecutionEngine"))
        .map(|name| lib.join(name).display().to_string())
        .collect();
    archives.sort();
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let script = format!("GROUP({} -lMLIR -lLLVM-22)\n", archives.join(" "));
    fs::write(Path::new(&out).join("libMLIR-C.so"), script).expect("OUT_DIR is writable");
    println!("cargo:rustc-link-search=native={out}");
    println!("cargo:rustc-link-search=native={}", lib.display());
    // The variable is deliberately not tracked: cargo sets it for child processes from `.cargo/config.toml`, so a cargo
    // that one of our tests runs would see a change and rebuild everything.
    println!("cargo:rerun-if-changed=build.rs");
}
