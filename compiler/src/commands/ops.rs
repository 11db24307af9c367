//! ops  =>  the supported ONNX operators

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

use super::say;
use sardonyx_base::Result;
use sardonyx_base::json::Json;
use sardonyx_passes::{OPERATORS, Operator};
use std::io::Write;

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} ops
  {bin} ops --markdown
  {bin} ops --json")]
pub struct OpsArgs {
    /// Print a Markdown table
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the command: prints each operator with its domain, its opsets, and where it runs.
pub fn ops(args: &OpsArgs, out: &mut dyn Write) -> Result<()> {
    if args.json {
        let all = OPERATORS.iter().map(json).collect();
        return say(out, &Json::Object(vec![("operators", Json::List(all))]).to_string());
    }
    if args.markdown {
        say(out, "| domain | operator | opsets | runs |\n|---|---|---|---|")?;
    }
    OPERATORS.iter().try_for_each(|op| {
        let (domain, name, (first, last), device) = (domain(op), op.name, op.opsets, op.device.name());
        match args.markdown {
            true => say(out, &format!("| {domain} | {name} | {first}–{last} | {device} |")),
            false => say(out, &format!("{domain:<24} {name:<28} opset {first}..{last}  {device}")),
        }
    })
}

fn domain(op: &Operator) -> &'static str {
    if op.domain.is_empty() { "ai.onnx" } else { op.domain }
}

fn json(op: &Operator) -> Json {
    Json::Object(vec![
        ("domain", domain(op).into()),
        ("name", op.name.into()),
        ("first_opset", op.opsets.0.into()),
        ("last_opset", op.opsets.1.into()),
        ("runs", op.device.name().into()),
    ])
}
