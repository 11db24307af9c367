//! `sardonyx.h`: the runtime's models, sessions, caches and errors behind plain functions; nothing unwinds over them
//!
//! The header is written by cbindgen from these files, comments included; `tests/embedding.rs` compares.

#![allow(non_camel_case_types)] // The names are those of C.
#![allow(clippy::missing_safety_doc)] // The header says once what holds for all functions.

mod border;
pub mod cache;
pub mod call;
pub mod error;
pub mod model;
pub mod pool;
pub mod session;
pub mod tensor;

use std::ffi::c_char;

/// The version of the library: `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn sdx_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The version of this interface. Another one has another soname; what is only added does not change it.
#[unsafe(no_mangle)]
pub extern "C" fn sdx_abi_version() -> u32 {
    0
}
