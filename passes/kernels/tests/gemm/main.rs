//! Contractions as tiles on tensor cores: results of the executed PTX agree with the interpreter's, and the simulator
//! reports no findings

#[path = "../../../../tests/src/drawn.rs"]
mod drawn;
mod launch;
mod problem;
mod two_sums;
mod warpgroups;

use drawn::is_drawn;
use launch::{Case, Fill, Outcome};
use problem::{After, Lie, PLAIN, Problem};
use ptxvm::Kind;
use sardonyx_base::DType;
use sardonyx_kernels::Target;
use sardonyx_kernels::ptx::gemm::{Factors, Gemm, SHAPES, SLICED, SMALL, Shape};

const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
const LIES: [Lie; 5] = [Lie::K(0), Lie::Rows(0), Lie::K(3), Lie::Rows(5), Lie::Apart];
const AFTERS: [After; 4] = [After::Nothing, After::BiasGelu, After::Residual, After::ScaleMask];

/// Returns the number of elements along K in one pipeline stage of a tile.
fn k_tile(shape: &Shape, dtype: DType) -> i64 {
    shape.k_bytes / (dtype.bits() as i64 / 8)
}

fn all_shapes() -> impl Iterator<Item = &'static Shape> {
    SHAPES.iter().chain(SMALL)
}

fn name(p: &Problem, shape: &Shape) -> String {
    format!("{p:?} with tiles of {} by {}", shape.m, shape.n)
}

/// Runs a problem, and asserts that its results differ from the interpreter's by at most the following bound.
///
/// f32: each operand is split into two tf32, which loses up to 2^-21 of the operand; the product of the two lower parts
/// is omitted, which loses up to 2^-22 of a product; and k + 2 additions in f32 truncate instead of rounding. 16 bits:
/// the interpreter also rounds each product to the type, so results may differ by the type's unit roundoff times
/// Σ|a·b|. The epilogue that amplifies errors most is gelu, by a factor of 1.13; each of an epilogue's few operations
/// rounds a number whose magnitude is about one.
fn close(p: Problem, shape: &'static Shape, fill: Fill) -> Outcome {
    let case = Case::new(p, fill);
    let outcome = case.run(Some(shape));
    check(&case, &outcome, fill, &name(&p, shape));
    outcome
}

fn check(case: &Case, outcome: &Outcome, fill: Fill, name: &str) {
    let p = &case.problem;
    assert!(outcome.report.findings.is_empty(), "{name}: {:?}", outcome.report.findings);
    let (expected, magnitude) = (case.expected(), case.magnitude());
    let (sum, unit) = match p.dtype {
        DType::I32 => (0.0, 0.0),
        DType::F32 => (2f64.powi(-22) * (p.sizes[2] + 6) as f64, 2f64.powi(-22)),
        DType::F16 => (2f64.powi(-11), 2f64.powi(-9)),
        _ => (2f64.powi(-8), 2f64.powi(-6)),
    };
    // Operands that are integers have exact products and sums, so the results are exact unless an epilogue changes
    // them.
    let exact = fill == Fill::Whole && matches!(p.after, After::Nothing | After::Transposed);
    let (sum, unit) = if exact { (0.0, 0.0) } else { (sum, unit) };
    for (i, ((got, want), size)) in outcome.values.iter().zip(&expected).zip(&magnitude).enumerate() {
        let bound = 1.13 * sum * size + unit * want.abs().max(0.25);
        assert!((got - want).abs() <= bound, "{name}, element {i}: {got}, not {want} (bound {bound:e})");
    }
}

/// Returns extents around a tile: 1, one less than a tile, a tile, one more than a tile, and one less than three tiles.
fn edge_extents(tile: i64) -> [i64; 5] {
    [1, tile - 1, tile, tile + 1, 3 * tile - 1]
}

/// Runs the drawn ones among the pairs of extents for m and n; for tiles larger than 64 by 64, the three largest pairs
/// are left out. Layouts, batches, epilogues and k vary from pair to pair, each with a different period.
fn all_extents(shape: &'static Shape, dtype: DType) {
    let k = k_tile(shape, dtype);
    let ks = [0, 1, k - 1, k, k + 1, 3 * k - 1, 2 * k];
    let mut turn = shape.m as usize / 16 + shape.n as usize / 32;
    for (i, m) in edge_extents(shape.m).into_iter().enumerate() {
        for (j, n) in edge_extents(shape.n).into_iter().enumerate() {
            if i + j > 6 && shape.m * shape.n > 64 * 64 {
                continue;
            }
            turn += 1;
            let problem = Problem {
                dtype,
                sizes: [m, n, ks[turn % 7]],
                batch: 1 + turn as i64 % 3,
                a: LIES[turn % 5],
                b: LIES[(turn / 5 + 2 * turn) % 5],
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

#[test]
fn extents_around_the_tiles_of_f32() {
    all_shapes().for_each(|s| all_extents(s, DType::F32));
}

#[test]
fn extents_around_the_tiles_of_f16() {
    all_shapes().for_each(|s| all_extents(s, DType::F16));
}

#[test]
fn extents_around_the_tiles_of_bf16() {
    all_shapes().for_each(|s| all_extents(s, DType::BF16));
}

#[test]
fn every_pair_of_layouts() {
    for dtype in DTYPES {
        for shape in [&SHAPES[2], &SHAPES[6], &SMALL[0], &SMALL[1]] {
            for a in LIES {
                for b in LIES {
                    let k = 2 * k_tile(shape, dtype) + 8;
                    for symbolic in [false, true] {
                        let sizes = [shape.m + 8, shape.n + 8, k];
                        let p = Problem { dtype, sizes, batch: 2, a, b, after: After::Nothing, symbolic, ..PLAIN };
                        if is_drawn(&name(&p, shape)) {
                            close(p, shape, Fill::Whole);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn packed_constants() {
    for shape in all_shapes() {
        for (n, k) in [(shape.n, 64), (shape.n - 1, 33), (shape.n + 33, 17), (2 * shape.n + 1, 100)] {
            for symbolic in [false, true] {
                let sizes = [shape.m + 3, n, k];
                let after = After::BiasGelu;
                let p = Problem {
                    dtype: DType::F32,
                    sizes,
                    batch: 1,
                    a: Lie::K(0),
                    b: Lie::Panels,
                    after,
                    symbolic,
                    ..PLAIN
                };
                close(p, shape, Fill::Random);
            }
        }
    }
}

#[test]
fn without_rows_or_columns_there_is_no_launch() {
    for sizes in [[0, 64, 64], [64, 0, 64]] {
        let (a, b) = (Lie::K(0), Lie::Rows(0));
        let p = Problem { dtype: DType::F32, sizes, batch: 2, a, b, after: After::Nothing, symbolic: true, ..PLAIN };
        let outcome = close(p, &SHAPES[2], Fill::Random);
        assert_eq!(outcome.report.counters.warp_instructions, 0);
    }
}

/// If the result is transposed, the variable along which it is contiguous runs along the columns of the tiles.
#[test]
fn results_that_are_transposed() {
    for dtype in DTYPES {
        for (a, b) in [(Lie::K(0), Lie::Rows(0)), (Lie::Rows(1), Lie::K(0))] {
            let after = After::Transposed;
            close(
                Problem { dtype, sizes: [70, 40, 50], batch: 2, a, b, after, symbolic: true, ..PLAIN },
                &SHAPES[3],
                Fill::Whole,
            );
        }
    }
}

/// Three batch entries share one matrix: the index of B is computed from the batch.
#[test]
fn grouped_heads() {
    for dtype in DTYPES {
        for b in [Lie::Grouped(0), Lie::Grouped(2)] {
            let p = Problem {
                dtype,
                sizes: [40, 33, 40],
                batch: 6,
                a: Lie::K(0),
                b,
                after: After::Nothing,
                symbolic: true,
                ..PLAIN
            };
            close(p, &SHAPES[5], Fill::Whole);
        }
    }
}

/// Launches with few rows or few blocks use smaller tiles, which the same PTX kernel contains.
#[test]
fn few_rows_and_many_in_one_entry() {
    for (dtype, n, k) in
        [(DType::F32, 200, 140), (DType::F32, 4096, 40), (DType::BF16, 200, 72), (DType::F16, 4096, 132)]
    {
        for (m, b) in [(1, Lie::Panels), (16, Lie::Rows(0)), (17, Lie::Panels), (2, Lie::K(0)), (30, Lie::Rows(4))] {
            let b = if b == Lie::Panels && dtype != DType::F32 { Lie::Rows(0) } else { b };
            let (a, after) = (Lie::K(0), After::Nothing);
            let p = Problem { dtype, sizes: [m, n, k], batch: 1, a, b, after, symbolic: true, ..PLAIN };
            // The extents of weights (n and k) are known at compile time.
            let case = Case::new(Problem { fixed: true, ..p }, Fill::Whole);
            let outcome = case.run(None);
            assert!(outcome.report.findings.is_empty(), "{p:?}: {:?}", outcome.report.findings);
            assert!(outcome.values == case.expected(), "{p:?}");
            let gemm = Gemm::from_def(&outcome.lowered.def).unwrap();
            assert!(gemm.few.is_some() && gemm.small.is_some() == (k > 100), "{p:?}");
            stated(&p, &outcome, 0.02);
        }
    }
    // A launch with the largest tiles; the last tile along m has one row.
    let p = Problem { dtype: DType::F16, sizes: [385, 4096, 40], batch: 1, symbolic: true, fixed: true, ..PLAIN };
    let case = Case::new(p, Fill::Whole);
    let outcome = case.run(None);
    assert!(outcome.report.findings.is_empty() && outcome.values == case.expected(), "{p:?}");
    stated(&p, &outcome, 0.02);
}

/// If rows begin at multiples of 16 bytes, neither the copies to shared memory nor the loads of fragments have bank
/// conflicts.
#[test]
fn no_bank_conflicts() {
    for dtype in DTYPES {
        for shape in all_shapes() {
            for a in [Lie::K(0), Lie::Rows(0)] {
                for b in [Lie::K(0), Lie::Rows(0), Lie::Panels] {
                    if b == Lie::Panels && dtype != DType::F32 {
                        continue;
                    }
                    let sizes = [shape.m, shape.n, 2 * k_tile(shape, dtype)];
                    let p = Problem { dtype, sizes, batch: 1, a, b, after: After::Nothing, symbolic: false, ..PLAIN };
                    let outcome = close(p, shape, Fill::Whole);
                    let shared = &outcome.report.counters.shared;
                    assert!(shared.requests > 0);
                    assert_eq!(shared.conflicts(), 0, "{}: {:?}", name(&p, shape), outcome.report.counters.lines);
                }
            }
        }
    }
}

/// The waits and barriers of the pipeline are necessary: if the waits let more copies stay pending, or the barriers
/// only synchronise a warp, the simulator reports a finding.
#[test]
fn a_missing_wait_or_barrier_is_found() {
    let case = Case::new(Problem { sizes: [64, 64, 256], ..PLAIN }, Fill::Whole);
    for (from, to, kind) in [
        ("cp.async.wait_group 2;", "cp.async.wait_group 4;", Kind::InFlight),
        ("bar.sync 0;", "bar.warp.sync 0xffffffff;", Kind::Race),
    ] {
        let outcome = case.run_changed(Some(&SHAPES[2]), &|text| {
            assert!(text.contains(from));
            text.replace(from, to)
        });
        let kinds: Vec<Kind> = outcome.report.findings.iter().map(|f| f.kind).collect();
        assert!(kinds.contains(&kind), "{from}: {:?}", outcome.report.findings);
    }
}

/// Tests infinity times a number, two infinities that cancel, numbers that round to infinity in tf32, and NaN.
#[test]
fn infinities_and_nan_come_out_as_they_are() {
    let (a, b) = (Lie::K(0), Lie::Rows(0));
    let p = Problem {
        dtype: DType::F32,
        sizes: [40, 40, 20],
        batch: 1,
        a,
        b,
        after: After::Nothing,
        symbolic: true,
        ..PLAIN
    };
    let mut case = Case::new(p, Fill::Random);
    let mut values: Vec<f32> = case.reads[0].to_vec().unwrap();
    for (at, value) in [(3, f32::INFINITY), (45, f32::NEG_INFINITY), (200, f32::NAN), (310, f32::MAX), (311, f32::MIN)]
    {
        values[at] = value;
    }
    (values[700], values[701]) = (f32::INFINITY, f32::NEG_INFINITY);
    case.reads[0] = sardonyx_base::Tensor::from_vec(case.reads[0].dims().to_vec(), values);
    let outcome = case.run(Some(&SHAPES[2]));
    assert!(outcome.report.findings.is_empty(), "{:?}", outcome.report.findings);
    let expected = case.expected();
    for (i, (got, want)) in outcome.values.iter().zip(&expected).enumerate() {
        let same = got == want || got.is_nan() && want.is_nan() || (got - want).abs() <= 1e-5 * want.abs().max(1.0);
        assert!(same, "element {i}: {got}, not {want}");
    }
    assert_eq!(
        expected.iter().filter(|v| !v.is_finite()).count(),
        outcome.values.iter().filter(|v| !v.is_finite()).count()
    );
    assert!(expected.iter().any(|v| v.is_infinite()) && expected.iter().any(|v| v.is_nan()));
}

/// Asserts that the predicted sectors of each buffer differ from the counted ones by at most the fraction `tolerance`.
fn stated(p: &Problem, outcome: &Outcome, tolerance: f64) {
    stated_for(p, outcome, tolerance, "sm_80");
}

fn stated_for(p: &Problem, outcome: &Outcome, tolerance: f64, target: &str) {
    let stated = outcome.lowered.for_gpu(Target::from_ptx(target).unwrap()).movement(&outcome.params);
    for (i, stated) in stated.iter().enumerate() {
        let name = format!("b{i}");
        let counted = outcome.report.counters.allocations.iter().find(|c| c.name == name).unwrap();
        let counted = (counted.loads.sectors + counted.stores.sectors) as i64;
        let apart = (stated.scheduled - counted).abs() as f64;
        assert!(apart <= tolerance * counted as f64, "{p:?}, buffer {i}: {stated:?}, but {counted}");
    }
}

/// Operands are bf16 and accumulators are f32; B is a constant packed in panels of depth 2, or of depth 8 (16-byte
/// chunks along k) for GPUs.
#[test]
fn factors_that_are_widened() {
    for (turn, shape) in all_shapes().enumerate() {
        let k = k_tile(shape, DType::BF16);
        for (i, k) in [2, k - 1, k, k + 1, 3 * k - 3, 4 * k].into_iter().enumerate() {
            for a in [Lie::K(0), Lie::Rows(2)] {
                let sizes =
                    [edge_extents(shape.m)[(turn + i) % 5].max(2), edge_extents(shape.n)[(turn + i / 2) % 5].max(2), k];
                for b in [Lie::Panels, Lie::Chunks([32, 64, 128][(turn + i) % 3])] {
                    let second = (i % 3 == 1).then_some(b);
                    let (after, symbolic) = (AFTERS[(turn + i) % 4], i % 2 == 0);
                    let problem = Problem { sizes, a, b, second, after, symbolic, ..PLAIN };
                    let p = Problem { widened: true, fixed: true, ..problem };
                    let outcome = close(p, shape, Fill::Random);
                    assert_eq!(Gemm::from_def(&outcome.lowered.def).unwrap().factors, Factors::BF16);
                }
            }
        }
        for b in [Lie::Panels, Lie::Chunks(128), Lie::Chunks(32)] {
            let p = Problem { widened: true, b, sizes: [shape.m, shape.n, 4 * k], ..PLAIN };
            let outcome = close(p, shape, Fill::Random);
            assert_eq!(outcome.report.counters.shared.conflicts(), 0, "{}", name(&p, shape));
            stated(&p, &Case::new(p, Fill::Random).run(None), 0.02);
        }
    }
}

/// A row of the result has the same bits alone and in any batch: the shape of the tiles depends on the size of the
/// launch, but tiles of all shapes add the products of an element in the same order.
#[test]
fn bits_do_not_depend_on_the_tile() {
    let plain = |dtype| Problem { dtype, sizes: [70, 66, 640], ..PLAIN };
    let widened = |b| Problem { widened: true, fixed: true, b, ..plain(PLAIN.dtype) };
    for p in DTYPES.map(plain).into_iter().chain([widened(Lie::Panels), widened(Lie::Chunks(64))]) {
        let case = Case::new(p, Fill::Random);
        let mut outcomes = all_shapes().map(|shape| (name(&p, shape), case.run(Some(shape)).values));
        let (_, first) = outcomes.next().unwrap();
        outcomes.for_each(|(name, values)| assert!(values == first, "{name}"));
        if matches!(p.dtype, DType::F16 | DType::BF16) || p.b == Lie::Chunks(64) {
            assert!(case.run_on_hopper(None, &|text| text).values == first, "{p:?} by warpgroups");
        }
    }
}

/// Operands are signed or unsigned bytes, and B is packed or in a plain layout; sums in i32 are exact.
#[test]
fn bytes_of_every_sign() {
    let signs = [DType::I8, DType::U8].map(|left| [DType::I8, DType::U8].map(|right| [left, right])).concat();
    for (turn, shape) in SHAPES.iter().chain(SLICED).enumerate() {
        for (i, k) in
            [1, shape.k_bytes - 1, shape.k_bytes, 2 * shape.k_bytes + 16, 4 * shape.k_bytes + 4].into_iter().enumerate()
        {
            let of = |i: usize| edge_extents(shape.m)[(turn + i) % 5];
            let sizes = [of(i).max(2), edge_extents(shape.n)[(turn + 2 * i) % 5].max(2), k];
            let second = (i == 1).then_some(Lie::Panels);
            let b =
                [Lie::Panels, Lie::K(0), Lie::K(3), Lie::Rows(1)][if second.is_some() { 0 } else { (turn + i) % 4 }];
            let a = [Lie::K(0), Lie::K(5), Lie::Apart][(turn + i / 2) % 3];
            let (bytes, symbolic) = (Some(signs[(turn + i) % 4]), i % 2 == 0);
            let p = Problem { dtype: DType::I32, bytes, sizes, a, b, second, symbolic, fixed: true, ..PLAIN };
            close(p, shape, Fill::Whole);
        }
        let sizes = [shape.m, shape.n, 4 * shape.k_bytes];
        let p = Problem { dtype: DType::I32, bytes: Some(signs[turn % 4]), b: Lie::Panels, sizes, ..PLAIN };
        let outcome = close(p, shape, Fill::Whole);
        assert_eq!(outcome.report.counters.shared.conflicts(), 0, "{}", name(&p, shape));
        stated(&p, &Case::new(p, Fill::Whole).run(None), 0.02);
    }
}

/// The predicted traffic of a launch is within 2 % of the traffic that its instructions request.
#[test]
fn sectors_are_as_stated() {
    let mut shapes = vec![];
    for (sizes, batch) in [
        ([1024, 1536, 64], 1),
        ([512, 384, 64], 1),
        ([256, 128, 64], 1),
        ([64, 64, 128], 4),
        ([16, 256, 128], 1),
        ([96, 64, 32], 48),
    ] {
        for (dtype, a, b) in [
            (DType::F32, Lie::K(0), Lie::Rows(0)),
            (DType::BF16, Lie::K(0), Lie::K(0)),
            (DType::F32, Lie::K(0), Lie::Panels),
            (DType::F16, Lie::Rows(0), Lie::Rows(0)),
        ] {
            if b == Lie::Panels && batch > 1 {
                continue;
            }
            for after in [After::BiasGelu, After::ScaleMask, After::Residual] {
                let p = Problem { dtype, sizes, batch, a, b, after, symbolic: false, ..PLAIN };
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
