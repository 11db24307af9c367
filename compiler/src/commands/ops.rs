//! ops  =>  the supported ONNX operators

use super::say;
use sardonyx_passes::{OPERATORS, Operator};
use sardonyx_runtime::Result;
use sardonyx_runtime::json::Json;
use std::io::Write;

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} ops
  {bin} ops --json")]
pub struct OpsArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

pub fn ops(args: &OpsArgs, out: &mut dyn Write) -> Result<()> {
    if args.json {
        let all = OPERATORS.iter().map(json).collect();
        return say(out, &Json::Object(vec![("operators", Json::List(all))]).to_string());
    }
    OPERATORS.iter().try_for_each(|op| {
        say(out, &format!("{:<16} {:<24} opset {}..{}", domain(op), op.name, op.opsets.0, op.opsets.1))
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
    ])
}
