//! the ONNX backend suite, each node case in three variants  =>  compiled, run, compared with the expected outcomes
//!
//! `cargo xtask conformance [--device sim:sm_80] [--variant NAME] [--json FILE] [FILTER]` runs the whole suite; `cargo
//! test` runs a pseudo-random twentieth of it, which a fixed seed selects. With a filter, known failures are printed
//! too. `testdata/backend/failures.txt` lists the known failures with their reasons; `testdata/backend/sim_sm_80.txt`
//! lists the cases that pass on a simulated GPU without host operations, and a run fails if a listed case no longer
//! passes.

mod attempt;
mod case;
mod report;
mod simulated;
mod variant;

use attempt::attempt;
use case::Case;
use report::{Attempt, Expected};
use sardonyx_runtime::DeviceName;
use sardonyx_tests::prepared::workspace;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use variant::Variant;

/// By default, one in `SHARE` of the pairs of a case and a variant is run; `SEED` decides which ones.
const SHARE: u64 = 20;
const SEED: u64 = 22;

struct Options {
    whole: bool,
    device: DeviceName,
    variants: Vec<Variant>,
    json: Option<PathBuf>,
    filter: Option<String>,
}

fn options() -> Result<Options, String> {
    let mut options =
        Options { whole: false, device: DeviceName::Cpu, variants: Variant::ALL.to_vec(), json: None, filter: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--whole" => options.whole = true,
            "--device" => options.device = value()?.parse().map_err(|e| format!("{e}"))?,
            "--variant" => {
                let name = value()?;
                options.variants = vec![Variant::from_name(&name).ok_or_else(|| format!("no variant `{name}`"))?];
            }
            "--json" => options.json = Some(value()?.into()),
            // Options of cargo's own test harness are accepted and ignored.
            "--nocapture" | "--ignored" | "--include-ignored" | "--quiet" | "-q" => {}
            other if other.starts_with('-') => return Err(format!("`{other}` is not understood")),
            _ => options.filter = Some(word),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(why) => {
            eprintln!("error: {why}");
            return ExitCode::from(2);
        }
    };
    let cases = case::cases();
    let expected = Expected::read(&workspace().join("testdata/backend/failures.txt"));
    expected.check_names(&cases);
    let work: Vec<(&Case, Variant)> = cases
        .iter()
        .flat_map(|c| options.variants.iter().map(move |v| (c, *v)))
        .filter(|(c, v)| c.is_node() || *v == Variant::Static)
        // GPUs run only static node cases, the only ones in the list of `simulated.rs`; whole models would take hours.
        .filter(|(c, v)| options.device == DeviceName::Cpu || c.is_node() && *v == Variant::Static)
        .filter(|(c, _)| options.filter.as_deref().is_none_or(|f| c.name.contains(f)))
        .filter(|(c, v)| options.whole || options.filter.is_some() || chosen(c, *v))
        .collect();
    // A panic counts as a failure of its case, and the report shows its text, so the default message is not printed.
    std::panic::set_hook(Box::new(|_| {}));
    let attempts = run(&work, &expected, &options);
    let _ = std::panic::take_hook();
    finish(&cases, &attempts, &expected, &options)
}

/// Returns whether the seed selects the case for the default run. The large models (`real`) are only part of the whole
/// suite.
fn chosen(case: &Case, variant: Variant) -> bool {
    let hash = blake3::hash(format!("{SEED} {} {}", variant.name(), case.name).as_bytes());
    let number = u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("8 bytes"));
    number.is_multiple_of(SHARE) && case.kind != "real"
}

/// Makes the attempts on as many threads as there are processors, each with its own temporary folder.
fn run<'a>(work: &[(&'a Case, Variant)], expected: &Expected, options: &Options) -> Vec<Attempt<'a>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(vec![]));
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let folder = tempfile::tempdir().expect("a folder");
                while let Some((case, variant)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = attempt(case, *variant, &options.device, folder.path());
                    // Failures are printed at once, so that a long run that is interrupted has already reported them.
                    let known = expected.reason(*variant, &case.name).filter(|_| options.filter.is_some());
                    match (known, report::unexpected(case, *variant, &outcome, expected), &outcome.verdict) {
                        (_, Some(line), _) if options.device == DeviceName::Cpu => println!("{line}"),
                        (Some(_), _, Err(why)) => {
                            println!("known: {} {}: {}", variant.name(), case.name, report::one_line(why))
                        }
                        _ => {}
                    }
                    done.lock().expect("no thread panics").push(Attempt { case, variant: *variant, outcome });
                }
            });
        }
    });
    let mut attempts = done.into_inner().expect("no thread panics");
    attempts.sort_by(|a, b| (a.case.kind, &a.case.name, a.variant).cmp(&(b.case.kind, &b.case.name, b.variant)));
    attempts
}

fn finish(cases: &[Case], attempts: &[Attempt], expected: &Expected, options: &Options) -> ExitCode {
    let surprises: Vec<String> = match &options.device {
        DeviceName::Cpu => {
            let of = |a: &Attempt| report::unexpected(a.case, a.variant, &a.outcome, expected);
            attempts.iter().filter_map(of).collect()
        }
        _ => simulated::unexpected(attempts),
    };
    if options.whole {
        println!("{}", report::table(attempts, &single(cases)));
    }
    if options.device != DeviceName::Cpu {
        surprises.iter().for_each(|line| println!("{line}"));
    }
    if let Some(path) = &options.json
        && let Err(e) = std::fs::write(path, report::scoreboard(attempts))
    {
        eprintln!("error: {}: {e}", path.display());
        return ExitCode::from(2);
    }
    println!("{}", report::summary(attempts));
    match surprises.len() {
        0 => ExitCode::SUCCESS,
        n => {
            println!("{n} outcomes differ from the lists in testdata/backend");
            ExitCode::FAILURE
        }
    }
}

/// Maps the model file of each node case whose graph has a single node to the operator of that node.
fn single(cases: &[Case]) -> BTreeMap<PathBuf, String> {
    let of = |case: &Case| {
        let model = sardonyx::onnx::read_model(&case.model).ok()?;
        let [node] = model.graph.nodes.as_slice() else { return None };
        let domain = if node.domain.is_empty() { String::new() } else { format!("{}.", node.domain) };
        Some((case.model.clone(), domain + &node.op_type))
    };
    cases.iter().filter(|c| c.is_node()).filter_map(of).collect()
}
