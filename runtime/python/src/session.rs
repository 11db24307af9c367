//! sessions, caches, and flags that cancel calls

use crate::arrays::{self, Input};
use crate::error::{detached, raised, wrong};
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice, PyTuple};
use sardonyx_runtime::{self as runtime, Error, RunOptions, SessionOptions, TensorBuffer, TensorView};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

#[pyclass(frozen, module = "sardonyx")]
pub struct Session(runtime::Session);

#[pyclass(frozen, module = "sardonyx")]
#[derive(Default)]
pub struct Cancel(Arc<AtomicBool>);

#[pyclass(frozen, module = "sardonyx")]
pub struct Cache(Mutex<runtime::Cache<'static>>);

impl Session {
    pub fn open(
        py: Python<'_>,
        model: &runtime::Model,
        threads: usize,
        pinned: bool,
        memory_bytes_max: Option<usize>,
    ) -> PyResult<Session> {
        let options = SessionOptions::default().threads(threads).pinned(pinned).memory_bytes_max(memory_bytes_max);
        detached(py, || model.session(&options)).map(Session)
    }
}

#[pymethods]
impl Session {
    #[pyo3(signature = (inputs, outputs = None, *, entry = "main", out = None, cache = None, timeout = None, cancel = None))]
    #[allow(clippy::too_many_arguments)] // One argument per keyword of a call.
    fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyDict>,
        outputs: Option<Vec<String>>,
        entry: &str,
        out: Option<&Bound<'py, PyDict>>,
        cache: Option<&Cache>,
        timeout: Option<f64>,
        cancel: Option<&Cancel>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let options = run_options(outputs, timeout, cancel)?;
        let (names, given) = gathered(inputs)?;
        let views = given.iter().map(Input::view).collect::<PyResult<Vec<TensorView>>>()?;
        let views: Vec<(&str, TensorView)> = names.iter().map(String::as_str).zip(views).collect();
        let targets = out.map_or(Ok(vec![]), |out| targets(out, &given))?;
        let buffers = targets.iter().map(|(name, array)| Ok((name.as_str(), arrays::buffer(name, array)?)));
        let mut buffers: Vec<(&str, TensorBuffer)> = buffers.collect::<PyResult<_>>()?;
        let mut held = cache.map(Cache::lock).transpose()?;
        let (session, held_cache) = (&self.0, held.as_deref_mut());
        let returned = detached(py, || match held_cache {
            Some(cache) => session.run_cached(entry, &views, &mut buffers, cache, &options),
            None => session.run_with(entry, &views, &mut buffers, &options),
        })?;
        let result = PyDict::new(py);
        for ((name, array), (_, buffer)) in targets.iter().zip(&buffers) {
            result.set_item(name, written(array, buffer.dims())?)?;
        }
        for (name, tensor) in returned {
            result.set_item(name, arrays::array(py, tensor)?)?;
        }
        Ok(result)
    }

    /// Creates an empty cache for `capacity` positions.
    #[pyo3(signature = (capacity, *, entry = "main"))]
    fn cache(&self, capacity: usize, entry: &str) -> PyResult<Cache> {
        self.0.cache(entry, capacity).map(|cache| Cache(Mutex::new(cache))).map_err(raised)
    }

    /// Releases the memory of an idle session, and returns the number of bytes.
    fn trim(&self, py: Python<'_>) -> usize {
        py.detach(|| self.0.trim())
    }

    #[getter]
    fn threads(&self) -> usize {
        self.0.threads()
    }
}

/// The names of the inputs, and the value of each.
pub fn gathered<'py>(inputs: &Bound<'py, PyDict>) -> PyResult<(Vec<String>, Vec<Input<'py>>)> {
    let (mut names, mut given) = (vec![], vec![]);
    for (name, value) in inputs.iter() {
        let name: String = name.extract()?;
        given.push(Input::new(&name, &value)?);
        names.push(name);
    }
    Ok((names, given))
}

pub fn run_options(
    outputs: Option<Vec<String>>,
    timeout: Option<f64>,
    cancel: Option<&Cancel>,
) -> PyResult<RunOptions> {
    let mut options = RunOptions::default().cancel(cancel.map(|cancel| cancel.0.clone()));
    if let Some(names) = outputs {
        options = options.outputs(names);
    }
    if let Some(seconds) = timeout {
        let time = Duration::try_from_secs_f64(seconds).map_err(|_| wrong(format!("timeout is {seconds}")))?;
        options = options.deadline(Instant::now().checked_add(time));
    }
    Ok(options)
}

/// Returns the arrays to which outputs are written. They must not share memory with each other or with inputs.
fn targets<'py>(
    out: &Bound<'py, PyDict>,
    inputs: &[Input<'py>],
) -> PyResult<Vec<(String, Bound<'py, PyUntypedArray>)>> {
    let one = |(name, array): (Bound<'py, PyAny>, Bound<'py, PyAny>)| {
        let name: String = name.extract()?;
        let array = array.cast_into().map_err(|_| wrong(format!("`out` has no array for `{name}`")))?;
        Ok((name, array))
    };
    let all: Vec<(String, Bound<'py, PyUntypedArray>)> = out.iter().map(one).collect::<PyResult<_>>()?;
    for (i, (name, array)) in all.iter().enumerate() {
        let others = all[..i].iter().map(|(_, array)| array);
        for other in others.chain(inputs.iter().filter_map(Input::array)) {
            if out.py().import("numpy")?.call_method1("may_share_memory", (array, other))?.is_truthy()? {
                return Err(wrong(format!("the array for `{name}` shares memory with an input or another output")));
            }
        }
    }
    Ok(all)
}

/// Returns the part of the array that a call has written, with the output's dimensions.
fn written<'py>(array: &Bound<'py, PyUntypedArray>, dims: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    let n = dims.iter().product::<usize>() as isize;
    let front = array.call_method1("reshape", (-1,))?.get_item(PySlice::new(array.py(), 0, n, 1))?;
    front.call_method1("reshape", (PyTuple::new(array.py(), dims)?,))
}

#[pymethods]
impl Cancel {
    #[new]
    fn new() -> Cancel {
        Cancel::default()
    }

    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Cache {
    fn lock(&self) -> PyResult<MutexGuard<'_, runtime::Cache<'static>>> {
        match self.0.try_lock() {
            Ok(cache) => Ok(cache),
            // A call that fails leaves the cache as it was, so a poisoned lock is harmless.
            Err(TryLockError::Poisoned(cache)) => Ok(cache.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let error = Error::user("E0301", "the cache is in use by another call");
                Err(raised(error.help("give each sequence a cache of its own, or wait for the call")))
            }
        }
    }
}

#[pymethods]
impl Cache {
    fn __len__(&self) -> PyResult<usize> {
        Ok(self.lock()?.len())
    }

    #[getter]
    fn capacity(&self) -> PyResult<usize> {
        Ok(self.lock()?.capacity())
    }

    #[getter]
    fn nbytes(&self) -> PyResult<usize> {
        Ok(self.lock()?.bytes())
    }

    fn truncate(&self, len: usize) -> PyResult<()> {
        self.lock()?.truncate(len);
        Ok(())
    }

    fn clear(&self) -> PyResult<()> {
        self.truncate(0)
    }

    /// Returns a copy of the filled positions of a state, named by its input or its output.
    fn array<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let tensor = self.lock()?.tensor(name).map_err(raised)?;
        arrays::array(py, tensor)
    }
}
