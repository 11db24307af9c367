//! What a rewriting pass is given beside the module: fuel, a list of what it applied, checks of it, remarks on the rest
//!
//! Fuel counts rewrites over a whole compilation, every pass and every function, so that a search over one number
//! finds the rewrite that broke a program. A lowering, without which there is no program, takes no fuel.

use crate::Class;
use crate::options::Options;
use crate::validate::{self, Bounds, Validation};
use sardonyx_base::json::Json;
use sardonyx_base::{Error, Result};
use sardonyx_dialects::flow::Program;
use sardonyx_dialects::mlir::{Attr, Operation};
use sardonyx_dialects::sdx::{Graph, Node, Value};
use sardonyx_kernels::Target;
use std::collections::BTreeSet;
use std::fmt;

/// One rewrite that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// From 1 on, over the whole compilation: the least fuel that includes it.
    pub number: usize,
    pub pass: &'static str,
    pub rule: &'static str,
    /// The function, which is an entry point of the model.
    pub function: String,
    /// The ONNX nodes that what was rewritten stands for.
    pub origins: Vec<String>,
}

/// A rewrite that nearly was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Stable words, which say nothing of this model.
    pub reason: &'static str,
    /// The ONNX node in the way.
    pub node: Option<String>,
    /// The ONNX nodes that would have become one.
    pub origins: Vec<String>,
    /// What the reason is in this model, such as dimensions.
    pub detail: Option<String>,
    pub remedy: Option<&'static str>,
}

/// What a pass missed, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    pub pass: &'static str,
    pub function: String,
    pub missed: Missed,
}

/// Rewrites that a message names, where it is not known which of some is the wrong one.
const NAMED_MAX: usize = 8;

/// The context of the rewriting passes of one compilation.
#[derive(Clone, Debug, Default)]
pub struct Rewrites {
    options: Options,
    pass: &'static str,
    class: Class,
    function: String,
    applied: Vec<Rewrite>,
    validation: Validation,
    remarks: Vec<Remark>,
    /// The ONNX nodes that sum or compare over a dimension, as far as a pass has seen them alone.
    reducers: BTreeSet<String>,
}

impl Rewrites {
    pub fn new(options: Options) -> Rewrites {
        Rewrites { options, ..Rewrites::default() }
    }

    /// What the compilation asks for.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What goes on from here for one of several targets: with the numbers and the fuel of what was applied so far.
    pub fn of_target(&self, target: Target) -> Rewrites {
        Rewrites { options: Options { target, ..self.options.clone() }, ..self.clone() }
    }

    /// The rewrites that were applied, in order.
    pub fn applied(&self) -> &[Rewrite] {
        &self.applied
    }

    /// Whether the rule may be applied to what stands for these ONNX nodes. Takes fuel; the rewrite must follow.
    #[must_use]
    pub fn allow(&mut self, rule: &'static str, origins: &[String]) -> bool {
        if !self.has_fuel() {
            return false;
        }
        let (number, function) = (self.applied.len() + 1, self.function.clone());
        self.applied.push(Rewrite { number, pass: self.pass, rule, function, origins: origins.to_vec() });
        true
    }

    /// Whether one more rewrite would be allowed, for a pass that would search in vain.
    pub fn has_fuel(&self) -> bool {
        self.options.fuel.is_none_or(|fuel| self.applied.len() < fuel)
    }

    /// For a trial whose outcome may not be wanted: without limits, checks or anything applied.
    pub fn trial(&self) -> Rewrites {
        let (pass, class, function) = (self.pass, self.class, self.function.clone());
        let options = Options { fuel: None, remarks: false, validate: false, ..self.options.clone() };
        Rewrites { options, pass, class, function, ..Rewrites::default() }
    }

    /// Takes over what a trial applied, where nothing limits or checks it; otherwise the trial has to be made again.
    pub fn take_over(&mut self, trial: &Rewrites) -> bool {
        if self.options.fuel.is_some() || self.options.validate {
            return false;
        }
        let applied = self.applied.len();
        self.applied.extend(trial.applied.iter().map(|r| Rewrite { number: applied + r.number, ..r.clone() }));
        true
    }

    /// How many rewrites each pass applied, in the order of their first ones.
    pub fn counts(&self) -> Vec<(&'static str, usize)> {
        let mut counts: Vec<(&'static str, usize)> = vec![];
        for r in &self.applied {
            match counts.iter_mut().find(|(pass, _)| *pass == r.pass) {
                Some((_, n)) => *n += 1,
                None => counts.push((r.pass, 1)),
            }
        }
        counts
    }

    /// Those applied, as a list of objects.
    pub fn json(&self) -> Json {
        Json::List(self.applied.iter().map(Rewrite::json).collect())
    }

    /// Whether to look for what was missed.
    pub fn wants_remarks(&self) -> bool {
        self.options.remarks
    }

    /// Records a rewrite that the running pass nearly applied.
    pub fn missed(&mut self, missed: Missed) {
        self.missed_by(self.pass, missed);
    }

    /// The same of another pass, for what several passes might have done.
    pub fn missed_by(&mut self, pass: &'static str, missed: Missed) {
        let remark = Remark { pass, function: self.function.clone(), missed };
        if self.options.remarks && !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Forgets what was said of an earlier state of the function.
    pub(crate) fn take_back(&mut self, passes: &[&str]) {
        let function = &self.function;
        self.remarks.retain(|r| r.function != *function || !passes.contains(&r.pass));
    }

    /// Nodes that reduce, for remarks that name one of many.
    pub(crate) fn note_reducers<'a>(&mut self, origins: impl IntoIterator<Item = &'a String>) {
        self.reducers.extend(origins.into_iter().cloned());
    }

    pub(crate) fn is_reducer(&self, origin: &str) -> bool {
        self.reducers.contains(origin)
    }

    /// What was missed in the end.
    pub fn remarks(&self) -> &[Remark] {
        &self.remarks
    }

    /// What was applied and what was missed, as a list of objects, of the passes that `shown` says. The equalities of the
    /// e-graph are not among them: most are not used in the end (`--explain-node` shows those that are).
    pub fn remarks_json(&self, shown: &dyn Fn(&str) -> bool) -> Json {
        let applied = self.applied.iter().filter(|r| r.pass != "e-graph" && shown(r.pass)).map(Rewrite::remark_json);
        let missed = self.remarks.iter().filter(|r| shown(r.pass)).map(Remark::json);
        Json::List(applied.chain(missed).collect())
    }

    /// Whether each rewrite is to be checked.
    pub fn validates(&self) -> bool {
        self.options.validate
    }

    /// The checks, where there were to be any.
    pub fn validation(&self) -> Option<&Validation> {
        self.options.validate.then_some(&self.validation)
    }

    /// Checks the last rewrite by two states of a program. Errors: E0901 where they compute different things.
    pub(crate) fn check_programs(&mut self, before: &Program, after: &Program) -> Result<()> {
        let (class, seed) = (self.class, self.applied.len() as u64);
        let part = |depth| validate::compare_programs(before, after, class, seed, depth);
        self.validation.check(&part).map_or(Ok(()), |what| Err(self.wrong(&[self.applied.len()], &what)))
    }

    /// Checks the last rewrite by a node as it was and the value that stands for it in a graph, whose nodes from number
    /// `n_old` on are new. Errors: E0901.
    pub(crate) fn check_value(&mut self, graph: &Graph, n_old: usize, was: &Node, is: Value) -> Result<()> {
        let mut both = graph.clone();
        let was = both.push(was.clone());
        let number = self.applied.len();
        self.check_values((&both, n_old), (was, is), self.class, &|_| (f64::NEG_INFINITY, f64::INFINITY), &[number])
    }

    /// Checks the rewrites of some numbers, which made the second value of the first. Errors: E0901.
    pub(crate) fn check_values(
        &mut self,
        (graph, n_old): (&Graph, usize),
        values: (Value, Value),
        class: Class,
        bounds: Bounds,
        numbers: &[usize],
    ) -> Result<()> {
        let part = |depth| validate::compare_values(graph, n_old, values, class, bounds, values.1.0.into(), depth);
        self.validation.check(&part).map_or(Ok(()), |what| Err(self.wrong(numbers, &what)))
    }

    fn wrong(&self, numbers: &[usize], what: &str) -> Box<Error> {
        let made: Vec<&Rewrite> = numbers.iter().filter_map(|n| self.applied.get(n.checked_sub(1)?)).collect();
        let named: Vec<String> =
            made.iter().take(NAMED_MAX).map(|r| format!("{} ({}: {})", r.number, r.pass, r.rule)).collect();
        let named = match named.is_empty() {
            true => format!("of {}", self.pass),
            false if made.len() > NAMED_MAX => {
                format!("{} or one of {} more", named.join(" or "), made.len() - NAMED_MAX)
            }
            false => named.join(" or "),
        };
        let message = format!("rewrite {named} changes what `{}` computes: {what}", self.function);
        let origins = union(made.iter().map(|r| r.origins.as_slice())).join(" ");
        let error = Error::defect(message);
        let error = if origins.is_empty() { error } else { error.node(origins) };
        match made.first() {
            Some(first) => error.help(format!("please report it; `--fuel {}` compiles without it", first.number - 1)),
            None => error,
        }
    }

    /// What a rule does that is of another class than the rest of its pass.
    pub(crate) fn of_class<T>(&mut self, class: Class, run: impl FnOnce(&mut Rewrites) -> T) -> T {
        let of_pass = std::mem::replace(&mut self.class, class);
        let out = run(self);
        self.class = of_pass;
        out
    }

    /// What is applied from now on is that pass's.
    pub(crate) fn begin(&mut self, pass: &'static str, class: Class) {
        (self.pass, self.class) = (pass, class);
    }

    /// Replaces each function of a module for which `rewrite` gives a new one.
    pub(crate) fn functions(
        &mut self,
        module: Operation,
        mut rewrite: impl FnMut(&mut Rewrites, Operation) -> Result<Option<Operation>>,
    ) -> Result<()> {
        crate::rewrite_functions(module, |function| {
            self.function = function.attr("sym_name").and_then(Attr::as_str).unwrap_or_default();
            self.take_back(&[self.pass]);
            rewrite(self, function)
        })
    }

    /// The same for functions of kernels.
    pub(crate) fn programs(
        &mut self,
        module: Operation,
        mut rewrite: impl FnMut(&mut Rewrites, &mut Program) -> Result<()>,
    ) -> Result<()> {
        self.functions(module, |rewrites, function| {
            if !crate::is_flow(function) {
                return Ok(None);
            }
            let mut program = Program::read(function)?;
            rewrite(rewrites, &mut program)?;
            program.write(function.context()).map(Some)
        })
    }
}

impl Rewrite {
    /// `12 fuse-epilogues: epilogue, in main, at /layer.0/add`
    pub fn line(&self) -> String {
        let Rewrite { number, pass, rule, function, origins } = self;
        let at = if origins.is_empty() { String::new() } else { format!(", at {}", origins.join(" ")) };
        format!("{number} {pass}: {rule}, in {function}{at}")
    }

    pub fn json(&self) -> Json {
        Json::Object(vec![
            ("number", self.number.into()),
            ("pass", self.pass.into()),
            ("rule", self.rule.into()),
            ("function", self.function.as_str().into()),
            ("origins", Json::list(self.origins.iter().map(String::as_str))),
        ])
    }
}

impl Rewrite {
    fn remark_json(&self) -> Json {
        Json::Object(vec![
            ("pass", self.pass.into()),
            ("kind", "applied".into()),
            ("reason", self.rule.into()),
            ("node", Json::Null),
            ("origins", Json::list(self.origins.iter().map(String::as_str))),
            ("function", self.function.as_str().into()),
            ("detail", format!("rewrite {}", self.number).into()),
            ("remedy", Json::Null),
        ])
    }
}

impl Remark {
    pub fn json(&self) -> Json {
        let Missed { reason, node, origins, detail, remedy } = &self.missed;
        Json::Object(vec![
            ("pass", self.pass.into()),
            ("kind", "missed".into()),
            ("reason", (*reason).into()),
            ("node", node.clone().into()),
            ("origins", Json::list(origins.iter().map(String::as_str))),
            ("function", self.function.as_str().into()),
            ("detail", detail.clone().into()),
            ("remedy", remedy.map(str::to_string).into()),
        ])
    }
}

/// More names than these are a screen of text; the JSON has all.
const SHOWN_MAX: usize = 8;

impl fmt::Display for Remark {
    /// `remark[fuse-epilogues]: the reader looks at other places: …`, in the form of an error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Missed { reason, node, origins, detail, remedy } = &self.missed;
        write!(f, "remark[{}]: {reason}", self.pass)?;
        detail.iter().try_for_each(|detail| write!(f, ": {detail}"))?;
        let node = node.as_deref().unwrap_or("without a name");
        let (shown, more) = origins.split_at(origins.len().min(SHOWN_MAX));
        write!(f, "\n  --> {}, node {node}", self.function)?;
        if !shown.is_empty() {
            write!(f, "\n  would be one: {}", shown.join(" "))?;
        }
        if !more.is_empty() {
            write!(f, " and {} more", more.len())?;
        }
        remedy.iter().try_for_each(|remedy| write!(f, "\n  help: {remedy}"))
    }
}

/// The origins of several parts of one rewrite, each once.
pub fn union<'a>(parts: impl IntoIterator<Item = &'a [String]>) -> Vec<String> {
    let mut out: Vec<String> = vec![];
    for origin in parts.into_iter().flatten() {
        if !out.contains(origin) {
            out.push(origin.clone());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuel_counts_over_passes() {
        let mut rewrites = Rewrites::new(Options { fuel: Some(2), ..Options::default() });
        rewrites.begin("a", Class::Exact);
        assert!(rewrites.allow("one", &["x".into()]));
        rewrites.begin("b", Class::Exact);
        assert!(rewrites.allow("two", &["x".into(), "y".into()]));
        assert!(!rewrites.has_fuel());
        assert!(!rewrites.allow("three", &[]));
        assert_eq!(rewrites.counts(), [("a", 1), ("b", 1)]);
        let lines: Vec<String> = rewrites.applied().iter().map(Rewrite::line).collect();
        assert_eq!(lines, ["1 a: one, in , at x", "2 b: two, in , at x y"]);
    }

    #[test]
    fn without_a_limit_there_is_always_fuel() {
        let mut rewrites = Rewrites::default();
        assert!((0..1000).all(|_| rewrites.allow("rule", &[])));
        assert_eq!(rewrites.applied().last().map(|r| r.number), Some(1000));
    }
}
