//! rule  =>  random instances of its left side; the interpreter computes both sides, which must agree as the rule's
//! class requires

use super::sketch;
use super::values::{Bound, Kind, differs, tensor};
use crate::egraph::expr::{Expr, Site};
use crate::egraph::language::{EGraph, ENode, load};
use crate::egraph::rule::{Compiled, Condition, Form, Pattern, Rule, compile, parse_rule};
use crate::random::Random;
use egg::Id;
use sardonyx_base::{Result, Tensor};
use sardonyx_dialects::interp;
use sardonyx_dialects::sdx::{Graph, Node, Op, TensorType};
use std::collections::BTreeMap;

pub struct Verdict {
    /// Number of sites at which the rule gave an equality, by direction.
    pub fired: Vec<usize>,
    pub wrong: Option<String>,
}

/// Number of sites after which no further instances of a direction of a rule are tested.
const SITES: usize = 120;
/// Maximum number of instances that are drawn for each direction.
const TRIES: usize = 6000;

pub fn check(rule: &Rule) -> Verdict {
    let compiled = compile(std::slice::from_ref(rule));
    let mut verdict = Verdict { fired: vec![0; compiled.len()], wrong: None };
    for (d, direction) in compiled.iter().enumerate() {
        let sketch = sketch::parse(&sketch_text(rule, d));
        for seed in 0..TRIES {
            if verdict.fired[d] >= SITES {
                break;
            }
            let mut r = Random::new(seed as u64 * 31 + d as u64);
            let Some(graph) = sketch::sample(&sketch, &mut r) else { continue };
            match check_instance(&graph, direction, &mut r) {
                Ok(fired) => verdict.fired[d] += fired,
                Err(wrong) => {
                    verdict.wrong = Some(format!("{} (seed {seed}): {wrong}\n{}", direction.name, text(&graph)));
                    return verdict;
                }
            }
        }
    }
    verdict
}

/// The left side of a rule as a sketch; conditions determine how the values of variables are drawn.
fn sketch_text(rule: &Rule, direction: usize) -> String {
    let text = match rule.form {
        Form::Code(sketch, _) => return sketch.split_once(" in ").map_or(sketch, |(_, s)| s).into(),
        Form::Text(text) => text,
    };
    let (left, right, _, conditions) = parse_rule(text).expect("a rule");
    fn write(p: &Pattern, conditions: &[(Condition, usize)]) -> String {
        match p {
            Pattern::Number(n) => n.to_string(),
            Pattern::Map(f, args) => {
                let args: Vec<String> = args.iter().map(|a| write(a, conditions)).collect();
                format!("({} {})", f.name(), args.join(" "))
            }
            Pattern::Var(v) => {
                let has = |c| conditions.contains(&(c, *v));
                let kinds = [
                    (Condition::PowerOfTwo, "power-of-two"),
                    (Condition::Scale, "scale"),
                    (Condition::Splat, "splat"),
                    (Condition::NonNegative, "non-negative"),
                    (Condition::Finite, "finite"),
                    (Condition::NeverNan, "never-nan"),
                ];
                let kind = kinds.iter().find(|(c, _)| has(*c)).map_or("any", |(_, k)| k);
                format!("?{v}:{kind}")
            }
        }
    }
    write(if direction == 0 { &left } else { &right }, &conditions)
}

/// Returns the number of sites tested, or a description of the first wrong one.
fn check_instance(graph: &Graph, rule: &Compiled, r: &mut Random) -> std::result::Result<usize, String> {
    let (mut egraph, ids) = load(graph)?;
    let mut found: Vec<(Id, Expr)> = vec![];
    for class in egraph.classes() {
        for node in class.nodes.iter().filter(|n| rule.is_of(egraph.analysis.table.op(n.op))) {
            let site = Site { egraph: &egraph, class: class.id, node };
            found.extend(rule.apply(&site).into_iter().map(|to| (class.id, to)));
        }
    }
    let sizes = [(2, 3), (1, 1), (0, 2), (3, 1)];
    for (n, kind) in Kind::for_class(rule.class).iter().cycle().take(6).enumerate() {
        let (b, s) = sizes[(n + r.below(2)) % sizes.len()];
        let symbols = |name: &str| Some(if name == "b" { b } else { s });
        let mut values = Values::new(graph, &egraph, &ids, *kind, &symbols, r).map_err(|e| e.to_string())?;
        values.check_facts(&egraph)?;
        for (class, to) in &found {
            let want = values.value(&egraph, *class)?;
            let got = values.evaluate(&egraph, to)?;
            let bound = Bound { largest: values.largest, roundings: 4 * (values.longest + 8) };
            if let Some(what) = differs(&want, &got, rule.class, &bound) {
                return Err(format!("{what}, {kind:?}, b={b} s={s}: {to:?}"));
            }
        }
    }
    // Both sides of each equality must have the same type.
    for (class, to) in &found {
        let id = to.add(&mut egraph)?;
        let ty = |id: Id| egraph.analysis.table.ty(egraph[id].data.ty).clone();
        if ty(id) != ty(*class) {
            return Err(format!("a value of type {} for one of type {}", ty(id), ty(*class)));
        }
    }
    Ok(found.len())
}

/// The value of every class, computed from a graph's inputs.
pub struct Values<'a> {
    of: BTreeMap<Id, Tensor>,
    symbols: &'a dyn Fn(&str) -> Option<i64>,
    pub largest: f64,
    pub longest: usize,
}

impl<'a> Values<'a> {
    pub fn new(
        graph: &Graph,
        egraph: &EGraph,
        ids: &[Id],
        kind: Kind,
        symbols: &'a dyn Fn(&str) -> Option<i64>,
        r: &mut Random,
    ) -> Result<Values<'a>> {
        let mut values = Values { of: BTreeMap::new(), symbols, largest: 1.0, longest: 1 };
        let mut all: Vec<Tensor> = vec![];
        for (v, node) in graph.values() {
            let args: Vec<Tensor> = node.args.iter().map(|a| all[a.index()].clone()).collect();
            let value = match &node.op {
                Op::Input { name, .. } | Op::Param { name, .. } => {
                    let dims = node.ty.dims.iter().map(|d| d.eval_named(symbols).map(|n| n as usize));
                    let dims = dims.collect::<Result<Vec<usize>>>()?;
                    match name.strip_prefix("index").and_then(|n| n.split('.').next()?.parse::<usize>().ok()) {
                        Some(n) => {
                            let count = dims.iter().product();
                            Tensor::from_vec(dims, (0..count).map(|_| r.below(n) as i64).collect())
                        }
                        None => tensor(r, node.ty.dtype, &dims, kind),
                    }
                }
                _ => interp::evaluate(node, &args, symbols)?,
            };
            values.note(&value);
            values.of.insert(egraph.find(ids[v.index()]), value.clone());
            all.push(value);
        }
        Ok(values)
    }

    fn note(&mut self, t: &Tensor) {
        self.longest = self.longest.max(t.len());
        if t.dtype().is_float() {
            let finite = (0..t.len()).filter_map(|i| t.get_f64(i)).map(f64::abs).filter(|x| x.is_finite());
            self.largest = finite.fold(self.largest, f64::max);
        }
    }

    pub fn value(&mut self, egraph: &EGraph, id: Id) -> std::result::Result<Tensor, String> {
        let id = egraph.find(id);
        if let Some(known) = self.of.get(&id) {
            return Ok(known.clone());
        }
        // Constants that the analysis added need no operands, so the node with the fewest operands can be computed.
        let node = egraph[id].nodes.iter().min_by_key(|n| n.args.len()).ok_or("an empty class")?;
        let value = self.node(egraph, node)?;
        self.of.insert(id, value.clone());
        Ok(value)
    }

    /// Gives every class a value, by a node whose operands have values.
    pub fn complete(&mut self, egraph: &EGraph) -> std::result::Result<(), String> {
        loop {
            let before = self.of.len();
            for class in egraph.classes() {
                let known = |n: &&ENode| n.args.iter().all(|a| self.of.contains_key(&egraph.find(*a)));
                if let (false, Some(node)) = (self.of.contains_key(&class.id), class.nodes.iter().find(known)) {
                    let value = self.node(egraph, node)?;
                    self.of.insert(class.id, value);
                }
            }
            if self.of.len() == before {
                return Ok(());
            }
        }
    }

    pub fn node(&mut self, egraph: &EGraph, node: &ENode) -> std::result::Result<Tensor, String> {
        let args = node.args.iter().map(|a| self.value(egraph, *a)).collect::<std::result::Result<Vec<_>, _>>()?;
        let table = &egraph.analysis.table;
        self.compute(table.op(node.op), table.ty(table.ty_of(node.op)), &args)
    }

    fn compute(&mut self, op: &Op, ty: &TensorType, args: &[Tensor]) -> std::result::Result<Tensor, String> {
        let node = Node { op: op.clone(), args: vec![], ty: ty.clone(), origins: vec![] };
        let value = interp::evaluate(&node, args, self.symbols).map_err(|e| format!("{op:?}: {e}"))?;
        self.note(&value);
        Ok(value)
    }

    fn evaluate(&mut self, egraph: &EGraph, e: &Expr) -> std::result::Result<Tensor, String> {
        Ok(self.typed(egraph, e)?.0)
    }

    fn typed(&mut self, egraph: &EGraph, e: &Expr) -> std::result::Result<(Tensor, TensorType), String> {
        match e {
            Expr::Class(id) => Ok((self.value(egraph, *id)?, egraph.analysis.table.ty(egraph[*id].data.ty).clone())),
            Expr::Node(op, declared, args) => {
                let args = args.iter().map(|a| self.typed(egraph, a)).collect::<std::result::Result<Vec<_>, _>>()?;
                let types: Vec<&TensorType> = args.iter().map(|(_, ty)| ty).collect();
                let ty = sardonyx_dialects::sdx::infer::result_type(op, &types, declared.as_ref())?;
                let values: Vec<Tensor> = args.iter().map(|(t, _)| t.clone()).collect();
                Ok((self.compute(op, &ty, &values)?, ty))
            }
        }
    }

    /// Checks that the range and splat that the analysis claims for each class hold.
    pub fn check_facts(&self, egraph: &EGraph) -> std::result::Result<(), String> {
        for (&id, t) in &self.of {
            let data = &egraph[id].data;
            let ops: Vec<&Op> = egraph[id].nodes.iter().map(|n| egraph.analysis.table.op(n.op)).collect();
            for v in (0..t.len()).filter_map(|i| t.get_f64(i)) {
                let r = data.range;
                let inside = if v.is_nan() { r.nan } else { r.lo <= v && v <= r.hi };
                if !inside {
                    return Err(format!("{v} is outside {r:?} of {ops:?}"));
                }
                let known = data.splat.as_ref().and_then(|s| s.get_f64(0));
                if known.is_some_and(|s| s.to_bits() != v.to_bits() && !(s.is_nan() && v.is_nan())) {
                    return Err(format!("{v} is not the {known:?} of {ops:?}"));
                }
            }
        }
        Ok(())
    }
}

pub fn text(graph: &Graph) -> String {
    let line =
        |(v, n): (sardonyx_dialects::sdx::Value, &Node)| format!("  %{} = {:?} {:?} : {}\n", v.0, n.op, n.args, n.ty);
    graph.values().map(line).collect()
}

/// Panics with a description of each wrong rule.
pub fn check_all(rules: &[Rule]) {
    let mut wrong = vec![];
    for rule in rules {
        let verdict = check(rule);
        wrong.extend(verdict.wrong);
        if verdict.fired.contains(&0) {
            wrong.push(format!("{} never fired in one direction: {:?}", rule.name, verdict.fired));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
