//! `@p bra $L;`  =>  words, numbers, strings and marks, each with its line

use crate::Error;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    /// A name, directive or dotted opcode: `%r1`, `.reg`, `ld.global.L2::128B.v4.f32`, `$L_1`.
    Word(&'a str),
    Number(Number),
    Text(&'a str),
    Mark(u8),
    End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer; in two's complement if a minus sign preceded it.
    Int(u64),
    /// `0f3F800000`: the bits of an f32.
    F32(u32),
    /// `0d3FF0000000000000` or a decimal fraction: the bits of an f64.
    F64(u64),
}

#[derive(Clone, Copy, Debug)]
pub struct Spanned<'a> {
    pub token: Token<'a>,
    pub line: u32,
}

/// Maximum length of a text.
const TEXT_BYTES_MAX: usize = 1 << 28;

/// Splits the text into tokens; the last one is always [`Token::End`].
pub fn lex(text: &str) -> Result<Vec<Spanned<'_>>, Error> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Error::new(1, format!("the text has {} bytes, more than {TEXT_BYTES_MAX}", text.len())));
    }
    let bytes = text.as_bytes();
    let mut tokens = Vec::with_capacity(text.len() / 4);
    let (mut at, mut line) = (0, 1u32);
    while at < bytes.len() {
        let start = at;
        let byte = bytes[at];
        match byte {
            b'\n' => {
                line += 1;
                at += 1;
                continue;
            }
            b' ' | b'\t' | b'\r' => {
                at += 1;
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                while at < bytes.len() && bytes[at] != b'\n' {
                    at += 1;
                }
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let Some(length) = text[at + 2..].find("*/") else {
                    return Err(Error::new(line, "this comment is never closed"));
                };
                line += text[at..at + 2 + length].bytes().filter(|byte| *byte == b'\n').count() as u32;
                at += length + 4;
                continue;
            }
            _ => {}
        }
        let first_line = line;
        let token = if is_word_start(bytes, at) {
            at = word_end(bytes, at);
            Token::Word(&text[start..at])
        } else if byte.is_ascii_digit() {
            at = number_end(bytes, at);
            Token::Number(number(&text[start..at], line)?)
        } else if byte == b'"' {
            let Some(length) = text[at + 1..].find('"') else {
                return Err(Error::new(line, "this string is never closed"));
            };
            let inner = &text[at + 1..at + 1 + length];
            line += inner.bytes().filter(|byte| *byte == b'\n').count() as u32;
            at += length + 2;
            Token::Text(inner)
        } else if b",;{}()[]<>+-!@|=:*/&~^%?".contains(&byte) {
            at += 1;
            Token::Mark(byte)
        } else if byte == 0 && text[at..].bytes().all(|byte| byte == 0) {
            // PTX extracted from a fat binary often ends in zero bytes.
            break;
        } else {
            let what = text[at..].chars().next().unwrap_or('?');
            return Err(Error::new(line, format!("unexpected character {what:?}")));
        };
        tokens.push(Spanned { token, line: first_line });
    }
    tokens.push(Spanned { token: Token::End, line });
    Ok(tokens)
}

fn is_word_start(bytes: &[u8], at: usize) -> bool {
    let byte = bytes[at];
    let next = bytes.get(at + 1).copied().unwrap_or(b' ');
    byte.is_ascii_alphabetic()
        || byte == b'_'
        || byte == b'$'
        || ((byte == b'%' || byte == b'.') && (next.is_ascii_alphanumeric() || next == b'_' || next == b'$'))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.' | b'%')
}

/// Returns the end of a word. `::` belongs to a word only between two of its characters, so that `L1:` stays a label.
fn word_end(bytes: &[u8], mut at: usize) -> usize {
    at += 1;
    loop {
        match bytes.get(at) {
            Some(byte) if is_word(*byte) => at += 1,
            Some(b':') if bytes.get(at + 1) == Some(&b':') && bytes.get(at + 2).is_some_and(|next| is_word(*next)) => {
                at += 3;
            }
            _ => return at,
        }
    }
}

fn number_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    let prefixed = bytes[at] == b'0' && bytes.get(at + 1).is_some_and(|byte| byte.is_ascii_alphabetic());
    while at < bytes.len() {
        let sign = matches!(bytes[at], b'+' | b'-') && !prefixed && at > start && matches!(bytes[at - 1], b'e' | b'E');
        if !(bytes[at].is_ascii_alphanumeric() || bytes[at] == b'.' || sign) {
            break;
        }
        at += 1;
    }
    at
}

fn number(text: &str, line: u32) -> Result<Number, Error> {
    let wrong = || Error::new(line, format!("`{text}` is not a number"));
    let lower = text.to_ascii_lowercase();
    let bits = |digits: &str, length: usize| {
        (digits.len() == length).then(|| u64::from_str_radix(digits, 16).ok()).flatten().ok_or_else(wrong)
    };
    if let Some(digits) = lower.strip_prefix("0f") {
        return Ok(Number::F32(bits(digits, 8)? as u32));
    }
    if let Some(digits) = lower.strip_prefix("0d") {
        return Ok(Number::F64(bits(digits, 16)?));
    }
    let int = |digits: &str, radix| u64::from_str_radix(digits, radix).map(Number::Int).map_err(|_| wrong());
    let plain = lower.strip_suffix('u').unwrap_or(&lower);
    if let Some(digits) = plain.strip_prefix("0x") {
        return int(digits, 16);
    }
    if let Some(digits) = plain.strip_prefix("0b") {
        return int(digits, 2);
    }
    if plain.contains(['.', 'e']) {
        return plain.parse::<f64>().map(|value| Number::F64(value.to_bits())).map_err(|_| wrong());
    }
    match plain.strip_prefix('0') {
        Some(digits) if !digits.is_empty() => int(digits, 8),
        _ => int(plain, 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token<'_>> {
        lex(text).unwrap().iter().map(|spanned| spanned.token).collect()
    }

    #[test]
    fn words_keep_dots_and_double_colons() {
        assert_eq!(
            tokens("L1: ld.global.L2::128B.v2.f32 {%f1,_}, [%rd1+-4];"),
            [
                Token::Word("L1"),
                Token::Mark(b':'),
                Token::Word("ld.global.L2::128B.v2.f32"),
                Token::Mark(b'{'),
                Token::Word("%f1"),
                Token::Mark(b','),
                Token::Word("_"),
                Token::Mark(b'}'),
                Token::Mark(b','),
                Token::Mark(b'['),
                Token::Word("%rd1"),
                Token::Mark(b'+'),
                Token::Mark(b'-'),
                Token::Number(Number::Int(4)),
                Token::Mark(b']'),
                Token::Mark(b';'),
                Token::End,
            ]
        );
    }

    #[test]
    fn numbers_of_every_radix() {
        let values = [("12", 12), ("0x1F", 31), ("0b101", 5), ("017", 15), ("7U", 7), ("0", 0)];
        for (text, value) in values {
            assert_eq!(tokens(text)[0], Token::Number(Number::Int(value)), "{text}");
        }
        assert_eq!(tokens("0f3F800000")[0], Token::Number(Number::F32(0x3f80_0000)));
        assert_eq!(tokens("0dBFF0000000000000")[0], Token::Number(Number::F64((-1.0f64).to_bits())));
        assert_eq!(tokens("1.5e-1")[0], Token::Number(Number::F64(0.15f64.to_bits())));
    }

    #[test]
    fn lines_are_counted_through_comments_and_mistakes_name_theirs() {
        let tokens = lex("// one\n/* two\n three */ ret;").unwrap();
        assert_eq!(tokens[0].line, 3);
        assert_eq!(lex("\n#").unwrap_err().line, 2);
        assert_eq!(lex("\n\n/* open").unwrap_err().line, 3);
        assert!(lex("0f12").is_err());
    }
}
