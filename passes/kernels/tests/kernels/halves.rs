//! Contractions of operands stored as f16, multiplied and accumulated in f32: B is packed in panels, contiguous in
//! rows, or copied because its columns are contiguous

use crate::build::Builder;
use crate::check;
use crate::contract::case;
use crate::harness::Case;
use sardonyx_base::{DType, Encoding};
use sardonyx_dialects::flow::kernel::{Class, Kernel};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_kernels::{Words, lower};

/// Layout of operand B.
#[derive(Clone, Copy, Debug)]
enum Right {
    Panels,
    Rows,
    Columns,
}

/// Σ x[m, k] · w[k, n], with x of type `left` and w of f16.
fn product(left: DType, right: Right, [m, n, k]: [&str; 3]) -> (Builder, usize) {
    let mut b = Builder::new(&[m, n], &[k]);
    let mut x = b.load(left, &[m, k], &["%0", "%2"]);
    if left != DType::F32 {
        x = b.convert(x, DType::F32);
    }
    let w = match right {
        Right::Panels | Right::Rows => b.load(DType::F16, &[k, n], &["%2", "%1"]),
        Right::Columns => b.load(DType::F16, &[n, k], &["%1", "%2"]),
    };
    if let Right::Panels = right {
        b.0.reads[1].encoding = Encoding::Panels { width: 32, depth: 1 };
    }
    let w = b.convert(w, DType::F32);
    let sum = b.dot(x, w);
    (b, sum)
}

fn plain(left: DType, right: Right, sizes: [&str; 3]) -> Kernel {
    let (mut b, sum) = product(left, right, sizes);
    b.store(sum, &sizes[..2], &["%0", "%1"]);
    b.0
}

fn blocked(name: &str, kernel: Kernel, m: i64, k: i64) -> Case {
    assert_eq!(kernel.class(), Class::Contract, "{name}");
    assert_eq!(lower(&kernel).unwrap().words(), Some(Words::Singles), "{name}");
    case(name, kernel, &[("m", m)], k)
}

#[test]
fn sizes_around_the_blocks() {
    let mut cases = vec![];
    for (left, right) in [
        (DType::F32, Right::Panels),
        (DType::F16, Right::Panels),
        (DType::F32, Right::Rows),
        (DType::F16, Right::Columns),
    ] {
        for m in [0i64, 1, 2, 5, 13, 50] {
            for (n, k) in [(2i64, 8i64), (31, 9), (64, 17), (70, 20), (33, 300)] {
                let name = format!("{left} {right:?} {m} by {n} by {k}");
                let kernel = plain(left, right, ["m", &n.to_string(), &k.to_string()]);
                cases.push(blocked(&name, kernel, m, k));
            }
        }
    }
    check(cases);
}

/// The bias is f16, and the result is rounded to f16 and stored as f16 or f32.
#[test]
fn epilogues() {
    let mut cases = vec![];
    for (m, stored) in [(1i64, DType::F16), (13, DType::F16), (13, DType::F32), (50, DType::F32)] {
        let (mut b, sum) = product(DType::F32, Right::Panels, ["m", "70", "24"]);
        let bias = b.load(DType::F16, &["70"], &["%1"]);
        let bias = b.convert(bias, DType::F32);
        let y = b.apply(ScalarFn::Add, &[sum, bias]);
        let mut y = b.convert(y, DType::F16);
        if stored == DType::F32 {
            y = b.convert(y, DType::F32);
        }
        b.store(y, &["m", "70"], &["%0", "%1"]);
        // The tolerance is one unit in the last of 11 bits, since sums that differ slightly may round to neighbouring
        // f16 numbers.
        cases.push(blocked(&format!("{stored} {m}"), b.0, m, 24).within(1e-5, 1e-3));
    }
    check(cases);
}

/// An f16 image and f16 filters, convolved along a row; with filters over all channels, and with one filter per
/// channel.
#[test]
fn windows() {
    let mut cases = vec![];
    for diagonal in [false, true] {
        let inner: &[&str] = if diagonal { &["3"] } else { &["3", "20"] };
        let mut b = Builder::new(&["m", "40"], inner);
        let (x, w) = match diagonal {
            false => {
                let x = b.load(DType::F16, &["m + 2", "20"], &["%0 + %2", "%3"]);
                let w = b.load(DType::F16, &["60", "40"], &["20*%2 + %3", "%1"]);
                (x, w)
            }
            true => {
                let x = b.load(DType::F16, &["m + 2", "40"], &["%0 + %2", "%1"]);
                let w = b.load(DType::F16, &["3", "40"], &["%2", "%1"]);
                (x, w)
            }
        };
        if !diagonal {
            b.0.reads[1].encoding = Encoding::Panels { width: 32, depth: 1 };
        }
        let (x, w) = (b.convert(x, DType::F32), b.convert(w, DType::F32));
        let sum = b.dot(x, w);
        b.store(sum, &["m", "40"], &["%0", "%1"]);
        for m in [1, 13, 50] {
            cases.push(blocked(&format!("{diagonal} {m}"), b.0.clone(), m, 60));
        }
    }
    check(cases);
}
