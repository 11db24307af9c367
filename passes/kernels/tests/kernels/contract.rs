//! Contractions: matrix products with epilogues, batched attention products, packed operands, convolutions

use crate::build::{Builder, mixed, plain, product, scores};
use crate::check;
use crate::harness::{Case, Library, levels, run};
use sardonyx_base::{DType, Dim, Tensor};
use sardonyx_dialects::flow::kernel::{Container, Kernel, Layout};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_kernels::codegen::build_shared_object;
use sardonyx_kernels::{Target, lower, packable};

/// Returns a case with the tolerance for sums of k products of numbers in -1..1, added in any order in f32.
pub fn case(name: &str, kernel: Kernel, symbols: &[(&'static str, i64)], k: i64) -> Case {
    Case::new(name, kernel, symbols).within((k as f64 + 16.0) * 6e-8, 1e-6)
}

#[test]
fn sizes_around_the_blocks() {
    let mut cases = vec![];
    for m in [1i64, 2, 3, 5, 11, 12, 13, 47, 48, 49, 97] {
        for n in [1i64, 7, 16, 24, 31, 32, 33, 56, 64, 70] {
            if m > 13 && ![24, 33, 70].contains(&n) {
                continue;
            }
            let (ms, ns) = (m.to_string(), n.to_string());
            cases.push(case(&format!("{m}x{n}"), plain(&ms, &ns, "9"), &[], 9));
        }
    }
    check(cases);
}

#[test]
fn symbolic_sizes() {
    let mut cases = vec![];
    for (m, n, k) in
        [(1, 1, 1), (0, 5, 5), (5, 0, 5), (5, 5, 0), (12, 32, 20), (29, 45, 17), (100, 97, 3), (49, 64, 40)]
    {
        cases.push(case(&format!("{m}x{n}x{k}"), plain("m", "n", "k"), &[("m", m), ("n", n), ("k", k)], k));
    }
    check(cases);
}

/// 1D convolutions over a symbolic number of signals. There may be only one signal, so the rows of a block are
/// positions of the same signal.
#[test]
fn windows_of_an_open_batch() {
    let mut b = Builder::new(&["b", "60", "40"], &["5", "24"]);
    let x = b.load(DType::F32, &["b", "64", "24"], &["%0", "%1 + %3", "%4"]);
    let w = b.load(DType::F32, &["5", "24", "40"], &["%3", "%4", "%2"]);
    let y = b.dot(x, w);
    b.store(y, &["b", "60", "40"], &["%0", "%1", "%2"]);
    let grid = lower(&b.0).unwrap().grid;
    assert_eq!(grid.eval(&|_| Some(3)).unwrap(), 3 * 2, "{grid}: a panel of 32 columns, and one of 8");
    check([0, 1, 3].map(|n| case(&format!("b = {n}"), b.0.clone(), &[("b", n)], 120)).into());
}

/// gelu(x · w + bias) + residual
fn full(m: &str, n: &str, k: &str) -> Kernel {
    let mut b = product(m, n, k);
    let sum = b.0.body.len() - 1;
    let bias = b.load(DType::F32, &[n], &["%1"]);
    let y = b.apply(ScalarFn::Add, &[sum, bias]);
    let y = b.gelu(y);
    let residual = b.load(DType::F32, &[m, n], &["%0", "%1"]);
    let y = b.apply(ScalarFn::Add, &[y, residual]);
    b.store(y, &[m, n], &["%0", "%1"]);
    b.0
}

#[test]
fn epilogues() {
    let mut cases = vec![];
    for (m, n) in [(3i64, 32i64), (50, 70), (13, 5)] {
        let (ms, ns) = (m.to_string(), n.to_string());
        cases.push(case(&format!("gelu {m}x{n}"), full(&ms, &ns, "24"), &[], 24));
        cases.push(case(&format!("gelu m {m}x{n}"), full("m", "n", "24"), &[("m", m), ("n", n)], 24));
        let mut b = product("m", &ns, "24");
        let sum = b.0.body.len() - 1;
        let bias = b.load(DType::F32, &[&ns], &["%1"]);
        let y = b.apply(ScalarFn::Add, &[sum, bias]);
        b.store(y, &["m", &ns], &["%0", "%1"]);
        cases.push(case(&format!("bias {m}x{n}"), b.0, &[("m", m)], 24));
    }
    check(cases);
}

#[test]
fn several_stores_and_types() {
    let mut b = product("m", "40", "24");
    let sum = b.0.body.len() - 1;
    let scale = b.load(DType::F32, &[], &[]);
    let per_row = b.load(DType::F32, &["m"], &["%0"]);
    let y = b.apply(ScalarFn::Mul, &[sum, scale]);
    let y = b.apply(ScalarFn::Add, &[y, per_row]);
    let zero = b.constant(0.0, DType::F32);
    let positive = b.apply(ScalarFn::Lt, &[zero, y]);
    let wide = b.convert(y, DType::F64);
    b.store(y, &["40", "m"], &["%1", "%0"]);
    b.store(wide, &["m", "40"], &["%0", "%1"]);
    b.store(positive, &["m", "40"], &["%0", "%1"]);
    check(vec![case("stores", b.0, &[("m", 29)], 24)]);
}

pub fn packed_case(name: &str, kernel: Kernel, symbols: &[(&'static str, i64)], k: i64) -> Case {
    let original = case(name, kernel, symbols, k);
    let packed = packable(&original.kernel, Target::cpu()).unwrap_or_else(|| panic!("{name} is not packable"));
    let mut reads = original.reads.clone();
    for factor in &packed.factors {
        let source = original.reads[factor.operand].to_vec::<f32>().unwrap();
        let mut matrix = vec![];
        for k in 0..packed.factors[0].size[0] {
            for n in 0..packed.factors[0].size[1] {
                matrix.push(source[(factor.window.row(k).unwrap() + n * factor.window.stride_n) as usize]);
            }
        }
        let matrix = Tensor::from_vec(packed.factors[0].size.map(|d| d as usize).to_vec(), matrix);
        match factor.packed < reads.len() {
            true => reads[factor.packed] = matrix,
            false => reads.push(matrix),
        }
    }
    assert!(lower(&packed.kernel).unwrap().words().is_some());
    Case { kernel: packed.kernel, reads, ..original }
}

#[test]
fn packed_operands() {
    let mut cases = vec![];
    for (m, n, k) in [(1i64, 32i64, 5i64), (30, 70, 24), (50, 96, 33)] {
        let (ns, ks) = (n.to_string(), k.to_string());
        cases.push(packed_case(&format!("packed {m}x{n}x{k}"), plain("m", &ns, &ks), &[("m", m)], k));
        cases.push(packed_case(&format!("gelu {m}x{n}x{k}"), full("m", &ns, &ks), &[("m", m)], k));
        // The weights are b[n, k], as exporters write `Gemm` with transB.
        let mut b = Builder::new(&["m", &ns], &[&ks]);
        let x = b.load(DType::F32, &["m", &ks], &["%0", "%2"]);
        let y = b.load(DType::F32, &[&ns, &ks], &["%1", "%2"]);
        let sum = b.dot(x, y);
        b.store(sum, &["m", &ns], &["%0", "%1"]);
        cases.push(packed_case(&format!("transposed {m}x{n}x{k}"), b.0, &[("m", m)], k));
    }
    check(cases);
}

#[test]
fn packed_operands_of_several_dimensions() {
    // x[b, s, k] · w[k, h·d] → q[b, h, s, d]: two variables form the columns.
    let mut q = Builder::new(&["b", "3", "s", "32"], &["20"]);
    let x = q.load(DType::F32, &["b", "s", "20"], &["%0", "%2", "%4"]);
    let w = q.load(DType::F32, &["20", "96"], &["%4", "32*%1 + %3"]);
    let sum = q.dot(x, w);
    q.store(sum, &["b", "3", "s", "32"], &["%0", "%1", "%2", "%3"]);
    // y[s, h·d] · w[h, d, n] → z[s, n]: two variables form the rows of w.
    let mut z = Builder::new(&["s", "40"], &["3", "8"]);
    let y = z.load(DType::F32, &["s", "24"], &["%0", "8*%2 + %3"]);
    let w = z.load(DType::F32, &["3", "8", "40"], &["%2", "%3", "%1"]);
    let sum = z.dot(y, w);
    z.store(sum, &["s", "40"], &["%0", "%1"]);
    check(vec![packed_case("heads", q.0, &[("b", 2), ("s", 13)], 20), packed_case("joined", z.0, &[("s", 50)], 24)]);
}

#[test]
fn what_would_not_be_faster_is_not_packable() {
    assert!(packable(&scores(2, 32), Target::cpu()).is_none(), "no constant sizes");
    let mut b = Builder::new(&["2", "m", "32"], &["8"]);
    let x = b.load(DType::F32, &["2", "m", "8"], &["%0", "%1", "%3"]);
    let w = b.load(DType::F32, &["2", "8", "32"], &["%0", "%3", "%2"]);
    let sum = b.dot(x, w);
    b.store(sum, &["2", "m", "32"], &["%0", "%1", "%2"]);
    assert!(packable(&b.0, Target::cpu()).is_none(), "a batch of matrices");
    // Not packable, because the columns of a head would not begin at a panel boundary.
    let mut q = Builder::new(&["3", "s", "20"], &["16"]);
    let x = q.load(DType::F32, &["s", "16"], &["%1", "%3"]);
    let w = q.load(DType::F32, &["16", "60"], &["%3", "20*%0 + %2"]);
    let sum = q.dot(x, w);
    q.store(sum, &["3", "s", "20"], &["%0", "%1", "%2"]);
    assert!(packable(&q.0, Target::cpu()).is_none(), "heads of 20 columns");
    check(vec![case("batch", b.0, &[("m", 9)], 8), case("heads", q.0, &[("s", 9)], 16)]);
}

#[test]
fn a_batch_of_rows_merges_into_one_dimension() {
    // x[b, s, k] · w[k, n] → y[b, s, n]
    let mut b = Builder::new(&["b", "s", "64"], &["20"]);
    let x = b.load(DType::F32, &["b", "s", "20"], &["%0", "%1", "%3"]);
    let w = b.load(DType::F32, &["20", "64"], &["%3", "%2"]);
    let sum = b.dot(x, w);
    b.store(sum, &["b", "s", "64"], &["%0", "%1", "%2"]);
    assert_eq!(lower(&b.0).unwrap().def.outer.len(), 2);
    check(vec![case("merged", b.0, &[("b", 3), ("s", 7)], 20)]);
}

#[test]
fn attention_products_on_strided_views() {
    let mut cases = vec![];
    for (h, d, b, s) in [(3i64, 32i64, 2i64, 37i64), (2, 64, 1, 50), (2, 16, 2, 64), (4, 5, 1, 9)] {
        let symbols = [("b", b), ("s", s), ("t", s + 3)];
        for kernel in [scores(h, d), mixed(h, d)] {
            assert!(lower(&kernel).unwrap().words().is_some());
            cases.push(case(&format!("h{h} d{d} b{b} s{s}"), kernel, &symbols, s.max(d)));
        }
    }
    check(cases);
}

#[test]
fn the_transposed_result_swaps_the_operands() {
    let mut b = Builder::new(&["m", "n"], &["k"]);
    let x = b.load(DType::F32, &["m", "k"], &["%0", "%2"]);
    let y = b.load(DType::F32, &["k", "n"], &["%2", "%1"]);
    let sum = b.dot(x, y);
    b.store(sum, &["n", "m"], &["%1", "%0"]);
    check(vec![case("transposed", b.0, &[("m", 45), ("n", 19), ("k", 21)], 21)]);
}

#[test]
fn forms_without_a_fast_path_are_right_too() {
    // Two inner dimensions that do not merge.
    let mut two = Builder::new(&["m", "n"], &["4", "k"]);
    let x = two.load(DType::F32, &["4", "m", "k"], &["%2", "%0", "%3"]);
    let y = two.load(DType::F32, &["4", "k", "n"], &["%2", "%3", "%1"]);
    let sum = two.dot(x, y);
    two.store(sum, &["m", "n"], &["%0", "%1"]);
    // Other element types.
    let mut long = Builder::new(&["m", "n"], &["k"]);
    let x = long.load(DType::I32, &["m", "k"], &["%0", "%2"]);
    let y = long.load(DType::I32, &["n", "k"], &["%1", "%2"]);
    let sum = long.dot(x, y);
    long.store(sum, &["m", "n"], &["%0", "%1"]);
    // A dot product, a matrix by a vector, a sum of squares.
    let mut dot = Builder::new(&[], &["k"]);
    let x = dot.load(DType::F32, &["k"], &["%0"]);
    let y = dot.load(DType::F32, &["k"], &["%0"]);
    let sum = dot.dot(x, y);
    dot.store(sum, &[], &[]);
    let mut vector = Builder::new(&["m"], &["k"]);
    let x = vector.load(DType::F32, &["m", "k"], &["%0", "%1"]);
    let y = vector.load(DType::F32, &["k"], &["%1"]);
    let sum = vector.dot(x, y);
    vector.store(sum, &["m"], &["%0"]);
    let mut squares = Builder::new(&["m"], &["k"]);
    let x = squares.load(DType::F32, &["m", "k"], &["%0", "%1"]);
    let sum = squares.dot(x, x);
    squares.store(sum, &["m"], &["%0"]);
    let symbols = [("m", 7), ("n", 18), ("k", 35)];
    check(vec![
        case("two", two.0, &symbols, 140),
        case("i32", long.0, &symbols, 0).exact(),
        case("dot", dot.0, &symbols, 35),
        case("vector", vector.0, &symbols, 35),
        case("squares", squares.0, &symbols, 35),
    ]);
}

/// q[b, h, s, d] · k[b, h, t, d] → p[b, h, s, t], and p · v[b, h, t, d], where k and v have spare capacity.
#[test]
fn operands_with_room_for_more() {
    let scores = || {
        let mut b = Builder::new(&["b", "3", "s", "t"], &["8"]);
        let q = b.load(DType::F32, &["b", "3", "s", "8"], &["%0", "%1", "%2", "%4"]);
        let k = b.load(DType::F32, &["b", "3", "t", "8"], &["%0", "%1", "%3", "%4"]);
        let sum = b.dot(q, k);
        b.store(sum, &["b", "3", "s", "t"], &["%0", "%1", "%2", "%3"]);
        b.room(1, 2, "room").0
    };
    let mixed = || {
        let mut b = Builder::new(&["b", "3", "s", "8"], &["t"]);
        let p = b.load(DType::F32, &["b", "3", "s", "t"], &["%0", "%1", "%2", "%4"]);
        let v = b.load(DType::F32, &["b", "3", "t", "8"], &["%0", "%1", "%4", "%3"]);
        let sum = b.dot(p, v);
        b.store(sum, &["b", "3", "s", "8"], &["%0", "%1", "%2", "%3"]);
        b.room(1, 2, "room").0
    };
    // Spare capacity keeps the fast path, because it only changes the stride, which is a parameter in any case.
    assert!(lower(&scores()).unwrap().words().is_some());
    assert!(lower(&mixed()).unwrap().words().is_some());
    let mut cases = vec![];
    for (b, s, t, room) in [(2, 1, 40, 64), (1, 5, 33, 33), (2, 49, 64, 100), (2, 3, 0, 7)] {
        let symbols = [("b", b), ("s", s), ("t", t), ("room", room)];
        cases.push(case(&format!("scores {b} {s} {t} of {room}"), scores(), &symbols, 8));
        cases.push(case(&format!("mixed {b} {s} {t} of {room}"), mixed(), &symbols, t));
    }
    check(cases);
}

/// Several heads of q share one head of k and v, whose index is not a linear function of the head.
#[test]
fn heads_that_share_an_operand() {
    let scores = |s: &str| {
        let mut b = Builder::new(&["b", "6", s, "t"], &["8"]);
        let q = b.load(DType::F32, &["b", "6", s, "8"], &["%0", "%1", "%2", "%4"]);
        let k = b.load(DType::F32, &["b", "2", "t", "8"], &["%0", "%1 floordiv 3", "%3", "%4"]);
        let sum = b.dot(q, k);
        b.store(sum, &["b", "6", s, "t"], &["%0", "%1", "%2", "%3"]);
        b.room(1, 2, "room").0
    };
    let mixed = |s: &str| {
        let mut b = Builder::new(&["b", "6", s, "8"], &["t"]);
        let p = b.load(DType::F32, &["b", "6", s, "t"], &["%0", "%1", "%2", "%4"]);
        let v = b.load(DType::F32, &["b", "2", "t", "8"], &["%0", "%1 floordiv 3", "%4", "%3"]);
        let sum = b.dot(v, p);
        b.store(sum, &["b", s, "6", "8"], &["%0", "%2", "%1", "%3"]);
        b.room(1, 2, "room").0
    };
    assert!(lower(&scores("s")).unwrap().words().is_some());
    assert!(lower(&mixed("s")).unwrap().words().is_some());
    assert!(lower(&mixed("1")).unwrap().words().is_some());
    let mut cases = vec![];
    for (b, s, t, room) in [(2, 1, 40, 64), (1, 5, 33, 33), (2, 49, 64, 100), (2, 3, 0, 7)] {
        let symbols = [("b", b), ("s", s), ("t", t), ("room", room)];
        for (rows, s) in [("s", s), ("1", 1)] {
            cases.push(case(&format!("scores {b} {rows} {s} {t}"), scores(rows), &symbols, 8));
            cases.push(case(&format!("mixed {b} {rows} {s} {t}"), mixed(rows), &symbols, t));
        }
    }
    check(cases);
}

/// A variable in a computed index becomes a batch variable, and the contraction is computed separately for each of its
/// values. This is impossible for a variable that is reduced over.
#[test]
fn computed_rows_and_summands() {
    for (index, blocked) in [(["%0 floordiv 2", "%2"], true), (["%0", "%2 floordiv 2"], false)] {
        let mut b = Builder::new(&["12", "40"], &["16"]);
        let x = b.load(DType::F32, &["12", "16"], &index);
        let y = b.load(DType::F32, &["16", "40"], &["%2", "%1"]);
        let sum = b.dot(x, y);
        b.store(sum, &["12", "40"], &["%0", "%1"]);
        assert_eq!(lower(&b.0).unwrap().words().is_some(), blocked, "{index:?}");
        check(vec![case(&index.join(","), b.0, &[], 16)]);
    }
}

#[test]
fn few_rows_by_pairs_of_panels() {
    let mut cases = vec![];
    for n in [64i64, 70, 96, 130] {
        for m in [0i64, 1, 2, 3, 49, 50] {
            let ns = n.to_string();
            cases.push(packed_case(&format!("{m} by {n}"), plain("m", &ns, "7"), &[("m", m)], 7));
            cases.push(packed_case(&format!("gelu {m} by {n}"), full("m", &ns, "7"), &[("m", m)], 7));
        }
        let ns = n.to_string();
        let mut b = Builder::new(&[&ns], &["7"]);
        let x = b.load(DType::F32, &["7"], &["%1"]);
        let w = b.load(DType::F32, &["7", &ns], &["%1", "%0"]);
        let sum = b.dot(x, w);
        b.store(sum, &[&ns], &["%0"]);
        cases.push(packed_case(&format!("no rows by {n}"), b.0, &[], 7));
    }
    check(cases);
}

/// A row has the same bits whether few or many rows are computed, in blocks of every size.
#[test]
fn a_row_does_not_depend_on_the_others() {
    rows_are_independent("plain", plain("m", "70", "19"), 70);
    rows_are_independent("gelu", full("m", "96", "19"), 96);
}

/// Checks, for a kernel over `m` rows and `n` columns and several m up to 49, that the first m of 50 rows have the same
/// bits if only they are computed.
pub fn rows_are_independent(name: &str, kernel: Kernel, n: usize) {
    let whole = packed_case(name, kernel, &[("m", 50)], 19);
    let lowered = lower(&whole.kernel).unwrap();
    let library = Library::new(&build_shared_object(&[("k".to_string(), &lowered)]).unwrap());
    for level in levels() {
        let f = library.kernel("k", level);
        let (expected, _) = run(f, &lowered, &whole, i64::MAX / 2);
        for m in (1..=17).chain([47, 48, 49]) {
            let first_rows = |t: &Tensor, c: &Container| match c.dims.first().and_then(Dim::as_name) {
                Some("m") => {
                    let (columns, all) = (t.dims()[1], t.to_vec::<f32>().unwrap());
                    Tensor::from_vec(vec![m, columns], all[..m * columns].to_vec())
                }
                _ => t.clone(),
            };
            let reads = whole.reads.iter().zip(&whole.kernel.reads).map(|(t, c)| first_rows(t, c)).collect();
            let symbols = vec![("m", m as i64)];
            let kernel = whole.kernel.clone();
            let some = Case { name: name.into(), kernel, symbols, reads, absolute: 0.0, relative: 0.0 };
            let (got, _) = run(f, &lowered, &some, i64::MAX / 2);
            assert!(got[0][..] == expected[0][..m * n * 4], "{name} {}: {m} rows", level.name());
        }
    }
}

/// A convolution: y[b, o, h, w] = Σ x[b, c, stride·h + i, stride·w + j] · k[o, c, i, j], with a bias and max(·, 0).
struct Image {
    size: [i64; 2],
    window: [i64; 2],
    channels: [i64; 2],
    stride: i64,
}

impl Image {
    fn kernel(&self, order: Option<[usize; 4]>) -> Kernel {
        let Image { size: [h, w], window: [i, j], channels: [c, o], stride } = self;
        let [hs, ws, is, js, cs, os] = [h, w, i, j, c, o].map(i64::to_string);
        let mut b = Builder::new(&["b", &os, &hs, &ws], &[&cs, &is, &js]);
        let [rows, columns] = [stride * (h - 1) + i, stride * (w - 1) + j].map(|n| n.to_string());
        let at = [format!("{stride}*%2 + %5"), format!("{stride}*%3 + %6")];
        let x = b.load(DType::F32, &["b", &cs, &rows, &columns], &["%0", "%4", &at[0], &at[1]]);
        let k = b.load(DType::F32, &[&os, &cs, &is, &js], &["%1", "%4", "%5", "%6"]);
        let sum = b.dot(x, k);
        let bias = b.load(DType::F32, &[&os], &["%1"]);
        let y = b.apply(ScalarFn::Add, &[sum, bias]);
        let zero = b.constant(0.0, DType::F32);
        let y = b.apply(ScalarFn::Max, &[y, zero]);
        b.store(y, &["b", &os, &hs, &ws], &["%0", "%1", "%2", "%3"]);
        if let Some(order) = order {
            b.0.reads[0].layout = Layout::Order(order.to_vec());
            b.0.writes[0].layout = Layout::Order(order.to_vec());
        }
        b.0
    }
}

#[test]
fn convolutions() {
    let image = |size, window, channels, stride| Image { size, window, channels, stride };
    let images = [
        image([5, 7], [3, 3], [6, 40], 1),
        image([3, 50], [3, 1], [4, 32], 2),
        image([7, 7], [2, 5], [16, 70], 1),
        image([14, 3], [1, 1], [20, 64], 2),
        image([1, 1], [3, 3], [5, 33], 1),
    ];
    let last = Some([0, 2, 3, 1]);
    let mut cases = vec![];
    for (at, i) in images.iter().enumerate() {
        let k = i.window[0] * i.window[1] * i.channels[0];
        for batch in [1, 3] {
            cases.push(packed_case(&format!("channels last {at} x{batch}"), i.kernel(last), &[("b", batch)], k));
        }
        let blocked = |kernel: &Kernel| lower(kernel).unwrap().words().is_some();
        let plain = i.kernel(None);
        assert!(blocked(&plain) || i.stride > 1, "image {at}");
        cases.push(case(&format!("rows {at}"), plain, &[("b", 2)], k));
    }
    check(cases);
}

/// Each channel has separate filter weights; the image may be either operand of the product.
#[test]
fn depthwise_convolutions() {
    let mut cases = vec![];
    for (channels, size, stride) in [(40i64, [5i64, 30i64], 1i64), (3, [4, 7], 2), (33, [2, 13], 2), (16, [1, 1], 1)] {
        let [h, w] = size;
        let [cs, hs, ws] = [channels, h, w].map(|n| n.to_string());
        let [rows, columns] = [stride * (h - 1) + 3, stride * (w - 1) + 3].map(|n| n.to_string());
        let mut b = Builder::new(&["b", &hs, &ws, &cs], &["3", "3"]);
        let at = [format!("{stride}*%1 + %4"), format!("{stride}*%2 + %5")];
        let x = b.load(DType::F32, &["b", &rows, &columns, &cs], &["%0", &at[0], &at[1], "%3"]);
        let k = b.load(DType::F32, &["3", "3", &cs], &["%4", "%5", "%3"]);
        let sum = if stride == 1 { b.dot(x, k) } else { b.dot(k, x) };
        let bias = b.load(DType::F32, &[&cs], &["%3"]);
        let y = b.apply(ScalarFn::Add, &[sum, bias]);
        b.store(y, &["b", &hs, &ws, &cs], &["%0", "%1", "%2", "%3"]);
        assert!(lower(&b.0).unwrap().words().is_some(), "{channels} channels");
        cases.push(case(&format!("depthwise {channels}"), b.0, &[("b", 2)], 9));
    }
    check(cases);
}
