//! sessions, and the flags that cancel calls

use crate::border::{self, Handle, guard, handle, result, structs};
use crate::error::sdx_error;
use crate::model::sdx_model;
use sardonyx_runtime::{Session, SessionOptions};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A session of a model, which runs one call at a time.
pub struct sdx_session {
    pub(crate) session: Session,
}

/// A flag that cancels the calls it is passed to.
pub struct sdx_cancel {
    pub(crate) flag: Arc<AtomicBool>,
}

handle!(sdx_session = b"sdxsessi", sdx_cancel = b"sdxcance");

/// Options of a session. All zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sdx_session_options {
    /// `sizeof(sdx_session_options)`, set by the caller.
    pub struct_bytes: usize,
    /// Number of threads, including the caller's. 0 means 1: no further thread is started.
    pub threads: usize,
    /// Maximum memory of a call in bytes: intermediate values, scratch, outputs and its cache together; 0 for no limit.
    pub memory_bytes_max: usize,
    /// If nonzero, each thread except the caller's is bound to its own processor.
    pub pinned: i32,
    /// The stream (`CUstream`) of the model's GPU that calls work on, after what the caller has enqueued there; NULL for
    /// one of the session's own. It belongs to the model's context, remains until the session is freed, and is not
    /// captured during calls. A call waits for it before it returns.
    pub cuda_stream: *mut c_void,
}

structs!(sdx_session_options);

/// Creates a session of a model. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_session_new(
    model: *const sdx_model,
    options: *const sdx_session_options,
    session: *mut *mut sdx_session,
) -> *mut sdx_error {
    guard(|| {
        result(session, "session")?;
        // SAFETY: the caller passes null or a live handle, and null or options of the size in their `struct_bytes`.
        let (model, given) = unsafe { (sdx_model::get(model)?, border::options(options)?) };
        let limit = Some(given.memory_bytes_max).filter(|max| *max > 0);
        let options = SessionOptions::default().threads(given.threads.max(1)).pinned(given.pinned != 0);
        // SAFETY: the caller guarantees that the stream remains.
        let options = unsafe { options.memory_bytes_max(limit).cuda_stream(given.cuda_stream) };
        let made = model.model.session(&options)?;
        sdx_session { session: made }.give(session);
        Ok(())
    })
}

/// Releases the memory of an idle session; the next call allocates it again. The number of bytes is written to `bytes`,
/// which may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_session_trim(session: *const sdx_session, bytes: *mut usize) -> *mut sdx_error {
    guard(|| {
        // SAFETY: the caller passes null or a live handle.
        let given_back = unsafe { sdx_session::get(session) }?.session.trim();
        // SAFETY: the caller passes null or a pointer to a writable `size_t`.
        unsafe { border::write_if(bytes, given_back, "bytes") }
    })
}

/// Frees the session, in which no call may be running. Its model and caches remain valid. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_session_free(session: *mut sdx_session) {
    // SAFETY: the caller passes null or a live handle, which it no longer uses.
    unsafe { sdx_session::free(session) }
}

/// Creates a flag that is not set. The caller frees it with `sdx_cancel_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_cancel_new(cancel: *mut *mut sdx_cancel) -> *mut sdx_error {
    guard(|| {
        result(cancel, "cancel")?;
        sdx_cancel { flag: Arc::default() }.give(cancel);
        Ok(())
    })
}

/// Sets or clears the flag, on any thread. While it is set (nonzero), running and future calls with it fail with E0306.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_cancel_set(cancel: *const sdx_cancel, cancelled: i32) {
    // SAFETY: the caller passes null or a live handle.
    if let Ok(cancel) = unsafe { sdx_cancel::get(cancel) } {
        cancel.flag.store(cancelled != 0, Ordering::Relaxed);
    }
}

/// Frees the flag. Calls that it was passed to continue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_cancel_free(cancel: *mut sdx_cancel) {
    // SAFETY: the caller passes null or a live handle, which it no longer uses; calls share the flag by an `Arc`.
    unsafe { sdx_cancel::free(cancel) }
}
