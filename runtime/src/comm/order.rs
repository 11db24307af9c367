//! messages from the first rank to the others, as bytes; and the text of a rank's failure

use sardonyx_base::{Error, ErrorKind, Fault, error};

/// An order to all ranks; an empty one ends them.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Order {
    #[prost(uint32, tag = "1")]
    pub call: u32,
    /// By lane of `segment.rs` (an axis of the mesh, or sends): the phase at which the order begins.
    #[prost(uint32, repeated, tag = "2")]
    pub bases: Vec<u32>,
    #[prost(message, optional, tag = "3")]
    pub run: Option<Run>,
    #[prost(message, optional, tag = "4")]
    pub load: Option<Load>,
    #[prost(message, optional, tag = "5")]
    pub open: Option<Open>,
    /// A session to drop.
    #[prost(uint64, optional, tag = "6")]
    pub close: Option<u64>,
    #[prost(message, optional, tag = "7")]
    pub measure: Option<Measure>,
}

/// The order to repeat one collective and measure it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Measure {
    #[prost(string, tag = "1")]
    pub op: String,
    /// Size of the result in bytes.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    #[prost(uint32, tag = "3")]
    pub times: u32,
    #[prost(uint32, tag = "4")]
    pub ranks: u32,
    /// Name of the algorithm; empty for the collectives of the transport's own library.
    #[prost(string, tag = "5")]
    pub algorithm: String,
}

/// The order to load an artifact.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Load {
    #[prost(bytes, tag = "1")]
    pub path: Vec<u8>,
    #[prost(uint32, tag = "2")]
    pub verify: u32,
    #[prost(string, tag = "3")]
    pub device: String,
    #[prost(string, optional, tag = "4")]
    pub level: Option<String>,
    /// Identity of the artifact, which every rank compares with the identity of its own file.
    #[prost(bytes, tag = "5")]
    pub identity: Vec<u8>,
    #[prost(bool, tag = "6")]
    pub copied: bool,
}

/// The order to open a session.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Open {
    #[prost(uint64, tag = "1")]
    pub session: u64,
    #[prost(uint64, tag = "2")]
    pub threads: u64,
    #[prost(bool, tag = "3")]
    pub pinned: bool,
    #[prost(uint64, optional, tag = "4")]
    pub memory_bytes_max: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub spin_ns_max: Option<u64>,
}

/// The order to make a call.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Run {
    #[prost(string, tag = "1")]
    pub entry: String,
    #[prost(message, repeated, tag = "2")]
    pub inputs: Vec<Input>,
    /// Time limit in nanoseconds, from now on.
    #[prost(uint64, optional, tag = "3")]
    pub limit: Option<u64>,
    #[prost(message, optional, tag = "4")]
    pub cache: Option<CacheRef>,
    /// Caches to drop.
    #[prost(uint64, repeated, tag = "5")]
    pub dropped: Vec<u64>,
    #[prost(uint64, tag = "6")]
    pub session: u64,
    /// Whether the previous call failed, so that ranks with GPUs must create new communicators.
    #[prost(bool, tag = "7")]
    pub renew: bool,
}

/// A tensor of the order's payload, `bytes` bytes at offset `at`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Input {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(int32, tag = "2")]
    pub dtype: i32,
    #[prost(uint64, repeated, tag = "3")]
    pub dims: Vec<u64>,
    #[prost(uint64, tag = "4")]
    pub at: u64,
    #[prost(uint64, tag = "5")]
    pub bytes: u64,
}

/// Refers to a cache of the first rank, of which every rank has a counterpart.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct CacheRef {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub capacity: u64,
    #[prost(uint64, tag = "3")]
    pub len: u64,
}

/// Serializes an error as text.
pub fn serialize_error(error: &Error) -> String {
    let optional = |part: &Option<String>| part.clone().unwrap_or_default().replace('\n', " ");
    [error.code.to_string(), optional(&error.node), optional(&error.help), error.message.clone()].join("\n")
}

/// Parses the text of a rank's error.
pub fn parse_error(text: &str, rank: usize) -> Box<Error> {
    let mut lines = text.splitn(4, '\n');
    let mut next = || lines.next().unwrap_or_default();
    let (code, node, help, message) = (next(), next(), next(), next());
    let message = format!("rank {rank}: {message}");
    let mut error = match error::row(code) {
        Some((code, kind, ..)) if *kind != ErrorKind::Defect => Error::new(Fault::User, code, message),
        Some(_) | None => Error::defect(message),
    };
    if !node.is_empty() {
        error = error.node(node);
    }
    if help.is_empty() { error } else { error.help(help) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_arrives_as_it_was_said() {
        let error = Error::user("E0303", "an index\nis out of range").node("/layer/Gather").help("look");
        let arrived = parse_error(&serialize_error(&error), 2);
        assert_eq!((arrived.code, arrived.message.as_str()), ("E0303", "rank 2: an index\nis out of range"));
        assert_eq!((arrived.node.as_deref(), arrived.help.as_deref()), (Some("/layer/Gather"), Some("look")));
        assert_eq!(parse_error("gibberish", 0).code, "E0901");
    }
}
