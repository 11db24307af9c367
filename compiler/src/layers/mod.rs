//! model.onnx, inputs  =>  the first node whose value the compiled program gets wrong
//!
//! The program is compiled as usual: values do not become outputs, so fusion is not affected. The results of each
//! launch are recorded as the device wrote them. The program is then replayed with these results, and every value of
//! the ONNX graph is searched for: among the results, and inside the kernels, whose statements are interpreted on the
//! device's inputs. Values are recognised by their elements (`alike`), so rewrites that move, merge and split values
//! need not keep a record of that.
//!
//! A value that is not found need not be an error, as a rewrite may have made it unnecessary. It is suspect if some
//! path from it to a wrong output passes only through values that are not found. The first suspect in topological order
//! is where to look.

mod alike;
mod held;
mod statements;
mod values;
mod verdict;

pub use alike::{Apart, Bound};
pub use values::{Value, Values};
pub use verdict::{Fault, Finding, Report, Row, State};

use crate::import::DimRange;
use crate::import::ParamStore;
use crate::module::lower_model;
use crate::onnx::read_model;
use crate::pipeline::{self, STAGES, Watch};
use held::{Held, Launch, containers};
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_dialects::flow::{FlowOp, Program};
use sardonyx_dialects::interp::{KernelCall, run_program_by};
use sardonyx_dialects::mlir::Operation;
use sardonyx_runtime::{Outputs, Session};
use std::collections::BTreeMap;
use std::path::Path;

/// Kernels of at most this much work (statements times points) are always interpreted.
const WORK_MAX: usize = 100_000_000;

/// The search stops after this many replays without a match: after the faulty node nothing matches any more.
const IN_VAIN_MAX: usize = 4;

/// A model, and the program that it is compiled to.
pub struct Layers {
    /// The values of the ONNX graph, and how to interpret them.
    pub values: Values,
    program: Program,
    params: ParamStore,
}

impl Layers {
    /// Reads a model, and compiles it up to the scheduling. Errors name the file.
    pub fn read(path: &Path, dims: &BTreeMap<String, DimRange>) -> Result<Layers> {
        let values = Values::read(path, dims)?;
        let (program, params) = program(path, dims).map_err(|e| e.file(path.display().to_string()))?;
        Ok(Layers { values, program, params })
    }

    /// Runs the compiled model and compares it. `wanted` are the expected values, by index into `Values::all`.
    pub fn compare(
        &self,
        session: &Session,
        inputs: &[(String, Tensor)],
        wanted: &[Option<Tensor>],
        bound: Bound,
    ) -> Result<Report> {
        let (launches, outputs) = self.launches(session, inputs)?;
        let mut held = Held::new(&self.values, wanted, bound);
        let first = |call: &KernelCall| held::work(call).is_ok_and(|n| n <= WORK_MAX);
        self.replay(&launches, inputs, &mut held, &first)?;
        let wrong = verdict::wrong_outputs(&self.values, wanted, &outputs, bound);
        // If outputs are wrong, kernels are interpreted whatever their work, those of the first missing value first.
        let mut n_in_vain = 0;
        while n_in_vain < IN_VAIN_MAX {
            let suspects = verdict::suspects(&self.values, &held, &wrong);
            let unseen = |at: &usize| held.unseen(&self.values.all[*at].node, &launches);
            let Some(steps) = suspects.iter().map(unseen).find(|steps| !steps.is_empty()) else { break };
            let found = held.n_found();
            self.replay(&launches, inputs, &mut held, &|call| steps.contains(&call.step))?;
            n_in_vain += (held.n_found() == found) as usize;
        }
        Ok(verdict::report(&self.values, &held, &launches, wrong))
    }

    /// The results of each launch on the device, and the outputs.
    fn launches(&self, session: &Session, inputs: &[(String, Tensor)]) -> Result<(Vec<Launch>, Outputs)> {
        let given: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let mut launches = vec![];
        let outputs = session.run_watched("main", &given, &mut |launched| {
            launches.push(Launch {
                kernel: launched.kernel.to_string(),
                origins: launched.origins.to_vec(),
                results: launched.results,
                step: None,
            });
            Ok(())
        })?;
        // Launches are in the order of the program's steps; steps without a launch are skipped.
        let mut rest = launches.iter_mut().peekable();
        for (i, step) in self.program.steps.iter().enumerate() {
            let FlowOp::Kernel(kernel) = &step.op else { continue };
            let is_this = |l: &&mut Launch| l.origins == step.origins && l.results.len() == kernel.writes.len();
            if let Some(launch) = rest.next_if(is_this) {
                launch.step = Some(i);
            }
        }
        match rest.next() {
            None => Ok((launches, outputs)),
            Some(launch) => Err(Error::defect(format!("the launch of {} is no step of the program", launch.kernel))),
        }
    }

    /// Runs the program with the device's results, and shows these to `held`, together with the statements of the
    /// kernels for which `inside` is true.
    fn replay(
        &self,
        launches: &[Launch],
        inputs: &[(String, Tensor)],
        held: &mut Held,
        inside: &dyn Fn(&KernelCall) -> bool,
    ) -> Result<()> {
        let mut next = launches.iter().enumerate().peekable();
        run_program_by(&self.program, &self.params, inputs, &mut |call| {
            let Some((at, launch)) = next.next_if(|(_, l)| l.step == Some(call.step)) else {
                return call.interpret();
            };
            let results = containers(call, launch)?;
            held.results(at, launch, &results);
            if inside(call) {
                held.inside(at, launch, call, &results)?;
            }
            Ok(results)
        })?;
        Ok(())
    }
}

/// The program just before it is scheduled.
fn program(path: &Path, dims: &BTreeMap<String, DimRange>) -> Result<(Program, ParamStore)> {
    let model = read_model(path)?;
    let context = sardonyx_passes::context();
    context.attach_diagnostic_handler(|_| true);
    let (mut module, params) = lower_model(&context, &model, dims)?;
    let last = STAGES.iter().take_while(|(name, _)| *name != "schedule").last();
    let stop_after = last.map(|(name, _)| name.to_string());
    pipeline::run(&context, &mut module, &Watch { stop_after, ..Watch::default() }, &mut |_| Ok(()))?;
    let raw = Operation::of_module(&module);
    let functions = raw.block(0).map_or(vec![], |b| b.operations());
    let function = functions.into_iter().find(|op| op.name() == "func.func");
    let function = function.ok_or_else(|| Error::defect("the module has no function"))?;
    Ok((Program::read_whole(function, raw)?, params))
}
