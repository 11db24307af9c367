//! values  =>  one line of JSON

use std::fmt::{self, Display, Write};

/// A JSON value. Objects keep the order of their members, so that the same value is always written as the same text.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// The value `null`, which also represents `None`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer; a `usize` or `u64` beyond i64 is converted to `i64::MAX`.
    Int(i64),
    /// A number; an infinity or NaN, which JSON lacks, is written as null.
    Float(f64),
    /// A string, which is escaped when it is written.
    Str(String),
    /// An array.
    List(Vec<Json>),
    /// An object: names and values of its members, in the order in which they are written.
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    /// Returns the array of the items, each converted to JSON.
    pub fn list<T: Into<Json>>(items: impl IntoIterator<Item = T>) -> Json {
        Json::List(items.into_iter().map(Into::into).collect())
    }
}

impl From<bool> for Json {
    fn from(v: bool) -> Json {
        Json::Bool(v)
    }
}

impl From<i64> for Json {
    fn from(v: i64) -> Json {
        Json::Int(v)
    }
}

impl From<usize> for Json {
    fn from(v: usize) -> Json {
        Json::Int(i64::try_from(v).unwrap_or(i64::MAX))
    }
}

impl From<u64> for Json {
    fn from(v: u64) -> Json {
        Json::Int(i64::try_from(v).unwrap_or(i64::MAX))
    }
}

impl From<f64> for Json {
    fn from(v: f64) -> Json {
        Json::Float(v)
    }
}

impl From<&str> for Json {
    fn from(v: &str) -> Json {
        Json::Str(v.to_string())
    }
}

impl From<String> for Json {
    fn from(v: String) -> Json {
        Json::Str(v)
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(v: Option<T>) -> Json {
        v.map_or(Json::Null, Into::into)
    }
}

impl Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => f.write_str("null"),
            Json::Bool(v) => write!(f, "{v}"),
            Json::Int(v) => write!(f, "{v}"),
            Json::Float(v) if v.is_finite() => write!(f, "{v:?}"),
            Json::Float(_) => f.write_str("null"),
            Json::Str(text) => write_string(f, text),
            Json::List(items) => {
                f.write_char('[')?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i > 0 { ", " } else { "" })?;
                }
                f.write_char(']')
            }
            Json::Object(members) => {
                f.write_char('{')?;
                for (i, (name, value)) in members.iter().enumerate() {
                    f.write_str(if i > 0 { ", " } else { "" })?;
                    write_string(f, name)?;
                    write!(f, ": {value}")?;
                }
                f.write_char('}')
            }
        }
    }
}

fn write_string(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if (c as u32) < 0x20 => write!(f, "\\u{:04x}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_json() {
        let object = Json::Object(vec![
            ("name", "a\"b\\\n".into()),
            ("list", Json::list([1usize, 2])),
            ("none", Json::from(None::<bool>)),
            ("small", 1e-9.into()),
            ("whole", 2.0.into()),
            ("nan", f64::NAN.into()),
        ]);
        let text =
            r#"{"name": "a\"b\\\u000a", "list": [1, 2], "none": null, "small": 1e-9, "whole": 2.0, "nan": null}"#;
        assert_eq!(object.to_string(), text);
        assert_eq!(Json::list([true; 0]).to_string(), "[]");
    }
}
