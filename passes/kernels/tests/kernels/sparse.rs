//! Products with a sparse matrix: each stored word is multiplied by vectors of the dense operand

use crate::build::Builder;
use crate::check;
use crate::harness::{Case, Library, Random, run};
use sardonyx_base::{DType, Tensor};
use sardonyx_dialects::flow::kernel::{Kernel, Layout};
use sardonyx_dialects::scalar::{ReduceFn, ScalarFn};
use sardonyx_kernels::codegen::build_shared_object;
use sardonyx_kernels::{Level, Words, lower};

/// Number of columns of the matrix.
const K: usize = 70;

/// Returns values, columns and row starts of a sparse matrix of `rows` rows: row 2 is full, and rows 5, 8, 11, … are
/// empty or nearly so.
fn words(rows: usize, columns: DType) -> [Tensor; 3] {
    let mut random = Random(rows as u64);
    let (mut values, mut places, mut starts) = (vec![], vec![], vec![0i32]);
    for row in 0..rows {
        let one_in = [1, 4, 10, 1000][if row == 2 { 0 } else { row % 3 + 1 }];
        places.extend((0..K as u16).filter(|_| random.next().is_multiple_of(one_in)));
        starts.push(places.len() as i32);
    }
    values.extend(places.iter().map(|_| random.unit() as f32));
    let n = places.len();
    let places = match columns {
        DType::U16 => Tensor::from_vec(vec![n], places),
        _ => Tensor::from_vec(vec![n], places.into_iter().map(i32::from).collect()),
    };
    [Tensor::from_vec(vec![n], values), places, Tensor::from_vec(vec![rows + 1], starts)]
}

/// y[t, n] = max(Σ value · x[t, column] + bias[n], r[t, n])
fn product(rows: usize, [values, columns, _]: &[Tensor; 3], (x, y): (Layout, Layout)) -> Kernel {
    let n = rows.to_string();
    let mut b = Builder::new(&["t", &n], &[&K.to_string()]);
    let starts = format!("{}", rows + 1);
    let first = b.load(DType::I32, &[&starts], &["%1"]);
    let end = b.again(0, &["%1 + 1"]);
    let [first, end] = [first, end].map(|k| b.convert(k, DType::I64));
    let length = b.apply(ScalarFn::Sub, &[end, first]);
    let word = b.index("%2");
    let inside = b.apply(ScalarFn::Lt, &[word, length]);
    let (n_words, place) = (values.len().to_string(), format!("${first} + %2"));
    let column = b.guarded(columns.dtype(), &[&n_words], &[&place], Some(inside));
    let column = b.convert(column, DType::I64);
    let value = b.guarded(DType::F32, &[&n_words], &[&place], Some(inside));
    let factor = b.guarded(DType::F32, &["t", &K.to_string()], &["%0", &format!("${column}")], Some(inside));
    let product = b.apply(ScalarFn::Mul, &[value, factor]);
    let zero = b.constant(0.0, DType::F32);
    let chosen = b.apply(ScalarFn::Select, &[inside, product, zero]);
    let sum = b.reduce(ReduceFn::Add, chosen);
    let bias = b.load(DType::F32, &[&n], &["%1"]);
    let sum = b.apply(ScalarFn::Add, &[sum, bias]);
    let other = b.load(DType::F32, &["t", &n], &["%0", "%1"]);
    let larger = b.apply(ScalarFn::Max, &[sum, other]);
    b.store(larger, &["t", &n], &["%0", "%1"]);
    b.0.reads[3].layout = x;
    b.0.writes[0].layout = y;
    b.0
}

fn turned() -> Layout {
    Layout::Order(vec![1, 0])
}

fn case(name: &str, rows: usize, t: i64, layouts: (Layout, Layout), [values, columns, starts]: [Tensor; 3]) -> Case {
    let kernel = product(rows, &[values.clone(), columns.clone(), starts.clone()], layouts);
    let case = Case::new(&format!("{name} {rows} rows, {t} lanes"), kernel, &[("t", t)]).within(2e-6, 1e-6);
    case.read(0, starts).read(1, columns).read(2, values)
}

#[test]
fn sizes_around_the_blocks() {
    let mut cases = vec![];
    for t in [0i64, 1, 7, 8, 16, 17, 127, 128, 129, 300] {
        cases.push(case("turned", 17, t, (turned(), Layout::RowMajor), words(17, DType::U16)));
    }
    for rows in [1, 8, 15, 16, 63, 64, 65, 130] {
        cases.push(case("rows", rows, 21, (turned(), Layout::RowMajor), words(rows, DType::U16)));
        cases.push(case("lanes", rows, 21, (turned(), turned()), words(rows, DType::I32)));
    }
    cases.push(case("apart", 20, 40, (Layout::RowMajor, Layout::RowMajor), words(20, DType::U16)));
    check(cases);
}

/// Columns and row starts are checked before they are used as indices: a column beyond the last, or a row that ends
/// before it begins, sets the status.
#[test]
fn false_words_set_the_status() {
    let good = words(20, DType::I32);
    let [values, columns, starts] = good.clone();
    let n = columns.len() as i32;
    let column = |at: usize, value: i32| {
        let mut all = columns.to_vec::<i32>().unwrap();
        all[at] = value;
        [values.clone(), Tensor::from_vec(vec![all.len()], all), starts.clone()]
    };
    let start = |at: usize, value: i32| {
        let mut all = starts.to_vec::<i32>().unwrap();
        all[at] = value;
        [values.clone(), columns.clone(), Tensor::from_vec(vec![all.len()], all)]
    };
    let bad = [
        column(0, K as i32),
        column(n as usize - 1, -1),
        column(20, i32::MAX),
        start(20, n + 1),
        start(0, -1),
        start(5, n),
        start(7, 0),
        start(7, i32::MIN),
    ];
    let all = [good].into_iter().chain(bad).enumerate();
    let cases: Vec<Case> =
        all.map(|(i, words)| case(&i.to_string(), 20, 40, (turned(), Layout::RowMajor), words)).collect();
    let lowered = lower(&cases[0].kernel).unwrap();
    let library = Library::new(&build_shared_object(&[("k".into(), &lowered)]).unwrap());
    for level in Level::common().filter(|level| level.is_here()) {
        for (i, case) in cases.iter().enumerate() {
            let (_, status) = run(library.kernel("k", level), &lowered, case, i64::MAX / 2);
            assert_eq!(status, i64::from(i > 0), "{} {}", case.name, level.name());
        }
    }
}

/// Returns words of four bytes, their columns (counted in words), and row starts (also in words) of a sparse matrix of
/// `rows` rows of `k` bytes.
fn quads(rows: usize, k: usize) -> [Tensor; 3] {
    let mut random = Random((rows + k) as u64);
    let (mut values, mut places, mut starts) = (vec![], vec![], vec![0i32]);
    for row in 0..rows {
        let one_in = [1, 2, 5, 1000][if row == 2 { 0 } else { row % 3 + 1 }];
        places.extend((0..(k / 4) as u16).filter(|_| random.next().is_multiple_of(one_in)));
        starts.push(places.len() as i32);
    }
    let edge = [-128i8, 127];
    values.extend((0..4 * places.len()).map(|i| if i % 7 < 2 { edge[i % 2] } else { random.next() as i8 }));
    let n = places.len();
    let (values, places) = (Tensor::from_vec(vec![4 * n], values), Tensor::from_vec(vec![n], places));
    [values, places, Tensor::from_vec(vec![rows + 1], starts)]
}

/// y[t, n] = scale[n] · Σ value · x[t, column], where value and x are bytes
fn product_of_quads(rows: usize, k: usize, [values, columns, _]: &[Tensor; 3], y: Layout) -> Kernel {
    let (n, k) = (rows.to_string(), k.to_string());
    let mut b = Builder::new(&["t", &n], &["96", "4"]);
    let first = b.load(DType::I32, &[&format!("{}", rows + 1)], &["%1"]);
    let end = b.again(0, &["%1 + 1"]);
    let [first, end] = [first, end].map(|k| b.convert(k, DType::I64));
    let length = b.apply(ScalarFn::Sub, &[end, first]);
    let word = b.index("%2");
    let inside = b.apply(ScalarFn::Lt, &[word, length]);
    let place = format!("${first} + %2");
    let column = b.guarded(DType::U16, &[&columns.len().to_string()], &[&place], Some(inside));
    let column = b.convert(column, DType::I64);
    let value = format!("4 * ({place}) + %3");
    let value = b.guarded(DType::I8, &[&values.len().to_string()], &[&value], Some(inside));
    let value = b.convert(value, DType::I32);
    let factor = b.guarded(DType::U8, &["t", &k], &["%0", &format!("4 * ${column} + %3")], Some(inside));
    let factor = b.convert(factor, DType::I32);
    let product = b.apply(ScalarFn::Mul, &[value, factor]);
    let zero = b.constant(0.0, DType::I32);
    let chosen = b.apply(ScalarFn::Select, &[inside, product, zero]);
    let sum = b.reduce(ReduceFn::Add, chosen);
    let sum = b.convert(sum, DType::F32);
    let scale = b.load(DType::F32, &[&n], &["%1"]);
    let sum = b.apply(ScalarFn::Mul, &[sum, scale]);
    b.store(sum, &["t", &n], &["%0", "%1"]);
    b.0.writes[0].layout = y;
    b.0
}

fn case_of_quads(rows: usize, k: usize, t: i64, y: Layout, words: [Tensor; 3]) -> Case {
    let kernel = product_of_quads(rows, k, &words, y);
    let [values, columns, starts] = words;
    // The results are exact, because integer sums are exact and only one multiplication follows.
    let case = Case::new(&format!("{rows} rows of {k} bytes, {t} lanes"), kernel, &[("t", t)]).within(0.0, 0.0);
    case.read(0, starts).read(1, columns).read(2, values)
}

#[test]
fn words_of_four_bytes() {
    let mut cases = vec![];
    for t in [0i64, 1, 7, 16, 17, 127, 128, 129, 300] {
        cases.push(case_of_quads(17, 80, t, Layout::RowMajor, quads(17, 80)));
    }
    for (rows, k) in [(2, 8), (8, 28), (127, 32), (128, 60), (130, 64), (260, 384)] {
        cases.push(case_of_quads(rows, k, 21, Layout::RowMajor, quads(rows, k)));
        cases.push(case_of_quads(rows, k, 21, turned(), quads(rows, k)));
    }
    let is_written = |case: &Case| lower(&case.kernel).unwrap().words() == Some(Words::Quads);
    let others: Vec<&str> = cases.iter().filter(|case| !is_written(case)).map(|case| &case.name[..]).collect();
    assert!(others.is_empty(), "{others:?}");
    check(cases);
    let good = quads(20, 84);
    let mut columns = good[1].to_vec::<u16>().unwrap();
    columns[3] = 21;
    let bad = [good[0].clone(), Tensor::from_vec(vec![columns.len()], columns), good[2].clone()];
    let [good, bad] = [good, bad].map(|words| case_of_quads(20, 84, 40, Layout::RowMajor, words));
    let lowered = lower(&good.kernel).unwrap();
    let library = Library::new(&build_shared_object(&[("k".into(), &lowered)]).unwrap());
    for level in Level::common().filter(|level| level.is_here()) {
        let status = |case: &Case| run(library.kernel("k", level), &lowered, case, i64::MAX / 2).1;
        assert_eq!([status(&good), status(&bad)], [0, 1], "{}", level.name());
    }
}
