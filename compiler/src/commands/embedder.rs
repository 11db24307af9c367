//! flags of an embedder  =>  the embedder of a model, and the line that is printed about padding

use super::values::named;
use crate::compile::Report;
use crate::embedder::{self, Embedder, Flags, Pooling};
use sardonyx_base::{Error, Result};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Embedders")]
pub struct EmbedderArgs {
    /// The ONNX file of a folder [default: onnx/model.onnx, model.onnx, or the only ONNX file]
    #[arg(long, value_name = "FILE")]
    pub onnx: Option<PathBuf>,
    /// How to pool the vectors of a text's tokens into one, which becomes the only output; several poolings are
    /// concatenated [default: the folder's]
    #[arg(long, value_name = "WAY", value_parser = named::<Pooling>())]
    pub pooling: Vec<Pooling>,
    /// Scale embeddings to length 1
    #[arg(long)]
    pub normalize: bool,
    /// The tokenizer to store in the artifact, for serving [default: the folder's]
    #[arg(long, value_name = "tokenizer.json")]
    pub tokenizer: Option<PathBuf>,
    /// Truncate texts to this many tokens [default: the folder's limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub max_tokens: Option<i64>,
}

impl EmbedderArgs {
    /// Path of the ONNX file: `model` itself, or the model of that folder. Errors: E0001, E0002.
    pub fn model_file(&self, model: &Path) -> Result<PathBuf> {
        match (model.is_dir(), &self.onnx) {
            (true, None) => embedder::model_file(model),
            (true, Some(file)) => Ok(file.clone()),
            (false, None) => Ok(model.to_path_buf()),
            (false, Some(_)) => {
                let error = Error::user("E0001", "`--onnx` names the model of a folder, and no folder is given");
                Err(error.help("give the model itself, or its folder"))
            }
        }
    }

    /// The embedder of a model or folder, if there is any. Errors: E0001, E0002, E0103.
    pub fn embedder(&self, model: &Path) -> Result<Option<Embedder>> {
        let flags = Flags {
            poolings: self.pooling.clone(),
            normalize: self.normalize,
            tokenizer: self.tokenizer.clone(),
            max_tokens: self.max_tokens,
        };
        Embedder::new(model.is_dir().then_some(model), &flags)
    }
}

/// Output path beside the model: `model.onnx` => `model.sdx`, and for a folder `bge-small-v1.5` => `bge-small-v1.5.sdx`
pub fn default_output(model: &Path) -> PathBuf {
    if !model.is_dir() {
        return model.with_extension("sdx");
    }
    // `.` and `..` get a name when they are resolved.
    let folder = if model.file_name().is_some() { Ok(model.to_path_buf()) } else { model.canonicalize() };
    let folder = folder.unwrap_or_default();
    let name = folder.file_name().map_or("model".into(), |name| name.to_string_lossy());
    folder.with_file_name(format!("{name}.sdx"))
}

/// Explains why positions of padding are computed; `None` if they are not.
pub fn padding_line(report: &Report) -> Option<String> {
    if report.rewrites.applied().iter().any(|rewrite| rewrite.pass == "remove-padding") {
        return None;
    }
    let missed = report.rewrites.remarks().iter().find(|remark| remark.pass == "remove-padding").map(|r| &r.missed);
    let why = missed.map_or("no attention hides keys by the mask", |missed| missed.reason);
    let node = missed.and_then(|missed| missed.node.as_ref()).map_or(String::new(), |node| format!(", node {node}"));
    let help = missed.and_then(|missed| missed.remedy).unwrap_or("batch texts of equal length");
    Some(format!("padding: computed, {why}{node}; {help}"))
}
