//! Products with a sparse matrix, stored as vectors of eight rows, on the tensor cores of a simulated GPU

use crate::build::Builder;
use crate::harness::{Case, Random};
use crate::ptx;
use sardonyx_base::{DType, Tensor};
use sardonyx_dialects::flow::kernel::{Kernel, Layout};
use sardonyx_dialects::flow::sparse::{Grid, Part, Windows};
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_kernels::{Target, lower};

/// y[b, t, n] = Σ value · x[b, t, column] + bias[n], with the tokens of x contiguous
fn product(form: &Windows) -> Kernel {
    let Windows { grid, vectors, longest, .. } = *form;
    let [n, k, values, vectors, starts, longest] =
        [grid.rows, grid.columns, 8 * vectors, vectors, form.windows() + 1, longest].map(|n| n.to_string());
    let mut b = Builder::new(&["b", "t", &n], &[&longest]);
    let first = b.load(DType::I32, &[&starts], &["%2 floordiv 8"]);
    let first = b.convert(first, DType::I64);
    let end = b.again(0, &["%2 floordiv 8 + 1"]);
    let end = b.convert(end, DType::I64);
    let (vector, length) = (b.index("%3"), b.apply(ScalarFn::Sub, &[end, first]));
    let inside = b.apply(ScalarFn::Lt, &[vector, length]);
    let place = format!("${first} + %3");
    let column = b.guarded(DType::U16, &[&vectors], &[&place], Some(inside));
    let column = b.convert(column, DType::I64);
    let value = b.guarded(DType::BF16, &[&values], &[&format!("8 * ({place}) + %2 mod 8")], Some(inside));
    let value = b.convert(value, DType::F32);
    let x = b.guarded(DType::BF16, &["b", "t", &k], &["%0", "%1", &format!("${column}")], Some(inside));
    let x = b.convert(x, DType::F32);
    let (product, zero) = (b.apply(ScalarFn::Mul, &[value, x]), b.constant(0.0, DType::F32));
    let chosen = b.apply(ScalarFn::Select, &[inside, product, zero]);
    let sum = b.reduce(sardonyx_dialects::scalar::ReduceFn::Add, chosen);
    let bias = b.load(DType::F32, &[&n], &["%2"]);
    let sum = b.apply(ScalarFn::Add, &[sum, bias]);
    b.store(sum, &["b", "t", &n], &["%0", "%1", "%2"]);
    b.0.reads[3].layout = Layout::Order(vec![2, 0, 1]);
    b.0
}

/// Returns a case with a random matrix in which about one of `one_in` vectors is not 0; some windows have none.
fn case([rows, columns]: [i64; 2], one_in: u64, [b, t]: [i64; 2]) -> Case {
    let grid = Grid { rows, columns, row_stride: columns, column_stride: 1 };
    let mut random = Random(rows as u64);
    let there: Vec<bool> = (0..rows / 8 * columns)
        .map(|vector| vector / columns % 5 != 3 && ((random.unit().abs() * 1e6) as u64).is_multiple_of(one_in))
        .collect();
    let value = |i: i64, random: &mut Random| match there[(i / columns / 8 * columns + i % columns) as usize] {
        true => (random.unit() * 9.0).trunc() as f32,
        false => 0.0,
    };
    let values: Vec<f32> = (0..rows * columns).map(|i| value(i, &mut random)).collect();
    let form = Windows { dtype: DType::BF16, ..Windows::found(grid, &values).unwrap() };
    let w = Tensor::from_vec(grid.parameter_dims(), values);
    let part = |part| form.part(part, &w).unwrap();
    let case = Case::new(&format!("{form}, {b} of {t} tokens"), product(&form), &[("b", b), ("t", t)]);
    case.within(1e-5, 1e-5).read(0, part(Part::Starts)).read(1, part(Part::Columns)).read(2, part(Part::Values))
}

#[test]
fn sizes_around_the_tiles() {
    let mut cases = vec![];
    for (i, t) in [0i64, 1, 15, 16, 33, 64, 65, 130].into_iter().enumerate() {
        for (rows, columns) in [(16, 128), (48, 768), (272, 384), (40, 1536), (24, 3072)] {
            cases.push(case([rows, columns], [3, 11, 40][i % 3], [1 + i as i64 % 3, t]));
        }
    }
    let sm_80 = Target::from_ptx("sm_80").unwrap();
    let is_slow = |case: &&Case| !lower(&case.kernel).unwrap().for_gpu(sm_80).is_on_tensor_cores();
    let slow: Vec<&str> = cases.iter().filter(is_slow).map(|case| &case.name[..]).collect();
    assert!(slow.is_empty(), "{slow:?}");
    ptx::check(&cases);
}

/// Columns are checked because they become addresses in shared memory, and starts because they become addresses in
/// global memory.
#[test]
fn false_columns_and_starts_set_the_status() {
    let good = case([48, 128], 4, [1, 20]);
    let lowered = lower(&good.kernel).unwrap();
    let status = |read: usize, tensor: Tensor| {
        let case = case([48, 128], 4, [1, 20]).read(read, tensor);
        let outcome = ptx::launch(&lowered, &case, 1);
        assert!(outcome.report.findings.is_empty(), "{:?}", outcome.report.findings);
        outcome.status
    };
    assert_eq!(status(1, good.reads[1].clone()), 0);
    for column in [128, 255, u16::MAX] {
        let mut columns = good.reads[1].to_vec::<u16>().unwrap();
        columns[7] = column;
        assert_eq!(status(1, Tensor::from_vec(vec![columns.len()], columns)), 1, "column {column}");
    }
    for (at, start) in [(0, -1), (0, i32::MIN), (6, i32::MAX), (3, 100_000), (6, good.reads[1].len() as i32 + 1)] {
        let mut starts = good.reads[0].to_vec::<i32>().unwrap();
        starts[at] = start;
        assert_eq!(status(0, Tensor::from_vec(vec![starts.len()], starts)), 1, "start {start}");
    }
}

/// A matrix instruction multiplies sixteen vectors of a window with sixteen tokens. Changed columns and starts must
/// have an effect.
#[test]
fn each_column_counts() {
    let good = case([48, 384], 6, [1, 64]);
    let lowered = lower(&good.kernel).unwrap();
    let right = ptx::launch(&lowered, &good, 1);
    let (starts, columns) = (good.reads[0].to_vec::<i32>().unwrap(), good.reads[1].to_vec::<u16>().unwrap());
    let products: i32 = starts.windows(2).map(|w| (w[1] - w[0] + 15) / 16 * 4).sum();
    assert_eq!(right.report.counters.classes["mma"].warp, products as u64);
    let noticed = |case: Case| {
        let outcome = ptx::launch(&lowered, &case, 1);
        outcome.status != 0 || !outcome.report.findings.is_empty() || outcome.results != right.results
    };
    let mut n = 0;
    for i in 0..100 {
        let mut changed = columns.clone();
        let at = i * 37 % columns.len();
        changed[at] = (columns[at] + 1 + (i % 7) as u16) % 384;
        n += usize::from(noticed(case([48, 384], 6, [1, 64]).read(1, Tensor::from_vec(vec![columns.len()], changed))));
        let mut changed = starts.clone();
        changed[i % starts.len()] += if i % 2 == 0 { 1 } else { -1 };
        n += usize::from(noticed(case([48, 384], 6, [1, 64]).read(0, Tensor::from_vec(vec![starts.len()], changed))));
    }
    assert!(n >= 194, "{n} of 200 are noticed");
}

/// The order of a window's vectors lets most lanes of an instruction read from different banks.
#[test]
fn lines_of_columns_are_read_with_few_bank_conflicts() {
    let case = case([128, 768], 7, [1, 64]);
    let lowered = lower(&case.kernel).unwrap();
    let outcome = ptx::launch(&lowered, &case, 1);
    assert!(outcome.report.findings.is_empty(), "{:?}", outcome.report.findings);
    let shared = &outcome.report.counters.shared;
    assert!(4 * shared.conflicts() <= shared.wavefronts, "{} of {}", shared.conflicts(), shared.wavefronts);
    let stated = lowered.for_gpu(Target::from_ptx("sm_80").unwrap()).movement(&outcome.params);
    for (buffer, stated) in stated.iter().enumerate().filter(|(_, stated)| !stated.from_data) {
        let found = outcome.counters(buffer).map_or(0, |c| c.loads.sectors + c.stores.sectors) as i64;
        assert_eq!(found, stated.scheduled, "buffer {buffer}");
    }
}
