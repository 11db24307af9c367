//! Models for the server's interfaces whose answers are easy to compute

#![allow(dead_code)] // Each test file uses only a part.

use crate::artifacts::{Builder, edit};
use crate::common::Server;
use sardonyx_base::DType;
use sardonyx_base::plan::messages::{State, SymbolKind};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Starts a server of one model, `m`; its file exists as long as the returned folder.
pub fn serve(model: &Builder, args: &[&str]) -> (TempDir, Server) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sdx");
    model.write(&path);
    let server = Server::start(&path, args);
    (dir, server)
}

pub static WORDS: &[&str] = &["[UNK]", "[CLS]", "[SEP]", "the", "cat", "sleeps", "on", "a", "warm", "sill"];

pub fn tokenizer() -> Vec<u8> {
    let vocab: serde_json::Map<String, Value> =
        WORDS.iter().enumerate().map(|(id, word)| (word.to_string(), id.into())).collect();
    let special = |id: usize| {
        let flags =
            json!({ "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true });
        let mut token = json!({ "id": id, "content": WORDS[id] });
        token.as_object_mut().unwrap().extend(flags.as_object().unwrap().clone());
        token
    };
    let template = |id: &str| json!({ "SpecialToken": { "id": id, "type_id": 0 } });
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [special(0), special(1), special(2)],
        "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [template("[CLS]"), { "Sequence": { "id": "A", "type_id": 0 } }, template("[SEP]")],
            "pair": [template("[CLS]"), { "Sequence": { "id": "A", "type_id": 0 } }, template("[SEP]"),
                     { "Sequence": { "id": "B", "type_id": 1 } }, template("[SEP]")],
            "special_tokens": {
                "[CLS]": { "id": "[CLS]", "ids": [1], "tokens": ["[CLS]"] },
                "[SEP]": { "id": "[SEP]", "ids": [2], "tokens": ["[SEP]"] },
            },
        },
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]" },
    });
    tokenizer.to_string().into_bytes()
}

pub fn embedder(packed: bool) -> Builder {
    summing(packed, "sentence_embedding", 4)
}

/// The score of a token is 1 / (its id + 1.5); the score of a pair is the sum over the tokens of both texts.
pub fn reranker() -> Builder {
    summing(true, "logits", 1)
}

/// A model of token ids and their mask, with the buffers of both. If `packed`, masked positions are not computed.
pub fn of_tokens(packed: bool) -> (Builder, u32, u32) {
    let mut b = Builder::new();
    b.symbol("batch", SymbolKind::Input, 1, Some(64));
    b.symbol("seq", SymbolKind::Input, 1, Some(12));
    if packed {
        b.symbol("rows", SymbolKind::Data, 0, None);
    }
    let ids = b.input("input_ids", DType::I64, &["batch", "seq"], "8*batch*seq");
    let mask = b.input("attention_mask", DType::I64, &["batch", "seq"], "8*batch*seq");
    (b, ids, mask)
}

/// Sums rows of a table over the tokens that the mask keeps. If `packed`, masked positions are not computed.
fn summing(packed: bool, output: &str, width: usize) -> Builder {
    let width_text = width.to_string();
    let (mut b, ids, mask) = of_tokens(packed);
    let y = b.output(output, DType::F32, &["batch", &width_text], &format!("{}*batch", 4 * width));
    let table: Vec<f32> = (0..WORDS.len() * width).map(|i| 1.0 / (i as f32 + 1.5)).collect();
    let table = b.constant(&table);
    let embed = b.kernel("embed", &[false, false, false, true], 3, "0");
    b.launch(embed, &[table, ids, mask, y], &["seq", &width_text, "10"], "batch");
    b.attached.push(("tokenizer.json".into(), tokenizer()));
    let prompts = [json!({ "name": "query", "text": "the cat " })];
    let settings = json!({ "version": 1, "output": output, "pooling": ["mean"], "normalized": false,
                           "max_tokens": 8, "lower_case": true, "prompts": prompts, "default_prompt": null });
    b.attached.push(("embedder.json".into(), settings.to_string().into_bytes()));
    b
}

/// The vocabulary in the order of the ids; the last token ends a text.
static NUMBERS: &[&str] =
    &["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "end"];

/// A decoder whose likeliest next token is the sum of all tokens so far, modulo the vocabulary size.
pub fn decoder() -> Builder {
    let mut b = Builder::new();
    b.symbol("batch", SymbolKind::Input, 1, Some(4));
    b.symbol("seq", SymbolKind::Input, 1, Some(100));
    b.symbol("past", SymbolKind::Input, 0, Some(100));
    b.symbol("room_in", SymbolKind::Capacity, 0, Some(100));
    b.symbol("room_out", SymbolKind::Capacity, 0, Some(100));
    let carry = b.kernel("carry", &[false, true], 4, "0");
    let remember = b.kernel("remember", &[false, true], 3, "0");
    let logits = b.kernel("logits", &[false, true], 4, "0");
    for (name, past) in [("prefill", "0"), ("decode", "past")] {
        let all = format!("{past} + seq");
        let ids = b.input("input_ids", DType::I64, &["batch", "seq"], "8*batch*seq");
        b.input("attention_mask", DType::I64, &["batch", &all], &format!("8*batch*({all})"));
        let old = b.input("past_key", DType::F32, &["batch", past, "1"], "4*batch*room_in");
        let new = b.output("present_key", DType::F32, &["batch", &all, "1"], "4*batch*room_out");
        let y = b.output("logits", DType::F32, &["batch", "seq", "12"], "48*batch*seq");
        if name == "decode" {
            b.launch(carry, &[old, new], &[past, "1", "room_in", "room_out"], &format!("batch*{past}"));
            edit(&mut b, 0, |l| l.carries = Some(0));
        }
        b.launch(remember, &[ids, new], &["seq", past, "room_out"], "batch*seq");
        b.launch(logits, &[new, y], &["seq", past, "room_out", "12"], "batch*seq");
        let (input_capacity, output_capacity) = ("room_in".into(), "room_out".into());
        b.entry.states = vec![State {
            input: 2,
            output: 0,
            axis: 1,
            input_capacity,
            output_capacity,
            kept: String::new(),
            units: vec![],
        }];
        b.entry.name = name.into();
        if name == "prefill" {
            b.next_entry("decode");
        }
    }
    b
}

pub fn decoder_with_texts() -> Builder {
    let vocab: serde_json::Map<String, Value> =
        NUMBERS.iter().enumerate().map(|(id, word)| (word.to_string(), id.into())).collect();
    let end = json!({ "id": 11, "content": "end", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true });
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [end], "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" }, "post_processor": null,
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "zero" },
    });
    let mut b = decoder();
    b.attached.push(("tokenizer.json".into(), tokenizer.to_string().into_bytes()));
    b.attached.push(("embedder.json".into(), json!({ "version": 1, "eos_token_ids": [11] }).to_string().into_bytes()));
    b
}
