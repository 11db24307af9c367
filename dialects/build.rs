//! td/*.td  =>  mlir-tblgen  =>  cpp/Dialects.cpp with clang++  =>  libsardonyx_dialects.a

use std::{env, path::Path, process::Command};

static LEVELS: &[&str] = &["Onnx", "Sdx", "Flow", "Plan"];

/// Pairs: an mlir-tblgen generator, and the suffix of its output file.
static GENERATORS: &[(&str, &str)] = &[
    ("-gen-dialect-decls", "Dialect.h.inc"),
    ("-gen-dialect-defs", "Dialect.cpp.inc"),
    ("-gen-typedef-decls", "Types.h.inc"),
    ("-gen-typedef-defs", "Types.cpp.inc"),
    ("-gen-op-decls", "Ops.h.inc"),
    ("-gen-op-defs", "Ops.cpp.inc"),
];

fn main() {
    let prefix = env::var("MLIR_SYS_220_PREFIX").unwrap_or_else(|_| "/usr/lib/llvm-22".into());
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    println!("cargo:rerun-if-changed=td");
    println!("cargo:rerun-if-changed=cpp");
    for level in LEVELS {
        for (generator, ending) in GENERATORS {
            let lower = level.to_lowercase();
            run(Command::new(format!("{prefix}/bin/mlir-tblgen"))
                .args([*generator, "-I", "td", "-I"])
                .args([format!("{prefix}/include"), format!("td/{level}.td")])
                .args([format!("-dialect={lower}"), "-o".into(), format!("{out}/{level}{ending}")])
                .args(generator.contains("typedef").then(|| format!("-typedefs-dialect={lower}"))));
        }
    }
    let object = format!("{out}/Dialects.o");
    // The compiler is clang++: with g++ 12, op traits are lost across the boundary of the shared library libMLIR.
    run(Command::new(format!("{prefix}/bin/clang++"))
        .args(["-std=c++17", "-O1", "-fPIC", "-fno-exceptions", "-fno-rtti", "-w", "-c", "cpp/Dialects.cpp"])
        .args([format!("-I{prefix}/include"), format!("-I{out}"), "-o".into(), object.clone()]));
    let archive = format!("{out}/libsardonyx_dialects.a");
    let _ = std::fs::remove_file(&archive);
    run(Command::new(format!("{prefix}/bin/llvm-ar")).args(["crs", &archive, &object]));
    assert!(Path::new(&archive).exists());
    println!("cargo:rustc-link-search=native={out}");
    println!("cargo:rustc-link-lib=static=sardonyx_dialects");
    println!("cargo:rustc-link-lib=dylib=MLIR");
    println!("cargo:rustc-link-lib=dylib=stdc++");
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}; `cargo xtask setup` installs LLVM 22"));
    assert!(status.success(), "{command:?} failed");
}
