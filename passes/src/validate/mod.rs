//! a program before and after a rewrite  =>  equal on random operands at small dimensions, or an error that names the rewrite
//!
//! The interpreter runs what the rewrite changed, and only that: what the changed part reads is drawn at random, where
//! needed together with what it is made of. Symbols are small numbers that keep the program's checks; dimensions without
//! a symbol stay as they are, so that parts which are too large are skipped, and counted. What equals a part that was
//! checked before (another layer's) is not run again.

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

/// See `cut`. Rules that were applied one after the other look at a few nodes each.
static DEPTHS: &[usize] = &[1, 2, 3, 5, 9];

/// What one check came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Equal,
    /// Why nothing was compared.
    Skipped(&'static str),
    Differs(String),
}

/// Checks so far.
#[derive(Clone, Debug, Default)]
pub struct Validation {
    /// What was found equal, by a digest of its text.
    seen: BTreeSet<u64>,
    pub checked: usize,
    /// Of those checked, how many equal an earlier one to the letter.
    pub repeated: usize,
    /// How many were skipped for each reason.
    pub skipped: BTreeMap<&'static str, usize>,
}

/// Both sides of a rewrite, ready to run.
pub struct Part<'a> {
    /// The same for parts that are the same but for names.
    pub digest: u64,
    pub run: Box<dyn FnOnce() -> Verdict + 'a>,
}

impl Validation {
    /// Checks a part by what it reads, and where that is not enough, together with what that is made of (see `cut`);
    /// says what differs.
    pub fn check<'a>(&mut self, part: &dyn Fn(usize) -> Result<Part<'a>, &'static str>) -> Option<String> {
        let mut verdict = self.verdict(part(0));
        for &depth in DEPTHS {
            if verdict == Verdict::Equal {
                break;
            }
            match self.verdict(part(depth)) {
                // Too deep; what was found before stands.
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

    /// Runs a part, unless its equal has been.
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

    pub fn json(&self) -> Json {
        let skipped = self.skipped.iter();
        let skipped = skipped.map(|(why, n)| Json::Object(vec![("reason", (*why).into()), ("count", (*n).into())]));
        Json::Object(vec![
            ("checked", self.checked.into()),
            ("repeated", self.repeated.into()),
            ("skipped", Json::List(skipped.collect())),
        ])
    }

    /// `412 rewrites checked (301 of them repeat another); 3 skipped: too large to interpret`
    pub fn line(&self) -> String {
        let mut out = format!("{} rewrites checked ({} of them repeat another)", self.checked, self.repeated);
        for (reason, n) in &self.skipped {
            out.push_str(&format!("; {n} skipped: {reason}"));
        }
        out
    }
}
