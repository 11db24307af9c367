//! check MODEL.sdx --data DIR…  =>  differences per output, then `N passed, N failed`

use super::{ModelArgs, ThreadArgs, put};
use crate::compare::{Difference, Tolerance, compare};
use crate::program::Port;
use crate::tensor_io::load_proto;
use crate::{Error, Result, Session, Tensor};
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, clap::Args)]
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
    /// A folder with `input_I.pb` and `output_I.pb`, or a folder of such folders
    #[arg(long = "data", value_name = "DIR", required = true, num_args = 1..)]
    pub data: Vec<PathBuf>,
    /// Tolerated difference relative to the expected value (floats)
    #[arg(long, default_value_t = 1e-3)]
    pub rtol: f64,
    /// Tolerated absolute difference
    #[arg(long, default_value_t = 1e-4)]
    pub atol: f64,
    /// Tolerate so many representable numbers between instead
    #[arg(long, value_name = "N")]
    pub max_ulp: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    pub passed: usize,
    pub failed: usize,
}

impl CheckSummary {
    pub fn exit_code(self) -> i32 {
        (self.failed > 0) as i32
    }
}

pub fn check(args: &CheckArgs, out: &mut dyn Write) -> Result<CheckSummary> {
    let model = args.model.load()?;
    let session = args.threads.session(&model)?;
    check_model(&session, &args.data, out)
}

/// Checks a loaded model; the compiler's command does so with one that it has just compiled.
pub fn check_model(session: &Session, args: &DataArgs, out: &mut dyn Write) -> Result<CheckSummary> {
    let tolerance = Tolerance { rtol: args.rtol, atol: args.atol, ulps_max: args.max_ulp };
    let mut sets = Vec::new();
    for dir in &args.data {
        sets.extend(find_sets(dir)?);
    }
    let mut summary = CheckSummary::default();
    for set in &sets {
        // A set that cannot be run has failed; the others are still checked.
        let (passed, lines) =
            check_set(session, set, &tolerance).unwrap_or_else(|e| (false, vec![format!("failed\n{e}")]));
        for line in lines {
            put!(out, "{}: {line}", set.display())?;
        }
        summary.passed += passed as usize;
        summary.failed += !passed as usize;
    }
    put!(out, "{} passed, {} failed", summary.passed, summary.failed)?;
    Ok(summary)
}

/// The folder itself, or those of its folders that hold expected outputs, in natural order.
fn find_sets(dir: &Path) -> Result<Vec<PathBuf>> {
    let is_set = |dir: &Path| dir.join("output_0.pb").is_file();
    if is_set(dir) {
        return Ok(vec![dir.to_path_buf()]);
    }
    let fail = |e: std::io::Error| Error::io(dir, "read", &e);
    let mut sets = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if is_set(&path) {
            sets.push(path);
        }
    }
    // test_data_set_10 comes after test_data_set_9.
    sets.sort_by_key(|p| {
        let name = p.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (stem, number) = name.split_at(name.len() - digits);
        (stem.to_string(), number.parse::<u64>().unwrap_or(0), name.clone())
    });
    match sets.is_empty() {
        false => Ok(sets),
        true => {
            let message = format!("{} holds no `output_0.pb`, and none of its folders does", dir.display());
            Err(Error::user("E0002", message)
                .file(dir.display().to_string())
                .help("give an ONNX `test_data_set_*` folder, or a folder of them"))
        }
    }
}

/// Whether all outputs are within the tolerance, and a line on each.
fn check_set(session: &Session, set: &Path, tolerance: &Tolerance) -> Result<(bool, Vec<String>)> {
    let entry = session.model().entry("main")?;
    let inputs = match_names(read_all(set, "input")?, &entry.inputs, "input")?;
    let expected = match_names(read_all(set, "output")?, &entry.outputs, "output")?;
    let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let actual = session.run(&inputs)?;
    let (mut passed, mut lines) = (true, Vec::new());
    for (name, expected) in &expected {
        let found = actual.iter().find(|(n, _)| n == name).map(|(_, t)| t);
        let found = found.ok_or_else(|| Error::defect(format!("the output `{name}` did not come")))?;
        let result = compare(found, expected, tolerance);
        let good = result.as_ref().is_ok_and(|d| d.n_failed == 0);
        passed &= good;
        let verdict = if good { "ok" } else { "failed" };
        lines.push(format!("{name}: {verdict}, {}", describe(&result, tolerance)));
    }
    Ok((passed, lines))
}

fn describe(result: &std::result::Result<Difference, String>, tolerance: &Tolerance) -> String {
    let difference = match result {
        Ok(difference) => difference,
        Err(why) => return why.clone(),
    };
    let mut text = format!("max abs error {:.3e}, max rel error {:.3e}", difference.abs_max, difference.rel_max);
    if tolerance.ulps_max.is_some() {
        text += &format!(", max ulp {}", difference.ulps_max);
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

/// The digits that the value needs in its own type: one that f32 holds exactly came from f32 or narrower.
fn short(v: f64) -> String {
    if (v as f32) as f64 == v { (v as f32).to_string() } else { v.to_string() }
}

/// `input_0.pb`, `input_1.pb` … until there is none.
fn read_all(set: &Path, kind: &str) -> Result<Vec<(String, Tensor)>> {
    let mut out = Vec::new();
    loop {
        let path = set.join(format!("{kind}_{}.pb", out.len()));
        if !path.exists() {
            return Ok(out);
        }
        let proto = load_proto(&path)?;
        let tensor = proto.to_tensor().map_err(|e| e.file(path.display().to_string()))?;
        out.push((proto.name, tensor));
    }
}

/// Tensors go to the ports of their names; those without a name to the port of their position.
fn match_names(tensors: Vec<(String, Tensor)>, ports: &[Port], kind: &str) -> Result<Vec<(String, Tensor)>> {
    let mut out = Vec::new();
    for (i, (name, tensor)) in tensors.into_iter().enumerate() {
        let port = match name.is_empty() {
            true => ports.get(i),
            false => ports.iter().find(|p| p.name == name),
        };
        let port = port.ok_or_else(|| {
            let names: Vec<String> = ports.iter().map(|p| format!("`{}`", p.name)).collect();
            let message = format!("the data set's {kind} {i} is named `{name}`, but the model has no such {kind}");
            Error::user("E0301", message).help(format!("the model's {kind}s are {}", names.join(", ")))
        })?;
        out.push((port.name.clone(), tensor));
    }
    Ok(out)
}
