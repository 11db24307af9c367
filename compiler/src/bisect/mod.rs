//! model.onnx  =>  the first rewrite after which the program no longer computes what the model does
//!
//! The program is interpreted after every stage, on one call. In the first stage that changes the outputs, a binary
//! search over the number of applied rewrites (the fuel) finds the rewrite at fault. If no stage changes the outputs,
//! any fault is in the generated code.

mod changes;

use crate::import::{DimRange, ParamStore};
use crate::layers::Bound;
use crate::meaning::{Function, Named, call, functions, n_calls};
use crate::module::lower_model;
use crate::onnx::{Model, read_model};
use crate::pipeline::{self, STAGES, Watch};
use changes::changes;
use melior::Context;
use sardonyx_base::{Error, Result};
use sardonyx_passes::{Options, Rewrite, Rewrites};
use std::collections::BTreeMap;
use std::path::Path;

/// The import stage. Its result is the reference for all later stages, since nothing has been rewritten yet.
const IMPORTED: &str = "onnx-to-sdx";
/// First stage whose result the interpreter cannot execute.
const SCHEDULED: &str = "schedule";

/// A search for the first stage, and the rewrite in it, that changes the outputs of a model.
pub struct Bisect<'a> {
    /// Path of the ONNX model.
    pub model: &'a Path,
    /// Ranges of dimension symbols, by name.
    pub dims: BTreeMap<String, DimRange>,
    /// Tolerance within which outputs count as unchanged.
    pub bound: Bound,
}

/// A stage that changed the outputs.
pub struct Guilty {
    /// Name of the stage, as in [`STAGES`].
    pub stage: &'static str,
    /// The passes of the stage, as a pipeline string.
    pub pipeline: &'static str,
    /// What is wrong after the stage: an output that differs, or the error with which it failed.
    pub what: String,
    /// The rewrite that changed the outputs; `None` if a lowering or one of MLIR's passes did, which count no rewrites.
    pub rewrite: Option<Rewrite>,
    /// Number of rewrites that the whole stage applies.
    pub n_rewrites: usize,
    /// The functions before the stage, for `reduce`.
    pub before_stage: String,
    /// Operations that the rewrite removed (`-`) and added (`+`).
    pub changes: Vec<String>,
    /// Number of times the pipeline was run.
    pub n_runs: usize,
}

/// Result of running the stages.
#[derive(Default)]
struct Run {
    /// First stage that changed the outputs, as an index into `STAGES`, and how.
    wrong: Option<(usize, String)>,
    /// Number of rewrites applied before each stage.
    before: Vec<usize>,
    rewrites: Vec<Rewrite>,
    /// The functions as text before each stage, and in memory after the last stage that was checked.
    texts: Vec<String>,
    last: Vec<Function>,
}

impl Bisect<'_> {
    /// Returns the first stage that changes the outputs; `None` if every stage keeps the model's meaning. `data` is the
    /// call: inputs and, if known, the expected outputs. Without it, a synthetic call is used. Errors: those of reading
    /// the model; E0301 if no synthetic call can be found.
    pub fn run(&self, data: Option<(Named, Named)>) -> Result<Option<Guilty>> {
        let search = || {
            let model = read_model(self.model)?;
            let context = sardonyx_passes::context();
            context.attach_diagnostic_handler(|_| true);
            let (inputs, wanted) = self.call(&context, &model, data)?;
            self.search(&context, &model, &inputs, &wanted)
        };
        search().map_err(|e: Box<Error>| e.file(self.model.display().to_string()))
    }

    /// Inputs of the synthetic call that is used when no data is given.
    pub fn synthetic_inputs(&self) -> Result<Named> {
        let context = sardonyx_passes::context();
        context.attach_diagnostic_handler(|_| true);
        self.call(&context, &read_model(self.model)?, None).map(|(inputs, _)| inputs)
    }

    /// The call and its expected outputs; if these are not given, the imported graph is interpreted to get them.
    fn call(&self, context: &Context, model: &Model, data: Option<(Named, Named)>) -> Result<(Named, Named)> {
        let (mut module, params) = lower_model(context, model, &self.dims)?;
        let watch = Watch { stop_after: Some(IMPORTED.into()), ..Watch::default() };
        pipeline::run(context, &mut module, &watch, &mut |_| Ok(()))?;
        let imported = functions(&module)?.into_iter().next().ok_or_else(|| Error::defect("nothing was imported"))?;
        let outputs = |inputs: &Named| imported.run(&params, inputs);
        if let Some((inputs, expected)) = data {
            let wanted = if expected.is_empty() { outputs(&inputs)? } else { expected };
            return Ok((inputs, wanted));
        }
        let mut why = Error::user("E0301", "no small dimensions satisfy what the model demands of them");
        for i in 0..n_calls(&imported) {
            match call(&imported, i).and_then(|inputs| Ok((outputs(&inputs)?, inputs))) {
                Ok((wanted, inputs)) => return Ok((inputs, wanted)),
                Err(e) => why = e,
            }
        }
        Err(why.help("give a data set with `--data DIR`"))
    }

    fn search(&self, cx: &Context, model: &Model, inputs: &Named, wanted: &Named) -> Result<Option<Guilty>> {
        let mut n_runs = 1;
        let mut whole = self.stages(cx, model, None, None, inputs, wanted)?;
        let Some((at, what)) = whole.wrong.take() else { return Ok(None) };
        let (stage, pipeline) = STAGES[at];
        let mut run = |fuel: usize| {
            n_runs += 1;
            self.stages(cx, model, Some(fuel), Some(at), inputs, wanted)
        };
        // Invariant: outputs are right with the first `low` rewrites and wrong with the first `high`, unless the stage
        // changes them without any rewrite.
        let (mut low, mut high) = (whole.before[at], whole.rewrites.len());
        let n_rewrites = high - low;
        let mut without = run(low)?;
        let blameless = without.wrong.is_some() || n_rewrites == 0;
        while !blameless && low + 1 < high {
            let middle = (low + high) / 2;
            let found = run(middle)?;
            match found.wrong {
                Some(_) => high = middle,
                None => (low, without) = (middle, found),
            }
        }
        // Run with exactly `high` rewrites, so that later rewrites of the stage do not appear among the changes.
        let with = if blameless { Run::default() } else { run(high)? };
        let what = with.wrong.as_ref().map_or(what, |(_, what)| what.clone());
        Ok(Some(Guilty {
            stage,
            pipeline,
            what,
            rewrite: if blameless { None } else { whole.rewrites.get(high - 1).cloned() },
            n_rewrites,
            before_stage: std::mem::take(&mut whole.texts[at]),
            changes: if blameless { vec![] } else { changes(&without.last, &with.last) },
            n_runs,
        }))
    }

    /// Runs the stages up to the first that changes the outputs. With `only`, checks that stage alone and then stops.
    fn stages(
        &self,
        context: &Context,
        model: &Model,
        fuel: Option<usize>,
        only: Option<usize>,
        inputs: &Named,
        wanted: &Named,
    ) -> Result<Run> {
        let (mut module, params) = lower_model(context, model, &self.dims)?;
        let mut rewrites = Rewrites::new(Options { fuel, ..Options::default() });
        let mut run = Run::default();
        for (at, (_, passes)) in STAGES.iter().enumerate().take_while(|(_, (name, _))| *name != SCHEDULED) {
            run.before.push(rewrites.applied().len());
            run.texts.push(if only.is_none() { pipeline::text(&module)? } else { String::new() });
            let ran = match passes.is_empty() {
                true => Ok(()),
                false => {
                    let pipeline = format!("builtin.module({passes})");
                    sardonyx_passes::run_pipeline_with(context, &mut module, &pipeline, &mut rewrites)
                }
            };
            if let Err(e) = ran {
                // Errors up to the import mean an unsupported model, not a wrong rewrite.
                if STAGES.iter().position(|(n, _)| *n == IMPORTED).is_some_and(|imported| at <= imported) {
                    return Err(e);
                }
                run.wrong = Some((at, format!("{}: {}", e.code, e.message)));
                break;
            }
            if at > 0 && only.is_none_or(|only| only == at) {
                run.last = functions(&module)?;
                run.wrong = self.compare(&run.last, &params, inputs, wanted)?.map(|what| (at, what));
            }
            if run.wrong.is_some() || only == Some(at) {
                break;
            }
        }
        run.rewrites = rewrites.applied().to_vec();
        Ok(run)
    }

    /// Runs the first function and describes the first output that is missing or wrong, or the error with which the run
    /// failed; `None` if all outputs are as `wanted`.
    fn compare(
        &self,
        functions: &[Function],
        params: &ParamStore,
        inputs: &Named,
        wanted: &Named,
    ) -> Result<Option<String>> {
        let Some(main) = functions.first() else { return Ok(None) };
        let got = match main.run(params, inputs) {
            Ok(got) => got,
            Err(e) => return Ok(Some(format!("{}: {}", e.code, e.message))),
        };
        for (name, want) in wanted {
            let Some((_, got)) = got.iter().find(|(n, _)| n == name) else {
                return Ok(Some(format!("the output {name} is gone")));
            };
            if !self.bound.holds_for(want, got) {
                let apart = self.bound.apart(want, got);
                let by = apart.map_or("has another shape or type".to_string(), |a| {
                    format!("is wrong, max abs error {:.3e}, max rel error {:.3e}", a.abs_max, a.rel_max)
                });
                return Ok(Some(format!("the output {name} {by}")));
            }
        }
        Ok(None)
    }
}
