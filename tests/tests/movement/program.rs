//! model, sizes  =>  the words that its sdx graph and its kernels move, counted by execution and compared with formulas

use melior::Context;
use melior::ir::Module;
use sardonyx::import::ParamStore;
use sardonyx::module::{graph, lower_model};
use sardonyx::movement::Levels;
use sardonyx::onnx::read_model;
use sardonyx::pipeline::{self, Watch};
use sardonyx::sizes::{Sizes, sizes};
use sardonyx_base::dim::Symbol;
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use sardonyx_dialects::flow::{FlowOp, Layout};
use sardonyx_dialects::interp::{Touched, count_graph, count_program};
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::plan::Plan;
use sardonyx_dialects::sdx::{Graph, Op, SymbolKind};
use sardonyx_passes::movement::{Count, Sure, Words, operator_words};
use sardonyx_passes::{MaskedRows, Options, Rewrites};
use std::collections::BTreeMap;
use std::path::Path;

/// A program before and after optimization, with its plan and parameters.
pub struct Program {
    pub levels: Levels,
    pub plan: Plan,
    pub params: ParamStore,
}

impl Program {
    pub fn of_model(path: &Path) -> Result<Program> {
        Program::of_model_with(path, MaskedRows::Compute)
    }

    pub fn of_model_with(path: &Path, masked_rows: MaskedRows) -> Result<Program> {
        let model = read_model(path)?;
        let context = sardonyx_passes::context();
        let (module, params) = lower_model(&context, &model, &BTreeMap::new())?;
        Program::from_module(&context, module, params, Options { masked_rows, ..Options::default() })
    }

    /// Returns the program of a text of sdx operations. The values of its parameters are synthetic.
    pub fn of_text(text: &str) -> Result<Program> {
        let context = sardonyx_passes::context();
        let module = Module::parse(&context, text).ok_or_else(|| Error::defect("the text is no module"))?;
        let mut params = ParamStore::new();
        for node in graph(&module)?.nodes {
            if let Op::Param { name, .. } = &node.op {
                let dims = node.ty.static_dims().ok_or_else(|| Error::defect("a parameter has constant dimensions"))?;
                params.insert(name.clone(), filled(&dims));
            }
        }
        Program::from_module(&context, module, params, Options::default())
    }

    fn from_module<'c>(
        context: &'c Context,
        mut module: Module<'c>,
        params: ParamStore,
        options: Options,
    ) -> Result<Program> {
        let mut levels = Levels::default();
        let watch = Watch { stop_after: Some("schedule".into()), ..Watch::default() };
        pipeline::run_with(context, &mut module, &watch, &mut Rewrites::new(options), &mut |event| levels.see(&event))?;
        let plan = Plan::read(Operation::of_module(&module))?;
        Ok(Program { levels, plan: plan.ok_or_else(|| Error::defect("no plan"))?, params })
    }

    fn param(&self, name: &str) -> Result<Tensor> {
        self.params.get(name).cloned().ok_or_else(|| Error::defect(format!("no parameter `{name}`")))
    }
}

fn filled(dims: &[usize]) -> Tensor {
    let n: usize = dims.iter().product();
    Tensor::from_vec(dims.to_vec(), (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 64.0).collect())
}

/// Returns the inputs of a call. Indices of table rows are as different as possible: 0, 1, 2, … modulo 512, the number
/// of rows, or modulo 2 for token types. Masks are 1.
fn inputs(graph: &Graph, sizes: &Sizes) -> Result<Vec<(String, Tensor)>> {
    let dims = |name: &str| -> Result<(DType, Vec<usize>)> {
        let (_, _, ty) = graph.inputs().find(|(_, n, _)| *n == name).expect("an input of the graph");
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
            DType::F32 => filled(&dims),
            other => panic!("no values for {other}"),
        };
        Ok((name.to_string(), tensor))
    };
    graph.inputs().map(|(_, name, _)| tensor(name)).collect()
}

/// Returns sizes by symbol: `batch` and `seq` for the first two dimensions of the first input, and `past` for the
/// length of the states, whatever names the symbols have.
pub fn given(program: &Program, [batch, seq, past]: [i64; 3]) -> Sizes {
    let program = &program.levels.program;
    let symbol = |d: &Dim| d.as_name().map(String::from);
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

/// Number of kernels that were checked, and number of formulas of their operands and results that are only upper
/// bounds.
pub struct Checked {
    pub kernels: usize,
    pub bounds: usize,
}

/// Counts the moved words by execution and compares them with the formulas; the error lists the differences. `at` holds
/// the sizes of `given`.
pub fn check(program: &Program, at: [i64; 3]) -> std::result::Result<Checked, String> {
    let mut checked = Checked { kernels: 0, bounds: 0 };
    let wrong = count(program, at, &mut checked).map_err(|e| e.to_string())?;
    if wrong.is_empty() { Ok(checked) } else { Err(wrong.join("\n")) }
}

fn count(program: &Program, at: [i64; 3], checked: &mut Checked) -> Result<Vec<String>> {
    let Levels { graph, program: flow } = &program.levels;
    let sizes = sizes(flow, &given(program, at))?;
    let inputs = inputs(graph, &sizes)?;
    let params = |name: &str| program.param(name);
    let (mut wrong, mut operators) = (vec![], 0);
    for (operator, touched) in graph.operators().iter().zip(count_graph(graph, &params, &inputs)?) {
        let node = graph.node(operator.nodes[0]);
        let label = format!("{} {}", node.op.name(), node.origins.join(" "));
        wrong.extend(differences(
            &label,
            &operator_words(graph, operator),
            &touched,
            &|s| sizes.get(s).copied(),
            &mut operators,
        ));
    }
    let lo = |s: &Symbol| flow.symbol_lo(s);
    let each = &mut |step: usize, touched: &Touched, symbols: &dyn Fn(&str) -> Option<i64>| {
        let step = &flow.steps[step];
        let FlowOp::Kernel(kernel) = &step.op else { return };
        checked.kernels += 1;
        let label = format!("kernel of {}", step.origins.join(" "));
        wrong.extend(differences(&label, &Words::count(kernel, &lo), touched, symbols, &mut checked.bounds));
    };
    count_program(flow, &params, &inputs, each)?;
    if operators > 0 {
        wrong.push(format!("{operators} operators have a bound in place of a formula"));
    }
    Ok(wrong)
}

fn differences(
    label: &str,
    words: &Words,
    touched: &Touched,
    symbols: &dyn Fn(&str) -> Option<i64>,
    bounds: &mut usize,
) -> Vec<String> {
    let mut wrong = vec![];
    let mut compare = |what: String, count: &Count, counted: usize| match count.words.eval_named(symbols) {
        Ok(n) if n == counted as i64 && count.sure != Sure::AtMost => {}
        Ok(n) if n >= counted as i64 && count.sure == Sure::AtMost => *bounds += 1,
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
