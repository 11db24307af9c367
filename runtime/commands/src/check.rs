//! check MODEL.sdx --data DIR…  =>  differences per output, then `N passed, N failed`

#![allow(missing_docs, reason = "doc comments of arguments are their help text")]

use super::data_set::{DataSet, find_sets};
use super::{ModelArgs, ThreadArgs, put};
use sardonyx_base::compare::{Difference, Instead, Tolerance, compare};
use sardonyx_base::json::Json;
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_runtime::Session;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  {bin} check model.sdx --data test_data_set_0
  {bin} check model.sdx --data folder-of-data-sets --rtol 1e-2 --atol 1e-3
  {bin} check model.sdx --data test_data_set_0 --device sim:sm_80
  {bin} check model.sdx --data test_data_set_0 --json")]
pub struct CheckArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub threads: ThreadArgs,
}

/// The data sets and how far results may differ from them.
#[derive(Clone, Debug, clap::Args)]
pub struct DataArgs {
    /// Folders with `input_I.pb` and `output_I.pb`, or folders of such folders
    #[arg(long = "data", value_name = "DIR", required = true, num_args = 1..)]
    pub data: Vec<PathBuf>,
    /// Tolerated difference relative to the expected value, for floats [default: 1e-3; for an artifact in bf16
    /// `--of-max 0.03125` counts instead, for one in int8 `--relative 0.25`]
    #[arg(long)]
    pub rtol: Option<f64>,
    /// Tolerated absolute difference [default: 1e-4, with the same exceptions]
    #[arg(long)]
    pub atol: Option<f64>,
    /// Tolerate this many units in the last place instead, for floats
    #[arg(long, value_name = "N")]
    pub max_ulp: Option<u64>,
    /// Tolerate a difference of this share of the output's largest expected magnitude instead
    #[arg(long, value_name = "X", conflicts_with = "max_ulp")]
    pub of_max: Option<f64>,
    /// Require instead that the cosine of the angle between actual and expected output is at least this, and that each
    /// row has its largest element at the same index
    #[arg(long, value_name = "X", conflicts_with_all = ["max_ulp", "of_max"])]
    pub cosine: Option<f64>,
    /// Tolerate this relative error (L2) of an output instead: the norm of the difference over the norm of the expected
    /// output
    #[arg(long, value_name = "X", conflicts_with_all = ["max_ulp", "of_max", "cosine"])]
    pub relative: Option<f64>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Tolerance of bf16 outputs, relative to the output's largest magnitude: eight times the relative rounding error of
/// bf16, which is at most 1/256.
pub const BF16_OF_MAX: f64 = 0.03125;
/// Default tolerance of quantized outputs, as a relative L2 error; a wrong kernel causes an error of 1 or more.
pub const CODES_RELATIVE: f64 = 0.25;

/// Default tolerances of artifacts whose precision is not the model's own, by precision.
static USUAL: &[(&str, Instead)] = &[
    ("bf16", Instead::OfMax(BF16_OF_MAX)),
    ("bf16 int8", Instead::Length(CODES_RELATIVE)),
    ("int8", Instead::Length(CODES_RELATIVE)),
];

impl DataArgs {
    /// Arguments for these folders, with the default tolerances.
    pub fn new(data: Vec<PathBuf>) -> DataArgs {
        DataArgs {
            data,
            rtol: None,
            atol: None,
            max_ulp: None,
            of_max: None,
            cosine: None,
            relative: None,
            json: false,
        }
    }

    /// Returns the tolerated relative difference: `--rtol`, by default 1e-3.
    pub fn rtol(&self) -> f64 {
        self.rtol.unwrap_or(1e-3)
    }

    /// Returns the tolerated absolute difference: `--atol`, by default 1e-4.
    pub fn atol(&self) -> f64 {
        self.atol.unwrap_or(1e-4)
    }

    /// The tolerance for an artifact of this precision.
    fn tolerance(&self, precision: &str) -> Tolerance {
        let ulps = self.max_ulp.map(Instead::Ulps);
        let given = ulps.or(self.of_max.map(Instead::OfMax)).or(self.cosine.map(Instead::Cosine));
        let given = given.or(self.relative.map(Instead::Length));
        let open = self.rtol.is_none() && self.atol.is_none();
        let usual = USUAL.iter().find(|(name, _)| open && *name == precision).map(|(_, instead)| *instead);
        let instead = given.or(usual);
        Tolerance { rtol: self.rtol(), atol: self.atol(), instead }
    }
}

/// Counts of a check over all data sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    /// Number of data sets whose outputs are all within the tolerance.
    pub passed: usize,
    /// Number of all other data sets, including those that cannot be run.
    pub failed: usize,
    /// Number of faults in the kernels that a simulated device reported.
    pub findings: usize,
}

impl CheckSummary {
    /// Returns 1 if a data set failed or a simulated device reported a fault, otherwise 0.
    pub fn exit_code(self) -> i32 {
        (self.failed > 0 || self.findings > 0) as i32
    }
}

/// Another implementation of the model, whose outputs are compared with the expected ones as well.
pub type Reference<'a> = dyn Fn(&[(String, Tensor)]) -> Result<Vec<(String, Tensor)>> + 'a;

/// Runs the command. A data set that fails is counted, and is not an error.
pub fn check(args: &CheckArgs, out: &mut dyn Write) -> Result<CheckSummary> {
    let model = args.model.load()?;
    let session = args.threads.session(&model)?;
    check_model(&session, &args.data, None, out)
}

/// Checks a loaded model. The compiler's command passes a model that it has just compiled, and its interpreter as the
/// reference.
pub fn check_model(
    session: &Session,
    args: &DataArgs,
    reference: Option<&Reference>,
    out: &mut dyn Write,
) -> Result<CheckSummary> {
    let tolerance = args.tolerance(&session.model().manifest().precision);
    let mut sets = Vec::new();
    for dir in &args.data {
        sets.extend(find_sets(dir)?);
    }
    let (mut summary, mut reports) = (CheckSummary::default(), Vec::new());
    if reference.is_some() && !args.json {
        put!(out, "maximum absolute errors; c: compiled, e: expected, i: interpreter")?;
        put!(out, "{:<9}  {:<9}  {:<9}  output", "c to e", "c to i", "e to i")?;
    }
    for set in &sets {
        let report = SetReport::new(session, set, reference, &tolerance);
        summary.passed += report.passed() as usize;
        summary.failed += !report.passed() as usize;
        match args.json {
            true => reports.push(report.json()),
            false => report.print(&tolerance, out)?,
        }
    }
    let device = session.model().device_report();
    summary.findings = device.as_ref().map_or(0, |report| report.findings.len());
    let CheckSummary { passed, failed, .. } = summary;
    if args.json {
        let mut all = vec![("passed", passed.into()), ("failed", failed.into()), ("sets", Json::List(reports))];
        all.extend(device.map(|report| ("device", report.json())));
        put!(out, "{}", Json::Object(all))?;
    } else {
        put!(out, "{passed} passed, {failed} failed")?;
        device.iter().try_for_each(|report| put!(out, "{}", report.text()))?;
    }
    Ok(summary)
}

/// Result of one data set. A data set that cannot be run counts as failed; the others are still checked.
struct SetReport {
    set: String,
    outputs: Result<Vec<OutputReport>>,
}

/// A comparison, or the reason why it is impossible.
type Compared = std::result::Result<Difference, String>;

struct OutputReport {
    name: String,
    /// The compiled model's output compared with the expected one.
    compiled: Compared,
    reference: Option<Beside>,
}

/// Comparisons with the reference's output, which tell whether the compiled model or the expected output is wrong.
struct Beside {
    /// The reference's output compared with the expected one.
    expected: Compared,
    /// The compiled model's output compared with the reference's.
    compiled: Compared,
}

fn is_good(compared: &Compared) -> bool {
    compared.as_ref().is_ok_and(|d| d.n_failed == 0)
}

impl SetReport {
    fn new(session: &Session, set: &Path, reference: Option<&Reference>, tolerance: &Tolerance) -> SetReport {
        SetReport { set: set.display().to_string(), outputs: compare_set(session, set, reference, tolerance) }
    }

    fn passed(&self) -> bool {
        self.outputs.as_ref().is_ok_and(|outputs| outputs.iter().all(|o| is_good(&o.compiled)))
    }

    fn print(&self, tolerance: &Tolerance, out: &mut dyn Write) -> Result<()> {
        let outputs = match &self.outputs {
            Ok(outputs) => outputs,
            Err(e) => return put!(out, "{}: failed\n{e}", self.set),
        };
        for o in outputs {
            let verdict = if is_good(&o.compiled) { "ok" } else { "failed" };
            let line = format!("{}: {}: {verdict}, {}", self.set, o.name, describe(&o.compiled, tolerance));
            match &o.reference {
                None => put!(out, "{line}")?,
                Some(Beside { expected, compiled }) => {
                    let column = |c: &Compared| c.as_ref().map_or("-".into(), |d| format!("{:.3e}", d.abs_max));
                    let beside = match is_good(expected) {
                        true => String::new(),
                        false => format!("; the interpreter: {}", describe(expected, tolerance)),
                    };
                    let [c_e, c_i, e_i] = [&o.compiled, compiled, expected].map(column);
                    put!(out, "{c_e:<9}  {c_i:<9}  {e_i:<9}  {line}{beside}")?;
                }
            }
        }
        Ok(())
    }

    fn json(&self) -> Json {
        let (error, outputs) = match &self.outputs {
            Ok(outputs) => (None, outputs.iter().map(OutputReport::json).collect()),
            Err(e) => (Some(e.to_string()), vec![]),
        };
        let set = Json::from(self.set.as_str());
        let members = vec![("set", set), ("passed", self.passed().into()), ("error", error.into())];
        Json::Object(members.into_iter().chain([("outputs", Json::List(outputs))]).collect())
    }
}

impl OutputReport {
    fn json(&self) -> Json {
        let mut members = vec![("name", self.name.as_str().into()), ("passed", is_good(&self.compiled).into())];
        members.extend(difference_json(&self.compiled));
        if let Some(Beside { expected, compiled }) = &self.reference {
            let mut inner = vec![("passed", is_good(expected).into())];
            inner.extend(difference_json(expected));
            inner.push(("compiled", Json::Object(difference_json(compiled))));
            members.push(("interpreter", Json::Object(inner)));
        }
        Json::Object(members)
    }
}

fn difference_json(compared: &Compared) -> Vec<(&'static str, Json)> {
    match compared {
        Ok(d) => vec![
            ("max_abs_error", d.abs_max.into()),
            ("max_rel_error", d.rel_max.into()),
            ("max_ulp", d.ulps_max.into()),
            ("cosine", d.cosine.into()),
            ("relative_l2", d.relative.into()),
            ("n_failed", d.n_failed.into()),
            ("n", d.n.into()),
        ],
        Err(why) => vec![("problem", why.as_str().into())],
    }
}

fn compare_set(
    session: &Session,
    set: &Path,
    reference: Option<&Reference>,
    tolerance: &Tolerance,
) -> Result<Vec<OutputReport>> {
    let DataSet { inputs, expected } = DataSet::read(set, session.model().entry("main")?)?;
    let given: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let actual = session.run(&given)?;
    // An error of the reference is reported in its column; the compiled model is judged anyway.
    let reference = reference.map(|run| run(&inputs).map_err(|e| format!("{}: {}", e.code, e.message)));
    let one = |(name, expected): &(String, Tensor)| {
        let found = actual.get(name).ok_or_else(|| Error::defect(format!("the output `{name}` did not come")))?;
        let reference = reference.as_ref().map(|outputs| {
            let outputs = outputs.as_ref().map_err(String::clone);
            let reference = outputs.and_then(|outputs| {
                let found = outputs.iter().find(|(n, _)| n == name).map(|(_, tensor)| tensor);
                found.ok_or_else(|| format!("it has no output `{name}`"))
            });
            let with = |f: &dyn Fn(&Tensor) -> Compared| reference.as_ref().map_err(String::clone).and_then(|r| f(r));
            Beside {
                expected: with(&|r| compare(r, expected, tolerance)),
                compiled: with(&|r| compare(found, r, tolerance)),
            }
        });
        Ok(OutputReport { name: name.clone(), compiled: compare(found, expected, tolerance), reference })
    };
    expected.iter().map(one).collect()
}

fn describe(result: &Compared, tolerance: &Tolerance) -> String {
    let difference = match result {
        Ok(difference) => difference,
        Err(why) => return why.clone(),
    };
    let mut text = format!("max abs error {:.3e}, max rel error {:.3e}", difference.abs_max, difference.rel_max);
    match (tolerance.instead, difference.cosine) {
        (Some(Instead::Ulps(_)), _) => text += &format!(", max ulp {}", difference.ulps_max),
        (Some(Instead::Length(_)), _) => text += &format!(", relative (L2) {:.3e}", difference.relative),
        (Some(Instead::Cosine(_)), Some(cosine)) => text += &format!(", cosine {cosine:.6}"),
        _ => {}
    }
    if let Some((at, actual, expected)) = &difference.worst
        && difference.abs_max > 0.0
    {
        text += &format!(", worst at {at:?}: {} instead of {}", short(*actual), short(*expected));
    }
    if difference.n_failed > 0 {
        text += &format!(", {} of {} outside the tolerance", difference.n_failed, difference.n);
    }
    text
}

/// The shortest decimal form: a value that f32 represents exactly is printed as f32.
fn short(v: f64) -> String {
    if (v as f32) as f64 == v { (v as f32).to_string() } else { v.to_string() }
}
