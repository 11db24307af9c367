//! text  =>  token ids  =>  a job;  its output  =>  the embedding of the text

use crate::ports::Ports;
use crate::refusal::{Answer, Refusal};
use crate::served::Asked;
use axum::http::StatusCode;
use sardonyx_base::{DType, Error, Result, Tensor};
use sardonyx_runtime::{Model, Port};
use serde::Deserialize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use tokenizers::{Encoding, Tokenizer, TruncationParams};

/// The names that `sardonyx compile` attaches the files under.
const TOKENIZER: &str = "tokenizer.json";
const SETTINGS: &str = "embedder.json";

/// A text is no longer than this, whatever becomes of it: tokens are counted when the work is done.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// `embedder.json`
#[derive(Deserialize, Clone, Debug, Default)]
struct Settings {
    /// The output that has the embeddings; where absent, the vectors of the tokens are averaged here.
    output: Option<String>,
    #[serde(default)]
    normalized: bool,
    max_tokens: Option<usize>,
    #[serde(default)]
    lower_case: bool,
    #[serde(default)]
    prompts: Vec<Prompt>,
    default_prompt: Option<String>,
    #[serde(default)]
    pooling: Vec<String>,
}

#[derive(Deserialize, Clone, Debug)]
struct Prompt {
    name: String,
    text: String,
}

pub struct Embedder {
    tokenizer: Option<Tokenizer>,
    settings: Settings,
    /// The role of each input of the model.
    roles: Vec<(Role, DType)>,
    output: Output,
    /// Numbers of an embedding, where the model says so.
    width: Option<usize>,
    pub max_tokens: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Ids,
    Mask,
    Types,
    Positions,
}

static ROLES: &[(&str, Role)] = &[
    ("attention_mask", Role::Mask),
    ("input_ids", Role::Ids),
    ("position_ids", Role::Positions),
    ("token_type_ids", Role::Types),
];

/// The output that embeddings are made of.
enum Output {
    /// `[batch, width]`
    Embeddings(String),
    /// `[batch, seq, width]`
    Tokens(String),
}

/// A text, or its tokens.
pub enum Input {
    Text(String),
    Ids(Vec<u32>),
}

impl Embedder {
    /// `None` where the model takes no tokens, or has no output that could be an embedding. Errors: E0401 for attached files
    /// that are damaged, E0002 for a tokenizer that cannot be read.
    pub fn load(model: &Model, ports: &Ports, fallback: Option<&Path>) -> Result<Option<Embedder>> {
        let damaged = |name: &str, e: &dyn std::fmt::Display| {
            Error::user("E0401", format!("the attached `{name}` is damaged: {e}")).file(model.file())
        };
        let settings = model.attached(SETTINGS).map(serde_json::from_slice::<Settings>).transpose();
        let settings = settings.map_err(|e| damaged(SETTINGS, &e))?.unwrap_or_default();
        let Some((roles, output)) = roles(ports).zip(output(ports, &settings)) else { return Ok(None) };
        let attached = model.attached(TOKENIZER).map(Tokenizer::from_bytes).transpose();
        let tokenizer = match (attached.map_err(|e| damaged(TOKENIZER, &e))?, fallback) {
            (Some(attached), _) => Some(attached),
            (None, Some(path)) => Some(Tokenizer::from_file(path).map_err(|e| {
                let error = Error::user("E0002", format!("cannot load the tokenizer {}: {e}", path.display()));
                error.help("give a `tokenizer.json`")
            })?),
            (None, None) => None,
        };
        let length = ports.inputs()[0].dims.get(1).and_then(|dim| dim.as_symbol());
        let symbol = ports.entry.symbols.iter().find(|symbol| Some(symbol.name.as_str()) == length);
        let most = symbol.and_then(|symbol| usize::try_from(symbol.hi?).ok());
        let max_tokens = settings.max_tokens.into_iter().chain(most).min();
        let tokenizer = tokenizer.map(|tokenizer| plain(tokenizer, max_tokens)).transpose();
        let tokenizer = tokenizer.map_err(|e| damaged(TOKENIZER, &e))?;
        let width = width(ports, &output);
        Ok(Some(Embedder { tokenizer, settings, roles, output, width, max_tokens }))
    }

    pub fn is_normalized(&self) -> bool {
        self.settings.normalized
    }

    pub fn width(&self) -> Option<usize> {
        self.width
    }

    pub fn pooling(&self) -> &str {
        self.settings.pooling.first().map_or("mean", String::as_str)
    }

    /// The tokens of a text, no more than there may be. With `whole` a text that is longer is refused.
    pub fn encode(&self, text: &str, prompt: Option<&str>, whole: bool, special: bool) -> Answer<Encoding> {
        let tokenizer = self.tokenizer.as_ref().ok_or_else(|| {
            let help = "send token ids, or compile the model with `--tokenizer tokenizer.json`";
            Refusal::bad_request("the model has no tokenizer", help)
        })?;
        if text.len() > TEXT_BYTES_MAX {
            return Err(too_long(format!("a text has {} bytes; at most {TEXT_BYTES_MAX} are allowed", text.len())));
        }
        let prompt = self.prompt(prompt)?;
        let prompted = if prompt.is_empty() { text.to_string() } else { format!("{prompt}{text}") };
        let prompted = if self.settings.lower_case { prompted.to_lowercase() } else { prompted };
        // Texts are a peer's, and the tokenizer is not ours.
        let encoded = catch_unwind(AssertUnwindSafe(|| tokenizer.encode(prompted, special)));
        let encoded = encoded.map_err(|_| Error::defect("the tokenizer failed on a text"))?;
        let encoding = encoded
            .map_err(|e| Refusal::bad_request(format!("a text cannot become tokens: {e}"), "send other text"))?;
        match whole && !encoding.get_overflowing().is_empty() {
            true => Err(too_long(format!("a text has more than {} tokens", self.max_tokens.unwrap_or(0)))),
            false => Ok(encoding),
        }
    }

    fn prompt(&self, name: Option<&str>) -> Answer<&str> {
        let Some(wanted) = name.or(self.settings.default_prompt.as_deref()) else { return Ok("") };
        let found = self.settings.prompts.iter().find(|prompt| prompt.name == wanted);
        found.map(|prompt| prompt.text.as_str()).ok_or_else(|| {
            let names: Vec<&str> = self.settings.prompts.iter().map(|prompt| prompt.name.as_str()).collect();
            let message = format!("the model has no prompt `{}`", wanted.chars().take(80).collect::<String>());
            Refusal::bad_request(message, &format!("its prompts are: {}", names.join(", ")))
        })
    }

    /// The token ids of an input.
    pub fn ids(&self, input: &Input, prompt: Option<&str>, whole: bool) -> Answer<Vec<u32>> {
        match input {
            Input::Text(text) => Ok(self.encode(text, prompt, whole, true)?.get_ids().to_vec()),
            Input::Ids(ids) if ids.is_empty() => {
                Err(Refusal::bad_request("a list of token ids is empty", "send at least one"))
            }
            Input::Ids(ids) => match self.max_tokens.filter(|max| ids.len() > *max) {
                Some(max) => Err(too_long(format!("{} token ids are given, and at most {max} are allowed", ids.len()))),
                None => Ok(ids.clone()),
            },
        }
    }

    /// One row of the model's inputs.
    pub fn job(&self, ids: &[u32]) -> Asked {
        let values = |role| -> Vec<i64> {
            match role {
                Role::Ids => ids.iter().map(|id| i64::from(*id)).collect(),
                Role::Mask => vec![1; ids.len()],
                Role::Types => vec![0; ids.len()],
                Role::Positions => (0..ids.len() as i64).collect(),
            }
        };
        let dims = vec![1, ids.len()];
        let tensor = |(role, dtype): &(Role, DType)| match dtype {
            DType::I32 => Tensor::from_vec(dims.clone(), values(*role).into_iter().map(|v| v as i32).collect()),
            _ => Tensor::from_vec(dims.clone(), values(*role)),
        };
        let (Output::Embeddings(output) | Output::Tokens(output)) = &self.output;
        Asked { inputs: self.roles.iter().map(tensor).collect(), outputs: vec![output.clone()] }
    }

    /// The embedding of a row, no longer than `dimensions`, of length 1 where `normalize`.
    pub fn embedding(&self, output: &Tensor, dimensions: Option<usize>, normalize: bool) -> Answer<Vec<f32>> {
        let mut vector = match self.output {
            Output::Embeddings(_) => numbers(output),
            Output::Tokens(_) => mean(&numbers(output), output.dims().last().copied().unwrap_or(0)),
        };
        let cut = dimensions.filter(|n| *n < vector.len());
        if let Some(n) = dimensions.filter(|n| *n == 0 || *n > vector.len()) {
            let message = format!("`dimensions` is {n}, and an embedding has {} numbers", vector.len());
            return Err(Refusal::bad_request(message, "ask for fewer, or leave `dimensions` out"));
        }
        vector.truncate(cut.unwrap_or(vector.len()));
        // An embedding that the model has normalised keeps its bits.
        let is_unit = matches!(self.output, Output::Embeddings(_)) && self.settings.normalized && cut.is_none();
        if (normalize || self.settings.normalized) && !is_unit {
            to_unit(&mut vector);
        }
        Ok(vector)
    }
}

/// The tokenizer without the padding that it may ask for, and with the model's own limit.
fn plain(mut tokenizer: Tokenizer, max_tokens: Option<usize>) -> std::result::Result<Tokenizer, tokenizers::Error> {
    tokenizer.with_padding(None);
    let truncation = max_tokens.map(|max_length| TruncationParams { max_length, ..TruncationParams::default() });
    tokenizer.with_truncation(truncation)?;
    Ok(tokenizer)
}

fn too_long(message: String) -> Refusal {
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", message, "send shorter texts")
}

/// `None` where an input is not one of a text's, or has another shape than `[batch, seq]`.
fn roles(ports: &Ports) -> Option<Vec<(Role, DType)>> {
    ports.stacked.as_ref()?;
    let role = |port: &Port| {
        let fits = port.dims.len() == 2 && matches!(port.dtype, DType::I64 | DType::I32);
        let (_, role) = ROLES.iter().find(|(name, _)| *name == port.name).filter(|_| fits)?;
        Some((*role, port.dtype))
    };
    let roles: Vec<(Role, DType)> = ports.inputs().iter().map(role).collect::<Option<_>>()?;
    roles.iter().any(|(role, _)| *role == Role::Ids).then_some(roles)
}

/// The output that the settings name, else the first with a vector for each text, else the first with one for each token.
fn output(ports: &Ports, settings: &Settings) -> Option<Output> {
    let of_rank = |rank| {
        let fits = |port: &&Port| port.dims.len() == rank && port.dtype.is_float();
        let named = |port: &&Port| settings.output.as_ref().is_none_or(|name| *name == port.name);
        ports.outputs().filter(fits).find(named).map(|port| port.name.clone())
    };
    of_rank(2).map(Output::Embeddings).or_else(|| of_rank(3).map(Output::Tokens))
}

fn width(ports: &Ports, output: &Output) -> Option<usize> {
    let (Output::Embeddings(name) | Output::Tokens(name)) = output;
    let port = ports.outputs().find(|port| port.name == *name)?;
    usize::try_from(port.dims.last()?.as_const()?).ok()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    match tensor.as_slice::<f32>() {
        Some(values) => values.to_vec(),
        None => (0..tensor.len()).map(|i| tensor.get_f64(i).unwrap_or(f64::NAN) as f32).collect(),
    }
}

/// Over the tokens, each with `width` numbers. Sums are in f64, in order.
fn mean(tokens: &[f32], width: usize) -> Vec<f32> {
    let mut sums = vec![0f64; width];
    let n = tokens.len() / width.max(1);
    for token in tokens.chunks_exact(width.max(1)) {
        sums.iter_mut().zip(token).for_each(|(sum, x)| *sum += f64::from(*x));
    }
    sums.into_iter().map(|sum| (sum / n.max(1) as f64) as f32).collect()
}

fn to_unit(vector: &mut [f32]) {
    let norm = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    if norm > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / norm) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_tokens_are_averaged() {
        let mut vector = mean(&[1.0, 8.0, 5.0, 0.0], 2);
        assert_eq!(vector, [3.0, 4.0]);
        to_unit(&mut vector);
        assert_eq!(vector, [0.6, 0.8]);
        let mut zeros = [0.0; 3];
        to_unit(&mut zeros);
        assert_eq!(zeros, [0.0; 3]);
    }
}
