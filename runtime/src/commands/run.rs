//! run MODEL.sdx --input …  =>  the outputs, printed and saved

use super::inputs::{InputArgs, Missing, gather};
use super::show::{file_name, summary};
use super::{ModelArgs, ThreadArgs, put};
use crate::tensor_io::save_npy;
use crate::{Error, Result, Tensor};
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub inputs: InputArgs,
    /// Write every output to DIR/NAME.npy
    #[arg(long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
    #[command(flatten)]
    pub threads: ThreadArgs,
}

pub fn run(args: &RunArgs, out: &mut dyn Write) -> Result<()> {
    let model = args.model.load()?;
    let inputs = gather(&model, &args.inputs, Missing::Refuse).map_err(|e| e.file(model.file()))?;
    let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let outputs = args.threads.session(&model)?.run(&inputs)?;
    for (name, tensor) in &outputs {
        put!(out, "{name} {}", summary(tensor))?;
    }
    match &args.output_dir {
        Some(dir) => save(dir, &outputs, out),
        None => Ok(()),
    }
}

fn save(dir: &Path, outputs: &[(String, Tensor)], out: &mut dyn Write) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|e| Error::io(dir, "create the folder", &e))?;
    let mut taken = Vec::new();
    for (name, tensor) in outputs {
        let file = file_name(name, &taken);
        let path = dir.join(format!("{file}.npy"));
        save_npy(&path, tensor)?;
        put!(out, "wrote {}", path.display())?;
        taken.push(file);
    }
    Ok(())
}
