//! bisect MODEL.onnx  =>  the first rewrite that changes what the model computes, and a test for it

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

use super::say;
use crate::bisect::{Bisect, Guilty};
use crate::compile::{Request, compile, parse_dims};
use crate::entries::Entries;
use crate::layers::{Bound, Layers};
use crate::meaning::Named;
use crate::onnx::read_model;
use crate::reduce::{Failure, PassTest, Reduced, filecheck, reduce};
use crate::session::own;
use sardonyx_base::json::Json;
use sardonyx_base::{Error, Result};
use sardonyx_run::{DataSet, find_sets};
use sardonyx_runtime::{Model, SessionOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} bisect model.onnx
  {bin} bisect model.onnx --data test_data_set_0
  {bin} bisect model.onnx --dim seq=1..512 -o fault.mlir --json")]
pub struct BisectArgs {
    /// A model whose outputs are wrong
    #[arg(value_name = "MODEL.onnx")]
    pub model: PathBuf,
    /// Range of a dimension symbol: NAME=N or NAME=LO..HI
    #[arg(long = "dim", value_name = "NAME=RANGE")]
    pub dims: Vec<String>,
    /// A call with wrong outputs: a folder with `input_I.pb` and `output_I.pb` [default: small synthetic inputs, with the
    /// outputs that the interpreter computes from the import]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Tolerated difference relative to the expected value, for floats
    #[arg(long, default_value_t = 1e-3)]
    pub rtol: f64,
    /// Tolerated absolute difference
    #[arg(long, default_value_t = 1e-4)]
    pub atol: f64,
    /// The test to write for the rewrite that was found [default: the pass's name with .mlir]
    #[arg(short, long, value_name = "FILE.mlir")]
    pub output: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The test that was written (path, text, number of trials while reducing), or why there is none.
type Written = std::result::Result<(PathBuf, String, usize), String>;

/// Runs the command. The exit code is 1 if a stage or the generated code changes what the model computes, else 0.
pub fn bisect(args: &BisectArgs, out: &mut dyn Write) -> Result<i32> {
    let dims = parse_dims(&args.dims)?;
    let bound = Bound { rtol: args.rtol, atol: args.atol };
    let search = Bisect { model: &args.model, dims, bound };
    let data = args.data.as_deref().map(|dir| data(&args.model, dir)).transpose()?;
    let Some(guilty) = search.run(data.clone())? else { return code(args, &search, data, out) };
    let written = write(args, &guilty)?;
    match args.json {
        true => say(out, &json(&guilty, &written).to_string())?,
        false => print(args, &guilty, &written, out)?,
    }
    Ok(1)
}

/// Returns the inputs and expected outputs of the first data set in `dir`.
fn data(model: &Path, dir: &Path) -> Result<(Named, Named)> {
    let graph = read_model(model)?.graph;
    let named = |of: &[crate::onnx::ValueInfo]| of.iter().map(|v| (v.name.clone(), v.kind())).collect::<Vec<_>>();
    let sets = find_sets(dir)?;
    let DataSet { inputs, expected } = DataSet::named(&sets[0], &named(&graph.inputs), &named(&graph.outputs))?;
    Ok((inputs, expected))
}

/// Compares the generated code with the interpreter, after no pass was found to change what the model computes. Returns
/// the exit code.
fn code(args: &BisectArgs, search: &Bisect, data: Option<(Named, Named)>, out: &mut dyn Write) -> Result<i32> {
    let dir = tempfile::tempdir().map_err(|e| Error::io(std::env::temp_dir(), "create a folder in", &e))?;
    let artifact = dir.path().join("model.sdx");
    let mut request = Request::new(&args.model, &artifact);
    (request.dims, request.entries, request.selftest) = (search.dims.clone(), Entries::NONE, false);
    compile(&request)?;
    let session = Model::load(&artifact, &own())?.session(&SessionOptions::default())?;
    let layers = Layers::read(&args.model, &search.dims)?;
    let inputs = match data {
        Some((inputs, _)) => inputs,
        None => search.synthetic_inputs()?,
    };
    let wanted = layers.values.interpret(&inputs)?;
    let report = layers.compare(&session, &inputs, &wanted, search.bound)?;
    let node = report.first.as_ref().map(|f| f.node.clone());
    let text = match (report.passed(), &node) {
        (true, _) => "no pass changes what the model computes, and its code computes the same".to_string(),
        (false, Some(node)) => {
            format!("no pass changes what the model computes, but its code does, first at {node}; see `check --layers`")
        }
        (false, None) => {
            "no pass changes what the model computes, but its outputs are wrong; see `check --layers`".into()
        }
    };
    match args.json {
        true => {
            let members = vec![("stage", Json::Null), ("passed", report.passed().into()), ("node", node.into())];
            say(out, &Json::Object(members).to_string())?;
        }
        false => say(out, &format!("{}: {text}", args.model.display()))?,
    }
    Ok(!report.passed() as i32)
}

/// Reduces the program before the guilty stage, and writes a test.
fn write(args: &BisectArgs, guilty: &Guilty) -> Result<Written> {
    let context = sardonyx_passes::context();
    context.attach_diagnostic_handler(|_| true);
    let mut test = PassTest::new(&context, guilty.pipeline);
    let hints = guilty.rewrite.as_ref().map_or(vec![], |r| r.origins.clone());
    let Reduced { text, n_tests } = match reduce(&context, &guilty.before_stage, &mut test, &hints) {
        Ok(reduced) => reduced,
        Err(e) if e.code == "E0001" => return Ok(Err(format!("no small test: {}", e.message))),
        Err(e) => return Err(e),
    };
    let call = match test.failure(&text)? {
        Some(Failure::Differs { call }) => call,
        Some(Failure::Error { .. }) | None => 0,
    };
    let about = match &guilty.rewrite {
        Some(r) => vec![format!("{}, rule {}: it was seen at {}.", r.pass, r.rule, r.origins.join(" "))],
        None => vec![format!("{}, which rewrites nothing.", guilty.stage)],
    };
    let text = filecheck(&context, &text, guilty.pipeline, call, &about)?;
    let pass = guilty.rewrite.as_ref().map_or(guilty.stage, |r| r.pass);
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.mlir", pass.replace('-', "_"))));
    std::fs::write(&path, &text).map_err(|e| Error::io(&path, "write", &e))?;
    Ok(Ok((path, text, n_tests)))
}

fn print(args: &BisectArgs, guilty: &Guilty, written: &Written, out: &mut dyn Write) -> Result<()> {
    let Guilty { stage, what, n_rewrites, n_runs, .. } = guilty;
    say(out, &format!("{}: right until {stage}; after it {what}", args.model.display()))?;
    match &guilty.rewrite {
        Some(r) => say(out, &format!("rewrite {} ({n_rewrites} in this stage, {n_runs} runs)", r.line()))?,
        None => say(out, "no rewrite is to blame: it is so without any")?,
    }
    guilty.changes.iter().try_for_each(|line| say(out, &format!("  {line}")))?;
    match written {
        Ok((path, text, n_tests)) => {
            let n = text.lines().count();
            say(out, &format!("reduced in {n_tests} tests to {}, {n} lines:\n{text}", path.display()))
        }
        Err(why) => say(out, why),
    }
}

fn json(guilty: &Guilty, written: &Written) -> Json {
    let test = match written {
        Ok((path, text, n_tests)) => Json::Object(vec![
            ("file", path.display().to_string().into()),
            ("lines", text.lines().count().into()),
            ("tests", (*n_tests).into()),
        ]),
        Err(why) => Json::Object(vec![("none", why.as_str().into())]),
    };
    Json::Object(vec![
        ("stage", guilty.stage.into()),
        ("what", guilty.what.as_str().into()),
        ("rewrite", guilty.rewrite.as_ref().map_or(Json::Null, |r| r.json())),
        ("rewrites_in_stage", guilty.n_rewrites.into()),
        ("runs", guilty.n_runs.into()),
        ("changes", Json::list(guilty.changes.iter().map(String::as_str))),
        ("test", test),
    ])
}
