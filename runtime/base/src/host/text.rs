//! strings: joined, split, normalised, looked up and read as numbers on the host

use super::{Budget, numbers, unfit};
use crate::strings::{Strings, StringsOut};
use crate::tensor::element_count;
use crate::{DType, Error, Result, Tensor};
use std::collections::HashMap;
use std::hash::Hash;

/// Numpy broadcasting of two shapes.
struct Broadcast<'a> {
    a: &'a [usize],
    b: &'a [usize],
    dims: Vec<usize>,
    /// Number of elements of the result.
    count: usize,
}

impl<'a> Broadcast<'a> {
    fn new(a: &'a [usize], b: &'a [usize]) -> Result<Broadcast<'a>> {
        let rank = a.len().max(b.len());
        let mut dims = vec![];
        for i in 0..rank {
            dims.push(match (size(a, i, rank), size(b, i, rank)) {
                (x, y) if x == y => x,
                (1, y) => y,
                (x, 1) => x,
                (_, _) => return Err(unfit(format!("{a:?} and {b:?} have no common shape"))),
            });
        }
        let count = element_count(&dims).ok_or_else(|| unfit(format!("{dims:?} strings are too many")))?;
        Ok(Broadcast { a, b, dims, count })
    }

    /// The row-major positions in `a` and `b` of the element that is at position `flat` of the result.
    fn places(&self, flat: usize) -> (usize, usize) {
        let place = |d: &[usize]| {
            let (mut flat, mut index, mut stride) = (flat, 0, 1);
            for i in (0..self.dims.len()).rev() {
                let here = flat % self.dims[i];
                flat /= self.dims[i];
                let own = size(d, i, self.dims.len());
                index += if own == 1 { 0 } else { here * stride };
                stride *= own;
            }
            index
        };
        (place(self.a), place(self.b))
    }
}

/// Dimension `i` of a shape that is extended to `rank` by leading ones.
fn size(dims: &[usize], i: usize, rank: usize) -> usize {
    (i + dims.len()).checked_sub(rank).map_or(1, |i| dims[i])
}

fn strings(t: &Tensor) -> Result<Strings<'_>> {
    t.string_view().ok_or_else(|| unfit(format!("strings are wanted, not {}", t.dtype())))
}

/// The strings of a tensor, as UTF-8. Errors: E0107 for a tensor of another type, E0302 for a string that is not UTF-8.
pub(super) struct Texts<'a> {
    strings: Strings<'a>,
    budget: &'a Budget<'a>,
}

impl<'a> Texts<'a> {
    pub fn new(t: &'a Tensor, budget: &'a Budget<'a>) -> Result<Texts<'a>> {
        let wrong = || Error::user("E0107", format!("strings are wanted, not {}", t.dtype()));
        Ok(Texts { strings: t.string_view().ok_or_else(wrong)?, budget })
    }

    pub fn get(&self, i: usize) -> Result<&'a str> {
        let bytes = self.strings.get(i);
        self.budget.read(bytes.len())?;
        let wrong = |_| Error::user("E0302", format!("string {i} of the tensor is not UTF-8"));
        std::str::from_utf8(bytes).map_err(wrong)
    }

    /// The first string; an empty one if there is none.
    pub fn first(&self) -> Result<&'a str> {
        self.strings.first().map_or(Ok(""), |_| self.get(0))
    }
}

pub fn concat(a: &Tensor, b: &Tensor, budget: &Budget) -> Result<Tensor> {
    let shape = Broadcast::new(a.dims(), b.dims())?;
    let (a, b) = (strings(a)?, strings(b)?);
    let mut out = StringsOut::new(shape.count, budget)?;
    for at in 0..shape.count {
        let (i, j) = shape.places(at);
        out.push(&[a.get(i), b.get(j)])?;
    }
    out.finish(shape.dims)
}

pub fn equal(a: &Tensor, b: &Tensor, budget: &Budget) -> Result<Tensor> {
    let shape = Broadcast::new(a.dims(), b.dims())?;
    let (a, b) = (strings(a)?, strings(b)?);
    let equal = budget.collect(shape.count, |at| {
        let (i, j) = shape.places(at);
        let (a, b) = (a.get(i), b.get(j));
        budget.read(a.len().min(b.len()))?;
        Ok(a == b)
    })?;
    Ok(Tensor::from_vec(shape.dims, equal))
}

/// Splits each string at most `limit` times; a negative limit means no limit. Returns the parts along a new last axis,
/// padded with empty strings, and the number of parts of each string. An empty delimiter splits at runs of white space.
pub fn split(x: &Tensor, delimiter: &Tensor, limit: i64, budget: &Budget) -> Result<Vec<Tensor>> {
    let delimiter = Texts::new(delimiter, budget)?.first()?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let texts = Texts::new(x, budget)?;
    let mut all = vec![];
    let counts = budget.collect(x.len(), |i| {
        let before = all.len();
        pieces(texts.get(i)?, delimiter, limit, &mut |piece| {
            budget.read(piece.len())?;
            budget.push(&mut all, piece)
        })?;
        Ok((all.len() - before) as i64)
    })?;
    let widest = usize::try_from(counts.iter().copied().max().unwrap_or(0)).unwrap_or(0);
    let mut out = StringsOut::new(x.len().saturating_mul(widest), budget)?;
    let mut rest = &all[..];
    for count in &counts {
        let (own, others) = rest.split_at(*count as usize);
        rest = others;
        for piece in own {
            out.push(&[piece.as_bytes()])?;
        }
        for _ in own.len()..widest {
            out.end()?;
        }
    }
    let dims: Vec<usize> = x.dims().iter().copied().chain([widest]).collect();
    Ok(vec![out.finish(dims)?, numbers(x.dims().to_vec(), counts)])
}

fn pieces<'a>(text: &'a str, delimiter: &str, limit: usize, put: &mut impl FnMut(&'a str) -> Result<()>) -> Result<()> {
    if !delimiter.is_empty() {
        return match text.is_empty() {
            true => Ok(()),
            false => text.splitn(limit.saturating_add(1), delimiter).try_for_each(put),
        };
    }
    let (mut rest, mut left) = (text.trim_start(), limit);
    while !rest.is_empty() {
        if left == 0 {
            return put(rest);
        }
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        put(&rest[..end])?;
        rest = rest[end..].trim_start();
        left -= 1;
    }
    Ok(())
}

/// A change of the case of letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Case {
    /// Leaves letters as they are.
    None,
    /// Changes letters to lower case.
    Lower,
    /// Changes letters to upper case.
    Upper,
}

impl Case {
    /// Returns the text changed to this case by the rules of Unicode.
    pub fn change(self, text: &str) -> String {
        match self {
            Case::None => text.to_string(),
            Case::Lower => text.to_lowercase(),
            Case::Upper => text.to_uppercase(),
        }
    }
}

/// The case of a text with more bytes than this is changed in parts.
const CHANGED_AT_ONCE: usize = 1 << 16;

/// Divides a text into parts whose case can be changed one by one: how a letter changes depends only on its word, and
/// each part but the last ends with white space.
fn case_parts(mut rest: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let bytes = rest.as_bytes();
        let end = bytes.iter().skip(CHANGED_AT_ONCE).position(|b| b.is_ascii_whitespace());
        let (part, more) = rest.split_at(end.map_or(rest.len(), |at| at + CHANGED_AT_ONCE + 1));
        rest = more;
        (!part.is_empty()).then_some(part)
    })
}

/// Changes the text to `case`, and passes it to `put` part by part.
fn change(text: &str, case: Case, budget: &Budget, put: &mut impl FnMut(&str) -> Result<()>) -> Result<()> {
    if text.len() <= CHANGED_AT_ONCE {
        budget.work(1 + text.len())?;
        return if case == Case::None { put(text) } else { put(&case.change(text)) };
    }
    for part in case_parts(text) {
        budget.work(1 + part.len())?;
        if part.len() > CHANGED_AT_ONCE {
            // A change of case makes no letter more than three times as long in UTF-8.
            budget.probe(3 * part.len())?;
        }
        match case {
            Case::None => put(part)?,
            Case::Lower | Case::Upper => put(&case.change(part))?,
        }
    }
    Ok(())
}

/// Removes stop words and changes the case of the other strings; x is [n] or [1, n]. Stop words are compared with
/// regard to case only if `sensitive` is set. If no string remains, returns one empty string.
pub fn normalise(x: &Tensor, stop: &Tensor, case: Case, sensitive: bool, budget: &Budget) -> Result<Tensor> {
    let batched = match x.dims() {
        [_] => false,
        [1, _] => true,
        other => return Err(unfit(format!("strings to normalise are [n] or [1, n], not {other:?}"))),
    };
    let compared = |text: &str, into: &mut Vec<u8>| {
        into.clear();
        let case = if sensitive { Case::None } else { Case::Lower };
        change(text, case, budget, &mut |part| budget.append(into, part.as_bytes()))
    };
    let (texts, stop_texts) = (Texts::new(x, budget)?, Texts::new(stop, budget)?);
    let words = budget.collect(stop.len(), |i| {
        let mut word = vec![];
        compared(stop_texts.get(i)?, &mut word)?;
        Ok(word)
    })?;
    let mut stop = budget.map(words.len())?;
    stop.extend(words.iter().map(|word| (&word[..], ())));
    let (mut kept, mut text) = (vec![], vec![]);
    for i in 0..x.len() {
        compared(texts.get(i)?, &mut text)?;
        if !stop.contains_key(&text[..]) {
            budget.push(&mut kept, i)?;
        }
    }
    let n = kept.len().max(1);
    let mut out = StringsOut::new(n, budget)?;
    for &i in &kept {
        change(texts.get(i)?, case, budget, &mut |part| out.part(part.as_bytes()))?;
        out.end()?;
    }
    if kept.is_empty() {
        out.end()?;
    }
    out.finish(if batched { vec![1, n] } else { vec![n] })
}

/// Writes numbers in Python's format, with the fewest digits that are read back as the same number: as the same f32 for
/// bf16 and narrower floats.
pub fn from_numbers(x: &Tensor, budget: &Budget) -> Result<Tensor> {
    let text = |i: usize| -> Option<String> {
        Some(match x.dtype() {
            DType::F64 => python_float(&format!("{:e}", x.get_f64(i)?)),
            DType::F32 => python_float(&format!("{:e}", x.get_f64(i)? as f32)),
            DType::F16 => python_float(&shortest_f16(half::f16::from_f64(x.get_f64(i)?))),
            // All other floats are written as f32, which represents them exactly.
            dtype if dtype.is_float() => python_float(&format!("{:e}", x.get_f64(i).unwrap_or(f64::NAN) as f32)),
            DType::Bool => if x.get_f64(i)? != 0.0 { "True" } else { "False" }.to_string(),
            DType::U64 => (x.get_i64(i)? as u64).to_string(),
            _ => x.get_i64(i)?.to_string(),
        })
    };
    let mut out = StringsOut::new(x.len(), budget)?;
    for i in 0..x.len() {
        let wrong = || unfit(format!("elements of type {} are not written as text", x.dtype()));
        out.push(&[text(i).ok_or_else(wrong)?.as_bytes()])?;
        budget.work(8)?;
    }
    out.finish(x.dims().to_vec())
}

/// Writes a number in the form `1.25e1`, with the fewest digits that distinguish it from all other f16.
fn shortest_f16(v: half::f16) -> String {
    let wide = f64::from(v);
    let tried = (0..8).map(|digits| format!("{wide:.digits$e}"));
    tried
        .into_iter()
        .find(|t| t.parse::<f64>().is_ok_and(|back| half::f16::from_f64(back) == v))
        .unwrap_or_else(|| format!("{wide:e}"))
}

/// Converts scientific notation to that of Python's `repr`: `1.5e-7` to `1.5e-07`, and `1.25e1` to `12.5`, because
/// magnitudes from 1e-4 up to, but not including, 1e16 have no exponent.
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

/// Parses texts as f64 if `float` is set; otherwise as i64 or, failing that, as f64 rounded towards zero. The compiler
/// inserts the conversion to the requested type after this operation.
pub fn to_numbers(x: &Tensor, float: bool, budget: &Budget) -> Result<Tensor> {
    let texts = Texts::new(x, budget)?;
    let wrong = |text: &str| {
        let shown: String = text.chars().take(SHOWN_MAX).collect();
        unfit(format!("`{shown}` is not read as a number"))
    };
    if float {
        let read = |i| texts.get(i).and_then(|text| text.trim().parse::<f64>().map_err(|_| wrong(text)));
        return Ok(Tensor::from_vec(x.dims().to_vec(), budget.collect(x.len(), read)?));
    }
    let read = |i| {
        let text = texts.get(i)?.trim();
        text.parse::<i64>().or_else(|_| text.parse::<f64>().map(|v| v as i64)).map_err(|_| wrong(text))
    };
    Ok(numbers(x.dims().to_vec(), budget.collect(x.len(), read)?))
}

/// Maximum number of characters of a text that a message shows.
const SHOWN_MAX: usize = 64;

/// For each element of x, the position of the first key that equals the element, or `keys.len()` if there is none. NaN
/// equals NaN, and -0 equals 0.
pub fn look_up(x: &Tensor, keys: &Tensor, budget: &Budget) -> Result<Tensor> {
    if x.dtype() != keys.dtype() {
        return Err(unfit(format!("elements of type {} are no keys of type {}", x.dtype(), keys.dtype())));
    }
    let lengths = [keys.len(), x.len()];
    let found = match (x.string_view(), keys.string_view()) {
        (Some(x), Some(keys)) => {
            let read = |text: &'_ [u8]| budget.read(text.len());
            let key = |i| read(keys.get(i)).map(|()| keys.get(i));
            places(lengths, key, |i| read(x.get(i)).map(|()| x.get(i)), budget)?
        }
        (_, _) => {
            let wrong = || unfit(format!("elements of type {} are not looked up", x.dtype()));
            let canonical = |v: f64| if v.is_nan() { f64::NAN } else { v + 0.0 }.to_bits();
            let plain = |t: &Tensor, i| match t.dtype().is_float() {
                true => t.get_f64(i).map(canonical).ok_or_else(wrong),
                false => t.get_i64(i).map(|v| v as u64).ok_or_else(wrong),
            };
            places(lengths, |i| plain(keys, i), |i| plain(x, i), budget)?
        }
    };
    let n_keys = keys.len() as i64;
    Ok(numbers(x.dims().to_vec(), budget.collect(x.len(), |i| Ok(found[i].map_or(n_keys, |at| at as i64)))?))
}

/// For each of `n` elements, the position of the first key that equals the element; `None` if there is none.
pub(super) fn places<K: Hash + Eq>(
    [n_keys, n]: [usize; 2],
    key: impl Fn(usize) -> Result<K>,
    element: impl Fn(usize) -> Result<K>,
    budget: &Budget,
) -> Result<Vec<Option<usize>>> {
    let mut at: HashMap<K, usize> = budget.map(n_keys)?;
    for i in 0..n_keys {
        budget.work(1)?;
        at.entry(key(i)?).or_insert(i);
    }
    budget.collect(n, |i| Ok(at.get(&element(i)?).copied()))
}

/// Returns the strings at the given row-major positions of x. Errors: E0303 for a position outside x.
pub fn pick(x: &Tensor, at: &Tensor, budget: &Budget) -> Result<Tensor> {
    let (strings, n) = (strings(x)?, x.len());
    let mut out = StringsOut::new(at.len(), budget)?;
    for i in 0..at.len() {
        let place = at.get_i64(i).and_then(|p| usize::try_from(p).ok()).filter(|p| *p < n);
        let place = place.ok_or_else(|| unfit(format!("a place is outside {n} strings")))?;
        out.push(&[strings.get(place)])?;
    }
    out.finish(at.dims().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free() -> Budget<'static> {
        Budget::unlimited()
    }

    fn s(v: &[&str]) -> Tensor {
        Tensor::from_strings(vec![v.len()], v)
    }

    #[test]
    fn strings_are_joined_compared_and_split() {
        let column = Tensor::from_strings(vec![2, 1], &["a", "b"]);
        let both = concat(&column, &s(&["x", "y"]), &free()).unwrap();
        assert_eq!((both.dims(), both.texts().unwrap()), (&[2, 2][..], vec!["ax", "ay", "bx", "by"]));
        assert_eq!(equal(&column, &s(&["a"]), &free()).unwrap().bytes()[..], [1, 0]);
        assert!(concat(&s(&["a", "b"]), &s(&["a", "b", "c"]), &free()).is_err());
        let cut = |text: &str, by: &str, limit| {
            split(&s(&[text]), &s(&[by]), limit, &free()).unwrap()[0].texts().unwrap().join("|")
        };
        assert_eq!(cut("a,b,,c", ",", -1), "a|b||c");
        assert_eq!(cut("a,b,c", ",", 1), "a|b,c");
        assert_eq!(cut("  a  b c ", "", -1), "a|b|c");
        assert_eq!(cut(" a b  c ", "", 1), "a|b  c ");
        let ragged = split(&s(&["a b", "", "c"]), &s(&[""]), -1, &free()).unwrap();
        assert_eq!((ragged[0].dims(), ragged[1].to_vec::<i64>().unwrap()), (&[3, 2][..], vec![2, 0, 1]));
    }

    #[test]
    fn stop_words_go_and_case_changes() {
        let x = s(&["Monday", "tuesday", "MONDAY"]);
        let all = |case, sensitive, stop: &[&str]| {
            normalise(&x, &s(stop), case, sensitive, &free()).unwrap().texts().unwrap().join(" ")
        };
        assert_eq!(all(Case::Upper, false, &["monday"]), "TUESDAY");
        assert_eq!(all(Case::Lower, true, &["Monday"]), "tuesday monday");
        assert_eq!(all(Case::None, false, &["monday", "tuesday"]), "");
        assert!(normalise(&Tensor::from_strings(vec![2, 1], &["a", "b"]), &s(&[]), Case::None, true, &free()).is_err());
    }

    #[test]
    fn long_texts_change_their_case_as_a_whole() {
        // A sigma at the end of a word has a different lower-case form; the end of a part must not count as one.
        let text = "ΑΣ ΣΑΣ\u{301}Σ,ßŉ İ".repeat(9000);
        for case in [Case::None, Case::Lower, Case::Upper] {
            let mut parts = String::new();
            let put = &mut |part: &str| {
                parts.push_str(part);
                Ok(())
            };
            change(&text, case, &free(), put).unwrap();
            assert_eq!(parts, case.change(&text));
        }
        assert!(case_parts(&text).count() > 1);
    }

    #[test]
    fn numbers_are_written_as_python_does() {
        let text = |v: f32| from_numbers(&Tensor::scalar(v), &free()).unwrap().texts().unwrap()[0].to_string();
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
        assert_eq!(from_numbers(&half, &free()).unwrap().texts().unwrap(), ["0.1"]);
        assert_eq!(
            to_numbers(&s(&["1e-3", "-inf"]), true, &free()).unwrap().to_vec::<f64>().unwrap(),
            [1e-3, f64::NEG_INFINITY]
        );
        assert_eq!(to_numbers(&s(&["7", "-2.9"]), false, &free()).unwrap().to_vec::<i64>().unwrap(), [7, -2]);
        assert_eq!(to_numbers(&s(&["x"]), true, &free()).unwrap_err().code, "E0303");
    }

    #[test]
    fn elements_are_looked_up_and_picked() {
        let found = look_up(&s(&["b", "z", "a"]), &s(&["a", "b"]), &free()).unwrap();
        assert_eq!(found.to_vec::<i64>().unwrap(), [1, 2, 0]);
        let nan = look_up(
            &Tensor::from_vec(vec![2], vec![f32::NAN, -0.0]),
            &Tensor::from_vec(vec![2], vec![0f32, f32::NAN]),
            &free(),
        );
        assert_eq!(nan.unwrap().to_vec::<i64>().unwrap(), [1, 0]);
        assert_eq!(pick(&s(&["a", "b"]), &numbers(vec![2], vec![1, 1]), &free()).unwrap().texts().unwrap(), ["b", "b"]);
        assert!(pick(&s(&["a"]), &numbers(vec![1], vec![-1]), &free()).is_err());
    }
}
