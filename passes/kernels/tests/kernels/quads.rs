//! Contractions of bytes with packed groups of four and i32 accumulators: with the byte dot-product instruction if this
//! CPU has it, and with 16-bit products

use crate::build::{Builder, byte_products as products, panels_of_bytes as panels, window};
use crate::check;
use crate::harness::Case;
use sardonyx_base::{DType, Tensor};
use sardonyx_dialects::flow::kernel::{Class, Kernel};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_kernels::{Target, Words, lower};

/// The types of operands A and B that CPUs support.
const TYPES: [DType; 2] = [DType::U8, DType::I8];

fn plain(m: &str, n: &str, k: &str) -> Kernel {
    let (mut b, sums) = products(TYPES, m, n, k, 1);
    b.store(sums[0], &[m, n], &["%0", "%1"]);
    b.0
}

/// A product as in quantised models: its epilogue subtracts the zero point times the column sums, scales, and rounds to
/// a byte.
fn quantised(m: &str, n: &str, k: &str) -> Kernel {
    let (mut b, sums) = products(TYPES, m, n, k, 1);
    let (columns, zero) = (b.load(DType::I32, &[n], &["%1"]), b.constant(7.0, DType::I32));
    let off = b.apply(ScalarFn::Mul, &[columns, zero]);
    let y = b.apply(ScalarFn::Sub, &[sums[0], off]);
    let (y, scale) = (b.convert(y, DType::F32), b.constant(1.0 / 64.0, DType::F32));
    let y = b.apply(ScalarFn::Mul, &[y, scale]);
    let y = b.apply(ScalarFn::Round, &[y]);
    let (low, high) = (b.constant(0.0, DType::F32), b.constant(255.0, DType::F32));
    let y = b.apply(ScalarFn::Max, &[y, low]);
    let y = b.apply(ScalarFn::Min, &[y, high]);
    let y = b.convert(y, DType::U8);
    b.store(y, &[m, n], &["%0", "%1"]);
    b.0
}

fn blocked(name: &str, kernel: Kernel, m: i64) -> Case {
    assert_eq!(lower(&kernel).unwrap().words(), Some(Words::Quads), "{name}");
    all_bytes(name, kernel, m)
}

/// Returns a case whose operands run through all byte values, beginning with 255 (u8) and -128 (i8).
fn all_bytes(name: &str, kernel: Kernel, m: i64) -> Case {
    assert_eq!(kernel.class(), Class::Contract, "{name}");
    let mut case = Case::new(name, kernel, &[("m", m)]);
    for read in 0..case.reads.len() {
        let dims = case.reads[read].dims().to_vec();
        let n: usize = dims.iter().product();
        let byte = |i: usize| (i * 89 + i / 7) as u8;
        case = match case.reads[read].dtype() {
            DType::U8 => case.read(read, Tensor::from_vec(dims, (0..n).map(|i| !byte(i)).collect())),
            DType::I8 => case.read(read, Tensor::from_vec(dims, (0..n).map(|i| byte(i) as i8 ^ -128).collect())),
            _ => case,
        };
    }
    case
}

#[test]
fn sizes_around_the_blocks() {
    let mut cases = vec![];
    for m in [0i64, 1, 2, 3, 5, 8, 12, 13, 16, 47, 48, 49, 97] {
        for (n, k) in [(2i64, 8i64), (31, 9), (32, 1), (33, 2), (64, 7), (70, 20), (130, 3)] {
            if m > 13 && n != 33 && n != 70 {
                continue;
            }
            let name = format!("{m} by {n} by {k}");
            cases.push(blocked(&name, plain("m", &n.to_string(), &k.to_string()), m));
            let constant = plain(&m.to_string(), &n.to_string(), &k.to_string());
            cases.push(blocked(&format!("constant {name}"), constant, m));
        }
    }
    check(cases);
}

#[test]
fn epilogues_and_several_sums() {
    let mut cases = vec![];
    for m in [1i64, 2, 13, 50] {
        for n in ["24", "32", "70"] {
            cases.push(blocked(&format!("quantised {m} by {n}"), quantised("m", n, "515"), m));
            let (mut b, sums) = products(TYPES, "m", n, "26", 2);
            let y = b.apply(ScalarFn::Sub, &[sums[0], sums[1]]);
            b.store(y, &["m", n], &["%0", "%1"]);
            cases.push(blocked(&format!("two sums {m} by {n}"), b.0, m));
        }
    }
    check(cases);
}

/// The window of a convolution with channels last: words of four channels at each window offset.
#[test]
fn windows() {
    let of = |size: [i64; 2], channels: i64| {
        let kernel = window(Words::Quads, size, channels);
        blocked(&format!("{size:?}, {channels} channels"), kernel, 1)
    };
    check(vec![of([5, 9], 4), of([5, 9], 12), of([5, 9], 20), of([3, 17], 80), of([2, 56], 64)]);
}

/// No memory follows the last byte of the last row.
#[test]
fn nothing_behind_a_row_is_read() {
    let mut b = Builder::new(&["m", "40"], &["15"]);
    let x = b.load(DType::U8, &["m", "37"], &["%0", "%2 + 22"]);
    let x = b.convert(x, DType::I32);
    let w = panels(&mut b, DType::I8, &["15", "40"], &["%2", "%1"]);
    let sum = b.dot(x, w);
    b.store(sum, &["m", "40"], &["%0", "%1"]);
    check([1, 14, 50].into_iter().map(|m| blocked(&format!("part {m}"), b.0.clone(), m)).collect());
}

/// GPUs multiply signed and unsigned bytes in any combination on tensor cores.
#[test]
fn every_pair_of_signs() {
    let gpu = Target::from_ptx("sm_80").unwrap();
    let mut cases = vec![];
    for types in [TYPES, [DType::I8, DType::I8], [DType::I8, DType::U8], [DType::U8, DType::U8]] {
        for (m, n, k) in [(3i64, "40", "33"), (37, "70", "64"), (130, "33", "67")] {
            let (mut b, sums) = products(types, "m", n, k, 1);
            b.store(sums[0], &["m", n], &["%0", "%1"]);
            assert!(lower(&b.0).unwrap().for_gpu(gpu).plan.is_on_tensor_cores(), "{types:?}");
            cases.push(all_bytes(&format!("{types:?} {m} by {n} by {k}"), b.0, m));
        }
    }
    check(cases);
}
