//! model.onnx, inputs  =>  every value of its graph, interpreted after the import or read from files

use crate::import::{DimRange, ParamStore};
use crate::module::graph_after;
use crate::onnx::{Model, ValueInfo, read_model};
use sardonyx_base::{Error, Result, Tensor};
use sardonyx_dialects::interp;
use sardonyx_dialects::sdx::{Graph, Op, TensorType};
use sardonyx_format::tensor_io::{load_proto, load_tensor};
use sardonyx_passes::Options;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The stage after the import, before any rewrite.
pub const STAGE: &str = "onnx-to-sdx";

/// A result of a node of the ONNX graph.
#[derive(Clone, Debug)]
pub struct Value {
    /// Name of the ONNX value.
    pub name: String,
    /// Name of the node that produces it.
    pub node: String,
    /// Operator of that node, such as `MatMul`.
    pub op: String,
    /// Indices of the values that the node uses; inputs and constants of the graph are not among them.
    pub reads: Vec<usize>,
    /// Whether the value depends on the contents of inputs, and not only on constants and shapes.
    pub varies: bool,
}

/// A model with every value as an output.
pub struct Values {
    /// All values, in topological order.
    pub all: Vec<Value>,
    /// The model's own outputs, with the index of the value if a node produces it.
    pub outputs: Vec<(String, Option<usize>)>,
    graph: Graph,
    params: ParamStore,
}

impl Values {
    /// Reads a model and makes every value an output. Errors name the file.
    pub fn read(path: &Path, dims: &BTreeMap<String, DimRange>) -> Result<Values> {
        read_model(path)
            .and_then(|model| Values::from_model(&model, dims))
            .map_err(|e| e.file(path.display().to_string()))
    }

    pub(crate) fn from_model(model: &Model, dims: &BTreeMap<String, DimRange>) -> Result<Values> {
        let (mut all, index) = list(model);
        let outputs: Vec<(String, Option<usize>)> =
            model.graph.outputs.iter().map(|o| (o.name.clone(), index.get(&o.name).copied())).collect();
        let mut exposed = model.clone();
        let hidden = all.iter().filter(|v| !outputs.iter().any(|(name, _)| *name == v.name));
        exposed.graph.outputs.extend(hidden.map(|v| ValueInfo { name: v.name.clone(), ty: None }));
        let (graph, params) = graph_after(&exposed, dims, STAGE, |_| Options::default())?;
        let varying = varying(&graph);
        for (name, v) in &graph.outputs {
            if let Some(&at) = index.get(name) {
                all[at].varies = varying[v.index()];
            }
        }
        Ok(Values { all, outputs, graph, params })
    }

    /// Type of every value, by name.
    pub(crate) fn types(&self) -> HashMap<String, TensorType> {
        self.graph.outputs.iter().map(|(name, v)| (name.clone(), self.graph.ty(*v).clone())).collect()
    }

    /// The model with every value as an output.
    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Interprets one call. Returns its values by index.
    pub fn interpret(&self, inputs: &[(String, Tensor)]) -> Result<Vec<Option<Tensor>>> {
        let outputs = interp::run(&self.graph, &self.params, inputs)?;
        let mut by_name: HashMap<String, Tensor> = outputs.into_iter().collect();
        Ok(self.all.iter().map(|v| by_name.remove(&v.name)).collect())
    }

    /// Reads values from the files `NAME.npy` and `NAME.pb` of a folder and its subfolders. `NAME` is the name of a
    /// value, in which `/` may be a subfolder, and every character but ASCII letters and digits may be an underscore. A
    /// name inside a `.pb` file takes precedence. Errors: E0301 if no file belongs to a value.
    pub fn given(&self, folder: &Path) -> Result<Vec<Option<Tensor>>> {
        let mut files = vec![];
        collect(folder, &mut files)?;
        files.sort();
        let mut by_name: HashMap<String, Tensor> = HashMap::new();
        for file in files {
            let stem = file.strip_prefix(folder).unwrap_or(&file).with_extension("").display().to_string();
            let (name, tensor) = match file.extension().is_some_and(|e| e == "pb") {
                true => {
                    let proto = load_proto(&file)?;
                    let name = if proto.name.is_empty() { stem } else { proto.name.clone() };
                    (name, proto.to_tensor().map_err(|e| e.file(file.display().to_string()))?)
                }
                false => (stem, load_tensor(&file)?),
            };
            by_name.insert(plain(&name), tensor);
        }
        let found: Vec<Option<Tensor>> = self.all.iter().map(|v| by_name.remove(&plain(&v.name))).collect();
        match found.iter().any(Option::is_some) {
            true => Ok(found),
            false => Err(Error::user("E0301", format!("{} holds no value of the model", folder.display()))
                .help("name the files after values of the model: `NAME.npy` or `NAME.pb`")),
        }
    }
}

fn list(model: &Model) -> (Vec<Value>, HashMap<String, usize>) {
    let (mut all, mut index): (Vec<Value>, HashMap<String, usize>) = (vec![], HashMap::new());
    for node in &model.graph.nodes {
        let reads: Vec<usize> = node.inputs.iter().flatten().filter_map(|name| index.get(name).copied()).collect();
        for name in node.outputs.iter().flatten() {
            index.insert(name.clone(), all.len());
            let (node, op) = (node.name.clone(), node.op_type.clone());
            all.push(Value { name: name.clone(), node, op, reads: reads.clone(), varies: false });
        }
    }
    (all, index)
}

fn varying(graph: &Graph) -> Vec<bool> {
    let mut out: Vec<bool> = vec![];
    for (_, node) in graph.values() {
        out.push(matches!(node.op, Op::Input { .. }) || node.args.iter().any(|a| out[a.index()]));
    }
    out
}

/// A name without leading `/`, and with an underscore for each character that is no ASCII letter or digit.
fn plain(name: &str) -> String {
    name.trim_start_matches('/').chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

fn collect(folder: &Path, files: &mut Vec<std::path::PathBuf>) -> Result<()> {
    let fail = |e: std::io::Error| Error::io(folder, "read", &e);
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let path = entry.path();
        // Symbolic links are not followed, since they may form cycles.
        if entry.file_type().map_err(fail)?.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "npy" || e == "pb") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_meet_as_files_write_them() {
        assert_eq!(plain("/encoder/layer.0/Add_output_0"), "encoder_layer_0_Add_output_0");
        assert_eq!(
            plain("encoder/layer.0/Add_output_0"),
            plain("_encoder_layer_0_Add_output_0".trim_start_matches('_'))
        );
    }
}
