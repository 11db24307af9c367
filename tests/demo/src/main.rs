//! three sentences  =>  tokens  =>  `sardonyx-run`  =>  cosine similarities and the measured latency

mod npy;
mod pooling;
mod text;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

type Result<T> = std::result::Result<T, String>;

static SENTENCES: &[&str] = &[
    "A man is playing a guitar on stage.",
    "Someone is playing guitar on a stage.",
    "The cat sleeps on the warm window sill.",
];

/// A similarity that the demo prints and checks.
struct Pair {
    left: usize,
    right: usize,
    about: &'static str,
    /// The similarity that ONNX Runtime 1.31 yields for the same model and sentences.
    expected: f64,
}

static PAIRS: &[Pair] = &[
    Pair { left: 0, right: 1, about: "the same, said differently", expected: 0.89781 },
    Pair { left: 0, right: 2, about: "something else", expected: 0.00943 },
    Pair { left: 1, right: 2, about: "something else", expected: 0.04602 },
];

/// Largest accepted difference from an expected similarity. Exports of the same float32 model differ by up to 4.4e-5 in
/// an element of `last_hidden_state`; a wrong model differs by far more.
const TOLERANCE: f64 = 1e-3;

/// The paths on the command line: `minilm-demo --tokenizer FILE --runner FILE --model FILE --work DIR`.
struct Paths {
    tokenizer: PathBuf,
    runner: PathBuf,
    model: PathBuf,
    work: PathBuf,
}

fn main() -> ExitCode {
    match demo() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

/// Runs the demo. Returns whether every similarity is within the tolerance of the expected one.
fn demo() -> Result<bool> {
    let paths = Paths::from_args(std::env::args().skip(1))?;
    let batch = text::batch(&text::load(&paths.tokenizer)?, SENTENCES)?;
    let dims = [SENTENCES.len(), batch.seq];
    println!("  tokens   {:?} in 3 sentences, padded to batch {} x seq {}\n", batch.n_tokens, dims[0], dims[1]);
    let token_type_ids = vec![0; batch.input_ids.len()];
    let inputs = [
        ("input_ids", &batch.input_ids),
        ("attention_mask", &batch.attention_mask),
        ("token_type_ids", &token_type_ids),
    ];
    let inputs = inputs.map(|(name, values)| write_input(&paths.work, name, &dims, values));
    let inputs: Vec<String> = inputs.into_iter().collect::<Result<_>>()?;
    let (shape, hidden) = run_model(&paths, &inputs)?;
    let [b, s, d] = shape[..] else { return Err(format!("last_hidden_state has dimensions {shape:?}, not 3")) };
    if [b, s] != dims {
        return Err(format!("last_hidden_state has dimensions {shape:?} for an input of {dims:?}"));
    }
    let good = print_similarities(&pooling::sentence_vectors(&hidden, &batch.attention_mask, [b, s, d]));
    let median_ms = bench(&paths, &inputs)?;
    println!(
        "\n  latency  {median_ms:>9.2} ms    median of `sardonyx-run bench` for this batch, measured on this machine"
    );
    println!("           {:>9.2} ms    per sentence", median_ms / SENTENCES.len() as f64);
    Ok(good)
}

fn print_similarities(vectors: &[Vec<f64>]) -> bool {
    for (letter, sentence) in ('A'..).zip(SENTENCES) {
        println!("  {letter}  {sentence}");
    }
    println!();
    let letter = |i: usize| char::from(b'A' + i as u8);
    let mut worst = 0f64;
    for pair in PAIRS {
        let cosine = pooling::cosine(&vectors[pair.left], &vectors[pair.right]);
        println!("  cosine({}, {}) = {cosine:>7.4}   {}", letter(pair.left), letter(pair.right), pair.about);
        // A NaN must fail the check, but f64::max would ignore it.
        worst = if cosine.is_nan() { f64::INFINITY } else { worst.max((cosine - pair.expected).abs()) };
    }
    println!("\n  largest difference from ONNX Runtime's similarities: {worst:.1e} (tolerance {TOLERANCE:.0e})");
    worst <= TOLERANCE
}

/// Writes an input, and returns the runner's argument for it: `NAME=FILE.npy`.
fn write_input(work: &Path, name: &str, dims: &[usize], values: &[i64]) -> Result<String> {
    let path = work.join(name).with_extension("npy");
    npy::write_i64(&path, dims, values).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    Ok(format!("{name}={}", path.display()))
}

fn run_model(paths: &Paths, inputs: &[String]) -> Result<(Vec<usize>, Vec<f32>)> {
    let out = paths.work.join("outputs");
    let mut command = runner(paths, "run", inputs);
    run(command.arg("--output-dir").arg(&out))?;
    npy::read_f32(&out.join("last_hidden_state.npy")).map_err(|e| e.to_string())
}

fn bench(paths: &Paths, inputs: &[String]) -> Result<f64> {
    let text = run(runner(paths, "bench", inputs).arg("--json"))?;
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| format!("`bench --json` printed {text}: {e}"))?;
    json["median_ms"].as_f64().ok_or_else(|| format!("`bench --json` printed no median_ms: {text}"))
}

fn runner(paths: &Paths, verb: &str, inputs: &[String]) -> Command {
    let mut command = Command::new(&paths.runner);
    command.arg(verb).arg(&paths.model);
    command.args(inputs.iter().flat_map(|input| ["--input", input]));
    command
}

/// Returns the standard output of a command that must succeed; the command writes to this program's standard error.
fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(Stdio::inherit()).output().map_err(|e| format!("cannot start {program}: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{program} failed: {}", output.status)),
    }
}

impl Paths {
    fn from_args(mut args: impl Iterator<Item = String>) -> Result<Paths> {
        let [mut tokenizer, mut runner, mut model, mut work] = [const { None }; 4];
        while let Some(flag) = args.next() {
            let slot = match flag.as_str() {
                "--tokenizer" => &mut tokenizer,
                "--runner" => &mut runner,
                "--model" => &mut model,
                "--work" => &mut work,
                other => return Err(format!("unknown argument `{other}`")),
            };
            *slot = Some(PathBuf::from(args.next().ok_or_else(|| format!("`{flag}` needs a value"))?));
        }
        let need = |value: Option<PathBuf>, flag: &str| value.ok_or_else(|| format!("`{flag}` is missing"));
        Ok(Paths {
            tokenizer: need(tokenizer, "--tokenizer")?,
            runner: need(runner, "--runner")?,
            model: need(model, "--model")?,
            work: need(work, "--work")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similarities_are_checked_against_the_reference() {
        // These vectors have the similarities 0, 1 and 0, which are not the expected ones.
        assert!(!print_similarities(&[vec![1.0, 0.0], vec![0.0, 1.0], vec![1.0, 0.0]]));
        assert!(!print_similarities(&[vec![f64::NAN], vec![f64::NAN], vec![f64::NAN]]));
    }

    #[test]
    fn the_reference_similarities_pass() {
        let (ab, ac, bc) = (PAIRS[0].expected, PAIRS[1].expected, PAIRS[2].expected);
        let b = vec![ab, (1.0 - ab * ab).sqrt(), 0.0];
        let y = (bc - ab * ac) / b[1];
        assert!(print_similarities(&[vec![1.0, 0.0, 0.0], b, vec![ac, y, (1.0 - ac * ac - y * y).sqrt()]]));
    }

    #[test]
    fn arguments_are_named_when_they_are_wrong() {
        let parse = |args: &[&str]| Paths::from_args(args.iter().map(|a| a.to_string())).err();
        assert_eq!(parse(&["--tokenizer"]).unwrap(), "`--tokenizer` needs a value");
        assert_eq!(parse(&["--verbose"]).unwrap(), "unknown argument `--verbose`");
        assert_eq!(parse(&["--runner", "r"]).unwrap(), "`--tokenizer` is missing");
    }
}
