//! model.sdx  =>  manifest, plan, code and weights, checked; the file is mapped, not read

use super::{
    DIGEST_BYTES, MANIFEST, PLAN, SEAL, SEAL_BYTES, SELFTEST, Seal, Trust, WEIGHTS, WEIGHTS_ALIGNMENT, attached_name,
    code_entry, plan_class, ptx_target,
};
use bytes::Bytes;
use memmap2::{Mmap, MmapMut};
use prost::Message;
use sardonyx_base::plan::messages::Plan;
use sardonyx_base::plan::{FORMAT_MAJOR, Manifest, NEEDS, SelfTest};
use sardonyx_base::{Error, Result};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use zip::{CompressionMethod, ZipArchive};

/// Which parts of the content are compared with their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Everything is read and hashed when the file is loaded; with several ranks, each rank hashes only the constants
    /// that it uses.
    #[default]
    Full,
    /// The weights are not read on loading, only as the model runs; everything else is hashed.
    Lazy,
    /// Like `Lazy`, but the rest of the file is not hashed either; structure and plan are still checked.
    Off,
}

/// Options for opening a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading<'a> {
    /// Which hashes are checked.
    pub verify: Verify,
    /// Whether the file is copied to memory, where nothing can change it, instead of being mapped.
    pub copied: bool,
    /// If present, files that it does not trust are refused before the plan is decoded; absent if no code will be run.
    pub trust: Option<&'a Trust>,
}

/// An open artifact. The bytes are views of the mapped or given file, which must not change while the artifact exists.
pub struct Artifact {
    /// The seal; absent if the file was not hashed.
    pub seal: Option<Seal>,
    /// Decoded manifest, of a format version that this runtime reads.
    pub manifest: Manifest,
    /// Plan for the classes of devices that `plans` lacks.
    pub plan: Plan,
    /// Plans of the classes of devices that do not use `plan`.
    pub plans: Vec<(String, Plan)>,
    /// Code for CPUs.
    pub code: Option<Bytes>,
    /// Code for GPUs: targets and their PTX text.
    pub ptx: Vec<(String, Bytes)>,
    /// The weights, which begin at a page boundary of the file.
    pub weights: Bytes,
    /// A call with known results; absent if the artifact has none.
    pub selftest: Option<SelfTest>,
    /// Files that belong to the model, by name.
    pub attached: Vec<(String, Bytes)>,
}

/// Maximum size of an entry other than `weights` in bytes, larger than any real entry; decoding may need many times the
/// encoded size.
const PLAN_BYTES_MAX: usize = 256 << 20;

impl Artifact {
    /// Opens an artifact for inspection; no trust is required.
    pub fn open(path: impl AsRef<Path>, verify: Verify) -> Result<Artifact> {
        Artifact::open_for(path, &Reading { verify, ..Reading::default() })
    }

    /// Opens an artifact. Errors: E0001 if `reading.trust` is a pin or a key but `reading.verify` does not hash the
    /// whole file, E0409 for a file that is not trusted.
    pub fn open_for(path: impl AsRef<Path>, reading: &Reading) -> Result<Artifact> {
        let path = path.as_ref();
        let bytes = if reading.copied { read_file(path) } else { map_file(path).map(Bytes::from_owner) };
        bytes.and_then(|bytes| Artifact::read(bytes, reading)).map_err(|e| e.file(path.display().to_string()))
    }

    /// Reads an artifact from the bytes of a file, which are used in place.
    pub fn read(file: Bytes, reading: &Reading) -> Result<Artifact> {
        let verify = reading.verify;
        let trust = reading.trust.filter(|trust| !trust.is_of_any_file());
        if trust.is_some() && verify != Verify::Full {
            let message = "a pin or a key stands for the weights too, which would not be hashed";
            return Err(Error::user("E0001", message).help("leave `--verify` out, or trust the file"));
        }
        let entries = Entries::find(&file)?;
        let seal = match verify {
            Verify::Off => None,
            Verify::Full | Verify::Lazy => Some(entries.check_seal(&file)?),
        };
        if let (Some(trust), Some(seal)) = (trust, &seal) {
            trust.check(seal)?;
        }
        let manifest_range = entries.range(MANIFEST)?;
        let manifest = Manifest::decode(&file[small(MANIFEST, manifest_range)?]);
        let manifest = manifest.map_err(|e| damaged(format!("the manifest does not decode: {e}")))?;
        check_version(&manifest)?;
        let ranges = [entries.range(PLAN)?, entries.range(WEIGHTS)?];
        for (name, range) in [PLAN, WEIGHTS].into_iter().zip(&ranges) {
            let hashed = match verify {
                // With several ranks, each rank checks the constants that it uses.
                Verify::Full => name != WEIGHTS || manifest.mesh.is_empty(),
                Verify::Lazy => name != WEIGHTS,
                Verify::Off => false,
            };
            check_entry(&manifest, name, &file[range.clone()], hashed)?;
        }
        let [plan, weights] = ranges;
        let optional = |name: &str| read_optional(&file, &entries, &manifest, name, verify);
        let code = match manifest.arch.as_str() {
            "" => None,
            arch => optional(&code_entry(arch))?,
        };
        let mut ptx = vec![];
        for name in names(&entries, &manifest).filter(|name| ptx_target(name).is_some()) {
            ptx.extend(optional(name)?.map(|range| (name, range)));
        }
        if weights.start % WEIGHTS_ALIGNMENT as usize != 0 {
            return Err(damaged(format!("`{WEIGHTS}` does not begin at a multiple of {WEIGHTS_ALIGNMENT}")));
        }
        let decoded = |range: Range<usize>| {
            Plan::decode(&file[range]).map_err(|e| damaged(format!("the plan does not decode: {e}")))
        };
        let plan = decoded(small(PLAN, plan)?)?;
        let mut plans = vec![];
        for (name, class) in names(&entries, &manifest).filter_map(|name| Some((name, plan_class(name)?))) {
            let range = optional(name)?;
            plans.extend(range.map(decoded).transpose()?.map(|plan| (class.to_string(), plan)));
        }
        let selftest = optional(SELFTEST)?.map(|range| SelfTest::decode(&file[range])).transpose();
        let selftest = selftest.map_err(|e| damaged(format!("the self-test does not decode: {e}")))?;
        let ptx: Vec<(String, Range<usize>)> =
            ptx.into_iter().filter_map(|(name, range)| Some((ptx_target(name)?.to_string(), range))).collect();
        let mut attached = vec![];
        for (entry, name) in names(&entries, &manifest).filter_map(|entry| Some((entry, attached_name(entry)?))) {
            attached.extend(optional(entry)?.map(|range| (name.to_string(), file.slice(range))));
        }
        let code = code.map(|range| file.slice(range));
        let ptx = ptx.into_iter().map(|(target, range)| (target, file.slice(range))).collect();
        Ok(Artifact { seal, manifest, plan, plans, code, ptx, weights: file.slice(weights), selftest, attached })
    }

    /// Returns bytes that identify the content, so that equal files have equal identities: the digest of the seal or,
    /// if the file was not hashed, a hash of the manifest.
    pub fn identity(&self) -> Vec<u8> {
        let of_manifest = || blake3::hash(&self.manifest.encode_to_vec());
        self.seal.as_ref().map_or_else(of_manifest, |seal| seal.digest).as_bytes().to_vec()
    }

    /// Checks a range of the weights. Errors: E0401 if its BLAKE3 in hexadecimal differs from `hash`.
    pub fn check_constant(&self, range: Range<usize>, hash: &str) -> Result<()> {
        match blake3::hash(&self.weights[range.clone()]).to_hex().as_str() == hash {
            true => Ok(()),
            false => Err(damaged(format!("{} bytes at {} of `{WEIGHTS}` have another hash", range.len(), range.start))),
        }
    }

    /// The plan for devices of a class.
    pub fn plan_of(&self, class: &str) -> &Plan {
        self.plans.iter().find(|(name, _)| name == class).map_or(&self.plan, |(_, plan)| plan)
    }
}

/// The names of all entries that the manifest lists or the archive contains, sorted.
fn names<'a>(entries: &'a Entries, manifest: &'a Manifest) -> impl Iterator<Item = &'a str> {
    let listed = manifest.files.iter().map(|f| f.name.as_str());
    let all: BTreeSet<&str> = listed.chain(entries.found.iter().map(|(name, _)| name.as_str())).collect();
    all.into_iter()
}

/// Checks an optional entry and returns its range; `None` if the manifest does not list it and the archive does not
/// contain it. Errors: E0401, also if only one of the two is the case.
fn read_optional(
    file: &[u8],
    entries: &Entries,
    manifest: &Manifest,
    name: &str,
    verify: Verify,
) -> Result<Option<Range<usize>>> {
    if !manifest.files.iter().any(|f| f.name == name) && entries.range(name).is_err() {
        return Ok(None);
    }
    let range = small(name, entries.range(name)?)?;
    check_entry(manifest, name, &file[range.clone()], verify != Verify::Off)?;
    Ok(Some(range))
}

fn damaged(message: String) -> Box<Error> {
    Error::user("E0401", message).help("compile the model again, or copy the file again")
}

/// Message for files that are too short, such as an empty one, which cannot be mapped.
const TOO_SHORT: &str = "the file is too short to be an artifact";

fn small(name: &str, range: Range<usize>) -> Result<Range<usize>> {
    match range.len() {
        ..=PLAN_BYTES_MAX => Ok(range),
        n => Err(damaged(format!("`{name}` has {n} bytes, more than any model needs"))),
    }
}

fn check_version(manifest: &Manifest) -> Result<()> {
    match manifest.format_major {
        FORMAT_MAJOR => match manifest.needs.iter().find(|need| !NEEDS.contains(&need.as_str())) {
            Some(need) => {
                let need: String = need.chars().take(80).collect();
                let message = format!("the artifact needs {need:?}, which this runtime does not know");
                Err(Error::user("E0402", message).help("use a newer runtime"))
            }
            None => Ok(()),
        },
        other => {
            let producer: String = manifest.producer.chars().take(80).collect();
            let message =
                format!("the artifact has format {other}, written by {producer:?}; this runtime reads {FORMAT_MAJOR}");
            let newer = if other > FORMAT_MAJOR { "use a newer runtime, or compile" } else { "compile" };
            Err(Error::user("E0402", message).help(format!("{newer} the model again with this version")))
        }
    }
}

fn check_entry(manifest: &Manifest, name: &str, bytes: &[u8], hashed: bool) -> Result<()> {
    let file = manifest.files.iter().find(|f| f.name == name);
    let file = file.ok_or_else(|| damaged(format!("the manifest does not list `{name}`")))?;
    if file.bytes != bytes.len() as u64 {
        return Err(damaged(format!("`{name}` has {} bytes, the manifest says {}", bytes.len(), file.bytes)));
    }
    if hashed && blake3::hash(bytes).as_bytes().as_slice() != file.blake3 {
        return Err(damaged(format!("the content of `{name}` does not have the hash that the manifest says")));
    }
    Ok(())
}

fn map_file(path: &Path) -> Result<Mmap> {
    let file = open_file(path)?.0;
    // SAFETY: the map is read-only; the documentation demands that an artifact is never changed in place, and
    // `ArtifactWriter` replaces a file by renaming.
    unsafe { Mmap::map(&file) }.map_err(|e| Error::io(path, "read", &e))
}

/// Copies a file to anonymous pages. Errors: E0304 if there is no memory.
fn read_file(path: &Path) -> Result<Bytes> {
    let (mut file, len) = open_file(path)?;
    let no_room = |_| Error::user("E0304", format!("no memory for the {len} bytes of the artifact"));
    let mut pages = MmapMut::map_anon(usize::try_from(len).unwrap_or(usize::MAX)).map_err(no_room)?;
    file.read_exact(&mut pages).map_err(|e| Error::io(path, "read", &e))?;
    Ok(Bytes::from_owner(pages))
}

fn is_archive(file: &File) -> bool {
    let mut start = [0; 4];
    file.read_exact_at(&mut start, 0).is_ok() && start == *b"PK\x03\x04"
}

/// The file and its length, which is not zero.
fn open_file(path: &Path) -> Result<(File, u64)> {
    let fail = |e: std::io::Error| Error::io(path, "read", &e);
    let file = File::open(path).map_err(fail)?;
    let kind = file.metadata().map_err(fail)?;
    let compile = || format!("compile it first: `sardonyx compile {} -o MODEL.sdx`", path.display());
    if kind.is_dir() {
        return Err(Error::user("E0002", format!("{} is a folder, not an artifact", path.display())).help(compile()));
    }
    if path.extension().is_some_and(|e| e == "onnx") && !is_archive(&file) {
        let message = format!("{} is an ONNX model, not an artifact", path.display());
        return Err(Error::user("E0401", message).help(compile()));
    }
    if !kind.is_file() {
        return Err(Error::user("E0002", format!("{} is not a regular file", path.display())));
    }
    if kind.len() == 0 {
        return Err(damaged(TOO_SHORT.into()));
    }
    Ok((file, kind.len()))
}

/// The mapped archive, and the range of the data of `weights`.
pub(super) fn map_archive(path: &Path) -> Result<(Mmap, Range<usize>)> {
    let map = map_file(path)?;
    let weights = Entries::find(&map)?.range(WEIGHTS)?;
    Ok((map, weights))
}

/// The entries of the archive as ranges of bytes, which are all inside the file.
struct Entries {
    found: Vec<(String, Range<usize>)>,
    comment: Vec<u8>,
}

impl Entries {
    fn find(file: &[u8]) -> Result<Entries> {
        if file.len() < SEAL_BYTES {
            return Err(damaged(TOO_SHORT.into()));
        }
        let broken = |e: zip::result::ZipError| damaged(format!("not an artifact, or a truncated one: {e}"));
        let mut archive = ZipArchive::new(std::io::Cursor::new(file)).map_err(broken)?;
        if archive.has_duplicate_names() {
            return Err(damaged("the archive has two entries of one name".into()));
        }
        let mut found = Vec::new();
        for i in 0..archive.len() {
            let entry = archive.by_index_raw(i).map_err(broken)?;
            let name = entry.name().map_err(broken)?.into_owned();
            if entry.compression() != CompressionMethod::Stored || entry.encrypted() {
                return Err(damaged(format!("the entry `{name}` is compressed or encrypted")));
            }
            let range = entry.data_start().and_then(|start| {
                let (start, size) = (usize::try_from(start).ok()?, usize::try_from(entry.size()).ok()?);
                let end = start.checked_add(size).filter(|&end| end <= file.len())?;
                (entry.size() == entry.compressed_size()).then_some(start..end)
            });
            let range = range.ok_or_else(|| damaged(format!("the entry `{name}` reaches beyond the file")))?;
            found.push((name, range));
        }
        Ok(Entries { found, comment: archive.comment().to_vec() })
    }

    fn range(&self, name: &str) -> Result<Range<usize>> {
        let entry = self.found.iter().find(|(n, _)| n == name);
        entry.map(|(_, range)| range.clone()).ok_or_else(|| damaged(format!("the entry `{name}` is missing")))
    }

    fn check_seal(&self, file: &[u8]) -> Result<Seal> {
        let weights = self.range(WEIGHTS)?;
        let Some(sealed) = self.comment.strip_prefix(SEAL.as_bytes()) else {
            // Another major version may use another seal; report the version if the manifest can be read.
            let manifest = self.range(MANIFEST).and_then(|r| small(MANIFEST, r));
            if let Some(manifest) = manifest.ok().and_then(|range| Manifest::decode(&file[range]).ok()) {
                check_version(&manifest)?;
            }
            return Err(damaged("the archive is not sealed".into()));
        };
        // The seal must be at the very end of the file, because the digest does not cover bytes after the archive.
        let digest_at = file.len() - sealed.len();
        let (digest, rest) = sealed.split_at(sealed.len().min(DIGEST_BYTES));
        let intact = || {
            let whole = file.ends_with(&self.comment) && weights.end <= digest_at;
            let found = whole.then(|| super::seal(file, &weights, digest_at))?;
            (found.to_hex().as_bytes() == digest).then_some(found)
        };
        let found = intact().ok_or_else(|| damaged("the file does not have the hash of its seal".into()))?;
        Seal::new(found, rest).ok_or_else(|| damaged("what follows the seal is no signature of it".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ArtifactWriter;
    use super::*;
    use sardonyx_base::plan::FORMAT_MINOR_PLANS;
    use sardonyx_base::plan::messages::Constant;

    fn write(path: &Path) {
        let mut w = ArtifactWriter::create(path).unwrap();
        assert_eq!(w.constant(&[1; 100]).unwrap(), 0);
        assert_eq!(w.constant(&[2; 10]).unwrap(), 128);
        assert_eq!(w.begin_constant().unwrap(), 192);
        w.append(&[3; 5000]).unwrap();
        w.append(&[4; 5000]).unwrap();
        w.selftest(&SelfTest { inputs: vec![Default::default()], outputs: vec![] });
        w.ptx("sm_80", "// kernels".into());
        w.attach("tokenizer.json", b"{}".to_vec());
        let named = |name: &str| Constant { name: name.into(), ..Constant::default() };
        w.plan("gpu", &Plan { constants: vec![named("b")], ..Plan::default() });
        w.finish(Manifest::current("test"), &Plan::default(), Some(b"code")).unwrap();
    }

    #[test]
    fn entries_come_back_aligned_and_the_bytes_are_the_same_every_time() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a.sdx"), dir.path().join("b.sdx"));
        write(&a);
        write(&b);
        assert_eq!(std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap());
        let artifact = Artifact::open(&a, Verify::Full).unwrap();
        let code = artifact.code.as_ref().unwrap();
        assert_eq!(&code[..], b"code");
        assert_eq!(artifact.ptx, [("sm_80".to_string(), Bytes::from_static(b"// kernels"))]);
        assert_eq!(artifact.manifest.format_minor, FORMAT_MINOR_PLANS);
        assert_eq!(artifact.plan_of("gpu").constants[0].name, "b");
        assert!(artifact.plan_of("cpu").constants.is_empty());
        assert_eq!(artifact.selftest.as_ref().unwrap().inputs.len(), 1);
        assert_eq!(artifact.attached, [("tokenizer.json".to_string(), Bytes::from_static(b"{}"))]);
        assert_eq!(artifact.weights.len(), 10192);
        assert_eq!((artifact.weights[99], artifact.weights[100], artifact.weights[128]), (1, 0, 2));
        assert_eq!(artifact.weights.as_ptr() as usize % 4096, 0);
        assert_eq!(code.as_ptr() as usize % 64, 0);
    }

    #[test]
    fn an_unfinished_artifact_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sdx");
        let mut writer = ArtifactWriter::create(&path).unwrap();
        writer.constant(&[1; 1 << 20]).unwrap();
        drop(writer);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        // A folder of that name is detected before anything is written.
        std::fs::create_dir(&path).unwrap();
        assert_eq!(ArtifactWriter::create(&path).err().unwrap().code, "E0002");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sdx");
        write(&path);
        let good = std::fs::read(&path).unwrap();
        let weights = map_archive(&path).unwrap().1;
        let code = |bytes: &[u8], verify| {
            std::fs::write(&path, bytes).unwrap();
            Artifact::open(&path, verify).map_err(|e| e.code).err()
        };
        // Tests every byte outside the weights (headers, padding and seal included), and some within.
        let sample = (0..good.len()).filter(|i| !weights.contains(i) || i % 97 == 0);
        for i in sample {
            let mut bad = good.clone();
            bad[i] ^= 1 << (i % 8);
            let found = code(&bad, Verify::Full);
            assert!(matches!(found, Some("E0401" | "E0402")), "byte {i}: {found:?}");
            let unread = weights.contains(&i);
            assert_eq!(code(&bad, Verify::Lazy).is_none(), unread, "byte {i}");
            let _ = code(&bad, Verify::Off);
        }
        for n in (0..16).map(|n| good.len() * n / 16).chain([weights.start, weights.end, good.len() - 1]) {
            assert_eq!(code(&good[..n], Verify::Lazy), Some("E0401"), "cut at {n}");
            assert_eq!(code(&good[..n], Verify::Off), Some("E0401"), "cut at {n}");
        }
        let longer = [&good[..], b"x"].concat();
        assert_eq!(code(&longer, Verify::Lazy), Some("E0401"));
    }

    #[test]
    fn other_versions_are_refused_with_a_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sdx");
        let with = |major, minor| {
            let manifest = Manifest { format_major: major, format_minor: minor, ..Manifest::current("future 9") };
            ArtifactWriter::create(&path).unwrap().finish(manifest, &Plan::default(), Some(b"")).unwrap();
            Artifact::open(&path, Verify::Full).err()
        };
        assert!(with(FORMAT_MAJOR, 99).is_none());
        let e = with(FORMAT_MAJOR + 1, 0).unwrap();
        assert_eq!(e.code, "E0402");
        assert_eq!(e.message, "the artifact has format 2, written by \"future 9\"; this runtime reads 1");
    }

    #[test]
    fn what_is_no_artifact_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Artifact::open(dir.path(), Verify::Full).err().unwrap().code, "E0002");
        assert_eq!(Artifact::open(dir.path().join("none"), Verify::Full).err().unwrap().code, "E0002");
        let path = dir.path().join("x");
        for content in [&b""[..], b"PK", &[0; 10_000], &b"PK\x05\x06".repeat(4000)] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(Artifact::open(&path, Verify::Full).err().unwrap().code, "E0401");
        }
    }
}
