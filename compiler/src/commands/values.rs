//! words of the command line  =>  values, or what is wrong with them

use crate::calibrate::score::PLACE;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use regex_lite::Regex;
use sardonyx_passes::{Named, mesh};

/// A pattern of passes' names.
pub fn passes_named(text: &str) -> std::result::Result<Regex, String> {
    let pattern = if text == "all" { "" } else { text };
    Regex::new(pattern).map_err(|e| format!("{e}; write `all`, the name of a pass, or a pattern of names"))
}

/// One of a few words.
pub fn named<T: Named>() -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(T::NAMES.iter().map(|row| row.0))
        .try_map(|name| T::from_name(&name).ok_or("is none of them"))
}

/// The number of ranks along each axis of a mesh; empty for one rank.
#[derive(Clone, Debug)]
pub struct Mesh(pub Vec<i64>);

pub fn ranks(text: &str) -> std::result::Result<Mesh, String> {
    mesh(text).map(Mesh).ok_or_else(|| "it is no number of ranks: 4, or 2x4, at most 1024 in all".to_string())
}

/// `.*embeddings.*=f32`
pub fn kept(text: &str) -> std::result::Result<Regex, String> {
    let pattern = text.strip_suffix("=f32").ok_or_else(|| "write REGEX=f32".to_string())?;
    Regex::new(pattern).map_err(|e| e.to_string())
}

pub fn budget(text: &str) -> std::result::Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|x| *x > 0.0 && x.is_finite());
    number.ok_or_else(|| "it is no error above 0".to_string())
}

pub fn score_command(text: &str) -> std::result::Result<String, String> {
    let found = text.contains(PLACE).then(|| text.to_string());
    found.ok_or_else(|| format!("`{PLACE}` has to stand for the artifact's path"))
}

pub fn score_drop(text: &str) -> std::result::Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|x| *x >= 0.0 && x.is_finite());
    number.ok_or_else(|| "it is no difference of 0 or more".to_string())
}

/// 64, 64KiB, 64MiB or 64GiB
pub fn byte_count(text: &str) -> std::result::Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        other => return Err(format!("`{other}` is no unit: B, KiB, MiB and GiB are")),
    };
    let count = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    count.ok_or_else(|| "it is no number of bytes".to_string())
}
