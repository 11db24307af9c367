//! all crates from outside that the workspace depends on  =>  their names, licences and copyright notices

use crate::context::{Context, Failure, Result, files, output, read};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Libraries other than crates that are linked into shipped files.
const LIBRARIES: &str = "\
LLVM and MLIR 22   Apache-2.0 WITH LLVM-exception
libstdc++          GPL-3.0-or-later WITH GCC-exception-3.1
libgcc             GPL-3.0-or-later WITH GCC-exception-3.1
zlib               Zlib
zstd               BSD-3-Clause
";

pub fn of_dependencies(context: &Context) -> Result<String> {
    let mut cargo = context.cargo(["metadata", "--format-version", "1", "--locked"]);
    let text = output(&mut cargo).ok_or_else(|| Failure::check("`cargo metadata` failed"))?;
    let metadata: Value = serde_json::from_str(&text).map_err(|e| Failure::check(format!("`cargo metadata`: {e}")))?;
    let (mut list, mut texts) = (BTreeSet::new(), BTreeMap::<Vec<u8>, BTreeSet<String>>::new());
    for package in metadata["packages"].as_array().into_iter().flatten() {
        // Skips crates of the workspace, which have no `source`.
        if package["source"].is_null() {
            continue;
        }
        let word = |key: &str| package[key].as_str().unwrap_or("?").to_string();
        let name = format!("{} {}", word("name"), word("version"));
        list.insert(format!("{name}   {}\n", word("license")));
        let manifest = word("manifest_path");
        for path in licences(Path::new(&manifest).parent().unwrap_or(Path::new(".")))? {
            texts.entry(read(&path)?).or_default().insert(name.clone());
        }
    }
    let mut notices = format!("Sardonyx is made of these libraries, or built with them.\n\n{LIBRARIES}");
    notices.extend(list);
    for (text, names) in texts {
        let names: Vec<String> = names.into_iter().collect();
        notices +=
            &format!("\n{}\n{}:\n\n{}\n", "-".repeat(80), names.join(", "), String::from_utf8_lossy(&text).trim());
    }
    Ok(notices)
}

/// Returns the files in a folder that are licences or notices by their names.
fn licences(folder: &Path) -> Result<Vec<PathBuf>> {
    let is_one =
        |name: &str| ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"].iter().any(|word| name.starts_with(word));
    let is_licence = |path: &PathBuf| {
        path.is_file() && path.file_name().is_some_and(|name| is_one(&name.to_string_lossy().to_uppercase()))
    };
    Ok(files(folder)?.into_iter().filter(is_licence).collect())
}
