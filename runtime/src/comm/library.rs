//! names in a shared library  =>  its functions, if this machine has the library

use std::ffi::{CStr, CString, c_void};

/// Defines a struct `Functions` with functions of a library that return an error code, 0 for success.
macro_rules! functions {
    ($($name:ident: $symbol:literal ($($arg:ty),*);)*) => {
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($arg),*) -> std::ffi::c_int,)*
        }

        impl Functions {
            pub fn load(library: *mut std::ffi::c_void) -> std::result::Result<Functions, &'static str> {
                Ok(Functions {
                    $($name: {
                        type Function = unsafe extern "C" fn($($arg),*) -> std::ffi::c_int;
                        let found = $crate::comm::library::symbol(library, concat!($symbol, "\0")).ok_or($symbol)?;
                        // SAFETY: the function of this name has these parameters in every version of the library.
                        unsafe { std::mem::transmute::<*mut std::ffi::c_void, Function>(found) }
                    },)*
                })
            }
        }
    };
}
pub(super) use functions;

/// Loads the library that the environment variable `variable` names; if it is not set, the first of `names` that loads.
/// Returns the handle and the name of the library, or why the last one that was tried did not load.
pub fn open(names: &[&str], variable: &str) -> std::result::Result<(*mut c_void, String), String> {
    let given = std::env::var(variable).ok();
    let names: Vec<&str> = given.as_deref().map_or_else(|| names.to_vec(), |name| vec![name]);
    let mut why = String::new();
    for name in names {
        let Ok(path) = CString::new(name) else { continue };
        // SAFETY: runs the initializers of a library that is meant to be loaded. The symbols are global, because the
        // library's plugins need them.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if !library.is_null() {
            return Ok((library, name.to_string()));
        }
        // SAFETY: the text lives until the next call of the loader.
        let error = unsafe { libc::dlerror() };
        if !error.is_null() {
            // SAFETY: as above.
            why = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
        }
    }
    Err(why)
}

/// Returns the address of a symbol. `name` must end with a zero byte.
pub fn symbol(library: *mut c_void, name: &str) -> Option<*mut c_void> {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
    // SAFETY: the library stays open until the process ends.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
