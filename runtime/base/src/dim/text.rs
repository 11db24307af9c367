//! Dimension expressions as text: `Dim::parse` reads back what `Display` writes

use super::{Atom, Dim, Symbol};
use crate::{Error, Result};
use std::fmt;

const PARSE_DEPTH_MAX: usize = 32;

/// Maximum number of symbols and operations of a parsed product once it is multiplied out, which bounds the time to
/// evaluate it.
const WEIGHT_MAX: usize = 1 << 16;

impl Dim {
    /// Parses what `Display` writes, and all other expressions of symbols and integers with `+`, `-`, `*`, `floordiv`,
    /// `ceildiv`, `mod`, `max(a, b)`, `min(a, b)` and parentheses. `%3` is a variable, `$4` a statement, and every
    /// other word a name.
    pub fn parse(text: &str) -> Result<Dim> {
        Dim::parse_with(text, Symbol::in_kernel)
    }

    /// Parses an expression over the arguments of a launch: `p2` is a parameter, `b3` the bytes of a buffer, and `grid`
    /// the number of work items.
    pub fn parse_launch(text: &str) -> Result<Dim> {
        Dim::parse_with(text, Symbol::in_launch)
    }

    /// Parses an expression in which every word is a name, `%3` too: a dimension as a model writes it.
    pub fn parse_names(text: &str) -> Result<Dim> {
        Dim::parse_with(text, |word| word.into())
    }

    fn parse_with(text: &str, symbol: fn(&str) -> Symbol) -> Result<Dim> {
        let mut parser = Parser { text, at: 0, depth: 0, symbol };
        let dim = parser.sum()?;
        parser.skip_space();
        if parser.at < text.len() {
            return Err(parser.error("an operator"));
        }
        Ok(dim)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.overflow {
            return f.write_str("overflow");
        }
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        // Terms with symbols are printed first, and the constant last: `seq + past + 1`.
        let ordered = self.terms.iter().filter(|(m, _)| !m.is_empty());
        let ordered = ordered.chain(self.terms.iter().filter(|(m, _)| m.is_empty()));
        for (i, (monomial, &c)) in ordered.enumerate() {
            match (i, c < 0) {
                (0, true) => f.write_str("-")?,
                (0, false) => {}
                (_, true) => f.write_str(" - ")?,
                (_, false) => f.write_str(" + ")?,
            }
            let magnitude = c.unsigned_abs();
            if monomial.is_empty() || magnitude != 1 {
                write!(f, "{magnitude}")?;
            }
            for (j, atom) in monomial.iter().enumerate() {
                if j > 0 || magnitude != 1 {
                    f.write_str("*")?;
                }
                write!(f, "{atom}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Symbol(symbol) => write!(f, "{symbol}"),
            Atom::FloorDiv(a, b) => write!(f, "(({a}) floordiv ({b}))"),
            Atom::Max(a, b) => write!(f, "max({a}, {b})"),
            Atom::Min(a, b) => write!(f, "min({a}, {b})"),
        }
    }
}

static WORDS: &[&str] = &["ceildiv", "floordiv", "max", "min", "mod", "overflow"];

/// Returns whether a name is an ordinary identifier and no operator: such a name needs no quotes.
pub(super) fn plain_name(name: &str) -> bool {
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    first && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.')) && !WORDS.contains(&name)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// Says which symbol a word without quotes is.
    symbol: fn(&str) -> Symbol,
}

impl<'a> Parser<'a> {
    fn error(&self, wanted: &str) -> Box<Error> {
        let shown: String = self.text.chars().take(80).collect();
        Error::user("E0204", format!("`{shown}` is not a dimension expression: expected {wanted} at byte {}", self.at))
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_space();
        let hit = self.rest().starts_with(token);
        self.at += if hit { token.len() } else { 0 };
        hit
    }

    fn word(&mut self) -> Option<&'a str> {
        self.skip_space();
        let rest = self.rest();
        let lead = if rest.starts_with(['%', '$']) { 1 } else { 0 };
        let body = &rest[lead..];
        let len = body.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))).unwrap_or(body.len());
        let starts = body.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || lead == 1);
        (len > 0 && starts).then(|| {
            self.at += lead + len;
            &rest[..lead + len]
        })
    }

    fn sum(&mut self) -> Result<Dim> {
        self.depth += 1;
        if self.depth > PARSE_DEPTH_MAX {
            return Err(self.error("less nesting"));
        }
        let mut left = if self.eat("-") { self.negative()? } else { self.product()? };
        loop {
            if self.eat("+") {
                left = left + self.product()?;
            } else if self.eat("-") {
                left = left + self.negative()?;
            } else {
                self.depth -= 1;
                return Ok(left);
            }
        }
    }

    /// Parses a product after a minus sign. The least i64 is a special case, because it has no positive counterpart.
    fn negative(&mut self) -> Result<Dim> {
        self.skip_space();
        let least = "9223372036854775808";
        match self.rest().strip_prefix(least).is_some_and(|after| !after.starts_with(|c: char| c.is_ascii_digit())) {
            true => {
                self.at += least.len();
                self.times(Dim::constant(i64::MIN))
            }
            false => Ok(-self.product()?),
        }
    }

    fn product(&mut self) -> Result<Dim> {
        let first = self.factor()?;
        self.times(first)
    }

    /// Parses the remaining factors of a product whose first factor has been read.
    fn times(&mut self, mut left: Dim) -> Result<Dim> {
        loop {
            if self.eat("*") {
                left = left * self.factor()?;
                if left.weight() > WEIGHT_MAX {
                    return Err(self.error("a smaller expression"));
                }
                continue;
            }
            let before = self.at;
            match self.word() {
                Some("floordiv") => left = self.divide(&left, Dim::floordiv)?,
                Some("ceildiv") => left = self.divide(&left, Dim::ceildiv)?,
                Some("mod") => left = self.divide(&left, Dim::modulo)?,
                _ => {
                    self.at = before;
                    return Ok(left);
                }
            }
        }
    }

    fn divide(&mut self, left: &Dim, by: fn(&Dim, &Dim) -> Dim) -> Result<Dim> {
        let right = self.factor()?;
        if right.as_const().is_some_and(|d| d <= 0) {
            return Err(self.error("a positive divisor"));
        }
        Ok(by(left, &right))
    }

    fn factor(&mut self) -> Result<Dim> {
        self.skip_space();
        let rest = self.rest();
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if digits > 0 {
            self.at += digits;
            return Ok(rest[..digits].parse().map_or(Dim::overflow(), Dim::constant));
        }
        if self.eat("(") {
            let inner = self.sum()?;
            return if self.eat(")") { Ok(inner) } else { Err(self.error("`)`")) };
        }
        if rest.starts_with('"') {
            return self.quoted();
        }
        match self.word() {
            Some("max") => self.pair(Dim::maximum),
            Some("min") => self.pair(Dim::minimum),
            Some("overflow") => Ok(Dim::overflow()),
            Some(word) => Ok((self.symbol)(word).into()),
            None => Err(self.error("a number, a name or `(`")),
        }
    }

    fn pair(&mut self, of: fn(&Dim, &Dim) -> Dim) -> Result<Dim> {
        if !self.eat("(") {
            return Err(self.error("`(`"));
        }
        let a = self.sum()?;
        if !self.eat(",") {
            return Err(self.error("`,`"));
        }
        let b = self.sum()?;
        if self.eat(")") { Ok(of(&a, &b)) } else { Err(self.error("`)`")) }
    }

    /// Parses a name in quotes; `\"` and `\\` stand for the characters themselves.
    fn quoted(&mut self) -> Result<Dim> {
        let mut name = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 1;
                    return Ok(Dim::symbol(&name));
                }
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                c => name.push(c),
            }
        }
        Err(self.error("a closing quote"))
    }
}
