//! Paths, starting commands, and failures of commands

use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Environment variable that `cargo xtask test` sets for tests if the whole workspace, including its programs, has been
/// built for them. `tests/src/programs.rs` defines the same name.
pub const PROGRAMS_ARE_BUILT: &str = "SARDONYX_PROGRAMS_ARE_BUILT";

/// The folders that every command uses.
pub struct Context {
    pub root: PathBuf,
    pub target: PathBuf,
}

impl Context {
    pub fn new() -> Context {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tests/xtask lies two levels deep");
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => root.join(dir),
            None => root.join("target"),
        };
        Context { root: root.to_path_buf(), target }
    }

    /// Returns a command for the cargo that started this program, to be run in the repository's root.
    pub fn cargo<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(args).current_dir(&self.root);
        command
    }

    /// Shows a path relative to the repository's root if it is inside, otherwise in full.
    pub fn show<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }
}

/// Reason why a command of xtask stopped: exit code 1 if a check or a started command failed, 2 if the environment or
/// the user is at fault.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    message: String,
    help: Option<String>,
}

pub type Result<T> = std::result::Result<T, Box<Failure>>;

impl Failure {
    pub fn check(message: impl Into<String>) -> Box<Failure> {
        Box::new(Failure { code: 1, message: message.into(), help: None })
    }

    pub fn user(message: impl Into<String>) -> Box<Failure> {
        Box::new(Failure { code: 2, message: message.into(), help: None })
    }

    pub fn io(path: &Path, doing: &str, error: impl fmt::Display) -> Box<Failure> {
        Failure::user(format!("cannot {doing} {}: {error}", path.display()))
    }

    pub fn help(mut self: Box<Self>, help: impl Into<String>) -> Box<Failure> {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

/// Runs a command to its end, with this program's standard streams; any exit status but 0 is a failure.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::check(format!("`{shown}` failed: {status}"))),
        Err(e) => Err(Failure::user(format!("cannot start `{shown}`: {e}"))),
    }
}

/// Runs a command that downloads. Pip gives up when a connection ends within a file, so a command that fails is run up
/// to three more times, after pauses of 2, 10 and 30 seconds.
pub fn run_download(command: &mut Command) -> Result<()> {
    run_again(command, &[2, 10, 30].map(Duration::from_secs))
}

fn run_again(command: &mut Command, pauses: &[Duration]) -> Result<()> {
    for pause in pauses {
        match run(command) {
            Err(failure) if failure.code == 1 => eprintln!("{failure}\ntrying again in {} s", pause.as_secs()),
            done => return done,
        }
        std::thread::sleep(*pause);
    }
    run(command)
}

/// Returns the standard output of a command; `None` if the command cannot be started or fails.
pub fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Returns the sha256 of a file in hexadecimal; `None` if there is no such file.
pub fn sha256_file(path: &Path) -> Result<Option<String>> {
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Failure::io(path, "read", e)),
    };
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        match file.read(&mut chunk).map_err(|e| Failure::io(path, "read", e))? {
            0 => return Ok(Some(hex(&hash.finalize()))),
            n => hash.update(&chunk[..n]),
        }
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub fn create_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|e| Failure::io(path, "create", e))
}

/// Returns the paths in a folder, sorted.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let list = fs::read_dir(folder).and_then(|all| all.map(|e| Ok(e?.path())).collect::<std::io::Result<Vec<_>>>());
    let mut files = list.map_err(|e| Failure::io(folder, "list", e))?;
    files.sort();
    Ok(files)
}

/// Reads a whole file; the error names it.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| Failure::io(path, "read", e))
}

/// Writes a file under a temporary name beside it and renames it, so that an interrupted run leaves no partial file.
pub fn write(path: &Path, fill: impl FnOnce(&mut fs::File) -> std::io::Result<()>) -> Result<()> {
    let part = path.with_added_extension("part");
    let written = fs::File::create(&part).and_then(|mut file| fill(&mut file)).and_then(|()| fs::rename(&part, path));
    written.map_err(|e| {
        let _ = fs::remove_file(&part);
        Failure::io(path, "write", e)
    })
}

/// A temporary folder beside its final location. It is removed when dropped, unless `keep` has moved it there.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn create_beside(place: &Path) -> Result<Scratch> {
        let dir = place.with_added_extension(format!("part{}", std::process::id()));
        create_dir(&dir)?;
        Ok(Scratch(dir))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Moves the folder to its final location, and replaces an older one.
    pub fn keep(self, place: &Path) -> Result<()> {
        match fs::remove_dir_all(place) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(Failure::io(place, "replace", e)),
            Ok(()) | Err(_) => {}
        }
        fs::rename(&self.0, place).map_err(|e| Failure::io(place, "write", e))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // After `keep`, there is nothing left to remove, so the error is ignored.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha256_of_known_bytes() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("abc");
        fs::write(&file, "abc").unwrap();
        assert_eq!(sha256(b"abc"), abc);
        assert_eq!(sha256_file(&file).unwrap().as_deref(), Some(abc));
        assert_eq!(sha256_file(&dir.path().join("absent")).unwrap(), None);
    }

    #[test]
    fn a_failed_write_leaves_neither_file_nor_part() {
        let dir = tempfile::tempdir().unwrap();
        let failure = write(&dir.path().join("f"), |_| Err(std::io::Error::other("disk full"))).unwrap_err();
        assert!(failure.to_string().contains("disk full"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_failed_command_says_which_and_how() {
        let failure = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(failure.to_string(), "error: `sh -c exit 3` failed: exit status: 3");
        assert_eq!(failure.code, 1);
    }

    #[test]
    fn a_download_that_fails_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        // Adds a line to the file `tries`, and succeeds only if there are then three lines.
        let script = "echo >>tries; test $(wc -l <tries) = 3";
        let tries = |pauses| run_again(Command::new("sh").args(["-c", script]).current_dir(&dir), pauses);
        assert!(tries(&[Duration::ZERO]).is_err());
        assert!(tries(&[Duration::ZERO; 3]).is_ok());
        assert_eq!(fs::read_to_string(dir.path().join("tries")).unwrap().lines().count(), 3);
    }
}
