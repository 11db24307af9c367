//! calls of many threads for a fixed number of sessions, each answered by a `concurrent.futures.Future`

use crate::arrays::{self, Input};
use crate::error::{detached, raised};
use crate::session::{Cancel, gathered, run_options};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use sardonyx_runtime::{self as runtime, Error, Outputs, PoolOptions, Request, Result, SessionOptions, SessionPool};

/// Its pool is dropped without the interpreter's lock, for which callbacks may wait.
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
        // Where there is no interpreter any more, nobody waits for its lock, and the pool ends with this object.
        Python::try_attach(|py| py.detach(|| drop(pool.take())));
    }
}

#[pymethods]
impl Pool {
    /// Copies the inputs, and returns at once.
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
        // From now on it cannot be cancelled any more: whoever wants that gives a `Cancel`.
        future.call_method0("set_running_or_notify_cancel")?;
        let answered = future.clone().unbind();
        let pool = self.pool()?;
        detached(py, move || {
            pool.submit(request, move |result| {
                // Whoever has ended the interpreter waits for nothing.
                let _ = Python::try_attach(|py| answer(py, &answered, result));
            })
        })?;
        Ok(future)
    }

    /// Gives the memory of idle sessions back to the system; returns the number of bytes.
    fn trim(&self, py: Python<'_>) -> PyResult<usize> {
        let pool = self.pool()?;
        Ok(py.detach(|| pool.trim()))
    }

    /// Refuses calls from now on, and returns when all that were accepted are answered.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let pool = self.pool()?;
        detached(py, || pool.finish())
    }

    #[getter]
    fn sessions(&self) -> PyResult<usize> {
        Ok(self.pool()?.sessions())
    }

    /// Counts at this moment, by name.
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

/// Tells the future what has come of its call.
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
    // A future that somebody else has answered needs nothing more.
    let _ = told;
}
