//! programs  =>  one artifact with an entry point for each, run on this CPU and compared with the interpreter

use super::bound::Expected;
use super::program::{Program, Source};
use super::subject::{Subject, subject_of};
use melior::Context as MlirContext;
use melior::ir::{Location, Module};
use sardonyx::import::{ParamStore, import};
use sardonyx::pipeline::pipeline;
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_dialects::mlir::{self, Context, Operation};
use sardonyx_dialects::plan::Plan;
use sardonyx_dialects::sdx::Graph;
use sardonyx_kernels::Target;
use sardonyx_runtime::{Model, Session, SessionOptions};
use sardonyx_tests::emitted::{emit, panic_text};
use sardonyx_tests::trust::trusted;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A program that computes wrong results or cannot be compiled, with a description of what is wrong.
pub struct Failure {
    pub seed: u64,
    pub what: String,
}

/// The programs' sdx functions, and a session of their common artifact.
struct Compiled {
    graphs: Vec<Graph>,
    texts: Vec<String>,
    params: ParamStore,
    session: Session,
}

/// Checks the programs, and adds the number of operations that they have of each subject to `counts`. If the programs
/// do not compile together, the two halves of the list are checked separately, recursively, to find the programs at
/// fault.
pub fn check(programs: &[Program], counts: &mut BTreeMap<Subject, usize>) -> Vec<Failure> {
    let compiled = catch_unwind(AssertUnwindSafe(|| Compiled::new(programs)));
    let compiled = match compiled {
        Ok(Ok(compiled)) => compiled,
        Ok(Err(e)) => return apart(programs, counts, e.to_string()),
        Err(panic) => return apart(programs, counts, format!("panicked: {}", panic_text(panic))),
    };
    let mut failures = vec![];
    for (i, program) in programs.iter().enumerate() {
        let graph = &compiled.graphs[i];
        let subjects = graph.nodes.iter().filter_map(|node| subject_of(graph, node));
        let model = matches!(program.source, Source::Model(_)).then_some(program.subject);
        subjects.chain(model).for_each(|s| *counts.entry(s).or_default() += 1);
        if let Err(what) = compiled.call(program, graph) {
            failures.push(failure(program, &what, &compiled.texts[i]));
        }
    }
    failures
}

fn apart(programs: &[Program], counts: &mut BTreeMap<Subject, usize>, what: String) -> Vec<Failure> {
    if let [program] = programs {
        let text = function_text(program).unwrap_or_else(|e| e.to_string());
        return vec![failure(program, &what, &text)];
    }
    let (first, second) = programs.split_at(programs.len() / 2);
    let mut failures = check(first, counts);
    failures.extend(check(second, counts));
    if failures.is_empty() {
        failures.push(failure(
            &programs[0],
            &format!("{} programs do not compile together: {what}", programs.len()),
            "",
        ));
    }
    failures
}

fn failure(program: &Program, what: &str, text: &str) -> Failure {
    let inputs = program.inputs.iter().map(|(name, t)| format!("  {name}: {}\n", shown(t)));
    let inputs: String = inputs.collect();
    Failure { seed: program.seed, what: format!("{:?}: {what}\n{inputs}{text}", program.subject) }
}

/// Returns the type, the dimensions and the first elements of a tensor as text.
fn shown(t: &Tensor) -> String {
    let one = |i| match t.dtype().is_float() {
        true => format!("{:?}", t.get_f64(i).unwrap_or(f64::NAN)),
        false => t.get_i64(i).map_or("beyond i64".into(), |n| n.to_string()),
    };
    let some: Vec<String> = (0..t.len().min(24)).map(one).collect();
    format!("{} {:?} [{}{}]", t.dtype(), t.dims(), some.join(", "), if t.len() > 24 { ", …" } else { "" })
}

/// Lowers the programs to sdx functions in one module.
fn lower<'c>(context: &'c MlirContext, programs: &[Program]) -> Result<(Module<'c>, ParamStore)> {
    context.attach_diagnostic_handler(|_| true);
    let mut module = Module::new(Location::unknown(context));
    sardonyx_passes::set_version(Operation::of_module(&module));
    let mut params = ParamStore::new();
    for program in programs {
        let function = match &program.source {
            Source::Graph(graph) => graph.write(Context::new(context))?,
            Source::Model(model) => {
                let (function, more) = import(context, model, &program.name, &BTreeMap::new())?;
                params.extend(more);
                function
            }
        };
        params.extend(program.params.iter().map(|(name, t)| (name.clone(), t.clone())));
        mlir::Module::new(&mut module).push(function)?;
    }
    sardonyx_passes::run_pipeline(context, &mut module, "builtin.module(onnx-to-sdx)")?;
    Ok((module, params))
}

fn functions<'m>(module: &'m Module<'_>) -> Vec<Operation<'m>> {
    let all = Operation::of_module(module).block(0).map_or(vec![], |b| b.operations());
    all.into_iter().filter(|op| op.name() == "func.func").collect()
}

fn function_text(program: &Program) -> Result<String> {
    let context = sardonyx_passes::context();
    let (module, _) = lower(&context, std::slice::from_ref(program))?;
    Ok(functions(&module).iter().map(|f| f.to_string()).collect())
}

impl Compiled {
    fn new(programs: &[Program]) -> Result<Compiled> {
        let context = sardonyx_passes::context();
        let (mut module, params) = lower(&context, programs)?;
        let graphs = functions(&module).into_iter().map(|f| Graph::read_whole(f, Operation::of_module(&module)));
        let graphs = graphs.collect::<Result<Vec<Graph>>>()?;
        let texts = functions(&module).iter().map(|f| f.to_string()).collect();
        sardonyx_passes::run_pipeline(&context, &mut module, &pipeline())?;
        let plan = Plan::read(Operation::of_module(&module))?.ok_or_else(|| Error::defect("no plan was made"))?;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("programs.sdx");
        emit(&path, &plan, &params, &[Target::cpu()])?;
        let model = Model::load(&path, &trusted())?;
        let session = model.session(&SessionOptions::default().threads(1))?;
        Ok(Compiled { graphs, texts, params, session })
    }

    fn call(&self, program: &Program, graph: &Graph) -> std::result::Result<(), String> {
        let wanted =
            Expected::new(graph, &self.params, &program.inputs).map_err(|e| format!("the interpreter: {e}"))?;
        let given: Vec<(&str, Tensor)> = program.inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let got = self.session.run_entry(&program.name, &given).map_err(|e| format!("at the call: {e}"))?;
        wanted.compare(&got)
    }
}
