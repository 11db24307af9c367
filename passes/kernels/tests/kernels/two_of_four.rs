//! Products with a 2:4 matrix on the sparse tensor cores of a simulated GPU

use crate::build::two_of_four;
use crate::harness::{Case, Random, compare};
use crate::ptx;
use sardonyx_base::{DType, Tensor};
use sardonyx_dialects::flow::kernel::Kernel;
use sardonyx_dialects::flow::sparse::{Grid, Part, TwoOfFour};
use sardonyx_dialects::interp::run_kernel;
use sardonyx_kernels::{Target, lower};

fn form(dtype: DType, [rows, columns]: [i64; 2]) -> TwoOfFour {
    TwoOfFour { grid: Grid { rows, columns, row_stride: columns, column_stride: 1 }, dtype }
}

/// Values and positions of a random matrix; no stored value is 0.
fn parts(form: &TwoOfFour) -> [Tensor; 2] {
    let (dims, n) = (form.grid.parameter_dims(), form.grid.elements());
    let mut random = Random(n as u64);
    let mut value = || {
        let unit = random.unit() as f32;
        unit.signum() * (1.0 + 8.0 * unit.abs())
    };
    let w = match form.dtype {
        DType::I8 => Tensor::from_vec(dims, (0..n).map(|_| (14.0 * value()) as i8).collect()),
        _ => Tensor::from_vec(dims, (0..n).map(|_| value().trunc()).collect()),
    };
    let w = form.thinned(&w).unwrap();
    [Part::Values, Part::Positions].map(|part| form.part(part, &w).unwrap())
}

fn case(form: &TwoOfFour, [b, t]: [i64; 2]) -> Case {
    let [values, positions] = parts(form);
    let case = Case::new(&format!("{form}, {b} of {t} tokens"), two_of_four(form), &[("b", b), ("t", t)]);
    case.within(1e-5, 1e-5).read(0, values).read(1, positions)
}

fn is_on_tensor_cores(kernel: &Kernel, target: &str) -> bool {
    lower(kernel).unwrap().for_gpu(Target::from_ptx(target).unwrap()).is_on_tensor_cores()
}

#[test]
fn sizes_around_the_tiles() {
    let mut cases = vec![];
    for (dtype, all_columns) in [(DType::BF16, [64, 192, 320]), (DType::I8, [128, 256, 640])] {
        for (i, t) in [0i64, 1, 31, 33, 64, 65, 100, 130].into_iter().enumerate() {
            for rows in [48, 64, 144] {
                let form = form(dtype, [rows, all_columns[(i + rows as usize / 16) % 3]]);
                cases.push(case(&form, [1 + i as i64 % 3, t]));
            }
        }
        // This launch has so many blocks that it uses the larger tiles.
        cases.push(case(&form(dtype, [1536, 128]), [4, 100]));
    }
    let others: Vec<&str> =
        cases.iter().filter(|c| !is_on_tensor_cores(&c.kernel, "sm_80")).map(|c| &c.name[..]).collect();
    assert!(others.is_empty(), "{others:?}");
    ptx::check(&cases);
    ptx::check_on("sm_90a", &cases);
}

/// Warpgroups multiply bf16 matrices with an even number of tiles of columns, two tiles at a time; single warps
/// multiply all other matrices.
#[test]
fn warpgroups_multiply_pairs_of_tiles_of_bf16() {
    for (dtype, columns, instruction) in [
        (DType::BF16, 128, "wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.bf16.bf16"),
        (DType::BF16, 192, "mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32"),
        (DType::I8, 128, "mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.u8.s32"),
    ] {
        let kernel = two_of_four(&form(dtype, [64, columns]));
        let text = lower(&kernel).unwrap().for_gpu(Target::from_ptx("sm_90a").unwrap()).emit("k").unwrap().text;
        assert!(text.contains(instruction), "{dtype}, {columns} columns");
    }
}

/// Checks the number of matrix instructions. With a changed position, the results must agree with the interpreter's,
/// and in at least 97 % of the cases they must differ from the original results.
#[test]
fn each_position_counts() {
    const PAIRS: [u32; 6] = [0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110];
    for (dtype, per_tile) in [(DType::BF16, 2), (DType::I8, 1)] {
        let form = form(dtype, [64, 128]);
        let good = case(&form, [1, 32]);
        let lowered = lower(&good.kernel).unwrap();
        let right = ptx::launch(&lowered, &good, 1);
        // The matrix has 4 by 2 tiles of 16 rows by 64 columns; each is multiplied by 4 groups of eight tokens.
        assert_eq!(right.report.counters.classes["mma"].warp, 4 * 2 * 4 * per_tile, "{dtype}");
        let (words, mut random) = (good.reads[1].to_vec::<u32>().unwrap(), Random(3));
        let mut draw = |n: usize| (random.unit().abs() * 1e6) as usize % n;
        let n_mutants = 100;
        let differs = |_| {
            let (at, nibble, mut changed) = (draw(words.len()), 4 * draw(8), words.clone());
            let old = changed[at] >> nibble & 15;
            let others: Vec<u32> = PAIRS.into_iter().filter(|pair| *pair != old).collect();
            changed[at] ^= (old ^ others[draw(5)]) << nibble;
            let dims = good.reads[1].dims().to_vec();
            let case = case(&form, [1, 32]).read(1, Tensor::from_vec(dims, changed));
            let outcome = ptx::launch(&lowered, &case, 1);
            let expected = run_kernel(&case.kernel, &|s| case.value(s), &case.reads).unwrap();
            compare(&case, &outcome.results[0], &expected[0]).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            outcome.results != right.results
        };
        let n = (0..n_mutants).map(differs).filter(|differs| *differs).count();
        assert!(n * 100 >= 97 * n_mutants, "{dtype}: {n} of {n_mutants} are noticed");
    }
}

/// An i8 matrix with an odd number of tiles of 64 columns would not fill the last k tile.
#[test]
fn other_code_multiplies_what_is_no_whole_number_of_tiles() {
    let case = case(&form(DType::I8, [32, 192]), [1, 5]);
    assert!(!is_on_tensor_cores(&case.kernel, "sm_80"));
    ptx::check(&[case]);
}

#[test]
fn positions_are_read_without_bank_conflicts_and_as_often_as_stated() {
    for dtype in [DType::BF16, DType::I8] {
        let case = case(&form(dtype, [256, 256]), [1, 200]);
        let lowered = lower(&case.kernel).unwrap();
        for target in ["sm_80", "sm_90a"] {
            let outcome = ptx::launch_on(target, &lowered, &case, 1);
            assert!(outcome.report.findings.is_empty(), "{dtype}: {:?}", outcome.report.findings);
            assert_eq!(outcome.report.counters.shared.conflicts(), 0, "{dtype} on {target}");
            let stated = lowered.for_gpu(Target::from_ptx(target).unwrap()).movement(&outcome.params);
            for (buffer, stated) in stated.iter().enumerate() {
                let found = outcome.counters(buffer).map_or(0, |c| c.loads.sectors + c.stores.sectors) as i64;
                assert_eq!(found, stated.scheduled, "{dtype} on {target}: buffer {buffer}");
            }
        }
    }
}
