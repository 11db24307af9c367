//! the attached tokenizer and settings of a model  =>  tokens of texts

use crate::refusal::{Answer, Refusal};
use axum::http::StatusCode;
use sardonyx_base::{Error, Result};
use sardonyx_runtime::Model;
use serde::Deserialize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use tokenizers::{EncodeInput, Encoding, Tokenizer, TruncationParams};

/// The names that `sardonyx compile` attaches the files under.
const TOKENIZER: &str = "tokenizer.json";
const SETTINGS: &str = "embedder.json";

/// A text is no longer than this, whatever becomes of it: tokens are counted when the work is done.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// `embedder.json`
#[derive(Deserialize, Clone, Debug, Default)]
pub struct Settings {
    /// The output that has the embeddings; where absent, the vectors of the tokens are averaged here.
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
    /// The tokens that end a text of a decoder.
    #[serde(default)]
    pub eos_token_ids: Vec<u32>,
}

#[derive(Deserialize, Clone, Debug)]
struct Prompt {
    name: String,
    text: String,
}

impl Settings {
    /// Those of a model, as they are usual where it has none. Errors: E0401 where they are damaged.
    pub fn attached(model: &Model) -> Result<Settings> {
        let settings = model.attached(SETTINGS).map(serde_json::from_slice::<Settings>).transpose();
        Ok(settings.map_err(|e| damaged(SETTINGS, &e).file(model.file()))?.unwrap_or_default())
    }
}

/// What a model says of texts.
pub struct Texts {
    pub tokenizer: Option<Tokenizer>,
    pub settings: Settings,
    /// A text has no more tokens.
    pub max_tokens: Option<usize>,
}

impl Texts {
    /// Errors: E0401 for an attached tokenizer that is damaged, E0002 for one that cannot be read.
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

    /// Without the padding that the tokenizer may ask for, and cut off after as many tokens as the model takes.
    pub fn bounded(mut self, most: Option<usize>) -> Result<Texts> {
        self.max_tokens = self.max_tokens.into_iter().chain(most).min();
        if let Some(tokenizer) = &mut self.tokenizer {
            tokenizer.with_padding(None);
            let cut = self.max_tokens.map(|max_length| TruncationParams { max_length, ..TruncationParams::default() });
            tokenizer.with_truncation(cut).map_err(|e| damaged(TOKENIZER, &e))?;
        }
        Ok(self)
    }

    /// The tokens of a text, no more than there may be. With `whole` a text that is longer is refused.
    pub fn encode(&self, text: &str, prompt: Option<&str>, whole: bool, special: bool) -> Answer<Encoding> {
        let prompt = self.prompt(prompt)?;
        let prompted = if prompt.is_empty() { text.to_string() } else { format!("{prompt}{text}") };
        self.encoded(&[text], self.cased(prompted).into(), whole, special)
    }

    /// The tokens of a pair of texts: of the first, and of the second after it.
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
        // Texts are a peer's, and the tokenizer is not ours.
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
