//! arguments of the command line  =>  parsed values, or what is wrong with them

use crate::calibrate::score::PLACE;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use regex_lite::Regex;
use sardonyx_passes::{Named, mesh};
use sardonyx_run::values::{byte_count, duration};
use std::time::Duration;

/// Parses a pattern of pass names; `all` matches every name.
pub fn passes_named(text: &str) -> std::result::Result<Regex, String> {
    let pattern = if text == "all" { "" } else { text };
    Regex::new(pattern).map_err(|e| format!("{e}; write `all`, the name of a pass, or a pattern of names"))
}

/// Parser for the names of an enumeration.
pub fn named<T: Named>() -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(T::NAMES.iter().map(|row| row.0))
        .try_map(|name| T::from_name(&name).ok_or("is none of them"))
}

/// Number of ranks along each axis of a mesh; empty for a single rank.
#[derive(Clone, Debug)]
pub struct Mesh(pub Vec<i64>);

pub fn ranks(text: &str) -> std::result::Result<Mesh, String> {
    mesh(text).map(Mesh).ok_or_else(|| "it is no number of ranks: 4, or 2x4, at most 1024 in all".to_string())
}

/// Parses `.*embeddings.*=f32` to the pattern.
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

/// Limits on the time and memory of a compilation.
#[derive(Clone, Debug, clap::Args)]
pub struct Limits {
    /// Give the compilation up after this time. Before that, stages that take long are left out, and named; `none` is no limit
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = time_limit)]
    pub time_limit: TimeLimit,
    /// The memory that the compilation may take, beside the files that it maps. Stages that need more are left out, and named
    /// [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = byte_count)]
    pub memory_limit: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub struct TimeLimit(pub Option<Duration>);

fn time_limit(text: &str) -> std::result::Result<TimeLimit, String> {
    if text == "none" { Ok(TimeLimit(None)) } else { duration(text).map(|time| TimeLimit(Some(time))) }
}
