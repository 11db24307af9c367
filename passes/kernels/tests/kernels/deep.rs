//! Kernels with a reduction at each inner point that match no kernel class with tuned code

use crate::build::{Builder, softmax_of};
use crate::check;
use crate::harness::Case;
use sardonyx_base::DType;
use sardonyx_dialects::flow::kernel::Kernel;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};

/// reduce_j reduce_d x[i, d] · y[j, d], where `outer` reduces over j and `inner` over d, in type `t`.
fn nested(outer: ReduceFn, inner: ReduceFn, t: DType, [i, j, d]: [&str; 3]) -> Kernel {
    let mut b = Builder::new(&[i], &[j]).deep(&[d]);
    let x = b.load(t, &[i, d], &["%0", "%2"]);
    let y = b.load(t, &[j, d], &["%1", "%2"]);
    let product = b.apply(ScalarFn::Mul, &[x, y]);
    let s = b.reduce(inner, product);
    let r = b.reduce(outer, s);
    b.store(r, &[i], &["%0"]);
    b.0
}

#[test]
fn every_pair_of_reductions() {
    let mut cases = vec![];
    for outer in [ReduceFn::Add, ReduceFn::Max, ReduceFn::Min] {
        for inner in [ReduceFn::Add, ReduceFn::Max, ReduceFn::Min] {
            for t in [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32, DType::I64, DType::U8] {
                let e = match t {
                    DType::F16 => 2e-2,
                    DType::BF16 => 0.2,
                    _ => 1e-5,
                };
                let kernel = nested(outer, inner, t, ["3", "19", "5"]);
                let name = format!("{} of {} {t}", outer.name(), inner.name());
                cases.push(Case::new(&name, kernel, &[]).within(e, e));
            }
        }
    }
    check(cases);
}

#[test]
fn spaces_that_are_empty() {
    let mut cases = vec![];
    for (m, n, k) in [(0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1), (2, 33, 17)] {
        for f in [ReduceFn::Add, ReduceFn::Max] {
            let kernel = nested(f, ReduceFn::Add, DType::F32, ["m", "n", "k"]);
            cases.push(Case::new(&format!("{m} {n} {k}"), kernel, &[("m", m), ("n", n), ("k", k)]).within(1e-5, 1e-5));
        }
    }
    check(cases);
}

/// p[i, j] = softmax_j Σ_d q[i, d] · k[j, d], stored at each inner point.
#[test]
fn values_of_points_are_stored() {
    let mut cases = vec![];
    for n in [1, 15, 16, 17, 70] {
        let mut b = Builder::new(&["m"], &["n"]).deep(&["k"]);
        let q = b.load(DType::F32, &["m", "k"], &["%0", "%2"]);
        let k = b.load(DType::F32, &["n", "k"], &["%1", "%2"]);
        let s = b.dot(q, k);
        let p = softmax_of(&mut b, s);
        b.store(p, &["m", "n"], &["%0", "%1"]);
        b.store(s, &["n", "m"], &["%1", "%0"]);
        cases.push(Case::new(&format!("{n}"), b.0, &[("m", 3), ("n", n), ("k", 9)]).within(1e-5, 1e-5));
    }
    check(cases);
}

/// Two sums are computed at each inner point and combined: one over two dimensions of the deep space that do not merge,
/// the other of squares. The result has two dimensions that the scores do not depend on, one of which is not
/// contiguous.
#[test]
fn two_sums_and_two_late_dimensions() {
    let mut cases = vec![];
    for (n, e) in [(5, 3), (18, 16), (4, 21)] {
        let mut b = Builder::new(&["b", "g", "m", "e"], &["n"]).deep(&["2", "k"]);
        let q = b.load(DType::F32, &["2", "b", "m", "k"], &["%5", "%0", "%2", "%6"]);
        let k = b.load(DType::F32, &["n", "k", "2"], &["%4", "%6", "%5"]);
        let s = b.dot(q, k);
        let squares = b.dot(k, k);
        let root = b.apply(ScalarFn::Sqrt, &[squares]);
        let one = b.constant(1.0, DType::F32);
        let norm = b.apply(ScalarFn::Add, &[root, one]);
        let s = b.apply(ScalarFn::Div, &[s, norm]);
        let max = b.reduce(ReduceFn::Max, s);
        let below = b.apply(ScalarFn::Sub, &[s, max]);
        let p = b.apply(ScalarFn::Exp, &[below]);
        let l = b.reduce(ReduceFn::Add, p);
        let v = b.load(DType::F32, &["b", "g", "e", "n"], &["%0", "%1", "%3", "%4"]);
        let o = b.dot(p, v);
        let y = b.apply(ScalarFn::Div, &[o, l]);
        b.store(y, &["b", "m", "g", "e"], &["%0", "%2", "%1", "%3"]);
        let symbols = [("b", 2), ("g", 3), ("m", 2), ("e", e), ("n", n), ("k", 3)];
        cases.push(Case::new(&format!("{n} {e}"), b.0, &symbols).within(1e-5, 1e-5));
    }
    check(cases);
}

/// A guarded, converted left operand and a mask of bools, for which not every CPU level has masked loads.
#[test]
fn guarded_operands_and_narrow_masks() {
    let mut cases = vec![];
    for (n, e) in [(1, 1), (7, 5), (17, 16), (40, 33)] {
        let mut b = Builder::new(&["m", "e"], &["n"]).deep(&["6"]);
        let (at, limit) = (b.index("%3"), b.index("4"));
        let first = b.apply(ScalarFn::Lt, &[at, limit]);
        let x = b.guarded(DType::I8, &["m", "4"], &["%0", "%3"], Some(first));
        let q = b.convert(x, DType::F32);
        let k = b.load(DType::F32, &["n", "6"], &["%2", "%3"]);
        let s = b.dot(q, k);
        let seen = b.load(DType::Bool, &["m", "n"], &["%0", "%2"]);
        let low = b.constant(-100.0, DType::F32);
        let s = b.apply(ScalarFn::Select, &[seen, s, low]);
        let w = softmax_of(&mut b, s);
        let v = b.load(DType::F32, &["n", "e"], &["%2", "%1"]);
        let o = b.dot(w, v);
        b.store(o, &["m", "e"], &["%0", "%1"]);
        cases.push(Case::new(&format!("{n} {e}"), b.0, &[("m", 3), ("e", e), ("n", n)]).within(1e-5, 1e-5));
    }
    check(cases);
}
