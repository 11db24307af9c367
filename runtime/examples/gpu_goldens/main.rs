//! gpu_goldens FILE.json  =>  the bits that the first GPU computes where the PTX ISA leaves the result open
//!
//! The simulator must match these files: `cargo test -p sardonyx-runtime --test goldens` replays
//! testdata/goldens/*.json.

mod cases;

use cases::{Case, PTX, PTX_SM_90A, cases, to_json};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use std::ffi::{CString, c_void};

fn main() {
    let Some(file) = std::env::args().nth(1) else {
        eprintln!("usage: gpu_goldens FILE.json");
        std::process::exit(2);
    };
    // SAFETY: only checks whether the driver's library can be loaded.
    if !unsafe { sys::is_culib_present() } {
        eprintln!("error: there is no CUDA driver on this machine");
        std::process::exit(2);
    }
    // SAFETY: the entries of both PTX texts read and write exactly the words that their case declares.
    let recorded = unsafe { record() }.map_err(|e| format!("the GPU's driver: {e:?}"));
    let written =
        recorded.and_then(|text| std::fs::write(&file, text).map_err(|e| format!("cannot write {file}: {e}")));
    if let Err(message) = written {
        eprintln!("error: {message}");
        std::process::exit(2);
    }
}

/// # Safety
/// The entries of both PTX texts must be those that [`cases`] names, with its shapes.
unsafe fn record() -> Result<String, DriverError> {
    result::init()?;
    let gpu = result::device::get(0)?;
    let name = result::device::get_name(gpu)?;
    // SAFETY: the device exists; its context is retained until the process ends.
    unsafe {
        let context = result::primary_ctx::retain(gpu)?;
        result::ctx::set_current(context)?;
    }
    let major = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    // SAFETY: the device exists.
    let has_warpgroups = unsafe { result::device::get_attribute(gpu, major)? } == 9;
    let load = |ptx: &str| {
        let text = CString::new(ptx).expect("PTX has no zero byte");
        // SAFETY: the text ends with a zero byte.
        unsafe { result::module::load_data(text.as_ptr().cast::<c_void>()) }
    };
    let (module, of_warpgroups) = (load(PTX)?, has_warpgroups.then(|| load(PTX_SM_90A)).transpose()?);
    let mut answers = vec![];
    for case in cases() {
        let Some(module) = (if case.is_of_warpgroups() { of_warpgroups } else { Some(module) }) else { continue };
        // SAFETY: the caller guarantees it.
        let outputs = unsafe { answer(module, &case)? };
        answers.push((case, outputs));
    }
    Ok(to_json(&name, &answers))
}

/// # Safety
/// The module's entry must read the case's inputs and write its outputs, and nothing else.
unsafe fn answer(module: sys::CUmodule, case: &Case) -> Result<Vec<u32>, DriverError> {
    let mut outputs = vec![0_u32; case.n_outputs()];
    let entry = CString::new(case.entry.as_str()).expect("names have no zero byte");
    // SAFETY: both buffers have the sizes that the entry uses, and live until the copy back, which waits for the
    // kernel.
    unsafe {
        let function = result::module::get_function(module, entry)?;
        let (mut from, mut to) =
            (result::malloc_sync(4 * case.inputs.len())?, result::malloc_sync(4 * case.n_outputs())?);
        result::memcpy_htod_sync(from, &case.inputs)?;
        let mut arguments = [(&raw mut from).cast::<c_void>(), (&raw mut to).cast::<c_void>()];
        let (grid, block) = ((case.blocks(), 1, 1), (case.threads(), 1, 1));
        result::launch_kernel(function, grid, block, 0, std::ptr::null_mut(), &mut arguments)?;
        result::memcpy_dtoh_sync(&mut outputs, to)?;
        result::free_sync(from)?;
        result::free_sync(to)?;
    }
    Ok(outputs)
}
