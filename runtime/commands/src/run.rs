//! run MODEL.sdx --input …  =>  the outputs, printed and saved

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

use super::inputs::{InputArgs, Missing, Wanted, gather};
use super::show::{file_name, summary};
use super::{EntryArgs, ModelArgs, ThreadArgs, put};
use sardonyx_base::json::Json;
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_format::tensor_io::save_npy;
use sardonyx_runtime::DeviceReport;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} run model.sdx --input input_ids=ids.npy --input attention_mask=mask.npy --output-dir out
  {bin} run model.sdx --inputs inputs.npz --threads 4
  {bin} run model.sdx --input 'input_ids=[[101,2023,102]]' --input 'attention_mask=[[1,1,1]]'
  {bin} run model.sdx --input image=random --dim batch=2 --output-dir out --json")]
pub struct RunArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub entry: EntryArgs,
    #[command(flatten)]
    pub inputs: InputArgs,
    /// Write every output to DIR/NAME.npy
    #[arg(long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
    /// Print one JSON object: names, types, dimensions and files of the outputs
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub threads: ThreadArgs,
}

/// Runs the model once. Returns the exit code: 1 if a simulated device reported faults in the kernels.
pub fn run(args: &RunArgs, out: &mut dyn Write) -> Result<i32> {
    let model = args.model.load()?;
    let wanted = Wanted { entry: &args.entry.entry, cache_len: None, missing: Missing::Refuse };
    let inputs = gather(&model, &args.inputs, &wanted).map_err(|e| e.file(model.file()))?.inputs;
    let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let outputs = args.threads.session(&model)?.run_entry(&args.entry.entry, &inputs)?;
    let files = match &args.output_dir {
        Some(dir) => save(dir, &outputs)?,
        None => vec![],
    };
    let device = model.device_report();
    let code = device.as_ref().is_some_and(|report| !report.findings.is_empty()) as i32;
    if args.json {
        return put!(out, "{}", json(&outputs, &files, device.as_ref())).map(|()| code);
    }
    for (name, tensor) in &outputs {
        put!(out, "{name} {}", summary(tensor))?;
    }
    files.iter().try_for_each(|file| put!(out, "wrote {}", file.display()))?;
    device.iter().try_for_each(|report| put!(out, "{}", report.text()))?;
    Ok(code)
}

fn json(outputs: &[(String, Tensor)], files: &[PathBuf], device: Option<&DeviceReport>) -> Json {
    let one = |(i, (name, tensor)): (usize, &(String, Tensor))| {
        Json::Object(vec![
            ("name", name.as_str().into()),
            ("dtype", tensor.dtype().name().into()),
            ("dims", Json::list(tensor.dims().iter().copied())),
            ("file", files.get(i).map(|f| f.display().to_string()).into()),
        ])
    };
    let outputs = ("outputs", Json::List(outputs.iter().enumerate().map(one).collect()));
    Json::Object([outputs].into_iter().chain(device.map(|report| ("device", report.json()))).collect())
}

/// Saves the outputs and returns their files, in the same order.
fn save(dir: &Path, outputs: &[(String, Tensor)]) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(dir).map_err(|e| Error::io(dir, "create the folder", &e))?;
    let (mut taken, mut files) = (Vec::new(), Vec::new());
    for (name, tensor) in outputs {
        let file = file_name(name, &taken);
        let path = dir.join(format!("{file}.npy"));
        save_npy(&path, tensor)?;
        files.push(path);
        taken.push(file);
    }
    Ok(files)
}
