//! model, sizes  =>  its value level and its kernels, executed and counted beside the formulas

use melior::Context;
use sardonyx::compile::{graph, lower_model};
use sardonyx::import::ParamStore;
use sardonyx::onnx::read_model;
use sardonyx::pipeline::{self, Event, Watch};
use sardonyx::sizes::{Sizes, sizes};
use sardonyx_dialects::flow::{FlowOp, Layout, Program};
use sardonyx_dialects::interp::{self, Touched};
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::sdx::{Graph, SymbolKind};
use sardonyx_passes::movement::{Count, Sure, Words, operator_words};
use sardonyx_runtime::{DType, Dim, Error, Result, Tensor};
use std::collections::BTreeMap;
use std::path::Path;

/// A program before optimisation and after.
pub struct Levels {
    pub graph: Graph,
    pub program: Program,
    pub params: ParamStore,
}

/// The stages after which one counts.
const BEFORE: &str = "fold-constants";
const AFTER: &str = "pack-weights";

impl Levels {
    pub fn of_model(path: &Path) -> Result<Levels> {
        let model = read_model(path)?;
        let context = sardonyx_passes::context();
        let (mut module, params) = lower_model(&context, &model, &BTreeMap::new())?;
        Levels::of(&context, &mut module, params)
    }

    pub fn of<'c>(context: &'c Context, module: &mut melior::ir::Module<'c>, params: ParamStore) -> Result<Levels> {
        let mut before = None;
        let watch = Watch { stop_after: Some(AFTER.into()), ..Watch::default() };
        pipeline::run(context, module, &watch, &mut |event| {
            if let Event::End(BEFORE, module) = event {
                before = Some(graph(module)?);
            }
            Ok(())
        })?;
        let raw = Operation(melior::ir::operation::OperationLike::to_raw(&module.as_operation()));
        let functions = raw.block(0).map_or(vec![], |b| b.operations());
        let main = functions.into_iter().find(|op| op.name() == "func.func");
        let program = Program::read(main.ok_or_else(|| Error::defect("no function"))?)?;
        Ok(Levels { graph: before.ok_or_else(|| Error::defect("no stage before"))?, program, params })
    }

    fn param(&self, name: &str) -> Result<Tensor> {
        self.params.get(name).cloned().ok_or_else(|| Error::defect(format!("no parameter `{name}`")))
    }
}

/// Inputs of which every lookup is another one: 0, 1, 2 …, as far as there are so many; masks let everything through.
fn inputs(levels: &Levels, sizes: &Sizes) -> Result<Vec<(String, Tensor)>> {
    let dims = |name: &str| -> Result<(DType, Vec<usize>)> {
        let (_, _, ty) = levels.graph.inputs().find(|(_, n, _)| *n == name).expect("an input of the graph");
        let dims = ty.dims.iter().map(|d| Ok(sardonyx::sizes::value(d, sizes)? as usize)).collect::<Result<_>>()?;
        Ok((ty.dtype, dims))
    };
    let tensor = |name: &str| -> Result<(String, Tensor)> {
        let (dtype, dims) = dims(name)?;
        let n: usize = dims.iter().product();
        let tensor = match dtype {
            DType::I64 => {
                let rows = if name.contains("type") { 2 } else { 512 };
                let values = (0..n as i64).map(|i| if name.contains("mask") { 1 } else { i % rows });
                Tensor::from_vec(dims, values.collect())
            }
            DType::F32 => Tensor::from_vec(dims, (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 64.0).collect()),
            other => panic!("no values for {other}"),
        };
        Ok((name.to_string(), tensor))
    };
    levels.graph.inputs().map(|(_, name, _)| tensor(name)).collect()
}

/// The symbols that the dimensions of the first input are, and that of the states' length, whatever an exporter calls them.
pub fn given(levels: &Levels, [batch, seq, past]: [i64; 3]) -> Sizes {
    let program = &levels.program;
    let symbol = |d: &Dim| d.as_symbol().map(String::from);
    let first = program.inputs.first().map(|(_, id)| program.containers[*id].dims.clone()).unwrap_or_default();
    let mut given: Sizes = first.iter().zip([batch, seq]).filter_map(|(d, n)| Some((symbol(d)?, n))).collect();
    for (_, id) in &program.inputs {
        let container = &program.containers[*id];
        if let Layout::Capacity { axis, .. } = container.layout {
            given.extend(symbol(&container.dims[axis]).map(|name| (name, past)));
        }
    }
    let known = |name: &String| program.symbols.get(name).is_some_and(|s| s.kind == SymbolKind::Input);
    given.retain(|name, _| known(name));
    given
}

/// Counts by executing, and by the formulas; what differs is told, or how many kernels there are.
pub fn check(levels: &Levels, at: [i64; 3]) -> std::result::Result<usize, String> {
    let given = given(levels, at);
    let mut kernels = 0;
    let sizes = sizes(&levels.program, &given).map_err(|e| e.to_string())?;
    let inputs = inputs(levels, &sizes).map_err(|e| e.to_string())?;
    let mut wrong = vec![];
    let params = |name: &str| levels.param(name);
    let touched = interp::count::count_graph(&levels.graph, &params, &inputs).map_err(|e| e.to_string())?;
    for (operator, touched) in levels.graph.operators().iter().zip(&touched) {
        let words = operator_words(&levels.graph, operator);
        let node = levels.graph.node(operator.nodes[0]);
        let label = format!("{} {}", node.op.name(), node.origins.join(" "));
        wrong.extend(differences(&label, &words, touched, &|s| sizes.get(s).copied()));
    }
    let lo = |s: &str| levels.program.symbol_lo(s);
    let each = &mut |step: usize, touched: &Touched, symbols: &dyn Fn(&str) -> Option<i64>| {
        let step = &levels.program.steps[step];
        let FlowOp::Kernel(kernel) = &step.op else { return };
        kernels += 1;
        let label = format!("kernel of {}", step.origins.join(" "));
        wrong.extend(differences(&label, &Words::of(kernel, &lo), touched, symbols));
    };
    interp::count_program(&levels.program, &params, &inputs, each).map_err(|e| e.to_string())?;
    if wrong.is_empty() { Ok(kernels) } else { Err(wrong.join("\n")) }
}

fn differences(label: &str, words: &Words, touched: &Touched, symbols: &dyn Fn(&str) -> Option<i64>) -> Vec<String> {
    let mut wrong = vec![];
    let mut compare = |what: String, count: &Count, counted: usize| match count.words.eval(symbols) {
        Ok(n) if n == counted as i64 && count.sure != Sure::AtMost => {}
        Ok(n) => wrong.push(format!("{label}: {what}: {} = {n} ({:?}), counted {counted}", count.words, count.sure)),
        Err(e) => wrong.push(format!("{label}: {what}: {e}")),
    };
    for (i, (count, counted)) in words.reads.iter().zip(&touched.reads).enumerate() {
        compare(format!("operand {i}"), count, *counted);
    }
    for (i, (count, counted)) in words.writes.iter().zip(&touched.writes).enumerate() {
        compare(format!("result {i}"), count, *counted);
    }
    wrong
}
