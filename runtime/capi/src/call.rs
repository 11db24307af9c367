//! one call: its inputs, outputs, cache, time limit and cancel flag

use crate::border::{Handle, guard, read, result, slice, structs, text};
use crate::cache::sdx_cache;
use crate::error::sdx_error;
use crate::model::entry_name;
use crate::session::{sdx_cancel, sdx_session};
use crate::tensor::{Given, sdx_buffer, sdx_outputs, sdx_tensor};
use sardonyx_runtime::{Input, Result, RunOptions};
use std::ffi::c_char;
use std::time::{Duration, Instant};

/// The arguments of a call. Fields that are 0 or NULL are not used.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sdx_call {
    /// `sizeof(sdx_call)`, set by the caller.
    pub struct_bytes: usize,
    /// Name of the entry point; NULL for `main`.
    pub entry: *const c_char,
    /// Array of the inputs, in any order.
    pub inputs: *const sdx_tensor,
    /// Length of `inputs`.
    pub n_inputs: usize,
    /// Memory of the caller to which outputs are written.
    pub buffers: *mut sdx_buffer,
    /// Length of `buffers`.
    pub n_buffers: usize,
    /// Names of the outputs to return in addition to those with a buffer; NULL for all.
    pub outputs: *const *const c_char,
    /// Length of `outputs`; ignored if `outputs` is NULL.
    pub n_outputs: usize,
    /// Holds the states of the entry point, which are then neither inputs nor outputs. The call appends its positions.
    pub cache: *mut sdx_cache,
    /// The call fails with E0305 after this time, which includes waiting for another call of the session. 0 for no
    /// limit.
    pub timeout_ns: u64,
    /// The call fails with E0306 once this flag is set.
    pub cancel: *const sdx_cancel,
}

structs!(sdx_call);

/// SAFETY: the pointers and sizes in `call` are valid.
pub unsafe fn run_options(call: &sdx_call, returns: bool) -> Result<RunOptions> {
    let mut options = RunOptions::default();
    if call.timeout_ns > 0 {
        options = options.deadline(Instant::now().checked_add(Duration::from_nanos(call.timeout_ns)));
    }
    if !call.cancel.is_null() {
        // SAFETY: `cancel` is a live handle.
        options = options.cancel(unsafe { sdx_cancel::get(call.cancel) }?.flag.clone());
    }
    if !call.outputs.is_null() {
        // SAFETY: `outputs` points to `n_outputs` pointers.
        let names = unsafe { slice(call.outputs, call.n_outputs, "sdx_call.outputs") }?;
        // SAFETY: each of these pointers is null or a C string.
        let names = names.iter().map(|name| unsafe { text(*name, "sdx_call.outputs") });
        options = options.outputs(names.collect::<Result<Vec<&str>>>()?);
    }
    Ok(if returns { options } else { options.outputs([""; 0]) })
}

/// Runs an entry point. Outputs without a buffer are returned in `outputs`, which the caller frees; if `outputs` is
/// NULL, only the outputs with a buffer are written.
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
        // SAFETY: the caller passes null or a live handle, and null or a call of the size in its `struct_bytes`.
        let (session, call) = unsafe { (&sdx_session::get(session)?.session, read(call)?) };
        // SAFETY: the pointers and sizes in the call are valid until this function returns.
        let (entry, options, mut given) = unsafe {
            let (entry, options) = (entry_name(call.entry)?, run_options(&call, !outputs.is_null())?);
            (entry, options, Given::new((call.inputs, call.n_inputs), (call.buffers, call.n_buffers))?)
        };
        let ports = &session.model().entry(entry)?.outputs;
        let rank_of = |name: &str| ports.iter().find(|port| port.name == name).map(|port| port.dims.len());
        // SAFETY: the pointers and sizes that were passed to `Given::new` are still valid.
        unsafe { given.check_dims(rank_of) }?;
        let mut cache = match call.cache.is_null() {
            true => None,
            // SAFETY: the cache is a live handle.
            false => Some(unsafe { sdx_cache::get(call.cache) }?.lock()?),
        };
        let returned = match (given.uses_device(), cache.as_deref_mut()) {
            (true, cache) => {
                let on_host = given.inputs.iter().map(|(name, view)| (*name, Input::Host(*view)));
                let on_device = given.device_inputs.iter().map(|(name, tensor)| (*name, Input::Device(tensor)));
                let inputs: Vec<(&str, Input)> = on_host.chain(on_device).collect();
                session.run_on_device(entry, &inputs, &mut given.device_buffers, cache, &options)?
            }
            (false, None) => session.run_with(entry, &given.inputs, &mut given.buffers, &options)?,
            (false, Some(cache)) => session.run_cached(entry, &given.inputs, &mut given.buffers, cache, &options)?,
        };
        // SAFETY: the structs of the caller that were passed to `Given::new` are valid until this function returns.
        unsafe { given.write_dims() }?;
        if !outputs.is_null() {
            sdx_outputs::from(returned).give(outputs);
        }
        Ok(())
    })
}
