//! loading models, and querying their entry points

use crate::border::{Handle, guard, handle, options, result, slice, structs, text, write, wrong};
use crate::error::{c_string, sdx_error};
use sardonyx_runtime::{Bytes, EntryPoint, LoadOptions, Model, Port, Result, Symbol, Trust, Verify};
use std::ffi::{CString, c_char, c_void};
use std::ptr::null;

/// A loaded, verified artifact, shared by its sessions.
pub struct sdx_model {
    pub(crate) model: Model,
    entries: Vec<Entry>,
}

handle!(sdx_model = b"sdxmodel");

/// Options of loading a model. All zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sdx_load_options {
    /// `sizeof(sdx_load_options)`, set by the caller.
    pub struct_bytes: usize,
    /// `cpu`, `cuda:0` …; NULL for `cpu`.
    pub device: *const c_char,
    /// How much is hashed and compared at load: 0 the whole file, 1 all but the weights, 2 nothing.
    pub verify: i32,
    /// If nonzero, the artifact's self-test is skipped.
    pub no_selftest: i32,
    /// If nonzero, any file is trusted: its code is executed and can do all that the process can. If 0, `pin` or `key`
    /// determines what may be loaded.
    pub trust: i32,
    /// The seal of the artifact: 64 hexadecimal digits as printed by `sardonyx inspect`, or NULL.
    pub pin: *const c_char,
    /// The Ed25519 public key that must have signed the artifact, as PEM or 64 hexadecimal digits, or NULL.
    pub key: *const c_char,
    /// If nonzero, the file is read into memory instead of mapped.
    pub copied: i32,
    /// The context (`CUcontext`) of the GPU that `device` names, which remains until the model and everything made from
    /// it is freed; NULL for the GPU's primary context, which the CUDA runtime uses too.
    pub cuda_context: *mut c_void,
}

/// An input or an output of an entry point. Its strings live as long as the model.
#[repr(C)]
pub struct sdx_port {
    /// Name by which a call passes the input or returns the output.
    pub name: *const c_char,
    /// `SDX_F32` …
    pub dtype: i32,
    /// Length of `dims`; 0 for a scalar.
    pub rank: u32,
    /// Expressions of symbols and numbers, such as `batch`, `past + seq` or `384`.
    pub dims: *const *const c_char,
    /// 1 if a cache can hold this value between calls.
    pub is_state: i32,
}

/// A symbolic dimension: its size may differ between calls.
#[repr(C)]
pub struct sdx_symbol {
    /// Name that occurs in the dimensions of the ports.
    pub name: *const c_char,
    /// The smallest size that a call may have.
    pub lo: i64,
    /// The largest size that a call may have; -1 if there is no maximum.
    pub hi: i64,
    /// 1 if the size depends on the values of the inputs, so that it is known only at the end of a call.
    pub is_data: i32,
}

/// Memory that a call needs in addition to the weights, in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sdx_call_bytes {
    /// `sizeof(sdx_call_bytes)`, set by the caller.
    pub struct_bytes: usize,
    /// 1 if a call needs exactly this much; 0 if this is an upper bound, because some sizes are read from data.
    pub is_exact: i32,
    /// 0 if no upper bound is known; the other fields are 0 then.
    pub is_bounded: i32,
    /// Arena for the intermediate values.
    pub arena: usize,
    /// Sizes of all outputs together.
    pub outputs: usize,
    /// Results that host operations produce between launches.
    pub made: usize,
    /// Scratch memory of each thread of the session.
    pub scratch_per_thread: usize,
}

structs!(sdx_load_options, sdx_call_bytes);

/// An entry point in its C representation. The `sdx_port` and `sdx_symbol` structs point into the strings stored with
/// them.
struct Entry {
    name: CString,
    inputs: Vec<PortText>,
    outputs: Vec<PortText>,
    symbols: Vec<(CString, Box<sdx_symbol>)>,
}

struct PortText {
    _name: CString,
    _dims: Vec<CString>,
    _pointers: Vec<*const c_char>,
    port: Box<sdx_port>,
}

// SAFETY: the pointers point into strings and arrays that the same value owns and never modifies.
unsafe impl Send for sdx_model {}
// SAFETY: as above.
unsafe impl Sync for sdx_model {}

impl PortText {
    fn new(port: &Port) -> PortText {
        let (name, dims) = (c_string(&port.name), port.dims.iter().map(|d| c_string(&d.to_string())));
        let dims: Vec<CString> = dims.collect();
        let pointers: Vec<*const c_char> = dims.iter().map(|d| d.as_ptr()).collect();
        let port = sdx_port {
            name: name.as_ptr(),
            dtype: port.dtype.code(),
            rank: dims.len() as u32,
            dims: pointers.as_ptr(),
            is_state: port.is_state.into(),
        };
        PortText { _name: name, _dims: dims, _pointers: pointers, port: Box::new(port) }
    }
}

impl Entry {
    fn new(entry: &EntryPoint) -> Entry {
        let symbol = |symbol: &Symbol| {
            let name = c_string(&symbol.name);
            let (lo, hi, is_data) = (symbol.lo, symbol.hi.unwrap_or(-1), symbol.is_data.into());
            let symbol = Box::new(sdx_symbol { name: name.as_ptr(), lo, hi, is_data });
            (name, symbol)
        };
        Entry {
            name: c_string(&entry.name),
            inputs: entry.inputs.iter().map(PortText::new).collect(),
            outputs: entry.outputs.iter().map(PortText::new).collect(),
            symbols: entry.symbols.iter().map(symbol).collect(),
        }
    }
}

/// SAFETY: as for `options`.
unsafe fn load_options(given: *const sdx_load_options) -> Result<LoadOptions> {
    // SAFETY: the caller passes null, or options of the size in their `struct_bytes`.
    let given = unsafe { options(given) }?;
    let mut trust = Trust::default();
    if given.trust != 0 {
        // SAFETY: with `trust`, the caller accepts that the file's code is executed.
        trust = unsafe { Trust::file() };
    }
    if !given.pin.is_null() {
        // SAFETY: the caller passes a C string as the pin.
        trust = trust.or(Trust::pin(unsafe { text(given.pin, "sdx_load_options.pin") }?)?);
    }
    if !given.key.is_null() {
        // SAFETY: the caller passes a C string as the key.
        trust = trust.or(Trust::key(unsafe { text(given.key, "sdx_load_options.key") }?)?);
    }
    let mut load = LoadOptions::new(trust).selftest(given.no_selftest == 0).copied(given.copied != 0);
    if !given.device.is_null() {
        // SAFETY: the caller passes a C string as the device.
        load = load.device(unsafe { text(given.device, "sdx_load_options.device") }?.parse()?);
    }
    // SAFETY: the caller keeps the context until the model and everything made from it is freed.
    load = unsafe { load.cuda_context(given.cuda_context) };
    Ok(load.verify(match given.verify {
        0 => Verify::Full,
        1 => Verify::Lazy,
        2 => Verify::Off,
        other => return Err(wrong(format!("`sdx_load_options.verify` is {other}, not 0, 1 or 2"))),
    }))
}

fn give(model: Model, out: *mut *mut sdx_model) {
    let entries = model.entry_points().iter().map(Entry::new).collect();
    Handle::give(sdx_model { model, entries }, out);
}

/// Loads a file. Unless `copied` is set, the file must not be modified in place while the model exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_model_load(
    path: *const c_char,
    options: *const sdx_load_options,
    model: *mut *mut sdx_model,
) -> *mut sdx_error {
    guard(|| {
        result(model, "model")?;
        // SAFETY: the caller passes null or a C string as `path`, and null or valid options.
        let (path, options) = unsafe { (text(path, "path")?, load_options(options)?) };
        give(Model::load(path, &options)?, model);
        Ok(())
    })
}

/// Owner of memory of the caller, which is released when the owner is dropped.
struct Foreign {
    data: *const u8,
    bytes: usize,
    release: Option<unsafe extern "C" fn(*mut c_void)>,
    user: *mut c_void,
}

// SAFETY: the memory is only read; the header says that `release` may be called on any thread.
unsafe impl Send for Foreign {}

impl AsRef<[u8]> for Foreign {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the pointer was checked by `sdx_model_from_bytes`; the caller does not modify the memory before its
        // release.
        unsafe { std::slice::from_raw_parts(self.data, self.bytes) }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: this is the caller's function, and it is called once.
            unsafe { release(self.user) };
        }
    }
}

/// Loads an artifact from memory. With `release`, the bytes are used in place, and `release(user)` is called on any
/// thread once they are no longer needed, which may be before this function returns; without it, they are copied. Error
/// messages use `name` as the file name. `name` and `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_model_from_bytes(
    data: *const c_void,
    bytes: usize,
    release: Option<unsafe extern "C" fn(user: *mut c_void)>,
    user: *mut c_void,
    name: *const c_char,
    options: *const sdx_load_options,
    model: *mut *mut sdx_model,
) -> *mut sdx_error {
    guard(|| {
        // The owner of the memory is created before any error is returned, so that the memory is released whichever
        // argument is wrong.
        // SAFETY: the caller passes `bytes` bytes at `data`, valid until `release` or, without it, for this call.
        let given = unsafe { slice(data.cast::<u8>(), bytes, "data") };
        let foreign = Foreign { data: data.cast(), bytes, release, user };
        result(model, "model")?;
        let given = given?;
        // SAFETY: the caller passes null or a C string as `name`.
        let name = if name.is_null() { "(bytes)" } else { unsafe { text(name, "name") }? };
        // SAFETY: the caller passes null, or options of the size in their `struct_bytes` with valid strings.
        let options = unsafe { load_options(options) }?;
        let file = match (release, bytes) {
            (None, _) | (_, 0) => Bytes::copy_from_slice(given),
            (Some(_), _) => Bytes::from_owner(foreign),
        };
        give(Model::from_bytes(file, name, &options)?, model);
        Ok(())
    })
}

/// Frees the handle. Sessions and caches of the model remain valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_model_free(model: *mut sdx_model) {
    // SAFETY: the caller passes null or a live handle, which it no longer uses.
    unsafe { sdx_model::free(model) }
}

/// Returns the number of entry points.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_model_entry_count(model: *const sdx_model) -> usize {
    // SAFETY: the caller passes null or a live handle.
    unsafe { sdx_model::get(model) }.map_or(0, |model| model.entries.len())
}

/// SAFETY: as for `Handle::get`.
unsafe fn entry<'a>(model: *const sdx_model, entry: usize) -> Option<&'a Entry> {
    // SAFETY: the caller passes null or a live handle.
    unsafe { sdx_model::get(model) }.ok()?.entries.get(entry)
}

/// Returns the name of an entry point, `main` being the first; NULL if `index` is out of range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_model_entry_name(model: *const sdx_model, index: usize) -> *const c_char {
    // SAFETY: the caller passes null or a live handle.
    unsafe { entry(model, index) }.map_or(null(), |entry| entry.name.as_ptr())
}

/// Returns an input of an entry point; NULL if an index is out of range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_model_input(model: *const sdx_model, entry_index: usize, index: usize) -> *const sdx_port {
    // SAFETY: the caller passes null or a live handle.
    unsafe { entry(model, entry_index) }.and_then(|e| e.inputs.get(index)).map_or(null(), |text| &*text.port)
}

/// Returns an output of an entry point; NULL if an index is out of range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_model_output(
    model: *const sdx_model,
    entry_index: usize,
    index: usize,
) -> *const sdx_port {
    // SAFETY: the caller passes null or a live handle.
    unsafe { entry(model, entry_index) }.and_then(|e| e.outputs.get(index)).map_or(null(), |text| &*text.port)
}

/// Returns a symbol of the dimensions of an entry point; NULL if an index is out of range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_model_symbol(
    model: *const sdx_model,
    entry_index: usize,
    index: usize,
) -> *const sdx_symbol {
    // SAFETY: the caller passes null or a live handle.
    unsafe { entry(model, entry_index) }.and_then(|e| e.symbols.get(index)).map_or(null(), |(_, symbol)| &**symbol)
}

/// Computes the memory that a call needs when the `n` symbols in `names` have the sizes in `sizes`. The result is
/// written to `call`, whose `struct_bytes` the caller has set. `entry` may be NULL for `main`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_model_call_bytes(
    model: *const sdx_model,
    entry: *const c_char,
    names: *const *const c_char,
    sizes: *const i64,
    n: usize,
    call: *mut sdx_call_bytes,
) -> *mut sdx_error {
    guard(|| {
        // SAFETY: the caller passes null or a live handle as `model`, and null or a C string as `entry`.
        let (model, entry) = unsafe { (sdx_model::get(model)?, entry_name(entry)?) };
        // SAFETY: the caller passes arrays of `n` elements.
        let (names, sizes) = unsafe { (slice(names, n, "names")?, slice(sizes, n, "sizes")?) };
        // SAFETY: each name is null or a C string.
        let names = names.iter().map(|name| unsafe { text(*name, "names") }).collect::<Result<Vec<&str>>>()?;
        let sizes: Vec<(&str, i64)> = names.into_iter().zip(sizes.iter().copied()).collect();
        let found = model.model.call_bytes(entry, &sizes)?;
        // SAFETY: the pointer is null, for which `options` returns a struct of zeros.
        let mut bytes = unsafe { options::<sdx_call_bytes>(null()) }?;
        if let Some(found) = found {
            bytes.is_bounded = 1;
            bytes.is_exact = found.is_exact.into();
            (bytes.arena, bytes.outputs, bytes.made) = (found.arena, found.outputs, found.made);
            bytes.scratch_per_thread = found.scratch;
        }
        // SAFETY: the caller passes null, or a writable struct of the size in its `struct_bytes`.
        unsafe { write(bytes, call) }
    })
}

/// SAFETY: as for `text`.
pub unsafe fn entry_name<'a>(entry: *const c_char) -> Result<&'a str> {
    // SAFETY: the caller passes null or a C string.
    if entry.is_null() { Ok("main") } else { unsafe { text(entry, "entry") } }
}
