//! `.npy` (versions 1 to 3, little endian, C order)  <=>  `Tensor`; `.npz`  =>  named tensors

use crate::file::AtomicFile;
use bytes::Bytes;
use sardonyx_base::{DType, Error, Result, Tensor, tensor, widen::widen};
use std::io::{Read, Write};
use std::path::Path;

static MAGIC: &[u8] = b"\x93NUMPY";

/// (numpy type string, element type). For single bytes, `|` and `<` are equivalent.
static TYPES: &[(&str, DType)] = &[
    ("<f2", DType::F16),
    ("<f4", DType::F32),
    ("<f8", DType::F64),
    ("|i1", DType::I8),
    ("<i2", DType::I16),
    ("<i4", DType::I32),
    ("<i8", DType::I64),
    ("|u1", DType::U8),
    ("<u2", DType::U16),
    ("<u4", DType::U32),
    ("<u8", DType::U64),
    ("|b1", DType::Bool),
    ("<c8", DType::C64),
    ("<c16", DType::C128),
];

/// Reads the content of a `.npy` file. The tensor shares the file's bytes, unless bools other than 0 and 1 must be
/// normalised.
pub fn decode(file: Bytes) -> Result<Tensor> {
    let (header, at) = split_header(&file)?;
    let (dtype, dims) = parse_header(header)?;
    let data = file.slice(at..);
    let wanted = tensor::element_count(&dims).and_then(|n| dtype.bytes_for(n));
    if wanted != Some(data.len()) {
        let message = format!("the header promises {dims:?} {dtype}, but {} bytes of data follow", data.len());
        return Err(Error::user("E0302", message));
    }
    let data = sardonyx_base::packed::normalise(dtype, data);
    Tensor::new(dtype, dims, data)
}

/// Returns the text of the header, and the offset of the data in bytes.
fn split_header(file: &[u8]) -> Result<(&str, usize)> {
    let broken = |what: &str| Error::user("E0302", format!("not a .npy file: {what}"));
    let version = file.strip_prefix(MAGIC).and_then(|rest| rest.first()).ok_or_else(|| broken("it has no magic"))?;
    let (len, at): (usize, usize) = match (version, file.get(8..12)) {
        (1, Some(b)) => (u16::from_le_bytes([b[0], b[1]]) as usize, 10),
        (2 | 3, Some(b)) => (u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize, 12),
        (1..=3, None) => return Err(broken("it ends in the header")),
        (v, _) => return Err(broken(&format!("version {v} is not 1, 2 or 3"))),
    };
    let end = at.saturating_add(len);
    let header = file.get(at..end).ok_or_else(|| broken("it ends in the header"))?;
    Ok((std::str::from_utf8(header).map_err(|_| broken("the header is not text"))?, end))
}

/// Parses a header such as `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
fn parse_header(header: &str) -> Result<(DType, Vec<usize>)> {
    let broken = |what: String| Error::user("E0302", format!("the .npy header is malformed: {what}"));
    let field = |key: &str| {
        let quoted = [format!("'{key}':"), format!("\"{key}\":")];
        let at = quoted.iter().find_map(|q| header.find(q.as_str()).map(|at| at + q.len()));
        at.map(|at| header[at..].trim_start()).ok_or_else(|| broken(format!("it lacks `{key}`")))
    };
    let descr = field("descr")?;
    let descr = descr.split(['\'', '"']).nth(1).filter(|_| descr.starts_with(['\'', '"']));
    let descr = descr.ok_or_else(|| broken("structured types are not supported".into()))?;
    let same = |numpy: &str| descr == numpy || (numpy.starts_with('|') && descr.strip_prefix('<') == numpy.get(1..));
    let dtype = TYPES.iter().find(|(numpy, _)| same(numpy)).map(|(_, dtype)| *dtype).ok_or_else(|| {
        let help = "little-endian floats, integers, bools and complex numbers are read; convert with numpy's `astype`";
        Error::user("E0107", format!("the numpy type `{descr}` is not supported")).help(help)
    })?;
    if !field("fortran_order")?.starts_with("False") {
        let help = "save it in C order: `numpy.ascontiguousarray`";
        return Err(Error::user("E0302", "the array is stored in Fortran order").help(help));
    }
    let shape = field("shape")?;
    let inner = shape.strip_prefix('(').and_then(|s| s.split_once(')')).map(|(inner, _)| inner);
    let inner = inner.ok_or_else(|| broken("`shape` is not a tuple".into()))?;
    let numbers = inner.split(',').map(str::trim).filter(|s| !s.is_empty());
    let dims = numbers.map(|s| s.parse::<usize>().map_err(|_| broken(format!("`{s}` is not a dimension"))));
    Ok((dtype, dims.collect::<Result<_>>()?))
}

/// Returns everything before the data, padded so that the data begins at a multiple of 64 bytes; `None` if numpy lacks
/// the type.
fn header(dtype: DType, dims: &[usize]) -> Option<Vec<u8>> {
    let (numpy, _) = TYPES.iter().find(|(_, d)| *d == dtype)?;
    let shape: String = dims.iter().map(|d| format!("{d}, ")).collect();
    let shape = if dims.len() == 1 { shape.trim_end() } else { shape.trim_end_matches(", ") };
    let dict = format!("{{'descr': '{numpy}', 'fortran_order': False, 'shape': ({shape}), }}");
    // Version 1 stores the length in 16 bits, which suffices unless there are very many dimensions; else version 2.
    let lead = if dict.len() < 60_000 { 10 } else { 12 };
    let total = (lead + dict.len() + 1).next_multiple_of(64);
    let mut out = MAGIC.to_vec();
    match lead {
        10 => out.extend([1, 0].into_iter().chain(((total - lead) as u16).to_le_bytes())),
        _ => out.extend([2, 0].into_iter().chain(((total - lead) as u32).to_le_bytes())),
    }
    out.extend(dict.as_bytes());
    out.resize(total - 1, b' ');
    out.push(b'\n');
    Some(out)
}

/// Writes a `.npy` file atomically. Types that numpy lacks are widened without loss: bf16 and the 8- and 4-bit floats
/// to f32, 4- and 2-bit integers to 8 bits.
pub fn save_npy(path: impl AsRef<Path>, tensor: &Tensor) -> Result<()> {
    let path = path.as_ref();
    let tensor = widen(tensor);
    let header = header(tensor.dtype(), tensor.dims())
        .ok_or_else(|| Error::user("E0107", format!("numpy has no element type for {}", tensor.dtype())))?;
    let mut file = AtomicFile::create(path)?;
    let mut write = |bytes: &[u8]| file.write_all(bytes).map_err(|e| Error::io(path, "write", &e));
    write(&header)?;
    write(tensor.bytes())?;
    file.commit()
}

/// Reads all arrays of a `.npz` file, in the file's order. Deflated entries are inflated; entries that are not `.npy`
/// files are skipped.
pub fn read_npz(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>> {
    let path = path.as_ref();
    let named = |e: Box<Error>| e.file(path.display().to_string());
    let file = super::read_file(path)?;
    let broken = |e: zip::result::ZipError| named(Error::user("E0302", format!("not a .npz file: {e}")));
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(file)).map_err(broken)?;
    let mut out = Vec::new();
    for i in 0..archive.len() {
        let mut entry = archive.by_index(i).map_err(broken)?;
        let name = entry.name().map_err(broken)?.into_owned();
        let Some(array) = name.strip_suffix(".npy") else { continue };
        let tensor = read_entry(&mut entry).and_then(decode).map_err(|e| named(e.node(format!("array `{array}`"))))?;
        out.push((array.to_string(), tensor));
    }
    Ok(out)
}

/// Reads at most one byte more than the array's own header announces, so a decompression bomb ends early; memory grows
/// with the bytes that were read, not with the announced size.
fn read_entry(entry: &mut impl Read) -> Result<Bytes> {
    let broken = |e: std::io::Error| Error::user("E0302", format!("cannot read the array: {e}"));
    let mut out = Vec::new();
    entry.take(128).read_to_end(&mut out).map_err(broken)?;
    let lead = match out.get(6..12) {
        Some([1, _, a, b, ..]) => 10 + u16::from_le_bytes([*a, *b]) as u64,
        Some([2 | 3, _, a, b, c, d]) => 12 + u32::from_le_bytes([*a, *b, *c, *d]) as u64,
        Some(_) | None => return Err(Error::user("E0302", "not a .npy file: it has no magic")),
    };
    let more = |out: &mut Vec<u8>, total: u64, entry: &mut dyn Read| {
        let missing = total.saturating_sub(out.len() as u64);
        entry.take(missing).read_to_end(out).map(drop).map_err(broken)
    };
    more(&mut out, lead, entry)?;
    let (header, at) = split_header(&out)?;
    let (dtype, dims) = parse_header(header)?;
    let bytes = tensor::element_count(&dims).and_then(|n| dtype.bytes_for(n));
    let bytes = bytes.ok_or_else(|| Error::user("E0202", format!("the size of {dims:?} {dtype} overflows")))?;
    // One byte more than announced is read, to detect data left over.
    let total = (at as u64).saturating_add(bytes as u64);
    more(&mut out, total.saturating_add(1), entry)?;
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(t: &Tensor) -> Vec<u8> {
        let mut bytes = header(t.dtype(), t.dims()).unwrap();
        bytes.extend_from_slice(t.bytes());
        bytes
    }

    #[test]
    fn all_numpy_types_and_ranks_survive_the_round_trip() {
        for &(_, dtype) in TYPES {
            for dims in [vec![], vec![3], vec![2, 0], vec![2, 3, 4]] {
                let t = Tensor::zeros(dtype, dims.clone());
                let file = file_of(&t);
                assert_eq!((file.len() - t.bytes().len()) % 64, 0);
                let back = decode(file.into()).unwrap();
                assert_eq!((back.dtype(), back.dims()), (dtype, &dims[..]));
            }
        }
    }

    #[test]
    fn numpys_own_bytes_are_read() {
        let mut file = b"\x93NUMPY\x01\x00\x76\x00{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }".to_vec();
        file.resize(127, b' ');
        file.push(b'\n');
        file.extend([1, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(decode(file.into()).unwrap().to_vec::<i32>().unwrap(), [1, -1]);
    }

    #[test]
    fn hostile_headers_are_refused() {
        let with = |dict: &str, data: usize| {
            let mut file = MAGIC.to_vec();
            file.extend([1, 0]);
            file.extend((dict.len() as u16).to_le_bytes());
            file.extend(dict.as_bytes());
            file.resize(file.len() + data, 0);
            decode(file.into()).unwrap_err()
        };
        let dict = |descr: &str, order: &str, shape: &str| {
            format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}")
        };
        assert_eq!(with(&dict("'<f4'", "False", "(2,)"), 7).code, "E0302");
        assert_eq!(with(&dict("'<f4'", "False", "(-2,)"), 8).code, "E0302");
        assert_eq!(with(&dict("'<f4'", "False", "(18446744073709551615, 4)"), 8).code, "E0302");
        assert_eq!(with(&dict("'>f4'", "False", "(2,)"), 8).code, "E0107");
        assert_eq!(with(&dict("'|O'", "False", "(2,)"), 8).code, "E0107");
        assert_eq!(with(&dict("[('a', '<f4')]", "False", "(2,)"), 8).code, "E0302");
        assert!(with(&dict("'<f4'", "True", "(2,)"), 8).help.unwrap().contains("ascontiguousarray"));
        let good = file_of(&Tensor::zeros(DType::F32, vec![2]));
        for n in 0..good.len() {
            assert!(decode(Bytes::copy_from_slice(&good[..n])).is_err(), "cut at {n}");
        }
    }

    #[test]
    fn types_without_a_numpy_name_are_widened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        save_npy(&path, &Tensor::from_vec(vec![2], vec![half::bf16::ONE, half::bf16::from_f32(-2.5)])).unwrap();
        let back = crate::tensor_io::load_tensor(&path).unwrap();
        assert_eq!(back.to_vec::<f32>().unwrap(), [1.0, -2.5]);
    }

    #[test]
    fn npz_is_read_stored_and_deflated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npz");
        let (a, b) = (Tensor::from_vec(vec![2], vec![1i64, 2]), Tensor::zeros(DType::F32, vec![4096]));
        let mut zip = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
        let options = zip::write::SimpleFileOptions::default();
        for (name, t, method) in
            [("a.npy", &a, zip::CompressionMethod::Stored), ("b.npy", &b, zip::CompressionMethod::Deflated)]
        {
            zip.start_file(name, options.compression_method(method)).unwrap();
            zip.write_all(&file_of(t)).unwrap();
        }
        zip.finish().unwrap();
        let all = read_npz(&path).unwrap();
        assert_eq!(all.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(all[0].1.bytes(), a.bytes());
        assert_eq!(all[1].1.bytes(), b.bytes());
        let whole = std::fs::read(&path).unwrap();
        for n in (0..whole.len()).step_by(7) {
            std::fs::write(&path, &whole[..n]).unwrap();
            assert_eq!(read_npz(&path).unwrap_err().code, "E0302");
        }
    }
}
