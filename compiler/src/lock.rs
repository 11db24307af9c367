//! tune.lock, as `sardonyx-run tune` writes it  =>  the tiles of kernels for GPUs
//!
//! ```toml
//! version = 1
//! compiler = "sardonyx 0.1.0"     # the compiler of the artifact that was measured
//! device = "NVIDIA A100-SXM4-40GB"
//! driver = "13.0"
//!
//! [[kernel]]
//! target = "sm_80"
//! key = "0a1b…"                   # identifies the kernel
//! tile = "warps-64x64x64"         # the one that its code gets
//! node = "/encoder/layer.0/MatMul"
//!
//! [[kernel.measured]]
//! sizes = [128, 768]              # parameters of the launches
//! launches = 12
//! us = { "warps-128x64x64" = 9.1, "warps-64x64x64" = 7.4 }
//! ```
//!
//! This compiler reads only the version, and target, key and tile of each kernel. The rest records their origin.

use sardonyx_base::{Error, Result};
use sardonyx_kernels::Tuning;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Version of the files that this compiler reads.
const VERSION: i64 = 1;

/// Reads files of measured tiles. Errors: E0002; E0110 for a malformed file, and for files that contradict each other.
pub fn read(paths: &[PathBuf]) -> Result<Tuning> {
    let mut tuning = Tuning::expected();
    for path in paths {
        add(&mut tuning, path).map_err(|e| e.file(path.display().to_string()))?;
        tuning.files.push(path.clone());
    }
    Ok(tuning)
}

fn add(tuning: &mut Tuning, path: &Path) -> Result<()> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", &e))?;
    parse(&text)?.into_iter().try_for_each(|[target, key, tile]| tuning.add(&target, &key, &tile))
}

/// Target, key and tile of each kernel.
fn parse(text: &str) -> Result<Vec<[String; 3]>> {
    let table: Table = text.parse().map_err(|e| wrong(format!("it is no TOML: {e}")))?;
    match table.get("version").and_then(Value::as_integer) {
        Some(VERSION) => {}
        Some(other) => return Err(wrong(format!("it has version {other}; this compiler reads version {VERSION}"))),
        None => return Err(wrong("it has no `version`")),
    }
    let kernels = match table.get("kernel") {
        None => return Ok(vec![]),
        Some(Value::Array(kernels)) => kernels,
        Some(_) => return Err(wrong("`kernel` is a list of tables: `[[kernel]]`")),
    };
    let one = |(i, kernel): (usize, &Value)| {
        let text = |name: &str| {
            let value = kernel.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
            value.map(str::to_string).ok_or_else(|| wrong(format!("kernel {i} has no text `{name}`")))
        };
        Ok([text("target")?, text("key")?, text("tile")?])
    };
    kernels.iter().enumerate().map(one).collect()
}

fn wrong(message: impl Into<String>) -> Box<Error> {
    Error::user("E0110", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "version = 1\n[[kernel]]\ntarget = \"sm_80\"\nkey = \"ab\"\ntile = \"warps-64x64x64\"\nus = 3\n";

    #[test]
    fn target_key_and_tile_are_read() {
        assert_eq!(parse(ONE).unwrap(), [["sm_80", "ab", "warps-64x64x64"]]);
        assert!(parse("version = 1").unwrap().is_empty());
    }

    #[test]
    fn malformed_files_are_refused() {
        for (text, words) in [
            ("version", "it is no TOML"),
            ("", "it has no `version`"),
            ("version = 2", "it has version 2"),
            ("version = 1\nkernel = 3", "`kernel` is a list of tables"),
            ("version = 1\n[[kernel]]\ntarget = \"sm_80\"", "kernel 0 has no text `key`"),
            ("version = 1\nkernel = [3]", "kernel 0 has no text `target`"),
        ] {
            let e = parse(text).unwrap_err();
            assert!(e.code == "E0110" && e.message.contains(words), "{text}: {e}");
        }
    }

    #[test]
    fn two_files_may_not_contradict_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (a, b) = (write("a", ONE), write("b", &ONE.replace("64x64x64", "32x32x64")));
        assert_eq!(read(&[a.clone(), a.clone()]).unwrap().len(), 1);
        let e = read(&[a, b.clone()]).unwrap_err();
        assert_eq!((e.code, e.file.as_deref()), ("E0110", b.to_str()));
    }
}
