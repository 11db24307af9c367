//! one MiniLM artifact, 30 seeded (batch, seq)  =>  the interpreter's results, and rows that do not affect each other

use crate::compiled::Compiled;
use sardonyx_base::Tensor;
use sardonyx_base::compare::{Tolerance, compare};
use sardonyx_runtime::Session;
use sardonyx_tests::cut::cut;
use sardonyx_tests::damage::Random;
use sardonyx_tests::prepared::model;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

const NAME: &str = "skel_minilm_l6_safetensors";
/// Output of the second of the six layers.
const SECOND_LAYER: &str = "/m/encoder/layer.1/output/LayerNorm/LayerNormalization_output_0";
const BATCH_MAX: usize = 8;
const SEQ_MAX: usize = 512;
const N_TOKENS: usize = 30522;
/// Largest batch · seq that the interpreter computes in a second or two; larger pairs are left to a named suite.
const SMALL_TOKENS_MAX: usize = 200;

fn compiled(path: &Path) -> Compiled {
    let dims = [format!("batch=1..{BATCH_MAX}"), format!("seq=1..{SEQ_MAX}")];
    Compiled::compile(path, &dims.each_ref().map(String::as_str)).unwrap_or_else(|e| panic!("{e}"))
}

/// The first two layers, compiled once for all tests.
fn two_layers() -> &'static Compiled {
    static COMPILED: OnceLock<Compiled> = OnceLock::new();
    COMPILED.get_or_init(|| {
        // In `target`, where the weights can be linked instead of copied.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        compiled(&cut(&model(NAME), SECOND_LAYER, folder.path()))
    })
}

/// 30 pairs, which include both ends of both ranges.
fn pairs() -> Vec<(usize, usize)> {
    let mut random = Random(0x5EED);
    let corners = [(1, 1), (1, SEQ_MAX), (BATCH_MAX, 1), (BATCH_MAX, SEQ_MAX)];
    let mut pairs = corners.to_vec();
    while pairs.len() < 30 {
        let batch = 1 + random.below(BATCH_MAX);
        // Short sequences are as frequent as long ones, so that remainders of every tile size occur.
        let seq_max = SEQ_MAX >> random.below(5);
        let seq = 1 + random.below(seq_max);
        pairs.push((batch, seq));
    }
    pairs
}

/// Rows of one call: tokens, mask, types.
#[derive(Clone)]
struct Rows {
    seq: usize,
    tokens: Vec<Vec<i64>>,
    mask: Vec<Vec<i64>>,
    types: Vec<Vec<i64>>,
}

impl Rows {
    /// Every row is padded at its end; every second one has holes too. The first position is never masked.
    fn new(batch: usize, seq: usize, random: &mut Random) -> Rows {
        let mut rows = Rows { seq, tokens: vec![], mask: vec![], types: vec![] };
        for row in 0..batch {
            let n_used = 1 + random.below(seq);
            let used = |i: usize, random: &mut Random| i == 0 || i < n_used && (row % 2 == 0 || random.below(8) > 0);
            rows.mask.push((0..seq).map(|i| used(i, random) as i64).collect());
            rows.tokens.push((0..seq).map(|_| random.below(N_TOKENS) as i64).collect());
            rows.types.push((0..seq).map(|i| (2 * i > n_used) as i64).collect());
        }
        rows
    }

    fn inputs(&self) -> Vec<(String, Tensor)> {
        let tensor = |rows: &[Vec<i64>]| Tensor::from_vec(vec![rows.len(), self.seq], rows.concat());
        let all = [("input_ids", &self.tokens), ("attention_mask", &self.mask), ("token_type_ids", &self.types)];
        all.into_iter().map(|(name, rows)| (name.to_string(), tensor(rows))).collect()
    }

    /// The same row in another batch: all other rows are new, and so are the tokens at the
    /// masked positions of this row.
    fn with_new_neighbours(&self, row: usize, random: &mut Random) -> Rows {
        let mut other = Rows::new(self.tokens.len(), self.seq, random);
        for i in (0..self.seq).filter(|&i| self.mask[row][i] == 1) {
            other.tokens[row][i] = self.tokens[row][i];
        }
        (other.mask[row], other.types[row]) = (self.mask[row].clone(), self.types[row].clone());
        other
    }

    fn alone(&self, row: usize) -> Rows {
        let one = |rows: &[Vec<i64>]| vec![rows[row].clone()];
        Rows { seq: self.seq, tokens: one(&self.tokens), mask: one(&self.mask), types: one(&self.types) }
    }
}

fn run(session: &Session, rows: &Rows) -> Tensor {
    let inputs = rows.inputs();
    let given: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let outputs = session.run(&given).unwrap_or_else(|e| panic!("{e}"));
    outputs[0].1.clone()
}

/// Bits of one row at its unmasked positions.
fn seen(output: &Tensor, row: usize, mask: &[i64]) -> Vec<u32> {
    let (seq, width) = (output.dims()[1], output.dims()[2]);
    let values = output.to_vec::<f32>().unwrap();
    let at = (0..seq).filter(|&i| mask[i] == 1).flat_map(|i| (row * seq + i) * width..(row * seq + i + 1) * width);
    at.map(|i| values[i].to_bits()).collect()
}

/// Asserts that the call for each pair agrees with the interpreter. Two threads share the pairs.
fn check_pairs(compiled: &Compiled, pairs: &[(usize, usize)]) {
    let next = AtomicUsize::new(0);
    let work = || {
        let session = compiled.session(1);
        while let Some(&(batch, seq)) = pairs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let rows = Rows::new(batch, seq, &mut Random((batch * 1000 + seq) as u64));
            let actual = run(&session, &rows);
            let expected = compiled.reference.run(&rows.inputs()).unwrap().remove(0).1;
            let tolerance = Tolerance { rtol: 1e-4, atol: 2e-5, instead: None };
            let difference = compare(&actual, &expected, &tolerance).unwrap();
            assert_eq!(difference.n_failed, 0, "batch {batch}, seq {seq}: {difference:?}");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
}

#[test]
fn small_pairs_agree_with_the_interpreter() {
    let small: Vec<_> = pairs().into_iter().filter(|(batch, seq)| batch * seq <= SMALL_TOKENS_MAX).collect();
    assert!(small.len() >= 8, "{small:?}");
    check_pairs(two_layers(), &small);
}

#[test]
#[ignore = "minutes of the interpreter; `cargo xtask test --suite shapes`"]
fn all_pairs_agree_with_the_interpreter() {
    check_pairs(two_layers(), &pairs());
}

#[test]
#[ignore = "minutes of the interpreter; `cargo xtask test --suite shapes`"]
fn the_whole_model_agrees_with_the_interpreter() {
    check_pairs(&compiled(&model(NAME)), &[(1, 512), (8, 37), (3, 128), (2, 255)]);
}

#[test]
fn a_row_does_not_see_the_others_nor_its_padding() {
    let [one, two] = [1, 2].map(|threads| two_layers().session(threads));
    let v3 = two_layers().session_v3();
    for (batch, seq) in pairs() {
        let mut random = Random((batch * 1000 + seq) as u64);
        let rows = Rows::new(batch, seq, &mut random);
        let row = random.below(batch);
        let mask = &rows.mask[row];
        let (others, alone) = (rows.with_new_neighbours(row, &mut random), rows.alone(row));
        // Kernels for different processors round differently, but the same kernels always in the same way.
        for (name, session) in [("best", &one), ("v3", &v3)] {
            let what = format!("{batch} x {seq}, row {row}, {name} kernels");
            let wanted = seen(&run(session, &rows), row, mask);
            assert_eq!(wanted, seen(&run(session, &others), row, mask), "{what}: among other rows");
            assert_eq!(wanted, seen(&run(session, &alone), 0, mask), "{what}: alone");
        }
        let [first, second] = [&one, &two].map(|session| seen(&run(session, &others), row, mask));
        assert_eq!(first, second, "{batch} x {seq}, row {row}: two threads");
    }
}

#[test]
fn dimensions_beyond_the_ranges_are_refused() {
    let session = two_layers().session(1);
    let rows = Rows::new(9, 513, &mut Random(1));
    let inputs = rows.inputs();
    let given: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let error = session.run(&given).unwrap_err();
    let words = "`batch` = 9 (input `input_ids`, dimension 0) is outside 1..8, \
                 `seq` = 513 (input `input_ids`, dimension 1) is outside 1..512";
    assert_eq!((error.code, error.message.as_str()), ("E0301", words));
    assert_eq!(error.fault.exit_code(), 2);
    assert!(error.remedy().unwrap().contains("--dim"), "{error}");
}
