//! Callbacks of `cpp/Dialects.cpp`: normalise dimensions, verify operations. A panic must not cross into C++.

use crate::mlir::{Operation, copied};
use mlir_sys::{MlirOperation, MlirStringCallback, MlirStringRef};
use sardonyx_base::Dim;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[unsafe(no_mangle)]
extern "C" fn sardonyx_normalize_dim(text: MlirStringRef, say: MlirStringCallback, data: *mut c_void) -> bool {
    // SAFETY: MLIR lends the text for the duration of the call.
    let parsed = catch_unwind(|| dimension(&unsafe { copied(text) }));
    let (ok, answer) = match parsed {
        Ok(Ok(normal)) => (true, normal),
        Ok(Err(reason)) => (false, reason),
        Err(_) => (false, "the dimension cannot be read".into()),
    };
    if let Some(say) = say {
        // SAFETY: callback and data belong together, as MLIR passed them; the callback copies the text.
        unsafe { say(MlirStringRef { data: answer.as_ptr().cast(), length: answer.len() }, data) };
    }
    ok
}

/// The normal form of a dimension in a type, or the reason why it is invalid.
fn dimension(text: &str) -> Result<String, String> {
    let dim = Dim::parse(text).map_err(|e| e.message)?;
    if dim.is_overflow() {
        return Err(format!("the dimension `{}` overflows", text.trim()));
    }
    if dim.as_const().is_some_and(|c| c < 0) {
        return Err(format!("the dimension {dim} is negative"));
    }
    match dim.symbols().iter().find_map(crate::sdx::graph::odd_symbol) {
        Some(reason) => Err(reason),
        None => Ok(dim.to_string()),
    }
}

#[unsafe(no_mangle)]
extern "C" fn sardonyx_verify(op: MlirOperation) -> bool {
    // SAFETY: MLIR lends the operation to its verifier for the duration of the call.
    let op = unsafe { Operation::from_raw(op) };
    let verdict = catch_unwind(AssertUnwindSafe(|| crate::verify::verify(op)));
    match verdict {
        Ok(Ok(())) => true,
        Ok(Err(reason)) => {
            op.emit_error(&format!("'{}': {reason}", op.name()));
            false
        }
        Err(_) => {
            op.emit_error(&format!("'{}': the verifier failed", op.name()));
            false
        }
    }
}
