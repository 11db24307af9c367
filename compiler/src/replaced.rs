//! the path of an output, the files that a command reads  =>  E0001 if the output would replace one of these files

use sardonyx_base::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A file or folder that a command reads, with words that complete the sentence "the output … is …".
pub type Read<'a> = (&'a str, &'a Path);

/// Returns the model's file and its external data files.
pub fn files_of_model<'a>(path: &'a Path, files: &'a BTreeSet<PathBuf>) -> Vec<Read<'a>> {
    let external = files.iter().map(|file| ("external data of the model", file.as_path()));
    [("the model itself", path)].into_iter().chain(external).collect()
}

/// Refuses an existing output that is one of the files being read, or lies in a folder being read, whatever path or
/// link leads to it. Errors: E0001.
pub fn refuse_replacing(output: &Path, read: &[Read]) -> Result<()> {
    // A file that does not exist yet replaces nothing.
    let Ok(there) = output.canonicalize() else { return Ok(()) };
    let holds = |path: &Path| path.canonicalize().is_ok_and(|path| there == path || there.starts_with(path));
    match read.iter().find(|(_, path)| holds(path)) {
        None => Ok(()),
        Some((what, _)) => {
            let message = format!("the output {} is {what}", output.display());
            Err(Error::user("E0001", message).help("name another file with -o"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_the_same_by_any_path_and_folders_hold_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir(path("data")).unwrap();
        for name in ["w.bin", "data/0.npz", "free"] {
            std::fs::write(path(name), "").unwrap();
        }
        std::os::unix::fs::symlink("w.bin", path("link")).unwrap();
        let (weights, data) = (path("w.bin"), path("data"));
        let read = [("weights", weights.as_path()), ("data", data.as_path()), ("gone", Path::new("/gone"))];
        for (output, refused) in [
            ("w.bin", true),
            ("data/../w.bin", true),
            ("link", true),
            ("data/0.npz", true),
            ("data/new.sdx", false),
            ("free", false),
            ("gone/x", false),
        ] {
            assert_eq!(refuse_replacing(&path(output), &read).is_err(), refused, "{output}");
        }
    }
}
