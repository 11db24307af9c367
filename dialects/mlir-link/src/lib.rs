//! Nothing to call: the build script makes `-lMLIR-C` resolvable (see `build.rs`).
