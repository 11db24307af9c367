//! bytes  =>  tensors in files, and operands of the runtime's own operations

use super::refused;
use bytes::Bytes;
use sardonyx_base::host::{Budget, HostOp, Limits};
use sardonyx_base::{DType, Error, Kind, Result, Tensor};
use sardonyx_format::tensor_io::{TensorProto, npy, read_value};
use std::cell::Cell;

/// The first byte selects the format.
pub fn tensors(bytes: &[u8]) {
    let Some((format, rest)) = bytes.split_first() else { return };
    let file = Bytes::copy_from_slice(rest);
    let read = match format % 4 {
        0 => TensorProto::from_bytes(file).and_then(|proto| proto.to_tensor()),
        1 => npy::decode(file),
        2 => read_value(file, &Kind::Sequence(Box::new(Kind::Optional(Box::new(Kind::Tensor))))).map(|v| v.1),
        _ => read_value(file, &Kind::Map(Box::new(Kind::Tensor))).map(|v| v.1),
    };
    match read {
        Err(e) => refused(&e),
        // What was read can be written and read again, but for the bits of a NaN in an imprecise type.
        Ok(tensor) => {
            let again = TensorProto::from_tensor("t", &tensor).to_tensor();
            assert!(tensor.dtype().is_opaque() || again.is_ok_and(|again| again == tensor), "{tensor:?}");
        }
    }
}

pub fn tensor_seeds() -> Vec<Vec<u8>> {
    let tensor = Tensor::from_vec(vec![2, 3], vec![0.5f32, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let strings = Tensor::from_strings(vec![2], &["a", "bc"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("t.npy");
    sardonyx_format::tensor_io::save_npy(&path, &tensor).expect("it is written");
    let npy = std::fs::read(path).expect("it was written");
    let proto = |tensor: &Tensor| TensorProto::from_tensor("t", tensor).to_bytes();
    let strings = proto(&strings);
    [(0, proto(&tensor)), (0, strings), (1, npy), (2, proto(&tensor)), (3, proto(&tensor))]
        .map(|(format, bytes)| [vec![format], bytes].concat())
        .into()
}

/// Stops an operation that has used much.
struct Little {
    checks: Cell<usize>,
}

const BYTES_MAX: usize = 64 << 20;
const CHECKS_MAX: usize = 2_000;

impl Limits for Little {
    fn go_on(&self) -> Result<()> {
        self.checks.set(self.checks.get() + 1);
        if self.checks.get() > CHECKS_MAX { Err(Error::user("E0305", "too late")) } else { Ok(()) }
    }

    fn allow(&self, bytes: usize) -> Result<()> {
        if bytes > BYTES_MAX { Err(Error::user("E0304", "too much")) } else { Ok(()) }
    }
}

/// The first line is the operation; the rest makes its operands: for each a type, a rank, dimensions, and elements.
pub fn host(bytes: &[u8]) {
    let end = bytes.iter().position(|b| *b == b'\n').unwrap_or(bytes.len());
    let Some(op) = std::str::from_utf8(&bytes[..end]).ok().and_then(HostOp::parse) else { return };
    assert_eq!(HostOp::parse(&op.to_string()).as_ref(), Some(&op));
    let mut rest = bytes[end..].iter().skip(1).copied();
    let mut next = || rest.next().unwrap_or(0);
    let n_args = usize::from(next() % 6);
    let mut args = vec![];
    for _ in 0..n_args {
        match operand(&mut next) {
            Ok(tensor) => args.push(tensor),
            Err(e) => return refused(&e),
        }
    }
    let limits = Little { checks: Cell::new(0) };
    // An operation that calls bodies or other ranks has none here, which only a defect could give it.
    if matches!(op, HostOp::If { .. } | HostOp::Loop { .. }) || op.exchange().is_some() {
        return;
    }
    if let Err(e) = op.run_within(&args, &Budget::new(&limits)) {
        // The compiler gives each operation its number and types of operands; others are a defect, and an error value.
        let _ = e.to_string();
    }
}

fn operand(next: &mut impl FnMut() -> u8) -> Result<Tensor> {
    let all = [DType::F32, DType::I64, DType::Bool, DType::String, DType::F16, DType::U8, DType::F64, DType::I32];
    let dtype = all[usize::from(next() % 8)];
    let dims: Vec<usize> = (0..next() % 5).map(|_| usize::from(next() % 9)).collect();
    let n: usize = dims.iter().product();
    if dtype == DType::String {
        let text = |next: &mut dyn FnMut() -> u8| {
            let length = next() % 6;
            (0..length).map(|_| char::from(next() % 128)).collect::<String>()
        };
        let strings: Vec<String> = (0..n).map(|_| text(next)).collect();
        return Ok(Tensor::from_strings(dims, &strings));
    }
    let mut data = vec![];
    for _ in 0..n {
        match dtype {
            // Small whole numbers are the likely indices.
            DType::I64 => {
                let b = next();
                let value = if b > 250 { i64::MIN + i64::from(next()) } else { i64::from(b as i8) };
                data.extend(value.to_le_bytes());
            }
            DType::Bool => data.push(next() & 1),
            _ => data.extend((0..dtype.bytes()).map(|_| next())),
        }
    }
    Tensor::new(dtype, dims, data.into())
}

pub fn host_seeds() -> Vec<Vec<u8>> {
    let ops = [
        "NonZero",
        "Unique sorted=1",
        "Unique axis=0 sorted=0",
        "NonMaxSuppression center=0",
        "Order descending=0",
        "Scatter fn=add",
        "Fourier inverse=0",
        "SequenceConstruct",
        "SequenceAt",
        "SequenceInsert",
        "SequenceErase",
        "SequenceLength",
        "ZipMap",
        "DictVectorizer",
        "SplitToSequence axis=0 keep=1",
        "ConcatFromSequence axis=0 new=0",
        "Optional",
        "OptionalHasElement",
        "OptionalGetElement",
        "StringConcat",
        "StringEqual",
        "RegexFullMatch",
        "StringFromNumbers",
        "LookUp",
        "Pick",
        "CouplePairs",
        "ImageDecoder pixels=0",
    ];
    let operands: &[u8] = &[
        2, 0, 2, 2, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 1, 1, 4,
        0, 1, 2, 1,
    ];
    ops.map(|op| [op.as_bytes(), b"\n", operands].concat()).into()
}
