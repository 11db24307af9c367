//! a program before and after a rewrite  =>  the changed steps, as two small programs with the same inputs and results

use super::compare::{differs, says_something};
use super::cut::{Cut, Made, cut};
use super::sample::{DRAWS, Draw, Sizes, sizes, symbols, tensor};
use super::{Part, Verdict};
use crate::class::Class;
use sardonyx_base::random::Random;
use sardonyx_base::{DType, Dim, Error, Result, Tensor};
use sardonyx_dialects::flow::{Container, FlowOp, Program, Source, Step, Transform};
use sardonyx_dialects::interp::run_program;
use sardonyx_dialects::sdx::{Symbol, SymbolKind};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Maximum amount of work to interpret: statements evaluated plus elements read.
const WORK_MAX: i64 = 1 << 25;

/// Returns the steps that differ between two states of a program, ready to run, or the reason why they cannot be run.
/// With `prepares`, values that depend on parameters only are not drawn at random, because one state may compute a
/// value that the other reads as a prepared parameter.
pub fn compare<'a>(
    (before, after): (&'a Program, &'a Program),
    prepares: bool,
    class: Class,
    seed: u64,
    depth: usize,
) -> std::result::Result<Part<'a>, &'static str> {
    let (old, new) = (Side::new(before, after, prepares), Side::new(after, before, prepares));
    let results: BTreeSet<usize> = old.results().filter(|id| new.maker(*id).is_some()).collect();
    let from = |id: usize| {
        let mut all = old.read_by(id);
        if new.changed(id) {
            all.extend(new.read_by(id));
        }
        all
    };
    let rank = |id: usize| old.maker(id).or(new.maker(id)).map_or(0, |step| step + 1);
    let bound = |id: usize| old.changed(id) || new.changed(id) || old.is_light(id) || new.is_light(id);
    let cut = cut(results.iter().copied(), &Made { from: &from, rank: &rank, bound: &bound }, depth);
    let cut = cut.ok_or("what it changes depends on too much")?;
    let (left, right) = (small(before, &cut, &results), small(after, &cut, &results));
    if [&left, &right].iter().any(|p| reads_counted(p)) {
        return Err("what it reads has sizes that data decide");
    }
    let mut digest = DefaultHasher::new();
    [&left, &right].iter().for_each(|p| hash(p, &mut digest));
    class.name().hash(&mut digest);
    let run = move || run(&left, &right, before, class, seed);
    Ok(Part { digest: digest.finish(), run: Box::new(run) })
}

/// A state of a program, with its differences from another state.
struct Side<'a> {
    program: &'a Program,
    producers: Vec<Option<usize>>,
    /// For each step: whether the other state has no equal step.
    changed: Vec<bool>,
    /// For each container: whether its value is independent of inputs and parameters (with `prepares`, only of inputs).
    fixed: Vec<bool>,
}

impl<'a> Side<'a> {
    fn new(program: &'a Program, other: &Program, prepares: bool) -> Side<'a> {
        let others = other.producers();
        let same = |step: &Step| {
            let at = step.results.first().and_then(|r| *others.get(*r)?);
            at.is_some_and(|at| {
                let o = &other.steps[at];
                (&o.args, &o.results) == (&step.args, &step.results) && o.op == step.op
            })
        };
        let changed = program.steps.iter().map(|s| !s.results.is_empty() && !same(s)).collect();
        let mut fixed = vec![false; program.containers.len()];
        for step in &program.steps {
            let is_param = matches!(step.op, FlowOp::Param { .. });
            let is_fixed = (prepares || !is_param) && step.args.iter().all(|a| fixed[*a]);
            step.results.iter().for_each(|r| fixed[*r] = is_fixed);
        }
        Side { program, producers: program.producers(), changed, fixed }
    }

    /// Whether a container must not be drawn at random, because rewrites depend on its value.
    fn is_light(&self, id: usize) -> bool {
        let op = self.maker(id).map(|step| &self.program.steps[step].op);
        self.fixed.get(id).is_some_and(|f| *f) || matches!(op, Some(FlowOp::Param { .. } | FlowOp::View))
    }

    fn maker(&self, id: usize) -> Option<usize> {
        self.producers.get(id).copied().flatten()
    }

    fn changed(&self, id: usize) -> bool {
        self.maker(id).is_some_and(|step| self.changed[step])
    }

    fn read_by(&self, id: usize) -> Vec<usize> {
        let step = self.maker(id).map(|step| &self.program.steps[step]);
        step.map_or(vec![], |s| s.args.clone())
    }

    /// Returns the results of the changed steps.
    fn results(&self) -> impl Iterator<Item = usize> {
        let steps = self.program.steps.iter().zip(&self.changed).filter(|(_, changed)| **changed);
        steps.flat_map(|(s, _)| s.results.iter().copied())
    }
}

/// Returns a program of the steps that compute the values of a cut, with free values as inputs and the given results as
/// outputs. A symbol of kind `Input`, `Data` or `Rank` that none of these steps binds becomes the dimension of an
/// input.
fn small(program: &Program, cut: &Cut, results: &BTreeSet<usize>) -> Program {
    let mut out = Program { name: program.name.clone(), containers: program.containers.clone(), ..Program::default() };
    let needed = |s: &&Step| s.results.iter().any(|r| cut.computed.contains(r));
    out.steps = program.steps.iter().filter(needed).cloned().collect();
    let counted = counted(&out);
    for (name, symbol) in &all_symbols(program) {
        match symbol.kind {
            _ if counted.contains(name) => drop(out.symbols.insert(name.clone(), symbol.clone())),
            SymbolKind::Input | SymbolKind::Data => {
                out.symbols.insert(name.clone(), Symbol { kind: SymbolKind::Input, lo: 0, hi: None });
                let dims = vec![Dim::symbol(name)];
                let id = out.container(Container::plain(DType::Bool, dims));
                out.inputs.push((size_input(name), id));
            }
            SymbolKind::Rank { .. } => {
                out.symbols.insert(name.clone(), Symbol { kind: SymbolKind::Input, ..symbol.clone() });
                let id = out.container(Container::plain(DType::Bool, vec![Dim::symbol(name)]));
                out.inputs.push((size_input(name), id));
            }
            SymbolKind::Kept | SymbolKind::Capacity => {
                out.symbols.insert(name.clone(), symbol.clone());
            }
            SymbolKind::Derived { .. } => {}
        }
    }
    for step in &mut out.steps {
        if let FlowOp::Param { source, .. } = &mut step.op {
            *source = Source { transform: source.transform, ..Source::one(&drawn_name(source)) };
        }
    }
    let read: BTreeSet<usize> = out.steps.iter().flat_map(|s| s.args.iter().copied()).collect();
    out.inputs.extend(cut.free.intersection(&read).map(|&id| (format!("v{id}"), id)));
    out.outputs = results.iter().map(|&id| (format!("v{id}"), id)).collect();
    out
}

/// Returns the symbols that steps of the program bind at run time.
fn counted(program: &Program) -> BTreeSet<String> {
    let found = program.steps.iter().flat_map(|step| match &step.op {
        FlowOp::Host(call) => call.results.iter().flat_map(|r| r.binds.iter().map(|(_, name)| name.clone())).collect(),
        FlowOp::Bind { symbol } => vec![symbol.clone()],
        FlowOp::Kernel(_) | FlowOp::Param { .. } | FlowOp::Const(_) | FlowOp::View => vec![],
    });
    found.collect()
}

/// Whether the size of an input, which is drawn at random, is a symbol that a step binds.
fn reads_counted(program: &Program) -> bool {
    let counted = counted(program);
    let mut dims = program.inputs.iter().flat_map(|(_, id)| &program.containers[*id].dims);
    dims.any(|d| d.names().iter().any(|s| counted.contains(&**s)))
}

fn all_symbols(program: &Program) -> BTreeMap<String, Symbol> {
    symbols(&program.symbols, program.containers.iter().flat_map(|c| &c.dims))
}

/// Returns the name under which a source's value is drawn; a source that concatenates several parameters gets a single
/// name.
fn drawn_name(source: &Source) -> String {
    let parts = if source.parts.is_empty() { String::new() } else { format!(" of {:?}", source.parts) };
    format!("{} along {}{parts}", source.names.join(" + "), source.axis)
}

fn size_input(symbol: &str) -> String {
    format!("size of {symbol}")
}

/// Hashes a small program, apart from names and the numbers of containers.
fn hash(p: &Program, to: &mut DefaultHasher) {
    let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    let mut number = |id: usize| {
        let next = numbers.len();
        *numbers.entry(id).or_insert(next)
    };
    for step in &p.steps {
        match &step.op {
            FlowOp::Kernel(k) => k.hash(to),
            FlowOp::Param { source, window } => {
                let next = names.len();
                (*names.entry(&source.names[0]).or_insert(next), source.transform, window).hash(to);
            }
            FlowOp::Const(value) => value.0.bytes().hash(to),
            FlowOp::View => "view".hash(to),
            FlowOp::Bind { symbol } => symbol.hash(to),
            FlowOp::Host(host) => host.hash(to),
        }
        for &id in step.args.iter().chain(&step.results) {
            number(id).hash(to);
            p.containers[id].hash(to);
        }
    }
    p.inputs.iter().for_each(|(_, id)| number(*id).hash(to));
    p.outputs.iter().for_each(|(_, id)| number(*id).hash(to));
}

fn run(left: &Program, right: &Program, whole: &Program, class: Class, seed: u64) -> Verdict {
    let mut r = Random::new(seed);
    let mut why = "no small sizes keep the checks of the model";
    for how in DRAWS {
        let Some(sizes) = sizes(&all_symbols(whole), &whole.checks, how, &mut r) else { continue };
        if work(left, &sizes).max(work(right, &sizes)) > WORK_MAX {
            why = "too large to interpret";
            continue;
        }
        let Some(drawn) = operands([left, right], whole, &sizes, how, &mut r) else {
            why = "an element type that is not drawn";
            continue;
        };
        let Ok(wanted) = drawn.run(left) else {
            why = "no random operands suit it";
            continue;
        };
        if !wanted.iter().all(|(_, t)| says_something(t)) {
            why = "no random operands suit it";
            continue;
        }
        return match drawn.run(right) {
            Err(e) => Verdict::Differs(format!("what it became fails: {}", e.message)),
            Ok(got) => {
                let first = wanted.iter().zip(&got).find_map(|((_, w), (_, g))| differs(w, g, class));
                first.map_or(Verdict::Equal, |what| Verdict::Differs(format!("{what}, at {sizes:?}")))
            }
        };
    }
    Verdict::Skipped(why)
}

/// Returns the number of elements read plus the number of statements evaluated.
fn work(p: &Program, sizes: &Sizes) -> i64 {
    let value = |name: &str| sizes.get(name).copied();
    let count = |dims: Vec<&Dim>| {
        let all = dims.iter().try_fold(1i64, |n, d| d.eval_named(&value).ok().map(|d| n.saturating_mul(d.max(0))));
        all.unwrap_or(i64::MAX)
    };
    let of_step = |s: &Step| match &s.op {
        FlowOp::Kernel(k) => count(k.extents().collect()).saturating_mul(k.body.len() as i64),
        FlowOp::Param { .. } | FlowOp::Const(_) | FlowOp::View | FlowOp::Bind { .. } | FlowOp::Host(_) => {
            s.results.iter().map(|&r| count(p.containers[r].dims.iter().collect())).fold(0, i64::saturating_add)
        }
    };
    p.steps.iter().map(of_step).fold(0, i64::saturating_add)
}

struct Operands {
    inputs: BTreeMap<String, Tensor>,
    params: BTreeMap<String, Tensor>,
}

/// Returns random operands for the programs before and after the rewrite. A parameter has the dimensions with which the
/// whole program reads it unpacked.
fn operands(sides: [&Program; 2], whole: &Program, sizes: &Sizes, how: &Draw, r: &mut Random) -> Option<Operands> {
    let value = |name: &str| sizes.get(name).copied();
    let mut draw = |c: &Container| {
        let dims = c.dims.iter().map(|d| d.eval_named(&value).ok().and_then(|d| usize::try_from(d).ok()));
        tensor(c.dtype, &dims.collect::<Option<Vec<_>>>()?, (f64::NEG_INFINITY, f64::INFINITY), how, r)
    };
    let mut out = Operands { inputs: BTreeMap::new(), params: BTreeMap::new() };
    for p in sides {
        for (name, id) in &p.inputs {
            if !out.inputs.contains_key(name) {
                out.inputs.insert(name.clone(), draw(&p.containers[*id])?);
            }
        }
        let name =
            |s: &Step| if let FlowOp::Param { source, .. } = &s.op { source.names.first().cloned() } else { None };
        for name in p.steps.iter().filter_map(name) {
            let plain = |s: &&Step| match &s.op {
                FlowOp::Param { source, window: None } => source.transform.is_none() && drawn_name(source) == name,
                _ => false,
            };
            let container = whole.steps.iter().find(plain).map(|s| &whole.containers[s.results[0]]);
            if let Entry::Vacant(unknown) = out.params.entry(name.clone()) {
                unknown.insert(draw(container?)?);
            }
        }
    }
    for p in sides {
        for step in &p.steps {
            let FlowOp::Param { source: Source { names, transform: Some(Transform::Sparse(_, format)), .. }, .. } =
                &step.op
            else {
                continue;
            };
            // Random numbers are not 0, but sparse formats require zeros, so some elements are set to 0.
            let drawn = out.params.get_mut(&names[0])?;
            *drawn = format.thinned(drawn)?;
        }
    }
    Some(out)
}

impl Operands {
    fn run(&self, p: &Program) -> Result<Vec<(String, Tensor)>> {
        let gone = |name: &str| Error::defect(format!("`{name}` was not drawn"));
        let params = |name: &str| self.params.get(name).cloned().ok_or_else(|| gone(name));
        let input =
            |(name, _): &(String, usize)| Ok((name.clone(), self.inputs.get(name).cloned().ok_or_else(|| gone(name))?));
        run_program(p, &params, &p.inputs.iter().map(input).collect::<Result<Vec<_>>>()?)
    }
}
