//! Reductions, softmax, layer normalisation

use crate::build::{Builder, layer_norm, softmax};
use crate::check;
use crate::harness::Case;
use sardonyx_base::{DType, Tensor};
use sardonyx_dialects::flow::kernel::Kernel;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};

#[test]
fn softmax_over_rows_of_many_lengths() {
    let mut cases = vec![];
    for n in [1i64, 2, 15, 16, 17, 63, 64, 65, 128, 200] {
        cases.push(Case::new(&format!("{n}"), softmax(&["2", "3"], &n.to_string()), &[]));
        cases.push(Case::new(&format!("n = {n}"), softmax(&["b", "h"], "n"), &[("b", 2), ("h", 3), ("n", n)]));
    }
    check(cases);
}

#[test]
fn a_masked_softmax_has_zeros_where_the_mask_is() {
    let inf = f32::NEG_INFINITY;
    let rows = vec![0.5, inf, 1.5, inf, 2.0, inf, inf, 0.0, 1.0, inf, -3.0, inf];
    let x = Tensor::from_vec(vec![1, 2, 6], rows);
    check(vec![Case::new("masked", softmax(&["1", "2"], "6"), &[]).read(0, x)]);
}

#[test]
fn layer_normalisation() {
    let mut cases = vec![];
    for (n, b, s) in [(384i64, 2, 3), (7, 1, 5), (100, 1, 1), (384, 0, 3)] {
        let symbols = [("b", b), ("s", s)];
        cases.push(Case::new(&format!("{n}"), layer_norm(&n.to_string(), n as f64), &symbols).within(1e-6, 2e-6));
    }
    check(cases);
}

fn reduction(f: ReduceFn, t: DType, outer: &str, inner: &str) -> Kernel {
    let mut b = Builder::new(&[outer], &[inner]);
    let x = b.load(t, &[outer, inner], &["%0", "%1"]);
    let r = b.reduce(f, x);
    b.store(r, &[outer], &["%0"]);
    b.0
}

#[test]
fn every_reduction_of_every_type() {
    let mut cases = vec![];
    for f in ReduceFn::ALL {
        for t in [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I8, DType::U8, DType::I32, DType::I64] {
            for n in [0, 1, 5, 37, 150] {
                let e = match t {
                    DType::F16 => 1e-3,
                    DType::BF16 => 8e-3,
                    DType::F64 => 1e-14,
                    _ => 1e-5,
                };
                let kernel = reduction(f, t, "3", &n.to_string());
                cases.push(Case::new(&format!("{} {t} {n}", f.name()), kernel, &[]).within(e, e));
            }
        }
    }
    check(cases);
}

#[test]
fn nan_passes_through_max_and_min() {
    let mut cases = vec![];
    for at in [0, 20, 64, 69] {
        let mut x = vec![1.0f32; 70];
        x[at] = f32::NAN;
        let x = Tensor::from_vec(vec![1, 70], x);
        cases.push(Case::new("max", reduction(ReduceFn::Max, DType::F32, "1", "70"), &[]).read(0, x.clone()).exact());
        cases.push(Case::new("min", reduction(ReduceFn::Min, DType::F32, "1", "70"), &[]).read(0, x).exact());
    }
    check(cases);
}

/// Reductions over windows of several sizes, with NaN and -∞ among the elements.
#[test]
fn windows_of_channels() {
    let mut cases = vec![];
    for (n, f) in [("3", ReduceFn::Max), ("2", ReduceFn::Min), ("5", ReduceFn::Max), ("3", ReduceFn::Add)] {
        let mut b = Builder::new(&["4", "3", "20"], &[n, n]);
        let shape = ["1", "12", "10", "20"];
        let x = b.load(DType::F32, &shape, &["0", "2*%0 + %3", "2*%1 + %4", "%2"]);
        let y = b.reduce(f, x);
        b.store(y, &["4", "3", "20"], &["%0", "%1", "%2"]);
        let case = Case::new(&format!("{n} x {n}, {}", f.name()), b.0, &[]).within(1e-6, 1e-6);
        let mut x = case.reads[0].to_vec::<f32>().unwrap();
        (x[0], x[500], x[777]) = (f32::NAN, f32::NEG_INFINITY, f32::NAN);
        cases.push(case.read(0, Tensor::from_vec(vec![1, 12, 10, 20], x)));
    }
    check(cases);
}

/// Rows of these lengths are prefetched; prefetches past the last row must not fault.
#[test]
fn rows_that_are_brought_near() {
    check(["256", "300"].map(|n| Case::new(n, softmax(&["r"], n), &[("r", 3)])).into());
}

#[test]
fn columns_are_reduced_side_by_side() {
    let mut cases = vec![];
    for (rows, columns) in [(5i64, 3i64), (9, 16), (33, 70), (4, 200)] {
        let mut b = Builder::new(&["c"], &["r"]);
        let x = b.load(DType::F32, &["r", "c"], &["%1", "%0"]);
        let max = b.reduce(ReduceFn::Max, x);
        let d = b.apply(ScalarFn::Sub, &[x, max]);
        let e = b.apply(ScalarFn::Exp, &[d]);
        let sum = b.reduce(ReduceFn::Add, e);
        let y = b.apply(ScalarFn::Div, &[e, sum]);
        b.store(y, &["r", "c"], &["%1", "%0"]);
        b.store(sum, &["c"], &["%0"]);
        cases.push(Case::new(&format!("{rows}x{columns}"), b.0, &[("r", rows), ("c", columns)]));
    }
    check(cases);
}

#[test]
fn several_inner_dimensions_that_do_not_merge() {
    let mut b = Builder::new(&["s"], &["4", "n"]);
    let x = b.load(DType::F32, &["4", "s", "n"], &["%1", "%0", "%2"]);
    let sum = b.reduce(ReduceFn::Add, x);
    let d = b.apply(ScalarFn::Sub, &[x, sum]);
    let e = b.apply(ScalarFn::Tanh, &[d]);
    let total = b.reduce(ReduceFn::Add, e);
    let y = b.apply(ScalarFn::Mul, &[e, total]);
    b.store(y, &["4", "s", "n"], &["%1", "%0", "%2"]);
    check(vec![Case::new("nest", b.0, &[("s", 3), ("n", 37)]).within(2e-5, 1e-5)]);
}
