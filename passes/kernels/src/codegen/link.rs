//! Objects  =>  one shared object without imports, by `ld.lld`

use sardonyx_base::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Links; the bytes depend on the objects' contents and order only.
pub fn shared_object(objects: &[(&str, Vec<u8>)]) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir().map_err(|e| Error::io(std::env::temp_dir(), "create a folder in", &e))?;
    let output = folder.path().join("kernels.so");
    let linker = linker();
    let mut command = Command::new(&linker);
    command.args(["-shared", "--build-id=none", "--no-undefined", "--strip-all", "--hash-style=gnu"]);
    command.args(["-z", "noexecstack", "-z", "now", "-soname", "kernels.so", "-o"]).arg(&output);
    for (name, bytes) in objects {
        let path = folder.path().join(format!("{name}.o"));
        std::fs::write(&path, bytes).map_err(|e| Error::io(&path, "write", &e))?;
        command.arg(path);
    }
    let run =
        command.output().map_err(|e| Error::io(&linker, "run", &e).help("install lld 22, or put `ld.lld` on PATH"))?;
    if !run.status.success() {
        return Err(Error::defect(format!(
            "linking the kernels failed: {}",
            String::from_utf8_lossy(&run.stderr).trim()
        )));
    }
    std::fs::read(&output).map_err(|e| Error::io(&output, "read", &e))
}

/// The linker of the LLVM that this was built with, else the one on PATH.
fn linker() -> PathBuf {
    let prefix = option_env!("LLVM_SYS_221_PREFIX").map(|p| Path::new(p).join("bin/ld.lld"));
    prefix.filter(|p| p.exists()).unwrap_or_else(|| "ld.lld".into())
}
