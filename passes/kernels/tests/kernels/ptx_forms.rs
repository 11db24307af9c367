//! Variants of PTX kernels at their boundaries: vectors and tails, tiles, rows kept in registers or read again, the
//! status word

use crate::build::{Builder, layer_norm, softmax, softmax_of};
use crate::harness::{Case, Random};
use crate::ptx::{check, launch};
use sardonyx_base::{DType, Tensor};
use sardonyx_dialects::flow::kernel::Kernel;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_kernels::lower;

const TYPES: [DType; 13] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::Bool,
];

/// Lengths around a warp, a block, and the elements of a block's vectors.
const LENGTHS: [i64; 15] = [0, 1, 3, 4, 31, 32, 33, 127, 128, 129, 255, 256, 257, 512, 515];

fn copy(t: DType, shape: &[&str], read: &[&str], extents: &[&str]) -> Kernel {
    let mut b = Builder::new(extents, &[]);
    let x = b.load(t, shape, read);
    let vars: Vec<String> = (0..extents.len()).map(|v| format!("%{v}")).collect();
    b.store(x, extents, &vars.iter().map(String::as_str).collect::<Vec<_>>());
    b.0
}

#[test]
fn one_dimension_of_every_type_and_length() {
    let mut cases = vec![];
    for t in TYPES {
        for n in LENGTHS {
            cases.push(Case::new(&format!("{t} {n}"), copy(t, &["n"], &["%0"], &["n"]), &[("n", n)]).exact());
        }
    }
    check(&cases);
}

/// x[rows, n] + bias[n] · scale[rows]
fn affine(rows: &str, n: &str) -> Kernel {
    let mut b = Builder::new(&[rows, n], &[]);
    let x = b.load(DType::F32, &[rows, n], &["%0", "%1"]);
    let bias = b.load(DType::F32, &[n], &["%1"]);
    let scale = b.load(DType::F32, &[rows], &["%0"]);
    let y = b.apply(ScalarFn::Mul, &[bias, scale]);
    let y = b.apply(ScalarFn::Add, &[x, y]);
    b.store(y, &[rows, n], &["%0", "%1"]);
    b.0
}

#[test]
fn rows_and_broadcasts() {
    let mut cases = vec![];
    for n in LENGTHS {
        let of = |rows: &str, length: &str| affine(rows, length);
        cases.push(Case::new(&format!("5 x {n}"), of("5", &n.to_string()), &[]).exact());
        cases.push(Case::new(&format!("r x {n}"), of("r", &n.to_string()), &[("r", 3)]).exact());
        cases.push(Case::new(&format!("r x n {n}"), of("r", "n"), &[("r", 7), ("n", n)]).exact());
    }
    check(&cases);
}

#[test]
fn places_that_are_not_aligned() {
    let mut cases = vec![];
    for (shape, read, name) in [
        (["4", "70"], ["%0", "%1 + 1"], "one behind"),
        (["4", "70"], ["%0", "%1 + 4"], "four behind, in rows of 70"),
        (["4", "72"], ["%0", "%1 + 4"], "four behind"),
        (["4", "72"], ["%0", "%1 + s"], "s behind"),
        (["4", "72"], ["%0", "63 - %1"], "backwards"),
        (["4", "200"], ["%0", "3*%1"], "every third"),
    ] {
        for t in [DType::F32, DType::F16, DType::I64, DType::U8] {
            for s in [3, 8] {
                let kernel = copy(t, &shape, &read, &["4", "64"]);
                cases.push(Case::new(&format!("{name} {t} {s}"), kernel, &[("s", s)]).exact());
            }
        }
    }
    check(&cases);
}

/// x padded at both ends, by `before` elements in front, as the lowering of the ONNX `Pad` produces it.
#[test]
fn padding_along_the_lanes() {
    let mut cases = vec![];
    for (before, n, all) in [(1i64, 30i64, 40i64), (4, 32, 40), (0, 5, 200)] {
        let mut b = Builder::new(&["3", &all.to_string()], &[]);
        let at = b.index(&format!("%1 - {before}"));
        let (zero, end) = (b.constant(0.0, DType::I64), b.constant(n as f64, DType::I64));
        let (from, to) = (b.apply(ScalarFn::Le, &[zero, at]), b.apply(ScalarFn::Lt, &[at, end]));
        let inside = b.apply(ScalarFn::And, &[from, to]);
        let read = format!("%1 - {before}");
        let x = b.guarded(DType::F32, &["3", &n.to_string()], &["%0", &read], Some(inside));
        let fill = b.constant(7.5, DType::F32);
        let y = b.apply(ScalarFn::Select, &[inside, x, fill]);
        b.store(y, &["3", &all.to_string()], &["%0", "%1"]);
        cases.push(Case::new(&format!("{before} {n} {all}"), b.0, &[]).exact());
    }
    check(&cases);
}

#[test]
fn guards_of_whole_rows_keep_vectors() {
    let mut b = Builder::new(&["5", "64"], &[]);
    let (row, edge) = (b.index("%0"), b.constant(2.0, DType::I64));
    let first = b.apply(ScalarFn::Lt, &[row, edge]);
    let second = b.apply(ScalarFn::Not, &[first]);
    let x = b.guarded(DType::F32, &["2", "64"], &["%0", "%1"], Some(first));
    let y = b.guarded(DType::F32, &["3", "64"], &["%0 - 2", "%1"], Some(second));
    let z = b.apply(ScalarFn::Select, &[first, x, y]);
    b.store(z, &["5", "64"], &["%0", "%1"]);
    let case = Case::new("rows", b.0, &[]).exact();
    let text = lower(&case.kernel)
        .unwrap()
        .for_gpu(sardonyx_kernels::Target::from_ptx("sm_80").unwrap())
        .emit("k")
        .unwrap()
        .text;
    assert!(text.contains("ld.global.nc.v4.f32") && text.contains("st.global.v4.f32"), "{text}");
    check(&[case]);
}

#[test]
fn transposes_through_tiles() {
    let mut cases = vec![];
    for t in TYPES {
        for (r, c) in [(8i64, 8i64), (31, 33), (32, 32), (70, 45)] {
            let kernel = copy(t, &["c", "r"], &["%1", "%0"], &["r", "c"]);
            cases.push(Case::new(&format!("{t} {r} x {c}"), kernel, &[("r", r), ("c", c)]).exact());
        }
    }
    let heads = copy(DType::F32, &["b", "s", "3", "20"], &["%0", "%3", "%1", "%2"], &["b", "3", "20", "s"]);
    cases.push(Case::new("heads", heads, &[("b", 2), ("s", 37)]).exact());
    // Two transposed operands, one operand in the order of the result, one with a value per row and one with a value
    // per column.
    let mut b = Builder::new(&["2", "40", "50"], &[]);
    let x = b.load(DType::F32, &["2", "50", "40"], &["%0", "%2", "%1"]);
    let y = b.load(DType::F32, &["50", "40"], &["%2", "%1"]);
    let z = b.load(DType::F32, &["2", "40", "50"], &["%0", "%1", "%2"]);
    let (u, v) = (b.load(DType::F32, &["40"], &["%1"]), b.load(DType::F32, &["50"], &["%2"]));
    let sum = [y, z, u, v].into_iter().fold(x, |sum, v| b.apply(ScalarFn::Add, &[sum, v]));
    b.store(sum, &["2", "40", "50"], &["%0", "%1", "%2"]);
    cases.push(Case::new("several", b.0, &[]).within(1e-6, 4e-7));
    for case in &cases {
        let kernel =
            lower(&case.kernel).unwrap().for_gpu(sardonyx_kernels::Target::from_ptx("sm_80").unwrap()).emit("k");
        assert!(kernel.unwrap().text.contains(".shared"), "{} goes through a tile", case.name);
    }
    check(&cases);
}

/// Rows that fit into the registers of a warp, into those of a block, or into neither; with vector accesses and
/// without.
#[test]
fn softmax_of_every_way_through_a_row() {
    let mut cases = vec![];
    for n in [1i64, 3, 31, 32, 33, 100, 127, 128, 129, 256, 257, 512, 513, 1000, 1024, 1025, 2048, 3001, 8192, 9000] {
        let constant = softmax(&["2", "3"], &n.to_string());
        cases.push(Case::new(&format!("{n}"), constant, &[]).within(1e-6, 1e-5));
        let symbolic = softmax(&["b", "h"], "n");
        cases.push(Case::new(&format!("n = {n}"), symbolic, &[("b", 2), ("h", 3), ("n", n)]).within(1e-6, 1e-5));
    }
    check(&cases);
}

#[test]
fn a_row_of_minus_infinity_gives_nan_as_it_must() {
    let mut cases = vec![];
    for n in [6usize, 64, 2000] {
        let mut x = vec![f32::NEG_INFINITY; 2 * n];
        x[n + 3] = 1.5;
        x[2 * n - 1] = 0.5;
        let x = Tensor::from_vec(vec![1, 2, n], x);
        cases.push(Case::new(&format!("{n}"), softmax(&["1", "2"], &n.to_string()), &[]).read(0, x));
    }
    check(&cases);
}

#[test]
fn layer_normalisation_of_every_way_through_a_row() {
    let mut cases = vec![];
    for n in [1i64, 7, 64, 384, 385, 768, 1024, 1026, 4096] {
        let symbols = [("b", 2), ("s", 5)];
        cases.push(Case::new(&format!("{n}"), layer_norm(&n.to_string(), n as f64), &symbols).within(1e-5, 1e-5));
    }
    check(&cases);
}

#[test]
fn softmax_in_narrow_and_wide_types() {
    let mut cases = vec![];
    for (t, e) in [(DType::F16, 2e-3), (DType::BF16, 1.6e-2), (DType::F64, 1e-13)] {
        for n in ["64", "77", "n"] {
            let mut b = Builder::new(&["r"], &[n]);
            let x = b.load(t, &["r", n], &["%0", "%1"]);
            let y = softmax_of(&mut b, x);
            b.store(y, &["r", n], &["%0", "%1"]);
            cases.push(Case::new(&format!("{t} {n}"), b.0, &[("r", 3), ("n", 90)]).within(e, e));
        }
    }
    check(&cases);
}

#[test]
fn a_whole_tensor_is_reduced_by_one_block() {
    let mut cases = vec![];
    for f in ReduceFn::ALL {
        for (t, e) in [(DType::F32, 1e-4), (DType::I32, 0.0), (DType::I64, 0.0), (DType::F64, 1e-12)] {
            for n in [0i64, 1, 300, 5000] {
                if (t == DType::F32 || t == DType::F64) && f == ReduceFn::Mul && n > 1 {
                    continue;
                }
                let mut b = Builder::new(&[], &["n"]);
                let x = b.load(t, &["n"], &["%0"]);
                let r = b.reduce(f, x);
                b.store(r, &[], &[]);
                cases.push(Case::new(&format!("{} {t} {n}", f.name()), b.0, &[("n", n)]).within(e, e));
            }
        }
    }
    check(&cases);
}

#[test]
fn an_index_out_of_range_sets_the_status_and_reads_at_0() {
    let mut rows = Builder::new(&["4", "20"], &[]);
    let i = rows.load(DType::I64, &["4"], &["%0"]);
    let x = rows.load(DType::F32, &["6", "20"], &[&format!("${i}"), "%1"]);
    rows.store(x, &["4", "20"], &["%0", "%1"]);
    let mut elements = Builder::new(&["20"], &[]);
    let i = elements.load(DType::I64, &["20"], &["%0"]);
    let x = elements.load(DType::F32, &["6"], &[&format!("${i}")]);
    elements.store(x, &["20"], &["%0"]);
    for (kernel, n, good) in [(rows.0, 4usize, 20usize), (elements.0, 20, 1)] {
        for bad in [6i64, -1, i64::MAX, i64::MIN] {
            let mut indices = vec![2i64; n];
            indices[n / 2] = bad;
            let case = Case::new("bad", kernel.clone(), &[]).read(0, Tensor::from_vec(vec![n], indices));
            let outcome = launch(&lower(&kernel).unwrap(), &case, 1);
            assert_eq!(outcome.status, 1, "{bad}");
            let at = n / 2 * good * 4;
            assert_eq!(outcome.results[0][at..at + good * 4], case.reads[1].bytes()[..good * 4]);
            assert!(outcome.report.findings.is_empty(), "{:?}", outcome.report.findings);
        }
    }
}

#[test]
fn random_shapes_of_maps_and_rows() {
    let mut random = Random(5);
    let mut cases = vec![];
    for i in 0..40 {
        let mut size = |top: u64| 1 + (random.next() % top) as i64;
        let (r, n) = (size(9), size(700));
        cases.push(Case::new(&format!("map {i}"), affine("r", "n"), &[("r", r), ("n", n)]).exact());
        let kernel = softmax(&["r"], "n");
        cases.push(Case::new(&format!("softmax {i}"), kernel, &[("r", r), ("n", n)]).within(1e-6, 1e-5));
        let kernel = copy(DType::F32, &["n", "r"], &["%1", "%0"], &["r", "n"]);
        cases.push(Case::new(&format!("transpose {i}"), kernel, &[("r", r + 8), ("n", n)]).exact());
    }
    check(&cases);
}
