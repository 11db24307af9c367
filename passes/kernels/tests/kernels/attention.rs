//! Attention as one kernel: sizes around the block sizes, kinds of masks, shared heads, prologues, special values

use crate::build::{Builder, attended, softmax_of};
use crate::harness::{Case, Library, check, check_on, levels, run};
use crate::tiles::executed;
use sardonyx_base::{DType, Dim, Tensor};
use sardonyx_dialects::flow::kernel::Kernel;
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_kernels::Words;
use sardonyx_kernels::codegen::build_shared_object;
use sardonyx_kernels::lower;
use sardonyx_passes::narrowed_attention;

const F: DType = DType::F32;

/// Variants of the softmax.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// The weights are divided by their sum before they are multiplied by the values.
    Inside,
    /// The weighted sum of the values is divided by the sum of the weights.
    Outside,
    /// As ONNX's `Attention` with a mask: rows that see no key are 0.
    Visible,
}

#[derive(Clone, Copy, PartialEq)]
enum Mask {
    None,
    /// One number per key, added to the scores.
    Keys,
    /// A bool per query and key.
    Pairs,
    /// One number per head, query and key, added to the scores.
    Bias,
    Causal,
}

/// q[b, h, s, d] · k[b, h, t, d] → softmax → · v[b, h, t, e] → y[b, s, h, e]
fn attention(h: &str, s: &str, t: &str, (d, e): (&str, &str), form: Form, mask: Mask) -> Kernel {
    let mut b = Builder::new(&["b", h, s, e], &[t]).deep(&[d]);
    let q = b.load(F, &["b", h, s, d], &["%0", "%1", "%2", "%5"]);
    let k = b.load(F, &["b", h, t, d], &["%0", "%1", "%4", "%5"]);
    let score = b.dot(q, k);
    finish(&mut b, score, (h, s, t, e), form, mask, "%1");
    b.0
}

/// Appends the statements that follow the score: mask, softmax and weighted sum; `kv` is the head of v.
fn finish(b: &mut Builder, score: usize, (h, s, t, e): (&str, &str, &str, &str), form: Form, mask: Mask, kv: &str) {
    let scale = b.constant(0.3, F);
    let x = b.apply(ScalarFn::Mul, &[score, scale]);
    let x = masked(b, x, (h, s, t), mask);
    let max = b.reduce(ReduceFn::Max, x);
    let least = b.constant(f32::MIN as f64, F);
    let shift = if form == Form::Visible { b.apply(ScalarFn::Max, &[max, least]) } else { max };
    let below = b.apply(ScalarFn::Sub, &[x, shift]);
    let power = b.apply(ScalarFn::Exp, &[below]);
    let total = b.reduce(ReduceFn::Add, power);
    let one = b.constant(1.0, F);
    let total = if form == Form::Visible { b.apply(ScalarFn::Max, &[total, one]) } else { total };
    let weight = if form == Form::Outside { power } else { b.apply(ScalarFn::Div, &[power, total]) };
    let v = b.load(F, &["b", h, t, e], &["%0", kv, "%4", "%3"]);
    let sum = b.dot(weight, v);
    let y = if form == Form::Outside { b.apply(ScalarFn::Div, &[sum, total]) } else { sum };
    b.store(y, &["b", s, h, e], &["%0", "%2", "%1", "%3"]);
}

fn masked(b: &mut Builder, x: usize, (h, s, t): (&str, &str, &str), mask: Mask) -> usize {
    match mask {
        Mask::None => x,
        Mask::Keys => {
            let mask = b.load(F, &["b", t], &["%0", "%4"]);
            b.apply(ScalarFn::Add, &[x, mask])
        }
        Mask::Bias => {
            let bias = b.load(F, &[h, s, t], &["%1", "%2", "%4"]);
            b.apply(ScalarFn::Add, &[x, bias])
        }
        Mask::Pairs => {
            let seen = b.load(DType::Bool, &["b", s, t], &["%0", "%2", "%4"]);
            let hidden = b.constant(f64::NEG_INFINITY, F);
            b.apply(ScalarFn::Select, &[seen, x, hidden])
        }
        Mask::Causal => {
            let (i, j) = (b.index(&format!("%2 + {t} - {s}")), b.index("%4"));
            let seen = b.apply(ScalarFn::Le, &[j, i]);
            let hidden = b.constant(-3e38, F);
            b.apply(ScalarFn::Select, &[seen, x, hidden])
        }
    }
}

/// A case whose tolerance allows scores, weights and weighted sums to have relative errors of a few times 2^-24 each.
fn case(name: &str, kernel: Kernel, symbols: &[(&'static str, i64)]) -> Case {
    assert!(lower(&kernel).unwrap().words().is_some(), "{name}");
    Case::new(name, kernel, symbols).within(4e-6, 4e-6)
}

#[test]
fn sizes_around_the_blocks() {
    let mut cases = vec![];
    for s in [1i64, 2, 3, 6, 7, 12, 13, 23, 24, 95, 96, 97, 130] {
        let symbols = [("b", 1), ("s", s), ("t", 40 + s % 5)];
        cases.push(case(&format!("s {s}"), attention("2", "s", "t", ("8", "8"), Form::Inside, Mask::None), &symbols));
        let fixed = attention("2", &s.to_string(), "33", ("8", "8"), Form::Inside, Mask::None);
        cases.push(case(&format!("fixed s {s}"), fixed, &[("b", 2)]));
    }
    for t in [0i64, 1, 15, 16, 31, 32, 33, 63, 64, 511, 512, 513, 1030] {
        let symbols = [("b", 2), ("s", 5), ("t", t)];
        cases.push(case(&format!("t {t}"), attention("2", "s", "t", ("8", "8"), Form::Inside, Mask::Keys), &symbols));
        let fixed = attention("2", "s", &t.to_string(), ("8", "8"), Form::Inside, Mask::Keys);
        cases.push(case(&format!("fixed t {t}"), fixed, &symbols[..2]));
    }
    for (d, e) in [(1i64, 2i64), (5, 7), (16, 16), (17, 33), (32, 32), (64, 64), (72, 80), (128, 96)] {
        let symbols = [("b", 1), ("s", 14), ("t", 37)];
        let kernel = attention("3", "s", "t", (&d.to_string(), &e.to_string()), Form::Inside, Mask::None);
        cases.push(case(&format!("d {d} e {e}"), kernel, &symbols));
    }
    for s in [1, 13, 40] {
        cases.push(case(&format!("merged heads {s}"), attended(3, 32), &[("b", 2), ("s", s), ("t", s)]));
    }
    for (b, s, t) in [(0, 3, 3), (1, 0, 3), (1, 0, 0)] {
        let kernel = attention("2", "s", "t", ("8", "8"), Form::Inside, Mask::None);
        cases.push(case(&format!("{b} {s} {t}"), kernel, &[("b", b), ("s", s), ("t", t)]));
    }
    check(&cases);
}

#[test]
fn forms_and_masks() {
    let mut cases = vec![];
    for form in [Form::Inside, Form::Outside, Form::Visible] {
        for (n, mask) in [Mask::None, Mask::Keys, Mask::Pairs, Mask::Bias, Mask::Causal].into_iter().enumerate() {
            // `Pairs` includes rows that see no key, and blocks in which all keys are hidden.
            for (s, t) in [(3, 21), (40, 40), (13, 700)] {
                let kernel = attention("3", "s", "t", ("16", "24"), form, mask);
                let symbols = [("b", 2), ("s", s), ("t", t)];
                let mut case = case(&format!("{} {n} {s} {t}", form as usize), kernel, &symbols);
                if mask == Mask::Pairs {
                    let (rows, columns) = (2 * s as usize, t as usize);
                    let seen = |at: usize| match at / columns % 4 {
                        0 => at.is_multiple_of(3),
                        1 => at % columns > columns * 4 / 5,
                        2 => at.is_multiple_of(columns),
                        _ => form == Form::Inside && at.is_multiple_of(2),
                    };
                    let mask = Tensor::from_vec(vec![2, s as usize, columns], (0..rows * columns).map(seen).collect());
                    case = case.read(2, mask);
                }
                cases.push(case);
            }
        }
    }
    check(&cases);
}

/// Three heads of q share one head of k and v, which have spare capacity.
#[test]
fn shared_heads_with_room() {
    let mut cases = vec![];
    for (s, t) in [("s", "t"), ("1", "t")] {
        let mut b = Builder::new(&["b", "6", s, "16"], &[t]).deep(&["16"]);
        let q = b.load(F, &["b", s, "96"], &["%0", "%2", "16*%1 + %5"]);
        let k = b.load(F, &["b", "2", t, "16"], &["%0", "%1 floordiv 3", "%4", "%5"]);
        let score = b.dot(q, k);
        let weight = softmax_of(&mut b, score);
        let v = b.load(F, &["b", "2", t, "16"], &["%0", "%1 floordiv 3", "%4", "%3"]);
        let sum = b.dot(weight, v);
        b.store(sum, &["b", s, "96"], &["%0", "%2", "16*%1 + %3"]);
        let kernel = b.room(1, 2, "room").room(2, 2, "room").0;
        for (rows, keys, room) in [(1, 40, 64), (5, 33, 33), (50, 64, 100), (3, 600, 1000)] {
            let symbols = [("b", 2), ("s", if s == "1" { 1 } else { rows }), ("t", keys), ("room", room)];
            cases.push(case(&format!("{s} {rows} {keys}"), kernel.clone(), &symbols));
        }
    }
    check(&cases);
}

/// q, k and v are parts of one container; q and k are first rotated by an angle that depends on the position.
#[test]
fn prologues_on_both_sides() {
    let turned = |b: &mut Builder, at: &str, row: &str, again: bool| {
        let index = |d: &str| [row.to_string(), format!("{at} + {d}")];
        let part = |b: &mut Builder, again: bool, d: &str| {
            let index = index(d);
            let index: Vec<&str> = index.iter().map(String::as_str).collect();
            if again { b.again(0, &index) } else { b.load(F, &["s", "144"], &index) }
        };
        let (x, y) = (part(b, again, "%4"), part(b, true, "7 - %4"));
        let angles = b.load(F, &["s", "8"], &[row, "%4"]);
        let (cos, sin) = (b.apply(ScalarFn::Cos, &[angles]), b.apply(ScalarFn::Sin, &[angles]));
        let (x, y) = (b.apply(ScalarFn::Mul, &[x, cos]), b.apply(ScalarFn::Mul, &[y, sin]));
        b.apply(ScalarFn::Add, &[x, y])
    };
    let mut b = Builder::new(&["6", "s", "8"], &["s"]).deep(&["8"]);
    let q = turned(&mut b, "8*%0", "%1", false);
    let k = turned(&mut b, "48 + 8*%0", "%3", true);
    let score = b.dot(q, k);
    let weight = softmax_of(&mut b, score);
    let v = b.again(0, &["%3", "96 + 8*%0 + %2"]);
    let sum = b.dot(v, weight);
    let residual = b.load(F, &["s", "48"], &["%1", "8*%0 + %2"]);
    let y = b.apply(ScalarFn::Add, &[sum, residual]);
    b.store(y, &["s", "48"], &["%1", "8*%0 + %2"]);
    let cases = [1, 20, 100].map(|s| case(&format!("s {s}"), b.0.clone(), &[("s", s)]));
    check(&cases);
}

/// Infinities and NaN in the mask propagate as in the interpreter.
#[test]
fn special_values() {
    let mut cases = vec![];
    for (n, special) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38, -3e38].into_iter().enumerate() {
        for at in [0usize, 39, 600] {
            for form in [Form::Inside, Form::Visible] {
                let kernel = attention("1", "s", "t", ("4", "4"), form, Mask::Keys);
                let symbols = [("b", 1), ("s", 3), ("t", 601)];
                let case = case(&format!("{n} {at}"), kernel, &symbols);
                let mut mask = case.reads[2].to_vec::<f32>().unwrap();
                mask[at] = special;
                cases.push(case.read(2, Tensor::from_vec(vec![1, 601], mask)));
            }
        }
    }
    check(&cases);
}

/// A row has the same bits alone and among 50 rows, and additional keys that are hidden do not change it.
#[test]
fn a_row_depends_on_no_other_and_on_no_hidden_key() {
    let kernel = attention("2", "s", "t", ("24", "40"), Form::Inside, Mask::Keys);
    let lowered = lower(&kernel).unwrap();
    let library = Library::new(&build_shared_object(&[("k".to_string(), &lowered)]).unwrap());
    let (s_all, t_all, t) = (50usize, 1100usize, 530usize);
    let whole = case("rows", kernel.clone(), &[("b", 1), ("s", s_all as i64), ("t", t_all as i64)]);
    let mut mask = vec![0f32; t_all];
    mask[t..].fill(-1e9);
    let whole = whole.read(2, Tensor::from_vec(vec![1, t_all], mask));
    // Returns the first `n` of the `all` rows of each head.
    let cut = |x: &Tensor, all: usize, n: usize| {
        let (x, width) = (x.to_vec::<f32>().unwrap(), x.dims()[3]);
        let heads = (0..2).flat_map(|h| x[h * all * width..][..n * width].to_vec()).collect();
        Tensor::from_vec(vec![1, 2, n, width], heads)
    };
    for level in levels() {
        let f = library.kernel("k", level);
        let (expected, _) = run(f, &lowered, &whole, i64::MAX / 2);
        for s in (1..=17).chain([24, 36, 47, 49]) {
            for t in [t, t_all] {
                let reads = vec![
                    cut(&whole.reads[0], s_all, s),
                    cut(&whole.reads[1], t_all, t),
                    Tensor::from_vec(vec![1, t], whole.reads[2].to_vec::<f32>().unwrap()[..t].to_vec()),
                    cut(&whole.reads[3], t_all, t),
                ];
                let symbols = vec![("b", 1), ("s", s as i64), ("t", t as i64)];
                let some =
                    Case { name: "".into(), kernel: kernel.clone(), symbols, reads, absolute: 0.0, relative: 0.0 };
                let (got, _) = run(f, &lowered, &some, i64::MAX / 2);
                assert!(got[0][..] == expected[0][..s * 2 * 40 * 4], "{}: {s} rows, {t} keys", level.name());
            }
        }
    }
}

/// A case with operands rounded to bf16. A few weights may round to the other neighbouring bf16 number than in the
/// interpreter, which changes them by a relative 2^-9.
fn rounded(name: &str, kernel: Kernel, symbols: &[(&'static str, i64)]) -> Case {
    let kernel = narrowed_attention(&kernel).unwrap_or_else(|why| panic!("{name}: {why}"));
    assert_eq!(lower(&kernel).unwrap().words(), Some(Words::Pairs), "{name}");
    Case::new(name, kernel, symbols).within(1e-3, 1e-3)
}

#[test]
fn rounded_factors() {
    let mut cases = vec![];
    for s in [8i64, 12, 13, 95, 97, 130] {
        let fixed = attention("2", &s.to_string(), "33", ("8", "8"), Form::Inside, Mask::None);
        cases.push(rounded(&format!("fixed s {s}"), fixed, &[("b", 2)]));
    }
    for s in [1i64, 2, 7, 50, 200] {
        let symbols = [("b", 2), ("s", s), ("t", 40 + s % 5)];
        let kernel = attention("2", "s", "t", ("32", "8"), Form::Outside, Mask::Keys);
        cases.push(rounded(&format!("s {s}"), kernel, &symbols));
    }
    for t in [0i64, 1, 2, 15, 31, 32, 33, 63, 511, 512, 513, 1030] {
        let kernel = attention("2", "s", "t", ("32", "40"), Form::Visible, Mask::Causal);
        cases.push(rounded(&format!("t {t}"), kernel, &[("b", 2), ("s", 15), ("t", t)]));
    }
    for (d, e) in [(1i64, 2i64), (5, 7), (6, 16), (17, 33), (34, 34), (64, 64), (72, 80), (128, 96)] {
        let kernel = attention("3", "s", "t", (&d.to_string(), &e.to_string()), Form::Inside, Mask::Bias);
        cases.push(rounded(&format!("d {d} e {e}"), kernel, &[("b", 1), ("s", 14), ("t", 37)]));
    }
    for s in [1, 13, 40, 128] {
        cases.push(rounded(&format!("merged heads {s}"), attended(3, 32), &[("b", 2), ("s", s), ("t", s)]));
    }
    check_on(&cases, executed);
}

/// Special values with operands rounded to bf16; with an odd number of keys, the last value has no partner in its pair.
#[test]
fn rounded_special_values() {
    let mut cases = vec![];
    for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0usize, 40, 600] {
            let kernel = attention("1", "s", "t", ("32", "4"), Form::Inside, Mask::Keys);
            let case = rounded(&format!("{special} {at}"), kernel, &[("b", 1), ("s", 9), ("t", 601)]);
            let mut values = case.reads[3].to_vec::<f32>().unwrap();
            values[4 * at] = special;
            cases.push(case.read(3, Tensor::from_vec(vec![1, 1, 601, 4], values)));
        }
    }
    check_on(&cases, executed);
}

/// All heads of q share one k, but each head has a separate v; both k and v are rounded to bf16.
#[test]
fn rounded_values_of_their_own() {
    let mut b = Builder::new(&["4", "s", "16"], &["t"]).deep(&["32"]);
    let q = b.load(F, &["4", "s", "32"], &["%0", "%1", "%4"]);
    let k = b.load(F, &["t", "32"], &["%3", "%4"]);
    let score = b.dot(q, k);
    let weight = softmax_of(&mut b, score);
    let v = b.load(F, &["4", "t", "16"], &["%0", "%3", "%2"]);
    let sum = b.dot(weight, v);
    b.store(sum, &["4", "s", "16"], &["%0", "%1", "%2"]);
    let cases = [(20, 33), (100, 100)].map(|(s, t)| rounded(&format!("{s} {t}"), b.0.clone(), &[("s", s), ("t", t)]));
    check_on(&cases, executed);
}

/// All heads of q share one k, but each head computes a v of its own, whose last vector is partial.
#[test]
fn computed_values_of_their_own() {
    let mut b = Builder::new(&["4", "s", "20"], &["t"]).deep(&["32"]);
    let q = b.load(F, &["4", "s", "32"], &["%0", "%1", "%4"]);
    let k = b.load(F, &["t", "32"], &["%3", "%4"]);
    let score = b.dot(q, k);
    let weight = softmax_of(&mut b, score);
    let v = b.load(F, &["4", "t", "20"], &["%0", "%3", "%2"]);
    let half = b.constant(0.5, F);
    let v = b.apply(ScalarFn::Mul, &[v, half]);
    let sum = b.dot(weight, v);
    b.store(sum, &["4", "s", "20"], &["%0", "%1", "%2"]);
    check(&[(20, 33), (100, 100)].map(|(s, t)| case(&format!("{s} {t}"), b.0.clone(), &[("s", s), ("t", t)])));
}

/// Rows of several sequences, concatenated: each row attends to the keys of its own sequence.
#[test]
fn runs_of_rows() {
    let plain = runs(false);
    let mut cases = vec![];
    for lengths in [vec![1i64], vec![17, 1, 40, 3], vec![100, 33], vec![5; 30]] {
        cases.extend(in_runs(&lengths, |symbols| case("exact", plain.clone(), symbols)));
        cases.extend(in_runs(&lengths, |symbols| rounded("rounded", plain.clone(), symbols)));
    }
    // Values that are computed are copied, and the copies belong to one sequence.
    let computed = runs(true);
    cases.extend(in_runs(&[20, 40], |symbols| case("computed values", computed.clone(), symbols)));
    check_on(&cases, executed);
}

/// Attention of rows to the keys of their own sequences; with `is_computed`, values are halves of what is loaded.
fn runs(is_computed: bool) -> Kernel {
    let mut b = Builder::new(&["rows", "2", "40"], &["most"]).deep(&["32"]);
    let _first = b.load(DType::I64, &["rows"], &["%0"]);
    let length = b.load(DType::I64, &["rows"], &["%0"]);
    let key = b.index("%3");
    let inside = b.apply(ScalarFn::Lt, &[key, length]);
    let q = b.load(F, &["rows", "64"], &["%0", "32*%1 + %4"]);
    let k = b.guarded(F, &["rows", "64"], &["$0 + %3", "32*%1 + %4"], Some(inside));
    let x = b.dot(q, k);
    let y = softmax_inside(&mut b, inside, x, |b| {
        let v = b.guarded(F, &["rows", "80"], &["$0 + %3", "40*%1 + %2"], Some(inside));
        let half = b.constant(0.5, F);
        if is_computed { b.apply(ScalarFn::Mul, &[v, half]) } else { v }
    });
    b.store(y, &["rows", "80"], &["%0", "40*%1 + %2"]);
    b.0
}

/// A case of a kernel of [`runs`] with sequences of these lengths.
fn in_runs(lengths: &[i64], of: impl FnOnce(&[(&'static str, i64)]) -> Case) -> Option<Case> {
    let (rows, most) = (lengths.iter().sum::<i64>(), *lengths.iter().max()?);
    let begins = lengths.iter().scan(0, |at, n| {
        *at += n;
        Some((*at - n, *n))
    });
    let tables: Vec<(i64, i64)> = begins.flat_map(|(first, n)| std::iter::repeat_n((first, n), n as usize)).collect();
    let table = |of: fn(&(i64, i64)) -> i64| Tensor::from_vec(vec![tables.len()], tables.iter().map(of).collect());
    Some(of(&[("rows", rows), ("most", most)]).read(0, table(|t| t.0)).read(1, table(|t| t.1)))
}

/// softmax(x) · v over the keys inside the sequence or list, which come first in the inner space.
fn softmax_inside(b: &mut Builder, inside: usize, x: usize, v: impl FnOnce(&mut Builder) -> usize) -> usize {
    let (hidden, none) = (b.constant(f64::NEG_INFINITY, F), b.constant(0.0, F));
    let seen = b.apply(ScalarFn::Select, &[inside, x, hidden]);
    let max = b.reduce(ReduceFn::Max, seen);
    let below = b.apply(ScalarFn::Sub, &[x, max]);
    let power = b.apply(ScalarFn::Exp, &[below]);
    let seen = b.apply(ScalarFn::Select, &[inside, power, none]);
    let total = b.reduce(ReduceFn::Add, seen);
    let v = v(b);
    let mixed = b.apply(ScalarFn::Mul, &[power, v]);
    let mixed = b.apply(ScalarFn::Select, &[inside, mixed, none]);
    let sum = b.reduce(ReduceFn::Add, mixed);
    b.apply(ScalarFn::Div, &[sum, total])
}

/// Attention over the keys listed for each block of `rows` rows, with an added mask.
fn listed(rows: i64, s: &str, most: &str) -> Kernel {
    let mut b = Builder::new(&["b", "2", s, "40"], &[most]).deep(&["32"]);
    let first = b.load(DType::I64, &["blocks"], &[&format!("%2 floordiv {rows}")]);
    let end = b.again(0, &[&format!("%2 floordiv {rows} + 1")]);
    let (length, place) = (b.apply(ScalarFn::Sub, &[end, first]), b.index("%4"));
    let inside = b.apply(ScalarFn::Lt, &[place, length]);
    let key = b.guarded(DType::I64, &["listed"], &["$0 + %4"], Some(inside));
    let at = format!("${key}");
    let q = b.load(F, &["b", "2", s, "32"], &["%0", "%1", "%2", "%5"]);
    let k = b.guarded(F, &["b", "2", "t", "32"], &["%0", "%1", &at, "%5"], Some(inside));
    let (x, scale) = (b.dot(q, k), b.constant(0.3, F));
    let x = b.apply(ScalarFn::Mul, &[x, scale]);
    let mask = b.guarded(F, &[s, "t"], &["%2", &at], Some(inside));
    let x = b.apply(ScalarFn::Add, &[x, mask]);
    let bias = b.guarded(F, &["t"], &[&at], Some(inside));
    let x = b.apply(ScalarFn::Add, &[x, bias]);
    let y = softmax_inside(&mut b, inside, x, |b| {
        b.guarded(F, &["b", "2", "t", "40"], &["%0", "%1", &at, "%3"], Some(inside))
    });
    b.store(y, &["b", s, "80"], &["%0", "%2", "40*%1 + %3"]);
    b.0
}

/// Sets the two operands with the lists of keys: the start of each block's list, and the keys.
fn tables(case: Case, lists: &[Vec<i64>]) -> Case {
    let mut starts = vec![0i64];
    starts.extend(lists.iter().scan(0, |at, list| {
        *at += list.len() as i64;
        Some(*at)
    }));
    let keys = lists.concat();
    case.read(0, Tensor::from_vec(vec![starts.len()], starts)).read(1, Tensor::from_vec(vec![keys.len()], keys))
}

/// Lists with runs of one key, of part of a panel and of more than a block, in any order; also an empty list.
#[test]
fn lists_of_keys() {
    let lists = |some: &[&[(i64, i64)]]| -> Vec<Vec<i64>> {
        some.iter().map(|runs| runs.iter().flat_map(|(first, end)| *first..*end).collect()).collect()
    };
    let all: Vec<(i64, i64, i64, Vec<Vec<i64>>)> = vec![
        (20, 45, 70, lists(&[&[(0, 70)], &[(3, 4), (20, 57)], &[(69, 70)]])),
        (96, 100, 560, lists(&[&[(0, 560)], &[(500, 513), (0, 3), (520, 553)]])),
        (24, 48, 40, lists(&[&[], &[(1, 3), (7, 8), (30, 40)]])),
    ];
    let mut cases = vec![];
    for (rows, s, t, lists) in all {
        let (longest, n) = (lists.iter().map(Vec::len).max().unwrap() as i64, lists.concat().len() as i64);
        let symbols =
            [("b", 2), ("s", s), ("most", longest), ("t", t), ("blocks", lists.len() as i64 + 1), ("listed", n)];
        let (known, most) = (s.to_string(), longest.to_string());
        for kernel in [listed(rows, "s", "most"), listed(rows, &known, &most)] {
            cases.push(tables(case(&format!("lists {rows}"), kernel.clone(), &symbols), &lists));
            cases.push(tables(rounded(&format!("rounded lists {rows}"), kernel, &symbols), &lists));
        }
    }
    check_on(&cases, executed);
}

/// Listed keys are checked before they are used as indices, and positions in the list are checked before keys are read
/// there; a failed check sets the status.
#[test]
fn false_lists_set_the_status() {
    let symbols = [("b", 1), ("s", 40), ("most", 30), ("t", 35), ("blocks", 3), ("listed", 50)];
    let good: Vec<Vec<i64>> = vec![(0..20).collect(), (5..35).collect()];
    let kernel = listed(24, "s", "most");
    let with = |name: &str, lists: &[Vec<i64>]| tables(case(name, kernel.clone(), &symbols), lists);
    let key = |at: usize, value: i64| {
        let mut lists = good.clone();
        lists[1][at] = value;
        with(&format!("key {at} is {value}"), &lists)
    };
    let start = |values: [i64; 3]| {
        let starts = Tensor::from_vec(vec![3], values.to_vec());
        with(&format!("lists begin at {values:?}"), &good).read(0, starts)
    };
    let bad = [key(0, -1), key(3, 35), key(29, i64::MAX), key(0, i64::MIN), start([0, 25, 51]), start([-1, 20, 50])];
    let cases: Vec<Case> = [with("good", &good)].into_iter().chain(bad).collect();
    let lowered = lower(&cases[0].kernel).unwrap();
    let library = Library::new(&build_shared_object(&[("k".into(), &lowered)]).unwrap());
    for level in levels() {
        for (i, case) in cases.iter().enumerate() {
            let (_, status) = run(library.kernel("k", level), &lowered, case, i64::MAX / 2);
            assert_eq!(status, i64::from(i > 0), "{} {}", case.name, level.name());
        }
    }
}

/// Element format of a cache, instead of f32.
#[derive(Clone, Copy, Debug)]
enum Held {
    Bf16,
    /// i8 codes with an f32 scale per row.
    Bytes,
    /// i8 codes with an exponent per block of this many codes.
    Blocks(i64),
    /// Two 4-bit codes per byte, with an exponent per 32 codes.
    Pairs,
}

/// Loads element `at` of row `j` (of `n` elements) of k or v, for the head that head %1 of q uses.
fn held(b: &mut Builder, form: Held, (j, at, n): (&str, &str, i64)) -> usize {
    let (head, length) = ("%1 floordiv 3", n.to_string());
    let unit = |b: &mut Builder, block: i64| {
        let (blocks, of) = ((n / block).to_string(), format!("{at} floordiv {block}"));
        let exponent = b.load(DType::U8, &["b", "2", "t", &blocks], &["%0", head, j, &of]);
        let (wide, by) = (b.convert(exponent, DType::I32), b.constant(23.0, DType::I32));
        let bits = b.apply(ScalarFn::Shl, &[wide, by]);
        b.reinterpret(bits, F)
    };
    match form {
        Held::Bf16 => {
            let x = b.load(DType::BF16, &["b", "2", "t", &length], &["%0", head, j, at]);
            b.convert(x, F)
        }
        Held::Bytes | Held::Blocks(_) => {
            let codes = b.load(DType::I8, &["b", "2", "t", &length], &["%0", head, j, at]);
            let codes = b.convert(codes, F);
            let by = match form {
                Held::Blocks(block) => unit(b, block),
                _ => b.load(F, &["b", "2", "t", "1"], &["%0", head, j, "0"]),
            };
            b.apply(ScalarFn::Mul, &[codes, by])
        }
        Held::Pairs => {
            let place = format!("16*({at} floordiv 32) + ({at} - 16*({at} floordiv 16))");
            let bytes = b.load(DType::U8, &["b", "2", "t", &(n / 2).to_string()], &["%0", head, j, &place]);
            let (bytes, up) = (b.convert(bytes, DType::I32), b.load(DType::I32, &[&length], &[at]));
            let (high, by) = (b.apply(ScalarFn::Shl, &[bytes, up]), b.constant(28.0, DType::I32));
            let codes = b.apply(ScalarFn::Shr, &[high, by]);
            let (codes, unit) = (b.convert(codes, F), unit(b, 32));
            b.apply(ScalarFn::Mul, &[codes, unit])
        }
    }
}

/// Codes of keys and of values are decoded where they are read; three heads of q share a head of the cache, which has
/// spare capacity.
#[test]
fn caches_in_few_bits() {
    let mut cases = vec![];
    for (form, n) in [
        (Held::Bf16, 64i64),
        (Held::Bytes, 64),
        (Held::Bytes, 24),
        (Held::Blocks(32), 64),
        (Held::Blocks(16), 48),
        (Held::Blocks(20), 20),
        (Held::Pairs, 64),
    ] {
        let width = n.to_string();
        let mut b = Builder::new(&["b", "6", "s", &width], &["t"]).deep(&[&width]);
        let q = b.load(F, &["b", "s", "6", &width], &["%0", "%2", "%1", "%5"]);
        let k = held(&mut b, form, ("%4", "%5", n));
        let score = b.dot(q, k);
        let weight = softmax_of(&mut b, score);
        let v = held(&mut b, form, ("%4", "%3", n));
        let sum = b.dot(weight, v);
        b.store(sum, &["b", "s", "6", &width], &["%0", "%2", "%1", "%3"]);
        for at in 0..b.0.reads.len() {
            if b.0.reads[at].dims.get(1) == Some(&Dim::constant(2)) {
                b.give_room(at, 2, "room");
            }
        }
        for (rows, keys, room) in [(1, 40, 64), (5, 33, 33), (30, 64, 100), (1, 600, 700)] {
            let symbols = [("b", 2), ("s", rows), ("t", keys), ("room", room)];
            let mut case = case(&format!("{form:?} {n}: {rows} {keys}"), b.0.clone(), &symbols);
            for at in 0..case.reads.len() {
                let dims = case.reads[at].dims().to_vec();
                let places = 0..case.reads[at].len();
                case = match (case.reads[at].dtype(), dims.last()) {
                    // Exponents; the i32 operand below holds the shifts that move a 4-bit code to the highest bits.
                    (DType::U8, Some(1..=4)) => {
                        case.read(at, Tensor::from_vec(dims, places.map(|i| 118 + i as u8 % 5).collect()))
                    }
                    (F, Some(1)) => {
                        case.read(at, Tensor::from_vec(dims, places.map(|i| 1e-3 * (1 + i % 5) as f32).collect()))
                    }
                    (DType::I32, _) => case
                        .read(at, Tensor::from_vec(dims, places.map(|i| if i % 32 < 16 { 28 } else { 24 }).collect())),
                    _ => case,
                };
            }
            cases.push(case);
        }
    }
    check(&cases);
}
