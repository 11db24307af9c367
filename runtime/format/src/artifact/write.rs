//! streamed constants, then plan, code, manifest  =>  model.sdx, whole or not at all

use super::trust::SIGNATURE_BYTES;
use super::{
    ATTACHED, CONSTANT_ALIGNMENT, DIGEST_BYTES, ENTRY_ALIGNMENT, MANIFEST, PLAN, PLANS, SEAL, SEAL_BYTES, SELFTEST,
    SecretKey, WEIGHTS, WEIGHTS_ALIGNMENT, code_entry, ptx_entry,
};
use crate::file::AtomicFile;
use prost::Message;
use sardonyx_base::plan::messages::Plan;
use sardonyx_base::plan::{FORMAT_MINOR_PLANS, File, Manifest, SelfTest};
use sardonyx_base::{Error, Result};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, System, ZipWriter};

/// Writes one artifact. The constants are streamed first, so that they need not be in memory together and their offsets
/// are known before the plan is written. If the writer is dropped before `finish`, no file is left.
pub struct ArtifactWriter {
    zip: ZipWriter<Quiet>,
    path: String,
    weights: blake3::Hasher,
    weights_bytes: u64,
    /// Hasher of the current constant, if constants are hashed individually.
    constant: Option<blake3::Hasher>,
    selftest: Option<Vec<u8>>,
    /// Names of entries and their content.
    ptx: Vec<(String, String)>,
    plans: Vec<(String, Vec<u8>)>,
    attached: Vec<(String, Vec<u8>)>,
    key: Option<SecretKey>,
}

impl ArtifactWriter {
    /// Creates the temporary file and begins the weights. Errors: E0002 if the file cannot be written.
    pub fn create(path: impl AsRef<Path>) -> Result<ArtifactWriter> {
        let file = AtomicFile::create(path.as_ref())?;
        let path = file.path().display().to_string();
        let mut zip = ZipWriter::new(Quiet::new(file));
        zip.start_file(WEIGHTS, options(WEIGHTS_ALIGNMENT)).map_err(|e| zip_error(&path, e))?;
        let (weights, weights_bytes) = (blake3::Hasher::new(), 0);
        Ok(ArtifactWriter {
            zip,
            path,
            weights,
            weights_bytes,
            constant: None,
            selftest: None,
            ptx: vec![],
            plans: vec![],
            attached: vec![],
            key: None,
        })
    }

    /// From now on, hashes every constant individually.
    pub fn hash_constants(&mut self) {
        self.constant = Some(blake3::Hasher::new());
    }

    /// The hash of the last constant in hexadecimal; empty if constants are not hashed individually.
    pub fn constant_hash(&self) -> String {
        self.constant.as_ref().map(|hasher| hasher.finalize().to_hex().to_string()).unwrap_or_default()
    }

    /// Pads `weights` to the next multiple of 64 bytes and returns this offset, at which the next constant begins.
    pub fn begin_constant(&mut self) -> Result<u64> {
        static ZEROS: [u8; CONSTANT_ALIGNMENT as usize] = [0; CONSTANT_ALIGNMENT as usize];
        let end = self.weights_bytes.next_multiple_of(CONSTANT_ALIGNMENT);
        self.append(&ZEROS[..(end - self.weights_bytes) as usize])?;
        if let Some(hasher) = &mut self.constant {
            hasher.reset();
        }
        Ok(end)
    }

    /// Appends bytes to the current constant.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.zip.write_all(bytes).map_err(|e| Error::io(&self.path, "write", &e))?;
        self.weights.update(bytes);
        if let Some(hasher) = &mut self.constant {
            hasher.update(bytes);
        }
        self.weights_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Writes a whole constant; returns its offset in `weights`.
    pub fn constant(&mut self, bytes: &[u8]) -> Result<u64> {
        let offset = self.begin_constant()?;
        self.append(bytes)?;
        Ok(offset)
    }

    /// Number of bytes of `weights` so far.
    pub fn weights_bytes(&self) -> u64 {
        self.weights_bytes
    }

    /// Adds a call with known results, which is executed when the artifact is loaded.
    pub fn selftest(&mut self, selftest: &SelfTest) {
        self.selftest = Some(selftest.encode_to_vec());
    }

    /// Adds the kernels for a GPU target, such as `sm_80`.
    pub fn ptx(&mut self, target: &str, text: String) {
        self.ptx.push((ptx_entry(target), text));
    }

    /// Adds a plan for a class of devices, such as `gpu`, that does not use the plan passed to `finish`.
    pub fn plan(&mut self, class: &str, plan: &Plan) {
        self.plans.push((format!("{PLANS}{class}"), plan.encode_to_vec()));
    }

    /// Adds a file with any content, which the runtime only passes on under this name. Each name must be unique.
    pub fn attach(&mut self, name: &str, bytes: Vec<u8>) {
        self.attached.push((format!("{ATTACHED}{name}"), bytes));
    }

    /// Makes `finish` sign the file with this key.
    pub fn sign(&mut self, key: SecretKey) {
        self.key = Some(key);
    }

    /// Writes the remaining entries, seals the file and renames it. `manifest.files` is filled in here, and
    /// `manifest.format_minor` is raised if there are plans for classes of devices; the other fields are written as
    /// given (see [`Manifest::current`]). `code` is the code for CPUs; an artifact for GPUs only has none.
    pub fn finish(mut self, mut manifest: Manifest, plan: &Plan, code: Option<&[u8]>) -> Result<()> {
        let plan = plan.encode_to_vec();
        if !self.plans.is_empty() {
            manifest.format_minor = manifest.format_minor.max(FORMAT_MINOR_PLANS);
        }
        let weights = self.weights.finalize().as_bytes().to_vec();
        manifest.files = vec![File { name: WEIGHTS.into(), bytes: self.weights_bytes, blake3: weights }];
        let code_name = code_entry(&manifest.arch);
        let mut entries: Vec<(&str, &[u8])> = code.map(|code| (code_name.as_str(), code)).into_iter().collect();
        entries.extend(self.ptx.iter().map(|(name, text)| (name.as_str(), text.as_bytes())));
        entries.push((PLAN, &plan));
        entries.extend(self.plans.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())));
        entries.extend(self.attached.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())));
        entries.extend(self.selftest.as_ref().map(|bytes| (SELFTEST, bytes.as_slice())));
        manifest.files.extend(entries.iter().map(|(name, bytes)| File {
            name: name.to_string(),
            bytes: bytes.len() as u64,
            blake3: blake3::hash(bytes).as_bytes().to_vec(),
        }));
        let manifest = manifest.encode_to_vec();
        entries.push((MANIFEST, &manifest));
        for (name, bytes) in entries {
            self.zip.start_file(name, options(ENTRY_ALIGNMENT)).map_err(|e| zip_error(&self.path, e))?;
            self.zip.write_all(bytes).map_err(|e| Error::io(&self.path, "write", &e))?;
        }
        let signature = if self.key.is_some() { SIGNATURE_BYTES } else { 0 };
        let comment = format!("{SEAL}{}", "0".repeat(SEAL_BYTES - SEAL.len() + signature));
        self.zip.set_raw_comment(comment.into_bytes().into()).map_err(|e| zip_error(&self.path, e))?;
        let finished = self.zip.finish().map_err(|e| zip_error(&self.path, e))?;
        seal(finished.file, &self.path, self.key.as_ref())
    }
}

/// Once a write has failed, ignores all further writes without an error. A `ZipWriter` still writes the archive's end
/// when it is dropped, and would report on standard error what the caller already knows; the file is removed in any
/// case.
struct Quiet {
    file: AtomicFile,
    failed: bool,
    /// Position and length that the file would have if no write had failed; the archive's end is computed from them.
    at: u64,
    end: u64,
}

impl Quiet {
    fn new(file: AtomicFile) -> Quiet {
        Quiet { file, failed: false, at: 0, end: 0 }
    }

    fn attempt<T>(&mut self, silent: T, act: impl FnOnce(&mut AtomicFile) -> std::io::Result<T>) -> std::io::Result<T> {
        if self.failed {
            return Ok(silent);
        }
        let result = act(&mut self.file);
        self.failed = result.as_ref().is_err_and(|e| e.kind() != std::io::ErrorKind::Interrupted);
        result
    }
}

impl Write for Quiet {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = self.attempt(bytes.len(), |file| file.write(bytes))?;
        self.at += n as u64;
        self.end = self.end.max(self.at);
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.attempt((), |file| file.flush())
    }
}

impl Seek for Quiet {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        let silent = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) => self.at.saturating_add_signed(by),
            SeekFrom::End(by) => self.end.saturating_add_signed(by),
        };
        self.at = self.attempt(silent, |file| file.seek(to))?;
        Ok(self.at)
    }
}

/// Reads the finished archive back, as a reader does, writes the digest and the signature, if any, to the space
/// reserved for them, and renames the file.
fn seal(mut file: AtomicFile, path: &str, key: Option<&SecretKey>) -> Result<()> {
    let fail = |e: std::io::Error| Error::io(path, "write", &e);
    file.flush().map_err(fail)?;
    let (map, weights) = super::read::map_archive(file.temporary())?;
    let end = DIGEST_BYTES + key.map_or(0, |_| SIGNATURE_BYTES);
    let digest = super::seal(&map, &weights, map.len() - end);
    let signature = key.map_or(String::new(), |key| key.sign(&digest));
    file.seek(SeekFrom::End(-(end as i64))).map_err(fail)?;
    file.write_all(format!("{}{signature}", digest.to_hex()).as_bytes()).map_err(fail)?;
    file.commit()
}

/// Options of an entry, which do not depend on the clock, the platform or the user.
fn options(alignment: u16) -> SimpleFileOptions {
    SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(DateTime::DEFAULT)
        .unix_permissions(0o644)
        .system(System::Unix)
        .large_file(true)
        .with_alignment(alignment)
}

fn zip_error(path: &str, error: zip::result::ZipError) -> Box<Error> {
    match error {
        zip::result::ZipError::Io(e) => Error::io(path, "write", &e),
        other => Error::user("E0002", format!("cannot write {path}: {other}")).file(path),
    }
}
