//! Rewrites that nearly applied: which node prevents each of them, why, and what would help

use sardonyx_base::json::Json;
use std::fmt;

/// A rewrite that nearly applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// A stable description that is independent of the model.
    pub reason: &'static str,
    /// The ONNX node that prevents the rewrite.
    pub node: Option<String>,
    /// The ONNX nodes whose code the rewrite would have changed.
    pub origins: Vec<String>,
    /// Details for this model, such as dimensions.
    pub detail: Option<String>,
    /// What the user can change; `None` if no change is known to help.
    pub remedy: Option<&'static str>,
}

impl Missed {
    /// Creates a miss with a reason and details, but without nodes or a remedy.
    pub fn because(reason: &'static str, detail: &str) -> Missed {
        Missed { reason, detail: Some(detail.to_string()), ..Missed::default() }
    }
}

/// A missed rewrite, with its pass and function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Name of the pass.
    pub pass: &'static str,
    /// Name of the function, an entry point of the model.
    pub function: String,
    /// The rewrite, and what prevents it.
    pub missed: Missed,
    /// Whether `compile` prints the remark even without `--remarks`, because it matters to users.
    pub unasked: bool,
}

impl Remark {
    /// Converts the remark to an object whose `kind` is `slow` if `unasked` is set, else `missed`.
    pub fn json(&self) -> Json {
        let Missed { reason, node, origins, detail, remedy } = &self.missed;
        Json::Object(vec![
            ("pass", self.pass.into()),
            ("kind", if self.unasked { "slow" } else { "missed" }.into()),
            ("reason", (*reason).into()),
            ("node", node.clone().into()),
            ("origins", Json::list(origins.iter().map(String::as_str))),
            ("function", self.function.as_str().into()),
            ("detail", detail.clone().into()),
            ("remedy", remedy.map(str::to_string).into()),
        ])
    }
}

/// Maximum number of names of `origins` in the text of a remark; the JSON contains all of them.
const SHOWN_MAX: usize = 8;

impl fmt::Display for Remark {
    /// Formats like an error: `remark[fuse-epilogues]: the reader looks at other places: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Missed { reason, node, origins, detail, remedy } = &self.missed;
        write!(f, "remark[{}]: {reason}", self.pass)?;
        detail.iter().try_for_each(|detail| write!(f, ": {detail}"))?;
        let node = node.as_deref().unwrap_or("without a name");
        let (shown, more) = origins.split_at(origins.len().min(SHOWN_MAX));
        write!(f, "\n  --> {}, node {node}", self.function)?;
        if !shown.is_empty() {
            let what = if self.unasked { "computes" } else { "would be one" };
            write!(f, "\n  {what}: {}", shown.join(" "))?;
        }
        if !more.is_empty() {
            write!(f, " and {} more", more.len())?;
        }
        remedy.iter().try_for_each(|remedy| write!(f, "\n  help: {remedy}"))
    }
}
