//! session pools: calls of many threads, run by a fixed number of sessions in order of arrival

use crate::border::{self, Handle, guard, handle, read, result, structs, write, wrong};
use crate::call::{run_options, sdx_call};
use crate::error::sdx_error;
use crate::model::{entry_name, sdx_model};
use crate::tensor::{Given, sdx_outputs};
use sardonyx_runtime::{PoolOptions, Request, Result, SessionOptions, SessionPool};
use std::ffi::c_void;
use std::ptr::null_mut;

/// A fixed number of sessions that share a queue.
pub struct sdx_pool {
    pool: SessionPool,
}

handle!(sdx_pool = b"sdx_pool");

/// Options of a session pool. All zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sdx_pool_options {
    /// `sizeof(sdx_pool_options)`, set by the caller.
    pub struct_bytes: usize,
    /// Number of sessions, each of which runs one call at a time; 0 for as many as the available processors allow.
    pub sessions: usize,
    /// Maximum number of calls that wait while every session is busy; 0 for 128.
    pub waiting_max: usize,
    /// Threads of each session; 0 for 1.
    pub threads: usize,
    /// Maximum memory of a call in bytes, as in `sdx_session_options`; 0 for no limit.
    pub memory_bytes_max: usize,
}

/// A snapshot of counters. Each submitted call is counted once, except that failed calls are in `served` and `failed`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sdx_pool_statistics {
    /// `sizeof(sdx_pool_statistics)`, set by the caller.
    pub struct_bytes: usize,
    /// Accepted calls that wait for a session.
    pub waiting: u64,
    /// Calls that a session is running.
    pub running: u64,
    /// Calls that a session has run, whether they succeeded or failed.
    pub served: u64,
    /// Calls in `served` that failed.
    pub failed: u64,
    /// Calls that were not accepted, because the queue was full or after `sdx_pool_finish`.
    pub refused: u64,
    /// Calls that were not run, because their time limit passed while they waited.
    pub expired: u64,
    /// Calls that were not run, because they were cancelled while they waited.
    pub cancelled: u64,
}

structs!(sdx_pool_options, sdx_pool_statistics);

/// The pointer that is passed back to the caller's function.
struct User(*mut c_void);

// SAFETY: the caller guarantees that its function may be called with this pointer on any thread.
unsafe impl Send for User {}

impl User {
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// Creates a session pool. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_pool_new(
    model: *const sdx_model,
    options: *const sdx_pool_options,
    pool: *mut *mut sdx_pool,
) -> *mut sdx_error {
    guard(|| {
        result(pool, "pool")?;
        // SAFETY: the caller passes null or a live handle, and null or options of the size in their `struct_bytes`.
        let (model, given) = unsafe { (sdx_model::get(model)?, border::options(options)?) };
        let some = |n: usize| Some(n).filter(|n| *n > 0);
        let session = SessionOptions::default().threads(given.threads.max(1));
        let session = session.memory_bytes_max(some(given.memory_bytes_max));
        let options = PoolOptions::default().sessions(some(given.sessions)).session(session);
        let waiting_max = some(given.waiting_max).unwrap_or(options.waiting_max);
        let made = model.model.session_pool(&options.waiting_max(waiting_max))?;
        sdx_pool { pool: made }.give(pool);
        Ok(())
    })
}

/// Submits a call and returns at once. `done` is called exactly once, on a thread of the pool, with either an error or
/// outputs; the other is NULL. `done` must free the one it gets, should be short, and must not unwind. The inputs are
/// copied before this function returns. The time in the queue counts towards `timeout_ns`. The call can have neither
/// buffers nor a cache nor tensors in the memory of a GPU. If the call is not accepted, the error says why (E0308: the
/// queue is full), and `done` is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_pool_submit(
    pool: *const sdx_pool,
    call: *const sdx_call,
    done: Option<unsafe extern "C" fn(user: *mut c_void, error: *mut sdx_error, outputs: *mut sdx_outputs)>,
    user: *mut c_void,
) -> *mut sdx_error {
    guard(|| {
        // SAFETY: the caller passes null or a live handle.
        let pool = &unsafe { sdx_pool::get(pool) }?.pool;
        // SAFETY: the caller passes null, or a call of the size in its `struct_bytes` with valid pointers and sizes.
        let request = unsafe { request(&read(call)?) }?;
        let (done, user) = (done.ok_or_else(|| wrong("`done` is null"))?, User(user));
        pool.submit(request, move |result| {
            let (mut error, mut outputs) = (null_mut(), null_mut());
            match result {
                Ok(returned) => sdx_outputs::from(returned).give(&mut outputs),
                Err(e) => error = sdx_error::give(e),
            }
            // SAFETY: this is the caller's function, called with the caller's pointer.
            unsafe { done(user.pointer(), error, outputs) };
        })
    })
}

/// Returns a request with copies of the call's inputs. SAFETY: the pointers and sizes in `call` are valid.
unsafe fn request(call: &sdx_call) -> Result<Request> {
    if call.n_buffers > 0 || !call.cache.is_null() {
        return Err(wrong("a call of a pool has neither buffers nor a cache"));
    }
    // SAFETY: the caller guarantees that the pointers and sizes in `call` are valid.
    let (entry, options, given) = unsafe {
        (entry_name(call.entry)?, run_options(call, true)?, Given::new((call.inputs, call.n_inputs), (null_mut(), 0))?)
    };
    if given.uses_device() {
        return Err(wrong("a call of a pool has no tensors in the memory of a GPU"));
    }
    let inputs = given.inputs.iter().map(|(name, view)| Ok((*name, view.to_tensor()?))).collect::<Result<Vec<_>>>()?;
    Ok(Request::new(inputs).entry(entry).options(options))
}

/// Reads the counters into `statistics`, whose `struct_bytes` the caller has set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_pool_statistics_get(
    pool: *const sdx_pool,
    statistics: *mut sdx_pool_statistics,
) -> *mut sdx_error {
    guard(|| {
        // SAFETY: the caller passes null or a live handle.
        let counts = unsafe { sdx_pool::get(pool) }?.pool.statistics();
        let found = sdx_pool_statistics {
            struct_bytes: 0,
            waiting: counts.waiting as u64,
            running: counts.running as u64,
            served: counts.served,
            failed: counts.failed,
            refused: counts.refused,
            expired: counts.expired,
            cancelled: counts.cancelled,
        };
        // SAFETY: the caller passes null, or a writable struct of the size in its `struct_bytes`.
        unsafe { write(found, statistics) }
    })
}

/// Releases the memory of idle sessions; their next calls allocate it again. The number of bytes is written to `bytes`,
/// which may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_pool_trim(pool: *const sdx_pool, bytes: *mut usize) -> *mut sdx_error {
    guard(|| {
        // SAFETY: the caller passes null or a live handle.
        let given_back = unsafe { sdx_pool::get(pool) }?.pool.trim();
        // SAFETY: the caller passes null or a pointer to a writable `size_t`.
        unsafe { border::write_if(bytes, given_back, "bytes") }
    })
}

/// Stops accepting calls, and returns once all accepted calls are finished and answered. Must not be called from
/// `done`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_pool_finish(pool: *const sdx_pool) -> *mut sdx_error {
    // SAFETY: the caller passes null or a live handle.
    guard(|| unsafe { sdx_pool::get(pool) }?.pool.finish())
}

/// Frees the pool. Running calls finish, waiting calls are answered with E0309; all are answered when this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_pool_free(pool: *mut sdx_pool) {
    // SAFETY: the caller passes null or a live handle, which it no longer uses.
    unsafe { sdx_pool::free(pool) }
}
