//! int64 values  =>  `.npy`;  `.npy`  =>  float32 values: the two conversions that the demo needs

use std::io::{self, Write};
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY";

/// Writes a C-order int64 array, in version 1 of the format.
pub fn write_i64(path: &Path, dims: &[usize], values: &[i64]) -> io::Result<()> {
    assert_eq!(dims.iter().product::<usize>(), values.len(), "dims {dims:?}");
    let shape: String = dims.iter().map(|d| format!("{d}, ")).collect();
    let mut header = format!("{{'descr': '<i8', 'fortran_order': False, 'shape': ({shape}), }}");
    // Magic, version and header length take 10 bytes; the data begin at an offset that is a multiple of 64.
    header += &" ".repeat(63 - (10 + header.len()) % 64);
    header.push('\n');
    let mut file = io::BufWriter::new(std::fs::File::create(path)?);
    file.write_all(MAGIC)?;
    file.write_all(&[1, 0])?;
    file.write_all(&(header.len() as u16).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    values.iter().try_for_each(|v| file.write_all(&v.to_le_bytes()))?;
    file.flush()
}

/// Reads a C-order float32 array. Returns its dimensions and values.
pub fn read_f32(path: &Path) -> io::Result<(Vec<usize>, Vec<f32>)> {
    parse_f32(&std::fs::read(path)?)
        .ok_or_else(|| io::Error::other(format!("{} is not a .npy file of C-order float32", path.display())))
}

fn parse_f32(bytes: &[u8]) -> Option<(Vec<usize>, Vec<f32>)> {
    let version = *bytes.strip_prefix(MAGIC)?.first()?;
    let (len, at) = match version {
        1 => (usize::from(u16::from_le_bytes(bytes.get(8..10)?.try_into().ok()?)), 10),
        2 | 3 => (u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?) as usize, 12),
        _ => return None,
    };
    let header = std::str::from_utf8(bytes.get(at..)?.get(..len)?).ok()?;
    if !header.contains("'descr': '<f4'") || !header.contains("'fortran_order': False") {
        return None;
    }
    let shape = header.split_once("'shape': (")?.1.split_once(')')?.0;
    let dims = shape.split(',').map(str::trim).filter(|d| !d.is_empty());
    let dims: Vec<usize> = dims.map(|d| d.parse().ok()).collect::<Option<_>>()?;
    let n = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
    let data = &bytes[at + len..];
    (n.checked_mul(4)? == data.len()).then(|| (dims, floats(data)))
}

fn floats(data: &[u8]) -> Vec<f32> {
    data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_i64_array_is_laid_out_as_numpy_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        write_i64(&path, &[2, 1], &[1, -1]).unwrap();
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(&bytes[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert!(bytes[10..].starts_with(b"{'descr': '<i8', 'fortran_order': False, 'shape': (2, 1, ), }"));
        assert_eq!((bytes.len(), bytes[127]), (144, b'\n'));
        assert_eq!(&bytes[128..], [[1, 0, 0, 0, 0, 0, 0, 0], [255; 8]].concat());
    }

    #[test]
    fn f32_arrays_are_read_and_others_refused() {
        let file = |descr: &str, shape: &str, data: &[u8]| {
            let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
            [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
        };
        let data = [1f32.to_le_bytes(), (-0.5f32).to_le_bytes()].concat();
        assert_eq!(parse_f32(&file("<f4", "(1, 2)", &data)), Some((vec![1, 2], vec![1.0, -0.5])));
        assert_eq!(parse_f32(&file("<f4", "(2,)", &data)), Some((vec![2], vec![1.0, -0.5])));
        assert_eq!(parse_f32(&file("<f8", "(1,)", &data)), None);
        assert_eq!(parse_f32(&file("<f4", "(3,)", &data)), None);
        assert_eq!(parse_f32(&file("<f4", "(18446744073709551615, 8)", &data)), None);
        assert_eq!(parse_f32(b"\x93NUMPY\x01\x00\xff\xff{"), None);
    }
}
