//! Two products with a common operand: one kernel for x · g and x · u, as machine code and as PTX

use crate::build::{Builder, gated};
use crate::contract::{case, packed_case, rows_are_independent};
use crate::{check, harness, ptx, tiles};
use sardonyx_base::DType;
use sardonyx_dialects::flow::kernel::{Class, Kernel};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_kernels::{Target, lower, packable};

#[test]
fn sizes_around_the_blocks() {
    let mut cases = vec![];
    for m in [1i64, 2, 3, 5, 12, 13, 16, 17, 47, 48, 49, 97] {
        for n in [1i64, 7, 16, 31, 32, 33, 64, 70] {
            if m > 13 && n != 33 && n != 70 {
                continue;
            }
            let (ms, ns) = (m.to_string(), n.to_string());
            cases.push(case(&format!("{m}x{n}"), gated(&ms, &ns, "9"), &[], 9));
        }
    }
    for (m, n, k) in [(1, 1, 1), (0, 5, 5), (5, 0, 5), (5, 5, 0), (12, 32, 20), (29, 45, 17), (100, 97, 3)] {
        cases.push(case(&format!("{m}x{n}x{k}"), gated("m", "n", "k"), &[("m", m), ("n", n), ("k", k)], k));
    }
    check(cases);
}

#[test]
fn packed_factors() {
    let mut cases = vec![];
    for n in [32i64, 64, 70, 96, 130] {
        for m in [0i64, 1, 2, 3, 16, 17, 49, 50] {
            cases.push(packed_case(&format!("{m} by {n}"), gated("m", &n.to_string(), "24"), &[("m", m)], 24));
        }
    }
    harness::check_on(&cases, tiles::executed);
    // The tolerance is larger on GPUs: tensor cores truncate both sums, and the sums are multiplied with each other.
    let of_gpu: Vec<_> = cases.into_iter().map(|case| case.within(4e-6, 4e-6)).collect();
    ptx::check(&of_gpu);
}

/// Products of x with the two halves of one matrix: some exporters concatenate two weights.
fn halves(transposed: bool) -> Kernel {
    let mut b = Builder::new(&["m", "40"], &["20"]);
    let x = b.load(DType::F32, &["m", "20"], &["%0", "%2"]);
    let (shape, one, other) = match transposed {
        true => (["80", "20"], ["%1", "%2"], ["%1 + 40", "%2"]),
        false => (["20", "80"], ["%2", "%1"], ["%2", "%1 + 40"]),
    };
    let w = b.load(DType::F32, &shape, &one);
    let gate = b.dot(x, w);
    let w = b.again(1, &other);
    let up = b.dot(w, x);
    let up = b.apply(ScalarFn::Max, &[gate, up]);
    b.store(up, &["m", "40"], &["%0", "%1"]);
    b.0
}

#[test]
fn parts_of_one_operand() {
    let mut cases = vec![];
    for transposed in [false, true] {
        let kernel = halves(transposed);
        let packed = packable(&kernel, Target::cpu()).unwrap();
        assert_eq!(packed.kernel.reads.len(), 3, "each part has panels of its own");
        for m in [1, 13, 50] {
            let name = format!("{transposed} {m}");
            cases.push(case(&name, kernel.clone(), &[("m", m)], 20));
            cases.push(packed_case(&format!("packed {name}"), kernel.clone(), &[("m", m)], 20));
        }
    }
    check(cases);
}

/// q[b, h, s, d] · k[b, h / 2, t, d] for two operands k: both are copied to panels in scratch memory, and each of the
/// two sums is a result of the kernel.
#[test]
fn copied_factors_and_several_results() {
    let kernel = || {
        let mut b = Builder::new(&["b", "4", "s", "t"], &["12"]);
        let q = b.load(DType::F32, &["b", "4", "s", "12"], &["%0", "%1", "%2", "%4"]);
        for _ in 0..2 {
            let k = b.load(DType::F32, &["b", "2", "t", "12"], &["%0", "%1 floordiv 2", "%3", "%4"]);
            let sum = b.dot(k, q);
            b.store(sum, &["b", "4", "s", "t"], &["%0", "%1", "%2", "%3"]);
        }
        b.0
    };
    assert!(lower(&kernel()).unwrap().words().is_some());
    let sizes = [(1, 1, 5), (2, 5, 33), (1, 49, 64), (2, 50, 31)];
    let symbols = |(b, s, t)| [("b", b), ("s", s), ("t", t)];
    check(sizes.iter().map(|size| case(&format!("{size:?}"), kernel(), &symbols(*size), 12)).collect());
}

/// More products than a GPU's tiles can accumulate, and 16-bit elements.
#[test]
fn more_sums_and_other_elements() {
    let sums = |dtype: DType, n: usize| {
        let mut b = Builder::new(&["m", "40"], &["24"]);
        let x = b.load(dtype, &["m", "24"], &["%0", "%2"]);
        for i in 0..n {
            let (shape, index) = if i == 1 { (["40", "24"], ["%1", "%2"]) } else { (["24", "40"], ["%2", "%1"]) };
            let w = b.load(dtype, &shape, &index);
            let sum = b.dot(x, w);
            b.store(sum, &["m", "40"], &["%0", "%1"]);
        }
        b.0
    };
    let mut cases = vec![];
    for m in [1, 16, 17, 50] {
        cases.push(case(&format!("three {m}"), sums(DType::F32, 3), &[("m", m)], 24));
        cases.push(case(&format!("f16 {m}"), sums(DType::F16, 2), &[("m", m)], 24).within(2e-3, 2e-3));
        cases.push(case(&format!("bf16 {m}"), sums(DType::BF16, 2), &[("m", m)], 24).within(2e-2, 2e-2));
    }
    check(cases);
}

#[test]
fn a_row_does_not_depend_on_the_others() {
    rows_are_independent("gated", gated("m", "70", "19"), 70);
    rows_are_independent("gated", gated("m", "96", "19"), 96);
}

/// Products that do not all share one operand are not one contraction, even if each shares an operand with the next.
#[test]
fn what_shares_no_factor_is_no_contraction() {
    let sums = |of: &[(usize, usize)]| {
        let mut b = Builder::new(&["8", "8"], &["24"]);
        let mut load = |n: usize, shape: [&str; 2], index: [&str; 2]| -> Vec<usize> {
            (0..=n).map(|_| b.load(DType::F32, &shape, &index)).collect()
        };
        let lefts = load(of.iter().map(|s| s.0).max().unwrap(), ["8", "24"], ["%0", "%2"]);
        let rights = load(of.iter().map(|s| s.1).max().unwrap(), ["24", "8"], ["%2", "%1"]);
        for (left, right) in of {
            let sum = b.dot(lefts[*left], rights[*right]);
            b.store(sum, &["8", "8"], &["%0", "%1"]);
        }
        b.0
    };
    assert_eq!(sums(&[(0, 0), (0, 1)]).class(), Class::Contract);
    assert_eq!(sums(&[(0, 0), (1, 1)]).class(), Class::Normalise);
    assert_eq!(sums(&[(0, 0), (0, 1), (1, 1)]).class(), Class::Normalise);
    check(vec![
        case("apart", sums(&[(0, 0), (1, 1)]), &[], 24),
        case("path", sums(&[(0, 0), (0, 1), (1, 1)]), &[], 24),
    ]);
}
