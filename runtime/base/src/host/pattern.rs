//! strings, pattern  =>  which of the strings the pattern matches as a whole
//!
//! Only the existence of a match is needed, so the automaton is simulated as a set of states, byte by byte: its time is
//! bounded by states times bytes, and it can be stopped at any byte.

use super::Budget;
#[cfg(feature = "regex")]
use super::text::Texts;
use crate::{Result, Tensor};
#[cfg(feature = "regex")]
use regex_automata::{
    nfa::thompson::{Compiler, Config, NFA, State, WhichCaptures},
    util::primitives::StateID,
};
#[cfg(feature = "regex")]
use regex_syntax::hir::{Hir, Look};

#[cfg(not(feature = "regex"))]
pub fn full_match(_x: &Tensor, _pattern: &Tensor, _budget: &Budget) -> Result<Tensor> {
    Err(super::left_out("RegexFullMatch", "regex"))
}

/// Whether the pattern (in RE2's syntax) matches each string as a whole. Errors: E0106 for the pattern.
#[cfg(feature = "regex")]
pub fn full_match(x: &Tensor, pattern: &Tensor, budget: &Budget) -> Result<Tensor> {
    let pattern = Texts::new(pattern, budget)?.first()?;
    let nfa = anchored(pattern).map_err(|reason| {
        let shown: String = pattern.chars().take(SHOWN_MAX).collect();
        crate::Error::user("E0106", format!("`{shown}` is no regular expression: {reason}"))
    })?;
    budget.take(nfa.memory_usage())?;
    let (texts, mut run) = (Texts::new(x, budget)?, Run::new(&nfa, budget)?);
    let found = budget.collect(x.len(), |i| run.is_match(texts.get(i)?.as_bytes()))?;
    Ok(Tensor::from_vec(x.dims().to_vec(), found))
}

/// Maximum size of a compiled pattern in bytes, as in the crate `regex`.
#[cfg(feature = "regex")]
const PATTERN_BYTES_MAX: usize = 10 << 20;

/// Maximum length of a pattern in bytes: parsing takes some hundred bytes of memory for each of them.
#[cfg(feature = "regex")]
const TEXT_BYTES_MAX: usize = 1 << 18;

/// Number of characters of a pattern that a message shows.
#[cfg(feature = "regex")]
const SHOWN_MAX: usize = 1000;

/// The pattern anchored at both ends of the text. The pattern is parsed by itself: within `^(?:PATTERN)$`, a
/// parenthesis of the pattern could close the group.
#[cfg(feature = "regex")]
fn anchored(pattern: &str) -> std::result::Result<NFA, String> {
    if pattern.len() > TEXT_BYTES_MAX {
        return Err(format!("it has {} bytes, at most {TEXT_BYTES_MAX} are supported", pattern.len()));
    }
    let inner = regex_syntax::parse(pattern).map_err(|e| e.to_string())?;
    let whole = Hir::concat(vec![Hir::look(Look::Start), inner, Hir::look(Look::End)]);
    let config = Config::new().nfa_size_limit(Some(PATTERN_BYTES_MAX)).which_captures(WhichCaptures::None);
    Compiler::new().configure(config).build_from_hir(&whole).map_err(|e| match e.size_limit() {
        Some(limit) => format!("its compiled form is larger than {limit} bytes"),
        None => e.to_string(),
    })
}

/// The set of states that an automaton may be in.
#[cfg(feature = "regex")]
struct Run<'a> {
    nfa: &'a NFA,
    budget: &'a Budget<'a>,
    now: Vec<StateID>,
    next: Vec<StateID>,
    /// States whose transitions without a byte are still to be followed.
    open: Vec<StateID>,
    /// For each state, the last step at which it was reached.
    reached: Vec<u64>,
    step: u64,
}

#[cfg(feature = "regex")]
impl<'a> Run<'a> {
    fn new(nfa: &'a NFA, budget: &'a Budget<'a>) -> Result<Run<'a>> {
        let n = nfa.states().len();
        let [now, next, open] = [budget.room(n)?, budget.room(n)?, budget.room(n)?];
        Ok(Run { nfa, budget, now, next, open, reached: budget.filled(0, n)?, step: 0 })
    }

    fn is_match(&mut self, text: &[u8]) -> Result<bool> {
        self.step += 1;
        self.next.clear();
        let mut is_match = self.enter(self.nfa.start_anchored(), text, 0)?;
        for (at, byte) in text.iter().enumerate() {
            std::mem::swap(&mut self.now, &mut self.next);
            if self.now.is_empty() {
                return Ok(false);
            }
            self.next.clear();
            self.step += 1;
            is_match = false;
            for i in 0..self.now.len() {
                self.budget.work(1)?;
                let next = match self.nfa.state(self.now[i]) {
                    State::ByteRange { trans } => trans.matches_byte(*byte).then_some(trans.next),
                    State::Sparse(sparse) => sparse.matches_byte(*byte),
                    State::Dense(dense) => dense.matches_byte(*byte),
                    State::Look { .. } | State::Union { .. } | State::BinaryUnion { .. } => None,
                    State::Capture { .. } | State::Fail | State::Match { .. } => None,
                };
                if let Some(next) = next {
                    is_match |= self.enter(next, text, at + 1)?;
                }
            }
        }
        Ok(is_match)
    }

    /// Enters a state before byte `at`, and all states that it reaches without consuming a byte; returns whether one of
    /// them is the match.
    fn enter(&mut self, state: StateID, text: &[u8], at: usize) -> Result<bool> {
        let mut is_match = false;
        self.reach(state);
        while let Some(state) = self.open.pop() {
            self.budget.work(1)?;
            match self.nfa.state(state) {
                State::ByteRange { .. } | State::Sparse(_) | State::Dense(_) => self.next.push(state),
                State::Look { look, next } if self.nfa.look_matcher().matches(*look, text, at) => self.reach(*next),
                State::Look { .. } | State::Fail => {}
                State::Union { alternates } => alternates.iter().for_each(|next| self.reach(*next)),
                State::BinaryUnion { alt1, alt2 } => [alt1, alt2].into_iter().for_each(|next| self.reach(*next)),
                State::Capture { next, .. } => self.reach(*next),
                // This happens only at the end of the text, because the anchor precedes it.
                State::Match { .. } => is_match = true,
            }
        }
        Ok(is_match)
    }

    /// Marks a state as reached and appends it to `open`, once per byte, so no list is longer than the number of
    /// states.
    fn reach(&mut self, state: StateID) {
        let reached = &mut self.reached[state.as_usize()];
        if *reached != self.step {
            *reached = self.step;
            self.open.push(state);
        }
    }
}

#[cfg(all(test, feature = "regex"))]
mod tests {
    use super::*;

    fn s(v: &[&str]) -> Tensor {
        Tensor::from_strings(vec![v.len()], v)
    }

    #[test]
    fn a_match_is_of_the_whole() {
        let found = full_match(&s(&["abc", "xabc", "ab"]), &s(&["ab|abc"]), &Budget::unlimited()).unwrap();
        assert_eq!(found.bytes()[..], [1, 0, 1]);
        let one = |text: &str, pattern: &str| {
            full_match(&s(&[text]), &s(&[pattern]), &Budget::unlimited()).map(|t| t.bytes()[0] == 1)
        };
        for (text, pattern, expected) in [
            ("a", "(?x) a # a comment", true),
            ("ab", "^a|b$", false),
            ("x\na", "(?m)^a$", false),
            ("A", "(?i)a", true),
            ("aB", "(?i:a)b", false),
            ("", "", true),
            ("ß9", r"\w\d", true),
        ] {
            assert_eq!(one(text, pattern).unwrap(), expected, "{text} {pattern}");
        }
        for pattern in ["(", ")", "a)|(b", "a)|(?:b", "(?P<n>a)(?P<n>b)", "a{1000}{1000}{1000}", &"(".repeat(10_000)] {
            assert_eq!(one("axxx", pattern).unwrap_err().code, "E0106", "{pattern}");
        }
    }

    /// The time for a pattern that can match a text in many ways depends on its states, not on the number of ways.
    #[test]
    fn nested_repetitions_are_followed_once() {
        let text = "a".repeat(5000);
        let one = |pattern: &str| full_match(&s(&[&text]), &s(&[pattern]), &Budget::unlimited()).unwrap().bytes()[0];
        assert_eq!((one("(a*)*b"), one("((a|aa)+)+"), one(r"(?:\b|a)*\ba*\b")), (0, 1, 1));
    }
}
