//! ["a", "öß"]  <=>  the bytes of a string tensor: n + 1 offsets as u64, then the strings one behind the other

use crate::tensor::element_count;
use crate::{DType, Error, Result, Tensor};

const OFFSET: usize = size_of::<u64>();

impl Tensor {
    /// A tensor of strings; ONNX does not say that they are UTF-8. Panics where `dims` and `values` disagree: the caller
    /// made both.
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

    /// The strings in row-major order; `None` where the type is another one.
    pub fn strings(&self) -> Option<Vec<&[u8]>> {
        if self.dtype() != DType::String {
            return None;
        }
        let (table, text) = self.bytes().split_at((self.len() + 1) * OFFSET);
        // `check` has seen that they ascend and end with the text.
        let ends: Vec<usize> = table.chunks_exact(OFFSET).map(offset).collect();
        Some(ends.windows(2).map(|w| &text[w[0]..w[1]]).collect())
    }

    /// The same where every string is UTF-8. Errors: E0302.
    pub fn texts(&self) -> Result<Vec<&str>> {
        let wrong = || Error::user("E0107", format!("strings are wanted, not {}", self.dtype()));
        let valid = |(i, s)| {
            std::str::from_utf8(s).map_err(|_| Error::user("E0302", format!("string {i} of the tensor is not UTF-8")))
        };
        self.strings().ok_or_else(wrong)?.into_iter().enumerate().map(valid).collect()
    }
}

fn offset(bytes: &[u8]) -> usize {
    let mut raw = [0; OFFSET];
    raw.copy_from_slice(bytes);
    usize::try_from(u64::from_le_bytes(raw)).unwrap_or(usize::MAX)
}

/// Refuses bytes that are not `count` strings.
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
