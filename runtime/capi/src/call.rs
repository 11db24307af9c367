//! one call: inputs, outputs, a cache, and when to give it up

use crate::border::{Handle, guard, read, result, slice, structs, text};
use crate::cache::sdx_cache;
use crate::error::sdx_error;
use crate::model::entry_name;
use crate::session::{sdx_cancel, sdx_session};
use crate::tensor::{Given, sdx_buffer, sdx_outputs, sdx_tensor};
use sardonyx_runtime::{Result, RunOptions};
use std::ffi::c_char;
use std::time::{Duration, Instant};

/// A call. What is 0 or NULL is left out.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sdx_call {
    pub struct_bytes: usize,
    /// NULL for `main`.
    pub entry: *const c_char,
    pub inputs: *const sdx_tensor,
    pub n_inputs: usize,
    /// Outputs that go to memory of the caller.
    pub buffers: *mut sdx_buffer,
    pub n_buffers: usize,
    /// Names of the outputs that the call returns beside those; NULL for all.
    pub outputs: *const *const c_char,
    pub n_outputs: usize,
    /// Holds the states of the entry point, which are neither inputs nor outputs then; the call appends to it.
    pub cache: *mut sdx_cache,
    /// E0305 when so much time has passed; waiting for another call of the session counts. 0 for no limit.
    pub timeout_ns: u64,
    /// E0306 when it is set.
    pub cancel: *const sdx_cancel,
}

structs!(sdx_call);

/// SAFETY: what the call says of its memory is true.
pub unsafe fn run_options(call: &sdx_call, returns: bool) -> Result<RunOptions> {
    let mut options = RunOptions::default();
    if call.timeout_ns > 0 {
        options = options.deadline(Instant::now().checked_add(Duration::from_nanos(call.timeout_ns)));
    }
    if !call.cancel.is_null() {
        // SAFETY: as this function's, here and below.
        options = options.cancel(unsafe { sdx_cancel::get(call.cancel) }?.flag.clone());
    }
    if !call.outputs.is_null() {
        let names = unsafe { slice(call.outputs, call.n_outputs, "sdx_call.outputs") }?;
        let names = names.iter().map(|name| unsafe { text(*name, "sdx_call.outputs") });
        options = options.outputs(names.collect::<Result<Vec<&str>>>()?);
    }
    Ok(if returns { options } else { options.outputs([""; 0]) })
}

/// Runs an entry point. The outputs without a buffer go to `outputs`, which the caller frees; where that is NULL, only
/// buffers are written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_run(
    session: *const sdx_session,
    call: *const sdx_call,
    outputs: *mut *mut sdx_outputs,
) -> *mut sdx_error {
    guard(|| {
        if !outputs.is_null() {
            result(outputs, "outputs")?;
        }
        let session = &unsafe { sdx_session::get(session) }?.session;
        let call = unsafe { read(call) }?;
        let entry = unsafe { entry_name(call.entry) }?;
        let options = unsafe { run_options(&call, !outputs.is_null()) }?;
        let mut given = unsafe { Given::new((call.inputs, call.n_inputs), (call.buffers, call.n_buffers)) }?;
        let returned = match call.cache.is_null() {
            true => session.run_with(entry, &given.inputs, &mut given.buffers, &options)?,
            false => {
                let mut cache = unsafe { sdx_cache::get(call.cache) }?.lock()?;
                session.run_cached(entry, &given.inputs, &mut given.buffers, &mut cache, &options)?
            }
        };
        unsafe { given.write_dims() }?;
        if !outputs.is_null() {
            sdx_outputs::from(returned).give(outputs);
        }
        Ok(())
    })
}
