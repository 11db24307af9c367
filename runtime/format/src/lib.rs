//! Files: `.sdx` artifacts, tensors as `.pb`, `.npy` and `.npz`, and atomic writes

pub mod artifact;
pub mod file;
pub mod tensor_io;

pub use artifact::{Artifact, ArtifactWriter, PublicKey, Reading, Seal, SecretKey, Trust, Verify};
