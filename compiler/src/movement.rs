//! a program before and after optimisation, sizes, a device  =>  data moved by each operator and launch, and in total

use crate::module::graph;
use crate::pipeline::Event;
use crate::sizes::{Sizes, sizes, value};
use melior::ir::Module;
use sardonyx_base::dim::{Symbol, product};
use sardonyx_base::{DType, Dim, Error, Result};
use sardonyx_dialects::flow::{Body, FlowOp, Kernel, Program};
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::plan::{Action, Buffer, Plan};
use sardonyx_dialects::sdx::Graph;
use sardonyx_kernels::DeviceSpec;
use sardonyx_kernels::{KernelDef, lower};
use sardonyx_passes::movement::scheduled::{lower_bound, scheduled};
use sardonyx_passes::movement::{Count, FastMemory, Kind, Words, operator_flops, operator_words};
use std::collections::HashMap;

/// Stage after which the program is measured as the model states it, with constants folded.
pub const BEFORE: &str = "fold-constants";
/// The program is measured as launched after the last of these stages that runs. They are the last stages that change
/// kernels; the next one, `schedule`, makes the plan.
pub const AFTER: &[&str] = &["pack-weights", "lower-precision", "stage-operands"];

/// The first function of a module at both stages.
#[derive(Default)]
pub struct Levels {
    /// The `sdx` function after the stage [`BEFORE`].
    pub graph: Graph,
    /// The `flow` function after the stages [`AFTER`].
    pub program: Program,
}

/// Sizes and device for which movement is counted.
#[derive(Clone, Debug)]
pub struct Question {
    /// Sizes of symbols by name; a missing one gets a default, as in [`sizes`].
    pub at: Sizes,
    /// Device whose fast memory determines the scheduled words and the lower bound.
    pub device: DeviceSpec,
}

/// Data moved by an operator or a launch.
#[derive(Clone, Debug)]
pub struct Row {
    /// Symbol of the kernel, `copy`, or name of the `sdx` operation.
    pub name: String,
    /// Class of the operator or launch.
    pub kind: Kind,
    /// ONNX nodes that it computes.
    pub origins: Vec<String>,
    /// Algebraic words as a formula over the symbols.
    pub formula: Count,
    /// Algebraic words at the sizes of the question; a word is one element of any type.
    pub words: i64,
    /// Number of floating-point operations.
    pub flops: i64,
    /// Words that the emitted code requests; `None` for operators.
    pub scheduled: Option<i64>,
    /// Bytes of these words.
    pub scheduled_bytes: Option<i64>,
    /// Least number of words that any code could request; `None` for operators.
    pub lower_bound: Option<i64>,
}

/// Data movement of one call, before and after optimisation.
#[derive(Clone, Debug)]
pub struct Movement {
    /// Name of the device.
    pub device: String,
    /// Value of every symbol of the program.
    pub sizes: Sizes,
    /// One row per operator of the model.
    pub before: Vec<Row>,
    /// One row per launch, then one per copy of an output.
    pub after: Vec<Row>,
}

/// Totals over some rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Number of rows.
    pub rows: usize,
    /// Algebraic words.
    pub words: i64,
    /// Words that the emitted code requests; a row without this number adds 0.
    pub scheduled: i64,
    /// Least number of words that any code could request; a row without this number adds 0.
    pub lower_bound: i64,
    /// Number of floating-point operations.
    pub flops: i64,
}

impl Levels {
    /// Records the program at the two stages; to be called for every event.
    pub fn see(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::End(BEFORE, module) => self.graph = graph(module)?,
            Event::End(stage, module) if AFTER.contains(stage) => self.program = program(module)?,
            Event::Begin(_) | Event::End(_, _) => {}
        }
        Ok(())
    }
}

/// The `flow` function of a module; with several entry points, the first.
pub fn program(module: &Module) -> Result<Program> {
    let raw = Operation::of_module(module);
    let function = raw.block(0).map_or(vec![], |b| b.operations()).into_iter().find(|op| op.name() == "func.func");
    Program::read_whole(function.ok_or_else(|| Error::defect("the module has no function"))?, raw)
}

impl Movement {
    /// Counts data movement. `plan` is made from the program of `levels`. Errors: those of `sizes` and of
    /// `FastMemory::from_spec`.
    pub fn compute(levels: &Levels, plan: &Plan, question: &Question) -> Result<Movement> {
        let sizes = sizes(&levels.program, &question.at)?;
        let memory = FastMemory::from_spec(&question.device)?;
        let before = operators(&levels.graph, &sizes)?;
        let mut after = launches(&levels.program, plan, &sizes, &memory)?;
        after.extend(copies(plan, &sizes)?);
        Ok(Movement { device: question.device.name.clone(), sizes, before, after })
    }
}

/// Returns the totals over the rows.
pub fn sum<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Sum {
    rows.into_iter().fold(Sum::default(), |s, r| Sum {
        rows: s.rows + 1,
        words: s.words + r.words,
        scheduled: s.scheduled + r.scheduled.unwrap_or(0),
        lower_bound: s.lower_bound + r.lower_bound.unwrap_or(0),
        flops: s.flops + r.flops,
    })
}

/// Sum of the formulas of the rows.
pub fn formula<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Dim {
    rows.into_iter().fold(Dim::constant(0), |sum, r| sum + r.formula.words.clone())
}

/// Returns the rows of one kind, in order.
pub fn of_kind(rows: &[Row], kind: Kind) -> impl Iterator<Item = &Row> {
    rows.iter().filter(move |r| r.kind == kind)
}

fn operators(graph: &Graph, sizes: &Sizes) -> Result<Vec<Row>> {
    let row = |operator: &sardonyx_dialects::sdx::Operator| {
        let formula = operator_words(graph, operator).total();
        let last = operator.nodes.last().ok_or_else(|| Error::defect("an operator without nodes"))?;
        let node = graph.node(*last);
        Ok(Row {
            name: node.op.name().trim_start_matches("sdx.").to_string(),
            kind: Kind::from_operator(graph, operator),
            origins: node.origins.clone(),
            words: value(&formula.words, sizes)?,
            formula,
            flops: value(&operator_flops(graph, operator), sizes)?,
            scheduled: None,
            scheduled_bytes: None,
            lower_bound: None,
        })
    };
    graph.operators().iter().map(row).collect()
}

fn launches(program: &Program, plan: &Plan, sizes: &Sizes, memory: &FastMemory) -> Result<Vec<Row>> {
    let mut symbols: HashMap<KernelDef, &str> = HashMap::new();
    for (symbol, kernel) in &plan.kernels {
        symbols.insert(lower(kernel)?.def, symbol);
    }
    let lo = |s: &Symbol| program.symbol_lo(s);
    let mut rows = vec![];
    for step in &program.steps {
        let FlowOp::Kernel(kernel) = &step.op else { continue };
        let lowered = lower(kernel)?;
        let symbol = symbols.get(&lowered.def).ok_or_else(|| Error::defect("a launch of what is not in the plan"))?;
        let words = Words::count(kernel, &lo);
        let formula = words.total();
        let numbers = |dims: &mut dyn Iterator<Item = &Dim>| dims.map(|d| value(d, sizes)).collect::<Result<Vec<_>>>();
        let once = numbers(&mut words.reads.iter().chain(&words.writes).map(|c| &c.words))?;
        let params = numbers(&mut lowered.params.iter())?;
        let total: i64 = once.iter().sum();
        let each = scheduled(&lowered, &params, &once, memory);
        let bytes = lowered.def.reads.iter().chain(&lowered.def.writes).zip(&each).map(|(buffer, words)| {
            // Only in panels for CPUs do two elements share a byte.
            let half = buffer.panels.is_some_and(|panels| panels.halves) && memory.ptx.is_none();
            if half { *words / 2 } else { words.saturating_mul(buffer.dtype.bytes() as i64) }
        });
        let scheduled_bytes = bytes.fold(0, i64::saturating_add);
        let n_sums = kernel.body.iter().filter(|s| matches!(s.body, Body::Reduce { .. })).count() as i64;
        let products = n_sums * value(&product(kernel.extents()), sizes)?;
        let products = (Kind::from_kernel(kernel) == Kind::Contraction).then(|| (products, summed_type(kernel)));
        rows.push(Row {
            name: symbol.to_string(),
            kind: Kind::from_kernel(kernel),
            origins: step.origins.clone(),
            formula,
            words: total,
            flops: value(&lowered.flops(), sizes)?,
            scheduled: Some(each.iter().sum()),
            scheduled_bytes: Some(scheduled_bytes),
            lower_bound: Some(lower_bound(total, products, memory)),
        });
    }
    match plan.entries.first().is_some_and(|entry| entry.launches() == rows.len()) {
        true => Ok(rows),
        false => Err(Error::defect("the plan launches other kernels than the program has")),
    }
}

/// The accumulator type of a contraction.
fn summed_type(kernel: &Kernel) -> DType {
    let reduce = kernel.body.iter().find(|s| matches!(s.body, Body::Reduce { .. }));
    reduce.map_or(DType::F32, |s| s.dtype)
}

/// Rows for the outputs that are copied because no kernel writes them in place.
fn copies(plan: &Plan, sizes: &Sizes) -> Result<Vec<Row>> {
    let Some(entry) = plan.entries.first() else { return Ok(vec![]) };
    let copied = entry.steps.iter().filter_map(|step| match &step.action {
        Action::Copy(copy) => match &entry.buffers[copy.to] {
            Buffer::Output { container, .. } => Some((container, &step.origins)),
            Buffer::Input { .. } | Buffer::Param { .. } | Buffer::Const { .. } => None,
            Buffer::Arena { .. } | Buffer::Value { .. } => None,
        },
        Action::Launch(_) | Action::Bind(_) | Action::Host(_) => None,
    });
    let row = |(container, origins): (&sardonyx_dialects::flow::Container, &Vec<String>)| {
        let words = Dim::constant(2) * product(&container.dims);
        let n = value(&words, sizes)?;
        Ok(Row {
            name: "copy".into(),
            kind: Kind::Copy,
            origins: origins.clone(),
            formula: Count { words, sure: sardonyx_passes::movement::Sure::Exact },
            words: n,
            flops: 0,
            scheduled: Some(n),
            scheduled_bytes: Some(n.saturating_mul(container.dtype.bytes() as i64)),
            lower_bound: Some(n),
        })
    };
    copied.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::STAGES;

    #[test]
    fn no_stage_changes_kernels_between_the_measured_program_and_the_plan() {
        let at = |name: &str| STAGES.iter().position(|(stage, _)| *stage == name).unwrap();
        let stages: Vec<&str> = STAGES[at(AFTER[0])..at("schedule")].iter().map(|(stage, _)| *stage).collect();
        assert_eq!(stages, AFTER);
    }
}
