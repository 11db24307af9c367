//! a folder in the layout of sentence-transformers  =>  its embedder, and the path of its model

use super::{Embedder, Layer, Pooling};
use safetensors::SafeTensors;
use sardonyx_base::{DType, Error, Result, Tensor};
use sardonyx_passes::Named;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Path of the model in a folder: `onnx/model.onnx`, `model.onnx`, or the only ONNX file. Errors: E0002.
pub fn model_file(folder: &Path) -> Result<PathBuf> {
    let usual = ["onnx/model.onnx", "model.onnx"].map(|name| folder.join(name));
    if let Some(path) = usual.into_iter().find(|path| path.is_file()) {
        return Ok(path);
    }
    let mut found: Vec<PathBuf> = vec![];
    for place in [folder.to_path_buf(), folder.join("onnx")] {
        let Ok(entries) = place.read_dir() else { continue };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        found.extend(paths.filter(|path| path.extension().is_some_and(|e| e == "onnx") && path.is_file()));
    }
    found.sort();
    let (message, help) = match &found[..] {
        [one] => return Ok(one.clone()),
        [] => (
            "the folder has no model.onnx".to_string(),
            "export the model to ONNX into this folder, or give `--onnx FILE`".to_string(),
        ),
        several => {
            let names: Vec<String> = several.iter().map(|path| path.display().to_string()).collect();
            ("the folder has several models".to_string(), format!("give one with `--onnx`: {}", names.join(", ")))
        }
    };
    Err(Error::user("E0002", message).file(folder.display().to_string()).help(help))
}

/// A step of `modules.json`.
#[derive(Deserialize)]
struct Module {
    #[serde(default)]
    path: String,
    r#type: String,
}

#[derive(Deserialize)]
struct Sentence {
    max_seq_length: Option<i64>,
    #[serde(default)]
    do_lower_case: bool,
}

#[derive(Deserialize)]
struct Prompts {
    #[serde(default)]
    prompts: BTreeMap<String, String>,
    default_prompt_name: Option<String>,
}

/// Configuration of a pooling step: one flag for each pooling, or `pooling_mode` with one name or a list of names.
#[derive(Deserialize)]
struct PoolingConfig {
    pooling_mode: Option<Names>,
    #[serde(default)]
    pooling_mode_cls_token: bool,
    #[serde(default)]
    pooling_mode_max_tokens: bool,
    #[serde(default)]
    pooling_mode_mean_tokens: bool,
    #[serde(default)]
    pooling_mode_mean_sqrt_len_tokens: bool,
    #[serde(default)]
    pooling_mode_weightedmean_tokens: bool,
    #[serde(default)]
    pooling_mode_lasttoken: bool,
    include_prompt: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Names {
    One(String),
    Several(Vec<String>),
}

/// Settings of generation, from `generation_config.json`, or from `config.json` if the former lacks them.
#[derive(Deserialize)]
struct Generation {
    eos_token_id: Option<Ids>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Ids {
    One(i64),
    Several(Vec<i64>),
}

#[derive(Deserialize)]
struct DenseConfig {
    activation_function: Option<String>,
}

/// Reads the settings of a folder; without `modules.json` there is no pooling. Errors, with the file: E0002, and E0103
/// for damaged files and unsupported steps.
pub fn embedder_folder(folder: &Path) -> Result<Embedder> {
    let mut reading = Reading { folder, files: vec![] };
    let modules: Option<Vec<Module>> = reading.json("modules.json")?;
    let mut made = Embedder::default();
    let mut at = String::new();
    for module in modules.unwrap_or_default() {
        let kind = module.r#type.rsplit('.').next().unwrap_or_default();
        let file = |name: &str| match module.path.as_str() {
            "" => name.to_string(),
            path => format!("{path}/{name}"),
        };
        match kind {
            "Transformer" => at.clone_from(&module.path),
            "Pooling" => {
                let config: PoolingConfig = reading.needed(&file("config.json"))?;
                made.poolings = config.poolings().map_err(|e| e.file(reading.name(&file("config.json"))))?;
                if config.include_prompt == Some(false) {
                    let message = "pooling leaves the tokens of a prompt out, which is not supported";
                    return Err(Error::user("E0103", message).file(reading.name(&file("config.json"))));
                }
            }
            "Dense" => {
                let config: DenseConfig = reading.needed(&file("config.json"))?;
                let mut tensors = reading.tensors(&file("model.safetensors"))?;
                made.layers.push(Layer::Dense {
                    weight: tensors.take("linear.weight", 2)?,
                    bias: tensors.optional("linear.bias", 1)?,
                    activation: activation(config.activation_function.as_deref())
                        .map_err(|e| e.file(reading.name(&file("config.json"))))?,
                });
            }
            "LayerNorm" => {
                let mut tensors = reading.tensors(&file("model.safetensors"))?;
                made.layers.push(Layer::LayerNorm {
                    scale: tensors.take("norm.weight", 1)?,
                    bias: tensors.take("norm.bias", 1)?,
                });
            }
            "Normalize" => made.layers.push(Layer::Normalize),
            // Dropout has an effect only in training.
            "Dropout" => {}
            other => {
                let error = Error::user("E0103", format!("the step `{other}` is not supported"));
                return Err(error
                    .file(reading.name("modules.json"))
                    .help("supported are Transformer, Pooling, Dense, LayerNorm, Normalize and Dropout"));
            }
        }
    }
    if !made.layers.is_empty() && made.poolings.is_empty() {
        let error = Error::user("E0103", "steps follow, but nothing pools the vectors of tokens before them");
        return Err(error.file(reading.name("modules.json")).help("give `--pooling` and `--onnx FILE` in its place"));
    }
    let beside = |name: &str| if at.is_empty() { name.to_string() } else { format!("{at}/{name}") };
    if let Some(sentence) = reading.json::<Sentence>(&beside("sentence_bert_config.json"))? {
        made.max_tokens = sentence.max_seq_length.filter(|n| *n > 0);
        made.lower_case = sentence.do_lower_case;
    }
    if let Some(prompts) = reading.json::<Prompts>("config_sentence_transformers.json")? {
        (made.prompts, made.default_prompt) = (prompts.prompts, prompts.default_prompt_name);
        if made.default_prompt.as_ref().is_some_and(|name| !made.prompts.contains_key(name)) {
            let error = Error::user("E0103", "`default_prompt_name` names no prompt");
            return Err(error.file(reading.name("config_sentence_transformers.json")));
        }
    }
    for name in ["generation_config.json", "config.json"] {
        made.eos_token_ids = match reading.json::<Generation>(&beside(name))?.and_then(|read| read.eos_token_id) {
            Some(Ids::One(id)) => vec![id],
            Some(Ids::Several(ids)) => ids,
            None => continue,
        };
        break;
    }
    let path = [beside("tokenizer.json"), "tokenizer.json".to_string()].map(|name| folder.join(name));
    if let Some(path) = path.into_iter().find(|path| path.is_file()) {
        made.tokenizer = Some(tokenizer(&path)?);
        reading.files.push(path);
    }
    if made.max_tokens.is_none() {
        made.max_tokens = made.tokenizer.as_deref().and_then(truncation);
    }
    made.files = reading.files;
    Ok(made)
}

/// Reads the bytes of a `tokenizer.json`. Errors: E0002; E0103 if it is not one.
pub fn tokenizer(path: &Path) -> Result<Vec<u8>> {
    let bytes = std::fs::read(path).map_err(|e| Error::io(path, "read", &e))?;
    let has_model = |value: serde_json::Value| value.get("model").is_some_and(serde_json::Value::is_object);
    match serde_json::from_slice(&bytes).is_ok_and(has_model) {
        true => Ok(bytes),
        false => Err(Error::user("E0103", "the file is not a tokenizer.json").file(path.display().to_string()).help(
            "save the tokenizer with `tokenizer.save(\"tokenizer.json\")`, or a fast tokenizer with `save_pretrained`",
        )),
    }
}

/// The number of tokens to which the tokenizer truncates.
fn truncation(tokenizer: &[u8]) -> Option<i64> {
    let value: serde_json::Value = serde_json::from_slice(tokenizer).ok()?;
    value.get("truncation")?.get("max_length")?.as_i64().filter(|n| *n > 0)
}

impl PoolingConfig {
    fn poolings(&self) -> Result<Vec<Pooling>> {
        let words = [
            (self.pooling_mode_cls_token, Pooling::Cls),
            (self.pooling_mode_max_tokens, Pooling::Max),
            (self.pooling_mode_mean_tokens, Pooling::Mean),
            (self.pooling_mode_mean_sqrt_len_tokens, Pooling::MeanSqrtLen),
            (self.pooling_mode_weightedmean_tokens, Pooling::WeightedMean),
            (self.pooling_mode_lasttoken, Pooling::LastToken),
        ];
        let mut found: Vec<Pooling> = words.into_iter().filter(|(is_set, _)| *is_set).map(|(_, way)| way).collect();
        let names = match &self.pooling_mode {
            None => &[][..],
            Some(Names::One(name)) => std::slice::from_ref(name),
            Some(Names::Several(names)) => names,
        };
        for name in names {
            found.push(pooling_named(name)?);
        }
        found.sort();
        found.dedup();
        match found.is_empty() {
            true => Err(Error::user("E0103", "no way of pooling is set").help("give `--pooling`")),
            false => Ok(found),
        }
    }
}

/// Looks up a pooling by its name in sentence-transformers.
fn pooling_named(name: &str) -> Result<Pooling> {
    let ours = match name {
        "mean_sqrt_len_tokens" => "mean-sqrt-len",
        "weightedmean" => "weighted-mean",
        "lasttoken" => "last-token",
        other => other,
    };
    Pooling::from_name(ours).ok_or_else(|| {
        let names: Vec<&str> = Pooling::NAMES.iter().map(|(name, _)| *name).collect();
        let error = Error::user("E0103", format!("the pooling `{name}` is not supported"));
        error.help(format!("supported are {}", names.join(", ")))
    })
}

/// ONNX operator of an activation such as `torch.nn.modules.activation.Tanh`, the default; `None` for the identity.
fn activation(name: Option<&str>) -> Result<Option<&'static str>> {
    let name = name.unwrap_or("Tanh");
    match name.rsplit('.').next().unwrap_or_default() {
        "Identity" => Ok(None),
        "Tanh" => Ok(Some("Tanh")),
        "ReLU" => Ok(Some("Relu")),
        "Sigmoid" => Ok(Some("Sigmoid")),
        _ => Err(Error::user("E0103", format!("the activation `{name}` is not supported"))
            .help("supported are Identity, Tanh, ReLU and Sigmoid")),
    }
}

/// A folder, and those of its files that were read.
struct Reading<'f> {
    folder: &'f Path,
    files: Vec<PathBuf>,
}

impl Reading<'_> {
    fn name(&self, file: &str) -> String {
        self.folder.join(file).display().to_string()
    }

    /// Parses a JSON file of the folder; `None` if there is no such file. Errors: E0002, E0103.
    fn json<T: DeserializeOwned>(&mut self, file: &str) -> Result<Option<T>> {
        let path = self.folder.join(file);
        if !path.exists() {
            return Ok(None);
        }
        let bytes = std::fs::read(&path).map_err(|e| Error::io(&path, "read", &e))?;
        let value = serde_json::from_slice(&bytes).map_err(|e| {
            Error::user("E0103", format!("it is not understood: {e}"))
                .file(self.name(file))
                .help("save the model again with sentence-transformers")
        });
        self.files.push(path);
        value.map(Some)
    }

    fn needed<T: DeserializeOwned>(&mut self, file: &str) -> Result<T> {
        self.json(file)?.ok_or_else(|| {
            Error::user("E0002", format!("{} is missing, and `modules.json` names it", self.name(file)))
                .help("copy the whole folder")
        })
    }

    fn tensors(&mut self, file: &str) -> Result<Tensors> {
        let path = self.folder.join(file);
        let bytes = std::fs::read(&path)
            .map_err(|e| Error::io(&path, "read", &e).help("save the model again with `safe_serialization=True`"))?;
        let wrong = |e: safetensors::SafeTensorError| {
            Error::user("E0103", format!("it is not a file of safetensors: {e}")).file(self.name(file))
        };
        let tensors = SafeTensors::deserialize(&bytes).map_err(wrong)?;
        let found = tensors.tensors().into_iter().map(|(name, view)| {
            let dtype = match view.dtype() {
                safetensors::Dtype::F32 => Some(DType::F32),
                safetensors::Dtype::F16 => Some(DType::F16),
                safetensors::Dtype::BF16 => Some(DType::BF16),
                _ => None,
            };
            let tensor = dtype.map(|dtype| Tensor::new(dtype, view.shape().to_vec(), view.data().to_vec().into()));
            (name, tensor.and_then(Result::ok))
        });
        let found = found.collect();
        self.files.push(path);
        Ok(Tensors { file: self.name(file), found })
    }
}

/// The tensors of a file by name; `None` for those of an unsupported type.
struct Tensors {
    file: String,
    found: BTreeMap<String, Option<Tensor>>,
}

impl Tensors {
    fn optional(&mut self, name: &str, rank: usize) -> Result<Option<Tensor>> {
        match self.found.remove(name) {
            None => Ok(None),
            Some(Some(tensor)) if tensor.rank() == rank => Ok(Some(tensor)),
            Some(_) => Err(Error::user("E0103", format!("`{name}` is no tensor of floats with {rank} dimensions"))
                .file(&self.file)),
        }
    }

    fn take(&mut self, name: &str, rank: usize) -> Result<Tensor> {
        let tensor = self.optional(name, rank)?;
        tensor.ok_or_else(|| Error::user("E0103", format!("there is no tensor `{name}`")).file(&self.file))
    }
}
