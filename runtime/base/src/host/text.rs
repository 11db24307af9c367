//! strings: joined, split, normalised, matched, looked up and read as numbers on the host

use super::{numbers, unfit};
use crate::tensor::element_count;
use crate::{DType, Result, Tensor};
use std::collections::HashMap;

/// Places in two operands, for each element of a result.
type Pairs = Vec<(usize, usize)>;

/// Numpy broadcasting: the dimensions of both, and where in each an element of the result is.
fn broadcast(a: &[usize], b: &[usize]) -> Result<(Vec<usize>, Pairs)> {
    let rank = a.len().max(b.len());
    let at = |d: &[usize], i: usize| (i + d.len()).checked_sub(rank).map_or(1, |i| d[i]);
    let mut dims = vec![];
    for i in 0..rank {
        dims.push(match (at(a, i), at(b, i)) {
            (x, y) if x == y => x,
            (1, y) => y,
            (x, 1) => x,
            (_, _) => return Err(unfit(format!("{a:?} and {b:?} have no common shape"))),
        });
    }
    let n = element_count(&dims).ok_or_else(|| unfit(format!("{dims:?} strings are too many")))?;
    let place = |d: &[usize], mut flat: usize| {
        let (mut index, mut stride) = (0, 1);
        for i in (0..rank).rev() {
            let here = flat % dims[i];
            flat /= dims[i];
            let own = at(d, i);
            index += if own == 1 { 0 } else { here * stride };
            stride *= own;
        }
        index
    };
    let places = (0..n).map(|i| (place(a, i), place(b, i))).collect();
    Ok((dims, places))
}

fn strings(t: &Tensor) -> Result<Vec<&[u8]>> {
    t.strings().ok_or_else(|| unfit(format!("strings are wanted, not {}", t.dtype())))
}

pub fn concat(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (dims, places) = broadcast(a.dims(), b.dims())?;
    let (a, b) = (strings(a)?, strings(b)?);
    let joined: Vec<Vec<u8>> = places.into_iter().map(|(i, j)| [a[i], b[j]].concat()).collect();
    Ok(Tensor::from_strings(dims, &joined))
}

pub fn equal(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (dims, places) = broadcast(a.dims(), b.dims())?;
    let (a, b) = (strings(a)?, strings(b)?);
    Ok(Tensor::from_vec(dims, places.into_iter().map(|(i, j)| a[i] == b[j]).collect::<Vec<bool>>()))
}

/// (parts along a new last axis, padded with empty strings; how many there are). Without a delimiter at runs of white
/// space; a negative limit is none.
pub fn split(x: &Tensor, delimiter: &Tensor, limit: i64) -> Result<Vec<Tensor>> {
    let delimiter = delimiter.texts()?.first().copied().unwrap_or_default().to_string();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let parts: Vec<Vec<&str>> = x.texts()?.into_iter().map(|text| pieces(text, &delimiter, limit)).collect();
    let widest = parts.iter().map(Vec::len).max().unwrap_or(0);
    let padded = parts.iter().flat_map(|p| (0..widest).map(move |i| p.get(i).copied().unwrap_or("")));
    let dims: Vec<usize> = x.dims().iter().copied().chain([widest]).collect();
    let padded: Vec<&str> = padded.collect();
    let counts = parts.iter().map(|p| p.len() as i64).collect();
    Ok(vec![Tensor::from_strings(dims, &padded), numbers(x.dims().to_vec(), counts)])
}

fn pieces<'a>(text: &'a str, delimiter: &str, limit: usize) -> Vec<&'a str> {
    if !delimiter.is_empty() {
        return if text.is_empty() { vec![] } else { text.splitn(limit.saturating_add(1), delimiter).collect() };
    }
    let (mut out, mut rest) = (vec![], text.trim_start());
    while !rest.is_empty() {
        if out.len() == limit {
            out.push(rest);
            break;
        }
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        out.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    out
}

/// What happens to the case of letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Case {
    None,
    Lower,
    Upper,
}

impl Case {
    pub fn change(self, text: &str) -> String {
        match self {
            Case::None => text.to_string(),
            Case::Lower => text.to_lowercase(),
            Case::Upper => text.to_uppercase(),
        }
    }
}

/// Without stop words, in another case; [n] or [1, n]. Where nothing is left it is one empty string.
pub fn normalise(x: &Tensor, stop: &Tensor, case: Case, sensitive: bool) -> Result<Tensor> {
    let batched = match x.dims() {
        [_] => false,
        [1, _] => true,
        other => return Err(unfit(format!("strings to normalise are [n] or [1, n], not {other:?}"))),
    };
    let compared = |text: &str| if sensitive { text.to_string() } else { text.to_lowercase() };
    let stop: Vec<String> = stop.texts()?.into_iter().map(compared).collect();
    let kept = x.texts()?.into_iter().filter(|text| !stop.contains(&compared(text)));
    let mut kept: Vec<String> = kept.map(|text| case.change(text)).collect();
    if kept.is_empty() {
        kept.push(String::new());
    }
    let dims = if batched { vec![1, kept.len()] } else { vec![kept.len()] };
    Ok(Tensor::from_strings(dims, &kept))
}

/// True for each string that the pattern (RE2's syntax) describes as a whole.
#[cfg(feature = "regex")]
pub fn full_match(x: &Tensor, pattern: &Tensor) -> Result<Tensor> {
    let pattern = pattern.texts()?.first().copied().unwrap_or_default().to_string();
    let regex = anchored(&pattern)
        .map_err(|reason| crate::Error::user("E0106", format!("`{pattern}` is no regular expression: {reason}")))?;
    let found = x.texts()?.into_iter().map(|text| regex.is_match(text)).collect::<Vec<bool>>();
    Ok(Tensor::from_vec(x.dims().to_vec(), found))
}

/// Bytes of a compiled pattern, as the crate `regex` limits them.
#[cfg(feature = "regex")]
const PATTERN_BYTES_MAX: usize = 10 << 20;

/// The pattern between both ends of the text. It is parsed by itself: within a text like `^(?:PATTERN)$` a parenthesis of its own
/// could close the group.
#[cfg(feature = "regex")]
fn anchored(pattern: &str) -> std::result::Result<regex_automata::meta::Regex, String> {
    use regex_automata::meta::{Config, Regex};
    use regex_syntax::hir::{Hir, Look};
    let inner = regex_syntax::parse(pattern).map_err(|e| e.to_string())?;
    let whole = Hir::concat(vec![Hir::look(Look::Start), inner, Hir::look(Look::End)]);
    let config = Config::new().nfa_size_limit(Some(PATTERN_BYTES_MAX));
    Regex::builder().configure(config).build_from_hir(&whole).map_err(|e| match e.size_limit() {
        Some(limit) => format!("its compiled form is larger than {limit} bytes"),
        None => e.to_string(),
    })
}

#[cfg(not(feature = "regex"))]
pub fn full_match(_x: &Tensor, _pattern: &Tensor) -> Result<Tensor> {
    Err(super::left_out("RegexFullMatch", "regex"))
}

/// The shortest digits that are read back as the same number, as Python writes them.
pub fn from_numbers(x: &Tensor) -> Result<Tensor> {
    let x = &crate::widen::widen(x);
    let text = |i: usize| -> Option<String> {
        Some(match x.dtype() {
            DType::F64 => python_float(&format!("{:e}", x.get_f64(i)?)),
            DType::F32 => python_float(&format!("{:e}", x.get_f64(i)? as f32)),
            DType::F16 => python_float(&shortest_f16(half::f16::from_f64(x.get_f64(i)?))),
            DType::Bool => if x.get_f64(i)? != 0.0 { "True" } else { "False" }.to_string(),
            DType::U64 => (x.get_i64(i)? as u64).to_string(),
            _ => x.get_i64(i)?.to_string(),
        })
    };
    let texts: Option<Vec<String>> = (0..x.len()).map(text).collect();
    let texts = texts.ok_or_else(|| unfit(format!("elements of type {} are not written as text", x.dtype())))?;
    Ok(Tensor::from_strings(x.dims().to_vec(), &texts))
}

/// `1.25e1` of the fewest digits that f16 tells from its neighbours.
fn shortest_f16(v: half::f16) -> String {
    let wide = f64::from(v);
    let tried = (0..8).map(|digits| format!("{wide:.digits$e}"));
    tried
        .into_iter()
        .find(|t| t.parse::<f64>().is_ok_and(|back| half::f16::from_f64(back) == v))
        .unwrap_or_else(|| format!("{wide:e}"))
}

/// `1.5e-7` => `1.5e-07`, `1.25e1` => `12.5`: plain between 1e-4 and 1e16, as `repr` does.
fn python_float(scientific: &str) -> String {
    let lower = scientific.to_lowercase();
    if lower.contains("nan") {
        return "nan".into();
    }
    if lower.contains("inf") {
        return if lower.starts_with('-') { "-inf".into() } else { "inf".into() };
    }
    let (sign, rest) = scientific.strip_prefix('-').map_or(("", scientific), |rest| ("-", rest));
    let (mantissa, exponent) = rest.split_once('e').unwrap_or((rest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_end_matches('0');
    let digits = if digits.is_empty() { "0" } else { digits };
    let n = digits.len() as i32;
    if !(-4..16).contains(&exponent) {
        let point = if n > 1 { format!("{}.{}", &digits[..1], &digits[1..]) } else { digits.to_string() };
        let mark = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{point}e{mark}{:02}", exponent.abs());
    }
    let plain = match exponent {
        e if e < 0 => format!("0.{}{digits}", "0".repeat((-e - 1) as usize)),
        e if n <= e + 1 => format!("{digits}{}.0", "0".repeat((e + 1 - n) as usize)),
        e => format!("{}.{}", &digits[..(e + 1) as usize], &digits[(e + 1) as usize..]),
    };
    format!("{sign}{plain}")
}

/// Numbers as text, to f64 (floats) or i64 (integers), which the caller converts further.
pub fn to_numbers(x: &Tensor, float: bool) -> Result<Tensor> {
    let texts = x.texts()?;
    let wrong = |text: &str| unfit(format!("`{text}` is not read as a number"));
    if float {
        let read = |text: &&str| text.trim().parse::<f64>().map_err(|_| wrong(text));
        return Ok(Tensor::from_vec(x.dims().to_vec(), texts.iter().map(read).collect::<Result<Vec<f64>>>()?));
    }
    let read = |text: &&str| {
        let text = text.trim();
        text.parse::<i64>().or_else(|_| text.parse::<f64>().map(|v| v as i64)).map_err(|_| wrong(text))
    };
    Ok(numbers(x.dims().to_vec(), texts.iter().map(read).collect::<Result<Vec<i64>>>()?))
}

/// The place of each element among the keys, `keys.len()` where it is not there. NaN is a key like others.
pub fn look_up(x: &Tensor, keys: &Tensor) -> Result<Tensor> {
    if x.dtype() != keys.dtype() {
        return Err(unfit(format!("elements of type {} are no keys of type {}", x.dtype(), keys.dtype())));
    }
    fn places<'a>(x: Vec<&'a [u8]>, keys: Vec<&'a [u8]>) -> Vec<i64> {
        let mut at: HashMap<&[u8], i64> = HashMap::new();
        for (i, key) in keys.iter().enumerate() {
            at.entry(key).or_insert(i as i64);
        }
        x.into_iter().map(|e| at.get(e).copied().unwrap_or(keys.len() as i64)).collect()
    }
    let found = match (x.strings(), keys.strings()) {
        (Some(x), Some(keys)) => places(x, keys),
        (_, _) => {
            let plain = |t: &Tensor| -> Option<Vec<[u8; 8]>> {
                let canonical = |v: f64| if v.is_nan() { f64::NAN } else { v + 0.0 }.to_le_bytes();
                let one = |i| match t.dtype().is_float() {
                    true => t.get_f64(i).map(canonical),
                    false => t.get_i64(i).map(i64::to_le_bytes),
                };
                (0..t.len()).map(one).collect()
            };
            let (Some(x), Some(keys)) = (plain(x), plain(keys)) else {
                return Err(unfit(format!("elements of type {} are not looked up", x.dtype())));
            };
            places(x.iter().map(|e| &e[..]).collect(), keys.iter().map(|e| &e[..]).collect())
        }
    };
    Ok(numbers(x.dims().to_vec(), found))
}

/// The strings at the given places.
pub fn pick(x: &Tensor, at: &Tensor) -> Result<Tensor> {
    let strings = strings(x)?;
    let one = |i| at.get_i64(i).and_then(|p| strings.get(usize::try_from(p).ok()?)).copied();
    let picked: Option<Vec<&[u8]>> = (0..at.len()).map(one).collect();
    let picked = picked.ok_or_else(|| unfit(format!("a place is outside {} strings", strings.len())))?;
    Ok(Tensor::from_strings(at.dims().to_vec(), &picked))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(v: &[&str]) -> Tensor {
        Tensor::from_strings(vec![v.len()], v)
    }

    #[test]
    fn strings_are_joined_compared_and_split() {
        let column = Tensor::from_strings(vec![2, 1], &["a", "b"]);
        let both = concat(&column, &s(&["x", "y"])).unwrap();
        assert_eq!((both.dims(), both.texts().unwrap()), (&[2, 2][..], vec!["ax", "ay", "bx", "by"]));
        assert_eq!(equal(&column, &s(&["a"])).unwrap().bytes()[..], [1, 0]);
        assert!(concat(&s(&["a", "b"]), &s(&["a", "b", "c"])).is_err());
        let cut =
            |text: &str, by: &str, limit| split(&s(&[text]), &s(&[by]), limit).unwrap()[0].texts().unwrap().join("|");
        assert_eq!(cut("a,b,,c", ",", -1), "a|b||c");
        assert_eq!(cut("a,b,c", ",", 1), "a|b,c");
        assert_eq!(cut("  a  b c ", "", -1), "a|b|c");
        assert_eq!(cut(" a b  c ", "", 1), "a|b  c ");
        let ragged = split(&s(&["a b", "", "c"]), &s(&[""]), -1).unwrap();
        assert_eq!((ragged[0].dims(), ragged[1].to_vec::<i64>().unwrap()), (&[3, 2][..], vec![2, 0, 1]));
    }

    #[test]
    fn stop_words_go_and_case_changes() {
        let x = s(&["Monday", "tuesday", "MONDAY"]);
        let all = |case, sensitive, stop: &[&str]| {
            normalise(&x, &s(stop), case, sensitive).unwrap().texts().unwrap().join(" ")
        };
        assert_eq!(all(Case::Upper, false, &["monday"]), "TUESDAY");
        assert_eq!(all(Case::Lower, true, &["Monday"]), "tuesday monday");
        assert_eq!(all(Case::None, false, &["monday", "tuesday"]), "");
        assert!(normalise(&Tensor::from_strings(vec![2, 1], &["a", "b"]), &s(&[]), Case::None, true).is_err());
    }

    #[cfg(feature = "regex")]
    #[test]
    fn a_match_is_of_the_whole() {
        let found = full_match(&s(&["abc", "xabc", "ab"]), &s(&["ab|abc"])).unwrap();
        assert_eq!(found.bytes()[..], [1, 0, 1]);
        let one = |text: &str, pattern: &str| full_match(&s(&[text]), &s(&[pattern])).map(|t| t.bytes()[0] == 1);
        for (text, pattern, expected) in [
            ("a", "(?x) a # a comment", true),
            ("ab", "^a|b$", false),
            ("x\na", "(?m)^a$", false),
            ("A", "(?i)a", true),
            ("aB", "(?i:a)b", false),
            ("", "", true),
            ("ß9", r"\w\d", true),
        ] {
            assert_eq!(one(text, pattern).unwrap(), expected, "{text} {pattern}");
        }
        for pattern in ["(", ")", "a)|(b", "a)|(?:b", "(?P<n>a)(?P<n>b)", "a{1000}{1000}{1000}", &"(".repeat(10_000)] {
            assert_eq!(one("axxx", pattern).unwrap_err().code, "E0106", "{pattern}");
        }
    }

    #[test]
    fn numbers_are_written_as_python_does() {
        let text = |v: f32| from_numbers(&Tensor::scalar(v)).unwrap().texts().unwrap()[0].to_string();
        for (v, expected) in [
            (0.1, "0.1"),
            (1.0, "1.0"),
            (-12.5, "-12.5"),
            (1.5e-7, "1.5e-07"),
            (1e-4, "0.0001"),
            (1e20, "1e+20"),
            (123456.0, "123456.0"),
            (0.0, "0.0"),
            (f32::INFINITY, "inf"),
            (f32::NAN, "nan"),
        ] {
            assert_eq!(text(v), expected);
        }
        let half = Tensor::scalar(half::f16::from_f32(0.1));
        assert_eq!(from_numbers(&half).unwrap().texts().unwrap(), ["0.1"]);
        assert_eq!(
            to_numbers(&s(&["1e-3", "-inf"]), true).unwrap().to_vec::<f64>().unwrap(),
            [1e-3, f64::NEG_INFINITY]
        );
        assert_eq!(to_numbers(&s(&["7", "-2.9"]), false).unwrap().to_vec::<i64>().unwrap(), [7, -2]);
        assert_eq!(to_numbers(&s(&["x"]), true).unwrap_err().code, "E0303");
    }

    #[test]
    fn elements_are_looked_up_and_picked() {
        let found = look_up(&s(&["b", "z", "a"]), &s(&["a", "b"])).unwrap();
        assert_eq!(found.to_vec::<i64>().unwrap(), [1, 2, 0]);
        let nan =
            look_up(&Tensor::from_vec(vec![2], vec![f32::NAN, -0.0]), &Tensor::from_vec(vec![2], vec![0f32, f32::NAN]));
        assert_eq!(nan.unwrap().to_vec::<i64>().unwrap(), [1, 0]);
        assert_eq!(pick(&s(&["a", "b"]), &numbers(vec![2], vec![1, 1])).unwrap().texts().unwrap(), ["b", "b"]);
        assert!(pick(&s(&["a"]), &numbers(vec![1], vec![-1])).is_err());
    }
}
