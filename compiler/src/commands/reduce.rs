//! reduce FILE.mlir|MODEL.onnx --test COMMAND  =>  the smallest file found that fails; with `--pass`, a FileCheck test

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

use super::say;
use crate::module::lower_model;
use crate::onnx::read_model;
use crate::pipeline::{self, STAGES, Watch};
use crate::reduce::{self as reducing, Command, Failure, PassTest, Reduced, Whole, filecheck, model_fails};
use melior::Context;
use sardonyx_base::{Error, Result};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} reduce fault.mlir --pass simplify
  {bin} reduce model.onnx --pass simplify -o fault.mlir
  {bin} reduce fault.mlir --test 'sardonyx-opt %s --pass-pipeline=\"builtin.module(sdx-to-flow)\" 2>&1 | grep E0901'
  {bin} reduce model.onnx --fails-check -o small.onnx
  {bin} reduce model.onnx --test './still-wrong.sh' -o small.onnx")]
#[command(group(clap::ArgGroup::new("fault").required(true).args(["test", "pass", "fails_check"])))]
pub struct ReduceArgs {
    /// The file to shrink: IR of the level `sdx` or `flow`, or an ONNX model
    #[arg(value_name = "FILE.mlir|MODEL.onnx")]
    pub file: PathBuf,
    /// A bash command that exits with 0 if the candidate still has the fault. The candidate's path replaces `%s`, or else
    /// is the last argument
    #[arg(long, value_name = "COMMAND")]
    pub test: Option<String>,
    /// Passes that fail or change what a function computes: a candidate has the fault if they still do. The result is a
    /// FileCheck test. An ONNX model is first lowered to the stage before the first of these passes
    #[arg(long, value_name = "PIPELINE")]
    pub pass: Option<String>,
    /// A candidate has the fault if its compiled outputs differ from those that the interpreter computes from the import,
    /// or if the compiler reports a defect
    #[arg(long)]
    pub fails_check: bool,
    /// Kill the command of `--test` after this many seconds, and discard the candidate
    #[arg(long, value_name = "S", default_value_t = 60)]
    pub timeout: u64,
    /// The file to write [default: beside the given file, with `.reduced.mlir` or `.reduced.onnx`]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Runs the command. Errors: E0001 if the file does not have the fault, or if the output would replace it.
pub fn reduce(args: &ReduceArgs, out: &mut dyn Write) -> Result<()> {
    let is_model = args.file.extension().is_none_or(|e| e != "mlir");
    let extension = if is_model && args.pass.is_none() { "onnx" } else { "mlir" };
    let output = args.output.clone().unwrap_or_else(|| args.file.with_extension(format!("reduced.{extension}")));
    refuse_overwriting(&args.file, &output)?;
    let context = sardonyx_passes::context();
    context.attach_diagnostic_handler(|_| true);
    let folder = tempfile::tempdir().map_err(|e| Error::io(std::env::temp_dir(), "create a folder in", &e))?;
    let command = |line: &str| Command {
        line: line.into(),
        file: folder.path().join(format!("candidate.{extension}")),
        timeout: Duration::from_secs(args.timeout),
    };
    let named = |e: Box<Error>| e.file(args.file.display().to_string());
    let (content, n_tests, text) = match (&args.test, &args.pass) {
        (_, Some(pipeline)) => {
            let text = if is_model { before(&context, &args.file, pipeline)? } else { read(&args.file)? };
            let (text, n_tests) = by_pass(&context, &text, pipeline).map_err(named)?;
            (text.clone().into_bytes(), n_tests, Some(text))
        }
        (Some(line), None) if is_model => {
            let (bytes, n_tests) = by_model(&args.file, &mut |content| command(line).fails_on(content))?;
            (bytes, n_tests, None)
        }
        (None, None) if is_model => {
            let (bytes, n_tests) = by_check(&args.file, folder.path())?;
            (bytes, n_tests, None)
        }
        (Some(line), None) => {
            let text = read(&args.file)?;
            let reduced = reducing::reduce(&context, &text, &mut command(line), &[]).map_err(named)?;
            (reduced.text.clone().into_bytes(), reduced.n_tests, Some(reduced.text))
        }
        (None, None) => {
            return Err(Error::user("E0001", "`--fails-check` compiles a model, and IR is none")
                .help("give `--pass PIPELINE` or `--test COMMAND` for a file of IR"));
        }
    };
    std::fs::write(&output, &content).map_err(|e| Error::io(&output, "write", &e))?;
    let bytes = content.len();
    match text {
        Some(text) => {
            let n = text.lines().count();
            say(out, &format!("{}: {n} lines, after {n_tests} tests\n{text}", output.display()))
        }
        None => say(out, &format!("{}: {bytes} bytes, after {n_tests} tests", output.display())),
    }
}

/// Refuses an output that would replace the input file. Errors: E0001.
fn refuse_overwriting(file: &Path, output: &Path) -> Result<()> {
    match (file.canonicalize(), output.canonicalize()) {
        (Ok(a), Ok(b)) if a == b => {
            let message = format!("the output {} is the file itself", output.display());
            Err(Error::user("E0001", message).help("name another file with -o"))
        }
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", &e))
}

/// The IR of the model before the stage that contains the first of the passes.
fn before(context: &Context, path: &Path, passes: &str) -> Result<String> {
    let first = passes.split(',').next().unwrap_or_default();
    let at = STAGES.iter().position(|(_, of)| of.split(',').any(|pass| pass == first));
    // For a pass that belongs to no stage, the IR right after the import is taken.
    let at = at.filter(|at| *at >= 2).unwrap_or(2);
    let lowered = || {
        let (mut module, _) = lower_model(context, &read_model(path)?, &BTreeMap::new())?;
        let stop_after = Some(STAGES[at - 1].0.to_string());
        pipeline::run(context, &mut module, &Watch { stop_after, ..Watch::default() }, &mut |_| Ok(()))?;
        pipeline::text(&module)
    };
    lowered().map_err(|e: Box<Error>| e.file(path.display().to_string()))
}

fn by_pass(context: &Context, text: &str, pipeline: &str) -> Result<(String, usize)> {
    let mut test = PassTest::new(context, pipeline);
    let Reduced { text, n_tests } = reducing::reduce(context, text, &mut test, &[])?;
    let (call, about) = match test.failure(&text)? {
        Some(Failure::Differs { call }) => (call, format!("{pipeline} changed what the function computes.")),
        Some(Failure::Error { code }) => (0, format!("{pipeline} failed with {code}.")),
        None => (0, String::new()),
    };
    Ok((filecheck(context, &text, pipeline, call, &[about])?, n_tests))
}

fn by_model(path: &Path, test: &mut dyn FnMut(&[u8]) -> Result<bool>) -> Result<(Vec<u8>, usize)> {
    let reduced = Whole::read(path).and_then(|whole| reducing::reduce_model(&whole, test));
    reduced.map_err(|e| e.file(path.display().to_string()))
}

/// Reduces by comparison with the interpreter; candidates must fail in the same way as the model itself.
fn by_check(path: &Path, folder: &Path) -> Result<(Vec<u8>, usize)> {
    let mut wanted = None;
    by_model(path, &mut |content| {
        let found = model_fails(content, folder)?;
        Ok(found.is_some() && found == *wanted.get_or_insert(found))
    })
}
