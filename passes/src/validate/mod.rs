//! a program before and after a rewrite  =>  equal on random operands at small sizes, or an error
//!
//! The interpreter runs only what the rewrite changed. The operands of the changed part are drawn at random, if
//! necessary together with the values from which they are computed. Symbols get small values that satisfy the program's
//! checks; constant dimensions stay as they are, so that parts that are too large are skipped and counted. A part that
//! equals a part checked before, such as the same part of another layer, is not run again.

mod compare;
mod cut;
mod flow;
mod sample;
#[cfg(test)]
mod tests;
mod values;

pub use flow::compare as compare_programs;
#[cfg(test)]
pub use tests::{validated, validated_for};
pub use values::{Bounds, compare as compare_values};

use sardonyx_base::json::Json;
use std::collections::{BTreeMap, BTreeSet};

/// Depths (see `cut`) that are tried in turn if the results of a part differ with free operands. Small depths usually
/// suffice, because a rule concerns only a few nodes.
static DEPTHS: &[usize] = &[1, 2, 3, 5, 9];

/// Result of one check.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Equal,
    /// Nothing was compared, for the given reason.
    Skipped(&'static str),
    Differs(String),
}

/// Results of all checks so far.
#[derive(Clone, Debug, Default)]
pub struct Validation {
    /// Digests of the parts that were found to be equal.
    seen: BTreeSet<u64>,
    /// Number of parts found to be equal, including repeated ones.
    pub checked: usize,
    /// Number of checked parts that are identical to an earlier part.
    pub repeated: usize,
    /// Number of skipped parts by reason.
    pub skipped: BTreeMap<&'static str, usize>,
}

/// Both sides of a rewrite, ready to run.
pub struct Part<'a> {
    /// Digest of the part, equal for parts that differ in names only.
    pub digest: u64,
    pub run: Box<dyn FnOnce() -> Verdict + 'a>,
}

impl Validation {
    /// Checks a part with free operands and, if the results differ, together with the steps that compute its operands,
    /// at increasing depths (see `cut`). Returns the difference, if any.
    pub fn check<'a>(&mut self, part: &dyn Fn(usize) -> Result<Part<'a>, &'static str>) -> Option<String> {
        let mut verdict = self.verdict(part(0));
        for &depth in DEPTHS {
            if verdict == Verdict::Equal {
                break;
            }
            match self.verdict(part(depth)) {
                // The cut is too large; the previous verdict stands.
                Verdict::Skipped(_) if depth > 1 => break,
                other => verdict = other,
            }
        }
        match verdict {
            Verdict::Equal => self.checked += 1,
            Verdict::Skipped(reason) => *self.skipped.entry(reason).or_default() += 1,
            Verdict::Differs(what) => return Some(what),
        }
        None
    }

    /// Runs a part, unless an identical part was already found to be equal.
    fn verdict(&mut self, part: Result<Part, &'static str>) -> Verdict {
        let part = match part {
            Ok(part) => part,
            Err(reason) => return Verdict::Skipped(reason),
        };
        if self.seen.contains(&part.digest) {
            self.repeated += 1;
            return Verdict::Equal;
        }
        let verdict = (part.run)();
        if verdict == Verdict::Equal {
            self.seen.insert(part.digest);
        }
        verdict
    }

    /// Converts the counts to an object with the members `checked`, `repeated` and `skipped`.
    pub fn json(&self) -> Json {
        let skipped = self.skipped.iter();
        let skipped = skipped.map(|(why, n)| Json::Object(vec![("reason", (*why).into()), ("count", (*n).into())]));
        Json::Object(vec![
            ("checked", self.checked.into()),
            ("repeated", self.repeated.into()),
            ("skipped", Json::List(skipped.collect())),
        ])
    }

    /// Formats the results: `412 rewrites checked (301 of them repeat another); 3 skipped: too large to interpret`.
    pub fn line(&self) -> String {
        let mut out = format!("{} rewrites checked ({} of them repeat another)", self.checked, self.repeated);
        for (reason, n) in &self.skipped {
            out.push_str(&format!("; {n} skipped: {reason}"));
        }
        out
    }
}
