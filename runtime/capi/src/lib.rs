//! `sardonyx.h`: the runtime's models, sessions, caches and errors as C functions; panics do not unwind into the caller
//!
//! cbindgen generates the header from these files, comments included; `tests/embedding.rs` checks that it is current.

#![allow(non_camel_case_types)] // The names follow C conventions.
#![allow(clippy::missing_safety_doc)] // The header states once what applies to all functions.

mod border;
pub mod cache;
pub mod call;
pub mod error;
pub mod model;
pub mod pool;
pub mod session;
pub mod tensor;

use std::ffi::c_char;

/// Returns the version of the library, for example `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn sdx_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns the version of this interface. It changes together with the soname; mere additions do not change it.
#[unsafe(no_mangle)]
pub extern "C" fn sdx_abi_version() -> u32 {
    0
}
