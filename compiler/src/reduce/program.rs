//! a `flow` function with a fault  =>  a smaller one that still has it

use super::{Search, fresh, sizes};
use sardonyx_base::Dim;
use sardonyx_dialects::flow::{Body, Container, FlowOp, Kernel, Layout, Program, Step};
use sardonyx_dialects::sdx::{Symbol, SymbolKind};
use sardonyx_passes::{drop_dead, tidy};
use std::collections::BTreeSet;
use std::sync::Arc;

fn kernels(p: &Program) -> impl Iterator<Item = &Kernel> {
    p.steps.iter().filter_map(|s| match &s.op {
        FlowOp::Kernel(k) => Some(&**k),
        FlowOp::Param { .. } | FlowOp::Const(_) | FlowOp::View | FlowOp::Bind { .. } | FlowOp::Host(_) => None,
    })
}

/// The dimensions of inputs and of results of steps, and the extents and index expressions of kernels.
fn dims(p: &Program) -> Vec<&Dim> {
    let mut out: Vec<&Dim> = vec![];
    let touched = p.inputs.iter().map(|(_, id)| *id).chain(p.steps.iter().flat_map(|s| s.results.iter().copied()));
    out.extend(touched.flat_map(|id| &p.containers[id].dims));
    for k in kernels(p) {
        out.extend(k.outer.iter().chain(&k.inner).chain(&k.deep).chain(k.stores.iter().flat_map(|s| &s.memlet.index)));
        out.extend(k.body.iter().flat_map(|s| match &s.body {
            Body::Load { memlet, .. } => memlet.index.as_slice(),
            Body::Index(d) => std::slice::from_ref(d),
            Body::Const(_) | Body::Apply { .. } | Body::Convert(_, _) | Body::Reduce { .. } => &[],
        }));
    }
    out
}

/// The program with `by` applied to every dimension, index expression and check. Checks whose sides become equal are
/// removed.
fn mapped(p: &Program, by: &dyn Fn(&Dim) -> Dim) -> Program {
    let mut out = p.clone();
    let container = |c: &mut Container| c.dims.iter_mut().for_each(|d| *d = by(d));
    out.containers.iter_mut().for_each(container);
    for step in &mut out.steps {
        let FlowOp::Kernel(k) = &mut step.op else { continue };
        let k = Arc::make_mut(k);
        k.reads.iter_mut().chain(&mut k.writes).for_each(container);
        k.outer.iter_mut().chain(&mut k.inner).chain(&mut k.deep).for_each(|d| *d = by(d));
        k.stores.iter_mut().flat_map(|s| &mut s.memlet.index).for_each(|d| *d = by(d));
        k.body.iter_mut().for_each(|s| s.body = s.body.renumbered(&|k| k, by));
    }
    for check in &mut out.checks {
        (check.left, check.right) = (by(&check.left), by(&check.right));
    }
    out.checks.retain(|c| c.left != c.right);
    out
}

/// Removes steps, inputs, symbols and checks that no output needs.
fn compact(p: &Program) -> Program {
    let mut out = p.clone();
    drop_dead(&mut out);
    let consumers = out.consumers();
    let unused = |id: usize| consumers[id].is_empty() && !out.is_output(id);
    let gone: Vec<usize> = out.inputs.iter().map(|(_, id)| *id).filter(|id| unused(*id)).collect();
    out.inputs.retain(|(_, id)| !gone.contains(id));
    let used: BTreeSet<String> = dims(&out).into_iter().flat_map(Dim::names).map(|s| s.to_string()).collect();
    out.symbols.retain(|name, s| {
        let in_layout =
            |c: &Container| matches!(&c.layout, Layout::Capacity { size, .. } if size.names().contains(&**name));
        let used = used.contains(name) || out.containers.iter().any(in_layout);
        used && !matches!(s.kind, SymbolKind::Derived { .. })
    });
    out.checks.retain(|c| [&c.left, &c.right].iter().all(|d| d.names().iter().all(|s| used.contains(&**s))));
    out
}

fn size(p: &Program) -> usize {
    p.steps.len() + kernels(p).map(|k| k.body.len()).sum::<usize>()
}

fn accept(p: &mut Program, search: &mut Search<Program>, candidate: &Program) -> bool {
    let candidate = compact(candidate);
    let good = kernels(&candidate).all(|k| k.check().is_ok()) && search.holds(&candidate);
    if good {
        *p = candidate;
    }
    good
}

pub fn reduce(p: &mut Program, search: &mut Search<Program>, hints: &[String]) {
    let whole = p.clone();
    accept(p, search, &whole);
    fix_symbols(p, search);
    one_output(p, search, hints);
    loop {
        let before = size(p);
        cut(p, search);
        statements(p, search);
        if size(p) >= before || search.is_over() {
            break;
        }
    }
    shrink(p, search);
    plain(p, search);
}

fn fix_symbols(p: &mut Program, search: &mut Search<Program>) {
    let names = p.symbols.iter().filter(|(_, s)| s.kind == SymbolKind::Input).map(|(n, _)| n.clone());
    for name in names.collect::<Vec<_>>() {
        let Some(Symbol { lo, hi, .. }) = p.symbols.get(&name).cloned() else { continue };
        for n in [2, 1, 3, 5].into_iter().filter(|n| *n >= lo && hi.is_none_or(|hi| *n <= hi)) {
            let by = |d: &Dim| d.substitute(&|s| (*s == *name).then(|| Dim::constant(n)));
            if accept(p, search, &mapped(p, &by)) {
                break;
            }
        }
    }
}

fn with_output(p: &Program, id: usize) -> Program {
    Program { outputs: vec![("y".into(), id)], ..p.clone() }
}

fn one_output(p: &mut Program, search: &mut Search<Program>, hints: &[String]) {
    let whole = p.clone();
    let hinted = whole.steps.iter().filter(|s| s.origins.iter().any(|o| hints.contains(o)));
    if hinted.flat_map(|s| &s.results).any(|id| accept(p, search, &with_output(&whole, *id))) {
        return;
    }
    let _ = whole.outputs.iter().any(|(_, id)| accept(p, search, &with_output(&whole, *id)));
    let whole = p.clone();
    let results: Vec<usize> = whole.steps.iter().flat_map(|s| s.results.iter().copied()).collect();
    let (mut low, mut high) = (0, results.len().saturating_sub(1));
    while low < high {
        let middle = (low + high) / 2;
        match accept(p, search, &with_output(&whole, results[middle])) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
}

/// Removes the steps that `cut` selects, and makes their results inputs.
fn with_inputs(p: &Program, cut: &dyn Fn(usize, &Step) -> bool) -> Program {
    let mut out = p.clone();
    let mut names = fresh(p.inputs.iter().map(|(name, _)| name.clone()).collect());
    let (gone, kept) = p.steps.iter().cloned().enumerate().partition::<Vec<_>, _>(|(i, s)| cut(*i, s));
    out.steps = kept.into_iter().map(|(_, s)| s).collect();
    for id in gone.iter().flat_map(|(_, s)| &s.results) {
        out.containers[*id].layout = Layout::RowMajor;
        out.inputs.push((names.next().unwrap_or_default(), *id));
    }
    out
}

/// Returns whether a step's results can become inputs; packed matrices, the memory of states and outputs cannot.
fn may_go(p: &Program, step: &Step) -> bool {
    let plain = |id: &usize| p.containers[*id].is_plain() && !p.is_output(*id);
    !step.results.is_empty() && step.results.iter().all(plain)
}

fn cut(p: &mut Program, search: &mut Search<Program>) {
    let whole = p.clone();
    let all = with_inputs(&whole, &|i, s| i + 1 < whole.steps.len() && may_go(&whole, s));
    accept(p, search, &all);
    let mut size = p.steps.len() / 2;
    while size > 0 && !search.is_over() {
        let mut at = 0;
        while at < p.steps.len() {
            let whole = p.clone();
            let inside = |i: usize, s: &Step| (at..at + size).contains(&i) && may_go(&whole, s);
            let any = whole.steps.iter().enumerate().any(|(i, s)| inside(i, s));
            if !any || !accept(p, search, &with_inputs(&whole, &inside)) {
                at += size;
            }
        }
        size /= 2;
    }
}

/// Replaces statements of kernels by one of their operands or by a constant, and removes guards of loads.
fn statements(p: &mut Program, search: &mut Search<Program>) {
    for at in 0..p.steps.len() {
        let mut k = n_statements(p, at);
        while k > 0 && !search.is_over() {
            k -= 1;
            let whole = p.clone();
            for body in simpler(&whole, at, k) {
                if accept(p, search, &with_statement(&whole, at, k, body)) {
                    break;
                }
            }
            // The change may also have removed earlier statements, such as operands of this one.
            k = k.min(n_statements(p, at));
        }
    }
}

fn n_statements(p: &Program, step: usize) -> usize {
    match p.steps.get(step).map(|s| &s.op) {
        Some(FlowOp::Kernel(kernel)) => kernel.body.len(),
        _ => 0,
    }
}

/// Replacements for a statement: an earlier statement, or a simpler body.
enum Instead {
    Statement(usize),
    Body(Body),
}

fn simpler(p: &Program, step: usize, k: usize) -> Vec<Instead> {
    let FlowOp::Kernel(kernel) = &p.steps[step].op else { return vec![] };
    let Some(statement) = kernel.body.get(k) else { return vec![] };
    let operands: Vec<usize> = match &statement.body {
        Body::Apply { args, .. } => args.clone(),
        Body::Convert(a, _) | Body::Reduce { arg: a, .. } => vec![*a],
        Body::Load { guard: None, .. } | Body::Const(_) | Body::Index(_) => vec![],
        Body::Load { memlet, guard: Some(_) } => {
            return vec![Instead::Body(Body::Load { memlet: memlet.clone(), guard: None })];
        }
    };
    let alike = operands.into_iter().filter(|a| kernel.body[*a].dtype == statement.dtype).map(Instead::Statement);
    let number = (!matches!(statement.body, Body::Const(_))).then_some(Instead::Body(Body::Const(1.0)));
    alike.chain(number).collect()
}

fn with_statement(p: &Program, step: usize, k: usize, instead: Instead) -> Program {
    let mut out = p.clone();
    let Step { op: FlowOp::Kernel(kernel), args, .. } = &mut out.steps[step] else { return out };
    let kernel = Arc::make_mut(kernel);
    match instead {
        Instead::Body(body) => kernel.body[k].body = body,
        Instead::Statement(other) => {
            let at = |i: usize| if i == k { other } else { i };
            let index = |d: &Dim| sardonyx_dialects::flow::kernel::rename(d, &|_| None, &at);
            kernel.body.iter_mut().for_each(|s| s.body = s.body.renumbered(&at, &index));
            for store in &mut kernel.stores {
                store.value = at(store.value);
                store.memlet.index.iter_mut().for_each(|d| *d = index(d));
            }
        }
    }
    let (tidied, tidied_args) = tidy(kernel.clone(), args.clone());
    (*kernel, *args) = (tidied, tidied_args);
    out
}

fn shrink(p: &mut Program, search: &mut Search<Program>) {
    while !search.is_over() {
        let whole = p.clone();
        let touched =
            (whole.inputs.iter().map(|(_, id)| *id)).chain(whole.steps.iter().flat_map(|s| s.results.clone()));
        let extents = kernels(&whole).flat_map(|k| k.outer.iter().chain(&k.inner).chain(&k.deep));
        let found: BTreeSet<i64> =
            touched.flat_map(|id| &whole.containers[id].dims).chain(extents).filter_map(Dim::as_const).collect();
        // Coefficients in index expressions are strides, which change with the sizes.
        let resized = |change: &Vec<(i64, i64)>| {
            let to = |c: i64| change.iter().find(|(from, _)| c == *from).map_or(c, |(_, to)| *to);
            mapped(&whole, &|d| d.terms().fold(Dim::constant(0), |sum, (atoms, c)| sum + Dim::term(atoms, to(c))))
        };
        if !sizes::changes(&found).iter().any(|change| accept(p, search, &resized(change))) {
            break;
        }
    }
}

/// Replaces names by short ones, and drops checks and origins.
fn plain(p: &mut Program, search: &mut Search<Program>) {
    let mut plain = Program { name: "reduced".into(), checks: vec![], ..p.clone() };
    plain.steps.iter_mut().for_each(|s| s.origins.clear());
    plain.inputs.iter_mut().enumerate().for_each(|(i, (name, _))| *name = format!("x{i}"));
    accept(p, search, &plain);
}
