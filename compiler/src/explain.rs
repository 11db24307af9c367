//! model.onnx  =>  its launches in order, and the repeated layer among them: 72 launches = 5 + 6 layers × 11 + 1

use crate::emit::{HostSummary, host_operations};
use crate::import::DimRange;
use crate::module::lower_model;
use crate::movement::{Levels, Movement, Question};
use crate::onnx::read_model;
use crate::pipeline::{self, Watch};
use sardonyx_base::{Error, Result};
use sardonyx_dialects::flow::Transform;
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::plan::{Action, Buffer, Plan};
use sardonyx_kernels::lower;
use sardonyx_passes::egraph::explain_node;
use sardonyx_run::page::{Layers, layers};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The stage after which the order of the launches is final, and the one after which buffers have their offsets.
const STAGE: &str = "schedule";
const STAGE_OF_MEMORY: &str = "plan-memory";

/// The stage before the e-graph, whose rewrite rules `node` explains.
const BEFORE_RULES: &str = "simplify";

/// The launches of `main`, and their data movement.
pub struct Launches {
    /// Symbol and class of each kernel.
    pub kernels: Vec<(String, String)>,
    /// Launches of `main`, in order.
    pub launches: Vec<Launch>,
    /// Operations of the host, in `main` and the entry points that it calls.
    pub hosts: Vec<HostSummary>,
    /// Number of parameters stored in another format than the model's, by format: transform, type and encoding.
    pub stored: BTreeMap<String, usize>,
    /// The repetition that covers most launches; `None` if nothing repeats.
    pub layers: Option<Layers>,
    /// Data movement; its `after` begins with a row for each launch.
    pub movement: Movement,
}

/// A launch of a kernel.
pub struct Launch {
    /// Index into `kernels`.
    pub kernel: usize,
    /// ONNX nodes that the launch computes.
    pub origins: Vec<String>,
}

/// Compiles up to the order of the launches, without using weight values. Errors: also those of `Movement::compute`.
pub fn launches(model: &Path, dims: &BTreeMap<String, DimRange>, question: &Question) -> Result<Launches> {
    plan(model, dims, STAGE)
        .and_then(|planned| planned.launches(question))
        .map_err(|e| e.file(model.display().to_string()))
}

/// A program during compilation, and the plan that it became.
pub struct Planned {
    /// The program before and after optimisation, for counting data movement.
    pub levels: Levels,
    /// The plan after the last stage that was run.
    pub plan: Plan,
}

impl Planned {
    /// Compiles up to the offsets of buffers, without using weight values.
    pub fn new(model: &Path, dims: &BTreeMap<String, DimRange>) -> Result<Planned> {
        plan(model, dims, STAGE_OF_MEMORY).map_err(|e| e.file(model.display().to_string()))
    }

    /// The launches and their data movement. Errors: also those of `Movement::compute`.
    pub fn launches(&self, question: &Question) -> Result<Launches> {
        read(&self.plan, Movement::compute(&self.levels, &self.plan, question)?)
    }
}

/// The `sdx` operations that an ONNX node has become, and the rules that produced them, one line each. Errors: E0001 if
/// no operation comes from such a node.
pub fn node(model: &Path, dims: &BTreeMap<String, DimRange>, name: &str) -> Result<Vec<String>> {
    let explained = || {
        let context = sardonyx_passes::context();
        context.attach_diagnostic_handler(|_| true);
        let (mut module, _) = lower_model(&context, &read_model(model)?, dims)?;
        let watch = Watch { stop_after: Some(BEFORE_RULES.into()), ..Watch::default() };
        pipeline::run(&context, &mut module, &watch, &mut |_| Ok(()))?;
        explain_node(Operation::of_module(&module), name)
    };
    explained().map_err(|e: Box<Error>| e.file(model.display().to_string()))
}

fn plan(model: &Path, dims: &BTreeMap<String, DimRange>, stage: &str) -> Result<Planned> {
    let model = read_model(model)?;
    let context = sardonyx_passes::context();
    context.attach_diagnostic_handler(|_| true);
    let (mut module, _) = lower_model(&context, &model, dims)?;
    let watch = Watch { stop_after: Some(stage.into()), ..Watch::default() };
    let mut levels = Levels::default();
    pipeline::run(&context, &mut module, &watch, &mut |event| levels.see(&event))?;
    let plan = Plan::read(Operation::of_module(&module))?;
    Ok(Planned { levels, plan: plan.ok_or_else(|| Error::defect("the pipeline made no plan"))? })
}

fn read(plan: &Plan, movement: Movement) -> Result<Launches> {
    let named = |(symbol, kernel): &(String, _)| Ok((symbol.clone(), lower(kernel)?.class.name().to_string()));
    let kernels = plan.kernels.iter().map(named).collect::<Result<_>>()?;
    let launch = |step: &sardonyx_dialects::plan::Step| match &step.action {
        Action::Launch(launch) => Some(Launch { kernel: launch.kernel, origins: step.origins.clone() }),
        Action::Copy(_) | Action::Bind(_) | Action::Host(_) => None,
    };
    // Entry points that `main` calls are not counted, because how often they run depends on data.
    let steps = plan.entries.first().into_iter().flat_map(|entry| &entry.steps);
    let launches: Vec<Launch> = steps.filter_map(launch).collect();
    let hosts = plan.entries.iter().flat_map(host_operations).collect();
    let order: Vec<usize> = launches.iter().map(|l| l.kernel).collect();
    Ok(Launches { kernels, layers: layers(&order), launches, hosts, stored: stored(plan), movement })
}

/// Number of distinct constants for each storage format, such as `winograd f32` or `f32 panels32`.
fn stored(plan: &Plan) -> BTreeMap<String, usize> {
    let form = |buffer: &Buffer| match buffer {
        Buffer::Param { source, window, container } => {
            let transform = source.transform.map(Transform::name);
            let encoding = (!container.is_plain()).then(|| container.storage());
            let words = transform.map(str::to_string).into_iter().chain([container.dtype.to_string()]).chain(encoding);
            let words = words.collect::<Vec<_>>().join(" ");
            (transform.is_some() || !container.is_plain()).then(|| (words, (source.clone(), window.clone())))
        }
        Buffer::Input { .. } | Buffer::Output { .. } | Buffer::Const { .. } | Buffer::Arena { .. } => None,
        Buffer::Value { .. } => None,
    };
    let distinct: BTreeSet<_> = plan.entries.iter().flat_map(|e| &e.buffers).filter_map(form).collect();
    distinct.into_iter().fold(BTreeMap::new(), |mut counts, (form, _)| {
        *counts.entry(form).or_default() += 1;
        counts
    })
}
