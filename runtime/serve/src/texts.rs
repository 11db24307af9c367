//! the attached tokenizer and settings of a model  =>  tokens of texts

use crate::refusal::{Answer, Refusal};
use axum::http::StatusCode;
use sardonyx_base::{Error, Result};
use sardonyx_runtime::Model;
use serde::Deserialize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use tokenizers::{EncodeInput, Encoding, Tokenizer, TruncationParams};

/// Names under which `sardonyx compile` attaches the files.
const TOKENIZER: &str = "tokenizer.json";
const SETTINGS: &str = "embedder.json";

/// Maximum size of a text in bytes. The size is checked before tokenizing, because the limit on tokens applies only
/// afterwards.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Contents of the attached file `embedder.json`.
#[derive(Deserialize, Clone, Debug, Default)]
pub struct Settings {
    /// Name of the output that holds the embeddings; if absent, the server chooses an output by its shape.
    pub output: Option<String>,
    #[serde(default)]
    pub normalized: bool,
    max_tokens: Option<usize>,
    #[serde(default)]
    lower_case: bool,
    #[serde(default)]
    prompts: Vec<Prompt>,
    default_prompt: Option<String>,
    #[serde(default)]
    pub pooling: Vec<String>,
    /// Tokens that end a text of a decoder.
    #[serde(default)]
    pub eos_token_ids: Vec<u32>,
}

#[derive(Deserialize, Clone, Debug)]
struct Prompt {
    name: String,
    text: String,
}

impl Settings {
    /// Returns the settings attached to a model, or the defaults if it has none. Errors: E0401 if they are damaged.
    pub fn attached(model: &Model) -> Result<Settings> {
        let settings = model.attached(SETTINGS).map(serde_json::from_slice::<Settings>).transpose();
        Ok(settings.map_err(|e| damaged(SETTINGS, &e).file(model.file()))?.unwrap_or_default())
    }
}

/// Tokenizer and settings of a model.
pub struct Texts {
    pub tokenizer: Option<Tokenizer>,
    pub settings: Settings,
    /// Maximum number of tokens of a text.
    pub max_tokens: Option<usize>,
}

impl Texts {
    /// Loads the attached tokenizer, or else the one at `fallback`. Errors: E0401 if the attached one is damaged, E0002
    /// if the one at `fallback` cannot be read.
    pub fn load(model: &Model, settings: Settings, fallback: Option<&Path>) -> Result<Texts> {
        let damaged = |name: &str, e: &dyn std::fmt::Display| damaged(name, e).file(model.file());
        let attached = model.attached(TOKENIZER).map(Tokenizer::from_bytes).transpose();
        let tokenizer = match (attached.map_err(|e| damaged(TOKENIZER, &e))?, fallback) {
            (Some(attached), _) => Some(attached),
            (None, Some(path)) => Some(Tokenizer::from_file(path).map_err(|e| {
                let error = Error::user("E0002", format!("cannot load the tokenizer {}: {e}", path.display()));
                error.help("give a `tokenizer.json`")
            })?),
            (None, None) => None,
        };
        Ok(Texts { tokenizer, max_tokens: settings.max_tokens, settings })
    }

    /// Disables padding of texts, and truncates them to the tokens that both the settings and `most` allow.
    pub fn bounded(mut self, most: Option<usize>) -> Result<Texts> {
        self.max_tokens = self.max_tokens.into_iter().chain(most).min();
        if let Some(tokenizer) = &mut self.tokenizer {
            tokenizer.with_padding(None);
            let cut = self.max_tokens.map(|max_length| TruncationParams { max_length, ..TruncationParams::default() });
            tokenizer.with_truncation(cut).map_err(|e| damaged(TOKENIZER, &e))?;
        }
        Ok(self)
    }

    /// Returns the tokens of a text, truncated to the maximum. With `whole`, a text that would be truncated is refused.
    pub fn encode(&self, text: &str, prompt: Option<&str>, whole: bool, special: bool) -> Answer<Encoding> {
        let prompt = self.prompt(prompt)?;
        let prompted = if prompt.is_empty() { text.to_string() } else { format!("{prompt}{text}") };
        self.encoded(&[text], self.cased(prompted).into(), whole, special)
    }

    /// Returns the tokens of a pair of texts, first those of `first`. With `whole`, a pair that would be truncated is
    /// refused.
    pub fn encode_pair(&self, first: &str, second: &str, whole: bool) -> Answer<Encoding> {
        let pair = (self.cased(first.into()), self.cased(second.into()));
        self.encoded(&[first, second], pair.into(), whole, true)
    }

    fn cased(&self, text: String) -> String {
        if self.settings.lower_case { text.to_lowercase() } else { text }
    }

    fn encoded(&self, texts: &[&str], input: EncodeInput<'_>, whole: bool, special: bool) -> Answer<Encoding> {
        let tokenizer = self.tokenizer.as_ref().ok_or_else(|| {
            let help = "send token ids, or compile the model with `--tokenizer tokenizer.json`";
            Refusal::bad_request("the model has no tokenizer", help)
        })?;
        if let Some(text) = texts.iter().find(|text| text.len() > TEXT_BYTES_MAX) {
            return Err(too_long(format!("a text has {} bytes; at most {TEXT_BYTES_MAX} are allowed", text.len())));
        }
        // The text comes from a client, and the tokenizer is a foreign library that might panic.
        let encoded = catch_unwind(AssertUnwindSafe(|| tokenizer.encode(input, special)));
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
}

fn damaged(name: &str, e: &dyn std::fmt::Display) -> Box<Error> {
    Error::user("E0401", format!("the attached `{name}` is damaged: {e}"))
}

pub fn too_long(message: String) -> Refusal {
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", message, "send shorter texts")
}
