//! A user's mistake  =>  `error[E0101]: …  --> file, node …  help: …`, as a value

use crate::json::Json;
use std::fmt;

/// The party at fault; it determines the exit code of the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The input (model, artifact, tensor, command line): exit code 2.
    User,
    /// No party is at fault, but a comparison failed: exit code 1.
    Check,
    /// The compiler or the runtime is defective: exit code 3.
    Defect,
}

impl Fault {
    /// Returns the exit code of a command that fails for this reason: 1, 2 or 3.
    pub fn exit_code(self) -> i32 {
        match self {
            Fault::Check => 1,
            Fault::User => 2,
            Fault::Defect => 3,
        }
    }
}

/// Category of an error, by which callers decide how to react. Each code belongs to one category.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option or an argument is wrong.
    Usage,
    /// A file cannot be read or written.
    File,
    /// The model cannot be compiled.
    Model,
    /// The tensors of a call do not fit the model, or their values are inconsistent.
    Input,
    /// Memory or threads are not available, or would exceed a limit.
    Resources,
    /// The deadline of a call has passed. The session remains usable.
    Deadline,
    /// A call was cancelled. The session remains usable.
    Cancelled,
    /// A cache has no capacity for more positions.
    CacheFull,
    /// The queue of a session pool is full. The request can be repeated later.
    QueueFull,
    /// A pool of sessions accepts no more requests.
    Closed,
    /// The artifact is damaged, or computes wrong results.
    Artifact,
    /// The artifact was written for another version.
    Version,
    /// The device or the processor is missing, lacks a feature, or failed.
    Device,
    /// Other ranks are missing, too many, or failed.
    Ranks,
    /// A comparison failed.
    Check,
    /// A defect of the compiler or the runtime.
    Defect,
}

use ErrorKind::*;

impl ErrorKind {
    /// The name, such as `cache-full`: stable, for logs, metrics and other languages.
    pub fn name(self) -> &'static str {
        match self {
            Usage => "usage",
            File => "file",
            Model => "model",
            Input => "input",
            Resources => "resources",
            Deadline => "deadline",
            Cancelled => "cancelled",
            CacheFull => "cache-full",
            QueueFull => "queue-full",
            Closed => "closed",
            Artifact => "artifact",
            Version => "version",
            Device => "device",
            Ranks => "ranks",
            Check => "check",
            Defect => "defect",
        }
    }
}

/// One diagnostic. `code` is stable and listed in [`CODES`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Error {
    /// The party at fault.
    pub fault: Fault,
    /// Code such as `E0101`, which programs can rely on.
    pub code: &'static str,
    /// Description of what is wrong; when displayed, code, file, node and remedy are added.
    pub message: String,
    /// Path or name of the file that the message is about; `None` if it is about no file.
    pub file: Option<String>,
    /// The ONNX node (or input, or artifact entry) that the message is about.
    pub node: Option<String>,
    /// Remedy specific to this error; `None` if that of its code in [`CODES`] applies.
    pub help: Option<String>,
}

/// Result of a function that fails with an [`Error`].
pub type Result<T> = std::result::Result<T, Box<Error>>;

/// Rows: code, kind, meaning, and the remedy that is shown if a diagnostic has none of its own. Sorted by code; codes
/// are never reused.
pub static CODES: &[(&str, ErrorKind, &str, &str)] = &[
    ("E0001", Usage, "the command line is wrong", "run the command with `--help`"),
    (
        "E0002",
        File,
        "a file cannot be read or written",
        "check the path, its permissions and the space left on the disk",
    ),
    ("E0101", Model, "an operator is not supported", "`sardonyx ops` lists the supported operators"),
    ("E0102", Model, "an opset or IR version is not supported", "export the model again with a supported version"),
    (
        "E0103",
        Model,
        "the file is not a well-formed ONNX model",
        "check the model with onnx.checker, or export it again",
    ),
    (
        "E0104",
        Model,
        "the graph is malformed: cycle, undefined or duplicate name",
        "check the model with onnx.checker, or export it again",
    ),
    (
        "E0105",
        Model,
        "external data is missing, short, or outside the model's folder",
        "put the file that belongs to the model into its folder",
    ),
    (
        "E0106",
        Model,
        "an attribute is missing or has a wrong value",
        "compare the node with the definition of its operator, or check the model with onnx.checker",
    ),
    (
        "E0107",
        Model,
        "an element type is not supported here",
        "insert a Cast, or export the model with another element type",
    ),
    (
        "E0108",
        Model,
        "what the model or a plan says of its devices contradicts itself, or is not supported",
        "correct the device configuration or the plan, or leave it out and compile with `--ranks N`",
    ),
    (
        "E0109",
        Model,
        "the host would have to compute something, which was not allowed",
        "compile without --no-host, or export the model without operators whose result sizes depend on data",
    ),
    (
        "E0110",
        File,
        "a file of measured tiles is malformed, or was measured for other code",
        "measure again: compile with `--tune-candidates`, then `sardonyx-run tune`",
    ),
    ("E0201", Model, "shapes contradict each other", "check the shapes of the node's inputs"),
    (
        "E0202",
        Model,
        "a dimension or size overflows",
        "check the dimensions; no machine has memory for so many elements",
    ),
    (
        "E0203",
        Model,
        "a shape depends on data in a way that is not supported",
        "export the model with static shapes, or with the shape computed from dimensions of the inputs",
    ),
    (
        "E0204",
        Model,
        "a dimension symbol is unknown or its range is wrong",
        "write --dim NAME=N or --dim NAME=LO..HI with a symbol of the model's inputs",
    ),
    (
        "E0301",
        Input,
        "an input is missing, surplus, or has a wrong type or shape",
        "`sardonyx inspect MODEL.sdx` shows the inputs; `sardonyx compile --dim` sets the range of a dimension",
    ),
    (
        "E0302",
        Input,
        "a tensor file is malformed",
        "write the file again, for example with numpy.save or onnx.save_tensor",
    ),
    (
        "E0303",
        Input,
        "an index, an axis or a length that comes from data is out of range",
        "check the values of the inputs that it is computed from",
    ),
    (
        "E0304",
        Resources,
        "the memory or the threads for a call cannot be had",
        "use smaller inputs or fewer threads, or raise the limit",
    ),
    ("E0305", Deadline, "the deadline of a call has passed", "allow more time, or use smaller inputs"),
    ("E0306", Cancelled, "a call was cancelled", "call again without cancelling"),
    (
        "E0307",
        CacheFull,
        "a cache has no room for more positions",
        "make the cache with a larger capacity, or truncate it",
    ),
    (
        "E0308",
        QueueFull,
        "as many requests wait for a session as the pool admits",
        "ask again later, or let more requests wait, or use more sessions",
    ),
    ("E0309", Closed, "the pool of sessions takes no more requests", "make another pool"),
    ("E0401", Artifact, "the artifact is damaged", "compile the model again, or copy the file again"),
    ("E0402", Version, "the artifact was written for another version", "compile the model again with this version"),
    ("E0403", Device, "the artifact needs another CPU", "run it on a processor of the kind that it was compiled for"),
    (
        "E0404",
        Artifact,
        "the artifact's self-test failed",
        "copy or compile the artifact again; if it fails elsewhere too, the compiler is wrong, else this machine",
    ),
    (
        "E0405",
        Device,
        "a device or a part of the runtime is not there, or a device failed",
        "use `--device cpu`, or install what the device needs",
    ),
    (
        "E0406",
        Device,
        "a device description is wrong",
        "compare the file with what `sardonyx devices NAME --toml` prints",
    ),
    (
        "E0407",
        Ranks,
        "the model is made for other ranks than it is run with",
        "run it with as many ranks as it was compiled for, or compile it with another `--ranks`",
    ),
    (
        "E0408",
        Ranks,
        "another rank failed, left or does not answer",
        "look for the first rank that the message names; the others stopped because of it",
    ),
    (
        "E0409",
        Artifact,
        "the artifact is not one that the caller trusts",
        "compare what `sardonyx inspect` says of it with what its maker says",
    ),
    (
        "E0410",
        Device,
        "a device was lost: it takes no more work from this process",
        "end the process and start another; if that loses the device too, look at what its driver says of it",
    ),
    (
        "E0501",
        Check,
        "a result differs from what was expected",
        "compare the tolerance with the precision of the model",
    ),
    (
        "E0502",
        Resources,
        "the compiler ran out of the time or the memory that it may take",
        "allow more with `--time-limit` and `--memory-limit`, or compile a smaller model",
    ),
    ("E0901", Defect, "a defect of the compiler", "please report it with the command that was run"),
];

impl Error {
    /// Returns an error of [`Fault::User`]; `code` is one of [`CODES`].
    pub fn user(code: &'static str, message: impl Into<String>) -> Box<Error> {
        Error::new(Fault::User, code, message)
    }

    /// A defect of the compiler or runtime: a state that no input should be able to reach.
    pub fn defect(message: impl Into<String>) -> Box<Error> {
        Error::new(Fault::Defect, "E0901", message)
    }

    /// Returns an error without file, node and help; `code` is one of [`CODES`].
    pub fn new(fault: Fault, code: &'static str, message: impl Into<String>) -> Box<Error> {
        debug_assert!(row(code).is_some(), "{code} is not in CODES");
        Box::new(Error { fault, code, message: message.into(), file: None, node: None, help: None })
    }

    /// Returns E0002 for the file at `path`; `doing` is a verb such as `read`.
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

    /// The category of the error.
    pub fn kind(&self) -> ErrorKind {
        row(self.code).map_or(Defect, |(_, kind, ..)| *kind)
    }

    /// The error's own help, else the remedy of its code.
    pub fn remedy(&self) -> Option<&str> {
        self.help.as_deref().or_else(|| row(self.code).map(|(.., remedy)| *remedy))
    }

    /// The error as an object, for programs: `file`, `node` and `help` may be null.
    pub fn json(&self) -> Json {
        Json::Object(vec![
            ("code", self.code.into()),
            ("kind", self.kind().name().into()),
            ("message", self.message.as_str().into()),
            ("file", self.file.as_deref().into()),
            ("node", self.node.as_deref().into()),
            ("help", self.remedy().into()),
            ("exit_code", i64::from(self.fault.exit_code()).into()),
        ])
    }

    /// Sets the help, unless an inner layer already did.
    pub fn help(mut self: Box<Self>, help: impl Into<String>) -> Box<Error> {
        self.help.get_or_insert_with(|| help.into());
        self
    }
}

/// The row of a code in [`CODES`].
pub fn row(code: &str) -> Option<&'static (&'static str, ErrorKind, &'static str, &'static str)> {
    CODES.iter().find(|(known, ..)| *known == code)
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
        match self.remedy() {
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
    fn an_error_has_the_kind_of_its_code() {
        assert_eq!(Error::user("E0305", "late").kind(), Deadline);
        assert_eq!(Error::defect("ours").kind(), Defect);
        for (code, kind, ..) in CODES {
            assert!(kind.name().bytes().all(|c| c.is_ascii_lowercase() || c == b'-'), "{code}");
        }
    }

    #[test]
    fn the_innermost_layer_names_the_node() {
        let e = Error::user("E0101", "unsupported operator `Foo`").node("/a/Foo").node("outer").file("m.onnx");
        let text = "error[E0101]: unsupported operator `Foo`\n  --> m.onnx, node /a/Foo";
        assert_eq!(e.to_string(), format!("{text}\n  help: `sardonyx ops` lists the supported operators"));
        assert_eq!(e.help("write it yourself").to_string(), format!("{text}\n  help: write it yourself"));
    }
}
