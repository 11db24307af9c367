//! Attention in one launch: the executed PTX agrees with the interpreter, and the simulator has no findings

#[path = "../kernels/build.rs"]
#[allow(dead_code, reason = "attention needs a part of the builder")]
mod build;
#[path = "../../../../tests/src/drawn.rs"]
mod drawn;
mod launch;
mod problem;

use drawn::is_drawn;
use launch::{Case, HOPPER, Outcome, numbers, tensor};
use problem::{Left, Lie, PLAIN, Problem, Right, Score, Weights, lowest};
use ptxvm::Kind;
use sardonyx_base::{DType, Tensor};
use sardonyx_kernels::{Lowered, Target};

/// Largest allowed difference from the interpreter's result.
///
/// The error of an f32 score is 2^-21·Σ|q·k|, where Σ|q·k| is at most about d / 3 for numbers evenly distributed in -1
/// to 1 (bounded here by d / 2). The error of a score is the relative error of its exponential, and a result is a
/// weighted mean of numbers of magnitude below 1. With 16-bit types each step rounds: the scores, the weighted sum and
/// the gate of `Weights::Inverse` each add a rounding error.
fn bound(p: &Problem) -> f64 {
    let score = p.d as f64 / 2.0 + 4.0;
    match p.dtype {
        // Exponentials are rounded to bf16. The kernel computes them relative to the largest score so far, the
        // interpreter relative to the largest of all scores.
        DType::F32 if p.widened => 2f64.powi(-7),
        DType::F64 => 1e-12 * score,
        DType::F16 => 2f64.powi(-10) * 6.0,
        DType::BF16 => 2f64.powi(-7) * 6.0,
        _ => 2f64.powi(-21) * score + 2f64.powi(-21),
    }
}

fn compare(p: &Problem, values: &[f64], expected: &[f64]) {
    assert_eq!(values.len(), expected.len());
    let bound = bound(p);
    for (i, (got, want)) in values.iter().zip(expected).enumerate() {
        let same = got == want || got.is_nan() && want.is_nan() || (got - want).abs() <= bound * want.abs().max(1.0);
        assert!(same, "{p:?}, element {i}: {got}, not {want} (bound {bound:e})");
    }
}

/// Runs the variant that the launch selects and the variant with large blocks of rows; if warpgroups can multiply the
/// factors, also these two of a GPU that has warpgroups. The results of both variants of a GPU must be the same bits, and
/// all results must be close to the interpreter's.
fn close(p: Problem) -> Vec<Outcome> {
    let case = Case::new(p);
    let same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
    let mut outcomes: Vec<Outcome> = [case.run()].into_iter().chain(case.run_many(&|text| text)).collect();
    assert!(outcomes[outcomes.len() - 1].values.iter().zip(&outcomes[0].values).all(same), "{p:?}");
    if let Some(large) = case.run_warpgroups(&|text| text) {
        let selected = case.run_on(HOPPER, &|text| text);
        assert!(large.values.iter().zip(&selected.values).all(same), "{p:?}");
        outcomes.extend([selected, large]);
    }
    for outcome in &outcomes {
        assert!(outcome.report.findings.is_empty(), "{p:?}: {:?}", outcome.report.findings);
        compare(&p, &outcome.values, &case.expected());
    }
    outcomes
}

const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
const SCORES: [Score; 7] =
    [Score::Nothing, Score::Scaled, Score::Mask, Score::FullMask, Score::Causal, Score::Hidden, Score::Capped];
const WEIGHTS: [Weights; 5] = [Weights::After, Weights::Inside, Weights::Visible, Weights::Cleaned, Weights::Inverse];
const LIES: [Lie; 5] = [Lie::Heads, Lie::Rows, Lie::Stacked, Lie::Turned, Lie::Room];

/// Returns whether sm_80 runs the kernel on tensor cores.
fn is_flash(lowered: &Lowered) -> bool {
    lowered.for_gpu(Target::from_ptx("sm_80").unwrap()).plan.is_on_tensor_cores()
}

#[test]
fn every_form_of_scores_and_weights() {
    for score in SCORES {
        for weights in WEIGHTS {
            close(Problem { score, weights, ..PLAIN });
        }
    }
}

#[test]
fn every_layout() {
    for lie in LIES {
        for symbolic in [false, true] {
            for (left, right) in
                [(Left::Plain, Right::Plain), (Left::Scaled, Right::Joined), (Left::Rotated, Right::Plain)]
            {
                close(Problem { lie, left, right, symbolic, queries: 40, batch: 2, score: Score::Mask, ..PLAIN });
            }
        }
    }
}

/// Extents just below, equal to and just above a tile of rows and a chunk of keys; layouts, variants and types
/// alternate.
#[test]
fn extents_around_the_tiles() {
    let mut turn = 0;
    for dtype in DTYPES {
        for queries in [1, 2, 15, 16, 17, 33, 63, 64, 65, 130] {
            for keys in [0, 1, 31, 32, 33, 63, 64, 65, 100, 129] {
                turn += 1;
                let (lie, d) = (LIES[turn % 5], [8, 32, 20, 64][turn % 4]);
                let e = if lie == Lie::Stacked { d } else { [32, 8, 64, 36, 5][turn % 5] };
                let p = Problem {
                    dtype,
                    queries,
                    keys,
                    d,
                    e,
                    batch: 1 + turn as i64 % 2,
                    lie,
                    score: SCORES[turn % 7],
                    weights: WEIGHTS[turn / 2 % 5],
                    symbolic: !turn.is_multiple_of(3),
                    ..PLAIN
                };
                assert!(!is_drawn(&format!("{p:?}")) || is_flash(&close(p)[0].lowered), "{p:?}");
            }
        }
    }
}

/// bf16 factors with f32 accumulators: tiles and instructions are those of bf16, everything else is in f32.
#[test]
fn factors_that_are_widened() {
    let mut turn = 0;
    for (queries, keys) in [(1, 33), (16, 64), (17, 100), (65, 129), (130, 64)] {
        for weights in WEIGHTS {
            turn += 1;
            let (lie, d) = (LIES[turn % 5], [8, 32, 20, 64][turn % 4]);
            let e = if lie == Lie::Stacked { d } else { [32, 8, 64, 36, 5][turn % 5] };
            let (left, right) = [(Left::Plain, Right::Plain), (Left::Scaled, Right::Joined)][turn % 2];
            let (score, symbolic) = (SCORES[turn % 7], turn % 3 != 0);
            let p = Problem { widened: true, queries, keys, d, e, lie, left, right, score, weights, symbolic, ..PLAIN };
            for outcome in close(p) {
                assert!(is_flash(&outcome.lowered), "{p:?}");
                let text = outcome.lowered.for_gpu(Target::from_ptx("sm_80").unwrap()).emit("k").unwrap().text;
                assert!(text.contains(".f32.bf16.bf16.f32") && !text.contains("tf32"), "{p:?}");
            }
        }
    }
    let p = Problem { widened: true, queries: 130, keys: 128, d: 64, e: 64, score: Score::Mask, ..PLAIN };
    for outcome in close(p) {
        assert_eq!(outcome.report.counters.shared.conflicts(), 0);
    }
    stated(&p, &Case::new(p).run(), 0.02);
}

#[test]
fn every_width() {
    for dtype in DTYPES {
        for (d, e) in [
            (1, 1),
            (1, 64),
            (3, 7),
            (16, 40),
            (40, 24),
            (64, 64),
            (80, 80),
            (96, 96),
            (128, 128),
            (128, 65),
            (256, 160),
        ] {
            for (queries, lie, right) in
                [(3, Lie::Rows, Right::Plain), (40, Lie::Heads, Right::Joined), (70, Lie::Turned, Right::Plain)]
            {
                let p = Problem { dtype, d, e, queries, lie, right, score: Score::Scaled, ..PLAIN };
                if is_drawn(&format!("{p:?}")) {
                    close(p);
                }
            }
        }
    }
}

/// Several query heads share one key head.
#[test]
fn grouped_heads() {
    for lie in [Lie::Heads, Lie::Rows, Lie::Stacked, Lie::Room] {
        for queries in [1, 20] {
            for weights in [Weights::After, Weights::Visible] {
                close(Problem { heads: 6, group: 3, lie, queries, weights, score: Score::Causal, batch: 2, ..PLAIN });
            }
        }
    }
}

/// Head widths known only at launch, or f64, for which no code for tensor cores is generated.
#[test]
fn without_tensor_cores() {
    let mut turn = 0;
    for (dtype, symbolic_width) in
        [(DType::F32, true), (DType::F16, true), (DType::BF16, true), (DType::F64, false), (DType::F64, true)]
    {
        for (queries, keys, d, e) in [
            (1, 1, 1, 1),
            (3, 0, 4, 4),
            (5, 127, 8, 64),
            (2, 128, 16, 129),
            (4, 129, 3, 128),
            (1, 300, 33, 7),
            (0, 3, 2, 2),
        ] {
            for weights in WEIGHTS {
                turn += 1;
                let (score, lie) = (SCORES[turn % 7], LIES[turn % 5]);
                let p = Problem { dtype, symbolic_width, queries, keys, d, e, weights, score, lie, ..PLAIN };
                assert!(!is_drawn(&format!("{p:?}")) || !is_flash(&close(p)[0].lowered), "{p:?}");
            }
        }
    }
}

#[test]
fn without_rows_there_is_no_launch() {
    for (batch, queries) in [(0, 4), (2, 0)] {
        for outcome in close(Problem { batch, queries, ..PLAIN }) {
            assert_eq!(outcome.report.counters.warp_instructions, 0);
        }
    }
}

/// A mask of -∞ or the lowest finite number hides some keys from every row, and all keys from some rows.
#[test]
fn rows_that_see_nothing() {
    for weights in WEIGHTS {
        for score in [Score::Mask, Score::FullMask] {
            for low in [f64::NEG_INFINITY, lowest(DType::F32)] {
                for queries in [3, 40] {
                    let p = Problem { weights, score, queries, keys: 70, batch: 2, ..PLAIN };
                    let mut case = Case::new(p);
                    let mask = case.mask();
                    let dims = case.reads[mask].dims().to_vec();
                    let rows = dims.iter().product::<usize>() / 70;
                    let mut values = numbers(&case.reads[mask]);
                    // Hides the first 32 keys from all rows, all keys from every third row, and all but one key from
                    // the row after it.
                    for row in 0..rows {
                        let hidden = |j: usize| j < 32 || row % 3 == 0 || row % 3 == 1 && j != 50;
                        (0..70).filter(|j| hidden(*j)).for_each(|j| values[70 * row + j] = low);
                    }
                    case.reads[mask] = tensor(DType::F32, &dims, &values);
                    let outcome = case.run();
                    assert!(outcome.report.findings.is_empty(), "{p:?}: {:?}", outcome.report.findings);
                    compare(&p, &outcome.values, &case.expected());
                }
            }
        }
    }
}

/// Infinities, NaN, numbers that tf32 rounds to infinity, a subnormal number and -0, placed in one operand at a time:
/// the first, the second or the last.
#[test]
fn infinities_and_nan_come_out_as_they_are() {
    let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN, 1e-40, -0.0];
    for (weights, score) in
        [(Weights::After, Score::Scaled), (Weights::Cleaned, Score::Hidden), (Weights::Visible, Score::Mask)]
    {
        for part in 0..3 {
            for (i, value) in special.into_iter().enumerate() {
                for queries in [5, 30] {
                    let p = Problem { weights, score, queries, lie: Lie::Heads, ..PLAIN };
                    let mut case = Case::new(p);
                    // The values are the last operand.
                    let operand = if part == 2 { case.reads.len() - 1 } else { part };
                    let mut values: Vec<f32> = case.reads[operand].to_vec().unwrap();
                    let n = values.len();
                    values[(37 * i + 11) % n] = value;
                    values[n - 1 - 5 * i] = value;
                    case.reads[operand] = Tensor::from_vec(case.reads[operand].dims().to_vec(), values);
                    let outcome = case.run();
                    let name = format!("{p:?}, {value} in operand {operand}");
                    assert!(outcome.report.findings.is_empty(), "{name}: {:?}", outcome.report.findings);
                    for (i, (got, want)) in outcome.values.iter().zip(case.expected()).enumerate() {
                        let same = *got == want
                            || got.is_nan() && want.is_nan()
                            || (got - want).abs() <= 1e-5 * want.abs().max(1.0);
                        assert!(same, "{name}, element {i}: {got}, not {want}");
                    }
                }
            }
        }
    }
}

/// A row's result has the same bits whatever else the launch computes: fewer or more rows, other batches, hidden keys.
#[test]
fn a_row_depends_on_no_other() {
    for dtype in DTYPES {
        for e in [8, 64] {
            let of = |queries: i64, batch: i64, keys: i64| {
                let p = Problem { dtype, queries, batch, keys, e, score: Score::Mask, heads: 1, ..PLAIN };
                let mut case = Case::new(p);
                // An element depends only on its operand, row and column, so it is the same for any number of rows.
                let number = |part: usize, row: i64, column: i64| {
                    let n = (part as i64 * 7919 + row * 104729 + column * 1299709) % 1009;
                    n as f64 / 504.5 - 1.0
                };
                for (part, rows, width) in [(0, queries, 32), (1, keys, 32), (3, keys, e)] {
                    let dims = case.reads[part].dims().to_vec();
                    let one = (0..rows).flat_map(|r| (0..width).map(move |c| (r, c)));
                    let one: Vec<f64> = one.map(|(r, c)| number(part, r, c)).collect();
                    case.reads[part] = tensor(dtype, &dims, &one.repeat(batch as usize));
                }
                let hidden: Vec<f64> = (0..keys).map(|j| if j < 45 { 0.25 } else { f64::NEG_INFINITY }).collect();
                case.reads[2] = tensor(dtype, &[batch as usize, keys as usize], &hidden.repeat(batch as usize));
                case.run().values[..e as usize].to_vec()
            };
            let alone = of(1, 1, 45);
            for (queries, batch, keys) in [(16, 1, 45), (17, 1, 45), (70, 2, 45), (1, 3, 64), (16, 1, 70), (20, 2, 200)]
            {
                let got = of(queries, batch, keys);
                assert!(
                    got == alone,
                    "{dtype} {e}: {queries} rows, {batch} batches, {keys} keys: {got:?}, not {alone:?}"
                );
            }
        }
    }
}

/// If rows begin at multiples of the size of a copied chunk, neither copies nor fragment loads have bank conflicts.
#[test]
fn no_bank_conflicts() {
    for dtype in DTYPES {
        for (d, e) in [(32, 32), (64, 64), (128, 128)] {
            for queries in [16, 64] {
                let p = Problem { dtype, d, e, queries, keys: 128, symbolic: false, ..PLAIN };
                for outcome in close(p) {
                    let shared = &outcome.report.counters.shared;
                    assert!(shared.requests > 0);
                    assert_eq!(shared.conflicts(), 0, "{p:?}: {:?}", outcome.report.counters.lines);
                }
            }
        }
    }
}

/// The waits and barriers of the pipeline are necessary: if one of them is removed, the simulator reports a finding.
#[test]
fn a_missing_wait_or_barrier_is_found() {
    for (queries, wait, later) in [(16, "cp.async.wait_group 1;", 3), (64, "cp.async.wait_group 0;", 1)] {
        let case = Case::new(Problem { queries, keys: 256, symbolic: false, ..PLAIN });
        let changes = [
            (wait.to_string(), format!("cp.async.wait_group {later};"), Kind::InFlight),
            ("bar.sync 0;".to_string(), "bar.warp.sync 0xffffffff;".to_string(), Kind::Race),
        ];
        for (from, to, kind) in changes {
            let change = |text: String| {
                assert!(text.contains(&from), "{from}");
                text.replace(&from, &to)
            };
            let outcome = case.run_many(&change).unwrap_or_else(|| case.run_changed(&change));
            let kinds: Vec<Kind> = outcome.report.findings.iter().map(|f| f.kind).collect();
            assert!(kinds.contains(&kind), "{from}: {:?}", outcome.report.findings);
        }
    }
}

/// Products of warpgroups: all instructions are theirs, and each fence, wait and barrier is necessary.
#[test]
fn a_missing_fence_of_warpgroups_is_found() {
    let p = Problem { dtype: DType::BF16, d: 64, e: 64, queries: 128, keys: 256, symbolic: false, ..PLAIN };
    let case = Case::new(p);
    let whole = |text: String| {
        assert!(text.contains("wgmma.mma_async") && !text.contains("mma.sync"), "{text}");
        text
    };
    let outcome = case.run_warpgroups(&whole).expect("warpgroups take it");
    assert!(outcome.report.findings.is_empty(), "{:?}", outcome.report.findings);
    let changes = [
        ("wgmma.fence.sync.aligned;", ""),
        ("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;"),
        ("fence.proxy.async.shared::cta;", ""),
        ("cp.async.wait_group 2;", "cp.async.wait_group 3;"),
        ("bar.sync 1, 256;", ""),
    ];
    for (from, to) in changes {
        let change = |text: String| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        };
        let outcome = case.run_warpgroups(&change).expect("warpgroups take it");
        assert!(!outcome.report.findings.is_empty(), "{from}");
    }
}

/// A launch on a GPU with warpgroups uses them if it has more rows than a smaller block, and enough blocks.
#[test]
fn warpgroups_multiply_in_large_launches() {
    for (queries, batch, are_used) in [(128, 96, true), (65, 100, true), (64, 96, false), (128, 95, false)] {
        let (heads, group, keys) = (1, 1, 16);
        let p =
            Problem { dtype: DType::F16, d: 16, e: 16, queries, keys, batch, heads, group, symbolic: true, ..PLAIN };
        let outcome = Case::new(p).run_on(HOPPER, &|text| text);
        assert!(outcome.report.findings.is_empty(), "{p:?}: {:?}", outcome.report.findings);
        // In each of eight warps: one product along d, four along the 64 keys of a tile, and for both a fence, a commit
        // and a wait.
        let products = outcome.report.counters.classes["mma"].warp;
        assert_eq!(products == batch as u64 * 8 * 11, are_used, "{p:?}: {products}");
    }
}

/// Asserts that the predicted sectors of each buffer differ from the counted ones by at most the fraction `tolerance`.
fn stated(p: &Problem, outcome: &Outcome, tolerance: f64) {
    for (i, stated) in outcome.stated.iter().enumerate() {
        let name = format!("b{i}");
        let counted = outcome.report.counters.allocations.iter().find(|c| c.name == name);
        let counted = counted.map_or(0, |c| (c.loads.sectors + c.stores.sectors) as i64);
        let apart = (stated.scheduled - counted).abs() as f64;
        assert!(apart <= tolerance * counted as f64, "{p:?}, buffer {i}: {stated:?}, but {counted}");
    }
}

/// The predicted traffic of a launch is within 2 % of the traffic that its instructions request.
#[test]
fn sectors_are_as_stated() {
    for dtype in DTYPES {
        for (queries, keys) in [(1, 256), (12, 128), (64, 64), (208, 320)] {
            for (lie, left, right) in [
                (Lie::Heads, Left::Plain, Right::Plain),
                (Lie::Rows, Left::Rotated, Right::Plain),
                (Lie::Stacked, Left::Scaled, Right::Joined),
            ] {
                for (score, weights) in [
                    (Score::Mask, Weights::After),
                    (Score::FullMask, Weights::Inverse),
                    (Score::Hidden, Weights::Visible),
                ] {
                    let p = Problem { dtype, queries, keys, lie, left, right, score, weights, d: 64, e: 64, ..PLAIN };
                    if !is_drawn(&format!("{p:?}")) {
                        continue;
                    }
                    close(p).iter().for_each(|outcome| stated(&p, outcome, 0.02));
                }
            }
        }
    }
}

#[test]
fn sectors_are_as_stated_without_tensor_cores() {
    for (queries, keys, d, e) in [(4, 128, 64, 64), (3, 300, 32, 200), (8, 40, 16, 32)] {
        for (score, weights) in
            [(Score::Mask, Weights::After), (Score::FullMask, Weights::Inverse), (Score::Hidden, Weights::Visible)]
        {
            let p = Problem { queries, keys, d, e, score, weights, symbolic_width: true, ..PLAIN };
            close(p).iter().for_each(|outcome| stated(&p, outcome, 0.02));
        }
    }
}
