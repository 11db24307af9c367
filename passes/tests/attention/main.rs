//! Attention in one launch: the PTX, executed, equals the interpreter, and nothing is found wrong

#[path = "../../../compiler/tests/kernels/build.rs"]
#[allow(dead_code, reason = "attention needs a part of the builder")]
mod build;
mod launch;
mod problem;

use launch::{Case, Outcome};
use problem::{Left, Lie, PLAIN, Problem, Right, Score, Weights};
use sardonyx_runtime::DType;

/// How far a result may be from the interpreter's.
///
/// A score of f32 is off by 2^-21·Σ|q·k|, a third of d at most for numbers below 1 that are evenly spread (bounded here
/// by d / 2), and so, relatively, is an exponential; a result is a weighted mean of numbers below 1. With 16 bits each
/// step rounds, and the gate, the sum and the scores each add what they round by.
fn bound(p: &Problem) -> f64 {
    let score = p.d as f64 / 2.0 + 4.0;
    match p.dtype {
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

fn close(p: Problem) -> Outcome {
    let case = Case::new(p);
    let outcome = case.run();
    assert!(outcome.report.findings.is_empty(), "{p:?}: {:?}", outcome.report.findings);
    compare(&p, &outcome.values, &case.expected());
    outcome
}

const SCORES: [Score; 7] = [
    Score::Nothing,
    Score::Scaled,
    Score::Mask,
    Score::FullMask,
    Score::Causal,
    Score::Hidden,
    Score::Capped,
];
const WEIGHTS: [Weights; 5] =
    [Weights::After, Weights::Inside, Weights::Visible, Weights::Cleaned, Weights::Inverse];
const LIES: [Lie; 5] = [Lie::Heads, Lie::Rows, Lie::Stacked, Lie::Turned, Lie::Room];

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
