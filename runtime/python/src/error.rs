//! an error of the runtime  =>  `sardonyx.Error` with all its parts

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use sardonyx_runtime::{Error, Result};

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Converts an error to the exception that a function of this module raises.
pub fn raised(error: Box<Error>) -> PyErr {
    Python::attach(|py| {
        let parts = (
            error.message.as_str(),
            error.code,
            error.kind().name(),
            error.file.as_deref(),
            error.node.as_deref(),
            error.remedy(),
            error.fault.exit_code(),
            error.to_string(),
        );
        let made = CLASS.import(py, "sardonyx._error", "Error").and_then(|class| class.call1(parts));
        made.map_or_else(|failed| failed, PyErr::from_value)
    })
}

/// Runs a function without holding the interpreter's lock.
pub fn detached<T: Send>(py: Python<'_>, run: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    py.detach(run).map_err(raised)
}

pub fn wrong(message: impl Into<String>) -> PyErr {
    raised(Error::user("E0301", message))
}
