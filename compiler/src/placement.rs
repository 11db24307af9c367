//! plan.toml  =>  the mesh, and what the ranks are to have of the tensors of nodes
//!
//! ```toml
//! mesh = [2, 4]
//!
//! [[place]]
//! node = '.*attention/query/MatMul'  # a regular expression of a node's whole name
//! output = 0                         # or `input = 1`
//! axis = 1                           # of the mesh; 0 where it is not given
//! dim = -1                           # every rank has all where it is not given
//! unit = 32                          # elements that stay together
//! runs = 3                           # the dimension is so many runs of units: queries, keys and values
//! ```

use crate::onnx::{Model, Placed};
use regex_lite::Regex;
use sardonyx_base::{Error, Result};
use std::path::Path;
use toml::{Table, Value};

/// What a plan says, which is applied to a model before it is compiled.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    pub mesh: Vec<i64>,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    node: Regex,
    place: Placed,
}

impl Placement {
    /// Errors: E0002, E0108 with what is wrong and where.
    pub fn read(path: &Path) -> Result<Placement> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", &e))?;
        Placement::parse(&text).map_err(|e| e.file(path.display().to_string()))
    }

    fn parse(text: &str) -> Result<Placement> {
        let table: Table = text.parse().map_err(|e| wrong(format!("it is no TOML: {e}")))?;
        known(&table, &["mesh", "place"], "the plan")?;
        let sizes = table.get("mesh").and_then(Value::as_array).ok_or_else(|| wrong("`mesh` is missing: [2, 4]"))?;
        let size = |v: &Value| v.as_integer().filter(|n| (1..=1024).contains(n)).map(|n| n.to_string());
        let sizes: Option<Vec<String>> = sizes.iter().map(size).collect();
        let mesh = sizes.and_then(|sizes| sardonyx_passes::mesh(&sizes.join("x")));
        let mesh = mesh.ok_or_else(|| wrong("`mesh` is a list of 1 to 1024 ranks in all: [2, 4]"))?;
        let rules = match table.get("place") {
            None => vec![],
            Some(Value::Array(all)) => {
                all.iter().enumerate().map(|(i, rule)| Rule::read(rule, i)).collect::<Result<_>>()?
            }
            Some(_) => return Err(wrong("`place` is a list of tables: `[[place]]`")),
        };
        if let Some(rule) = rules.iter().find(|rule: &&Rule| rule.place.axis >= mesh.len()) {
            return Err(wrong(format!("axis {} of a mesh of {} axes", rule.place.axis, mesh.len())));
        }
        Ok(Placement { mesh, rules })
    }

    /// Errors: E0108 for a rule that no node fits, or that a node's tensors do not.
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

impl Rule {
    fn read(value: &Value, i: usize) -> Result<Rule> {
        let name = format!("place {i}");
        let table = value.as_table().ok_or_else(|| wrong(format!("{name} is no table")))?;
        known(table, &["node", "output", "input", "axis", "dim", "unit", "runs"], &name)?;
        let number = |key: &str, least: i64| match table.get(key) {
            None => Ok(None),
            Some(v) => {
                let n = v.as_integer().filter(|n| *n >= least && *n <= i64::from(i32::MAX));
                n.map(Some).ok_or_else(|| wrong(format!("`{key}` of {name} is no number of at least {least}")))
            }
        };
        let node = table.get("node").and_then(Value::as_str).ok_or_else(|| wrong(format!("{name} names no `node`")))?;
        let node = Regex::new(node).map_err(|e| wrong(format!("`node` of {name}: {e}")))?;
        let (input, index) = match (number("input", 0)?, number("output", 0)?) {
            (Some(i), None) => (true, i as usize),
            (None, i) => (false, i.unwrap_or(0) as usize),
            (Some(_), Some(_)) => return Err(wrong(format!("{name} is of an input and of an output"))),
        };
        let axis = number("axis", 0)?.unwrap_or(0) as usize;
        let (unit, runs) = (number("unit", 1)?, number("runs", 1)?);
        let split = number("dim", i64::from(i32::MIN))?.map(|dim| [dim, runs.unwrap_or(1), unit.unwrap_or(1)]);
        if split.is_none() && (unit.is_some() || runs.is_some()) {
            return Err(wrong(format!("{name} has units and no `dim`")));
        }
        Ok(Rule { node, place: Placed { input, index, axis, split } })
    }
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
        let text = "mesh = [2, 1, 3]\n[[place]]\nnode = 'a.*'\ninput = 1\naxis = 1\ndim = -1\nunit = 32\n[[place]]\nnode = 'b'";
        let plan = Placement::parse(text).unwrap();
        assert_eq!(plan.mesh, [2, 3]);
        let places: Vec<String> = plan.rules.iter().map(|rule| rule.place.to_string()).collect();
        assert_eq!(places, ["in 1 1 -1 1 32", "out 0 0"]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, message) in [
            ("mesh = 3", "`mesh` is missing: [2, 4]"),
            ("mesh = [2000]", "`mesh` is a list of 1 to 1024 ranks in all: [2, 4]"),
            ("mesh = [2]\nspeed = 3", "the plan has `speed`; it may have mesh, place"),
            ("mesh = [2]\n[[place]]\ndim = 1", "place 0 names no `node`"),
            ("mesh = [2]\n[[place]]\nnode = 'a'\nunit = 2", "place 0 has units and no `dim`"),
            ("mesh = [2]\n[[place]]\nnode = 'a'\naxis = 1", "axis 1 of a mesh of 1 axes"),
            ("mesh = [2]\n[[place]]\nnode = 'a'\ninput = 0\noutput = 1", "place 0 is of an input and of an output"),
        ] {
            let error = Placement::parse(text).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), ("E0108", message), "{text}");
        }
    }
}
