//! `sardonyx._native`: models, sessions, caches and pools as Python objects; NumPy arrays are read and written in place
//!
//! Python's global interpreter lock is released while a model is loaded and while a call runs. `sardonyx/__init__.pyi`
//! declares the interface with its types.

mod arrays;
mod error;
mod gpu;
mod model;
mod pool;
mod session;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<model::Model>()?;
    module.add_class::<model::EntryPoint>()?;
    module.add_class::<model::Port>()?;
    module.add_class::<model::Symbol>()?;
    module.add_class::<model::CallBytes>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<session::Cache>()?;
    module.add_class::<session::Cancel>()?;
    module.add_class::<pool::Pool>()?;
    module.add_class::<arrays::Owner>()?;
    module.add_function(wrap_pyfunction!(arrays::_input_address, module)?)
}
