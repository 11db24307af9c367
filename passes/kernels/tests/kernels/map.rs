//! Kernels without reductions: elementwise chains, broadcasts, transposes, computed indices, gathers, guarded loads

use crate::build::Builder;
use crate::check;
use crate::harness::Case;
use sardonyx_base::{DType, Tensor};
use sardonyx_dialects::scalar::ScalarFn;

fn add_bias(rows: &str, columns: &str) -> Builder {
    let mut b = Builder::new(&[rows, columns], &[]);
    let x = b.load(DType::F32, &[rows, columns], &["%0", "%1"]);
    let bias = b.load(DType::F32, &[columns], &["%1"]);
    let y = b.apply(ScalarFn::Add, &[x, bias]);
    b.store(y, &[rows, columns], &["%0", "%1"]);
    b
}

#[test]
fn sizes_around_the_lanes() {
    let mut cases = vec![];
    for n in [0i64, 1, 7, 8, 9, 15, 16, 17, 33, 100] {
        cases.push(Case::new(&format!("bias 3x{n}"), add_bias("3", &n.to_string()).0, &[]).exact());
        cases.push(Case::new(&format!("bias sx{n}"), add_bias("s", "n").0, &[("s", 4), ("n", n)]).exact());
    }
    check(cases);
}

#[test]
fn one_dimension_is_cut_into_chunks() {
    let mut cases = vec![];
    for n in [4095i64, 4096, 4097, 10000] {
        for extent in [n.to_string(), "n".into()] {
            let mut b = Builder::new(&[&extent], &[]);
            let x = b.load(DType::F32, &[&extent], &["%0"]);
            let y = b.gelu(x);
            b.store(y, &[&extent], &["%0"]);
            cases.push(Case::new(&format!("gelu {extent} {n}"), b.0, &[("n", n)]));
        }
    }
    check(cases);
}

#[test]
fn no_dimension_at_all() {
    let mut b = Builder::new(&[], &[]);
    let x = b.load(DType::F32, &[], &[]);
    let y = b.apply(ScalarFn::Neg, &[x]);
    b.store(y, &[], &[]);
    check(vec![Case::new("scalar", b.0, &[]).exact()]);
}

#[test]
fn transposes_and_strides() {
    let mut b = Builder::new(&["5", "s", "7"], &[]);
    let x = b.load(DType::F32, &["7", "5", "s"], &["%2", "%0", "%1"]);
    b.store(x, &["5", "s", "7"], &["%0", "%1", "%2"]);
    let mut steps = Builder::new(&["4", "19"], &[]);
    let x = steps.load(DType::I32, &["4", "60"], &["%0", "3*%1 + 2"]);
    let r = steps.again(0, &["%0", "59 - %1"]);
    let y = steps.apply(ScalarFn::Sub, &[x, r]);
    steps.store(y, &["19", "4"], &["%1", "%0"]);
    check(vec![Case::new("transpose", b.0, &[("s", 33)]).exact(), Case::new("steps", steps.0, &[]).exact()]);
}

/// Checks transposed operands, which CPU kernels transpose in square blocks in vector registers, and the rows and
/// columns that fill no block.
#[test]
fn transposes_in_squares() {
    let mut cases = vec![];
    for (rows, columns) in [(16i64, 16i64), (16, 17), (15, 40), (40, 16), (33, 300), (128, 520)] {
        for open in [false, true] {
            let [r, c] = if open { ["r".to_string(), "c".into()] } else { [rows, columns].map(|n| n.to_string()) };
            let mut b = Builder::new(&["2", &r, &c], &[]);
            let x = b.load(DType::F32, &[&c, "2", &r], &["%2", "%0", "%1"]);
            let other = b.load(DType::F32, &["2", &c, &r], &["%0", "%2", "%1"]);
            let sum = b.apply(ScalarFn::Sub, &[x, other]);
            let bias = b.load(DType::F32, &[&c], &["%2"]);
            let y = b.apply(ScalarFn::Mul, &[sum, bias]);
            b.store(y, &["2", &r, &c], &["%0", "%1", "%2"]);
            cases.push(Case::new(&format!("{rows}x{columns} {open}"), b.0, &[("r", rows), ("c", columns)]).exact());
        }
    }
    check(cases);
}

#[test]
fn indices_that_are_not_linear() {
    let mut b = Builder::new(&["30"], &[]);
    let x = b.load(DType::F32, &["5", "6"], &["%0 mod 5", "%0 floordiv 5"]);
    let i = b.index("%0 floordiv 7 + s");
    let i = b.convert(i, DType::F32);
    let y = b.apply(ScalarFn::Mul, &[x, i]);
    b.store(y, &["30"], &["%0"]);
    let mut split = Builder::new(&["4", "8"], &[]);
    let x = split.load(DType::F32, &["4", "8"], &["(8*%0 + %1) floordiv 8", "(8*%0 + %1) mod 8"]);
    split.store(x, &["32"], &["8*%0 + %1"]);
    check(vec![Case::new("floordiv", b.0, &[("s", 3)]).exact(), Case::new("split", split.0, &[]).exact()]);
}

#[test]
fn a_gather_of_rows_and_of_elements() {
    let indices = Tensor::from_vec(vec![2, 3], vec![0i64, 9, 4, 4, 1, 8]);
    let mut rows = Builder::new(&["2", "3", "20"], &[]);
    let i = rows.load(DType::I64, &["2", "3"], &["%0", "%1"]);
    let x = rows.load(DType::F32, &["10", "20"], &[&format!("${i}"), "%2"]);
    rows.store(x, &["2", "3", "20"], &["%0", "%1", "%2"]);
    let mut elements = Builder::new(&["40"], &[]);
    let i = elements.load(DType::I64, &["40"], &["%0"]);
    let x = elements.load(DType::F32, &["v"], &[&format!("${i}")]);
    elements.store(x, &["40"], &["%0"]);
    let many = Tensor::from_vec(vec![40], (0..40i64).map(|i| i * 7 % 11).collect());
    check(vec![
        Case::new("rows", rows.0, &[]).exact().read(0, indices),
        Case::new("elements", elements.0, &[("v", 11)]).exact().read(0, many),
    ]);
}

#[test]
fn guards_keep_loads_inside() {
    // Concatenation along the dimension of the vector lanes: x for %1 < 13, else y.
    let mut b = Builder::new(&["3", "13 + s"], &[]);
    let i = b.index("%1");
    let edge = b.constant(13.0, DType::I64);
    let first = b.apply(ScalarFn::Lt, &[i, edge]);
    let second = b.apply(ScalarFn::Not, &[first]);
    let x = b.guarded(DType::F32, &["3", "13"], &["%0", "%1"], Some(first));
    let y = b.guarded(DType::F32, &["3", "s"], &["%0", "%1 - 13"], Some(second));
    let z = b.apply(ScalarFn::Select, &[first, x, y]);
    b.store(z, &["3", "13 + s"], &["%0", "%1"]);
    // Concatenation along the outermost dimension.
    let mut outer = Builder::new(&["5", "21"], &[]);
    let i = outer.index("%0");
    let edge = outer.constant(2.0, DType::I64);
    let first = outer.apply(ScalarFn::Lt, &[i, edge]);
    let second = outer.apply(ScalarFn::Not, &[first]);
    let x = outer.guarded(DType::I8, &["2", "21"], &["%0", "%1"], Some(first));
    let y = outer.guarded(DType::I8, &["3", "21"], &["%0 - 2", "%1"], Some(second));
    let z = outer.apply(ScalarFn::Select, &[first, x, y]);
    outer.store(z, &["5", "21"], &["%0", "%1"]);
    // An index that is out of range where the guard is false, and a guarded load that is broadcast to all lanes.
    let mut index = Builder::new(&["20"], &[]);
    let i = index.index("%0");
    let edge = index.constant(9.0, DType::I64);
    let inside = index.apply(ScalarFn::Lt, &[i, edge]);
    let x = index.guarded(DType::F32, &["9"], &[&format!("${i}")], Some(inside));
    let one = index.guarded(DType::F32, &["1"], &["0"], Some(inside));
    let z = index.apply(ScalarFn::Add, &[x, one]);
    index.store(z, &["20"], &["%0"]);
    check(vec![
        Case::new("lanes", b.0, &[("s", 22)]).exact(),
        Case::new("outer", outer.0, &[]).exact(),
        Case::new("index", index.0, &[]).exact(),
    ]);
}

#[test]
fn several_results_of_several_types() {
    let mut b = Builder::new(&["4", "17"], &[]);
    let x = b.load(DType::F32, &["4", "17"], &["%0", "%1"]);
    let zero = b.constant(0.0, DType::F32);
    let below = b.apply(ScalarFn::Lt, &[x, zero]);
    let negative = b.apply(ScalarFn::Neg, &[x]);
    let size = b.apply(ScalarFn::Select, &[below, negative, x]);
    b.store(below, &["4", "17"], &["%0", "%1"]);
    b.store(size, &["17", "4"], &["%1", "%0"]);
    check(vec![Case::new("two", b.0, &[]).exact()]);
}
