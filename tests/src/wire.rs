//! bytes of a protobuf message + its schema  =>  a tree to mutate structurally, and bytes again, well-formed or not

use crate::damage::Random;

/// Type of a field, which cannot be inferred from the encoded bytes alone.
#[derive(Clone, Copy)]
pub enum Kind {
    /// An integer of variable length (wire type 0).
    Varint,
    /// A repeated integer, in one length-delimited field.
    Packed,
    /// Four bytes, such as a float (wire type 5).
    Fixed32,
    /// Eight bytes, such as a double (wire type 1).
    Fixed64,
    /// A length-delimited text.
    Text,
    /// Length-delimited bytes.
    Bytes,
    /// A length-delimited message with this schema.
    Message(&'static Schema),
}

/// The known fields of a message, by number.
pub struct Schema(pub &'static [(u32, Kind)]);

/// Content of a field.
#[derive(Clone)]
pub enum Value {
    /// An integer of variable length, decoded.
    Varint(u64),
    /// The integers of a packed field, decoded.
    Packed(Vec<u64>),
    /// Four bytes, little-endian.
    Fixed32([u8; 4]),
    /// Eight bytes, little-endian.
    Fixed64([u8; 8]),
    /// A text, which need not be valid UTF-8.
    Text(Vec<u8>),
    /// Length-delimited bytes whose content is not parsed, including those of fields that the schema lacks.
    Bytes(Vec<u8>),
    /// An inner message.
    Message(Tree),
    /// Bytes that are written as they are, without field number or length.
    Raw(Vec<u8>),
}

/// A parsed message.
#[derive(Clone)]
pub struct Tree {
    /// Schema by which the fields were parsed; mutations take field numbers from it.
    pub schema: &'static Schema,
    /// Numbers and contents of the fields, in the order of the bytes; a repeated field occurs several times.
    pub fields: Vec<(u32, Value)>,
}

impl Tree {
    /// Parses a message; `None` if the bytes are not one. Length-delimited fields that the schema lacks are kept as
    /// bytes.
    pub fn parse(schema: &'static Schema, mut bytes: &[u8]) -> Option<Tree> {
        let mut fields = vec![];
        while !bytes.is_empty() {
            let key = take_varint(&mut bytes)?;
            let number = (key >> 3) as u32;
            let kind = schema.0.iter().find(|(n, _)| *n == number).map(|(_, kind)| *kind);
            let value = match key & 7 {
                0 => Value::Varint(take_varint(&mut bytes)?),
                1 => Value::Fixed64(take(&mut bytes, 8)?.try_into().ok()?),
                5 => Value::Fixed32(take(&mut bytes, 4)?.try_into().ok()?),
                2 => {
                    let length = usize::try_from(take_varint(&mut bytes)?).ok()?;
                    let inner = take(&mut bytes, length)?;
                    match kind {
                        Some(Kind::Message(schema)) => Value::Message(Tree::parse(schema, inner)?),
                        Some(Kind::Text) => Value::Text(inner.to_vec()),
                        Some(Kind::Packed) => Value::Packed(varints(inner)?),
                        Some(Kind::Varint | Kind::Fixed32 | Kind::Fixed64 | Kind::Bytes) | None => {
                            Value::Bytes(inner.to_vec())
                        }
                    }
                }
                _ => return None,
            };
            fields.push((number, value));
        }
        Some(Tree { schema, fields })
    }

    /// Encodes the fields in their order, whether or not the result is a valid message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![];
        for (number, value) in &self.fields {
            let mut put = |wire: u64, bytes: &[u8]| {
                put_varint(&mut out, (*number as u64) << 3 | wire);
                if wire == 2 {
                    put_varint(&mut out, bytes.len() as u64);
                }
                out.extend_from_slice(bytes);
            };
            match value {
                Value::Varint(v) => put(0, &varint(*v)),
                Value::Packed(values) => put(2, &values.iter().flat_map(|v| varint(*v)).collect::<Vec<u8>>()),
                Value::Fixed32(bytes) => put(5, bytes),
                Value::Fixed64(bytes) => put(1, bytes),
                Value::Text(bytes) | Value::Bytes(bytes) => put(2, bytes),
                Value::Message(tree) => put(2, &tree.encode()),
                Value::Raw(bytes) => out.extend_from_slice(bytes),
            }
        }
        out
    }

    /// Counts this message and all messages within it.
    pub fn count(&self) -> usize {
        1 + self.messages().map(Tree::count).sum::<usize>()
    }

    fn messages(&self) -> impl Iterator<Item = &Tree> {
        self.fields.iter().filter_map(|(_, v)| if let Value::Message(tree) = v { Some(tree) } else { None })
    }

    /// Returns message `n` in preorder: this one is 0.
    pub fn nth(&mut self, mut n: usize) -> &mut Tree {
        if n == 0 {
            return self;
        }
        n -= 1;
        let inner = self.fields.iter_mut().filter_map(|(_, v)| if let Value::Message(t) = v { Some(t) } else { None });
        for tree in inner {
            let count = tree.count();
            if n < count {
                return tree.nth(n);
            }
            n -= count;
        }
        panic!("there are fewer messages");
    }

    /// Returns every text, in order.
    pub fn texts(&self) -> Vec<Vec<u8>> {
        let own = self.fields.iter().flat_map(|(_, v)| match v {
            Value::Text(text) => vec![text.clone()],
            Value::Message(tree) => tree.texts(),
            _ => vec![],
        });
        own.collect()
    }

    /// Collects every message with this schema.
    fn of_schema(&self, schema: &'static Schema, found: &mut Vec<Tree>) {
        if std::ptr::eq(self.schema, schema) {
            found.push(self.clone());
        }
        self.messages().for_each(|tree| tree.of_schema(schema, found));
    }

    /// Changes the fields of a random message, or one value in it. `words` are texts that are worth trying in this kind
    /// of file; `rough` allows changes that violate the schema or the encoding.
    pub fn mutate(&mut self, random: &mut Random, words: &[&str], rough: bool) {
        let whole = self.clone();
        let n = random.below(self.count());
        let tree = self.nth(n);
        let len = tree.fields.len();
        if len == 0 {
            let number = tree.schema.0.first().map_or(1, |(n, _)| *n);
            return tree.fields.push((number, Value::Varint(number_of(random))));
        }
        let at = random.below(len);
        match random.below(if rough { 20 } else { 16 }) {
            0 | 1 => drop(tree.fields.remove(at)),
            2 => tree.fields.insert(random.below(len), tree.fields[at].clone()),
            3 => tree.fields.swap(at, random.below(len)),
            4 => {
                // Swaps the values of two fields. Only with `rough`, the fields may have different numbers and types.
                let same = |i: &usize| tree.fields[*i].0 == tree.fields[at].0 || rough;
                let others: Vec<usize> = (0..len).filter(same).collect();
                let other = others[random.below(others.len())];
                let (a, b) = (tree.fields[at].1.clone(), tree.fields[other].1.clone());
                (tree.fields[at].1, tree.fields[other].1) = (b, a);
            }
            5 => {
                // Replaces a message by another one with the same schema, from anywhere in the tree.
                if let Value::Message(inner) = &mut tree.fields[at].1 {
                    let mut found = vec![];
                    whole.of_schema(inner.schema, &mut found);
                    *inner = found[random.below(found.len())].clone();
                }
            }
            16 => tree.fields[at].0 = tree.schema.0[random.below(tree.schema.0.len())].0,
            17 => tree.fields[at].1 = Value::Varint(number_of(random)),
            18 => tree.fields.insert(at, (1, Value::Raw(lie(random)))),
            19 => tree.fields[at].1 = Value::Bytes((0..random.below(20)).map(|_| random.u64() as u8).collect()),
            _ => change(&mut tree.fields[at].1, &whole, random, words),
        }
    }
}

/// Changes a value to another one of the same type.
fn change(value: &mut Value, whole: &Tree, random: &mut Random, words: &[&str]) {
    match value {
        Value::Varint(v) => *v = near(*v, random),
        Value::Packed(values) if values.is_empty() => values.push(number_of(random)),
        Value::Packed(values) => {
            let at = random.below(values.len());
            match random.below(4) {
                0 => drop(values.remove(at)),
                1 => values.insert(at, number_of(random)),
                _ => values[at] = near(values[at], random),
            }
        }
        Value::Fixed32(bytes) => {
            let floats = [f32::NAN, f32::INFINITY, -1.0, 0.0, f32::MAX, 1e-40];
            *bytes = floats[random.below(floats.len())].to_le_bytes();
        }
        Value::Fixed64(bytes) => *bytes = random.u64().to_le_bytes(),
        Value::Text(text) => {
            let own = whole.texts();
            match random.below(5) {
                0 => *text = words[random.below(words.len())].as_bytes().to_vec(),
                // `{}` in an edit stands for the text itself: `batch*4` becomes `(batch*4) * 3`.
                1 => {
                    let (old, edits) = (String::from_utf8_lossy(text).into_owned(), EDITS);
                    *text = edits[random.below(edits.len())].replace("{}", &old).into_bytes();
                }
                2 => *text = text.repeat(1 + random.below(3)),
                _ => *text = own[random.below(own.len())].clone(),
            }
        }
        Value::Bytes(bytes) => match random.below(4) {
            0 => bytes.truncate(random.below(bytes.len() + 1)),
            1 => bytes.extend_from_slice(&[0xff; 9][..1 + random.below(9)]),
            2 => bytes.clear(),
            _ if bytes.is_empty() => bytes.push(1),
            _ => {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
        },
        Value::Message(tree) => match random.below(2) {
            0 => tree.fields.clear(),
            _ => tree.fields.reverse(),
        },
        Value::Raw(_) => {}
    }
}

/// Edits of a text; the first ones are meant for dimension expressions.
static EDITS: &[&str] = &[
    "({}) * 3",
    "({}) + 64",
    "({}) - 64",
    "({}) + 1",
    "({}) - 1",
    "-({})",
    "({}) floordiv 2",
    "({}) * 4611686018427387904",
    "max({}, 100)",
    "{}_",
    "/{}",
    "{}\0",
    "{} ",
];

fn near(v: u64, random: &mut Random) -> u64 {
    match random.below(4) {
        0 => v.wrapping_add(1),
        1 => v.wrapping_sub(1),
        2 => v ^ 1 << random.below(64),
        _ => number_of(random),
    }
}

fn number_of(random: &mut Random) -> u64 {
    let powers = [0, 1, 2, 3, 7, 8, 16, 31, 32, 40, 47, 61, 62, 63].map(|n| 1u64 << n);
    match random.below(6) {
        0 => 0,
        1 => random.u64() % 30,
        2 => u64::MAX,
        3 => powers[random.below(powers.len())].wrapping_sub(1),
        4 => powers[random.below(powers.len())].wrapping_neg(),
        _ => powers[random.below(powers.len())],
    }
}

/// Returns the bytes of an invalid field: a length without content, up to 5000 nested groups that are not closed, an
/// invalid wire type, or a varint that is too long.
fn lie(random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => [vec![0x0a], varint(1 << random.below(64))].concat(),
        1 => vec![0x0b; 1 + random.below(5000)],
        2 => vec![0x07; 3],
        _ => vec![0xff; 11],
    }
}

/// Encodes a field of bytes: number, length, content.
pub fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
    [varint((number as u64) << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, tail) = bytes.split_at_checked(n)?;
    *bytes = tail;
    Some(head)
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)?[0];
        value |= ((byte & 0x7f) as u64) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn varints(mut bytes: &[u8]) -> Option<Vec<u64>> {
    let mut values = vec![];
    while !bytes.is_empty() {
        values.push(take_varint(&mut bytes)?);
    }
    Some(values)
}

fn varint(value: u64) -> Vec<u8> {
    let mut out = vec![];
    put_varint(&mut out, value);
    out
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemas::MODEL;

    #[test]
    fn a_tree_that_is_not_changed_encodes_to_its_bytes() {
        let bytes = crate::onnx::small().bytes();
        let mut tree = Tree::parse(&MODEL, &bytes).unwrap();
        assert_eq!(tree.encode(), bytes);
        assert!(tree.count() > 20);
        let last = tree.count() - 1;
        assert!(tree.nth(last).count() == 1);
    }
}
