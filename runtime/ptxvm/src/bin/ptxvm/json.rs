//! JSON text  =>  [`Value`]: a small parser without dependencies, whose syntax errors name the line

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    /// The text of the number, so that 64-bit integers keep every digit.
    Number(String),
    Text(String),
    List(Vec<Value>),
    Object(BTreeMap<String, Value>),
}

const DEPTH_MAX: u32 = 32;

pub fn parse(text: &str) -> Result<Value, String> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.space();
    if reader.at < text.len() {
        return Err(reader.wrong("nothing more"));
    }
    Ok(value)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn wrong(&self, expected: &str) -> String {
        let line = 1 + self.text.get(..self.at).unwrap_or("").matches('\n').count();
        let found: String = self.rest().chars().take(12).collect();
        format!("line {line}: expected {expected} at {found:?}")
    }

    fn eat(&mut self, mark: char) -> bool {
        self.space();
        let found = self.rest().starts_with(mark);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: u32) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err(self.wrong("fewer nested values"));
        }
        if self.eat('{') {
            let mut object = BTreeMap::new();
            if self.eat('}') {
                return Ok(Value::Object(object));
            }
            loop {
                self.space();
                let key = self.string()?;
                if !self.eat(':') {
                    return Err(self.wrong("`:`"));
                }
                let value = self.value(depth + 1)?;
                if object.insert(key.clone(), value).is_some() {
                    return Err(format!("`{key}` stands twice"));
                }
                if self.eat('}') {
                    return Ok(Value::Object(object));
                }
                if !self.eat(',') {
                    return Err(self.wrong("`,` or `}`"));
                }
            }
        }
        if self.eat('[') {
            let mut list = Vec::new();
            if self.eat(']') {
                return Ok(Value::List(list));
            }
            loop {
                list.push(self.value(depth + 1)?);
                if self.eat(']') {
                    return Ok(Value::List(list));
                }
                if !self.eat(',') {
                    return Err(self.wrong("`,` or `]`"));
                }
            }
        }
        if self.rest().starts_with('"') {
            return self.string().map(Value::Text);
        }
        for (word, value) in [("null", Value::Null), ("true", Value::Bool(true)), ("false", Value::Bool(false))] {
            if self.rest().starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        let length = self.rest().find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)));
        let number = self.rest().get(..length.unwrap_or(self.rest().len())).unwrap_or("").to_owned();
        if number.parse::<f64>().is_err() {
            return Err(self.wrong("a value"));
        }
        self.at += number.len();
        Ok(Value::Number(number))
    }

    fn string(&mut self) -> Result<String, String> {
        if !self.rest().starts_with('"') {
            return Err(self.wrong("a string"));
        }
        let mut text = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += at + 1;
                    return Ok(text);
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, c @ ('"' | '\\' | '/'))) => text.push(c),
                    _ => return Err(self.wrong("an escape among \\n \\t \\\" \\\\ \\/")),
                },
                c => text.push(c),
            }
        }
        Err(self.wrong("the end of a string"))
    }
}

impl Value {
    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Object(_) => None,
        }
    }

    pub fn integer(&self) -> Option<u64> {
        match self {
            Value::Number(text) => text.parse().ok(),
            Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Object(_) => None,
        }
    }

    pub fn real(&self) -> Option<f64> {
        match self {
            Value::Number(text) => text.parse().ok(),
            Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Object(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_kind() {
        let value = parse("{\"a\": [1, -2.5e3, true, null], \"b\\n\": {\"c\": \"d\\\"\"}}").unwrap();
        let Value::Object(object) = value else { panic!() };
        let Value::List(list) = &object["a"] else { panic!() };
        assert_eq!((list[0].integer(), list[1].real(), &list[2]), (Some(1), Some(-2500.0), &Value::Bool(true)));
        assert!(matches!(&object["b\n"], Value::Object(inner) if inner["c"].text() == Some("d\"")));
    }

    #[test]
    fn mistakes_name_their_line() {
        for text in ["", "{", "{\"a\" 1}", "[1,]", "{\"a\":1,\"a\":2}", "\"open", "1 2", "[\n\n?]"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("[\n\n?]").unwrap_err().starts_with("line 3"));
        assert!(parse(&"[".repeat(100)).is_err());
    }
}
