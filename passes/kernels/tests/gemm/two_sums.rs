//! Two products in one kernel: each takes half of the columns of a tile

use crate::drawn::is_drawn;
use crate::launch::{Case, Fill};
use crate::problem::{After, Lie, PLAIN, Problem};
use crate::{AFTERS, DTYPES, LIES, close, edge_extents, k_tile, name, stated};
use sardonyx_base::DType;
use sardonyx_kernels::ptx::gemm::{Gemm, SHAPES};

/// Runs the drawn ones among the pairs of extents around the tiles, except results of more than 4 * 64 * 64 elements;
/// layouts, batches, epilogues and k alternate.
fn all_extents(dtype: DType) {
    for shape in SHAPES {
        let k = k_tile(shape, dtype);
        let ks = [0, 1, k - 1, k, k + 1, 3 * k - 1, 2 * k];
        let mut turn = shape.m as usize / 16 + shape.n as usize / 32;
        for m in edge_extents(shape.m) {
            for n in edge_extents(shape.n / 2) {
                if m * n > 4 * 64 * 64 {
                    continue;
                }
                turn += 1;
                let problem = Problem {
                    dtype,
                    sizes: [m, n, ks[turn % 7]],
                    batch: 1 + turn as i64 % 3,
                    a: LIES[turn % 5],
                    b: LIES[(turn / 5 + 2 * turn) % 5],
                    second: Some(LIES[turn / 7 % 5]),
                    after: AFTERS[turn % 4],
                    symbolic: m == 1 || n == 1 || !turn.is_multiple_of(3),
                    ..PLAIN
                };
                if is_drawn(&name(&problem, shape)) {
                    close(problem, shape, Fill::Random);
                }
            }
        }
    }
}

#[test]
fn extents_around_the_tiles_of_f32() {
    all_extents(DType::F32);
}

#[test]
fn extents_around_the_tiles_of_16_bits() {
    all_extents(DType::F16);
    all_extents(DType::BF16);
}

/// The columns of each product in a tile are half a panel, one panel or two panels; swapping the two products would
/// change the result.
#[test]
fn packed_constants() {
    for shape in SHAPES {
        for (n, k) in [(shape.n / 2, 64), (shape.n - 1, 33), (shape.n + 17, 17)] {
            for symbolic in [false, true] {
                let sizes = [shape.m + 3, n, k];
                let (b, second) = (Lie::Panels, Some(Lie::Panels));
                let p = Problem { sizes, a: Lie::K(0), b, second, after: After::BiasGelu, symbolic, ..PLAIN };
                close(p, shape, Fill::Random);
                close(Problem { after: After::Nothing, ..p }, shape, Fill::Whole);
            }
        }
    }
}

#[test]
fn no_bank_conflicts() {
    for dtype in DTYPES {
        for shape in SHAPES {
            for b in [Lie::K(0), Lie::Rows(0), Lie::Panels] {
                if b == Lie::Panels && dtype != DType::F32 {
                    continue;
                }
                let sizes = [shape.m, shape.n / 2, 2 * k_tile(shape, dtype)];
                let p = Problem { dtype, sizes, b, second: Some(b), ..PLAIN };
                let outcome = close(p, shape, Fill::Whole);
                let shared = &outcome.report.counters.shared;
                assert_eq!(shared.conflicts(), 0, "{}: {:?}", name(&p, shape), outcome.report.counters.lines);
            }
        }
    }
}

#[test]
fn few_rows_and_many_in_one_entry() {
    for (dtype, b) in [(DType::F32, Lie::Panels), (DType::F32, Lie::K(0)), (DType::BF16, Lie::Rows(0))] {
        for m in [1, 16, 17, 130] {
            let p = Problem { dtype, sizes: [m, 200, 72], b, second: Some(b), symbolic: true, fixed: true, ..PLAIN };
            let case = Case::new(p, Fill::Whole);
            let outcome = case.run(None);
            assert!(outcome.report.findings.is_empty(), "{p:?}: {:?}", outcome.report.findings);
            assert!(outcome.values == case.expected(), "{p:?}");
            assert!(Gemm::from_def(&outcome.lowered.def).unwrap().few.is_some(), "{p:?}");
            stated(&p, &outcome, 0.02);
        }
    }
}

#[test]
fn sectors_are_as_stated() {
    let mut shapes = vec![];
    for sizes in [[1024, 768, 64], [512, 200, 64], [256, 64, 64], [64, 32, 128], [16, 256, 128], [100, 70, 32]] {
        for (dtype, b) in [(DType::F32, Lie::Rows(0)), (DType::BF16, Lie::K(0)), (DType::F32, Lie::Panels)] {
            for after in [After::BiasGelu, After::Residual] {
                let p = Problem { dtype, sizes, b, second: Some(b), after, ..PLAIN };
                let case = Case::new(p, Fill::Random);
                shapes.push(case.usual_shape());
                if is_drawn(&format!("{p:?}")) {
                    stated(&p, &case.run(None), 0.02);
                }
            }
        }
    }
    shapes.sort_by_key(|s| (s.m, s.n));
    shapes.dedup();
    assert!(shapes.len() >= 4, "{shapes:?}");
}

/// Infinities, NaN and the largest f32, placed in each of the operands.
#[test]
fn infinities_and_nan_come_out_as_they_are() {
    let p = Problem { sizes: [40, 40, 20], second: Some(Lie::K(1)), symbolic: true, ..PLAIN };
    for operand in 0..3 {
        let mut case = Case::new(p, Fill::Random);
        let mut values: Vec<f32> = case.reads[operand].to_vec().unwrap();
        for (at, value) in [(3, f32::INFINITY), (45, f32::NEG_INFINITY), (200, f32::NAN), (310, f32::MAX)] {
            values[at] = value;
        }
        let dims = case.reads[operand].dims().to_vec();
        case.reads[operand] = sardonyx_base::Tensor::from_vec(dims, values);
        let outcome = case.run(Some(&SHAPES[5]));
        assert!(outcome.report.findings.is_empty(), "{:?}", outcome.report.findings);
        for (i, (got, want)) in outcome.values.iter().zip(case.expected()).enumerate() {
            // The interpreter accumulates in f64, which does not overflow where f32 does, so its result is rounded to
            // f32 first.
            let want = want as f32 as f64;
            let same = got.is_nan() == want.is_nan() && (!want.is_infinite() || *got == want);
            assert!(same, "operand {operand}, element {i}: {got}, not {want}");
        }
    }
}
