//! testdata/layers/bert_large_layer.mlir at batch 8, seq 512  =>  448.8 M words moved unfused, and fewer when optimized
//!
//! Unfused, each operator moves its operands and its result once. One activation has u = batch·seq·1024 = 4,194,304
//! words; queries, keys and values read it once together: their products u + 3·u/4 + 3·u, three biases 6·u, the scores
//! 10·u, the scale 16·u, the softmax 16·u, the context 10·u, its product 2·u + u/4, bias 2·u, residual 3·u, norm 2·u,
//! up 6·u, its bias 8·u, GELU 8·u, down 6·u, bias 2·u, residual 3·u, norm 2·u; in total 107·u, plus 13,312 words of
//! biases and norm weights. If Q, K and V each read the activation separately, the total would be 109·u.

use crate::agrees;
use crate::program::Program;
use sardonyx::movement::{Movement, Question, of_kind, sum};
use sardonyx_kernels::DeviceSpec;
use sardonyx_passes::movement::Kind;
use sardonyx_tests::prepared::workspace;

fn text() -> String {
    let path = workspace().join("testdata/layers/bert_large_layer.mlir");
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn at(device: &str) -> Movement {
    let program = Program::of_text(&text()).unwrap_or_else(|e| panic!("{e}"));
    let at = [("batch".to_string(), 8), ("seq".to_string(), 512)].into();
    let question = Question { at, device: DeviceSpec::named(device).unwrap() };
    Movement::compute(&program.levels, &program.plan, &question).unwrap_or_else(|e| panic!("{e}"))
}

/// Floating-point operations of the contractions of one encoder layer.
const FLOPS: i64 = 111_669_149_696;

#[test]
fn it_moves_448_8_million_words_unfused() {
    let m = at("x86-64-v4");
    let u = 8 * 512 * 1024;
    assert_eq!(sum(&m.before).words, 107 * u + 13 * 1024);
    assert_eq!(sum(&m.before).words, 448_803_840);
    assert_eq!(sum(of_kind(&m.before, Kind::Contraction)).flops, FLOPS);
    let shown: Vec<String> = m.before.iter().map(|r| format!("{} {}", r.origins.join(" "), r.words)).collect();
    println!("{}", shown.join("\n"));
}

#[test]
fn optimised_it_moves_less() {
    let m = at("x86-64-v4");
    for row in &m.after {
        println!(
            "{:<4} {:<13} {:>11} {:>11} {}",
            row.name,
            row.kind.name(),
            row.words,
            row.scheduled.unwrap(),
            row.origins.join(" ")
        );
    }
    let after = sum(&m.after);
    println!("after: {} words in {} launches", after.words, after.rows);
    assert_eq!((after.words, after.rows), (121_648_128, 7));
    // Two of the contractions have become part of the attention kernel.
    let attended = 2 * 2 * 8 * 16 * 512 * 512 * 64;
    assert_eq!(sum(of_kind(&m.after, Kind::Contraction)).flops / 1_000_000_000, (FLOPS - attended) / 1_000_000_000);
    // The operations of both products, and a few softmax operations for each score.
    let softmax = sum(of_kind(&m.after, Kind::Attention)).flops - attended;
    let scores = 8 * 16 * 512 * 512;
    assert!((4 * scores..10 * scores).contains(&softmax), "{softmax} operations on {scores} scores");
}

/// The rows of all batches are one dimension of 4,096: 22 groups of 192 rows, 86 chunks of 48. With 1 MiB of cache of
/// its own, a core reads the weights once per group as long as a group of rows (192 · 1,024 words) stays in the cache.
/// If rows are four times as long, neither the group nor the panel of weights stays in the cache: the panel is read
/// once per chunk, and the rows once per panel.
#[test]
fn scheduled_words_follow_from_the_blocks() {
    let m = at("x86-64-v4");
    let of = |origin: &str| {
        let row = m.after.iter().find(|r| r.origins.iter().any(|o| o == origin));
        row.unwrap_or_else(|| panic!("no launch of {origin}")).scheduled.unwrap()
    };
    let (rows, d, f) = (4096, 1024, 4096);
    assert_eq!(of("up/product"), rows * d + 22 * (d * f + f) + rows * f);
    assert_eq!(of("down/product"), 32 * rows * f + 86 * (f * d + d) + rows * d + rows * d);
    assert_eq!(of("norm2"), rows * d + 2 * d + rows * d);
}

/// No launch is scheduled to move less than the lower bound for any code.
#[test]
fn scheduled_words_are_between_the_bound_and_a_few_times_it() {
    for device in ["x86-64-v3", "x86-64-v4", "sm_80", "sm_90a"] {
        let m = at(device);
        for row in &m.after {
            let (scheduled, bound) = (row.scheduled.unwrap(), row.lower_bound.unwrap());
            assert!(row.words <= bound && bound <= scheduled, "{device}: {row:?}");
        }
        let all = sum(&m.after);
        println!("{device}: {} scheduled, bound {}", all.scheduled, all.lower_bound);
        assert!(all.scheduled < 20 * all.lower_bound, "{device}: {all:?}");
    }
}

/// The same text with narrower widths: 64 wide, 2 heads, 96 between the up and down products.
#[test]
fn counted_is_what_the_formulas_say() {
    let narrow = |line: &str| {
        let widths = [("16", "2"), ("64", "32"), ("1024", "64"), ("4096", "96")];
        match line.starts_with('!') {
            true => widths.iter().fold(line.to_string(), |line, (from, to)| replace_number(&line, from, to)),
            false => line.to_string(),
        }
    };
    let text: Vec<String> = text().lines().map(narrow).collect();
    let program = Program::of_text(&text.join("\n")).unwrap_or_else(|e| panic!("{e}"));
    agrees("bert_large_layer", &program, &[[1, 1, 0], [1, 5, 0], [3, 2, 0], [2, 7, 0]], 0);
}

/// Replaces whole numbers only, not digits within a longer number.
fn replace_number(line: &str, from: &str, to: &str) -> String {
    let words = line.split_inclusive(|c: char| !c.is_ascii_digit());
    let replaced = words.map(|w| match w.trim_end_matches(|c: char| !c.is_ascii_digit()) == from {
        true => w.replacen(from, to, 1),
        false => w.to_string(),
    });
    replaced.collect()
}
