//! `[[101, 2023], [7, 8]]`  =>  a tensor of the input's type

use sardonyx_base::{DType, Error, Result, Tensor};

/// Whether an argument lists the elements of a tensor.
pub fn is_list(text: &str) -> bool {
    text.trim_start().starts_with('[')
}

/// Reads nested lists of numbers, or of `true` and `false`, in row-major order. Errors: E0001 for text that is not such
/// a list, for lists of unequal length, and for numbers that the type cannot represent, E0107 for a type whose elements
/// cannot be listed.
pub fn parse(text: &str, dtype: DType) -> Result<Tensor> {
    let mut parser = Parser { rest: text.trim(), dtype, dims: vec![], leaf: None, data: vec![] };
    parser.list(0)?;
    match parser.rest.trim().is_empty() {
        true => Tensor::new(dtype, parser.dims, parser.data.into()),
        false => Err(parser.error("text follows the list")),
    }
}

/// The deepest nesting that is read: more dimensions than any model has.
const RANK_MAX: usize = 32;

struct Parser<'a> {
    rest: &'a str,
    dtype: DType,
    /// By depth: the length of the first list at that depth, which all others must have as well.
    dims: Vec<usize>,
    /// The depth of the lists that hold numbers.
    leaf: Option<usize>,
    data: Vec<u8>,
}

impl Parser<'_> {
    fn error(&self, what: &str) -> Box<Error> {
        let near: String = self.rest.chars().take(20).collect();
        let message = format!("a list of numbers is not understood: {what}, near `{near}`");
        Error::user("E0001", message)
            .help("write nested lists of equal length, for example `--input ids=[[101,2023,102]]`")
    }

    fn take(&mut self, mark: char) -> bool {
        self.rest = self.rest.trim_start();
        let rest = self.rest.strip_prefix(mark);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn list(&mut self, depth: usize) -> Result<()> {
        if !self.take('[') {
            return Err(self.error("a `[` is missing"));
        }
        if self.leaf.is_some_and(|leaf| depth > leaf) {
            return Err(self.error("a list stands beside a number"));
        }
        if depth >= RANK_MAX {
            return Err(self.error("it is nested too deeply"));
        }
        let is_first = self.dims.len() == depth;
        if is_first {
            self.dims.push(0);
        }
        let mut n = 0;
        while !self.take(']') {
            if n > 0 && !self.take(',') {
                return Err(self.error("a `,` or `]` is missing"));
            }
            self.rest = self.rest.trim_start();
            match self.rest.starts_with('[') {
                true => self.list(depth + 1)?,
                false if self.dims.len() == depth + 1 => {
                    self.leaf = Some(depth);
                    self.number()?;
                }
                false => return Err(self.error("a number stands beside a list")),
            }
            n += 1;
        }
        match is_first {
            true => self.dims[depth] = n,
            false if self.dims[depth] == n => {}
            false => return Err(self.error("its lists have unequal lengths")),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<()> {
        let end = self.rest.find([',', ']']).unwrap_or(self.rest.len());
        let word = self.rest[..end].trim();
        match encoded(word, self.dtype)? {
            Some(bytes) => self.data.extend(bytes),
            None => return Err(self.error(&format!("`{word}` is no {}", self.dtype))),
        }
        self.rest = &self.rest[end..];
        Ok(())
    }
}

/// Returns the bytes of one element; `None` if the type cannot represent the number.
fn encoded(word: &str, dtype: DType) -> Result<Option<Vec<u8>>> {
    use DType::*;
    let float = || word.parse::<f64>().ok();
    let int = || word.parse::<i128>().ok();
    macro_rules! int {
        ($type:ty) => {
            int().and_then(|n| <$type>::try_from(n).ok()).map(|n| n.to_le_bytes().to_vec())
        };
    }
    Ok(match dtype {
        F64 => float().map(|x| x.to_le_bytes().to_vec()),
        F32 => float().map(|x| (x as f32).to_le_bytes().to_vec()),
        F16 => float().map(|x| half::f16::from_f64(x).to_le_bytes().to_vec()),
        BF16 => float().map(|x| half::bf16::from_f64(x).to_le_bytes().to_vec()),
        Bool => match word {
            "0" | "false" => Some(vec![0]),
            "1" | "true" => Some(vec![1]),
            _ => None,
        },
        U8 => int!(u8),
        I8 => int!(i8),
        U16 => int!(u16),
        I16 => int!(i16),
        U32 => int!(u32),
        I32 => int!(i32),
        U64 => int!(u64),
        I64 => int!(i64),
        C64 | C128 | F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | F8E8M0 | U4 | I4 | F4E2M1 | U2 | I2 | String
        | Value => {
            return Err(Error::user("E0107", format!("elements of {dtype} cannot be listed"))
                .help("give the tensor as a `.npy` or `.pb` file"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_lists_are_tensors() {
        let ids = parse("[[101, 2023], [7,8] ]", DType::I64).unwrap();
        assert_eq!((ids.dims(), ids.to_vec::<i64>().unwrap()), (&[2, 2][..], vec![101, 2023, 7, 8]));
        assert_eq!(parse("[0.5,-1e3]", DType::F32).unwrap().to_vec::<f32>().unwrap(), [0.5, -1000.0]);
        assert_eq!(parse("[true,0]", DType::Bool).unwrap().dims(), [2]);
        assert_eq!(parse("[[],[]]", DType::F32).unwrap().dims(), [2, 0]);
        assert_eq!(parse("[]", DType::U8).unwrap().dims(), [0]);
    }

    #[test]
    fn other_text_is_refused_with_its_place() {
        for (text, words) in [
            ("[1,2", "a `,` or `]` is missing"),
            ("[[1],[2,3]]", "its lists have unequal lengths"),
            ("[[1],2]", "a number stands beside a list"),
            ("[1,[2]]", "a list stands beside a number"),
            ("[1.5]", "`1.5` is no i64"),
            ("[1] 2", "text follows the list"),
            ("[,]", "`` is no i64"),
        ] {
            let error = parse(text, DType::I64).unwrap_err();
            assert!(error.code == "E0001" && error.message.contains(words), "{text}: {error}");
        }
        assert!(parse(&"[".repeat(100_000), DType::I64).unwrap_err().message.contains("too deeply"));
        assert_eq!(parse("[300]", DType::U8).unwrap_err().code, "E0001");
        assert_eq!(parse("[1]", DType::String).unwrap_err().code, "E0107");
    }
}
