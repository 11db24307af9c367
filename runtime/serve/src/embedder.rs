//! text  =>  token ids  =>  a job;  its output  =>  the embedding of the text, or the score of a pair of texts

use crate::ports::Ports;
use crate::refusal::{Answer, Refusal};
use crate::served::Asked;
use crate::texts::{Settings, Texts, too_long};
use sardonyx_base::{DType, Error, Result, Tensor};
use sardonyx_runtime::{Model, Port};
use std::path::Path;
use tokenizers::Encoding;

pub struct Embedder {
    pub texts: Texts,
    /// The role and element type of each input of the model.
    roles: Vec<(Role, DType)>,
    output: Output,
    /// Number of elements of an embedding, if the model fixes it.
    width: Option<usize>,
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

/// The output that embeddings or scores are computed from.
enum Output {
    /// `[batch, width]`
    Embeddings(String),
    /// `[batch, seq, width]`
    Tokens(String),
    /// `[batch, 1]`
    Scores(String),
}

impl Output {
    fn name(&self) -> &str {
        let (Output::Embeddings(name) | Output::Tokens(name) | Output::Scores(name)) = self;
        name
    }
}

/// The token ids of an input, and for each token the index of its text: 1 for the second text of a pair, otherwise 0.
pub struct Tokens {
    ids: Vec<u32>,
    texts: Vec<u32>,
}

impl Tokens {
    pub fn len(&self) -> usize {
        self.ids.len()
    }
}

impl From<Encoding> for Tokens {
    fn from(encoding: Encoding) -> Tokens {
        Tokens { ids: encoding.get_ids().to_vec(), texts: encoding.get_type_ids().to_vec() }
    }
}

/// A text, or its token ids.
pub enum Input {
    Text(String),
    Ids(Vec<u32>),
}

impl Embedder {
    /// Creates the embedder of a model. Returns `None` if the model does not take tokens, or has no output that could
    /// be an embedding or a score. Errors: E0401 for damaged attached files, E0002 for a tokenizer that cannot be read.
    pub fn load(model: &Model, ports: &Ports, fallback: Option<&Path>) -> Result<Option<Embedder>> {
        let settings = Settings::attached(model)?;
        let Some((roles, output)) = roles(ports).zip(output(ports, &settings)) else { return Ok(None) };
        let texts = Texts::load(model, settings, fallback)?;
        let length = ports.inputs()[0].dims.get(1).and_then(|dim| dim.as_name());
        let symbol = ports.entry.symbols.iter().find(|symbol| Some(symbol.name.as_str()) == length);
        let most = symbol.and_then(|symbol| usize::try_from(symbol.hi?).ok());
        let texts = texts.bounded(most)?;
        let width = width(ports, output.name());
        Ok(Some(Embedder { texts, roles, output, width }))
    }

    pub fn is_normalized(&self) -> bool {
        self.texts.settings.normalized
    }

    pub fn width(&self) -> Option<usize> {
        self.width
    }

    pub fn pooling(&self) -> &str {
        self.texts.settings.pooling.first().map_or("mean", String::as_str)
    }

    /// Returns whether the model computes scores of pairs of texts instead of embeddings.
    pub fn is_reranker(&self) -> bool {
        matches!(self.output, Output::Scores(_))
    }

    pub fn tokens(&self, input: &Input, prompt: Option<&str>, whole: bool) -> Answer<Tokens> {
        match input {
            Input::Text(text) => self.texts.encode(text, prompt, whole, true).map(Tokens::from),
            Input::Ids(ids) if ids.is_empty() => {
                Err(Refusal::bad_request("a list of token ids is empty", "send at least one"))
            }
            Input::Ids(ids) => match self.texts.max_tokens.filter(|max| ids.len() > *max) {
                Some(max) => Err(too_long(format!("{} token ids are given, and at most {max} are allowed", ids.len()))),
                None => Ok(Tokens { ids: ids.clone(), texts: vec![0; ids.len()] }),
            },
        }
    }

    /// Returns the inputs of one row, with dimensions `[1, tokens]`.
    pub fn job(&self, tokens: &Tokens) -> Asked {
        let n = tokens.len();
        let values = |role| -> Vec<i64> {
            match role {
                Role::Ids => tokens.ids.iter().map(|id| i64::from(*id)).collect(),
                Role::Mask => vec![1; n],
                Role::Types => tokens.texts.iter().map(|text| i64::from(*text)).collect(),
                Role::Positions => (0..n as i64).collect(),
            }
        };
        let dims = vec![1, n];
        let tensor = |(role, dtype): &(Role, DType)| match dtype {
            DType::I32 => Tensor::from_vec(dims.clone(), values(*role).into_iter().map(|v| v as i32).collect()),
            _ => Tensor::from_vec(dims.clone(), values(*role)),
        };
        Asked { inputs: self.roles.iter().map(tensor).collect(), outputs: vec![self.output.name().into()] }
    }

    /// Returns the score of a row: the raw output of the model if `raw`, otherwise its sigmoid, which is between 0 and
    /// 1.
    pub fn score(&self, output: &Tensor, raw: bool) -> Answer<f32> {
        let score = numbers(output).first().copied();
        let score = score.ok_or_else(|| Error::defect("a score without a number"))?;
        Ok(if raw { score } else { 1.0 / (1.0 + (-score).exp()) })
    }

    /// Returns the embedding of a row, cut to `dimensions` elements, and scaled to Euclidean length 1 if `normalize`.
    pub fn embedding(&self, output: &Tensor, dimensions: Option<usize>, normalize: bool) -> Answer<Vec<f32>> {
        let mut vector = match self.output {
            Output::Embeddings(_) | Output::Scores(_) => numbers(output),
            Output::Tokens(_) => mean(&numbers(output), output.dims().last().copied().unwrap_or(0)),
        };
        let cut = dimensions.filter(|n| *n < vector.len());
        if let Some(n) = dimensions.filter(|n| *n == 0 || *n > vector.len()) {
            let message = format!("`dimensions` is {n}, and an embedding has {} numbers", vector.len());
            return Err(Refusal::bad_request(message, "ask for fewer, or leave `dimensions` out"));
        }
        vector.truncate(cut.unwrap_or(vector.len()));
        // A full embedding that the model has normalized itself is returned bit for bit.
        let is_unit = matches!(self.output, Output::Embeddings(_)) && self.texts.settings.normalized && cut.is_none();
        if (normalize || self.texts.settings.normalized) && !is_unit {
            to_unit(&mut vector);
        }
        Ok(vector)
    }
}

/// Returns the role and element type of each input; `None` if an input is not one of [`ROLES`], or its shape is not
/// `[batch, seq]`.
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

/// Returns the first float output with a vector per text, or else the first with a vector per token. If the settings
/// name an output, only that output is considered. A vector of one element per text is a score.
fn output(ports: &Ports, settings: &Settings) -> Option<Output> {
    let of_rank = |rank| {
        let fits = |port: &&Port| port.dims.len() == rank && port.dtype.is_float();
        let named = |port: &&Port| settings.output.as_ref().is_none_or(|name| *name == port.name);
        ports.outputs().filter(fits).find(named).map(|port| port.name.clone())
    };
    let of_text = |name: String| match width(ports, &name) {
        Some(1) => Output::Scores(name),
        Some(_) | None => Output::Embeddings(name),
    };
    of_rank(2).map(of_text).or_else(|| of_rank(3).map(Output::Tokens))
}

fn width(ports: &Ports, output: &str) -> Option<usize> {
    let port = ports.outputs().find(|port| port.name == output)?;
    usize::try_from(port.dims.last()?.as_const()?).ok()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    match tensor.as_slice::<f32>() {
        Some(values) => values.to_vec(),
        None => (0..tensor.len()).map(|i| tensor.get_f64(i).unwrap_or(f64::NAN) as f32).collect(),
    }
}

/// Averages the vectors of the tokens, which have `width` elements each. They are added in f64, in token order.
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
