//! `.target sm_90a`, `.version 8.0`  =>  whether an instruction is available, by an assembler's rules

use super::statements::Decoder;
use crate::Error;

/// A target architecture. An architecture-specific target such as `sm_90a` has features that later GPUs need not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub sm: u32,
    pub specific: bool,
}

pub const SM_80: Target = Target { sm: 80, specific: false };
pub const SM_90: Target = Target { sm: 90, specific: false };
pub const SM_90A: Target = Target { sm: 90, specific: true };

impl Target {
    /// Parses the first architecture name of a `.target` line; `None` if no name begins with `sm_`.
    fn parse(line: &str) -> Option<Target> {
        // The parser drops commas from the line, so names are also split at spaces.
        let name = line.split([',', ' ']).map(str::trim).find_map(|part| part.strip_prefix("sm_"))?;
        let digits = name.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        Some(Target { sm: digits.parse().ok()?, specific: name.ends_with('a') })
    }

    /// Returns whether this target has the features of `needed`. Features of an architecture-specific target exist only
    /// on that target.
    fn has(self, needed: Target) -> bool {
        if needed.specific { self == needed } else { self.sm >= needed.sm }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sm_{}{}", self.sm, if self.specific { "a" } else { "" })
    }
}

fn version(line: &str) -> Option<(u32, u32)> {
    // The lexer reads `8.0` as a number and returns it as `8`.
    let (major, minor) = line.trim().split_once('.').unwrap_or((line.trim(), "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

impl Decoder<'_> {
    /// Refuses an instruction that is not available with the text's `.target` or `.version`.
    pub fn requires(&self, needed: Target, since: (u32, u32)) -> Result<(), Error> {
        if let Some(target) = Target::parse(&self.unit.target)
            && !target.has(needed)
        {
            return self.error(format!("needs .target {needed}, the text has {target}"));
        }
        match version(&self.unit.version) {
            Some(found) if found < since => {
                let (found, since) = (format!("{}.{}", found.0, found.1), format!("{}.{}", since.0, since.1));
                self.error(format!("needs .version {since}, the text has {found}"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_of_one_device_are_on_no_other() {
        let parse = |line| Target::parse(line).unwrap();
        assert!(parse("sm_90a, debug").has(SM_90A) && parse("sm_100").has(SM_90));
        assert!(parse("sm_90a debug").has(SM_90A) && !parse("texmode_unified sm_80").has(SM_90));
        assert!(!parse("sm_90").has(SM_90A) && !parse("sm_100a").has(SM_90A) && !parse("sm_89").has(SM_90));
        assert_eq!(Target::parse("texmode_unified"), None);
        assert_eq!((version("8.5"), version("8")), (Some((8, 5)), Some((8, 0))));
    }
}
