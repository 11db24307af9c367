//! A user's mistake  =>  `error[E0101]: …  --> file, node …  help: …`, as a value

use std::fmt;

/// Whose fault an error is; decides the exit code of the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The input (model, artifact, tensor, command line) is at fault: exit code 2.
    User,
    /// A comparison failed: exit code 1.
    Check,
    /// A defect of ours: exit code 3.
    Defect,
}

impl Fault {
    pub fn exit_code(self) -> i32 {
        match self {
            Fault::Check => 1,
            Fault::User => 2,
            Fault::Defect => 3,
        }
    }
}

/// One diagnostic. `code` is stable and listed in [`CODES`].
#[derive(Clone, Debug)]
pub struct Error {
    pub fault: Fault,
    pub code: &'static str,
    pub message: String,
    pub file: Option<String>,
    /// The ONNX node (or input, or artifact entry) that the message is about.
    pub node: Option<String>,
    pub help: Option<String>,
}

pub type Result<T> = std::result::Result<T, Box<Error>>;

/// Every code with what it is for. Sorted; codes are never reused.
pub static CODES: &[(&str, &str)] = &[
    ("E0001", "the command line is wrong"),
    ("E0002", "a file cannot be read or written"),
    ("E0101", "an operator is not supported"),
    ("E0102", "an opset or IR version is not supported"),
    ("E0103", "the file is not a well-formed ONNX model"),
    ("E0104", "the graph is malformed: cycle, undefined or duplicate name"),
    ("E0105", "external data is missing, short, or outside the model's folder"),
    ("E0106", "an attribute is missing or has a wrong value"),
    ("E0107", "an element type is not supported here"),
    ("E0201", "shapes contradict each other"),
    ("E0202", "a dimension or size overflows"),
    ("E0203", "a shape depends on data in a way that is not supported"),
    ("E0204", "a dimension symbol is unknown or its range is wrong"),
    ("E0301", "an input is missing, surplus, or has a wrong type or shape"),
    ("E0302", "a tensor file is malformed"),
    ("E0303", "a computed index is out of range"),
    ("E0304", "the memory or the threads for a call cannot be had"),
    ("E0305", "the deadline of a call has passed"),
    ("E0306", "a call was cancelled"),
    ("E0401", "the artifact is damaged"),
    ("E0402", "the artifact was written for another version"),
    ("E0403", "the artifact needs another CPU"),
    ("E0404", "the artifact's self-test failed"),
    ("E0501", "a result differs from what was expected"),
    ("E0901", "a defect of the compiler"),
];

impl Error {
    pub fn user(code: &'static str, message: impl Into<String>) -> Box<Error> {
        Error::new(Fault::User, code, message)
    }

    /// A defect of ours: a state that no input should be able to reach.
    pub fn defect(message: impl Into<String>) -> Box<Error> {
        Error::new(Fault::Defect, "E0901", message)
    }

    pub fn new(fault: Fault, code: &'static str, message: impl Into<String>) -> Box<Error> {
        debug_assert!(CODES.iter().any(|(c, _)| *c == code), "{code} is not in CODES");
        Box::new(Error { fault, code, message: message.into(), file: None, node: None, help: None })
    }

    pub fn io(path: impl AsRef<std::path::Path>, doing: &str, error: &std::io::Error) -> Box<Error> {
        let path = path.as_ref().display().to_string();
        Error::user("E0002", format!("cannot {doing} {path}: {error}")).file(path)
    }

    /// Names the file, unless an inner layer already did.
    pub fn file(mut self: Box<Self>, file: impl Into<String>) -> Box<Error> {
        self.file.get_or_insert_with(|| file.into());
        self
    }

    /// Names the node, unless an inner layer already did.
    pub fn node(mut self: Box<Self>, node: impl Into<String>) -> Box<Error> {
        self.node.get_or_insert_with(|| node.into());
        self
    }

    pub fn help(mut self: Box<Self>, help: impl Into<String>) -> Box<Error> {
        self.help.get_or_insert_with(|| help.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        match (&self.file, &self.node) {
            (Some(file), Some(node)) => write!(f, "\n  --> {file}, node {node}")?,
            (Some(file), None) => write!(f, "\n  --> {file}")?,
            (None, Some(node)) => write!(f, "\n  --> node {node}")?,
            (None, None) => {}
        }
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_unique() {
        assert!(CODES.windows(2).all(|w| w[0].0 < w[1].0));
    }

    #[test]
    fn the_innermost_layer_names_the_node() {
        let e = Error::user("E0101", "unsupported operator `Foo`").node("/a/Foo").node("outer").file("m.onnx");
        assert_eq!(e.to_string(), "error[E0101]: unsupported operator `Foo`\n  --> m.onnx, node /a/Foo");
    }
}
