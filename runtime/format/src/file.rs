//! a file that appears whole or not at all

use sardonyx_base::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Written under a temporary name in the destination's folder; `commit` gives it its name, dropping it removes it.
#[derive(Debug)]
pub struct AtomicFile {
    file: BufWriter<File>,
    temporary: PathBuf,
    /// Links resolved.
    target: PathBuf,
    /// As the user wrote it, for messages.
    path: PathBuf,
    committed: bool,
}

impl AtomicFile {
    pub fn create(path: &Path) -> Result<AtomicFile> {
        // A link is followed, so that the file it names is replaced and not the link.
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let refuse = |what: &str| {
            let message = format!("cannot write {}: {what}", path.display());
            Error::user("E0002", message).file(path.display().to_string())
        };
        if std::fs::metadata(&target).is_ok_and(|m| !m.is_file()) {
            return Err(refuse("it exists and is not a regular file"));
        }
        let name = target.file_name().ok_or_else(|| refuse("it has no file name"))?;
        let (file, temporary) = create_beside(&target, name).map_err(|e| Error::io(path, "write", &e))?;
        let file = BufWriter::with_capacity(1 << 18, file);
        Ok(AtomicFile { file, temporary, target, path: path.to_path_buf(), committed: false })
    }

    /// What the user calls the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the bytes are until `commit`.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    pub fn commit(mut self) -> Result<()> {
        let done = self.file.flush().and_then(|()| std::fs::rename(&self.temporary, &self.target));
        self.committed = done.is_ok();
        done.map_err(|e| Error::io(&self.path, "write", &e))
    }
}

/// The name is unique among the threads and processes of this machine, and a left-over of a killed process never
/// stands in the way.
fn create_beside(path: &Path, name: &std::ffi::OsStr) -> std::io::Result<(File, PathBuf)> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    // Name lengths are limited; the end of a long name is dropped.
    let name: String = name.to_string_lossy().chars().take(40).collect();
    loop {
        let n = COUNTER.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_file_name(format!(".{name}.{}-{n}.tmp", std::process::id()));
        match File::options().read(true).write(true).create_new(true).open(&temporary) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
            Err(e) => return Err(e),
            Ok(file) => return Ok((file, temporary)),
        }
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl Seek for AtomicFile {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.file.seek(to)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.committed {
            // Nobody is left to tell; the destination is untouched either way.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn dropping_leaves_the_old_file_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        drop(file);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        file.commit().unwrap();
        assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), names(dir.path())), ("new", vec!["x".into()]));
    }

    #[test]
    fn devices_folders_and_missing_folders_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for path in [Path::new("/dev/null"), dir.path(), &dir.path().join("no/such"), Path::new("/")] {
            assert_eq!(AtomicFile::create(path).unwrap_err().code, "E0002", "{}", path.display());
        }
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn a_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        std::fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let mut file = AtomicFile::create(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.commit().unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "new");
        assert!(link.symlink_metadata().unwrap().is_symlink());
    }
}
