//! Schemas of ONNX models and of our artifacts, as far as the decoders know them, for structural mutations

use crate::prepared::workspace;
use crate::wire::Kind::{Bytes, Fixed32, Fixed64, Message, Packed, Text, Varint};
use crate::wire::Schema;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Known fields of ONNX's `ModelProto`, which is a whole file.
pub static MODEL: Schema =
    Schema(&[(1, Varint), (2, Text), (3, Text), (7, Message(&GRAPH)), (8, Message(&OPSET)), (25, Message(&FUNCTION))]);
static OPSET: Schema = Schema(&[(1, Text), (2, Varint)]);
/// Known fields of ONNX's `GraphProto`.
pub static GRAPH: Schema = Schema(&[
    (1, Message(&NODE)),
    (2, Text),
    (5, Message(&TENSOR)),
    (11, Message(&VALUE)),
    (12, Message(&VALUE)),
    (15, Message(&SPARSE)),
]);
/// Known fields of ONNX's `NodeProto`.
pub static NODE: Schema =
    Schema(&[(1, Text), (2, Text), (3, Text), (4, Text), (5, Message(&ATTRIBUTE)), (7, Text), (8, Text)]);
static ATTRIBUTE: Schema = Schema(&[
    (1, Text),
    (2, Fixed32),
    (3, Varint),
    (4, Bytes),
    (5, Message(&TENSOR)),
    (6, Message(&GRAPH)),
    (7, Bytes),
    (8, Packed),
    (9, Bytes),
    (10, Message(&TENSOR)),
    (11, Message(&GRAPH)),
    (14, Message(&TYPE)),
    (15, Message(&TYPE)),
    (20, Varint),
    (21, Text),
    (22, Message(&SPARSE)),
    (23, Message(&SPARSE)),
]);
static TENSOR: Schema = Schema(&[
    (1, Packed),
    (2, Varint),
    (3, Message(&SEGMENT)),
    (4, Bytes),
    (5, Packed),
    (6, Bytes),
    (7, Packed),
    (8, Text),
    (9, Bytes),
    (10, Bytes),
    (11, Packed),
    (13, Message(&EXTERNAL)),
    (14, Varint),
]);
static SEGMENT: Schema = Schema(&[(1, Varint), (2, Varint)]);
static EXTERNAL: Schema = Schema(&[(1, Text), (2, Text)]);
static SPARSE: Schema = Schema(&[(1, Message(&TENSOR)), (2, Message(&TENSOR)), (3, Packed)]);
static FUNCTION: Schema = Schema(&[
    (1, Text),
    (4, Text),
    (5, Text),
    (6, Text),
    (7, Message(&NODE)),
    (9, Message(&OPSET)),
    (10, Text),
    (11, Message(&ATTRIBUTE)),
    (13, Text),
]);
static VALUE: Schema = Schema(&[(1, Text), (2, Message(&TYPE))]);
/// Known fields of ONNX's `TypeProto`: 1 tensor, 4 sequence, 5 map, 8 sparse tensor, 9 optional.
pub static TYPE: Schema = Schema(&[
    (1, Message(&TENSOR_TYPE)),
    (4, Message(&ELEMENT)),
    (5, Message(&MAP)),
    (8, Message(&TENSOR_TYPE)),
    (9, Message(&ELEMENT)),
]);
static TENSOR_TYPE: Schema = Schema(&[(1, Varint), (2, Message(&SHAPE))]);
static ELEMENT: Schema = Schema(&[(1, Message(&TYPE))]);
static MAP: Schema = Schema(&[(1, Varint), (2, Message(&TYPE))]);
static SHAPE: Schema = Schema(&[(1, Message(&DIMENSION))]);
static DIMENSION: Schema = Schema(&[(1, Varint), (2, Text)]);

/// Returns the schema of a message of our artifacts, `Manifest`, `Plan` or `SelfTest`, as `sardonyx.proto` defines it.
pub fn artifact(message: &str) -> &'static Schema {
    static ALL: OnceLock<BTreeMap<String, &'static Schema>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let path = workspace().join("runtime/base/proto/sardonyx.proto");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let messages = messages(&text);
        let mut all = BTreeMap::new();
        for name in messages.keys() {
            schema(name, &messages, &mut all);
        }
        all
    });
    all.get(message).unwrap_or_else(|| panic!("sardonyx.proto has no message {message}"))
}

/// A field of a message: its number, whether it is repeated, and its type.
type Field = (u32, bool, String);

/// Returns the fields of every message of a `.proto` file that has one field to a line and no nested messages.
fn messages(text: &str) -> BTreeMap<String, Vec<Field>> {
    let mut messages: BTreeMap<String, Vec<Field>> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines().map(|line| line.split("//").next().unwrap_or_default().trim()) {
        if let Some(name) = line.strip_prefix("message ") {
            current = name.trim_end_matches(['{', '}', ' ']).to_string();
            messages.insert(current.clone(), vec![]);
        } else if line.starts_with("enum ") {
            current.clear();
        }
        let Some((declared, number)) = line.trim_end_matches(';').rsplit_once(" = ") else { continue };
        let words: Vec<&str> = declared.split_whitespace().collect();
        if let ([.., dtype, _], Ok(number), Some(fields)) = (&words[..], number.parse(), messages.get_mut(&current)) {
            fields.push((number, words[0] == "repeated", dtype.to_string()));
        }
    }
    messages
}

/// Returns the schema of a message, after those of the messages in its fields; none contains itself.
fn schema(
    name: &str,
    messages: &BTreeMap<String, Vec<Field>>,
    all: &mut BTreeMap<String, &'static Schema>,
) -> &'static Schema {
    if let Some(done) = all.get(name) {
        return done;
    }
    let kind = |(number, repeated, dtype): &Field| {
        let kind = match dtype.as_str() {
            "string" => Text,
            "bytes" => Bytes,
            "float" => Fixed32,
            "double" => Fixed64,
            message if messages.contains_key(message) => Message(schema(message, messages, all)),
            _ if *repeated => Packed,
            _ => Varint,
        };
        (*number, kind)
    };
    let fields: Vec<_> = messages[name].iter().map(kind).collect();
    let made: &'static Schema = Box::leak(Box::new(Schema(fields.leak())));
    all.insert(name.to_string(), made);
    made
}

/// Strings that have a meaning in plans.
pub static PLAN_WORDS: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "64",
    "4096",
    "9223372036854775807",
    "batch",
    "seq",
    "p0",
    "p1",
    "b0",
    "grid",
    "main",
    "k0",
    "k1",
    "k2",
    "v3",
    "v4",
    "1 +",
    "1 floordiv (batch - 1)",
    "(((((((1)))))))",
    "max(0, 1",
    "overflow",
    "\"",
    "row_major",
    "weights",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_proto_file() {
        let kind = |schema: &'static Schema, number: u32| schema.0.iter().find(|(n, _)| *n == number).map(|(_, k)| *k);
        let Some(Message(entry)) = kind(artifact("Plan"), 1) else { panic!("entries are messages") };
        let Some(Message(block)) = kind(entry, 5) else { panic!("a body is a message") };
        let Some(Message(step)) = kind(block, 1) else { panic!("steps are messages") };
        let Some(Message(host)) = kind(step, 4) else { panic!("host steps are known") };
        assert!(matches!(kind(host, 4), Some(Packed)) && matches!(kind(host, 5), Some(Text)));
        let expected = kind(artifact("SelfTest"), 2);
        assert!(matches!(expected, Some(Message(one)) if matches!(kind(one, 4), Some(Fixed64))));
        assert!(matches!(kind(artifact("Symbol"), 2), Some(Varint)) && artifact("Value").0.is_empty());
    }
}
