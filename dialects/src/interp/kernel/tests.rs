//! Maps, normalisations, contractions and attention on hand-computed cases, packed operands, and defects in kernels

use super::*;
use crate::flow::Store;
use crate::scalar::Conversion;
use sardonyx_base::Encoding;

fn dim(text: &str) -> Dim {
    Dim::parse(text).unwrap()
}

fn dims(texts: &[&str]) -> Vec<Dim> {
    texts.iter().map(|t| dim(t)).collect()
}

fn container(dtype: DType, of: &[&str]) -> Container {
    Container::plain(dtype, dims(of))
}

fn memlet(container: usize, index: &[&str]) -> Memlet {
    Memlet { container, index: dims(index) }
}

fn load(dtype: DType, container: usize, index: &[&str]) -> Statement {
    Statement { body: Body::Load { memlet: memlet(container, index), guard: None }, dtype }
}

fn apply_to(f: ScalarFn, args: &[usize], dtype: DType) -> Statement {
    Statement { body: Body::Apply { f, args: args.to_vec() }, dtype }
}

fn statement(body: Body, dtype: DType) -> Statement {
    Statement { body, dtype }
}

fn store(value: usize, index: &[&str]) -> Store {
    Store { memlet: memlet(0, index), value }
}

fn f32s(dims: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_vec(dims.to_vec(), values.to_vec())
}

fn floats(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

const F: DType = DType::F32;

/// y[m, n] = relu(Σ_k a[m, k] · b[k, n] + c[n])
fn contraction() -> Kernel {
    Kernel {
        outer: dims(&["m", "n"]),
        inner: dims(&["k"]),
        deep: vec![],
        reads: vec![container(F, &["m", "k"]), container(F, &["k", "n"]), container(F, &["n"])],
        writes: vec![container(F, &["m", "n"])],
        body: vec![
            load(F, 0, &["%0", "%2"]),
            load(F, 1, &["%2", "%1"]),
            apply_to(ScalarFn::Mul, &[0, 1], F),
            statement(Body::Reduce { f: ReduceFn::Add, arg: 2 }, F),
            load(F, 2, &["%1"]),
            apply_to(ScalarFn::Add, &[3, 4], F),
            statement(Body::Const(0.0), F),
            apply_to(ScalarFn::Max, &[5, 6], F),
        ],
        stores: vec![store(7, &["%0", "%1"])],
    }
}

fn sizes(m: i64, n: i64, k: i64) -> impl Fn(&str) -> Option<i64> {
    move |name| [("m", m), ("n", n), ("k", k)].iter().find(|(s, _)| *s == name).map(|(_, v)| *v)
}

/// y[i] = the value of statement `value` of `body` at point i, for n points; `body` loads from x[n].
fn map_kernel(body: Vec<Statement>, value: usize) -> Kernel {
    Kernel {
        outer: dims(&["n"]),
        inner: vec![],
        deep: vec![],
        reads: vec![container(F, &["n"])],
        writes: vec![container(body[value].dtype, &["n"])],
        body,
        stores: vec![store(value, &["%0"])],
    }
}

fn defect(kernel: &Kernel) -> String {
    let e = run_kernel(kernel, &sizes(2, 2, 2), &[f32s(&[2], &[1.0, 2.0])]).unwrap_err();
    assert_eq!(e.code, "E0901", "{e}");
    e.message
}

#[test]
fn a_contraction_with_its_epilogue() {
    let (a, b) = (f32s(&[2, 2], &[1., 2., 3., 4.]), f32s(&[2, 2], &[1., -1., 0., 1.]));
    let out = run_kernel(&contraction(), &sizes(2, 2, 2), &[a, b, f32s(&[2], &[0.5, -2.0])]).unwrap();
    assert_eq!(floats(&out[0]), [1.5, 0.0, 3.5, 0.0]);
}

#[test]
fn an_empty_reduction_is_neutral_and_an_empty_result_is_empty() {
    let none = [f32s(&[1, 0], &[]), f32s(&[0, 2], &[]), f32s(&[2], &[0.5, -2.0])];
    assert_eq!(floats(&run_kernel(&contraction(), &sizes(1, 2, 0), &none).unwrap()[0]), [0.5, 0.0]);
    let none = [f32s(&[0, 3], &[]), f32s(&[3, 2], &[0.0; 6]), f32s(&[2], &[0.0; 2])];
    assert_eq!(run_kernel(&contraction(), &sizes(0, 2, 3), &none).unwrap()[0].dims(), [0, 2]);
}

#[test]
fn panels_are_indexed_by_their_logical_dimensions() {
    let mut packed = contraction();
    packed.reads[1].encoding = Encoding::Panels { width: 16, depth: 1 };
    packed.reads[1].dims = dims(&["2", "2"]);
    let b = f32s(&[2, 2], &[1., -1., 0., 1.]);
    let args = |b: Tensor| [f32s(&[2, 2], &[1., 2., 3., 4.]), b, f32s(&[2], &[0.0; 2])];
    let plain = run_kernel(&contraction(), &sizes(2, 2, 2), &args(b.clone())).unwrap();
    assert_eq!(floats(&run_kernel(&packed, &sizes(2, 2, 2), &args(b)).unwrap()[0]), floats(&plain[0]));
}

#[test]
fn softmax_uses_row_values_at_point_level() {
    let softmax = Kernel {
        outer: dims(&["m"]),
        inner: dims(&["n"]),
        deep: vec![],
        reads: vec![container(F, &["m", "n"])],
        writes: vec![container(F, &["m", "n"])],
        body: vec![
            load(F, 0, &["%0", "%1"]),
            statement(Body::Reduce { f: ReduceFn::Max, arg: 0 }, F),
            apply_to(ScalarFn::Sub, &[0, 1], F),
            apply_to(ScalarFn::Exp, &[2], F),
            statement(Body::Reduce { f: ReduceFn::Add, arg: 3 }, F),
            apply_to(ScalarFn::Div, &[3, 4], F),
        ],
        stores: vec![store(5, &["%0", "%1"])],
    };
    let x = f32s(&[2, 2], &[7.0, 7.0, 0.0, f32::NEG_INFINITY]);
    let out = run_kernel(&softmax, &sizes(2, 2, 0), &[x]).unwrap();
    assert_eq!(floats(&out[0]), [0.5, 0.5, 1.0, 0.0]);
}

#[test]
fn values_round_to_each_statement() {
    // (1 + 2^-24) rounds to 1 in f32 before 1 is subtracted.
    let body = vec![
        statement(Body::Const(1.0), F),
        statement(Body::Const(2f64.powi(-24)), F),
        apply_to(ScalarFn::Add, &[0, 1], F),
        apply_to(ScalarFn::Sub, &[2, 0], F),
    ];
    let out = run_kernel(&map_kernel(body, 3), &sizes(0, 2, 0), &[f32s(&[2], &[0.0; 2])]).unwrap();
    assert_eq!(floats(&out[0]), [0.0, 0.0]);
    let body = vec![load(F, 0, &["%0"]), statement(Body::Convert(0, Conversion::Value), DType::I8)];
    let out = run_kernel(&map_kernel(body, 1), &sizes(0, 2, 0), &[f32s(&[2], &[-1.7, 400.0])]).unwrap();
    assert_eq!(out[0].to_vec::<i8>().unwrap(), [-1, 127]);
}

#[test]
fn a_guard_keeps_a_load_inside_and_gives_zero() {
    // y[i] = i >= 1 ? x[i - 1] : 0
    let body = vec![
        statement(Body::Index(dim("%0")), DType::I64),
        statement(Body::Const(1.0), DType::I64),
        apply_to(ScalarFn::Le, &[1, 0], DType::Bool),
        statement(Body::Load { memlet: memlet(0, &["%0 - 1"]), guard: Some(2) }, F),
    ];
    let out = run_kernel(&map_kernel(body, 3), &sizes(0, 3, 0), &[f32s(&[3], &[5., 6., 7.])]).unwrap();
    assert_eq!(floats(&out[0]), [0.0, 5.0, 6.0]);
}

/// y[i, j] = table[ids[i], j]
fn lookup() -> Kernel {
    Kernel {
        outer: dims(&["n", "2"]),
        inner: vec![],
        deep: vec![],
        reads: vec![container(DType::I64, &["n"]), container(F, &["3", "2"])],
        writes: vec![container(F, &["n", "2"])],
        body: vec![load(DType::I64, 0, &["%0"]), load(F, 1, &["$0", "%1"])],
        stores: vec![store(1, &["%0", "%1"])],
    }
}

#[test]
fn loaded_indices_are_checked() {
    let table = f32s(&[3, 2], &[0., 1., 2., 3., 4., 5.]);
    let call = |ids: Vec<i64>| {
        let ids = Tensor::from_vec(vec![2], ids);
        run_kernel(&lookup(), &sizes(0, 2, 0), &[ids, table.clone()])
    };
    assert_eq!(floats(&call(vec![2, 0]).unwrap()[0]), [4., 5., 0., 1.]);
    for bad in [3, -1] {
        let e = call(vec![0, bad]).unwrap_err();
        assert_eq!(
            (e.code, e.message),
            ("E0303", format!("the index `$0` is {bad}, out of range 0..3 of dimension 0"))
        );
    }
}

#[test]
fn an_index_may_divide_and_reads_loaded_points() {
    // y[i] = Σ_j x[(i + ids[j]) mod n]: an index that is read from data at point level
    let kernel = Kernel {
        outer: dims(&["n"]),
        inner: dims(&["k"]),
        deep: vec![],
        reads: vec![container(DType::I32, &["k"]), container(F, &["n"])],
        writes: vec![container(F, &["n"])],
        body: vec![
            load(DType::I32, 0, &["%1"]),
            load(F, 1, &["(%0 + $0) mod n"]),
            statement(Body::Reduce { f: ReduceFn::Add, arg: 1 }, F),
        ],
        stores: vec![store(2, &["max(%0, 0)"])],
    };
    let ids = Tensor::from_vec(vec![2], vec![0i32, 4]);
    let out = run_kernel(&kernel, &sizes(0, 3, 2), &[ids, f32s(&[3], &[1., 10., 100.])]).unwrap();
    assert_eq!(floats(&out[0]), [11., 110., 101.]);
}

#[test]
fn points_can_be_stored_and_integers_stay_exact() {
    let kernel = Kernel {
        outer: dims(&["n"]),
        inner: dims(&["k"]),
        deep: vec![],
        reads: vec![],
        writes: vec![container(DType::I64, &["n*k"])],
        body: vec![
            statement(Body::Index(dim("k*%0 + %1")), DType::I64),
            statement(Body::Const(9007199254740992.0), DType::I64),
            apply_to(ScalarFn::Add, &[0, 1], DType::I64),
        ],
        stores: vec![store(2, &["k*%0 + %1"])],
    };
    let out = run_kernel(&kernel, &sizes(0, 1, 2), &[]).unwrap();
    assert_eq!(out[0].to_vec::<i64>().unwrap(), [1 << 53, (1 << 53) + 1]);
}

#[test]
fn every_element_is_written_exactly_once() {
    let with_store = |index: &str| {
        let mut kernel = map_kernel(vec![load(F, 0, &["%0"])], 0);
        kernel.stores[0].memlet.index = dims(&[index]);
        kernel
    };
    assert_eq!(defect(&with_store("0")), "element 0 of result 0 is written twice");
    assert_eq!(defect(&with_store("%0 + 1")), "the index `%0 + 1` is 2, out of range 0..2 of dimension 0");
    let mut short = with_store("%0");
    short.outer = dims(&["n - 1"]);
    assert_eq!(defect(&short), "element [1] of result 0 is never written");
    let mut twice = with_store("%0");
    twice.stores.push(twice.stores[0].clone());
    assert_eq!(defect(&twice), "element 0 of result 0 is written twice");
}

#[test]
fn malformed_kernels_are_defects_not_panics() {
    let x = || load(F, 0, &["%0"]);
    let cases: &[(Vec<Statement>, &str)] = &[
        (vec![load(F, 1, &["%0"])], "a load from an operand that is not there"),
        (vec![load(F, 0, &[])], "0 indices into a container of rank 1"),
        (vec![load(F, 0, &["%1"])], "`%1` is no index here"),
        (vec![load(F, 0, &["$0"])], "$0 is used before it has a value"),
        (vec![x(), load(F, 0, &["$0"])], "`$0` is no index here"),
        (vec![load(DType::F64, 0, &["%0"])], "the type is f32 where f64 is needed"),
        (vec![load(F, 0, &["%0 - 1"])], "the index `%0 - 1` is -1, out of range 0..2 of dimension 0"),
        (vec![apply_to(ScalarFn::Neg, &[0], F)], "$0 is used before it has a value"),
        (vec![x(), apply_to(ScalarFn::Add, &[0], F)], "`add` takes 2 operands, not 1"),
        (vec![x(), apply_to(ScalarFn::Lt, &[0, 0], F)], "the type is bool where f32 is needed"),
        (vec![statement(Body::Const(0.5), DType::I32)], "0.5 is no i32"),
        (vec![statement(Body::Const(f64::NAN), DType::I32)], "NaN is no i32"),
        (vec![statement(Body::Const(2.0), DType::Bool)], "2 is no bool"),
        (vec![statement(Body::Index(dim("%0")), DType::I32)], "the type is i32 where i64 is needed"),
        (
            vec![x(), statement(Body::Reduce { f: ReduceFn::Add, arg: 0 }, DType::F64)],
            "the type is f32 where f64 is needed",
        ),
    ];
    for (body, message) in cases {
        assert_eq!(defect(&map_kernel(body.clone(), body.len() - 1)), *message);
    }
    let mut row = contraction();
    row.stores[0].memlet.index = dims(&["%0", "%2"]);
    let e = run_kernel(&row, &sizes(2, 2, 2), &[]).unwrap_err();
    assert_eq!(e.message, "a row value is stored at an inner index");
}

#[test]
fn operands_and_symbols_must_fit() {
    let kernel = map_kernel(vec![load(F, 0, &["%0"])], 0);
    let code =
        |symbols: &dyn Fn(&str) -> Option<i64>, reads: &[Tensor]| run_kernel(&kernel, symbols, reads).unwrap_err().code;
    assert_eq!(code(&sizes(0, 2, 0), &[]), "E0901");
    assert_eq!(code(&sizes(0, 2, 0), &[f32s(&[3], &[0.0; 3])]), "E0901");
    assert_eq!(code(&|_| None, &[f32s(&[2], &[0.0; 2])]), "E0204");
    assert_eq!(code(&sizes(0, -1, 0), &[f32s(&[2], &[0.0; 2])]), "E0201");
    assert_eq!(code(&sizes(0, 1 << 40, 0), &[f32s(&[2], &[0.0; 2])]), "E0202");
}

#[test]
fn statements_have_the_values_that_the_results_are_made_of() {
    let kernel = contraction();
    let (a, b, c) =
        (f32s(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), f32s(&[2, 2], &[1.0, 0.0, -1.0, 2.0]), f32s(&[2], &[0.5, -9.0]));
    let reads = [a, b, c];
    let result = &run_kernel(&kernel, &sizes(2, 2, 2), &reads).unwrap()[0];
    let all = run_statements(&kernel, &sizes(2, 2, 2), &reads, &|_, _| true).unwrap();
    let stored = kernel.stores[0].value;
    assert_eq!(floats(all[stored].as_ref().unwrap()), floats(result));
    // A point statement also has the inner dimensions; a sum does not.
    let product = all[2].as_ref().unwrap();
    assert_eq!((product.dims(), floats(product)), (&[2, 2, 2][..], vec![1.0, -2.0, 0.0, 4.0, 3.0, -4.0, 0.0, 8.0]));
    let sum = all[3].as_ref().unwrap();
    assert_eq!((sum.dims(), floats(sum)), (&[2, 2][..], vec![-1.0, 4.0, -1.0, 8.0]));
    let rows = run_statements(&kernel, &sizes(2, 2, 2), &reads, &|_, level| level == Level::Row).unwrap();
    assert!(rows[2].is_none() && rows[3].is_some());
}

/// Returns y[m] = Σ_k x[index(m, k)] for x = 1, 2, 3, 4, 5.
fn sums(index: &str, m: usize, k: usize) -> Result<Vec<f32>> {
    let kernel = Kernel {
        outer: dims(&["m"]),
        inner: dims(&["k"]),
        deep: vec![],
        reads: vec![container(F, &["5"])],
        writes: vec![container(F, &["m"])],
        body: vec![load(F, 0, &[index]), statement(Body::Reduce { f: ReduceFn::Add, arg: 0 }, F)],
        stores: vec![store(1, &["%0"])],
    };
    let x = f32s(&[5], &[1.0, 2.0, 3.0, 4.0, 5.0]);
    run_kernel(&kernel, &sizes(m as i64, 0, k as i64), &[x]).map(|y| floats(&y[0]))
}

#[test]
fn loads_by_tables_read_what_their_indices_say() {
    assert_eq!(sums("%0 + 2*%1", 2, 2).unwrap(), [4.0, 6.0]);
    assert_eq!(sums("4 - %0 - %1", 3, 2).unwrap(), [9.0, 7.0, 5.0]);
    // The next two indices are not sums of an outer and an inner part; the kernel after them has no inner points.
    assert_eq!(sums("%0*%1", 3, 3).unwrap(), [3.0, 6.0, 9.0]);
    assert_eq!(sums("(%0 + %1) floordiv (2)", 2, 3).unwrap(), [4.0, 5.0]);
    assert_eq!(sums("%0 + %1", 3, 0).unwrap(), [0.0; 3]);
    for (index, at) in [("%0 + 3*%1", "the index `%0 + 3*%1` is 6"), ("%0 - %1", "is -1")] {
        let e = sums(index, 1, 3).unwrap_err();
        assert!(e.code == "E0901" && e.message.contains(at), "{e}");
    }
}

/// o[i, e] = Σ_j softmax_j(Σ_d q[i, d] · k[j, d]) · v[j, e]
fn attention() -> Kernel {
    let reduce = |f, arg| statement(Body::Reduce { f, arg }, F);
    Kernel {
        outer: dims(&["m", "e"]),
        inner: dims(&["n"]),
        deep: dims(&["k"]),
        reads: vec![container(F, &["m", "k"]), container(F, &["n", "k"]), container(F, &["n", "e"])],
        writes: vec![container(F, &["m", "e"])],
        body: vec![
            load(F, 0, &["%0", "%3"]),
            load(F, 1, &["%2", "%3"]),
            apply_to(ScalarFn::Mul, &[0, 1], F),
            reduce(ReduceFn::Add, 2),
            reduce(ReduceFn::Max, 3),
            apply_to(ScalarFn::Sub, &[3, 4], F),
            apply_to(ScalarFn::Exp, &[5], F),
            reduce(ReduceFn::Add, 6),
            load(F, 2, &["%2", "%1"]),
            apply_to(ScalarFn::Mul, &[6, 8], F),
            reduce(ReduceFn::Add, 9),
            apply_to(ScalarFn::Div, &[10, 7], F),
        ],
        stores: vec![store(11, &["%0", "%1"])],
    }
}

#[test]
fn attention_sums_at_each_inner_point() {
    let kernel = attention();
    assert_eq!((kernel.check(), kernel.class()), (Ok(()), crate::flow::Class::Attention));
    let levels = kernel.levels();
    assert_eq!(levels[..5], [Level::Deep, Level::Deep, Level::Deep, Level::Point, Level::Row]);
    let of = |name: &str| [("m", 3), ("n", 2), ("k", 2), ("e", 3)].iter().find(|(s, _)| *s == name).map(|x| x.1);
    let q = f32s(&[3, 2], &[1., 0., 0., 2., -1., 1.]);
    let (k, v) = (f32s(&[2, 2], &[1., 1., 3., 0.]), f32s(&[2, 3], &[1., 2., 3., 10., 20., 30.]));
    let out = floats(&run_kernel(&kernel, &of, &[q, k, v]).unwrap()[0]);
    // The scores of the two keys are 1 and 3, 2 and 0, 0 and -3 for the three queries. Their difference determines the
    // weight of the second key.
    for (i, difference) in [2f64, -2., -3.].into_iter().enumerate() {
        let share = 1. / (1. + (-difference).exp());
        for (e, (a, b)) in [(1., 10.), (2., 20.), (3., 30.)].into_iter().enumerate() {
            let expected = a + share * (b - a);
            assert!((f64::from(out[3 * i + e]) - expected).abs() < 1e-5, "{out:?}");
        }
    }
}

#[test]
fn a_deep_value_is_summed_before_it_is_stored() {
    let mut kernel = attention();
    kernel.stores[0].value = 2;
    assert_eq!(kernel.check().unwrap_err(), "a deep value is stored before it is summed");
    let mut idle = contraction();
    idle.deep = dims(&["k"]);
    assert_eq!(idle.check().unwrap_err(), "nothing happens in the deep space");
}

#[test]
fn products_that_are_summed_are_not_rounded() {
    let half = DType::F16;
    let kernel = Kernel {
        outer: vec![],
        inner: dims(&["2"]),
        deep: vec![],
        reads: vec![container(half, &["2"]), container(half, &["2"])],
        writes: vec![container(half, &[])],
        body: vec![
            load(half, 0, &["%0"]),
            load(half, 1, &["%0"]),
            apply_to(ScalarFn::Mul, &[0, 1], half),
            statement(Body::Reduce { f: ReduceFn::Add, arg: 2 }, half),
        ],
        stores: vec![store(3, &[])],
    };
    // 1.0009765625 · 1.9990234375 is 2.00097.., which f16 would round to 2.
    let halves = |v: [f32; 2]| Tensor::from_vec(vec![2], v.map(half::f16::from_f32).to_vec());
    let reads = [halves([1.000_976_6, -2.0]), halves([1.999_023_4, 1.0])];
    let y = run_kernel(&kernel, &|_| None, &reads).unwrap().remove(0);
    assert_eq!(y.get_f64(0), Some(2.000_975_608_825_683_6 - 2.0));
}
