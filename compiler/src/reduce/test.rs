//! a candidate  =>  whether it still has the fault, by a command or by what a pipeline does to its outputs

use crate::compile::{Request, compile};
use crate::entries::Entries;
use crate::layers::{Bound, Values};
use crate::meaning::{Function, Named, call, functions, made_params, n_calls};
use crate::session::own;
use melior::Context;
use melior::ir::operation::OperationLike;
use sardonyx_base::{Error, Fault, Result, Tensor};
use sardonyx_runtime::{Model, SessionOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::time::{Duration, Instant};

/// A test that tells whether a candidate has the fault.
pub trait Test {
    /// Returns whether a module, given as text, has the fault.
    fn fails(&mut self, text: &str) -> Result<bool>;

    /// Advice that is printed if the original file does not fail the test.
    fn help(&self) -> String;
}

/// A command line for `bash`. It gets the candidate's path in place of `%s`, or as its last argument, and exits with 0
/// if the fault is still there.
pub struct Command {
    /// The command line, without the candidate's path or with `%s` in its place.
    pub line: String,
    /// The file that candidates are written to.
    pub file: PathBuf,
    /// Time after which the command is killed and the candidate is discarded.
    pub timeout: Duration,
}

impl Command {
    /// Like `fails`, for content that is not text.
    pub fn fails_on(&self, content: &[u8]) -> Result<bool> {
        std::fs::write(&self.file, content).map_err(|e| Error::io(&self.file, "write", &e))?;
        let path = format!("'{}'", self.file.display().to_string().replace('\'', r"'\''"));
        let line = match self.line.contains("%s") {
            true => self.line.replace("%s", &path),
            false => format!("{} {path}", self.line),
        };
        let quiet = || Stdio::null();
        let mut process = Process::new("bash");
        process.args(["-c", &line]).stdin(quiet()).stdout(quiet()).stderr(quiet());
        let mut child = process.spawn().map_err(|e| Error::io("bash", "start", &e))?;
        let end = Instant::now() + self.timeout;
        loop {
            match child.try_wait().map_err(|e| Error::io("bash", "wait for", &e))? {
                Some(status) => return Ok(status.success()),
                None if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
                None => {
                    // The process may have ended in the meantime.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Ok(false);
                }
            }
        }
    }
}

impl Test for Command {
    fn fails(&mut self, text: &str) -> Result<bool> {
        self.fails_on(text.as_bytes())
    }

    fn help(&self) -> String {
        "the command has to end with 0 where the fault is there".into()
    }
}

/// Returns the code of the error with which compiling or calling a model fails, E0501 if an output is wrong; `None` if
/// all outputs are right, if the compiler refuses the model, or if the interpreter accepts no synthetic call.
pub fn model_fails(content: &[u8], folder: &Path) -> Result<Option<&'static str>> {
    let (path, artifact) = (folder.join("candidate.onnx"), folder.join("candidate.sdx"));
    std::fs::write(&path, content).map_err(|e| Error::io(&path, "write", &e))?;
    let failed = |e: Box<Error>| match e.fault {
        Fault::Defect | Fault::Check => Ok(Some(e.code)),
        Fault::User => Ok(None),
    };
    let dims = BTreeMap::new();
    let values = match Values::read(&path, &dims) {
        Ok(values) => values,
        Err(e) => return failed(e),
    };
    let function = Function::Values(values.graph().clone());
    let mut calls = (0..n_calls(&function)).filter_map(|i| {
        let inputs = call(&function, i).ok()?;
        Some((values.interpret(&inputs).ok()?, inputs))
    });
    let Some((wanted, inputs)) = calls.next() else { return Ok(None) };
    let request = Request { entries: Entries::NONE, selftest: false, ..Request::new(&path, &artifact) };
    if let Err(e) = compile(&request) {
        return failed(e);
    }
    let session = Model::load(&artifact, &own())?.session(&SessionOptions::default())?;
    let given: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let outputs = match session.run(&given) {
        Ok(outputs) => outputs,
        Err(e) => return Ok(Some(e.code)),
    };
    let bound = Bound { rtol: 1e-3, atol: 1e-5 };
    let differs = |(name, value): &(String, Option<usize>)| {
        let wanted = value.and_then(|at| wanted[at].as_ref());
        let got = outputs.get(name);
        wanted.zip(got).is_some_and(|(wanted, got)| !bound.holds_for(wanted, got))
    };
    Ok(values.outputs.iter().any(differs).then_some("E0501"))
}

/// A test for the fault that a pipeline fails, or changes what the functions compute.
pub struct PassTest<'c> {
    context: &'c Context,
    pipeline: String,
    /// How the original file fails; candidates must fail in the same way.
    wanted: Option<Failure>,
}

/// How a pipeline fails on a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The first synthetic call whose outputs change.
    Differs {
        /// Number of the call, from 0.
        call: usize,
    },
    /// The pipeline fails with this error code.
    Error {
        /// The code, such as `E0901`.
        code: &'static str,
    },
}

impl<'c> PassTest<'c> {
    /// Creates a test for passes in MLIR's syntax, separated by commas.
    pub fn new(context: &'c Context, pipeline: &str) -> PassTest<'c> {
        PassTest { context, pipeline: format!("builtin.module({pipeline})"), wanted: None }
    }

    /// Returns how the pipeline fails on the module in `text`; `None` if it does not, or if the module is invalid or
    /// cannot be interpreted.
    pub fn failure(&self, text: &str) -> Result<Option<Failure>> {
        let Some(mut module) = sardonyx_passes::parse(self.context, text) else { return Ok(None) };
        if !module.as_operation().verify() {
            return Ok(None);
        }
        let before = functions(&module)?;
        let mut calls = calls(&before).peekable();
        // A function that cannot be interpreted has no outputs to compare.
        if calls.peek().is_none() {
            return Ok(None);
        }
        if let Err(e) = sardonyx_passes::run_pipeline(self.context, &mut module, &self.pipeline) {
            return Ok(Some(Failure::Error { code: e.code }));
        }
        let after = functions(&module)?;
        let differs = |called: &Called| {
            let same_name = after.iter().find(|f| f.name() == called.function.name());
            same_name.is_some_and(|f| !same(&called.outputs, &called.again(f)))
        };
        Ok(calls.find(differs).map(|called| Failure::Differs { call: called.call }))
    }
}

/// A synthetic call of a function and its outputs.
struct Called<'f> {
    function: &'f Function,
    call: usize,
    inputs: Named,
    outputs: Named,
}

/// Synthetic calls that the interpreter accepts, in order.
fn calls(functions: &[Function]) -> impl Iterator<Item = Called<'_>> {
    let one = |function, i| {
        let inputs = call(function, i).ok()?;
        let outputs = function.run(&made_params(function, i), &inputs).ok()?;
        Some(Called { function, call: i, inputs, outputs })
    };
    functions.iter().flat_map(move |f| (0..n_calls(f)).filter_map(move |i| one(f, i)))
}

impl Called<'_> {
    /// Repeats the call with the transformed function `now` and the same parameters. Returns the outputs; `None` if the
    /// interpreter fails.
    fn again(&self, now: &Function) -> Option<Named> {
        now.run(&made_params(self.function, self.call), &self.inputs).ok()
    }
}

/// Returns whether outputs are equal, up to the rounding errors that another order of operations causes.
fn same(wanted: &Named, got: &Option<Named>) -> bool {
    let bound = Bound { rtol: 1e-3, atol: 1e-5 };
    let Some(got) = got else { return false };
    wanted.len() == got.len() && wanted.iter().zip(got).all(|((_, w), (_, g))| bound.holds_for(w, g))
}

impl Test for PassTest<'_> {
    fn fails(&mut self, text: &str) -> Result<bool> {
        let found = self.failure(text)?;
        let wanted = self.wanted.get_or_insert_with(|| found.clone().unwrap_or(Failure::Differs { call: 0 }));
        Ok(match (wanted, &found) {
            (Failure::Differs { .. }, Some(Failure::Differs { .. })) => true,
            (Failure::Error { code }, Some(Failure::Error { code: other })) => code == other,
            (_, Some(_) | None) => false,
        })
    }

    fn help(&self) -> String {
        format!("`{}` must fail, or change what a function computes in small made-up calls", self.pipeline)
    }
}
