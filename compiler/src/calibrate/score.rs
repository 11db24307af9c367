//! --score COMMAND  =>  the score that a user's command gives to an artifact

use sardonyx_base::{Error, Result};
use std::path::Path;
use std::process::Command;

/// Placeholder for the artifact's path in a command.
pub const PLACE: &str = "{}";

/// The command that scores an artifact, and how much lower than that of the f32 artifact the score may be.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// The command, which `sh` runs. The last non-empty line that it prints to standard output is the score; larger is
    /// better.
    pub command: String,
    /// Largest accepted decrease from the score of the f32 artifact.
    pub drop: f64,
}

impl Score {
    /// Scores an artifact. Errors: E0002 if there is no shell; E0501 if the command fails or its last line is no
    /// number.
    pub fn measure(&self, artifact: &Path) -> Result<f64> {
        let path = format!("'{}'", artifact.display().to_string().replace('\'', r"'\''"));
        let command = self.command.replace(PLACE, &path);
        let shell = Path::new("sh");
        let ran = Command::new(shell).arg("-c").arg(&command).output().map_err(|e| Error::io(shell, "run", &e))?;
        let text = String::from_utf8_lossy(&ran.stdout);
        let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let score = last.parse::<f64>().ok().filter(|score| score.is_finite() && ran.status.success());
        score.ok_or_else(|| {
            let said = String::from_utf8_lossy(&ran.stderr);
            let why = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
            let why = why.map_or(format!("its last line is `{last}`"), |line| format!("it says: {line}"));
            let message = format!("the command of `--score` gives no score ({}): {why}", ran.status);
            Error::user("E0501", message).help(format!("`{command}` has to print a number in its last line"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_score() {
        let score = |command: &str| Score { command: command.into(), drop: 0.0 }.measure(Path::new("it's.sdx"));
        assert_eq!(score("echo {} >/dev/null; echo 3; echo ' 0.25'; echo").unwrap(), 0.25);
        assert_eq!(score("printf '%s' {} | wc -c").unwrap(), 8.0);
        for (command, says) in [
            ("echo two", "its last line is `two`"),
            ("echo 1; echo no data >&2; exit 3", "it says: no data"),
            ("echo nan", "its last line is `nan`"),
            ("true", "its last line is ``"),
        ] {
            let e = score(command).unwrap_err();
            assert!(e.code == "E0501" && e.message.ends_with(says), "{}", e.message);
        }
    }
}
