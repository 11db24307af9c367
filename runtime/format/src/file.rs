//! Atomic file writes: a new file replaces the old one only when its content is complete

use sardonyx_base::{Error, Result};
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{BufWriter, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Writes a text file atomically: if writing fails, the old file stays. Errors: E0002.
pub fn write_whole(path: &Path, text: &str) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(text.as_bytes()).map_err(|e| Error::io(path, "write", &e))?;
    file.commit()
}

/// A file that is written under a temporary name in the destination's folder. `commit` renames the file to the
/// destination; dropping an `AtomicFile` without `commit` removes the file. The new file has the mode of the file that
/// it replaces. The writer holds a lock on the temporary file: a temporary file without a lock was left by a killed
/// process, and the next writer of the same destination removes it.
#[derive(Debug)]
pub struct AtomicFile {
    file: BufWriter<File>,
    temporary: PathBuf,
    /// The destination with links resolved.
    target: PathBuf,
    /// The path as the user wrote it, for messages.
    path: PathBuf,
    /// Permissions of the file that is replaced.
    permissions: Option<Permissions>,
    committed: bool,
}

impl AtomicFile {
    /// Creates the temporary file. Errors: E0002, for example if `path` exists and is not a regular file.
    pub fn create(path: &Path) -> Result<AtomicFile> {
        // A link is followed, so that its target is replaced and not the link.
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let refuse = |what: &str| {
            let message = format!("cannot write {}: {what}", path.display());
            Error::user("E0002", message).file(path.display().to_string())
        };
        let old = std::fs::metadata(&target).ok();
        if old.as_ref().is_some_and(|m| !m.is_file()) {
            return Err(refuse("it exists and is not a regular file"));
        }
        let name = target.file_name().ok_or_else(|| refuse("it has no file name"))?;
        let name = shortened(name);
        remove_unlocked(&target, &name);
        let (file, temporary) = create_beside(&target, &name).map_err(|e| Error::io(path, "write", &e))?;
        let permissions = old.map(|m| m.permissions());
        let file = BufWriter::with_capacity(1 << 18, file);
        let created = AtomicFile { file, temporary, target, path: path.to_path_buf(), permissions, committed: false };
        if let Some(permissions) = &created.permissions {
            // The owner can read and write until `commit`; all others have at most the old file's permissions.
            let while_written = Permissions::from_mode(permissions.mode() & 0o777 | 0o600);
            created.file.get_ref().set_permissions(while_written).map_err(|e| Error::io(path, "write", &e))?;
        }
        Ok(created)
    }

    /// Returns the destination as the user wrote it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the temporary file, which `commit` renames.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Renames the file to its destination. The content is on disk before the new name is. Both are on disk when this
    /// function returns, if the file system can flush a folder and the user may open it.
    pub fn commit(mut self) -> Result<()> {
        let done = self.put_in_place();
        done.map_err(|e| Error::io(&self.path, "write", &e))
    }

    fn put_in_place(&mut self) -> std::io::Result<()> {
        self.file.flush()?;
        let file = self.file.get_ref();
        if let Some(permissions) = self.permissions.take() {
            file.set_permissions(permissions)?;
        }
        file.sync_all()?;
        std::fs::rename(&self.temporary, &self.target)?;
        self.committed = true;
        sync_folder(&self.target)
    }
}

/// Flushes the folder's entries to disk, if the file system supports it and the user may open the folder.
fn sync_folder(of: &Path) -> std::io::Result<()> {
    let folder = of.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(e)
            if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::PermissionDenied) =>
        {
            Ok(())
        }
        done => done,
    }
}

/// Removes temporary files of this destination that were left by writers which no longer run.
pub fn remove_leftovers(path: &Path) {
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if let Some(name) = target.file_name() {
        remove_unlocked(&target, &shortened(name));
    }
}

/// Returns the beginning of a name, because the file system limits the length of names.
fn shortened(name: &OsStr) -> String {
    name.to_string_lossy().chars().take(40).collect()
}

/// Removes temporary files for this destination that nobody has locked, because their writers no longer run.
fn remove_unlocked(target: &Path, name: &str) {
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| is_temporary(&entry.file_name().to_string_lossy(), name)) {
        let is_file = entry.file_type().is_ok_and(|t| t.is_file());
        let unlocked = is_file && File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok());
        if unlocked {
            // A failure is ignored: the caller did not request the removal.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Returns whether the file name `file` has the form `.NAME.PROCESS-N.tmp`.
fn is_temporary(file: &str, name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let middle = file.strip_prefix('.').and_then(|rest| rest.strip_prefix(name)?.strip_prefix('.'));
    let middle = middle.and_then(|rest| rest.strip_suffix(".tmp")?.split_once('-'));
    middle.is_some_and(|(process, n)| number(process) && number(n))
}

/// Creates a locked temporary file. Its name is unique among the threads and processes of this machine, and the
/// leftover of a killed process never causes a conflict.
fn create_beside(path: &Path, name: &str) -> std::io::Result<(File, PathBuf)> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    loop {
        let n = COUNTER.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_file_name(format!(".{name}.{}-{n}.tmp", std::process::id()));
        let file = match File::options().read(true).write(true).create_new(true).open(&temporary) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
            file => file?,
        };
        // Between creating and locking the file, another process may have removed it as a leftover. On file systems
        // without locks no process gets a lock, so none removes the file.
        match file.try_lock() {
            Err(std::fs::TryLockError::WouldBlock) => continue,
            Ok(()) if !is_at(&file, &temporary) => continue,
            Ok(()) | Err(std::fs::TryLockError::Error(_)) => return Ok((file, temporary)),
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let place = |m: std::fs::Metadata| (m.dev(), m.ino());
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(own), Ok(there)) => place(own) == place(there),
        (_, _) => false,
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
            // A failure cannot be reported here; the destination is untouched in any case.
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
    fn the_mode_of_a_replaced_file_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        for mode in [0o600, 0o644, 0o400, 0o755] {
            std::fs::write(&path, "old").unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let mut file = AtomicFile::create(&path).unwrap();
            let written = std::fs::metadata(file.temporary()).unwrap().permissions().mode();
            assert_eq!(written & 0o777, mode | 0o600, "{mode:o}");
            file.write_all(b"new").unwrap();
            file.commit().unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode, "{mode:o}");
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn leftovers_of_writers_that_are_gone_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let lives = AtomicFile::create(&path).unwrap();
        for name in [".x.1-0.tmp", ".x.4194000-77.tmp", ".y.1-0.tmp", ".x.1-0.txt", ".x.one-0.tmp"] {
            std::fs::write(dir.path().join(name), "left").unwrap();
        }
        AtomicFile::create(&path).unwrap().commit().unwrap();
        assert!(lives.temporary().exists());
        let mut left = names(dir.path());
        left.retain(|name| !lives.temporary().ends_with(name));
        left.sort();
        assert_eq!(left, [".x.1-0.txt", ".x.one-0.tmp", ".y.1-0.tmp", "x"]);
        lives.commit().unwrap();
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
