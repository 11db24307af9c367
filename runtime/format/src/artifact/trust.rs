//! whom a caller trusts, and the seal of a file  =>  whether the file's code may be run

use ed25519_dalek::pkcs8::{DecodePrivateKey, DecodePublicKey};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use sardonyx_base::{Error, Result};
use std::fmt;

/// Prefix of the signed message, so that a signature made for another purpose is not valid for an artifact.
const SIGNED: &[u8] = b"sardonyx artifact 1\n";

/// Word between the digest and the signer's key in the archive comment of a signed file.
const SIGNATURE: &str = " ed25519 ";

/// Number of bytes that a signature adds to the comment: [`SIGNATURE`], the key, a space, the signature.
pub(super) const SIGNATURE_BYTES: usize = SIGNATURE.len() + 64 + 1 + 128;

/// The seal of an artifact: its hash, and its signer.
#[derive(Clone, Debug)]
pub struct Seal {
    /// The BLAKE3 hash of all bytes before the digest except the data of the weights, whose own hash is in the
    /// manifest.
    pub digest: blake3::Hash,
    /// The public key of the signer; `None` if the digest is not signed.
    pub signer: Option<PublicKey>,
}

/// A public Ed25519 key, with which signatures are verified.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

/// A secret Ed25519 key, with which artifacts are signed.
#[derive(Clone)]
pub struct SecretKey(SigningKey);

/// Which artifacts may be loaded; none by default. Loading runs native code from the file, with all rights of the
/// process.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    any: bool,
    pins: Vec<blake3::Hash>,
    keys: Vec<PublicKey>,
}

impl Trust {
    /// Trusts the artifact with this seal, 64 hexadecimal digits as printed by `sardonyx inspect`. Errors: E0001.
    pub fn pin(seal: &str) -> Result<Trust> {
        let pin = blake3::Hash::from_hex(seal.trim()).map_err(|_| {
            Error::user("E0001", format!("{:?} is not the seal of an artifact", brief(seal)))
                .help("write the 64 hexadecimal digits that `sardonyx inspect` prints as `seal`")
        })?;
        Ok(Trust { pins: vec![pin], ..Trust::default() })
    }

    /// Trusts artifacts signed by this public Ed25519 key, given as PEM or as 64 hexadecimal digits in lower case.
    /// Errors: E0001.
    pub fn key(text: &str) -> Result<Trust> {
        Ok(Trust { keys: vec![PublicKey::parse(text)?], ..Trust::default() })
    }

    /// Trusts every file that `self` or `other` trusts.
    pub fn or(mut self, other: Trust) -> Trust {
        self.any |= other.any;
        self.pins.extend(other.pins);
        self.keys.extend(other.keys);
        self
    }

    /// Trusts any file.
    ///
    /// # Safety
    ///
    /// The author of the file can do everything that this process can: its code is executed.
    pub const unsafe fn file() -> Trust {
        Trust { any: true, pins: vec![], keys: vec![] }
    }

    /// Returns whether any file may be loaded, whatever its seal.
    pub fn is_of_any_file(&self) -> bool {
        self.any
    }

    /// Checks that a file with this seal is trusted. Errors: E0409 if it is not.
    pub fn check(&self, seal: &Seal) -> Result<()> {
        let is_signed = seal.signer.is_some_and(|signer| self.keys.contains(&signer));
        if self.any || is_signed || self.pins.contains(&seal.digest) {
            return Ok(());
        }
        let by = match seal.signer {
            Some(signer) => format!("is signed by {signer}"),
            None => "is not signed".into(),
        };
        let wanted = match (self.pins.as_slice(), self.keys.as_slice()) {
            ([], []) => "and the caller trusts nothing",
            (_, []) => "that is not the pinned one",
            ([], _) => "and is trusted by its signature alone",
            _ => "and neither is trusted",
        };
        Err(Error::user("E0409", format!("the artifact has the seal {}, {wanted}; it {by}", seal.digest)))
    }
}

/// Trusts every file that any of the elements trusts.
impl FromIterator<Trust> for Trust {
    fn from_iter<I: IntoIterator<Item = Trust>>(all: I) -> Trust {
        all.into_iter().fold(Trust::default(), Trust::or)
    }
}

impl PublicKey {
    fn parse(text: &str) -> Result<PublicKey> {
        let text = text.trim();
        let key = match hex::<32>(text) {
            Some(bytes) => VerifyingKey::from_bytes(&bytes).ok(),
            None => VerifyingKey::from_public_key_pem(text).ok(),
        };
        key.map(PublicKey).ok_or_else(|| {
            Error::user("E0001", format!("{:?} is not a public key of Ed25519", brief(text))).help(
                "give the PEM that `openssl pkey -in SECRET.pem -pubout` writes, or the 64 digits that `sardonyx inspect` prints",
            )
        })
    }
}

impl SecretKey {
    /// Reads the PEM that `openssl genpkey -algorithm ed25519` writes. Errors: E0001.
    pub fn from_pem(text: &str) -> Result<SecretKey> {
        SigningKey::from_pkcs8_pem(text.trim()).map(SecretKey).map_err(|e| {
            Error::user("E0001", format!("the file has no secret key of Ed25519: {e}"))
                .help("make one with `openssl genpkey -algorithm ed25519 -out SECRET.pem`")
        })
    }

    /// Returns the text that follows the digest in the comment of a signed file: the signer's key and the signature.
    pub(super) fn sign(&self, digest: &blake3::Hash) -> String {
        let signature = self.0.sign(&signed(digest));
        format!("{SIGNATURE}{} {}", PublicKey(self.0.verifying_key()), digits(&signature.to_bytes()))
    }
}

impl Seal {
    /// Returns the seal of a file with this digest; `rest` are the bytes that follow the digest in the archive comment.
    /// `None` if `rest` is neither empty nor a valid signature of the digest.
    pub(super) fn new(digest: blake3::Hash, rest: &[u8]) -> Option<Seal> {
        if rest.is_empty() {
            return Some(Seal { digest, signer: None });
        }
        let text = std::str::from_utf8(rest).ok()?.strip_prefix(SIGNATURE)?;
        let (key, signature) = text.split_once(' ')?;
        let key = VerifyingKey::from_bytes(&hex(key)?).ok()?;
        key.verify_strict(&signed(&digest), &Signature::from_bytes(&hex(signature)?)).ok()?;
        Some(Seal { digest, signer: Some(PublicKey(key)) })
    }
}

fn signed(digest: &blake3::Hash) -> Vec<u8> {
    [SIGNED, digest.as_bytes()].concat()
}

/// Parses `2 * N` hexadecimal digits; only lower case is accepted, so that each signature has a single text.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn brief(text: &str) -> String {
    text.chars().take(40).collect()
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&digits(self.0.as_bytes()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}
