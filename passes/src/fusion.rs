//! What the fusion passes share: legality in the graph, substitution of bodies, and putting the steps back in order

use crate::miss::{self, Miss};
use crate::{Rewrites, rewrite};
use sardonyx_base::{DType, Dim, Result};
use sardonyx_dialects::flow::kernel::rename;
use sardonyx_dialects::flow::program::Consumers;
use sardonyx_dialects::flow::{Body, Class, FlowOp, Kernel, Level, Memlet, Program, Source, Statement, Step, Store};
use sardonyx_dialects::mlir::Operation;
use sardonyx_dialects::scalar::ScalarFn;
use sardonyx_dialects::sdx::SymbolKind;
use std::collections::{BTreeSet, HashMap};

/// More statements than this in one kernel would spill more than a separate kernel moves.
pub const STATEMENTS_MAX: usize = 96;

/// The kernel of a step, if it is one.
pub fn kernel(step: &Step) -> Option<&Kernel> {
    match &step.op {
        FlowOp::Kernel(k) => Some(k),
        FlowOp::Param { .. } | FlowOp::Const(_) | FlowOp::View | FlowOp::Bind { .. } | FlowOp::Host(_) => None,
    }
}

/// Who makes and who reads each container, as of one state of the program.
pub struct Uses {
    pub producers: Vec<Option<usize>>,
    pub consumers: Consumers,
}

impl Uses {
    pub fn of(program: &Program) -> Uses {
        Uses { producers: program.producers(), consumers: program.consumers() }
    }

    /// The steps whose results a step reads, in the order of its operands.
    pub fn sources(&self, step: &Step) -> Vec<usize> {
        step.args.iter().filter_map(|&a| self.producers[a]).collect()
    }
}

/// What a rewrite changes.
pub trait Site {
    /// The steps that it makes one.
    fn steps(&self) -> Vec<usize>;
}

/// Applies a rule wherever `find` gives a site for a step, step by step, until a whole round changes nothing or the
/// fuel is used up. Errors: E0901 where a check finds a rewrite wrong.
pub fn sweep<S: Site>(
    program: &mut Program,
    rewrites: &mut Rewrites,
    rule: &'static str,
    find: impl Fn(&Program, &Uses, usize) -> Option<S>,
    apply: impl Fn(&mut Program, &S),
) -> Result<()> {
    loop {
        let mut changed = false;
        let mut uses = Uses::of(program);
        let mut at = 0;
        while at < program.steps.len() {
            let Some(site) = find(program, &uses, at) else {
                at += 1;
                continue;
            };
            let result = program.steps[at].results.first().copied();
            let origins = site.steps().into_iter().map(|step| program.steps[step].origins.as_slice());
            if !rewrites.allow(rule, &rewrite::union(origins)) {
                return Ok(());
            }
            let before = rewrites.validates().then(|| program.clone());
            apply(program, &site);
            if let Some(before) = before {
                rewrites.check_programs(&before, program)?;
            }
            changed = true;
            uses = Uses::of(program);
            // Steps before it may be gone: go on where the step is now.
            at = result.and_then(|r| uses.producers[r]).unwrap_or(0).min(at);
        }
        if !changed {
            return Ok(());
        }
    }
}

/// The parameter behind a container, through views: whoever packs it reads the bytes, whatever dimensions they go under.
pub fn parameter(program: &Program, producers: &[Option<usize>], id: usize) -> Option<Source> {
    let step = producers[id].map(|s| &program.steps[s])?;
    match &step.op {
        FlowOp::Param { source, window: None } => Some(source.clone()),
        FlowOp::View => parameter(program, producers, step.args[0]),
        FlowOp::Param { .. } | FlowOp::Const(_) | FlowOp::Bind { .. } | FlowOp::Kernel(_) => None,
        FlowOp::Host(_) => None,
    }
}

/// A third step on a path from one step to a later one: the last of it. A binding leads to what mentions its symbol.
pub fn step_between(program: &Program, uses: &Uses, from: usize, to: usize) -> Option<usize> {
    let consumers = &uses.consumers;
    let next = |step: usize| -> Vec<usize> {
        let step = &program.steps[step];
        let mut next: Vec<usize> = step.results.iter().flat_map(|&r| consumers[r].iter().copied()).collect();
        let bound = step.op.binds();
        if !bound.is_empty() {
            let mentions = |other: &Step| data_symbols(program, other).iter().any(|s| bound.contains(&s.as_str()));
            next.extend((0..program.steps.len()).filter(|&i| mentions(&program.steps[i])));
        }
        next
    };
    let mut stack: Vec<usize> = next(from).into_iter().filter(|&s| s != to).collect();
    let mut seen = BTreeSet::new();
    while let Some(step) = stack.pop() {
        if !seen.insert(step) {
            continue;
        }
        let next = next(step);
        if next.contains(&to) {
            return Some(step);
        }
        stack.extend(next);
    }
    None
}

/// The data-dependent symbols that a step needs the values of.
fn data_symbols(program: &Program, step: &Step) -> BTreeSet<String> {
    // Most models have none; then nothing is looked through.
    if !program.symbols.values().any(|s| s.kind == SymbolKind::Data) {
        return BTreeSet::new();
    }
    let mut dims: Vec<&Dim> =
        step.args.iter().chain(&step.results).flat_map(|&id| &program.containers[id].dims).collect();
    if let Some(k) = kernel(step) {
        dims.extend(k.extents());
        dims.extend(k.stores.iter().flat_map(|s| &s.memlet.index));
        dims.extend(k.body.iter().flat_map(|s| match &s.body {
            Body::Load { memlet, .. } => memlet.index.as_slice(),
            Body::Index(d) => std::slice::from_ref(d),
            Body::Const(_) | Body::Apply { .. } | Body::Convert(_, _) | Body::Reduce { .. } => &[],
        }));
    }
    let is_data = |name: &str| program.symbols.get(name).is_some_and(|s| s.kind == SymbolKind::Data);
    let own = step.op.binds();
    let needed = |s: &str| is_data(s) && !own.contains(&s);
    dims.into_iter().flat_map(Dim::symbols).filter(|s| needed(s)).map(|s| s.to_string()).collect()
}

/// An iteration variable that stands alone in an index expression.
pub fn bare_var(d: &Dim) -> Option<usize> {
    d.as_symbol()?.strip_prefix('%')?.parse().ok()
}

/// The iteration variables in an index expression.
pub fn own_vars(d: &Dim) -> Vec<usize> {
    d.symbols().iter().filter_map(|s| s.strip_prefix('%')?.parse().ok()).collect()
}

/// An index that is read from data: it is checked when the kernel runs, and the check must survive.
pub fn from_data(d: &Dim) -> bool {
    d.symbols().iter().any(|s| s.starts_with('$'))
}

/// Loads by an index from data that are made once per row. Where the inner space is empty such a load is made although
/// no point is there, so no rewrite may bring one about.
pub fn data_loads_per_row(k: &Kernel) -> usize {
    let row = |s: &Statement| matches!(&s.body, Body::Load { memlet, .. } if memlet.index.iter().any(from_data));
    k.body.iter().zip(k.levels()).filter(|(s, level)| *level == Level::Row && row(s)).count()
}

/// A kernel's body under substitution: variables by `vars`, loads by `load` (the new statement's number).
pub struct Splice<'k> {
    pub body: Vec<Statement>,
    from: &'k Kernel,
    map: Vec<usize>,
}

/// What becomes of a load: given its memlet and guard in new terms and its type, the number of the statement.
pub type Loads<'f, 'k> = &'f mut dyn FnMut(&mut Splice<'k>, Memlet, Option<usize>, DType) -> usize;

impl<'k> Splice<'k> {
    pub fn new(body: Vec<Statement>, from: &'k Kernel) -> Splice<'k> {
        Splice { body, from, map: vec![] }
    }

    pub fn push(&mut self, body: Body, dtype: DType) -> usize {
        self.body.push(Statement { body, dtype });
        self.body.len() - 1
    }

    /// Index expressions of the source kernel in the new one's terms.
    pub fn index(&self, d: &Dim, vars: &[Dim]) -> Dim {
        rename(d, &|i| vars.get(i).cloned(), &|k| self.map[k])
    }

    /// Copies all statements; `load` may replace a load by something else.
    pub fn run(&mut self, vars: &[Dim], load: Loads<'_, 'k>) {
        for statement in &self.from.body {
            let id = match &statement.body {
                Body::Load { memlet, guard } => {
                    let index = memlet.index.iter().map(|d| self.index(d, vars)).collect();
                    let guard = guard.map(|g| self.map[g]);
                    load(self, Memlet { container: memlet.container, index }, guard, statement.dtype)
                }
                other => {
                    let body = other.renumbered(&|k| self.map[k], &|d| self.index(d, vars));
                    self.push(body, statement.dtype)
                }
            };
            self.map.push(id);
        }
    }

    pub fn statement(&self, old: usize) -> usize {
        self.map[old]
    }
}

/// Both guards, where there are two.
pub fn and_guards(splice: &mut Splice, a: Option<usize>, b: Option<usize>) -> Option<usize> {
    match (a, b) {
        (Some(a), Some(b)) => Some(splice.push(Body::Apply { f: ScalarFn::And, args: vec![a, b] }, DType::Bool)),
        (one, other) => one.or(other),
    }
}

/// A kernel with its operands: equal statements once, unused statements and operands gone.
pub fn tidy(mut kernel: Kernel, args: Vec<usize>) -> (Kernel, Vec<usize>) {
    share_operands(&mut kernel, &args);
    share_statements(&mut kernel);
    drop_dead_statements(&mut kernel);
    drop_unused_operands(kernel, args)
}

/// Two operands that are one container become one.
fn share_operands(kernel: &mut Kernel, args: &[usize]) {
    for statement in &mut kernel.body {
        if let Body::Load { memlet, .. } = &mut statement.body {
            let id = args[memlet.container];
            memlet.container = args.iter().position(|&a| a == id).unwrap_or(memlet.container);
        }
    }
}

fn share_statements(kernel: &mut Kernel) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut map: Vec<usize> = vec![];
    let mut body: Vec<Statement> = vec![];
    for statement in &kernel.body {
        let new = statement.body.renumbered(&|k| map[k], &|d| rename(d, &|_| None, &|k| map[k]));
        let key = format!("{new:?} {}", statement.dtype);
        let id = *seen.entry(key).or_insert_with(|| {
            body.push(Statement { body: new, dtype: statement.dtype });
            body.len() - 1
        });
        map.push(id);
    }
    kernel.body = body;
    renumber_stores(kernel, &map);
}

/// Stores of other statements, by the new number of each.
pub fn renumber_stores(kernel: &mut Kernel, map: &[usize]) {
    for store in &mut kernel.stores {
        store.value = map[store.value];
        store.memlet.index.iter_mut().for_each(|d| *d = rename(d, &|_| None, &|k| map[k]));
    }
}

fn statements_in(index: &[Dim]) -> Vec<usize> {
    let symbols = index.iter().flat_map(|d| d.symbols());
    symbols.filter_map(|s| s.strip_prefix('$')?.parse().ok()).collect()
}

fn uses_of(body: &Body) -> Vec<usize> {
    match body {
        Body::Load { memlet, guard } => statements_in(&memlet.index).into_iter().chain(*guard).collect(),
        Body::Const(_) => vec![],
        Body::Index(d) => statements_in(std::slice::from_ref(d)),
        Body::Apply { args, .. } => args.clone(),
        Body::Convert(a, _) => vec![*a],
        Body::Reduce { arg, .. } => vec![*arg],
    }
}

fn drop_dead_statements(kernel: &mut Kernel) {
    let mut live = vec![false; kernel.body.len()];
    let mut stack: Vec<usize> =
        kernel.stores.iter().flat_map(|s| statements_in(&s.memlet.index).into_iter().chain([s.value])).collect();
    while let Some(k) = stack.pop() {
        if !std::mem::replace(&mut live[k], true) {
            stack.extend(uses_of(&kernel.body[k].body));
        }
    }
    let mut map = vec![0; live.len()];
    let mut body = vec![];
    for (k, statement) in kernel.body.iter().enumerate().filter(|(k, _)| live[*k]) {
        map[k] = body.len();
        let new = statement.body.renumbered(&|k| map[k], &|d| rename(d, &|_| None, &|k| map[k]));
        body.push(Statement { body: new, dtype: statement.dtype });
    }
    kernel.body = body;
    renumber_stores(kernel, &map);
}

fn drop_unused_operands(mut kernel: Kernel, args: Vec<usize>) -> (Kernel, Vec<usize>) {
    let loads = |kernel: &Kernel, i: usize| {
        kernel.body.iter().any(|s| matches!(&s.body, Body::Load { memlet, .. } if memlet.container == i))
    };
    let kept: Vec<usize> = (0..args.len()).filter(|&i| loads(&kernel, i)).collect();
    for statement in &mut kernel.body {
        if let Body::Load { memlet, .. } = &mut statement.body {
            memlet.container = kept.iter().position(|&k| k == memlet.container).unwrap_or(0);
        }
    }
    kernel.reads = kept.iter().map(|&i| kernel.reads[i].clone()).collect();
    (kernel, kept.into_iter().map(|i| args[i]).collect())
}

/// Drops results that nothing needs: the kernel's stores to them, or the whole step.
pub fn drop_dead(program: &mut Program) {
    let mut readers = vec![0usize; program.containers.len()];
    program.outputs.iter().for_each(|(_, id)| readers[*id] += 1);
    program.steps.iter().flat_map(|s| &s.args).for_each(|&id| readers[id] += 1);
    // Who reads comes later: the last first, so that those that it alone read are seen.
    let mut at = program.steps.len();
    while at > 0 {
        at -= 1;
        let step = &program.steps[at];
        let kept = |i: &usize| readers[step.results[*i]] > 0;
        let n_kept = (0..step.results.len()).filter(kept).count();
        if n_kept == 0 && step.op.binds().is_empty() {
            step.args.iter().for_each(|&id| readers[id] -= 1);
            program.steps.remove(at);
        } else if n_kept < step.results.len() && kernel(step).is_some() {
            let kept: Vec<usize> = (0..step.results.len()).filter(kept).collect();
            let args = keep_results(&mut program.steps[at], &kept);
            args.iter().for_each(|&id| readers[id] -= 1);
            program.steps[at].args.iter().for_each(|&id| readers[id] += 1);
        }
    }
}

/// Drops stores to results, and what only they needed. The operands before.
fn keep_results(step: &mut Step, kept: &[usize]) -> Vec<usize> {
    let FlowOp::Kernel(kernel) = &mut step.op else { return step.args.clone() };
    kernel.stores.retain(|s| kept.contains(&s.memlet.container));
    for store in &mut kernel.stores {
        store.memlet.container = kept.iter().position(|&k| k == store.memlet.container).unwrap_or(0);
    }
    kernel.writes = kept.iter().map(|&i| kernel.writes[i].clone()).collect();
    step.results = kept.iter().map(|&i| step.results[i]).collect();
    let (tidied, args) = tidy((**kernel).clone(), step.args.clone());
    **kernel = tidied;
    std::mem::replace(&mut step.args, args)
}

/// Puts every step after what it needs, keeping the order where it may.
pub fn sort_steps(program: &mut Program) {
    let mut ready = vec![false; program.containers.len()];
    program.inputs.iter().for_each(|(_, id)| ready[*id] = true);
    let mut bound: BTreeSet<String> = BTreeSet::new();
    let mut rest: Vec<Option<Step>> = std::mem::take(&mut program.steps).into_iter().map(Some).collect();
    let mut first = 0;
    while first < rest.len() {
        let fits = |step: &Step| data_symbols(program, step).is_subset(&bound) && step.args.iter().all(|a| ready[*a]);
        // A cycle would be a defect of a fusion; the order as it is makes the verifier say so.
        let at = (first..rest.len()).find(|&i| rest[i].as_ref().is_some_and(fits)).unwrap_or(first);
        let taken = rest[at].take();
        first += rest[first..].iter().take_while(|s| s.is_none()).count();
        let Some(step) = taken else { continue };
        step.results.iter().for_each(|r| ready[*r] = true);
        bound.extend(step.op.binds().into_iter().map(str::to_string));
        program.steps.push(step);
    }
}

/// How the variables of two kernels, one of which reads the other's results, correspond.
pub struct Match {
    /// The merged kernel iterates as this one does.
    pub outer: Vec<Dim>,
    pub inner: Vec<Dim>,
    /// Each variable of the producer and of the consumer in terms of the merged kernel's variables.
    pub producer: Vec<Dim>,
    pub consumer: Vec<Dim>,
}

/// Whether each of the two kernels keeps the rules in the merged space: one that repeats a row's value along what would
/// become the inner space has no place there, because a row's value is written once per row.
pub fn fits(p: &Kernel, c: &Kernel, m: &Match) -> bool {
    let moved = |k: &Kernel, vars: &[Dim]| {
        let mut splice = Splice::new(vec![], k);
        splice.run(vars, &mut |s, memlet, guard, dtype| s.push(Body::Load { memlet, guard }, dtype));
        let store = |s: &Store| {
            let index = s.memlet.index.iter().map(|d| splice.index(d, vars)).collect();
            Store { memlet: Memlet { container: s.memlet.container, index }, value: splice.statement(s.value) }
        };
        let stores = k.stores.iter().map(store).collect();
        let (outer, inner, deep) = (m.outer.clone(), m.inner.clone(), k.deep.clone());
        Kernel { outer, inner, deep, stores, body: splice.body, reads: k.reads.clone(), writes: k.writes.clone() }
    };
    let one = |k: &Kernel, vars: &[Dim]| {
        let moved = moved(k, vars);
        // A kernel with an inner space keeps it; a map gets one.
        moved.check().is_ok() && (!k.inner.is_empty() || m.inner.is_empty() || data_loads_per_row(&moved) == 0)
    };
    one(p, &m.producer) && one(c, &m.consumer)
}

/// The loads that a consumer makes of a producer's results: (result, index).
pub fn loads_of<'c>(producer: &Step, consumer: &'c Step) -> Vec<(usize, &'c Memlet, bool)> {
    let Some(c) = kernel(consumer) else { return vec![] };
    let result = |container: usize| producer.results.iter().position(|r| *r == consumer.args[container]);
    let load = |s: &'c Statement| match &s.body {
        Body::Load { memlet, guard } => Some((result(memlet.container)?, memlet, guard.is_some())),
        _ => None,
    };
    c.body.iter().filter_map(load).collect()
}

/// A step and one that it reads, with the correspondence of their variables.
struct Pair {
    producer: usize,
    consumer: usize,
    space: Match,
}

impl Site for Pair {
    fn steps(&self) -> Vec<usize> {
        vec![self.producer, self.consumer]
    }
}

/// Whether a producer and a consumer merge, and in which space.
pub type Matches = fn(&Program, &Uses, usize, usize) -> std::result::Result<Match, Miss>;

/// Merges each step into a step that it reads, wherever `matches` gives the correspondence of producer and consumer.
pub fn merge_pairs(program: &mut Program, rewrites: &mut Rewrites, rule: &'static str, matches: Matches) -> Result<()> {
    let find = |program: &Program, uses: &Uses, consumer: usize| {
        let sources = uses.sources(&program.steps[consumer]);
        let site =
            |producer| Some(Pair { producer, consumer, space: matches(program, uses, producer, consumer).ok()? });
        sources.into_iter().find_map(site)
    };
    sweep(program, rewrites, rule, find, merge)
}

/// The pass that does so.
pub fn merge_wherever(module: Operation, rewrites: &mut Rewrites, rule: &'static str, matches: Matches) -> Result<()> {
    rewrites.programs(module, |rewrites, program| {
        merge_pairs(program, rewrites, rule, matches)?;
        miss::tell(program, rewrites);
        Ok(())
    })
}

/// Merges a consumer, or a later step that reads no result, into the scope of `space`. All results of the producer
/// stay (see `drop_dead`).
pub fn merge_into(program: &mut Program, producer: usize, consumer: usize, space: Match) {
    merge(program, &Pair { producer, consumer, space });
}

/// Merges a consumer into the scope of their match. All results of the producer stay (see `drop_dead`).
fn merge(program: &mut Program, &Pair { producer, consumer, space: ref m }: &Pair) {
    let (p_step, c_step) = (program.steps[producer].clone(), program.steps[consumer].clone());
    let (Some(p), Some(c)) = (kernel(&p_step), kernel(&c_step)) else { return };
    let mut args = p_step.args.clone();
    let mut reads = p.reads.clone();
    let mut first = Splice::new(vec![], p);
    first.run(&m.producer, &mut |s, memlet, guard, dtype| s.push(Body::Load { memlet, guard }, dtype));
    let restore = |s: &Splice, store: &Store, vars: &[Dim], shift: usize| Store {
        memlet: Memlet {
            container: store.memlet.container + shift,
            index: store.memlet.index.iter().map(|d| s.index(d, vars)).collect(),
        },
        value: s.statement(store.value),
    };
    let mut stores: Vec<Store> = p.stores.iter().map(|s| restore(&first, s, &m.producer, 0)).collect();
    let value_of: Vec<usize> =
        (0..p.writes.len()).map(|r| stores.iter().find(|s| s.memlet.container == r).map_or(0, |s| s.value)).collect();
    let mut second = Splice::new(first.body, c);
    second.run(&m.consumer, &mut |s, memlet, guard, dtype| {
        let id = c_step.args[memlet.container];
        if let Some(result) = p_step.results.iter().position(|r| *r == id) {
            return value_of[result];
        }
        let container = args.iter().position(|&a| a == id).unwrap_or_else(|| {
            args.push(id);
            reads.push(c.reads[memlet.container].clone());
            args.len() - 1
        });
        s.push(Body::Load { memlet: Memlet { container, ..memlet }, guard }, dtype)
    });
    stores.extend(c.stores.iter().map(|s| restore(&second, s, &m.consumer, p.writes.len())));
    let writes = p.writes.iter().chain(&c.writes).cloned().collect();
    let (outer, inner, deep) = (m.outer.clone(), m.inner.clone(), vec![]);
    let merged = Kernel { outer, inner, deep, reads, writes, body: second.body, stores };
    let (merged, args) = tidy(merged, args);
    let results = p_step.results.iter().chain(&c_step.results).copied().collect();
    let origins = rewrite::union([p_step.origins.as_slice(), &c_step.origins]);
    let op = FlowOp::Kernel(Box::new(merged));
    program.steps[consumer] = Step { op, args, results, origins };
    program.steps.remove(producer);
    sort_steps(program);
    drop_dead(program);
}

/// Correspondence of consumer variables to producer variables through the containers between them. None where an index
/// is no bare variable, or two loads disagree.
pub fn correspond(producer: &Step, consumer: &Step) -> std::result::Result<Vec<(usize, usize)>, Miss> {
    let (Some(p), Some(c)) = (kernel(producer), kernel(consumer)) else { return Err(Miss::Unlike) };
    let mut pairs: Vec<(usize, usize)> = vec![];
    for (result, load, guarded) in loads_of(producer, consumer) {
        let mut stores = p.stores.iter().filter(|s| s.memlet.container == result);
        let (Some(store), None) = (stores.next(), stores.next()) else {
            return Err(Miss::OtherPlaces);
        };
        if guarded {
            return Err(Miss::Guarded);
        }
        for ((s, l), extent) in store.memlet.index.iter().zip(&load.index).zip(&p.writes[result].dims) {
            match (bare_var(s), bare_var(l)) {
                (Some(pv), Some(cv)) => pairs.push((cv, pv)),
                // A dimension of 1 has one point, however it is named, unless the name is to be checked.
                _ if extent.is_const(1) && !from_data(l) => {}
                _ if from_data(l) => return Err(Miss::FromData),
                _ => return Err(Miss::OtherPlaces),
            }
        }
    }
    // Attention is made last, of kernels that are whole.
    if p.class() == Class::Attention || c.class() == Class::Attention {
        return Err(Miss::Unlike);
    }
    pairs.sort();
    pairs.dedup();
    let distinct = |side: fn(&(usize, usize)) -> usize| {
        let all: BTreeSet<usize> = pairs.iter().map(side).collect();
        all.len() == pairs.len()
    };
    let extent = |k: &Kernel, v: usize| k.extents().nth(v).cloned();
    let same_extents = pairs.iter().all(|&(cv, pv)| extent(c, cv) == extent(p, pv));
    match distinct(|x| x.0) && distinct(|x| x.1) && same_extents && !pairs.is_empty() {
        true => Ok(pairs),
        false => Err(Miss::OtherSpace),
    }
}
