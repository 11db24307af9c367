//! a model  =>  an MLIR module of `onnx` operations; and the `sdx` graph in a module

use crate::import::{DimRange, ParamStore, import};
use crate::onnx::Model;
use crate::pipeline::{self, Watch};
use melior::Context;
use melior::ir::{Location, Module};
use sardonyx_base::{Error, Result};
use sardonyx_dialects::mlir::{self, NewOperation, Operation};
use sardonyx_dialects::sdx::Graph;
use sardonyx_passes::{Options, Rewrites};
use std::collections::BTreeMap;

/// The entry point that every artifact has: the model with all dimensions that `--dim` does not fix left symbolic.
pub const MAIN: &str = "main";

/// Imports a model as a module whose function is named [`MAIN`].
pub fn lower_model<'c>(
    context: &'c Context,
    model: &Model,
    dims: &BTreeMap<String, DimRange>,
) -> Result<(Module<'c>, ParamStore)> {
    let (function, params) = import(context, model, MAIN, dims)?;
    Ok((module_of(context, function)?, params))
}

/// The graph of a model after a stage of the pipeline, and its parameters, from which `options` may be derived.
pub fn graph_after(
    model: &Model,
    dims: &BTreeMap<String, DimRange>,
    stage: &str,
    options: impl FnOnce(&ParamStore) -> Options,
) -> Result<(Graph, ParamStore)> {
    let context = sardonyx_passes::context();
    context.attach_diagnostic_handler(|_| true);
    let (mut module, params) = lower_model(&context, model, dims)?;
    let watch = Watch { stop_after: Some(stage.into()), ..Watch::default() };
    pipeline::run_with(&context, &mut module, &watch, &mut Rewrites::new(options(&params)), &mut |_| Ok(()))?;
    Ok((graph(&module)?, params))
}

/// Makes a new module of one function.
pub fn module_of<'c>(context: &'c Context, function: NewOperation) -> Result<Module<'c>> {
    let mut module = Module::new(Location::unknown(context));
    sardonyx_passes::set_version(Operation::of_module(&module));
    mlir::Module::new(&mut module).push(function)?;
    Ok(module)
}

/// The `sdx` function of a module with the functions it calls; with several entry points, the first.
pub fn graph(module: &Module) -> Result<Graph> {
    let raw = Operation::of_module(module);
    let functions = raw.block(0).map_or(vec![], |b| b.operations());
    let function = functions.into_iter().find(|op| op.name() == "func.func");
    Graph::read_whole(function.ok_or_else(|| Error::defect("the module has no function"))?, raw)
}
