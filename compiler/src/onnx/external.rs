//! location, offset, length  =>  a slice of a mapped file inside the model's folder

use super::proto::TensorProto;
use bytes::Bytes;
use sardonyx_base::{Error, Result};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::{Component, Path, PathBuf};

/// The external data files of a model. Each is mapped once, however many tensors it holds.
pub struct External {
    /// The model's folder with symbolic links resolved; `None` if the model was not read from a file.
    folder: Option<PathBuf>,
    mapped: HashMap<String, Bytes>,
    /// Whether files may be missing; their tensors then become zeros, which no caller reads.
    may_lack: bool,
    /// The files that were read, with symbolic links resolved.
    pub files: BTreeSet<PathBuf>,
    /// The tensors whose files are missing.
    pub lacking: BTreeSet<String>,
}

impl External {
    pub fn in_folder(folder: &Path) -> Result<External> {
        let folder = folder.canonicalize().map_err(|e| Error::io(folder, "resolve", &e))?;
        Ok(External { folder: Some(folder), ..External::absent() })
    }

    /// Like [`External::in_folder`], but files may be missing.
    pub fn perhaps_in_folder(folder: &Path) -> Result<External> {
        Ok(External { may_lack: true, ..External::in_folder(folder)? })
    }

    /// External data of a model that does not come from a file: every `read` fails.
    pub fn absent() -> External {
        External {
            folder: None,
            mapped: HashMap::new(),
            may_lack: false,
            files: BTreeSet::new(),
            lacking: BTreeSet::new(),
        }
    }

    /// Reads a tensor of `bytes_needed` bytes. Errors: E0105; E0302 if the stated length differs.
    pub fn read(&mut self, proto: &TensorProto, bytes_needed: usize) -> Result<Bytes> {
        let name = &proto.name;
        let text = |key: &str| proto.external_data.iter().find(|e| e.key == key).map(|e| e.value.as_str());
        let number = |key: &str| match text(key).map(|v| v.trim().parse::<usize>()) {
            None => Ok(None),
            Some(Ok(n)) => Ok(Some(n)),
            Some(Err(_)) => {
                let message =
                    format!("external data of initializer `{name}`: {key} `{}` is not a size", text(key).unwrap_or(""));
                Err(refused(message, "export the model again"))
            }
        };
        let location = text("location").unwrap_or("");
        let offset = number("offset")?.unwrap_or(0);
        if let Some(length) = number("length")?.filter(|&length| length != bytes_needed) {
            let message =
                format!("initializer `{name}` needs {bytes_needed} bytes, but its external data has {length}");
            return Err(Error::user("E0302", message)
                .help("the dimensions and the external file do not belong together; export the model again"));
        }
        let file = match self.file(name, location) {
            Err(_) if self.may_lack && self.is_missing(location) => {
                self.lacking.insert(name.clone());
                return zeros(name, bytes_needed);
            }
            file => file?,
        };
        let end = offset.checked_add(bytes_needed).filter(|&end| end <= file.len());
        match end {
            Some(end) => Ok(file.slice(offset..end)),
            None => {
                let message = format!(
                    "initializer `{name}` lies at bytes {offset} to {} of `{location}`, which has only {} bytes",
                    offset as u128 + bytes_needed as u128,
                    file.len()
                );
                Err(refused(
                    message,
                    "the file is cut off or of another version of the model; fetch or export it again",
                ))
            }
        }
    }

    fn file(&mut self, name: &str, location: &str) -> Result<Bytes> {
        if let Some(bytes) = self.mapped.get(location) {
            return Ok(bytes.clone());
        }
        let path = self.resolve(name, location)?;
        let bytes = map_file(&path).map_err(|e| {
            refused(
                format!("initializer `{name}`: cannot read external data `{location}`: {e}"),
                "check the file's permissions",
            )
        })?;
        self.mapped.insert(location.to_string(), bytes.clone());
        self.files.insert(path);
        Ok(bytes)
    }

    fn is_missing(&self, location: &str) -> bool {
        !location.is_empty() && self.folder.as_ref().is_some_and(|folder| !folder.join(location).exists())
    }

    /// Resolves `location`, including symbolic links, to a regular file. Refuses files outside the folder.
    fn resolve(&self, name: &str, location: &str) -> Result<PathBuf> {
        let inside = "external data has to lie beside the model or below; move the file there and correct the location";
        let Some(folder) = &self.folder else {
            return Err(refused(
                format!("initializer `{name}` has external data, but the model is not in a folder"),
                "read the model from a file",
            ));
        };
        let relative = Path::new(location);
        if location.is_empty() {
            return Err(refused(
                format!("initializer `{name}` has external data without a location"),
                "export the model again",
            ));
        }
        if !relative.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir)) {
            return Err(refused(
                format!("initializer `{name}`: external data `{location}` lies outside the model's folder"),
                inside,
            ));
        }
        let path = folder.join(relative).canonicalize().map_err(|e| {
            let message = format!("initializer `{name}`: external data `{location}` is missing: {e}");
            refused(message, format!("put the file `{location}` into the model's folder"))
        })?;
        if !path.starts_with(folder) {
            let message =
                format!("initializer `{name}`: external data `{location}` is a link to outside the model's folder");
            return Err(refused(message, inside));
        }
        // Checked before opening, because opening a pipe would wait for a writer, and a device could do anything.
        match path.metadata() {
            Ok(metadata) if metadata.is_file() => Ok(path),
            Ok(_) | Err(_) => {
                let message = format!("initializer `{name}`: external data `{location}` is not a regular file");
                Err(refused(message, inside))
            }
        }
    }
}

/// Maps a regular file for reading.
pub fn map_file(path: &Path) -> std::io::Result<Bytes> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    if metadata.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the mapping is private and read-only. If another process truncates the file while it is read, this
    // process gets a bus error; that is the accepted price of not copying gigabytes, as in every tool that maps its
    // input.
    let map = unsafe { memmap2::Mmap::map(&file)? };
    Ok(Bytes::from_owner(map))
}

/// Anonymous zero pages, which take no memory until they are read.
fn zeros(name: &str, bytes: usize) -> Result<Bytes> {
    if bytes == 0 {
        return Ok(Bytes::new());
    }
    let map = memmap2::MmapOptions::new().len(bytes).no_reserve_swap().map_anon();
    let map = map.and_then(memmap2::MmapMut::make_read_only);
    map.map(Bytes::from_owner).map_err(|e| {
        let message = format!("initializer `{name}` of {bytes} bytes has no room in the address space: {e}");
        refused(message, "give the process a larger address space")
    })
}

fn refused(message: String, help: impl Into<String>) -> Box<Error> {
    Error::user("E0105", message).help(help)
}
