//! loading, and what a model says of its entry points

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

/// All zeros are the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sdx_load_options {
    pub struct_bytes: usize,
    /// `cpu`, `cuda:0` …; NULL for `cpu`.
    pub device: *const c_char,
    /// The weights whose hash is compared at load: 0 all of them, 1 none, 2 nor the rest of the file.
    pub verify: i32,
    /// Other than 0: the artifact's own test is left out.
    pub no_selftest: i32,
    /// Other than 0: the file is trusted whatever it is. Its code is executed and can do all that the process can. Without
    /// this, `pin` or `key` says what may be loaded.
    pub trust: i32,
    /// The seal of the artifact, 64 hexadecimal digits as `sardonyx inspect` prints them, or NULL.
    pub pin: *const c_char,
    /// The public key of Ed25519 that has signed it, as PEM or 64 hexadecimal digits, or NULL.
    pub key: *const c_char,
    /// Other than 0: the file is read into memory, and not mapped.
    pub copied: i32,
}

/// An input or an output of an entry point. Strings live as long as the model.
#[repr(C)]
pub struct sdx_port {
    pub name: *const c_char,
    /// `SDX_F32` …
    pub dtype: i32,
    pub rank: u32,
    /// Expressions of symbols and numbers: `batch`, `past + seq`, `384`.
    pub dims: *const *const c_char,
    /// 1 where a cache can hold it from call to call.
    pub is_state: i32,
}

/// A dimension that is open.
#[repr(C)]
pub struct sdx_symbol {
    pub name: *const c_char,
    /// The smallest and the largest value that a call may have; `hi` is -1 where there is none.
    pub lo: i64,
    pub hi: i64,
    /// 1 where it follows from the values of the inputs, and is known when a call ends.
    pub is_data: i32,
}

/// Bytes that a call takes beside the weights.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sdx_call_bytes {
    pub struct_bytes: usize,
    /// 1 where a call takes just this, 0 where it takes at most this, as sizes are read from data.
    pub is_exact: i32,
    /// 0 where nothing bounds what a call takes; the other fields are 0 then.
    pub is_bounded: i32,
    pub arena: usize,
    pub outputs: usize,
    /// Results of the host between launches.
    pub made: usize,
    pub scratch_per_thread: usize,
}

structs!(sdx_load_options, sdx_call_bytes);

/// An entry point as C sees it; the structs point into what is beside them.
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

// SAFETY: the pointers are into strings of the same value, which nothing changes.
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

/// SAFETY: as `options`.
unsafe fn load_options(given: *const sdx_load_options) -> Result<LoadOptions> {
    // SAFETY: as this function's, here and below.
    let given = unsafe { options(given) }?;
    let mut trust = Trust::default();
    if given.trust != 0 {
        // SAFETY: the caller says so.
        trust = unsafe { Trust::file() };
    }
    if !given.pin.is_null() {
        trust = trust.or(Trust::pin(unsafe { text(given.pin, "sdx_load_options.pin") }?)?);
    }
    if !given.key.is_null() {
        trust = trust.or(Trust::key(unsafe { text(given.key, "sdx_load_options.key") }?)?);
    }
    let mut load = LoadOptions::new(trust).selftest(given.no_selftest == 0).copied(given.copied != 0);
    if !given.device.is_null() {
        load = load.device(unsafe { text(given.device, "sdx_load_options.device") }?.parse()?);
    }
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

/// Loads a file, which must not be changed in place while it is loaded unless it is copied. `options` say what is trusted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_model_load(
    path: *const c_char,
    options: *const sdx_load_options,
    model: *mut *mut sdx_model,
) -> *mut sdx_error {
    guard(|| {
        result(model, "model")?;
        let (path, options) = unsafe { (text(path, "path")?, load_options(options)?) };
        give(Model::load(path, &options)?, model);
        Ok(())
    })
}

/// Memory of the caller that is given back when the last that needs it is freed.
struct Foreign {
    data: *const u8,
    bytes: usize,
    release: Option<unsafe extern "C" fn(*mut c_void)>,
    user: *mut c_void,
}

// SAFETY: the memory is only read; the header says that any thread may call `release`.
unsafe impl Send for Foreign {}

impl AsRef<[u8]> for Foreign {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: checked by `sdx_model_from_bytes`; the caller leaves it as it is until it is released.
        unsafe { std::slice::from_raw_parts(self.data, self.bytes) }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the caller's function, called once.
            unsafe { release(self.user) };
        }
    }
}

/// Loads the bytes of a file. With `release` they are used in place, and `release(user)` is called, by any thread, when
/// nobody needs them any more, which may be before this function returns; without it they are copied. `name` stands for
/// the file in messages; it and `options` may be NULL.
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
        // First of all, so that the memory is given back whatever is wrong.
        let given = unsafe { slice(data.cast::<u8>(), bytes, "data") };
        let foreign = Foreign { data: data.cast(), bytes, release, user };
        result(model, "model")?;
        let given = given?;
        let name = if name.is_null() { "(bytes)" } else { unsafe { text(name, "name") }? };
        let options = unsafe { load_options(options) }?;
        let file = match (release, bytes) {
            (None, _) | (_, 0) => Bytes::copy_from_slice(given),
            (Some(_), _) => Bytes::from_owner(foreign),
        };
        give(Model::from_bytes(file, name, &options)?, model);
        Ok(())
    })
}

/// The sessions and caches of the model live on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_model_free(model: *mut sdx_model) {
    unsafe { sdx_model::free(model) }
}

/// The number of entry points.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_model_entry_count(model: *const sdx_model) -> usize {
    unsafe { sdx_model::get(model) }.map_or(0, |model| model.entries.len())
}

/// SAFETY: as `Handle::get`.
unsafe fn entry<'a>(model: *const sdx_model, entry: usize) -> Option<&'a Entry> {
    // SAFETY: as this function's.
    unsafe { sdx_model::get(model) }.ok()?.entries.get(entry)
}

/// The name of one of them, `main` first; NULL where there are not so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_model_entry_name(model: *const sdx_model, index: usize) -> *const c_char {
    unsafe { entry(model, index) }.map_or(null(), |entry| entry.name.as_ptr())
}

/// An input of an entry point; NULL where there are not so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_model_input(model: *const sdx_model, entry_index: usize, index: usize) -> *const sdx_port {
    unsafe { entry(model, entry_index) }.and_then(|e| e.inputs.get(index)).map_or(null(), |text| &*text.port)
}

/// An output of an entry point; NULL where there are not so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_model_output(
    model: *const sdx_model,
    entry_index: usize,
    index: usize,
) -> *const sdx_port {
    unsafe { entry(model, entry_index) }.and_then(|e| e.outputs.get(index)).map_or(null(), |text| &*text.port)
}

/// A symbol in the dimensions of an entry point; NULL where there are not so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdx_model_symbol(
    model: *const sdx_model,
    entry_index: usize,
    index: usize,
) -> *const sdx_symbol {
    unsafe { entry(model, entry_index) }.and_then(|e| e.symbols.get(index)).map_or(null(), |(_, symbol)| &**symbol)
}

/// The bytes that a call takes where `n` symbols of its inputs have these sizes; fills in `call`, whose `struct_bytes` the
/// caller has set. `entry` may be NULL for `main`.
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
        let (model, entry) = unsafe { (sdx_model::get(model)?, entry_name(entry)?) };
        let (names, sizes) = unsafe { (slice(names, n, "names")?, slice(sizes, n, "sizes")?) };
        let names = names.iter().map(|name| unsafe { text(*name, "names") }).collect::<Result<Vec<&str>>>()?;
        let sizes: Vec<(&str, i64)> = names.into_iter().zip(sizes.iter().copied()).collect();
        let found = model.model.call_bytes(entry, &sizes)?;
        let mut bytes = unsafe { options::<sdx_call_bytes>(null()) }?;
        if let Some(found) = found {
            bytes.is_bounded = 1;
            bytes.is_exact = found.is_exact.into();
            (bytes.arena, bytes.outputs, bytes.made) = (found.arena, found.outputs, found.made);
            bytes.scratch_per_thread = found.scratch;
        }
        unsafe { write(bytes, call) }
    })
}

/// SAFETY: as `text`.
pub unsafe fn entry_name<'a>(entry: *const c_char) -> Result<&'a str> {
    // SAFETY: as this function's.
    if entry.is_null() { Ok("main") } else { unsafe { text(entry, "entry") } }
}
