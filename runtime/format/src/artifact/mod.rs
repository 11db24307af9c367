//! model.sdx: a ZIP64 archive of stored entries, aligned, hashed and sealed
//!
//! | entry | alignment | content |
//! |---|---|---|
//! | `weights` | 4096 | the constants, each at a multiple of 64 |
//! | `cpu/x86_64.so` | 64 | the kernels for CPUs; optional |
//! | `ptx/sm_80.ptx` | 64 | the kernels for GPUs, one such entry per target; optional |
//! | `plan` | 64 | [`Plan`](sardonyx_base::plan::messages::Plan) |
//! | `plan/gpu` | 64 | the plan for a class of devices that does not use `plan`; optional |
//! | `selftest` | 64 | [`SelfTest`](sardonyx_base::plan::SelfTest); optional |
//! | `attached/NAME` | 64 | a file of the model that the runtime only passes on, such as `tokenizer.json`; optional |
//! | `manifest` | 64 | [`Manifest`](sardonyx_base::plan::Manifest), with the BLAKE3 of the other entries |
//!
//! The archive comment is the seal, which ends the file: the BLAKE3 of all bytes before the digest except the data of
//! `weights`. Together with the hash of `weights` in the manifest, the digest detects every changed bit, also in
//! headers and padding. A hash does not establish trust: the code entry is native code, and anyone who can write the
//! file can seal it. Therefore the caller states which seals or whose signatures it trusts. In a signed file, the
//! digest is followed by the text ` ed25519 KEY SIGNATURE`.

mod read;
mod trust;
mod write;

pub use read::{Artifact, Reading, Verify};
pub use trust::{PublicKey, Seal, SecretKey, Trust};
pub use write::ArtifactWriter;

/// Name of the entry with the manifest.
pub const MANIFEST: &str = "manifest";
/// Name of the entry with the plan for every class of devices that has no plan of its own.
pub const PLAN: &str = "plan";
/// Prefix of plans for classes of devices: `plan/CLASS`.
pub const PLANS: &str = "plan/";
/// Prefix of the PTX of targets: `ptx/TARGET.ptx`.
pub const PTX: &str = "ptx/";
/// Name of the entry with the self-test.
pub const SELFTEST: &str = "selftest";
/// Prefix of attached files: `attached/NAME`.
pub const ATTACHED: &str = "attached/";
/// Name of the entry with the constants.
pub const WEIGHTS: &str = "weights";

/// Alignment of the entry `weights` in the file, in bytes: that of pages, so that constants can be mapped.
pub const WEIGHTS_ALIGNMENT: u16 = 4096;
/// Alignment of every entry except `weights` in the file, in bytes.
pub const ENTRY_ALIGNMENT: u16 = 64;
/// Alignment of every constant within `weights`, in bytes.
pub const CONSTANT_ALIGNMENT: u64 = 64;

/// Prefix of the comment, followed by 64 hexadecimal digits and optionally a signature. Another way of sealing must use
/// another prefix.
const SEAL: &str = "sardonyx 1 blake3 ";
const DIGEST_BYTES: usize = 64;
const SEAL_BYTES: usize = SEAL.len() + DIGEST_BYTES;

/// Name of the entry with the CPU code of an architecture: `cpu/x86_64.so`.
pub fn code_entry(arch: &str) -> String {
    format!("cpu/{arch}.so")
}

/// `ptx/sm_80.ptx`  =>  `sm_80`
pub fn ptx_target(entry: &str) -> Option<&str> {
    entry.strip_prefix(PTX)?.strip_suffix(".ptx").filter(|target| !target.is_empty())
}

/// `sm_80`  =>  `ptx/sm_80.ptx`
pub fn ptx_entry(target: &str) -> String {
    format!("{PTX}{target}.ptx")
}

/// `plan/gpu`  =>  `gpu`
fn plan_class(entry: &str) -> Option<&str> {
    entry.strip_prefix(PLANS).filter(|class| !class.is_empty())
}

/// `attached/tokenizer.json`  =>  `tokenizer.json`
fn attached_name(entry: &str) -> Option<&str> {
    entry.strip_prefix(ATTACHED).filter(|name| !name.is_empty())
}

/// Returns the digest for the seal of a file, given the range of the data of `weights` and the position of the digest.
fn seal(file: &[u8], weights: &std::ops::Range<usize>, digest_at: usize) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&file[..weights.start]).update(&file[weights.end..digest_at]);
    hasher.finalize()
}
