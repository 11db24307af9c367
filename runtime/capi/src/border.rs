//! pointers of the caller  =>  references, strings, structs and slices, or an error that names the argument

use crate::error::sdx_error;
use sardonyx_runtime::{Error, Result};
use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs what a function does; whatever happens becomes its return value.
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

/// A value that a caller holds by a pointer, with a mark before it. The mark tells types apart, and what was freed, as
/// far as that can be seen.
pub trait Handle: Sized {
    const MARK: u64;
    const NAME: &'static str;

    fn give(self, out: *mut *mut Self) {
        let marked = Box::into_raw(Box::new(Marked { mark: Self::MARK, value: self }));
        // SAFETY: `out` has been checked by `result`.
        unsafe { *out = marked.cast() };
    }

    /// SAFETY: null, or a pointer that `give` gave and that was not freed.
    unsafe fn get<'a>(handle: *const Self) -> Result<&'a Self> {
        let marked = handle.cast::<Marked<Self>>();
        check(marked, Self::NAME)?;
        // SAFETY: every handle begins with its mark, and the pointer is aligned.
        match unsafe { marked.cast::<u64>().read() } {
            // SAFETY: it is one of this type.
            mark if mark == Self::MARK => Ok(unsafe { &(*marked).value }),
            _ => Err(wrong(format!("the pointer is to no {}", Self::NAME))),
        }
    }

    /// SAFETY: null, or a pointer that `give` gave, that was not freed, and that nobody uses.
    unsafe fn free(handle: *mut Self) {
        // SAFETY: as this function's.
        if unsafe { Self::get(handle) }.is_ok() {
            // SAFETY: made by `give`.
            let mut owned = unsafe { Box::from_raw(handle.cast::<Marked<Self>>()) };
            owned.mark = 0;
            // A destructor that panics must not end the caller.
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

/// The place of a result, which is null until there is one.
pub fn result<T>(out: *mut *mut T, name: &str) -> Result<()> {
    check(out, name)?;
    // SAFETY: neither null nor misaligned; the caller says that it is a pointer.
    unsafe { out.write(std::ptr::null_mut()) };
    Ok(())
}

/// SAFETY: null, or a pointer to a string that ends with 0 and outlives `'a`.
pub unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    check(text, name)?;
    // SAFETY: as this function's.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| wrong(format!("`{name}` is not UTF-8")))
}

/// Plain data that begins with `struct_bytes`; all zeros are a value of it.
pub unsafe trait Struct: Copy {
    const NAME: &'static str;
}

macro_rules! structs {
    ($($type:ident),*) => { $(
        // SAFETY: `repr(C)`, integers and raw pointers alone, and `struct_bytes` is the first field.
        unsafe impl crate::border::Struct for $type {
            const NAME: &'static str = stringify!($type);
        }
    )* };
}
pub(crate) use structs;

/// Larger than any struct of any version.
const STRUCT_BYTES_MAX: usize = 4096;

/// The number of bytes of the caller's struct.
///
/// SAFETY: null, or a pointer to a struct of as many bytes as its first field says.
unsafe fn struct_bytes<T: Struct>(from: *const T) -> Result<usize> {
    check(from, T::NAME)?;
    // SAFETY: as this function's.
    let bytes = unsafe { from.cast::<usize>().read() };
    match bytes {
        _ if (size_of::<usize>()..=STRUCT_BYTES_MAX).contains(&bytes) => Ok(bytes),
        _ => Err(wrong(format!("`struct_bytes` of `{}` is {bytes}: set it to `sizeof({0})`", T::NAME))),
    }
}

/// A struct of the caller, whose fields are 0 where it has none.
///
/// SAFETY: as `struct_bytes`.
pub unsafe fn read<T: Struct>(from: *const T) -> Result<T> {
    // SAFETY: as this function's.
    let bytes = unsafe { struct_bytes(from) }?;
    // SAFETY: the caller's struct has so many bytes.
    let given = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) };
    if given.iter().skip(size_of::<T>()).any(|b| *b != 0) {
        let message = format!("`{}` has a field that this library does not know", T::NAME);
        return Err(
            Error::user("E0402", message).help("use the library that the program was built for, or a newer one")
        );
    }
    let mut value = MaybeUninit::<T>::zeroed();
    let n = bytes.min(size_of::<T>());
    // SAFETY: both have so many bytes, and any bytes are a value.
    unsafe { std::ptr::copy_nonoverlapping(given.as_ptr(), value.as_mut_ptr().cast::<u8>(), n) };
    // SAFETY: zeros are a value of each field, and so is what was copied.
    Ok(unsafe { value.assume_init() })
}

/// Options, where null stands for the default of all.
///
/// SAFETY: as `struct_bytes`.
pub unsafe fn options<T: Struct>(from: *const T) -> Result<T> {
    match from.is_null() {
        // SAFETY: zeros are a value.
        true => Ok(unsafe { MaybeUninit::zeroed().assume_init() }),
        // SAFETY: as this function's.
        false => unsafe { read(from) },
    }
}

/// Writes what the caller's struct has room for.
///
/// SAFETY: as `struct_bytes`, to memory that may be written.
pub unsafe fn write<T: Struct>(value: T, to: *mut T) -> Result<()> {
    // SAFETY: as this function's.
    let bytes = unsafe { struct_bytes(to) }?;
    let (skip, n) = (size_of::<usize>(), bytes.min(size_of::<T>()));
    let from = (&raw const value).cast::<u8>();
    // SAFETY: both have so many bytes; `struct_bytes` stays the caller's.
    unsafe { std::ptr::copy_nonoverlapping(from.add(skip), to.cast::<u8>().add(skip), n - skip) };
    Ok(())
}

/// Writes a number where the caller wants it.
///
/// SAFETY: null, or a pointer to memory that may be written.
pub unsafe fn write_if<T>(to: *mut T, value: T, name: &str) -> Result<()> {
    if !to.is_null() {
        check(to, name)?;
        // SAFETY: as this function's.
        unsafe { to.write(value) };
    }
    Ok(())
}

/// The structs of an array of the caller: where each is.
///
/// SAFETY: `n` structs of one size, one behind the other.
pub unsafe fn array<T: Struct>(from: *const T, n: usize) -> Result<Vec<*const T>> {
    if n == 0 {
        return Ok(vec![]);
    }
    // SAFETY: there is one at least.
    let bytes = unsafe { struct_bytes(from) }?;
    if !bytes.is_multiple_of(align_of::<T>()) || n > isize::MAX as usize / bytes {
        return Err(wrong(format!("{n} times `{}` of {bytes} bytes are no array", T::NAME)));
    }
    let at: Vec<*const T> = (0..n).map(|i| from.wrapping_byte_add(i * bytes)).collect();
    for (i, &one) in at.iter().enumerate() {
        // SAFETY: the array has so many.
        if unsafe { struct_bytes(one) }? != bytes {
            return Err(wrong(format!("`struct_bytes` of `{}` {i} is another than that of the first", T::NAME)));
        }
    }
    Ok(at)
}

/// Refuses a pointer that cannot be to so many values.
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

/// SAFETY: `n` values, unless it is null.
pub unsafe fn slice<'a, T>(from: *const T, n: usize, name: &str) -> Result<&'a [T]> {
    check_memory(from, n, name)?;
    // SAFETY: as this function's.
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
        // SAFETY: an error of this library, and strings of it.
        unsafe {
            assert_eq!(CStr::from_ptr(sdx_error_code(error)), c"E0901");
            assert_eq!(CStr::from_ptr(sdx_error_message(error)), c"a panic: number 7");
            sdx_error_free(error);
        }
    }
}
