//! `line 12: unknown instruction `foo.bar``

use std::fmt;

/// The reason why a text, a launch or a call was refused. Line 0 means that the error does not concern a line of the
/// text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Line of the PTX text, numbered from 1; 0 if the error does not concern a line.
    pub line: u32,
    /// What was refused and why, without the line number.
    pub message: String,
}

impl Error {
    /// Returns an error that concerns a line of the text, or no line in particular if `line` is 0.
    pub fn new(line: u32, message: impl Into<String>) -> Self {
        Error { line, message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.message),
            line => write!(f, "line {line}: {}", self.message),
        }
    }
}

impl std::error::Error for Error {}
