//! Minimal greedy decoding: one call for the prompt, then one call per token, all with the same cache
//!
//!     cargo run --release -p sardonyx-runtime --example generate -- MODEL.sdx 1 42 7 --steps 16
//!
//! The model is a decoder as exporters write it: it has the input `input_ids`, the output `logits`, and cached keys and
//! values as inputs and outputs. The prompt consists of token ids; a tokenizer can convert text to tokens and back.

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

use clap::Parser;
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_runtime::{Cache, LoadOptions, Model, RunOptions, Session, SessionOptions, Trust};
use std::path::PathBuf;

#[derive(Parser)]
pub struct Args {
    #[arg(value_name = "MODEL.sdx")]
    pub model: PathBuf,
    /// Tokens to begin with
    #[arg(required = true)]
    pub prompt: Vec<i64>,
    /// Tokens to add
    #[arg(long, default_value_t = 16)]
    pub steps: usize,
    /// Positions that the cache has room for [default: as many as are needed]
    #[arg(long)]
    pub capacity: Option<usize>,
}

fn main() {
    if let Err(error) = generate(&Args::parse(), &mut |token| println!("{token}")) {
        eprintln!("{error}");
        std::process::exit(error.fault.exit_code());
    }
}

/// Generates `args.steps` tokens and passes each new token to `show` as soon as it is known.
pub fn generate(args: &Args, show: &mut dyn FnMut(i64)) -> Result<()> {
    // SAFETY: the user who names the file trusts its code, which is executed.
    let model = Model::load(&args.model, &LoadOptions::new(unsafe { Trust::file() }))?;
    let session = model.session(&SessionOptions::default())?;
    // Entry points that are specialized for prefill and for decoding are faster; without them, `main` does both.
    let entry = |name| if model.entry(name).is_ok() { name } else { "main" };
    let capacity = args.capacity.unwrap_or(args.prompt.len() + args.steps);
    let mut cache = session.cache(entry("decode"), capacity)?;
    let mut tokens = args.prompt.clone();
    for _ in 0..args.steps {
        let entry = entry(if cache.is_empty() { "prefill" } else { "decode" });
        let token = next(&session, entry, &tokens, &mut cache)?;
        show(token);
        tokens.push(token);
    }
    Ok(())
}

/// Runs the model on the tokens that the cache does not hold yet, and returns the most likely next token.
fn next(session: &Session, entry: &str, tokens: &[i64], cache: &mut Cache) -> Result<i64> {
    let (new, all) = (cache.len()..tokens.len(), tokens.len());
    let mut inputs = Vec::new();
    // The cache supplies keys and values; the call needs the other inputs only.
    for port in session.model().entry(entry)?.fresh_inputs() {
        let values = match port.name.as_str() {
            "input_ids" => tokens[new.clone()].to_vec(),
            "position_ids" => new.clone().map(|position| position as i64).collect(),
            // A single sequence has no padding, so no position is masked.
            "attention_mask" => vec![1; all],
            name => return Err(Error::user("E0301", format!("this example has no values for the input `{name}`"))),
        };
        inputs.push((port.name.as_str(), Tensor::from_vec(vec![1, values.len()], values)));
    }
    let inputs: Vec<_> = inputs.iter().map(|(name, tensor)| (*name, tensor.into())).collect();
    let outputs = session.run_cached(entry, &inputs, &mut [], cache, &RunOptions::default())?;
    let logits = outputs.iter().find(|(name, _)| name == "logits").map(|(_, tensor)| tensor);
    let logits = logits.ok_or_else(|| Error::user("E0301", "the model has no output `logits`"))?;
    // The logits have the shape [1, new, vocabulary]; the last row has the scores of the next token.
    let (n, width) = (logits.len(), *logits.dims().last().unwrap_or(&0));
    let last = (n - width.min(n)..n).filter_map(|i| logits.get_f64(i));
    let best = last.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
    best.map(|(token, _)| token as i64).ok_or_else(|| Error::user("E0301", "the model gives no logits"))
}
