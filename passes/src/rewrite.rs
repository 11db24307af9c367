//! The context of passes: options, fuel, and the functions by which all rewrites are applied, recorded and checked
//!
//! Fuel is the maximum number of rewrites in a whole compilation, across passes and functions, so that a bisection over
//! this number finds the rewrite that broke a program. Lowerings, without which there is no program, take no fuel.

use crate::class::Class;
use crate::levels::{is_flow, is_sdx, rewrite_functions};
use crate::options::Options;
use crate::remark::{Missed, Remark};
use crate::steps::{Uses, drop_dead, kernel, origins_of, sort_steps, union};
use crate::validate::{self, Bounds, Validation};
use sardonyx_base::json::Json;
use sardonyx_base::{Error, Result};
use sardonyx_dialects::flow::{Class as KernelClass, Program, Step};
use sardonyx_dialects::mlir::{Attr, Module, NewOperation, Operation};
use sardonyx_dialects::sdx::{Graph, Node, Value};
use sardonyx_kernels::Target;
use std::collections::BTreeSet;

/// A rewrite that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// Number of the rewrite, counted from 1 over the whole compilation: the least fuel with which it is applied.
    pub number: usize,
    /// Name of the pass.
    pub pass: &'static str,
    /// Name of the rule.
    pub rule: &'static str,
    /// Name of the function, an entry point of the model.
    pub function: String,
    /// The ONNX nodes implemented by the rewritten code.
    pub origins: Vec<String>,
}

/// Maximum number of rewrites named in a message about several rewrites, any of which may be wrong.
const NAMED_MAX: usize = 8;

/// A kind of rewrite.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub name: &'static str,
    /// How closely the rewritten program agrees with the original; by default the class of the pass.
    pub class: Option<Class>,
    /// Whether validation checks rewrites by this rule; false if the rule changes a program's meaning, as an option
    /// requests.
    pub is_checked: bool,
}

impl Rule {
    pub const fn of_class(class: Class, name: &'static str) -> Rule {
        Rule { name, class: Some(class), is_checked: true }
    }
}

impl From<&'static str> for Rule {
    fn from(name: &'static str) -> Rule {
        Rule { name, class: None, is_checked: true }
    }
}

/// Result of matching a rule: a site where it applies, `None` if it does not match, or an error with the reason why it
/// nearly matched.
pub type Found<S> = std::result::Result<Option<(Rule, S)>, Missed>;

/// The code that a rewrite changes.
pub trait Site {
    /// The steps that the rewrite combines.
    fn steps(&self) -> Vec<usize>;
}

/// Examines a program after a pass, and reports what the pass missed.
#[derive(Clone, Copy, Debug)]
pub struct Review {
    pub(crate) tell: fn(&Program, &mut Rewrites),
    /// Whether the review also runs if no remarks are requested.
    pub(crate) always: bool,
}

/// The context of the passes of one compilation.
#[derive(Clone, Debug, Default)]
pub struct Rewrites {
    options: Options,
    pass: &'static str,
    class: Class,
    review: Option<Review>,
    function: String,
    applied: Vec<Rewrite>,
    validation: Validation,
    remarks: Vec<Remark>,
    /// ONNX nodes that reduce over a dimension, collected from steps that implement a single node.
    reducers: BTreeSet<String>,
}

impl Rewrites {
    /// Creates the context of a compilation, with no rewrites applied yet.
    pub fn new(options: Options) -> Rewrites {
        Rewrites { options, ..Rewrites::default() }
    }

    /// Returns the options of the compilation.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns a copy for a target, which continues the numbering and the fuel of the rewrites applied so far.
    /// `own_panels` is the option of this name.
    pub fn of_target(&self, target: Target, own_panels: bool) -> Rewrites {
        Rewrites { options: Options { target, own_panels, ..self.options.clone() }, ..self.clone() }
    }

    /// Returns the applied rewrites, in order.
    pub fn applied(&self) -> &[Rewrite] {
        &self.applied
    }

    /// Whether the rule may be applied to code for these ONNX nodes. If so, takes fuel and records the rewrite, so the
    /// caller must apply it.
    #[must_use]
    pub(crate) fn allow(&mut self, rule: &'static str, origins: &[String]) -> bool {
        if !self.has_fuel() {
            return false;
        }
        let (number, function) = (self.applied.len() + 1, self.function.clone());
        self.applied.push(Rewrite { number, pass: self.pass, rule, function, origins: origins.to_vec() });
        true
    }

    /// Whether another rewrite would be allowed; without fuel, a pass can skip its search.
    pub(crate) fn has_fuel(&self) -> bool {
        self.options.fuel.is_none_or(|fuel| self.applied.len() < fuel)
    }

    /// Returns a context for a trial whose outcome may be discarded: without limits, checks, remarks or recorded
    /// rewrites.
    pub(crate) fn trial(&self) -> Rewrites {
        let options = Options { fuel: None, remarks: false, validate: false, ..self.options.clone() };
        let (pass, class, function) = (self.pass, self.class, self.function.clone());
        Rewrites { options, pass, class, function, ..Rewrites::default() }
    }

    /// Records the rewrites of a trial as applied, and returns true. If fuel is limited or validation is enabled,
    /// returns false instead, and the caller must repeat the rewrites.
    pub(crate) fn take_over(&mut self, trial: &Rewrites) -> bool {
        if self.options.fuel.is_some() || self.options.validate {
            return false;
        }
        let applied = self.applied.len();
        self.applied.extend(trial.applied.iter().map(|r| Rewrite { number: applied + r.number, ..r.clone() }));
        true
    }

    /// Returns the number of rewrites of each pass, in the order of each pass's first rewrite.
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

    /// Returns the applied rewrites as a list of objects.
    pub fn json(&self) -> Json {
        Json::List(self.applied.iter().map(Rewrite::json).collect())
    }

    /// Records a rewrite that the running pass nearly applied.
    pub(crate) fn missed(&mut self, missed: Missed) {
        self.missed_by(self.pass, missed);
    }

    /// As `missed`, for another pass.
    pub(crate) fn missed_by(&mut self, pass: &'static str, missed: Missed) {
        if self.options.remarks {
            self.remark(Remark { pass, function: self.function.clone(), missed, unasked: false });
        }
    }

    /// Records a remark that `compile` prints even if no remarks are requested.
    pub(crate) fn told_unasked(&mut self, pass: &'static str, missed: Missed) {
        self.remark(Remark { pass, function: self.function.clone(), missed, unasked: true });
    }

    fn remark(&mut self, remark: Remark) {
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Returns the function that is being rewritten.
    pub(crate) fn function(&self) -> &str {
        &self.function
    }

    /// Removes remarks of these passes on an earlier state of the function.
    pub(crate) fn take_back(&mut self, passes: &[&str]) {
        let function = &self.function;
        self.remarks.retain(|r| r.function != *function || !passes.contains(&r.pass));
    }

    /// Records which ONNX nodes reduce over a dimension, before fusion makes one step implement several nodes.
    fn note_reducers(&mut self, program: &Program) {
        let reduces = |s: &&Step| s.origins.len() == 1 && kernel(s).is_some_and(|k| k.class() != KernelClass::Map);
        self.reducers.extend(program.steps.iter().filter(reduces).flat_map(|step| step.origins.iter().cloned()));
    }

    pub(crate) fn is_reducer(&self, origin: &str) -> bool {
        self.reducers.contains(origin)
    }

    /// Returns the remarks on missed rewrites.
    pub fn remarks(&self) -> &[Remark] {
        &self.remarks
    }

    /// Returns applied and missed rewrites as a list of objects, for the passes selected by `shown`. Equalities of the
    /// e-graph are left out, because the extracted program uses few of them (`--explain-node` shows these).
    pub fn remarks_json(&self, shown: &dyn Fn(&str) -> bool) -> Json {
        let applied = self.applied.iter().filter(|r| r.pass != "e-graph" && shown(r.pass)).map(Rewrite::remark_json);
        let missed = self.remarks.iter().filter(|r| shown(r.pass)).map(Remark::json);
        Json::List(applied.chain(missed).collect())
    }

    /// Returns the results of validation, if it is enabled.
    pub fn validation(&self) -> Option<&Validation> {
        self.options.validate.then_some(&self.validation)
    }

    /// Applies a rule to some steps of a program, if there is fuel for it, and returns whether it did. `rewrite` may
    /// leave steps before their producers and results without consumers (see `programs`). Errors: E0901 if validation
    /// finds that the program then computes something else.
    pub(crate) fn apply(
        &mut self,
        program: &mut Program,
        rule: impl Into<Rule>,
        steps: &[usize],
        rewrite: impl FnOnce(&mut Program),
    ) -> Result<bool> {
        let rule: Rule = rule.into();
        if !self.allow(rule.name, &origins_of(program, steps)) {
            return Ok(false);
        }
        let before = (self.options.validate && rule.is_checked).then(|| program.clone());
        rewrite(program);
        if let Some(before) = before {
            self.check_programs(rule.class.unwrap_or(self.class), before, program.clone())?;
        }
        Ok(true)
    }

    /// Applies the rule that `matches` returns for each step, in order; steps that are added meanwhile are not
    /// examined. Errors: E0901.
    pub(crate) fn each_step<S>(
        &mut self,
        program: &mut Program,
        matches: impl Fn(&Program, usize) -> Found<S>,
        mut apply: impl FnMut(&mut Program, usize, S),
    ) -> Result<()> {
        for at in 0..program.steps.len() {
            match matches(program, at) {
                Ok(Some((rule, site))) => drop(self.apply(program, rule, &[at], |program| apply(program, at, site))?),
                Ok(None) => {}
                Err(missed) => {
                    let node = missed.node.or_else(|| program.steps[at].origins.first().cloned());
                    self.missed(Missed { node, ..missed });
                }
            }
        }
        Ok(())
    }

    /// Applies a rule wherever `find` gives a site for a step, until a whole round changes nothing or the fuel is used
    /// up. Errors: E0901.
    pub(crate) fn sweep<S: Site>(
        &mut self,
        program: &mut Program,
        rule: impl Into<Rule>,
        find: impl Fn(&Program, &Uses, usize) -> Option<S>,
        apply: impl Fn(&mut Program, &S),
    ) -> Result<()> {
        let rule = rule.into();
        loop {
            let mut changed = false;
            let mut uses = Uses::new(program);
            let mut at = 0;
            while at < program.steps.len() {
                let Some(site) = find(program, &uses, at) else {
                    at += 1;
                    continue;
                };
                let result = program.steps[at].results.first().copied();
                if !self.apply(program, rule, &site.steps(), |program| apply(program, &site))? {
                    return Ok(());
                }
                changed = true;
                uses = Uses::new(program);
                // Earlier steps may have been removed: continue at the step's current index.
                at = result.and_then(|r| uses.producers[r]).unwrap_or(0).min(at);
            }
            if !changed {
                return Ok(());
            }
        }
    }

    /// Replaces a node's value, if there is fuel for it: `write` adds the nodes of the new value to the graph and
    /// returns it. Returns `None` if nothing was replaced. Errors: E0901 if the new value differs.
    pub(crate) fn replace(
        &mut self,
        graph: &mut Graph,
        rule: &'static str,
        node: &Node,
        write: impl FnOnce(&mut Graph) -> Value,
    ) -> Result<Option<Value>> {
        if !self.allow(rule, &node.origins) {
            return Ok(None);
        }
        let n_old = graph.nodes.len();
        let value = write(graph);
        if self.options.validate {
            let mut both = graph.clone();
            let was = both.push(node.clone());
            let number = self.applied.len();
            let none = |_| (f64::NEG_INFINITY, f64::INFINITY);
            self.check_values((&both, n_old), (was, value), self.class, &none, &[number])?;
        }
        Ok(Some(value))
    }

    /// Replaces each value for which `matches` gives a site, in the order of the nodes. Errors: E0901.
    pub(crate) fn each_value<S>(
        &mut self,
        graph: &mut Graph,
        rule: &'static str,
        matches: impl Fn(&Graph, Value) -> Option<S>,
        apply: impl Fn(&mut Graph, Value, S) -> Value,
    ) -> Result<()> {
        for v in (0..graph.nodes.len()).map(|i| Value(i as u32)) {
            if let Some(site) = matches(graph, v) {
                let node = graph.node(v).clone();
                self.replace(graph, rule, &node, |graph| apply(graph, v, site))?;
            }
        }
        Ok(())
    }

    /// Checks the last rewrite by running the programs before and after it. Errors: E0901 if they compute different
    /// values.
    fn check_programs(&mut self, class: Class, mut before: Program, mut after: Program) -> Result<()> {
        // Pads `before` to the same number of containers, so that containers which inlining adds get the same numbers
        // in both programs.
        before.containers.extend(after.containers.iter().skip(before.containers.len()).cloned());
        let prepares = !after.prepared.is_empty();
        before.inline_prepared();
        after.inline_prepared();
        sort_steps(&mut before);
        sort_steps(&mut after);
        let seed = self.applied.len() as u64;
        let part = |depth| validate::compare_programs((&before, &after), prepares, class, seed, depth);
        self.validation.check(&part).map_or(Ok(()), |what| Err(self.wrong(&[self.applied.len()], &what)))
    }

    /// Checks the rewrites `numbers`, which replaced the first of `values` by the second. Errors: E0901.
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

    /// Begins a pass, to which later rewrites are attributed.
    pub(crate) fn begin(&mut self, pass: &'static str, class: Class, review: Option<Review>) {
        (self.pass, self.class, self.review) = (pass, class, review);
    }

    /// Replaces each function of a module for which `rewrite` returns a new one.
    fn functions<'m>(
        &mut self,
        module: &mut Module<'m>,
        mut rewrite: impl FnMut(&mut Rewrites, Operation) -> Result<Option<NewOperation<'m>>>,
    ) -> Result<()> {
        rewrite_functions(module, |function| {
            self.function = function.attr("sym_name").and_then(Attr::as_str).unwrap_or_default();
            self.take_back(&[self.pass]);
            rewrite(self, function)
        })
    }

    /// Rewrites each function at the sdx level.
    pub(crate) fn graphs(
        &mut self,
        module: &mut Module,
        mut rewrite: impl FnMut(&mut Rewrites, &mut Graph) -> Result<()>,
    ) -> Result<()> {
        let cx = module.context();
        self.functions(module, |rewrites, function| {
            if !is_sdx(function) {
                return Ok(None);
            }
            let mut graph = Graph::read(function)?;
            rewrite(rewrites, &mut graph)?;
            graph.write(cx).map(Some)
        })
    }

    /// Rewrites each function at the flow level, then sorts its steps and removes unused results.
    pub(crate) fn programs(
        &mut self,
        module: &mut Module,
        mut rewrite: impl FnMut(&mut Rewrites, &mut Program) -> Result<()>,
    ) -> Result<()> {
        let cx = module.context();
        self.functions(module, |rewrites, function| {
            if !is_flow(function) {
                return Ok(None);
            }
            let before = Program::read(function)?;
            let mut program = before.clone();
            rewrites.note_reducers(&program);
            rewrite(rewrites, &mut program)?;
            sort_steps(&mut program);
            drop_dead(&mut program);
            if let Some(review) = rewrites.review.filter(|review| review.always || rewrites.options.remarks) {
                (review.tell)(&program, rewrites);
            }
            // Most passes leave most functions unchanged, and writing one takes as long as reading it.
            if program == before { Ok(None) } else { program.write(cx).map(Some) }
        })
    }
}

impl Rewrite {
    /// Formats the rewrite, as in `12 fuse-epilogues: epilogue, in main, at /layer.0/add`.
    pub fn line(&self) -> String {
        let Rewrite { number, pass, rule, function, origins } = self;
        let at = if origins.is_empty() { String::new() } else { format!(", at {}", origins.join(" ")) };
        format!("{number} {pass}: {rule}, in {function}{at}")
    }

    /// Converts the rewrite to an object with a member for each field.
    pub fn json(&self) -> Json {
        Json::Object(vec![
            ("number", self.number.into()),
            ("pass", self.pass.into()),
            ("rule", self.rule.into()),
            ("function", self.function.as_str().into()),
            ("origins", Json::list(self.origins.iter().map(String::as_str))),
        ])
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuel_counts_over_passes() {
        let mut rewrites = Rewrites::new(Options { fuel: Some(2), ..Options::default() });
        rewrites.begin("a", Class::Exact, None);
        assert!(rewrites.allow("one", &["x".into()]));
        rewrites.begin("b", Class::Exact, None);
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
