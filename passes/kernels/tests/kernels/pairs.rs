//! Contractions of bf16 with packed pairs and f32 accumulators: with the bf16 dot-product instruction if this CPU has
//! it, and with conversion to f32

use crate::build::{Builder, window};
use crate::check;
use crate::contract::case;
use crate::harness::{Case, Library, run};
use crate::tiles::executed;
use sardonyx_base::{DType, Encoding, Tensor};
use sardonyx_dialects::flow::kernel::{Class, Kernel};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_kernels::Words;
use sardonyx_kernels::codegen::build_shared_object;
use sardonyx_kernels::{levels_of, lower};

/// Builds Σ x[m, k] · w[k, n] for each of `sums` matrices w; returns the builder and the statements of the f32 sums.
fn products(m: &str, n: &str, k: &str, sums: usize) -> (Builder, Vec<usize>) {
    let mut b = Builder::new(&[m, n], &[k]);
    let x = b.load(DType::BF16, &[m, k], &["%0", "%2"]);
    let x = b.convert(x, DType::F32);
    let found = (0..sums).map(|_| {
        let w = b.load(DType::BF16, &[k, n], &["%2", "%1"]);
        b.0.reads.last_mut().unwrap().encoding = Encoding::Panels { width: 32, depth: 2 };
        let w = b.convert(w, DType::F32);
        b.dot(x, w)
    });
    let found = found.collect();
    (b, found)
}

fn plain(m: &str, n: &str, k: &str) -> Kernel {
    let (mut b, sums) = products(m, n, k, 1);
    b.store(sums[0], &[m, n], &["%0", "%1"]);
    b.0
}

/// gelu(x · w + bias) + residual
fn full(m: &str, n: &str, k: &str) -> Kernel {
    let (mut b, sums) = products(m, n, k, 1);
    let bias = b.load(DType::F32, &[n], &["%1"]);
    let y = b.apply(ScalarFn::Add, &[sums[0], bias]);
    let y = b.gelu(y);
    let residual = b.load(DType::F32, &[m, n], &["%0", "%1"]);
    let z = b.apply(ScalarFn::Add, &[y, residual]);
    b.store(z, &[m, n], &["%0", "%1"]);
    b.0
}

fn blocked(name: &str, kernel: Kernel, m: i64, k: i64) -> Case {
    assert_eq!(kernel.class(), Class::Contract, "{name}");
    assert_eq!(lower(&kernel).unwrap().words(), Some(Words::Pairs), "{name}");
    case(name, kernel, &[("m", m)], k)
}

#[test]
fn sizes_around_the_blocks() {
    let mut cases = vec![];
    for m in [0i64, 1, 2, 3, 5, 12, 13, 16, 47, 48, 49, 97] {
        for (n, k) in [(2i64, 8i64), (31, 9), (32, 1), (33, 2), (64, 7), (70, 20), (130, 3)] {
            if m > 13 && n != 33 && n != 70 {
                continue;
            }
            let name = format!("{m} by {n} by {k}");
            cases.push(blocked(&name, plain("m", &n.to_string(), &k.to_string()), m, k));
            let constant = plain(&m.to_string(), &n.to_string(), &k.to_string());
            cases.push(blocked(&format!("constant {name}"), constant, m, k));
        }
    }
    check(cases);
}

/// Reductions over long K are computed in parts of a fixed length; the last part may end with half a pair.
#[test]
fn long_sums() {
    let of = |(m, k): (i64, i64)| blocked(&format!("{m} by {k}"), plain("m", "40", &k.to_string()), m, k);
    check([(1, 256), (2, 257), (13, 512), (5, 513), (50, 800), (37, 100), (3, 1023)].into_iter().map(of).collect());
}

#[test]
fn epilogues_and_several_sums() {
    let mut cases = vec![];
    for m in [1i64, 2, 13, 50] {
        for n in ["32", "70"] {
            cases.push(blocked(&format!("full {m} by {n}"), full("m", n, "24"), m, 24));
            let (mut b, sums) = products("m", n, "25", 2);
            let gate = b.silu(sums[0]);
            let y = b.apply(ScalarFn::Mul, &[gate, sums[1]]);
            b.store(y, &["m", n], &["%0", "%1"]);
            cases.push(blocked(&format!("gated {m} by {n}"), b.0, m, 25));
            // The result is rounded to bf16, as operand A of a following product; the tolerance is one unit in the last
            // of 8 bits.
            let (mut b, sums) = products("m", n, "24", 1);
            let narrow = b.convert(sums[0], DType::BF16);
            b.store(narrow, &["m", n], &["%0", "%1"]);
            cases.push(blocked(&format!("narrow {m} by {n}"), b.0, m, 24).within(1e-5, 8e-3));
        }
    }
    check(cases);
}

/// Operand A is a range of columns of a wider matrix; the range begins at an odd column.
#[test]
fn rows_that_begin_anywhere() {
    let mut b = Builder::new(&["m", "40"], &["15"]);
    let x = b.load(DType::BF16, &["m", "37"], &["%0", "%2 + 3"]);
    let x = b.convert(x, DType::F32);
    let w = b.load(DType::BF16, &["15", "40"], &["%2", "%1"]);
    b.0.reads[1].encoding = Encoding::Panels { width: 32, depth: 2 };
    let w = b.convert(w, DType::F32);
    let sum = b.dot(x, w);
    b.store(sum, &["m", "40"], &["%0", "%1"]);
    check([1, 14, 50].into_iter().map(|m| blocked(&format!("part {m}"), b.0.clone(), m, 15)).collect());
}

/// The window of a convolution with channels last, over rows of few and of many pixels.
#[test]
fn windows() {
    let of = |(size, channels): ([i64; 2], i64)| {
        let kernel = window(Words::Pairs, size, channels);
        blocked(&format!("{size:?}, {channels} channels"), kernel, 1, 9 * channels)
    };
    check([([5, 9], 6), ([7, 7], 64), ([3, 28], 48), ([2, 56], 10), ([1, 100], 32)].into_iter().map(of).collect());
}

/// The element after the end of a row is NaN: half a pair must read one element only.
#[test]
fn nothing_behind_a_row_is_read() {
    let kernel = plain("2", "32", "3");
    let nan = half::bf16::NAN;
    let one = half::bf16::ONE;
    let rows = Tensor::from_vec(vec![2, 3], vec![one, one, one, nan, one, one]);
    let case = blocked("nan in the next row", kernel, 2, 3).read(0, rows);
    check(vec![case]);
}

/// The first rows have the same bits whether a call has only them or 50 rows, in blocks of every size.
#[test]
fn a_row_does_not_depend_on_the_others() {
    for (k, n) in [(19i64, 70usize), (24, 96)] {
        let whole = blocked("rows", full("m", &n.to_string(), &k.to_string()), 50, k);
        let lowered = lower(&whole.kernel).unwrap();
        let library = Library::new(&build_shared_object(&[("k".to_string(), &lowered)]).unwrap());
        for level in executed(&levels_of([&lowered])) {
            let f = library.kernel("k", level);
            let (expected, _) = run(f, &lowered, &whole, i64::MAX / 2);
            for m in (1..=17).chain([47, 48, 49]) {
                let cut = |(i, t): (usize, &Tensor)| match i {
                    0 | 3 => {
                        let bytes = t.bytes().slice(..m * t.dims()[1] * t.dtype().bytes());
                        Tensor::new(t.dtype(), vec![m, t.dims()[1]], bytes).unwrap()
                    }
                    _ => t.clone(),
                };
                let reads = whole.reads.iter().enumerate().map(cut).collect();
                let (name, kernel) = ("some".to_string(), whole.kernel.clone());
                let some = Case { name, kernel, symbols: vec![("m", m as i64)], reads, absolute: 0.0, relative: 0.0 };
                let (got, _) = run(f, &lowered, &some, i64::MAX / 2);
                assert!(got[0][..] == expected[0][..m * n * 4], "{k} {n} {}: {m} rows", level.name());
            }
        }
    }
}

/// If operand B is not packed in panels of pairs, a sum of products of widened operands is an ordinary reduction with
/// the same result.
#[test]
fn widened_factors_elsewhere_are_no_contraction() {
    let (mut b, sums) = products("m", "40", "9", 1);
    b.0.reads[1].encoding = Encoding::Plain;
    b.store(sums[0], &["m", "40"], &["%0", "%1"]);
    assert_eq!(b.0.class(), Class::Normalise);
    check(vec![case("row-major", b.0, &[("m", 13)], 9)]);
}
