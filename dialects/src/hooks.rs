//! What `cpp/Dialects.cpp` calls: normalising dimensions, verifying operations. A panic must not cross into C++.

use crate::mlir::{Operation, owned};
use mlir_sys::{MlirOperation, MlirStringCallback, MlirStringRef};
use sardonyx_runtime::Dim;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[unsafe(no_mangle)]
extern "C" fn sardonyx_normalize_dim(text: MlirStringRef, say: MlirStringCallback, data: *mut c_void) -> bool {
    let parsed = catch_unwind(|| Dim::parse(&owned(text)));
    let (ok, answer) = match parsed {
        Ok(Ok(dim)) => (true, dim.to_string()),
        Ok(Err(e)) => (false, e.message),
        Err(_) => (false, "the dimension cannot be read".into()),
    };
    if let Some(say) = say {
        unsafe { say(MlirStringRef { data: answer.as_ptr().cast(), length: answer.len() }, data) };
    }
    ok
}

#[unsafe(no_mangle)]
extern "C" fn sardonyx_verify(op: MlirOperation) -> bool {
    let op = Operation(op);
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
