//! errors with all their parts, as C strings

use crate::border::{Handle, handle};
use sardonyx_runtime::{Error, ErrorKind};
use std::ffi::{CString, c_char};
use std::ptr::null;

/// Why a call failed.
pub struct sdx_error {
    kind: i32,
    exit_status: i32,
    code: CString,
    message: CString,
    file: Option<CString>,
    node: Option<CString>,
    help: Option<CString>,
    text: CString,
}

handle!(sdx_error = b"sdxerror");

/// An option or an argument is wrong.
pub const SDX_KIND_USAGE: i32 = 1;
/// A file cannot be read or written.
pub const SDX_KIND_FILE: i32 = 2;
/// The model cannot be compiled.
pub const SDX_KIND_MODEL: i32 = 3;
/// The tensors of a call do not match the model, or contradict each other.
pub const SDX_KIND_INPUT: i32 = 4;
/// Memory or threads are not available, or would exceed a limit.
pub const SDX_KIND_RESOURCES: i32 = 5;
/// The call took longer than its time limit. The session can still be used.
pub const SDX_KIND_DEADLINE: i32 = 6;
/// The call was cancelled. The session can still be used.
pub const SDX_KIND_CANCELLED: i32 = 7;
/// A cache has no capacity for more positions.
pub const SDX_KIND_CACHE_FULL: i32 = 8;
/// The artifact is damaged, or computes wrong results.
pub const SDX_KIND_ARTIFACT: i32 = 9;
/// The artifact or a struct has another version.
pub const SDX_KIND_VERSION: i32 = 10;
/// The device or the processor is missing, lacks a feature, or failed.
pub const SDX_KIND_DEVICE: i32 = 11;
/// Some ranks are missing or failed, or there are too many.
pub const SDX_KIND_RANKS: i32 = 12;
/// A comparison failed.
pub const SDX_KIND_CHECK: i32 = 13;
/// A defect in the library.
pub const SDX_KIND_DEFECT: i32 = 14;
/// The queue of a session pool is full.
pub const SDX_KIND_QUEUE_FULL: i32 = 15;
/// A session pool no longer accepts requests.
pub const SDX_KIND_CLOSED: i32 = 16;

fn number(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::Usage => SDX_KIND_USAGE,
        ErrorKind::File => SDX_KIND_FILE,
        ErrorKind::Model => SDX_KIND_MODEL,
        ErrorKind::Input => SDX_KIND_INPUT,
        ErrorKind::Resources => SDX_KIND_RESOURCES,
        ErrorKind::Deadline => SDX_KIND_DEADLINE,
        ErrorKind::Cancelled => SDX_KIND_CANCELLED,
        ErrorKind::CacheFull => SDX_KIND_CACHE_FULL,
        ErrorKind::Artifact => SDX_KIND_ARTIFACT,
        ErrorKind::Version => SDX_KIND_VERSION,
        ErrorKind::Device => SDX_KIND_DEVICE,
        ErrorKind::Ranks => SDX_KIND_RANKS,
        ErrorKind::Check => SDX_KIND_CHECK,
        ErrorKind::Defect => SDX_KIND_DEFECT,
        ErrorKind::QueueFull => SDX_KIND_QUEUE_FULL,
        ErrorKind::Closed => SDX_KIND_CLOSED,
        _ => 0,
    }
}

/// Converts a text to a C string. NUL characters, which would end it, are replaced by U+FFFD.
pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

impl sdx_error {
    /// Moves the error into a new handle, which the C caller frees with `sdx_error_free`.
    pub fn give(error: Box<Error>) -> *mut sdx_error {
        let optional = |part: Option<&str>| part.map(c_string);
        let given = sdx_error {
            kind: number(error.kind()),
            exit_status: error.fault.exit_code(),
            code: c_string(error.code),
            message: c_string(&error.message),
            file: optional(error.file.as_deref()),
            node: optional(error.node.as_deref()),
            help: optional(error.remedy()),
            text: c_string(&error.to_string()),
        };
        let mut out = std::ptr::null_mut();
        Handle::give(given, &mut out);
        out
    }
}

/// SAFETY: as for `Handle::get`.
unsafe fn part(error: *const sdx_error, part: impl Fn(&sdx_error) -> Option<&CString>) -> *const c_char {
    // SAFETY: the caller guarantees it.
    unsafe { sdx_error::get(error) }.ok().and_then(part).map_or(null(), |text| text.as_ptr())
}

/// Returns the error code, for example `E0301`. Codes are stable. The strings of an error live as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_error_code(error: *const sdx_error) -> *const c_char {
    // SAFETY: the caller passes null or a live handle.
    unsafe { part(error, |e| Some(&e.code)) }
}

/// Returns one of `SDX_KIND_…`. Later versions may add kinds; 0 stands for a kind that this header does not have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_error_kind(error: *const sdx_error) -> i32 {
    // SAFETY: the caller passes null or a live handle.
    unsafe { sdx_error::get(error) }.map_or(0, |e| e.kind)
}

/// Returns the description of what is wrong, without code, file, node and help.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_error_message(error: *const sdx_error) -> *const c_char {
    // SAFETY: the caller passes null or a live handle.
    unsafe { part(error, |e| Some(&e.message)) }
}

/// Returns the file that the error is about; NULL if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_error_file(error: *const sdx_error) -> *const c_char {
    // SAFETY: the caller passes null or a live handle.
    unsafe { part(error, |e| e.file.as_ref()) }
}

/// Returns the ONNX node that the error is about; NULL if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_error_node(error: *const sdx_error) -> *const c_char {
    // SAFETY: the caller passes null or a live handle.
    unsafe { part(error, |e| e.node.as_ref()) }
}

/// Returns a suggested remedy; NULL if none is known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_error_help(error: *const sdx_error) -> *const c_char {
    // SAFETY: the caller passes null or a live handle.
    unsafe { part(error, |e| e.help.as_ref()) }
}

/// Returns all parts in several lines, as the commands print them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_error_text(error: *const sdx_error) -> *const c_char {
    // SAFETY: the caller passes null or a live handle.
    unsafe { part(error, |e| Some(&e.text)) }
}

/// Returns an exit code for a program: 1 if a comparison failed, 2 if an input is at fault, 3 for a defect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_error_exit_status(error: *const sdx_error) -> i32 {
    // SAFETY: the caller passes null or a live handle.
    unsafe { sdx_error::get(error) }.map_or(0, |e| e.exit_status)
}

/// Frees the error and its strings. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_error_free(error: *mut sdx_error) {
    // SAFETY: the caller passes null or a live handle, which it no longer uses.
    unsafe { sdx_error::free(error) }
}
