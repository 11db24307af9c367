//! Handles of MLIR's objects, with the reading and building functions that the levels need
//!
//! A handle is a pointer that is valid for its lifetime. Handles of contexts, attributes and types have the lifetime of
//! a borrowed context; those of operations, blocks and values have the lifetime of a borrowed module. Objects that are
//! being built have an owner ([`NewOperation`], [`NewBlock`]). Objects in a module are destroyed only by [`Module`],
//! which borrows the module exclusively.
//!
//! # Safety
//! One argument covers the unsafe blocks of this module; those that need another have a comment of their own.
//!
//! * MLIR's C functions require objects that exist and are of the kind that the function's name says. Handles are made
//!   by [`Handle::from_raw`], whose callers promise this, or from the result of such a function. A result that may be
//!   null for valid arguments is checked first.
//! * Arrays are passed as the length and pointer of one slice that outlives the call. MLIR copies what it keeps.
//! * An object is destroyed only by its owner, when no handle can refer to it, and when no operation outside of it uses
//!   its values: [`NewBlock::push`] accepts only operations whose operands the block or an enclosing block defines.
//! * Handles are not `Send`, so a context is used by one thread.

mod attr;
mod operation;

pub use attr::{Attr, Context, Type};
pub use operation::{Block, Module, NewBlock, NewOperation, Operand, Operation, Parts, Val};

use mlir_sys::MlirStringRef;
use std::ffi::c_void;
use std::marker::PhantomData;

/// A pointer `R` of MLIR's C API to an object that exists for `'a`.
#[derive(Clone, Copy)]
pub struct Handle<'a, R> {
    raw: R,
    owner: PhantomData<&'a ()>,
}

impl<R> Handle<'_, R> {
    /// Wraps a pointer.
    ///
    /// # Safety
    /// The object exists, and is neither moved nor destroyed for as long as the handle's lifetime lasts.
    pub unsafe fn from_raw(raw: R) -> Self {
        Handle { raw, owner: PhantomData }
    }
}

impl<'a, R> Handle<'a, R> {
    /// Wraps an object that exists as long as this one.
    fn wrap<S>(&self, raw: S) -> Handle<'a, S> {
        Handle { raw, owner: PhantomData }
    }
}

fn string_ref(s: &str) -> MlirStringRef {
    MlirStringRef { data: s.as_ptr().cast(), length: s.len() }
}

/// Copies a string that MLIR lends. Names from a model are UTF-8; other bytes are converted lossily.
///
/// # Safety
/// The bytes exist during the call.
pub(crate) unsafe fn copied(s: MlirStringRef) -> String {
    // SAFETY: the caller's promise. The data pointer of an empty string may be null, which is invalid for a slice.
    let bytes = if s.length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(s.data.cast::<u8>(), s.length) } };
    String::from_utf8_lossy(bytes).into_owned()
}

/// Collects what one of MLIR's printers writes.
fn printed(print: impl FnOnce(unsafe extern "C" fn(MlirStringRef, *mut c_void), *mut c_void)) -> String {
    unsafe extern "C" fn append(text: MlirStringRef, to: *mut c_void) {
        // SAFETY: `to` is the string below, which nothing else uses while MLIR prints; `text` exists during the call.
        unsafe { (*to.cast::<String>()).push_str(&copied(text)) }
    }
    let mut text = String::new();
    print(append, (&raw mut text).cast());
    text
}

#[cfg(test)]
mod tests;
