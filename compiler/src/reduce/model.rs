//! an ONNX model with a fault  =>  a smaller one that still has it

use super::Search;
use crate::layers::Values;
use crate::onnx::proto::{
    Dimension, DimensionValue, GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, TypeProto,
    ValueInfoProto, type_proto,
};
use crate::onnx::{Model, read_model};
use bytes::Bytes;
use prost::Message;
use sardonyx_base::packed::pack;
use sardonyx_base::{Dim, Error, Result};
use sardonyx_dialects::sdx::TensorType;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// A model as decoded from its file, with the types of its values.
pub struct Whole {
    proto: ModelProto,
    types: HashMap<String, TensorType>,
    /// Initializer contents that are stored in other files, by the initializer's name.
    external: HashMap<String, Bytes>,
}

impl Whole {
    /// Reads a model file and its external data. Errors: those of [`read_model`].
    pub fn read(path: &Path) -> Result<Whole> {
        let model = read_model(path)?;
        let bytes = std::fs::read(path).map_err(|e| Error::io(path, "read", &e))?;
        let proto = ModelProto::decode(&bytes[..]).map_err(|e| Error::user("E0103", e.to_string()))?;
        // A model that cannot be imported can still lose outputs and attributes.
        let types =
            Values::from_model(&model, &BTreeMap::new()).map_or_else(|_| HashMap::new(), |values| values.types());
        Ok(Whole { external: external(&model, &proto), proto, types })
    }
}

fn external(model: &Model, proto: &ModelProto) -> HashMap<String, Bytes> {
    let outside: BTreeSet<&str> = (proto.graph.iter().flat_map(|g| &g.initializer))
        .filter(|t| !t.external_data.is_empty())
        .map(|t| t.name.as_str())
        .collect();
    let initializers = model.graph.initializers.iter().filter(|i| outside.contains(i.name.as_str()));
    initializers.map(|i| (i.name.clone(), pack(i.data.dtype(), i.data.bytes()))).collect()
}

/// Returns the smallest model found, with all external data embedded, and the number of tests.
pub fn reduce(whole: &Whole, test: &mut dyn FnMut(&[u8]) -> Result<bool>) -> Result<(Vec<u8>, usize)> {
    let own = |proto: &ModelProto| embedded(proto, &whole.external).encode_to_vec();
    if !test(&own(&whole.proto))? {
        return Err(Error::user("E0001", "the test finds no fault in the model")
            .help("a command has to end with 0 where the fault is there"));
    }
    let mut holds = |proto: &ModelProto| test(&own(proto)).unwrap_or(false);
    let mut search = Search::new(&mut holds);
    let mut proto = whole.proto.clone();
    let r = &mut Reducer { whole, search: &mut search };
    r.parameters(&mut proto, &|_| true);
    r.one_output(&mut proto);
    r.cut(&mut proto);
    r.fix_symbols(&mut proto);
    for name in initializers(&proto) {
        r.parameters(&mut proto, &|t| *t == name);
    }
    r.attributes(&mut proto);
    let n_tests = search.n_tests;
    Ok((own(&proto), n_tests))
}

fn initializers(proto: &ModelProto) -> Vec<String> {
    proto.graph.iter().flat_map(|g| &g.initializer).map(|t| t.name.clone()).collect()
}

struct Reducer<'w, 's, 't> {
    whole: &'w Whole,
    search: &'s mut Search<'t, ModelProto>,
}

impl Reducer<'_, '_, '_> {
    fn accept(&mut self, proto: &mut ModelProto, candidate: ModelProto) -> bool {
        let candidate = compact(candidate);
        let good = self.search.holds(&candidate);
        if good {
            *proto = candidate;
        }
        good
    }

    /// Replaces initializers of two or more dimensions by inputs.
    fn parameters(&mut self, proto: &mut ModelProto, which: &dyn Fn(&String) -> bool) {
        let mut candidate = proto.clone();
        let Some(graph) = &mut candidate.graph else { return };
        let (gone, kept): (Vec<TensorProto>, Vec<TensorProto>) =
            std::mem::take(&mut graph.initializer).into_iter().partition(|t| which(&t.name) && t.dims.len() > 1);
        graph.initializer = kept;
        for t in &gone {
            graph.input.retain(|i| i.name != t.name);
            let dims = t.dims.iter().map(|d| DimensionValue::DimValue(*d));
            graph.input.push(value_info(&t.name, t.data_type, dims.collect()));
        }
        if !gone.is_empty() {
            self.accept(proto, candidate);
        }
    }

    /// Finds the earliest value that can be the only output, by bisection.
    fn one_output(&mut self, proto: &mut ModelProto) {
        let whole = proto.clone();
        let Some(graph) = &whole.graph else { return };
        for output in &graph.output {
            if self.accept(proto, with_output(&whole, output.clone())) {
                break;
            }
        }
        let whole = proto.clone();
        let values: Vec<String> = whole.graph.iter().flat_map(|g| &g.node).flat_map(|n| n.output.clone()).collect();
        let (mut low, mut high) = (0, values.len().saturating_sub(1));
        while low < high {
            let middle = (low + high) / 2;
            let info = ValueInfoProto { name: values[middle].clone(), r#type: None };
            match self.accept(proto, with_output(&whole, info)) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
    }

    /// Replaces results of nodes by inputs: large ranges of nodes first, single nodes last.
    fn cut(&mut self, proto: &mut ModelProto) {
        let n_nodes = |proto: &ModelProto| proto.graph.as_ref().map_or(0, |g| g.node.len());
        let mut size = n_nodes(proto).saturating_sub(1);
        while size > 0 && !self.search.is_over() {
            let mut at = 0;
            while at < n_nodes(proto) {
                let candidate = self.without_nodes(proto, at..at + size);
                if !candidate.is_some_and(|c| self.accept(proto, c)) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    /// The model without the nodes in `range` that produce no output of it; inputs replace their results. Returns
    /// `None` if no node is removed, or if the type of a value is unknown.
    fn without_nodes(&self, proto: &ModelProto, range: std::ops::Range<usize>) -> Option<ModelProto> {
        let mut out = proto.clone();
        let graph = out.graph.as_mut()?;
        let outputs: BTreeSet<&str> = graph.output.iter().map(|o| o.name.as_str()).collect();
        let gives = |n: &NodeProto| n.output.iter().any(|o| outputs.contains(o.as_str()));
        let (mut kept, mut inputs) = (vec![], vec![]);
        for (i, node) in graph.node.iter().enumerate() {
            if !range.contains(&i) || gives(node) {
                kept.push(node.clone());
                continue;
            }
            for name in node.output.iter().filter(|name| !name.is_empty()) {
                let ty = self.whole.types.get(name)?;
                inputs.push(value_info(name, ty.dtype.onnx_code(), ty.dims.iter().map(dimension).collect()));
            }
        }
        let changed = kept.len() < graph.node.len();
        graph.node = kept;
        graph.input.extend(inputs);
        changed.then_some(out)
    }

    /// Replaces symbols by small constants.
    fn fix_symbols(&mut self, proto: &mut ModelProto) {
        let mut names = BTreeSet::new();
        each_dimension(proto, &mut |value| {
            if let DimensionValue::DimParam(text) = value {
                let dim = Dim::parse_names(text).unwrap_or_else(|_| Dim::symbol(text));
                names.extend(dim.names().iter().map(|s| s.to_string()));
            }
        });
        for name in names {
            for n in [2, 1, 3] {
                let mut candidate = proto.clone();
                each_dimension(&mut candidate, &mut |value| {
                    if let DimensionValue::DimParam(text) = value {
                        let dim = Dim::parse_names(text).unwrap_or_else(|_| Dim::symbol(text));
                        *value = dimension(&dim.substitute(&|s| (*s == *name).then(|| Dim::constant(n))));
                    }
                });
                if self.accept(proto, candidate) {
                    break;
                }
            }
        }
    }

    fn attributes(&mut self, proto: &mut ModelProto) {
        let count = |proto: &ModelProto, at: usize| {
            proto.graph.as_ref().and_then(|g| g.node.get(at)).map_or(0, |n| n.attribute.len())
        };
        for at in 0..proto.graph.as_ref().map_or(0, |g| g.node.len()) {
            for k in (0..count(proto, at)).rev() {
                let mut candidate = proto.clone();
                if let Some(graph) = &mut candidate.graph {
                    graph.node[at].attribute.remove(k);
                }
                self.accept(proto, candidate);
            }
        }
    }
}

fn each_dimension(proto: &mut ModelProto, each: &mut dyn FnMut(&mut DimensionValue)) {
    let inputs = proto.graph.iter_mut().flat_map(|g| &mut g.input);
    for ty in inputs.filter_map(|i| i.r#type.as_mut()) {
        if let Some(type_proto::Value::TensorType(t)) = &mut ty.value {
            let dims = t.shape.iter_mut().flat_map(|s| &mut s.dim);
            dims.filter_map(|d| d.value.as_mut()).for_each(&mut *each);
        }
    }
}

fn dimension(d: &Dim) -> DimensionValue {
    match d.as_const() {
        Some(n) => DimensionValue::DimValue(n),
        None => DimensionValue::DimParam(d.to_string()),
    }
}

fn value_info(name: &str, elem_type: i32, dims: Vec<DimensionValue>) -> ValueInfoProto {
    let dim = dims.into_iter().map(|value| Dimension { value: Some(value) }).collect();
    let tensor = type_proto::Tensor { elem_type, shape: Some(TensorShapeProto { dim }) };
    let r#type = Some(TypeProto { value: Some(type_proto::Value::TensorType(tensor)) });
    ValueInfoProto { name: name.into(), r#type }
}

fn with_output(proto: &ModelProto, output: ValueInfoProto) -> ModelProto {
    let graph = proto.graph.clone().map(|g| GraphProto { output: vec![output], ..g });
    ModelProto { graph, ..proto.clone() }
}

/// Names that a node reads, including those that its subgraphs use from outside.
fn reads(node: &NodeProto) -> Vec<String> {
    let graphs = node.attribute.iter().flat_map(|a| a.g.iter().map(|g| &**g).chain(&a.graphs));
    let inner = graphs.flat_map(|g| {
        let outputs = g.output.iter().map(|o| o.name.clone());
        g.node.iter().flat_map(reads).chain(outputs).collect::<Vec<String>>()
    });
    node.input.iter().cloned().chain(inner).collect()
}

/// Keeps only what an output needs.
fn compact(mut proto: ModelProto) -> ModelProto {
    let Some(graph) = &mut proto.graph else { return proto };
    let mut needed: BTreeSet<String> = graph.output.iter().map(|o| o.name.clone()).collect();
    let mut kept: Vec<bool> = vec![false; graph.node.len()];
    // The nodes of a file may be in any order.
    loop {
        let mut changed = false;
        for (i, node) in graph.node.iter().enumerate() {
            if !kept[i] && node.output.iter().any(|o| needed.contains(o)) {
                kept[i] = true;
                changed = true;
                needed.extend(reads(node));
            }
        }
        if !changed {
            break;
        }
    }
    let mut which = kept.iter();
    graph.node.retain(|_| *which.next().unwrap_or(&true));
    graph.initializer.retain(|t| needed.contains(&t.name));
    graph.sparse_initializer.retain(|t| t.values.as_ref().is_none_or(|v| needed.contains(&v.name)));
    graph.input.retain(|i| needed.contains(&i.name));
    let called: BTreeSet<(String, String)> = graph.node.iter().map(|n| (n.domain.clone(), n.op_type.clone())).collect();
    let nested = !proto.functions.is_empty()
        && proto.functions.iter().any(|f| called.contains(&(f.domain.clone(), f.name.clone())));
    // Functions may call each other, so all of them are kept or none.
    if !nested {
        proto.functions.clear();
    }
    proto
}

/// Embeds the contents of external files.
fn embedded(proto: &ModelProto, external: &HashMap<String, Bytes>) -> ModelProto {
    let mut out = proto.clone();
    for t in out.graph.iter_mut().flat_map(|g| &mut g.initializer) {
        if let Some(bytes) = external.get(&t.name).filter(|_| !t.external_data.is_empty()) {
            (t.raw_data, t.data_location) = (bytes.clone(), 0);
            t.external_data.clear();
        }
    }
    out
}
