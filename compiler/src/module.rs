//! a model  =>  a module of MLIR at the value level, and the graph that is in one

use crate::import::{DimRange, ParamStore, import};
use crate::onnx::Model;
use crate::pipeline::{self, Watch};
use melior::Context;
use melior::ir::{Location, Module};
use sardonyx_base::{Error, Result};
use sardonyx_dialects::mlir::{Block, Operation};
use sardonyx_dialects::sdx::Graph;
use sardonyx_passes::{Options, Rewrites};
use std::collections::BTreeMap;

/// The entry point that every artifact has: the model with the dimensions that `--dim` leaves open.
pub const MAIN: &str = "main";

/// Reads a model and takes it to the value level; for those who interpret it or look at it.
pub fn lower_model<'c>(
    context: &'c Context,
    model: &Model,
    dims: &BTreeMap<String, DimRange>,
) -> Result<(Module<'c>, ParamStore)> {
    let (function, params) = import(context, model, MAIN, dims)?;
    Ok((module_of(context, function)?, params))
}

/// The graph of a model after a stage of the pipeline, and its parameters, with which the options may be made.
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

/// A new module of one function.
pub fn module_of<'c>(context: &'c Context, function: Operation) -> Result<Module<'c>> {
    let module = Module::new(Location::unknown(context));
    sardonyx_passes::set_version(operation(&module));
    body(&module)?.push(function);
    Ok(module)
}

pub fn operation(module: &Module) -> Operation {
    Operation(melior::ir::operation::OperationLike::to_raw(&module.as_operation()))
}

pub fn body(module: &Module) -> Result<Block> {
    operation(module).block(0).ok_or_else(|| Error::defect("a module has no body"))
}

/// The value-level function of a module, with what it calls: the first one, where it has several entry points.
pub fn graph(module: &Module) -> Result<Graph> {
    let raw = operation(module);
    let functions = raw.block(0).map_or(vec![], |b| b.operations());
    let function = functions.into_iter().find(|op| op.name() == "func.func");
    Graph::read_whole(function.ok_or_else(|| Error::defect("the module has no function"))?, raw)
}
