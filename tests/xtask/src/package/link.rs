//! an installed LLVM  =>  a folder that looks like it, but where linking its shared libraries links archives instead
//!
//! A linker accepts a linker script in place of a shared library. So no crate has to know that a package is being
//! built, and the packaged compiler needs no shared library of LLVM, of C++ or of GCC where it runs.

use crate::context::{Failure, Result, Scratch, create_dir, files, output, run, write};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The targets that the compiler generates code for. LLVM's other targets are left out: a pass that the compiler never
/// runs would link them all.
const TARGETS: [&str; 2] = ["NVPTX", "X86"];

/// The parts that LLVM has for each of its targets: suffixes of the names of its functions, and of its archives.
const PARTS: [&str; 7] = ["AsmParser", "AsmPrinter", "Disassembler", "Target", "TargetInfo", "TargetMC", "TargetMCA"];
const ARCHIVES: [&str; 7] = ["AsmParser", "CodeGen", "Desc", "Disassembler", "Info", "TargetMCA", "Utils"];

/// Makes the folder `llvm` under `home`. Returns its path.
pub fn prefix(installed: &Path, home: &Path) -> Result<PathBuf> {
    let place = home.join("llvm");
    let scratch = Scratch::create_beside(&place)?;
    let (bin, lib) = (scratch.path().join("bin"), scratch.path().join("lib"));
    [&bin, &lib].iter().try_for_each(|dir| create_dir(dir))?;
    link(&installed.join("include"), &scratch.path().join("include"))?;
    for program in files(&installed.join("bin"))? {
        if program.file_name().is_some_and(|name| name != "llvm-config") {
            link(&program, &bin.join(program.file_name().unwrap_or_default()))?;
        }
    }
    let config = installed.join("bin/llvm-config");
    script(&bin.join("llvm-config"), &config, &place.join("lib"))?;

    let built = output(Command::new(&config).arg("--targets-built")).unwrap_or_default();
    let absent: Vec<&str> = built.split_whitespace().filter(|target| !TARGETS.contains(target)).collect();
    let stubs = stubs(&absent, scratch.path(), &place)?;
    let mut archives = vec![];
    for path in files(&installed.join("lib"))? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(stem) = name.strip_prefix("lib").and_then(|name| name.strip_suffix(".a")) else { continue };
        if stem.starts_with("MLIRCAPI") {
            link(&path, &lib.join(&name))?;
        }
        if (stem.starts_with("MLIR") || stem.starts_with("LLVM")) && is_linked(stem, &absent) {
            archives.push(path);
        }
    }
    archives.extend([stubs, of_compiler("libz.a")?, of_compiler("libzstd.a")?]);
    group(&lib.join("libMLIR.so"), &archives)?;
    // All of LLVM is in the group above, and only the interpreter, which is left out, needs libffi.
    ["libLLVM.so", "libLLVM-22.so", "libffi.so"].iter().try_for_each(|name| group(&lib.join(name), &[]))?;
    group(&lib.join("libstdc++.so"), &[of_compiler("libstdc++.a")?])?;
    group(&lib.join("libgcc_s.so"), &[of_compiler("libgcc_eh.a")?, of_compiler("libgcc.a")?])?;
    scratch.keep(&place)?;
    Ok(place)
}

/// Whether an archive is linked: archives of left-out targets are not, nor is LLVM's interpreter, the only user of
/// libffi.
fn is_linked(stem: &str, absent: &[&str]) -> bool {
    let part = |target: &&str| stem.strip_prefix("LLVM").and_then(|rest| rest.strip_prefix(*target));
    stem != "LLVMInterpreter" && !absent.iter().filter_map(part).any(|part| ARCHIVES.contains(&part))
}

/// Makes an archive of empty functions that replace the initializers of everything left out. Returns its final path.
fn stubs(absent: &[&str], folder: &Path, place: &Path) -> Result<PathBuf> {
    let targets = absent.iter().flat_map(|target| PARTS.map(|part| format!("LLVMInitialize{target}{part}")));
    let functions = targets.chain(["LLVMLinkInInterpreter".into()]).map(|name| format!("void {name}(void) {{}}\n"));
    let (source, object, archive) = (folder.join("stubs.c"), folder.join("stubs.o"), folder.join("lib/libstubs.a"));
    write(&source, |file| file.write_all(functions.collect::<String>().as_bytes()))?;
    run(Command::new("cc").args(["-O1", "-c"]).arg(&source).arg("-o").arg(&object))?;
    run(Command::new("ar").arg("crs").arg(&archive).arg(&object))?;
    Ok(place.join("lib/libstubs.a"))
}

/// Returns the path of a library that the C compiler finds.
fn of_compiler(name: &str) -> Result<PathBuf> {
    let said = output(Command::new("cc").arg(format!("-print-file-name={name}"))).unwrap_or_default();
    let path = PathBuf::from(said.trim());
    match path.is_absolute() && path.exists() {
        true => Ok(path),
        false => {
            Err(Failure::user(format!("the C compiler finds no {name}"))
                .help("install g++, zlib1g-dev and libzstd-dev"))
        }
    }
}

fn group(path: &Path, archives: &[PathBuf]) -> Result<()> {
    let names: Vec<String> = archives.iter().map(|path| path.display().to_string()).collect();
    let text = match names.as_slice() {
        [] => "/* nothing */\n".to_string(),
        names => format!("GROUP({})\n", names.join(" ")),
    };
    write(path, |file| file.write_all(text.as_bytes()))
}

/// Writes an `llvm-config` that reports `lib` as the folder of the libraries.
fn script(path: &Path, config: &Path, lib: &Path) -> Result<()> {
    let (config, lib) = (config.display(), lib.display());
    let text = format!(
        "#!/bin/sh\nfor word; do\n  [ \"$word\" = --libdir ] && echo '{lib}' && exit\ndone\nexec '{config}' \"$@\"\n"
    );
    write(path, |file| file.write_all(text.as_bytes()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(|e| Failure::io(path, "write", e))
}

fn link(to: &Path, path: &Path) -> Result<()> {
    symlink(to, path).map_err(|e| Failure::io(path, "write", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_of_targets_without_code_are_left_out() {
        let linked = |stem: &str| is_linked(stem, &["ARM", "AArch64"]);
        assert!(linked("LLVMX86CodeGen") && linked("MLIRIR") && linked("LLVMCore") && linked("MLIRArmSMEDialect"));
        assert!(!linked("LLVMARMCodeGen") && !linked("LLVMAArch64Desc") && !linked("LLVMInterpreter"));
    }
}
