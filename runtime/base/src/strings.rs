//! ["a", "öß"]  <=>  the bytes of a string tensor: n + 1 offsets as u64, then the concatenated strings

use crate::host::Budget;
use crate::tensor::element_count;
use crate::{DType, Error, Result, Tensor};

const OFFSET: usize = size_of::<u64>();

impl Tensor {
    /// A tensor of strings, which ONNX does not require to be UTF-8. Panics if `dims` and `values` disagree, which is
    /// the caller's mistake.
    pub fn from_strings<S: AsRef<[u8]>>(dims: Vec<usize>, values: &[S]) -> Tensor {
        assert_eq!(element_count(&dims), Some(values.len()), "dims {dims:?}");
        let length: usize = values.iter().map(|s| s.as_ref().len()).sum();
        let mut data = Vec::with_capacity((values.len() + 1) * OFFSET + length);
        let mut at = 0u64;
        data.extend(at.to_le_bytes());
        for value in values {
            at += value.as_ref().len() as u64;
            data.extend(at.to_le_bytes());
        }
        values.iter().for_each(|s| data.extend(s.as_ref()));
        Tensor::new(DType::String, dims, data.into()).expect("offsets that were just counted")
    }

    /// The strings in row-major order; `None` if the tensor has another type.
    pub fn strings(&self) -> Option<Vec<&[u8]>> {
        let view = self.string_view()?;
        Some((0..self.len()).map(|i| view.get(i)).collect())
    }

    /// Returns a view of the strings, without allocating a list; `None` if the tensor has another type.
    pub(crate) fn string_view(&self) -> Option<Strings<'_>> {
        if self.dtype() != DType::String {
            return None;
        }
        // `check` has ensured that the offsets ascend and end with the text.
        let (table, text) = self.bytes().split_at((self.len() + 1) * OFFSET);
        Some(Strings { table: table.as_chunks().0, text })
    }

    /// The strings as UTF-8. Errors: E0107 for another type, E0302 for a string that is not UTF-8.
    pub fn texts(&self) -> Result<Vec<&str>> {
        let wrong = || Error::user("E0107", format!("strings are wanted, not {}", self.dtype()));
        let valid = |(i, s)| {
            std::str::from_utf8(s).map_err(|_| Error::user("E0302", format!("string {i} of the tensor is not UTF-8")))
        };
        self.strings().ok_or_else(wrong)?.into_iter().enumerate().map(valid).collect()
    }
}

/// The strings of a tensor, in row-major order.
#[derive(Clone, Copy)]
pub(crate) struct Strings<'a> {
    table: &'a [[u8; OFFSET]],
    text: &'a [u8],
}

impl<'a> Strings<'a> {
    #[inline]
    pub fn get(&self, i: usize) -> &'a [u8] {
        let end = |i: usize| usize::try_from(u64::from_le_bytes(self.table[i])).unwrap_or(usize::MAX);
        &self.text[end(i)..end(i + 1)]
    }

    pub fn first(&self) -> Option<&'a [u8]> {
        (self.table.len() > 1).then(|| self.get(0))
    }
}

/// Builds a tensor of strings, one after the other.
pub(crate) struct StringsOut<'a> {
    budget: &'a Budget<'a>,
    count: usize,
    at: usize,
    data: Vec<u8>,
}

impl<'a> StringsOut<'a> {
    /// Reserves the offsets of `count` strings. Errors: E0304.
    pub fn new(count: usize, budget: &'a Budget<'a>) -> Result<StringsOut<'a>> {
        let data = budget.filled(0u8, count.saturating_add(1).saturating_mul(OFFSET))?;
        Ok(StringsOut { budget, count, at: 0, data })
    }

    /// Appends a string that consists of these parts. Errors: E0304.
    #[inline]
    pub fn push(&mut self, parts: &[&[u8]]) -> Result<()> {
        for part in parts {
            self.budget.append(&mut self.data, part)?;
        }
        self.end()
    }

    /// Appends a part of the next string, which [`end`](StringsOut::end) completes.
    pub fn part(&mut self, part: &[u8]) -> Result<()> {
        self.budget.append(&mut self.data, part)
    }

    #[inline]
    pub fn end(&mut self) -> Result<()> {
        self.at += 1;
        let end = self.data.len() - (self.count + 1) * OFFSET;
        self.data[self.at * OFFSET..(self.at + 1) * OFFSET].copy_from_slice(&(end as u64).to_le_bytes());
        self.budget.work(1)
    }

    /// Returns the tensor of all strings. Errors: E0302 if there are fewer strings than announced to `new`.
    pub fn finish(self, dims: Vec<usize>) -> Result<Tensor> {
        Tensor::new(DType::String, dims, self.data.into())
    }
}

fn offset(bytes: &[u8]) -> usize {
    let mut raw = [0; OFFSET];
    raw.copy_from_slice(bytes);
    usize::try_from(u64::from_le_bytes(raw)).unwrap_or(usize::MAX)
}

/// Checks that bytes encode `count` strings. Errors: E0302.
pub(crate) fn check(count: usize, data: &[u8]) -> Result<()> {
    let wrong = |what: &str| Error::user("E0302", format!("the bytes are not {count} strings: {what}"));
    let table = count.checked_add(1).and_then(|n| n.checked_mul(OFFSET)).filter(|n| *n <= data.len());
    let (table, text) = data.split_at(table.ok_or_else(|| wrong("the offsets are cut off"))?);
    let mut last = 0;
    for (i, at) in table.chunks_exact(OFFSET).map(offset).enumerate() {
        if at < last || (i == 0 && at != 0) {
            return Err(wrong("the offsets do not ascend from 0"));
        }
        last = at;
    }
    if last == text.len() { Ok(()) } else { Err(wrong("the last offset is not their length")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_survive_the_round_trip() {
        let t = Tensor::from_strings(vec![2, 2], &["", "a", "öß", "d\0e"]);
        assert_eq!(t.texts().unwrap(), ["", "a", "öß", "d\0e"]);
        assert_eq!(Tensor::new(DType::String, vec![4], t.bytes().clone()).unwrap().len(), 4);
        assert_eq!(Tensor::from_strings::<&str>(vec![0, 3], &[]).strings().unwrap().len(), 0);
        assert_eq!(Tensor::scalar(1f32).strings(), None);
    }

    #[test]
    fn other_bytes_are_refused() {
        let good = Tensor::from_strings(vec![2], &["ab", "c"]).bytes().to_vec();
        let code = |n: usize, data: &[u8]| {
            Tensor::new(DType::String, vec![n], data.to_vec().into()).map(|_| ()).map_err(|e| e.code)
        };
        assert_eq!(code(2, &good), Ok(()));
        for n in [0, 1, 3, 1 << 60] {
            assert!(code(n, &good).is_err(), "{n}");
        }
        for cut in 0..good.len() {
            assert_eq!(code(2, &good[..cut]), Err("E0302"), "{cut}");
        }
        let mut descending = good;
        descending[8] = 9;
        assert_eq!(code(2, &descending), Err("E0302"));
        let bytes = Tensor::from_strings(vec![1], &[[0xff, 0xfe]]);
        assert_eq!(bytes.texts().unwrap_err().code, "E0302");
    }
}
