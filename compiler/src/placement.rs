//! plan.toml  =>  the mesh, and how the tensors of nodes are distributed over its ranks
//!
//! ```toml
//! mesh = [2, 4]
//!
//! [[place]]
//! node = '.*attention/query/MatMul'  # a regular expression that matches a node's whole name
//! output = 0                         # index of an output; or `input = 1` [default: output 0]
//! axis = 1                           # axis of the mesh [default: 0]
//! dim = -1                           # dimension that is split [default: none, each rank has the whole tensor]
//! unit = 32                          # number of elements that stay together on one rank [default: 1]
//! runs = 3                           # the dimension is 3 runs of units, such as queries, keys and values; each run is
//!                                    # split by itself [default: 1]
//! ```
//!
//! ```toml
//! [pipeline]
//! axis = 0                           # axis of the mesh [default: 0]
//! begins = ['/layer.3/MatMul']       # the first node of each stage but the first, in the order of the program
//! micro_batches = 4                  # parts of a batch that pass through the stages one by one [default: 1]
//! ```
//!
//! ```toml
//! [overlap]
//! chunks = 4                         # a product whose result is exchanged is computed in 4 parts, and each part is
//!                                    # exchanged while the next is computed [default: 1]
//! nodes = ['/layer.3/MatMul']        # nodes of these products [default: all]
//! micro_batches = 2                  # parts of a batch; one computes while another one exchanges [default: 1]
//! ```
//!
//! With `gathered_weights = 0`, each rank along axis 0 stores only a part of each weight that it needs whole, and the
//! ranks gather the parts in each call, just before the weight is needed.
//!
//! `sardonyx plan` also writes `op = M` with `input = N`: operand N of operation M among those that the node has been
//! lowered to when the pass `shard` runs. It writes `seeds` too: if false, products and tables without a rule are
//! replicated on every rank, else they are split where that is faster [default: true].

use crate::onnx::{Model, Placed};
use regex_lite::Regex;
use sardonyx_base::json::Json;
use sardonyx_base::{Dim, Error, Result};
use sardonyx_dialects::sdx::Place;
use sardonyx_passes::distribute::{Candidate, FoundBy};
use sardonyx_passes::options::{AXES_MAX, Options, PLANNED_RANKS_MAX, mesh_of_at_most};
use sardonyx_passes::{CHUNKS_MAX, MICRO_BATCHES_MAX, OperandPlace, Overlap, Stages};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The content of a plan, which is applied to a model before it is compiled.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// Number of ranks along each axis of the mesh.
    pub mesh: Vec<i64>,
    /// Whether products and tables without a rule are split where that is faster; otherwise they are on every rank.
    pub seeds: bool,
    /// Distribution of operands of single operations.
    pub operands: Vec<OperandPlace>,
    /// Axis along which weights are gathered in calls; `None` if each rank stores the weights that it needs.
    pub gathered_weights: Option<usize>,
    /// Pipeline stages along an axis of the mesh; `None` without a pipeline.
    pub stages: Option<Stages>,
    /// Overlap of computation with exchanges; `None` if they do not overlap.
    pub overlap: Option<Overlap>,
    rules: Vec<Rule>,
    /// The file that the plan was read from.
    pub file: Option<PathBuf>,
}

#[derive(Clone, Debug)]
struct Rule {
    node: Regex,
    place: Placed,
}

impl Placement {
    /// Makes a plan of a candidate of the planner. It has the content of the file that `text` writes.
    pub fn planned(found: &Candidate) -> Placement {
        let Candidate { mesh, found_by, places, gathered_weights, stages, overlap, .. } = found.clone();
        let seeds = found_by == FoundBy::Rules;
        Placement { mesh, seeds, operands: places, gathered_weights, stages, overlap, ..Placement::default() }
    }

    /// Reads a plan file. Errors: E0002; E0108 with the key that is wrong.
    pub fn read(path: &Path) -> Result<Placement> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", &e))?;
        let plan = Placement::parse(&text).map_err(|e| e.file(path.display().to_string()))?;
        Ok(Placement { file: Some(path.to_path_buf()), ..plan })
    }

    fn parse(text: &str) -> Result<Placement> {
        let table: Table = text.parse().map_err(|e| wrong(format!("it is no TOML: {e}")))?;
        known(&table, &["gathered_weights", "mesh", "overlap", "pipeline", "place", "seeds"], "the plan")?;
        let sizes = table.get("mesh").and_then(Value::as_array).ok_or_else(|| wrong("`mesh` is missing: [2, 4]"))?;
        let size = |v: &Value| v.as_integer().filter(|n| (1..=PLANNED_RANKS_MAX).contains(n)).map(|n| n.to_string());
        let sizes: Option<Vec<String>> = sizes.iter().map(size).collect();
        let mesh = sizes.as_ref().and_then(|sizes| mesh_of_at_most(&sizes.join("x"), PLANNED_RANKS_MAX));
        let mesh = mesh.ok_or_else(|| {
            wrong(format!(
                "`mesh` is a list of at most {AXES_MAX} axes and 1 to {PLANNED_RANKS_MAX} ranks in all: [2, 4]"
            ))
        })?;
        // The places, the pipeline and the weights name axes by their numbers in the file.
        if !mesh.is_empty() && mesh.len() < sizes.map_or(0, |sizes| sizes.len()) {
            return Err(wrong("`mesh` has an axis of one rank, along which nothing is divided")
                .help("leave it out, and number the axes after it one lower"));
        }
        let seeds = match table.get("seeds") {
            None => true,
            Some(value) => value.as_bool().ok_or_else(|| wrong("`seeds` is true or false"))?,
        };
        let stages = table.get("pipeline").map(|value| pipeline(value, &mesh)).transpose()?;
        let overlap = table.get("overlap").map(overlap).transpose()?;
        let gathered_weights = match table.get("gathered_weights") {
            None => None,
            Some(value) => {
                let axis = value.as_integer().and_then(|axis| usize::try_from(axis).ok());
                let axis = axis.filter(|axis| *axis < mesh.len());
                Some(axis.ok_or_else(|| {
                    wrong(format!("`gathered_weights` is none of the {} axes of the mesh", mesh.len()))
                })?)
            }
        };
        let mut plan = Placement { mesh, seeds, gathered_weights, stages, overlap, ..Placement::default() };
        let all = match table.get("place") {
            None => &vec![],
            Some(Value::Array(all)) => all,
            Some(_) => return Err(wrong("`place` is a list of tables: `[[place]]`")),
        };
        for (i, rule) in all.iter().enumerate() {
            let axis = match Read::rule(rule, i)? {
                Read::Rule(rule) => {
                    let axis = rule.place.axis;
                    plan.rules.push(rule);
                    axis
                }
                Read::Operand(operand) => {
                    let axis = operand.place.mesh;
                    plan.operands.push(operand);
                    axis
                }
            };
            if axis >= plan.mesh.len() {
                return Err(wrong(format!("axis {axis} of a mesh of {} axes", plan.mesh.len())));
            }
        }
        Ok(plan)
    }

    /// Sets the options that the plan determines, except the mesh.
    pub fn set(&self, options: &mut Options) {
        (options.places, options.seeds) = (self.operands.clone(), self.seeds);
        options.gathered_weights = self.gathered_weights;
        (options.stages, options.overlap) = (self.stages.clone(), self.overlap.clone());
    }

    /// Adds the rules to a model's nodes. Errors: E0108 for a rule that matches no node, or a tensor that a node lacks.
    pub fn apply(&self, model: &mut Model) -> Result<()> {
        for rule in &self.rules {
            let mut found = false;
            for node in &mut model.graph.nodes {
                let whole = rule.node.find(&node.name).is_some_and(|m| m.range() == (0..node.name.len()));
                if !whole {
                    continue;
                }
                found = true;
                let has = if rule.place.input { node.inputs.len() } else { node.outputs.len() };
                if rule.place.index >= has {
                    let what = if rule.place.input { "inputs" } else { "outputs" };
                    return Err(
                        wrong(format!("the node has {has} {what}, no number {}", rule.place.index)).node(&node.name)
                    );
                }
                node.places.push(rule.place.clone());
            }
            if !found {
                return Err(wrong(format!("no node has a name like `{}`", rule.node.as_str())));
            }
        }
        Ok(())
    }
}

/// A `[[place]]` table of the file.
enum Read {
    Rule(Rule),
    Operand(OperandPlace),
}

impl Read {
    fn rule(value: &Value, i: usize) -> Result<Read> {
        let name = format!("place {i}");
        let table = value.as_table().ok_or_else(|| wrong(format!("{name} is no table")))?;
        known(table, &["node", "op", "output", "input", "axis", "dim", "unit", "runs"], &name)?;
        let number = |key: &str, least: i64| match table.get(key) {
            None => Ok(None),
            Some(v) => {
                let n = v.as_integer().filter(|n| *n >= least && *n <= i64::from(i32::MAX));
                n.map(Some).ok_or_else(|| wrong(format!("`{key}` of {name} is no number of at least {least}")))
            }
        };
        let node = table.get("node").and_then(Value::as_str).ok_or_else(|| wrong(format!("{name} names no `node`")))?;
        let axis = number("axis", 0)?.unwrap_or(0) as usize;
        if table.get("dim").is_none() && ["unit", "runs"].iter().any(|key| table.contains_key(*key)) {
            return Err(wrong(format!("{name} has units and no `dim`")));
        }
        if let Some(op) = number("op", 0)? {
            let (Some(operand), false) = (number("input", 0)?, table.contains_key("output")) else {
                return Err(wrong(format!("{name} is of an operation, and names no `input` of it")));
            };
            // Sizes may be expressions over the model's symbols.
            let size = |key: &str| match table.get(key).map(|v| (v.as_str(), v)) {
                Some((Some(text), _)) => Dim::parse(text)
                    .map_err(|_| wrong(format!("`{key}` of {name} is no number and no expression of symbols"))),
                _ => Ok(Dim::constant(number(key, 1)?.unwrap_or(1))),
            };
            let split = match number("dim", 0)? {
                None => None,
                Some(dim) => Some((dim as usize, size("runs")?, size("unit")?)),
            };
            let (op, operand) = (op as usize, operand as usize);
            let place = Place { mesh: axis, split };
            return Ok(Read::Operand(OperandPlace { node: node.into(), op, operand, place }));
        }
        let node = Regex::new(node).map_err(|e| wrong(format!("`node` of {name}: {e}")))?;
        let (input, index) = match (number("input", 0)?, number("output", 0)?) {
            (Some(i), None) => (true, i as usize),
            (None, i) => (false, i.unwrap_or(0) as usize),
            (Some(_), Some(_)) => return Err(wrong(format!("{name} is of an input and of an output"))),
        };
        let (unit, runs) = (number("unit", 1)?, number("runs", 1)?);
        let split = number("dim", i64::from(i32::MIN))?.map(|dim| [dim, runs.unwrap_or(1), unit.unwrap_or(1)]);
        Ok(Read::Rule(Rule { node, place: Placed { input, index, axis, split } }))
    }
}

fn pipeline(value: &Value, mesh: &[i64]) -> Result<Stages> {
    let table = value.as_table().ok_or_else(|| wrong("`pipeline` is a table: `[pipeline]`"))?;
    known(table, &["axis", "begins", "micro_batches"], "the pipeline")?;
    let axis = match table.get("axis") {
        None => Some(0),
        Some(value) => value.as_integer().and_then(|axis| usize::try_from(axis).ok()).filter(|axis| *axis < mesh.len()),
    };
    let axis =
        axis.ok_or_else(|| wrong(format!("`axis` of the pipeline is none of the {} of the mesh", mesh.len())))?;
    let micro_batches = table.get("micro_batches").map_or(Some(1), Value::as_integer);
    let micro_batches = micro_batches.and_then(|n| usize::try_from(n).ok());
    let micro_batches = micro_batches
        .filter(|n| (1..=MICRO_BATCHES_MAX).contains(n))
        .ok_or_else(|| wrong(format!("`micro_batches` of the pipeline is no number from 1 to {MICRO_BATCHES_MAX}")))?;
    let names = table.get("begins").and_then(Value::as_array);
    let names = names.and_then(|all| all.iter().map(|name| name.as_str().map(str::to_string)).collect());
    let begins: Vec<String> = names.ok_or_else(|| wrong("`begins` of the pipeline is no list of nodes"))?;
    let ranks = mesh.get(axis).copied().unwrap_or(1);
    match begins.len() as i64 + 1 == ranks {
        true => Ok(Stages { axis, begins, micro_batches }),
        false => {
            Err(wrong(format!("the pipeline has {} stages, axis {axis} of the mesh {ranks} ranks", begins.len() + 1)))
        }
    }
}

fn overlap(value: &Value) -> Result<Overlap> {
    let table = value.as_table().ok_or_else(|| wrong("`overlap` is a table: `[overlap]`"))?;
    known(table, &["chunks", "micro_batches", "nodes"], "the overlap")?;
    let number = |key: &str, max: usize| {
        let n = table.get(key).map_or(Some(1), Value::as_integer).and_then(|n| usize::try_from(n).ok());
        let n = n.filter(|n| (1..=max).contains(n));
        n.ok_or_else(|| wrong(format!("`{key}` of the overlap is no number from 1 to {max}")))
    };
    let (chunks, micro_batches) = (number("chunks", CHUNKS_MAX)?, number("micro_batches", MICRO_BATCHES_MAX)?);
    if chunks == 1 && micro_batches == 1 {
        return Err(wrong("the overlap has one chunk and one micro-batch, which leave nothing to overlap"));
    }
    let name = |name: &Value| name.as_str().filter(|name| !name.is_empty()).map(str::to_string);
    let nodes = match table.get("nodes") {
        None => Some(vec![]),
        Some(names) => {
            names.as_array().and_then(|all| all.iter().map(name).collect()).filter(|all: &Vec<_>| !all.is_empty())
        }
    };
    let nodes = nodes.ok_or_else(|| wrong("`nodes` of the overlap is no list of nodes"))?;
    Ok(Overlap { chunks, micro_batches, nodes })
}

/// A TOML string; JSON's escapes are valid in TOML.
fn quoted(text: &str) -> Json {
    text.into()
}

/// The file content for a candidate of the planner.
pub fn text(found: &Candidate, comment: &str) -> String {
    let (mesh, seeds) = (&found.mesh, found.found_by == FoundBy::Rules);
    let mut out: String = comment.lines().map(|line| format!("# {line}\n")).collect();
    let _ = writeln!(out, "mesh = {mesh:?}\nseeds = {seeds}");
    if let Some(axis) = found.gathered_weights {
        let _ = writeln!(out, "gathered_weights = {axis}");
    }
    if let Some(Stages { axis, begins, micro_batches }) = &found.stages {
        let begins: Vec<String> = begins.iter().map(|name| quoted(name).to_string()).collect();
        let _ = writeln!(out, "\n[pipeline]\naxis = {axis}\nmicro_batches = {micro_batches}");
        let _ = writeln!(out, "begins = [{}]", begins.join(", "));
    }
    if let Some(Overlap { chunks, micro_batches, nodes }) = &found.overlap {
        let _ = writeln!(out, "\n[overlap]\nchunks = {chunks}\nmicro_batches = {micro_batches}");
        let nodes: Vec<String> = nodes.iter().map(|name| quoted(name).to_string()).collect();
        let _ = if nodes.is_empty() { Ok(()) } else { writeln!(out, "nodes = [{}]", nodes.join(", ")) };
    }
    for OperandPlace { node, op, operand, place } in &found.places {
        let node = quoted(node);
        let _ = writeln!(out, "\n[[place]]\nnode = {node}\nop = {op}\ninput = {operand}");
        if place.mesh != 0 {
            let _ = writeln!(out, "axis = {}", place.mesh);
        }
        let Some((dim, runs, unit)) = &place.split else { continue };
        let _ = writeln!(out, "dim = {dim}");
        for (key, size) in [("runs", runs), ("unit", unit)] {
            let _ = match size.as_const() {
                Some(1) => Ok(()),
                Some(n) => writeln!(out, "{key} = {n}"),
                None => writeln!(out, "{key} = {}", quoted(&size.to_string())),
            };
        }
    }
    out
}

fn known(table: &Table, keys: &[&str], of: &str) -> Result<()> {
    match table.keys().find(|key| !keys.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(wrong(format!("{of} has `{key}`; it may have {}", keys.join(", ")))),
    }
}

fn wrong(message: impl Into<String>) -> Box<Error> {
    Error::user("E0108", message).help("`sardonyx compile --help` has an example of a plan")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_with_their_defaults() {
        let text =
            "mesh = [2, 3]\n[[place]]\nnode = 'a.*'\ninput = 1\naxis = 1\ndim = -1\nunit = 32\n[[place]]\nnode = 'b'";
        let plan = Placement::parse(text).unwrap();
        assert_eq!(plan.mesh, [2, 3]);
        let places: Vec<String> = plan.rules.iter().map(|rule| rule.place.to_string()).collect();
        assert_eq!(places, ["in 1 1 -1 1 32", "out 0 0"]);
    }

    #[test]
    fn a_plan_of_operands_is_read_as_it_was_written() {
        let place = |operand: usize, mesh: usize, split: Option<(usize, &str, &str)>| {
            let dim = |text: &str| Dim::parse(text).unwrap();
            let split = split.map(|(at, runs, unit)| (at, dim(runs), dim(unit)));
            OperandPlace { node: "a 'quoted' \"name\"".into(), op: 3, operand, place: Place { mesh, split } }
        };
        let places = [place(0, 0, None), place(1, 1, Some((2, "3", "1"))), place(1, 0, Some((0, "1", "b*12")))];
        let stages = Stages { axis: 0, begins: vec!["a 'quoted' \"name\"".into()], micro_batches: 4 };
        let overlap = Overlap { chunks: 4, micro_batches: 2, nodes: vec!["a".into(), "b \"quoted\"".into()] };
        let found = Candidate {
            mesh: vec![2, 4],
            found_by: FoundBy::Search,
            places: places.to_vec(),
            gathered_weights: Some(1),
            stages: Some(stages.clone()),
            overlap: Some(overlap.clone()),
            estimate: Err("not estimated".into()),
            fits: true,
        };
        let text = text(&found, "two\nlines");
        assert!(text.starts_with("# two\n# lines\nmesh = [2, 4]\nseeds = false\n"), "{text}");
        let plan = Placement::parse(&text).unwrap();
        assert_eq!(
            (plan.mesh.as_slice(), plan.seeds, plan.operands.as_slice()),
            ([2, 4].as_slice(), false, &places[..])
        );
        assert_eq!((plan.stages, plan.overlap), (Some(stages), Some(overlap)));
        assert_eq!(plan.gathered_weights, Some(1));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, message) in [
            ("mesh = 3", "`mesh` is missing: [2, 4]"),
            ("mesh = [5000]", "`mesh` is a list of at most 4 axes and 1 to 4096 ranks in all: [2, 4]"),
            ("mesh = [1, 4]", "`mesh` has an axis of one rank, along which nothing is divided"),
            (
                "mesh = [2]\nspeed = 3",
                "the plan has `speed`; it may have gathered_weights, mesh, overlap, pipeline, place, seeds",
            ),
            ("mesh = [2]\n[pipeline]\nbegins = 1", "`begins` of the pipeline is no list of nodes"),
            ("mesh = [2]\n[pipeline]\naxis = 1\nbegins = ['a']", "`axis` of the pipeline is none of the 1 of the mesh"),
            (
                "mesh = [2]\n[pipeline]\nbegins = ['a']\nmicro_batches = 65",
                "`micro_batches` of the pipeline is no number from 1 to 64",
            ),
            ("mesh = [2]\ngathered_weights = 1", "`gathered_weights` is none of the 1 axes of the mesh"),
            ("mesh = [2]\noverlap = 2", "`overlap` is a table: `[overlap]`"),
            ("mesh = [2]\n[overlap]\nchunks = 65", "`chunks` of the overlap is no number from 1 to 64"),
            ("mesh = [2]\n[overlap]\nmicro_batches = 0", "`micro_batches` of the overlap is no number from 1 to 64"),
            ("mesh = [2]\n[overlap]", "the overlap has one chunk and one micro-batch, which leave nothing to overlap"),
            ("mesh = [2]\n[overlap]\nchunks = 2\nnodes = [1]", "`nodes` of the overlap is no list of nodes"),
            ("mesh = [2]\n[overlap]\nchunks = 2\nnodes = []", "`nodes` of the overlap is no list of nodes"),
            ("mesh = [3]\n[pipeline]\nbegins = ['a']", "the pipeline has 2 stages, axis 0 of the mesh 3 ranks"),
            ("mesh = [2]\n[[place]]\ndim = 1", "place 0 names no `node`"),
            ("mesh = [2]\n[[place]]\nnode = 'a'\nunit = 2", "place 0 has units and no `dim`"),
            ("mesh = [2]\n[[place]]\nnode = 'a'\naxis = 1", "axis 1 of a mesh of 1 axes"),
            ("mesh = [2]\nseeds = 1", "`seeds` is true or false"),
            ("mesh = [2]\n[[place]]\nnode = 'a'\nop = 0", "place 0 is of an operation, and names no `input` of it"),
            (
                "mesh = [2]\n[[place]]\nnode = 'a'\nop = 0\ninput = 0\ndim = 0\nunit = 'x +'",
                "`unit` of place 0 is no number and no expression of symbols",
            ),
            (
                "mesh = [2]\n[[place]]\nnode = 'a'\nop = 0\ninput = 0\ndim = 0\nruns = 0",
                "`runs` of place 0 is no number of at least 1",
            ),
            ("mesh = [2]\n[[place]]\nnode = 'a'\ninput = 0\noutput = 1", "place 0 is of an input and of an output"),
        ] {
            let error = Placement::parse(text).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), ("E0108", message), "{text}");
        }
    }
}
