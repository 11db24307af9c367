//! sessions, caches, and flags that cancel calls

use crate::arrays::{self, Input};
use crate::error::{detached, raised, wrong};
use crate::gpu::{GpuArray, on_stream};
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice, PyTuple};
use sardonyx_runtime::{self as runtime, DeviceTensor, Error, RunOptions, SessionOptions, TensorBuffer, TensorView};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

#[pyclass(frozen, module = "sardonyx")]
pub struct Session {
    session: runtime::Session,
    /// The caller's stream, as an address; 0 for one of its own.
    cuda_stream: usize,
}

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
        cuda_stream: Option<usize>,
    ) -> PyResult<Session> {
        let options = SessionOptions::default().threads(threads).pinned(pinned).memory_bytes_max(memory_bytes_max);
        let (options, cuda_stream) = on_stream(options, cuda_stream);
        detached(py, || model.session(&options)).map(|session| Session { session, cuda_stream })
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
        let (targets, on_gpu) = out.map_or(Ok((vec![], vec![])), |out| targets(out, &given))?;
        let mut held = cache.map(Cache::lock).transpose()?;
        let (session, held_cache, result) = (&self.session, held.as_deref_mut(), PyDict::new(py));
        let returned = if on_gpu.is_empty() && !given.iter().any(|input| matches!(input, Input::OnGpu(_))) {
            let views = given.iter().map(Input::view).collect::<PyResult<Vec<TensorView>>>()?;
            let views: Vec<(&str, TensorView)> = names.iter().map(String::as_str).zip(views).collect();
            let buffers = targets.iter().map(|(name, array)| Ok((name.as_str(), arrays::buffer(name, array)?)));
            let mut buffers: Vec<(&str, TensorBuffer)> = buffers.collect::<PyResult<_>>()?;
            let returned = detached(py, || match held_cache {
                Some(cache) => session.run_cached(entry, &views, &mut buffers, cache, &options),
                None => session.run_with(entry, &views, &mut buffers, &options),
            })?;
            for ((name, array), (_, buffer)) in targets.iter().zip(&buffers) {
                result.set_item(name, written(array, buffer.dims())?)?;
            }
            returned
        } else {
            if let Some((name, _)) = targets.first() {
                return Err(wrong(format!(
                    "the array for `{name}` must be in the memory of the GPU, as others of the call"
                )));
            }
            let on_stream = |input: &Input| match input {
                Input::OnGpu(array) => Some(array.for_session_on(self.cuda_stream)),
                Input::Array(..) | Input::Strings(_) => None,
            };
            let tensors: Vec<Option<DeviceTensor>> = given.iter().map(on_stream).collect();
            let inputs = names.iter().zip(&given).zip(&tensors).map(|((name, input), tensor)| match tensor {
                Some(tensor) => Ok((name.as_str(), runtime::Input::Device(tensor))),
                None => Ok((name.as_str(), runtime::Input::Host(input.view()?))),
            });
            let inputs = inputs.collect::<PyResult<Vec<(&str, runtime::Input)>>>()?;
            let outputs = on_gpu.iter().map(|(name, array)| (name.as_str(), array.for_session_on(self.cuda_stream)));
            let mut outputs: Vec<(&str, DeviceTensor)> = outputs.collect();
            let returned = detached(py, || session.run_on_device(entry, &inputs, &mut outputs, held_cache, &options))?;
            for ((name, given), (_, output)) in on_gpu.iter().zip(&outputs) {
                // What has no more than the interface cannot be cut to the output's size.
                let is_whole = given.shape == output.dims() || !given.array.hasattr("reshape")?;
                let array = if is_whole { given.array.clone() } else { written(&given.array, output.dims())? };
                result.set_item(name, array)?;
            }
            returned
        };
        for (name, tensor) in returned {
            result.set_item(name, arrays::array(py, tensor)?)?;
        }
        Ok(result)
    }

    /// Creates an empty cache for `capacity` positions.
    #[pyo3(signature = (capacity, *, entry = "main"))]
    fn cache(&self, capacity: usize, entry: &str) -> PyResult<Cache> {
        self.session.cache(entry, capacity).map(|cache| Cache(Mutex::new(cache))).map_err(raised)
    }

    /// Releases the memory of an idle session, and returns the number of bytes.
    fn trim(&self, py: Python<'_>) -> usize {
        py.detach(|| self.session.trim())
    }

    #[getter]
    fn threads(&self) -> usize {
        self.session.threads()
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

/// Arrays of the host, and of a GPU, to which outputs are written, with the outputs' names.
type Targets<'py> = (Vec<(String, Bound<'py, PyUntypedArray>)>, Vec<(String, GpuArray<'py>)>);

/// Returns the arrays to which outputs are written. Those of the host must not share memory with each other or with
/// inputs; the runtime checks those of a GPU.
fn targets<'py>(out: &Bound<'py, PyDict>, inputs: &[Input<'py>]) -> PyResult<Targets<'py>> {
    let (mut all, mut on_gpu): Targets<'py> = (vec![], vec![]);
    for (name, array) in out.iter() {
        let name: String = name.extract()?;
        match array.cast::<PyUntypedArray>() {
            Ok(array) => all.push((name, array.clone())),
            Err(_) => match GpuArray::new(&name, &array, true)? {
                Some(array) => on_gpu.push((name, array)),
                None => return Err(wrong(format!("`out` has no array for `{name}`"))),
            },
        }
    }
    for (i, (name, array)) in all.iter().enumerate() {
        let others = all[..i].iter().map(|(_, array)| array);
        for other in others.chain(inputs.iter().filter_map(Input::array)) {
            if out.py().import("numpy")?.call_method1("may_share_memory", (array, other))?.is_truthy()? {
                return Err(wrong(format!("the array for `{name}` shares memory with an input or another output")));
            }
        }
    }
    Ok((all, on_gpu))
}

/// Returns the part of the array that a call has written, with the output's dimensions.
fn written<'py>(array: &Bound<'py, PyAny>, dims: &[usize]) -> PyResult<Bound<'py, PyAny>> {
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
