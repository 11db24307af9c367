//! loading models, and querying their entry points

use crate::error::{detached, raised, wrong};
use crate::pool::Pool;
use crate::session::Session;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use sardonyx_runtime::{self as runtime, Bytes, LoadOptions, Trust, Verify};
use std::path::PathBuf;

#[pyclass(frozen, module = "sardonyx")]
pub struct Model(pub runtime::Model);

#[pyclass(frozen, get_all, module = "sardonyx")]
pub struct EntryPoint {
    name: String,
    inputs: Vec<Py<Port>>,
    outputs: Vec<Py<Port>>,
    symbols: Vec<Py<Symbol>>,
}

#[pyclass(frozen, get_all, module = "sardonyx")]
pub struct Port {
    name: String,
    dtype: String,
    dims: Vec<Py<PyAny>>,
    is_state: bool,
}

#[pyclass(frozen, get_all, module = "sardonyx")]
pub struct Symbol {
    name: String,
    lo: i64,
    hi: Option<i64>,
    is_data: bool,
}

#[pyclass(frozen, get_all, module = "sardonyx")]
pub struct CallBytes {
    is_exact: bool,
    arena: usize,
    outputs: usize,
    made: usize,
    scratch_per_thread: usize,
}

/// The content of a `bytes` object, which is kept alive as long as the model needs it.
struct Held {
    _object: Py<PyBytes>,
    start: usize,
    len: usize,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `start` and `len` describe the content of `_object`, which is immutable and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.start), self.len) }
    }
}

#[pymethods]
impl Model {
    #[new]
    #[pyo3(signature = (path_or_bytes, *, pin = None, key = None, trust = false, copy = false, device = "cpu", verify = "full", selftest = true))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        py: Python<'_>,
        path_or_bytes: &Bound<'_, PyAny>,
        pin: Option<&str>,
        key: Option<&str>,
        trust: bool,
        copy: bool,
        device: &str,
        verify: &str,
        selftest: bool,
    ) -> PyResult<Model> {
        let verify = match verify {
            "full" => Verify::Full,
            "lazy" => Verify::Lazy,
            "off" => Verify::Off,
            other => return Err(wrong(format!("verify is {other:?}, not \"full\", \"lazy\" or \"off\""))),
        };
        // SAFETY: with `trust`, the caller accepts that the file's code is executed.
        let any = if trust { unsafe { Trust::file() } } else { Trust::default() };
        let given = pin.map(Trust::pin).into_iter().chain(key.map(Trust::key));
        let trust = any.or(given.collect::<Result<Trust, _>>().map_err(raised)?);
        let device = device.parse().map_err(raised)?;
        let options = LoadOptions::new(trust).copied(copy).device(device).verify(verify).selftest(selftest);
        let model = if let Ok(bytes) = path_or_bytes.cast::<PyBytes>() {
            let data = bytes.as_bytes();
            let held =
                Held { _object: bytes.clone().unbind(), start: data.as_ptr().expose_provenance(), len: data.len() };
            detached(py, || runtime::Model::from_bytes(Bytes::from_owner(held), "(bytes)", &options))
        } else if let Ok(path) = path_or_bytes.extract::<PathBuf>() {
            detached(py, || runtime::Model::load(path, &options))
        } else {
            return Err(PyTypeError::new_err("a model is loaded from a path or from bytes"));
        };
        model.map(Model)
    }

    #[getter]
    fn entry_points(&self, py: Python<'_>) -> PyResult<Vec<EntryPoint>> {
        self.0.entry_points().iter().map(|entry| EntryPoint::new(py, entry)).collect()
    }

    #[getter]
    fn file(&self) -> &str {
        self.0.file()
    }

    /// Name of the program that wrote the artifact.
    #[getter]
    fn producer(&self) -> &str {
        &self.0.manifest().producer
    }

    #[pyo3(signature = (entry = "main", **sizes))]
    fn call_bytes(&self, entry: &str, sizes: Option<&Bound<'_, PyDict>>) -> PyResult<Option<CallBytes>> {
        let sizes: Vec<(String, i64)> = sizes.map_or(Ok(vec![]), |sizes| {
            sizes.iter().map(|(k, v)| Ok((k.extract()?, v.extract()?))).collect::<PyResult<_>>()
        })?;
        let sizes: Vec<(&str, i64)> = sizes.iter().map(|(name, size)| (name.as_str(), *size)).collect();
        let bytes = self.0.call_bytes(entry, &sizes).map_err(raised)?;
        Ok(bytes.map(|b| CallBytes {
            is_exact: b.is_exact,
            arena: b.arena,
            outputs: b.outputs,
            made: b.made,
            scratch_per_thread: b.scratch,
        }))
    }

    #[pyo3(signature = (*, threads = 1, pinned = false, memory_bytes_max = None, cuda_stream = None))]
    fn session(
        &self,
        py: Python<'_>,
        threads: usize,
        pinned: bool,
        memory_bytes_max: Option<usize>,
        cuda_stream: Option<usize>,
    ) -> PyResult<Session> {
        Session::open(py, &self.0, threads, pinned, memory_bytes_max, cuda_stream)
    }

    #[pyo3(signature = (*, sessions = None, threads = 1, waiting_max = 128, memory_bytes_max = None))]
    fn pool(
        &self,
        py: Python<'_>,
        sessions: Option<usize>,
        threads: usize,
        waiting_max: usize,
        memory_bytes_max: Option<usize>,
    ) -> PyResult<Pool> {
        Pool::open(py, &self.0, sessions, (threads, waiting_max, memory_bytes_max))
    }
}

impl EntryPoint {
    fn new(py: Python<'_>, entry: &runtime::EntryPoint) -> PyResult<EntryPoint> {
        let ports =
            |ports: &[runtime::Port]| ports.iter().map(|p| Py::new(py, Port::new(py, p)?)).collect::<PyResult<_>>();
        let symbol =
            |s: &runtime::Symbol| Py::new(py, Symbol { name: s.name.clone(), lo: s.lo, hi: s.hi, is_data: s.is_data });
        Ok(EntryPoint {
            name: entry.name.clone(),
            inputs: ports(&entry.inputs)?,
            outputs: ports(&entry.outputs)?,
            symbols: entry.symbols.iter().map(symbol).collect::<PyResult<_>>()?,
        })
    }
}

impl Port {
    fn new(py: Python<'_>, port: &runtime::Port) -> PyResult<Port> {
        let dim = |d: &runtime::Dim| match d.as_const() {
            Some(size) => Ok(size.into_pyobject(py)?.into_any().unbind()),
            None => Ok(d.to_string().into_pyobject(py)?.into_any().unbind()),
        };
        let dtype = port.dtype.name().to_string();
        let dims = port.dims.iter().map(dim).collect::<PyResult<_>>()?;
        Ok(Port { name: port.name.clone(), dtype, dims, is_state: port.is_state })
    }
}
