//! test_data_set_*  =>  inputs and expected outputs, by the model's names

use crate::program::{Entry, Port};
use crate::tensor_io::load_proto;
use crate::{Error, Result, Tensor};
use std::path::{Path, PathBuf};

pub struct DataSet {
    pub inputs: Vec<(String, Tensor)>,
    pub expected: Vec<(String, Tensor)>,
}

impl DataSet {
    pub fn read(dir: &Path, entry: &Entry) -> Result<DataSet> {
        let names = |ports: &'_ [Port]| ports.iter().map(|p| p.name.clone()).collect::<Vec<String>>();
        DataSet::named(dir, &names(&entry.inputs), &names(&entry.outputs))
    }

    /// The same for a model whose inputs and outputs have these names.
    pub fn named(dir: &Path, inputs: &[String], outputs: &[String]) -> Result<DataSet> {
        let inputs = match_names(read_all(dir, "input")?, inputs, "input")?;
        let expected = match_names(read_all(dir, "output")?, outputs, "output")?;
        Ok(DataSet { inputs, expected })
    }
}

/// The folder itself, or those of its folders that hold expected outputs, in natural order.
pub fn find_sets(dir: &Path) -> Result<Vec<PathBuf>> {
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
fn match_names(tensors: Vec<(String, Tensor)>, ports: &[String], kind: &str) -> Result<Vec<(String, Tensor)>> {
    let mut out = Vec::new();
    for (i, (name, tensor)) in tensors.into_iter().enumerate() {
        let port = match name.is_empty() {
            true => ports.get(i),
            false => ports.iter().find(|port| **port == name),
        };
        let port = port.ok_or_else(|| {
            let names: Vec<String> = ports.iter().map(|port| format!("`{port}`")).collect();
            let message = format!("the data set's {kind} {i} is named `{name}`, but the model has no such {kind}");
            Error::user("E0301", message).help(format!("the model's {kind}s are {}", names.join(", ")))
        })?;
        out.push((port.clone(), tensor));
    }
    Ok(out)
}
