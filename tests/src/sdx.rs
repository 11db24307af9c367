//! model.sdx  <=>  its entries: taken apart, and sealed again with the right hashes and checksums

use prost::Message;
use sardonyx_base::plan::Manifest;
use sardonyx_format::artifact::{
    ENTRY_ALIGNMENT, MANIFEST, PLAN, PLANS, SELFTEST, WEIGHTS, WEIGHTS_ALIGNMENT, ptx_target,
};
use std::io::{Cursor, Read, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

const SEAL: &str = "sardonyx 1 blake3 ";

/// The code for x86-64, the only CPU architecture that there is code for.
const CODE: &str = "cpu/x86_64.so";

/// The entries as bytes, valid or not.
#[derive(Clone)]
pub struct Parts {
    /// The entry `manifest`: an encoded [`Manifest`].
    pub manifest: Vec<u8>,
    /// The entry `plan`: an encoded `Plan`, which devices without a plan of their own use.
    pub plan: Vec<u8>,
    /// The entry `cpu/x86_64.so`: machine code as a shared library.
    pub code: Vec<u8>,
    /// Names and bytes of the entries for certain devices: further plans, and PTX.
    pub others: Vec<(String, Vec<u8>)>,
    /// The entry `weights`: the constants.
    pub weights: Vec<u8>,
    /// The entry `selftest`: an encoded test call; `None` if the artifact has none.
    pub selftest: Option<Vec<u8>>,
}

impl Parts {
    /// Takes an artifact apart; panics if it is not an archive or lacks the manifest, plan, code or weights.
    pub fn read(artifact: &[u8]) -> Parts {
        let mut archive = ZipArchive::new(Cursor::new(artifact)).expect("a good artifact is an archive");
        let names = archive.file_names().map(|name| name.expect("a good artifact names its entries").into_owned());
        let names: Vec<String> = names.collect();
        let mut entry = |name: &str| {
            let mut bytes = vec![];
            archive.by_name(name).ok()?.read_to_end(&mut bytes).expect("a good artifact can be read");
            Some(bytes)
        };
        let mut need = |name: &str| entry(name).unwrap_or_else(|| panic!("no `{name}`"));
        let [manifest, plan, code, weights] = [MANIFEST, PLAN, CODE, WEIGHTS].map(&mut need);
        let others = names.into_iter().filter(|name| ptx_target(name).is_some() || name.starts_with(PLANS));
        let others = others.map(|name| (name.clone(), need(&name))).collect();
        Parts { manifest, plan, code, others, weights, selftest: entry(SELFTEST) }
    }

    /// Updates sizes and hashes of the other entries in the manifest, as far as it still decodes and lists them.
    pub fn rehash(&mut self) {
        let Ok(mut manifest) = Manifest::decode(&self.manifest[..]) else { return };
        for file in &mut manifest.files {
            let content = match file.name.as_str() {
                PLAN => &self.plan,
                CODE => &self.code,
                WEIGHTS => &self.weights,
                SELFTEST => self.selftest.as_ref().unwrap_or(&self.plan),
                name => match self.others.iter().find(|(n, _)| n == name) {
                    Some((_, bytes)) => bytes,
                    None => continue,
                },
            };
            (file.bytes, file.blake3) = (content.len() as u64, blake3::hash(content).as_bytes().to_vec());
        }
        self.manifest = manifest.encode_to_vec();
    }

    /// Returns the archive, with the right seal.
    pub fn archive(&self) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        let mut put = |name: &str, alignment: u16, bytes: &[u8]| {
            let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
            zip.start_file(name, options.large_file(true).with_alignment(alignment)).expect("memory takes everything");
            zip.write_all(bytes).expect("memory takes everything");
        };
        put(WEIGHTS, WEIGHTS_ALIGNMENT, &self.weights);
        put(CODE, ENTRY_ALIGNMENT, &self.code);
        self.others.iter().for_each(|(name, bytes)| put(name, ENTRY_ALIGNMENT, bytes));
        put(PLAN, ENTRY_ALIGNMENT, &self.plan);
        self.selftest.iter().for_each(|bytes| put(SELFTEST, ENTRY_ALIGNMENT, bytes));
        put(MANIFEST, ENTRY_ALIGNMENT, &self.manifest);
        let comment = format!("{SEAL}{}", "0".repeat(64));
        zip.set_raw_comment(comment.into_bytes().into()).expect("a short comment");
        let mut file = zip.finish().expect("memory takes everything").into_inner();
        seal(&mut file);
        file
    }
}

/// Returns the range of the data of `weights`, which is the first entry.
fn weights(file: &[u8]) -> Option<std::ops::Range<usize>> {
    let mut archive = ZipArchive::new(Cursor::new(file)).ok()?;
    let entry = archive.by_name(WEIGHTS).ok()?;
    let (start, size) = (usize::try_from(entry.data_start()?).ok()?, usize::try_from(entry.size()).ok()?);
    let end = start.checked_add(size)?;
    (end + 64 <= file.len()).then_some(start..end)
}

/// Writes the right seal into a file, whatever was changed in it; does nothing if no reader could find the weights.
pub fn seal(file: &mut [u8]) {
    let Some(weights) = weights(file) else { return };
    let end = file.len() - 64;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&file[..weights.start]).update(&file[weights.end..end]);
    let digest = hasher.finalize().to_hex();
    file[end..].copy_from_slice(digest.as_bytes());
}
