//! `2:4`, `2:4:16`, `global:0.9`, `block:0.8,1x4`, `REGEX=RULE`  =>  which weights become 0

use regex_lite::Regex;
use sardonyx_dialects::flow::sparse::{M_MAX, N_MAX, PATTERNS_MAX, patterns};
use sardonyx_passes::Named;

/// Which weights stay, by their scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// The `n` largest of each `m` neighbours along K.
    Neighbours {
        /// Number of weights that stay in each group.
        n: usize,
        /// Number of weights in a group.
        m: usize,
    },
    /// `[n, m, g]`: each position along K keeps the weights of n of m adjacent results. Which n is a pattern; about g
    /// positions of a chunk share a pattern.
    Groups([usize; 3]),
    /// Share of the weights that is removed: of all products with the rule together if scores are magnitudes, of each
    /// product if scores come from data.
    Global(f64),
    /// Removes the share `part` of a product's blocks of weights, each of `rows` results by `columns` neighbours along
    /// K.
    Blocks {
        /// Share of the blocks that is removed, between 0 and 1.
        part: f64,
        /// Number of results in a block.
        rows: usize,
        /// Number of neighbours along K in a block.
        columns: usize,
    },
}

/// How the score of a weight is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saliency {
    /// |w|
    Magnitude,
    /// w² · Σ x², over the data (optimal brain damage).
    Obd,
    /// Loss of the product on the data if later weights compensate for the removed one (optimal brain surgeon).
    Obs,
}

impl Named for Saliency {
    const NAMES: &'static [(&'static str, Saliency)] =
        &[("magnitude", Saliency::Magnitude), ("obd", Saliency::Obd), ("obs", Saliency::Obs)];
}

/// A rule, and a pattern for the ONNX nodes it applies to; without a pattern, to all.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Regular expression that matches a name or a part of it; `None` for all nodes.
    pub pattern: Option<Regex>,
    /// Rule for the weights of these nodes.
    pub rule: Rule,
    /// The choice as written by the user.
    pub text: String,
}

/// Largest group of neighbours, and largest side of a block.
const SIDE_MAX: usize = 1 << 10;

/// Groups have fewer columns than this.
const COLUMNS_MAX: usize = 1 << 15;

/// Whether a sparse format with these sizes exists.
fn is_format([n, m, g]: [usize; 3]) -> bool {
    let columns = patterns(n, m).and_then(|patterns| patterns.len().checked_mul(g));
    columns.is_some_and(|columns| (1..COLUMNS_MAX).contains(&columns))
}

impl Rule {
    /// Parses a rule such as `2:4`. The error says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Rule, String> {
        let part = |text: &str| {
            let part = text.parse::<f64>().ok().filter(|part| (0.0..1.0).contains(part) && *part > 0.0);
            part.ok_or_else(|| format!("`{text}` is no part of the weights: write a number between 0 and 1, as 0.9"))
        };
        let side = |text: &str| text.parse::<usize>().ok().filter(|n| (1..=SIDE_MAX).contains(n));
        let sides = |text: &str, mark: char| {
            let (a, b) = text.split_once(mark)?;
            Some((side(a)?, side(b)?))
        };
        if let Some(text) = text.strip_prefix("global:") {
            return part(text).map(Rule::Global);
        }
        if let Some(text) = text.strip_prefix("block:") {
            let form = || format!("`block:{text}`: write block:PART,ROWSxCOLUMNS, as block:0.8,1x4");
            let (share, block) = text.split_once(',').ok_or_else(form)?;
            let (rows, columns) = sides(block, 'x').ok_or_else(form)?;
            return part(share).map(|part| Rule::Blocks { part, rows, columns });
        }
        if let [n, m, g] = text.split(':').collect::<Vec<&str>>()[..] {
            let sizes = [n, m, g].map(|n| n.parse::<usize>().unwrap_or(0));
            return is_format(sizes).then_some(Rule::Groups(sizes)).ok_or_else(|| {
                format!(
                    "`{text}` is no rule: of N:M:G, as 2:4:16, N is at most {N_MAX} and less than M, which is at most \
                     {M_MAX}, and there are at most {PATTERNS_MAX} choices of N of M rows, which a group of fewer than {COLUMNS_MAX} columns has G times each"
                )
            });
        }
        match sides(text, ':') {
            Some((n, m)) if n < m => Ok(Rule::Neighbours { n, m }),
            _ => Err(format!(
                "`{text}` is no rule: write N:M with 0 < N < M, as 2:4; N:M:G, as 2:4:16; global:PART, as global:0.9; or \
                 block:PART,ROWSxCOLUMNS, as block:0.8,1x4"
            )),
        }
    }
}

impl Choice {
    /// Parses `RULE` or `REGEX=RULE`.
    pub fn parse(text: &str) -> Result<Choice, String> {
        let (pattern, rule) = match text.rsplit_once('=') {
            Some((pattern, rule)) => (Some(Regex::new(pattern).map_err(|e| e.to_string())?), rule),
            None => (None, text),
        };
        Ok(Choice { pattern, rule: Rule::parse(rule)?, text: text.to_string() })
    }

    /// Whether the choice applies to a product with these ONNX nodes.
    pub fn is_for(&self, origins: &[String]) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| origins.iter().any(|origin| pattern.is_match(origin)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_what_they_say() {
        let rule = |text: &str| Rule::parse(text);
        assert_eq!(rule("2:4"), Ok(Rule::Neighbours { n: 2, m: 4 }));
        assert_eq!(rule("2:4:16"), Ok(Rule::Groups([2, 4, 16])));
        assert_eq!(rule("global:0.9"), Ok(Rule::Global(0.9)));
        assert_eq!(rule("block:0.8,1x4"), Ok(Rule::Blocks { part: 0.8, rows: 1, columns: 4 }));
        for wrong in [
            "2:0",
            "5:4",
            "4:4",
            "0:4",
            "2:",
            "",
            "global:1",
            "global:0",
            "global:-1",
            "global:nan",
            "block:0.5",
            "block:0.5,0x4",
            "block:2,1x4",
            "2:4000",
            "2:4:0",
            "4:4:1",
            "2:4:16:1",
            "5:8:1",
            "2:16:1",
            "2:4:32768",
            "2:4:99999999999999999999",
        ] {
            assert!(rule(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_choice_is_for_the_nodes_that_its_pattern_finds() {
        let choice = Choice::parse("layer.(0|1).*=2:4").unwrap();
        assert!(choice.is_for(&["/layer.1/MatMul".into()]) && !choice.is_for(&["/layer.2/MatMul".into()]));
        assert!(Choice::parse("2:4").unwrap().is_for(&[]));
        assert!(Choice::parse("(=2:4").is_err());
    }
}
