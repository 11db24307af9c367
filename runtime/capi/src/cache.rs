//! caches: the key and value tensors of a decoder, kept between calls

use crate::border::{Handle, guard, handle, result, text, wrong};
use crate::error::sdx_error;
use crate::model::entry_name;
use crate::session::sdx_session;
use crate::tensor::sdx_outputs;
use sardonyx_runtime::{Cache, Error, Result};
use std::ffi::c_char;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// The states of a model (such as keys and values), kept between calls.
pub struct sdx_cache {
    cache: Mutex<Cache<'static>>,
}

handle!(sdx_cache = b"sdxcache");

impl sdx_cache {
    /// Locks the cache for one call. Errors: E0301 if another call is using it.
    pub fn lock(&self) -> Result<MutexGuard<'_, Cache<'static>>> {
        match self.cache.try_lock() {
            Ok(cache) => Ok(cache),
            // A call that fails leaves the cache as it was, so a poisoned lock is harmless.
            Err(TryLockError::Poisoned(cache)) => Ok(cache.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let error = Error::user("E0301", "the cache is in use by another call");
                Err(error.help("give each sequence a cache of its own, or wait for the call"))
            }
        }
    }
}

/// Creates an empty cache for `capacity` positions. It works with any session of the model, and with any entry point
/// that has the same states. `entry` may be NULL for `main`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_cache_new(
    session: *const sdx_session,
    entry: *const c_char,
    capacity: usize,
    cache: *mut *mut sdx_cache,
) -> *mut sdx_error {
    guard(|| {
        result(cache, "cache")?;
        // SAFETY: the caller passes null or a live handle as `session`, and null or a C string as `entry`.
        let (session, entry) = unsafe { (sdx_session::get(session)?, entry_name(entry)?) };
        sdx_cache { cache: Mutex::new(session.session.cache(entry, capacity)?) }.give(cache);
        Ok(())
    })
}

/// Returns the number of filled positions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_cache_len(cache: *const sdx_cache, len: *mut usize) -> *mut sdx_error {
    guard(|| {
        // SAFETY: the caller passes null or a live handle.
        let cache = unsafe { sdx_cache::get(cache) }?.lock()?;
        if len.is_null() || !len.is_aligned() {
            return Err(wrong("`len` is null or not aligned"));
        }
        // SAFETY: `len` was checked above; the caller passes a pointer to a writable `size_t`.
        unsafe { len.write(cache.len()) };
        Ok(())
    })
}

/// Discards the positions from `len` on. After truncation to 0, the next call may have another batch size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_cache_truncate(cache: *const sdx_cache, len: usize) -> *mut sdx_error {
    guard(|| {
        // SAFETY: the caller passes null or a live handle.
        unsafe { sdx_cache::get(cache) }?.lock()?.truncate(len);
        Ok(())
    })
}

/// Returns a copy of the filled positions of one state, named by its input or its output.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_cache_copy(
    cache: *const sdx_cache,
    name: *const c_char,
    outputs: *mut *mut sdx_outputs,
) -> *mut sdx_error {
    guard(|| {
        result(outputs, "outputs")?;
        // SAFETY: the caller passes null or a live handle as `cache`, and null or a C string as `name`.
        let (cache, name) = unsafe { (sdx_cache::get(cache)?, text(name, "name")?) };
        let tensor = cache.lock()?.tensor(name)?;
        sdx_outputs::new([(name.to_string(), tensor)]).give(outputs);
        Ok(())
    })
}

/// Frees the cache, which no call may be using. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_cache_free(cache: *mut sdx_cache) {
    // SAFETY: the caller passes null or a live handle, which it no longer uses.
    unsafe { sdx_cache::free(cache) }
}
