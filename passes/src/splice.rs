//! Rewriting of kernel bodies: their variables, substitution into another kernel, and removal of unused parts

use sardonyx_base::{DType, Dim};
use sardonyx_dialects::flow::kernel::{rename, statements_in};
use sardonyx_dialects::flow::{Body, Container, Kernel, Level, Memlet, Statement};
use sardonyx_dialects::scalar::ScalarFn;

/// Whether an index depends on data. Such an index is checked at run time, and rewrites must preserve the check.
pub fn from_data(d: &Dim) -> bool {
    !d.statements().is_empty()
}

/// Returns the number of loads with data-dependent indices that are executed once per row. Such a load, and its check,
/// is executed even if the inner space is empty, so no rewrite may introduce such a load.
pub fn data_loads_per_row(k: &Kernel) -> usize {
    let row = |s: &Statement| matches!(&s.body, Body::Load { memlet, .. } if memlet.index.iter().any(from_data));
    k.body.iter().zip(k.levels()).filter(|(s, level)| *level == Level::Row && row(s)).count()
}

/// Copies the body of kernel `from` into another body. `run` replaces its variables by `vars`, and its loads by what
/// `load` adds.
pub struct Splice<'k> {
    pub body: Vec<Statement>,
    from: &'k Kernel,
    map: Vec<usize>,
}

/// Replaces a load: takes its translated memlet and guard and its type, and returns the number of the new statement.
pub type Loads<'f, 'k> = &'f mut dyn FnMut(&mut Splice<'k>, Memlet, Option<usize>, DType) -> usize;

impl<'k> Splice<'k> {
    pub fn new(body: Vec<Statement>, from: &'k Kernel) -> Splice<'k> {
        Splice { body, from, map: vec![] }
    }

    pub fn push(&mut self, body: Body, dtype: DType) -> usize {
        self.body.push(Statement { body, dtype });
        self.body.len() - 1
    }

    /// Translates an index expression of the source kernel.
    pub fn index(&self, d: &Dim, vars: &[Dim]) -> Dim {
        rename(d, &|i| vars.get(i).cloned(), &|k| self.map[k])
    }

    /// Copies all statements; `load` may replace loads.
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

/// Returns the conjunction of two optional guards.
pub fn and_guards(splice: &mut Splice, a: Option<usize>, b: Option<usize>) -> Option<usize> {
    match (a, b) {
        (Some(a), Some(b)) => Some(splice.push(Body::Apply { f: ScalarFn::And, args: vec![a, b] }, DType::Bool)),
        (one, other) => one.or(other),
    }
}

/// Returns a kernel and its operands with equal statements merged, and guards, statements and operands that are not
/// needed removed.
pub fn tidy(mut kernel: Kernel, args: Vec<usize>) -> (Kernel, Vec<usize>) {
    share_operands(&mut kernel, &args);
    drop_guards(&mut kernel);
    share_statements(&mut kernel);
    drop_dead_statements(&mut kernel);
    drop_unused_operands(kernel, args)
}

/// Merges operands that are the same container.
fn share_operands(kernel: &mut Kernel, args: &[usize]) {
    for statement in &mut kernel.body {
        if let Body::Load { memlet, .. } = &mut statement.body {
            let id = args[memlet.container];
            memlet.container = args.iter().position(|&a| a == id).unwrap_or(memlet.container);
        }
    }
}

/// Removes the guard of a load at a constant position if its value is used only where the guard is true: a padded map
/// then reads the scale and the zero point of a tensor once, not at each point.
fn drop_guards(kernel: &mut Kernel) {
    let is_inside = |memlet: &Memlet, reads: &[Container]| {
        let dims = &reads[memlet.container].dims;
        memlet
            .index
            .iter()
            .zip(dims)
            .all(|(at, n)| at.as_const().zip(n.as_const()).is_some_and(|(at, n)| at >= 0 && at < n))
    };
    let free =
        |s: &Statement| matches!(&s.body, Body::Load { memlet, guard: Some(_) } if is_inside(memlet, &kernel.reads));
    let loads: Vec<usize> = (0..kernel.body.len()).filter(|k| free(&kernel.body[*k])).collect();
    if loads.is_empty() {
        return;
    }
    let mut users: Vec<Vec<usize>> = vec![vec![]; kernel.body.len()];
    for (k, statement) in kernel.body.iter().enumerate() {
        statement.body.operands().into_iter().for_each(|operand| users[operand].push(k));
    }
    let stored = kernel.stores.iter().flat_map(|s| statements_in(&s.memlet.index).into_iter().chain([s.value]));
    let stored: Vec<usize> = stored.collect();
    let mut unneeded = vec![];
    for (select, statement) in kernel.body.iter().enumerate() {
        let Body::Apply { f: ScalarFn::Select, args } = &statement.body else { continue };
        let [guard, value, other] = args[..] else { continue };
        // Statements whose values matter only where the guard is true.
        let mut inside = vec![false; select + 1];
        inside[select] = value != guard && value != other;
        for k in (0..select).rev() {
            // A reduction combines values of other points too, and a load reads where its guard and index say.
            let selected = |user: usize| match &kernel.body[user].body {
                _ if user == select => k == value && k != guard && k != other,
                Body::Apply { .. } | Body::Convert(..) => true,
                Body::Load { .. } | Body::Reduce { .. } | Body::Const(_) | Body::Index(_) => false,
            };
            let used = |user: &usize| *user <= select && inside[*user] && selected(*user);
            inside[k] = !users[k].is_empty() && users[k].iter().all(used) && !stored.contains(&k);
        }
        let guarded = |k: &usize| matches!(kernel.body[*k].body, Body::Load { guard: Some(g), .. } if g == guard);
        unneeded.extend(loads.iter().copied().filter(|k| *k < select && inside[*k]).filter(guarded));
    }
    for k in unneeded {
        if let Body::Load { guard, .. } = &mut kernel.body[k].body {
            *guard = None;
        }
    }
}

fn share_statements(kernel: &mut Kernel) {
    let mut map: Vec<usize> = vec![];
    let mut body: Vec<Statement> = vec![];
    for statement in &kernel.body {
        let new = statement.body.renumbered(&|k| map[k], &|d| rename(d, &|_| None, &|k| map[k]));
        let new = Statement { body: new, dtype: statement.dtype };
        // Bodies are short: comparing statements is faster than hashing them.
        map.push(body.iter().position(|known| *known == new).unwrap_or(body.len()));
        if map.last() == Some(&body.len()) {
            body.push(new);
        }
    }
    kernel.body = body;
    renumber_stores(kernel, &map);
}

/// Renumbers the statements in stores.
pub fn renumber_stores(kernel: &mut Kernel, map: &[usize]) {
    for store in &mut kernel.stores {
        store.value = map[store.value];
        store.memlet.index.iter_mut().for_each(|d| *d = rename(d, &|_| None, &|k| map[k]));
    }
}

fn drop_dead_statements(kernel: &mut Kernel) {
    let mut live = vec![false; kernel.body.len()];
    let mut stack: Vec<usize> =
        kernel.stores.iter().flat_map(|s| statements_in(&s.memlet.index).into_iter().chain([s.value])).collect();
    while let Some(k) = stack.pop() {
        if !std::mem::replace(&mut live[k], true) {
            stack.extend(kernel.body[k].body.operands());
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
