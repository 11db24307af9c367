//! calls of many threads for a fixed number of sessions, in order of arrival

use crate::border::{self, Handle, guard, handle, read, result, structs, write, wrong};
use crate::call::{run_options, sdx_call};
use crate::error::sdx_error;
use crate::model::{entry_name, sdx_model};
use crate::tensor::{Given, sdx_outputs};
use sardonyx_runtime::{PoolOptions, Request, Result, SessionOptions, SessionPool};
use std::ffi::c_void;
use std::ptr::null_mut;

/// A fixed number of sessions, which share a queue.
pub struct sdx_pool {
    pool: SessionPool,
}

handle!(sdx_pool = b"sdx_pool");

/// All zeros are the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sdx_pool_options {
    pub struct_bytes: usize,
    /// Each runs one call at a time; 0 for as many as the processors that this process may use allow.
    pub sessions: usize,
    /// Calls that may wait while every session is busy; 0 for 128.
    pub waiting_max: usize,
    /// Threads of each session; 0 is 1.
    pub threads: usize,
    /// Bytes that each call may take, as in `sdx_session_options`; 0 for no limit.
    pub memory_bytes_max: usize,
}

/// Counts at one moment. Every call that was ever submitted is in one of them; those of `served` that failed are in `failed` too.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sdx_pool_statistics {
    pub struct_bytes: usize,
    pub waiting: u64,
    pub running: u64,
    pub served: u64,
    pub failed: u64,
    /// Not accepted, because as many waited as may, or after `sdx_pool_finish`.
    pub refused: u64,
    /// Not computed, because their time was over while they waited.
    pub expired: u64,
    /// Not computed, because they were cancelled while they waited.
    pub cancelled: u64,
}

structs!(sdx_pool_options, sdx_pool_statistics);

/// The pointer that a caller wants back in its own function.
struct User(*mut c_void);

// SAFETY: the caller says that its function may be called by any thread with it.
unsafe impl Send for User {}

impl User {
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_pool_new(
    model: *const sdx_model,
    options: *const sdx_pool_options,
    pool: *mut *mut sdx_pool,
) -> *mut sdx_error {
    guard(|| {
        result(pool, "pool")?;
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

/// Accepts a call and returns at once. `done` is called once, by a thread of the pool, with an error or with outputs, the other
/// being NULL; it frees what it gets, should be short, and must not unwind. Inputs are copied before this function returns, and time in the queue
/// is part of `timeout_ns`. The call has neither buffers nor a cache. Where the call is not accepted, the error says why (E0308:
/// too many wait), and `done` is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_pool_submit(
    pool: *const sdx_pool,
    call: *const sdx_call,
    done: Option<unsafe extern "C" fn(user: *mut c_void, error: *mut sdx_error, outputs: *mut sdx_outputs)>,
    user: *mut c_void,
) -> *mut sdx_error {
    guard(|| {
        let pool = &unsafe { sdx_pool::get(pool) }?.pool;
        let request = unsafe { request(&read(call)?) }?;
        let (done, user) = (done.ok_or_else(|| wrong("`done` is null"))?, User(user));
        pool.submit(request, move |result| {
            let (mut error, mut outputs) = (null_mut(), null_mut());
            match result {
                Ok(returned) => sdx_outputs::from(returned).give(&mut outputs),
                Err(e) => error = sdx_error::give(e),
            }
            // SAFETY: the caller's function, with its own pointer.
            unsafe { done(user.pointer(), error, outputs) };
        })
    })
}

/// SAFETY: what the call says of its memory is true.
unsafe fn request(call: &sdx_call) -> Result<Request> {
    if call.n_buffers > 0 || !call.cache.is_null() {
        return Err(wrong("a call of a pool has neither buffers nor a cache"));
    }
    // SAFETY: as this function's.
    let (entry, options, given) = unsafe {
        (entry_name(call.entry)?, run_options(call, true)?, Given::new((call.inputs, call.n_inputs), (null_mut(), 0))?)
    };
    let inputs = given.inputs.iter().map(|(name, view)| Ok((*name, view.to_tensor()?))).collect::<Result<Vec<_>>>()?;
    Ok(Request::new(inputs).entry(entry).options(options))
}

/// Fills in `statistics`, whose `struct_bytes` the caller has set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_pool_statistics_get(
    pool: *const sdx_pool,
    statistics: *mut sdx_pool_statistics,
) -> *mut sdx_error {
    guard(|| {
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
        unsafe { write(found, statistics) }
    })
}

/// Gives the memory of idle sessions back to the system; the next call of each takes it anew. `bytes` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_pool_trim(pool: *const sdx_pool, bytes: *mut usize) -> *mut sdx_error {
    guard(|| {
        let given_back = unsafe { sdx_pool::get(pool) }?.pool.trim();
        unsafe { border::write_if(bytes, given_back, "bytes") }
    })
}

/// Refuses calls from now on, and returns when all that were accepted are computed and answered. Not from `done`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_pool_finish(pool: *const sdx_pool) -> *mut sdx_error {
    guard(|| unsafe { sdx_pool::get(pool) }?.pool.finish())
}

/// Calls that run end as usual, those that wait are answered with E0309; all are answered when this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_pool_free(pool: *mut sdx_pool) {
    unsafe { sdx_pool::free(pool) }
}
