//! a sentence-transformers folder, or flags  =>  pooling as nodes of the model, and files to attach to the artifact
//!
//! Sentence-transformers stores the steps from a model to embeddings beside the model: pooling, the layers after it,
//! and tokenisation. Pooling and layers become operations of the graph, so that the removal of padding and the
//! self-test cover them too; tokenizer and settings are attached to the artifact as `tokenizer.json` and
//! `embedder.json`.

mod folder;
mod pooling;

use crate::import::{DimRange, declared_dims};
use crate::onnx::{Graph, Model};
use sardonyx_base::json::Json;
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_passes::Named;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use folder::{embedder_folder, model_file};

/// Attached file that holds the tokenizer, in the format of Hugging Face.
pub const TOKENIZER: &str = "tokenizer.json";
/// Attached file that holds the settings of the embedder, as JSON.
pub const SETTINGS: &str = "embedder.json";
/// Version of the settings' format.
const SETTINGS_VERSION: i64 = 1;

/// How the vectors of a text's tokens are combined into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pooling {
    /// The vector at the first position.
    Cls,
    /// The largest element over the tokens, for each component.
    Max,
    /// The mean over the tokens.
    Mean,
    /// The sum over the tokens, divided by the square root of their number.
    MeanSqrtLen,
    /// The mean over the tokens, weighted by position: 1 for the first, 2 for the second, and so on.
    WeightedMean,
    /// The vector of the last token that is not padding.
    LastToken,
}

impl Named for Pooling {
    /// The names, in the order in which the results of several poolings are concatenated.
    const NAMES: &'static [(&'static str, Pooling)] = &[
        ("cls", Pooling::Cls),
        ("max", Pooling::Max),
        ("mean", Pooling::Mean),
        ("mean-sqrt-len", Pooling::MeanSqrtLen),
        ("weighted-mean", Pooling::WeightedMean),
        ("last-token", Pooling::LastToken),
    ];
}

/// A layer between pooling and the embedding.
#[derive(Clone, Debug)]
pub enum Layer {
    /// ONNX `Gemm`, and an activation.
    Dense {
        /// `[out, in]`
        weight: Tensor,
        /// `[out]`; `None` if the layer has no bias.
        bias: Option<Tensor>,
        /// ONNX operator; `None` for the identity.
        activation: Option<&'static str>,
    },
    /// ONNX `LayerNormalization` over the last axis, with an epsilon of 1e-5.
    LayerNorm {
        /// `[width]`, multiplied with the normalised vector.
        scale: Tensor,
        /// `[width]`, added after the scaling.
        bias: Tensor,
    },
    /// Scales to length 1.
    Normalize,
}

impl Layer {
    fn is_normalize(&self) -> bool {
        matches!(self, Layer::Normalize)
    }
}

/// The steps that turn a model's vectors into embeddings, and the files for tokenising texts.
#[derive(Clone, Debug, Default)]
pub struct Embedder {
    /// The poolings to apply; the results of several are concatenated. If empty, the model's outputs stay as they are.
    pub poolings: Vec<Pooling>,
    /// Layers that are applied to the pooled vector, in order.
    pub layers: Vec<Layer>,
    /// Content of `tokenizer.json`; `None` if there is no tokenizer.
    pub tokenizer: Option<Vec<u8>>,
    /// Number of tokens to which texts are truncated.
    pub max_tokens: Option<i64>,
    /// Whether texts are lower-cased before they are tokenised.
    pub lower_case: bool,
    /// Prefixes of texts, by the name of their purpose.
    pub prompts: BTreeMap<String, String>,
    /// The key in `prompts` that is used if a text names no prompt; `None` for no prompt.
    pub default_prompt: Option<String>,
    /// Ids of the tokens after which a decoder stops generating.
    pub eos_token_ids: Vec<i64>,
    /// Files that the settings were read from.
    pub files: Vec<PathBuf>,
}

/// Flags of an embedder, which take precedence over the folder.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Poolings that replace those of the folder; if empty, the folder's stay.
    pub poolings: Vec<Pooling>,
    /// Whether to scale the embedding to length 1.
    pub normalize: bool,
    /// Path of a `tokenizer.json` that replaces the folder's.
    pub tokenizer: Option<PathBuf>,
    /// Number of tokens to which texts are truncated; `None` for the folder's.
    pub max_tokens: Option<i64>,
}

impl Embedder {
    /// Combines the folder's settings with the flags. Returns `None` if there is neither a pooling nor a tokenizer.
    /// Errors: E0001 for flags that need others, E0002, E0103.
    pub fn new(folder: Option<&Path>, flags: &Flags) -> Result<Option<Embedder>> {
        let Flags { poolings, normalize, tokenizer, max_tokens } = flags;
        let mut made = folder.map(embedder_folder).transpose()?.unwrap_or_default();
        if !poolings.is_empty() {
            made.poolings.clone_from(poolings);
        }
        if *normalize && made.poolings.is_empty() {
            let error = Error::user("E0001", "`--normalize` is for embeddings, and nothing makes any");
            return Err(error.help("give `--pooling mean`, or the pooling that the model was trained with"));
        }
        if *normalize && !made.layers.last().is_some_and(Layer::is_normalize) {
            made.layers.push(Layer::Normalize);
        }
        if let Some(path) = tokenizer {
            made.tokenizer = Some(folder::tokenizer(path)?);
            made.files.push(path.clone());
        }
        made.max_tokens = max_tokens.or(made.max_tokens);
        let says = !made.poolings.is_empty() || made.tokenizer.is_some();
        if max_tokens.is_some() && made.tokenizer.is_none() {
            let error = Error::user("E0001", "`--max-tokens` is for texts, and there is no tokenizer");
            return Err(error.help("give `--tokenizer tokenizer.json`, or leave out `--max-tokens`"));
        }
        Ok(says.then_some(made))
    }

    /// With pooling, makes the embedding the model's only output. Bounds the symbolic number of positions by
    /// `max_tokens`, unless `dims` already gives its range; then `max_tokens` is reduced to the upper end of the range.
    /// Errors: E0107.
    pub fn apply(&mut self, model: &mut Model, dims: &mut BTreeMap<String, DimRange>) -> Result<()> {
        if !self.poolings.is_empty() {
            pooling::pool(&mut model.graph, &self.poolings, &self.layers)?;
        }
        let (Some(symbol), Some(max)) = (positions(&model.graph)?, self.max_tokens) else { return Ok(()) };
        let range = dims.entry(symbol).or_insert(DimRange { lo: 1, hi: Some(max) });
        self.max_tokens = range.hi.map_or(self.max_tokens, |hi| Some(hi.min(max)));
        Ok(())
    }

    /// Names and contents of the files to store in the artifact.
    pub fn attached(&self) -> Vec<(&'static str, Vec<u8>)> {
        let tokenizer = self.tokenizer.iter().map(|bytes| (TOKENIZER, bytes.clone()));
        tokenizer.chain([(SETTINGS, format!("{}\n", self.settings()).into_bytes())]).collect()
    }

    fn settings(&self) -> Json {
        let prompt = |(name, text): (&String, &String)| {
            Json::Object(vec![("name", name.as_str().into()), ("text", text.as_str().into())])
        };
        Json::Object(vec![
            ("version", SETTINGS_VERSION.into()),
            ("output", (!self.poolings.is_empty()).then_some(pooling::OUTPUT.to_string()).into()),
            ("pooling", Json::list(self.poolings.iter().map(|pooling| pooling.name()))),
            ("normalized", self.layers.last().is_some_and(Layer::is_normalize).into()),
            ("max_tokens", self.max_tokens.into()),
            ("lower_case", self.lower_case.into()),
            ("prompts", Json::List(self.prompts.iter().map(prompt).collect())),
            ("default_prompt", self.default_prompt.clone().into()),
            ("eos_token_ids", Json::list(self.eos_token_ids.iter().copied())),
        ])
    }
}

/// The symbol for the number of positions in the attention mask; `None` if this number is not a single symbol.
fn positions(graph: &Graph) -> Result<Option<String>> {
    let Some(at) = graph.inputs.iter().position(|input| input.name == pooling::MASK) else { return Ok(None) };
    let dims = declared_dims(graph)?;
    let Some([_, positions]) = dims.get(at).map(Vec::as_slice) else { return Ok(None) };
    let mut symbols = positions.names().into_iter();
    let symbol = symbols.next().filter(|symbol| positions.to_string() == **symbol);
    Ok(symbol.map(|symbol| symbol.to_string()))
}
