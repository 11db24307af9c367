//! session pools: calls of many threads, each answered by a `concurrent.futures.Future`

use crate::arrays::{self, Input};
use crate::error::{detached, raised};
use crate::session::{Cancel, gathered, run_options};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use sardonyx_runtime::{self as runtime, Error, Outputs, PoolOptions, Request, Result, SessionOptions, SessionPool};

/// The pool is dropped without the interpreter's lock, for which callbacks may be waiting.
#[pyclass(frozen, module = "sardonyx")]
pub struct Pool(Option<SessionPool>);

static FUTURE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

impl Pool {
    pub fn open(
        py: Python<'_>,
        model: &runtime::Model,
        sessions: Option<usize>,
        (threads, waiting_max, memory_bytes_max): (usize, usize, Option<usize>),
    ) -> PyResult<Pool> {
        let session = SessionOptions::default().threads(threads).memory_bytes_max(memory_bytes_max);
        let options = PoolOptions::default().sessions(sessions).waiting_max(waiting_max).session(session);
        detached(py, || model.session_pool(&options)).map(|pool| Pool(Some(pool)))
    }

    fn pool(&self) -> PyResult<&SessionPool> {
        self.0.as_ref().ok_or_else(|| raised(Error::defect("a pool was used after its end")))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let pool = &mut self.0;
        // Without an interpreter, no callback waits for its lock, and the pool is dropped together with this object.
        Python::try_attach(|py| py.detach(|| drop(pool.take())));
    }
}

#[pymethods]
impl Pool {
    /// Submits a call with copies of the inputs, and returns a future at once.
    #[pyo3(signature = (inputs, outputs = None, *, entry = "main", timeout = None, cancel = None))]
    fn submit<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        outputs: Option<Vec<String>>,
        entry: &str,
        timeout: Option<f64>,
        cancel: Option<&Cancel>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = run_options(outputs, timeout, cancel)?;
        let (names, given) = gathered(inputs)?;
        let tensors = given.iter().map(|input| Input::view(input)?.to_tensor().map_err(raised));
        let tensors = tensors.collect::<PyResult<Vec<_>>>()?;
        let request = Request::new(names.into_iter().zip(tensors)).entry(entry).options(options);
        let future = FUTURE.import(py, "concurrent.futures", "Future")?.call0()?;
        // From here on, the future cannot be cancelled; a caller can pass a `Cancel` instead.
        future.call_method0("set_running_or_notify_cancel")?;
        let answered = future.clone().unbind();
        let pool = self.pool()?;
        detached(py, move || {
            pool.submit(request, move |result| {
                // If the interpreter has ended, nothing waits for the answer.
                let _ = Python::try_attach(|py| answer(py, &answered, result));
            })
        })?;
        Ok(future)
    }

    /// Releases the memory of idle sessions, and returns the number of bytes.
    fn trim(&self, py: Python<'_>) -> PyResult<usize> {
        let pool = self.pool()?;
        Ok(py.detach(|| pool.trim()))
    }

    /// Stops accepting calls, and returns once all accepted calls are answered.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let pool = self.pool()?;
        detached(py, || pool.finish())
    }

    #[getter]
    fn sessions(&self) -> PyResult<usize> {
        Ok(self.pool()?.sessions())
    }

    /// Returns a snapshot of the counters, by name.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.pool()?.statistics();
        let all = PyDict::new(py);
        all.set_item("waiting", counts.waiting)?;
        all.set_item("running", counts.running)?;
        all.set_item("served", counts.served)?;
        all.set_item("failed", counts.failed)?;
        all.set_item("refused", counts.refused)?;
        all.set_item("expired", counts.expired)?;
        all.set_item("cancelled", counts.cancelled)?;
        Ok(all)
    }
}

/// Sets the result or the exception of a call's future.
fn answer(py: Python<'_>, future: &Py<PyAny>, result: Result<Outputs>) {
    let arrays = || -> PyResult<Bound<'_, PyDict>> {
        let all = PyDict::new(py);
        for (name, tensor) in result.map_err(raised)? {
            all.set_item(name, arrays::array(py, tensor)?)?;
        }
        Ok(all)
    };
    let told = match arrays() {
        Ok(all) => future.call_method1(py, "set_result", (all,)),
        Err(error) => future.call_method1(py, "set_exception", (error,)),
    };
    // Answering fails if the future has already been answered elsewhere, which needs no handling.
    let _ = told;
}
