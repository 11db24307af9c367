//! test_data_set_*  =>  inputs and expected outputs, with the model's names

use sardonyx_base::{Error, Kind, Result, Tensor};
use sardonyx_format::tensor_io::load_value;
use sardonyx_runtime::program::{Entry, Port};
use std::path::{Path, PathBuf};

/// The tensors of one call, as stored in an ONNX `test_data_set_*` folder.
pub struct DataSet {
    /// Names and values of the inputs, in the order of the files.
    pub inputs: Vec<(String, Tensor)>,
    /// Names and expected values of the outputs, in the order of the files.
    pub expected: Vec<(String, Tensor)>,
}

impl DataSet {
    /// Reads `input_I.pb` and `output_I.pb` of a folder, each up to the first missing I. Errors: E0301 for a name that
    /// the entry point lacks, and those of [`load_value`].
    pub fn read(dir: &Path, entry: &Entry) -> Result<DataSet> {
        let named = |ports: &'_ [Port]| ports.iter().map(|p| (p.name.clone(), p.kind.clone())).collect::<Vec<_>>();
        DataSet::named(dir, &named(&entry.inputs), &named(&entry.outputs))
    }

    /// Like `read`, for a model whose inputs and outputs have these names and kinds.
    pub fn named(dir: &Path, inputs: &[(String, Kind)], outputs: &[(String, Kind)]) -> Result<DataSet> {
        let inputs = read_all(dir, inputs, "input")?;
        let expected = read_all(dir, outputs, "output")?;
        Ok(DataSet { inputs, expected })
    }
}

/// Returns the folder itself if it holds `output_0.pb`, otherwise its subfolders that do, in natural order. Errors:
/// E0002 if there are none.
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

/// Reads `KIND_0.pb`, `KIND_1.pb` and so on, up to the first missing file. A file that contains a name belongs to the
/// port of that name; a file without a name belongs to the port with the number of the file.
fn read_all(set: &Path, ports: &[(String, Kind)], kind: &str) -> Result<Vec<(String, Tensor)>> {
    let mut out = Vec::new();
    loop {
        let path = set.join(format!("{kind}_{}.pb", out.len()));
        if !path.exists() {
            return Ok(out);
        }
        out.push(read_one(&path, ports, kind, out.len())?);
    }
}

fn read_one(path: &Path, ports: &[(String, Kind)], kind: &str, i: usize) -> Result<(String, Tensor)> {
    // Reading a file requires the kind of its port, but the port is found by the name in the file; so the file is first
    // read with the kind of port `i`.
    let (name, _) = match ports.get(i) {
        Some((_, of)) => load_value(path, of)?,
        None => load_value(path, &Kind::Tensor)?,
    };
    let port = match name.is_empty() {
        true => ports.get(i),
        false => ports.iter().find(|(port, _)| *port == name),
    };
    let (port, of) = port.ok_or_else(|| {
        let names: Vec<String> = ports.iter().map(|(port, _)| format!("`{port}`")).collect();
        let message = format!("the data set's {kind} {i} is named `{name}`, but the model has no such {kind}");
        Error::user("E0301", message).help(format!("the model's {kind}s are {}", names.join(", ")))
    })?;
    Ok((port.clone(), load_value(path, of)?.1))
}
