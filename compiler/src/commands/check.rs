//! check MODEL.onnx|MODEL.sdx --data DIR…  =>  errors of the compiled model's outputs, and of the interpreter's

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

use super::Progress;
use super::layers::check_layers;
use super::values::named;
use crate::compile::{Request, compile_shown, parse_dims};
use crate::entries::Entries;
use crate::layers::Layers;
use crate::reference::Reference;
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_passes::Precision;
use sardonyx_run::{CheckSummary, DataArgs, LoadArgs, ThreadArgs, check_model};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} check model.onnx --data test_data_set_0
  {bin} check model.onnx --data folder-of-data-sets --dim seq=1..512 --rtol 1e-2 --atol 1e-3
  {bin} check model.onnx --data test_data_set_0 --device sim:sm_80
  {bin} check model.onnx --data test_data_set_0 --layers
  {bin} check model.sdx --data test_data_set_0 --json")]
pub struct CheckArgs {
    /// An ONNX model, which is compiled for the check, or an artifact
    #[arg(value_name = "MODEL.onnx|MODEL.sdx")]
    pub model: PathBuf,
    /// Range of a dimension symbol of an ONNX model: NAME=N or NAME=LO..HI
    #[arg(long = "dim", value_name = "NAME=RANGE")]
    pub dims: Vec<String>,
    /// Type of the operands of contractions and attention of an ONNX model, as in `compile --precision`
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = named::<Precision>(), conflicts_with = "layers")]
    pub precision: Precision,
    /// Do not run an ONNX model in the interpreter as well, which is slow
    #[arg(long)]
    pub no_interpreter: bool,
    /// Compare the value of every node with the interpreter's, and name the first node that differs and the first NaN
    #[arg(long)]
    pub layers: bool,
    /// Compare with files in this folder instead of the interpreter: `NAME.npy` or `NAME.pb`, named as the ONNX values
    #[arg(long, value_name = "DIR", requires = "layers")]
    pub values: Option<PathBuf>,
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub threads: ThreadArgs,
}

/// Runs the command; an ONNX model is first compiled into a temporary folder.
pub fn check(args: &CheckArgs, out: &mut dyn Write) -> Result<CheckSummary> {
    match is_artifact(&args.model)? {
        true => check_artifact(args, out),
        false => check_onnx(args, out),
    }
}

fn check_artifact(args: &CheckArgs, out: &mut dyn Write) -> Result<CheckSummary> {
    if let Some(dim) = args.dims.first() {
        let message = format!("`--dim {dim}` says how to compile, but {} is compiled", args.model.display());
        return Err(Error::user("E0001", message).help("give `--dim` to `sardonyx compile`"));
    }
    if args.precision != Precision::F32 {
        let message = format!("`--precision` says how to compile, but {} is compiled", args.model.display());
        return Err(Error::user("E0001", message).help("give `--precision` to `sardonyx compile`"));
    }
    if args.layers {
        let message = format!("`--layers` compares with a model's nodes, which {} does not hold", args.model.display());
        return Err(Error::user("E0001", message).help("give the ONNX model"));
    }
    let model = args.load.load(&args.model)?;
    check_model(&args.threads.session(&model)?, &args.data, None, out)
}

fn check_onnx(args: &CheckArgs, out: &mut dyn Write) -> Result<CheckSummary> {
    let dir = tempfile::tempdir().map_err(|e| Error::io(std::env::temp_dir(), "create a folder in", &e))?;
    let stem = args.model.file_stem().unwrap_or("model".as_ref());
    let artifact = dir.path().join(stem).with_extension("sdx");
    let mut request = Request::new(&args.model, &artifact);
    request.dims = parse_dims(&args.dims)?;
    request.options.precision = args.precision;
    // Only `main` is called.
    request.entries = Entries::NONE;
    request.targets = crate::targets::of_device(&args.load.device);
    // A simulated device would skip the self-test.
    request.selftest = !args.load.no_selftest && !args.load.device.is_simulated();
    let progress = Progress::on_terminal();
    compile_shown(&request, &mut |stage| progress.show(stage))?;
    let reference = match args.no_interpreter || args.layers {
        true => None,
        false => Some(Reference::read(&args.model, &request.dims)?),
    };
    let model = args.load.load(&artifact)?;
    let session = args.threads.session(&model)?;
    if args.layers {
        let layers = Layers::read(&args.model, &request.dims)?;
        drop(progress);
        return check_layers(&layers, &session, args, out);
    }
    drop(progress);
    match reference {
        None => check_model(&session, &args.data, None, out),
        Some(reference) => {
            let run = |inputs: &[(String, Tensor)]| reference.run(inputs);
            check_model(&session, &args.data, Some(&run), out)
        }
    }
}

/// Returns whether the file is an artifact and not an ONNX model: whether it begins like a ZIP archive, which no ONNX
/// model does, or its name ends in `.sdx`.
fn is_artifact(path: &Path) -> Result<bool> {
    let fail = |e: std::io::Error| Error::io(path, "read", &e);
    let mut start = [0; 4];
    // Checked before opening, because opening a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(fail)?.is_file() {
        return Err(Error::user("E0002", format!("{} is not a regular file", path.display())));
    }
    let file = std::fs::File::open(path).map_err(fail)?;
    let n = file.take(4).read(&mut start).map_err(fail)?;
    Ok(start[..n] == *b"PK\x03\x04" || path.extension().is_some_and(|e| e == "sdx"))
}
