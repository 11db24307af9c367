//! case, variant, device  =>  the times, host operators and verdict of compiling the case and running its data sets

use super::case::{Case, Data};
use super::variant::Variant;
use sardonyx::compile::{Request, compile_read};
use sardonyx::entries::Entries;
use sardonyx::movement::Question;
use sardonyx::onnx::{DimSpec, Graph, Model as OnnxModel, ValueType, read_model};
use sardonyx::pipeline::Watch;
use sardonyx::sizes::Sizes;
use sardonyx_base::Tensor;
use sardonyx_base::compare::compare;
use sardonyx_format::tensor_io::load_proto;
use sardonyx_run::DataSet;
use sardonyx_runtime::{DeviceName, Model, SessionOptions};
use sardonyx_tests::emitted::panic_text;
use sardonyx_tests::trust::trusted;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

pub struct Outcome {
    /// Total time of the successful compilations of the case, at most one per data set; `None` if there was none.
    pub compile: Option<Duration>,
    /// Time of the whole attempt.
    pub whole: Duration,
    /// Names of the host steps of the last compilation, without steps that only run other entry points.
    pub host: Vec<String>,
    pub verdict: Result<(), String>,
}

/// Runs one case. After a panic or an error, the verdict is the text of the panic or error.
pub fn attempt(case: &Case, variant: Variant, device: &DeviceName, folder: &Path) -> Outcome {
    let start = Instant::now();
    let mut outcome = Outcome { compile: None, whole: Duration::ZERO, host: vec![], verdict: Ok(()) };
    let verdict = catch_unwind(AssertUnwindSafe(|| run(case, variant, device, folder, &mut outcome)));
    outcome.verdict = verdict.unwrap_or_else(|panic| Err(format!("panicked: {}", panic_text(panic))));
    outcome.whole = start.elapsed();
    outcome
}

fn run(case: &Case, variant: Variant, device: &DeviceName, folder: &Path, outcome: &mut Outcome) -> Result<(), String> {
    let plain = read_model(&case.model).map_err(|e| e.to_string())?;
    let mut compiled: Option<Model> = None;
    for set in sets(case, &plain.graph)? {
        let (mut inputs, mut model) = (set.inputs, plain.clone());
        variant.apply(&mut model, &mut inputs);
        // The constants of `Variant::Constant` come from the data set, so each set needs its own model.
        let reused = compiled.take().filter(|_| variant != Variant::Constant);
        let loaded = match reused {
            Some(loaded) => loaded,
            None => compile(&model, variant, device, &folder.join("m.sdx"), outcome)?,
        };
        let session = loaded.session(&SessionOptions::default().threads(1));
        let session = session.map_err(|e| e.to_string())?;
        let given: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let actual = session.run(&given).map_err(|e| format!("at the call: {e}"))?;
        for (name, expected) in &set.expected {
            let found = actual.iter().find(|(n, _)| n == name).ok_or_else(|| format!("no output `{name}`"))?;
            let difference = compare(&found.1, expected, &case.tolerance()).map_err(|e| format!("`{name}`: {e}"))?;
            if difference.n_failed > 0 {
                let (n, of) = (difference.n_failed, difference.n);
                return Err(format!("`{name}`: {n} of {of} outside the tolerance, worst {:?}", difference.worst));
            }
        }
        if let Some(report) = loaded.device_report().filter(|r| !r.findings.is_empty()) {
            return Err(report.text());
        }
        compiled = Some(loaded);
    }
    Ok(())
}

fn compile(
    model: &OnnxModel,
    variant: Variant,
    device: &DeviceName,
    artifact: &Path,
    outcome: &mut Outcome,
) -> Result<Model, String> {
    let start = Instant::now();
    let targets = sardonyx::targets::of_device(device);
    let question = Question { at: Sizes::new(), device: targets[0].spec().clone() };
    let request = Request {
        entries: Entries::NONE,
        watch: Watch { without: variant.without(), ..Watch::default() },
        targets,
        selftest: false,
        // The movement is not compared with anything, but computing it must succeed for every model.
        movement: Some(question),
        ..Request::new(Path::new("model.onnx"), artifact)
    };
    let report = compile_read(model, &request, &mut |_| {}).map_err(|e| e.to_string())?;
    let entries = report.summary.iter().flat_map(|s| &s.first.entries);
    let hosts = entries.flat_map(|e| &e.hosts).filter(|h| !h.calls);
    outcome.host = hosts.map(|h| h.op.split(' ').next().unwrap_or_default().to_string()).collect();
    outcome.compile = Some(outcome.compile.unwrap_or_default() + start.elapsed());
    let options = trusted().device(device.clone());
    Model::load(artifact, &options).map_err(|e| format!("at load: {e}"))
}

fn sets(case: &Case, graph: &Graph) -> Result<Vec<DataSet>, String> {
    let named =
        |ports: &[sardonyx::onnx::ValueInfo]| ports.iter().map(|p| (p.name.clone(), p.kind())).collect::<Vec<_>>();
    let (inputs, outputs) = (named(&graph.inputs), named(&graph.outputs));
    match &case.data {
        Data::Sets(sets) => {
            let read = |set: &std::path::PathBuf| DataSet::named(set, &inputs, &outputs).map_err(|e| e.to_string());
            sets.iter().map(read).collect()
        }
        Data::Counted { output } => {
            let expected = load_proto(output).and_then(|p| p.to_tensor()).map_err(|e| e.to_string())?;
            let inputs = graph.inputs.iter().map(|i| Ok((i.name.clone(), counted(&i.ty)?)));
            let inputs = inputs.collect::<Result<_, String>>()?;
            Ok(vec![DataSet { inputs, expected: vec![(outputs[0].0.clone(), expected)] }])
        }
    }
}

/// Returns an f32 tensor with the dimensions of `ty` and the n elements 0, 1/n, 2/n, …; a dimension that is not fixed
/// becomes 1.
fn counted(ty: &Option<ValueType>) -> Result<Tensor, String> {
    let Some(ValueType::Tensor { dims: Some(dims), .. }) = ty else { return Err("an input without a shape".into()) };
    let size = |d: &DimSpec| match d {
        DimSpec::Fixed(n) => usize::try_from(*n).unwrap_or(1),
        DimSpec::Named(_) | DimSpec::Unknown => 1,
    };
    let dims: Vec<usize> = dims.iter().map(size).collect();
    let n: usize = dims.iter().product();
    Ok(Tensor::from_vec(dims, (0..n).map(|i| (i as f64 / n as f64) as f32).collect()))
}
