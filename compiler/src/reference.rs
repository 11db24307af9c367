//! model.onnx  =>  the outputs of its `sdx` graph by the interpreter, which compiled code is compared with

use crate::import::{DimRange, ParamStore};
use crate::module::graph_after;
use crate::onnx::read_model;
use crate::selftest;
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_dialects::interp;
use sardonyx_dialects::sdx::Graph;
use sardonyx_passes::Options;
use std::collections::BTreeMap;
use std::path::Path;

/// The `sdx` graph of a model with its parameters, ready to be interpreted.
pub struct Reference {
    graph: Graph,
    params: ParamStore,
}

impl Reference {
    /// Reads a model and lowers it up to the stage of the self-test. Errors name the file.
    pub fn read(model: &Path, dims: &BTreeMap<String, DimRange>) -> Result<Reference> {
        let read = || {
            let model = read_model(model)?;
            let (graph, params) = graph_after(&model, dims, selftest::STAGE, |_| Options::default())?;
            Ok(Reference { graph, params })
        };
        read().map_err(|e: Box<Error>| e.file(model.display().to_string()))
    }

    /// Interprets one call. Returns the outputs in the model's order.
    pub fn run(&self, inputs: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>> {
        interp::run(&self.graph, &self.params, inputs)
    }
}
