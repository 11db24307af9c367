//! The source files of the workspace with a given extension, as (path relative to the root, text), sorted by path

use crate::prepared::workspace;
use std::path::Path;

/// Folders in the root of the workspace that hold sources.
static ROOMS: &[&str] = &["compiler", "dialects", "passes", "runtime", "tests"];

/// Returns the source files whose name ends in `.` and `extension`, with their texts.
pub fn files(extension: &str) -> Vec<(String, String)> {
    let mut out = vec![];
    for room in ROOMS {
        collect(&workspace().join(room), extension, &mut out);
    }
    out.sort();
    out
}

fn collect(folder: &Path, extension: &str, out: &mut Vec<(String, String)>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for path in entries.map(|entry| entry.expect("a folder's entry").path()) {
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(&path, extension, out);
            }
        } else if path.extension().is_some_and(|e| e == extension) {
            let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let name = path.strip_prefix(workspace()).expect("below the root").display().to_string();
            out.push((name, text));
        }
    }
}
