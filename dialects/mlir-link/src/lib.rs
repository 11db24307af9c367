//! An empty crate whose build script makes `-lMLIR-C` resolvable (see `build.rs`).
