//! Products of a dense operand with a matrix in the sparse n:m:g format, and the checks of its columns and patterns

use crate::build::Builder;
use crate::check;
use crate::harness::{Case, Library, Random, run};
use sardonyx_base::{DType, Tensor};
use sardonyx_dialects::flow::kernel::{Kernel, Layout};
use sardonyx_dialects::flow::sparse::{Grid, Groups, Part};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_kernels::codegen::build_shared_object;
use sardonyx_kernels::{Level, Words, lower};

fn form([rows, columns]: [i64; 2], sizes: [i64; 3]) -> Groups {
    Groups::shaped(Grid { rows, columns, row_stride: columns, column_stride: 1 }, sizes).unwrap()
}

/// Returns values, columns and patterns of a random matrix.
fn parts(form: &Groups) -> [Tensor; 3] {
    let mut random = Random(form.width as u64);
    let dims = form.grid.parameter_dims();
    let values = (0..form.grid.elements()).map(|_| random.unit() as f32).collect();
    let w = form.thinned(&Tensor::from_vec(dims, values)).unwrap();
    [Part::Values, Part::Columns, Part::Patterns].map(|part| form.part(part, &w).unwrap())
}

/// y[t, n] = Σ value · x[t, column] + bias[n]
fn product(form: &Groups, [values, columns, patterns]: &[Tensor; 3], (x, y): (&Layout, &Layout)) -> Kernel {
    let texts = |t: &Tensor| t.dims().iter().map(ToString::to_string).collect::<Vec<String>>();
    let [values, columns, patterns] = [(values, DType::F32), (columns, columns.dtype()), (patterns, DType::U8)]
        .map(|(tensor, dtype)| (texts(tensor), dtype));
    let [n, k, g] = [form.grid.rows, form.grid.columns, form.g].map(|n| n.to_string());
    let (chunks, each) = (form.chunks().to_string(), form.patterns_of_a_row().to_string());
    let mut b = Builder::new(&["t", &n], &[&chunks, &each, &g]);
    let mut load = |(dims, dtype): &(Vec<String>, DType), index: &[&str]| {
        b.load(*dtype, &dims.iter().map(String::as_str).collect::<Vec<&str>>(), index)
    };
    let block = format!("%1 floordiv {}", form.m);
    let pattern = load(&patterns, &[&format!("%1 mod {}", form.m), "%3"]);
    // Statement 1 is the position of the row in the concatenation of all patterns, each of which has n positions.
    let column = [&block[..], &format!("$1 floordiv {}", form.n), "%4"];
    let value = [&block[..], "$1", "%4"];
    let pattern = b.convert(pattern, DType::I64);
    assert_eq!(pattern, 1);
    let mut load = |(dims, dtype): &(Vec<String>, DType), index: &[&str]| {
        let dims: Vec<&str> = dims.iter().map(String::as_str).collect();
        b.load(*dtype, &dims, &[&["%2"], index].concat())
    };
    let (column, value) = (load(&columns, &column), load(&values, &value));
    let column = b.convert(column, DType::I64);
    let place = format!("{} * %2 + ${column}", form.width);
    let factor = b.load(DType::F32, &["t", &k], &["%0", &place]);
    let sum = b.dot(value, factor);
    let bias = b.load(DType::F32, &[&n], &["%1"]);
    let sum = b.apply(ScalarFn::Add, &[sum, bias]);
    b.store(sum, &["t", &n], &["%0", "%1"]);
    b.0.reads[3].layout = x.clone();
    b.0.writes[0].layout = y.clone();
    b.0
}

fn turned() -> Layout {
    Layout::Order(vec![1, 0])
}

fn case(form: &Groups, t: i64, layouts: (&Layout, &Layout), parts: [Tensor; 3]) -> Case {
    let kernel = product(form, &parts, layouts);
    let [values, columns, patterns] = parts;
    let case = Case::new(&format!("{form}, {t} lanes"), kernel, &[("t", t)]).within(4e-6, 1e-6);
    case.read(0, patterns).read(1, columns).read(2, values)
}

#[test]
fn sizes_around_the_blocks() {
    let (rows, lanes) = (&Layout::RowMajor, &turned());
    let mut cases = vec![];
    for t in [0i64, 1, 7, 8, 16, 17, 127, 128, 129, 300] {
        let form = form([24, 96], [2, 4, 16]);
        cases.push(case(&form, t, (lanes, rows), parts(&form)));
    }
    for n in [5, 15, 16, 63, 127, 128, 129, 260] {
        let form = form([n, 40], [2, 4, 4]);
        cases.push(case(&form, 21, (lanes, rows), parts(&form)));
        cases.push(case(&form, 21, (lanes, lanes), parts(&form)));
    }
    for sizes in [[1, 4, 16], [1, 2, 8], [2, 6, 3], [1, 10, 16], [3, 6, 4], [2, 8, 1], [4, 5, 2], [1, 16, 1]] {
        for k in [23, 64, 193] {
            let form = form([33, k], sizes);
            cases.push(case(&form, 70, (lanes, rows), parts(&form)));
        }
    }
    // A matrix whose chunks have more columns than a byte can number.
    let wide = form([8, 700], [2, 4, 100]);
    cases.push(case(&wide, 20, (lanes, rows), parts(&wide)));
    let apart = form([20, 40], [2, 4, 4]);
    cases.push(case(&apart, 40, (rows, rows), parts(&apart)));
    let is_written = |case: &Case| lower(&case.kernel).unwrap().words() == Some(Words::Singles);
    let others: Vec<&str> = cases.iter().filter(|case| !is_written(case)).map(|case| &case.name[..]).collect();
    assert!(others.is_empty(), "{others:?}");
    check(cases);
}

/// Columns and patterns are checked before they are used as indices.
#[test]
fn false_columns_and_patterns_set_the_status() {
    let form = form([40, 100], [2, 4, 4]);
    let good = parts(&form);
    let other = |which: usize, at: usize, number: u8| {
        let mut parts = good.clone();
        let mut all = parts[which].to_vec::<u8>().unwrap();
        all[at] = number;
        parts[which] = Tensor::from_vec(parts[which].dims().to_vec(), all);
        parts
    };
    let n = good[1].len();
    // The last chunk has fewer columns than the others.
    let width = form.width as u8;
    let left = (100 - (form.chunks() - 1) * form.width) as u8;
    let bad = [
        other(1, 0, width),
        other(1, n / 2, 255),
        other(1, n - 1, left),
        other(2, 0, 1),
        other(2, 11, 12),
        other(2, 5, 255),
    ];
    let all = [good.clone()].into_iter().chain(bad);
    let cases: Vec<Case> = all.map(|parts| case(&form, 40, (&turned(), &Layout::RowMajor), parts)).collect();
    let lowered = lower(&cases[0].kernel).unwrap();
    let library = Library::new(&build_shared_object(&[("k".into(), &lowered)]).unwrap());
    for level in Level::common().filter(|level| level.is_here()) {
        for (i, case) in cases.iter().enumerate() {
            let (_, status) = run(library.kernel("k", level), &lowered, case, i64::MAX / 2);
            assert_eq!(status, i64::from(i > 0), "{i} {}", level.name());
        }
    }
}
