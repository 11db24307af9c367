//! --calibrate DATA…  =>  the inputs of calls, by the model's input names

use crate::selftest;
use sardonyx_base::{Dim, Error, Kind, Result, Tensor};
use sardonyx_dialects::sdx::{Graph, TensorType};
use sardonyx_format::tensor_io::read_npz;
use sardonyx_run::DataSet;
use sardonyx_runtime::{Outputs, Session};
use std::path::{Path, PathBuf};

/// The inputs of one call, and the path that they come from.
pub struct Sample {
    /// Path of the file or folder, or `random` for synthetic inputs.
    pub name: String,
    /// Name and value of each input of the model, not necessarily in the model's order.
    pub inputs: Vec<(String, Tensor)>,
}

impl Sample {
    /// Runs a session on the sample's inputs and on the additional inputs `more`. Errors name the sample.
    pub fn outputs(&self, session: &Session, more: &[(String, Tensor)]) -> Result<Outputs> {
        let all = self.inputs.iter().chain(more);
        let inputs: Vec<(&str, Tensor)> = all.map(|(name, t)| (name.as_str(), t.clone())).collect();
        session.run(&inputs).map_err(|e| e.file(self.name.clone()))
    }
}

/// Given in place of a path, this word requests synthetic inputs.
const RANDOM: &str = "random";

/// Returns whether one of the paths is the word `random`, which requests synthetic inputs.
pub fn is_random(data: &[PathBuf]) -> bool {
    data.iter().any(|path| path.as_os_str() == RANDOM)
}

/// Reads the inputs of calls: one call for each `.npz` file and each folder with an `input_0.pb`, which are given or in
/// a given folder. The word `random` adds synthetic calls. Errors: E0002 for a folder with neither; E0301 for inputs
/// that do not fit the model.
pub fn samples(data: &[PathBuf], graph: &Graph) -> Result<Vec<Sample>> {
    let mut samples = vec![];
    for path in data {
        match path.as_os_str() == RANDOM {
            true => samples.extend(synthetic_samples(graph)?),
            false => samples.extend(read(path, graph)?),
        }
    }
    samples.iter().try_for_each(|sample| check(sample, graph).map_err(|e| e.file(sample.name.clone())))?;
    Ok(samples)
}

fn synthetic_samples(graph: &Graph) -> Result<Vec<Sample>> {
    let calls = selftest::inputs(graph);
    if calls.is_empty() {
        return Err(Error::user("E0301", "no inputs can be made up for the model").help("give data with `--calibrate`"));
    }
    Ok(calls.into_iter().map(|inputs| Sample { name: RANDOM.into(), inputs }).collect())
}

fn read(path: &Path, graph: &Graph) -> Result<Vec<Sample>> {
    let name = path.display().to_string();
    let fail = |e: std::io::Error| Error::io(path, "read", &e);
    if !std::fs::metadata(path).map_err(fail)?.is_dir() {
        return Ok(vec![Sample { inputs: read_npz(path)?, name }]);
    }
    if path.join("input_0.pb").is_file() {
        let port = |name: &str| (name.to_string(), Kind::Tensor);
        let inputs: Vec<(String, Kind)> = graph.inputs().map(|(_, name, _)| port(name)).collect();
        let outputs: Vec<(String, Kind)> = graph.outputs.iter().map(|(name, _)| port(name)).collect();
        let expected = if path.join("output_0.pb").is_file() { &outputs[..] } else { &[] };
        return Ok(vec![Sample { inputs: DataSet::named(path, &inputs, expected)?.inputs, name }]);
    }
    let mut found: Vec<PathBuf> = vec![];
    for entry in std::fs::read_dir(path).map_err(fail)? {
        let entry = entry.map_err(fail)?.path();
        if entry.extension().is_some_and(|e| e == "npz") || entry.join("input_0.pb").is_file() {
            found.push(entry);
        }
    }
    if found.is_empty() {
        return Err(Error::user("E0002", "the folder holds no `.npz` file and no data set")
            .file(name)
            .help("give `.npz` files with an array for each input, or `test_data_set_*` folders"));
    }
    found.sort();
    Ok(found.iter().map(|path| read(path, graph)).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Checks that the sample has exactly the model's inputs, with their types. The call itself checks whether symbolic
/// sizes agree.
fn check(sample: &Sample, graph: &Graph) -> Result<()> {
    let names: Vec<&str> = graph.inputs().map(|(_, name, _)| name).collect();
    let wrong =
        |message: String| Err(Error::user("E0301", message).help(format!("the inputs are {}", names.join(", "))));
    if let Some((name, _)) = sample.inputs.iter().find(|(name, _)| !names.contains(&name.as_str())) {
        return wrong(format!("the model has no input `{name}`"));
    }
    for (_, name, ty) in graph.inputs() {
        let mut given = sample.inputs.iter().filter(|(given, _)| given == name);
        match (given.next(), given.next()) {
            (Some((_, tensor)), None) => fits(name, tensor, ty)?,
            (None, _) => return wrong(format!("there is no value for the input `{name}`")),
            (Some(_), Some(_)) => return wrong(format!("there are two values for the input `{name}`")),
        }
    }
    Ok(())
}

fn fits(name: &str, tensor: &Tensor, ty: &TensorType) -> Result<()> {
    let wrong = |message: String| Err(Error::user("E0301", message).help(format!("`{name}` is {ty}")));
    if tensor.dtype() != ty.dtype {
        return wrong(format!("the value of `{name}` is {}", tensor.dtype()));
    }
    let size = |(dim, n): (&Dim, &usize)| dim.as_const().is_none_or(|d| usize::try_from(d) == Ok(*n));
    if tensor.dims().len() != ty.rank() || !ty.dims.iter().zip(tensor.dims()).all(size) {
        return wrong(format!("the value of `{name}` has the dimensions {:?}", tensor.dims()));
    }
    // Infinities are allowed, because a mask may hold -inf.
    match (0..tensor.len()).find(|i| tensor.get_f64(*i).is_some_and(f64::is_nan)) {
        Some(at) => wrong(format!("element {at} of `{name}` is NaN")),
        None => Ok(()),
    }
}
