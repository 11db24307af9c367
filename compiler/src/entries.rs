//! --entry decode:seq=1  =>  an entry point with fixed symbols; by default, `prefill` and `decode` if there are caches

use crate::import::{DimRange, declared_dims, import};
use crate::module::{MAIN, graph, lower_model, module_of};
use crate::onnx::Model;
use melior::Context;
use melior::ir::Module;
use sardonyx_base::{Dim, Error, Result};
use sardonyx_dialects::sdx::{Graph, Op};
use sardonyx_passes::{Options, Rewrites};
use std::collections::BTreeMap;

/// The entry points of an artifact besides `main`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Entries {
    /// For a model with caches: `prefill`, where they start empty, and `decode`, which adds one position.
    #[default]
    Automatic,
    /// Exactly these.
    Given(Vec<EntrySpec>),
}

impl Entries {
    /// No entry point besides `main`.
    pub const NONE: Entries = Entries::Given(vec![]);
}

/// An entry point: the model with some of its symbols fixed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySpec {
    /// Name of the entry point, unique in the artifact.
    pub name: String,
    /// Values of the fixed symbols, by the name of the symbol.
    pub fixed: BTreeMap<String, i64>,
}

/// The name of an entry point that a model with caches usually gets but this one cannot have, and why.
pub type Skipped = (String, String);

/// Parses `NAME:DIM=N[,DIM=N]`. Errors: E0001.
pub fn parse_entry(text: &str) -> Result<EntrySpec> {
    let wrong = |what: &str| {
        Error::user("E0001", format!("`--entry {text}`: {what}"))
            .help("write --entry NAME:DIM=N[,DIM=N], for example --entry decode:seq=1")
    };
    let (name, list) = text.split_once(':').ok_or_else(|| wrong("a name and the dimensions it fixes are needed"))?;
    if !is_name(name) {
        return Err(wrong(&format!("`{name}` is no name of letters, digits, `_`, `-` and `.`")));
    }
    if name == MAIN || name.starts_with("main.") || is_reserved(name) {
        return Err(wrong(&format!("`{name}` is the name of something that every artifact has")));
    }
    let fixed = parse_fixed(list, &wrong)?;
    Ok(EntrySpec { name: name.into(), fixed })
}

/// Parses `DIM=N[,DIM=N]`.
fn parse_fixed(list: &str, wrong: &dyn Fn(&str) -> Box<Error>) -> Result<BTreeMap<String, i64>> {
    let mut fixed = BTreeMap::new();
    for one in list.split(',') {
        // Split at the last `=`, since a symbol's name may contain any character except the comma.
        let (dim, n) = one.rsplit_once('=').ok_or_else(|| wrong(&format!("`{one}` is no DIM=N")))?;
        let n = n.trim().parse::<i64>().ok().filter(|n| *n >= 0);
        let n = n.ok_or_else(|| wrong(&format!("`{one}` gives no number of at least 0")))?;
        if dim.trim().is_empty() || fixed.insert(dim.trim().to_string(), n).is_some() {
            return Err(wrong(&format!("`{one}` names no dimension, or one that has a value")));
        }
    }
    Ok(fixed)
}

/// Parses several `--specialize DIM=N[,DIM=N]`. Each becomes an entry point, such as `main.batch1.seq128`, which a call
/// of `main` runs if its inputs have these sizes.
pub fn parse_specialized(texts: &[String]) -> Result<Vec<EntrySpec>> {
    let mut out: Vec<EntrySpec> = vec![];
    for text in texts {
        let wrong = |what: &str| {
            Error::user("E0001", format!("`--specialize {text}`: {what}"))
                .help("write --specialize DIM=N[,DIM=N], for example --specialize batch=1,seq=128")
        };
        let fixed = parse_fixed(text, &wrong)?;
        let part = |(dim, n): (&String, &i64)| {
            let dim: String = dim.chars().map(|c| if is_name(&c.to_string()) { c } else { '_' }).collect();
            format!(".{dim}{n}")
        };
        let name = MAIN.to_string() + &fixed.iter().map(part).collect::<String>();
        if out.iter().any(|e| e.name == name) {
            return Err(wrong("these sizes are there twice"));
        }
        out.push(EntrySpec { name, fixed });
    }
    Ok(out)
}

/// Parses several `--entry` arguments.
pub fn parse_entries(texts: &[String]) -> Result<Vec<EntrySpec>> {
    let mut out: Vec<EntrySpec> = vec![];
    for text in texts {
        let entry = parse_entry(text)?;
        if out.iter().any(|e| e.name == entry.name) {
            return Err(Error::user("E0001", format!("`--entry` gives `{}` twice", entry.name))
                .help("give each entry point a name of its own"));
        }
        out.push(entry);
    }
    Ok(out)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

/// Whether a name could be that of a kernel or a kernel module, which share the plan's namespace with entry points.
fn is_reserved(name: &str) -> bool {
    let numbered = |mark: char| name.strip_prefix(mark).is_some_and(|n| n.parse::<u32>().is_ok());
    numbered('k') || numbered('v')
}

impl EntrySpec {
    /// Ranges of the entry point's symbols: those of the command line, narrowed to the fixed values.
    pub fn ranges(&self, dims: &BTreeMap<String, DimRange>) -> Result<BTreeMap<String, DimRange>> {
        let mut out = dims.clone();
        for (symbol, &n) in &self.fixed {
            if let Some(range) = dims.get(symbol).filter(|r| n < r.lo || r.hi.is_some_and(|hi| n > hi)) {
                let hi = range.hi.map_or(String::new(), |h| h.to_string());
                let message = format!("the entry `{}` fixes `{symbol}` to {n}, outside {}..{hi}", self.name, range.lo);
                return Err(Error::user("E0204", message).help("give a wider `--dim`, or another value"));
            }
            out.insert(symbol.clone(), DimRange { lo: n, hi: Some(n) });
        }
        Ok(out)
    }
}

/// The entry points that a model with caches gets by default, and those that it cannot have.
pub fn propose(
    context: &Context,
    model: &Model,
    dims: &BTreeMap<String, DimRange>,
    options: &Options,
) -> Result<(Vec<EntrySpec>, Vec<Skipped>)> {
    let (mut out, mut skipped) = (vec![], vec![]);
    if !may_have_states(model) {
        return Ok((out, skipped));
    }
    let (mut module, _) = lower_model(context, model, dims)?;
    find(context, &mut module, options)?;
    let graph = graph(&module)?;
    for (name, sizes, n) in [("prefill", state_dims(&graph, 0), 0), ("decode", state_dims(&graph, 1), 1)] {
        // If all sizes are constant, no symbol is left to fix, and the entry point would be the same as `main`.
        let sizes: Vec<Dim> = sizes.into_iter().filter(|d| d.as_const().is_none()).collect();
        if sizes.is_empty() {
            continue;
        }
        let made = fix(model, &graph, &sizes, n).and_then(|fixed| {
            let spec = EntrySpec { name: name.into(), fixed };
            attempt(context, model, &spec, dims, options).map(|()| spec)
        });
        match made {
            Ok(spec) => out.push(spec),
            Err(e) => skipped.push((name.to_string(), e.message)),
        }
    }
    Ok((out, skipped))
}

const FIND: &str = "builtin.module(onnx-to-sdx,find-caches)";

/// Whether some node uses an input of the model and produces an output of it, as every cache update does.
fn may_have_states(model: &Model) -> bool {
    let graph = &model.graph;
    let is_input = |name: &String| graph.inputs.iter().any(|i| i.name == *name);
    let is_output = |name: &String| graph.outputs.iter().any(|o| o.name == *name);
    graph.nodes.iter().any(|n| n.inputs.iter().flatten().any(is_input) && n.outputs.iter().flatten().any(is_output))
}

/// For all states, the size of the past (operand 0) or of the appended positions (operand 1).
fn state_dims(graph: &Graph, operand: usize) -> Vec<Dim> {
    let of = |node: &sardonyx_dialects::sdx::Node| match node.op {
        Op::Append { axis } => Some(graph.ty(node.args[operand]).dims[axis].clone()),
        _ => None,
    };
    graph.nodes.iter().filter_map(of).collect()
}

/// Declared symbols, with values, that make all of `sizes` equal `n`. Exporters may give equal dimensions several
/// names; shape inference has unified them, and each of the names gets a value.
fn fix(model: &Model, graph: &Graph, sizes: &[Dim], n: i64) -> Result<BTreeMap<String, i64>> {
    let value = |d: &Dim| d.substitute(&|s| sizes.contains(&s.clone().into()).then(|| Dim::constant(n)));
    let mut fixed = BTreeMap::new();
    let mut reached: Vec<&Dim> = vec![];
    let declared = declared_dims(&model.graph)?;
    for ((_, _, ty), dims) in graph.inputs().zip(&declared) {
        for (now, declared) in ty.dims.iter().zip(dims).filter(|(now, _)| now.as_const().is_none()) {
            let Some(name) = declared.as_name() else { continue };
            let known = if sizes.contains(now) { Some(n) } else { value(now).as_const() };
            if let Some(known) = known {
                fixed.insert(name.to_string(), known);
                reached.extend(sizes.iter().find(|s| *s == now));
            }
        }
    }
    match sizes.iter().find(|s| !reached.contains(s)) {
        None => Ok(fixed),
        Some(size) => Err(Error::user("E0204", format!("`{size}` is no dimension symbol of an input"))),
    }
}

/// Imports the model with these sizes, to see whether it is valid.
fn attempt(
    context: &Context,
    model: &Model,
    spec: &EntrySpec,
    dims: &BTreeMap<String, DimRange>,
    options: &Options,
) -> Result<()> {
    let (function, _) = import(context, model, &spec.name, &spec.ranges(dims)?)?;
    let mut module = module_of(context, function)?;
    find(context, &mut module, options)
}

/// Runs the passes up to that which finds caches, without the limit on rewrites.
fn find(context: &Context, module: &mut Module, options: &Options) -> Result<()> {
    let options = Options { fuel: None, remarks: false, validate: false, ..options.clone() };
    sardonyx_passes::run_pipeline_with(context, module, FIND, &mut Rewrites::new(options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_name_and_what_it_fixes() {
        let entry = parse_entry("decode:seq=1, batch = 2").unwrap();
        assert_eq!(entry.name, "decode");
        assert_eq!(entry.fixed, BTreeMap::from([("batch".to_string(), 2), ("seq".to_string(), 1)]));
        for (text, what) in [
            ("decode", "a name and the dimensions it fixes are needed"),
            (":seq=1", "`` is no name of letters, digits, `_`, `-` and `.`"),
            ("a b:seq=1", "`a b` is no name of letters, digits, `_`, `-` and `.`"),
            ("main:seq=1", "`main` is the name of something that every artifact has"),
            ("k0:seq=1", "`k0` is the name of something that every artifact has"),
            ("a:", "`` is no DIM=N"),
            ("a:seq=-1", "`seq=-1` gives no number of at least 0"),
            ("a:seq=1..2", "`seq=1..2` gives no number of at least 0"),
            ("a:seq=1,seq=2", "`seq=2` names no dimension, or one that has a value"),
        ] {
            let e = parse_entry(text).unwrap_err();
            assert_eq!((e.code, e.message), ("E0001", format!("`--entry {text}`: {what}")));
        }
        let twice = parse_entries(&["a:s=1".into(), "a:s=2".into()]).unwrap_err();
        assert_eq!(twice.message, "`--entry` gives `a` twice");
    }

    #[test]
    fn what_is_fixed_is_in_the_range() {
        let dims = BTreeMap::from([("seq".to_string(), DimRange { lo: 2, hi: Some(8) })]);
        let ranges = |text: &str| parse_entry(text).unwrap().ranges(&dims);
        assert_eq!(ranges("a:seq=8").unwrap()["seq"], DimRange { lo: 8, hi: Some(8) });
        assert_eq!(ranges("a:seq=1").unwrap_err().message, "the entry `a` fixes `seq` to 1, outside 2..8");
    }
}
