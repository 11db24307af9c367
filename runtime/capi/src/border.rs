//! the caller's pointers  =>  references, strings, structs and slices, or an error that names the argument

use crate::error::sdx_error;
use sardonyx_runtime::{Error, Result};
use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of an exported function and converts its result, or its panic, to the function's return value.
pub fn guard(run: impl FnOnce() -> Result<()>) -> *mut sdx_error {
    let done = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(Error::defect(format!("a panic: {}", text.unwrap_or("without a text"))))
    });
    done.map_or_else(sdx_error::give, |()| std::ptr::null_mut())
}

pub fn wrong(message: impl Into<String>) -> Box<Error> {
    Error::user("E0001", message).help("`sardonyx.h` says what each argument is")
}

/// A value that the caller holds through a pointer. A mark is stored in front of the value; it tells types apart and
/// detects most freed handles.
pub trait Handle: Sized {
    const MARK: u64;
    const NAME: &'static str;

    fn give(self, out: *mut *mut Self) {
        let marked = Box::into_raw(Box::new(Marked { mark: Self::MARK, value: self }));
        // SAFETY: `out` has been checked by `result`.
        unsafe { *out = marked.cast() };
    }

    /// SAFETY: `handle` is null, or a pointer returned by `give` that has not been freed.
    unsafe fn get<'a>(handle: *const Self) -> Result<&'a Self> {
        let marked = handle.cast::<Marked<Self>>();
        check(marked, Self::NAME)?;
        // SAFETY: every handle begins with its mark, and the pointer is aligned.
        match unsafe { marked.cast::<u64>().read() } {
            // SAFETY: the mark shows that the value is of this type.
            mark if mark == Self::MARK => Ok(unsafe { &(*marked).value }),
            _ => Err(wrong(format!("the pointer is to no {}", Self::NAME))),
        }
    }

    /// SAFETY: `handle` is null, or a pointer returned by `give` that has not been freed and is not in use.
    unsafe fn free(handle: *mut Self) {
        // SAFETY: the caller guarantees the same.
        if unsafe { Self::get(handle) }.is_ok() {
            // SAFETY: the pointer was allocated by `give`.
            let mut owned = unsafe { Box::from_raw(handle.cast::<Marked<Self>>()) };
            owned.mark = 0;
            // A destructor that panics must not abort the caller's process.
            let _ = catch_unwind(AssertUnwindSafe(move || drop(owned)));
        }
    }
}

#[repr(C)]
struct Marked<T> {
    mark: u64,
    value: T,
}

macro_rules! handle {
    ($($type:ident = $mark:literal),*) => { $(
        impl crate::border::Handle for $type {
            const MARK: u64 = u64::from_le_bytes(*$mark);
            const NAME: &'static str = stringify!($type);
        }
    )* };
}
pub(crate) use handle;

fn check<T>(pointer: *const T, name: &str) -> Result<()> {
    if pointer.is_null() {
        return Err(wrong(format!("`{name}` is null")));
    }
    if !pointer.is_aligned() {
        return Err(wrong(format!("`{name}` is not aligned")));
    }
    Ok(())
}

/// Checks the pointer through which a result is returned, and sets the result to null until there is one.
pub fn result<T>(out: *mut *mut T, name: &str) -> Result<()> {
    check(out, name)?;
    // SAFETY: `out` is neither null nor misaligned; the caller guarantees that it points to a pointer.
    unsafe { out.write(std::ptr::null_mut()) };
    Ok(())
}

/// SAFETY: `text` is null, or points to a NUL-terminated string that outlives `'a`.
pub unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    check(text, name)?;
    // SAFETY: the caller guarantees it.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| wrong(format!("`{name}` is not UTF-8")))
}

/// A plain C struct whose first field is `struct_bytes`. All zeros must be a valid value.
pub unsafe trait Struct: Copy {
    const NAME: &'static str;
}

macro_rules! structs {
    ($($type:ident),*) => { $(
        // SAFETY: it is `repr(C)`, has only integers and raw pointers, and `struct_bytes` is its first field.
        unsafe impl crate::border::Struct for $type {
            const NAME: &'static str = stringify!($type);
        }
    )* };
}
pub(crate) use structs;

/// Upper bound of `struct_bytes`, larger than any struct of any version.
const STRUCT_BYTES_MAX: usize = 4096;

/// Returns the size of the caller's struct in bytes.
///
/// SAFETY: `from` is null, or points to a struct whose size is the value of its first field.
unsafe fn struct_bytes<T: Struct>(from: *const T) -> Result<usize> {
    check(from, T::NAME)?;
    // SAFETY: the caller guarantees it.
    let bytes = unsafe { from.cast::<usize>().read() };
    match bytes {
        _ if (size_of::<usize>()..=STRUCT_BYTES_MAX).contains(&bytes) => Ok(bytes),
        _ => Err(wrong(format!("`struct_bytes` of `{}` is {bytes}: set it to `sizeof({0})`", T::NAME))),
    }
}

/// Reads a struct of the caller. Fields beyond the end of the caller's struct are 0. Error E0402 if the caller's struct
/// has a nonzero field that this library does not know.
///
/// SAFETY: as for `struct_bytes`.
pub unsafe fn read<T: Struct>(from: *const T) -> Result<T> {
    // SAFETY: the caller guarantees it.
    let bytes = unsafe { struct_bytes(from) }?;
    // SAFETY: the caller's struct has `bytes` bytes.
    let given = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) };
    if given.iter().skip(size_of::<T>()).any(|b| *b != 0) {
        let message = format!("`{}` has a field that this library does not know", T::NAME);
        return Err(
            Error::user("E0402", message).help("use the library that the program was built for, or a newer one")
        );
    }
    let mut value = MaybeUninit::<T>::zeroed();
    let n = bytes.min(size_of::<T>());
    // SAFETY: both structs have at least `n` bytes, and any bytes are a valid value.
    unsafe { std::ptr::copy_nonoverlapping(given.as_ptr(), value.as_mut_ptr().cast::<u8>(), n) };
    // SAFETY: both zeros and the copied bytes are valid values of each field.
    Ok(unsafe { value.assume_init() })
}

/// Reads an options struct; null means that all options have their defaults.
///
/// SAFETY: as for `struct_bytes`.
pub unsafe fn options<T: Struct>(from: *const T) -> Result<T> {
    match from.is_null() {
        // SAFETY: all zeros are a valid value.
        true => Ok(unsafe { MaybeUninit::zeroed().assume_init() }),
        // SAFETY: the caller guarantees it.
        false => unsafe { read(from) },
    }
}

/// Writes the fields that the caller's struct has, except `struct_bytes`.
///
/// SAFETY: as for `struct_bytes`, and the memory is writable.
pub unsafe fn write<T: Struct>(value: T, to: *mut T) -> Result<()> {
    // SAFETY: the caller guarantees it.
    let bytes = unsafe { struct_bytes(to) }?;
    let (skip, n) = (size_of::<usize>(), bytes.min(size_of::<T>()));
    let from = (&raw const value).cast::<u8>();
    // SAFETY: both structs have at least `n` bytes; the caller's `struct_bytes` is left as it is.
    unsafe { std::ptr::copy_nonoverlapping(from.add(skip), to.cast::<u8>().add(skip), n - skip) };
    Ok(())
}

/// Writes a result to `to`, unless the caller passed null.
///
/// SAFETY: `to` is null, or points to writable memory.
pub unsafe fn write_if<T>(to: *mut T, value: T, name: &str) -> Result<()> {
    if !to.is_null() {
        check(to, name)?;
        // SAFETY: the caller guarantees it.
        unsafe { to.write(value) };
    }
    Ok(())
}

/// Returns the addresses of the structs in an array of the caller.
///
/// SAFETY: `from` points to `n` contiguous structs of equal size.
pub unsafe fn array<T: Struct>(from: *const T, n: usize) -> Result<Vec<*const T>> {
    if n == 0 {
        return Ok(vec![]);
    }
    // SAFETY: the array has at least one struct.
    let bytes = unsafe { struct_bytes(from) }?;
    if !bytes.is_multiple_of(align_of::<T>()) || n > isize::MAX as usize / bytes {
        return Err(wrong(format!("{n} times `{}` of {bytes} bytes are no array", T::NAME)));
    }
    let at: Vec<*const T> = (0..n).map(|i| from.wrapping_byte_add(i * bytes)).collect();
    for (i, &one) in at.iter().enumerate() {
        // SAFETY: the array has `n` structs.
        if unsafe { struct_bytes(one) }? != bytes {
            return Err(wrong(format!("`struct_bytes` of `{}` {i} is another than that of the first", T::NAME)));
        }
    }
    Ok(at)
}

/// Refuses a pointer that cannot point to `n` values of type `T`.
pub fn check_memory<T>(from: *const T, n: usize, name: &str) -> Result<()> {
    if n == 0 {
        return Ok(());
    }
    check(from, name)?;
    let bytes = n.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize);
    match bytes.is_some_and(|bytes| from.addr().checked_add(bytes).is_some()) {
        true => Ok(()),
        false => Err(wrong(format!("`{name}` cannot have {n} elements"))),
    }
}

/// SAFETY: `from` is null, or points to `n` values.
pub unsafe fn slice<'a, T>(from: *const T, n: usize, name: &str) -> Result<&'a [T]> {
    check_memory(from, n, name)?;
    // SAFETY: the caller guarantees it.
    Ok(if n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(from, n) } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{sdx_error_code, sdx_error_free, sdx_error_message};

    extern "C" fn panics() -> *mut sdx_error {
        guard(|| panic!("number {}", 7))
    }

    #[test]
    fn a_panic_inside_is_a_defect_to_the_caller() {
        let error = panics();
        // SAFETY: the error and its strings come from this library.
        unsafe {
            assert_eq!(CStr::from_ptr(sdx_error_code(error)), c"E0901");
            assert_eq!(CStr::from_ptr(sdx_error_message(error)), c"a panic: number 7");
            sdx_error_free(error);
        }
    }
}
